/* early.c - optimizer in backward: the steps of an update that was recorded behind backward move to where their
 * gradients are complete.
 *
 *   U1  a step of the update stands right behind the last step it depends on: the last that writes what it reads,
 *       or touches what it writes. So a weight is updated after its last use, recomputed steps included (P4), and a
 *       gradient's lifetime ends there.
 *   U2  only within a phase; steps that depend on the same step keep their order, so what they compute does not change.
 *   U3  dependencies through statistics are tracked element by element: each tensor's sum is one element of a common
 *       list, and would otherwise wait for all sums recorded before it. */
#include <string.h>

#include "plan/plan_int.h"

typedef struct Early {
    Program *p;
    int *wrote,
        *touched; /* own: per tensor (U3: per view of a statistic), the step behind which that stands; -1: none */
    int *behind;  /* owns: per step of the update, the step it hangs on */
    int *next, *first; /* own: steps that hang on the same one, as a list */
} Early;

static bool has_parts(const Program *p, Tid id) {
    return p->t[id].base && p->t[p->t[id].base].role == ROLE_STATISTIC;
}

static Tid followed(const Program *p, Tid id) {
    return has_parts(p, id) ? id : prog_base(p, id);
}

/* The latest of `when` over everything that shares bytes with this tensor. */
static int latest(const Early *u, const int *when, Tid id) {
    const Program *p = u->p;
    int at = when[followed(p, id)];
    if (has_parts(p, id)) at = MAX2(at, when[p->t[id].base]);
    if (p->t[id].base || p->t[id].role != ROLE_STATISTIC) return at;
    for (Tid v = 1; v < p->n_t; v++)
        if (p->t[v].base == id) at = MAX2(at, when[v]);
    return at;
}

static int depends_on(const Early *u, const Step *s, int begin) {
    int at = begin;
    for (int k = 0; k < MAX_IN; k++)
        if (s->in[k]) at = MAX2(at, latest(u, u->wrote, s->in[k]));
    for (int k = 0; k < MAX_OUT; k++)
        if (s->out[k]) at = MAX2(at, latest(u, u->touched, s->out[k]));
    return at;
}

static void note(Early *u, const Step *s, int at) {
    for (int k = 0; k < MAX_IN; k++)
        if (s->in[k]) u->touched[followed(u->p, s->in[k])] = MAX2(u->touched[followed(u->p, s->in[k])], at);
    for (int k = 0; k < MAX_OUT; k++) {
        if (!s->out[k]) continue;
        Tid id = followed(u->p, s->out[k]);
        u->wrote[id] = MAX2(u->wrote[id], at);
        u->touched[id] = MAX2(u->touched[id], at);
    }
}

static void hang_phase(Early *u, const Phase *phase) {
    memset(u->wrote, -1, (size_t)u->p->n_t * sizeof *u->wrote);
    memset(u->touched, -1, (size_t)u->p->n_t * sizeof *u->touched);
    for (int i = phase->begin; i < phase->end; i++) {
        const Step *s = &u->p->s[i];
        u->behind[i] = s->region == REGION_UPDATE ? depends_on(u, s, phase->begin) : i;
        note(u, s, u->behind[i]);
    }
    for (int i = phase->end - 1; i >= phase->begin; i--) { /* so that each list is in order */
        if (u->p->s[i].region != REGION_UPDATE) continue;
        u->next[i] = u->first[u->behind[i]];
        u->first[u->behind[i]] = i;
    }
}

static bool has_both(const Program *p, const Phase *phase) {
    bool backward = false, update = false;
    for (int i = phase->begin; i < phase->end; i++) {
        backward |= p->s[i].region == REGION_BACKWARD;
        update |= p->s[i].region == REGION_UPDATE;
    }
    return backward && update && p->s[phase->begin].region != REGION_UPDATE;
}

void plan_update_early(Program *p) {
    Rewrite w;
    Early u = {.p = p,
               .wrote = MEM_NEW(int, p->n_t),
               .touched = MEM_NEW(int, p->n_t),
               .behind = MEM_NEW(int, p->n_s + 1),
               .next = MEM_NEW(int, p->n_s + 1),
               .first = MEM_NEW(int, p->n_s + 1)};
    memset(u.first, -1, (size_t)p->n_s * sizeof *u.first);
    rewrite_begin(&w, p);
    for (int ph = 0; ph < p->n_phases; ph++) {
        bool moves = has_both(p, &p->phase[ph]);
        rewrite_phase(&w);
        if (moves) hang_phase(&u, &p->phase[ph]);
        for (int i = p->phase[ph].begin; i < p->phase[ph].end; i++) {
            if (moves && p->s[i].region == REGION_UPDATE) continue;
            rewrite_keep(&w, i, p->s[i]);
            for (int k = u.first[i]; k >= 0; k = u.next[k]) rewrite_keep(&w, k, p->s[k]); /* U1 */
        }
    }
    rewrite_end(&w);
    mem_free(u.wrote);
    mem_free(u.touched);
    mem_free(u.behind);
    mem_free(u.next);
    mem_free(u.first);
}
