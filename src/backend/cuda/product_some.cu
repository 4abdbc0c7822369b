/* product_some.cu - GEMM of some rows (decode of many requests) with quantised weights and 16-bit x on tensor cores,
 * from 8.0 on: w is read once, as it is stored, each number decoded once for all rows. Reference: cpu/few.c.
 *
 *   y(N,M) = x(N,K) w(M,K)^T + bias     N <= 64; w in int8 or nf4; K whole pieces of 8 numbers
 *
 * The work is tiles of TALL rows of w times chunks of WIDE numbers of K. Every block has the same number of whole
 * tiles, and of the chunks of those that are left over an equal stretch (stream-K): all multiprocessors read to the end
 * whatever M is. Chunks of w and x are prefetched into a ring in shared memory. A warp takes 16 * HIGH rows of the tile
 * and UNITS stretches of 64 numbers of the chunk. A lane (g,t) reads 16 numbers of rows g and g+8: they are its part of
 * four A (ptx.cuh) whatever their order in K, as long as its part of B holds the same numbers of x. Codes are decoded
 * as product_codes.cuh says; nf4: four A are one block of 64, whose sum is multiplied by its byte.
 * A tile that several blocks have worked on is added up by the last to finish, in the order of K: the bits depend
 * on the shape and the card alone.
 * The first bytes of w are prefetched before the wait of programmatic dependent launch (chain.cuh), where w is state.
 * Bytes moved: w, x once a tile, and sums of shared tiles there and back. */
#include "backend/cuda/chain.cuh"
#include "backend/cuda/product_codes.cuh"

enum { BLOCK_K = FORMAT_NF4_BLOCK, MOST_BLOCKS = CUDA_SOME_BLOCKS };

struct Some {
    CudaFew a;
    Levels levels;
    float scale;         /* of every sum, beside the row's */
    int chunks;          /* of a tile */
    int shared, sharers; /* tiles that are shared out, the first ones, and among how many blocks */
    int each;            /* of the others, tiles to a block */
    float *parts;        /* sums of shared tiles: two of a tile's size for every block */
};

/* How a block is cut: SETS of 8 rows of x; warps DOWN the tile, HIGH times 16 rows each, and ACROSS the chunk, which
 * has UNITS of 64 numbers for each of them; DEPTH chunks in the ring; so many BLOCKS to a multiprocessor. */
template <int SETS_, int HIGH_, int DOWN_, int ACROSS_, int UNITS_, int DEPTH_, int BLOCKS_> struct Cut {
    static constexpr int SETS = SETS_, HIGH = HIGH_, DOWN = DOWN_, ACROSS = ACROSS_, UNITS = UNITS_, DEPTH = DEPTH_,
                         BLOCKS = BLOCKS_;
    static constexpr int THREADS = DOWN * ACROSS * WARP, TALL = DOWN * HIGH * 16, WIDE = ACROSS * UNITS * BLOCK_K;
    static constexpr int TILE = TALL * SETS * 8; /* sums */
    static constexpr int GROUP = SETS <= 4 ? SETS : SETS <= 6 ? 3 : 2; /* sets whose sums are in flight at a time */
    static_assert(TALL <= CUDA_SOME_TALL, "as the plan has it");
    static_assert(WIDE == 128 || WIDE % 256 == 0, "blocks' bytes come by four, of two chunks or one");
};

/* ---- shared memory, in bytes: pairs of levels, sums of warps, the ring ---- */

template <typename W, typename C> struct Shared {
    static constexpr int PAIRS = IS_NF4<W> ? 256 * WARP * 4 : 0, SUMS = (C::ACROSS - 1) * C::TILE * 4;
    static constexpr int W_ROW = C::WIDE / PIECE<W> * 16, X_ROW = C::WIDE * 2,
                         MOST_ROW = !IS_NF4<W> ? 0 : C::WIDE == 128 ? 4 : C::WIDE / BLOCK_K;
    static constexpr int X_AT = C::TALL * W_ROW, MOST_AT = X_AT + C::SETS * 8 * X_ROW,
                         SLOT = MOST_AT + C::TALL * MOST_ROW;
    static constexpr int BYTES = PAIRS + SUMS + C::DEPTH * SLOT;
};

