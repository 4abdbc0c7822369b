/* certificate.h - noise for a removal, and when what it promises may be called certified.
 *
 * With contraction gamma < 1, what lies beyond the window moves the weights by at most gamma^K / (1 - gamma) times
 * what was removed. Gaussian noise of standard deviation sigma on every weight hides a difference of at most `bound`
 * in the sense of (epsilon, delta): sigma = bound / epsilon * sqrt(2 ln(1.25 / delta)). The bound must be public:
 * chosen without looking at the samples. Noise is added once a request; of several requests epsilon and delta add
 * up. */
#ifndef UNLEARN_CERTIFICATE_H
#define UNLEARN_CERTIFICATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/threads.h"

typedef enum NoiseKind { NOISE_ISOTROPIC, NOISE_SUBSPACE, NOISE_NONE, NOISE_KINDS } NoiseKind;
extern const char *const noise_names[NOISE_KINDS];

typedef struct NoiseOptions {
    NoiseKind kind;
    double epsilon, delta;
    double bound; /* public; 0: none was given */
    double beta;  /* subspace: standard deviation outside of it, as a share */
    int rank;     /* subspace: of how many random directions */
    uint64_t projector_key, key;
    bool key_is_known; /* a seed was given: whoever knows it can take the noise away again */
} NoiseOptions;

typedef struct Noise {
    double bound;  /* that sigma was made from */
    double sigma;  /* isotropic, or along the subspace */
    double across; /* outside of it */
} Noise;

/* measured: what stands in for a bound where none was given. */
Noise noise_scale(const NoiseOptions *o, double measured);
/* Adds it to theta; returns its norm. */
double noise_add(Threads *team, const NoiseOptions *o, const Noise *n, float *theta, int64_t count);

/* The share of what was removed that the window may miss at most: gamma^K / (1 - gamma); infinite where gamma is not
 * below 1. */
double certificate_truncation(double gamma, int64_t window);
/* The window that keeps that below `share`; -1: none does. */
int64_t certificate_window(double gamma, double share);

typedef struct CertificateFacts {
    const NoiseOptions *noise;
    bool adaptive, momentum, clipped, guarded, exact_products;
    double gamma;    /* NaN: not measured */
    double measured; /* the largest norm of the correction, and what the window may have missed */
} CertificateFacts;
/* NULL: certified. Else why not. */
const char *certificate_refusal(const CertificateFacts *f);

/* Of several requests, with spare delta d: sum + sqrt(2 ln(1/d) sum of squares); the deltas add up, d besides. */
double certificate_compose(const double *epsilon, int n, double spare_delta);

#endif
