/* index_gathered.cu - the loss of an indexer and its gradients where few keys are selected among many: neighbouring
 * tokens over the gathered union of their selections, on tensor cores. Reference: cpu/index_loss.c.
 *
 * A block has 16 neighbouring tokens of a row; their queries of all heads and their index queries stay in shared
 * memory. It reads the tokens' bits (mask.cu), a word a thread, and appends the keys that any of them has selected to a
 * list, with a bit a token. 128 keys at a time are gathered by it, of one KV head after the other, then the index keys;
 * the next are on their way while these are worked on. Two warps have 32 of the keys for all tokens, each for every
 * other head, then each 16 of them for the index heads, so that a lane has p and I of its pairs in registers.
 *
 *   loss      p, the mean over H heads of e^(q.k - lse), and I, the scores of J index heads; of each token the
 *             logarithmic sum of I and the sums of p ln p, of p I, of p, which give its divergence
 *   gradient  a first walk over the keys, with scores alone, gives the logarithmic sum; in a second one
 *             dI = (e^(I - lse of I) - p) * weight,  da_j = dI * w_j * act'(a_j),  dq_j += da_j k, and
 *             dk = sum over j of da_j^T q_j is added to fp32 sums by atomics, in no fixed order
 *
 * bf16 or fp16 in, fp32 sums; da is rounded to 16 bits. */
#include "backend/cuda/index_tiles.cuh"
#include "backend/cuda/parts.cuh"

enum { WARPS = 8, ALL = WARPS * WARP /* threads */, TOKENS = 16, KEYS = WARPS * 16 /* of a tile */ };
enum { MOST = 2048 /* keys of the list */, ENOUGH = 1024, LIST = MOST + KEYS, SUMS = 3 /* of a token */ };

typedef float Own[2][4];  /* a warp's: 16 tokens by its 16 keys */
typedef float Both[4][4]; /* by the 32 keys that it shares with its neighbour */
/* 16 keys of N numbers, or twice as many, as products take them. */
template <int N, int SETS> using Blocks = uint32_t[SETS][N / 16][4];

DEVICE int lane_of() { return threadIdx.x % WARP; }
DEVICE int warp_of() { return threadIdx.x / WARP; }
DEVICE int own_token(int c) { return c / 2 * 8 + lane_of() / 4; } /* of number c of a lane's block */

/* Where a block has what in shared memory, as bytes: first the queries (H, 16, D), then two tiles of keys, index
 * queries (J, 16, E), da (J, 16, KEYS), p that warps pass to their neighbours, the list, the tokens of each of its
 * keys, lse (H, 16), w (J, 16) and b (J), and sums of each warp. */
struct Places {
    int tiles, index, grads, passed, list, who, lse, w, sums, bytes;
};
template <int D> static inline __host__ __device__ Places places_of(const AttrSparse &k, bool grad) {
    int heads = k.heads.heads, index_heads = k.index_heads;
    Places p = {};
    p.tiles = heads * TOKENS * Tile<D>::ROW_BYTES;
    p.index = p.tiles + 2 * KEYS * Tile<D>::ROW_BYTES;
    p.grads = p.index + index_heads * TOKENS * Tile<E>::ROW_BYTES;
    p.passed = p.grads + (grad ? index_heads * TOKENS * Tile<KEYS>::ROW_BYTES : 0);
    p.list = p.passed + TOKENS * KEYS * 4;
    p.who = p.list + LIST * 4;
    p.lse = p.who + LIST * 2;
    p.w = p.lse + heads * TOKENS * 4;
    p.sums = p.w + index_heads * (TOKENS + 1) * 4;
    p.bytes = p.sums + WARPS * TOKENS * 4 * (grad ? 2 * index_heads : SUMS);
    return p;
}

DEVICE int scan_of_warps(int x, int *total) { /* exclusive, over the block */
    __shared__ int warps[WARPS];
    int upto = x, before = 0, all = 0;
#pragma unroll
    for (int d = 1; d < WARP; d *= 2) {
        int more = __shfl_up_sync(~0u, upto, d);
        if (lane_of() >= d) upto += more;
    }
    __syncthreads();
    if (lane_of() == WARP - 1) warps[warp_of()] = upto;
    __syncthreads();
#pragma unroll
    for (int w = 0; w < WARPS; w++) {
        before += w < warp_of() ? warps[w] : 0;
        all += warps[w];
    }
    *total = all;
    return before + upto - x;
}

