/* test_gate.c - linear_swiglu has the bits of its two parts. */
#include "tests/ops/bench.h"

typedef struct Shape {
    int64_t n, m, k;
} Shape;

static void try_gated(Shape s, Format f, Format stored, bool with_bias) {
    Bench b;
    bench_open(&b, "linear_swiglu %lldx%lldx%lld %s %s bias %d", (long long)s.n, (long long)s.m, (long long)s.k,
               format_name(f), format_name(stored), with_bias);
    Tid x = bench_draw(&b, f, s.n, s.k, 1), w = bench_draw(&b, stored, s.m, s.k, 2), bias = NONE;
    Tid h = bench_matrix(&b, f, s.n, s.m / 2), apart = bench_matrix(&b, f, s.n, s.m / 2);
    Tid gate_up = bench_matrix(&b, f, s.n, s.m);
    if (with_bias) bench_normal(&b, bias = bench_vector(&b, FMT_BF16, s.m), 3, 1);
    bench_check(&b, (Step){.op = OP_LINEAR_SWIGLU, .linear_swiglu = {.in = {x, w, bias}, .out = {h}}});
    const double *got = bench_now(&b, h);
    bench_run(&b, (Step){.op = OP_LINEAR, .linear = {.in = {x, w, bias}, .out = {gate_up}}, .attr.linear = {true}},
              1, false);
    memcpy(b.initial[gate_up], b.now[gate_up], (size_t)prog_bytes(&b.p, gate_up));
    bench_run(&b, (Step){.op = OP_SWIGLU, .swiglu = {.in = {gate_up}, .out = {apart}}}, 1, false);
    const double *want = bench_now(&b, apart);
    for (int64_t i = 0; i < s.n * s.m / 2; i++)
        if (!EXPECT(got[i] == want[i])) {
            test_note("    %s: number %lld is %g, not %g", b.about, (long long)i, got[i], want[i]);
            break;
        }
    bench_close(&b);
}

TEST(linear_swiglu_is_its_parts) {
    static const Shape shapes[] = {{1, 2, 1}, {1, 6, 5}, {3, 34, 130}, {8, 70, 129}, {5, 40, 600}, {4, 18, 64}};
    static const Format formats[] = {FMT_F32, FMT_BF16}, stored[] = {FMT_INT8, FMT_NF4};
    for (int i = 0; i < COUNT_OF(shapes); i++)
        for (int k = 0; k < 4; k++) try_gated(shapes[i], formats[k / 2], stored[k % 2], (i + k) % 2);
}
