/* exec.c - executes the list of steps: wait, run, signal. Consecutive steps of one op that do not touch what another of
 * them writes are handed to the device together, where it can run them so; and so are steps of several ops that it can
 * do in one launch. */
#include "exec/exec.h"

#include <math.h>
#include <string.h>
#include <time.h>

#include "base/stop.h"

enum { MOST_JOINED = 16 };

static void *address(const Exec *x, Tid id) {
    if (!id) return NULL;
    const Tensor *t = prog_t(x->p, id), *base = prog_t(x->p, prog_base(x->p, id));
    return x->pool[base->home.pool] + base->offset + (t->base ? t->view_bytes : 0);
}

void *exec_address(const Exec *x, Tid t) { return address(x, t); }

static bool is_touchable(const Exec *x, Tid t) {
    return x->b->host_memory && prog_t(x->p, prog_base(x->p, t))->home.pool != POOL_DISK;
}

static Operand operand(const Exec *x, Tid id) {
    return (Operand){address(x, id), id ? prog_t(x->p, id) : NULL};
}

static void resolve(Exec *x, int i) {
    const Step *s = &x->p->s[i];
    Args *a = &x->args[i];
    a->step = s;
    for (int k = 0; k < MAX_IN; k++) a->in[k] = operand(x, s->in[k]);
    for (int k = 0; k < MAX_OUT; k++) a->out[k] = operand(x, s->out[k]);
    a->workspace = address(x, s->workspace);
    a->workspace_bytes = s->workspace ? prog_bytes(x->p, s->workspace) : 0;
}

/* What step i writes and step i+1 alone reads. */
static void find_passed(Exec *x) {
    const Program *p = x->p;
    int *reader = MEM_NEW(int, p->n_t); /* of a base: its only reading step + 1; -1: there are several */
    for (int i = 0; i < p->n_s; i++)
        for (int k = 0; k < MAX_IN; k++) {
            int *r = &reader[prog_base(p, p->s[i].in[k])];
            *r = *r == 0 || *r == i + 1 ? i + 1 : -1;
        }
    for (int i = 0; i < p->n_s; i++)
        for (int k = 0; k < MAX_OUT; k++) {
            Tid base = prog_base(p, p->s[i].out[k]);
            x->args[i].passes[k] = base && prog_t(p, base)->role == ROLE_ACTIVATION && reader[base] == i + 2;
        }
    mem_free(reader);
}

/* What one step of its phase writes alone. */
static void find_only_writers(Exec *x) {
    const Program *p = x->p;
    int *writer = MEM_NEW(int, p->n_t); /* of a base: the last phase that writes it + 1, negative: twice or more */
    for (int ph = 0; ph < p->n_phases; ph++) {
        for (int i = p->phase[ph].begin; i < p->phase[ph].end; i++)
            for (int k = 0; k < MAX_OUT; k++) {
                int *w = &writer[prog_base(p, p->s[i].out[k])];
                *w = *w == ph + 1 || *w == -(ph + 1) ? -(ph + 1) : ph + 1;
            }
        for (int i = p->phase[ph].begin; i < p->phase[ph].end; i++)
            for (int k = 0; k < MAX_OUT; k++)
                x->args[i].only_writer[k] = p->s[i].out[k] && writer[prog_base(p, p->s[i].out[k])] == ph + 1;
    }
    mem_free(writer);
}

/* ---- runs ---- */

/* Something that step i writes is read or written by step j. */
static bool writes_into(const Exec *x, int i, int j) {
    const Step *s = &x->p->s[i], *o = &x->p->s[j];
    const Args *a = &x->args[i], *b = &x->args[j];
    for (int k = 0; k <= MAX_OUT; k++) { /* the last: scratch */
        const void *at = k < MAX_OUT ? a->out[k].data : a->workspace;
        if (!at) continue;
        int64_t bytes = k < MAX_OUT ? prog_bytes(x->p, s->out[k]) : a->workspace_bytes;
        for (int n = 0; n < MAX_IN; n++)
            if (o->in[n] && backend_overlap(at, bytes, b->in[n].data, prog_bytes(x->p, o->in[n]))) return true;
        for (int n = 0; n < MAX_OUT; n++)
            if (o->out[n] && backend_overlap(at, bytes, b->out[n].data, prog_bytes(x->p, o->out[n]))) return true;
        if (backend_overlap(at, bytes, b->workspace, b->workspace_bytes)) return true;
    }
    return false;
}

