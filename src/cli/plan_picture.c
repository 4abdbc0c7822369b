/* plan_picture.c - memory over the step as a picture: bytes alive at every step, stacked by class, the peak named.
 *
 * Plain SVG with a style sheet that follows the reader's light or dark setting. Where there are more steps than
 * columns, a column shows its fullest step, so the peak is never lost. The axis of bytes begins at zero. */
#include "cli/plan_picture.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"

/* ---- classes ---- */

/* Colours that are told apart on light and on dark ground. */
static const struct {
    const char *name, *colour, *meaning;
} classes[] = {
    {"beside", "#9aa3ad", "beside the arena: the driver's context, code, runtime"},
    {"weights", "#4c78a8", "parameters of the model"},
    {"quantised weights", "#7fa8d1", "frozen parameters as codes with their scales"},
    {"adapters", "#5fa8a2", "the low-rank matrices that are trained"},
    {"master", "#2f5f8f", "fp32 copies of trained weights"},
    {"gradients", "#ee8a2d", "of what is trained"},
    {"optimizer", "#54a24b", "moments"},
    {"cache", "#9d755d", "keys and values of the tokens so far"},
    {"activations", "#dd5b5a", "kept from forward for backward, or passed on between steps"},
    {"head", "#b279a2", "logits, log-probabilities and their gradient"},
    {"workspace", "#d8b32c", "scratch of single steps"},
    {"staging", "#f09aa2", "offloaded state on its way in or out"},
    {"statistics", "#a89f9b", "loss sums and norms"},
    {"inputs", "#7d7573", "token ids, positions, tables, dials"},
    {"slack", "#c3c9d1", "alignment of slots and rounding to pages"},
};

static int class_of(const char *name) {
    for (int i = 0; i < COUNT_OF(classes); i++)
        if (!strcmp(classes[i].name, name)) return i;
    return -1;
}

int picture_colour(const char *line) {
    return MAX2(class_of(line), 0);
}

const char *picture_meaning(const char *line) {
    int i = class_of(line);
    return i < 0 ? "" : classes[i].meaning;
}

void picture_style(Str *out) {
    for (int i = 0; i < COUNT_OF(classes); i++)
        str_addf(out, ".c%d{fill:%s;background:%s}", i, classes[i].colour, classes[i].colour);
    str_add(out, "\n");
}

/* ---- geometry ---- */

static int64_t alive_at(const Timeline *t, int lines, int step) { /* of the first `lines` lines */
    int64_t sum = 0;
    for (int k = 0; k < lines; k++) sum += t->bytes[(int64_t)k * t->n_steps + step];
    return sum;
}

int64_t picture_phase_peak(const Timeline *t, const Phase *phase) {
    int64_t most = 0;
    for (int i = phase->begin; i < phase->end; i++) most = MAX2(most, alive_at(t, t->n_lines, i));
    return most;
}

static void fullest_steps(Picture *p) {
    p->columns = MIN2(p->t.n_steps, PICTURE_COLUMNS);
    p->step = MEM_NEW(int, MAX2(p->columns, 1));
    for (int c = 0; c < p->columns; c++) {
        int from = (int)((int64_t)c * p->t.n_steps / p->columns),
            to = (int)((int64_t)(c + 1) * p->t.n_steps / p->columns);
        p->step[c] = from;
        for (int i = from + 1; i < to; i++)
            if (alive_at(&p->t, p->t.n_lines, i) > alive_at(&p->t, p->t.n_lines, p->step[c])) p->step[c] = i;
        if (p->t.peak_step >= from && p->t.peak_step < to) p->step[c] = p->t.peak_step;
    }
}

void picture_open(Picture *p, const PlanPage *page, Frame frame) {
    *p = (Picture){.page = page, .frame = frame};
    plan_timeline(&p->t, page->program, page->machine, POOL_DEVICE);
    fullest_steps(p);
    p->beside = page->process_bytes - page->ledger->arena_bytes[POOL_DEVICE];
    if (page->room_bytes > 0 && page->room_bytes < 3 * page->process_bytes) p->budget = page->room_bytes;
    p->top = 1.1 * (double)MAX2(page->process_bytes, p->budget);
}

