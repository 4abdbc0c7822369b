/* parts.cuh - the second pass of a reduction: partial sums made by other blocks become a weight's gradient.
 *
 *   dw[c] = beta*dw[c] + sum over p of parts[p*stride + c]: 32 columns a block, 32 threads a column, in one order. */
#ifndef BACKEND_CUDA_PARTS_CUH
#define BACKEND_CUDA_PARTS_CUH

#include "backend/cuda/chain.cuh"
#include "backend/cuda/kernels.h"
#include "backend/cuda/vectors.cuh"

template <typename T> __global__ void __launch_bounds__(WARP *WARP)
    join_kernel(T *dw, const float *parts, int64_t n_parts, int64_t stride, int64_t n, const float *beta,
                CudaKey key) {
    __shared__ float slice[WARP][WARP + 1];
    chain_wait();
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    int64_t c = (int64_t)blockIdx.x * WARP + lane;
    float sum = 0;
    if (c < n) {
#pragma unroll 8
        for (int64_t p = warp; p < n_parts; p += WARP) sum += parts[p * stride + c];
    }
    slice[warp][lane] = sum;
    __syncthreads();
    float total[1] = {warp_sum(slice[lane][warp])};
    c = (int64_t)blockIdx.x * WARP + warp;
    if (lane || c >= n) return;
    accumulate<1>(dw, c, total, read_beta(beta), draw_key(key));
}

static inline void join_parts(cudaStream_t s, CudaNumbers dw, const float *parts, int64_t n_parts, int64_t stride,
                              int64_t n, const float *beta, CudaKey key) {
    with_real(dw.format, [&](auto t) {
        using T = decltype(t);
        cuda_launch_chained(s, join_kernel<T>, blocks_for(n, WARP), WARP * WARP, 0, (T *)dw.data, parts, n_parts,
                            stride, n, beta, key);
    });
}

#endif
