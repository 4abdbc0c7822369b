/* cuda_memory.c - device memory: one range of addresses with pages mapped under it, pinned memory, and copies in and
 * out.
 *
 * The device pool is reserved addresses with 2 MiB pages mapped under them, piece by piece: it takes exactly its
 * size of the card, and all of it comes back. put and get are ordered after everything queued on the compute
 * queue, which every play joins at its end. */
#include <cuda.h>
#include <cudaTypedefs.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "backend/cuda/cuda_int.h"
#include "base/process.h"
#include "base/threads.h"

#define PAGE_BYTES (2 * MIB)
#define PIECE_BYTES (1 * GIB) /* mapped at a time; only whole pieces can be unmapped */
#define TRIM_PIECE_BYTES (32 * MIB) /* ... where some will be */
enum { RING_ALIGN = 64 };

/* ---- the driver's entry points for mapped memory, found when the device is opened ---- */

static struct Driver {
    PFN_cuMemAddressReserve_v10020 reserve;
    PFN_cuMemAddressFree_v10020 unreserve;
    PFN_cuMemCreate_v10020 create;
    PFN_cuMemRelease_v10020 release;
    PFN_cuMemMap_v10020 map;
    PFN_cuMemUnmap_v10020 unmap;
    PFN_cuMemSetAccess_v10020 set_access;
} driver;

static bool find_driver(Err *e) {
    const struct {
        const char *name;
        void **to;
    } entry[] = {
        {"cuMemAddressReserve", (void **)&driver.reserve},
        {"cuMemAddressFree", (void **)&driver.unreserve},
        {"cuMemCreate", (void **)&driver.create},
        {"cuMemRelease", (void **)&driver.release},
        {"cuMemMap", (void **)&driver.map},
        {"cuMemUnmap", (void **)&driver.unmap},
        {"cuMemSetAccess", (void **)&driver.set_access},
    };
    for (int i = 0; i < COUNT_OF(entry); i++) {
        enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
        cudaError_t status =
            cudaGetDriverEntryPointByVersion(entry[i].name, entry[i].to, 11020, cudaEnableDefault, &found);
        if (status != cudaSuccess || found != cudaDriverEntryPointSuccess)
            return fail(e, ERR_FAIL, "cuda: the driver has no %s (mapped memory). Is it older than CUDA 11.2?",
                        entry[i].name);
    }
    return true;
}

bool cuda_memory_open(CudaBackend *c, Err *e) {
    if (!find_driver(e)) return false;
    cudaError_t status =
        cudaHostAlloc((void **)&c->ring.data, (size_t)(2 * CUDA_RING_BYTES), cudaHostAllocDefault);
    for (int i = 0; i < 2 && status == cudaSuccess; i++)
        status = cudaEventCreateWithFlags(&c->ring.copied[i], cudaEventDisableTiming);
    if (status == cudaSuccess)
        status = cudaHostAlloc((void **)&c->notes.data, BACKEND_NOTES * BACKEND_NOTE_BYTES, cudaHostAllocDefault);
    for (int i = 0; i < BACKEND_NOTES && status == cudaSuccess; i++) /* waited for asleep: a step is long */
        status = cudaEventCreateWithFlags(&c->notes.written[i], cudaEventDisableTiming | cudaEventBlockingSync);
    if (status == cudaSuccess) return true;
    return fail(e, ERR_FAIL, "cuda: %s of pinned memory: %s", units_bytes(2 * CUDA_RING_BYTES).s,
                cudaGetErrorString(status));
}

void cuda_memory_close(CudaBackend *c) {
    for (int kind = 0; kind < POOL_COUNT; kind++) cuda_release(&c->base, (Pool)kind);
    for (int i = 0; i < 2; i++)
        if (c->ring.copied[i]) cudaEventDestroy(c->ring.copied[i]);
    if (c->ring.data) cudaFreeHost(c->ring.data);
    for (int i = 0; i < BACKEND_NOTES; i++)
        if (c->notes.written[i]) cudaEventDestroy(c->notes.written[i]);
    if (c->notes.data) cudaFreeHost(c->notes.data);
}

/* ---- the device pool ---- */

static int64_t piece_bytes(const CudaBackend *c) { return c->trims ? TRIM_PIECE_BYTES : PIECE_BYTES; }

