/* sample.cu - the next token of each row: which tokens are kept, and which one a random number picks. Reference:
 * cpu/sample.c; the arithmetic both share stands in ir/sampling.h, so the ids are the CPU's.
 *
 *   sample  a block of 1024 threads a row. Passes over the row (V numbers, read from L2 after the first):
 *           1 the largest score; for temperature 0 that is all.
 *           2 to 4 each for top-k and top-p: which score is the least. Weights are summed by bins of the distance from
 *             the top, then by finer bins of the bin that reaches the limit, then the few scores of that one are compared
 *             with each other. No order of the whole row is made. Where too many scores fall together, the bits of the
 *             least score are found one by one.
 *           2 to draw: the sum of each warp's stretch of ids, then the ids of the stretch that the number falls into.
 *           1 for the log-probability, where it is wanted.
 *           Sums of weights are of integers: atomics do not make them depend on the order of threads.
 *   pick    a thread a row. */
#include "backend/cuda/kernels.h"
#include "backend/cuda/vectors.cuh"

enum { THREADS = 1024, WARPS = THREADS / WARP, BINS = THREADS, BINS_A_UNIT = 32, LEVELS = 2, LIST = 512 };
enum { ABOVE_NOTHING = 0x00800000 }; /* the least order of a finite score: just above -infinity's */
static_assert(CUDA_MOST_VOCAB / 8 + BINS * 8 + 1024 <= 48 * 1024, "shared memory that every card gives without asking");

struct Row {
    const float *logits;
    const uint32_t *seen; /* a bit a token, in shared memory */
    int vocab;
    bool penalise;
    float repetition, temperature, top;
};

struct Shared {
    union {
        unsigned long long bin[BINS];
        struct {
            unsigned long long weight[LIST];
            uint32_t order[LIST];
        } list;
    };
    unsigned long long part[WARPS], above;
    float real[WARPS];
    int found, n;
};

DEVICE float score_at(const Row &r, int i) {
    float x = r.logits[i];
    return r.penalise && (r.seen[i / 32] >> (i % 32) & 1) ? draw_penalised(x, r.repetition) : x;
}

DEVICE unsigned long long weight_of(const Row &r, float score) { return draw_weight(score, r.top, r.temperature); }

/* ---- over the block; part is free again after the next barrier ---- */

DEVICE unsigned long long block_most(unsigned long long x, unsigned long long *part) {
#pragma unroll
    for (int d = WARP / 2; d; d /= 2) {
        unsigned long long y = __shfl_xor_sync(~0u, x, d);
        x = x > y ? x : y;
    }
    __syncthreads();
    if (threadIdx.x % WARP == 0) part[threadIdx.x / WARP] = x;
    __syncthreads();
    x = part[threadIdx.x % WARP];
#pragma unroll
    for (int d = WARP / 2; d; d /= 2) {
        unsigned long long y = __shfl_xor_sync(~0u, x, d);
        x = x > y ? x : y;
    }
    return x;
}

/* The sum of x over the threads up to and including this one; part holds the warps' sums afterwards. */
DEVICE unsigned long long block_scan(unsigned long long x, unsigned long long *part) {
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
#pragma unroll
    for (int d = 1; d < WARP; d *= 2) {
        unsigned long long y = __shfl_up_sync(~0u, x, d);
        if (lane >= d) x += y;
    }
    __syncthreads();
    if (lane == WARP - 1) part[warp] = x;
    __syncthreads();
    for (int w = 0; w < warp; w++) x += part[w];
    return x;
}

DEVICE unsigned long long block_total(unsigned long long x, unsigned long long *part) {
#pragma unroll
    for (int d = WARP / 2; d; d /= 2) x += __shfl_xor_sync(~0u, x, d);
    __syncthreads();
    if (threadIdx.x % WARP == 0) part[threadIdx.x / WARP] = x;
    __syncthreads();
    x = part[threadIdx.x % WARP];
#pragma unroll
    for (int d = WARP / 2; d; d /= 2) x += __shfl_xor_sync(~0u, x, d);
    return x;
}

/* ---- the least score that is kept ---- */

/* Which bin a score falls into: bins go down from the top, so that a lower score never has a lower bin. */
DEVICE int bin_of(const Row &r, float score, int level, int outer) {
    float x = __fmul_rn(__fadd_rn(r.top, -score), (float)BINS_A_UNIT);
    if (level) x = __fmul_rn(__fadd_rn(x, -(float)outer), (float)BINS);
    return (int)fmaxf(0.0f, fminf(x, (float)(BINS - 1)));
}

/* Tokens of order at least `least` are asked; bin[k]: which bins a token must be in before level k matters. */
DEVICE bool is_in(const Row &r, float score, uint32_t least, const int *bin, int level) {
    if (draw_order(score) < least) return false;
    bool in = true;
#pragma unroll
    for (int k = 0; k < LEVELS; k++) in = in && (k >= level || bin_of(r, score, k, bin[0]) == bin[k]);
    return in;
}

