/* advantage.h - from rewards to the weight of every token: the arithmetic of GRPO that needs no tensor.
 *
 * A generation batch holds n completions in groups of G: completion i answers prompt i / G. Sums are in double.
 *
 *   reward      r_i = sum of w_k r_ik over the functions k that gave a number. A completion that none of them scored
 *               gets 0 and is counted.
 *   advantage   A_i = (r_i - m) / (s + 1e-4), where m is the mean of the group and s the standard deviation,
 *               divided by count - 1: of the group (SCALE_GROUP) or of all n (SCALE_BATCH). SCALE_NONE: r_i - m.
 *
 * A token's loss is L_it = -min(q A_i, clip(q, 1 - eps_low, 1 + eps_high) A_i) + beta KL_it with q = exp(logp -
 * logp_old) and KL_it = exp(ref - logp) - (ref - logp) - 1. T_i counts the tokens of completion i up to and
 * including its end of text; t_i is T_i, or 0 for a completion that was cut off at its length while truncated ones
 * are masked. A micro-batch has B completions, an update `accum` micro-batches. The loss of an update is the sum
 * over its micro-batches of
 *
 *     sum over completions i of weight_i x (sum over t of L_it) / divisor
 *
 *   aggregation   weight_i (0 where masked)            divisor
 *   dapo          1                                    sum of T_i over the generation batch, masked ones included
 *   grpo          1 / max(1, t_i)                      B x accum
 *   bnpo          1 / max(1, sum of t of micro-batch)  accum
 *   dr_grpo       1                                    B x accum x max_completion
 *
 * These are the rules of TRL 0.25 (GRPOTrainer); tests/grpo/test_advantage.c compares with numbers from its own
 * code. */
#ifndef GRPO_ADVANTAGE_H
#define GRPO_ADVANTAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef enum RewardScale { SCALE_GROUP, SCALE_BATCH, SCALE_NONE } RewardScale;
typedef enum LossKind { LOSS_DAPO, LOSS_GRPO, LOSS_BNPO, LOSS_DR_GRPO } LossKind;

/* By name: group, batch, none (also true and false, as TRL takes them); dapo, grpo, bnpo, dr_grpo. */
bool reward_scale_find(RewardScale *scale, const char *name, Err *e);
bool loss_kind_find(LossKind *kind, const char *name, Err *e);

/* given: [n][functions], NAN where a function could not say; an infinite reward counts as missing. weight:
 * [functions], NULL: 1 each. Fills reward[n]. Gives how many completions no function scored; *first (may be NULL)
 * is the first of them, -1: none. */
int64_t advantage_rewards(double *reward, const double *given, const double *weight, int64_t n, int functions,
                          int64_t *first);

/* Mean and standard deviation of what function k gave; NAN where there is too little for it. */
void advantage_function(double *mean, double *std, const double *given, int64_t n, int functions, int k);

typedef struct AdvantageFacts {
    double reward_mean;
    double reward_std;     /* mean over the groups; SCALE_BATCH: of all */
    double zero_std_share; /* of the groups: at most 1e-8 apart, so their advantages are 0; SCALE_BATCH: 0 or 1 */
} AdvantageFacts;

/* n is a multiple of group. */
AdvantageFacts advantage_make(double *advantage, const double *reward, int64_t n, int64_t group,
                              RewardScale scale);

typedef struct LossBatch { /* one micro-batch */
    LossKind kind;
    bool mask_truncated;
    const int64_t *tokens;     /* T_i of the generation batch's completions */
    const bool *truncated;     /* of the same; NULL: none */
    int64_t generation_tokens; /* sum of T_i over the generation batch */
    const int64_t *member;     /* [n]: which completions these are */
    int64_t n;                 /* B */
    int64_t accum;
    int64_t max_completion;
} LossBatch;

/* Fills weight[n]; gives the divisor. */
double advantage_weights(double *weight, const LossBatch *b);

#endif
