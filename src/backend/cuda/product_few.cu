/* product_few.cu - GEMV: a product with a handful of rows (decode of a few requests). It is bound by reading the
 * weights, which are read once, as they are stored. Reference: cpu/few.c.
 *
 *   y(N,M) = x(N,K) w(M,K)^T + bias     w in fp32, bf16, fp16 as x is, or int8, nf4 with the scales in their rows
 *
 * A warp takes R rows of w and every `share`-th stretch of 32 * 8 numbers of K: a lane has 8 of them, 32 to 4 bytes of
 * each row, and the same 8 of every row of x, which the first-level cache keeps. The `share` warps of a row add their
 * sums up in order. share depends on the shape alone, so that enough bytes are in flight for few rows of w, too.
 * int8: codes become floats by their bits, the row's scale comes last. nf4: both numbers of a byte are found at once in
 * a table in shared memory that has a copy for every second lane; a block's byte multiplies the sum of 8. Where rows
 * are not whole pieces of 8 numbers, they are taken one by one.
 * Bytes moved: w, and x once a multiprocessor. */
#include "backend/cuda/chain.cuh"
#include "backend/cuda/product_few.cuh"
#include "backend/cuda/ptx.cuh"

enum { WARPS = 8, THREADS = WARPS * WARP, WIDE = 8, COPIES = 16, ENOUGH_WARPS = 3072 };
static const float CODE_ZERO = 8388608.0f + 128.0f; /* an int8 0 as a float's bits: 2^23 + 128 */

struct Int8 {};
struct Nf4 {};
struct Levels {
    float at[16];
};

template <typename W> constexpr bool IS_NF4 = std::is_same<W, Nf4>::value;
template <typename W> constexpr bool IS_INT8 = std::is_same<W, Int8>::value;
template <typename W> constexpr int ROWS_A_WARP = IS_NF4<W> || IS_INT8<W> ? 4 : 2;

/* ---- V numbers of a row of w from c on; read once, so they need not stay in a cache ---- */

template <int V> DEVICE void load_w(float (&x)[V], const char *row, int c, const float2 *, float) {
    static_assert(V == WIDE, "fp32 is only read in whole pieces");
#pragma unroll
    for (int i = 0; i < V; i += 4) {
        float4 v = __ldcs((const float4 *)((const float *)row + c + i));
        x[i] = v.x, x[i + 1] = v.y, x[i + 2] = v.z, x[i + 3] = v.w;
    }
}

template <int V, typename T> DEVICE void load_w(float (&x)[V], const char *row, int c, const float2 *, T) {
    static_assert(V == WIDE, "16-bit numbers are only read in whole pieces");
    uint4 v = __ldcs((const uint4 *)((const T *)row + c));
    uint32_t word[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float2 two = unpack(word[i], T());
        x[2 * i] = two.x, x[2 * i + 1] = two.y;
    }
}

template <int V> DEVICE void load_w(float (&x)[V], const char *row, int c, const float2 *, Int8) {
    if constexpr (V == WIDE) {
        uint2 v = __ldcs((const uint2 *)(row + c));
        uint32_t word[2] = {v.x ^ 0x80808080u, v.y ^ 0x80808080u};
#pragma unroll
        for (int i = 0; i < V; i++)
            x[i] = __uint_as_float(__byte_perm(word[i / 4], 0x4b000000u, 0x7540u | (unsigned)(i % 4))) - CODE_ZERO;
    } else {
        x[0] = (float)(int8_t)row[c];
    }
}

template <int V> DEVICE void load_w(float (&x)[V], const char *row, int c, const float2 *pair, Nf4) {
    if constexpr (V == WIDE) {
        uint32_t word = __ldcs((const uint32_t *)(row + c / 2));
#pragma unroll
        for (int i = 0; i < V / 2; i++) {
            float2 two = pair[(word >> 8 * i & 255) * COPIES];
            x[2 * i] = two.x, x[2 * i + 1] = two.y;
        }
    } else {
        float2 two = pair[(uint8_t)row[c / 2] * COPIES];
        x[0] = c % 2 ? two.y : two.x;
    }
}

