/* product.cu - what is needed around the library's GEMMs: casts, dials, stochastic rounding, dropout, column sums, and
 * a GEMM of our own for what the library cannot do.
 *
 *   multiply     C(N,M) = alpha * A B + add + bias, any formats and strides; 64 x 64 tiles of C, 16 x 16 threads
 *                with 4 x 4 numbers each, the inner dimension 16 at a time          reference: cpu/product.c
 *   cast         to[i] = from[i]; 2 numbers moved                                   reference: cpu_load, cpu_store
 *   scale        x[i] *= beta (dial); nothing moved when it is 1, x written when it is 0
 *   accumulate   dst[i] = beta*dst[i] + src[i], bf16 rounded at random; 3 numbers   reference: cpu_accumulate
 *   drop         to[i] = kept ? from[i] : 0; 2 numbers moved                        reference: product_drop
 *   drop_add     to = so_far + sum_g (kept_g ? part_g / (1-p) : 0); 2 + groups      reference: dx_tile
 *   column_sums  db(M) = beta*db + sum over n of dy(n,M); dy read once              reference: sum_columns
 *
 * Flat kernels: 256 threads, each W numbers (8 where addresses and sizes allow 16-byte accesses, else 1). */
#include "backend/cuda/parts.cuh"
#include "backend/cuda/product_kernels.h"
#include "backend/cuda/vectors.cuh"

enum { THREADS = 256, WIDE = 8 };

static bool is_wide(const void *p, int64_t n) { return p == NULL || (is_packed(p) && n % WIDE == 0); }

template <int W> DEVICE int64_t my_first(void) { return ((int64_t)blockIdx.x * THREADS + threadIdx.x) * W; }

/* ---- cast ---- */

template <typename To, typename From, int W> __global__ void __launch_bounds__(THREADS)
    cast_kernel(To *to, const From *from, int64_t n) {
    int64_t i = my_first<W>();
    if (i >= n) return;
    float x[W];
    load<W>(x, from + i);
    store<W>(to + i, x);
}

template <typename To, typename From> static void cast(cudaStream_t s, To *to, const From *from, int64_t n) {
    if (is_wide(to, n) && is_wide(from, n))
        cast_kernel<To, From, WIDE><<<blocks_for(n, THREADS * WIDE), THREADS, 0, s>>>(to, from, n);
    else
        cast_kernel<To, From, 1><<<blocks_for(n, THREADS), THREADS, 0, s>>>(to, from, n);
}

extern "C" void cuda_launch_cast(cudaStream_t s, CudaNumbers to, CudaNumbers from, int64_t n) {
    with_real(to.format, [&](auto t) {
        with_real(from.format,
                  [&](auto f) { cast(s, (decltype(t) *)to.data, (const decltype(f) *)from.data, n); });
    });
}

/* ---- scale ---- */

template <typename T, int W> __global__ void __launch_bounds__(THREADS)
    scale_kernel(T *x, int64_t n, const float *beta) {
    float by = *beta, v[W];
    int64_t i = my_first<W>();
    if (by == 1.0f || i >= n) return;
#pragma unroll
    for (int k = 0; k < W; k++) v[k] = 0;
    if (by != 0.0f) load<W>(v, x + i);
#pragma unroll
    for (int k = 0; k < W; k++) v[k] *= by;
    store<W>(x + i, v);
}

extern "C" void cuda_launch_scale(cudaStream_t s, CudaNumbers x, int64_t n, const float *beta) {
    with_real(x.format, [&](auto t) {
        using T = decltype(t);
        if (is_wide(x.data, n))
            scale_kernel<T, WIDE><<<blocks_for(n, THREADS * WIDE), THREADS, 0, s>>>((T *)x.data, n, beta);
        else
            scale_kernel<T, 1><<<blocks_for(n, THREADS), THREADS, 0, s>>>((T *)x.data, n, beta);
    });
}

/* ---- accumulate ---- */

template <typename T, int W> __global__ void __launch_bounds__(THREADS)
    accumulate_kernel(T *dst, int64_t first, const float *src, int64_t n, const float *beta, CudaKey key) {
    chain_wait();
    int64_t i = my_first<W>();
    if (i >= n) return;
    float x[W];
    load<W>(x, src + i);
    accumulate<W>(dst, first + i, x, read_beta(beta), draw_key(key));
}

extern "C" void cuda_launch_accumulate(cudaStream_t s, CudaNumbers dst, int64_t first, const float *src, int64_t n,
                                       const float *beta, CudaKey key) {
    with_real(dst.format, [&](auto t) {
        using T = decltype(t);
        T *to = (T *)dst.data;
        if (is_wide(to, first) && is_wide(src, n))
            cuda_launch_chained(s, accumulate_kernel<T, WIDE>, blocks_for(n, THREADS * WIDE), THREADS, 0, to, first,
                                src, n, beta, key);
        else
            cuda_launch_chained(s, accumulate_kernel<T, 1>, blocks_for(n, THREADS), THREADS, 0, to, first, src, n, beta,
                                key);
    });
}

