/* gate.c - gates on some columns of a row, their gradient, and sums of two tensors with a factor each.
 *
 * A row is handled whole and in chunks that are read before they are written: an output may stand in its input's
 * place. */
#include <math.h>

#include "backend/cpu/cpu.h"

enum { CHUNK = 1024, ROWS_A_TILE = 8 };

CPU_VECTOR static void negate_scaled(float *restrict y, const float *x, float by, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = -x[i] * by;
}

/* (tanh(z) + 1) / 2 is sigmoid(2z). e: e^-(rate * z), becomes the gate; slope: its derivative. */
CPU_VECTOR static void gate_values(float *restrict e, float *restrict slope, const float *z, GateAct act, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        float s = 1.0f / (1.0f + e[i]);
        if (act == GATE_SILU) {
            e[i] = z[i] * s;
            slope[i] = s * (1.0f + z[i] * (1.0f - s));
        } else {
            e[i] = s;
            slope[i] = (act == GATE_TANH ? 2.0f : 1.0f) * s * (1.0f - s);
        }
    }
}

static void gates_of(float *value, float *slope, const float *z, GateAct act, int64_t n) {
    negate_scaled(value, z, act == GATE_TANH ? 2.0f : 1.0f, n);
    cpu_exp(value, value, 0, n);
    gate_values(value, slope, z, act, n);
}

typedef struct Gate {
    const Args *a;
    AttrGate attr;
    Operand x, z;
    int64_t rows, cols, gates;
} Gate;

static Gate gate_of(const Args *a, Operand x, Operand z) {
    return (Gate){.a = a,
                  .attr = a->step->attr.gate,
                  .x = x,
                  .z = z,
                  .rows = cpu_rows(x.t),
                  .cols = cpu_cols(x.t),
                  .gates = cpu_cols(z.t)};
}

/* Columns that no gate stands on: x as it is, which an output in its place holds already. */
static void copy_columns(Operand to, Operand from, int64_t at, int64_t n) {
    float buffer[CHUNK];
    if (to.data == from.data) return;
    for (int64_t c = 0; c < n; c += CHUNK) {
        int64_t k = MIN2(CHUNK, n - c);
        cpu_write(to, at + c, cpu_read(buffer, from, at + c, k), k);
    }
}

/* Gates [c, c + n) of a row, each on its group of columns. */
static void gate_columns(const Gate *t, int64_t row, int64_t c, int64_t n) {
    float bx[CHUNK], bz[CHUNK], value[CHUNK], slope[CHUNK], y[CHUNK];
    int64_t group = t->attr.group, at = row * t->cols + t->attr.first + c * group;
    gates_of(value, slope, cpu_read(bz, t->z, row * t->gates + c, n), t->attr.act, n);
    for (int64_t i = 0; i < n * group; i += CHUNK) {
        int64_t k = MIN2(CHUNK, n * group - i);
        const float *x = cpu_read(bx, t->x, at + i, k);
        for (int64_t l = 0; l < k; l++) y[l] = x[l] * value[(i + l) / group];
        cpu_write(t->a->gate.out.y, at + i, y, k);
    }
}

static void gate_tile(void *context, int64_t tile, int worker) {
    const Gate *t = context;
    int64_t first = t->attr.first, behind = first + t->gates * t->attr.group;
    for (int64_t row = tile * ROWS_A_TILE; row < MIN2((tile + 1) * ROWS_A_TILE, t->rows); row++) {
        copy_columns(t->a->gate.out.y, t->x, row * t->cols, first);
        for (int64_t c = 0; c < t->gates; c += CHUNK) gate_columns(t, row, c, MIN2(CHUNK, t->gates - c));
        copy_columns(t->a->gate.out.y, t->x, row * t->cols + behind, t->cols - behind);
    }
}

void cpu_gate(Backend *b, Queue q, const Args *a) {
    Gate t = gate_of(a, a->gate.in.x, a->gate.in.z);
    threads_for(cpu_threads(b), (t.rows + ROWS_A_TILE - 1) / ROWS_A_TILE, gate_tile, &t);
}

static void gate_grad_columns(const Gate *t, int64_t row, int64_t c, int64_t n) {
    Operand dy = t->a->gate_grad.in.dy, dx = t->a->gate_grad.out.dx, dz = t->a->gate_grad.out.dz;
    float bx[CHUNK], bd[CHUNK], bz[CHUNK], value[CHUNK], slope[CHUNK], out[CHUNK], sum[CHUNK] = {0};
    int64_t group = t->attr.group, at = row * t->cols + t->attr.first + c * group;
    gates_of(value, slope, cpu_read(bz, t->z, row * t->gates + c, n), t->attr.act, n);
    for (int64_t i = 0; i < n * group; i += CHUNK) {
        int64_t k = MIN2(CHUNK, n * group - i);
        const float *x = cpu_read(bx, t->x, at + i, k), *d = cpu_read(bd, dy, at + i, k);
        for (int64_t l = 0; l < k; l++) {
            sum[(i + l) / group] += d[l] * x[l];
            out[l] = d[l] * value[(i + l) / group];
        }
        if (dx.data) cpu_write(dx, at + i, out, k);
    }
    for (int64_t l = 0; l < n; l++) sum[l] *= slope[l];
    if (dz.data) cpu_write(dz, row * t->gates + c, sum, n);
}

static void gate_grad_tile(void *context, int64_t tile, int worker) {
    const Gate *t = context;
    Operand dy = t->a->gate_grad.in.dy, dx = t->a->gate_grad.out.dx;
    int64_t first = t->attr.first, behind = first + t->gates * t->attr.group;
    for (int64_t row = tile * ROWS_A_TILE; row < MIN2((tile + 1) * ROWS_A_TILE, t->rows); row++) {
        if (dx.data) copy_columns(dx, dy, row * t->cols, first);
        for (int64_t c = 0; c < t->gates; c += CHUNK) gate_grad_columns(t, row, c, MIN2(CHUNK, t->gates - c));
        if (dx.data) copy_columns(dx, dy, row * t->cols + behind, t->cols - behind);
    }
}

void cpu_gate_grad(Backend *b, Queue q, const Args *a) {
    Gate t = gate_of(a, a->gate_grad.in.x, a->gate_grad.in.z);
    threads_for(cpu_threads(b), (t.rows + ROWS_A_TILE - 1) / ROWS_A_TILE, gate_grad_tile, &t);
}

static void mix_tile(void *context, int64_t tile, int worker) {
    const Args *a = context;
    Operand other = a->mix.in.b;
    float bx[CHUNK], by[CHUNK], sum[CHUNK];
    AttrMix by_each = a->step->attr.mix;
    int64_t at = tile * CHUNK, n = MIN2(CHUNK, cpu_count(a->mix.out.y.t) - at);
    const float *x = cpu_read(bx, a->mix.in.a, at, n), *y = other.data ? cpu_read(by, other, at, n) : NULL;
    for (int64_t i = 0; i < n; i++) sum[i] = by_each.a * x[i] + (y ? by_each.b * y[i] : 0);
    cpu_write(a->mix.out.y, at, sum, n);
}

void cpu_mix(Backend *b, Queue q, const Args *a) {
    threads_for(cpu_threads(b), (cpu_count(a->mix.out.y.t) + CHUNK - 1) / CHUNK, mix_tile, (void *)a);
}
