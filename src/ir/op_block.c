/* op_block.c - what stands between the products of a decoder block: norms, rotary positions, attention, SwiGLU, add.
 *
 * qkv is (N, (H+2G)*D): q heads, then k heads, then v heads of one token. positions, doc_begin: (N) i32.
 *   rmsnorm         in x(N,C) w(C)                             out y(N,C) rstd(N) fp32
 *   add_rmsnorm     in a(N,C) b(N,C) w(C)                      out y(N,C) rstd(N) fp32 sum(N,C)
 *                   rmsnorm of sum = a + b, rounded before it: what plan/fuse makes of two steps
 *   rmsnorm_grad    in dy x w rstd so_far(N,C)? beta? clock    out dx(N,C)? dw(C)?
 *   head_norm       in qkv wq(D) wk(D)                         out qkv' rstd(N,H+G) fp32     v is copied
 *   head_norm_grad  in dy qkv wq wk rstd beta? clock           out dqkv dwq(D)? dwk(D)?
 *   rope            in qkv positions inv_freq(D/2) fp32        out qkv'     halves rotate: (i, i+D/2); scale on cos,
 *                   sin
 *   attend          in qkv doc_begin prefix(N,2)?              out o(N,H*D) lse(N,H) fp32
 *                   token t of a row attends to s in [doc_begin[t], t]; doc_begin counts within the row. With prefix
 *                   (i32) also to s in [prefix[t][0], prefix[t][1]), which ends at doc_begin[t] or before; empty: none
 *   attend_grad     in do(N,H*D) qkv o lse doc_begin prefix?   out dqkv
 *   rope_put        in qkv positions inv_freq rows(N/seq)?     out qkv' cache(R, slots, 2*G, D)
 *                   rope, whose k and v go to slot positions[i] of a cache row (none for a negative position) as the
 *                   activations' format holds them; of qkv' q is rotated, k and v are those of qkv
 *                   int8: each head of a token is a row of that format, with its own scale
 *   attend_cache    in qkv cache positions rows(N/seq)?        out o(N,H*D): token i of row i/seq attends to cache
 *                   slots 0..positions[i] of cache row rows[i/seq]; without rows: i/seq
 *   swiglu          in gate_up(N,2F)                           out h(N,F) = silu(gate) * up
 *   swiglu_grad     in dh(N,F) gate_up(N,2F)                   out dgate_up(N,2F)
 *   add             in a b                                     out a + b */
#include "ir/block_device.h"
#include "ir/op_int.h"

Tid op_rmsnorm(Program *p, Tid x, Tid w, float eps) {
    Tid y = prog_like(p, "normed", x);
    Tid rstd = prog_tensor(p, "rstd", ROLE_ACTIVATION, FMT_F32, 1, DIMS(prog_rows(p, x)));
    prog_emit(p, (Step){.op = OP_RMSNORM, .rmsnorm = {.in = {x, w}, .out = {y, rstd}}, .attr.norm = {eps}});
    return y;
}

static void rmsnorm_grad(Program *p, Step s, Grads *g) {
    Tid x = s.rmsnorm.in.x, w = s.rmsnorm.in.w, dx = NONE, dw = NONE, beta = NONE, so_far = grad_get(g, x);
    if (p->t[w].trainable) dw = grad_of_weight(p, w, &beta);
    if (p->t[x].needs_grad) dx = prog_like(p, "d_x", x);
    prog_emit(p, (Step){.op = OP_RMSNORM_GRAD,
                        .rmsnorm_grad = {.in = {.dy = grad_get(g, s.rmsnorm.out.y), .x = x, .w = w,
                                                .rstd = s.rmsnorm.out.rstd, .so_far = so_far, .beta = beta,
                                                .clock = p->clock},
                                         .out = {.dx = dx, .dw = dw}},
                        .attr = s.attr});
    if (dx) grad_set(g, x, dx);
}

/* Column sums over tokens: partial sums of fixed blocks of rows, then one ordered sum. */
static int64_t norm_part_bytes(const Machine *m, int64_t rows, int64_t cols) {
    enum { ROWS_A_PART = 64 };
    int64_t each = m->kind == MACHINE_CPU ? ROWS_A_PART : DEVICE_NORM_PART;
    return (rows + each - 1) / each * cols * 4;
}