static bool follows(const Exec *x, int first, int i) { /* on the same queue, and waits for no other */
    const Step *s = &x->p->s[i];
    for (int q = 0; q < QUEUE_COUNT; q++)
        if (s->wait[q] >= 0) return false;
    return s->queue == x->p->s[first].queue;
}

static bool joins_run(const Exec *x, int first, int i) {
    if (x->p->s[i].op != x->p->s[first].op || !follows(x, first, i)) return false;
    for (int k = first; k < i; k++)
        if (writes_into(x, k, i) || writes_into(x, i, k)) return false;
    return true;
}

static int same_from(const Exec *x, int i, int end) { /* steps of a run of one op */
    int n = 1;
    if (x->b->runs && x->b->runs[x->p->s[i].op])
        while (i + n < end && joins_run(x, i, i + n)) n++;
    return n;
}

static int joined_from(const Exec *x, int i, int end) { /* steps of several ops in one launch */
    int n = 1;
    if (!x->b->joins.of) return 1;
    while (n < MOST_JOINED && i + n < end && follows(x, i, i + n)) n++;
    return MAX2(1, x->b->joins.of(x->b, &x->args[i], n));
}

static void find_runs(Exec *x) {
    for (int ph = 0; ph < x->p->n_phases; ph++)
        for (int i = x->p->phase[ph].begin, end = x->p->phase[ph].end; i < end; i += x->run[i]) {
            x->run[i] = joined_from(x, i, end);
            x->joined[i] = x->run[i] > 1;
            if (!x->joined[i]) x->run[i] = same_from(x, i, end);
        }
}

bool exec_open(Exec *x, const Program *p, Backend *b, const int64_t *arena_bytes, Err *e) {
    *x = (Exec){.p = p, .b = b};
    int lacks = backend_lacks(b, p);
    if (lacks >= 0)
        return fail(e, ERR_FAIL, "%s has no kernel for '%s' (step %d)", b->name, op_name(p->s[lacks].op), lacks);
    for (int k = 0; k < POOL_COUNT; k++) {
        if (!arena_bytes[k]) continue;
        x->pool[k] = b->pool(b, (Pool)k, arena_bytes[k], e);
        if (!x->pool[k]) {
            exec_close(x);
            x->refused = (Pool)k;
            x->refused_bytes = k == POOL_DISK ? 0 : arena_bytes[k];
            return false;
        }
        x->pool_bytes[k] = arena_bytes[k];
    }
    x->args = MEM_NEW(Args, p->n_s);
    for (int i = 0; i < p->n_s; i++) resolve(x, i);
    x->run = MEM_NEW(int, p->n_s);
    x->joined = MEM_NEW(bool, p->n_s);
    find_passed(x);
    find_only_writers(x);
    find_runs(x);
    for (Tid t = 1; t < p->n_t; t++)
        if (p->t[t].table && p->t[t].birth >= 0) exec_put(x, t, p->t[t].table, 0, prog_bytes(p, t));
    return true;
}

void exec_close(Exec *x) {
    for (int k = 0; k < POOL_COUNT; k++)
        if (x->pool[k]) x->b->release(x->b, (Pool)k);
    mem_free(x->args);
    mem_free(x->run);
    mem_free(x->joined);
    mem_free(x->idle);
    *x = (Exec){0};
}

/* For a profiler: what the host is doing. */
static void mark(Exec *x, const char *name) {
    if (x->b->range) x->b->range(x->b, name);
}

static void enter_region(Exec *x, int *region, int next) {
    if (*region == next) return;
    if (*region >= 0) mark(x, NULL);
    if (next >= 0) mark(x, prog_region_name((Region)next));
    *region = next;
}

static void run_together(Exec *x, int i, int n) {
    const Step *s = &x->p->s[i];
    for (int q = 0; q < QUEUE_COUNT; q++)
        if (s->wait[q] >= 0) x->b->wait(x->b, s->queue, s->wait[q]);
    if (n == 1)
        x->b->kernels[s->op](x->b, s->queue, &x->args[i]);
    else if (x->joined[i])
        x->b->joins.run(x->b, s->queue, &x->args[i], n);
    else
        x->b->runs[s->op](x->b, s->queue, &x->args[i], n);
    for (int k = 0; k < n; k++) x->b->signal(x->b, s->queue, i + k);
}

static void run(Exec *x, int i) { run_together(x, i, 1); }