/* Of the bins of this level, the one in which the limit is reached; what stands before it is taken from the limit. */
DEVICE int find_bin(const Row &r, Shared &s, uint32_t least, const int *bin, int level, unsigned long long *limit,
                    bool weighted) {
    __syncthreads();
    s.bin[threadIdx.x] = 0;
    if (threadIdx.x == 0) s.found = BINS - 1, s.above = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < r.vocab; i += THREADS) {
        float x = score_at(r, i);
        if (!is_in(r, x, least, bin, level)) continue;
        atomicAdd(&s.bin[bin_of(r, x, level, bin[0])], weighted ? weight_of(r, x) : 1ull);
    }
    __syncthreads();
    unsigned long long mine = s.bin[threadIdx.x], sum = block_scan(mine, s.part);
    if (sum >= *limit && sum - mine < *limit) s.found = threadIdx.x, s.above = sum - mine;
    __syncthreads();
    *limit -= s.above;
    return s.found;
}

/* Among the scores of one bin, each with its weight in the list. */
DEVICE uint32_t find_in_list(Shared &s, unsigned long long limit) {
    unsigned long long reached = 0, best = 0;
    uint32_t mine = 0;
    if (threadIdx.x < (unsigned)s.n) {
        mine = s.list.order[threadIdx.x];
        for (int k = 0; k < s.n; k++) reached += s.list.order[k] >= mine ? s.list.weight[k] : 0;
        if (reached >= limit) best = mine;
    }
    return (uint32_t)block_most(best, s.part);
}

/* Bit by bit: the largest order that still reaches. */
DEVICE uint32_t find_by_bits(const Row &r, Shared &s, uint32_t least, unsigned long long limit, bool weighted) {
    uint32_t found = 0;
    for (int bit = 31; bit >= 0; bit--) {
        uint32_t next = found | 1u << bit;
        unsigned long long sum = 0;
        for (int i = threadIdx.x; i < r.vocab; i += THREADS) {
            float x = score_at(r, i);
            uint32_t order = draw_order(x);
            if (order >= least && order >= next) sum += weighted ? weight_of(r, x) : 1ull;
        }
        if (block_total(sum, s.part) >= limit) found = next;
    }
    return found;
}

/* The largest order for which the tokens from it on, and at least `least`, weigh the limit; all of them do. */
DEVICE uint32_t least_that_reaches(const Row &r, Shared &s, uint32_t least, unsigned long long limit, bool weighted) {
    int bin[LEVELS] = {0, 0};
    unsigned long long rest = limit;
    bin[0] = find_bin(r, s, least, bin, 0, &rest, weighted);
    bin[1] = find_bin(r, s, least, bin, 1, &rest, weighted);
    __syncthreads();
    if (threadIdx.x == 0) s.n = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < r.vocab; i += THREADS) {
        float x = score_at(r, i);
        if (!is_in(r, x, least, bin, LEVELS)) continue;
        int at = atomicAdd(&s.n, 1);
        if (at >= LIST) continue;
        s.list.order[at] = draw_order(x);
        s.list.weight[at] = weighted ? weight_of(r, x) : 1ull;
    }
    __syncthreads();
    if (s.n <= LIST) return find_in_list(s, rest);
    return find_by_bits(r, s, least, limit, weighted);
}

/* ---- the draw ---- */

DEVICE unsigned long long kept_weight(const Row &r, int i, uint32_t least, unsigned long long least_weight) {
    float x = score_at(r, i);
    if (draw_order(x) < least) return 0;
    unsigned long long w = weight_of(r, x);
    return w >= least_weight ? w : 0;
}

/* Warp w has ids [w * each, (w + 1) * each): their sums, then the ids of one of them, a few a thread. */
DEVICE int draw_id(const Row &r, Shared &s, uint32_t least, unsigned long long least_weight, uint32_t bits24) {
    int each = (r.vocab + WARPS - 1) / WARPS, lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    unsigned long long sum = 0, place, before = 0;
    for (int i = warp * each + lane; i < min((warp + 1) * each, r.vocab); i += WARP)
        sum += kept_weight(r, i, least, least_weight);
    unsigned long long total = block_total(sum, s.part);
    place = draw_place(bits24, total);
    int k = 0;
    while (k < WARPS - 1 && before + s.part[k] <= place) before += s.part[k++];
    int few = (each + THREADS - 1) / THREADS, first = k * each + threadIdx.x * few,
        end = min(min(first + few, (k + 1) * each), r.vocab);
    sum = 0;
    for (int i = first; i < end; i++) sum += kept_weight(r, i, least, least_weight);
    unsigned long long mine = sum, upto = before + block_scan(sum, s.part);
    if (upto > place && upto - mine <= place) {
        unsigned long long at = upto - mine;
        int i = first;
        while (i < end - 1 && (at += kept_weight(r, i, least, least_weight)) <= place) i++;
        s.found = i;
    }
    __syncthreads();
    return s.found;
}

