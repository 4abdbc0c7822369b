/* kernels.c - which tensors of a step its kernel takes: every op that is not a matrix product, from Args to
 * launcher.
 *
 * The contract of each op stands in ir/op_*.c, the work in the .cu file named by kernels.h. Nothing here waits,
 * allocates or reads device memory. Formats a kernel does not have stick as an error (G5), as do broken
 * workspaces as bugs. */
#include "backend/cuda/cache_kernels.h"
#include "backend/cuda/cuda.h"
#include "backend/cuda/cudnn.h"
#include "backend/cuda/kernels.h"

_Static_assert((int)CUDA_VERDICT_SCALE == VERDICT_SCALE && (int)CUDA_VERDICT_NORM == VERDICT_NORM &&
               (int)CUDA_VERDICT_OK == VERDICT_OK, "kernels.h repeats the verdict's words");
_Static_assert((int)CUDA_DIAL_LR == DIAL_LR && (int)CUDA_DIAL_CORRECT1 == DIAL_CORRECT1 &&
               (int)CUDA_DIAL_CORRECT2 == DIAL_CORRECT2, "kernels.h repeats the dials' words");

static CudaNumbers input(const Args *a, int i) {
    return (CudaNumbers){a->in[i], a->in[i] ? a->ti[i]->format : FMT_F32};
}
static CudaNumbers output(const Args *a, int i) {
    return (CudaNumbers){a->out[i], a->out[i] ? a->to[i]->format : FMT_F32};
}

/* 8-bit moments: one scale a block, behind the codes; NULL for other formats. */
static float *scales_of(void *data, const Tensor *t) {
    if (!data || format_table[t->format].by_rows) return NULL;
    return (float *)((char *)data + format_scales_offset(t->format, cuda_rows(t), cuda_cols(t)));
}

/* fp32, bf16 or fp16. */
static bool is_real(Backend *b, const Args *a, const Tensor *t) {
    if (!t || cuda_is_number(t->format)) return true;
    cuda_fail(b, "%s: numbers in %s cannot be taken one by one on the GPU", op_row(a->step->op)->name,
              format_name(t->format));
    return false;
}

/* Activations of one step share one format. */
static bool same_format(Backend *b, const Args *a, const Tensor *t, const Tensor *u) {
    if (!is_real(b, a, t)) return false;
    if (!u || t->format == u->format) return true;
    cuda_fail(b, "%s: %s is in %s and %s in %s; the GPU's kernel takes one format", op_row(a->step->op)->name,
              t->name, format_name(t->format), u->name, format_name(u->format));
    return false;
}

static void *workspace(const Args *a, int64_t bytes) {
    CHECK_MSG(a->workspace_bytes >= bytes, "%s: its row gives %lld bytes of workspace, %lld are needed",
              op_row(a->step->op)->name, (long long)a->workspace_bytes, (long long)bytes);
    return a->workspace;
}

/* ---- norms ---- */

void cuda_rmsnorm(Backend *b, Queue q, const Args *a) {
    if (!same_format(b, a, a->to[0], a->ti[0]) || !is_real(b, a, a->ti[1])) return;
    CudaNorm n = {.y = output(a, 0), .w = input(a, 1), .x = a->in[0], .rstd = a->out[1], .rows = cuda_rows(a->ti[0]),
                  .cols = cuda_cols(a->ti[0]), .eps = a->step->attr.norm.eps};
    cuda_launch_rmsnorm(cuda_stream(b, q), &n);
}

void cuda_add_rmsnorm(Backend *b, Queue q, const Args *a) {
    for (int k = ADD_RMSNORM_A; k <= ADD_RMSNORM_B; k++)
        if (!same_format(b, a, a->to[ADD_RMSNORM_Y], a->ti[k])) return;
    if (!same_format(b, a, a->to[ADD_RMSNORM_Y], a->to[ADD_RMSNORM_SUM]) || !is_real(b, a, a->ti[ADD_RMSNORM_W])) return;
    CudaNorm n = {.y = output(a, ADD_RMSNORM_Y), .w = input(a, ADD_RMSNORM_W), .sum = a->out[ADD_RMSNORM_SUM],
                  .x = a->in[ADD_RMSNORM_A], .b = a->in[ADD_RMSNORM_B], .rstd = a->out[ADD_RMSNORM_RSTD],
                  .rows = cuda_rows(a->ti[0]), .cols = cuda_cols(a->ti[0]), .eps = a->step->attr.norm.eps};
    cuda_launch_rmsnorm(cuda_stream(b, q), &n);
}

