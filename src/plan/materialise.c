/* materialise.c - state that is offloaded, or stored in another format, is prefetched (and dequantised) before it is
 * used, and written back after it was changed.
 *
 *     X (pool, stored)  --copy-->  X.staged (device, stored)  --decode-->  X.dense (device, own format)
 *     X (pool)          <--copy--  X.staged, where a step has written it
 *     X (disk)  --read-->  X.fetched (pinned)  --copy-->  X.staged, and back over X.leaving (pinned)
 *
 * The copies are there when the pool is not the device, the decode when the formats differ. What is brought in is
 * an ordinary activation (ROLE_STAGED where steps write it), so it is gone after its last use and placed like
 * everything else. X itself keeps its name, role and views: whoever loads, saves or counts sees no difference.
 *   M1  a visit is a stretch of steps of one layer in one phase. Uses of X in the same visit share one copy in; a
 *       decode without a copy is cheap, so forward, recompute and backward each make their own.
 *   M2  decode stands right before the first use. Prefetch: the copy of a visit's j-th tensor is issued right after
 *       the last use of the j-th tensor of an earlier visit, the one that lies `ahead` visits with copies before. The
 *       bytes freed there can take it, so one layer's worth of stored bytes is held, not two, and the copy overlaps
 *       with all resident layers in between. In an update one visit may be much larger than the one before (an
 *       embedding behind a layer). There the copy is issued when as many bytes have had their last use as the visit
 *       takes up to that tensor, or when the visit has begun. Copies keep the order of their uses, because the queue
 *       runs in order. A copy back stands right after the visit's last use.
 *   M3  only frozen weights have another format at home; a fill writes that format.
 *   M4  the second time a phase brings in a tensor that was not written since repeats the first: clone_of says so,
 *       verify counts on it.
 *   M5  nothing is copied in for a visit that only writes: a fill, or the first writer of a gradient where it is fresh
 *       (ir/prog.h).
 *   M6  an embedding is read where it lies, when the device can address it: a step reads a few rows of many.
 *   M7  disk tensors are read into pinned memory one visit before their copy to the device is issued, on a queue of its
 *       own; another queue writes them back. The staging buffers in between are placed like everything else.
 *   M8  a quantised weight is not decoded where all its readers take it as stored (op_reads_stored).
 *   M9  frozen weights whose home names a load phase (Home.load) are copied in there, once, and every phase of the stay
 *       reads that copy; phases outside it bring them in for every visit, as above. */
#include <string.h>

#include "plan/plan_int.h"

typedef struct Visit {
    int begin, phase;
    int first, n; /* its brings */
} Visit;

typedef struct Bring {
    Tid state;
    Region region;       /* of its uses */
    int use, last;       /* the first and the last of them */
    bool reads, writes;
    bool decodes;        /* some use cannot read what is stored: M8 */
    int fetch;           /* the step in front of which the read from disk stands; of others: nothing stands there */
    int issue;           /* the step in front of which the copy stands */
    Tid fetched;         /* in pinned memory, what was read from disk */
    Tid ready;           /* what the uses read and write; NONE: not emitted yet */
    Tid staged;          /* what the decode reads */
} Bring;

typedef struct Materialise {
    Program *p;
    Rewrite w;
    Format *used;       /* owns: per tensor, the format that steps see */
    bool *materialised; /* owns: per tensor, its home is not the device, or not in that format */
    int *written_back;  /* owns: per tensor, the last use of its last bring that writes; -1: none */
    Tid *loaded;        /* owns: per tensor, what its load phase copies in (M9); NONE: nothing */
    int *read, *copy, *decode; /* own: per tensor, the first one in this phase, in the new list; -1: none */
    Visit *visit;       /* owns */
    int64_t n_visits, cap_visits;
    Bring *bring; /* owns: in order of use */
    int64_t n_brings, cap_brings;
} Materialise;

static bool needs_materialising(const Tensor *t) {
    bool kept = t->role == ROLE_WEIGHT || t->role == ROLE_ADAPTER || t->role == ROLE_MASTER || t->role == ROLE_MOMENT ||
                t->role == ROLE_CORRECTION || t->role == ROLE_GRADIENT;
    return kept && !t->base && (t->home.pool != POOL_DEVICE || t->home.stored != t->format);
}

/* ---- homes ---- */

