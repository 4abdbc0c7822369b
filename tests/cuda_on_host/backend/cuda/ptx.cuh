/* ptx.cuh - the functions of src/backend/cuda/ptx.cuh with bodies for the processor, each with the contract it has
 * there: what a lane does alone is done at once, what a warp does together when all its lanes are there. */
#ifndef BACKEND_CUDA_PTX_CUH
#define BACKEND_CUDA_PTX_CUH

#include "backend/cuda/vectors.cuh"

DEVICE uint32_t shared_address(const void *p) { return host_shared_address(p); }

/* ---- copies into shared memory ---- */

static inline void host_copy(uint32_t to, const void *from, int bytes, bool there, HostPlace at) {
    if (there && (uintptr_t)from % (unsigned)bytes)
        host_fail("an asynchronous copy from an address that is not aligned");
    host_copy_async(host_shared_at(to, bytes, at), there ? from : nullptr, bytes);
}
DEVICE void copy16_async(uint32_t to, const void *from, bool there, HOST_AT) {
    host_copy(to, from, 16, there, HOST_HERE);
}
DEVICE void copy16_async(uint32_t to, const void *from, HOST_AT) { host_copy(to, from, 16, true, HOST_HERE); }
DEVICE void copy8_async(uint32_t to, const void *from, bool there, HOST_AT) {
    host_copy(to, from, 8, there, HOST_HERE);
}
DEVICE void copy4_async(uint32_t to, const void *from, bool there, HOST_AT) {
    host_copy(to, from, 4, there, HOST_HERE);
}
DEVICE void copy16_once(uint32_t to, const void *from, bool there, HOST_AT) {
    host_copy(to, from, 16, there, HOST_HERE);
}
DEVICE void copies_commit() { host_copies_commit(); }
template <int LEFT> DEVICE void copies_wait() { host_copies_wait(LEFT); }

/* ---- blocks of 8x8 numbers of 16 bits ---- */

struct HostBlocks {
    const void *row; /* that this lane names */
    uint32_t word[4];
};
static inline uint16_t host_number(void *const *of_lane, int block, int row, int col) {
    return ((const uint16_t *)((const HostBlocks *)of_lane[block * 8 + row])->row)[col];
}
template <bool FLIPPED> void host_load_blocks(void *const *of_lane) {
    for (int lane = 0; lane < WARP; lane++)
        for (int b = 0; b < 4; b++) {
            int row = lane / 4, col = lane % 4 * 2;
            uint32_t low = FLIPPED ? host_number(of_lane, b, col, row) : host_number(of_lane, b, row, col);
            uint32_t high = FLIPPED ? host_number(of_lane, b, col + 1, row) : host_number(of_lane, b, row, col + 1);
            ((HostBlocks *)of_lane[lane])->word[b] = low | high << 16;
        }
}
template <bool FLIPPED> void host_blocks(uint32_t (&r)[4], uint32_t address, HostPlace at) {
    HostBlocks mine = {host_shared_at(address, 16, at), {}};
    host_converge(~0u, false, &mine, host_load_blocks<FLIPPED>, at);
    memcpy(r, mine.word, sizeof r);
}
DEVICE void load_blocks(uint32_t (&r)[4], uint32_t address, HOST_AT) { host_blocks<false>(r, address, HOST_HERE); }
DEVICE void load_blocks_transposed(uint32_t (&r)[4], uint32_t address, HOST_AT) {
    host_blocks<true>(r, address, HOST_HERE);
}

struct HostFlip {
    uint32_t mine, transposed;
};
static inline void host_flip(void *const *of_lane) {
    auto number = [&](int row, int col) {
        return ((const HostFlip *)of_lane[row * 4 + col / 2])->mine >> (col % 2 * 16) & 0xffffu;
    };
    for (int lane = 0; lane < WARP; lane++)
        ((HostFlip *)of_lane[lane])->transposed =
            number(lane % 4 * 2, lane / 4) | number(lane % 4 * 2 + 1, lane / 4) << 16;
}
DEVICE uint32_t transpose_block(uint32_t w, HOST_AT) {
    HostFlip f = {w, 0};
    host_converge(~0u, false, &f, host_flip, HOST_HERE);
    return f.transposed;
}

