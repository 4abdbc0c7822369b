/* op_state.c - the steps that change state: norms and updates, fills, and moves between homes.
 *
 *   sum_squares  in g                                     out part(1) fp64 = sum of g^2, in fp64, one order
 *   clip         in parts(n) fp64 loss(1) max_norm(1) fp32 unscale(1)? fp32 limits(2)? fp32
 *                out verdict(3) fp64: scale, norm, ok
 *                norm = unscale * sqrt(sum of parts); scale = unscale * min(1, max/(norm+1e-6)); max_norm <= 0:
 *                scale = unscale. ok = norm and loss are finite, and not above limits (LIMIT_*). unscale: gradients
 *                are 1/unscale times too large (fp16)
 *   adamw        in weight g m v master? dials verdict clock   out weight m v master?
 *                verdict ok = 0: nothing is written. g' = g*scale; m = b1*m + (1-b1)*g'; v = b2*v + (1-b2)*g'^2;
 *                w -= lr*mult*wd*w; w -= lr*mult * (m*c1) / (sqrt(v*c2) + eps), in fp32 on master when there is one.
 *                bf16 weights without master and bf16 moments are rounded at random: rng_u16 of clock and key, the
 *                element, and rotation 0 (weight), 1 (m), 2 (v) of its word (P6)
 *   sgd          in weight g m? master? dials verdict clock    out weight m? master?
 *                m = beta1*m + (g' + wd*w); w -= lr*mult*m
 *   fill         out state: constant, normal or uniform by key and element
 *   copy         in src out dst: the same bytes, any pools (side queue)
 *   decode       in stored out dense: format_table's decode, row by row */
#include "ir/op_int.h"

void op_sum_squares(Program *p, Tid part, Tid gradient) {
    prog_emit(p, (Step){.op = OP_SUM_SQUARES, .sum_squares = {.in = {gradient}, .out = {part}}});
}

/* One fp64 partial sum per fixed block of elements, then one ordered sum. */
static int64_t squares_workspace(const Program *p, const Step *s, const Machine *m) {
    enum { BLOCK = 1 << 14 };
    (void)m;
    return (prog_elements(p, s->sum_squares.in.g) + BLOCK - 1) / BLOCK * 8;
}

void op_clip(Program *p, Tid verdict, Tid parts, Tid loss, Tid max_norm, Tid unscale, Tid limits) {
    prog_emit(p, (Step){.op = OP_CLIP, .clip = {.in = {parts, loss, max_norm, unscale, limits}, .out = {verdict}}});
}

void op_adamw(Program *p, UpdateTensors t, AttrUpdate attr) {
    prog_emit(p, (Step){.op = OP_ADAMW,
                        .adamw = {.in = {.weight = t.weight, .g = t.gradient, .m = t.m, .v = t.v, .master = t.master,
                                         .dials = t.dials, .verdict = t.verdict, .clock = p->clock},
                                  .out = {.weight = t.weight, .m = t.m, .v = t.v, .master = t.master}},
                        .attr.update = attr});
}

void op_sgd(Program *p, UpdateTensors t, AttrUpdate attr) {
    prog_emit(p, (Step){.op = OP_SGD,
                        .sgd = {.in = {.weight = t.weight, .g = t.gradient, .m = t.m, .master = t.master,
                                       .dials = t.dials, .verdict = t.verdict, .clock = p->clock},
                                .out = {.weight = t.weight, .m = t.m, .master = t.master}},
                        .attr.update = attr});
}

void op_fill(Program *p, Tid state, AttrFill attr) {
    prog_emit(p, (Step){.op = OP_FILL, .fill = {.out = {state}}, .attr.fill = attr});
}

void op_copy(Program *p, Tid dst, Tid src, Queue queue) {
    prog_emit(p, (Step){.op = OP_COPY, .copy = {.in = {src}, .out = {dst}}, .queue = queue});
}

static int64_t fill_workspace(const Program *p, const Step *s, const Machine *m) { /* a row a worker, to be encoded */
    Tid state = s->fill.out.state;
    const FormatRow *f = &format_table[p->t[state].format];
    return m->kind == MACHINE_CPU && f->by_rows && !f->plain ? (int64_t)m->threads * prog_cols(p, state) * 4 : 0;
}

static const char *copy_shape(const Program *p, const Step *s) {
    return prog_bytes(p, s->copy.in.src) == prog_bytes(p, s->copy.out.dst) ? NULL : "a copy keeps its bytes";
}

static const char *decode_shape(const Program *p, const Step *s) {
    return same_shape(p, s->decode.in.stored, s->decode.out.dense) ? NULL : "shapes differ";
}

const OpRow op_row_sum_squares = {.workspace = squares_workspace, .flags = OPF_WRITES_STATE | OPF_TOGETHER};
const OpRow op_row_clip = {.flags = OPF_WRITES_STATE};
const OpRow op_row_adamw = {.flags = OPF_WRITES_STATE | OPF_RANDOM | OPF_TOGETHER};
const OpRow op_row_sgd = {.flags = OPF_WRITES_STATE | OPF_RANDOM | OPF_TOGETHER};
const OpRow op_row_fill = {.workspace = fill_workspace, .flags = OPF_WRITES_STATE | OPF_FILLS};
const OpRow op_row_copy = {.shape = copy_shape, .flags = OPF_MOVES | OPF_WRITES_STATE};
const OpRow op_row_decode = {.shape = decode_shape};
