/* penman.h - PENMAN notation: text becomes a tree, the tree becomes triples, and is printed again.
 *
 * Words. A *node* is a group in parentheses, `(b / bark-01 ...)`: its *variable* is b, its *concept* bark-01. A
 * *branch* is a role of a node with its target: a node of its own, or an *atom* (a variable named again, which is
 * a re-entrancy, or a constant). The concept is the branch whose role is "/". An *alignment* (`~e.4`) may stand
 * behind a role, a concept and an atom.
 *
 * What is accepted, the triples and the printed form are those of the Python package penman 1.3 with its AMR
 * model. Accepted does not mean valid: a node without a concept is read, and penman_check refuses it. */
#ifndef AMR_PENMAN_H
#define AMR_PENMAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

enum { PENMAN_DEPTH_MOST = 400 }; /* nodes inside each other; a deeper text is refused */

typedef struct PenmanBranch {
    const char *role;      /* ":ARG0-of"; "/": the concept */
    const char *role_mark; /* the role's alignment, "~e.1"; "": none */
    const char *atom;      /* a symbol, or a string with its quotes; NULL: the target is a node, or missing */
    const char *atom_mark; /* the atom's alignment; "": none */
    int32_t node;          /* the node that is the target; -1: none */
    int32_t next;          /* the next branch of the same node; -1: the last */
    int32_t line;          /* where the role stands */
} PenmanBranch;

typedef struct PenmanNode {
    const char *variable; /* NULL: () */
    int32_t first, last;  /* branches; -1: none */
    int32_t parent;       /* node; -1: the top */
    int32_t line;
} PenmanNode;

typedef struct PenmanMeta { /* `# ::key value` in front of the graph */
    const char *key, *value;
} PenmanMeta;

typedef struct Penman {
    PenmanNode *node; /* owns; in the order of the text, the top first */
    PenmanBranch *branch;
    PenmanMeta *meta;
    int64_t n_nodes, n_branches, n_meta, node_room, branch_room, meta_room;
    char *words; /* owns: every text that nodes, branches and metadata point to */
    int64_t words_used;
    int32_t *slot; /* owns: hash table of variables, see penman_find */
    int64_t n_slots;
} Penman;

/* Where reading begins and, afterwards, where it ended. */
typedef struct PenmanText {
    const char *at, *end;
    int64_t line; /* number of the line that holds *at */
} PenmanText;

/* Reads comments and one graph, and leaves `from` behind it: what follows is not looked at. A refusal names the
 * line. penman_free in either case. */
bool penman_read(Penman *out, PenmanText *from, Err *e);
void penman_free(Penman *p);

/* Only blanks are left, up to the end. */
bool penman_at_end(PenmanText *from);

/* The first node of that name; -1: there is none. */
int penman_find(const Penman *p, const char *variable);
const char *penman_concept(const Penman *p, int node);     /* without alignment; NULL: it has none */
const char *penman_meta(const Penman *p, const char *key); /* NULL: not there */

/* What a graph needs to mean something: every node has a variable and, behind '/', a concept; no variable names
 * two nodes; every role has a name and a target. The refusal names the line. */
bool penman_check(const Penman *p, Err *e);

typedef struct PenmanTriple {
    const char *source, *role, *target; /* source NULL: the node (); target NULL: missing */
    int role_len;                       /* of an inverse role the "-of" is left out */
    int source_node, target_node;       /* -1: none, a constant */
} PenmanTriple;

/* In the order of the text; inverse roles are turned around where both ends are nodes. The concept's role is
 * ":instance"; a node without one has a triple without a target. Gives: mem_free. */
PenmanTriple *penman_triples(const Penman *p, int64_t *n);

/* Whether the role runs from its target to its node: it ends in -of and is none of the three names that do so
 * anyway. */
bool penman_is_inverse(const char *role, int64_t len);

typedef enum PenmanLayout {
    PENMAN_INDENTED, /* a line a branch, under the first character of its node's concept, as penman prints */
    PENMAN_FLAT,     /* a line a branch, no indentation */
    PENMAN_ONE_LINE
} PenmanLayout;

void penman_print(Str *out, const Penman *p, PenmanLayout layout); /* without metadata and without a line end */

#endif