static void unmap_pool(CudaBackend *c, CudaPool *pool, int64_t mapped) {
    int64_t piece = piece_bytes(c);
    for (int64_t at = 0; at < mapped; at += piece)
        if (!c->absent[at / piece]) driver.unmap((CUdeviceptr)(pool->data + at), (size_t)MIN2(piece, mapped - at));
    mem_free(c->absent);
    c->absent = NULL;
    driver.unreserve((CUdeviceptr)pool->data, (size_t)pool->bytes);
    *pool = (CudaPool){0};
}

/* Maps [at, at + bytes): the pages live as long as the mapping. */
static CUresult map_piece(const CudaPool *pool, int device, int64_t at, int64_t bytes) {
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = device;
    CUmemAccessDesc access = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr address = (CUdeviceptr)(pool->data + at);
    CUmemGenericAllocationHandle pages;
    CUresult result = driver.create(&pages, (size_t)bytes, &prop, 0);
    if (result != CUDA_SUCCESS) return result;
    result = driver.map(address, (size_t)bytes, 0, pages, 0);
    driver.release(pages);
    if (result != CUDA_SUCCESS) return result;
    result = driver.set_access(address, (size_t)bytes, &access, 1);
    if (result != CUDA_SUCCESS) driver.unmap(address, (size_t)bytes);
    return result;
}

static bool refuse_device(CudaBackend *c, int64_t bytes, Err *e) {
    size_t available = 0, total = 0;
    DeviceFacts facts;
    Str who = {0};
    cudaMemGetInfo(&available, &total);
    cuda_facts(&c->base, &facts);
    backend_holders(&who, &facts);
    fail(e, ERR_BUDGET,
         "cuda:%d: the arena wants %s (%s bytes), %s of %s are free. Another process took memory since the plan was "
         "made, or the budget is beyond what is free: %s. Nothing was loaded or saved. End what holds it, or plan with "
         "a smaller --budget",
         c->device, units_bytes(bytes).s, units_count(bytes).s, units_bytes((int64_t)available).s,
         units_bytes((int64_t)total).s, str_text(&who));
    str_free(&who);
    return false;
}

static bool make_device_pool(CudaBackend *c, CudaPool *pool, int64_t bytes, Err *e) {
    size_t available = 0, total = 0;
    CUdeviceptr address = 0;
    if (cudaMemGetInfo(&available, &total) == cudaSuccess && bytes > (int64_t)available)
        return refuse_device(c, bytes, e);
    CUresult result = driver.reserve(&address, (size_t)bytes, 0, 0, 0);
    if (result != CUDA_SUCCESS)
        return fail(e, ERR_FAIL, "cuda:%d: %s of device addresses: driver code %d", c->device,
                    units_bytes(bytes).s, (int)result);
    *pool = (CudaPool){(char *)address, bytes};
    int64_t piece = piece_bytes(c);
    c->absent = MEM_NEW(bool, (bytes + piece - 1) / piece);
    for (int64_t at = 0; at < bytes; at += piece) {
        result = map_piece(pool, c->device, at, MIN2(piece, bytes - at));
        if (result == CUDA_SUCCESS) continue;
        unmap_pool(c, pool, at);
        if (result == CUDA_ERROR_OUT_OF_MEMORY) return refuse_device(c, bytes, e);
        return fail(e, ERR_FAIL, "cuda:%d: mapping %s: driver code %d", c->device, units_bytes(bytes).s,
                    (int)result);
    }
    cudaError_t status = cudaMemsetAsync(pool->data, 0, (size_t)bytes, c->stream[QUEUE_COMPUTE]);
    if (status == cudaSuccess) status = cudaStreamSynchronize(c->stream[QUEUE_COMPUTE]);
    if (status == cudaSuccess) return true;
    unmap_pool(c, pool, bytes);
    return fail(e, ERR_FAIL, "cuda:%d: clearing the arena: %s", c->device, cudaGetErrorString(status));
}

/* ---- the pinned pool: ordinary pages, large where the system has them, touched by all cores, then pinned as they are.
 * The driver's own allocation does the same with one core, a dozen times slower ---- */

enum { TOUCH_TILE_BYTES = 64 * 1048576, TOUCH_STEP_BYTES = 4096, TOUCH_THREADS = 16 };

