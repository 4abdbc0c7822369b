/* test_random.c - roundings at random lean to neither side, and draw what their clock says. */
#include "base/half.h"
#include "base/rng.h"
#include "tests/ops/bench.h"

enum { N = 1 << 16 };
static const double ULP = 0x1p-7; /* of bf16 at 1 */

/* How far the mean of N roundings of a number between 1 and 1+ULP may stray: five standard deviations. */
static const double STRAY = 5 * 0.5 * 0x1p-7 / 256;

static double mean_of(Bench *b, Tid t) {
    const double *x = bench_now(b, t);
    double mean = 0;
    for (int i = 0; i < N; i++) {
        mean += x[i] / N;
        if (x[i] != 1 && x[i] != 1 + ULP) EXPECT(!"a neighbour of the exact sum");
    }
    return mean;
}

/* A gradient of 1 to which `part` of a unit is added: by the gradient of an embedding. */
TEST(gradients_round_without_bias) {
    static const double parts[] = {0.125, 0.5, 0.9};
    for (int k = 0; k < COUNT_OF(parts); k++) {
        Bench b;
        bench_open(&b, "1 + %g units", parts[k]);
        Tid dx = bench_matrix(&b, FMT_F32, 1, N), ids = bench_vector(&b, FMT_I32, 1);
        Tid d = bench_matrix(&b, FMT_BF16, 1, N);
        Tid clock = bench_clock(&b, 4), later = bench_clock(&b, 5);
        double *x = bench_doubles(&b, N), *ones = bench_doubles(&b, N);
        for (int i = 0; i < N; i++) x[i] = parts[k] * ULP, ones[i] = 1;
        bench_set(&b, dx, x);
        bench_set(&b, d, ones);
        bench_set_i32(&b, ids, (const int32_t[]){0});
        Step s = {.op = OP_EMBED_GRAD,
                  .embed_grad = {.in = {.dx = dx, .ids = ids, .id_order = ids, .clock = clock}, .out = {d}}};
        bench_check(&b, s);
        EXPECT_NEAR(mean_of(&b, d), 1 + parts[k] * ULP, STRAY);
        double *first = bench_now(&b, d);
        s.embed_grad.in.clock = later;
        bench_run(&b, s, 1, false);
        EXPECT(memcmp(first, bench_now(&b, d), N * sizeof *first)); /* another clock, other roundings */
        EXPECT_NEAR(mean_of(&b, d), 1 + parts[k] * ULP, STRAY);
        bench_close(&b);
    }
}

/* Weights and moments of an update that moves each by a third of a unit. */
TEST(updates_round_without_bias) {
    Bench b;
    bench_open(&b, "sgd on bf16");
    Tid w = bench_matrix(&b, FMT_BF16, 1, N), g = bench_matrix(&b, FMT_F32, 1, N);
    Tid m = bench_matrix(&b, FMT_BF16, 1, N);
    Tid dials = bench_vector(&b, FMT_F32, DIAL_WORDS), verdict = bench_vector(&b, FMT_F64, VERDICT_WORDS);
    Tid clock = bench_clock(&b, 6);
    double *ones = bench_doubles(&b, N), *third = bench_doubles(&b, N);
    for (int i = 0; i < N; i++) ones[i] = 1, third[i] = ULP / 3;
    bench_set(&b, w, ones);
    bench_set(&b, m, ones);
    bench_set(&b, g, third); /* m becomes 1 + a third of a unit, w becomes 1 + 2^-7 * that / 4 */
    bench_set(&b, dials, (const double[]){-ULP / 4, 1, 1});
    bench_set(&b, verdict, (const double[]){1, 1, 1});
    bench_check(
        &b, (Step){.op = OP_SGD,
                   .sgd = {.in = {.weight = w, .g = g, .m = m, .dials = dials, .verdict = verdict, .clock = clock},
                           .out = {w, m}},
                   .attr.update = {.beta1 = 1, .lr_mult = 1}});
    EXPECT_NEAR(mean_of(&b, m), 1 + ULP / 3, STRAY);
    EXPECT_NEAR(mean_of(&b, w), 1 + ULP / 4 * (1 + ULP / 3), STRAY);
    /* the bits are those that rng.h names: the step's key, the element, turn 0 for the weight and 1 for m */
    uint64_t key = rng_fold(rng_fold(6, 0), 7);
    int64_t off = 0;
    for (int i = 0; i < N; i++) {
        float moment = 1.0f + (float)(ULP / 3), weight = 1.0f - (float)(-ULP / 4) * moment;
        off += ((const uint16_t *)b.now[m])[i] != half_to_bf16_random(moment, rng_u16(key, (uint64_t)i, 1));
        off += ((const uint16_t *)b.now[w])[i] != half_to_bf16_random(weight, rng_u16(key, (uint64_t)i, 0));
    }
    EXPECT(off == 0);
    /* the two draw different numbers: the share of places where both went up is the product of the shares */
    const double *x = bench_now(&b, w), *y = bench_now(&b, m);
    double both = 0;
    for (int i = 0; i < N; i++) both += (x[i] > 1 && y[i] > 1) / (double)N;
    EXPECT_NEAR(both, 1.0 / 12, 0.006);
    bench_close(&b);
}