void picture_close(Picture *p) {
    mem_free(p->step);
    plan_timeline_free(&p->t);
}

static double x_of(const Picture *p, double step) {
    return p->frame.x + p->frame.width * step / (double)MAX2(p->t.n_steps, 1);
}
static double y_of(const Picture *p, double bytes) {
    return p->frame.y + p->frame.height * (1 - bytes / p->top);
}

double picture_grid(double top, double *unit) {
    static const double steps[] = {1, 2, 2.5, 5, 10};
    double grid = 1;
    *unit = top >= 2.0 * (double)GIB ? (double)GIB : (double)MIB;
    for (int power = 0; top / *unit / grid > 8; power++)
        for (int i = 0; i < COUNT_OF(steps) && top / *unit / grid > 8; i++) grid = pow(10, power) * steps[i];
    return grid;
}

/* ---- areas ---- */

/* Bytes up to and with line k in column c; k -1: what stands beside the arena. */
static double edge(const Picture *p, int k, int c) {
    return k < -1 ? 0 : (double)(p->beside + alive_at(&p->t, k + 1, p->step[c]));
}

/* One edge of an area, left to right or back. Only changes are written. */
static void add_edge(Str *out, const Picture *p, int k, bool back) {
    double last = -1;
    for (int i = 0; i < p->columns; i++) {
        int c = back ? p->columns - 1 - i : i;
        double y = y_of(p, edge(p, k, c));
        double x = x_of(p, (double)(back ? c + 1 : c) * p->t.n_steps / p->columns);
        if (last >= 0 && y > last - 0.05 && y < last + 0.05) continue;
        if (last < 0)
            str_addf(out, "%s%.1f %.1f", back ? "L" : "M", x, y);
        else
            str_addf(out, "H%.1fV%.1f", x, y);
        last = y;
    }
    str_addf(out, "H%g", back ? p->frame.x : p->frame.x + p->frame.width);
}

const char *picture_line_name(const Picture *p, int line) {
    return line < 0 ? "beside" : p->t.name[line];
}

int64_t picture_line_bytes(const Picture *p, int line) {
    return line < 0 ? p->beside : p->t.bytes[(int64_t)line * p->t.n_steps + p->t.peak_step];
}

void picture_areas(Str *out, const Picture *p) {
    for (int k = -1; k < p->t.n_lines; k++) {
        str_addf(out, "<path class=\"c%d\" d=\"", picture_colour(picture_line_name(p, k)));
        add_edge(out, p, k, false);
        add_edge(out, p, k - 1, true);
        str_addf(out, "Z\"><title>%s</title></path>\n", picture_line_name(p, k));
    }
}

/* Looks for the stretch, as wide as a word, in which the area has the most height in common; rather in the middle. */
bool picture_label(const Picture *p, int line, BandLabel *label) {
    int half = PICTURE_COLUMNS / 16;
    double best = 0;
    *label = (BandLabel){0};
    for (int c = half; c + half < p->columns; c += 4) {
        double low = 0, high = p->top;
        for (int i = c - half; i <= c + half; i += 3) {
            low = MAX2(low, edge(p, line - 1, i));
            high = MIN2(high, edge(p, line, i));
        }
        double score = (high - low) * (1 - 0.2 * fabs((double)c / p->columns - 0.5));
        if (high - low < 0.05 * p->top || score <= best) continue;
        best = score;
        *label = (BandLabel){(c + 0.5) * p->t.n_steps / p->columns, (low + high) / 2};
    }
    return best > 0;
}

void picture_peak_text(Str *out, const Picture *p) {
    const Program *prog = p->page->program;
    int step = p->t.peak_step, phase = prog_phase_of(prog, step);
    const Step *s = &prog->s[step];
    str_addf(out, "peak: %s at step %d, %s", units_bytes(p->beside + p->t.peak_bytes).s, step,
             op_name(s->op));
    if (s->layer >= 0) str_addf(out, ", layer %d", s->layer);
    str_addf(out, " (%s, %s)", prog_region_name(s->region), phase >= 0 ? prog->phase[phase].name : "-");
}

