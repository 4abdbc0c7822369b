/* runtime.cpp - CUDA's runtime on the processor: a card of compute capability 8.0 whose memory is the host's. What is
 * queued on a stream is done at once, in the order it was queued; during a capture it is kept, and done when the graph
 * is launched. An error of a launch stays until it is asked for, as on a card. */
#include "tests/cuda_on_host/cuda_runtime_api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/cuda_on_host/cudaTypedefs.h"
#include "tests/cuda_on_host/device.h"
#include "tests/cuda_on_host/planted.h"

enum { MAJOR = 8, MINOR = 0, PROCESSORS = 6, SHARED_USUAL = 48 << 10, MOST_BLOCK = 1024 };
static const size_t TOTAL = (size_t)4 << 30, PAGE = 2 << 20;

/* ---- errors ---- */

static cudaError_t last = cudaSuccess;
static char launch_error[700];

static cudaError_t keep(cudaError_t e) {
    if (e != cudaSuccess) last = e;
    return e;
}
cudaError_t cudaGetLastError(void) {
    cudaError_t e = last;
    last = cudaSuccess;
    return e;
}
const char *cudaGetErrorName(cudaError_t e) {
    static const char *const names[] = {"cudaSuccess",
                                        "cudaErrorInvalidValue",
                                        "cudaErrorMemoryAllocation",
                                        "cudaErrorInvalidConfiguration",
                                        "cudaErrorInsufficientDriver",
                                        "cudaErrorNoDevice",
                                        "cudaErrorLaunchFailure",
                                        "cudaErrorNotSupported"};
    return names[e];
}
const char *cudaGetErrorString(cudaError_t e) { return launch_error[0] ? launch_error : cudaGetErrorName(e); }

/* ---- the device ---- */

cudaError_t cudaGetDeviceCount(int *n) { return *n = 1, cudaSuccess; }
cudaError_t cudaSetDevice(int device) { return device ? keep(cudaErrorInvalidValue) : cudaSuccess; }
cudaError_t cudaGetDevice(int *device) { return *device = 0, cudaSuccess; }
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device) {
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "the processor");
    p->multiProcessorCount = PROCESSORS, p->major = MAJOR, p->minor = MINOR;
    p->sharedMemPerBlockOptin = host_shared_most();
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr a, int device) {
    if (a == cudaDevAttrMultiProcessorCount) *value = PROCESSORS;
    else *value = a == cudaDevAttrComputeCapabilityMajor ? (int)MAJOR : host_shared_most();
    return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int device) {
    snprintf(text, (size_t)size, "none");
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *v) { return *v = 13000, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int *v) { return *v = 13000, cudaSuccess; }

/* ---- memory ---- */

static size_t taken; /* of device memory */

cudaError_t cudaMemGetInfo(size_t *available, size_t *total) {
    *total = TOTAL, *available = TOTAL - taken;
    return cudaSuccess;
}
cudaError_t cudaFree(void *p) { return p ? keep(cudaErrorInvalidValue) : cudaSuccess; }
cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned flags) {
    *p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    return *p ? cudaSuccess : keep(cudaErrorMemoryAllocation);
}
cudaError_t cudaFreeHost(void *p) { return free(p), cudaSuccess; }
cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned flags) { return cudaSuccess; }
cudaError_t cudaHostUnregister(void *p) { return cudaSuccess; }
cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned flags) { return *device = host, cudaSuccess; }

