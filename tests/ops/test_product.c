/* test_product.c - linear and lora with all their gradients, on every kind of border, against doubles.
 *
 * bench_check also holds 1, 2 and 3 threads, and in place where the row allows it, to the same bits. */
#include "base/rng.h"
#include "ir/product_device.h"
#include "tests/ops/bench.h"

typedef struct Shape {
    int64_t n, m, k;
} Shape;

static const Shape shapes[] = {
    {1, 1, 1},     {1, 7, 5},       {2, 40, 600},   {3, 33, 17},   {8, 70, 129},  {9, 31, 65},
    {64, 3, 1},    {127, 129, 128}, {129, 127, 64}, {128, 16, 1},  {40, 50, 1500}, /* three panels when staged */
    {700, 40, 30}, {30, 1100, 20},  {33, 20, 1024}, /* several tiles down, several across */
};

typedef struct Kinds {
    Format x, w, g; /* activations, weights, gradients of weights */
} Kinds;

static const Kinds kinds[] = {
    {FMT_F32, FMT_F32, FMT_F32},
    {FMT_BF16, FMT_BF16, FMT_BF16},
    {FMT_F32, FMT_BF16, FMT_F32},
    {FMT_F16, FMT_F16, FMT_F32},
};

/* What fp32 sums of k products of normal numbers may be off by. */
static double slack(int64_t k) { return 1e-6 + 2e-6 * sqrt((double)k) + 1e-7 * (double)k; }

/* sum over i of a[r*ra + i*ia] * b[c*cb + i*ib], for all r and c, into out(rows,cols). */
typedef struct Walk {
    const double *a, *b;
    int64_t ra, ia, cb, ib;
} Walk;
static void multiply(double *out, Walk w, int64_t rows, int64_t cols, int64_t inner) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            double sum = 0;
            for (int64_t i = 0; i < inner; i++) sum += w.a[r * w.ra + i * w.ia] * w.b[c * w.cb + i * w.ib];
            out[r * cols + c] = sum;
        }
}

static void try_product(OpId op, Shape s, Kinds f, bool with_bias) {
    Bench b;
    bench_open(&b, "%s %lldx%lldx%lld %s %s bias %d", op_name(op), (long long)s.n, (long long)s.m, (long long)s.k,
               format_name(f.x), format_name(f.w), with_bias);
    Tid x = bench_draw(&b, f.x, s.n, s.k, 1), w = bench_draw(&b, f.w, s.m, s.k, 2), bias = NONE;
    Tid y = bench_matrix(&b, op == OP_LINEAR ? f.x : FMT_F32, s.n, s.m);
    bool direct = !format_table[f.w].plain;
    double *want = bench_doubles(&b, s.n * s.m);
    multiply(want, (Walk){bench_initial(&b, x), bench_initial(&b, w), s.k, 1, s.k, 1}, s.n, s.m, s.k);
    if (with_bias) {
        bias = bench_vector(&b, direct ? FMT_BF16 : f.w, s.m);
        bench_normal(&b, bias, 3, 1);
        const double *add = bench_initial(&b, bias);
        for (int64_t i = 0; i < s.n * s.m; i++) want[i] += add[i % s.m];
    }
    Step linear = {.op = OP_LINEAR, .linear = {.in = {x, w, bias}, .out = {y}}, .attr.linear = {direct}};
    Step logits = {.op = OP_HEAD_LOGITS, .head_logits = {.in = {x, w}, .out = {y}}};
    bench_check(&b, op == OP_LINEAR ? linear : logits);
    bench_expect(&b, y, want, slack(s.k));
    bench_close(&b);
}

TEST(linear_is_x_times_w_plus_bias) {
    for (int i = 0; i < COUNT_OF(shapes); i++)
        for (int k = 0; k < COUNT_OF(kinds); k++) {
            try_product(OP_LINEAR, shapes[i], kinds[k], true);
            try_product(OP_LINEAR, shapes[i], kinds[k], false);
        }
}

