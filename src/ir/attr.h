/* attr.h - the constants of each op that has any: one named struct per op (rule P7). */
#ifndef IR_ATTR_H
#define IR_ATTR_H

#include <stdbool.h>
#include <stdint.h>

enum { LORA_GROUPS = 3 }; /* q, k, v share one product; gate and up another */

typedef struct AttrNorm {
    float eps;
} AttrNorm;

/* Who attends on a GPU. A library's kernels are faster, but serve only rows that are one document each, and their
 * sums may differ in the last bits from run to run. */
typedef enum AttendBy { ATTEND_OWN, ATTEND_FAST /* a library where it is there and faster */, ATTEND_LIBRARY } AttendBy;

typedef struct AttrHeads { /* the layout of one token's q, k, v: heads*dim, kv_heads*dim, kv_heads*dim */
    int heads, kv_heads, head_dim;
    int64_t seq;   /* tokens of one row; a token's row is its index / seq */
    float scale;   /* of q.k for attention; of cos and sin for rotary positions */
    float eps;     /* of per-head norms */
    bool inverse;  /* rotary: rotate back (the gradient) */
    /* attention with a prefix: tokens at the beginning of a row that all its documents see, and of each document
     * behind them, as rows are planned; what a play sees is said by its inputs (P7) */
    int64_t prefix, document;
    int64_t slots; /* cache: length of one row's cache */
    AttendBy by;   /* attention */
    bool distinct_cache_rows; /* no two rows of a play that are not idle have the same row of the cache */
} AttrHeads;

typedef enum GateAct { GATE_SIGMOID, GATE_TANH /* (tanh + 1) / 2 */, GATE_SILU } GateAct;

/* columns [first, first + group * cols of z) of x are multiplied, `group` by each number of z */
typedef struct AttrGate {
    GateAct act;
    int64_t first, group;
} AttrGate;

typedef struct AttrMix {
    float a, b;
} AttrMix;

/* By what keys are ranked, and how many of them a query attends to. */
typedef enum SelectBy { SELECT_LEARNED, SELECT_RANDOM, SELECT_ORACLE /* the attention they would have */ } SelectBy;
typedef enum KeepBy { KEEP_FIXED, KEEP_VARIANCE, KEEP_ENTROPY } KeepBy;

typedef struct AttrSparse { /* an indexer: of one token the queries of its heads, one key, a weight a head */
    AttrHeads heads; /* of the attention it serves: seq, slots; the layout of qkv where that is read */
    int index_heads, index_dim;
    bool relu;       /* its scores are summed behind a relu; otherwise behind a sigmoid */
    SelectBy by;
    KeepBy keep;
    int64_t k_base, k_min, k_max;
    float temperature;
    uint64_t key;    /* of a random selection */
    uint32_t kept;   /* of it: the share of keys not drawn anew for the next query, in steps of 2^-31 (sparse_drawn) */
} AttrSparse;
static inline int64_t sparse_index_width(const AttrSparse *a) {
    return (int64_t)a->index_heads * a->index_dim + a->index_dim + a->index_heads;
}
static inline int64_t sparse_most_keys(const AttrSparse *a) { /* columns of a selection */
    int64_t most = a->keep == KEEP_FIXED ? a->k_base : a->k_max, all = a->heads.slots ? a->heads.slots : a->heads.seq;
    return most < all ? most : all;
}

/* The words of a report about attention: sums over tokens and gates, then maxima of numbers above 0, so that a row of
 * zeros is an empty report. The least of x is kept as the largest REPORT_FAR - x. */
enum { REPORT_TOKENS, REPORT_SEEN, REPORT_KEYS, REPORT_MASS /* of attention on the keys */,
       REPORT_BEST /* on as many of the best */, REPORT_FIRST /* on a document's first token */,
       REPORT_LATER /* tokens that are not it */, REPORT_GATES /* how many */, REPORT_OPEN /* sum of their values */,
       REPORT_SHUT /* below a tenth */, REPORT_SUMS,
       REPORT_KEYS_MOST = REPORT_SUMS, REPORT_KEYS_LEAST, REPORT_GATE_MOST /* and 1: silu goes below 0 */,
       REPORT_GATE_LEAST, REPORT_WORDS };
enum { REPORT_FAR = 1 << 24 };

