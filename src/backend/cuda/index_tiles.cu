/* index_tiles.cu - the loss of an indexer and its gradients on tensor cores, a tile of 64 queries by 64 keys at a time.
 * Reference: cpu/index_loss.c.
 *
 * Which pairs count is a mask, a bit a pair; tiles without one are skipped. Four passes:
 *   lse     I, the scores of J index heads; of each query the logarithmic sum of them
 *   pairs   p, the mean over H heads of e^(q.k - lse), one head's queries after the other's; I again; what the loss is
 *           summed from, and dI = (e^(I - lse of I) - p) * weight, 16 bits a pair in the workspace
 *   dq, dk  da_j = dI * w_j * act'(a_j);  dq_j = da_j k;  dk = sum over j of da_j^T q_j
 * dI exists for a band of queries at a time, so that no memory grows with the square of a row; bands follow each other
 * in order. 4 warps, 16 own rows each. A block owns queries (lse, pairs, dq) or keys (dk), and every n-th tile of the
 * other side: the n sums of a row stand in the workspace and are added in order. bf16 or fp16 in, fp32 sums. */
#include "backend/cuda/index_tiles.cuh"
#include "backend/cuda/parts.cuh"

enum { SUMS = CUDA_INDEX_SUMS, HEADS = 2 /* whose dq a block sums */ };

template <int D> struct Buffers { /* of pairs: two query tiles, two key tiles; then the words of the queries */
    static constexpr int WIDE = D > E ? D : E, TILE_BYTES = SIDE * Tile<WIDE>::ROW_BYTES, BYTES = 4 * TILE_BYTES;
};

struct Place { /* of a tile: a row of the batch, its first query and key */
    int64_t row;
    int query, key;
};

DEVICE int64_t first_query(const CudaIndexLoss &a, Place p) { return p.row * a.s.k.heads.seq + p.query; }

/* Query tile i of a launch, those with the most keys first. */
DEVICE Place query_place(const CudaIndexLoss &a, int64_t tile) {
    int64_t tiles = (a.s.k.heads.seq + SIDE - 1) / SIDE;
    return {tile / tiles, (int)(tile % tiles) * SIDE, 0};
}
DEVICE int64_t own_tile(const CudaIndexLoss &a) { return a.first_tile + gridDim.x - 1 - blockIdx.x; }

/* This thread's word of a tile's bits: two a query. */
DEVICE uint32_t bits_of(const CudaIndexLoss &a, Place p) {
    int q = threadIdx.x / 2;
    if (p.query + q >= a.s.k.heads.seq) return 0;
    return a.mask[(first_query(a, p) + q) * a.mask_words + p.key / 32 + threadIdx.x % 2];
}

struct LaneBits { /* of this lane's two rows: 64 keys each, its own first */
    uint32_t word[2][2];
    DEVICE LaneBits(const uint32_t *bits) {
        int lane = threadIdx.x % WARP, row = threadIdx.x / WARP * 16 + lane / 4;
#pragma unroll
        for (int i = 0; i < 4; i++) word[i / 2][i % 2] = bits[(row + i / 2 * 8) * 2 + i % 2] >> lane % 4 * 2;
    }
    DEVICE bool operator()(int n, int c) const { return word[c / 2][n / 4] >> (n % 4 * 8 + c % 2) & 1; }
};

/* ---- the logarithmic sums of scores ---- */

/* The logarithmic sum of a token's scores, from its parts. */
DEVICE float index_lse_of(const CudaIndexLoss &a, int64_t token) {
    float top = -INFINITY, sum = 0;
    for (int i = 0; i < a.splits; i++) top = fmaxf(top, a.sums[(i * a.s.tokens + token) * SUMS]);
    for (int i = 0; i < a.splits; i++) {
        const float *part = a.sums + (i * a.s.tokens + token) * SUMS;
        if (part[1] > 0) sum += part[1] * expf(part[0] - top);
    }
    return sum > 0 ? top + logf(sum) : 0.0f;
}

