/* vectors.cuh - several numbers of a row at a time: loads and stores of up to 16 bytes as fp32 arrays, gradients
 * that add up, and what every .cu of vector work shares. Reference: backend/cpu/numbers.c.
 *
 * Arrays have compile-time lengths and are walked by unrolled loops, so that they stay in registers. */
#ifndef BACKEND_CUDA_VECTORS_CUH
#define BACKEND_CUDA_VECTORS_CUH

#include <type_traits>

#include "backend/cuda/numbers.cuh"

#define DEVICE __device__ __forceinline__
/* Below 9.0 ptxas spills a few registers of kernels that it finds room for there: what they get in addition. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define BELOW_90 1
#else
#define BELOW_90 0
#endif
enum { WARP = 32 };

/* ---- two numbers in a word ---- */

DEVICE float2 unpack(uint32_t w, Bf16) {
    return make_float2(__uint_as_float(w << 16), __uint_as_float(w & 0xffff0000u));
}
DEVICE float2 unpack(uint32_t w, F16) {
    return make_float2(__half2float(__ushort_as_half((unsigned short)w)),
                       __half2float(__ushort_as_half((unsigned short)(w >> 16))));
}

template <typename T> DEVICE uint32_t pack(float low, float high); /* to nearest; one instruction from sm_80 on */
template <> DEVICE uint32_t pack<Bf16>(float low, float high) {
    __nv_bfloat162 h = __floats2bfloat162_rn(low, high);
    return (uint32_t)__bfloat16_as_ushort(h.x) | (uint32_t)__bfloat16_as_ushort(h.y) << 16;
}
template <> DEVICE uint32_t pack<F16>(float low, float high) {
    __half2 h = __floats2half2_rn(low, high);
    return (uint32_t)__half_as_ushort(h.x) | (uint32_t)__half_as_ushort(h.y) << 16;
}

/* ---- N numbers in a row: 1, or 2, 4, 8 whose bytes (at most 16 of them) are aligned to themselves ---- */

template <int N> DEVICE void load(float (&x)[N], const float *p) {
    if constexpr (N == 1) {
        x[0] = *p;
    } else if constexpr (N == 2) {
        float2 v = *(const float2 *)p;
        x[0] = v.x, x[1] = v.y;
    } else {
#pragma unroll
        for (int i = 0; i < N; i += 4) {
            float4 v = *(const float4 *)(p + i);
            x[i] = v.x, x[i + 1] = v.y, x[i + 2] = v.z, x[i + 3] = v.w;
        }
    }
}

template <int N, typename T> DEVICE void load(float (&x)[N], const T *p) {
    if constexpr (N == 1) {
        x[0] = to_float(*p);
    } else {
        uint32_t w[N / 2];
        if constexpr (N == 8) {
            uint4 v = *(const uint4 *)p;
            w[0] = v.x, w[1] = v.y, w[2] = v.z, w[3] = v.w;
        } else if constexpr (N == 4) {
            uint2 v = *(const uint2 *)p;
            w[0] = v.x, w[1] = v.y;
        } else {
            w[0] = *(const uint32_t *)p;
        }
#pragma unroll
        for (int i = 0; i < N / 2; i++) {
            float2 v = unpack(w[i], T());
            x[2 * i] = v.x, x[2 * i + 1] = v.y;
        }
    }
}

template <int N> DEVICE void store(float *p, const float (&x)[N]) {
    if constexpr (N == 1) {
        *p = x[0];
    } else if constexpr (N == 2) {
        *(float2 *)p = make_float2(x[0], x[1]);
    } else {
#pragma unroll
        for (int i = 0; i < N; i += 4) *(float4 *)(p + i) = make_float4(x[i], x[i + 1], x[i + 2], x[i + 3]);
    }
}

template <int N, typename T> DEVICE void store(T *p, const float (&x)[N]) { /* to nearest, ties to even */
    if constexpr (N == 1) {
        *p = from_float<T>(x[0]);
    } else {
        uint32_t w[N / 2];
#pragma unroll
        for (int i = 0; i < N / 2; i++) w[i] = pack<T>(x[2 * i], x[2 * i + 1]);
        if constexpr (N == 8)
            *(uint4 *)p = make_uint4(w[0], w[1], w[2], w[3]);
        else if constexpr (N == 4)
            *(uint2 *)p = make_uint2(w[0], w[1]);
        else
            *(uint32_t *)p = w[0];
    }
}

/* x at base[0..N) in bf16, up or down at random by the word of each. */
template <int N> DEVICE void store_rounded(Bf16 *p, const float (&x)[N], const uint32_t (&word)[N]) {
    if constexpr (N == 8) {
        uint32_t h[8];
#pragma unroll
        for (int k = 0; k < 8; k++) h[k] = __bfloat16_as_ushort(round_random(x[k], word[k]));
        *(uint4 *)p = make_uint4(h[0] | h[1] << 16, h[2] | h[3] << 16, h[4] | h[5] << 16, h[6] | h[7] << 16);
    } else {
#pragma unroll
        for (int k = 0; k < N; k++) p[k] = round_random(x[k], word[k]);
    }
}

/* A gradient: base[i..i+N) = beta*base + x, stored as cpu_accumulate does: bf16 at random by key and index,
 * others to nearest. beta 0 never reads what is there. */
template <int N, typename T> DEVICE void accumulate(T *base, int64_t i, float (&x)[N], float beta, uint64_t key) {
    if (beta != 0.0f) {
        float was[N];
        load<N>(was, base + i);
#pragma unroll
        for (int k = 0; k < N; k++) x[k] = beta * was[k] + x[k];
    }
    if constexpr (std::is_same<T, Bf16>::value) {
        uint32_t word[N];
#pragma unroll
        for (int k = 0; k < N; k++) word[k] = rng_u32(key, (uint64_t)(i + k));
        store_rounded<N>(base + i, x, word);
    } else {
        store<N>(base + i, x);
    }
}

/* ---- sums over a block of whole warps whose size is known at run time only ---- */

/* part: one number a warp in shared memory, free again after the next barrier. Every thread gets the sum. */
template <typename T> DEVICE T sum_of_block(T x, T *part) {
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, warps = blockDim.x / WARP;
#pragma unroll
    for (int d = WARP / 2; d; d /= 2) x += __shfl_xor_sync(~0u, x, d);
    if (lane == 0) part[warp] = x;
    __syncthreads();
    x = lane < warps ? part[lane] : T(0);
#pragma unroll
    for (int d = WARP / 2; d; d /= 2) x += __shfl_xor_sync(~0u, x, d);
    return x;
}

/* The same where part is used again. */
DEVICE double total_of_block(double x, double *part) {
    x = sum_of_block(x, part);
    __syncthreads();
    return x;
}

DEVICE float max_of_block(float x, float *part) {
    x = warp_max(x);
    if (threadIdx.x % WARP == 0) part[threadIdx.x / WARP] = x;
    __syncthreads();
    int lane = threadIdx.x % WARP;
    x = warp_max(lane < (int)blockDim.x / WARP ? part[lane] : -INFINITY);
    __syncthreads();
    return x;
}

/* ---- on the host ---- */

/* Calls fn with a number of the format's type; other formats launch nothing (kernels.c has refused them before). */
template <typename Fn> static inline void with_real(Format f, Fn fn) {
    if (f == FMT_F32)
        fn(float());
    else if (f == FMT_BF16)
        fn(Bf16());
    else if (f == FMT_F16)
        fn(F16());
}

static inline unsigned blocks_for(int64_t n, int64_t each) {
    return (unsigned)((n + each - 1) / each);
}

#endif
