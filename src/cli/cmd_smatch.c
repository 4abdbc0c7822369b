/* cmd_smatch.c - snug smatch: a gold file against one or more files of predictions, as a table or as JSON. */
#include <stdio.h>
#include <string.h>

#include "amr/smatch.h"
#include "base/process.h"
#include "cli/cmd.h"
#include "cli/peak.h"

/* Heap for each byte of a file: its words, told apart by number. And for one pair under search. */
enum { WORD_SHARE = 2, SEARCH_BYTES = 16 << 20 };

typedef struct Prediction {
    const char *path;
    SmatchScore score;
    SmatchInterval interval;
    int64_t bytes;      /* heap while it was scored, beside the gold file */
    double beats_first; /* share of the resamples in which it is better than the first prediction */
} Prediction;

static SmatchOptions search_options(const Options *o) {
    SmatchOptions s = smatch_defaults();
    s.climb = opt_is(o, OPT_SEARCH, "climb");
    s.restarts = (int)opt_int(o, OPT_RESTARTS);
    s.node_limit = opt_int(o, OPT_NODE_LIMIT);
    s.seed = (uint64_t)opt_int(o, OPT_SEED);
    s.whole_strings = opt_flag(o, OPT_WHOLE_STRINGS);
    s.skip_bad_gold = opt_flag(o, OPT_SKIP_BAD_GOLD);
    return s;
}

static double valid_share(const SmatchScore *s) {
    return s->n ? (double)(s->n - s->empty) / (double)s->n : 0;
}

/* F1 if every pair matched as much as its bound allows. */
static double f1_at_most(const SmatchScore *s) {
    SmatchCounts c = s->of[SMATCH_FULL];
    c.matched = s->bound;
    return smatch_f1(c);
}

/* ---- JSON ---- */

static json_t *counts_json(SmatchCounts c) {
    return json_pack("{s:f, s:f, s:f, s:I, s:I, s:I}", "precision", smatch_precision(c), "recall",
                     smatch_recall(c), "f1", smatch_f1(c), "matched", (json_int_t)c.matched, "predicted",
                     (json_int_t)c.predicted, "gold", (json_int_t)c.gold);
}

static json_t *pairs_json(const SmatchScore *s) {
    json_t *list = json_array();
    for (int64_t i = 0; i < s->n; i++) {
        const SmatchPair *p = &s->pair[i];
        json_t *j = counts_json(p->of[SMATCH_FULL]);
        json_object_set_new(j, "bound", json_integer(p->bound));
        json_object_set_new(j, "exact", json_boolean(p->proved[SMATCH_FULL]));
        json_object_set_new(j, "valid", json_boolean(!p->empty));
        json_array_append_new(list, j);
    }
    return list;
}

static json_t *prediction_json(const Prediction *p, const Options *o) {
    const SmatchScore *s = &p->score;
    json_t *j = counts_json(s->of[SMATCH_FULL]);
    json_t *more = json_pack("{s:s, s:b, s:I, s:I, s:s, s:f, s:[f,f], s:I, s:f, s:I, s:I, s:I}", "file", p->path,
                             "exact", s->proved[SMATCH_FULL] == s->n, "pairs", (json_int_t)s->n, "proved",
                             (json_int_t)s->proved[SMATCH_FULL], "search", opt_text(o, OPT_SEARCH), "f1_at_most",
                             f1_at_most(s), "interval", p->interval.low, p->interval.high, "invalid",
                             (json_int_t)s->empty, "valid", valid_share(s), "skipped", (json_int_t)s->skipped,
                             "first_words", (json_int_t)s->first_words, "dropped", (json_int_t)s->dropped);
    json_object_update_new(j, more);
    for (int m = SMATCH_FULL + 1; m < SMATCH_METRICS; m++) {
        json_t *variant = counts_json(s->of[m]);
        json_object_set_new(variant, "exact", json_boolean(m >= SMATCH_MAPPED || s->proved[m] == s->n));
        json_object_set_new(j, smatch_metric_name((SmatchMetric)m), variant);
    }
    if (opt_flag(o, OPT_PER_DOCUMENT)) json_object_set_new(j, "documents", pairs_json(s));
    return j;
}