/* Pieces of 16 bytes of a row change places, so that the lanes that read at a time find theirs in different banks. */
template <typename W, typename C> DEVICE int place_in_w(int row, int piece) {
    if constexpr (!IS_NF4<W>) return piece ^ (row & 1) << 2;
    else return C::WIDE == 128 ? piece ^ (row & 2) : piece ^ (row & 3) << 1;
}
DEVICE int place_in_x(int row, int piece) { return piece ^ (row & 1); }

/* ---- from memory into the ring ---- */

/* Where a thread's bytes of the next chunk come from. Behind a row's end and behind the last row any code of w will do:
 * x has zeros there, or the sum is not used. */
template <typename W, typename C> struct Source {
    using S = Shared<W, C>;
    static constexpr int W_PIECES = S::W_ROW / 16, W_STEP = C::THREADS / W_PIECES, W_EACH = C::TALL / W_STEP;
    static constexpr int X_PIECES = S::X_ROW / 16, X_STEP = C::THREADS / X_PIECES,
                         X_EACH = (C::SETS * 8 + X_STEP - 1) / X_STEP;
    static_assert(W_STEP * W_PIECES == C::THREADS && X_STEP * X_PIECES == C::THREADS, "whole rows at a time");
    static_assert(W_STEP % 4 == 0 && X_STEP % 2 == 0 && C::TALL % W_STEP == 0, "places in a row repeat");
    int tile, at; /* at: which of the tile's chunks */
    const char *w, *x;
    int w_rows, w_left, x_left; /* rows from its first on, numbers of a row from its first on */
    int stretch;                /* chunks up to the end of the block's stretch of the shared tiles */
};

template <typename W, typename C> DEVICE void point_at(Source<W, C> &s, const CudaFew &a, int tile, int at) {
    using T = Source<W, C>;
    int row = threadIdx.x / T::W_PIECES, piece = threadIdx.x % T::W_PIECES, x_piece = threadIdx.x % T::X_PIECES;
    s.tile = tile, s.at = at;
    s.w_rows = (int)a.cols - tile * C::TALL - row;
    s.w_left = a.inner - at * C::WIDE - piece * PIECE<W>;
    s.x_left = a.inner - at * C::WIDE - x_piece * 8;
    s.w = (const char *)a.w.data + ((int64_t)tile * C::TALL + row) * a.row_bytes + at * T::S::W_ROW + piece * 16;
    s.x = (const char *)a.x + ((int64_t)(threadIdx.x / T::X_PIECES) * a.inner + at * C::WIDE + x_piece * 8) * 2;
}

DEVICE int64_t first_of(const Some &f, int block) { /* chunk of the shared tiles */
    return (int64_t)f.shared * f.chunks * min(block, f.sharers) / max(f.sharers, 1);
}

DEVICE int first_whole(const Some &f) { return f.shared + blockIdx.x * f.each; }

/* To the beginning of the block's work. */
template <typename W, typename C> DEVICE void begin_at(Source<W, C> &s, const Some &f) {
    int64_t first = first_of(f, blockIdx.x);
    s.stretch = (int)(first_of(f, blockIdx.x + 1) - first);
    if (s.stretch) point_at(s, f.a, (int)(first / f.chunks), (int)(first % f.chunks));
    else point_at(s, f.a, first_whole(f), 0);
}

template <typename W, typename C> DEVICE void step_on(Source<W, C> &s, const Some &f) {
    if (--s.stretch == 0 || s.at + 1 == f.chunks) {
        point_at(s, f.a, s.stretch == 0 ? first_whole(f) : s.tile + 1, 0);
        return;
    }
    s.at++;
    s.w += Shared<W, C>::W_ROW, s.w_left -= C::WIDE;
    s.x += Shared<W, C>::X_ROW, s.x_left -= C::WIDE;
}

