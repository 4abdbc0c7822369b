/* test_smatch.c - SMATCH against the Python package (tools/make_amr_golden.py), against every mapping, and by
 * hand. */
#include "amr/smatch.h"

#include <jansson.h>

#include "amr/smatch_int.h"
#include "base/rng.h"
#include "data/rows.h"
#include "tests/test.h"

static SmatchScore score_with(const char *gold, const char *predicted, SmatchOptions o) {
    AmrCorpus g, p;
    SmatchScore s;
    Str a = {0}, b = {0};
    Err e = {0};
    str_add(&a, gold);
    str_add(&b, predicted);
    EXPECT_OK(amr_corpus_parse(&g, &a, "gold", 1, &e) && amr_corpus_parse(&p, &b, "predicted", 1, &e));
    EXPECT_OK(smatch_score(&s, &g, &p, &o, &e));
    amr_corpus_free(&g);
    amr_corpus_free(&p);
    return s;
}

static SmatchScore score(const char *gold, const char *predicted) {
    return score_with(gold, predicted, smatch_defaults());
}

static void expect_counts(const char *gold, const char *predicted, SmatchMetric m, int64_t matched,
                          int64_t n_predicted, int64_t n_gold) {
    SmatchScore s = score(gold, predicted);
    SmatchCounts c = s.of[m];
    if (!EXPECT(c.matched == matched && c.predicted == n_predicted && c.gold == n_gold))
        test_note("    %s of %s: %lld of %lld and %lld", smatch_metric_name(m), predicted, (long long)c.matched,
                  (long long)c.predicted, (long long)c.gold);
    smatch_score_free(&s);
}

/* ---- against smatch ---- */

static void expect_as_smatch(const json_t *row, int64_t *equal, int64_t *certain) {
    SmatchScore s = score(json_string_value(json_object_get(row, "gold")),
                          json_string_value(json_object_get(row, "predicted")));
    EXPECT(s.proved[SMATCH_FULL] == 1 && s.bound == s.of[SMATCH_FULL].matched);
    for (int m = 0; m < SMATCH_MAPPED; m++) {
        const json_t *want = json_object_get(json_object_get(row, "metrics"), smatch_metric_name((SmatchMetric)m));
        if (!want) continue;
        int64_t n[3];
        for (size_t i = 0; i < 3; i++) n[i] = json_integer_value(json_array_get(want, i));
        bool all = json_is_true(json_array_get(want, 3));
        SmatchCounts c = s.of[m];
        if (!EXPECT(c.predicted == n[1] && c.gold == n[2] && c.matched >= n[0] && (!all || c.matched == n[0])))
            test_note("    %s: %lld of %lld and %lld, smatch has %lld of %lld and %lld",
                      smatch_metric_name((SmatchMetric)m), (long long)c.matched, (long long)c.predicted,
                      (long long)c.gold, (long long)n[0], (long long)n[1], (long long)n[2]);
        *equal += c.matched == n[0];
        *certain += all;
    }
    smatch_score_free(&s);
}

TEST(scores_are_those_of_smatch_and_never_below) {
    RowReader r;
    json_t *row;
    Err e;
    int64_t n = 0, equal = 0, certain = 0;
    bool ok = dataset_reader_open(&r, "tests/amr/smatch.jsonl", &e);
    EXPECT_OK(ok);
    while (ok && (ok = dataset_reader_next(&r, &row, &e)) && row) {
        expect_as_smatch(row, &equal, &certain);
        json_decref(row);
        n++;
    }
    dataset_reader_close(&r);
    EXPECT(n == 240 && certain > 700 && equal > 1300);
}

/* ---- against every mapping ---- */

