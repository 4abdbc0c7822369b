/* sample.cu - sampling of the next token of each row: temperature, top-k, top-p, min-p, and the draw. Reference:
 * cpu/sample.c; the arithmetic both share stands in ir/sampling.h, so the ids are the CPU's.
 *
 *   sample  blocks of 512 threads, from 9.0 on a cluster of up to 8 a row, which share out the row and tell each other
 *           their sums. Passes over the row (V numbers, read from L2 after the first):
 *           1 the largest score; for temperature 0 that is all.
 *           3 each for top-k and top-p: which score is the least. Weights are summed by bins of the distance from
 *             the top, then by finer bins of the bin that reaches the limit, then the few scores of that one are
 *             compared with each other by one block. No order of the whole row is made. Where too many scores fall
 *             together, the bits of the least score are found one by one.
 *           2 to draw: the sum of each warp's stretch of ids, then the ids of the stretch that the number falls into.
 *           1 for the log-probability, where it is wanted.
 *           Sums of weights are of integers: neither atomics nor the number of blocks make them depend on an order.
 *   draws   the same for rows of a head's chunk, which are many: a block a row. A row without a label is left out.
 *   pick    a thread a row. */
#include "backend/cuda/chain.cuh"
#include "backend/cuda/cluster.cuh"
#include "backend/cuda/kernels.h"
#include "backend/cuda/vectors.cuh"

enum {
    THREADS = 512,
    WARPS = THREADS / WARP,
    BINS = THREADS,
    BINS_A_UNIT = 16,
    LEVELS = 2,
    LIST = 256,
    MOST_RANKS = 8
};
enum { ABOVE_NOTHING = 0x00800000 }; /* the least order of a finite score: just above -infinity's */
enum { DIGITS = 4, DIGIT_BITS = DRAW_BITS / DIGITS };
static_assert(CUDA_MOST_VOCAB / 8 + DIGITS * BINS * 4 + 1024 <= 48 * 1024,
              "shared memory that every card gives unasked");
static_assert(LIST <= THREADS, "a score a thread");
static_assert(DRAW_BITS % DIGITS == 0 && (uint64_t)CUDA_MOST_VOCAB << DIGIT_BITS <= 1ull << 32,
              "sums of digits fit a word");

typedef unsigned long long Sum;

struct Row {
    const float *logits;
    float scale;          /* a logit is the stored number times this */
    const uint32_t *seen; /* a bit a token, in shared memory */
    int vocab;
    bool penalise;
    float repetition, temperature, top;
    int rank, ranks; /* of this block among those of the row */
};

struct Shared {
    union {
        uint32_t bin[DIGITS][BINS]; /* a sum of weights by its digits: additions that the card knows */
        struct {
            Sum weight[LIST];
            uint32_t order[LIST];
        } list; /* the first block's: of all */
    };
    Sum part[WARPS], above, total;
    Sum told; /* to the other blocks */
    float real[WARPS], told_real;
    int found, n;
};

DEVICE float score_of(const Row &r, int i, float logit) {
    return r.penalise && (r.seen[i / 32] >> (i % 32) & 1) ? draw_penalised(logit, r.repetition) : logit;
}

DEVICE float logit_at(const Row &r, int i) { return __fmul_rn(r.logits[i], r.scale); }

DEVICE float score_at(const Row &r, int i) { return score_of(r, i, logit_at(r, i)); }

DEVICE Sum weight_of(const Row &r, float score) { return draw_weight(score, r.top, r.temperature); }

/* use(i, logit) for every step-th id from first on; several loads are in flight at a time. */
template <typename F> DEVICE void for_ids(const Row &r, int first, int end, int step, F use) {
    enum { AHEAD = 4 };
    int i = first;
    for (; i + (AHEAD - 1) * step < end; i += AHEAD * step) {
        float x[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) x[k] = r.logits[i + k * step];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) use(i + k * step, __fmul_rn(x[k], r.scale));
    }
    for (; i < end; i += step) use(i, logit_at(r, i));
}

/* For every score of the row, all blocks together. */
template <typename F> DEVICE void for_scores(const Row &r, F use) {
    for_ids(r, r.rank * THREADS + threadIdx.x, r.vocab, r.ranks * THREADS,
            [&](int i, float logit) { use(score_of(r, i, logit)); });
}

