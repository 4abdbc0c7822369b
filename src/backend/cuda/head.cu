/* head.cu - rows of logits: scored, and replaced by their gradient in place. Reference: score_row and
 * gradient_row of cpu/head.c.
 *
 *   lse = log sum_v e^logit_v;   logp = logit_label - lse (0 when label < 0);   entropy = lse - sum_v p_v logit_v
 *   logit_v becomes dlogp * ((v == label) - e^(logit_v - lse)), 0 for the whole row when label < 0
 * A logit here is the stored number times `scale` (1 / temperature), and so is what it becomes. The gradient of fp32
 * logits may be 16-bit numbers over the first half of their row: every logit that they cover has been read then.
 *
 * logits(rows, ld), rows aligned to 16 bytes. One block a row. Scoring reads the row once: each thread keeps a maximum
 * and sums relative to it, rescaled when it grows, merged in one order at the end. The first logits of a row that has
 * a gradient stay in shared memory, as many as leave room for another block. The gradient reads the others again,
 * backwards, so that what was read last is found in the second-level cache, and writes past that cache: 1 + 2 numbers
 * moved per logit, less what was kept or found. A row without a gradient is only written. */
#include "backend/cuda/ptx.cuh"
#include "backend/cuda/product_kernels.h"
#include "backend/cuda/vectors.cuh"

enum { THREADS = 768, WARPS = THREADS / WARP, BATCH = 2 /* packs of a thread whose gradient is computed at a time */ };
enum { KEPT_BYTES = 104 * 1024 };

extern __shared__ uint4 keep[]; /* a row's first packs */

/* PACK numbers that are not read again soon: stored past the second-level cache. */
template <int N, typename T> DEVICE void store_past(T *p, const float (&x)[N]) {
    uint4 v;
    store<N>((T *)&v, x);
    __stcs((uint4 *)p, v);
}

/* 16-bit logits carry fewer digits than the fast exponential, and lose nothing where a denormal becomes 0: __expf
 * spends three of its five instructions on those. */
template <typename T> DEVICE float exponential(float x) { return exp2_fast(x * LOG2_E); }
template <> DEVICE float exponential<float>(float x) { return expf(x); }

/* Of some of a row's logits: top, sum of e^(x-top), sum of (x-top) e^(x-top). Nothing yet: -inf, 0, 0. */
struct Score {
    float top, sum, weighed;
};

/* The sums of an empty score are 0. */
DEVICE float shift(float from, float to) {
    return from == -INFINITY ? 0.0f : from - to;
}

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

