/* op_token.c - the ends of a decoder: ids become rows, rows become log-probabilities, those become a loss.
 *
 *   embed           in table(V,C) ids(N) id_order(N)?          out x(N,C)
 *   embed_grad      in dx(N,C) ids(N) id_order(N) beta? clock  out dtable(V,C) = beta*dtable + rows summed by id
 *                   id_order: the token indexes sorted by (id, index), so that sums have one order
 *                   the table may be int8 or nf4
 *   head_logits     in x(N,C) w(V,C)                           out logits(N,V) fp32; w may be int8, or nf4 for
 *                   N <= LINEAR_DIRECT_MOST
 *   head_logp       in x(N,C) w(V,C) labels(N)                 out logp(N) lse(N) entropy(N)?   fp32; w may be int8 here
 *                   and, where there is no dw, in the next two
 *                   logits exist `chunk` rows at a time, in the step's scratch; label < 0: logp 0 (lse is still right)
 *   head_logp_grad  in x w labels lse dlogp(N) beta? clock     out dx(N,C)? dw(V,C)?
 *                   dlogits = dlogp * (onehot(label) - softmax); dw = beta*dw + dlogits^T x, HEAD_TILE rows at a time
 *                   (on a GPU a chunk at a time; fresh: the first is then rounded to nearest)
 *   head_sweep      in x w labels dlogp(N) beta? clock         out logp(N) lse(N) dx(N,C)? dw(V,C)?
 *                   both in one pass over the chunks, the gradient written over the logits (made by plan/sweep)
 *   token_sum       in v(N) weight(N) divisor(1) beta?         out stat(1) fp64 = beta*stat + scale*sum(v*weight)/divisor
 *   token_sum_grad  in weight(N) divisor(1)                    out dv(N) = scale*weight/divisor */
#include "ir/op_int.h"
#include "ir/product.h"
#include "ir/product_device.h"

Tid op_embed(Program *p, Tid table, Tid ids, Tid id_order, Format activations) {
    Tid x = prog_tensor(p, "embedded", ROLE_ACTIVATION, activations, 2, DIMS(prog_elements(p, ids), prog_cols(p, table)));
    prog_emit(p, (Step){.op = OP_EMBED, .in = {table, ids, id_order}, .out = {x}});
    return x;
}

static void embed_grad(Program *p, Step s, Grads *g) {
    if (!p->t[s.in[0]].trainable) return;
    CHECK_MSG(s.in[2], "a trained embedding needs id_order");
    Tid beta, dtable = grad_of_weight(p, s.in[0], &beta);
    prog_emit(p, (Step){.op = OP_EMBED_GRAD, .in = {grad_get(g, s.out[0]), s.in[1], s.in[2], beta, p->clock},
                        .out = {dtable}});
}

Tid op_head_logits(Program *p, Tid x, Tid w) {
    Tid y = prog_tensor(p, "logits", ROLE_ACTIVATION, FMT_F32, 2, DIMS(prog_rows(p, x), prog_rows(p, w)));
    prog_emit(p, (Step){.op = OP_HEAD_LOGITS, .in = {x, w}, .out = {y}});
    return y;
}

Tid op_head_logp(Program *p, Tid x, Tid w, Tid labels, AttrHead attr) {
    int64_t n = prog_rows(p, x);
    Tid logp = prog_tensor(p, "logp", ROLE_ACTIVATION, FMT_F32, 1, DIMS(n));
    Tid lse = prog_tensor(p, "lse", ROLE_ACTIVATION, FMT_F32, 1, DIMS(n));
    prog_emit(p, (Step){.op = OP_HEAD_LOGP, .in = {x, w, labels}, .out = {logp, lse}, .attr.head = attr});
    return logp;
}

static const char *head_shape(const Program *p, const Step *s) {
    int64_t chunk = s->attr.head.chunk, n = prog_rows(p, s->in[0]);
    if (prog_cols(p, s->in[0]) != prog_cols(p, s->in[1])) return "x and w differ in their inner width";
    if (chunk < n && (chunk <= 0 || chunk % HEAD_TILE)) return "the chunk is not a multiple of HEAD_TILE rows";
    return NULL;
}

static void head_logp_grad(Program *p, Step s, Grads *g) {
    Tid x = s.in[0], w = s.in[1], beta = NONE, dw = NONE, dx = NONE, dlogp = grad_get(g, s.out[0]);
    CHECK_MSG(dlogp, "only the log-probability of a head has a gradient");
    if (p->t[w].trainable) dw = grad_of_weight(p, w, &beta);
    if (p->t[x].needs_grad) dx = prog_like(p, "d_hidden", x);
    prog_emit(p, (Step){.op = OP_HEAD_LOGP_GRAD, .in = {x, w, s.in[2], s.out[1], dlogp, beta, p->clock},
                        .out = {dx, dw}, .attr = s.attr});
    if (dx) grad_flow(p, g, x, dx);
}

static double head_flops(const Program *p, const Step *s) {
    double one = product_flops(prog_rows(p, s->in[0]), prog_rows(p, s->in[1]), prog_cols(p, s->in[1]));
    if (s->op == OP_HEAD_LOGP_GRAD) return one * (1 + (s->out[0] != NONE) + (s->out[1] != NONE));
    if (s->op == OP_HEAD_SWEEP) return one * (1 + (s->out[2] != NONE) + (s->out[3] != NONE));
    return one;
}

