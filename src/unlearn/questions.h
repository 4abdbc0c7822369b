/* questions.h - the questions of TOFU that a model is asked before and after unlearning, with right and wrong
 * answers. */
#ifndef UNLEARN_QUESTIONS_H
#define UNLEARN_QUESTIONS_H

#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

enum { ITEM_WRONG = 8 };

typedef struct EvalItem {
    char *question, *answer, *paraphrase; /* own; paraphrase NULL: the answer itself is the right one */
    char *wrong[ITEM_WRONG];
    int n_wrong;
    int64_t row; /* of its answer among the rows that are scored; the paraphrase and the wrong ones follow */
} EvalItem;

typedef enum EvalSetId { SET_FORGET, SET_RETAIN, SET_AUTHORS, SET_FACTS, SET_HOLDOUT, EVAL_SETS } EvalSetId;

typedef struct EvalSet {
    EvalItem *item; /* owns */
    int64_t n, capacity;
} EvalSet;

typedef struct EvalItems {
    EvalSet set[EVAL_SETS];
    int64_t rows;
} EvalItems;

extern const char *const eval_set_names[EVAL_SETS]; /* "forget", "retain", "ra", "wf", "holdout" */

/* From the files of a folder: FORGET.json, retain_perturbed.json, real_authors_perturbed.json,
 * world_facts_perturbed.json, and as non-members the last 400 of retain90.json, which no model that is compared may
 * have seen. most: items of a set at most; 0: all. */
bool questions_read(EvalItems *t, const char *folder, const char *forget, int64_t most, Err *e);
void questions_free(EvalItems *t);

void questions_rows(Str *out, EvalItems *t); /* all of them as JSON lines; gives every item its first row */

#endif