DEVICE void add_scores(float &top, float &sum, const LaneBits &counts, const Pairs &score, int r) {
    float now = top;
#pragma unroll
    for (int n = 0; n < SIDE / 8; n++)
#pragma unroll
        for (int c = 2 * r; c < 2 * r + 2; c++)
            if (counts(n, c)) now = fmaxf(now, score[n][c]);
    if (now == -INFINITY) return;
    sum *= exp2_fast((top - now) * LOG2_E);
    top = now;
#pragma unroll
    for (int n = 0; n < SIDE / 8; n++)
#pragma unroll
        for (int c = 2 * r; c < 2 * r + 2; c++)
            if (counts(n, c)) sum += exp2_fast((score[n][c] - now) * LOG2_E);
}

/* Top and sum of e^(I - top) of each query and split; the weights of the index heads, for dk. */
template <typename T> __global__ void __launch_bounds__(THREADS) lse_kernel(CudaIndexLoss a) {
#ifdef HAVE_TENSOR_CORES
    extern __shared__ __align__(16) char shared[];
    __shared__ uint32_t bits[2][THREADS];
    IndexWalk<T> walk(a.s, shared);
    Place p = query_place(a, own_tile(a));
    int mine = p.query / SIDE, heads = a.s.k.index_heads;
    float top[2] = {-INFINITY, -INFINITY}, sum[2] = {};
    walk.load_queries(p.row, p.query);
    if (blockIdx.y == 0)
        for (int i = threadIdx.x; i < SIDE * heads; i += THREADS)
            if (p.query + i / heads < a.s.k.heads.seq)
                a.w[first_query(a, p) * heads + i] = walk.w[i % heads * SIDE + i / heads];
    walk.load_keys(p.row, blockIdx.y * SIDE);
    for (int tile = blockIdx.y, stage = 0; tile <= mine; tile += a.splits, stage ^= 1) {
        p.key = tile * SIDE;
        uint32_t word = bits_of(a, p);
        bits[stage][threadIdx.x] = word;
        copies_wait<0>();
        bool any = __syncthreads_or(word != 0);
        uint32_t keys = walk.keys;
        walk.next_keys(p.row, p.key + a.splits * SIDE, tile + a.splits <= mine);
        if (!any) continue;
        Pairs score;
        walk.scores(score, keys);
        LaneBits counts(bits[stage]);
#pragma unroll
        for (int r = 0; r < 2; r++) add_scores(top[r], sum[r], counts, score, r);
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float all = fmaxf(top[r], __shfl_xor_sync(~0u, top[r], 1));
        all = fmaxf(all, __shfl_xor_sync(~0u, all, 2));
        float total = quad_sum(top[r] == -INFINITY ? 0.0f : sum[r] * expf(top[r] - all));
        int query = p.query + own_row(2 * r);
        float *to = a.sums + (blockIdx.y * a.s.tokens + p.row * a.s.k.heads.seq + query) * SUMS;
        if (threadIdx.x % 4 == 0 && query < a.s.k.heads.seq) to[0] = all, to[1] = total;
    }
#endif
}

/* ---- pairs ---- */

template <int D> DEVICE uint32_t query_tile(uint32_t memory, int job) {
    return memory + job % 2 * Buffers<D>::TILE_BYTES;
}
template <int D> DEVICE uint32_t key_tile(uint32_t memory, const AttrHeads &h, int job) {
    int kv = job < h.heads ? job / (h.heads / h.kv_heads) : h.kv_heads;
    return memory + (2 + kv % 2) * Buffers<D>::TILE_BYTES;
}

