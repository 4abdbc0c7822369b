/* sampling.h - how the next token is drawn: in whole numbers, so that every device draws the same one.
 *
 * In this order, as Hugging Face's generate has it: repetition penalty, temperature, top-k, top-p, min-p.
 *   score    the logit, of tokens already there divided (above 0) or multiplied (below) by the penalty
 *   weight   e^((score - top) / temperature) in units of 1 / DRAW_ONE, at least 1; the likeliest has DRAW_ONE
 *   top-k    scores at least the k-th largest
 *   top-p    of those, scores at least s: the largest s whose tokens and likelier ones reach top_p of all weight
 *   min-p    weights at least min_p of the likeliest's
 *   draw     24 random bits are a place in the sum of what is kept, ascending by id
 * Equally likely tokens are kept or left out together. Sums are of integers: their order does not matter. The few steps
 * in fp32 are single operations, never contracted. Read by C and by CUDA C++. */
#ifndef IR_SAMPLING_H
#define IR_SAMPLING_H

#include <stdint.h>

typedef struct Sampling {
    float temperature; /* 0: the likeliest token, the first of equals */
    int64_t top_k;     /* only the k likeliest; 0: all */
    float top_p;       /* only the fewest that together have this probability; 1: all */
    float min_p;       /* only those at least this times as likely as the likeliest; 0: all */
    float repetition;  /* logits of tokens already there are divided (above 0) or multiplied (below) by it; 1: not */
} Sampling;

/* What one slot asks for: a row of the dial `how` of OP_SAMPLE. */
typedef struct DrawHow {
    uint64_t key; /* of its random numbers */
    float temperature, top_p, min_p, repetition;
    int32_t top_k;
    int32_t first;     /* position of the answer's first token: its draw has number 0 */
    int32_t want_logp; /* 0: logp is given as 0 */
    float logp_scale;  /* of the logits that logp is taken of: 1 / temperature; 0: 1 */
    int32_t vocab;     /* only ids below it: a row that fills an embedding up has no text; 0: all */
    int32_t forced;    /* the first so many tokens of the answer are not drawn: they stand in the ids already */
} DrawHow;

/* What came of it: a row of the output `drawn`. */
typedef struct Drawn {
    int32_t id;  /* -1: the logits hold a number that is not finite, or nothing can come */
    float logp;  /* of the model itself: nothing kept out, at DrawHow.logp_scale */
} Drawn;

enum { DRAW_WORDS = sizeof(DrawHow) / 4, DRAWN_WORDS = sizeof(Drawn) / 4, DRAW_BITS = 44, DRAW_MOST_VOCAB = 1 << 19 };
#define DRAW_ONE (1ull << DRAW_BITS) /* times DRAW_MOST_VOCAB still fits 64 bits */

#ifdef __CUDACC__
#define DRAW_CALL static __device__ __forceinline__
#define DRAW_MUL(a, b) __fmul_rn(a, b)
#define DRAW_ADD(a, b) __fadd_rn(a, b)
#define DRAW_DIV(a, b) __fdiv_rn(a, b)
#define DRAW_WORD(x) __float_as_uint(x)
#define DRAW_SHARE(p, sum) ((uint64_t)ceil(__dmul_rn((double)(p), __ull2double_rn(sum))))
#else
#include <math.h>
#include <string.h>
#define DRAW_CALL static inline
#define DRAW_MUL(a, b) ((a) * (b))
#define DRAW_ADD(a, b) ((a) + (b))
#define DRAW_DIV(a, b) ((a) / (b))
#define DRAW_WORD(x) draw_word(x)
#define DRAW_SHARE(p, sum) ((uint64_t)ceil((double)(p) * (double)(sum)))
static inline uint32_t draw_word(float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}
#endif

DRAW_CALL float draw_penalised(float logit, float by) { return logit < 0 ? DRAW_MUL(logit, by) : DRAW_DIV(logit, by); }

/* A whole number for each score, in the same order; both zeros have one. */
DRAW_CALL uint32_t draw_order(float score) {
    uint32_t u = DRAW_WORD(DRAW_ADD(score, 0.0f));
    return u >> 31 ? ~u : u | 0x80000000u;
}

/* 2^t for t <= 0 by a polynomial on [-1/2, 1/2]; the result's bits are shifted into place. */
DRAW_CALL uint64_t draw_weight(float score, float top, float temperature) {
    if (score >= top) return DRAW_ONE;
    float x = DRAW_ADD(DRAW_DIV(score, temperature), -DRAW_DIV(top, temperature));
    if (!(x > -64.0f)) return 1;
    const float nearest = 12582912.0f; /* 1.5 * 2^23: adding it rounds to whole numbers */
    float t = DRAW_MUL(x, 1.44269504f), n = DRAW_ADD(DRAW_ADD(t, nearest), -nearest), r = DRAW_ADD(t, -n);
    float p = 1.5252734e-5f;
    p = DRAW_ADD(DRAW_MUL(p, r), 1.5403530e-4f);
    p = DRAW_ADD(DRAW_MUL(p, r), 1.3333558e-3f);
    p = DRAW_ADD(DRAW_MUL(p, r), 9.6181291e-3f);
    p = DRAW_ADD(DRAW_MUL(p, r), 5.5504109e-2f);
    p = DRAW_ADD(DRAW_MUL(p, r), 0.24022651f);
    p = DRAW_ADD(DRAW_MUL(p, r), 0.69314718f);
    p = DRAW_ADD(DRAW_MUL(p, r), 1.0f);
    uint32_t u = DRAW_WORD(p);
    int shift = (int)(u >> 23) - 127 + (int)n - 23 + DRAW_BITS;
    uint64_t digits = (u & 0x7fffffu) | 0x800000u;
    uint64_t w = shift >= 0 ? digits << shift : shift > -24 ? digits >> -shift : 0;
    return w ? w : 1;
}

/* The least whole number that is not below p times the sum, at least 1. */
DRAW_CALL uint64_t draw_share(float p, uint64_t sum) {
    uint64_t n = p > 0 ? DRAW_SHARE(p, sum) : 0;
    return n ? n : 1;
}

/* Of the numbers below sum, the one that 24 random bits name. */
DRAW_CALL uint64_t draw_place(uint32_t bits24, uint64_t sum) {
    return bits24 * (sum >> 24) + (bits24 * (sum & 0xffffffu) >> 24);
}

#endif
