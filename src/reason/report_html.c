/* report_html.c - the page: a summary, then every problem with its versions and scores; search and filters work
 * without a network. */
#include <string.h>

#include "base/units.h"
#include "reason/report.h"

static const char style[] =
    "<style>\n"
    ":root{color-scheme:light dark;--ink:#1b1f27;--soft:#667085;--line:#e3e6ec;--card:#fff;--page:#f6f7f9;"
    "--good:#1f9d63;--bad:#cf4747;--mid:#d39b23;--bar:#e8ebf0;--mark:#2f6fed}\n"
    "@media(prefers-color-scheme:dark){:root{--ink:#e7e9ee;--soft:#98a1b3;--line:#2b303b;--card:#1a1e26;"
    "--page:#12151b;--good:#46c98b;--bad:#f07373;--mid:#e2b554;--bar:#2c323e;--mark:#7aa5ff}}\n"
    "*{box-sizing:border-box}body{margin:0;background:var(--page);color:var(--ink);font:15px/1.55 "
    "system-ui,sans-serif}\n"
    "main{max-width:68rem;margin:0 auto;padding:2rem 1rem 4rem}h1{font-size:1.5rem;margin:0 0 .3rem}\n"
    "dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem 1rem;color:var(--soft);font-size:.87rem;"
    "margin:.5rem 0 1.2rem}dt{font-weight:600}dd{margin:0;overflow-wrap:anywhere}\n"
    ".card,details.p{background:var(--card);border:1px solid var(--line);border-radius:10px}\n"
    ".card{padding:1rem 1.2rem;margin-bottom:1rem;overflow-x:auto}\n"
    "table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}th{color:var(--soft);font-size:."
    "8rem;"
    "font-weight:600;text-align:left}th,td{padding:.35rem .8rem .35rem 0;border-bottom:1px solid var(--line)}"
    "tr:last-child td{border:0}\n"
    ".tools{position:sticky;top:0;display:flex;gap:.6rem;align-items:center;padding:.7rem "
    "0;background:var(--page);"
    "z-index:1}.tools input{flex:1;min-width:8rem}.tools input,.tools select{font:inherit;color:inherit;"
    "background:var(--card);border:1px solid var(--line);border-radius:8px;padding:.45rem .7rem}\n"
    "#count{color:var(--soft);white-space:nowrap}\n"
    "details.p{margin-bottom:.5rem}details.p>summary{display:flex;gap:.7rem;align-items:center;padding:.6rem "
    ".9rem;"
    "cursor:pointer;list-style:none}details.p[open]>summary{border-bottom:1px solid var(--line)}"
    "summary::-webkit-details-marker{display:none}\n"
    ".n{color:var(--soft);min-width:2.6rem}.t{flex:1;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}"
    "details[open]>summary .t{visibility:hidden}\n"
    ".q{min-width:2.4rem;text-align:right;font-variant-numeric:tabular-nums}\n"
    ".b{display:inline-block;vertical-align:middle;flex:none;width:4.5rem;height:.5rem;border-radius:4px;"
    "background:var(--bar);overflow:hidden}.b i{display:block;height:100%;background:var(--mark)}"
    ".b i.hi{background:var(--good)}.b i.mid{background:var(--mid)}.b i.lo{background:var(--bad)}\n"
    ".tag{font-size:.75rem;font-weight:400;border-radius:99px;padding:.05rem .55rem;border:1px solid currentColor;"
    "white-space:nowrap}.yes{color:var(--good)}.no{color:var(--bad)}.new{color:var(--mark)}.note{color:var(--mid)}"
    "\n"
    ".in{padding:.9rem 1.1rem}h3{font-size:.95rem;margin:1.1rem 0 .4rem;display:flex;gap:.6rem;align-items:center;"
    "flex-wrap:wrap}h3 span{white-space:nowrap}\n"
    "pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:.3rem 0;font:13px/1.5 ui-monospace,monospace}\n"
    ".v{border-left:3px solid var(--line);padding-left:.9rem}.v.kept{border-color:var(--good)}\n"
    ".s{color:var(--soft);font-size:.85rem}.s>span{display:inline-block;margin-right:1.4rem;white-space:nowrap}\n"
    ".w summary{color:var(--soft);cursor:pointer;font-size:.87rem}[hidden]{display:none!important}\n"
    "</style>\n";

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

/* Coloured by the two thresholds; both 0: one colour for all. */
static void add_bar(Str *out, double x, double low, double high) {
    const char *kind = high <= 0 ? "all" : x >= high ? "hi" : x < low ? "lo" : "mid";
    str_addf(out, "<span class=\"b\"><i class=\"%s\" style=\"width:%.0f%%\"></i></span>", kind,
             100 * MIN2(MAX2(x, 0), 1));
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
    str_add(out,
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
            "content=\"width=device-width\"><title>snug reason</title>\n");
    str_add(out, style);
    str_addf(out, "</head><body><main>\n<h1>%lld problems, solved, judged, improved</h1>\n<dl>", (long long)t->n);
    json_object_foreach((json_t *)facts, label, text) {
        str_add(out, "<dt>");
        str_add_html(out, label);
        str_add(out, "</dt><dd>");
        str_add_html(out, json_string_value(text) ? json_string_value(text) : "");
        str_add(out, "</dd>");
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
    str_add(out, "</div><pre>");
    str_add_html(out, record_text(text, "reasoning"));
    str_add(out, "</pre>Answer: <b>");
    str_add_html(out, record_text(text, "solution"));
    str_add(out, "</b><details class=\"w\"><summary>what the judge wrote</summary><pre>");
    str_add_html(out, record_text(about, "evaluation"));
    str_add(out, "</pre></details></div>\n");
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
    str_add(out, "<span class=\"t\">");
    str_add_html(out, record_text(record, "problem"));
    str_add(out, "</span>");
    if (better) str_add(out, "<span class=\"tag new\">improved</span>");
    if (note) str_add(out, "<span class=\"tag note\">note</span>");
    add_correct(out, correct);
    str_add(out, "</summary>");
}

void report_html_item(Str *out, const Rubric *r, const json_t *record) {
    const json_t *about = json_object_get(record, "metadata");
    size_t n = json_array_size(record_meta(record, "iterations"));
    add_line(out, r, record);
    str_add(out, "<div class=\"in\"><pre>");
    str_add_html(out, record_text(record, "problem"));
    str_add(out, "</pre>");
    if (record_text(about, "reference")[0]) {
        str_add(out, "Reference: <b>");
        str_add_html(out, record_text(about, "reference"));
        str_add(out, "</b>");
    }
    if (record_text(about, "note")[0]) {
        str_add(out, "<p class=\"note\">");
        str_add_html(out, record_text(about, "note"));
        str_add(out, "</p>");
    }
    for (int i = 0; i < (int)n; i++) {
        const json_t *old = old_version(record, i);
        add_version(out, old ? old : record, old ? old : about, i, !old, r);
    }
    str_add(out, "</div></details>\n");
}

void report_html_tail(Str *out) {
    str_add(out, script);
    str_add(out, "</main></body></html>\n");
}
