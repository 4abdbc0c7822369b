/* op_token.c - the ends of a decoder: ids become rows, rows become log-probabilities, those become a loss.
 *
 *   embed           in table(V,C) ids(N) id_order(N)?          out x(N,C)
 *   embed_grad      in dx(N,C) ids(N) id_order(N) beta? clock  out dtable(V,C) = beta*dtable + rows summed by id
 *                   id_order: the token indexes sorted by (id, index), so that sums have one order
 *                   the table may be int8 or nf4
 *   head_logits     in x(N,C) w(V,C)                           out logits(N,V) fp32; w may be int8, or nf4 for
 *                   N <= LINEAR_DIRECT_MOST
 *   head_logp       in x(N,C) w(V,C) labels(N) how(N,DRAW_WORDS)?   out logp(N) lse(N) entropy(N)? drawn(N)?
 *                   logits exist `chunk` rows at a time, in the step's scratch; label < 0: logp 0 (lse is still right)
 *                   w may be int8 here and, where there is no dw, in the next two
 *                   drawn: what a row's how draws (ir/sampling.h) from its logits, which the head has scaled already;
 *                   the number of the draw is -first; label < 0: -1; no token counts as seen before
 *   head_logp_grad  in x w labels lse dlogp(N) beta? clock     out dx(N,C)? dw(V,C)?
 *                   dlogits = dlogp * (onehot(label) - softmax); dw = beta*dw + dlogits^T x, HEAD_TILE rows at a time
 *                   (on a GPU a chunk at a time; fresh: the first is then rounded to nearest)
 *   head_sweep      in x w labels dlogp(N) beta? clock         out logp(N) lse(N) dx(N,C)? dw(V,C)?
 *                   both in one pass over the chunks, the gradient written over the logits (made by plan/sweep)
 *   With terms(N,HEAD_TERMS) these three compute for a row, in place of log p(label), what a loss makes of its logits:
 *       LABEL log p(label) + TARGET sum_i q_i log p_i + ENTROPY H(q) - MARGIN (max z - mean z)^2
 *   z: its logits, p = softmax(z), q = softmax(z' - LOWERED at the label), z' = target_x target_w^T scaled as z is (no
 *   target: TARGET and ENTROPY count as 0). So distillation is TARGET 1, and -KL(q || p) is TARGET 1, ENTROPY 1. The
 *   gradient flows into x and w alone. Logits of both stand in the step's scratch, a chunk of each.
 *   row_distance    in x(N,C) ref(N,C) toward(C) how(N,DISTANCE_WORDS)
 *                   out v(N) = mean over c of (x - how.REF ref - how.TOWARD toward)^2; a word of 0: that is not read
 *   row_distance_grad in dv(N) x ref toward how                out dx(N,C) = dv 2/C (x - ...)
 *   token_score     in logits(N,V) fp32 labels(N)              out score(N,TOKEN_SCORES) fp32: log p of the label, its
 *                   mean and standard deviation under p, 1 where the label is the first of the largest; label < 0: 0
 *   token_sum       in v(N) weight(N) divisor(1) beta?         out stat(1) fp64 = beta*stat +
 *                   scale*sum(v*weight)/divisor
 *   token_sum_grad  in weight(N) divisor(1)                    out dv(N) = scale*weight/divisor */
#include "ir/op_int.h"
#include "ir/product.h"
#include "ir/product_device.h"

Tid op_embed(Program *p, Tid table, Tid ids, Tid id_order, Format activations) {
    Tid x = prog_tensor(p, "embedded", ROLE_ACTIVATION, activations, 2,
                        DIMS(prog_elements(p, ids), prog_cols(p, table)));
    prog_emit(p, (Step){.op = OP_EMBED, .embed = {.in = {table, ids, id_order}, .out = {x}}});
    return x;
}

static void embed_grad(Program *p, Step s, Grads *g) {
    Tid table = s.embed.in.table, id_order = s.embed.in.id_order, beta;
    if (!p->t[table].trainable) return;
    CHECK_MSG(id_order, "a trained embedding needs id_order");
    Tid d_table = grad_of_weight(p, table, &beta);
    prog_emit(p, (Step){.op = OP_EMBED_GRAD,
                        .embed_grad = {.in = {.dx = grad_get(g, s.embed.out.x), .ids = s.embed.in.ids,
                                              .id_order = id_order, .beta = beta, .clock = p->clock},
                                       .out = {d_table}}});
}

