/* smatch_climb.c - hill climbing: from some mapping, the best single move or swap until none gains. */
#include "amr/smatch_int.h"
#include "base/rng.h"

/* value[row][column]: what the row matches when it has that column and all others stay; kept up to date move by
 * move. The last column means "not assigned" and is worth 0. */
typedef struct Climber {
    const SmatchProblem *p;
    int32_t *map;
    int32_t *value;
    bool *used;   /* of columns */
    bool *linked; /* rows x rows */
    int stride;   /* columns + 1 */
} Climber;

/* The gain of a link when its row `own` has column c and the other end has column d; -1: none. */
static int32_t gain_between(const Climber *k, int link, int own, int32_t c, int32_t d) {
    return k->p->link[link].a == own ? smatch_gain(k->p, link, c, d) : smatch_gain(k->p, link, d, c);
}

static int32_t *value_at(const Climber *k, int row, int32_t column) {
    return &k->value[(int64_t)row * k->stride + (column < 0 ? k->p->columns : column)];
}

/* Row r has another column: its neighbours' values follow. */
static void assign(Climber *k, int r, int32_t column) {
    const SmatchProblem *p = k->p;
    int32_t before = k->map[r];
    for (int32_t i = p->first_link[r]; i < p->first_link[r + 1]; i++) {
        int link = p->link_of[i], other = p->link[link].a == r ? p->link[link].b : p->link[link].a;
        for (int32_t c = 0; c < p->columns; c++)
            *value_at(k, other, c) +=
                gain_between(k, link, other, c, column) - gain_between(k, link, other, c, before);
    }
    if (before >= 0) k->used[before] = false;
    if (column >= 0) k->used[column] = true;
    k->map[r] = column;
}

static void climber_init(Climber *k, const SmatchProblem *p, int32_t *map) {
    *k = (Climber){.p = p, .map = map, .stride = p->columns + 1};
    k->value = MEM_NEW(int32_t, (int64_t)p->rows * k->stride + 1);
    k->used = MEM_NEW(bool, p->columns + 1);
    k->linked = MEM_NEW(bool, (int64_t)p->rows * p->rows + 1);
    for (int r = 0; r < p->rows; r++)
        for (int32_t c = 0; c < p->columns; c++) *value_at(k, r, c) = p->unary[(int64_t)r * p->columns + c];
    for (int l = 0; l < p->n_links; l++) {
        SmatchLink n = p->link[l];
        k->linked[(int64_t)n.a * p->rows + n.b] = k->linked[(int64_t)n.b * p->rows + n.a] = true;
    }
    for (int r = 0; r < p->rows; r++) {
        int32_t column = map[r];
        map[r] = -1;
        if (column >= 0) assign(k, r, column);
    }
}

typedef struct Step {
    int64_t gain;
    int row, other; /* the row swapped with; -1: a move */
    int32_t column;
} Step;

static void try_moves(const Climber *k, Step *best) {
    for (int r = 0; r < k->p->rows; r++) {
        int32_t now = *value_at(k, r, k->map[r]);
        for (int32_t c = 0; c < k->p->columns; c++)
            if (!k->used[c] && *value_at(k, r, c) - now > best->gain)
                *best = (Step){*value_at(k, r, c) - now, r, -1, c};
    }
}

/* Rows without a link between them do not see each other's change; of two that have one, the link is taken out and
 * put in again. */
static int64_t swap_gain(const Climber *k, int r, int s) {
    int32_t a = k->map[r], b = k->map[s];
    int64_t gain = (int64_t)*value_at(k, r, b) + *value_at(k, s, a) - *value_at(k, r, a) - *value_at(k, s, b);
    for (int32_t i = k->p->first_link[r]; k->linked[(int64_t)r * k->p->rows + s] && i < k->p->first_link[r + 1];
         i++) {
        int link = k->p->link_of[i];
        if (k->p->link[link].a != s && k->p->link[link].b != s) continue;
        gain += gain_between(k, link, r, a, b) + gain_between(k, link, r, b, a);
        gain -= gain_between(k, link, r, b, b) + gain_between(k, link, r, a, a);
    }
    return gain;
}

static void try_swaps(const Climber *k, Step *best) {
    for (int r = 0; r < k->p->rows; r++)
        for (int s = r + 1; s < k->p->rows; s++) {
            int64_t gain = swap_gain(k, r, s);
            if (gain > best->gain) *best = (Step){gain, r, s, -1};
        }
}

int64_t smatch_climb(const SmatchProblem *p, int32_t *map) {
    Climber k;
    climber_init(&k, p, map);
    for (;;) {
        Step best = {0};
        try_moves(&k, &best);
        try_swaps(&k, &best);
        if (!best.gain) break;
        int32_t to = best.other < 0 ? best.column : map[best.other], from = map[best.row];
        if (best.other >= 0) assign(&k, best.other, -1);
        assign(&k, best.row, to);
        if (best.other >= 0) assign(&k, best.other, from);
    }
    mem_free(k.value);
    mem_free(k.used);
    mem_free(k.linked);
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

/* Equal concepts first (turn 0), random ones by key. */
static void start_mapping(const SmatchProblem *p, int32_t *map, int turn, uint64_t key) {
    bool *used = MEM_NEW(bool, p->columns + 1);
    for (int r = 0; r < p->rows; r++) map[r] = -1;
    for (int pass = turn ? 1 : 0; pass < 2;
         pass++) { /* equal concepts or attributes first, then the rest at random */
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
        start_mapping(p, map, turn, key);
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