/* Job: an attention head, or H + an index head. The key tile comes with the first that needs it. */
template <typename T, int D> DEVICE void start_job(const CudaSparse &a, uint32_t memory, Place p, int job) {
    const AttrHeads &h = a.k.heads;
    int64_t query = p.row * h.seq + p.query, key = p.row * h.seq + p.key;
    int queries = (int)h.seq - p.query, keys = (int)h.seq - p.key, group = h.heads / h.kv_heads;
    uint32_t to_query = query_tile<D>(memory, job), to_key = key_tile<D>(memory, h, job);
    if (job < h.heads) {
        Copy<D, THREADS> copy;
        int width = (h.heads + 2 * h.kv_heads) * D;
        const T *qkv = (const T *)a.qkv;
        copy.template start<SIDE>(copy.in_tile(to_query), copy.in_head(qkv + query * width + job * D, width), width,
                                  queries);
        if (job % group == 0)
            copy.template start<SIDE>(copy.in_tile(to_key),
                                      copy.in_head(qkv + key * width + (h.heads + job / group) * D, width), width,
                                      keys);
    } else {
        int width = index_width(a.k), j = job - h.heads;
        copy_index(to_query, (const T *)a.index + query * width + j * E, width, queries);
        if (j == 0) copy_index(to_key, (const T *)a.index + key * width + a.k.index_heads * E, width, keys);
    }
    copies_commit();
}

/* Job is there for all warps, and the next one is on its way. */
template <typename T, int D> DEVICE void await_job(const CudaSparse &a, uint32_t memory, Place p, int job) {
    copies_wait<0>();
    __syncthreads();
    if (job + 1 < a.k.heads.heads + a.k.index_heads) start_job<T, D>(a, memory, p, job + 1);
}

/* p: the sum over heads of attention, whether a pair counts or not. */
template <typename T, int D>
DEVICE void attention(Pairs &p, const CudaIndexLoss &a, uint32_t memory, Place at) {
    const AttrHeads &h = a.s.k.heads;
    float scale2 = h.scale * LOG2_E;
    const float *lse = a.lse + (first_query(a, at) + own_row(0)) * h.heads;
    bool there[2] = {at.query + own_row(0) < h.seq, at.query + own_row(2) < h.seq};
    clear(p);
    for (int head = 0; head < h.heads; head++) {
        Pairs x;
        float off[2];
#pragma unroll
        for (int r = 0; r < 2; r++) off[r] = there[r] ? lse[r * 8 * h.heads + head] * LOG2_E : INFINITY;
        await_job<T, D>(a.s, memory, at, head);
        product<T, D>(x, query_tile<D>(memory, head), key_tile<D>(memory, h, head));
#pragma unroll
        for (int n = 0; n < SIDE / 8; n++)
#pragma unroll
            for (int c = 0; c < 4; c++) p[n][c] += exp2_fast(x[n][c] * scale2 - off[c / 2]);
    }
}

DEVICE void add_products(float (&more)[3], const LaneBits &counts, const Pairs &p, const Pairs &score, float share,
                         int r) {
#pragma unroll
    for (int n = 0; n < SIDE / 8; n++)
#pragma unroll
        for (int c = 2 * r; c < 2 * r + 2; c++) {
            float x = p[n][c] * share;
            if (!counts(n, c) || !(x > 0)) continue;
            more[0] += x * __logf(x), more[1] += x * score[n][c], more[2] += x;
        }
}

/* dI of the tile's pairs, a row a query of the band. */
template <typename T>
DEVICE void give_gradient(const CudaIndexLoss &a, Place p, const LaneBits &counts, const Pairs &prob,
                          const Pairs &score, float share, const float (&index_lse)[2], const float (&by)[2]) {
    int64_t stride = pairs_stride(a.s.k.heads.seq);
    T *to = (T *)a.pairs + ((own_tile(a) - a.first_tile) * SIDE + own_row(0)) * stride + p.key + threadIdx.x % 4 * 2;
#pragma unroll
    for (int n = 0; n < SIDE / 8; n++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float d[2];
#pragma unroll
            for (int c = 0; c < 2; c++) {
                float soft = exp2_fast((score[n][2 * r + c] - index_lse[r]) * LOG2_E);
                d[c] = counts(n, 2 * r + c) ? (soft - prob[n][2 * r + c] * share) * by[r] : 0.0f;
            }
            *(uint32_t *)(to + r * 8 * stride + n * 8) = pack<T>(d[0], d[1]);
        }
}

