/* test_head.c - the head against doubles, and the same bits whatever the chunk, the threads, one sweep or two. */
#include "base/rng.h"
#include "tests/ops/bench.h"

typedef struct HeadBench {
    Bench b;
    int64_t n, v, c;
    Tid x, w, labels, dlogp, beta, clock;
    Tid logp, lse, entropy, dx, dw;
    double *want_logp, *want_lse, *want_entropy, *want_dx, *want_dw;
} HeadBench;

/* Every third label of the first rows is not scored although its gradient is not zero; of 300 rows the second unit
 * has no gradient at all. */
static void fill_rows(HeadBench *h) {
    int32_t *labels = h->b.initial[h->labels];
    double *d = bench_doubles(&h->b, h->n);
    for (int64_t i = 0; i < h->n; i++) {
        labels[i] = i % 3 == 1 && i < 128 ? -100 : (int32_t)(rng_u32(5, (uint64_t)i) % (uint64_t)h->v);
        d[i] = h->n == 300 && i / HEAD_TILE == 1 ? 0 : 0.01 * rng_normal(6, (uint64_t)i);
    }
    bench_set(&h->b, h->dlogp, d);
}

static void want_row(HeadBench *h, int64_t i, double *logits) {
    const double *x = bench_initial(&h->b, h->x) + i * h->c, *w = bench_initial(&h->b, h->w);
    int32_t label = ((int32_t *)h->b.initial[h->labels])[i];
    double g = ((float *)h->b.initial[h->dlogp])[i], sum = 0, mean = 0;
    for (int64_t v = 0; v < h->v; v++) {
        logits[v] = 0;
        for (int64_t c = 0; c < h->c; c++) logits[v] += x[c] * w[v * h->c + c];
        sum += exp(logits[v]);
    }
    for (int64_t v = 0; v < h->v; v++) mean += exp(logits[v]) / sum * logits[v];
    h->want_lse[i] = log(sum);
    h->want_logp[i] = label < 0 ? 0 : logits[label] - log(sum);
    h->want_entropy[i] = log(sum) - mean;
    for (int64_t v = 0; v < h->v && label >= 0; v++) {
        double d = g * ((v == label) - exp(logits[v]) / sum);
        for (int64_t c = 0; c < h->c; c++) {
            h->want_dx[i * h->c + c] += d * w[v * h->c + c];
            h->want_dw[v * h->c + c] += d * x[c];
        }
    }
}

static void open_head(HeadBench *h, int64_t n, int64_t v, int64_t c, Format f, Format gradient, double beta) {
    Bench *b = &h->b;
    bench_open(b, "head %lld rows, %lld words, width %lld, %s, gradient %s, beta %g", (long long)n, (long long)v,
               (long long)c, format_name(f), format_name(gradient), beta);
    h->n = n, h->v = v, h->c = c;
    h->x = bench_matrix(b, f, n, c), h->w = bench_matrix(b, f, v, c);
    h->labels = bench_vector(b, FMT_I32, n), h->dlogp = bench_vector(b, FMT_F32, n);
    h->beta = beta < 0 ? NONE : bench_number(b, FMT_F32, beta), h->clock = bench_clock(b, 8);
    h->logp = bench_vector(b, FMT_F32, n), h->lse = bench_vector(b, FMT_F32, n);
    h->entropy = bench_vector(b, FMT_F32, n);
    h->dx = bench_matrix(b, f, n, c), h->dw = bench_matrix(b, gradient, v, c);
    bench_normal(b, h->x, 1, 1);
    bench_normal(b, h->w, 2, 2 / sqrt((double)c));
    fill_rows(h);
    h->want_logp = bench_doubles(b, n), h->want_lse = bench_doubles(b, n), h->want_entropy = bench_doubles(b, n);
    h->want_dx = bench_doubles(b, n * c), h->want_dw = bench_doubles(b, v * c);
    if (beta != 0) { /* with beta 0 what is there is poison, and must not be read */
        bench_normal(b, h->dw, 3, 0.01);
        const double *was = bench_initial(b, h->dw);
        for (int64_t i = 0; i < v * c; i++) h->want_dw[i] = (beta < 0 ? 1 : beta) * was[i];
    }
    double *logits = bench_doubles(b, v);
    for (int64_t i = 0; i < n; i++) want_row(h, i, logits);
}

static Step logp_step(const HeadBench *h, int64_t chunk, bool with_entropy) {
    return (Step){
        .op = OP_HEAD_LOGP,
        .head_logp = {.in = {h->x, h->w, h->labels}, .out = {h->logp, h->lse, with_entropy ? h->entropy : NONE}},
        .attr.head = {chunk}};
}

static Step grad_step(const HeadBench *h, int64_t chunk) {
    return (Step){.op = OP_HEAD_LOGP_GRAD,
                  .head_logp_grad = {.in = {.x = h->x,
                                            .w = h->w,
                                            .labels = h->labels,
                                            .lse = h->lse,
                                            .dlogp = h->dlogp,
                                            .beta = h->beta,
                                            .clock = h->clock},
                                     .out = {h->dx, h->dw}},
                  .attr.head = {chunk}};
}

