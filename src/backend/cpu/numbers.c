/* numbers.c - how stored numbers become fp32 and back, how gradients add up, and vector exponentials and sums.
 *
 * Every loop gives element i bits that depend on element i alone (sums: on n alone), so that callers may cut
 * ranges as they like. The loops are plain C in a shape that compilers turn into vectors. */
#include <math.h>

#include "backend/cpu/cpu.h"
#include "base/half.h"

/* ---- loads ---- */

CPU_VECTOR static void load_bf16(float *restrict dst, const uint16_t *restrict src, int64_t n) {
    for (int64_t i = 0; i < n; i++) dst[i] = half_from_bf16(src[i]);
}

/* half_from_f16 without branches: both readings of the exponent are formed and one is picked. */
CPU_VECTOR static void load_f16(float *restrict dst, const uint16_t *restrict src, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        uint32_t h = src[i], sign = (h & 0x8000) << 16, magnitude = h & 0x7fff;
        uint32_t normal = (magnitude << 13) + 0x38000000u * (1u + (magnitude >= 0x7c00)); /* 2: infinite, NaN */
        uint32_t tiny = half_f32_bits((float)(int32_t)magnitude * 0x1p-24f), pick = 0u - (magnitude < 0x400);
        dst[i] = half_bits_f32(sign | (tiny & pick) | (normal & ~pick));
    }
}

void cpu_load(float *dst, const void *src, Format f, int64_t first, int64_t n) {
    switch (f) {
    case FMT_F32: memcpy(dst, (const float *)src + first, (size_t)n * sizeof *dst); return;
    case FMT_BF16: load_bf16(dst, (const uint16_t *)src + first, n); return;
    case FMT_F16: load_f16(dst, (const uint16_t *)src + first, n); return;
    default: CHECK_MSG(false, "numbers in %s cannot be read one by one", format_name(f));
    }
}

/* ---- stores ---- */

CPU_VECTOR static void store_bf16(uint16_t *restrict dst, const float *restrict src, int64_t n) {
    for (int64_t i = 0; i < n; i++) dst[i] = half_to_bf16(src[i]);
}

CPU_VECTOR static void store_f16(uint16_t *restrict dst, const float *restrict src, int64_t n) {
    for (int64_t i = 0; i < n; i++) dst[i] = half_to_f16(src[i]);
}

void cpu_store(void *dst, Format f, int64_t first, const float *src, int64_t n) {
    switch (f) {
    case FMT_F32: memmove((float *)dst + first, src, (size_t)n * sizeof *src); return;
    case FMT_BF16: store_bf16((uint16_t *)dst + first, src, n); return;
    case FMT_F16: store_f16((uint16_t *)dst + first, src, n); return;
    default: CHECK_MSG(false, "numbers in %s cannot be written one by one", format_name(f));
    }
}

CPU_VECTOR static void store_bf16_random(uint16_t *restrict dst, const float *restrict src, int64_t first,
                                         int64_t n, uint64_t key) {
    for (int64_t i = 0; i < n; i++) dst[i] = half_to_bf16_random(src[i], rng_u32(key, (uint64_t)(first + i)));
}

void cpu_store_random(void *dst, Format f, int64_t first, const float *src, int64_t n, uint64_t key) {
    if (f == FMT_BF16)
        store_bf16_random((uint16_t *)dst + first, src, first, n, key);
    else
        cpu_store(dst, f, first, src, n);
}

CPU_VECTOR static void add_f32(float *restrict dst, const float *restrict src, int64_t n, float beta) {
    for (int64_t i = 0; i < n; i++) dst[i] = beta * dst[i] + src[i];
}

CPU_VECTOR static void add_bf16(uint16_t *restrict dst, const float *restrict src, int64_t first, int64_t n,
                                float beta, uint64_t key) {
    for (int64_t i = 0; i < n; i++) {
        float sum = beta * half_from_bf16(dst[i]) + src[i];
        dst[i] = half_to_bf16_random(sum, rng_u32(key, (uint64_t)(first + i)));
    }
}

static void add_f16(uint16_t *restrict dst, const float *restrict src, int64_t n, float beta) {
    for (int64_t i = 0; i < n; i++) dst[i] = half_to_f16(beta * half_from_f16(dst[i]) + src[i]);
}