/* ---- dropout ---- */

/* The place of a number of these rows among the draws: (first_token + token) * channels + channel. */
DEVICE uint64_t drop_first(const CudaDrop &d) {
    int64_t token = d.first_row + (d.key.clock ? d.key.clock[CUDA_CLOCK_FIRST_TOKEN] : 0);
    return (uint64_t)(token * d.channels);
}

template <typename T, int W> __global__ void __launch_bounds__(THREADS)
    drop_kernel(T *to, const T *from, int64_t n, CudaDrop d) {
    int64_t i = my_first<W>();
    if (i >= n) return;
    float x[W];
    uint64_t key = drop_key(d.key), at = drop_first(d) + (uint64_t)i;
    load<W>(x, from + i);
#pragma unroll
    for (int k = 0; k < W; k++) x[k] = rng_uniform(key, at + k) >= d.p ? x[k] : 0.0f;
    store<W>(to + i, x);
}

extern "C" void cuda_launch_drop(cudaStream_t s, CudaNumbers to, const void *from, int64_t rows,
                                 const CudaDrop *d) {
    int64_t n = rows * d->channels;
    with_real(to.format, [&](auto t) {
        using T = decltype(t);
        if (is_wide(to.data, n) && is_wide(from, n))
            drop_kernel<T, WIDE>
                <<<blocks_for(n, THREADS * WIDE), THREADS, 0, s>>>((T *)to.data, (const T *)from, n, *d);
        else
            drop_kernel<T, 1><<<blocks_for(n, THREADS), THREADS, 0, s>>>((T *)to.data, (const T *)from, n, *d);
    });
}

template <typename T, int W> __global__ void __launch_bounds__(THREADS)
    drop_add_kernel(T *to, const T *so_far, const float *part, int64_t n, int groups, CudaDrop d) {
    int64_t i = my_first<W>();
    if (i >= n) return;
    float total[W], x[W], scale = 1.0f / (1.0f - d.p);
    uint64_t at = drop_first(d) + (uint64_t)i;
#pragma unroll
    for (int k = 0; k < W; k++) total[k] = 0;
    if (so_far) load<W>(total, so_far + i);
    for (int g = 0; g < groups; g++) {
        d.key.part = g;
        uint64_t key = drop_key(d.key);
        load<W>(x, part + g * n + i);
#pragma unroll
        for (int k = 0; k < W; k++) total[k] += rng_uniform(key, at + k) >= d.p ? x[k] * scale : 0.0f;
    }
    store<W>(to + i, total);
}

extern "C" void cuda_launch_drop_add(cudaStream_t s, CudaNumbers to, const void *so_far, const float *part,
                                     int64_t rows, int groups, const CudaDrop *d) {
    int64_t n = rows * d->channels;
    with_real(to.format, [&](auto t) {
        using T = decltype(t);
        T *y = (T *)to.data;
        const T *x = (const T *)so_far;
        if (is_wide(y, n) && is_wide(x, n) && is_wide(part, n))
            drop_add_kernel<T, WIDE><<<blocks_for(n, THREADS * WIDE), THREADS, 0, s>>>(y, x, part, n, groups, *d);
        else
            drop_add_kernel<T, 1><<<blocks_for(n, THREADS), THREADS, 0, s>>>(y, x, part, n, groups, *d);
    });
}

/* ---- column sums: a block owns W columns a lane of one part of the rows; parts.cuh adds the parts ---- */

enum { SUM_LINES = 16 }; /* rows a block reads at a time */

template <typename T, int W> __global__ void __launch_bounds__(WARP *SUM_LINES)
    column_parts_kernel(float *parts, const T *dy, int64_t rows, int64_t cols, int64_t rows_a_part) {
    __shared__ float line[SUM_LINES][WARP * W];
    int64_t left = (int64_t)blockIdx.x * WARP * W, col = left + threadIdx.x * W;
    int64_t first = (int64_t)blockIdx.y * rows_a_part, end = first + rows_a_part < rows ? first + rows_a_part : rows;
    float sum[W] = {}, x[W];
    chain_wait();
    if (col < cols) {
#pragma unroll 8
        for (int64_t row = first + threadIdx.y; row < end; row += SUM_LINES) {
            load<W>(x, dy + row * cols + col);
#pragma unroll
            for (int k = 0; k < W; k++) sum[k] += x[k];
        }
    }
#pragma unroll
    for (int k = 0; k < W; k++) line[threadIdx.y][k * WARP + threadIdx.x] = sum[k]; /* columns of one k side by side */
    __syncthreads();
    int i = threadIdx.y * WARP + threadIdx.x;
    int64_t mine = left + i % WARP * W + i / WARP;
    if (i >= WARP * W || mine >= cols) return;
    float total = 0;
#pragma unroll
    for (int k = 0; k < SUM_LINES; k++) total += line[k][i];
    parts[blockIdx.y * cols + mine] = total;
}

