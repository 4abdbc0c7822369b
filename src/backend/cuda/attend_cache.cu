/* attend_cache.cu - one token at a time over its cache, by tensor cores: what a decode step attends with. Reference:
 * cpu/cache.c.
 *
 * Heads of 32, 64, 80, 96 or 128 numbers in bf16 or fp16, the cache in the same or in int8, sm_80 on; cache.cu has
 * the others. A block per token, KV head (up to HEADS of its query heads together) and split of the slots seen; a warp
 * takes one or two tiles of TILE slots at a time, K and V of which go from memory to registers and into the products:
 *
 *   scores(slot, head) = K q^T     A = K: a lane reads K_EACH neighbouring numbers of a slot, so what the product calls
 *                                  a column is another number of the head than its place says; q is read the same way
 *   o(number, head)   += V^T P     A = V^T: a lane reads V_EACH neighbours of slots 2t, 2t+1, 2t+8, 2t+9 and pairs the
 *                                  slots' halves; P is flipped by movmatrix; a row of the product is a number as read
 *
 * so nothing passes through shared memory, every read is as wide as the head allows, and K (V) of the next tile is on its
 * way while the products of V (K) run. The softmax is online, a warp for itself; P is rounded to the activations' format.
 * Then the warps' sums are joined in order, and those of the splits: from sm_90 on the splits of a head are a cluster
 * and write into each other's shared memory, each joining a share of the numbers; before that they leave (o, top, sum) in
 * the workspace, and cache.cu joins them. An idle token (position -1) reads nothing.
 * int8: codes are exact in 16 bits; the scale of a key goes onto its score, that of a value onto its probability.
 *
 * Together with rope_put (NEW, not of int8): q, k and v of the token come unturned. A block turns its own heads on their
 * way, and the one whose split ends with the token's own slot has that key and value from there; the first bunch of heads
 * puts them into the cache. Nobody reads that slot from memory: other bunches have it from qkv likewise, and other tokens
 * have other rows. What is read was there before the play (the caller knows that no other step of it writes this cache),
 * so K and V are asked for, and the angles made, before the wait for the kernel in front. */
#include "backend/cuda/attend.cuh"
#include "backend/cuda/cache_kernels.h"
#include "backend/cuda/chain.cuh"
#include "backend/cuda/cluster.cuh"
#include "backend/cuda/rope.cuh"

enum { HEADS = DEVICE_CACHE_HEADS, TILE = DEVICE_CACHE_TILE };
static_assert(HEADS == 8 && TILE == 16, "the shape of a product");

/* How a head of D numbers is read. */
template <int D> struct Cut {
    static constexpr int K_EACH = D % 32 == 0 ? 8 : 4, K_PIECES = D / (4 * K_EACH);
    static constexpr int V_EACH = D % 64 == 0 ? 8 : D % 32 == 0 ? 4 : 2, V_PIECES = D / (8 * V_EACH);
    template <typename C> static constexpr int tiles() { return D * sizeof(C) <= 128 ? 2 : 1; } /* a warp has on their way */
};

template <typename Fn> static void with_cache_dim(int dim, Fn fn) {
    if (dim == 32) fn(std::integral_constant<int, 32>());
    else with_dim(dim, fn);
}

#ifdef HAVE_TENSOR_CORES
/* ---- numbers of the cache ---- */

