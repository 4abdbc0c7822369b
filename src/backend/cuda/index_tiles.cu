/* index_tiles.cu - an indexer's scores, its loss and gradients on tensor cores, a tile of 64 queries by 64 keys at a
 * time. Reference: cpu/index_loss.c, cpu/select.c.
 *
 * Which pairs count is a mask, a bit a pair; tiles without one are skipped. For a tile, one query tile after the other
 * comes into shared memory while the last is multiplied: the H heads' (p = mean over heads of e^(q.k - lse)), then
 * the J index heads' (scores I), for gradients the J index heads' again:
 *   dI = (e^(I - lse of I) - p) * weight;  da_j = dI * w_j * act'(a_j);  dq_j = da_j k;  dk = sum over j of da_j^T q_j
 * 4 warps, 16 own rows each. A block owns queries (sums, dq) or keys (dk), and every n-th tile of the other side: the
 * n sums of a row stand in the workspace and are added in order. bf16 or fp16 in, fp32 sums, da rounded for its
 * product. */
#include "backend/cuda/attend.cuh"
#include "backend/cuda/parts.cuh"
#include "backend/cuda/sparse.cuh"

enum { WARPS = 4, THREADS = WARPS * WARP, SIDE = CUDA_INDEX_TILE, E = CUDA_INDEX_DIM, SUMS = CUDA_INDEX_SUMS };
static const float LIFT = 256; /* of what is rounded to 16 bits: fp16's range begins at 6e-8 */

typedef float Pairs[SIDE / 8][4]; /* a warp's: 16 own rows by 64 of the other side */

template <int D> struct Buffers { /* two query tiles, two key tiles; then Words */
    static constexpr int WIDE = D > E ? D : E, TILE_BYTES = SIDE * Tile<WIDE>::ROW_BYTES, BYTES = 4 * TILE_BYTES;
};

struct Words { /* of 64 queries, in shared memory */
    float *lse2, *w, *index_lse, *by; /* (H, 64), (J, 64), (64), (64) */
    uint32_t *bits;                   /* (64, 2) */
};

static int words_of(const AttrSparse *k) { return SIDE * (k->heads.heads + k->index_heads + 4); }

DEVICE Words words_at(char *p, const AttrSparse &k) {
    float *lse2 = (float *)p, *w = lse2 + SIDE * k.heads.heads, *index_lse = w + SIDE * k.index_heads;
    return {lse2, w, index_lse, index_lse + SIDE, (uint32_t *)(index_lse + 2 * SIDE)};
}

struct Place { /* of a tile: a row of the batch, its first query and key */
    int64_t row;
    int query, key;
};

DEVICE int index_width(const AttrSparse &k) { return k.index_heads * (E + 1) + E; }

/* ---- what comes into shared memory ---- */

template <typename T> DEVICE void copy_index(uint32_t to, const T *from, int width, int there) {
    constexpr int PIECES = E / 4; /* of 8 bytes: rows of index begin at a multiple of that */
#pragma unroll
    for (int i = 0; i < SIDE * PIECES / THREADS; i++) {
        int piece = threadIdx.x + i * THREADS, row = piece / PIECES, col = piece % PIECES * 4;
        copy8_async(to + row * Tile<E>::ROW_BYTES + col * 2, from + (int64_t)row * width + col, row < there);
    }
}

template <int D> DEVICE uint32_t query_tile(uint32_t memory, int job) {
    return memory + job % 2 * Buffers<D>::TILE_BYTES;
}
template <int D> DEVICE uint32_t key_tile(uint32_t memory, const AttrHeads &h, int job) {
    int kv = job < h.heads ? job / (h.heads / h.kv_heads) : h.kv_heads;
    return memory + (2 + kv % 2) * Buffers<D>::TILE_BYTES;
}

/* Job: an attention head, or H + an index head (or H + J + it). The key tile comes with the first that needs it. */
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
        int width = index_width(a.k), j = (job - h.heads) % a.k.index_heads;
        copy_index(to_query, (const T *)a.index + query * width + j * E, width, queries);
        if (job == h.heads)
            copy_index(to_key, (const T *)a.index + key * width + a.k.index_heads * E, width, keys);
    }
    copies_commit();
}

/* Job is there for all warps, and the next one is on its way. */
template <typename T, int D> DEVICE void await_job(const CudaSparse &a, uint32_t memory, Place p, int job, int end) {
    copies_wait<0>();
    __syncthreads();
    if (job + 1 < end) start_job<T, D>(a, memory, p, job + 1);
}

