/* cache_tiles.cuh - K and V of a KV cache, and q, k and v of a token, loaded from memory straight into tensor core
 * operands: which lane reads which numbers of which slot.
 *
 *   scores(slot, head) = K q^T     A = K: a lane reads K_EACH neighbouring numbers of a slot, so what the product calls
 *                                  a column is another number of the head than its place says; q is read the same way
 *   o(number, head)   += V^T P     A = V^T: a lane reads V_EACH neighbours of slots 2t, 2t+1, 2t+8, 2t+9 and pairs the
 *                                  slots' halves; P is transposed by movmatrix; a row of the product is a number as it
 *                                  is read
 *
 * so nothing passes through shared memory and every read is as wide as the head allows. */
#ifndef BACKEND_CUDA_CACHE_TILES_CUH
#define BACKEND_CUDA_CACHE_TILES_CUH

#include "backend/cuda/attend.cuh"
#include "backend/cuda/rope.cuh"

enum { HEADS = DEVICE_CACHE_HEADS, TILE = DEVICE_CACHE_TILE };
static_assert(HEADS == 8 && TILE == 16, "the shape of a product");

/* How a head of D numbers is read. */
template <int D> struct Cut {
    static constexpr int K_EACH = D % 32 == 0 ? 8 : 4, K_PIECES = D / (4 * K_EACH);
    static constexpr int V_EACH = D % 64 == 0 ? 8 : D % 32 == 0 ? 4 : 2, V_PIECES = D / (8 * V_EACH);
    /* a warp has in flight: two where registers allow it, in blocks of eight warps always */
    template <typename C, int WARPS> static constexpr int TILES = D * sizeof(C) <= 128 || WARPS >= 8 ? 2 : 1;
};

#ifdef HAVE_TENSOR_CORES
/* ---- numbers of the cache ---- */

/* N numbers in a row as they are stored, in words. */
template <typename C, int N> struct Raw {
    static constexpr int BYTES = N * (int)sizeof(C), WORDS = (BYTES + 3) / 4;
    uint32_t w[WORDS];
    DEVICE void load(const C *p) {
        if constexpr (BYTES == 16) {
            uint4 v = *(const uint4 *)p;
            w[0] = v.x, w[1] = v.y, w[2] = v.z, w[3] = v.w;
        } else if constexpr (BYTES == 8) {
            uint2 v = *(const uint2 *)p;
            w[0] = v.x, w[1] = v.y;
        } else if constexpr (BYTES == 4) {
            w[0] = *(const uint32_t *)p;
        } else {
            w[0] = *(const uint16_t *)p;
        }
    }
};

/* Two codes, a byte in each half, as two numbers: their bits become the last ones of a number whose steps are 1. */
DEVICE uint32_t two_codes(uint32_t v, Bf16) {
    /* 128 + 7 bits; 128 or 256 */
    uint32_t low = (v & 0x007f007fu) | 0x43004300u, sign = (v & 0x00800080u) | 0x43004300u;
    return difference(low, sign, Bf16());
}
DEVICE uint32_t two_codes(uint32_t v, F16) {
    return difference((v ^ 0x00800080u) | 0x64006400u, 0x64806480u, F16()); /* 1024 + 128 + code */
}

/* Word i of a piece: two neighbouring numbers in T. */
template <typename T, typename C, int N> DEVICE uint32_t word_of(const Raw<C, N> &r, int i) {
    if constexpr (std::is_same<C, int8_t>::value)
        return two_codes(__byte_perm(r.w[i / 2], 0, i % 2 ? 0x4342 : 0x4140), T());
    else
        return r.w[i];
}

DEVICE float scale_at(const int8_t *head, int at) { return *(const float *)(head + at); }
template <typename C> DEVICE float scale_at(const C *, int) { return 1.0f; }

/* ---- a tile ---- */

