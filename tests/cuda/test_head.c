/* test_head.c - the head on the GPU against the CPU: log-probabilities, entropies and gradients, in chunks and whole.
 *
 * On the GPU logits are kept in the format of the hidden rows unless the step says fp32, on the CPU in fp32: with bf16
 * rows a logit above 8 is off by up to 1/32, a probability by as much of itself. */
#include "base/rng.h"
#include "tests/cuda/cuda_test.h"

typedef struct HeadCase {
    int64_t n, v, c, chunk;
} HeadCase;

static const HeadCase cases[] = {
    {1, 7, 5, 128},       {3, 1000, 64, 128},   {130, 257, 33, 128}, {300, 1000, 64, 128},
    {300, 1000, 64, 512}, {257, 4100, 96, 256}, {2, 33000, 40, 128},
    {2, 60000, 24, 128}, /* rows that are not kept whole, in any format */
};

typedef struct HeadTest {
    CudaTest t;
    HeadCase c;
    AttrHead attr;
    Tid x, w, labels, dlogp, beta, clock, logp, lse, entropy, dx, dw;
    double logit_slack; /* of one logit, and so of a row where it is alone at the top */
    double rounding;    /* of its gradient, as a share */
} HeadTest;

/* Every third label of the first rows is not scored although its gradient is not zero; rows [128, 256) have no
 * gradient. */
static void fill_rows(HeadTest *h) {
    int32_t *labels = h->t.initial[h->labels];
    double *d = mem_alloc(h->c.n * (int64_t)sizeof *d);
    for (int64_t i = 0; i < h->c.n; i++) {
        labels[i] = i % 3 == 1 && i < 128 ? -100 : (int32_t)(rng_u32(5, (uint64_t)i) % (uint64_t)h->c.v);
        d[i] = i >= 128 && i < 256 ? 0 : 0.01 * rng_normal(6, (uint64_t)i);
    }
    labels[0] = (int32_t)h->c.v - 1; /* the last, in what vectors leave over */
    cuda_test_set(&h->t, h->dlogp, d);
    mem_free(d);
}

static void open_head(HeadTest *h, HeadCase c, bool fp32, Format f, Format w, Format gradient, double beta) {
    CudaTest *t = &h->t;
    cuda_test_open(t, "head %lld rows, %lld words, width %lld, chunk %lld, %s%s, weight %s, gradient %s, beta %g",
                   (long long)c.n, (long long)c.v, (long long)c.c, (long long)c.chunk, format_name(f),
                   fp32 ? " with fp32 logits" : "",
                   format_name(w), format_name(gradient), beta);
    h->c = c;
    h->attr = (AttrHead){.chunk = c.chunk, .fp32 = fp32};
    h->x = cuda_test_matrix(t, f, c.n, c.c), h->w = cuda_test_matrix(t, w, c.v, c.c);
    h->labels = cuda_test_vector(t, FMT_I32, c.n), h->dlogp = cuda_test_vector(t, FMT_F32, c.n);
    h->beta = beta < 0 ? NONE : cuda_test_number(t, FMT_F32, beta), h->clock = cuda_test_clock(t, 8, 0, 1);
    h->logp = cuda_test_vector(t, FMT_F32, c.n), h->lse = cuda_test_vector(t, FMT_F32, c.n);
    h->entropy = cuda_test_vector(t, FMT_F32, c.n);
    h->dx = cuda_test_matrix(t, f, c.n, c.c), h->dw = cuda_test_matrix(t, gradient, c.v, c.c);
    cuda_test_normal(t, h->x, 1, 1);
    cuda_test_normal(t, h->w, 2, 2 / sqrt((double)c.c));
    if (beta != 0) cuda_test_normal(t, h->dw, 3, 0.01);
    fill_rows(h);
    h->rounding = f == FMT_BF16 ? 0.04 : 0.006;
    h->logit_slack = f == FMT_F32 || fp32 ? 2e-5 : h->rounding;
}

static void expect_scores(HeadTest *h, bool with_entropy) {
    cuda_test_near(&h->t, h->logp, 2 * h->logit_slack, 0);
    cuda_test_near(&h->t, h->lse, h->logit_slack, 0);
    if (with_entropy) cuda_test_near(&h->t, h->entropy, h->logit_slack, 0);
}