/* Of each query and split the sum of p ln p, of p I, of p; with GRAD also dI. */
template <typename T, int D, bool GRAD> __global__ void __launch_bounds__(THREADS, 2) pairs_kernel(CudaIndexLoss a) {
#ifdef HAVE_TENSOR_CORES
    extern __shared__ __align__(16) char shared[];
    __shared__ uint32_t bits[THREADS];
    const AttrHeads &h = a.s.k.heads;
    float *w = (float *)(shared + Buffers<D>::BYTES), share = 1.0f / (float)h.heads;
    uint32_t memory = shared_address(shared);
    Place p = query_place(a, own_tile(a));
    int mine = p.query / SIDE;
    float more[2][3] = {}, index_lse[2], by[2];
    load_weights<T>(w, a.s, p.row, p.query);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int64_t token = first_query(a, p) + own_row(2 * r);
        bool there = p.query + own_row(2 * r) < h.seq;
        index_lse[r] = there ? index_lse_of(a, token) : 0.0f;
        by[r] = there ? a.weight[token] * LIFT : 0.0f;
    }
    for (int tile = blockIdx.y; tile <= mine; tile += a.splits) {
        p.key = tile * SIDE;
        uint32_t word = bits_of(a, p);
        __syncthreads(); /* all are done with the last tile */
        bits[threadIdx.x] = word;
        Pairs prob, score;
        if (__syncthreads_or(word != 0)) {
            start_job<T, D>(a.s, memory, p, 0);
            attention<T, D>(prob, a, memory, p);
            clear(score);
            for (int j = 0; j < a.s.k.index_heads; j++) {
                int job = h.heads + j;
                await_job<T, D>(a.s, memory, p, job);
                add_index_head<T>(score, a.s, w, j, query_tile<D>(memory, job), key_tile<D>(memory, h, job));
            }
        } else if (GRAD) {
            clear(prob), clear(score);
        } else {
            continue;
        }
        LaneBits counts(bits);
#pragma unroll
        for (int r = 0; r < 2; r++) add_products(more[r], counts, prob, score, share, r);
        if (GRAD) give_gradient<T>(a, p, counts, prob, score, share, index_lse, by);
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float total[3] = {quad_sum(more[r][0]), quad_sum(more[r][1]), quad_sum(more[r][2])};
        int query = p.query + own_row(2 * r);
        float *to = a.sums + (blockIdx.y * a.s.tokens + p.row * h.seq + query) * SUMS + 2;
        if (threadIdx.x % 4 || query >= h.seq) continue;
        to[0] = total[0], to[1] = total[1], to[2] = total[2];
    }
#endif
}

__global__ void __launch_bounds__(THREADS) loss_parts_kernel(CudaIndexLoss a) {
    int64_t token = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (token >= a.s.tokens) return;
    double lse = index_lse_of(a, token), entropy = 0, product = 0, mass = 0;
    for (int i = 0; i < a.splits; i++) {
        const float *part = a.sums + (i * a.s.tokens + token) * SUMS;
        entropy += part[2], product += part[3], mass += part[4];
    }
    a.parts[token] = a.weight[token] != 0 ? (entropy - product + lse * mass) * a.weight[token] : 0;
}

/* ---- gradients ---- */

/* dI of 64 queries by 64 keys: own rows by the other side's, as products have them. */
template <typename T, bool KEYS_OWN> DEVICE void load_gradient(Pairs &d, uint32_t tile) {
    uint32_t at = KEYS_OWN ? lane_transposed<E>(tile) + threadIdx.x / WARP * 32
                           : lane_a<E>(tile, threadIdx.x / WARP * 16);
#pragma unroll
    for (int k = 0; k < SIDE / 16; k++) {
        uint32_t b[4];
        if (KEYS_OWN)
            load_blocks_transposed(b, at + k * 16 * Tile<E>::ROW_BYTES);
        else
            load_blocks(b, at + k * 32);
#pragma unroll
        for (int i = 0; i < 4; i++) { /* blocks: rows, then columns; transposed the other way about */
            int row = KEYS_OWN ? i / 2 : i % 2, col = KEYS_OWN ? i % 2 : i / 2;
            float2 v = unpack(b[i], T());
            d[2 * k + col][2 * row] = v.x, d[2 * k + col][2 * row + 1] = v.y;
        }
    }
}

