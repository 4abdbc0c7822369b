/* attend_cache.cu - decode attention over a KV cache, on tensor cores: one token of a request at a time, split over the
 * keys (flash-decoding, split-KV). Reference: cpu/cache.c.
 *
 * Heads of 32, 64, 80, 96 or 128 numbers in bf16 or fp16, the cache in the same or in int8, sm_80 on; cache.cu has
 * the others. A block per token, KV head (up to HEADS of its query heads together) and split of the slots seen
 * (split-KV); a warp takes one or two tiles of TILE slots at a time, K and V of which go from memory to registers and
 * into the products:
 *
 *   scores(slot, head) = K q^T,   o(number, head) += V^T P     (cache_tiles.cuh: who reads what)
 *
 * K (V) of the next tile is prefetched while the products of V (K) run. The softmax is online, a warp for itself; P is
 * rounded to the activations' format. Then the warps' sums are joined in order, and those of the splits: from sm_90 on
 * the splits of a head are a cluster and write into each other's shared memory, each joining a share of the numbers;
 * before that they leave (o, top, sum) in the workspace, and cache.cu joins them. An idle token (position -1) reads
 * nothing. int8: codes are exact in 16 bits; the scale of a key goes onto its score, that of a value onto its
 * probability.
 *
 * Together with rope_put (NEW, not of int8): q, k and v of the token are not rotated yet. A block rotates its own heads
 * as it loads them; the one whose split ends with the token's own slot takes that key and value from there, and the
 * first group of query heads writes them into the cache. No block reads that slot from memory: other groups take it
 * from qkv likewise, and other tokens have other cache rows. What is read was there before the play (the caller knows
 * that no other step of it writes this cache), so K and V are prefetched and the angles computed before the wait of
 * programmatic dependent launch. */
#include "backend/cuda/cache_kernels.h"
#include "backend/cuda/cache_tiles.cuh"
#include "backend/cuda/chain.cuh"
#include "backend/cuda/cluster.cuh"

template <typename Fn> static void with_cache_dim(int dim, Fn fn) {
    if (dim == 32) fn(std::integral_constant<int, 32>());
    else with_dim(dim, fn);
}

#ifdef HAVE_TENSOR_CORES
/* Over the lanes of the same t. */
DEVICE float most_of_slots(float x) {
#pragma unroll
    for (int d = 4; d < WARP; d *= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, d));
    return x;
}
DEVICE float sum_of_slots(float x) {
#pragma unroll
    for (int d = 4; d < WARP; d *= 2) x += __shfl_xor_sync(~0u, x, d);
    return x;
}

/* ---- a warp ---- */

