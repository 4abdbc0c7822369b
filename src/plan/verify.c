/* verify.c - proves that a planned program is correct from its offsets alone, without trusting lifetimes.
 *
 *   V1  every tensor that a step uses has a place; a view lies inside its base; what lives always lies alone.
 *   V2  an activation, and every part of one, has one writer (P1).
 *   V3  inside a step, an output meets no other tensor's bytes, except the input whose slot its row lets it
 *       take (P3).
 *   V4  the ring is played on paper, in list order: every range of bytes knows which tensor was last written
 *       there, and a read must find its own tensor. A repeated phase is walked twice, and so is the ring.
 *   V5  a clone has its original's op, constants and random key, its inputs come from the same steps or their
 *       clones (or were copied away and back), it writes no state, and nothing wrote what both read in between (P4,
 *       P6). What is staged counts as what its copy in brought, until a step changes it.
 *   V6  any two steps of a phase on different queues that conflict in bytes are ordered by waits (P8).
 * V4 shows that the list order is right, V6 that no other order the queues may run in differs from it. */
#include <stdlib.h>
#include <string.h>

#include "plan/plan_int.h"

typedef struct Range {
    int64_t begin, end;
    Tid tensor;
} Range;

typedef struct Verify {
    const Program *p;
    bool *used;                 /* own, per tensor: by any step, itself or through a view */
    bool *begun;                /* gradients and caches: written since the ring began */
    int *writer;                /* of a whole activation or view; -1: none */
    int *cell_begin, *cell_end; /* the cells that a tensor covers */
    Tid *owner[POOL_COUNT];     /* own, per cell: whose bytes these are now; NONE: nobody's */
    Err *e;
} Verify;

static const char *name(const Verify *v, Tid id) {
    return v->p->t[id].name;
}

