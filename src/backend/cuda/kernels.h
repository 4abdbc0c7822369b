/* kernels.h - the launchers: one C function per op that is not a matrix product, between kernels.c and the .cu
 * files.
 *
 * A launcher queues its kernels on the stream and returns; it allocates nothing and waits for nothing. Pointers
 * are device memory, dials (clock, beta, divisor, verdict, learning rates) among them: kernels read those when
 * they run, so that a replayed graph sees new values (P7). Activations of one step share one format. */
#ifndef BACKEND_CUDA_KERNELS_H
#define BACKEND_CUDA_KERNELS_H

#include <stdbool.h>

#include "backend/cuda/launch.h"
#include "ir/block_device.h"
#include "ir/sampling.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct CudaNumbers { /* of a tensor in its own format */
    void *data;              /* NULL: there is none */
    Format format;
} CudaNumbers;

/* ---- norms (norm.cu, head_norm.cu) ---- */

typedef struct CudaNorm {
    CudaNumbers y, w;
    void *sum;        /* x + b, in y's format, when there is a b; may be b */
    const void *x, *b; /* b NULL: none */
    float *rstd;
    int64_t rows, cols;
    float eps;
} CudaNorm;
void cuda_launch_rmsnorm(cudaStream_t s, const CudaNorm *n);

typedef struct CudaNormGrad {
    CudaNumbers dx, dw; /* data NULL: not wanted */
    CudaNumbers x, w;
    const void *dy, *so_far; /* so_far NULL: none */
    const float *rstd;
    float *parts; /* workspace (parts, cols), when dw is wanted */
    int64_t rows, cols;
    const float *beta; /* dial; NULL: 1 */
    CudaKey key;
} CudaNormGrad;
void cuda_launch_rmsnorm_grad(cudaStream_t s, const CudaNormGrad *g);

typedef struct CudaHeadNorm {
    CudaNumbers wq, wk; /* one format */
    int64_t rows;       /* tokens */
    int heads, kv_heads, dim;
    float eps;
} CudaHeadNorm;
void cuda_launch_head_norm(cudaStream_t s, CudaNumbers y, float *rstd, const void *qkv, const CudaHeadNorm *h);

typedef struct CudaHeadNormGrad {
    CudaHeadNorm norm;
    CudaNumbers dx, dwq, dwk; /* dwq, dwk: data NULL: not wanted */
    const void *dy, *qkv;
    const float *rstd;
    float *parts;      /* workspace (parts, 2, dim) */
    const float *beta; /* dial; NULL: 1 */
    CudaKey key;
} CudaHeadNormGrad;
void cuda_launch_head_norm_grad(cudaStream_t s, const CudaHeadNormGrad *g);

/* ---- elementwise (elementwise.cu): rows and cols of h (N,F) ---- */

void cuda_launch_swiglu(cudaStream_t s, CudaNumbers h, const void *gate_up, int64_t rows, int64_t cols);
void cuda_launch_swiglu_grad(cudaStream_t s, CudaNumbers dgate_up, const void *dh, const void *gate_up,
                             int64_t rows, int64_t cols);
void cuda_launch_add(cudaStream_t s, CudaNumbers y, const void *a, const void *b, int64_t n);

/* ---- RoPE (rope.cu): y may be x ---- */

enum { CUDA_MOST_ROPE_DIM = 512 };
typedef struct CudaRope {
    const int32_t *positions; /* (tokens) */
    const float *inv_freq;    /* (dim / 2) */
    int64_t tokens;
    int heads, kv_heads, dim;
    float scale; /* on cos and sin */
    bool inverse;
    bool early; /* positions, and rows of a cache, are inputs: written before the play */
} CudaRope;
void cuda_launch_rope(cudaStream_t s, CudaNumbers y, const void *x, const CudaRope *r);

/* ---- embedding lookup: rows of a table (embed.cu) ---- */

