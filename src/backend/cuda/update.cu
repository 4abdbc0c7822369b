/* update.cu - from gradients to new weights: sums of squares, the verdict, AdamW and SGD. Reference: cpu/update.c.
 *
 *   sum_squares  fp64 sums of fixed tiles of CUDA_SQUARES_TILE numbers (a block each), then their sum by one block a
 *                tensor
 *   clip         one block: norm, scale and whether anything may be written
 *   adamw, sgd   a thread owns 8 neighbouring numbers, a warp 256 of them: one block of 8-bit moments. fp32
 *                throughout; two 64-bit words are drawn a lane, of which weight and moments take their bits by rotation
 *                (P6, rng_u16). Moved once each way: weight, moments, master; once: gradient.
 *   sgd_carry    sgd's kernel, told by CudaUpdates.carry: v, read and written, is the correction (carry.cuh), and a
 *                tile's sums over it are left for carry_join (carry.cu)
 * Tensors whose steps follow each other share launches: as many as fit a kernel's arguments, each with the number of
 * its first tile. Updates fill the card with blocks that walk over tiles; the sets of formats that matter are known
 * when compiled, others are asked at run time. The verdict, learning rate and clock are dials: a step that is not
 * finite writes nothing (P7). */
#include "backend/cuda/carry.cuh"
#include "backend/cuda/kernels.h"
#include "backend/cuda/moments.cuh"
#include "backend/cuda/ptx.cuh"

enum { THREADS = 256, LANE = MOMENT_LANE, JOIN_THREADS = 1024 };
static_assert(CUDA_UPDATE_TILE % (THREADS * LANE) == 0, "a tile is whole rounds of a block");
static_assert(sizeof(CudaUpdates) <= 4096 && sizeof(CudaSquares) <= 4096, "what a kernel takes as arguments");

/* ---- norm and verdict ---- */

template <typename T, int V> DEVICE double squares_of(const T *g, int64_t begin, int64_t end) {
    double sum = 0;
#pragma unroll 4
    for (int64_t i = begin + threadIdx.x * V; i < end; i += THREADS * V) {
        float x[V];
        load<V>(x, g + i);
#pragma unroll
        for (int k = 0; k < V; k++) sum += (double)x[k] * (double)x[k];
    }
    return sum;
}

template <typename T> __global__ void __launch_bounds__(THREADS) squares_kernel(const __grid_constant__ CudaSquares u) {
    __shared__ double part[THREADS / WARP];
    int k = 0; /* the last tensor that begins at this tile or before */
    for (int step = CUDA_SQUARES_MOST / 2; step; step /= 2)
        if (k + step < u.n && u.t[k + step].first_tile <= blockIdx.x) k += step;
    const T *g = (const T *)u.t[k].g;
    int64_t tile = blockIdx.x - u.t[k].first_tile, n = u.t[k].count;
    int64_t begin = tile * CUDA_SQUARES_TILE, end = begin + CUDA_SQUARES_TILE;
    double sum = end <= n && ((uintptr_t)g & 15) == 0 ? squares_of<T, LANE>(g, begin, end)
                                                      : squares_of<T, 1>(g, begin, end < n ? end : n);
    sum = sum_of_block(sum, part);
    if (threadIdx.x == 0) u.t[k].tiles[tile] = sum;
}

DEVICE double sum_of_parts(const double *parts, int64_t n, double *shared) { /* by JOIN_THREADS threads */
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += JOIN_THREADS) sum += parts[i];
    return sum_of_block(sum, shared);
}

__global__ void __launch_bounds__(JOIN_THREADS) squares_join_kernel(const __grid_constant__ CudaSquares u) {
    __shared__ double part[WARP];
    const CudaSquaresTensor &t = u.t[blockIdx.x];
    double sum = sum_of_parts(t.tiles, (t.count + CUDA_SQUARES_TILE - 1) / CUDA_SQUARES_TILE, part);
    if (threadIdx.x == 0) *t.to = sum;
}

__global__ void __launch_bounds__(JOIN_THREADS)
    clip_kernel(double *verdict, const double *parts, const double *loss, const float *max_norm, const float *unscale,
                const float *limits, int64_t n) {
    __shared__ double part[WARP];
    double by = unscale ? (double)*unscale : 1.0;
    double norm = sqrt(sum_of_parts(parts, n, part)) * by, most = (double)*max_norm;
    if (threadIdx.x) return;
    verdict[CUDA_VERDICT_SCALE] = (most > 0 ? fmin(1.0, most / (norm + 1e-6)) : 1.0) * by;
    verdict[CUDA_VERDICT_NORM] = norm;
    bool within = !limits || (*loss <= (double)limits[CUDA_LIMIT_LOSS] && norm <= (double)limits[CUDA_LIMIT_NORM]);
    verdict[CUDA_VERDICT_OK] = isfinite(norm) && isfinite(*loss) && within ? 1.0 : 0.0;
}