static int64_t rmsnorm_grad_workspace(const Program *p, const Step *s, const Machine *m) {
    if (!s->rmsnorm_grad.out.dw) return 0;
    return norm_part_bytes(m, prog_rows(p, s->rmsnorm_grad.in.dy), prog_cols(p, s->rmsnorm_grad.in.w));
}

static int64_t head_norm_grad_workspace(const Program *p, const Step *s, const Machine *m) { /* of wq, then of wk */
    if (!s->head_norm_grad.out.dwq && !s->head_norm_grad.out.dwk) return 0;
    return 2 * norm_part_bytes(m, prog_rows(p, s->head_norm_grad.in.dy), prog_cols(p, s->head_norm_grad.in.wq));
}

Tid op_head_norm(Program *p, Tid qkv, Tid wq, Tid wk, AttrHeads attr) {
    Tid y = prog_like(p, "qkv_normed", qkv);
    Tid rstd = prog_tensor(p, "qk_rstd", ROLE_ACTIVATION, FMT_F32, 2,
                           DIMS(prog_rows(p, qkv), attr.heads + attr.kv_heads));
    prog_emit(p, (Step){.op = OP_HEAD_NORM, .head_norm = {.in = {qkv, wq, wk}, .out = {y, rstd}}, .attr.heads = attr});
    return y;
}

static void head_norm_grad(Program *p, Step s, Grads *g) {
    Tid qkv = s.head_norm.in.qkv, wq = s.head_norm.in.wq, wk = s.head_norm.in.wk;
    Tid d_qkv = prog_like(p, "d_qkv", qkv), dwq = NONE, dwk = NONE, beta = NONE;
    if (p->t[wq].trainable) {
        dwq = grad_of_weight(p, wq, &beta);
        dwk = grad_of_weight(p, wk, &beta);
    }
    prog_emit(p, (Step){.op = OP_HEAD_NORM_GRAD,
                        .head_norm_grad = {.in = {.dy = grad_get(g, s.head_norm.out.y), .qkv = qkv, .wq = wq, .wk = wk,
                                                  .rstd = s.head_norm.out.rstd, .beta = beta, .clock = p->clock},
                                           .out = {.d_qkv = d_qkv, .dwq = dwq, .dwk = dwk}},
                        .attr = s.attr});
    grad_flow(p, g, qkv, d_qkv);
}

Tid op_rope(Program *p, Tid qkv, Tid positions, Tid inv_freq, AttrHeads attr) {
    Tid rotated = prog_like(p, attr.inverse ? "d_qkv" : "qkv_rotated", qkv);
    prog_emit(p, (Step){.op = OP_ROPE,
                        .rope = {.in = {qkv, positions, inv_freq}, .out = {rotated}},
                        .attr.heads = attr});
    return rotated;
}

static void rope_grad(Program *p, Step s, Grads *g) { /* a rotation's gradient is the rotation back */
    AttrHeads back = s.attr.heads;
    back.inverse = !back.inverse;
    Tid d = op_rope(p, grad_get(g, s.rope.out.rotated), s.rope.in.positions, s.rope.in.inv_freq, back);
    grad_flow(p, g, s.rope.in.qkv, d);
}

static Tid qkv_of(const Step *s) {
    switch ((int)s->op) {
        case OP_HEAD_NORM: return s->head_norm.in.qkv;
        case OP_HEAD_NORM_GRAD: return s->head_norm_grad.in.qkv;
        case OP_ROPE: return s->rope.in.qkv;
        case OP_ROPE_PUT: return s->rope_put.in.qkv;
        case OP_ATTEND: return s->attend.in.qkv;
        case OP_ATTEND_GRAD: return s->attend_grad.in.qkv;
        case OP_ATTEND_CACHE: return s->attend_cache.in.qkv;
        default: CHECK_MSG(false, "%s has no qkv", op_name(s->op));
    }
    return NONE;
}

static const char *heads_shape(const Program *p, const Step *s) {
    const AttrHeads *a = &s->attr.heads;
    Tid qkv = qkv_of(s);
    if (a->heads < 1 || a->kv_heads < 1 || a->heads % a->kv_heads) return "heads is not a multiple of kv_heads";
    if (prog_cols(p, qkv) != (int64_t)(a->heads + 2 * a->kv_heads) * a->head_dim) return "qkv is not (H+2G)*D wide";
    if (a->seq < 1 || prog_rows(p, qkv) % a->seq) return "the tokens are not whole rows of seq";
    return NULL;
}

