/* attend_plain.cu - attention without tensor cores: fp32 arithmetic, any format, heads of up to 256 numbers. The
 * kernel of fp32 runs, of unusual head sizes and of cards before sm_80. Reference: cpu/attend.c.
 *
 * The formulas stand in attend.cu and attend_grad.cu. LANES = 8 threads share a row: each computes every 8th
 * score of a tile and owns every 8th group of four of the D sums, so the numbers a thread holds are D/8 a sum.
 * Tiles lie in shared memory as fp32, rows padded by 16 bytes. MOST is D rounded up to 64, 128 or 256; columns
 * behind D are zeros. The backward kernel runs twice, as on tensor cores: keys own (dK, dV) and queries own
 * (dQ). Bytes: as there. PREFIX: a query sees keys in front of its own range too (attend.cuh). */
#include "backend/cuda/attend.cuh"

enum { LANES = 8, PLAIN_SHARED = 48 * 1024 };

template <int MOST> struct Shape {
    static constexpr int STRIDE = MOST + 4, GROUPS = MOST / (4 * LANES); /* GROUPS of four sums a thread owns */
    static constexpr int ROWS = 32, KEYS = MOST <= 128 ? 32 : 16;        /* forward: queries and keys of a tile */
    static constexpr int OWN = MOST <= 128 ? 32 : 16;                    /* backward: rows of either side */
    static constexpr int OTHER = MOST <= 64 ? 32 : MOST <= 128 ? 16 : 8;
    static constexpr int FORWARD = (ROWS + KEYS) * STRIDE + ROWS * (KEYS + 1);
    static constexpr int BACKWARD = 2 * (OWN + OTHER) * STRIDE + 2 * OWN * (OTHER + 1);
};

/* Rows [first, first+ROWS) of a head into a tile; rows from `end` on and columns from dim on become zeros. */
template <typename T, int MOST, int ROWS, int THREADS>
DEVICE void fill_tile(float *tile, const T *head, int stride, int dim, int first, int end) {
    for (int i = threadIdx.x; i < ROWS * MOST; i += THREADS) {
        int row = i / MOST, col = i % MOST;
        bool there = first + row < end && col < dim;
        tile[row * Shape<MOST>::STRIDE + col] =
            there ? to_float(head[(int64_t)(first + row) * stride + col]) : 0.0f;
    }
}

template <int MOST> DEVICE float dot(const float *x, const float *y) {
    float sum = 0;
#pragma unroll 8
    for (int c = 0; c < MOST; c += 4) {
        float4 a = *(const float4 *)(x + c), b = *(const float4 *)(y + c);
        sum += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
    }
    return sum;
}

/* sum[g] += weight * row, of the groups of four this lane owns */
template <int MOST>
DEVICE void add_row(float (&sum)[Shape<MOST>::GROUPS][4], float weight, const float *row, int lane) {
#pragma unroll
    for (int g = 0; g < Shape<MOST>::GROUPS; g++) {
        float4 v = *(const float4 *)(row + (g * LANES + lane) * 4);
        sum[g][0] += weight * v.x, sum[g][1] += weight * v.y, sum[g][2] += weight * v.z, sum[g][3] += weight * v.w;
    }
}

template <typename T, int MOST>
DEVICE void give_row(T *to, const float (&sum)[Shape<MOST>::GROUPS][4], float by, int dim, int lane) {
#pragma unroll
    for (int g = 0; g < Shape<MOST>::GROUPS; g++)
#pragma unroll
        for (int c = 0; c < 4; c++) {
            int col = (g * LANES + lane) * 4 + c;
            if (col < dim) to[col] = from_float<T>(sum[g][c] * by);
        }
}

/* ---- forward ---- */

