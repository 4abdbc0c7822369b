/* smatch_problem.c - a pair of graphs as numbers: what each assignment matches alone, what two of them match
 * together.
 *
 * Relations between two nodes, in both directions, are one bag. A *kind* is an ordered pair of columns that has
 * such a bag; a *link* a pair of rows that has one. gain[link][kind] is the size of the two bags' intersection, so
 * a mapping's matches are sums of table entries. Triples that stand several times in a graph are counted so often
 * in both bags. */
#include <stdlib.h>
#include <string.h>

#include "amr/smatch_int.h"

/* Relations of a graph by their ends, those of equal ends and roles side by side. */
static int by_ends(const void *x, const void *y) {
    const SmatchRelation *a = x, *b = y;
    if (a->from != b->from) return a->from < b->from ? -1 : 1;
    if (a->to != b->to) return a->to < b->to ? -1 : 1;
    return a->role < b->role ? -1 : a->role > b->role;
}

typedef struct Bag { /* the relations from one node to another: sorted by role */
    const SmatchRelation *at;
    int n;
} Bag;

static int common(Bag a, Bag b) {
    int n = 0;
    for (int i = 0, k = 0; i < a.n && k < b.n;) {
        int32_t x = a.at[i].role, y = b.at[k].role;
        n += x == y;
        i += x <= y;
        k += y <= x;
    }
    return n;
}

/* The relations of a graph, sorted, and where those of each ordered pair of nodes lie. */
typedef struct Bags {
    SmatchRelation *sorted;
    int n;
} Bags;

static Bags bags_of(const SmatchGraph *g, Arena *a) {
    Bags b = {ARENA_NEW(a, SmatchRelation, g->n_relations + 1), g->n_relations};
    if (b.n) memcpy(b.sorted, g->relation, (size_t)b.n * sizeof *b.sorted);
    qsort(b.sorted, (size_t)b.n, sizeof *b.sorted, by_ends);
    return b;
}

static Bag bag_between(const Bags *b, int32_t from, int32_t to) {
    int low = 0, high = b->n;
    while (low < high) {
        int mid = (low + high) / 2;
        const SmatchRelation *r = &b->sorted[mid];
        if (r->from < from || (r->from == from && r->to < to))
            low = mid + 1;
        else
            high = mid;
    }
    int end = low;
    while (end < b->n && b->sorted[end].from == from && b->sorted[end].to == to) end++;
    return (Bag){b->sorted + low, end - low};
}

/* ---- alone: concepts, attributes, relations of a node to itself ---- */

/* Of each attribute, how many equal ones of the same node stand before it. */
static int32_t *ranks_of(const SmatchGraph *g, Arena *arena) {
    int32_t *rank = ARENA_NEW(arena, int32_t, g->n_attributes + 1);
    for (int i = 0; i < g->n_attributes; i++)
        for (int k = 0; k < i; k++) {
            SmatchAttribute a = g->attribute[i], b = g->attribute[k];
            rank[i] += a.node == b.node && a.role == b.role && a.value == b.value;
        }
    return rank;
}

/* The k-th of equal attributes matches where the other node has k of them as well. */
static void add_attributes(SmatchProblem *p, const SmatchGraph *a, const SmatchGraph *b) {
    const int32_t *rank_a = ranks_of(a, &p->arena), *rank_b = ranks_of(b, &p->arena);
    for (int i = 0; i < a->n_attributes; i++) {
        SmatchAttribute x = a->attribute[i];
        for (int k = 0; k < b->n_attributes; k++) {
            SmatchAttribute y = b->attribute[k];
            if (x.role == y.role && x.value == y.value && rank_a[i] == rank_b[k])
                p->unary[(int64_t)x.node * p->columns + y.node]++;
        }
    }
}

static void fill_unary(SmatchProblem *p, const SmatchGraph *a, const SmatchGraph *b, const Bags *ba,
                       const Bags *bb) {
    for (int32_t r = 0; r < p->rows; r++) {
        Bag own = bag_between(ba, r, r);
        for (int32_t c = 0; c < p->columns; c++) {
            int32_t *u = &p->unary[(int64_t)r * p->columns + c];
            *u = a->concept[r] >= 0 && a->concept[r] == b->concept[c];
            if (own.n) *u += common(own, bag_between(bb, c, c));
        }
    }
    add_attributes(p, a, b);
}

/* ---- together ---- */

/* A link for each two rows with relations in either direction, and the list of links of every row. */
static void make_links(SmatchProblem *p, const Bags *b) {
    p->link = ARENA_NEW(&p->arena, SmatchLink, b->n + 1);
    for (int i = 0; i < b->n; i++) {
        SmatchRelation r = b->sorted[i];
        bool again = i && b->sorted[i - 1].from == r.from && b->sorted[i - 1].to == r.to;
        bool seen = r.from > r.to && bag_between(b, r.to, r.from).n; /* its reverse made the link */
        if (!again && !seen && r.from != r.to)
            p->link[p->n_links++] = (SmatchLink){MIN2(r.from, r.to), MAX2(r.from, r.to)};
    }
    p->first_link = ARENA_NEW(&p->arena, int32_t, p->rows + 1);
    p->link_of = ARENA_NEW(&p->arena, int32_t, 2 * p->n_links + 1);
    for (int l = 0; l < p->n_links; l++) p->first_link[p->link[l].a]++, p->first_link[p->link[l].b]++;
    for (int r = 0, at = 0; r <= p->rows; r++) at += r < p->rows ? p->first_link[r] : 0, p->first_link[r] = at;
    for (int l = 0; l < p->n_links; l++) {
        p->link_of[--p->first_link[p->link[l].a]] = l;
        p->link_of[--p->first_link[p->link[l].b]] = l;
    }
}

