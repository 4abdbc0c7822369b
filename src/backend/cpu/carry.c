/* carry.c - carry_sums, carry_apply, and the arithmetic on a correction that sgd_carry (update.c) shares with them. */
#include "backend/cpu/carry.h"

#include <string.h>

enum { CHUNK = 1024, LANES = 8, TILE = CARRY_TILE };

/* ---- one chunk ---- */

CpuCarry cpu_carry_of(const Args *a) {
    const AttrUpdate *k = &a->step->attr.update;
    const float *dial = a->sgd_carry.in.carry.data;
    double lr = (double)dial[CARRY_LR] * (double)k->lr_mult, scale = (double)dial[CARRY_KEEP];
    double keep = 1 - lr * ((double)k->weight_decay + (double)dial[CARRY_DAMPING]);
    return (CpuCarry){.keep = (float)(scale * keep),
                      .times = (float)(scale * lr * (double)dial[CARRY_TIMES]),
                      .remove = dial[CARRY_REMOVE],
                      .none = scale == 0,
                      .tiles = a->workspace};
}

CPU_VECTOR static void step(float *restrict v, const float *restrict g, const float *restrict u, int64_t n, float keep,
                            float times, float remove) {
    for (int64_t i = 0; i < n; i++) v[i] = keep * v[i] - times * g[i] - remove * u[i];
}

CPU_VECTOR static void begin(float *restrict v, const float *restrict u, int64_t n, float remove) {
    for (int64_t i = 0; i < n; i++) v[i] = -remove * u[i];
}

void cpu_carry_step(float *v, const float *g, const float *u, int64_t n, const CpuCarry *c) {
    if (c->none)
        begin(v, u, n, c->remove);
    else
        step(v, g, u, n, c->keep, c->times, c->remove);
}

static double sum_of_lanes(double *lane) {
    for (int width = LANES / 2; width; width /= 2)
        for (int l = 0; l < width; l++) lane[l] += lane[l + width];
    return lane[0];
}

CPU_VECTOR static void add_products(double *restrict vu, double *restrict uu, double *restrict vv,
                                    const float *restrict v, const float *restrict u, int64_t n) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) {
            double a = (double)v[i + l], b = (double)u[i + l];
            vu[l] += a * b, uu[l] += b * b, vv[l] += a * a;
        }
    for (int l = 0; i + l < n; l++) {
        double a = (double)v[i + l], b = (double)u[i + l];
        vu[l] += a * b, uu[l] += b * b, vv[l] += a * a;
    }
}

void cpu_carry_add(double *sums, const float *v, const float *u, int64_t n) {
    double lane[CARRY_SUMS][LANES] = {0};
    add_products(lane[CARRY_VU], lane[CARRY_UU], lane[CARRY_VV], v, u, n);
    for (int k = 0; k < CARRY_SUMS; k++) sums[k] += sum_of_lanes(lane[k]);
}

void cpu_carry_join(double *sums, const double *tiles, int64_t n_tiles) {
    memset(sums, 0, CARRY_SUMS * sizeof *sums);
    for (int64_t i = 0; i < n_tiles; i++)
        for (int k = 0; k < CARRY_SUMS; k++) sums[k] += tiles[i * CARRY_SUMS + k];
}

/* ---- the two ops ---- */

static double *begin_tile(const Args *a, int64_t tile) {
    double *sums = (double *)a->workspace + tile * CARRY_SUMS;
    return memset(sums, 0, CARRY_SUMS * sizeof *sums);
}

static void for_tiles(Backend *b, const Args *a, int64_t count, TileFn *fn, Operand sums) {
    int64_t tiles = (count + TILE - 1) / TILE;
    CHECK(a->workspace_bytes >= tiles * CARRY_SUMS * (int64_t)sizeof(double));
    threads_for(cpu_threads(b), tiles, fn, (void *)a);
    cpu_carry_join(sums.data, a->workspace, tiles);
}

static void sums_tile(void *context, int64_t tile, int worker) {
    const Args *a = context;
    float buffer[CHUNK];
    double *sums = begin_tile(a, tile);
    const float *v = a->carry_sums.in.correction.data;
    int64_t end = MIN2((tile + 1) * TILE, cpu_count(a->carry_sums.in.g.t));
    for (int64_t i = tile * TILE; i < end; i += CHUNK) {
        int64_t n = MIN2(CHUNK, end - i);
        cpu_carry_add(sums, v + i, cpu_read(buffer, a->carry_sums.in.g, i, n), n);
    }
}

void cpu_carry_sums(Backend *b, Queue q, const Args *a) {
    CHECK(a->carry_sums.in.correction.t->format == FMT_F32);
    for_tiles(b, a, cpu_count(a->carry_sums.in.g.t), sums_tile, a->carry_sums.out.sums);
}

static void apply_chunk(const Args *a, double *sums, int64_t i, int64_t n) {
    Operand weight = a->carry_apply.out.weight, master = a->carry_apply.out.master;
    Operand theta = master.data ? master : weight;
    const float *stored = (const float *)a->carry_apply.in.correction.data + i;
    float before[CHUNK], after[CHUNK], v[CHUNK], keep = ((const float *)a->carry_apply.in.carry.data)[CARRY_KEEP];
    for (int64_t k = 0; k < n; k++) v[k] = keep == 0 ? 0 : keep * stored[k];
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
    double *sums = begin_tile(a, tile);
    int64_t end = MIN2((tile + 1) * TILE, cpu_count(a->carry_apply.out.weight.t));
    for (int64_t i = tile * TILE; i < end; i += CHUNK) apply_chunk(a, sums, i, MIN2(CHUNK, end - i));
}

void cpu_carry_apply(Backend *b, Queue q, const Args *a) {
    CHECK(a->carry_apply.in.correction.t->format == FMT_F32);
    CHECK_MSG(a->carry_apply.in.weight.data == a->carry_apply.out.weight.data, "a weight is changed where it stands%s",
              "");
    for_tiles(b, a, cpu_count(a->carry_apply.out.weight.t), apply_tile, a->carry_apply.out.sums);
}
