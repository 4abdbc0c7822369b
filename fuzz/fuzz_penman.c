/* fuzz_penman.c - graphs from anywhere: what is accepted is printed in every layout and read back as the same
 * graph, and so is a file of blocks. */
#include <string.h>

#include "amr/corpus.h"
#include "amr/prompt.h"
#include "amr/stats.h"
#include "data/source.h"
#include "base/mem.h"
#include "fuzz/fuzz.h"

enum { SMALL = 1500 }; /* bytes; an indented text may be as long as its lines times its depth */

static bool same_text(const char *a, const char *b) {
    return a == b || (a && b && !strcmp(a, b));
}

/* Trees are compared branch by branch, graphs triple by triple. */
static void expect_same(const Penman *a, const Penman *b) {
    int64_t n, m;
    PenmanTriple *x = penman_triples(a, &n), *y = penman_triples(b, &m);
    CHECK(a->n_nodes == b->n_nodes && a->n_branches == b->n_branches && n == m);
    for (int64_t i = 0; i < a->n_branches; i++) {
        const PenmanBranch *p = &a->branch[i], *q = &b->branch[i];
        CHECK(same_text(p->role, q->role) && same_text(p->atom, q->atom) && p->node == q->node &&
              p->next == q->next);
        CHECK(same_text(p->role_mark, q->role_mark) && same_text(p->atom_mark, q->atom_mark));
    }
    for (int64_t i = 0; i < n; i++) {
        CHECK(same_text(x[i].source, y[i].source) && same_text(x[i].target, y[i].target) &&
              x[i].role_len == y[i].role_len);
        CHECK(x[i].source_node == y[i].source_node && x[i].target_node == y[i].target_node);
    }
    mem_free(x);
    mem_free(y);
}

static void print_and_read(const Penman *p, PenmanLayout layout) {
    Str s = {0};
    Penman again;
    Err e = {0};
    penman_print(&s, p, layout);
    PenmanText from = {s.data, s.data + s.len, 1};
    bool ok = penman_read(&again, &from, &e);
    CHECK_MSG(ok, "%s", e.text);
    CHECK(penman_at_end(&from) && penman_check(p, NULL) == penman_check(&again, NULL));
    expect_same(p, &again);
    penman_free(&again);
    str_free(&s);
}

static void use_graph(const Penman *p, int64_t size) {
    Str bare = {0};
    print_and_read(p, PENMAN_ONE_LINE);
    print_and_read(p, PENMAN_FLAT);
    if (size < SMALL) print_and_read(p, PENMAN_INDENTED);
    if (penman_check(p, NULL) && size < SMALL)
        amr_print_bare(&bare, p); /* a concept may be named again and again */
    str_free(&bare);
}

static void use_corpus(const uint8_t *data, int64_t size) {
    AmrCorpus c;
    AmrStats s;
    Str text = {0};
    str_add_bytes(&text, (const char *)data, size);
    source_is_amr(str_text(&text), size);
    if (amr_corpus_parse(&c, &text, "fuzz", 1, NULL)) {
        int64_t valid = 0;
        for (int64_t i = 0; i < c.n; i++) valid += !c.block[i].fault;
        amr_stats(&s, &c, 0, c.n);
        CHECK(valid == c.valid && s.graphs == c.valid);
    }
    amr_corpus_free(&c);
    str_free(&text);
}

/* The factor: a node and a branch for every few bytes, their lists while they grow, the same again for the printed
 * text. */
FUZZ(penman, 4 * MIB, 512) {
    Penman p;
    PenmanText from = {(const char *)data, (const char *)data + size, 1};
    if (penman_read(&p, &from, NULL)) use_graph(&p, size);
    penman_free(&p);
    use_corpus(data, size);
}
