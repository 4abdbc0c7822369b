/* selected.cu - attention over the keys selected for each query (gather), forward and backward. Reference:
 * cpu/selected.c.
 *
 * Forward and dQ: a block takes one token and KV head; keys are read in place, KEYS of them at a time: a thread
 * scores a key against all heads of the group, then threads own columns of the sums. Softmax state is kept a head in
 * shared memory, rescaled block by block. dK and dV: a block owns TILE keys of a KV head and walks over the queries
 * behind them in order; which of its keys a query has selected is found in its ascending list by bisection. A warp
 * owns the sums of its keys: no atomics, one order. */
#include "backend/cuda/sparse.cuh"

enum { THREADS = 128, WARPS = THREADS / WARP, KEYS = THREADS };

DEVICE int64_t width_of(const AttrHeads &h) { return (int64_t)(h.heads + 2 * h.kv_heads) * h.head_dim; }

template <typename K>
DEVICE KeyRow<K> listed(const CudaSelected &a, int64_t row, int s, int head) {
    return key_of<K>(a.keys, row, s, head * a.head_step);
}

/* The dot products of four heads (rows of `dim` numbers in shared memory) with a key; heads behind `group` give what
 * is there. */
template <typename K>
DEVICE void dots(float (&sum)[HEADS_AT_ONCE], const float *q, const KeyRow<K> &key, int dim, int group, int h) {
#pragma unroll
    for (int i = 0; i < HEADS_AT_ONCE; i++) sum[i] = 0;
    for (int d = 0; d < dim; d++) {
        float v = key[d];
#pragma unroll
        for (int i = 0; i < HEADS_AT_ONCE; i++) sum[i] += q[min(h + i, group - 1) * dim + d] * v;
    }
}

template <typename T>
DEVICE void load_heads(float *to, const void *from, int64_t first, int n) {
    for (int i = threadIdx.x; i < n; i += THREADS) to[i] = to_float(((const T *)from)[first + i]);
}

/* Keys of the list from `first` on into shared memory; gives how many there are. */
DEVICE int load_list(int *list, const int32_t *from, int first, int most, int *count) {
    int i = first + threadIdx.x, s = i < most ? from[i] : -1;
    list[threadIdx.x] = s;
    if (threadIdx.x == 0) *count = 0;
    __syncthreads();
    unsigned votes = __ballot_sync(~0u, s >= 0);
    if (threadIdx.x % WARP == 0) atomicAdd(count, __popc(votes));
    __syncthreads();
    return *count;
}

/* ---- forward ---- */

/* Of one head: the block's scores become exponentials, the state and the factor of older sums follow. By a warp. */
DEVICE void softmax_update(float *s, int n, float *top, float *sum, float *rescale) {
    int lane = threadIdx.x % WARP;
    float now = *top, part = 0;
    for (int i = lane; i < n; i += WARP) now = fmaxf(now, s[i]);
    now = warp_max(now);
    for (int i = lane; i < n; i += WARP) s[i] = expf(s[i] - now), part += s[i];
    part = warp_sum(part);
    float by = expf(*top - now);
    __syncwarp();
    if (lane == 0) *rescale = by, *sum = *sum * by + part, *top = now;
}

template <typename T, typename K>
__global__ void __launch_bounds__(THREADS, 8) attend_selected_kernel(CudaSelected a) {
    extern __shared__ float memory[];
    __shared__ int list[KEYS], count;
    const AttrHeads &h = a.h;
    int dim = h.head_dim, group = h.heads / h.kv_heads, g = blockIdx.x % h.kv_heads;
    int64_t token = blockIdx.x / h.kv_heads, row = token / h.seq;
    float *q = memory, *o = q + group * dim, *s = o + group * dim, *top = s + group * KEYS, *sum = top + group,
          *rescale = sum + group;
    load_heads<T>(q, a.qkv, token * width_of(h) + (int64_t)g * group * dim, group * dim);
    for (int i = threadIdx.x; i < group * dim; i += THREADS) o[i] = 0;
    for (int i = threadIdx.x; i < group; i += THREADS) top[i] = -INFINITY, sum[i] = 0;
    if (a.rows) row = a.rows[row];
    for (int first = 0; first < a.most; first += KEYS) {
        int n = load_list(list, a.list + token * a.most, first, (int)a.most, &count);
        if (!n) break;
        for (int head = 0; head < group && (int)threadIdx.x < n; head += HEADS_AT_ONCE) {
            float part[HEADS_AT_ONCE];
            dots(part, q, listed<K>(a, row, list[threadIdx.x], g), dim, group, head);
#pragma unroll
            for (int i = 0; i < HEADS_AT_ONCE; i++)
                if (head + i < group) s[(head + i) * KEYS + threadIdx.x] = part[i] * h.scale;
        }
        __syncthreads();
        for (int head = threadIdx.x / WARP; head < group; head += WARPS)
            softmax_update(s + head * KEYS, n, top + head, sum + head, rescale + head);
        __syncthreads();
        for (int i = threadIdx.x; i < group * dim; i += THREADS) {
            int head = i / dim, d = i % dim;
            float part = 0;
            for (int k = 0; k < n; k++) part += s[head * KEYS + k] * listed<K>(a, row, list[k], h.kv_heads + g)[d];
            o[i] = o[i] * rescale[head] + part;
        }
        __syncthreads();
    }
    for (int i = threadIdx.x; i < group * dim; i += THREADS) {
        float total = sum[i / dim];
        ((T *)a.o)[(token * h.heads + (int64_t)g * group) * dim + i] = from_float<T>(total > 0 ? o[i] / total : 0.0f);
    }
    for (int i = threadIdx.x; i < group && a.lse; i += THREADS)
        a.lse[token * h.heads + (int64_t)g * group + i] = sum[i] > 0 ? top[i] + logf(sum[i]) : 0.0f;
}

