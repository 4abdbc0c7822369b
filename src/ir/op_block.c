/* op_block.c - what stands between the products of a decoder block: norms, rotary positions, attention, SwiGLU, add.
 *
 * qkv is (N, (H+2G)*D): q heads, then k heads, then v heads of one token. positions, doc_begin: (N) i32.
 *   rmsnorm         in x(N,C) w(C)                             out y(N,C) rstd(N) fp32
 *   add_rmsnorm     in a(N,C) b(N,C) w(C)                      out y(N,C) rstd(N) fp32 x(N,C)     rmsnorm of x = a + b,
 *                   rounded before it: what plan/fuse makes of two steps; ADD_RMSNORM_* are its places
 *   rmsnorm_grad    in dy x w rstd so_far(N,C)? beta? clock    out dx(N,C)? dw(C)?
 *   head_norm       in qkv wq(D) wk(D)                         out qkv' rstd(N,H+G) fp32     v is copied
 *   head_norm_grad  in dy qkv wq wk rstd beta? clock           out dqkv dwq(D)? dwk(D)?
 *   rope            in qkv positions inv_freq(D/2) fp32        out qkv'     halves rotate: (i, i+D/2); scale on cos, sin
 *   attend          in qkv doc_begin                           out o(N,H*D) lse(N,H) fp32
 *                   token t of a row attends to s in [doc_begin[t], t]; doc_begin counts within the row
 *   attend_grad     in do(N,H*D) qkv o lse doc_begin           out dqkv
 *   rope_put        in qkv positions inv_freq rows(N/seq)?     out qkv' cache(R, slots, 2*G, D)
 *                   rope, whose k and v go to slot positions[i] of a cache row (none for a negative position) as the
 *                   activations' format holds them; of qkv' q is turned, k and v are those of qkv
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
    prog_emit(p, (Step){.op = OP_RMSNORM, .in = {x, w}, .out = {y, rstd}, .attr.norm = {eps}});
    return y;
}

static void rmsnorm_grad(Program *p, Step s, Grads *g) {
    Tid x = s.in[0], w = s.in[1], dx = NONE, dw = NONE, beta = NONE, so_far = grad_get(g, x);
    if (p->t[w].trainable) dw = grad_of_weight(p, w, &beta);
    if (p->t[x].needs_grad) dx = prog_like(p, "d_x", x);
    prog_emit(p, (Step){.op = OP_RMSNORM_GRAD, .in = {grad_get(g, s.out[0]), x, w, s.out[1], so_far, beta, p->clock},
                        .out = {dx, dw}, .attr = s.attr});
    if (dx) grad_set(g, x, dx);
}

/* Column sums over tokens: partial sums of fixed blocks of rows, then one ordered sum. */
static int64_t norm_workspace(const Program *p, const Step *s, const Machine *m) {
    enum { ROWS_A_PART = 64 };
    if (!s->out[1] && !s->out[2]) return 0;
    int64_t each = m->kind == MACHINE_CPU ? ROWS_A_PART : DEVICE_NORM_PART;
    int64_t parts = (prog_rows(p, s->in[0]) + each - 1) / each;
    return parts * prog_cols(p, s->in[2]) * 4 * (s->op == OP_HEAD_NORM_GRAD ? 2 : 1);
}

Tid op_head_norm(Program *p, Tid qkv, Tid wq, Tid wk, AttrHeads attr) {
    Tid y = prog_like(p, "qkv_normed", qkv);
    Tid rstd = prog_tensor(p, "qk_rstd", ROLE_ACTIVATION, FMT_F32, 2, DIMS(prog_rows(p, qkv), attr.heads + attr.kv_heads));
    prog_emit(p, (Step){.op = OP_HEAD_NORM, .in = {qkv, wq, wk}, .out = {y, rstd}, .attr.heads = attr});
    return y;
}

