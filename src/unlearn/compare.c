/* compare.c - which figures are compared, and how they are drawn. */
#include "unlearn/compare.h"

#include <math.h>
#include <stdio.h>

#include "base/check.h"
#include "base/html.h"
#include "base/mem.h"

enum { LEFT = 170, WIDE = 430, RIGHT = 90, ROW = 24, TOP = 8 }; /* of bars */
enum { SIDE = 340, MARGIN = 46, NAMES = 240, SPACE = 16 }; /* of the plane */

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

typedef struct Point {
    double x, y, label; /* where the point is, and how high its name stands */
    int method;
} Point;

/* Names stand in a column in the order of their points, SPACE apart where points lie closer than that. */
static void spread_labels(Point *p, int n, double bottom) {
    for (int i = 1; i < n; i++)
        for (int k = i; k > 0 && p[k].y < p[k - 1].y; k--) {
            Point lower = p[k];
            p[k] = p[k - 1];
            p[k - 1] = lower;
        }
    for (int i = 0; i < n; i++) p[i].label = i ? fmax(p[i].y, p[i - 1].label + SPACE) : p[i].y;
    for (int i = n - 1; i >= 0; i--) p[i].label = fmin(p[i].label, i < n - 1 ? p[i + 1].label - SPACE : bottom);
}

/* The smallest of 1, 2, 5 times a power of ten that is not below v. */
static double axis_end(double v) {
    double power = pow(10, floor(log10(v)));
    return v <= power ? power : v <= 2 * power ? 2 * power : v <= 5 * power ? 5 * power : 10 * power;
}

static int find_points(Point *p, const Compared *method, int n, double utility, double decades) {
    int found = 0;
    for (int i = 0; i < n; i++) {
        double u = value_of(&method[i], &figures[UTILITY]), q = value_of(&method[i], &figures[QUALITY]);
        if (!isfinite(u) || !isfinite(q)) continue;
        double down = fmin(-log10(fmax(q, 1e-300)) / decades, 1);
        p[found++] = (Point){.x = MARGIN + SIDE * u / utility, .y = MARGIN + SIDE * down, .method = i};
    }
    return found;
}

static void add_axes(Str *out, const Compared *method, double utility, double decades) {
    char text[48];
    double oracle = MARGIN + SIDE * value_of(&method[0], &figures[UTILITY]) / utility;
    str_addf(out, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" class=\"f\"/>", MARGIN, MARGIN, SIDE, SIDE);
    if (isfinite(oracle))
        str_addf(out, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\" class=\"r\"/>", oracle, oracle, MARGIN,
                 MARGIN + SIDE);
    add_label(out, MARGIN, MARGIN + SIDE + 18, "v", "0");
    snprintf(text, sizeof text, "model utility %g", utility);
    add_label(out, MARGIN + SIDE, MARGIN + SIDE + 18, "e", text);
    add_label(out, MARGIN, MARGIN - 10, "v", "forget quality (logarithmic)");
    add_label(out, MARGIN - 6, MARGIN + 5, "e", "1");
    snprintf(text, sizeof text, "1e-%.0f", decades);
    add_label(out, MARGIN - 6, MARGIN + SIDE, "e", text);
}

/* Forgetting against knowing: the best method is in the upper right corner, the retrained model's utility is dashed. */
static void add_plane(Str *out, const Compared *method, int n) {
    double utility = 0, least = 1e-3;
    for (int i = 0; i < n; i++) {
        double u = value_of(&method[i], &figures[UTILITY]), q = value_of(&method[i], &figures[QUALITY]);
        if (isfinite(u)) utility = fmax(utility, u);
        if (isfinite(q) && q > 0) least = fmin(least, q);
    }
    utility = utility > 0 ? axis_end(utility) : 1;
    double decades = ceil(-log10(least));
    Point *point = MEM_NEW(Point, n);
    int found = find_points(point, method, n, utility, decades);
    spread_labels(point, found, MARGIN + SIDE);
    str_add(out, "<div class=\"card\"><h2>Forget quality against utility</h2>\n");
    begin_svg(out, SIDE + 2 * MARGIN + NAMES, SIDE + 2 * MARGIN, "forget quality against model utility");
    add_axes(out, method, utility, decades);
    for (int i = 0; i < found; i++) {
        const Point *p = &point[i];
        str_addf(out, "<path d=\"M%.1f %.1fL%d %.1f\" class=\"f\"/>", p->x, p->y, MARGIN + SIDE + 12, p->label);
        str_addf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"5\" class=\"%s\"/>", p->x, p->y, p->method ? "m" : "o");
        add_label(out, MARGIN + SIDE + 16, p->label + 4, "v", method[p->method].name);
    }
    str_add(out, "</svg></div>\n");
    mem_free(point);
}

void compare_page(Str *out, const Compared *method, int n) {
    html_begin(out, "snug unlearn-eval",
               "svg{max-width:100%;height:auto}svg text{font:13px system-ui,sans-serif;fill:currentColor}"
               ".e{text-anchor:end}.m{fill:#3b7ddd}.o{fill:#2e9d6a}.r{stroke:#2e9d6a;stroke-dasharray:4 3}"
               ".f{fill:none;stroke:currentColor;opacity:.4}\n");
    html_text(out, "h1", "Unlearning methods beside retraining");
    html_in(out, "<p>The first row, and the dashed line of every plot, is the model retrained without the samples: ",
            method[0].name, ".</p>\n");
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