template <typename T, typename C, int D, int TILES> struct Warp { /* of heads 2t and 2t+1 */
    static constexpr int SLOTS = TILES * TILE; /* of a step */
    float o[D / 16][4], top[2], sum[2]; /* top: of scores * scale * log2 e; sum: of this lane's slots */

    DEVICE Warp() {
#pragma unroll
        for (int i = 0; i < D / 16; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) o[i][j] = 0;
        top[0] = top[1] = -INFINITY, sum[0] = sum[1] = 0;
    }

    /* Softmax update: scores become probabilities; o and sum are rescaled to the new maximum. */
    DEVICE void softmax_update(float (&s)[TILES][4], int there, float scale2) {
        int slot = threadIdx.x % WARP / 4;
        float now[2] = {top[0], top[1]}, rescale[2];
#pragma unroll
        for (int i = 0; i < TILES; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                s[i][j] = slot + i * TILE + j / 2 * 8 < there ? s[i][j] * scale2 : -INFINITY;
                now[j % 2] = fmaxf(now[j % 2], s[i][j]);
            }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            now[h] = most_of_slots(now[h]); /* the first slot is there: finite */
            rescale[h] = exp2_fast(top[h] - now[h]);
            top[h] = now[h], sum[h] *= rescale[h];
        }
#pragma unroll
        for (int i = 0; i < TILES; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                s[i][j] = exp2_fast(s[i][j] - now[j % 2]);
                sum[j % 2] += s[i][j];
            }
#pragma unroll
        for (int i = 0; i < D / 16; i++)
            o[i][0] *= rescale[0], o[i][1] *= rescale[1], o[i][2] *= rescale[0], o[i][3] *= rescale[1];
    }

    /* The `there` slots from k and v on, SLOTS at a time, `on` slots from one step to the next. own: k, then v of the
     * last of them, which is not in the cache yet; NULL: it is. */
    DEVICE void attend(const uint2 (*q)[WARP], Keys<T, C, D> (&keys)[TILES], Values<T, C, D> (&values)[TILES],
                       const C *k, const C *v, int stride, int there, int on, int row_scale, float scale2,
                       const C *own) {
        int beside = own ? 1 : 0;
        for (; there > 0; there -= on) {
            if (own && there <= SLOTS) {
#pragma unroll
                for (int i = 0; i < TILES; i++)
                    keys[i].replace(own, there - 1, i * TILE), values[i].replace(own + D, there - 1, i * TILE);
            }
            float s[TILES][4] = {};
            uint32_t p[TILES][2];
#pragma unroll
            for (int i = 0; i < TILES; i++) keys[i].multiply_by(s[i], q);
            k += on * stride, v += on * stride;
            if (there - beside > on) take_tiles(keys, k, stride, there - beside - on, row_scale);
            softmax_update(s, there, scale2);
#pragma unroll
            for (int i = 0; i < TILES; i++) {
                const float *by = values[i].scale;
                p[i][0] = transpose_block(pack_word<T>(s[i][0] * by[0], s[i][1] * by[0]));
                p[i][1] = transpose_block(pack_word<T>(s[i][2] * by[1], s[i][3] * by[1]));
                values[i].add_to(o, p[i][0], p[i][1]);
            }
            if (there - beside > on) take_tiles(values, v, stride, there - beside - on, row_scale);
        }
    }

    template <typename Tile>
    static DEVICE void take_tiles(Tile (&t)[TILES], const C *first, int stride, int there, int row_scale) {
#pragma unroll
        for (int i = 0; i < TILES; i++) t[i].load(first, stride, there, row_scale, i * TILE);
    }
};

/* ---- joining ---- */

/* Sums of a part of the slots: the softmax of each head, and o as items of four numbers in the order of a warp's
 * lanes. */
struct State {
    float top[HEADS], sum[HEADS];
};
struct Place {
    const State *state;
    const float4 *o;
};
struct Joined { /* an item: two numbers of two heads */
    float4 o;
    float top[2], sum[2];
};

/* Item `at` of n places, in their order; place(i) gives one. */
template <typename Fn> DEVICE Joined join(Fn place, int n, int at) {
    int head = at % 4 * 2;
    Joined j = {make_float4(0, 0, 0, 0), {-INFINITY, -INFINITY}, {0, 0}};
    for (int i = 0; i < n; i++) {
        const State *s = place(i).state;
        j.top[0] = fmaxf(j.top[0], s->top[head]), j.top[1] = fmaxf(j.top[1], s->top[head + 1]);
    }
    float off[2] = {j.top[0] == -INFINITY ? 0.0f : j.top[0], j.top[1] == -INFINITY ? 0.0f : j.top[1]};
#pragma unroll 4
    for (int i = 0; i < n; i++) {
        auto p = place(i);
        float by0 = exp2_fast(p.state->top[head] - off[0]), by1 = exp2_fast(p.state->top[head + 1] - off[1]);
        float4 o = p.o[at];
        j.o.x += o.x * by0, j.o.y += o.y * by1, j.o.z += o.z * by0, j.o.w += o.w * by1;
        j.sum[0] += p.state->sum[head] * by0, j.sum[1] += p.state->sum[head + 1] * by1;
    }
    return j;
}

