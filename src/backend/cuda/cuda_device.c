/* cuda_device.c - how a GPU is opened, refused with a reason, and closed; where its first error is kept. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda_int.h"
#include "base/process.h"

enum { SHARED_OF_KERNELS = 64 }; /* bytes of shared memory that kernels declare beside what a launch asks for */

/* ---- errors ---- */

void cuda_fail(Backend *b, const char *fmt, ...) {
    CudaBackend *c = cuda_backend(b);
    char text[sizeof c->capture_error];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (c->capturing >= 0) { /* nothing has run: the play is issued again without a capture */
        if (!c->capture_error[0]) memcpy(c->capture_error, text, sizeof text);
    } else if (c->error.code == ERR_NONE) {
        fail(&c->error, ERR_FAIL, "cuda:%d: %s", c->device, text);
    }
}

bool cuda_ok(Backend *b, cudaError_t status, const char *what) {
    if (status == cudaSuccess) return true;
    cudaGetLastError(); /* so that it is not found again under another name */
    bool first = cuda_backend(b)->error.code == ERR_NONE;
    cuda_fail(b, "%s: %s (%s)%s", what, cudaGetErrorString(status), cudaGetErrorName(status),
              status == cudaErrorMemoryAllocation ? ". Another process took memory while this one ran: the last "
                                                    "checkpoint stands, go on with --resume when there is room"
                                                  : "");
    Err *error = &cuda_backend(b)->error;
    if (first && error->code != ERR_NONE && status == cudaErrorMemoryAllocation) error->code = ERR_BUDGET;
    return false;
}

void cuda_check_launch(Backend *b, const char *op) {
    cudaError_t status = cudaGetLastError();
    if (status != cudaSuccess)
        cuda_fail(b, "%s: %s (%s)", op, cudaGetErrorString(status), cudaGetErrorName(status));
}

static bool sync_all(Backend *b, Err *e) {
    CudaBackend *c = cuda_backend(b);
    for (int q = 0; q < QUEUE_COUNT; q++)
        cuda_ok(b, cudaStreamSynchronize(c->stream[q]), "a step since the last sync");
    cuda_disk_check(c);
    if (c->error.code == ERR_NONE) return true;
    if (e) *e = c->error;
    return false;
}

/* ---- opening ---- */

static bool parse_device(int *device, const char *name, Err *e) {
    *device = 0;
    if (!strcmp(name, "cuda")) return true;
    char *end;
    const char *number = name + strlen("cuda:");
    long n = strtol(number, &end, 10);
    if (end == number || *end || n < 0 || n > 1023 || *number == '+' || *number == ' ')
        return fail(e, ERR_USAGE, "device: '%s' is not cuda or cuda:N", name);
    *device = (int)n;
    return true;
}

bool cuda_there(void) {
    int count = 0, driver = 0;
    cudaError_t status = cudaGetDeviceCount(&count);
    cudaDriverGetVersion(&driver);
    bool none = status == cudaErrorNoDevice || (status == cudaSuccess && !count) ||
                (status == cudaErrorInsufficientDriver && !driver);
    return !none;
}

static bool find_card(const char *name, int device, Err *e) {
    int count = 0, has = 0, needs = 0;
    cudaError_t status = cudaGetDeviceCount(&count);
    cudaDriverGetVersion(&has);
    cudaRuntimeGetVersion(&needs);
    if (status == cudaErrorInsufficientDriver && has)
        return fail(
            e, ERR_FAIL,
            "device %s: the driver is for CUDA %d.%d, this program was built with CUDA %d.%d. Update the driver, "
            "or build with an older toolkit (make CUDA=1 CUDA_HOME=DIR)",
            name, has / 1000, has % 1000 / 10, needs / 1000, needs % 1000 / 10);
    if (status == cudaErrorInsufficientDriver)
        return fail(e, ERR_FAIL, "device %s: there is no NVIDIA driver here (libcuda.so.1). Use --device cpu",
                    name);
    if (status == cudaErrorNoDevice || (status == cudaSuccess && !count))
        return fail(e, ERR_FAIL,
                    "device %s: the driver sees no GPU. Is CUDA_VISIBLE_DEVICES set? Use --device cpu otherwise",
                    name);
    if (status != cudaSuccess) return fail(e, ERR_FAIL, "device %s: %s", name, cudaGetErrorString(status));
    if (device >= count)
        return fail(e, ERR_USAGE, "device %s: there %s %d GPU%s here, counted from cuda:0", name,
                    count == 1 ? "is" : "are", count, count == 1 ? "" : "s");
    return true;
}

