/* plot.c - growth as a picture: series of points on two logarithmic axes, each with its exponent, as a small SVG.
 *
 * usage: plot OUT.svg < TEXT        lines of TEXT: "title ...", "x ...", "y ...", "series NAME", and points "X Y".
 * "plain": names without exponents, common sizes of memory (GiB) on the x axis. "like NAME": a dashed series in the colour of the one before.
 * Prints per series a line of JSON fields: its points, and the slope of the least-squares line through their logarithms,
 * of all and of the upper half. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 560, HEIGHT = 360, LEFT = 70, RIGHT = 20, TOP = 44, BOTTOM = 50 };
enum { MAX_SERIES = 6, MAX_POINTS = 32, TEXT = 200 };

typedef struct Series {
    char name[TEXT];
    double x[MAX_POINTS], y[MAX_POINTS];
    double exponent, at_end; /* of all points; of the upper half, where fixed costs count less */
    int n, colour;
    int dashed;
} Series;

typedef struct Plot {
    char title[TEXT], x[TEXT], y[TEXT];
    Series s[MAX_SERIES];
    int n, n_colours, plain;
    double low_x, high_x, low_y, high_y; /* logarithms */
} Plot;

static const char *const colours[MAX_SERIES] = {"#1f6fb4", "#c8502d", "#2b8a4b", "#7a4fa3", "#8a6d1f", "#555555"};

static double fit(const Series *s, int from) {
    double sx = 0, sy = 0, sxx = 0, sxy = 0;
    int n = s->n - from;
    for (int i = from; i < s->n; i++) {
        double x = log(s->x[i]), y = log(s->y[i]);
        sx += x, sy += y, sxx += x * x, sxy += x * y;
    }
    return (n * sxy - sx * sy) / (n * sxx - sx * sx);
}

static void begin_series(Plot *p, const char *name, int dashed) {
    Series *s = &p->s[p->n++];
    snprintf(s->name, sizeof s->name, "%s", name);
    s->dashed = dashed;
    s->colour = dashed ? s[-1].colour : p->n_colours++;
}

static int read_plot(Plot *p) {
    char line[TEXT];
    while (fgets(line, sizeof line, stdin)) {
        double x, y;
        line[strcspn(line, "\n")] = 0;
        Series *s = p->n ? &p->s[p->n - 1] : NULL;
        if (!strncmp(line, "title ", 6)) snprintf(p->title, sizeof p->title, "%s", line + 6);
        else if (!strncmp(line, "x ", 2)) snprintf(p->x, sizeof p->x, "%s", line + 2);
        else if (!strncmp(line, "y ", 2)) snprintf(p->y, sizeof p->y, "%s", line + 2);
        else if (!strcmp(line, "plain")) p->plain = 1;
        else if (!strncmp(line, "series ", 7) && p->n < MAX_SERIES) begin_series(p, line + 7, 0);
        else if (!strncmp(line, "like ", 5) && s && p->n < MAX_SERIES) begin_series(p, line + 5, 1);
        else if (s && s->n < MAX_POINTS && sscanf(line, "%lf %lf", &x, &y) == 2 && x > 0 && y > 0)
            s->x[s->n] = x, s->y[s->n++] = y;
        else return fprintf(stderr, "plot: not understood: %s\n", line), 1;
    }
    p->low_x = p->low_y = 1e9, p->high_x = p->high_y = -1e9;
    for (Series *s = p->s; s < p->s + p->n; s++) {
        s->exponent = fit(s, 0);
        s->at_end = fit(s, s->n / 2);
        for (int i = 0; i < s->n; i++) {
            p->low_x = fmin(p->low_x, log(s->x[i])), p->high_x = fmax(p->high_x, log(s->x[i]));
            p->low_y = fmin(p->low_y, log(s->y[i])), p->high_y = fmax(p->high_y, log(s->y[i]));
        }
    }
    return p->n == 0;
}

static double at_x(const Plot *p, double x) {
    return LEFT + (WIDTH - LEFT - RIGHT) * (log(x) - p->low_x) / fmax(p->high_x - p->low_x, 1e-9);
}
static double at_y(const Plot *p, double y) {
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (log(y) - p->low_y) / fmax(p->high_y - p->low_y, 1e-9);
}

static void draw_line(FILE *f, double x1, double y1, double x2, double y2) {
    fprintf(f, "<line x1='%.1f' y1='%.1f' x2='%.1f' y2='%.1f' stroke='#e4e4e4'/>\n", x1, y1, x2, y2);
}