static void head_norm_grad(Program *p, Step s, Grads *g) {
    Tid qkv = s.in[0], dx = prog_like(p, "d_qkv", qkv), dwq = NONE, dwk = NONE, beta = NONE;
    if (p->t[s.in[1]].trainable) {
        dwq = grad_of_weight(p, s.in[1], &beta);
        dwk = grad_of_weight(p, s.in[2], &beta);
    }
    prog_emit(p, (Step){.op = OP_HEAD_NORM_GRAD,
                        .in = {grad_get(g, s.out[0]), qkv, s.in[1], s.in[2], s.out[1], beta, p->clock},
                        .out = {dx, dwq, dwk}, .attr = s.attr});
    grad_flow(p, g, qkv, dx);
}

Tid op_rope(Program *p, Tid qkv, Tid positions, Tid inv_freq, AttrHeads attr) {
    Tid y = prog_like(p, attr.inverse ? "d_qkv" : "qkv_turned", qkv);
    prog_emit(p, (Step){.op = OP_ROPE, .in = {qkv, positions, inv_freq}, .out = {y}, .attr.heads = attr});
    return y;
}

static void rope_grad(Program *p, Step s, Grads *g) { /* a rotation's gradient is the rotation back */
    AttrHeads back = s.attr.heads;
    back.inverse = !back.inverse;
    grad_flow(p, g, s.in[0], op_rope(p, grad_get(g, s.out[0]), s.in[1], s.in[2], back));
}

static const char *heads_shape(const Program *p, const Step *s) {
    const AttrHeads *a = &s->attr.heads;
    Tid qkv = s->op == OP_ATTEND_GRAD || s->op == OP_HEAD_NORM_GRAD ? s->in[1] : s->in[0];
    if (a->heads < 1 || a->kv_heads < 1 || a->heads % a->kv_heads) return "heads is not a multiple of kv_heads";
    if (prog_cols(p, qkv) != (int64_t)(a->heads + 2 * a->kv_heads) * a->head_dim) return "qkv is not (H+2G)*D wide";
    if (a->seq < 1 || prog_rows(p, qkv) % a->seq) return "the tokens are not whole rows of seq";
    return NULL;
}

static const char *cache_shape(const Program *p, const Step *s) {
    bool puts = s->op == OP_ROPE_PUT;
    const AttrHeads *a = &s->attr.heads;
    Tid cache = puts ? s->out[1] : s->in[1], rows = s->in[3];
    const char *wrong = heads_shape(p, s);
    if (wrong) return wrong;
    int64_t each = a->slots * 2 * a->kv_heads * a->head_dim, n = prog_rows(p, s->in[0]) / a->seq;
    if (each < 1 || prog_elements(p, cache) % each) return "the cache is not (R, slots, 2*G, D)";
    if (!format_table[prog_t(p, cache)->format].plain && prog_cols(p, cache) != a->head_dim)
        return "a quantised cache has a head a row";
    if (rows) return prog_elements(p, rows) == n ? NULL : "rows does not name a cache row for every row";
    return prog_elements(p, cache) == n * each ? NULL : "the cache has other rows than qkv";
}

Tid op_attend(Program *p, Tid qkv, Tid doc_begin, AttrHeads attr) {
    int64_t n = prog_rows(p, qkv);
    Tid o = prog_tensor(p, "attended", ROLE_ACTIVATION, prog_t(p, qkv)->format, 2,
                        DIMS(n, (int64_t)attr.heads * attr.head_dim));
    Tid lse = prog_tensor(p, "attend_lse", ROLE_ACTIVATION, FMT_F32, 2, DIMS(n, attr.heads));
    prog_emit(p, (Step){.op = OP_ATTEND, .in = {qkv, doc_begin}, .out = {o, lse}, .attr.heads = attr});
    return o;
}

static void attend_grad(Program *p, Step s, Grads *g) {
    Tid dqkv = prog_like(p, "d_qkv", s.in[0]);
    prog_emit(p, (Step){.op = OP_ATTEND_GRAD, .in = {grad_get(g, s.out[0]), s.in[0], s.out[0], s.out[1], s.in[1]},
                        .out = {dqkv}, .attr = s.attr});
    grad_flow(p, g, s.in[0], dqkv);
}

