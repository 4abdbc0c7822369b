/* test_carry.c - the ops on a correction: the update that carries it, and what it adds to the weights, against the
 * formula in doubles. */
#include "tests/ops/bench.h"

typedef struct Kinds {
    Format w, g;
    bool master;
} Kinds;

static const Kinds kinds[] = {
    {FMT_F32, FMT_F32, false}, {FMT_BF16, FMT_BF16, false}, {FMT_F16, FMT_F16, false}, {FMT_BF16, FMT_F32, true}};
static const int64_t shapes[][2] = {{1, 1}, {3, 341}, {70, 257}, {64, 512}};

static void products(double *sums, const double *v, const double *x, int64_t n) {
    for (int k = 0; k < CARRY_SUMS; k++) sums[k] = 0;
    for (int64_t i = 0; i < n; i++) {
        sums[CARRY_VX] += v[i] * x[i];
        sums[CARRY_XX] += x[i] * x[i];
        sums[CARRY_VV] += v[i] * v[i];
    }
}

static void expect_sums_near(Bench *b, Tid sums, const double *v, const double *x, int64_t n, double relative) {
    double want[CARRY_SUMS];
    const double *got = bench_now(b, sums);
    products(want, v, x, n);
    double most = sqrt(want[CARRY_XX] * want[CARRY_VV]);
    bool near = fabs(got[CARRY_VX] - want[CARRY_VX]) <= relative * most;
    for (int k = CARRY_XX; k < CARRY_SUMS; k++) near &= fabs(got[k] - want[k]) <= relative * want[k];
    if (!EXPECT(near))
        test_note("    %s: sums %g %g %g, not %g %g %g", b->about, got[0], got[1], got[2], want[0], want[1], want[2]);
}

static void expect_sums(Bench *b, Tid sums, const double *v, const double *x, int64_t n) {
    expect_sums_near(b, sums, v, x, n, 1e-12);
}

/* ---- the update ---- */

static const AttrUpdate attr = {.weight_decay = 0.1f, .lr_mult = 0.5f};
static const double plain[CARRY_WORDS] =
    {[CARRY_KEEP] = 0.7, [CARRY_LR] = 0.2, [CARRY_DAMPING] = 0.3, [CARRY_TIMES] = -1.5},
                    removed[CARRY_WORDS] = {[CARRY_KEEP] = 1, [CARRY_REMOVE] = 1},
                    both[CARRY_WORDS] = {[CARRY_KEEP] = 0.7, [CARRY_LR] = 0.2, [CARRY_TIMES] = 2, [CARRY_REMOVE] = 1},
                    fresh[CARRY_WORDS] = {[CARRY_REMOVE] = 1}, /* v is poison: it was never written */
    cleared[CARRY_WORDS] = {[CARRY_TIMES] = INFINITY};

typedef struct Set {
    Bench b;
    Tid w, g, master, v, last, sums, dials, verdict, clock, lr;
    int64_t n;
} Set;

static void set_open(Set *s, const char *op, Kinds k, int64_t rows, int64_t cols, const double *carry) {
    Bench *b = &s->b;
    bench_open(b, "%s %s%s, gradient %s, %lld x %lld, keep %g, remove %g", op, format_name(k.w),
               k.master ? " with a master" : "", format_name(k.g), (long long)rows, (long long)cols, carry[CARRY_KEEP],
               carry[CARRY_REMOVE]);
    s->n = rows * cols;
    s->w = bench_draw(b, k.w, rows, cols, 1);
    s->g = bench_draw(b, k.g, rows, cols, 2);
    s->master = k.master ? bench_draw(b, FMT_F32, rows, cols, 1) : NONE;
    s->v = bench_matrix(b, FMT_F32, rows, cols);
    s->last = bench_matrix(b, k.g, rows, cols);
    if (carry[CARRY_KEEP] != 0) bench_normal(b, s->v, 3, 1);
    if (carry[CARRY_KEEP] != 0) bench_normal(b, s->last, 4, 1);
    s->sums = bench_vector(b, FMT_F64, CARRY_SUMS);
    s->dials = bench_vector(b, FMT_F32, CARRY_WORDS);
    s->verdict = bench_vector(b, FMT_F64, VERDICT_WORDS);
    s->clock = bench_clock(b, 77);
    s->lr = bench_vector(b, FMT_F32, DIAL_WORDS);
    bench_set(b, s->dials, carry);
    bench_set(b, s->verdict, (const double[]){1, 1, 1});
    bench_set(b, s->lr, (const double[]){0.02, 1, 1});
}

static Step carry_step(const Set *s) {
    return (Step){.op = OP_SGD_CARRY,
                  .sgd_carry = {.in = {.weight = s->w,
                                       .g = s->g,
                                       .master = s->master,
                                       .correction = s->v,
                                       .last = s->last,
                                       .dials = s->lr,
                                       .carry = s->dials,
                                       .verdict = s->verdict,
                                       .clock = s->clock},
                                .out = {s->w, s->master, s->v, s->last, s->sums}},
                  .attr.update = attr};
}

