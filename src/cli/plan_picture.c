/* plan_picture.c - memory over the step as a picture: bytes alive at every step, stacked by class, the peak named.
 *
 * Plain SVG with a style sheet that follows the reader's light or dark setting. Where there are more steps than
 * columns, a column shows its fullest step, so the peak is never lost. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "cli/plan_case.h"

enum { WIDTH = 1000, HEIGHT = 460, LEFT = 70, RIGHT = 190, TOP = 56, BOTTOM = 56, COLUMNS = 370 };
enum { PLOT_W = WIDTH - LEFT - RIGHT, PLOT_H = HEIGHT - TOP - BOTTOM };

typedef struct Picture {
    Timeline t;
    int columns, *step; /* owns: the step each column shows */
    int64_t beside;     /* bytes beside the arena: context, code, runtime */
    double top;         /* bytes at the upper edge */
} Picture;

static const struct {
    const char *name, *light, *dark;
} colours[] = {
    {"beside", "#b8bec6", "#59616b"},
    {"weights", "#4c78a8", "#5b8ec4"},
    {"quantised weights", "#3b6ea5", "#6f9fd0"},
    {"adapters", "#72b7b2", "#5fa39e"},
    {"master", "#2f6f9f", "#4d86b8"},
    {"gradients", "#f58518", "#d9761a"},
    {"optimizer", "#54a24b", "#4f9947"},
    {"cache", "#9d755d", "#a88066"},
    {"activations", "#e45756", "#d65a59"},
    {"head", "#b279a2", "#b279a2"},
    {"workspace", "#eeca3b", "#c9a82c"},
    {"staging", "#ff9da6", "#d9838b"},
    {"statistics", "#bab0ac", "#8b827e"},
    {"inputs", "#79706e", "#a39a97"},
};

static int colour_of(const char *name) {
    for (int i = 0; i < COUNT_OF(colours); i++)
        if (!strcmp(colours[i].name, name)) return i;
    return 0;
}

static int64_t alive_at(const Timeline *t, int lines, int step) { /* of the first `lines` lines */
    int64_t sum = 0;
    for (int k = 0; k < lines; k++) sum += t->bytes[(int64_t)k * t->n_steps + step];
    return sum;
}

