/* attend_sm90.cuh - attention by wgmma (Hopper): the loops of attend.cu and attend_grad.cu with 64 rows a warpgroup,
 * and the tile configurations (rows, tiles, registers) in which they can be compiled.
 *
 * Formulas, shapes and meanings of the arguments stand there. What differs: a warpgroup's S, P, O (or sums) lie in
 * registers as its products leave them, the other side's tiles are read by the matrix units from shared memory, twice
 * buffered, straight for one product and transposed for the next, so nothing but copies is ever stored there. Every
 * product and every sum has one order: deterministic. Heads of 64 and 128 numbers. Outside sm_90a the bodies are
 * empty; the launchers' callers see to it that nobody runs them (attend_sm90.cu). */
#ifndef BACKEND_CUDA_ATTEND_SM90_CUH
#define BACKEND_CUDA_ATTEND_SM90_CUH

#include "backend/cuda/attend.cuh"
#include "backend/cuda/wgmma.cuh"

enum { GROUP_ROWS = 64 }; /* of a warpgroup */

DEVICE uint32_t align_tiles(uint32_t address) {
    return (address + EIGHT_ROWS - 1) & ~(uint32_t)(EIGHT_ROWS - 1);
}
DEVICE int warpgroup_of() { /* the same in every lane, and the compiler knows */
    return __shfl_sync(~0u, (int)threadIdx.x / WARPGROUP, 0);
}

template <typename T, int N> DEVICE void pack_blocks(uint32_t (&p)[N / 16][4], const float (&s)[N / 8][4]) {
#pragma unroll
    for (int n = 0; n < N / 8; n++) {
        p[n / 2][n % 2 * 2] = pack_word<T>(s[n][0], s[n][1]);
        p[n / 2][n % 2 * 2 + 1] = pack_word<T>(s[n][2], s[n][3]);
    }
}

/* Bit 2n + c: column 8n + c of those that the lane holds of a tile of up to 128 stands in front of `column`. */
DEVICE uint32_t columns_before(int column, int lane) {
    int left = max(column - lane % 4 * 2, 0), held = left / 8 * 2 + min(left % 8, 2);
    return held < 32 ? (1u << held) - 1 : ~0u;
}

/* ---- forward ---- */

/* GROUPS warpgroups a block, KEYS a tile, BLOCKS a multiprocessor. */
template <int GROUPS_, int KEYS_, int BLOCKS_> struct ForwardCut {
    static constexpr int GROUPS = GROUPS_, KEYS = KEYS_, BLOCKS = BLOCKS_;
    static constexpr int ROWS = GROUPS * GROUP_ROWS, THREADS = GROUPS * WARPGROUP;
};

template <int D, typename C> struct ForwardMemory { /* Q; K, K, V, V; seen; edges */
    static constexpr int Q = C::ROWS * D * 2, TILE = C::KEYS * D * 2;
    static constexpr int BYTES = EIGHT_ROWS + Q + 4 * TILE + C::ROWS * 8 + C::THREADS / WARP * 16;
    static_assert(C::ROWS * Tile<D>::ROW_BYTES <= 4 * TILE, "O passes through K's and V's memory");
};

template <int N> DEVICE void mask_keys(float (&s)[N / 8][4], const int2 *seen, int first_key) {
    int lane = thread_anew() % WARP;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int2 keys = seen[r * 8 + lane / 4];
        uint32_t sees = columns_before(keys.y - first_key, lane) & ~columns_before(keys.x - first_key, lane);
#pragma unroll
        for (int i = 0; i < N / 4; i++)
            if (!(sees >> i & 1)) s[i / 2][2 * r + i % 2] = -INFINITY;
    }
}

/* S becomes P; top and sum (this lane's share of it) move on; rescale: what O has to be multiplied by. */
template <int N>
DEVICE void softmax_update_rows(float (&s)[N / 8][4], float (&top)[2], float (&sum)[2], float (&rescale)[2],
                                float scale2) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float now = top[r];
