/* op.h - the op table: one row per op is the single source for shapes, gradients, costs and slot sharing,
 * and the recording calls that models and gradient rules use.
 *
 * N tokens, C width, M output width, V vocabulary, H heads, G KV heads, D head size, F hidden width. */
#ifndef IR_OP_H
#define IR_OP_H

#include "ir/machine.h"
#include "ir/prog.h"
#include "ir/sampling.h"

typedef enum Share { SHARE_NONE, SHARE_MAY, SHARE_MUST } Share;

typedef void GradRule(Program *p, Step s, Grads *g);          /* records; s is a copy, the list may grow */
typedef int64_t WorkspaceRule(const Program *p, const Step *s, const Machine *m); /* bytes of the step's scratch */
typedef double CostRule(const Program *p, const Step *s);
typedef double DeviceRule(const Program *p, const Step *s, const Machine *m);
typedef const char *ShapeRule(const Program *p, const Step *s); /* NULL: holds; else what is wrong */
typedef bool StoredRule(const Program *p, const Step *s);       /* its operand marked STORED may be quantised here */
typedef bool JoinRule(const Program *p, const Step *before, const Step *s);

/* Whose measured rates count for an op, and the two sizes they were measured by (ir/machine.h). */
typedef enum RateGrid { GRID_NONE, GRID_PRODUCTS, GRID_ATTENTION } RateGrid;
typedef struct OpSize {
    double x, y; /* rows and the shorter side of the weight; length and head size */
} OpSize;
typedef OpSize SizeRule(const Program *p, const Step *s);

typedef enum OpFlag {
    OPF_RANDOM = 1,        /* draws random numbers (by the clock and its key) */
    OPF_WRITES_STATE = 2,  /* never cloned (P4) */
    OPF_MOVES = 4,         /* a copy between pools: belongs on a side queue */
    OPF_TOGETHER = 8,      /* steps that follow each other may run at once: their scratch must not be shared */
    OPF_DECODES = 16,      /* up to LINEAR_DIRECT_MOST rows its product decodes the weight in registers */
    OPF_CHEAP = 32,        /* cheaper to repeat than to keep what it gives: norms, gates */
    OPF_MIXES_TOKENS = 64, /* a row of what it gives depends on other tokens' rows: attention and its gradient */
    OPF_ROWWISE = 128,     /* its operands marked ROWS may be cut into pieces: a step for each, sums added by beta */
    OPF_DROPOUT = 256,     /* an adapter's dropout, where it has any: drawn by the token's number in the step */
    OPF_FRESH = 512,       /* a product that may write its gradient without reading it: op_is_fresh */
    OPF_FILLS = 1024,      /* its output does not depend on what was there, and has any format */
    OPF_HEAD = 2048,       /* of the output head: the ledger counts what it gives and its scratch apart */
} OpFlag;

typedef enum Mark { /* what ops.def says about an operand */
    MARK_OPT = 1,      /* may be NONE */
    MARK_ROWS = 2,     /* holds a row for every token (or a number) */
    MARK_BETA = 4,     /* the dial of a sum that an output is added to; NONE: it adds */
    MARK_STORED = 8,   /* may have a quantised format: op_reads_stored says when */
    MARK_GATHERED = 16 /* only the rows that another operand names are read */
} Mark;

typedef struct OpPlace { /* of an operand */
    const char *name;
    uint32_t marks;
} OpPlace;

typedef struct OpPlaces {
    const char *name; /* of the op */
    int n_in, n_out;
    OpPlace in[MAX_IN], out[MAX_OUT];
} OpPlaces;

