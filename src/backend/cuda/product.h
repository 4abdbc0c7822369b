/* product.h - the three GEMMs over a weight that linear, lora and head are made of, and their scratch.
 *
 * Products run in the format of the activations. A weight kept in another one, quantised or not, is brought into it
 * panel by panel in scratch; a gradient that is not fp32 is computed panel by panel in fp32 and added to what is there
 * with one random rounding. The panels are those of ir/product_device.h, which sizes the workspace by them. */
#ifndef BACKEND_CUDA_PRODUCT_H
#define BACKEND_CUDA_PRODUCT_H

#include "backend/cuda/cuda.h"
#include "backend/cuda/product_kernels.h"
#include "ir/product_device.h"

/* One product through the library; whatever workspace is given it may use (cublas.c). */
void cuda_multiply(Backend *b, Queue q, const CudaProduct *p, void *workspace, int64_t workspace_bytes);

/* A step at work: its queue and what is left of its scratch. Passed by value: what a callee takes is free again
 * after it. */
typedef struct CudaWork {
    Backend *b;
    Queue q;
    const Args *a;
    char *at;
    int64_t left;
} CudaWork;
CudaWork cuda_work(Backend *b, Queue q, const Args *a);
/* A BUG when the row's formula gives less; NULL when bytes is 0. */
void *cuda_work_take(CudaWork *w, int64_t bytes);
static inline cudaStream_t cuda_work_stream(const CudaWork *w) { return cuda_stream(w->b, w->q); }
void cuda_work_multiply(CudaWork w, CudaProduct p); /* the rest of the scratch is the library's */

/* ---- matrices ---- */
CudaMatrix cuda_matrix(Operand x); /* the whole tensor; data NULL where the step has NONE */
CudaMatrix cuda_part_rows(CudaMatrix m, int64_t row, int64_t rows);
CudaMatrix cuda_part_cols(CudaMatrix m, int64_t col, int64_t cols);
static inline CudaNumbers cuda_numbers(CudaMatrix m) { return (CudaNumbers){m.data, m.format}; }

/* The whole matrix in `format`: itself, or cast into scratch taken from w. */
CudaMatrix cuda_cast(CudaWork *w, CudaMatrix m, Format format);

/* ---- over a weight(M,K) ---- */

/* What a product of a few rows is given. */
CudaFew cuda_few(CudaMatrix y, CudaMatrix x, Operand weight, Operand bias);
/* The same for a few rows, by kernels that read the weight as it is stored; bias in any format. false: the next
 * one's. */
bool cuda_times_weight_few(CudaWork w, CudaMatrix y, CudaMatrix x, Operand weight, Operand bias);
/* y(N,M) = so_far + x(N,K) w^T + bias, which is in y's format; NULL: none */
void cuda_times_weight(CudaWork w, CudaMatrix y, CudaMatrix x, CudaMatrix weight, const void *bias, CudaMatrix so_far);
/* dx(N,K) = so_far + dy(N,M) w */
void cuda_back_through(CudaWork w, CudaMatrix dx, CudaMatrix dy, CudaMatrix weight, CudaMatrix so_far);

typedef struct CudaGradient { /* dw(M,K) = beta*dw + alpha * dy(N,M)^T x(N,K) */
    CudaMatrix dw;            /* whole rows of the gradient ... */
    void *tensor;             /* ... which begins here: roundings are keyed by the number's place in it */
    float alpha;
    const float *beta; /* dial; NULL: 1 */
    bool fresh;        /* the dial is 0 in every play: products write dw as it is kept */
    CudaKey key;
} CudaGradient;
void cuda_add_gradient(CudaWork w, const CudaGradient *g, CudaMatrix dy, CudaMatrix x);

/* The two halves of it, for sums of several products: where to sum, in fp32 or, fresh, in dw (add: what the first
 * product adds to), and what to do afterwards. */
CudaMatrix cuda_gradient_begin(CudaWork *w, const CudaGradient *g, CudaMatrix *add);
void cuda_gradient_end(CudaWork w, const CudaGradient *g, CudaMatrix sum);

#endif
