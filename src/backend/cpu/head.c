/* head.c - hidden rows become log-probabilities, and their gradient, without ever holding all logits (the contract
 * stands in ir/op_token.c).
 *
 * A chunk of logits lives in the workspace; the gradient is written over it.
 *   H1  rows are cut into units of HEAD_TILE from row 0 on; a chunk is whole units: no bit depends on the chunk.
 *   H2  dw adds up unit by unit, in order; in bf16 it is rounded after each, keyed by the unit's number.
 *   H3  a unit without any gradient is left out of dx and dw (it would add zeros). Not unit 0: it applies beta. */
#include <math.h>
#include <string.h>

#include "backend/cpu/head_terms.h"
#include "backend/cpu/product.h"
#include "backend/cpu/sample.h"

enum { PIECE = 1024 };

typedef struct Head {
    Backend *b;
    const Args *args;
    int64_t rows, width, vocabulary, chunk; /* N, C, V; rows of a chunk */
    Matrix x, w;
    const int32_t *labels;
    const float *dlogp;         /* NULL: no gradient is asked for */
    const float *lse_in;        /* NULL: it is computed here */
    float *logp, *lse, *entropy;
    const DrawHow *how;         /* a row each; NULL: nothing is drawn */
    int32_t *drawn;
    Matrix dx, dw;              /* data NULL: not wanted */
    float beta;
    float scale;                /* of the logits: 1 / temperature */
    const float *terms;         /* HEAD_TERMS a row; NULL: the label's log-probability is all that is asked for */
    Matrix target_x, target_w;  /* data NULL: no target */
    int64_t target_width;
    uint64_t key;
    float *logits;              /* (chunk, V) in the workspace, ... */
    float *target;              /* ... as many of the target, if there is one, ... */
    int64_t scratch;            /* ... and behind them, and what drawing takes, the products' stages */
    int64_t first;              /* the chunk's first row */
    int64_t begin;              /* the first row of the loop that is running */
} Head;

static Head open_head(Backend *b, const Args *a, Operand x, Operand w, Operand labels) {
    Head h = {.b = b, .args = a, .rows = cpu_rows(x.t), .width = cpu_cols(x.t), .vocabulary = cpu_rows(w.t),
              .x = product_matrix(x), .w = product_matrix(w), .labels = labels.data};
    h.chunk = MIN2(a->step->attr.head.chunk, h.rows);
    h.scale = attr_head_scale(&a->step->attr.head);
    h.scratch = units_round_up(h.chunk * h.vocabulary * 4, 256);
    h.logits = cpu_scratch(a, 0, h.chunk * h.vocabulary * 4, 0);
    CHECK(labels.t->format == FMT_I32);
    return h;
}

static void want_terms(Head *h, Operand terms, Operand target_x, Operand target_w) {
    h->terms = terms.data;
    h->target_x = product_matrix(target_x), h->target_w = product_matrix(target_w);
    if (!h->target_x.data) return;
    h->target_width = cpu_cols(target_x.t);
    h->target = cpu_scratch(h->args, h->scratch, h->chunk * h->vocabulary * 4, 0);
    h->scratch += units_round_up(h->chunk * h->vocabulary * 4, 256);
}

/* ---- rows ---- */

static float row_gradient(const Head *h, int64_t row) {
    return h->labels[row] < 0 ? 0.0f : h->dlogp[row] * h->scale;
}

static float *row_logits(const Head *h, int64_t row) { return h->logits + (row - h->first) * h->vocabulary; }

CPU_VECTOR static void weigh(float *restrict e, const float *restrict x, float top, int64_t n) {
    for (int64_t i = 0; i < n; i++) e[i] = e[i] > 0 ? e[i] * (x[i] - top) : 0.0f;
}

static void score_row(const Head *h, int64_t row) {
    const float *x = row_logits(h, row);
    float top = cpu_max(x, h->vocabulary), e[PIECE];
    double sum = 0, weighed = 0;
    for (int64_t i = 0; i < h->vocabulary; i += PIECE) {
        int64_t n = MIN2(PIECE, h->vocabulary - i);
        cpu_exp(e, x + i, top, n);
        sum += cpu_sum(e, n);
        if (!h->entropy) continue;
        weigh(e, x + i, top, n);
        weighed += cpu_sum(e, n);
    }
    double lse = (double)top + log(sum);
    int32_t label = h->labels[row];
    h->lse[row] = (float)lse;
    h->logp[row] = label < 0 ? 0.0f : (float)((double)x[label] - lse);
    if (h->entropy) h->entropy[row] = (float)(log(sum) - weighed / sum);
}

