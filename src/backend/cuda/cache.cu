/* cache.cu - attention of a few tokens at a time over a KV cache, in any format, head size and card; the usual ones are
 * attend_cache.cu's. Reference: cpu/cache.c.
 *
 * cache(R, slots, 2*G, D): slot s of row r holds the k heads, then the v heads of the token at position s; in int8 each
 * of them with its scale. A token at a negative position is idle: its o is 0.
 *   attend_cache  a block per token, KV head (up to HEADS of its query heads together) and split of the slots:
 *                 scores of SLOTS slots at a time by 8 lanes a slot, then their softmax, then P V by a warp per
 *                 slot and a lane per few columns; an online softmax from one piece to the next. Splits leave
 *                 (o, top, sum) in the workspace, joined in order. K and V of the slots seen are read once.
 * attend.cu serves many tokens of a row at once. */
#include "backend/cuda/attend.cuh"
#include "backend/cuda/cache_kernels.h"
#include "backend/cuda/chain.cuh"

enum { WARPS = 8, THREADS = WARPS * WARP, SLOTS = 64, LANES = 8, WIDE = 8 };

/* N codes in a row, without their scale. */
template <int N> DEVICE void load(float (&x)[N], const int8_t *p) {
    if constexpr (N == 1) {
        x[0] = (float)*p;
    } else {
        uint32_t w[(N + 3) / 4];
        if constexpr (N == 8) {
            uint2 v = *(const uint2 *)p;
            w[0] = v.x, w[1] = v.y;
        } else if constexpr (N == 4) {
            w[0] = *(const uint32_t *)p;
        } else {
            w[0] = *(const uint16_t *)p;
        }
#pragma unroll
        for (int i = 0; i < N; i++) x[i] = (float)(int8_t)(w[i / 4] >> 8 * (i % 4));
    }
}
DEVICE float one_number(const int8_t *p) { return (float)*p; }
template <typename C> DEVICE float one_number(const C *p) { return to_float(*p); }

/* What the numbers of this head of this slot are multiplied by. */
DEVICE float scale_of(const int8_t *head, int at) { return *(const float *)(head + at); }
template <typename C> DEVICE float scale_of(const C *, int) { return 1.0f; }

/* Scores of one piece: 8 lanes a slot, each V numbers of the head at a time. s(HEADS, SLOTS). */
template <typename C, int HEADS, int V> DEVICE void piece_scores(float (*s)[SLOTS],
                                                                 const float (*q)[CUDA_MOST_HEAD_DIM], const C *k,
                                                                 int stride, int dim, int slots, int scale_at) {
    int lane = threadIdx.x % LANES;
    for (int slot = threadIdx.x / LANES; slot < SLOTS; slot += THREADS / LANES) {
        float sum[HEADS] = {};
        for (int c = lane * V; slot < slots && c < dim; c += LANES * V) {
            float x[V], y[V];
            load<V>(x, k + (int64_t)slot * stride + c);
#pragma unroll
            for (int h = 0; h < HEADS; h++) {
                load<V>(y, &q[h][c]);
#pragma unroll
                for (int i = 0; i < V; i++) sum[h] += x[i] * y[i];
            }
        }
#pragma unroll
        for (int h = 0; h < HEADS; h++)
#pragma unroll
            for (int d = LANES / 2; d; d /= 2) sum[h] += __shfl_xor_sync(~0u, sum[h], d);
        if (lane) continue;
        float scale = slot < slots ? scale_of(k + (int64_t)slot * stride, scale_at) : 1.0f;
#pragma unroll
        for (int h = 0; h < HEADS; h++) s[h][slot] = slot < slots ? sum[h] * scale : -INFINITY;
    }
}

struct Softmax { /* of one head, in shared memory */
    float top, sum, rescale;
};

/* Warp h takes head h: scores become probabilities. */
DEVICE void piece_softmax(Softmax *head, float *s, float scale2) {
    int lane = threadIdx.x % WARP;
    float now = head->top, part = 0;
#pragma unroll
    for (int i = 0; i < SLOTS; i += WARP) now = fmaxf(now, s[i + lane] * scale2);
    now = warp_max(now);
    float off = now == -INFINITY ? 0.0f : now;
#pragma unroll
    for (int i = 0; i < SLOTS; i += WARP) {
        float p = exp2f(s[i + lane] * scale2 - off);
        s[i + lane] = p;
        part += p;
    }
    part = warp_sum(part);
    __syncwarp();
    if (lane) return;
    head->rescale = exp2f(head->top - off);
    head->sum = head->sum * head->rescale + part;
    head->top = now;
}