/* The driver's own context: its bytes are seen as the card's used memory before and after. */
static bool open_context(CudaBackend *c, Err *e) {
    struct cudaDeviceProp prop;
    cudaError_t status = cudaSetDevice(c->device);
    if (status == cudaSuccess) status = cudaFree(NULL);
    if (status == cudaSuccess) status = cudaGetDeviceProperties(&prop, c->device);
    if (status != cudaSuccess)
        return fail(
            e, ERR_FAIL,
            "cuda:%d: cannot be opened: %s%s. Is it used exclusively by another process, or out of memory?",
            c->device, cudaGetErrorString(status), process_refusal().why);
    snprintf(c->name, sizeof c->name, "%.90s", prop.name);
    c->processors = prop.multiProcessorCount;
    c->major = prop.major, c->minor = prop.minor;
    c->shared_bytes = (int64_t)prop.sharedMemPerBlockOptin - SHARED_OF_KERNELS;
    status = cuda_kernels_run_here();
    if (status == cudaSuccess) return true;
    return fail(e, ERR_FAIL,
                "cuda:%d: this program has no kernels for %s (compute capability %d.%d): %s. Build with "
                "make CUDA=1 CUDA_ARCHS=%d%d",
                c->device, c->name, c->major, c->minor, cudaGetErrorString(status), c->major, c->minor);
}

static bool open_queues(CudaBackend *c, Err *e) {
    cudaError_t status = cudaEventCreateWithFlags(&c->fork, cudaEventDisableTiming);
    for (int q = 0; q < QUEUE_COUNT && status == cudaSuccess; q++) {
        status = cudaStreamCreateWithFlags(&c->stream[q], cudaStreamNonBlocking);
        if (status == cudaSuccess) status = cudaEventCreateWithFlags(&c->join[q], cudaEventDisableTiming);
    }
    return status == cudaSuccess ||
           fail(e, ERR_FAIL, "cuda:%d: queues: %s", c->device, cudaGetErrorString(status));
}

static void describe(Backend *b, Machine *m) { cuda_machine_describe(cuda_backend(b), m); }

/* Everything that is taken on the card now, less what was taken before this process opened it. */
static int64_t in_use(Backend *b) {
    CudaBackend *c = cuda_backend(b);
    size_t available = 0, total = 0;
    if (c->others_bytes < 0 || cudaMemGetInfo(&available, &total) != cudaSuccess) return -1;
    return (int64_t)(total - available) - c->others_bytes;
}

static void close_backend(Backend *b) {
    CudaBackend *c = cuda_backend(b);
    cuda_memory_close(c);
    cuda_drop_graphs(c);
    cuda_products_close(c);
    cuda_attention_close(c);
    for (int64_t i = 0; i < c->n_events; i++)
        if (c->event[i]) cudaEventDestroy(c->event[i]);
    if (c->fork) cudaEventDestroy(c->fork);
    for (int q = 0; q < QUEUE_COUNT; q++) {
        if (c->join[q]) cudaEventDestroy(c->join[q]);
        if (c->stream[q]) cudaStreamDestroy(c->stream[q]);
    }
    mem_free(c->event);
    mem_free(c->call);
    mem_free(c);
}

bool cuda_open(Backend **out, const char *name, BackendOptions options, Err *e) {
    int device;
    if (!parse_device(&device, name, e) || !find_card(name, device, e)) return false;
    CudaBackend *c = MEM_NEW(CudaBackend, 1);
    c->base = (Backend){.name = "cuda",
                        .close = close_backend,
                        .describe = describe,
                        .pool = cuda_pool,
                        .release = cuda_release,
                        .link = cuda_disk_link,
                        .settle = cuda_disk_settle,
                        .trim = cuda_trim,
                        .restore = cuda_restore,
                        .in_use = in_use,
                        .facts = cuda_facts,
                        .choices = cuda_choices,
                        .choose = cuda_choose,
                        .copy = cuda_move,
                        .signal = cuda_signal,
                        .wait = cuda_wait,
                        .begin = cuda_begin,
                        .end = cuda_end,
                        .replay = cuda_replay,
                        .sync = sync_all,
                        .put = cuda_put,
                        .get = cuda_get,
                        .fetch = cuda_fetch,
                        .store = cuda_store,
                        .asynchronous = true,
                        .note = cuda_note,
                        .read_note = cuda_read_note,
                        .kernels = cuda_kernels,
                        .runs = cuda_runs,
                        .joins = cuda_joins};
    c->device = device;
    c->capturing = -1;
    c->deterministic = options.deterministic;
    c->tf32 = options.tf32;
    c->trims = options.trims;
    c->offload_dir = options.offload_dir;
    if (options.ranges) cuda_ranges_open(c);
    cudaDeviceGetPCIBusId(c->bus_id, sizeof c->bus_id, device);
    cuda_nvml_driver(c->driver, sizeof c->driver, c->bus_id);
    int64_t used = cuda_nvml_used_bytes(c->bus_id), held = process_memory().anon_bytes;
    if (!open_context(c, e) || !open_queues(c, e) || !cuda_memory_open(c, e) || !cuda_products_open(c, e)) {
        close_backend(&c->base);
        return false;
    }
    int64_t used_now = used >= 0 ? cuda_nvml_used_bytes(c->bus_id) : -1;
    c->context_bytes = used_now > used ? used_now - used : 0;
    size_t available = 0, total = 0; /* what is taken now and is not ours was taken by others */
    cudaMemGetInfo(&available, &total);
    c->others_bytes = used >= 0 ? (int64_t)(total - available) - c->context_bytes : -1;
    c->host_bytes = MAX2(process_memory().anon_bytes - held, 0);
    *out = &c->base;
    return true;
}