/* ---- over the row's blocks ---- */

DEVICE void row_barrier(const Row &r) { /* what others wrote before it can be read behind it */
#if __CUDA_ARCH__ >= 900
    if (r.ranks > 1) {
        wait_for_cluster();
        return;
    }
#endif
    __syncthreads();
}

/* ---- over the block; part is free again after the next barrier ---- */

DEVICE Sum most_of(Sum x, Sum y) { return x > y ? x : y; }

DEVICE Sum block_most(Sum x, Sum *part) {
#pragma unroll
    for (int d = WARP / 2; d; d /= 2) x = most_of(x, __shfl_xor_sync(~0u, x, d));
    __syncthreads();
    if (threadIdx.x % WARP == 0) part[threadIdx.x / WARP] = x;
    __syncthreads();
    x = part[threadIdx.x % WARPS];
#pragma unroll
    for (int d = WARPS / 2; d; d /= 2) x = most_of(x, __shfl_xor_sync(~0u, x, d));
    return x;
}

/* The sum of x over the threads up to and including this one; part holds the warps' sums afterwards. */
DEVICE Sum block_scan(Sum x, Sum *part) {
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
#pragma unroll
    for (int d = 1; d < WARP; d *= 2) {
        Sum y = __shfl_up_sync(~0u, x, d);
        if (lane >= d) x += y;
    }
    __syncthreads();
    if (lane == WARP - 1) part[warp] = x;
    __syncthreads();
    for (int w = 0; w < warp; w++) x += part[w];
    return x;
}

DEVICE Sum block_total(Sum x, Sum *part) {
#pragma unroll
    for (int d = WARP / 2; d; d /= 2) x += __shfl_xor_sync(~0u, x, d);
    __syncthreads();
    if (threadIdx.x % WARP == 0) part[threadIdx.x / WARP] = x;
    __syncthreads();
    x = part[threadIdx.x % WARPS];
#pragma unroll
    for (int d = WARPS / 2; d; d /= 2) x += __shfl_xor_sync(~0u, x, d);
    return x;
}

/* Of all blocks, from one number of each. */
DEVICE Sum row_most(const Row &r, Shared &s, Sum x) {
    if (r.ranks == 1) return x;
    if (threadIdx.x == 0) s.told = x;
    row_barrier(r);
    for (int k = 0; k < r.ranks; k++) x = most_of(x, *of_block(&s.told, k));
    row_barrier(r);
    return x;
}

/* before: what the blocks in front of this one have. */
DEVICE Sum row_total(const Row &r, Shared &s, Sum x, Sum *before) {
    *before = 0;
    if (r.ranks == 1) return x;
    Sum total = 0;
    if (threadIdx.x == 0) s.told = x;
    row_barrier(r);
    for (int k = 0; k < r.ranks; k++) {
        if (k == r.rank) *before = total;
        total += *of_block(&s.told, k);
    }
    row_barrier(r);
    return total;
}

/* ---- the least score that is kept ---- */

struct Limit { /* what the tokens from it on must weigh */
    bool weighted; /* else every token counts 1 */
    float share;   /* weighted: of all */
    Sum whole, rest;
    bool reached;  /* false: all of them together weigh less, or no more */
};

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

DEVICE void add_to_bin(Shared &s, int bin, Sum weight) {
    if (weight >> DRAW_BITS) atomicAdd(&s.bin[DIGITS - 1][bin], 1u << DIGIT_BITS); /* the likeliest has a digit more */
#pragma unroll
    for (int d = 0; d < DIGITS; d++) {
        uint32_t digit = (uint32_t)(weight >> d * DIGIT_BITS) & ((1u << DIGIT_BITS) - 1);
        if (digit) atomicAdd(&s.bin[d][bin], digit);
    }
}

/* Of the bins of this level, the one in which the limit is reached; what stands before it is taken from the rest. The
 * first level's sum is that of all tokens, which says what the limit is. */
