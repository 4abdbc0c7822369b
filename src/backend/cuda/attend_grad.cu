/* attend_grad.cu - attention backward on tensor cores (FlashAttention), deterministic: two passes, no atomics.
 * Reference: cpu/attend.c.
 *
 *   P = 2^(S*scale*log2 e - lse2);  dP = dO V^T;  dS = P * (dP - delta)
 *   dV = P^T dO;  dK = scale*dS^T Q;  dQ = scale*dS K
 * One kernel, twice. A block owns rows and loops over the other side's rows in tiles of OTHER, double-buffered:
 *   keys own     a1 = K, a2 = V; the other side is Q, dO of the query heads in the block's share; gives dK, dV
 *   queries own  a1 = Q, a2 = dO; the other side is K, V; gives dQ
 * Both compute S' = a1 b1^T and dP' = a2 b2^T (transposed when keys own), then sum1 += dS' b1, sum2 += P' b2. The
 * own rows' blocks stay in registers for the whole walk, and P' and dS' go from one product to the next in
 * registers, rounded once: shared memory holds only the other side. 4 warps, MT blocks of 16 own rows each.
 * Flops: 14*D per pair seen (the formula has 10: S and dP are computed twice). Where one KV head is shared by
 * many heads and tiles are few, n_parts blocks share the heads, each with fp32 sums of its own in the workspace,
 * added in order by join_kernel. LISTED: only the pairs of the mask count; a bit each comes with every tile. PREFIX:
 * a query sees keys in front of its own range too; prompts' keys then walk over the queries of all their answers, and
 * queries pass over the tiles in between. */
#include "backend/cuda/attend.cuh"

enum { WARPS = 4, THREADS = WARPS * WARP, OTHER = DEVICE_ATTEND_TILE };
enum { SEES_ALL, BY_PLACE, BY_PREFIX, BY_LIST }; /* which pairs of a step count */

template <int D> struct Back {
    static constexpr int MT = D <= 64 ? 2 : 1, OWN = WARPS * 16 * MT;
    static constexpr int TILE_BYTES = OTHER * Tile<D>::ROW_BYTES;
    static constexpr int MORE_AT = 2 * TILE_BYTES + 3 * OTHER * 4; /* b1, b2; lse2, delta, begin of queries */
    static constexpr int WORDS = OWN / 32;                         /* of a query's bits, when keys own */
    static_assert(2 * OWN * Tile<D>::ROW_BYTES <= 2 * MORE_AT, "the own rows pass through the same memory");
};

/* Behind a stage's words lie bits, or prefixes of the other side's queries; behind both stages, of the own ones. */
template <int D, KeySet SET> struct Stage {
    static constexpr int OWN = Back<D>::OWN;
    static constexpr int BYTES =
        Back<D>::MORE_AT + (SET == KEYS_LIST ? OTHER * OWN / 8 : SET == KEYS_PREFIX ? OTHER * 8 : 0);
    static constexpr int ALL_BYTES = 2 * BYTES + (SET == KEYS_PREFIX ? OWN * 8 : 0);
};

/* Which rows a block owns and what it walks; kept in shared memory, because registers are short. */
struct Walk {
    int64_t row;
    int own;             /* first own row */
    int head, last_head; /* of the other side (keys own), or the own one */
    int first, tiles;    /* of the other side: where the walk of each head begins and ends */
    int gap, behind;     /* PREFIX, queries own: tiles [gap, behind) of keys are seen by none of them */
    int from, upto;      /* likewise: keys that all of them see in front of their own ranges */
};

struct Visit { /* where the walk is */
    int head, tile;
};

