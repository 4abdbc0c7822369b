/* sparse.c - which tensors of a step the kernels of gated sparse attention take, from Args to launcher.
 *
 * The contracts stand in ir/op_sparse.c, the work in gate.cu, select.cu, selected.cu and index_loss.cu; on tiles of
 * pairs in mask.cu, index_tiles.cu, attend.cu and attend_grad.cu, or of gathered keys in gathered.cu,
 * gathered_grad.cu and index_gathered.cu. */
#include "ir/sparse.h"
#include "backend/cuda/cuda.h"
#include "backend/cuda/sparse_kernels.h"

_Static_assert((int)CUDA_INDEX_TILE == SPARSE_DEVICE_SIDE && (int)CUDA_INDEX_DIM == SPARSE_DEVICE_INDEX_DIM &&
                   (int)CUDA_INDEX_SUMS == SPARSE_DEVICE_SUMS && (int)CUDA_FEW_KEYS == SPARSE_DEVICE_FEW_KEYS &&
                   (int)CUDA_FEW_GROUP == SPARSE_DEVICE_FEW_GROUP,
               "sparse_kernels.h repeats the tiles");

enum { MOST_SHARED = 48 * 1024, CORES_FROM = 8 /* major */ };

/* Whether kernels that work on tiles of pairs run here: there are tensor cores, x and y are aligned, and a block gets
 * the shared memory it asks for. Where they do not, the plain kernels run in the same scratch. */
static bool on_cores(Backend *b, const void *x, const void *y, int64_t shared) {
    const CudaBackend *c = cuda_backend(b);
    return c->major >= CORES_FROM && (((uintptr_t)x | (uintptr_t)y) & 15) == 0 && shared <= c->shared_bytes;
}

static CudaNumbers numbers(Operand x) { return (CudaNumbers){x.data, x.data ? x.t->format : FMT_F32}; }

/* fp32, bf16 or fp16, and all of them the same. */
static bool one_format(Backend *b, const Args *a, Operand x, Operand y) {
    if (cuda_is_number(x.t->format) && (!y.t || x.t->format == y.t->format)) return true;
    cuda_fail(b, "%s: %s is in %s%s%s%s%s; the GPU's kernel takes one format of fp32, bf16, fp16", op_name(a->step->op),
              x.t->name, format_name(x.t->format), y.t ? " and " : "", y.t ? y.t->name : "", y.t ? " in " : "",
              y.t ? format_name(y.t->format) : "");
    return false;
}

static bool fits_shared(Backend *b, const Args *a, int64_t numbers_needed) {
    if (numbers_needed * 4 <= MOST_SHARED) return true;
    cuda_fail(b, "%s: heads of this size and number need %lld bytes of shared memory, the GPU's kernel has %d",
              op_name(a->step->op), (long long)numbers_needed * 4, MOST_SHARED);
    return false;
}

static char *workspace(const Args *a, int64_t bytes) {
    CHECK_MSG(a->workspace_bytes >= bytes, "%s: its row gives %lld bytes of workspace, %lld are needed",
              op_name(a->step->op), (long long)a->workspace_bytes, (long long)bytes);
    return a->workspace;
}

/* ---- gates ---- */

void cuda_gate(Backend *b, Queue q, const Args *a) {
    Operand x = a->gate.in.x, z = a->gate.in.z, y = a->gate.out.y;
    if (!one_format(b, a, x, z) || !one_format(b, a, x, y)) return;
    cuda_launch_gate(cuda_stream(b, q), numbers(y), x.data, z.data, cuda_rows(x.t), cuda_cols(x.t), cuda_cols(z.t),
                     a->step->attr.gate);
}

