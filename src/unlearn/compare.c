/* compare.c - which figures are compared, and how they are drawn. */
#include "unlearn/compare.h"

#include <math.h>
#include <stdio.h>

#include "base/check.h"
#include "base/html.h"

enum { LEFT = 170, WIDE = 430, RIGHT = 90, ROW = 24, TOP = 8, SIDE = 300, MARGIN = 46 };

typedef struct Figure {
    const char *key, *title, *aim;
    bool spent;   /* of making the model, not of its answers */
    double scale; /* of what is shown */
} Figure;

static const Figure figures[] = {
    {"forget_quality", "forget quality", "p-value against the retrained model: higher is nearer to it", false, 1},
    {"model_utility", "model utility", "higher is better", false, 1},
    {"forget_Q_A_Prob", "probability of forgotten answers", "as the retrained model", false, 1},
    {"forget_Q_A_ROUGE", "ROUGE-L of forgotten answers", "as the retrained model", false, 1},
    {"mia_min_k", "membership test, min-k (area)", "0.5: members cannot be told", false, 1},
    {"mia_loss", "membership test, loss (area)", "0.5: members cannot be told", false, 1},
    {"mia_gradnorm", "membership test, gradient norm (area)", "0.5: members cannot be told", false, 1},
    {"privleak", "privleak", "0 is the retrained model", false, 1},
    {"seconds", "seconds", "of making the model", true, 1},
    {"process_measured_bytes", "peak memory, MB", "of making the model", true, 1e-6},
};
enum { QUALITY = 0, UTILITY = 1 };

static double value_of(const Compared *c, const Figure *f) {
    const json_t *v = json_object_get(f->spent ? c->efficiency : c->summary, f->key);
    return json_is_number(v) ? json_number_value(v) * f->scale : (double)NAN;
}

static bool is_known(const Compared *method, int n, const Figure *f) {
    bool known = false;
    for (int i = 0; i < n; i++) known |= isfinite(value_of(&method[i], f));
    return known;
}

static void add_value(Str *out, double v) {
    if (isfinite(v)) str_addf(out, "%.4g", v);
    else str_add(out, "&ndash;");
}

static void add_table(Str *out, const Compared *method, int n) {
    str_add(out, "<div class=\"card\"><table><thead><tr><th>method</th>");
    for (int k = 0; k < COUNT_OF(figures); k++)
        if (is_known(method, n, &figures[k])) html_text(out, "th", figures[k].title);
    str_add(out, "</tr></thead><tbody>\n");
    for (int i = 0; i < n; i++) {
        str_add(out, "<tr>");
        html_text(out, "td", method[i].name);
        for (int k = 0; k < COUNT_OF(figures); k++) {
            if (!is_known(method, n, &figures[k])) continue;
            str_add(out, "<td>");
            add_value(out, value_of(&method[i], &figures[k]));
            str_add(out, "</td>");
        }
        str_add(out, "</tr>\n");
    }
    str_add(out, "</tbody></table></div>\n");
}

static void begin_svg(Str *out, int width, int height, const char *title) {
    str_addf(out, "<svg viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\">", width, height, width, height);
    html_text(out, "title", title);
}

static void add_label(Str *out, double x, double y, const char *kind, const char *text) {
    str_addf(out, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, kind);
    str_add_html(out, text);
    str_add(out, "</text>");
}

/* Bars from zero, which stands where the negative ones need it. */
static void add_bars(Str *out, const Compared *method, int n, const Figure *f) {
    double low = 0, high = 0, oracle = value_of(&method[0], f);
    for (int i = 0; i < n; i++) {
        double v = value_of(&method[i], f);
        if (isfinite(v)) low = fmin(low, v), high = fmax(high, v);
    }
    double unit = WIDE / (high > low ? high - low : 1), zero = LEFT - low * unit;
    begin_svg(out, LEFT + WIDE + RIGHT, TOP + n * ROW + 8, f->title);
    for (int i = 0; i < n; i++) {
        double v = value_of(&method[i], f), y = TOP + i * ROW;
        char text[32] = "not known";
        if (isfinite(v)) snprintf(text, sizeof text, "%.4g", v);
        add_label(out, LEFT - 10, y + 15, "e", method[i].name);
        if (isfinite(v))
            str_addf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" rx=\"3\" class=\"%s\"/>",
                     zero + fmin(v, 0) * unit, y + 2, fmax(fabs(v) * unit, 1), ROW - 6, i ? "m" : "o");
        add_label(out, isfinite(v) ? zero + fmax(v, 0) * unit + 6 : LEFT, y + 15, "v", text);
    }
    if (isfinite(oracle))
        str_addf(out, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\" class=\"r\"/>", zero + oracle * unit,
                 zero + oracle * unit, TOP - 4, TOP + n * ROW);
    str_add(out, "</svg>\n");
}

/* Forgetting against knowing: both are probabilities or means of them. */
static void add_plane(Str *out, const Compared *method, int n) {
    str_add(out, "<div class=\"card\"><h2>Forget quality against utility</h2>\n");
    begin_svg(out, SIDE + 2 * MARGIN + RIGHT, SIDE + 2 * MARGIN, "forget quality against model utility");
    str_addf(out, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" class=\"f\"/>", MARGIN, MARGIN, SIDE, SIDE);
    add_label(out, MARGIN, MARGIN + SIDE + 18, "v", "0");
    add_label(out, MARGIN + SIDE, MARGIN + SIDE + 18, "e", "model utility 1");
    add_label(out, MARGIN, MARGIN - 10, "v", "forget quality 1");
    for (int i = 0; i < n; i++) {
        double x = MARGIN + SIDE * value_of(&method[i], &figures[UTILITY]);
        double y = MARGIN + SIDE * (1 - value_of(&method[i], &figures[QUALITY]));
        if (!isfinite(x) || !isfinite(y)) continue;
        str_addf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"5\" class=\"%s\"/>", x, y, i ? "m" : "o");
        add_label(out, x + 8, y + 4, "v", method[i].name);
    }
    str_add(out, "</svg></div>\n");
}

void compare_page(Str *out, const Compared *method, int n) {
    html_begin(out, "snug unlearn-eval",
               "svg{max-width:100%;height:auto}svg text{font:13px system-ui,sans-serif;fill:currentColor}"
               ".e{text-anchor:end}.m{fill:#3b7ddd}.o{fill:#2e9d6a}.r{stroke:#2e9d6a;stroke-dasharray:4 3}"
               ".f{fill:none;stroke:currentColor;opacity:.4}\n");
    html_text(out, "h1", "Unlearning methods beside retraining");
    str_add(out, "<p>The first row, and the dashed line of every plot, is the model retrained without the samples: ");
    str_add_html(out, method[0].name);
    str_add(out, ".</p>\n");
    add_table(out, method, n);
    if (is_known(method, n, &figures[QUALITY]) && is_known(method, n, &figures[UTILITY])) add_plane(out, method, n);
    for (int k = 0; k < COUNT_OF(figures); k++) {
        if (!is_known(method, n, &figures[k])) continue;
        str_add(out, "<div class=\"card\">");
        html_text(out, "h2", figures[k].title);
        html_text(out, "p", figures[k].aim);
        add_bars(out, method, n, &figures[k]);
        str_add(out, "</div>\n");
    }
    html_end(out);
}
