/* hessian.c - products with the Hessian of a batch's loss, made from gradients, and what power iteration makes of
 * them. */
#include <math.h>

#include "base/mem.h"
#include "unlearn/propagate.h"
#include "unlearn/vec.h"

const char *const hessian_names[HESSIAN_KINDS] = {"fisher", "diagonal", "exact", "gauss-newton"};

typedef struct Parts {
    float *out;
    const float *other; /* what out is combined with */
} Parts;

static void diagonal_part(void *context, int64_t from, int64_t end) {
    const Parts *p = context;
    for (int64_t i = from; i < end; i++)
        p->out[i] = (float)((double)p->out[i] * ((double)p->out[i] * (double)p->other[i]));
}

static bool differences(const Walk *w, const PropagateOptions *o, WalkRows rows, const float *v, float *out,
                        float *scratch, Err *e) {
    double norm = vec_norm(w->team, v, w->n), theta = w->norm(w->user);
    if (norm == 0 || !isfinite(norm)) {
        vec_zero(w->team, out, w->n);
        return true;
    }
    double h = o->difference * (theta > 0 ? theta : 1) / norm;
    if (o->hessian == HESSIAN_GAUSS_NEWTON) return w->gauss_newton(w->user, out, rows, v, h, e);
    if (!w->gradient(w->user, out, rows, v, h, e) || !w->gradient(w->user, scratch, rows, v, -h, e)) return false;
    vec_difference(w->team, out, scratch, 2 * h, w->n);
    return true;
}

bool hessian_product(const Walk *w, const PropagateOptions *o, WalkRows rows, const float *v, float *out,
                     float *scratch, Err *e) {
    if (o->hessian == HESSIAN_EXACT || o->hessian == HESSIAN_GAUSS_NEWTON)
        return differences(w, o, rows, v, out, scratch, e);
    if (!w->gradient(w->user, out, rows, NULL, 0, e)) return false;
    if (o->hessian == HESSIAN_FISHER) vec_scale(w->team, out, vec_dot(w->team, out, v, w->n), w->n);
    else vec_for(w->team, w->n, diagonal_part, &(Parts){out, v});
    return true;
}

bool contraction(const Walk *w, const PropagateOptions *o, double lr, int iterations, uint64_t key, float *x,
                 float *y, float *scratch, double *gamma, Err *e) {
    PropagateOptions exact = *o;
    exact.hessian = HESSIAN_EXACT;
    vec_normal(w->team, x, key, w->n);
    *gamma = 0;
    for (int k = 0; k < iterations; k++) {
        vec_scale(w->team, x, 1 / vec_norm(w->team, x, w->n), w->n);
        if (!hessian_product(w, &exact, WALK_ALL, x, y, scratch, e)) return false;
        for (int s = 0; s < w->n_spans; s++) {
            const WalkSpan *p = &w->span[s];
            double by = lr * p->mult;
            vec_step(w->team, x + p->first, y + p->first, 1 - by * p->decay, by, p->count);
        }
        *gamma = vec_norm(w->team, x, w->n);
    }
    return true;
}
