/* smatch_climb.c - hill climbing: from some mapping, the best single move or swap until none gains. */
#include "amr/smatch_int.h"
#include "base/rng.h"

/* What row r matches when it is assigned to column c and all others stay. */
static int64_t value_of(const SmatchProblem *p, const int32_t *map, int r, int32_t c) {
    if (c < 0) return 0;
    int64_t n = p->unary[(int64_t)r * p->columns + c];
    for (int32_t i = p->first_link[r]; i < p->first_link[r + 1]; i++) {
        const SmatchLink *l = &p->link[p->link_of[i]];
        n += l->a == r ? smatch_gain(p, p->link_of[i], c, map[l->b]) : smatch_gain(p, p->link_of[i], map[l->a], c);
    }
    return n;
}

/* What a pair of rows matches, their common link counted once. */
static int64_t value_of_both(const SmatchProblem *p, int32_t *map, int r, int s) {
    int32_t kept = map[s];
    int64_t n = value_of(p, map, s, kept);
    map[s] = -1;
    n += value_of(p, map, r, map[r]);
    map[s] = kept;
    return n;
}

typedef struct Step {
    int64_t gain;
    int row, other; /* the row swapped with; -1: a move */
    int32_t column;
} Step;

static void try_moves(const SmatchProblem *p, const int32_t *map, const bool *used, Step *best) {
    for (int r = 0; r < p->rows; r++) {
        int64_t now = value_of(p, map, r, map[r]);
        for (int32_t c = 0; c < p->columns; c++) {
            if (used[c] || !p->possible[(int64_t)r * p->columns + c]) continue;
            int64_t gain = value_of(p, map, r, c) - now;
            if (gain > best->gain) *best = (Step){gain, r, -1, c};
        }
    }
}

static void try_swaps(const SmatchProblem *p, int32_t *map, Step *best) {
    for (int r = 0; r < p->rows; r++) {
        for (int s = r + 1; s < p->rows; s++) {
            int32_t a = map[r], b = map[s];
            if (a == b) continue; /* both unassigned */
            int64_t now = value_of_both(p, map, r, s);
            map[r] = b;
            map[s] = a;
            int64_t gain = value_of_both(p, map, r, s) - now;
            map[r] = a;
            map[s] = b;
            if (gain > best->gain) *best = (Step){gain, r, s, -1};
        }
    }
}

int64_t smatch_climb(const SmatchProblem *p, int32_t *map) {
    bool *used = MEM_NEW(bool, p->columns + 1);
    for (int r = 0; r < p->rows; r++)
        if (map[r] >= 0) used[map[r]] = true;
    for (Step best = {.gain = 1}; best.gain > 0;) {
        best = (Step){0};
        try_moves(p, map, used, &best);
        try_swaps(p, map, &best);
        if (!best.gain) break;
        int32_t from = map[best.row];
        if (best.other < 0) {
            if (from >= 0) used[from] = false;
            used[best.column] = true;
            map[best.row] = best.column;
        } else {
            map[best.row] = map[best.other];
            map[best.other] = from;
        }
    }
    mem_free(used);
    return smatch_matched(p, map);
}

/* ---- where it begins ---- */

/* Of the free columns that can match something with this row: the one that matches most alone, or any. */
static int32_t pick(const SmatchProblem *p, const bool *used, int r, bool random, uint64_t key) {
    int32_t found = -1;
    int64_t most = -1, seen = 0;
    for (int32_t c = 0; c < p->columns; c++) {
        int64_t at = (int64_t)r * p->columns + c;
        if (used[c] || !p->possible[at]) continue;
        bool take = random ? rng_fold(key, (uint64_t)seen) % (uint64_t)(seen + 1) == 0 : p->unary[at] > most;
        seen++;
        if (!take) continue;
        found = c;
        most = p->unary[at];
    }
    return found;
}

void smatch_start(const SmatchProblem *p, int32_t *map, int turn, uint64_t key) {
    bool *used = MEM_NEW(bool, p->columns + 1);
    for (int r = 0; r < p->rows; r++) map[r] = -1;
    for (int pass = turn ? 1 : 0; pass < 2; pass++) { /* equal concepts or attributes first, then the rest at random */
        for (int r = 0; r < p->rows; r++) {
            if (map[r] >= 0) continue;
            int32_t c = pick(p, used, r, pass > 0, rng_fold(rng_fold(key, (uint64_t)turn), (uint64_t)r));
            if (c < 0 || (!pass && !p->unary[(int64_t)r * p->columns + c])) continue;
            map[r] = c;
            used[c] = true;
        }
    }
    mem_free(used);
}

/* ---- climbing first, proving afterwards ---- */

SmatchFound smatch_solve(const SmatchProblem *p, const SmatchOptions *o, uint64_t key) {
    int32_t *map = MEM_NEW(int32_t, p->rows + 1), *best = MEM_NEW(int32_t, p->rows + 1);
    SmatchFound found = {.matched = -1, .bound = p->bound};
    for (int turn = 0; turn <= o->restarts && found.matched < found.bound; turn++) {
        smatch_start(p, map, turn, key);
        int64_t n = smatch_climb(p, map);
        if (n > found.matched) {
            found.matched = n;
            for (int r = 0; r < p->rows; r++) best[r] = map[r];
        }
        if (!turn && !o->climb) smatch_exact(p, best, &found, 1); /* often the first mapping is proved at once */
    }
    if (!o->climb && found.matched < found.bound) smatch_exact(p, best, &found, o->node_limit);
    mem_free(map);
    mem_free(best);
    return found;
}
