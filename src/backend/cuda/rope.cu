/* rope.cu - rotary position embeddings (RoPE): angles of a token, how they rotate the heads of q and k, and how keys
 * and values are written into a KV cache. Reference: cpu/rope.c, cpu/cache.c.
 *
 *   qkv(N,(H+2G)*D): of the first H+G heads, (x_i, x_{i+D/2}) rotates by the fp32 angle position*inv_freq[i]
 * A block a token: D/2 cosines and sines go into shared memory (reduced in fp64, as on the CPU), while a thread's first
 * V pairs, 16 bytes of each half where D/2 allows, are being loaded. 2 numbers moved; v is copied, or stays where it
 * stands when y is x.
 *   rope_put: the same for q; k goes rotated, v as it is, into slot position of its row of the cache (none for a
 *   negative position). Numbers are rounded to the activations' format first, so the bits are those of rope and a
 *   copy.
 * Where positions are inputs, the angles are computed before the wait of programmatic dependent launch (chain.cuh).
 *   int8: a warp a head; the codes and the scale are those of ir/format.c. */
#include "backend/cuda/chain.cuh"
#include "backend/cuda/cache_kernels.h"
#include "backend/cuda/packs.cuh"
#include "backend/cuda/rope.cuh"

enum { MOST_THREADS = 512, MOST_HALF = CUDA_MOST_ROPE_DIM / 2 };

/* Cosines and sines of a token; the caller waits for all threads. */
DEVICE void put_angles(float *cosine, float *sine, const CudaRope &r, int position) {
    for (int i = threadIdx.x; i < r.dim / 2; i += blockDim.x) {
        float2 t = angle_of(r, position, r.inv_freq[i]);
        cosine[i] = t.x, sine[i] = t.y;
    }
}

template <int V> DEVICE void rotate_all(float (&a)[V], float (&b)[V], const float *cosine, const float *sine) {
    float c[V], s[V];
    load<V>(c, cosine);
    load<V>(s, sine);
#pragma unroll
    for (int k = 0; k < V; k++) rotate_pair(a[k], b[k], c[k], s[k]);
}

template <typename T, int V> DEVICE void rotate(float (&a)[V], float (&b)[V], const T *x, int half, const float *cosine,
                                              const float *sine) {
    load<V>(a, x);
    load<V>(b, x + half);
    rotate_all<V>(a, b, cosine, sine);
}

template <typename T, int V> __global__ void __launch_bounds__(MOST_THREADS)
    rope_kernel(T *y, const T *x, CudaRope r) {
    __shared__ __align__(16) float cosine[MOST_HALF], sine[MOST_HALF];
    int half = r.dim / 2, pieces = half / V, rotated = r.heads + r.kv_heads, width = (rotated + r.kv_heads) * r.dim;
    int64_t first = (int64_t)blockIdx.x * width;
    int task = threadIdx.x, tasks = rotated * pieces;
    chain_wait();
    if constexpr (V == WIDE) {
        int i = task % pieces * V;
        int64_t at = first + task / pieces * r.dim + i;
        Pack<T> low, high;
        float a[V], b[V];
        if (task < tasks) low = fetch(x + at), high = fetch(x + at + half);
        put_angles(cosine, sine, r, r.positions[blockIdx.x]);
        __syncthreads();
        if (task < tasks) {
            spread(a, low), spread(b, high);
            rotate_all<V>(a, b, cosine + i, sine + i);
            store<V>(y + at, a);
            store<V>(y + at + half, b);
        }
        task += blockDim.x;
    } else {
        put_angles(cosine, sine, r, r.positions[blockIdx.x]);
        __syncthreads();
    }
    for (; task < tasks; task += blockDim.x) {
        int i = task % pieces * V;
        int64_t at = first + task / pieces * r.dim + i;
        float a[V], b[V];
        rotate<T, V>(a, b, x + at, half, cosine + i, sine + i);
        store<V>(y + at, a);
        store<V>(y + at + half, b);
    }
    if (y == x) return; /* in place: what is not rotated is there already */
    for (int i = (rotated * r.dim) + threadIdx.x * V; i < width; i += blockDim.x * V) {
        float a[V];
        load<V>(a, x + first + i);
        store<V>(y + first + i, a);
    }
    for (int h = threadIdx.x; r.dim % 2 && h < rotated; h += blockDim.x) {
        int64_t last = first + (int64_t)(h + 1) * r.dim - 1;
        y[last] = x[last];
    }
}

