/* residual.c - the add of a residual stream is done by the product that makes what is added.
 *
 * linear y = x w^T, add z = a + y write y and read it again. As linear z = a + x w^T the product reads a beside arithmetic
 * that takes longer, and y is never there. The sum is the same, and may be rounded once instead of twice.
 *
 *   R1  the add stands right behind the product, in one phase, and nothing else reads y;
 *   R2  the product adds to nothing yet, and has more rows than there is a kernel of its own for (LINEAR_DIRECT_ROWS). */
#include "plan/plan_int.h"

static bool is_pair(const Program *p, const Step *linear, const Step *add, const int *readers) {
    if (linear->op != OP_LINEAR || add->op != OP_ADD || linear->region != add->region) return false;
    Tid y = linear->out[0];
    bool alone = readers[y] == 1 && !p->t[y].base && (add->in[0] == y) != (add->in[1] == y); /* R1 */
    return alone && !linear->in[3] && !linear->attr.linear.direct && prog_rows(p, linear->in[0]) > LINEAR_DIRECT_ROWS;
}

void plan_add_in_products(Program *p) {
    Rewrite w;
    int *readers = MEM_NEW(int, p->n_t);
    for (int64_t i = 0; i < p->n_s; i++)
        for (int k = 0; k < MAX_IN; k++)
            if (p->s[i].in[k]) readers[prog_base(p, p->s[i].in[k])]++;
    rewrite_begin(&w, p);
    for (int ph = 0; ph < p->n_phases; ph++) {
        rewrite_phase(&w);
        for (int i = p->phase[ph].begin; i < p->phase[ph].end; i++) {
            Step s = p->s[i];
            const Step *add = &p->s[i + 1];
            if (i + 1 < p->phase[ph].end && is_pair(p, &s, add, readers)) {
                s.in[3] = add->in[add->in[0] == s.out[0]];
                s.out[0] = add->out[0];
                int at = rewrite_keep(&w, i, s);
                w.moved[++i] = at;
            } else {
                rewrite_keep(&w, i, s);
            }
        }
    }
    rewrite_end(&w);
    mem_free(readers);
}
