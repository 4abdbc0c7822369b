/* test_head_terms.c - a head by the terms of a loss, and the distance of hidden rows: against torch's autograd
 * (tools/make_unlearn_golden.py) and against doubles, with the same bits in any chunk and in one sweep or two. */
#include <jansson.h>
#include <math.h>

#include "base/rng.h"
#include "tests/ops/bench.h"

typedef struct Terms {
    Bench b;
    int64_t n, v, c;
    float scale;
    Tid x, w, labels, terms, target_x, target_w, dlogp, beta, clock, value, lse, dx, dw;
} Terms;

typedef struct TermsCase {
    int64_t n, v, c;
    Format f;
    float scale;
    bool target;
} TermsCase;

static void open_tensors(Terms *t, const TermsCase *k) {
    Bench *b = &t->b;
    t->n = k->n, t->v = k->v, t->c = k->c, t->scale = k->scale;
    t->x = bench_matrix(b, k->f, t->n, t->c), t->w = bench_matrix(b, k->f, t->v, t->c);
    t->labels = bench_vector(b, FMT_I32, t->n), t->terms = bench_matrix(b, FMT_F32, t->n, HEAD_TERMS);
    if (k->target) t->target_x = bench_matrix(b, k->f, t->n, t->c), t->target_w = bench_matrix(b, k->f, t->v, t->c);
    t->dlogp = bench_vector(b, FMT_F32, t->n), t->beta = bench_number(b, FMT_F32, 0), t->clock = bench_clock(b, 8);
    t->value = bench_vector(b, FMT_F32, t->n), t->lse = bench_vector(b, FMT_F32, t->n);
    t->dx = bench_matrix(b, k->f, t->n, t->c), t->dw = bench_matrix(b, FMT_F32, t->v, t->c);
}

static Step step_of(const Terms *t, OpId op, int64_t chunk) {
    Step s = {.op = op, .attr.head = {.chunk = chunk, .scale = t->scale}};
    if (op == OP_HEAD_LOGP) {
        s.head_logp.in.x = t->x, s.head_logp.in.w = t->w, s.head_logp.in.labels = t->labels;
        s.head_logp.in.terms = t->terms;
        s.head_logp.in.target_x = t->target_x, s.head_logp.in.target_w = t->target_w;
        s.head_logp.out.logp = t->value, s.head_logp.out.lse = t->lse;
    } else if (op == OP_HEAD_LOGP_GRAD) {
        s.head_logp_grad.in.x = t->x, s.head_logp_grad.in.w = t->w, s.head_logp_grad.in.labels = t->labels;
        s.head_logp_grad.in.lse = t->lse, s.head_logp_grad.in.dlogp = t->dlogp;
        s.head_logp_grad.in.beta = t->beta, s.head_logp_grad.in.clock = t->clock;
        s.head_logp_grad.in.terms = t->terms;
        s.head_logp_grad.in.target_x = t->target_x, s.head_logp_grad.in.target_w = t->target_w;
        s.head_logp_grad.out.dx = t->dx, s.head_logp_grad.out.dw = t->dw;
    } else {
        s.head_sweep.in.x = t->x, s.head_sweep.in.w = t->w, s.head_sweep.in.labels = t->labels;
        s.head_sweep.in.dlogp = t->dlogp, s.head_sweep.in.beta = t->beta, s.head_sweep.in.clock = t->clock;
        s.head_sweep.in.terms = t->terms;
        s.head_sweep.in.target_x = t->target_x, s.head_sweep.in.target_w = t->target_w;
        s.head_sweep.out.logp = t->value, s.head_sweep.out.lse = t->lse;
        s.head_sweep.out.dx = t->dx, s.head_sweep.out.dw = t->dw;
    }
    return s;
}

/* ---- torch's ---- */

static int64_t read_numbers(const json_t *list, double *to) {
    for (size_t i = 0; i < json_array_size(list); i++) to[i] = json_number_value(json_array_get(list, i));
    return (int64_t)json_array_size(list);
}

