/* test_head.c - the head on the GPU against the CPU: log-probabilities, entropies and gradients, in chunks and whole.
 *
 * On the GPU logits are kept in the format of the hidden rows, on the CPU in fp32: with bf16 rows a logit above 8 is
 * off by up to 1/32, a probability by as much of itself. */
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
    Tid x, w, labels, dlogp, beta, clock, logp, lse, entropy, dx, dw;
    double logit_slack; /* of one logit, and so of a row where it is alone at the top */
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

static void open_head(HeadTest *h, HeadCase c, Format f, Format w, Format gradient, double beta) {
    CudaTest *t = &h->t;
    cuda_test_open(t, "head %lld rows, %lld words, width %lld, chunk %lld, %s, weight %s, gradient %s, beta %g",
                   (long long)c.n, (long long)c.v, (long long)c.c, (long long)c.chunk, format_name(f),
                   format_name(w), format_name(gradient), beta);
    h->c = c;
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
    h->logit_slack = f == FMT_F32 ? 2e-5 : f == FMT_BF16 ? 0.04 : 0.006;
}

static void expect_scores(HeadTest *h, bool with_entropy) {
    cuda_test_near(&h->t, h->logp, 2 * h->logit_slack, 0);
    cuda_test_near(&h->t, h->lse, h->logit_slack, 0);
    if (with_entropy) cuda_test_near(&h->t, h->entropy, h->logit_slack, 0);
}

/* A gradient of logits, at most 0.04 large here, is off by logit_slack of itself, and rounded once. */
static void expect_gradients(HeadTest *h) {
    Format f = prog_t(&h->t.p, h->x)->format, g = prog_t(&h->t.p, h->dw)->format;
    double off = f == FMT_F32 ? 2e-7 : 0.04 * h->logit_slack;
    cuda_test_expect(&h->t, h->dx, off);
    if (g == FMT_F32)
        cuda_test_expect(&h->t, h->dw, 4 * off);
    else
        cuda_test_near(&h->t, h->dw, 4 * off + 2e-4,
                       0x1p-6); /* rounded at random once a chunk, on the CPU every 128 rows */
}

static void try_head(HeadCase c, Format f, Format w, Format gradient, double beta) {
    HeadTest h;
    open_head(&h, c, f, w, gradient, beta);
    CudaTest *t = &h.t;
    cuda_test_run(t,
                  (Step){.op = OP_HEAD_LOGP,
                         .head_logp = {.in = {h.x, h.w, h.labels}, .out = {h.logp, h.lse}},
                         .attr.head = {c.chunk}},
                  false);
    expect_scores(&h, false);
    cuda_test_run(t,
                  (Step){.op = OP_HEAD_LOGP,
                         .head_logp = {.in = {h.x, h.w, h.labels}, .out = {h.logp, h.lse, h.entropy}},
                         .attr.head = {c.chunk}},
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
                         .attr.head = {c.chunk},
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
                         .attr.head = {c.chunk}},
                  false);
    expect_gradients(&h);
    cuda_test_run(
        t,
        (Step){
            .op = OP_HEAD_LOGP_GRAD,
            .head_logp_grad =
                {.in = {.x = h.x, .w = h.w, .labels = h.labels, .lse = h.lse, .dlogp = h.dlogp, .clock = h.clock},
                 .out = {h.dx}},
            .attr.head = {c.chunk}},
        false);
    cuda_test_expect(t, h.dx, f == FMT_F32 ? 2e-7 : 0.04 * h.logit_slack);
    cuda_test_close(t);
}

TEST(head_on_the_gpu) {
    if (!cuda_test_ready()) return;
    for (int i = 0; i < COUNT_OF(cases); i++) {
        try_head(cases[i], FMT_F32, FMT_F32, FMT_F32, i % 3 - 1);
        try_head(cases[i], FMT_BF16, FMT_BF16, FMT_BF16, (i + 1) % 3 - 1);
        try_head(cases[i], FMT_BF16, FMT_BF16, FMT_F32, (i + 2) % 3 - 1);
        try_head(cases[i], FMT_F16, FMT_F16, FMT_F32, i % 3 - 1);
        try_head(cases[i], FMT_F32, FMT_BF16, FMT_F32, 0.5);
    }
}

/* Decoded panel by panel; the last has more than one, so that it is large: no gradient of the weight, no normal draws. */
TEST(an_int8_head_on_the_gpu) {
    if (!cuda_test_ready()) return;
    static const HeadCase coded[] = {{3, 1000, 64, 128}, {130, 257, 48, 128}, {300, 4100, 96, 128}, {3, 31000, 1100, 128}};
    for (int i = 0; i < 7; i++) {
        HeadCase c = coded[i / 2];
        Format f = i % 2 ? FMT_BF16 : FMT_F32;
        CudaTest t;
        cuda_test_open(&t, "int8 head %lld rows, %lld words, width %lld, %s", (long long)c.n, (long long)c.v, (long long)c.c, format_name(f));
        HeadTest h = {.c = c};
        Tid x = cuda_test_matrix(&t, f, c.n, c.c), w = cuda_test_matrix(&t, FMT_INT8, c.v, c.c), y = cuda_test_matrix(&t, FMT_F32, c.n, c.v);
        Tid dx = cuda_test_matrix(&t, f, c.n, c.c), logp = cuda_test_vector(&t, FMT_F32, c.n), lse = cuda_test_vector(&t, FMT_F32, c.n);
        h.labels = cuda_test_vector(&t, FMT_I32, c.n), h.dlogp = cuda_test_vector(&t, FMT_F32, c.n);
        Tid clock = cuda_test_clock(&t, 8, 0, 1);
        cuda_test_normal(&t, x, 1, 1);
        int64_t row_bytes = format_row_bytes(FMT_INT8, c.c);
        memset(t.initial[w], 0, (size_t)(c.v * row_bytes));
        for (int64_t k = 0; k < c.v * c.c; k++) {
            char *row = (char *)t.initial[w] + k / c.c * row_bytes;
            row[k % c.c] = (char)(((uint32_t)k * 2654435761u >> 24) % 255 - 127);
            *(float *)(row + format_row_scale(FMT_INT8, c.c)) = 2.0f / 74 / sqrtf((float)c.c); /* codes are 74 large on average */
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
