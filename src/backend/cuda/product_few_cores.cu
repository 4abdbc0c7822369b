/* product_few_cores.cu - the products of product_few.cu with quantised weights and 16-bit x on tensor cores, from 8.0 on:
 * what a number of w costs is reading it and making it a number, whatever the number of rows. Reference: cpu/few.c.
 *
 *   y(N,M) = x(N,K) w(M,K)^T + bias     N <= 8; w in int8 or nf4; K whole pieces of 8 numbers
 *
 * A group of 8 warps takes a tile of 16 rows of w at a time; they take turns at stages of 128 bytes of a row, and their sums
 * are added up in order. A lane (g,t) reads 16 bytes of rows g and g+8 at a time: they are its part of A (mma.cuh) whatever
 * their order in K, as long as its part of B holds the same numbers of x. Bytes of w are on their way in a ring in shared
 * memory that a lane has to itself, so that nobody waits for anybody. x lies in shared memory, too, where it fits: a
 * load from global memory would only come back behind the bytes of w that were asked for before.
 * int8: codes become numbers by their bits, the row's scale comes last. nf4: a byte finds its two levels in a table in
 * shared memory with a copy for every lane, in x's format and stretched so that they are rounded least: by 0.08 % in
 * bf16, half of what rounding the weight itself does. Lanes t = 0,1 have one block of 64 and t = 2,3 the next: B has
 * a column for either, with zeros for the other, so the sums of the two come out apart and each is multiplied by its
 * byte.
 * The first bytes of w are asked for before the kernels in front have ended (chain.cuh), where it is state.
 * Groups stay for the whole product. Bytes moved: w, and x once a multiprocessor. */
#include "backend/cuda/chain.cuh"
#include "backend/cuda/mma.cuh"
#include "backend/cuda/product_few.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
#define HAVE_TENSOR_CORES 1 /* of this kind; product.c asks for these kernels where they are */
#endif

enum { WARPS = 8, GROUP = WARPS * WARP, TILE = 16, STAGE = 128 /* bytes of a row */ };
static const float STRETCH_BF16 = 1.4365234375f, STRETCH_F16 = 1.3662109375f;

struct Int8 {};
struct Nf4 {};
struct Levels { /* in x's format */
    uint16_t at[16];
};
struct Few {
    CudaFew a;
    Levels levels;
    float scale; /* of every sum, beside the row's */
    int tiles;
};

template <typename W> constexpr bool IS_NF4 = std::is_same<W, Nf4>::value;
template <typename W> constexpr int PIECE = IS_NF4<W> ? 32 : 16;                /* numbers in 16 bytes */
template <typename W> constexpr int STAGE_K = 8 * PIECE<W>;                     /* numbers of a row in a stage */
template <typename W> constexpr int COLUMNS = IS_NF4<W> ? 4 : 8;                /* rows of x in one B */
template <typename W> constexpr int SLOT = 4 * 512 + (IS_NF4<W> ? 2 * 128 : 0); /* bytes of a warp's stage */
template <typename W> constexpr int DEPTH = IS_NF4<W> ? 2 : 3;                  /* slots of a warp's ring */
template <typename W> constexpr int MOST_GROUPS = IS_NF4<W> ? 2 : 3;            /* of a block: what registers allow */

/* ---- shared memory, in bytes: pairs of levels, what warps leave, the rings, x ---- */

template <typename W, int SETS> struct Shared {
    static constexpr int PAIRS = IS_NF4<W> ? 256 * WARP * 4 : 0, PARTS = 2 * WARPS * SETS * COLUMNS<W> * TILE * 4,
                         RING = WARPS * DEPTH<W> * SLOT<W>; /* of a group */
    /* Zeros behind a row up to a whole stage; 16 bytes more, so that rows begin in other banks. */
    static __host__ __device__ int x_stride(int inner) {
        return (inner + STAGE_K<W> - 1) / STAGE_K<W> * STAGE_K<W> * 2 + 16;
    }
    static __host__ __device__ int x_at(int groups) { return PAIRS + groups * (PARTS + RING); }
};