typedef struct CudaRows {
    CudaNumbers table;   /* (table_rows, cols) in fp32, bf16, fp16, int8 or nf4 */
    int64_t row_bytes;
    int scale_at, blocks_at; /* int8, nf4: the row's scale; nf4: its blocks' bytes */
    const int32_t *ids;  /* (rows); NULL: every row in order (decode) */
    int64_t table_rows, rows, cols;
} CudaRows;
void cuda_launch_rows(cudaStream_t s, CudaNumbers y, const CudaRows *r);

typedef struct CudaEmbedGrad {
    const int32_t *ids, *order; /* (tokens) */
    int64_t tokens, table_rows, cols;
    const float *beta; /* dial: 0 or 1; NULL: 1 */
    CudaKey key;
} CudaEmbedGrad;
void cuda_launch_embed_grad(cudaStream_t s, CudaNumbers dtable, CudaNumbers dx, const CudaEmbedGrad *e);

/* ---- sampling (sample.cu) ---- */

enum { CUDA_MOST_VOCAB = 300000 }; /* a bit each in shared memory */
typedef struct CudaSample { /* ir/op_sample.c */
    const float *logits;    /* (rows, vocab) */
    const int32_t *slots, *positions; /* (rows) */
    const DrawHow *how;     /* per slot */
    Drawn *drawn;           /* per slot */
    int32_t *ids;           /* (slots, room) */
    int64_t rows;
    int vocab, room;
} CudaSample;
void cuda_launch_sample(cudaStream_t s, const CudaSample *a);

typedef struct CudaDraws { /* a head's: every row for itself (ir/op_token.c) */
    const float *logits;   /* (rows, ld), of which `vocab` count */
    int64_t rows, ld;
    int vocab;
    float scale;           /* a logit is the stored number times this */
    const int32_t *labels; /* (rows); less than 0: nothing is drawn */
    const DrawHow *how;    /* (rows); the number of the draw is -first, and nothing is penalised */
    int32_t *drawn;        /* (rows); -1: nothing */
} CudaDraws;
void cuda_launch_draws(cudaStream_t s, const CudaDraws *d);
void cuda_launch_pick(cudaStream_t s, int32_t *to, const int32_t *ids, const int32_t *slots, const int32_t *positions,
                      int64_t rows, int room);

/* ---- the loss (loss.cu) ---- */

typedef struct CudaPolicy { /* vectors of n fp32 numbers; NULL: there is none */
    const float *logp, *sampled, *old, *ref, *advantage, *weight, *divisor, *beta;
    float *dlogp;
    double *stat, *facts;
    int64_t n;
    AttrPolicy attr;
} CudaPolicy;
void cuda_launch_policy_loss(cudaStream_t s, const CudaPolicy *p);
void cuda_launch_policy_loss_grad(cudaStream_t s, const CudaPolicy *p);
void cuda_launch_token_score(cudaStream_t s, float *score, const float *logits, const int32_t *labels, int64_t n,
                             int64_t vocabulary);
typedef struct CudaDistance { /* of rows of x from a reference's, or from one vector (ir/op_token.c) */
    const void *x, *ref;      /* (rows, cols) in dx's format */
    const float *toward, *how; /* (cols); (rows, DISTANCE_WORDS) */
    float *v;                 /* (rows); NULL: the gradient is asked for, ... */
    const float *dv;          /* ... of (rows), ... */
    CudaNumbers dx;           /* ... (rows, cols) */
    int64_t rows, cols;
} CudaDistance;
void cuda_launch_row_distance(cudaStream_t s, const CudaDistance *d);

void cuda_launch_token_sum(cudaStream_t s, double *stat, CudaNumbers v, CudaNumbers weight, CudaNumbers divisor,
                           const float *beta, int64_t n, float scale);
void cuda_launch_token_sum_grad(cudaStream_t s, CudaNumbers dv, CudaNumbers weight, CudaNumbers divisor, int64_t n,
                                float scale);

/* ---- updates (update.cu) ---- */

