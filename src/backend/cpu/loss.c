/* loss.c - the last step from per-token numbers to one: a weighted sum in fp64, in token order; its gradient. */
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
