/* device.h - CUDA C++ for g++: what nvcc knows without an include, for kernels that block.h plays. Read before every
 * translated .cu file (translate.awk). Arithmetic is the processor's: where the card's instructions round otherwise
 * (fused products, exp, 1/sqrt) it is the exact one. The card is of compute capability 8.0 (runtime.cpp).
 *
 * A kernel file runs here as it is. What it may need besides: an intrinsic that is not below (add it, with the
 * contract of CUDA's guide), or PTX: that stands in functions of backend/cuda/ptx.cuh, each with a body of the same
 * contract in our backend/cuda/ptx.cuh. Kernels of 9.0's matrix units and clusters are not compiled for 8.0. */
#ifndef TESTS_CUDA_ON_HOST_DEVICE_H
#define TESTS_CUDA_ON_HOST_DEVICE_H

#include <math.h>
#include <string.h>

#include <tuple>
#include <type_traits>
#include <utility>

#include "tests/cuda_on_host/block.h"

#define __CUDA_ARCH__ 800
#define __device__
#define __host__
#define __global__ static /* two files may have kernels of one name */
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __grid_constant__
#define HOST_SHARED(TYPE, ALIGN, NAME, ...)                \
    typedef TYPE NAME##_type __VA_ARGS__;                  \
    static char NAME##_site;                               \
    NAME##_type &NAME = *(NAME##_type *)host_shared_variable(&NAME##_site, sizeof(NAME##_type), ALIGN)

#define threadIdx (host_thread->index)
static const uint3 &blockIdx = host_block.index;
static const dim3 &blockDim = host_block.dim, &gridDim = host_block.grid;

/* ---- launches: kernel % HostLaunch(grid, block, shared, stream)(args) ---- */

/* The error of a launch that cannot be; otherwise the stream has the grid. */
cudaError_t host_launch(const HostGrid &g, const void *kernel, cudaStream_t s, std::function<void()> &&run);

template <typename... A> struct HostCall {
    HostGrid grid;
    cudaStream_t stream;
    std::tuple<A...> args;
};
struct HostLaunch {
    HostGrid grid;
    cudaStream_t stream;
    HostLaunch(dim3 blocks, dim3 threads, size_t shared = 0, cudaStream_t s = nullptr,
               const char *file = __builtin_FILE(), int line = __builtin_LINE())
        : grid{blocks, threads, shared, {file, line}}, stream(s) {}
    template <typename... A> HostCall<A...> operator()(A... args) const { return {grid, stream, {args...}}; }
};
template <typename... P, typename... A> cudaError_t operator%(void (*kernel)(P...), HostCall<A...> call) {
    std::tuple<std::decay_t<P>...> args(call.args);
    return host_launch(call.grid, (const void *)kernel, call.stream, [=] { std::apply(kernel, args); });
}

enum cudaLaunchAttributeID {
    cudaLaunchAttributeClusterDimension,
    cudaLaunchAttributeProgrammaticStreamSerialization
};
struct cudaLaunchAttribute {
    cudaLaunchAttributeID id;
    struct {
        struct {
            unsigned x, y, z;
        } clusterDim;
        int programmaticStreamSerializationAllowed;
    } val;
};
struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute *attrs;
    unsigned numAttrs;
};
extern HostPlace host_launched_at; /* of the launches by cudaLaunchKernelEx that follow */
static inline void host_launched_here(HOST_AT) { host_launched_at = HOST_HERE; }
template <typename... P, typename... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *c, void (*kernel)(P...), A &&...args) {
    HostPlace at = host_launched_at;
    HostLaunch launch(c->gridDim, c->blockDim, c->dynamicSmemBytes, c->stream, at.file, at.line);
    return kernel % launch(std::decay_t<P>(args)...);
}
cudaError_t host_allow_shared(const void *kernel, int bytes); /* more than 48 KiB of it */
template <typename K> cudaError_t cudaFuncSetAttribute(K *kernel, cudaFuncAttribute a, int value) {
    return a == cudaFuncAttributeMaxDynamicSharedMemorySize ? host_allow_shared((const void *)kernel, value)
                                                            : cudaSuccess;
}
template <typename K> cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *a, K *kernel) {
    a->ptxVersion = __CUDA_ARCH__ / 10;
    return cudaSuccess;
}
template <typename K> cudaError_t cudaOccupancyMaxPotentialClusterSize(int *blocks, K *, const cudaLaunchConfig_t *) {
    *blocks = 1;
    return cudaSuccess;
}

/* ---- barriers ---- */

static inline void __syncthreads(HOST_AT) { host_sync_block(false, HOST_HERE); }
static inline int __syncthreads_or(int yes, HOST_AT) { return host_sync_block(yes, HOST_HERE); }
static inline void __syncwarp(unsigned mask = ~0u, HOST_AT) {
    host_converge(mask, true, nullptr, [](void *const *) {}, HOST_HERE);
}
static inline void __threadfence() {}

/* ---- lanes read each other ---- */

