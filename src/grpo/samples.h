/* samples.h - what a run produced, for people: rewards of every completion, and every N steps a table of samples.
 *
 * In the run's folder:
 *   rewards.jsonl   a line for every completion: {"step", "item", "sample", "reward", "advantage", "tokens",
 *                   "truncated", "rewards": {name: x or null}, "why"}; "why" only where a missing reward has a reason
 *   samples.jsonl   the rows of the tables, the same with "question", "completion", "answer" and "gold"
 *   samples.html    the latest tables as a page that needs no network
 * and the table as lines of the log. A resumed run cuts both files back to its step and goes on; the page is written
 * whole each time. Lines of a step appear together or not at all. */
#ifndef GRPO_SAMPLES_H
#define GRPO_SAMPLES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/file.h"
#include "base/str.h"
#include "grpo/reward.h"
#include "obs/steplog.h"

enum { SAMPLES_PAGE = 40 }; /* tables on the page */

typedef struct SampleRow { /* borrows */
    int64_t item, sample;  /* which item, and which of its completions */
    const char *question, *gold;
    const char *completion; /* what the policy wrote */
    const char *answer;     /* the evaluator's; NULL: there is none */
    const double *rewards;  /* of each function; NAN: missing */
    const char *why;        /* of a missing one; NULL or "": nothing to say */
    double reward, advantage;
    int64_t tokens;
    bool truncated;
} SampleRow;

typedef struct SamplesSpec {
    const char *folder;
    const char *title;        /* of the page */
    const char *const *names; /* of the reward functions; keeps */
    int functions;
    int64_t every;        /* steps between tables; 0: none */
    int64_t updates;      /* that train on a rollout's completions, the first of them at its step; 0: one */
    int shown;            /* rows of a table; 0: 8 */
    int64_t resumed_step; /* 0: a new run */
} SamplesSpec;

typedef struct SampleTable {
    int64_t step;
    Str html; /* its section of the page */
} SampleTable;

typedef struct Samples {
    SamplesSpec spec;
    StepLog rewards, samples;
    FilePath page;
    char title[200];
    SampleTable table[SAMPLES_PAGE]; /* [n % SAMPLES_PAGE] is next */
    int64_t n;
    Str lines; /* scratch */
} Samples;

bool samples_open(Samples *s, const SamplesSpec *spec, Err *e); /* gives: samples_close */
void samples_close(Samples *s);                                 /* a second call is fine */

/* The completions of a rollout, in groups; its step is that of its first update, from 1 on. */
bool samples_write(Samples *s, int64_t step, const SampleRow *rows, int64_t n, Err *e);

#endif
