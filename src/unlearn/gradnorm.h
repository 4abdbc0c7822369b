/* gradnorm.h - the length of a sample's gradient: what a membership test by gradients looks at.
 *
 * Of the mean token nll of the sample's answer, by all weights, in the 2-norm. */
#ifndef UNLEARN_GRADNORM_H
#define UNLEARN_GRADNORM_H

#include "train/run.h"

/* run: opened on a training job without the update inside backward; its weights stay. row[n]: of d. */
bool gradnorm_make(double *out, Run *run, Dataset *d, const int64_t *row, int64_t n, Err *e);

#endif
