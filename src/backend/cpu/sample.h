/* sample.h - sampling: from a row of logits to the next token. A pure function: the same row, settings and key give the
 * same token, whatever else is in the batch. The rules stand in ir/sampling.h. */
#ifndef BACKEND_CPU_SAMPLE_H
#define BACKEND_CPU_SAMPLE_H

#include <stdbool.h>

#include "ir/sampling.h"

typedef struct SampleItem {
    float score;
    uint64_t weight;
} SampleItem;

typedef struct Sampler { /* scratch for one row at a time, and what sample_keep found out about it */
    int64_t vocab;
    float *score;          /* (vocab) */
    SampleItem *item;      /* (vocab) */
    float top, temperature;
    float least;           /* kept: scores from here on ... */
    uint64_t least_weight; /* ... and weights from here on */
    uint64_t total;        /* of the weights kept */
} Sampler;

Sampler sampler_at(void *scratch, int64_t vocab); /* sample_row_bytes(vocab) of it, aligned to 8 bytes */

/* Finds the tokens that may come next; false: the row holds a number that is not finite, or nothing can come.
 * before: the ids so far. */
bool sample_keep(Sampler *s, const float *logits, const DrawHow *how, const int32_t *before, int64_t n_before);
uint64_t sample_weight(const Sampler *s, int64_t id); /* of total; 0: left out */

/* The token of the how's key and this number; -1 as above. */
int32_t sample_token(Sampler *s, const float *logits, const DrawHow *how, const int32_t *before, int64_t n_before,
                     int64_t number);

/* of the model itself: nothing kept out, temperature 1 */
float sample_logp(const float *logits, int64_t vocab, int32_t id, float scale);

#endif
