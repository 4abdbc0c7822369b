/* baseline.h - a model tuned away from some samples by one of the known losses (losses.h).
 *
 * An update is `batch` forgotten samples, as many retained ones drawn at random beside them (where the loss has a
 * retain term) and, for dpo, their refusals. Their log-probabilities are scored first, in a phase of their own on the
 * ring; from these the host makes the token weights of a supervised step. The reference is the model as it begins:
 * its log-probabilities are scored before the first update, so that no second copy of it is ever held. */
#ifndef UNLEARN_BASELINE_H
#define UNLEARN_BASELINE_H

#include "train/run.h"
#include "unlearn/forget.h"
#include "unlearn/losses.h"

/* Supervised, with a phase that gives every token's log-probability; and the entropy there. */
extern const Task task_scored, task_scored_entropy;
/* baseline_dense.c: what a loss asks of the ring. Those beyond log-probabilities (dense.h) put the gradients of
 * logits or hidden states there themselves; a reference model, where one stands beside, has its tensors under this
 * name. */
#define BASELINE_REFERENCE "reference"
const Task *baseline_task(const LossSpec *s);
static inline int baseline_tap(const ModelConfig *c) { return MIN2(7, c->layers - 1); } /* rmu: behind which layer */

typedef struct Baseline {
    Run *run; /* keeps; opened, its spec's task is task_scored */
    LossSpec loss;
    const ForgetSet *forget; /* keeps */
    Dataset *refusals;       /* keeps; row i stands in for forget->sample[i]; NULL: none */
    double epochs;
    int64_t batch;     /* forgotten samples of an update */
    Schedule schedule; /* warmup_steps and total_steps are filled */
    uint64_t seed;
} Baseline;

typedef struct BaselineReport {
    int64_t updates, forward_passes, backward_passes; /* passes of a micro-batch */
    double first_loss, loss;                          /* of the updates; NaN: it has no value */
    double forget_nll_before, forget_nll_after;       /* mean over the tokens of the forget set */
    double seconds;
} BaselineReport;

int64_t baseline_rows(const LossSpec *s, int64_t batch, bool refusals); /* of an update */
/* Host memory; samples are those of the data. */
int64_t baseline_bytes(const LossSpec *s, const JobSpec *job, int64_t rows, int64_t samples);
bool baseline_run(Baseline *b, BaselineReport *out, Err *e);

#endif
