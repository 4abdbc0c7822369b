/* op_linear.c - y = x w^T + b, its three gradients, and the adapter beside it.
 *
 * Weights are (M,K): a row per output, so q, k and v stacked are one product and three contiguous views.
 *   linear     in x(N,K) w(M,K) bias(M)? so_far(N,M)?   out y(N,M) = so_far + x w^T + bias
 *              direct: w may be int8 or nf4, N <= linear_direct_rows, no so_far; its numbers are then those of the
 *              format, not rounded to what the others work in
 *   linear_dx  in dy(N,M) w(M,K) so_far(N,K)?       out dx(N,K) = so_far + dy w
 *   linear_dw  in dy(N,M) x(N,K) beta? clock        out dw(M,K) = beta*dw + dy^T x   (beta absent: 1)
 *              fresh, with beta: beta is 0, dw is rounded to nearest instead of at random, since nothing adds up in it
 *   linear_db  in dy(N,M) beta? clock               out db(M)   = beta*db + column sums of dy
 *
 *   linear_swiglu  in x(N,K) w(2F,K) bias(2F)?      out h(N,F): swiglu of a direct linear, rounded in between as it
 *                  would be
 *                  stored: what plan/gate makes of two steps. w is int8 or nf4, N <= LINEAR_SWIGLU_ROWS
 *
 *   lora       in y0(N,M)? x(N,K) a(R,K) b(S,r) clock  out y(N,M) u(N,R)    R = groups*r, S = sum of rows
 *              u_g = drop(x) a_g^T;   y = y0, and y[:, col_g ...] += scale * u_g b_g^T; without y0 S = M
 *   lora_du    in dy(N,M) b(S,r)                       out du(N,R): du_g = scale * dy[:, col_g ...] b_g
 *   lora_db    in dy(N,M) u(N,R) beta? clock           out db(S,r): beta*db + scale * dy_g^T u_g
 *   lora_da    in du(N,R) x(N,K) beta? clock           out da(R,K): beta*da + du_g^T drop(x); both may be fresh
 *   lora_dx    in du(N,R) a(R,K) clock so_far(N,K)?    out dx(N,K) = so_far + sum_g drop'(du_g a_g) */
#include "ir/op_int.h"
#include "ir/product.h"
#include "ir/product_device.h"

static Tid linear(Program *p, const char *name, Tid x, Tid w, Tid bias, bool direct) {
    Tid y = prog_tensor(p, name, ROLE_ACTIVATION, prog_t(p, x)->format, 2, DIMS(prog_rows(p, x), prog_rows(p, w)));
    prog_emit(p, (Step){.op = OP_LINEAR,
                        .linear = {.in = {.x = x, .w = w, .bias = bias}, .out = {y}},
                        .attr.linear = {direct}});
    return y;
}

Tid op_linear(Program *p, const char *name, Tid x, Tid w, Tid bias) { return linear(p, name, x, w, bias, false); }
Tid op_linear_direct(Program *p, const char *name, Tid x, Tid w, Tid bias) { return linear(p, name, x, w, bias, true); }

static const char *linear_shape(const Program *p, const Step *s) {
    Tid w = s->linear.in.w, so_far = s->linear.in.so_far, y = s->linear.out.y;
    if (prog_cols(p, s->linear.in.x) != prog_cols(p, w)) return "x and w differ in their inner width";
    if (prog_cols(p, y) != prog_rows(p, w)) return "y is not as wide as w has rows";
    if (so_far && prog_cols(p, so_far) != prog_cols(p, y)) return "what it adds to is not as wide as y";
    if (s->attr.linear.direct && so_far) return "what is direct adds to nothing";
    return NULL;
}

static double weight_flops(const Program *p, Tid rows, Tid w) { /* every row of `rows` with the weight */
    return product_flops(prog_rows(p, rows), prog_rows(p, w), prog_cols(p, w));
}

static double linear_flops(const Program *p, const Step *s) {
    return weight_flops(p, s->linear.in.x, s->linear.in.w);
}

static double dx_flops(const Program *p, const Step *s) {
    return weight_flops(p, s->linear_dx.in.dy, s->linear_dx.in.w);
}

static double dw_flops(const Program *p, const Step *s) {
    return weight_flops(p, s->linear_dw.in.dy, s->linear_dw.out.dw);
}

/* A product's rate is measured by its tokens and the shorter side of its weight. */
static OpSize weight_size(const Program *p, Tid rows, Tid w) {
    return (OpSize){(double)prog_rows(p, rows), (double)MIN2(prog_rows(p, w), prog_cols(p, w))};
}

