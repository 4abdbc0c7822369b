/* chain.cuh - programmatic dependent launch (from 9.0 on; elsewhere a launch like any other): a kernel is launched
 * while the one in front of it in the stream still runs, so that its start costs nothing.
 *
 *   cuda_launch_chained(s, kernel, grid, block, shared, args...)
 *                       instead of kernel<<<grid, block, shared, s>>>(args...)
 *   cuda_launch_chained_cluster(..., splits, args...)
 *                       the same, so many blocks in x a cluster
 *   chain_wait()        every thread of such a kernel, before it touches any memory that a kernel writes
 *
 * chain_wait also lets the next kernel of the chain be launched. After it, everything that the kernels in front have
 * written is visible: each of them ends after its own wait, so the end of the last one is the end of all. Before it,
 * only state that no step of this play writes may be read. chain_open lets the next kernel be launched and does not
 * wait. All of this works in a captured stream, too. A play begins with a kernel that is launched as usual (embed,
 * pick), so an update in the play before has ended. */
#ifndef BACKEND_CUDA_CHAIN_CUH
#define BACKEND_CUDA_CHAIN_CUH

#include <utility>

#include "backend/cuda/launch.h"

__device__ __forceinline__ void chain_open() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    cudaTriggerProgrammaticLaunchCompletion();
#endif
}

__device__ __forceinline__ void chain_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    cudaTriggerProgrammaticLaunchCompletion();
    cudaGridDependencySynchronize();
#endif
}

/* Asks the kernel, not the card: code for an older one has no wait in it, even where it runs on a newer one. */
template <typename... P, typename... A>
static inline void cuda_launch_chained_cluster(cudaStream_t s, void (*kernel)(P...), dim3 grid, dim3 block,
                                               size_t shared, int blocks, A &&...args) {
    cudaFuncAttributes code;
    cudaLaunchAttribute how_more[2];
    cudaLaunchConfig_t how = {};
    how.gridDim = grid, how.blockDim = block, how.dynamicSmemBytes = shared, how.stream = s, how.attrs = how_more;
    if (blocks > 1) {
        cudaLaunchAttribute *cluster = &how_more[how.numAttrs++];
        cluster->id = cudaLaunchAttributeClusterDimension;
        cluster->val.clusterDim.x = (unsigned)blocks, cluster->val.clusterDim.y = cluster->val.clusterDim.z = 1;
    }
    if (cudaFuncGetAttributes(&code, kernel) == cudaSuccess && code.ptxVersion >= 90) {
        cudaLaunchAttribute *early = &how_more[how.numAttrs++];
        early->id = cudaLaunchAttributeProgrammaticStreamSerialization;
        early->val.programmaticStreamSerializationAllowed = 1;
    }
    cudaLaunchKernelEx(&how, kernel, std::forward<A>(args)...);
}

template <typename... P, typename... A>
static inline void cuda_launch_chained(cudaStream_t s, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
                                       A &&...args) {
    cuda_launch_chained_cluster(s, kernel, grid, block, shared, 1, std::forward<A>(args)...);
}

#endif
