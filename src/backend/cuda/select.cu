/* select.cu - top-k selection of the keys each query attends to, the cache of index keys, and the share of dense
 * attention that the selection holds. Reference: cpu/select.c, cpu/report.c.
 *
 * A block takes one token after another. Its scores stand in a row of the block's own in the workspace, so that there
 * are as many rows as blocks, never as tokens. The k-th best is found by its bits, eight at a time; keys are written
 * in ascending order by counting within a block. A thread scores a key: its E numbers are read once for four index
 * heads. */
#include "backend/cuda/sparse.cuh"

DEVICE double keys_wanted(const AttrSparse &k, const float *x, int n, double *part, float *part_max) {
    double wanted = (double)k.k_base;
    if (k.keep == KEEP_VARIANCE) {
        double sum = 0, square = 0, off = 0;
        for (int i = threadIdx.x; i < n; i += blockDim.x) sum += x[i], square += (double)x[i] * x[i];
        sum = total_of_block(sum, part);
        square = total_of_block(square, part);
        double mean = sum / n;
        for (int i = threadIdx.x; i < n; i += blockDim.x) off += (x[i] - mean) * (x[i] - mean);
        off = total_of_block(off, part);
        double spread = n < 2 ? 0.0 : off / (n - 1) / (square / n + 1e-8);
        wanted *= 0.5 + 1 / (1 + (double)k.temperature * spread);
    }
    if (k.keep == KEEP_ENTROPY) {
        float top = -INFINITY;
        for (int i = threadIdx.x; i < n; i += blockDim.x) top = fmaxf(top, x[i]);
        top = max_of_block(top, part_max);
        double sum = 0, dot = 0;
        for (int i = threadIdx.x; i < n; i += blockDim.x) {
            double e = exp((double)x[i] - top);
            sum += e;
            dot += e * ((double)x[i] - top);
        }
        sum = total_of_block(sum, part);
        dot = total_of_block(dot, part);
        wanted *= 0.5 + (double)k.temperature * (log(sum) - dot / sum) / log((double)n + 1);
    }
    if (k.keep != KEEP_FIXED) wanted = fmin(fmax(wanted, (double)k.k_min), (double)k.k_max);
    return wanted;
}

/* Where a thread's flag stands among those of the block, in order; *total: how many there are. count: a word a warp. */
DEVICE int place_of(bool flag, int *total, int *count) {
    unsigned votes = __ballot_sync(~0u, flag);
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, before = 0, all = 0;
    if (lane == 0) count[warp] = __popc(votes);
    __syncthreads();
    for (int w = 0; w < SPARSE_WARPS; w++) {
        before += w < warp ? count[w] : 0;
        all += count[w];
    }
    __syncthreads();
    *total = all;
    return before + __popc(votes & ((1u << lane) - 1));
}

DEVICE void write_best(int32_t *to, int most, const float *x, Seen seen, int k, int *count, uint32_t *found,
                       double *part) {
    int above = 0, put = 0, passed = 0;
    uint32_t least = kth_largest(x, seen.n, k, &above, count, found);
    double equal = 0;
    for (int i = threadIdx.x; i < seen.n; i += blockDim.x) equal += draw_order(x[i]) == least;
    int skipped = (int)total_of_block(equal, part) - (k - above); /* of equals, the earlier ones */
    for (int first = 0; first < seen.n; first += SPARSE_THREADS) {
        int i = first + threadIdx.x, equals, taken;
        uint32_t u = i < seen.n ? draw_order(x[i]) : 0;
        bool same = i < seen.n && u == least;
        int rank = passed + place_of(same, &equals, count);
        bool take = i < seen.n && (u > least || (same && rank >= skipped));
        int at = put + place_of(take, &taken, count);
        if (take) to[at] = seen.begin + i;
        passed += equals;
        put += taken;
    }
    for (int i = k + threadIdx.x; i < most; i += blockDim.x) to[i] = -1;
}

struct Scratch { /* in shared memory */
    double part[WARP];
    float part_max[WARP];
    int count[256];
    uint32_t found[2];
};

DEVICE void select_none(int32_t *to, int most) {
    for (int i = threadIdx.x; i < most; i += blockDim.x) to[i] = -1;
}

/* x: the scores of what the token sees. */
template <typename T, typename K>
DEVICE void select_one(const CudaSparse &a, float *x, int64_t token, Seen seen, int32_t *to, int most, float *dense_q,
                       Scratch &s) {
#pragma unroll 1
    for (int i = threadIdx.x; i < seen.n; i += blockDim.x) x[i] = rintf(x[i] * 4096.0f) * (1.0f / 4096.0f);
    int k = (int)fmin(fmin(keys_wanted(a.k, x, seen.n, s.part, s.part_max), (double)seen.n), (double)most);
#pragma unroll 1
    for (int i = threadIdx.x; i < seen.n && a.k.by == SELECT_RANDOM; i += blockDim.x)
        x[i] = (float)drawn_rank(a.k, seen.n, i);
    if (a.k.by == SELECT_ORACLE) dense_row<T, K>(x, x + a.span, dense_q, a, token, seen, s.part, s.part_max);
    __syncthreads();
    write_best(to, most, x, seen, k, s.count, s.found, s.part);
}