static void draw_row(const Head *h, int64_t row, int worker) {
    const DrawHow *how = &h->how[row];
    int64_t room = sample_row_bytes(h->vocabulary), first = units_round_up(h->chunk * h->vocabulary * 4, 256);
    Sampler s = sampler_at(cpu_scratch(h->args, first, room, worker), h->vocabulary);
    if (how->vocab > 0) s.vocab = MIN2(how->vocab, h->vocabulary);
    h->drawn[row] = h->labels[row] < 0 ? -1 : sample_token(&s, row_logits(h, row), how, NULL, 0, -how->first);
}

CPU_VECTOR static void scale(float *x, float by, int64_t n) {
    for (int64_t i = 0; i < n; i++) x[i] *= by;
}

/* logits become dlogp * (onehot - softmax) */
static void gradient_row(const Head *h, int64_t row) {
    float *x = row_logits(h, row), g = row_gradient(h, row);
    if (g == 0.0f) {
        memset(x, 0, (size_t)h->vocabulary * sizeof *x);
        return;
    }
    int32_t label = h->labels[row];
    float lse = h->lse_in ? h->lse_in[row] : h->lse[row], at_label;
    cpu_exp(&at_label, x + label, lse, 1);
    for (int64_t i = 0; i < h->vocabulary; i += PIECE) {
        int64_t n = MIN2(PIECE, h->vocabulary - i);
        cpu_exp(x + i, x + i, lse, n);
        scale(x + i, -g, n);
    }
    x[label] = g * (1.0f - at_label);
}

/* The same two by the terms of a loss. */
static void do_terms(const Head *h, int64_t row) {
    float *target = h->target ? h->target + (row - h->first) * h->vocabulary : NULL;
    TermsRow r = {.terms = h->terms + row * HEAD_TERMS, .logits = row_logits(h, row), .target = target,
                  .n = h->vocabulary, .label = h->labels[row]};
    if (target && h->scale != 1.0f) scale(target, h->scale, h->vocabulary);
    if (!h->lse_in) score_row(h, row);
    r.lse = (double)(h->lse_in ? h->lse_in : h->lse)[row];
    if (r.label >= 0) terms_open(&r);
    if (!h->lse_in) h->logp[row] = r.label < 0 ? 0.0f : (float)terms_value(&r);
    if (!h->dlogp) return;
    float g = row_gradient(h, row);
    if (g == 0.0f) memset(r.logits, 0, (size_t)h->vocabulary * sizeof *r.logits);
    else terms_gradient(&r, g);
}

static void do_row(void *context, int64_t i, int worker) {
    const Head *h = context;
    int64_t row = h->begin + i;
    CHECK_MSG(h->labels[row] < h->vocabulary, "label %d of row %lld is beyond the vocabulary", h->labels[row],
              (long long)row);
    if (h->scale != 1.0f) scale(row_logits(h, row), h->scale, h->vocabulary);
    if (h->terms) {
        do_terms(h, row);
        return;
    }
    if (!h->lse_in) score_row(h, row);
    if (h->drawn) draw_row(h, row, worker);
    if (h->dlogp) gradient_row(h, row);
}

/* ---- products over rows [begin, end) of the chunk ---- */

/* to(n, V) = rows of x from `begin` on, times w^T */
static void compute_logits(const Head *h, float *to, Matrix x, Matrix w, int64_t width, int64_t begin, int64_t n) {
    Product p = {.rows = n, .cols = h->vocabulary, .inner = width, .alpha = 1,
                 .cut = product_head_cut(h->vocabulary, width), .a = product_rows_from(x, begin), .b = w,
                 .b_transposed = true, .c = {to, FMT_F32, 0, h->vocabulary}};
    product_run(h->b, h->args, &p, 1, h->scratch);
}

static void compute_dx(const Head *h, int64_t begin, int64_t end) {
    Product p = {.rows = end - begin, .cols = h->width, .inner = h->vocabulary, .alpha = 1,
                 .cut = product_head_dx_cut(h->vocabulary, h->width),
                 .a = {row_logits(h, begin), FMT_F32, 0, h->vocabulary}, .b = h->w,
                 .c = product_rows_from(h->dx, begin)};
    product_run(h->b, h->args, &p, 1, h->scratch);
}

static void compute_dw(const Head *h, int64_t begin, int64_t end) {
    Product p = {.rows = h->vocabulary, .cols = h->width, .inner = end - begin, .alpha = 1,
                 .cut = product_head_dw_cut(h->vocabulary, h->width), .part = HEAD_TILE,
                 .first_part = begin / HEAD_TILE, .a = {row_logits(h, begin), FMT_F32, 0, h->vocabulary},
                 .a_transposed = true, .b = product_rows_from(h->x, begin), .c = h->dw, .add = h->dw,
                 .beta = begin ? 1.0f : h->beta, .random = true, .key = h->key};
    product_run(h->b, h->args, &p, 1, h->scratch);
}

/* ---- chunks ---- */

static bool is_live(const Head *h, int64_t unit_begin) { /* H3 */
    for (int64_t r = unit_begin; r < MIN2(unit_begin + HEAD_TILE, h->rows); r++)
        if (row_gradient(h, r) != 0.0f) return true;
    return unit_begin == 0;
}