static Step sweep_step(const HeadBench *h, int64_t chunk) {
    return (Step){.op = OP_HEAD_SWEEP,
                  .head_sweep = {.in = {.x = h->x,
                                        .w = h->w,
                                        .labels = h->labels,
                                        .dlogp = h->dlogp,
                                        .beta = h->beta,
                                        .clock = h->clock},
                                 .out = {.logp = h->logp, .lse = h->lse, .dx = h->dx, .dw = h->dw}},
                  .attr.head = {chunk}};
}

static void *copy_of(HeadBench *h, Tid t) {
    int64_t bytes = prog_bytes(&h->b.p, t);
    return memcpy(arena_alloc(&h->b.arena, bytes), h->b.now[t], (size_t)bytes);
}

static bool same(HeadBench *h, Tid t, const void *was) {
    return !memcmp(h->b.now[t], was, (size_t)prog_bytes(&h->b.p, t));
}

typedef struct HeadCase {
    int64_t n, v, c;
    Format f, gradient;
    double beta;
} HeadCase;

static const HeadCase cases[] = {
    {1, 5, 3, FMT_F32, FMT_F32, 0},
    {5, 1030, 16, FMT_BF16, FMT_F32, -1},
    {127, 130, 33, FMT_F32, FMT_BF16, 1},
    {129, 200, 40, FMT_F32, FMT_F32, 0.5},
    {300, 700, 24, FMT_F32, FMT_F32, 0},
    {300, 700, 24, FMT_BF16, FMT_BF16, 0},
    {513, 90, 150, FMT_BF16, FMT_BF16, -1},
    {140, 60, 1300, FMT_BF16, FMT_BF16, 1}, /* several panels, several tiles across dx */
};

TEST(head_agrees_with_doubles) {
    for (int i = 0; i < COUNT_OF(cases); i++) {
        const HeadCase *k = &cases[i];
        HeadBench h;
        open_head(&h, k->n, k->v, k->c, k->f, k->gradient, k->beta);
        int64_t chunk = i % 2 ? 128 : 1024;
        bench_check(&h.b, logp_step(&h, chunk, true));
        bench_expect(&h.b, h.logp, h.want_logp, 2e-5);
        bench_expect(&h.b, h.lse, h.want_lse, 2e-5);
        bench_expect(&h.b, h.entropy, h.want_entropy, 2e-5);
        memcpy(h.b.initial[h.lse], h.b.now[h.lse], (size_t)k->n * 4);
        bench_check(&h.b, grad_step(&h, chunk));
        bench_expect(&h.b, h.dx, h.want_dx, 1e-6);
        double roundings = k->gradient == FMT_BF16 ? 0x1p-7 * 0.05 * (double)(k->n / HEAD_TILE) : 0;
        bench_expect_random(&h.b, h.dw, h.want_dw, 1e-6 + roundings);
        bench_close(&h.b);
    }
}

/* At temperature 0 a row draws its likeliest token; a row without a label none. */
TEST(head_draws_from_its_own_logits) {
    HeadBench h;
    open_head(&h, 300, 700, 24, FMT_F32, FMT_F32, 0);
    Tid how = bench_matrix(&h.b, FMT_I32, h.n, DRAW_WORDS), drawn = bench_vector(&h.b, FMT_I32, h.n);
    for (int64_t i = 0; i < h.n; i++) ((DrawHow *)h.b.initial[how])[i] = (DrawHow){.top_p = 1, .repetition = 1};
    Step s = logp_step(&h, 128, false);
    s.head_logp.in.how = how;
    s.head_logp.out.drawn = drawn;
    bench_check(&h.b, s);
    const double *x = bench_initial(&h.b, h.x), *w = bench_initial(&h.b, h.w);
    for (int64_t i = 0; i < h.n; i++) {
        int32_t id = ((int32_t *)h.b.now[drawn])[i];
        double top = -1e300, own = 0;
        for (int64_t v = 0; v < h.v; v++) {
            double logit = 0;
            for (int64_t c = 0; c < h.c; c++) logit += x[i * h.c + c] * w[v * h.c + c];
            top = fmax(top, logit);
            if (v == id) own = logit;
        }
        bool labelled = ((int32_t *)h.b.initial[h.labels])[i] >= 0;
        EXPECT(labelled ? id >= 0 && own > top - 1e-4 : id == -1);
    }
    bench_close(&h.b);
}

