/* attend.cu - attention forward on tensor cores: tiles of scores, an online softmax (FlashAttention).
 * Reference: cpu/attend.c.
 *
 * o(N,H*D), lse(N,H), per query tile and key tile:
 *   S = Q K^T;  m' = max(m, rowmax S);  P = e^((S - m')*scale);  rescale = e^((m - m')*scale)
 *   l = l*rescale + rowsum P;  O = O*rescale + P V;   at the end O/l and lse = m*scale + ln l
 * bf16 or fp16 in, fp32 sums, P rounded for its product. A block owns ROWS queries of one head: 4 warps of 32
 * rows, whose S, P and O stay in registers. Q lies in shared memory; V of a tile is prefetched while S is
 * computed, K of the next while P V is. Key tiles in front of the earliest or behind the last key that any query
 * of the block sees are not touched. Blocks with the most keys come first. Flops: 4*D per pair seen; bytes: qkv
 * once, o once, K and V again from the second-level cache for every query tile. The same kernel attends to a
 * cache when many tokens do (cache.cu), and, LISTED, to selected keys alone: a bit a pair comes with each tile of
 * keys, and a warp whose queries have selected none of them does not score them. With a prefix a query sees two
 * ranges; tiles between the last prefix and the first own key of the block's queries are passed over. */
#include "backend/cuda/attend.cuh"

enum { WARPS = 4, THREADS = WARPS * WARP, ROWS = 128, MT = 2 }; /* MT: blocks of 16 rows a warp */
enum { BIT_KEYS = 64 }; /* keys whose bits come together: two words a query */

template <int D> constexpr bool KEEP_Q = D <= 64; /* Q's blocks stay in registers where there is room */

template <int D, KeySet SET> struct Forward {
    static constexpr int KEYS = SET == KEYS_LIST && D >= 128 ? 32 : 64; /* of a tile: fewer where S and O would spill */
    static constexpr int Q_BYTES = ROWS * Tile<D>::ROW_BYTES, K_BYTES = KEYS * Tile<D>::ROW_BYTES;
    static constexpr int MORE_AT = Q_BYTES + 2 * K_BYTES + ROWS * 8 + WARPS * 16 + 16;
    /* bits in use and the next; or the prefixes that queries see, and the edges of each warp's */
    static constexpr int BYTES = MORE_AT + (SET == KEYS_LIST ? 2 * ROWS * 8 : SET == KEYS_PREFIX ? ROWS * 8 + 64 : 0);
};

template <int KEYS> using Scores = float[MT][KEYS / 8][4];

template <typename T, int D, int KEYS>
DEVICE void scores(Scores<KEYS> &s, const uint32_t (&kept)[D / 16][MT][4], uint32_t q_at, uint32_t k_at) {
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int c = 0; c < 4; c++) s[m][n][c] = 0;
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        uint32_t q[MT][4];
#pragma unroll
        for (int m = 0; m < MT; m++) {
            if constexpr (KEEP_Q<D>) {
#pragma unroll
                for (int c = 0; c < 4; c++) q[m][c] = kept[k][m][c];
            } else {
                load_blocks(q[m], q_at + m * 16 * Tile<D>::ROW_BYTES + k * 32);
            }
        }
#pragma unroll
        for (int n = 0; n < KEYS / 16; n++) {
            uint32_t b[4];
            load_blocks(b, k_at + n * 16 * Tile<D>::ROW_BYTES + k * 32);
#pragma unroll
            for (int m = 0; m < MT; m++) {
                multiply<T>(s[m][2 * n], q[m], b[0], b[1]);
                multiply<T>(s[m][2 * n + 1], q[m], b[2], b[3]);
            }
        }
    }
}

/* seen: (from, upto) of each of the warp's rows. */
template <int KEYS> DEVICE void mask_keys(Scores<KEYS> &s, const int2 *seen, int first_key) {
    int lane = threadIdx.x % WARP;
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            int2 keys = seen[m * 16 + r * 8 + lane / 4];
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                for (int c = 0; c < 2; c++) {
                    int key = first_key + n * 8 + lane % 4 * 2 + c;
                    if (key < keys.x || key >= keys.y) s[m][n][2 * r + c] = -INFINITY;
                }
        }
}