static CUresult reserve(CUdeviceptr *at, size_t bytes, size_t align, CUdeviceptr wanted, unsigned long long flags) {
    char *p = (char *)mmap(nullptr, bytes + PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    char *first = (char *)(((uintptr_t)p + PAGE - 1) / PAGE * PAGE);
    if (first > p) munmap(p, (size_t)(first - p));
    munmap(first + bytes, (size_t)(p + PAGE - first));
    madvise(first, bytes, MADV_HUGEPAGE); /* a wish */
    *at = (CUdeviceptr)(uintptr_t)first;
    return CUDA_SUCCESS;
}
static CUresult unreserve(CUdeviceptr at, size_t bytes) {
    return munmap((void *)(uintptr_t)at, bytes) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
static CUresult create(CUmemGenericAllocationHandle *pages, size_t bytes, const CUmemAllocationProp *,
                       unsigned long long) {
    *pages = bytes;
    return bytes > TOTAL - taken ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}
static CUresult release(CUmemGenericAllocationHandle) { return CUDA_SUCCESS; } /* pages live as long as their map */
static CUresult map_pages(CUdeviceptr at, size_t bytes, size_t, CUmemGenericAllocationHandle, unsigned long long) {
    if (mprotect((void *)(uintptr_t)at, bytes, PROT_READ | PROT_WRITE)) return CUDA_ERROR_OUT_OF_MEMORY;
    taken += bytes;
    return CUDA_SUCCESS;
}
static CUresult unmap_pages(CUdeviceptr at, size_t bytes) {
    void *p = (void *)(uintptr_t)at;
    if (madvise(p, bytes, MADV_DONTNEED) || mprotect(p, bytes, PROT_NONE)) return CUDA_ERROR_INVALID_VALUE;
    taken -= bytes;
    return CUDA_SUCCESS;
}
static CUresult set_access(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t) { return CUDA_SUCCESS; }

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **to, unsigned version, unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *found) {
    static const struct {
        const char *name;
        void *call;
    } calls[] = {{"cuMemAddressReserve", (void *)reserve}, {"cuMemAddressFree", (void *)unreserve},
                 {"cuMemCreate", (void *)create},          {"cuMemRelease", (void *)release},
                 {"cuMemMap", (void *)map_pages},          {"cuMemUnmap", (void *)unmap_pages},
                 {"cuMemSetAccess", (void *)set_access}};
    *found = cudaDriverEntryPointSymbolNotFound;
    for (const auto &c : calls)
        if (!strcmp(c.name, name)) *to = c.call, *found = cudaDriverEntryPointSuccess;
    return cudaSuccess;
}

/* ---- streams and graphs ---- */

struct CUgraph_st {
    std::vector<std::function<void()>> work;
};
struct CUgraphExec_st {
    CUgraph_st graph;
};
struct CUstream_st {
    CUgraph_st *captured; /* NULL: what is queued is done */
};
struct CUevent_st {
    CUgraph_st *captured; /* of the stream that recorded it */
};
static std::vector<cudaStream_t> streams;

static void queue(cudaStream_t s, std::function<void()> &&work) {
    if (s && s->captured) s->captured->work.push_back(std::move(work));
    else work();
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags) {
    streams.push_back(*s = new CUstream_st{});
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t s) {
    for (size_t i = 0; i < streams.size(); i++)
        if (streams[i] == s) streams.erase(streams.begin() + (long)i--);
    return delete s, cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) { return s->captured ? keep(cudaErrorNotSupported) : cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags) {
    if (e->captured) s->captured = e->captured;
    return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags) { return *e = new CUevent_st{}, cudaSuccess; }
cudaError_t cudaEventCreate(cudaEvent_t *e) { return cudaEventCreateWithFlags(e, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t e) { return delete e, cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) { return e->captured = s->captured, cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t e) { return e->captured ? keep(cudaErrorNotSupported) : cudaSuccess; }
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) { return *ms = 0.001f, cudaSuccess; }
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t s) {
    queue(s, [=] { memmove(to, from, bytes); });
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void *to, int byte, size_t bytes, cudaStream_t s) {
    queue(s, [=] { memset(to, byte, bytes); });
    return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t fn, void *context) {
    queue(s, [=] { fn(context); });
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode) {
    s->captured = new CUgraph_st{};
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g) {
    *g = s->captured;
    for (cudaStream_t other : streams)
        if (other->captured == *g) other->captured = nullptr;
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t g, unsigned long long flags) {
    *exec = new CUgraphExec_st{*g};
    return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t s) { return cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s) {
    for (auto &work : exec->graph.work) work();
    return last;
}
cudaError_t cudaGraphDestroy(cudaGraph_t g) { return delete g, cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) { return delete exec, cudaSuccess; }

/* ---- kernels ---- */

static std::map<const void *, int> allowed; /* dynamic shared memory of a kernel, where it has asked for more */

cudaError_t host_allow_shared(const void *kernel, int bytes) {
    if (bytes > host_shared_most()) return keep(cudaErrorInvalidValue);
    allowed[kernel] = bytes;
    return cudaSuccess;
}

static bool can_launch(const HostGrid &g, const void *kernel) {
    auto more = allowed.find(kernel);
    size_t shared = SHARED_USUAL, asked = more == allowed.end() ? 0 : (size_t)more->second;
    if (asked > shared) shared = asked;
    uint64_t threads = (uint64_t)g.block.x * g.block.y * g.block.z;
    return threads && threads <= MOST_BLOCK && g.grid.x && g.grid.y && g.grid.z && g.grid.x < 1u << 31 &&
           g.grid.y < 1u << 16 && g.grid.z < 1u << 16 && g.shared <= shared;
}

HostPlace host_launched_at = {"?", 0};
static std::set<std::string> files; /* whose kernels have run */

bool host_has_run(const char *file) { return files.count(file); }

cudaError_t host_launch(const HostGrid &g, const void *kernel, cudaStream_t s, std::function<void()> &&run) {
    if (!can_launch(g, kernel)) {
        snprintf(launch_error, sizeof launch_error,
                 "a launch at %s:%d of (%u,%u,%u) blocks of %u threads with %zu bytes of shared memory", g.from.file,
                 g.from.line, g.grid.x, g.grid.y, g.grid.z, g.block.x * g.block.y * g.block.z, g.shared);
        return keep(cudaErrorInvalidConfiguration);
    }
    queue(s, [=] {
        files.insert(g.from.file);
        if (host_run(g, run)) return;
        snprintf(launch_error, sizeof launch_error, "%s", host_error());
        keep(cudaErrorLaunchFailure);
    });
    return cudaSuccess;
}