static void touch_tile(void *pool_of, int64_t tile, int worker) {
    const CudaPool *pool = pool_of;
    int64_t begin = tile * TOUCH_TILE_BYTES, end = MIN2(begin + TOUCH_TILE_BYTES, pool->bytes);
    for (int64_t at = begin; at < end; at += TOUCH_STEP_BYTES) ((volatile char *)pool->data)[at] = 0;
}

static bool touch_pages(CudaPool *pool, Err *e) {
    Threads *t;
    if (!threads_open(&t, MIN2(TOUCH_THREADS, threads_available()), e)) return false;
    threads_for(t, (pool->bytes + TOUCH_TILE_BYTES - 1) / TOUCH_TILE_BYTES, touch_tile, pool);
    threads_close(t);
    return true;
}

static void free_pinned_pool(CudaPool *pool) {
    cudaHostUnregister(pool->data);
    munmap(pool->data, (size_t)pool->bytes);
}

static cudaError_t register_pages(void *data, int64_t bytes) {
    void *seen;
    cudaError_t status = cudaHostRegister(data, (size_t)bytes, cudaHostRegisterDefault);
    if (status != cudaSuccess) return status;
    status = cudaHostGetDevicePointer(&seen, data, 0);
    if (status == cudaSuccess && seen == data) return status; /* kernels read it under the host's address */
    cudaHostUnregister(data);
    return status == cudaSuccess ? cudaErrorNotSupported : status;
}

static bool refuse_pinned(int64_t bytes, const char *why, Err *e) {
    ProcessRefusal no = process_refusal();
    return fail(e, no.code,
                "cuda: %s of pinned memory: %s%s. Is that much host memory free, and does ulimit -l allow it? "
                "--max-memory host=SIZE plans with less",
                units_bytes(bytes).s, why, no.why);
}

static bool make_pinned_pool(CudaPool *pool, int64_t bytes, Err *e) {
    void *data = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return refuse_pinned(bytes, strerror(errno), e);
    *pool = (CudaPool){data, bytes};
    madvise(data, (size_t)bytes, MADV_HUGEPAGE); /* a wish */
    bool touched = touch_pages(pool, e);
    cudaError_t status = touched ? register_pages(data, bytes) : cudaSuccess;
    if (touched && status == cudaSuccess) return true;
    munmap(data, (size_t)bytes);
    *pool = (CudaPool){0};
    cudaGetLastError(); /* said here: it does not stick */
    return touched && refuse_pinned(bytes, cudaGetErrorString(status), e);
}

/* ---- all pools ---- */

void *cuda_pool(Backend *b, Pool kind, int64_t bytes, Err *e) {
    CudaBackend *c = cuda_backend(b);
    CudaPool *pool = &c->pool[kind];
    CHECK_MSG(!pool->data, "the pool %s is made once", ledger_pool_name(kind));
    bytes = MAX2(bytes, 1);
    if (kind == POOL_DEVICE) {
        make_device_pool(c, pool, units_round_up(bytes, PAGE_BYTES), e);
    } else if (kind == POOL_PINNED) {
        make_pinned_pool(pool, units_round_up(bytes, PAGE_BYTES), e);
    } else if (kind == POOL_HOST) {
        *pool = (CudaPool){mem_alloc(bytes), bytes};
    } else {
        *pool = (CudaPool){cuda_disk_open(c, bytes, e), bytes};
    }
    return pool->data;
}

static void wait_for_all(CudaBackend *c) {
    for (int q = 0; q < QUEUE_COUNT; q++)
        if (c->stream[q]) cuda_ok(&c->base, cudaStreamSynchronize(c->stream[q]), "waiting for the device");
}

void cuda_release(Backend *b, Pool kind) {
    CudaBackend *c = cuda_backend(b);
    CudaPool *pool = &c->pool[kind];
    if (!pool->data) return;
    wait_for_all(c);
    cuda_drop_graphs(c); /* they hold addresses of the pool */
    if (kind == POOL_DEVICE)
        unmap_pool(c, pool, pool->bytes);
    else if (kind == POOL_PINNED)
        free_pinned_pool(pool);
    else if (kind == POOL_DISK)
        cuda_disk_close(c);
    else
        mem_free(pool->data);
    *pool = (CudaPool){0};
}

/* ---- pages that come and go: addresses stay, and with them the graphs that hold them ---- */

