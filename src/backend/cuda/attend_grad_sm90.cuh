/* attend_grad_sm90.cuh - attention backward by wgmma (Hopper), deterministic: the two passes of attend_grad.cu with 64
 * own rows a warpgroup.
 *
 * Formulas and the meaning of own and other side stand in attend_grad.cu, the layout of tiles in wgmma.cuh. Of a tile
 * of OTHER rows, P' is worked out while dP' runs, dS' while P' b2 runs:
 *   S' = a1 b1^T | dP' = a2 b2^T | P' = 2^(S'*scale2 - lse2) | sum2 += P' b2 | dS' = P'(dP' - delta) | sum1 += dS' b1
 * Flops: 14*D per pair seen. Heads of 64 and 128 numbers; bodies are empty outside sm_90a. */
#ifndef BACKEND_CUDA_ATTEND_GRAD_SM90_CUH
#define BACKEND_CUDA_ATTEND_GRAD_SM90_CUH

#include "backend/cuda/attend_sm90.cuh"

/* GROUPS warpgroups a block, OTHER rows a tile; STAGES: 2, or 3 so that a tile's last product runs on into the next
 * tile; BLOCKS a multiprocessor. */
template <int GROUPS_, int OTHER_, int STAGES_, int BLOCKS_> struct BackCut {
    static constexpr int GROUPS = GROUPS_, OTHER = OTHER_, STAGES = STAGES_, BLOCKS = BLOCKS_;
    static constexpr int OWN = GROUPS * GROUP_ROWS, THREADS = GROUPS * WARPGROUP;
};

/* Which rows a block owns and what it walks. */
struct BackWalk {
    int64_t row;
    int own;             /* first own row */
    int head, last_head; /* of the other side (keys own), or the own one */
    int kv;              /* theirs */
    int first, end;      /* of the other side: tiles of each head */
};

template <int D, typename C> struct BackMemory { /* a1, a2; stages of b1, b2; their lse2, delta, begin; the walk */
    static constexpr int OWN = C::OWN * D * 2, TILE = C::OTHER * D * 2, WORDS = 3 * C::OTHER * 4;
    static constexpr int STAGES = 2 * OWN, STAGE = 2 * TILE, LISTS = STAGES + C::STAGES * STAGE;
    static constexpr int WALK = LISTS + C::STAGES * WORDS;
    static constexpr int BYTES = EIGHT_ROWS + WALK + (int)sizeof(BackWalk);
    static_assert(2 * C::OWN * Tile<D>::ROW_BYTES <= LISTS, "the sums pass through the same memory");
};

/* The earliest and the latest beginning among the queries of a tile of ROWS, a multiple of the stored tiles. */
template <int ROWS> DEVICE int2 beginnings(const CudaAttendGrad &g, int64_t row, int tile) {
    int all = g.padded / DEVICE_ATTEND_TILE, from = tile * (ROWS / DEVICE_ATTEND_TILE);
    const int2 *tiles = (const int2 *)g.tiles + row * all;
    int2 x = tiles[from];
#pragma unroll
    for (int t = 1; t < ROWS / DEVICE_ATTEND_TILE; t++)
        if (from + t < all) x = make_int2(min(x.x, tiles[from + t].x), max(x.y, tiles[from + t].y));
    return x;
}

template <bool KEYS_OWN, typename C> DEVICE BackWalk back_walk(const CudaAttendGrad &g) {
    const CudaAttend &a = g.a;
    int group = a.heads / a.kv_heads;
    BackWalk w;
    if (KEYS_OWN) { /* the first keys are seen by most queries: they begin */
        int share = (group + g.n_parts - 1) / g.n_parts, part = blockIdx.x % g.n_parts;
        w.kv = blockIdx.x / g.n_parts % a.kv_heads;
        w.row = blockIdx.x / g.n_parts / a.kv_heads;
        w.own = blockIdx.y * C::OWN;
        w.head = w.kv * group + part * share;
        w.last_head = min(w.kv * group + group, w.head + share) - 1;
        w.first = w.own / C::OTHER;
        w.end = (a.seq + C::OTHER - 1) / C::OTHER;
    } else {
        w.row = blockIdx.x / a.heads;
        w.own = (gridDim.y - 1 - blockIdx.y) * C::OWN;
        w.head = w.last_head = blockIdx.x % a.heads;
        w.kv = w.head / group;
        w.end = (min(w.own + C::OWN, a.seq) + C::OTHER - 1) / C::OTHER;
        w.first = beginnings<C::OWN>(g, w.row, w.own / C::OWN).x / C::OTHER;
    }
    return w;
}