DEVICE uint4 read_shared16(uint32_t at) {
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(at) : "memory");
    return v;
}
DEVICE uint32_t read_shared4(uint32_t at) {
    uint32_t v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(at) : "memory");
    return v;
}
DEVICE void read_shared16_if(uint4 &v, uint32_t at, bool there) { /* else v stays */
    asm volatile("{.reg .pred p; setp.ne.b32 p, %5, 0; @p ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];}"
                 : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w) : "r"(at), "r"((int)there) : "memory");
}

/* ---- the way of w: from its rows into the ring, from there into registers ---- */

DEVICE uint32_t in_register(uint32_t x) { /* not worked out anew at every use */
    asm volatile("" : "+r"(x));
    return x;
}

template <typename W> struct Ring { /* where the warp's next stage comes from and goes to */
    const char *row[2];             /* g and g+8 */
    int tile, stage;
    int left;                                    /* numbers of the row from the lane's first 16 bytes of the stage on */
    uint32_t first, end, slot, most;             /* slots, at the lane's 16 bytes; from there to the blocks' bytes */
};

template <typename W> DEVICE void point_at(Ring<W> &r, const CudaFew &a, int tile) {
    int lane = threadIdx.x % WARP;
    r.tile = tile;
    r.stage = threadIdx.x / WARP % WARPS;
    r.left = a.inner - (r.stage * 8 + lane % 4) * PIECE<W>;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int64_t row = min((int64_t)tile * TILE + h * 8 + lane / 4, a.cols - 1);
        r.row[h] = (const char *)a.w.data + row * a.row_bytes;
    }
}

template <typename W> DEVICE uint32_t slot_behind(const Ring<W> &r, uint32_t slot) {
    return slot + SLOT<W> == r.end ? r.first : slot + SLOT<W>;
}

DEVICE void copy16_once(uint32_t to, const void *from) { /* the other half of the 128 bytes is asked for next */
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;\n" ::"r"(to), "l"(from) : "memory");
}

/* Bytes behind a row's end are not asked for: what lies in the slot is multiplied by x's zeros, and any code is a number. */
template <typename W> DEVICE void order_stage(Ring<W> &r, const Few &f, int turns, int stride) {
    uint32_t at = r.stage * STAGE + threadIdx.x % 4 * 16, blocks = f.a.blocks_at + 4 * r.stage;
    bool any = r.tile < f.tiles, there = any && r.left > 0, all = any && r.left > 4 * PIECE<W>;
    bool scaled = IS_NF4<W> && any && r.stage * STAGE_K<W> < f.a.inner; /* by every lane: it gets other lanes' sums */
#pragma unroll
    for (int h = 0; h < 2; h++) {
        if (there) copy16_once(r.slot + h * 1024, r.row[h] + at);
        if (all) copy16_once(r.slot + h * 1024 + 512, r.row[h] + at + 64);
        if (scaled) copy4_async(r.slot + r.most + h * 128, r.row[h] + blocks, true);
    }
    copies_commit();
    r.slot = slot_behind(r, r.slot);
    r.stage += WARPS;
    r.left -= WARPS * STAGE_K<W>;
    if (r.stage >= turns * WARPS) point_at(r, f.a, r.tile + stride);
}

struct Stage {
    uint4 w[2][2];    /* of row g or g+8, of the first or second 64 bytes */
    uint32_t most[2]; /* nf4: the bytes of four blocks */
};

template <typename W> DEVICE Stage fetch_stage(const Ring<W> &ring, uint32_t slot) {
    Stage st;
#pragma unroll
    for (int r = 0; r < 2; r++) {
#pragma unroll
        for (int h = 0; h < 2; h++) st.w[r][h] = read_shared16(slot + (r * 2 + h) * 512);
        st.most[r] = IS_NF4<W> ? read_shared4(slot + ring.most + r * 128) : 0;
    }
    return st;
}

/* ---- two numbers of 16 bytes at a time, as a mma takes them ---- */