int64_t cuda_trim(Backend *b, int64_t at, int64_t bytes) {
    CudaBackend *c = cuda_backend(b);
    const CudaPool *pool = &c->pool[POOL_DEVICE];
    int64_t piece = piece_bytes(c), given = 0;
    CHECK(at >= 0 && at + bytes <= pool->bytes);
    wait_for_all(c);
    for (int64_t i = (at + piece - 1) / piece; i * piece < at + bytes; i++) {
        int64_t size = MIN2(piece, pool->bytes - i * piece);
        if (i * piece + size > at + bytes || c->absent[i]) continue;
        CUresult result = driver.unmap((CUdeviceptr)(pool->data + i * piece), (size_t)size);
        if (result != CUDA_SUCCESS) {
            cuda_fail(b, "giving pages back: driver code %d", (int)result);
            return given;
        }
        c->absent[i] = true;
        given += size;
    }
    return given;
}

bool cuda_restore(Backend *b, Err *e) {
    CudaBackend *c = cuda_backend(b);
    const CudaPool *pool = &c->pool[POOL_DEVICE];
    int64_t piece = piece_bytes(c);
    for (int64_t at = 0; at < pool->bytes; at += piece) {
        if (!c->absent[at / piece]) continue;
        CUresult result = map_piece(pool, c->device, at, MIN2(piece, pool->bytes - at));
        if (result != CUDA_SUCCESS)
            return fail(
                e, result == CUDA_ERROR_OUT_OF_MEMORY ? ERR_BUDGET : ERR_FAIL,
                "cuda:%d: pages that were given back (--trim-every) cannot be had again: driver code %d. Another "
                "process took them: the last checkpoint stands, go on with --resume when there is room",
                c->device, (int)result);
        c->absent[at / piece] = false;
    }
    return true;
}

/* ---- in and out ---- */

static bool is_host(const CudaBackend *c, const void *p) {
    const CudaPool *device = &c->pool[POOL_DEVICE];
    return (const char *)p < device->data || (const char *)p >= device->data + device->bytes;
}

/* Room for up to `bytes` in the ring; *granted: how many. Waits only when both halves are in flight. */
static char *ring_room(CudaBackend *c, int64_t *granted, int64_t bytes) {
    CudaRing *r = &c->ring;
    if (CUDA_RING_BYTES - r->used < MIN2(bytes, CUDA_RING_BYTES)) {
        cuda_ok(&c->base, cudaEventRecord(r->copied[r->half], c->stream[QUEUE_COMPUTE]), "put");
        r->half = !r->half;
        r->used = 0;
        cuda_ok(&c->base, cudaEventSynchronize(r->copied[r->half]), "put"); /* at once when never recorded */
    }
    *granted = MIN2(bytes, CUDA_RING_BYTES - r->used);
    char *room = r->data + r->half * CUDA_RING_BYTES + r->used;
    r->used = units_round_up(r->used + *granted, RING_ALIGN);
    return room;
}

void cuda_put(Backend *b, void *device, const void *host, int64_t bytes) {
    CudaBackend *c = cuda_backend(b);
    if (is_host(c, device)) {
        wait_for_all(c);
        if (cuda_disk_holds(c, device)) cuda_disk_move(b, device, host, bytes);
        else memcpy(device, host, (size_t)bytes);
        return;
    }
    for (int64_t at = 0, n; at < bytes; at += n) {
        char *room = ring_room(c, &n, bytes - at);
        memcpy(room, (const char *)host + at, (size_t)n);
        char *to = (char *)device + at;
        cuda_ok(b, cudaMemcpyAsync(to, room, (size_t)n, cudaMemcpyHostToDevice, c->stream[QUEUE_COMPUTE]), "put");
    }
}

void cuda_get(Backend *b, void *host, const void *device, int64_t bytes) {
    CudaBackend *c = cuda_backend(b);
    if (is_host(c, device)) {
        wait_for_all(c);
        if (cuda_disk_holds(c, device)) cuda_disk_move(b, host, device, bytes);
        else memcpy(host, device, (size_t)bytes);
        return;
    }
    cudaStream_t s = c->stream[QUEUE_COMPUTE];
    bool ok = cuda_ok(b, cudaMemcpyAsync(host, device, (size_t)bytes, cudaMemcpyDeviceToHost, s), "get") &&
              cuda_ok(b, cudaStreamSynchronize(s), "get");
    if (!ok) memset(host, 0, (size_t)bytes); /* the error sticks; the caller must not see what was there before */
}