struct HostShuffle {
    unsigned long long mine, theirs;
    int from;
};
static inline void host_shuffle(void *const *of_lane) {
    for (int i = 0; i < HOST_WARP; i++) {
        HostShuffle *s = (HostShuffle *)of_lane[i];
        if (!s) continue;
        const HostShuffle *other = (const HostShuffle *)of_lane[s->from];
        s->theirs = other ? other->mine : ~0ull; /* poison */
    }
}
template <typename T> T host_shuffled(unsigned mask, T x, int from, HostPlace at) {
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable<T>::value, "a word or two");
    HostShuffle s = {0, 0, from};
    memcpy(&s.mine, &x, sizeof x);
    host_converge(mask, true, &s, host_shuffle, at);
    memcpy(&x, &s.theirs, sizeof x);
    return x;
}
template <typename T> T __shfl_sync(unsigned mask, T x, int from, HOST_AT) {
    return host_shuffled(mask, x, from & 31, HOST_HERE);
}
template <typename T> T __shfl_xor_sync(unsigned mask, T x, int bits, HOST_AT) {
    return host_shuffled(mask, x, (host_thread->lane ^ bits) & 31, HOST_HERE);
}
template <typename T> T __shfl_up_sync(unsigned mask, T x, int by, HOST_AT) {
    int lane = host_thread->lane;
    return host_shuffled(mask, x, lane < by ? lane : lane - by, HOST_HERE);
}
template <typename T> T __shfl_down_sync(unsigned mask, T x, int by, HOST_AT) {
    int lane = host_thread->lane;
    return host_shuffled(mask, x, lane + by > 31 ? lane : lane + by, HOST_HERE);
}
struct HostBallot {
    bool mine;
    unsigned all;
};
static inline unsigned __ballot_sync(unsigned mask, int yes, HOST_AT) {
    HostBallot b = {yes != 0, 0};
    host_converge(mask, true, &b, [](void *const *of_lane) {
        unsigned all = 0;
        for (int i = 0; i < HOST_WARP; i++)
            if (of_lane[i] && ((HostBallot *)of_lane[i])->mine) all |= 1u << i;
        for (int i = 0; i < HOST_WARP; i++)
            if (of_lane[i]) ((HostBallot *)of_lane[i])->all = all;
    }, HOST_HERE);
    return b.all;
}
static inline int __any_sync(unsigned mask, int yes, HOST_AT) { return __ballot_sync(mask, yes, file, line) != 0; }
static inline int __all_sync(unsigned mask, int yes, HOST_AT) { return __ballot_sync(mask, !yes, file, line) == 0; }

/* ---- memory ---- */

static inline size_t __cvta_generic_to_shared(const void *p) { return host_shared_address(p); }
template <typename T> T __ldcs(const T *p) { return *p; }
template <typename T> T __ldcg(const T *p) { return *p; }
template <typename T> T __ldg(const T *p) { return *p; }
template <typename T> void __stcs(T *p, T x) { *p = x; }
template <typename T> void __stcg(T *p, T x) { *p = x; }
template <typename T, typename U> T atomicAdd(T *p, U x) {
    T was = *p;
    *p = was + (T)x;
    return was;
}
template <typename T, typename U> T atomicOr(T *p, U x) {
    T was = *p;
    *p = was | (T)x;
    return was;
}
template <typename T, typename U> T atomicMax(T *p, U x) {
    T was = *p;
    if (was < (T)x) *p = (T)x;
    return was;
}

/* ---- numbers ---- */

template <typename A, typename B> static inline std::common_type_t<A, B> min(A a, B b) {
    using T = std::common_type_t<A, B>;
    return (T)b < (T)a ? (T)b : (T)a;
}
template <typename A, typename B> static inline std::common_type_t<A, B> max(A a, B b) {
    using T = std::common_type_t<A, B>;
    return (T)a < (T)b ? (T)b : (T)a;
}
static inline float __uint_as_float(unsigned u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}
static inline unsigned __float_as_uint(float x) {
    unsigned u;
    memcpy(&u, &x, sizeof u);
    return u;
}
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline float __fdividef(float a, float b) { return a / b; }
#define __logf(x) logf(x) /* the C library has functions of these names */
#define __log2f(x) log2f(x)
static inline float rsqrtf(float x) { return 1 / sqrtf(x); }
static inline float cospif(float x) { return cosf(x * (float)M_PI); }
static inline int __float2int_rn(float x) { return (int)rintf(x); }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned which) {
    unsigned long long both = (unsigned long long)y << 32 | x;
    unsigned out = 0;
    for (int i = 0; i < 4; i++) {
        unsigned sel = which >> 4 * i & 15, byte = (unsigned)(both >> 8 * (sel & 7)) & 255;
        if (sel & 8) byte = byte & 128 ? 255 : 0; /* its sign, eight times */
        out |= byte << 8 * i;
    }
    return out;
}
using std::isfinite;
using std::isinf;
using std::isnan;

#endif
