/* head_terms.cu - rows of logits scored by the terms of a loss, and replaced by the gradient in place. Reference:
 * cpu/head_terms.c; the contract stands in ir/op_token.c, "With terms".
 *
 *   value = LABEL log p(label) + TARGET sum_v q_v log p_v + ENTROPY H(q) - MARGIN (max - mean)^2
 *   logit_v becomes g (LABEL ((v == label) - p_v) + TARGET (q_v - p_v) - 2 MARGIN (max - mean) ((v == best) - 1/V))
 *
 * One block a row. A row is read twice to be scored (its largest number first) and once for the gradient, and so is the
 * target's; what was just read is found in the second-level cache. A thread sums its numbers in fp32, a block its
 * threads in fp64 and in one order. */
#include "backend/cuda/product_kernels.h"
#include "backend/cuda/vectors.cuh"

enum { THREADS = 512 };

struct Shared {
    double sums[WARP];
    float tops[WARP];
};

/* A row as fp32 logits; `lowered` is subtracted at the label. */
template <typename T> struct Logits {
    const T *x;
    float scale, lowered;
    int label;
    DEVICE float operator[](int i) const {
        float v = to_float(x[i]) * scale;
        return i == label ? v - lowered : v;
    }
};

template <typename T> DEVICE float top_of(const Logits<T> &x, int n, Shared *s) {
    float top = -INFINITY;
    for (int i = threadIdx.x; i < n; i += THREADS) top = fmaxf(top, x[i]);
    return max_of_block(top, s->tops);
}

template <typename T> DEVICE double log_sum(const Logits<T> &x, float top, int n, Shared *s) {
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += THREADS) sum += expf(x[i] - top);
    return log(total_of_block((double)sum, s->sums));
}

struct Target { /* sums over its distribution q */
    float top;
    double log_sum;
    double cross; /* sum of q (x - the largest x) */
    double own;   /* sum of q log q */
};

template <typename T>
DEVICE Target target_of(const Logits<T> &t, const Logits<T> &x, float x_top, int n, Shared *s) {
    Target r;
    float sum = 0, cross = 0, own = 0;
    r.top = top_of(t, n, s);
    for (int i = threadIdx.x; i < n; i += THREADS) {
        float off = t[i] - r.top, e = expf(off);
        sum += e;
        if (e > 0.0f) cross += e * (x[i] - x_top), own += e * off;
    }
    double all = total_of_block((double)sum, s->sums);
    r.log_sum = log(all);
    r.cross = total_of_block((double)cross, s->sums) / all;
    r.own = total_of_block((double)own, s->sums) / all - r.log_sum;
    return r;
}

/* The first of the largest. */
template <typename T> DEVICE int best_of(const Logits<T> &x, float top, int n, int *behind) {
    if (threadIdx.x == 0) *behind = 0;
    __syncthreads();
    int first = n;
    for (int i = n - 1 - (int)threadIdx.x; i >= 0; i -= THREADS)
        if (x[i] == top) first = i;
    if (first < n) atomicMax(behind, n - first); /* of whole numbers: the order does not count */
    __syncthreads();
    return n - *behind;
}

template <typename T> DEVICE double mean_of(const Logits<T> &x, int n, Shared *s) {
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += THREADS) sum += x[i];
    return total_of_block((double)sum, s->sums) / n;
}

template <typename T> __global__ void __launch_bounds__(THREADS)
    head_terms_kernel(const __grid_constant__ CudaHeadTerms h) {
    __shared__ Shared shared;
    __shared__ int behind_best;
    int64_t row = blockIdx.x;
    int n = h.rows.vocabulary, label = h.rows.labels[row], best = -1;
    bool scored = label >= 0 && label < n;
    float terms[HEAD_TERMS];
#pragma unroll
    for (int k = 0; k < HEAD_TERMS; k++) terms[k] = scored ? h.terms[row * HEAD_TERMS + k] : 0.0f;
    T *to = (T *)h.rows.logits.data + row * h.rows.ld;
    Logits<T> x = {to, h.rows.scale, 0.0f, -1};
    Logits<T> t = {(const T *)h.target + row * h.rows.ld, h.rows.scale, terms[TERM_LOWERED], label};
    bool target = h.target && (terms[TERM_TARGET] != 0.0f || terms[TERM_ENTROPY] != 0.0f);
    float top = top_of(x, n, &shared);
    double lse = h.rows.logp ? top + log_sum(x, top, n, &shared) : (double)h.rows.lse[row], margin = 0;
    Target q = {};
    if (target) q = target_of(t, x, top, n, &shared);
    if (terms[TERM_MARGIN] != 0.0f) {
        best = best_of(x, top, n, &behind_best);
        margin = top - mean_of(x, n, &shared);
    }
    float logit = scored ? x[label] : 0.0f;
    __syncthreads(); /* every thread has read what the gradient replaces */
    if (h.rows.logp && threadIdx.x == 0) {
        double value = terms[TERM_LABEL] != 0.0f ? (double)terms[TERM_LABEL] * (logit - lse) : 0.0;
        if (target) value += (double)terms[TERM_TARGET] * (q.cross - (lse - top)) - (double)terms[TERM_ENTROPY] * q.own;
        value -= (double)terms[TERM_MARGIN] * margin * margin;
        h.rows.logp[row] = label >= n ? NAN : (float)value; /* a label beyond the vocabulary is found */
        h.rows.lse[row] = (float)lse;
    }
    if (!h.rows.dlogp) return;
    float g = scored ? h.rows.dlogp[row] * h.rows.scale : 0.0f, of_q = target ? terms[TERM_TARGET] : 0.0f;
    float of_p = -g * (terms[TERM_LABEL] + of_q), slope = (float)(2 * (double)terms[TERM_MARGIN] * margin);
    float lse32 = (float)lse, base = (float)(q.top + q.log_sum), all = g * (float)((double)slope / n);
    for (int i = threadIdx.x; i < n; i += THREADS) {
        float v = g == 0.0f ? 0.0f : of_p * expf(x[i] - lse32) + all;
        if (g != 0.0f && of_q != 0.0f) v += g * of_q * expf(t[i] - base);
        if (i == label) v += g * terms[TERM_LABEL];
        if (i == best) v -= g * slope;
        to[i] = from_float<T>(v);
    }
}

extern "C" void cuda_launch_head_terms(cudaStream_t s, const CudaHeadTerms *h) {
    with_real(h->rows.logits.format, [&](auto t) {
        head_terms_kernel<decltype(t)><<<(unsigned)h->rows.rows, THREADS, 0, s>>>(*h);
    });
}
