/* work.h - progress of long work: what it is, how far it is, and that a signal can interrupt it.
 *
 *     Work w;
 *     work_begin(&w, WORK_BYTES, file_bytes, "reading %s", path);
 *     for (...) if (!work_on(&w, done_bytes, e)) break;         // false: the process was asked to leave
 *     work_end(&w);
 *
 * On a terminal a bar is drawn in place and wiped at the end. Elsewhere a plain line is written every ten seconds,
 * so that a log shows life; work that is done sooner says nothing. Both say how much time is left where the total
 * is known. Allocates nothing. */
#ifndef BASE_WORK_H
#define BASE_WORK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"
#include "base/err.h"

typedef enum WorkUnit { WORK_BYTES, WORK_COUNT } WorkUnit;

typedef struct Work {
    char what[120]; /* "reading train.jsonl" */
    WorkUnit unit;
    int64_t total, done; /* total 0: not known */
    bool bar;            /* drawn in place: standard error is a terminal */
    double began, shown; /* seconds of the monotonic clock */
} Work;

void work_begin(Work *w, WorkUnit unit, int64_t total, const char *what, ...) PRINTF_LIKE(4, 5);
bool work_on(Work *w, int64_t done, Err *e);
void work_end(Work *w);

/* At the pace so far; -1: not known, or too early to say. */
double work_left_seconds(const Work *w);

/* "[=====>    ]  45%  " of that many cells; gives its length, at most room - 1. */
int work_bar(char *to, int64_t room, int cells, double share);

#endif
