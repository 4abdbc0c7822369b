/* test_update.c - norms, the verdict and the two updates: against the formula in doubles, and against what
 * PyTorch's own AdamW and SGD gave in three steps. */
#include "tests/ops/bench.h"

static const AttrUpdate adam = {.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f, .lr_mult = 1};

static void squares_case(Format f, int64_t rows, int64_t cols) {
    Bench b;
    bench_open(&b, "sum_squares %s, %lld x %lld", format_name(f), (long long)rows, (long long)cols);
    Tid g = bench_matrix(&b, f, rows, cols), part = bench_vector(&b, FMT_F64, 1);
    bench_normal(&b, g, 1, 3);
    double want = 0, *x = bench_initial(&b, g);
    for (int64_t i = 0; i < rows * cols; i++) want += x[i] * x[i];
    bench_check(&b, (Step){.op = OP_SUM_SQUARES, .sum_squares = {.in = {g}, .out = {part}}});
    bench_expect(&b, part, &want, 1e-12 * want);
    bench_close(&b);
}

TEST(sum_of_squares_is_exact_to_fp64) {
    static const Format formats[] = {FMT_F32, FMT_BF16, FMT_F16};
    for (int f = 0; f < COUNT_OF(formats); f++) {
        squares_case(formats[f], 1, 1);
        squares_case(formats[f], 3, 341);
        squares_case(formats[f], 128, 128);
        squares_case(formats[f], 97, 1031);
    }
}

static void clip_case(double loss, double most, double a, double c, double scale, double norm, double ok) {
    Bench b;
    bench_open(&b, "clip: loss %g, most %g, parts %g %g", loss, most, a, c);
    Tid parts = bench_vector(&b, FMT_F64, 2), l = bench_number(&b, FMT_F64, loss);
    Tid m = bench_number(&b, FMT_F32, most);
    Tid verdict = bench_vector(&b, FMT_F64, VERDICT_WORDS);
    bench_set(&b, parts, (const double[]){a, c});
    bench_check(&b, (Step){.op = OP_CLIP, .clip = {.in = {parts, l, m}, .out = {verdict}}});
    const double *v = bench_now(&b, verdict);
    EXPECT(v[VERDICT_OK] == ok);
    if (ok != 0) bench_expect(&b, verdict, (const double[]){scale, norm, ok}, 1e-12);
    bench_close(&b);
}

/* Gradients that are 1/by times too large: the norm is the true one, and the scale takes the factor out. */
static void unscaled_clip_case(double most, double by, double scale) {
    Bench b;
    bench_open(&b, "clip: most %g, unscale %g", most, by);
    Tid parts = bench_vector(&b, FMT_F64, 2), l = bench_number(&b, FMT_F64, 2), m = bench_number(&b, FMT_F32, most);
    Tid u = bench_number(&b, FMT_F32, by), verdict = bench_vector(&b, FMT_F64, VERDICT_WORDS);
    bench_set(&b, parts, (const double[]){9 / (by * by), 16 / (by * by)});
    bench_check(
        &b, (Step){.op = OP_CLIP,
                   .clip = {.in = {.parts = parts, .loss = l, .max_norm = m, .unscale = u}, .out = {verdict}}});
    bench_expect(&b, verdict, (const double[]){scale, 5, 1}, 1e-15);
    bench_close(&b);
}

TEST(verdict_takes_a_loss_scale_out) {
    unscaled_clip_case(1, 0x1p-16, 0x1p-16 / (5 + 1e-6));
    unscaled_clip_case(10, 0x1p-16, 0x1p-16);
    unscaled_clip_case(0, 0x1p-3, 0x1p-3);
}

/* A norm of 5 and a loss of 2 under limits; at a limit an update is still written. */
static void limited_clip_case(double most_loss, double most_norm, double ok) {
    Bench b;
    bench_open(&b, "clip: limits %g, %g", most_loss, most_norm);
    Tid parts = bench_vector(&b, FMT_F64, 2), l = bench_number(&b, FMT_F64, 2), m = bench_number(&b, FMT_F32, 10);
    Tid limits = bench_vector(&b, FMT_F32, LIMIT_WORDS), verdict = bench_vector(&b, FMT_F64, VERDICT_WORDS);
    bench_set(&b, parts, (const double[]){9, 16});
    bench_set(&b, limits, (const double[]){most_loss, most_norm});
    bench_check(
        &b, (Step){.op = OP_CLIP,
                   .clip = {.in = {.parts = parts, .loss = l, .max_norm = m, .limits = limits}, .out = {verdict}}});
    bench_expect(&b, verdict, (const double[]){1, 5, ok}, 1e-15);
    bench_close(&b);
}

