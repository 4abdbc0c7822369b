/* carry.h - the correction v in host memory, streamed against the gradient of each update and against the weights
 * before and after a removed one.
 *
 * Gradients and weights arrive a piece at a time in their stored format, so v is the only fp32 vector. The work on v is
 * memory-bound: the step of an update is deferred until the next gradient arrives, and a single pass over v then
 * applies that step and takes the dot product with the new gradient. Sums are kept in fp64, one per tile. */
#ifndef UNLEARN_CARRY_H
#define UNLEARN_CARRY_H

#include "train/stored_update.h"
#include "unlearn/params.h"

typedef struct CarryStep { /* v <- v - lr ((decay + damping) v + times g); lr times the tensor's own */
    double lr, damping, times;
} CarryStep;

/* The square of the norm that keep * v - times * g, a tensor's v behind the step, will have. */
double carry_square_ahead(const WalkSpan *span, CarryStep s, VecSums q);
/* By what the guard scales a v of that norm: 1 where it does not take hold, 0 for one that is not finite. */
double carry_held_at(const WalkGuard *guard, double norm);

typedef struct Carry {
    const Params *p;  /* keeps */
    Exec *x;          /* keeps */
    float *v;         /* keeps; set before every call */
    char *copy;       /* owns; theta, or the gradient of the last dot product, as stored (Params.raw_bytes) */
    VecSums *of_tile; /* owns */
    CarryStep step;   /* deferred: still to be applied to v with the gradient in `copy`, ... */
    double scale;     /* ... then v is scaled by this; ... */
    int n_deferred;   /* ... both for the first so many tensors */
    bool fresh;       /* v counts as 0, whatever it holds */
} Carry;

int64_t carry_bytes(const Params *p); /* of pageable host memory */
void carry_open(Carry *c, const Params *p, Exec *x);
void carry_close(Carry *c); /* all zero is fine */

void carry_keep_theta(Carry *c);
/* v -= theta - (the theta that was kept). Returns the norm of that difference and the norm of v. */
void carry_remove(Carry *c, double *moved, double *norm);

/* v -= u, for an update u that the log has stored. */
bool carry_remove_stored(Carry *c, StoredSource *s, double *moved, double *norm, Err *e);

/* Applies the deferred step and returns g . v, in one pass. */
double carry_apply_and_dot(Carry *c);
/* Defers the step to the next pass. Returns the norm that v will have after it, computed from the sums of the last
 * pass. If that norm is above the guard's limit or not finite, v is also scaled back. */
double carry_defer(Carry *c, CarryStep s, const WalkGuard *guard);
/* Applies the deferred step to tensor `from` and those after it. */
void carry_apply_deferred(Carry *c, int from);
double carry_norm(const Carry *c); /* of v; no step may be deferred, and one was applied since the last gradient */

#endif
