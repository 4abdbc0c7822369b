/* fit.c - which points are tried, in which order, and why the others need not be. */
#include "fit/fit.h"

#include <string.h>

#include "base/mem.h"

typedef struct Walk {
    const FitSpace *s;
    FitLimits limits;
    Fit *f;
    double fastest;   /* of the trials that fit; 0: none */
    double *at_least; /* owns: per combination of settings, its time without a ladder if it was tried, else a lower
                         bound; 0: none */
    bool *enough;     /* owns: per combination, it or one before it on every axis fits without a ladder */
} Walk;

/* ---- trials ---- */

static bool is_within(int64_t limit, int64_t bytes) { return !limit || bytes <= limit; }

bool fit_holds(const FitLimits *l, const FitCost *c) {
    return is_within(l->device_bytes, c->device_bytes) && is_within(l->host_bytes, c->host_bytes) &&
           is_within(l->disk_bytes, c->disk_bytes);
}

static const FitTrial *trial_of(Walk *w, const FitPoint *p) {
    Fit *f = w->f;
    for (int64_t i = 0; i < f->n; i++)
        if (!memcmp(&f->trial[i].p, p, sizeof *p)) return &f->trial[i];
    FitTrial t = {.p = *p};
    if (!w->s->cost(w->s->user, p, &t.c)) return NULL;
    t.fits = fit_holds(&w->limits, &t.c);
    if (t.fits && (w->fastest <= 0 || t.c.seconds < w->fastest)) w->fastest = t.c.seconds;
    f->trial = mem_grow(f->trial, &f->cap, f->n + 1, sizeof *f->trial);
    f->trial[f->n] = t;
    return &f->trial[f->n++];
}

static bool is_too_slow(const Walk *w, double seconds) {
    return w->fastest > 0 && seconds > (1 + FIT_SAME_TIME) * w->fastest;
}

/* ---- ladders ---- */

/* The least rung in (from, most] with which so many bytes more come off, at best (F2); most + 1: none. */
static int64_t least_relief(const FitSpace *s, const FitPoint *p, bool disk, int64_t from, int64_t most, int64_t need) {
    int64_t (*relief)(void *, const FitPoint *, int64_t) = disk ? s->disk_relief : s->relief;
    int64_t had = relief(s->user, p, from), low = from, high = most + 1;
    while (high - low > 1) {
        int64_t mid = low + (high - low) / 2;
        if (relief(s->user, p, mid) - had >= need) high = mid;
        else low = mid;
    }
    return high;
}

/* What the host's memory does not hold goes to disk, as little as is enough. t: its device fits. */
static void fit_host(Walk *w, const FitTrial *t) {
    const FitSpace *s = w->s;
    FitPoint p = t->p;
    FitCost c = t->c;
    if (!s->disk || is_within(w->limits.host_bytes, c.host_bytes)) return;
    int64_t most = s->disk_rungs(s->user, &p);
    while (!is_within(w->limits.host_bytes, c.host_bytes)) {
        p.disk = least_relief(s, &p, true, p.disk, most, c.host_bytes - w->limits.host_bytes);
        const FitTrial *more = p.disk > most ? NULL : trial_of(w, &p);
        if (!more || is_too_slow(w, more->c.seconds)) return;
        c = more->c;
    }
}

/* The least rung with which the device holds it: every rung that is tried is one below which none can fit (F2), so
 * that a time that is too slow there is too slow for all above it (F1). */
static void climb(Walk *w, FitPoint p, FitCost c) {
    const FitSpace *s = w->s;
    while (!is_within(w->limits.device_bytes, c.device_bytes)) {
        p.rung = least_relief(s, &p, false, p.rung, s->rungs, c.device_bytes - w->limits.device_bytes);
        const FitTrial *t = p.rung > s->rungs ? NULL : trial_of(w, &p);
        if (!t || is_too_slow(w, t->c.seconds)) return;
        c = t->c; /* before others are tried: trials may move */
        if (is_within(w->limits.device_bytes, c.device_bytes)) fit_host(w, t);
    }
}

/* ---- axes ---- */

static int64_t visited(const FitSpace *s, int axis) { /* settings of it that are visited */
    return axis == s->axes - 1 && s->stops ? s->n_stops : s->settings[axis];
}