typedef struct OpRow {
    ShapeRule *shape;         /* NULL: nothing to check beyond the places */
    GradRule *grad;           /* NULL: gradients stop here */
    CostRule *flops;          /* NULL: as many as output elements */
    WorkspaceRule *workspace; /* NULL: none */
    StoredRule *stored;       /* NULL: always */
    Share share;              /* of out[share_out] with in[share_in] */
    int share_out, share_in;
    uint32_t flags;

    /* what it costs (plan/cost.c) */
    RateGrid grid;            /* GRID_NONE: the machine's matrix rate where there is a flops rule */
    int table;                /* of the grid: a ProductPass, ATTEND_* */
    SizeRule *size;           /* the point in the grid */
    DeviceRule *matrix_share; /* what its kernels reach of a GPU's rate of large products; NULL, or 0: not these */
    CostRule *vector_share;   /* of a GPU's fp32 rate; NULL: it runs at the rate of products */
    double byte_share;        /* what its kernel reaches of a GPU's memory rate; 0: all of it */
    CostRule *bytes_on_top;   /* on a GPU, bytes that come on top of the arithmetic, not beside it; NULL: none */
    DeviceRule *launches;     /* on a GPU, its kernels that wait for each other; NULL: one */
    JoinRule *joins;          /* on a GPU, it is done in the launch of the step before; NULL: with OPF_TOGETHER, where
                               * that has the same op */
} OpRow;

#define OP(NAME, name, ins, outs) extern const OpRow op_row_##name;
#include "ir/ops.def"

extern const OpRow *const op_rows[OP_COUNT];
extern const OpPlaces op_all_places[OP_COUNT];
static inline const OpRow *op_row(OpId op) {
    CHECK(op >= 0 && op < OP_COUNT);
    return op_rows[op];
}
static inline const OpPlaces *op_places(OpId op) {
    CHECK(op >= 0 && op < OP_COUNT);
    return &op_all_places[op];
}
static inline const char *op_name(OpId op) { return op_places(op)->name; }
double op_flops(const Program *p, const Step *s);
double op_bytes_moved(const Program *p, const Step *s); /* everything read and written once */
Tid op_token_rows(const Step *s); /* its first input that has a row for every token; NONE: there is none */
/* NULL: the step agrees with its row; else what is wrong, valid until the next call. */
const char *op_wrong(const Program *p, const Step *s);

/* Whether input k may have a quantised format: the table of embed, the weight of a head (more than a few rows: int8
 * only), of linear where it is direct. */
bool op_reads_stored(const Program *p, const Step *s, int k);
/* A product's gradient whose beta is there and 0 in every play: what it is written over is never read, and it is
 * rounded to nearest. */
bool op_is_fresh(const Step *s);
bool op_has_dropout(const Step *s);
int op_beta_place(OpId op); /* the number of the input that is marked as the beta of a sum; -1: none */
/* The most rows of linear_swiglu, and what stands at the beginning of its workspace where it is played as two: rows
 * of `width` numbers, the linear's. */
enum { LINEAR_SWIGLU_ROWS = 8 };
int64_t op_gated_bytes(int64_t rows, int64_t width, Format f);
/* Rows of x up to which a quantised weight is read by kernels for a few, and up to which linear and head_logits read
 * it on any machine; a linear layer on a CPU knows no bound. */
enum { LINEAR_DIRECT_ROWS = 16, LINEAR_DIRECT_MOST = 128 };
static inline int64_t linear_direct_rows(const Machine *m) {
    return m->kind == MACHINE_CPU ? INT64_MAX : LINEAR_DIRECT_MOST;
}

/* ---- forward: what models write ---- */
typedef struct DrawTensors { /* per slot */
    Tid how;   /* dial (S, DRAW_WORDS) i32: rows of ir/sampling.h's DrawHow */
    Tid drawn; /* (S, DRAWN_WORDS) i32: rows of Drawn */
    Tid ids;   /* (S, context) i32: the ids so far, by position */
} DrawTensors;

