/* rope.cu - rotary positions: angles of a token, and how they turn the heads of q and k. Reference: cpu/rope.c.
 *
 *   qkv(N,(H+2G)*D): of the first H+G heads, (x_i, x_{i+D/2}) turns by the fp32 angle position*inv_freq[i]
 * A block a token: D/2 cosines and sines go into shared memory (reduced in fp64, as on the CPU), then a thread
 * turns V pairs at a time, 16 bytes of each half where D/2 allows. 2 numbers moved; v is copied, or stays where
 * it stands when y is x. */
#include "backend/cuda/chain.cuh"
#include "backend/cuda/kernels.h"
#include "backend/cuda/vectors.cuh"

enum { WIDE = 8, MOST_THREADS = 256, MOST_HALF = CUDA_MOST_ROPE_DIM / 2 };

/* cos and sin of x to fp32's last place, |x| < 2^31: quarters of a turn are taken off in fp64. */
DEVICE float2 turn_of(float x_single) {
    const double nearest = 0x1.8p52; /* adding and taking away rounds to a whole number */
    double x = (double)x_single;
    double quarter = (x * 0.63661977236758134308 + nearest) - nearest;
    double r = x - quarter * 1.5707963267948966 - quarter * 6.123233995736766e-17; /* |r| <= pi/4 */
    double z = r * r;
    double s =
        r *
        (1 + z * (-1.0 / 6 + z * (1.0 / 120 + z * (-1.0 / 5040 + z * (1.0 / 362880 + z * (-1.0 / 39916800))))));
    double c =
        1 +
        z * (-1.0 / 2 +
             z * (1.0 / 24 + z * (-1.0 / 720 + z * (1.0 / 40320 + z * (-1.0 / 3628800 + z * (1.0 / 479001600))))));
    int k = (int)quarter;
    double cos_x = k & 1 ? s : c, sin_x = k & 1 ? c : s;
    return make_float2((float)((k + 1) & 2 ? -cos_x : cos_x), (float)(k & 2 ? -sin_x : sin_x));
}

template <typename T, int V> __global__ void __launch_bounds__(MOST_THREADS)
    rope_kernel(T *y, const T *x, CudaRope r) {
    chain_wait();
    __shared__ __align__(16) float cosine[MOST_HALF], sine[MOST_HALF];
    int half = r.dim / 2, pieces = half / V, turned = r.heads + r.kv_heads, width = (turned + r.kv_heads) * r.dim;
    int64_t first = (int64_t)blockIdx.x * width;
    float position = (float)r.positions[blockIdx.x];
    for (int i = threadIdx.x; i < half; i += blockDim.x) {
        float2 t = turn_of(position * r.inv_freq[i]);
        cosine[i] = t.x * r.scale;
        sine[i] = r.inverse ? -(t.y * r.scale) : t.y * r.scale;
    }
    __syncthreads();
    for (int task = threadIdx.x; task < turned * pieces; task += blockDim.x) {
        int head = task / pieces, i = task % pieces * V;
        int64_t at = first + head * r.dim + i;
        float a[V], b[V], c[V], s[V];
        load<V>(a, x + at);
        load<V>(b, x + at + half);
        load<V>(c, cosine + i);
        load<V>(s, sine + i);
#pragma unroll
        for (int k = 0; k < V; k++) {
            float turned_a = a[k] * c[k] - b[k] * s[k];
            b[k] = b[k] * c[k] + a[k] * s[k];
            a[k] = turned_a;
        }
        store<V>(y + at, a);
        store<V>(y + at + half, b);
    }
    if (y == x) return; /* what does not turn stands where it should already */
    for (int i = (turned * r.dim) + threadIdx.x * V; i < width; i += blockDim.x * V) {
        float a[V];
        load<V>(a, x + first + i);
        store<V>(y + first + i, a);
    }
    for (int h = threadIdx.x; r.dim % 2 && h < turned; h += blockDim.x) {
        int64_t last = first + (int64_t)(h + 1) * r.dim - 1;
        y[last] = x[last];
    }
}

extern "C" void cuda_launch_rope(cudaStream_t s, CudaNumbers y, const void *x, const CudaRope *r) {
    with_real(y.format, [&](auto t) {
        using T = decltype(t);
        bool wide = r->dim % (2 * WIDE) == 0 && is_packed(y.data) && is_packed(x);
        int tasks = (r->heads + r->kv_heads) * (r->dim / 2) / (wide ? WIDE : 1);
        int threads = (tasks + WARP - 1) / WARP * WARP;
        threads = threads < 2 * WARP ? 2 * WARP : threads > MOST_THREADS ? MOST_THREADS : threads;
        auto kernel = wide ? rope_kernel<T, WIDE> : rope_kernel<T, 1>;
        cuda_launch_chained(s, kernel, (unsigned)r->tokens, threads, 0, (T *)y.data, (const T *)x, *r);
    });
}