void cuda_gate_grad(Backend *b, Queue q, const Args *a) {
    Operand dy = a->gate_grad.in.dy, x = a->gate_grad.in.x, z = a->gate_grad.in.z, dx = a->gate_grad.out.dx,
            dz = a->gate_grad.out.dz;
    if (!one_format(b, a, x, z) || !one_format(b, a, x, dy) || !one_format(b, a, x, dx) || !one_format(b, a, x, dz))
        return;
    cuda_launch_gate_grad(cuda_stream(b, q), x.t->format, dx.data, dz.data, dy.data, x.data, z.data, cuda_rows(x.t),
                          cuda_cols(x.t), cuda_cols(z.t), a->step->attr.gate);
}

void cuda_mix(Backend *b, Queue q, const Args *a) {
    Operand x = a->mix.in.a, other = a->mix.in.b, y = a->mix.out.y;
    if (!one_format(b, a, x, other) || !one_format(b, a, x, y)) return;
    cuda_launch_mix(cuda_stream(b, q), numbers(y), x.data, other.data, cuda_count(y.t), a->step->attr.mix);
}

void cuda_gate_report(Backend *b, Queue q, const Args *a) {
    Operand z = a->gate_report.in.z;
    if (!one_format(b, a, z, z)) return;
    cuda_launch_gate_report(cuda_stream(b, q), a->gate_report.out.stat.data, numbers(z), cuda_count(z.t),
                            a->step->attr.gate.act, a->gate_report.in.beta.data);
}

/* ---- keys ---- */

/* Of a cache (R, slots, n, D), n heads a slot. */
static CudaKeys cached_keys(Operand cache, int64_t slots, int64_t heads, int64_t dim) {
    bool int8 = cache.t->format == FMT_INT8;
    return (CudaKeys){.data = cache.data,
                      .format = cache.t->format,
                      .stride = int8 ? format_row_bytes(FMT_INT8, dim) : dim,
                      .scale_at = int8 ? format_row_scale(FMT_INT8, dim) : 0,
                      .per_row = slots * heads,
                      .step = heads};
}

static CudaKeys row_keys(Operand x, int64_t seq, int64_t col) {
    return (CudaKeys){
        .data = x.data, .format = x.t->format, .stride = cuda_cols(x.t), .per_row = seq, .step = 1, .col = col};
}

static CudaKeys head_keys(const AttrHeads *h, Operand qkv, Operand cache, int64_t *head_step) {
    *head_step = cache.data && cache.t->format == FMT_INT8 ? 1 : h->head_dim;
    return cache.data ? cached_keys(cache, h->slots, 2 * h->kv_heads, h->head_dim)
                      : row_keys(qkv, h->seq, (int64_t)h->heads * h->head_dim);
}

/* An int8 cache, or one in the activations' format. */
static bool cache_format_ok(Backend *b, const Args *a, Operand cache, Operand x) {
    return !cache.t || cache.t->format == FMT_INT8 || one_format(b, a, x, cache);
}

static int64_t query_numbers(const AttrSparse *k) { return (k->index_heads + 3) / 4 * 4 * (k->index_dim + 2); }

static CudaSparse sparse_of(const AttrSparse *k, Operand index, Operand bias, int64_t tokens) {
    int64_t span = sparse_span(&k->heads);
    return (CudaSparse){.k = *k,
                        .format = index.t->format,
                        .index = index.data,
                        .bias = numbers(bias),
                        .tokens = tokens,
                        .span = span,
                        .stride = sparse_device_padded(span),
                        .index_keys = row_keys(index, k->heads.seq, (int64_t)k->index_heads * k->index_dim),
                        .blocks = (int)sparse_device_blocks(tokens, span)};
}

void cuda_index_put(Backend *b, Queue q, const Args *a) {
    const AttrSparse *k = &a->step->attr.sparse;
    Operand index = a->index_put.in.index, cache = a->index_put.out.cache;
    if (!one_format(b, a, index, (Operand){0}) || !cache_format_ok(b, a, cache, index)) return;
    CudaSparse s = sparse_of(k, index, (Operand){0}, cuda_rows(index.t));
    s.positions = a->index_put.in.positions.data;
    s.rows = a->index_put.in.rows.data;
    bool int8 = cache.t->format == FMT_INT8;
    cuda_launch_index_put(cuda_stream(b, q), &s, numbers(cache), int8 ? format_row_bytes(FMT_INT8, k->index_dim) : 0,
                          int8 ? format_row_scale(FMT_INT8, k->index_dim) : 0);
}

