/* baseline_int.h - an update of a tuning on its way, for baseline.c and baseline_dense.c. */
#ifndef UNLEARN_BASELINE_INT_H
#define UNLEARN_BASELINE_INT_H

#include "unlearn/baseline.h"

typedef struct Tuning {
    Baseline *b;
    BaselineReport *out;
    Batch batch;
    RowList list;
    LossRow *row;
    int64_t *member;                       /* of the data, or of the refusals */
    float *logp, *weight;                  /* (rows, seq): of scored tokens, packed to the front of each row */
    float *entropy;                        /* the same, of a loss that has them; NULL: it has none */
    float *slots;                          /* (micro-batch, seq) as the device gives and takes them */
    double *reference, *refusal_reference; /* nll of the reference, by place in the forget set */
    int64_t *place;                        /* of a row: its place in the forget set */
    int n;
    /* dense losses: */
    float *z, *d;     /* (width) of one token */
    float *ref;       /* (micro-batch * seq, width): of the reference, then the gradients as the device takes them */
    float *direction; /* (width) rmu's unit vector */
    char *raw;        /* (width) as the device has it */
} Tuning;

/* What the task's passes read: without the auxiliary losses of layers, whose tokens would have the rows' weights, also
 * negative ones, and be unlearnt with the rows. */
static inline ModelInput tuning_input(const Job *j) {
    ModelInput in = j->in;
    in.weight = in.divisor = NONE;
    return in;
}

/* Rows first .. of one data set, at most a micro-batch of them, into the batch; gives how many. */
int tuning_fill(Tuning *t, int first);

/* baseline_dense.c: one update, whose rows are laid out, scored and weighted; gives its loss. */
int64_t dense_width(const JobSpec *j, const LossSpec *s); /* of a token's vector; 0: the loss is not dense */
bool dense_score(Tuning *t, int first, int rows,
                 Err *e); /* the batch holds those rows: their tokens, with log-probabilities of labels */
bool dense_step(Tuning *t, const Update *u, double *loss, Err *e); /* all but the update itself */
void dense_begin(Tuning *t);                                       /* draws rmu's direction */

#endif