static void try_adding(Shape s, Kinds f, bool with_bias) {
    Bench b;
    bench_open(&b, "linear so_far %lldx%lldx%lld %s %s bias %d", (long long)s.n, (long long)s.m, (long long)s.k,
               format_name(f.x), format_name(f.w), with_bias);
    Tid x = bench_draw(&b, f.x, s.n, s.k, 1), w = bench_draw(&b, f.w, s.m, s.k, 2), bias = NONE;
    Tid so_far = bench_draw(&b, f.x, s.n, s.m, 4), y = bench_matrix(&b, f.x, s.n, s.m);
    double *want = bench_doubles(&b, s.n * s.m);
    multiply(want, (Walk){bench_initial(&b, x), bench_initial(&b, w), s.k, 1, s.k, 1}, s.n, s.m, s.k);
    const double *there = bench_initial(&b, so_far);
    for (int64_t i = 0; i < s.n * s.m; i++) want[i] += there[i];
    if (with_bias) {
        bias = bench_vector(&b, f.w, s.m);
        bench_normal(&b, bias, 3, 1);
        const double *add = bench_initial(&b, bias);
        for (int64_t i = 0; i < s.n * s.m; i++) want[i] += add[i % s.m];
    }
    bench_check(&b, (Step){.op = OP_LINEAR,
                           .linear = {.in = {.x = x, .w = w, .bias = bias, .so_far = so_far}, .out = {y}}});
    bench_expect(&b, y, want, slack(s.k));
    bench_close(&b);
}

TEST(linear_adds_to_what_is_there) {
    for (int i = 0; i < COUNT_OF(shapes); i++)
        for (int k = 0; k < COUNT_OF(kinds); k++) {
            try_adding(shapes[i], kinds[k], true);
            try_adding(shapes[i], kinds[k], false);
        }
}

/* A few rows read a quantised weight as it is stored, whatever its width leaves of a block or of a piece; the numbers
 * are those of the format. */
TEST(quantised_weights_are_read_as_they_are_stored) {
    static const Shape few[] = {
        {1, 1, 1},     {1, 7, 5},     {2, 40, 600},   {3, 33, 64},     {4, 17, 128},  {5, 16, 127}, {8, 70, 129},
        {13, 19, 191}, {16, 20, 576}, {1, 5, 2048},   {6, 3, 4161},    {1, 18, 4095}, {17, 21, 72}, {33, 18, 200},
        {64, 5, 320},  {17, 1, 1},    {130, 49, 641}, {18, 100, 1290}, {300, 150, 65}}; /* from 17 rows on tiles: a
                                                                                           column, two panels, three,
                                                                                           several tiles */
    static const Format stored[] = {FMT_INT8, FMT_NF4}, activations[] = {FMT_F32, FMT_BF16};
    for (int i = 0; i < COUNT_OF(few); i++)
        for (int k = 0; k < 4; k++) {
            Kinds f = {activations[k / 2], stored[k % 2], FMT_F32};
            try_product(OP_LINEAR, few[i], f, i % 2);
            if (few[i].n <= LINEAR_DIRECT_MOST) try_product(OP_HEAD_LOGITS, few[i], f, false);
        }
}

/* Whether the last row of `few` has the bits it has as the last of `many`. */
static void try_beside(Format stored, int64_t many, int64_t few) {
    enum { M = 21, K = 700 };
    Bench b;
    bench_open(&b, "%lld and %lld rows of x by a weight in %s", (long long)many, (long long)few, format_name(stored));
    Tid x = bench_draw(&b, FMT_F32, many, K, 1), part = bench_matrix(&b, FMT_F32, few, K);
    Tid w = bench_draw(&b, stored, M, K, 2), y = bench_matrix(&b, FMT_F32, many, M),
        y1 = bench_matrix(&b, FMT_F32, few, M);
    memcpy(b.initial[part], (const float *)b.initial[x] + (many - few) * K, (size_t)few * K * sizeof(float));
    bench_run(&b, (Step){.op = OP_LINEAR, .linear = {.in = {x, w}, .out = {y}}, .attr.linear = {true}}, 1, false);
    double *all = bench_now(&b, y);
    bench_run(&b, (Step){.op = OP_LINEAR, .linear = {.in = {part, w}, .out = {y1}}, .attr.linear = {true}}, 1,
              false);
    double *alone = bench_now(&b, y1);
    for (int c = 0; c < M; c++) EXPECT(all[(many - 1) * M + c] == alone[(few - 1) * M + c]);
    bench_close(&b);
}

/* Alone or beside others, a row's bits are the same: of dot products, and of tiles. */
TEST(rows_beside_it_change_no_bit_of_a_row) {
    static const Format stored[] = {FMT_INT8, FMT_NF4};
    for (int k = 0; k < COUNT_OF(stored); k++) {
        try_beside(stored[k], 16, 1);
        try_beside(stored[k], 301, 17);
    }
}