/* Tile (query, key) of the band. */
template <typename T> DEVICE void copy_gradient(uint32_t to, const CudaIndexLoss &a, int64_t band_tile, int key) {
    Copy<E, THREADS> copy;
    int64_t stride = pairs_stride(a.s.k.heads.seq);
    const T *from = (const T *)a.pairs + band_tile * SIDE * stride + key;
    copy.template start<SIDE>(copy.in_tile(to), copy.in_head(from, (int)stride), (int)stride, SIDE);
}

/* Scores before the activation become what they pass on. w: the head's weight of a column's query, or of a row's. */
template <bool KEYS_OWN, typename Weight>
DEVICE void head_gradient(Pairs &x, const Pairs &d, Weight w, float bias, bool relu, float (&weight)[2],
                          float (&passed)[2]) {
    float scale = rsqrtf((float)E);
#pragma unroll
    for (int n = 0; n < SIDE / 8; n++)
#pragma unroll
        for (int c = 0; c < 4; c++) {
            float act = act_fast(x[n][c] * scale + bias, relu), slope = relu ? (act > 0) : act * (1.0f - act);
            if (!KEYS_OWN) weight[c / 2] += d[n][c] * act;
            x[n][c] = d[n][c] * w(n, c) * slope;
            if (!KEYS_OWN) passed[c / 2] += x[n][c];
        }
}

/* sum += x b, b being the other side's index tile. */
template <typename T> DEVICE void add_product(float (&sum)[E / 8][4], const Pairs &x, uint32_t other) {
    uint32_t transposed = lane_transposed<E>(other);
#pragma unroll
    for (int k = 0; k < SIDE / 16; k++) {
        uint32_t a[4], b[4];
#pragma unroll
        for (int c = 0; c < 4; c++) a[c] = pack<T>(x[2 * k + c / 2][c % 2 * 2], x[2 * k + c / 2][c % 2 * 2 + 1]);
#pragma unroll
        for (int n = 0; n < E / 16; n++) {
            load_blocks_transposed(b, transposed + k * 16 * Tile<E>::ROW_BYTES + n * 32);
            multiply<T>(sum[2 * n], a, b[0], b[1]);
            multiply<T>(sum[2 * n + 1], a, b[2], b[3]);
        }
    }
}

