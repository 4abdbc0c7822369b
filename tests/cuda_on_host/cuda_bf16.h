/* cuda_bf16.h - bf16 as CUDA C++ names it: stored in 16 bits, converted by base/half.h. */
#ifndef TESTS_CUDA_ON_HOST_CUDA_BF16_H
#define TESTS_CUDA_ON_HOST_CUDA_BF16_H

#include "base/half.h"

struct __nv_bfloat16 {
    uint16_t bits;
};
struct __nv_bfloat162 {
    __nv_bfloat16 x, y;
};
static inline float __bfloat162float(__nv_bfloat16 h) { return half_from_bf16(h.bits); }
static inline __nv_bfloat16 __float2bfloat16_rn(float x) { return {half_to_bf16(x)}; }
static inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {{half_to_bf16(x)}, {half_to_bf16(y)}}; }
static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 h) { return h.bits; }
static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return {bits}; }

#endif