/* o(HEADS, P columns of this lane) += P V: warp w takes slots w, w+8, ... */
template <typename C, int HEADS, int P> DEVICE void piece_values(float (&o)[HEADS][P], const float (*s)[SLOTS],
                                                                 const C *v, int stride, int dim, int slots,
                                                                 bool wide, int scale_at) {
    int col = threadIdx.x % WARP * P;
    for (int slot = threadIdx.x / WARP; slot < slots; slot += WARPS) {
        const C *head = v + (int64_t)slot * stride, *from = head + col;
        float x[P], scale = scale_of(head, scale_at);
        if (wide && col < dim) {
            load<P>(x, from);
        } else {
#pragma unroll
            for (int i = 0; i < P; i++) x[i] = col + i < dim ? one_number(from + i) : 0.0f;
        }
#pragma unroll
        for (int h = 0; h < HEADS; h++)
#pragma unroll
            for (int i = 0; i < P; i++) o[h][i] += s[h][slot] * scale * x[i];
    }
}

/* C: of the cache, in whose numbers strides are; P: columns a lane owns in P V (D <= 32*P); V: numbers of K a lane
 * reads at a time; wide: V's rows allow P at a time. */
template <typename T, typename C, int HEADS, int P, int V> __global__ void __launch_bounds__(THREADS, 1)
    attend_cache_kernel(CudaAttend a, CudaHeadRow head_row, float *parts, int splits, bool wide) {
    __shared__ __align__(16) float q[HEADS][CUDA_MOST_HEAD_DIM];
    __shared__ float s[HEADS][SLOTS], sums[WARPS][P * WARP];
    __shared__ Softmax state[HEADS];
    int group = a.heads / a.kv_heads, bunches = (group + HEADS - 1) / HEADS, warp = threadIdx.x / WARP;
    int kv = blockIdx.y / bunches, head = kv * group + blockIdx.y % bunches * HEADS,
        heads = min(HEADS, kv * group + group - head);
    int64_t token = blockIdx.x, row = token / a.seq;
    chain_wait();
    int end = min(a.last[token] + 1, a.keys);
    int each = ((end + splits - 1) / splits + SLOTS - 1) / SLOTS * SLOTS; /* of what is seen: all splits have some */
    int first = (int)blockIdx.z * each, last = min(end, first + each);

    for (int i = threadIdx.x; i < HEADS * a.dim; i += THREADS) {
        int h = i / a.dim, c = i % a.dim;
        q[h][c] = h < heads ? to_float(((const T *)a.q)[token * a.q_stride + (head + h) * a.dim + c]) : 0.0f;
    }
    if (threadIdx.x < HEADS) state[threadIdx.x] = {-INFINITY, 0, 0};
    float o[HEADS][P] = {};
    const C *k = (const C *)a.k + key_row(a, row) * a.keys * a.kv_stride + kv * head_row.bytes / (int)sizeof(C);
    for (int slot = first; slot < last; slot += SLOTS) {
        const C *here = k + (int64_t)slot * a.kv_stride;
        int slots = min(SLOTS, last - slot);
        __syncthreads(); /* q is there; the last probabilities have been read */
        piece_scores<C, HEADS, V>(s, q, here, a.kv_stride, a.dim, slots, head_row.scale_at);
        __syncthreads();
        if (warp < HEADS) piece_softmax(&state[warp], s[warp], a.scale * LOG2_E);
        __syncthreads();
#pragma unroll
        for (int h = 0; h < HEADS; h++)
#pragma unroll
            for (int i = 0; i < P; i++) o[h][i] *= state[h].rescale;
        piece_values<C, HEADS, P>(o, s, here + a.v_offset, a.kv_stride, a.dim, slots, wide, head_row.scale_at);
    }
    for (int h = 0; h < HEADS; h++) { /* the warps' sums in order; static indexes keep o in registers */
        __syncthreads();
#pragma unroll
        for (int i = 0; i < P; i++) {
            float mine = 0;
#pragma unroll
            for (int at = 0; at < HEADS; at++) mine = at == h ? o[at][i] : mine;
            sums[warp][threadIdx.x % WARP * P + i] = mine;
        }
        __syncthreads();
        if (h >= heads) continue;
        for (int c = threadIdx.x; c < a.dim; c += THREADS) {
            float total = 0;
            for (int w = 0; w < WARPS; w++) total += sums[w][c];
            int64_t at = token * a.heads + head + h;
            float sum = state[h].sum;
            if (splits == 1) {
                ((T *)a.o)[token * a.o_stride + (head + h) * a.dim + c] =
                    from_float<T>(sum != 0 ? total / sum : 0.0f);
            } else {
                float *part = parts + (at * splits + blockIdx.z) * (a.dim + 2);
                part[c] = total;
                if (c == 0) part[a.dim] = state[h].top, part[a.dim + 1] = sum;
            }
        }
    }
}

