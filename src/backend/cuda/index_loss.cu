/* index_loss.cu - the indexer's loss: the KL divergence of its scores' softmax from the attention of the heads it
 * serves. Reference: cpu/index_loss.c.
 *
 * A block takes one token after another. In its rows of the workspace: p, the mean over heads of e^(q.k - lse); the
 * scores I; for the gradient what each index head passes on. Gradients of index keys: a block owns TILE keys of a row
 * and walks over the queries behind them in order, computing p and I of each pair again; a warp owns the sums of its
 * keys. Divisor, weights and beta are dials. */
#include "backend/cuda/parts.cuh"
#include "backend/cuda/sparse.cuh"

enum { THREADS = 128, WARPS = THREADS / WARP, TILE = 32 };

struct Counted { /* the keys that count for a token: list[i], or begin + i */
    const int32_t *list;
    int begin, n;
    DEVICE int operator[](int i) const { return list ? list[i] : begin + i; }
};

DEVICE Counted counted_of(const CudaIndexLoss &a, int64_t token) {
    int begin = max(a.s.doc_begin[token], 0);
    if (!a.list) return {nullptr, begin, (int)(token % a.s.k.heads.seq) + 1 - begin};
    const int32_t *list = a.list + token * a.most;
    int low = 0, high = (int)a.most;
    while (low < high) { /* behind the last key stand -1 */
        int middle = (low + high) / 2;
        if (list[middle] >= 0)
            low = middle + 1;
        else
            high = middle;
    }
    return {list, begin, low};
}

/* Shared memory: the index query, then the queries of all heads (H, D) and their lse (H). */
template <typename T>
DEVICE void load_token(const CudaIndexLoss &a, const IndexQuery &x, float *q, float *lse, int64_t token) {
    const AttrHeads &h = a.s.k.heads;
    int64_t width = (int64_t)(h.heads + 2 * h.kv_heads) * h.head_dim;
    load_index_query<T>(x, a.s, token);
    for (int i = threadIdx.x; i < h.heads * h.head_dim; i += blockDim.x)
        q[i] = to_float(((const T *)a.s.qkv)[token * width + i]);
    for (int i = threadIdx.x; i < h.heads; i += blockDim.x) lse[i] = a.lse[token * h.heads + i];
}

/* p of one key, by one thread. */
template <typename T>
DEVICE float attention_on(const CudaIndexLoss &a, const float *q, const float *lse, int64_t row, int s) {
    const AttrHeads &h = a.s.k.heads;
    int group = h.heads / h.kv_heads;
    float sum = 0;
    for (int head = 0; head < h.heads; head++) {
        KeyRow<T> key = key_of<T>(a.s.keys, row, s, head / group * a.s.head_step);
        float dot = 0;
        for (int d = 0; d < h.head_dim; d++) dot += q[head * h.head_dim + d] * key[d];
        sum += expf(dot * h.scale - lse[head]);
    }
    return sum / (float)h.heads;
}

/* Rows p and I of a token; gives the logarithmic sum of I. */
template <typename T>
DEVICE float fill_rows(const CudaIndexLoss &a, const IndexQuery &x, const float *q, const float *lse, float *p,
                       float *score, Counted keys, int64_t row, double *part, float *part_max) {
    float top = -INFINITY;
    for (int i = threadIdx.x; i < keys.n; i += blockDim.x) {
        p[i] = attention_on<T>(a, q, lse, row, keys[i]);
        score[i] = index_score(x, key_of<T>(a.s.index_keys, row, keys[i], 0), a.s.k.relu);
        top = fmaxf(top, score[i]);
    }
    top = max_of_block(top, part_max);
    double sum = 0;
    for (int i = threadIdx.x; i < keys.n; i += blockDim.x) sum += exp((double)score[i] - top);
    return top + (float)log(total_of_block(sum, part));
}

/* What a pair adds to KL(p || softmax I). */
DEVICE double divergence_of(float p, float score, float lse) {
    return (double)p * (log((double)p) - ((double)score - lse));
}