template <typename T> DEVICE Score merge_block(Score s) { /* every thread gets it */
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

template <typename T, bool ENTROPY> DEVICE Score score_row(const T *x, int n, int kept, float scale) {
    constexpr int N = PACK<T>;
    Score s = {-INFINITY, 0, 0};
    float v[N], one[1];
    int packs = n / N;
#pragma unroll 2
    for (int i = threadIdx.x; i < packs; i += THREADS) {
        uint4 q = ((const uint4 *)x)[i];
        if (i < kept) keep[i] = q;
        load<N>(v, (const T *)&q);
#pragma unroll
        for (int k = 0; k < N; k++) v[k] *= scale;
        add_logits<T, N, ENTROPY>(s, v);
    }
    for (int i = packs * N + threadIdx.x; i < n; i += THREADS) {
        one[0] = to_float(x[i]) * scale;
        add_logits<T, 1, ENTROPY>(s, one);
    }
    return merge_block<T>(s);
}

template <typename T> DEVICE void gradient_pack(T *to, uint4 q, float g, float lse, float scale) {
    constexpr int N = PACK<T>;
    float v[N];
    load<N>(v, (const T *)&q);
#pragma unroll
    for (int k = 0; k < N; k++) v[k] = -g * exponential<T>(v[k] * scale - lse);
    store_past<N>(to, v);
}

/* Every logit as if it were not the label's. A thread kept the packs itself that it takes from shared memory. */
template <typename T> DEVICE void gradient_row(T *x, int n, int kept, float g, float lse, float scale) {
    constexpr int N = PACK<T>;
    int packs = n / N;
    for (int i = packs * N + threadIdx.x; i < n; i += THREADS)
        x[i] = from_float<T>(-g * exponential<T>(to_float(x[i]) * scale - lse));
    for (int i = packs - 1 - (int)threadIdx.x; i >= kept; i -= BATCH * THREADS) {
        uint4 q[BATCH];
#pragma unroll
        for (int b = 0; b < BATCH; b++)
            if (i - b * THREADS >= kept) q[b] = ((const uint4 *)x)[i - b * THREADS];
#pragma unroll
        for (int b = 0; b < BATCH; b++)
            if (i - b * THREADS >= kept) gradient_pack<T>(x + (int64_t)(i - b * THREADS) * N, q[b], g, lse, scale);
    }
    for (int i = threadIdx.x; i < kept; i += THREADS) gradient_pack<T>(x + (int64_t)i * N, keep[i], g, lse, scale);
}

/* The same of fp32 logits as numbers of G, in their place. The numbers of a tile are all read before one is written,
 * and they cover only logits of this tile and of those before it. */
template <typename G> DEVICE void gradient_row_narrow(float *x, int n, float g, float lse, float scale) {
    constexpr int N = PACK<G>;
    G *to = (G *)x;
    int packs = n / N, i = packs * N + threadIdx.x;
    for (int first = 0; first < packs; first += THREADS) {
        float v[N];
        int at = first + threadIdx.x;
        if (at < packs) load<N>(v, x + (int64_t)at * N);
        __syncthreads();
        if (at >= packs) continue;
#pragma unroll
        for (int k = 0; k < N; k++) v[k] = -g * expf(v[k] * scale - lse);
        store_past<N>(to + (int64_t)at * N, v);
    }
    float last = i < n ? x[i] : 0.0f; /* fewer than a pack */
    __syncthreads();
    if (i < n) to[i] = from_float<G>(-g * expf(last * scale - lse));
}

template <typename T> DEVICE void clear_row(T *x, int n) {
    constexpr int N = PACK<T>;
    const float zero[N] = {};
    int packs = n / N;
    for (int i = threadIdx.x; i < packs; i += THREADS) store_past<N>(x + (int64_t)i * N, zero);
    for (int i = packs * N + threadIdx.x; i < n; i += THREADS) x[i] = from_float<T>(0.0f);
}

/* What is said about a row, by one thread: in double, as the CPU does, and once, since some cards are slow at it. */
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

template <typename T, typename G> DEVICE void turn_row(T *x, int n, int kept, float g, float lse, float scale) {
    if constexpr (std::is_same_v<T, G>)
        gradient_row<T>(x, n, kept, g, lse, scale);
    else
        gradient_row_narrow<G>(x, n, g, lse, scale);
}

/* T: of the logits, G: of their gradient. */
template <typename T, typename G, bool SCORE, bool ENTROPY, bool TURN> __global__ void __launch_bounds__(THREADS)
    head_rows_kernel(const __grid_constant__ CudaHeadRows h, int kept) {
    __shared__ float lse;
    int64_t row = blockIdx.x;
    T *x = (T *)h.logits.data + row * h.ld;
    int label = h.labels[row];
    bool scored = label >= 0 && label < h.vocabulary;
    float logit = scored ? to_float(x[label]) * h.scale : 0.0f; /* read before the gradient replaces it */
    if (SCORE) {
        Score s = score_row<T, ENTROPY>(x, h.vocabulary, kept, h.scale);
        if (threadIdx.x == 0) lse = tell_row<ENTROPY>(h, row, logit, label, s);
    } else if (threadIdx.x == 0) {
        lse = h.lse[row];
    }
    if (!TURN) return;
    __syncthreads();
    float g = label < 0 ? 0.0f : h.dlogp[row] * h.scale;
    if (g == 0.0f) {
        clear_row<G>((G *)x, h.vocabulary);
        return;
    }
    turn_row<T, G>(x, h.vocabulary, kept, g, lse, h.scale);
    __syncthreads();
    if (threadIdx.x == 0 && scored) ((G *)x)[label] = from_float<G>(g * (1.0f - exponential<T>(logit - lse)));
}

/* kept: packs of a row that stay in shared memory, where the gradient has their format. */
template <typename T, typename G> static void score_and_gradient(cudaStream_t s, const CudaHeadRows *h) {
    auto kernel = head_rows_kernel<T, G, true, false, true>;
    int packs = h->vocabulary / PACK<T>, kept = packs < KEPT_BYTES / 16 ? packs : KEPT_BYTES / 16;
    if (!std::is_same_v<T, G>) kept = 0;
    if (kept && cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, KEPT_BYTES) != cudaSuccess) {
        cudaGetLastError(); /* a card with less: everything is read again */
        kept = 0;
    }
    kernel<<<(unsigned)h->rows, THREADS, kept * 16, s>>>(*h, kept);
}

template <typename T, typename G> static void launch(cudaStream_t s, const CudaHeadRows *h) {
    unsigned rows = (unsigned)h->rows;
    if (!h->logp)
        head_rows_kernel<T, G, false, false, true><<<rows, THREADS, 0, s>>>(*h, 0);
    else if (h->dlogp)
        score_and_gradient<T, G>(s, h);
    else if (h->entropy)
        head_rows_kernel<T, T, true, true, false><<<rows, THREADS, 0, s>>>(*h, 0);
    else
        head_rows_kernel<T, T, true, false, false><<<rows, THREADS, 0, s>>>(*h, 0);
}

extern "C" void cuda_launch_head_rows(cudaStream_t s, const CudaHeadRows *h) {
    with_real(h->gradient, [&](auto g) {
        using G = decltype(g);
        if (h->logits.format == FMT_F32)
            launch<float, G>(s, h);
        else
            launch<G, G>(s, h);
    });
}
