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
 *   linear_swiglu  in x(N,K) w(2F,K) bias(2F)?      out h(N,F): swiglu of a direct linear, rounded in between as it would be
 *              stored: what plan/gate makes of two steps. w is int8 or nf4, N <= LINEAR_SWIGLU_ROWS
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
    prog_emit(p, (Step){.op = OP_LINEAR, .in = {x, w, bias}, .out = {y}, .attr.linear = {direct}});
    return y;
}

Tid op_linear(Program *p, const char *name, Tid x, Tid w, Tid bias) { return linear(p, name, x, w, bias, false); }
Tid op_linear_direct(Program *p, const char *name, Tid x, Tid w, Tid bias) { return linear(p, name, x, w, bias, true); }

static const char *linear_shape(const Program *p, const Step *s) {
    if (prog_cols(p, s->in[0]) != prog_cols(p, s->in[1])) return "x and w differ in their inner width";
    if (prog_cols(p, s->out[0]) != prog_rows(p, s->in[1])) return "y is not as wide as w has rows";
    if (s->in[3] && prog_cols(p, s->in[3]) != prog_cols(p, s->out[0])) return "what it adds to is not as wide as y";
    if (s->attr.linear.direct && s->in[3]) return "what is direct adds to nothing";
    return NULL;
}

static double linear_flops(const Program *p, const Step *s) {
    return product_flops(prog_rows(p, s->in[0]), prog_rows(p, s->in[1]), prog_cols(p, s->in[1]));
}

static void linear_grad(Program *p, Step s, Grads *g) {
    Tid dy = grad_get(g, s.out[0]), x = s.in[0], w = s.in[1], bias = s.in[2], beta;
    if (p->t[w].trainable) {
        Tid dw = grad_of_weight(p, w, &beta);
        prog_emit(p, (Step){.op = OP_LINEAR_DW, .in = {dy, x, beta, p->clock}, .out = {dw}});
    }
    if (bias && p->t[bias].trainable) {
        Tid db = grad_of_weight(p, bias, &beta);
        prog_emit(p, (Step){.op = OP_LINEAR_DB, .in = {dy, beta, p->clock}, .out = {db}});
    }
    if (s.in[3]) grad_flow(p, g, s.in[3], dy);
    if (!p->t[x].needs_grad) return;
    Tid dx = prog_like(p, "d_x", x);
    prog_emit(p, (Step){.op = OP_LINEAR_DX, .in = {dy, w, grad_get(g, x)}, .out = {dx}});
    grad_set(g, x, dx);
}

static double dx_flops(const Program *p, const Step *s) {
    return product_flops(prog_rows(p, s->in[0]), prog_rows(p, s->in[1]), prog_cols(p, s->in[1]));
}

