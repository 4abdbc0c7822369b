/* sample.h - from a row of logits to the next token. Pure: the same row, settings and key give the same token,
 * whoever else is in the batch.
 *
 * In this order, as Hugging Face's generate has it: repetition penalty, temperature, top-k, top-p, min-p. */
#ifndef GEN_SAMPLE_H
#define GEN_SAMPLE_H

#include "base/mem.h"

typedef struct Sampling {
    float temperature; /* 0: the likeliest token */
    int64_t top_k;     /* only the k likeliest; 0: all */
    float top_p;       /* only the fewest that together have this probability; 1: all */
    float min_p;       /* only those at least this times as likely as the likeliest; 0: all */
    float repetition;  /* logits of tokens already there are divided (above 0) or multiplied (below) by it; 1: not */
} Sampling;

typedef struct Candidate {
    int32_t id;
    float p; /* probability among those kept */
} Candidate;

typedef struct Sampler { /* scratch for one row at a time */
    int64_t vocab;
    float *score, *order;
    Candidate *kept;
    uint8_t *seen;
} Sampler;

void sampler_init(Sampler *s, Arena *a, int64_t vocab);
int64_t sampler_bytes(int64_t vocab);

/* The tokens that may come next, ascending by id, and their probabilities; gives their number. 0: the row holds a
 * number that is not finite. before: the ids so far. */
int64_t sample_keep(Sampler *s, const float *logits, const Sampling *how, const int32_t *before, int64_t n_before);

/* The token of this key and position; -1: the row holds a number that is not finite. */
int32_t sample_token(Sampler *s, const float *logits, const Sampling *how, const int32_t *before, int64_t n_before,
                     uint64_t key, int64_t position);

float sample_logp(const float *logits, int64_t vocab, int32_t id); /* of the model itself: nothing kept out, temperature 1 */

#endif