struct Counts { /* which of a lane's pairs were selected */
    uint32_t word[2];
    DEVICE Counts(const uint16_t *who) {
#pragma unroll
        for (int n = 0; n < 2; n++)
            word[n] = *(const uint32_t *)(who + warp_of() * 16 + n * 8 + lane_of() % 4 * 2) >> lane_of() / 4;
    }
    DEVICE bool operator()(int n, int c) const { return word[n] >> (c % 2 * 16 + c / 2 * 8) & 1; }
};

template <int N, int SETS> DEVICE void load_keys(Blocks<N, SETS> &b, uint32_t tile, int key) {
    uint32_t at = lane_b<N>(tile + key * Tile<N>::ROW_BYTES);
#pragma unroll
    for (int set = 0; set < SETS; set++)
#pragma unroll
        for (int k = 0; k < N / 16; k++) load_blocks(b[set][k], at + set * 16 * Tile<N>::ROW_BYTES + k * 32);
}

/* x = 16 tokens' queries times these keys. */
template <typename T, int N, int SETS>
DEVICE void product_of(float (&x)[2 * SETS][4], uint32_t queries, const Blocks<N, SETS> &b) {
    uint32_t at = lane_a<N>(queries, 0);
#pragma unroll
    for (int n = 0; n < 2 * SETS; n++) x[n][0] = x[n][1] = x[n][2] = x[n][3] = 0;
#pragma unroll
    for (int k = 0; k < N / 16; k++) {
        uint32_t a[4];
        load_blocks(a, at + k * 32);
#pragma unroll
        for (int set = 0; set < SETS; set++) {
            multiply<T>(x[2 * set], a, b[set][k][0], b[set][k][1]);
            multiply<T>(x[2 * set + 1], a, b[set][k][2], b[set][k][3]);
        }
    }
}