template <typename T> DEVICE void load_weights(const Words &x, const CudaSparse &a, Place p) {
    int heads = a.k.index_heads, width = index_width(a.k);
    for (int i = threadIdx.x; i < SIDE * heads; i += THREADS) {
        int q = i / heads, j = i % heads;
        int64_t token = p.row * a.k.heads.seq + p.query + q;
        bool there = p.query + q < a.k.heads.seq;
        float z = there ? to_float(((const T *)a.index)[token * width + heads * E + E + j]) : 0.0f;
        x.w[j * SIDE + q] = there ? sigmoid(z + small_number(a.bias, j)) : 0.0f;
    }
}

DEVICE void load_lse(const Words &x, const CudaIndexLoss &a, Place p) {
    const AttrHeads &h = a.s.k.heads;
    for (int i = threadIdx.x; i < SIDE * h.heads; i += THREADS) {
        int q = i / h.heads, head = i % h.heads;
        int64_t token = p.row * h.seq + p.query + q;
        x.lse2[head * SIDE + q] = p.query + q < h.seq ? a.lse[token * h.heads + head] * LOG2_E : INFINITY;
    }
}

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

DEVICE void load_gradient_words(const Words &x, const CudaIndexLoss &a, Place p) {
    load_lse(x, a, p);
    for (int q = threadIdx.x; q < SIDE; q += THREADS) {
        int64_t token = p.row * a.s.k.heads.seq + p.query + q;
        bool there = p.query + q < a.s.k.heads.seq;
        x.index_lse[q] = there ? index_lse_of(a, token) : 0.0f;
        x.by[q] = there ? a.weight[token] * LIFT : 0.0f;
    }
}

/* The tile's bits; false: there are none. A barrier on both sides. */
DEVICE bool load_bits(const Words &x, const CudaIndexLoss &a, Place p) {
    int q = threadIdx.x / 2, word = threadIdx.x % 2;
    int64_t token = p.row * a.s.k.heads.seq + p.query + q;
    uint32_t bits = 0;
    if (p.query + q < a.s.k.heads.seq) bits = a.mask[token * a.mask_words + p.key / 32 + word];
    __syncthreads(); /* all are done with the last tile */
    x.bits[threadIdx.x] = bits;
    return __syncthreads_or(bits != 0);
}

/* ---- where a lane's numbers stand ---- */

template <bool KEYS_OWN> DEVICE int query_of(int n, int c) {
    int lane = threadIdx.x % WARP;
    return KEYS_OWN ? n * 8 + lane % 4 * 2 + c % 2 : threadIdx.x / WARP * 16 + c / 2 * 8 + lane / 4;
}
template <bool KEYS_OWN> DEVICE bool counts(const Words &x, int n, int c) {
    int query = query_of<KEYS_OWN>(n, c), key = query_of<!KEYS_OWN>(n, c);
    return x.bits[query * 2 + key / 32] >> key % 32 & 1;
}

/* ---- products ---- */

