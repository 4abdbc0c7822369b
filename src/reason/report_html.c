/* report_html.c - the page: a summary, then every problem with its versions and scores; search and filters work
 * without a network. */
#include "base/html.h"
#include "reason/report.h"

/* clang-format off */
static const char style[] =
    "details.p{background:var(--card);border:1px solid var(--line);border-radius:10px;margin-bottom:.5rem}\n"
    ".tools{position:sticky;top:0;display:flex;gap:.6rem;align-items:center;padding:.7rem 0;"
    "background:var(--page);z-index:1}\n"
    ".tools input{flex:1;min-width:8rem}\n"
    ".tools input,.tools select{font:inherit;color:inherit;background:var(--card);border:1px solid var(--line);"
    "border-radius:8px;padding:.45rem .7rem}\n"
    "#count{color:var(--soft);white-space:nowrap}\n"
    "details.p>summary{display:flex;gap:.7rem;align-items:center;padding:.6rem .9rem;cursor:pointer;"
    "list-style:none}\n"
    "details.p[open]>summary{border-bottom:1px solid var(--line)}\n"
    "summary::-webkit-details-marker{display:none}\n"
    ".n{color:var(--soft);min-width:2.6rem}\n"
    ".t{flex:1;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}\n"
    "details[open]>summary .t{visibility:hidden}\n"
    ".q{min-width:2.4rem;text-align:right;font-variant-numeric:tabular-nums}\n"
    ".in{padding:.9rem 1.1rem}\n"
    "h3{font-size:.95rem;margin:1.1rem 0 .4rem;display:flex;gap:.6rem;align-items:center;flex-wrap:wrap}\n"
    "h3 span{white-space:nowrap}\n"
    ".v{border-left:3px solid var(--line);padding-left:.9rem}\n"
    ".v.kept{border-color:var(--good)}\n"
    ".s>span{display:inline-block;margin-right:1.4rem;white-space:nowrap}\n"
    ".w summary{color:var(--soft);cursor:pointer;font-size:.87rem}\n";

static const char script[] =
    "<script>\n"
    "const items=[...document.querySelectorAll('details.p')],find=document.getElementById('find'),"
    "kind=document.getElementById('kind'),count=document.getElementById('count');\n"
    "const words=items.map(d=>d.textContent.toLowerCase());\n"
    "function show(){const w=find.value.toLowerCase().split(/\\s+/).filter(Boolean),k=kind.value;let n=0;"
    "items.forEach((d,i)=>{const "
    "on=(!k||d.classList.contains(k))&&w.every(x=>words[i].includes(x));d.hidden=!on;n+=on});"
    "count.textContent=n+' of '+items.length}\n"
    "find.addEventListener('input',show);kind.addEventListener('change',show);show();\n"
    "</script>\n";
/* clang-format on */

/* Coloured by the two thresholds; both 0: one colour for all. */
static void add_bar(Str *out, double x, double low, double high) {
    const char *kind = high <= 0 ? "all" : x >= high ? "hi" : x < low ? "lo" : "mid";
    html_bar(out, x, kind);
}

/* ---- head ---- */

static void add_rounds(Str *out, const Tally *t) {
    str_add(out,
            "<div class=\"card\"><table><tr><th></th><th>correct by the reference</th><th>mean "
            "quality</th><th>good</th>"
            "<th>need improvement</th><th>improved in this round</th></tr>\n");
    for (int i = 0; i <= t->rounds; i++) {
        double right = t->with_reference ? (double)t->after[i].correct / (double)t->with_reference : 0;
        double mean = t->after[i].judged ? t->after[i].quality / (double)t->after[i].judged : 0;
        if (i)
            str_addf(out, "<tr><td>after round %d</td><td>", i);
        else
            str_add(out, "<tr><td>first solutions</td><td>");
        if (t->with_reference) {
            add_bar(out, right, 0, 0);
            str_addf(out, " %.1f %% (%lld of %lld)", 100 * right, (long long)t->after[i].correct,
                     (long long)t->with_reference);
        }
        str_add(out, "</td><td>");
        if (t->after[i].judged) {
            add_bar(out, mean, 0, 0);
            str_addf(out, " %.3f", mean);
        }
        str_addf(out, "</td><td>%lld</td><td>%lld</td><td>", (long long)t->after[i].good,
                 (long long)(t->n - t->after[i].good));
        if (i) str_addf(out, "%lld", (long long)t->after[i].fresh);
        str_add(out, "</td></tr>\n");
    }
    str_add(out, "</table></div>\n");
}

static void add_scores(Str *out, const Tally *t) {
    str_add(out, "<div class=\"card s\">");
    for (int i = 0; i < t->n_criteria; i++) {
        double mean = t->scored[i] ? t->score[i] / (double)t->scored[i] : 0;
        str_addf(out, "<span>%s ", t->criterion[i]);
        if (t->scored[i]) add_bar(out, mean, 0, 0);
        if (t->scored[i])
            str_addf(out, " %.3f</span>", mean);
        else
            str_add(out, "not said</span>");
    }
    str_add(out, "</div>\n");
}