Tid op_head_logits(Program *p, Tid x, Tid w) {
    Tid y = prog_tensor(p, "logits", ROLE_ACTIVATION, FMT_F32, 2, DIMS(prog_rows(p, x), prog_rows(p, w)));
    prog_emit(p, (Step){.op = OP_HEAD_LOGITS, .head_logits = {.in = {x, w}, .out = {y}}});
    return y;
}

Tid op_token_score(Program *p, Tid logits, Tid labels) {
    Tid y = prog_tensor(p, "token_score", ROLE_ACTIVATION, FMT_F32, 2, DIMS(prog_rows(p, logits), TOKEN_SCORES));
    prog_emit(p, (Step){.op = OP_TOKEN_SCORE, .token_score = {.in = {logits, labels}, .out = {y}}});
    return y;
}

Tid op_head_logp_entropy(Program *p, Tid x, Tid w, Tid labels, AttrHead attr, Tid *entropy) {
    int64_t n = prog_rows(p, x);
    Tid logp = prog_tensor(p, "logp", ROLE_ACTIVATION, FMT_F32, 1, DIMS(n));
    Tid lse = prog_tensor(p, "lse", ROLE_ACTIVATION, FMT_F32, 1, DIMS(n));
    if (entropy) *entropy = prog_tensor(p, "entropy", ROLE_ACTIVATION, FMT_F32, 1, DIMS(n));
    prog_emit(p, (Step){.op = OP_HEAD_LOGP,
                        .head_logp = {.in = {x, w, labels}, .out = {logp, lse, entropy ? *entropy : NONE}},
                        .attr.head = attr});
    return logp;
}

Tid op_head_draw(Program *p, Tid x, Tid w, Tid labels, AttrHead attr, Tid how, Tid drawn) {
    Tid entropy, logp = op_head_logp_entropy(p, x, w, labels, attr, &entropy);
    Step *s = &p->s[p->n_s - 1];
    s->head_logp.in.how = how;
    s->head_logp.out.drawn = drawn;
    return logp;
}

Tid op_head_logp(Program *p, Tid x, Tid w, Tid labels, AttrHead attr) {
    return op_head_logp_entropy(p, x, w, labels, attr, NULL);
}

Tid op_head_terms(Program *p, Tid x, Tid w, Tid labels, HeadTarget target, AttrHead attr) {
    Tid value = op_head_logp(p, x, w, labels, attr);
    Step *s = &p->s[p->n_s - 1];
    s->head_logp.in.terms = target.terms;
    s->head_logp.in.target_x = target.x;
    s->head_logp.in.target_w = target.w;
    return value;
}

/* What head_logp, head_logp_grad and head_sweep have in common; dx, dw: NONE where they are not asked for. */
typedef struct HeadOperands {
    Tid x, w, dx, dw, terms, target_x, target_w;
} HeadOperands;

static HeadOperands head_of(const Step *s) {
    if (s->op == OP_HEAD_LOGP_GRAD)
        return (HeadOperands){s->head_logp_grad.in.x,        s->head_logp_grad.in.w,
                              s->head_logp_grad.out.dx,      s->head_logp_grad.out.dw,
                              s->head_logp_grad.in.terms,    s->head_logp_grad.in.target_x,
                              s->head_logp_grad.in.target_w};
    if (s->op == OP_HEAD_SWEEP)
        return (HeadOperands){s->head_sweep.in.x,     s->head_sweep.in.w,        s->head_sweep.out.dx,
                              s->head_sweep.out.dw,   s->head_sweep.in.terms,    s->head_sweep.in.target_x,
                              s->head_sweep.in.target_w};
    return (HeadOperands){.x = s->head_logp.in.x,
                          .w = s->head_logp.in.w,
                          .terms = s->head_logp.in.terms,
                          .target_x = s->head_logp.in.target_x,
                          .target_w = s->head_logp.in.target_w};
}

