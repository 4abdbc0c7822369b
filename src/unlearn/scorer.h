/* scorer.h - the rows of a set through a model: what its distribution says at every scored token. */
#ifndef UNLEARN_SCORER_H
#define UNLEARN_SCORER_H

#include "train/run.h"
#include "unlearn/metrics.h"

/* An evaluation with a phase of whole logits, (micro-batch * seq, vocabulary) fp32, each row scored on the device. */
extern const Task task_logits;

typedef struct Scores { /* of a row: token[first[row]] .. token[first[row + 1] - 1] */
    TokenScore *token;  /* owns */
    int64_t *first;     /* owns; [rows + 1] */
    int64_t rows;
} Scores;

int64_t scores_bytes(const Dataset *d); /* of all rows */
int64_t scores_making_bytes(const JobSpec *s); /* beside them, while they are made */
/* run: opened on an evaluation of that task. Gives: scores_free, also where it fails. */
bool scores_make(Scores *s, Run *run, Dataset *d, Err *e);
void scores_free(Scores *s);

static inline const TokenScore *scores_row(const Scores *s, int64_t row) { return s->token + s->first[row]; }
static inline int64_t scores_tokens(const Scores *s, int64_t row) { return s->first[row + 1] - s->first[row]; }

#endif