void report_html_head(Str *out, const Tally *t, const json_t *facts) {
    const char *label;
    json_t *text;
    html_begin(out, "snug reason", style);
    str_addf(out, "<h1>%lld problems, solved, judged, improved</h1>\n<dl>", (long long)t->n);
    json_object_foreach((json_t *)facts, label, text) {
        html_fact(out, label, json_string_value(text) ? json_string_value(text) : "");
    }
    str_add(out, "</dl>\n");
    add_rounds(out, t);
    add_scores(out, t);
    str_add(out,
            "<div class=\"tools\"><input id=\"find\" type=\"search\" placeholder=\"Search problems, solutions, "
            "judgements\">"
            "<select id=\"kind\"><option value=\"\">all</option><option value=\"good\">good</option>"
            "<option value=\"weak\">need improvement</option><option value=\"right\">correct</option>"
            "<option value=\"wrong\">wrong</option><option value=\"better\">improved</option>"
            "<option value=\"odd\">with a note</option></select><span id=\"count\"></span></div>\n");
}

/* ---- items ---- */

static void add_correct(Str *out, const json_t *correct) {
    if (json_is_boolean(correct))
        str_addf(out, "<span class=\"tag %s\">%s</span>", json_is_true(correct) ? "yes" : "no",
                 json_is_true(correct) ? "correct" : "wrong");
}

static void add_quality(Str *out, const json_t *q, const Rubric *r) {
    if (json_is_number(q)) {
        add_bar(out, json_number_value(q), r->low, r->threshold);
        str_addf(out, "<span class=\"q\">%.2f</span>", json_number_value(q));
    } else {
        str_add(out, "<span class=\"b\"></span><span class=\"q\">-</span>");
    }
}

/* text: what holds solution, reasoning and quality; about: what holds the rest. */
static void add_version(Str *out, const json_t *text, const json_t *about, int iteration, bool kept,
                        const Rubric *r) {
    str_addf(out, "<div class=\"v%s\"><h3>", kept ? " kept" : "");
    if (iteration)
        str_addf(out, "<span>Round %d</span>", iteration);
    else
        str_add(out, "<span>First solution</span>");
    add_quality(out, json_object_get(text, "quality_score"), r);
    add_correct(out, json_object_get(about, "correct"));
    if (kept) str_add(out, "<span class=\"tag yes\">kept</span>");
    if (json_is_true(json_object_get(about, "cut")))
        str_add(out, "<span class=\"tag note\">cut at its length</span>");
    str_add(out, "</h3><div class=\"s\">");
    for (int i = 0; i < r->n; i++) {
        const json_t *x = json_object_get(json_object_get(about, "scores"), r->criterion[i].name);
        str_addf(out, "<span>%s ", r->criterion[i].name);
        if (json_is_number(x)) {
            add_bar(out, json_number_value(x), r->low, r->threshold);
            str_addf(out, " %.2f</span>", json_number_value(x));
        } else {
            str_add(out, "not said</span>");
        }
    }
    html_in(out, "</div><pre>", record_text(text, "reasoning"), "</pre>");
    html_in(out, "Answer: <b>", record_text(text, "solution"), "</b>");
    html_in(out, "<details class=\"w\"><summary>what the judge wrote</summary><pre>", record_text(about, "evaluation"),
            "</pre></details></div>\n");
}

static const json_t *old_version(const json_t *record, int iteration) { /* NULL: it is the kept one */
    const json_t *list = record_meta(record, "previous_versions");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_integer_value(json_object_get(json_array_get(list, i), "iteration")) == iteration)
            return json_array_get(list, i);
    return NULL;
}

static void add_line(Str *out, const Rubric *r, const json_t *record) { /* what is seen of a closed item */
    const json_t *correct = record_meta(record, "correct");
    bool better = json_integer_value(record_meta(record, "kept_iteration")) > 0,
         note = record_meta(record, "note") != NULL;
    str_addf(out, "<details class=\"p %s%s%s%s\"><summary><span class=\"n\">%lld</span>",
             json_is_true(record_meta(record, "needs_improvement")) ? "weak" : "good",
             json_is_true(correct)    ? " right"
             : json_is_false(correct) ? " wrong"
                                      : "",
             better ? " better" : "", note ? " odd" : "",
             (long long)json_integer_value(record_meta(record, "place")) + 1);
    add_quality(out, json_object_get(record, "quality_score"), r);
    html_in(out, "<span class=\"t\">", record_text(record, "problem"), "</span>");
    if (better) str_add(out, "<span class=\"tag new\">improved</span>");
    if (note) str_add(out, "<span class=\"tag note\">note</span>");
    add_correct(out, correct);
    str_add(out, "</summary>");
}

void report_html_item(Str *out, const Rubric *r, const json_t *record) {
    const json_t *about = json_object_get(record, "metadata");
    size_t n = json_array_size(record_meta(record, "iterations"));
    add_line(out, r, record);
    const char *reference = record_text(about, "reference"), *note = record_text(about, "note");
    html_in(out, "<div class=\"in\"><pre>", record_text(record, "problem"), "</pre>");
    if (*reference) html_in(out, "Reference: <b>", reference, "</b>");
    if (*note) html_in(out, "<p class=\"note\">", note, "</p>");
    for (int i = 0; i < (int)n; i++) {
        const json_t *old = old_version(record, i);
        add_version(out, old ? old : record, old ? old : about, i, !old, r);
    }
    str_add(out, "</div></details>\n");
}

void report_html_tail(Str *out) {
    str_add(out, script);
    html_end(out);
}