/* ---- backward ---- */

template <typename T>
__global__ void __launch_bounds__(THREADS, BELOW_90 ? 6 : 0)
    attend_selected_dq_kernel(CudaSelected a, const T *d_o, T *d_qkv, float *deltas) {
    extern __shared__ float memory[];
    __shared__ int list[KEYS], count;
    const AttrHeads &h = a.h;
    int dim = h.head_dim, group = h.heads / h.kv_heads, g = blockIdx.x % h.kv_heads;
    int64_t token = blockIdx.x / h.kv_heads, row = token / h.seq, at = (token * h.heads + (int64_t)g * group) * dim;
    int64_t first_q = token * width_of(h) + (int64_t)g * group * dim;
    float *q = memory, *dy = q + group * dim, *dq = dy + group * dim, *s = dq + group * dim, *delta = s + group * KEYS;
    load_heads<T>(q, a.qkv, first_q, group * dim);
    load_heads<T>(dy, d_o, at, group * dim);
    for (int i = threadIdx.x; i < group * dim; i += THREADS) dq[i] = 0;
    __syncthreads();
    for (int head = threadIdx.x / WARP; head < group; head += WARPS) {
        float sum = 0;
        for (int d = threadIdx.x % WARP; d < dim; d += WARP)
            sum += dy[head * dim + d] * to_float(((const T *)a.o)[at + head * dim + d]);
        sum = warp_sum(sum);
        if (threadIdx.x % WARP == 0) delta[head] = deltas[token * h.heads + g * group + head] = sum;
    }
    __syncthreads();
    for (int first = 0; first < a.most; first += KEYS) {
        int n = load_list(list, a.list + token * a.most, first, (int)a.most, &count);
        if (!n) break;
        for (int head = 0; head < group && (int)threadIdx.x < n; head += HEADS_AT_ONCE) {
            float score[HEADS_AT_ONCE], dp[HEADS_AT_ONCE];
            dots(score, q, listed<T>(a, row, list[threadIdx.x], g), dim, group, head);
            dots(dp, dy, listed<T>(a, row, list[threadIdx.x], h.kv_heads + g), dim, group, head);
#pragma unroll
            for (int i = 0; i < HEADS_AT_ONCE; i++) {
                if (head + i >= group) continue;
                float p = expf(score[i] * h.scale - a.lse[token * h.heads + g * group + head + i]);
                s[(head + i) * KEYS + threadIdx.x] = p * (dp[i] - delta[head + i]) * h.scale;
            }
        }
        __syncthreads();
        for (int i = threadIdx.x; i < group * dim; i += THREADS) {
            int head = i / dim, d = i % dim;
            float part = 0;
            for (int k = 0; k < n; k++) part += s[head * KEYS + k] * listed<T>(a, row, list[k], g)[d];
            dq[i] += part;
        }
        __syncthreads();
    }
    for (int i = threadIdx.x; i < group * dim; i += THREADS) d_qkv[first_q + i] = from_float<T>(dq[i]);
}

/* Which of the keys [first, first + tile) stand in an ascending list that ends in -1: bits. */
DEVICE unsigned selected_of(const int32_t *list, int most, int first, int tile) {
    int low = 0, high = most;
    while (low < high) { /* -1 counts as the largest */
        int middle = (low + high) / 2;
        if ((unsigned)list[middle] < (unsigned)first)
            low = middle + 1;
        else
            high = middle;
    }
    unsigned bits = 0;
    for (; low < most && (unsigned)list[low] < (unsigned)(first + tile); low++) bits |= 1u << (list[low] - first);
    return bits;
}

