/* penman_graph.c - what a tree stands for: its variables, its triples, and whether it is a graph that means
 * something. */
#include <string.h>

#include "amr/penman_int.h"
#include "amr/words.h"

/* ---- nodes and branches ---- */

int32_t penman_add_node(Penman *p, int32_t parent, int32_t line) {
    p->node = mem_grow(p->node, &p->node_room, p->n_nodes + 1, sizeof *p->node);
    p->node[p->n_nodes] = (PenmanNode){.first = -1, .last = -1, .parent = parent, .line = line};
    return (int32_t)p->n_nodes++;
}

int32_t penman_add_branch(Penman *p, int32_t node, const char *role, int32_t line) {
    p->branch = mem_grow(p->branch, &p->branch_room, p->n_branches + 1, sizeof *p->branch);
    int32_t b = (int32_t)p->n_branches++;
    p->branch[b] =
        (PenmanBranch){.role = role, .role_mark = "", .atom_mark = "", .node = -1, .next = -1, .line = line};
    PenmanNode *n = &p->node[node];
    if (n->first < 0)
        n->first = b;
    else
        p->branch[n->last].next = b;
    n->last = b;
    return b;
}

void penman_free(Penman *p) {
    mem_free(p->node);
    mem_free(p->branch);
    mem_free(p->meta);
    mem_free(p->words);
    mem_free(p->slot);
    *p = (Penman){0};
}

const char *penman_meta(const Penman *p, const char *key) {
    for (int64_t i = 0; i < p->n_meta; i++)
        if (!strcmp(p->meta[i].key, key)) return p->meta[i].value;
    return NULL;
}

/* ---- variables: a table of node numbers + 1, open addressing, at most half full ---- */

/* The place of that variable, or the free place it would have. */
static int64_t slot_of(const Penman *p, const char *variable) {
    int64_t i = (int64_t)(amr_hash(variable) & (uint64_t)(p->n_slots - 1));
    while (p->slot[i] && strcmp(p->node[p->slot[i] - 1].variable, variable)) i = (i + 1) & (p->n_slots - 1);
    return i;
}

void penman_index(Penman *p) {
    p->n_slots = 8;
    while (p->n_slots < 2 * p->n_nodes) p->n_slots *= 2;
    p->slot = MEM_NEW(int32_t, p->n_slots);
    for (int32_t i = 0; i < p->n_nodes; i++) {
        if (!p->node[i].variable) continue;
        int64_t s = slot_of(p, p->node[i].variable);
        if (!p->slot[s]) p->slot[s] = i + 1; /* the first of that name stays */
    }
}

int penman_find(const Penman *p, const char *variable) {
    return variable && p->n_slots ? p->slot[slot_of(p, variable)] - 1 : -1;
}

/* ---- triples ---- */

static bool is_concept(const PenmanBranch *b) {
    return !strcmp(b->role, "/") || !strcmp(b->role, ":instance");
}

const char *penman_concept(const Penman *p, int node) {
    for (int32_t b = p->node[node].first; b >= 0; b = p->branch[b].next)
        if (is_concept(&p->branch[b])) return p->branch[b].atom;
    return NULL;
}

bool penman_is_inverse(const char *role, int64_t len) {
    static const char *const forward[] = {":consist-of", ":prep-on-behalf-of", ":prep-out-of"};
    if (len < 3 || memcmp(role + len - 3, "-of", 3)) return false;
    for (int i = 0; i < COUNT_OF(forward); i++)
        if ((int64_t)strlen(forward[i]) == len && !memcmp(role, forward[i], (size_t)len)) return false;
    return true;
}

static PenmanTriple triple_of(const Penman *p, int32_t node, const PenmanBranch *b) {
    bool concept = is_concept(b), opens = b->node >= 0;
    PenmanTriple t = {.source = p->node[node].variable,
                      .role = concept ? ":instance" : b->role,
                      .target = opens ? p->node[b->node].variable : b->atom};
    t.role_len = (int)strlen(t.role);
    t.source_node = penman_find(p, t.source);
    t.target_node = concept && !opens ? -1 : penman_find(p, t.target);
    if (!penman_is_inverse(t.role, t.role_len) || (t.target_node < 0 && !opens)) return t;
    t.role_len -= 3;
    return (PenmanTriple){.source = t.target,
                          .role = t.role,
                          .role_len = t.role_len,
                          .target = t.source,
                          .source_node = t.target_node,
                          .target_node = t.source_node};
}

/* Whether some branch names the concept, even if the concept itself is missing. */
static bool names_concept(const Penman *p, int32_t node) {
    for (int32_t b = p->node[node].first; b >= 0; b = p->branch[b].next)
        if (is_concept(&p->branch[b])) return true;
    return false;
}

static PenmanTriple without_concept(const Penman *p, int32_t node) {
    const char *variable = p->node[node].variable;
    return (PenmanTriple){.source = variable,
                          .role = ":instance",
                          .role_len = 9,
                          .source_node = penman_find(p, variable),
                          .target_node = -1};
}

PenmanTriple *penman_triples(const Penman *p, int64_t *n) {
    PenmanTriple *t = MEM_NEW(PenmanTriple, p->n_nodes + p->n_branches);
    int32_t *at =
        MEM_NEW(int32_t, p->n_nodes + 1); /* 2 + the branch that the node goes on with; 0: not seen yet */
    *n = 0;
    for (int32_t node = 0, next = 0; node >= 0; node = next) {
        if (!at[node]) {
            if (!names_concept(p, node)) t[(*n)++] = without_concept(p, node);
            at[node] = p->node[node].first + 2;
        }
        int32_t b = at[node] - 2;
        next = node;
        if (b < 0) {
            next = p->node[node].parent;
            continue;
        }
        at[node] = p->branch[b].next + 2;
        t[(*n)++] = triple_of(p, node, &p->branch[b]);
        if (p->branch[b].node >= 0) next = p->branch[b].node;
    }
    mem_free(at);
    return t;
}

/* ---- validity ---- */

static bool check_branch(const PenmanBranch *b, Err *e) {
    if (!strcmp(b->role, "/")) return true; /* there is one at most; it is looked for below */
    if (!strcmp(b->role, ":instance"))
        return fail(e, ERR_FAIL, "line %d: a concept is written behind '/', not as :instance", b->line);
    if (!b->role[1]) return fail(e, ERR_FAIL, "line %d: a role has no name", b->line);
    return b->atom || b->node >= 0 || fail(e, ERR_FAIL, "line %d: the role %.40s has no target", b->line, b->role);
}

static bool check_node(const Penman *p, int32_t i, Err *e) {
    const PenmanNode *n = &p->node[i];
    if (!n->variable) return fail(e, ERR_FAIL, "line %d: a node is empty: ()", n->line);
    int first = penman_find(p, n->variable);
    if (first != i)
        return fail(e, ERR_FAIL, "line %d: the variable '%.40s' already names the node of line %d", n->line,
                    n->variable, p->node[first].line);
    if (!penman_concept(p, i))
        return fail(e, ERR_FAIL, "line %d: the node '%.40s' has no concept", n->line, n->variable);
    for (int32_t b = n->first; b >= 0; b = p->branch[b].next)
        if (!check_branch(&p->branch[b], e)) return false;
    return true;
}

bool penman_check(const Penman *p, Err *e) {
    for (int32_t i = 0; i < p->n_nodes; i++)
        if (!check_node(p, i, e)) return false;
    return true;
}
