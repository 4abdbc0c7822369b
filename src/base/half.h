/* half.h - bf16 and fp16 as 16-bit words, to and from fp32, rounding to nearest even or by a random word. */
#ifndef BASE_HALF_H
#define BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline float half_bits_f32(uint32_t u) {
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static inline uint32_t half_f32_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

static inline float half_from_bf16(uint16_t h) { return half_bits_f32((uint32_t)h << 16); }

static inline uint16_t half_to_bf16(float f) {
    uint32_t u = half_f32_bits(f);
    if ((u & 0x7fffffff) > 0x7f800000) return (uint16_t)((u >> 16) | 0x40); /* NaN stays NaN */
    return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

/* Stochastic rounding: up with the probability of the cut-off part; `random` gives 16 bits. */
static inline uint16_t half_to_bf16_random(float f, uint32_t random) {
    uint32_t u = half_f32_bits(f);
    if ((u & 0x7f800000) == 0x7f800000) return half_to_bf16(f);
    return (uint16_t)((u + (random & 0xffff)) >> 16);
}

static inline float half_from_f16(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = (h >> 10) & 31, m = h & 0x3ff;
    if (e == 31) return half_bits_f32(sign | 0x7f800000 | (m << 13));
    if (e) return half_bits_f32(sign | ((e + 112) << 23) | (m << 13));
    float f = (float)m * 0x1p-24f; /* subnormal */
    return sign ? -f : f;
}

static inline uint16_t half_to_f16(float f) {
    uint32_t u = half_f32_bits(f), sign = (u >> 16) & 0x8000, a = u & 0x7fffffff;
    if (a > 0x7f800000) return (uint16_t)(sign | 0x7e00);
    if (a >= 0x47800000) return (uint16_t)(sign | 0x7c00); /* 65536 and beyond: infinite */
    if (a < 0x38800000) {                                  /* below the smallest normal: fixed point */
        float scaled = half_bits_f32(a) + 0.5f;            /* adding 0.5 rounds to multiples of 2^-24 */
        return (uint16_t)(sign | (half_f32_bits(scaled) - 0x3f000000));
    }
    uint32_t r = a + 0xfff + ((a >> 13) & 1);
    return (uint16_t)(sign | ((r - 0x38000000) >> 13));
}

#endif
