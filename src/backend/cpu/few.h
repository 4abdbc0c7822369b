/* few.h - dot products of one row of a weight with a handful of rows of x, sixteen sums side by side: the order of
 * additions is the same on every processor, and whatever the number of rows. */
#ifndef BACKEND_CPU_FEW_H
#define BACKEND_CPU_FEW_H

#include <string.h>

#include "backend/cpu/product.h"

/* FEW_PIECE: long stretches of a row, so that the processor's own fetching ahead keeps up; FEW_AHEAD helps it across rows. */
enum { FEW_PIECE = 2048, FEW_ROWS_A_TILE = 16, FEW_STEP = PRODUCT_FEW_PAD, FEW_AHEAD = 4096 };

typedef float Lanes __attribute__((vector_size(64)));
typedef float LanesAnywhere __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint16_t HalvesAnywhere __attribute__((vector_size(32), aligned(2), may_alias));
typedef uint32_t Words __attribute__((vector_size(64)));

#define FEW_INLINE static inline __attribute__((always_inline))

FEW_INLINE void few_load(Lanes *to, const void *w, int64_t at, const bool bf16) {
    if (bf16) *to = (Lanes)(__builtin_convertvector(*(const HalvesAnywhere *)((const uint16_t *)w + at), Words) << 16);
    else *to = *(const LanesAnywhere *)((const float *)w + at);
}

/* total[r] += w * x[r], lane by lane, for a constant number of rows (so that the sums stay in registers); two sums
 * a row, since an addition takes longer than a turn of the loop. n is a multiple of FEW_STEP. */
FEW_INLINE void few_add(Lanes *total, const void *w, const bool bf16, const float *x, int64_t ldx, const int rows, int64_t n) {
    Lanes even[4] = {{0}}, odd[4] = {{0}};
    for (int64_t i = 0; i < n; i += 32) {
        Lanes p[2];
        few_load(&p[0], w, i, bf16);
        few_load(&p[1], w, i + 16, bf16);
        const char *soon = (const char *)w + i * (bf16 ? 2 : 4) + FEW_AHEAD;
        __builtin_prefetch(soon);
        if (!bf16) __builtin_prefetch(soon + 64);
        for (int r = 0; r < rows; r++) {
            const LanesAnywhere *q = (const LanesAnywhere *)(x + r * ldx + i);
            even[r] += p[0] * q[0];
            odd[r] += p[1] * q[1];
        }
    }
    for (int r = 0; r < rows; r++) total[r] += even[r] + odd[r];
}

/* `add` for 4, 2 and 1 rows at a time; add(total, row of x, ldx, constant number of rows). */
#define FEW_EACH_ROWS(rows, add)              \
    do {                                      \
        int64_t r = 0;                        \
        for (; r + 4 <= (rows); r += 4) add(r, 4); \
        for (; r + 2 <= (rows); r += 2) add(r, 2); \
        for (; r < (rows); r++) add(r, 1);    \
    } while (0)

/* The sum of a vector's lanes, by halves. */
FEW_INLINE float few_sum(const Lanes *total) {
    float s[16];
    memcpy(s, total, sizeof s);
    for (int k = 0; k < 8; k++) s[k] += s[k + 8];
    for (int k = 0; k < 4; k++) s[k] += s[k + 4];
    return (s[0] + s[2]) + (s[1] + s[3]);
}

#endif