template <typename T, int D> DEVICE void product(Pairs &x, uint32_t own, uint32_t other) {
    uint32_t a_at = lane_a<D>(own, threadIdx.x / WARP * 16), b_at = lane_b<D>(other);
#pragma unroll
    for (int n = 0; n < SIDE / 8; n++) x[n][0] = x[n][1] = x[n][2] = x[n][3] = 0;
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

/* sum += x b, b being the other side's index tile. */
template <typename T> DEVICE void add_product(float (&sum)[E / 8][4], const Pairs &x, uint32_t other) {
    uint32_t flipped = lane_flipped<E>(other);
#pragma unroll
    for (int k = 0; k < SIDE / 16; k++) {
        uint32_t a[4], b[4];
#pragma unroll
        for (int c = 0; c < 4; c++) a[c] = pack<T>(x[2 * k + c / 2][c % 2 * 2], x[2 * k + c / 2][c % 2 * 2 + 1]);
#pragma unroll
        for (int n = 0; n < E / 16; n++) {
            load_blocks_flipped(b, flipped + k * 16 * Tile<E>::ROW_BYTES + n * 32);
            multiply<T>(sum[2 * n], a, b[0], b[1]);
            multiply<T>(sum[2 * n + 1], a, b[2], b[3]);
        }
    }
}

template <typename T, int D, bool KEYS_OWN>
DEVICE void job_product(Pairs &x, const AttrHeads &h, uint32_t memory, int job) {
    uint32_t query = query_tile<D>(memory, job), key = key_tile<D>(memory, h, job);
    uint32_t own = KEYS_OWN ? key : query, other = KEYS_OWN ? query : key;
    if (job < h.heads)
        product<T, D>(x, own, other);
    else
        product<T, E>(x, own, other);
}

/* p: the sum over heads of attention, whether a pair counts or not. */
template <typename T, int D, bool KEYS_OWN>
DEVICE void attention(Pairs &p, const CudaIndexLoss &a, const Words &words, uint32_t memory, Place at, int end) {
    float scale2 = a.s.k.heads.scale * LOG2_E;
#pragma unroll
    for (int n = 0; n < SIDE / 8; n++) p[n][0] = p[n][1] = p[n][2] = p[n][3] = 0;
    for (int head = 0; head < a.s.k.heads.heads; head++) {
        Pairs x;
        await_job<T, D>(a.s, memory, at, head, end);
        job_product<T, D, KEYS_OWN>(x, a.s.k.heads, memory, head);
#pragma unroll
        for (int n = 0; n < SIDE / 8; n++)
#pragma unroll
            for (int c = 0; c < 4; c++)
                p[n][c] += exp2_fast(x[n][c] * scale2 - words.lse2[head * SIDE + query_of<KEYS_OWN>(n, c)]);
    }
}

template <typename T, int D, bool KEYS_OWN>
DEVICE void index_scores(Pairs &score, const CudaSparse &a, const Words &words, uint32_t memory, Place at, int end) {
    int heads = a.k.index_heads, first = a.k.heads.heads;
    float scale = rsqrtf((float)E);
#pragma unroll
    for (int n = 0; n < SIDE / 8; n++) score[n][0] = score[n][1] = score[n][2] = score[n][3] = 0;
    for (int j = 0; j < heads; j++) {
        Pairs x;
        float bias = small_number(a.bias, heads + j);
        await_job<T, D>(a, memory, at, first + j, end);
        job_product<T, D, KEYS_OWN>(x, a.k.heads, memory, first + j);
#pragma unroll
        for (int n = 0; n < SIDE / 8; n++)
#pragma unroll
            for (int c = 0; c < 4; c++)
                score[n][c] +=
                    words.w[j * SIDE + query_of<KEYS_OWN>(n, c)] * index_act(x[n][c] * scale + bias, a.k.relu);
    }
}

/* ---- scores, for the selection ---- */

template <typename T>
__global__ void __launch_bounds__(THREADS) scores_kernel(CudaSparse a, int64_t first_tile) {
#ifdef HAVE_TENSOR_CORES
    extern __shared__ __align__(16) char shared[];
    const AttrHeads &h = a.k.heads;
    Words words = words_at(shared + Buffers<E>::BYTES, a.k);
    int64_t tile = first_tile + blockIdx.x, tiles = (h.seq + SIDE - 1) / SIDE;
    Place p = {tile / tiles, (int)(tile % tiles) * SIDE, (int)blockIdx.y * SIDE};
    if (p.key > p.query) return; /* keys behind the last query */
    uint32_t memory = shared_address(shared);
    Pairs score;
    start_job<T, E>(a, memory, p, h.heads);
    load_weights<T>(words, a, p);
    index_scores<T, E, false>(score, a, words, memory, p, h.heads + a.k.index_heads);
#pragma unroll
    for (int n = 0; n < SIDE / 8; n++)
#pragma unroll
        for (int c = 0; c < 4; c++) {
            int query = query_of<false>(n, c), key = p.key + query_of<true>(n, c);
            if (p.query + query < h.seq && key < h.seq)
                a.workspace[((int64_t)blockIdx.x * SIDE + query) * a.span + key] = score[n][c];
        }
#endif
}

/* ---- the loss: of each query and split top, sum of e^(I - top), sum of p ln p, of p I, of p ---- */

DEVICE void add_scores(float &top, float &sum, const Words &words, const Pairs &score, int r) {
    float now = top;
#pragma unroll
    for (int n = 0; n < SIDE / 8; n++)
#pragma unroll
        for (int c = 2 * r; c < 2 * r + 2; c++)
            if (counts<false>(words, n, c)) now = fmaxf(now, score[n][c]);
    if (now == -INFINITY) return;
    sum *= expf(top - now);
    top = now;
#pragma unroll
    for (int n = 0; n < SIDE / 8; n++)
#pragma unroll
        for (int c = 2 * r; c < 2 * r + 2; c++)
            if (counts<false>(words, n, c)) sum += expf(score[n][c] - now);
}

DEVICE void add_products(float (&more)[3], const Words &words, const Pairs &p, const Pairs &score, float share, int r) {
#pragma unroll
    for (int n = 0; n < SIDE / 8; n++)
#pragma unroll
        for (int c = 2 * r; c < 2 * r + 2; c++) {
            float x = p[n][c] * share;
            if (!counts<false>(words, n, c) || !(x > 0)) continue;
            more[0] += x * logf(x), more[1] += x * score[n][c], more[2] += x;
        }
}

DEVICE float quad_sum(float x) {
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}

DEVICE void give_sums_of(const CudaIndexLoss &a, Place p, int r, float top, float sum, const float (&more)[3]) {
    float all = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
    all = fmaxf(all, __shfl_xor_sync(~0u, all, 2));
    sum = quad_sum(top == -INFINITY ? 0.0f : sum * expf(top - all));
    float total[SUMS] = {all, sum, quad_sum(more[0]), quad_sum(more[1]), quad_sum(more[2])};
    int query = p.query + query_of<false>(0, 2 * r);
    if (threadIdx.x % 4 || query >= a.s.k.heads.seq) return;
    float *to = a.sums + (blockIdx.y * a.s.tokens + p.row * a.s.k.heads.seq + query) * SUMS;
#pragma unroll
    for (int i = 0; i < SUMS; i++) to[i] = total[i];
}

template <typename T, int D, bool ATTENDS>
__global__ void __launch_bounds__(THREADS) sums_kernel(CudaIndexLoss a) {
#ifdef HAVE_TENSOR_CORES
    extern __shared__ __align__(16) char shared[];
    const AttrHeads &h = a.s.k.heads;
    Words words = words_at(shared + Buffers<D>::BYTES, a.s.k);
    int tiles = (int)((h.seq + SIDE - 1) / SIDE), mine = tiles - 1 - blockIdx.x % tiles; /* most keys first */
    Place p = {blockIdx.x / tiles, mine * SIDE, 0};
    uint32_t memory = shared_address(shared);
    float top[2] = {-INFINITY, -INFINITY}, sum[2] = {}, more[2][3] = {}, share = 1.0f / (float)h.heads;
    int end = h.heads + a.s.k.index_heads;
    load_weights<T>(words, a.s, p);
    if (ATTENDS) load_lse(words, a, p);
    for (int tile = blockIdx.y; tile <= mine; tile += a.splits) {
        p.key = tile * SIDE;
        if (!load_bits(words, a, p)) continue;
        Pairs prob, score;
        start_job<T, D>(a.s, memory, p, ATTENDS ? 0 : h.heads);
        if (ATTENDS) attention<T, D, false>(prob, a, words, memory, p, end);
        index_scores<T, D, false>(score, a.s, words, memory, p, end);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            add_scores(top[r], sum[r], words, score, r);
            if (ATTENDS) add_products(more[r], words, prob, score, share, r);
        }
    }
#pragma unroll
    for (int r = 0; r < 2; r++) give_sums_of(a, p, r, top[r], sum[r], more[r]);
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

template <bool KEYS_OWN>
DEVICE void score_gradient(Pairs &d, const Pairs &p, const Words &words, float share) { /* d: scores before */
#pragma unroll
    for (int n = 0; n < SIDE / 8; n++)
#pragma unroll
        for (int c = 0; c < 4; c++) {
            int query = query_of<KEYS_OWN>(n, c);
            float x = (expf(d[n][c] - words.index_lse[query]) - p[n][c] * share) * words.by[query];
            d[n][c] = counts<KEYS_OWN>(words, n, c) ? x : 0.0f;
        }
}

/* Scores before the activation become what they pass on; of a query's row r the sums for its weight and bias. */
template <bool KEYS_OWN>
DEVICE void head_gradient(Pairs &x, const Pairs &d, const Words &words, int j, float bias, bool relu,
                          float (&weight)[2], float (&passed)[2]) {
    float scale = rsqrtf((float)E);
#pragma unroll
    for (int n = 0; n < SIDE / 8; n++)
#pragma unroll
        for (int c = 0; c < 4; c++) {
            float act = index_act(x[n][c] * scale + bias, relu), slope = relu ? (act > 0) : act * (1.0f - act);
            weight[c / 2] += d[n][c] * act;
            x[n][c] = d[n][c] * words.w[j * SIDE + query_of<KEYS_OWN>(n, c)] * slope;
            passed[c / 2] += x[n][c];
        }
}

/* Sums of a block that owns queries, in shared memory behind Words: dq (J, 32, THREADS), a thread's own numbers side
 * by side for the warp; dw and db (J, 64). */
struct QuerySums {
    float *dq, *dw, *db;
};
DEVICE QuerySums query_sums_at(const Words &w, const AttrSparse &k) {
    float *dq = (float *)(w.bits + 2 * SIDE), *dw = dq + k.index_heads * SIDE * E;
    return {dq, dw, dw + k.index_heads * SIDE};
}
static int query_sums_of(const AttrSparse *k) { return k->index_heads * SIDE * (E + 2); }

DEVICE void add_query_sums(const QuerySums &s, const float (&dq)[E / 8][4], const float (&weight)[2],
                           const float (&passed)[2], int j) {
#pragma unroll
    for (int i = 0; i < SIDE * E / THREADS; i++)
        s.dq[(j * (SIDE * E / THREADS) + i) * THREADS + threadIdx.x] += dq[i / 4][i % 4];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float w = quad_sum(weight[r]), b = quad_sum(passed[r]);
        int at = j * SIDE + query_of<false>(0, 2 * r);
        if (threadIdx.x % 4 == 0) s.dw[at] += w, s.db[at] += b;
    }
}