/* Queries own: what their prefixes add to the walk, whose first tile of a own range is known. */
DEVICE void walk_prefixes(const CudaAttendGrad &g, Walk &w, int begin) {
    const int4 *prefixes = (const int4 *)g.prefixes + w.row * (g.padded / OTHER);
    int earliest = NEVER, latest = 0;
    w.from = 0, w.upto = NEVER;
    for (int t = w.own / OTHER; t < w.tiles; t++) {
        int4 p = prefixes[t];
        earliest = min(earliest, p.x), latest = max(latest, p.z);
        w.from = max(w.from, p.y), w.upto = min(w.upto, p.w);
    }
    w.gap = (latest + OTHER - 1) / OTHER;
    w.behind = begin / OTHER;
    w.first = min(earliest, begin) / OTHER;
}

template <bool KEYS_OWN, int OWN, bool PREFIX> DEVICE Walk walk_of(const CudaAttendGrad &g) {
    const CudaAttend &a = g.a;
    const int2 *tiles = (const int2 *)g.tiles;
    int all = g.padded / OTHER, group = a.heads / a.kv_heads;
    Walk w;
    if (KEYS_OWN) { /* the first keys are seen by most queries: they begin */
        int share = (group + g.n_parts - 1) / g.n_parts, part = blockIdx.x % g.n_parts;
        int kv = blockIdx.x / g.n_parts % a.kv_heads;
        w.row = blockIdx.x / g.n_parts / a.kv_heads;
        w.own = blockIdx.y * OWN;
        w.head = kv * group + part * share;
        w.last_head = min(kv * group + group, w.head + share) - 1;
        w.first = w.own / OTHER;
        w.tiles = all;
    } else {
        w.row = blockIdx.x / a.heads;
        w.own = (gridDim.y - 1 - blockIdx.y) * OWN;
        w.head = w.last_head = blockIdx.x % a.heads;
        w.tiles = min((w.own + OWN) / OTHER, all);
        int begin = NEVER;
        for (int t = w.own / OTHER; t < w.tiles; t++) begin = min(begin, tiles[w.row * all + t].x);
        w.first = begin / OTHER;
        if constexpr (PREFIX) walk_prefixes(g, w, begin);
    }
    return w;
}

/* On to the next tile that matters: false when there is none. */
template <bool KEYS_OWN, int OWN, bool PREFIX> DEVICE bool walk_on(const CudaAttendGrad &g, const Walk *w, Visit &v) {
    const int2 *tiles = (const int2 *)g.tiles + w->row * (g.padded / OTHER);
    for (;;) {
        v.tile++;
        if (PREFIX && !KEYS_OWN && v.tile >= w->gap && v.tile < w->behind) v.tile = w->behind;
        if (v.tile >= w->tiles) {
            if (v.head >= w->last_head || w->first >= w->tiles) return false;
            v.head++;
            v.tile = w->first;
        }
        if (!KEYS_OWN || tiles[v.tile].x < w->own + OWN) return true; /* some of its queries begin early enough */
        if constexpr (PREFIX && KEYS_OWN) {
            int4 p = ((const int4 *)g.prefixes)[w->row * (g.padded / OTHER) + v.tile];
            if (p.x < w->own + OWN && p.z > w->own) return true; /* or have a prefix here */
        }
    }
}

/* Bits of the tile's pairs: a row of them for each query, own or other. */
template <int D, bool KEYS_OWN> DEVICE void load_bits(const CudaAttend &a, const Walk *w, int tile, uint32_t to) {
    constexpr int OWN = Back<D>::OWN, ROWS = KEYS_OWN ? OTHER : OWN;
    int thread = thread_anew(), query = (KEYS_OWN ? tile * OTHER : w->own) + thread;
    const uint32_t *from =
        a.mask + (w->row * a.seq + query) * a.mask_words + (KEYS_OWN ? w->own : tile * OTHER) / 32;
    if (thread >= ROWS) return;
    if (KEYS_OWN && OWN == 128)
        copy16_async(to + thread * 16, from, query < a.seq);
    else
        copy8_async(to + thread * 8, from, query < a.seq);
}

