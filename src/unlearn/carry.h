/* carry.h - v, and what passes by it: the gradient of every update, and the weights before and behind a removed one.
 *
 * All of it passes as it is stored, a piece at a time, so that v is the only vector of fp32 numbers. Work on v is
 * bound by memory: what an update does to v is deferred until the next gradient passes by, and one pass over v then
 * does the one and takes the sums of the other. Sums are in fp64, by tile. */
#ifndef UNLEARN_CARRY_H
#define UNLEARN_CARRY_H

#include "train/stored_update.h"
#include "unlearn/params.h"

typedef struct CarryStep { /* v <- v - lr ((decay + damping) v + times g); lr times the tensor's own */
    double lr, damping, times;
} CarryStep;

typedef struct Carry {
    const Params *p;  /* keeps */
    Exec *x;          /* keeps */
    float *v;         /* keeps; set before every call */
    char *copy;       /* owns; theta, or the last gradient that v was dotted with, as stored (Params.raw_bytes) */
    VecSums *of_tile; /* owns */
    CarryStep step;   /* deferred: v has still to take it with that gradient, ... */
    double scale;     /* ... and to be scaled by this ... */
    int n_deferred;   /* ... in this many tensors, the first ones */
    bool fresh;       /* v is as if it were 0, whatever it holds */
} Carry;

int64_t carry_bytes(const Params *p); /* of ordinary memory */
void carry_open(Carry *c, const Params *p, Exec *x);
void carry_close(Carry *c); /* all zero is fine */

void carry_keep_theta(Carry *c);
/* v -= theta - the theta that was kept. Gives the norm of that difference, and of v. */
void carry_remove(Carry *c, double *moved, double *norm);

/* The same of an update as the log holds it: v -= u. */
bool carry_remove_stored(Carry *c, StoredSource *s, double *moved, double *norm, Err *e);

/* Applies the deferred step and gives g . v, in one pass. */
double carry_apply_and_dot(Carry *c);
/* Defers the step to the next pass. Gives the norm that v will have behind it, from the sums of that pass; where it is
 * beyond the guard's limit, or not finite, v is scaled back besides. */
double carry_defer(Carry *c, CarryStep s, const WalkGuard *guard);
/* Applies the deferred step to the tensors from that one on. */
void carry_apply_deferred(Carry *c, int from);
double carry_norm(const Carry *c); /* of v, with no step deferred and one applied since the last gradient */

#endif
