/* carry.cu - a correction added to the weights, and sums over it. Reference: cpu/carry.c; what an update does to a
 * correction stands in update.cu.
 *
 *   carry_apply  a block a tile of CUDA_CARRY_TILE numbers: theta = theta + step(v), rounded to nearest; v.x, x.x and
 *                v.v of x, theta's change. Each number is read once, weight and master written once
 *   carry_join   one block adds the tiles of a tensor in one order */
#include "backend/cuda/carry.cuh"

enum { THREADS = 256, LANE = 8, JOIN_THREADS = 1024, SUMS = CUDA_CARRY_SUMS };
static_assert(CUDA_CARRY_TILE % (THREADS * LANE) == 0, "a tile is whole rounds of a block");

/* x: theta that is stored less theta as it was. */
template <typename T, int N> DEVICE void apply_at(const CudaCarry &c, float (&x)[N], const float (&v)[N], int64_t i) {
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
    for (int k = 0; k < N; k++) x[k] = (c.master ? now[k] : to_float(from_float<T>(now[k]))) - was[k];
}

template <typename T, typename G, int N>
DEVICE void apply_to(double (&sums)[SUMS], const CudaCarry &c, const Carry &step, int64_t begin, int64_t end) {
    for (int64_t i = begin + threadIdx.x * N; i < end; i += THREADS * N) {
        float v[N], x[N];
        load<N>(v, c.v + i);
        load<N>(x, (const G *)c.last + i);
        carry_step(v, x, step);
        apply_at<T>(c, x, v, i);
        carry_add(sums, v, x);
    }
}

template <typename T, typename G>
__global__ void __launch_bounds__(THREADS) carry_apply_kernel(const __grid_constant__ CudaCarry c) {
    __shared__ double part[THREADS / WARP];
    double sums[SUMS] = {};
    const Carry step = carry_of(c.dials, c.lr_mult, c.weight_decay);
    int64_t begin = (int64_t)blockIdx.x * CUDA_CARRY_TILE, end = begin + CUDA_CARRY_TILE;
    uintptr_t bits = (uintptr_t)c.v | (uintptr_t)c.w | (uintptr_t)c.master | (uintptr_t)c.last;
    if (end <= c.count && (bits & 15) == 0)
        apply_to<T, G, LANE>(sums, c, step, begin, end);
    else
        apply_to<T, G, 1>(sums, c, step, begin, end < c.count ? end : c.count);
    carry_put(c.tiles + (int64_t)blockIdx.x * SUMS, sums, part);
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

extern "C" void cuda_launch_carry_apply(cudaStream_t s, const CudaCarry *c) {
    unsigned tiles = blocks_for(c->count, CUDA_CARRY_TILE);
    with_real(c->format, [&](auto t) {
        with_real(c->last_format,
                  [&](auto g) { carry_apply_kernel<decltype(t), decltype(g)><<<tiles, THREADS, 0, s>>>(*c); });
    });
    cuda_launch_carry_join(s, c, NULL);
}

extern "C" void cuda_launch_carry_join(cudaStream_t s, const CudaCarry *c, const double *verdict) {
    carry_join_kernel<<<1, JOIN_THREADS, 0, s>>>(*c, verdict);
}