static void try_dx(Shape s, Kinds f, bool with_so_far) {
    Bench b;
    bench_open(&b, "linear_dx %lldx%lldx%lld %s %s so_far %d", (long long)s.n, (long long)s.m, (long long)s.k,
               format_name(f.x), format_name(f.w), with_so_far);
    Tid dy = bench_draw(&b, f.x, s.n, s.m, 1), w = bench_draw(&b, f.w, s.m, s.k, 2);
    Tid so_far = with_so_far ? bench_draw(&b, f.x, s.n, s.k, 3) : NONE, dx = bench_matrix(&b, f.x, s.n, s.k);
    double *want = bench_doubles(&b, s.n * s.k);
    multiply(want, (Walk){bench_initial(&b, dy), bench_initial(&b, w), s.m, 1, 1, s.k}, s.n, s.k, s.m);
    if (with_so_far) {
        const double *add = bench_initial(&b, so_far);
        for (int64_t i = 0; i < s.n * s.k; i++) want[i] += add[i];
    }
    bench_check(&b, (Step){.op = OP_LINEAR_DX, .linear_dx = {.in = {dy, w, so_far}, .out = {dx}}});
    bench_expect(&b, dx, want, slack(s.m));
    bench_close(&b);
}

TEST(linear_dx_adds_to_what_is_there) {
    for (int i = 0; i < COUNT_OF(shapes); i++)
        for (int k = 0; k < COUNT_OF(kinds); k++) {
            try_dx(shapes[i], kinds[k], true);
            try_dx(shapes[i], kinds[k], false);
        }
}

/* want = beta * (what dw holds) + sum; beta < 0 stands for an absent dial, which means 1. */
static void add_scaled(Bench *b, double *want, Tid dw, double beta) {
    if (beta == 0) return; /* what is there is poison: it must not be read */
    bench_normal(b, dw, 9, 1);
    const double *was = bench_initial(b, dw);
    for (int64_t i = 0; i < prog_elements(&b->p, dw); i++) want[i] += (beta < 0 ? 1 : beta) * was[i];
}

/* Where nothing adds up in it, a gradient is rounded to nearest; a fresh step without its dial still adds. */
static void expect_fresh(Bench *b, Step s, const double *want, double slack, double beta) {
    s.fresh = true;
    if (beta > 0) return;
    bench_check(b, s);
    if (beta == 0)
        bench_expect(b, prog_first_out(&s), want, slack);
    else
        bench_expect_random(b, prog_first_out(&s), want, slack);
}

static void try_dw(Shape s, Kinds f, double beta) {
    Bench b;
    bench_open(&b, "linear_dw %lldx%lldx%lld %s %s beta %g", (long long)s.n, (long long)s.m, (long long)s.k,
               format_name(f.x), format_name(f.g), beta);
    Tid dy = bench_draw(&b, f.x, s.n, s.m, 1), x = bench_draw(&b, f.x, s.n, s.k, 2);
    Tid dw = bench_matrix(&b, f.g, s.m, s.k), dial = beta < 0 ? NONE : bench_number(&b, FMT_F32, beta);
    Tid clock = f.g == FMT_BF16 ? bench_clock(&b, 5) : NONE;
    double *want = bench_doubles(&b, s.m * s.k);
    multiply(want, (Walk){bench_initial(&b, dy), bench_initial(&b, x), 1, s.m, 1, s.k}, s.m, s.k, s.n);
    add_scaled(&b, want, dw, beta);
    bench_check(&b, (Step){.op = OP_LINEAR_DW,
                           .linear_dw = {.in = {.dy = dy, .x = x, .beta = dial, .clock = clock}, .out = {dw}}});
    bench_expect_random(&b, dw, want, slack(s.n));
    expect_fresh(&b,
                 (Step){.op = OP_LINEAR_DW,
                        .linear_dw = {.in = {.dy = dy, .x = x, .beta = dial, .clock = clock}, .out = {dw}}},
                 want, slack(s.n), beta);
    bench_close(&b);
}

