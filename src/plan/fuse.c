/* fuse.c - the add of a residual stream and the norm that reads it next become one step: its sum is still in registers when
 * the norm needs it.
 *
 *   F1  an add and the rmsnorm of its sum that stands right behind it, in one phase, region and queue. This comes after
 *       recompute: a norm alone is cheap to make again from the kept sum, and its clone stays a norm.
 *   F2  a clone repeats one half of a fused step or both: a pair of clones becomes one step only where its originals did,
 *       and both halves of an original are known as the fused step from then on (V5 of verify.c).
 *   F3  the step has the add's layer, which wrote the sum before (what leaves a layer is counted by it), and the norm's key;
 *       neither half draws. The sum may take b's slot: like the add before it, the step holds three rows a token (P5: the
 *       same bits, since the norm reads what the sum was rounded to). */
#include "plan/plan_int.h"

static bool is_pair(const Program *p, int add) { /* F1; the caller knows that add + 1 is of the same phase */
    const Step *a = &p->s[add], *n = &p->s[add + 1];
    if (a->op != OP_ADD || n->op != OP_RMSNORM) return false;
    if (n->rmsnorm.in.x != a->add.out.sum || p->t[a->add.out.sum].base) return false;
    return a->region == n->region && a->queue == n->queue && (a->clone_of < 0) == (n->clone_of < 0);
}

static Step fused_step(const Step *add, const Step *norm) {
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

void plan_fuse(Program *p) {
    Rewrite w;
    rewrite_begin(&w, p);
    for (int ph = 0; ph < p->n_phases; ph++) {
        rewrite_phase(&w);
        for (int i = p->phase[ph].begin; i < p->phase[ph].end; i++) {
            const Step *a = &p->s[i], *n = a + 1;
            bool pair = i + 1 < p->phase[ph].end && is_pair(p, i);
            if (pair && a->clone_of >= 0) pair = w.moved[a->clone_of] == w.moved[n->clone_of]; /* F2 */
            if (!pair) {
                rewrite_keep(&w, i, *a);
                continue;
            }
            Step s = fused_step(a, n);
            if (s.clone_of >= 0) s.clone_of = w.moved[s.clone_of];
            w.moved[i] = w.moved[i + 1] = rewrite_add(&w, s);
            i++;
        }
    }
    rewrite_end(&w);
}
