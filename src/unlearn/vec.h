/* vec.h - arithmetic on vectors as long as a model: stored in fp32, summed in fp64, shared out among threads.
 *
 * A sum of a billion squares in fp32 is off by a fifth; every sum here is in fp64, over tiles whose bounds depend on
 * the length alone, so that any number of threads gives the same bits. Lengths are 64 bits. team NULL: one thread. */
#ifndef UNLEARN_VEC_H
#define UNLEARN_VEC_H

#include <stdint.h>

#include "base/threads.h"
#include "ir/format.h"

float *vec_new(int64_t n); /* zeros; gives: mem_free */
double vec_dot(Threads *team, const float *a, const float *b, int64_t n);
double vec_norm(Threads *team, const float *a, int64_t n);
void vec_add(Threads *team, float *to, const float *a, double times, int64_t n); /* to += times * a */
void vec_scale(Threads *team, float *to, double times, int64_t n);
void vec_step(Threads *team, float *v, const float *g, double keep, double times, int64_t n); /* v = keep v - times g */
void vec_normal(Threads *team, float *to, uint64_t key, int64_t n); /* standard normal, number i by (key, i) */
void vec_zero(Threads *team, float *to, int64_t n);
void vec_difference(Threads *team, float *to, const float *a, double by, int64_t n); /* to = (to - a) / by */

/* Of a few thousand numbers, by one thread; eight sums side by side, whatever the processor. */
double vec_block_dot(const float *a, const float *b, int64_t n);
void vec_block_step(float *v, const float *g, double keep, double times, int64_t n); /* v = keep v - times g */
typedef struct VecSums { /* of a vector v and what passes by it */
    double vg, gg, vv;
} VecSums;
void vec_block_sums(VecSums *s, const float *v, const float *g, int64_t n); /* adds up */
enum { VEC_SIGNS = 64 }; /* bit i of a word: number i is taken as it is, otherwise negated */
double vec_block_signed_sum(const float *z, uint64_t signs); /* of VEC_SIGNS numbers */
void vec_block_add_signed(float *to, float by, uint64_t signs); /* +- by to VEC_SIGNS numbers */
/* A block as stored in a plain format; what is written is rounded to nearest. */
void vec_block_decode(float *to, const void *raw, Format f, int64_t n);
void vec_block_encode(void *raw, const float *from, Format f, int64_t n);
double vec_sum(const double *a, int64_t n);

/* fn(context, from, end) for parts of 0 .. n. */
typedef void VecPart(void *context, int64_t from, int64_t end);
void vec_for(Threads *team, int64_t n, VecPart *fn, void *context);

#endif
