/* decoder.h - records a decoder's training ring for planner tests: micro-step, update, evaluate. */
#ifndef TESTS_PLAN_DECODER_H
#define TESTS_PLAN_DECODER_H

#include "ir/op.h"

typedef struct Decoder {
    int layers, heads, kv_heads, head_dim;
    int64_t width, hidden, vocab, tokens, seq, chunk;
    int rank;           /* of adapters beside every product; 0: all weights are trained */
    bool head_norms;    /* norms of q and k heads */
    bool sparse;        /* a block of another family: an indexer attends first, a gate and a norm follow attention,
                         * and documents have tokens in front of them in common */
    bool tied;          /* the head is the embedding: its gradient has two writers, far apart */
    int64_t accumulate; /* plays of the micro-step */
    Home home;          /* of the layers' products; format FMT_BF16 on the device: nothing to bring in */
} Decoder;

extern const Decoder decoder_tiny; /* small enough to be played */
extern const Decoder decoder_7b;   /* Qwen2.5-7B, 1536 tokens, whole head in chunks of 512 */

void decoder_record(Program *p, const Decoder *d); /* gives: prog_free */

#endif
