/* journal.h - the journal of a reasoning job: every reply in the job's log (store/joblog.h), flushed before it counts.
 *
 *     {"reason": 1, "job": {"model": "9c1f...", "seed": "42", ...}}
 *     {"place": 12, "role": "judge", "round": 0, "tokens": 91, "cut": false, "time": 1722859200.123, "text": "..."} */
#ifndef REASON_JOURNAL_H
#define REASON_JOURNAL_H

#include "reason/pipeline.h"
#include "store/joblog.h"

typedef JobLog Journal; /* joblog_begin, joblog_close, joblog_remove */

/* Reads the file where it is there: its replies go to the pipeline. Changes nothing. */
bool journal_open(Journal *j, const char *path, const json_t *job, bool anew, Pipeline *p, Err *e);
/* The reply to what that problem awaits; flushed. Call before pipeline_take. */
bool journal_add(Journal *j, const Pipeline *p, int64_t problem, const Reply *r, Err *e);

/* A model's reply as text that can be kept: UTF-8 without a 0 inside. Replaces out. */
void journal_clean(Str *out, const char *text, int64_t bytes);

#endif