static const char *head_shape(const Program *p, const Step *s) {
    HeadOperands h = head_of(s);
    int64_t chunk = s->attr.head.chunk, n = prog_rows(p, h.x);
    if (prog_cols(p, h.x) != prog_cols(p, h.w)) return "x and w differ in their inner width";
    if (chunk < n && (chunk <= 0 || chunk % HEAD_TILE)) return "the chunk is not a multiple of HEAD_TILE rows";
    if (h.terms && prog_cols(p, h.terms) != HEAD_TERMS) return "terms has another width than HEAD_TERMS";
    if (!h.target_x != !h.target_w || (h.target_x && !h.terms)) return "a target is hidden rows, a weight and terms";
    if (h.target_x && prog_cols(p, h.target_x) != prog_cols(p, h.target_w)) return "the target's x and w differ";
    if (h.target_x && prog_rows(p, h.target_w) != prog_rows(p, h.w)) return "the target has another vocabulary";
    if (h.target_x && prog_t(p, h.target_x)->format != prog_t(p, h.x)->format)
        return "the target's rows differ in format";
    return NULL;
}

static void head_logp_grad(Program *p, Step s, Grads *g) {
    Tid x = s.head_logp.in.x, w = s.head_logp.in.w, beta = NONE, dw = NONE, dx = NONE;
    Tid dlogp = grad_get(g, s.head_logp.out.logp);
    CHECK_MSG(dlogp, "only the log-probability of a head has a gradient");
    if (p->t[w].trainable) dw = grad_of_weight(p, w, &beta);
    if (p->t[x].needs_grad) dx = prog_like(p, "d_hidden", x);
    prog_emit(p, (Step){.op = OP_HEAD_LOGP_GRAD,
                        .head_logp_grad = {.in = {.x = x, .w = w, .labels = s.head_logp.in.labels,
                                                  .lse = s.head_logp.out.lse, .dlogp = dlogp, .beta = beta,
                                                  .clock = p->clock, .terms = s.head_logp.in.terms,
                                                  .target_x = s.head_logp.in.target_x,
                                                  .target_w = s.head_logp.in.target_w},
                                           .out = {.dx = dx, .dw = dw}},
                        .attr = s.attr});
    if (dx) grad_flow(p, g, x, dx);
}

static double head_flops(const Program *p, const Step *s) {
    HeadOperands h = head_of(s);
    double one = product_flops(prog_rows(p, h.x), prog_rows(p, h.w), prog_cols(p, h.w));
    double target = h.target_x ? product_flops(prog_rows(p, h.x), prog_rows(p, h.w), prog_cols(p, h.target_w)) : 0;
    return one * (1 + (h.dx != NONE) + (h.dw != NONE)) + target;
}

static double head_logits_flops(const Program *p, const Step *s) {
    Tid w = s->head_logits.in.w;
    return product_flops(prog_rows(p, s->head_logits.in.x), prog_rows(p, w), prog_cols(p, w));
}

static OpSize head_size(const Program *p, const Step *s) { /* a chunk at a time */
    Tid x = head_of(s).x;
    return (OpSize){(double)MIN2(prog_rows(p, x), s->attr.head.chunk), (double)prog_cols(p, x)};
}

/* Between the products of a chunk its logits are read twice and written once, and a gradient of w is added to. Without
 * a gradient they are read once. A target's are read as often as theirs. */
static double head_bytes_on_top(const Program *p, const Step *s) {
    HeadOperands h = head_of(s);
    double rows = (double)prog_rows(p, h.x), logits = rows * (double)prog_rows(p, h.w);
    double dw = h.dw ? 2 * (double)prog_bytes(p, h.dw) * rows / (double)MAX2(s->attr.head.chunk, 1) : 0;
    Format kept = device_logits_format(&s->attr.head, prog_t(p, h.x)->format);
    double passes = (h.dx || h.dw ? 3 : 1) + (h.target_x ? 2 : 0);
    return passes * logits * (double)format_item_bytes(kept) + dw;
}