/* All pairs of levels; the lane's own copy begins at its number. */
template <typename W> DEVICE const float2 *make_pairs(float2 *pair, const Levels &levels) {
    if constexpr (IS_NF4<W>) {
        __shared__ float level[16];
        if (threadIdx.x == 0)
#pragma unroll
            for (int k = 0; k < 16; k++) level[k] = levels.at[k];
        __syncthreads();
        for (int i = threadIdx.x; i < 256 * COPIES; i += THREADS) {
            int byte = i / COPIES;
            pair[i] = make_float2(level[byte & 15], level[byte >> 4]);
        }
        __syncthreads();
    }
    return pair + threadIdx.x % COPIES;
}

/* ---- sums ---- */

/* sum[n][r] += over this lane's part of K, x[n] . w[r]; rows beyond the last repeat it. */
template <typename W, typename X, int N, int R, int V>
DEVICE void add_products(float (&sum)[N][R], const CudaFew &a, int64_t row, int slice, const float2 *pair) {
    const char *w[R];
#pragma unroll
    for (int r = 0; r < R; r++) w[r] = (const char *)a.w.data + min(row + r, a.cols - 1) * a.row_bytes;
    int step = a.share * WARP * V;
#pragma unroll 2
    for (int c = (slice * WARP + (int)(threadIdx.x % WARP)) * V; c < a.inner; c += step) {
        float y[R][V], most[R], x[V];
#pragma unroll
        for (int r = 0; r < R; r++) {
            load_w<V>(y[r], w[r], c, pair, W());
            most[r] = IS_NF4<W> ? (float)((const uint8_t *)w[r])[a.blocks_at + c / FORMAT_NF4_BLOCK] : 1.0f;
        }
#pragma unroll
        for (int n = 0; n < N; n++) {
            load<V>(x, (const X *)a.x + (int64_t)min(n, a.rows - 1) * a.inner + c);
#pragma unroll
            for (int r = 0; r < R; r++) {
                float dot = IS_NF4<W> ? 0.0f : sum[n][r];
#pragma unroll
                for (int i = 0; i < V; i++) dot = fmaf(x[i], y[r][i], dot);
                sum[n][r] = IS_NF4<W> ? fmaf(dot, most[r], sum[n][r]) : dot;
            }
        }
    }
}

/* The warp's first stretches of plain rows are prefetched into the second-level cache before the wait of programmatic
 * dependent launch. */
template <typename W, int R> DEVICE void prefetch_rows(const CudaFew &a, int64_t row, int slice) {
    enum { STRETCHES = 4 };
#pragma unroll
    for (int r = 0; r < R; r++)
        for (int i = 0; i < STRETCHES; i++) {
            int c = ((i * a.share + slice) * WARP + (int)(threadIdx.x % WARP)) * WIDE;
            const char *at = (const char *)a.w.data + min(row + r, a.cols - 1) * a.row_bytes + c * (int)sizeof(W);
            if (c < a.inner) prefetch(at);
        }
}

