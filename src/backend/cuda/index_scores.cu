/* index_scores.cu - an indexer's scores of all keys that queries see, for top-k selection: of tiles of queries, and of
 * a few queries of a KV cache by warps that read its keys once, both on tensor cores. Reference: cpu/select.c.
 *
 * Scores behind a sigmoid are sums of at most 8 numbers below 1, ranked in steps of 1/4096 (ir/sparse.h): 16 bits hold
 * the rank of a pair. Scores behind a relu are stored in fp32. Either stands in the workspace, a row a query. */
#include "backend/cuda/index_tiles.cuh"

enum { STRIP = 8 /* tiles of keys a block */, KEYS_EACH = 128 /* of a warp */ };
static const float STEPS = 4096;

DEVICE uint32_t rank_of(float score) { return (uint32_t)fminf(rintf(score * STEPS), 65535.0f); }

/* The last key that any of a tile's queries sees. */
DEVICE int last_key(const CudaSparse &a, int64_t row, int query) {
    int seq = (int)a.k.heads.seq, q = query + threadIdx.x % SIDE, mine = q < seq ? q : -1;
    if (a.positions && q < seq) mine = a.positions[row * seq + q];
    __shared__ int last[THREADS / WARP];
    mine = warp_most(mine);
    if (threadIdx.x % WARP == 0) last[threadIdx.x / WARP] = mine;
    __syncthreads();
    return max(last[0], last[1]);
}

template <typename T> __global__ void __launch_bounds__(THREADS) scores_kernel(CudaSparse a, int64_t first_tile) {
#ifdef HAVE_TENSOR_CORES
    extern __shared__ __align__(16) char shared[];
    const AttrHeads &h = a.k.heads;
    IndexWalk<T> walk(a, shared);
    int64_t tile = first_tile + blockIdx.x, tiles = (h.seq + SIDE - 1) / SIDE, row = tile / tiles;
    int query = (int)(tile % tiles) * SIDE, last = last_key(a, row, query), key = blockIdx.y * STRIP * SIDE;
    int end = min(key + STRIP * SIDE, last + 1);
    if (key >= end) return;
    int64_t key_row = a.rows ? a.rows[row] : row;
    walk.load_queries(row, query);
    walk.load_keys(key_row, key);
    for (; key < end; key += SIDE) {
        uint32_t keys = walk.keys;
        copies_wait<0>();
        __syncthreads();
        walk.next_keys(key_row, key + SIDE, key + SIDE < end);
        Pairs score;
        walk.scores(score, keys);
#pragma unroll
        for (int n = 0; n < SIDE / 8; n++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                int64_t to = (int64_t)blockIdx.x * SIDE + own_row(2 * r);
                int at = key + other_row(n, 0);
                if (!a.k.relu)
                    *(uint32_t *)((uint16_t *)a.workspace + to * a.stride + at) =
                        rank_of(score[n][2 * r]) | rank_of(score[n][2 * r + 1]) << 16;
                else
                    *(float2 *)(a.workspace + to * a.stride + at) = make_float2(score[n][2 * r], score[n][2 * r + 1]);
            }
    }
#endif
}

/* One token's index query as the products want it: a column of 8 an index head, those that are not there are zeros.
 * Keys are rows, read from memory as they lie: a lane has numbers 8t.. and 32 + 8t.. of rows g and g + 8 (t: lane % 4,
 * g: lane / 4). A dot product may take its numbers in any order, so they are the products' k = 2t, 2t + 1, 2t + 8 and
 * 2t + 9 of four steps, and the query's numbers stand in the same places. */
template <typename T> struct FewQuery {
    uint32_t b[4][2];
    float w[2], bias[2], scale; /* of heads 2t and 2t + 1 */
    DEVICE FewQuery(const CudaSparse &a, int64_t token) {
        int lane = threadIdx.x % WARP, t = lane % 4, g = lane / 4, heads = a.k.index_heads;
        const T *from = (const T *)a.index + token * index_width(a.k);
#pragma unroll
        for (int s = 0; s < 4; s++) {
            const T *mine = from + g * E + s / 2 * 32 + t * 8 + s % 2 * 4;
            uint2 v = g < heads ? *(const uint2 *)mine : make_uint2(0, 0);
            b[s][0] = v.x, b[s][1] = v.y;
        }
#pragma unroll
        for (int c = 0; c < 2; c++) {
            int j = 2 * t + c;
            w[c] = j < heads ? sigmoid(to_float(from[heads * E + E + j]) + small_number(a.bias, j)) : 0.0f;
            bias[c] = j < heads ? small_number(a.bias, heads + j) : 0.0f;
        }
        scale = rsqrtf((float)E);
    }
};

