/* params.h - the trained parameters of a job, seen as one fp32 vector in program order.
 *
 * The vector is never stored: it is streamed a block at a time between the tensors' slots and a callback. Device memory
 * is copied through a staging buffer while the team works on the block before. */
#ifndef UNLEARN_PARAMS_H
#define UNLEARN_PARAMS_H

#include "train/job.h"
#include "unlearn/vec.h"
#include "unlearn/walk.h"

typedef struct ParamTensor {
    Tid weight, master, moment; /* NONE where there is none; moment: SGD's momentum */
    Format format; /* of theta */
    int64_t first, count;
    int64_t first_tile; /* number of its first tile */
    int64_t raw;        /* its offset in bytes in a copy of all tensors in their stored format */
} ParamTensor;

typedef struct Params {
    ParamTensor *tensor; /* owns */
    WalkSpan *span;      /* owns; one per tensor */
    int n_tensors;
    int64_t n;
    int64_t n_tiles;
    int64_t raw_bytes; /* of a copy of theta or of the gradient in its stored format, whichever is larger */
    Threads *team;     /* keeps; NULL: one thread */
    double *busy;      /* keeps; accumulates the seconds spent in callbacks, transfers excluded; NULL: not measured */
} Params;

void params_init(Params *p, const Job *j);
void params_free(Params *p);

/* Which tensor of a parameter; theta is the fp32 master if there is one, otherwise the weight itself. */
typedef enum ParamsOf { PARAMS_THETA, PARAMS_WEIGHT, PARAMS_GRADIENT, PARAMS_MOMENT } ParamsOf;

enum { PARAMS_BLOCK = 1 << 11 }; /* numbers at most: a block of each of v, value and copy fits the L1 cache together */

typedef struct ParamsBlock {
    const ParamTensor *k;
    int64_t at, n;  /* its range within the tensor */
    int64_t tile;   /* number of the tile (STORED_TILE numbers of a tensor): sums per tile do not depend on threads */
    float *value;   /* [n] */
    char *raw;      /* the same numbers in their stored format */
    Format format;  /* of raw */
    int64_t item;   /* bytes per number of raw */
} ParamsBlock;
typedef void ParamsFn(void *context, const ParamsBlock *b);

/* Calls fn for every block: it reads b->value (params_read), or fills it to be stored, rounded to nearest
 * (params_write). Blocks of a tensor come in any order, several at once. Parameters without such a tensor are skipped.
 * */
void params_read(const Params *p, Exec *x, ParamsOf of, ParamsFn *fn, void *context);
void params_write(const Params *p, Exec *x, ParamsOf of, ParamsFn *fn, void *context);
/* Copies all tensors in stored format, each to copy + ParamTensor.raw. */
void params_copy(const Params *p, Exec *x, ParamsOf of, char *copy);
/* params_read of one tensor, from a copy in stored format at copy + ParamTensor.raw. */
void params_read_copy(const Params *p, Exec *x, ParamsOf of, int tensor, char *copy, ParamsFn *fn, void *context);

void params_get(const Params *p, Exec *x, ParamsOf of, float *to);
/* Writes theta: the weight, and its fp32 master if there is one. */
void params_put(const Params *p, Exec *x, const float *from);
/* The same with from + h * along. */
void params_put_shifted(const Params *p, Exec *x, const float *from, const float *along, double h);
/* theta += change. Returns the norm of the change that survived rounding. copy: raw_bytes of scratch. */
double params_add(const Params *p, Exec *x, const float *change, char *copy);
double params_gradient_norm(const Params *p, Exec *x); /* summed in fp64 */

#endif