/* ---- into a cache ---- */

template <typename T, int V> DEVICE void round_to(float (&x)[V]) {
#pragma unroll
    for (int k = 0; k < V; k++) x[k] = to_float(from_float<T>(x[k]));
}

/* The thread's number where thread `first` is 0: loops that follow each other begin with other threads, so that nobody
 * waits for memory twice. */
DEVICE int thread_from(int first) { return (int)((threadIdx.x + blockDim.x - first % blockDim.x) % blockDim.x); }

template <typename T, typename C, int V>
DEVICE void put_heads(C *to, const T *k, const CudaRope &r, const float *cosine, const float *sine) {
    int half = r.dim / 2, pieces = half / V, width = r.kv_heads * r.dim;
    for (int task = threadIdx.x; task < r.kv_heads * pieces; task += blockDim.x) {
        int i = task % pieces * V, at = task / pieces * r.dim + i;
        float a[V], b[V];
        rotate<T, V>(a, b, k + at, half, cosine + i, sine + i);
        round_to<T, V>(a), round_to<T, V>(b);
        store<V>(to + at, a);
        store<V>(to + at + half, b);
    }
    for (int i = width + thread_from(r.kv_heads * pieces) * V; i < 2 * width; i += blockDim.x * V) {
        float a[V];
        load<V>(a, k + i);
        store<V>(to + i, a);
    }
    for (int h = threadIdx.x; r.dim % 2 && h < r.kv_heads; h += blockDim.x)
        to[(h + 1) * r.dim - 1] = from_float<C>(to_float(k[(h + 1) * r.dim - 1]));
}

/* A warp a head; a lane has every 32nd pair of its halves, and lane 0 what is left of an odd head. */
template <typename T>
DEVICE void put_codes(char *to, const T *k, const CudaRope &r, CudaHeadRow row, const float *cosine,
                      const float *sine) {
    constexpr int EACH = MOST_HALF / WARP;
    int half = r.dim / 2, lane = threadIdx.x % WARP;
    for (int head = threadIdx.x / WARP; head < 2 * r.kv_heads; head += blockDim.x / WARP) {
        const T *from = k + head * r.dim;
        int8_t *codes = (int8_t *)(to + head * row.bytes);
        float a[EACH], b[EACH], odd = r.dim % 2 ? to_float(from[r.dim - 1]) : 0.0f, top = fabsf(odd);
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            int i = lane + j * WARP;
            a[j] = i < half ? to_float(from[i]) : 0.0f, b[j] = i < half ? to_float(from[i + half]) : 0.0f;
            if (head < r.kv_heads && i < half) rotate_pair(a[j], b[j], cosine[i], sine[i]);
        }
        round_to<T, EACH>(a), round_to<T, EACH>(b);
#pragma unroll
        for (int j = 0; j < EACH; j++) top = fmaxf(top, fmaxf(fabsf(a[j]), fabsf(b[j])));
        top = warp_max(top);
        float inverse = __fdiv_rn(127.0f, top);
        if (!isfinite(inverse)) inverse = 0;
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            int i = lane + j * WARP;
            if (i >= half) continue;
            codes[i] = (int8_t)__float2int_rn(__fmul_rn(a[j], inverse));
            codes[i + half] = (int8_t)__float2int_rn(__fmul_rn(b[j], inverse));
        }
        if (lane) continue;
        if (r.dim % 2) codes[r.dim - 1] = (int8_t)__float2int_rn(__fmul_rn(odd, inverse));
        *(float *)((char *)codes + row.scale_at) = __fdiv_rn(top, 127.0f);
    }
}