static void make_kinds(SmatchProblem *p, const Bags *b) {
    p->kind = ARENA_NEW(&p->arena, int32_t, (int64_t)p->columns * p->columns);
    p->kind_from = ARENA_NEW(&p->arena, int32_t, 2 * b->n + 1);
    p->kind_to = ARENA_NEW(&p->arena, int32_t, 2 * b->n + 1);
    p->n_kinds = 1;
    for (int i = 0; i < b->n; i++) {
        for (int turned = 0; turned < 2; turned++) {
            int32_t from = turned ? b->sorted[i].to : b->sorted[i].from,
                    to = turned ? b->sorted[i].from : b->sorted[i].to;
            int32_t *kind = &p->kind[(int64_t)from * p->columns + to];
            if (*kind || from == to) continue;
            p->kind_from[p->n_kinds] = from;
            p->kind_to[p->n_kinds] = to;
            *kind = p->n_kinds++;
        }
    }
}

static void fill_gain(SmatchProblem *p, const Bags *ba, const Bags *bb) {
    p->gain = ARENA_NEW(&p->arena, int32_t, (int64_t)p->n_links * p->n_kinds + 1);
    for (int l = 0; l < p->n_links; l++) {
        SmatchLink link = p->link[l];
        Bag there = bag_between(ba, link.a, link.b), back = bag_between(ba, link.b, link.a);
        for (int k = 1; k < p->n_kinds; k++) {
            int32_t from = p->kind_from[k], to = p->kind_to[k];
            int n = common(there, bag_between(bb, from, to)) + common(back, bag_between(bb, to, from));
            p->gain[(int64_t)l * p->n_kinds + k] = n;
            if (!n) continue;
            p->possible[(int64_t)link.a * p->columns + from] = true;
            p->possible[(int64_t)link.b * p->columns + to] = true;
        }
    }
}

/* ---- the bound that needs no mapping: labels in common ---- */

typedef struct Label {
    int32_t of, a, b; /* 0: a concept a; 1: an attribute a with the value b; 2: a relation a */
} Label;

static int by_label(const void *x, const void *y) {
    return memcmp(x, y, sizeof(Label));
}

static Label *labels_of(const SmatchGraph *g, Arena *arena, int64_t *n) {
    Label *l = ARENA_NEW(arena, Label, (int64_t)g->n + g->n_attributes + g->n_relations + 1);
    *n = 0;
    for (int i = 0; i < g->n; i++)
        if (g->concept[i] >= 0) l[(*n)++] = (Label){0, g->concept[i], 0};
    for (int i = 0; i < g->n_attributes; i++) l[(*n)++] = (Label){1, g->attribute[i].role, g->attribute[i].value};
    for (int i = 0; i < g->n_relations; i++) l[(*n)++] = (Label){2, g->relation[i].role, 0};
    qsort(l, (size_t)*n, sizeof *l, by_label);
    return l;
}

static int64_t labels_in_common(const SmatchGraph *a, const SmatchGraph *b, Arena *arena) {
    int64_t na, nb, n = 0;
    const Label *x = labels_of(a, arena, &na), *y = labels_of(b, arena, &nb);
    for (int64_t i = 0, k = 0; i < na && k < nb;) {
        int order = by_label(&x[i], &y[k]);
        n += order == 0;
        i += order <= 0;
        k += order >= 0;
    }
    return n;
}

/* ---- the whole ---- */

void smatch_problem_make(SmatchProblem *p, const SmatchGraph *a, const SmatchGraph *b) {
    if (a->n > b->n) {
        const SmatchGraph *larger = a;
        a = b;
        b = larger;
    }
    *p = (SmatchProblem){.rows = a->n, .columns = b->n};
    arena_init(&p->arena, "smatch");
    Bags ba = bags_of(a, &p->arena), bb = bags_of(b, &p->arena);
    p->unary = ARENA_NEW(&p->arena, int32_t, (int64_t)p->rows * p->columns + 1);
    p->possible = ARENA_NEW(&p->arena, bool, (int64_t)p->rows * p->columns + 1);
    fill_unary(p, a, b, &ba, &bb);
    for (int64_t i = 0; i < (int64_t)p->rows * p->columns; i++) p->possible[i] = p->unary[i] > 0;
    make_links(p, &ba);
    make_kinds(p, &bb);
    fill_gain(p, &ba, &bb);
    p->bound = labels_in_common(a, b, &p->arena);
}

void smatch_problem_free(SmatchProblem *p) {
    arena_free(&p->arena);
}

int64_t smatch_matched(const SmatchProblem *p, const int32_t *map) {
    int64_t n = 0;
    for (int r = 0; r < p->rows; r++)
        if (map[r] >= 0) n += p->unary[(int64_t)r * p->columns + map[r]];
    for (int l = 0; l < p->n_links; l++) n += smatch_gain(p, l, map[p->link[l].a], map[p->link[l].b]);
    return n;
}