template <typename T, int MOST, bool PREFIX>
__global__ void __launch_bounds__(256, 1) attend_plain_kernel(CudaAttend a) {
    using S = Shape<MOST>;
    constexpr int ROWS = S::ROWS, KEYS = S::KEYS, THREADS = ROWS * LANES;
    extern __shared__ __align__(16) float memory[];
    __shared__ int edge[2][THREADS / WARP], also[2][THREADS / WARP];
    float *q = memory, *kv = q + ROWS * S::STRIDE, *p = kv + KEYS * S::STRIDE;
    int r = threadIdx.x / LANES, lane = threadIdx.x % LANES, first = (gridDim.y - 1 - blockIdx.y) * ROWS;
    int head = blockIdx.x % a.heads;
    int64_t row = blockIdx.x / a.heads, token = row * a.seq + first + r;
    bool there = first + r < a.seq;
    const T *heads_k = (const T *)a.k + key_row(a, row) * a.keys * a.kv_stride + head / (a.heads / a.kv_heads) * a.dim;
    fill_tile<T, MOST, ROWS, THREADS>(q, (const T *)a.q + row * a.seq * a.q_stride + head * a.dim, a.q_stride,
                                      a.dim, first, a.seq);

    int2 seen = there ? keys_seen(a, row, first + r) : make_int2(NEVER, 0);
    int2 more = PREFIX && there ? prefix_seen(a, row, first + r) : make_int2(NEVER, 0);
    int begin = warp_min(seen.x), end = warp_most(seen.y), from = 0, gap = 0;
    if (PREFIX) from = warp_min(more.x), gap = warp_most(more.y);
    if (threadIdx.x % WARP == 0) edge[0][threadIdx.x / WARP] = begin, edge[1][threadIdx.x / WARP] = end;
    if (PREFIX && threadIdx.x % WARP == 0) also[0][threadIdx.x / WARP] = from, also[1][threadIdx.x / WARP] = gap;
    __syncthreads();
    for (int w = 0; w < THREADS / WARP; w++) {
        begin = min(begin, edge[0][w]), end = max(end, edge[1][w]);
        if (PREFIX) from = min(from, also[0][w]), gap = max(gap, also[1][w]);
    }
    int behind = begin; /* no query sees what lies between a prefix and the earliest of their own ranges */
    if (PREFIX) begin = min(begin, from), end = max(end, gap);

    float o[S::GROUPS][4] = {}, top = -INFINITY, sum = 0, scale2 = a.scale * LOG2_E;
    for (int key = begin < end ? begin / KEYS * KEYS : end; key < end; key += KEYS) {
        if (PREFIX && key >= gap && key + KEYS <= behind) continue;
        float s[KEYS / LANES], now = top;
        fill_tile<T, MOST, KEYS, THREADS>(kv, heads_k, a.kv_stride, a.dim, key, end);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < KEYS / LANES; i++) {
            int at = i * LANES + lane;
            s[i] = dot<MOST>(q + r * S::STRIDE, kv + at * S::STRIDE) * scale2;
            bool sees = key + at >= seen.x && key + at < seen.y;
            if (PREFIX) sees = sees || (key + at >= more.x && key + at < more.y);
            if (!sees) s[i] = -INFINITY;
            now = fmaxf(now, s[i]);
        }
#pragma unroll
        for (int d = LANES / 2; d; d /= 2) now = fmaxf(now, __shfl_xor_sync(~0u, now, d));
        float off = now == -INFINITY ? 0.0f : now, rescale = exp2f(top - off);
        top = now;
        sum *= rescale;
#pragma unroll
        for (int i = 0; i < KEYS / LANES; i++) {
            s[i] = exp2f(s[i] - off);
            sum += s[i];
            p[r * (KEYS + 1) + i * LANES + lane] = s[i];
        }
#pragma unroll
        for (int g = 0; g < S::GROUPS; g++)
#pragma unroll
            for (int c = 0; c < 4; c++) o[g][c] *= rescale;
        __syncthreads(); /* K has been read, P is there */
        fill_tile<T, MOST, KEYS, THREADS>(kv, heads_k + a.v_offset, a.kv_stride, a.dim, key, end);
        __syncthreads();
        for (int i = 0; i < KEYS; i++) add_row<MOST>(o, p[r * (KEYS + 1) + i], kv + i * S::STRIDE, lane);
        __syncthreads();
    }
#pragma unroll
    for (int d = LANES / 2; d; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
    bool saw = top > -INFINITY || isnan(sum);
    if (!there) return;
    give_row<T, MOST>((T *)a.o + token * a.o_stride + head * a.dim, o, saw ? 1.0f / sum : 0.0f, a.dim, lane);
    if (a.lse && lane == 0) a.lse[token * a.heads + head] = saw ? top * LN_2 + logf(sum) : 0.0f;
}

/* ---- backward ---- */

