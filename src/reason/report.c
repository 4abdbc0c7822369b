/* report.c - the closing table and the CSV. */
#include "reason/report.h"

#include <string.h>

#include "base/units.h"

/* ---- the table ---- */

static double share(double part, int64_t of) {
    return of ? part / (double)of : 0;
}

static void add_round(Str *out, const Tally *t, int round) {
    char name[40];
    snprintf(name, sizeof name, round ? "after round %d" : "first solutions", round);
    str_addf(out, "  %-16s", name);
    if (t->with_reference)
        str_addf(out, "%6lld of %-6lld %5.1f %%", (long long)t->after[round].correct, (long long)t->with_reference,
                 100 * share((double)t->after[round].correct, t->with_reference));
    else
        str_addf(out, "%25s", "no references");
    if (t->after[round].judged)
        str_addf(out, "%10.3f", share(t->after[round].quality, t->after[round].judged));
    else
        str_addf(out, "%10s", "-");
    str_addf(out, "%10lld%10lld", (long long)t->after[round].good, (long long)(t->n - t->after[round].good));
    if (round) str_addf(out, "%10lld", (long long)t->after[round].fresh);
    str_add_char(out, '\n');
}

void report_table(Str *out, const Tally *t) {
    str_addf(out, "  %-16s%25s%10s%10s%10s%10s\n", "", "correct by the reference", "quality", "good", "not yet",
             "improved");
    for (int i = 0; i <= t->rounds; i++) add_round(out, t, i);
    str_add(out, "  scores kept:");
    for (int i = 0; i < t->n_criteria; i++) {
        str_addf(out, "%s %s ", i ? "," : "", t->criterion[i]);
        if (t->scored[i])
            str_addf(out, "%.3f", share(t->score[i], t->scored[i]));
        else
            str_add(out, "-");
    }
    str_addf(out, "\n  %lld problems: %lld good (%g or better), %lld need improvement", (long long)t->n,
             (long long)t->after[t->rounds].good, t->threshold, (long long)(t->n - t->after[t->rounds].good));
    if (t->noted) str_addf(out, "; %lld ended early, see their note", (long long)t->noted);
    str_add_char(out, '\n');
}

/* ---- CSV: RFC 4180 ---- */

static void add_cell(Str *out, const char *text, char end) {
    bool quoted = text[strcspn(text, "\",\r\n")];
    if (quoted) str_add_char(out, '"');
    for (; *text; text++) {
        if (*text == '"') str_add_char(out, '"');
        str_add_char(out, *text);
    }
    if (quoted) str_add_char(out, '"');
    str_add_char(out, end);
}

static void add_value(Str *out, const json_t *v, char end) { /* nothing for null */
    if (json_is_string(v))
        add_cell(out, json_string_value(v), end);
    else if (json_is_boolean(v))
        str_addf(out, "%s%c", json_is_true(v) ? "true" : "false", end);
    else if (json_is_integer(v))
        str_addf(out, "%lld%c", (long long)json_integer_value(v), end);
    else if (json_is_real(v))
        str_addf(out, "%.6g%c", json_real_value(v), end);
    else
        str_add_char(out, end);
}

static const char *const own[] = {"problem", "solution", "reasoning", "quality_score", "timestamp"};
static const char *const meta[] = {"reference", "correct", "improvement_iteration", "kept_iteration"};

void report_csv_head(Str *out, const Rubric *r) {
    for (int i = 0; i < COUNT_OF(own); i++) add_cell(out, own[i], ',');
    for (int i = 0; i < COUNT_OF(meta); i++) add_cell(out, meta[i], ',');
    for (int i = 0; i < r->n; i++) add_cell(out, r->criterion[i].name, ',');
    str_add(out, "note\n");
}

void report_csv_row(Str *out, const Rubric *r, const json_t *record) {
    for (int i = 0; i < COUNT_OF(own); i++) add_value(out, json_object_get(record, own[i]), ',');
    for (int i = 0; i < COUNT_OF(meta); i++) add_value(out, record_meta(record, meta[i]), ',');
    for (int i = 0; i < r->n; i++)
        add_value(out, json_object_get(record_meta(record, "scores"), r->criterion[i].name), ',');
    add_value(out, record_meta(record, "note"), '\n');
}