static bool queue_fetch(CudaBackend *c, const char *device, int64_t piece, int64_t bytes) {
    int64_t at = piece * CUDA_RING_BYTES;
    char *room = c->ring.data + piece % 2 * CUDA_RING_BYTES;
    cudaStream_t s = c->stream[QUEUE_COMPUTE];
    size_t n = (size_t)MIN2(CUDA_RING_BYTES, bytes - at);
    return cuda_ok(&c->base, cudaMemcpyAsync(room, device + at, n, cudaMemcpyDeviceToHost, s), "fetch") &&
           cuda_ok(&c->base, cudaEventRecord(c->ring.copied[piece % 2], s), "fetch");
}

/* Both halves of the ring are free once the compute queue is idle: puts are copied on it. */
void cuda_fetch(Backend *b, const void *device, int64_t bytes, StageFn *fn, void *context) {
    CudaBackend *c = cuda_backend(b);
    CudaRing *r = &c->ring;
    if (is_host(c, device)) {
        wait_for_all(c);
        fn(context, (void *)device, 0, bytes);
        return;
    }
    int64_t pieces = (bytes + CUDA_RING_BYTES - 1) / CUDA_RING_BYTES;
    bool ok = cuda_ok(b, cudaStreamSynchronize(c->stream[QUEUE_COMPUTE]), "fetch");
    ok = ok && (!pieces || queue_fetch(c, device, 0, bytes));
    for (int64_t i = 0; i < pieces && ok; i++) {
        int64_t at = i * CUDA_RING_BYTES;
        ok = (i + 1 == pieces || queue_fetch(c, device, i + 1, bytes)) &&
             cuda_ok(b, cudaEventSynchronize(r->copied[i % 2]), "fetch");
        if (ok) fn(context, r->data + i % 2 * CUDA_RING_BYTES, at, MIN2(CUDA_RING_BYTES, bytes - at));
    }
    r->half = 0;
    r->used = 0;
}

void cuda_store(Backend *b, void *device, int64_t bytes, StageFn *fn, void *context) {
    CudaBackend *c = cuda_backend(b);
    if (is_host(c, device)) {
        wait_for_all(c);
        fn(context, device, 0, bytes);
        return;
    }
    for (int64_t at = 0, n; at < bytes; at += n) {
        char *room = ring_room(c, &n, bytes - at), *to = (char *)device + at;
        fn(context, room, at, n);
        cuda_ok(b, cudaMemcpyAsync(to, room, (size_t)n, cudaMemcpyHostToDevice, c->stream[QUEUE_COMPUTE]), "store");
    }
}

void cuda_note(Backend *b, int slot, const void *device, int64_t bytes) {
    CudaBackend *c = cuda_backend(b);
    CHECK(slot >= 0 && slot < BACKEND_NOTES && bytes <= BACKEND_NOTE_BYTES);
    cudaStream_t s = c->stream[QUEUE_COMPUTE];
    char *to = c->notes.data + slot * BACKEND_NOTE_BYTES;
    if (cuda_ok(b, cudaMemcpyAsync(to, device, (size_t)bytes, cudaMemcpyDefault, s), "note"))
        cuda_ok(b, cudaEventRecord(c->notes.written[slot], s), "note");
}

bool cuda_read_note(Backend *b, int slot, void *host, int64_t bytes, Err *e) {
    CudaBackend *c = cuda_backend(b);
    CHECK(slot >= 0 && slot < BACKEND_NOTES && bytes <= BACKEND_NOTE_BYTES);
    cuda_ok(b, cudaEventSynchronize(c->notes.written[slot]), "a step since the last sync");
    memcpy(host, c->notes.data + slot * BACKEND_NOTE_BYTES, (size_t)bytes);
    cuda_disk_check(c);
    if (c->error.code == ERR_NONE) return true;
    if (e) *e = c->error;
    return false;
}

void cuda_move(Backend *b, Queue q, void *dst, const void *src, int64_t bytes) {
    if (dst == src || bytes == 0) return;
    if (cuda_disk_holds(cuda_backend(b), dst) || cuda_disk_holds(cuda_backend(b), src)) {
        cuda_disk_queue(b, q, dst, src, bytes);
        return;
    }
    cuda_ok(b, cudaMemcpyAsync(dst, src, (size_t)bytes, cudaMemcpyDefault, cuda_stream(b, q)), "copy");
}
