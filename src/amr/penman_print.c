/* penman_print.c - how a tree is laid out as text: which column a branch begins in, or none. */
#include "amr/penman.h"

typedef struct Printer {
    Str *out;
    const Penman *p;
    PenmanLayout layout;
} Printer;

static void begin_branch(const Printer *pr, int64_t column, bool first) {
    str_add_char(pr->out, first || pr->layout == PENMAN_ONE_LINE ? ' ' : '\n');
    for (int64_t i = 0; !first && pr->layout == PENMAN_INDENTED && i < column; i++) str_add_char(pr->out, ' ');
}

/* The depth of calls is that of the tree: PENMAN_DEPTH_MOST. */
static void print_node(const Printer *pr, int32_t node, int64_t column) {
    const PenmanNode *n = &pr->p->node[node];
    str_add_char(pr->out, '(');
    if (n->variable) {
        str_add(pr->out, n->variable);
        column += str_characters(n->variable) + 2;
    }
    for (int32_t i = n->first; i >= 0; i = pr->p->branch[i].next) {
        const PenmanBranch *b = &pr->p->branch[i];
        begin_branch(pr, column, i == n->first);
        str_addf(pr->out, "%s%s", b->role, b->role_mark);
        if (b->node >= 0 || b->atom) str_add_char(pr->out, ' ');
        if (b->node >= 0)
            print_node(pr, b->node, column + str_characters(b->role) + str_characters(b->role_mark) + 1);
        else if (b->atom)
            str_addf(pr->out, "%s%s", b->atom, b->atom_mark);
    }
    str_add_char(pr->out, ')');
}

void penman_print(Str *out, const Penman *p, PenmanLayout layout) {
    print_node(&(Printer){out, p, layout}, 0, 0);
}