/* A gradient of logits, at most 0.04 large here, is off by as much of itself as the logit, and rounded once. */
static void expect_gradients(HeadTest *h) {
    Format f = prog_t(&h->t.p, h->x)->format, g = prog_t(&h->t.p, h->dw)->format;
    double off = f == FMT_F32 ? 2e-7 : 0.04 * h->rounding;
    cuda_test_expect(&h->t, h->dx, off);
    if (g == FMT_F32)
        cuda_test_expect(&h->t, h->dw, 4 * off);
    else
        cuda_test_near(&h->t, h->dw, 4 * off + 2e-4,
                       0x1p-6); /* rounded at random once a chunk, on the CPU every 128 rows */
}

static void try_head(HeadCase c, bool fp32, Format f, Format w, Format gradient, double beta) {
    HeadTest h;
    open_head(&h, c, fp32, f, w, gradient, beta);
    CudaTest *t = &h.t;
    cuda_test_run(t,
                  (Step){.op = OP_HEAD_LOGP,
                         .head_logp = {.in = {h.x, h.w, h.labels}, .out = {h.logp, h.lse}},
                         .attr.head = h.attr},
                  false);
    expect_scores(&h, false);
    cuda_test_run(t,
                  (Step){.op = OP_HEAD_LOGP,
                         .head_logp = {.in = {h.x, h.w, h.labels}, .out = {h.logp, h.lse, h.entropy}},
                         .attr.head = h.attr},
                  false);
    expect_scores(&h, true);
    cuda_test_run(t,
                  (Step){.op = OP_HEAD_SWEEP,
                         .head_sweep = {.in = {.x = h.x,
                                               .w = h.w,
                                               .labels = h.labels,
                                               .dlogp = h.dlogp,
                                               .beta = h.beta,
                                               .clock = h.clock},
                                        .out = {.logp = h.logp, .lse = h.lse, .dx = h.dx, .dw = h.dw}},
                         .attr.head = h.attr,
                         .fresh = beta == 0},
                  false);
    expect_scores(&h, false);
    expect_gradients(&h);
    memcpy(t->initial[h.lse], t->cpu[h.lse], (size_t)c.n * 4);
    cuda_test_run(t,
                  (Step){.op = OP_HEAD_LOGP_GRAD,
                         .head_logp_grad = {.in = {.x = h.x,
                                                   .w = h.w,
                                                   .labels = h.labels,
                                                   .lse = h.lse,
                                                   .dlogp = h.dlogp,
                                                   .beta = h.beta,
                                                   .clock = h.clock},
                                            .out = {h.dx, h.dw}},
                         .attr.head = h.attr},
                  false);
    expect_gradients(&h);
    cuda_test_run(
        t,
        (Step){
            .op = OP_HEAD_LOGP_GRAD,
            .head_logp_grad =
                {.in = {.x = h.x, .w = h.w, .labels = h.labels, .lse = h.lse, .dlogp = h.dlogp, .clock = h.clock},
                 .out = {h.dx}},
            .attr.head = h.attr},
        false);
    cuda_test_expect(t, h.dx, f == FMT_F32 ? 2e-7 : 0.04 * h.rounding);
    cuda_test_close(t);
}

TEST(head_on_the_gpu) {
    if (!cuda_test_ready()) return;
    for (int i = 0; i < COUNT_OF(cases); i++) {
        try_head(cases[i], false, FMT_F32, FMT_F32, FMT_F32, i % 3 - 1);
        try_head(cases[i], false, FMT_BF16, FMT_BF16, FMT_BF16, (i + 1) % 3 - 1);
        try_head(cases[i], false, FMT_BF16, FMT_BF16, FMT_F32, (i + 2) % 3 - 1);
        try_head(cases[i], false, FMT_F16, FMT_F16, FMT_F32, i % 3 - 1);
        try_head(cases[i], false, FMT_F32, FMT_BF16, FMT_F32, 0.5);
    }
}

TEST(head_with_fp32_logits_on_the_gpu) {
    if (!cuda_test_ready()) return;
    for (int i = 0; i < COUNT_OF(cases); i++) {
        try_head(cases[i], true, FMT_BF16, FMT_BF16, FMT_BF16, i % 3 - 1);
        try_head(cases[i], true, FMT_BF16, FMT_BF16, FMT_F32, (i + 1) % 3 - 1);
        try_head(cases[i], true, FMT_F16, FMT_F16, FMT_F32, 0);
    }
}