extern "C" void cuda_launch_sum_squares(cudaStream_t s, const CudaSquares *u) {
    with_real(u->format, [&](auto t) { squares_kernel<decltype(t)><<<u->tiles, THREADS, 0, s>>>(*u); });
    squares_join_kernel<<<u->n, JOIN_THREADS, 0, s>>>(*u);
}

extern "C" void cuda_launch_clip(cudaStream_t s, double *verdict, const double *parts, const double *loss,
                                 const float *max_norm, const float *unscale, const float *limits, int64_t n) {
    clip_kernel<<<1, JOIN_THREADS, 0, s>>>(verdict, parts, loss, max_norm, unscale, limits, n);
}

/* ---- states: a lane's numbers [i, i+8) of a tensor of n; those from n on do not exist and read as 0 ----
 *
 * K: how they are stored: a number's type, or one of these. WHOLE: all 8 exist, in all lanes of the warp, and
 * addresses allow 16 bytes at a time: loads of all states then stand in one stretch of code without a branch, so
 * that all loads are in flight before the first is waited for. */
struct Mom8 {};
struct Var8 {};
struct Any {}; /* asked at run time: one answer for a whole launch */

/* Blocks that a multiprocessor holds at least: what their registers leave room for. */
template <typename W, typename M>
constexpr int BLOCKS = std::is_same<W, Any>::value ? 2 : 3;

struct State {
    void *data;
    float *scales;
    Format format;
};

template <typename K, bool WHOLE> DEVICE void load_state(float (&x)[LANE], State s, int64_t i, int64_t n) {
    if constexpr (std::is_same<K, Any>::value) {
        switch (s.format) {
            case FMT_F32: load_state<float, WHOLE>(x, s, i, n); break;
            case FMT_BF16: load_state<Bf16, WHOLE>(x, s, i, n); break;
            case FMT_F16: load_state<F16, WHOLE>(x, s, i, n); break;
            case FMT_MOM8: load_state<Mom8, WHOLE>(x, s, i, n); break;
            default: load_state<Var8, WHOLE>(x, s, i, n); break;
        }
    } else if constexpr (std::is_same<K, Mom8>::value) {
        mom8_decode<WHOLE>(x, (const int8_t *)s.data, s.scales, i, n);
    } else if constexpr (std::is_same<K, Var8>::value) {
        var8_decode<WHOLE>(x, (const uint8_t *)s.data, s.scales, i, n);
    } else if constexpr (WHOLE) {
        load<LANE>(x, (const K *)s.data + i);
    } else {
#pragma unroll
        for (int k = 0; k < LANE; k++) x[k] = i + k < n ? to_float(((const K *)s.data)[i + k]) : 0.0f;
    }
}

/* words: the lane's two (rng_u16); rotation below 0: bf16 to nearest (a weight beside its master). */
template <bool WHOLE>
DEVICE void store_bf16(Bf16 *p, const float (&x)[LANE], const uint64_t (&words)[2], int rotation, int64_t i,
                       int64_t n) {
    uint32_t bits[LANE];
#pragma unroll
    for (int k = 0; k < LANE; k++) bits[k] = (uint32_t)(words[k / 4] >> 16 * ((k + rotation) % 4));
    if constexpr (WHOLE) {
        store_rounded<LANE>(p + i, x, bits);
    } else {
#pragma unroll
        for (int k = 0; k < LANE; k++)
            if (i + k < n) p[i + k] = round_random(x[k], bits[k]);
    }
}

template <typename K, bool WHOLE>
DEVICE void store_state(State s, const float (&x)[LANE], const uint64_t (&words)[2], int rotation, int64_t i,
                        int64_t n) {
    if constexpr (std::is_same<K, Any>::value) {
        switch (s.format) {
            case FMT_F32: store_state<float, WHOLE>(s, x, words, rotation, i, n); break;
            case FMT_BF16: store_state<Bf16, WHOLE>(s, x, words, rotation, i, n); break;
            case FMT_F16: store_state<F16, WHOLE>(s, x, words, rotation, i, n); break;
            case FMT_MOM8: store_state<Mom8, WHOLE>(s, x, words, rotation, i, n); break;
            default: store_state<Var8, WHOLE>(s, x, words, rotation, i, n); break;
        }
    } else if constexpr (std::is_same<K, Mom8>::value) {
        mom8_encode<WHOLE>((int8_t *)s.data, s.scales, x, i, n);
    } else if constexpr (std::is_same<K, Var8>::value) {
        var8_encode<WHOLE>((uint8_t *)s.data, s.scales, x, i, n);
    } else if (std::is_same<K, Bf16>::value && rotation >= 0) {
        store_bf16<WHOLE>((Bf16 *)s.data, x, words, rotation, i, n);
    } else if constexpr (WHOLE) {
        store<LANE>((K *)s.data + i, x);
    } else {
#pragma unroll
        for (int k = 0; k < LANE; k++)
            if (i + k < n) ((K *)s.data)[i + k] = from_float<K>(x[k]);
    }
}

