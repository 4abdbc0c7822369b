/* place.c - offset assignment: where in its pool's arena every slot lies.
 *
 * Slots that live always are packed at the bottom. The others are placed one at a time, first fit, each into the lowest
 * gap that is free during its life, largest first (ties: longer life first). Where the result is above the lower bound
 * (weights streamed through the device leave sliding windows), two more orders are tried: a few times with the slots
 * first that ended above the bound, then with those first that live through the most crowded steps. On decoder programs
 * the best of these comes within 0.2 % of the bound, and all of them together are quick enough for a search.
 *
 * A slot is a tensor, or a chain of tensors that take over from one another (share.c); its life is their union. */
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "plan/gaps.h"
#include "plan/plan_int.h"

typedef struct Slot {
    Tid tensor; /* the first of its chain */
    int birth, death;
    int64_t bytes;  /* aligned */
    int64_t peak_alive; /* most bytes alive at one step of its life */
    int64_t offset; /* by the order at hand */
} Slot;

static Slot *slots_of_pool(const Program *p, int64_t align_bytes, Pool pool, int64_t *n) {
    Slot *slot = MEM_NEW(Slot, p->n_t);
    int *at = MEM_NEW(int, p->n_t); /* tensor -> its slot's place in the list, plus one */
    *n = 0;
    for (Tid id = 1; id < p->n_t; id++) {
        const Tensor *t = &p->t[id];
        if (t->base || t->birth < 0 || t->home.pool != pool) continue;
        int64_t bytes = units_round_up(t->bytes, align_bytes);
        if (!at[t->slot]) {
            slot[*n] = (Slot){.tensor = t->slot, .birth = t->birth, .death = t->death, .bytes = bytes};
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

/* Gives the bytes alive at every step: mem_free. */
static int64_t *bytes_alive(const Slot *slot, int64_t n, int64_t steps) {
    int64_t *alive = MEM_NEW(int64_t, steps + 2);
    for (int64_t i = 0; i < n; i++) {
        alive[slot[i].birth] += slot[i].bytes;
        alive[slot[i].death + 1] -= slot[i].bytes;
    }
    for (int64_t i = 1; i < steps; i++) alive[i] += alive[i - 1];
    return alive;
}

static int64_t most_alive(const int64_t *alive, int64_t first, int64_t last, int *at) {
    int64_t most = 0;
    *at = (int)first;
    for (int64_t i = first; i <= last; i++)
        if (alive[i] > most) most = alive[i], *at = (int)i;
    return most;
}

int64_t plan_peak(const Program *p, int64_t align_bytes, Pool pool, int *peak_step) {
    int64_t n;
    Slot *slot = slots_of_pool(p, align_bytes, pool, &n);
    int64_t *alive = bytes_alive(slot, n, p->n_s), most = most_alive(alive, 0, p->n_s - 1, peak_step);
    mem_free(alive);
    mem_free(slot);
    return most;
}

static int descending(int64_t a, int64_t b) {
    return (a < b) - (a > b);
}

static int by_id(const Slot *a, const Slot *b) {
    return (a->tensor > b->tensor) - (a->tensor < b->tensor);
}

static int by_life(const Slot *a, const Slot *b) {
    return descending(a->death - a->birth, b->death - b->birth);
}

static int by_size(const void *x, const void *y) { /* longer life first among equals */
    const Slot *a = x, *b = y;
    int size = descending(a->bytes, b->bytes), life = by_life(a, b);
    return size ? size : life ? life : by_id(a, b);
}

static int by_peak_and_size(const void *x, const void *y) {
    int peak_alive = descending(((const Slot *)x)->peak_alive, ((const Slot *)y)->peak_alive);
    return peak_alive ? peak_alive : by_size(x, y);
}

static int by_peak_and_life(const void *x, const void *y) {
    int peak_alive = descending(((const Slot *)x)->peak_alive, ((const Slot *)y)->peak_alive),
        life = by_life(x, y);
    return peak_alive ? peak_alive : life ? life : by_size(x, y);
}

typedef int Order(const void *x, const void *y);
static Order *const orders[] = {by_size, by_peak_and_size, by_peak_and_life};
enum { GOOD_ENOUGH = 2000 }; /* one part in so many above the bound: no other order is tried */
enum { ROUNDS = 16 };        /* tries that put first what stood out the last time */

/* Places slots [0, n) above bottom in their order; gives the top. */
static int64_t place_in_order(Gaps *g, Slot *slot, int64_t n, int64_t bottom) {
    int64_t top = bottom;
    gaps_clear(g);
    for (Slot *s = slot; s < slot + n; s++) {
        s->offset = gaps_find(g, s->birth, s->death, bottom, s->bytes);
        gaps_take(g, s->birth, s->death, s->offset, s->bytes);
        top = MAX2(top, s->offset + s->bytes);
    }
    return top;
}

/* Slots that end above the limit go first from now on, the others keep their order; false when there is none. */
static bool promote(Slot *slot, Slot *scratch, int64_t n, int64_t limit) {
    int64_t front = 0;
    for (int64_t i = 0; i < n; i++) front += slot[i].offset + slot[i].bytes > limit;
    if (!front) return false;
    for (int64_t i = 0, high = 0, low = front; i < n; i++)
        scratch[slot[i].offset + slot[i].bytes > limit ? high++ : low++] = slot[i];
    memcpy(slot, scratch, (size_t)n * sizeof *slot);
    return true;
}

static int64_t keep_best(Program *p, const Slot *slot, int64_t n, int64_t top, int64_t best) {
    if (top >= best) return best;
    for (int64_t i = 0; i < n; i++) p->t[slot[i].tensor].offset = slot[i].offset;
    return top;
}

/* Gives the bytes used; every slot's offset goes to the first tensor of its chain. */
static int64_t place_slots(Program *p, Slot *slot, int64_t n, const int64_t *alive, int64_t bound) {
    int64_t bottom = 0, moving = 0, best = INT64_MAX;
    for (int64_t i = 0; i < n; i++) {
        if (slot[i].birth == 0 && slot[i].death == p->n_s - 1) {
            p->t[slot[i].tensor].offset = bottom;
            bottom += slot[i].bytes;
        } else {
            slot[moving++] = slot[i];
        }
    }
    int64_t enough = bound + bound / GOOD_ENOUGH;
    Slot *scratch = MEM_NEW(Slot, moving);
    Gaps g;
    gaps_open(&g, p->n_s);
    for (int o = 0; o < COUNT_OF(orders) && best > enough; o++) {
        int at;
        for (int64_t i = 0; i < moving && o == 1; i++)
            slot[i].peak_alive = most_alive(alive, slot[i].birth, slot[i].death, &at);
        qsort(slot, (size_t)moving, sizeof *slot, orders[o]);
        best = keep_best(p, slot, moving, place_in_order(&g, slot, moving, bottom), best);
        for (int round = 0; round < ROUNDS && best > enough && promote(slot, scratch, moving, enough); round++)
            best = keep_best(p, slot, moving, place_in_order(&g, slot, moving, bottom), best);
    }
    mem_free(scratch);
    gaps_close(&g);
    return best;
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
        int64_t *alive = bytes_alive(slot, n, p->n_s), bound = most_alive(alive, 0, p->n_s - 1, &peak_step);
        if (pool == POOL_DEVICE) pl.peak_step = peak_step;
        pl.lower_bound_bytes[pool] = bound;
        pl.arena_bytes[pool] = units_round_up(place_slots(p, slot, n, alive, bound), m->page_bytes);
        mem_free(alive);
        mem_free(slot);
    }
    for (Tid id = 1; id < p->n_t; id++) {
        Tensor *t = &p->t[id];
        if (t->birth < 0)
            t->offset = -1;
        else if (t->base)
            t->slot = p->t[t->base].slot, t->offset = p->t[t->slot].offset + t->view_bytes;
        else
            t->offset = p->t[t->slot].offset;
    }
    return pl;
}

Placement plan_place(Program *p, const Machine *m) {
    return plan_place_with(p, (PlanOptions){.machine = m, .share = true});
}

Placement plan_estimate(Program *p, const Machine *m) {
    plan_workspaces(p, m);
    plan_lifetimes(p);
    for (Tid id = 1; id < p->n_t; id++) p->t[id].slot = id;
    plan_share(p, m->align_bytes);
    Placement pl = {0};
    for (int pool = 0; pool < POOL_COUNT; pool++) {
        int peak_step;
        pl.lower_bound_bytes[pool] = plan_peak(p, m->align_bytes, (Pool)pool, &peak_step);
        pl.arena_bytes[pool] = units_round_up(pl.lower_bound_bytes[pool], m->page_bytes);
        if (pool == POOL_DEVICE) pl.peak_step = peak_step;
    }
    return pl;
}

Placement plan_all(Program *p, const Machine *m) {
    plan_workspaces(p, m);
    plan_lifetimes(p);
    Placement pl = plan_place(p, m);
    plan_waits(p);
    return pl;
}
