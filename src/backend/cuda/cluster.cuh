/* cluster.cuh - thread block clusters (from 9.0 on): barriers, and the addresses of each other's shared memory
 * (distributed shared memory). */
#ifndef BACKEND_CUDA_CLUSTER_CUH
#define BACKEND_CUDA_CLUSTER_CUH

#include "backend/cuda/vectors.cuh"

/* What the others wrote before it can be read behind it. */
DEVICE void wait_for_cluster() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;\n" ::: "memory");
#endif
}

/* `p` of this block's shared memory in that of block `rank` of the cluster. */
template <typename P> DEVICE P *of_block(P *p, int rank) {
#if __CUDA_ARCH__ >= 900
    P *there;
    asm("mapa.u64 %0, %1, %2;\n" : "=l"(there) : "l"(p), "r"(rank));
    return there;
#else
    return p;
#endif
}

#endif