template <typename T>
__global__ void __launch_bounds__(SPARSE_THREADS) index_loss_kernel(CudaIndexLoss a) {
    extern __shared__ float memory[];
    __shared__ double part[WARP];
    __shared__ float part_max[WARP];
    IndexQuery x = index_query_at(memory, a.s.k);
    float *q = memory + x.padded * (x.dim + 2), *lse = q + a.s.k.heads.heads * a.s.k.heads.head_dim;
    float *p = a.s.workspace + (int64_t)blockIdx.x * 2 * a.s.span, *score = p + a.s.span;
    for (int64_t token = blockIdx.x; token < a.s.tokens; token += gridDim.x) {
        Counted keys = counted_of(a, token);
        double kl = 0;
        if (a.weight[token] != 0 && keys.n > 0) {
            load_token<T>(a, x, q, lse, token);
            __syncthreads();
            float sum = fill_rows<T>(a, x, q, lse, p, score, keys, token / a.s.k.heads.seq, part, part_max);
            for (int i = threadIdx.x; i < keys.n; i += blockDim.x)
                if (p[i] > 0) kl += divergence_of(p[i], score[i], sum);
            kl = total_of_block(kl, part) * a.weight[token];
        }
        if (threadIdx.x == 0) a.parts[token] = kl;
        __syncthreads();
    }
}

__global__ void __launch_bounds__(1024)
    loss_sum_kernel(double *stat, const double *parts, int64_t n, const float *divisor, const float *beta) {
    __shared__ double part[WARP];
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += parts[i];
    sum = total_of_block(sum, part);
    if (threadIdx.x) return;
    double term = sum / (double)*divisor, keep = (double)read_beta(beta);
    *stat = keep == 0 ? term : keep * *stat + term;
}

/* ---- backward: the query's side ---- */

DEVICE float slope(float act, bool relu) { return relu ? (act > 0 ? 1.0f : 0.0f) : act * (1.0f - act); }

template <typename T>
__global__ void __launch_bounds__(SPARSE_THREADS) index_grad_kernel(CudaIndexLoss a) {
    extern __shared__ float memory[];
    __shared__ double part[WARP];
    __shared__ float part_max[WARP];
    IndexQuery x = index_query_at(memory, a.s.k);
    int heads = x.heads, dim = x.dim;
    float *q = memory + x.padded * (dim + 2), *lse = q + a.s.k.heads.heads * a.s.k.heads.head_dim;
    float *d = a.s.workspace + (int64_t)blockIdx.x * (2 + heads) * a.s.span, *score = d + a.s.span,
          *through = score + a.s.span;
    int64_t width = (int64_t)heads * dim + dim + heads;
    for (int64_t token = blockIdx.x; token < a.s.tokens; token += gridDim.x) {
        Counted keys = counted_of(a, token);
        T *to = (T *)a.d_index + token * width;
        float *bias = a.bias_parts + token * 2 * heads, by = a.weight[token] / *a.divisor, sum = 0;
        int64_t row = token / a.s.k.heads.seq;
        bool counts = a.weight[token] != 0 && keys.n > 0;
        if (counts) {
            load_token<T>(a, x, q, lse, token);
            __syncthreads();
            sum = fill_rows<T>(a, x, q, lse, d, score, keys, row, part, part_max);
        }
        double kl = 0;
        for (int i = threadIdx.x; i < keys.n && counts; i += blockDim.x) {
            if (d[i] > 0) kl += divergence_of(d[i], score[i], sum);
            d[i] = (expf(score[i] - sum) - d[i]) * by;
        }
        if (a.parts) {
            kl = total_of_block(kl, part) * a.weight[token];
            if (threadIdx.x == 0) a.parts[token] = kl;
        }
        __syncthreads();
        for (int j = 0; j < heads; j++) {
            double weight = 0, score_bias = 0;
            for (int i = threadIdx.x; i < keys.n && counts; i += blockDim.x) {
                float pre[HEADS_AT_ONCE];
                index_heads(pre, x, key_of<T>(a.s.index_keys, row, keys[i], 0), j / HEADS_AT_ONCE * HEADS_AT_ONCE);
                float mine = j % HEADS_AT_ONCE == 0   ? pre[0]
                             : j % HEADS_AT_ONCE == 1 ? pre[1]
                             : j % HEADS_AT_ONCE == 2 ? pre[2]
                                                      : pre[3];
                float act = index_act(mine, a.s.k.relu), da = d[i] * x.w[j] * slope(act, a.s.k.relu);
                through[(int64_t)j * a.s.span + i] = da;
                weight += (double)d[i] * act;
                score_bias += da;
            }
            weight = total_of_block(weight, part);
            score_bias = total_of_block(score_bias, part);
            if (threadIdx.x == 0) {
                float dw = counts ? (float)weight * x.w[j] * (1.0f - x.w[j]) : 0.0f;
                to[(int64_t)heads * dim + dim + j] = from_float<T>(dw);
                bias[j] = dw;
                bias[heads + j] = counts ? (float)score_bias : 0.0f;
            }
        }
        __syncthreads();
        for (int i = threadIdx.x; i < heads * dim; i += blockDim.x) {
            float total = 0;
            for (int k = 0; k < keys.n && counts; k++)
                total +=
                    through[(int64_t)(i / dim) * a.s.span + k] * key_of<T>(a.s.index_keys, row, keys[k], 0)[i % dim];
            to[i] = from_float<T>(total * rsqrtf((float)dim));
        }
        if (threadIdx.x == 0) a.index_lse[token] = sum;
        __syncthreads();
    }
}

