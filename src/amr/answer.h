/* answer.h - a model's answer becomes one graph: where it begins and ends, and which faults may be repaired.
 *
 * The graph is the first group `(variable / ...)` whose parentheses are balanced, those inside of strings not
 * counted. A group without a variable, as step 1 of the unified prompt has it, and parentheses of plain words are
 * passed over. A string ends with its line, closed or not, so that one forgotten quote does not swallow the rest. */
#ifndef AMR_ANSWER_H
#define AMR_ANSWER_H

#include <stdbool.h>
#include <stdint.h>

#include "amr/penman.h"

/* Fed with an answer as it comes, piece by piece: says where the graph is complete. Zero-initialise to begin. */
typedef struct AmrStop {
    enum { STOP_OUTSIDE, STOP_OPENED, STOP_VARIABLE, STOP_BEHIND, STOP_INSIDE } state;
    int64_t depth; /* of parentheses, inside the graph */
    bool in_string, escaped;
    int64_t fed;   /* bytes so far */
    int64_t begin; /* of the graph's '(', or of what may become it */
} AmrStop;

/* true: the graph ends with one of these bytes; *used tells how many of them belong to it. Feed no more then. */
bool amr_stop_feed(AmrStop *s, const char *text, int64_t bytes, int64_t *used);

typedef struct AmrRepairs { /* what was done to a text to make it a graph */
    int64_t quotes;         /* strings closed */
    int64_t parentheses;    /* ')' added at the end */
    int64_t ends;           /* a role without target, or a node without concept, cut off at the end */
    int64_t renamed;        /* variables that named a second node */
} AmrRepairs;

typedef struct AmrTake {
    bool last; /* the last complete graph instead of the first: for answers that think aloud */
    bool repair;
} AmrTake;

/* The graph of an answer; it is valid (penman_check). Without `repair` a text that is no valid graph is refused;
 * with it repairs are counted, and a text that cannot be repaired is refused all the same. penman_free in
 * either case. */
bool amr_take(Penman *graph, AmrRepairs *done, const char *text, int64_t bytes, AmrTake how, Err *e);

/* What stands in a failure's place, so that the k-th block stays the k-th:  (e / error :sentence "...") */
void amr_print_failure(Str *out, const char *sentence);

#endif
