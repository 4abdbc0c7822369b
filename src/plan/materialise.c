/* materialise.c - a weight that lives elsewhere, or in another format, is brought in before it is used.
 *
 *     W.home (pool, stored)  --copy-->  W.staged (device, stored)  --decode-->  W.dense (device, own format)
 *
 * The copy is there when the pool is not the device, the decode when the formats differ. What is brought in is
 * an ordinary activation, so it is gone after its last use and placed like everything else.
 *   M1  a visit is a stretch of steps of one layer in one phase. Uses of a weight in the same visit and region
 *       share what was brought in; forward, recompute and backward bring it in on their own.
 *   M2  decode stands right before the first use. The copy of a visit's j-th weight is issued right after the
 *       visit `ahead` of it has used its own j-th for the last time: the bytes freed there can take it, so that
 *       one layer's worth of stored bytes is held, not two. Copies keep the order of their uses: the queue runs
 *       in order.
 *   M3  only frozen weights, never written by a step.
 *   M4  the second time a phase brings in a weight repeats the first: clone_of says so, verify counts on it. */
#include <string.h>

#include "plan/plan_int.h"

typedef struct Visit {
    int begin, phase;
    int first, n; /* its brings */
} Visit;

typedef struct Bring {
    Tid weight;
    Region region; /* of its uses */
    int use, last; /* the first and the last of them */
    int issue;     /* the step in front of which the copy stands */
    Tid ready;     /* what the uses read; NONE: not emitted yet */
    Tid staged;    /* what the decode reads */
} Bring;

typedef struct Materialise {
    Program *p;
    Rewrite w;
    Tid *home;          /* owns: per tensor, its stored twin; NONE: it is at home on the device */
    int *copy, *decode; /* own: per weight, the first one in this phase, in the new list; -1: none */
    Visit *visit;       /* owns */
    int64_t n_visits, cap_visits;
    Bring *bring; /* owns: in order of use */
    int64_t n_brings, cap_brings;
} Materialise;

static bool is_away(const Tensor *t) {
    return t->role == ROLE_WEIGHT && !t->base && (t->home.pool != POOL_DEVICE || t->home.stored != t->format);
}

/* ---- homes ---- */

static Tid make_home(Program *p, Tid weight) {
    Tensor w = p->t[weight];
    CHECK_MSG(!w.trainable, "%s is trained: its home must be the device, in its own format", w.name);
    Tid id = prog_tensor(p, arena_printf(&p->arena, "%s.home", w.name), ROLE_WEIGHT, w.home.stored, w.rank, w.dim);
    p->t[id].layer = w.layer;
    p->t[id].home = w.home;
    p->t[id].file_name = w.file_name;
    p->t[weight].file_name = NULL; /* the file's bytes go home; each has one place */
    return id;
}

static bool make_homes(Materialise *m) {
    Program *p = m->p;
    Tid recorded = (Tid)p->n_t;
    bool any = false;
    for (Tid id = 1; id < recorded; id++)
        if (is_away(&p->t[id])) m->home[id] = make_home(p, id), any = true;
    for (Tid id = 1; id < recorded; id++) {
        Tid base = p->t[id].base;
        if (!base || !m->home[base] || !p->t[id].file_name) continue;
        Tid rows = rewrite_twin_view(p, id, m->home[base]);
        p->t[rows].file_name = p->t[id].file_name;
        p->t[id].file_name = NULL;
    }
    return any;
}

/* ---- who needs what, where ---- */

static Bring *bring_in_visit(const Materialise *m, const Visit *v, Tid weight, Region region) {
    for (int i = v->first; i < v->first + v->n; i++)
        if (m->bring[i].weight == weight && m->bring[i].region == region) return &m->bring[i];
    return NULL;
}

static void note_uses(Materialise *m, int step) {
    const Program *p = m->p;
    const Step *s = &p->s[step];
    Visit *v = &m->visit[m->n_visits - 1];
    for (int k = 0; k < MAX_OUT; k++)
        CHECK_MSG(!s->out[k] || !m->home[prog_base(p, s->out[k])], "%s is written and not at home",
                  p->t[s->out[k]].name); /* M3 */
    for (int k = 0; k < MAX_IN; k++) {
        Tid base = s->in[k] ? prog_base(p, s->in[k]) : NONE;
        if (!base || !m->home[base]) continue;
        Bring *b = bring_in_visit(m, v, base, s->region);
        if (b) {
            b->last = step;
            continue;
        }
        m->bring = mem_grow(m->bring, &m->cap_brings, m->n_brings + 1, sizeof *m->bring);
        m->bring[m->n_brings++] = (Bring){.weight = base, .region = s->region, .use = step, .last = step};
        v->n++;
    }
}