void cuda_rmsnorm_grad(Backend *b, Queue q, const Args *a) {
    enum { MOST_COLS = 16128 }; /* the sums of dw stand in shared memory: at most 64 KB on any card */
    if (!same_format(b, a, a->ti[1], a->ti[0]) || !same_format(b, a, a->ti[1], a->ti[4]) ||
        !same_format(b, a, a->ti[1], a->to[0]) || !is_real(b, a, a->ti[2]) || !is_real(b, a, a->to[1])) return;
    CudaNormGrad g = {.dx = output(a, 0), .dw = output(a, 1), .x = input(a, 1), .w = input(a, 2), .dy = a->in[0],
                      .so_far = a->in[4], .rstd = a->in[3], .rows = cuda_rows(a->ti[1]),
                      .cols = cuda_cols(a->ti[1]), .beta = a->in[5], .key = cuda_key(a, 6, -1)};
    if (g.dw.data) {
        g.parts = workspace(a, device_parts(g.rows, DEVICE_NORM_PART) * g.cols * 4);
        if (g.cols > MOST_COLS) {
            cuda_fail(b, "rmsnorm_grad: rows of %lld numbers, the GPU's kernel sums up to %d", (long long)g.cols,
                      MOST_COLS);
            return;
        }
    }
    cuda_launch_rmsnorm_grad(cuda_stream(b, q), &g);
}

enum { MOST_NORM_DIM = 512 };

static bool head_norm_of(CudaHeadNorm *n, Backend *b, const Args *a, int qkv, int wq) {
    const AttrHeads *h = &a->step->attr.heads;
    *n = (CudaHeadNorm){.wq = input(a, wq), .wk = input(a, wq + 1), .rows = cuda_rows(a->ti[qkv]),
                        .heads = h->heads, .kv_heads = h->kv_heads, .dim = h->head_dim, .eps = h->eps};
    if (h->head_dim > MOST_NORM_DIM) {
        cuda_fail(b, "%s: heads of %d numbers, the GPU's kernel takes up to %d", op_row(a->step->op)->name,
                  h->head_dim, MOST_NORM_DIM);
        return false;
    }
    return same_format(b, a, a->to[0], a->ti[qkv]) && same_format(b, a, a->ti[wq], a->ti[wq + 1]);
}

void cuda_head_norm(Backend *b, Queue q, const Args *a) {
    CudaHeadNorm n;
    if (!head_norm_of(&n, b, a, 0, 1)) return;
    cuda_launch_head_norm(cuda_stream(b, q), output(a, 0), a->out[1], a->in[0], &n);
}

void cuda_head_norm_grad(Backend *b, Queue q, const Args *a) {
    CudaHeadNormGrad g = {.dx = output(a, 0), .dwq = output(a, 1), .dwk = output(a, 2), .dy = a->in[0],
                          .qkv = a->in[1], .rstd = a->in[4], .beta = a->in[5], .key = cuda_key(a, 6, -1)};
    if (!head_norm_of(&g.norm, b, a, 1, 2) || !same_format(b, a, a->to[0], a->ti[0]) || !is_real(b, a, a->to[1]) ||
        !is_real(b, a, a->to[2])) return;
    if (g.dwq.data || g.dwk.data)
        g.parts = workspace(a, device_parts(g.norm.rows, DEVICE_NORM_PART) * 2 * g.norm.dim * 4);
    cuda_launch_head_norm_grad(cuda_stream(b, q), &g);
}

/* ---- positions and attention ---- */

static bool turns(Backend *b, const Args *a) {
    if (a->step->attr.heads.head_dim <= CUDA_MOST_ROPE_DIM) return true;
    cuda_fail(b, "%s: heads of %d numbers, the GPU's kernel takes up to %d", op_row(a->step->op)->name,
              a->step->attr.heads.head_dim, CUDA_MOST_ROPE_DIM);
    return false;
}