struct FewKeys { /* a lane's pieces of 16 of them */
    uint4 row[2][2];
    template <typename T> DEVICE void load(const T *keys, int key, int end) {
        int lane = threadIdx.x % WARP;
#pragma unroll
        for (int r = 0; r < 2; r++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                row[r][h] = *(const uint4 *)(keys + (int64_t)min(key + r * 8 + lane / 4, end - 1) * E + h * 32 +
                                             lane % 4 * 8);
    }
};

/* Of keys g and g + 8; the same in all lanes of a quad. */
template <typename T> DEVICE void few_scores(float (&score)[2], const FewQuery<T> &q, const FewKeys &k, bool relu) {
    float c[4] = {};
#pragma unroll
    for (int s = 0; s < 4; s++) {
        uint4 x = k.row[0][s / 2], y = k.row[1][s / 2];
        uint32_t a[4] = {s % 2 ? x.z : x.x, s % 2 ? y.z : y.x, s % 2 ? x.w : x.y, s % 2 ? y.w : y.y};
        multiply<T>(c, a, q.b[s][0], q.b[s][1]);
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float sum = q.w[0] * act_fast(c[2 * r] * q.scale + q.bias[0], relu) +
                    q.w[1] * act_fast(c[2 * r + 1] * q.scale + q.bias[1], relu);
        sum += __shfl_xor_sync(~0u, sum, 1);
        score[r] = sum + __shfl_xor_sync(~0u, sum, 2);
    }
}

/* Ranks of the keys of a cache for one token; a warp has KEYS_EACH of them, 16 at a time. */
template <typename T> __global__ void __launch_bounds__(THREADS) few_scores_kernel(CudaSparse a, int64_t first) {
#ifdef HAVE_TENSOR_CORES
    int64_t token = first + blockIdx.x, row = token / a.k.heads.seq;
    int lane = threadIdx.x % WARP, key = (blockIdx.y * (THREADS / WARP) + threadIdx.x / WARP) * KEYS_EACH;
    int end = min(a.positions[token] + 1, key + KEYS_EACH);
    if (key >= end) return;
    FewQuery<T> query(a, token);
    const T *keys = (const T *)a.index_keys.data + (a.rows ? a.rows[row] : row) * a.index_keys.per_row * E;
    uint16_t *to = (uint16_t *)a.workspace + blockIdx.x * a.stride;
    FewKeys now, next;
    now.load(keys, key, end);
    for (; key < end; key += 16) {
        float score[2];
        next.load(keys, min(key + 16, end - 1), end);
        few_scores(score, query, now, a.k.relu);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            int at = key + r * 8 + lane / 4;
            if (lane % 4 == 0 && at < end) to[at] = (uint16_t)rank_of(score[r]);
        }
        now = next;
    }
#endif
}

extern "C" int cuda_index_scores_shared(const AttrSparse *k) { return index_walk_shared(k); }

extern "C" void cuda_launch_index_scores(cudaStream_t s, const CudaSparse *a, int64_t first_tile, int64_t tiles) {
    dim3 grid((unsigned)tiles, blocks_for(a->span, SIDE * STRIP));
    int bytes = index_walk_shared(&a->k);
    auto go = [&](auto t) {
        using T = decltype(t);
        cudaFuncSetAttribute(scores_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
        scores_kernel<T><<<grid, THREADS, bytes, s>>>(*a, first_tile);
    };
    if (a->format == FMT_BF16)
        go(Bf16());
    else
        go(F16());
}

extern "C" void cuda_launch_few_scores(cudaStream_t s, const CudaSparse *a, int64_t first, int64_t tokens) {
    dim3 grid((unsigned)tokens, blocks_for(a->span, KEYS_EACH * (THREADS / WARP)));
    auto go = [&](auto t) { few_scores_kernel<decltype(t)><<<grid, THREADS, 0, s>>>(*a, first); };
    if (a->format == FMT_BF16)
        go(Bf16());
    else
        go(F16());
}