/* ---- c += a b, in the order of the sum ---- */

struct HostProduct {
    float *c;
    const uint32_t *a;
    uint32_t b[2];
};
template <typename T> void host_multiply(void *const *of_lane) {
    float a[16][16], b[16][8], c[16][8];
    for (int lane = 0; lane < WARP; lane++) {
        const HostProduct *p = (const HostProduct *)of_lane[lane];
        int g = lane / 4, t = lane % 4 * 2;
        for (int i = 0; i < 4; i++) {
            float2 v = unpack(p->a[i], T());
            a[g + i % 2 * 8][t + i / 2 * 8] = v.x, a[g + i % 2 * 8][t + i / 2 * 8 + 1] = v.y;
            c[g + i / 2 * 8][t + i % 2] = p->c[i];
        }
        for (int i = 0; i < 2; i++) {
            float2 v = unpack(p->b[i], T());
            b[t + i * 8][g] = v.x, b[t + i * 8 + 1][g] = v.y;
        }
    }
    for (int m = 0; m < 16; m++)
        for (int k = 0; k < 16; k++)
            for (int n = 0; n < 8; n++) c[m][n] += a[m][k] * b[k][n];
    for (int lane = 0; lane < WARP; lane++)
        for (int i = 0; i < 4; i++)
            ((HostProduct *)of_lane[lane])->c[i] = c[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
}
template <typename T>
DEVICE void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, HOST_AT) {
    HostProduct p = {c, a, {b0, b1}};
    host_converge(~0u, false, &p, host_multiply<T>, HOST_HERE);
}

/* ---- numbers ---- */

template <typename T> DEVICE uint32_t pack_word(float low, float high) { return pack<T>(low, high); }
template <typename T> DEVICE uint32_t difference(uint32_t a, uint32_t b, T) {
    float2 x = unpack(a, T()), y = unpack(b, T());
    return pack<T>(x.x - y.x, x.y - y.y);
}
static const float LOG2_E = 1.44269504f;
DEVICE float exp2_fast(float x) { return exp2f(x); }
DEVICE float quick_root(float x) { return sqrtf(x); }
DEVICE float quick_inverse(float x) { return 1 / x; }

/* ---- memory ---- */

template <typename V> V host_read_shared(uint32_t address, HostPlace at) {
    V v;
    memcpy(&v, host_shared_at(address, (int)sizeof v, at), sizeof v);
    return v;
}
DEVICE uint4 read_shared16(uint32_t address, HOST_AT) { return host_read_shared<uint4>(address, HOST_HERE); }
DEVICE uint2 read_shared8(uint32_t address, HOST_AT) { return host_read_shared<uint2>(address, HOST_HERE); }
DEVICE uint32_t read_shared4(uint32_t address, HOST_AT) { return host_read_shared<uint32_t>(address, HOST_HERE); }
DEVICE void read_shared16_if(uint4 &v, uint32_t address, bool there, HOST_AT) {
    if (there) v = host_read_shared<uint4>(address, HOST_HERE);
}
DEVICE void read_once16_if(uint4 &v, const char *at, bool there) {
    if (there) v = *(const uint4 *)at;
}
DEVICE void read_once4_if(uint32_t &v, const char *at, bool there) {
    if (there) v = *(const uint32_t *)at;
}
DEVICE void prefetch(const void *at) {}
DEVICE void add4(float *to, float4 x) {
    if ((uintptr_t)to % 16) host_fail("four sums at an address that is not aligned");
    to[0] += x.x, to[1] += x.y, to[2] += x.z, to[3] += x.w;
}

/* ---- threads ---- */

DEVICE void sync_some(int number, int threads, HOST_AT) { host_sync_some(number, threads, HOST_HERE); }
DEVICE int thread_anew() { return (int)threadIdx.x; }

#endif
