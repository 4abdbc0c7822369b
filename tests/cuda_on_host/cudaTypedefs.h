/* cudaTypedefs.h - pointers to the driver's calls of cuda.h. */
#ifndef TESTS_CUDA_ON_HOST_CUDATYPEDEFS_H
#define TESTS_CUDA_ON_HOST_CUDATYPEDEFS_H

#include "tests/cuda_on_host/cuda.h"

typedef CUresult (*PFN_cuMemAddressReserve_v10020)(CUdeviceptr *at, size_t bytes, size_t align, CUdeviceptr wanted,
                                                   unsigned long long flags);
typedef CUresult (*PFN_cuMemAddressFree_v10020)(CUdeviceptr at, size_t bytes);
typedef CUresult (*PFN_cuMemCreate_v10020)(CUmemGenericAllocationHandle *pages, size_t bytes,
                                           const CUmemAllocationProp *prop, unsigned long long flags);
typedef CUresult (*PFN_cuMemRelease_v10020)(CUmemGenericAllocationHandle pages);
typedef CUresult (*PFN_cuMemMap_v10020)(CUdeviceptr at, size_t bytes, size_t offset,
                                        CUmemGenericAllocationHandle pages, unsigned long long flags);
typedef CUresult (*PFN_cuMemUnmap_v10020)(CUdeviceptr at, size_t bytes);
typedef CUresult (*PFN_cuMemSetAccess_v10020)(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *access, size_t n);

#endif