DEVICE int find_bin(const Row &r, Shared &s, uint32_t least, const int *bin, int level, Limit &limit) {
    row_barrier(r); /* all are done with the bins */
#pragma unroll
    for (int d = 0; d < DIGITS; d++) s.bin[d][threadIdx.x] = 0;
    if (threadIdx.x == 0) s.found = BINS - 1, s.above = 0;
    __syncthreads();
    for_scores(r, [&](float x) {
        if (is_in(r, x, least, bin, level))
            add_to_bin(s, bin_of(r, x, level, bin[0]), limit.weighted ? weight_of(r, x) : 1ull);
    });
    row_barrier(r);
    Sum mine = 0;
    for (int k = 0; k < r.ranks; k++)
#pragma unroll
        for (int d = 0; d < DIGITS; d++) mine += (Sum)of_block(s.bin, k)[d][threadIdx.x] << d * DIGIT_BITS;
    Sum sum = block_scan(mine, s.part);
    if (threadIdx.x == THREADS - 1) s.total = sum;
    __syncthreads();
    if (level == 0) {
        if (limit.weighted) limit.whole = draw_share(limit.share, s.total);
        limit.reached = limit.weighted || limit.whole < s.total;
        limit.rest = limit.whole;
    }
    if (sum >= limit.rest && sum - mine < limit.rest) s.found = threadIdx.x, s.above = sum - mine;
    __syncthreads();
    limit.rest -= s.above;
    return s.found;
}

/* Among the scores of one bin, each with its weight in the list. */
DEVICE uint32_t find_in_list(Shared &s, Sum limit) {
    Sum reached = 0, best = 0;
    if (threadIdx.x < (unsigned)s.n) {
        uint32_t mine = s.list.order[threadIdx.x];
        for (int k = 0; k < s.n; k++) reached += s.list.order[k] >= mine ? s.list.weight[k] : 0;
        if (reached >= limit) best = mine;
    }
    return (uint32_t)block_most(best, s.part);
}

/* Bit by bit: the largest order that still reaches. */
DEVICE uint32_t find_by_bits(const Row &r, Shared &s, uint32_t least, const Limit &limit) {
    uint32_t found = 0;
    for (int bit = 31; bit >= 0; bit--) {
        uint32_t next = found | 1u << bit;
        Sum sum = 0, before;
        for_scores(r, [&](float x) {
            uint32_t order = draw_order(x);
            if (order >= least && order >= next) sum += limit.weighted ? weight_of(r, x) : 1ull;
        });
        if (row_total(r, s, block_total(sum, s.part), &before) >= limit.whole) found = next;
    }
    return found;
}

/* The largest order for which the tokens from it on, and at least `least`, weigh the limit. */
DEVICE uint32_t least_that_reaches(const Row &r, Shared &s, uint32_t least, Limit limit) {
    int bin[LEVELS] = {0, 0};
    bin[0] = find_bin(r, s, least, bin, 0, limit);
    if (!limit.reached) return least;
    bin[1] = find_bin(r, s, least, bin, 1, limit);
    if (threadIdx.x == 0) s.n = 0;
    row_barrier(r); /* all are done with the bins: the list takes their place */
    Shared *first = of_block(&s, 0);
    for_scores(r, [&](float x) {
        if (!is_in(r, x, least, bin, LEVELS)) return;
        int at = atomicAdd(&first->n, 1);
        if (at >= LIST) return;
        first->list.order[at] = draw_order(x);
        first->list.weight[at] = limit.weighted ? weight_of(r, x) : 1ull;
    });
    row_barrier(r);
    if (first->n > LIST) return find_by_bits(r, s, least, limit);
    if (r.rank == 0) least = find_in_list(s, limit.rest);
    return (uint32_t)row_most(r, s, r.rank == 0 ? least : 0);
}

/* ---- the draw ---- */

DEVICE Sum kept_weight(const Row &r, float score, uint32_t least, Sum least_weight) {
    if (draw_order(score) < least) return 0;
    Sum w = weight_of(r, score);
    return w >= least_weight ? w : 0;
}

/* Warp w of all blocks' has ids [w * each, (w + 1) * each): their sums, then the ids of one of them, a few a thread.
 * Gives -1 in blocks that do not have it. */
