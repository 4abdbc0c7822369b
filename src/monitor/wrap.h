/* wrap.h - runs a command as it would run without the monitor, and measures the peak memory of it and all its child
 * processes. */
#ifndef MONITOR_WRAP_H
#define MONITOR_WRAP_H

#include <jansson.h>

#include "monitor/view.h"

enum { CURVE_POINTS = 512 };

typedef struct CurvePoint {
    double seconds;
    int64_t host_bytes, gpu_bytes;
} CurvePoint;

typedef struct Curve { /* the most in each stretch of time; stretches grow with the run */
    CurvePoint point[CURVE_POINTS];
    int n, each; /* samples behind a point */
    int last;    /* samples behind the newest point */
} Curve;

void curve_add(Curve *c, CurvePoint p);

typedef struct Wrapped {
    int code; /* its exit code, or 128 + the signal that ended it */
    double seconds;
    int64_t host_peak_bytes; /* resident, of all processes together; of the largest alone where that was never seen
                                more; 0: no look met one, and the kernel keeps no figure */
    int64_t gpu_peak_bytes;  /* -1: there is no GPU */
    Curve curve;
} Wrapped;

typedef void WrapSample(void *user, const Snapshot *s, double elapsed);

/* Takes a sample every `interval` seconds, more often at the beginning; each calls fn (NULL: none). A signal
 * that asks us to stop is passed on, and the command is waited for. False: it could not be started. */
bool wrap_run(Wrapped *w, Monitor *m, const char *const *argv, double interval, WrapSample *fn, void *user,
              Err *e);

void wrap_text(Str *out, const Wrapped *w, bool utf8); /* two lines and a curve each */
json_t *wrap_json(const Wrapped *w);                   /* gives */

#endif
