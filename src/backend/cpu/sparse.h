/* sparse.h - what the kernels of sparse attention share: where keys stand, and an indexer's scores. */
#ifndef BACKEND_CPU_SPARSE_H
#define BACKEND_CPU_SPARSE_H

#include "backend/cpu/cpu.h"
#include "backend/cpu/rows.h"
#include "ir/sparse.h"

/* Key s is `width` numbers of a row of a tensor: row + s*step, from column col on. */
typedef struct Keys {
    Operand from;
    int64_t row, step, col, width;
} Keys;

static inline void keys_load(float *dst, const Keys *k, int64_t s) {
    rows_load(dst, k->from.data, k->from.t, k->row + s * k->step, k->col, k->width);
}

/* Keys list[0..n), or where there is no list those from `first` on, side by side. */
static inline void keys_gather(float *dst, const Keys *k, const int32_t *list, int64_t first, int64_t n) {
    for (int64_t i = 0; i < n; i++) keys_load(dst + i * k->width, k, list ? list[first + i] : first + i);
}

/* Of row `row` (of a batch, or of a cache where there is one): KV head g's keys (values: g + kv_heads), the index
 * keys. */
Keys sparse_heads(const AttrHeads *h, Operand qkv, Operand cache, int64_t row, int64_t g);
Keys sparse_index_keys(const AttrSparse *a, Operand index, Operand cache, int64_t row);

/* to[i] = sigmoid(x[i] + bias), or its relu. In place. */
void sparse_act(float *x, float bias, bool relu, int64_t n);
/* Weights of the index heads of one token: sigmoid(w + bias). */
void sparse_weights(float *w, const AttrSparse *a, Operand index, const float *bias, int64_t token);

/* The attention that a token's heads would give keys [begin, end) of its row, summed over heads: row[begin..end).
 * Scratch: sparse_dense_numbers. */
void sparse_dense_row(float *row, const AttrHeads *h, Operand qkv, Operand cache, int64_t cache_row, int64_t token,
                      int64_t begin, int64_t end, float *scratch);
/* The k-th largest of n numbers in their order as words (ir/sampling.h); *above: how many are larger. */
uint32_t sparse_kth_largest(const uint32_t *x, int64_t n, int64_t k, int64_t *above);

static inline int64_t sparse_count(const int32_t *list, int64_t most) { /* keys of a selection */
    int64_t n = 0;
    while (n < most && list[n] >= 0) n++;
    return n;
}

#endif
