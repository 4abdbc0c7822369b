/* selected_few.cu - attention of a few tokens over the selected keys of a KV cache, split over the keys (split-KV).
 * Reference: cpu/selected.c.
 *
 * A warp takes KEYS keys of a token's list for one KV head: D/8 neighbouring lanes share a key, 8 numbers each, for all
 * heads of the group. It gives a maximum, a sum and a sum of values of each head; a second kernel joins the parts in
 * order, rescaled to the greatest maximum. */
#include "backend/cuda/attend.cuh"
#include "backend/cuda/sparse.cuh"

enum { WARPS = 4, THREADS = WARPS * WARP, KEYS = CUDA_FEW_KEYS, GROUP = CUDA_FEW_GROUP };

DEVICE int64_t part_at(const CudaSelected &a, int64_t token, int head, int part) {
    return ((token * a.h.heads + head) * a.n_parts + part) * (a.h.head_dim + 2);
}

template <typename T, int D>
__global__ void __launch_bounds__(THREADS, 4) few_parts_kernel(CudaSelected a, int64_t first) {
    constexpr int LANES = D / 8, ABREAST = WARP / LANES;
    __shared__ float scores[WARPS][GROUP][KEYS];
    const AttrHeads &h = a.h;
    int group = h.heads / h.kv_heads, warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    int64_t at = (int64_t)blockIdx.x * WARPS + warp, token = at / a.n_parts / h.kv_heads;
    int part = (int)(at % a.n_parts), g = (int)(at / a.n_parts % h.kv_heads);
    bool mine = lane < LANES * ABREAST;
    int which = mine ? lane / LANES : 0, piece = lane % LANES * 8;
    if (token >= a.few) return;
    token += first;
    int64_t row = token / h.seq, width = (int64_t)(h.heads + 2 * h.kv_heads) * D;
    if (a.rows) row = a.rows[row];
    const int32_t *list = a.list + token * a.most + part * KEYS;
    int n = min(KEYS, (int)a.most - part * KEYS);
    const T *keys = (const T *)a.keys.data + row * a.keys.per_row * a.keys.stride + g * a.head_step + piece;
    int64_t step = a.keys.step * a.keys.stride, to_values = (int64_t)h.kv_heads * a.head_step;
    float q[GROUP][8];
#pragma unroll
    for (int i = 0; i < GROUP; i++)
        if (i < group) load<8>(q[i], (const T *)a.qkv + token * width + (g * group + i) * D + piece);
#pragma unroll 2
    for (int k = 0; k < n; k += ABREAST) {
        int key = k + which < n ? list[k + which] : -1;
        float x[8];
        load<8>(x, keys + max(key, 0) * step);
#pragma unroll
        for (int i = 0; i < GROUP; i++) {
            if (i >= group) break;
            float dot = 0;
#pragma unroll
            for (int e = 0; e < 8; e++) dot += q[i][e] * x[e];
            for (int d = 1; d < LANES; d *= 2) { /* LANES need not be a power of two: those behind it give nothing */
                float more = __shfl_down_sync(~0u, dot, d);
                if (lane % LANES + d < LANES) dot += more;
            }
            if (mine && lane % LANES == 0 && k + which < KEYS)
                scores[warp][i][k + which] = key >= 0 ? dot * h.scale : -INFINITY;
        }
    }
    __syncwarp();
    float top[GROUP], sum[GROUP], o[GROUP][8] = {};
#pragma unroll
    for (int i = 0; i < GROUP; i++) {
        if (i >= group) break;
        float *s = scores[warp][i], now = -INFINITY, all = 0;
        for (int k = lane; k < n; k += WARP) now = fmaxf(now, s[k]);
        top[i] = warp_max(now);
        for (int k = lane; k < n; k += WARP) {
            s[k] = top[i] == -INFINITY ? 0.0f : expf(s[k] - top[i]);
            all += s[k];
        }
        sum[i] = warp_sum(all);
    }
    __syncwarp();
#pragma unroll 2
    for (int k = 0; k < n; k += ABREAST) {
        int key = k + which < n ? list[k + which] : -1;
        float x[8];
        load<8>(x, keys + to_values + max(key, 0) * step);
#pragma unroll
        for (int i = 0; i < GROUP; i++) {
            if (i >= group) break;
            float p = mine && key >= 0 ? scores[warp][i][k + which] : 0.0f;
#pragma unroll
            for (int e = 0; e < 8; e++) o[i][e] += p * x[e];
        }
    }
#pragma unroll
    for (int i = 0; i < GROUP; i++) {
        if (i >= group) break;
        float *to = a.parts + part_at(a, token - first, g * group + i, part);
#pragma unroll
        for (int e = 0; e < 8; e++) {
            float all = o[i][e];
            for (int w = 1; w < ABREAST; w++) all += __shfl_sync(~0u, o[i][e], (lane + w * LANES) % WARP);
            if (lane < LANES) to[2 + piece + e] = all;
        }
        if (lane == 0) to[0] = top[i], to[1] = sum[i];
    }
}

/* A block a token and head, a thread a column. */
template <typename T> __global__ void few_join_kernel(CudaSelected a, int64_t first) {
    int64_t token = blockIdx.x / a.h.heads;
    int head = blockIdx.x % a.h.heads, d = threadIdx.x;
    float top = -INFINITY, sum = 0, o = 0;
    for (int p = 0; p < a.n_parts; p++) top = fmaxf(top, a.parts[part_at(a, token, head, p)]);
    for (int p = 0; p < a.n_parts && top > -INFINITY; p++) {
        const float *part = a.parts + part_at(a, token, head, p);
        float by = expf(part[0] - top);
        sum += by * part[1];
        o += by * part[2 + d];
    }
    int64_t at = (first + token) * a.h.heads + head;
    ((T *)a.o)[at * a.h.head_dim + d] = from_float<T>(sum > 0 ? o / sum : 0.0f);
    if (a.lse && d == 0) a.lse[at] = sum > 0 ? top + logf(sum) : 0.0f;
}

extern "C" void cuda_launch_attend_few(cudaStream_t s, const CudaSelected *a, int64_t first) {
    auto go = [&](auto t) {
        with_dim(a->h.head_dim, [&](auto d) {
            using T = decltype(t);
            unsigned warps = (unsigned)(a->few * a->h.kv_heads * a->n_parts);
            few_parts_kernel<T, decltype(d)::value><<<blocks_for(warps, WARPS), THREADS, 0, s>>>(*a, first);
            few_join_kernel<T><<<(unsigned)(a->few * a->h.heads), a->h.head_dim, 0, s>>>(*a, first);
        });
    };
    if (a->format == FMT_BF16)
        go(Bf16());
    else
        go(F16());
}