template <typename T, typename C, int D> struct Keys { /* slots g and g+8 */
    Raw<C, Cut<D>::K_EACH> piece[2][Cut<D>::K_PIECES];
    float scale[2];
    /* Of the `there` slots whose heads stand from `first` on, those from `slot` on; the last stands for those behind
     * it. */
    DEVICE void load(const C *first, int stride, int there, int row_scale, int slot) {
        int lane = threadIdx.x % WARP;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const C *head = first + min(slot + lane / 4 + 8 * r, there - 1) * stride;
#pragma unroll
            for (int p = 0; p < Cut<D>::K_PIECES; p++) piece[r][p].load(head + (lane % 4 + p * 4) * Cut<D>::K_EACH);
            scale[r] = scale_at(head, row_scale);
        }
    }
    /* Slot `last`, and those behind it, are this one. */
    DEVICE void replace(const C *head, int last, int slot) {
        int lane = threadIdx.x % WARP;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            if (slot + lane / 4 + 8 * r < last) continue;
#pragma unroll
            for (int p = 0; p < Cut<D>::K_PIECES; p++) piece[r][p].load(head + (lane % 4 + p * 4) * Cut<D>::K_EACH);
            scale[r] = 1;
        }
    }
    /* s: (slot g, heads 2t and 2t+1), (slot g+8, the same) */
    DEVICE void multiply_by(float (&s)[4], const uint2 (*q)[WARP]) const {
        constexpr int STEPS = Cut<D>::K_EACH / 4;
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
            const int p = i / STEPS, w = i % STEPS * 2;
            uint32_t a[4] = {word_of<T>(piece[0][p], w), word_of<T>(piece[1][p], w), word_of<T>(piece[0][p], w + 1),
                             word_of<T>(piece[1][p], w + 1)};
            uint2 b = q[i][threadIdx.x % WARP];
            multiply<T>(s, a, b.x, b.y);
        }
        s[0] *= scale[0], s[1] *= scale[0], s[2] *= scale[1], s[3] *= scale[1];
    }
};

template <typename T, typename C, int D> struct Values { /* slots 2t, 2t+1, 2t+8, 2t+9; scales of slots g and g+8 */
    Raw<C, Cut<D>::V_EACH> piece[4][Cut<D>::V_PIECES];
    float scale[2];
    DEVICE void load(const C *first, int stride, int there, int row_scale, int slot) {
        int lane = threadIdx.x % WARP;
#pragma unroll
        for (int r = 0; r < 4; r++) {
            const C *head = first + min(slot + lane % 4 * 2 + r % 2 + r / 2 * 8, there - 1) * stride;
#pragma unroll
            for (int p = 0; p < Cut<D>::V_PIECES; p++) piece[r][p].load(head + (lane / 4 + p * 8) * Cut<D>::V_EACH);
        }
#pragma unroll
        for (int r = 0; r < 2; r++)
            scale[r] = scale_at(first + min(slot + lane / 4 + 8 * r, there - 1) * stride, row_scale);
    }
    DEVICE void replace(const C *head, int last, int slot) {
        int lane = threadIdx.x % WARP;
#pragma unroll
        for (int r = 0; r < 4; r++) {
            if (slot + lane % 4 * 2 + r % 2 + r / 2 * 8 < last) continue;
#pragma unroll
            for (int p = 0; p < Cut<D>::V_PIECES; p++) piece[r][p].load(head + (lane / 4 + p * 8) * Cut<D>::V_EACH);
        }
        scale[0] = scale[1] = 1;
    }
    /* o[i]: (first number of pair i, heads 2t and 2t+1), (second number, the same); pairs in reading order */
    DEVICE void add_to(float (&o)[D / 16][4], uint32_t p0, uint32_t p1) const {
        constexpr int PAIRS = Cut<D>::V_EACH / 2;
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
            uint32_t w[4];
#pragma unroll
            for (int r = 0; r < 4; r++) w[r] = word_of<T>(piece[r][i / PAIRS], i % PAIRS);
            uint32_t a[4] = {__byte_perm(w[0], w[1], 0x5410), __byte_perm(w[0], w[1], 0x7632),
                             __byte_perm(w[2], w[3], 0x5410), __byte_perm(w[2], w[3], 0x7632)};
            multiply<T>(o[i], a, p0, p1);
        }
    }
};

