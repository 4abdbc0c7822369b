/* product_few_cores.cu - GEMV with quantised weights and 16-bit x on tensor cores, from 8.0 on: the products of
 * product_few.cu, where the cost of a weight is loading and decoding it, whatever the number of rows. Reference:
 * cpu/few.c.
 *
 *   y(N,M) = x(N,K) w(M,K)^T + bias     N <= 8; w in int8 or nf4; K whole pieces of 8 numbers
 *
 * Every multiprocessor has one block and an equal share of w's rows, in tiles of 16. Its warps take turns at stages of
 * 128 bytes of a tile's rows, one tile after the other, and leave their sums in shared memory, where they are added up
 * in order at the end: no warp waits for another before. A lane (g,t) reads 16 bytes of rows g and g+8 at a time: they
 * are its part of A (ptx.cuh) whatever their order in K, as long as its part of B holds the same numbers of x. x lies
 * in shared memory where it fits; what the first stages need comes first.
 * Codes become numbers as product_codes.cuh says: nf4's by a table in shared memory, whose levels are rounded by 0.08 %
 * in bf16, half of what rounding the weight itself does. An entry's stride is 256 bytes, so that its address is put
 * together by one instruction. Lanes t = 0,1 have one block of 64 and t = 2,3 the next: B has a column for either, with
 * zeros for the other, so the sums of the two come out apart and each is multiplied by its byte.
 * The first bytes of w are prefetched before the wait of programmatic dependent launch (chain.cuh), where w is state.
 * Gated: a tile has 8 rows of either half of w, so that both sums of a number of y are found beside each other. A sum's
 * order is that of K's stages, in whichever tile its row stands: gated or not, the bits are the same.
 * Bytes moved: w, and x once a multiprocessor. */
#include "backend/cuda/chain.cuh"
#include "backend/cuda/product_codes.cuh"

enum { WARPS = 16, THREADS = WARPS * WARP, TILE = 16, STAGE = 128 /* bytes of a row */ };
enum { LEAST_ROWS = 8 /* of a block */, PAIR_STRIDE = 256 /* bytes */ };

struct Few {
    CudaFew a;
    Levels levels;
    float scale; /* of every sum, beside the row's */
    int share;   /* rows of w of a block; gated: of either half */
    int round;   /* tiles whose sums wait for each other */
    int tall;    /* rows of the share from a tile to the next */
    int beside;  /* and from a lane's first row to its second */
    int64_t second_at; /* which stands so many bytes behind it */
};

template <typename W> constexpr int STAGE_K = 8 * PIECE<W>;      /* numbers of a row in a stage */
template <typename W> constexpr int COLUMNS = IS_NF4<W> ? 4 : 8; /* rows of x in one B */
template <typename W> constexpr int DEPTH = IS_NF4<W> ? 1 : 2;    /* stages that a warp has in flight */

/* ---- shared memory, in bytes: pairs of levels, what warps leave, x ---- */

template <typename W> struct Shared {
    static constexpr int PAIRS = IS_NF4<W> ? 256 * PAIR_STRIDE : 0;
    /* Zeros behind a row up to a whole stage; 16 bytes more, so that rows begin in other banks. */
    static __host__ __device__ int x_stride(int inner) {
        return (inner + STAGE_K<W> - 1) / STAGE_K<W> * STAGE_K<W> * 2 + 16;
    }
};

/* ---- w from memory into registers ---- */

struct Stage {
    uint4 w[2][2];    /* of row g or g+8, of the first or second 64 bytes */
    uint32_t most[2]; /* nf4: the bytes of four blocks */
};
struct Cursor { /* at the warp's next stage to load */
    const char *row; /* g of the tile */
    int stage, rows; /* rows of the block from that one on */
};

/* The first or second 64 bytes of the rows of a stage, as soon as those of the stage before have been used. Bytes
 * behind a row's end are not loaded: stale codes decode to finite values, so multiplying them by x's zeros is safe. */
template <typename W> DEVICE void load_half(Stage &st, const Cursor &next, const Few &f, int h) {
    const CudaFew &a = f.a;
    int t = threadIdx.x % 4, left = a.inner - (next.stage * 8 + t) * PIECE<W>;
    const char *at = next.row + next.stage * STAGE + t * 16 + h * 64, *blocks = next.row + a.blocks_at + next.stage * 4;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        bool row = next.rows > f.beside * r;
        read_once16_if(st.w[r][h], at + r * f.second_at, row && left > 4 * h * PIECE<W>);
        if (IS_NF4<W> && h == 1) read_once4_if(st.most[r], blocks + r * f.second_at, row);
    }
}

