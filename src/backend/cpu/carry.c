/* carry.c - carry_apply, and the arithmetic on a correction that sgd_carry (update.c) shares with it. */
#include "backend/cpu/carry.h"

#include <string.h>

enum { CHUNK = 1024, LANES = 8, TILE = CARRY_TILE };

/* ---- one chunk ---- */

CpuCarry cpu_carry_of(const Args *a, Operand dials) {
    const AttrUpdate *k = &a->step->attr.update;
    const float *dial = dials.data;
    double lr = (double)dial[CARRY_LR] * (double)k->lr_mult, scale = (double)dial[CARRY_KEEP];
    double keep = 1 - lr * ((double)k->weight_decay + (double)dial[CARRY_DAMPING]);
    return (CpuCarry){.keep = (float)(scale * keep),
                      .times = (float)(scale * lr * (double)dial[CARRY_TIMES]),
                      .remove = dial[CARRY_REMOVE],
                      .none = scale == 0,
                      .tiles = a->workspace};
}

CPU_VECTOR static void step(float *restrict v, const float *restrict last, const float *restrict u, int64_t n,
                            float keep, float times, float remove) {
    for (int64_t i = 0; i < n; i++) v[i] = keep * v[i] - times * last[i] - remove * u[i];
}

CPU_VECTOR static void begin(float *restrict v, const float *restrict u, int64_t n, float remove) {
    for (int64_t i = 0; i < n; i++) v[i] = -remove * u[i];
}

void cpu_carry_step(float *v, const float *last, const float *u, int64_t n, const CpuCarry *c) {
    if (c->none)
        begin(v, u, n, c->remove);
    else
        step(v, last, u, n, c->keep, c->times, c->remove);
}

static double sum_of_lanes(double *lane) {
    for (int width = LANES / 2; width; width /= 2)
        for (int l = 0; l < width; l++) lane[l] += lane[l + width];
    return lane[0];
}

CPU_VECTOR static void add_products(double *restrict vx, double *restrict xx, double *restrict vv,
                                    const float *restrict v, const float *restrict x, int64_t n) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) {
            double a = (double)v[i + l], b = (double)x[i + l];
            vx[l] += a * b, xx[l] += b * b, vv[l] += a * a;
        }
    for (int l = 0; i + l < n; l++) {
        double a = (double)v[i + l], b = (double)x[i + l];
        vx[l] += a * b, xx[l] += b * b, vv[l] += a * a;
    }
}

void cpu_carry_add(double *sums, const float *v, const float *x, int64_t n) {
    double lane[CARRY_SUMS][LANES] = {0};
    add_products(lane[CARRY_VX], lane[CARRY_XX], lane[CARRY_VV], v, x, n);
    for (int k = 0; k < CARRY_SUMS; k++) sums[k] += sum_of_lanes(lane[k]);
}

void cpu_carry_join(double *sums, const double *tiles, int64_t n_tiles) {
    memset(sums, 0, CARRY_SUMS * sizeof *sums);
    for (int64_t i = 0; i < n_tiles; i++)
        for (int k = 0; k < CARRY_SUMS; k++) sums[k] += tiles[i * CARRY_SUMS + k];
}

/* ---- added to the weights ---- */

static void apply_chunk(const Args *a, double *sums, int64_t i, int64_t n) {
    static const float none[CHUNK];
    Operand weight = a->carry_apply.out.weight, master = a->carry_apply.out.master;
    Operand theta = master.data ? master : weight;
    CpuCarry c = cpu_carry_of(a, a->carry_apply.in.carry);
    float before[CHUNK], after[CHUNK], v[CHUNK], buffer[CHUNK];
    cpu_load(v, a->carry_apply.in.correction.data, FMT_F32, i, n);
    cpu_carry_step(v, cpu_read(buffer, a->carry_apply.in.last, i, n), none, n, &c);
    cpu_load(before, theta.data, theta.t->format, i, n);
    for (int64_t k = 0; k < n; k++) after[k] = before[k] + v[k];
    if (master.data) cpu_write(master, i, after, n);
    cpu_write(weight, i, after, n);
    cpu_load(after, theta.data, theta.t->format, i, n);
    for (int64_t k = 0; k < n; k++) after[k] -= before[k];
    cpu_carry_add(sums, v, after, n);
}

static void apply_tile(void *context, int64_t tile, int worker) {
    const Args *a = context;
    double *sums = (double *)a->workspace + tile * CARRY_SUMS;
    int64_t end = MIN2((tile + 1) * TILE, cpu_count(a->carry_apply.out.weight.t));
    memset(sums, 0, CARRY_SUMS * sizeof *sums);
    for (int64_t i = tile * TILE; i < end; i += CHUNK) apply_chunk(a, sums, i, MIN2(CHUNK, end - i));
}

void cpu_carry_apply(Backend *b, Queue q, const Args *a) {
    Operand weight = a->carry_apply.out.weight;
    int64_t tiles = (cpu_count(weight.t) + TILE - 1) / TILE;
    CHECK(a->workspace_bytes >= tiles * CARRY_SUMS * (int64_t)sizeof(double));
    CHECK(a->carry_apply.in.correction.t->format == FMT_F32 && a->carry_apply.in.weight.data == weight.data);
    threads_for(cpu_threads(b), tiles, apply_tile, (void *)a);
    cpu_carry_join(a->carry_apply.out.sums.data, a->workspace, tiles);
}
