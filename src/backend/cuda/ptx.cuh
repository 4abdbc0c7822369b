/* ptx.cuh - instructions that CUDA C++ has no name for, a function each (those of 9.0's matrix units and clusters are
 * in wgmma.cuh and cluster.cuh). From sm_80 on: copies into shared memory that run beside the arithmetic, 8x8 blocks
 * into registers, and products of 16x16 and 16x8 blocks with fp32 sums. tests/cuda_on_host/backend/cuda/ptx.cuh has
 * the same functions for the processor.
 *
 * How a warp holds blocks (lane = 4*g + t, g = 0..7, t = 0..3):
 *   A (16x16)  a[0]: (g, 2t..)   a[1]: (g+8, 2t..)   a[2]: (g, 2t+8..)   a[3]: (g+8, 2t+8..)    two numbers a word
 *   B (16x8)   b0: (2t.., g)     b1: (2t+8.., g)
 *   C (16x8)   c[0], c[1]: (g, 2t..)   c[2], c[3]: (g+8, 2t..)
 * so the C of two neighbouring products, rounded and packed, is the A of the next one. */
#ifndef BACKEND_CUDA_PTX_CUH
#define BACKEND_CUDA_PTX_CUH

#include "backend/cuda/vectors.cuh"

DEVICE uint32_t shared_address(const void *p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* 16 bytes from global to shared memory; `there` false: zeros, and nothing is read. */
DEVICE void copy16_async(uint32_t to, const void *from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from), "r"(there ? 16 : 0)
                 : "memory");
}
DEVICE void copy16_async(uint32_t to, const void *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(to), "l"(from) : "memory");
}
DEVICE void copy8_async(uint32_t to, const void *from, bool there) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;\n" ::"r"(to), "l"(from), "r"(there ? 8 : 0)
                 : "memory");
}
DEVICE void copy4_async(uint32_t to, const void *from, bool there) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(to), "l"(from), "r"(there ? 4 : 0)
                 : "memory");
}
/* The same, and the second-level cache is asked for the 128 bytes around. */
DEVICE void copy16_once(uint32_t to, const void *from, bool there) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from), "r"(there ? 16 : 0)
                 : "memory");
}
DEVICE void copies_commit() {
    asm volatile("cp.async.commit_group;\n" ::: "memory");
}
template <int LEFT> DEVICE void copies_wait() { /* all but the last LEFT groups have arrived (for this thread) */
    asm volatile("cp.async.wait_group %0;\n" ::"n"(LEFT) : "memory");
}

/* Four 8x8 blocks; lane i gives the address of row i%8 of block i/8. Flipped: as if the blocks were transposed. */
DEVICE void load_blocks(uint32_t (&r)[4], uint32_t at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}
DEVICE void load_blocks_transposed(uint32_t (&r)[4], uint32_t at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

DEVICE uint32_t transpose_block(uint32_t w) { /* an 8x8 block, a word a lane */
    uint32_t t;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;\n" : "=r"(t) : "r"(w));
    return t;
}

/* c += a b */
template <typename T> DEVICE void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    if constexpr (std::is_same<T, Bf16>::value)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
            "{%0,%1,%2,%3};\n"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
            "{%0,%1,%2,%3};\n"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* pack (vectors.cuh), which the compiler does not look into: what is unpacked again costs one instruction a number. */
template <typename T> DEVICE uint32_t pack_word(float low, float high) {
    uint32_t w;
    if constexpr (std::is_same<T, Bf16>::value)
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(w) : "f"(high), "f"(low));
    else
        asm("cvt.rn.f16x2.f32 %0, %1, %2;\n" : "=r"(w) : "f"(high), "f"(low));
    return w;
}

/* a - b, two numbers a word: exact where both are whole numbers of one scale. */
DEVICE uint32_t difference(uint32_t a, uint32_t b, Bf16) {
    uint32_t d;
    asm("{ .reg .b32 one; mov.b32 one, 0xbf80bf80;\n fma.rn.bf16x2 %0, %2, one, %1; }\n" : "=r"(d) : "r"(a), "r"(b));
    return d;
}
DEVICE uint32_t difference(uint32_t a, uint32_t b, F16) {
    uint32_t d;
    asm("sub.rn.f16x2 %0, %1, %2;\n" : "=r"(d) : "r"(a), "r"(b));
    return d;
}

/* Shared memory by its 32-bit address; read_shared16_if: v stays where there is nothing to read. */
DEVICE uint4 read_shared16(uint32_t at) {
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(at)
                 : "memory");
    return v;
}
DEVICE uint2 read_shared8(uint32_t at) {
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(at) : "memory");
    return v;
}
DEVICE uint32_t read_shared4(uint32_t at) {
    uint32_t v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(at) : "memory");
    return v;
}
DEVICE void read_shared16_if(uint4 &v, uint32_t at, bool there) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %5, 0; @p ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];}"
                 : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w) : "r"(at), "r"((int)there) : "memory");
}

/* Global memory that no other thread reads and nobody writes; v stays where there is nothing to read. */
DEVICE void read_once16_if(uint4 &v, const char *at, bool there) {
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p, %5, 0; @p ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];}"
        : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
        : "l"(at), "r"((int)there));
}
DEVICE void read_once4_if(uint32_t &v, const char *at, bool there) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %2, 0; @p ld.global.nc.u32 %0, [%1];}"
                 : "+r"(v)
                 : "l"(at), "r"((int)there));
}
DEVICE void prefetch(const void *at) { /* into the second-level cache */
    asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
}

/* Four sums in global memory, 16 bytes aligned, in the order in which blocks come; one request from sm_90 on. */
DEVICE void add4(float *to, float4 x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("red.global.add.v4.f32 [%0], {%1,%2,%3,%4};\n" ::"l"(to), "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w)
                 : "memory");
#else
    atomicAdd(to, x.x), atomicAdd(to + 1, x.y), atomicAdd(to + 2, x.z), atomicAdd(to + 3, x.w);
#endif
}

/* Barrier 0 < number < 16 of so many threads, whole warps. */
DEVICE void sync_some(int number, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

/* threadIdx.x, read anew: what is worked out from it is not kept in registers from one use to the next. */
DEVICE int thread_anew() {
    int x;
    asm volatile("mov.u32 %0, %%tid.x;\n" : "=r"(x));
    return x;
}

static const float LOG2_E = 1.44269504f;
DEVICE float exp2_fast(float x) { /* 2 units in the last place; 2^-infinity is 0 */
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
    return y;
}

/* To two units in the last place of fp32. */
DEVICE float quick_root(float x) {
    float y;
    asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEVICE float quick_inverse(float x) { /* subnormal numbers count as 0 */
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#endif
