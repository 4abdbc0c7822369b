/* offload.c - activation offload: the inputs of layers, which forward keeps for backward, wait in pinned memory
 * meanwhile.
 *
 *     x (device)  --copy out-->  x.offloaded (pinned)  --copy in-->  x.prefetched (device)
 *
 * Backward and recompute read the last.
 *
 *   O1  only the input of a layer is offloaded (the residual stream): it is large, and idle between its layer's forward
 *       and backward. The rest of a layer is better recomputed than moved (recompute.c).
 *   O2  the copy out stands right after the last step of forward that reads x; x's own bytes are free soon after
 *       (P2). The copy in is issued one visit before backward's first use, so it overlaps with computation. late: only
 *       after that visit's attention, when most of its memory is free; less time is then left to overlap with.
 *   O3  steps of the same phase only: nothing is carried into another phase through pinned memory. */
#include <stdlib.h>

#include "plan/plan_int.h"

typedef struct Offloaded { /* one tensor */
    Tid x, offloaded, prefetched; /* on the device, in pinned memory, on the device again */
    int last;  /* of forward's steps that touch it */
    int first; /* of backward's */
    int issue; /* the step in front of which the copy in stands */
} Offloaded;

typedef struct Offload {
    Program *p;
    int64_t recorded;  /* tensors before this pass made any */
    int *writer;      /* owns: per tensor, the step of this phase that writes it; -1: none */
    int *last, *first; /* own: per tensor, as in Offloaded; -1: none */
    int *of;          /* owns: per tensor, its place in `list`; -1: it stays */
    Offloaded *list;  /* owns */
    int64_t n, cap;
    bool late;        /* O2 */
} Offload;

static bool is_backward(const Step *s) { return s->region == REGION_BACKWARD || s->region == REGION_RECOMPUTE; }

static void note_tensors(Offload *o, const Phase *phase) {
    const Program *p = o->p;
    for (Tid id = 0; id < o->recorded; id++) o->writer[id] = o->last[id] = o->first[id] = o->of[id] = -1;
    for (int i = phase->begin; i < phase->end; i++) {
        const Step *s = &p->s[i];
        for (int k = 0; k < MAX_IN; k++) {
            Tid id = s->in[k] ? prog_base(p, s->in[k]) : NONE;
            if (!id) continue;
            if (!is_backward(s)) o->last[id] = i;
            else if (o->first[id] < 0) o->first[id] = i;
        }
        for (int k = 0; k < MAX_OUT; k++)
            if (s->out[k] && !p->t[s->out[k]].base) o->writer[s->out[k]] = o->last[s->out[k]] = i;
    }
}

/* One visit before: the begin of the stretch of another layer that ends where step's own begins. */
static int visit_before(const Program *p, const Phase *phase, int step) {
    int layer = p->s[step].layer, i = step;
    while (i > phase->begin && p->s[i - 1].layer == layer) i--;
    if (i == phase->begin) return i;
    layer = p->s[i - 1].layer;
    while (i > phase->begin && p->s[i - 1].layer == layer) i--;
    return i;
}

/* Behind the first gradient of attention in [from, to), or `from`. */
static int behind_attention(const Program *p, int from, int to) {
    for (int i = from; i < to; i++)
        if (p->s[i].region == REGION_BACKWARD && op_row(p->s[i].op)->flags & OPF_MIXES_TOKENS) return i + 1;
    return from;
}

static bool is_offloaded(const Offload *o, Tid id, int layers) { /* O1 */
    const Program *p = o->p;
    const Tensor *t = &p->t[id];
    int w = o->writer[id], first = o->first[id];
    if (t->role != ROLE_ACTIVATION || t->base || w < 0 || first < 0 || is_backward(&p->s[w])) return false;
    int layer = p->s[first].layer;
    return layer >= 0 && layer < layers && p->s[w].layer != layer && o->last[id] < first;
}

static int by_last(const void *a, const void *b) { return ((const Offloaded *)a)->last - ((const Offloaded *)b)->last; }

static void note_offloaded(Offload *o, const Phase *phase, int layers) {
    Program *p = o->p;
    o->n = 0;
    for (Tid id = 1; id < o->recorded; id++) {
        if (!is_offloaded(o, id, layers)) continue;
        o->list = mem_grow(o->list, &o->cap, o->n + 1, sizeof *o->list);
        Offloaded *t = &o->list[o->n++];
        *t = (Offloaded){.x = id, .last = o->last[id], .first = o->first[id]};
        t->issue = MAX2(visit_before(p, phase, t->first), t->last + 1);
        if (o->late) t->issue = behind_attention(p, t->issue, t->first);
        t->offloaded = rewrite_twin(p, id, "offloaded");
        p->t[t->offloaded].home.pool = POOL_PINNED;
        t->prefetched = rewrite_twin(p, id, "prefetched");
    }
    if (o->n) qsort(o->list, (size_t)o->n, sizeof *o->list, by_last);
    for (int64_t i = 0; i < o->n; i++) o->of[o->list[i].x] = (int)i;
}

static void add_copy(Rewrite *w, Tid to, Tid from, Queue queue, int layer) {
    rewrite_add(w, (Step){.op = OP_COPY, .copy = {.in = {from}, .out = {to}}, .queue = queue, .region = REGION_MOVE,
                          .layer = layer, .clone_of = -1, .key = w->p->next_key++});
}

static Step with_prefetched(const Offload *o, Step s) {
    for (int k = 0; k < MAX_IN && is_backward(&s); k++) {
        Tid base = s.in[k] ? prog_base(o->p, s.in[k]) : NONE;
        if (!base || o->of[base] < 0) continue;
        Tid prefetched = o->list[o->of[base]].prefetched;
        s.in[k] = s.in[k] == base ? prefetched : rewrite_twin_view(o->p, s.in[k], prefetched);
    }
    return s;
}

static void rewrite_with_copies(Offload *o, Rewrite *w, const Phase *phase) {
    const Program *p = o->p;
    for (int i = phase->begin; i < phase->end; i++) {
        Step s = p->s[i];
        for (int64_t k = o->n - 1; k >= 0; k--) /* the last to be offloaded is the first to be needed */
            if (o->list[k].issue == i) add_copy(w, o->list[k].prefetched, o->list[k].offloaded, QUEUE_COPY_IN, s.layer);
        rewrite_keep(w, i, with_prefetched(o, s));
        for (int64_t k = 0; k < o->n; k++)
            if (o->list[k].last == i) add_copy(w, o->list[k].offloaded, o->list[k].x, QUEUE_COPY_OUT, s.layer);
    }
}

void plan_offload(Program *p, int layers, bool late) {
    if (layers <= 0) return;
    Rewrite w;
    Offload o = {.p = p, .late = late, .recorded = p->n_t, .writer = MEM_NEW(int, p->n_t), .last = MEM_NEW(int, p->n_t),
                 .first = MEM_NEW(int, p->n_t), .of = MEM_NEW(int, p->n_t)};
    rewrite_begin(&w, p);
    for (int ph = 0; ph < p->n_phases; ph++) {
        note_tensors(&o, &p->phase[ph]);
        note_offloaded(&o, &p->phase[ph], layers);
        rewrite_phase(&w);
        rewrite_with_copies(&o, &w, &p->phase[ph]);
    }
    rewrite_end(&w);
    mem_free(o.writer);
    mem_free(o.last);
    mem_free(o.first);
    mem_free(o.of);
    mem_free(o.list);
}
