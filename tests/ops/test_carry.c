/* test_carry.c - the ops on a correction: sums, the update that carries it, and what it adds to the weights, against
 * the formula in doubles. */
#include "tests/ops/bench.h"

typedef struct Kinds {
    Format w, g;
    bool master;
} Kinds;

static const Kinds kinds[] = {
    {FMT_F32, FMT_F32, false}, {FMT_BF16, FMT_BF16, false}, {FMT_F16, FMT_F16, false}, {FMT_BF16, FMT_F32, true}};
static const int64_t shapes[][2] = {{1, 1}, {3, 341}, {70, 257}, {64, 512}};

static void products(double *sums, const double *v, const double *u, int64_t n) {
    for (int k = 0; k < CARRY_SUMS; k++) sums[k] = 0;
    for (int64_t i = 0; i < n; i++) {
        sums[CARRY_VU] += v[i] * u[i];
        sums[CARRY_UU] += u[i] * u[i];
        sums[CARRY_VV] += v[i] * v[i];
    }
}

static void expect_sums(Bench *b, Tid sums, const double *v, const double *u, int64_t n) {
    double want[CARRY_SUMS];
    const double *got = bench_now(b, sums);
    products(want, v, u, n);
    double most = sqrt(want[CARRY_UU] * want[CARRY_VV]);
    bool near = fabs(got[CARRY_VU] - want[CARRY_VU]) <= 1e-12 * most;
    for (int k = CARRY_UU; k < CARRY_SUMS; k++) near &= fabs(got[k] - want[k]) <= 1e-12 * want[k];
    if (!EXPECT(near))
        test_note("    %s: sums %g %g %g, not %g %g %g", b->about, got[0], got[1], got[2], want[0], want[1], want[2]);
}

TEST(sums_over_a_correction_and_a_gradient_are_exact_to_fp64) {
    for (int k = 0; k < COUNT_OF(kinds); k++)
        for (int i = 0; i < COUNT_OF(shapes); i++) {
            Bench b;
            int64_t rows = shapes[i][0], cols = shapes[i][1];
            bench_open(&b, "carry_sums %s, %lld x %lld", format_name(kinds[k].g), (long long)rows, (long long)cols);
            Tid v = bench_draw(&b, FMT_F32, rows, cols, 1), g = bench_draw(&b, kinds[k].g, rows, cols, 2);
            Tid sums = bench_vector(&b, FMT_F64, CARRY_SUMS);
            bench_check(&b, (Step){.op = OP_CARRY_SUMS, .carry_sums = {.in = {v, g}, .out = {sums}}});
            expect_sums(&b, sums, bench_initial(&b, v), bench_initial(&b, g), rows * cols);
            bench_close(&b);
        }
}

/* ---- the update ---- */

static const AttrUpdate attr = {.weight_decay = 0.1f, .lr_mult = 0.5f};
static const double plain[CARRY_WORDS] =
    {[CARRY_KEEP] = 0.7, [CARRY_LR] = 0.2, [CARRY_DAMPING] = 0.3, [CARRY_TIMES] = -1.5},
                    removed[CARRY_WORDS] = {[CARRY_KEEP] = 1, [CARRY_REMOVE] = 1},
                    fresh[CARRY_WORDS] = {[CARRY_REMOVE] = 1}, /* v is poison: it was never written */
    cleared[CARRY_WORDS] = {[CARRY_TIMES] = INFINITY};

typedef struct Set {
    Bench b;
    Tid w, g, master, v, sums, dials, verdict, clock;
    int64_t n;
} Set;

static void set_open(Set *s, Kinds k, int64_t rows, int64_t cols, const double *carry) {
    Bench *b = &s->b;
    bench_open(b, "sgd_carry %s%s, gradient %s, %lld x %lld, keep %g, remove %g", format_name(k.w),
               k.master ? " with a master" : "", format_name(k.g), (long long)rows, (long long)cols, carry[CARRY_KEEP],
               carry[CARRY_REMOVE]);
    s->n = rows * cols;
    s->w = bench_draw(b, k.w, rows, cols, 1);
    s->g = bench_draw(b, k.g, rows, cols, 2);
    s->master = k.master ? bench_draw(b, FMT_F32, rows, cols, 1) : NONE;
    s->v = bench_matrix(b, FMT_F32, rows, cols);
    if (carry[CARRY_KEEP] != 0) bench_normal(b, s->v, 3, 1);
    s->sums = bench_vector(b, FMT_F64, CARRY_SUMS);
    s->dials = bench_vector(b, FMT_F32, CARRY_WORDS);
    s->verdict = bench_vector(b, FMT_F64, VERDICT_WORDS);
    s->clock = bench_clock(b, 77);
    bench_set(b, s->dials, carry);
    bench_set(b, s->verdict, (const double[]){1, 1, 1});
}

static Step set_step(const Set *s, Tid lr) {
    return (Step){.op = OP_SGD_CARRY,
                  .sgd_carry = {.in = {.weight = s->w,
                                       .g = s->g,
                                       .master = s->master,
                                       .correction = s->v,
                                       .dials = lr,
                                       .carry = s->dials,
                                       .verdict = s->verdict,
                                       .clock = s->clock},
                                .out = {s->w, s->master, s->v, s->sums}},
                  .attr.update = attr};
}

