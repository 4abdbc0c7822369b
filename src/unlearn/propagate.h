/* propagate.h - the effect of removed steps or samples on the final weights, to first order, along the recorded run.
 *
 * v is the correction that is added to the weights at the end of the run. It is propagated in one pass over the window,
 * starting at the first touched update. At an update s whose batch holds none of the removed samples
 *
 *     v <- v - lr * (H_s v + decay * v + damping * v)                 H_s: Hessian of its loss at theta[s]
 *
 * A removed update (PROPAGATE_STEPS) adds -u[s] to v, and v is not propagated through it: without that update the
 * weights would not have moved. Removed samples (PROPAGATE_SAMPLES) have weight 0 in the loss and the divisor stays:
 * H_s is the Hessian of the remaining rows, and lr * g_removed(theta[s]) is added to v, which undoes their share of the
 * update. After the last touched update v is propagated through K more updates (the window); then it stays as it is.
 *
 * With momentum the deviation of the momentum is propagated together with v. For AdamW the same recursion is used with
 * the logged u, which is an approximation. On a quadratic loss all of this is exact except for damping, guard and
 * window (tests/unlearn/test_quadratic.c). */
#ifndef UNLEARN_PROPAGATE_H
#define UNLEARN_PROPAGATE_H

#include "unlearn/walk.h"

typedef enum PropagateMode { PROPAGATE_SAMPLES, PROPAGATE_STEPS } PropagateMode;

/* How H v is computed from gradients g of the mean loss of a batch. */
typedef enum HessianKind {
    HESSIAN_FISHER,   /* g (g . v): rank 1, one gradient */
    HESSIAN_DIAGONAL, /* g * g * v, element by element */
    HESSIAN_EXACT,    /* (g(theta + h v) - g(theta - h v)) / 2h: two gradients; wants fp32 weights */
    HESSIAN_GAUSS_NEWTON, /* J^T H J v (gauss_newton.h): four forward passes, one backward; wants fp32 */
    HESSIAN_KINDS
} HessianKind;
extern const char *const hessian_names[HESSIAN_KINDS];

typedef struct PropagateOptions {
    PropagateMode mode;
    HessianKind hessian;
    int64_t window; /* K */
    double damping;
    bool guard;        /* v longer than max(10 |v0|, 0.05) is scaled back to |v0|; one that is not finite becomes 0 */
    double difference; /* |h v| / |theta| of finite differences */
} PropagateOptions;

/* The step at which truncation and rounding errors of the difference are alike: HESSIAN_EXACT is within 1.3e-4 of |H v|
 * of double backward (tests/unlearn). */
#define PROPAGATE_DIFFERENCE 5e-4

typedef struct PropagateReport {
    int64_t steps_touched;
    int64_t window_used; /* updates propagated through after the last touched one */
    int64_t hvp_calls;
    int64_t guarded;            /* how often the guard took hold */
    double added_norm;          /* sum of the norms of what touched updates added */
    double norm;                /* of v in the end */
    double largest_norm;        /* of v after any update */
    double rate_low, rate_high; /* learning rates of the window */
    bool clipped;               /* a gradient of the window was clipped */
} PropagateReport;

/* How many vectors of the model's length a propagation holds in addition to v. */
int propagate_vectors(const PropagateOptions *o, double momentum);

/* touched: ascending, at least one. v: output. */
bool propagate(const Walk *w, const PropagateOptions *o, const int64_t *touched, int64_t n, float *v,
               PropagateReport *out, Err *e);

/* out = H v for the current update, over those rows. scratch: as long as v; finite differences use it. */
bool hessian_product(const Walk *w, const PropagateOptions *o, WalkRows rows, const float *v, float *out,
                     float *scratch, Err *e);

/* The largest |eigenvalue| of I - lr (H + decay) at the current update, by power iteration with exact products: the
 * most by which the step can stretch a deviation. Below 1 the step contracts. x, y, scratch: as long as the model. */
bool contraction(const Walk *w, const PropagateOptions *o, double lr, int iterations, uint64_t key, float *x,
                 float *y, float *scratch, double *gamma, Err *e);

#endif