template <typename T, int D, bool KEYS_OWN, KeySet SET>
DEVICE void load_other(const CudaAttendGrad &g, const Walk *w, Visit v, uint32_t stage) {
    constexpr bool LISTED = SET == KEYS_LIST;
    Copy<D, THREADS> copy;
    const CudaAttend &a = g.a;
    int first = v.tile * OTHER, there = a.seq - first, group = a.heads / a.kv_heads;
    int64_t token = w->row * a.seq + first;
    uint32_t to = copy.in_tile(stage);
    const T *b1 = KEYS_OWN ? (const T *)a.q + token * a.q_stride + v.head * D
                           : (const T *)a.k + token * a.kv_stride + v.head / group * D;
    const T *b2 = KEYS_OWN ? (const T *)g.d_o + token * a.o_stride + v.head * D : b1 + a.v_offset;
    int stride1 = KEYS_OWN ? a.q_stride : a.kv_stride, stride2 = KEYS_OWN ? a.o_stride : a.kv_stride;
    copy.template start<OTHER>(to, copy.in_head(b1, stride1), stride1, there);
    copy.template start<OTHER>(to + Back<D>::TILE_BYTES, copy.in_head(b2, stride2), stride2, there);
    if (KEYS_OWN) { /* half of the threads bring lse2 and begin, the others delta */
        int thread = thread_anew(), i = thread % OTHER;
        int64_t at = (w->row * a.heads + v.head) * g.padded + first + i;
        uint32_t word = stage + 2 * Back<D>::TILE_BYTES + i * 4;
        if (thread < OTHER) {
            copy4_async(word, g.lse2 + at, true);
            if (!LISTED) copy4_async(word + 2 * OTHER * 4, a.begin + token + i, i < there);
        } else {
            copy4_async(word + OTHER * 4, g.delta + at, true);
            if (SET == KEYS_PREFIX)
                copy8_async(stage + Back<D>::MORE_AT + i * 8, a.prefix + 2 * (token + i), i < there);
        }
    }
    if (LISTED) load_bits<D, KEYS_OWN>(a, w, v.tile, stage + Back<D>::MORE_AT);
    copies_commit();
}

/* The own rows' blocks, through shared memory. */
template <typename T, int D, bool KEYS_OWN>
DEVICE void load_own(const CudaAttendGrad &g, const Walk *w, uint32_t shared,
                     uint32_t (&a1)[Back<D>::MT][D / 16][4], uint32_t (&a2)[Back<D>::MT][D / 16][4]) {
    Copy<D, THREADS> copy;
    constexpr int OWN = Back<D>::OWN, MT = Back<D>::MT;
    const CudaAttend &a = g.a;
    int there = a.seq - w->own, group = a.heads / a.kv_heads;
    int64_t token = w->row * a.seq + w->own;
    const T *k = (const T *)a.k + token * a.kv_stride + w->head / group * D;
    const T *from1 = KEYS_OWN ? k : (const T *)a.q + token * a.q_stride + w->head * D;
    const T *from2 = KEYS_OWN ? k + a.v_offset : (const T *)g.d_o + token * a.o_stride + w->head * D;
    int stride1 = KEYS_OWN ? a.kv_stride : a.q_stride, stride2 = KEYS_OWN ? a.kv_stride : a.o_stride;
    uint32_t second = shared + OWN * Tile<D>::ROW_BYTES;
    copy.template start<OWN>(copy.in_tile(shared), copy.in_head(from1, stride1), stride1, there);
    copy.template start<OWN>(copy.in_tile(second), copy.in_head(from2, stride2), stride2, there);
    copies_commit();
    copies_wait<0>();
    __syncthreads();
    int row = threadIdx.x / WARP * MT * 16;
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int k16 = 0; k16 < D / 16; k16++) {
            load_blocks(a1[m][k16], lane_a<D>(shared, row + m * 16) + k16 * 32);
            load_blocks(a2[m][k16], lane_a<D>(second, row + m * 16) + k16 * 32);
        }
    __syncthreads(); /* the memory is the walk's now */
}

