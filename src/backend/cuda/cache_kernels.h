/* cache_kernels.h - the launchers of cache.cu for keys and values in int8: each head of a token is a row of that format,
 * with its own scale. */
#ifndef BACKEND_CUDA_CACHE_KERNELS_H
#define BACKEND_CUDA_CACHE_KERNELS_H

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct CudaHeadRow { /* of one head of one token */
    int bytes, scale_at;
} CudaHeadRow;

/* qkv: rows of heads * dim + kv * dim numbers, of which the last kv heads go to cache(rows, slots, kv, row). */
typedef struct CudaPutInt8 {
    char *cache;
    CudaNumbers qkv;
    const int32_t *positions, *rows; /* rows NULL: in order */
    int64_t tokens;
    int seq, slots, heads, kv, dim;
    CudaHeadRow row;
} CudaPutInt8;
void cuda_launch_cache_put_int8(cudaStream_t s, const CudaPutInt8 *p);

/* As cuda_launch_attend_cache; a->kv_stride and a->v_offset are in bytes. Any number of tokens. */
void cuda_launch_attend_cache_int8(cudaStream_t s, const CudaAttend *a, CudaHeadRow row, float *parts, int splits);

#ifdef __cplusplus
}
#endif

#endif
