/* embed.cu - embedding lookup (gather by token id), dequantisation of whole tables, and the gradient (scatter-add).
 * Reference: cpu/embed.c, cpu/move.c (decode).
 *
 * rows: y(N,C) = table[id]: a block a row, 16 bytes a thread at a time.                2 numbers moved
 * embed_grad: dtable(V,C) = beta*dtable + rows of dx summed by id. Places of id_order with equal ids are a run,
 *   summed by one owner in one order: runs of up to SHORT places by a warp each, one place after another; longer
 *   ones (padding!) by a block per 32*V columns, whose 32 warps take every 32nd place each and add up in order.
 *   A run is summed by the warp whose place begins it, a long one by the block whose multiple of SHORT is
 *   the first behind its beginning. N + rows that have a token are moved; with beta 0 all of dtable is cleared
 *   first. */
#include <type_traits>

#include "backend/cuda/kernels.h"
#include "backend/cuda/vectors.cuh"

enum { WIDE = 8, MOST_THREADS = 512, SHORT = 32, SHORT_WARPS = 8, LONG_WARPS = 32, CLEAR_THREADS = 256 };
static const int64_t CLEAR_BLOCKS = 4096;

/* ---- rows ---- */

struct Int8 {}; /* quantised rows carry their scales (ir/format.h) */
struct Nf4 {};

template <int V, typename W>
DEVICE void load_row(float (&x)[V], const char *row, const CudaRows &, const float *, int c, W) {
    load<V>(x, (const W *)row + c);
}

template <int V> DEVICE void load_row(float (&x)[V], const char *row, const CudaRows &r, const float *, int c, Int8) {
    const int8_t *p = (const int8_t *)row + c;
    float scale = *(const float *)(row + r.scale_at);
    if constexpr (V == 8) {
        uint2 w = *(const uint2 *)p;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            x[k] = (float)(int8_t)(w.x >> 8 * k) * scale;
            x[k + 4] = (float)(int8_t)(w.y >> 8 * k) * scale;
        }
    } else {
        x[0] = (float)*p * scale;
    }
}

template <int V>
DEVICE void load_row(float (&x)[V], const char *row, const CudaRows &r, const float *level, int c, Nf4) {
    const uint8_t *blocks = (const uint8_t *)row + r.blocks_at;
    float most = (float)blocks[c / FORMAT_NF4_BLOCK] * *(const float *)(row + r.scale_at);
    if constexpr (V == 8) {
        uint32_t w = *(const uint32_t *)(row + c / 2);
#pragma unroll
        for (int k = 0; k < 8; k++) x[k] = level[w >> 4 * k & 15] * most;
    } else {
        x[0] = level[((const uint8_t *)row)[c / 2] >> 4 * (c % 2) & 15] * most;
    }
}

struct Levels {
    float at[16];
};

/* ids NULL: row i is row i. An id that the table lacks gives NaN: the verdict stops the step. */
template <typename T, typename W, int V>
__global__ void __launch_bounds__(MOST_THREADS) rows_kernel(T *y, const char *table, CudaRows r, Levels levels) {
    __shared__ float level[16];
    if constexpr (std::is_same<W, Nf4>::value) {
        if (threadIdx.x == 0)
#pragma unroll
            for (int k = 0; k < 16; k++) level[k] = levels.at[k];
        __syncthreads();
    }
    int64_t row = r.ids ? r.ids[blockIdx.x] : blockIdx.x;
    bool known = row >= 0 && row < r.table_rows;
    for (int c = threadIdx.x * V; c < r.cols; c += blockDim.x * V) {
        float x[V];
        if (known) {
            load_row<V>(x, table + row * r.row_bytes, r, level, c, W());
        } else {
#pragma unroll
            for (int k = 0; k < V; k++) x[k] = __uint_as_float(0x7fc00000u);
        }
        store<V>(y + (int64_t)blockIdx.x * r.cols + c, x);
    }
}