template <typename T, typename K>
__global__ void __launch_bounds__(SPARSE_THREADS) select_kernel(CudaSparse a, int32_t *keys, int most) {
    extern __shared__ float memory[];
    __shared__ Scratch scratch;
    IndexQuery query = index_query_at(memory, a.k);
    float *dense_q = memory + query.padded * (query.dim + 2);
    float *x = a.workspace + (int64_t)blockIdx.x * a.span * (a.k.by == SELECT_ORACLE ? 2 : 1);
    for (int64_t token = blockIdx.x; token < a.tokens; token += gridDim.x) {
        Seen seen = seen_by(a, token);
        int32_t *to = keys + token * most;
        __syncthreads();
        if (seen.n <= 0) {
            select_none(to, most);
            continue;
        }
        load_index_query<T>(query, a, token);
        __syncthreads();
        for (int i = threadIdx.x; i < seen.n; i += blockDim.x)
            x[i] = index_score(query, key_of<K>(a.index_keys, seen.row, seen.begin + i, 0), a.k.relu);
        __syncthreads();
        select_one<T, K>(a, x, token, seen, to, most, dense_q, scratch);
    }
}

/* A block a row of scores, which stand in the workspace by places in the row. */
__global__ void __launch_bounds__(SPARSE_THREADS, 4)
    select_scored_kernel(CudaSparse a, int32_t *keys, int most, int64_t first_tile) {
    __shared__ Scratch scratch;
    int64_t seq = a.k.heads.seq, tiles = (seq + CUDA_INDEX_TILE - 1) / CUDA_INDEX_TILE,
            tile = first_tile + blockIdx.x / CUDA_INDEX_TILE,
            place = tile % tiles * CUDA_INDEX_TILE + blockIdx.x % CUDA_INDEX_TILE, token = tile / tiles * seq + place;
    if (place >= seq) return;
    Seen seen = seen_by(a, token);
    float *x = a.workspace + (int64_t)blockIdx.x * a.stride + seen.begin;
    if (seen.n <= 0)
        select_none(keys + token * most, most);
    else
        select_one<float, float>(a, x, token, seen, keys + token * most, most, nullptr, scratch);
}

/* A warp a token. */
template <typename T>
__global__ void __launch_bounds__(SPARSE_THREADS)
    index_put_kernel(CudaSparse a, CudaNumbers cache, int64_t row_bytes, int64_t scale_at) {
    int64_t token = (int64_t)blockIdx.x * SPARSE_WARPS + threadIdx.x / WARP;
    int lane = threadIdx.x % WARP, dim = a.k.index_dim, heads = a.k.index_heads;
    if (token >= a.tokens || a.positions[token] < 0) return;
    int64_t row = token / a.k.heads.seq, to = (a.rows ? a.rows[row] : row) * a.k.heads.slots + a.positions[token];
    const T *from = (const T *)a.index + token * ((int64_t)heads * dim + dim + heads) + (int64_t)heads * dim;
    if (cache.format != FMT_INT8) {
        for (int e = lane; e < dim; e += WARP) ((T *)cache.data)[to * dim + e] = from[e];
        return;
    }
    float top = 0;
    for (int e = lane; e < dim; e += WARP) top = fmaxf(top, fabsf(to_float(from[e])));
    top = warp_max(top);
    float inverse = 127.0f / top;
    if (!isfinite(inverse)) inverse = 0;
    int8_t *codes = (int8_t *)cache.data + to * row_bytes;
    for (int e = lane; e < dim; e += WARP) codes[e] = (int8_t)rintf(to_float(from[e]) * inverse);
    if (lane == 0) *(float *)(codes + scale_at) = top / 127.0f;
}

/* ---- the report ---- */

