/* lifetimes.c - liveness: from which step to which on the ring a tensor's bytes are needed.
 *
 * The flat step list is the ring in order. A life is one range of steps [birth, death], ends included.
 *   L1  weights, adapters, masters, moments, statistics, tables and dials live always, if any step uses them.
 *   L2  an input lives from the begin of the first phase that uses it to its last use: the host writes inputs
 *       before each play of a phase.
 *   L3  gradients and caches live from their first to their last use; a phase that repeats carries them across
 *       its plays, so there they live from its begin to its end.
 *   L4  an activation lives from its writer to its last reader. Read in a phase that repeats and did not write
 *       it, it lives to that phase's end: the next play reads it again. (Where it is written, it is made anew.)
 *   L5  an activation, gradient or cache that is read before it is written is carried around the ring: always.
 *   L6  a view's uses are its base's uses.
 *   L7  (P2) what a step on a side queue touches lives until that step is awaited: the first later step of
 *       another queue that reads one of its outputs; else the end of its phase. What a copy out (or a write to disk)
 *       reads lives until the next layer's on the same queue is issued, in an update until the next layer's begins, if
 *       that is earlier.
 *   L8  scratch lives in its step; that of steps which may run at once (OPF_TOGETHER) as long as they follow each
 *       other.
 *   L9  what a load phase has copied in lives to the end of its stay, where phases read it without another copy. */
#include "plan/plan_int.h"

typedef struct Walk {
    Program *p;
    const Phase *phase;
    int64_t *written; /* owns: per tensor, how many of its bytes have a writer so far */
} Walk;

static bool lives_always_by_role(Role r) {
    return (r >= ROLE_WEIGHT && r != ROLE_GRADIENT && r != ROLE_CACHE) || r == ROLE_TABLE || r == ROLE_DIAL;
}

static void live_always(Program *p, Tensor *t) {
    t->birth = 0;
    t->death = (int)p->n_s - 1;
}

static void extend(Tensor *t, int from, int to) {
    if (t->birth < 0 || from < t->birth) t->birth = from;
    if (to > t->death) t->death = to;
}

static void use(Walk *w, Tensor *t, int step) {
    bool repeats = w->phase->repeat > 1;
    if (lives_always_by_role(t->role))
        live_always(w->p, t); /* L1 */
    else if (t->role == ROLE_INPUT)
        extend(t, w->phase->begin, step); /* L2 */
    else if ((t->role == ROLE_GRADIENT || t->role == ROLE_CACHE) && repeats)
        extend(t, w->phase->begin, w->phase->end - 1); /* L3 */
    else
        extend(t, step, step); /* L4 */
    if (t->role == ROLE_ACTIVATION && repeats && t->birth < w->phase->begin) extend(t, step, w->phase->end - 1);
}

static void use_in(Walk *w, Tid id, int step) {
    Tid base = prog_base(w->p, id); /* L6 */
    Tensor *t = &w->p->t[base];
    bool there = w->written[id] == w->p->t[id].bytes || w->written[base] == t->bytes;
    bool changes = t->role == ROLE_ACTIVATION || t->role == ROLE_GRADIENT || t->role == ROLE_CACHE;
    use(w, t, step);
    if (changes && !there) live_always(w->p, t); /* L5; a later use cannot shorten it */
}

static void use_out(Walk *w, Tid id, int step) {
    Tid base = prog_base(w->p, id);
    use(w, &w->p->t[base], step);
    if (base != id && w->written[id] == 0) w->written[base] += w->p->t[id].bytes; /* disjoint parts (P1) */
    w->written[id] = w->p->t[id].bytes;
}

/* Ends of the lives that side queues draw out (L7), found from the phase's end to its begin. */
typedef struct Ends {
    int *awaited, *copied_out;          /* own: per step; of side queues only */
    int (*reader)[QUEUE_COUNT];   /* owns: per tensor, the next step of each queue that reads it */
} Ends;

static bool goes_out(Queue q) { return q == QUEUE_COPY_OUT || q == QUEUE_DISK_OUT; }