/* ---- one step of the optimizer ---- */

struct Rates { /* of one tensor, from the dials and its attributes */
    float scale, b1, b2, eps, c2;
    float rate;  /* adamw: with the first moment's correction in it */
    float decay; /* adamw: what is left of the weight; sgd: what joins the gradient */
    Carry carry; /* sgd with a correction */
};

/* The quick root and inverse are two units in the last place off: little beside the weight that the step is added to. A
 * root of fp32 is never so small that its inverse would be taken of 0. */
DEVICE void adamw_numbers(float (&w)[LANE], float (&m)[LANE], float (&v)[LANE], const float (&g)[LANE],
                          const Rates &r) {
#pragma unroll
    for (int k = 0; k < LANE; k++) {
        float gk = g[k] * r.scale;
        m[k] = m[k] * r.b1 + gk * (1.0f - r.b1);
        v[k] = v[k] * r.b2 + gk * gk * (1.0f - r.b2);
        w[k] = w[k] * r.decay - r.rate * m[k] * quick_inverse(quick_root(v[k] * r.c2) + r.eps);
    }
}

DEVICE void sgd_numbers(float (&w)[LANE], float (&m)[LANE], const float (&g)[LANE], const Rates &r) {
#pragma unroll
    for (int k = 0; k < LANE; k++) {
        m[k] = m[k] * r.b1 + (g[k] * r.scale + r.decay * w[k]);
        w[k] -= r.rate * m[k];
    }
}

/* w: theta as it is stored; was: theta before, overwritten by its change. */
template <bool WHOLE>
DEVICE void carry_lane(const CudaUpdates &u, const CudaUpdateTensor &t, const Carry &c, const float (&w)[LANE],
                       float (&was)[LANE], float (&g)[LANE], int64_t i, double (&sums)[CUDA_CARRY_SUMS]) {
    State sv = {t.v, NULL, FMT_F32}, sl = {t.last, NULL, u.g};
    const uint64_t none[2] = {};
    float v[LANE], last[LANE];
    load_state<float, WHOLE>(v, sv, i, t.count);
    load_state<Any, WHOLE>(last, sl, i, t.count);
    carry_step(v, last, c);
    store_state<Any, WHOLE>(sl, g, none, -1, i, t.count);
#pragma unroll
    for (int k = 0; k < LANE; k++) {
        was[k] = w[k] - was[k];
        v[k] -= c.remove * was[k];
        if (c.remove != 0) g[k] = was[k];
    }
    store_state<float, WHOLE>(sv, v, none, -1, i, t.count);
    carry_add(sums, v, g);
}

/* W: weight and gradient; any master asks for Any. A tensor without a first moment (sgd) has m.data NULL. */
template <bool ADAMW, typename W, typename M, typename V, bool WHOLE>
DEVICE void update_lane(const CudaUpdates &u, const CudaUpdateTensor &t, const Rates &r, uint64_t key, int64_t i,
                        double (&sums)[CUDA_CARRY_SUMS]) {
    constexpr bool ANY = std::is_same<W, Any>::value, BF16 = std::is_same<W, Bf16>::value;
    State sw = {t.w, NULL, u.w}, sg = {(void *)t.g, NULL, u.g}, sm = {t.m, t.m_scales, u.m},
                sv = {t.v, t.v_scales, u.v}, master = {t.master, NULL, u.master};
    const bool has_master = ANY && t.master, has_m = ADAMW || t.m, carries = !ADAMW && t.tiles;
    int64_t n = t.count;
    float w[LANE], m[LANE] = {}, v[LANE], g[LANE], was[LANE];
    if (has_master)
        load_state<W, WHOLE>(w, master, i, n);
    else
        load_state<W, WHOLE>(w, sw, i, n);
    load_state<W, WHOLE>(g, sg, i, n);
    if (has_m) load_state<M, WHOLE>(m, sm, i, n);
    if (ADAMW) load_state<V, WHOLE>(v, sv, i, n);
#pragma unroll
    for (int k = 0; k < LANE; k++) was[k] = w[k];

    if (ADAMW)
        adamw_numbers(w, m, v, g, r);
    else
        sgd_numbers(w, m, g, r);

    uint64_t words[2] = {};
    if (BF16 || (ANY && u.draws))
        words[0] = rng_fold(key, (uint64_t)i / 4), words[1] = rng_fold(key, (uint64_t)i / 4 + 1);
    if (has_m) store_state<M, WHOLE>(sm, m, words, 1, i, n);
    if (ADAMW) store_state<V, WHOLE>(sv, v, words, 2, i, n);
    if (has_master) store_state<W, WHOLE>(master, w, words, -1, i, n);
    if (has_master)
        store_state<W, WHOLE>(sw, w, words, -1, i, n);
    else
        store_state<W, WHOLE>(sw, w, words, 0, i, n);
    if (!carries) return;
    if (!has_master) load_state<W, WHOLE>(w, sw, i, n); /* as it was rounded */
    carry_lane<WHOLE>(u, t, r.carry, w, was, g, i, sums);
}

