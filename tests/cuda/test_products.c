/* test_products.c - linear and lora with all their gradients on the GPU against the CPU, on every kind of border. */
#include "base/rng.h"
#include "base/units.h"
#include "ir/product_device.h"
#include "tests/cuda/cuda_test.h"

typedef struct Shape {
    int64_t n, m, k;
} Shape;

static const Shape shapes[] = {
    {1, 1, 1},       {1, 7, 5},       {2, 40, 600},     {3, 33, 17},       {8, 70, 129},  {9, 31, 65},
    {64, 3, 1},      {127, 129, 128}, {129, 127, 64},   {40, 50, 1500},    {700, 40, 30}, {30, 1100, 20},
    {256, 384, 512}, {512, 64, 2048}, {2048, 128, 256}, {1024, 1000, 896},
};

typedef struct Kinds {
    Format x, w, g; /* activations, weights, gradients of weights */
} Kinds;

static const Kinds kinds[] = {
    {FMT_F32, FMT_F32, FMT_F32}, {FMT_BF16, FMT_BF16, FMT_BF16}, {FMT_F32, FMT_BF16, FMT_F32},
    {FMT_F16, FMT_F16, FMT_F32}, {FMT_BF16, FMT_F32, FMT_F32},
};

/* What two fp32 sums of k products of normal numbers may differ by. A weight in fp32 is cast to the activations'
 * bf16: half a unit in its last place each, which adds up like a random walk; 6 of its deviations. */
static double slack(int64_t k, Kinds f) {
    double sums = 2e-6 + 4e-6 * sqrt((double)k) + 2e-7 * (double)k;
    return f.x != FMT_F32 && f.w == FMT_F32 ? sums + 0x1p-8 * 0.58 * 6 * sqrt((double)k) : sums;
}

/* The library rounds a 16-bit product once before it adds a bias or what was there so far: up to half a unit in the
 * last place of the product, which is no larger than the result and the number added (at most 6 deviations)
 * together. */
static void expect_added(CudaTest *t, Tid id, double tolerance, Format f, bool added) {
    double half = f == FMT_BF16 ? 0x1p-8 : f == FMT_F16 ? 0x1p-11 : 0;
    if (!added || !half) cuda_test_expect(t, id, tolerance);
    else cuda_test_near(t, id, tolerance + 6 * half, 4 * half);
}

static Tid normal_matrix(CudaTest *t, Format f, int64_t rows, int64_t cols, uint64_t key) {
    Tid id = cuda_test_matrix(t, f, rows, cols);
    cuda_test_normal(t, id, key, 1);
    return id;
}

/* ---- linear ---- */

static void try_linear(Shape s, Kinds f, bool with_bias) {
    CudaTest t;
    cuda_test_open(&t, "linear %lldx%lldx%lld %s %s bias %d", (long long)s.n, (long long)s.m, (long long)s.k,
                   format_name(f.x), format_name(f.w), with_bias);
    Tid x = normal_matrix(&t, f.x, s.n, s.k, 1), w = normal_matrix(&t, f.w, s.m, s.k, 2), bias = NONE;
    if (with_bias) cuda_test_normal(&t, bias = cuda_test_vector(&t, f.w, s.m), 3, 1);
    Tid y = cuda_test_matrix(&t, f.x, s.n, s.m);
    cuda_test_run(&t, (Step){.op = OP_LINEAR, .linear = {.in = {x, w, bias}, .out = {y}}}, false);
    expect_added(&t, y, slack(s.k, f) + (f.w == FMT_F32 && f.x != FMT_F32 ? 0.02 : 0), f.x, with_bias);
    cuda_test_close(&t);
}

static void try_adding(Shape s, Kinds f, bool with_bias) {
    CudaTest t;
    cuda_test_open(&t, "linear so_far %lldx%lldx%lld %s %s bias %d", (long long)s.n, (long long)s.m, (long long)s.k,
                   format_name(f.x), format_name(f.w), with_bias);
    Tid x = normal_matrix(&t, f.x, s.n, s.k, 1), w = normal_matrix(&t, f.w, s.m, s.k, 2), bias = NONE;
    if (with_bias) cuda_test_normal(&t, bias = cuda_test_vector(&t, f.w, s.m), 3, 1);
    Tid so_far = normal_matrix(&t, f.x, s.n, s.m, 4), y = cuda_test_matrix(&t, f.x, s.n, s.m);
    Step step = {.op = OP_LINEAR, .linear = {.in = {.x = x, .w = w, .bias = bias, .so_far = so_far}, .out = {y}}};
    for (int in_place = 0; in_place <= cuda_test_shares(&step); in_place++) {
        cuda_test_run(&t, step, in_place);
        expect_added(&t, y, slack(s.k, f) + (f.w == FMT_F32 && f.x != FMT_F32 ? 0.02 : 0), f.x, true);
    }
    cuda_test_close(&t);
}

