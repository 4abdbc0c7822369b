/* policy.cu - a policy's loss over tokens and its gradient. Reference: cpu/policy.c.
 *
 *   policy_loss       one block, in fp64, in one order: a few thousand numbers, latency and not bytes
 *   policy_loss_grad  a thread a token
 * The divisor and beta are dials, read when the kernel runs. All vectors are fp32. */
#include "backend/cuda/kernels.h"
#include "backend/cuda/vectors.cuh"
#include "ir/policy.h"

enum { SUM_THREADS = 1024, THREADS = 256 };

struct Token {
    double loss, dlogp, kl;
    bool low, high;
};

DEVICE Token token_of(const CudaPolicy &p, int64_t i) {
    double logp = p.logp[i], advantage = p.advantage[i];
    double ratio = p.old ? exp(logp - (double)p.old[i]) : 1.0;
    double low = 1 - (double)p.attr.clip_low, high = 1 + (double)p.attr.clip_high;
    double clipped = ratio < low ? low : ratio > high ? high : ratio;
    bool whole = ratio * advantage <= clipped * advantage;
    Token t = {-(whole ? ratio : clipped) * advantage, whole ? -ratio * advantage : 0.0, 0.0,
               ratio < low && advantage < 0, ratio > high && advantage > 0};
    if (!p.ref) return t;
    double apart = (double)p.ref[i] - logp;
    t.kl = exp(apart) - apart - 1;
    t.loss += (double)p.attr.kl * t.kl;
    t.dlogp += (double)p.attr.kl * (1 - exp(apart));
    return t;
}

DEVICE double most_of_block(double x, double *part) {
    for (int d = WARP / 2; d; d /= 2) x = fmax(x, __shfl_xor_sync(~0u, x, d));
    if (threadIdx.x % WARP == 0) part[threadIdx.x / WARP] = x;
    __syncthreads();
    for (int w = 0; w < SUM_THREADS / WARP; w++) x = fmax(x, part[w]);
    return x;
}

__global__ void __launch_bounds__(SUM_THREADS) policy_loss_kernel(const __grid_constant__ CudaPolicy p) {
    __shared__ double part[WARP];
    double sum = 0, facts[POLICY_FACTS] = {};
    for (int64_t i = threadIdx.x; i < p.n; i += SUM_THREADS) {
        if (p.weight[i] == 0) continue;
        Token t = token_of(p, i);
        sum += (double)p.weight[i] * t.loss;
        facts[POLICY_TOKENS] += 1;
        facts[POLICY_KL] += t.kl;
        facts[POLICY_LOW] += t.low;
        facts[POLICY_HIGH] += t.high;
        double apart = p.sampled ? fabs((double)p.logp[i] - (double)p.sampled[i]) : 0;
        facts[POLICY_APART] += apart;
        facts[POLICY_MOST_APART] = fmax(facts[POLICY_MOST_APART], apart);
    }
    double keep = (double)read_beta(p.beta);
    sum = sum_of_block(sum, part);
    if (threadIdx.x == 0) {
        double term = sum / (double)*p.divisor;
        *p.stat = keep == 0 ? term : keep * *p.stat + term;
    }
    for (int k = 0; k < POLICY_LEAST_LOW; k++) {
        __syncthreads(); /* part is free again */
        facts[k] = k == POLICY_MOST_APART ? most_of_block(facts[k], part) : sum_of_block(facts[k], part);
    }
    if (threadIdx.x == 0) policy_keep(p.facts, facts, keep);
}

__global__ void __launch_bounds__(THREADS) policy_loss_grad_kernel(const __grid_constant__ CudaPolicy p) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= p.n) return;
    p.dlogp[i] = p.weight[i] == 0 ? 0.0f : (float)((double)p.weight[i] / (double)*p.divisor * token_of(p, i).dlogp);
}

extern "C" void cuda_launch_policy_loss(cudaStream_t s, const CudaPolicy *p) {
    policy_loss_kernel<<<1, SUM_THREADS, 0, s>>>(*p);
}

extern "C" void cuda_launch_policy_loss_grad(cudaStream_t s, const CudaPolicy *p) {
    policy_loss_grad_kernel<<<blocks_for(p->n, THREADS), THREADS, 0, s>>>(*p);
}
