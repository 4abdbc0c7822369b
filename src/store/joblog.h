/* joblog.h - an append-only journal of a job's results, written as soon as each is there, so that a job killed at any
 * moment can resume.
 *
 * JSON lines. The first says which job it is, by name and value; the others are results, in the order they came:
 *     {"generate": 1, "job": {"model": "9c1f...", "seed": "42", ...}}
 *     {"index": 12, ...}
 * Half a last line, left by a kill, is cut off. A line is written by one call and outlives the process from then on;
 * flushed, it outlives the machine. */
#ifndef STORE_JOBLOG_H
#define STORE_JOBLOG_H

#include <jansson.h>

#include "base/err.h"
#include "base/str.h"
#include "store/lock.h"

typedef struct JobLog {
    int fd; /* -1: closed, or not made yet */
    RunLock lock;
    char path[1100];
    const char *kind; /* "generate": the command it belongs to */
    int64_t bytes;    /* that count, so far */
    Str line;         /* scratch */
} JobLog;

/* A result that is already there; at: where its line begins, of so many bytes with its end. */
typedef bool JobLogTake(void *user, const json_t *line, int64_t at, int64_t bytes, Err *e);

/* Reads the file where it is there, a line at a time. Changes nothing. job: an object of texts. Another job's log is
 * refused by naming what differs, one in use by another process as well. anew: what it holds does not count. */
bool joblog_open(JobLog *l, const char *path, const char *kind, const json_t *job, bool anew, JobLogTake *take,
                 void *user, Err *e);
/* From here on it is written: the file and its folder are made, what does not count is cut off. Before the first
 * result. */
bool joblog_begin(JobLog *l, const json_t *job, Err *e);
bool joblog_add(JobLog *l, const char *line, Err *e); /* a JSON object without a line end; NULL is refused */
bool joblog_flush(JobLog *l, Err *e);             /* to disk */
bool joblog_read(const JobLog *l, Str *out, int64_t at, int64_t bytes, Err *e); /* appends */
void joblog_close(JobLog *l);                     /* a second call is fine */
bool joblog_remove(JobLog *l, Err *e);            /* the job is done; closes */

/* Whether two jobs are the same; otherwise says what differs, "path: belongs to another job: seed is 42 there, 43
 * here". */
bool joblog_same_job(const char *path, const json_t *there, const json_t *here, Err *e);

#endif