struct BackVisit { /* where the walk is */
    int head, tile;
};

/* On to the next tile that matters: false when there is none. */
template <bool KEYS_OWN, typename C> DEVICE bool back_on(const CudaAttendGrad &g, const BackWalk *w, BackVisit &v) {
    for (;;) {
        if (++v.tile >= w->end) {
            if (v.head >= w->last_head || w->first >= w->end) return false;
            v.head++;
            v.tile = w->first;
        }
        if (!KEYS_OWN || beginnings<C::OTHER>(g, w->row, v.tile).x < w->own + C::OWN) return true;
    }
}

/* Tiles of both matrices of a side, first row `first`, to `to` and `to + behind`; head: a KV head when KEYS. */
template <typename T, int D, bool KEYS, int ROWS, int THREADS>
DEVICE void copy_side(const CudaAttendGrad &g, int64_t row, int head, int first, uint32_t to, int behind) {
    const CudaAttend &a = g.a;
    int64_t token = row * a.seq + first;
    const T *one = (const T *)(KEYS ? a.k : a.q) + token * (KEYS ? a.kv_stride : a.q_stride) + head * D;
    const T *two = KEYS ? one + a.v_offset : (const T *)g.d_o + token * a.o_stride + head * D;
    copy_tile<D, ROWS, THREADS>(to, one, KEYS ? a.kv_stride : a.q_stride, a.seq - first);
    copy_tile<D, ROWS, THREADS>(to + behind, two, KEYS ? a.kv_stride : a.o_stride, a.seq - first);
}

/* lse2, delta and begin of a tile of queries. */
template <int ROWS, int THREADS>
DEVICE void copy_lists(const CudaAttendGrad &g, int64_t row, int head, int first, uint32_t to) {
    const CudaAttend &a = g.a;
    int64_t at = (row * a.heads + head) * g.padded, token = row * a.seq;
    int thread = thread_anew();
#pragma unroll
    for (int r = 0; r < ROWS; r += THREADS) {
        /* behind `padded` everything becomes 0, as Q and dO are: nothing is added */
        int i = r + thread, query = first + i;
        bool kept = query < g.padded, there = query < a.seq;
        if (ROWS % THREADS && i >= ROWS) break;
        copy4_async(to + i * 4, g.lse2 + at + (kept ? query : 0), kept);
        copy4_async(to + (ROWS + i) * 4, g.delta + at + (kept ? query : 0), kept);
        copy4_async(to + (2 * ROWS + i) * 4, a.begin + token + (there ? query : 0), there);
    }
}

/* What the softmax needs of queries: the lane's two own rows, or the tile's lists in shared memory. */
struct BackQueries {
    float lse2[2], delta[2];
    int begin[2];
    const float *lists;
};

DEVICE void load_own_queries(BackQueries &q, const CudaAttendGrad &g, const BackWalk *w, int first) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int query = first + r * 8 + threadIdx.x % WARP / 4;
        bool there = query < g.a.seq;
        int64_t at = (w->row * g.a.heads + w->head) * g.padded + query;
        q.lse2[r] = there ? g.lse2[at] : INFINITY;
        q.delta[r] = there ? g.delta[at] : 0.0f;
        q.begin[r] = there ? g.a.begin[w->row * g.a.seq + query] : 0;
    }
}

enum Masks { ALL_SEEN, CAUSAL, PACKED }; /* of a tile: none; keys behind a query; those of other documents too */

/* P' of S', in place. own: the warp's first row; other: the tile's. */
template <bool KEYS_OWN, Masks MASKS, int N>
DEVICE void back_softmax(float (&s)[N / 8][4], const BackQueries &q, int own, int other, float scale2) {
    int lane = thread_anew() % WARP, base = other + lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < N / 8; n++) {
        float2 lse2;
        int2 begin;
        if (KEYS_OWN) lse2 = *(const float2 *)(q.lists + n * 8 + lane % 4 * 2);
        if (KEYS_OWN && MASKS == PACKED) begin = *(const int2 *)(q.lists + 2 * N + n * 8 + lane % 4 * 2);
#pragma unroll
        for (int c = 0; c < 4; c++) {
            s[n][c] = exp2_fast(s[n][c] * scale2 - (KEYS_OWN ? (c % 2 ? lse2.y : lse2.x) : q.lse2[c / 2]));
            if (MASKS == ALL_SEEN) continue;
            /* past: of the columns */
            int mine = own + c / 2 * 8 + lane / 4, past = mine - base, column = n * 8 + c % 2;
            bool hidden = KEYS_OWN ? past > column : column > past;
            if (MASKS == PACKED)
                hidden |= KEYS_OWN ? mine < (c % 2 ? begin.y : begin.x) : column < q.begin[c / 2] - base;
            if (hidden) s[n][c] = 0;
        }
    }
}

