/* cudnn_api.h - the part of cuDNN's C graph interface that is used, with its numbers: the library's header is not
 * needed to build, and the library itself is loaded when a program first asks for it. */
#ifndef BACKEND_CUDA_CUDNN_API_H
#define BACKEND_CUDA_CUDNN_API_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

typedef void *CudnnDescriptor;
typedef struct cudnnContext *CudnnHandle;
enum { CUDNN_SUCCESS = 0 }; /* every call that gives an int gives a status */

/* clang-format off */
#define CUDNN_CALLS(X)                                                                                               \
    X(size_t, cudnnGetVersion, (void))                                                                               \
    X(const char *, cudnnGetErrorString, (int status))                                                               \
    X(void, cudnnGetLastErrorString, (char *text, size_t bytes))                                                     \
    X(int, cudnnCreate, (CudnnHandle *handle))                                                                       \
    X(int, cudnnDestroy, (CudnnHandle handle))                                                                       \
    X(int, cudnnSetStream, (CudnnHandle handle, cudaStream_t stream))                                                \
    X(int, cudnnBackendCreateDescriptor, (int kind, CudnnDescriptor *d))                                             \
    X(int, cudnnBackendDestroyDescriptor, (CudnnDescriptor d))                                                       \
    X(int, cudnnBackendFinalize, (CudnnDescriptor d))                                                                \
    X(int, cudnnBackendSetAttribute, (CudnnDescriptor d, int name, int type, int64_t n, const void *values))         \
    X(int, cudnnBackendGetAttribute, (CudnnDescriptor d, int name, int type, int64_t most, int64_t *n, void *values)) \
    X(int, cudnnBackendExecute, (CudnnHandle handle, CudnnDescriptor plan, CudnnDescriptor variant_pack))

typedef struct Cudnn { /* the library, once opened */
    void *file;
    size_t version; /* 91900: 9.19.0 */
#define CUDNN_POINTER(type, name, args) type (*name) args;
    CUDNN_CALLS(CUDNN_POINTER)
#undef CUDNN_POINTER
} Cudnn;

enum { /* data types */
    CUDNN_DATA_FLOAT = 0, CUDNN_DATA_HALF = 2, CUDNN_DATA_INT32 = 4, CUDNN_DATA_BFLOAT16 = 9, CUDNN_DATA_BOOLEAN = 11,
};

enum { /* what an attribute's values are */
    CUDNN_TYPE_HANDLE = 0, CUDNN_TYPE_DATA_TYPE = 1, CUDNN_TYPE_BOOLEAN = 2, CUDNN_TYPE_INT64 = 3,
    CUDNN_TYPE_VOID_PTR = 6, CUDNN_TYPE_HEUR_MODE = 8, CUDNN_TYPE_POINTWISE_MODE = 14,
    CUDNN_TYPE_BACKEND_DESCRIPTOR = 15, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE = 18,
};

enum { /* descriptors */
    CUDNN_BACKEND_POINTWISE_DESCRIPTOR = 0,
    CUDNN_BACKEND_ENGINECFG_DESCRIPTOR = 3,
    CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR = 4,
    CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR = 5,
    CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR = 13,
    CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR = 15,
    CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR = 16,
    CUDNN_BACKEND_TENSOR_DESCRIPTOR = 17,
    CUDNN_BACKEND_MATMUL_DESCRIPTOR = 18,
    CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR = 19,
    CUDNN_BACKEND_REDUCTION_DESCRIPTOR = 21,
    CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR = 22,
    CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR = 31,
};

enum { /* attributes */
    CUDNN_ATTR_POINTWISE_MODE = 0, CUDNN_ATTR_POINTWISE_MATH_PREC = 1, CUDNN_ATTR_POINTWISE_AXIS = 9,
    CUDNN_ATTR_ENGINEHEUR_MODE = 200, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH = 201,
    CUDNN_ATTR_ENGINEHEUR_RESULTS = 202,
    CUDNN_ATTR_EXECUTION_PLAN_HANDLE = 400, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG = 401,
    CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE = 402,
    CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR = 750, CUDNN_ATTR_OPERATION_POINTWISE_XDESC = 751,
    CUDNN_ATTR_OPERATION_POINTWISE_BDESC = 752, CUDNN_ATTR_OPERATION_POINTWISE_YDESC = 753,
    CUDNN_ATTR_OPERATION_POINTWISE_TDESC = 758,
    CUDNN_ATTR_OPERATIONGRAPH_HANDLE = 800, CUDNN_ATTR_OPERATIONGRAPH_OPS = 801,
    CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT = 900, CUDNN_ATTR_TENSOR_DATA_TYPE = 901, CUDNN_ATTR_TENSOR_DIMENSIONS = 902,
    CUDNN_ATTR_TENSOR_STRIDES = 903, CUDNN_ATTR_TENSOR_UNIQUE_ID = 906, CUDNN_ATTR_TENSOR_IS_VIRTUAL = 907,
    CUDNN_ATTR_TENSOR_IS_BY_VALUE = 908,
    CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS = 1000, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS = 1001,
    CUDNN_ATTR_VARIANT_PACK_WORKSPACE = 1003,
    CUDNN_ATTR_MATMUL_COMP_TYPE = 1500,
    CUDNN_ATTR_OPERATION_MATMUL_ADESC = 1520, CUDNN_ATTR_OPERATION_MATMUL_BDESC = 1521,
    CUDNN_ATTR_OPERATION_MATMUL_CDESC = 1522, CUDNN_ATTR_OPERATION_MATMUL_DESC = 1523,
    CUDNN_ATTR_REDUCTION_OPERATOR = 1600, CUDNN_ATTR_REDUCTION_COMP_TYPE = 1601,
    CUDNN_ATTR_OPERATION_REDUCTION_XDESC = 1610, CUDNN_ATTR_OPERATION_REDUCTION_YDESC = 1611,
    CUDNN_ATTR_OPERATION_REDUCTION_DESC = 1612,
    CUDNN_ATTR_OPERATION_RESHAPE_XDESC = 2200, CUDNN_ATTR_OPERATION_RESHAPE_YDESC = 2201,
};

enum { /* modes */
    CUDNN_POINTWISE_ADD = 0, CUDNN_POINTWISE_MUL = 1, CUDNN_POINTWISE_DIV = 6, CUDNN_POINTWISE_SUB = 9,
    CUDNN_POINTWISE_EXP = 13, CUDNN_POINTWISE_LOG = 15, CUDNN_POINTWISE_IDENTITY = 21, CUDNN_POINTWISE_CMP_GE = 303,
    CUDNN_POINTWISE_GEN_INDEX = 501, CUDNN_POINTWISE_BINARY_SELECT = 601,
    CUDNN_REDUCE_TENSOR_ADD = 0, CUDNN_REDUCE_TENSOR_MAX = 3,
    CUDNN_HEUR_MODE_A = 3,
};
/* clang-format on */

#endif
