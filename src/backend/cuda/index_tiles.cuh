/* index_tiles.cuh - tiles of 64 queries by 64 keys of an indexer on tensor cores: how they come into shared memory, and
 * what its heads score. A tile is 64 rows of one index head, or of the index keys; 4 warps have 16 own rows each. */
#ifndef BACKEND_CUDA_INDEX_TILES_CUH
#define BACKEND_CUDA_INDEX_TILES_CUH

#include "backend/cuda/attend.cuh"
#include "backend/cuda/sparse.cuh"

enum { THREADS = 4 * WARP, SIDE = CUDA_INDEX_TILE, E = CUDA_INDEX_DIM, INDEX_TILE_BYTES = SIDE * Tile<E>::ROW_BYTES };

static const float LIFT = 256; /* of gradients that are rounded to 16 bits: fp16's range begins at 6e-8 */

typedef float Pairs[SIDE / 8][4]; /* a warp's: 16 own rows by 64 of the other side */

DEVICE void clear(Pairs &x) {
#pragma unroll
    for (int n = 0; n < SIDE / 8; n++) x[n][0] = x[n][1] = x[n][2] = x[n][3] = 0;
}

/* Where number c of a lane's block n stands in the tile: own row, and row of the other side. */
DEVICE int own_row(int c) { return threadIdx.x / WARP * 16 + c / 2 * 8 + threadIdx.x % WARP / 4; }
DEVICE int other_row(int n, int c) { return n * 8 + threadIdx.x % 4 * 2 + c % 2; }

/* Over the lanes that have a row. */
DEVICE float quad_sum(float x) {
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}

DEVICE int index_width(const AttrSparse &k) { return k.index_heads * (E + 1) + E; }

/* Numbers from row to row of gradients of pairs, as ir/sparse.h counts them. */
DEVICE int64_t pairs_stride(int64_t seq) { return (seq + SIDE - 1) / SIDE * SIDE; }

DEVICE float act_fast(float x, bool relu) {
    return relu ? fmaxf(x, 0.0f) : __fdividef(1.0f, 1.0f + exp2_fast(x * -LOG2_E));
}

template <typename T> DEVICE void copy_index(uint32_t to, const T *from, int64_t width, int there) {
    constexpr int PIECES = E / 4; /* of 8 bytes: rows of index begin at a multiple of that */
#pragma unroll
    for (int i = 0; i < SIDE * PIECES / THREADS; i++) {
        int piece = threadIdx.x + i * THREADS, row = piece / PIECES, col = piece % PIECES * 4;
        copy8_async(to + row * Tile<E>::ROW_BYTES + col * 2, from + row * width + col, row < there);
    }
}

/* x = own rows times the other side's, D numbers each. */
template <typename T, int D> DEVICE void product(Pairs &x, uint32_t own, uint32_t other) {
    uint32_t a_at = lane_a<D>(own, threadIdx.x / WARP * 16), b_at = lane_b<D>(other);
    clear(x);
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        uint32_t a[4], b[4];
        load_blocks(a, a_at + k * 32);
#pragma unroll
        for (int n = 0; n < SIDE / 16; n++) {
            load_blocks(b, b_at + n * 16 * Tile<D>::ROW_BYTES + k * 32);
            multiply<T>(x[2 * n], a, b[0], b[1]);
            multiply<T>(x[2 * n + 1], a, b[2], b[3]);
        }
    }
}

/* w (J, 64): the weights of 64 queries of a row, from `query` on. */
template <typename T> DEVICE void load_weights(float *w, const CudaSparse &a, int64_t row, int query) {
    int heads = a.k.index_heads, width = index_width(a.k);
    for (int i = threadIdx.x; i < SIDE * heads; i += THREADS) {
        int q = i / heads, j = i % heads;
        int64_t token = row * a.k.heads.seq + query + q;
        bool there = query + q < a.k.heads.seq;
        float z = there ? to_float(((const T *)a.index)[token * width + heads * E + E + j]) : 0.0f;
        w[j * SIDE + q] = there ? sigmoid(z + small_number(a.bias, j)) : 0.0f;
    }
}

/* score += what index head j gives the tile's pairs; queries own. */
template <typename T>
DEVICE void add_index_head(Pairs &score, const CudaSparse &a, const float *w, int j, uint32_t query, uint32_t key) {
    Pairs x;
    float scale = rsqrtf((float)E), bias = small_number(a.bias, a.k.index_heads + j);
    float weight[2] = {w[j * SIDE + own_row(0)], w[j * SIDE + own_row(2)]};
    product<T, E>(x, query, key);
#pragma unroll
    for (int n = 0; n < SIDE / 8; n++)
#pragma unroll
        for (int c = 0; c < 4; c++) score[n][c] += weight[c / 2] * act_fast(x[n][c] * scale + bias, a.k.relu);
}

/* A block's index queries stay in shared memory while tiles of keys come and go: (J) query tiles, two key tiles, w. */
template <typename T> struct IndexWalk {
    const CudaSparse &a;
    uint32_t queries, keys; /* keys: the tile that came last */
    uint32_t key_tiles;
    float *w;
    DEVICE IndexWalk(const CudaSparse &s, char *shared) : a(s) {
        queries = shared_address(shared);
        keys = key_tiles = queries + a.k.index_heads * INDEX_TILE_BYTES;
        w = (float *)(shared + (a.k.index_heads + 2) * INDEX_TILE_BYTES);
    }
    DEVICE uint32_t end() const { /* what is behind all of it */
        return key_tiles + 2 * INDEX_TILE_BYTES + SIDE * a.k.index_heads * 4;
    }
    /* The queries and their weights; a barrier follows. */
    DEVICE void load_queries(int64_t row, int query) {
        int width = index_width(a.k);
        int64_t token = row * a.k.heads.seq + query;
        for (int j = 0; j < a.k.index_heads; j++)
            copy_index(queries + j * INDEX_TILE_BYTES, (const T *)a.index + token * width + j * E, width,
                       (int)a.k.heads.seq - query);
        load_weights<T>(w, a, row, query);
        __syncthreads();
    }
    DEVICE void load_keys(int64_t row, int key) {
        const CudaKeys &k = a.index_keys;
        copy_index(keys, (const T *)k.data + (row * k.per_row + key) * k.stride + k.col, k.stride,
                   (int)k.per_row - key);
        copies_commit();
    }
    /* Into the other tile. */
    DEVICE void next_keys(int64_t row, int key, bool more) {
        keys = keys == key_tiles ? key_tiles + INDEX_TILE_BYTES : key_tiles;
        if (more) load_keys(row, key);
    }
    DEVICE void scores(Pairs &score, uint32_t key_tile) const {
        clear(score);
        for (int j = 0; j < a.k.index_heads; j++)
            add_index_head<T>(score, a, w, j, queries + j * INDEX_TILE_BYTES, key_tile);
    }
};

static inline int index_walk_shared(const AttrSparse *k) {
    return (k->index_heads + 2) * INDEX_TILE_BYTES + SIDE * k->index_heads * 4;
}

#endif