DEVICE int draw_id(const Row &r, Shared &s, uint32_t least, Sum least_weight, uint32_t bits24) {
    int each = (r.vocab + WARPS * r.ranks - 1) / (WARPS * r.ranks), lane = threadIdx.x % WARP,
        warp = threadIdx.x / WARP;
    int from = r.rank * WARPS; /* the block's first stretch */
    Sum sum = 0, before;
    for_ids(r, (from + warp) * each + lane, min((from + warp + 1) * each, r.vocab), WARP,
            [&](int i, float logit) { sum += kept_weight(r, score_of(r, i, logit), least, least_weight); });
    Sum here = block_total(sum, s.part), total = row_total(r, s, here, &before), place = draw_place(bits24, total);
    if (place < before || place >= before + here) return -1;
    __syncthreads();
    int k = 0;
    while (k < WARPS - 1 && before + s.part[k] <= place) before += s.part[k++];
    int few = (each + THREADS - 1) / THREADS, first = (from + k) * each + threadIdx.x * few,
        end = min(min(first + few, (from + k + 1) * each), r.vocab);
    sum = 0;
    for (int i = first; i < end; i++) sum += kept_weight(r, score_at(r, i), least, least_weight);
    Sum mine = sum, upto = before + block_scan(sum, s.part);
    if (upto > place && upto - mine <= place) {
        Sum at = upto - mine;
        int i = first;
        while (i < end - 1 && (at += kept_weight(r, score_at(r, i), least, least_weight)) <= place) i++;
        s.found = i;
    }
    __syncthreads();
    return s.found;
}

DEVICE int draw_token(const Row &r, Shared &s, const DrawHow &how, uint32_t bits24) {
    uint32_t least = ABOVE_NOTHING;
    if (how.top_k > 0 && how.top_k < r.vocab)
        least = least_that_reaches(r, s, least, {.weighted = false, .share = 0, .whole = (Sum)how.top_k});
    if (how.top_p < 1.0f) least = least_that_reaches(r, s, least, {.weighted = true, .share = how.top_p});
    Sum least_weight = how.min_p > 0 ? draw_share(how.min_p, DRAW_ONE) : 1ull;
    int id = draw_id(r, s, least, least_weight, bits24);
    return (int)row_most(r, s, (Sum)(id + 1)) - 1;
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

/* top: the largest logit that can come, as the model gave it. */
DEVICE float log_probability(const Row &r, Shared &s, float top, int id, int vocab, float scale) {
    float sum = 0;
    for_ids(r, r.rank * THREADS + threadIdx.x, vocab, r.ranks * THREADS,
            [&](int, float x) { sum += expf((x - top) * scale); });
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0) s.real[threadIdx.x / WARP] = sum;
    __syncthreads();
    sum = 0;
    for (int w = 0; w < WARPS; w++) sum += s.real[w];
    if (threadIdx.x == 0) s.told_real = sum;
    row_barrier(r);
    sum = 0;
    for (int k = 0; k < r.ranks; k++) sum += *of_block(&s.told_real, k);
    return (logit_at(r, id) - top) * scale - logf(sum);
}

struct Best {
    int id;
    uint32_t most; /* the order of the largest logit that can come, as the model gave it */
    bool unsound;
};

