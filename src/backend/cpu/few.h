/* few.h - dot products of one row of a weight with a handful of rows of x, in each instruction set: written once
 * (few_body.h) over a vector of numbers that few_plain.c, few_avx2.c and few_avx512.c define. */
#ifndef BACKEND_CPU_FEW_H
#define BACKEND_CPU_FEW_H

#include "backend/cpu/many.h"

/* FEW_STEP: numbers a call takes at a time. FEW_AHEAD: bytes fetched ahead, which helps the processor across rows. */
enum { FEW_STEP = 64, FEW_AHEAD = 4096 };

/* sum[r] += w times row r of x, which is (rows, ldx), over n columns, a multiple of FEW_STEP. int8: without the row's
 * scale; nf4: levels times `most`, a byte for each block of 64 columns. No bit of a sum depends on the number of
 * rows. */
typedef void FewDots(float *sum, const void *w, const uint8_t *most, const float *x, int64_t ldx, int64_t rows,
                     int64_t n);

typedef struct FewKernels {
    FewDots *f32, *bf16, *f16, *int8, *nf4;
    int lanes; /* nf4: a vector is filled with every eighth column, so x stands in groups of 8*lanes columns,
                * column 8i+k of a group at place k*lanes+i; n is a multiple of both */
    const ManyKernels *many;
} FewKernels;
extern const FewKernels few_plain, few_avx2, few_avx512;
extern const ManyKernels many_plain, many_avx2, many_avx512;

static inline const FewKernels *few_kernels(void) {
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")) return &few_avx512;
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); /* all that have it have f16c */
    return avx2 ? &few_avx2 : &few_plain;
}

#endif