static OpSize linear_size(const Program *p, const Step *s) {
    return weight_size(p, s->linear.in.x, s->linear.in.w);
}

static OpSize dx_size(const Program *p, const Step *s) {
    return weight_size(p, s->linear_dx.in.dy, s->linear_dx.in.w);
}

static OpSize dw_size(const Program *p, const Step *s) {
    return weight_size(p, s->linear_dw.in.dy, s->linear_dw.out.dw);
}

static bool linear_reads_stored(const Program *p, const Step *s) { return s->attr.linear.direct; }

static void linear_grad(Program *p, Step s, Grads *g) {
    Tid dy = grad_get(g, s.linear.out.y), x = s.linear.in.x, w = s.linear.in.w, bias = s.linear.in.bias, beta;
    if (p->t[w].trainable) {
        Tid dw = grad_of_weight(p, w, &beta);
        prog_emit(p, (Step){.op = OP_LINEAR_DW,
                            .linear_dw = {.in = {.dy = dy, .x = x, .beta = beta, .clock = p->clock}, .out = {dw}}});
    }
    if (bias && p->t[bias].trainable) {
        Tid db = grad_of_weight(p, bias, &beta);
        prog_emit(p, (Step){.op = OP_LINEAR_DB,
                            .linear_db = {.in = {.dy = dy, .beta = beta, .clock = p->clock}, .out = {db}}});
    }
    if (s.linear.in.so_far) grad_flow(p, g, s.linear.in.so_far, dy);
    if (!p->t[x].needs_grad) return;
    Tid dx = prog_like(p, "d_x", x);
    prog_emit(p, (Step){.op = OP_LINEAR_DX,
                        .linear_dx = {.in = {.dy = dy, .w = w, .so_far = grad_get(g, x)}, .out = {dx}}});
    grad_set(g, x, dx);
}

/* ---- scratch on the CPU: what is not fp32 is staged per worker, see ir/product.h ---- */

static bool is_staged(const Program *p, Tid t) { return prog_t(p, t)->format != FMT_F32; }

typedef struct Shape {
    int64_t rows, cols, inner;
} Shape;

static int64_t scratch_bytes(const Program *p, Shape n, Tid a, Tid b, Tid c) {
    ProductStage stage = {is_staged(p, a), is_staged(p, b), is_staged(p, c)};
    return product_bytes(product_cut(n.rows, n.cols, n.inner), stage);
}

static int64_t library_bytes(const Program *p, Tid out) {
    return device_library_bytes(prog_rows(p, out), prog_cols(p, out));
}

/* A product of x with the rows of a weight: linear and head_logits; bias and so_far may be NONE. */
typedef struct WeightProduct {
    const Step *s;
    Tid x, w, bias, so_far, y;
    int w_place;
} WeightProduct;

static bool reads_codes(const Program *p, const WeightProduct *n) { /* a quantised weight, as it is stored */
    return !format_table[prog_t(p, n->w)->format].plain && op_reads_stored(p, n->s, n->w_place);
}

/* On a GPU: the library's room, and what passes through scratch in another format, see ir/product_device.h. */
static int64_t weight_device_bytes(const Program *p, const WeightProduct *n) {
    int64_t m = prog_rows(p, n->w), k = prog_cols(p, n->w), rows = prog_rows(p, n->y);
    Format x_format = prog_t(p, n->x)->format, y_format = prog_t(p, n->y)->format;
    bool stored = reads_codes(p, n), some = rows <= LINEAR_DIRECT_MOST;
    CHECK_MSG(some || !stored || n->s->op == OP_HEAD_LOGITS, "%lld rows cannot be direct on a GPU", (long long)rows);
    if (stored && some) return device_some_bytes(rows);
    bool casts_bias = n->bias && prog_t(p, n->bias)->format != y_format;
    int64_t bias = casts_bias ? device_round(m * format_item_bytes(y_format)) : 0;
    return device_cast_bytes(m, k, prog_t(p, n->w)->format, x_format) + bias + library_bytes(p, n->y);
}

