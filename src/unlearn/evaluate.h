/* evaluate.h - TOFU's figures of a model from the scores of its answers, in the layout of open-unlearning's files.
 *
 * TOFU_EVAL.json holds for every metric its aggregate and where there is one the value of every item;
 * TOFU_SUMMARY.json the aggregates alone. */
#ifndef UNLEARN_EVALUATE_H
#define UNLEARN_EVALUATE_H

#include <jansson.h>

#include "unlearn/questions.h"
#include "unlearn/scorer.h"

typedef struct EvalInput {
    const EvalItems *items;
    const Scores *scores;              /* of the model */
    const Scores *retain;              /* of one that never saw the forget set; NULL: there is none */
    const Scores *reference;           /* of a model that answers are compared with; NULL: there is none */
    const double *gradient_norm[2];    /* [items] of the forget set, of the holdout; NULL: not made */
    const json_t *retain_logs;         /* its TOFU_EVAL.json, in place of its scores; NULL: there is none */
    char *const *generated[EVAL_SETS]; /* [items] greedy answers; NULL: none were made */
} EvalInput;

json_t *evaluate_all(const EvalInput *in);   /* TOFU_EVAL.json; gives */
json_t *evaluate_summary(const json_t *all); /* TOFU_SUMMARY.json; gives */
int64_t evaluate_logged(const json_t *logs); /* truth ratios of the forget set that a TOFU_EVAL.json holds */

#endif
