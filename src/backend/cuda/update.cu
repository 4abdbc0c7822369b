/* update.cu - from gradients to new weights: sums of squares, the verdict, AdamW and SGD. Reference: cpu/update.c.
 *
 *   sum_squares  fp64 sums of fixed tiles of CUDA_SQUARES_TILE numbers (a block each), then their sum by one
 *   clip         one block: norm, scale and whether anything may be written
 *   adamw, sgd   a thread owns 8 neighbouring numbers, a warp 256 of them: one block of 8-bit moments. fp32
 *                throughout; one 64-bit word is drawn per element, of which weight and moments take 16 bits each
 *                (P6). Moved once each way: weight, moments, master; once: gradient.
 * Formats of states are asked at run time: the same for a whole launch, so that a branch costs next to nothing
 * beside the bytes. The verdict, learning rate and clock are dials: a step that is not finite writes nothing
 * (P7). */
#include "backend/cuda/kernels.h"
#include "backend/cuda/moments.cuh"

enum { THREADS = 256, LANE = MOMENT_LANE, JOIN_THREADS = 1024 };

/* ---- norm and verdict ---- */

template <typename T, int V> __global__ void __launch_bounds__(THREADS)
    squares_kernel(double *tiles, const T *g, int64_t n) {
    __shared__ double part[THREADS / WARP];
    int64_t first = (int64_t)blockIdx.x * CUDA_SQUARES_TILE;
    int64_t end = first + CUDA_SQUARES_TILE < n ? first + CUDA_SQUARES_TILE : n;
    double sum = 0;
#pragma unroll 4
    for (int64_t i = first + threadIdx.x * V; i < end; i += THREADS * V) {
        float x[V];
        load<V>(x, g + i);
#pragma unroll
        for (int k = 0; k < V; k++) sum += (double)x[k] * (double)x[k];
    }
    sum = sum_of_block(sum, part);
    if (threadIdx.x == 0) tiles[blockIdx.x] = sum;
}

DEVICE double sum_of_parts(const double *parts, int64_t n, double *shared) { /* by JOIN_THREADS threads */
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += JOIN_THREADS) sum += parts[i];
    return sum_of_block(sum, shared);
}

__global__ void __launch_bounds__(JOIN_THREADS) squares_join_kernel(double *to, const double *tiles, int64_t n) {
    __shared__ double part[WARP];
    double sum = sum_of_parts(tiles, n, part);
    if (threadIdx.x == 0) *to = sum;
}

__global__ void __launch_bounds__(JOIN_THREADS)
    clip_kernel(double *verdict, const double *parts, const double *loss, const float *max_norm, int64_t n) {
    __shared__ double part[WARP];
    double norm = sqrt(sum_of_parts(parts, n, part)), most = (double)*max_norm;
    if (threadIdx.x) return;
    verdict[CUDA_VERDICT_SCALE] = most > 0 ? fmin(1.0, most / (norm + 1e-6)) : 1.0;
    verdict[CUDA_VERDICT_NORM] = norm;
    verdict[CUDA_VERDICT_OK] = isfinite(norm) && isfinite(*loss) ? 1.0 : 0.0;
}

extern "C" void cuda_launch_sum_squares(cudaStream_t s, double *to, double *tiles, CudaNumbers g, int64_t n) {
    unsigned blocks = blocks_for(n, CUDA_SQUARES_TILE);
    with_real(g.format, [&](auto t) {
        using T = decltype(t);
        auto kernel = n % LANE == 0 && is_packed(g.data) ? squares_kernel<T, LANE> : squares_kernel<T, 1>;
        kernel<<<blocks, THREADS, 0, s>>>(tiles, (const T *)g.data, n);
    });
    squares_join_kernel<<<1, JOIN_THREADS, 0, s>>>(to, tiles, blocks);
}

extern "C" void cuda_launch_clip(cudaStream_t s, double *verdict, const double *parts, const double *loss,
                                 const float *max_norm, int64_t n) {
    clip_kernel<<<1, JOIN_THREADS, 0, s>>>(verdict, parts, loss, max_norm, n);
}

/* ---- states: numbers [i, i+8) of a tensor; those from n on do not exist and read as 0 ---- */

template <typename T> DEVICE void take_plain(float (&x)[LANE], const T *p, int64_t i, int64_t n) {
    if (i + LANE <= n && ((uintptr_t)p & 15) == 0) {
        load<LANE>(x, p + i);
    } else {
#pragma unroll
        for (int k = 0; k < LANE; k++) x[k] = i + k < n ? to_float(p[i + k]) : 0.0f;
    }
}

template <typename T> DEVICE void give_plain(T *p, const float (&x)[LANE], int64_t i, int64_t n) {
    if (i + LANE <= n && ((uintptr_t)p & 15) == 0) {
        store<LANE>(p + i, x);
    } else {
#pragma unroll
        for (int k = 0; k < LANE; k++)
            if (i + k < n) p[i + k] = from_float<T>(x[k]);
    }
}

