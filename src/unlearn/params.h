/* params.h - what a job trains as one vector of fp32 numbers, in the order of the program. */
#ifndef UNLEARN_PARAMS_H
#define UNLEARN_PARAMS_H

#include "train/job.h"
#include "unlearn/walk.h"

typedef struct ParamTensor {
    Tid weight, master, moment; /* NONE where there is none; moment: SGD's momentum */
    int64_t first, count;
} ParamTensor;

typedef struct Params {
    ParamTensor *tensor; /* owns */
    WalkSpan *span;      /* owns; one a tensor */
    int n_tensors;
    int64_t n;
} Params;

void params_init(Params *p, const Job *j);
void params_free(Params *p);

/* theta: the fp32 twin where there is one, else the weight itself. Putting writes both, rounded to nearest. */
void params_get(const Params *p, Exec *x, float *to);
void params_put(const Params *p, Exec *x, const float *from);
/* The same numbers plus h * along. */
void params_put_shifted(const Params *p, Exec *x, const float *from, const float *along, double h);
void params_get_gradient(const Params *p, Exec *x, float *to);
double params_gradient_norm(const Params *p, Exec *x); /* summed in fp64 */
void params_get_moment(const Params *p, Exec *x, float *to);

#endif
