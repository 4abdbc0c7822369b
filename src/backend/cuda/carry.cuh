/* carry.cuh - the step of a correction v on the device (ir/op_carry.c): v = keep * v - times * last - remove * u, and
 * its products with another vector in fp64. */
#ifndef BACKEND_CUDA_CARRY_CUH
#define BACKEND_CUDA_CARRY_CUH

#include "backend/cuda/kernels.h"
#include "backend/cuda/vectors.cuh"

struct Carry { /* of one tensor, from the dials and its attributes */
    float keep, times, remove;
    bool none; /* neither v nor last counts */
};

DEVICE Carry carry_of(const float *dials, float lr_mult, float weight_decay) {
    double lr = (double)dials[CUDA_CARRY_LR] * (double)lr_mult, scale = (double)dials[CUDA_CARRY_KEEP];
    double keep = 1.0 - lr * ((double)weight_decay + (double)dials[CUDA_CARRY_DAMPING]);
    return {(float)(scale * keep), (float)(scale * lr * (double)dials[CUDA_CARRY_TIMES]), dials[CUDA_CARRY_REMOVE],
            scale == 0};
}

template <int N> DEVICE void carry_step(float (&v)[N], const float (&last)[N], const Carry &c) {
#pragma unroll
    for (int k = 0; k < N; k++) v[k] = c.none ? 0.0f : c.keep * v[k] - c.times * last[k];
}

template <int N> DEVICE void carry_add(double (&sums)[CUDA_CARRY_SUMS], const float (&v)[N], const float (&x)[N]) {
#pragma unroll
    for (int k = 0; k < N; k++) {
        sums[CUDA_CARRY_VX] += (double)v[k] * (double)x[k];
        sums[CUDA_CARRY_XX] += (double)x[k] * (double)x[k];
        sums[CUDA_CARRY_VV] += (double)v[k] * (double)v[k];
    }
}

/* The sums of a block's threads, left for carry_join. part: a number a warp in shared memory. */
DEVICE void carry_put(double *tile, double (&sums)[CUDA_CARRY_SUMS], double *part) {
#pragma unroll
    for (int k = 0; k < CUDA_CARRY_SUMS; k++) {
        double sum = total_of_block(sums[k], part);
        if (threadIdx.x == 0) tile[k] = sum;
    }
}

#endif