/* A block's tokens, and its way along the keys that they have selected. */
template <typename T, int D> struct Walk {
    static constexpr int TILE_BYTES = KEYS * Tile<D>::ROW_BYTES;
    const CudaIndexLoss &a;
    Places at;
    char *base; /* of all that is shared, and its address */
    uint32_t memory;
    int *list;
    uint16_t *who; /* a bit a token */
    float *lse2, *w, *bias, *sums;
    float4 *passed;
    int64_t first, row; /* the first token, and that of its row */
    int tokens, n, word, end; /* n: keys of the list; words of the mask: the next, and where they end */
    int stage;                /* the tile that comes next */

    DEVICE Walk(const CudaIndexLoss &loss, char *shared, bool grad) : a(loss), at(places_of<D>(loss.s.k, grad)) {
        int seq = (int)a.s.k.heads.seq, tiles = (seq + TOKENS - 1) / TOKENS;
        int from = (tiles - 1 - (int)(blockIdx.x % tiles)) * TOKENS; /* the most keys first */
        base = shared, memory = shared_address(shared);
        passed = (float4 *)(shared + at.passed), list = (int *)(shared + at.list), who = (uint16_t *)(shared + at.who);
        lse2 = (float *)(shared + at.lse), w = (float *)(shared + at.w);
        bias = w + a.s.k.index_heads * TOKENS, sums = (float *)(shared + at.sums);
        row = (int64_t)(blockIdx.x / tiles) * seq, first = row + from;
        tokens = min((int)TOKENS, seq - from);
        end = (from + tokens + 31) / 32;
        n = word = stage = 0;
        load_tokens();
    }

    DEVICE void load_tokens() {
        const AttrHeads &h = a.s.k.heads;
        constexpr int PIECES = D / 8, INDEX_PIECES = E / 4; /* of 16 bytes; index rows begin at multiples of 8 */
        int width = (h.heads + 2 * h.kv_heads) * D, heads = a.s.k.index_heads, to_width = index_width(a.s.k);
        for (int i = threadIdx.x; i < h.heads * TOKENS * PIECES; i += ALL) {
            int head = i / (TOKENS * PIECES), q = i / PIECES % TOKENS, col = i % PIECES * 8;
            copy16_async(memory + i / PIECES * Tile<D>::ROW_BYTES + col * 2,
                         (const T *)a.s.qkv + (first + (q < tokens ? q : 0)) * width + head * D + col, q < tokens);
        }
        for (int i = threadIdx.x; i < heads * TOKENS * INDEX_PIECES; i += ALL) {
            int j = i / (TOKENS * INDEX_PIECES), q = i / INDEX_PIECES % TOKENS, col = i % INDEX_PIECES * 4;
            copy8_async(memory + at.index + i / INDEX_PIECES * Tile<E>::ROW_BYTES + col * 2,
                        (const T *)a.s.index + (first + (q < tokens ? q : 0)) * to_width + j * E + col, q < tokens);
        }
        copies_commit();
        for (int i = threadIdx.x; i < h.heads * TOKENS; i += ALL) {
            int head = i / TOKENS, q = i % TOKENS;
            lse2[i] = q < tokens ? a.lse[(first + q) * h.heads + head] * LOG2_E : INFINITY;
        }
        for (int i = threadIdx.x; i < heads * TOKENS; i += ALL) {
            int j = i / TOKENS, q = i % TOKENS;
            const T *z = (const T *)a.s.index + (first + q) * to_width + heads * E + E + j;
            w[i] = q < tokens ? sigmoid(to_float(*z) + small_number(a.s.bias, j)) : 0.0f;
        }
        if ((int)threadIdx.x < heads) bias[threadIdx.x] = small_number(a.s.bias, heads + threadIdx.x);
    }

    /* ---- the list ---- */

    /* The keys of this thread's word, from place `to` on. own: the word of each token. */
    DEVICE void append(const uint32_t (&own)[TOKENS], uint32_t any, int key, int to) {
        for (; any; any &= any - 1, to++) {
            int bit = __ffs((int)any) - 1;
            uint32_t has = 0;
#pragma unroll
            for (int q = 0; q < TOKENS; q++) has |= (own[q] >> bit & 1) << q;
            list[to] = key + bit;
            who[to] = (uint16_t)has;
        }
    }

    /* Appends selected keys until ENOUGH are listed or the mask ends; entries behind the last belong to no token. Ends
     * with a barrier. */
    DEVICE void refill() {
        __shared__ int stop[2];
        while (word < end && n < ENOUGH) {
            int mine = word + threadIdx.x, total;
            uint32_t own[TOKENS], any = 0;
#pragma unroll
            for (int q = 0; q < TOKENS; q++) {
                own[q] = mine < end && q < tokens ? a.mask[(first + q) * a.mask_words + mine] : 0;
                any |= own[q];
            }
            int to = n + scan_of_warps(__popc(any), &total);
            bool fits = to + __popc(any) <= MOST;
            if (fits) append(own, any, mine * 32, to);
            if (!fits && to <= MOST) stop[0] = to, stop[1] = mine; /* the first that does not */
            __syncthreads();
            bool all = n + total <= MOST;
            n = all ? n + total : stop[0];
            word = all ? word + ALL : stop[1];
        }
        if (threadIdx.x < KEYS) who[n + threadIdx.x] = 0;
        __syncthreads();
    }

    /* What is left behind `done`, less than a tile, comes to the front. */
    DEVICE void move_rest(int done) {
        int rest = n - done, i = threadIdx.x, key = i < rest ? list[done + i] : 0;
        uint16_t has = i < rest ? who[done + i] : 0;
        __syncthreads();
        if (i < rest) list[i] = key, who[i] = has;
        n = rest;
    }

    /* ---- tiles ---- */

    /* Keys of the list from `from` on come into the next tile: of KV head g, behind the last one index keys. */
    DEVICE void start(int g, int from) {
        const AttrHeads &h = a.s.k.heads;
        constexpr int PIECES = D / 8, INDEX_PIECES = E / 4;
        uint32_t to = memory + at.tiles + stage * TILE_BYTES;
        stage ^= 1;
        if (g < h.kv_heads) {
            int width = (h.heads + 2 * h.kv_heads) * D;
            const T *keys = (const T *)a.s.qkv + row * width + (h.heads + g) * D;
#pragma unroll
            for (int i = 0; i < KEYS * PIECES / ALL; i++) {
                int piece = threadIdx.x + i * ALL, at_row = piece / PIECES, col = piece % PIECES * 8;
                bool there = from + at_row < n;
                copy16_async(to + at_row * Tile<D>::ROW_BYTES + col * 2,
                             keys + (int64_t)(there ? list[from + at_row] : 0) * width + col, there);
            }
        } else {
            int width = index_width(a.s.k);
            const T *keys = (const T *)a.s.index + row * width + a.s.k.index_heads * E;
#pragma unroll
            for (int i = 0; i < KEYS * INDEX_PIECES / ALL; i++) {
                int piece = threadIdx.x + i * ALL, at_row = piece / INDEX_PIECES, col = piece % INDEX_PIECES * 4;
                bool there = from + at_row < n;
                copy8_async(to + at_row * Tile<E>::ROW_BYTES + col * 2,
                            keys + (int64_t)(there ? list[from + at_row] : 0) * width + col, there);
            }
        }
        copies_commit();
    }

    /* The tile that was started last is there, and all warps are done with the one before; another is started. */
    DEVICE uint32_t await(bool more, int g, int from) {
        uint32_t tile = memory + at.tiles + (stage ^ 1) * TILE_BYTES;
        copies_wait<0>();
        __syncthreads();
        if (more) start(g, from);
        return tile;
    }

    /* p += attention of every other head of KV head g, whether a pair counts or not. */
    DEVICE void add_attention(Both &p, uint32_t tile, int g) const {
        const AttrHeads &h = a.s.k.heads;
        int group = h.heads / h.kv_heads, from = g * group;
        float scale2 = h.scale * LOG2_E;
        Blocks<D, 2> b;
        load_keys<D, 2>(b, tile, warp_of() / 2 * 32);
#pragma unroll 2
        for (int head = from + (from + warp_of()) % 2; head < from + group; head += 2) {
            Both x;
            float off[2] = {lse2[head * TOKENS + own_token(0)], lse2[head * TOKENS + own_token(2)]};
            product_of<T, D, 2>(x, memory + head * TOKENS * Tile<D>::ROW_BYTES, b);
#pragma unroll
            for (int n = 0; n < 4; n++)
#pragma unroll
                for (int c = 0; c < 4; c++) p[n][c] += exp2_fast(x[n][c] * scale2 - off[c / 2]);
        }
    }

    /* The neighbour's keys of p go to it, own ones come; a barrier between the two. */
    DEVICE void send(const Both &p) const {
        bool odd = warp_of() % 2;
#pragma unroll
        for (int n = 0; n < 2; n++) {
            const float(&x)[4] = p[2 + n], (&y)[4] = p[n];
            passed[(warp_of() * 2 + n) * WARP + lane_of()] =
                odd ? make_float4(y[0], y[1], y[2], y[3]) : make_float4(x[0], x[1], x[2], x[3]);
        }
    }
    DEVICE void receive(Own &own, const Both &p) const {
        bool odd = warp_of() % 2;
#pragma unroll
        for (int n = 0; n < 2; n++) {
            float4 other = passed[((warp_of() ^ 1) * 2 + n) * WARP + lane_of()];
            own[n][0] = (odd ? p[2 + n][0] : p[n][0]) + other.x, own[n][1] = (odd ? p[2 + n][1] : p[n][1]) + other.y;
            own[n][2] = (odd ? p[2 + n][2] : p[n][2]) + other.z, own[n][3] = (odd ? p[2 + n][3] : p[n][3]) + other.w;
        }
    }

    /* What index head j gives own pairs behind its activation. */
    DEVICE void index_head(Own &x, int j, const Blocks<E, 1> &b) const {
        float scale = rsqrtf((float)E), b_j = bias[j];
        product_of<T, E, 1>(x, index_query(j), b);
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int c = 0; c < 4; c++) x[n][c] = act_fast(x[n][c] * scale + b_j, a.s.k.relu);
    }
    DEVICE uint32_t index_query(int j) const { return memory + at.index + j * TOKENS * Tile<E>::ROW_BYTES; }
    DEVICE float weight(int j, int c) const { return w[j * TOKENS + own_token(c)]; }

    DEVICE void scores(Own &score, const Blocks<E, 1> &b) const {
#pragma unroll
        for (int c = 0; c < 4; c++) score[0][c] = score[1][c] = 0;
        for (int j = 0; j < a.s.k.index_heads; j++) {
            Own x;
            float by[2] = {weight(j, 0), weight(j, 2)};
            index_head(x, j, b);
#pragma unroll
            for (int n = 0; n < 2; n++)
#pragma unroll
                for (int c = 0; c < 4; c++) score[n][c] += by[c / 2] * x[n][c];
        }
    }

    /* fn(p, index keys, where the list has them) for all tiles; p: the sum over heads, with ATTEND. */
    template <bool ATTEND, typename Fn> DEVICE void each_tile(Fn fn) {
        int heads = a.s.k.heads.kv_heads, begin = ATTEND ? 0 : heads;
        n = word = 0;
        for (;;) {
            refill();
            if (n == 0) break;
            int whole = word < end ? n / KEYS * KEYS : n; /* what is worked on now */
            start(begin, 0);
            for (int from = 0; from < whole; from += KEYS) {
                Own p = {};
                Both both = {};
                for (int g = begin; g < heads; g++) add_attention(both, await(true, g + 1, from), g);
                if (ATTEND) send(both);
                uint32_t keys = await(from + KEYS < whole, begin, from + KEYS);
                if (ATTEND) receive(p, both);
                fn(p, keys, from);
            }
            if (word >= end) break;
            move_rest(whole);
        }
        copies_wait<0>();
    }
};

