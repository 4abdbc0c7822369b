/* exact.h - answers as the trainer would have drawn them, token by token: --exact-policy.
 *
 * Sampler and trainer round differently, so a token may be drawn that the trainer's own logits, with the same key,
 * would not have drawn. Here every update's rows are laid out as they will be trained on, and the training forward
 * samples each token again. An answer is cut after the first token that differs, which is replaced by the trainer's,
 * and is generated again from there. This repeats until no token differs. The log-probabilities of that last pass are
 * used as the sampler's: the update's forward repeats it bit for bit, and the importance ratio of its first iteration
 * is exactly 1. */
#ifndef GRPO_EXACT_H
#define GRPO_EXACT_H

#include "grpo/run.h"

/* After the answers, before anything else is done with them. False without a code in e: the process was asked to
 * leave. */
bool exact_settle(GrpoRun *g, Run *r, const Ask *ask, Err *e);

#endif