/* dq of HEADS index heads, and what their weights and biases get; a row a query of the band. */
template <typename T> __global__ void __launch_bounds__(THREADS, 2) index_dq_kernel(CudaIndexLoss a) {
#ifdef HAVE_TENSOR_CORES
    extern __shared__ __align__(16) char shared[];
    IndexWalk<T> walk(a.s, shared);
    uint32_t gradient = walk.end();
    int64_t band_tile = own_tile(a) - a.first_tile;
    Place p = query_place(a, own_tile(a));
    int mine = p.query / SIDE, first = blockIdx.z * HEADS, heads = a.s.k.index_heads;
    float dq[HEADS][E / 8][4] = {}, weight[HEADS][2] = {}, passed[HEADS][2] = {};
    walk.load_queries(p.row, p.query);
    copy_gradient<T>(gradient, a, band_tile, min((int)blockIdx.y, mine) * SIDE);
    walk.load_keys(p.row, blockIdx.y * SIDE);
    for (int tile = blockIdx.y, stage = 0; tile <= mine; tile += a.splits, stage ^= 1) {
        uint32_t keys = walk.keys, other = gradient + (stage ^ 1) * INDEX_TILE_BYTES;
        copies_wait<0>();
        __syncthreads();
        if (tile + a.splits <= mine) copy_gradient<T>(other, a, band_tile, (tile + a.splits) * SIDE);
        walk.next_keys(p.row, (tile + a.splits) * SIDE, tile + a.splits <= mine);
        Pairs d;
        load_gradient<T, false>(d, gradient + stage * INDEX_TILE_BYTES);
#pragma unroll
        for (int i = 0; i < HEADS; i++) {
            Pairs x;
            int j = first + i;
            const float *w = walk.w + j * SIDE + own_row(0);
            product<T, E>(x, walk.queries + j * INDEX_TILE_BYTES, keys);
            head_gradient<false>(
                x, d, [&](int, int c) { return w[c / 2 * 8]; }, small_number(a.s.bias, heads + j), a.s.k.relu,
                weight[i], passed[i]);
            add_product<T>(dq[i], x, keys);
        }
    }
    int width = heads * (E + 2);
    int64_t band = (blockIdx.y * a.band + band_tile) * SIDE;
#pragma unroll
    for (int i = 0; i < HEADS; i++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float *to = a.grads + (band + own_row(2 * r)) * width;
            float w = quad_sum(weight[i][r]), b = quad_sum(passed[i][r]);
#pragma unroll
            for (int n = 0; n < E / 8; n++)
                *(float2 *)(to + (first + i) * E + n * 8 + threadIdx.x % 4 * 2) =
                    make_float2(dq[i][n][2 * r], dq[i][n][2 * r + 1]);
            if (threadIdx.x % 4 == 0) to[heads * E + first + i] = w, to[heads * (E + 1) + first + i] = b;
        }
#endif
}

/* A job of dk: the tile of queries (of its band) and the index head. */
struct KeyJob {
    int64_t tile;
    int j;
};

template <typename T>
DEVICE void start_key_job(const CudaIndexLoss &a, const KeyJob &job, int key, uint32_t query, uint32_t gradient,
                          uint32_t w) {
    int heads = a.s.k.index_heads, width = index_width(a.s.k);
    Place p = query_place(a, job.tile);
    int64_t token = first_query(a, p);
    int there = (int)a.s.k.heads.seq - p.query;
    copy_index(query, (const T *)a.s.index + token * width + job.j * E, width, there);
    if (job.j == 0) {
        copy_gradient<T>(gradient, a, job.tile - a.first_tile, key);
        for (int i = threadIdx.x; i < SIDE * heads / 4; i += THREADS)
            copy16_async(w + i * 16, a.w + token * heads + i * 4, i * 4 / heads < there);
    }
    copies_commit();
}