static const char *attend_shape(const Program *p, const Step *s) {
    Tid prefix = s->op == OP_ATTEND ? s->attend.in.prefix : s->attend_grad.in.prefix;
    if (prefix && (prog_rows(p, prefix) != prog_rows(p, qkv_of(s)) || prog_cols(p, prefix) != 2))
        return "prefix is not (N, 2)";
    return heads_shape(p, s);
}

static const char *cache_shape(const Program *p, const Step *s) {
    bool puts = s->op == OP_ROPE_PUT;
    const AttrHeads *a = &s->attr.heads;
    Tid cache = puts ? s->rope_put.out.cache : s->attend_cache.in.cache;
    Tid rows = puts ? s->rope_put.in.rows : s->attend_cache.in.rows;
    const char *wrong = heads_shape(p, s);
    if (wrong) return wrong;
    int64_t each = a->slots * 2 * a->kv_heads * a->head_dim, n = prog_rows(p, qkv_of(s)) / a->seq;
    if (each < 1 || prog_elements(p, cache) % each) return "the cache is not (R, slots, 2*G, D)";
    if (!format_table[prog_t(p, cache)->format].plain && prog_cols(p, cache) != a->head_dim)
        return "a quantised cache has a head a row";
    if (rows) return prog_elements(p, rows) == n ? NULL : "rows does not name a cache row for every row";
    return prog_elements(p, cache) == n * each ? NULL : "the cache has other rows than qkv";
}

Tid op_attend(Program *p, Tid qkv, Tid doc_begin, Tid prefix, AttrHeads attr) {
    int64_t n = prog_rows(p, qkv);
    Tid o = prog_tensor(p, "attended", ROLE_ACTIVATION, prog_t(p, qkv)->format, 2,
                        DIMS(n, (int64_t)attr.heads * attr.head_dim));
    Tid lse = prog_tensor(p, "attend_lse", ROLE_ACTIVATION, FMT_F32, 2, DIMS(n, attr.heads));
    prog_emit(p, (Step){.op = OP_ATTEND,
                        .attend = {.in = {qkv, doc_begin, prefix}, .out = {o, lse}},
                        .attr.heads = attr});
    return o;
}

static void attend_grad(Program *p, Step s, Grads *g) {
    Tid qkv = s.attend.in.qkv, o = s.attend.out.o, d_qkv = prog_like(p, "d_qkv", qkv);
    prog_emit(p, (Step){.op = OP_ATTEND_GRAD,
                        .attend_grad = {.in = {.d_o = grad_get(g, o), .qkv = qkv, .o = o, .lse = s.attend.out.lse,
                                               .doc_begin = s.attend.in.doc_begin, .prefix = s.attend.in.prefix},
                                        .out = {d_qkv}},
                        .attr = s.attr});
    grad_flow(p, g, qkv, d_qkv);
}

/* Keys that a token of a whole row sees on average: causal, half of T x T; a document's tokens see the prefix too, and
 * no other document. */
static double keys_seen(const AttrHeads *a) {
    double prefix = (double)a->prefix, rest = (double)a->seq - prefix;
    if (!a->document) return (double)(a->seq + 1) / 2;
    return (prefix * (prefix + 1) / 2 + rest * (prefix + (double)(a->document + 1) / 2)) / (double)a->seq;
}

/* backward has five products for two */
static double attend_flops(const Program *p, const Step *s) {
    const AttrHeads *a = &s->attr.heads;
    double tokens = (double)prog_rows(p, qkv_of(s));
    double pairs = tokens * (s->op == OP_ATTEND_CACHE ? (double)a->slots : keys_seen(a));
    return pairs * a->heads * a->head_dim * (s->op == OP_ATTEND_GRAD ? 10 : 4);
}

static OpSize attend_size(const Program *p, const Step *s) { /* of a row whose tokens see as many keys */
    const AttrHeads *a = &s->attr.heads;
    return (OpSize){a->document ? 2 * keys_seen(a) - 1 : (double)a->seq, a->head_dim};
}