template <typename W, typename X, int N, int R, int V>
__global__ void __launch_bounds__(THREADS, 1)
    few_kernel(const __grid_constant__ CudaFew a, const __grid_constant__ Levels levels) {
    __shared__ float2 pairs[IS_NF4<W> ? 256 * COPIES : 1];
    __shared__ float parts[WARPS][N * R];
    int warp = threadIdx.x / WARP, groups = WARPS / a.share;
    int64_t first = (int64_t)blockIdx.x * groups * R, row = first + warp / a.share * R;
    chain_open();
    const float2 *pair = make_pairs<W>(pairs, levels);
    if constexpr (!IS_NF4<W> && !IS_INT8<W>)
        if (a.early) prefetch_rows<W, R>(a, row, warp % a.share);
    chain_wait();
    float sum[N][R] = {};
    add_products<W, X, N, R, V>(sum, a, row, warp % a.share, pair);
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int r = 0; r < R; r++) {
            float total = warp_sum(sum[n][r]);
            if (threadIdx.x % WARP == 0) parts[warp][n * R + r] = total;
        }
    __syncthreads();
    for (int i = threadIdx.x; i < groups * R * N; i += THREADS) { /* neighbouring threads: neighbouring columns of y */
        int n = i / (groups * R), at = i % (groups * R), group = at / R, r = at % R;
        int64_t column = first + at;
        if (n >= a.rows || column >= a.cols) continue;
        float total = 0;
        for (int k = 0; k < a.share; k++) total += parts[group * a.share + k][n * R + r];
        if (a.scale_at) total *= *(const float *)((const char *)a.w.data + column * a.row_bytes + a.scale_at);
        if (a.bias.data) total += read_number(a.bias, column);
        write_number(a.y, n * a.cols + column, total);
    }
}

/* ---- launching ---- */

/* Warps that share a row of w: more where there are few rows, as long as each has two stretches. */
static int share_of(int64_t cols, int inner, int rows_a_warp, int v) {
    int share = 1;
    int64_t groups = (cols + rows_a_warp - 1) / rows_a_warp, stretches = (inner + WARP * v - 1) / (WARP * v);
    while (share < WARPS && groups * share < ENOUGH_WARPS && stretches >= 4 * share) share *= 2;
    return share;
}

template <typename W, typename X, int N, int V> static void launch(cudaStream_t s, CudaFew a) {
    constexpr int R = ROWS_A_WARP<W>;
    Levels levels;
    for (int k = 0; k < 16; k++) levels.at[k] = format_nf4_levels[k];
    a.share = share_of(a.cols, a.inner, R, V);
    cuda_launch_chained(s, few_kernel<W, X, N, R, V>, blocks_for(a.cols, WARPS / a.share * R), THREADS, 0, a, levels);
}

template <typename W, typename X> static void launch_stored(cudaStream_t s, const CudaFew &a, bool wide) {
    if (!wide)
        launch<W, X, CUDA_FEW_ROWS, 1>(s, a);
    else if (a.rows == 1)
        launch<W, X, 1, WIDE>(s, a);
    else if (a.rows <= CUDA_FEW_PLAIN_ROWS)
        launch<W, X, CUDA_FEW_PLAIN_ROWS, WIDE>(s, a);
    else
        launch<W, X, CUDA_FEW_ROWS, WIDE>(s, a);
}

static bool is_wide(const CudaFew *a) { return a->inner % WIDE == 0 && is_packed(a->x) && is_packed(a->w.data); }

extern "C" bool cuda_launch_few(cudaStream_t s, const CudaFew *few) {
    if (cuda_launch_few_cores(s, few)) return true;
    bool stored = few->w.format == FMT_INT8 || few->w.format == FMT_NF4, wide = is_wide(few);
    if (!stored && (!wide || few->w.format != few->x_format || few->rows > CUDA_FEW_PLAIN_ROWS)) return false;
    with_real(few->x_format, [&](auto t) {
        using X = decltype(t);
        CudaFew a = *few;
        if (!stored && few->rows == 1) launch<X, X, 1, WIDE>(s, a);
        if (!stored && few->rows > 1) launch<X, X, CUDA_FEW_PLAIN_ROWS, WIDE>(s, a);
        for (int row = 0; stored && row < few->rows; row += CUDA_FEW_ROWS) {
            a.rows = few->rows - row < CUDA_FEW_ROWS ? few->rows - row : CUDA_FEW_ROWS;
            a.x = (const X *)few->x + (int64_t)row * few->inner;
            a.y.data = (char *)few->y.data + row * few->cols * (few->y.format == FMT_F32 ? 4 : 2);
            if (few->w.format == FMT_INT8) launch_stored<Int8, X>(s, a, wide);
            else launch_stored<Nf4, X>(s, a, wide);
        }
    });
    return true;
}