/* Where in the head item `at` = pair * 32 + lane stands. */
template <int D> DEVICE int number_of(int at) {
    constexpr int EACH = Cut<D>::V_EACH, PAIRS = EACH / 2;
    int pair = at / WARP;
    return pair / PAIRS * 8 * EACH + at % WARP / 4 * EACH + pair % PAIRS * 2;
}

/* Where o of a block's heads goes. */
template <typename T, int D> struct Output {
    T *o;
    int heads;
    DEVICE void store(const Joined &j, int at) const {
        int h = at % 4 * 2, c = number_of<D>(at);
        if (h < heads) give_pair(o + h * D + c, j.o.x, j.o.z, j.sum[0]);
        if (h + 1 < heads) give_pair(o + (h + 1) * D + c, j.o.y, j.o.w, j.sum[1]);
    }
    static DEVICE void give_pair(T *to, float x, float y, float sum) {
        *(uint32_t *)to = sum != 0 ? pack<T>(x / sum, y / sum) : 0u;
    }
    DEVICE void leave(const Joined &j, int at, float *part, int splits) const { /* for cache.cu's join */
        int h = at % 4 * 2, c = number_of<D>(at);
        part += h * splits * (D + 2);
        float *next = part + splits * (D + 2);
        if (h < heads) part[c] = j.o.x, part[c + 1] = j.o.z;
        if (h + 1 < heads) next[c] = j.o.y, next[c + 1] = j.o.w;
        if (at < 4 && h < heads) part[D] = j.top[0], part[D + 1] = j.sum[0];
        if (at < 4 && h + 1 < heads) next[D] = j.top[1], next[D + 1] = j.sum[1];
    }
};

/* ---- clusters ---- */

DEVICE void enter_cluster() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\n" ::: "memory");
#endif
}
DEVICE void wait_for_entries() { /* every block runs, and its shared memory may be written */
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire.aligned;\n" ::: "memory");
#endif
}

/* What the blocks of a cluster send each other: block r joins items [r * share, (r + 1) * share) of all splits. */
template <int ITEMS> struct Inbox {
    float4 item[ITEMS + DEVICE_CLUSTER]; /* (splits, share) */
    State state[DEVICE_CLUSTER];
    static DEVICE int share(int splits) { return (ITEMS + splits - 1) / splits; }
    DEVICE void send(const Joined &j, int at, int split, int splits) {
        int each = share(splits), rank = at / each;
        of_block(item, rank)[split * each + at - rank * each] = j.o;
        if (at % WARP >= 4) return; /* four lanes know all heads; their warps take the blocks by turns */
        for (int r = at / WARP; r < splits; r += ITEMS / WARP) {
            State *s = of_block(&state[split], r);
            int h = at % 4 * 2;
            s->top[h] = j.top[0], s->top[h + 1] = j.top[1], s->sum[h] = j.sum[0], s->sum[h + 1] = j.sum[1];
        }
    }
    DEVICE Place place(int i, int split, int splits) const {
        return Place{&state[i], item + (i - split) * share(splits)};
    }
};
#endif