static CudaRope rope_of(const Args *a) {
    const AttrHeads *h = &a->step->attr.heads;
    return (CudaRope){.positions = a->in[1], .inv_freq = a->in[2], .tokens = cuda_rows(a->ti[0]), .heads = h->heads,
                      .kv_heads = h->kv_heads, .dim = h->head_dim, .scale = h->scale, .inverse = h->inverse};
}

void cuda_rope(Backend *b, Queue q, const Args *a) {
    if (!same_format(b, a, a->to[0], a->ti[0]) || !turns(b, a)) return;
    CudaRope r = rope_of(a);
    cuda_launch_rope(cuda_stream(b, q), output(a, 0), a->in[0], &r);
}

static char *number_at(const void *data, Format f, int64_t i) { return (char *)data + i * format_item_bytes(f); }

/* Attention of qkv's tokens to qkv's tokens. */
static CudaAttend attend_of(const Args *a, int qkv, int doc_begin) {
    const AttrHeads *h = &a->step->attr.heads;
    Format f = a->ti[qkv]->format;
    int width = (h->heads + 2 * h->kv_heads) * h->head_dim;
    return (CudaAttend){.q = a->in[qkv], .k = number_at(a->in[qkv], f, (int64_t)h->heads * h->head_dim),
                        .begin = a->in[doc_begin], .q_stride = width, .kv_stride = width,
                        .o_stride = h->heads * h->head_dim, .v_offset = h->kv_heads * h->head_dim,
                        .rows = cuda_rows(a->ti[qkv]) / h->seq, .seq = (int)h->seq, .keys = (int)h->seq,
                        .heads = h->heads, .kv_heads = h->kv_heads, .dim = h->head_dim, .scale = h->scale,
                        .format = f};
}

static bool head_fits(Backend *b, const Args *a, int dim) {
    if (dim <= CUDA_MOST_HEAD_DIM) return true;
    cuda_fail(b, "%s: heads of %d numbers, the GPU's kernels take up to %d", op_row(a->step->op)->name, dim,
              CUDA_MOST_HEAD_DIM);
    return false;
}

static bool is_aligned(const void *p) { return ((uintptr_t)p & 15) == 0; }

enum { CORES_FROM = 8, CLUSTERS_FROM = 9 }; /* majors */

static bool fits_cores(Backend *b, const CudaAttend *x) {
    return cuda_backend(b)->major >= CORES_FROM && is_aligned(x->q) && is_aligned(x->k) && is_aligned(x->o);
}
static bool on_cores(Backend *b, const CudaAttend *x) {
    return device_attend_on_cores(x->format, x->dim) && fits_cores(b, x);
}
static bool tokens_on_cores(Backend *b, const CudaAttend *x) {
    return device_cache_on_cores(x->format, x->dim) && fits_cores(b, x);
}

static bool on_hopper(Backend *b) {
    const CudaBackend *c = cuda_backend(b);
    return c->major == 9 && c->minor == 0 && !c->keeps_to_mma;
}

static void attend_rows(Backend *b, Queue q, const CudaAttend *x) {
    cudaStream_t s = cuda_stream(b, q);
    if (!on_cores(b, x)) cuda_launch_attend_plain(s, x);
    else if (!on_hopper(b) || !cuda_launch_attend_sm90(s, x)) cuda_launch_attend(s, x);
}

/* What our own kernels do faster than the library inside a step (docs/performance.md): short rows backward, and of heads of
 * 64 numbers forward too. */
static bool ours_are_faster(Backend *b, const Args *a, int qkv, bool backward) {
    enum { LONGEST = 1024, NARROW = 64 };
    CudaAttend x = attend_of(a, qkv, qkv + 1);
    return a->step->attr.heads.by == ATTEND_FAST && x.seq <= LONGEST && (backward || x.dim == NARROW) && on_hopper(b) &&
           cuda_attend_sm90_takes(&x);
}