DEVICE uint32_t word_of(uint4 v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

template <typename X> DEVICE uint32_t pair_of(uint4 v, int i, uint32_t table, Nf4) {
    return read_shared4(table + 4 * WARP * __byte_perm(word_of(v, i / 4), 0, 0x4440 | i % 4));
}

/* bf16: 128 + the code's low 7 bits, less 128 or, by its sign bit, 256. fp16: 1024 + (code + 128), less 1152. */
template <typename X> DEVICE uint32_t pair_of(uint4 v, int i, uint32_t, Int8) {
    uint32_t word = word_of(v, i / 2), which = i % 2 ? 0x4342 : 0x4140, pair;
    if constexpr (std::is_same<X, Bf16>::value) {
        uint32_t p = __byte_perm(word, 0, which);
        uint32_t low = (p & 0x007f007fu) | 0x43004300u, off = (p & 0x00800080u) | 0x43004300u;
        asm("{.reg .b32 m; mov.b32 m, 0xbf80bf80; fma.rn.bf16x2 %0, %2, m, %1;}" : "=r"(pair) : "r"(low), "r"(off));
    } else {
        uint32_t p = __byte_perm(word ^ 0x80808080u, 0x64646464u, which);
        asm("{.reg .b32 z; mov.b32 z, 0xe480e480; add.rn.f16x2 %0, %1, z;}" : "=r"(pair) : "r"(p));
    }
    return pair;
}

/* All pairs of levels, a copy for every lane. */
template <typename W> DEVICE void make_pairs(char *shared, const Levels &levels) {
    if constexpr (IS_NF4<W>)
        for (int i = threadIdx.x; i < 256 * WARP / 4; i += blockDim.x) {
            int byte = i / (WARP / 4);
            uint32_t pair = levels.at[byte & 15] | (uint32_t)levels.at[byte >> 4] << 16;
            ((uint4 *)shared)[i] = make_uint4(pair, pair, pair, pair);
        }
}

/* ---- x: the lane's part of B ---- */

/* Pieces of 8 numbers; of 16 that follow each other, the upper 8 change places two by two, so that nf4's four lanes find
 * theirs in different banks. */
DEVICE int place_of_piece(int piece) { return piece ^ (piece >> 3 & 1); }

template <typename W, int SETS> DEVICE void keep_x(char *to, const CudaFew &a) {
    int stride = Shared<W, SETS>::x_stride(a.inner), pieces = (stride - 16) / 16;
    for (int n = 0; n < a.rows; n++)
        for (int i = threadIdx.x; i < pieces; i += blockDim.x) {
            uint4 v = make_uint4(0, 0, 0, 0);
            if (i * 8 < a.inner) v = *(const uint4 *)((const char *)a.x + ((int64_t)n * a.inner + i * 8) * 2);
            *(uint4 *)(to + n * stride + place_of_piece(i) * 16) = v;
        }
}

/* Where the lane finds the numbers of its column of B; a lane that has none keeps zeros. nf4: its even pieces are found from
 * `even`, its odd ones from `odd`, because of place_of_piece; int8's change places by chunk alone. */
template <typename W, int SETS> struct Column {
    uint32_t even, odd;
    int set_bytes;
    bool there[SETS];
};

template <typename W, int SETS> DEVICE Column<W, SETS> column_of_lane(uint32_t kept, const CudaFew &a) {
    int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4, row = IS_NF4<W> ? g / 2 : g;
    int stride = Shared<W, SETS>::x_stride(a.inner), shift = IS_NF4<W> ? t / 2 * 16 : 0;
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
                if (k + 8 * i < a.inner) x[b][i] = *(const uint4 *)((const char *)a.x + (row * a.inner + k + 8 * i) * 2);
            }
        }
}

/* ---- sums ---- */

template <typename W, int SETS> struct Sums { /* of rows g and g+8: C's words; nf4: of x's row t of a set */
    float at[SETS][IS_NF4<W> ? 2 : 4];
};

template <typename W, typename X, int SETS, bool KEPT>
DEVICE void add_stage(Sums<W, SETS> &sum, const Stage &st, uint4 (&x)[SETS][PIECE<W> / 8], const Column<W, SETS> &column,
                      const CudaFew &a, int stage, uint32_t table) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
        load_x<W, SETS, KEPT>(x, column, a, stage, h);
        float c[SETS][4] = {};