/* Moves begin to the next live unit before `end`, zeroing dx on the way; stop: where that stretch ends. */
static bool next_live(const Head *h, int64_t *begin, int64_t *stop, int64_t end) {
    int64_t item = format_item_bytes(h->dx.format);
    for (; *begin < end && !is_live(h, *begin); *begin += HEAD_TILE)
        if (h->dx.data) {
            int64_t n = MIN2(HEAD_TILE, end - *begin);
            memset((char *)h->dx.data + *begin * h->width * item, 0, (size_t)(n * h->width * item));
        }
    if (*begin >= end) return false;
    for (*stop = *begin; *stop < end && is_live(h, *stop);) *stop += HEAD_TILE;
    *stop = MIN2(*stop, end);
    return true;
}

static void compute_rows(Head *h, int64_t begin, int64_t end) {
    int64_t n = end - begin;
    compute_logits(h, row_logits(h, begin), h->x, h->w, h->width, begin, n);
    if (h->target)
        compute_logits(h, h->target + (begin - h->first) * h->vocabulary, h->target_x, h->target_w, h->target_width,
                       begin, n);
    h->begin = begin;
    threads_for(cpu_threads(h->b), n, do_row, h);
}

static void play_chunk(Head *h, int64_t begin, int64_t end) {
    if (!h->lse_in) compute_rows(h, begin, end); /* every row has a log-sum-exp, live or not */
    if (!h->dlogp) return;
    for (int64_t stop; next_live(h, &begin, &stop, end); begin = stop) {
        if (h->lse_in) compute_rows(h, begin, stop);
        if (h->dx.data) compute_dx(h, begin, stop);
        if (h->dw.data) compute_dw(h, begin, stop);
    }
}

static void play_chunks(Head *h) {
    for (h->first = 0; h->first < h->rows; h->first += h->chunk)
        play_chunk(h, h->first, MIN2(h->first + h->chunk, h->rows));
}

/* ---- the ops ---- */

void cpu_head_logp(Backend *b, Queue q, const Args *a) {
    Head h = open_head(b, a, a->head_logp.in.x, a->head_logp.in.w, a->head_logp.in.labels);
    h.logp = a->head_logp.out.logp.data, h.lse = a->head_logp.out.lse.data, h.entropy = a->head_logp.out.entropy.data;
    h.how = a->head_logp.in.how.data, h.drawn = a->head_logp.out.drawn.data;
    want_terms(&h, a->head_logp.in.terms, a->head_logp.in.target_x, a->head_logp.in.target_w);
    if (h.drawn) h.scratch += sample_row_bytes(h.vocabulary) * threads_count(cpu_threads(b));
    play_chunks(&h);
}

void cpu_head_logp_grad(Backend *b, Queue q, const Args *a) {
    Head h = open_head(b, a, a->head_logp_grad.in.x, a->head_logp_grad.in.w, a->head_logp_grad.in.labels);
    h.lse_in = a->head_logp_grad.in.lse.data, h.dlogp = a->head_logp_grad.in.dlogp.data;
    h.beta = cpu_beta(a->head_logp_grad.in.beta), h.key = cpu_draw_key(a, a->head_logp_grad.in.clock);
    h.dx = product_matrix(a->head_logp_grad.out.dx), h.dw = product_matrix(a->head_logp_grad.out.dw);
    want_terms(&h, a->head_logp_grad.in.terms, a->head_logp_grad.in.target_x, a->head_logp_grad.in.target_w);
    play_chunks(&h);
}

void cpu_head_sweep(Backend *b, Queue q, const Args *a) {
    Head h = open_head(b, a, a->head_sweep.in.x, a->head_sweep.in.w, a->head_sweep.in.labels);
    h.dlogp = a->head_sweep.in.dlogp.data;
    h.beta = cpu_beta(a->head_sweep.in.beta), h.key = cpu_draw_key(a, a->head_sweep.in.clock);
    h.logp = a->head_sweep.out.logp.data, h.lse = a->head_sweep.out.lse.data;
    h.dx = product_matrix(a->head_sweep.out.dx), h.dw = product_matrix(a->head_sweep.out.dw);
    want_terms(&h, a->head_sweep.in.terms, a->head_sweep.in.target_x, a->head_sweep.in.target_w);
    play_chunks(&h);
}

void cpu_head_logits(Backend *b, Queue q, const Args *a) {
    Operand x = a->head_logits.in.x, w = a->head_logits.in.w;
    Product p = {.rows = cpu_rows(x.t), .cols = cpu_rows(w.t), .inner = cpu_cols(x.t), .alpha = 1,
                 .a = product_matrix(x), .b = product_matrix(w), .b_transposed = true,
                 .c = product_matrix(a->head_logits.out.logits)};
    product_weight(b, a, &p);
}