TEST(verdict_refuses_what_is_above_a_limit) {
    limited_clip_case(2, 5, 1);
    limited_clip_case(INFINITY, INFINITY, 1);
    limited_clip_case(1.9, INFINITY, 0);
    limited_clip_case(INFINITY, 4.9, 0);
}

TEST(verdict_scales_and_refuses) {
    clip_case(2, 1, 9, 16, 1 / (5 + 1e-6), 5, 1);
    clip_case(2, 10, 9, 16, 1, 5, 1);
    clip_case(2, 0, 9, 16, 1, 5, 1);
    clip_case(2, 1, 0, 0, 1, 0, 1);
    clip_case(NAN, 1, 9, 16, 0, 0, 0);
    clip_case(2, 1, INFINITY, 16, 0, 0, 0);
    clip_case(2, 1, 9, NAN, 0, 0, 0);
}

/* The tensors of one update, and the step made of them. */
typedef struct Set {
    Bench b;
    bool sgd;
    UpdateTensors t;
    Tid clock;
    int64_t n;
} Set;

typedef struct Kinds {
    Format w, g, m, v;
    bool master;
} Kinds;

static void set_open(Set *s, bool sgd, Kinds k, int64_t rows, int64_t cols) {
    Bench *b = &s->b;
    bench_open(b, "%s of %lld x %lld: weight %s%s, gradient %s, moments %s", sgd ? "sgd" : "adamw",
               (long long)rows,
               (long long)cols, format_name(k.w), k.master ? " with a master" : "", format_name(k.g),
               format_name(k.m));
    s->sgd = sgd;
    s->n = rows * cols;
    s->t = (UpdateTensors){.weight = bench_matrix(b, k.w, rows, cols),
                           .gradient = bench_matrix(b, k.g, rows, cols), .m = bench_matrix(b, k.m, rows, cols),
                           .v = sgd ? NONE : bench_matrix(b, k.v, rows, cols),
                           .master = k.master ? bench_matrix(b, FMT_F32, rows, cols) : NONE,
                           .dials = bench_vector(b, FMT_F32, DIAL_WORDS),
                           .verdict = bench_vector(b, FMT_F64, VERDICT_WORDS)};
    s->clock = bench_clock(b, 77);
}

static void set_dials(Set *s, double lr, int step, const AttrUpdate *k, double scale, double ok) {
    bench_set(&s->b, s->t.dials,
              (const double[]){lr, 1 / (1 - pow(k->beta1, step)), 1 / (1 - pow(k->beta2, step))});
    bench_set(&s->b, s->t.verdict, (const double[]){scale, 1, ok});
}

static Step set_step(const Set *s, const AttrUpdate *k) {
    const UpdateTensors *t = &s->t;
    if (s->sgd)
        return (Step){.op = OP_SGD,
                      .sgd = {.in = {.weight = t->weight,
                                     .g = t->gradient,
                                     .m = t->m,
                                     .master = t->master,
                                     .dials = t->dials,
                                     .verdict = t->verdict,
                                     .clock = s->clock},
                              .out = {t->weight, t->m, t->master}},
                      .attr.update = *k};
    return (Step){.op = OP_ADAMW,
                  .adamw = {.in = {.weight = t->weight,
                                   .g = t->gradient,
                                   .m = t->m,
                                   .v = t->v,
                                   .master = t->master,
                                   .dials = t->dials,
                                   .verdict = t->verdict,
                                   .clock = s->clock},
                            .out = {.weight = t->weight, .m = t->m, .v = t->v, .master = t->master}},
                  .attr.update = *k};
}

static void formula(bool sgd, const AttrUpdate *k, const double *dial, double scale, int64_t n, double *w,
                    const double *g, double *m, double *v) {
    double rate = dial[DIAL_LR] * k->lr_mult;
    for (int64_t i = 0; i < n; i++) {
        double gi = g[i] * scale;
        if (sgd) {
            m[i] = k->beta1 * m[i] + gi + k->weight_decay * w[i];
            w[i] -= rate * m[i];
            continue;
        }
        m[i] = k->beta1 * m[i] + (1 - (double)k->beta1) * gi;
        v[i] = k->beta2 * v[i] + (1 - (double)k->beta2) * gi * gi;
        w[i] -= rate * k->weight_decay * w[i];
        w[i] -= rate * m[i] * dial[DIAL_CORRECT1] / (sqrt(v[i] * dial[DIAL_CORRECT2]) + k->eps);
    }
}