/* The step that v has to take before anything is removed of it. */
static double *stepped(Set *s) {
    double *v = bench_initial(&s->b, s->v);
    const double *last = bench_initial(&s->b, s->last), *dial = bench_initial(&s->b, s->dials);
    double rate = dial[CARRY_LR] * (double)attr.lr_mult, scale = dial[CARRY_KEEP];
    for (int64_t i = 0; i < s->n; i++) {
        double kept = (1 - rate * ((double)attr.weight_decay + dial[CARRY_DAMPING])) * v[i];
        v[i] = scale == 0 ? 0 : scale * (kept - rate * dial[CARRY_TIMES] * last[i]);
    }
    return v;
}

/* Plain SGD on the same tensors: its weights. Gives: mem_free. */
static void *weights_of_sgd(Set *s) {
    Step sgd = {.op = OP_SGD,
                .sgd = {.in = {.weight = s->w,
                               .g = s->g,
                               .master = s->master,
                               .dials = s->lr,
                               .verdict = s->verdict,
                               .clock = s->clock},
                        .out = {.weight = s->w, .master = s->master}},
                .attr.update = attr};
    bench_run(&s->b, sgd, 1, false);
    int64_t bytes = prog_bytes(&s->b.p, s->w);
    return memcpy(mem_alloc(bytes), s->b.now[s->w], (size_t)bytes);
}

static void update_case(Kinds k, int64_t rows, int64_t cols, const double *carry) {
    Set s;
    set_open(&s, "sgd_carry", k, rows, cols, carry);
    Bench *b = &s.b;
    void *weights = weights_of_sgd(&s);
    bench_check(b, carry_step(&s));
    EXPECT(!memcmp(weights, b->now[s.w], (size_t)prog_bytes(&b->p, s.w)));
    EXPECT(!memcmp(b->initial[s.g], b->now[s.last], (size_t)prog_bytes(&b->p, s.g)));
    mem_free(weights);
    Tid theta = s.master ? s.master : s.w;
    const double *old = bench_initial(b, theta), *now = bench_now(b, theta);
    double *v = stepped(&s), *x = bench_initial(b, s.g), remove = carry[CARRY_REMOVE];
    for (int64_t i = 0; i < s.n; i++) {
        double u = (double)(float)(now[i] - old[i]); /* in fp32, as the host makes it */
        v[i] -= remove * u;
        if (remove != 0) x[i] = u;
    }
    bench_expect(b, s.v, v, 1e-6);
    expect_sums(b, s.sums, bench_now(b, s.v), x, s.n);
    bench_close(b);
}

TEST(an_update_carries_a_correction_and_keeps_the_bits_of_sgd) {
    const double *const carries[] = {plain, removed, both, fresh, cleared};
    for (int k = 0; k < COUNT_OF(kinds); k++)
        for (int i = 0; i < COUNT_OF(shapes); i++)
            for (int c = 0; c < COUNT_OF(carries); c++) update_case(kinds[k], shapes[i][0], shapes[i][1], carries[c]);
}

TEST(an_update_that_may_not_write_leaves_its_correction_too) {
    Set s;
    set_open(&s, "sgd_carry", kinds[1], 70, 257, plain);
    bench_set(&s.b, s.verdict, (const double[]){1, 1, 0});
    bench_run(&s.b, carry_step(&s), 2, false);
    for (Tid t = 1; t < s.b.p.n_t; t++)
        EXPECT(t == s.sums || !memcmp(s.b.now[t], s.b.initial[t], (size_t)prog_bytes(&s.b.p, t)));
    bench_expect(&s.b, s.sums, (const double[CARRY_SUMS]){0}, 0);
    bench_close(&s.b);
}

/* ---- added to the weights ---- */

static void apply_case(Kinds k, int64_t rows, int64_t cols, const double *carry) {
    Set s;
    set_open(&s, "carry_apply", k, rows, cols, carry);
    Bench *b = &s.b;
    Step step = {.op = OP_CARRY_APPLY,
                 .carry_apply = {.in = {s.w, s.master, s.v, s.last, s.dials}, .out = {s.w, s.master, s.sums}},
                 .attr.update = attr};
    bench_check(b, step);
    Tid theta = s.master ? s.master : s.w;
    double *v = stepped(&s), *want = bench_initial(b, theta), *x = bench_now(b, theta);
    const double *old = bench_initial(b, theta);
    for (int64_t i = 0; i < s.n; i++) {
        v[i] = (double)(float)v[i];
        want[i] += v[i];
        x[i] = (double)(float)(x[i] - old[i]);
    }
    bench_expect(b, theta, want, 1e-6);
    if (s.master) bench_expect(b, s.w, bench_now(b, s.master), 0);
    expect_sums_near(b, s.sums, v, x, s.n, 1e-6);
    bench_close(b);
}

TEST(a_correction_is_added_to_the_nearest_weights) {
    for (int k = 0; k < COUNT_OF(kinds); k++)
        for (int i = 0; i < COUNT_OF(shapes); i++) {
            apply_case(kinds[k], shapes[i][0], shapes[i][1], plain);
            apply_case(kinds[k], shapes[i][0], shapes[i][1], cleared);
        }
}
