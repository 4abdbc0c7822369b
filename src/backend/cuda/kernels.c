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
#include "backend/update.h"

_Static_assert((int)CUDA_VERDICT_SCALE == VERDICT_SCALE && (int)CUDA_VERDICT_NORM == VERDICT_NORM &&
               (int)CUDA_VERDICT_OK == VERDICT_OK, "kernels.h repeats the verdict's words");
_Static_assert((int)CUDA_LIMIT_LOSS == LIMIT_LOSS && (int)CUDA_LIMIT_NORM == LIMIT_NORM,
               "kernels.h repeats the limits' words");
_Static_assert((int)CUDA_DIAL_LR == DIAL_LR && (int)CUDA_DIAL_CORRECT1 == DIAL_CORRECT1 &&
               (int)CUDA_DIAL_CORRECT2 == DIAL_CORRECT2, "kernels.h repeats the dials' words");
_Static_assert((int)CUDA_CARRY_REMOVE == CARRY_REMOVE && (int)CUDA_CARRY_SUMS == CARRY_SUMS &&
               (int)CUDA_CARRY_TILE == CARRY_TILE, "kernels.h repeats the words of a correction");

static CudaNumbers numbers(Operand x) { return (CudaNumbers){x.data, x.data ? x.t->format : FMT_F32}; }

/* 8-bit moments: one scale a block, behind the codes; NULL for other formats. */
static float *scales_of(Operand x) {
    if (!x.data || format_table[x.t->format].by_rows) return NULL;
    return (float *)((char *)x.data + format_scales_offset(x.t->format, cuda_rows(x.t), cuda_cols(x.t)));
}

/* fp32, bf16 or fp16. */
static bool is_real(Backend *b, const Args *a, Operand x) {
    if (!x.t || cuda_is_number(x.t->format)) return true;
    cuda_fail(b, "%s: numbers in %s cannot be taken one by one on the GPU", op_name(a->step->op),
              format_name(x.t->format));
    return false;
}

/* Activations of one step share one format. */
static bool same_format(Backend *b, const Args *a, Operand x, Operand y) {
    if (!is_real(b, a, x)) return false;
    if (!y.t || x.t->format == y.t->format) return true;
    cuda_fail(b, "%s: %s is in %s and %s in %s; the GPU's kernel takes one format", op_name(a->step->op),
              x.t->name, format_name(x.t->format), y.t->name, format_name(y.t->format));
    return false;
}

static void *workspace(const Args *a, int64_t bytes) {
    CHECK_MSG(a->workspace_bytes >= bytes, "%s: its row gives %lld bytes of workspace, %lld are needed",
              op_name(a->step->op), (long long)a->workspace_bytes, (long long)bytes);
    return a->workspace;
}

/* ---- norms ---- */

void cuda_rmsnorm(Backend *b, Queue q, const Args *a) {
    Operand x = a->rmsnorm.in.x, w = a->rmsnorm.in.w, y = a->rmsnorm.out.y;
    if (!same_format(b, a, y, x) || !is_real(b, a, w)) return;
    CudaNorm n = {.y = numbers(y), .w = numbers(w), .x = x.data, .rstd = a->rmsnorm.out.rstd.data,
                  .rows = cuda_rows(x.t), .cols = cuda_cols(x.t), .eps = a->step->attr.norm.eps};
    cuda_launch_rmsnorm(cuda_stream(b, q), &n);
}

void cuda_add_rmsnorm(Backend *b, Queue q, const Args *a) {
    Operand x = a->add_rmsnorm.in.a, other = a->add_rmsnorm.in.b, w = a->add_rmsnorm.in.w;
    Operand y = a->add_rmsnorm.out.y, sum = a->add_rmsnorm.out.sum;
    if (!same_format(b, a, y, x) || !same_format(b, a, y, other) || !same_format(b, a, y, sum) || !is_real(b, a, w))
        return;
    CudaNorm n = {.y = numbers(y), .w = numbers(w), .sum = sum.data, .x = x.data, .b = other.data,
                  .rstd = a->add_rmsnorm.out.rstd.data, .rows = cuda_rows(x.t), .cols = cuda_cols(x.t),
                  .eps = a->step->attr.norm.eps};
    cuda_launch_rmsnorm(cuda_stream(b, q), &n);
}

