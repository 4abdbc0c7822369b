/* exec.c - walks the list: wait, run, signal. */
#include "exec/exec.h"

#include <math.h>
#include <string.h>
#include <time.h>

static void *address(const Exec *x, Tid id) {
    if (!id) return NULL;
    const Tensor *t = prog_t(x->p, id), *base = prog_t(x->p, prog_base(x->p, id));
    return x->pool[base->home.pool] + base->offset + (t->base ? t->view_bytes : 0);
}

void *exec_address(const Exec *x, Tid t) { return address(x, t); }

static void resolve(Exec *x, int i) {
    const Step *s = &x->p->s[i];
    Args *a = &x->args[i];
    a->step = s;
    for (int k = 0; k < MAX_IN; k++) {
        a->in[k] = address(x, s->in[k]);
        a->ti[k] = s->in[k] ? prog_t(x->p, s->in[k]) : NULL;
    }
    for (int k = 0; k < MAX_OUT; k++) {
        a->out[k] = address(x, s->out[k]);
        a->to[k] = s->out[k] ? prog_t(x->p, s->out[k]) : NULL;
    }
    a->workspace = address(x, s->workspace);
    a->workspace_bytes = s->workspace ? prog_bytes(x->p, s->workspace) : 0;
}

bool exec_open(Exec *x, const Program *p, Backend *b, const int64_t *arena_bytes, Err *e) {
    *x = (Exec){.p = p, .b = b};
    int lacks = backend_lacks(b, p);
    if (lacks >= 0)
        return fail(e, ERR_FAIL, "%s has no kernel for '%s' (step %d)", b->name, op_row(p->s[lacks].op)->name, lacks);
    for (int k = 0; k < POOL_COUNT; k++) {
        if (!arena_bytes[k]) continue;
        x->pool[k] = b->pool(b, (Pool)k, arena_bytes[k], e);
        if (!x->pool[k]) {
            exec_close(x);
            return false;
        }
        x->pool_bytes[k] = arena_bytes[k];
    }
    x->args = MEM_NEW(Args, p->n_s);
    for (int i = 0; i < p->n_s; i++) resolve(x, i);
    return true;
}

void exec_close(Exec *x) {
    for (int k = 0; k < POOL_COUNT; k++)
        if (x->pool[k]) x->b->release(x->b, (Pool)k);
    mem_free(x->args);
    *x = (Exec){0};
}

static void run(Exec *x, int i) {
    const Step *s = &x->p->s[i];
    for (int q = 0; q < QUEUE_COUNT; q++)
        if (s->wait[q] >= 0) x->b->wait(x->b, s->queue, s->wait[q]);
    x->b->kernels[s->op](x->b, s->queue, &x->args[i]);
    x->b->signal(x->b, s->queue, i);
}

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

void exec_play(Exec *x, int phase) {
    const Phase *ph = &x->p->phase[phase];
    if (x->b->replay(x->b, phase)) return;
    x->b->begin(x->b, phase);
    if (x->order == EXEC_LATE) play_late(x, ph);
    else
        for (int i = ph->begin; i < ph->end; i++) run(x, i);
    join(x, ph);
    x->b->end(x->b, phase);
}

bool exec_sync(Exec *x, Err *e) { return x->b->sync(x->b, e); }

void exec_put(Exec *x, Tid t, const void *host, int64_t at_byte, int64_t bytes) {
    CHECK_MSG(at_byte >= 0 && at_byte + bytes <= prog_bytes(x->p, t), "%s", prog_t(x->p, t)->name);
    x->b->put(x->b, (char *)address(x, t) + at_byte, host, bytes);
}

void exec_get(Exec *x, Tid t, void *host, int64_t at_byte, int64_t bytes) {
    CHECK_MSG(at_byte >= 0 && at_byte + bytes <= prog_bytes(x->p, t), "%s", prog_t(x->p, t)->name);
    x->b->get(x->b, host, (const char *)address(x, t) + at_byte, bytes);
}

static bool all_finite(Exec *x, Tid id) {
    enum { PIECE = 4096 };
    const Tensor *t = prog_t(x->p, id);
    const FormatRow *row = &format_table[t->format];
    if (!row->plain || !row->real) return true;
    char raw[PIECE * 8];
    float value[PIECE];
    int64_t n = prog_elements(x->p, id), item = format_item_bytes(t->format);
    for (int64_t i = 0; i < n; i += PIECE) {
        int64_t m = MIN2(PIECE, n - i);
        exec_get(x, id, raw, i * item, m * item);
        row->decode(value, raw, 1, m, 0, 1);
        for (int64_t k = 0; k < m; k++)
            if (!isfinite(value[k])) return false;
    }
    return true;
}

int exec_find_not_finite(Exec *x, int phase, Err *e) {
    const Phase *ph = &x->p->phase[phase];
    for (int i = ph->begin; i < ph->end; i++) {
        run(x, i);
        if (!exec_sync(x, e)) return i;
        for (int k = 0; k < MAX_OUT; k++)
            if (x->p->s[i].out[k] && !all_finite(x, x->p->s[i].out[k])) return i;
    }
    return -1;
}

bool exec_time(Exec *x, int phase, double *seconds, Err *e) {
    const Phase *ph = &x->p->phase[phase];
    struct timespec a, b;
    for (int i = ph->begin; i < ph->end; i++) {
        clock_gettime(CLOCK_MONOTONIC, &a);
        run(x, i);
        if (!exec_sync(x, e)) return false;
        clock_gettime(CLOCK_MONOTONIC, &b);
        seconds[i] += (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) * 1e-9;
    }
    return true;
}

static bool carried_into(const Program *p, const Tensor *t, int step) {
    bool always = t->role <= ROLE_TABLE || (t->role >= ROLE_WEIGHT && t->role <= ROLE_STATISTIC);
    bool around = t->birth == 0 && t->death == p->n_s - 1; /* the ring: needed again where it begins */
    return always || around || (t->birth < step && t->death >= step);
}

void exec_poison(Exec *x, int phase) {
    const Program *p = x->p;
    int begin = p->phase[phase].begin;
    char nan_bytes[4096];
    memset(nan_bytes, 0xff, sizeof nan_bytes);
    for (Tid id = 1; id < p->n_t; id++) { /* dead first, so that live neighbours are written never */
        const Tensor *t = prog_t(p, id);
        if (t->base || t->birth < 0 || carried_into(p, t, begin)) continue;
        bool shared_alive = false; /* a live tensor may stand where this one will */
        for (Tid o = 1; o < p->n_t && !shared_alive; o++) {
            const Tensor *u = prog_t(p, o);
            shared_alive = !u->base && u->birth >= 0 && u->home.pool == t->home.pool && carried_into(p, u, begin) &&
                           u->offset < t->offset + t->bytes && t->offset < u->offset + u->bytes;
        }
        if (shared_alive) continue;
        for (int64_t at = 0; at < t->bytes; at += (int64_t)sizeof nan_bytes)
            x->b->put(x->b, x->pool[t->home.pool] + t->offset + at, nan_bytes, MIN2((int64_t)sizeof nan_bytes, t->bytes - at));
    }
}