/* Few labels and many relations: hard pairs, on which climbing is often wrong. */
static void draw_graph(SmatchGraph *g, uint64_t key, int nodes, int labels) {
    *g = (SmatchGraph){.n = nodes};
    g->concept = MEM_NEW(int32_t, nodes);
    g->attribute = MEM_NEW(SmatchAttribute, nodes);
    g->relation = MEM_NEW(SmatchRelation, 3 * nodes);
    for (int i = 0; i < nodes; i++) g->concept[i] = (int32_t)(rng_u32(key, (uint64_t)i) % (unsigned)labels);
    for (int i = 0; i < nodes / 2; i++) {
        uint32_t x = rng_u32(key, (uint64_t)(100 + i));
        g->attribute[g->n_attributes++] =
            (SmatchAttribute){(int32_t)(x % 2), (int32_t)(x / 2 % (unsigned)nodes), 0};
    }
    for (int i = 0; i < 2 * nodes; i++) {
        uint32_t x = rng_u32(key, (uint64_t)(200 + i));
        g->relation[g->n_relations++] = (SmatchRelation){(int32_t)(x % 3), (int32_t)(x / 3 % (unsigned)nodes),
                                                         (int32_t)(x / 64 % (unsigned)nodes)};
    }
}

static int64_t best_of_all(const SmatchProblem *p, int32_t *map, int row, uint32_t used) {
    if (row == p->rows) return smatch_matched(p, map);
    map[row] = -1;
    int64_t best = best_of_all(p, map, row + 1, used);
    for (int c = 0; c < p->columns; c++) {
        if (used >> c & 1) continue;
        map[row] = c;
        int64_t n = best_of_all(p, map, row + 1, used | 1u << c);
        best = MAX2(best, n);
    }
    map[row] = -1;
    return best;
}

TEST(the_search_finds_the_best_of_all_mappings) {
    int64_t pairs = test_number("pairs", 400), climbed_less = 0;
    for (int64_t i = 0; i < pairs; i++) {
        SmatchGraph a, b;
        SmatchProblem p;
        int32_t map[8];
        uint64_t key = rng_fold(rng_fold(5, (uint64_t)test_number("seed", 1)), (uint64_t)i);
        draw_graph(&a, rng_fold(key, 1), 1 + (int)(i % 6), 1 + (int)(i % 3));
        draw_graph(&b, rng_fold(key, 2), 1 + (int)(i / 6 % 7), 1 + (int)(i % 3));
        smatch_problem_make(&p, &a, &b);
        SmatchOptions o = smatch_defaults(), climb = o;
        climb.climb = true;
        climb.restarts = 0;
        SmatchFound exact = smatch_solve(&p, &o, key), fast = smatch_solve(&p, &climb, key);
        int64_t best = best_of_all(&p, map, 0, 0);
        if (!EXPECT(exact.matched == best && exact.bound == best && p.bound >= best && fast.matched <= best &&
                    fast.bound >= best))
            test_note("    pair %lld: best %lld, found %lld, bound %lld, climbed %lld", (long long)i,
                      (long long)best, (long long)exact.matched, (long long)exact.bound, (long long)fast.matched);
        climbed_less += fast.matched < best;
        smatch_problem_free(&p);
        smatch_graph_free(&a);
        smatch_graph_free(&b);
    }
    EXPECT(climbed_less > 0); /* or the pairs were too easy to show anything */
}

/* What is not proved has an honest bound: the true best lies between. */
TEST(a_search_that_is_cut_short_says_so) {
    int64_t open = 0;
    for (uint64_t i = 0; i < 12; i++) {
        SmatchGraph a, b;
        SmatchProblem p;
        draw_graph(&a, rng_fold(91, i), 12, 1);
        draw_graph(&b, rng_fold(92, i), 14, 1);
        smatch_problem_make(&p, &a, &b);
        SmatchOptions o = smatch_defaults(), longer = o;
        o.node_limit = 1;
        longer.node_limit = 1000000;
        SmatchFound cut = smatch_solve(&p, &o, i), full = smatch_solve(&p, &longer, i);
        EXPECT(cut.matched <= full.matched && full.matched == full.bound && cut.bound >= full.matched &&
               cut.bound <= p.bound);
        open += cut.bound > cut.matched;
        smatch_problem_free(&p);
        smatch_graph_free(&a);
        smatch_graph_free(&b);
    }
    EXPECT(open > 0);
}

/* ---- by hand ---- */

#define WANT "(w / want-01 :ARG0 (b / boy) :ARG1 (g / go-02 :ARG0 b))\n\n"