template <typename W, typename C> DEVICE void order_w(uint32_t slot, const Some &f, const Source<W, C> &s) {
    using S = Shared<W, C>;
    using T = Source<W, C>;
    const CudaFew &a = f.a;
    int row = threadIdx.x / T::W_PIECES, piece = threadIdx.x % T::W_PIECES;
    uint32_t to = slot + row * S::W_ROW + place_in_w<W, C>(row, piece) * 16;
#pragma unroll
    for (int i = 0; i < T::W_EACH; i++)
        copy16_once(to + i * T::W_STEP * S::W_ROW, s.w + i * T::W_STEP * a.row_bytes,
                    s.w_left > 0 && i * T::W_STEP < s.w_rows);
    if constexpr (IS_NF4<W>)
        for (int i = threadIdx.x; i < C::TALL * (S::MOST_ROW / 4); i += C::THREADS) {
            int64_t r = (int64_t)s.tile * C::TALL + i / (S::MOST_ROW / 4);
            int b = s.at * (C::WIDE / BLOCK_K) / 4 * 4 + i % (S::MOST_ROW / 4) * 4;
            bool there = r < a.cols && b * BLOCK_K < a.inner;
            copy4_async(slot + S::MOST_AT + i * 4, (const char *)a.w.data + r * a.row_bytes + a.blocks_at + b, there);
        }
}

template <typename W, typename C> DEVICE void order_x(uint32_t slot, const Some &f, const Source<W, C> &s) {
    using S = Shared<W, C>;
    using T = Source<W, C>;
    int row = threadIdx.x / T::X_PIECES, piece = threadIdx.x % T::X_PIECES;
    uint32_t to = slot + S::X_AT + row * S::X_ROW + place_in_x(row, piece) * 16;
#pragma unroll
    for (int i = 0; i < T::X_EACH; i++)
        if (row + i * T::X_STEP < C::SETS * 8)
            copy16_async(to + i * T::X_STEP * S::X_ROW, s.x + (int64_t)i * T::X_STEP * f.a.inner * 2,
                         s.x_left > 0 && row + i * T::X_STEP < f.a.rows);
}

/* ---- two numbers at a time, as a mma takes them ---- */

template <typename X> DEVICE uint32_t pair_of(uint4 v, int i, uint32_t table, Nf4) {
    return read_shared4(table + 4 * WARP * __byte_perm(word_of(v, i / 4), 0, 0x4440 | i % 4));
}

template <typename X> DEVICE uint32_t pair_of(uint4 v, int i, uint32_t, Int8) { return int8_pair<X>(v, i); }

/* All pairs of levels, a copy for every lane. */
template <typename W, typename C> DEVICE void make_pairs(char *shared, const Levels &levels) {
    if constexpr (IS_NF4<W>)
        for (int i = threadIdx.x; i < 256 * WARP / 4; i += C::THREADS) {
            int byte = i / (WARP / 4);
            uint32_t pair = levels_of_byte(levels, byte);
            ((uint4 *)shared)[i] = make_uint4(pair, pair, pair, pair);
        }
}

/* ---- sums: of rows g and g+8 of the warp's h-th 16, C's words ---- */

template <typename C> struct Sums {
    float at[C::HIGH][C::SETS][4];
};

