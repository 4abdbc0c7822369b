/* head.c - the chunked head (fused linear cross-entropy): hidden rows become log-probabilities, and their gradient, a
 * chunk of logits at a time (the contract stands in ir/op_token.c). Reference: cpu/head.c.
 *
 * Logits stand in the workspace in the format of the hidden rows, or in fp32 where the step says so, each row padded
 * to device_logits_ld. The gradient is written over them, in the format of the hidden rows: of fp32 rows over their
 * first halves. dw adds up chunk by chunk, and is rounded once a chunk (the CPU: once every
 * HEAD_TILE rows); the first chunk of a fresh one writes it as it is kept. */
#include "backend/cuda/product.h"

typedef struct Head {
    CudaWork w;
    CudaMatrix x, weight, logits; /* logits: a chunk's */
    CudaMatrix dlogits;           /* in their place */
    CudaHeadRows rows;            /* what is done to every row; pointers stand at row 0 */
    CudaDraws draws;              /* likewise; drawn NULL: nothing is drawn */
    const float *terms;           /* likewise; NULL: log-probabilities of labels */
    CudaMatrix target_x, target_weight, target; /* target: a chunk's logits; data NULL: there is none */
    CudaMatrix dx;                /* data NULL: not wanted */
    CudaGradient dw;              /* likewise */
} Head;

static Head open_head(Backend *b, Queue q, const Args *a, Operand x, Operand w, Operand labels) {
    Head h = {.w = cuda_work(b, q, a), .x = cuda_matrix(x), .weight = cuda_matrix(w)};
    int64_t chunk = MIN2(a->step->attr.head.chunk, h.x.rows), ld = device_logits_ld(h.weight.rows);
    CHECK(labels.t->format == FMT_I32 && h.weight.rows <= INT32_MAX);
    Format format = device_logits_format(&a->step->attr.head, h.x.format);
    int64_t item = format_item_bytes(format);
    h.logits = (CudaMatrix){.format = format, .rows = chunk, .cols = h.weight.rows, .ld = ld};
    h.logits.data = cuda_work_take(&h.w, chunk * ld * item);
    h.dlogits = h.logits;
    h.dlogits.format = h.x.format, h.dlogits.ld = ld * item / format_item_bytes(h.x.format);
    h.rows = (CudaHeadRows){.logits = cuda_numbers(h.logits), .gradient = h.x.format, .ld = ld,
                            .vocabulary = (int)h.weight.rows, .labels = labels.data,
                            .scale = attr_head_scale(&a->step->attr.head)};
    return h;
}

static void want_gradients(Head *h, const Args *a, Operand dx, Operand dw, Operand beta, Operand clock) {
    h->dx = cuda_matrix(dx);
    h->dw = (CudaGradient){.dw = cuda_matrix(dw), .tensor = dw.data, .alpha = 1, .beta = beta.data,
                           .fresh = op_is_fresh(a->step), .key = cuda_key(a, clock, 0)};
}

/* Takes the room of the target's logits: in front of anything that a product takes. */
static void want_terms(Head *h, Operand terms, Operand target_x, Operand target_w) {
    h->terms = terms.data;
    if (!h->terms || !target_x.data) return;
    CHECK_MSG(h->logits.format == h->x.format, "terms are of logits in the format of the hidden rows");
    h->target_x = cuda_matrix(target_x), h->target_weight = cuda_matrix(target_w);
    h->target = h->logits;
    h->target.data = cuda_work_take(&h->w, h->logits.rows * h->logits.ld * format_item_bytes(h->logits.format));
}

static void want_draws(Head *h, Operand how, Operand drawn) {
    CHECK_MSG(h->logits.format == FMT_F32, "a token is drawn from logits in fp32");
    h->draws = (CudaDraws){.logits = h->logits.data, .ld = h->logits.ld, .vocab = (int)h->weight.rows,
                           .scale = h->rows.scale, .labels = h->rows.labels, .how = how.data, .drawn = drawn.data};
}

static void do_rows(const Head *h, int64_t first, int64_t n) {
    CudaHeadRows r = h->rows;
    r.rows = n;
    r.labels += first;
    r.lse += first;
    if (r.logp) r.logp += first;
    if (r.entropy) r.entropy += first;
    if (r.dlogp) r.dlogp += first;
    if (h->terms) {
        CudaHeadTerms t = {.rows = r, .terms = h->terms + first * HEAD_TERMS, .target = h->target.data};
        cuda_launch_head_terms(cuda_work_stream(&h->w), &t);
        return;
    }
    cuda_launch_head_rows(cuda_work_stream(&h->w), &r);
}