template <typename T>
__global__ void __launch_bounds__(SPARSE_THREADS, BELOW_90 ? 4 : 0)
    attend_report_kernel(CudaSparse a, double *parts, const int32_t *keys, int most, int64_t each, int64_t stride) {
    extern __shared__ float memory[];
    __shared__ double part[WARP];
    __shared__ float part_max[WARP];
    __shared__ int count[256];
    __shared__ uint32_t found[2];
    float *x = a.workspace + (int64_t)blockIdx.x * a.span * 2;
    double heads = a.k.heads.heads;
    int64_t seq = a.k.heads.seq;
    for (int64_t at = blockIdx.x; at < a.tokens; at += gridDim.x) { /* as sparse_report_token */
        int64_t place = (at % each + 1) * stride, token = at / each * seq + (place < seq ? place : seq) - 1;
        Seen seen = seen_by(a, token);
        const int32_t *list = keys + token * most;
        dense_row<T, T>(x, x + a.span, memory, a, token, seen, part, part_max);
        double mass = 0, mine = 0, best = 0, least = 0;
        for (int i = threadIdx.x; i < most; i += blockDim.x)
            if (list[i] >= 0) mass += x[list[i] - seen.begin], mine += 1;
        mass = total_of_block(mass, part);
        int k = (int)total_of_block(mine, part), above = 0;
        if (k > 0) {
            uint32_t word = kth_largest(x, seen.n, k, &above, count, found);
            double equals = 0;
            for (int i = threadIdx.x; i < seen.n; i += blockDim.x) {
                uint32_t u = draw_order(x[i]);
                if (u > word) best += x[i];
                if (u == word) least += x[i], equals += 1;
            }
            best = total_of_block(best, part);
            least = total_of_block(least, part) / total_of_block(equals, part);
            best += (k - above) * least;
        }
        if (threadIdx.x == 0) {
            bool later = seen.n > 1;
            double *words = parts + at * REPORT_WORDS;
            for (int i = 0; i < REPORT_WORDS; i++) words[i] = 0;
            words[REPORT_TOKENS] = 1;
            words[REPORT_SEEN] = seen.n;
            words[REPORT_KEYS] = words[REPORT_KEYS_MOST] = k;
            words[REPORT_KEYS_LEAST] = k ? REPORT_FAR - k : 0;
            words[REPORT_MASS] = mass / heads;
            words[REPORT_BEST] = best / heads;
            words[REPORT_FIRST] = later ? x[0] / heads : 0.0;
            words[REPORT_LATER] = later;
        }
        __syncthreads();
    }
}

__global__ void __launch_bounds__(1024)
    report_sum_kernel(double *stat, const double *parts, int64_t tokens, const float *beta) {
    __shared__ double part[WARP];
    __shared__ float part_max[WARP];
    double keep = (double)read_beta(beta);
    for (int w = 0; w < REPORT_SUMS; w++) {
        double sum = 0;
        for (int64_t i = threadIdx.x; i < tokens; i += blockDim.x) sum += parts[i * REPORT_WORDS + w];
        sum = total_of_block(sum, part);
        if (threadIdx.x == 0) stat[w] = keep == 0 ? sum : keep * stat[w] + sum;
    }
    for (int w = REPORT_SUMS; w < REPORT_WORDS; w++) { /* counts of keys, which floats hold exactly */
        float top = 0;
        for (int64_t i = threadIdx.x; i < tokens; i += blockDim.x) top = fmaxf(top, (float)parts[i * REPORT_WORDS + w]);
        top = max_of_block(top, part_max);
        if (threadIdx.x == 0) stat[w] = keep == 0 ? (double)top : fmax(keep * stat[w], (double)top);
    }
}

static size_t query_bytes(const AttrSparse *k) {
    int padded = (k->index_heads + HEADS_AT_ONCE - 1) / HEADS_AT_ONCE * HEADS_AT_ONCE;
    return (size_t)(padded * (k->index_dim + 2) + k->heads.head_dim) * sizeof(float);
}

extern "C" void cuda_launch_select(cudaStream_t s, const CudaSparse *a, int32_t *keys, int64_t most) {
    with_keys(a->format, a->index_keys.format, [&](auto t, auto k) {
        select_kernel<decltype(t), decltype(k)>
            <<<a->blocks, SPARSE_THREADS, query_bytes(&a->k), s>>>(*a, keys, (int)most);
    });
}

extern "C" void cuda_launch_select_scored(cudaStream_t s, const CudaSparse *a, int32_t *keys, int64_t most,
                                          int64_t first_tile, int64_t tiles) {
    select_scored_kernel<<<(unsigned)(tiles * CUDA_INDEX_TILE), SPARSE_THREADS, 0, s>>>(*a, keys, (int)most,
                                                                                        first_tile);
}

extern "C" void cuda_launch_index_put(cudaStream_t s, const CudaSparse *a, CudaNumbers cache, int64_t row_bytes,
                                      int64_t scale_at) {
    with_real(a->format, [&](auto t) {
        index_put_kernel<decltype(t)>
            <<<blocks_for(a->tokens, SPARSE_WARPS), SPARSE_THREADS, 0, s>>>(*a, cache, row_bytes, scale_at);
    });
}

extern "C" void cuda_launch_attend_report(cudaStream_t s, const CudaSparse *a, double *stat, double *parts,
                                          const int32_t *keys, int64_t most, const float *beta, int64_t each,
                                          int64_t stride) {
    with_real(a->format, [&](auto t) {
        size_t query = (size_t)a->k.heads.head_dim * sizeof(float);
        attend_report_kernel<decltype(t)>
            <<<a->blocks, SPARSE_THREADS, query, s>>>(*a, parts, keys, (int)most, each, stride);
    });
    report_sum_kernel<<<1, 1024, 0, s>>>(stat, parts, a->tokens, beta);
}
