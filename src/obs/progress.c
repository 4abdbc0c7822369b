/* progress.c - speed, time left and the line that shows them. */
#include "obs/progress.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/log.h"
#include "base/units.h"
#include "base/work.h"

enum { WIDE = 110, LINE_BYTES = 256 };
static const double redraw_seconds = 0.1;

void progress_begin(Progress *p, int64_t done_steps, int64_t total_steps, double now) {
    *p = (Progress){.done_steps = done_steps, .total_steps = total_steps, .began = now, .now = now};
}

static void add_sample(ProgressSample *sum, const ProgressSample *s, int sign) {
    sum->tokens += sign * s->tokens;
    sum->step_seconds += sign * s->step_seconds;
    sum->waited_seconds += sign * s->waited_seconds;
}

void progress_step(Progress *p, int64_t tokens, double step_seconds, double waited_seconds, double now) {
    ProgressSample s = {.tokens = tokens, .step_seconds = step_seconds, .waited_seconds = waited_seconds};
    if (!p->steps_here) {
        p->first = s;
        p->first_end = now;
    }
    p->recent[p->steps_here++ % PROGRESS_WINDOW] = s;
    p->done_steps++;
    add_sample(&p->all, &s, 1);
    p->now = now;
}

void progress_tokens(Progress *p, int64_t tokens, double now) {
    p->all.tokens += tokens;
    p->now = now;
}

/* The sum of the last steps, without the first one as soon as there are others. */
static ProgressSample recent_sum(const Progress *p) {
    ProgressSample sum = {0};
    int n = (int)MIN2(p->steps_here, PROGRESS_WINDOW);
    for (int i = 0; i < n; i++) add_sample(&sum, &p->recent[i], 1);
    if (n > 1 && p->steps_here <= PROGRESS_WINDOW) add_sample(&sum, &p->first, -1);
    return sum;
}

static double per_second(const ProgressSample *s) {
    return s->step_seconds > 0 ? (double)s->tokens / s->step_seconds : 0;
}

double progress_tokens_per_s(const Progress *p) {
    ProgressSample sum = p->all;
    if (p->at_once) sum.step_seconds = p->now - p->began;
    else if (p->steps_here > 1) add_sample(&sum, &p->first, -1);
    return per_second(&sum);
}

double progress_recent_per_s(const Progress *p) {
    ProgressSample sum = recent_sum(p);
    return p->at_once ? progress_tokens_per_s(p) : per_second(&sum);
}

double progress_wait_share(const Progress *p) {
    ProgressSample sum = recent_sum(p);
    return sum.step_seconds > 0 ? MIN2(MAX2(sum.waited_seconds / sum.step_seconds, 0), 1) : 0;
}

/* Wall seconds per step, pauses included; the first step only while there is no other. */
static double pace(const Progress *p) {
    if (p->at_once && p->steps_here) return (p->now - p->began) / (double)p->steps_here;
    if (p->steps_here > 1) return (p->now - p->first_end) / (double)(p->steps_here - 1);
    return p->steps_here ? p->now - p->began : -1;
}

double progress_left_seconds(const Progress *p) {
    double each = pace(p);
    return each < 0 ? -1 : each * (double)MAX2(p->total_steps - p->done_steps, 0);
}

double progress_job_seconds(const Progress *p) {
    double each = pace(p);
    return each < 0 ? -1 : each * (double)p->total_steps;
}

/* ---- the line ---- */

typedef struct Line {
    char *to;
    int64_t room, len;
} Line;

static void add(Line *line, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void add(Line *line, const char *fmt, ...) {
    va_list ap;
    if (line->len >= line->room - 1) return;
    va_start(ap, fmt);
    int n = vsnprintf(line->to + line->len, (size_t)(line->room - line->len), fmt, ap);
    va_end(ap);
    line->len = MIN2(line->len + n, line->room - 1);
}

static void add_bar(Line *line, const Progress *p) {
    double share = p->total_steps > 0 ? (double)p->done_steps / (double)p->total_steps : 0;
    line->len += work_bar(line->to, line->room, line->room > WIDE ? 24 : 10, share);
}

void progress_text(char *to, int64_t room, const Progress *p, const ProgressFacts *f, bool bar) {
    Line line = {.to = to, .room = room};
    CHECK(room > 0);
    to[0] = 0;
    if (bar) add_bar(&line, p);
    add(&line, "%s %lld/%lld", p->unit ? p->unit : "step", (long long)p->done_steps, (long long)p->total_steps);
    if (!isnan(f->loss)) add(&line, "  loss %.4f", f->loss);
    if (progress_left_seconds(p) >= 0) add(&line, "  left %s", units_seconds(progress_left_seconds(p)).s);
    add(&line, "  %s tok/s", units_count((int64_t)(progress_recent_per_s(p) + 0.5)).s);
    if (!isnan(f->lr)) add(&line, "  lr %.2e", f->lr);
    if (!isnan(f->norm)) add(&line, "  norm %.3g", f->norm);
    if (f->skipped) add(&line, "  skipped %lld", (long long)f->skipped);
    if (!p->unit) add(&line, "  data %.1f%%", 100 * progress_wait_share(p));
}

static int terminal_columns(void) {
    struct winsize w;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 ? w.ws_col : 80;
}

void progress_show(Progress *p, const ProgressFacts *f, bool keep) {
    char text[LINE_BYTES];
    if (keep) {
        progress_text(text, sizeof text, p, f, false);
        log_line("%s", text);
    }
    if (!log_is_terminal() || (!keep && p->now - p->shown < redraw_seconds)) return;
    progress_text(text, MIN2((int64_t)sizeof text, terminal_columns()), p, f, true);
    log_progress("%s", text);
    p->shown = p->now;
}
