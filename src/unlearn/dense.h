/* dense.h - losses of one token on whole vectors: logits z, or a hidden state a. Each gives its value and adds scale
 * times its gradient to d. Sums are in fp64. */
#ifndef UNLEARN_DENSE_H
#define UNLEARN_DENSE_H

#include <stdint.h>

double dense_label(float *d, const float *z, int64_t n, int32_t label, double scale); /* -log p(label) */
/* Cross-entropy to softmax(ref - strength at the label). strength 0 and value less the entropy: KL(ref || model). */
double dense_undial(float *d, const float *z, const float *ref, int64_t n, int32_t label, double strength,
                    double scale);
double dense_divergence(float *d, const float *z, const float *ref, int64_t n, double scale); /* KL(ref || model) */
double dense_margin(float *d, const float *z, int64_t n, double scale);                       /* (max z - mean z)^2 */
double dense_square(float *d, const float *a, const float *target, double times, int64_t n,
                    double scale); /* mean (a - times * target)^2 */

#endif