static void fullest_steps(Picture *p) {
    p->columns = MIN2(p->t.n_steps, COLUMNS);
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

static double at_x(const Picture *p, double step) {
    return LEFT + PLOT_W * step / (double)MAX2(p->t.n_steps, 1);
}
static double at_y(const Picture *p, double bytes) {
    return TOP + PLOT_H * (1 - bytes / p->top);
}

/* One edge of an area: the bytes up to and without (or with) line k, left to right or back. Only changes are
 * written. */
static void add_edge(Str *out, const Picture *p, int lines, bool back) {
    double last = -1;
    for (int i = 0; i < p->columns; i++) {
        int c = back ? p->columns - 1 - i : i;
        double y = at_y(p, lines < 0 ? 0 : (double)(p->beside + alive_at(&p->t, lines, p->step[c])));
        double x = at_x(p, (double)(back ? c + 1 : c) * p->t.n_steps / p->columns);
        if (last >= 0 && y > last - 0.05 && y < last + 0.05) continue;
        if (last < 0)
            str_addf(out, "%s%.1f %.1f", back ? "L" : "M", x, y);
        else
            str_addf(out, "H%.1fV%.1f", x, y);
        last = y;
    }
    str_addf(out, "H%d", back ? LEFT : LEFT + PLOT_W);
}

/* The area between what lies below line k and what it adds. k -1: what stands beside the arena. */
static void add_area(Str *out, const Picture *p, int k) {
    str_addf(out, "<path class=\"c%d\" d=\"", colour_of(k < 0 ? "beside" : p->t.name[k]));
    add_edge(out, p, k + 1, false);
    add_edge(out, p, k < 0 ? -1 : k, true);
    str_addf(out, "Z\"><title>%s</title></path>\n", k < 0 ? "beside the arena" : p->t.name[k]);
}

static void add_style(Str *out) {
    str_add(
        out,
        "<style>\nsvg{background:#ffffff;font:12px "
        "system-ui,sans-serif}.t{fill:#1b1f24}.s{fill:#57606a}.g{stroke:#d0d7de}"
        ".b{stroke:#cf222e;stroke-width:1.5;stroke-dasharray:6 4}.p{stroke:#1b1f24;stroke-width:1.2;fill:none}\n");
    for (int i = 0; i < COUNT_OF(colours); i++) str_addf(out, ".c%d{fill:%s}", i, colours[i].light);
    str_add(out,
            "\n@media "
            "(prefers-color-scheme:dark){svg{background:#0d1117}.t{fill:#e6edf3}.s{fill:#9198a1}.g{stroke:#30363d}"
            ".b{stroke:#ff7b72}.p{stroke:#e6edf3}\n");
    for (int i = 0; i < COUNT_OF(colours); i++) str_addf(out, ".c%d{fill:%s}", i, colours[i].dark);
    str_add(out, "}\n</style>\n");
}

static void add_axes(Str *out, const Picture *p, const Program *prog) {
    static const double steps[] = {1, 2, 2.5, 5, 10};
    double unit = p->top >= 2.0 * (double)GIB ? (double)GIB : (double)MIB, grid = 1;
    for (int power = 0; p->top / unit / grid > 8; power++)
        for (int i = 0; i < COUNT_OF(steps) && p->top / unit / grid > 8; i++) grid = pow(10, power) * steps[i];
    for (int line = 0; line * grid * unit <= p->top; line++) {
        double v = line * grid;
        str_addf(
            out,
            "<line class=\"g\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/><text class=\"s\" x=\"%d\" y=\"%.1f\" "
            "text-anchor=\"end\">%g %s</text>\n",
            LEFT, LEFT + PLOT_W, at_y(p, v * unit), at_y(p, v * unit), LEFT - 6, at_y(p, v * unit) + 4, v,
            unit > 1e9 ? "GiB" : "MiB");
    }
    for (int i = 0; i < prog->n_phases; i++) {
        const Phase *ph = &prog->phase[i];
        double x0 = at_x(p, ph->begin), x1 = at_x(p, ph->end);
        str_addf(out, "<line class=\"g\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>", x1, x1, TOP,
                 TOP + PLOT_H + 8);
        if (x1 - x0 < 30) continue; /* no room for its name */
        str_addf(out, "<text class=\"s\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s", (x0 + x1) / 2,
                 TOP + PLOT_H + 20, ph->name);
        if (ph->repeat > 1) str_addf(out, " x %lld", (long long)ph->repeat);
        str_add(out, "</text>\n");
    }
    str_addf(out,
             "<text class=\"s\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">steps of the program, 0 to %d</text>\n",
             LEFT + PLOT_W / 2, TOP + PLOT_H + 40, p->t.n_steps - 1);
}

static void add_legend(Str *out, const Picture *p) {
    int y = TOP + 6;
    for (int k = p->t.n_lines - 1; k >= -1; k--, y += 20) {
        int64_t bytes = k < 0 ? p->beside : p->t.bytes[(int64_t)k * p->t.n_steps + p->t.peak_step];
        str_addf(out,
                 "<rect class=\"c%d\" x=\"%d\" y=\"%d\" width=\"12\" height=\"12\" rx=\"2\"/><text class=\"t\" "
                 "x=\"%d\" y=\"%d\">%s</text>"
                 "<text class=\"s\" x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n",
                 colour_of(k < 0 ? "beside" : p->t.name[k]), LEFT + PLOT_W + 14, y, LEFT + PLOT_W + 32, y + 10,
                 k < 0 ? "beside" : p->t.name[k], WIDTH - 6, y + 10, units_bytes(bytes).s);
    }
}

static void add_peak(Str *out, const Picture *p, const PlanCase *c) {
    const Program *prog = &c->job.p;
    int step = p->t.peak_step, phase = prog_phase_of(prog, step);
    const Step *s = &prog->s[step];
    double x = at_x(p, step + 0.5), y = at_y(p, (double)(p->beside + p->t.peak_bytes));
    bool left = x > LEFT + PLOT_W * 0.5;
    str_addf(out,
             "<circle class=\"p\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"/><text class=\"t\" x=\"%.1f\" y=\"%.1f\" "
             "text-anchor=\"%s\">peak: %s at "
             "step %d, %s",
             x, y, left ? x - 8 : x + 8, y - 7, left ? "end" : "start", units_bytes(p->beside + p->t.peak_bytes).s,
             step, op_name(s->op));
    if (s->layer >= 0) str_addf(out, ", layer %d", s->layer);
    str_addf(out, " (%s, %s)</text>\n", prog_region_name(s->region), phase >= 0 ? prog->phase[phase].name : "-");
}

static void add_budget(Str *out, const Picture *p, int64_t budget) {
    if (budget <= 0 || (double)budget > p->top) return;
    double y = at_y(p, (double)budget);
    str_addf(out,
             "<line class=\"b\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/><text class=\"t\" x=\"%d\" "
             "y=\"%.1f\">%s</text>\n",
             LEFT, LEFT + PLOT_W, y, y, LEFT + 4, y - 5, units_bytes(budget).s);
}

void plan_svg(Str *out, const PlanCase *c) {
    Picture p = {0};
    int64_t budget = plan_case_room(c), process = job_process_bytes(&c->job);
    const JobSpec *s = &c->job.spec;
    plan_timeline(&p.t, &c->job.p, &c->machine, POOL_DEVICE);
    fullest_steps(&p);
    p.beside = process - c->job.ledger.arena_bytes[POOL_DEVICE];
    bool show_budget =
        budget > 0 && budget < 3 * process; /* far above it the line would only flatten the picture */
    p.top = 1.1 * (double)MAX2(process, show_budget ? budget : 0);
    str_addf(out,
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\">\n<title>memory over "
             "one step</title>\n",
             WIDTH, HEIGHT);
    add_style(out);
    str_addf(out, "<text class=\"t\" x=\"%d\" y=\"22\" font-size=\"15\" font-weight=\"600\">", LEFT);
    str_add_html(out, s->model.name);
    str_addf(out,
             ", %s: %lld x %lld tokens x %lld</text>\n<text class=\"s\" x=\"%d\" y=\"42\">device memory alive at "
             "each step, by class; ",
             s->lora ? "lora" : "full", (long long)s->micro_batch, (long long)s->seq, (long long)s->accum, LEFT);
    str_add_html(out, c->machine.name);
    str_add(out, "</text>\n");
    add_axes(out, &p, &c->job.p);
    for (int k = -1; k < p.t.n_lines; k++) add_area(out, &p, k);
    if (show_budget) add_budget(out, &p, budget);
    add_peak(out, &p, c);
    add_legend(out, &p);
    str_add(out, "</svg>\n");
    mem_free(p.step);
    plan_timeline_free(&p.t);
}

void plan_html(Str *out, const PlanCase *c, const char *text) {
    str_add(out,
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
            "content=\"width=device-width\">"
            "<title>snug plan: ");
    str_add_html(out, c->job.spec.model.name);
    str_add(out,
            "</title>\n<style>:root{color-scheme:light dark}body{max-width:72rem;margin:2rem auto;padding:0 "
            "1rem;font:15px/1.5 "
            "system-ui,sans-serif}svg{width:100%;height:auto;border-radius:6px}pre{overflow-x:auto;font:12.5px/"
            "1.45 ui-monospace,"
            "monospace}</style></head><body>\n<h1>");
    str_add_html(out, c->job.spec.model.name);
    str_add(out, "</h1>\n");
    plan_svg(out, c);
    str_add(out, "<pre>");
    str_add_html(out, text);
    str_add(out, "</pre>\n</body></html>\n");
}