/* One warp a token and head: the splits' sums, scaled to one maximum, in order. */
template <typename T> __global__ void __launch_bounds__(THREADS)
    cache_join_kernel(CudaAttend a, const float *parts, int splits) {
    int64_t at = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
    chain_wait();
    if (at >= a.rows * a.seq * a.heads) return;
    const float *part = parts + at * splits * (a.dim + 2);
    float top = -INFINITY, sum = 0;
    for (int i = 0; i < splits; i++) top = fmaxf(top, part[i * (a.dim + 2) + a.dim]);
    float off = top == -INFINITY ? 0.0f : top;
    for (int i = 0; i < splits; i++)
        sum += part[i * (a.dim + 2) + a.dim + 1] * exp2f(part[i * (a.dim + 2) + a.dim] - off);
    T *to = (T *)a.o + at / a.heads * a.o_stride + at % a.heads * a.dim;
    for (int c = threadIdx.x % WARP; c < a.dim; c += WARP) {
        float total = 0;
        for (int i = 0; i < splits; i++)
            total += part[i * (a.dim + 2) + c] * exp2f(part[i * (a.dim + 2) + a.dim] - off);
        to[c] = from_float<T>(sum != 0 ? total / sum : 0.0f);
    }
}

extern "C" void cuda_launch_cache_join(cudaStream_t s, const CudaAttend *a, const float *parts, int splits) {
    with_real(a->format, [&](auto t) {
        cuda_launch_chained(s, cache_join_kernel<decltype(t)>, blocks_for(a->rows * a->seq * a->heads, WARPS), THREADS,
                            0, *a, parts, splits);
    });
}

template <typename T, typename C, int HEADS, int P>
static void launch_attend(cudaStream_t s, const CudaAttend *a, CudaHeadRow row, float *parts, int splits) {
    int group = a->heads / a->kv_heads, bunches = (group + HEADS - 1) / HEADS;
    dim3 grid((unsigned)(a->rows * a->seq), (unsigned)(a->kv_heads * bunches), (unsigned)splits);
    bool wide = a->dim % WIDE == 0 && is_packed(a->k); /* then every row of k and v begins at 16 bytes */
    auto kernel = wide ? attend_cache_kernel<T, C, HEADS, P, WIDE> : attend_cache_kernel<T, C, HEADS, P, 1>;
    cuda_launch_chained(s, kernel, grid, THREADS, 0, *a, row, parts, splits, wide);
    if (splits > 1) cuda_launch_cache_join(s, a, parts, splits);
}

template <typename T, typename C, int HEADS>
static void launch_columns(cudaStream_t s, const CudaAttend *a, CudaHeadRow row, float *parts, int splits) {
    if (a->dim <= 2 * WARP)
        launch_attend<T, C, HEADS, 2>(s, a, row, parts, splits);
    else if (a->dim <= 4 * WARP)
        launch_attend<T, C, HEADS, 4>(s, a, row, parts, splits);
    else
        launch_attend<T, C, HEADS, 8>(s, a, row, parts, splits);
}

template <typename T, typename C>
static void launch_heads(cudaStream_t s, const CudaAttend *a, CudaHeadRow row, float *parts, int splits) {
    if (a->heads == a->kv_heads)
        launch_columns<T, C, 1>(s, a, row, parts, splits);
    else
        launch_columns<T, C, DEVICE_CACHE_HEADS>(s, a, row, parts, splits);
}

extern "C" void cuda_launch_attend_cache(cudaStream_t s, const CudaAttend *a, float *parts, int splits) {
    with_real(a->format, [&](auto t) {
        using T = decltype(t);
        launch_heads<T, T>(s, a, CudaHeadRow{a->dim * (int)sizeof(T), 0}, parts, splits);
    });
}

extern "C" void cuda_launch_attend_cache_int8(cudaStream_t s, const CudaAttend *a, CudaHeadRow row, float *parts,
                                              int splits) {
    with_real(a->format, [&](auto t) { launch_heads<decltype(t), int8_t>(s, a, row, parts, splits); });
}
