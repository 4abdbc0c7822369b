/* gathered_grad.cu - backward of sparse attention where rows are long and selections thin: tiles of neighbouring
 * queries over the gathered union of their selections, on tensor cores; dK and dV by atomics (scatter-add). Reference:
 * cpu/selected.c.
 *
 *   P = 2^(S*scale*log2 e - lse2);  dP = dO V^T;  dS = P * (dP - delta)
 *   dV = P^T dO;  dK = scale*dS^T Q;  dQ = scale*dS K
 * gathered.cuh says what a block has and how it gathers keys. Q and dO of its 64 rows stay in shared memory, dQ in
 * registers. Of 64 keys at a time S and dP are computed, a warp its own rows; P and dS go on through shared memory,
 * rounded once, and each warp gives a part of dK and dV (Share), added to fp32 sums in the workspace that all blocks
 * share, while the next keys come. Flops: 10*D per pair of a tile. The sums are rounded at the end.
 *
 * The order in which blocks add is that of their arrival: two runs differ in rounding. A backend that must be
 * deterministic takes attend_grad.cu instead (sparse.c). */
#include "backend/cuda/gathered.cuh"

enum { MOST = 1472 /* keys of the list: a block of heads of 128 fits into the 99 KiB of 8.6, 8.9 and 12.0 */ };

template <int D> struct Memory { /* of a block, in this order: Q, dO, K, V; P, dS; lse2, delta; the list, its bits */
    static constexpr int TILE = ROWS * Tile<D>::ROW_BYTES, PAIRS = ROWS * Tile<SIDE>::ROW_BYTES;
    static constexpr int P = 4 * TILE, ROW = P + 2 * PAIRS, LIST = ROW + 2 * ROWS * 4;
    static_assert(ROWS == SIDE, "tiles of queries and of keys have one size");
};

/* lse2 and delta of the block's rows, two threads a row; dO and O are tiles. */
template <typename T, int D>
DEVICE void load_row_numbers(float *lse2, const CudaSelected &a, const Tokens &t, const T *d_o, const T *o) {
    int row = threadIdx.x / 2, q = row / t.group, from = row * Tile<D>::STRIDE + threadIdx.x % 2 * 8;
    float sum = 0;
#pragma unroll
    for (int c = 0; c < D; c += 16) {
        float x[8], y[8];
        load<8>(x, d_o + from + c);
        load<8>(y, o + from + c);
#pragma unroll
        for (int k = 0; k < 8; k++) sum += x[k] * y[k];
    }
    sum += __shfl_xor_sync(~0u, sum, 1);
    if (threadIdx.x % 2) return;
    lse2[ROWS + row] = sum;
    lse2[row] = q < t.n ? a.lse[(t.first + q) * a.h.heads + t.g * t.group + row % t.group] * LOG2_E : 0.0f;
}

/* S becomes P; unselected pairs have none. */
DEVICE void probabilities(Scores &s, const float (&lse2)[2], const uint32_t *bits, const int (&query)[2],
                          float scale2) {
    int lane = threadIdx.x % WARP;
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
        for (int w = 0; w < 2; w++) {
            uint32_t mine = bits[query[r] * List<MOST>::BITS + w] >> lane % 4 * 2;
#pragma unroll
            for (int n = 0; n < 4; n++)
#pragma unroll
                for (int c = 0; c < 2; c++) {
                    float &x = s[w * 4 + n][2 * r + c];
                    x = mine >> (n * 8 + c) & 1 ? exp2_fast(x * scale2 - lse2[r]) : 0.0f;
                }
        }
}

/* How the warps share what 64 keys get: each has 16*MT of the keys and D/MT of their numbers. */
template <int D> struct Share {
    static constexpr int MT = D % 32 == 0 ? 2 : 1, KEYS = 16 * MT, COLS = D / MT;
    typedef float Sums[MT][COLS / 8][4];
    int key, col; /* where this warp's part begins */
    DEVICE Share() {
        int warp = threadIdx.x / WARP;
        key = warp % (WARPS / MT) * KEYS, col = warp / (WARPS / MT) * COLS;
    }
};