void cuda_attend(Backend *b, Queue q, const Args *a) {
    if (!ours_are_faster(b, a, 0, false) && cuda_library_attend(b, q, a)) return;
    CudaAttend x = attend_of(a, 0, 1);
    x.o = a->out[0];
    x.lse = a->out[1];
    if (same_format(b, a, a->ti[0], a->to[0]) && head_fits(b, a, x.dim)) attend_rows(b, q, &x);
}

void cuda_attend_grad(Backend *b, Queue q, const Args *a) {
    bool ours = ours_are_faster(b, a, 1, true);
    if (!ours && cuda_library_attend_grad(b, q, a)) return;
    bool theirs = ours && !ours_are_faster(b, a, 1, false) && cuda_library_attends(b, a, 1); /* they made lse */
    const AttrHeads *h = &a->step->attr.heads;
    DeviceAttendGrad d = device_attend_grad(h, a->ti[1]->format, cuda_rows(a->ti[1]));
    CudaAttendGrad g = {.a = attend_of(a, 1, 4), .d_o = a->in[0], .dq = a->out[0], .n_parts = d.n_parts,
                        .padded = (int)d.padded};
    if (!same_format(b, a, a->ti[1], a->ti[0]) || !same_format(b, a, a->ti[1], a->ti[2]) ||
        !same_format(b, a, a->ti[1], a->to[0]) || !head_fits(b, a, g.a.dim)) return;
    g.a.o = a->in[2];
    g.a.lse = a->in[3];
    g.dk = number_at(a->out[0], g.a.format, (int64_t)h->heads * h->head_dim);
    char *scratch = workspace(a, d.bytes);
    g.lse2 = (float *)scratch;
    g.delta = (float *)(scratch + d.delta);
    g.tiles = (int32_t *)(scratch + d.tiles);
    g.parts = (float *)(scratch + d.sums);
    cudaStream_t s = cuda_stream(b, q);
    cuda_launch_attend_delta(s, &g, theirs);
    if (!on_cores(b, &g.a) || !is_aligned(g.d_o) || !is_aligned(g.dq)) cuda_launch_attend_grad_plain(s, &g);
    else if (!on_hopper(b) || !cuda_launch_attend_grad_sm90(s, &g)) cuda_launch_attend_grad(s, &g);
}

static CudaHeadRow head_row(int dim) {
    return (CudaHeadRow){(int)format_row_bytes(FMT_INT8, dim), (int)format_row_scale(FMT_INT8, dim)};
}

static bool is_input(const Tensor *t) { return !t || (t->role == ROLE_INPUT && t->home.pool == POOL_DEVICE); }

void cuda_rope_put(Backend *b, Queue q, const Args *a) {
    const AttrHeads *h = &a->step->attr.heads;
    bool int8 = a->to[1]->format == FMT_INT8;
    if (!same_format(b, a, a->to[0], a->ti[0]) || (!int8 && !is_real(b, a, a->to[1])) || !turns(b, a)) return;
    CudaRope r = rope_of(a);
    r.early = is_input(a->ti[1]) && is_input(a->ti[3]);
    CudaPut p = {.cache = output(a, 1), .rows = a->in[3], .seq = (int)h->seq, .slots = (int)h->slots,
                 .row = head_row(h->head_dim)};
    cuda_launch_rope_put(cuda_stream(b, q), output(a, 0), a->in[0], &r, &p);
}

static CudaHeadRow cache_row(const Args *a) { /* of attend_cache */
    int dim = a->step->attr.heads.head_dim;
    return a->ti[1]->format == FMT_INT8 ? head_row(dim) : (CudaHeadRow){dim * (int)format_item_bytes(a->ti[0]->format), 0};
}

static CudaAttend attend_cache_of(const Args *a) {
    const AttrHeads *h = &a->step->attr.heads;
    CudaHeadRow row = cache_row(a);
    bool int8 = a->ti[1]->format == FMT_INT8;
    CudaAttend x = attend_of(a, 0, 2);
    x.begin = NULL;
    x.last = a->in[2];
    x.key_row = a->in[3];
    x.early = is_input(a->ti[2]) && is_input(a->ti[3]);
    x.k = a->in[1];
    x.kv_stride = 2 * h->kv_heads * (int8 ? row.bytes : h->head_dim);
    x.keys = (int)h->slots;
    x.o = a->out[0];
    if (int8) x.v_offset = h->kv_heads * row.bytes;
    return x;
}

