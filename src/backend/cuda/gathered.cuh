/* gathered.cuh - the gather that gathered.cu and gathered_grad.cu share: tiles of neighbouring queries against the
 * union of their selections. Reference: cpu/selected.c.
 *
 * A block has the queries of 64/group neighbouring tokens for all heads of one KV head: 64 rows, 16 a warp. It reads
 * the tokens' bits (mask.cu), a word a thread, and appends the keys that any of them has selected to a list in shared
 * memory, with each token's bits in the order of the list; 64 keys at a time are gathered by it into tiles, wherever
 * they stand (rows of qkv, or a cache). */
#ifndef BACKEND_CUDA_GATHERED_CUH
#define BACKEND_CUDA_GATHERED_CUH

#include "backend/cuda/attend.cuh"
#include "backend/cuda/sparse.cuh"

enum { WARPS = 4, THREADS = WARPS * WARP, ROWS = 64, SIDE = 64 };
enum { FEW = 32 /* words of a mask that always fit */ };

template <int MOST> struct List { /* of MOST keys */
    static constexpr int ENOUGH = MOST / 3 * 2, KEYS = MOST + SIDE, BITS = KEYS / 32;
    static_assert(MOST >= FEW * 32 + SIDE && KEYS % 32 == 0, "what is left and FEW words fit");
    static int bytes(int group) { return KEYS * 4 + ROWS / group * BITS * 4; } /* with the tokens' bits */
};

struct Union { /* in shared memory, the same for all threads */
    int n;     /* keys of the list */
    int word;  /* the next of the mask */
    int end;   /* where words end */
};

struct Tokens { /* whose queries a block has */
    int64_t first, row;
    int n, group, g; /* g: the KV head */
};

DEVICE Tokens tokens_of(const AttrHeads &h) {
    int group = h.heads / h.kv_heads, each = ROWS / group;
    int tiles = (int)((h.seq + each - 1) / each), tile = (int)(blockIdx.x / h.kv_heads);
    int64_t row = tile / tiles;
    int first = (tiles - 1 - tile % tiles) * each; /* the most keys first */
    return {row * h.seq + first, row, min(each, (int)h.seq - first), group, (int)(blockIdx.x % h.kv_heads)};
}

static inline unsigned gathered_blocks(const CudaSelected *a) {
    int each = ROWS / (a->h.heads / a->h.kv_heads);
    return (unsigned)(a->tokens / a->h.seq * ((a->h.seq + each - 1) / each) * a->h.kv_heads);
}

/* Keys of the block's KV head; its values stand kv_heads * head_step behind them. */
template <typename T> DEVICE const T *keys_of(const CudaSelected &a, const Tokens &t) {
    int64_t row = a.rows ? a.rows[t.row] : t.row;
    return (const T *)a.keys.data + row * a.keys.per_row * a.keys.stride + a.keys.col + t.g * a.head_step;
}

/* ---- the union ---- */

/* This thread's word of the union of the tokens' bits. */
DEVICE uint32_t union_word(const CudaSelected &a, const Tokens &t, int word) {
    uint32_t all = 0;
    for (int q = 0; q < t.n; q++) all |= a.mask[(t.first + q) * a.mask_words + word];
    return all;
}

DEVICE int scan_of_block(int x, int *total, int *warps) { /* exclusive */
    int lane = threadIdx.x % WARP, upto = x, before = 0, all = 0;
#pragma unroll
    for (int d = 1; d < WARP; d *= 2) {
        int more = __shfl_up_sync(~0u, upto, d);
        if (lane >= d) upto += more;
    }
    __syncthreads();
    if (lane == WARP - 1) warps[threadIdx.x / WARP] = upto;
    __syncthreads();
#pragma unroll
    for (int w = 0; w < WARPS; w++) {
        before += w < (int)threadIdx.x / WARP ? warps[w] : 0;
        all += warps[w];
    }
    *total = all;
    return before + upto - x;
}

/* Appends keys until there are enough or no more; a barrier at the end. u: as it is in all threads. */
template <int MOST>
DEVICE void refill(const CudaSelected &a, const Tokens &t, Union &u, int *list, uint32_t *bits, int *warps) {
    while (u.word < u.end && u.n < List<MOST>::ENOUGH) {
        int word = u.word + threadIdx.x, total;
        uint32_t all = word < u.end ? union_word(a, t, word) : 0;
        int at = scan_of_block(__popc(all), &total, warps), step = THREADS;
        if (u.n + total > MOST) {
            if (u.n >= SIDE) break;
            if (threadIdx.x >= FEW) all = 0; /* at most 1024 keys */
            step = FEW;
            at = scan_of_block(__popc(all), &total, warps);
        }
        at += u.n;
        int place = at;
        for (uint32_t left = all; left; left &= left - 1) list[place++] = word * 32 + __ffs((int)left) - 1;
        for (int q = 0; q < t.n && all; q++)
            for (uint32_t own = a.mask[(t.first + q) * a.mask_words + word] & all; own; own &= own - 1) {
                int mine = at + __popc(all & ((own & -own) - 1));
                atomicOr(&bits[q * List<MOST>::BITS + mine / 32], 1u << mine % 32);
            }
        u.n += total;
        u.word += step;
    }
    __syncthreads();
}