template <bool ADAMW> DEVICE Rates rates_of(const CudaUpdates &u, const CudaUpdateTensor &t) {
    float rate = u.dials[CUDA_DIAL_LR] * t.lr_mult;
    Rates r = {(float)u.verdict[CUDA_VERDICT_SCALE], u.beta1, u.beta2, u.eps, u.dials[CUDA_DIAL_CORRECT2],
               ADAMW ? rate * u.dials[CUDA_DIAL_CORRECT1] : rate,
               ADAMW ? 1.0f - rate * t.weight_decay : t.weight_decay};
    if (!ADAMW && u.carry) r.carry = carry_of(u.carry, t.lr_mult, t.weight_decay);
    return r;
}

/* What a tile's threads have summed, for carry_join. */
DEVICE void put_sums(const CudaUpdateTensor &t, uint32_t tile, double (&sums)[CUDA_CARRY_SUMS]) {
    __shared__ double part[THREADS / WARP];
    carry_put(t.tiles + (int64_t)(tile - t.first_tile) * CUDA_CARRY_SUMS, sums, part);
}

template <bool ADAMW, typename W, typename M, typename V>
__global__ void __launch_bounds__(THREADS, (BLOCKS<W, M>))
    update_kernel(const __grid_constant__ CudaUpdates u) {
    if (u.verdict[CUDA_VERDICT_OK] == 0) return;
    uint64_t base = u.clock ? rng_fold((uint64_t)u.clock[CUDA_CLOCK_KEY], (uint64_t)u.clock[CUDA_CLOCK_MICRO]) : 0;
    for (uint32_t tile = blockIdx.x, k = 0; tile < u.tiles; tile += gridDim.x) {
        while (k + 1 < u.n && tile >= u.t[k + 1].first_tile) k++;
        const CudaUpdateTensor &t = u.t[k];
        const Rates r = rates_of<ADAMW>(u, t);
        const uint64_t key = rng_fold(base, t.key);
        const int64_t begin = (int64_t)(tile - t.first_tile) * CUDA_UPDATE_TILE + threadIdx.x / WARP * (WARP * LANE);
        double sums[CUDA_CARRY_SUMS] = {};
#pragma unroll 1
        for (int s = 0; s < CUDA_UPDATE_TILE; s += THREADS * LANE) {
            int64_t first = begin + s, i = first + threadIdx.x % WARP * LANE; /* the warp's, the lane's */
            if (first >= t.count) break; /* the whole warp: 8-bit moments need all its lanes */
            if (u.aligned && first + WARP * LANE <= t.count)
                update_lane<ADAMW, W, M, V, true>(u, t, r, key, i, sums);
            else
                update_lane<ADAMW, W, M, V, false>(u, t, r, key, i, sums);
        }
        if (!ADAMW && t.tiles) put_sums(t, tile, sums);
    }
}

template <bool ADAMW, typename W, typename M, typename V>
static void launch_updates(cudaStream_t s, const CudaUpdates *u, int processors) {
    unsigned most = (unsigned)(processors * BLOCKS<W, M>);
    update_kernel<ADAMW, W, M, V><<<u->tiles < most ? u->tiles : most, THREADS, 0, s>>>(*u);
}

extern "C" void cuda_launch_adamw(cudaStream_t s, const CudaUpdates *u, int processors) {
    bool one = !u->t[0].master && u->w == u->g, plain = one && u->m == u->w && u->v == u->w;
    if (plain && u->w == FMT_BF16)
        launch_updates<true, Bf16, Bf16, Bf16>(s, u, processors);
    else if (plain && u->w == FMT_F32)
        launch_updates<true, float, float, float>(s, u, processors);
    else if (one && u->w == FMT_BF16 && u->m == FMT_MOM8 && u->v == FMT_VAR8)
        launch_updates<true, Bf16, Mom8, Var8>(s, u, processors);
    else
        launch_updates<true, Any, Any, Any>(s, u, processors);
}

extern "C" void cuda_launch_sgd(cudaStream_t s, const CudaUpdates *u, int processors) {
    launch_updates<false, Any, Any, Any>(s, u, processors);
}
