/* cudnn.h - attention by cuDNN, the second provider beside our own kernels. */
#ifndef BACKEND_CUDA_CUDNN_H
#define BACKEND_CUDA_CUDNN_H

#include "backend/backend.h"

/* attend and attend_grad: true when queued; false: our own kernels do it. Whether it serves a shape is settled once and
 * for both directions. lse is kept in the order its maker likes: our own backward reads either, the library's its
 * own. */
bool cuda_library_attend(Backend *b, Queue q, const Args *a);
bool cuda_library_attend_grad(Backend *b, Queue q, const Args *a);
/* Would it have served the forward step of these rows? */
bool cuda_library_attends(Backend *b, const Args *a, Operand qkv);

typedef struct CudaAttentionState {
    int64_t version;      /* 91900: 9.19.0; 0: not loaded */
    int64_t plans;        /* directions of shapes it serves */
    int64_t runs;         /* queued so far */
    int64_t device_bytes; /* what loading it and its kernels took of the card; 0 also when it could not be seen */
} CudaAttentionState;
CudaAttentionState cuda_attention_state(Backend *b);
/* Loads the library now; false: the error says what is missing. */
bool cuda_attention_ready(Backend *b, Err *e);

#endif
