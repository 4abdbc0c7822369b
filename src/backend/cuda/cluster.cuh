/* cluster.cuh - how the blocks of a cluster meet and reach into each other's shared memory (sm_90 on; elsewhere nothing, and nobody
 * launches one).
 *
 *   cluster_arrive()       early, by every thread: this block runs
 *   cluster_enter()        by every thread, after it: all blocks run, their shared memory may be written
 *   cluster_place(p, r)    where `p` of this block's shared memory stands in block r's
 *   cluster_wait()         by every thread: what the others wrote here has arrived */
#ifndef BACKEND_CUDA_CLUSTER_CUH
#define BACKEND_CUDA_CLUSTER_CUH

#include "backend/cuda/vectors.cuh"

DEVICE void cluster_arrive() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\n" ::: "memory");
#endif
}

DEVICE void cluster_enter() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire.aligned;\n" ::: "memory");
#endif
}

DEVICE void cluster_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;\n" ::: "memory");
#endif
}

template <typename T> DEVICE T *cluster_place(T *p, int rank) {
    T *there = p;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("mapa.u64 %0, %1, %2;\n" : "=l"(there) : "l"(p), "r"(rank));
#endif
    return there;
}

#endif
