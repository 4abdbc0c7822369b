/* propagate.h - what removed steps or samples have done to the weights since, to first order, along the run as it
 * was.
 *
 * v is the correction that is added to the weights at the end of the run. It is carried in one pass over the window,
 * from the first touched update on. At an update s that saw nothing of what is removed
 *
 *     v <- v - lr * (H_s v + decay * v + damping * v)                 H_s: Hessian of its loss at theta[s]
 *
 * A removed update (PROPAGATE_STEPS) adds -u[s] and is not propagated through: without it the weights would not have
 * moved. Removed samples (PROPAGATE_SAMPLES) have weight 0 from here on, the divisor stays: H_s is that of the
 * remaining rows, and lr * g_removed(theta[s]) is added, which gives back what the update took away for them.
 * Behind the last touched update v is propagated K more steps (the window), and stands still from there on.
 *
 * With momentum the deviation of the momentum is carried beside v. Of AdamW only u is used: the recursion is the same
 * and an approximation. On a quadratic loss all of this is exact but for damping, guard and window
 * (tests/unlearn/test_quadratic.c). */
#ifndef UNLEARN_PROPAGATE_H
#define UNLEARN_PROPAGATE_H

#include "unlearn/walk.h"

typedef enum PropagateMode { PROPAGATE_SAMPLES, PROPAGATE_STEPS } PropagateMode;

/* How H v is made from gradients g of the mean loss of a batch. */
typedef enum HessianKind {
    HESSIAN_FISHER,   /* g (g . v): rank 1, one gradient */
    HESSIAN_DIAGONAL, /* g * g * v, element by element */
    HESSIAN_EXACT,    /* (g(theta + h v) - g(theta - h v)) / 2h: two gradients; wants fp32 weights */
    HESSIAN_GAUSS_NEWTON, /* J^T H J v (gauss_newton.h): four forward passes, one back; wants fp32 */
    HESSIAN_KINDS
} HessianKind;
extern const char *const hessian_names[HESSIAN_KINDS];

typedef struct PropagateOptions {
    PropagateMode mode;
    HessianKind hessian;
    int64_t window; /* K */
    double damping;
    bool guard;        /* v beyond max(10 |v0|, 0.05) is scaled back to |v0|; what is not finite becomes 0 */
    double difference; /* |h v| / |theta| of differences */
} PropagateOptions;

/* Where truncation and rounding of differences are alike: HESSIAN_EXACT is off by 1.3e-4 of |H v| against double
 * backward (tests/unlearn). */
#define PROPAGATE_DIFFERENCE 5e-4

typedef struct PropagateReport {
    int64_t steps_touched;
    int64_t window_used; /* updates propagated through behind the last touched one */
    int64_t hvp_calls;
    int64_t guarded;            /* how often the guard took hold */
    double added_norm;          /* sum of the norms of what touched updates added */
    double norm;                /* of v in the end */
    double largest_norm;        /* of v on the way */
    double rate_low, rate_high; /* learning rates of the window */
    bool clipped;               /* a gradient of the window was clipped */
} PropagateReport;

/* Vectors as long as the model that a propagation holds beside v. */
int propagate_vectors(const PropagateOptions *o, double momentum);

/* touched: ascending, at least one. v: written. */
bool propagate(const Walk *w, const PropagateOptions *o, const int64_t *touched, int64_t n, float *v,
               PropagateReport *out, Err *e);

/* H v of the update at hand, over those rows. scratch: as long as v; used by differences. */
bool hessian_product(const Walk *w, const PropagateOptions *o, WalkRows rows, const float *v, float *out,
                     float *scratch, Err *e);

/* The largest |eigenvalue| of I - lr (H + decay) at the update at hand, by power iteration with exact products: how
 * much the step stretches a deviation at most. Below 1: it contracts. x, y, scratch: as long as the model. */
bool contraction(const Walk *w, const PropagateOptions *o, double lr, int iterations, uint64_t key, float *x,
                 float *y, float *scratch, double *gamma, Err *e);

#endif