/* dS' = P' (dP' - delta), of P' as it came out of the softmax, or as its product took it: then S' is not kept. */
template <typename T, bool KEYS_OWN, int N>
DEVICE void back_ds(uint32_t (&ds)[N / 16][4], const float (&s)[N / 8][4], const uint32_t (&p)[N / 16][4],
                        const float (&dp)[N / 8][4], const BackQueries &q) {
    int lane = thread_anew() % WARP;
#pragma unroll
    for (int n = 0; n < N / 8; n++) {
        float2 delta;
        if (KEYS_OWN) delta = *(const float2 *)(q.lists + N + n * 8 + lane % 4 * 2);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float2 was = KEYS_OWN ? unpack(p[n / 2][n % 2 * 2 + r], T()) : make_float2(s[n][2 * r], s[n][2 * r + 1]);
            float left = KEYS_OWN ? delta.x : q.delta[r], right = KEYS_OWN ? delta.y : q.delta[r];
            ds[n / 2][n % 2 * 2 + r] = pack_word<T>(was.x * (dp[n][2 * r] - left), was.y * (dp[n][2 * r + 1] - right));
        }
    }
}

/* dq, or dk and dv, of the block's own rows; tile: memory for two tiles of them. */
template <typename T, int D, bool KEYS_OWN, typename C>
DEVICE void back_store(const CudaAttendGrad &g, const BackWalk *w, T *tile, const float (&sum1)[1][D / 8][4],
                      const float (&sum2)[1][KEYS_OWN ? D / 8 : 1][4]) {
    const CudaAttend &a = g.a;
    int64_t token = w->row * a.seq;
    if constexpr (!KEYS_OWN) {
        T *dq = (T *)g.dq + token * a.q_stride + w->head * D;
        give_sums<T, D, 1>(dq, a.q_stride, tile, sum1, a.scale, w->own, a.seq);
    } else {
        int kv = w->kv;
        if (g.n_parts == 1) {
            T *dk = (T *)g.dk + token * a.kv_stride + kv * D;
            give_sums<T, D, 1>(dk, a.kv_stride, tile, sum1, a.scale, w->own, a.seq);
            give_sums<T, D, 1>(dk + a.v_offset, a.kv_stride, tile + C::OWN * Tile<D>::STRIDE, sum2, 1.0f, w->own,
                               a.seq);
        } else {
            int width = 2 * a.kv_heads * D;
            float *dk = g.parts + ((blockIdx.x % g.n_parts) * a.rows * a.seq + token) * width + kv * D;
            give_parts<D, 1>(dk, width, sum1, a.scale, w->own, a.seq);
            give_parts<D, 1>(dk + a.kv_heads * D, width, sum2, 1.0f, w->own, a.seq);
        }
    }
}