/* ---- sums of a token's scores ---- */

struct Softmax { /* of a lane's pairs with one token */
    float top, sum;
};

DEVICE void add_scores(Softmax (&s)[2], const Counts &counts, const Own &score) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float now = s[r].top;
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (counts(i / 2, 2 * r + i % 2)) now = fmaxf(now, score[i / 2][2 * r + i % 2]);
        if (now == -INFINITY) continue;
        s[r].sum *= exp2_fast((s[r].top - now) * LOG2_E);
        s[r].top = now;
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (counts(i / 2, 2 * r + i % 2))
                s[r].sum += exp2_fast((score[i / 2][2 * r + i % 2] - now) * LOG2_E);
    }
}

/* A warp's tops and sums: part[token], part[16 + token]. */
DEVICE void put_softmax(float *part, const Softmax (&s)[2]) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float top = fmaxf(s[r].top, __shfl_xor_sync(~0u, s[r].top, 1));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
        float sum = quad_sum(s[r].top == -INFINITY ? 0.0f : s[r].sum * expf(s[r].top - top));
        if (lane_of() % 4 == 0) part[own_token(2 * r)] = top, part[TOKENS + own_token(2 * r)] = sum;
    }
}

/* The logarithmic sum of a token's scores, from the warps' parts; each: numbers of a part. */
DEVICE float index_lse_of(const float *part, int each, int token) {
    float top = -INFINITY, sum = 0;
    for (int i = 0; i < WARPS; i++) top = fmaxf(top, part[i * each + token]);
    for (int i = 0; i < WARPS; i++) {
        const float *mine = part + i * each + token;
        if (mine[TOKENS] > 0) sum += mine[TOKENS] * expf(mine[0] - top);
    }
    return sum > 0 ? top + logf(sum) : 0.0f;
}

