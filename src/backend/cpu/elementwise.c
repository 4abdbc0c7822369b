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
    Operand h, gate_up, d_gate_up; /* swiglu_grad: h is d(h) */
    int64_t rows, cols;            /* of h: (N, F) */
    int64_t rows_a_tile;
} Gate;

static Gate gate_of(Operand h, Operand gate_up, Operand d_gate_up) {
    Gate t = {.h = h, .gate_up = gate_up, .d_gate_up = d_gate_up, .rows = cpu_rows(h.t), .cols = cpu_cols(h.t)};
    t.rows_a_tile = MAX2(1, TILE_NUMBERS / t.cols);
    return t;
}

static void swiglu_tile(void *context, int64_t tile, int worker) {
    const Gate *t = context;
    float bg[CHUNK], bu[CHUNK], e[CHUNK];
    for (int64_t i = tile * t->rows_a_tile; i < MIN2((tile + 1) * t->rows_a_tile, t->rows); i++)
        for (int64_t c = 0; c < t->cols; c += CHUNK) {
            int64_t n = MIN2(CHUNK, t->cols - c), at = i * 2 * t->cols + c;
            const float *gate = cpu_read(bg, t->gate_up, at, n), *up = cpu_read(bu, t->gate_up, at + t->cols, n);
            negate(e, gate, n);
            cpu_exp(e, e, 0, n);
            gate_chunk(e, gate, up, n);
            cpu_write(t->h, i * t->cols + c, e, n);
        }
}

void cpu_swiglu(Backend *b, Queue q, const Args *a) {
    Gate t = gate_of(a->swiglu.out.h, a->swiglu.in.gate_up, (Operand){0});
    threads_for(cpu_threads(b), (t.rows + t.rows_a_tile - 1) / t.rows_a_tile, swiglu_tile, &t);
}

static void swiglu_grad_tile(void *context, int64_t tile, int worker) {
    const Gate *t = context;
    float bd[CHUNK], bg[CHUNK], bu[CHUNK], e[CHUNK], dup[CHUNK];
    for (int64_t i = tile * t->rows_a_tile; i < MIN2((tile + 1) * t->rows_a_tile, t->rows); i++)
        for (int64_t c = 0; c < t->cols; c += CHUNK) {
            int64_t n = MIN2(CHUNK, t->cols - c), at = i * 2 * t->cols + c;
            const float *dh = cpu_read(bd, t->h, i * t->cols + c, n);
            const float *gate = cpu_read(bg, t->gate_up, at, n), *up = cpu_read(bu, t->gate_up, at + t->cols, n);
            negate(e, gate, n);
            cpu_exp(e, e, 0, n);
            gate_grad_chunk(e, dup, dh, gate, up, n);
            cpu_write(t->d_gate_up, at, e, n);
            cpu_write(t->d_gate_up, at + t->cols, dup, n);
        }
}

void cpu_swiglu_grad(Backend *b, Queue q, const Args *a) {
    Gate t = gate_of(a->swiglu_grad.in.dh, a->swiglu_grad.in.gate_up, a->swiglu_grad.out.d_gate_up);
    threads_for(cpu_threads(b), (t.rows + t.rows_a_tile - 1) / t.rows_a_tile, swiglu_grad_tile, &t);
}

static void add_tile(void *context, int64_t tile, int worker) {
    const Args *a = context;
    float bx[CHUNK], by[CHUNK], sum[CHUNK];
    int64_t count = cpu_count(a->add.out.sum.t), end = MIN2((tile + 1) * TILE_NUMBERS, count);
    for (int64_t i = tile * TILE_NUMBERS; i < end; i += CHUNK) {
        int64_t n = MIN2(CHUNK, end - i);
        add_chunk(sum, cpu_read(bx, a->add.in.a, i, n), cpu_read(by, a->add.in.b, i, n), n);
        cpu_write(a->add.out.sum, i, sum, n);
    }
}

void cpu_add(Backend *b, Queue q, const Args *a) {
    int64_t count = cpu_count(a->add.out.sum.t);
    threads_for(cpu_threads(b), (count + TILE_NUMBERS - 1) / TILE_NUMBERS, add_tile, (void *)a);
}