/* What is left behind `done` comes to the front. */
template <int MOST> DEVICE void move_rest(Union &u, int done, const Tokens &t, int *list, uint32_t *bits) {
    constexpr int BITS = List<MOST>::BITS;
    int rest = u.n - done, key = 0;
    uint32_t kept[2] = {};
    __syncthreads();
    if ((int)threadIdx.x < rest) key = list[done + threadIdx.x];
    if ((int)threadIdx.x < t.n)
        for (int w = 0; w < 2 && rest > 0; w++) kept[w] = bits[threadIdx.x * BITS + done / 32 + w];
    __syncthreads();
    if ((int)threadIdx.x < rest) list[threadIdx.x] = key;
    for (int i = threadIdx.x; i < t.n * BITS; i += THREADS) bits[i] = 0;
    __syncthreads();
    if ((int)threadIdx.x < t.n)
        for (int w = 0; w < 2; w++) bits[threadIdx.x * BITS + w] = kept[w];
    __syncthreads();
    u.n = rest;
}

/* One behind the last key of a token's list. */
DEVICE int keys_end(const int32_t *list, int most) {
    int low = 0, high = most;
    while (low < high) {
        int middle = (low + high) / 2;
        if (list[middle] >= 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? list[low - 1] + 1 : 0;
}

/* Nothing is listed yet, no bit is set; a barrier at the end. */
template <int MOST> DEVICE Union union_of(const CudaSelected &a, const Tokens &t, uint32_t *bits, int *warps) {
    int end = (int)threadIdx.x < t.n ? keys_end(a.list + (t.first + threadIdx.x) * a.most, (int)a.most) : 0;
    end = warp_most(end);
    if (threadIdx.x % WARP == 0) warps[threadIdx.x / WARP] = end;
    for (int i = threadIdx.x; i < ROWS / t.group * List<MOST>::BITS; i += THREADS) bits[i] = 0;
    __syncthreads();
    return {0, 0, (max(max(warps[0], warps[1]), max(warps[2], warps[3])) + 31) / 32};
}

/* ---- tiles ---- */

/* Rows of 64 keys of the list, from `from` on; those behind its end become zeros. thread: this one. */
template <typename T, int D>
DEVICE void gather(uint32_t to, const T *keys, int64_t step, const int *list, int from, int n, int thread) {
    constexpr int PIECES = D / 8;
#pragma unroll
    for (int i = 0; i < SIDE * PIECES / THREADS; i++) {
        int piece = thread + i * THREADS, row = piece / PIECES, col = piece % PIECES * 8;
        bool there = from + row < n;
        copy16_async(to + row * Tile<D>::ROW_BYTES + col * 2, keys + (there ? list[from + row] : 0) * step + col,
                     there);
    }
    copies_commit();
}

/* The block's rows of x, `width` numbers a token: its tokens' heads. */
template <typename T, int D> DEVICE void load_heads(uint32_t to, const void *x, int64_t width, const Tokens &t) {
    constexpr int PIECES = D / 8;
#pragma unroll
    for (int i = 0; i < ROWS * PIECES / THREADS; i++) {
        int piece = threadIdx.x + i * THREADS, row = piece / PIECES, col = piece % PIECES * 8, q = row / t.group;
        const T *from = (const T *)x + (t.first + q) * width + (t.g * t.group + row % t.group) * D + col;
        copy16_async(to + row * Tile<D>::ROW_BYTES + col * 2, from, q < t.n);
    }
}

/* The warp's rows of a tile to where they stand in x. */
template <typename T, int D> DEVICE void give_heads(void *x, int64_t width, const Tokens &t, const T *tile) {
    constexpr int PIECES = D / 8;
    int lane = threadIdx.x % WARP, base = threadIdx.x / WARP * 16;
#pragma unroll
    for (int i = 0; i < 16 * PIECES / WARP; i++) {
        int piece = lane + i * WARP, row = base + piece / PIECES, col = piece % PIECES * 8, q = row / t.group;
        if (q < t.n)
            *(uint4 *)((T *)x + (t.first + q) * width + (t.g * t.group + row % t.group) * D + col) =
                *(const uint4 *)(tile + row * Tile<D>::STRIDE + col);
    }
}

/* ---- products of a warp's 16 rows ---- */

typedef float Scores[SIDE / 8][4];

/* s = a b^T */
template <typename T, int D> DEVICE void scores(Scores &s, uint32_t a_at, uint32_t b_at) {
#pragma unroll
    for (int n = 0; n < SIDE / 8; n++) s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        uint32_t a[4], b[4];
        load_blocks(a, a_at + k * 32);
#pragma unroll
        for (int n = 0; n < SIDE / 16; n++) {
            load_blocks(b, b_at + n * 16 * Tile<D>::ROW_BYTES + k * 32);
            multiply<T>(s[2 * n], a, b[0], b[1]);
            multiply<T>(s[2 * n + 1], a, b[2], b[3]);
        }
    }
}

/* o += p b */
template <typename T, int D> DEVICE void add_product(float (&o)[D / 8][4], const Scores &p, uint32_t b_at) {
#pragma unroll
    for (int k = 0; k < SIDE / 16; k++) {
        uint32_t a[4], b[4];
#pragma unroll
        for (int c = 0; c < 4; c++) a[c] = pack<T>(p[2 * k + c / 2][c % 2 * 2], p[2 * k + c / 2][c % 2 * 2 + 1]);
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            load_blocks_transposed(b, b_at + k * 16 * Tile<D>::ROW_BYTES + n * 32);
            multiply<T>(o[2 * n], a, b[0], b[1]);
            multiply<T>(o[2 * n + 1], a, b[2], b[3]);
        }
    }
}

/* Tokens of the lane's rows r and r + 8 of its warp. */
DEVICE void lane_queries(int (&query)[2], const Tokens &t) {
    int row = threadIdx.x / WARP * 16 + threadIdx.x % WARP / 4;
    query[0] = row / t.group, query[1] = (row + 8) / t.group;
}

#endif
