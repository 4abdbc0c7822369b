/* plot.c - series of points as a small SVG that says what its axes are: units, zero or not, logarithmic or not.
 *
 * usage: plot OUT.svg < TEXT        lines of TEXT:
 *     title WORDS, x WORDS, y WORDS   with their units
 *     log x, log y                    a logarithmic axis, said so on it; otherwise an axis is linear and begins at
 *                                     zero
 *     from LOW                        the y axis begins there instead, said so on it
 *     marks X X ...                   where the x axis has its numbers; otherwise where the first series has points,
 *                                     or even
 *     exponents                       the legend names each series' exponent: of all points, and of the upper half
 *     series NAME                     points follow, a line "X Y" each
 *     like NAME                       the same, as a hollow, dashed companion of the series before
 * Series differ in colour, dash and marker. Prints per series a line of JSON fields: its points, and the slope of
 * the least-squares line through their logarithms. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 790, HEIGHT = 380, LEFT = 76, RIGHT = 260, TOP = 44, BOTTOM = 54 };
enum { PLOT_W = WIDTH - LEFT - RIGHT, PLOT_H = HEIGHT - TOP - BOTTOM };
enum { MAX_SERIES = 6, MAX_POINTS = 128, MAX_MARKS = 16, TEXT = 200 };

typedef struct Series {
    char name[TEXT];
    double x[MAX_POINTS], y[MAX_POINTS];
    double exponent, at_end; /* of all points; of the upper half, where fixed costs count less */
    int n, look;             /* which colour, dash and marker */
    int companion;
} Series;

typedef struct Axis {
    char words[TEXT];
    int log;
    double from;      /* linear: where it begins */
    double low, high; /* as drawn: logarithms where it is logarithmic */
} Axis;

typedef struct Plot {
    char title[TEXT];
    Axis x, y;
    double mark[MAX_MARKS];
    int n_marks, exponents;
    Series s[MAX_SERIES];
    int n, n_looks;
} Plot;

static const char *const dashes[MAX_SERIES] = {"none", "9 4", "2 3", "9 3 2 3", "5 3", "12 3 2 3 2 3"};

/* ---- reading ---- */

static double fit(const Series *s, int from) {
    double sx = 0, sy = 0, sxx = 0, sxy = 0;
    int n = s->n - from;
    for (int i = from; i < s->n; i++) {
        double x = log(s->x[i]), y = log(s->y[i]);
        sx += x, sy += y, sxx += x * x, sxy += x * y;
    }
    return (n * sxy - sx * sy) / (n * sxx - sx * sx);
}

static int begin_series(Plot *p, const char *name, int companion) {
    if (p->n == MAX_SERIES || (companion && !p->n)) return 0;
    Series *s = &p->s[p->n++];
    snprintf(s->name, sizeof s->name, "%s", name);
    s->companion = companion;
    s->look = companion ? s[-1].look : p->n_looks++;
    return 1;
}

static int read_marks(Plot *p, char *text) {
    for (char *end; p->n_marks < MAX_MARKS; text = end) {
        double x = strtod(text, &end);
        if (end == text) break;
        p->mark[p->n_marks++] = x;
    }
    return p->n_marks > 0;
}

static int read_point(Plot *p, const char *line) {
    Series *s = p->n ? &p->s[p->n - 1] : NULL;
    double x, y;
    if (!s || s->n == MAX_POINTS || sscanf(line, "%lf %lf", &x, &y) != 2 || x <= 0 || y <= 0) return 0;
    s->x[s->n] = x, s->y[s->n++] = y;
    return 1;
}

static int copy_words(char *to, const char *words) {
    return snprintf(to, TEXT, "%s", words) > 0;
}

static int read_line(Plot *p, char *line) {
    if (!strncmp(line, "title ", 6)) return copy_words(p->title, line + 6);
    if (!strncmp(line, "x ", 2)) return copy_words(p->x.words, line + 2);
    if (!strncmp(line, "y ", 2)) return copy_words(p->y.words, line + 2);
    if (!strcmp(line, "log x")) return p->x.log = 1;
    if (!strcmp(line, "log y")) return p->y.log = 1;
    if (!strcmp(line, "exponents")) return p->exponents = 1;
    if (!strncmp(line, "from ", 5)) return p->y.from = atof(line + 5), 1;
    if (!strncmp(line, "marks ", 6)) return read_marks(p, line + 6);
    if (!strncmp(line, "series ", 7)) return begin_series(p, line + 7, 0);
    if (!strncmp(line, "like ", 5)) return begin_series(p, line + 5, 1);
    return read_point(p, line);
}

static double scaled(const Axis *a, double v) {
    return a->log ? log(v) : v;
}

static void set_range(Axis *a, double low, double high) {
    a->low = a->log ? log(low) : a->from;
    a->high = a->log ? log(high) : high + 0.04 * (high - a->from);
    if (a->high - a->low < 1e-9) a->high = a->low + 1;
}

