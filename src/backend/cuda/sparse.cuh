/* sparse.cuh - what the kernels of sparse attention share: keys where they stand, an indexer's scores, the k-th best
 * of a row, dense attention of one token. Reference: cpu/select.c, cpu/report.c. */
#ifndef BACKEND_CUDA_SPARSE_CUH
#define BACKEND_CUDA_SPARSE_CUH

#include "backend/cuda/sparse_kernels.h"
#include "backend/cuda/vectors.cuh"

enum { SPARSE_WARPS = SPARSE_THREADS / WARP, HEADS_AT_ONCE = 4 };

/* ---- keys ---- */

template <typename K>
struct KeyRow { /* one key: its numbers and what they are multiplied by */
    const K *at;
    float scale;
    DEVICE float operator[](int c) const { return to_float(at[c]) * scale; }
};
template <>
struct KeyRow<int8_t> {
    const int8_t *at;
    float scale;
    DEVICE float operator[](int c) const { return (float)at[c] * scale; }
};

/* Key s of row `row`; head: how many rows or columns behind the first. */
template <typename K>
DEVICE KeyRow<K> key_of(const CudaKeys &k, int64_t row, int64_t s, int64_t head) {
    int64_t at = row * k.per_row + k.first + s * k.step;
    if constexpr (sizeof(K) == 1) { /* int8: a head a row */
        const int8_t *p = (const int8_t *)k.data + (at + head) * k.stride;
        return {p, *(const float *)(p + k.scale_at)};
    } else {
        return {(const K *)k.data + at * k.stride + k.col + head, 1.0f};
    }
}

/* ---- what a token sees, and its index queries ---- */

struct Seen {
    int begin, n;
    int64_t row; /* of the batch, or of the cache */
};

DEVICE Seen seen_by(const CudaSparse &a, int64_t token) {
    int64_t row = token / a.k.heads.seq;
    if (a.positions) return {0, a.positions[token] + 1, a.rows ? a.rows[row] : row};
    int begin = max(a.doc_begin[token], 0);
    return {begin, (int)(token % a.k.heads.seq) + 1 - begin, row};
}

DEVICE float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

DEVICE float small_number(CudaNumbers n, int i) {
    return n.format == FMT_F32    ? ((const float *)n.data)[i]
           : n.format == FMT_BF16 ? to_float(((const Bf16 *)n.data)[i])
                                  : to_float(((const F16 *)n.data)[i]);
}

/* In shared memory: q (heads rounded up, E) scaled, weights and score biases (heads rounded up); what is behind J is
 * zero. */
struct IndexQuery {
    float *q, *w, *bias;
    int heads, padded, dim;
};

DEVICE IndexQuery index_query_at(float *shared, const AttrSparse &k) {
    int padded = (k.index_heads + HEADS_AT_ONCE - 1) / HEADS_AT_ONCE * HEADS_AT_ONCE;
    return {shared,     shared + padded * k.index_dim, shared + padded * (k.index_dim + 1), k.index_heads, padded,
            k.index_dim};
}

template <typename T>
DEVICE void load_index_query(const IndexQuery &x, const CudaSparse &a, int64_t token) {
    int64_t width = (int64_t)x.heads * x.dim + x.dim + x.heads;
    const T *from = (const T *)a.index + token * width;
    float scale = rsqrtf((float)x.dim);
    for (int i = threadIdx.x; i < x.padded * x.dim; i += blockDim.x)
        x.q[i] = i < x.heads * x.dim ? to_float(from[i]) * scale : 0.0f;
    for (int j = threadIdx.x; j < x.padded; j += blockDim.x) {
        bool there = j < x.heads;
        x.w[j] = there ? sigmoid(to_float(from[x.heads * x.dim + x.dim + j]) + small_number(a.bias, j)) : 0.0f;
        x.bias[j] = there ? small_number(a.bias, x.heads + j) : 0.0f;
    }
}

DEVICE float index_act(float a, bool relu) { return relu ? fmaxf(a, 0.0f) : sigmoid(a); }

/* What heads [j, j+4) give a key before their activation. */
template <typename K>
DEVICE void index_heads(float (&a)[HEADS_AT_ONCE], const IndexQuery &x, const KeyRow<K> &key, int j) {
#pragma unroll
    for (int i = 0; i < HEADS_AT_ONCE; i++) a[i] = x.bias[j + i];
    for (int e = 0; e < x.dim; e++) {
        float v = key[e];
#pragma unroll
        for (int i = 0; i < HEADS_AT_ONCE; i++) a[i] += x.q[(j + i) * x.dim + e] * v;
    }
}

