/* attention_page.c - which numbers of an attention report are shown, how they are named, and how a picture of
 * layers is drawn. */
#include "cli/attention_page.h"

#include <math.h>
#include <stddef.h>

#include "base/html.h"

typedef struct Column {
    const char *name, *title; /* in JSON; in the table */
    size_t at;
    int decimals;
} Column;

#define COLUMN(field, key, title, decimals) \
    { key, title, offsetof(AttentionReport, field), decimals }
static const Column columns[] = {COLUMN(first_token, "first_token", "on the first token", 3),
                                 COLUMN(recall, "indexer_recall", "recall", 3),
                                 COLUMN(k_mean, "k_mean", "keys", 1),
                                 COLUMN(k_min, "k_min", "fewest", 0),
                                 COLUMN(k_max, "k_max", "most", 0),
                                 COLUMN(coverage, "coverage", "of those seen", 3),
                                 COLUMN(gate_mean, "gate_mean", "gates", 3),
                                 COLUMN(gate_min, "gate_min", "least", 3),
                                 COLUMN(gate_max, "gate_max", "most", 3),
                                 COLUMN(gate_shut, "gate_shut", "below 0.1", 3)};

static double at(const AttentionReport *r, size_t field) { return *(const double *)((const char *)r + field); }

static bool is_sink(const AttentionReport *r) {
    return r->first_token > ATTENTION_SINK;
}

/* ---- JSON ---- */

static json_t *members(const AttentionReport *r) {
    json_t *out = json_pack("{s:b}", "sink", is_sink(r));
    for (int i = 0; i < COUNT_OF(columns); i++)
        if (isfinite(at(r, columns[i].at)))
            json_object_set_new(out, columns[i].name, json_real(at(r, columns[i].at)));
    return out;
}

static int count_sinks(const AttentionReport *layer, int layers) {
    int n = 0;
    for (int i = 0; i < layers; i++) n += is_sink(&layer[i]);
    return n;
}

json_t *attention_json(const AttentionReport *layer, int layers, const AttentionReport *all) {
    json_t *list = json_array();
    for (int i = 0; i < layers; i++) {
        json_t *one = members(&layer[i]);
        json_object_set_new(one, "layer", json_integer(i));
        json_array_append_new(list, one);
    }
    return json_pack("{s:o, s:o, s:i}", "layers", list, "all", members(all), "sinks", count_sinks(layer, layers));
}

/* ---- pictures: a bar a layer, with whiskers where there is a range ---- */

enum { LEFT = 56, TOP = 14, HIGH = 160, BELOW = 40, WIDEST = 40, WIDTH = 620 };

typedef struct Chart {
    const char *title, *note;
    size_t value, least, most; /* least, most: 0 where there is no range */
    double limit;              /* a dashed line; 0: none */
    double top;                /* of the axis at least */
} Chart;

#define AT(field) offsetof(AttentionReport, field)
static const Chart charts[] = {
    {"Attention on the first token", "Above the dashed line a layer has a sink.", AT(first_token), 0, 0,
     ATTENTION_SINK, 0.4},
    {"Recall of the indexer", "Attention on the selected keys, divided by that on as many of the best.",
     AT(recall), 0, 0, 0, 1},
    {"Keys a token attends to", "Mean, and the range over all tokens.", AT(k_mean), AT(k_min), AT(k_max), 0, 1},
    {"Share of the keys seen", "Selected keys, divided by those that a token may see.", AT(coverage), 0, 0, 0, 1},
    {"Gates", "Mean of values and outputs, and the range.", AT(gate_mean), AT(gate_min), AT(gate_max), 0, 1},
    {"Gates that are shut", "Share of those below 0.1.", AT(gate_shut), 0, 0, 0, 0.1}};

static double top_of(const Chart *c, const AttentionReport *layer, int layers) {
    double top = c->top;
    for (int i = 0; i < layers; i++) top = fmax(top, at(&layer[i], c->most ? c->most : c->value));
    return top;
}

static double y_of(double value, double top) {
    return TOP + HIGH * (1 - fmax(value, 0) / top);
}

static void add_bar(Str *out, const Chart *c, const AttentionReport *r, int layer, double x, double wide,
                    double top) {
    double value = at(r, c->value), y = y_of(value, top), middle = x + wide / 2;
    bool bad = c->limit > 0 && value > c->limit;
    str_addf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" class=\"%s\"><title>layer %d: %.4g",
             x, y, wide, TOP + HIGH - y, bad ? "s" : "b", layer, value);
    if (c->most) str_addf(out, " (%.4g to %.4g)", at(r, c->least), at(r, c->most));
    str_add(out, "</title></rect>\n");
    if (c->most)
        str_addf(out, "<path class=\"w\" d=\"M%.1f %.1fV%.1fm-3 0h6M%.1f %.1fh6\"/>\n", middle,
                 y_of(at(r, c->most), top), y_of(at(r, c->least), top), middle - 3, y_of(at(r, c->most), top));
}