/* Scores on tensor cores, or of a few tokens behind a cache, and the best of them; false: nothing was launched. */
static bool select_by_tiles(Backend *b, Queue q, const CudaSparse *s, const Operand *keys) {
    const AttrSparse *k = &s->k;
    cudaStream_t stream = cuda_stream(b, q);
    bool few = s->positions && k->heads.seq < SPARSE_DEVICE_FEW;
    int64_t most = cuda_cols(keys->t), tiles = sparse_device_tiles(s->tokens, k->heads.seq),
            some = sparse_device_scored(s->tokens, k->heads.seq, s->span);
    if (!sparse_device_index_tiles(k, s->format) || s->index_keys.format != s->format || (few && k->relu) ||
        !on_cores(b, s->index, s->index_keys.data, cuda_index_scores_shared(k)))
        return false;
    for (int64_t at = 0; few && at < s->tokens; at += SPARSE_DEVICE_FEW_ROWS) {
        int64_t n = MIN2(SPARSE_DEVICE_FEW_ROWS, s->tokens - at);
        cuda_launch_few_scores(stream, s, at, n);
        cuda_launch_select_ranked(stream, s, keys->data, most, at, n, 1);
    }
    for (int64_t at = 0; !few && at < tiles; at += some) {
        int64_t n = MIN2(some, tiles - at);
        cuda_launch_index_scores(stream, s, at, n);
        if (k->relu)
            cuda_launch_select_scored(stream, s, keys->data, most, at, n);
        else
            cuda_launch_select_ranked(stream, s, keys->data, most, at, n, SPARSE_DEVICE_SIDE);
    }
    return true;
}

void cuda_select(Backend *b, Queue q, const Args *a) {
    const AttrSparse *k = &a->step->attr.sparse;
    Operand index = a->select.in.index, cache = a->select.in.cache, qkv = a->select.in.qkv, keys = a->select.out.keys;
    int64_t tokens = cuda_rows(index.t);
    if (!one_format(b, a, index, qkv) || !one_format(b, a, a->select.in.bias, (Operand){0}) ||
        !cache_format_ok(b, a, cache, index) || !fits_shared(b, a, query_numbers(k) + k->heads.head_dim))
        return;
    CudaSparse s = sparse_of(k, index, a->select.in.bias, tokens);
    s.qkv = qkv.data;
    s.doc_begin = a->select.in.doc_begin.data;
    s.rows = a->select.in.rows.data;
    if (cache.data) {
        s.positions = a->select.in.positions.data;
        s.index_keys = cached_keys(cache, k->heads.slots, 1, k->index_dim);
    }
    if (qkv.data) s.keys = head_keys(&k->heads, qkv, a->select.in.kv_cache, &s.head_step);
    s.workspace = (float *)workspace(a, sparse_device_select_bytes(k, s.format, tokens));
    if (!select_by_tiles(b, q, &s, &keys)) cuda_launch_select(cuda_stream(b, q), &s, keys.data, cuda_cols(keys.t));
}

void cuda_attend_report(Backend *b, Queue q, const Args *a) {
    Operand qkv = a->attend_report.in.qkv, keys = a->attend_report.in.keys;
    int64_t rows = cuda_rows(qkv.t), seq = a->step->attr.heads.seq, tokens = sparse_report_tokens(rows, seq),
            parts = sparse_report_words(rows, seq);
    CudaSparse s = {.k.heads = a->step->attr.heads,
                    .format = qkv.t->format,
                    .qkv = qkv.data,
                    .doc_begin = a->attend_report.in.doc_begin.data,
                    .tokens = tokens,
                    .span = seq};
    if (!one_format(b, a, qkv, (Operand){0}) || !fits_shared(b, a, s.k.heads.head_dim)) return;
    s.keys = head_keys(&s.k.heads, qkv, (Operand){0}, &s.head_step);
    s.blocks = (int)sparse_device_blocks(tokens, s.span);
    char *scratch = workspace(a, parts + sparse_device_rows_bytes(tokens, s.span, 2));
    s.workspace = (float *)(scratch + parts);
    cuda_launch_attend_report(cuda_stream(b, q), &s, a->attend_report.out.stat.data, (double *)scratch, keys.data,
                              keys.data ? cuda_cols(keys.t) : 0, a->attend_report.in.beta.data, sparse_report_row(seq),
                              sparse_report_stride(seq));
}

