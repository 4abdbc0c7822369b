/* metrics.h - the run's numbers: one writer, many readers.
 *
 * Every record becomes one line of metrics.jsonl, flushed whole,
 *     {"kind": "train", "step": 10, "time": 1722859200.123, "loss": 2.5, "tokens": 8192}
 * and points of a TensorBoard event file (train/loss, train/tokens).
 * Writing allocates nothing, so that it may happen inside a sealed run. */
#ifndef OBS_METRICS_H
#define OBS_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "obs/tensorboard.h"

typedef struct Metric {
    const char *name; /* borrows */
    bool whole;       /* which of the two below */
    double real;      /* NaN and infinities are null in JSON */
    int64_t integer;
} Metric;

#define METRIC_REAL(n, v) ((Metric){.name = (n), .real = (v)})
#define METRIC_INT(n, v) ((Metric){.name = (n), .whole = true, .integer = (v)})

typedef struct Metrics {
    int fd; /* -1: closed; owns */
    char path[1024];
    int64_t bytes; /* whole lines in the file */
    Tensorboard events;
} Metrics;

/* Opens folder/metrics.jsonl and an event file. A run resumed at a step keeps the lines up to that step and drops
 * what an interrupted run wrote beyond it; 0 begins anew, without the event files of an earlier run. */
bool metrics_open(Metrics *m, const char *folder, int64_t resumed_step, Err *e);
void metrics_close(Metrics *m);

/* kind: "train", "eval", ... A record that cannot be written is in neither file: the same call may be made again. */
bool metrics_write(Metrics *m, const char *kind, int64_t step, const Metric *fields, int n, Err *e);

#endif