/* Every row of x is one 1 among zeros, so that its logits are a column of w to the bit on both devices. */
static void try_draws(int64_t n, int64_t v, Format f, DrawHow how, float scale) {
    enum { C = 24 };
    CudaTest t;
    cuda_test_open(&t, "head draws %lldx%lld %s: temperature %g top-k %d top-p %g min-p %g ids %d scale %g",
                   (long long)n, (long long)v, format_name(f), how.temperature, how.top_k, how.top_p, how.min_p,
                   how.vocab, scale);
    Tid x = cuda_test_matrix(&t, f, n, C), w = cuda_test_matrix(&t, f, v, C);
    Tid labels = cuda_test_vector(&t, FMT_I32, n), hows = cuda_test_matrix(&t, FMT_I32, n, DRAW_WORDS);
    Tid logp = cuda_test_vector(&t, FMT_F32, n), lse = cuda_test_vector(&t, FMT_F32, n);
    Tid entropy = cuda_test_vector(&t, FMT_F32, n), drawn = cuda_test_vector(&t, FMT_I32, n);
    double *ones = MEM_NEW(double, n * C);
    for (int64_t i = 0; i < n; i++) {
        ones[i * C + i % C] = 1;
        ((int32_t *)t.initial[labels])[i] = i % 5 == 2 ? -100 : (int32_t)(rng_u32(5, (uint64_t)i) % (uint64_t)v);
        how.key = rng_fold(77, (uint64_t)(i / 3));
        how.first = -(int32_t)(i % 7);
        ((DrawHow *)t.initial[hows])[i] = how;
    }
    cuda_test_set(&t, x, ones);
    mem_free(ones);
    cuda_test_normal(&t, w, 2, 3);
    cuda_test_run(&t,
                  (Step){.op = OP_HEAD_LOGP,
                         .head_logp = {.in = {x, w, labels, hows}, .out = {logp, lse, entropy, drawn}},
                         .attr.head = {.chunk = 128, .scale = scale, .fp32 = true}},
                  false);
    cuda_test_same(&t, drawn);
    cuda_test_near(&t, logp, 2e-5, 1e-6);
    cuda_test_near(&t, entropy, 2e-5, 1e-6);
    cuda_test_close(&t);
}

TEST(tokens_a_head_draws_on_the_gpu_are_the_cpus) {
    if (!cuda_test_ready()) return;
    static const DrawHow settings[] = {
        {.temperature = 0, .top_p = 1, .repetition = 1},
        {.temperature = 1, .top_p = 1, .repetition = 1},
        {.temperature = 1, .top_p = 0.9f, .repetition = 1},
        {.temperature = 1, .top_k = 40, .top_p = 1, .repetition = 1},
        {.temperature = 1, .top_k = 100, .top_p = 0.8f, .min_p = 0.01f, .repetition = 1, .vocab = 690},
    };
    for (int i = 0; i < COUNT_OF(settings); i++) {
        try_draws(300, 700, FMT_F32, settings[i], 0);
        try_draws(130, 701, FMT_BF16, settings[i], 1 / 0.7f);
        try_draws(5, 151936, FMT_BF16, settings[i], 1 / 1.3f);
    }
}

/* Decoded panel by panel; the last has more than one, so that it is large: no gradient of the weight, no normal
 * draws. */
TEST(an_int8_head_on_the_gpu) {
    if (!cuda_test_ready()) return;
    static const HeadCase coded[] = {
        {3, 1000, 64, 128}, {130, 257, 48, 128}, {300, 4100, 96, 128}, {3, 31000, 1100, 128}};
    for (int i = 0; i < 7; i++) {
        HeadCase c = coded[i / 2];
        Format f = i % 2 ? FMT_BF16 : FMT_F32;
        CudaTest t;
        cuda_test_open(&t, "int8 head %lld rows, %lld words, width %lld, %s", (long long)c.n, (long long)c.v,
                       (long long)c.c, format_name(f));
        HeadTest h = {.c = c};
        Tid x = cuda_test_matrix(&t, f, c.n, c.c), w = cuda_test_matrix(&t, FMT_INT8, c.v, c.c),
            y = cuda_test_matrix(&t, FMT_F32, c.n, c.v);
        Tid dx = cuda_test_matrix(&t, f, c.n, c.c), logp = cuda_test_vector(&t, FMT_F32, c.n),
            lse = cuda_test_vector(&t, FMT_F32, c.n);
        h.labels = cuda_test_vector(&t, FMT_I32, c.n), h.dlogp = cuda_test_vector(&t, FMT_F32, c.n);
        Tid clock = cuda_test_clock(&t, 8, 0, 1);
        cuda_test_normal(&t, x, 1, 1);
        int64_t row_bytes = format_row_bytes(FMT_INT8, c.c);
        memset(t.initial[w], 0, (size_t)(c.v * row_bytes));
        for (int64_t k = 0; k < c.v * c.c; k++) {
            char *row = (char *)t.initial[w] + k / c.c * row_bytes;
            row[k % c.c] = (char)(((uint32_t)k * 2654435761u >> 24) % 255 - 127);
            /* codes are 74 large on average */
            *(float *)(row + format_row_scale(FMT_INT8, c.c)) = 2.0f / 74 / sqrtf((float)c.c);
        }
        h.t = t;
        fill_rows(&h);
        double slack = f == FMT_F32 ? 5e-5 : 0.04;
        cuda_test_run(&t, (Step){.op = OP_HEAD_LOGITS, .head_logits = {.in = {x, w}, .out = {y}}}, false);
        cuda_test_expect(&t, y, slack);
        cuda_test_run(
            &t,
            (Step){.op = OP_HEAD_SWEEP,
                   .head_sweep = {.in = {.x = x, .w = w, .labels = h.labels, .dlogp = h.dlogp, .clock = clock},
                                  .out = {logp, lse, dx}},
                   .attr.head = {c.chunk}},
            false);
        cuda_test_near(&t, logp, 2 * slack, 0);
        cuda_test_expect(&t, dx, f == FMT_F32 ? 2e-6 : 0.04 * slack);
        cuda_test_close(&t);
    }
}