/* sum = pairs^T x, over the block's 64 rows; addresses are the lane's, of the warp's part. */
template <typename T, int D>
DEVICE void keys_product(typename Share<D>::Sums &sum, uint32_t pairs_at, uint32_t x_at) {
    constexpr int MT = Share<D>::MT, COLS = Share<D>::COLS;
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < COLS / 8; n++) sum[m][n][0] = sum[m][n][1] = sum[m][n][2] = sum[m][n][3] = 0;
#pragma unroll
    for (int k = 0; k < ROWS / 16; k++) {
        uint32_t a[MT][4], b[4];
#pragma unroll
        for (int m = 0; m < MT; m++) load_blocks_transposed(a[m], pairs_at + k * 16 * Tile<SIDE>::ROW_BYTES + m * 32);
#pragma unroll
        for (int n = 0; n < COLS / 16; n++) {
            load_blocks_transposed(b, x_at + k * 16 * Tile<D>::ROW_BYTES + n * 32);
#pragma unroll
            for (int m = 0; m < MT; m++) {
                multiply<T>(sum[m][2 * n], a[m], b[0], b[1]);
                multiply<T>(sum[m][2 * n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/* The lane's part of 16 keys' sums, of keys r and r + 8, which stand at to[0] and to[1] (NULL: there is no such key).
 * Two neighbouring lanes swap, so that each has four numbers in a row. */
template <int BLOCKS> DEVICE void add_keys(float *const (&to)[2], const float (&sum)[BLOCKS][4], float by) {
    int lane = threadIdx.x % WARP, odd = lane % 2, col = odd * 8 + lane % 4 / 2 * 4;
#pragma unroll
    for (int n = 0; n < BLOCKS / 2; n++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float low[2] = {sum[2 * n][2 * r] * by, sum[2 * n][2 * r + 1] * by};
            float high[2] = {sum[2 * n + 1][2 * r] * by, sum[2 * n + 1][2 * r + 1] * by};
            float x = __shfl_xor_sync(~0u, odd ? low[0] : high[0], 1);
            float y = __shfl_xor_sync(~0u, odd ? low[1] : high[1], 1);
            if (to[r])
                add4(to[r] + n * 16 + col,
                     odd ? make_float4(x, y, high[0], high[1]) : make_float4(low[0], low[1], x, y));
        }
}

/* dV and dK of the warp's part of the tile whose keys stand in the list from `from` on, n in all. */
template <typename T, int D>
DEVICE void give_keys(const CudaGatheredGrad &x, const Tokens &t, const int *list, int from, int n, uint32_t q_tile) {
    constexpr int MT = Share<D>::MT;
    const AttrHeads &h = x.s.h;
    Share<D> mine;
    int width = 2 * h.kv_heads * D, at = from + mine.key + threadIdx.x % WARP / 4;
    uint32_t pairs_at = lane_b<SIDE>(q_tile + Memory<D>::P) + mine.key * 2; /* transposed, columns are lane_b's rows */
    uint32_t q_at = lane_transposed<D>(q_tile) + mine.col * 2;
    float *sums = x.sums + t.row * h.seq * width + t.g * D + mine.col;
    typename Share<D>::Sums sum;
#pragma unroll
    for (int v = 1; v >= 0; v--) { /* values, then keys */
        keys_product<T, D>(sum, pairs_at + (1 - v) * Memory<D>::PAIRS, q_at + v * Memory<D>::TILE);
#pragma unroll
        for (int m = 0; m < MT; m++) {
            float *to[2];
#pragma unroll
            for (int r = 0; r < 2; r++) {
                int key = at + m * 16 + r * 8;
                to[r] = key < n ? sums + (int64_t)list[key] * width + v * h.kv_heads * D : nullptr;
            }
            add_keys(to, sum[m], v ? 1.0f : h.scale);
        }
    }
}

template <typename T, int D>
__global__ void __launch_bounds__(THREADS, 2) gathered_grad_kernel(CudaGatheredGrad x) {
#ifdef HAVE_TENSOR_CORES
    using M = Memory<D>;
    extern __shared__ __align__(16) char shared[];
    __shared__ int warps[WARPS];
    const CudaSelected &a = x.s;
    const AttrHeads &h = a.h;
    Tokens t = tokens_of(h);
    int base = threadIdx.x / WARP * 16;
    int *list = (int *)(shared + M::LIST);
    uint32_t *bits = (uint32_t *)(list + List<MOST>::KEYS);
    float *row_numbers = (float *)(shared + M::ROW);
    int64_t step = a.keys.step * a.keys.stride, width = (int64_t)(h.heads + 2 * h.kv_heads) * D;
    const T *keys = keys_of<T>(a, t), *values = keys + h.kv_heads * a.head_step;
    uint32_t q_tile = shared_address(shared), k_tile = q_tile + 2 * M::TILE;
    load_heads<T, D>(q_tile, a.qkv, width, t);
    load_heads<T, D>(q_tile + M::TILE, x.d_o, (int64_t)h.heads * D, t);
    load_heads<T, D>(k_tile, a.o, (int64_t)h.heads * D, t);
    copies_commit();
    copies_wait<0>();
    __syncthreads();
    load_row_numbers<T, D>(row_numbers, a, t, (const T *)(shared + M::TILE), (const T *)(shared + 2 * M::TILE));
    Union u = union_of<MOST>(a, t, bits, warps); /* and K may be gathered where O was */
    int query[2];
    lane_queries(query, t);
    float dq[D / 8][4] = {}, lse2[2], delta[2], scale2 = h.scale * LOG2_E;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        lse2[r] = row_numbers[base + r * 8 + threadIdx.x % WARP / 4];
        delta[r] = row_numbers[ROWS + base + r * 8 + threadIdx.x % WARP / 4];
    }
    uint32_t q_at = lane_a<D>(q_tile, base), k_at = lane_b<D>(k_tile), k_transposed = lane_transposed<D>(k_tile);
    for (;;) {
        refill<MOST>(a, t, u, list, bits, warps);
        if (u.n == 0) break;
        int done = 0, whole = u.word < u.end ? u.n / SIDE * SIDE : u.n; /* what is worked on now */
        gather<T, D>(k_tile, keys, step, list, 0, u.n, thread_anew());
        gather<T, D>(k_tile + M::TILE, values, step, list, 0, u.n, thread_anew());
        for (; done < whole; done += SIDE) {
            Scores s, dp;
            copies_wait<0>();
            __syncthreads(); /* K and V are loaded; all warps are done with the last P and dS */
            scores<T, D>(s, q_at, k_at);
            scores<T, D>(dp, q_at + M::TILE, k_at + M::TILE);
            probabilities(s, lse2, bits + done / 32, query, scale2);
#pragma unroll
            for (int n = 0; n < SIDE / 8; n++)
#pragma unroll
                for (int c = 0; c < 4; c++) dp[n][c] = s[n][c] * (dp[n][c] - delta[c / 2]);
            put_blocks<T, SIDE>((T *)(shared + M::P), base, s, 1.0f, 1.0f);
            put_blocks<T, SIDE>((T *)(shared + M::P + M::PAIRS), base, dp, 1.0f, 1.0f);
            add_product<T, D>(dq, dp, k_transposed);
            __syncthreads(); /* P and dS are there; all warps are done with K and V */
            if (done + SIDE < whole) {
                gather<T, D>(k_tile, keys, step, list, done + SIDE, u.n, thread_anew());
                gather<T, D>(k_tile + M::TILE, values, step, list, done + SIDE, u.n, thread_anew());
            }
            give_keys<T, D>(x, t, list, done, u.n, q_tile);
        }
        if (u.word >= u.end) break;
        move_rest<MOST>(u, done, t, list, bits);
    }
    __syncthreads();
    put_blocks<T, D>((T *)shared, base, dq, h.scale, h.scale);
    __syncwarp();
    give_heads<T, D>(x.d_qkv, width, t, (const T *)shared);
#endif
}

/* ---- the sums of keys and values, rounded ---- */

enum { ROUND_THREADS = 256, WIDE = 8 };

template <typename T> __global__ void __launch_bounds__(ROUND_THREADS) round_kernel(CudaGatheredGrad x) {
    const AttrHeads &h = x.s.h;
    int width = 2 * h.kv_heads * h.head_dim, queries = h.heads * h.head_dim;
    int64_t i = ((int64_t)blockIdx.x * ROUND_THREADS + threadIdx.x) * WIDE;
    if (i >= x.s.tokens * width) return;
    float sum[WIDE];
    load<WIDE>(sum, x.sums + i);
    store<WIDE>((T *)x.d_qkv + i / width * (queries + width) + queries + i % width, sum);
}

extern "C" int cuda_gathered_grad_shared(const AttrHeads *h) {
    int bytes = List<MOST>::bytes(h->heads / h->kv_heads);
    with_dim(h->head_dim, [&](auto d) { bytes += Memory<decltype(d)::value>::LIST; });
    return bytes;
}

extern "C" void cuda_launch_attend_gathered_grad(cudaStream_t s, const CudaGatheredGrad *x) {
    const AttrHeads *h = &x->s.h;
    int64_t numbers = x->s.tokens * 2 * h->kv_heads * h->head_dim;
    int bytes = cuda_gathered_grad_shared(h);
    cudaMemsetAsync(x->sums, 0, (size_t)numbers * sizeof *x->sums, s);
    auto go = [&](auto t) {
        with_dim(h->head_dim, [&](auto d) {
            auto kernel = gathered_grad_kernel<decltype(t), decltype(d)::value>;
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
            kernel<<<gathered_blocks(&x->s), THREADS, bytes, s>>>(*x);
        });
        round_kernel<decltype(t)><<<blocks_for(numbers, ROUND_THREADS * WIDE), ROUND_THREADS, 0, s>>>(*x);
    };
    if (x->s.format == FMT_BF16)
        go(Bf16());
    else
        go(F16());
}