/* ---- attention ---- */

static CudaSelected selected_of(const Args *a, Operand qkv, Operand keys, Operand cache) {
    CudaSelected s = {.h = a->step->attr.heads,
                      .format = qkv.t->format,
                      .qkv = qkv.data,
                      .list = keys.data,
                      .tokens = cuda_rows(qkv.t),
                      .most = cuda_cols(keys.t)};
    s.keys = head_keys(&s.h, qkv, cache, &s.head_step);
    return s;
}

static int64_t mask_shared(int64_t seq) { return sparse_device_words(seq) * 4; }

/* The pairs of a list as bits. */
static CudaMask mask_of(void *at, const int32_t *list, int64_t most, int64_t tokens, int64_t seq) {
    return (CudaMask){.mask = at,
                      .words = (int)sparse_device_words(seq),
                      .list = list,
                      .most = most,
                      .tokens = tokens,
                      .seq = seq};
}

/* How the step runs here: as its plan says, unless the card or the memory forbid it. */
static SparseAttend attends_by(Backend *b, const CudaSelected *s, const void *o) {
    SparseAttend by = sparse_device_attend(&s->h, s->format, false);
    int64_t shared = by == SPARSE_FEW ? 0 : mask_shared(sparse_span(&s->h));
    if (by == SPARSE_GATHERED) shared = MAX2(shared, cuda_gathered_shared(&s->h));
    bool can = s->keys.format == s->format && on_cores(b, s->qkv, o, shared) && on_cores(b, NULL, s->keys.data, 0);
    return can ? by : SPARSE_PLAIN;
}

/* Backward may also have to keep to one order of its sums. */
static SparseAttend goes_back_by(Backend *b, const CudaSelected *s, const void *d_o, const void *d_qkv) {
    const CudaBackend *c = cuda_backend(b);
    int64_t shared = mask_shared(s->h.seq), gathered = MAX2(shared, cuda_gathered_grad_shared(&s->h));
    bool wants = sparse_device_attend(&s->h, s->format, true) == SPARSE_GATHERED ||
                 (c->gathers_all && sparse_device_gathers(&s->h, s->format));
    if (!on_cores(b, s->qkv, d_o, shared) || !on_cores(b, s->o, d_qkv, 0)) return SPARSE_PLAIN;
    if (wants && !c->deterministic && gathered <= c->shared_bytes) return SPARSE_GATHERED;
    return sparse_device_ordered_grad(&s->h, s->format);
}

static void attend_few(Backend *b, Queue q, CudaSelected *s, char *scratch) {
    s->parts = (float *)scratch;
    s->n_parts = (int)sparse_device_few_parts(s->most);
    for (int64_t at = 0; at < s->tokens; at += SPARSE_DEVICE_FEW_ROWS) {
        s->few = MIN2(SPARSE_DEVICE_FEW_ROWS, s->tokens - at);
        cuda_launch_attend_few(cuda_stream(b, q), s, at);
    }
}

