/* rng.c - permutations drawn by key (one that is stored, one that is computed element by element), and texts as parts
 * of keys. */
#include "base/rng.h"

#include "base/check.h"

/* A Feistel network over the least power of two that holds n: each half is changed by a function of the other, which
 * can be undone, so it is a permutation whatever the function. A place beyond n is permuted again until it falls below:
 * less than twice on average. */
static uint64_t feistel(uint64_t key, uint64_t x, int bits) {
    enum { ROUNDS = 4 };
    int low_bits = bits / 2;
    uint64_t low_mask = ((uint64_t)1 << low_bits) - 1, high_mask = ((uint64_t)1 << (bits - low_bits)) - 1;
    uint64_t low = x & low_mask, high = x >> low_bits;
    for (uint64_t r = 0; r < ROUNDS; r++) {
        high ^= rng_fold(rng_fold(key, 2 * r), low) >> 20 & high_mask;
        low ^= rng_fold(rng_fold(key, 2 * r + 1), high) >> 20 & low_mask;
    }
    return high << low_bits | low;
}

int64_t rng_permuted(uint64_t key, int64_t n, int64_t i) {
    CHECK(i >= 0 && i < n && n < (int64_t)1 << 62);
    int bits = 1;
    while ((uint64_t)(n - 1) >> bits) bits++;
    uint64_t x = (uint64_t)i;
    do x = feistel(key, x, bits);
    while (x >= (uint64_t)n);
    return (int64_t)x;
}

void rng_permute(uint64_t key, int64_t *order, int64_t n) {
    for (int64_t i = 0; i < n; i++) order[i] = i;
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t j = (int64_t)(((unsigned __int128)rng_fold(key, (uint64_t)i) * (uint64_t)(i + 1)) >> 64);
        int64_t keep = order[i];
        order[i] = order[j];
        order[j] = keep;
    }
}

uint64_t rng_fold_text(uint64_t key, const char *text) {
    for (; *text; text++) key = rng_fold(key, (uint8_t)*text);
    return rng_fold(key, 256);
}
