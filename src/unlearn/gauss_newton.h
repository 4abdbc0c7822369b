/* gauss_newton.h - products with the Gauss-Newton matrix of a batch's loss, micro-batch by micro-batch: J^T H J v.
 *
 * J is the Jacobian of the logits, H the Hessian of a token's cross-entropy: weight / divisor * (diag(p) - p p^T). J v
 * is the central difference of logits at theta + h v and theta - h v; J^T is backward from logits whose gradient is an
 * input. Two forward passes, one more for p, and a forward and a backward pass of their own: no Jacobian is stored.
 * Differences need fp32. */
#ifndef UNLEARN_GAUSS_NEWTON_H
#define UNLEARN_GAUSS_NEWTON_H

#include "base/threads.h"
#include "train/run.h"

/* Supervised training with two phases more: whole logits, and backward from their gradient. Dropout draws the same
 * in both as in training. */
extern const Task task_gauss_newton;

typedef struct GaussNewton {
    Run *run;              /* keeps */
    Threads *team;         /* keeps */
    float *jv; /* owns; (N, vocabulary) of a micro-batch: logits at theta + h v, then J v */
    float *z;  /* owns; (N, vocabulary): logits at theta, then the gradient that goes back */
} GaussNewton;

int64_t gauss_newton_bytes(const JobSpec *s); /* of ordinary memory; 0: the job is of another task */
void gauss_newton_init(GaussNewton *g, Run *run, Threads *team); /* of another task: takes no memory */
void gauss_newton_free(GaussNewton *g); /* all zero is fine */

typedef struct GaussNewtonMicro { /* run->batch holds its rows */
    const Update *u;
    int64_t number; /* of the micro-batch: the first writes gradients, later ones add */
    double divisor; /* scored tokens of the update */
} GaussNewtonMicro;

/* In this order: with the weights at theta + h v, at theta - h v, and at theta. The last gives the gradients'
 * place J^T H J v. */
bool gauss_newton_ahead(GaussNewton *g, const GaussNewtonMicro *m, Err *e);
bool gauss_newton_behind(GaussNewton *g, const GaussNewtonMicro *m, double h, Err *e);
bool gauss_newton_back(GaussNewton *g, const GaussNewtonMicro *m, Err *e);

#endif