/* Attention of the tokens of a row to each other, as far as the mask has them. */
static CudaAttend masked_attend(const CudaSelected *s, const CudaMask *m) {
    const AttrHeads *h = &s->h;
    int width = (h->heads + 2 * h->kv_heads) * h->head_dim;
    return (CudaAttend){.q = s->qkv,
                        .k = (const char *)s->qkv + (int64_t)h->heads * h->head_dim * 2,
                        .o = s->o,
                        .lse = s->lse,
                        .mask = m->mask,
                        .mask_words = m->words,
                        .q_stride = width,
                        .kv_stride = width,
                        .o_stride = h->heads * h->head_dim,
                        .v_offset = h->kv_heads * h->head_dim,
                        .rows = s->tokens / h->seq,
                        .seq = (int)h->seq,
                        .keys = (int)h->seq,
                        .heads = h->heads,
                        .kv_heads = h->kv_heads,
                        .dim = h->head_dim,
                        .scale = h->scale,
                        .format = s->format};
}

static void attend_selected_grad_gathered(Backend *b, Queue q, const Args *a, const CudaSelected *s, const void *d_o,
                                          void *d_qkv) {
    char *scratch = workspace(a, sparse_device_gathered_grad_bytes(&s->h, s->tokens));
    CudaMask m =
        mask_of(scratch + sparse_device_sums_bytes(&s->h, s->tokens), s->list, s->most, s->tokens, s->h.seq);
    CudaGatheredGrad g = {.s = *s, .d_o = d_o, .d_qkv = d_qkv, .sums = (float *)scratch};
    g.s.mask = m.mask;
    g.s.mask_words = m.words;
    cuda_launch_mask(cuda_stream(b, q), &m);
    cuda_launch_attend_gathered_grad(cuda_stream(b, q), &g);
}

static void attend_selected_grad_tiles(Backend *b, Queue q, const Args *a, const CudaSelected *s, const void *d_o,
                                       char *d_qkv) {
    const AttrHeads *h = &s->h;
    DeviceAttendGrad d = device_attend_grad(h, s->format, s->tokens, false);
    char *scratch = workspace(a, sparse_device_attend_bytes(h, s->format, s->tokens, s->most, true));
    CudaMask m = mask_of(scratch + d.bytes, s->list, s->most, s->tokens, h->seq);
    CudaAttendGrad g = {.a = masked_attend(s, &m),
                        .d_o = d_o,
                        .dq = d_qkv,
                        .dk = d_qkv + (int64_t)h->heads * h->head_dim * 2,
                        .lse2 = (float *)scratch,
                        .delta = (float *)(scratch + d.delta),
                        .tiles = (int32_t *)(scratch + d.tiles),
                        .parts = (float *)(scratch + d.sums),
                        .n_parts = d.n_parts,
                        .padded = (int)d.padded};
    cuda_launch_mask(cuda_stream(b, q), &m);
    cuda_launch_attend_delta(cuda_stream(b, q), &g, false);
    cuda_launch_attend_grad(cuda_stream(b, q), &g);
}

void cuda_attend_selected(Backend *b, Queue q, const Args *a) {
    Operand qkv = a->attend_selected.in.qkv, cache = a->attend_selected.in.cache, o = a->attend_selected.out.o;
    const AttrHeads *h = &a->step->attr.heads;
    if (!one_format(b, a, qkv, o) || !cache_format_ok(b, a, cache, qkv) ||
        !fits_shared(b, a, sparse_group(h) * (2 * h->head_dim + 128 + 3)))
        return;
    CudaSelected s = selected_of(a, qkv, a->attend_selected.in.keys, cache);
    s.rows = a->attend_selected.in.rows.data;
    s.o = o.data;
    s.lse = a->attend_selected.out.lse.data;
    SparseAttend by = attends_by(b, &s, o.data);
    char *scratch = workspace(a, sparse_device_attend_bytes(h, s.format, s.tokens, s.most, false));
    if (by == SPARSE_FEW) attend_few(b, q, &s, scratch);
    if (by == SPARSE_PLAIN) cuda_launch_attend_selected(cuda_stream(b, q), &s);
    if (by != SPARSE_LISTED && by != SPARSE_GATHERED) return;
    CudaMask m = mask_of(scratch, s.list, s.most, s.tokens, sparse_span(h));
    cuda_launch_mask(cuda_stream(b, q), &m);
    s.mask = m.mask;
    s.mask_words = m.words;
    CudaAttend x = masked_attend(&s, &m);
    if (by == SPARSE_LISTED)
        cuda_launch_attend(cuda_stream(b, q), &x);
    else
        cuda_launch_attend_gathered(cuda_stream(b, q), &s);
}

