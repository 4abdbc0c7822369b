/* many.h - the inner loops of products of many rows, and of decoding a quantised weight for them, in each instruction
 * set: written once (many_body.h) over the vector that few_plain.c, few_avx2.c and few_avx512.c define.
 *
 * A sliver is `width` rows of the weight. Decoded it stands in the order the product reads it: the numbers of its
 * rows at column 0, then those at column 1, ... */
#ifndef BACKEND_CPU_MANY_H
#define BACKEND_CPU_MANY_H

#include "backend/cpu/product.h"

_Static_assert(PRODUCT_STRIP % PRODUCT_SLIVER == 0 && PRODUCT_BLOCKS % FORMAT_NF4_BLOCK == 0,
               "whole slivers and blocks");

typedef struct ManySliver {
    const uint8_t *first;        /* its first row, as stored */
    int32_t offset[PRODUCT_SLIVER]; /* bytes from there to each; behind the weight's last row: that one again */
    float scale[PRODUCT_SLIVER];    /* of each */
    int64_t blocks;              /* nf4: where in a row the blocks' bytes begin */
} ManySliver;

/* to = n columns from k on, a multiple of FORMAT_NF4_BLOCK; `to` has room for n rounded up to 8. */
typedef void ManyDecode(float *to, const ManySliver *s, int64_t k, int64_t n);
/* c(rows,width) = x(rows,n) times a sliver of 1 to 3 vectors, (n,width), or that sum added to c; summed in the order of
 * n, so that no bit depends on what else is in the call. */
typedef void ManyMultiply(float *c, int64_t ldc, const float *x, int64_t ldx, const float *sliver, int vectors,
                          int64_t rows, int64_t n, bool add);
/* to(n,width) = alpha times the transpose of from(cols,n); cols of width are filled. */
typedef void ManyTranspose(float *to, int64_t width, const float *from, int64_t ld, int64_t cols, int64_t n,
                           float alpha);

typedef struct ManyKernels {
    ManyDecode *int8, *nf4;
    ManyMultiply *multiply, *multiply_transposed; /* flipped: x is (n,rows) */
    ManyTranspose *transpose;
    int width, lanes; /* of a decoded sliver: three vectors; of a vector */
    int rows; /* of x at a time: what the registers hold */
} ManyKernels;

/* cpu_multiply by the loops of one instruction set. */
void many_multiply(const ManyKernels *kernels, const CpuBlock *m);

#endif