DEVICE void give_query_sums(const CudaIndexLoss &a, const QuerySums &s, Place p) {
    int heads = a.s.k.index_heads, width = heads * (E + 2);
    int64_t first = blockIdx.y * a.s.tokens + p.row * a.s.k.heads.seq + p.query;
    for (int j = 0; j < heads; j++)
#pragma unroll
        for (int i = 0; i < SIDE * E / THREADS; i++) {
            int query = query_of<false>(i / 4, i % 4), e = query_of<true>(i / 4, i % 4);
            if (p.query + query < a.s.k.heads.seq)
                a.grads[(first + query) * width + j * E + e] =
                    s.dq[(j * (SIDE * E / THREADS) + i) * THREADS + threadIdx.x];
        }
    __syncthreads();
    for (int i = threadIdx.x; i < 2 * heads * SIDE; i += THREADS) /* dw, then db */
        if (p.query + i % SIDE < a.s.k.heads.seq) a.grads[(first + i % SIDE) * width + heads * E + i / SIDE] = s.dw[i];
}

DEVICE void give_key_sums(const CudaIndexLoss &a, const float (&dk)[E / 8][4], Place p) {
    int64_t first = blockIdx.y * a.s.tokens + p.row * a.s.k.heads.seq + p.key;
#pragma unroll
    for (int i = 0; i < SIDE * E / THREADS; i++) {
        int key = query_of<false>(i / 4, i % 4), e = query_of<true>(i / 4, i % 4);
        if (p.key + key < a.s.k.heads.seq) a.grads[(first + key) * E + e] = dk[i / 4][i % 4];
    }
}

