/* samples.c - how a completion looks as a line of JSON, as lines of the log, and as a row of a page. */
#include "grpo/samples.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/html.h"
#include "base/json.h"
#include "base/log.h"
#include "base/units.h"
#include "grpo/clean.h"

enum { SHOWN = 8, LOG_CHARACTERS = 200, DIGITS = 10 };
#define TAIL_BYTES (8 * MIB) /* of samples.jsonl, read for the page of a resumed run */

/* ---- JSON ---- */

static json_t *row_numbers(const Samples *s, int64_t step, const SampleRow *r) {
    json_t *rewards = json_object();
    for (int k = 0; k < s->spec.functions; k++) json_set_number(rewards, s->spec.names[k], r->rewards[k]);
    json_t *row = json_pack("{s:I, s:I, s:I, s:o, s:o, s:I, s:b, s:o}", "step", (json_int_t)step, "item",
                            (json_int_t)r->item, "sample", (json_int_t)r->sample, "reward", json_number(r->reward),
                            "advantage", json_number(r->advantage), "tokens", (json_int_t)r->tokens, "truncated",
                            r->truncated, "rewards", rewards);
    if (r->why && *r->why) json_object_set_new(row, "why", clean_json(r->why));
    return row;
}

static void add_texts(json_t *row, const SampleRow *r) {
    json_object_set_new(row, "question", clean_json(r->question));
    json_object_set_new(row, "completion", clean_json(r->completion));
    json_object_set_new(row, "answer", r->answer ? clean_json(r->answer) : json_null());
    json_object_set_new(row, "gold", clean_json(r->gold));
}

static void add_line(Str *out, const json_t *row) {
    CHECK(json_print(out, row, JSON_REAL_PRECISION(DIGITS)));
    str_add_char(out, '\n');
}

static const char *text_of(const json_t *row, const char *key) {
    const char *text = json_string_value(json_object_get(row, key));
    return text ? text : "";
}

static int64_t whole_of(const json_t *row, const char *key) {
    return json_integer_value(json_object_get(row, key));
}

/* ---- the page ---- */

/* clang-format off */
static const char style[] =
    "details.step{background:var(--card);border:1px solid var(--line);border-radius:10px;margin-bottom:.6rem;"
    "padding:.2rem 1rem}\n"
    "details.step>summary{cursor:pointer;padding:.5rem 0}\n"
    ".row{border-top:1px solid var(--line);padding:.6rem 0}\n"
    ".row>dl{margin:.2rem 0;font-size:inherit;color:inherit}\n"
    ".row dd{white-space:pre-wrap}\n"
    ".head{display:flex;gap:1rem;align-items:center;flex-wrap:wrap;font-variant-numeric:tabular-nums}\n";
/* clang-format on */

static void add_number(Str *out, const char *label, const json_t *x, const char *format) {
    char text[40] = "missing";
    if (json_is_number(x)) snprintf(text, sizeof text, format, json_number_value(x));
    str_addf(out, "<span>%s <b>%s</b></span>", label, text);
}

static void add_rewards(Str *out, const json_t *row) {
    const char *name;
    json_t *x;
    const json_t *all = json_object_get(row, "rewards");
    if (json_object_size(all) < 2) return;
    str_add(out, "<div class=\"s\">");
    json_object_foreach((json_t *)all, name, x) {
        str_add(out, "<span>");
        str_add_html(out, name);
        if (json_is_number(x))
            str_addf(out, " %.3f </span>", json_number_value(x));
        else
            str_add(out, " missing </span>");
    }
    str_add(out, "</div>");
}

static void add_row(Str *out, const json_t *row) {
    str_addf(out, "<div class=\"row\"><div class=\"head\"><span>item %lld, sample %lld</span>",
             (long long)whole_of(row, "item"), (long long)whole_of(row, "sample"));
    add_number(out, "reward", json_object_get(row, "reward"), "%.3f");
    add_number(out, "advantage", json_object_get(row, "advantage"), "%+.3f");
    str_addf(out, "<span class=\"s\">%lld tokens</span>", (long long)whole_of(row, "tokens"));
    if (json_is_true(json_object_get(row, "truncated")))
        str_add(out, "<span class=\"tag note\">cut at its length</span>");
    if (*text_of(row, "why")) html_in(out, "<span class=\"tag no\">", text_of(row, "why"), "</span>");
    str_add(out, "</div>");
    add_rewards(out, row);
    str_add(out, "<dl>");
    html_fact(out, "question", text_of(row, "question"));
    html_fact(out, "completion", text_of(row, "completion"));
    if (json_is_string(json_object_get(row, "answer"))) html_fact(out, "answer", text_of(row, "answer"));
    if (*text_of(row, "gold")) html_fact(out, "gold", text_of(row, "gold"));
    str_add(out, "</dl></div>\n");
}

