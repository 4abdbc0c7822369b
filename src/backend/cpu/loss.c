/* loss.c - what a distribution says about its token, and the last step from per-token numbers to one: a weighted sum in
 * fp64, in token order; its gradient. */
#include <math.h>

#include "backend/cpu/cpu.h"

enum { CHUNK = 1024 };

static double one_number(Operand x) {
    float number;
    if (x.t->format == FMT_F64) return *(const double *)x.data;
    cpu_load(&number, x.data, x.t->format, 0, 1);
    return number;
}

void cpu_token_sum(Backend *b, Queue q, const Args *a) {
    Operand v = a->token_sum.in.v, weight = a->token_sum.in.weight;
    float bv[CHUNK], bw[CHUNK];
    int64_t count = cpu_count(v.t);
    double sum = 0, *stat = a->token_sum.out.stat.data, beta = cpu_beta(a->token_sum.in.beta);
    for (int64_t c = 0; c < count; c += CHUNK) {
        int64_t n = MIN2(CHUNK, count - c);
        const float *x = cpu_read(bv, v, c, n), *w = cpu_read(bw, weight, c, n);
        for (int64_t i = 0; i < n; i++) sum += (double)x[i] * (double)w[i];
    }
    double term = (double)a->step->attr.scale.by * sum / one_number(a->token_sum.in.divisor);
    *stat = beta == 0 ? term : beta * *stat + term;
}

void cpu_token_sum_grad(Backend *b, Queue q, const Args *a) {
    Operand weight = a->token_sum_grad.in.weight;
    float bw[CHUNK], dv[CHUNK];
    int64_t count = cpu_count(weight.t);
    double factor = (double)a->step->attr.scale.by / one_number(a->token_sum_grad.in.divisor);
    for (int64_t c = 0; c < count; c += CHUNK) {
        int64_t n = MIN2(CHUNK, count - c);
        const float *w = cpu_read(bw, weight, c, n);
        for (int64_t i = 0; i < n; i++) dv[i] = (float)(factor * (double)w[i]);
        cpu_write(a->token_sum_grad.out.dv, c, dv, n);
    }
}

static bool is_first_of_the_largest(const float *x, int64_t label, float top) {
    int64_t i = 0;
    while (i < label && x[i] < top) i++;
    return i == label && x[label] == top;
}

typedef struct Moments { /* of at = x - top under e^at */
    double sum, mean, square;
} Moments;

static Moments moments_of(const float *x, int64_t vocabulary, float top) {
    Moments m = {0};
    float e[CHUNK];
    for (int64_t c = 0; c < vocabulary; c += CHUNK) {
        int64_t n = MIN2(CHUNK, vocabulary - c);
        cpu_exp(e, x + c, top, n);
        for (int64_t i = 0; i < n; i++) {
            double p = e[i], at = p > 0 ? (double)x[c + i] - (double)top : 0; /* a logit of -infinity has no weight */
            m.sum += p, m.mean += p * at, m.square += p * at * at;
        }
    }
    m.mean /= m.sum, m.square /= m.sum;
    return m;
}

static void token_score_row(void *context, int64_t row, int worker) {
    const Args *a = context;
    Operand logits = a->token_score.in.logits;
    int64_t vocabulary = cpu_cols(logits.t);
    const float *x = (const float *)logits.data + row * vocabulary;
    int32_t label = ((const int32_t *)a->token_score.in.labels.data)[row];
    float *score = (float *)a->token_score.out.score.data + row * TOKEN_SCORES;
    (void)worker;
    for (int i = 0; i < TOKEN_SCORES; i++) score[i] = 0;
    if (label < 0) return;
    float top = cpu_max(x, vocabulary);
    Moments m = moments_of(x, vocabulary, top);
    double lse = log(m.sum);
    score[SCORE_LOGP] = (float)((double)x[label] - (double)top - lse);
    score[SCORE_MEAN] = (float)(m.mean - lse);
    score[SCORE_DEVIATION] = (float)sqrt(fmax(m.square - m.mean * m.mean, 0));
    score[SCORE_LIKELIEST] = is_first_of_the_largest(x, label, top);
}

void cpu_token_score(Backend *b, Queue q, const Args *a) {
    (void)q;
    threads_for(cpu_threads(b), cpu_rows(a->token_score.in.logits.t), token_score_row, (void *)a);
}
