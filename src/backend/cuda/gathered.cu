/* gathered.cu - attention over selected keys where they are few among many: tiles of neighbouring queries over the
 * union of their selections, on tensor cores. Reference: cpu/selected.c.
 *
 * A block has the queries of 64/group neighbouring tokens for all heads of one KV head: 64 rows, 16 a warp. It reads
 * the tokens' bits (mask.cu), a word a thread, and appends the keys that any of them has selected to a list in shared
 * memory, with each token's bits in the order of the list; 64 keys at a time are gathered by it into tiles, wherever
 * they stand (rows of qkv, or a cache). Then as in attend.cu: S = Q K^T, unselected pairs masked, an online softmax,
 * O += P V; V of a tile is prefetched while S is computed, K of the next while P V is. */
#include "backend/cuda/attend.cuh"
#include "backend/cuda/sparse.cuh"

enum { WARPS = 4, THREADS = WARPS * WARP, ROWS = 64, SIDE = 64 };
enum { MOST = 3072 /* keys of the list */, FEW = 32 /* words that always fit */, ENOUGH = 2048, LIST = MOST + SIDE,
       BITS = LIST / 32 };

struct Union { /* in shared memory, the same for all threads */
    int n;     /* keys of the list */
    int word;  /* the next of the mask */
    int end;   /* where words end */
};

struct Tokens { /* whose queries a block has */
    int64_t first;
    int n, group;
};

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
DEVICE void refill(const CudaSelected &a, const Tokens &t, Union &u, int *list, uint32_t *bits, int *warps) {
    while (u.word < u.end && u.n < ENOUGH) {
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
                atomicOr(&bits[q * BITS + mine / 32], 1u << mine % 32);
            }
        u.n += total;
        u.word += step;
    }
    __syncthreads();
}

/* What is left behind `done` comes to the front. */
DEVICE void move_rest(Union &u, int done, const Tokens &t, int *list, uint32_t *bits) {
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

/* Rows of 64 keys of the list, from `from` on; those behind its end become zeros. */
template <typename T, int D>
DEVICE void gather(uint32_t to, const T *keys, int64_t step, const int *list, int from, int n) {
    constexpr int PIECES = D / 8;
#pragma unroll
    for (int i = 0; i < SIDE * PIECES / THREADS; i++) {
        int piece = threadIdx.x + i * THREADS, row = piece / PIECES, col = piece % PIECES * 8;
        bool there = from + row < n;
        copy16_async(to + row * Tile<D>::ROW_BYTES + col * 2, keys + (there ? list[from + row] : 0) * step + col,
                     there);
    }
    copies_commit();
}

template <typename T, int D> DEVICE void load_queries(uint32_t to, const CudaSelected &a, const Tokens &t, int g) {
    constexpr int PIECES = D / 8;
    int64_t width = (int64_t)(a.h.heads + 2 * a.h.kv_heads) * D;
#pragma unroll
    for (int i = 0; i < ROWS * PIECES / THREADS; i++) {
        int piece = threadIdx.x + i * THREADS, row = piece / PIECES, col = piece % PIECES * 8, q = row / t.group;
        const T *from = (const T *)a.qkv + (t.first + q) * width + (g * t.group + row % t.group) * D + col;
        copy16_async(to + row * Tile<D>::ROW_BYTES + col * 2, from, q < t.n);
    }
}

typedef float Scores[SIDE / 8][4];

template <typename T, int D> DEVICE void scores(Scores &s, uint32_t q_at, uint32_t k_at) {
#pragma unroll
    for (int n = 0; n < SIDE / 8; n++) s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        uint32_t a[4], b[4];
        load_blocks(a, q_at + k * 32);
#pragma unroll
        for (int n = 0; n < SIDE / 16; n++) {
            load_blocks(b, k_at + n * 16 * Tile<D>::ROW_BYTES + k * 32);
            multiply<T>(s[2 * n], a, b[0], b[1]);
            multiply<T>(s[2 * n + 1], a, b[2], b[3]);
        }
    }
}

