/* smatch_int.h - what the files of SMATCH share: a graph in numbers, and a pair of them as a problem of
 * assignment. */
#ifndef AMR_SMATCH_INT_H
#define AMR_SMATCH_INT_H

#include "amr/smatch.h"
#include "amr/words.h"
#include "base/mem.h"

/* ---- a graph ---- */

typedef struct SmatchAttribute {
    int32_t role, node, value;
} SmatchAttribute;

typedef struct SmatchRelation {
    int32_t role, from, to;
} SmatchRelation;

typedef struct SmatchGraph {
    int32_t n;                  /* nodes; the first one is the top */
    int32_t *concept;           /* owns; of each node; -1: it does not count */
    SmatchAttribute *attribute; /* owns; TOP is the last */
    SmatchRelation *relation;   /* owns */
    int32_t n_attributes, n_relations;
    int32_t first_words, dropped;
} SmatchGraph;

/* Of a valid graph; NULL: a graph without triples. smatch_graph_free. */
void smatch_graph_make(SmatchGraph *g, const Penman *p, AmrWords *w, const SmatchOptions *o);
/* The graph that a variant looks at. smatch_graph_free. */
void smatch_graph_view(SmatchGraph *out, const SmatchGraph *g, SmatchMetric m, AmrWords *w);
void smatch_graph_free(SmatchGraph *g);
int64_t smatch_graph_triples(const SmatchGraph *g);

/* ---- a pair: rows are the nodes of the smaller graph, columns those of the larger ---- */

typedef struct SmatchLink { /* two rows with relations between them */
    int32_t a, b;           /* a < b */
} SmatchLink;

typedef struct SmatchProblem {
    int rows, columns;
    int32_t *unary; /* rows x columns: triples matched by this assignment alone */
    bool *possible; /* rows x columns: assigning it can match something */
    SmatchLink *link;
    int n_links;
    int32_t *first_link, *link_of; /* link_of[first_link[r] .. first_link[r + 1]): the links of a row */
    int32_t *kind;                 /* columns x columns: which relations run between two columns; 0: none */
    int32_t *kind_from, *kind_to;  /* the two columns of a kind */
    int n_kinds;                   /* kind 0 included */
    int32_t *gain; /* links x kinds: triples matched when a link's rows are assigned to a kind's columns */
    int64_t bound; /* by counting labels: no mapping matches more */
    Arena arena;   /* owns all of them */
} SmatchProblem;

void smatch_problem_make(SmatchProblem *p, const SmatchGraph *a, const SmatchGraph *b);
void smatch_problem_free(SmatchProblem *p);

/* map[row] is a column or -1; no column twice. */
int64_t smatch_matched(const SmatchProblem *p, const int32_t *map);

static inline int32_t smatch_gain(const SmatchProblem *p, int link, int32_t column_a, int32_t column_b) {
    if (column_a < 0 || column_b < 0) return 0;
    return p->gain[(int64_t)link * p->n_kinds + p->kind[(int64_t)column_a * p->columns + column_b]];
}

/* Hill climbing by moves and swaps from the mapping given, which it improves; gives the triples matched. */
int64_t smatch_climb(const SmatchProblem *p, int32_t *map);

typedef struct SmatchFound {
    int64_t matched, bound; /* equal: proved */
} SmatchFound;
SmatchFound smatch_solve(const SmatchProblem *p, const SmatchOptions *o, uint64_t key);

/* Goes on from a mapping that matches `found->matched`; both may become better, and the bound is lowered. */
void smatch_exact(const SmatchProblem *p, int32_t *best, SmatchFound *found, int64_t node_limit);

#endif