/* N numbers in a row as they are stored, in words. */
template <typename C, int N> struct Raw {
    static constexpr int BYTES = N * (int)sizeof(C), WORDS = (BYTES + 3) / 4;
    uint32_t w[WORDS];
    DEVICE void take(const C *p) {
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

/* Two codes, a byte in each half, as two numbers: their bits become the last ones of a number whose steps are 1. */
DEVICE uint32_t two_codes(uint32_t v, Bf16) {
    uint32_t low = (v & 0x007f007fu) | 0x43004300u, sign = (v & 0x00800080u) | 0x43004300u; /* 128 + 7 bits; 128 or 256 */
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
    /* Of the `there` slots whose heads stand from `first` on, those from `slot` on; the last stands for those behind it. */
    DEVICE void take(const C *first, int stride, int there, int row_scale, int slot) {
        int lane = threadIdx.x % WARP;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const C *head = first + min(slot + lane / 4 + 8 * r, there - 1) * stride;
#pragma unroll
            for (int p = 0; p < Cut<D>::K_PIECES; p++) piece[r][p].take(head + (lane % 4 + p * 4) * Cut<D>::K_EACH);
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
            for (int p = 0; p < Cut<D>::K_PIECES; p++) piece[r][p].take(head + (lane % 4 + p * 4) * Cut<D>::K_EACH);
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
    DEVICE void take(const C *first, int stride, int there, int row_scale, int slot) {
        int lane = threadIdx.x % WARP;
#pragma unroll
        for (int r = 0; r < 4; r++) {
            const C *head = first + min(slot + lane % 4 * 2 + r % 2 + r / 2 * 8, there - 1) * stride;
#pragma unroll
            for (int p = 0; p < Cut<D>::V_PIECES; p++) piece[r][p].take(head + (lane / 4 + p * 8) * Cut<D>::V_EACH);
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
            for (int p = 0; p < Cut<D>::V_PIECES; p++) piece[r][p].take(head + (lane / 4 + p * 8) * Cut<D>::V_EACH);
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

/* q of the block's heads, as the products of all warps take it: (step of 16 numbers, lane), zeros behind the last head. The
 * warps bring its pieces by turns. */
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
            if (p < PIECES && lane / 4 < heads) piece[m].take(first + lane / 4 * D + (lane % 4 + p * 4) * EACH);
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

/* q, k and v of a token as they come, this block's heads: a thread has two pieces of one of them that turn together. */
template <typename T, int D> struct Arrival {
    static constexpr int EACH = Cut<D>::K_EACH, PAIRS = D / 2 / EACH, KEY = HEADS, VALUE = HEADS + 1;
    static_assert((VALUE + 1) * PAIRS <= 4 * WARP, "a thread each");
    int head, pair;
    Raw<T, EACH> half[2];

    /* k and v only if they are wanted; zeros behind the last query head */
    DEVICE Arrival(int task, const T *q, const T *k, int v_offset, int heads, bool wanted) {
        head = task / PAIRS, pair = task % PAIRS;
        const T *from = (head < KEY ? q + head * D : k + (head - KEY) * v_offset) + pair * EACH;
        bool there = head < heads || (wanted && head >= KEY && head <= VALUE);
#pragma unroll
        for (int h = 0; h < 2; h++) {
#pragma unroll
            for (int i = 0; i < EACH / 2; i++) half[h].w[i] = 0;
            if (there) half[h].take(from + h * (D / 2));
        }
    }
    DEVICE void turn(const float *cosine, const float *sine) { /* and round, as rope_put does */
        cosine += pair * EACH, sine += pair * EACH;
#pragma unroll
        for (int i = 0; i < EACH / 2; i++) {
            float2 a = unpack(half[0].w[i], T()), b = unpack(half[1].w[i], T());
            if (head <= KEY) {
                turn_pair(a.x, b.x, cosine[2 * i], sine[2 * i]);
                turn_pair(a.y, b.y, cosine[2 * i + 1], sine[2 * i + 1]);
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

DEVICE uint32_t flip_block(uint32_t w) { /* an 8x8 block, a word a lane */
    uint32_t t;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;\n" : "=r"(t) : "r"(w));
    return t;
}

/* Over the lanes of the same t. */
DEVICE float most_of_slots(float x) {
#pragma unroll
    for (int d = 4; d < WARP; d *= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, d));
    return x;
}
DEVICE float sum_of_slots(float x) {
#pragma unroll
    for (int d = 4; d < WARP; d *= 2) x += __shfl_xor_sync(~0u, x, d);
    return x;
}

/* ---- a warp ---- */

template <typename T, typename C, int D> struct Warp { /* of heads 2t and 2t+1 */
    static constexpr int TILES = Cut<D>::template tiles<C>(), SLOTS = TILES * TILE; /* of a step */
    float o[D / 16][4], top[2], sum[2]; /* top: of scores * scale * log2 e; sum: of this lane's slots */

    DEVICE Warp() {
#pragma unroll
        for (int i = 0; i < D / 16; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) o[i][j] = 0;
        top[0] = top[1] = -INFINITY, sum[0] = sum[1] = 0;
    }

    /* Scores become probabilities; o and sum shrink to the new top. */
    DEVICE void soften(float (&s)[TILES][4], int there, float scale2) {
        int slot = threadIdx.x % WARP / 4;
        float now[2] = {top[0], top[1]}, shrink[2];
#pragma unroll
        for (int i = 0; i < TILES; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                s[i][j] = slot + i * TILE + j / 2 * 8 < there ? s[i][j] * scale2 : -INFINITY;
                now[j % 2] = fmaxf(now[j % 2], s[i][j]);
            }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            now[h] = most_of_slots(now[h]); /* the first slot is there: finite */
            shrink[h] = exp2_fast(top[h] - now[h]);
            top[h] = now[h], sum[h] *= shrink[h];
        }
#pragma unroll
        for (int i = 0; i < TILES; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                s[i][j] = exp2_fast(s[i][j] - now[j % 2]);
                sum[j % 2] += s[i][j];
            }
#pragma unroll
        for (int i = 0; i < D / 16; i++)
            o[i][0] *= shrink[0], o[i][1] *= shrink[1], o[i][2] *= shrink[0], o[i][3] *= shrink[1];
    }

    /* The `there` slots from k and v on, SLOTS at a time, `on` slots from one step to the next. own: k, then v of the last
     * of them, which is not in the cache yet; NULL: it is. */
    DEVICE void attend(const uint2 (*q)[WARP], Keys<T, C, D> (&keys)[TILES], Values<T, C, D> (&values)[TILES], const C *k,
                       const C *v, int stride, int there, int on, int row_scale, float scale2, const C *own) {
        int beside = own ? 1 : 0;
        for (; there > 0; there -= on) {
            if (own && there <= SLOTS) {
#pragma unroll
                for (int i = 0; i < TILES; i++)
                    keys[i].replace(own, there - 1, i * TILE), values[i].replace(own + D, there - 1, i * TILE);
            }
            float s[TILES][4] = {};
            uint32_t p[TILES][2];
#pragma unroll
            for (int i = 0; i < TILES; i++) keys[i].multiply_by(s[i], q);
            k += on * stride, v += on * stride;
            if (there - beside > on) take_tiles(keys, k, stride, there - beside - on, row_scale);
            soften(s, there, scale2);
#pragma unroll
            for (int i = 0; i < TILES; i++) {
                const float *by = values[i].scale;
                p[i][0] = flip_block(pack_word<T>(s[i][0] * by[0], s[i][1] * by[0]));
                p[i][1] = flip_block(pack_word<T>(s[i][2] * by[1], s[i][3] * by[1]));
                values[i].add_to(o, p[i][0], p[i][1]);
            }
            if (there - beside > on) take_tiles(values, v, stride, there - beside - on, row_scale);
        }
    }

    template <typename Tile>
    static DEVICE void take_tiles(Tile (&t)[TILES], const C *first, int stride, int there, int row_scale) {
#pragma unroll
        for (int i = 0; i < TILES; i++) t[i].take(first, stride, there, row_scale, i * TILE);
    }
};

/* ---- joining ---- */

/* Sums of a part of the slots: the softmax of each head, and o as items of four numbers in the order of a warp's lanes. */
struct State {
    float top[HEADS], sum[HEADS];
};
struct Place {
    const State *state;
    const float4 *o;
};
struct Joined { /* an item: two numbers of two heads */
    float4 o;
    float top[2], sum[2];
};

/* Item `at` of n places, in their order; place(i) gives one. */
template <typename Fn> DEVICE Joined join(Fn place, int n, int at) {
    int head = at % 4 * 2;
    Joined j = {make_float4(0, 0, 0, 0), {-INFINITY, -INFINITY}, {0, 0}};
    for (int i = 0; i < n; i++) {
        const State *s = place(i).state;
        j.top[0] = fmaxf(j.top[0], s->top[head]), j.top[1] = fmaxf(j.top[1], s->top[head + 1]);
    }
    float off[2] = {j.top[0] == -INFINITY ? 0.0f : j.top[0], j.top[1] == -INFINITY ? 0.0f : j.top[1]};
#pragma unroll 4
    for (int i = 0; i < n; i++) {
        auto p = place(i);
        float by0 = exp2_fast(p.state->top[head] - off[0]), by1 = exp2_fast(p.state->top[head + 1] - off[1]);
        float4 o = p.o[at];
        j.o.x += o.x * by0, j.o.y += o.y * by1, j.o.z += o.z * by0, j.o.w += o.w * by1;
        j.sum[0] += p.state->sum[head] * by0, j.sum[1] += p.state->sum[head + 1] * by1;
    }
    return j;
}

/* Where in the head item `at` = pair * 32 + lane stands. */
template <int D> DEVICE int number_of(int at) {
    constexpr int EACH = Cut<D>::V_EACH, PAIRS = EACH / 2;
    int pair = at / WARP;
    return pair / PAIRS * 8 * EACH + at % WARP / 4 * EACH + pair % PAIRS * 2;
}

/* Where o of a block's heads goes. */
template <typename T, int D> struct Output {
    T *o;
    int heads;
    DEVICE void give(const Joined &j, int at) const {
        int h = at % 4 * 2, c = number_of<D>(at);
        if (h < heads) give_pair(o + h * D + c, j.o.x, j.o.z, j.sum[0]);
        if (h + 1 < heads) give_pair(o + (h + 1) * D + c, j.o.y, j.o.w, j.sum[1]);
    }
    static DEVICE void give_pair(T *to, float x, float y, float sum) {
        *(uint32_t *)to = sum != 0 ? pack<T>(x / sum, y / sum) : 0u;
    }
    DEVICE void leave(const Joined &j, int at, float *part, int splits) const { /* for cache.cu's join */
        int h = at % 4 * 2, c = number_of<D>(at);
        part += h * splits * (D + 2);
        float *next = part + splits * (D + 2);
        if (h < heads) part[c] = j.o.x, part[c + 1] = j.o.z;
        if (h + 1 < heads) next[c] = j.o.y, next[c + 1] = j.o.w;
        if (at < 4 && h < heads) part[D] = j.top[0], part[D + 1] = j.sum[0];
        if (at < 4 && h + 1 < heads) next[D] = j.top[1], next[D + 1] = j.sum[1];
    }
};

/* ---- clusters ---- */

DEVICE void enter_cluster() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\n" ::: "memory");
#endif
}
DEVICE void wait_for_entries() { /* every block runs, and its shared memory may be written */
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire.aligned;\n" ::: "memory");
#endif
}

/* What the blocks of a cluster send each other: block r joins items [r * share, (r + 1) * share) of all splits. */
template <int ITEMS> struct Inbox {
    float4 item[ITEMS + DEVICE_CLUSTER]; /* (splits, share) */
    State state[DEVICE_CLUSTER];
    static DEVICE int share(int splits) { return (ITEMS + splits - 1) / splits; }
    DEVICE void send(const Joined &j, int at, int split, int splits) {
        int each = share(splits), rank = at / each;
        of_block(item, rank)[split * each + at - rank * each] = j.o;
        if (at % WARP >= 4) return; /* four lanes know all heads; their warps take the blocks by turns */
        for (int r = at / WARP; r < splits; r += ITEMS / WARP) {
            State *s = of_block(&state[split], r);
            int h = at % 4 * 2;
            s->top[h] = j.top[0], s->top[h + 1] = j.top[1], s->sum[h] = j.sum[0], s->sum[h + 1] = j.sum[1];
        }
    }
    DEVICE Place place(int i, int split, int splits) const {
        return Place{&state[i], item + (i - split) * share(splits)};
    }
};
#endif

template <typename T, typename C, int D, int WARPS, bool NEW> __global__ void __launch_bounds__(WARPS *WARP, 12 / WARPS)
    attend_tokens_kernel(CudaAttend a, CudaRope rope, CudaHeadRow head_row, float *parts, int splits) {
#ifdef HAVE_TENSOR_CORES
    constexpr int ITEMS = D / 16 * WARP, THREADS = WARPS * WARP; /* items of 4 numbers */
    __shared__ float4 sums[WARPS][ITEMS];
    __shared__ State states[WARPS];
    __shared__ Inbox<ITEMS> inbox;
    __shared__ uint2 q[D / 16][WARP];
    int group = a.heads / a.kv_heads, bunches = (group + HEADS - 1) / HEADS, warp = threadIdx.x / WARP;
    int kv = blockIdx.y / bunches, head = kv * group + blockIdx.y % bunches * HEADS,
        heads = min(HEADS, kv * group + group - head), lane = threadIdx.x % WARP;
    int64_t token = blockIdx.x / splits, row = token / a.seq;
    int split = (int)(blockIdx.x % splits);
    if (splits > 1 && !parts) enter_cluster();

    chain_open();
    if (!a.early) chain_wait();
    using Mine = Warp<T, C, D>;
    float inv_freq = NEW && threadIdx.x < D / 2 ? rope.inv_freq[threadIdx.x] : 0.0f; /* on its way with the position */
    int position = a.last[token], end = min(position + 1, a.keys), tiles = (end + Mine::SLOTS - 1) / Mine::SLOTS;
    int each = (tiles + splits - 1) / splits * Mine::SLOTS, first = split * each; /* of what is seen */
    int seen = max(0, min(each, end - first)), there = seen - warp * Mine::SLOTS;
    const C *row_k = (const C *)a.k + key_row(a, row) * a.keys * a.kv_stride + kv * head_row.bytes / (int)sizeof(C);
    const C *k = row_k + (int64_t)(first + warp * Mine::SLOTS) * a.kv_stride, *v = k + a.v_offset, *own = NULL;
    const T *token_q = (const T *)a.q + token * a.q_stride;
    Keys<T, C, D> keys[Mine::TILES];
    Values<T, C, D> values[Mine::TILES];
    auto take_first = [&](int slots) {
        if (slots <= 0) return;
        Mine::take_tiles(keys, k, a.kv_stride, slots, head_row.scale_at);
        Mine::take_tiles(values, v, a.kv_stride, slots, head_row.scale_at);
    };
    if constexpr (NEW) {
        __shared__ __align__(16) float cosine[D / 2], sine[D / 2];
        __shared__ __align__(16) T own_kv[2 * D];
        bool brings = seen > 0 && position == first + seen - 1;
        take_first(there - brings);
        if (threadIdx.x < D / 2) {
            float2 t = angle_of(rope, position, inv_freq);
            cosine[threadIdx.x] = t.x, sine[threadIdx.x] = t.y;
        }
        chain_wait();
        int task = (threadIdx.x + THREADS - D / 2) % THREADS; /* warps that make no angles have qkv first */
        Arrival<T, D> come(task, token_q + head * D, token_q + (a.heads + kv) * D, a.v_offset, heads, brings);
        __syncthreads();
        come.turn(cosine, sine);
        T *slot = blockIdx.y % bunches ? NULL : (T *)row_k + (int64_t)position * a.kv_stride;
        come.put(q, own_kv, slot, a.v_offset, brings);
        if (brings) own = own_kv;
    } else {
        chain_wait();
        Query<T, D, WARPS> query(token_q + head * D, heads);
        take_first(there);
        query.put(q); /* K and V are on their way */
    }
    __syncthreads();
    Mine w;
    w.attend(q, keys, values, k, v, a.kv_stride, there, WARPS * Mine::SLOTS, head_row.scale_at, a.scale * LOG2_E, own);

#pragma unroll
    for (int i = 0; i < D / 16; i++) sums[warp][i * WARP + lane] = make_float4(w.o[i][0], w.o[i][1], w.o[i][2], w.o[i][3]);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float sum = sum_of_slots(w.sum[h]);
        if (lane < 4) states[warp].top[lane * 2 + h] = w.top[h], states[warp].sum[lane * 2 + h] = sum;
    }
    if (splits > 1 && !parts) wait_for_entries();
    __syncthreads();
    int busy = min(WARPS, (seen + Mine::SLOTS - 1) / Mine::SLOTS);
    Output<T, D> to = {(T *)a.o + token * a.o_stride + head * D, heads};
    for (int at = threadIdx.x; at < ITEMS; at += THREADS) {
        Joined j = join([&](int i) { return Place{&states[i], sums[i]}; }, busy, at);
        if (splits == 1) to.give(j, at);
        else if (parts) to.leave(j, at, parts + ((token * a.heads + head) * splits + split) * (D + 2), splits);
        else inbox.send(j, at, split, splits);
    }
    if (splits == 1 || parts) return;
    wait_for_cluster();
    int share = inbox.share(splits);
    for (int at = share * split + threadIdx.x; at < min(ITEMS, share * (split + 1)); at += THREADS)
        to.give(join([&](int i) { return inbox.place(i, split, splits); }, splits, at), at);
#endif
}

/* ---- on the host ---- */

/* More than eight blocks of a cluster are not every card's: asked once a kernel. */
template <typename Kernel> static bool fits_cluster(Kernel kernel, const cudaLaunchConfig_t *how, int splits, int *most) {
    if (*most < 0) {
        cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
        if (cudaOccupancyMaxPotentialClusterSize(most, kernel, how) != cudaSuccess) *most = 0, (void)cudaGetLastError();
    }
    return splits <= *most;
}

struct Launch {
    cudaStream_t stream;
    const CudaAttend *a;
    const CudaRope *rope; /* NULL: q, k and v are turned and in the cache */
    CudaHeadRow row;
    float *parts;
    int splits;
    bool clusters;
    dim3 grid;
};

template <typename T, typename C, int D, int WARPS, bool NEW> static void launch_tokens(const Launch &l) {
    static int most = -1; /* blocks of a cluster */
    auto kernel = attend_tokens_kernel<T, C, D, WARPS, NEW>;
    cudaLaunchConfig_t how = {};
    how.gridDim = l.grid, how.blockDim = dim3(WARPS * WARP), how.stream = l.stream;
    bool joins = l.splits > 1 && l.clusters && fits_cluster(kernel, &how, l.splits, &most);
    cuda_launch_chained_cluster(l.stream, kernel, l.grid, WARPS * WARP, 0, joins ? l.splits : 1, *l.a,
                                NEW ? *l.rope : CudaRope{}, l.row, joins ? NULL : l.parts, l.splits);
    if (l.splits > 1 && !joins) cuda_launch_cache_join(l.stream, l.a, l.parts, l.splits);
}

template <typename T, typename C, bool NEW> static void launch_dim(const Launch &l) {
    enum { SPARSE = 128 }; /* blocks that have a multiprocessor each: more warps have more bytes on their way */
    with_cache_dim(l.a->dim, [&](auto d) {
        constexpr int D = decltype(d)::value;
        if ((int64_t)l.grid.x * l.grid.y <= SPARSE) launch_tokens<T, C, D, 8, NEW>(l);
        else launch_tokens<T, C, D, 4, NEW>(l);
    });
}

static Launch launch_of(cudaStream_t s, const CudaAttend *a, const CudaRope *rope, CudaHeadRow row, float *parts, int splits,
                        bool clusters) {
    int group = a->heads / a->kv_heads, bunches = (group + HEADS - 1) / HEADS;
    return {s, a, rope, row, parts, splits, clusters,
            dim3((unsigned)(a->rows * a->seq * splits), (unsigned)(a->kv_heads * bunches))};
}

extern "C" void cuda_launch_attend_tokens(cudaStream_t s, const CudaAttend *a, CudaHeadRow row, bool int8, float *parts,
                                          int splits, bool clusters) {
    Launch l = launch_of(s, a, NULL, row, parts, splits, clusters);
    if (a->format == FMT_BF16 && int8) launch_dim<Bf16, int8_t, false>(l);
    else if (a->format == FMT_BF16) launch_dim<Bf16, Bf16, false>(l);
    else if (int8) launch_dim<F16, int8_t, false>(l);
    else launch_dim<F16, F16, false>(l);
}

extern "C" void cuda_launch_put_attend(cudaStream_t s, const CudaAttend *a, const CudaRope *rope, CudaHeadRow row,
                                       float *parts, int splits, bool clusters) {
    Launch l = launch_of(s, a, rope, row, parts, splits, clusters);
    if (a->format == FMT_BF16) launch_dim<Bf16, Bf16, true>(l);
    else launch_dim<F16, F16, true>(l);
}