static double dw_flops(const Program *p, const Step *s) {
    return product_flops(prog_rows(p, s->in[0]), prog_cols(p, s->in[0]), prog_cols(p, s->in[1]));
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

bool op_is_fresh(const Step *s) {
    switch ((int)s->op) {
        case OP_LINEAR_DW:
        case OP_LORA_DB: return s->fresh && s->in[2];
        case OP_LORA_DA: return s->fresh && s->in[2] && s->attr.lora.dropout <= 0; /* else it adds up, panel by panel */
        case OP_HEAD_LOGP_GRAD: return s->fresh && s->in[5];
        case OP_HEAD_SWEEP: return s->fresh && s->in[4];
        default: return false;
    }
}

static bool reads_stored(const Program *p, const Step *s) { /* a quantised weight */
    return !format_table[prog_t(p, s->in[1])->format].plain && op_reads_stored(p, s, 1);
}

/* On a GPU: the library's room, and what passes through scratch in another format, see ir/product_device.h. */
static int64_t device_workspace(const Program *p, const Step *s, const Machine *machine) {
    const Tensor *first = prog_t(p, s->in[0]), *second = prog_t(p, s->in[1]), *out = prog_t(p, s->out[0]);
    int64_t m = prog_rows(p, s->in[1]), k = prog_cols(p, s->in[1]);
    int64_t rows = prog_rows(p, s->out[0]), cols = prog_cols(p, s->out[0]);
    int64_t library = device_library_bytes(rows, cols);
    bool stored = reads_stored(p, s), some = rows <= LINEAR_DIRECT_MOST;
    CHECK_MSG(some || !stored || s->op == OP_HEAD_LOGITS, "%lld rows cannot be direct on a GPU", (long long)rows);
    if (stored && some) return device_some_bytes(rows);
    if (s->op == OP_LINEAR_DW) return (op_is_fresh(s) ? 0 : device_stage_bytes(rows, cols, out->format)) + library;
    bool casts_bias = s->op == OP_LINEAR && s->in[2] && prog_t(p, s->in[2])->format != out->format;
    int64_t bias = casts_bias ? device_round(m * format_item_bytes(out->format)) : 0;
    return device_cast_bytes(m, k, second->format, first->format) + bias + library;
}

int64_t op_product_workspace(const Program *p, const Step *s, const Machine *m) {
    if (m->kind != MACHINE_CPU) return device_workspace(p, s, m);
    Tid first = s->in[0], second = s->in[1], out = s->out[0];
    int64_t rows = prog_rows(p, first), cols = prog_cols(p, first), width = prog_cols(p, second);
    if (s->op == OP_LINEAR_DX) return scratch_bytes(p, (Shape){rows, width, cols}, first, second, out) * m->threads;
    if (s->op == OP_LINEAR_DW) return scratch_bytes(p, (Shape){cols, width, rows}, first, second, out) * m->threads;
    bool stored = reads_stored(p, s);
    if (!s->in[3] && rows <= (stored ? LINEAR_DIRECT_ROWS : PRODUCT_FEW)) return product_few_bytes(rows, cols);
    if (stored)
        return product_many_x_bytes(rows, cols) +
               product_many_tile_bytes(rows, prog_rows(p, second), cols) * m->threads;
    return scratch_bytes(p, (Shape){rows, prog_rows(p, second), cols}, first, second, out) * m->threads;
}

static int64_t db_workspace(const Program *p, const Step *s, const Machine *m) {
    return m->kind == MACHINE_CPU ? 0 : device_sum_bytes(prog_rows(p, s->in[0]), prog_cols(p, s->in[0]));
}

const OpRow op_row_linear = {.name = "linear", .n_in = 4, .n_out = 1, .optional_in = 1u << 2 | 1u << 3,
    .shape = linear_shape, .grad = linear_grad, .flops = linear_flops, .workspace = op_product_workspace,
    .share = SHARE_MAY, .share_out = 0, .share_in = 3};
const OpRow op_row_linear_dx = {.name = "linear_dx", .n_in = 3, .n_out = 1, .optional_in = 1u << 2,
    .flops = dx_flops, .workspace = op_product_workspace, .share = SHARE_MAY, .share_out = 0, .share_in = 2};
const OpRow op_row_linear_dw = {.name = "linear_dw", .n_in = 4, .n_out = 1, .optional_in = 1u << 2 | 1u << 3,
    .flops = dw_flops, .workspace = op_product_workspace, .flags = OPF_WRITES_STATE};
const OpRow op_row_linear_db = {.name = "linear_db", .n_in = 3, .n_out = 1, .optional_in = 1u << 1 | 1u << 2,
    .workspace = db_workspace, .flags = OPF_WRITES_STATE};

/* ---- a linear and its gate ---- */

_Static_assert((int)LINEAR_SWIGLU_ROWS <= (int)DEVICE_FEW_ROWS && (int)LINEAR_SWIGLU_ROWS <= (int)PRODUCT_FEW, "a few");

static const char *gated_shape(const Program *p, const Step *s) {
    if (prog_cols(p, s->in[0]) != prog_cols(p, s->in[1])) return "x and w differ in their inner width";
    if (2 * prog_cols(p, s->out[0]) != prog_rows(p, s->in[1])) return "h is not as wide as half of w's rows";
    return prog_rows(p, s->in[0]) > LINEAR_SWIGLU_ROWS ? "too many rows" : NULL;
}

int64_t op_gated_bytes(int64_t rows, int64_t width, Format f) { return device_round(rows * width * format_item_bytes(f)); }

static int64_t gated_workspace(const Program *p, const Step *s, const Machine *m) {
    int64_t rows = prog_rows(p, s->in[0]), linear = product_few_bytes(rows, prog_cols(p, s->in[0]));
    int64_t gate_up = op_gated_bytes(rows, prog_rows(p, s->in[1]), prog_t(p, s->out[0])->format);
    return gate_up + (m->kind == MACHINE_CPU ? linear : 0);
}

const OpRow op_row_linear_swiglu = {.name = "linear_swiglu", .n_in = 3, .n_out = 1, .optional_in = 1u << 2,
    .shape = gated_shape, .flops = linear_flops, .workspace = gated_workspace};

Tid op_lora(Program *p, Tid y0, Tid x, Tid a, Tid b, AttrLora attr) {
    Tid y = prog_like(p, "lora_y", y0);
    Tid u = prog_tensor(p, "lora_u", ROLE_ACTIVATION, prog_t(p, x)->format, 2, DIMS(prog_rows(p, x), prog_rows(p, a)));
    prog_emit(p, (Step){.op = OP_LORA, .in = {y0, x, a, b, p->clock}, .out = {y, u}, .attr.lora = attr});
    return y;
}

static const char *lora_shape(const Program *p, const Step *s) {
    const AttrLora *l = &s->attr.lora;
    int64_t rows = 0;
    if (l->groups < 1 || l->groups > LORA_GROUPS) return "groups";
    for (int g = 0; g < l->groups; g++) {
        rows += l->rows[g];
        if (l->col[g] + l->rows[g] > prog_cols(p, s->out[0])) return "a group writes beyond y";
    }
    if (!s->in[0] && rows != prog_cols(p, s->out[0])) return "columns of y that nothing writes";
    if (prog_rows(p, s->in[2]) != (int64_t)l->groups * l->rank) return "a has not groups * rank rows";
    if (prog_rows(p, s->in[3]) != rows || prog_cols(p, s->in[3]) != l->rank) return "b is not (rows, rank)";
    return NULL;
}

static void lora_grad(Program *p, Step s, Grads *g) {
    Tid dy = grad_get(g, s.out[0]), y0 = s.in[0], x = s.in[1], a = s.in[2], b = s.in[3], u = s.out[1], beta;
    if (p->t[b].trainable) {
        Tid db = grad_of_weight(p, b, &beta);
        prog_emit(p, (Step){.op = OP_LORA_DB, .in = {dy, u, beta, p->clock}, .out = {db}, .attr = s.attr});
    }
    Tid du = prog_like(p, "d_u", u);
    prog_emit(p, (Step){.op = OP_LORA_DU, .in = {dy, b}, .out = {du}, .attr = s.attr});
    if (p->t[a].trainable) {
        Tid da = grad_of_weight(p, a, &beta);
        int i = prog_emit(p, (Step){.op = OP_LORA_DA, .in = {du, x, beta, p->clock}, .out = {da}, .attr = s.attr});
        p->s[i].key = s.key; /* the same dropout as forward (P6) */
    }
    if (p->t[x].needs_grad) {
        Tid dx = prog_like(p, "d_x", x);
        int i = prog_emit(p, (Step){.op = OP_LORA_DX, .in = {du, a, p->clock, grad_get(g, x)}, .out = {dx}, .attr = s.attr});
        p->s[i].key = s.key;
        grad_set(g, x, dx);
    }
    if (y0) grad_flow(p, g, y0, dy);
}

static double lora_flops(const Program *p, const Step *s) { /* x a^T, and u b^T */
    double n = (double)prog_rows(p, s->in[1]);
    return 2 * n * ((double)prog_elements(p, s->in[2]) + (double)prog_elements(p, s->in[3]));
}

static double lora_du_flops(const Program *p, const Step *s) {
    return 2.0 * (double)prog_rows(p, s->in[0]) * (double)prog_elements(p, s->in[1]);
}

static double lora_dw_flops(const Program *p, const Step *s) {
    return 2.0 * (double)prog_rows(p, s->in[0]) * (double)prog_elements(p, s->out[0]);
}

static int64_t adapter_cast_bytes(const Program *p, Tid adapter, Format to) {
    return prog_t(p, adapter)->format == to ? 0 : device_round(prog_elements(p, adapter) * format_item_bytes(to));
}

/* On a GPU: adapters in the format of the activations, fp32 sums of their gradients, and x or d(x) under dropout. */
static int64_t lora_device_workspace(const Program *p, const Step *s) {
    const AttrLora *l = &s->attr.lora;
    bool drops = l->dropout > 0;
    Tid tokens = s->in[0] ? s->in[0] : s->out[0];
    Format format = prog_t(p, tokens)->format, gradient = prog_t(p, s->out[0])->format;
    int64_t n = prog_rows(p, tokens), width = prog_cols(p, s->in[1]); /* width: K, where it is used */
    int64_t ranks = drops ? l->rank : (int64_t)l->groups * l->rank, item = format_item_bytes(format), bytes = 0;
    switch ((int)s->op) {
        case OP_LORA:
            bytes = adapter_cast_bytes(p, s->in[2], format) + adapter_cast_bytes(p, s->in[3], format);
            if (drops) bytes += device_panel_bytes(n, width, item);
            break;
        case OP_LORA_DU: bytes = adapter_cast_bytes(p, s->in[1], format); break;
        case OP_LORA_DB: /* all groups at once, or group by group */
            if (op_is_fresh(s)) break;
            bytes = device_stage_bytes(prog_rows(p, s->out[0]), l->rank, gradient);
            for (int g = 0; g < l->groups; g++)
                bytes = MAX2(bytes, device_stage_bytes(l->rows[g], l->rank, gradient));
            break;
        case OP_LORA_DA:
            if (gradient != FMT_F32 && !op_is_fresh(s)) bytes = device_round(ranks * width * 4);
            if (drops) bytes += device_panel_bytes(n, width, item);
            break;
        case OP_LORA_DX:
            bytes = adapter_cast_bytes(p, s->in[1], format);
            if (drops) bytes += device_panel_bytes(n, width, 4 * l->groups);
            break;
    }
    return bytes + device_library_bytes(prog_rows(p, s->out[0]), prog_cols(p, s->out[0]));
}

/* The largest of a step's products. Dropout stages its operand also in fp32, and keeps groups apart. */
static int64_t lora_workspace(const Program *p, const Step *s, const Machine *m) {
    if (m->kind != MACHINE_CPU) return lora_device_workspace(p, s);
    const AttrLora *l = &s->attr.lora;
    bool drops = l->dropout > 0;
    int64_t n = prog_rows(p, s->in[0] ? s->in[0] : s->out[0]), most = 0;
    int64_t rank = drops ? l->rank : (int64_t)l->groups * l->rank;
    if (s->op == OP_LORA) {
        Tid x = s->in[1];
        ProductStage stage = {drops || is_staged(p, x), is_staged(p, s->in[2]), is_staged(p, s->out[1])};
        most = product_bytes(product_cut(n, rank, prog_cols(p, x)), stage);
    } else if (s->op == OP_LORA_DA) {
        Tid x = s->in[1];
        ProductStage stage = {is_staged(p, s->in[0]), drops || is_staged(p, x), is_staged(p, s->out[0])};
        most = product_bytes(product_cut(rank, prog_cols(p, x), n), stage);
    } else if (s->op == OP_LORA_DX) {
        Shape shape = {n, prog_cols(p, s->in[1]), (int64_t)l->groups * l->rank};
        most = drops ? product_drop_bytes(product_cut(shape.rows, shape.cols, shape.inner), l->rank)
                     : scratch_bytes(p, shape, s->in[0], s->in[1], s->out[0]);
    }
    for (int g = 0; g < l->groups; g++) {
        int64_t bytes = 0;
        if (s->op == OP_LORA)
            bytes = scratch_bytes(p, (Shape){n, l->rows[g], l->rank}, s->out[1], s->in[3], s->out[0]);
        else if (s->op == OP_LORA_DU)
            bytes = scratch_bytes(p, (Shape){n, l->rank, l->rows[g]}, s->in[0], s->in[1], s->out[0]);
        else if (s->op == OP_LORA_DB)
            bytes = scratch_bytes(p, (Shape){l->rows[g], l->rank, n}, s->in[0], s->in[1], s->out[0]);
        most = MAX2(most, bytes);
    }
    return most * m->threads;
}

const OpRow op_row_lora = {.name = "lora", .n_in = 5, .n_out = 2, .optional_in = 1u << 0 | 1u << 4, .shape = lora_shape,
    .grad = lora_grad, .flops = lora_flops, .workspace = lora_workspace, .share = SHARE_MAY, .share_out = 0,
    .share_in = 0, .flags = OPF_RANDOM};
const OpRow op_row_lora_du = {.name = "lora_du", .n_in = 2, .n_out = 1, .flops = lora_du_flops,
    .workspace = lora_workspace};
const OpRow op_row_lora_db = {.name = "lora_db", .n_in = 4, .n_out = 1, .optional_in = 1u << 2 | 1u << 3,
    .flops = lora_dw_flops, .workspace = lora_workspace, .flags = OPF_WRITES_STATE};
const OpRow op_row_lora_da = {.name = "lora_da", .n_in = 4, .n_out = 1, .optional_in = 1u << 2 | 1u << 3,
    .flops = lora_dw_flops, .workspace = lora_workspace, .flags = OPF_WRITES_STATE | OPF_RANDOM};
const OpRow op_row_lora_dx = {.name = "lora_dx", .n_in = 4, .n_out = 1, .optional_in = 1u << 2 | 1u << 3,
    .flops = lora_du_flops, .workspace = lora_workspace, .share = SHARE_MAY, .share_out = 0, .share_in = 3,
    .flags = OPF_RANDOM};
