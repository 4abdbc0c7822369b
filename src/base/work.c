/* work.c - how often a piece of work shows itself, and what its line says. */
#include "base/work.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#include "base/log.h"
#include "base/stop.h"
#include "base/units.h"

enum { CELLS = 24 };
static const double redraw_seconds = 0.1, line_seconds = 10;
static const double settled_seconds = 1; /* before, the pace says little */

static double now_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int work_bar(char *to, int64_t room, int cells, double share) {
    char bar[64] = {0};
    double part = MIN2(MAX2(share, 0), 1);
    int filled = (int)(part * cells);
    CHECK(cells < (int)sizeof bar);
    for (int i = 0; i < cells; i++) bar[i] = i < filled ? '=' : i == filled ? '>' : ' ';
    int n = snprintf(to, (size_t)room, "[%.*s] %3.0f%%  ", cells, bar, 100 * share);
    return (int)MIN2(n, room - 1);
}

static UnitText amount(const Work *w, int64_t n) {
    return w->unit == WORK_BYTES ? units_bytes(n) : units_count(n);
}

double work_left_seconds(const Work *w) {
    double passed = now_seconds() - w->began;
    if (w->total <= 0 || w->done <= 0 || passed < settled_seconds) return -1;
    return passed * (double)MAX2(w->total - w->done, 0) / (double)w->done;
}

static void show(Work *w, double now) {
    char text[300], time_left[64] = "";
    double share = w->total > 0 ? (double)w->done / (double)w->total : 0, left = work_left_seconds(w);
    if (left >= 0) snprintf(time_left, sizeof time_left, ", left %s", units_seconds(left).s);
    int at = w->bar && w->total > 0 ? work_bar(text, sizeof text, CELLS, share) : 0;
    at += snprintf(text + at, sizeof text - (size_t)at, "%s", w->what);
    if (w->total > 0)
        snprintf(text + at, sizeof text - (size_t)at, ": %s of %s", amount(w, w->done).s, amount(w, w->total).s);
    else if (w->done)
        snprintf(text + at, sizeof text - (size_t)at, ": %s so far", amount(w, w->done).s);
    if (w->bar)
        log_progress("%s%s", text, time_left);
    else
        log_line("%s, after %s%s", text, units_seconds(now - w->began).s, time_left);
    w->shown = now;
}

void work_begin(Work *w, WorkUnit unit, int64_t total, const char *what, ...) {
    *w = (Work){.unit = unit, .total = total, .bar = log_is_terminal()};
    va_list ap;
    va_start(ap, what);
    vsnprintf(w->what, sizeof w->what, what, ap);
    va_end(ap);
    w->began = w->shown = now_seconds();
    if (w->bar) show(w, w->began);
}

bool work_on(Work *w, int64_t done, Err *e) {
    w->done = done;
    double now = now_seconds();
    if (now - w->shown >= (w->bar ? redraw_seconds : line_seconds)) show(w, now);
    return stop_check(e);
}

void work_end(Work *w) {
    if (w->bar) log_wipe();
}