template <typename T>
__global__ void __launch_bounds__(THREADS, BELOW_90 ? 6 : 0)
    attend_selected_dkv_kernel(CudaSelected a, const T *d_o, T *d_qkv, const float *deltas, int tile) {
    extern __shared__ float memory[];
    __shared__ unsigned mask[THREADS];
    const AttrHeads &h = a.h;
    int dim = h.head_dim, group = h.heads / h.kv_heads, tiles = (int)((h.seq + tile - 1) / tile),
        g = blockIdx.x % h.kv_heads;
    int first = blockIdx.x / h.kv_heads % tiles * tile, lane = threadIdx.x % WARP, warp = threadIdx.x / WARP,
        each = tile / WARPS;
    int64_t row = blockIdx.x / h.kv_heads / tiles, token0 = row * h.seq, width = width_of(h);
    float *dk = memory, *dv = dk + tile * dim;
    for (int i = threadIdx.x; i < 2 * tile * dim; i += THREADS) memory[i] = 0;
    for (int t0 = first; t0 < h.seq; t0 += THREADS) {
        int t = t0 + threadIdx.x;
        __syncthreads();
        mask[threadIdx.x] = t < h.seq ? selected_of(a.list + (token0 + t) * a.most, (int)a.most, first, tile) : 0;
        __syncthreads();
        for (int i = 0; i < THREADS; i++) {
            unsigned bits = mask[i] >> (warp * each) & ((1u << each) - 1);
            int64_t token = token0 + t0 + i;
            for (; bits; bits &= bits - 1) {
                int mine = warp * each + __ffs((int)bits) - 1;
                KeyRow<T> k = listed<T>(a, row, first + mine, g), v = listed<T>(a, row, first + mine, h.kv_heads + g);
                for (int head = g * group; head < (g + 1) * group; head++) {
                    const T *q = (const T *)a.qkv + token * width + (int64_t)head * dim,
                            *dy = d_o + (token * h.heads + head) * dim;
                    float score = 0, dp = 0;
                    for (int d = lane; d < dim; d += WARP) score += to_float(q[d]) * k[d], dp += to_float(dy[d]) * v[d];
                    score = warp_sum(score);
                    dp = warp_sum(dp);
                    float p = expf(score * h.scale - a.lse[token * h.heads + head]);
                    float ds = p * (dp - deltas[token * h.heads + head]) * h.scale;
                    for (int d = lane; d < dim; d += WARP) {
                        dk[mine * dim + d] += ds * to_float(q[d]);
                        dv[mine * dim + d] += p * to_float(dy[d]);
                    }
                }
            }
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < tile * dim; i += THREADS) {
        int s = first + i / dim, d = i % dim;
        if (s >= h.seq) break;
        T *to = d_qkv + (token0 + s) * width + d;
        to[(int64_t)(h.heads + g) * dim] = from_float<T>(dk[i]);
        to[(int64_t)(h.heads + h.kv_heads + g) * dim] = from_float<T>(dv[i]);
    }
}

extern "C" void cuda_launch_attend_selected(cudaStream_t s, const CudaSelected *a) {
    int group = a->h.heads / a->h.kv_heads;
    size_t shared = (size_t)(group * (2 * a->h.head_dim + KEYS + 3)) * sizeof(float);
    with_keys(a->format, a->keys.format, [&](auto t, auto k) {
        attend_selected_kernel<decltype(t), decltype(k)>
            <<<(unsigned)(a->tokens * a->h.kv_heads), THREADS, shared, s>>>(*a);
    });
}

extern "C" void cuda_launch_attend_selected_grad(cudaStream_t s, const CudaSelected *a, const void *d_o, void *d_qkv,
                                                 float *delta) {
    int group = a->h.heads / a->h.kv_heads, dim = a->h.head_dim, tile = dim <= 128 ? 32 : dim <= 256 ? 16 : 8;
    size_t shared = (size_t)(group * (3 * dim + KEYS + 1)) * sizeof(float),
           sums = (size_t)(2 * tile * dim) * sizeof(float);
    int64_t rows = a->tokens / a->h.seq, tiles = (a->h.seq + tile - 1) / tile;
    with_real(a->format, [&](auto t) {
        using T = decltype(t);
        attend_selected_dq_kernel<T>
            <<<(unsigned)(a->tokens * a->h.kv_heads), THREADS, shared, s>>>(*a, (const T *)d_o, (T *)d_qkv, delta);
        attend_selected_dkv_kernel<T><<<(unsigned)(rows * tiles * a->h.kv_heads), THREADS, sums, s>>>(
            *a, (const T *)d_o, (T *)d_qkv, delta, tile);
    });
}
