/* vec.h - arithmetic on vectors with one number per parameter: stored in fp32, summed in fp64, multi-threaded.
 *
 * A sum of a billion squares in fp32 is off by a fifth, so every sum here is in fp64. It runs over tiles whose bounds
 * depend on the length alone, so any number of threads gives the same bits. Lengths are 64 bits. team NULL: one thread.
 * */
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

/* On blocks of a few thousand numbers, by one thread. Every processor sums in eight lanes, so the bits are the same. */
double vec_block_dot(const float *a, const float *b, int64_t n);
void vec_block_step(float *v, const float *g, double keep, double times, int64_t n); /* v = keep v - times g */
typedef struct VecSums { /* dot products of v and a vector g with each other and themselves */
    double vg, gg, vv;
} VecSums;
void vec_block_sums(VecSums *s, const float *v, const float *g, int64_t n); /* adds to s */
enum { VEC_SIGNS = 64 }; /* bit i of a word: number i is taken as it is, otherwise negated */
double vec_block_signed_sum(const float *z, uint64_t signs); /* of VEC_SIGNS numbers */
void vec_block_add_signed(float *to, float by, uint64_t signs); /* +- by to VEC_SIGNS numbers */
/* Converts a block from and to a plain storage format; encoding rounds to nearest. */
void vec_block_decode(float *to, const void *raw, Format f, int64_t n);
void vec_block_encode(void *raw, const float *from, Format f, int64_t n);
double vec_sum(const double *a, int64_t n);

/* Calls fn(context, from, end) for ranges that cover 0 .. n. */
typedef void VecPart(void *context, int64_t from, int64_t end);
void vec_for(Threads *team, int64_t n, VecPart *fn, void *context);

#endif
