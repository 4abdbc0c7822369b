/* test_head_terms.c - a head by the terms of a loss, and distances of hidden rows, on the GPU against the CPU. Logits
 * are kept in the format of the hidden rows here, in fp32 there (test_head.c). */
#include "base/rng.h"
#include "tests/cuda/cuda_test.h"

typedef struct TermsCase {
    int64_t n, v, c, chunk;
    Format f;
    bool target;
} TermsCase;

typedef struct TermsTest {
    CudaTest t;
    Tid x, w, labels, terms, target_x, target_w, dlogp, beta, clock, value, lse, dx, dw;
} TermsTest;

/* A row asks for up to all terms at once; every third has no label, every fourth no gradient. */
static void fill_rows(TermsTest *h, const TermsCase *c) {
    int32_t *labels = h->t.initial[h->labels];
    double *d = mem_alloc(c->n * (int64_t)sizeof *d), *terms = mem_alloc(c->n * HEAD_TERMS * (int64_t)sizeof *terms);
    for (int64_t i = 0; i < c->n; i++) {
        labels[i] = i % 3 == 1 ? -100 : (int32_t)(rng_u32(5, (uint64_t)i) % (uint64_t)c->v);
        d[i] = i % 4 == 2 ? 0 : 0.01 * (double)rng_normal(6, (uint64_t)i);
        for (int k = 0; k < HEAD_TERMS; k++)
            terms[i * HEAD_TERMS + k] = i >> k & 1 ? 0 : 0.25 + (double)k / 8;
    }
    cuda_test_set(&h->t, h->dlogp, d);
    cuda_test_set(&h->t, h->terms, terms);
    mem_free(d), mem_free(terms);
}

static void open_terms(TermsTest *h, const TermsCase *c) {
    CudaTest *t = &h->t;
    *h = (TermsTest){0};
    cuda_test_open(t, "terms, %lld rows of %lld words, width %lld, chunk %lld, %s%s", (long long)c->n, (long long)c->v,
                   (long long)c->c, (long long)c->chunk, format_name(c->f), c->target ? "" : ", no target");
    h->x = cuda_test_matrix(t, c->f, c->n, c->c), h->w = cuda_test_matrix(t, c->f, c->v, c->c);
    h->labels = cuda_test_vector(t, FMT_I32, c->n), h->terms = cuda_test_matrix(t, FMT_F32, c->n, HEAD_TERMS);
    h->dlogp = cuda_test_vector(t, FMT_F32, c->n), h->beta = cuda_test_number(t, FMT_F32, 0);
    h->clock = cuda_test_clock(t, 8, 0, 1);
    h->value = cuda_test_vector(t, FMT_F32, c->n), h->lse = cuda_test_vector(t, FMT_F32, c->n);
    h->dx = cuda_test_matrix(t, c->f, c->n, c->c), h->dw = cuda_test_matrix(t, FMT_F32, c->v, c->c);
    cuda_test_normal(t, h->x, 1, 1), cuda_test_normal(t, h->w, 2, 2 / sqrt((double)c->c));
    if (c->target) {
        h->target_x = cuda_test_matrix(t, c->f, c->n, c->c), h->target_w = cuda_test_matrix(t, c->f, c->v, c->c);
        cuda_test_normal(t, h->target_x, 3, 1), cuda_test_normal(t, h->target_w, 4, 2 / sqrt((double)c->c));
    }
    fill_rows(h, c);
}

/* The two largest 16-bit logits may be equal where fp32 tells them apart: then the margin's slope is at another one, of
 * which a whole step of dx and dw shows. Cases with 16 bits have words few enough for that not to happen. */