/* One prediction is the object itself; of several the first is, and all stand in a list as well. */
static json_t *scores_json(const Prediction *p, int n, const Options *o) {
    json_t *j = prediction_json(&p[0], o);
    json_t *list = json_array();
    for (int i = 0; n > 1 && i < n; i++) {
        json_t *one = prediction_json(&p[i], o);
        if (i) json_object_set_new(one, "beats_first", json_real(p[i].beats_first));
        json_array_append_new(list, one);
    }
    if (n > 1) json_object_set(j, "predictions", list);
    json_decref(list);
    return j;
}

/* ---- for people ---- */

static void print_pairs(const SmatchScore *s) {
    for (int64_t i = 0; i < s->n; i++) {
        const SmatchPair *p = &s->pair[i];
        SmatchCounts c = p->of[SMATCH_FULL];
        printf("  %6lld  P %.4f  R %.4f  F1 %.4f  %lld of %lld and %lld triples%s%s\n", (long long)i + 1,
               smatch_precision(c), smatch_recall(c), smatch_f1(c), (long long)c.matched, (long long)c.predicted,
               (long long)c.gold, p->proved[SMATCH_FULL] ? "" : "  not proved",
               p->empty ? "  not a valid graph" : "");
    }
}

static void print_search(const Prediction *p, const Options *o) {
    const SmatchScore *s = &p->score;
    if (opt_is(o, OPT_SEARCH, "climb")) {
        printf(
            "found by hill climbing, seed %s, %s restarts; %lld of %lld pairs are at a bound that proves them\n",
            opt_text(o, OPT_SEED), opt_text(o, OPT_RESTARTS), (long long)s->proved[SMATCH_FULL], (long long)s->n);
    } else if (s->proved[SMATCH_FULL] == s->n) {
        printf("exact: for all %lld pairs no mapping matches more\n", (long long)s->n);
    } else {
        printf(
            "exact for %lld of %lld pairs; the others were climbed, and no mapping gives more than F1 %.4f "
            "(--node-limit)\n",
            (long long)s->proved[SMATCH_FULL], (long long)s->n, f1_at_most(s));
    }
    if (s->empty)
        printf("%lld predictions are no valid graph and count as empty (`snug amr check`)\n", (long long)s->empty);
    if (s->skipped) printf("%lld pairs were left out: their gold graph is not valid\n", (long long)s->skipped);
    if (s->first_words)
        printf("%lld strings with blanks were compared by their first word, as smatch does (--whole-strings)\n",
               (long long)s->first_words);
    if (s->dropped)
        printf("%lld constants behind an inverse role or :mod were not counted, as smatch does\n",
               (long long)s->dropped);
}

static void print_one(const Prediction *p, const Options *o) {
    const SmatchScore *s = &p->score;
    printf("%-14s %9s %9s %9s\n", "", "precision", "recall", "F1");
    for (int m = 0; m < SMATCH_METRICS; m++) {
        SmatchCounts c = s->of[m];
        printf("%-14s %9.4f %9.4f %9.4f", smatch_metric_name((SmatchMetric)m), smatch_precision(c),
               smatch_recall(c), smatch_f1(c));
        if (m == SMATCH_FULL) printf("  95 %%: %.4f to %.4f", p->interval.low, p->interval.high);
        if (m > SMATCH_FULL && m < SMATCH_MAPPED && s->proved[m] < s->n)
            printf("  at least: %lld pairs are not proved", (long long)(s->n - s->proved[m]));
        printf("\n");
    }
    printf("%-14s %29.4f\n", "valid", valid_share(s));
    print_search(p, o);
    if (opt_flag(o, OPT_PER_DOCUMENT)) print_pairs(s);
}