static void try_db(Shape s, Kinds f, double beta) {
    Bench b;
    bench_open(&b, "linear_db %lldx%lld %s %s beta %g", (long long)s.n, (long long)s.m, format_name(f.x),
               format_name(f.g), beta);
    Tid dy = bench_draw(&b, f.x, s.n, s.m, 1), db = bench_vector(&b, f.g, s.m), clock = bench_clock(&b, 5);
    Tid dial = beta < 0 ? NONE : bench_number(&b, FMT_F32, beta);
    double *want = bench_doubles(&b, s.m);
    const double *d = bench_initial(&b, dy);
    for (int64_t i = 0; i < s.n * s.m; i++) want[i % s.m] += d[i];
    add_scaled(&b, want, db, beta);
    bench_check(&b, (Step){.op = OP_LINEAR_DB, .linear_db = {.in = {dy, dial, clock}, .out = {db}}});
    bench_expect_random(&b, db, want, slack(s.n));
    bench_close(&b);
}

TEST(weight_gradients_scale_what_is_there) {
    static const double betas[] = {-1, 0, 1, 0.5};
    for (int i = 0; i < COUNT_OF(shapes); i++)
        for (int k = 0; k < COUNT_OF(kinds); k++) {
            try_dw(shapes[i], kinds[k], betas[(i + k) % 4]);
            try_db(shapes[i], kinds[k], betas[(i + k + 1) % 4]);
        }
}

/* ---- lora ---- */

typedef struct LoraCase {
    int64_t n, m, k;
    AttrLora attr;
} LoraCase;

static const LoraCase lora_cases[] = {
    {5, 12, 9, {1, 4, {0}, {12}, 2.0f, 0}},                       /* all of y */
    {130, 40, 33, {3, 8, {0, 16, 24}, {16, 8, 16}, 0.5f, 0}},     /* q, k, v */
    {70, 50, 700, {2, 3, {4, 30}, {10, 20}, 1.5f, 0}},            /* columns 0..3, 14..29 belong to no group */
    {5, 12, 9, {1, 4, {0}, {12}, 2.0f, 0.5f}},
    {130, 40, 33, {3, 8, {0, 16, 24}, {16, 8, 16}, 0.5f, 0.25f}},
    {70, 50, 700, {2, 20, {4, 30}, {10, 20}, 1.5f, 0.1f}},
};

enum { FIRST_TOKEN = 1000, CLOCK = 77, STEP_KEY = 31 };

typedef struct LoraBench {
    Bench b;
    LoraCase c;
    Kinds f;
    int64_t ranks, rows; /* R, S */
    Tid clock;
} LoraBench;

static void open_lora(LoraBench *l, const char *op, LoraCase c, Kinds f) {
    bench_open(&l->b, "%s %lldx%lldx%lld groups %d dropout %g %s %s", op, (long long)c.n, (long long)c.m,
               (long long)c.k, c.attr.groups, (double)c.attr.dropout, format_name(f.x), format_name(f.w));
    l->c = c, l->f = f, l->ranks = (int64_t)c.attr.groups * c.attr.rank, l->rows = 0;
    for (int g = 0; g < c.attr.groups; g++) l->rows += c.attr.rows[g];
    l->clock = NONE; /* allowed where nothing is drawn */
    if (c.attr.dropout == 0 && f.g != FMT_BF16) return;
    l->clock = bench_clock(&l->b, CLOCK);
    ((int64_t *)l->b.initial[l->clock])[CLOCK_FIRST_TOKEN] = FIRST_TOKEN;
}

/* The number that x[token][channel] is multiplied by in group g. */
static double kept(const LoraBench *l, int64_t g, int64_t token, int64_t channel) {
    float p = l->c.attr.dropout;
    if (p == 0) return 1;
    uint64_t key = rng_fold(rng_fold(CLOCK, STEP_KEY), (uint64_t)g);
    return rng_uniform(key, (uint64_t)((FIRST_TOKEN + token) * l->c.k + channel)) >= p ? 1 / (1 - (double)p) : 0;
}

static int64_t group_row(const LoraBench *l, int g) { /* where its rows of b begin */
    int64_t row = 0;
    for (int i = 0; i < g; i++) row += l->c.attr.rows[i];
    return row;
}

