/* mt.c - MT19937 by its recurrence, seeded by an array of one word as Python does, and both ways of random.sample. */
#include "suite/mt.h"

#include <math.h>

#include "base/mem.h"

enum { SHIFT = 397 };

static void fill(Mt *m, uint32_t seed) {
    m->word[0] = seed;
    for (int i = 1; i < MT_WORDS; i++)
        m->word[i] = 1812433253u * (m->word[i - 1] ^ m->word[i - 1] >> 30) + (uint32_t)i;
}

/* Every word takes in the one before it; behind the last one the first is that one. */
static int step(Mt *m, int i, uint32_t by, uint32_t add, uint32_t less) {
    m->word[i] = (m->word[i] ^ (m->word[i - 1] ^ m->word[i - 1] >> 30) * by) + add - less;
    if (++i < MT_WORDS) return i;
    m->word[0] = m->word[MT_WORDS - 1];
    return 1;
}

void mt_seed(Mt *m, uint32_t seed) {
    int i = 1;
    fill(m, 19650218u);
    for (int k = 0; k < MT_WORDS; k++) i = step(m, i, 1664525u, seed, 0);
    for (int k = 1; k < MT_WORDS; k++) i = step(m, i, 1566083941u, 0, (uint32_t)i);
    m->word[0] = 0x80000000u;
    m->at = MT_WORDS;
}

static void turn(Mt *m) {
    for (int i = 0; i < MT_WORDS; i++) {
        uint32_t y = (m->word[i] & 0x80000000u) | (m->word[(i + 1) % MT_WORDS] & 0x7fffffffu);
        m->word[i] = m->word[(i + SHIFT) % MT_WORDS] ^ y >> 1 ^ (y & 1 ? 0x9908b0dfu : 0);
    }
    m->at = 0;
}

static uint32_t next_bits(Mt *m) { /* 32 bits */
    if (m->at == MT_WORDS) turn(m);
    uint32_t y = m->word[m->at++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    return y ^ y >> 18;
}

static int64_t number_below(Mt *m, int64_t n) { /* 0 .. n - 1; n from 1 to 2^31 */
    int bits = 0;
    while (n >> bits) bits++;
    CHECK(n > 0 && bits <= 32);
    int64_t r = n;
    while (r >= n) r = next_bits(m) >> (32 - bits);
    return r;
}

/* Draws from a list that closes its gaps. */
static void sample_pool(Mt *m, int64_t *out, int64_t n, int64_t k) {
    int64_t *pool = MEM_NEW(int64_t, n);
    for (int64_t i = 0; i < n; i++) pool[i] = i;
    for (int64_t i = 0; i < k; i++) {
        int64_t at = number_below(m, n - i);
        out[i] = pool[at];
        pool[at] = pool[n - i - 1];
    }
    mem_free(pool);
}

static bool is_among(const int64_t *list, int64_t n, int64_t number) {
    for (int64_t i = 0; i < n; i++)
        if (list[i] == number) return true;
    return false;
}

void mt_sample(Mt *m, int64_t *out, int64_t n, int64_t k) {
    /* up to this size Python draws from a list */
    double few = 21 + (k > 5 ? pow(4, ceil(log((double)k * 3) / log(4))) : 0);
    CHECK(k <= n);
    if ((double)n <= few) {
        sample_pool(m, out, n, k);
        return;
    }
    for (int64_t i = 0; i < k; i++) {
        do out[i] = number_below(m, n);
        while (is_among(out, i, out[i]));
    }
}