Tid op_embed(Program *p, Tid table, Tid ids, Tid id_order, Format activations);       /* (V,C),(N) -> (N,C) */
Tid op_rmsnorm(Program *p, Tid x, Tid w, float eps);                                  /* (N,C) -> (N,C) */
Tid op_linear(Program *p, const char *name, Tid x, Tid w, Tid bias);                  /* (N,C),(M,C) -> (N,M) */
/* The same for at most linear_direct_rows: a weight that is stored quantised is read so, not decoded first. */
Tid op_linear_direct(Program *p, const char *name, Tid x, Tid w, Tid bias);
Tid op_lora(Program *p, Tid y, Tid x, Tid a, Tid b, AttrLora attr);                   /* y + scale * (x a^T) b^T */
Tid op_head_norm(Program *p, Tid qkv, Tid wq, Tid wk, AttrHeads attr);                /* per-head RMS norm of q and k */
Tid op_rope(Program *p, Tid qkv, Tid positions, Tid inv_freq, AttrHeads attr);
/* -> (N, H*D); causal, within documents and what they have in front of them; prefix: (N, 2) or NONE */
Tid op_attend(Program *p, Tid qkv, Tid doc_begin, Tid prefix, AttrHeads attr);
/* rows: for each row of qkv, its row of the cache; NONE: its own number. op_rope_put is op_rope whose k and v go into
 * the cache: only q of what it returns counts. */
Tid op_rope_put(Program *p, Tid cache, Tid qkv, Tid positions, Tid inv_freq, Tid rows, AttrHeads attr);
Tid op_attend_cache(Program *p, Tid qkv, Tid cache, Tid positions, Tid rows, AttrHeads attr);
/* Sparse attention (op_sparse.c). cache, rows: as for op_attend_cache; doc_begin counts where there is no cache,
 * positions where there is one. qkv, kv_cache: rotated, for SELECT_ORACLE alone. */
typedef struct SelectTensors {
    Tid index, bias, doc_begin, positions, rows, cache, qkv, kv_cache;
} SelectTensors;
Tid op_select(Program *p, SelectTensors t, AttrSparse attr);                          /* -> (N, keys) i32 */
void op_index_put(Program *p, Tid cache, Tid index, Tid positions, Tid rows, AttrSparse attr);
/* lse may be NULL */
Tid op_attend_selected(Program *p, Tid qkv, Tid keys, Tid cache, Tid rows, AttrHeads attr, Tid *lse);
typedef struct IndexLossTensors {
    Tid index, bias, qkv, lse;
    Tid keys;            /* NONE: all that a token sees */
    Tid doc_begin, weight, divisor;
} IndexLossTensors;
Tid op_index_loss(Program *p, Tid stat, IndexLossTensors t, AttrSparse attr);         /* adds to a statistic */
/* What attention does, over tokens into a row of fp64 words (attr.h: REPORT_*). keys NONE: all are attended to. */
void op_attend_report(Program *p, Tid stat, Tid qkv, Tid keys, Tid doc_begin, AttrHeads attr);
void op_gate_report(Program *p, Tid stat, Tid z, AttrGate attr);
Tid op_gate(Program *p, const char *name, Tid x, Tid z, AttrGate attr);
/* attr.a * a + attr.b * b; b may be NONE */
Tid op_mix(Program *p, const char *name, Tid a, Tid b, AttrMix attr);
Tid op_swiglu(Program *p, Tid gate_up);                                               /* (N,2F) -> (N,F) */
Tid op_add(Program *p, const char *name, Tid a, Tid b);
/* (N,V) fp32, whole: small N only */
Tid op_head_logits(Program *p, Tid x, Tid w);
Tid op_token_score(Program *p, Tid logits, Tid labels);                               /* -> (N,TOKEN_SCORES) fp32 */
Tid op_head_logp(Program *p, Tid x, Tid w, Tid labels, AttrHead attr);                /* -> log-prob (N) fp32 */
Tid op_head_logp_entropy(Program *p, Tid x, Tid w, Tid labels, AttrHead attr,
                         Tid *entropy); /* with that of the rows; NULL: without */
/* Log-probabilities of the labels, and what each row draws itself: how (N,DRAW_WORDS), drawn (N), both int32. Its
 * log-probabilities have the bits of op_head_logp_entropy's: it is the same step with one output more. */