void cuda_attend_cache(Backend *b, Queue q, const Args *a) {
    const AttrHeads *h = &a->step->attr.heads;
    bool int8 = a->ti[1]->format == FMT_INT8;
    if (!same_format(b, a, a->ti[0], int8 ? NULL : a->ti[1]) || !same_format(b, a, a->ti[0], a->to[0]) ||
        !head_fits(b, a, h->head_dim)) return;
    int64_t tokens = cuda_rows(a->ti[0]);
    CudaHeadRow row = cache_row(a);
    CudaAttend x = attend_cache_of(a);
    if (h->seq >= DEVICE_CACHE_FEW && !int8) {
        attend_rows(b, q, &x);
        return;
    }
    float *parts = workspace(a, device_cache_bytes(h, x.format, tokens));
    int splits = device_cache_splits(h, x.format, tokens);
    if (tokens_on_cores(b, &x))
        cuda_launch_attend_tokens(cuda_stream(b, q), &x, row, int8, parts, splits, cuda_backend(b)->major >= CLUSTERS_FROM);
    else if (int8) cuda_launch_attend_cache_int8(cuda_stream(b, q), &x, row, parts, splits);
    else cuda_launch_attend_cache(cuda_stream(b, q), &x, parts, splits);
}

/* ---- both at once: a token a row, which puts its key and value while it attends ---- */

static int64_t bytes_of(const Tensor *t) { return format_bytes(t->format, cuda_rows(t), cuda_cols(t)); }

/* The same tokens of the same heads, over the same cache; and where blocks write, none still reads qkv. */
static bool is_pair(const Args *put, const Args *see) {
    const AttrHeads *h = &put->step->attr.heads, *g = &see->step->attr.heads;
    int64_t qkv_bytes = bytes_of(put->ti[0]);
    return see->in[0] == put->out[0] && see->in[1] == put->out[1] && see->in[2] == put->in[1] && see->in[3] == put->in[3] &&
           h->heads == g->heads && h->kv_heads == g->kv_heads && h->head_dim == g->head_dim && h->seq == g->seq &&
           h->slots == g->slots && !backend_overlap(put->in[0], qkv_bytes, see->out[0], bytes_of(see->to[0])) &&
           !backend_overlap(put->in[0], qkv_bytes, see->workspace, see->workspace_bytes);
}

/* What the one launch reads early must have been there before the play, and no token may see another's slot of this play. */
int cuda_put_attend_takes(Backend *b, const Args *a, int n) {
    if (n < 2 || a[0].step->op != OP_ROPE_PUT || a[1].step->op != OP_ATTEND_CACHE || !a[0].passes[0]) return 1;
    const Args *put = &a[0], *see = &a[1];
    const Tensor *cache = put->to[1];
    const AttrHeads *h = &put->step->attr.heads;
    Format f = put->ti[0]->format;
    bool apart = h->seq == 1 && (h->apart || !put->in[3] || cuda_rows(put->ti[0]) == 1);
    bool before = put->sole[1] && cache->role == ROLE_CACHE && cache->home.pool == POOL_DEVICE && is_input(put->ti[1]) &&
                  is_input(put->ti[3]);
    if (!apart || !before || cache->format != f || see->to[0]->format != f || !is_pair(put, see)) return 1;
    CudaAttend x = attend_cache_of(see);
    x.q = put->in[0];
    return tokens_on_cores(b, &x) ? 2 : 1;
}

void cuda_put_attend(Backend *b, Queue q, const Args *a, int n) {
    const AttrHeads *h = &a[1].step->attr.heads;
    CudaRope r = rope_of(&a[0]);
    CudaAttend x = attend_cache_of(&a[1]);
    x.q = a[0].in[0];
    int64_t tokens = cuda_rows(a[0].ti[0]);
    float *parts = workspace(&a[1], device_cache_bytes(h, x.format, tokens));
    cuda_launch_put_attend(cuda_stream(b, q), &x, &r, cache_row(&a[1]), parts, device_cache_splits(h, x.format, tokens),
                           cuda_backend(b)->major >= CLUSTERS_FROM);
}