enum { CUDA_SQUARES_TILE = 1 << 14 }; /* numbers of one partial sum; ir/op_state.c sizes the workspace by it */
enum { CUDA_VERDICT_SCALE, CUDA_VERDICT_NORM, CUDA_VERDICT_OK }; /* as VERDICT_* of ir/op.h */
enum { CUDA_LIMIT_LOSS, CUDA_LIMIT_NORM };                       /* as LIMIT_* */
enum { CUDA_DIAL_LR, CUDA_DIAL_CORRECT1, CUDA_DIAL_CORRECT2 };   /* as DIAL_* */

/* Tensors whose steps follow each other, in one launch: numbers of one format. */
enum { CUDA_SQUARES_MOST = 64 }; /* a power of two */
typedef struct CudaSquaresTensor {
    const void *g;
    double *tiles, *to; /* the workspace: one sum a tile; and the sum of those */
    int64_t count;
    uint32_t first_tile; /* of the launch */
} CudaSquaresTensor;
typedef struct CudaSquares {
    CudaSquaresTensor t[CUDA_SQUARES_MOST];
    uint32_t n, tiles;
    Format format;
} CudaSquares;
void cuda_launch_sum_squares(cudaStream_t s, const CudaSquares *u);
void cuda_launch_clip(cudaStream_t s, double *verdict, const double *parts, const double *loss,
                      const float *max_norm, const float *unscale, const float *limits,
                      int64_t n); /* unscale NULL: 1; limits NULL: none */

/* Likewise; what these tensors have in common stands once. */
enum { CUDA_UPDATE_TILE = 1 << 13, CUDA_UPDATE_MOST = 40 };
typedef struct CudaUpdateTensor {
    void *w, *m, *v, *master;   /* changed where they stand; NULL: there is none (sgd: perhaps no m; v: a correction) */
    const void *g;
    float *m_scales, *v_scales; /* 8-bit moments: one per block */
    double *tiles;              /* sgd with a correction: CUDA_CARRY_SUMS a tile, ... */
    void *last;                 /* ... and the gradient of the update before, in the format of g */
    int64_t count;
    uint32_t key;               /* the step's */
    uint32_t first_tile;        /* of the launch */
    float lr_mult, weight_decay;
} CudaUpdateTensor;
typedef struct CudaUpdates {
    CudaUpdateTensor t[CUDA_UPDATE_MOST];
    uint32_t n, tiles;
    Format w, g, m, v, master; /* of what there is */
    bool draws;                /* something is rounded at random */
    bool aligned;              /* every address allows 16 bytes at a time */
    float beta1, beta2, eps;
    const float *dials;
    const double *verdict;
    const int64_t *clock; /* NULL: 0 */
    const float *carry;   /* sgd: dials of the correction; NULL: there is none */
} CudaUpdates;
void cuda_launch_adamw(cudaStream_t s, const CudaUpdates *u, int processors);
void cuda_launch_sgd(cudaStream_t s, const CudaUpdates *u, int processors);

/* ---- a correction beside the weights (carry.cu) ---- */

enum { CUDA_CARRY_KEEP, CUDA_CARRY_LR, CUDA_CARRY_DAMPING, CUDA_CARRY_TIMES, CUDA_CARRY_REMOVE };
enum { CUDA_CARRY_VX, CUDA_CARRY_XX, CUDA_CARRY_VV, CUDA_CARRY_SUMS };
enum { CUDA_CARRY_TILE = CUDA_UPDATE_TILE };
typedef struct CudaCarry {
    float *v;
    void *w;
    float *master; /* NULL: there is none */
    const void *last;
    Format format, last_format; /* of w, of last */
    int64_t count;
    double *tiles; /* CUDA_CARRY_SUMS a tile */
    double *sums;
    const float *dials;
    float lr_mult, weight_decay;
} CudaCarry;
void cuda_launch_carry_apply(cudaStream_t s, const CudaCarry *c);
/* The tiles' sums added up; 0 where there is a verdict and it is not ok. */
void cuda_launch_carry_join(cudaStream_t s, const CudaCarry *c, const double *verdict);