/* 8-bit moments are near by a code's step, which is a part of the block's largest number. */
static void expect_moment(Set *s, Tid t, const double *want) {
    Format f = prog_t(&s->b.p, t)->format;
    if (f != FMT_MOM8 && f != FMT_VAR8) {
        bench_expect_random(&s->b, t, want, 1e-6);
        return;
    }
    const double *got = bench_now(&s->b, t);
    int64_t bad = 0;
    for (int64_t from = 0; from < s->n; from += FORMAT_MOMENT_BLOCK) {
        double top = 0;
        int64_t to = MIN2(from + FORMAT_MOMENT_BLOCK, s->n);
        for (int64_t i = from; i < to; i++) top = fmax(top, fabs(want[i]));
        for (int64_t i = from; i < to; i++)
            bad += f == FMT_MOM8 ? fabs(got[i] - want[i]) > top / 250
                                 : fabs(sqrt(got[i]) - sqrt(want[i])) > sqrt(top) / 250;
    }
    EXPECT(bad == 0);
    if (bad) test_note("    %s: %lld moments are not near", s->b.about, (long long)bad);
}

static void update_case(bool sgd, Kinds k, int64_t rows, int64_t cols) {
    Set s;
    AttrUpdate a = adam;
    a.lr_mult = 0.5f;
    set_open(&s, sgd, k, rows, cols);
    Bench *b = &s.b;
    bench_normal(b, s.t.gradient, 2, 0.3);
    bench_normal(b, s.t.m, 3, 0.2);
    double *w = bench_doubles(b, s.n), *v = bench_doubles(b, s.n);
    if (!sgd) { /* variances are positive */
        for (int64_t i = 0; i < s.n; i++) v[i] = 0.01 + 0.001 * (double)(i % 97);
        bench_set(b, s.t.v, v);
        v = bench_initial(b, s.t.v);
    }
    bench_normal(b, k.master ? s.t.master : s.t.weight, 1, 1);
    w = bench_initial(b, k.master ? s.t.master : s.t.weight);
    set_dials(&s, 0.02, 3, &a, 0.25, 1);
    double *m = bench_initial(b, s.t.m);
    formula(sgd, &a, bench_initial(b, s.t.dials), 0.25, s.n, w, bench_initial(b, s.t.gradient), m, v);
    bench_check(b, set_step(&s, &a));
    if (k.master) {
        bench_expect(b, s.t.master, w, 1e-6);
        bench_expect(b, s.t.weight, bench_now(b, s.t.master), 0); /* to nearest, not at random */
    } else {
        bench_expect_random(b, s.t.weight, w, 1e-6);
    }
    expect_moment(&s, s.t.m, m);
    if (!sgd) expect_moment(&s, s.t.v, v);

    /* a verdict that is not ok: not a bit is written */
    set_dials(&s, 0.02, 3, &a, 0.25, 0);
    bench_run(b, set_step(&s, &a), 2, false);
    for (Tid t = 1; t < b->p.n_t; t++) EXPECT(!memcmp(b->now[t], b->initial[t], (size_t)prog_bytes(&b->p, t)));
    bench_close(b);
}

static const Kinds kinds[] = {
    {FMT_F32, FMT_F32, FMT_F32, FMT_F32, false},    {FMT_F32, FMT_BF16, FMT_BF16, FMT_BF16, false},
    {FMT_BF16, FMT_BF16, FMT_BF16, FMT_BF16, false}, {FMT_BF16, FMT_F32, FMT_F32, FMT_F32, true},
    {FMT_BF16, FMT_BF16, FMT_MOM8, FMT_VAR8, false}, {FMT_F32, FMT_F32, FMT_MOM8, FMT_VAR8, false},
};
static const int64_t shapes[][2] = {{1, 1}, {3, 341}, {70, 257}, {64, 256}};

TEST(adamw_is_its_formula) {
    for (int k = 0; k < COUNT_OF(kinds); k++)
        for (int i = 0; i < COUNT_OF(shapes); i++) update_case(false, kinds[k], shapes[i][0], shapes[i][1]);
}

TEST(sgd_is_its_formula) {
    for (int k = 0; k < COUNT_OF(kinds); k++)
        for (int i = 0; i < COUNT_OF(shapes); i++) update_case(true, kinds[k], shapes[i][0], shapes[i][1]);
}