template <typename T, typename C, int D, int WARPS, bool NEW> __global__ void __launch_bounds__(WARPS *WARP, 12 / WARPS)
    attend_tokens_kernel(CudaAttend a, CudaRope rope, CudaHeadRow head_row, float *parts, int splits) {
#ifdef HAVE_TENSOR_CORES
    constexpr int ITEMS = D / 16 * WARP, THREADS = WARPS * WARP; /* items of 4 numbers */
    __shared__ float4 sums[WARPS][ITEMS];
    __shared__ State states[WARPS];
    __shared__ Inbox<ITEMS> inbox;
    __shared__ uint2 q[D / 16][WARP];
    int group = a.heads / a.kv_heads, bunches = (group + HEADS - 1) / HEADS, warp = threadIdx.x / WARP;
    int kv = blockIdx.y / bunches, head = kv * group + blockIdx.y % bunches * HEADS,
        heads = min(HEADS, kv * group + group - head), lane = threadIdx.x % WARP;
    int64_t token = blockIdx.x / splits, row = token / a.seq;
    int split = (int)(blockIdx.x % splits);
    if (splits > 1 && !parts) enter_cluster();

    chain_open();
    if (!a.early) chain_wait();
    constexpr int TILES = Cut<D>::template TILES<C, WARPS>;
    using Mine = Warp<T, C, D, TILES>;
    float inv_freq = NEW && threadIdx.x < D / 2 ? rope.inv_freq[threadIdx.x] : 0.0f; /* loaded with the position */
    int position = a.last[token], end = min(position + 1, a.keys), tiles = (end + Mine::SLOTS - 1) / Mine::SLOTS;
    int each = (tiles + splits - 1) / splits * Mine::SLOTS, first = split * each; /* of what is seen */
    int seen = max(0, min(each, end - first)), there = seen - warp * Mine::SLOTS;
    const C *row_k = (const C *)a.k + key_row(a, row) * a.keys * a.kv_stride + kv * head_row.bytes / (int)sizeof(C);
    const C *k = row_k + (int64_t)(first + warp * Mine::SLOTS) * a.kv_stride, *v = k + a.v_offset, *own = NULL;
    const T *token_q = (const T *)a.q + token * a.q_stride;
    Keys<T, C, D> keys[TILES];
    Values<T, C, D> values[TILES];
    auto take_first = [&](int slots) {
        if (slots <= 0) return;
        Mine::take_tiles(keys, k, a.kv_stride, slots, head_row.scale_at);
        Mine::take_tiles(values, v, a.kv_stride, slots, head_row.scale_at);
    };
    if constexpr (NEW) {
        __shared__ __align__(16) float cosine[D / 2], sine[D / 2];
        __shared__ __align__(16) T own_kv[2 * D];
        bool brings = seen > 0 && position == first + seen - 1;
        take_first(there - brings);
        if (threadIdx.x < D / 2) {
            float2 t = angle_of(rope, position, inv_freq);
            cosine[threadIdx.x] = t.x, sine[threadIdx.x] = t.y;
        }
        chain_wait();
        int task = (threadIdx.x + THREADS - D / 2) % THREADS; /* warps that make no angles have qkv first */
        NewToken<T, D> fresh(task, token_q + head * D, token_q + (a.heads + kv) * D, a.v_offset, heads, brings);
        __syncthreads();
        fresh.rotate(cosine, sine);
        T *slot = blockIdx.y % bunches ? NULL : (T *)row_k + (int64_t)position * a.kv_stride;
        fresh.put(q, own_kv, slot, a.v_offset, brings);
        if (brings) own = own_kv;
    } else {
        chain_wait();
        Query<T, D, WARPS> query(token_q + head * D, heads);
        take_first(there);
        query.put(q); /* K and V are being prefetched */
    }
    __syncthreads();
    Mine w;
    w.attend(q, keys, values, k, v, a.kv_stride, there, WARPS * Mine::SLOTS, head_row.scale_at, a.scale * LOG2_E, own);

#pragma unroll
    for (int i = 0; i < D / 16; i++)
        sums[warp][i * WARP + lane] = make_float4(w.o[i][0], w.o[i][1], w.o[i][2], w.o[i][3]);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float sum = sum_of_slots(w.sum[h]);
        if (lane < 4) states[warp].top[lane * 2 + h] = w.top[h], states[warp].sum[lane * 2 + h] = sum;
    }
    if (splits > 1 && !parts) wait_for_entries();
    __syncthreads();
    int busy = min(WARPS, (seen + Mine::SLOTS - 1) / Mine::SLOTS);
    Output<T, D> to = {(T *)a.o + token * a.o_stride + head * D, heads};
    for (int at = threadIdx.x; at < ITEMS; at += THREADS) {
        Joined j = join([&](int i) { return Place{&states[i], sums[i]}; }, busy, at);
        if (splits == 1) to.store(j, at);
        else if (parts) to.leave(j, at, parts + ((token * a.heads + head) * splits + split) * (D + 2), splits);
        else inbox.send(j, at, split, splits);
    }
    if (splits == 1 || parts) return;
    wait_for_cluster();
    int share = inbox.share(splits);
    for (int at = share * split + threadIdx.x; at < min(ITEMS, share * (split + 1)); at += THREADS)
        to.store(join([&](int i) { return inbox.place(i, split, splits); }, splits, at), at);
