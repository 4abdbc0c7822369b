/* test_move.c - fills, copies and decoded weights. */
#include "base/rng.h"
#include "tests/ops/bench.h"

static double drawn(const AttrFill *k, int64_t i) {
    switch (k->kind) {
        case FILL_NORMAL: return k->scale * rng_normal(k->key, (uint64_t)i);
        case FILL_UNIFORM: return k->scale * (2.0f * rng_uniform(k->key, (uint64_t)i) - 1.0f);
        default: return k->scale;
    }
}

static void fill_case(Format f, FillKind kind, int64_t rows, int64_t cols) {
    Bench b;
    AttrFill k = {.kind = kind, .scale = 0.75f, .key = 1234};
    bench_open(&b, "fill %d of %s, %lld x %lld", kind, format_name(f), (long long)rows, (long long)cols);
    Tid t = bench_matrix(&b, f, rows, cols), want = bench_matrix(&b, f, rows, cols);
    double *x = bench_doubles(&b, rows * cols);
    for (int64_t i = 0; i < rows * cols; i++) x[i] = drawn(&k, i);
    bench_set(&b, want, x); /* rounded to nearest by the format's own encoding */
    bench_check(&b, (Step){.op = OP_FILL, .fill = {.out = {t}}, .attr.fill = k});
    EXPECT(!memcmp(b.now[t], b.initial[want], (size_t)prog_bytes(&b.p, t)));
    bench_close(&b);
}

TEST(fill_is_by_key_and_element) {
    static const Format formats[] = {FMT_F32, FMT_BF16, FMT_F16, FMT_INT8, FMT_NF4, FMT_MOM8, FMT_F64};
    static const int64_t shapes[][2] = {{1, 1}, {3, 77}, {40, 1030}};
    for (int f = 0; f < COUNT_OF(formats); f++)
        for (int s = 0; s < COUNT_OF(shapes); s++)
            for (int kind = FILL_CONSTANT; kind <= FILL_UNIFORM; kind++)
                fill_case(formats[f], kind, shapes[s][0], shapes[s][1]);
    fill_case(FMT_VAR8, FILL_CONSTANT, 5, 300);
}

TEST(fill_has_the_right_spread) {
    Bench b;
    enum { N = 200000 };
    bench_open(&b, "fill of %d", N);
    Tid t = bench_vector(&b, FMT_F32, N);
    for (int kind = FILL_NORMAL; kind <= FILL_UNIFORM; kind++) {
        bench_run(
            &b,
            (Step){.op = OP_FILL, .fill = {.out = {t}}, .attr.fill = {.kind = kind, .scale = 0.02f, .key = 99}}, 2,
            false);
        const double *x = bench_now(&b, t);
        double mean = 0, square = 0, neighbours = 0, most = 0;
        for (int i = 0; i < N; i++) {
            mean += x[i] / N;
            square += x[i] * x[i] / N;
            if (i) neighbours += x[i] * x[i - 1] / N;
            most = fmax(most, fabs(x[i]));
        }
        double std = kind == FILL_NORMAL ? 0.02 : 0.02 / sqrt(3);
        EXPECT_NEAR(mean, 0, 5 * std / sqrt(N));
        EXPECT_NEAR(sqrt(square), std, 5 * std / sqrt(N));
        EXPECT_NEAR(neighbours, 0, 5 * std * std / sqrt(N));
        EXPECT(kind == FILL_UNIFORM ? most <= 0.02 && most > 0.0199 : most > 0.08 && most < 0.12);
    }
    bench_close(&b);
}

TEST(copy_keeps_bytes) {
    Bench b;
    bench_open(&b, "copy");
    Tid x = bench_matrix(&b, FMT_INT8, 37, 1001), y = bench_matrix(&b, FMT_INT8, 37, 1001);
    bench_normal(&b, x, 1, 1);
    bench_check(&b, (Step){.op = OP_COPY, .copy = {.in = {x}, .out = {y}}, .queue = QUEUE_COPY_IN});
    EXPECT(!memcmp(b.now[y], b.initial[x], (size_t)prog_bytes(&b.p, x)));
    bench_close(&b);
}

TEST(decode_gives_what_the_format_says) {
    static const Format stored[] = {FMT_INT8, FMT_NF4, FMT_BF16, FMT_F16, FMT_F32},
                        dense[] = {FMT_F32, FMT_BF16, FMT_F16};
    for (int s = 0; s < COUNT_OF(stored); s++)
        for (int d = 0; d < COUNT_OF(dense); d++) {
            Bench b;
            bench_open(&b, "decode %s to %s", format_name(stored[s]), format_name(dense[d]));
            Tid x = bench_matrix(&b, stored[s], 9, 1500), y = bench_matrix(&b, dense[d], 9, 1500);
            bench_normal(&b, x, 1, 1);
            bench_check(&b, (Step){.op = OP_DECODE, .decode = {.in = {x}, .out = {y}}});
            bench_expect(&b, y, bench_initial(&b, x), 0);
            bench_close(&b);
        }
}
