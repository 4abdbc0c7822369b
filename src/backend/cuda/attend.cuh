/* attend.cuh - what the attention kernels share: tiles of heads in shared memory, and which keys a query sees.
 *
 * A tile is rows of D numbers of one head, padded by 16 bytes a row: the rows of an 8x8 block then fall into
 * different banks, and every address is a base plus a constant. */
#ifndef BACKEND_CUDA_ATTEND_CUH
#define BACKEND_CUDA_ATTEND_CUH

#include "backend/cuda/kernels.h"
#include "backend/cuda/ptx.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
#define HAVE_TENSOR_CORES 1 /* of the kind these kernels use; older cards take the plain kernels */
#endif

static const float LN_2 = 0.69314718f;
static const int NEVER = 0x7fffffff; /* a beginning behind every key */

/* Which keys a kernel's queries see: one range each, two (a prefix in front of it), or those whose bits are set. */
enum KeySet { KEYS_RANGE, KEYS_PREFIX, KEYS_LIST };

template <int D> struct Tile {
    static constexpr int STRIDE = D + 8; /* numbers from row to row */
    static constexpr int ROW_BYTES = STRIDE * 2;
};

/* How THREADS threads copy rows of a head into a tile: ABREAST neighbours take a row together, 16 bytes each at
 * a time. */
template <int D, int THREADS> struct Copy {
    static constexpr int PIECES = D / 8; /* of 16 bytes in a row */
    static constexpr int ABREAST = PIECES % 8 == 0 ? 8 : PIECES % 4 == 0 ? 4 : 2, AT_ONCE = THREADS / ABREAST;
    int row, col_bytes; /* where this thread begins */
    DEVICE Copy() {
        int thread = thread_anew();
        row = thread / ABREAST, col_bytes = thread % ABREAST * 16;
    }
    DEVICE uint32_t in_tile(uint32_t tile) const { return tile + row * Tile<D>::ROW_BYTES + col_bytes; }
    DEVICE const char *in_head(const void *head, int stride) const {
        return (const char *)head + (row * stride * 2 + col_bytes);
    }

    /* ROWS rows to `to` from `from`, both at this thread's place; rows from `there` on become zeros and are not
     * read. */
    template <int ROWS> DEVICE void start(uint32_t to, const char *from, int stride, int there) const {
        static_assert(ROWS % AT_ONCE == 0, "every thread copies as many pieces");
#pragma unroll
        for (int r = 0; r < ROWS; r += AT_ONCE)
#pragma unroll
            for (int p = 0; p < PIECES; p += ABREAST)
                copy16_async(to + r * Tile<D>::ROW_BYTES + p * 16, from + r * stride * 2 + p * 16,
                             row < there - r);
    }
};

/* Lane addresses into a tile: of A blocks (16 rows x 16), of B blocks read as rows of n (16 n x 16 k), and of B
 * blocks read as rows of k, transposed (16 k x 16 n). Blocks further on lie at constant distances. */
template <int D> DEVICE uint32_t lane_a(uint32_t tile, int row) {
    int lane = threadIdx.x % WARP;
    return tile + (row + lane % 16) * Tile<D>::ROW_BYTES + lane / 16 * 16;
}
template <int D> DEVICE uint32_t lane_b(uint32_t tile) {
    int lane = threadIdx.x % WARP;
    return tile + (lane / 16 * 8 + lane % 8) * Tile<D>::ROW_BYTES + lane / 8 % 2 * 16;
}
template <int D> DEVICE uint32_t lane_transposed(uint32_t tile) {
    return lane_a<D>(tile, 0);
}

/* A warp's C blocks of 16 rows, times `by` of each row, as stored numbers at `row` of a tile in shared memory. */
template <typename T, int D>
DEVICE void put_blocks(T *tile, int row, const float (&c)[D / 8][4], float by_low, float by_high) {
    int lane = threadIdx.x % WARP;
    T *low = tile + (row + lane / 4) * Tile<D>::STRIDE + lane % 4 * 2, *high = low + 8 * Tile<D>::STRIDE;
#pragma unroll
    for (int n = 0; n < D / 8; n++) {
        *(uint32_t *)(low + n * 8) = pack<T>(c[n][0] * by_low, c[n][1] * by_low);
        *(uint32_t *)(high + n * 8) = pack<T>(c[n][2] * by_high, c[n][3] * by_high);
    }
}