/* ---- elementwise ---- */

void cuda_swiglu(Backend *b, Queue q, const Args *a) {
    if (!same_format(b, a, a->to[0], a->ti[0])) return;
    cuda_launch_swiglu(cuda_stream(b, q), output(a, 0), a->in[0], cuda_rows(a->to[0]), cuda_cols(a->to[0]));
}

void cuda_swiglu_grad(Backend *b, Queue q, const Args *a) {
    if (!same_format(b, a, a->to[0], a->ti[0]) || !same_format(b, a, a->to[0], a->ti[1])) return;
    cuda_launch_swiglu_grad(cuda_stream(b, q), output(a, 0), a->in[0], a->in[1], cuda_rows(a->ti[0]),
                            cuda_cols(a->ti[0]));
}

void cuda_add(Backend *b, Queue q, const Args *a) {
    if (!same_format(b, a, a->to[0], a->ti[0]) || !same_format(b, a, a->to[0], a->ti[1])) return;
    cuda_launch_add(cuda_stream(b, q), output(a, 0), a->in[0], a->in[1], cuda_count(a->to[0]));
}

/* ---- ids and losses ---- */

static void give_rows(Backend *b, Queue q, const Args *a, const int32_t *ids, int64_t rows) {
    Format f = a->ti[0]->format;
    bool quantised = f == FMT_INT8 || f == FMT_NF4;
    if (!is_real(b, a, a->to[0]) || (!quantised && !is_real(b, a, a->ti[0]))) return;
    CudaRows r = {.table = input(a, 0), .ids = ids, .table_rows = cuda_rows(a->ti[0]), .rows = rows, .cols = cuda_cols(a->ti[0])};
    r.row_bytes = format_row_bytes(f, r.cols);
    if (quantised) r.scale_at = (int)format_row_scale(f, r.cols), r.blocks_at = (int)format_nf4_blocks(r.cols);
    cuda_launch_rows(cuda_stream(b, q), output(a, 0), &r);
}

void cuda_embed(Backend *b, Queue q, const Args *a) { give_rows(b, q, a, a->in[1], cuda_count(a->ti[1])); }

void cuda_decode(Backend *b, Queue q, const Args *a) { give_rows(b, q, a, NULL, cuda_rows(a->ti[0])); }

void cuda_embed_grad(Backend *b, Queue q, const Args *a) {
    if (!is_real(b, a, a->ti[0]) || !is_real(b, a, a->to[0])) return;
    CudaEmbedGrad e = {.ids = a->in[1], .order = a->in[2], .tokens = cuda_count(a->ti[1]),
                       .table_rows = cuda_rows(a->to[0]), .cols = cuda_cols(a->to[0]), .beta = a->in[3],
                       .key = cuda_key(a, 4, -1)};
    cuda_launch_embed_grad(cuda_stream(b, q), output(a, 0), input(a, 0), &e);
}

void cuda_sample(Backend *b, Queue q, const Args *a) {
    CudaSample s = {.logits = a->in[0], .slots = a->in[1], .positions = a->in[2], .how = a->in[3], .drawn = a->out[0],
                    .ids = a->out[1], .rows = cuda_rows(a->ti[0]), .vocab = (int)cuda_cols(a->ti[0]),
                    .room = (int)cuda_cols(a->to[1])};
    if (s.vocab <= CUDA_MOST_VOCAB) cuda_launch_sample(cuda_stream(b, q), &s);
    else cuda_fail(b, "sample: a vocabulary of %d tokens, the GPU's kernel takes up to %d", s.vocab, CUDA_MOST_VOCAB);
}

void cuda_pick(Backend *b, Queue q, const Args *a) {
    cuda_launch_pick(cuda_stream(b, q), a->out[0], a->in[0], a->in[1], a->in[2], cuda_count(a->to[0]),
                     (int)cuda_cols(a->ti[0]));
}

static bool is_number(Backend *b, const Args *a, const Tensor *t) {
    return t->format == FMT_F64 || is_real(b, a, t);
}

