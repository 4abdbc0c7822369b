/* test_few.c - products of a few rows on the GPU against the CPU: weights as they are stored, every way a row of them
 * is shared among warps, whole pieces and single numbers; and that a row's bits do not depend on its company. */
#include "base/rng.h"
#include "tests/cuda/cuda_test.h"

typedef struct Shape {
    int64_t m, k;
} Shape;
static const Shape shapes[] = {{1, 1},     {3, 8},     {17, 63},   {33, 64},    {5, 72},     {130, 200},
                               {40, 1000}, {64, 4096}, {896, 896}, {3584, 512}, {20, 18944}, {9000, 128}};
static const int64_t rows[] = {1, 2, 3, 4, 5, 8, 9, 16, 17, 33, 64, 100};

static Tid normal_matrix(CudaTest *t, Format f, int64_t n, int64_t cols, uint64_t key) {
    Tid id = cuda_test_matrix(t, f, n, cols);
    cuda_test_normal(t, id, key, 1);
    return id;
}

/* Two fp32 sums of k products of normal numbers, added in other orders. */
static double slack(int64_t k) { return 2e-6 + 6e-6 * sqrt((double)k) + 2e-7 * (double)k; }

/* Tensor cores, which sum up 16-bit numbers, cut a sum off after every 16 products instead of rounding it: half a
 * unit of 2^-23 on average, always towards 0, of a sum that is 2 sqrt(k) on its way, where it ends far out. */
static double cut_off(int64_t k) { return 0x1p-24 * (double)k / 16 * 2 * sqrt((double)k); }

/* nf4's levels stand in x's format: 0.08 %, 0.01 % off by the root of their mean square. Six times that, of sqrt(k). */
static double levels(int64_t k, Format x) {
    return (x == FMT_BF16 ? 0.0048 : x == FMT_F16 ? 0.0006 : 0) * sqrt((double)k);
}

static void try_few(int64_t n, Shape s, Format x_format, Format w_format, bool head, bool with_bias) {
    CudaTest t;
    cuda_test_open(&t, "%s of few rows %lldx%lldx%lld x %s w %s bias %d", head ? "logits" : "linear", (long long)n,
                   (long long)s.m, (long long)s.k, format_name(x_format), format_name(w_format), with_bias);
    bool plain = format_table[w_format].plain;
    Tid x = normal_matrix(&t, x_format, n, s.k, 1), w = normal_matrix(&t, w_format, s.m, s.k, 2), bias = NONE;
    if (n % 2) prog_t(&t.p, w)->role = ROLE_WEIGHT; /* state: asked for before what is in front has ended */
    if (with_bias) cuda_test_normal(&t, bias = cuda_test_vector(&t, FMT_BF16, s.m), 3, 1);
    Tid y = cuda_test_matrix(&t, head ? FMT_F32 : x_format, n, s.m);
    Step linear = {.op = OP_LINEAR, .linear = {.in = {x, w, bias}, .out = {y}}, .attr.linear = {!plain}};
    Step logits = {.op = OP_HEAD_LOGITS, .head_logits = {.in = {x, w}, .out = {y}}};
    cuda_test_run(&t, head ? logits : linear, false);
    double sums =
        slack(s.k) + (x_format == FMT_F32 ? 0 : cut_off(s.k)) + (w_format == FMT_NF4 ? levels(s.k, x_format) : 0);
    /* the library rounds twice */
    double half = !plain || x_format == FMT_F32 ? 0 : x_format == FMT_BF16 ? 0x1p-8 : 0x1p-11;
    if (!head && with_bias && half) cuda_test_near(&t, y, sums + 6 * half, 4 * half);
    else cuda_test_expect(&t, y, sums);
    cuda_test_close(&t);
}

TEST(few_rows_times_quantised_weights_on_the_gpu) {
    if (!cuda_test_ready()) return;
    static const Format formats[] = {FMT_F32, FMT_BF16, FMT_F16};
    for (int i = 0; i < COUNT_OF(shapes); i++)
        for (int r = 0; r < COUNT_OF(rows); r++)
            for (int f = 0; f < COUNT_OF(formats); f++) {
                if (rows[r] > 16 && f != (i + r) % 3) continue;
                try_few(rows[r], shapes[i], formats[f], FMT_INT8, (i + r) % 3 == 0, (i + r) % 3 == 1);
                try_few(rows[r], shapes[i], formats[f], FMT_NF4, (i + r) % 3 == 1, (i + r) % 3 == 2);
            }
}

TEST(few_rows_times_plain_weights_on_the_gpu) {
    if (!cuda_test_ready()) return;
    static const Format formats[] = {FMT_F32, FMT_BF16, FMT_F16};
    for (int i = 0; i < COUNT_OF(shapes); i++)
        for (int r = 0; r < 5; r++)
            for (int f = 0; f < COUNT_OF(formats); f++)
                try_few(rows[r], shapes[i], formats[f], formats[f], (i + r) % 2 == 0, (i + r) % 2 == 1 && (i & 2));
}

/* The same row alone and as one of four. */
TEST(a_row_of_few_has_the_same_bits_in_any_company) {
    if (!cuda_test_ready()) return;
    static const Format stored[] = {FMT_BF16, FMT_INT8, FMT_NF4};
    enum { M = 300, K = 2048 };
    for (int f = 0; f < COUNT_OF(stored); f++) {
        uint16_t kept[M];
        for (int64_t n = 1; n <= 4; n += 3) {
            CudaTest t;
            cuda_test_open(&t, "%lld rows of bf16 times %s", (long long)n, format_name(stored[f]));
            t.whole = true;
            Tid x = normal_matrix(&t, FMT_BF16, n, K, 9), w = normal_matrix(&t, stored[f], M, K, 8),
                y = cuda_test_matrix(&t, FMT_BF16, n, M);
            Step step = {.op = OP_LINEAR, .linear = {.in = {x, w}, .out = {y}}, .attr.linear = {f > 0}};
            cuda_test_run(&t, step, false); /* row 0 of x has the same numbers: they are keyed by their place */
            if (n == 1) memcpy(kept, t.gpu[y], sizeof kept);
            else if (!EXPECT(!memcmp(kept, t.gpu[y], sizeof kept))) test_note("    %s", t.about);
            cuda_test_close(&t);
        }
    }
}