extern "C" void cuda_launch_column_sums(cudaStream_t s, const CudaColumnSums *c) {
    unsigned n_parts = blocks_for(c->rows, c->rows_a_part);
    dim3 block(WARP, SUM_LINES);
    with_real(c->dy.format, [&](auto t) {
        using T = decltype(t);
        bool wide = is_wide(c->dy.data, c->cols);
        auto kernel = wide ? column_parts_kernel<T, WIDE> : column_parts_kernel<T, 1>;
        dim3 grid(blocks_for(c->cols, WARP * (wide ? WIDE : 1)), n_parts);
        cuda_launch_chained(s, kernel, grid, block, 0, c->parts, (const T *)c->dy.data, c->rows, c->cols,
                            c->rows_a_part);
    });
    join_parts(s, c->db, c->parts, n_parts, c->cols, c->cols, c->beta, c->key);
}

/* ---- a product of our own ---- */

enum { TILE = 64, STEP = 16, SIDE = 16, EACH = TILE / SIDE };

DEVICE float number_at(const CudaMatrix &m, int64_t row, int64_t col) { /* 0 outside */
    if (row >= m.rows || col >= m.cols) return 0;
    int64_t i = row * m.ld + col;
    if (m.format == FMT_F32) return ((const float *)m.data)[i];
    return m.format == FMT_BF16 ? to_float(((const Bf16 *)m.data)[i]) : to_float(((const F16 *)m.data)[i]);
}

DEVICE void put_number(const CudaMatrix &m, int64_t row, int64_t col, float x) {
    int64_t i = row * m.ld + col;
    if (m.format == FMT_F32)
        ((float *)m.data)[i] = x;
    else if (m.format == FMT_BF16)
        ((Bf16 *)m.data)[i] = from_float<Bf16>(x);
    else
        ((F16 *)m.data)[i] = from_float<F16>(x);
}

DEVICE float starting_at(const CudaProduct &p, int64_t row, int64_t col) {
    float x = p.add.data ? number_at(p.add, row, col) : 0.0f;
    if (!p.bias) return x;
    CudaMatrix bias = {(void *)p.bias, p.c.format, 1, p.c.cols, p.c.cols};
    return x + number_at(bias, 0, col);
}

/* Thread (x,y) owns rows y + SIDE*i and columns x + SIDE*j of the tile. */
__global__ void __launch_bounds__(SIDE *SIDE, 2) multiply_kernel(const __grid_constant__ CudaProduct p) {
    __shared__ float a[STEP][TILE + 1], b[STEP][TILE + 1];
    int64_t row = (int64_t)blockIdx.y * TILE, col = (int64_t)blockIdx.x * TILE,
            inner = p.a_transposed ? p.a.rows : p.a.cols;
    int x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;
    float sum[EACH][EACH] = {};
    for (int64_t k = 0; k < inner; k += STEP) {
        for (int i = threadIdx.x; i < TILE * STEP; i += SIDE * SIDE) {
            int lane = i / STEP, step = i % STEP, lane_transposed = i % TILE,
                step_transposed = i / TILE; /* along the stored rows */
            if (p.a_transposed)
                a[step_transposed][lane_transposed] = number_at(p.a, k + step_transposed, row + lane_transposed);
            else
                a[step][lane] = number_at(p.a, row + lane, k + step);
            if (p.b_transposed)
                b[step][lane] = number_at(p.b, col + lane, k + step);
            else
                b[step_transposed][lane_transposed] = number_at(p.b, k + step_transposed, col + lane_transposed);
        }
        __syncthreads();
#pragma unroll 4
        for (int step = 0; step < STEP; step++) {
            float left[EACH], right[EACH];
#pragma unroll
            for (int i = 0; i < EACH; i++) left[i] = a[step][y + SIDE * i], right[i] = b[step][x + SIDE * i];
#pragma unroll
            for (int i = 0; i < EACH; i++)
#pragma unroll
                for (int j = 0; j < EACH; j++) sum[i][j] += left[i] * right[j];
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            int64_t r = row + y + SIDE * i, c = col + x + SIDE * j;
            if (r < p.c.rows && c < p.c.cols) put_number(p.c, r, c, p.alpha * sum[i][j] + starting_at(p, r, c));
        }
}

extern "C" void cuda_launch_multiply(cudaStream_t s, const CudaProduct *p) {
    dim3 grid(blocks_for(p->c.cols, TILE), blocks_for(p->c.rows, TILE));
    multiply_kernel<<<grid, SIDE * SIDE, 0, s>>>(*p);
}

/* ---- is there machine code for this card? ---- */

extern "C" cudaError_t cuda_kernels_run_here(void) {
    cudaFuncAttributes about;
    cudaError_t status = cudaFuncGetAttributes(&about, multiply_kernel);
    cudaGetLastError();
    return status;
}