static int64_t combinations(const FitSpace *s) {
    int64_t n = 1;
    for (int a = 0; a < s->axes; a++) n *= visited(s, a);
    return n;
}

/* What is known of a combination from those with one setting less on an axis; false: it cannot be the answer. */
static bool is_open(Walk *w, int64_t number, const FitPoint *p) {
    int64_t stride = 1;
    for (int a = w->s->axes - 1; a >= 0; stride *= visited(w->s, a--)) {
        if (!p->at[a] || w->s->unordered[a]) continue;
        int64_t before = number - stride;
        if (w->at_least[before] > w->at_least[number]) w->at_least[number] = w->at_least[before];
        w->enough[number] |= w->enough[before];
    }
    return !w->enough[number] && !is_too_slow(w, w->at_least[number]);
}

static FitPoint point_of(const FitSpace *s, int64_t number) {
    FitPoint p = {0};
    for (int a = s->axes - 1; a >= 0; a--) {
        p.at[a] = number % visited(s, a);
        number /= visited(s, a);
    }
    if (s->stops) p.at[s->axes - 1] = s->stops[p.at[s->axes - 1]];
    return p;
}

/* Between the stop before p and p, without a ladder: the least setting that fits (F3) and is not too slow (F1). p
 * fits, or is too slow itself. */
static void refine(Walk *w, FitPoint p) {
    const FitSpace *s = w->s;
    int64_t *at = &p.at[s->axes - 1], high = *at, low = 0;
    for (int i = 0; i < s->n_stops && s->stops[i] < high; i++) low = s->stops[i];
    while (high - low > 1) {
        *at = low + (high - low) / 2;
        const FitTrial *t = trial_of(w, &p);
        if (t && (t->fits || is_too_slow(w, t->c.seconds))) high = *at;
        else low = *at;
    }
}

/* The stop before it does not fit without a ladder, and is not too slow: something between the two may be the
 * answer. */
static bool is_fine(const Walk *w, int64_t number, const FitPoint *p) {
    return w->s->stops && p->at[w->s->axes - 1] && !w->enough[number - 1] && !is_too_slow(w, w->at_least[number - 1]);
}

static void visit(Walk *w, int64_t number) {
    FitPoint p = point_of(w->s, number);
    bool open = is_open(w, number, &p);
    const FitTrial *t = open ? trial_of(w, &p) : NULL;
    if (open && !t) return;
    FitCost c = t ? t->c : (FitCost){0};
    if (c.seconds > w->at_least[number]) w->at_least[number] = c.seconds;
    if (t) w->enough[number] = t->fits;
    bool settled = !t || t->fits || is_too_slow(w, c.seconds);
    if (settled && is_fine(w, number, &p)) refine(w, p);
    if (settled) return;
    if (is_within(w->limits.device_bytes, c.device_bytes)) fit_host(w, t);
    else climb(w, p, c);
}

/* ---- the whole ---- */

/* Of two that take the same time, the one that takes less of the host. */
static bool is_better(const FitCost *a, const FitCost *b) {
    double apart = a->seconds - b->seconds;
    if (apart < -FIT_SAME_TIME * b->seconds) return true;
    return apart <= FIT_SAME_TIME * b->seconds && a->host_bytes < b->host_bytes;
}

static int64_t best_of(const Fit *f) {
    int64_t best = -1;
    for (int64_t i = 0; i < f->n; i++)
        if (f->trial[i].fits && (best < 0 || is_better(&f->trial[i].c, &f->trial[best].c))) best = i;
    return best;
}

bool fit_search(Fit *f, const FitSpace *s, FitLimits limits) {
    int64_t n = combinations(s);
    *f = (Fit){.best = -1};
    Walk w = {.s = s, .limits = limits, .f = f, .at_least = MEM_NEW(double, n), .enough = MEM_NEW(bool, n)};
    for (int64_t i = 0; i < n; i++) visit(&w, i);
    mem_free(w.at_least);
    mem_free(w.enough);
    f->best = best_of(f);
    return f->best >= 0;
}

void fit_free(Fit *f) {
    mem_free(f->trial);
    *f = (Fit){.best = -1};
}
