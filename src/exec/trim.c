/* trim.c - which bytes of the device pool are idle where a phase begins. */
#include <stdlib.h>

#include "exec/exec.h"

bool exec_carried_into(const Program *p, const Tensor *t, int step) {
    bool always = t->role <= ROLE_TABLE || (t->role >= ROLE_WEIGHT && t->role <= ROLE_STATISTIC);
    bool around = t->birth == 0 && t->death == p->n_s - 1; /* the ring: needed again where it begins */
    return always || around || (t->birth < step && t->death >= step);
}

static int by_offset(const void *a, const void *b) {
    int64_t x = ((const ExecRange *)a)->at, y = ((const ExecRange *)b)->at;
    return (x > y) - (x < y);
}

void exec_find_idle(Exec *x, int phase) {
    const Program *p = x->p;
    ExecRange *live = MEM_NEW(ExecRange, p->n_t);
    int n = 0;
    for (Tid id = 1; id < p->n_t; id++) {
        const Tensor *t = prog_t(p, id);
        if (t->base || t->birth < 0 || t->home.pool != POOL_DEVICE || !exec_carried_into(p, t, p->phase[phase].begin))
            continue;
        live[n++] = (ExecRange){t->offset, t->bytes};
    }
    qsort(live, (size_t)n, sizeof *live, by_offset);
    mem_free(x->idle);
    x->idle = MEM_NEW(ExecRange, n + 1);
    x->n_idle = 0;
    int64_t end = 0; /* of what is alive so far */
    for (int i = 0; i <= n; i++) {
        int64_t next = i < n ? live[i].at : x->pool_bytes[POOL_DEVICE];
        if (next > end) x->idle[x->n_idle++] = (ExecRange){end, next - end};
        if (i < n) end = MAX2(end, live[i].at + live[i].bytes);
    }
    mem_free(live);
}

int64_t exec_trim(Exec *x) {
    int64_t given = 0;
    for (int i = 0; i < x->n_idle; i++) given += x->b->trim(x->b, x->idle[i].at, x->idle[i].bytes);
    return given;
}