/* The warp's 64 numbers of K from unit `unit` of the tile's chunk `at` on. */
template <typename W, typename X, typename C>
DEVICE void add_unit(Sums<C> &sum, uint32_t slot, int at, int unit, int tall, uint32_t table) {
    using S = Shared<W, C>;
    int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    uint4 v[C::HIGH][2];
    float most[C::HIGH][2];
#pragma unroll
    for (int h = 0; h < C::HIGH; h++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            int row = tall + h * 16 + r * 8 + g;
            if constexpr (IS_NF4<W>) {
                uint2 w =
                    read_shared8(slot + row * S::W_ROW + place_in_w<W, C>(row, unit * 2 + t / 2) * 16 + t % 2 * 8);
                v[h][r] = make_uint4(w.x, w.y, 0, 0);
                uint32_t four = read_shared4(slot + S::MOST_AT + row * S::MOST_ROW + unit / 4 * 4);
                most[h][r] = (float)(four >> (C::WIDE == 128 ? at % 2 * 2 + unit : unit % 4) * 8 & 255);
            } else {
                v[h][r] = read_shared16(slot + row * S::W_ROW + place_in_w<W, C>(row, unit * 4 + t) * 16);
            }
        }
    uint32_t w[C::HIGH][4][4];
#pragma unroll
    for (int h = 0; h < C::HIGH; h++)
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int i = 0; i < 4; i++) w[h][j][i] = pair_of<X>(v[h][i % 2], 2 * j + i / 2, table, W());
#pragma unroll
    for (int b = 0; b < C::SETS; b += C::GROUP) { /* some sets at a time: sums that do not wait for each other */
        uint4 x[C::GROUP][2];
        float c[C::GROUP][C::HIGH][4] = {};
#pragma unroll
        for (int k = 0; k < C::GROUP; k++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                if (b + k < C::SETS)
                    x[k][i] = read_shared16(slot + S::X_AT + ((b + k) * 8 + g) * S::X_ROW +
                                            place_in_x(g, unit * 8 + 2 * t + i) * 16);
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int k = 0; k < C::GROUP; k++)
#pragma unroll
                for (int h = 0; h < C::HIGH; h++)
                    if (b + k < C::SETS)
                        multiply<X>(IS_NF4<W> ? c[k][h] : sum.at[h][b + k], w[h][j], word_of(x[k][j / 2], j % 2 * 2),
                                    word_of(x[k][j / 2], j % 2 * 2 + 1));
        if constexpr (IS_NF4<W>)
#pragma unroll
            for (int k = 0; k < C::GROUP; k++)
#pragma unroll
                for (int i = 0; i < 4 * C::HIGH; i++)
                    if (b + k < C::SETS) {
                        float &to = sum.at[i / 4][b + k][i % 4];
                        to = fmaf(c[k][i / 4][i % 4], most[i / 4][i % 4 / 2], to);
                    }
    }
}

/* ---- a tile's end ---- */

/* The warps across share out what is left to do: warp a finishes words [a * OWN, (a + 1) * OWN) of a lane's EACH
 * fours. */
template <typename C> struct Ends {
    static constexpr int EACH = C::HIGH * C::SETS, OWN = (EACH + C::ACROSS - 1) / C::ACROSS;
    float4 at[OWN];
};

template <typename C> DEVICE float4 four_of(const Sums<C> &sum, int i) {
    const float *c = sum.at[i / C::SETS][i % C::SETS];
    return make_float4(c[0], c[1], c[2], c[3]);
}

DEVICE void add_four(float4 &to, float4 v) { to.x += v.x, to.y += v.y, to.z += v.z, to.w += v.w; }

/* Where warp `from` of those across leaves the four i for the warp that finishes it. */
template <typename C> DEVICE int left_at(int from, int i) {
    int to = i / Ends<C>::OWN, warp = threadIdx.x / WARP % C::DOWN;
    return (((from < to ? from : from - 1) * C::DOWN + warp) * Ends<C>::EACH + i) * WARP + threadIdx.x % WARP;
}