/* ---- the loss ---- */

DEVICE void add_products(float (&more)[2][3], const Counts &counts, const Own &p, const Own &score, float share) {
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (int c = 0; c < 4; c++) {
            float x = p[n][c] * share;
            if (!counts(n, c) || !(x > 0)) continue;
            more[c / 2][0] += x * __logf(x), more[c / 2][1] += x * score[n][c], more[c / 2][2] += x;
        }
}

/* Of each of the block's tokens, from the warps' sums; lse: of token threadIdx.x % TOKENS. */
template <typename T, int D>
DEVICE void give_losses(const Walk<T, D> &walk, const float (&more)[2][3], float lse) {
    constexpr int EACH = 3 * TOKENS;
    float *part = walk.sums + warp_of() * EACH;
#pragma unroll
    for (int i = 0; i < 6; i++) {
        float total = quad_sum(more[i / 3][i % 3]);
        if (lane_of() % 4 == 0) part[i % 3 * TOKENS + own_token(i / 3 * 2)] = total;
    }
    __syncthreads();
    if ((int)threadIdx.x >= walk.tokens) return;
    int64_t token = walk.first + threadIdx.x;
    double sum[3] = {};
    for (int i = 0; i < WARPS * 3; i++) sum[i % 3] += walk.sums[i / 3 * EACH + i % 3 * TOKENS + threadIdx.x];
    walk.a.parts[token] = walk.a.weight[token] != 0 ? (sum[0] - sum[1] + lse * sum[2]) * walk.a.weight[token] : 0;
}