static void note_visits(Materialise *m) { /* M1 */
    const Program *p = m->p;
    for (int ph = 0; ph < p->n_phases; ph++)
        for (int i = p->phase[ph].begin; i < p->phase[ph].end; i++) {
            if (i == p->phase[ph].begin || p->s[i].layer != p->s[i - 1].layer) {
                m->visit = mem_grow(m->visit, &m->cap_visits, m->n_visits + 1, sizeof *m->visit);
                m->visit[m->n_visits++] = (Visit){.begin = i, .phase = ph, .first = (int)m->n_brings};
            }
            note_uses(m, i);
        }
}

static void note_issues(Materialise *m, int ahead) { /* M2 */
    int latest = 0;
    for (int64_t v = 0; v < m->n_visits; v++) {
        const Visit *here = &m->visit[v];
        int64_t from = v;
        while (from > 0 && v - from < ahead && m->visit[from - 1].phase == here->phase) from--;
        const Visit *there = &m->visit[from];
        for (int j = 0; j < here->n; j++) {
            int at = there == here || !there->n ? there->begin
                                                : m->bring[there->first + MIN2(j, there->n - 1)].last + 1;
            m->bring[here->first + j].issue = latest = MAX2(at, latest);
        }
    }
}

/* ---- writing it down ---- */

static Tid new_tensor(Materialise *m, Tid weight, const char *suffix, Format format) {
    Tid id = rewrite_twin(m->p, weight, suffix);
    m->p->t[id].format = format;
    m->p->t[id].home = (Home){POOL_DEVICE, format};
    return id;
}

static int add_move(Materialise *m, const Bring *b, OpId op, Tid out, Tid in, int first) {
    Step s = {.op = op,
              .in = {in},
              .out = {out},
              .region = REGION_MOVE,
              .layer = m->p->s[b->use].layer,
              .clone_of = first};
    if (op == OP_COPY) s.queue = QUEUE_COPY_IN;
    s.key = first >= 0 ? m->w.s[first].key : m->p->next_key++;
    return rewrite_add(&m->w, s);
}

static void add_copy(Materialise *m, Bring *b) {
    Tid w = b->weight;
    b->staged = m->home[w];
    if (m->p->t[w].home.pool == POOL_DEVICE) return;
    b->staged = new_tensor(m, w, "staged", m->p->t[w].home.stored);
    int at = add_move(m, b, OP_COPY, b->staged, m->home[w], m->copy[w]);
    if (m->copy[w] < 0) m->copy[w] = at; /* M4 */
}

static void add_decode(Materialise *m, Bring *b) {
    Tid w = b->weight;
    b->ready = b->staged;
    if (m->p->t[w].home.stored == m->p->t[w].format) return;
    b->ready = new_tensor(m, w, "dense", m->p->t[w].format);
    int at = add_move(m, b, OP_DECODE, b->ready, b->staged, m->decode[w]);
    if (m->decode[w] < 0) m->decode[w] = at;
}

static Step with_ready_inputs(Materialise *m, Step s, const Visit *v) {
    for (int k = 0; k < MAX_IN; k++) {
        Tid base = s.in[k] ? prog_base(m->p, s.in[k]) : NONE;
        if (!base || !m->home[base]) continue;
        Tid ready = bring_in_visit(m, v, base, s.region)->ready;
        s.in[k] = s.in[k] == base ? ready : rewrite_twin_view(m->p, s.in[k], ready);
    }
    return s;
}

static void rewrite(Materialise *m) {
    Program *p = m->p;
    int64_t visit = -1, copied = 0, ready = 0, tensors = p->n_t;
    rewrite_begin(&m->w, p);
    for (int ph = 0; ph < p->n_phases; ph++) {
        rewrite_phase(&m->w);
        memset(m->copy, -1, (size_t)tensors * sizeof *m->copy);
        memset(m->decode, -1, (size_t)tensors * sizeof *m->decode);
        for (int i = p->phase[ph].begin; i < p->phase[ph].end; i++) {
            if (visit + 1 < m->n_visits && m->visit[visit + 1].begin == i) visit++;
            for (; copied < m->n_brings && m->bring[copied].issue <= i; copied++) add_copy(m, &m->bring[copied]);
            for (; ready < m->n_brings && m->bring[ready].use <= i; ready++) add_decode(m, &m->bring[ready]);
            rewrite_keep(&m->w, i, with_ready_inputs(m, p->s[i], &m->visit[visit]));
        }
    }
    rewrite_end(&m->w);
}

void plan_materialise_ahead(Program *p, int ahead) {
    plan_check_phases(p);
    int layer = p->layer;
    p->layer = -1;
    Materialise m = {.p = p, .home = MEM_NEW(Tid, p->n_t)};
    if (make_homes(&m)) {
        m.copy = MEM_NEW(int, p->n_t);
        m.decode = MEM_NEW(int, p->n_t);
        note_visits(&m);
        note_issues(&m, ahead);
        rewrite(&m);
    }
    p->layer = layer;
    mem_free(m.home);
    mem_free(m.copy);
    mem_free(m.decode);
    mem_free(m.visit);
    mem_free(m.bring);
}

void plan_materialise(Program *p) {
    plan_materialise_ahead(p, 1);
}