#pragma unroll
        for (int j = 0; j < PIECE<W> / 4; j++) {
            uint32_t w[4];
#pragma unroll
            for (int i = 0; i < 4; i++) w[i] = pair_of<X>(st.w[i % 2][h], 2 * j + i / 2, table, W());
#pragma unroll
            for (int b = 0; b < SETS; b++) {
                uint32_t b0 = word_of(x[b][j / 2], j % 2 * 2), b1 = word_of(x[b][j / 2], j % 2 * 2 + 1);
                if constexpr (IS_NF4<W>) multiply<X>(c[b], w, b0, b1);
                else multiply<X>(sum.at[b], w, b0, b1);
            }
        }
        if constexpr (IS_NF4<W>)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float first = (float)(st.most[r] >> 16 * h & 255), second = (float)(st.most[r] >> (16 * h + 8) & 255);
#pragma unroll
                for (int b = 0; b < SETS; b++)
                    sum.at[b][r] = fmaf(c[b][2 * r], first, fmaf(c[b][2 * r + 1], second, sum.at[b][r]));
            }
    }
}

/* part(rows of x, TILE) */
template <typename W, int SETS> DEVICE void leave_sums(float *part, const Sums<W, SETS> &sum) {
    int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int b = 0; b < SETS; b++)
#pragma unroll
        for (int i = 0; i < (IS_NF4<W> ? 2 : 4); i++) {
            int r = IS_NF4<W> ? i : i / 2, column = IS_NF4<W> ? t : 2 * t + i % 2;
            part[(b * COLUMNS<W> + column) * TILE + r * 8 + g] = sum.at[b][i];
        }
}

/* The thread's number of y in a tile: what its sum is multiplied by and what is added, asked for before the sum is there. */
struct Place {
    int64_t at; /* -1: none */
    float scale, bias;
};

DEVICE Place place_of(const Few &f, int tile) {
    const CudaFew &a = f.a;
    int64_t row = (int64_t)tile * TILE + threadIdx.x % TILE;
    int n = threadIdx.x % GROUP / TILE;
    Place p = {-1, f.scale, 0};
    if (n >= a.rows || row >= a.cols) return p;
    p.at = n * a.cols + row;
    if (a.scale_at) p.scale *= *(const float *)((const char *)a.w.data + row * a.row_bytes + a.scale_at);
    if (a.bias.data) p.bias = read_number(a.bias, row);
    return p;
}

/* ---- the kernel ---- */

DEVICE void meet_group(int group) { /* its 256 threads */
    static_assert(GROUP == 256, "as written here");
    if (group == 0) asm volatile("bar.sync 1, 256;" ::: "memory");
    else if (group == 1) asm volatile("bar.sync 2, 256;" ::: "memory");
    else asm volatile("bar.sync 3, 256;" ::: "memory");
}

