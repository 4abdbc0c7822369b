/* norm.cu - RMS norms of whole rows and of single heads, and their gradients. Reference: cpu/norm.c.
 *
 *   r = 1/sqrt(mean(x^2) + eps);  y = x*r*w;  dx = so_far + r*dy*w - x * r^3 * sum(dy*w*x)/n
 *   dw = sum over rows of dy*x*r
 *
 * rmsnorm       (N,C): a block a row; a row longer than 8 numbers a thread is read twice, the second time from the
 *               caches.                                                                         2 numbers moved
 * rmsnorm_grad  (N,C): a block per DEVICE_NORM_PART rows when dw is wanted (each column's sum with its own thread:
 *               in registers, or in shared memory where rows are long), else a block a row.     4 numbers moved
 * head_norm     (N,(H+2G)*D): a block a token, a warp a head; v is copied.                      2 numbers moved
 * head_norm_grad: a block per DEVICE_NORM_PART tokens, a warp a head.                           3 numbers moved
 * Parts of dw (parts, n) lie in the workspace and are added by join_kernel: 32 columns a block, 32 threads a
 * column, in one order. dx may stand in so_far's place: a number is read before it is written, by the same
 * thread. */
#include "backend/cuda/chain.cuh"
#include "backend/cuda/kernels.h"
#include "backend/cuda/vectors.cuh"

enum { WIDE = 8, MOST_THREADS = 512, HEAD_WARPS = 8, PLAIN_SHARED = 48 * 1024 };

static int threads_for(int64_t cols, int v) { /* whole warps that cover a row, as far as a block goes */
    int64_t n = (cols / v + WARP - 1) / WARP * WARP;
    if (n > MOST_THREADS) return MOST_THREADS;
    return n ? (int)n : WARP;
}

/* ---- whole rows ---- */

template <typename T, typename W, int V> __global__ void __launch_bounds__(MOST_THREADS)
    rmsnorm_kernel(T *y, float *rstd, const T *x, const W *w, int cols, float eps) {
    chain_wait();
    __shared__ float part[WARP];
    const T *row = x + (int64_t)blockIdx.x * cols;
    T *to = y + (int64_t)blockIdx.x * cols;
    float sum = 0, a[V] = {}, b[V] = {};
    const bool fits = cols <= blockDim.x * V; /* a short row is read once, and its weight on the way */
    for (int c = threadIdx.x * V; c < cols; c += blockDim.x * V) {
        load<V>(a, row + c);
        if (fits) load<V>(b, w + c);
#pragma unroll
        for (int k = 0; k < V; k++) sum += a[k] * a[k];
    }
    float r = 1.0f / sqrtf(sum_of_block(sum, part) / (float)cols + eps);
    if (threadIdx.x == 0) rstd[blockIdx.x] = r;
    for (int c = threadIdx.x * V; c < cols; c += blockDim.x * V) {
        if (!fits) {
            load<V>(a, row + c);
            load<V>(b, w + c);
        }
#pragma unroll
        for (int k = 0; k < V; k++) a[k] = a[k] * r * b[k];
        store<V>(to + c, a);
    }
}

template <typename T> struct GradRows {
    T *dx;                    /* NULL: not wanted */
    const T *dy, *x, *so_far; /* so_far NULL: none */
    const float *rstd;
    float *parts; /* NULL: no dw */
    int64_t rows;
    int cols, rows_a_block;
};