static void add_axis(Str *out, const Chart *c, double top) {
    for (int i = 0; i <= 4; i++) {
        double value = top * i / 4, y = y_of(value, top);
        str_addf(out, "<path class=\"g\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" class=\"e\">%.3g</text>\n",
                 LEFT, y, WIDTH, LEFT - 8, y + 4, value);
    }
    if (c->limit > 0) str_addf(out, "<path class=\"d\" d=\"M%d %.1fH%d\"/>\n", LEFT, y_of(c->limit, top), WIDTH);
}

static void add_chart(Str *out, const Chart *c, const AttentionReport *layer, int layers) {
    double top = top_of(c, layer, layers), step = fmin((WIDTH - LEFT) / (double)layers, 1.25 * WIDEST),
           wide = 0.8 * step;
    int every = 1 + (layers - 1) / 16;
    str_addf(out, "<div class=\"card\"><h2>%s</h2>\n<p>%s</p>\n", c->title, c->note);
    str_addf(out, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s, layer by layer\">\n", WIDTH + 10,
             TOP + HIGH + BELOW, c->title);
    add_axis(out, c, top);
    for (int i = 0; i < layers; i++) {
        double x = LEFT + i * step + 0.1 * step;
        if (isfinite(at(&layer[i], c->value))) add_bar(out, c, &layer[i], i, x, wide, top);
        if (i % every == 0)
            str_addf(out, "<text x=\"%.1f\" y=\"%d\">%d</text>\n", x + wide / 2, TOP + HIGH + 16, i);
    }
    str_addf(out, "<text x=\"%d\" y=\"%d\">layer</text>\n</svg></div>\n", (LEFT + WIDTH) / 2, TOP + HIGH + 34);
}

/* ---- the page ---- */

static void add_row(Str *out, const char *name, const AttentionReport *r, const AttentionReport *all) {
    str_addf(out, "<tr><td>%s</td>", name);
    for (int i = 0; i < COUNT_OF(columns); i++)
        if (isfinite(at(all, columns[i].at)))
            str_addf(out, "<td>%.*f</td>", columns[i].decimals, at(r, columns[i].at));
    str_addf(out, "<td>%s</td></tr>\n", is_sink(r) ? "yes" : "no");
}

static void add_table(Str *out, const AttentionReport *layer, int layers, const AttentionReport *all) {
    char name[16];
    str_add(out, "<div class=\"card\"><table><thead><tr><th>layer</th>");
    for (int i = 0; i < COUNT_OF(columns); i++)
        if (isfinite(at(all, columns[i].at))) html_text(out, "th", columns[i].title);
    str_add(out, "<th>sink</th></tr></thead><tbody>\n");
    for (int i = 0; i < layers; i++) {
        snprintf(name, sizeof name, "%d", i);
        add_row(out, name, &layer[i], all);
    }
    add_row(out, "all", all, all);
    str_add(out, "</tbody></table></div>\n");
}

void attention_page(Str *out, const char *model, const AttentionReport *layer, int layers,
                    const AttentionReport *all) {
    html_begin(
        out, "snug eval: attention",
        "svg{max-width:100%;height:auto}svg text{font:12px system-ui,sans-serif;fill:#7a8496;text-anchor:middle}"
        "svg .e{text-anchor:end}.b{fill:#4f7cc4}.s{fill:#c4573b}.w{stroke:#7a8496;fill:none;stroke-width:1.5}"
        ".g{stroke:#7a849640}.d{stroke:#c4573b;stroke-dasharray:5 4}\n");
    str_add(out, "<h1>Attention of ");
    str_add_html(out, model);
    str_addf(
        out,
        "</h1>\n<p>%d layers; %d of them with a sink: more than %.1f of the attention on the first token of a "
        "document, on average over the tokens behind it.</p>\n",
        layers, count_sinks(layer, layers), ATTENTION_SINK);
    for (int i = 0; i < COUNT_OF(charts); i++)
        if (isfinite(at(all, charts[i].value))) add_chart(out, &charts[i], layer, layers);
    add_table(out, layer, layers, all);
    html_end(out);
}