TEST(linear_adds_to_what_is_there_on_the_gpu) {
    if (!cuda_test_ready()) return;
    for (int i = 0; i < COUNT_OF(shapes); i++)
        for (int k = 0; k < COUNT_OF(kinds); k++) try_adding(shapes[i], kinds[k], (i + k) % 2);
}

TEST(linear_on_the_gpu) {
    if (!cuda_test_ready()) return;
    for (int i = 0; i < COUNT_OF(shapes); i++)
        for (int k = 0; k < COUNT_OF(kinds); k++)
            try_linear(shapes[i], kinds[k], false), try_linear(shapes[i], kinds[k], true);
}

static void try_dx(Shape s, Kinds f, bool with_so_far) {
    CudaTest t;
    cuda_test_open(&t, "linear_dx %lldx%lldx%lld %s %s so_far %d", (long long)s.n, (long long)s.m, (long long)s.k,
                   format_name(f.x), format_name(f.w), with_so_far);
    Tid dy = normal_matrix(&t, f.x, s.n, s.m, 1), w = normal_matrix(&t, f.w, s.m, s.k, 2);
    Tid so_far = with_so_far ? normal_matrix(&t, f.x, s.n, s.k, 3) : NONE,
        dx = cuda_test_matrix(&t, f.x, s.n, s.k);
    Step step = {.op = OP_LINEAR_DX, .linear_dx = {.in = {dy, w, so_far}, .out = {dx}}};
    for (int in_place = 0; in_place <= cuda_test_shares(&step); in_place++) {
        cuda_test_run(&t, step, in_place);
        expect_added(&t, dx, slack(s.m, f), f.x, with_so_far);
    }
    cuda_test_close(&t);
}

TEST(linear_dx_on_the_gpu) {
    if (!cuda_test_ready()) return;
    for (int i = 0; i < COUNT_OF(shapes); i++)
        for (int k = 0; k < COUNT_OF(kinds); k++)
            try_dx(shapes[i], kinds[k], true), try_dx(shapes[i], kinds[k], false);
}

/* beta < 0: no dial, which means 1; 0: what is there is poison, and must not be read. */
static Tid gradient(CudaTest *t, Format f, int64_t rows, int64_t cols, double beta) {
    Tid id = cuda_test_matrix(t, f, rows, cols);
    if (beta != 0) cuda_test_normal(t, id, 9, 1);
    return id;
}
static Tid dial(CudaTest *t, double beta) { return beta < 0 ? NONE : cuda_test_number(t, FMT_F32, beta); }

static void expect_gradient(CudaTest *t, Tid id, double tolerance) {
    cuda_test_expect(t, id, tolerance);
    if (prog_t(&t->p, id)->format == FMT_BF16 && prog_elements(&t->p, id) > 100) cuda_test_mostly_same(t, id, 0.9);
}

static void try_dw(Shape s, Kinds f, double beta) {
    CudaTest t;
    cuda_test_open(&t, "linear_dw, linear_db %lldx%lldx%lld %s %s beta %g", (long long)s.n, (long long)s.m,
                   (long long)s.k, format_name(f.x), format_name(f.g), beta);
    Tid dy = normal_matrix(&t, f.x, s.n, s.m, 1), x = normal_matrix(&t, f.x, s.n, s.k, 2),
        clock = cuda_test_clock(&t, 5, 0, 3);
    Tid dw = gradient(&t, f.g, s.m, s.k, beta), db = gradient(&t, f.g, 1, s.m, beta), beta_dial = dial(&t, beta);
    cuda_test_run(&t,
                  (Step){.op = OP_LINEAR_DW,
                         .linear_dw = {.in = {.dy = dy, .x = x, .beta = beta_dial, .clock = clock}, .out = {dw}}},
                  false);
    expect_gradient(&t, dw, slack(s.n, kinds[0]));
    if (beta <= 0) { /* products write the gradient itself; without a dial they still add */
        cuda_test_run(
            &t,
            (Step){.op = OP_LINEAR_DW,
                   .linear_dw = {.in = {.dy = dy, .x = x, .beta = beta_dial, .clock = clock}, .out = {dw}},
                   .fresh = true},
            false);
        expect_gradient(&t, dw, slack(s.n, kinds[0]));
    }
    cuda_test_run(
        &t, (Step){.op = OP_LINEAR_DB, .linear_db = {.in = {dy, beta_dial, s.m % 2 ? clock : NONE}, .out = {db}}},
        false);
    expect_gradient(&t, db, slack(s.n, kinds[0]));
    cuda_test_close(&t);
}