/* Unselected pairs are masked; then the online softmax: S becomes P, O is rescaled to the new maximum. */
template <int D>
DEVICE void softmax_update(Scores &s, float (&o)[D / 8][4], float (&top)[2], float (&sum)[2], const uint32_t *bits,
                           const int (&query)[2], float scale2) {
    int lane = threadIdx.x % WARP;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float now = top[r], part = 0;
#pragma unroll
        for (int w = 0; w < 2; w++) {
            uint32_t mine = bits[query[r] * BITS + w] >> lane % 4 * 2;
#pragma unroll
            for (int n = 0; n < 4; n++)
#pragma unroll
                for (int c = 0; c < 2; c++) {
                    float &x = s[w * 4 + n][2 * r + c];
                    if (!(mine >> (n * 8 + c) & 1)) x = -INFINITY;
                    now = fmaxf(now, x);
                }
        }
        now = fmaxf(now, __shfl_xor_sync(~0u, now, 1));
        now = fmaxf(now, __shfl_xor_sync(~0u, now, 2));
        float off = now == -INFINITY ? 0.0f : now * scale2, rescale = exp2_fast(top[r] * scale2 - off);
        top[r] = now;
#pragma unroll
        for (int n = 0; n < SIDE / 8; n++)
#pragma unroll
            for (int c = 2 * r; c < 2 * r + 2; c++) {
                s[n][c] = exp2_fast(s[n][c] * scale2 - off);
                part += s[n][c];
            }
        sum[r] = sum[r] * rescale + part;
#pragma unroll
        for (int n = 0; n < D / 8; n++) o[n][2 * r] *= rescale, o[n][2 * r + 1] *= rescale;
    }
}

template <typename T, int D> DEVICE void add_values(float (&o)[D / 8][4], const Scores &p, uint32_t v_at) {
#pragma unroll
    for (int k = 0; k < SIDE / 16; k++) {
        uint32_t a[4], b[4];
#pragma unroll
        for (int c = 0; c < 4; c++) a[c] = pack<T>(p[2 * k + c / 2][c % 2 * 2], p[2 * k + c / 2][c % 2 * 2 + 1]);
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            load_blocks_flipped(b, v_at + k * 16 * Tile<D>::ROW_BYTES + n * 32);
            multiply<T>(o[2 * n], a, b[0], b[1]);
            multiply<T>(o[2 * n + 1], a, b[2], b[3]);
        }
    }
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

template <typename T, int D>
DEVICE void finish(const CudaSelected &a, const Tokens &t, int g, T *tile, const float (&o)[D / 8][4],
                   const float (&top)[2], const float (&sum)[2]) {
    constexpr int PIECES = D / 8;
    int lane = threadIdx.x % WARP, base = threadIdx.x / WARP * 16;
    float by[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float l = sum[r];
        l += __shfl_xor_sync(~0u, l, 1);
        l += __shfl_xor_sync(~0u, l, 2);
        bool seen = top[r] > -INFINITY || isnan(l);
        int row = base + r * 8 + lane / 4, q = row / t.group;
        if (a.lse && lane % 4 == 0 && q < t.n)
            a.lse[(t.first + q) * a.h.heads + g * t.group + row % t.group] =
                seen ? top[r] * a.h.scale + LN_2 * __log2f(l) : 0.0f;
        by[r] = seen ? __fdividef(1.0f, l) : 0.0f;
    }
    put_blocks<T, D>(tile, base, o, by[0], by[1]);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 16 * PIECES / WARP; i++) {
        int piece = lane + i * WARP, row = base + piece / PIECES, col = piece % PIECES * 8, q = row / t.group;
        if (q < t.n)
            *(uint4 *)((T *)a.o + ((t.first + q) * a.h.heads + g * t.group + row % t.group) * D + col) =
                *(const uint4 *)(tile + row * Tile<D>::STRIDE + col);
    }
}

template <int D> constexpr int TILES_BYTES = (ROWS + 2 * SIDE) * Tile<D>::ROW_BYTES;

