/* heatmap.c - the needle-in-a-haystack results as a heat map: a column per length, a row per depth, and a page around
 * it. */
#include "base/html.h"
#include "suite/suite_int.h"

enum { LEFT = 70, TOP = 30, WIDE = 86, HIGH = 40, BELOW = 50 };

static bool is_cell(const Suite *s, const Item *it) {
    return it->depth >= 0 && s->task[it->task].row->hay.by_depth;
}

bool suite_has_picture(const Suite *s) {
    for (int64_t i = 0; i < s->n_items; i++)
        if (is_cell(s, &s->item[i])) return true;
    return false;
}

typedef struct Axes {
    int64_t length[MEASURES];
    int depth[128];
    int n_lengths, n_depths;
} Axes;

/* Cells come length by length, depth by depth. */
static Axes axes_of(const Cell *cell, int n) {
    Axes a = {0};
    for (int i = 0; i < n; i++) {
        if (!i || cell[i].length != cell[i - 1].length) a.length[a.n_lengths++] = cell[i].length;
        if (a.n_lengths == 1) a.depth[a.n_depths++] = cell[i].depth;
    }
    return a;
}

/* From red over yellow to green; both themes can be read on. */
static void add_colour(Str *out, double value) {
    str_addf(out, "hsl(%.0f 62%% %.0f%%)", 120 * value, 42 + 6 * value);
}

static void add_cells(Str *out, const Cell *cell, int n, const Axes *a) {
    for (int i = 0; i < n; i++) {
        int x = LEFT + i / a->n_depths * WIDE, y = TOP + i % a->n_depths * HIGH;
        str_addf(out, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"4\" fill=\"", x + 1, y + 1,
                 WIDE - 2, HIGH - 2);
        add_colour(out, cell[i].value);
        str_addf(out, "\"><title>%lld tokens, depth %d %%: %.0f %% of %lld</title></rect>\n",
                 (long long)cell[i].length, cell[i].depth, 100 * cell[i].value, (long long)cell[i].n);
        str_addf(out, "<text x=\"%d\" y=\"%d\" class=\"v\">%.0f</text>\n", x + WIDE / 2, y + HIGH / 2 + 5,
                 100 * cell[i].value);
    }
}

void suite_svg(Str *out, const Suite *s) {
    Cell *cell;
    int n = score_cells(&cell, s);
    Axes a = axes_of(cell, n);
    int width = LEFT + a.n_lengths * WIDE + 20, height = TOP + a.n_depths * HIGH + BELOW;
    str_addf(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
        "role=\"img\">\n"
        "<title>Needles found, in percent, by length and depth</title>\n"
        "<style>text{font:13px system-ui,sans-serif;fill:#5d6676;text-anchor:middle}.v{fill:#fff;font-weight:600}"
        ".e{text-anchor:end}</style>\n",
        width, height, width, height);
    str_addf(out, "<text x=\"%d\" y=\"18\" class=\"e\">depth</text>\n", LEFT - 10);
    for (int i = 0; i < a.n_depths; i++)
        str_addf(out, "<text x=\"%d\" y=\"%d\" class=\"e\">%d %%</text>\n", LEFT - 10,
                 TOP + i * HIGH + HIGH / 2 + 5, a.depth[i]);
    for (int i = 0; i < a.n_lengths; i++)
        str_addf(out, "<text x=\"%d\" y=\"%d\">%lld</text>\n", LEFT + i * WIDE + WIDE / 2,
                 TOP + a.n_depths * HIGH + 20, (long long)a.length[i]);
    str_addf(out, "<text x=\"%d\" y=\"%d\">tokens</text>\n", LEFT + a.n_lengths * WIDE / 2,
             TOP + a.n_depths * HIGH + 40);
    add_cells(out, cell, n, &a);
    str_add(out, "</svg>\n");
    mem_free(cell);
}

static void add_results(Str *out, const Suite *s) {
    str_add(out,
            "<div class=\"card\"><table><thead><tr><th>task</th><th>filter</th><th>n-shot</th><th>metric</th>"
            "<th>value</th><th>standard error</th><th>items</th></tr></thead><tbody>\n");
    for (int64_t i = 0; i < s->n_tasks; i++)
        for (int k = 0; k < s->task[i].n_measures; k++) {
            const Task *t = &s->task[i];
            const Measure *m = &t->measure[k];
            str_addf(out, "<tr><td>%s</td><td>%s</td><td>%d</td><td>%s</td><td>%.4f</td><td>", t->name, m->filter,
                     t->shots, m->name, m->value);
            if (m->has_error) str_addf(out, "%.4f", m->error);
            str_addf(out, "</td><td>%lld</td></tr>\n", (long long)t->n);
        }
    str_add(out, "</tbody></table></div>\n");
}

void suite_page(Str *out, const Suite *s) {
    html_begin(out, "snug eval", "svg{max-width:100%;height:auto}\n");
    html_text(out, "h1", "Evaluation");
    add_results(out, s);
    if (suite_has_picture(s)) {
        str_add(out, "<div class=\"card\"><h2>Needles found, in percent</h2>\n");
        suite_svg(out, s);
        str_add(out, "</div>\n");
    }
    html_end(out);
}
