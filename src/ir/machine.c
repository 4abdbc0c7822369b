/* machine.c - the device that is assumed when none was asked, and how measured rates are read between their points. */
#include "ir/machine.h"

#include <math.h>
#include <stdio.h>

#include "base/check.h"
#include "base/units.h"

Machine machine_generic_cpu(int threads) {
    Machine m = {
        .kind = MACHINE_CPU, .threads = threads, .align_bytes = 256, .page_bytes = 4096, .source = "estimated"};
    snprintf(m.name, sizeof m.name, "cpu, %d threads", threads);
    m.matrix_flops = 50e9 * threads;
    m.vector_flops = 5e9 * threads;
    m.memory_bytes_per_s = 10e9;
    m.copy_bytes_per_s = 5e9;
    m.step_seconds = 5e-6;
    /* What a process takes beside the arena, measured on Linux with glibc: code and libraries' private pages,
     * heap, and per worker a stack. */
    m.runtime_bytes = 24 * MIB + threads * MIB;
    return m;
}

/* Of the rate in bf16: tensor cores take half as many numbers in tf32 a clock, and reach less of that (163 to 282
 * TFLOP/s on an H200). */
#define TF32_SHARE 0.37

double machine_product_flops(const Machine *m, bool f32) {
    if (!f32 || m->kind == MACHINE_CPU || !(m->f32_flops > 0)) return m->matrix_flops;
    return m->tf32 && m->capability >= 80 ? MAX2(m->f32_flops, TF32_SHARE * m->matrix_flops) : m->f32_flops;
}

/* Between which two of n points v lies, and how far along; outside: the end point. */
static int between(double *share, const int64_t *point, int n, double v) {
    *share = 0;
    if (n < 2 || v <= (double)point[0]) return 0;
    for (int i = 0; i + 1 < n; i++)
        if (v < (double)point[i + 1]) {
            *share = log(v / (double)point[i]) / log((double)point[i + 1] / (double)point[i]);
            return i;
        }
    *share = 1;
    return n - 2;
}

double machine_grid_rate(const MachineGrid *g, int table, double x, double y) {
    if (!g->n_x || !g->n_y) return 0;
    double sx, sy;
    int ix = between(&sx, g->x, g->n_x, x), iy = between(&sy, g->y, g->n_y, y);
    int jx = ix + (sx > 0), jy = iy + (sy > 0);
    const double(*r)[MACHINE_GRID] = g->rate[table];
    return (1 - sx) * ((1 - sy) * r[ix][iy] + sy * r[ix][jy]) + sx * ((1 - sy) * r[jx][iy] + sy * r[jx][jy]);
}