static void try_terms(const TermsCase *c) {
    TermsTest h;
    open_terms(&h, c);
    double logit = c->f == FMT_F32 ? 5e-5 : 0.15, gradient = c->f == FMT_F32 ? 1e-6 : 4e-3;
    AttrHead attr = {.chunk = c->chunk};
    Step forward = {.op = OP_HEAD_LOGP, .attr.head = attr}, back = {.op = OP_HEAD_LOGP_GRAD, .attr.head = attr},
         sweep = {.op = OP_HEAD_SWEEP, .attr.head = attr, .fresh = true};
    forward.head_logp.in.x = h.x, forward.head_logp.in.w = h.w, forward.head_logp.in.labels = h.labels;
    forward.head_logp.in.terms = h.terms;
    forward.head_logp.in.target_x = h.target_x, forward.head_logp.in.target_w = h.target_w;
    forward.head_logp.out.logp = h.value, forward.head_logp.out.lse = h.lse;
    cuda_test_run(&h.t, forward, false);
    cuda_test_near(&h.t, h.value, logit, 0.02), cuda_test_near(&h.t, h.lse, logit, 0);
    sweep.head_sweep.in.x = h.x, sweep.head_sweep.in.w = h.w, sweep.head_sweep.in.labels = h.labels;
    sweep.head_sweep.in.dlogp = h.dlogp, sweep.head_sweep.in.beta = h.beta, sweep.head_sweep.in.clock = h.clock;
    sweep.head_sweep.in.terms = h.terms;
    sweep.head_sweep.in.target_x = h.target_x, sweep.head_sweep.in.target_w = h.target_w;
    sweep.head_sweep.out.logp = h.value, sweep.head_sweep.out.lse = h.lse;
    sweep.head_sweep.out.dx = h.dx, sweep.head_sweep.out.dw = h.dw;
    cuda_test_run(&h.t, sweep, false);
    cuda_test_near(&h.t, h.value, logit, 0.02);
    cuda_test_near(&h.t, h.dx, gradient, 0.02), cuda_test_near(&h.t, h.dw, gradient, 0.02);
    memcpy(h.t.initial[h.lse], h.t.cpu[h.lse], (size_t)c->n * 4);
    back.head_logp_grad.in.x = h.x, back.head_logp_grad.in.w = h.w, back.head_logp_grad.in.labels = h.labels;
    back.head_logp_grad.in.lse = h.lse, back.head_logp_grad.in.dlogp = h.dlogp;
    back.head_logp_grad.in.beta = h.beta, back.head_logp_grad.in.clock = h.clock;
    back.head_logp_grad.in.terms = h.terms;
    back.head_logp_grad.in.target_x = h.target_x, back.head_logp_grad.in.target_w = h.target_w;
    back.head_logp_grad.out.dx = h.dx, back.head_logp_grad.out.dw = h.dw;
    cuda_test_run(&h.t, back, false);
    cuda_test_near(&h.t, h.dx, gradient, 0.02), cuda_test_near(&h.t, h.dw, gradient, 0.02);
    cuda_test_close(&h.t);
}

TEST(a_head_by_terms_on_the_gpu) {
    static const TermsCase cases[] = {{1, 7, 5, 128, FMT_F32, true},       {130, 257, 33, 128, FMT_F32, true},
                                      {300, 1000, 64, 128, FMT_F32, true}, {16, 4100, 96, 128, FMT_F32, false},
                                      {40, 60, 24, 128, FMT_BF16, true},   {40, 60, 24, 128, FMT_F16, true}};
    if (!cuda_test_ready()) return;
    for (int i = 0; i < COUNT_OF(cases); i++) try_terms(&cases[i]);
}

TEST(distances_of_rows_on_the_gpu) {
    static const Format formats[] = {FMT_F32, FMT_BF16, FMT_F16};
    if (!cuda_test_ready()) return;
    for (int i = 0; i < COUNT_OF(formats); i++) {
        CudaTest t;
        int64_t n = 5, c = 700 + i;
        double how[] = {1, 0, 0, 2, 1, 0, 0, 0.5, 1, 0.25}, up[] = {0.5, -1, 0, 2, 1};
        cuda_test_open(&t, "distances, %s", format_name(formats[i]));
        Tid x = cuda_test_matrix(&t, formats[i], n, c), ref = cuda_test_matrix(&t, formats[i], n, c);
        Tid toward = cuda_test_vector(&t, FMT_F32, c), words = cuda_test_matrix(&t, FMT_F32, n, DISTANCE_WORDS);
        Tid v = cuda_test_vector(&t, FMT_F32, n), dv = cuda_test_vector(&t, FMT_F32, n);
        Tid dx = cuda_test_matrix(&t, formats[i], n, c);
        cuda_test_normal(&t, x, 1, 1), cuda_test_normal(&t, ref, 2, 1), cuda_test_normal(&t, toward, 3, 1);
        cuda_test_set(&t, words, how), cuda_test_set(&t, dv, up);
        cuda_test_run(&t, (Step){.op = OP_ROW_DISTANCE, .row_distance = {.in = {x, ref, toward, words}, .out = {v}}},
                      false);
        cuda_test_near(&t, v, 1e-6, 1e-5);
        cuda_test_run(&t,
                      (Step){.op = OP_ROW_DISTANCE_GRAD,
                             .row_distance_grad = {.in = {dv, x, ref, toward, words}, .out = {dx}}},
                      false);
        cuda_test_expect(&t, dx, 1e-7);
        cuda_test_close(&t);
    }
}