void cuda_attend_selected_grad(Backend *b, Queue q, const Args *a) {
    Operand qkv = a->attend_selected_grad.in.qkv, d_o = a->attend_selected_grad.in.d_o,
            o = a->attend_selected_grad.in.o;
    Operand d_qkv = a->attend_selected_grad.out.d_qkv;
    const AttrHeads *h = &a->step->attr.heads;
    int64_t tile = h->head_dim <= 128 ? 32 : h->head_dim <= 256 ? 16 : 8;
    if (!one_format(b, a, qkv, o) || !one_format(b, a, qkv, d_o) || !one_format(b, a, qkv, d_qkv) ||
        !fits_shared(b, a, sparse_group(h) * (3 * h->head_dim + 128 + 1)) || !fits_shared(b, a, 2 * tile * h->head_dim))
        return;
    CudaSelected s = selected_of(a, qkv, a->attend_selected_grad.in.keys, (Operand){0});
    s.o = o.data;
    s.lse = a->attend_selected_grad.in.lse.data;
    SparseAttend by = goes_back_by(b, &s, d_o.data, d_qkv.data);
    if (by == SPARSE_GATHERED) attend_selected_grad_gathered(b, q, a, &s, d_o.data, d_qkv.data);
    if (by == SPARSE_LISTED) attend_selected_grad_tiles(b, q, a, &s, d_o.data, d_qkv.data);
    if (by == SPARSE_PLAIN)
        cuda_launch_attend_selected_grad(cuda_stream(b, q), &s, d_o.data, d_qkv.data,
                                         (float *)workspace(a, sparse_bytes(s.tokens * h->heads)));
}

/* ---- the loss: index_loss_grad has its operands in the same places ---- */

static bool loss_of(CudaIndexLoss *l, Backend *b, const Args *a) {
    const AttrSparse *k = &a->step->attr.sparse;
    Operand index = a->index_loss.in.index, qkv = a->index_loss.in.qkv, keys = a->index_loss.in.keys,
            bias = a->index_loss.in.bias;
    if (!one_format(b, a, index, qkv) || !one_format(b, a, bias, (Operand){0}) ||
        !fits_shared(b, a, query_numbers(k) + (int64_t)k->heads.heads * (k->heads.head_dim + 1) + 32 * k->index_dim))
        return false;
    CHECK(a->index_loss.in.weight.t->format == FMT_F32 && a->index_loss.in.divisor.t->format == FMT_F32);
    *l = (CudaIndexLoss){.s = sparse_of(k, index, bias, cuda_rows(index.t)),
                         .lse = a->index_loss.in.lse.data,
                         .weight = a->index_loss.in.weight.data,
                         .list = keys.data,
                         .most = keys.data ? cuda_cols(keys.t) : 0,
                         .divisor = a->index_loss.in.divisor.data,
                         .beta = a->index_loss.in.beta.data};
    l->s.qkv = qkv.data;
    l->s.doc_begin = a->index_loss.in.doc_begin.data;
    l->s.keys = head_keys(&k->heads, qkv, (Operand){0}, &l->s.head_step);
    return true;
}

/* What tiles have in the workspace; the mask is made. */
static void loss_tiles(CudaIndexLoss *l, cudaStream_t stream, char *scratch, bool grad) {
    const AttrSparse *k = &l->s.k;
    SparseLoss at = sparse_device_loss(k, l->s.tokens, grad);
    CudaMask m = mask_of(scratch + at.mask, l->list, l->most, l->s.tokens, k->heads.seq);
    m.doc_begin = l->s.doc_begin;
    m.weight = l->weight;
    l->mask = m.mask;
    l->mask_words = m.words;
    l->splits = (int)at.splits;
    l->key_splits = (int)at.key_splits;
    l->band = at.band;
    l->sums = (float *)(scratch + at.sums);
    l->w = (float *)(scratch + at.w);
    l->pairs = scratch + at.pairs;
    l->grads = (float *)(scratch + at.grads);
    l->key_grads = (float *)(scratch + at.key_grads);
    cuda_launch_mask(stream, &m);
}