/* ---- fills (move.cu) ---- */

void cuda_launch_fill(cudaStream_t s, CudaNumbers to, float *scales, int64_t rows, int64_t cols, AttrFill f);

/* ---- attention: mma.sync (attend.cu, attend_grad.cu: bf16 or fp16, heads of 64, 80, 96 or 128 numbers, rows
 * of 16 bytes, sm_80 on), wgmma on Hopper (attend_sm90.cu: the same, heads of 64 and 128), and plain
 * (attend_plain.cu: any format, heads of up to CUDA_MOST_HEAD_DIM) ---- */

enum { CUDA_MOST_HEAD_DIM = 256 };

typedef struct CudaAttend {
    const void *q, *k; /* row 0, head 0; v stands v_offset numbers behind k */
    void *o;
    float *lse; /* (rows*seq, heads); NULL: not wanted */
    const int32_t *begin,
        *last; /* (rows*seq): query i sees keys [begin, last]; NULL: from 0; up to its own place */
    const int32_t *prefix;  /* (rows*seq, 2): keys [from, upto) in front of begin that a query sees too; NULL: none */
    const uint32_t *mask;   /* (rows*seq, mask_words): a bit for each key that a query attends to; NULL: all it sees */
    int mask_words;         /* a multiple of 4 */
    const int32_t *key_row; /* (rows): whose keys a row sees; NULL: its own (not in backward) */
    int64_t rows;
    int q_stride, kv_stride, o_stride; /* numbers from token to token */
    int v_offset;
    int seq, keys; /* queries and keys of one row */
    int heads, kv_heads, dim;
    float scale;
    Format format; /* of all of them */
    bool early;    /* last and key_row are inputs: written before the play */
} CudaAttend;
void cuda_launch_attend(cudaStream_t s, const CudaAttend *a);
void cuda_launch_attend_plain(cudaStream_t s, const CudaAttend *a);
/* for 9.0; false: not a shape of its, nothing done */
bool cuda_launch_attend_sm90(cudaStream_t s, const CudaAttend *a);
bool cuda_attend_sm90_takes(const CudaAttend *a);                  /* would it, and backward? */

typedef struct CudaAttendGrad {
    CudaAttend a;    /* of the forward step; lse is read */
    const void *d_o; /* like o */
    void *dq, *dk;   /* like q, k; dv stands v_offset numbers behind dk */
    /* the workspace (ir/block_device.h) */
    float *lse2, *delta; /* lse * log2 e (infinite behind seq), and rowsum(d_o * o) */
    int32_t *tiles;      /* the earliest and the latest beginning of a tile's queries */
    int32_t *prefixes;   /* with a prefix: the earliest and latest of its beginnings, the latest and earliest ends */
    float *parts;        /* dk, dv of each part of a group's heads */
    int n_parts, padded;
} CudaAttendGrad;
void cuda_launch_attend_grad(cudaStream_t s, const CudaAttendGrad *g);
void cuda_launch_attend_grad_plain(cudaStream_t s, const CudaAttendGrad *g);
bool cuda_launch_attend_grad_sm90(cudaStream_t s, const CudaAttendGrad *g); /* likewise */
void cuda_launch_attend_join(cudaStream_t s, const CudaAttendGrad *g);  /* the parts, when there are several */
/* lse2, delta, tiles: before either. by_head: lse is (rows, heads, seq), as the library keeps it. */
void cuda_launch_attend_delta(cudaStream_t s, const CudaAttendGrad *g, bool by_head);

/* ---- attention over a KV cache (cache.cu) ---- */

/* Few tokens over many keys: a.last is needed, a.begin and a.lse are not used. parts: workspace (tokens, heads,
 * splits, dim + 2), when there are splits. */
void cuda_launch_attend_cache(cudaStream_t s, const CudaAttend *a, float *parts, int splits);

#ifdef __cplusplus
}
#endif

#endif
