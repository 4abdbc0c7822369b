/* walk.h - a training run that can be walked through again: what unlearning asks of it, whoever computes it.
 *
 * The walk stands before an update s, at theta[s]. The loss of an update is that of its batch: the sum over the
 * scored tokens / their number, where rows that are left out keep their place in that number. */
#ifndef UNLEARN_WALK_H
#define UNLEARN_WALK_H

#include <stdint.h>

#include "base/err.h"
#include "base/threads.h"

typedef enum WalkRows { WALK_ALL, WALK_KEPT, WALK_REMOVED } WalkRows;

typedef struct WalkSpan { /* parameters that are updated alike */
    int64_t first, count;
    double mult;  /* of the learning rate */
    double decay; /* weight decay */
} WalkSpan;

typedef struct WalkRate { /* of an update: theta -= lr * mult * (scale * gradient + decay * theta) */
    double lr, scale;     /* scale: below 1 where the gradient was clipped */
} WalkRate;

/* v <- v - lr (scale g (g . v) + (decay + damping) v), g of all rows; plays the update. Gives |v|. */
typedef struct WalkFisher {
    double damping;
    bool more; /* the same follows for the next update: its gradient is made while the host works on v */
} WalkFisher;

typedef struct Walk {
    void *user;
    int64_t n, steps; /* parameters; updates of the run */
    const WalkSpan *span;
    int n_spans;
    double momentum;
    Threads *team; /* for arithmetic on vectors; NULL: one thread */
    bool adaptive; /* AdamW: what an update does to a deviation is known by u alone */
    bool (*seek)(void *user, int64_t step, Err *e);
    /* Of the loss of the update at hand, over some of its rows, at theta[s] + h * along (NULL: theta[s]). */
    bool (*gradient)(void *user, float *g, WalkRows rows, const float *along, double h, Err *e);
    /* J^T H J v of that loss and those rows, J v by a difference of h * along. NULL: this walk has no such product. */
    bool (*gauss_newton)(void *user, float *out, WalkRows rows, const float *along, double h, Err *e);
    /* Plays the update: u (may be NULL) = theta[s+1] - theta[s]; dm (may be NULL) the same of the momentum. */
    bool (*advance)(void *user, float *u, float *dm, WalkRate *rate, Err *e);
    /* Where vectors pass through a piece at a time, so that none but v is held; NULL: this walk has no such way, and
     * gradient and advance serve. v is no less than all else of the update's deviation: there is no momentum. */
    bool (*fisher)(void *user, float *v, const WalkFisher *how, WalkRate *rate, double *norm, Err *e);
    bool (*remove)(void *user, float *v, double *added, Err *e); /* v -= u; added: |u| */
    double (*norm)(void *user); /* of theta[s] */
    double (*lr)(void *user);   /* the learning rate of the update at hand */
} Walk;

#endif
