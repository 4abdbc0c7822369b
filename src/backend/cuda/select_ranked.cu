/* select_ranked.cu - top-k over rows of 16-bit ranks, which index_scores.cu has left in the workspace. Reference:
 * cpu/select.c.
 *
 * A block a query. One pass over its ranks, eight a thread at a time, counts them into bins of 32 in shared memory and
 * sums what says how many keys are kept; a second one counts those of the bin in which the k-th best falls. Sums of
 * ranks and of their squares are whole numbers, so that how many keys are kept does not depend on the order of summing.
 * Keys are written in ascending order; of equal ranks at the edge the latest keys are taken. */
#include "backend/cuda/sparse.cuh"

enum { AT_ONCE = 8, BIN = WARP /* ranks */, BINS = 65536 / BIN };
static const double STEP = 1 / 4096.0; /* of scores */

struct Row { /* of ranks: keys [begin, end) count */
    uint16_t *rank;
    int begin, end;
    /* fn(rank, key) for all that count; neighbouring threads take neighbouring eights. */
    template <typename Fn> DEVICE void each(Fn fn) const {
        for (int at = begin / AT_ONCE * AT_ONCE + threadIdx.x * AT_ONCE; at < end; at += blockDim.x * AT_ONCE) {
            uint4 v = *(const uint4 *)(rank + at);
            uint32_t word[4] = {v.x, v.y, v.z, v.w};
            bool whole = at >= begin && at + AT_ONCE <= end;
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
                if (whole || (at + i >= begin && at + i < end)) fn(word[i / 2] >> i % 2 * 16 & 0xffff, at + i);
        }
    }
};

struct Shared {
    uint4 bins[BINS / 4];
    double part[WARP];
    uint32_t warps[WARP], of_bin[BIN], found[2];
    DEVICE uint32_t *bin() { return (uint32_t *)bins; }
};

struct Sums { /* of ranks as they were scored */
    unsigned long long sum, square;
    double e, dot;
};

/* The one pass: what `keep` asks for is summed, and the ranks are counted; drawn ones take the place of scored ones. */
template <KeepBy KEEP, bool DRAWN>
DEVICE void count_ranks(Sums &sums, const AttrSparse &k, const Row &row, uint32_t *bins) {
    row.each([&](uint32_t r, int key) {
        if (KEEP == KEEP_VARIANCE) sums.sum += r, sums.square += r * r;
        if (KEEP == KEEP_ENTROPY) { /* scores are below 8: e^score needs no maximum */
            double x = r * STEP, e = exp(x);
            sums.e += e;
            sums.dot += e * x;
        }
        if (DRAWN) {
            r = drawn_rank(k, row.end - row.begin, key - row.begin);
            row.rank[key] = (uint16_t)r;
        }
        atomicAdd(&bins[r / BIN], 1u);
    });
}

template <bool DRAWN> DEVICE void count_ranks(Sums &sums, const AttrSparse &k, const Row &row, uint32_t *bins) {
    if (k.keep == KEEP_VARIANCE)
        count_ranks<KEEP_VARIANCE, DRAWN>(sums, k, row, bins);
    else if (k.keep == KEEP_ENTROPY)
        count_ranks<KEEP_ENTROPY, DRAWN>(sums, k, row, bins);
    else
        count_ranks<KEEP_FIXED, DRAWN>(sums, k, row, bins);
}

DEVICE double ranked_keys_wanted(const AttrSparse &k, const Sums &sums, double n, Shared &s) {
    double wanted = (double)k.k_base;
    if (k.keep == KEEP_VARIANCE) {
        double all = total_of_block((double)sums.sum, s.part), squares = total_of_block((double)sums.square, s.part);
        double off = (squares - all * all / n) * STEP * STEP;
        double spread = n < 2 ? 0.0 : off / (n - 1) / (squares * STEP * STEP / n + 1e-8);
        wanted *= 0.5 + 1 / (1 + (double)k.temperature * spread);
    }
    if (k.keep == KEEP_ENTROPY) {
        double sum = total_of_block(sums.e, s.part), dot = total_of_block(sums.dot, s.part);
        wanted *= 0.5 + (double)k.temperature * (log(sum) - dot / sum) / log(n + 1);
    }
    if (k.keep != KEEP_FIXED) wanted = fmin(fmax(wanted, (double)k.k_min), (double)k.k_max);
    return wanted;
}

/* Exclusive sums over the block of two counts below 65536 in one word; *total: of all. */
DEVICE uint32_t places_of(uint32_t counts, uint32_t *total, uint32_t *warps) {
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, n = blockDim.x / WARP;
    uint32_t upto = counts;
    for (int d = 1; d < WARP; d *= 2) {
        uint32_t more = __shfl_up_sync(~0u, upto, d);
        if (lane >= d) upto += more;
    }
    if (lane == WARP - 1) warps[warp] = upto;
    __syncthreads();
    uint32_t before = 0, all = 0;
    for (int w = 0; w < n; w++) {
        before += w < warp ? warps[w] : 0;
        all += warps[w];
    }
    *total = all;
    __syncthreads();
    return before + upto - counts;
}

/* The bin with the k-th best rank; *above: how many ranks are in better ones. A thread has its share of the bins, the
 * best first. */
