/* mma.cuh - the tensor core's words, from sm_80 on: copies into shared memory that run beside the arithmetic,
 * 8x8 blocks into registers, and products of 16x16 and 16x8 blocks with fp32 sums.
 *
 * How a warp holds blocks (lane = 4*g + t, g = 0..7, t = 0..3):
 *   A (16x16)  a[0]: (g, 2t..)   a[1]: (g+8, 2t..)   a[2]: (g, 2t+8..)   a[3]: (g+8, 2t+8..)    two numbers a word
 *   B (16x8)   b0: (2t.., g)     b1: (2t+8.., g)
 *   C (16x8)   c[0], c[1]: (g, 2t..)   c[2], c[3]: (g+8, 2t..)
 * so the C of two neighbouring products, rounded and packed, is the A of the next one. */
#ifndef BACKEND_CUDA_MMA_CUH
#define BACKEND_CUDA_MMA_CUH

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
DEVICE void load_blocks_flipped(uint32_t (&r)[4], uint32_t at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
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

#endif
