/* loss.c - the last step from per-token numbers to one: a weighted sum in fp64, in token order; its gradient. */
#include "backend/cpu/cpu.h"

enum { CHUNK = 1024 };

static double one_number(const void *p, Format f) {
    float x;
    if (f == FMT_F64) return *(const double *)p;
    cpu_load(&x, p, f, 0, 1);
    return x;
}

void cpu_token_sum(Backend *b, Queue q, const Args *a) {
    float bv[CHUNK], bw[CHUNK];
    int64_t count = cpu_count(a->ti[0]);
    double sum = 0, *stat = a->out[0], beta = cpu_beta(a, 3);
    for (int64_t c = 0; c < count; c += CHUNK) {
        int64_t n = MIN2(CHUNK, count - c);
        const float *v = cpu_view(bv, a->in[0], a->ti[0]->format, c, n);
        const float *w = cpu_view(bw, a->in[1], a->ti[1]->format, c, n);
        for (int64_t i = 0; i < n; i++) sum += (double)v[i] * (double)w[i];
    }
    double term = (double)a->step->attr.scale.by * sum / one_number(a->in[2], a->ti[2]->format);
    *stat = beta == 0 ? term : beta * *stat + term;
}

void cpu_token_sum_grad(Backend *b, Queue q, const Args *a) {
    float bw[CHUNK], dv[CHUNK];
    int64_t count = cpu_count(a->ti[0]);
    double factor = (double)a->step->attr.scale.by / one_number(a->in[1], a->ti[1]->format);
    for (int64_t c = 0; c < count; c += CHUNK) {
        int64_t n = MIN2(CHUNK, count - c);
        const float *w = cpu_view(bw, a->in[0], a->ti[0]->format, c, n);
        for (int64_t i = 0; i < n; i++) dv[i] = (float)(factor * (double)w[i]);
        cpu_store(a->out[0], a->to[0]->format, c, dv, n);
    }
}