/* A token that attends puts its own key, but for a cache in int8. */
static bool attend_joins_put(const Program *p, const Step *before, const Step *s) {
    Tid qkv = s->attend_cache.in.qkv, cache = s->attend_cache.in.cache;
    return before->op == OP_ROPE_PUT && s->attr.heads.seq == 1 && p->t[cache].format == p->t[qkv].format;
}

/* Scores exist tile by tile in fp32, per worker (tokens x heads of one KV head, stacked: backend/cpu/attend.h);
 * backward keeps k, v and the fp32 sums of dk, dv of one row and KV head beside them. */
static int64_t attend_workspace(const Program *p, const Step *s, const Machine *m) {
    enum { TILE = 64, HEADS = 4 };
    const AttrHeads *a = &s->attr.heads;
    if (m->kind != MACHINE_CPU) { /* ir/block_device.h */
        Format f = prog_t(p, qkv_of(s))->format;
        int64_t tokens = prog_rows(p, qkv_of(s));
        bool library = s->op != OP_ATTEND_CACHE && device_attend_by_library(a, f);
        if (s->op == OP_ATTEND_GRAD)
            return MAX2(device_attend_grad(a, f, tokens, s->attend_grad.in.prefix != NONE).bytes,
                        library ? device_library_attend_grad(a, tokens).bytes : 0);
        return s->op == OP_ATTEND_CACHE ? device_cache_bytes(a, f, tokens) : library ? DEVICE_LIBRARY_SLACK : 0;
    }
    int64_t dim = a->head_dim, group = a->heads / a->kv_heads, bunches = (group + HEADS - 1) / HEADS;
    int64_t rows = MIN2(a->seq, TILE) * ((group + bunches - 1) / bunches);
    int64_t forward = rows * (2 * dim + TILE + 3) + 2 * TILE * dim;
    int64_t backward = rows * (3 * dim + 2 * TILE + 2) + 4 * a->seq * dim;
    return ((s->op == OP_ATTEND_GRAD ? backward : forward) * 4 + 255) / 256 * 256 * m->threads;
}

Tid op_rope_put(Program *p, Tid cache, Tid qkv, Tid positions, Tid inv_freq, Tid rows, AttrHeads attr) {
    Tid rotated = prog_like(p, "q_rotated", qkv);
    prog_emit(p, (Step){.op = OP_ROPE_PUT,
                        .rope_put = {.in = {qkv, positions, inv_freq, rows}, .out = {rotated, cache}},
                        .attr.heads = attr});
    return rotated;
}

Tid op_attend_cache(Program *p, Tid qkv, Tid cache, Tid positions, Tid rows, AttrHeads attr) {
    Tid o = prog_tensor(p, "attended", ROLE_ACTIVATION, prog_t(p, qkv)->format, 2,
                        DIMS(prog_rows(p, qkv), (int64_t)attr.heads * attr.head_dim));
    prog_emit(p, (Step){.op = OP_ATTEND_CACHE,
                        .attend_cache = {.in = {qkv, cache, positions, rows}, .out = {o}},
                        .attr.heads = attr});
    return o;
}

Tid op_swiglu(Program *p, Tid gate_up) {
    Tid h = prog_tensor(p, "swiglu", ROLE_ACTIVATION, prog_t(p, gate_up)->format, 2,
                        DIMS(prog_rows(p, gate_up), prog_cols(p, gate_up) / 2));
    prog_emit(p, (Step){.op = OP_SWIGLU, .swiglu = {.in = {gate_up}, .out = {h}}});
    return h;
}

static void swiglu_grad(Program *p, Step s, Grads *g) {
    Tid gate_up = s.swiglu.in.gate_up, d = prog_like(p, "d_gate_up", gate_up);
    prog_emit(p, (Step){.op = OP_SWIGLU_GRAD,
                        .swiglu_grad = {.in = {.dh = grad_get(g, s.swiglu.out.h), .gate_up = gate_up}, .out = {d}}});
    grad_flow(p, g, gate_up, d);
}

Tid op_add(Program *p, const char *name, Tid a, Tid b) {
    Tid c = prog_like(p, name, a);
    prog_emit(p, (Step){.op = OP_ADD, .add = {.in = {a, b}, .out = {c}}});
    return c;
}