template <int MT, int STEP> using Sums = float[MT][STEP / 8][4];       /* own rows x STEP rows of the other side */
template <int MT, int STEP> using Packed = uint32_t[MT][STEP / 16][4]; /* the same as A blocks */

/* x = a b^T of the own rows with STEP rows of the other side. */
template <typename T, int D, int MT, int STEP>
DEVICE void step_product(Sums<MT, STEP> &x, const uint32_t (&a)[MT][D / 16][4], uint32_t rows) {
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < STEP / 8; n++)
#pragma unroll
            for (int c = 0; c < 4; c++) x[m][n][c] = 0;
#pragma unroll
    for (int k = 0; k < D / 16; k++)
#pragma unroll
        for (int n = 0; n < STEP / 16; n++) {
            uint32_t b[4];
            load_blocks(b, rows + n * 16 * Tile<D>::ROW_BYTES + k * 32);
#pragma unroll
            for (int m = 0; m < MT; m++) {
                multiply<T>(x[m][2 * n], a[m][k], b[0], b[1]);
                multiply<T>(x[m][2 * n + 1], a[m][k], b[2], b[3]);
            }
        }
}

/* sum += x b, b being STEP rows of the other side. */
template <typename T, int D, int MT, int STEP>
DEVICE void add_product(float (&sum)[MT][D / 8][4], const Packed<MT, STEP> &x, uint32_t transposed) {
#pragma unroll
    for (int k = 0; k < STEP / 16; k++)
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            uint32_t b[4];
            load_blocks_transposed(b, transposed + k * 16 * Tile<D>::ROW_BYTES + n * 32);
#pragma unroll
            for (int m = 0; m < MT; m++) {
                multiply<T>(sum[m][2 * n], x[m][k], b[0], b[1]);
                multiply<T>(sum[m][2 * n + 1], x[m][k], b[2], b[3]);
            }
        }
}

/* What the softmax needs of queries: of the own rows in registers, or of the other side's columns in shared
 * memory. */
template <bool KEYS_OWN, int MT> struct Queries {
    float lse2[MT][2], delta[MT][2]; /* own */
    int begin[MT][2];
    const float *words; /* the stage's lse2, delta, begin, from the step's first column on */
    const int2 *prefix; /* of the step's first column on; own: of the warp's rows */
    uint32_t bits; /* address in shared memory: the stage's, from the step's first query and the warp's or the step's
                    * first key on */
};

/* Of the warp's own rows, from row `mine` on; rows that do not exist have no probabilities. */
template <bool KEYS_OWN, int MT>
DEVICE void load_queries(Queries<KEYS_OWN, MT> &q, const CudaAttendGrad &g, const Walk *w, int mine) {
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            int query = mine + m * 16 + r * 8 + threadIdx.x % WARP / 4;
            bool there = query < g.a.seq;
            int64_t at = (w->row * g.a.heads + w->head) * g.padded + query;
            q.lse2[m][r] = there ? g.lse2[at] : INFINITY;
            q.delta[m][r] = there ? g.delta[at] : 0.0f;
            q.begin[m][r] = there && g.a.begin ? g.a.begin[w->row * g.a.seq + query] : 0;
        }
}

/* The lane's pair of columns of lse2 (which 0), delta (1) or begin (2). */
template <typename Pair> DEVICE Pair column_pair(const float *words, int which, int n, int lane) {
    return *(const Pair *)(words + which * OTHER + n * 8 + lane % 4 * 2);
}

/* A word of bits that begins with the lane's pair (n, c): keys own, bit m*16 + c/2*8 is row block m's; queries own, bit
 * n*8 + c%2. */