/* The stage may lie past this tile: advances rows until it is inside. */
DEVICE void advance_to_stage(Cursor &next, const Few &f, int stages) {
    for (; next.stage >= stages; next.stage -= stages) next.row += f.tall * f.a.row_bytes, next.rows -= f.tall;
}

template <typename W> DEVICE void load_stage(Stage &st, Cursor &next, const Few &f, int stages) {
    load_half<W>(st, next, f, 0);
    load_half<W>(st, next, f, 1);
    next.stage += WARPS;
    advance_to_stage(next, f, stages);
}

/* ---- two numbers of 16 bytes at a time, as a mma takes them ---- */

/* lane4: 4 times the lane, where its copy stands in every entry of the table. */
template <typename X> DEVICE uint32_t pair_of(uint4 v, int i, const char *table, uint32_t lane4, Nf4) {
    static_assert(PAIR_STRIDE == 256, "the byte is the second of the offset");
    return *(const uint32_t *)(table + __byte_perm(word_of(v, i / 4), lane4, 0x5504 | i % 4 << 4));
}

template <typename X>
DEVICE uint32_t pair_of(uint4 v, int i, const char *, uint32_t, Int8) {
    return int8_pair<X>(v, i);
}

/* All pairs of levels, a copy for every lane. */
template <typename W> DEVICE void make_pairs(char *shared, const Levels &levels) {
    if constexpr (IS_NF4<W>)
        for (int i = threadIdx.x; i < 256 * WARP / 4; i += blockDim.x) {
            int byte = i / (WARP / 4);
            uint32_t pair = levels_of_byte(levels, byte);
            *(uint4 *)(shared + byte * PAIR_STRIDE + i % (WARP / 4) * 16) = make_uint4(pair, pair, pair, pair);
        }
}

/* ---- x: the lane's part of B ---- */

DEVICE void copy_async16(void *to, const void *from) {
#ifdef HAVE_TENSOR_CORES
    copy16_async(shared_address(to), from);
#endif
}
DEVICE void end_of_copies() { /* of a group */
#ifdef HAVE_TENSOR_CORES
    copies_commit();
#endif
}
template <int OPEN> DEVICE void wait_for_copies() { /* but for the last OPEN groups */
#ifdef HAVE_TENSOR_CORES
    copies_wait<OPEN>();
#endif
}

/* Pieces of 8 numbers; of 16 that follow each other, the upper 8 change places two by two, so that nf4's four lanes
 * find theirs in different banks. */
DEVICE int place_of_piece(int piece) { return piece ^ (piece >> 3 & 1); }

/* Starts the copies of pieces [begin, end) of every row, zeros behind a row's end. */
template <typename W> DEVICE void copy_x(char *to, const CudaFew &a, int begin, int end) {
    int stride = Shared<W>::x_stride(a.inner);
    for (int n = 0; n < a.rows; n++)
        for (int i = begin + threadIdx.x; i < end; i += THREADS) {
            char *at = to + n * stride + place_of_piece(i) * 16;
            if (i * 8 < a.inner) copy_async16(at, (const char *)a.x + ((int64_t)n * a.inner + i * 8) * 2);
            else *(uint4 *)at = make_uint4(0, 0, 0, 0);
        }
    end_of_copies();
}

/* Where the lane finds the numbers of its column of B; a lane that has none keeps zeros. nf4: its even pieces are found
 * from `even`, its odd ones from `odd`, because of place_of_piece; int8's change places by chunk alone. */
template <typename W, int SETS> struct Column {
    uint32_t even, odd;
    int set_bytes;
    bool there[SETS];
};

template <typename W, int SETS> DEVICE Column<W, SETS> column_of_lane(uint32_t kept, const CudaFew &a) {
    int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4, row = IS_NF4<W> ? g / 2 : g;
    int stride = Shared<W>::x_stride(a.inner), shift = IS_NF4<W> ? t / 2 * 16 : 0;
    Column<W, SETS> c;
    c.even = kept + row * stride + t * (PIECE<W> * 2) + shift;
    c.odd = c.even - 2 * shift;
    c.set_bytes = COLUMNS<W> * stride;
#pragma unroll
    for (int b = 0; b < SETS; b++) c.there[b] = row + b * COLUMNS<W> < a.rows && (!IS_NF4<W> || t / 2 == g % 2);
    return c;
}