/* ---- the picture of --svg ---- */

enum { WIDTH = 1000, HEIGHT = 460, LEFT = 70, RIGHT = 190, TOP = 56, BOTTOM = 56 };
enum { PLOT_W = WIDTH - LEFT - RIGHT, PLOT_H = HEIGHT - TOP - BOTTOM };

static void add_style(Str *out) {
    str_add(out,
            "<style>\nsvg{background:#ffffff;font:12px system-ui,sans-serif}.t{fill:#1b1f24}.s{fill:#57606a}"
            ".g{stroke:#d0d7de}.b{stroke:#cf222e;stroke-width:1.5;stroke-dasharray:6 4}"
            ".p{stroke:#1b1f24;stroke-width:1.2;fill:none}"
            ".l{fill:#fff;stroke:#1b1f24;stroke-width:2.4;stroke-opacity:.45;paint-order:stroke}\n");
    picture_style(out);
    str_add(out,
            "@media (prefers-color-scheme:dark){svg{background:#0d1117}.t{fill:#e6edf3}.s{fill:#9198a1}"
            ".g{stroke:#30363d}.b{stroke:#ff7b72}.p{stroke:#e6edf3}}\n</style>\n");
}

static void add_grid(Str *out, const Picture *p) {
    double unit, grid = picture_grid(p->top, &unit);
    for (int line = 0; line * grid * unit <= p->top; line++) {
        double v = line * grid, y = y_of(p, v * unit);
        str_addf(out,
                 "<line class=\"g\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>"
                 "<text class=\"s\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g %s</text>\n",
                 LEFT, LEFT + PLOT_W, y, y, LEFT - 6, y + 4, v, unit > 1e9 ? "GiB" : "MiB");
    }
}

static void add_phases(Str *out, const Picture *p) {
    for (int i = 0; i < p->page->program->n_phases; i++) {
        const Phase *ph = &p->page->program->phase[i];
        double x0 = x_of(p, ph->begin), x1 = x_of(p, ph->end);
        char name[96], times[32] = "";
        if (ph->repeat > 1) snprintf(times, sizeof times, " x %lld", (long long)ph->repeat);
        snprintf(name, sizeof name, "%.60s%s", ph->name, times);
        str_addf(out, "<line class=\"g\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>", x1, x1, TOP,
                 TOP + PLOT_H + 8);
        if (x1 - x0 < 7.0 * (double)strlen(name)) continue; /* no room for its name */
        str_addf(out, "<text class=\"s\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">", (x0 + x1) / 2,
                 TOP + PLOT_H + 20);
        str_add_html(out, name);
        str_add(out, "</text>\n");
    }
    str_addf(
        out,
        "<text class=\"s\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">steps of the program, 0 to %d, phase by phase"
        "</text>\n",
        LEFT + PLOT_W / 2, TOP + PLOT_H + 40, p->t.n_steps - 1);
}

static void add_legend(Str *out, const Picture *p) {
    int y = TOP + 6;
    for (int k = p->t.n_lines - 1; k >= -1; k--, y += 20) {
        BandLabel label;
        const char *name = picture_line_name(p, k);
        str_addf(out,
                 "<rect class=\"c%d\" x=\"%d\" y=\"%d\" width=\"12\" height=\"12\" rx=\"2\"/><text class=\"t\" "
                 "x=\"%d\" y=\"%d\">%s</text><text class=\"s\" x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n",
                 picture_colour(name), LEFT + PLOT_W + 14, y, LEFT + PLOT_W + 32, y + 10, name, WIDTH - 6, y + 10,
                 units_bytes(picture_line_bytes(p, k)).s);
        if (picture_label(p, k, &label))
            str_addf(out, "<text class=\"l\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n",
                     x_of(p, label.step), y_of(p, label.bytes) + 4, name);
    }
    str_addf(out, "<text class=\"s\" x=\"%d\" y=\"%d\" text-anchor=\"end\">at the peak</text>\n", WIDTH - 6,
             TOP - 4);
}

