/* certificate.c - the formulas of section "certificate" of docs/unlearning.md. */
#include "unlearn/certificate.h"

#include <math.h>
#include <stddef.h>

#include "base/rng.h"
#include "unlearn/vec.h"

const char *const noise_names[NOISE_KINDS] = {"isotropic", "subspace", "none"};

Noise noise_scale(const NoiseOptions *o, double measured) {
    Noise n = {.bound = o->bound > 0 ? o->bound : measured};
    if (!(o->epsilon > 0) || o->kind == NOISE_NONE) return (Noise){.bound = n.bound};
    if (o->kind == NOISE_ISOTROPIC) {
        n.sigma = n.across = n.bound / o->epsilon * sqrt(2 * log(1.25 / o->delta));
        return n;
    }
    n.sigma = 2 * n.bound / o->epsilon * sqrt(2 * log(2.5 / o->delta));
    n.across = o->beta * n.sigma;
    return n;
}

/* Direction j of the public subspace, as a unit vector; nearly orthogonal to the others where the model is large. */
static void direction(float *q, uint64_t key, int j, int64_t n) {
    uint64_t own = rng_fold(key, (uint64_t)j);
    for (int64_t i = 0; i < n; i++) q[i] = rng_normal(own, (uint64_t)i);
    vec_scale(NULL, q, 1 / vec_norm(NULL, q, n), n);
}

static double drawn_along(const float *q, uint64_t key, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)q[i] * (double)rng_normal(key, (uint64_t)i);
    return sum;
}

double noise_add(const NoiseOptions *o, const Noise *n, float *theta, float *scratch, int64_t count) {
    double squares = 0;
    if (!(n->sigma > 0)) return 0;
    for (int64_t i = 0; i < count; i++) {
        double z = n->across * (double)rng_normal(o->key, (uint64_t)i);
        theta[i] = (float)((double)theta[i] + z);
        squares += z * z;
    }
    if (o->kind != NOISE_SUBSPACE) return sqrt(squares);
    for (int j = 0; j < o->rank; j++) { /* sigma P z + across (I - P) z = across z + (sigma - across) P z */
        direction(scratch, o->projector_key, j, count);
        double along = (n->sigma - n->across) * drawn_along(scratch, o->key, count);
        vec_add(NULL, theta, scratch, along, count);
        squares += along * along;
    }
    return sqrt(squares);
}

double certificate_truncation(double gamma, int64_t window) {
    return gamma < 1 ? pow(gamma, (double)window) / (1 - gamma) : INFINITY;
}

int64_t certificate_window(double gamma, double share) {
    if (!(gamma < 1) || !(share > 0)) return -1;
    if (gamma <= 0 || share * (1 - gamma) >= 1) return 0;
    return (int64_t)ceil(log(share * (1 - gamma)) / log(gamma) - 1e-12);
}

const char *certificate_refusal(const CertificateFacts *f) {
    const NoiseOptions *n = f->noise;
    if (!(n->epsilon > 0) || n->kind == NOISE_NONE) return "no noise was asked for (--epsilon)";
    if (f->adaptive)
        return "AdamW: what its updates do to a deviation is not bounded by the Hessian; train with --optimizer sgd";
    if (f->momentum) return "momentum: the contraction of plain SGD says nothing about it";
    if (!f->exact_products)
        return "the Hessian was approximated, and nobody bounds by how much; give --hessian exact";
    if (f->clipped) return "a gradient of the window was clipped; train with --clip 0";
    if (isnan(f->gamma)) return "the contraction was not measured (--gamma-iterations)";
    if (!(f->gamma < 1)) return "the steps do not contract: the measured gamma is not below 1";
    if (f->guarded) return "the norm guard changed the correction";
    if (!(n->bound > 0))
        return "no public bound was given (--bound): the noise was made from what was measured on the samples";
    if (n->bound < f->measured) return "the bound that was given is below what was measured";
    if (n->key_is_known) return "the noise is drawn from a seed that is known (--noise-seed)";
    return NULL;
}

double certificate_compose(const double *epsilon, int n, double spare_delta) {
    double sum = 0, squares = 0;
    for (int i = 0; i < n; i++) sum += epsilon[i], squares += epsilon[i] * epsilon[i];
    return n == 1 ? sum : sum + sqrt(2 * log(1 / spare_delta) * squares);
}
