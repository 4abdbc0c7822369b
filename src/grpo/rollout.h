/* rollout.h - a rollout: the answers of a policy with their prompts, tokens, log-probabilities and rewards.
 *
 * A rollout holds the completions that are answered with the same weights (batches.h). Its memory is taken once, at its
 * largest: nothing grows from step to step but the texts, which are kept in buffers that are used again. */
#ifndef GRPO_ROLLOUT_H
#define GRPO_ROLLOUT_H

#include <jansson.h>

#include "base/mem.h"
#include "base/str.h"
#include "data/batch.h"
#include "grpo/reward.h"

typedef struct Completion {
    int64_t item;     /* which item is answered */
    int sample;       /* which of its answers this is */
    int64_t n_prompt, n; /* tokens of the prompt; of prompt and answer */
    int32_t *ids;     /* (context) */
    float *sampled;   /* (answer): log-probability of each token as it was drawn */
    float *ref, *old; /* (answer): of the reference, and of the policy before the first update */
    bool truncated;   /* ended by its length */
    bool failed;      /* nothing came of it: it has no tokens */
    Str text;         /* what the policy wrote */
    Str answer;       /* the evaluator's answer to it; without an evaluator: empty */
    Str why;          /* of a missing reward */
    double given[REWARDS_MOST]; /* NAN: missing */
    double reward, advantage;
} Completion;

typedef struct Rollout {
    Arena arena;
    int64_t n;               /* completions */
    int64_t context, answer; /* tokens of a completion at most, and of its answer */
    Completion *c;
    int64_t number; /* of the rollout, from 0; -1: none was made yet */
    bool said_cut;  /* that prompts are too long */
} Rollout;

void rollout_init(Rollout *r, int64_t completions, int64_t context, int64_t answer);
void rollout_free(Rollout *r);
int64_t rollout_bytes(int64_t completions, int64_t context, int64_t answer); /* of its arena; texts come on top */
static inline int64_t completion_tokens(const Completion *c) { return c->n - c->n_prompt; } /* of the answer */

/* As JSON, exact, for a checkpoint in the middle of a rollout; texts are left out. */
json_t *rollout_json(const Rollout *r); /* gives */
bool rollout_from_json(Rollout *r, const json_t *from, Err *e);

/* ---- rows: several completions side by side ---- */

/* Each is a document of its own, or, where prompts are shared, one prompt stands in front of its answers
 * (layout.h). The token at place from + k of its row predicts the answer's token k. */
typedef struct RolloutRows {
    bool shares;
    int64_t *member; /* [n]: completions in the order they lie in */
    int64_t *prompt; /* [n]: the place in its row where its prompt begins; the one before may have the same */
    int64_t *from;   /* [n]: the place of its prompt's last token, in front of its answer */
    int64_t *first;  /* [rows + 1]: where the members of each row begin */
    int64_t rows;
    int64_t *sorted, *left, *row; /* [most]: scratch */
} RolloutRows;

void rollout_rows_init(RolloutRows *l, Arena *a, int64_t most, bool shares);
/* Lays these completions into rows of seq tokens; those that failed are left out. Each alone: the longest first.
 * Shared: group by group, so that of whole groups at most answers / n rows are filled, n being the answers that a
 * row of seq tokens holds at their longest, a divisor of the group: a row holds n answers, or the rest of its
 * first group. */
void rollout_rows_pack(RolloutRows *l, const Rollout *r, const int64_t *member, int64_t n, int64_t seq);

typedef struct RolloutBatch { /* one micro-batch */
    Batch b;
    float *sampled, *old, *ref, *advantage, *scored; /* (rows, seq) */
    int32_t *prefix;                                 /* (rows, seq, 2): op_attend's; NULL: no prompt is shared */
} RolloutBatch;

void rollout_batch_init(RolloutBatch *b, Arena *a, int64_t rows, int64_t seq, bool shares);
int64_t rollout_batch_bytes(int64_t rows, int64_t seq, bool shares);

/* The rows from `first` on. weight: of each completion's tokens, by completion; NULL: 1. */
void rollout_batch_fill(RolloutBatch *b, const Rollout *r, const RolloutRows *l, int64_t first, const double *weight);

/* What stands at each completion's answer in numbers (rows, seq) of the same batch goes to its `to`. */
typedef enum RolloutLogp { ROLLOUT_REF, ROLLOUT_OLD, ROLLOUT_SAMPLED } RolloutLogp;
void rollout_take(Rollout *r, const RolloutBatch *b, const RolloutRows *l, int64_t first, const float *numbers,
                  RolloutLogp to);

#endif
