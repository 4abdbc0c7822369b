/* select_ranked.cu - the best keys of rows of 16-bit ranks, which index_scores.cu has left in the workspace. Reference:
 * cpu/select.c.
 *
 * A block a query. The rank of the k-th best is found by bisection between the least and the greatest: each step counts
 * the ranks above a middle, eight a thread at a time, from the caches. Sums of ranks and of their squares are whole
 * numbers, so that how many keys are kept does not depend on the order of summing. Keys are written in ascending
 * order; of equal ranks at the edge the latest keys are taken. */
#include "backend/cuda/sparse.cuh"

enum { AT_ONCE = 8 };

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
    double part[WARP];
    int count[2][WARP];
};

DEVICE double ranked_keys_wanted(const AttrSparse &k, const Row &row, Shared &s) {
    double wanted = (double)k.k_base, n = row.end - row.begin, step = 1 / 4096.0;
    if (k.keep == KEEP_VARIANCE) {
        unsigned long long sum = 0, square = 0;
        row.each([&](uint32_t r, int) { sum += r, square += r * r; });
        double all = total_of_block((double)sum, s.part), squares = total_of_block((double)square, s.part);
        double off = (squares - all * all / n) * step * step;
        double spread = n < 2 ? 0.0 : off / (n - 1) / (squares * step * step / n + 1e-8);
        wanted *= 0.5 + 1 / (1 + (double)k.temperature * spread);
    }
    if (k.keep == KEEP_ENTROPY) { /* scores are below 8: e^score needs no maximum */
        double sum = 0, dot = 0;
        row.each([&](uint32_t r, int) {
            double e = exp(r * step);
            sum += e;
            dot += e * (r * step);
        });
        sum = total_of_block(sum, s.part);
        dot = total_of_block(dot, s.part);
        wanted *= 0.5 + (double)k.temperature * (log(sum) - dot / sum) / log(n + 1);
    }
    if (k.keep != KEEP_FIXED) wanted = fmin(fmax(wanted, (double)k.k_min), (double)k.k_max);
    return wanted;
}

/* The k-th best rank, none being above `high`; *upto: how many are as good or better. */
DEVICE int kth_rank(const Row &row, int k, int high, int *upto, Shared &s) {
    int low = 0, turn = 0;
    *upto = row.end - row.begin;
    while (low < high) {
        int middle = (low + high + 1) / 2, mine = 0;
        row.each([&](uint32_t r, int) { mine += (int)r >= middle; });
        int count = sum_of_block(mine, s.count[turn ^= 1]); /* by turns: one barrier is enough */
        if (count >= k)
            low = middle, *upto = count;
        else
            high = middle - 1;
    }
    __syncthreads();
    return low;
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
__global__ void __launch_bounds__(1024)
    select_ranked_kernel(CudaSparse a, int32_t *keys, int most, int64_t first_tile, int side) {
    __shared__ Shared shared;
    __shared__ uint32_t warps[WARP];
    int64_t seq = a.k.heads.seq, tiles = (seq + side - 1) / side, tile = first_tile + blockIdx.x / side,
            place = tile % tiles * side + blockIdx.x % side, token = tile / tiles * seq + place;
    if (place >= seq) return;
    Seen seen = seen_by(a, token);
    int32_t *to = keys + token * most;
    if (seen.n <= 0) {
        for (int i = threadIdx.x; i < most; i += blockDim.x) to[i] = -1;
        return;
    }
    Row row = {(uint16_t *)a.workspace + (int64_t)blockIdx.x * a.stride, seen.begin, seen.begin + seen.n};
    int k = (int)fmin(fmin(ranked_keys_wanted(a.k, row, shared), (double)seen.n), (double)most), upto;
    if (a.k.by == SELECT_RANDOM)
        row.each([&](uint32_t, int key) { row.rank[key] = (uint16_t)drawn_rank(a.k, seen.n, key - seen.begin); });
    __syncthreads();
    int least = kth_rank(row, k, a.k.by == SELECT_RANDOM ? 65535 : a.k.index_heads * 4096, &upto, shared);
    write_ranked(to, most, row, k, least, upto - k, warps);
}

extern "C" void cuda_launch_select_ranked(cudaStream_t s, const CudaSparse *a, int32_t *keys, int64_t most,
                                          int64_t first_tile, int64_t tiles, int side) {
    int threads = a->span <= 8192 ? 256 : 1024;
    select_ranked_kernel<<<(unsigned)(tiles * side), threads, 0, s>>>(*a, keys, (int)most, first_tile, side);
}