static bool overlap(const Tensor *a, const Tensor *b) {
    return a->home.pool == b->home.pool && a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

static int tensors_of(const Step *s, Tid *id) { /* inputs, then outputs, then scratch */
    int n = 0;
    for (int k = 0; k < MAX_IN; k++)
        if (s->in[k]) id[n++] = s->in[k];
    for (int k = 0; k < MAX_OUT; k++)
        if (s->out[k]) id[n++] = s->out[k];
    if (s->workspace) id[n++] = s->workspace;
    return n;
}
enum { MAX_TENSORS = MAX_IN + MAX_OUT + 1 };

static bool lives_always(Role r) {
    return (r >= ROLE_WEIGHT && r != ROLE_GRADIENT && r != ROLE_CACHE) || r == ROLE_TABLE || r == ROLE_DIAL;
}

/* ---- V1 ---- */

static bool check_places(Verify *v) {
    const Program *p = v->p;
    for (int64_t i = 0; i < p->n_s; i++) {
        Tid id[MAX_TENSORS];
        int n = tensors_of(&p->s[i], id);
        for (int k = 0; k < n; k++) {
            const Tensor *t = &p->t[id[k]], *b = &p->t[prog_base(p, id[k])];
            if (t->offset < 0 || t->bytes != prog_bytes(p, id[k]))
                return fail(v->e, ERR_FAIL, "plan: step %lld uses %s, which has no place", (long long)i, t->name);
            if (t->base && (t->offset != b->offset + t->view_bytes || t->view_bytes + t->bytes > b->bytes ||
                            t->home.pool != b->home.pool))
                return fail(v->e, ERR_FAIL, "plan: %s does not lie inside its base %s", t->name, b->name);
            v->used[id[k]] = v->used[prog_base(p, id[k])] = true;
        }
    }
    return true;
}

static int by_begin(const void *x, const void *y) {
    const Range *a = x, *b = y;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    return a->tensor - b->tensor;
}

/* Ranges of what lives always must be met by no other base, neither before nor after it in order of offset. */
static bool check_alone(Verify *v, Pool pool) {
    const Program *p = v->p;
    Range *r = MEM_NEW(Range, p->n_t);
    int64_t n = 0, last_end = -1, always_end = -1;
    Tid last = NONE, always = NONE;
    bool ok = true;
    for (Tid id = 1; id < p->n_t; id++)
        if (v->used[id] && !p->t[id].base && p->t[id].home.pool == pool)
            r[n++] = (Range){p->t[id].offset, p->t[id].offset + p->t[id].bytes, id};
    qsort(r, (size_t)n, sizeof *r, by_begin);
    for (int64_t i = 0; i < n && ok; i++) {
        bool mine = lives_always(p->t[r[i].tensor].role);
        Tid other = mine && r[i].begin < last_end ? last : r[i].begin < always_end ? always : NONE;
        if (other)
            ok = fail(v->e, ERR_FAIL, "plan: %s and %s share bytes of the %s pool, and one of them lives always",
                      name(v, r[i].tensor), name(v, other), ledger_pool_name(pool));
        if (r[i].end > last_end) last_end = r[i].end, last = r[i].tensor;
        if (mine && r[i].end > always_end) always_end = r[i].end, always = r[i].tensor;
    }
    mem_free(r);
    return ok;
}

/* ---- V2, V3 ---- */

static bool note_writer(Verify *v, Tid id, int step) {
    if (v->p->t[id].role != ROLE_ACTIVATION) return true;
    if (v->writer[id] >= 0)
        return fail(v->e, ERR_FAIL, "plan: %s is written by steps %d and %d (P1)", name(v, id), v->writer[id],
                    step);
    v->writer[id] = step;
    return true;
}

/* Written views of one base are disjoint, and the base is not written as well. */
static bool check_parts(Verify *v) {
    const Program *p = v->p;
    Range *r = MEM_NEW(Range, p->n_t);
    int64_t n = 0;
    bool ok = true;
    for (Tid id = 1; id < p->n_t; id++) {
        const Tensor *t = &p->t[id];
        if (!t->base || v->writer[id] < 0) continue;
        if (v->writer[t->base] >= 0)
            ok = fail(v->e, ERR_FAIL, "plan: %s and its view %s both have a writer (P1)", name(v, t->base),
                      t->name);
        /* one number line for all bases: a base's own stretch begins at base * 2^40 */
        r[n++] = (Range){((int64_t)t->base << 40) + t->view_bytes,
                         ((int64_t)t->base << 40) + t->view_bytes + t->bytes, id};
    }
    qsort(r, (size_t)n, sizeof *r, by_begin);
    for (int64_t i = 1; i < n && ok; i++)
        if (r[i].begin < r[i - 1].end)
            ok = fail(v->e, ERR_FAIL, "plan: %s and %s overlap and have two writers (P1)", name(v, r[i].tensor),
                      name(v, r[i - 1].tensor));
    mem_free(r);
    return ok;
}

static bool may_write_over(const Program *p, const Step *s, int out, int in) {
    const OpRow *row = op_row(s->op);
    if (prog_is_state(p, s->out[out]) || p->t[s->out[out]].role == ROLE_STAGED)
        return prog_base(p, s->out[out]) == prog_base(p, s->in[in]); /* changed in place */
    if (row->share == SHARE_NONE || row->share_out != out || row->share_in != in || s->queue != QUEUE_COMPUTE)
        return false;
    return p->t[s->out[out]].offset == p->t[s->in[in]].offset;
}

static bool check_step(Verify *v, int step) {
    const Program *p = v->p;
    const Step *s = &p->s[step];
    const Tensor *scratch = s->workspace ? &p->t[s->workspace] : NULL;
    for (int o = 0; o < MAX_OUT; o++) {
        if (!s->out[o]) continue;
        const Tensor *out = &p->t[s->out[o]];
        if (!note_writer(v, s->out[o], step)) return false;
        for (int k = 0; k < MAX_IN; k++)
            if (s->in[k] && overlap(out, &p->t[s->in[k]]) && !may_write_over(p, s, o, k))
                return fail(v->e, ERR_FAIL, "plan: step %d (%s) writes %s over its input %s (P3)", step,
                            op_name(s->op), out->name, name(v, s->in[k]));
        for (int k = o + 1; k < MAX_OUT; k++)
            if (s->out[k] && overlap(out, &p->t[s->out[k]]))
                return fail(v->e, ERR_FAIL, "plan: outputs %s and %s of step %d overlap", out->name,
                            name(v, s->out[k]), step);
        if (scratch && overlap(out, scratch))
            return fail(v->e, ERR_FAIL, "plan: step %d has its scratch over its output %s", step, out->name);
    }
    for (int k = 0; k < MAX_IN && scratch; k++)
        if (s->in[k] && overlap(scratch, &p->t[s->in[k]]))
            return fail(v->e, ERR_FAIL, "plan: step %d has its scratch over its input %s", step,
                        name(v, s->in[k]));
    return true;
}

/* ---- V4 ---- */

static int by_value(const void *x, const void *y) {
    int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
    return (a > b) - (a < b);
}

static int cell_at(const int64_t *border, int64_t n, int64_t at) {
    int64_t low = 0, high = n;
    while (low < high) {
        int64_t mid = (low + high) / 2;
        if (border[mid] < at)
            low = mid + 1;
        else
            high = mid;
    }
    return (int)low;
}

/* The borders of all tensors that come and go cut a pool into cells, so that a tensor is a run of whole cells. */
static void make_cells(Verify *v, Pool pool) {
    const Program *p = v->p;
    int64_t *border = MEM_NEW(int64_t, p->n_t * 2), n = 0, unique = 0;
    for (Tid id = 1; id < p->n_t; id++)
        if (v->used[id] && p->t[id].home.pool == pool && !lives_always(p->t[id].role))
            border[n++] = p->t[id].offset, border[n++] = p->t[id].offset + p->t[id].bytes;
    qsort(border, (size_t)n, sizeof *border, by_value);
    for (int64_t i = 0; i < n; i++)
        if (!unique || border[i] != border[unique - 1]) border[unique++] = border[i];
    for (Tid id = 1; id < p->n_t; id++) {
        if (!v->used[id] || p->t[id].home.pool != pool || lives_always(p->t[id].role)) continue;
        v->cell_begin[id] = cell_at(border, unique, p->t[id].offset);
        v->cell_end[id] = cell_at(border, unique, p->t[id].offset + p->t[id].bytes);
    }
    v->owner[pool] = MEM_NEW(Tid, unique + 1);
    mem_free(border);
}

static void own(Verify *v, Tid id) {
    Tid base = prog_base(v->p, id), *owner = v->owner[v->p->t[id].home.pool];
    for (int c = v->cell_begin[id]; c < v->cell_end[id]; c++) owner[c] = base;
}

static Tid stranger_in(const Verify *v, Tid id) { /* whose bytes lie in id's place; NONE: all are its own */
    Tid base = prog_base(v->p, id), *owner = v->owner[v->p->t[id].home.pool];
    for (int c = v->cell_begin[id]; c < v->cell_end[id]; c++)
        if (owner[c] != base) return owner[c] ? owner[c] : base;
    return NONE;
}

static bool lost(const Verify *v, Tid id, int step) {
    Tid by = stranger_in(v, id);
    if (!by) return false;
    bool never = by == prog_base(v->p, id);
    fail(v->e, ERR_FAIL, "plan: step %d (%s) needs %s, %s%s", step, op_name(v->p->s[step].op), name(v, id),
         never ? "which nothing has written" : "whose bytes were overwritten by ", never ? "" : name(v, by));
    return true;
}

static bool play_step(Verify *v, int step, bool check) {
    const Step *s = &v->p->s[step];
    for (int k = 0; k < MAX_IN; k++)
        if (s->in[k] && check && lost(v, s->in[k], step)) return false;
    for (int k = 0; k < MAX_OUT; k++) { /* state that was begun is changed in place: its old contents count */
        Tid base = s->out[k] ? prog_base(v->p, s->out[k]) : NONE;
        if (!base || !prog_is_state(v->p, base)) continue;
        if (v->begun[base] && check && lost(v, s->out[k], step)) return false;
        if (!v->begun[base]) own(v, base); /* the first write of a part begins the whole */
        v->begun[base] = true;
    }
    if (s->workspace) own(v, s->workspace);
    for (int k = 0; k < MAX_OUT; k++)
        if (s->out[k]) own(v, s->out[k]);
    return true;
}

static void host_writes_inputs(Verify *v, const Phase *phase) {
    for (int i = phase->begin; i < phase->end; i++)
        for (int k = 0; k < MAX_IN; k++)
            if (v->p->s[i].in[k] && v->p->t[v->p->s[i].in[k]].role == ROLE_INPUT)
                own(v, prog_base(v->p, v->p->s[i].in[k]));
}

/* In the first walk round the ring what is carried around it is not there yet: only the second one judges. */
static bool play_ring(Verify *v, bool check) {
    const Program *p = v->p;
    memset(v->begun, 0, (size_t)p->n_t * sizeof *v->begun);
    for (int ph = 0; ph < p->n_phases; ph++)
        for (int64_t play = 0; play < MIN2(p->phase[ph].repeat, 2); play++) {
            host_writes_inputs(v, &p->phase[ph]);
            for (int i = p->phase[ph].begin; i < p->phase[ph].end; i++)
                if (!play_step(v, i, check)) return false;
        }
    return true;
}

/* ---- V5 ---- */

static int original(const Program *p, int step) {
    return p->s[step].clone_of >= 0 ? p->s[step].clone_of : step;
}

static int writer_of(const Verify *v, Tid id, const int *last_write) {
    return v->p->t[id].role == ROLE_STAGED ? last_write[id] : v->writer[id];
}

/* What was copied to another pool and back is what it was. */
static Tid before_offload(const Verify *v, Tid id, const int *last_write) {
    for (int w = writer_of(v, id, last_write); w >= 0; w = writer_of(v, id, last_write)) {
        const Step *s = &v->p->s[w];
        bool moves = op_row(s->op)->flags & OPF_MOVES;
        if (!moves || v->p->t[s->copy.in.src].role != ROLE_ACTIVATION) break;
        id = s->copy.in.src;
    }
    return id;
}

/* What a clone of this op repeats: its original, or the half of a fused one (fuse.c). */
static Step repeated(const Step *o, const Step *c) {
    Step half;
    if (!plan_half_of(&half, o, c->op)) return *o;
    half.key = c->key; /* neither half draws, so that it says nothing */
    return half;
}

/* Which of an original's outputs this one of a step is or repeats; -1: none. */
static int place_of(const Program *p, int step, Tid out) {
    const Step *s = &p->s[step], *o = &p->s[original(p, step)];
    Step half;
    for (int k = 0; k < MAX_OUT; k++) {
        if (s->out[k] != out) continue;
        if (!plan_half_of(&half, o, s->op)) return k;
        for (int n = 0; n < MAX_OUT; n++)
            if (o->out[n] == half.out[k]) return n;
    }
    return -1;
}

/* b, read by a clone, stands for a, read by its original: the same tensor, or what a clone of a's writer wrote
 * there. */
static bool stands_for(const Verify *v, Tid b, Tid a, const int *last_write) {
    if (a == b) return true;
    const Program *p = v->p;
    if (!a || !b || p->t[a].view_bytes != p->t[b].view_bytes || p->t[a].bytes != p->t[b].bytes) return false;
    Tid ta = before_offload(v, prog_base(p, a), last_write), tb = before_offload(v, prog_base(p, b), last_write);
    int wa = writer_of(v, ta, last_write), wb = writer_of(v, tb, last_write);
    if (wa < 0 || wb < 0 || original(p, wa) != original(p, wb)) return false;
    int place = place_of(p, wa, ta);
    return place >= 0 && place == place_of(p, wb, tb);
}

static bool check_clone(Verify *v, int step, const int *last_write) {
    const Program *p = v->p;
    const Step *c = &p->s[step];
    if (c->clone_of >= step)
        return fail(v->e, ERR_FAIL, "plan: step %d repeats the later step %d", step, c->clone_of);
    const Step half = repeated(&p->s[c->clone_of], c), *o = &half;
    /* A clone is a copy of the whole step, padding included. NOLINTNEXTLINE(bugprone-suspicious-memory-comparison) */
    if (o->op != c->op || memcmp(&o->attr, &c->attr, sizeof o->attr) || o->key != c->key || o->clone_of >= 0)
        return fail(v->e, ERR_FAIL, "plan: step %d does not repeat step %d: op, constants or key differ (P6)",
                    step, c->clone_of);
    for (int k = 0; k < MAX_OUT; k++)
        if (c->out[k] && prog_is_state(p, c->out[k]))
            return fail(v->e, ERR_FAIL, "plan: clone %d writes the state %s (P4)", step, name(v, c->out[k]));
    for (int k = 0; k < MAX_IN; k++) {
        if (!stands_for(v, c->in[k], o->in[k], last_write))
            return fail(v->e, ERR_FAIL, "plan: clone %d reads %s where step %d read %s", step, name(v, c->in[k]),
                        c->clone_of, name(v, o->in[k]));
        bool remade = c->in[k] != o->in[k] && !prog_is_state(p, c->in[k]); /* by a clone: written since, rightly */
        if (c->in[k] && !remade && last_write[prog_base(p, c->in[k])] > c->clone_of)
            return fail(v->e, ERR_FAIL, "plan: clone %d reads %s, written since step %d did (P4)", step,
                        name(v, c->in[k]), c->clone_of);
    }
    return true;
}

static bool check_clones(Verify *v) {
    const Program *p = v->p;
    int *last_write = MEM_NEW(int, p->n_t);
    bool ok = true;
    memset(last_write, -1, (size_t)p->n_t * sizeof *last_write);
    for (int i = 0; i < p->n_s && ok; i++) {
        if (p->s[i].clone_of >= 0) ok = check_clone(v, i, last_write);
        for (int k = 0; k < MAX_OUT; k++)
            if (p->s[i].out[k]) last_write[prog_base(p, p->s[i].out[k])] = i;
    }
    mem_free(last_write);
    return ok;
}

/* ---- V6 ---- */

typedef struct Clock { /* the latest step of each queue that is over when a step begins */
    int over[QUEUE_COUNT];
} Clock;

static bool conflict(const Program *p, const Step *a, const Step *b) { /* a writes what b touches */
    Tid other[MAX_TENSORS];
    int n = tensors_of(b, other);
    for (int o = 0; o <= MAX_OUT; o++) {
        Tid w = o < MAX_OUT ? a->out[o] : a->workspace;
        for (int k = 0; k < n && w; k++)
            if (overlap(&p->t[w], &p->t[other[k]])) return true;
    }
    return false;
}

static bool clock_of(Verify *v, const Phase *phase, int step, int previous, Clock *clock) {
    const Step *s = &v->p->s[step];
    Clock *now = &clock[step - phase->begin];
    memset(now, -1, sizeof *now);
    if (previous >= 0) *now = clock[previous - phase->begin];
    now->over[s->queue] = previous;
    for (int r = 0; r < QUEUE_COUNT; r++) {
        int j = s->wait[r];
        if (j < 0) continue;
        if (j < phase->begin || j >= step || (int)v->p->s[j].queue != r)
            return fail(v->e, ERR_FAIL, "plan: step %d waits for step %d, which is not before it on that queue",
                        step, j);
        for (int q = 0; q < QUEUE_COUNT; q++) now->over[q] = MAX2(now->over[q], clock[j - phase->begin].over[q]);
        now->over[r] = MAX2(now->over[r], j);
    }
    return true;
}

static bool check_waits_of_phase(Verify *v, const Phase *phase) {
    const Program *p = v->p;
    int steps = phase->end - phase->begin, last[QUEUE_COUNT];
    Clock *clock = MEM_NEW(Clock, steps + 1);
    int *previous = MEM_NEW(int, steps + 1); /* of the same queue; -1: none */
    bool ok = true;
    memset(last, -1, sizeof last);
    for (int i = phase->begin; i < phase->end && ok; i++) {
        const Step *s = &p->s[i];
        previous[i - phase->begin] = last[s->queue];
        ok = clock_of(v, phase, i, last[s->queue], clock);
        for (int r = 0; r < QUEUE_COUNT && ok; r++) {
            if (r == (int)s->queue) continue;
            for (int j = last[r]; j > clock[i - phase->begin].over[r] && ok; j = previous[j - phase->begin])
                if (conflict(p, s, &p->s[j]) || conflict(p, &p->s[j], s))
                    ok = fail(v->e, ERR_FAIL,
                              "plan: steps %d and %d touch the same bytes on two queues, and neither waits (P8)",
                              j, i);
        }
        last[s->queue] = i;
    }
    mem_free(clock);
    mem_free(previous);
    return ok;
}

static bool check_waits(Verify *v) {
    for (int ph = 0; ph < v->p->n_phases; ph++) {
        const Phase *phase = &v->p->phase[ph];
        bool side = false;
        for (int i = phase->begin; i < phase->end; i++) side |= v->p->s[i].queue != QUEUE_COMPUTE;
        if (side && !check_waits_of_phase(v, phase)) return false;
    }
    return true;
}

static bool check_all(Verify *v) {
    if (!check_places(v)) return false;
    for (int pool = 0; pool < POOL_COUNT; pool++) {
        if (!check_alone(v, (Pool)pool)) return false;
        make_cells(v, (Pool)pool);
    }
    for (int i = 0; i < v->p->n_s; i++)
        if (!check_step(v, i)) return false;
    return check_parts(v) && play_ring(v, false) && play_ring(v, true) && check_clones(v) && check_waits(v);
}

bool plan_verify(const Program *p, Err *e) {
    Verify v = {.p = p,
                .e = e,
                .used = MEM_NEW(bool, p->n_t),
                .begun = MEM_NEW(bool, p->n_t),
                .writer = MEM_NEW(int, p->n_t),
                .cell_begin = MEM_NEW(int, p->n_t),
                .cell_end = MEM_NEW(int, p->n_t)};
    memset(v.writer, -1, (size_t)p->n_t * sizeof *v.writer);
    bool ok = check_all(&v);
    for (int pool = 0; pool < POOL_COUNT; pool++) mem_free(v.owner[pool]);
    mem_free(v.used);
    mem_free(v.begun);
    mem_free(v.writer);
    mem_free(v.cell_begin);
    mem_free(v.cell_end);
    return ok;
}
