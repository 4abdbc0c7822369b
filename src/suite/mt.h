/* mt.h - the Mersenne Twister and a sample drawn from it, number for number as Python's random module: with its seed,
 * few-shot examples are those that lm-evaluation-harness takes. */
#ifndef SUITE_MT_H
#define SUITE_MT_H

#include <stdint.h>

enum { MT_WORDS = 624 };

typedef struct Mt {
    uint32_t word[MT_WORDS];
    int at; /* the next word; MT_WORDS: all are used */
} Mt;

void mt_seed(Mt *m, uint32_t seed);              /* random.Random(seed) */
void mt_sample(Mt *m, int64_t *out, int64_t n, int64_t k); /* random.sample(range(n), k), k <= n */

#endif