/* On a GPU: the logits of a chunk in the format of x, and what its products need (ir/product_device.h). */
static int64_t head_device_workspace(const Program *p, const Step *s) {
    Tid x = s->in[0], w = s->in[1], dw = s->op == OP_HEAD_LOGP ? NONE : s->out[s->op == OP_HEAD_SWEEP ? 3 : 1];
    int64_t rows = MIN2(s->attr.head.chunk, prog_rows(p, x)), vocabulary = prog_rows(p, w), width = prog_cols(p, x);
    Format format = prog_t(p, x)->format;
    int64_t bytes = device_round(rows * device_logits_ld(vocabulary) * format_item_bytes(format));
    int64_t cast = device_cast_bytes(vocabulary, width, prog_t(p, w)->format, format);
    bool direct = op_is_fresh(s) && rows == prog_rows(p, x); /* one chunk, written as it is kept */
    int64_t stage = dw && !direct ? device_stage_bytes(vocabulary, width, prog_t(p, dw)->format) : 0;
    return bytes + MAX2(cast, stage) + device_library_bytes(rows, vocabulary);
}

/* The logits of a chunk, and on the CPU the stages of the largest product (ir/product.h). */
static int64_t head_workspace(const Program *p, const Step *s, const Machine *m) {
    Tid x = s->in[0], w = s->in[1];
    int64_t rows = MIN2(s->attr.head.chunk, prog_rows(p, x)), vocabulary = prog_rows(p, w), width = prog_cols(p, x);
    if (m->kind != MACHINE_CPU) return head_device_workspace(p, s);
    bool x_staged = prog_t(p, x)->format != FMT_F32, w_staged = prog_t(p, w)->format != FMT_F32;
    int first = s->op == OP_HEAD_SWEEP ? 2 : 0; /* places of dx and dw */
    Tid dx = s->op == OP_HEAD_LOGP ? NONE : s->out[first], dw = s->op == OP_HEAD_LOGP ? NONE : s->out[first + 1];
    int64_t stage = product_bytes(product_head_cut(vocabulary, width), (ProductStage){x_staged, w_staged, false});
    if (dx) {
        ProductStage dx_stage = {false, w_staged, prog_t(p, dx)->format != FMT_F32};
        stage = MAX2(stage, product_bytes(product_head_dx_cut(vocabulary, width), dx_stage));
    }
    if (dw) {
        ProductStage dw_stage = {false, x_staged, prog_t(p, dw)->format != FMT_F32};
        stage = MAX2(stage, product_bytes(product_head_dw_cut(vocabulary, width), dw_stage));
    }
    return units_round_up(rows * vocabulary * 4, 256) + stage * m->threads;
}

Tid op_token_sum(Program *p, Tid stat, Tid v, Tid weight, Tid divisor, float scale) {
    prog_emit(p, (Step){.op = OP_TOKEN_SUM, .in = {v, weight, divisor, p->beta}, .out = {stat}, .attr.scale = {scale}});
    return stat;
}

static void token_sum_grad(Program *p, Step s, Grads *g) {
    Tid dv = prog_like(p, "d_logp", s.in[0]);
    CHECK_MSG(grad_get(g, s.out[0]) == s.out[0], "a token sum is a root: its gradient is 1");
    prog_emit(p, (Step){.op = OP_TOKEN_SUM_GRAD, .in = {s.in[1], s.in[2]}, .out = {dv}, .attr = s.attr});
    grad_flow(p, g, s.in[0], dv);
}

const OpRow op_row_embed = {.name = "embed", .n_in = 3, .n_out = 1, .optional_in = 1u << 2, .grad = embed_grad};
const OpRow op_row_embed_grad = {.name = "embed_grad", .n_in = 5, .n_out = 1, .optional_in = 1u << 3 | 1u << 4,
    .flags = OPF_WRITES_STATE};
const OpRow op_row_head_logits = {.name = "head_logits", .n_in = 2, .n_out = 1, .flops = head_flops,
    .workspace = op_product_workspace};
const OpRow op_row_head_logp = {.name = "head_logp", .n_in = 3, .n_out = 3, .optional_out = 1u << 2, .shape = head_shape,
    .grad = head_logp_grad, .flops = head_flops, .workspace = head_workspace};
const OpRow op_row_head_logp_grad = {.name = "head_logp_grad", .n_in = 7, .n_out = 2, .optional_in = 1u << 5 | 1u << 6,
    .optional_out = 1u << 0 | 1u << 1, .shape = head_shape, .flops = head_flops, .workspace = head_workspace,
    .flags = OPF_WRITES_STATE};
const OpRow op_row_head_sweep = {.name = "head_sweep", .n_in = 6, .n_out = 4, .optional_in = 1u << 4 | 1u << 5,
    .optional_out = 1u << 2 | 1u << 3, .shape = head_shape, .flops = head_flops, .workspace = head_workspace,
    .flags = OPF_WRITES_STATE};
const OpRow op_row_token_sum = {.name = "token_sum", .n_in = 4, .n_out = 1, .optional_in = 1u << 3,
    .grad = token_sum_grad, .flags = OPF_WRITES_STATE};
const OpRow op_row_token_sum_grad = {.name = "token_sum_grad", .n_in = 2, .n_out = 1};