typedef struct AttrLinear {
    bool direct; /* a quantised weight is read as it is stored: nothing decodes it before */
} AttrLinear;

typedef struct AttrLora { /* group g reads columns [g*rank, (g+1)*rank) of u and writes columns [col, col+rows) of y */
    int groups, rank;
    int64_t col[LORA_GROUPS], rows[LORA_GROUPS]; /* rows: of B, stacked in group order */
    float scale;   /* alpha / rank */
    float dropout; /* of the adapter's input; each group draws its own */
} AttrLora;
/* Without dropout all groups read the same x: they are one product of groups * rank columns. */
static inline int lora_products_on_x(const AttrLora *l) { return l->dropout > 0 ? l->groups : 1; }
static inline int64_t lora_rank_on_x(const AttrLora *l) {
    return l->dropout > 0 ? l->rank : (int64_t)l->groups * l->rank;
}
/* How many groups from g on are alike, and as far from each other: one product of a library's, several times. Their
 * rows of b follow each other. *step: columns of y from one to the next. */
static inline int lora_alike(const AttrLora *l, int g, int64_t *step) {
    int n = 1;
    *step = g + 1 < l->groups ? l->col[g + 1] - l->col[g] : 0;
    while (g + n < l->groups && l->rows[g + n] == l->rows[g] && l->col[g + n] - l->col[g + n - 1] == *step) n++;
    return n;
}

enum { SCORE_LOGP, SCORE_MEAN, SCORE_DEVIATION, SCORE_LIKELIEST, TOKEN_SCORES }; /* of a row of token_score */

typedef struct AttrHead {
    int64_t chunk; /* rows of logits that exist at a time; a multiple of HEAD_TILE or >= all rows */
    float scale;   /* of the logits: 1 / temperature; 0: 1 */
    bool fp32;     /* on a GPU: logits stay in fp32; else they are rounded to the format of the hidden rows */
} AttrHead;
enum { /* a row of a head's `terms`: what its logits are scored by (ir/op_token.c) */
    TERM_LABEL,   /* of log p(label) */
    TERM_TARGET,  /* of minus the cross-entropy to the target's distribution */
    TERM_ENTROPY, /* of the entropy of that distribution */
    TERM_MARGIN,  /* of -(max - mean)^2 of the logits */
    TERM_LOWERED, /* is subtracted from the target's logit of the label */
    HEAD_TERMS
};
enum { DISTANCE_REF, DISTANCE_TOWARD, DISTANCE_WORDS }; /* a row of row_distance's `how` */
static inline float attr_head_scale(const AttrHead *h) { return h->scale > 0 ? h->scale : 1; }
enum { HEAD_TILE = 128 }; /* rows summed into the weight gradient at a time: fixed, so that chunks keep the bits */

typedef struct AttrScale {
    float by;
} AttrScale;

typedef struct AttrPolicy {
    float clip_low, clip_high; /* how far a ratio may be from 1 */
    float kl;                  /* weight of the distance to the reference */
} AttrPolicy;
enum { /* what policy_loss counts beside the loss, over tokens whose weight is not 0 */
    POLICY_TOKENS,
    POLICY_KL,
    POLICY_LOW, /* ratios clipped from below and from above */
    POLICY_HIGH,
    POLICY_APART, /* |logp - sampled|: summed, and the largest */
    POLICY_MOST_APART,
    POLICY_LEAST_LOW, /* of the plays that are added up: the least share of POLICY_LOW, the largest of POLICY_HIGH */
    POLICY_MOST_HIGH,
    POLICY_FACTS
};

typedef struct AttrUpdate {
    float beta1, beta2, eps, weight_decay, lr_mult;
} AttrUpdate; /* sgd: beta1 is the momentum */

typedef enum FillKind { FILL_CONSTANT, FILL_NORMAL, FILL_UNIFORM } FillKind;
typedef struct AttrFill {
    FillKind kind;
    float scale;  /* value, standard deviation, or half-width */
    uint64_t key; /* of the draw, folded from seed and name */
} AttrFill;

typedef union Attr {
    AttrNorm norm;
    AttrHeads heads;
    AttrLinear linear;
    AttrGate gate;
    AttrMix mix;
    AttrSparse sparse;
    AttrLora lora;
    AttrHead head;
    AttrScale scale;
    AttrPolicy policy;
    AttrUpdate update;
    AttrFill fill;
} Attr;

#endif