void cpu_accumulate(void *dst, Format f, int64_t first, const float *src, int64_t n, float beta, uint64_t key) {
    if (beta == 0.0f) {
        cpu_store_random(dst, f, first, src, n, key);
        return;
    }
    switch (f) {
    case FMT_F32: add_f32((float *)dst + first, src, n, beta); return;
    case FMT_BF16: add_bf16((uint16_t *)dst + first, src, first, n, beta, key); return;
    case FMT_F16: add_f16((uint16_t *)dst + first, src, n, beta); return;
    default: CHECK_MSG(false, "gradients cannot be kept in %s", format_name(f));
    }
}

/* ---- dials ---- */

uint64_t cpu_draw_key(const Args *a, Operand clock) {
    const int64_t *word = clock.data;
    uint64_t key = word ? rng_fold((uint64_t)word[CLOCK_KEY], (uint64_t)word[CLOCK_MICRO]) : 0;
    return rng_fold(key, a->step->key);
}

float cpu_beta(Operand beta) { return beta.data ? *(const float *)beta.data : 1.0f; }

void *cpu_scratch(const Args *a, int64_t first, int64_t each, int worker) {
    int64_t begin = first + each * worker;
    CHECK_MSG(begin + each <= a->workspace_bytes, "%s: its row gives %lld bytes of workspace, %lld are needed",
              op_name(a->step->op), (long long)a->workspace_bytes, (long long)(begin + each));
    return (char *)a->workspace + begin;
}

/* ---- vector mathematics ---- */

/* e^x = 2^n e^r with n = round(x / ln 2), |r| <= ln 2 / 2; e^r by its series up to r^7 (error below 6e-9).
 * Below e^-87.3 the result would be denormal: 0. 2^n is applied in two steps, since n may be 128. */
static inline float exp_one(float x) {
    const float shift = 0x1.8p23f; /* adding it leaves round(x) in the low bits */
    float bounded = x > 89.0f ? 89.0f : x;
    float t = bounded * 1.44269504f + shift;
    float n = t - shift;
    float r = (bounded - n * 0.693359375f) - n * -2.12194440e-4f; /* ln 2 in two parts: n * 355/512 is exact */
    float e = 1.0f + r * (1.0f + r * (0.5f + r * (1.0f / 6 + r * (1.0f / 24 + r * (1.0f / 120 +
              r * (1.0f / 720 + r * (1.0f / 5040)))))));
    int32_t power = (int32_t)(half_f32_bits(t) - half_f32_bits(shift)), half = power >> 1;
    float a = half_bits_f32((uint32_t)(half + 127) << 23), b = half_bits_f32((uint32_t)(power - half + 127) << 23);
    return x < -87.3f ? 0.0f : e * a * b;
}

CPU_VECTOR void cpu_exp(float *dst, const float *src, float minus, int64_t n) {
    for (int64_t i = 0; i < n; i++) dst[i] = exp_one(src[i] - minus);
}

enum { LANES = 16, SUM_BLOCK = 1024 };

CPU_VECTOR float cpu_max(const float *x, int64_t n) {
    float lane[LANES], top = -INFINITY;
    for (int k = 0; k < LANES; k++) lane[k] = -INFINITY;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) lane[k] = x[i + k] > lane[k] ? x[i + k] : lane[k];
    for (; i < n; i++) top = x[i] > top ? x[i] : top;
    for (int k = 0; k < LANES; k++) top = lane[k] > top ? lane[k] : top;
    return top;
}

/* Lanes in fp32 within a block of SUM_BLOCK numbers (64 additions each), blocks in fp64. */
CPU_VECTOR double cpu_sum(const float *x, int64_t n) {
    double total = 0;
    for (int64_t begin = 0; begin < n; begin += SUM_BLOCK) {
        int64_t end = MIN2(begin + SUM_BLOCK, n), i = begin;
        float lane[LANES] = {0};
        for (; i + LANES <= end; i += LANES)
            for (int k = 0; k < LANES; k++) lane[k] += x[i + k];
        for (int k = 0; k < LANES; k++) total += (double)lane[k];
        for (; i < end; i++) total += (double)x[i];
    }
    return total;
}