#pragma unroll
        for (int n = 0; n < N / 8; n++) now = fmaxf(now, fmaxf(s[n][2 * r], s[n][2 * r + 1]));
        now = fmaxf(now, __shfl_xor_sync(~0u, now, 1));
        now = fmaxf(now, __shfl_xor_sync(~0u, now, 2));
        float off = now == -INFINITY ? 0.0f : now * scale2; /* a row that has seen nothing yet */
        rescale[r] = exp2_fast(top[r] * scale2 - off);
        top[r] = now;
        float part = 0;
#pragma unroll
        for (int n = 0; n < N / 8; n++)
#pragma unroll
            for (int c = 2 * r; c < 2 * r + 2; c++) {
                s[n][c] = exp2_fast(s[n][c] * scale2 - off);
                part += s[n][c];
            }
        sum[r] = sum[r] * rescale[r] + part;
    }
}

template <int D> DEVICE void rescale_rows(float (&o)[D / 8][4], const float (&rescale)[2]) {
    if (!__any_sync(~0u, rescale[0] != 1.0f || rescale[1] != 1.0f)) return; /* no maximum of the warp has moved */
#pragma unroll
    for (int n = 0; n < D / 8; n++)
#pragma unroll
        for (int c = 0; c < 4; c++) o[n][c] *= rescale[c / 2];
}

/* What a warpgroup's queries see, and what its block has to walk. */
struct Sight {
    int begin, end;         /* keys of the block, begin at a tile's edge */
    int all_from, all_upto; /* keys that every query of the warpgroup sees */
};

template <typename C>
DEVICE Sight look(const CudaAttend &a, int2 *seen, int4 *edges, int64_t row, int first, int group) {
    int warp = threadIdx.x / WARP, mine = group * GROUP_ROWS + threadIdx.x % GROUP_ROWS;
    bool exists = first + mine < a.seq;
    int2 keys = exists ? keys_seen(a, row, first + mine) : make_int2(NEVER, 0);
    seen[mine] = keys; /* written twice, the same */
    int from = warp_min(keys.x), upto = warp_most(keys.y);
    int all_from = warp_most(exists ? keys.x : 0), all_upto = warp_min(exists ? keys.y : NEVER);
    if (threadIdx.x % WARP == 0) edges[warp] = make_int4(from, upto, all_from, all_upto);
    __syncthreads();
    Sight x = {NEVER, 0, 0, NEVER};
#pragma unroll
    for (int w = 0; w < C::GROUPS * 4; w += w % 2 ? 3 : 1) /* a warpgroup's first two warps have seen all of it */
        x.begin = min(x.begin, edges[w].x), x.end = max(x.end, edges[w].y);
    int4 low = edges[group * 4], high = edges[group * 4 + 1];
    x.all_from = max(low.z, high.z), x.all_upto = min(low.w, high.w);
    x.begin = x.begin < x.end ? x.begin / C::KEYS * C::KEYS : x.end;
    return x;
}

/* O/l through shared memory, lse by one lane of four. tile: rows of the block. */
template <typename T, int D> DEVICE void finish_rows(const CudaAttend &a, T *tile, const float (&o)[D / 8][4],
                                                     const float (&top)[2], float (&sum)[2], int64_t row, int head,
                                                     int first) {
    int lane = threadIdx.x % WARP, base = threadIdx.x / WARP * 16;
    int64_t token = row * a.seq + first;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float l = sum[r];
        l += __shfl_xor_sync(~0u, l, 1);
        l += __shfl_xor_sync(~0u, l, 2);
        bool seen = top[r] > -INFINITY || isnan(l);
        int query = base + r * 8 + lane / 4;
        if (a.lse && lane % 4 == 0 && query < a.seq - first)
            a.lse[(token + query) * a.heads + head] = seen ? top[r] * a.scale + LN_2 * __log2f(l) : 0.0f;
        sum[r] = seen ? __fdividef(1.0f, l) : 0.0f;
    }
    put_blocks<T, D>(tile, base, o, sum[0], sum[1]);
    __syncwarp();
    T *to = (T *)a.o + token * a.o_stride + head * D;
    give_rows<T, D, 16>(to, a.o_stride, tile + base * Tile<D>::STRIDE, base, a.seq - first);
}

