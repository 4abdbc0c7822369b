/* cudnn_graph.h - causal attention as a plan of cuDNN: made once for a shape, run many times. */
#ifndef BACKEND_CUDA_CUDNN_GRAPH_H
#define BACKEND_CUDA_CUDNN_GRAPH_H

#include "backend/cuda/cudnn_api.h"
#include "base/err.h"
#include "ir/attr.h"
#include "ir/format.h"

typedef struct CudnnShape {
    int64_t rows, seq;
    int heads, kv_heads, dim;
    float scale;
    Format format; /* bf16 or fp16 */
} CudnnShape;

enum { CUDNN_DESCRIPTORS = 192 };

typedef struct CudnnPlan {
    CudnnShape shape;
    bool backward;
    CudnnDescriptor plan; /* one of made; NULL: there is none */
    int64_t workspace_bytes;
    int n_made;
    CudnnDescriptor made[CUDNN_DESCRIPTORS]; /* own */
} CudnnPlan;

/* q, k, v stand inside rows of qkv, dq, dk, dv inside rows of dqkv: (rows*seq, (H+2G)*D). o, d_o: (rows*seq, H*D).
 * lse: (rows, H, seq) fp32, which is not the order our own kernels keep it in. */
typedef struct CudnnAddresses {
    void *qkv, *o, *lse;
    void *d_o, *dqkv;       /* backward */
    float *dq_sums, *sums; /* backward's scratch: (rows, H, seq, D) and (rows, H, seq) */
    void *workspace;        /* of plan->workspace_bytes */
} CudnnAddresses;

/* The library from the system's paths; NULL in file: not found, or too old, and the error says which. */
bool cudnn_load(Cudnn *c, Err *e);
void cudnn_unload(Cudnn *c);

/* The first plan that the library proposes and that needs at most most_bytes of workspace. */
bool cudnn_plan_make(CudnnPlan *p, const Cudnn *c, CudnnHandle handle, CudnnShape shape, bool backward,
                     int64_t most_bytes, Err *e);
void cudnn_plan_free(CudnnPlan *p, const Cudnn *c);
/* Queues it on the handle's stream: no waiting, no device memory taken. */
bool cudnn_plan_run(const CudnnPlan *p, const Cudnn *c, CudnnHandle handle, const CudnnAddresses *at, Err *e);

#endif