/* EXEC_LATE: a held step runs only when somebody waits for it, after what it waits for itself. */
static void run_held_until(Exec *x, Queue q, int last) {
    for (int i = x->held[q]; i <= last; i++) {
        const Step *s = &x->p->s[i];
        if (s->queue != q) continue;
        x->held[q] = i + 1;
        for (int other = 0; other < QUEUE_COUNT; other++)
            if (s->wait[other] >= 0 && other != QUEUE_COMPUTE) run_held_until(x, (Queue)other, s->wait[other]);
        run(x, i);
    }
    x->held[q] = MAX2(x->held[q], last + 1);
}

static void play_late(Exec *x, const Phase *ph) {
    for (int q = 0; q < QUEUE_COUNT; q++) x->held[q] = ph->begin;
    for (int i = ph->begin; i < ph->end; i++) {
        const Step *s = &x->p->s[i];
        if (s->queue != QUEUE_COMPUTE) continue;
        for (int q = 1; q < QUEUE_COUNT; q++)
            if (s->wait[q] >= 0) run_held_until(x, (Queue)q, s->wait[q]);
        run(x, i);
    }
    for (int q = 1; q < QUEUE_COUNT; q++) run_held_until(x, (Queue)q, ph->end - 1);
}

static void join(Exec *x, const Phase *ph) { /* a phase ends when all its queues have */
    int last[QUEUE_COUNT];
    for (int q = 0; q < QUEUE_COUNT; q++) last[q] = -1;
    for (int i = ph->begin; i < ph->end; i++) last[x->p->s[i].queue] = i;
    for (int q = 1; q < QUEUE_COUNT; q++)
        if (last[q] >= 0) x->b->wait(x->b, QUEUE_COMPUTE, last[q]);
}

static void play_as_written(Exec *x, const Phase *ph) {
    int region = -1; /* steps of a region follow each other: one range */
    bool leaves = x->leaves && !x->b->asynchronous;
    for (int i = ph->begin; i < ph->end && !(leaves && stop_asked()); i += x->run[i]) {
        enter_region(x, &region, (int)x->p->s[i].region);
        run_together(x, i, x->run[i]);
    }
    enter_region(x, &region, -1);
}

void exec_play(Exec *x, int phase) {
    const Phase *ph = &x->p->phase[phase];
    mark(x, ph->name);
    if (!x->b->replay(x->b, phase)) {
        x->b->begin(x->b, phase);
        if (x->order == EXEC_LATE) play_late(x, ph);
        else play_as_written(x, ph);
        join(x, ph);
        x->b->end(x->b, phase);
    }
    mark(x, NULL);
}

bool exec_sync(Exec *x, Err *e) { return x->b->sync(x->b, e); }

static void check_has_place(const Exec *x, Tid t) {
    const char *name = prog_t(x->p, t)->name;
    CHECK_MSG(prog_t(x->p, prog_base(x->p, t))->offset >= 0, "%s has no place: no step reads it", name);
}

void exec_put(Exec *x, Tid t, const void *host, int64_t at_byte, int64_t bytes) {
    const char *name = prog_t(x->p, t)->name;
    check_has_place(x, t);
    CHECK_MSG(at_byte >= 0 && at_byte + bytes <= prog_bytes(x->p, t), "%s", name);
    x->b->put(x->b, (char *)address(x, t) + at_byte, host, bytes);
}

void exec_get(Exec *x, Tid t, void *host, int64_t at_byte, int64_t bytes) {
    CHECK_MSG(at_byte >= 0 && at_byte + bytes <= prog_bytes(x->p, t), "%s", prog_t(x->p, t)->name);
    x->b->get(x->b, host, (const char *)address(x, t) + at_byte, bytes);
}

enum { STAGE_BYTES = 1 << 20 }; /* of what lies in files, at a time */

/* What neither the host touches nor the device stages lies in files. */
static bool is_in_files(const Exec *x, Tid t) {
    return prog_t(x->p, prog_base(x->p, t))->home.pool == POOL_DISK || !x->b->fetch;
}

static void stage_files(Exec *x, Tid t, bool stores, StageFn *fn, void *context) {
    int64_t bytes = prog_bytes(x->p, t);
    char *piece = mem_alloc(STAGE_BYTES);
    for (int64_t at = 0, n; at < bytes; at += n) {
        n = MIN2(STAGE_BYTES, bytes - at);
        if (!stores) exec_get(x, t, piece, at, n);
        fn(context, piece, at, n);
        if (stores) exec_put(x, t, piece, at, n);
    }
    mem_free(piece);
}