template <typename T, typename C, int V> __global__ void __launch_bounds__(MOST_THREADS)
    rope_put_kernel(T *y, const T *x, CudaRope r, CudaPut p) {
    __shared__ __align__(16) float cosine[MOST_HALF], sine[MOST_HALF];
    int half = r.dim / 2, pieces = half / V, q_width = r.heads * r.dim, width = q_width + 2 * r.kv_heads * r.dim;
    chain_open();
    if (!r.early) chain_wait();
    int64_t token = blockIdx.x, first = token * width;
    int position = r.positions[token];
    int64_t slot = (p.rows ? p.rows[token / p.seq] : token / p.seq) * p.slots + position;
    put_angles(cosine, sine, r, position);
    __syncthreads();
    chain_wait();
    if (position >= 0 && position < p.slots) {
        if constexpr (std::is_same<C, int8_t>::value)
            put_codes<T>((char *)p.cache.data + slot * 2 * r.kv_heads * p.row.bytes, x + first + q_width, r, p.row,
                         cosine, sine);
        else
            put_heads<T, C, V>((C *)p.cache.data + slot * (width - q_width), x + first + q_width, r, cosine, sine);
    }
    for (int task = thread_from(3 * r.kv_heads * pieces); task < r.heads * pieces; task += blockDim.x) {
        int i = task % pieces * V;
        int64_t at = first + task / pieces * r.dim + i;
        float a[V], b[V];
        rotate<T, V>(a, b, x + at, half, cosine + i, sine + i);
        store<V>(y + at, a);
        store<V>(y + at + half, b);
    }
    if (y == x) return; /* in place: what is not rotated is there already */
    for (int i = q_width + threadIdx.x; i < width; i += blockDim.x) y[first + i] = x[first + i];
    for (int h = threadIdx.x; r.dim % 2 && h < r.heads; h += blockDim.x) {
        int64_t last = first + (int64_t)(h + 1) * r.dim - 1;
        y[last] = x[last];
    }
}

/* Threads for a token's pieces of V pairs, and those of its values: whole warps. */
static int threads_for(const CudaRope *r, int V) {
    int tasks = (r->heads + 3 * r->kv_heads) * (r->dim / 2) / V, threads = (tasks + WARP - 1) / WARP * WARP;
    return threads < 2 * WARP ? 2 * WARP : threads > MOST_THREADS ? MOST_THREADS : threads;
}

template <typename T, typename C>
static void launch_put(cudaStream_t s, void *y, const void *x, const CudaRope *r, const CudaPut *p) {
    bool wide = r->dim % (2 * WIDE) == 0 && is_packed(y) && is_packed(x) && is_packed(p->cache.data);
    auto kernel = wide ? rope_put_kernel<T, C, WIDE> : rope_put_kernel<T, C, 1>;
    int threads = std::is_same<C, int8_t>::value ? (int)MOST_THREADS : threads_for(r, wide ? WIDE : 1);
    cuda_launch_chained(s, kernel, (unsigned)r->tokens, threads, 0, (T *)y, (const T *)x, *r, *p);
}

extern "C" void cuda_launch_rope_put(cudaStream_t s, CudaNumbers y, const void *x, const CudaRope *r,
                                     const CudaPut *p) {
    with_real(y.format, [&](auto t) {
        using T = decltype(t);
        if (p->cache.format == FMT_INT8) launch_put<T, int8_t>(s, y.data, x, r, p);
        else with_real(p->cache.format, [&](auto c) { launch_put<T, decltype(c)>(s, y.data, x, r, p); });
    });
}

extern "C" void cuda_launch_rope(cudaStream_t s, CudaNumbers y, const void *x, const CudaRope *r) {
    with_real(y.format, [&](auto t) {
        using T = decltype(t);
        bool wide = r->dim % (2 * WIDE) == 0 && is_packed(y.data) && is_packed(x);
        auto kernel = wide ? rope_kernel<T, WIDE> : rope_kernel<T, 1>;
        cuda_launch_chained(s, kernel, (unsigned)r->tokens, threads_for(r, wide ? WIDE : 1), 0, (T *)y.data,
                            (const T *)x, *r);
    });
}