template <bool KEYS_OWN, int MT> DEVICE uint32_t lane_bits(uint32_t bits, int m, int n, int c, int lane) {
    constexpr int WORDS = MT * 16 * WARPS / 32;
    if (!KEYS_OWN) return read_shared4(bits + (m * 16 + c / 2 * 8 + lane / 4) * 8) >> lane % 4 * 2 >> (n * 8 + c % 2);
    int key = lane / 4 + (MT == 1 ? thread_anew() / WARP % 2 * 16 : 0);
    return read_shared4(bits + (n * 8 + lane % 4 * 2 + c % 2) * WORDS * 4) >> key >> (m * 16 + c / 2 * 8);
}

/* P of S, packed. own: the warp's first row; other: the step's first row. */
template <typename T, bool KEYS_OWN, int MASKS, int MT, int STEP>
DEVICE void step_softmax(Packed<MT, STEP> &p, Sums<MT, STEP> &s, const Queries<KEYS_OWN, MT> &q, int own,
                         int other, float scale2) {
    int lane = thread_anew() % WARP;
#pragma unroll
    for (int n = 0; n < STEP / 8; n++) {
        float2 lse2;
        int2 begin;
        int4 prefix;
        if (KEYS_OWN) lse2 = column_pair<float2>(q.words, 0, n, lane);
        if (KEYS_OWN && (MASKS == BY_PLACE || MASKS == BY_PREFIX)) begin = column_pair<int2>(q.words, 2, n, lane);
        if (KEYS_OWN && MASKS == BY_PREFIX) prefix = *(const int4 *)(q.prefix + n * 8 + lane % 4 * 2);
#pragma unroll
        for (int m = 0; m < MT; m++) {
            if (MASKS == BY_LIST && BELOW_90) lane = thread_anew() % WARP;
#pragma unroll
            for (int c = 0; c < 4; c++) {
                s[m][n][c] =
                    exp2_fast(s[m][n][c] * scale2 - (KEYS_OWN ? (c % 2 ? lse2.y : lse2.x) : q.lse2[m][c / 2]));
                if (MASKS == BY_LIST && !(lane_bits<KEYS_OWN, MT>(q.bits, m, n, c, lane) & 1)) s[m][n][c] = 0;
                if (MASKS != BY_PLACE && MASKS != BY_PREFIX) continue;
                int mine = own + m * 16 + c / 2 * 8 + lane / 4, theirs = other + n * 8 + lane % 4 * 2 + c % 2;
                int key = KEYS_OWN ? mine : theirs, query = KEYS_OWN ? theirs : mine;
                int from = KEYS_OWN ? (c % 2 ? begin.y : begin.x) : q.begin[m][c / 2];
                bool hidden = key < from;
                if (MASKS == BY_PREFIX) {
                    int2 also = !KEYS_OWN ? q.prefix[m * 16 + c / 2 * 8 + lane / 4]
                                : c % 2   ? make_int2(prefix.z, prefix.w)
                                          : make_int2(prefix.x, prefix.y);
                    hidden = hidden && (key < also.x || key >= also.y);
                }
                if (key > query || hidden) s[m][n][c] = 0;
            }
            p[m][n / 2][n % 2 * 2] = pack<T>(s[m][n][0], s[m][n][1]);
            p[m][n / 2][n % 2 * 2 + 1] = pack<T>(s[m][n][2], s[m][n][3]);
        }
    }
}

/* P becomes dS = P * (dP - delta). */
template <typename T, bool KEYS_OWN, int MT, int STEP>
DEVICE void step_ds(Packed<MT, STEP> &p, const Sums<MT, STEP> &dp, const Queries<KEYS_OWN, MT> &q) {
    int lane = thread_anew() % WARP;
#pragma unroll
    for (int n = 0; n < STEP / 8; n++) {
        float2 delta;
        if (KEYS_OWN) delta = column_pair<float2>(q.words, 1, n, lane);
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                uint32_t &word = p[m][n / 2][n % 2 * 2 + r];
                float2 was = unpack(word, T());
                float left = KEYS_OWN ? delta.x : q.delta[m][r], right = KEYS_OWN ? delta.y : q.delta[m][r];
                word = pack<T>(was.x * (dp[m][n][2 * r] - left), was.y * (dp[m][n][2 * r + 1] - right));
            }
    }
}