TEST(names_of_variables_and_the_order_of_branches_do_not_matter) {
    expect_counts(WANT, "(x / want-01 :ARG1 (y / go-02 :ARG0 (z / boy)) :ARG0 z)", SMATCH_FULL, 7, 7, 7);
    expect_counts(WANT, "(b / boy :ARG0-of (w / want-01 :ARG1 (g / go-02 :ARG0 b)))", SMATCH_FULL, 6, 7,
                  7); /* another top */
    expect_counts(WANT, "(w / want-01 :ARG0 (b / boy) :ARG1 (g / go-02))", SMATCH_FULL, 6, 6, 7);
    expect_counts("(a / x :mod (b / y))", "(a / x :domain-of (b / y))", SMATCH_FULL, 4, 4, 4);
    expect_counts("(a / X_ :op1 \"Kim\")", "(a / x :OP1 kim)", SMATCH_FULL, 3, 3, 3);
    expect_counts("(a / Đà_Nẵng)", "(a / đà_nẵng)", SMATCH_FULL, 2, 2, 2);
    expect_counts("(a / x~e.4 :ARG0~2 (b / y~1))", "(a / x :ARG0 (b / y))", SMATCH_FULL, 4, 4, 4);
}

/* smatch counts two equal triples against two as four, and F1 is above 1. */
TEST(a_triple_that_stands_twice_is_matched_twice) {
    expect_counts("(a / x :op1 (b / y) :op1 b)", "(a / x :op1 (b / y) :op1 b)", SMATCH_FULL, 5, 5, 5);
    expect_counts("(a / x :op1 1 :op1 1)", "(a / x :op1 1 :op1 1 :op1 1)", SMATCH_FULL, 4, 5, 4);
    expect_counts("(a / x :op1 a :op1 a)", "(a / x :op1 a)", SMATCH_FULL, 3, 3, 4);
}

TEST(what_smatch_does_with_strings_and_constants_is_counted) {
    SmatchScore s = score("(c / city :name \"New York\" :mod 3)", "(c / city :name \"New Jersey\")");
    EXPECT(s.of[SMATCH_FULL].matched == 3 && s.of[SMATCH_FULL].gold == 3 && s.first_words == 2 && s.dropped == 1);
    smatch_score_free(&s);
    SmatchOptions o = smatch_defaults();
    o.whole_strings = true;
    s = score_with("(c / city :name \"New York\" :mod 3)", "(c / city :name \"New Jersey\")", o);
    EXPECT(s.of[SMATCH_FULL].matched == 2 && s.first_words == 0);
    smatch_score_free(&s);
}

TEST(variants_look_at_what_they_say) {
    const char *p = "(w / want-02 :ARG1 (b / boy) :ARG0 (g / go-02 :ARG1 (b2 / boy) :polarity -))";
    expect_counts(WANT, p, SMATCH_UNLABELLED, 5, 9, 7);
    expect_counts(WANT, p, SMATCH_NO_SENSE, 4, 9, 7);
    expect_counts(WANT, p, SMATCH_REENTRANCY, 0, 0, 5);
    expect_counts(WANT, WANT, SMATCH_REENTRANCY, 5, 5, 5);
    expect_counts(WANT, p, SMATCH_CONCEPT, 2, 4, 3);
    expect_counts(WANT, p, SMATCH_RELATION, 0, 4, 3);
    expect_counts(WANT, WANT, SMATCH_RELATION, 3, 3, 3);
    expect_counts(WANT, p, SMATCH_ROOT, 0, 1, 1);
    expect_counts(WANT, p, SMATCH_ATTRIBUTES, 1, 2, 1);
    expect_counts("(d / date :year 2009)", "(d / date :year (y / 2009))", SMATCH_RELATION, 0, 1,
                  1); /* no concept is a constant */
}

TEST(an_invalid_prediction_counts_as_empty) {
    SmatchScore s = score(WANT "(a / x)", "(w / want-01 :ARG0 (w / boy))\n\n(a / x)");
    EXPECT(s.n == 2 && s.empty == 1 && s.pair[0].empty && s.proved[SMATCH_FULL] == 2);
    EXPECT(s.of[SMATCH_FULL].matched == 2 && s.of[SMATCH_FULL].predicted == 2 && s.of[SMATCH_FULL].gold == 9);
    EXPECT_NEAR(smatch_f1(s.of[SMATCH_FULL]), 4.0 / 11, 1e-12);
    smatch_score_free(&s);
}