DEVICE int draw_token(Row &r, Shared &s, const DrawHow &how, uint32_t bits24) {
    uint32_t least = ABOVE_NOTHING;
    if (how.top_k > 0 && how.top_k < r.vocab) {
        unsigned long long n = 0;
        for (int i = threadIdx.x; i < r.vocab; i += THREADS) n += draw_order(score_at(r, i)) >= least;
        if ((unsigned long long)how.top_k < block_total(n, s.part))
            least = least_that_reaches(r, s, least, (unsigned long long)how.top_k, false);
    }
    if (how.top_p < 1.0f) {
        unsigned long long sum = 0;
        for (int i = threadIdx.x; i < r.vocab; i += THREADS) {
            float x = score_at(r, i);
            if (draw_order(x) >= least) sum += weight_of(r, x);
        }
        sum = block_total(sum, s.part);
        least = least_that_reaches(r, s, least, draw_share(how.top_p, sum), true);
    }
    unsigned long long least_weight = how.min_p > 0 ? draw_share(how.min_p, DRAW_ONE) : 1ull;
    return draw_id(r, s, least, least_weight, bits24);
}

/* ---- a row ---- */

DEVICE void mark_seen(uint32_t *seen, const int32_t *ids, int n, int vocab) {
    for (int i = threadIdx.x; i < (vocab + 31) / 32; i += THREADS) seen[i] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += THREADS) {
        int32_t id = ids[i];
        if (id >= 0 && id < vocab) atomicOr(&seen[id / 32], 1u << (id % 32));
    }
    __syncthreads();
}

DEVICE float block_sum(float x, float *part) {
    x = warp_sum(x);
    __syncthreads();
    if (threadIdx.x % WARP == 0) part[threadIdx.x / WARP] = x;
    __syncthreads();
    return warp_sum(part[threadIdx.x % WARP]);
}

/* top: the largest logit that can come, as the model gave it. */
DEVICE float log_probability(const Row &r, Shared &s, float top, int id, int vocab) {
    float sum = 0;
    for (int i = threadIdx.x; i < vocab; i += THREADS) sum += expf(r.logits[i] - top);
    return (r.logits[id] - top) - logf(block_sum(sum, s.real));
}

__global__ void __launch_bounds__(THREADS, 1) sample_kernel(CudaSample a) {
    extern __shared__ uint32_t seen[];
    __shared__ Shared s;
    int position = a.positions[blockIdx.x], slot = a.slots[blockIdx.x], next = position + 1;
    if (position < 0) return;
    DrawHow how = a.how[slot];
    int32_t *ids = a.ids + (int64_t)slot * a.room;
    Row r = {a.logits + (int64_t)blockIdx.x * a.vocab, seen, how.vocab > 0 ? min(how.vocab, a.vocab) : a.vocab,
             how.repetition != 1.0f && how.repetition > 0.0f, how.repetition, how.temperature, 0};
    if (r.penalise) mark_seen(seen, ids, min(next, a.room), a.vocab);

    unsigned long long best = 0; /* the order of a score, and behind it the lowest id */
    uint32_t most = 0;
    bool unsound = false;
    for (int i = threadIdx.x; i < r.vocab; i += THREADS) {
        float logit = r.logits[i];
        unsigned long long one = (unsigned long long)draw_order(score_at(r, i)) << 32 | (0xffffffffu - (uint32_t)i);
        best = one > best ? one : best;
        most = max(most, draw_order(logit));
        unsound |= !(logit < INFINITY);
    }
    best = block_most(best, s.part);
    most = (uint32_t)block_most(most, s.part);
    unsound = __syncthreads_or(unsound) || most < ABOVE_NOTHING;
    int id = (int)(0xffffffffu - (uint32_t)best);
    float logp = 0;
    if (!unsound && how.temperature > 0.0f) {
        r.top = score_at(r, id);
        id = draw_token(r, s, how, rng_u32(how.key, (uint64_t)(next - how.first)) >> 8);
    }
    float top = __uint_as_float(most >> 31 ? most & 0x7fffffffu : ~most); /* draw_order turned back */
    if (!unsound && how.want_logp) logp = log_probability(r, s, top, id, a.vocab);
    if (threadIdx.x) return;
    if (unsound) id = -1;
    a.drawn[slot].id = id;
    a.drawn[slot].logp = logp;
    if (next < a.room) ids[next] = id;
}

extern "C" void cuda_launch_sample(cudaStream_t s, const CudaSample *a) {
    size_t bytes = (size_t)(a->vocab + 31) / 32 * 4;
    sample_kernel<<<(unsigned)a->rows, THREADS, bytes, s>>>(*a);
}

/* ---- pick ---- */

__global__ void __launch_bounds__(THREADS)
    pick_kernel(int32_t *to, const int32_t *ids, const int32_t *slots, const int32_t *positions, int64_t rows, int room) {
    int64_t n = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (n >= rows) return;
    int position = positions[n];
    to[n] = position < 0 ? 0 : max(ids[(int64_t)slots[n] * room + position], 0);
}

extern "C" void cuda_launch_pick(cudaStream_t s, int32_t *to, const int32_t *ids, const int32_t *slots,
                                 const int32_t *positions, int64_t rows, int room) {
    pick_kernel<<<blocks_for(rows, THREADS), THREADS, 0, s>>>(to, ids, slots, positions, rows, room);
}