static int64_t weight_bytes(const Program *p, const WeightProduct *n, const Machine *m) {
    if (m->kind != MACHINE_CPU) return weight_device_bytes(p, n);
    int64_t rows = prog_rows(p, n->x), inner = prog_cols(p, n->x), cols = prog_rows(p, n->w);
    bool stored = reads_codes(p, n);
    if (!n->so_far && rows <= (stored ? LINEAR_DIRECT_ROWS : PRODUCT_FEW)) return product_few_bytes(rows, inner);
    if (stored) return product_many_x_bytes(rows, inner) + product_many_tile_bytes(rows, cols, inner) * m->threads;
    return scratch_bytes(p, (Shape){rows, cols, inner}, n->x, n->w, n->y) * m->threads;
}

static int64_t linear_workspace(const Program *p, const Step *s, const Machine *m) {
    WeightProduct n = {.s = s, .x = s->linear.in.x, .w = s->linear.in.w, .bias = s->linear.in.bias,
                       .so_far = s->linear.in.so_far, .y = s->linear.out.y, .w_place = OP_IN(linear, w)};
    return weight_bytes(p, &n, m);
}

int64_t op_head_logits_workspace(const Program *p, const Step *s, const Machine *m) {
    WeightProduct n = {.s = s, .x = s->head_logits.in.x, .w = s->head_logits.in.w, .y = s->head_logits.out.logits,
                       .w_place = OP_IN(head_logits, w)};
    return weight_bytes(p, &n, m);
}

static int64_t dx_workspace(const Program *p, const Step *s, const Machine *m) {
    Tid dy = s->linear_dx.in.dy, w = s->linear_dx.in.w, dx = s->linear_dx.out.dx;
    if (m->kind != MACHINE_CPU)
        return device_cast_bytes(prog_rows(p, w), prog_cols(p, w), prog_t(p, w)->format, prog_t(p, dy)->format) +
               library_bytes(p, dx);
    return scratch_bytes(p, (Shape){prog_rows(p, dy), prog_cols(p, w), prog_cols(p, dy)}, dy, w, dx) * m->threads;
}

static int64_t dw_workspace(const Program *p, const Step *s, const Machine *m) {
    Tid dy = s->linear_dw.in.dy, x = s->linear_dw.in.x, dw = s->linear_dw.out.dw;
    int64_t rows = prog_rows(p, dw), cols = prog_cols(p, dw);
    if (m->kind != MACHINE_CPU)
        return (op_is_fresh(s) ? 0 : device_stage_bytes(rows, cols, prog_t(p, dw)->format)) + library_bytes(p, dw);
    return scratch_bytes(p, (Shape){prog_cols(p, dy), prog_cols(p, x), prog_rows(p, dy)}, dy, x, dw) * m->threads;
}

static int64_t db_workspace(const Program *p, const Step *s, const Machine *m) {
    Tid dy = s->linear_db.in.dy;
    return m->kind == MACHINE_CPU ? 0 : device_sum_bytes(prog_rows(p, dy), prog_cols(p, dy));
}

const OpRow op_row_linear = {.shape = linear_shape, .grad = linear_grad, .flops = linear_flops,
    .workspace = linear_workspace, .stored = linear_reads_stored, .share = SHARE_MAY, .share_out = OP_OUT(linear, y),
    .share_in = OP_IN(linear, so_far), .flags = OPF_DECODES | OPF_ROWWISE, .grid = GRID_PRODUCTS, .table = PASS_FORWARD,
    .size = linear_size};
const OpRow op_row_linear_dx = {.flops = dx_flops, .workspace = dx_workspace, .share = SHARE_MAY,
    .share_out = OP_OUT(linear_dx, dx), .share_in = OP_IN(linear_dx, so_far), .flags = OPF_ROWWISE,
    .grid = GRID_PRODUCTS, .table = PASS_DX, .size = dx_size};
const OpRow op_row_linear_dw = {.flops = dw_flops, .workspace = dw_workspace,
    .flags = OPF_WRITES_STATE | OPF_ROWWISE | OPF_FRESH, .grid = GRID_PRODUCTS, .table = PASS_DW, .size = dw_size};
const OpRow op_row_linear_db = {.workspace = db_workspace, .flags = OPF_WRITES_STATE, .byte_share = 0.6};

/* ---- a linear and its gate ---- */

_Static_assert((int)LINEAR_SWIGLU_ROWS <= (int)DEVICE_FEW_ROWS && (int)LINEAR_SWIGLU_ROWS <= (int)PRODUCT_FEW, "a few");

static const char *gated_shape(const Program *p, const Step *s) {
    Tid x = s->linear_swiglu.in.x, w = s->linear_swiglu.in.w;
    if (prog_cols(p, x) != prog_cols(p, w)) return "x and w differ in their inner width";
    if (2 * prog_cols(p, s->linear_swiglu.out.h) != prog_rows(p, w)) return "h is not as wide as half of w's rows";
    return prog_rows(p, x) > LINEAR_SWIGLU_ROWS ? "too many rows" : NULL;
}