/* The numbers of the first or second 64 bytes of the stage. */
template <typename W, int SETS, bool KEPT>
DEVICE void load_x(uint4 (&x)[SETS][PIECE<W> / 8], const Column<W, SETS> &c, const CudaFew &a, int stage, int h) {
    int lane = threadIdx.x % WARP, k = (stage * 8 + h * 4 + lane % 4) * PIECE<W>;
#pragma unroll
    for (int b = 0; b < SETS; b++)
#pragma unroll
        for (int i = 0; i < PIECE<W> / 8; i++) {
            if constexpr (KEPT) {
                uint32_t at = (i % 2 ? c.odd : c.even) + b * c.set_bytes + stage * (STAGE_K<W> * 2) + h * STAGE_K<W>;
                read_shared16_if(x[b][i], at + (IS_NF4<W> ? i : i ^ h) * 16, c.there[b]);
            } else if (c.there[b]) {
                int64_t row = b * COLUMNS<W> + (IS_NF4<W> ? lane / 8 : lane / 4);
                x[b][i] = make_uint4(0, 0, 0, 0);
                if (k + 8 * i < a.inner)
                    x[b][i] = *(const uint4 *)((const char *)a.x + (row * a.inner + k + 8 * i) * 2);
            }
        }
}

/* ---- sums ---- */

template <typename W, int SETS> struct Sums { /* of rows g and g+8: C's words; nf4: of x's row t of a set */
    float at[SETS][IS_NF4<W> ? 2 : 4];
};

/* Adds up st, whose halves are then reloaded with the stage that `next` is at. */
template <typename W, typename X, int SETS, bool KEPT>
DEVICE void add_stage(Sums<W, SETS> &sum, Stage &st, uint4 (&x)[SETS][PIECE<W> / 8], const Column<W, SETS> &column,
                      const Few &f, int stage, const Cursor &next, const char *table) {
    uint32_t lane4 = threadIdx.x % WARP * 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        load_x<W, SETS, KEPT>(x, column, f.a, stage, h);
        float c[SETS][4] = {};
#pragma unroll
        for (int j = 0; j < PIECE<W> / 4; j++) {
            uint32_t w[4];
#pragma unroll
            for (int i = 0; i < 4; i++) w[i] = pair_of<X>(st.w[i % 2][h], 2 * j + i / 2, table, lane4, W());
#pragma unroll
            for (int b = 0; b < SETS; b++) {
                uint32_t b0 = word_of(x[b][j / 2], j % 2 * 2), b1 = word_of(x[b][j / 2], j % 2 * 2 + 1);
                if constexpr (IS_NF4<W>) multiply<X>(c[b], w, b0, b1);
                else multiply<X>(sum.at[b], w, b0, b1);
            }
        }
        uint32_t most[2] = {st.most[0], st.most[1]};
        load_half<W>(st, next, f, h);
        if constexpr (IS_NF4<W>)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float first = (float)(most[r] >> 16 * h & 255), second = (float)(most[r] >> (16 * h + 8) & 255);
#pragma unroll
                for (int b = 0; b < SETS; b++)
                    sum.at[b][r] = fmaf(c[b][2 * r], first, fmaf(c[b][2 * r + 1], second, sum.at[b][r]));
            }
    }
}

/* part(rows of x, WARPS, TILE) of a tile; the warp's own */
template <typename W, int SETS> DEVICE void leave_sums(float *part, const Sums<W, SETS> &sum, int rows) {
    int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int b = 0; b < SETS; b++)
#pragma unroll
        for (int i = 0; i < (IS_NF4<W> ? 2 : 4); i++) {
            int r = IS_NF4<W> ? i : i / 2, n = b * COLUMNS<W> + (IS_NF4<W> ? t : 2 * t + i % 2);
            if (n < rows) part[n * WARPS * TILE + r * 8 + g] = sum.at[b][i];
        }
}

/* The thread's number of y in a round: what its sum is multiplied by and what is added, loaded before the sum is
 * there. */
struct Place {
    int at;    /* -1: none; gated: two sums make a number */
    int first; /* warp of the tile's first stage: sums are added in the order of stages; -1: no sum */
    float scale, bias;
};