/* ---- backward: the keys' side ---- */

DEVICE unsigned bits_of(const CudaIndexLoss &a, int64_t token, int first) {
    if (a.weight[token] == 0) return 0;
    Counted keys = counted_of(a, token);
    unsigned bits = 0;
    if (!keys.list) {
        for (int s = max(first, keys.begin); s < min(first + (int)TILE, keys.begin + keys.n); s++)
            bits |= 1u << (s - first);
        return bits;
    }
    int low = 0, high = keys.n;
    while (low < high) {
        int middle = (low + high) / 2;
        if (keys.list[middle] < first)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < keys.n && keys.list[low] < first + (int)TILE; low++) bits |= 1u << (keys.list[low] - first);
    return bits;
}

/* dI of a pair, by a warp. */
template <typename T>
DEVICE float pair_gradient(const CudaIndexLoss &a, const IndexQuery &x, const float *q, const float *lse, int64_t token,
                           int64_t row, int s) {
    const AttrHeads &h = a.s.k.heads;
    int lane = threadIdx.x % WARP, group = h.heads / h.kv_heads;
    float p = 0, score = 0;
    for (int head = 0; head < h.heads; head++) {
        KeyRow<T> key = key_of<T>(a.s.keys, row, s, head / group * a.s.head_step);
        float dot = 0;
        for (int d = lane; d < h.head_dim; d += WARP) dot += q[head * h.head_dim + d] * key[d];
        p += expf(warp_sum(dot) * h.scale - lse[head]);
    }
    KeyRow<T> key = key_of<T>(a.s.index_keys, row, s, 0);
    for (int j = 0; j < x.heads; j++) {
        float dot = 0;
        for (int e = lane; e < x.dim; e += WARP) dot += x.q[j * x.dim + e] * key[e];
        score += x.w[j] * index_act(warp_sum(dot) + x.bias[j], a.s.k.relu);
    }
    return (expf(score - a.index_lse[token]) - p / (float)h.heads) * a.weight[token] / *a.divisor;
}

