/* loss.cu - what a distribution says about its token; from per-token numbers to one, and back. Reference: cpu/loss.c.
 *
 *   token_score     log p of the label, mean and deviation of log p under p, is it the likeliest: a block a row, which
 *                   is read twice, the second time from the second-level cache
 *   row_distance    mean square of x - how.REF ref - how.TOWARD toward, and its gradient: a block a row
 *   token_sum       stat = beta*stat + scale * sum(v*weight) / divisor, in fp64, in one order, by one block
 *   token_sum_grad  dv = scale*weight/divisor: a thread a token
 * A few thousand numbers: latency, not bytes. The divisor and beta are dials, read when the kernel runs. */
#include "backend/cuda/kernels.h"
#include "backend/cuda/vectors.cuh"

enum { SUM_THREADS = 1024, SCORE_THREADS = 512, THREADS = 256 };

DEVICE double number_at(CudaNumbers n, int64_t i) { /* small vectors of any format: it need not be fast */
    switch (n.format) {
        case FMT_F32: return ((const float *)n.data)[i];
        case FMT_BF16: return to_float(((const Bf16 *)n.data)[i]);
        case FMT_F16: return to_float(((const F16 *)n.data)[i]);
        default: return ((const double *)n.data)[i];
    }
}

__global__ void __launch_bounds__(SUM_THREADS)
    token_sum_kernel(double *stat, CudaNumbers v, CudaNumbers weight, CudaNumbers divisor, const float *beta,
                     int64_t n, float scale) {
    __shared__ double part[WARP];
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += SUM_THREADS) sum += number_at(v, i) * number_at(weight, i);
    sum = sum_of_block(sum, part);
    if (threadIdx.x) return;
    double term = (double)scale * sum / number_at(divisor, 0), keep = (double)read_beta(beta);
    *stat = keep == 0 ? term : keep * *stat + term;
}

template <typename T> __global__ void __launch_bounds__(THREADS)
    token_sum_grad_kernel(T *dv, CudaNumbers weight, CudaNumbers divisor, int64_t n, float scale) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n) dv[i] = from_float<T>((float)((double)scale / number_at(divisor, 0) * number_at(weight, i)));
}

__global__ void __launch_bounds__(SCORE_THREADS)
    token_score_kernel(float *scores, const float *logits, const int32_t *labels, int64_t vocabulary) {
    __shared__ float tops[WARP];
    __shared__ double part[WARP];
    const float *x = logits + blockIdx.x * vocabulary;
    float *score = scores + blockIdx.x * TOKEN_SCORES;
    int label = labels[blockIdx.x];
    if (label < 0) {
        if (threadIdx.x < TOKEN_SCORES) score[threadIdx.x] = 0;
        return;
    }
    float own = x[label], top = -INFINITY;
    int beaten = 0; /* by a larger logit, or an equal one before it */
    for (int64_t i = threadIdx.x; i < vocabulary; i += SCORE_THREADS) {
        float v = x[i];
        top = fmaxf(top, v);
        beaten |= v > own || (v == own && i < label);
    }
    beaten = __syncthreads_or(beaten);
    top = max_of_block(top, tops);
    double sum = 0, mean = 0, square = 0;
    for (int64_t i = threadIdx.x; i < vocabulary; i += SCORE_THREADS) {
        float d = x[i] - top, p = expf(d), weighed = p > 0 ? p * d : 0; /* a logit of -infinity has no weight */
        sum += p, mean += weighed, square += (double)weighed * (p > 0 ? d : 0);
    }
    sum = total_of_block(sum, part), mean = total_of_block(mean, part) / sum, square = total_of_block(square, part);
    if (threadIdx.x) return;
    score[SCORE_LOGP] = (float)((double)own - top - log(sum));
    score[SCORE_MEAN] = (float)(mean - log(sum));
    score[SCORE_DEVIATION] = (float)sqrt(fmax(square / sum - mean * mean, 0.0));
    score[SCORE_LIKELIEST] = !beaten;
}

/* Number i of a row's difference; a word of 0: its operand is not read. */
template <typename T> DEVICE float off_by(const CudaDistance &d, int64_t row, int64_t i, const float *how) {
    float off = to_float(((const T *)d.x)[row * d.cols + i]);
    if (how[DISTANCE_REF] != 0.0f) off -= how[DISTANCE_REF] * to_float(((const T *)d.ref)[row * d.cols + i]);
    if (how[DISTANCE_TOWARD] != 0.0f) off -= how[DISTANCE_TOWARD] * d.toward[i];
    return off;
}

template <typename T> __global__ void __launch_bounds__(THREADS)
    row_distance_kernel(const __grid_constant__ CudaDistance d) {
    __shared__ double part[WARP];
    const float *how = d.how + blockIdx.x * DISTANCE_WORDS;
    double sum = 0;
    for (int64_t i = threadIdx.x; i < d.cols; i += THREADS) {
        double off = off_by<T>(d, blockIdx.x, i, how);
        sum += off * off;
    }
    sum = sum_of_block(sum, part);
    if (threadIdx.x == 0) d.v[blockIdx.x] = (float)(sum / (double)d.cols);
}

template <typename T> __global__ void __launch_bounds__(THREADS)
    row_distance_grad_kernel(const __grid_constant__ CudaDistance d) {
    const float *how = d.how + blockIdx.x * DISTANCE_WORDS;
    float slope = (float)(2.0 * (double)d.dv[blockIdx.x] / (double)d.cols);
    T *dx = (T *)d.dx.data + blockIdx.x * d.cols;
    for (int64_t i = threadIdx.x; i < d.cols; i += THREADS)
        dx[i] = from_float<T>(slope == 0.0f ? 0.0f : slope * off_by<T>(d, blockIdx.x, i, how));
}

extern "C" void cuda_launch_row_distance(cudaStream_t s, const CudaDistance *d) {
    with_real(d->dx.format, [&](auto t) {
        using T = decltype(t);
        if (d->v)
            row_distance_kernel<T><<<(unsigned)d->rows, THREADS, 0, s>>>(*d);
        else
            row_distance_grad_kernel<T><<<(unsigned)d->rows, THREADS, 0, s>>>(*d);
    });
}

extern "C" void cuda_launch_token_score(cudaStream_t s, float *score, const float *logits, const int32_t *labels,
                                        int64_t n, int64_t vocabulary) {
    token_score_kernel<<<(unsigned)n, SCORE_THREADS, 0, s>>>(score, logits, labels, vocabulary);
}

extern "C" void cuda_launch_token_sum(cudaStream_t s, double *stat, CudaNumbers v, CudaNumbers weight,
                                      CudaNumbers divisor, const float *beta, int64_t n, float scale) {
    token_sum_kernel<<<1, SUM_THREADS, 0, s>>>(stat, v, weight, divisor, beta, n, scale);
}

extern "C" void cuda_launch_token_sum_grad(cudaStream_t s, CudaNumbers dv, CudaNumbers weight, CudaNumbers divisor,
                                           int64_t n, float scale) {
    with_real(dv.format, [&](auto t) {
        using T = decltype(t);
        token_sum_grad_kernel<T>
            <<<blocks_for(n, THREADS), THREADS, 0, s>>>((T *)dv.data, weight, divisor, n, scale);
    });
}
