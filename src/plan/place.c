/* place.c - where in its pool's arena every slot lies.
 *
 * What lives always is packed at the bottom. The rest is placed one slot at a time, largest first (ties: longer life
 * first), each into the lowest gap that is free during its life. On decoder programs this comes within 0.2 % of the
 * lower bound, and it is quick enough to stand inside a search.
 *
 * A slot is a tensor, or a chain of tensors that take over from one another (share.c); its life is their union. */
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "plan/plan_int.h"

typedef struct Slot {
    Tid tensor; /* the first of its chain */
    int birth, death;
    int64_t bytes; /* aligned */
} Slot;

typedef struct Taken { /* a place that is taken */
    int birth, death;
    int64_t begin, end;
} Taken;

typedef struct Board { /* ordered by begin */
    Taken *at; /* owns */
    int64_t n, cap;
} Board;

/* Most slots are short-lived: they are compared with the few that touch their own stretch of steps, not with all. */
enum { STRETCH = 64 };
typedef struct Boards {
    Board all, *stretch; /* own */
    int64_t stretches;
} Boards;

static Slot *slots_of_pool(const Program *p, int64_t align_bytes, Pool pool, int64_t *n) {
    Slot *slot = MEM_NEW(Slot, p->n_t);
    int *at = MEM_NEW(int, p->n_t); /* tensor -> its slot's place in the list, plus one */
    *n = 0;
    for (Tid id = 1; id < p->n_t; id++) {
        const Tensor *t = &p->t[id];
        if (t->base || t->birth < 0 || t->home.pool != pool) continue;
        int64_t bytes = units_round_up(t->bytes, align_bytes);
        if (!at[t->slot]) {
            slot[*n] = (Slot){t->slot, t->birth, t->death, bytes};
            at[t->slot] = (int)++*n;
            continue;
        }
        Slot *s = &slot[at[t->slot] - 1];
        s->birth = MIN2(s->birth, t->birth);
        s->death = MAX2(s->death, t->death);
        s->bytes = MAX2(s->bytes, bytes);
    }
    mem_free(at);
    return slot;
}

static int64_t peak_of_slots(const Slot *slot, int64_t n, int64_t steps, int *peak_step) {
    int64_t *change = MEM_NEW(int64_t, steps + 1), live = 0, most = 0;
    for (int64_t i = 0; i < n; i++) {
        change[slot[i].birth] += slot[i].bytes;
        change[slot[i].death + 1] -= slot[i].bytes;
    }
    *peak_step = 0;
    for (int64_t i = 0; i < steps; i++) {
        live += change[i];
        if (live > most) most = live, *peak_step = (int)i;
    }
    mem_free(change);
    return most;
}

int64_t plan_peak(const Program *p, int64_t align_bytes, Pool pool, int *peak_step) {
    int64_t n;
    Slot *slot = slots_of_pool(p, align_bytes, pool, &n);
    int64_t most = peak_of_slots(slot, n, p->n_s, peak_step);
    mem_free(slot);
    return most;
}

static int by_size_then_life(const void *x, const void *y) {
    const Slot *a = x, *b = y;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? 1 : -1;
    int life_a = a->death - a->birth, life_b = b->death - b->birth;
    if (life_a != life_b) return life_a < life_b ? 1 : -1;
    return a->tensor < b->tensor ? -1 : a->tensor > b->tensor;
}

static int64_t lowest_gap(const Board *b, int64_t bottom, const Slot *s) {
    int64_t top = bottom;
    for (int64_t i = 0; i < b->n; i++) {
        const Taken *t = &b->at[i];
        if (t->death < s->birth || t->birth > s->death) continue;
        if (t->begin - top >= s->bytes) break;
        if (t->end > top) top = t->end;
    }
    return top;
}

static void take(Board *b, const Slot *s, int64_t offset) {
    int64_t low = 0, high = b->n;
    while (low < high) {
        int64_t mid = (low + high) / 2;
        if (b->at[mid].begin <= offset) low = mid + 1;
        else high = mid;
    }
    b->at = mem_grow(b->at, &b->cap, b->n + 1, sizeof *b->at);
    memmove(b->at + low + 1, b->at + low, (size_t)(b->n - low) * sizeof *b->at);
    b->at[low] = (Taken){s->birth, s->death, offset, offset + s->bytes};
    b->n++;
}

static int64_t place_slot(Boards *b, int64_t bottom, const Slot *s) {
    int first = s->birth / STRETCH, last = s->death / STRETCH;
    int64_t offset = lowest_gap(first == last ? &b->stretch[first] : &b->all, bottom, s);
    take(&b->all, s, offset);
    for (int i = first; i <= last; i++) take(&b->stretch[i], s, offset);
    return offset;
}

/* Gives the bytes used, and every slot's offset to the first tensor of its chain. */
static int64_t place_slots(Program *p, Slot *slot, int64_t n) {
    int64_t bottom = 0, moving = 0;
    for (int64_t i = 0; i < n; i++) {
        if (slot[i].birth == 0 && slot[i].death == p->n_s - 1) {
            p->t[slot[i].tensor].offset = bottom;
            bottom += slot[i].bytes;
        } else {
            slot[moving++] = slot[i];
        }
    }
    qsort(slot, (size_t)moving, sizeof *slot, by_size_then_life);
    Boards b = {.stretches = p->n_s / STRETCH + 1};
    b.stretch = MEM_NEW(Board, b.stretches);
    int64_t used = bottom;
    for (int64_t i = 0; i < moving; i++) {
        int64_t offset = place_slot(&b, bottom, &slot[i]);
        p->t[slot[i].tensor].offset = offset;
        used = MAX2(used, offset + slot[i].bytes);
    }
    mem_free(b.all.at);
    for (int64_t i = 0; i < b.stretches; i++) mem_free(b.stretch[i].at);
    mem_free(b.stretch);
    return used;
}

Placement plan_place_with(Program *p, PlanOptions options) {
    const Machine *m = options.machine;
    CHECK(m->align_bytes > 0 && m->page_bytes > 0);
    for (Tid id = 1; id < p->n_t; id++) p->t[id].slot = id;
    if (options.share) plan_share(p, m->align_bytes);
    Placement pl = {0};
    for (int pool = 0; pool < POOL_COUNT; pool++) {
        int64_t n;
        int peak_step;
        Slot *slot = slots_of_pool(p, m->align_bytes, (Pool)pool, &n);
        pl.lower_bound_bytes[pool] = peak_of_slots(slot, n, p->n_s, &peak_step);
        if (pool == POOL_DEVICE) pl.peak_step = peak_step;
        pl.arena_bytes[pool] = units_round_up(place_slots(p, slot, n), m->page_bytes);
        mem_free(slot);
    }
    for (Tid id = 1; id < p->n_t; id++) {
        Tensor *t = &p->t[id];
        if (t->birth < 0) t->offset = -1;
        else if (t->base) t->slot = p->t[t->base].slot, t->offset = p->t[t->slot].offset + t->view_bytes;
        else t->offset = p->t[t->slot].offset;
    }
    return pl;
}

Placement plan_place(Program *p, const Machine *m) {
    return plan_place_with(p, (PlanOptions){.machine = m, .share = true});
}

Placement plan_all(Program *p, const Machine *m) {
    plan_workspaces(p, m);
    plan_lifetimes(p);
    Placement pl = plan_place(p, m);
    plan_waits(p);
    return pl;
}
