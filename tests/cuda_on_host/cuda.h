/* cuda.h - the driver's calls for mapped memory, as runtime.cpp plays them: addresses are reserved by mmap, and pages
 * are there from the map on. */
#ifndef TESTS_CUDA_ON_HOST_CUDA_H
#define TESTS_CUDA_ON_HOST_CUDA_H

#include <stddef.h>

typedef unsigned long long CUdeviceptr, CUmemGenericAllocationHandle;
typedef enum { CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY } CUresult;
enum { CU_MEM_ALLOCATION_TYPE_PINNED = 1, CU_MEM_LOCATION_TYPE_DEVICE = 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3 };
typedef struct {
    int type, id;
} CUmemLocation;
typedef struct {
    int type;
    CUmemLocation location;
} CUmemAllocationProp;
typedef struct {
    CUmemLocation location;
    int flags;
} CUmemAccessDesc;

#endif