static void note_ends(Ends *e, const Program *p, const Phase *phase) {
    /* that go out: the next step, and the next of another layer than that one */
    int out[QUEUE_COUNT], other[QUEUE_COUNT];
    /* the next step of an update, and the next of another layer than that one */
    int update = phase->end - 1, behind = update;
    for (int q = 0; q < QUEUE_COUNT; q++) out[q] = other[q] = phase->end - 1;
    for (Tid id = 0; id < p->n_t; id++)
        for (int q = 0; q < QUEUE_COUNT; q++) e->reader[id][q] = phase->end - 1;
    for (int i = phase->end - 1; i >= phase->begin; i--) {
        const Step *s = &p->s[i];
        bool updates = p->s[update].region == REGION_UPDATE;
        e->awaited[i] = e->copied_out[i] = phase->end - 1;
        for (int k = 0; k < MAX_OUT; k++)
            for (int q = 0; q < QUEUE_COUNT && s->out[k]; q++) {
                int next = e->reader[prog_base(p, s->out[k])][q];
                if (q != (int)s->queue) e->awaited[i] = MIN2(e->awaited[i], next);
                bool hurries = q != (int)s->queue && q != QUEUE_DISK_OUT; /* that one reads what stays until then */
                if (hurries) e->copied_out[i] = MIN2(e->copied_out[i], next);
            }
        for (int k = 0; k < MAX_IN; k++)
            if (s->in[k]) e->reader[prog_base(p, s->in[k])][s->queue] = i;
        if (s->region == REGION_UPDATE) {
            if (p->s[update].layer != s->layer) behind = update;
            update = i;
        }
        if (!goes_out(s->queue)) continue;
        int *next = &out[s->queue];
        if (*next != phase->end - 1 && p->s[*next].layer != s->layer) other[s->queue] = *next;
        e->copied_out[i] = MIN2(e->copied_out[i], other[s->queue]);
        if (updates) e->copied_out[i] = MIN2(e->copied_out[i], p->s[update].layer != s->layer ? update : behind);
        *next = i;
    }
}

static void live_until_awaited(Program *p, const Ends *e, int step) { /* L7 */
    const Step *s = &p->s[step];
    int end = e->awaited[step], read_end = goes_out(s->queue) ? e->copied_out[step] : end;
    for (int k = 0; k < MAX_IN; k++)
        if (s->in[k]) extend(&p->t[prog_base(p, s->in[k])], step, read_end);
    for (int k = 0; k < MAX_OUT; k++)
        if (s->out[k]) extend(&p->t[prog_base(p, s->out[k])], step, end);
    if (s->workspace) extend(&p->t[s->workspace], step, end);
}

static bool has_side_queues(const Program *p, const Phase *phase) {
    for (int i = phase->begin; i < phase->end; i++)
        if (p->s[i].queue != QUEUE_COMPUTE) return true;
    return false;
}

static int together_until(const Program *p, const Phase *phase, int step) { /* L8 */
    const Step *s = &p->s[step];
    bool together = op_row(s->op)->flags & OPF_TOGETHER;
    while (together && step + 1 < phase->end && p->s[step + 1].op == s->op && p->s[step + 1].queue == s->queue) step++;
    return step;
}

void plan_lifetimes(Program *p) {
    plan_check_phases(p);
    Walk w = {.p = p, .written = MEM_NEW(int64_t, p->n_t)};
    Ends e = {.awaited = MEM_NEW(int, p->n_s + 1),
              .copied_out = MEM_NEW(int, p->n_s + 1),
              .reader = mem_alloc(p->n_t * (int64_t)sizeof *e.reader)};
    for (Tid id = 1; id < p->n_t; id++) {
        Tensor *t = &p->t[id];
        t->birth = t->death = -1;
        t->slot = id;
        t->offset = -1;
        t->bytes = prog_bytes(p, id);
    }
    for (int ph = 0; ph < p->n_phases; ph++) {
        w.phase = &p->phase[ph];
        if (has_side_queues(p, w.phase)) note_ends(&e, p, w.phase);
        for (int i = w.phase->begin; i < w.phase->end; i++) {
            const Step *s = &p->s[i];
            for (int k = 0; k < MAX_IN; k++)
                if (s->in[k]) use_in(&w, s->in[k], i);
            for (int k = 0; k < MAX_OUT; k++)
                if (s->out[k]) use_out(&w, s->out[k], i);
            if (s->workspace) extend(&p->t[s->workspace], i, together_until(p, w.phase, i)); /* L8 */
            if (s->queue != QUEUE_COMPUTE) live_until_awaited(p, &e, i);
        }
    }
    for (Tid id = 1; id < p->n_t; id++) { /* L9 */
        Tensor *t = &p->t[id];
        if (!t->home.load || t->home.pool != POOL_DEVICE || t->base || t->birth < 0) continue;
        int stay = MIN2(p->phase[t->home.load].stay, p->n_phases - 1);
        extend(t, t->birth, p->phase[stay].end - 1);
    }
    for (Tid id = 1; id < p->n_t; id++) { /* L6; and a view is where its base is, even if that was decided later */
        Tensor *t = &p->t[id], *base = &p->t[t->base];
        if (t->base) t->birth = base->birth, t->death = base->death, t->home.pool = base->home.pool;
    }
    mem_free(w.written);
    mem_free(e.awaited);
    mem_free(e.copied_out);
    mem_free(e.reader);
}