static int read_plot(Plot *p) {
    char line[TEXT];
    double low_x = INFINITY, high_x = 0, low_y = INFINITY, high_y = 0;
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        if (!read_line(p, line)) return fprintf(stderr, "plot: not understood: %s\n", line), 1;
    }
    for (Series *s = p->s; s < p->s + p->n; s++) {
        s->exponent = fit(s, 0);
        s->at_end = fit(s, s->n / 2);
        for (int i = 0; i < s->n; i++) {
            low_x = fmin(low_x, s->x[i]), high_x = fmax(high_x, s->x[i]);
            low_y = fmin(low_y, s->y[i]), high_y = fmax(high_y, s->y[i]);
        }
    }
    set_range(&p->x, low_x, high_x);
    set_range(&p->y, low_y, high_y);
    return p->n == 0;
}

/* ---- drawing ---- */

static double at_x(const Plot *p, double x) {
    return LEFT + PLOT_W * (scaled(&p->x, x) - p->x.low) / (p->x.high - p->x.low);
}
static double at_y(const Plot *p, double y) {
    return TOP + PLOT_H * (1 - (scaled(&p->y, y) - p->y.low) / (p->y.high - p->y.low));
}

static int is_inside(const Axis *a, double v) {
    double at = a->log && v <= 0 ? -INFINITY : scaled(a, v), margin = 1e-6 * (a->high - a->low);
    return at >= a->low - margin && at <= a->high + margin;
}

static void draw_text(FILE *f, double x, double y, const char *how, const char *text) {
    fprintf(f, "<text x='%.1f' y='%.1f' %s>", x, y, how);
    for (; *text; text++) fprintf(f, *text == '<' ? "&lt;" : *text == '&' ? "&amp;" : "%c", *text);
    fprintf(f, "</text>\n");
}

static void number_text(char *to, size_t size, double v) { /* "12,000", "0.25" */
    if (v < 1000 || v != floor(v))
        snprintf(to, size, "%g", v);
    else
        snprintf(to, size, "%.0f,%03.0f", floor(v / 1000), fmod(v, 1000));
}

static void draw_x_mark(const Plot *p, FILE *f, double x) {
    char text[32];
    if (!is_inside(&p->x, x)) return;
    number_text(text, sizeof text, x);
    fprintf(f, "<path class='g' d='M%.1f %dV%d'/>", at_x(p, x), TOP, TOP + PLOT_H);
    draw_text(f, at_x(p, x), TOP + PLOT_H + 17, "text-anchor='middle'", text);
}

static void draw_y_mark(const Plot *p, FILE *f, double y) {
    char text[32];
    if (!is_inside(&p->y, y)) return;
    number_text(text, sizeof text, y);
    fprintf(f, "<path class='g' d='M%d %.1fH%d'/>", LEFT, at_y(p, y), LEFT + PLOT_W);
    draw_text(f, LEFT - 8, at_y(p, y) + 4, "text-anchor='end'", text);
}

/* Marks at 1, 2, 5 times powers of ten: all of a logarithmic axis (of a long one only the powers), about six of a
 * linear. */
static void draw_even_marks(const Plot *p, FILE *f, const Axis *a, void (*draw)(const Plot *, FILE *, double)) {
    if (a->log) {
        double span = (a->high - a->low) / log(10);
        for (int k = (int)floor(a->low / log(10)); k <= a->high / log(10); k++)
            for (int m = 1; m < 10; m = m == 1 ? 2 : m == 2 ? 5 : 10)
                if (span <= 2.5 || m == 1) draw(p, f, m * pow(10, k));
        return;
    }
    double power = pow(10, floor(log10((a->high - a->low) / 6))), step = power;
    for (int m = 1; (a->high - a->low) / step > 7; m = m == 1 ? 2 : m == 2 ? 5 : 10) step = m * power;
    for (int i = (int)ceil(a->low / step - 1e-9); i * step <= a->high; i++) draw(p, f, i * step);
}

static void draw_axes(const Plot *p, FILE *f) {
    char words[2 * TEXT];
    if (p->n_marks)
        for (int i = 0; i < p->n_marks; i++) draw_x_mark(p, f, p->mark[i]);
    else if (p->x.log)
        for (int i = 0; i < p->s[0].n; i++) draw_x_mark(p, f, p->s[0].x[i]);
    else
        draw_even_marks(p, f, &p->x, draw_x_mark);
    draw_even_marks(p, f, &p->y, draw_y_mark);
    fprintf(f, "<path class='a' d='M%d %dV%dH%d'/>\n", LEFT, TOP, TOP + PLOT_H, LEFT + PLOT_W);
    draw_text(f, LEFT, 22, "class='t'", p->title);
    snprintf(words, sizeof words, "%s%s", p->x.words, p->x.log ? " (logarithmic)" : "");
    draw_text(f, LEFT + PLOT_W / 2.0, HEIGHT - 12, "text-anchor='middle'", words);
    snprintf(words, sizeof words, "%s%s", p->y.words, p->y.log ? " (logarithmic)" : "");
    if (p->y.from > 0) snprintf(words, sizeof words, "%s (the axis begins at %g)", p->y.words, p->y.from);
    fprintf(f, "<g transform='translate(18,%d) rotate(-90)'>", TOP + PLOT_H / 2);
    draw_text(f, 0, 0, "text-anchor='middle'", words);
    fprintf(f, "</g>\n");
}

