/* dense.c - softmax and its relatives, written for one row. */
#include "unlearn/dense.h"

#include <math.h>

#include "base/check.h"

typedef struct Row { /* log p(i) = z[i] - less(i) - lse */
    const float *z;
    int32_t label; /* lowered by strength */
    double strength, lse;
} Row;

static double at(const Row *r, int64_t i) { return (double)r->z[i] - (i == r->label ? r->strength : 0); }

static Row row_of(const float *z, int64_t n, int32_t label, double strength) {
    Row r = {.z = z, .label = label, .strength = strength};
    double top = at(&r, 0), sum = 0;
    for (int64_t i = 1; i < n; i++) top = fmax(top, at(&r, i));
    for (int64_t i = 0; i < n; i++) sum += exp(at(&r, i) - top);
    r.lse = top + log(sum);
    return r;
}

static void add(float *d, double v) { *d = (float)((double)*d + v); }

double dense_label(float *d, const float *z, int64_t n, int32_t label, double scale) {
    Row p = row_of(z, n, -1, 0);
    for (int64_t i = 0; i < n; i++) add(&d[i], scale * (exp(at(&p, i) - p.lse) - (i == label)));
    return p.lse - (double)z[label];
}

/* dCE/dz = p - q. */
static double toward(float *d, const Row *p, const Row *q, int64_t n, double scale, double *entropy) {
    double value = 0;
    *entropy = 0;
    for (int64_t i = 0; i < n; i++) {
        double logp = at(p, i) - p->lse, logq = at(q, i) - q->lse, w = exp(logq);
        add(&d[i], scale * (exp(logp) - w));
        value -= w * logp;
        *entropy -= w > 0 ? w * logq : 0;
    }
    return value;
}

double dense_undial(float *d, const float *z, const float *ref, int64_t n, int32_t label, double strength,
                    double scale) {
    Row p = row_of(z, n, -1, 0), q = row_of(ref, n, label, strength);
    double entropy;
    return toward(d, &p, &q, n, scale, &entropy);
}

double dense_divergence(float *d, const float *z, const float *ref, int64_t n, double scale) {
    Row p = row_of(z, n, -1, 0), q = row_of(ref, n, -1, 0);
    double entropy, value = toward(d, &p, &q, n, scale, &entropy);
    return value - entropy;
}

double dense_margin(float *d, const float *z, int64_t n, double scale) {
    int64_t best = 0;
    double mean = 0;
    for (int64_t i = 0; i < n; i++) {
        if (z[i] > z[best]) best = i;
        mean += (double)z[i] / (double)n;
    }
    double margin = (double)z[best] - mean;
    for (int64_t i = 0; i < n; i++) add(&d[i], scale * 2 * margin * ((i == best) - 1.0 / (double)n));
    return margin * margin;
}

double dense_square(float *d, const float *a, const float *target, double times, int64_t n, double scale) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        double off = (double)a[i] - times * (double)target[i];
        add(&d[i], scale * 2 * off / (double)n);
        sum += off * off;
    }
    return sum / (double)n;
}
