/* join_loss.c - the loss of an indexer is computed by the same step as its gradient.
 *
 * Both need the attention and the scores of every pair that counts, which is nearly all of their work. So index_loss at
 * step f goes, and its index_loss_grad at step b writes the statistic as well, when
 *   J1  b stands behind f in its phase and reads the same tensors;
 *   J2  that holds for every step of the phase that adds to this statistic;
 *   J3  no other step of the phase reads or writes the statistic (P4).
 * The layers then add to it in the order of backward: the loss that is reported is equal to rounding of an fp64 sum,
 * and nothing else changes. A phase without gradients (evaluation) keeps its losses. */
#include "plan/plan_int.h"

static bool same_operands(const Step *f, const Step *b) { /* J1 */
    for (int k = 0; k <= OP_IN(index_loss, divisor); k++)
        if (f->in[k] != b->in[k]) return false;
    return true;
}

static int gradient_of(const Program *p, const Phase *phase, int f) { /* -1: none */
    for (int i = f + 1; i < phase->end; i++)
        if (p->s[i].op == OP_INDEX_LOSS_GRAD && !p->s[i].index_loss_grad.out.stat && same_operands(&p->s[f], &p->s[i]))
            return i;
    return -1;
}

static bool names(const Step *s, Tid stat) {
    for (int k = 0; k < MAX_IN; k++)
        if (s->in[k] == stat) return true;
    for (int k = 0; k < MAX_OUT; k++)
        if (s->out[k] == stat) return true;
    return false;
}

/* Marks the losses on this statistic by their gradients; false: J1 to J3 do not hold, and some marks may be wrong. */
static bool find_gradients(const Program *p, const Phase *phase, Tid stat, int *gradient) {
    bool first = true;
    for (int i = phase->begin; i < phase->end; i++) {
        const Step *s = &p->s[i];
        if (!names(s, stat)) continue;
        if (s->op != OP_INDEX_LOSS || (!first && s->index_loss.in.beta)) return false; /* it begins the sum anew */
        gradient[i] = gradient_of(p, phase, i);
        if (gradient[i] < 0) return false;
        first = false;
    }
    return true;
}

static bool adds_to(const Step *s, Tid stat) { return s->op == OP_INDEX_LOSS && s->index_loss.out.stat == stat; }

/* The gradients write the statistic instead; the first of them begins it as the first loss did. */
static void join(Program *p, const Phase *phase, Tid stat, int loss, int *gradient) {
    bool can = find_gradients(p, phase, stat, gradient);
    int first = phase->end;
    for (int i = phase->begin; i < phase->end; i++) {
        if (!adds_to(&p->s[i], stat)) continue;
        if (!can) {
            gradient[i] = -1;
            continue;
        }
        p->s[gradient[i]].index_loss_grad.out.stat = stat;
        first = MIN2(first, gradient[i]);
    }
    if (can) p->s[first].index_loss_grad.in.stat_beta = p->s[loss].index_loss.in.beta;
}

void plan_join_losses(Program *p) {
    Rewrite w;
    int *gradient = MEM_NEW(int, p->n_s + 1); /* of a loss that goes; -1: the step stays */
    plan_check_phases(p);
    for (int64_t i = 0; i < p->n_s; i++) gradient[i] = -1;
    for (int ph = 0; ph < p->n_phases; ph++)
        for (int i = p->phase[ph].begin; i < p->phase[ph].end; i++)
            if (p->s[i].op == OP_INDEX_LOSS && gradient[i] < 0)
                join(p, &p->phase[ph], p->s[i].index_loss.out.stat, i, gradient);
    rewrite_begin(&w, p);
    for (int ph = 0; ph < p->n_phases; ph++) {
        rewrite_phase(&w);
        for (int i = p->phase[ph].begin; i < p->phase[ph].end; i++)
            if (gradient[i] < 0) rewrite_keep(&w, i, p->s[i]);
    }
    rewrite_end(&w);
    mem_free(gradient);
}