template <typename T, int MOST, bool KEYS_OWN, bool PREFIX> __global__ void __launch_bounds__(256, 1)
    attend_grad_plain_kernel(CudaAttendGrad g) {
    using S = Shape<MOST>;
    constexpr int OWN = S::OWN, OTHER = S::OTHER, THREADS = OWN * LANES, GAP = OTHER + 1;
    extern __shared__ __align__(16) float memory[];
    const CudaAttend &a = g.a;
    float *own1 = memory, *own2 = own1 + OWN * S::STRIDE, *b1 = own2 + OWN * S::STRIDE,
          *b2 = b1 + OTHER * S::STRIDE;
    float *p = b2 + OTHER * S::STRIDE, *ds = p + OWN * GAP;
    int r = threadIdx.x / LANES, lane = threadIdx.x % LANES, heads = KEYS_OWN ? a.kv_heads : a.heads, dim = a.dim;
    int first = (KEYS_OWN ? blockIdx.y : gridDim.y - 1 - blockIdx.y) * OWN, group = a.heads / a.kv_heads;
    int own_head = blockIdx.x % heads, kv = KEYS_OWN ? own_head : own_head / group;
    int64_t row = blockIdx.x / heads, token = row * a.seq;
    const T *k = (const T *)a.k + token * a.kv_stride + kv * dim, *v = k + a.v_offset;
    const T *q = (const T *)a.q + token * a.q_stride, *d_o = (const T *)g.d_o + token * a.o_stride;
    const int2 *tiles = (const int2 *)g.tiles + row * (g.padded / DEVICE_ATTEND_TILE);
    const int4 *prefixes = PREFIX ? (const int4 *)g.prefixes + row * (g.padded / DEVICE_ATTEND_TILE) : NULL;
    const int2 *prefix = PREFIX ? (const int2 *)a.prefix + token : NULL;
    if (KEYS_OWN) {
        fill_tile<T, MOST, OWN, THREADS>(own1, k, a.kv_stride, dim, first, a.seq);
        fill_tile<T, MOST, OWN, THREADS>(own2, v, a.kv_stride, dim, first, a.seq);
    } else {
        fill_tile<T, MOST, OWN, THREADS>(own1, q + own_head * dim, a.q_stride, dim, first, a.seq);
        fill_tile<T, MOST, OWN, THREADS>(own2, d_o + own_head * dim, a.o_stride, dim, first, a.seq);
    }
    int from = KEYS_OWN ? first : tiles[first / DEVICE_ATTEND_TILE].x,
        upto = KEYS_OWN ? a.seq : min(first + OWN, a.seq);
    int gap = 0, behind = from; /* queries own: none of them sees the keys in between */
    if (PREFIX && !KEYS_OWN) {
        gap = prefixes[first / DEVICE_ATTEND_TILE].z;
        from = min(from, prefixes[first / DEVICE_ATTEND_TILE].x);
    }
    float sum1[S::GROUPS][4] = {}, sum2[S::GROUPS][4] = {}, scale2 = a.scale * LOG2_E;
    for (int head = KEYS_OWN ? kv * group : own_head; head < (KEYS_OWN ? kv * group + group : own_head + 1);
         head++)
        for (int other = from == NEVER ? upto : from / OTHER * OTHER; other < upto; other += OTHER) {
            if (PREFIX && !KEYS_OWN && other >= gap && other + OTHER <= behind) continue;
            if (KEYS_OWN && tiles[other / DEVICE_ATTEND_TILE].x >= first + OWN) {
                if (!PREFIX) continue;
                int4 p = prefixes[other / DEVICE_ATTEND_TILE];
                if (p.x >= first + OWN || p.z <= first) continue;
            }
            __syncthreads(); /* the last tile has been read */
            fill_tile<T, MOST, OTHER, THREADS>(b1, KEYS_OWN ? q + head * dim : k,
                                               KEYS_OWN ? a.q_stride : a.kv_stride, dim, other, a.seq);
            fill_tile<T, MOST, OTHER, THREADS>(b2, KEYS_OWN ? d_o + head * dim : v,
                                               KEYS_OWN ? a.o_stride : a.kv_stride, dim, other, a.seq);
            __syncthreads();
#pragma unroll
            for (int i = 0; i < OTHER / LANES; i++) {
                int at = i * LANES + lane, key = KEYS_OWN ? first + r : other + at,
                    query = KEYS_OWN ? other + at : first + r;
                int64_t word = (row * a.heads + head) * g.padded + query; /* it exists: padded is whole tiles */
                bool sees = query < a.seq && key <= query;
                if (sees && key < a.begin[token + query])
                    sees = PREFIX && key >= prefix[query].x && key < prefix[query].y;
                float s = dot<MOST>(own1 + r * S::STRIDE, b1 + at * S::STRIDE),
                      dp = dot<MOST>(own2 + r * S::STRIDE, b2 + at * S::STRIDE);
                float prob = sees ? exp2f(s * scale2 - g.lse2[word]) : 0.0f;
                p[r * GAP + at] = prob;
                ds[r * GAP + at] = sees ? prob * (dp - g.delta[word]) : 0.0f;
            }
            __syncwarp(); /* a row's scores belong to one warp */
            for (int i = 0; i < OTHER; i++) {
                add_row<MOST>(sum1, ds[r * GAP + i], b1 + i * S::STRIDE, lane);
                if (KEYS_OWN) add_row<MOST>(sum2, p[r * GAP + i], b2 + i * S::STRIDE, lane);
            }
        }
    if (first + r >= a.seq) return;
    if (KEYS_OWN) {
        T *dk = (T *)g.dk + (token + first + r) * a.kv_stride + kv * dim;
        give_row<T, MOST>(dk, sum1, a.scale, dim, lane);
        give_row<T, MOST>(dk + a.v_offset, sum2, 1.0f, dim, lane);
    } else {
        give_row<T, MOST>((T *)g.dq + (token + first + r) * a.q_stride + own_head * dim, sum1, a.scale, dim, lane);
    }
}

