/* carry.cu - sums over a correction and another vector, and the correction added to the weights. Reference:
 * cpu/carry.c; what an update does to a correction stands in update.cu.
 *
 *   carry_sums   a block a tile of CUDA_CARRY_TILE numbers: v.g, g.g, v.v in fp64; reads v and g once
 *   carry_apply  the same walk: theta = theta + keep * v, rounded to nearest; v.u, u.u, v.v of u, theta's change
 *   carry_join   one block adds the tiles of a tensor in one order */
#include "backend/cuda/kernels.h"
#include "backend/cuda/vectors.cuh"

enum { THREADS = 256, LANE = 8, JOIN_THREADS = 1024, SUMS = CUDA_CARRY_SUMS };
static_assert(CUDA_CARRY_TILE % (THREADS * LANE) == 0, "a tile is whole rounds of a block");

template <int N> DEVICE void add_products(double (&sums)[SUMS], const float (&v)[N], const float (&u)[N]) {
#pragma unroll
    for (int k = 0; k < N; k++) {
        sums[CUDA_CARRY_VU] += (double)v[k] * (double)u[k];
        sums[CUDA_CARRY_UU] += (double)u[k] * (double)u[k];
        sums[CUDA_CARRY_VV] += (double)v[k] * (double)v[k];
    }
}

DEVICE void put_tile(const CudaCarry &c, double (&sums)[SUMS]) {
    __shared__ double part[THREADS / WARP];
#pragma unroll
    for (int k = 0; k < SUMS; k++) {
        double sum = total_of_block(sums[k], part);
        if (threadIdx.x == 0) c.tiles[(int64_t)blockIdx.x * SUMS + k] = sum;
    }
}

template <typename T, int N> DEVICE void sums_of(double (&sums)[SUMS], const CudaCarry &c, int64_t begin, int64_t end) {
    for (int64_t i = begin + threadIdx.x * N; i < end; i += THREADS * N) {
        float v[N], g[N];
        load<N>(v, c.v + i);
        load<N>(g, (const T *)c.w + i);
        add_products(sums, v, g);
    }
}

/* theta that is stored less theta as it was, in u. */
template <typename T, int N> DEVICE void apply_at(const CudaCarry &c, float (&u)[N], const float (&v)[N], int64_t i) {
    float was[N], now[N];
    T *w = (T *)c.w + i;
    if (c.master)
        load<N>(was, c.master + i);
    else
        load<N>(was, w);
#pragma unroll
    for (int k = 0; k < N; k++) now[k] = was[k] + v[k];
    if (c.master) store<N>(c.master + i, now);
    store<N>(w, now);
#pragma unroll
    for (int k = 0; k < N; k++) u[k] = (c.master ? now[k] : to_float(from_float<T>(now[k]))) - was[k];
}

template <typename T, int N> DEVICE void apply_to(double (&sums)[SUMS], const CudaCarry &c, int64_t begin, int64_t end) {
    float keep = c.dials[CUDA_CARRY_KEEP];
    for (int64_t i = begin + threadIdx.x * N; i < end; i += THREADS * N) {
        float v[N], u[N];
        load<N>(v, c.v + i);
#pragma unroll
        for (int k = 0; k < N; k++) v[k] = keep == 0.0f ? 0.0f : keep * v[k];
        apply_at<T>(c, u, v, i);
        add_products(sums, v, u);
    }
}

template <typename T, bool APPLY>
__global__ void __launch_bounds__(THREADS) carry_kernel(const __grid_constant__ CudaCarry c) {
    double sums[SUMS] = {};
    int64_t begin = (int64_t)blockIdx.x * CUDA_CARRY_TILE, end = begin + CUDA_CARRY_TILE;
    bool whole = end <= c.count && (((uintptr_t)c.v | (uintptr_t)c.w | (uintptr_t)c.master) & 15) == 0;
    if (end > c.count) end = c.count;
    if (APPLY && whole)
        apply_to<T, LANE>(sums, c, begin, end);
    else if (APPLY)
        apply_to<T, 1>(sums, c, begin, end);
    else if (whole)
        sums_of<T, LANE>(sums, c, begin, end);
    else
        sums_of<T, 1>(sums, c, begin, end);
    put_tile(c, sums);
}

__global__ void __launch_bounds__(JOIN_THREADS)
    carry_join_kernel(const __grid_constant__ CudaCarry c, const double *verdict) {
    __shared__ double part[WARP];
    int64_t tiles = (c.count + CUDA_CARRY_TILE - 1) / CUDA_CARRY_TILE;
    bool ok = !verdict || verdict[CUDA_VERDICT_OK] != 0;
    for (int k = 0; k < SUMS; k++) {
        double sum = 0;
        for (int64_t i = threadIdx.x; i < tiles && ok; i += JOIN_THREADS) sum += c.tiles[i * SUMS + k];
        sum = total_of_block(sum, part);
        if (threadIdx.x == 0) c.sums[k] = sum;
    }
}

template <bool APPLY> static void launch(cudaStream_t s, const CudaCarry *c) {
    unsigned tiles = blocks_for(c->count, CUDA_CARRY_TILE);
    with_real(c->format, [&](auto t) { carry_kernel<decltype(t), APPLY><<<tiles, THREADS, 0, s>>>(*c); });
    cuda_launch_carry_join(s, c, NULL);
}

extern "C" void cuda_launch_carry_sums(cudaStream_t s, const CudaCarry *c) { launch<false>(s, c); }

extern "C" void cuda_launch_carry_apply(cudaStream_t s, const CudaCarry *c) { launch<true>(s, c); }

extern "C" void cuda_launch_carry_join(cudaStream_t s, const CudaCarry *c, const double *verdict) {
    carry_join_kernel<<<1, JOIN_THREADS, 0, s>>>(*c, verdict);
}