/* The sums of the warps across are added up in order. */
template <typename C> DEVICE Ends<C> gather_warps(const Sums<C> &sum, float4 *left) {
    using E = Ends<C>;
    int across = threadIdx.x / WARP / C::DOWN;
    E ends;
#pragma unroll
    for (int i = 0; i < E::EACH; i++)
        if (i / E::OWN != across) left[left_at<C>(across, i)] = four_of(sum, i);
        else ends.at[i % E::OWN] = four_of(sum, i);
    if constexpr (C::ACROSS == 1) return ends;
    __syncthreads();
#pragma unroll
    for (int j = 0; j < E::OWN; j++) {
        int i = across * E::OWN + j;
        float4 total = make_float4(0, 0, 0, 0);
#pragma unroll
        for (int k = 0; k < C::ACROSS; k++)
            if (i < E::EACH) add_four(total, k == across ? ends.at[j] : left[left_at<C>(k, i)]);
        ends.at[j] = total;
    }
    return ends;
}

/* In a lane's four i: the row of w of words 2r and 2r+1. */
template <typename C> DEVICE int row_of(int tile, int i, int r) {
    return tile * C::TALL + (threadIdx.x / WARP % C::DOWN * C::HIGH + i / C::SETS) * 16 + r * 8 +
           threadIdx.x % WARP / 4;
}

template <typename C> struct Scales { /* of a thread's rows; loaded before the sums are there */
    float scale[Ends<C>::OWN][2], bias[Ends<C>::OWN][2];
};

template <typename C> DEVICE Scales<C> scales_of(const Some &f, int tile) {
    using E = Ends<C>;
    const CudaFew &a = f.a;
    Scales<C> s;
#pragma unroll
    for (int k = 0; k < 2 * E::OWN; k++) {
        int i = threadIdx.x / WARP / C::DOWN * E::OWN + k / 2, row = row_of<C>(tile, i, k % 2);
        bool there = i < E::EACH && row < a.cols;
        s.scale[k / 2][k % 2] = there ? *(const float *)((const char *)a.w.data + row * a.row_bytes + a.scale_at) : 0;
        s.bias[k / 2][k % 2] = there && a.bias.data ? read_number(a.bias, row) : 0;
    }
    return s;
}

template <typename C> DEVICE void write_ends(const Some &f, const Ends<C> &ends, const Scales<C> &s, int tile) {
    using E = Ends<C>;
    const CudaFew &a = f.a;
#pragma unroll
    for (int k = 0; k < 4 * E::OWN; k++) {
        int i = threadIdx.x / WARP / C::DOWN * E::OWN + k / 4, r = k % 4 / 2, row = row_of<C>(tile, i, r);
        int n = i % C::SETS * 8 + threadIdx.x % 4 * 2 + k % 2;
        float4 v = ends.at[k / 4];
        float c = k % 4 == 0 ? v.x : k % 4 == 1 ? v.y : k % 4 == 2 ? v.z : v.w;
        if (i < E::EACH && row < a.cols && n < a.rows)
            write_number(a.y, n * a.cols + row, fmaf(c, s.scale[k / 4][r] * f.scale, s.bias[k / 4][r]));
    }
}

/* Of the tile that begins in a block and ends in another; 0 between kernels. */
__device__ unsigned int parts_there[MOST_BLOCKS];

DEVICE int block_of(const Some &f, int64_t chunk) { /* whose stretch it is in */
    return (int)(((chunk + 1) * f.sharers - 1) / ((int64_t)f.shared * f.chunks));
}

/* Blocks from `first` on share the tile; the last one to finish sums their parts in order and returns true. A block
 * leaves at most two parts: of the tile that it begins, and of one that was begun before it. */
template <typename C> DEVICE bool share_tile(const Some &f, Ends<C> &ends, int tile) {
    using E = Ends<C>;
    __shared__ bool last;
    int warp = threadIdx.x / WARP,
        own = (warp % C::DOWN * E::EACH + warp / C::DOWN * E::OWN) * WARP + threadIdx.x % WARP;
    int first = block_of(f, (int64_t)tile * f.chunks), end = block_of(f, (int64_t)(tile + 1) * f.chunks - 1) + 1;
    bool whole = (warp / C::DOWN + 1) * E::OWN <= E::EACH; /* else some of its fours are not there */
    auto part = [&](int b) { return (float4 *)(f.parts + (int64_t)(2 * b + (b == first)) * C::TILE) + own; };
    float4 *mine = part(blockIdx.x);
#pragma unroll
    for (int j = 0; j < E::OWN; j++)
        if (whole || warp / C::DOWN * E::OWN + j < E::EACH) __stcg(&mine[j * WARP], ends.at[j]);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(&parts_there[first], 1u) == (unsigned)(end - first - 1);
        if (last) parts_there[first] = 0;
        __threadfence();
    }
    __syncthreads();
    if (!last) return false;
    ends = {};
    constexpr int AHEAD = E::OWN > 10 ? 1 : E::OWN > 5 ? 2 : 4; /* parts in flight at a time */
