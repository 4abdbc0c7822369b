/* walk.h - an interface to a recorded training run that is stepped through again, update by update (replay.h fills it;
 * tests fill it with quadratics).
 *
 * The walk is positioned before an update s, at theta[s]. The loss of an update is the sum over the scored tokens of
 * its batch divided by their number; rows that are left out still count in that number. */
#ifndef UNLEARN_WALK_H
#define UNLEARN_WALK_H

#include <stdint.h>

#include "base/err.h"
#include "base/threads.h"

typedef enum WalkRows { WALK_ALL, WALK_KEPT, WALK_REMOVED } WalkRows;

typedef struct WalkSpan { /* parameters with the same update rule */
    int64_t first, count;
    double mult;  /* of the learning rate */
    double decay; /* weight decay */
} WalkSpan;

typedef struct WalkRate { /* of an update: theta -= lr * mult * (scale * gradient + decay * theta) */
    double lr, scale;     /* scale: below 1 where the gradient was clipped */
} WalkRate;

typedef struct WalkGuard { /* if |v| > limit, v is scaled to the norm back_to; if v is not finite, it becomes 0 */
    bool on;
    double limit, back_to;
} WalkGuard;

/* v <- v - lr (scale g (g . v) + (decay + damping) v) with g over all rows, then the guard; plays the update. Returns
 * |v| from before the guard. */
typedef struct WalkFisher {
    double damping;
    WalkGuard guard;
    bool more; /* the next call is another WalkFisher: v may be left with a deferred step until then */
} WalkFisher;

typedef struct WalkSeconds { /* time spent in each part of a walk */
    double load;     /* reading weights into their slots */
    double check;    /* comparing weights with the checksums in the log */
    double replay;   /* forward and backward passes, and updates */
    double transfer; /* waiting for device-to-host copies of gradients and weights */
    double vectors;  /* host arithmetic on v */
} WalkSeconds;

typedef struct Walk {
    void *user;
    int64_t n, steps; /* parameters; updates of the run */
    const WalkSpan *span;
    int n_spans;
    double momentum;
    Threads *team; /* for arithmetic on vectors; NULL: one thread */
    const WalkSeconds *spent; /* so far; NULL: not measured */
    bool adaptive; /* AdamW: only u tells what an update does to a deviation */
    bool (*seek)(void *user, int64_t step, Err *e);
    /* Gradient of the current update's loss over some of its rows, at theta[s] + h * along (NULL: theta[s]). */
    bool (*gradient)(void *user, float *g, WalkRows rows, const float *along, double h, Err *e);
    /* J^T H J v of that loss and those rows, J v by a difference of h * along. NULL: not available. */
    bool (*gauss_newton)(void *user, float *out, WalkRows rows, const float *along, double h, Err *e);
    /* Plays the update: u (may be NULL) = theta[s+1] - theta[s]; dm (may be NULL): the change of the momentum. */
    bool (*advance)(void *user, float *u, float *dm, WalkRate *rate, Err *e);
    /* WalkFisher, streamed a piece at a time so that v is the only vector held. NULL (always with momentum): not
     * available; gradient and advance are used instead. */
    bool (*fisher)(void *user, float *v, const WalkFisher *how, WalkRate *rate, double *norm, Err *e);
    /* v -= u; fresh: v counts as 0. Returns |u| in added and |v| in norm. */
    bool (*remove)(void *user, float *v, bool fresh, double *added, double *norm, Err *e);
    /* v *= by, where the walk holds v itself (remove and fisher are given none). NULL: the caller does. */
    void (*scale)(void *user, double by);
    double (*norm)(void *user); /* of theta[s] */
    double (*lr)(void *user);   /* of the current update */
} Walk;

#endif
