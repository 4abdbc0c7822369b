/* smatch_exact.c - the best mapping, proved: branch and bound over rows, with a bound by Lagrangian decomposition.
 *
 * The mapping is a quadratic assignment problem with few pairwise terms, the links. The bound decouples them: every
 * link has its own copy of its two rows' assignments, and Lagrange multipliers ("prices") stand between the copies. A
 * link alone is maximised by looking at its entries, the rows alone are a linear assignment problem. For any prices
 *
 *     bound = assignment(unary + prices of the links) + sum over links of max(gain - prices)
 *
 * is an upper bound, improved by dual ascent. Links give all they have to their rows, so that their own maximum is 0.
 * The assignment problem then has dual variables, and a pair (row, column) outside the optimum has slack (reduced
 * cost), which can be given back to the links of the row without raising the bound. No turn makes the bound worse.
 * Matches are whole numbers: a bound below best + 1 is a proof.
 *
 *   E1  Prices are whole numbers of 1/SCALE triples, so that no rounding makes a bound too low.
 *   E2  Column n (of n columns) means "not assigned"; it is worth 0 and open to every row.
 *   E3  A pair whose slack exceeds bound - (best + 1) is in no better mapping, and is closed for the subtree.
 *   E4  Orders, ties and limits depend on the numbers alone: a pair gives the same answer on every machine. */
#include <stdlib.h>
#include <string.h>

#include "amr/smatch_int.h"

enum { SCALE = 1 << 16, ROOT_TURNS = 80, CHILD_TURNS = 12, DEPTH_MOST = 100 };
/* The limit of time, in cells that assignments look at, so that it is the same everywhere (E4). */
enum { ROOT_WORK = 20000000, NODE_WORK = 20000 };
/* Beyond these sizes nothing is tried: E1's numbers, or the memory of a level, would not fit. */
enum { MATCHES_MOST = 4000, CELLS_MOST = 500 * 500 };
enum { NEAR = 2 }; /* a relaxed solution so close to the best is climbed from */
#define CLOSED (INT64_MAX / 8)

typedef struct Entry { /* two columns that a link gains something from */
    int32_t from, to, gain;
} Entry;

typedef struct Level { /* of the tree: prices and what is still open; a child begins with a copy of its parent's */
    int32_t *to_a, *to_b; /* links x (columns + 1): what a link has given to its two rows */
    int32_t *worth;       /* rows x (columns + 1): SCALE * unary + what links have given */
    bool *open;           /* rows x (columns + 1) */
} Level;

typedef struct Solver {
    const SmatchProblem *p;
    int rows, columns, stride; /* stride: columns + 1 */
    int32_t *best;
    int64_t matched, bound;
    int64_t nodes, node_limit, work, work_limit;
    Entry *entry; /* those of link l: first_entry[l] .. first_entry[l + 1] */
    int32_t *first_entry;
    Level *level;                      /* by depth, made when they are reached */
    int64_t *row_price, *column_price; /* duals of the assignment, as costs */
    int32_t *row_of;                   /* of a column and, behind them, of a row's own "not assigned"; -1: free */
    int32_t *map, *trial, *way;
    int64_t *slack;
    bool *seen;
    int32_t *marginal; /* columns + 1 */
    Arena arena;
} Solver;

/* ---- the assignment: shortest augmenting paths (Hungarian method) on costs -worth ---- */

/* Column j >= columns is row (j - columns)'s own "not assigned". */
static int64_t cost(const Solver *s, const Level *v, int row, int j) {
    int64_t at = (int64_t)row * s->stride + MIN2(j, s->columns);
    return (j >= s->columns && j - s->columns != row) || !v->open[at] ? CLOSED : -(int64_t)v->worth[at];
}

/* Assigns one more row; false: it has nothing open. */
static bool augment(Solver *s, const Level *v, int first) {
    int n = s->columns + s->rows, row = first, j0 = -1;
    for (int j = 0; j < n; j++) s->slack[j] = CLOSED, s->seen[j] = false, s->way[j] = -1;
    for (;;) {
        int64_t least = CLOSED;
        int next = -1;
        s->work += n;
        for (int j = 0; j < n; j++) {
            if (s->seen[j]) continue;
            int64_t c = j < s->columns || j - s->columns == row ? cost(s, v, row, j) : CLOSED;
            if (c < CLOSED && c - s->row_price[row] - s->column_price[j] < s->slack[j]) {
                s->slack[j] = c - s->row_price[row] - s->column_price[j];
                s->way[j] = j0;
            }
            if (s->slack[j] < least) least = s->slack[j], next = j;
        }
        if (next < 0) return false;
        s->row_price[first] += least;
        for (int j = 0; j < n; j++) {
            if (s->seen[j])
                s->row_price[s->row_of[j]] += least, s->column_price[j] -= least;
            else if (s->slack[j] < CLOSED)
                s->slack[j] -= least;
        }
        s->seen[next] = true;
        j0 = next;
        if (s->row_of[next] < 0) break;
        row = s->row_of[next];
    }
    for (int j = j0; j >= 0; j = s->way[j]) s->row_of[j] = s->way[j] >= 0 ? s->row_of[s->way[j]] : first;
    return true;
}

