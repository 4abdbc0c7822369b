/* certificate.c - the formulas of section "certificate" of docs/unlearning.md. */
#include "unlearn/certificate.h"

#include <math.h>
#include <stddef.h>

#include "base/mem.h"
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

/* ---- noise on every weight ----
 *
 * theta += across z + (sigma - across) P z, z standard normal. P projects on directions q_j = s_j / sqrt(n), whose
 * signs s_j are drawn: public random unit vectors, nearly orthogonal where n is large. z and s_j are functions of a key
 * and an index and are never stored. The first pass over theta adds across z and sums s_j . z; the second adds what
 * lies along the directions. Sums are kept by part of theta, so that threads do not change them. */

enum { PARTS = 256, BLOCK = 4096, SIGNS = VEC_SIGNS };

typedef struct Adding {
    const NoiseOptions *o;
    const Noise *n;
    float *theta;
    int64_t count, each; /* numbers; of a part */
    int rank;            /* 0: isotropic */
    double *along;       /* [parts][rank]: s_j . z of a part; then, in the first row, what is added along s_j */
    double *squares;     /* [parts] of across z */
} Adding;

static uint64_t signs_of(const Adding *a, int j, int64_t i) {
    return rng_fold(rng_fold(a->o->projector_key, (uint64_t)j), (uint64_t)(i / SIGNS));
}

static void draw_part(void *context, int64_t part, int worker) {
    const Adding *a = context;
    int64_t end = MIN2((part + 1) * a->each, a->count);
    float z[BLOCK];
    (void)worker;
    for (int64_t from = part * a->each; from < end; from += BLOCK) {
        int64_t n = MIN2(BLOCK, end - from);
        for (int64_t i = 0; i < n; i++) {
            z[i] = rng_normal(a->o->key, (uint64_t)(from + i));
            double added = a->n->across * (double)z[i];
            a->theta[from + i] = (float)((double)a->theta[from + i] + added);
            a->squares[part] += added * added;
        }
        for (int64_t i = n; a->rank && i % SIGNS; i++) z[i] = 0;
        for (int j = 0; j < a->rank; j++)
            for (int64_t i = 0; i < n; i += SIGNS)
                a->along[part * a->rank + j] += vec_block_signed_sum(z + i, signs_of(a, j, from + i));
    }
}

static void add_along_part(void *context, int64_t part, int worker) {
    const Adding *a = context;
    int64_t end = MIN2((part + 1) * a->each, a->count);
    (void)worker;
    for (int64_t from = part * a->each; from < end; from += SIGNS) {
        float sum[SIGNS] = {0};
        int64_t n = MIN2(SIGNS, end - from);
        for (int j = 0; j < a->rank; j++) vec_block_add_signed(sum, (float)a->along[j], signs_of(a, j, from));
        for (int64_t i = 0; i < n; i++) a->theta[from + i] += sum[i];
    }
}

/* a->along[j] becomes (sigma - across) q_j . z / sqrt(n). Returns the square of the norm of all that. */
static double settle_along(Adding *a) {
    double squares = 0;
    for (int j = 0; j < a->rank; j++) {
        double sum = 0;
        for (int64_t part = 0; part < PARTS; part++) sum += a->along[part * a->rank + j];
        a->along[j] = (a->n->sigma - a->n->across) * sum / (double)a->count;
        squares += a->along[j] * a->along[j] * (double)a->count;
    }
    return squares;
}

double noise_add(Threads *team, const NoiseOptions *o, const Noise *n, float *theta, int64_t count) {
    if (!(n->sigma > 0)) return 0;
    int64_t each = ((count + PARTS - 1) / PARTS + BLOCK - 1) / BLOCK * BLOCK;
    int rank = o->kind == NOISE_SUBSPACE ? o->rank : 0;
    Adding a = {o, n, theta, count, each, rank, MEM_NEW(double, PARTS * MAX2(rank, 1)), MEM_NEW(double, PARTS)};
    threads_for(team, PARTS, draw_part, &a);
    double squares = vec_sum(a.squares, PARTS) + settle_along(&a);
    if (rank) threads_for(team, PARTS, add_along_part, &a);
    mem_free(a.along);
    mem_free(a.squares);
    return sqrt(squares);
}

/* ---- what is promised ---- */

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
