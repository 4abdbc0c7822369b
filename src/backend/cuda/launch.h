/* launch.h - what host code (C) hands to kernel launchers (CUDA C++): plain values and device pointers, no more.
 *
 * Both languages read this file, so it sees only headers that are valid in both. */
#ifndef BACKEND_CUDA_LAUNCH_H
#define BACKEND_CUDA_LAUNCH_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "ir/attr.h"
#ifdef __cplusplus
extern "C" { /* its functions are C's */
#endif
#include "ir/format.h"
#ifdef __cplusplus
}
#endif

/* The words of the clock dial, as in ir/prog.h, which C++ cannot read; cuda.h holds one against the other. */
enum { CUDA_CLOCK_KEY, CUDA_CLOCK_FIRST_TOKEN, CUDA_CLOCK_MICRO, CUDA_CLOCK_STEP };

/* What a step's random draws are keyed by. The clock is read on the device (P7). numbers.cuh folds it:
 *   draw_key   fold(fold(clock key, clock micro), step), then the part when it is not negative   (roundings)
 *   drop_key   fold(fold(clock key, step), part)                                                 (dropout) */
typedef struct CudaKey {
    const int64_t *clock; /* device; NULL: 0 */
    uint32_t step;        /* the step's key */
    int64_t part;         /* -1: none */
} CudaKey;

#endif