void cuda_rmsnorm_grad(Backend *b, Queue q, const Args *a) {
    enum { MOST_COLS = 16128 }; /* the sums of dw stand in shared memory: at most 64 KB on any card */
    Operand dy = a->rmsnorm_grad.in.dy, x = a->rmsnorm_grad.in.x, w = a->rmsnorm_grad.in.w;
    Operand so_far = a->rmsnorm_grad.in.so_far, dx = a->rmsnorm_grad.out.dx, dw = a->rmsnorm_grad.out.dw;
    if (!same_format(b, a, x, dy) || !same_format(b, a, x, so_far) || !same_format(b, a, x, dx) || !is_real(b, a, w) ||
        !is_real(b, a, dw)) return;
    CudaNormGrad g = {.dx = numbers(dx), .dw = numbers(dw), .x = numbers(x), .w = numbers(w), .dy = dy.data,
                      .so_far = so_far.data, .rstd = a->rmsnorm_grad.in.rstd.data, .rows = cuda_rows(x.t),
                      .cols = cuda_cols(x.t), .beta = a->rmsnorm_grad.in.beta.data,
                      .key = cuda_key(a, a->rmsnorm_grad.in.clock, -1)};
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

static bool head_norm_of(CudaHeadNorm *n, Backend *b, const Args *a, Operand qkv, Operand wq, Operand wk) {
    const AttrHeads *h = &a->step->attr.heads;
    *n = (CudaHeadNorm){.wq = numbers(wq), .wk = numbers(wk), .rows = cuda_rows(qkv.t), .heads = h->heads,
                        .kv_heads = h->kv_heads, .dim = h->head_dim, .eps = h->eps};
    if (h->head_dim > MOST_NORM_DIM) {
        cuda_fail(b, "%s: heads of %d numbers, the GPU's kernel takes up to %d", op_name(a->step->op),
                  h->head_dim, MOST_NORM_DIM);
        return false;
    }
    return same_format(b, a, wq, wk);
}

void cuda_head_norm(Backend *b, Queue q, const Args *a) {
    Operand qkv = a->head_norm.in.qkv, y = a->head_norm.out.y;
    CudaHeadNorm n;
    if (!head_norm_of(&n, b, a, qkv, a->head_norm.in.wq, a->head_norm.in.wk) || !same_format(b, a, y, qkv)) return;
    cuda_launch_head_norm(cuda_stream(b, q), numbers(y), a->head_norm.out.rstd.data, qkv.data, &n);
}

void cuda_head_norm_grad(Backend *b, Queue q, const Args *a) {
    Operand dy = a->head_norm_grad.in.dy, qkv = a->head_norm_grad.in.qkv, dx = a->head_norm_grad.out.d_qkv;
    Operand dwq = a->head_norm_grad.out.dwq, dwk = a->head_norm_grad.out.dwk;
    CudaHeadNormGrad g = {.dx = numbers(dx), .dwq = numbers(dwq), .dwk = numbers(dwk), .dy = dy.data, .qkv = qkv.data,
                          .rstd = a->head_norm_grad.in.rstd.data, .beta = a->head_norm_grad.in.beta.data,
                          .key = cuda_key(a, a->head_norm_grad.in.clock, -1)};
    if (!head_norm_of(&g.norm, b, a, qkv, a->head_norm_grad.in.wq, a->head_norm_grad.in.wk) ||
        !same_format(b, a, dx, qkv) || !same_format(b, a, dx, dy) || !is_real(b, a, dwq) || !is_real(b, a, dwk)) return;
    if (g.dwq.data || g.dwk.data)
        g.parts = workspace(a, device_parts(g.norm.rows, DEVICE_NORM_PART) * 2 * g.norm.dim * 4);
    cuda_launch_head_norm_grad(cuda_stream(b, q), &g);
}

/* ---- positions and attention ---- */

static bool rope_dim_ok(Backend *b, const Args *a) {
    if (a->step->attr.heads.head_dim <= CUDA_MOST_ROPE_DIM) return true;
    cuda_fail(b, "%s: heads of %d numbers, the GPU's kernel takes up to %d", op_name(a->step->op),
              a->step->attr.heads.head_dim, CUDA_MOST_ROPE_DIM);
    return false;
}

static CudaRope rope_of(const AttrHeads *h, Operand qkv, Operand positions, Operand inv_freq) {
    return (CudaRope){.positions = positions.data, .inv_freq = inv_freq.data, .tokens = cuda_rows(qkv.t),
                      .heads = h->heads, .kv_heads = h->kv_heads, .dim = h->head_dim, .scale = h->scale,
                      .inverse = h->inverse};
}

void cuda_rope(Backend *b, Queue q, const Args *a) {
    Operand qkv = a->rope.in.qkv, rotated = a->rope.out.rotated;
    if (!same_format(b, a, rotated, qkv) || !rope_dim_ok(b, a)) return;
    CudaRope r = rope_of(&a->step->attr.heads, qkv, a->rope.in.positions, a->rope.in.inv_freq);
    cuda_launch_rope(cuda_stream(b, q), numbers(rotated), qkv.data, &r);
}

static char *number_at(const void *data, Format f, int64_t i) { return (char *)data + i * format_item_bytes(f); }

/* Attention of qkv's tokens to qkv's tokens. */
static CudaAttend attend_of(const AttrHeads *h, Operand qkv, Operand doc_begin, Operand prefix) {
    Format f = qkv.t->format;
    int width = (h->heads + 2 * h->kv_heads) * h->head_dim;
    return (CudaAttend){.q = qkv.data, .k = number_at(qkv.data, f, (int64_t)h->heads * h->head_dim),
                        .begin = doc_begin.data, .prefix = prefix.data, .q_stride = width, .kv_stride = width,
                        .o_stride = h->heads * h->head_dim, .v_offset = h->kv_heads * h->head_dim,
                        .rows = cuda_rows(qkv.t) / h->seq, .seq = (int)h->seq, .keys = (int)h->seq,
                        .heads = h->heads, .kv_heads = h->kv_heads, .dim = h->head_dim, .scale = h->scale,
                        .format = f};
}

static bool head_fits(Backend *b, const Args *a, int dim) {
    if (dim <= CUDA_MOST_HEAD_DIM) return true;
    cuda_fail(b, "%s: heads of %d numbers, the GPU's kernels take up to %d", op_name(a->step->op), dim,
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
    else if (x->prefix || !on_hopper(b) || !cuda_launch_attend_sm90(s, x)) cuda_launch_attend(s, x);
}

/* What our own kernels do faster than the library inside a step (docs/kernels.md): short rows backward, and of heads of
 * 64 numbers forward too. */
static bool ours_are_faster(Backend *b, const AttrHeads *h, Operand qkv, bool backward) {
    enum { LONGEST = 1024, NARROW = 64 };
    CudaAttend x = attend_of(h, qkv, (Operand){0}, (Operand){0});
    return h->by == ATTEND_FAST && x.seq <= LONGEST && (backward || x.dim == NARROW) && on_hopper(b) &&
           cuda_attend_sm90_takes(&x);
}

void cuda_attend(Backend *b, Queue q, const Args *a) {
    const AttrHeads *h = &a->step->attr.heads;
    Operand qkv = a->attend.in.qkv, o = a->attend.out.o, prefix = a->attend.in.prefix;
    if (!prefix.data && !ours_are_faster(b, h, qkv, false) && cuda_library_attend(b, q, a)) return;
    CudaAttend x = attend_of(h, qkv, a->attend.in.doc_begin, prefix);
    x.o = o.data;
    x.lse = a->attend.out.lse.data;
    if (same_format(b, a, qkv, o) && head_fits(b, a, x.dim)) attend_rows(b, q, &x);
}

void cuda_attend_grad(Backend *b, Queue q, const Args *a) {
    const AttrHeads *h = &a->step->attr.heads;
    Operand d_o = a->attend_grad.in.d_o, qkv = a->attend_grad.in.qkv, o = a->attend_grad.in.o;
    Operand d_qkv = a->attend_grad.out.d_qkv, prefix = a->attend_grad.in.prefix;
    bool ours = prefix.data || ours_are_faster(b, h, qkv, true);
    if (!ours && cuda_library_attend_grad(b, q, a)) return;
    bool theirs = ours && !prefix.data && !ours_are_faster(b, h, qkv, false) &&
                  cuda_library_attends(b, a, qkv); /* they made lse */
    DeviceAttendGrad d = device_attend_grad(h, qkv.t->format, cuda_rows(qkv.t), prefix.data != NULL);
    CudaAttendGrad g = {.a = attend_of(h, qkv, a->attend_grad.in.doc_begin, prefix), .d_o = d_o.data,
                        .dq = d_qkv.data, .n_parts = d.n_parts, .padded = (int)d.padded};
    if (!same_format(b, a, qkv, d_o) || !same_format(b, a, qkv, o) || !same_format(b, a, qkv, d_qkv) ||
        !head_fits(b, a, g.a.dim)) return;
    g.a.o = o.data;
    g.a.lse = a->attend_grad.in.lse.data;
    g.dk = number_at(d_qkv.data, g.a.format, (int64_t)h->heads * h->head_dim);
    char *scratch = workspace(a, d.bytes);
    g.lse2 = (float *)scratch;
    g.delta = (float *)(scratch + d.delta);
    g.tiles = (int32_t *)(scratch + d.tiles);
    g.prefixes = (int32_t *)(scratch + d.prefixes);
    g.parts = (float *)(scratch + d.sums);
    cudaStream_t s = cuda_stream(b, q);
    cuda_launch_attend_delta(s, &g, theirs);
    if (!on_cores(b, &g.a) || !is_aligned(g.d_o) || !is_aligned(g.dq)) cuda_launch_attend_grad_plain(s, &g);
    else if (prefix.data || !on_hopper(b) || !cuda_launch_attend_grad_sm90(s, &g)) cuda_launch_attend_grad(s, &g);
}

static CudaHeadRow head_row(int dim) {
    return (CudaHeadRow){(int)format_row_bytes(FMT_INT8, dim), (int)format_row_scale(FMT_INT8, dim)};
}

/* There before the play: an input on the device, or none. */
static bool is_input(Operand x) { return !x.t || (x.t->role == ROLE_INPUT && x.t->home.pool == POOL_DEVICE); }

static CudaRope put_rope_of(const Args *a) { /* of rope_put */
    return rope_of(&a->step->attr.heads, a->rope_put.in.qkv, a->rope_put.in.positions, a->rope_put.in.inv_freq);
}

void cuda_rope_put(Backend *b, Queue q, const Args *a) {
    const AttrHeads *h = &a->step->attr.heads;
    Operand qkv = a->rope_put.in.qkv, rows = a->rope_put.in.rows, rotated = a->rope_put.out.rotated;
    Operand cache = a->rope_put.out.cache;
    bool int8 = cache.t->format == FMT_INT8;
    if (!same_format(b, a, rotated, qkv) || (!int8 && !is_real(b, a, cache)) || !rope_dim_ok(b, a)) return;
    CudaRope r = put_rope_of(a);
    r.early = is_input(a->rope_put.in.positions) && is_input(rows);
    CudaPut p = {.cache = numbers(cache), .rows = rows.data, .seq = (int)h->seq, .slots = (int)h->slots,
                 .row = head_row(h->head_dim)};
    cuda_launch_rope_put(cuda_stream(b, q), numbers(rotated), qkv.data, &r, &p);
}

static CudaHeadRow cache_row(const Args *a) { /* of attend_cache */
    int dim = a->step->attr.heads.head_dim;
    if (a->attend_cache.in.cache.t->format == FMT_INT8) return head_row(dim);
    return (CudaHeadRow){dim * (int)format_item_bytes(a->attend_cache.in.qkv.t->format), 0};
}

static CudaAttend attend_cache_of(const Args *a) {
    const AttrHeads *h = &a->step->attr.heads;
    Operand cache = a->attend_cache.in.cache, positions = a->attend_cache.in.positions, rows = a->attend_cache.in.rows;
    CudaHeadRow row = cache_row(a);
    bool int8 = cache.t->format == FMT_INT8;
    CudaAttend x = attend_of(h, a->attend_cache.in.qkv, (Operand){0}, (Operand){0});
    x.last = positions.data;
    x.key_row = rows.data;
    x.early = is_input(positions) && is_input(rows);
    x.k = cache.data;
    x.kv_stride = 2 * h->kv_heads * (int8 ? row.bytes : h->head_dim);
    x.keys = (int)h->slots;
    x.o = a->attend_cache.out.o.data;
    if (int8) x.v_offset = h->kv_heads * row.bytes;
    return x;
}

void cuda_attend_cache(Backend *b, Queue q, const Args *a) {
    const AttrHeads *h = &a->step->attr.heads;
    Operand qkv = a->attend_cache.in.qkv, cache = a->attend_cache.in.cache;
    bool int8 = cache.t->format == FMT_INT8;
    if (!same_format(b, a, qkv, int8 ? (Operand){0} : cache) || !same_format(b, a, qkv, a->attend_cache.out.o) ||
        !head_fits(b, a, h->head_dim)) return;
    int64_t tokens = cuda_rows(qkv.t);
    CudaHeadRow row = cache_row(a);
    CudaAttend x = attend_cache_of(a);
    if (h->seq >= DEVICE_CACHE_FEW && !int8) {
        attend_rows(b, q, &x);
        return;
    }
    float *parts = workspace(a, device_cache_bytes(h, x.format, tokens));
    int splits = device_cache_splits(h, x.format, tokens);
    if (tokens_on_cores(b, &x))
        cuda_launch_attend_tokens(cuda_stream(b, q), &x, row, int8, parts, splits,
                                  cuda_backend(b)->major >= CLUSTERS_FROM);
    else if (int8) cuda_launch_attend_cache_int8(cuda_stream(b, q), &x, row, parts, splits);
    else cuda_launch_attend_cache(cuda_stream(b, q), &x, parts, splits);
}

/* ---- both at once: a token a row, which puts its key and value while it attends ---- */

static int64_t bytes_of(Operand x) { return format_bytes(x.t->format, cuda_rows(x.t), cuda_cols(x.t)); }

/* The same tokens of the same heads, over the same cache; and where blocks write, none still reads qkv. */
static bool is_pair(const Args *put, const Args *see) {
    const AttrHeads *h = &put->step->attr.heads, *g = &see->step->attr.heads;
    Operand qkv = put->rope_put.in.qkv, o = see->attend_cache.out.o;
    bool same_rows = see->attend_cache.in.qkv.data == put->rope_put.out.rotated.data &&
                     see->attend_cache.in.cache.data == put->rope_put.out.cache.data &&
                     see->attend_cache.in.positions.data == put->rope_put.in.positions.data &&
                     see->attend_cache.in.rows.data == put->rope_put.in.rows.data;
    bool same_heads = h->heads == g->heads && h->kv_heads == g->kv_heads && h->head_dim == g->head_dim &&
                      h->seq == g->seq && h->slots == g->slots;
    return same_rows && same_heads && !backend_overlap(qkv.data, bytes_of(qkv), o.data, bytes_of(o)) &&
           !backend_overlap(qkv.data, bytes_of(qkv), see->workspace, see->workspace_bytes);
}

/* What the one launch reads early must have been there before the play, and no token may see another's slot of this
 * play. */
int cuda_put_attend_takes(Backend *b, const Args *a, int n) {
    if (n < 2 || a[0].step->op != OP_ROPE_PUT || a[1].step->op != OP_ATTEND_CACHE) return 1;
    const Args *put = &a[0], *see = &a[1];
    if (!put->passes[OP_OUT(rope_put, rotated)] || !put->only_writer[OP_OUT(rope_put, cache)]) return 1;
    Operand qkv = put->rope_put.in.qkv, rows = put->rope_put.in.rows, cache = put->rope_put.out.cache;
    const AttrHeads *h = &put->step->attr.heads;
    Format f = qkv.t->format;
    bool distinct = h->seq == 1 && (h->distinct_cache_rows || !rows.data || cuda_rows(qkv.t) == 1);
    bool before = cache.t->role == ROLE_CACHE && cache.t->home.pool == POOL_DEVICE &&
                  is_input(put->rope_put.in.positions) && is_input(rows);
    bool one_format = cache.t->format == f && see->attend_cache.out.o.t->format == f;
    if (!distinct || !before || !one_format || !is_pair(put, see)) return 1;
    CudaAttend x = attend_cache_of(see);
    x.q = qkv.data;
    return tokens_on_cores(b, &x) ? 2 : 1;
}

void cuda_put_attend(Backend *b, Queue q, const Args *a, int n) {
    const Args *put = &a[0], *see = &a[1];
    const AttrHeads *h = &see->step->attr.heads;
    CudaRope r = put_rope_of(put);
    CudaAttend x = attend_cache_of(see);
    x.q = put->rope_put.in.qkv.data;
    int64_t tokens = cuda_rows(put->rope_put.in.qkv.t);
    float *parts = workspace(see, device_cache_bytes(h, x.format, tokens));
    cuda_launch_put_attend(cuda_stream(b, q), &x, &r, cache_row(see), parts, device_cache_splits(h, x.format, tokens),
                           cuda_backend(b)->major >= CLUSTERS_FROM);
}

/* ---- elementwise ---- */

void cuda_swiglu(Backend *b, Queue q, const Args *a) {
    Operand gate_up = a->swiglu.in.gate_up, h = a->swiglu.out.h;
    if (!same_format(b, a, h, gate_up)) return;
    cuda_launch_swiglu(cuda_stream(b, q), numbers(h), gate_up.data, cuda_rows(h.t), cuda_cols(h.t));
}

void cuda_swiglu_grad(Backend *b, Queue q, const Args *a) {
    Operand dh = a->swiglu_grad.in.dh, gate_up = a->swiglu_grad.in.gate_up, d = a->swiglu_grad.out.d_gate_up;
    if (!same_format(b, a, d, dh) || !same_format(b, a, d, gate_up)) return;
    cuda_launch_swiglu_grad(cuda_stream(b, q), numbers(d), dh.data, gate_up.data, cuda_rows(dh.t), cuda_cols(dh.t));
}

void cuda_add(Backend *b, Queue q, const Args *a) {
    Operand x = a->add.in.a, y = a->add.in.b, sum = a->add.out.sum;
    if (!same_format(b, a, sum, x) || !same_format(b, a, sum, y)) return;
    cuda_launch_add(cuda_stream(b, q), numbers(sum), x.data, y.data, cuda_count(sum.t));
}

/* ---- ids and losses ---- */

/* Rows of a table as numbers: those that ids name, or all of them (ids NULL). */
static void give_rows(Backend *b, Queue q, const Args *a, Operand to, Operand table, const int32_t *ids, int64_t rows) {
    Format f = table.t->format;
    bool quantised = f == FMT_INT8 || f == FMT_NF4;
    if (!is_real(b, a, to) || (!quantised && !is_real(b, a, table))) return;
    CudaRows r = {.table = numbers(table), .ids = ids, .table_rows = cuda_rows(table.t), .rows = rows,
                  .cols = cuda_cols(table.t)};
    r.row_bytes = format_row_bytes(f, r.cols);
    if (quantised) r.scale_at = (int)format_row_scale(f, r.cols), r.blocks_at = (int)format_nf4_blocks(r.cols);
    cuda_launch_rows(cuda_stream(b, q), numbers(to), &r);
}

void cuda_embed(Backend *b, Queue q, const Args *a) {
    Operand ids = a->embed.in.ids;
    give_rows(b, q, a, a->embed.out.x, a->embed.in.table, ids.data, cuda_count(ids.t));
}

void cuda_decode(Backend *b, Queue q, const Args *a) {
    Operand stored = a->decode.in.stored;
    give_rows(b, q, a, a->decode.out.dense, stored, NULL, cuda_rows(stored.t));
}

void cuda_embed_grad(Backend *b, Queue q, const Args *a) {
    Operand dx = a->embed_grad.in.dx, ids = a->embed_grad.in.ids, table = a->embed_grad.out.d_table;
    if (!is_real(b, a, dx) || !is_real(b, a, table)) return;
    CudaEmbedGrad e = {.ids = ids.data, .order = a->embed_grad.in.id_order.data, .tokens = cuda_count(ids.t),
                       .table_rows = cuda_rows(table.t), .cols = cuda_cols(table.t),
                       .beta = a->embed_grad.in.beta.data, .key = cuda_key(a, a->embed_grad.in.clock, -1)};
    cuda_launch_embed_grad(cuda_stream(b, q), numbers(table), numbers(dx), &e);
}

void cuda_sample(Backend *b, Queue q, const Args *a) {
    Operand logits = a->sample.in.logits, ids = a->sample.out.ids;
    CudaSample s = {.logits = logits.data, .slots = a->sample.in.slots.data, .positions = a->sample.in.positions.data,
                    .how = a->sample.in.how.data, .drawn = a->sample.out.drawn.data, .ids = ids.data,
                    .rows = cuda_rows(logits.t), .vocab = (int)cuda_cols(logits.t), .room = (int)cuda_cols(ids.t)};
    if (s.vocab <= CUDA_MOST_VOCAB) cuda_launch_sample(cuda_stream(b, q), &s);
    else cuda_fail(b, "sample: a vocabulary of %d tokens, the GPU's kernel takes up to %d", s.vocab, CUDA_MOST_VOCAB);
}

void cuda_pick(Backend *b, Queue q, const Args *a) {
    Operand ids = a->pick.in.ids, picked = a->pick.out.picked;
    cuda_launch_pick(cuda_stream(b, q), picked.data, ids.data, a->pick.in.slots.data, a->pick.in.positions.data,
                     cuda_count(picked.t), (int)cuda_cols(ids.t));
}

static bool is_number(Backend *b, const Args *a, Operand x) { return x.t->format == FMT_F64 || is_real(b, a, x); }

void cuda_token_score(Backend *b, Queue q, const Args *a) {
    Operand logits = a->token_score.in.logits;
    cuda_launch_token_score(cuda_stream(b, q), a->token_score.out.score.data, logits.data,
                            a->token_score.in.labels.data, cuda_rows(logits.t), cuda_cols(logits.t));
}

static CudaDistance distance_of(Operand x, Operand ref, Operand toward, Operand how) {
    CHECK(toward.t->format == FMT_F32);
    return (CudaDistance){.x = x.data, .ref = ref.data, .toward = toward.data, .how = how.data,
                          .dx = {.format = x.t->format}, .rows = cuda_rows(x.t), .cols = cuda_cols(x.t)};
}

void cuda_row_distance(Backend *b, Queue q, const Args *a) {
    CudaDistance d = distance_of(a->row_distance.in.x, a->row_distance.in.ref, a->row_distance.in.toward,
                                 a->row_distance.in.how);
    if (!is_real(b, a, a->row_distance.in.x)) return;
    d.v = a->row_distance.out.v.data;
    cuda_launch_row_distance(cuda_stream(b, q), &d);
}

void cuda_row_distance_grad(Backend *b, Queue q, const Args *a) {
    CudaDistance d = distance_of(a->row_distance_grad.in.x, a->row_distance_grad.in.ref,
                                 a->row_distance_grad.in.toward, a->row_distance_grad.in.how);
    if (!is_real(b, a, a->row_distance_grad.in.x)) return;
    d.dv = a->row_distance_grad.in.dv.data;
    d.dx = numbers(a->row_distance_grad.out.dx);
    cuda_launch_row_distance(cuda_stream(b, q), &d);
}

void cuda_token_sum(Backend *b, Queue q, const Args *a) {
    Operand v = a->token_sum.in.v, weight = a->token_sum.in.weight, divisor = a->token_sum.in.divisor;
    if (!is_number(b, a, v) || !is_number(b, a, weight) || !is_number(b, a, divisor)) return;
    cuda_launch_token_sum(cuda_stream(b, q), a->token_sum.out.stat.data, numbers(v), numbers(weight), numbers(divisor),
                          a->token_sum.in.beta.data, cuda_count(v.t), a->step->attr.scale.by);
}

void cuda_token_sum_grad(Backend *b, Queue q, const Args *a) {
    Operand weight = a->token_sum_grad.in.weight, divisor = a->token_sum_grad.in.divisor, dv = a->token_sum_grad.out.dv;
    if (!is_real(b, a, dv) || !is_number(b, a, weight) || !is_number(b, a, divisor)) return;
    cuda_launch_token_sum_grad(cuda_stream(b, q), numbers(dv), numbers(weight), numbers(divisor), cuda_count(weight.t),
                               a->step->attr.scale.by);
}

void cuda_policy_loss(Backend *b, Queue q, const Args *a) {
    CudaPolicy p = {.logp = a->policy_loss.in.logp.data, .sampled = a->policy_loss.in.sampled.data,
                    .old = a->policy_loss.in.old.data, .ref = a->policy_loss.in.ref.data,
                    .advantage = a->policy_loss.in.advantage.data, .weight = a->policy_loss.in.weight.data,
                    .divisor = a->policy_loss.in.divisor.data, .beta = a->policy_loss.in.beta.data,
                    .stat = a->policy_loss.out.stat.data, .facts = a->policy_loss.out.facts.data,
                    .n = cuda_count(a->policy_loss.in.logp.t), .attr = a->step->attr.policy};
    cuda_launch_policy_loss(cuda_stream(b, q), &p);
}

void cuda_policy_loss_grad(Backend *b, Queue q, const Args *a) {
    CudaPolicy p = {.logp = a->policy_loss_grad.in.logp.data, .old = a->policy_loss_grad.in.old.data,
                    .ref = a->policy_loss_grad.in.ref.data, .advantage = a->policy_loss_grad.in.advantage.data,
                    .weight = a->policy_loss_grad.in.weight.data, .divisor = a->policy_loss_grad.in.divisor.data,
                    .dlogp = a->policy_loss_grad.out.dlogp.data, .n = cuda_count(a->policy_loss_grad.in.logp.t),
                    .attr = a->step->attr.policy};
    cuda_launch_policy_loss_grad(cuda_stream(b, q), &p);
}

/* ---- updates ---- */

/* Steps that follow each other are gathered into launches; a launch ends where no more fit or where something that
 * it has once differs. One step is a run of one: the same kernel, the same bits. */
void cuda_sum_squares_run(Backend *b, Queue q, const Args *a, int n) {
    CudaSquares u = {0};
    for (int i = 0; i < n; i++) {
        Operand g = a[i].sum_squares.in.g;
        int64_t count = cuda_count(g.t), tiles = device_parts(count, CUDA_SQUARES_TILE);
        Format f = g.t->format;
        if (!is_real(b, &a[i], g)) return;
        if (u.n && (u.n == CUDA_SQUARES_MOST || u.format != f || u.tiles + tiles > INT32_MAX)) {
            cuda_launch_sum_squares(cuda_stream(b, q), &u);
            u.n = u.tiles = 0;
        }
        u.format = f;
        u.t[u.n++] = (CudaSquaresTensor){.g = g.data, .tiles = workspace(&a[i], tiles * 8),
                                         .to = a[i].sum_squares.out.part.data, .count = count, .first_tile = u.tiles};
        u.tiles += (uint32_t)tiles;
    }
    if (u.n) cuda_launch_sum_squares(cuda_stream(b, q), &u);
}

void cuda_sum_squares(Backend *b, Queue q, const Args *a) { cuda_sum_squares_run(b, q, a, 1); }

void cuda_clip(Backend *b, Queue q, const Args *a) {
    Operand parts = a->clip.in.parts, loss = a->clip.in.loss, max_norm = a->clip.in.max_norm;
    CHECK(parts.t->format == FMT_F64 && loss.t->format == FMT_F64 && max_norm.t->format == FMT_F32);
    cuda_launch_clip(cuda_stream(b, q), a->clip.out.verdict.data, parts.data, loss.data, max_norm.data,
                     a->clip.in.unscale.data, a->clip.in.limits.data, cuda_count(parts.t));
}

static bool is_state(Backend *b, const Args *a, Operand x, Format moment) {
    if (!x.t || x.t->format == moment || cuda_is_number(x.t->format)) return true;
    cuda_fail(b, "%s: no update of numbers in %s on the GPU", op_name(a->step->op), format_name(x.t->format));
    return false;
}

static Format format_of(Operand x) { return x.t ? x.t->format : FMT_F32; }

/* What a launch has once: everything of this step but the tensor itself. */
static CudaUpdates update_of(const Args *a, const UpdateOperands *o) {
    const AttrUpdate *k = &a->step->attr.update;
    CudaUpdates u = {.w = o->weight.t->format, .g = o->g.t->format, .m = format_of(o->m), .v = format_of(o->v),
                     .master = format_of(o->master), .aligned = true, .beta1 = k->beta1, .beta2 = k->beta2,
                     .eps = k->eps, .dials = o->dials.data, .verdict = o->verdict.data, .clock = o->clock.data};
    u.draws = (u.w == FMT_BF16 && !o->master.t) || (o->m.t && u.m == FMT_BF16) || (o->v.t && u.v == FMT_BF16);
    return u;
}

static bool goes_with(const CudaUpdates *u, const CudaUpdates *x, const UpdateOperands *o, int64_t tiles) {
    const CudaUpdateTensor *t = &u->t[0];
    return u->n < CUDA_UPDATE_MOST && u->tiles + tiles <= INT32_MAX && u->w == x->w && u->g == x->g &&
           u->m == x->m && u->v == x->v && u->master == x->master && !t->m == !o->m.data &&
           !t->master == !o->master.data && u->draws == x->draws && u->beta1 == x->beta1 && u->beta2 == x->beta2 &&
           u->eps == x->eps && u->dials == x->dials && u->verdict == x->verdict && u->clock == x->clock;
}

static void add_tensor(CudaUpdates *u, const Args *a, const UpdateOperands *o, int64_t tiles) {
    CudaUpdateTensor t = {.w = o->weight.data, .m = o->m.data, .v = o->v.data, .master = o->master.data, .g = o->g.data,
                          .m_scales = scales_of(o->m), .v_scales = scales_of(o->v), .count = cuda_count(o->weight.t),
                          .key = a->step->key, .first_tile = u->tiles, .lr_mult = a->step->attr.update.lr_mult,
                          .weight_decay = a->step->attr.update.weight_decay};
    CHECK_MSG(o->weight_in.data == o->weight.data, "a weight is updated where it stands%s", "");
    u->aligned &= (((uintptr_t)t.w | (uintptr_t)t.m | (uintptr_t)t.v | (uintptr_t)t.master | (uintptr_t)t.g) & 15) == 0;
    u->t[u->n++] = t;
    u->tiles += (uint32_t)tiles;
}

static bool takes_states(Backend *b, const Args *a, const UpdateOperands *o) {
    return is_state(b, a, o->weight, FMT_F32) && is_state(b, a, o->g, FMT_F32) && is_state(b, a, o->master, FMT_F32) &&
           is_state(b, a, o->m, FMT_MOM8) && is_state(b, a, o->v, FMT_VAR8);
}

typedef void LaunchUpdates(cudaStream_t s, const CudaUpdates *u, int processors);
typedef UpdateOperands OperandsOf(const Args *a);

static void update_run(Backend *b, Queue q, const Args *a, int n, OperandsOf *operands_of, LaunchUpdates *launch) {
    CudaUpdates u = {0};
    for (int i = 0; i < n; i++) {
        const Args *x = &a[i];
        UpdateOperands o = operands_of(x);
        if (!takes_states(b, x, &o)) return;
        int64_t tiles = device_parts(cuda_count(o.weight.t), CUDA_UPDATE_TILE);
        CudaUpdates next = update_of(x, &o);
        if (u.n && !goes_with(&u, &next, &o, tiles)) {
            launch(cuda_stream(b, q), &u, cuda_backend(b)->processors);
            u.n = 0;
        }
        if (!u.n) u = next;
        add_tensor(&u, x, &o, tiles);
    }
    if (u.n) launch(cuda_stream(b, q), &u, cuda_backend(b)->processors);
}

void cuda_adamw_run(Backend *b, Queue q, const Args *a, int n) {
    update_run(b, q, a, n, adamw_operands, cuda_launch_adamw);
}

void cuda_sgd_run(Backend *b, Queue q, const Args *a, int n) { update_run(b, q, a, n, sgd_operands, cuda_launch_sgd); }

void cuda_adamw(Backend *b, Queue q, const Args *a) { cuda_adamw_run(b, q, a, 1); }
void cuda_sgd(Backend *b, Queue q, const Args *a) { cuda_sgd_run(b, q, a, 1); }

/* ---- a correction beside the weights ---- */

static CudaCarry carry_of(const Args *a, Operand w, Operand sums) {
    int64_t count = cuda_count(w.t);
    return (CudaCarry){.w = w.data, .format = w.t->format, .count = count, .sums = sums.data,
                       .tiles = workspace(a, device_parts(count, CUDA_CARRY_TILE) * CUDA_CARRY_SUMS * 8),
                       .lr_mult = a->step->attr.update.lr_mult, .weight_decay = a->step->attr.update.weight_decay};
}

void cuda_sgd_carry(Backend *b, Queue q, const Args *a) {
    UpdateOperands o = sgd_carry_operands(a);
    CudaCarry c = carry_of(a, o.weight, a->sgd_carry.out.sums);
    CHECK(o.v.t->format == FMT_F32);
    if (!takes_states(b, a, &o)) return;
    CudaUpdates u = update_of(a, &o);
    u.carry = a->sgd_carry.in.carry.data;
    add_tensor(&u, a, &o, device_parts(c.count, CUDA_UPDATE_TILE));
    u.t[0].tiles = c.tiles;
    u.t[0].last = a->sgd_carry.out.last.data;
    u.aligned &= ((uintptr_t)u.t[0].last & 15) == 0;
    cuda_launch_sgd(cuda_stream(b, q), &u, cuda_backend(b)->processors);
    cuda_launch_carry_join(cuda_stream(b, q), &c, u.verdict);
}

void cuda_carry_apply(Backend *b, Queue q, const Args *a) {
    Operand weight = a->carry_apply.out.weight, last = a->carry_apply.in.last;
    if (!is_real(b, a, weight) || !is_real(b, a, last)) return;
    CudaCarry c = carry_of(a, weight, a->carry_apply.out.sums);
    CHECK(a->carry_apply.in.correction.t->format == FMT_F32 && a->carry_apply.in.weight.data == weight.data);
    c.v = a->carry_apply.in.correction.data;
    c.master = a->carry_apply.out.master.data;
    c.last = last.data;
    c.last_format = last.t->format;
    c.dials = a->carry_apply.in.carry.data;
    cuda_launch_carry_apply(cuda_stream(b, q), &c);
}

/* ---- moves ---- */

void cuda_fill(Backend *b, Queue q, const Args *a) {
    Operand state = a->fill.out.state;
    cuda_launch_fill(cuda_stream(b, q), numbers(state), scales_of(state), cuda_rows(state.t), cuda_cols(state.t),
                     a->step->attr.fill);
}

void cuda_copy(Backend *b, Queue q, const Args *a) {
    Operand dst = a->copy.out.dst;
    b->copy(b, q, dst.data, a->copy.in.src.data, bytes_of(dst));
}