#pragma unroll AHEAD
    for (int b = first; b < end; b++) {
        const float4 *from = part(b);
#pragma unroll
        for (int j = 0; j < E::OWN; j++)
            if (whole || warp / C::DOWN * E::OWN + j < E::EACH) add_four(ends.at[j], __ldcg(&from[j * WARP]));
    }
    return true;
}

template <typename C> DEVICE void end_tile(const Some &f, Sums<C> &sum, float4 *left, int tile, bool whole) {
    Scales<C> scales = scales_of<C>(f, tile);
    Ends<C> ends = gather_warps<C>(sum, left);
    if (whole || share_tile<C>(f, ends, tile)) write_ends<C>(f, ends, scales, tile);
    sum = {};
}

/* ---- the kernel ---- */

template <typename W, typename X, typename C>
__global__ void __launch_bounds__(C::THREADS, C::BLOCKS) some_kernel(const __grid_constant__ Some f) {
#ifdef HAVE_TENSOR_CORES
    using S = Shared<W, C>;
    extern __shared__ __align__(128) char shared[];
    int warp = threadIdx.x / WARP, down = warp % C::DOWN, across = warp / C::DOWN;
    uint32_t ring = shared_address(shared) + S::PAIRS + S::SUMS,
             table = shared_address(shared) + threadIdx.x % WARP * 4;
    float4 *left = (float4 *)(shared + S::PAIRS);
    Source<W, C> next;
    begin_at(next, f);
    int tile = next.tile, at = next.at, stretch = next.stretch, n = stretch + f.each * f.chunks;
    chain_open();
    make_pairs<W, C>(shared, f.levels);
    if (!f.a.early) chain_wait();
    for (int d = 0; d < C::DEPTH - 1; d++) {
        if (d < n) order_w(ring + d * S::SLOT, f, next);
        step_on(next, f);
    }
    chain_wait();
    begin_at(next, f);
    for (int d = 0; d < C::DEPTH - 1; d++) {
        if (d < n) order_x(ring + d * S::SLOT, f, next);
        copies_commit();
        step_on(next, f);
    }
    Sums<C> sum = {};
    int slot = 0, begun = 0;
    for (int q = 0; q < n; q++) {
        copies_wait<C::DEPTH - 2>();
        __syncthreads(); /* this chunk is there, and everybody is done with the one before: its slot is free */
        int free_slot = slot == 0 ? C::DEPTH - 1 : slot - 1;
        if (q + C::DEPTH - 1 < n) {
            order_w(ring + free_slot * S::SLOT, f, next);
            order_x(ring + free_slot * S::SLOT, f, next);
            step_on(next, f);
        }
        copies_commit();
#pragma unroll
        for (int u = 0; u < C::UNITS; u++)
            add_unit<W, X, C>(sum, ring + slot * S::SLOT, at, across * C::UNITS + u, down * C::HIGH * 16, table);
        slot = slot == C::DEPTH - 1 ? 0 : slot + 1;
        bool ends = at == f.chunks - 1, leaves = q == stretch - 1;
        if (ends || leaves) {
            end_tile<C>(f, sum, left, tile, ends && q - begun == f.chunks - 1);
            begun = q + 1;
        }
        at = ends || leaves ? 0 : at + 1;
        tile = leaves ? first_whole(f) : tile + ends;
    }
#endif
}