/* dq, or dk and dv, of the block's own rows; tile: two tiles of them. */
template <typename T, int D, bool KEYS_OWN, int MT, typename Sum2>
DEVICE void give_own(const CudaAttendGrad &g, const Walk *w, T *tile, const float (&sum1)[MT][D / 8][4],
                     const Sum2 &sum2) {
    const CudaAttend &a = g.a;
    int64_t token = w->row * a.seq;
    if constexpr (!KEYS_OWN) {
        T *dq = (T *)g.dq + token * a.q_stride + w->head * D;
        give_sums<T, D, MT>(dq, a.q_stride, tile, sum1, a.scale, w->own, a.seq);
    } else {
        int kv = w->head / (a.heads / a.kv_heads);
        if (g.n_parts == 1) {
            T *dk = (T *)g.dk + token * a.kv_stride + kv * D, *second = tile + Back<D>::OWN * Tile<D>::STRIDE;
            give_sums<T, D, MT>(dk, a.kv_stride, tile, sum1, a.scale, w->own, a.seq);
            give_sums<T, D, MT>(dk + a.v_offset, a.kv_stride, second, sum2, 1.0f, w->own, a.seq);
        } else {
            int width = 2 * a.kv_heads * D;
            float *dk = g.parts + ((blockIdx.x % g.n_parts) * a.rows * a.seq + token) * width + kv * D;
            give_parts<D, MT>(dk, width, sum1, a.scale, w->own, a.seq);
            give_parts<D, MT>(dk + a.kv_heads * D, width, sum2, 1.0f, w->own, a.seq);
        }
    }
}