static void draw_x_mark(const Plot *p, FILE *f, double x) {
    if (log(x) < p->low_x || log(x) > p->high_x) return;
    draw_line(f, at_x(p, x), TOP, at_x(p, x), HEIGHT - BOTTOM);
    fprintf(f, "<text x='%.1f' y='%d' text-anchor='middle'>%g</text>\n", at_x(p, x), HEIGHT - BOTTOM + 17, x);
}

static void draw_axes(const Plot *p, FILE *f) {
    static const double memory[] = {5, 6, 8, 12, 16, 24, 32, 48, 80, 135};
    const double *x = p->plain ? memory : p->s[0].x; /* else a mark where something was measured */
    int n_x = p->plain ? (int)(sizeof memory / sizeof *memory) : p->s[0].n;
    for (int i = 0; i < n_x; i++) draw_x_mark(p, f, x[i]);
    double span = (p->high_y - p->low_y) / log(10);
    for (int k = (int)floor(p->low_y / log(10)); k <= p->high_y / log(10); k++)
        for (int m = 1; m < 10; m = m == 1 ? 2 : m == 2 ? 5 : 10) {
            double y = m * pow(10, k);
            if (log(y) < p->low_y || log(y) > p->high_y || (span > 2.5 && m != 1)) continue;
            draw_line(f, LEFT, at_y(p, y), WIDTH - RIGHT, at_y(p, y));
            fprintf(f, "<text x='%d' y='%.1f' text-anchor='end'>%g</text>\n", LEFT - 8, at_y(p, y) + 4, y);
        }
    fprintf(f, "<rect x='%d' y='%d' width='%d' height='%d' fill='none' stroke='#888'/>\n", LEFT, TOP, WIDTH - LEFT - RIGHT,
            HEIGHT - TOP - BOTTOM);
    fprintf(f, "<text x='%d' y='22' font-size='14' font-weight='bold'>%s</text>\n", LEFT, p->title);
    fprintf(f, "<text x='%d' y='%d' text-anchor='middle'>%s</text>\n", (WIDTH + LEFT - RIGHT) / 2, HEIGHT - 12, p->x);
    fprintf(f, "<text transform='translate(16,%d) rotate(-90)' text-anchor='middle'>%s</text>\n",
            (HEIGHT + TOP - BOTTOM) / 2, p->y);
}

static void draw_series(const Plot *p, FILE *f, int k) {
    const Series *s = &p->s[k];
    const char *colour = colours[s->colour];
    fprintf(f, "<polyline fill='none' stroke='%s' stroke-width='%d' stroke-dasharray='%s' points='", colour,
            s->dashed ? 1 : 2, s->dashed ? "4 3" : "none");
    for (int i = 0; i < s->n; i++) fprintf(f, "%.1f,%.1f ", at_x(p, s->x[i]), at_y(p, s->y[i]));
    fprintf(f, "'/>\n");
    for (int i = 0; i < s->n; i++)
        fprintf(f, "<circle cx='%.1f' cy='%.1f' r='%d' fill='%s'/>\n", at_x(p, s->x[i]), at_y(p, s->y[i]),
                s->dashed ? 2 : 3, colour);
    if (p->plain)
        fprintf(f, "<text x='%d' y='%d' fill='%s' text-anchor='end'>%s</text>\n", WIDTH - RIGHT - 12,
                HEIGHT - BOTTOM - 12 - 17 * (p->n - 1 - k), colour, s->name);
    else
        fprintf(f, "<text x='%d' y='%d' fill='%s'>%s: exponent %.2f, upper half %.2f</text>\n", LEFT + 12, TOP + 20 + 17 * k,
                colour, s->name, s->exponent, s->at_end);
}

int main(int argc, char **argv) {
    static Plot p;
    if (argc != 2) return fprintf(stderr, "usage: plot OUT.svg < TEXT\n"), 2;
    if (read_plot(&p)) return 1;
    FILE *f = fopen(argv[1], "w");
    if (!f) return perror(argv[1]), 1;
    fprintf(f, "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' viewBox='0 0 %d %d' ", WIDTH, HEIGHT, WIDTH,
            HEIGHT);
    fprintf(f, "font-family='sans-serif' font-size='12'>\n<rect width='100%%' height='100%%' fill='white'/>\n");
    draw_axes(&p, f);
    for (int k = 0; k < p.n; k++) {
        draw_series(&p, f, k);
        printf("\"series\":\"%s\",\"exponent\":%.3f,\"at_end\":%.3f,", p.s[k].name, p.s[k].exponent, p.s[k].at_end);
        printf("\"points\":[");
        for (int i = 0; i < p.s[k].n; i++) printf(i ? ",[%g,%.6g]" : "[%g,%.6g]", p.s[k].x[i], p.s[k].y[i]);
        printf("]\n");
    }
    fprintf(f, "</svg>\n");
    return fclose(f) ? perror(argv[1]), 1 : 0;
}
