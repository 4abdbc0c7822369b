/* cuda_fp16.h - fp16 as CUDA C++ names it: stored in 16 bits, converted by base/half.h. */
#ifndef TESTS_CUDA_ON_HOST_CUDA_FP16_H
#define TESTS_CUDA_ON_HOST_CUDA_FP16_H

#include "base/half.h"

struct __half {
    uint16_t bits;
};
struct __half2 {
    __half x, y;
};
static inline float __half2float(__half h) { return half_from_f16(h.bits); }
static inline __half __float2half_rn(float x) { return {half_to_f16(x)}; }
static inline __half2 __floats2half2_rn(float x, float y) { return {{half_to_f16(x)}, {half_to_f16(y)}}; }
static inline unsigned short __half_as_ushort(__half h) { return h.bits; }
static inline __half __ushort_as_half(unsigned short bits) { return {bits}; }

#endif
