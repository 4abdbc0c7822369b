/* gate.c - a product of a few rows and the gate behind it become one step: a device that only waits for weights then has one
 * kernel less to wait for between two products.
 *
 *   G1  a direct linear over a quantised weight, of at most LINEAR_SWIGLU_ROWS rows, and the swiglu of what it gives that
 *       stands right behind it, in one phase, region and queue, where nobody else reads what would no longer be written.
 *   G2  programs without backward alone: neither is a clone, and none has one.
 *   G3  the step has the linear's layer and key; nothing of it draws. */
#include "plan/plan_int.h"

/* Readers of every tensor: mem_free. Who reads a view counts twice for its base, so that it is not left out. */
static int *count_readers(const Program *p) {
    int *readers = MEM_NEW(int, p->n_t);
    for (int64_t i = 0; i < p->n_s; i++)
        for (int k = 0; k < MAX_IN; k++) {
            Tid t = p->s[i].in[k];
            if (t) readers[prog_base(p, t)] += p->t[t].base ? 2 : 1;
        }
    return readers;
}

static bool is_pair(const Program *p, const int *readers, const Step *linear, const Step *gate) { /* G1 */
    if (linear->op != OP_LINEAR || !linear->attr.linear.direct || gate->op != OP_SWIGLU) return false;
    Tid y = linear->linear.out.y;
    Format stored = p->t[prog_base(p, linear->linear.in.w)].home.stored;
    if (stored != FMT_INT8 && stored != FMT_NF4) return false;
    if (prog_rows(p, linear->linear.in.x) > LINEAR_SWIGLU_ROWS || gate->swiglu.in.gate_up != y) return false;
    if (p->t[y].base || p->t[y].role != ROLE_ACTIVATION || readers[y] != 1) return false;
    bool clones = linear->clone_of >= 0 || gate->clone_of >= 0;
    return !clones && linear->region == gate->region && linear->queue == gate->queue;
}

void plan_gate(Program *p) {
    Rewrite w;
    int *readers = count_readers(p);
    rewrite_begin(&w, p);
    for (int ph = 0; ph < p->n_phases; ph++) {
        rewrite_phase(&w);
        for (int i = p->phase[ph].begin; i < p->phase[ph].end; i++) {
            Step s = p->s[i];
            if (i + 1 == p->phase[ph].end || !is_pair(p, readers, &p->s[i], &p->s[i + 1])) {
                rewrite_keep(&w, i, s);
                continue;
            }
            const Step *linear = &p->s[i], *gate = &p->s[i + 1];
            s.op = OP_LINEAR_SWIGLU;
            s.attr = (Attr){0};
            prog_clear_operands(&s);
            s.linear_swiglu.in.x = linear->linear.in.x;
            s.linear_swiglu.in.w = linear->linear.in.w;
            s.linear_swiglu.in.bias = linear->linear.in.bias;
            s.linear_swiglu.out.h = gate->swiglu.out.h;
            w.moved[i] = w.moved[i + 1] = rewrite_add(&w, s);
            i++;
        }
    }
    rewrite_end(&w);
    mem_free(readers);
}