Tid op_head_draw(Program *p, Tid x, Tid w, Tid labels, AttrHead attr, Tid how, Tid drawn);
typedef struct HeadTarget { /* x, w: hidden rows and the head of another model, NONE: no term reads its logits */
    Tid terms, x, w;        /* terms (N,HEAD_TERMS) fp32 */
} HeadTarget;
/* What the terms make of each row's logits in place of log p(label) -> (N) fp32; its negative is a loss a token. */
Tid op_head_terms(Program *p, Tid x, Tid w, Tid labels, HeadTarget target, AttrHead attr);
/* -> (N) fp32: mean square of x - how[0] ref - how[1] toward; ref as x, toward (C) fp32, how (N,DISTANCE_WORDS) fp32 */
Tid op_row_distance(Program *p, Tid x, Tid ref, Tid toward, Tid how);
/* Draws the next token of each row into its slot's row of drawn and behind the ids so far; op_pick gives a
 * position's. */
enum { SAMPLE_WORKERS = 4 }; /* rows drawn at a time on the CPU: each has scratch of its own */
static inline int64_t sample_row_bytes(int64_t vocab) { return (20 * vocab + 255) / 256 * 256; }
void op_sample(Program *p, DrawTensors t, Tid logits, Tid slots, Tid positions);
Tid op_pick(Program *p, Tid ids, Tid slots, Tid positions);                          /* -> (N) i32 */
/* -sum(v * weight) / divisor, added over micro-steps into a statistic by the beta dial. */
typedef struct PolicyOperands { /* op_policy.c; sampled, old, ref: NONE where there is none */
    Tid logp, sampled, old, ref, advantage, weight, divisor, stat, facts;
} PolicyOperands;
Tid op_policy_loss(Program *p, const PolicyOperands *o, AttrPolicy attr); /* gives stat, a root */
Tid op_token_sum(Program *p, Tid stat, Tid v, Tid weight, Tid divisor, float scale);
Tid op_stop_gradient(Program *p, Tid x); /* a view through which no gradient flows */

/* ---- update ---- */
void op_sum_squares(Program *p, Tid part, Tid gradient);                              /* part: one fp64 */
/* verdict: VERDICT_* words; limits (NONE: there are none): LIMIT_* words. */
void op_clip(Program *p, Tid verdict, Tid parts, Tid loss, Tid max_norm, Tid unscale, Tid limits);
enum { VERDICT_SCALE, VERDICT_NORM, VERDICT_OK, VERDICT_WORDS }; /* fp64; OK: 1 when all is finite and within limits */
enum { LIMIT_LOSS, LIMIT_NORM, LIMIT_WORDS };                    /* fp32: an update above one of them writes nothing */
typedef struct UpdateTensors {
    Tid weight, gradient, m, v, master; /* master NONE: the weight itself is updated; sgd: v NONE, m may be */
    Tid dials;                          /* DIAL_* words, fp32 */
    Tid verdict;                        /* written by op_clip: scale, and whether to write at all (P7) */
} UpdateTensors;
enum { DIAL_LR, DIAL_CORRECT1, DIAL_CORRECT2, DIAL_WORDS };                           /* 1/(1-beta^t) */
void op_adamw(Program *p, UpdateTensors t, AttrUpdate attr);
void op_sgd(Program *p, UpdateTensors t, AttrUpdate attr);

/* ---- a correction that is carried along a run (op_carry.c) ---- */
typedef struct CarryTensors {
    Tid correction; /* fp32, beside the weight */
    Tid last;       /* the gradient of the update before, as stored */
    Tid dials;      /* CARRY_* words, fp32 */
    Tid sums;       /* CARRY_SUMS fp64 words */
} CarryTensors;
enum { CARRY_KEEP, CARRY_LR, CARRY_DAMPING, CARRY_TIMES, CARRY_REMOVE, CARRY_WORDS };
enum { CARRY_VX, CARRY_XX, CARRY_VV, CARRY_SUMS }; /* dot products of v and an x, which the op says */
enum { CARRY_TILE = 1 << 13 };                     /* numbers of a tensor whose sums stand in a workspace, at least */
void op_sgd_carry(Program *p, UpdateTensors t, CarryTensors c, AttrUpdate attr); /* t.m NONE */
void op_carry_apply(Program *p, UpdateTensors t, CarryTensors c, AttrUpdate attr); /* t: weight and master alone */

/* ---- state and moves ---- */
void op_fill(Program *p, Tid state, AttrFill attr);
void op_copy(Program *p, Tid dst, Tid src, Queue queue);

#endif
