/* planted.cu - a reversal of numbers through shared memory, with one fault or none. */
#include "tests/cuda_on_host/planted.h"

#include "backend/cuda/ptx.cuh"

enum { THREADS = 128, BLOCKS = 4 };

DEVICE void copy_part(float *to, const float *from, Plant plant) {
    if (threadIdx.x < THREADS / 4) copy16_async(shared_address(to + threadIdx.x * 4), from + threadIdx.x * 4);
    copies_commit();
    if (plant == PLANT_WAITS_FOR_FEWER) copies_wait<1>();
    else if (plant != PLANT_NO_WAIT) copies_wait<0>();
}

DEVICE void meet(Plant plant) {
    if (plant == PLANT_NO_BARRIER) return;
    if (plant == PLANT_HALF_A_BARRIER && threadIdx.x >= THREADS / 2) return;
    if (plant == PLANT_TWO_BARRIERS && threadIdx.x >= THREADS / 2) __syncthreads();
    else __syncthreads();
}

/* x of the lane on the other side of the warp. */
DEVICE float across(float x, float *line, Plant plant) {
    int lane = threadIdx.x % WARP;
    if (plant == PLANT_HALF_A_WARP && lane < WARP / 2) return x;
    if (plant == PLANT_NOT_IN_MASK) return __shfl_xor_sync(0xffffu, x, WARP - 1);
    line[threadIdx.x] = x;
    if (plant != PLANT_NO_WARP_BARRIER) __syncwarp();
    float other = line[threadIdx.x ^ (WARP - 1)];
    return other == __shfl_xor_sync(~0u, x, WARP - 1) ? other : NAN;
}

__global__ void reverse_kernel(float *to, const float *from, Plant plant) {
    extern __shared__ __align__(16) float part[];
    __shared__ float line[THREADS], unwritten;
    int first = blockIdx.x * THREADS, i = threadIdx.x;
    copy_part(part, from + first, plant);
    if (plant == PLANT_ENDED && i >= THREADS - WARP) return;
    meet(plant);
    float x = across(part[i / WARP * WARP + WARP - 1 - i % WARP], line, plant);
    if (plant == PLANT_UNWRITTEN) x += unwritten;
    if (plant == PLANT_BEHIND_A_VARIABLE && i == 0) (&unwritten)[1] = 1;
    __syncthreads();
    line[i] = x;
    __syncthreads();
    to[(BLOCKS - 1 - blockIdx.x) * THREADS + i] = line[THREADS - 1 - i];
}

extern "C" void planted_launch(cudaStream_t s, float *to, const float *from, Plant plant) {
    reverse_kernel<<<BLOCKS, THREADS, THREADS * sizeof(float), s>>>(to, from, plant);
}
