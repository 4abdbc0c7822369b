/* remake.c - recompute twice: what the attention of a recomputed layer needs after its feed-forward is recomputed once
 * more, instead of being kept meanwhile.
 *
 * Backward recomputes a block from its input, then goes through its feed-forward, then through its attention. What the
 * second half reads (the norm in front, q, k, v) lies idle during the first, at the time when most is alive.
 *
 *   A1  a layer's backward has three stages: its feed-forward (all up to the first step of PART_ATTENTION), its
 *       attention up to the first gradient that mixes tokens, and the rest. A reader in a later stage than the clone it
 *       reads gets a clone of its own, which stands right before it.
 *   A2  a step that mixes tokens is never run again: what it gave stays. In the last stage only cheap steps are
 *       repeated: a product would cost more than the little that is alive there.
 *   A3  only a step's first output is a reason to run it (R2); the others are taken from the newest clone there is. */
#include "plan/plan_int.h"

typedef enum Stage { STAGE_FFN, STAGE_ATTENTION, STAGE_REST, STAGES } Stage;

typedef struct Remade {
    int step; /* the clone that writes it; -1: not one of plan_recompute's in the layer at hand */
    bool first;
    Tid twin[STAGES]; /* what stands for it in a later stage; NONE: nothing yet */
} Remade;

typedef struct Remake {
    Program *p;
    Rewrite w;
    Remade *made; /* owns: per tensor of the program as it was */
    int64_t recorded;
    Stage stage;
} Remake;

static bool is_worth_it(OpId op, Stage stage) { /* A2 */
    uint32_t flags = op_row(op)->flags;
    return stage == STAGE_ATTENTION ? !(flags & OPF_MIXES_TOKENS) : flags & OPF_CHEAP;
}

static Tid newest(Remake *r, Tid id);

static void repeat_step(Remake *r, int step) {
    Step c = r->p->s[step];
    for (int k = 0; k < MAX_IN; k++)
        if (c.in[k]) c.in[k] = newest(r, c.in[k]);
    for (int k = 0; k < MAX_OUT; k++) {
        if (!c.out[k]) continue;
        Tid twin = rewrite_twin(r->p, c.out[k], "twice");
        r->made[c.out[k]].twin[r->stage] = twin;
        c.out[k] = twin;
    }
    c.clone_of = r->w.moved[c.clone_of];
    rewrite_add(&r->w, c);
}

/* The tensor that a reader in this stage takes instead of id. */
static Tid newest(Remake *r, Tid id) {
    Tid base = prog_base(r->p, id);
    if (base >= r->recorded || r->made[base].step < 0 || r->stage == STAGE_FFN) return id;
    Remade *m = &r->made[base];
    if (!m->twin[r->stage] && m->first && is_worth_it(r->p->s[m->step].op, r->stage)) repeat_step(r, m->step);
    Tid twin = NONE;
    for (int stage = STAGE_ATTENTION; stage <= (int)r->stage; stage++)
        if (m->twin[stage]) twin = m->twin[stage];
    return !twin ? id : id == base ? twin : rewrite_twin_view(r->p, id, twin);
}

static void note_clone(Remake *r, int step) {
    const Step *s = &r->p->s[step];
    for (int k = 0; k < MAX_OUT; k++)
        if (s->out[k] && !r->p->t[s->out[k]].base) r->made[s->out[k]] = (Remade){.step = step, .first = k == 0};
}

/* The part of the layer that backward is in at step i: a clone belongs to the backward step that it stands before. */
static Part backward_part(const Program *p, int i) {
    int layer = p->s[i].layer;
    while (i < p->n_s && p->s[i].layer == layer && p->s[i].region != REGION_BACKWARD) i++;
    return i < p->n_s && p->s[i].layer == layer ? (Part)p->s[i].part : PART_NONE;
}

static void rewrite_step(Remake *r, int i) {
    Step s = r->p->s[i];
    bool backward = s.region == REGION_BACKWARD, clone = s.region == REGION_RECOMPUTE && s.clone_of >= 0;
    if ((backward || clone) && backward_part(r->p, i) == PART_ATTENTION) /* A1 */
        r->stage = MAX2(r->stage, STAGE_ATTENTION);
    for (int k = 0; k < MAX_IN && backward; k++)
        if (s.in[k]) s.in[k] = newest(r, s.in[k]);
    rewrite_keep(&r->w, i, s);
    if (clone && r->stage == STAGE_FFN) note_clone(r, i);
    if (backward && op_row(s.op)->flags & OPF_MIXES_TOKENS) r->stage = STAGE_REST;
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
            if (begins) r.stage = STAGE_FFN;
            if (twice) rewrite_step(&r, i);
            else rewrite_keep(&r.w, i, *s);
        }
    }
    rewrite_end(&r.w);
    mem_free(r.made);
}
