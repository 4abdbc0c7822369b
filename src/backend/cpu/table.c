/* table.c - the CPU's kernel for every op: it is the complete reference, so a missing kernel does not link. */
#include "backend/cpu/cpu.h"

Kernel *const cpu_kernels[OP_COUNT] = {
#define OP(NAME, name, ins, outs) [OP_##NAME] = cpu_##name,
#include "ir/ops.def"
};