static void try_lora(LoraCase c, Kinds f, bool adds) {
    LoraBench l;
    open_lora(&l, adds ? "lora" : "lora alone", c, f);
    Bench *b = &l.b;
    Tid y0 = adds ? bench_draw(b, f.x, c.n, c.m, 1) : NONE, x = bench_draw(b, f.x, c.n, c.k, 2);
    Tid a = bench_draw(b, f.w, l.ranks, c.k, 3), up = bench_draw(b, f.w, l.rows, c.attr.rank, 4);
    Tid y = bench_matrix(b, f.x, c.n, c.m), u = bench_matrix(b, f.x, c.n, l.ranks);
    const double *dx = bench_initial(b, x), *da = bench_initial(b, a), *dup = bench_initial(b, up);
    bench_check(b, (Step){.op = OP_LORA,
                          .lora = {.in = {.y0 = y0, .x = x, .a = a, .b = up, .clock = l.clock}, .out = {y, u}},
                          .attr.lora = c.attr,
                          .key = STEP_KEY});

    double *want = bench_doubles(b, c.n * l.ranks);
    for (int64_t t = 0; t < c.n; t++)
        for (int64_t r = 0; r < l.ranks; r++)
            for (int64_t k = 0; k < c.k; k++)
                want[t * l.ranks + r] += kept(&l, r / c.attr.rank, t, k) * dx[t * c.k + k] * da[r * c.k + k];
    bench_expect(b, u, want, 2 * slack(c.k));

    double *sum = adds ? bench_initial(b, y0) : bench_doubles(b, c.n * c.m);
    double *stored = bench_now(b, u); /* y reads u as it was stored */
    for (int g = 0; g < c.attr.groups; g++)
        for (int64_t t = 0; t < c.n; t++)
            for (int64_t j = 0; j < c.attr.rows[g]; j++)
                for (int64_t r = 0; r < c.attr.rank; r++) {
                    double low = stored[t * l.ranks + g * c.attr.rank + r];
                    double high = dup[(group_row(&l, g) + j) * c.attr.rank + r];
                    sum[t * c.m + c.attr.col[g] + j] += (double)c.attr.scale * low * high;
                }
    bench_expect(b, y, sum, 1e-5 * sqrt((double)c.k));
    bench_close(b);
}

static void try_lora_up(LoraCase c, Kinds f, double beta) { /* lora_du and lora_db */
    LoraBench l;
    open_lora(&l, "lora_du, lora_db", c, f);
    Bench *b = &l.b;
    const AttrLora *at = &c.attr;
    Tid dy = bench_draw(b, f.x, c.n, c.m, 1), up = bench_draw(b, f.w, l.rows, at->rank, 2);
    Tid u = bench_draw(b, f.x, c.n, l.ranks, 3), du = bench_matrix(b, f.x, c.n, l.ranks);
    Tid db = bench_matrix(b, f.g, l.rows, at->rank), dial = beta < 0 ? NONE : bench_number(b, FMT_F32, beta);
    const double *d = bench_initial(b, dy), *w = bench_initial(b, up), *low = bench_initial(b, u);
    double *want_du = bench_doubles(b, c.n * l.ranks), *want_db = bench_doubles(b, l.rows * at->rank);
    for (int g = 0; g < at->groups; g++)
        for (int64_t t = 0; t < c.n; t++)
            for (int64_t j = 0; j < at->rows[g]; j++)
                for (int64_t r = 0; r < at->rank; r++) {
                    int64_t row = group_row(&l, g) + j, col = g * at->rank + r;
                    double one = (double)at->scale * d[t * c.m + at->col[g] + j];
                    want_du[t * l.ranks + col] += one * w[row * at->rank + r];
                    want_db[row * at->rank + r] += one * low[t * l.ranks + col];
                }
    add_scaled(b, want_db, db, beta);
    bench_check(b, (Step){.op = OP_LORA_DU, .lora_du = {.in = {dy, up}, .out = {du}}, .attr.lora = *at});
    bench_expect(b, du, want_du, 2 * slack(c.m));
    bench_check(b, (Step){.op = OP_LORA_DB,
                          .lora_db = {.in = {.dy = dy, .u = u, .beta = dial, .clock = l.clock}, .out = {db}},
                          .attr.lora = *at});
    bench_expect_random(b, db, want_db, 2 * slack(c.n));
    expect_fresh(b,
                 (Step){.op = OP_LORA_DB,
                        .lora_db = {.in = {.dy = dy, .u = u, .beta = dial, .clock = l.clock}, .out = {db}},
                        .attr.lora = *at},
                 want_db, 2 * slack(c.n), beta);
    bench_close(b);
}

