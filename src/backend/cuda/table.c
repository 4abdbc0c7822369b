/* table.c - the GPU's kernel function for every op: a missing one does not link. */
#include "backend/cuda/cuda.h"

Kernel *const cuda_functions[OP_COUNT] = {
#define OP_ENUM(NAME, name) [OP_##NAME] = cuda_##name,
#include "ir/ops.def"
#undef OP_ENUM
};