template <typename W, typename X, int SETS, bool KEPT>
__global__ void __launch_bounds__(MOST_GROUPS<W> *GROUP, 1) few_cores_kernel(const __grid_constant__ Few f) {
#ifdef HAVE_TENSOR_CORES
    using S = Shared<W, SETS>;
    constexpr int PART = SETS * COLUMNS<W> * TILE; /* floats a warp leaves */
    static_assert(PART <= GROUP, "a number of y a thread");
    extern __shared__ __align__(16) char shared[];
    const CudaFew &a = f.a;
    int warp = threadIdx.x / WARP % WARPS, group = threadIdx.x / GROUP, groups = blockDim.x / GROUP;
    int first = blockIdx.x * groups + group, stride = gridDim.x * groups;
    int stages = (a.inner + STAGE_K<W> - 1) / STAGE_K<W>, turns = (stages + WARPS - 1) / WARPS;
    float *parts = (float *)(shared + S::PAIRS + group * S::PARTS);
    char *kept = shared + S::x_at(groups);
    Ring<W> ring;
    ring.first = in_register(shared_address(shared + S::PAIRS + groups * S::PARTS + group * S::RING) +
                             warp * DEPTH<W> * SLOT<W> + threadIdx.x % WARP * 16);
    ring.end = in_register(ring.first + DEPTH<W> * SLOT<W>);
    ring.most = in_register(2048 - threadIdx.x % WARP * 12);
    ring.slot = ring.first;
    uint32_t now = ring.first, table = shared_address(shared) + threadIdx.x % WARP * 4;
    chain_open();
    make_pairs<W>(shared, f.levels);
    if (!a.early) chain_wait();
    point_at(ring, a, first);
#pragma unroll
    for (int d = 0; d < DEPTH<W> - 1; d++) order_stage(ring, f, turns, stride);
    chain_wait();
    if (KEPT) keep_x<W, SETS>(kept, a);
    __syncthreads();
    Column<W, SETS> column = column_of_lane<W, SETS>(shared_address(kept), a);
    uint4 x[SETS][PIECE<W> / 8] = {};
    int parity = 0;
    for (int tile = first; tile < f.tiles; tile += stride, parity ^= 1) {
        Place place = place_of(f, tile);
        Sums<W, SETS> sum = {};
        for (int stage = warp; stage < turns * WARPS; stage += WARPS) {
            order_stage(ring, f, turns, stride);
            copies_wait<DEPTH<W> - 1>();
            if (stage < stages)
                add_stage<W, X, SETS, KEPT>(sum, fetch_stage(ring, now), x, column, a, stage, table);
            now = slot_behind(ring, now);
        }
        float *part = parts + parity * WARPS * PART;
        leave_sums<W, SETS>(part + warp * PART, sum);
        meet_group(group); /* the other half of parts may still be read from */
        if (place.at < 0) continue;
        float total = 0;
#pragma unroll
        for (int k = 0; k < WARPS; k++) total += part[k * PART + threadIdx.x % GROUP];
        write_number(a.y, place.at, fmaf(total, place.scale, place.bias));
    }
#endif
}

/* ---- launching ---- */

static uint16_t bits_of(float x, Bf16) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}
static uint16_t bits_of(float x, F16) { return __half_as_ushort(__float2half_rn(x)); }

template <typename W, typename X> static Few few_of(const CudaFew &a, int tiles) {
    Few f = {.a = a, .levels = {}, .scale = 1, .tiles = tiles};
    if (!IS_NF4<W>) return f;
    float stretch = std::is_same<X, Bf16>::value ? STRETCH_BF16 : STRETCH_F16;
    for (int k = 0; k < 16; k++) f.levels.at[k] = bits_of(format_nf4_levels[k] * stretch, X());
    f.scale = 1 / stretch;
    return f;
}

static int of_card(cudaDeviceAttr what) {
    int device = 0, value = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&value, what, device);
    return value;
}

/* A tile for every group, so that few tiles go to many multiprocessors; fewer groups where rings and x do not find room.
 * x stays where it is when it does not fit beside one. */
template <typename W, typename X, int SETS> static void launch(cudaStream_t s, const CudaFew &a) {
    using S = Shared<W, SETS>;
    int tiles = (int)blocks_for(a.cols, TILE), processors = of_card(cudaDevAttrMultiProcessorCount);
    int room = of_card(cudaDevAttrMaxSharedMemoryPerBlockOptin), x_bytes = a.rows * S::x_stride(a.inner);
    int most = (tiles + processors - 1) / processors, groups;
    if (most > MOST_GROUPS<W>) most = MOST_GROUPS<W>;
    bool kept = S::x_at(1) + x_bytes <= room;
    for (groups = most; groups > 1 && S::x_at(groups) + (kept ? x_bytes : 0) > room;) groups--;
    int bytes = S::x_at(groups) + (kept ? x_bytes : 0), blocks = (tiles + groups - 1) / groups;
    Few f = few_of<W, X>(a, tiles);
    auto kernel = kept ? few_cores_kernel<W, X, SETS, true> : few_cores_kernel<W, X, SETS, false>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    cuda_launch_chained(s, kernel, blocks < processors ? blocks : processors, groups * GROUP, bytes, f);
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
    if (a->w.format != FMT_INT8 && a->w.format != FMT_NF4) return false;
    if (a->inner % 8 != 0 || !is_packed(a->x) || !is_packed(a->w.data)) return false;
    if (of_card(cudaDevAttrComputeCapabilityMajor) < 8) return false;
    if (a->x_format == FMT_BF16) launch_all<Bf16>(s, *a);
    else if (a->x_format == FMT_F16) launch_all<F16>(s, *a);
    else return false;
    return true;
}
