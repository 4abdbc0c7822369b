/* remake.c - what a recomputed layer's attention needs after its feed-forward is made once more, instead of waiting.
 *
 * Backward makes a block again from its input, then goes through its feed-forward, then through its attention. What the second
 * half reads (the norm in front, q, k, v) lies idle during the first, at the time when most is alive.
 *
 *   A1  a layer's backward has three parts: up to its first norm's gradient (the feed-forward), up to attention's gradient,
 *       and the rest. A reader in a later part than the clone it reads gets a clone of its own, which stands right before it.
 *   A2  attention itself is never run again: what it gave stays. In the last part only norms are made again: a product would
 *       cost more than the little that is alive there.
 *   A3  only a step's first output is a reason to run it (R2); the others are taken from the newest clone there is. */
#include "plan/plan_int.h"

enum { PARTS = 3 };

typedef struct Remade {
    int step; /* the clone that writes it; -1: not one of plan_recompute's in the layer at hand */
    bool first;
    Tid twin[PARTS]; /* what stands for it in a later part; NONE: nothing yet */
} Remade;

typedef struct Remake {
    Program *p;
    Rewrite w;
    Remade *made; /* owns: per tensor of the program as it was */
    int64_t recorded;
    int part;
} Remake;

static bool is_cheap(OpId op, int part) { /* A2 */
    if (op == OP_RMSNORM) return true;
    return part == 1 && (op == OP_LINEAR || op == OP_LORA || op == OP_HEAD_NORM || op == OP_ROPE);
}

static Tid newest(Remake *r, Tid id);

static void make_again(Remake *r, int step) {
    Step c = r->p->s[step];
    for (int k = 0; k < MAX_IN; k++)
        if (c.in[k]) c.in[k] = newest(r, c.in[k]);
    for (int k = 0; k < MAX_OUT; k++) {
        if (!c.out[k]) continue;
        Tid twin = rewrite_twin(r->p, c.out[k], "twice");
        r->made[c.out[k]].twin[r->part] = twin;
        c.out[k] = twin;
    }
    c.clone_of = r->w.moved[c.clone_of];
    rewrite_add(&r->w, c);
}

/* The tensor that a reader in this part takes instead of id. */
static Tid newest(Remake *r, Tid id) {
    Tid base = prog_base(r->p, id);
    if (base >= r->recorded || r->made[base].step < 0 || !r->part) return id;
    Remade *m = &r->made[base];
    if (!m->twin[r->part] && m->first && is_cheap(r->p->s[m->step].op, r->part)) make_again(r, m->step);
    Tid twin = NONE;
    for (int part = 1; part <= r->part; part++)
        if (m->twin[part]) twin = m->twin[part];
    return !twin ? id : id == base ? twin : rewrite_twin_view(r->p, id, twin);
}

static void note_clone(Remake *r, int step) {
    const Step *s = &r->p->s[step];
    for (int k = 0; k < MAX_OUT; k++)
        if (s->out[k] && !r->p->t[s->out[k]].base) r->made[s->out[k]] = (Remade){.step = step, .first = k == 0};
}

static void rewrite_step(Remake *r, int i) {
    Step s = r->p->s[i];
    for (int k = 0; k < MAX_IN && s.region == REGION_BACKWARD; k++)
        if (s.in[k]) s.in[k] = newest(r, s.in[k]);
    rewrite_keep(&r->w, i, s);
    if (s.region == REGION_RECOMPUTE && s.clone_of >= 0 && !r->part) note_clone(r, i);
    if (s.op == OP_RMSNORM_GRAD) r->part = MAX2(r->part, 1); /* A1 */
    if (s.op == OP_ATTEND_GRAD) r->part = 2;
}

void plan_remake(Program *p, const RecomputeLevel *per_layer, int layers) {
    Remake r = {.p = p, .recorded = p->n_t, .made = MEM_NEW(Remade, p->n_t)};
    for (int64_t i = 0; i < p->n_t; i++) r.made[i].step = -1;
    rewrite_begin(&r.w, p);
    for (int ph = 0; ph < p->n_phases; ph++) {
        rewrite_phase(&r.w);
        for (int i = p->phase[ph].begin; i < p->phase[ph].end; i++) {
            const Step *s = &p->s[i];
            bool twice = s->layer >= 0 && s->layer < layers && per_layer[s->layer] == RECOMPUTE_TWICE;
            bool begins = i == p->phase[ph].begin || p->s[i - 1].layer != s->layer;
            if (begins) r.part = 0;
            if (twice) rewrite_step(&r, i);
            else rewrite_keep(&r.w, i, *s);
        }
    }
    rewrite_end(&r.w);
    mem_free(r.made);
}