static void add_peak(Str *out, const Picture *p) {
    double x = x_of(p, p->t.peak_step + 0.5), y = y_of(p, (double)(p->beside + p->t.peak_bytes));
    bool left = x > LEFT + PLOT_W * 0.5;
    str_addf(out,
             "<circle class=\"p\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"/><text class=\"t\" x=\"%.1f\" y=\"%.1f\" "
             "text-anchor=\"%s\">",
             x, y, left ? x - 8 : x + 8, y - 7, left ? "end" : "start");
    picture_peak_text(out, p);
    str_add(out, "</text>\n");
}

static void add_budget(Str *out, const Picture *p) {
    double y = y_of(p, (double)p->budget);
    if (!p->budget) return;
    str_addf(out,
             "<line class=\"b\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/><text class=\"t\" x=\"%d\" "
             "y=\"%.1f\">%s, %s</text>\n",
             LEFT, LEFT + PLOT_W, y, y, LEFT + 4, y - 5, units_bytes(p->budget).s, p->page->room);
}

void plan_svg(Str *out, const PlanPage *page) {
    Picture p;
    picture_open(&p, page, (Frame){LEFT, TOP, PLOT_W, PLOT_H});
    str_addf(out,
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\">\n<title>memory over "
             "one step</title>\n",
             WIDTH, HEIGHT);
    add_style(out);
    str_addf(out, "<text class=\"t\" x=\"%d\" y=\"22\" font-size=\"15\" font-weight=\"600\">", LEFT);
    str_add_html(out, page->model);
    str_add(out, ", ");
    str_add_html(out, str_text(&page->job));
    str_addf(out, "</text>\n<text class=\"s\" x=\"%d\" y=\"42\">device memory alive at each step, by class; ",
             LEFT);
    str_add_html(out, page->machine->name);
    str_add(out, "</text>\n");
    add_grid(out, &p);
    picture_areas(out, &p);
    add_phases(out, &p);
    add_budget(out, &p);
    add_peak(out, &p);
    add_legend(out, &p);
    str_add(out, "</svg>\n");
    picture_close(&p);
}

/* ---- the picture as numbers ---- */

static json_t *line_json(const Picture *p, int line) {
    Str bytes = {0};
    for (int c = 0; c < p->columns; c++)
        str_addf(&bytes, "%s%lld", c ? " " : "", (long long)p->t.bytes[(int64_t)line * p->t.n_steps + p->step[c]]);
    const char *name = picture_line_name(p, line);
    json_t *o = json_pack("{s:s, s:s, s:s}", "name", name, "colour",
                          classes[picture_colour(name)].colour, "bytes", str_text(&bytes));
    str_free(&bytes);
    return o;
}

static json_t *phase_json(const Picture *p, const Phase *phase) {
    double scale = (double)p->columns / (double)MAX2(p->t.n_steps, 1);
    return json_pack("{s:s, s:f, s:f, s:I}", "name", phase->name, "begin", scale * phase->begin, "end",
                     scale * phase->end, "repeat", (json_int_t)phase->repeat);
}

json_t *plan_timeline_json(const Ring *r) {
    PlanPage page = {
        .program = &r->p, .machine = &r->machine, .ledger = &r->ledger, .process_bytes = ring_process_bytes(r)};
    json_t *lines = json_array(), *phases = json_array();
    Picture p;
    picture_open(&p, &page, (Frame){0});
    for (int k = 0; k < p.t.n_lines; k++) json_array_append_new(lines, line_json(&p, k));
    for (int i = 0; i < r->p.n_phases; i++) json_array_append_new(phases, phase_json(&p, &r->p.phase[i]));
    json_t *o = json_pack("{s:i, s:I, s:o, s:o}", "columns", p.columns, "beside_bytes", (json_int_t)p.beside, "lines",
                          lines, "phases", phases);
    picture_close(&p);
    return o;
}