static void try_lora_down(LoraCase c, Kinds f, double beta, bool with_so_far) { /* lora_da and lora_dx */
    LoraBench l;
    open_lora(&l, "lora_da, lora_dx", c, f);
    Bench *b = &l.b;
    Tid du = bench_draw(b, f.x, c.n, l.ranks, 1), x = bench_draw(b, f.x, c.n, c.k, 2);
    Tid a = bench_draw(b, f.w, l.ranks, c.k, 3), da = bench_matrix(b, f.g, l.ranks, c.k);
    Tid so_far = with_so_far ? bench_draw(b, f.x, c.n, c.k, 4) : NONE, dx = bench_matrix(b, f.x, c.n, c.k);
    Tid dial = beta < 0 ? NONE : bench_number(b, FMT_F32, beta);
    const double *d = bench_initial(b, du), *in = bench_initial(b, x), *w = bench_initial(b, a);
    double *want_da = bench_doubles(b, l.ranks * c.k);
    double *want_dx = with_so_far ? bench_initial(b, so_far) : bench_doubles(b, c.n * c.k);
    for (int64_t t = 0; t < c.n; t++)
        for (int64_t r = 0; r < l.ranks; r++)
            for (int64_t k = 0; k < c.k; k++) {
                double one = d[t * l.ranks + r] * kept(&l, r / c.attr.rank, t, k);
                want_da[r * c.k + k] += one * in[t * c.k + k];
                want_dx[t * c.k + k] += one * w[r * c.k + k];
            }
    add_scaled(b, want_da, da, beta);
    bench_check(b, (Step){.op = OP_LORA_DA,
                          .lora_da = {.in = {.du = du, .x = x, .beta = dial, .clock = l.clock}, .out = {da}},
                          .attr.lora = c.attr,
                          .key = STEP_KEY});
    bench_expect_random(b, da, want_da, 2 * slack(c.n));
    if (c.attr.dropout <= 0)
        expect_fresh(b,
                     (Step){.op = OP_LORA_DA,
                            .lora_da = {.in = {.du = du, .x = x, .beta = dial, .clock = l.clock}, .out = {da}},
                            .attr.lora = c.attr,
                            .key = STEP_KEY},
                     want_da, 2 * slack(c.n), beta);
    bench_check(b, (Step){.op = OP_LORA_DX,
                          .lora_dx = {.in = {.du = du, .a = a, .clock = l.clock, .so_far = so_far}, .out = {dx}},
                          .attr.lora = c.attr,
                          .key = STEP_KEY});
    bench_expect(b, dx, want_dx, 2 * slack(l.ranks));
    bench_close(b);
}

TEST(lora_adds_its_groups) {
    for (int i = 0; i < COUNT_OF(lora_cases); i++)
        for (int k = 0; k < COUNT_OF(kinds); k++) {
            try_lora(lora_cases[i], kinds[k], true);
            if (lora_cases[i].attr.col[0] == 0) try_lora(lora_cases[i], kinds[k], false); /* its groups are all of y */
        }
}

TEST(lora_gradients_of_the_upper_half) {
    for (int i = 0; i < COUNT_OF(lora_cases); i++)
        for (int k = 0; k < COUNT_OF(kinds); k++) try_lora_up(lora_cases[i], kinds[k], k - 1);
}

TEST(lora_gradients_of_the_lower_half_drop_what_forward_dropped) {
    for (int i = 0; i < COUNT_OF(lora_cases); i++)
        for (int k = 0; k < COUNT_OF(kinds); k++) try_lora_down(lora_cases[i], kinds[k], k - 1, k % 2);
}

/* ---- fp32 sums of large gradients on a GPU ---- */

TEST(panels_of_sums_give_132_multiprocessors_equally_many_tiles) {
    static const int64_t shape[][2] = {{151936, 896}, {151936, 1536}, {152064, 3584}, {37888, 3584}, {3584, 18944}};
    for (int i = 0; i < COUNT_OF(shape); i++) {
        int64_t rows = shape[i][0], cols = shape[i][1], panel = device_stage_rows(rows, cols),
                across = (cols + 255) / 256;
        EXPECT(panel > 0 && panel < rows && panel % 128 == 0 && panel * cols * 4 <= DEVICE_PANEL_BYTES);
        bool even = panel / 128 * across % 132 == 0, fits = DEVICE_PANEL_BYTES / (cols * 4) >= 128 * 66;
        EXPECT(even || !fits);
        EXPECT(device_stage_bytes(rows, cols, FMT_BF16) == device_round(panel * cols * 4));
    }
    EXPECT(device_stage_rows(1000, 896) == 1000 && device_stage_bytes(1000, 896, FMT_F32) == 0);
}
