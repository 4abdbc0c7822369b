/* elementwise.c - ops whose every number depends on the same place of their inputs: SwiGLU and its gradient, add.
 *
 * silu(g) = g * s with s = 1/(1 + e^-g);  d silu = s * (1 + g*(1 - s)).
 * A chunk is read whole before it is written, so an output may stand in its input's place. */
#include "backend/cpu/cpu.h"

enum { CHUNK = 1024, TILE_NUMBERS = 16 * CHUNK };

CPU_VECTOR static void negate(float *restrict y, const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = -x[i];
}

/* e: e^-gate, becomes silu(gate) * up */
CPU_VECTOR static void gate_chunk(float *restrict e, const float *gate, const float *up, int64_t n) {
    for (int64_t i = 0; i < n; i++) e[i] = gate[i] / (1.0f + e[i]) * up[i];
}

/* e: e^-gate, becomes dgate */
CPU_VECTOR static void gate_grad_chunk(float *restrict e, float *restrict dup, const float *dh, const float *gate,
                                       const float *up, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        float s = 1.0f / (1.0f + e[i]);
        dup[i] = dh[i] * (gate[i] * s);
        e[i] = dh[i] * up[i] * s * (1.0f + gate[i] * (1.0f - s));
    }
}

CPU_VECTOR static void add_chunk(float *restrict y, const float *a, const float *b, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = a[i] + b[i];
}

typedef struct Gate {
    const Args *a;
    int64_t rows, cols;        /* of h: (N, F) */
    int64_t rows_a_tile;
} Gate;

static Gate gate_of(const Args *a, const Tensor *h) {
    Gate t = {.a = a, .rows = cpu_rows(h), .cols = cpu_cols(h)};
    t.rows_a_tile = MAX2(1, TILE_NUMBERS / t.cols);
    return t;
}

static void swiglu_tile(void *context, int64_t tile, int worker) {
    const Gate *t = context;
    const Args *a = t->a;
    float bg[CHUNK], bu[CHUNK], e[CHUNK];
    for (int64_t i = tile * t->rows_a_tile; i < MIN2((tile + 1) * t->rows_a_tile, t->rows); i++)
        for (int64_t c = 0; c < t->cols; c += CHUNK) {
            int64_t n = MIN2(CHUNK, t->cols - c), at = i * 2 * t->cols + c;
            const float *gate = cpu_view(bg, a->in[0], a->ti[0]->format, at, n);
            const float *up = cpu_view(bu, a->in[0], a->ti[0]->format, at + t->cols, n);
            negate(e, gate, n);
            cpu_exp(e, e, 0, n);
            gate_chunk(e, gate, up, n);
            cpu_store(a->out[0], a->to[0]->format, i * t->cols + c, e, n);
        }
}

void cpu_swiglu(Backend *b, Queue q, const Args *a) {
    Gate t = gate_of(a, a->to[0]);
    threads_for(cpu_threads(b), (t.rows + t.rows_a_tile - 1) / t.rows_a_tile, swiglu_tile, &t);
}

static void swiglu_grad_tile(void *context, int64_t tile, int worker) {
    const Gate *t = context;
    const Args *a = t->a;
    float bd[CHUNK], bg[CHUNK], bu[CHUNK], e[CHUNK], dup[CHUNK];
    for (int64_t i = tile * t->rows_a_tile; i < MIN2((tile + 1) * t->rows_a_tile, t->rows); i++)
        for (int64_t c = 0; c < t->cols; c += CHUNK) {
            int64_t n = MIN2(CHUNK, t->cols - c), at = i * 2 * t->cols + c;
            const float *dh = cpu_view(bd, a->in[0], a->ti[0]->format, i * t->cols + c, n);
            const float *gate = cpu_view(bg, a->in[1], a->ti[1]->format, at, n);
            const float *up = cpu_view(bu, a->in[1], a->ti[1]->format, at + t->cols, n);
            negate(e, gate, n);
            cpu_exp(e, e, 0, n);
            gate_grad_chunk(e, dup, dh, gate, up, n);
            cpu_store(a->out[0], a->to[0]->format, at, e, n);
            cpu_store(a->out[0], a->to[0]->format, at + t->cols, dup, n);
        }
}

void cpu_swiglu_grad(Backend *b, Queue q, const Args *a) {
    Gate t = gate_of(a, a->ti[0]);
    threads_for(cpu_threads(b), (t.rows + t.rows_a_tile - 1) / t.rows_a_tile, swiglu_grad_tile, &t);
}

static void add_tile(void *context, int64_t tile, int worker) {
    const Args *a = context;
    float bx[CHUNK], by[CHUNK], sum[CHUNK];
    int64_t count = cpu_count(a->to[0]), end = MIN2((tile + 1) * TILE_NUMBERS, count);
    for (int64_t i = tile * TILE_NUMBERS; i < end; i += CHUNK) {
        int64_t n = MIN2(CHUNK, end - i);
        add_chunk(sum, cpu_view(bx, a->in[0], a->ti[0]->format, i, n),
                  cpu_view(by, a->in[1], a->ti[1]->format, i, n), n);
        cpu_store(a->out[0], a->to[0]->format, i, sum, n);
    }
}

void cpu_add(Backend *b, Queue q, const Args *a) {
    threads_for(cpu_threads(b), (cpu_count(a->to[0]) + TILE_NUMBERS - 1) / TILE_NUMBERS, add_tile, (void *)a);
}