DEVICE Place place_of(const Few &f, int first_tile, int stages) {
    const CudaFew &a = f.a;
    int part = threadIdx.x / TILE, tile = part / a.rows, n = part % a.rows, in_tile = threadIdx.x % TILE;
    bool second = a.gated && in_tile >= 8;
    int in_block = (first_tile + tile) * f.tall + (second ? in_tile - 8 : in_tile);
    int64_t of_y = (int64_t)blockIdx.x * f.share + in_block, cols = a.gated ? a.cols / 2 : a.cols;
    int64_t row = second ? of_y + cols : of_y;
    Place p = {-1, -1, f.scale, 0};
    if (tile >= f.round || in_block >= f.share || of_y >= cols) return p;
    p.first = (first_tile + tile) * stages % WARPS;
    if (!second) p.at = (int)(n * cols + of_y);
    if (a.scale_at) p.scale *= *(const float *)((const char *)a.w.data + row * a.row_bytes + a.scale_at);
    if (a.bias.data) p.bias = read_number(a.bias, row);
    return p;
}

/* Gated: both halves are rounded as linear would store them, and are multiplied as in elementwise.cu. */
DEVICE void store(const Few &f, const Place &p, float total) {
    float x = fmaf(total, p.scale, p.bias);
    if (f.a.gated) {
        x = rounded(f.a.y.format, x);
        float up = __shfl_down_sync(~0u, x, 8);
        x = __fdividef(x, 1.0f + expf(-x)) * up;
    }
    if (p.at >= 0) write_number(f.a.y, p.at, x);
}

/* ---- the kernel ---- */

template <typename W, int SETS> struct Work { /* the warp's place in the block's tiles */
    Sums<W, SETS> sum;
    Place place;
    int tile, in_round, stage;
};

/* The warp has done its part of a tile; behind the last of a round the block's sums are added up in order. */
template <typename W, int SETS>
DEVICE void end_tile(Work<W, SETS> &work, const Few &f, float *parts, int tiles, int stages) {
    leave_sums<W, SETS>(parts + (work.in_round * f.a.rows * WARPS + threadIdx.x / WARP) * TILE, work.sum, f.a.rows);
    work.sum = {};
    work.stage -= stages;
    work.tile++;
    if (++work.in_round < f.round && work.tile < tiles) return;
    __syncthreads();
    const float *part = parts + threadIdx.x / TILE * WARPS * TILE + threadIdx.x % TILE;
    float total = 0;
    if (work.place.first >= 0)
#pragma unroll
        for (int k = 0; k < WARPS; k++) total += part[(work.place.first + k) % WARPS * TILE];
    store(f, work.place, total);
    if (work.tile == tiles) return;
    work.place = place_of(f, work.tile, stages);
    work.in_round = 0;
    __syncthreads();
}

template <typename W, typename X, int SETS, bool KEPT>
__global__ void __launch_bounds__(THREADS, 1) few_cores_kernel(const __grid_constant__ Few f) {
#ifdef HAVE_TENSOR_CORES
    extern __shared__ __align__(16) char shared[];
    const CudaFew &a = f.a;
    int warp = __shfl_sync(~0u, (int)threadIdx.x / WARP, 0); /* known to be the same for all lanes */
    int rows = (int)min((int64_t)f.share, (a.gated ? a.cols / 2 : a.cols) - (int64_t)blockIdx.x * f.share);
    int stages = (a.inner + STAGE_K<W> - 1) / STAGE_K<W>, tiles = (rows + f.tall - 1) / f.tall;
    int count = (tiles * stages - warp + WARPS - 1) / WARPS;
    const char *first = (const char *)a.w.data + (int64_t)blockIdx.x * f.share * a.row_bytes;
    float *parts = (float *)(shared + Shared<W>::PAIRS);
    char *kept = (char *)(parts + f.round * a.rows * WARPS * TILE);
    chain_open();
    if (!a.early) chain_wait();
    int g = threadIdx.x % WARP / 4;
    Cursor next = {first + g * a.row_bytes, warp, rows - g};
    advance_to_stage(next, f, stages);
    Stage st[DEPTH<W>] = {};
#pragma unroll
    for (int d = 0; d < DEPTH<W>; d++) load_stage<W>(st[d], next, f, stages);
    Work<W, SETS> work = {{}, place_of(f, 0, stages), 0, 0, warp};
    make_pairs<W>(shared, f.levels);
    chain_wait();
    int pieces = stages * (STAGE_K<W> / 8), soon = min(pieces, WARPS * (STAGE_K<W> / 8));
    if (KEPT) {
        copy_x<W>(kept, a, 0, soon);
        copy_x<W>(kept, a, soon, pieces);
        wait_for_copies<1>();
    }
    __syncthreads();
    auto wait_for_rest = [&] { /* of x: every warp once, before any other barrier */
        if (!KEPT || soon == pieces) return;
        wait_for_copies<0>();
        __syncthreads();
    };
    if (count <= 0) wait_for_rest();
    Column<W, SETS> column = column_of_lane<W, SETS>(shared_address(kept), a);
    uint4 x[SETS][PIECE<W> / 8] = {};
    for (int i = 0; i < count; i += DEPTH<W>)
#pragma unroll
        for (int d = 0; d < DEPTH<W>; d++) {
            if (i + d >= count) break;
            while (work.stage >= stages) end_tile(work, f, parts, tiles, stages);
            add_stage<W, X, SETS, KEPT>(work.sum, st[d], x, column, f, work.stage, next, shared);
            if (i + d == 0) wait_for_rest();
            next.stage += WARPS, work.stage += WARPS;
            advance_to_stage(next, f, stages);
        }
    while (work.tile < tiles) end_tile(work, f, parts, tiles, stages);
#endif
}

