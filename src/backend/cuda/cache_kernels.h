/* cache_kernels.h - the launchers of the KV cache: writing keys and values (rope.cu), attending to an int8 cache
 * (cache.cu: each head of a token is a row of that format, with its own scale), and decode attention by tensor cores
 * (attend_cache.cu). */
#ifndef BACKEND_CUDA_CACHE_KERNELS_H
#define BACKEND_CUDA_CACHE_KERNELS_H

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct CudaHeadRow { /* of one head of one token */
    int bytes, scale_at;
} CudaHeadRow;

/* Where the keys and values of rope_put go: cache(rows, slots, 2 * kv_heads, dim) in fp32, bf16, fp16 or int8. */
typedef struct CudaPut {
    CudaNumbers cache;
    const int32_t *rows; /* a token's row, by token / seq; NULL: in order */
    int seq, slots;
    CudaHeadRow row; /* int8 */
} CudaPut;
/* y: q rotated, k and v as in x; y may be x. */
void cuda_launch_rope_put(cudaStream_t s, CudaNumbers y, const void *x, const CudaRope *r, const CudaPut *p);

/* As cuda_launch_attend_cache; a->kv_stride and a->v_offset are in bytes. Any number of tokens. */
void cuda_launch_attend_cache_int8(cudaStream_t s, const CudaAttend *a, CudaHeadRow row, float *parts, int splits);

/* The same by tensor cores (attend_cache.cu; device_cache_on_cores, sm_80 on): of heads in a->format or in int8.
 * clusters: the card has them (sm_90 on); then the parts are not used. */
void cuda_launch_attend_tokens(cudaStream_t s, const CudaAttend *a, CudaHeadRow row, bool int8, float *parts,
                               int splits, bool clusters);
/* rope_put and then that, in one launch: a->q is qkv before RoPE, a->early holds, no two tokens have the same row of
 * the cache, and no other step has written it since the play began. */
void cuda_launch_put_attend(cudaStream_t s, const CudaAttend *a, const CudaRope *rope, CudaHeadRow row, float *parts,
                            int splits, bool clusters);
void cuda_launch_cache_join(cudaStream_t s, const CudaAttend *a, const float *parts, int splits);

#ifdef __cplusplus
}
#endif

#endif