TEST(weight_gradients_on_the_gpu) {
    if (!cuda_test_ready()) return;
    static const double betas[] = {-1, 0, 1, 0.5};
    for (int i = 0; i < COUNT_OF(shapes); i++)
        for (int k = 0; k < COUNT_OF(kinds); k++)
            try_dw(shapes[i], kinds[k], betas[(i + k) % 4]), try_dw(shapes[i], kinds[k], betas[(i + k + 1) % 4]);
}

/* ---- formats the library does not mix: a product of our own ---- */

static void try_mixed(Shape s, Format in, Format other, Format out) {
    CudaTest t;
    cuda_test_open(&t, "mixed products %lldx%lldx%lld %s %s %s", (long long)s.n, (long long)s.m, (long long)s.k,
                   format_name(in), format_name(other), format_name(out));
    Tid x = normal_matrix(&t, in, s.n, s.k, 1), w = normal_matrix(&t, in, s.m, s.k, 2);
    Tid bias = cuda_test_vector(&t, out, s.m), y = cuda_test_matrix(&t, out, s.n, s.m);
    Tid dy = normal_matrix(&t, in, s.n, s.m, 3), so_far = normal_matrix(&t, out, s.n, s.k, 4);
    Tid dx = cuda_test_matrix(&t, out, s.n, s.k), x2 = normal_matrix(&t, other, s.n, s.k, 5);
    Tid dw = cuda_test_matrix(&t, out, s.m, s.k), zero = cuda_test_number(&t, FMT_F32, 0);
    Tid clock = cuda_test_clock(&t, 5, 0, 3);
    cuda_test_normal(&t, bias, 6, 1);
    cuda_test_run(&t, (Step){.op = OP_LINEAR, .linear = {.in = {x, w, bias}, .out = {y}}}, false);
    cuda_test_expect(&t, y, slack(s.k, kinds[0]));
    cuda_test_run(&t, (Step){.op = OP_LINEAR_DX, .linear_dx = {.in = {dy, w, so_far}, .out = {dx}}}, false);
    cuda_test_expect(&t, dx, slack(s.m, kinds[0]));
    cuda_test_run(&t,
                  (Step){.op = OP_LINEAR_DW,
                         .linear_dw = {.in = {.dy = dy, .x = x2, .beta = zero, .clock = clock}, .out = {dw}}},
                  false);
    cuda_test_expect(&t, dw, slack(s.n, kinds[0]));
    cuda_test_close(&t);
}

TEST(products_the_library_cannot_do) {
    if (!cuda_test_ready()) return;
    for (int i = 0; i < COUNT_OF(shapes); i++) {
        try_mixed(shapes[i], FMT_F32, FMT_BF16, FMT_BF16);
        try_mixed(shapes[i], FMT_F32, FMT_F16, FMT_F16);
        try_mixed(shapes[i], FMT_BF16, FMT_F32, FMT_F32);
    }
}

/* ---- more than one panel ---- */

