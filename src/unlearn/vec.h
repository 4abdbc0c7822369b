/* vec.h - arithmetic on vectors as long as a model: stored in fp32, summed in fp64.
 *
 * A sum of a billion squares in fp32 is off by a fifth; every sum here is in fp64. Lengths are 64 bits. */
#ifndef UNLEARN_VEC_H
#define UNLEARN_VEC_H

#include <stdint.h>

double vec_dot(const float *a, const float *b, int64_t n);
double vec_norm(const float *a, int64_t n);
void vec_add(float *to, const float *a, double times, int64_t n); /* to += times * a */
void vec_scale(float *to, double times, int64_t n);
void vec_zero(float *to, int64_t n);

#endif
