/* head.c - hidden rows become log-probabilities, and their gradient, a chunk of logits at a time (the contract
 * stands in ir/op_token.c) on the GPU. Reference: cpu/head.c.
 *
 * Logits stand in the workspace in the format of the hidden rows, each row padded to device_logits_ld; the
 * gradient is written over them. dw adds up chunk by chunk, and is rounded once a chunk (the CPU: once every
 * HEAD_TILE rows); the first chunk of a fresh one writes it as it is kept. */
#include "backend/cuda/product.h"

typedef struct Head {
    CudaWork w;
    CudaMatrix x, weight, logits; /* logits: a chunk's */
    CudaHeadRows rows;            /* what is done to every row; pointers stand at row 0 */
    CudaMatrix dx;                /* data NULL: not wanted */
    CudaGradient dw;              /* likewise */
} Head;

static Head open_head(Backend *b, Queue q, const Args *a) {
    Head h = {.w = cuda_work(b, q, a), .x = cuda_input(a, 0), .weight = cuda_input(a, 1)};
    int64_t chunk = MIN2(a->step->attr.head.chunk, h.x.rows), ld = device_logits_ld(h.weight.rows);
    CHECK(a->ti[2]->format == FMT_I32 && h.weight.rows <= INT32_MAX);
    h.logits = (CudaMatrix){.format = h.x.format, .rows = chunk, .cols = h.weight.rows, .ld = ld};
    h.logits.data = cuda_work_take(&h.w, chunk * ld * format_item_bytes(h.x.format));
    h.rows = (CudaHeadRows){
        .logits = cuda_numbers(h.logits), .ld = ld, .vocabulary = (int)h.weight.rows, .labels = a->in[2]};
    return h;
}

/* dw's place is behind dx's, the clock's behind beta's. */
static void want_gradients(Head *h, const Args *a, int dx_out, int beta_in) {
    h->dx = cuda_output(a, dx_out);
    h->dw = (CudaGradient){
        .dw = cuda_output(a, dx_out + 1), .tensor = a->out[dx_out + 1], .alpha = 1, .beta = a->in[beta_in]};
    h->dw.key = cuda_key(a, beta_in + 1, 0);
    h->dw.fresh = op_is_fresh(a->step);
}

static void do_rows(const Head *h, int64_t first, int64_t n) {
    CudaHeadRows r = h->rows;
    r.rows = n;
    r.labels += first;
    r.lse += first;
    if (r.logp) r.logp += first;
    if (r.entropy) r.entropy += first;
    if (r.dlogp) r.dlogp += first;
    cuda_launch_head_rows(cuda_work_stream(&h->w), &r);
}

static void play_chunk(const Head *h, int64_t first, int64_t n) {
    CudaMatrix x = cuda_part_rows(h->x, first, n), logits = cuda_part_rows(h->logits, 0, n);
    cuda_times_weight(h->w, logits, x, h->weight, NULL, (CudaMatrix){0});
    do_rows(h, first, n);
    if (h->dx.data) cuda_back_through(h->w, cuda_part_rows(h->dx, first, n), logits, h->weight, (CudaMatrix){0});
    if (!h->dw.dw.data) return;
    CudaGradient dw = h->dw;
    dw.key.part = first / HEAD_TILE;
    if (first) dw.beta = NULL, dw.fresh = false; /* the first chunk applied the dial */
    cuda_add_gradient(h->w, &dw, logits, x);
}

static void play_chunks(const Head *h) {
    for (int64_t first = 0; first < h->x.rows; first += h->logits.rows)
        play_chunk(h, first, MIN2(h->logits.rows, h->x.rows - first));
}

void cuda_head_logp(Backend *b, Queue q, const Args *a) {
    Head h = open_head(b, q, a);
    h.rows.logp = a->out[0], h.rows.lse = a->out[1], h.rows.entropy = a->out[2];
    play_chunks(&h);
}

void cuda_head_logp_grad(Backend *b, Queue q, const Args *a) {
    Head h = open_head(b, q, a);
    h.rows.lse = a->in[3], h.rows.dlogp = a->in[4];
    want_gradients(&h, a, 0, 5);
    play_chunks(&h);
}

void cuda_head_sweep(Backend *b, Queue q, const Args *a) {
    Head h = open_head(b, q, a);
    h.rows.logp = a->out[0], h.rows.lse = a->out[1], h.rows.dlogp = a->in[3];
    want_gradients(&h, a, 2, 4);
    play_chunks(&h);
}

void cuda_head_logits(Backend *b, Queue q, const Args *a) {
    CudaWork w = cuda_work(b, q, a);
    CudaMatrix logits = cuda_output(a, 0), x = cuda_input(a, 0), weight = cuda_input(a, 1);
    CudaMatrix none = {0};
    if (!cuda_times_weight_few(w, logits, x, weight, none)) cuda_times_weight(w, logits, x, weight, NULL, none);
}