TEST(large_gradients_and_casts_go_through_panels) {
    if (!cuda_test_ready()) return;
    const int64_t n = 8, m = 9000, k = 4096;
    EXPECT(device_panel_rows(m, k, 4) < m);
    CudaTest t;
    cuda_test_open(&t, "linear_dw, linear, linear_dx in panels, %lldx%lldx%lld", (long long)n, (long long)m,
                   (long long)k);
    Tid dy = normal_matrix(&t, FMT_BF16, n, m, 1), x = normal_matrix(&t, FMT_BF16, n, k, 2),
        clock = cuda_test_clock(&t, 5, 0, 0);
    Tid dw = cuda_test_matrix(&t, FMT_BF16, m, k), zero = cuda_test_number(&t, FMT_F32, 0);
    cuda_test_run(&t,
                  (Step){.op = OP_LINEAR_DW,
                         .linear_dw = {.in = {.dy = dy, .x = x, .beta = zero, .clock = clock}, .out = {dw}}},
                  false);
    expect_gradient(&t, dw, slack(n, kinds[0]));
    cuda_test_close(&t);

    cuda_test_open(&t, "linear, linear_dx with a cast weight in panels, %lldx%lldx%lld", (long long)n,
                   (long long)m, (long long)k);
    Tid w = cuda_test_matrix(&t, FMT_BF16, m, k), bias = cuda_test_vector(&t, FMT_BF16, m),
        y = cuda_test_matrix(&t, FMT_F32, n, m);
    x = normal_matrix(&t, FMT_F32, n, k, 2), dy = normal_matrix(&t, FMT_F32, n, m, 3);
    Tid so_far = normal_matrix(&t, FMT_F32, n, k, 4), dx = cuda_test_matrix(&t, FMT_F32, n, k);
    cuda_test_pattern(&t, w, 1);
    cuda_test_normal(&t, bias, 5, 1);
    cuda_test_run(&t, (Step){.op = OP_LINEAR, .linear = {.in = {x, w, bias}, .out = {y}}}, false);
    cuda_test_expect(&t, y, slack(k, kinds[0]));
    cuda_test_run(&t, (Step){.op = OP_LINEAR_DX, .linear_dx = {.in = {dy, w, so_far}, .out = {dx}}}, false);
    cuda_test_expect(&t, dx, slack(m, kinds[0]));
    cuda_test_close(&t);
}

/* ---- lora ---- */

typedef struct LoraCase {
    int64_t n, m, k;
    AttrLora attr;
} LoraCase;

static const LoraCase lora_cases[] = {
    {5, 12, 9, {1, 4, {0}, {12}, 2.0f, 0}},                   /* all of y */
    {130, 40, 33, {3, 8, {0, 16, 24}, {16, 8, 16}, 0.5f, 0}}, /* q, k, v */
    {70, 50, 700, {2, 3, {4, 30}, {10, 20}, 1.5f, 0}},        /* columns 0..3, 14..29 belong to no group */
    {300, 512, 256, {2, 16, {0, 256}, {256, 256}, 2.0f, 0}},
    {1, 136, 64, {1, 32, {0}, {136}, 2.0f, 0}},
    {129, 144, 264, {1, 64, {0}, {144}, 0.25f, 0}},
    {300, 400, 328, {1, 128, {0}, {400}, 0.5f, 0}},
    {257, 432, 128, {3, 128, {0, 304, 368}, {304, 64, 64}, 2.0f, 0}}, /* the last two at once */
    {260, 400, 72, {2, 24, {8, 208}, {136, 192}, 1.5f, 0}}, /* 0..7 and 144..207 belong to no group */
    {5, 12, 9, {1, 4, {0}, {12}, 2.0f, 0.5f}},
    {130, 40, 33, {3, 8, {0, 16, 24}, {16, 8, 16}, 0.5f, 0.25f}},
    {70, 50, 700, {2, 20, {4, 30}, {10, 20}, 1.5f, 0.1f}},
    {300, 512, 256, {2, 16, {0, 256}, {256, 256}, 2.0f, 0.05f}},
};

enum { STEP_KEY = 31 };

typedef struct LoraTest {
    CudaTest t;
    LoraCase c;
    Kinds f;
    int64_t ranks, rows; /* R, S */
    Tid clock;
} LoraTest;

static void open_lora(LoraTest *l, const char *op, LoraCase c, Kinds f) {
    cuda_test_open(&l->t, "%s %lldx%lldx%lld groups %d rank %d dropout %g %s %s %s", op, (long long)c.n,
                   (long long)c.m, (long long)c.k, c.attr.groups, c.attr.rank, (double)c.attr.dropout,
                   format_name(f.x), format_name(f.w), format_name(f.g));
    l->c = c, l->f = f, l->ranks = (int64_t)c.attr.groups * c.attr.rank, l->rows = 0;
    for (int g = 0; g < c.attr.groups; g++) l->rows += c.attr.rows[g];
    l->clock = cuda_test_clock(&l->t, 77, 1000, 2);
}

