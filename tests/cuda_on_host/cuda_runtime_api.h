/* cuda_runtime_api.h - the part of CUDA's runtime that snug calls, as runtime.cpp plays it on the processor. It stands
 * before any toolkit on the include path, so that backend/cuda is compiled unchanged. Contracts are those of the
 * toolkit's header of this name; numbers of enumerators are our own. */
#ifndef TESTS_CUDA_ON_HOST_CUDA_RUNTIME_API_H
#define TESTS_CUDA_ON_HOST_CUDA_RUNTIME_API_H

#include <stddef.h>
#include <stdint.h>

#include "tests/cuda_on_host/vector_types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum cudaError {
    cudaSuccess,
    cudaErrorInvalidValue,
    cudaErrorMemoryAllocation,
    cudaErrorInvalidConfiguration,
    cudaErrorInsufficientDriver,
    cudaErrorNoDevice,
    cudaErrorLaunchFailure,
    cudaErrorNotSupported
} cudaError_t;
const char *cudaGetErrorName(cudaError_t e);
const char *cudaGetErrorString(cudaError_t e); /* of a launch that failed: what its kernel did wrong */
cudaError_t cudaGetLastError(void);

/* ---- the device ---- */

struct cudaDeviceProp {
    char name[256];
    int multiProcessorCount, major, minor;
    size_t sharedMemPerBlockOptin;
};
enum cudaDeviceAttr {
    cudaDevAttrMultiProcessorCount,
    cudaDevAttrMaxSharedMemoryPerBlockOptin,
    cudaDevAttrComputeCapabilityMajor
};
cudaError_t cudaGetDeviceCount(int *n);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device);
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr a, int device);
cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int device);
cudaError_t cudaDriverGetVersion(int *v);
cudaError_t cudaRuntimeGetVersion(int *v);

/* ---- memory: the host's ---- */

enum { cudaHostAllocDefault, cudaHostRegisterDefault };
enum cudaMemcpyKind { cudaMemcpyDefault, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };
cudaError_t cudaMemGetInfo(size_t *available, size_t *total);
cudaError_t cudaFree(void *p);
cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void *p);
cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void *p);
cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned flags);

/* ---- streams and events: work is done when it is queued, or becomes a part of the graph that is captured ---- */

typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef struct CUgraph_st *cudaGraph_t;
typedef struct CUgraphExec_st *cudaGraphExec_t;
enum { cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2, cudaEventBlockingSync = 1 };
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal };
#define CUDART_CB
typedef void (*cudaHostFn_t)(void *context);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t s);
cudaError_t cudaStreamSynchronize(cudaStream_t s);
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags);
cudaError_t cudaEventCreate(cudaEvent_t *e);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t e);
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s);
cudaError_t cudaEventSynchronize(cudaEvent_t e);
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t s);
cudaError_t cudaMemsetAsync(void *to, int byte, size_t bytes, cudaStream_t s);
cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t fn, void *context);

cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t g, unsigned long long flags);
cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t s);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s);
cudaError_t cudaGraphDestroy(cudaGraph_t g);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);

/* ---- kernels: the rest of a launch is C++ (device.h) ---- */

typedef struct cudaFuncAttributes {
    int ptxVersion;
} cudaFuncAttributes;
enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize,
    cudaFuncAttributeNonPortableClusterSizeAllowed
};

/* ---- the driver's calls, by name ---- */

enum { cudaEnableDefault };
enum cudaDriverEntryPointQueryResult { cudaDriverEntryPointSuccess, cudaDriverEntryPointSymbolNotFound };
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **to, unsigned version, unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *found);

#ifdef __cplusplus
}
#endif

#endif
