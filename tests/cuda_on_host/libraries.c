/* libraries.c - what stands for cuBLASLt and cuDNN where kernels run on the processor: every product is one that the
 * library cannot do, so our own kernel does it, and attention has one provider. */
#include <stdio.h>

#include "backend/cuda/cuda_int.h"
#include "backend/cuda/cudnn.h"
#include "backend/cuda/product.h"

bool cuda_products_open(CudaBackend *c, Err *e) { return true; }
void cuda_products_close(CudaBackend *c) {}
void cuda_products_version(const CudaBackend *c, char *text, int size) { snprintf(text, (size_t)size, "none"); }
int64_t cuda_choices(Backend *b, MachineChoice *out, int64_t room) { return 0; }
void cuda_choose(Backend *b, const MachineChoice *list, int64_t n) {}

static void *step_on(void *data, int64_t numbers, Format f) {
    return data ? (char *)data + numbers * format_item_bytes(f) : NULL;
}

void cuda_multiply(Backend *b, Queue q, const CudaProduct *p, void *workspace, int64_t workspace_bytes) {
    CudaProduct one = *p;
    for (int i = 0; i < MAX2(p->times, 1); i++) {
        cuda_launch_multiply(cuda_stream(b, q), &one);
        one.a.data = step_on(one.a.data, p->a_step, p->a.format);
        one.b.data = step_on(one.b.data, p->b_step, p->b.format);
        one.c.data = step_on(one.c.data, p->c_step, p->c.format);
        one.add.data = step_on(one.add.data, p->add_step, p->c.format);
    }
}

bool cuda_library_attend(Backend *b, Queue q, const Args *a) { return false; }
bool cuda_library_attend_grad(Backend *b, Queue q, const Args *a) { return false; }
bool cuda_library_attends(Backend *b, const Args *a, Operand qkv) { return false; }
CudaAttentionState cuda_attention_state(Backend *b) { return (CudaAttentionState){0}; }
bool cuda_attention_ready(Backend *b, Err *e) { return fail(e, ERR_FAIL, "cuDNN is not here"); }
void cuda_attention_close(CudaBackend *c) {}
