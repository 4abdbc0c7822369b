/* steplog.h - JSON lines that belong to steps: appended whole, and cut back to a step when a run resumes.
 *
 * Every line begins with {"step": N, and steps never fall within a file. A process that is killed leaves whole
 * lines but for the last, which the next run cuts off. */
#ifndef OBS_STEPLOG_H
#define OBS_STEPLOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

typedef struct StepLog {
    int fd; /* -1: closed; owns */
    char path[1024];
    int64_t bytes; /* whole lines in the file */
} StepLog;

/* Keeps the lines up to that step and drops what an interrupted run wrote beyond it; 0 begins anew. */
bool steplog_open(StepLog *l, const char *path, int64_t resumed_step, Err *e);
void steplog_close(StepLog *l); /* a second call is fine */

/* One or more whole lines: all of them are in the file, or none. */
bool steplog_write(StepLog *l, const Str *lines, Err *e);

/* Adds whole lines from the end of the file, at most so many bytes of them. */
bool steplog_tail(const StepLog *l, Str *out, int64_t most_bytes, Err *e);

#endif