template <typename T, int D, bool KEYS_OWN, KeySet SET>
__global__ void __launch_bounds__(THREADS, 2) attend_grad_kernel(CudaAttendGrad g) {
#ifdef HAVE_TENSOR_CORES
    using B = Back<D>;
    constexpr int MT = B::MT, OWN = B::OWN;
    constexpr int STEP = KEYS_OWN && MT == 2 ? 16 : 32; /* as many columns as registers allow */
    constexpr int STAGE_BYTES = Stage<D, SET>::BYTES;
    constexpr bool LISTED = SET == KEYS_LIST, PREFIX = SET == KEYS_PREFIX;
    extern __shared__ __align__(16) char shared[];
    __shared__ Walk walk;
    const CudaAttend &a = g.a;
    const Walk *w = &walk;
    uint32_t memory = shared_address(shared);
    if (threadIdx.x == 0) walk = walk_of<KEYS_OWN, OWN, PREFIX>(g);
    __syncthreads();
    int mine = w->own + threadIdx.x / WARP * MT * 16; /* the warp's first own row */
    uint32_t a1[MT][D / 16][4], a2[MT][D / 16][4];
    load_own<T, D, KEYS_OWN>(g, w, memory, a1, a2);

    Queries<KEYS_OWN, MT> q;
    if (!KEYS_OWN) load_queries<KEYS_OWN, MT>(q, g, w, mine);
    if constexpr (PREFIX && !KEYS_OWN) {
        int2 *own = (int2 *)(shared + 2 * STAGE_BYTES); /* (OWN): read when the first tile is there */
        int i = threadIdx.x, query = w->own + i;
        if (i < OWN) own[i] = query < a.seq ? prefix_seen(a, w->row, query) : make_int2(NEVER, 0);
        q.prefix = own + mine - w->own;
    }
    float sum1[MT][D / 8][4] = {}, sum2[KEYS_OWN ? MT : 1][KEYS_OWN ? D / 8 : 1][4] = {};
    float scale2 = a.scale * LOG2_E;
    Visit v = {w->head, w->first - 1};
    bool more = walk_on<KEYS_OWN, OWN, PREFIX>(g, w, v);
    if (more) load_other<T, D, KEYS_OWN, SET>(g, w, v, memory);
    for (int stage = 0; more; stage ^= STAGE_BYTES) {
        int tile = v.tile;
        copies_wait<0>();
        __syncthreads(); /* this tile is loaded, and all warps are done with the other stage */
        more = walk_on<KEYS_OWN, OWN, PREFIX>(g, w, v);
        if (more) load_other<T, D, KEYS_OWN, SET>(g, w, v, memory + (stage ^ STAGE_BYTES));
        const int2 *edges = (const int2 *)g.tiles + w->row * (g.padded / OTHER);
        int late = 0; /* some query does not see the keys in front of it */
        bool prefixed = false; /* keys own: all queries of the tile see the warp's as a prefix */
        if constexpr (LISTED) {
        } else if constexpr (KEYS_OWN) {
            late = __any_sync(~0u, mine < edges[tile].y) ? NEVER : 0;
            if constexpr (PREFIX) {
                int4 p = ((const int4 *)g.prefixes)[w->row * (g.padded / OTHER) + tile];
                prefixed = __all_sync(~0u, mine >= p.y && mine + MT * 16 <= p.w);
            }
        } else {
            late = edges[w->own / OTHER].y;
            if (MT == 2 && w->own + OTHER < g.padded) late = max(late, edges[w->own / OTHER + 1].y);
        }
#pragma unroll 1
        for (int step = 0; step < OTHER; step += STEP) {
            int other = tile * OTHER + step;
            int first_key = KEYS_OWN ? mine : other, last_key = first_key + (KEYS_OWN ? MT * 16 : STEP) - 1;
            int first_query = KEYS_OWN ? other : mine, last_query = first_query + (KEYS_OWN ? STEP : MT * 16) - 1;
            if (first_key > last_query || first_key >= a.seq || first_query >= a.seq) continue;
            uint32_t b1 = memory + stage + step * Tile<D>::ROW_BYTES, b2 = b1 + B::TILE_BYTES;
            q.words = (const float *)(shared + stage + 2 * B::TILE_BYTES) + step;
            if (PREFIX && KEYS_OWN) q.prefix = (const int2 *)(shared + stage + B::MORE_AT) + step;
            if (PREFIX && !KEYS_OWN) prefixed = other >= w->from && other + STEP <= w->upto;
            if constexpr (LISTED) {
                int thread = thread_anew(), warp = thread / WARP;
                q.bits = memory + stage + B::MORE_AT +
                         (KEYS_OWN ? step * B::WORDS + warp * MT / 2 : warp * MT * 16 * 2 + step / 32) * 4;
                if (!KEYS_OWN && !__any_sync(~0u, read_shared4(q.bits + thread % WARP % (MT * 16) * 8) != 0)) continue;
            }
            Sums<MT, STEP> s, dp;
            Packed<MT, STEP> p;
            step_product<T, D, MT, STEP>(s, a1, lane_b<D>(b1));
            if constexpr (!KEYS_OWN) step_product<T, D, MT, STEP>(dp, a2, lane_b<D>(b2));
            bool masks = !prefixed && (last_key > first_query || first_key < late);
            if (LISTED)
                step_softmax<T, KEYS_OWN, BY_LIST, MT, STEP>(p, s, q, mine, other, scale2);
            else if (masks)
                step_softmax<T, KEYS_OWN, PREFIX ? BY_PREFIX : BY_PLACE, MT, STEP>(p, s, q, mine, other, scale2);
            else
                step_softmax<T, KEYS_OWN, SEES_ALL, MT, STEP>(p, s, q, mine, other, scale2);
            if constexpr (KEYS_OWN) {
                add_product<T, D, MT, STEP>(sum2, p, lane_transposed<D>(b2));
                step_product<T, D, MT, STEP>(dp, a2, lane_b<D>(b2));
            }
            step_ds<T, KEYS_OWN, MT, STEP>(p, dp, q);
            add_product<T, D, MT, STEP>(sum1, p, lane_transposed<D>(b1));
        }
    }
    __syncthreads(); /* the stages are free: the sums are staged there for the store */
    give_own<T, D, KEYS_OWN>(g, w, (T *)shared, sum1, sum2);
#endif
}