/* From here on X is what lies at home: its format and that of its views, by rows. */
static bool go_home(Materialise *m) {
    Program *p = m->p;
    bool any = false;
    for (Tid id = 1; id < p->n_t; id++) {
        Tensor *t = &p->t[id];
        m->used[id] = t->format;
        if (!needs_materialising(t)) continue;
        CHECK_MSG(t->format == t->home.stored || !t->trainable, "%s is trained: it is kept in its own format", t->name);
        m->materialised[id] = any = true;
        t->format = t->home.stored;
    }
    for (Tid id = 1; id < p->n_t; id++) {
        Tensor *t = &p->t[id];
        if (!t->base || !m->materialised[t->base]) continue;
        int64_t row = t->view_bytes / format_row_bytes(t->format, prog_cols(p, id));
        t->home = p->t[t->base].home;
        t->format = t->home.stored;
        t->view_bytes = row * format_row_bytes(t->format, prog_cols(p, id));
    }
    return any;
}

/* ---- who needs what, where ---- */

static bool reads_in_place(const Program *p, const Step *s, int k) { /* M6 */
    const Tensor *t = &p->t[prog_base(p, s->in[k])];
    if (t->home.pool != POOL_PINNED || !format_table[t->format].plain) return false;
    return op_places(s->op)->in[k].marks & MARK_GATHERED;
}

static bool is_materialised_input(const Materialise *m, const Step *s, int k) {
    return s->in[k] && m->materialised[prog_base(m->p, s->in[k])] && !reads_in_place(m->p, s, k);
}

static bool fills(const Step *s) { return op_row(s->op)->flags & OPF_FILLS; }

static bool is_materialised_output(const Materialise *m, const Step *s, int k) {
    Tid state = s->out[k] ? prog_base(m->p, s->out[k]) : NONE;
    return state && m->materialised[state] && !(m->p->t[state].home.pool == POOL_DEVICE && fills(s));
}

static bool stays_in(const Materialise *m, Tid state, int phase) { /* M9 */
    int load = m->p->t[state].home.load;
    return load && phase > load && phase <= m->p->phase[load].stay;
}

static Bring *bring_in_visit(const Materialise *m, const Visit *v, Tid state, Region region) { /* M1 */
    bool copied = m->p->t[state].home.pool != POOL_DEVICE && !stays_in(m, state, v->phase);
    for (int i = v->first; i < v->first + v->n; i++)
        if (m->bring[i].state == state && (copied || m->bring[i].region == region)) return &m->bring[i];
    return NULL;
}

static Bring *note_use(Materialise *m, int step, Tid state, bool writes, bool reads) {
    Visit *v = &m->visit[m->n_visits - 1];
    Bring *b = bring_in_visit(m, v, state, m->p->s[step].region);
    if (!b) {
        m->bring = mem_grow(m->bring, &m->cap_brings, m->n_brings + 1, sizeof *m->bring);
        b = &m->bring[m->n_brings++];
        *b = (Bring){.state = state, .region = m->p->s[step].region, .use = step, .reads = reads};
        v->n++;
    }
    b->last = step;
    b->writes |= writes;
    if (stays_in(m, state, v->phase)) {
        CHECK_MSG(!writes, "%s is written while a copy of it stays", m->p->t[state].name);
        m->loaded[state] = state; /* the copy itself is made when its phase is written down */
    }
    return b;
}

