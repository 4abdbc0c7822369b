/* wgmma.cuh - wgmma, Hopper's matrix instructions (sm_90a only): products that a warpgroup, four warps in step, starts
 * and waits for, with one side or both read from shared memory.
 *
 * Tiles lie in shared memory as chunks of 64 numbers: a row of a chunk is 128 bytes, rows follow each other, chunks
 * follow each other, every chunk begins at a multiple of 1024 bytes, and the eight 16-byte pieces of row r stand at
 * their number xor r % 8. So both readings of a tile are free of bank conflicts:
 *   straight  rows are n (or m), the 64 numbers k: 16 of k further on are 32 bytes
 *   transposed   rows are k, the 64 numbers n:        16 of k further on are 16 rows, 2048 bytes
 * Registers are held as in ptx.cuh, warp w of the warpgroup having rows 16*w..16*w+15. Accumulators may be touched
 * only after a wait; `settle` keeps the compiler from reading them earlier. */
#ifndef BACKEND_CUDA_WGMMA_CUH
#define BACKEND_CUDA_WGMMA_CUH

#include "backend/cuda/ptx.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HAVE_WGMMA 1
#endif

/* CHUNK: numbers; the others: threads, bytes */
enum { WARPGROUP = 128, CHUNK = 64, CHUNK_ROW = 128, EIGHT_ROWS = 1024 };

/* Shared memory written by copies and stores is what the matrix units read next: each writer, before the barrier. */
DEVICE void shared_to_products() {
    asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}
DEVICE void products_begin() { /* registers written before belong to the products now */
    asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}
DEVICE void products_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}
template <int LEFT> DEVICE void products_wait() { /* all but the last LEFT groups are done */
    asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(LEFT) : "memory");
}
template <int N> DEVICE void settle(float (&c)[N][4]) {
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) asm volatile("" : "+f"(c[n][i])::"memory");
}

/* How the matrix unit is told of a tile (its descriptor): address, bytes from chunk to chunk (transposed readings
 * only), bytes from eight rows to the next eight, 128-byte swizzle. */
DEVICE uint64_t tile_words(uint32_t address, uint32_t chunk_bytes) {
    return (uint64_t)((address & 0x3ffffu) >> 4) | (uint64_t)(chunk_bytes >> 4) << 16 |
           (uint64_t)(EIGHT_ROWS >> 4) << 32 | 1ull << 62;
}
DEVICE uint64_t further(uint64_t words, int bytes) {
    return words + (uint64_t)(bytes >> 4);
}

#define NAMES32 \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25," \
    "%26,%27,%28,%29,%30,%31}"
#define NAMES64 \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25," \
    "%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49," \
    "%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}"

#define HELD4(n) "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])
#define HELD32 HELD4(0), HELD4(1), HELD4(2), HELD4(3), HELD4(4), HELD4(5), HELD4(6), HELD4(7)
#define HELD64 HELD32, HELD4(8), HELD4(9), HELD4(10), HELD4(11), HELD4(12), HELD4(13), HELD4(14), HELD4(15)
#define PRODUCT_SHARED(SHAPE, TYPE, NAMES, HELD, A, B, ADD) \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ADD ", 0;\n" \
                 "wgmma.mma_async.sync.aligned." SHAPE ".f32." TYPE "." TYPE \
                 " " NAMES ", " A ", " B ", p, 1, 1, 0, 0;\n}\n" \
                 : HELD \
                 : "l"(a), "l"(b), "r"(add))
#define PRODUCT_HELD(SHAPE, TYPE, NAMES, HELD, A, B) \
    asm volatile("wgmma.mma_async.sync.aligned." SHAPE ".f32." TYPE "." TYPE " " NAMES ", " A ", " B ", 1, 1, 1, 1;\n" \
                 : HELD \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))

/* c = a b^T, or += when add: 64 rows of a, 16 of k, 64 or 128 rows of b; a and b both straight, in shared memory. */
template <typename T> DEVICE void product_shared(float (&c)[8][4], uint64_t a, uint64_t b, int add) {
    if constexpr (std::is_same<T, Bf16>::value)
        PRODUCT_SHARED("m64n64k16", "bf16", NAMES32, HELD32, "%32", "%33", "%34");
    else
        PRODUCT_SHARED("m64n64k16", "f16", NAMES32, HELD32, "%32", "%33", "%34");
}
template <typename T> DEVICE void product_shared(float (&c)[16][4], uint64_t a, uint64_t b, int add) {
    if constexpr (std::is_same<T, Bf16>::value)
        PRODUCT_SHARED("m64n128k16", "bf16", NAMES64, HELD64, "%64", "%65", "%66");
    else
        PRODUCT_SHARED("m64n128k16", "f16", NAMES64, HELD64, "%64", "%65", "%66");
}

