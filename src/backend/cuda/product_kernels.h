/* product_kernels.h - matrices as products take them, and the launchers of product.cu and head.cu. */
#ifndef BACKEND_CUDA_PRODUCT_KERNELS_H
#define BACKEND_CUDA_PRODUCT_KERNELS_H

#include <stdbool.h>

#include "backend/cuda/kernels.h"

typedef struct CudaMatrix { /* row-major: element (r,c) is number r*ld + c of data */
    void *data;             /* NULL: no matrix */
    Format format;
    int64_t rows, cols, ld;
} CudaMatrix;

/* C = alpha * A B + add + bias, summed in fp32, rounded to nearest (by the library also once before it adds). */
typedef struct CudaProduct {
    CudaMatrix a, b, c;
    bool a_transposed, b_transposed; /* stored as (inner,rows), (cols,inner) */
    float alpha;
    CudaMatrix add;   /* of C's shape and format; may be C itself; data NULL: none */
    const void *bias; /* one number a column, in C's format; NULL: none */
    int times;        /* more than 1: so many products of this shape at once, without bias; in each the matrices begin
                         that many numbers further on than in the one before: */
    int64_t a_step, b_step, c_step, add_step;
} CudaProduct;

#ifdef __cplusplus
extern "C" {
#endif

/* Any formats, strides and alignments: what the library cannot do. */
void cuda_launch_multiply(cudaStream_t s, const CudaProduct *p);

/* y(rows,cols) = x(rows,inner) w(cols,inner)^T + bias for a few rows, dense; w as it is stored (product_few.cu). false:
 * not one of its shapes, nothing was done; quantised weights always are. */
enum {
    CUDA_FEW_ROWS = 8,       /* at a time */
    CUDA_FEW_PLAIN_ROWS = 4, /* the most for weights that the library can read */
};
typedef struct CudaFew {
    CudaNumbers y, w, bias; /* bias: data NULL: none */
    const void *x;
    Format x_format;
    int rows, inner;
    int64_t cols, row_bytes; /* of w */
    int scale_at, blocks_at; /* int8, nf4: the row's scale; 0: none. nf4: its blocks' bytes */
    int share;               /* the launcher's: warps to a row of w */
    bool early;              /* w and bias are state that no step of this play writes */
    /* y(rows,cols/2) = silu(first half) * second half, which are rounded as y is (few_cores alone) */
    bool gated;
} CudaFew;
bool cuda_launch_few(cudaStream_t s, const CudaFew *few);
/* Quantised weights and 16-bit x, on tensor cores (product_few_cores.cu). false: others, not whole pieces of 8 numbers,
 * or a card older than 8.0. */
bool cuda_launch_few_cores(cudaStream_t s, const CudaFew *few);
/* The same for more rows (product_some.cu): w is read once for all of them. parts: device_some_bytes of scratch, for
 * sums. */
enum { CUDA_SOME_ROWS = 64, CUDA_SOME_BLOCKS = 384, CUDA_SOME_TALL = 128 };
bool cuda_launch_some(cudaStream_t s, const CudaFew *few, void *parts);

/* to(n) = from(n) in another format, to nearest. */
void cuda_launch_cast(cudaStream_t s, CudaNumbers to, CudaNumbers from, int64_t n);

/* x(n) *= beta, a dial: 1 touches nothing, 0 writes zeros and reads nothing. */
void cuda_launch_scale(cudaStream_t s, CudaNumbers x, int64_t n, const float *beta);

/* Numbers [first, first+n) of a gradient: dst = beta*dst + src, rounded at random by key and number
 * (cpu_accumulate). */
void cuda_launch_accumulate(cudaStream_t s, CudaNumbers dst, int64_t first, const float *src, int64_t n,
                            const float *beta, CudaKey key);

typedef struct CudaDrop { /* of rows of `channels` numbers, of which the first is token `first_row` */
    float p;              /* > 0 */
    CudaKey key;          /* drop_key; the part is the group */
    int64_t first_row, channels;
} CudaDrop;

/* to = from where it is kept, else 0: the 1/(1-p) is left to the product's alpha, so that nothing is rounded. */
void cuda_launch_drop(cudaStream_t s, CudaNumbers to, const void *from, int64_t rows, const CudaDrop *d);

/* to = so_far + sum over groups of (kept by that group ? part[group] / (1-p) : 0); part(groups, rows, channels) */
void cuda_launch_drop_add(cudaStream_t s, CudaNumbers to, const void *so_far, const float *part, int64_t rows,
                          int groups, const CudaDrop *d);

typedef struct CudaColumnSums { /* db(cols) = beta*db + column sums of dy(rows,cols) */
    CudaNumbers db, dy;
    float *parts; /* workspace (parts, cols): sums of rows_a_part rows each, then added in order */
    int64_t rows, cols, rows_a_part;
    const float *beta; /* dial; NULL: 1 */
    CudaKey key;
} CudaColumnSums;
void cuda_launch_column_sums(cudaStream_t s, const CudaColumnSums *c);

typedef struct CudaHeadRows { /* rows of logits: scored, and replaced by their gradient in place */
    CudaNumbers logits;       /* (rows, ld), of which `vocabulary` count */
    Format gradient;          /* of what replaces them: theirs, or a 16-bit one in place of fp32, (rows, 2 ld) then */
    int64_t rows, ld;
    int vocabulary;
    float scale;              /* a logit is the stored number times this: 1 / temperature */
    const int32_t *labels;
    float *logp, *lse, *entropy; /* logp NULL: not scored, lse is read; entropy NULL: not wanted */
    const float *dlogp;          /* NULL: no gradient */
} CudaHeadRows;
void cuda_launch_head_rows(cudaStream_t s, const CudaHeadRows *h);

/* The same by the terms of a loss: what goes to logp is the terms' value. The gradient has the format of the logits;
 * without a gradient dlogp is NULL, as above (head_terms.cu). */
typedef struct CudaHeadTerms {
    CudaHeadRows rows;
    const float *terms; /* (rows, HEAD_TERMS) */
    const void *target; /* logits of the target, laid out and stored as those of the rows; NULL: there is none */
} CudaHeadTerms;
void cuda_launch_head_terms(cudaStream_t s, const CudaHeadTerms *h);

#ifdef __cplusplus
}
#endif

#endif
