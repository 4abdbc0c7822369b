/* sparse_kernels.h - the launchers of gated sparse attention, between sparse.c and sparse*.cu. As in kernels.h: they
 * queue and return; pointers are device memory. */
#ifndef BACKEND_CUDA_SPARSE_KERNELS_H
#define BACKEND_CUDA_SPARSE_KERNELS_H

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SPARSE_THREADS = 256 };

typedef struct CudaKeys { /* keys of one row: key s is numbers [col, ...) of row first + s*step */
    const void *data;
    Format format;    /* that of the activations, or int8 */
    int64_t stride;   /* numbers, int8: bytes, from row to row */
    int64_t scale_at; /* int8: byte of a row's scale */
    int64_t per_row;  /* rows of the tensor that a row of the batch (of the cache) has */
    int64_t step, first, col;
} CudaKeys;

typedef struct CudaSparse { /* what select, the loss and the report read */
    AttrSparse k;
    Format format; /* of index and qkv */
    const void *index, *qkv;
    CudaNumbers bias;                            /* (2J) */
    const int32_t *doc_begin, *positions, *rows; /* positions: with a cache */
    CudaKeys index_keys, keys;                   /* keys: of KV head 0; head g stands g*head_step behind it */
    int64_t head_step;
    int64_t tokens, span, stride; /* stride: numbers from row to row of tiles' scores */
    int blocks; /* that share the tokens; each has `rows_each` rows of span numbers in the workspace */
    float *workspace;
} CudaSparse;

void cuda_launch_gate(cudaStream_t s, CudaNumbers y, const void *x, const void *z, int64_t rows, int64_t cols,
                      int64_t gates, AttrGate a);
void cuda_launch_gate_grad(cudaStream_t s, Format f, void *dx, void *dz, const void *dy, const void *x, const void *z,
                           int64_t rows, int64_t cols, int64_t gates, AttrGate a);
void cuda_launch_mix(cudaStream_t s, CudaNumbers y, const void *a, const void *b, int64_t n, AttrMix by);
void cuda_launch_gate_report(cudaStream_t s, double *stat, CudaNumbers z, int64_t n, GateAct act, const float *beta);

void cuda_launch_index_put(cudaStream_t s, const CudaSparse *a, CudaNumbers cache, int64_t row_bytes, int64_t scale_at);
void cuda_launch_select(cudaStream_t s, const CudaSparse *a, int32_t *keys, int64_t most);
/* a->tokens of the rows are looked at: `each` of a row, `stride` apart. */
void cuda_launch_attend_report(cudaStream_t s, const CudaSparse *a, double *stat, double *parts, const int32_t *keys,
                               int64_t most, const float *beta, int64_t each, int64_t stride);

/* ---- tiles of pairs (mask.cu, index_tiles.cu) ---- */

enum { CUDA_INDEX_TILE = 64, CUDA_INDEX_DIM = 64, CUDA_INDEX_SUMS = 5 }; /* ir/sparse.h sizes workspaces by them */

typedef struct CudaMask {
    uint32_t *mask;      /* (tokens, words): bit s of a token says whether key s of its row counts */
    int words;           /* a multiple of 4 */
    const int32_t *list; /* (tokens, most), ascending, then -1; NULL: all keys from doc_begin to the token */
    int64_t most, tokens, seq;
    const int32_t *doc_begin;
    const float *weight; /* NULL: all tokens count */
} CudaMask;
void cuda_launch_mask(cudaStream_t s, const CudaMask *m);

/* Bytes of shared memory that blocks of index_tiles.cu and of index_scores.cu take. */
int cuda_index_tiles_shared(const AttrSparse *k);
int cuda_index_scores_shared(const AttrSparse *k);

/* Scores of the queries of `tiles` tiles from first_tile on against all keys they see: (tiles*64, stride) of the
 * workspace, ranks of 16 bits, behind a relu fp32; ranks of a few tokens behind a cache: (tokens, stride). Then the
 * choice among them; side: 64, of a few tokens 1. */
void cuda_launch_index_scores(cudaStream_t s, const CudaSparse *a, int64_t first_tile, int64_t tiles);
void cuda_launch_few_scores(cudaStream_t s, const CudaSparse *a, int64_t first, int64_t tokens);
void cuda_launch_select_ranked(cudaStream_t s, const CudaSparse *a, int32_t *keys, int64_t most, int64_t first_tile,
                               int64_t tiles, int side);