/* The same of two ranges; also: the first of them. */
template <int KEYS> DEVICE void mask_two(Scores<KEYS> &s, const int2 *seen, const int2 *also, int first_key) {
    int lane = thread_anew() % WARP;
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            int2 keys = seen[m * 16 + r * 8 + lane / 4], more = also[m * 16 + r * 8 + lane / 4];
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                for (int c = 0; c < 2; c++) {
                    int key = first_key + n * 8 + lane % 4 * 2 + c;
                    bool sees = (key >= keys.x && key < keys.y) || (key >= more.x && key < more.y);
                    if (!sees) s[m][n][2 * r + c] = -INFINITY;
                }
        }
}

/* bits: of each of the warp's rows, one a key, from the tile's first word on. */
template <int KEYS> DEVICE void mask_unlisted(Scores<KEYS> &s, const uint32_t *bits) {
    int lane = thread_anew() % WARP;
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const volatile uint32_t *word = bits + (m * 16 + r * 8 + lane / 4) * (BIT_KEYS / 32);
#pragma unroll
            for (int w = 0; w < KEYS / 32; w++) { /* a word at a time: registers are short */
                uint32_t mine = word[w] >> lane % 4 * 2;
#pragma unroll
                for (int n = 0; n < 4; n++)
#pragma unroll
                    for (int c = 0; c < 2; c++)
                        if (!(mine >> (n * 8 + c) & 1)) s[m][w * 4 + n][2 * r + c] = -INFINITY;
            }
        }
}

/* Online softmax: S becomes P; the running maximum (top) and sum (this lane's share) are updated, and O is rescaled to
 * the new maximum. */
template <int D, int KEYS>
DEVICE void softmax_update(Scores<KEYS> &s, float (&o)[MT][D / 8][4], float (&top)[MT][2], float (&sum)[MT][2],
                           float scale2) {
    float rescale[MT][2];
    bool any = false;
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float now = top[m][r];
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++) now = fmaxf(now, fmaxf(s[m][n][2 * r], s[m][n][2 * r + 1]));
            now = fmaxf(now, __shfl_xor_sync(~0u, now, 1));
            now = fmaxf(now, __shfl_xor_sync(~0u, now, 2));
            float off = now == -INFINITY ? 0.0f : now * scale2; /* a row that has seen nothing yet */
            rescale[m][r] = exp2_fast(top[m][r] * scale2 - off);
            any |= now > top[m][r];
            top[m][r] = now;
            float part = 0;
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                for (int c = 2 * r; c < 2 * r + 2; c++) {
                    s[m][n][c] = exp2_fast(s[m][n][c] * scale2 - off);
                    part += s[m][n][c];
                }
            sum[m][r] = sum[m][r] * rescale[m][r] + part;
        }
    if (!__any_sync(~0u, any)) return; /* no maximum of the warp has moved: nothing to rescale */
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < D / 8; n++)
#pragma unroll
            for (int c = 0; c < 4; c++) o[m][n][c] *= rescale[m][c / 2];
}

