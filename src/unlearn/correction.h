/* correction.h - the correction v as state of the ring: an fp32 tensor beside every trained weight, in the plan to the
 * byte, on the device or offloaded with the moments. carry.h is the same v in host memory.
 *
 * The job is plain SGD with its update inside backward, one micro-batch an update. Beside training's own phase, which
 * replays an update, its task records two:
 *
 *     carry   the replayed update. Per tensor it applies the deferred step to v, subtracts u where the update is
 *             removed, and sums the dot products v.g, g.g and v.v with the new gradient
 *     apply   applies the deferred step and adds v to the weights, rounded to nearest
 *
 * An update's step over v needs g.v over all tensors, which is known only after the pass. So the step is deferred to
 * the next update, together with its gradient, and every update is one pass over v, as on the host. */
#ifndef UNLEARN_CORRECTION_H
#define UNLEARN_CORRECTION_H

#include "train/run.h"
#include "unlearn/carry.h"

extern const Task task_correction;

/* NULL: such a job may have that task; otherwise why not. */
const char *correction_refusal(const JobSpec *s);
static inline bool correction_is_on_ring(const Job *j) { return j->carry.dials != NONE; }

int correction_carry_phase(const Job *j);

typedef struct CorrectionStep { /* deferred */
    CarryStep step;             /* of the last update; lr 0: none */
    double keep;                /* factor on v after it; 0: v counts as 0, whatever it holds */
} CorrectionStep;
/* Sets the dials of the next play of the carry phase. remove: that update is removed, v -= u. */
void correction_put(Run *r, const CorrectionStep *d, bool remove);

/* Waits for the device and reads the sums of the last phase, per tensor and in total: products of v and g, or of v and
 * the change of theta. */
bool correction_read(Run *r, VecSums *of_tensor, int n, VecSums *all, Err *e);
void correction_apply(Run *r, const CorrectionStep *d); /* queues it */

#endif