/* ---- launching ---- */

template <typename W, typename X, typename C> static void launch(cudaStream_t s, const CudaFew &a, float *parts) {
    using S = Shared<W, C>;
    static_assert(S::BYTES + 128 <= (IS_NF4<W> && C::SETS > 2 ? 163 : 99) * 1024, "what launch_all asks for");
    int tiles = (int)blocks_for(a.cols, C::TALL), chunks = (int)blocks_for(a.inner, C::WIDE);
    int64_t most = of_card(cudaDevAttrMultiProcessorCount) * C::BLOCKS, all = (int64_t)tiles * chunks;
    if (most > MOST_BLOCKS) most = MOST_BLOCKS;
    int blocks = (int)(all < most ? all : most), shared = tiles % blocks,
        sharers = shared * chunks < blocks ? shared * chunks : blocks;
    Some f = {.a = a, .levels = {}, .scale = 1, .chunks = chunks, .shared = shared, .sharers = sharers,
              .each = tiles / blocks, .parts = parts};
    f.scale = make_levels<W, X>(f.levels);
    auto kernel = some_kernel<W, X, C>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S::BYTES);
    cuda_launch_chained(s, kernel, (unsigned)blocks, C::THREADS, S::BYTES, f);
}

/* Sets of rows at a time, and the cuts that were fastest on an H200. */
template <typename W, typename X> static void launch_sets(cudaStream_t s, const CudaFew &a, float *parts) {
    if constexpr (IS_NF4<W>) {
        if (a.rows <= 16) launch<W, X, Cut<2, 2, 4, 2, 1, 3, 2>>(s, a, parts);
        else if (a.rows <= 32) launch<W, X, Cut<4, 2, 4, 2, 2, 3, 1>>(s, a, parts);
        else if (a.rows <= 40) launch<W, X, Cut<5, 2, 4, 2, 2, 3, 1>>(s, a, parts);
        else launch<W, X, Cut<8, 2, 4, 2, 1, 3, 1>>(s, a, parts);
    } else {
        if (a.rows <= 16) launch<W, X, Cut<2, 2, 4, 2, 1, 4, 2>>(s, a, parts);
        else if (a.rows <= 32) launch<W, X, Cut<4, 2, 4, 1, 2, 3, 2>>(s, a, parts);
        else if (a.rows <= 40) launch<W, X, Cut<5, 2, 4, 1, 2, 3, 2>>(s, a, parts);
        else launch<W, X, Cut<8, 2, 4, 1, 2, 3, 2>>(s, a, parts);
    }
}

/* More rows than a block has sums for: nearly equal parts; fewer where shared memory has no room for nf4's rings. */
template <typename X> static void launch_all(cudaStream_t s, const CudaFew &some, float *parts) {
    CudaFew a = some;
    bool roomy = of_card(cudaDevAttrMaxSharedMemoryPerBlockOptin) >= (some.w.format == FMT_INT8 ? 99 : 163) * 1024;
    int most = roomy ? CUDA_SOME_ROWS : 16, times = (some.rows + most - 1) / most,
        each = ((some.rows + times - 1) / times + 7) / 8 * 8;
    for (int row = 0; row < some.rows; row += each) {
        a.rows = some.rows - row < each ? some.rows - row : each;
        a.x = (const X *)some.x + (int64_t)row * some.inner;
        a.y.data = (char *)some.y.data + row * some.cols * (some.y.format == FMT_F32 ? 4 : 2);
        if (some.w.format == FMT_INT8) launch_sets<Int8, X>(s, a, parts);
        else launch_sets<Nf4, X>(s, a, parts);
    }
}

extern "C" bool cuda_launch_some(cudaStream_t s, const CudaFew *a, void *parts) {
    if (!takes_codes(a)) return false;
    if (a->x_format == FMT_BF16) launch_all<Bf16>(s, *a, (float *)parts);
    else launch_all<F16>(s, *a, (float *)parts);
    return true;
}
