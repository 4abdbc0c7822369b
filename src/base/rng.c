/* rng.c - a permutation drawn by key, and texts as parts of keys. */
#include "base/rng.h"

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