template <typename T, typename W> static void launch_rows(cudaStream_t s, T *y, const CudaRows *r, W) {
    const char *table = (const char *)r->table.data;
    bool wide = r->cols % WIDE == 0 && is_packed(y) && is_packed(table);
    int threads = (int)((r->cols / (wide ? WIDE : 1) + WARP - 1) / WARP * WARP);
    threads = threads < WARP ? WARP : threads > MOST_THREADS ? MOST_THREADS : threads;
    Levels levels;
    for (int k = 0; k < 16; k++) levels.at[k] = format_nf4_levels[k];
    auto kernel = wide ? rows_kernel<T, W, WIDE> : rows_kernel<T, W, 1>;
    kernel<<<(unsigned)r->rows, threads, 0, s>>>(y, table, *r, levels);
}

extern "C" void cuda_launch_rows(cudaStream_t s, CudaNumbers y, const CudaRows *r) {
    with_real(y.format, [&](auto t) {
        using T = decltype(t);
        if (r->table.format == FMT_INT8) launch_rows(s, (T *)y.data, r, Int8());
        else if (r->table.format == FMT_NF4) launch_rows(s, (T *)y.data, r, Nf4());
        else with_real(r->table.format, [&](auto u) { launch_rows(s, (T *)y.data, r, u); });
    });
}

/* ---- the gradient ---- */

template <typename G, int V> __global__ void __launch_bounds__(CLEAR_THREADS)
    clear_kernel(G *dtable, int64_t n, const float *beta) {
    if (read_beta(beta) != 0.0f) return;
    int64_t each = (int64_t)gridDim.x * CLEAR_THREADS * V,
            i = ((int64_t)blockIdx.x * CLEAR_THREADS + threadIdx.x) * V;
    float zero[V] = {};
    for (; i < n; i += each) store<V>(dtable + i, zero);
}

DEVICE int32_t id_at(const CudaEmbedGrad &e, int64_t place) {
    return e.ids[e.order[place]];
}

template <typename T, typename G, int V> __global__ void __launch_bounds__(SHORT_WARPS *WARP)
    short_runs_kernel(G *dtable, const T *dx, CudaEmbedGrad e) {
    int lane = threadIdx.x % WARP;
    int64_t place = (int64_t)blockIdx.x * SHORT_WARPS + threadIdx.x / WARP;
    if (place >= e.tokens) return;
    int32_t id = id_at(e, place);
    if (id < 0 || id >= e.table_rows) return;
    if (place > 0 && id_at(e, place - 1) == id) return;
    if (place + SHORT < e.tokens && id_at(e, place + SHORT) == id) return; /* a long run */
    int token = place + lane < e.tokens ? e.order[place + lane] : -1;
    unsigned same = __ballot_sync(~0u, token >= 0 && e.ids[token < 0 ? 0 : token] == id);
    int length = same == ~0u ? WARP : __ffs((int)~same) - 1;
    float beta = read_beta(e.beta);
    uint64_t key = draw_key(e.key);
    for (int from = 0; from < e.cols; from += WARP * V) {
        int c = from + lane * V;
        float sum[V], x[V];
#pragma unroll
        for (int k = 0; k < V; k++) sum[k] = 0;
        for (int j = 0; j < length; j++) {
            int64_t row = __shfl_sync(~0u, token, j);
            if (c >= e.cols) continue;
            load<V>(x, dx + row * e.cols + c);
#pragma unroll
            for (int k = 0; k < V; k++) sum[k] += x[k];
        }
        if (c < e.cols) accumulate<V>(dtable, (int64_t)id * e.cols + c, sum, beta, key);
    }
}

