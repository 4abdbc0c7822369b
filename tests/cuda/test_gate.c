/* test_gate.c - a product of a few rows that gates what it gives: in one launch the bits of two, on every border of
 * tiles and shares, and the CPU's numbers. */
#include "tests/cuda/cuda_test.h"

typedef struct Shape {
    int64_t m, k;
} Shape;

static Tid normal_matrix(CudaTest *t, Format f, int64_t n, int64_t cols, uint64_t key, double std) {
    Tid id = cuda_test_matrix(t, f, n, cols);
    cuda_test_normal(t, id, key, std);
    return id;
}

/* Runs a part; what it gives on the GPU is there for the next one. */
static void play_part(CudaTest *t, Step s) {
    cuda_test_run(t, s, false);
    Tid given = prog_first_out(&s);
    memcpy(t->initial[given], t->gpu[given], (size_t)prog_bytes(&t->p, given));
}

static void try_gated(int64_t n, Shape s, Format f, Format stored, bool with_bias) {
    CudaTest t;
    cuda_test_open(&t, "linear_swiglu %lldx%lldx%lld %s %s bias %d", (long long)n, (long long)s.m, (long long)s.k,
                   format_name(f), format_name(stored), with_bias);
    Tid x = normal_matrix(&t, f, n, s.k, 1, 1), w = normal_matrix(&t, stored, s.m, s.k, 2, 1 / sqrt((double)s.k));
    Tid gate_up = cuda_test_matrix(&t, f, n, s.m), apart = cuda_test_matrix(&t, f, n, s.m / 2), bias = NONE;
    Tid h = cuda_test_matrix(&t, f, n, s.m / 2);
    if (with_bias) cuda_test_normal(&t, bias = cuda_test_vector(&t, FMT_BF16, s.m), 4, 1);
    if (n % 2) prog_t(&t.p, w)->role = ROLE_WEIGHT; /* state: asked for before what is in front has ended */
    if (n % 2 && bias) prog_t(&t.p, bias)->role = ROLE_WEIGHT;
    play_part(&t,
              (Step){.op = OP_LINEAR, .linear = {.in = {x, w, bias}, .out = {gate_up}}, .attr.linear = {true}});
    play_part(&t, (Step){.op = OP_SWIGLU, .swiglu = {.in = {gate_up}, .out = {apart}}});
    cuda_test_run(&t, (Step){.op = OP_LINEAR_SWIGLU, .linear_swiglu = {.in = {x, w, bias}, .out = {h}}}, false);
    if (!EXPECT(!memcmp(t.gpu[h], t.gpu[apart], (size_t)prog_bytes(&t.p, h)))) test_note("    %s", t.about);
    cuda_test_near(&t, h, 0.06, 0.03); /* halves rounded to 8 bits, and nf4's levels in x's format */
    cuda_test_close(&t);
}

TEST(linear_swiglu_is_its_parts_on_the_gpu) {
    if (!cuda_test_ready()) return;
    static const Shape shapes[] = {{2, 8}, {14, 72}, {34, 136}, {300, 896}, {2112, 64}, {2130, 128},
                                   {8500, 40}, {40, 999}, {64, 4864}};
    static const Format formats[] = {FMT_BF16, FMT_F16, FMT_F32};
    static const int64_t rows[] = {1, 2, 4, 5, 8};
    for (int i = 0; i < COUNT_OF(shapes); i++)
        for (int r = 0; r < COUNT_OF(rows); r++) {
            try_gated(rows[r], shapes[i], formats[(i + r) % 4 % 3], FMT_NF4, i % 2);
            try_gated(rows[r], shapes[i], formats[(i + r) % 4 % 3], FMT_INT8, i % 2 == 0);
        }
}