static double attend_flops(const Program *p, const Step *s) { /* causal: half of T x T; backward has five products for two */
    const AttrHeads *a = &s->attr.heads;
    double tokens = (double)prog_rows(p, s->op == OP_ATTEND_GRAD ? s->in[1] : s->in[0]);
    double pairs = tokens * (s->op == OP_ATTEND_CACHE ? (double)a->slots : (double)(a->seq + 1) / 2);
    return pairs * a->heads * a->head_dim * (s->op == OP_ATTEND_GRAD ? 10 : 4);
}

/* Scores exist tile by tile in fp32, per worker (tokens x heads of one KV head, stacked: backend/cpu/attend.h);
 * backward keeps k, v and the fp32 sums of dk, dv of one row and KV head beside them. */
static int64_t attend_workspace(const Program *p, const Step *s, const Machine *m) {
    enum { TILE = 64, HEADS = 4 };
    const AttrHeads *a = &s->attr.heads;
    if (m->kind != MACHINE_CPU) { /* ir/block_device.h */
        Tid qkv = s->op == OP_ATTEND_GRAD ? s->in[1] : s->in[0];
        Format f = prog_t(p, qkv)->format;
        int64_t tokens = prog_rows(p, qkv);
        bool library = s->op != OP_ATTEND_CACHE && device_attend_by_library(a, f);
        if (s->op == OP_ATTEND_GRAD)
            return MAX2(device_attend_grad(a, f, tokens).bytes, library ? device_library_attend_grad(a, tokens).bytes : 0);
        return s->op == OP_ATTEND_CACHE ? device_cache_bytes(a, f, tokens) : library ? DEVICE_LIBRARY_SLACK : 0;
    }
    int64_t dim = a->head_dim, group = a->heads / a->kv_heads, bunches = (group + HEADS - 1) / HEADS;
    int64_t rows = MIN2(a->seq, TILE) * ((group + bunches - 1) / bunches);
    int64_t forward = rows * (2 * dim + TILE + 3) + 2 * TILE * dim;
    int64_t backward = rows * (3 * dim + 2 * TILE + 2) + 4 * a->seq * dim;
    return ((s->op == OP_ATTEND_GRAD ? backward : forward) * 4 + 255) / 256 * 256 * m->threads;
}

Tid op_rope_put(Program *p, Tid cache, Tid qkv, Tid positions, Tid inv_freq, Tid rows, AttrHeads attr) {
    Tid y = prog_like(p, "q_turned", qkv);
    prog_emit(p, (Step){.op = OP_ROPE_PUT, .in = {qkv, positions, inv_freq, rows}, .out = {y, cache}, .attr.heads = attr});
    return y;
}

Tid op_attend_cache(Program *p, Tid qkv, Tid cache, Tid positions, Tid rows, AttrHeads attr) {
    Tid o = prog_tensor(p, "attended", ROLE_ACTIVATION, prog_t(p, qkv)->format, 2,
                        DIMS(prog_rows(p, qkv), (int64_t)attr.heads * attr.head_dim));
    prog_emit(p, (Step){.op = OP_ATTEND_CACHE, .in = {qkv, cache, positions, rows}, .out = {o}, .attr.heads = attr});
    return o;
}

Tid op_swiglu(Program *p, Tid gate_up) {
    Tid h = prog_tensor(p, "swiglu", ROLE_ACTIVATION, prog_t(p, gate_up)->format, 2,
                        DIMS(prog_rows(p, gate_up), prog_cols(p, gate_up) / 2));
    prog_emit(p, (Step){.op = OP_SWIGLU, .in = {gate_up}, .out = {h}});
    return h;
}

static void swiglu_grad(Program *p, Step s, Grads *g) {
    Tid d = prog_like(p, "d_gate_up", s.in[0]);
    prog_emit(p, (Step){.op = OP_SWIGLU_GRAD, .in = {grad_get(g, s.out[0]), s.in[0]}, .out = {d}});
    grad_flow(p, g, s.in[0], d);
}

Tid op_add(Program *p, const char *name, Tid a, Tid b) {
    Tid c = prog_like(p, name, a);
    prog_emit(p, (Step){.op = OP_ADD, .in = {a, b}, .out = {c}});
    return c;
}

