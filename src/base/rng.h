/* rng.h - counter-based random numbers: by key and index, never a stream (rule P6).
 *
 * rng_u32(key, i) is a pure function: the same number for every caller, in any order, on any device.
 * A key is folded from the seed and whatever names the draw: rng_fold(rng_fold(seed, step), op). */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include <math.h>
#include <stdint.h>

static inline uint64_t rng_mix(uint64_t x) { /* 64-bit finaliser: every input bit reaches every output bit */
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9ull;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

static inline uint64_t rng_fold(uint64_t key, uint64_t word) {
    return rng_mix(key + 0x9e3779b97f4a7c15ull * (word + 1));
}

static inline uint32_t rng_u32(uint64_t key, uint64_t index) { return (uint32_t)(rng_fold(key, index) >> 32); }

/* 16 bits for a rounding. One word serves four neighbours, so that drawing costs little beside the arithmetic. What
 * rounds several numbers of one index takes each with a turn of its own (0 to 3): other bits of the same word. */
static inline uint32_t rng_u16(uint64_t key, uint64_t index, int turn) {
    return (uint32_t)(rng_fold(key, index / 4) >> (16 * ((index + (uint64_t)turn) % 4))) & 0xffff;
}

/* Uniform in [0,1): 24 bits, exact in fp32. */
static inline float rng_uniform(uint64_t key, uint64_t index) {
    return (float)(rng_u32(key, index) >> 8) * 0x1p-24f;
}

/* Standard normal (Box-Muller on the two halves of one 64-bit word). */
static inline float rng_normal(uint64_t key, uint64_t index) {
    uint64_t w = rng_fold(key, index);
    float u = ((float)(uint32_t)(w >> 40) + 1.0f) * 0x1p-24f; /* (0,1] */
    float v = (float)(uint32_t)((w >> 8) & 0xffffff) * 0x1p-24f;
    return sqrtf(-2.0f * logf(u)) * cosf(6.28318530717958647692f * v);
}

uint64_t rng_fold_text(uint64_t key, const char *text); /* its bytes, and where it ends */

/* Fills order[0..n) with a permutation of 0..n-1 that depends on the key alone. */
void rng_permute(uint64_t key, int64_t *order, int64_t n);

/* What stands at place i of another such permutation: one that is never written down, so n may be anything. */
int64_t rng_permuted(uint64_t key, int64_t n, int64_t i);

#endif