/* The first place of the long run this block owns, or -1. */
DEVICE int64_t long_run(const CudaEmbedGrad &e, int64_t multiple) {
    if (multiple >= e.tokens) return -1;
    int lane = threadIdx.x % WARP;
    int32_t id = id_at(e, multiple);
    int64_t before = multiple - 1 - lane;
    unsigned same = __ballot_sync(~0u, id_at(e, before) == id); /* the SHORT places in front; multiple >= SHORT */
    int back = same == ~0u ? WARP : __ffs((int)~same) - 1;
    int64_t begin = multiple - back;
    if (back == 0 || (back == WARP && begin > 0 && id_at(e, begin - 1) == id)) return -1; /* another block's */
    if (id < 0 || id >= e.table_rows) return -1;
    return begin + SHORT < e.tokens && id_at(e, begin + SHORT) == id ? begin : -1;
}

template <typename T, typename G, int V> __global__ void __launch_bounds__(LONG_WARPS *WARP)
    long_runs_kernel(G *dtable, const T *dx, CudaEmbedGrad e) {
    __shared__ float part[LONG_WARPS][WARP * V];
    int64_t begin = long_run(e, ((int64_t)blockIdx.x + 1) * SHORT);
    if (begin < 0) return;
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, c = (blockIdx.y * WARP + lane) * V;
    int32_t id = id_at(e, begin);
    float sum[V], x[V];
#pragma unroll
    for (int k = 0; k < V; k++) sum[k] = 0;
    for (int64_t j = begin + warp; j < e.tokens; j += LONG_WARPS) {
        int64_t row = e.order[j];
        if (e.ids[row] != id) break;
        if (c >= e.cols) continue;
        load<V>(x, dx + row * e.cols + c);
#pragma unroll
        for (int k = 0; k < V; k++) sum[k] += x[k];
    }
#pragma unroll
    for (int k = 0; k < V; k++) part[warp][lane * V + k] = sum[k];
    __syncthreads();
    c = blockIdx.y * WARP * V + threadIdx.x;
    if (threadIdx.x >= WARP * V || c >= e.cols) return;
    float total[1] = {0};
    for (int w = 0; w < LONG_WARPS; w++) total[0] += part[w][threadIdx.x];
    accumulate<1>(dtable, (int64_t)id * e.cols + c, total, read_beta(e.beta), draw_key(e.key));
}

template <typename T, typename G, int V>
static void launch_grad(cudaStream_t s, G *dtable, const T *dx, const CudaEmbedGrad *e) {
    int64_t n = e->table_rows * e->cols, wanted = (n / V + CLEAR_THREADS - 1) / CLEAR_THREADS;
    unsigned blocks = (unsigned)(wanted < 1 ? 1 : wanted > CLEAR_BLOCKS ? CLEAR_BLOCKS : wanted);
    clear_kernel<G, V><<<blocks, CLEAR_THREADS, 0, s>>>(dtable, n, e->beta);
    short_runs_kernel<T, G, V><<<blocks_for(e->tokens, SHORT_WARPS), SHORT_WARPS * WARP, 0, s>>>(dtable, dx, *e);
    if (e->tokens <= SHORT) return;
    dim3 grid(blocks_for(e->tokens, SHORT), blocks_for(e->cols, WARP * V));
    long_runs_kernel<T, G, V><<<grid, LONG_WARPS * WARP, 0, s>>>(dtable, dx, *e);
}

extern "C" void cuda_launch_embed_grad(cudaStream_t s, CudaNumbers dtable, CudaNumbers dx,
                                       const CudaEmbedGrad *e) {
    with_real(dtable.format, [&](auto g) {
        with_real(dx.format, [&](auto t) {
            using G = decltype(g);
            using T = decltype(t);
            if (e->cols % WIDE == 0 && is_packed(dtable.data) && is_packed(dx.data))
                launch_grad<T, G, WIDE>(s, (G *)dtable.data, (const T *)dx.data, e);
            else
                launch_grad<T, G, 1>(s, (G *)dtable.data, (const T *)dx.data, e);
        });
    });
}