template <typename T, int D> __global__ void __launch_bounds__(ALL, 1) gathered_loss_kernel(CudaIndexLoss a) {
#ifdef HAVE_TENSOR_CORES
    extern __shared__ __align__(16) char shared[];
    Walk<T, D> walk(a, shared, false);
    Softmax soft[2] = {{-INFINITY, 0}, {-INFINITY, 0}};
    float more[2][3] = {}, share = 1.0f / (float)a.s.k.heads.heads;
    walk.template each_tile<true>([&](const Own &p, uint32_t keys, int from) {
        Blocks<E, 1> b;
        Own score;
        Counts counts(walk.who + from);
        load_keys<E, 1>(b, keys, warp_of() * 16);
        walk.scores(score, b);
        add_scores(soft, counts, score);
        add_products(more, counts, p, score, share);
    });
    put_softmax(walk.sums + warp_of() * 2 * TOKENS, soft);
    __syncthreads();
    float lse = index_lse_of(walk.sums, 2 * TOKENS, threadIdx.x % TOKENS);
    __syncthreads();
    give_losses(walk, more, lse);
#endif
}

/* ---- gradients ---- */

DEVICE void add_two(float *to, float x, float y) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    atomicAdd((float2 *)to, make_float2(x, y));
#else
    atomicAdd(to, x);
    atomicAdd(to + 1, y);
#endif
}

/* dk += da^T q of one index head; da: two words a block of 8 keys, tokens 0 to 7 and 8 to 15. */
template <typename T> DEVICE void add_keys(float (&dk)[E / 8][4], const uint32_t (&da)[2][2], uint32_t query) {
    uint32_t a[4] = {transpose_block(da[0][0]), transpose_block(da[1][0]), transpose_block(da[0][1]),
                     transpose_block(da[1][1])};
    uint32_t at = lane_transposed<E>(query), b[4];
#pragma unroll
    for (int n = 0; n < E / 16; n++) {
        load_blocks_transposed(b, at + n * 32);
        multiply<T>(dk[2 * n], a, b[0], b[1]);
        multiply<T>(dk[2 * n + 1], a, b[2], b[3]);
    }
}

/* da of all index heads from d, that of the scores: into shared memory, into dk, and into the warp's sums of what
 * weights and biases get. */
template <typename T, int D>
DEVICE void back_heads(float (&dk)[E / 8][4], const Walk<T, D> &walk, const Own &d, const Blocks<E, 1> &b) {
    const AttrSparse &k = walk.a.s.k;
    for (int j = 0; j < k.index_heads; j++) {
        Own x;
        uint32_t da[2][2], to = walk.at.grads + j * TOKENS * Tile<KEYS>::ROW_BYTES + warp_of() * 32;
        float by[2] = {walk.weight(j, 0), walk.weight(j, 2)}, weight[2] = {}, passed[2] = {};
        walk.index_head(x, j, b);
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
#pragma unroll
                for (int c = 2 * r; c < 2 * r + 2; c++) {
                    float act = x[n][c], slope = k.relu ? (act > 0) : act * (1.0f - act);
                    weight[r] += d[n][c] * act;
                    x[n][c] = d[n][c] * by[r] * slope;
                    passed[r] += x[n][c];
                }
                da[n][r] = pack<T>(x[n][2 * r], x[n][2 * r + 1]);
                *(uint32_t *)(walk.base + to + own_token(2 * r) * Tile<KEYS>::ROW_BYTES + n * 16 +
                              lane_of() % 4 * 4) = da[n][r];
            }
        add_keys<T>(dk, da, walk.index_query(j));
        float *sums = walk.sums + (warp_of() * 2 * k.index_heads + j) * TOKENS;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float own_weight = quad_sum(weight[r]), own_passed = quad_sum(passed[r]);
            if (lane_of() % 4) continue;
            sums[own_token(2 * r)] += own_weight;
            sums[k.index_heads * TOKENS + own_token(2 * r)] += own_passed;
        }
    }
}

/* Own keys' gradients join the sums. */
template <typename T, int D>
DEVICE void give_keys(const float (&dk)[E / 8][4], const Walk<T, D> &walk, int from) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int i = from + warp_of() * 16 + own_token(2 * r);
        if (i >= walk.n) continue;
        float *to = walk.a.key_grads + (walk.row + walk.list[i]) * E + lane_of() % 4 * 2;
#pragma unroll
        for (int n = 0; n < E / 8; n++) add_two(to + n * 8, dk[n][2 * r], dk[n][2 * r + 1]);
    }
}

