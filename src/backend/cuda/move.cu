/* move.cu - fills by key and element, in any format. Copies are the driver's (kernels.c), decoded tables stand in
 * embed.cu. Reference: cpu/move.c.
 *
 *   constant, normal or uniform numbers: a thread a number; 8-bit moments: a warp per block of 256 numbers, 8 a
 *   lane; quantised rows: a block a row, which draws twice: for the largest numbers, then for the codes. Bytes written
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
/* Statistics and counters are set, not drawn. */
DEVICE void put_number(double *p, float x) {
    *p = x;
}
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
        var8_encode<false>((uint8_t *)codes, scales, x, i, n);
    else
        mom8_encode<false>((int8_t *)codes, scales, x, i, n);
}

/* The largest |number| of the block's threads, given to all; part: shared, a warp's each. */
DEVICE float block_max(float x, float *part) {
    x = warp_max(x);
    if (threadIdx.x % WARP == 0) part[threadIdx.x / WARP] = x;
    __syncthreads();
    for (int w = 0; w < THREADS / WARP; w++) x = fmaxf(x, part[w]);
    return x;
}

__global__ void __launch_bounds__(THREADS)
    fill_int8_kernel(char *rows, int64_t row_bytes, int scale_at, int64_t cols, AttrFill f) {
    __shared__ float part[THREADS / WARP];
    int64_t first = (int64_t)blockIdx.x * cols;
    char *row = rows + blockIdx.x * row_bytes;
    float top = 0;
    for (int64_t c = threadIdx.x; c < cols; c += THREADS) top = fmaxf(top, fabsf(drawn(f, first + c)));
    top = block_max(top, part);
    if (threadIdx.x == 0) *(float *)(row + scale_at) = top / 127.0f;
    float inverse = top > 0 ? 127.0f / top : 0;
    for (int64_t c = threadIdx.x; c < cols; c += THREADS)
        ((int8_t *)row)[c] = (int8_t)__float2int_rn(drawn(f, first + c) * inverse);
}

struct Borders { /* halfway between two levels */
    float at[15];
};

DEVICE int nf4_nearest(float x, const Borders &b) {
    int n = 0;
#pragma unroll
    for (int k = 0; k < 15; k++) n += x > b.at[k];
    return n;
}

/* A warp takes a block of 64 at a time, two neighbours a lane, and draws twice: for the maxima, then for the codes. */
__global__ void __launch_bounds__(THREADS) fill_nf4_kernel(char *rows, int64_t row_bytes, int scale_at, int blocks_at,
                                                           int64_t cols, AttrFill f, Borders borders) {
    __shared__ float part[THREADS / WARP];
    int64_t first = (int64_t)blockIdx.x * cols, lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    uint8_t *row = (uint8_t *)rows + blockIdx.x * row_bytes;
    float top = 0;
    for (int64_t c = threadIdx.x; c < cols; c += THREADS) top = fmaxf(top, fabsf(drawn(f, first + c)));
    float scale = block_max(top, part) / 255.0f;
    if (threadIdx.x == 0) *(float *)(row + scale_at) = scale;
    for (int64_t c = warp * FORMAT_NF4_BLOCK; c < cols; c += THREADS / WARP * FORMAT_NF4_BLOCK) {
        int64_t i = c + 2 * lane;
        float x = i < cols ? drawn(f, first + i) : 0, y = i + 1 < cols ? drawn(f, first + i + 1) : 0;
        float most = warp_max(fmaxf(fabsf(x), fabsf(y)));
        int byte = scale > 0 ? __float2int_rn(most / scale) : 0;
        float inverse = byte ? 1.0f / ((float)byte * scale) : 0;
        if (lane == 0) row[blocks_at + c / FORMAT_NF4_BLOCK] = (uint8_t)byte;
        int low = nf4_nearest(x * inverse, borders), high = i + 1 < cols ? nf4_nearest(y * inverse, borders) : 0;
        if (i < cols) row[i / 2] = (uint8_t)(low | high << 4);
    }
}

static void fill_quantised(cudaStream_t s, CudaNumbers to, int64_t rows, int64_t cols, AttrFill f) {
    int64_t row_bytes = format_row_bytes(to.format, cols);
    int scale_at = (int)format_row_scale(to.format, cols), blocks_at = (int)format_nf4_blocks(cols);
    Borders borders;
    for (int k = 0; k < 15; k++) borders.at[k] = 0.5f * (format_nf4_levels[k] + format_nf4_levels[k + 1]);
    if (to.format == FMT_INT8)
        fill_int8_kernel<<<(unsigned)rows, THREADS, 0, s>>>((char *)to.data, row_bytes, scale_at, cols, f);
    else
        fill_nf4_kernel<<<(unsigned)rows, THREADS, 0, s>>>((char *)to.data, row_bytes, scale_at, blocks_at, cols, f,
                                                           borders);
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
        case FMT_NF4: fill_quantised(s, to, rows, cols, f); break;
        default:
            with_real(to.format, [&](auto t) {
                using T = decltype(t);
                fill_kernel<T><<<blocks, THREADS, 0, s>>>((T *)to.data, n, f);
            });
    }
}
