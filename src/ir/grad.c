/* grad.c - how a gradient walks back through a program; the calculus of each op stands in its row. */
#include <string.h>

#include "ir/op.h"

static void grads_fit(const Program *p, Grads *g) {
    if (g->n >= p->n_t) return;
    int64_t cap = g->n, n = p->n_t * 2;
    g->g = mem_grow(g->g, &cap, n, sizeof *g->g);
    memset(g->g + g->n, 0, (size_t)(cap - g->n) * sizeof *g->g);
    g->n = cap;
}

Tid grad_get(const Grads *g, Tid t) { return t < g->n ? g->g[t] : NONE; }

void grad_set(Grads *g, Tid t, Tid total) {
    CHECK(t < g->n);
    g->g[t] = total;
}

void grad_flow(Program *p, Grads *g, Tid t, Tid contribution) {
    if (!p->t[t].needs_grad) return;
    grads_fit(p, g);
    Tid so_far = g->g[t];
    if (so_far) contribution = op_add(p, "d_sum", so_far, contribution);
    grads_fit(p, g);
    g->g[t] = contribution;
}

Tid grad_of_weight(Program *p, Tid weight, Tid *beta) {
    Tensor w = *prog_t(p, weight);
    CHECK_MSG(w.trainable && w.grad, "%s has no gradient tensor", w.name);
    *beta = prog_is_written(p, w.grad) ? NONE : p->beta;
    return w.grad;
}

void prog_backward(Program *p, int begin, const Root *roots, int n_roots) {
    Grads g = {0};
    grads_fit(p, &g);
    CHECK(g.g); /* a program has its tensor 0 */
    for (int i = 0; i < n_roots; i++) {
        /* a scalar loss: its gradient is 1, which rules read as the root itself */
        g.g[roots[i].tensor] = roots[i].grad ? roots[i].grad : roots[i].tensor;
        p->t[roots[i].tensor].needs_grad = true;
    }
    Region region = p->region;
    Part part = p->part;
    int layer = p->layer;
    p->region = REGION_BACKWARD;
    for (int i = (int)p->n_s - 1; i >= begin; i--) {
        Step s = p->s[i];
        GradRule *rule = op_row(s.op)->grad;
        if (!rule) continue;
        bool reached = false, wanted = false;
        for (int k = 0; k < MAX_OUT; k++) reached |= s.out[k] && grad_get(&g, s.out[k]);
        for (int k = 0; k < MAX_IN; k++) wanted |= s.in[k] && p->t[s.in[k]].needs_grad;
        if (!reached || !wanted) continue;
        p->layer = s.layer;
        p->part = (Part)s.part;
        rule(p, s, &g);
        grads_fit(p, &g);
    }
    p->region = region;
    p->part = part;
    p->layer = layer;
    mem_free(g.g);
}