static void stage(Exec *x, Tid t, bool stores, StageFn *fn, void *context) {
    int64_t bytes = prog_bytes(x->p, t);
    check_has_place(x, t);
    if (is_touchable(x, t)) fn(context, address(x, t), 0, bytes);
    else if (is_in_files(x, t)) stage_files(x, t, stores, fn, context);
    else if (stores) x->b->store(x->b, address(x, t), bytes, fn, context);
    else x->b->fetch(x->b, address(x, t), bytes, fn, context);
}

void exec_fetch(Exec *x, Tid t, StageFn *fn, void *context) { stage(x, t, false, fn, context); }
void exec_store(Exec *x, Tid t, StageFn *fn, void *context) { stage(x, t, true, fn, context); }

void exec_note(Exec *x, int slot, Tid t) { x->b->note(x->b, slot, address(x, t), prog_bytes(x->p, t)); }

bool exec_read_note(Exec *x, int slot, Tid t, void *host, Err *e) {
    return x->b->read_note(x->b, slot, host, prog_bytes(x->p, t), e);
}

enum { PIECE = 1 << 20 }; /* numbers looked at a time */

typedef struct Look { /* one look's scratch: a device's numbers come through host memory */
    char raw[PIECE * 8];
    float value[PIECE];
} Look;

static bool all_finite(Exec *x, Tid id, Look *look) {
    const Tensor *t = prog_t(x->p, id);
    const FormatRow *row = &format_table[t->format];
    if (!row->plain || !row->real) return true;
    int64_t n = prog_elements(x->p, id), item = format_item_bytes(t->format);
    for (int64_t i = 0; i < n; i += PIECE) {
        int64_t m = MIN2(PIECE, n - i);
        exec_get(x, id, look->raw, i * item, m * item);
        row->decode(look->value, look->raw, 1, m, 0, 1);
        for (int64_t k = 0; k < m; k++)
            if (!isfinite(look->value[k])) return false;
    }
    return true;
}

int exec_find_not_finite(Exec *x, int phase, Err *e) {
    const Phase *ph = &x->p->phase[phase];
    Look *look = MEM_NEW(Look, 1);
    int found = -1;
    for (int i = ph->begin; i < ph->end && found < 0; i++) {
        run(x, i);
        if (!exec_sync(x, e)) found = i;
        for (int k = 0; k < MAX_OUT && found < 0; k++)
            if (x->p->s[i].out[k] && !all_finite(x, x->p->s[i].out[k], look)) found = i;
    }
    mem_free(look);
    return found;
}

bool exec_time(Exec *x, int phase, int times, double *seconds, Err *e) {
    const Phase *ph = &x->p->phase[phase];
    struct timespec a, b;
    for (int i = ph->begin, n = 1; i < ph->end; i += n) {
        n = x->joined[i] ? 1 : MAX2(1, x->run[i]); /* inside a joined one no run begins */
        mark(x, op_name(x->p->s[i].op));
        clock_gettime(CLOCK_MONOTONIC, &a);
        for (int k = 0; k < times; k++) run_together(x, i, n);
        if (!exec_sync(x, e)) return false;
        clock_gettime(CLOCK_MONOTONIC, &b);
        mark(x, NULL);
        seconds[i] += ((double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) * 1e-9) / times;
    }
    return true;
}

void exec_poison(Exec *x, int phase) {
    const Program *p = x->p;
    int begin = p->phase[phase].begin;
    char nan_bytes[4096];
    memset(nan_bytes, 0xff, sizeof nan_bytes);
    for (Tid id = 1; id < p->n_t; id++) { /* dead first, so that live neighbours are written never */
        const Tensor *t = prog_t(p, id);
        if (t->base || t->birth < 0 || exec_carried_into(p, t, begin)) continue;
        bool shared_alive = false; /* a live tensor may stand where this one will */
        for (Tid o = 1; o < p->n_t && !shared_alive; o++) {
            const Tensor *u = prog_t(p, o);
            shared_alive = !u->base && u->birth >= 0 && u->home.pool == t->home.pool &&
                           exec_carried_into(p, u, begin) && u->offset < t->offset + t->bytes &&
                           t->offset < u->offset + u->bytes;
        }
        if (shared_alive) continue;
        for (int64_t at = 0; at < t->bytes; at += (int64_t)sizeof nan_bytes)
            x->b->put(x->b, x->pool[t->home.pool] + t->offset + at, nan_bytes,
                      MIN2((int64_t)sizeof nan_bytes, t->bytes - at));
    }
}