template <typename T, int D, typename C>
__global__ void __launch_bounds__(C::THREADS, C::BLOCKS) attend_sm90_kernel(CudaAttend a) {
#ifdef HAVE_WGMMA
    using M = ForwardMemory<D, C>;
    constexpr int KEYS = C::KEYS, THREADS = C::THREADS;
    extern __shared__ char raw[];
    uint32_t q_tile = align_tiles(shared_address(raw)), k_tile = q_tile + M::Q, v_tile = k_tile + 2 * M::TILE;
    char *memory = raw + (q_tile - shared_address(raw));
    int2 *seen = (int2 *)(memory + M::Q + 4 * M::TILE);
    int group = warpgroup_of(), warp_row = threadIdx.x / WARP * 16;
    int head = blockIdx.x % a.heads, first = (gridDim.y - 1 - blockIdx.y) * C::ROWS;
    int64_t row = blockIdx.x / a.heads;
    Sight sight = look<C>(a, seen, (int4 *)(seen + C::ROWS), row, first, group);

    const T *q = (const T *)a.q + (row * a.seq + first) * a.q_stride + head * D;
    const T *k =
        (const T *)a.k + (key_row(a, row) * a.keys + sight.begin) * a.kv_stride + head / (a.heads / a.kv_heads) * D;
    copy_tile<D, C::ROWS, THREADS>(q_tile, q, a.q_stride, a.seq - first);
    copy_tile<D, KEYS, THREADS>(k_tile, k, a.kv_stride, sight.end - sight.begin);
    copy_tile<D, KEYS, THREADS>(v_tile, k + a.v_offset, a.kv_stride, sight.end - sight.begin);
    copies_commit();
    uint64_t q_words = tile_words(q_tile + group * GROUP_ROWS * CHUNK_ROW, EIGHT_ROWS);
    uint64_t k_words = tile_words(k_tile, EIGHT_ROWS);
    uint64_t v_words = tile_words(v_tile, D > CHUNK ? CHUNK_BYTES<KEYS> : EIGHT_ROWS);
    float o[D / 8][4] = {}, top[2] = {-INFINITY, -INFINITY}, sum[2] = {}, rescale[2], scale2 = a.scale * LOG2_E;
    for (int stage = 0, key = sight.begin; key < sight.end; key += KEYS, stage ^= M::TILE) {
        float s[KEYS / 8][4];
        uint32_t p[KEYS / 16][4];
        copies_wait<0>();
        shared_to_products();
        __syncthreads(); /* this tile is loaded, and all warps are done with the other stage */
        products_begin();
        tile_product<T, D, C::ROWS, KEYS>(s, q_words, further(k_words, stage));
        products_commit();
        k += (int64_t)KEYS * a.kv_stride;
        int left = sight.end - key - KEYS;
        if (left > 0) {
            copy_tile<D, KEYS, THREADS>(k_tile + (stage ^ M::TILE), k, a.kv_stride, left);
            copy_tile<D, KEYS, THREADS>(v_tile + (stage ^ M::TILE), k + a.v_offset, a.kv_stride, left);
        }
        copies_commit();
        products_wait<0>();
        settle(s);
        if (key < sight.all_from || key + KEYS > sight.all_upto) mask_keys<KEYS>(s, seen + warp_row, key);
        softmax_update_rows<KEYS>(s, top, sum, rescale, scale2);
        rescale_rows<D>(o, rescale);
        pack_blocks<T, KEYS>(p, s);
        products_begin();
        tile_add<T, D, KEYS>(o, p, further(v_words, stage));
        products_commit();
        products_wait<0>();
        settle(o);
    }
    copies_wait<0>();
    __syncthreads(); /* K's and V's memory takes O now */
    finish_rows<T, D>(a, (T *)(memory + M::Q), o, top, sum, row, head, first);
#endif
}

template <typename T, int D, typename C> static void launch_forward_sm90(cudaStream_t s, const CudaAttend *a) {
    constexpr int BYTES = ForwardMemory<D, C>::BYTES;
    dim3 grid((unsigned)(a->rows * a->heads), blocks_for(a->seq, C::ROWS));
    cudaFuncSetAttribute(attend_sm90_kernel<T, D, C>, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
    attend_sm90_kernel<T, D, C><<<grid, C::THREADS, BYTES, s>>>(*a);
}

#endif
