/* gate.c - SwiGLU in the epilogue: a product of a few rows and the gate behind it become one step. A device that is
 * bound by reading weights then has one kernel less to wait for between two products.
 *
 *   G1  a direct linear over a quantised weight, of at most LINEAR_SWIGLU_ROWS rows, and the swiglu of what it gives
 *       that stands right behind it, in one phase, region and queue, where no other step reads what would no longer be
 *       written.
 *   G2  neither is a clone, and neither has one: backward reads what lies between them.
 *   G3  the step has the linear's layer and key; nothing of it draws. */
#include "plan/plan_int.h"

static bool is_few_rows_of_codes(const Program *p, const Step *linear, const Step *gate) { /* G1 */
    if (!linear->attr.linear.direct || linear->clone_of >= 0) return false;
    if (gate->swiglu.in.gate_up != linear->linear.out.y) return false;
    const Tensor *y = prog_t(p, linear->linear.out.y);
    Format stored = p->t[prog_base(p, linear->linear.in.w)].home.stored;
    bool codes = stored == FMT_INT8 || stored == FMT_NF4;
    return codes && prog_rows(p, linear->linear.in.x) <= LINEAR_SWIGLU_ROWS && !y->base && y->role == ROLE_ACTIVATION;
}

static Step linear_and_gate(const Step *linear, const Step *gate) { /* G3 */
    Step s = *linear;
    s.op = OP_LINEAR_SWIGLU;
    s.attr = (Attr){0};
    prog_clear_operands(&s);
    s.linear_swiglu.in.x = linear->linear.in.x;
    s.linear_swiglu.in.w = linear->linear.in.w;
    s.linear_swiglu.in.bias = linear->linear.in.bias;
    s.linear_swiglu.out.h = gate->swiglu.out.h;
    return s;
}

void plan_gate(Program *p) {
    rewrite_pairs(p, &(Pair){OP_LINEAR, OP_SWIGLU, is_few_rows_of_codes, linear_and_gate, true});
}