/* A large head is decoded panel by panel, never whole. */
static bool is_int8(const Program *p, Tid w) { return p->t[prog_base(p, w)].home.stored == FMT_INT8; }
static bool head_reads_stored(const Program *p, const Step *s) { return is_int8(p, head_of(s).w); }
static bool logits_read_stored(const Program *p, const Step *s) {
    return prog_rows(p, s->head_logits.in.x) <= LINEAR_DIRECT_MOST || is_int8(p, s->head_logits.in.w);
}

/* On a GPU: the logits of a chunk, and what its products need (ir/product_device.h). */
static int64_t head_device_workspace(const Program *p, const Step *s) {
    HeadOperands h = head_of(s);
    int64_t rows = MIN2(s->attr.head.chunk, prog_rows(p, h.x)), vocabulary = prog_rows(p, h.w);
    int64_t width = prog_cols(p, h.x);
    Format format = prog_t(p, h.x)->format, logits = device_logits_format(&s->attr.head, format);
    int64_t bytes = device_round(rows * device_logits_ld(vocabulary) * format_item_bytes(logits));
    int64_t cast = device_cast_bytes(vocabulary, width, prog_t(p, h.w)->format, format);
    if (h.target_x) {
        bytes *= 2;
        const Tensor *w = prog_t(p, h.target_w);
        cast = MAX2(cast, device_cast_bytes(vocabulary, w->dim[1], w->format, format));
    }
    bool direct = op_is_fresh(s) && rows == prog_rows(p, h.x); /* one chunk, written as it is kept */
    int64_t stage = h.dw && !direct ? device_stage_bytes(vocabulary, width, prog_t(p, h.dw)->format) : 0;
    return bytes + MAX2(cast, stage) + device_library_bytes(rows, vocabulary);
}

static bool is_staged(const Program *p, Tid t) { return prog_t(p, t)->format != FMT_F32; }

static int64_t head_target_stage(const Program *p, const HeadOperands *h) {
    ProductStage stage = {is_staged(p, h->target_x), is_staged(p, h->target_w), false};
    return product_bytes(product_head_cut(prog_rows(p, h->w), prog_cols(p, h->target_w)), stage);
}

/* The logits of a chunk, and on the CPU the stages of the largest product (ir/product.h). */
static int64_t head_workspace(const Program *p, const Step *s, const Machine *m) {
    if (m->kind != MACHINE_CPU) return head_device_workspace(p, s);
    HeadOperands h = head_of(s);
    int64_t rows = MIN2(s->attr.head.chunk, prog_rows(p, h.x)), vocabulary = prog_rows(p, h.w);
    int64_t width = prog_cols(p, h.x);
    bool x_staged = is_staged(p, h.x), w_staged = is_staged(p, h.w);
    int64_t stage = product_bytes(product_head_cut(vocabulary, width), (ProductStage){x_staged, w_staged, false});
    if (h.dx) {
        ProductStage dx_stage = {false, w_staged, is_staged(p, h.dx)};
        stage = MAX2(stage, product_bytes(product_head_dx_cut(vocabulary, width), dx_stage));
    }
    if (h.dw) {
        ProductStage dw_stage = {false, x_staged, is_staged(p, h.dw)};
        stage = MAX2(stage, product_bytes(product_head_dw_cut(vocabulary, width), dw_stage));
    }
    if (h.target_x) stage = MAX2(stage, head_target_stage(p, &h));
    int64_t draw = s->op == OP_HEAD_LOGP && s->head_logp.out.drawn ? sample_row_bytes(vocabulary) : 0;
    int64_t logits = units_round_up(rows * vocabulary * 4, 256);
    return (h.target_x ? 2 : 1) * logits + (stage + draw) * m->threads;
}

Tid op_row_distance(Program *p, Tid x, Tid ref, Tid toward, Tid how) {
    Tid v = prog_tensor(p, "distance", ROLE_ACTIVATION, FMT_F32, 1, DIMS(prog_rows(p, x)));
    prog_emit(p, (Step){.op = OP_ROW_DISTANCE, .row_distance = {.in = {x, ref, toward, how}, .out = {v}}});
    return v;
}

