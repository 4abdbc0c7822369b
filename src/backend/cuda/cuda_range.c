/* cuda_range.c - how stretches of the host's calls get names in a profiler's timeline: NVTX, from the toolkit's
 * headers, which find the profiler at run time and cost a test of a pointer when there is none. */
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