/* The head is the identity, so that hidden rows are the logits and their gradients are those of the logits. */
static void check_logits(const json_t *c, const char *name, const json_t *want) {
    double z[32], ref[32], eye[32 * 32] = {0}, terms[HEAD_TERMS] = {0}, up = -1;
    int64_t n = read_numbers(json_object_get(c, "z"), z);
    int32_t label = (int32_t)json_integer_value(json_object_get(c, "label"));
    Terms t = {0};
    bench_open(&t.b, "terms of %s", name);
    open_tensors(&t, &(TermsCase){1, n, n, FMT_F32, 1, true});
    read_numbers(json_object_get(c, "ref"), ref);
    for (int64_t i = 0; i < n; i++) eye[i * n + i] = 1;
    if (!strcmp(name, "label")) terms[TERM_LABEL] = 1;
    if (!strcmp(name, "undial")) terms[TERM_TARGET] = 1, terms[TERM_LOWERED] = 10;
    if (!strcmp(name, "divergence")) terms[TERM_TARGET] = terms[TERM_ENTROPY] = 1;
    if (!strcmp(name, "margin")) terms[TERM_MARGIN] = 1;
    bench_set(&t.b, t.x, z), bench_set(&t.b, t.w, eye), bench_set_i32(&t.b, t.labels, &label);
    bench_set(&t.b, t.target_x, ref), bench_set(&t.b, t.target_w, eye);
    bench_set(&t.b, t.terms, terms), bench_set(&t.b, t.dlogp, &up);
    bench_check(&t.b, step_of(&t, OP_HEAD_SWEEP, 128));
    double value = -json_number_value(json_object_get(want, "value")), d[32];
    read_numbers(json_object_get(want, "gradient"), d);
    bench_expect(&t.b, t.value, &value, 1e-5 * (1 + fabs(value)));
    bench_expect(&t.b, t.dx, d, 1e-5);
    bench_close(&t.b);
}

static void check_distance(const json_t *c, const json_t *want) {
    double z[32], ref[32], how[DISTANCE_WORDS] = {[DISTANCE_TOWARD] = 2}, one = 1, d[32];
    int64_t n = read_numbers(json_object_get(c, "z"), z);
    Bench b;
    bench_open(&b, "distance");
    Tid x = bench_matrix(&b, FMT_F32, 1, n), other = bench_matrix(&b, FMT_F32, 1, n);
    Tid toward = bench_vector(&b, FMT_F32, n), words = bench_matrix(&b, FMT_F32, 1, DISTANCE_WORDS);
    Tid v = bench_vector(&b, FMT_F32, 1), dv = bench_vector(&b, FMT_F32, 1), dx = bench_matrix(&b, FMT_F32, 1, n);
    read_numbers(json_object_get(c, "ref"), ref);
    bench_set(&b, x, z), bench_set(&b, toward, ref), bench_set(&b, words, how), bench_set(&b, dv, &one);
    bench_check(&b, (Step){.op = OP_ROW_DISTANCE, .row_distance = {.in = {x, other, toward, words}, .out = {v}}});
    double value = json_number_value(json_object_get(want, "value"));
    bench_expect(&b, v, &value, 1e-5 * (1 + value));
    bench_check(&b, (Step){.op = OP_ROW_DISTANCE_GRAD,
                           .row_distance_grad = {.in = {dv, x, other, toward, words}, .out = {dx}}});
    read_numbers(json_object_get(want, "gradient"), d);
    bench_expect(&b, dx, d, 1e-5);
    bench_close(&b);
}

TEST(losses_on_logits_and_hidden_rows_are_those_of_autograd) {
    json_t *all = json_load_file("tests/unlearn/dense.json", 0, NULL), *c, *want;
    const char *name;
    size_t k;
    EXPECT(json_array_size(all) > 0);
    json_array_foreach(all, k, c) json_object_foreach(json_object_get(c, "losses"), name, want) {
        if (!strcmp(name, "square")) check_distance(c, want);
        else check_logits(c, name, want);
    }
    json_decref(all);
}

/* ---- several terms at a time ---- */

/* Every third row has no label, every fourth no gradient; a row has up to all terms at once. */
static void fill(Terms *t) {
    Bench *b = &t->b;
    double *d = bench_doubles(b, t->n), *terms = bench_doubles(b, t->n * HEAD_TERMS);
    int32_t *labels = b->initial[t->labels];
    for (int64_t i = 0; i < t->n; i++) {
        labels[i] = i % 3 == 1 ? -100 : (int32_t)(rng_u32(5, (uint64_t)i) % (uint64_t)t->v);
        d[i] = i % 4 == 2 ? 0 : 0.1 * rng_normal(6, (uint64_t)i);
        for (int k = 0; k < HEAD_TERMS; k++)
            terms[i * HEAD_TERMS + k] = (i >> k & 1) ? 0 : fabs((double)rng_normal(7, (uint64_t)(i * HEAD_TERMS + k)));
    }
    bench_set(b, t->dlogp, d), bench_set(b, t->terms, terms);
    bench_normal(b, t->x, 1, 1), bench_normal(b, t->w, 2, 2 / sqrt((double)t->c));
    if (t->target_x) bench_normal(b, t->target_x, 3, 1), bench_normal(b, t->target_w, 4, 2 / sqrt((double)t->c));
}