void cuda_token_sum(Backend *b, Queue q, const Args *a) {
    if (!is_number(b, a, a->ti[0]) || !is_number(b, a, a->ti[1]) || !is_number(b, a, a->ti[2])) return;
    cuda_launch_token_sum(cuda_stream(b, q), a->out[0], input(a, 0), input(a, 1), input(a, 2), a->in[3],
                          cuda_count(a->ti[0]), a->step->attr.scale.by);
}

void cuda_token_sum_grad(Backend *b, Queue q, const Args *a) {
    if (!is_real(b, a, a->to[0]) || !is_number(b, a, a->ti[0]) || !is_number(b, a, a->ti[1])) return;
    cuda_launch_token_sum_grad(cuda_stream(b, q), output(a, 0), input(a, 0), input(a, 1), cuda_count(a->ti[0]),
                               a->step->attr.scale.by);
}

/* ---- updates ---- */

/* Steps that follow each other are gathered into launches; a launch ends where no more fit or where something that
 * it has once differs. One step is a run of one: the same kernel, the same bits. */
void cuda_sum_squares_run(Backend *b, Queue q, const Args *a, int n) {
    CudaSquares u = {0};
    for (int i = 0; i < n; i++) {
        int64_t count = cuda_count(a[i].ti[0]), tiles = device_parts(count, CUDA_SQUARES_TILE);
        Format f = a[i].ti[0]->format;
        if (!is_real(b, &a[i], a[i].ti[0])) return;
        if (u.n && (u.n == CUDA_SQUARES_MOST || u.format != f || u.tiles + tiles > INT32_MAX)) {
            cuda_launch_sum_squares(cuda_stream(b, q), &u);
            u.n = u.tiles = 0;
        }
        u.format = f;
        u.t[u.n++] = (CudaSquaresTensor){.g = a[i].in[0], .tiles = workspace(&a[i], tiles * 8), .to = a[i].out[0],
                                         .count = count, .first_tile = u.tiles};
        u.tiles += (uint32_t)tiles;
    }
    if (u.n) cuda_launch_sum_squares(cuda_stream(b, q), &u);
}

void cuda_sum_squares(Backend *b, Queue q, const Args *a) { cuda_sum_squares_run(b, q, a, 1); }

void cuda_clip(Backend *b, Queue q, const Args *a) {
    CHECK(a->ti[0]->format == FMT_F64 && a->ti[1]->format == FMT_F64 && a->ti[2]->format == FMT_F32);
    cuda_launch_clip(cuda_stream(b, q), a->out[0], a->in[0], a->in[1], a->in[2], a->in[3], cuda_count(a->ti[0]));
}

static bool is_state(Backend *b, const Args *a, const Tensor *t, Format moment) {
    if (!t || t->format == moment || cuda_is_number(t->format)) return true;
    cuda_fail(b, "%s: no update of numbers in %s on the GPU", op_row(a->step->op)->name, format_name(t->format));
    return false;
}

typedef struct Places { /* of an op's row; v -1: none */
    int v, master, dials, verdict, clock;
} Places;

static Format format_of(const Tensor *t) { return t ? t->format : FMT_F32; }

/* What a launch has once: everything of this step but the tensor itself. */
static CudaUpdates update_of(const Args *a, Places p) {
    const AttrUpdate *k = &a->step->attr.update;
    const Tensor *m = a->to[1], *v = p.v < 0 ? NULL : a->to[p.v], *master = a->to[p.master];
    CudaUpdates u = {.w = a->to[0]->format, .g = a->ti[1]->format, .m = format_of(m), .v = format_of(v),
                     .master = format_of(master), .aligned = true, .beta1 = k->beta1, .beta2 = k->beta2,
                     .eps = k->eps, .dials = a->in[p.dials], .verdict = a->in[p.verdict], .clock = a->in[p.clock]};
    u.draws = (u.w == FMT_BF16 && !master) || (m && u.m == FMT_BF16) || (v && u.v == FMT_BF16);
    return u;
}