/* A warp's columns of dq: `pairs` times 16 of index head j, from column `col` on. */
struct QueryPart {
    int j, col, pairs;
    DEVICE QueryPart(int heads) : j(warp_of() * heads / WARPS), pairs(heads / 2) {
        col = warp_of() * pairs * 16 % E;
    }
};

template <typename T, int D>
DEVICE void add_queries(float (&dq)[E / 8][4], const Walk<T, D> &walk, const QueryPart &part, uint32_t keys) {
    constexpr int ROW_BYTES = Tile<KEYS>::ROW_BYTES;
    uint32_t a_at = lane_a<KEYS>(walk.memory + walk.at.grads + part.j * TOKENS * ROW_BYTES, 0),
             b_at = lane_transposed<E>(keys) + part.col * 2;
#pragma unroll
    for (int k = 0; k < KEYS / 16; k++) {
        uint32_t a[4], b[4];
        load_blocks(a, a_at + k * 32);
#pragma unroll
        for (int n = 0; n < E / 16; n++) {
            if (n >= part.pairs) break;
            load_blocks_transposed(b, b_at + k * 16 * Tile<E>::ROW_BYTES + n * 32);
            multiply<T>(dq[2 * n], a, b[0], b[1]);
            multiply<T>(dq[2 * n + 1], a, b[2], b[3]);
        }
    }
}

/* dq, what weights and biases get: of the block's tokens. */
template <typename T, int D>
DEVICE void finish(const float (&dq)[E / 8][4], const Walk<T, D> &walk, const QueryPart &part) {
    const CudaIndexLoss &a = walk.a;
    int heads = a.s.k.index_heads, width = index_width(a.s.k);
    float by = 1.0f / (LIFT * *a.divisor), scale = by * rsqrtf((float)E);
    T *to = (T *)a.d_index + walk.first * width;
#pragma unroll
    for (int n = 0; n < E / 8; n++)
#pragma unroll
        for (int r = 0; r < 2; r++)
            if (n < 2 * part.pairs && own_token(2 * r) < walk.tokens)
                *(uint32_t *)(to + own_token(2 * r) * width + part.j * E + part.col + n * 8 + lane_of() % 4 * 2) =
                    pack<T>(dq[n][2 * r] * scale, dq[n][2 * r + 1] * scale);
    __syncthreads(); /* sums are complete */
    int token = threadIdx.x % TOKENS, i = threadIdx.x / TOKENS;
    if (token >= walk.tokens || i >= 2 * heads) return;
    float sum = 0;
    for (int warp = 0; warp < WARPS; warp++) sum += walk.sums[(warp * 2 * heads + i) * TOKENS + token];
    sum *= by;
    if (i < heads) {
        float w = walk.w[i * TOKENS + token];
        sum *= w * (1.0f - w);
        to[token * width + heads * E + E + i] = from_float<T>(sum);
    }
    a.bias_parts[(walk.first + token) * 2 * heads + i] = sum;
}

template <typename T, int D> __global__ void __launch_bounds__(ALL, 1) gathered_grad_kernel(CudaIndexLoss a) {
#ifdef HAVE_TENSOR_CORES
    extern __shared__ __align__(16) char shared[];
    Walk<T, D> walk(a, shared, true);
    Softmax soft[2] = {{-INFINITY, 0}, {-INFINITY, 0}};
    walk.template each_tile<false>([&](const Own &, uint32_t keys, int from) {
        Blocks<E, 1> b;
        Own score;
        load_keys<E, 1>(b, keys, warp_of() * 16);
        walk.scores(score, b);
        add_scores(soft, Counts(walk.who + from), score);
    });
    put_softmax(walk.sums + warp_of() * 2 * TOKENS, soft);
    __syncthreads();
    float index_lse[2], by[2], share = 1.0f / (float)a.s.k.heads.heads, dq[E / 8][4] = {}, more[2][3] = {};
    float lse = index_lse_of(walk.sums, 2 * TOKENS, threadIdx.x % TOKENS);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int token = own_token(2 * r);
        index_lse[r] = index_lse_of(walk.sums, 2 * TOKENS, token);
        by[r] = token < walk.tokens ? a.weight[walk.first + token] * LIFT : 0.0f;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < WARPS * 2 * a.s.k.index_heads * TOKENS; i += ALL) walk.sums[i] = 0;
    QueryPart part(a.s.k.index_heads);
    walk.template each_tile<true>([&](const Own &p, uint32_t keys, int from) {
        Blocks<E, 1> b;
        Own d;
        Counts counts(walk.who + from);
        load_keys<E, 1>(b, keys, warp_of() * 16);
        walk.scores(d, b);
        add_products(more, counts, p, d, share);
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int c = 0; c < 4; c++) {
                float s = exp2_fast((d[n][c] - index_lse[c / 2]) * LOG2_E);
                d[n][c] = counts(n, c) ? (s - p[n][c] * share) * by[c / 2] : 0.0f;
            }
        float dk[E / 8][4] = {};
        back_heads<T, D>(dk, walk, d, b);
        give_keys<T, D>(dk, walk, from);
        __syncthreads(); /* da of all keys is there */
        add_queries<T, D>(dq, walk, part, keys);
    });
    finish<T, D>(dq, walk, part);
    if (!a.parts) return;
    __syncthreads(); /* what finish read may be written over */
    give_losses(walk, more, lse);