/* A warp gives ROWS rows of a tile, 16 bytes a lane at a time; rows from `end` on do not exist. */
template <typename T, int D, int ROWS>
DEVICE void give_rows(T *head, int stride, const T *tile, int first, int end) {
    constexpr int PIECES = D / 8;
    int lane = threadIdx.x % WARP;
#pragma unroll
    for (int i = 0; i < (ROWS * PIECES + WARP - 1) / WARP; i++) {
        int piece = lane + i * WARP, row = piece / PIECES, col = piece % PIECES * 8;
        if (row < ROWS && first + row < end)
            *(uint4 *)(head + (int64_t)(first + row) * stride + col) =
                *(const uint4 *)(tile + row * Tile<D>::STRIDE + col);
    }
}

/* Sums of a block's own rows, MT blocks of 16 a warp, times `by`: as they are stored, or as fp32 parts. */
template <typename T, int D, int MT>
DEVICE void give_sums(T *head, int stride, T *tile, const float (&sum)[MT][D / 8][4], float by, int first,
                      int end) {
    int row = threadIdx.x / WARP * MT * 16;
#pragma unroll
    for (int m = 0; m < MT; m++) put_blocks<T, D>(tile, row + m * 16, sum[m], by, by);
    __syncwarp();
    give_rows<T, D, MT * 16>(head, stride, tile + row * Tile<D>::STRIDE, first + row, end);
}

template <int D, int MT>
DEVICE void give_parts(float *head, int stride, const float (&sum)[MT][D / 8][4], float by, int first, int end) {
    int lane = threadIdx.x % WARP, row = first + threadIdx.x / WARP * MT * 16 + lane / 4;
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            int at = row + m * 16 + r * 8;
            if (at >= end) continue;
            float *to = head + (int64_t)at * stride + lane % 4 * 2;
#pragma unroll
            for (int n = 0; n < D / 8; n++)
                *(float2 *)(to + n * 8) = make_float2(sum[m][n][2 * r] * by, sum[m][n][2 * r + 1] * by);
        }
}

DEVICE int64_t key_row(const CudaAttend &a, int64_t row) { return a.key_row ? a.key_row[row] : row; }

/* The keys [from, upto) that a query sees; empty: {NEVER, 0}. */
DEVICE int2 keys_seen(const CudaAttend &a, int64_t row, int query) {
    int64_t at = row * a.seq + query;
    int from = a.begin ? a.begin[at] : 0, upto = a.last ? a.last[at] + 1 : query + 1;
    from = from < 0 ? 0 : from;
    upto = upto > a.keys ? a.keys : upto;
    return from < upto ? make_int2(from, upto) : make_int2(NEVER, 0);
}

/* The prefix [from, upto) that a query sees in front of its own range; none: {NEVER, 0}. Where it reaches into the
 * range it counts once, as everything behind the query is hidden in any case. */
DEVICE int2 prefix_seen(const CudaAttend &a, int64_t row, int query) {
    int2 p = ((const int2 *)a.prefix)[row * a.seq + query];
    int from = max(p.x, 0), upto = min(p.y, query + 1);
    return from < upto ? make_int2(from, upto) : make_int2(NEVER, 0);
}

DEVICE int warp_min(int x) {
#pragma unroll
    for (int d = WARP / 2; d; d /= 2) x = min(x, __shfl_xor_sync(~0u, x, d));
    return x;
}
DEVICE int warp_most(int x) {
#pragma unroll
    for (int d = WARP / 2; d; d /= 2) x = max(x, __shfl_xor_sync(~0u, x, d));
    return x;
}

/* Head sizes of the tensor-core kernels as compile-time numbers. */
template <typename Fn> static inline void with_dim(int dim, Fn fn) {
    if (dim == 64)
        fn(std::integral_constant<int, 64>());
    else if (dim == 80)
        fn(std::integral_constant<int, 80>());
    else if (dim == 96)
        fn(std::integral_constant<int, 96>());
    else if (dim == 128)
        fn(std::integral_constant<int, 128>());
}

#endif