TEST(head_gives_the_same_bits_in_any_chunk_and_in_one_sweep) {
    static const int64_t chunks[] = {128, 256, 384, 100000};
    for (int i = 0; i < COUNT_OF(cases); i++) {
        const HeadCase *k = &cases[i];
        HeadBench h;
        open_head(&h, k->n, k->v, k->c, k->f, k->gradient, k->beta);
        bench_run(&h.b, logp_step(&h, 128, false), 1, false);
        void *logp = copy_of(&h, h.logp), *lse = copy_of(&h, h.lse);
        memcpy(h.b.initial[h.lse], lse, (size_t)k->n * 4);
        bench_run(&h.b, grad_step(&h, 128), 1, false);
        void *dx = copy_of(&h, h.dx), *dw = copy_of(&h, h.dw);
        for (int j = 0; j < COUNT_OF(chunks); j++) {
            bench_run(&h.b, logp_step(&h, chunks[j], false), 2, false);
            EXPECT(same(&h, h.logp, logp) && same(&h, h.lse, lse));
            bench_run(&h.b, grad_step(&h, chunks[j]), 3, false);
            EXPECT(same(&h, h.dx, dx) && same(&h, h.dw, dw));
            bench_run(&h.b, sweep_step(&h, chunks[j]), 1 + j % 3, false);
            EXPECT(same(&h, h.logp, logp) && same(&h, h.lse, lse));
            EXPECT(same(&h, h.dx, dx) && same(&h, h.dw, dw));
        }
        bench_close(&h.b);
    }
}

TEST(head_gradients_may_be_left_out) {
    HeadBench h;
    open_head(&h, 200, 90, 20, FMT_F32, FMT_F32, 0);
    bench_run(&h.b, sweep_step(&h, 128), 1, false);
    void *dx = copy_of(&h, h.dx), *dw = copy_of(&h, h.dw);
    Step s = sweep_step(&h, 128);
    s.head_sweep.out.dx = NONE;
    bench_check(&h.b, s);
    EXPECT(same(&h, h.dw, dw));
    s = sweep_step(&h, 128);
    s.head_sweep.out.dw = NONE;
    bench_check(&h.b, s);
    EXPECT(same(&h, h.dx, dx));
    bench_close(&h.b);
}

TEST(head_scales_dw_also_where_no_row_has_a_gradient) {
    static const double betas[] = {0, 0.5, -1};
    for (int i = 0; i < COUNT_OF(betas); i++) {
        HeadBench h;
        open_head(&h, 200, 90, 20, FMT_F32, FMT_F32, betas[i]);
        double *none = bench_doubles(&h.b, 200 * 20), *want = betas[i] == 0 ? none : bench_initial(&h.b, h.dw);
        bench_set(&h.b, h.dlogp, none);
        for (int64_t k = 0; k < 90 * 20; k++) want[k] *= betas[i] < 0 ? 1 : betas[i];
        bench_check(&h.b, sweep_step(&h, 128));
        bench_expect(&h.b, h.dw, want, 0);
        bench_expect(&h.b, h.dx, none, 0);
        bench_close(&h.b);
    }
}

/* Logits far apart: the largest is subtracted before the exponential. */
TEST(head_survives_large_logits) {
    HeadBench h;
    open_head(&h, 4, 50, 8, FMT_F32, FMT_F32, 0);
    bench_normal(&h.b, h.x, 1, 1000);
    double *logits = bench_doubles(&h.b, 50);
    const double *x = bench_initial(&h.b, h.x), *w = bench_initial(&h.b, h.w);
    bench_check(&h.b, sweep_step(&h, 128));
    for (int64_t i = 0; i < 4; i++) {
        double top = -INFINITY, sum = 0, lse = bench_now(&h.b, h.lse)[i];
        for (int64_t v = 0; v < 50; v++) {
            logits[v] = 0;
            for (int64_t c = 0; c < 8; c++) logits[v] += x[i * 8 + c] * w[v * 8 + c];
            top = fmax(top, logits[v]);
        }
        for (int64_t v = 0; v < 50; v++) sum += exp(logits[v] - top);
        EXPECT_NEAR(lse, top + log(sum), 1e-6 * fabs(top));
        for (int64_t c = 0; c < 8; c++) EXPECT(isfinite(bench_now(&h.b, h.dx)[i * 8 + c]));
    }
    bench_close(&h.b);
}

TEST(head_logits_are_a_product) {
    static const int64_t rows[] = {1, 3, 8, 9, 130};
    for (int i = 0; i < COUNT_OF(rows); i++)
        for (int f = 0; f < 2; f++) {
            Bench b;
            int64_t n = rows[i], v = 530, c = 70;
            bench_open(&b, "head_logits %lld rows", (long long)n);
            Tid x = bench_matrix(&b, FMT_F32, n, c), w = bench_matrix(&b, f ? FMT_BF16 : FMT_F32, v, c);
            Tid y = bench_matrix(&b, FMT_F32, n, v);
            bench_normal(&b, x, 1, 1), bench_normal(&b, w, 2, 1);
            const double *dx = bench_initial(&b, x), *dw = bench_initial(&b, w);
            double *want = bench_doubles(&b, n * v);
            for (int64_t k = 0; k < n * v * c; k++)
                want[k / c] += dx[k / c / v * c + k % c] * dw[k / c % v * c + k % c];
            bench_check(&b, (Step){.op = OP_HEAD_LOGITS, .head_logits = {.in = {x, w}, .out = {y}}});
            bench_expect(&b, y, want, 2e-5);
            bench_close(&b);
        }
}
