/* smatch.c - SMATCH of two files of graphs, pair by pair: every metric's counts, their sums, and their confidence
 * intervals. */
#include "amr/smatch.h"

#include <stdlib.h>
#include <string.h>

#include "amr/smatch_int.h"
#include "base/rng.h"

enum { NODES_MOST = 2000, TRIPLES_MOST = 20000 }; /* of one graph: tables are squares */

const char *smatch_metric_name(SmatchMetric m) {
    static const char *const names[SMATCH_METRICS] = {
        [SMATCH_FULL] = "smatch",           [SMATCH_UNLABELLED] = "unlabelled", [SMATCH_NO_SENSE] = "no_sense",
        [SMATCH_REENTRANCY] = "reentrancy", [SMATCH_ATTRIBUTES] = "attributes", [SMATCH_RELATIONS] = "relations",
        [SMATCH_CONCEPT] = "concept",       [SMATCH_RELATION] = "relation",     [SMATCH_ROOT] = "root"};
    return names[m];
}

static double ratio(int64_t a, int64_t b) {
    return b ? (double)a / (double)b : 0;
}

double smatch_precision(SmatchCounts c) {
    return ratio(c.matched, c.predicted);
}
double smatch_recall(SmatchCounts c) {
    return ratio(c.matched, c.gold);
}
double smatch_f1(SmatchCounts c) {
    return ratio(2 * c.matched, c.predicted + c.gold);
}

SmatchOptions smatch_defaults(void) {
    return (SmatchOptions){.restarts = 4, .node_limit = 10000, .seed = 42};
}

/* ---- without a mapping: bags in common ---- */

typedef struct Fact {
    int32_t from, role, to;
} Fact;

static int by_fact(const void *x, const void *y) {
    return memcmp(x, y, sizeof(Fact));
}

/* (concept, role, concept) of every relation, (concept, role, value) of every attribute but TOP. */
static Fact *facts_of(const SmatchGraph *g, bool concepts_only, int64_t *n) {
    Fact *f = MEM_NEW(Fact, (int64_t)g->n + g->n_attributes + g->n_relations + 1);
    *n = 0;
    for (int i = 0; concepts_only && i < g->n; i++) f[(*n)++] = (Fact){g->concept[i], -1, -1};
    for (int i = 0; !concepts_only && i < g->n_relations; i++) {
        SmatchRelation r = g->relation[i];
        f[(*n)++] = (Fact){g->concept[r.from], r.role, g->concept[r.to]};
    }
    for (int i = 0; !concepts_only && i + 1 < g->n_attributes; i++) {
        SmatchAttribute a = g->attribute[i];
        f[(*n)++] = (Fact){g->concept[a.node], a.role, ~a.value}; /* a constant is no concept */
    }
    qsort(f, (size_t)*n, sizeof *f, by_fact);
    return f;
}

static SmatchCounts count_facts(const SmatchGraph *gold, const SmatchGraph *predicted, bool concepts_only) {
    int64_t n_gold, n_predicted, matched = 0;
    Fact *a = facts_of(gold, concepts_only, &n_gold), *b = facts_of(predicted, concepts_only, &n_predicted);
    for (int64_t i = 0, k = 0; i < n_gold && k < n_predicted;) {
        int order = by_fact(&a[i], &b[k]);
        matched += order == 0;
        i += order <= 0;
        k += order >= 0;
    }
    mem_free(a);
    mem_free(b);
    return (SmatchCounts){matched, n_predicted, n_gold};
}

static SmatchCounts count_root(const SmatchGraph *gold, const SmatchGraph *predicted) {
    bool same = gold->n && predicted->n && gold->concept[0] == predicted->concept[0];
    return (SmatchCounts){same, predicted->n > 0, gold->n > 0};
}

/* ---- with one ---- */

static SmatchFound match(const SmatchGraph *gold, const SmatchGraph *predicted, const SmatchOptions *o,
                         uint64_t key) {
    SmatchProblem p;
    smatch_problem_make(&p, gold, predicted);
    SmatchFound found = smatch_solve(&p, o, key);
    smatch_problem_free(&p);
    return found;
}

static void count_variant(SmatchPair *out, const SmatchGraph *gold, const SmatchGraph *predicted, SmatchMetric m,
                          AmrWords *w, SmatchOptions o, uint64_t key) {
    SmatchGraph a, b;
    o.node_limit = MAX2(1, o.node_limit / 10);
    smatch_graph_view(&a, gold, m, w);
    smatch_graph_view(&b, predicted, m, w);
    SmatchFound found = match(&a, &b, &o, key);
    out->of[m] = (SmatchCounts){found.matched, smatch_graph_triples(&b), smatch_graph_triples(&a)};
    out->proved[m] = found.bound == found.matched;
    smatch_graph_free(&a);
    smatch_graph_free(&b);
}

/* ---- a pair ---- */

static bool is_small(const Penman *p) {
    return p->n_nodes <= NODES_MOST && p->n_branches <= TRIPLES_MOST;
}