static bool goes_with(const CudaUpdates *u, const CudaUpdates *x, const Args *a, Places p, int64_t tiles) {
    const CudaUpdateTensor *t = &u->t[0];
    return u->n < CUDA_UPDATE_MOST && u->tiles + tiles <= INT32_MAX && u->w == x->w && u->g == x->g &&
           u->m == x->m && u->v == x->v && u->master == x->master && !t->m == !a->to[1] &&
           !t->master == !a->to[p.master] && u->draws == x->draws && u->beta1 == x->beta1 && u->beta2 == x->beta2 &&
           u->eps == x->eps && u->dials == x->dials && u->verdict == x->verdict && u->clock == x->clock;
}

static void add_tensor(CudaUpdates *u, const Args *a, Places p, int64_t tiles) {
    CudaUpdateTensor t = {.w = a->out[0], .m = a->out[1], .master = a->out[p.master], .g = a->in[1],
                          .m_scales = scales_of(a->out[1], a->to[1]), .count = cuda_count(a->to[0]),
                          .key = a->step->key, .first_tile = u->tiles, .lr_mult = a->step->attr.update.lr_mult,
                          .weight_decay = a->step->attr.update.weight_decay};
    if (p.v >= 0) t.v = a->out[p.v], t.v_scales = scales_of(a->out[p.v], a->to[p.v]);
    CHECK_MSG(a->in[0] == a->out[0], "a weight is updated where it stands%s", "");
    u->aligned &= (((uintptr_t)t.w | (uintptr_t)t.m | (uintptr_t)t.v | (uintptr_t)t.master | (uintptr_t)t.g) & 15) == 0;
    u->t[u->n++] = t;
    u->tiles += (uint32_t)tiles;
}

typedef void LaunchUpdates(cudaStream_t s, const CudaUpdates *u, int processors);

static void update_run(Backend *b, Queue q, const Args *a, int n, Places p, LaunchUpdates *launch) {
    CudaUpdates u = {0};
    for (int i = 0; i < n; i++) {
        const Args *x = &a[i];
        if (!is_state(b, x, x->to[0], FMT_F32) || !is_state(b, x, x->ti[1], FMT_F32) ||
            !is_state(b, x, x->to[p.master], FMT_F32) || !is_state(b, x, x->to[1], FMT_MOM8) ||
            (p.v >= 0 && !is_state(b, x, x->to[p.v], FMT_VAR8)))
            return;
        int64_t tiles = device_parts(cuda_count(x->to[0]), CUDA_UPDATE_TILE);
        CudaUpdates next = update_of(x, p);
        if (u.n && !goes_with(&u, &next, x, p, tiles)) {
            launch(cuda_stream(b, q), &u, cuda_backend(b)->processors);
            u.n = 0;
        }
        if (!u.n) u = next;
        add_tensor(&u, x, p, tiles);
    }
    if (u.n) launch(cuda_stream(b, q), &u, cuda_backend(b)->processors);
}

void cuda_adamw_run(Backend *b, Queue q, const Args *a, int n) {
    update_run(b, q, a, n, (Places){.v = 2, .master = 3, .dials = 5, .verdict = 6, .clock = 7}, cuda_launch_adamw);
}

void cuda_sgd_run(Backend *b, Queue q, const Args *a, int n) {
    update_run(b, q, a, n, (Places){.v = -1, .master = 2, .dials = 4, .verdict = 5, .clock = 6}, cuda_launch_sgd);
}

void cuda_adamw(Backend *b, Queue q, const Args *a) { cuda_adamw_run(b, q, a, 1); }
void cuda_sgd(Backend *b, Queue q, const Args *a) { cuda_sgd_run(b, q, a, 1); }

/* ---- moves ---- */

void cuda_fill(Backend *b, Queue q, const Args *a) {
    cuda_launch_fill(cuda_stream(b, q), output(a, 0), scales_of(a->out[0], a->to[0]), cuda_rows(a->to[0]),
                     cuda_cols(a->to[0]), a->step->attr.fill);
}

void cuda_copy(Backend *b, Queue q, const Args *a) {
    b->copy(b, q, a->out[0], a->in[0], format_bytes(a->to[0]->format, cuda_rows(a->to[0]), cuda_cols(a->to[0])));
}