template <typename T, int D, bool KEYS_OWN>
__global__ void __launch_bounds__(THREADS) index_grads_kernel(CudaIndexLoss a) {
#ifdef HAVE_TENSOR_CORES
    extern __shared__ __align__(16) char shared[];
    const AttrHeads &h = a.s.k.heads;
    Words words = words_at(shared + Buffers<D>::BYTES, a.s.k);
    QuerySums sums = query_sums_at(words, a.s.k);
    int tiles = (int)((h.seq + SIDE - 1) / SIDE), heads = a.s.k.index_heads, first = h.heads + heads,
        end = first + heads, mine = KEYS_OWN ? blockIdx.x % tiles : tiles - 1 - blockIdx.x % tiles;
    Place p = {blockIdx.x / tiles, mine * SIDE, mine * SIDE};
    uint32_t memory = shared_address(shared);
    float dk[E / 8][4] = {}, share = 1.0f / (float)h.heads;
    if (!KEYS_OWN) {
        load_weights<T>(words, a.s, p);
        load_gradient_words(words, a, p);
        for (int i = threadIdx.x; i < heads * SIDE * (E + 2); i += THREADS) sums.dq[i] = 0;
    }
    int from = blockIdx.y + (KEYS_OWN ? mine : 0), last = KEYS_OWN ? tiles - 1 : mine;
    for (int tile = from; tile <= last; tile += a.splits) {
        (KEYS_OWN ? p.query : p.key) = tile * SIDE;
        if (!load_bits(words, a, p)) continue;
        Pairs prob, d;
        start_job<T, D>(a.s, memory, p, 0);
        if (KEYS_OWN) load_weights<T>(words, a.s, p), load_gradient_words(words, a, p);
        attention<T, D, KEYS_OWN>(prob, a, words, memory, p, end);
        index_scores<T, D, KEYS_OWN>(d, a.s, words, memory, p, end);
        score_gradient<KEYS_OWN>(d, prob, words, share);
        for (int j = 0; j < heads; j++) {
            Pairs x;
            float weight[2] = {}, passed[2] = {}, dq[E / 8][4] = {};
            uint32_t other = KEYS_OWN ? query_tile<D>(memory, first + j) : key_tile<D>(memory, h, first + j);
            await_job<T, D>(a.s, memory, p, first + j, end);
            job_product<T, D, KEYS_OWN>(x, h, memory, first + j);
            head_gradient<KEYS_OWN>(x, d, words, j, small_number(a.s.bias, heads + j), a.s.k.relu, weight, passed);
            if (KEYS_OWN) {
                add_product<T>(dk, x, other);
            } else {
                add_product<T>(dq, x, other);
                add_query_sums(sums, dq, weight, passed, j);
            }
        }
    }
    __syncthreads();
    if (KEYS_OWN)
        give_key_sums(a, dk, p);
    else
        give_query_sums(a, sums, p);
#endif
}

