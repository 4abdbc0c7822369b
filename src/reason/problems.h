/* problems.h - math problems from the layouts people have: which fields hold the question and the answer. */
#ifndef REASON_PROBLEMS_H
#define REASON_PROBLEMS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef struct Layout {
    const char *key;            /* "gsm8k" */
    const char *aliases;        /* "mathqa,...": other names, '-' and '_' being the same */
    const char *problem_field, *answer_field;
    const char *from;           /* where people get it: the set's public name, configuration and split */
    const char *about;          /* one line */
} Layout;

const Layout *layouts(int *n);                         /* gsm8k math asdiv aqua math_qa numina_math arithmetic */
const Layout *layout_find(const char *key, Err *e);    /* names the nearest when there is none */

typedef struct Problem {
    char *text;       /* owns */
    char *reference;  /* owns; the final answer to compare with, "" when the row has none */
    json_t *original; /* owns; the row as it was */
} Problem;

typedef struct ProblemQuery {
    const char *layout;                       /* a key; NULL: told apart by the first row's fields */
    const char *path;                         /* JSON lines or a JSON array; NULL: generated arithmetic */
    const char *problem_field, *answer_field; /* instead of the layout's; NULL: the layout's */
    uint64_t seed;                            /* of the shuffle and of what is generated */
    bool shuffle;
    int64_t start, count;                     /* after the shuffle; count -1: all (generated: 100) */
    int rank, ranks;                          /* contiguous: n / ranks each, the first n % ranks one more */
} ProblemQuery;

typedef struct Problems {
    Problem *item; /* owns */
    int64_t n;
    int64_t first; /* its first one's place in the whole selection */
    uint64_t hash; /* of everything selected, for all ranks: what a journal belongs to */
    int64_t longest_row; /* bytes; of all rows that were read, those left out included */
} Problems;

bool problems_read(Problems *out, const ProblemQuery *q, Err *e);
int64_t problems_bytes(const Problems *p); /* of host memory, while they are kept and written, with what reading took */
void problems_free(Problems *p);

#endif