static void note_uses(Materialise *m, int step) {
    const Program *p = m->p;
    const Step *s = &p->s[step];
    for (int k = 0; k < MAX_IN; k++)
        if (is_materialised_input(m, s, k))
            note_use(m, step, prog_base(p, s->in[k]), false, true)->decodes |= !op_reads_stored(p, s, k);
    for (int k = 0; k < MAX_OUT; k++) {
        if (!is_materialised_output(m, s, k)) continue;
        Tid state = prog_base(p, s->out[k]);
        CHECK_MSG(fills(s) || m->used[state] == p->t[state].format, "%s is written and kept in another format",
                  p->t[state].name); /* M3 */
        bool anew = fills(s) || (s->fresh && p->t[state].role == ROLE_GRADIENT); /* M5 */
        note_use(m, step, state, true, !anew);
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

static int64_t bring_bytes(const Materialise *m, const Bring *b) { return prog_bytes(m->p, b->state); }

/* Behind which step of `there` as many bytes of it are free as `here` takes up to its j-th; where all of them are too
 * few, behind the first step of `here`: what `there` writes back is gone by then (L7). */
static int same_bytes(const Materialise *m, const Visit *there, const Visit *here, int j) {
    const Bring *b = &m->bring[there->first];
    int64_t wanted = 0, freed = 0;
    for (int k = 0; k <= j; k++) wanted += bring_bytes(m, &m->bring[here->first + k]);
    for (int i = 0; i < there->n; i++)
        if ((freed += bring_bytes(m, &b[i])) >= wanted) return b[i].last + 1;
    return MIN2(here->begin + 1, m->bring[here->first + j].use);
}

/* Where the j-th tensor of a visit can take the place of one that was used `ahead` visits before. */
static int place_ahead(const Materialise *m, int64_t visit, int j, int ahead) {
    const Visit *here = &m->visit[visit];
    int64_t from = visit;
    for (int n = 0; n < ahead && from > 0 && m->visit[from - 1].phase == here->phase; n += m->visit[from].n > 0) from--;
    const Visit *there = &m->visit[from];
    if (there == here || !there->n) return there->begin;
    bool updates = m->p->s[here->begin].region == REGION_UPDATE;
    return updates ? same_bytes(m, there, here, j) : m->bring[there->first + MIN2(j, there->n - 1)].last + 1;
}

static void note_issues(Materialise *m, int ahead) { /* M2, M7 */
    int fetched = 0, latest = 0;
    for (int64_t v = 0; v < m->n_visits; v++)
        for (int j = 0; j < m->visit[v].n; j++) {
            Bring *b = &m->bring[m->visit[v].first + j];
            int back = m->written_back[b->state] + 1; /* not before it was written back */
            b->issue = latest = MAX2(MAX2(place_ahead(m, v, j, ahead), latest), back);
            b->fetch = fetched = MIN2(MAX2(MAX2(place_ahead(m, v, j, ahead + 1), fetched), back), latest);
            if (b->writes) m->written_back[b->state] = b->last;
        }
}

/* ---- writing it down ---- */

static Tid new_tensor(Materialise *m, const Bring *b, const char *suffix, Format format) {
    Tid id = rewrite_twin(m->p, b->state, suffix);
    m->p->t[id].format = format;
    m->p->t[id].home = (Home){.pool = POOL_DEVICE, .stored = format};
    if (b->writes) m->p->t[id].role = ROLE_STAGED;
    return id;
}

static int add_move(Materialise *m, const Bring *b, OpId op, Queue queue, Tid out, Tid in, int first) {
    Step s = {.op = op,
              .in = {in},
              .out = {out},
              .queue = queue,
              .region = REGION_MOVE,
              .layer = m->p->s[b->use].layer,
              .clone_of = first};
    s.key = first >= 0 ? m->w.s[first].key : m->p->next_key++;
    return rewrite_add(&m->w, s);
}

static bool lies_on_disk(const Materialise *m, Tid x) { return m->p->t[x].home.pool == POOL_DISK; }

static Tid new_buffer(Materialise *m, Tid x, const char *suffix) { /* between disk and device */
    Tid id = rewrite_twin(m->p, x, suffix);
    m->p->t[id].format = m->p->t[x].format;
    m->p->t[id].home = (Home){.pool = POOL_PINNED, .stored = m->p->t[x].format};
    return id;
}

static void add_read(Materialise *m, Bring *b) { /* M7 */
    Tid x = b->state;
    if (!lies_on_disk(m, x) || !b->reads) return;
    b->fetched = new_buffer(m, x, "fetched");
    int at = add_move(m, b, OP_COPY, QUEUE_DISK_IN, b->fetched, x, m->read[x]);
    if (m->read[x] < 0 && !b->writes) m->read[x] = at; /* M4 */
}

/* The stay of every weight that this phase copies in begins (M9). */
static void add_loads(Materialise *m, int phase, int64_t recorded) {
    for (Tid x = 1; x < recorded; x++) {
        if (!m->loaded[x] || m->p->t[x].home.load != phase) continue;
        CHECK_MSG(m->p->t[x].home.pool == POOL_PINNED, "%s: only pinned memory is loaded from", m->p->t[x].name);
        Tid to = m->loaded[x] = rewrite_twin(m->p, x, "loaded");
        m->p->t[to].home = (Home){.pool = POOL_DEVICE, .stored = m->p->t[x].format, .load = phase};
        m->p->t[to].model = m->p->t[x].model;
        rewrite_add(&m->w, (Step){.op = OP_COPY,
                                  .in = {x},
                                  .out = {to},
                                  .queue = QUEUE_COPY_IN,
                                  .region = REGION_MOVE,
                                  .layer = m->p->t[x].layer,
                                  .clone_of = -1,
                                  .key = m->p->next_key++});
    }
}

static void add_copy(Materialise *m, Bring *b, int phase) {
    Tid x = b->state;
    b->staged = stays_in(m, x, phase) ? m->loaded[x] : x;
    if (b->staged != x || m->p->t[x].home.pool == POOL_DEVICE) return;
    b->staged = new_tensor(m, b, "staged", m->p->t[x].format);
    if (!b->reads) return;
    Tid from = lies_on_disk(m, x) ? b->fetched : x;
    int at = add_move(m, b, OP_COPY, QUEUE_COPY_IN, b->staged, from, m->copy[x]);
    if (m->copy[x] < 0 && !b->writes) m->copy[x] = at; /* M4 */
}

static void add_decode(Materialise *m, Bring *b) {
    Tid x = b->state;
    b->ready = b->staged;
    if (m->used[x] == m->p->t[x].format || !b->reads || !b->decodes) return;
    b->ready = new_tensor(m, b, "dense", m->used[x]);
    int at = add_move(m, b, OP_DECODE, QUEUE_COMPUTE, b->ready, b->staged, m->decode[x]);
    if (m->decode[x] < 0) m->decode[x] = at;
}

static void add_copies_back(Materialise *m, const Visit *v, int step) {
    for (int i = v->first; i < v->first + v->n; i++) {
        const Bring *b = &m->bring[i];
        if (b->last != step || !b->writes) continue;
        Tid to = lies_on_disk(m, b->state) ? new_buffer(m, b->state, "leaving") : b->state;
        add_move(m, b, OP_COPY, QUEUE_COPY_OUT, to, b->staged, -1);
        if (to != b->state) add_move(m, b, OP_COPY, QUEUE_DISK_OUT, b->state, to, -1);
        m->copy[b->state] = m->read[b->state] = -1;
    }
}

static Tid ready_for(Materialise *m, Tid id, const Visit *v, Region region) {
    Tid state = prog_base(m->p, id), ready = bring_in_visit(m, v, state, region)->ready;
    return id == state ? ready : rewrite_twin_view(m->p, id, ready);
}

static Step with_what_is_ready(Materialise *m, Step s, const Visit *v) {
    for (int k = 0; k < MAX_IN; k++)
        if (is_materialised_input(m, &s, k)) s.in[k] = ready_for(m, s.in[k], v, s.region);
    for (int k = 0; k < MAX_OUT; k++)
        if (is_materialised_output(m, &s, k)) s.out[k] = ready_for(m, s.out[k], v, s.region);
    return s;
}

static void rewrite(Materialise *m, int64_t recorded) {
    Program *p = m->p;
    int64_t visit = -1, fetched = 0, copied = 0, ready = 0;
    rewrite_begin(&m->w, p);
    for (int ph = 0; ph < p->n_phases; ph++) {
        rewrite_phase(&m->w);
        if (p->phase[ph].stay) add_loads(m, ph, recorded);
        memset(m->read, -1, (size_t)recorded * sizeof *m->read);
        memset(m->copy, -1, (size_t)recorded * sizeof *m->copy);
        memset(m->decode, -1, (size_t)recorded * sizeof *m->decode);
        for (int i = p->phase[ph].begin; i < p->phase[ph].end; i++) {
            if (visit + 1 < m->n_visits && m->visit[visit + 1].begin == i) visit++;
            for (; fetched < m->n_brings && m->bring[fetched].fetch <= i; fetched++) add_read(m, &m->bring[fetched]);
            for (; copied < m->n_brings && m->bring[copied].issue <= i; copied++)
                add_copy(m, &m->bring[copied], ph);
            for (; ready < m->n_brings && m->bring[ready].use <= i; ready++) add_decode(m, &m->bring[ready]);
            rewrite_keep(&m->w, i, with_what_is_ready(m, p->s[i], &m->visit[visit]));
            add_copies_back(m, &m->visit[visit], i);
        }
    }
    rewrite_end(&m->w);
}

void plan_materialise_ahead(Program *p, int ahead) {
    plan_check_phases(p);
    int layer = p->layer;
    int64_t recorded = p->n_t;
    p->layer = -1;
    Materialise m = {.p = p, .used = MEM_NEW(Format, recorded), .materialised = MEM_NEW(bool, recorded)};
    if (go_home(&m)) {
        m.loaded = MEM_NEW(Tid, recorded);
        m.written_back = MEM_NEW(int, recorded);
        m.read = MEM_NEW(int, recorded);
        m.copy = MEM_NEW(int, recorded);
        m.decode = MEM_NEW(int, recorded);
        memset(m.written_back, -1, (size_t)recorded * sizeof *m.written_back);
        note_visits(&m);
        note_issues(&m, ahead);
        rewrite(&m, recorded);
    }
    p->layer = layer;
    mem_free(m.used);
    mem_free(m.materialised);
    mem_free(m.loaded);
    mem_free(m.written_back);
    mem_free(m.read);
    mem_free(m.copy);
    mem_free(m.decode);
    mem_free(m.visit);
    mem_free(m.bring);
}

void plan_materialise(Program *p) {
    plan_materialise_ahead(p, 1);
}
