/* cuda_range.c - NVTX ranges: names for stretches of the host's calls in a profiler's timeline. The toolkit's headers
 * find the profiler at run time; without one they cost a test of a pointer. */
#include "backend/cuda/cuda_int.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

static void range(Backend *b, const char *name) {
    if (name) nvtxRangePushA(name);
    else nvtxRangePop();
}

void cuda_ranges_open(CudaBackend *c) { c->base.range = range; }
#else
#include "base/log.h"

void cuda_ranges_open(CudaBackend *c) {
    log_warn("cuda:%d: built with a toolkit that has no NVTX headers: a profiler sees no names", c->device);
}
#endif
