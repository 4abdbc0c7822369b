/* head.cu - rows of logits: scored, and turned into their gradient where they stand. Reference: score_row and
 * turn_row of cpu/head.c.
 *
 *   lse = log sum_v e^logit_v;   logp = logit_label - lse (0 when label < 0);   entropy = lse - sum_v p_v logit_v
 *   logit_v becomes dlogp * ((v == label) - e^(logit_v - lse)), 0 for the whole row when label < 0
 *
 * logits(rows, ld), rows aligned to 16 bytes. From sm_90 on, a row of 16-bit logits is held by a cluster of BLOCKS blocks, PACKS
 * packs in the registers of each thread: scored and turned, it is read once and written once, 2 numbers moved per logit.
 *
 * Elsewhere one block of THREADS a row. Scoring reads the row once: each thread keeps a maximum and sums relative to it,
 * rescaled when it grows, merged in one order at the end. Turning reads it again, backwards, so that what was
 * read last is found in the second-level cache, and writes it past that cache: 1 + 2 numbers moved per logit, less what
 * was found. A row without a gradient is only written. */
#include "backend/cuda/chain.cuh"
#include "backend/cuda/cluster.cuh"
#include "backend/cuda/product_kernels.h"
#include "backend/cuda/vectors.cuh"

enum { THREADS = 512, BATCH = 2 /* packs of a thread that are turned at a time */ };
enum { BLOCKS = 8, HOLDERS = 512, MOST_PACKS = 5 }; /* a row in registers: blocks, threads of each, packs of each */

/* PACK numbers that nobody reads soon. */
template <int N, typename T> DEVICE void store_past(T *p, const float (&x)[N]) {
    uint4 v;
    store<N>((T *)&v, x);
    __stcs((uint4 *)p, v);
}

/* 16-bit logits carry fewer digits than the fast exponential. */
template <typename T> DEVICE float exponential(float x) { return __expf(x); }
template <> DEVICE float exponential<float>(float x) { return expf(x); }

/* Of some of a row's logits: top, sum of e^(x-top), sum of (x-top) e^(x-top). Nothing yet: -inf, 0, 0. */
struct Score {
    float top, sum, weighed;
};

DEVICE float shift(float from, float to) {
    return from == -INFINITY ? 0.0f : from - to;
} /* an empty score's sums are 0 */

template <typename T> DEVICE Score merge(Score a, Score b) {
    Score m = {fmaxf(a.top, b.top), 0, 0};
    float da = shift(a.top, m.top), db = shift(b.top, m.top), ea = exponential<T>(da), eb = exponential<T>(db);
    m.sum = ea * a.sum + eb * b.sum;
    m.weighed = ea * (a.weighed + da * a.sum) + eb * (b.weighed + db * b.sum);
    return m;
}

template <typename T, int N, bool ENTROPY> DEVICE void add_logits(Score &s, const float (&x)[N]) {
    float top = x[0];
#pragma unroll
    for (int k = 1; k < N; k++) top = fmaxf(top, x[k]);
    if (top > s.top) {
        float d = shift(s.top, top), e = exponential<T>(d);
        if (ENTROPY) s.weighed = e * (s.weighed + d * s.sum);
        s.sum *= e;
        s.top = top;
    }
    float base = s.top == -INFINITY ? 0.0f : s.top; /* e^-inf is 0, e^(-inf + inf) would not be a number */
#pragma unroll
    for (int k = 0; k < N; k++) {
        float d = x[k] - base, e = exponential<T>(d);
        s.sum += e;
        if (ENTROPY) s.weighed += e > 0.0f ? e * d : 0.0f;
    }
}

template <typename T, int WARPS> DEVICE Score merge_block(Score s) { /* every thread gets it */
    __shared__ Score part[WARPS];
#pragma unroll
    for (int d = WARP / 2; d; d /= 2) {
        Score other = {__shfl_xor_sync(~0u, s.top, d), __shfl_xor_sync(~0u, s.sum, d),
                       __shfl_xor_sync(~0u, s.weighed, d)};
        s = threadIdx.x & d ? merge<T>(other, s) : merge<T>(s, other); /* the lower lane first, on both sides */
    }
    if (threadIdx.x % WARP == 0) part[threadIdx.x / WARP] = s;
    __syncthreads();
    s = part[0];
    for (int i = 1; i < WARPS; i++) s = merge<T>(s, part[i]);
    return s;
}

template <typename T, bool ENTROPY> DEVICE Score score_row(const T *x, int n) {
    constexpr int N = PACK<T>;
    Score s = {-INFINITY, 0, 0};
    float v[N], one[1];
    int packs = n / N;
#pragma unroll 2
    for (int i = threadIdx.x; i < packs; i += THREADS) {
        load<N>(v, x + (int64_t)i * N);
        add_logits<T, N, ENTROPY>(s, v);
    }
    for (int i = packs * N + threadIdx.x; i < n; i += THREADS) {
        one[0] = to_float(x[i]);
        add_logits<T, 1, ENTROPY>(s, one);
    }
    return merge_block<T, THREADS / WARP>(s);
}