/* ---- launching ---- */

/* An equal share of the rows for every multiprocessor; a row more where that leaves some of them to the kernel behind:
 * a block here has all registers of its multiprocessor, so that no other block is resident beside it. */
static int share_of(int64_t rows) {
    enum { SPARED = 4, WORTH = 32 /* rows: one more is little, unless it begins a tile */ };
    int all = of_card(cudaDevAttrMultiProcessorCount), share = (int)blocks_for(rows, all), busy = all - SPARED;
    bool spares = (int)blocks_for(rows, share) <= busy, could = (int)blocks_for(rows, share + 1) <= busy;
    if (share > WORTH && share % TILE && !spares && could) share++;
    return share < LEAST_ROWS ? LEAST_ROWS : share;
}

/* x stays where it is when it does not fit. */
template <typename W, typename X, int SETS> static void launch(cudaStream_t s, const CudaFew &a) {
    int64_t rows = a.gated ? a.cols / 2 : a.cols;
    int share = share_of(rows);
    Few f = {.a = a, .levels = {}, .scale = 1, .share = share, .round = 1, .tall = a.gated ? TILE / 2 : TILE,
             .beside = a.gated ? 0 : TILE / 2, .second_at = (a.gated ? rows : TILE / 2) * a.row_bytes};
    f.scale = make_levels<W, X>(f.levels);
    f.round = THREADS / TILE / a.rows; /* a number of y a thread */
    int tiles = (share + f.tall - 1) / f.tall, part = a.rows * WARPS * TILE * 4;
    int x_bytes = a.rows * Shared<W>::x_stride(a.inner), room = of_card(cudaDevAttrMaxSharedMemoryPerBlockOptin);
    if (f.round > tiles) f.round = tiles;
    while (f.round > 1 && Shared<W>::PAIRS + f.round * part + x_bytes > room) f.round--;
    int bytes = Shared<W>::PAIRS + f.round * part;
    bool kept = bytes + x_bytes <= room;
    if (kept) bytes += x_bytes;
    auto kernel = kept ? few_cores_kernel<W, X, SETS, true> : few_cores_kernel<W, X, SETS, false>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    cuda_launch_chained(s, kernel, blocks_for(rows, share), THREADS, bytes, f);
}

template <typename X> static void launch_all(cudaStream_t s, const CudaFew &few) {
    CudaFew a = few;
    for (int row = 0; row < few.rows; row += CUDA_FEW_ROWS) {
        a.rows = few.rows - row < CUDA_FEW_ROWS ? few.rows - row : CUDA_FEW_ROWS;
        a.x = (const X *)few.x + (int64_t)row * few.inner;
        a.y.data = (char *)few.y.data + row * few.cols * (few.y.format == FMT_F32 ? 4 : 2);
        if (few.w.format == FMT_INT8) launch<Int8, X, 1>(s, a);
        else if (a.rows <= COLUMNS<Nf4>) launch<Nf4, X, 1>(s, a);
        else launch<Nf4, X, 2>(s, a);
    }
}

extern "C" bool cuda_launch_few_cores(cudaStream_t s, const CudaFew *a) {
    if (!takes_codes(a) || a->cols > INT32_MAX / CUDA_FEW_ROWS) return false;
    if (a->x_format == FMT_BF16) launch_all<Bf16>(s, *a);
    else launch_all<F16>(s, *a);
    return true;
}
