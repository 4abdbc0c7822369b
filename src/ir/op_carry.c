/* op_carry.c - the steps on a correction v that stands beside each trained weight and is carried along a run
 * (unlearn/correction.h says what for).
 *
 *   sgd_carry    in weight g master? correction(fp32) dials carry(5) fp32 verdict clock
 *                out weight master? correction sums(3) fp64
 *                sgd without momentum, to the bit. In the same pass, with mult and decay of the weight and u = new
 *                theta - old theta (theta is the master where there is one, otherwise the weight as stored):
 *                v = keep * ((1 - lr*mult*(decay + damping)) * v - lr*mult*times * g) - remove * u
 *                keep 0: neither v nor g counts, whatever they hold. lr is CARRY_LR: 0 where v only loses u.
 *                sums of the new v and u; all 0 where the verdict forbids to write
 *   carry_sums   in correction g                          out sums(3) fp64: of v and u = g
 *   carry_apply  in weight master? correction carry(5)    out weight master? sums(3) fp64
 *                theta = theta + keep * v in fp32 (keep 0: theta); weight = theta, rounded to nearest; sums of keep * v
 *                and u = the theta that is stored less the old one
 *
 * Sums are fp64, of fixed tiles, added in one order. */
#include "ir/op_int.h"

void op_sgd_carry(Program *p, UpdateTensors t, CarryTensors c, AttrUpdate attr) {
    CHECK(!t.m && !t.v);
    prog_emit(
        p,
        (Step){
            .op = OP_SGD_CARRY,
            .sgd_carry = {.in = {.weight = t.weight,
                                 .g = t.gradient,
                                 .master = t.master,
                                 .correction = c.correction,
                                 .dials = t.dials,
                                 .carry = c.dials,
                                 .verdict = t.verdict,
                                 .clock = p->clock},
                          .out = {.weight = t.weight, .master = t.master, .correction = c.correction, .sums = c.sums}},
            .attr.update = attr});
}

void op_carry_sums(Program *p, CarryTensors c, Tid gradient) {
    prog_emit(p, (Step){.op = OP_CARRY_SUMS,
                        .carry_sums = {.in = {.correction = c.correction, .g = gradient}, .out = {.sums = c.sums}}});
}

void op_carry_apply(Program *p, CarryTensors c, Tid weight, Tid master) {
    prog_emit(p, (Step){.op = OP_CARRY_APPLY,
                        .carry_apply = {
                            .in = {.weight = weight, .master = master, .correction = c.correction, .carry = c.dials},
                            .out = {.weight = weight, .master = master, .sums = c.sums}}});
}

static int64_t sums_workspace(const Program *p, const Step *s, const Machine *m) {
    (void)m;
    return (prog_elements(p, s->in[0]) + CARRY_TILE - 1) / CARRY_TILE * CARRY_SUMS * (int64_t)sizeof(double);
}

const OpRow op_row_sgd_carry = {.workspace = sums_workspace, .flags = OPF_WRITES_STATE | OPF_RANDOM};
const OpRow op_row_carry_sums = {.workspace = sums_workspace, .flags = OPF_WRITES_STATE};
const OpRow op_row_carry_apply = {.workspace = sums_workspace, .flags = OPF_WRITES_STATE};