TEST(head_logits_on_the_gpu) {
    if (!cuda_test_ready()) return;
    static const Format formats[] = {FMT_F32, FMT_BF16, FMT_F16};
    for (int i = 0; i < COUNT_OF(cases); i++)
        for (int f = 0; f < COUNT_OF(formats); f++) {
            HeadCase c = cases[i];
            CudaTest t;
            cuda_test_open(&t, "head_logits %lldx%lldx%lld %s", (long long)c.n, (long long)c.v, (long long)c.c,
                           format_name(formats[f]));
            Tid x = cuda_test_matrix(&t, formats[f], c.n, c.c), w = cuda_test_matrix(&t, formats[f], c.v, c.c);
            Tid y = cuda_test_matrix(&t, FMT_F32, c.n, c.v);
            cuda_test_normal(&t, x, 1, 1);
            cuda_test_normal(&t, w, 2, 1);
            cuda_test_run(&t, (Step){.op = OP_HEAD_LOGITS, .head_logits = {.in = {x, w}, .out = {y}}}, false);
            cuda_test_expect(&t, y, 2e-6 + 4e-6 * sqrt((double)c.c));
            cuda_test_close(&t);
        }
}

/* A row whose largest logit is far above the rest, one of equal logits, one with very negative ones: no overflow,
 * no NaN. */
TEST(head_of_extreme_rows_on_the_gpu) {
    if (!cuda_test_ready()) return;
    enum { N = 3, V = 100, C = 3 };
    CudaTest t;
    cuda_test_open(&t, "head of extreme rows");
    Tid x = cuda_test_matrix(&t, FMT_F32, N, C), w = cuda_test_matrix(&t, FMT_F32, V, C),
        labels = cuda_test_vector(&t, FMT_I32, N);
    Tid logp = cuda_test_vector(&t, FMT_F32, N), lse = cuda_test_vector(&t, FMT_F32, N),
        entropy = cuda_test_vector(&t, FMT_F32, N);
    double xs[N * C] = {1, 0, 0, 0, 1, 0, 0, 0, 1}, ws[V * C];
    for (int v = 0; v < V; v++)
        ws[v * C] = v == 70 ? 3e4 : -3e4 + v, ws[v * C + 1] = 5, ws[v * C + 2] = -1000.0 * v;
    cuda_test_set(&t, x, xs);
    cuda_test_set(&t, w, ws);
    cuda_test_set_i32(&t, labels, (int32_t[N]){70, 3, 0});
    cuda_test_run(&t,
                  (Step){.op = OP_HEAD_LOGP,
                         .head_logp = {.in = {x, w, labels}, .out = {logp, lse, entropy}},
                         .attr.head = {128}},
                  false);
    cuda_test_near(&t, logp, 1e-5, 1e-6);
    cuda_test_near(&t, lse, 1e-5, 1e-6);
    cuda_test_near(&t, entropy, 1e-5, 1e-6);
    EXPECT_NEAR(((float *)t.gpu[logp])[0], 0, 1e-6);
    EXPECT_NEAR(((float *)t.gpu[entropy])[1], log(V), 1e-4);
    cuda_test_close(&t);
}
