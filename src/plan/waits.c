/* waits.c - dependencies between queues: which step waits for which step of another queue, derived from byte ranges
 * (P8).
 *
 * Slots are reused across queues, so names say nothing: two steps conflict when one writes bytes that the other
 * reads or writes. A step waits for the latest conflicting step of each other queue; queues run in order, so
 * one number per queue is enough, and what an earlier wait of the same queue covers is dropped. A phase's end
 * joins all queues.
 *
 * Two steps of different queues: at least one of them is on a side queue. So only the bytes that side queues
 * touch are followed: their borders cut a pool into cells, and each side access covers whole cells. A compute
 * access that meets part of a cell meets every side access of that cell, so cells lose nothing. */
#include <stdlib.h>
#include <string.h>

#include "plan/plan_int.h"

typedef struct Cells {                                     /* of one pool, in one phase */
    int64_t *border;                                       /* owns: sorted; cell c is [border[c], border[c+1]) */
    int64_t n;                                             /* of borders */
    int *last_write[QUEUE_COUNT], *last_read[QUEUE_COUNT]; /* own: per cell the latest step; -1: none */
} Cells;

typedef struct Access {
    Tid tensor;
    bool writes;
} Access;

enum { MAX_ACCESS = MAX_IN + MAX_OUT + 1 };

static int accesses_of(const Step *s, Access *a) {
    int n = 0;
    for (int k = 0; k < MAX_IN; k++)
        if (s->in[k]) a[n++] = (Access){s->in[k], false};
    for (int k = 0; k < MAX_OUT; k++)
        if (s->out[k]) a[n++] = (Access){s->out[k], true};
    if (s->workspace) a[n++] = (Access){s->workspace, true};
    return n;
}

static int by_value(const void *x, const void *y) {
    int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
    return (a > b) - (a < b);
}

static void cells_init(Cells *cells, const Program *p, const Phase *phase, int side_steps) {
    for (int pool = 0; pool < POOL_COUNT; pool++)
        cells[pool] = (Cells){.border = MEM_NEW(int64_t, (int64_t)side_steps * MAX_ACCESS * 2 + 1)};
    for (int i = phase->begin; i < phase->end; i++) {
        if (p->s[i].queue == QUEUE_COMPUTE) continue;
        Access a[MAX_ACCESS];
        int n = accesses_of(&p->s[i], a);
        for (int k = 0; k < n; k++) {
            const Tensor *t = &p->t[a[k].tensor];
            Cells *c = &cells[t->home.pool];
            c->border[c->n++] = t->offset;
            c->border[c->n++] = t->offset + t->bytes;
        }
    }
    for (int pool = 0; pool < POOL_COUNT; pool++) {
        Cells *c = &cells[pool];
        int64_t unique = 0;
        qsort(c->border, (size_t)c->n, sizeof *c->border, by_value);
        for (int64_t i = 0; i < c->n; i++)
            if (!unique || c->border[i] != c->border[unique - 1]) c->border[unique++] = c->border[i];
        c->n = unique;
        for (int q = 0; q < QUEUE_COUNT; q++) {
            c->last_write[q] = MEM_NEW(int, unique + 1);
            c->last_read[q] = MEM_NEW(int, unique + 1);
            memset(c->last_write[q], -1, (size_t)unique * sizeof(int));
            memset(c->last_read[q], -1, (size_t)unique * sizeof(int));
        }
    }
}

static void cells_free(Cells *cells) {
    for (int pool = 0; pool < POOL_COUNT; pool++) {
        mem_free(cells[pool].border);
        for (int q = 0; q < QUEUE_COUNT; q++)
            mem_free(cells[pool].last_write[q]), mem_free(cells[pool].last_read[q]);
    }
}

static int64_t borders_up_to(const Cells *c, int64_t at) { /* how many borders are <= at */
    int64_t low = 0, high = c->n;
    while (low < high) {
        int64_t mid = (low + high) / 2;
        if (c->border[mid] <= at)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* need[r]: the latest step of queue r that must be over; then the access itself is noted. */
static void follow(Cells *cells, const Program *p, Access a, int step, Queue q, int *need) {
    const Tensor *t = &p->t[a.tensor];
    Cells *c = &cells[t->home.pool];
    int64_t first = MAX2(borders_up_to(c, t->offset) - 1, 0),
            last = borders_up_to(c, t->offset + t->bytes - 1) - 1;
    for (int64_t cell = first; cell <= last && cell < c->n - 1; cell++) {
        for (int r = 0; r < QUEUE_COUNT; r++) {
            if (r == (int)q) continue;
            need[r] = MAX2(need[r], c->last_write[r][cell]);
            if (a.writes) need[r] = MAX2(need[r], c->last_read[r][cell]);
        }
        *(a.writes ? &c->last_write[q][cell] : &c->last_read[q][cell]) = step;
    }
}

static void waits_of_phase(Program *p, const Phase *phase, int side_steps) {
    Cells cells[POOL_COUNT];
    cells_init(cells, p, phase, side_steps);
    int known[QUEUE_COUNT][QUEUE_COUNT]; /* [q][r]: the latest step of r that q has waited for */
    memset(known, -1, sizeof known);
    for (int i = phase->begin; i < phase->end; i++) {
        Step *s = &p->s[i];
        int need[QUEUE_COUNT];
        memset(need, -1, sizeof need);
        Access a[MAX_ACCESS];
        int n = accesses_of(s, a);
        for (int k = 0; k < n; k++) follow(cells, p, a[k], i, s->queue, need);
        for (int r = 0; r < QUEUE_COUNT; r++)
            if (need[r] > known[s->queue][r]) s->wait[r] = known[s->queue][r] = need[r];
    }
    cells_free(cells);
}

void plan_waits(Program *p) {
    plan_check_phases(p);
    for (int64_t i = 0; i < p->n_s; i++)
        for (int q = 0; q < QUEUE_COUNT; q++) p->s[i].wait[q] = -1;
    for (int ph = 0; ph < p->n_phases; ph++) {
        const Phase *phase = &p->phase[ph];
        int side_steps = 0;
        for (int i = phase->begin; i < phase->end; i++) side_steps += p->s[i].queue != QUEUE_COMPUTE;
        if (side_steps) waits_of_phase(p, phase, side_steps);
    }
}
