/* gaps.c - the tree over step ranges, and sets of byte ranges that merge where they touch. */
#include "plan/gaps.h"

#include <string.h>

typedef struct Range {
    int64_t begin, end;
} Range;

struct Ranges { /* disjoint, ascending, never touching */
    Range *at;  /* of the arena */
    int32_t n, cap;
};

enum { MAX_SETS = 192 }; /* a life asks at most two nodes of every level, and the nodes above them */

void gaps_open(Gaps *g, int64_t steps) {
    *g = (Gaps){.steps = 1};
    while (g->steps < steps) g->steps *= 2;
    arena_init(&g->arena, "gaps");
    g->always = MEM_NEW(Ranges, 2 * g->steps);
    g->ever = MEM_NEW(Ranges, 2 * g->steps);
}

void gaps_clear(Gaps *g) {
    for (int64_t i = 0; i < 2 * g->steps; i++) g->always[i].n = g->ever[i].n = 0;
}

void gaps_close(Gaps *g) {
    arena_free(&g->arena);
    mem_free(g->always);
    mem_free(g->ever);
    *g = (Gaps){0};
}

/* The first range that ends at or after `at`. */
static int first_reaching(const Ranges *r, int64_t at) {
    int low = 0, high = r->n;
    while (low < high) {
        int mid = (low + high) / 2;
        if (r->at[mid].end < at)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static void open_place(Gaps *g, Ranges *r, int i) {
    if (r->n == r->cap) {
        int32_t cap = r->cap ? 2 * r->cap : 4;
        Range *more = ARENA_NEW(&g->arena, Range, cap);
        if (r->n) memcpy(more, r->at, (size_t)r->n * sizeof *more);
        r->at = more;
        r->cap = cap;
    }
    memmove(r->at + i + 1, r->at + i, (size_t)(r->n - i) * sizeof *r->at);
    r->n++;
}

static void add_range(Gaps *g, Ranges *r, Range x) {
    int first = first_reaching(r, x.begin), last = first; /* those that x meets or touches: [first, last) */
    for (; last < r->n && r->at[last].begin <= x.end; last++) {
        x.begin = MIN2(x.begin, r->at[last].begin);
        x.end = MAX2(x.end, r->at[last].end);
    }
    if (first == last) {
        open_place(g, r, first);
    } else if (last - first > 1) {
        memmove(r->at + first + 1, r->at + last, (size_t)(r->n - last) * sizeof *r->at);
        r->n -= last - first - 1;
    }
    r->at[first] = x;
}

static void take_in(Gaps *g, int64_t node, int64_t low, int64_t high, int birth, int death, Range x) {
    add_range(g, &g->ever[node], x);
    if (birth <= low && high <= death) {
        add_range(g, &g->always[node], x);
        return;
    }
    int64_t mid = (low + high) / 2;
    if (birth <= mid) take_in(g, 2 * node, low, mid, birth, death, x);
    if (death > mid) take_in(g, 2 * node + 1, mid + 1, high, birth, death, x);
}

void gaps_take(Gaps *g, int birth, int death, int64_t begin, int64_t bytes) {
    take_in(g, 1, 0, g->steps - 1, birth, death, (Range){begin, begin + bytes});
}

/* Gathers the sets that say what is taken during the life. */
static int gather(const Gaps *g, const Ranges **set, int n, int64_t node, int64_t low, int64_t high, int birth,
                  int death) {
    bool whole = birth <= low && high <= death;
    const Ranges *r = whole ? &g->ever[node] : &g->always[node];
    if (r->n) set[n++] = r;
    if (whole) return n;
    int64_t mid = (low + high) / 2;
    if (birth <= mid) n = gather(g, set, n, 2 * node, low, mid, birth, death);
    if (death > mid) n = gather(g, set, n, 2 * node + 1, mid + 1, high, birth, death);
    return n;
}

int64_t gaps_find(const Gaps *g, int birth, int death, int64_t bottom, int64_t bytes) {
    const Ranges *set[MAX_SETS];
    int at[MAX_SETS] = {0}, n = gather(g, set, 0, 1, 0, g->steps - 1, birth, death);
    int64_t top = bottom;
    for (int i = 0, agree = 0; agree < n; i = i + 1 < n ? i + 1 : 0) { /* until every set has room there */
        const Ranges *r = set[i];
        int64_t before = top;
        for (; at[i] < r->n && r->at[at[i]].begin < top + bytes; at[i]++) top = MAX2(top, r->at[at[i]].end);
        agree = top == before ? agree + 1 : 1;
    }
    return top;
}
