/* run.h - GRPO as a source of updates (train/run.h): a rollout is generated, judged and compared with the reference,
 * then its completions train some updates.
 *
 * The phases follow one another on one ring: policy answers, evaluator answers them, rewards, reference, training. The
 * policy answers with the very weights that are trained, and every update reports how far the sampler's
 * log-probabilities were from the trainer's. Random numbers are keyed by (seed, prompt, sample), so a resumed run draws
 * what it would have drawn. */
#ifndef GRPO_RUN_H
#define GRPO_RUN_H

#include "grpo/advantage.h"
#include "grpo/answers.h"
#include "grpo/batches.h"
#include "grpo/ring.h"
#include "grpo/samples.h"
#include "grpo/score.h"
#include "train/run.h"

typedef struct GrpoOptions { /* keeps what it points to */
    Batches batches;
    const Items *items, *held_out; /* held_out: NULL, or evaluated before and after */
    bool shuffle;
    uint64_t seed;
    LossKind loss;
    RewardScale scale;
    bool mask_truncated;
    RewardSet rewards;
    GrpoGenerator policy, evaluator;
    const RemoteSpec *remote; /* an evaluator elsewhere; NULL: on the ring, or none */
    const char *folder;       /* for samples and rewards; NULL: nothing is written */
    int64_t sample_steps;     /* steps between tables of samples; 0: none */
    bool (*load_sides)(void *user, Err *e); /* weights of the evaluator and the reference, into the open ring */
    void *load_user;
} GrpoOptions;

typedef enum GrpoPart { GRPO_ANSWERS, GRPO_JUDGING, GRPO_REWARDS, GRPO_LOGPS, GRPO_TRAINING, GRPO_PARTS } GrpoPart;
extern const char *const grpo_part_names[GRPO_PARTS]; /* rollout, evaluator, rewards, reference, training */
GrpoPart grpo_part_of(const Job *j, int phase);       /* that plays this phase of the ring */

typedef struct GrpoFacts { /* of the latest rollout and update */
    AdvantageFacts advantage;
    double function_mean[REWARDS_MOST], function_std[REWARDS_MOST];
    double tokens_mean, tokens_least, tokens_most; /* of completions */
    double ended_mean, ended_least, ended_most;    /* of those that ended by their end of text; NAN: none did */
    double clipped_share;                          /* ended by their length */
    int64_t unscored;
    int64_t verifications;       /* forward passes of --exact-policy over a micro-batch */
    int64_t redrawn;             /* answers that --exact-policy has cut and answered on, each time counted */
    double policy[POLICY_FACTS]; /* of the update */
    double entropy;              /* of the update: nats, summed over the tokens of answers */
    int64_t tokens_seen;         /* by all updates, prompts included */
} GrpoFacts;

typedef struct GrpoRun {
    GrpoOptions o;
    Job *job;
    bool ready, measured; /* voices can answer; the held-out items were answered before the first update */
    Engine policy, evaluator;
    Arena arena;
    Rollout rollout, held_out;
    RolloutRows rows;
    RolloutBatch batch;
    float *logp;            /* (micro-batch, seq) as read from the device */
    double *given, *reward, *advantage, *weight; /* by completion */
    double *slice;                               /* (batch): weights of a micro-batch */
    int64_t *tokens, *member, *order, *prompt_item, *scratch;
    int64_t *which, *kept; /* exact.c: completions that differ from the trainer's, and how much of them stands */
    DrawHow *how;          /* (micro-batch, seq); exact.c's, as the next; NULL: not --exact-policy */
    int32_t *drawn;        /* (micro-batch, seq) */
    bool *truncated;
    Samples samples;
    bool samples_open;
    Scoring scoring;
    RemoteJudge remote;
    double seconds[GRPO_PARTS], part_began;
    int64_t updates; /* that these seconds are of */
    GrpoFacts facts;
    double reward_first, reward_last, apart_most; /* apart: |sampled - trained| log-probability, over all updates */
    ScoreMean before, after;                      /* mean reward of the held-out items */
    int64_t text_requests; /* of the heap, after the first update: prompts, answers, rewards and tables, all freed
                              again */
} GrpoRun;

/* The job's ring is planned and open only later: nothing is answered before the first update. Gives: grpo_run_close. */
bool grpo_run_open(GrpoRun *g, Job *job, const GrpoOptions *o, Err *e);
void grpo_run_close(GrpoRun *g); /* zeros are fine */
RunSource grpo_source(GrpoRun *g);
/* The completions of an update into g->member, with the weight of their tokens into g->weight; gives how many. */
int64_t grpo_gather(GrpoRun *g, int64_t update);

/* The rows of g->batch, as every pass over them reads them. */
void grpo_put_rows(GrpoRun *g, Run *r);

/* Of its arrays and texts, at most; items, held_out: how many there are. */
int64_t grpo_host_bytes(const JobSpec *s, const Batches *b, int64_t items, int64_t held_out);

#endif
