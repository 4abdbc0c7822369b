/* record.c - from a track to its record, and from records to sums. */
#include "reason/record.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

#include "base/json.h"
#include "base/mem.h"

/* ---- a record ---- */

static json_t *truth(Correct c) {
    return c == CORRECT_UNKNOWN ? json_null() : json_boolean(c == CORRECT_YES);
}

static json_t *scores(const Version *v, const Rubric *r) {
    json_t *map = json_object();
    for (int i = 0; i < r->n; i++)
        json_object_set_new(map, r->criterion[i].name, json_number(v->judgement.score[i]));
    return map;
}

static json_t *old_version(const Version *v, int iteration, const Rubric *r) {
    return json_pack("{s:i, s:s, s:s, s:o, s:o, s:s, s:o, s:b}", "iteration", iteration, "solution", v->solution,
                     "reasoning", v->reasoning, "quality_score", json_number(v->judgement.quality), "scores",
                     scores(v, r), "evaluation", v->evaluation, "correct", truth(v->correct), "cut", v->cut);
}

static json_t *iterations(const Track *t) {
    json_t *list = json_array();
    for (int i = 0; i < t->n_versions; i++)
        json_array_append_new(list, json_pack("{s:i, s:o, s:o, s:i}", "iteration", i, "quality_score",
                                              json_number(t->version[i].judgement.quality), "correct",
                                              truth(t->version[i].correct), "kept", t->kept_after[i]));
    return list;
}

static json_t *tokens_of(const Track *t) {
    json_t *map = json_object();
    for (int i = 0; i < ASK_ROLES; i++)
        json_object_set_new(map, ask_role_name((AskRole)i), json_integer(t->tokens[i]));
    return map;
}

static json_t *time_text(double when) {
    char text[40];
    struct tm tm;
    if (when <= 0 || when > 1e11) return json_null(); /* no reply, or no clock */
    time_t seconds = (time_t)when;
    bool ok = gmtime_r(&seconds, &tm) && strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &tm);
    return ok ? json_string(text) : json_null();
}

static json_t *metadata(const Track *t, const Version *kept, const Rubric *r) {
    const Problem *q = t->problem;
    json_t *older = json_array();
    for (int i = 0; i < t->n_versions; i++)
        if (i != t->kept) json_array_append_new(older, old_version(&t->version[i], i, r));
    json_t *m = json_pack("{s:O?, s:I, s:o, s:o, s:o, s:s, s:b, s:i, s:o, s:o, s:o, s:o, s:b}",
                          "original_data", q->original,
                          "place", (json_int_t)t->place,
                          "reference", q->reference[0] ? json_string(q->reference) : json_null(),
                          "correct", truth(kept->correct),
                          "scores", scores(kept, r),
                          "evaluation", kept->evaluation,
                          "needs_improvement", !track_good(t, r),
                          "improvement_iteration", MAX2(0, t->n_versions - 1),
                          "kept_iteration", t->kept >= 0 ? json_integer(t->kept) : json_null(),
                          "iterations", iterations(t),
                          "previous_versions", older,
                          "tokens", tokens_of(t),
                          "cut", kept->cut);
    if (m && t->note) json_object_set_new(m, "note", json_string(t->note));
    return m;
}

json_t *record_make(const Track *t, const Rubric *r) {
    Version nothing = {.reasoning = "", .solution = "", .evaluation = "", .correct = CORRECT_UNKNOWN};
    const Version *kept = t->kept < 0 ? &nothing : &t->version[t->kept];
    for (int i = 0; i < CRITERIA_MOST; i++) nothing.judgement.score[i] = (double)NAN;
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o}",
                     "problem", t->problem->text,
                     "solution", kept->solution,
                     "reasoning", kept->reasoning,
                     "quality_score", json_number(track_quality(t)),
                     "timestamp", time_text(t->when),
                     "metadata", metadata(t, kept, r));
}

/* ---- sums ---- */

const json_t *record_meta(const json_t *record, const char *key) {
    return json_object_get(json_object_get(record, "metadata"), key);
}

const char *record_text(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

void tally_begin(Tally *t, const Rubric *r) {
    *t = (Tally){.n_criteria = r->n, .threshold = r->threshold};
    for (int i = 0; i < r->n; i++) t->criterion[i] = r->criterion[i].name;
}

/* What stood after round `round`: the iteration kept there, of a problem that may have been done before. */
static void add_round(Tally *t, const json_t *list, int round) {
    size_t n = json_array_size(list);
    if (!n) return;
    const json_t *last = json_array_get(list, MIN2((size_t)round, n - 1));
    json_int_t kept = json_integer_value(json_object_get(last, "kept"));
    const json_t *version = json_array_get(list, (size_t)kept),
                 *quality = json_object_get(version, "quality_score");
    double q = json_number_value(quality);
    t->after[round].correct += json_is_true(json_object_get(version, "correct"));
    t->after[round].fresh += kept == round;
    t->after[round].judged += json_is_number(quality);
    t->after[round].good += json_is_number(quality) && q >= t->threshold;
    t->after[round].quality += q;
}

void tally_add(Tally *t, const json_t *record) {
    const json_t *list = record_meta(record, "iterations"), *map = record_meta(record, "scores");
    t->n++;
    t->noted += record_meta(record, "note") != NULL;
    t->with_reference += json_is_string(record_meta(record, "reference"));
    t->rounds = MIN2(ROUNDS_MOST, MAX2(t->rounds, (int)json_array_size(list) - 1));
    for (int i = 0; i <= ROUNDS_MOST; i++) add_round(t, list, i);
    for (int i = 0; i < t->n_criteria; i++) {
        const json_t *x = json_object_get(map, t->criterion[i]);
        t->scored[i] += json_is_number(x);
        t->score[i] += json_number_value(x);
    }
    const char *role;
    json_t *count;
    json_object_foreach((json_t *)record_meta(record, "tokens"), role, count) {
        t->tokens += json_integer_value(count);
    }
}