/* The value of the best assignment, with duals and s->map; false: some row has nothing open. */
static bool assign(Solver *s, const Level *v, int64_t *value) {
    int n = s->columns + s->rows;
    memset(s->row_price, 0, (size_t)s->rows * sizeof *s->row_price);
    memset(s->column_price, 0, (size_t)n * sizeof *s->column_price);
    for (int j = 0; j < n; j++) s->row_of[j] = -1;
    for (int r = 0; r < s->rows; r++)
        if (!augment(s, v, r)) return false;
    *value = 0;
    for (int j = 0; j < n; j++) {
        if (s->row_of[j] < 0) continue;
        s->map[s->row_of[j]] = j < s->columns ? j : -1;
        *value -= cost(s, v, s->row_of[j], j);
    }
    return true;
}

/* How much worse than the best an assignment with (row, column) is at least; column may be "not assigned". */
static int64_t slack_of(const Solver *s, const Level *v, int row, int column) {
    int j = column < s->columns ? column : s->columns + row;
    return cost(s, v, row, j) - s->row_price[row] - s->column_price[j];
}

/* ---- prices ---- */

/* For every column of one row of a link: the most that the link has, by its present prices, when that row has that
 * column. */
static void marginals(Solver *s, const Level *v, int l, bool of_a) {
    const SmatchLink *link = &s->p->link[l];
    int own_row = of_a ? link->a : link->b, other_row = of_a ? link->b : link->a;
    const bool *open = v->open + (int64_t)own_row * s->stride,
               *other_open = v->open + (int64_t)other_row * s->stride;
    const int32_t *own = (of_a ? v->to_a : v->to_b) + (int64_t)l * s->stride;
    const int32_t *other = (of_a ? v->to_b : v->to_a) + (int64_t)l * s->stride;
    int first = -1, second = -1; /* cheapest columns of the other row; two rows never share one */
    for (int j = 0; j < s->stride; j++) {
        if (!other_open[j]) continue;
        if (first < 0 || other[j] < other[first])
            second = first, first = j;
        else if (second < 0 || other[j] < other[second])
            second = j;
    }
    for (int j = 0; j < s->stride; j++) {
        int rest = j == first && j < s->columns && second >= 0 ? second : first;
        s->marginal[j] = open[j] ? -own[j] - other[rest] : 0;
    }
    for (int32_t i = s->first_entry[l]; i < s->first_entry[l + 1]; i++) {
        Entry n = s->entry[i];
        int32_t mine = of_a ? n.from : n.to, theirs = of_a ? n.to : n.from;
        if (!open[mine] || !other_open[theirs]) continue;
        int32_t has = n.gain * SCALE - own[mine] - other[theirs];
        s->marginal[mine] = MAX2(s->marginal[mine], has);
    }
}

/* Gives 1/part of what the link has for a row to that row. */
static void give(Solver *s, const Level *v, int l, bool to_a, int part) {
    int row = to_a ? s->p->link[l].a : s->p->link[l].b;
    int32_t *given = (to_a ? v->to_a : v->to_b) + (int64_t)l * s->stride,
            *worth = v->worth + (int64_t)row * s->stride;
    marginals(s, v, l, to_a);
    for (int j = 0; j < s->stride; j++) {
        given[j] += s->marginal[j] / part;
        worth[j] += s->marginal[j] / part;
    }
}

static void links_give(Solver *s, const Level *v) {
    for (int l = 0; l < s->p->n_links; l++) {
        give(s, v, l, true, 2);
        give(s, v, l, false, 1);
        give(s, v, l, true, 1); /* the link's maximum is 0 now, for every column of either row */
    }
}