#endif
}

/* ---- on the host ---- */

/* More than eight blocks of a cluster are not every card's: asked once a kernel. */
template <typename Kernel>
static bool fits_cluster(Kernel kernel, const cudaLaunchConfig_t *how, int splits, int *most) {
    if (*most < 0) {
        cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
        if (cudaOccupancyMaxPotentialClusterSize(most, kernel, how) != cudaSuccess) *most = 0, (void)cudaGetLastError();
    }
    return splits <= *most;
}

struct Launch {
    cudaStream_t stream;
    const CudaAttend *a;
    const CudaRope *rope; /* NULL: q is rotated already, k and v are in the cache */
    CudaHeadRow row;
    float *parts;
    int splits;
    bool clusters;
    dim3 grid;
};

template <typename T, typename C, int D, int WARPS, bool NEW> static void launch_tokens(const Launch &l) {
    static int most = -1; /* blocks of a cluster */
    auto kernel = attend_tokens_kernel<T, C, D, WARPS, NEW>;
    cudaLaunchConfig_t how = {};
    how.gridDim = l.grid, how.blockDim = dim3(WARPS * WARP), how.stream = l.stream;
    bool joins = l.splits > 1 && l.clusters && fits_cluster(kernel, &how, l.splits, &most);
    cuda_launch_chained_cluster(l.stream, kernel, l.grid, WARPS * WARP, 0, joins ? l.splits : 1, *l.a,
                                NEW ? *l.rope : CudaRope{}, l.row, joins ? NULL : l.parts, l.splits);
    if (l.splits > 1 && !joins) cuda_launch_cache_join(l.stream, l.a, l.parts, l.splits);
}

template <typename T, typename C, bool NEW> static void launch_dim(const Launch &l) {
    enum { SPARSE = 128 }; /* blocks that have a multiprocessor each: more warps have more bytes in flight */
    with_cache_dim(l.a->dim, [&](auto d) {
        constexpr int D = decltype(d)::value;
        if ((int64_t)l.grid.x * l.grid.y <= SPARSE) launch_tokens<T, C, D, 8, NEW>(l);
        else launch_tokens<T, C, D, 4, NEW>(l);
    });
}

static Launch launch_of(cudaStream_t s, const CudaAttend *a, const CudaRope *rope, CudaHeadRow row, float *parts,
                        int splits, bool clusters) {
    int group = a->heads / a->kv_heads, bunches = (group + HEADS - 1) / HEADS;
    return {s, a, rope, row, parts, splits, clusters,
            dim3((unsigned)(a->rows * a->seq * splits), (unsigned)(a->kv_heads * bunches))};
}

extern "C" void cuda_launch_attend_tokens(cudaStream_t s, const CudaAttend *a, CudaHeadRow row, bool int8, float *parts,
                                          int splits, bool clusters) {
    Launch l = launch_of(s, a, NULL, row, parts, splits, clusters);
    if (a->format == FMT_BF16 && int8) launch_dim<Bf16, int8_t, false>(l);
    else if (a->format == FMT_BF16) launch_dim<Bf16, Bf16, false>(l);
    else if (int8) launch_dim<F16, int8_t, false>(l);
    else launch_dim<F16, F16, false>(l);
}

extern "C" void cuda_launch_put_attend(cudaStream_t s, const CudaAttend *a, const CudaRope *rope, CudaHeadRow row,
                                       float *parts, int splits, bool clusters) {
    Launch l = launch_of(s, a, rope, row, parts, splits, clusters);
    if (a->format == FMT_BF16) launch_dim<Bf16, Bf16, true>(l);
    else launch_dim<F16, F16, true>(l);
}