int64_t op_gated_bytes(int64_t rows, int64_t width, Format f) {
    return device_round(rows * width * format_item_bytes(f));
}

static int64_t gated_workspace(const Program *p, const Step *s, const Machine *m) {
    Tid x = s->linear_swiglu.in.x;
    int64_t rows = prog_rows(p, x), linear = product_few_bytes(rows, prog_cols(p, x));
    Format f = prog_t(p, s->linear_swiglu.out.h)->format;
    return op_gated_bytes(rows, prog_rows(p, s->linear_swiglu.in.w), f) + (m->kind == MACHINE_CPU ? linear : 0);
}

static double gated_flops(const Program *p, const Step *s) {
    return weight_flops(p, s->linear_swiglu.in.x, s->linear_swiglu.in.w);
}

static OpSize gated_size(const Program *p, const Step *s) {
    return weight_size(p, s->linear_swiglu.in.x, s->linear_swiglu.in.w);
}

const OpRow op_row_linear_swiglu = {.shape = gated_shape, .flops = gated_flops, .workspace = gated_workspace,
    .flags = OPF_DECODES, .grid = GRID_PRODUCTS, .table = PASS_FORWARD, .size = gated_size};

/* ---- the adapter ---- */

Tid op_lora(Program *p, Tid y0, Tid x, Tid a, Tid b, AttrLora attr) {
    Tid y = prog_like(p, "lora_y", y0);
    Tid u = prog_tensor(p, "lora_u", ROLE_ACTIVATION, prog_t(p, x)->format, 2, DIMS(prog_rows(p, x), prog_rows(p, a)));
    prog_emit(p, (Step){.op = OP_LORA,
                        .lora = {.in = {.y0 = y0, .x = x, .a = a, .b = b, .clock = p->clock}, .out = {.y = y, .u = u}},
                        .attr.lora = attr});
    return y;
}

static const char *lora_shape(const Program *p, const Step *s) {
    const AttrLora *l = &s->attr.lora;
    Tid a = s->lora.in.a, b = s->lora.in.b, y = s->lora.out.y;
    int64_t rows = 0;
    if (l->groups < 1 || l->groups > LORA_GROUPS) return "groups";
    for (int g = 0; g < l->groups; g++) {
        rows += l->rows[g];
        if (l->col[g] + l->rows[g] > prog_cols(p, y)) return "a group writes beyond y";
    }
    if (!s->lora.in.y0 && rows != prog_cols(p, y)) return "columns of y that nothing writes";
    if (prog_rows(p, a) != (int64_t)l->groups * l->rank) return "a has not groups * rank rows";
    if (prog_rows(p, b) != rows || prog_cols(p, b) != l->rank) return "b is not (rows, rank)";
    return NULL;
}

static void lora_grad(Program *p, Step s, Grads *g) {
    Tid dy = grad_get(g, s.lora.out.y), y0 = s.lora.in.y0, x = s.lora.in.x, a = s.lora.in.a, b = s.lora.in.b;
    Tid u = s.lora.out.u, beta;
    if (p->t[b].trainable) {
        Tid db = grad_of_weight(p, b, &beta);
        prog_emit(p, (Step){.op = OP_LORA_DB,
                            .lora_db = {.in = {.dy = dy, .u = u, .beta = beta, .clock = p->clock}, .out = {db}},
                            .attr = s.attr});
    }
    Tid du = prog_like(p, "d_u", u);
    prog_emit(p, (Step){.op = OP_LORA_DU, .lora_du = {.in = {dy, b}, .out = {du}}, .attr = s.attr});
    if (p->t[a].trainable) {
        Tid da = grad_of_weight(p, a, &beta);
        int i = prog_emit(p, (Step){.op = OP_LORA_DA,
                                    .lora_da = {.in = {.du = du, .x = x, .beta = beta, .clock = p->clock}, .out = {da}},
                                    .attr = s.attr});
        p->s[i].key = s.key; /* the same dropout as forward (P6) */
    }
    if (p->t[x].needs_grad) {
        Tid dx = prog_like(p, "d_x", x), so_far = grad_get(g, x);
        int i = prog_emit(p, (Step){.op = OP_LORA_DX,
                                    .lora_dx = {.in = {.du = du, .a = a, .clock = p->clock, .so_far = so_far},
                                                .out = {dx}},
                                    .attr = s.attr});
        p->s[i].key = s.key;
        grad_set(g, x, dx);
    }
    if (y0) grad_flow(p, g, y0, dy);
}