void cuda_launch_select_scored(cudaStream_t s, const CudaSparse *a, int32_t *keys, int64_t most, int64_t first_tile,
                               int64_t tiles);

typedef struct CudaSelected {
    AttrHeads h;
    Format format;
    const void *qkv;
    CudaKeys keys; /* of KV head 0; values of head g stand (kv_heads + g) * head_step behind it */
    int64_t head_step;
    const int32_t *list, *rows; /* (tokens, most); rows: which row of a cache */
    int64_t tokens, most;
    void *o;
    float *lse;           /* NULL: not wanted */
    const uint32_t *mask; /* gathered: (tokens, mask_words) */
    int mask_words, n_parts;
    float *parts; /* few: workspace (few, heads, n_parts, dim + 2) */
    int64_t few;  /* tokens of a launch */
} CudaSelected;
void cuda_launch_attend_selected(cudaStream_t s, const CudaSelected *a);

enum { CUDA_FEW_KEYS = 64, CUDA_FEW_GROUP = 8 }; /* as ir/sparse.h has them */
void cuda_launch_attend_few(cudaStream_t s, const CudaSelected *a, int64_t first);
int cuda_gathered_shared(const AttrHeads *h);
void cuda_launch_attend_gathered(cudaStream_t s, const CudaSelected *a);
/* a->o, a->lse: forward's. delta: workspace (tokens, heads). */
void cuda_launch_attend_selected_grad(cudaStream_t s, const CudaSelected *a, const void *d_o, void *d_qkv,
                                      float *delta);

typedef struct CudaGatheredGrad {
    CudaSelected s; /* o, lse: forward's; a mask */
    const void *d_o;
    void *d_qkv;
    float *sums; /* workspace (tokens, 2*G*D): of keys, then of values */
} CudaGatheredGrad;
int cuda_gathered_grad_shared(const AttrHeads *h);
void cuda_launch_attend_gathered_grad(cudaStream_t s, const CudaGatheredGrad *g);

typedef struct CudaIndexLoss {
    CudaSparse s;
    const float *lse, *weight;
    const int32_t *list; /* NULL: all that is seen */
    int64_t most;
    const float *divisor, *beta;
    double *stat;                  /* the loss */
    double *parts;                 /* workspace (tokens): its parts; NULL: the gradient alone is wanted */
    void *d_index;                 /* the gradient */
    CudaNumbers d_bias;            /* data NULL: not wanted */
    float *index_lse, *bias_parts; /* workspace (tokens), (tokens, 2J) */
    CudaKey key;
    /* tiles: a mask of the pairs; a row's sums are split over so many blocks */
    const uint32_t *mask;
    int mask_words, splits, key_splits;
    int64_t first_tile, band; /* query tiles of a launch */
    float *sums;              /* workspace (splits, tokens, 5) */
    float *w;                 /* workspace (tokens, J) */
    void *pairs;              /* workspace (band*64, seq padded): gradients of scores */
    float *grads, *key_grads; /* workspace (splits, band*64, J*(E+2)), (key_splits, tokens, E) */
} CudaIndexLoss;
void cuda_launch_index_loss(cudaStream_t s, const CudaIndexLoss *a);
void cuda_launch_index_loss_grad(cudaStream_t s, const CudaIndexLoss *a); /* fills parts where they are wanted */
void cuda_launch_index_loss_tiles(cudaStream_t s, const CudaIndexLoss *a); /* fills parts */
void cuda_launch_index_loss_sum(cudaStream_t s, const CudaIndexLoss *a);   /* and adds them up */
void cuda_launch_index_loss_grad_tiles(cudaStream_t s, const CudaIndexLoss *a);
/* The same of selections that are thin (index_gathered.cu); key_grads is (tokens, E) there, added to by atomics. */
int cuda_index_gathered_shared(const AttrSparse *k, bool grad); /* bytes of shared memory that its blocks take */
void cuda_launch_index_loss_gathered(cudaStream_t s, const CudaIndexLoss *a); /* fills parts */
void cuda_launch_index_loss_grad_gathered(cudaStream_t s, const CudaIndexLoss *a);

#ifdef __cplusplus
}
#endif
#endif
