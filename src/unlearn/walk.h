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

typedef struct WalkGuard { /* v of a norm beyond the limit is scaled back to that one, one that is not finite to 0 */
    bool on;
    double limit, back_to;
} WalkGuard;

/* v <- v - lr (scale g (g . v) + (decay + damping) v), g of all rows, and the guard; plays the update. Gives |v|, as
 * it was before the guard where that took hold. */
typedef struct WalkFisher {
    double damping;
    WalkGuard guard;
    bool more; /* the same follows for the next update: until then v need not be complete */
} WalkFisher;

typedef struct WalkSeconds { /* where the time of a walk goes */
    double load;     /* reading weights into their slots */
    double check;    /* comparing them with the checksums of the log */
    double replay;   /* passes over batches, and updates */
    double transfer; /* waiting for gradients and weights on their way to the host */
    double vectors;  /* the host's work on v and what passes by it */
} WalkSeconds;

typedef struct Walk {
    void *user;
    int64_t n, steps; /* parameters; updates of the run */
    const WalkSpan *span;
    int n_spans;
    double momentum;
    Threads *team; /* for arithmetic on vectors; NULL: one thread */
    const WalkSeconds *spent; /* so far; NULL: nobody looks at the clock */
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
    /* v -= u; fresh: v holds nothing yet. added: |u|; norm: |v|. */
    bool (*remove)(void *user, float *v, bool fresh, double *added, double *norm, Err *e);
    double (*norm)(void *user); /* of theta[s] */
    double (*lr)(void *user);   /* the learning rate of the update at hand */
} Walk;

#endif