static void draw_marker(FILE *f, const Series *s, double x, double y) {
    static const char *const shapes[MAX_SERIES] = {
        "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z", "m-3.5 -3.5h7v7h-7z",  "m0 -4.6l4.4 8h-8.8z",
        "m0 -5l4.4 5l-4.4 5l-4.4 -5z",         "m0 4.6l4.4 -8h-8.8z", "m-4 -4l8 8m0 -8l-8 8"};
    fprintf(f, "<path class='m%d%s' d='M%.1f %.1f%s'/>\n", s->look, s->companion ? " h" : "", x, y,
            shapes[s->look]);
}

static void draw_series(const Plot *p, FILE *f, const Series *s) {
    int apart = s->n > 20 ? s->n / 7 : 1; /* of many points a few are marked, of each series others */
    fprintf(f, "<polyline class='l%d%s' stroke-dasharray='%s' points='", s->look, s->companion ? " h" : "",
            s->companion ? "4 3" : dashes[s->look]);
    for (int i = 0; i < s->n; i++) fprintf(f, "%.1f,%.1f ", at_x(p, s->x[i]), at_y(p, s->y[i]));
    fprintf(f, "'/>\n");
    for (int i = apart > 1 ? (int)(s - p->s) * apart / p->n : 0; i < s->n; i += apart)
        draw_marker(f, s, at_x(p, s->x[i]), at_y(p, s->y[i]));
}

static void draw_legend(const Plot *p, FILE *f) {
    int x = LEFT + PLOT_W + 18, y = TOP + 8;
    for (const Series *s = p->s; s < p->s + p->n; s++, y += p->exponents ? 40 : 24) {
        char words[80];
        fprintf(f, "<path class='l%d%s' stroke-dasharray='%s' d='M%d %dh36'/>", s->look, s->companion ? " h" : "",
                s->companion ? "4 3" : dashes[s->look], x, y);
        draw_marker(f, s, x + 18, y);
        draw_text(f, x + 44, y + 4, "", s->name);
        snprintf(words, sizeof words, "exponent %.2f; upper half %.2f", s->exponent, s->at_end);
        if (p->exponents) draw_text(f, x + 44, y + 19, "class='s'", words);
    }
}

static void draw_style(FILE *f) {
    static const char *const colours[MAX_SERIES] = {"#1f6fb4", "#c8502d", "#2b8a4b",
                                                    "#7a4fa3", "#8a6d1f", "#5f6670"};
    static const char *const dark[MAX_SERIES] = {"#5ba3e0", "#ee8259", "#57bd7a", "#b48ae0", "#cfac4a", "#a5adb8"};
    fprintf(f,
            "<style>\nsvg{background:#fff;font:12px system-ui,sans-serif}text{fill:#1b1f24}.t{font-size:14px;"
            "font-weight:bold}.s{fill:#57606a;font-size:11px}.g{stroke:#e2e5e9}.a{stroke:#888;fill:none}"
            "polyline,[class^=l]{fill:none;stroke-width:2}polyline.h,path.h{stroke-width:1.2}\n");
    for (int i = 0; i < MAX_SERIES; i++)
        fprintf(f, ".l%d,.m%d{stroke:%s}.m%d{fill:%s}", i, i, colours[i], i, colours[i]);
    fprintf(f,
            "[class^=m].h{fill:#fff}\n@media (prefers-color-scheme:dark){svg{background:#0d1117}text{fill:#e6edf3}"
            ".s{fill:#9198a1}.g{stroke:#2b313a}[class^=m].h{fill:#0d1117!important}");
    for (int i = 0; i < MAX_SERIES; i++)
        fprintf(f, ".l%d,.m%d{stroke:%s}.m%d{fill:%s}", i, i, dark[i], i, dark[i]);
    fprintf(f, "}\n</style>\n");
}

static void print_fields(const Series *s) {
    printf("\"series\":\"%s\",\"exponent\":%.3f,\"at_end\":%.3f,\"points\":[", s->name, s->exponent, s->at_end);
    for (int i = 0; i < s->n; i++) printf(i ? ",[%g,%.6g]" : "[%g,%.6g]", s->x[i], s->y[i]);
    printf("]\n");
}

int main(int argc, char **argv) {
    static Plot p;
    if (argc != 2) return fprintf(stderr, "usage: plot OUT.svg < TEXT\n"), 2;
    if (read_plot(&p)) return 1;
    FILE *f = fopen(argv[1], "w");
    if (!f) return perror(argv[1]), 1;
    fprintf(f, "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %d %d' role='img'>\n", WIDTH, HEIGHT);
    draw_style(f);
    draw_axes(&p, f);
    for (int k = 0; k < p.n; k++) draw_series(&p, f, &p.s[k]);
    draw_legend(&p, f);
    fprintf(f, "</svg>\n");
    for (int k = 0; k < p.n; k++) print_fields(&p.s[k]);
    return fclose(f) ? perror(argv[1]), 1 : 0;
}