static void multiply_row(const Terms *t, Tid x, Tid w, int64_t row, double *logits) {
    const double *a = bench_initial((Bench *)&t->b, x) + row * t->c, *m = bench_initial((Bench *)&t->b, w);
    for (int64_t v = 0; v < t->v; v++) {
        logits[v] = 0;
        for (int64_t c = 0; c < t->c; c++) logits[v] += a[c] * m[v * t->c + c] * (double)t->scale;
    }
}

static void to_log_softmax(double *x, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += exp(x[i]);
    for (int64_t i = 0; i < n; i++) x[i] -= log(sum);
}

/* What the terms make of a row, and the gradient by its logits. */
static double want_row(const Terms *t, int64_t row, double *z, double *q, double *d) {
    const float *term = (const float *)t->b.initial[t->terms] + row * HEAD_TERMS;
    int32_t label = ((int32_t *)t->b.initial[t->labels])[row];
    double margin, mean = 0, value = 0, target = t->target_x ? (double)term[TERM_TARGET] : 0,
                   entropy = t->target_x ? (double)term[TERM_ENTROPY] : 0;
    int64_t best = 0;
    multiply_row(t, t->x, t->w, row, z);
    for (int64_t i = 0; i < t->v; i++) best = z[i] > z[best] ? i : best, mean += z[i] / (double)t->v;
    margin = z[best] - mean;
    to_log_softmax(z, t->v);
    memset(q, 0, sizeof *q * (size_t)t->v);
    if (t->target_x) {
        multiply_row(t, t->target_x, t->target_w, row, q);
        if (label >= 0) q[label] -= (double)term[TERM_LOWERED];
        to_log_softmax(q, t->v);
    }
    for (int64_t i = 0; i < t->v; i++) {
        double p = exp(z[i]), of = t->target_x ? exp(q[i]) : 0;
        value += (i == label) * (double)term[TERM_LABEL] * z[i] + target * of * z[i] - entropy * of * q[i];
        d[i] = (double)term[TERM_LABEL] * ((i == label) - p) + target * (of - p) -
               2 * (double)term[TERM_MARGIN] * margin * ((i == best) - 1 / (double)t->v);
    }
    value -= (double)term[TERM_MARGIN] * margin * margin;
    return label < 0 ? 0 : value;
}

static void check_all(Terms *t, const TermsCase *k) {
    double *value = bench_doubles(&t->b, t->n), *dx = bench_doubles(&t->b, t->n * t->c),
           *dw = bench_doubles(&t->b, t->v * t->c), *z = bench_doubles(&t->b, t->v), *q = bench_doubles(&t->b, t->v),
           *d = bench_doubles(&t->b, t->v);
    const double *x = bench_initial(&t->b, t->x), *w = bench_initial(&t->b, t->w);
    for (int64_t i = 0; i < t->n; i++) {
        value[i] = want_row(t, i, z, q, d);
        double g = (double)((float *)t->b.initial[t->dlogp])[i] * (double)t->scale;
        for (int64_t v = 0; v < t->v && ((int32_t *)t->b.initial[t->labels])[i] >= 0; v++)
            for (int64_t c = 0; c < t->c; c++) {
                dx[i * t->c + c] += g * d[v] * w[v * t->c + c];
                dw[v * t->c + c] += g * d[v] * x[i * t->c + c];
            }
    }
    bench_check(&t->b, step_of(t, OP_HEAD_SWEEP, k->n > 128 ? 128 : 1024));
    bench_expect(&t->b, t->value, value, 5e-5);
    bench_expect(&t->b, t->dx, dx, 2e-5);
    bench_expect(&t->b, t->dw, dw, 2e-5);
}

static const TermsCase cases[] = {
    {1, 5, 3, FMT_F32, 1, true},      {64, 1030, 16, FMT_F32, 1, true}, {140, 200, 40, FMT_F32, 0.5f, true},
    {300, 70, 24, FMT_BF16, 1, true}, {33, 90, 8, FMT_F32, 2, false},
};