/* The weights have the bits of plain SGD, and v those of the formula but for fp32's rounding. */
static void update_case(Kinds k, int64_t rows, int64_t cols, const double *carry) {
    Set s;
    set_open(&s, k, rows, cols, carry);
    Bench *b = &s.b;
    Tid lr = bench_vector(b, FMT_F32, DIAL_WORDS), theta = s.master ? s.master : s.w;
    bench_set(b, lr, (const double[]){0.02, 1, 1});
    Step sgd = {
        .op = OP_SGD,
        .sgd =
            {.in = {.weight = s.w, .g = s.g, .master = s.master, .dials = lr, .verdict = s.verdict, .clock = s.clock},
             .out = {.weight = s.w, .master = s.master}},
        .attr.update = attr};
    bench_run(b, sgd, 1, false);
    int64_t bytes = prog_bytes(&b->p, s.w);
    void *weights = memcpy(mem_alloc(bytes), b->now[s.w], (size_t)bytes);
    bench_check(b, set_step(&s, lr));
    EXPECT(!memcmp(weights, b->now[s.w], (size_t)bytes));
    mem_free(weights);

    const double *old = bench_initial(b, theta), *now = bench_now(b, theta), *g = bench_initial(b, s.g);
    double *v = bench_initial(b, s.v), *u = bench_doubles(b, s.n);
    const double *dial = bench_initial(b, s.dials);
    double rate = dial[CARRY_LR] * (double)attr.lr_mult, scale = dial[CARRY_KEEP];
    for (int64_t i = 0; i < s.n; i++) {
        u[i] = (double)(float)(now[i] - old[i]); /* in fp32, as the host makes it */
        double kept = (1 - rate * ((double)attr.weight_decay + dial[CARRY_DAMPING])) * v[i];
        v[i] = (scale == 0 ? 0 : scale * (kept - rate * dial[CARRY_TIMES] * g[i])) - dial[CARRY_REMOVE] * u[i];
    }
    bench_expect(b, s.v, v, 1e-6);
    expect_sums(b, s.sums, bench_now(b, s.v), u, s.n);
    bench_close(b);
}

TEST(an_update_carries_a_correction_and_keeps_the_bits_of_sgd) {
    const double *const carries[] = {plain, removed, fresh, cleared};
    for (int k = 0; k < COUNT_OF(kinds); k++)
        for (int i = 0; i < COUNT_OF(shapes); i++)
            for (int c = 0; c < COUNT_OF(carries); c++) update_case(kinds[k], shapes[i][0], shapes[i][1], carries[c]);
}

TEST(an_update_that_may_not_write_leaves_its_correction_too) {
    Set s;
    set_open(&s, kinds[1], 70, 257, plain);
    Tid lr = bench_vector(&s.b, FMT_F32, DIAL_WORDS);
    bench_set(&s.b, lr, (const double[]){0.02, 1, 1});
    bench_set(&s.b, s.verdict, (const double[]){1, 1, 0});
    bench_run(&s.b, set_step(&s, lr), 2, false);
    for (Tid t = 1; t < s.b.p.n_t; t++)
        EXPECT(t == s.sums || !memcmp(s.b.now[t], s.b.initial[t], (size_t)prog_bytes(&s.b.p, t)));
    bench_expect(&s.b, s.sums, (const double[CARRY_SUMS]){0}, 0);
    bench_close(&s.b);
}

/* ---- added to the weights ---- */

static void apply_case(Kinds k, int64_t rows, int64_t cols) {
    Bench b;
    int64_t n = rows * cols;
    bench_open(&b, "carry_apply %s%s, %lld x %lld", format_name(k.w), k.master ? " with a master" : "", (long long)rows,
               (long long)cols);
    Tid w = bench_draw(&b, k.w, rows, cols, 1), master = k.master ? bench_draw(&b, FMT_F32, rows, cols, 1) : NONE;
    Tid v = bench_matrix(&b, FMT_F32, rows, cols), sums = bench_vector(&b, FMT_F64, CARRY_SUMS);
    double keep = rows % 2 ? 1 : 0.5;
    bench_normal(&b, v, 3, 0.02);
    Tid dials = bench_vector(&b, FMT_F32, CARRY_WORDS);
    bench_set(&b, dials, (const double[CARRY_WORDS]){[CARRY_KEEP] = keep});
    bench_check(&b,
                (Step){.op = OP_CARRY_APPLY, .carry_apply = {.in = {w, master, v, dials}, .out = {w, master, sums}}});
    Tid theta = master ? master : w;
    double *want = bench_initial(&b, theta), *now = bench_now(&b, theta), *old = bench_initial(&b, theta);
    double *change = bench_initial(&b, v);
    for (int64_t i = 0; i < n; i++) change[i] *= keep, want[i] += change[i], now[i] = (double)(float)(now[i] - old[i]);
    bench_expect(&b, theta, want, 1e-6);
    if (master) bench_expect(&b, w, bench_now(&b, master), 0);
    expect_sums(&b, sums, change, now, n);
    bench_close(&b);
}

TEST(a_correction_is_added_to_the_nearest_weights) {
    for (int k = 0; k < COUNT_OF(kinds); k++)
        for (int i = 0; i < COUNT_OF(shapes); i++) apply_case(kinds[k], shapes[i][0], shapes[i][1]);
}