static double lora_slack(const LoraTest *l, int64_t k) {
    float p = l->c.attr.dropout, scale = l->c.attr.scale;
    return slack(k, l->f) * (1 + (double)scale) / (1 - (double)p);
}

static void try_lora(LoraCase c, Kinds f, bool adds) {
    LoraTest l;
    open_lora(&l, adds ? "lora" : "lora alone", c, f);
    CudaTest *t = &l.t;
    Tid y0 = adds ? normal_matrix(t, f.x, c.n, c.m, 1) : NONE, x = normal_matrix(t, f.x, c.n, c.k, 2);
    Tid a = normal_matrix(t, f.w, l.ranks, c.k, 3), up = normal_matrix(t, f.w, l.rows, c.attr.rank, 4);
    Tid y = cuda_test_matrix(t, f.x, c.n, c.m), u = cuda_test_matrix(t, f.x, c.n, l.ranks);
    Step step = {.op = OP_LORA,
                 .lora = {.in = {.y0 = y0, .x = x, .a = a, .b = up, .clock = l.clock}, .out = {y, u}},
                 .attr.lora = c.attr,
                 .key = STEP_KEY};
    double u_slack = lora_slack(&l, c.k), last = f.x == FMT_BF16 ? 0x1p-8 : f.x == FMT_F16 ? 0x1p-11 : 0;
    /* a number of u, about sqrt(K) large, may be rounded the other way; y adds `rank` of them up, times scale */
    double y_slack =
        (u_slack + 4 * last * sqrt((double)c.k)) * sqrt((double)c.attr.rank) * 4 * (double)c.attr.scale;
    for (int in_place = 0; in_place <= cuda_test_shares(&step); in_place++) {
        cuda_test_run(t, step, in_place);
        cuda_test_expect(t, u, u_slack);
        cuda_test_expect(t, y, y_slack);
    }
    cuda_test_close(t);
}

static void try_lora_up(LoraCase c, Kinds f, double beta) { /* lora_du and lora_db */
    LoraTest l;
    open_lora(&l, "lora_du, lora_db", c, f);
    CudaTest *t = &l.t;
    Tid dy = normal_matrix(t, f.x, c.n, c.m, 1), up = normal_matrix(t, f.w, l.rows, c.attr.rank, 2);
    Tid u = normal_matrix(t, f.x, c.n, l.ranks, 3), du = cuda_test_matrix(t, f.x, c.n, l.ranks);
    Tid db = gradient(t, f.g, l.rows, c.attr.rank, beta), beta_dial = dial(t, beta);
    cuda_test_run(t, (Step){.op = OP_LORA_DU, .lora_du = {.in = {dy, up}, .out = {du}}, .attr.lora = c.attr},
                  false);
    cuda_test_expect(t, du, lora_slack(&l, c.m));
    l.f = kinds[0];
    cuda_test_run(t,
                  (Step){.op = OP_LORA_DB,
                         .lora_db = {.in = {.dy = dy, .u = u, .beta = beta_dial, .clock = l.clock}, .out = {db}},
                         .attr.lora = c.attr},
                  false);
    expect_gradient(t, db, lora_slack(&l, c.n));
    if (beta <= 0) {
        cuda_test_run(
            t,
            (Step){.op = OP_LORA_DB,
                   .lora_db = {.in = {.dy = dy, .u = u, .beta = beta_dial, .clock = l.clock}, .out = {db}},
                   .attr.lora = c.attr,
                   .fresh = true},
            false);
        expect_gradient(t, db, lora_slack(&l, c.n));
    }
    cuda_test_close(t);
}