DEVICE void take(float (&x)[LANE], CudaState s, int64_t i, int64_t n) {
    switch (s.format) {
        case FMT_F32: take_plain(x, (const float *)s.data, i, n); break;
        case FMT_BF16: take_plain(x, (const Bf16 *)s.data, i, n); break;
        case FMT_F16: take_plain(x, (const F16 *)s.data, i, n); break;
        case FMT_MOM8: mom8_take(x, (const int8_t *)s.data, s.scales, i, n); break;
        default: var8_take(x, (const uint8_t *)s.data, s.scales, i, n); break;
    }
}

/* shift: of this state's 16 bits in the words; random false: bf16 to nearest too (a weight beside its master). */
DEVICE void give(CudaState s, const float (&x)[LANE], const uint64_t (&words)[LANE], int shift, bool random,
                 int64_t i, int64_t n) {
    if (s.format == FMT_BF16 && random) {
        uint32_t w[LANE];
        Bf16 *p = (Bf16 *)s.data;
#pragma unroll
        for (int k = 0; k < LANE; k++) w[k] = (uint32_t)(words[k] >> shift);
        if (i + LANE <= n && ((uintptr_t)p & 15) == 0) {
            store_rounded<LANE>(p + i, x, w);
        } else {
#pragma unroll
            for (int k = 0; k < LANE; k++)
                if (i + k < n) p[i + k] = round_random(x[k], w[k]);
        }
        return;
    }
    switch (s.format) {
        case FMT_F32: give_plain((float *)s.data, x, i, n); break;
        case FMT_BF16: give_plain((Bf16 *)s.data, x, i, n); break;
        case FMT_F16: give_plain((F16 *)s.data, x, i, n); break;
        case FMT_MOM8: mom8_give((int8_t *)s.data, s.scales, x, i, n); break;
        default: var8_give((uint8_t *)s.data, s.scales, x, i, n); break;
    }
}

/* ---- one step of the optimizer ---- */

DEVICE void adamw_numbers(float (&w)[LANE], float (&m)[LANE], float (&v)[LANE], const float (&g)[LANE],
                          const CudaUpdate &u) {
    float scale = (float)u.verdict[CUDA_VERDICT_SCALE], rate = u.dials[CUDA_DIAL_LR] * u.attr.lr_mult;
    float b1 = u.attr.beta1, b2 = u.attr.beta2, decay = 1.0f - rate * u.attr.weight_decay;
    float step = rate * u.dials[CUDA_DIAL_CORRECT1], c2 = u.dials[CUDA_DIAL_CORRECT2];
#pragma unroll
    for (int k = 0; k < LANE; k++) {
        float gk = g[k] * scale;
        m[k] = m[k] * b1 + gk * (1.0f - b1);
        v[k] = v[k] * b2 + gk * gk * (1.0f - b2);
        w[k] = w[k] * decay - step * m[k] / (sqrtf(v[k] * c2) + u.attr.eps);
    }
}

DEVICE void sgd_numbers(float (&w)[LANE], float (&m)[LANE], const float (&g)[LANE], const CudaUpdate &u) {
    float scale = (float)u.verdict[CUDA_VERDICT_SCALE], rate = u.dials[CUDA_DIAL_LR] * u.attr.lr_mult;
#pragma unroll
    for (int k = 0; k < LANE; k++) {
        m[k] = m[k] * u.attr.beta1 + (g[k] * scale + u.attr.weight_decay * w[k]);
        w[k] -= rate * m[k];
    }
}

template <bool ADAMW> __global__ void __launch_bounds__(THREADS) update_kernel(CudaUpdate u) {
    if (u.verdict[CUDA_VERDICT_OK] == 0) return;
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * LANE;
    if (i - threadIdx.x % WARP * LANE >= u.count) return; /* the whole warp: 8-bit moments need all its lanes */
    float w[LANE], m[LANE], v[LANE], g[LANE];
    uint64_t words[LANE];
    take(w, u.master.data ? u.master : u.w, i, u.count);
    take(g, u.g, i, u.count);
    if (u.m.data) {
        take(m, u.m, i, u.count);
    } else {
#pragma unroll
        for (int k = 0; k < LANE; k++) m[k] = 0;
    }
    if (ADAMW) take(v, u.v, i, u.count);
    uint64_t key = u.draws ? draw_key(u.key) : 0;
#pragma unroll
    for (int k = 0; k < LANE; k++) words[k] = u.draws ? rng_fold(key, (uint64_t)(i + k)) : 0;

    if (ADAMW)
        adamw_numbers(w, m, v, g, u);
    else
        sgd_numbers(w, m, g, u);

    if (u.m.data) give(u.m, m, words, 16, true, i, u.count);
    if (ADAMW) give(u.v, v, words, 32, true, i, u.count);
    if (u.master.data) give(u.master, w, words, 0, false, i, u.count);
    give(u.w, w, words, 0, !u.master.data, i, u.count);
}

extern "C" void cuda_launch_adamw(cudaStream_t s, const CudaUpdate *u) {
    update_kernel<true><<<blocks_for(u->count, THREADS * LANE), THREADS, 0, s>>>(*u);
}

extern "C" void cuda_launch_sgd(cudaStream_t s, const CudaUpdate *u) {
    update_kernel<false><<<blocks_for(u->count, THREADS * LANE), THREADS, 0, s>>>(*u);
}