static void score_pair(SmatchPair *out, SmatchScore *s, const AmrBlock *gold, const AmrBlock *predicted,
                       AmrWords *w, const SmatchOptions *o, uint64_t key) {
    SmatchGraph g, p;
    out->empty = predicted->fault != NULL;
    smatch_graph_make(&g, &gold->graph, w, o);
    smatch_graph_make(&p, out->empty ? NULL : &predicted->graph, w, o);
    SmatchFound full = match(&g, &p, o, key);
    out->of[SMATCH_FULL] = (SmatchCounts){full.matched, smatch_graph_triples(&p), smatch_graph_triples(&g)};
    out->bound = full.bound;
    out->proved[SMATCH_FULL] = full.bound == full.matched;
    for (int m = SMATCH_FULL + 1; !o->only_full && m < SMATCH_MAPPED; m++)
        count_variant(out, &g, &p, (SmatchMetric)m, w, *o, key);
    out->of[SMATCH_CONCEPT] = count_facts(&g, &p, true);
    out->of[SMATCH_RELATION] = count_facts(&g, &p, false);
    out->of[SMATCH_ROOT] = count_root(&g, &p);
    s->first_words += g.first_words + p.first_words;
    s->dropped += g.dropped + p.dropped;
    smatch_graph_free(&g);
    smatch_graph_free(&p);
}

static void add_up(SmatchScore *s, const SmatchPair *pair) {
    for (int m = 0; m < SMATCH_METRICS; m++) {
        s->of[m].matched += pair->of[m].matched;
        s->of[m].predicted += pair->of[m].predicted;
        s->of[m].gold += pair->of[m].gold;
    }
    s->bound += pair->bound;
    for (int m = 0; m < SMATCH_MAPPED; m++) s->proved[m] += pair->proved[m];
    s->empty += pair->empty;
}

static bool check_sizes(const AmrCorpus *gold, const AmrCorpus *predicted, Err *e) {
    if (gold->n != predicted->n)
        return fail(e, ERR_FAIL,
                    "%s has %lld blocks, %s has %lld: the k-th graphs are compared, so both need as many. "
                    "A sentence without a graph keeps its block",
                    gold->path, (long long)gold->n, predicted->path, (long long)predicted->n);
    for (int64_t i = 0; i < gold->n; i++) {
        bool small = is_small(&gold->block[i].graph);
        if (small && is_small(&predicted->block[i].graph)) continue;
        return fail(e, ERR_FAIL, "%s: block %lld has more than %d nodes or %d triples",
                    (small ? predicted : gold)->path, (long long)i + 1, NODES_MOST, TRIPLES_MOST);
    }
    return true;
}

bool smatch_score(SmatchScore *out, const AmrCorpus *gold, const AmrCorpus *predicted, const SmatchOptions *o,
                  Err *e) {
    *out = (SmatchScore){0};
    if (!check_sizes(gold, predicted, e)) return false;
    if (!o->skip_bad_gold && !amr_corpus_require_valid(gold, e)) return false;
    AmrWords words;
    amr_words_init(&words);
    out->pair = MEM_NEW(SmatchPair, gold->n + 1);
    for (int64_t i = 0; i < gold->n; i++) {
        if (gold->block[i].fault) {
            out->skipped++;
            continue;
        }
        SmatchPair *pair = &out->pair[out->n++];
        score_pair(pair, out, &gold->block[i], &predicted->block[i], &words, o, rng_fold(o->seed, (uint64_t)i));
        add_up(out, pair);
    }
    amr_words_free(&words);
    return true;
}

void smatch_score_free(SmatchScore *s) {
    mem_free(s->pair);
    *s = (SmatchScore){0};
}

/* ---- bootstrap ---- */

static double resampled_f1(const SmatchScore *s, SmatchMetric m, uint64_t key) {
    SmatchCounts c = {0};
    for (int64_t i = 0; i < s->n; i++) {
        const SmatchCounts *pair = &s->pair[rng_fold(key, (uint64_t)i) % (uint64_t)s->n].of[m];
        c.matched += pair->matched;
        c.predicted += pair->predicted;
        c.gold += pair->gold;
    }
    return smatch_f1(c);
}

static int by_value(const void *x, const void *y) {
    double a = *(const double *)x, b = *(const double *)y;
    return a < b ? -1 : a > b;
}

SmatchInterval smatch_interval(const SmatchScore *s, SmatchMetric m, int resamples, uint64_t seed) {
    double *f1 = MEM_NEW(double, resamples);
    for (int i = 0; i < resamples; i++) f1[i] = resampled_f1(s, m, rng_fold(seed, (uint64_t)i));
    qsort(f1, (size_t)resamples, sizeof *f1, by_value);
    int cut = resamples / 40; /* 2.5 % on either side */
    SmatchInterval between = {f1[cut], f1[resamples - 1 - cut]};
    mem_free(f1);
    return between;
}

double smatch_beats(const SmatchScore *a, const SmatchScore *b, SmatchMetric m, int resamples, uint64_t seed) {
    double won = 0;
    CHECK(a->n == b->n);
    for (int i = 0; i < resamples; i++) {
        uint64_t key = rng_fold(seed, (uint64_t)i);
        double x = resampled_f1(a, m, key), y = resampled_f1(b, m, key);
        won += x > y ? 1 : x == y ? 0.5 : 0;
    }
    return won / resamples;
}
