/* attend_delta.cu - preprocessing for attention's backward: delta and lse per query and head, the range of keys per
 * tile of queries. Reference: cpu/attend.c (dot_rows).
 *
 *   delta = sum over D of d_o * o;  lse2 = lse * log2 e, both (rows, heads, padded); behind seq 0 and infinity, so
 *   that probabilities vanish there. LANES lanes a token, a block per head and tile of queries. 2*D numbers read.
 *   tiles(rows, padded / tile): the earliest beginning of the queries that see anything, and the latest of all
 *   (a query that sees nothing counts as behind everything). A warp of the first head's block. With a
 *   prefix, prefixes(rows, padded / tile): its earliest and latest beginning, its latest and earliest end. */
#include "backend/cuda/attend.cuh"

enum { THREADS = 128, TILE = DEVICE_ATTEND_TILE };

DEVICE void find_prefixes(const CudaAttendGrad &g, int64_t row, int tile) {
    int4 edges = make_int4(NEVER, 0, 0, NEVER);
    for (int i = threadIdx.x; i < TILE; i += WARP) {
        int query = tile * TILE + i;
        if (query >= g.a.seq) continue;
        int2 keys = prefix_seen(g.a, row, query);
        edges = make_int4(min(edges.x, keys.x), max(edges.y, keys.x), max(edges.z, keys.y), min(edges.w, keys.y));
    }
    edges = make_int4(warp_min(edges.x), warp_most(edges.y), warp_most(edges.z), warp_min(edges.w));
    if (threadIdx.x == 0) ((int4 *)g.prefixes)[row * (g.padded / TILE) + tile] = edges;
}

DEVICE void find_edges(const CudaAttendGrad &g, int64_t row, int tile) {
    int earliest = NEVER, latest = 0;
    for (int i = threadIdx.x; i < TILE; i += WARP) {
        int query = tile * TILE + i;
        if (query >= g.a.seq) continue;
        int from = keys_seen(g.a, row, query).x;
        earliest = min(earliest, from);
        latest = max(latest, from);
    }
    int2 edges = make_int2(warp_min(earliest), warp_most(latest));
    if (threadIdx.x == 0) ((int2 *)g.tiles)[row * (g.padded / TILE) + tile] = edges;
}

/* lse_query, lse_head: numbers of lse from one to the next. */
template <typename T, int V, int LANES>
__global__ void __launch_bounds__(THREADS) delta_kernel(CudaAttendGrad g, int lse_query, int lse_head) {
    const CudaAttend &a = g.a;
    int lane = threadIdx.x % LANES, head = blockIdx.x % a.heads;
    int64_t row = blockIdx.x / a.heads;
    if (head == 0 && threadIdx.x < WARP) find_edges(g, row, blockIdx.y);
    if (head == 0 && threadIdx.x < WARP && g.a.prefix) find_prefixes(g, row, blockIdx.y);
#pragma unroll 2
    for (int i = threadIdx.x / LANES; i < TILE; i += THREADS / LANES) {
        int query = blockIdx.y * TILE + i;
        int64_t token = row * a.seq + query, at = token * a.o_stride + head * a.dim;
        bool there = query < a.seq;
        float sum = 0;
        for (int c = lane * V; there && c < a.dim; c += LANES * V) {
            float x[V], y[V];
            load<V>(x, (const T *)g.d_o + at + c);
            load<V>(y, (const T *)a.o + at + c);
#pragma unroll
            for (int k = 0; k < V; k++) sum += x[k] * y[k];
        }
#pragma unroll
        for (int d = LANES / 2; d; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
        if (lane) continue;
        int64_t to = (row * a.heads + head) * g.padded + query;
        g.delta[to] = sum;
        int64_t kept = row * a.seq * a.heads + query * lse_query + head * lse_head;
        g.lse2[to] = there ? a.lse[kept] * LOG2_E : INFINITY;
    }
}

template <typename T> static void launch_delta(cudaStream_t s, const CudaAttendGrad *g, bool by_head) {
    dim3 grid((unsigned)(g->a.rows * g->a.heads), (unsigned)(g->padded / TILE));
    bool wide = g->a.dim % 8 == 0 && is_packed(g->d_o) && is_packed(g->a.o);
    auto kernel = !wide             ? delta_kernel<T, 1, 32>
                  : g->a.dim <= 64  ? delta_kernel<T, 8, 8>
                  : g->a.dim <= 128 ? delta_kernel<T, 8, 16>
                                    : delta_kernel<T, 8, 32>;
    kernel<<<grid, THREADS, 0, s>>>(*g, by_head ? 1 : g->a.heads, by_head ? g->a.seq : 1);
}

extern "C" void cuda_launch_attend_delta(cudaStream_t s, const CudaAttendGrad *g, bool by_head) {
    with_real(g->a.format, [&](auto t) { launch_delta<decltype(t)>(s, g, by_head); });
}