static void expect_no_score(const char *gold, const char *predicted, const char *part) {
    AmrCorpus g, p;
    SmatchScore s;
    SmatchOptions o = smatch_defaults();
    Str a = {0}, b = {0};
    Err e = {0};
    str_add(&a, gold);
    str_add(&b, predicted);
    EXPECT_OK(amr_corpus_parse(&g, &a, "gold", 1, &e) && amr_corpus_parse(&p, &b, "pred", 1, &e));
    EXPECT(!smatch_score(&s, &g, &p, &o, &e) && strstr(e.text, part));
    smatch_score_free(&s);
    o.skip_bad_gold = true;
    if (smatch_score(&s, &g, &p, &o, &e)) EXPECT(s.skipped == 1 && s.n == 1);
    smatch_score_free(&s);
    amr_corpus_free(&g);
    amr_corpus_free(&p);
}

TEST(files_that_cannot_be_compared_are_refused) {
    expect_no_score(WANT WANT, WANT, "gold has 2 blocks, pred has 1");
    expect_no_score(WANT "(a / x", WANT WANT, "gold: block 2, line 3: the text ends");
}

TEST(the_same_files_give_the_same_numbers_again) {
    Str gold = {0}, predicted = {0};
    for (int i = 0; i < 40; i++) {
        str_addf(&gold, "(a / x%d :op1 (b / y :op2 (c / y :op1 a)) :op1 (d / y :op1 (e / y)))\n\n", i % 3);
        str_addf(&predicted, "(a / x%d :op1 (b / y :op2 (c / y :op1 (e / y))) :op2 (d / y :op1 %s))\n\n", i % 2,
                 i % 5 ? "e" : "a");
    }
    SmatchScore a = score(gold.data, predicted.data), b = score(gold.data, predicted.data);
    for (int m = 0; m < SMATCH_METRICS; m++) EXPECT(!memcmp(&a.of[m], &b.of[m], sizeof a.of[m]));
    SmatchInterval x = smatch_interval(&a, SMATCH_FULL, 500, 7), y = smatch_interval(&b, SMATCH_FULL, 500, 7);
    double f1 = smatch_f1(a.of[SMATCH_FULL]);
    EXPECT(x.low == y.low && x.high == y.high && x.low < f1 && f1 < x.high && x.high - x.low < 0.2);
    EXPECT_NEAR(smatch_beats(&a, &b, SMATCH_FULL, 200, 7), 0.5, 0);
    SmatchScore right = score(gold.data, gold.data);
    EXPECT(smatch_f1(right.of[SMATCH_FULL]) == 1 && smatch_beats(&right, &a, SMATCH_FULL, 200, 7) == 1);
    smatch_score_free(&a);
    smatch_score_free(&b);
    smatch_score_free(&right);
    str_free(&gold);
    str_free(&predicted);
}

/* Graphs of a few hundred nodes are climbed and proved without a table that grows beyond them. */
TEST(a_document_of_many_sentences_is_scored) {
    Str gold = {0}, predicted = {0};
    str_add(&gold, "(m / multi-sentence");
    str_add(&predicted, "(m / multi-sentence");
    for (int i = 0; i < 100; i++) {
        str_addf(&gold, " :snt%d (a%d / see-01 :ARG0 (b%d / boy) :ARG1 (c%d / c%d))", i, i, i, i, i % 17);
        str_addf(&predicted, " :snt%d (a%d / see-01 :ARG0 (b%d / boy) :ARG1 (c%d / c%d))", i, i, i, i,
                 (i + i / 10) % 17);
    }
    str_add(&gold, ")");
    str_add(&predicted, ")");
    SmatchScore s = score(gold.data, predicted.data);
    EXPECT(s.proved[SMATCH_FULL] == 1 && s.of[SMATCH_FULL].gold == 602 && s.of[SMATCH_FULL].matched >= 512);
    smatch_score_free(&s);
    str_free(&gold);
    str_free(&predicted);
}