template <int THREADS> DEVICE int kth_bin(int k, int *above, Shared &s) {
    constexpr int EACH = BINS / THREADS;
    const uint32_t *mine = s.bin() + BINS - (threadIdx.x + 1) * EACH;
    uint32_t n[EACH], sum = 0, total;
#pragma unroll
    for (int i = 0; i < EACH; i++) sum += n[i] = mine[i];
    uint32_t before = places_of(sum, &total, s.warps);
    if (before < (uint32_t)k && before + sum >= (uint32_t)k) {
        int found = EACH - 1;
#pragma unroll
        for (int i = EACH - 1; i > 0; i--)
            if (found == i && before + n[i] < (uint32_t)k) before += n[i], found = i - 1;
        s.found[0] = (uint32_t)(mine - s.bin()) + found, s.found[1] = before;
    }
    __syncthreads();
    *above = (int)s.found[1];
    return (int)s.found[0];
}

/* The k-th best rank of 1 to all; *upto: how many are as good or better. The ranks are counted, of_bin is zero. Every
 * warp finds it: a lane has a rank of the bin, the best first. */
template <int THREADS> DEVICE int kth_rank(const Row &row, int k, int *upto, Shared &s) {
    int above, bin = kth_bin<THREADS>(k, &above, s), lane = threadIdx.x % WARP;
    row.each([&](uint32_t r, int) {
        if ((int)(r / BIN) == bin) atomicAdd(&s.of_bin[r % BIN], 1u);
    });
    __syncthreads();
    int at = (int)s.of_bin[BIN - 1 - lane];
    for (int d = 1; d < WARP; d *= 2) {
        int more = __shfl_up_sync(~0u, at, d);
        if (lane >= d) at += more;
    }
    int first = __ffs((int)__ballot_sync(~0u, above + at >= k)) - 1;
    *upto = above + __shfl_sync(~0u, at, first);
    return bin * BIN + BIN - 1 - first;
}

DEVICE void write_ranked(int32_t *to, int most, const Row &row, int k, int least, int skipped, uint32_t *warps) {
    int better = 0, equal = 0; /* before this round */
    for (int first = row.begin / AT_ONCE * AT_ONCE; first < row.end; first += blockDim.x * AT_ONCE) {
        int at = first + threadIdx.x * AT_ONCE;
        uint32_t counts = 0, total;
        uint4 v = at < row.end ? *(const uint4 *)(row.rank + at) : make_uint4(0, 0, 0, 0);
        uint32_t word[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            int r = at + i >= row.begin && at + i < row.end ? (int)(word[i / 2] >> i % 2 * 16 & 0xffff) : -1;
            counts += r > least ? 1 : r == least ? 1 << 16 : 0;
        }
        uint32_t before = places_of(counts, &total, warps);
        int greater = better + (int)(before & 0xffff), same = equal + (int)(before >> 16);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            int r = at + i >= row.begin && at + i < row.end ? (int)(word[i / 2] >> i % 2 * 16 & 0xffff) : -1;
            if (r > least || (r == least && same >= skipped)) to[greater + max(same - skipped, 0)] = at + i;
            greater += r > least, same += r == least;
        }
        better += (int)(total & 0xffff), equal += (int)(total >> 16);
    }
    for (int i = k + threadIdx.x; i < most; i += blockDim.x) to[i] = -1;
}

/* side: queries of a tile, as the workspace has them: 64, or 1. */
template <int THREADS> __global__ void __launch_bounds__(THREADS)
    select_ranked_kernel(CudaSparse a, int32_t *keys, int most, int64_t first_tile, int side) {
    __shared__ Shared shared;
    int64_t seq = a.k.heads.seq, tiles = (seq + side - 1) / side, tile = first_tile + blockIdx.x / side,
            place = tile % tiles * side + blockIdx.x % side, token = tile / tiles * seq + place;
    if (place >= seq) return;
    Seen seen = seen_by(a, token);
    int32_t *to = keys + token * most;
    if (seen.n <= 0) {
        for (int i = threadIdx.x; i < most; i += THREADS) to[i] = -1;
        return;
    }
    Row row = {(uint16_t *)a.workspace + (int64_t)blockIdx.x * a.stride, seen.begin, seen.begin + seen.n};
    Sums sums = {};
    for (int i = threadIdx.x; i < BINS / 4; i += THREADS) shared.bins[i] = make_uint4(0, 0, 0, 0);
    if (threadIdx.x < BIN) shared.of_bin[threadIdx.x] = 0;
    __syncthreads();
    if (a.k.by == SELECT_RANDOM)
        count_ranks<true>(sums, a.k, row, shared.bin());
    else
        count_ranks<false>(sums, a.k, row, shared.bin());
    int k = (int)fmin(fmin(ranked_keys_wanted(a.k, sums, seen.n, shared), (double)seen.n), (double)most);
    int least = 0, upto = seen.n; /* all of them */
    __syncthreads();
    if (k < seen.n) least = kth_rank<THREADS>(row, k, &upto, shared);
    write_ranked(to, most, row, k, least, upto - k, shared.warps);
}

extern "C" void cuda_launch_select_ranked(cudaStream_t s, const CudaSparse *a, int32_t *keys, int64_t most,
                                          int64_t first_tile, int64_t tiles, int side) {
    unsigned blocks = (unsigned)(tiles * side);
    if (a->span <= 8192)
        select_ranked_kernel<256><<<blocks, 256, 0, s>>>(*a, keys, (int)most, first_tile, side);
    else if (side == 1) /* a few tokens behind a long cache: fewer blocks than the card has multiprocessors */
        select_ranked_kernel<1024><<<blocks, 1024, 0, s>>>(*a, keys, (int)most, first_tile, side);
    else
        select_ranked_kernel<512><<<blocks, 512, 0, s>>>(*a, keys, (int)most, first_tile, side);
}