static const char *add_shape(const Program *p, const Step *s) {
    return same_shape(p, s->in[0], s->in[1]) && same_shape(p, s->in[0], s->out[0]) ? NULL : "shapes differ";
}

static const char *add_rmsnorm_shape(const Program *p, const Step *s) {
    Tid sum = s->out[ADD_RMSNORM_SUM];
    return same_shape(p, s->in[ADD_RMSNORM_A], sum) && same_shape(p, s->in[ADD_RMSNORM_B], sum) ? NULL : "shapes differ";
}

static void add_grad(Program *p, Step s, Grads *g) { /* the same tensor flows both ways: nothing is copied */
    Tid dy = grad_get(g, s.out[0]);
    grad_flow(p, g, s.in[0], dy);
    grad_flow(p, g, s.in[1], dy);
}

Tid op_stop_gradient(Program *p, Tid x) {
    CHECK_MSG(p->t[x].base == NONE, "stop_gradient of a view");
    Tid v = prog_view(p, "stopped", x, 0, p->t[x].dim[0]);
    p->t[v].needs_grad = false;
    return v;
}

const OpRow op_row_rmsnorm = {.name = "rmsnorm", .n_in = 2, .n_out = 2, .grad = rmsnorm_grad};
const OpRow op_row_add_rmsnorm = {.name = "add_rmsnorm", .n_in = 3, .n_out = 3, .shape = add_rmsnorm_shape,
    .share = SHARE_MAY, .share_out = ADD_RMSNORM_SUM, .share_in = ADD_RMSNORM_B};
const OpRow op_row_rmsnorm_grad = {.name = "rmsnorm_grad", .n_in = 7, .n_out = 2,
    .optional_in = 1u << 4 | 1u << 5 | 1u << 6, .optional_out = 1u << 0 | 1u << 1, .workspace = norm_workspace,
    .share = SHARE_MAY, .share_out = 0, .share_in = 4, .flags = OPF_WRITES_STATE};
const OpRow op_row_head_norm = {.name = "head_norm", .n_in = 3, .n_out = 2, .shape = heads_shape, .grad = head_norm_grad};
const OpRow op_row_head_norm_grad = {.name = "head_norm_grad", .n_in = 7, .n_out = 3, .optional_in = 1u << 5 | 1u << 6,
    .optional_out = 1u << 1 | 1u << 2, .shape = heads_shape, .workspace = norm_workspace, .flags = OPF_WRITES_STATE};
const OpRow op_row_rope = {.name = "rope", .n_in = 3, .n_out = 1, .shape = heads_shape, .grad = rope_grad,
    .share = SHARE_MAY, .share_out = 0, .share_in = 0};
const OpRow op_row_attend = {.name = "attend", .n_in = 2, .n_out = 2, .shape = heads_shape, .grad = attend_grad,
    .flops = attend_flops, .workspace = attend_workspace};
const OpRow op_row_attend_grad = {.name = "attend_grad", .n_in = 5, .n_out = 1, .shape = heads_shape,
    .flops = attend_flops, .workspace = attend_workspace};
const OpRow op_row_rope_put = {.name = "rope_put", .n_in = 4, .n_out = 2, .optional_in = 1u << 3, .shape = cache_shape,
    .share = SHARE_MAY, .share_out = 0, .share_in = 0, .flags = OPF_WRITES_STATE};
const OpRow op_row_attend_cache = {.name = "attend_cache", .n_in = 4, .n_out = 1, .optional_in = 1u << 3, .shape = cache_shape,
    .flops = attend_flops, .workspace = attend_workspace};
const OpRow op_row_swiglu = {.name = "swiglu", .n_in = 1, .n_out = 1, .grad = swiglu_grad};
const OpRow op_row_swiglu_grad = {.name = "swiglu_grad", .n_in = 2, .n_out = 1, .share = SHARE_MAY, .share_out = 0,
    .share_in = 1};
const OpRow op_row_add = {.name = "add", .n_in = 2, .n_out = 1, .shape = add_shape, .grad = add_grad,
    .share = SHARE_MAY, .share_out = 0, .share_in = 0};
