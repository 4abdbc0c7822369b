/* numbers.cuh - stored numbers on the device: fp32, bf16 and fp16 to and from fp32, random words by key and
 * index, sums over a warp.
 *
 * The random words are those of base/rng.h and the random rounding that of base/half.h, bit for bit (P6). bf16 is
 * only ever converted, never computed with, so that it works on cards without bf16 units. */
#ifndef BACKEND_CUDA_NUMBERS_CUH
#define BACKEND_CUDA_NUMBERS_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "backend/cuda/launch.h"

typedef __nv_bfloat16 Bf16;
typedef __half F16;

/* ---- one number ---- */
__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(Bf16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float to_float(F16 x) { return __half2float(x); }

template <typename T> __device__ __forceinline__ T from_float(float x); /* to nearest, ties to even */
template <> __device__ __forceinline__ float from_float<float>(float x) { return x; }
template <> __device__ __forceinline__ Bf16 from_float<Bf16>(float x) { return __float2bfloat16_rn(x); }
template <> __device__ __forceinline__ F16 from_float<F16>(float x) { return __float2half_rn(x); }

/* ---- sixteen bytes at a time ---- */
template <typename T> constexpr int PACK = 16 / (int)sizeof(T); /* numbers of them */

static inline bool is_packed(const void *p) { return ((uintptr_t)p & 15) == 0; }

/* ---- random words (base/rng.h) ---- */
__device__ __forceinline__ uint64_t rng_mix(uint64_t x) {
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9ull;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}
__device__ __forceinline__ uint64_t rng_fold(uint64_t key, uint64_t word) {
    return rng_mix(key + 0x9e3779b97f4a7c15ull * (word + 1));
}
__device__ __forceinline__ uint32_t rng_u32(uint64_t key, uint64_t index) {
    return (uint32_t)(rng_fold(key, index) >> 32);
}
__device__ __forceinline__ float rng_uniform(uint64_t key, uint64_t index) {
    return (float)(rng_u32(key, index) >> 8) * 0x1p-24f;
}

/* What roundings are keyed by (cpu_draw_key and, with a part, one fold more). */
__device__ __forceinline__ uint64_t draw_key(CudaKey k) {
    uint64_t key = 0;
    if (k.clock) key = rng_fold((uint64_t)k.clock[CUDA_CLOCK_KEY], (uint64_t)k.clock[CUDA_CLOCK_MICRO]);
    key = rng_fold(key, k.step);
    return k.part < 0 ? key : rng_fold(key, (uint64_t)k.part);
}
/* What dropout is keyed by: the micro-step enters through the token's place in the global batch. */
__device__ __forceinline__ uint64_t drop_key(CudaKey k) {
    uint64_t key = rng_fold(k.clock ? (uint64_t)k.clock[CUDA_CLOCK_KEY] : 0, k.step);
    return k.part < 0 ? key : rng_fold(key, (uint64_t)k.part);
}

/* ---- random rounding (base/half.h): up with the probability of what is cut off ---- */
__device__ __forceinline__ Bf16 round_random(float x, uint32_t random) {
    uint32_t u = __float_as_uint(x);
    if ((u & 0x7f800000u) == 0x7f800000u) return __float2bfloat16_rn(x); /* infinite or NaN */
    return __ushort_as_bfloat16((unsigned short)((u + (random & 0xffffu)) >> 16));
}

/* ---- dials ---- */
__device__ __forceinline__ float read_beta(const float *beta) { return beta ? *beta : 1.0f; }

/* ---- over the threads of a warp, in one order ---- */
__device__ __forceinline__ float warp_sum(float x) {
    for (int d = 16; d; d >>= 1) x += __shfl_xor_sync(~0u, x, d);
    return x;
}
__device__ __forceinline__ float warp_max(float x) {
    for (int d = 16; d; d >>= 1) x = fmaxf(x, __shfl_xor_sync(~0u, x, d));
    return x;
}

#endif
