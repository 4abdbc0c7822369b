/* stats.c - counting: nodes, relations, re-entrancies, depth, lengths. */
#include "amr/stats.h"

#include <string.h>

#include "amr/words.h"

static int bucket(int64_t n) {
    int b = 0;
    while (n > 1 && b < AMR_BUCKETS - 1) n /= 2, b++;
    return b;
}

static int64_t count_words(const char *text) {
    int64_t n = 0;
    for (text += strspn(text, " \t"); *text; text += strspn(text, " \t")) {
        text += strcspn(text, " \t");
        n++;
    }
    return n;
}

static int64_t depth_of(const Penman *p) {
    int64_t most = 0;
    for (int32_t i = 0; i < p->n_nodes; i++) {
        int64_t d = 1;
        for (int32_t up = p->node[i].parent; up >= 0; up = p->node[up].parent) d++;
        most = MAX2(most, d);
    }
    return most;
}

static void count_branch(AmrStats *s, const Penman *p, const PenmanBranch *b, AmrWords *concepts,
                         AmrWords *roles) {
    bool again = b->node < 0 && penman_find(p, b->atom) >= 0;
    if (!strcmp(b->role, "/")) {
        amr_word(concepts, b->atom);
        return;
    }
    amr_word(roles, b->role);
    s->relations += again || b->node >= 0;
    s->attributes += !again && b->node < 0;
    s->reentrancies += again;
    s->inverses += penman_is_inverse(b->role, (int64_t)strlen(b->role));
    s->names += !strcmp(b->role, ":name");
}

static void count_graph(AmrStats *s, const Penman *p, AmrWords *concepts, AmrWords *roles) {
    int64_t depth = depth_of(p);
    s->graphs++;
    s->nodes += p->n_nodes;
    s->nodes_most = MAX2(s->nodes_most, p->n_nodes);
    s->depth_sum += depth;
    s->depth_most = MAX2(s->depth_most, depth);
    s->by_nodes[bucket(p->n_nodes)]++;
    s->unbound += amr_unbound(p);
    for (int64_t i = 0; i < p->n_branches; i++) count_branch(s, p, &p->branch[i], concepts, roles);
}

void amr_stats(AmrStats *s, const AmrCorpus *c, int64_t first, int64_t end) {
    AmrWords concepts, roles;
    *s = (AmrStats){0};
    amr_words_init(&concepts);
    amr_words_init(&roles);
    for (int64_t i = first; i < end; i++) {
        const AmrBlock *b = &c->block[i];
        int64_t words = b->sentence ? count_words(b->sentence) : 0;
        s->sentences += b->sentence != NULL;
        s->words += words;
        if (b->sentence) s->by_words[bucket(words)]++;
        if (!b->fault) count_graph(s, &b->graph, &concepts, &roles);
    }
    s->concepts = concepts.n;
    s->roles = roles.n;
    amr_words_free(&concepts);
    amr_words_free(&roles);
}