static void row_distance_grad(Program *p, Step s, Grads *g) {
    Tid x = s.row_distance.in.x, dx = prog_like(p, "d_hidden", x);
    prog_emit(p, (Step){.op = OP_ROW_DISTANCE_GRAD,
                        .row_distance_grad = {.in = {.dv = grad_get(g, s.row_distance.out.v), .x = x,
                                                     .ref = s.row_distance.in.ref, .toward = s.row_distance.in.toward,
                                                     .how = s.row_distance.in.how},
                                              .out = {dx}}});
    grad_flow(p, g, x, dx);
}

static const char *row_distance_shape(const Program *p, const Step *s) {
    bool grad = s->op == OP_ROW_DISTANCE_GRAD;
    Tid x = grad ? s->row_distance_grad.in.x : s->row_distance.in.x,
        ref = grad ? s->row_distance_grad.in.ref : s->row_distance.in.ref,
        toward = grad ? s->row_distance_grad.in.toward : s->row_distance.in.toward,
        how = grad ? s->row_distance_grad.in.how : s->row_distance.in.how;
    if (!same_shape(p, x, ref) || prog_t(p, x)->format != prog_t(p, ref)->format) return "x and ref differ";
    if (prog_elements(p, toward) != prog_cols(p, x)) return "toward is not as wide as x";
    if (prog_cols(p, how) != DISTANCE_WORDS) return "how has another width than DISTANCE_WORDS";
    return NULL;
}

Tid op_token_sum(Program *p, Tid stat, Tid v, Tid weight, Tid divisor, float scale) {
    prog_emit(p, (Step){.op = OP_TOKEN_SUM,
                        .token_sum = {.in = {.v = v, .weight = weight, .divisor = divisor, .beta = p->beta},
                                      .out = {stat}},
                        .attr.scale = {scale}});
    return stat;
}

static void token_sum_grad(Program *p, Step s, Grads *g) {
    Tid v = s.token_sum.in.v, stat = s.token_sum.out.stat, dv = prog_like(p, "d_logp", v);
    CHECK_MSG(grad_get(g, stat) == stat, "a token sum is a root: its gradient is 1");
    prog_emit(p, (Step){.op = OP_TOKEN_SUM_GRAD,
                        .token_sum_grad = {.in = {s.token_sum.in.weight, s.token_sum.in.divisor}, .out = {dv}},
                        .attr = s.attr});
    grad_flow(p, g, v, dv);
}

const OpRow op_row_embed = {.grad = embed_grad};
const OpRow op_row_embed_grad = {.flags = OPF_WRITES_STATE};
const OpRow op_row_head_logits = {.flops = head_logits_flops, .workspace = op_head_logits_workspace,
    .stored = logits_read_stored, .flags = OPF_DECODES | OPF_HEAD};
const OpRow op_row_head_logp = {.shape = head_shape, .grad = head_logp_grad, .flops = head_flops,
    .workspace = head_workspace, .stored = head_reads_stored, .flags = OPF_HEAD, .grid = GRID_PRODUCTS,
    .table = PASS_FORWARD, .size = head_size, .bytes_on_top = head_bytes_on_top};
const OpRow op_row_head_logp_grad = {.shape = head_shape, .flops = head_flops, .workspace = head_workspace,
    .stored = head_reads_stored, .flags = OPF_WRITES_STATE | OPF_FRESH | OPF_HEAD, .bytes_on_top = head_bytes_on_top};
const OpRow op_row_head_sweep = {.shape = head_shape, .flops = head_flops, .workspace = head_workspace,
    .stored = head_reads_stored, .flags = OPF_WRITES_STATE | OPF_FRESH | OPF_HEAD, .grid = GRID_PRODUCTS,
    .table = PASS_FORWARD, .size = head_size, .bytes_on_top = head_bytes_on_top};
const OpRow op_row_row_distance = {.shape = row_distance_shape, .grad = row_distance_grad};
const OpRow op_row_row_distance_grad = {.shape = row_distance_shape};
const OpRow op_row_token_score = {.flags = OPF_HEAD};
const OpRow op_row_token_sum = {.grad = token_sum_grad, .flags = OPF_WRITES_STATE};
const OpRow op_row_token_sum_grad = {0};
