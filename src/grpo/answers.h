/* answers.h - the middle of a rollout: the policy is asked, an evaluator answers what it wrote, rewards are given. Only run.c
 * uses it. */
#ifndef GRPO_ANSWERS_H
#define GRPO_ANSWERS_H

#include "base/rng.h"
#include "grpo/run.h"

typedef struct Ask {
    const Items *items;
    const int64_t *item; /* [prompts]: which item each prompt is */
    int64_t prompts;
    int samples;
    bool greedy;  /* the likeliest token each time: an evaluation */
    uint64_t key; /* of the random numbers */
} Ask;

bool answers_open_helpers(GrpoRun *g, Err *e); /* processes and servers: refused before anything is loaded */
bool answers_open_voices(GrpoRun *g, Err *e);  /* engines, once the ring is open and the weights are there */
void answers_close(GrpoRun *g);

/* prompts x samples completions into `to`. False without a code in e: the process was asked to leave. */
bool answers_ask(GrpoRun *g, Rollout *to, const Ask *ask, Err *e);
bool answers_judge(GrpoRun *g, Rollout *to, Err *e); /* by the evaluator; without one nothing happens */
bool answers_score(GrpoRun *g, Rollout *to, const Items *items, Err *e); /* fills g->given and Completion.given */

#endif