/* ---- the parts of dk and dv, added in order ---- */

enum { JOIN_THREADS = 256, WIDE = 8 };

template <typename T> __global__ void __launch_bounds__(JOIN_THREADS) join_kernel(CudaAttendGrad g) {
    int width = 2 * g.a.kv_heads * g.a.dim, half = width / 2;
    int64_t tokens = g.a.rows * g.a.seq, i = ((int64_t)blockIdx.x * JOIN_THREADS + threadIdx.x) * WIDE;
    if (i >= tokens * width) return;
    float sum[WIDE], x[WIDE];
    load<WIDE>(sum, g.parts + i);
    for (int p = 1; p < g.n_parts; p++) {
        load<WIDE>(x, g.parts + p * tokens * width + i);
#pragma unroll
        for (int k = 0; k < WIDE; k++) sum[k] += x[k];
    }
    int64_t token = i / width;
    int col = (int)(i % width);
    store<WIDE>((T *)g.dk + token * g.a.kv_stride + (col < half ? col : g.a.v_offset + col - half), sum);
}

extern "C" void cuda_launch_attend_join(cudaStream_t s, const CudaAttendGrad *g) {
    int64_t numbers = g->a.rows * g->a.seq * 2 * g->a.kv_heads * g->a.dim;
    unsigned blocks = blocks_for(numbers, JOIN_THREADS * WIDE);
    if (g->n_parts == 1) return;
    if (g->a.format == FMT_BF16)
        join_kernel<Bf16><<<blocks, JOIN_THREADS, 0, s>>>(*g);
    else
        join_kernel<F16><<<blocks, JOIN_THREADS, 0, s>>>(*g);
}

template <typename T, int D, KeySet SET> static void launch(cudaStream_t s, const CudaAttendGrad *g) {
    const CudaAttend *a = &g->a;
    constexpr int OWN = Back<D>::OWN, BYTES = Stage<D, SET>::ALL_BYTES;
    auto by_keys = attend_grad_kernel<T, D, true, SET>, by_queries = attend_grad_kernel<T, D, false, SET>;
    unsigned tiles = blocks_for(a->seq, OWN);
    dim3 keys((unsigned)(a->rows * a->kv_heads * g->n_parts), tiles),
        queries((unsigned)(a->rows * a->heads), tiles);
    cudaFuncSetAttribute(by_keys, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
    cudaFuncSetAttribute(by_queries, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
    by_keys<<<keys, THREADS, BYTES, s>>>(*g);
    by_queries<<<queries, THREADS, BYTES, s>>>(*g);
    cuda_launch_attend_join(s, g);
}

template <KeySet SET> static void launch_any(cudaStream_t s, const CudaAttendGrad *g) {
    with_dim(g->a.dim, [&](auto d) {
        constexpr int D = decltype(d)::value;
        if (g->a.format == FMT_BF16)
            launch<Bf16, D, SET>(s, g);
        else if constexpr (SET != KEYS_LIST || D < 128) /* ir/sparse.h keeps it out: it spills */
            launch<F16, D, SET>(s, g);
    });
}

extern "C" void cuda_launch_attend_grad(cudaStream_t s, const CudaAttendGrad *g) {
    if (g->a.mask)
        launch_any<KEYS_LIST>(s, g);
    else if (g->a.prefix)
        launch_any<KEYS_PREFIX>(s, g);
    else
        launch_any<KEYS_RANGE>(s, g);
}
