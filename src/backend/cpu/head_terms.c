/* head_terms.c - one row of logits: cross-entropy to another model's distribution, its entropy, the logits' margin. */
#include "backend/cpu/head_terms.h"

#include <math.h>

enum { PIECE = 1024 };

static bool has_target(const TermsRow *r) { /* some term reads it */
    return r->target && (r->terms[TERM_TARGET] != 0.0f || r->terms[TERM_ENTROPY] != 0.0f);
}

static float log_sum_exp(const float *x, int64_t n) {
    float top = cpu_max(x, n), e[PIECE];
    double sum = 0;
    int64_t i = 0;
    do { /* a vocabulary is never empty */
        int64_t k = MIN2(PIECE, n - i);
        cpu_exp(e, x + i, top, k);
        sum += cpu_sum(e, k);
        i += PIECE;
    } while (i < n);
    return (float)((double)top + log(sum));
}

static void find_margin(TermsRow *r) {
    r->best = 0;
    for (int64_t i = 1; i < r->n; i++)
        if (r->logits[i] > r->logits[r->best]) r->best = i;
    r->margin = (double)r->logits[r->best] - cpu_sum(r->logits, r->n) / (double)r->n;
}

void terms_open(TermsRow *r) {
    if (has_target(r)) {
        r->target[r->label] -= r->terms[TERM_LOWERED];
        r->target_lse = log_sum_exp(r->target, r->n);
    }
    if (r->terms[TERM_MARGIN] != 0.0f) find_margin(r);
}

CPU_VECTOR static double expect(const float *restrict q, const float *restrict x, double minus, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += q[i] > 0 ? (double)q[i] * ((double)x[i] - minus) : 0.0;
    return sum;
}

/* TARGET sum_i q_i log p_i - ENTROPY sum_i q_i log q_i */
static double target_value(const TermsRow *r) {
    double cross = 0, own = 0;
    float q[PIECE];
    for (int64_t i = 0; i < r->n; i += PIECE) {
        int64_t k = MIN2(PIECE, r->n - i);
        cpu_exp(q, r->target + i, r->target_lse, k);
        cross += expect(q, r->logits + i, r->lse, k);
        if (r->terms[TERM_ENTROPY] != 0.0f) own += expect(q, r->target + i, (double)r->target_lse, k);
    }
    return (double)r->terms[TERM_TARGET] * cross - (double)r->terms[TERM_ENTROPY] * own;
}

double terms_value(const TermsRow *r) {
    double value = 0;
    if (r->terms[TERM_LABEL] != 0.0f) value += (double)r->terms[TERM_LABEL] * ((double)r->logits[r->label] - r->lse);
    if (has_target(r)) value += target_value(r);
    if (r->terms[TERM_MARGIN] != 0.0f) value -= (double)r->terms[TERM_MARGIN] * r->margin * r->margin;
    return value;
}

/* x = of_p p + all, with p in x */
CPU_VECTOR static void weigh(float *x, float of_p, float all, int64_t n) {
    for (int64_t i = 0; i < n; i++) x[i] = of_p * x[i] + all;
}

CPU_VECTOR static void add(float *restrict x, const float *restrict q, float of_q, int64_t n) {
    for (int64_t i = 0; i < n; i++) x[i] += of_q * q[i];
}

/* x += of_q q */
static void add_target(float *x, const TermsRow *r, int64_t first, float of_q, int64_t n) {
    float q[PIECE];
    cpu_exp(q, r->target + first, r->target_lse, n);
    add(x, q, of_q, n);
}

/* d log p(i) / dz = onehot(i) - p, so the label and the target each take their weight of p away. */
void terms_gradient(const TermsRow *r, float g) {
    float label = r->terms[TERM_LABEL], of_q = has_target(r) ? r->terms[TERM_TARGET] : 0.0f;
    double slope = r->terms[TERM_MARGIN] != 0.0f ? 2 * (double)r->terms[TERM_MARGIN] * r->margin : 0;
    for (int64_t i = 0; i < r->n; i += PIECE) {
        int64_t k = MIN2(PIECE, r->n - i);
        float *x = r->logits + i;
        cpu_exp(x, x, (float)r->lse, k);
        weigh(x, -g * (label + of_q), g * (float)(slope / (double)r->n), k);
        if (of_q != 0.0f) add_target(x, r, i, g * of_q, k);
    }
    r->logits[r->label] += g * label;
    if (slope != 0) r->logits[r->best] -= g * (float)slope;
}
