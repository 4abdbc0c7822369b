/* test_elementwise.c - SwiGLU, its gradient and add, against doubles. */
#include "tests/ops/bench.h"

static const Format formats[] = {FMT_F32, FMT_BF16, FMT_F16};
static const int64_t shapes[][2] = {{1, 1}, {3, 5}, {17, 33}, {9, 1536}, {2, 2051}, {600, 3}};

typedef struct Gate {
    int64_t n, cols;
    double *x, *dh; /* (n, 2 cols), (n, cols) */
} Gate;

static double silu(double g) { return g / (1 + exp(-g)); }

static double loss(void *context) {
    const Gate *k = context;
    double sum = 0;
    for (int64_t i = 0; i < k->n; i++)
        for (int64_t c = 0; c < k->cols; c++)
            sum += k->dh[i * k->cols + c] * silu(k->x[i * 2 * k->cols + c]) * k->x[i * 2 * k->cols + k->cols + c];
    return sum;
}

static void gate_case(Format f, int64_t n, int64_t cols, double spread, bool differences) {
    Bench b;
    bench_open(&b, "swiglu %s, %lld x %lld, gates to %g", format_name(f), (long long)n, (long long)cols, spread);
    Tid x = bench_matrix(&b, f, n, 2 * cols), h = bench_matrix(&b, f, n, cols), dh = bench_matrix(&b, f, n, cols);
    Tid dx = bench_matrix(&b, f, n, 2 * cols);
    bench_normal(&b, x, 1, spread);
    bench_normal(&b, dh, 2, 1);
    Gate k = {n, cols, bench_initial(&b, x), bench_initial(&b, dh)};
    double *want = bench_doubles(&b, n * cols), *want_dx = bench_doubles(&b, n * 2 * cols);
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < cols; c++) {
            double g = k.x[i * 2 * cols + c], u = k.x[i * 2 * cols + cols + c], s = 1 / (1 + exp(-g));
            double d = k.dh[i * cols + c];
            want[i * cols + c] = silu(g) * u;
            want_dx[i * 2 * cols + c] = d * u * s * (1 + g * (1 - s));
            want_dx[i * 2 * cols + cols + c] = d * silu(g);
        }
    bench_check(&b, (Step){.op = OP_SWIGLU, .swiglu = {.in = {x}, .out = {h}}});
    bench_expect(&b, h, want, 1e-6 * spread * spread);
    bench_check(&b, (Step){.op = OP_SWIGLU_GRAD, .swiglu_grad = {.in = {dh, x}, .out = {dx}}});
    bench_expect(&b, dx, want_dx, 3e-6 * spread * spread);
    if (differences) bench_differences(&b, "dx", k.x, bench_now(&b, dx), n * 2 * cols, loss, &k, 1e-5);
    bench_close(&b);
}

TEST(swiglu_is_its_formula) {
    for (int f = 0; f < COUNT_OF(formats); f++)
        for (int s = 0; s < COUNT_OF(shapes); s++) gate_case(formats[f], shapes[s][0], shapes[s][1], 2, false);
    gate_case(FMT_F32, 40, 50, 60, false); /* gates far beyond where e^-gate overflows */
    gate_case(FMT_F32, 3, 7, 1, true);
}

TEST(add_is_a_sum) {
    for (int f = 0; f < COUNT_OF(formats); f++)
        for (int s = 0; s < COUNT_OF(shapes); s++) {
            Bench b;
            int64_t n = shapes[s][0], c = shapes[s][1] * 7;
            bench_open(&b, "add %s, %lld x %lld", format_name(formats[f]), (long long)n, (long long)c);
            Tid x = bench_matrix(&b, formats[f], n, c), y = bench_matrix(&b, formats[f], n, c);
            Tid z = bench_matrix(&b, formats[f], n, c);
            bench_normal(&b, x, 1, 1);
            bench_normal(&b, y, 2, 1);
            double *want = bench_initial(&b, x), *other = bench_initial(&b, y);
            for (int64_t i = 0; i < n * c; i++) want[i] += other[i];
            bench_check(&b, (Step){.op = OP_ADD, .add = {.in = {x, y}, .out = {z}}});
            bench_expect(&b, z, want, 1e-7);
            bench_close(&b);
        }
}
