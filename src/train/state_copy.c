/* state_copy.c - a snapshot of state in host memory, and an executor that reads it there. */
#include <string.h>

#include "base/mem.h"
#include "train/log_writer.h"
#include "weights/weights.h"

typedef struct StatePart {
    Tid id;
    const char *address; /* of its slot */
    int64_t at, bytes;   /* in the copy */
} StatePart;

static bool belongs(const Tensor *t, Role trained) {
    bool optimizer = t->role == ROLE_MOMENT || t->role == ROLE_MASTER;
    return !t->base && (optimizer || (t->role == trained && !t->model));
}

int64_t state_copy_bytes(const Program *p, Role trained) {
    int64_t bytes = 0;
    for (Tid t = 1; t < p->n_t; t++)
        if (belongs(&p->t[t], trained)) bytes += prog_bytes(p, t);
    return bytes;
}

/* ---- reading ---- */

static char *find(const StateCopy *c, const char *address, int64_t bytes) {
    int low = 0, high = c->n;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (c->part[middle].address <= address) low = middle;
        else high = middle;
    }
    const StatePart *p = &c->part[low];
    CHECK(c->n && address >= p->address && address + bytes <= p->address + p->bytes);
    return c->data + p->at + (address - p->address);
}

static const StateCopy *copy_of(const Backend *b) {
    return (const StateCopy *)((const char *)b - offsetof(StateCopy, b));
}

static void fetch(Backend *b, const void *device, int64_t bytes, StageFn *fn, void *context) {
    fn(context, find(copy_of(b), device, bytes), 0, bytes);
}

static void get(Backend *b, void *host, const void *device, int64_t bytes) {
    memcpy(host, find(copy_of(b), device, bytes), (size_t)bytes);
}

/* ---- taking ---- */

static void add_part(StateCopy *c, const Exec *x, Tid id) {
    StatePart new = {id, exec_address(x, id), c->bytes, prog_bytes(x->p, id)};
    int at = c->n++;
    for (; at > 0 && c->part[at - 1].address > new.address; at--) c->part[at] = c->part[at - 1];
    c->part[at] = new;
    c->bytes += new.bytes;
}

void state_copy_open(StateCopy *c, Exec *x, Role trained) {
    int n = 0;
    for (Tid t = 1; t < x->p->n_t; t++) n += belongs(&x->p->t[t], trained);
    *c = (StateCopy){.part = MEM_NEW(StatePart, n), .x = *x, .b = {.name = "copy", .fetch = fetch, .get = get}};
    for (Tid t = 1; t < x->p->n_t; t++)
        if (belongs(&x->p->t[t], trained)) add_part(c, x, t);
    c->data = mem_alloc_wide(c->bytes);
    c->x.b = &c->b;
}

void state_copy_close(StateCopy *c) {
    mem_free(c->part);
    mem_free(c->data);
    *c = (StateCopy){0};
}

typedef struct Copying {
    Threads *team; /* NULL: one thread */
    char *to;
} Copying;

static void copy_piece(void *context, void *piece, int64_t at, int64_t bytes) {
    const Copying *k = context;
    threads_copy(k->team, k->to + at, piece, bytes);
}

void state_copy_take(StateCopy *c, Exec *x) {
    Copying k = {.team = weights_team(c->bytes)};
    for (int i = 0; i < c->n; i++) {
        k.to = c->data + c->part[i].at;
        exec_fetch(x, c->part[i].id, copy_piece, &k);
    }
    threads_close(k.team);
}