/* Every logit as if it were not the label's. */
template <typename T> DEVICE void turn_row(T *x, int n, float g, float lse) {
    constexpr int N = PACK<T>;
    float v[N];
    int packs = n / N;
    for (int i = packs * N + threadIdx.x; i < n; i += THREADS)
        x[i] = from_float<T>(-g * exponential<T>(to_float(x[i]) - lse));
    for (int i = packs - 1 - (int)threadIdx.x; i >= 0; i -= BATCH * THREADS) {
        uint4 q[BATCH];
#pragma unroll
        for (int b = 0; b < BATCH; b++)
            if (i >= b * THREADS) q[b] = ((const uint4 *)x)[i - b * THREADS];
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            if (i < b * THREADS) continue;
            load<N>(v, (const T *)&q[b]);
#pragma unroll
            for (int k = 0; k < N; k++) v[k] = -g * exponential<T>(v[k] - lse);
            store_past<N>(x + (int64_t)(i - b * THREADS) * N, v);
        }
    }
}

template <typename T> DEVICE void clear_row(T *x, int n) {
    constexpr int N = PACK<T>;
    const float zero[N] = {};
    int packs = n / N;
    for (int i = threadIdx.x; i < packs; i += THREADS) store_past<N>(x + (int64_t)i * N, zero);
    for (int i = packs * N + threadIdx.x; i < n; i += THREADS) x[i] = from_float<T>(0.0f);
}

/* What is said about a row, by one thread: in double, as the CPU does, and once, since some cards are slow at it.
 */
template <bool ENTROPY> DEVICE float tell_row(const CudaHeadRows &h, int64_t row, float logit, int label, Score s) {
    double log_sum = log((double)s.sum), lse = (double)s.top + log_sum;
    float logp =
        label < h.vocabulary ? 0.0f : NAN; /* a label beyond the vocabulary: not a number, so that it is found */
    if (label >= 0 && label < h.vocabulary) logp = (float)((double)logit - lse);
    h.logp[row] = logp;
    h.lse[row] = (float)lse;
    if (ENTROPY) h.entropy[row] = (float)(log_sum - (double)s.weighed / (double)s.sum);
    return (float)lse;
}

template <typename T, bool SCORE, bool ENTROPY, bool TURN> __global__ void __launch_bounds__(THREADS)
    head_rows_kernel(const __grid_constant__ CudaHeadRows h) {
    __shared__ float lse;
    int64_t row = blockIdx.x;
    T *x = (T *)h.logits.data + row * h.ld;
    int label = h.labels[row];
    bool scored = label >= 0 && label < h.vocabulary;
    float logit = scored ? to_float(x[label]) : 0.0f; /* read before it is turned */
    if (SCORE) {
        Score s = score_row<T, ENTROPY>(x, h.vocabulary);
        if (threadIdx.x == 0) lse = tell_row<ENTROPY>(h, row, logit, label, s);
    } else if (threadIdx.x == 0) {
        lse = h.lse[row];
    }
    if (!TURN) return;
    __syncthreads();
    float g = label < 0 ? 0.0f : h.dlogp[row];
    if (g == 0.0f) {
        clear_row<T>(x, h.vocabulary);
        return;
    }
    turn_row<T>(x, h.vocabulary, g, lse);
    __syncthreads();
    if (threadIdx.x == 0 && scored) x[label] = from_float<T>(g * (1.0f - exponential<T>(logit - lse)));
}

/* ---- a row in registers ---- */

/* Packs first, first + BLOCKS * HOLDERS, ... of a row of n; what is beyond it is -inf, which scores and turns to nothing. */
template <typename T, int PACKS> DEVICE void hold(uint4 (&q)[PACKS], const T *x, int first, int n) {
    constexpr int N = PACK<T>;
    const uint32_t low = std::is_same<T, Bf16>::value ? 0xff80u : 0xfc00u, none = low << 16 | low; /* two -inf */
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        int at = (first + p * BLOCKS * HOLDERS) * N;
        q[p] = at < n ? *(const uint4 *)(x + at) : make_uint4(none, none, none, none);
        if (at < n && at + N > n) {
            uint32_t *w = (uint32_t *)&q[p];
#pragma unroll
            for (int k = 0; k < N; k++)
                if (at + k >= n) w[k / 2] = k % 2 ? (w[k / 2] & 0xffffu) | low << 16 : (w[k / 2] & ~0xffffu) | low;
        }
    }
}

template <typename T, bool ENTROPY, int PACKS> DEVICE Score score_held(const uint4 (&q)[PACKS]) {
    constexpr int N = PACK<T>;
    Score s = {-INFINITY, 0, 0};
    float v[N];
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        load<N>(v, (const T *)&q[p]);
        add_logits<T, N, ENTROPY>(s, v);
    }
    return merge_block<T, HOLDERS / WARP>(s);
}