static double rows_times(const Program *p, Tid rows, double elements) {
    return 2.0 * (double)prog_rows(p, rows) * elements;
}

static double lora_flops(const Program *p, const Step *s) { /* x a^T, and u b^T */
    return rows_times(p, s->lora.in.x, (double)prog_elements(p, s->lora.in.a) + (double)prog_elements(p, s->lora.in.b));
}

/* Of the few rows of a decode; in longer passes the next product is ready before one has ended. */
static double lora_launches(const Program *p, const Step *s, const Machine *m) {
    const AttrLora *l = &s->attr.lora;
    int n = lora_products_on_x(l);
    int64_t step;
    if (prog_rows(p, s->lora.in.x) > LINEAR_DIRECT_MOST) return 1;
    for (int g = 0; g < l->groups; n++) g += lora_alike(l, g, &step);
    return n;
}

static double lora_du_flops(const Program *p, const Step *s) {
    return rows_times(p, s->lora_du.in.dy, (double)prog_elements(p, s->lora_du.in.b));
}

static double lora_db_flops(const Program *p, const Step *s) {
    return rows_times(p, s->lora_db.in.dy, (double)prog_elements(p, s->lora_db.out.db));
}

static double lora_da_flops(const Program *p, const Step *s) {
    return rows_times(p, s->lora_da.in.du, (double)prog_elements(p, s->lora_da.out.da));
}

static double lora_dx_flops(const Program *p, const Step *s) {
    return rows_times(p, s->lora_dx.in.du, (double)prog_elements(p, s->lora_dx.in.a));
}

static OpSize lora_size(const Program *p, const Step *s) {
    return (OpSize){(double)prog_rows(p, op_token_rows(s)), s->attr.lora.rank};
}

/* ---- scratch of the adapter ----
 *
 * On a GPU: adapters in the format of the activations, fp32 sums of their gradients, and x or d(x) under dropout.
 * On the CPU: the largest of a step's products. Dropout stages its operand also in fp32, and keeps groups apart. */

static int64_t adapter_cast_bytes(const Program *p, Tid adapter, Tid activations) {
    Format to = prog_t(p, activations)->format;
    return prog_t(p, adapter)->format == to ? 0 : device_round(prog_elements(p, adapter) * format_item_bytes(to));
}

static int64_t dropped_bytes(const Program *p, const AttrLora *l, Tid x) { /* a panel of what a group sees of x */
    if (l->dropout <= 0) return 0;
    return device_panel_bytes(prog_rows(p, x), prog_cols(p, x), format_item_bytes(prog_t(p, x)->format));
}

static int64_t lora_workspace(const Program *p, const Step *s, const Machine *m) {
    const AttrLora *l = &s->attr.lora;
    Tid x = s->lora.in.x, a = s->lora.in.a, b = s->lora.in.b, y = s->lora.out.y, u = s->lora.out.u;
    if (m->kind != MACHINE_CPU)
        return adapter_cast_bytes(p, a, y) + adapter_cast_bytes(p, b, y) + dropped_bytes(p, l, x) + library_bytes(p, y);
    int64_t n = prog_rows(p, y);
    ProductStage stage = {l->dropout > 0 || is_staged(p, x), is_staged(p, a), is_staged(p, u)};
    int64_t most = product_bytes(product_cut(n, lora_rank_on_x(l), prog_cols(p, x)), stage);
    for (int g = 0; g < l->groups; g++) most = MAX2(most, scratch_bytes(p, (Shape){n, l->rows[g], l->rank}, u, b, y));
    return most * m->threads;
}

static int64_t lora_du_workspace(const Program *p, const Step *s, const Machine *m) {
    const AttrLora *l = &s->attr.lora;
    Tid dy = s->lora_du.in.dy, b = s->lora_du.in.b, du = s->lora_du.out.du;
    int64_t most = 0, n = prog_rows(p, dy);
    if (m->kind != MACHINE_CPU) return adapter_cast_bytes(p, b, dy) + library_bytes(p, du);
    for (int g = 0; g < l->groups; g++) most = MAX2(most, scratch_bytes(p, (Shape){n, l->rank, l->rows[g]}, dy, b, du));
    return most * m->threads;
}