template <typename T, int D, int KEYS>
DEVICE void add_values(float (&o)[MT][D / 8][4], const Scores<KEYS> &p, uint32_t v_at) {
#pragma unroll
    for (int k = 0; k < KEYS / 16; k++) {
        uint32_t a[MT][4];
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int c = 0; c < 4; c++)
                a[m][c] = pack<T>(p[m][2 * k + c / 2][c % 2 * 2], p[m][2 * k + c / 2][c % 2 * 2 + 1]);
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            uint32_t b[4];
            load_blocks_transposed(b, v_at + k * 16 * Tile<D>::ROW_BYTES + n * 32);
#pragma unroll
            for (int m = 0; m < MT; m++) {
                multiply<T>(o[m][2 * n], a[m], b[0], b[1]);
                multiply<T>(o[m][2 * n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

struct
    Place { /* of a block's queries, kept in shared memory from the first line to the last: registers are short */
    int64_t token;  /* the first of the tile */
    int head, rows; /* rows: of the tile that exist */
};

/* The keys of a block's queries: tiles from begin on, but for those in [gap, behind), before end. */
struct Sight {
    int begin, end, gap, behind;
};

/* Lane i finds the keys of row i of its warp; a warp's edges say which tiles it needs and which it must mask. */
DEVICE Sight look(const CudaAttend &a, int2 *seen, int4 *edges, int64_t row, int first) {
    static_assert(MT * 16 == WARP, "a lane a row");
    int warp = threadIdx.x / WARP;
    bool exists = first + (int)threadIdx.x < a.seq;
    int2 keys = exists ? keys_seen(a, row, first + threadIdx.x) : make_int2(NEVER, 0);
    seen[threadIdx.x] = keys;
    int from = warp_min(keys.x), upto = warp_most(keys.y);
    int all_from = warp_most(exists ? keys.x : 0), all_upto = warp_min(exists ? keys.y : NEVER);
    if (threadIdx.x % WARP == 0) edges[warp] = make_int4(from, upto, all_from, all_upto);
    __syncthreads();
    Sight x = {NEVER, 0, 0, 0};
#pragma unroll
    for (int w = 0; w < WARPS; w++) x.begin = min(x.begin, edges[w].x), x.end = max(x.end, edges[w].y);
    return x;
}

/* The same of queries that see a prefix too; also: (ROWS) the prefixes. */
DEVICE Sight look_twice(const CudaAttend &a, int2 *seen, int2 *also, int4 *edges, int64_t row, int first) {
    int query = first + (int)threadIdx.x;
    int2 none = make_int2(NEVER, 0), keys = query < a.seq ? keys_seen(a, row, query) : none;
    int2 more = query < a.seq ? prefix_seen(a, row, query) : none;
    seen[threadIdx.x] = keys;
    also[threadIdx.x] = more;
    int4 edge = make_int4(warp_min(keys.x), warp_most(keys.y), warp_min(more.x), warp_most(more.y));
    if (threadIdx.x % WARP == 0) edges[threadIdx.x / WARP] = edge;
    __syncthreads();
    Sight x = {NEVER, 0, 0, NEVER};
#pragma unroll
    for (int w = 0; w < WARPS; w++) {
        x.begin = min(x.begin, min(edges[w].x, edges[w].z)), x.end = max(x.end, max(edges[w].y, edges[w].w));
        x.gap = max(x.gap, edges[w].w), x.behind = min(x.behind, edges[w].x);
    }
    return x;
}

/* Does the warp see any of KEYS keys, and does a query of it not see all of them? */
template <int KEYS>
DEVICE void look_at(const int2 *seen, const int2 *also, int key, int rows, bool &sees, bool &masks) {
    int row = thread_anew();
    int2 keys = seen[row], more = also[row];
    sees = __any_sync(~0u, (key < keys.y && key + KEYS > keys.x) || (key < more.y && key + KEYS > more.x));
    bool all = (key >= keys.x && key + KEYS <= keys.y) || (key >= more.x && key + KEYS <= more.y);
    masks = __any_sync(~0u, !all && row < rows);
}

/* The tile behind that of `key`. gap: tiles [x, y) between a prefix and its answers, which no query of the block
 * sees. */
template <int KEYS, KeySet SET> DEVICE int next_tile(int key, const int2 *gap) {
    key += KEYS;
    return SET == KEYS_PREFIX && key >= gap->x && key < gap->y ? gap->y : key;
}

/* Where the bits of a row of the block lie, from the word of `key` on. */
DEVICE const uint32_t *bits_at(const uint2 *bits, int key, int row) {
    return (const uint32_t *)(bits + key / BIT_KEYS % 2 * ROWS + row) + key % BIT_KEYS / 32;
}

/* Bits of the block's queries for BIT_KEYS keys, `key` the first of them: a thread a row. */
DEVICE void load_bits(const CudaAttend &a, const uint2 *bits, const Place *place, int key) {
    int thread = thread_anew();
    copy8_async(shared_address(bits_at(bits, key, thread)),
                a.mask + (place->token + thread) * a.mask_words + key / 32, thread < place->rows);
}

/* The warp's rows: O/l through its own rows of Q's tile, lse by one lane of four. */
template <typename T, int D> DEVICE void finish(const CudaAttend &a, T *tile, float (&o)[MT][D / 8][4],
                                                const float (&top)[MT][2], float (&sum)[MT][2],
                                                const Place *place) {
    int lane = threadIdx.x % WARP, base = threadIdx.x / WARP * MT * 16;
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float l = sum[m][r];
            l += __shfl_xor_sync(~0u, l, 1);
            l += __shfl_xor_sync(~0u, l, 2);
            bool seen = top[m][r] > -INFINITY || isnan(l);
            int query = base + m * 16 + r * 8 + lane / 4;
            if (a.lse && lane % 4 == 0 && query < place->rows)
                a.lse[(place->token + query) * a.heads + place->head] =
                    seen ? top[m][r] * a.scale + LN_2 * __log2f(l) : 0.0f;
            sum[m][r] = seen ? __fdividef(1.0f, l) : 0.0f;
        }
        put_blocks<T, D>(tile, base + m * 16, o[m], sum[m][0], sum[m][1]);
    }
    __syncwarp();
    T *to = (T *)a.o + place->token * a.o_stride + place->head * D;
    give_rows<T, D, MT * 16>(to, a.o_stride, tile + base * Tile<D>::STRIDE, base, place->rows);
}

template <typename T, int D, KeySet SET>
__global__ void __launch_bounds__(THREADS, 2) attend_kernel(CudaAttend a) {
#ifdef HAVE_TENSOR_CORES
    using F = Forward<D, SET>;
    constexpr bool LISTED = SET == KEYS_LIST;
    constexpr int KEYS = F::KEYS, STEP = LISTED ? BIT_KEYS : KEYS; /* the first tile begins at a multiple of STEP */
    extern __shared__ __align__(16) char shared[];
    int2 *seen = (int2 *)(shared + F::Q_BYTES + 2 * F::K_BYTES); /* (ROWS): the keys each query sees */
    int4 *edges = (int4 *)(seen + ROWS); /* (WARPS): any and all of a warp's (from, upto) */
    Place *place = (Place *)(edges + WARPS);
    int2 *also = (int2 *)(shared + F::MORE_AT), *gap = also + ROWS; /* KEYS_PREFIX: (ROWS) and one */
    int warp = threadIdx.x / WARP;
    int head = blockIdx.x % a.heads, first = (gridDim.y - 1 - blockIdx.y) * ROWS;
    int64_t row = blockIdx.x / a.heads;
    uint32_t q_tile = shared_address(shared), k_tile = q_tile + F::Q_BYTES, v_tile = k_tile + F::K_BYTES;

    if (threadIdx.x == 0) *place = {row * a.seq + first, head, a.seq - first};
    Sight sight = SET == KEYS_PREFIX ? look_twice(a, seen, also, edges, row, first) : look(a, seen, edges, row, first);
    int end = sight.end, begin = sight.begin < end ? sight.begin / STEP * STEP : end;
    if (SET == KEYS_PREFIX && threadIdx.x == 0)
        *gap = make_int2((sight.gap + KEYS - 1) / KEYS * KEYS, sight.behind / KEYS * KEYS);

    const T *q = (const T *)a.q + (row * a.seq + first) * a.q_stride + head * D;
    const T *k = (const T *)a.k + (key_row(a, row) * a.keys + begin) * a.kv_stride + head / (a.heads / a.kv_heads) * D;
    Copy<D, THREADS> copy;
    const char *from_k = copy.in_head(k, a.kv_stride); /* where this thread copies from, tile by tile */
    uint32_t to_k = copy.in_tile(k_tile);
    copy.template start<ROWS>(copy.in_tile(q_tile), copy.in_head(q, a.q_stride), a.q_stride, a.seq - first);
    copy.template start<KEYS>(to_k, from_k, a.kv_stride, end - begin);
    const uint2 *bits = (const uint2 *)(shared + F::MORE_AT);
    if (LISTED && begin < end) load_bits(a, bits, place, begin);
    copies_commit();
    float o[MT][D / 8][4] = {}, top[MT][2], sum[MT][2] = {};
#pragma unroll
    for (int m = 0; m < MT; m++) top[m][0] = top[m][1] = -INFINITY;
    uint32_t q_at = lane_a<D>(q_tile, warp * MT * 16), k_at = lane_b<D>(k_tile), v_at = lane_transposed<D>(v_tile);
    uint32_t kept[D / 16][MT][4];
    if constexpr (KEEP_Q<D>) {
        copies_wait<0>();
        __syncthreads();
#pragma unroll
        for (int i = 0; i < D / 16; i++)
#pragma unroll
            for (int m = 0; m < MT; m++) load_blocks(kept[i][m], q_at + m * 16 * Tile<D>::ROW_BYTES + i * 32);
    }
    for (int key = begin, next; key < end; key = next) {
        Scores<KEYS> s;
        copies_wait<0>();
        __syncthreads(); /* K is loaded; all warps are done with the last V */
        copy.template start<KEYS>(to_k + F::K_BYTES, from_k + a.v_offset * 2, a.kv_stride, end - key);
        copies_commit();
        bool sees, masks = false;
        if constexpr (LISTED) {
            const uint32_t *mine = bits_at(bits, key, thread_anew());
            sees = __any_sync(~0u, (KEYS > 32 ? mine[0] | mine[1] : mine[0]) != 0);
        } else if constexpr (SET == KEYS_PREFIX) {
            look_at<KEYS>(seen, also, key, place->rows, sees, masks);
        } else {
            int4 edge = edges[warp]; /* read again where it is needed: registers are short */
            sees = __any_sync(~0u, key < edge.y && key + KEYS > edge.x);
            masks = __any_sync(~0u, key < edge.z || key + KEYS > edge.w);
        }
        if (sees) scores<T, D, KEYS>(s, kept, q_at, k_at);
        copies_wait<0>();
        __syncthreads(); /* V is loaded; all warps are done with K */
        next = next_tile<KEYS, SET>(key, gap);
        from_k += SET == KEYS_PREFIX ? (int64_t)(next - key) * 2 * a.kv_stride : KEYS * 2 * a.kv_stride;
        if (next < end) {
            copy.template start<KEYS>(to_k, from_k, a.kv_stride, end - next);
            if (LISTED && next % BIT_KEYS == 0) load_bits(a, bits, place, next);
        }
        copies_commit();
        if (!sees) continue;
        if (LISTED)
            mask_unlisted<KEYS>(s, bits_at(bits, key, thread_anew() / WARP * WARP));
        else if (SET == KEYS_PREFIX && masks)
            mask_two<KEYS>(s, seen + warp * WARP, also + warp * WARP, key);
        else if (masks)
            mask_keys<KEYS>(s, seen + warp * WARP, key);
        softmax_update<D, KEYS>(s, o, top, sum, a.scale * LOG2_E);
        add_values<T, D, KEYS>(o, s, v_at);
    }
    copies_wait<0>();
    __syncthreads(); /* without keys, the copy of Q into the rows that now take O may still be in flight */
    finish<T, D>(a, (T *)shared, o, top, sum, place);
#endif
}

template <KeySet SET> static void launch(cudaStream_t s, const CudaAttend *a) {
    auto go = [&](auto t) {
        with_dim(a->dim, [&](auto d) {
            using T = decltype(t);
            constexpr int D = decltype(d)::value;
            constexpr int BYTES = Forward<D, SET>::BYTES;
            dim3 grid((unsigned)(a->rows * a->heads), blocks_for(a->seq, ROWS));
            cudaFuncSetAttribute(attend_kernel<T, D, SET>, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
            attend_kernel<T, D, SET><<<grid, THREADS, BYTES, s>>>(*a);
        });
    };
    if (a->format == FMT_BF16)
        go(Bf16());
    else
        go(F16());
}

extern "C" void cuda_launch_attend(cudaStream_t s, const CudaAttend *a) {
    if (a->mask)
        launch<KEYS_LIST>(s, a);
    else if (a->prefix)
        launch<KEYS_PREFIX>(s, a);
    else
        launch<KEYS_RANGE>(s, a);
}