static void print_table(const Prediction *p, int n, const Options *o) {
    int width = 10;
    for (int i = 0; i < n; i++) width = MAX2(width, (int)strlen(p[i].path));
    printf("%-*s %7s %7s %7s  %-16s %7s %7s %7s %7s %7s %9s\n", width, "", "P", "R", "F1", "95 %", "valid",
           "concept", "relatn", "root", "reentr", "> first");
    for (int i = 0; i < n; i++) {
        const SmatchScore *s = &p[i].score;
        SmatchCounts c = s->of[SMATCH_FULL];
        printf("%-*s %7.4f %7.4f %7.4f  %.4f to %.4f %7.4f %7.4f %7.4f %7.4f %7.4f", width, p[i].path,
               smatch_precision(c), smatch_recall(c), smatch_f1(c), p[i].interval.low, p[i].interval.high,
               valid_share(s), smatch_f1(s->of[SMATCH_CONCEPT]), smatch_f1(s->of[SMATCH_RELATION]),
               smatch_f1(s->of[SMATCH_ROOT]), smatch_f1(s->of[SMATCH_REENTRANCY]));
        if (i) printf(" %7.1f %%", 100 * p[i].beats_first);
        printf("\n");
    }
    for (int i = 0; i < n; i++) {
        printf("%s: ", p[i].path);
        print_search(&p[i], o);
        if (opt_flag(o, OPT_PER_DOCUMENT)) print_pairs(&p[i].score);
    }
}

/* ---- the whole ---- */

static bool score_one(Prediction *p, const AmrCorpus *gold, const Options *o, Err *e) {
    AmrCorpus predicted;
    SmatchOptions s = search_options(o);
    bool ok = amr_corpus_read(&predicted, p->path, e) && smatch_score(&p->score, gold, &predicted, &s, e);
    p->bytes = ok ? amr_corpus_bytes(&predicted) + WORD_SHARE * predicted.text.len : 0;
    amr_corpus_free(&predicted);
    if (ok && !p->score.n) return fail(e, ERR_FAIL, "%s: no pair is left to compare", gold->path);
    if (ok) p->interval = smatch_interval(&p->score, SMATCH_FULL, (int)opt_int(o, OPT_RESAMPLES), s.seed);
    return ok;
}

/* The gold file stays, predictions take turns, scores of pairs are kept. */
static int64_t planned_bytes(const AmrCorpus *gold, const Prediction *p, int n, int resamples) {
    int64_t bytes = process_runtime_bytes(1) + SEARCH_BYTES + amr_corpus_bytes(gold) + WORD_SHARE * gold->text.len;
    int64_t most = 0, kept = 0;
    for (int i = 0; i < n; i++) {
        most = MAX2(most, p[i].bytes);
        kept += (gold->n + 1) * (int64_t)sizeof *p->score.pair;
    }
    return bytes + most + kept + 2 * resamples * (int64_t)sizeof(double);
}

bool cmd_smatch(const Options *o, Err *e) {
    AmrCorpus gold;
    int n = o->n_positional - 1, resamples = (int)opt_int(o, OPT_RESAMPLES);
    Prediction *p = MEM_NEW(Prediction, n);
    bool ok = amr_corpus_read(&gold, o->positional[0], e);
    for (int i = 0; ok && i < n; i++) {
        p[i].path = o->positional[i + 1];
        ok = score_one(&p[i], &gold, o, e);
        if (ok && i)
            p[i].beats_first =
                smatch_beats(&p[i].score, &p[0].score, SMATCH_FULL, resamples, (uint64_t)opt_int(o, OPT_SEED));
    }
    if (ok && !opt_flag(o, OPT_JSON) && n == 1) print_one(&p[0], o);
    if (ok && !opt_flag(o, OPT_JSON) && n > 1) print_table(p, n, o);
    ok = ok && peak_finish(scores_json(p, n, o), planned_bytes(&gold, p, n, resamples), o, e);
    for (int i = 0; i < n; i++) smatch_score_free(&p[i].score);
    mem_free(p);
    amr_corpus_free(&gold);
    return ok;
}