/* On a GPU all groups at once, or group by group. */
static int64_t lora_db_workspace(const Program *p, const Step *s, const Machine *m) {
    const AttrLora *l = &s->attr.lora;
    Tid dy = s->lora_db.in.dy, u = s->lora_db.in.u, db = s->lora_db.out.db;
    Format f = prog_t(p, db)->format;
    bool cpu = m->kind == MACHINE_CPU, staged = !cpu && !op_is_fresh(s);
    int64_t n = prog_rows(p, dy), most = staged ? device_stage_bytes(prog_rows(p, db), l->rank, f) : 0;
    for (int g = 0; g < l->groups; g++) {
        if (cpu) most = MAX2(most, scratch_bytes(p, (Shape){l->rows[g], l->rank, n}, dy, u, db));
        else if (staged) most = MAX2(most, device_stage_bytes(l->rows[g], l->rank, f));
    }
    return cpu ? most * m->threads : most + library_bytes(p, db);
}

static int64_t lora_da_workspace(const Program *p, const Step *s, const Machine *m) {
    const AttrLora *l = &s->attr.lora;
    Tid du = s->lora_da.in.du, x = s->lora_da.in.x, da = s->lora_da.out.da;
    int64_t width = prog_cols(p, x), rank = lora_rank_on_x(l);
    if (m->kind != MACHINE_CPU) {
        bool sums = prog_t(p, da)->format != FMT_F32 && !op_is_fresh(s);
        return (sums ? device_round(rank * width * 4) : 0) + dropped_bytes(p, l, x) + library_bytes(p, da);
    }
    ProductStage stage = {is_staged(p, du), l->dropout > 0 || is_staged(p, x), is_staged(p, da)};
    return product_bytes(product_cut(rank, width, prog_rows(p, du)), stage) * m->threads;
}

static int64_t lora_dx_workspace(const Program *p, const Step *s, const Machine *m) {
    const AttrLora *l = &s->attr.lora;
    Tid du = s->lora_dx.in.du, a = s->lora_dx.in.a, dx = s->lora_dx.out.dx;
    bool drops = l->dropout > 0;
    int64_t n = prog_rows(p, du), width = prog_cols(p, a), ranks = (int64_t)l->groups * l->rank;
    if (m->kind != MACHINE_CPU)
        return adapter_cast_bytes(p, a, du) + (drops ? device_panel_bytes(n, width, 4 * l->groups) : 0) +
               library_bytes(p, dx);
    if (drops) return product_drop_bytes(product_cut(n, width, ranks), l->rank) * m->threads;
    return scratch_bytes(p, (Shape){n, width, ranks}, du, a, dx) * m->threads;
}

/* bytes_on_top: the second product of an adapter goes over all of y. */
const OpRow op_row_lora = {.shape = lora_shape, .grad = lora_grad, .flops = lora_flops, .workspace = lora_workspace,
    .share = SHARE_MAY, .share_out = OP_OUT(lora, y), .share_in = OP_IN(lora, y0),
    .flags = OPF_RANDOM | OPF_DROPOUT | OPF_ROWWISE, .grid = GRID_PRODUCTS, .table = PASS_FORWARD, .size = lora_size,
    .bytes_on_top = op_bytes_moved, .launches = lora_launches};
const OpRow op_row_lora_du = {.flops = lora_du_flops, .workspace = lora_du_workspace, .flags = OPF_ROWWISE,
    .grid = GRID_PRODUCTS, .table = PASS_DX, .size = lora_size};
const OpRow op_row_lora_db = {.flops = lora_db_flops, .workspace = lora_db_workspace,
    .flags = OPF_WRITES_STATE | OPF_ROWWISE | OPF_FRESH, .grid = GRID_PRODUCTS, .table = PASS_DW, .size = lora_size};
const OpRow op_row_lora_da = {.flops = lora_da_flops, .workspace = lora_da_workspace,
    .flags = OPF_WRITES_STATE | OPF_RANDOM | OPF_DROPOUT | OPF_ROWWISE | OPF_FRESH, .grid = GRID_PRODUCTS,
    .table = PASS_DW, .size = lora_size};
const OpRow op_row_lora_dx = {.flops = lora_dx_flops, .workspace = lora_dx_workspace, .share = SHARE_MAY,
    .share_out = OP_OUT(lora_dx, dx), .share_in = OP_IN(lora_dx, so_far),
    .flags = OPF_RANDOM | OPF_DROPOUT | OPF_ROWWISE, .grid = GRID_PRODUCTS, .table = PASS_DX, .size = lora_size};
