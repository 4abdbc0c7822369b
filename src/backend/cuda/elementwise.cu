/* elementwise.cu - SwiGLU, its gradient, and add: every number depends on the same place of the inputs alone.
 * Reference: cpu/elementwise.c.
 *
 *   swiglu       h(N,F) = g * s * up with s = 1/(1 + e^-g), gate_up(N,2F): g then up      3 numbers moved per h
 *   swiglu_grad  dup = dh*g*s;  dgate = dh*up*s*(1 + g*(1 - s))                           5 numbers moved per dh
 *   add          a + b                                                                   3 numbers moved
 * A thread owns V numbers (8 where rows and addresses allow 16-byte accesses, else 1) and reads them before it
 * writes, so an output may stand in its input's place. One thread per V numbers, 256 to a block. */
#include "backend/cuda/chain.cuh"
#include "backend/cuda/kernels.h"
#include "backend/cuda/vectors.cuh"

enum { THREADS = 256, WIDE = 8 };

/* Where the V numbers of a thread stand in the gate half; -1: behind the end. */
template <int V> DEVICE int64_t gate_place(int64_t rows, int64_t cols, int64_t *at_h) {
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * V;
    if (i >= rows * cols) return -1;
    *at_h = i;
    int64_t row = cols < (1ll << 31) && i < (1ll << 31) ? (uint32_t)i / (uint32_t)cols : i / cols;
    return i + row * cols;
}

template <typename T, int V> __global__ void __launch_bounds__(THREADS)
    swiglu_kernel(T *h, const T *gate_up, int64_t rows, int64_t cols) {
    chain_wait();
    float g[V], up[V];
    int64_t at, first = gate_place<V>(rows, cols, &at);
    if (first < 0) return;
    load<V>(g, gate_up + first);
    load<V>(up, gate_up + first + cols);
#pragma unroll
    for (int k = 0; k < V; k++) g[k] = __fdividef(g[k], 1.0f + expf(-g[k])) * up[k];
    store<V>(h + at, g);
}

template <typename T, int V> __global__ void __launch_bounds__(THREADS)
    swiglu_grad_kernel(T *dgate_up, const T *dh, const T *gate_up, int64_t rows, int64_t cols) {
    chain_wait();
    float d[V], g[V], up[V];
    int64_t at, first = gate_place<V>(rows, cols, &at);
    if (first < 0) return;
    load<V>(d, dh + at);
    load<V>(g, gate_up + first);
    load<V>(up, gate_up + first + cols);
#pragma unroll
    for (int k = 0; k < V; k++) {
        float s = __fdividef(1.0f, 1.0f + expf(-g[k])), x = g[k];
        g[k] = d[k] * up[k] * s * (1.0f + x * (1.0f - s));
        up[k] = d[k] * (x * s);
    }
    store<V>(dgate_up + first, g);
    store<V>(dgate_up + first + cols, up);
}

template <typename T, int V> __global__ void __launch_bounds__(THREADS)
    add_kernel(T *y, const T *a, const T *b, int64_t n) {
    chain_wait();
    float p[V], q[V];
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * V;
    if (i >= n) return;
    load<V>(p, a + i);
    load<V>(q, b + i);
#pragma unroll
    for (int k = 0; k < V; k++) p[k] += q[k];
    store<V>(y + i, p);
}

extern "C" void cuda_launch_swiglu(cudaStream_t s, CudaNumbers h, const void *gate_up, int64_t rows,
                                   int64_t cols) {
    with_real(h.format, [&](auto t) {
        using T = decltype(t);
        T *to = (T *)h.data;
        const T *from = (const T *)gate_up;
        if (cols % WIDE == 0 && is_packed(to) && is_packed(from))
            cuda_launch_chained(s, swiglu_kernel<T, WIDE>, blocks_for(rows * cols, THREADS * WIDE), THREADS, 0, to,
                                from, rows, cols);
        else
            cuda_launch_chained(s, swiglu_kernel<T, 1>, blocks_for(rows * cols, THREADS), THREADS, 0, to, from, rows,
                                cols);
    });
}

extern "C" void cuda_launch_swiglu_grad(cudaStream_t s, CudaNumbers dgate_up, const void *dh, const void *gate_up,
                                        int64_t rows, int64_t cols) {
    with_real(dgate_up.format, [&](auto t) {
        using T = decltype(t);
        T *to = (T *)dgate_up.data;
        const T *d = (const T *)dh, *from = (const T *)gate_up;
        if (cols % WIDE == 0 && is_packed(to) && is_packed(d) && is_packed(from))
            cuda_launch_chained(s, swiglu_grad_kernel<T, WIDE>, blocks_for(rows * cols, THREADS * WIDE), THREADS, 0, to,
                                d, from, rows, cols);
        else
            cuda_launch_chained(s, swiglu_grad_kernel<T, 1>, blocks_for(rows * cols, THREADS), THREADS, 0, to, d, from,
                                rows, cols);
    });
}

extern "C" void cuda_launch_add(cudaStream_t s, CudaNumbers y, const void *a, const void *b, int64_t n) {
    with_real(y.format, [&](auto t) {
        using T = decltype(t);
        T *to = (T *)y.data;
        const T *p = (const T *)a, *q = (const T *)b;
        if (n % WIDE == 0 && is_packed(to) && is_packed(p) && is_packed(q))
            cuda_launch_chained(s, add_kernel<T, WIDE>, blocks_for(n, THREADS * WIDE), THREADS, 0, to, p, q, n);
        else
            cuda_launch_chained(s, add_kernel<T, 1>, blocks_for(n, THREADS), THREADS, 0, to, p, q, n);
    });
}