static SampleTable *table_of(Samples *s, int64_t step) {
    SampleTable *last = s->n ? &s->table[(s->n - 1) % SAMPLES_PAGE] : NULL;
    if (last && last->step == step) return last;
    SampleTable *t = &s->table[s->n++ % SAMPLES_PAGE];
    t->step = step;
    str_clear(&t->html);
    return t;
}

static bool write_page(Samples *s, Err *e) {
    Str page = {0};
    html_begin(&page, s->title, style);
    html_text(&page, "h1", s->title);
    for (int64_t i = s->n; i-- > MAX2(0, s->n - SAMPLES_PAGE);) { /* the newest first, and open */
        const SampleTable *t = &s->table[i % SAMPLES_PAGE];
        str_addf(&page, "<details class=\"step\"%s><summary>step %lld</summary>\n%s</details>\n",
                 i == s->n - 1 ? " open" : "", (long long)t->step, str_text(&t->html));
    }
    html_end(&page);
    return file_write_str(s->page.s, &page, e);
}

/* ---- the log ---- */

static void log_text(const char *label, const char *text) {
    Str excerpt = {0};
    clean_excerpt(&excerpt, text, (int64_t)strlen(text), LOG_CHARACTERS);
    log_line("    %-10s %s", label, str_text(&excerpt));
    str_free(&excerpt);
}

static void log_row(const SampleRow *r) {
    log_line("  item %lld, sample %lld: reward %.3f, advantage %+.3f, %lld tokens%s%s%s", (long long)r->item,
             (long long)r->sample, r->reward, r->advantage, (long long)r->tokens,
             r->truncated ? ", cut at its length" : "", r->why && *r->why ? "; " : "", r->why ? r->why : "");
    log_text("question", r->question);
    log_text("completion", r->completion);
    if (r->answer) log_text("answer", r->answer);
    if (*r->gold) log_text("gold", r->gold);
}

/* ---- writing ---- */

static bool write_table(Samples *s, int64_t step, const SampleRow *rows, int64_t n, Err *e) {
    int64_t shown = MIN2(n, s->spec.shown);
    SampleTable *t = table_of(s, step);
    str_clear(&s->lines);
    log_line("samples of step %lld:", (long long)step);
    for (int64_t i = 0; i < shown; i++) {
        json_t *row = row_numbers(s, step, &rows[i]);
        add_texts(row, &rows[i]);
        add_line(&s->lines, row);
        add_row(&t->html, row);
        json_decref(row);
        log_row(&rows[i]);
    }
    return steplog_write(&s->samples, &s->lines, e) && write_page(s, e);
}

/* One of the updates that train on these completions has a number that `every` divides. */
static bool table_is_due(const SamplesSpec *s, int64_t step) {
    int64_t last = step + MAX2(s->updates, 1) - 1;
    return s->every && last / s->every > (step - 1) / s->every;
}

bool samples_write(Samples *s, int64_t step, const SampleRow *rows, int64_t n, Err *e) {
    str_clear(&s->lines);
    for (int64_t i = 0; i < n; i++) {
        json_t *row = row_numbers(s, step, &rows[i]);
        add_line(&s->lines, row);
        json_decref(row);
    }
    if (!steplog_write(&s->rewards, &s->lines, e)) return false;
    return !table_is_due(&s->spec, step) || write_table(s, step, rows, n, e);
}

/* ---- opening ---- */

/* The tables that an earlier process wrote. */
static bool read_tables(Samples *s, Err *e) {
    Str text = {0};
    bool ok = steplog_tail(&s->samples, &text, TAIL_BYTES, e);
    for (const char *line = str_text(&text), *end; ok && (end = strchr(line, '\n')); line = end + 1) {
        json_t *row = json_loadb(line, (size_t)(end - line), 0, NULL);
        if (row) add_row(&table_of(s, whole_of(row, "step"))->html, row);
        json_decref(row);
    }
    str_free(&text);
    return ok;
}

bool samples_open(Samples *s, const SamplesSpec *spec, Err *e) {
    *s = (Samples){.spec = *spec, .rewards.fd = -1, .samples.fd = -1};
    if (!s->spec.shown) s->spec.shown = SHOWN;
    snprintf(s->title, sizeof s->title, "%s", spec->title ? spec->title : "snug grpo: samples");
    s->page = file_in(spec->folder, "samples.html");
    bool ok = steplog_open(&s->rewards, file_in(spec->folder, "rewards.jsonl").s, spec->resumed_step, e) &&
              steplog_open(&s->samples, file_in(spec->folder, "samples.jsonl").s, spec->resumed_step, e) &&
              read_tables(s, e) && (!s->n || write_page(s, e));
    if (!ok) samples_close(s);
    return ok;
}

void samples_close(Samples *s) {
    steplog_close(&s->rewards);
    steplog_close(&s->samples);
    for (int i = 0; i < SAMPLES_PAGE; i++) str_free(&s->table[i].html);
    str_free(&s->lines);
}