TEST(a_head_by_terms_agrees_with_doubles) {
    for (int i = 0; i < COUNT_OF(cases); i++) {
        Terms t = {0};
        bench_open(&t.b, "terms, %lld rows of %lld words, %s, scale %g%s", (long long)cases[i].n,
                   (long long)cases[i].v, format_name(cases[i].f), (double)cases[i].scale,
                   cases[i].target ? "" : ", no target");
        open_tensors(&t, &cases[i]);
        fill(&t);
        check_all(&t, &cases[i]);
        bench_close(&t.b);
    }
}

static void *copy_of(Terms *t, Tid id) {
    int64_t bytes = prog_bytes(&t->b.p, id);
    return memcpy(arena_alloc(&t->b.arena, bytes), t->b.now[id], (size_t)bytes);
}

static bool same(Terms *t, Tid id, const void *was) {
    return !memcmp(t->b.now[id], was, (size_t)prog_bytes(&t->b.p, id));
}

TEST(a_head_by_terms_gives_the_same_bits_in_any_chunk_and_in_one_sweep) {
    static const int64_t chunks[] = {128, 256, 100000};
    Terms t = {0};
    bench_open(&t.b, "terms in chunks");
    open_tensors(&t, &(TermsCase){300, 90, 24, FMT_F32, 0.7f, true});
    fill(&t);
    bench_run(&t.b, step_of(&t, OP_HEAD_LOGP, 128), 1, false);
    void *value = copy_of(&t, t.value), *lse = copy_of(&t, t.lse);
    memcpy(t.b.initial[t.lse], lse, (size_t)t.n * 4);
    bench_check(&t.b, step_of(&t, OP_HEAD_LOGP_GRAD, 128));
    void *dx = copy_of(&t, t.dx), *dw = copy_of(&t, t.dw);
    for (int i = 0; i < COUNT_OF(chunks); i++) {
        bench_run(&t.b, step_of(&t, OP_HEAD_LOGP, chunks[i]), 2, false);
        EXPECT(same(&t, t.value, value) && same(&t, t.lse, lse));
        bench_run(&t.b, step_of(&t, OP_HEAD_SWEEP, chunks[i]), 1 + i, false);
        EXPECT(same(&t, t.value, value) && same(&t, t.dx, dx) && same(&t, t.dw, dw));
    }
    bench_close(&t.b);
}

/* The first and the second kind of row, and one that is no part of the loss: its operands may be anything. */
TEST(a_distance_reads_only_what_its_words_ask_for) {
    Bench b;
    int64_t n = 3, c = 1100;
    bench_open(&b, "distances of rows");
    Tid x = bench_draw(&b, FMT_BF16, n, c, 1), ref = bench_draw(&b, FMT_BF16, n, c, 2);
    Tid toward = bench_vector(&b, FMT_F32, c), how = bench_matrix(&b, FMT_F32, n, DISTANCE_WORDS);
    Tid v = bench_vector(&b, FMT_F32, n), dv = bench_vector(&b, FMT_F32, n), dx = bench_matrix(&b, FMT_BF16, n, c);
    
    double words[] = {1, 0, 0, 2, 1, 0}, up[] = {0.5, -1, 0}, want[3] = {0};
    bench_normal(&b, toward, 3, 1), bench_set(&b, how, words), bench_set(&b, dv, up);
    const double *px = bench_initial(&b, x), *pt = bench_initial(&b, toward);
    double *d = bench_doubles(&b, n * c), *pr = bench_initial(&b, ref);
    for (int64_t i = 0; i < n * c; i++) {
        int64_t row = i / c;
        double off = px[i] - words[2 * row] * pr[i] - words[2 * row + 1] * pt[i % c];
        want[row] += off * off / (double)c;
        d[i] = 2 * up[row] * off / (double)c;
    }
    for (int64_t i = c; i < n * c; i++) pr[i] = (double)NAN; /* not read where REF is 0 */
    words[4] = 0, bench_set(&b, how, words), want[2] = 0;
    for (int64_t i = 0; i < c; i++) want[2] += px[2 * c + i] * px[2 * c + i] / (double)c;
    bench_set(&b, ref, pr);
    bench_check(&b, (Step){.op = OP_ROW_DISTANCE, .row_distance = {.in = {x, ref, toward, how}, .out = {v}}});
    bench_expect(&b, v, want, 1e-5);
    bench_check(&b, (Step){.op = OP_ROW_DISTANCE_GRAD,
                           .row_distance_grad = {.in = {dv, x, ref, toward, how}, .out = {dx}}});
    bench_expect(&b, dx, d, 1e-6);
    bench_close(&b);
}
