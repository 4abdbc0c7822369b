/* table.c - the GPU's kernel function for every op: a missing one does not link. */
#include "backend/cuda/cuda.h"

Kernel *const cuda_functions[OP_COUNT] = {
#define OP(NAME, name, ins, outs) [OP_##NAME] = cuda_##name,
#include "ir/ops.def"
};
