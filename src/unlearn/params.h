/* params.h - what a job trains as one vector of fp32 numbers, in the order of the program.
 *
 * Numbers travel a block at a time between a tensor's slot and whoever asks: a device's memory is staged while the
 * team works on the block before, and no second vector is held. */
#ifndef UNLEARN_PARAMS_H
#define UNLEARN_PARAMS_H

#include "train/job.h"
#include "unlearn/vec.h"
#include "unlearn/walk.h"

typedef struct ParamTensor {
    Tid weight, master, moment; /* NONE where there is none; moment: SGD's momentum */
    Format format; /* of theta */
    int64_t first, count;
    int64_t first_tile; /* tiles before it */
    int64_t raw;        /* bytes before it in a copy of all tensors as they are stored */
} ParamTensor;

typedef struct Params {
    ParamTensor *tensor; /* owns */
    WalkSpan *span;      /* owns; one a tensor */
    int n_tensors;
    int64_t n;
    int64_t n_tiles;
    int64_t raw_bytes; /* of a copy of theta, or of the gradient, as they are stored: the longer */
    Threads *team;     /* keeps; NULL: one thread */
    double *busy;      /* keeps; gets the seconds that passes work here, beside those in which pieces are moved; NULL */
} Params;

void params_init(Params *p, const Job *j);
void params_free(Params *p);

/* Which of a parameter's tensors: theta is the fp32 twin where there is one, else the weight itself. */
typedef enum ParamsOf { PARAMS_THETA, PARAMS_WEIGHT, PARAMS_GRADIENT, PARAMS_MOMENT } ParamsOf;

enum { PARAMS_BLOCK = 1 << 11 }; /* numbers at most: with v and what is kept beside it they stay in the first cache */

typedef struct ParamsBlock {
    const ParamTensor *k;
    int64_t at, n;  /* its numbers, within the tensor */
    int64_t tile;   /* of STORED_TILE numbers of a tensor: sums by tile do not depend on threads */
    float *value;   /* [n] */
    char *raw;      /* the same as stored */
    Format format;  /* in which they are */
    int64_t item;   /* bytes of one of them */
} ParamsBlock;
typedef void ParamsFn(void *context, const ParamsBlock *b);

/* fn reads every block of a tensor (read) or writes b->value, which is then stored, rounded to nearest (write). Blocks
 * of a tensor come in any order, several at once. A tensor that has no such twin is passed over. */
void params_read(const Params *p, Exec *x, ParamsOf of, ParamsFn *fn, void *context);
void params_write(const Params *p, Exec *x, ParamsOf of, ParamsFn *fn, void *context);
/* The same of a tensor of which a copy stands, as stored, ParamTensor.raw bytes behind `copy`. */
void params_read_copy(const Params *p, Exec *x, ParamsOf of, int tensor, char *copy, ParamsFn *fn, void *context);

void params_get(const Params *p, Exec *x, ParamsOf of, float *to);
/* theta; both twins are written. */
void params_put(const Params *p, Exec *x, const float *from);
/* The same numbers plus h * along. */
void params_put_shifted(const Params *p, Exec *x, const float *from, const float *along, double h);
/* theta += change. Gives the norm of what rounding has left of it. copy: raw_bytes, written. */
double params_add(const Params *p, Exec *x, const float *change, char *copy);
double params_gradient_norm(const Params *p, Exec *x); /* summed in fp64 */

#endif
