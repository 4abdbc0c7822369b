/* moments.cuh - 8-bit moments on the device, byte for byte as ir/format.c lays them out: one fp32 scale per
 * block of 256 numbers of the flat tensor. A warp holds one block, MOMENT_LANE neighbouring numbers a lane. */
#ifndef BACKEND_CUDA_MOMENTS_CUH
#define BACKEND_CUDA_MOMENTS_CUH

#include "backend/cuda/vectors.cuh"

enum { MOMENT_LANE = FORMAT_MOMENT_BLOCK / WARP };
static_assert(MOMENT_LANE == 8, "a lane's codes are 8 bytes, moved at once where they are whole");

/* The lane's numbers stand at [i, i+8). WHOLE: all exist, and codes are aligned to 8 bytes; else those from n on do
 * not exist. */
template <bool WHOLE>
DEVICE void codes_load(uint32_t (&code)[MOMENT_LANE], const uint8_t *codes, int64_t i, int64_t n) {
    if constexpr (WHOLE) {
        uint2 w = *(const uint2 *)(codes + i);
#pragma unroll
        for (int k = 0; k < 4; k++) code[k] = w.x >> 8 * k & 255, code[k + 4] = w.y >> 8 * k & 255;
    } else {
#pragma unroll
        for (int k = 0; k < MOMENT_LANE; k++) code[k] = i + k < n ? codes[i + k] : 0;
    }
}

template <bool WHOLE>
DEVICE void codes_store(uint8_t *codes, const uint32_t (&code)[MOMENT_LANE], int64_t i, int64_t n) {
    if constexpr (WHOLE) {
        uint2 w = make_uint2(0, 0);
#pragma unroll
        for (int k = 0; k < 4; k++) w.x |= (code[k] & 255) << 8 * k, w.y |= (code[k + 4] & 255) << 8 * k;
        *(uint2 *)(codes + i) = w;
    } else {
#pragma unroll
        for (int k = 0; k < MOMENT_LANE; k++)
            if (i + k < n) codes[i + k] = (uint8_t)code[k];
    }
}

/* x / d rounded as a division is, for d known when compiled: without the branch that a division has, so that loads of
 * other states pass it. */
DEVICE float over(float x, float d) {
    float quotient = x * (1.0f / d);
    return fmaf(fmaf(-d, quotient, x), 1.0f / d, quotient);
}

template <bool WHOLE>
DEVICE void mom8_decode(float (&x)[MOMENT_LANE], const int8_t *codes, const float *scales, int64_t i, int64_t n) {
    uint32_t code[MOMENT_LANE];
    float unit = over(scales[i / FORMAT_MOMENT_BLOCK], 127.0f);
    codes_load<WHOLE>(code, (const uint8_t *)codes, i, n);
#pragma unroll
    for (int k = 0; k < MOMENT_LANE; k++) x[k] = (float)(int8_t)code[k] * unit;
}

template <bool WHOLE>
DEVICE void var8_decode(float (&x)[MOMENT_LANE], const uint8_t *codes, const float *scales, int64_t i, int64_t n) {
    uint32_t code[MOMENT_LANE];
    float unit = over(scales[i / FORMAT_MOMENT_BLOCK], 255.0f);
    codes_load<WHOLE>(code, codes, i, n);
#pragma unroll
    for (int k = 0; k < MOMENT_LANE; k++) {
        float root = (float)code[k] * unit;
        x[k] = root * root;
    }
}

/* Whole warps: numbers that do not exist must be 0. */
DEVICE float block_top(const float (&x)[MOMENT_LANE]) {
    float top = 0;
#pragma unroll
    for (int k = 0; k < MOMENT_LANE; k++) top = fmaxf(top, fabsf(x[k]));
    return warp_max(top);
}

template <bool WHOLE>
DEVICE void mom8_encode(int8_t *codes, float *scales, const float (&x)[MOMENT_LANE], int64_t i, int64_t n) {
    float top = block_top(x), inverse = top > 0 ? 127.0f / top : 0;
    uint32_t code[MOMENT_LANE];
#pragma unroll
    for (int k = 0; k < MOMENT_LANE; k++) code[k] = (uint32_t)__float2int_rn(x[k] * inverse);
    codes_store<WHOLE>((uint8_t *)codes, code, i, n);
    if (threadIdx.x % WARP == 0) scales[i / FORMAT_MOMENT_BLOCK] = top;
}

template <bool WHOLE>
DEVICE void var8_encode(uint8_t *codes, float *scales, const float (&x)[MOMENT_LANE], int64_t i, int64_t n) {
    float top = sqrtf(block_top(x)), inverse = top > 0 ? 255.0f / top : 0;
    uint32_t code[MOMENT_LANE]; /* rounded up: a variance that was not zero stays so */
#pragma unroll
    for (int k = 0; k < MOMENT_LANE; k++) code[k] = (uint32_t)fminf(255.0f, ceilf(sqrtf(x[k]) * inverse));
    codes_store<WHOLE>(codes, code, i, n);
    if (threadIdx.x % WARP == 0) scales[i / FORMAT_MOMENT_BLOCK] = top;
}

#endif