/* dk of a tile of keys, from the queries of the band. */
template <typename T> __global__ void __launch_bounds__(THREADS, 3) index_dk_kernel(CudaIndexLoss a) {
#ifdef HAVE_TENSOR_CORES
    extern __shared__ __align__(16) char shared[];
    int heads = a.s.k.index_heads, w_bytes = SIDE * heads * 4;
    int64_t seq = a.s.k.heads.seq, tiles = (seq + SIDE - 1) / SIDE;
    uint32_t key_tile = shared_address(shared), query = key_tile + INDEX_TILE_BYTES,
             gradient = query + 2 * INDEX_TILE_BYTES, w_at = gradient + 2 * INDEX_TILE_BYTES;
    const float *weights = (const float *)(shared + 5 * INDEX_TILE_BYTES);
    int64_t row = blockIdx.x / tiles, mine = blockIdx.x % tiles;
    int64_t from = max(a.first_tile, row * tiles + mine), end = min(a.first_tile + a.band, (row + 1) * tiles);
    float dk[E / 8][4] = {};
    KeyJob job = {from + blockIdx.y, 0};
    if (job.tile >= end) {
        if (a.first_tile > 0) return; /* nothing is added */
    } else {
        copy_index(key_tile, (const T *)a.s.index + (row * seq + mine * SIDE) * index_width(a.s.k) + heads * E,
                   index_width(a.s.k), (int)(seq - mine * SIDE));
        start_key_job<T>(a, job, (int)mine * SIDE, query, gradient, w_at);
    }
    Pairs d;
    for (int n = 0, stage = 0; job.tile < end; n++) {
        KeyJob next = job.j + 1 < heads ? KeyJob{job.tile, job.j + 1} : KeyJob{job.tile + a.key_splits, 0};
        copies_wait<0>();
        __syncthreads();
        if (next.tile < end)
            start_key_job<T>(a, next, (int)mine * SIDE, query + (n + 1) % 2 * INDEX_TILE_BYTES,
                             gradient + (stage ^ 1) * INDEX_TILE_BYTES, w_at + (stage ^ 1) * w_bytes);
        if (job.j == 0) load_gradient<T, true>(d, gradient + stage * INDEX_TILE_BYTES);
        Pairs x;
        float none[2] = {};
        const float *w = weights + stage * SIDE * heads + job.j;
        uint32_t other = query + n % 2 * INDEX_TILE_BYTES;
        product<T, E>(x, key_tile, other);
        head_gradient<true>(
            x, d, [&](int m, int c) { return w[other_row(m, c) * heads]; }, small_number(a.s.bias, heads + job.j),
            a.s.k.relu, none, none);
        add_product<T>(dk, x, other);
        if (next.j == 0) stage ^= 1;
        job = next;
    }
    int64_t first = blockIdx.y * a.s.tokens + row * seq + mine * SIDE;
#pragma unroll
    for (int i = 0; i < SIDE * E / THREADS; i++) {
        int key = own_row(i % 4), e = other_row(i / 4, i % 4);
        if (mine * SIDE + key >= seq) continue;
        float *to = a.key_grads + (first + key) * E + e;
        *to = (a.first_tile > 0 ? *to : 0.0f) + dk[i / 4][i % 4];
    }
#endif
}

/* The splits' sums, in order: a block a token; of a band's queries, or of all keys. */
template <typename T, bool KEYS_OWN> __global__ void __launch_bounds__(THREADS) join_grads_kernel(CudaIndexLoss a) {
    int heads = a.s.k.index_heads, width = KEYS_OWN ? E : heads * (E + 2), to_width = index_width(a.s.k);
    int64_t token = blockIdx.x, from = token, step = a.s.tokens;
    if (!KEYS_OWN) {
        Place p = query_place(a, a.first_tile + blockIdx.x / SIDE);
        if (p.query + blockIdx.x % SIDE >= a.s.k.heads.seq) return;
        token = first_query(a, p) + blockIdx.x % SIDE;
        step = a.band * SIDE;
    }
    T *to = (T *)a.d_index + token * to_width;
    const float *sums = KEYS_OWN ? a.key_grads : a.grads;
    float by = 1.0f / (LIFT * *a.divisor), scale = by * rsqrtf((float)E);
    for (int i = threadIdx.x; i < width; i += THREADS) {
        float sum = 0;
        for (int s = 0; s < (KEYS_OWN ? a.key_splits : a.splits); s++) sum += sums[(s * step + from) * width + i];
        int j = i - heads * E;
        if (KEYS_OWN) {
            to[heads * E + i] = from_float<T>(sum * scale);
        } else if (j < 0) {
            to[i] = from_float<T>(sum * scale);
        } else if (j < heads) {
            float z = to_float(((const T *)a.s.index)[token * to_width + heads * E + E + j]);
            float w = sigmoid(z + small_number(a.s.bias, j)), dw = sum * by * w * (1.0f - w);
            to[heads * E + E + j] = from_float<T>(dw);
            a.bias_parts[token * 2 * heads + j] = dw;
        } else {
            a.bias_parts[token * 2 * heads + j] = sum * by;
        }
    }
}

/* ---- on the host ---- */