/* q of the block's heads, as the products of all warps take it: (step of 16 numbers, lane), zeros behind the last head.
 * The warps bring its pieces by turns. */
template <typename T, int D, int WARPS> struct Query {
    static constexpr int EACH = Cut<D>::K_EACH, PIECES = Cut<D>::K_PIECES, MINE = (PIECES + WARPS - 1) / WARPS;
    Raw<T, EACH> piece[MINE];
    DEVICE Query(const T *first, int heads) {
        int lane = threadIdx.x % WARP;
#pragma unroll
        for (int m = 0; m < MINE; m++) {
            int p = threadIdx.x / WARP + m * WARPS;
#pragma unroll
            for (int i = 0; i < EACH / 2; i++) piece[m].w[i] = 0;
            if (p < PIECES && lane / 4 < heads) piece[m].load(first + lane / 4 * D + (lane % 4 + p * 4) * EACH);
        }
    }
    DEVICE void put(uint2 (*q)[WARP]) const {
        int lane = threadIdx.x % WARP;
#pragma unroll
        for (int m = 0; m < MINE; m++) {
            int p = threadIdx.x / WARP + m * WARPS;
#pragma unroll
            for (int i = 0; i < EACH / 4; i++)
                if (p < PIECES) q[p * EACH / 4 + i][lane] = make_uint2(piece[m].w[2 * i], piece[m].w[2 * i + 1]);
        }
    }
};

/* q, k and v of a new token, this block's heads: a thread has two pieces of one of them that rotate together. */
template <typename T, int D> struct NewToken {
    static constexpr int EACH = Cut<D>::K_EACH, PAIRS = D / 2 / EACH, KEY = HEADS, VALUE = HEADS + 1;
    static_assert((VALUE + 1) * PAIRS <= 4 * WARP, "a thread each");
    int head, pair;
    Raw<T, EACH> half[2];

    /* k and v only if they are wanted; zeros behind the last query head */
    DEVICE NewToken(int task, const T *q, const T *k, int v_offset, int heads, bool wanted) {
        head = task / PAIRS, pair = task % PAIRS;
        const T *from = (head < KEY ? q + head * D : k + (head - KEY) * v_offset) + pair * EACH;
        bool there = head < heads || (wanted && head >= KEY && head <= VALUE);
#pragma unroll
        for (int h = 0; h < 2; h++) {
#pragma unroll
            for (int i = 0; i < EACH / 2; i++) half[h].w[i] = 0;
            if (there) half[h].load(from + h * (D / 2));
        }
    }
    DEVICE void rotate(const float *cosine, const float *sine) { /* and round, as rope_put does */
        cosine += pair * EACH, sine += pair * EACH;
#pragma unroll
        for (int i = 0; i < EACH / 2; i++) {
            float2 a = unpack(half[0].w[i], T()), b = unpack(half[1].w[i], T());
            if (head <= KEY) {
                rotate_pair(a.x, b.x, cosine[2 * i], sine[2 * i]);
                rotate_pair(a.y, b.y, cosine[2 * i + 1], sine[2 * i + 1]);
            }
            half[0].w[i] = pack<T>(a.x, a.y), half[1].w[i] = pack<T>(b.x, b.y);
        }
    }
    /* Query heads as Query puts them; k and v in a row, and into the cache unless that is NULL. */
    DEVICE void put(uint2 (*q)[WARP], T *own, T *cache, int v_offset, bool wanted) const {
        if (head > VALUE || (head >= KEY && !wanted)) return;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int piece = pair + h * PAIRS, at = piece * EACH;
#pragma unroll
            for (int i = 0; i < EACH / 4; i++) {
                uint2 w = make_uint2(half[h].w[2 * i], half[h].w[2 * i + 1]);
                if (head < KEY) q[piece / 4 * (EACH / 4) + i][head * 4 + piece % 4] = w;
                else *(uint2 *)(own + (head - KEY) * D + at + 4 * i) = w;
                if (head >= KEY && cache) *(uint2 *)(cache + (head - KEY) * v_offset + at + 4 * i) = w;
            }
        }
    }
};
#endif

#endif