static bool loss_by_tiles(Backend *b, const CudaIndexLoss *l) {
    const AttrSparse *k = &l->s.k;
    return sparse_device_loss_tiles(k, l->s.format) &&
           on_cores(b, l->s.index, l->s.qkv, MAX2(mask_shared(k->heads.seq), cuda_index_tiles_shared(k)));
}

/* Of long rows over the keys that are selected, where a block has room. Its gradient has no fixed order of sums. */
static bool loss_by_gathering(Backend *b, const CudaIndexLoss *l, bool grad) {
    const CudaBackend *c = cuda_backend(b);
    const AttrSparse *k = &l->s.k;
    return (sparse_device_loss_gathers(k, l->list != NULL) || (l->list && c->gathers_all)) &&
           !(grad && c->deterministic) && cuda_index_gathered_shared(k, grad) <= c->shared_bytes;
}

void cuda_index_loss(Backend *b, Queue q, const Args *a) {
    CudaIndexLoss l;
    if (!loss_of(&l, b, a)) return;
    cudaStream_t stream = cuda_stream(b, q);
    char *scratch = workspace(a, sparse_device_loss_bytes(&l.s.k, l.s.format, l.s.tokens, false));
    l.parts = (double *)scratch;
    l.s.workspace = (float *)(scratch + sparse_parts_bytes(l.s.tokens));
    l.stat = a->index_loss.out.stat.data;
    if (loss_by_tiles(b, &l)) {
        loss_tiles(&l, stream, scratch, false);
        if (loss_by_gathering(b, &l, false))
            cuda_launch_index_loss_gathered(stream, &l);
        else
            cuda_launch_index_loss_tiles(stream, &l);
        cuda_launch_index_loss_sum(stream, &l);
        return;
    }
    cuda_launch_index_loss(stream, &l);
}

void cuda_index_loss_grad(Backend *b, Queue q, const Args *a) {
    CudaIndexLoss l;
    if (!loss_of(&l, b, a) || !one_format(b, a, a->index_loss_grad.in.index, a->index_loss_grad.out.d_index)) return;
    cudaStream_t stream = cuda_stream(b, q);
    int64_t bytes = sparse_device_loss_bytes(&l.s.k, l.s.format, l.s.tokens, true);
    bool with_loss = a->index_loss_grad.out.stat.data != NULL;
    char *scratch = workspace(a, bytes + (with_loss ? sparse_parts_bytes(l.s.tokens) : 0));
    l.bias_parts = (float *)scratch;
    l.d_index = a->index_loss_grad.out.d_index.data;
    l.d_bias = numbers(a->index_loss_grad.out.d_bias);
    l.key = cuda_key(a, a->index_loss_grad.in.clock, -1);
    l.stat = a->index_loss_grad.out.stat.data;
    if (with_loss) l.parts = (double *)(scratch + bytes);
    if (loss_by_tiles(b, &l)) {
        loss_tiles(&l, stream, scratch, true);
        if (loss_by_gathering(b, &l, true))
            cuda_launch_index_loss_grad_gathered(stream, &l);
        else
            cuda_launch_index_loss_grad_tiles(stream, &l);
    } else {
        l.index_lse = (float *)(scratch + sparse_bytes(l.s.tokens * 2 * l.s.k.index_heads));
        l.s.workspace = l.index_lse + sparse_bytes(l.s.tokens) / 4;
        cuda_launch_index_loss_grad(stream, &l);
    }
    l.beta = a->index_loss_grad.in.stat_beta.data;
    if (with_loss) cuda_launch_index_loss_sum(stream, &l);
}