DEVICE Best find_best(const Row &r, Shared &s) {
    Sum best = 0; /* the order of a score, and behind it the lowest id */
    uint32_t most = 0;
    bool unsound = false;
    for_ids(r, r.rank * THREADS + threadIdx.x, r.vocab, r.ranks * THREADS, [&](int i, float logit) {
        best = most_of(best, (Sum)draw_order(score_of(r, i, logit)) << 32 | (0xffffffffu - (uint32_t)i));
        most = max(most, draw_order(logit));
        unsound |= !(logit < INFINITY);
    });
    best = row_most(r, s, block_most(best, s.part));
    most = (uint32_t)row_most(r, s, block_most(unsound ? ~0u : most, s.part)); /* above every number's */
    return {(int)(0xffffffffu - (uint32_t)best), most, most == ~0u || most < ABOVE_NOTHING};
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
enum { BLOCKS_AT_A_TIME = 1 }; /* the compiler needs a register more than two would leave it */
#else
enum { BLOCKS_AT_A_TIME = 2 };
#endif

/* The token of the how's key and this number; -1 where nothing sound can come. */
DEVICE int token_of(Row &r, Shared &s, const DrawHow &how, const Best &best, uint64_t number) {
    if (best.unsound) return -1;
    if (!(how.temperature > 0.0f)) return best.id;
    r.top = score_at(r, best.id);
    return draw_token(r, s, how, rng_u32(how.key, number) >> 8);
}

DEVICE int words_of(const DrawHow &how, int vocab) { return how.vocab > 0 ? min(how.vocab, vocab) : vocab; }

__global__ void __launch_bounds__(THREADS, BLOCKS_AT_A_TIME) sample_kernel(CudaSample a, int ranks) {
    extern __shared__ uint32_t seen[];
    __shared__ Shared s;
    int n = blockIdx.x / ranks;
    chain_wait();
    int position = a.positions[n], slot = a.slots[n], next = position + 1;
    if (position < 0) return;
    DrawHow how = a.how[slot];
    int32_t *ids = a.ids + (int64_t)slot * a.room;
    bool penalise = how.repetition != 1.0f && how.repetition > 0.0f;
    Row r = {a.logits + (int64_t)n * a.vocab, 1.0f, seen, words_of(how, a.vocab), penalise, how.repetition,
             how.temperature, 0, (int)(blockIdx.x % ranks), ranks};
    if (r.penalise) mark_seen(seen, ids, min(next, a.room), a.vocab);
    row_barrier(r); /* every block runs */
    Best best = find_best(r, s);
    float logp = 0;
    bool forced = next - how.first < how.forced && next < a.room;
    int id = forced ? ids[next] : token_of(r, s, how, best, (uint64_t)(next - how.first));
    float top = __uint_as_float(best.most >> 31 ? best.most & 0x7fffffffu : ~best.most); /* draw_order turned back */
    if (!best.unsound && how.want_logp && id >= 0)
        logp = log_probability(r, s, top, id, a.vocab, how.logp_scale > 0 ? how.logp_scale : 1.0f);
    row_barrier(r); /* all are done with this block's memory */
    if (threadIdx.x || r.rank) return;
    if (best.unsound) id = -1;
    a.drawn[slot].id = id;
    a.drawn[slot].logp = logp;
    if (next < a.room) ids[next] = id;
}

/* Blocks to a row: as many as find room on the card at a time; one where the code knows no clusters. */
static int ranks_of(int64_t rows) {
    cudaFuncAttributes code;
    if (cudaFuncGetAttributes(&code, sample_kernel) != cudaSuccess || code.ptxVersion < 90) return 1;
    int ranks = MOST_RANKS;
    while (ranks > 1 && rows * ranks > 256) ranks /= 2;
    return ranks;
}

extern "C" void cuda_launch_sample(cudaStream_t s, const CudaSample *a) {
    size_t bytes = (size_t)(a->vocab + 31) / 32 * 4;
    int ranks = ranks_of(a->rows);
    cuda_launch_chained_cluster(s, sample_kernel, (unsigned)(a->rows * ranks), THREADS, bytes, ranks, *a, ranks);
}

/* ---- a head's rows ---- */

__global__ void __launch_bounds__(THREADS, BLOCKS_AT_A_TIME) draws_kernel(const __grid_constant__ CudaDraws d) {
    __shared__ Shared s;
    int64_t n = blockIdx.x;
    int id = -1;
    if (d.labels[n] >= 0) {
        DrawHow how = d.how[n];
        Row r = {d.logits + n * d.ld, d.scale, NULL, words_of(how, d.vocab), false, 1.0f, how.temperature, 0, 0, 1};
        Best best = find_best(r, s);
        id = token_of(r, s, how, best, (uint64_t)-(int64_t)how.first);
    }
    if (threadIdx.x == 0) d.drawn[n] = id;
}

extern "C" void cuda_launch_draws(cudaStream_t s, const CudaDraws *d) {
    draws_kernel<<<(unsigned)d->rows, THREADS, 0, s>>>(*d);
}

/* ---- pick ---- */

__global__ void __launch_bounds__(THREADS) pick_kernel(int32_t *to, const int32_t *ids, const int32_t *slots,
                                                       const int32_t *positions, int64_t rows, int room) {
    int64_t n = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (n >= rows) return;
    int position = positions[n];
    to[n] = position < 0 ? 0 : max(ids[(int64_t)slots[n] * room + position], 0);
}

extern "C" void cuda_launch_pick(cudaStream_t s, int32_t *to, const int32_t *ids, const int32_t *slots,
                                 const int32_t *positions, int64_t rows, int room) {
    pick_kernel<<<blocks_for(rows, THREADS), THREADS, 0, s>>>(to, ids, slots, positions, rows, room);
}
