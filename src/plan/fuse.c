/* fuse.c - fused add + RMSNorm: the add of a residual stream and the norm that reads it next become one step, so that
 * the sum is still in registers when the norm needs it.
 *
 *   F1  an add and the rmsnorm of its sum that stands right behind it, in one phase, region and queue. This comes after
 *       recompute: a norm alone is cheap to recompute from the kept sum, and its clone stays a norm.
 *   F2  a clone repeats one half of a fused step or both: a pair of clones becomes one step only where its originals
 *       did, and both halves of an original are known as the fused step from then on (V5 of verify.c).
 *   F3  the step has the add's layer, which wrote the sum before (what leaves a layer is counted by it), and the
 *       norm's key; neither half draws. The sum may take b's slot: like the add before it, the step holds three rows
 *       a token (P5: the same bits, since the norm reads what the sum was rounded to). */
#include <string.h>

#include "plan/plan_int.h"

static bool reads_the_sum(const Program *p, const Step *add, const Step *norm) { /* F1 */
    return norm->rmsnorm.in.x == add->add.out.sum && !p->t[add->add.out.sum].base;
}

static Step add_and_norm(const Step *add, const Step *norm) {
    Step s = *norm;
    s.op = OP_ADD_RMSNORM;
    s.layer = add->layer;
    prog_clear_operands(&s);
    s.add_rmsnorm.in.a = add->add.in.a;
    s.add_rmsnorm.in.b = add->add.in.b;
    s.add_rmsnorm.in.w = norm->rmsnorm.in.w;
    s.add_rmsnorm.out.y = norm->rmsnorm.out.y;
    s.add_rmsnorm.out.rstd = norm->rmsnorm.out.rstd;
    s.add_rmsnorm.out.sum = add->add.out.sum;
    return s;
}

void plan_fuse(Program *p) { rewrite_pairs(p, &(Pair){OP_ADD, OP_RMSNORM, reads_the_sum, add_and_norm, false}); }

bool plan_half_of(Step *half, const Step *fused, OpId op) {
    if (fused->op != OP_ADD_RMSNORM || (op != OP_ADD && op != OP_RMSNORM)) return false;
    *half = *fused;
    half->op = op;
    prog_clear_operands(half);
    if (op == OP_ADD) {
        memset(&half->attr, 0, sizeof half->attr);
        half->add.in.a = fused->add_rmsnorm.in.a;
        half->add.in.b = fused->add_rmsnorm.in.b;
        half->add.out.sum = fused->add_rmsnorm.out.sum;
    } else {
        half->rmsnorm.in.x = fused->add_rmsnorm.out.sum;
        half->rmsnorm.in.w = fused->add_rmsnorm.in.w;
        half->rmsnorm.out.y = fused->add_rmsnorm.out.y;
        half->rmsnorm.out.rstd = fused->add_rmsnorm.out.rstd;
    }
    return true;
}