/* ---- launchers ---- */

template <typename Fn> static void with_most(int dim, Fn fn) {
    if (dim <= 64)
        fn(std::integral_constant<int, 64>());
    else if (dim <= 128)
        fn(std::integral_constant<int, 128>());
    else
        fn(std::integral_constant<int, CUDA_MOST_HEAD_DIM>());
}

template <typename Kernel> static void allow_shared(Kernel *kernel, int bytes) {
    if (bytes > PLAIN_SHARED) cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}

template <bool PREFIX> static void launch(cudaStream_t s, const CudaAttend *a) {
    with_real(a->format, [&](auto t) {
        with_most(a->dim, [&](auto most) {
            using T = decltype(t);
            constexpr int MOST = decltype(most)::value, ROWS = Shape<MOST>::ROWS, BYTES = Shape<MOST>::FORWARD * 4;
            dim3 grid((unsigned)(a->rows * a->heads), blocks_for(a->seq, ROWS));
            allow_shared(attend_plain_kernel<T, MOST, PREFIX>, BYTES);
            attend_plain_kernel<T, MOST, PREFIX><<<grid, ROWS * LANES, BYTES, s>>>(*a);
        });
    });
}

extern "C" void cuda_launch_attend_plain(cudaStream_t s, const CudaAttend *a) {
    if (a->prefix)
        launch<true>(s, a);
    else
        launch<false>(s, a);
}

template <bool PREFIX> static void launch_grad(cudaStream_t s, const CudaAttendGrad *g) {
    with_real(g->a.format, [&](auto t) {
        with_most(g->a.dim, [&](auto most) {
            using T = decltype(t);
            constexpr int MOST = decltype(most)::value, OWN = Shape<MOST>::OWN, BYTES = Shape<MOST>::BACKWARD * 4;
            unsigned tiles = blocks_for(g->a.seq, OWN);
            dim3 keys((unsigned)(g->a.rows * g->a.kv_heads), tiles),
                queries((unsigned)(g->a.rows * g->a.heads), tiles);
            allow_shared(attend_grad_plain_kernel<T, MOST, true, PREFIX>, BYTES);
            allow_shared(attend_grad_plain_kernel<T, MOST, false, PREFIX>, BYTES);
            attend_grad_plain_kernel<T, MOST, true, PREFIX><<<keys, OWN * LANES, BYTES, s>>>(*g);
            attend_grad_plain_kernel<T, MOST, false, PREFIX><<<queries, OWN * LANES, BYTES, s>>>(*g);
        });
    });
}

extern "C" void cuda_launch_attend_grad_plain(cudaStream_t s, const CudaAttendGrad *g) {
    if (g->a.prefix)
        launch_grad<true>(s, g);
    else
        launch_grad<false>(s, g);
}