template <typename Fn> static void with_tile_types(const CudaSparse *s, Fn fn) {
    with_dim(s->k.heads.head_dim, [&](auto d) {
        if constexpr (decltype(d)::value != 80) { /* ir/sparse.h keeps it out: it spills */
            if (s->format == FMT_BF16)
                fn(Bf16(), d);
            else
                fn(F16(), d);
        }
    });
}

static int pairs_shared(const AttrSparse *k) {
    int bytes = SIDE * k->index_heads * 4;
    with_dim(k->heads.head_dim, [&](auto d) { bytes += Buffers<decltype(d)::value>::BYTES; });
    return bytes;
}
static int dk_shared(const AttrSparse *k) { return 5 * INDEX_TILE_BYTES + 2 * SIDE * k->index_heads * 4; }
static int dq_shared(const AttrSparse *k) { return index_walk_shared(k) + 2 * INDEX_TILE_BYTES; }

extern "C" int cuda_index_tiles_shared(const AttrSparse *k) {
    int pairs = pairs_shared(k), dq = dq_shared(k);
    return pairs > dq ? pairs : dq;
}

template <typename Kernel>
static void launch_walk(cudaStream_t s, Kernel kernel, const CudaIndexLoss *a, dim3 grid, int bytes) {
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    kernel<<<grid, THREADS, bytes, s>>>(*a);
}

static int64_t tiles_of(const CudaIndexLoss *a) {
    int64_t seq = a->s.k.heads.seq;
    return a->s.tokens / seq * ((seq + SIDE - 1) / SIDE);
}

extern "C" void cuda_launch_index_loss_tiles(cudaStream_t s, const CudaIndexLoss *a) {
    dim3 grid((unsigned)tiles_of(a), (unsigned)a->splits);
    with_tile_types(&a->s, [&](auto t, auto d) {
        using T = decltype(t);
        constexpr int D = decltype(d)::value;
        launch_walk(s, lse_kernel<T>, a, grid, index_walk_shared(&a->s.k));
        launch_walk(s, pairs_kernel<T, D, false>, a, grid, pairs_shared(&a->s.k));
    });
    loss_parts_kernel<<<blocks_for(a->s.tokens, THREADS), THREADS, 0, s>>>(*a);
}

extern "C" void cuda_launch_index_loss_grad_tiles(cudaStream_t s, const CudaIndexLoss *a) {
    const AttrSparse *k = &a->s.k;
    int columns = 2 * k->index_heads;
    int64_t tiles = tiles_of(a);
    unsigned splits = (unsigned)a->splits;
    with_tile_types(&a->s, [&](auto t, auto d) {
        using T = decltype(t);
        constexpr int D = decltype(d)::value;
        launch_walk(s, lse_kernel<T>, a, dim3((unsigned)tiles, splits), index_walk_shared(k));
        CudaIndexLoss band = *a;
        for (; band.first_tile < tiles; band.first_tile += a->band) {
            unsigned some = (unsigned)(tiles - band.first_tile < a->band ? tiles - band.first_tile : a->band);
            launch_walk(s, pairs_kernel<T, D, true>, &band, dim3(some, splits), pairs_shared(k));
            launch_walk(s, index_dq_kernel<T>, &band, dim3(some, splits, (unsigned)(k->index_heads / HEADS)),
                        dq_shared(k));
            join_grads_kernel<T, false><<<some * SIDE, THREADS, 0, s>>>(band);
            launch_walk(s, index_dk_kernel<T>, &band, dim3((unsigned)tiles, (unsigned)a->key_splits), dk_shared(k));
        }
        join_grads_kernel<T, true><<<(unsigned)a->s.tokens, THREADS, 0, s>>>(*a);
    });
    if (a->parts) loss_parts_kernel<<<blocks_for(a->s.tokens, THREADS), THREADS, 0, s>>>(*a);
    if (a->d_bias.data) join_parts(s, a->d_bias, a->bias_parts, a->s.tokens, columns, columns, a->beta, a->key);
}