static void rows_give_back(Solver *s, const Level *v) {
    const SmatchProblem *p = s->p;
    for (int r = 0; r < s->rows; r++) {
        int32_t from = p->first_link[r], n = p->first_link[r + 1] - from;
        for (int j = 0; n && j < s->stride; j++) {
            int64_t at = (int64_t)r * s->stride + j;
            if (!v->open[at]) continue;
            int32_t share = (int32_t)(slack_of(s, v, r, j) / n);
            for (int32_t i = from; i < from + n; i++) {
                int l = p->link_of[i];
                (p->link[l].a == r ? v->to_a : v->to_b)[(int64_t)l * s->stride + j] += share;
            }
            v->worth[at] += share * n;
        }
    }
}

/* ---- one node of the tree ---- */

/* Gives what the mapping matches. */
static int64_t take_better(Solver *s, const int32_t *map) {
    int64_t n = smatch_matched(s->p, map);
    if (n > s->matched) {
        s->matched = n;
        memcpy(s->best, map, (size_t)s->rows * sizeof *map);
    }
    return n;
}

/* What must be reached to be better than the best. */
static int64_t goal(const Solver *s) {
    return (s->matched + 1) * SCALE;
}

static void close_hopeless(const Solver *s, const Level *v, int64_t bound) { /* E3 */
    for (int r = 0; r < s->rows; r++)
        for (int j = 0; j < s->stride; j++) {
            bool *open = &v->open[(int64_t)r * s->stride + j];
            if (*open && bound - slack_of(s, v, r, j) < goal(s)) *open = false;
        }
}

/* The bound of what is open at this level, improved until it proves that nothing better is there or hardly falls
 * any more; 0: nothing better is there. */
static int64_t improve_bound(Solver *s, const Level *v, int turns) {
    int64_t bound = 0, before = INT64_MAX;
    for (int turn = 0; turn < turns; turn++) {
        links_give(s, v);
        if (!assign(s, v, &bound)) return 0;
        int64_t matched = take_better(s, s->map);
        if (turn == 0 && matched >= s->matched - NEAR) {
            memcpy(s->trial, s->map, (size_t)s->rows * sizeof *s->map);
            smatch_climb(s->p, s->trial);
            take_better(s, s->trial);
        }
        if (bound < goal(s)) return 0;
        close_hopeless(s, v, bound);
        if (turn % 8 == 7) {
            if (before - bound < SCALE / 32) break;
            before = bound;
        }
        if (s->work > s->work_limit) break;
        if (turn + 1 < turns) rows_give_back(s, v);
    }
    return bound;
}

static Level *level_at(Solver *s, int depth) {
    Level *v = &s->level[depth];
    if (v->open) return v;
    int64_t links = (int64_t)s->p->n_links * s->stride, cells = (int64_t)s->rows * s->stride;
    v->to_a = ARENA_NEW(&s->arena, int32_t, links + 1);
    v->to_b = ARENA_NEW(&s->arena, int32_t, links + 1);
    v->worth = ARENA_NEW(&s->arena, int32_t, cells + 1);
    v->open = ARENA_NEW(&s->arena, bool, cells + 1);
    return v;
}

/* The child in which a row has that column and nobody else does. */
static void make_child(Solver *s, const Level *from, Level *to, int row, int column) {
    size_t links = (size_t)s->p->n_links * (size_t)s->stride, cells = (size_t)s->rows * (size_t)s->stride;
    memcpy(to->to_a, from->to_a, links * sizeof *to->to_a);
    memcpy(to->to_b, from->to_b, links * sizeof *to->to_b);
    memcpy(to->worth, from->worth, cells * sizeof *to->worth);
    memcpy(to->open, from->open, cells * sizeof *to->open);
    for (int j = 0; j < s->stride; j++) to->open[(int64_t)row * s->stride + j] = j == column;
    for (int r = 0; column < s->columns && r < s->rows; r++)
        if (r != row) to->open[(int64_t)r * s->stride + column] = false;
}

static int count_open(const Solver *s, const Level *v, int row) {
    int n = 0;
    for (int j = 0; j < s->stride; j++) n += v->open[(int64_t)row * s->stride + j];
    return n;
}

/* The row with the fewest columns left, of those with more than one; -1: all are settled. */
static int row_to_branch(const Solver *s, const Level *v) {
    int found = -1, fewest = INT32_MAX;
    for (int r = 0; r < s->rows; r++) {
        int n = count_open(s, v, r);
        if (n > 1 && n < fewest) fewest = n, found = r;
    }
    return found;
}

typedef struct Branch {
    int64_t slack;
    int column;
} Branch;

