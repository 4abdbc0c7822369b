/* process.h - rewards by an external command: one JSON line in, one JSON line out, a fixed number of processes.
 *
 *     {"id": 7, "prompt": [..] or "..", "question": "..", "gold": "..", "completion": "..", "answer": "..",
 *      "columns": {..}}
 *     {"id": 7, "reward": 0.5}      or 0.5, or null where it cannot say
 *
 * `completion` is what the policy wrote, `answer` what is scored, `columns` the data's row. "id" may be left out of a
 * reply; one that is there must be right, which is the safe way. A process gets its next line after its reply, so it
 * need not buffer; it should leave when its input ends.
 *
 * A process that does not reply in time, ends, or writes anything else costs that sample (its reward is missing),
 * is counted, named once in the log, ended with all it started, and started again when it is next needed. The run
 * goes on; a command that has failed SCORER_TRIES samples and never scored one is warned about, as it may be the wrong
 * one. One whose processes left SCORER_TRIES times in a row before it ever replied is not started again: it is named
 * once, and further samples are SCORE_DIED without a process. Whatever a process writes beside its reply ends it too,
 * as nobody can tell what the next line would answer.
 *
 * One thread owns a scorer. Nothing here waits but scorer_finish. Memory is bounded: what was submitted, and
 * reply_bytes for each process. */
#ifndef GRPO_PROCESS_H
#define GRPO_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "grpo/reward.h"

enum { SCORER_MOST = 64 /* processes */, SCORER_TRIES = 8 };

typedef struct ScorerSpec {
    const char *const *argv; /* ends with NULL; keeps until closed */
    bool shell;              /* argv[0] is a line for /bin/sh -c */
    int processes;
    double seconds;       /* from a line sent to its reply; 0: 30 */
    /* At most so many more for the first reply of a process, which also starts up; 0: 60. Less once it is known how
     * long starting takes, and none where a first process had all of it and did not reply. */
    double start_seconds;
    int64_t reply_bytes;  /* the longest reply; 0: 64 KiB */
    int err_fd;           /* where standard error of the processes goes; -1: where ours goes */
} ScorerSpec;

typedef enum ScoreEnd {
    SCORE_GIVEN,
    SCORE_NONE /* null */,
    SCORE_LATE,
    SCORE_DIED,
    SCORE_RUBBISH,
    SCORE_ENDS
} ScoreEnd;

typedef struct Score {
    int64_t id;
    double reward; /* NAN unless it was given */
    ScoreEnd end;
    char why[200]; /* "": given, or null */
} Score;
typedef void ScoreFn(void *user, const Score *s);

typedef struct ScorerFacts {
    int64_t ended[SCORE_ENDS]; /* samples by how they ended */
    int64_t restarts;
} ScorerFacts;

typedef struct Scorer Scorer;

/* Starts the processes: a command that cannot be started is refused at once. fn is called for each sample, from
 * inside scorer_finish. Gives: scorer_close. */
bool scorer_open(Scorer **s, const ScorerSpec *spec, ScoreFn *fn, void *user, Err *e);
void scorer_close(Scorer *s); /* a second for the processes to leave by themselves; NULL is fine */

/* name: what messages call the sample, "item 17, sample 3". Copies both. */
void scorer_submit(Scorer *s, int64_t id, const char *name, const char *line);
int64_t scorer_pending(const Scorer *s);

/* Until nothing is pending. keep_going (may be NULL) is asked five times a second; once it says no, what is pending is
 * dropped, its processes are ended, and the call is refused. */
bool scorer_finish(Scorer *s, bool (*keep_going)(void *user), void *user, Err *e);

ScorerFacts scorer_facts(const Scorer *s);

/* Adds the line of a sample, newline included; text that is not UTF-8 is repaired. */
void scorer_line(Str *out, int64_t id, const RewardInput *in);

#endif