#endif
}

/* The keys' sums before anything is added: a thread four numbers. */
__global__ void __launch_bounds__(ALL) clear_keys_kernel(CudaIndexLoss a) {
    int64_t i = ((int64_t)blockIdx.x * ALL + threadIdx.x) * 4;
    if (i < a.s.tokens * E) *(float4 *)(a.key_grads + i) = make_float4(0, 0, 0, 0);
}

/* They become gradients: a thread two numbers. */
template <typename T> __global__ void __launch_bounds__(ALL) give_keys_kernel(CudaIndexLoss a) {
    int64_t i = ((int64_t)blockIdx.x * ALL + threadIdx.x) * 2, token = i / E;
    if (token >= a.s.tokens) return;
    float scale = rsqrtf((float)E) / (LIFT * *a.divisor);
    float2 sum = *(const float2 *)(a.key_grads + i);
    T *to = (T *)a.d_index + token * index_width(a.s.k) + a.s.k.index_heads * E + i % E;
    *(uint32_t *)to = pack<T>(sum.x * scale, sum.y * scale);
}

/* ---- on the host ---- */

template <typename Fn> static void with_types(const CudaSparse *s, Fn fn) {
    with_dim(s->k.heads.head_dim, [&](auto d) {
        if constexpr (decltype(d)::value != 80) { /* as index_tiles.cu */
            if (s->format == FMT_BF16)
                fn(Bf16(), d);
            else
                fn(F16(), d);
        }
    });
}

extern "C" int cuda_index_gathered_shared(const AttrSparse *k, bool grad) {
    int bytes = 0;
    with_dim(k->heads.head_dim, [&](auto d) { bytes = places_of<decltype(d)::value>(*k, grad).bytes; });
    return bytes;
}

template <typename Kernel>
static void launch_gathered(cudaStream_t s, Kernel kernel, const CudaIndexLoss *a, bool grad) {
    int64_t seq = a->s.k.heads.seq, blocks = a->s.tokens / seq * ((seq + TOKENS - 1) / TOKENS);
    int bytes = cuda_index_gathered_shared(&a->s.k, grad);
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    kernel<<<(unsigned)blocks, ALL, bytes, s>>>(*a);
}

extern "C" void cuda_launch_index_loss_gathered(cudaStream_t s, const CudaIndexLoss *a) {
    with_types(&a->s, [&](auto t, auto d) {
        launch_gathered(s, gathered_loss_kernel<decltype(t), decltype(d)::value>, a, false);
    });
}

extern "C" void cuda_launch_index_loss_grad_gathered(cudaStream_t s, const CudaIndexLoss *a) {
    int columns = 2 * a->s.k.index_heads;
    clear_keys_kernel<<<blocks_for(a->s.tokens * E / 4, ALL), ALL, 0, s>>>(*a);
    with_types(&a->s, [&](auto t, auto d) {
        using T = decltype(t);
        launch_gathered(s, gathered_grad_kernel<T, decltype(d)::value>, a, true);
        give_keys_kernel<T><<<blocks_for(a->s.tokens * E / 2, ALL), ALL, 0, s>>>(*a);
    });
    if (a->d_bias.data) join_parts(s, a->d_bias, a->bias_parts, a->s.tokens, columns, columns, a->beta, a->key);
}
