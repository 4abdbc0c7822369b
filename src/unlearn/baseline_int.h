/* baseline_int.h - the state of one update of a loss, shared by baseline.c and baseline_ring.c. */
#ifndef UNLEARN_BASELINE_INT_H
#define UNLEARN_BASELINE_INT_H

#include "unlearn/baseline.h"

typedef struct BaselineRing { /* Job.own */
    int score;         /* phase: log-probabilities of labels, ... */
    Tid logp, entropy; /* ... and entropies (NONE: not made): (N), read after each play */
    Model *reference;  /* NULL: there is none */
    Tid terms;         /* input (N, HEAD_TERMS), or (N, DISTANCE_WORDS) for rmu */
    Tid toward;        /* input (C): rmu's direction */
    Tid reported_weight; /* input (N): 1 for tokens that count in the reported loss, ... */
    Tid reported;        /* ... a statistic */
} BaselineRing;

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
    /* losses beyond log-probabilities: what an update's micro-step is given */
    float *terms, *reported;
    float *direction; /* (hidden): rmu's unit vector */
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

/* baseline_ring.c, for losses beyond log-probabilities. */
int64_t dense_bytes(const LossSpec *s, const JobSpec *job); /* of host memory */
void dense_begin(Tuning *t, Arena *a);
/* The passes of an update, whose rows are laid out, counted and weighted; gives the part of its loss that loss_weights
 * did not. */
bool dense_step(Tuning *t, const Update *u, double *loss, Err *e);

#endif