template <typename T, int D> __global__ void __launch_bounds__(THREADS, 2) gathered_kernel(CudaSelected a) {
#ifdef HAVE_TENSOR_CORES
    extern __shared__ __align__(16) char shared[];
    __shared__ int warps[WARPS];
    const AttrHeads &h = a.h;
    int group = h.heads / h.kv_heads, each = ROWS / group, g = blockIdx.x % h.kv_heads;
    int tiles = (int)((h.seq + each - 1) / each), tile = (int)(blockIdx.x / h.kv_heads);
    int64_t row = tile / tiles;
    int first = (tiles - 1 - tile % tiles) * each; /* the most keys first */
    Tokens t = {row * h.seq + first, min(each, (int)h.seq - first), group};
    int *list = (int *)(shared + TILES_BYTES<D>);
    uint32_t *bits = (uint32_t *)(list + LIST);
    int64_t key_row = a.rows ? a.rows[row] : row, step = a.keys.step * a.keys.stride;
    const T *keys = (const T *)a.keys.data + key_row * a.keys.per_row * a.keys.stride + a.keys.col + g * a.head_step,
            *values = keys + h.kv_heads * a.head_step;
    uint32_t q_tile = shared_address(shared), k_tile = q_tile + ROWS * Tile<D>::ROW_BYTES,
             v_tile = k_tile + SIDE * Tile<D>::ROW_BYTES;
    load_queries<T, D>(q_tile, a, t, g);
    copies_commit();
    int end = (int)threadIdx.x < t.n ? keys_end(a.list + (t.first + threadIdx.x) * a.most, (int)a.most) : 0;
    end = warp_most(end);
    if (threadIdx.x % WARP == 0) warps[threadIdx.x / WARP] = end;
    for (int i = threadIdx.x; i < each * BITS; i += THREADS) bits[i] = 0;
    __syncthreads();
    Union u = {0, 0, (max(max(warps[0], warps[1]), max(warps[2], warps[3])) + 31) / 32};
    int query[2], at_row = threadIdx.x / WARP * 16 + threadIdx.x % WARP / 4;
    query[0] = at_row / group, query[1] = (at_row + 8) / group;
    float o[D / 8][4] = {}, top[2] = {-INFINITY, -INFINITY}, sum[2] = {}, scale2 = h.scale * LOG2_E;
    uint32_t q_at = lane_a<D>(q_tile, threadIdx.x / WARP * 16), k_at = lane_b<D>(k_tile),
             v_at = lane_flipped<D>(v_tile);
    for (;;) {
        refill(a, t, u, list, bits, warps);
        if (u.n == 0) break;
        int done = 0, whole = u.word < u.end ? u.n / SIDE * SIDE : u.n; /* what is worked on now */
        gather<T, D>(k_tile, keys, step, list, 0, u.n);
        for (; done < whole; done += SIDE) {
            Scores s;
            copies_wait<0>();
            __syncthreads(); /* K is loaded; all warps are done with the last V */
            gather<T, D>(v_tile, values, step, list, done, u.n);
            scores<T, D>(s, q_at, k_at);
            copies_wait<0>();
            __syncthreads(); /* V is loaded; all warps are done with K */
            if (done + SIDE < whole) gather<T, D>(k_tile, keys, step, list, done + SIDE, u.n);
            softmax_update<D>(s, o, top, sum, bits + done / 32, query, scale2);
            add_values<T, D>(o, s, v_at);
        }
        if (u.word >= u.end) break;
        move_rest(u, done, t, list, bits);
    }
    copies_wait<0>();
    __syncthreads();
    finish<T, D>(a, t, g, (T *)shared, o, top, sum);
#endif
}

extern "C" int cuda_gathered_shared(const AttrHeads *h) {
    int bytes = LIST * 4 + ROWS / (h->heads / h->kv_heads) * BITS * 4;
    with_dim(h->head_dim, [&](auto d) { bytes += TILES_BYTES<decltype(d)::value>; });
    return bytes;
}

extern "C" void cuda_launch_attend_gathered(cudaStream_t s, const CudaSelected *a) {
    int each = ROWS / (a->h.heads / a->h.kv_heads), bytes = cuda_gathered_shared(&a->h);
    unsigned blocks = (unsigned)(a->tokens / a->h.seq * ((a->h.seq + each - 1) / each) * a->h.kv_heads);
    auto go = [&](auto t) {
        with_dim(a->h.head_dim, [&](auto d) {
            auto kernel = gathered_kernel<decltype(t), decltype(d)::value>;
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
            kernel<<<blocks, THREADS, bytes, s>>>(*a);
        });
    };
    if (a->format == FMT_BF16)
        go(Bf16());
    else
        go(F16());
}
