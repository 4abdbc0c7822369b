/* op_carry.c - the steps on a correction v that stands beside each trained weight and is carried along a run
 * (unlearn/correction.h says what for).
 *
 * How far an update moves v depends on g.v over all tensors, so its step is deferred to the next update, which applies
 * it in the same pass over v. With mult and decay of the weight, and `last` the gradient of the previous update:
 *
 *     step(v) = keep * ((1 - lr*mult*(decay + damping)) * v - lr*mult*times * last)
 *
 * keep 0: step(v) is 0, whatever v and last hold. lr is CARRY_LR, of the previous update; 0: v is only scaled.
 *
 *   sgd_carry    in weight g master? correction(fp32) last dials carry(5) fp32 verdict clock
 *                out weight master? correction last sums(3) fp64
 *                sgd without momentum, to the bit. u = new theta - old theta, theta the master where there is one,
 *                otherwise the weight as stored: v = step(v) - remove * u; last = g. sums of the new v and x: g, or u
 *                where something is removed. The verdict forbids to write: sums are 0
 *   carry_apply  in weight master? correction last carry   out weight master? sums(3) fp64
 *                theta = theta + step(v) in fp32; weight = theta, rounded to nearest. sums of step(v) and x, the theta
 *                that is stored less the old one
 *
 * Sums are fp64, of fixed tiles, added in one order. */
#include "ir/op_int.h"

void op_sgd_carry(Program *p, UpdateTensors t, CarryTensors c, AttrUpdate attr) {
    CHECK(!t.m && !t.v);
    prog_emit(p, (Step){.op = OP_SGD_CARRY,
                        .sgd_carry = {.in = {.weight = t.weight,
                                             .g = t.gradient,
                                             .master = t.master,
                                             .correction = c.correction,
                                             .last = c.last,
                                             .dials = t.dials,
                                             .carry = c.dials,
                                             .verdict = t.verdict,
                                             .clock = p->clock},
                                      .out = {.weight = t.weight,
                                              .master = t.master,
                                              .correction = c.correction,
                                              .last = c.last,
                                              .sums = c.sums}},
                        .attr.update = attr});
}

void op_carry_apply(Program *p, UpdateTensors t, CarryTensors c, AttrUpdate attr) {
    prog_emit(p, (Step){.op = OP_CARRY_APPLY,
                        .carry_apply = {.in = {.weight = t.weight,
                                               .master = t.master,
                                               .correction = c.correction,
                                               .last = c.last,
                                               .carry = c.dials},
                                        .out = {.weight = t.weight, .master = t.master, .sums = c.sums}},
                        .attr.update = attr});
}

static int64_t sums_workspace(const Program *p, const Step *s, const Machine *m) {
    (void)m;
    return (prog_elements(p, prog_first_out(s)) + CARRY_TILE - 1) / CARRY_TILE * CARRY_SUMS * (int64_t)sizeof(double);
}

static const char *sgd_carry_shape(const Program *p, const Step *s) {
    bool same = prog_t(p, s->sgd_carry.in.g)->format == prog_t(p, s->sgd_carry.in.last)->format;
    return same ? NULL : "the last gradient has another format";
}

const OpRow op_row_sgd_carry = {
    .shape = sgd_carry_shape, .workspace = sums_workspace, .flags = OPF_WRITES_STATE | OPF_RANDOM};
const OpRow op_row_carry_apply = {.workspace = sums_workspace, .flags = OPF_WRITES_STATE};