static void draw_rows(const Head *h, int64_t first, int64_t n) {
    CudaDraws d = h->draws;
    d.rows = n;
    d.labels += first;
    d.how += first;
    d.drawn += first;
    cuda_launch_draws(cuda_work_stream(&h->w), &d);
}

static void play_chunk(const Head *h, int64_t first, int64_t n) {
    CudaMatrix x = cuda_part_rows(h->x, first, n), dlogits = cuda_part_rows(h->dlogits, 0, n);
    cuda_times_weight(h->w, cuda_part_rows(h->logits, 0, n), x, h->weight, NULL, (CudaMatrix){0});
    if (h->draws.drawn) draw_rows(h, first, n);
    if (h->target.data)
        cuda_times_weight(h->w, cuda_part_rows(h->target, 0, n), cuda_part_rows(h->target_x, first, n),
                          h->target_weight, NULL, (CudaMatrix){0});
    do_rows(h, first, n);
    if (h->dx.data) cuda_back_through(h->w, cuda_part_rows(h->dx, first, n), dlogits, h->weight, (CudaMatrix){0});
    if (!h->dw.dw.data) return;
    CudaGradient dw = h->dw;
    dw.key.part = first / HEAD_TILE;
    if (first) dw.beta = NULL, dw.fresh = false; /* the first chunk applied the dial */
    cuda_add_gradient(h->w, &dw, dlogits, x);
}

static void play_chunks(const Head *h) {
    for (int64_t first = 0; first < h->x.rows; first += h->logits.rows)
        play_chunk(h, first, MIN2(h->logits.rows, h->x.rows - first));
}

void cuda_head_logp(Backend *b, Queue q, const Args *a) {
    Head h = open_head(b, q, a, a->head_logp.in.x, a->head_logp.in.w, a->head_logp.in.labels);
    h.rows.logp = a->head_logp.out.logp.data, h.rows.lse = a->head_logp.out.lse.data;
    h.rows.entropy = a->head_logp.out.entropy.data;
    if (a->head_logp.out.drawn.data) want_draws(&h, a->head_logp.in.how, a->head_logp.out.drawn);
    want_terms(&h, a->head_logp.in.terms, a->head_logp.in.target_x, a->head_logp.in.target_w);
    play_chunks(&h);
}

void cuda_head_logp_grad(Backend *b, Queue q, const Args *a) {
    Head h = open_head(b, q, a, a->head_logp_grad.in.x, a->head_logp_grad.in.w, a->head_logp_grad.in.labels);
    h.rows.lse = a->head_logp_grad.in.lse.data, h.rows.dlogp = a->head_logp_grad.in.dlogp.data;
    want_gradients(&h, a, a->head_logp_grad.out.dx, a->head_logp_grad.out.dw, a->head_logp_grad.in.beta,
                   a->head_logp_grad.in.clock);
    want_terms(&h, a->head_logp_grad.in.terms, a->head_logp_grad.in.target_x, a->head_logp_grad.in.target_w);
    play_chunks(&h);
}

void cuda_head_sweep(Backend *b, Queue q, const Args *a) {
    Head h = open_head(b, q, a, a->head_sweep.in.x, a->head_sweep.in.w, a->head_sweep.in.labels);
    h.rows.logp = a->head_sweep.out.logp.data, h.rows.lse = a->head_sweep.out.lse.data;
    h.rows.dlogp = a->head_sweep.in.dlogp.data;
    want_gradients(&h, a, a->head_sweep.out.dx, a->head_sweep.out.dw, a->head_sweep.in.beta, a->head_sweep.in.clock);
    want_terms(&h, a->head_sweep.in.terms, a->head_sweep.in.target_x, a->head_sweep.in.target_w);
    play_chunks(&h);
}

void cuda_head_logits(Backend *b, Queue q, const Args *a) {
    CudaWork w = cuda_work(b, q, a);
    Operand weight = a->head_logits.in.w;
    CudaMatrix logits = cuda_matrix(a->head_logits.out.logits), x = cuda_matrix(a->head_logits.in.x);
    if (cuda_times_weight_few(w, logits, x, weight, (Operand){0})) return;
    cuda_times_weight(w, logits, x, cuda_matrix(weight), NULL, (CudaMatrix){0});
}
