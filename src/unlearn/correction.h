/* correction.h - the correction v as state of the ring: an fp32 tensor beside every trained weight, in the plan to the
 * byte, on the device or offloaded with the moments. carry.h is the same v in host memory.
 *
 * The job is plain SGD with its update inside backward, one micro-batch an update. Beside training's own phase, which
 * replays an update, its task records two:
 *
 *     carry   the replayed update; per tensor, v takes the step that the update before has left to do, loses the
 *             update's u where that is removed, and meets the gradient: v.g, g.g and v.v
 *     apply   theta + v, with that step, rounded to nearest
 *
 * So each update is one pass, as on the host: its own step over v, of which only all gradients together know how long
 * it is, waits for the next, with the gradient that it needs. */
#ifndef UNLEARN_CORRECTION_H
#define UNLEARN_CORRECTION_H

#include "train/run.h"
#include "unlearn/carry.h"

extern const Task task_correction;

/* NULL: such a job may have that task; otherwise why not. */
const char *correction_refusal(const JobSpec *s);
static inline bool correction_is_on_ring(const Job *j) { return j->carry.dials != NONE; }

int correction_carry_phase(const Job *j);

typedef struct CorrectionStep { /* that v has still to take */
    CarryStep step;             /* of the last update; lr 0: none, ... */
    double keep;                /* ... and v is then scaled by this; 0: what v holds does not count */
} CorrectionStep;
/* The dials of the next play of the carry phase. remove: v then loses what that update does. */
void correction_put(Run *r, const CorrectionStep *d, bool remove);

/* The sums that the last phase left, a tensor's each (of v and g, or of v and theta's change), and those of all. Waits
 * for the device. */
bool correction_read(Run *r, VecSums *of_tensor, int n, VecSums *all, Err *e);
void correction_apply(Run *r, const CorrectionStep *d); /* queues it */

#endif