static const char *add_shape(const Program *p, const Step *s) {
    Tid sum = s->add.out.sum;
    return same_shape(p, s->add.in.a, sum) && same_shape(p, s->add.in.b, sum) ? NULL : "shapes differ";
}

static const char *add_rmsnorm_shape(const Program *p, const Step *s) {
    Tid sum = s->add_rmsnorm.out.sum;
    return same_shape(p, s->add_rmsnorm.in.a, sum) && same_shape(p, s->add_rmsnorm.in.b, sum) ? NULL : "shapes differ";
}

static void add_grad(Program *p, Step s, Grads *g) { /* the same tensor flows both ways: nothing is copied */
    Tid dy = grad_get(g, s.add.out.sum);
    grad_flow(p, g, s.add.in.a, dy);
    grad_flow(p, g, s.add.in.b, dy);
}

Tid op_stop_gradient(Program *p, Tid x) {
    CHECK_MSG(p->t[x].base == NONE, "stop_gradient of a view");
    Tid v = prog_view(p, "stopped", x, 0, p->t[x].dim[0]);
    p->t[v].needs_grad = false;
    return v;
}

/* byte_share: norms of heads walk their rows more than once, sums over tokens are joined by a second kernel; as
 * --profile of `snug train` shows it on an H200. */
const OpRow op_row_rmsnorm = {.grad = rmsnorm_grad, .flags = OPF_CHEAP, .byte_share = 0.9};
const OpRow op_row_add_rmsnorm = {.shape = add_rmsnorm_shape, .share = SHARE_MAY,
    .share_out = OP_OUT(add_rmsnorm, sum), .share_in = OP_IN(add_rmsnorm, b), .byte_share = 0.9};
const OpRow op_row_rmsnorm_grad = {.workspace = rmsnorm_grad_workspace, .share = SHARE_MAY,
    .share_out = OP_OUT(rmsnorm_grad, dx), .share_in = OP_IN(rmsnorm_grad, so_far), .flags = OPF_WRITES_STATE,
    .byte_share = 0.8};
const OpRow op_row_head_norm = {.shape = heads_shape, .grad = head_norm_grad, .flags = OPF_CHEAP,
    .byte_share = 0.6};
const OpRow op_row_head_norm_grad = {.shape = heads_shape, .workspace = head_norm_grad_workspace,
    .flags = OPF_WRITES_STATE, .byte_share = 0.45};
const OpRow op_row_rope = {.shape = heads_shape, .grad = rope_grad, .share = SHARE_MAY,
    .share_out = OP_OUT(rope, rotated), .share_in = OP_IN(rope, qkv)};
const OpRow op_row_attend = {.shape = attend_shape, .grad = attend_grad, .flops = attend_flops,
    .workspace = attend_workspace, .flags = OPF_MIXES_TOKENS, .grid = GRID_ATTENTION, .table = ATTEND_FORWARD,
    .size = attend_size};
const OpRow op_row_attend_grad = {.shape = attend_shape, .flops = attend_flops, .workspace = attend_workspace,
    .flags = OPF_MIXES_TOKENS, .grid = GRID_ATTENTION, .table = ATTEND_BACKWARD, .size = attend_size};
const OpRow op_row_rope_put = {.shape = cache_shape, .share = SHARE_MAY, .share_out = OP_OUT(rope_put, rotated),
    .share_in = OP_IN(rope_put, qkv), .flags = OPF_WRITES_STATE};
const OpRow op_row_attend_cache = {.shape = cache_shape, .flops = attend_flops, .workspace = attend_workspace,
    .flags = OPF_MIXES_TOKENS, .joins = attend_joins_put};
const OpRow op_row_swiglu = {.grad = swiglu_grad, .flags = OPF_CHEAP | OPF_ROWWISE};
const OpRow op_row_swiglu_grad = {.share = SHARE_MAY, .share_out = OP_OUT(swiglu_grad, d_gate_up),
    .share_in = OP_IN(swiglu_grad, gate_up), .flags = OPF_ROWWISE};
const OpRow op_row_add = {.shape = add_shape, .grad = add_grad, .share = SHARE_MAY, .share_out = OP_OUT(add, sum),
    .share_in = OP_IN(add, a)};
