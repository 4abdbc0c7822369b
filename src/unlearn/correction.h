/* correction.h - the correction v as state of the ring: an fp32 tensor beside every trained weight, in the plan to the
 * byte, on the device or offloaded with the moments. carry.h is the same v in host memory.
 *
 * The job is plain SGD with its update inside backward, one micro-batch an update. Beside training's own phase, which
 * replays an update, its task records three:
 *
 *     weigh   the pass of an update, and per tensor the sums v.g, g.g and v.v; theta and v stay
 *     carry   the replayed update, which in the same pass over v propagates it or takes the update out of it
 *     apply   theta + v, rounded to nearest
 *
 * A propagated update is weighed, and then carried with what the sums say; a removed one is only carried. */
#ifndef UNLEARN_CORRECTION_H
#define UNLEARN_CORRECTION_H

#include "train/run.h"
#include "unlearn/carry.h"

extern const Task task_correction;

/* NULL: such a job may have that task; otherwise why not. */
const char *correction_refusal(const JobSpec *s);
static inline bool correction_is_on_ring(const Job *j) { return j->carry.dials != NONE; }

int correction_weigh_phase(const Job *j);
int correction_carry_phase(const Job *j);

typedef struct CorrectionDials { /* of the next play of the carry phase */
    CarryStep step;              /* lr 0: v is not propagated */
    double keep;                 /* v is scaled by this behind the step; 0: what v holds does not count */
    bool remove;                 /* v -= theta's change */
} CorrectionDials;
void correction_put(Run *r, const CorrectionDials *d);

/* The sums that the last phase left, a tensor's each (VecSums of v and g, or of v and theta's change), and those of all.
 * Waits for the device. */
bool correction_read(Run *r, VecSums *of_tensor, int n, VecSums *all, Err *e);
void correction_apply(Run *r); /* queues it */

#endif