static void try_lora_down(LoraCase c, Kinds f, double beta, bool with_so_far) { /* lora_da and lora_dx */
    LoraTest l;
    open_lora(&l, "lora_da, lora_dx", c, f);
    CudaTest *t = &l.t;
    Tid du = normal_matrix(t, f.x, c.n, l.ranks, 1), x = normal_matrix(t, f.x, c.n, c.k, 2);
    Tid a = normal_matrix(t, f.w, l.ranks, c.k, 3), da = gradient(t, f.g, l.ranks, c.k, beta);
    Tid so_far = with_so_far ? normal_matrix(t, f.x, c.n, c.k, 4) : NONE, dx = cuda_test_matrix(t, f.x, c.n, c.k);
    Step step = {.op = OP_LORA_DX,
                 .lora_dx = {.in = {.du = du, .a = a, .clock = l.clock, .so_far = so_far}, .out = {dx}},
                 .attr.lora = c.attr,
                 .key = STEP_KEY};
    Tid beta_dial = dial(t, beta);
    for (int in_place = 0; in_place <= cuda_test_shares(&step); in_place++) {
        cuda_test_run(t, step, in_place);
        expect_added(t, dx, lora_slack(&l, l.ranks), f.x, with_so_far || c.attr.groups > 1);
    }
    l.f = kinds[0];
    step = (Step){.op = OP_LORA_DA,
                  .lora_da = {.in = {.du = du, .x = x, .beta = beta_dial, .clock = l.clock}, .out = {da}},
                  .attr.lora = c.attr,
                  .key = STEP_KEY};
    cuda_test_run(t, step, false);
    expect_gradient(t, da, lora_slack(&l, c.n));
    step.fresh = true;
    if (beta <= 0) cuda_test_run(t, step, false), expect_gradient(t, da, lora_slack(&l, c.n));
    cuda_test_close(t);
}

TEST(lora_on_the_gpu) {
    if (!cuda_test_ready()) return;
    for (int i = 0; i < COUNT_OF(lora_cases); i++)
        for (int k = 0; k < COUNT_OF(kinds); k++) {
            try_lora(lora_cases[i], kinds[k], true);
            if (lora_cases[i].attr.col[0] == 0) try_lora(lora_cases[i], kinds[k], false); /* its groups are all of y */
        }
}

TEST(lora_gradients_on_the_gpu) {
    if (!cuda_test_ready()) return;
    for (int i = 0; i < COUNT_OF(lora_cases); i++)
        for (int k = 0; k < COUNT_OF(kinds); k++) {
            try_lora_up(lora_cases[i], kinds[k], (i + k) % 3 - 1);
            try_lora_down(lora_cases[i], kinds[k], (i + k) % 3 - 1, k % 2);
        }
}

TEST(dropout_of_many_tokens_goes_through_panels) {
    if (!cuda_test_ready()) return;
    LoraCase c = {17000, 8, 4096, {1, 4, {0}, {8}, 1.0f, 0.25f}};
    EXPECT(device_panel_rows(c.n, c.k, 2) < c.n);
    LoraTest l;
    open_lora(&l, "lora, lora_da, lora_dx in panels", c, kinds[1]);
    CudaTest *t = &l.t;
    Tid x = cuda_test_matrix(t, FMT_BF16, c.n, c.k), a = normal_matrix(t, FMT_BF16, 4, c.k, 3),
        up = normal_matrix(t, FMT_BF16, 8, 4, 4);
    Tid y0 = normal_matrix(t, FMT_BF16, c.n, 8, 1), y = cuda_test_matrix(t, FMT_BF16, c.n, 8),
        u = cuda_test_matrix(t, FMT_BF16, c.n, 4);
    Tid du = normal_matrix(t, FMT_BF16, c.n, 4, 5), da = cuda_test_matrix(t, FMT_BF16, 4, c.k), zero = dial(t, 0);
    cuda_test_pattern(t, x, 1);
    cuda_test_run(t,
                  (Step){.op = OP_LORA,
                         .lora = {.in = {.y0 = y0, .x = x, .a = a, .b = up, .clock = l.clock}, .out = {y, u}},
                         .attr.lora = c.attr,
                         .key = STEP_KEY},
                  false);
    cuda_test_expect(t, u, lora_slack(&l, c.k));
    cuda_test_run(t,
                  (Step){.op = OP_LORA_DA,
                         .lora_da = {.in = {.du = du, .x = x, .beta = zero, .clock = l.clock}, .out = {da}},
                         .attr.lora = c.attr,
                         .key = STEP_KEY},
                  false);
    expect_gradient(t, da, lora_slack(&l, c.n));
    cuda_test_run(t,
                  (Step){.op = OP_LORA_DX,
                         .lora_dx = {.in = {du, a, l.clock}, .out = {x}},
                         .attr.lora = c.attr,
                         .key = STEP_KEY},
                  false);
    cuda_test_expect(t, x, lora_slack(&l, 4));
    cuda_test_close(t);
}