template <typename T, typename W, int V> __global__ void __launch_bounds__(MOST_THREADS)
    rmsnorm_grad_kernel(GradRows<T> g, const W *w) {
    extern __shared__ float sums[]; /* (cols) of dw, when wanted */
    __shared__ float part[2][WARP]; /* two, so that one barrier a row is enough */
    int step = blockDim.x * V;
    int64_t row = (int64_t)blockIdx.x * g.rows_a_block, last = min(row + g.rows_a_block, g.rows);
    if (g.parts)
        for (int c = threadIdx.x * V; c < g.cols; c += step)
#pragma unroll
            for (int k = 0; k < V; k++) sums[c + k] = 0;
    for (int turn = 0; row < last; row++, turn ^= 1) {
        const T *dy = g.dy + row * g.cols, *x = g.x + row * g.cols;
        float r = g.rstd[row], dot = 0, a[V], b[V], f[V];
        for (int c = threadIdx.x * V; c < g.cols; c += step) {
            load<V>(a, dy + c);
            load<V>(b, x + c);
            load<V>(f, w + c);
#pragma unroll
            for (int k = 0; k < V; k++) dot += a[k] * f[k] * b[k];
            if (!g.parts) continue;
#pragma unroll
            for (int k = 0; k < V; k++) sums[c + k] += a[k] * b[k] * r;
        }
        if (!g.dx) continue;
        float pull = sum_of_block(dot, part[turn]) * r * r * r / (float)g.cols;
        for (int c = threadIdx.x * V; c < g.cols; c += step) {
            load<V>(a, dy + c);
            load<V>(b, x + c);
            load<V>(f, w + c);
#pragma unroll
            for (int k = 0; k < V; k++) a[k] = a[k] * f[k] * r - b[k] * pull;
            if (g.so_far) {
                load<V>(b, g.so_far + row * g.cols + c);
#pragma unroll
                for (int k = 0; k < V; k++) a[k] += b[k];
            }
            store<V>(g.dx + row * g.cols + c, a);
        }
    }
    if (!g.parts) return;
    float *to = g.parts + (int64_t)blockIdx.x * g.cols; /* each thread gives the columns it summed */
    for (int c = threadIdx.x * V; c < g.cols; c += step)
#pragma unroll
        for (int k = 0; k < V; k++) to[c + k] = sums[c + k];
}

/* The same where a row is no longer than a block's V numbers a thread: a thread owns the same columns of every row,
 * and keeps weight, sums and row in registers. The next row is on its way while this one is added up. */
template <typename T, typename W, int V> __global__ void __launch_bounds__(MOST_THREADS)
    rmsnorm_grad_short_kernel(GradRows<T> g, const W *w) {
    __shared__ float part[2][WARP];
    const int c = threadIdx.x * V;
    const bool mine = c < g.cols;
    int64_t row = (int64_t)blockIdx.x * g.rows_a_block, last = min(row + g.rows_a_block, g.rows);
    float f[V] = {}, sums[V] = {}, a[V] = {}, b[V] = {}, was[V] = {};
    if (mine) {
        load<V>(f, w + c);
        load<V>(a, g.dy + row * g.cols + c);
        load<V>(b, g.x + row * g.cols + c);
        if (g.so_far) load<V>(was, g.so_far + row * g.cols + c);
    }
    for (int turn = 0; row < last; row++, turn ^= 1) {
        int64_t at = row * g.cols + c;
        float r = g.rstd[row], dot = 0, next_a[V] = {}, next_b[V] = {}, next_was[V] = {};
        if (mine && row + 1 < last) {
            load<V>(next_a, g.dy + at + g.cols);
            load<V>(next_b, g.x + at + g.cols);
            if (g.so_far) load<V>(next_was, g.so_far + at + g.cols);
        }
#pragma unroll
        for (int k = 0; k < V; k++) dot += a[k] * f[k] * b[k];
#pragma unroll
        for (int k = 0; k < V; k++) sums[k] += a[k] * b[k] * r;
        if (g.dx) {
            float pull = sum_of_block(dot, part[turn]) * r * r * r / (float)g.cols;
#pragma unroll
            for (int k = 0; k < V; k++) a[k] = a[k] * f[k] * r - b[k] * pull + was[k];
            if (mine) store<V>(g.dx + at, a);
        }
#pragma unroll
        for (int k = 0; k < V; k++) a[k] = next_a[k], b[k] = next_b[k], was[k] = next_was[k];
    }
    if (g.parts && mine) store<V>(g.parts + (int64_t)blockIdx.x * g.cols + c, sums);
}