template <typename T, int D, bool KEYS_OWN, typename C>
__global__ void __launch_bounds__(C::THREADS, C::BLOCKS) attend_grad_sm90_kernel(CudaAttendGrad g) {
#ifdef HAVE_WGMMA
    using M = BackMemory<D, C>;
    constexpr int N = C::OTHER, THREADS = C::THREADS;
    extern __shared__ char raw[];
    static_assert(C::STAGES == 2 || C::STAGES == 3, "see BackCut");
    uint32_t own_tile = align_tiles(shared_address(raw)), stages = own_tile + M::STAGES, lists = own_tile + M::LISTS;
    char *memory = raw + (own_tile - shared_address(raw));
    BackWalk *w = (BackWalk *)(memory + M::WALK);
    if (threadIdx.x == 0) *w = back_walk<KEYS_OWN, C>(g);
    __syncthreads();
    int group = warpgroup_of(), mine = w->own + group * GROUP_ROWS; /* the warpgroup's first own row */
    int warp_row = threadIdx.x / WARP * 16;                         /* the warp's, within the block's */
    BackVisit v = {w->head, w->first - 1};
    bool more = back_on<KEYS_OWN, C>(g, w, v);
    auto fetch = [&](int stage) {
        copy_side<T, D, !KEYS_OWN, N, THREADS>(g, w->row, KEYS_OWN ? v.head : w->kv, v.tile * N,
                                               stages + stage * M::STAGE, M::TILE);
        if (KEYS_OWN) copy_lists<N, THREADS>(g, w->row, v.head, v.tile * N, lists + stage * M::WORDS);
    };
    copy_side<T, D, KEYS_OWN, C::OWN, THREADS>(g, w->row, KEYS_OWN ? w->kv : w->head, w->own, own_tile, M::OWN);
    if (more) fetch(0);
    copies_commit();

    uint64_t own1 = tile_words(own_tile + group * GROUP_ROWS * CHUNK_ROW, EIGHT_ROWS), own2 = further(own1, M::OWN);
    BackQueries q;
    if (!KEYS_OWN) load_own_queries(q, g, w, w->own + warp_row);
    int own_late = !KEYS_OWN && mine < g.a.seq ? beginnings<GROUP_ROWS>(g, w->row, mine / GROUP_ROWS).y : 0;
    float sum1[1][D / 8][4] = {}, sum2[1][KEYS_OWN ? D / 8 : 1][4] = {}, scale2 = g.a.scale * LOG2_E;
    uint32_t ds[N / 16][4];
    for (int stage = 0, next; more; stage = next) {
        int other = v.tile * N, late = KEYS_OWN ? beginnings<N>(g, w->row, v.tile).y : own_late;
        next = stage + 1 < C::STAGES ? stage + 1 : 0;
        copies_wait<0>();
        shared_to_products();
        __syncthreads(); /* this tile is loaded, and all warps are done with the next stage */
        uint32_t tile1 = stages + stage * M::STAGE;
        uint64_t b1 = tile_words(tile1, D > CHUNK ? CHUNK_BYTES<N> : EIGHT_ROWS), b2 = further(b1, M::TILE);
        float s[N / 8][4], dp[N / 8][4];
        uint32_t p[N / 16][4];
        products_begin();
        tile_product<T, D, C::OWN, N>(s, own1, b1);
        products_commit();
        tile_product<T, D, C::OWN, N>(dp, own2, b2);
        products_commit();
        more = back_on<KEYS_OWN, C>(g, w, v);
        if (more) fetch(next);
        copies_commit();
        products_wait<1>(); /* S', and what the last tile left running */
        settle(s);
        q.lists = (const float *)(memory + M::LISTS + stage * M::WORDS);
        int first_key = KEYS_OWN ? mine : other, last_key = first_key + (KEYS_OWN ? GROUP_ROWS : N) - 1;
        int first_query = KEYS_OWN ? other : mine;
        if (first_key < late)
            back_softmax<KEYS_OWN, PACKED, N>(s, q, w->own + warp_row, other, scale2);
        else if (last_key > first_query)
            back_softmax<KEYS_OWN, CAUSAL, N>(s, q, w->own + warp_row, other, scale2);
        else
            back_softmax<KEYS_OWN, ALL_SEEN, N>(s, q, w->own + warp_row, other, scale2);
        if constexpr (KEYS_OWN) {
            pack_blocks<T, N>(p, s);
            products_begin();
            tile_add<T, D, N>(sum2[0], p, b2);
            products_commit();
        }
        products_wait<KEYS_OWN ? 1 : 0>(); /* dP' is done; P' b2 goes on */
        settle(dp);
        back_ds<T, KEYS_OWN, N>(ds, s, p, dp, q);
        products_begin();
        tile_add<T, D, N>(sum1[0], ds, b1);
        products_commit();
        if constexpr (C::STAGES == 2) products_wait<0>();
    }
    products_wait<0>();
    settle(sum1[0]);
    if (KEYS_OWN) settle(sum2[0]);
    copies_wait<0>();
    __syncthreads(); /* shared memory is free: the sums are staged there for the store */
    back_store<T, D, KEYS_OWN, C>(g, w, (T *)memory, sum1, sum2);
#endif
}

template <typename T, int D, bool KEYS_OWN, typename C>
static void launch_back_sm90(cudaStream_t s, const CudaAttendGrad *g) {
    constexpr int BYTES = BackMemory<D, C>::BYTES;
    const CudaAttend *a = &g->a;
    dim3 grid((unsigned)(a->rows * (KEYS_OWN ? a->kv_heads * g->n_parts : a->heads)), blocks_for(a->seq, C::OWN));
    cudaFuncSetAttribute(attend_grad_sm90_kernel<T, D, KEYS_OWN, C>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         BYTES);
    attend_grad_sm90_kernel<T, D, KEYS_OWN, C><<<grid, C::THREADS, BYTES, s>>>(*g);
}

#endif
