/* sets.h - the instruction sets that the CPU's kernels are written in, and which of them this processor has. */
#ifndef TESTS_BACKEND_SETS_H
#define TESTS_BACKEND_SETS_H

#include "backend/cpu/few.h"

typedef struct Set {
    const char *name;
    const FewKernels *k;
    bool is;
} Set;

enum { SETS = 3 };
static inline Set set_at(int i) {
    const Set sets[SETS] = {
        {"plain", &few_plain, true},
        {"avx2", &few_avx2, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")},
        {"avx512", &few_avx512, __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")}};
    return sets[i];
}

#endif
