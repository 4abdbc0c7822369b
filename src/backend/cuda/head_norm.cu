/* head_norm.cu - RMS norms of the single heads of q and k, and their gradients. Reference: cpu/norm.c.
 *
 *   r = 1/sqrt(mean(x^2) + eps);  y = x*r*w;  dx = r*dy*w - x * r^3 * sum(dy*w*x)/n;  dw = sum over tokens of dy*x*r
 *
 * head_norm       (N,(H+2G)*D): a block a token, a warp a head; v is copied.                    2 numbers moved
 * head_norm_grad: a block per DEVICE_NORM_PART tokens, a warp a head.                           3 numbers moved
 * Parts of dw (parts, 2, D) lie in the workspace and are added by parts.cuh. */
#include "backend/cuda/chain.cuh"
#include "backend/cuda/kernels.h"
#include "backend/cuda/parts.cuh"

enum { HEAD_WARPS = 8 };

template <typename T, typename W> __global__ void __launch_bounds__(HEAD_WARPS *WARP)
    head_norm_kernel(T *y, float *rstd, const T *qkv, const W *wq, const W *wk, int heads, int kv_heads, int dim,
                     float eps) {
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, normed = heads + kv_heads;
    int64_t first = (int64_t)blockIdx.x * (normed + kv_heads) * dim;
    chain_wait();
    for (int h = warp; h < normed; h += HEAD_WARPS) {
        const T *x = qkv + first + h * dim;
        const W *w = h < heads ? wq : wk;
        float sum = 0;
        for (int i = lane; i < dim; i += WARP) sum += to_float(x[i]) * to_float(x[i]);
        float r = 1.0f / sqrtf(warp_sum(sum) / (float)dim + eps);
        if (lane == 0) rstd[(int64_t)blockIdx.x * normed + h] = r;
        for (int i = lane; i < dim; i += WARP)
            y[first + h * dim + i] = from_float<T>(to_float(x[i]) * r * to_float(w[i]));
    }
    for (int i = normed * dim + threadIdx.x; i < (normed + kv_heads) * dim; i += HEAD_WARPS * WARP)
        y[first + i] = qkv[first + i];
}

template <typename T> struct GradHeads {
    T *dx;
    const T *dy, *qkv;
    const float *rstd;
    float *parts; /* (parts, 2, D): of wq and of wk; NULL: neither is wanted */
    int64_t rows;
    int heads, kv_heads, dim;
};

/* One head: gives dx, adds to the warp's own sums of dw (NULL: not wanted); lane i owns columns i, i+32, ... */
template <typename T, typename W>
DEVICE void grad_head(T *dx, float *sums, const T *dy, const T *x, const W *w, float r, int dim) {
    int lane = threadIdx.x % WARP;
    float dot = 0;
    for (int i = lane; i < dim; i += WARP) dot += to_float(dy[i]) * to_float(w[i]) * to_float(x[i]);
    float pull = warp_sum(dot) * r * r * r / (float)dim;
    for (int i = lane; i < dim; i += WARP) {
        float d = to_float(dy[i]), a = to_float(x[i]);
        dx[i] = from_float<T>(d * to_float(w[i]) * r - a * pull);
        if (sums) sums[i] += d * a * r;
    }
}

template <typename T, typename W> __global__ void __launch_bounds__(HEAD_WARPS *WARP)
    head_norm_grad_kernel(GradHeads<T> g, const W *wq, const W *wk) {
    extern __shared__ float sums[]; /* (HEAD_WARPS, 2, D) */
    int warp = threadIdx.x / WARP, normed = g.heads + g.kv_heads, width = (normed + g.kv_heads) * g.dim;
    float *own = g.parts ? sums + warp * 2 * g.dim : NULL;
    for (int i = threadIdx.x; g.parts && i < HEAD_WARPS * 2 * g.dim; i += HEAD_WARPS * WARP) sums[i] = 0;
    __syncthreads();
    int64_t row = (int64_t)blockIdx.x * DEVICE_NORM_PART, last = min(row + DEVICE_NORM_PART, g.rows);
    for (; row < last; row++) {
        int64_t first = row * width;
        for (int h = warp; h < normed; h += HEAD_WARPS) {
            int64_t at = first + h * g.dim;
            bool is_q = h < g.heads;
            grad_head<T, W>(g.dx + at, own && !is_q ? own + g.dim : own, g.dy + at, g.qkv + at, is_q ? wq : wk,
                            g.rstd[row * normed + h], g.dim);
        }
        for (int i = normed * g.dim + threadIdx.x; i < width; i += HEAD_WARPS * WARP)
            g.dx[first + i] = g.dy[first + i];
    }
    if (!g.parts) return;
    __syncthreads();
    for (int i = threadIdx.x; i < 2 * g.dim; i += HEAD_WARPS * WARP) {
        float sum = 0;
        for (int k = 0; k < HEAD_WARPS; k++) sum += sums[k * 2 * g.dim + i];
        g.parts[(int64_t)blockIdx.x * 2 * g.dim + i] = sum;
    }
}

extern "C" void cuda_launch_head_norm(cudaStream_t s, CudaNumbers y, float *rstd, const void *qkv,
                                      const CudaHeadNorm *h) {
    with_real(y.format, [&](auto t) {
        with_real(h->wq.format, [&](auto u) {
            using T = decltype(t);
            using W = decltype(u);
            cuda_launch_chained(s, head_norm_kernel<T, W>, (unsigned)h->rows, HEAD_WARPS * WARP, 0, (T *)y.data, rstd,
                                (const T *)qkv, (const W *)h->wq.data, (const W *)h->wk.data, h->heads, h->kv_heads,
                                h->dim, h->eps);
        });
    });
}

extern "C" void cuda_launch_head_norm_grad(cudaStream_t s, const CudaHeadNormGrad *g) {
    const CudaHeadNorm *h = &g->norm;
    float *parts = g->dwq.data || g->dwk.data ? g->parts : NULL;
    unsigned blocks = blocks_for(h->rows, DEVICE_NORM_PART);
    with_real(g->dx.format, [&](auto t) {
        with_real(h->wq.format, [&](auto u) {
            using T = decltype(t);
            using W = decltype(u);
            GradHeads<T> a = {(T *)g->dx.data, (const T *)g->dy, (const T *)g->qkv, g->rstd, parts,
                              h->rows,         h->heads,         h->kv_heads,       h->dim};
            size_t shared = parts ? (size_t)(HEAD_WARPS * 2 * h->dim) * sizeof(float) : 0;
            head_norm_grad_kernel<T, W>
                <<<blocks, HEAD_WARPS * WARP, shared, s>>>(a, (const W *)h->wq.data, (const W *)h->wk.data);
        });
    });
    CudaKey key = g->key;
    for (int i = 0; i < 2; i++) { /* each weight rounds by its own key */
        CudaNumbers dw = i ? g->dwk : g->dwq;
        key.part = i;
        if (dw.data) join_parts(s, dw, parts + i * h->dim, blocks, 2 * h->dim, h->dim, g->beta, key);
    }
}