static int by_slack(const void *x, const void *y) {
    const Branch *a = x, *b = y;
    return a->slack != b->slack ? (a->slack < b->slack ? -1 : 1) : a->column - b->column;
}

/* Searches what is open at this level; false: the limit of nodes was met. */
static bool search(Solver *s, int depth) {
    Level *v = &s->level[depth];
    s->nodes++;
    int64_t bound = improve_bound(s, v, depth ? CHILD_TURNS : ROOT_TURNS);
    if (!depth) s->bound = MAX2(s->matched, MIN2(s->bound, bound / SCALE));
    int row = bound ? row_to_branch(s, v) : -1;
    if (row < 0) return true;
    if (s->nodes >= s->node_limit || s->work > s->work_limit || depth == DEPTH_MOST) return false;
    Branch *branch = MEM_NEW(Branch, s->stride);
    int n = 0;
    for (int j = 0; j < s->stride; j++)
        if (v->open[(int64_t)row * s->stride + j]) branch[n++] = (Branch){slack_of(s, v, row, j), j};
    qsort(branch, (size_t)n, sizeof *branch, by_slack);
    bool done = true;
    for (int i = 0; done && i < n; i++) {
        if (bound - branch[i].slack < goal(s)) continue;
        make_child(s, v, level_at(s, depth + 1), row, branch[i].column);
        done = search(s, depth + 1);
    }
    mem_free(branch);
    return done;
}

/* ---- the whole ---- */

static void list_entries(Solver *s) {
    const SmatchProblem *p = s->p;
    int64_t n = 0, cells = (int64_t)p->n_links * p->n_kinds;
    for (int64_t i = 0; i < cells; i++) n += p->gain[i] > 0;
    s->entry = ARENA_NEW(&s->arena, Entry, n + 1);
    s->first_entry = ARENA_NEW(&s->arena, int32_t, p->n_links + 1);
    n = 0;
    for (int l = 0; l < p->n_links; l++) {
        for (int k = 1; k < p->n_kinds; k++) {
            int32_t gain = p->gain[(int64_t)l * p->n_kinds + k];
            if (gain) s->entry[n++] = (Entry){p->kind_from[k], p->kind_to[k], gain};
        }
        s->first_entry[l + 1] = (int32_t)n;
    }
}

static void open_root(Solver *s) {
    Level *v = level_at(s, 0);
    for (int r = 0; r < s->rows; r++) {
        for (int j = 0; j < s->columns; j++) {
            v->open[(int64_t)r * s->stride + j] = s->p->possible[(int64_t)r * s->columns + j];
            v->worth[(int64_t)r * s->stride + j] = SCALE * s->p->unary[(int64_t)r * s->columns + j];
        }
        v->open[(int64_t)r * s->stride + s->columns] = true; /* E2 */
    }
}

void smatch_exact(const SmatchProblem *p, int32_t *best, SmatchFound *found, int64_t node_limit) {
    int64_t cells = (int64_t)p->rows * p->columns;
    if (found->matched >= found->bound || !p->rows || found->bound > MATCHES_MOST || cells > CELLS_MOST) return;
    Solver s = {.p = p,
                .rows = p->rows,
                .columns = p->columns,
                .stride = p->columns + 1,
                .best = best,
                .matched = found->matched,
                .bound = found->bound,
                .node_limit = node_limit,
                .work_limit = ROOT_WORK + node_limit * NODE_WORK};
    int n = p->rows + p->columns;
    arena_init(&s.arena, "branch and bound");
    s.level = ARENA_NEW(&s.arena, Level, DEPTH_MOST + 1);
    s.row_price = ARENA_NEW(&s.arena, int64_t, p->rows);
    s.column_price = ARENA_NEW(&s.arena, int64_t, n);
    s.slack = ARENA_NEW(&s.arena, int64_t, n);
    s.row_of = ARENA_NEW(&s.arena, int32_t, n);
    s.way = ARENA_NEW(&s.arena, int32_t, n);
    s.seen = ARENA_NEW(&s.arena, bool, n);
    s.map = ARENA_NEW(&s.arena, int32_t, p->rows);
    s.trial = ARENA_NEW(&s.arena, int32_t, p->rows);
    s.marginal = ARENA_NEW(&s.arena, int32_t, s.stride);
    list_entries(&s);
    open_root(&s);
    bool done = search(&s, 0);
    found->matched = s.matched;
    found->bound = done ? s.matched : MAX2(s.matched, s.bound);
    arena_free(&s.arena);
}