/* The splits' sums, in order: a block a token. */
template <typename T, bool KEYS_OWN> __global__ void __launch_bounds__(THREADS) join_grads_kernel(CudaIndexLoss a) {
    int heads = a.s.k.index_heads, width = KEYS_OWN ? E : heads * (E + 2), to_width = index_width(a.s.k);
    int64_t token = blockIdx.x;
    T *to = (T *)a.d_index + token * to_width;
    float by = 1.0f / (LIFT * *a.divisor), scale = by * rsqrtf((float)E);
    for (int i = threadIdx.x; i < width; i += THREADS) {
        float sum = 0;
        for (int s = 0; s < a.splits; s++) sum += a.grads[(s * a.s.tokens + token) * width + i];
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

extern "C" int cuda_index_tiles_shared(const AttrSparse *k, int dim, bool query_sums) {
    int bytes = (words_of(k) + (query_sums ? query_sums_of(k) : 0)) * 4;
    with_dim(dim, [&](auto d) { bytes += Buffers<decltype(d)::value>::BYTES; });
    return bytes;
}

template <typename Kernel>
static void launch_walk(cudaStream_t s, Kernel kernel, const CudaIndexLoss *a, bool query_sums) {
    int64_t seq = a->s.k.heads.seq;
    dim3 grid((unsigned)(a->s.tokens / seq * ((seq + SIDE - 1) / SIDE)), (unsigned)a->splits);
    int bytes = cuda_index_tiles_shared(&a->s.k, a->s.k.heads.head_dim, query_sums);
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    kernel<<<grid, THREADS, bytes, s>>>(*a);
}

extern "C" void cuda_launch_index_scores(cudaStream_t s, const CudaSparse *a, int64_t first_tile, int64_t tiles) {
    dim3 grid((unsigned)tiles, blocks_for(a->k.heads.seq, SIDE));
    int bytes = cuda_index_tiles_shared(&a->k, E, false);
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

extern "C" void cuda_launch_index_loss_tiles(cudaStream_t s, const CudaIndexLoss *a) {
    with_tile_types(&a->s, [&](auto t, auto d) {
        using T = decltype(t);
        constexpr int D = decltype(d)::value;
        launch_walk(s, sums_kernel<T, D, true>, a, false);
    });
    loss_parts_kernel<<<blocks_for(a->s.tokens, THREADS), THREADS, 0, s>>>(*a);
}

extern "C" void cuda_launch_index_loss_grad_tiles(cudaStream_t s, const CudaIndexLoss *a) {
    int columns = 2 * a->s.k.index_heads;
    with_tile_types(&a->s, [&](auto t, auto d) {
        using T = decltype(t);
        constexpr int D = decltype(d)::value;
        launch_walk(s, sums_kernel<T, D, false>, a, false);
        launch_walk(s, index_grads_kernel<T, D, false>, a, true);
        join_grads_kernel<T, false><<<(unsigned)a->s.tokens, THREADS, 0, s>>>(*a);
        launch_walk(s, index_grads_kernel<T, D, true>, a, false);
        join_grads_kernel<T, true><<<(unsigned)a->s.tokens, THREADS, 0, s>>>(*a);
    });
    if (a->d_bias.data) join_parts(s, a->d_bias, a->bias_parts, a->s.tokens, columns, columns, a->beta, a->key);
}