/* Every block of the cluster gets the row's, merged in the blocks' order. */
template <typename T> DEVICE Score merge_cluster(Score mine, int rank) {
    __shared__ Score part[BLOCKS];
    if (threadIdx.x < BLOCKS) *cluster_place(&part[rank], (int)threadIdx.x) = mine;
    cluster_wait();
    Score s = part[0];
    for (int i = 1; i < BLOCKS; i++) s = merge<T>(s, part[i]);
    return s;
}

template <typename T, int PACKS> DEVICE void turn_held(T *x, const uint4 (&q)[PACKS], int first, int n, float g, float lse) {
    constexpr int N = PACK<T>;
    float v[N];
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        int at = (first + p * BLOCKS * HOLDERS) * N;
        if (at >= n) continue;
        load<N>(v, (const T *)&q[p]);
#pragma unroll
        for (int k = 0; k < N; k++) v[k] = g == 0.0f ? 0.0f : -g * exponential<T>(v[k] - lse);
        store_past<N>(x + at, v);
    }
}

template <typename T, bool SCORE, bool ENTROPY, bool TURN, int PACKS> __global__ void __launch_bounds__(HOLDERS, 2)
    head_held_kernel(const __grid_constant__ CudaHeadRows h) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    __shared__ float lse;
    int64_t row = blockIdx.x / BLOCKS;
    int rank = (int)(blockIdx.x % BLOCKS), first = rank * HOLDERS + (int)threadIdx.x, label = h.labels[row];
    T *x = (T *)h.logits.data + row * h.ld;
    bool scored = label >= 0 && label < h.vocabulary;
    uint4 q[PACKS];
    if (SCORE) cluster_arrive();
    chain_wait();
    hold<T, PACKS>(q, x, first, h.vocabulary);
    float logit = scored ? to_float(x[label]) : 0.0f; /* before anybody turns it */
    if (SCORE) {
        Score s = score_held<T, ENTROPY, PACKS>(q);
        cluster_enter();
        s = merge_cluster<T>(s, rank);
        if (threadIdx.x == 0) lse = rank ? (float)((double)s.top + log((double)s.sum)) : tell_row<ENTROPY>(h, row, logit, label, s);
    } else if (threadIdx.x == 0) {
        lse = h.lse[row];
    }
    if (!TURN) return;
    __syncthreads();
    float g = label < 0 ? 0.0f : h.dlogp[row];
    turn_held<T, PACKS>(x, q, first, h.vocabulary, g, lse);
    bool mine = scored && (label / PACK<T>) % (BLOCKS * HOLDERS) == first;
    if (mine && g != 0.0f) x[label] = from_float<T>(g * (1.0f - exponential<T>(logit - lse)));
#endif
}

template <typename T, int PACKS> static bool launch_held(cudaStream_t s, const CudaHeadRows *h) {
    auto kernel = head_held_kernel<T, true, false, true, PACKS>;
    if (!h->logp) kernel = head_held_kernel<T, false, false, true, PACKS>;
    else if (h->entropy) kernel = head_held_kernel<T, true, true, false, PACKS>;
    else if (!h->dlogp) kernel = head_held_kernel<T, true, false, false, PACKS>;
    cudaFuncAttributes code;
    if (cudaFuncGetAttributes(&code, kernel) != cudaSuccess || code.ptxVersion < 90) return false;
    cuda_launch_chained_cluster(s, kernel, (unsigned)(h->rows * BLOCKS), HOLDERS, 0, BLOCKS, *h);
    return true;
}

/* Which one serves depends on card, format and vocabulary alone: score and gradient of a row see the same lse. */
template <typename T> static bool held(cudaStream_t s, const CudaHeadRows *h) {
    if constexpr (sizeof(T) == 2) {
        int packs = (h->vocabulary + BLOCKS * HOLDERS * PACK<T> - 1) / (BLOCKS * HOLDERS * PACK<T>);
        if (packs <= 1) return launch_held<T, 1>(s, h);
        if (packs <= MOST_PACKS) return launch_held<T, MOST_PACKS>(s, h);
    }
    return false;
}

extern "C" void cuda_launch_head_rows(cudaStream_t s, const CudaHeadRows *h) {
    unsigned rows = (unsigned)h->rows;
    with_real(h->logits.format, [&](auto t) {
        using T = decltype(t);
        if (held<T>(s, h)) return;
        if (!h->logp)
            head_rows_kernel<T, false, false, true><<<rows, THREADS, 0, s>>>(*h);
        else if (h->dlogp)
            head_rows_kernel<T, true, false, true><<<rows, THREADS, 0, s>>>(*h);
        else if (h->entropy)
            head_rows_kernel<T, true, true, false><<<rows, THREADS, 0, s>>>(*h);
        else
            head_rows_kernel<T, true, false, false><<<rows, THREADS, 0, s>>>(*h);
    });
}
