/* gate.c - a product of a few rows and the gate behind it become one step: a device that only waits for weights then has one
 * kernel less to wait for between two products.
 *
 *   G1  a direct linear over a quantised weight, of at most LINEAR_SWIGLU_ROWS rows, and the swiglu of what it gives that
 *       stands right behind it, in one phase, region and queue, where nobody else reads what would no longer be written.
 *   G2  neither is a clone, and neither has one: backward reads what lies between them.
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
    Tid y = linear->out[0];
    Format stored = p->t[prog_base(p, linear->in[1])].home.stored;
    if ((stored != FMT_INT8 && stored != FMT_NF4) || prog_rows(p, linear->in[0]) > LINEAR_SWIGLU_ROWS) return false;
    if (gate->in[0] != y || p->t[y].base || p->t[y].role != ROLE_ACTIVATION || readers[y] != 1) return false;
    return linear->region == gate->region && linear->queue == gate->queue;
}

/* Steps that are clones or have one: mem_free. */
static bool *find_clones(const Program *p) {
    bool *cloned = MEM_NEW(bool, p->n_s + 1);
    for (int64_t i = 0; i < p->n_s; i++)
        if (p->s[i].clone_of >= 0) cloned[i] = cloned[p->s[i].clone_of] = true;
    return cloned;
}

void plan_gate(Program *p) {
    Rewrite w;
    int *readers = count_readers(p);
    bool *cloned = find_clones(p);
    rewrite_begin(&w, p);
    for (int ph = 0; ph < p->n_phases; ph++) {
        rewrite_phase(&w);
        for (int i = p->phase[ph].begin; i < p->phase[ph].end; i++) {
            Step s = p->s[i];
            bool last = i + 1 == p->phase[ph].end;
            if (last || cloned[i] || cloned[i + 1] || !is_pair(p, readers, &p->s[i], &p->s[i + 1])) {
                rewrite_keep(&w, i, s);
                continue;
            }
            s.op = OP_LINEAR_SWIGLU;
            s.attr = (Attr){0};
            s.out[0] = p->s[i + 1].out[0];
            w.moved[i] = w.moved[i + 1] = rewrite_add(&w, s);
            i++;
        }
    }
    rewrite_end(&w);
    mem_free(readers);
    mem_free(cloned);
}
