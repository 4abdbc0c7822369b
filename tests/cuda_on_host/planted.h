/* planted.h - small kernels, some with a fault, that show what block.h sees (planted.cu). */
#ifndef TESTS_CUDA_ON_HOST_PLANTED_H
#define TESTS_CUDA_ON_HOST_PLANTED_H

#include <stdbool.h>

#include "tests/cuda_on_host/cuda_runtime_api.h"

typedef enum Plant {
    PLANT_NONE,
    PLANT_NO_BARRIER,       /* reads what other warps write, without a barrier */
    PLANT_NO_WARP_BARRIER,  /* the same of other lanes */
    PLANT_HALF_A_BARRIER,   /* a barrier that half of the block reaches */
    PLANT_ENDED,            /* a barrier after which the last warp has ended */
    PLANT_TWO_BARRIERS,     /* half of the block waits at another one */
    PLANT_HALF_A_WARP,      /* a shuffle whose mask names lanes that do not come */
    PLANT_NOT_IN_MASK,      /* a shuffle by a lane that its mask lacks */
    PLANT_NO_WAIT,          /* bytes on their way are read */
    PLANT_WAITS_FOR_FEWER,  /* the wait leaves the group that is read */
    PLANT_UNWRITTEN,        /* shared memory that nobody wrote */
    PLANT_BEHIND_A_VARIABLE /* a number written behind a variable */
} Plant;

#ifdef __cplusplus
extern "C" {
#endif
/* to[i] = from[n - 1 - i] of 128 numbers, by way of shared memory; 4 blocks' worth: n is 512. */
void planted_launch(cudaStream_t s, float *to, const float *from, Plant plant);
/* A kernel that is launched in that file has run. */
bool host_has_run(const char *file);
#ifdef __cplusplus
}
#endif

#endif
