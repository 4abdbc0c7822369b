/* wrap.c - when a running command is sampled, and how a curve of any length stays short. */
#include "monitor/wrap.h"

#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/child.h"
#include "base/mem.h"
#include "base/process.h"
#include "base/stop.h"
#include "base/units.h"
#include "obs/sensors.h"

enum { TREE = 4096, SPARK_COLUMNS = 60 };
static const double first_gap = 0.02, gap_growth = 1.5, look_seconds = 0.01;

/* ---- the curve ---- */

static void lift(CurvePoint *to, CurvePoint p) {
    to->host_bytes = MAX2(to->host_bytes, p.host_bytes);
    to->gpu_bytes = MAX2(to->gpu_bytes, p.gpu_bytes);
}

void curve_add(Curve *c, CurvePoint p) {
    if (!c->each) c->each = 1;
    if (c->n && c->last < c->each) {
        lift(&c->point[c->n - 1], p);
        c->last++;
        return;
    }
    if (c->n == CURVE_POINTS) { /* two become one */
        for (int i = 0; i < CURVE_POINTS / 2; i++) {
            c->point[i] = c->point[2 * i];
            lift(&c->point[i], c->point[2 * i + 1]);
        }
        c->n = CURVE_POINTS / 2;
        c->each *= 2;
    }
    c->point[c->n++] = p;
    c->last = 1;
}

/* ---- sampling ---- */

typedef struct Watch {
    Monitor *m;
    Wrapped *w;
    Snapshot *snapshot; /* owns */
    ProcessFacts *tree; /* owns */
    int *pids;          /* owns */
    int64_t largest;    /* the most one process ever had */
    double began;
} Watch;

static void take_sample(Watch *t, WrapSample *fn, void *user) {
    int64_t host = 0;
    int n = process_tree(t->tree, TREE, (int)getpid());
    for (int i = 0; i < n; i++) {
        t->pids[i] = t->tree[i].pid;
        host += t->tree[i].resident_bytes;
        t->largest = MAX2(t->largest, process_peak_bytes(t->tree[i].pid));
    }
    monitor_take(t->m, t->snapshot, fn ? MONITOR_ALL : NVML_READ_PROCESSES);
    int64_t gpu = t->snapshot->n_gpus ? monitor_gpu_bytes_of(t->snapshot, t->pids, n) : -1;
    double elapsed = sensors_seconds() - t->began;
    t->w->host_peak_bytes = MAX2(t->w->host_peak_bytes, host);
    t->w->gpu_peak_bytes = MAX2(t->w->gpu_peak_bytes, gpu);
    curve_add(&t->w->curve, (CurvePoint){elapsed, host, gpu});
    if (fn) fn(user, t->snapshot, elapsed);
}

static void sleep_for(double seconds) {
    nanosleep(&(struct timespec){.tv_nsec = (long)(1e9 * seconds)}, NULL);
}

/* What the terminal sends reaches the command as well: passed on again it would count twice. */
static void pass_signal_on(int pid, bool *passed) {
    if (!stop_asked() || *passed) return;
    *passed = true;
    if (stop_signal == SIGTERM || !isatty(STDIN_FILENO)) child_send(pid, (int)stop_signal);
}

static ChildEnd watch(Watch *t, int pid, double interval, WrapSample *fn, void *user) {
    ChildEnd end = {0};
    bool passed = false;
    double gap = MIN2(first_gap, interval), next = sensors_seconds();
    while (!child_ended(pid, &end)) {
        pass_signal_on(pid, &passed);
        if (sensors_seconds() >= next) {
            take_sample(t, fn, user);
            next = sensors_seconds() + gap;
            gap = MIN2(interval, gap * gap_growth);
        }
        sleep_for(look_seconds);
    }
    return end;
}

bool wrap_run(Wrapped *w, Monitor *m, const char *const *argv, double interval, WrapSample *fn, void *user,
              Err *e) {
    int pid;
    *w = (Wrapped){.gpu_peak_bytes = -1};
    Watch t = {.m = m, .w = w, .began = sensors_seconds()};
    if (!child_run(&pid, argv, e)) return false;
    t.snapshot = MEM_NEW(Snapshot, 1);
    t.tree = MEM_NEW(ProcessFacts, TREE);
    t.pids = MEM_NEW(int, TREE);
    ChildEnd end = watch(&t, pid, interval, fn, user);
    w->seconds = sensors_seconds() - t.began;
    w->code = end.code;
    w->host_peak_bytes = MAX2(MAX2(w->host_peak_bytes, t.largest), end.peak_bytes);
    mem_free(t.snapshot);
    mem_free(t.tree);
    mem_free(t.pids);
    return true;
}

/* ---- the report ---- */

static void add_curve(Str *out, const Curve *c, int64_t peak, bool gpu, bool utf8) {
    History h = {0};
    int columns = MIN2(SPARK_COLUMNS, c->n);
    for (int i = 0; i < columns; i++) {
        int64_t most = 0;
        for (int k = i * c->n / columns; k < (i + 1) * c->n / columns; k++)
            most = MAX2(most, gpu ? c->point[k].gpu_bytes : c->point[k].host_bytes);
        history_add(&h, peak > 0 ? (double)most / (double)peak : 0);
    }
    view_spark(out, &h, SPARK_COLUMNS, utf8);
}

void wrap_text(Str *out, const Wrapped *w, bool utf8) {
    str_addf(out, "%s, exit code %d\n", units_seconds(w->seconds).s, w->code);
    str_addf(out, "host memory  peak %11s  ", w->host_peak_bytes > 0 ? units_bytes(w->host_peak_bytes).s : "not seen");
    add_curve(out, &w->curve, w->host_peak_bytes, false, utf8);
    str_add_char(out, '\n');
    if (w->gpu_peak_bytes < 0) return;
    str_addf(out, "GPU memory   peak %11s  ", units_bytes(w->gpu_peak_bytes).s);
    add_curve(out, &w->curve, w->gpu_peak_bytes, true, utf8);
    str_add_char(out, '\n');
}

json_t *wrap_json(const Wrapped *w) {
    json_t *o = json_object(), *curve = json_array();
    json_object_set_new(o, "exit_code", json_integer(w->code));
    json_object_set_new(o, "seconds", json_real(w->seconds));
    json_object_set_new(o, "host_peak_bytes", w->host_peak_bytes > 0 ? json_integer(w->host_peak_bytes) : json_null());
    json_object_set_new(o, "gpu_peak_bytes",
                        w->gpu_peak_bytes < 0 ? json_null() : json_integer(w->gpu_peak_bytes));
    for (int i = 0; i < w->curve.n; i++) {
        const CurvePoint *p = &w->curve.point[i];
        json_t *row = json_object();
        json_object_set_new(row, "seconds", json_real(p->seconds));
        json_object_set_new(row, "host_bytes", json_integer(p->host_bytes));
        if (p->gpu_bytes >= 0) json_object_set_new(row, "gpu_bytes", json_integer(p->gpu_bytes));
        json_array_append_new(curve, row);
    }
    json_object_set_new(o, "curve", curve);
    return o;
}