/* c += a b: 64 rows of a, in registers, 16 of k, 64 or 128 of n; b is read transposed. The compiler (nvcc 13.0) lets
 * such an a share its registers with another even when it is wanted again in the next turn of a loop: keep none. */
template <typename T> DEVICE void product_held(float (&c)[8][4], const uint32_t (&a)[4], uint64_t b) {
    if constexpr (std::is_same<T, Bf16>::value)
        PRODUCT_HELD("m64n64k16", "bf16", NAMES32, HELD32, "{%32,%33,%34,%35}", "%36");
    else
        PRODUCT_HELD("m64n64k16", "f16", NAMES32, HELD32, "{%32,%33,%34,%35}", "%36");
}
template <typename T> DEVICE void product_held(float (&c)[16][4], const uint32_t (&a)[4], uint64_t b) {
    if constexpr (std::is_same<T, Bf16>::value)
        PRODUCT_HELD("m64n128k16", "bf16", NAMES64, HELD64, "{%64,%65,%66,%67}", "%68");
    else
        PRODUCT_HELD("m64n128k16", "f16", NAMES64, HELD64, "{%64,%65,%66,%67}", "%68");
}

#undef PRODUCT_SHARED
#undef PRODUCT_HELD
#undef HELD4
#undef HELD32
#undef HELD64
#undef NAMES32
#undef NAMES64

/* ---- whole tiles ---- */

template <int ROWS> constexpr int CHUNK_BYTES = ROWS * CHUNK_ROW;

/* c = a b^T over D numbers; a: 64 rows of a tile of A_ROWS, b: a tile of B_ROWS, both in shared memory. */
template <typename T, int D, int A_ROWS, int B_ROWS>
DEVICE void tile_product(float (&c)[B_ROWS / 8][4], uint64_t a, uint64_t b) {
#pragma unroll
    for (int k = 0; k < D / 16; k++)
        product_shared<T>(c, further(a, k / 4 * CHUNK_BYTES<A_ROWS> + k % 4 * 32),
                          further(b, k / 4 * CHUNK_BYTES<B_ROWS> + k % 4 * 32), k > 0);
}

/* c += a b; a: 64 x B_ROWS in registers, b: a tile of B_ROWS rows of D numbers, read transposed. */
template <typename T, int D, int B_ROWS>
DEVICE void tile_add(float (&c)[D / 8][4], const uint32_t (&a)[B_ROWS / 16][4], uint64_t b) {
#pragma unroll
    for (int k = 0; k < B_ROWS / 16; k++) product_held<T>(c, a[k], further(b, k * 2 * EIGHT_ROWS));
}

/* ---- copies into tiles ---- */

/* ROWS rows of a head into a tile by THREADS threads; rows from `there` on become zeros and are not read. Eight
 * neighbours bring 128 bytes of a row. Instructions count here as much as in the softmax: a whole tile is copied
 * without a question asked, only a last one by the row. */
template <int D, int ROWS, int THREADS>
DEVICE void copy_tile(uint32_t tile, const void *head, int stride, int there) {
    constexpr int AT_ONCE = THREADS / 8;
    static_assert(AT_ONCE % 8 == 0, "a thread's rows are swizzled alike");
    int thread = thread_anew(), row = thread / 8, piece = thread % 8;
    uint32_t to = tile + row * CHUNK_ROW + ((piece ^ (row & 7)) * 16);
    const char *from = (const char *)head + (row * stride * 2 + piece * 16);
    int further_on = AT_ONCE * stride * 2;
    if (ROWS % AT_ONCE == 0 && there >= ROWS) {
#pragma unroll
        for (int r = 0; r < ROWS; r += AT_ONCE, from += further_on)
#pragma unroll
            for (int c = 0; c < D / CHUNK; c++)
                copy16_async(to + c * CHUNK_BYTES<ROWS> + r * CHUNK_ROW, from + c * CHUNK_ROW);
        return;
    }
#pragma unroll 1
    for (int r = row; r < ROWS; r += AT_ONCE, from += further_on, to += AT_ONCE * CHUNK_ROW)
#pragma unroll
        for (int c = 0; c < D / CHUNK; c++) /* a row that is not there is never pointed at */
            copy16_async(to + c * CHUNK_BYTES<ROWS>, r < there ? from + c * CHUNK_ROW : (const char *)head, r < there);
}

#endif