template <typename T>
__global__ void __launch_bounds__(THREADS) index_dk_kernel(CudaIndexLoss a) {
    extern __shared__ float memory[];
    __shared__ unsigned mask[THREADS];
    const AttrHeads &h = a.s.k.heads;
    IndexQuery x = index_query_at(memory, a.s.k);
    float *q = memory + x.padded * (x.dim + 2), *lse = q + h.heads * h.head_dim, *dk = lse + h.heads;
    int tiles = (int)((h.seq + TILE - 1) / TILE), first = blockIdx.x % tiles * TILE, lane = threadIdx.x % WARP,
        warp = threadIdx.x / WARP;
    int64_t row = blockIdx.x / tiles, token0 = row * h.seq, width = (int64_t)x.heads * x.dim + x.dim + x.heads;
    constexpr int EACH = TILE / WARPS;
    for (int i = threadIdx.x; i < TILE * x.dim; i += THREADS) dk[i] = 0;
    for (int t0 = first; t0 < h.seq; t0 += THREADS) {
        __syncthreads();
        mask[threadIdx.x] = t0 + (int)threadIdx.x < h.seq ? bits_of(a, token0 + t0 + threadIdx.x, first) : 0;
        __syncthreads();
        for (int i = 0; i < THREADS; i++) {
            if (!mask[i]) continue; /* the same for all threads */
            int64_t token = token0 + t0 + i;
            __syncthreads();
            load_token<T>(a, x, q, lse, token);
            __syncthreads();
            for (unsigned bits = mask[i] >> (warp * EACH) & ((1u << EACH) - 1); bits; bits &= bits - 1) {
                int mine = warp * EACH + __ffs((int)bits) - 1;
                float d = pair_gradient<T>(a, x, q, lse, token, row, first + mine);
                KeyRow<T> key = key_of<T>(a.s.index_keys, row, first + mine, 0);
                for (int j = 0; j < x.heads; j++) {
                    float dot = 0;
                    for (int e = lane; e < x.dim; e += WARP) dot += x.q[j * x.dim + e] * key[e];
                    float act = index_act(warp_sum(dot) + x.bias[j], a.s.k.relu),
                          da = d * x.w[j] * slope(act, a.s.k.relu);
                    for (int e = lane; e < x.dim; e += WARP)
                        dk[mine * x.dim + e] += da * x.q[j * x.dim + e]; /* q is scaled */
                }
            }
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < TILE * x.dim; i += THREADS) {
        int s = first + i / x.dim;
        if (s < h.seq)
            ((T *)a.d_index)[(token0 + s) * width + (int64_t)x.heads * x.dim + i % x.dim] = from_float<T>(dk[i]);
    }
}

static size_t shared_bytes(const AttrSparse *k, int64_t more) {
    int padded = (k->index_heads + HEADS_AT_ONCE - 1) / HEADS_AT_ONCE * HEADS_AT_ONCE;
    return (size_t)(padded * (k->index_dim + 2) + k->heads.heads * (k->heads.head_dim + 1) + more) * sizeof(float);
}

extern "C" void cuda_launch_index_loss(cudaStream_t s, const CudaIndexLoss *a) {
    with_real(a->s.format, [&](auto t) {
        index_loss_kernel<decltype(t)><<<a->s.blocks, SPARSE_THREADS, shared_bytes(&a->s.k, 0), s>>>(*a);
    });
    cuda_launch_index_loss_sum(s, a);
}

extern "C" void cuda_launch_index_loss_sum(cudaStream_t s, const CudaIndexLoss *a) {
    loss_sum_kernel<<<1, 1024, 0, s>>>(a->stat, a->parts, a->s.tokens, a->divisor, a->beta);
}

extern "C" void cuda_launch_index_loss_grad(cudaStream_t s, const CudaIndexLoss *a) {
    int64_t seq = a->s.k.heads.seq, rows = a->s.tokens / seq, tiles = (seq + TILE - 1) / TILE,
            words = 2 * a->s.k.index_heads;
    with_real(a->s.format, [&](auto t) {
        using T = decltype(t);
        index_grad_kernel<T><<<a->s.blocks, SPARSE_THREADS, shared_bytes(&a->s.k, 0), s>>>(*a);
        index_dk_kernel<T>
            <<<(unsigned)(rows * tiles), THREADS, shared_bytes(&a->s.k, (int64_t)TILE * a->s.k.index_dim), s>>>(*a);
    });
    if (a->d_bias.data) join_parts(s, a->d_bias, a->bias_parts, a->s.tokens, words, words, a->beta, a->key);
}
