/* journal.h - every reply of a job on disk as soon as it is there, so that a job killed at any moment goes on
 * where it was.
 *
 * JSON lines. The first says which job it is, by name and value; the others are replies:
 *     {"reason": 1, "job": {"model": "9c1f...", "seed": "42", ...}}
 *     {"place": 12, "role": "judge", "round": 0, "tokens": 91, "cut": false, "time": 1722859200.123, "text":
 * "..."} Half a last line, left by a kill, is cut off. */
#ifndef REASON_JOURNAL_H
#define REASON_JOURNAL_H

#include <jansson.h>

#include "base/err.h"
#include "reason/pipeline.h"
#include "store/lock.h"

typedef struct Journal {
    int fd;       /* -1: closed, or not made yet */
    int64_t kept; /* bytes that count when it begins to be written */
    RunLock lock;
    char path[1100];
    Str line; /* scratch */
} Journal;

/* Reads the file where it is there: its replies go to the pipeline. Changes nothing. job: an object of texts.
 * Another job's journal is refused by naming what differs, one in use by another process as well. anew: what it
 * holds does not count. */
bool journal_open(Journal *j, const char *path, const json_t *job, bool anew, Pipeline *p, Err *e);
/* From here on it is written: the file and its folder are made, what does not count is cut off. Before the first
 * reply. */
bool journal_begin(Journal *j, const json_t *job, Err *e);
/* The reply to what that problem awaits; flushed. Call before pipeline_take. */
bool journal_add(Journal *j, const Pipeline *p, int64_t problem, const Reply *r, Err *e);
void journal_close(Journal *j);          /* a second call is fine */
bool journal_remove(Journal *j, Err *e); /* the job is done; closes */

/* A model's reply as text that can be kept: UTF-8 without a 0 inside. Replaces out. */
void journal_clean(Str *out, const char *text, int64_t bytes);

/* Whether two jobs are the same; otherwise says what differs, "path: belongs to another job: seed is 42 there, 43
 * here". */
bool journal_same_job(const char *path, const json_t *there, const json_t *here, Err *e);

#endif
