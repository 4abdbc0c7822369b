/* index_scores.cu - an indexer's scores of all keys that queries see, for the selection: of tiles of queries on tensor
 * cores, of a few queries behind a cache by warps that read its keys once. Reference: cpu/select.c.
 *
 * Scores behind a sigmoid are sums of at most 8 numbers below 1, ranked in steps of 1/4096 (ir/sparse.h): 16 bits hold
 * the rank of a pair. Scores behind a relu are stored in fp32. Either stands in the workspace, a row a query. */
#include "backend/cuda/index_tiles.cuh"

enum { STRIP = 8 /* tiles of keys a block */, LANES = E / 8 /* that share a key */, KEYS_EACH = 128 /* of a warp */ };
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

/* Ranks of the keys of a cache for one token: LANES neighbours have 8 numbers each of a key and of all queries. */
template <typename T, int HEADS>
__global__ void __launch_bounds__(THREADS) few_scores_kernel(CudaSparse a, int64_t first) {
    int64_t token = first + blockIdx.x, row = token / a.k.heads.seq;
    int lane = threadIdx.x % WARP, piece = lane % LANES * 8, end = a.positions[token] + 1;
    int key = (blockIdx.y * (THREADS / WARP) + threadIdx.x / WARP) * KEYS_EACH + lane / LANES;
    if (key - lane / LANES >= end) return;
    end = min(end, key - lane / LANES + KEYS_EACH);
    float q[HEADS][8], w[HEADS], bias[HEADS], scale = rsqrtf((float)E);
    const T *from = (const T *)a.index + token * index_width(a.k);
    for (int j = 0; j < HEADS; j++) {
#pragma unroll
        for (int i = 0; i < 8; i++) q[j][i] = to_float(from[j * E + piece + i]) * scale;
        w[j] = sigmoid(to_float(from[HEADS * E + E + j]) + small_number(a.bias, j));
        bias[j] = small_number(a.bias, HEADS + j);
    }
    const T *keys = (const T *)a.index_keys.data + (a.rows ? a.rows[row] : row) * a.index_keys.per_row * E + piece;
    uint16_t *to = (uint16_t *)a.workspace + blockIdx.x * a.stride;
#pragma unroll 4
    for (int i = 0; i < KEYS_EACH; i += WARP / LANES) {
        int at = key + i;
        float k[8], score = 0;
        load<8>(k, keys + (int64_t)min(at, end - 1) * E);
#pragma unroll
        for (int j = 0; j < HEADS; j++) {
            float dot = 0;
#pragma unroll
            for (int e = 0; e < 8; e++) dot += q[j][e] * k[e];
#pragma unroll
            for (int d = 1; d < LANES; d *= 2) dot += __shfl_xor_sync(~0u, dot, d);
            score += w[j] * act_fast(dot + bias[j], a.k.relu);
        }
        if (lane % LANES == 0 && at < end) to[at] = (uint16_t)rank_of(score);
    }
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
    auto go = [&](auto t) {
        using T = decltype(t);
        if (a->k.index_heads == 4)
            few_scores_kernel<T, 4><<<grid, THREADS, 0, s>>>(*a, first);
        else
            few_scores_kernel<T, 8><<<grid, THREADS, 0, s>>>(*a, first);
    };
    if (a->format == FMT_BF16)
        go(Bf16());
    else
        go(F16());
}
