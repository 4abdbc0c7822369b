/* problems_int.h - how the rows of one file become problems: settled by the first row, used for all. */
#ifndef REASON_PROBLEMS_INT_H
#define REASON_PROBLEMS_INT_H

#include "reason/problems.h"

typedef struct RowRule {
    bool settled;
    const char *problem, *answer; /* fields */
    const char *more;             /* a field that goes on with the problem, NULL: none */
    const char *final;            /* a field with the final answer alone, used where a row has it; NULL: none */
    bool choices;                 /* `options`, and in `correct` the letter of the right one */
} RowRule;

bool row_rule_settle(RowRule *rule, const ProblemQuery *q, const json_t *first_row, Err *e);

/* Fills text and reference. Errors name neither file nor line. */
bool row_to_problem(Problem *out, const RowRule *rule, const json_t *row, Err *e);

#endif
