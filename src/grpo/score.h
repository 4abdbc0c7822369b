/* score.h - the rewards of completions: several functions of the table, one of them by a command, with weights. */
#ifndef GRPO_SCORE_H
#define GRPO_SCORE_H

#include "grpo/process.h"
#include "grpo/rollout.h"

typedef struct RewardSet { /* keeps what it points to */
    const char *name[REWARDS_MOST];
    const Reward *reward[REWARDS_MOST]; /* NULL: the command's */
    double weight[REWARDS_MOST];
    int n;
    const ScorerSpec *command; /* NULL: none */
} RewardSet;

typedef struct Scoring { /* stays where it is while it is open */
    const RewardSet *set;
    Scorer *scorer; /* NULL: no command */
    Rollout *asked; /* whose completions are pending */
} Scoring;

bool scoring_open(Scoring *s, const RewardSet *set, Err *e); /* a command that cannot be started is refused */
void scoring_close(Scoring *s);                              /* zeros are fine */

/* Fills Completion.given, and given[completions][functions] where it is not NULL. judged: an evaluator's answers
 * are scored, not what the policy wrote. False without a code in e: the process was asked to leave. */
bool scoring_run(Scoring *s, double *given, Rollout *to, const Items *items, bool judged, Err *e);

typedef struct ScoreMean { /* a mean and its standard error; NAN: there is too little for it */
    double mean, error;
    int64_t n;
} ScoreMean;
ScoreMean score_mean(const double *x, int64_t n);

#endif