/* dw[c] = beta*dw[c] + sum over parts of parts[p*stride + c]. */
template <typename T> __global__ void __launch_bounds__(WARP *WARP)
    join_kernel(T *dw, const float *parts, int64_t n_parts, int64_t stride, int64_t n, const float *beta,
                CudaKey key) {
    __shared__ float slice[WARP][WARP + 1];
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    int64_t c = (int64_t)blockIdx.x * WARP + lane;
    float sum = 0;
    if (c < n) {
#pragma unroll 4
        for (int64_t p = warp; p < n_parts; p += WARP) sum += parts[p * stride + c];
    }
    slice[warp][lane] = sum;
    __syncthreads();
    float total[1] = {warp_sum(slice[lane][warp])};
    c = (int64_t)blockIdx.x * WARP + warp;
    if (lane || c >= n) return;
    accumulate<1>(dw, c, total, read_beta(beta), draw_key(key));
}

static void join_parts(cudaStream_t s, CudaNumbers dw, const float *parts, int64_t n_parts, int64_t stride,
                       int64_t n, const float *beta, CudaKey key) {
    with_real(dw.format, [&](auto t) {
        using T = decltype(t);
        join_kernel<T>
            <<<blocks_for(n, WARP), WARP * WARP, 0, s>>>((T *)dw.data, parts, n_parts, stride, n, beta, key);
    });
}

extern "C" void cuda_launch_rmsnorm(cudaStream_t s, CudaNumbers y, float *rstd, const void *x, CudaNumbers w,
                                    int64_t rows, int64_t cols, float eps) {
    with_real(y.format, [&](auto t) {
        with_real(w.format, [&](auto u) {
            using T = decltype(t);
            using W = decltype(u);
            bool wide = cols % WIDE == 0 && is_packed(y.data) && is_packed(x) && is_packed(w.data);
            int threads = threads_for(cols, wide ? WIDE : 1);
            auto kernel = wide ? rmsnorm_kernel<T, W, WIDE> : rmsnorm_kernel<T, W, 1>;
            cuda_launch_chained(s, kernel, (unsigned)rows, threads, 0, (T *)y.data, rstd, (const T *)x,
                                (const W *)w.data, (int)cols, eps);
        });
    });
}

extern "C" void cuda_launch_rmsnorm_grad(cudaStream_t s, const CudaNormGrad *g) {
    bool sums = g->dw.data != NULL;
    int rows_a_block = sums ? DEVICE_NORM_PART : 1;
    unsigned blocks = blocks_for(g->rows, rows_a_block);
    with_real(g->x.format, [&](auto t) {
        with_real(g->w.format, [&](auto u) {
            using T = decltype(t);
            using W = decltype(u);
            bool wide = g->cols % WIDE == 0 && is_packed(g->dx.data) && is_packed(g->dy) && is_packed(g->x.data) &&
                        is_packed(g->so_far) && is_packed(g->w.data);
            int threads = threads_for(g->cols, wide ? WIDE : 1);
            bool fits = wide && g->cols <= (int64_t)threads * WIDE;
            auto kernel = fits   ? rmsnorm_grad_short_kernel<T, W, WIDE>
                          : wide ? rmsnorm_grad_kernel<T, W, WIDE>
                                 : rmsnorm_grad_kernel<T, W, 1>;
            GradRows<T> rows = {
                (T *)g->dx.data,        (const T *)g->dy, (const T *)g->x.data, (const T *)g->so_far, g->rstd,
                sums ? g->parts : NULL, g->rows,          (int)g->cols,         rows_a_block};
            size_t shared = sums && !fits ? (size_t)g->cols * sizeof(float) : 0;
            if (shared > PLAIN_SHARED)
                cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
            kernel<<<blocks, threads, shared, s>>>(rows, (const W *)g->w.data);
        });
    });
    if (sums) join_parts(s, g->dw, g->parts, blocks, g->cols, g->cols, g->beta, g->key);
}

/* ---- heads of q and k ---- */

template <typename T, typename W> __global__ void __launch_bounds__(HEAD_WARPS *WARP)
    head_norm_kernel(T *y, float *rstd, const T *qkv, const W *wq, const W *wk, int heads, int kv_heads, int dim,
                     float eps) {
    chain_wait();
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, normed = heads + kv_heads;
    int64_t first = (int64_t)blockIdx.x * (normed + kv_heads) * dim;
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