/* 8-bit moments are what the format's own encoding makes of the fp32 result. */
TEST(eight_bit_moments_are_the_formats_own) {
    Set s, t;
    static const Kinds plain = {FMT_F32, FMT_F32, FMT_F32, FMT_F32, false};
    static const Kinds small = {FMT_F32, FMT_F32, FMT_MOM8, FMT_VAR8, false};
    int64_t rows = 70, cols = 257;
    set_open(&s, false, plain, rows, cols);
    set_open(&t, false, small, rows, cols);
    bench_normal(&t.b, t.t.m, 3, 0.2);
    double *v = bench_doubles(&t.b, rows * cols);
    for (int64_t i = 0; i < rows * cols; i++) v[i] = i % 300 ? 1e-3 * (double)(i % 97) : 0;
    bench_set(&t.b, t.t.v, v);
    bench_set(&s.b, s.t.m, bench_initial(&t.b, t.t.m));
    bench_set(&s.b, s.t.v, bench_initial(&t.b, t.t.v));
    for (int k = 0; k < 2; k++) {
        Set *x = k ? &t : &s;
        bench_normal(&x->b, x->t.weight, 1, 1);
        bench_normal(&x->b, x->t.gradient, 2, 0.3);
        set_dials(x, 0.02, 3, &adam, 0.25, 1);
        bench_run(&x->b, set_step(x, &adam), 1, false);
    }
    bench_set(&t.b, t.t.m, bench_now(&s.b, s.t.m)); /* encodes */
    bench_set(&t.b, t.t.v, bench_now(&s.b, s.t.v));
    EXPECT(!memcmp(t.b.now[t.t.m], t.b.initial[t.t.m], (size_t)prog_bytes(&t.b.p, t.t.m)));
    EXPECT(!memcmp(t.b.now[t.t.v], t.b.initial[t.t.v], (size_t)prog_bytes(&t.b.p, t.t.v)));
    EXPECT(!memcmp(t.b.now[t.t.weight], s.b.now[s.t.weight], (size_t)prog_bytes(&s.b.p, s.t.weight)));
    bench_close(&s.b);
    bench_close(&t.b);
}

/* Three steps with lr 0.01, decay 0.1, betas 0.9 and 0.95 (momentum 0.9), as PyTorch printed them. */
static void follow(bool sgd, const double want[3][5]) {
    static const double start[5] = {0.5, -1.25, 2.0, 0.03125, -0.0078125}, zero[5];
    static const double g[3][5] = {{0.25, -0.5, 1e-3, 4, 0}, {-0.125, 0.75, 2e-3, -1, 1e-5},
                                   {0.5, 0.5, -1e-3, 0.25, -3}};
    Set s;
    set_open(&s, sgd, (Kinds){FMT_F32, FMT_F32, FMT_F32, FMT_F32, false}, 1, 5);
    Bench *b = &s.b;
    bench_set(b, s.t.weight, start);
    bench_set(b, s.t.m, zero);
    if (!sgd) bench_set(b, s.t.v, zero);
    for (int i = 0; i < 3; i++) {
        bench_set(b, s.t.gradient, g[i]);
        set_dials(&s, 0.01, i + 1, &adam, 1, 1);
        bench_run(b, set_step(&s, &adam), 1, false);
        bench_expect(b, s.t.weight, want[i], 3e-7);
        for (Tid t = 1; t < b->p.n_t; t++) memcpy(b->initial[t], b->now[t], (size_t)prog_bytes(&b->p, t));
    }
    bench_close(b);
}

TEST(updates_follow_pytorch) {
    static const double adamw[3][5] = {{0.4895000004, -1.23875, 1.9880001, 0.02121875003, -0.0078046875},
                                       {0.4863268061, -1.239976381, 1.976432301, 0.01644987199, -0.01513623399},
                                       {0.4793530301, -1.243511407, 1.970254085, 0.01232718598, -0.008888885582}};
    static const double sgd[3][5] = {{0.497, -1.24375, 1.99799, -0.00878125, -0.0078046875},
                                     {0.495053, -1.24438125, 1.99416301, -0.03480059375, -0.007789951563},
                                     {0.487805647, -1.248704994, 1.988734556, -0.06068320253, 0.02223110073}};
    follow(false, adamw);
    follow(true, sgd);
}

/* SGD without momentum keeps no m. */
TEST(sgd_without_momentum) {
    Set s;
    AttrUpdate a = {.weight_decay = 0.5f, .lr_mult = 1};
    set_open(&s, true, (Kinds){FMT_F32, FMT_F32, FMT_F32, FMT_F32, false}, 2, 3);
    bench_set(&s.b, s.t.weight, (const double[]){1, 2, 3, 4, 5, 6});
    bench_set(&s.b, s.t.gradient, (const double[]){1, 0, -1, 2, 0, 8});
    s.t.m = NONE;
    set_dials(&s, 0.125, 1, &adam, 1, 1);
    bench_check(&s.b, set_step(&s, &a));
    bench_expect(&s.b, s.t.weight, (const double[]){0.8125, 1.875, 2.9375, 3.5, 4.6875, 4.625}, 1e-7);
    bench_close(&s.b);
}
