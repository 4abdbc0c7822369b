/* gathered.cu - sparse attention where the selected keys are few among many: tiles of neighbouring queries attend to
 * the gathered union of their selections, on tensor cores. Reference: cpu/selected.c.
 *
 * gathered.cuh says what a block has and how it gathers keys. Then as in attend.cu: S = Q K^T, unselected pairs masked,
 * an online softmax, O += P V; V of a tile is prefetched while S is computed, K of the next while P V is. */
#include "backend/cuda/gathered.cuh"

enum { MOST = 3072 /* keys of the list */ };

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
            uint32_t mine = bits[query[r] * List<MOST>::BITS + w] >> lane % 4 * 2;
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

template <typename T, int D>
DEVICE void finish(const CudaSelected &a, const Tokens &t, T *tile, const float (&o)[D / 8][4], const float (&top)[2],
                   const float (&sum)[2]) {
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
            a.lse[(t.first + q) * a.h.heads + t.g * t.group + row % t.group] =
                seen ? top[r] * a.h.scale + LN_2 * __log2f(l) : 0.0f;
        by[r] = seen ? __fdividef(1.0f, l) : 0.0f;
    }
    put_blocks<T, D>(tile, base, o, by[0], by[1]);
    __syncwarp();
    give_heads<T, D>(a.o, (int64_t)a.h.heads * D, t, tile);
}

template <int D> constexpr int TILES_BYTES = (ROWS + 2 * SIDE) * Tile<D>::ROW_BYTES;

template <typename T, int D> __global__ void __launch_bounds__(THREADS, 2) gathered_kernel(CudaSelected a) {
#ifdef HAVE_TENSOR_CORES
    extern __shared__ __align__(16) char shared[];
    __shared__ int warps[WARPS];
    const AttrHeads &h = a.h;
    Tokens t = tokens_of(h);
    int *list = (int *)(shared + TILES_BYTES<D>);
    uint32_t *bits = (uint32_t *)(list + List<MOST>::KEYS);
    int64_t step = a.keys.step * a.keys.stride;
    const T *keys = keys_of<T>(a, t), *values = keys + h.kv_heads * a.head_step;
    uint32_t q_tile = shared_address(shared), k_tile = q_tile + ROWS * Tile<D>::ROW_BYTES,
             v_tile = k_tile + SIDE * Tile<D>::ROW_BYTES;
    load_heads<T, D>(q_tile, a.qkv, (int64_t)(h.heads + 2 * h.kv_heads) * D, t);
    copies_commit();
    Union u = union_of<MOST>(a, t, bits, warps);
    int query[2];
    lane_queries(query, t);
    float o[D / 8][4] = {}, top[2] = {-INFINITY, -INFINITY}, sum[2] = {}, scale2 = h.scale * LOG2_E;
    uint32_t q_at = lane_a<D>(q_tile, threadIdx.x / WARP * 16), k_at = lane_b<D>(k_tile),
             v_at = lane_transposed<D>(v_tile);
    for (;;) {
        refill<MOST>(a, t, u, list, bits, warps);
        if (u.n == 0) break;
        int done = 0, whole = u.word < u.end ? u.n / SIDE * SIDE : u.n; /* what is worked on now */
        gather<T, D>(k_tile, keys, step, list, 0, u.n, threadIdx.x);
        for (; done < whole; done += SIDE) {
            Scores s;
            copies_wait<0>();
            __syncthreads(); /* K is loaded; all warps are done with the last V */
            gather<T, D>(v_tile, values, step, list, done, u.n, threadIdx.x);
            scores<T, D>(s, q_at, k_at);
            copies_wait<0>();
            __syncthreads(); /* V is loaded; all warps are done with K */
            if (done + SIDE < whole) gather<T, D>(k_tile, keys, step, list, done + SIDE, u.n, threadIdx.x);
            softmax_update<D>(s, o, top, sum, bits + done / 32, query, scale2);
            add_product<T, D>(o, s, v_at);
        }
        if (u.word >= u.end) break;
        move_rest<MOST>(u, done, t, list, bits);
    }
    copies_wait<0>();
    __syncthreads();
    finish<T, D>(a, t, (T *)shared, o, top, sum);
#endif
}

extern "C" int cuda_gathered_shared(const AttrHeads *h) {
    int bytes = List<MOST>::bytes(h->heads / h->kv_heads);
    with_dim(h->head_dim, [&](auto d) { bytes += TILES_BYTES<decltype(d)::value>; });
    return bytes;
}

extern "C" void cuda_launch_attend_gathered(cudaStream_t s, const CudaSelected *a) {
    int bytes = cuda_gathered_shared(&a->h);
    auto go = [&](auto t) {
        with_dim(a->h.head_dim, [&](auto d) {
            auto kernel = gathered_kernel<decltype(t), decltype(d)::value>;
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
            kernel<<<gathered_blocks(a), THREADS, bytes, s>>>(*a);
        });
    };
    if (a->format == FMT_BF16)
        go(Bf16());
    else
        go(F16());
}
