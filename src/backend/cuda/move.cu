/* move.cu - fills by key and element, in any format. Copies are the driver's (kernels.c), decoded tables stand in
 * embed.cu. Reference: cpu/move.c.
 *
 *   constant, normal or uniform numbers: a thread a number; 8-bit moments: a warp per block of 256 numbers, 8 a
 *   lane; int8 rows: a block a row, which draws twice: for the largest number, then for the codes. Bytes written
 *   once. */
#include "backend/cuda/kernels.h"
#include "backend/cuda/moments.cuh"

enum { THREADS = 256 };

/* base/rng.h; cospi instead of cos: it reduces no large arguments, which would take local memory. */
DEVICE float rng_normal(uint64_t key, uint64_t index) {
    uint64_t w = rng_fold(key, index);
    float u = ((float)(uint32_t)(w >> 40) + 1.0f) * 0x1p-24f; /* (0,1] */
    float v = (float)(uint32_t)((w >> 8) & 0xffffff) * 0x1p-24f;
    return sqrtf(-2.0f * logf(u)) * cospif(2.0f * v);
}

DEVICE float drawn(AttrFill f, int64_t i) {
    if (f.kind == FILL_NORMAL) return f.scale * rng_normal(f.key, (uint64_t)i);
    if (f.kind == FILL_UNIFORM) return f.scale * (2.0f * rng_uniform(f.key, (uint64_t)i) - 1.0f);
    return f.scale;
}

template <typename T> DEVICE void put_number(T *p, float x) {
    *p = from_float<T>(x);
}
DEVICE void put_number(double *p, float x) {
    *p = x;
} /* counters and statistics are set, not drawn */
DEVICE void put_number(int64_t *p, float x) {
    *p = (int64_t)x;
}
DEVICE void put_number(int32_t *p, float x) {
    *p = (int32_t)x;
}

template <typename T> __global__ void __launch_bounds__(THREADS) fill_kernel(T *p, int64_t n, AttrFill f) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n) put_number(p + i, drawn(f, i));
}

template <bool VARIANCE> __global__ void __launch_bounds__(THREADS)
    fill_moments_kernel(void *codes, float *scales, int64_t n, AttrFill f) {
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * MOMENT_LANE;
    if (i - threadIdx.x % WARP * MOMENT_LANE >= n) return; /* the whole warp */
    float x[MOMENT_LANE];
#pragma unroll
    for (int k = 0; k < MOMENT_LANE; k++) x[k] = i + k < n ? drawn(f, i + k) : 0.0f;
    if (VARIANCE)
        var8_give<false>((uint8_t *)codes, scales, x, i, n);
    else
        mom8_give<false>((int8_t *)codes, scales, x, i, n);
}

__global__ void __launch_bounds__(THREADS)
    fill_int8_kernel(int8_t *codes, float *scales, int64_t cols, AttrFill f) {
    __shared__ float part[THREADS / WARP];
    int64_t first = (int64_t)blockIdx.x * cols;
    float top = 0;
    for (int64_t c = threadIdx.x; c < cols; c += THREADS) top = fmaxf(top, fabsf(drawn(f, first + c)));
    top = warp_max(top);
    if (threadIdx.x % WARP == 0) part[threadIdx.x / WARP] = top;
    __syncthreads();
    for (int w = 0; w < THREADS / WARP; w++) top = fmaxf(top, part[w]);
    if (threadIdx.x == 0) scales[blockIdx.x] = top / 127.0f;
    float inverse = top > 0 ? 127.0f / top : 0;
    for (int64_t c = threadIdx.x; c < cols; c += THREADS)
        codes[first + c] = (int8_t)__float2int_rn(drawn(f, first + c) * inverse);
}

extern "C" void cuda_launch_fill(cudaStream_t s, CudaNumbers to, float *scales, int64_t rows, int64_t cols,
                                 AttrFill f) {
    int64_t n = rows * cols;
    unsigned blocks = blocks_for(n, THREADS), moment_blocks = blocks_for(n, THREADS * MOMENT_LANE);
    switch (to.format) {
        case FMT_F64: fill_kernel<double><<<blocks, THREADS, 0, s>>>((double *)to.data, n, f); break;
        case FMT_I64: fill_kernel<int64_t><<<blocks, THREADS, 0, s>>>((int64_t *)to.data, n, f); break;
        case FMT_I32: fill_kernel<int32_t><<<blocks, THREADS, 0, s>>>((int32_t *)to.data, n, f); break;
        case FMT_MOM8: fill_moments_kernel<false><<<moment_blocks, THREADS, 0, s>>>(to.data, scales, n, f); break;
        case FMT_VAR8: fill_moments_kernel<true><<<moment_blocks, THREADS, 0, s>>>(to.data, scales, n, f); break;
        case FMT_INT8:
            fill_int8_kernel<<<(unsigned)rows, THREADS, 0, s>>>((int8_t *)to.data, scales, cols, f);
            break;
        default:
            with_real(to.format, [&](auto t) {
                using T = decltype(t);
                fill_kernel<T><<<blocks, THREADS, 0, s>>>((T *)to.data, n, f);
            });
    }
}