template <typename K>
DEVICE float index_score(const IndexQuery &x, const KeyRow<K> &key, bool relu) {
    float sum = 0, a[HEADS_AT_ONCE];
    for (int j = 0; j < x.padded; j += HEADS_AT_ONCE) {
        index_heads(a, x, key, j);
#pragma unroll
        for (int i = 0; i < HEADS_AT_ONCE; i++) sum += x.w[j + i] * index_act(a[i], relu);
    }
    return sum;
}

/* The largest digit with `rest` or more numbers at or above it, and how many are above it. By a warp, eight digits a
 * lane from the top. */
DEVICE void find_digit(const int *count, int rest, int larger, uint32_t *found) {
    int lane = threadIdx.x, mine = 0;
    for (int i = 0; i < 8; i++) mine += count[255 - lane * 8 - i];
    int upto = mine; /* of this lane's digits and all above */
    for (int d = 1; d < WARP; d *= 2) {
        int more = __shfl_up_sync(~0u, upto, d);
        if (lane >= d) upto += more;
    }
    int above = upto - mine;
    if (above >= rest || upto < rest) return; /* it is another lane's */
    int digit = 255 - lane * 8;
    while (above + count[digit] < rest) above += count[digit--];
    found[0] = (uint32_t)digit, found[1] = (uint32_t)(larger + above);
}

/* The word of the k-th largest of x[0..n), and how many are larger; count: 256 words of shared memory, found: 2. */
DEVICE uint32_t kth_largest(const float *x, int n, int k, int *above, int *count, uint32_t *found) {
    uint32_t prefix = 0, mask = 0;
    int larger = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        for (int i = threadIdx.x; i < 256; i += blockDim.x) count[i] = 0;
        __syncthreads();
        for (int i = threadIdx.x; i < n; i += blockDim.x) {
            uint32_t u = draw_order(x[i]);
            if ((u & mask) == prefix) atomicAdd(&count[u >> shift & 255], 1);
        }
        __syncthreads();
        if (threadIdx.x < WARP) find_digit(count, k - larger, larger, found);
        __syncthreads();
        prefix |= found[0] << shift;
        larger = (int)found[1];
        mask |= 0xffu << shift;
        __syncthreads();
    }
    *above = larger;
    return prefix;
}

/* sparse_hash of ir/sparse.h. */
DEVICE uint32_t drawn_hash(uint32_t x) {
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

/* sparse_drawn of ir/sparse.h, as a rank. */
DEVICE uint32_t drawn_rank(const AttrSparse &k, int n, int i) {
    uint32_t own = drawn_hash((uint32_t)(k.key ^ k.key >> 32) + (uint32_t)i * 0x9e3779b9u);
    uint64_t step = (1ull << 31) - k.kept, phase = k.kept ? own >> 1 : 0;
    return drawn_hash(own ^ (uint32_t)((n * step + phase) >> 31) * 0x85ebca6bu) >> 16;
}

/* ---- dense attention of one token ---- */

/* row[0..n) = the sum over heads of its attention to the keys it sees; s: as many numbers of scratch. q: shared (D). */
template <typename T, typename K>
DEVICE void dense_row(float *row, float *s, float *q, const CudaSparse &a, int64_t token, Seen seen, double *part,
                      float *part_max) {
    const AttrHeads &h = a.k.heads;
    int dim = h.head_dim, group = h.heads / h.kv_heads;
    int64_t width = (int64_t)(h.heads + 2 * h.kv_heads) * dim;
    for (int i = threadIdx.x; i < seen.n; i += blockDim.x) row[i] = 0;
    for (int head = 0; head < h.heads; head++) {
        __syncthreads();
        for (int d = threadIdx.x; d < dim; d += blockDim.x)
            q[d] = to_float(((const T *)a.qkv)[token * width + (int64_t)head * dim + d]);
        __syncthreads();
        float top = -INFINITY;
        for (int i = threadIdx.x; i < seen.n; i += blockDim.x) {
            KeyRow<K> key = key_of<K>(a.keys, seen.row, seen.begin + i, head / group * a.head_step);
            float dot = 0;
            for (int d = 0; d < dim; d++) dot += q[d] * key[d];
            s[i] = dot * h.scale;
            top = fmaxf(top, s[i]);
        }
        top = max_of_block(top, part_max);
        double sum = 0;
        for (int i = threadIdx.x; i < seen.n; i += blockDim.x) s[i] = expf(s[i] - top), sum += s[i];
        sum = total_of_block(sum, part);
        for (int i = threadIdx.x; i < seen.n; i += blockDim.x) row[i] += (float)(s[i] / sum);
    }
    __syncthreads();
}

/* Calls fn with the types of activations and of keys. */
template <typename Fn>
static inline void with_keys(Format f, Format keys, Fn fn) {
    with_real(f, [&](auto t) {
        if (keys == FMT_INT8)
            fn(t, int8_t());
        else
            fn(t, t);
    });
}

#endif
