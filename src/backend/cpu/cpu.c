/* cpu.c - the processor as a device. Its pools are pages that are resident from the start. Its queues run on the
 * caller's own thread, so that queued work is done when the call returns; only disk reads and writes are done by
 * another thread, in order, and waited for. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "backend/cpu/few.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/process.h"
#include "base/units.h"

enum { ALIGN_BYTES = 256, PAGE_BYTES = 4096, PIECE_BYTES = 1 << 20 };

/* ---- what the system says about itself ---- */

/* In bytes; 0 when it cannot be read. */
static int64_t meminfo_bytes(const char *label) {
    char text[PROCESS_TEXT_BYTES];
    return process_read(text, "/proc/meminfo") ? MAX2(process_kilobytes(text, label), 0) : 0;
}

/* The instruction set the products are written for that this processor has (few_kernels). */
static const char *product_set(void) {
    const FewKernels *k = few_kernels();
    return k == &few_avx512 ? "AVX-512" : k == &few_avx2 ? "AVX2" : "SSE2";
}

static void processor_name(char *name, int64_t size, int threads) {
    Str text = {0};
    char model[64] = "x86-64 processor";
    if (file_read("/proc/cpuinfo", &text, 16 * MIB, NULL)) {
        const char *line = strstr(str_text(&text), "model name");
        if (line) sscanf(line, "model name : %63[^\n]", model);
    }
    str_free(&text);
    snprintf(name, (size_t)size, "%s, %d thread%s, %s products", model, threads, threads == 1 ? "" : "s",
             product_set());
}

/* What a core does in a second, as measured on server cores between 2 and 3 GHz: products in fp32, and bytes it draws
 * from memory. AMD's Zen 4 does 512 bits in two halves, at a higher clock; Zen 5 does them whole, at 4.5 GHz where it
 * was measured (bench/prediction_cpu.py). */
typedef struct CoreRates {
    double flops, bytes;
} CoreRates;

static CoreRates core_rates(const char *processor) {
    const FewKernels *k = few_kernels();
    bool amd = strstr(processor, "AMD") != NULL, zen5 = amd && __builtin_cpu_supports("avx512vp2intersect");
    if (k == &few_avx512 && zen5) return (CoreRates){230e9, 20e9};
    if (k == &few_avx512) return (CoreRates){amd ? 92e9 : 110e9, 10e9};
    return (CoreRates){k == &few_avx2 ? 80e9 : 20e9, 10e9};
}

static void describe(Backend *b, Machine *m) {
    int threads = cpu_thread_count(b);
    *m = machine_generic_cpu(threads);
    processor_name(m->name, sizeof m->name, threads);
    Pool pools[] = {POOL_DEVICE, POOL_PINNED, POOL_HOST}; /* one memory under three names */
    for (int i = 0; i < COUNT_OF(pools); i++) {
        m->total_bytes[pools[i]] = meminfo_bytes("\nMemTotal:");
        m->free_bytes[pools[i]] = meminfo_bytes("\nMemAvailable:");
    }
    m->align_bytes = ALIGN_BYTES;
    m->page_bytes = PAGE_BYTES;
    CoreRates core = core_rates(m->name);
    m->matrix_flops = core.flops * threads;
    m->vector_flops = m->matrix_flops / 10;
    m->memory_bytes_per_s = core.bytes * MIN2(threads, 8); /* eight cores fill the channels */
    m->copy_bytes_per_s = m->memory_bytes_per_s / 2;
    m->runtime_bytes = process_runtime_bytes(threads);
}

/* ---- pools ---- */

static void touch_piece(void *context, int64_t tile, int worker) {
    CpuPool *pool = context;
    int64_t end = MIN2((tile + 1) * PIECE_BYTES, pool->bytes);
    for (int64_t at = tile * PIECE_BYTES; at < end; at += PAGE_BYTES) ((volatile char *)pool->data)[at] = 0;
}

static bool run_errand(void *context, const Errand *errand, Err *e) {
    const Disk *d = &((CpuBackend *)context)->disk;
    return disk_holds(d, errand->from) ? disk_read(d, errand->to, errand->from, errand->bytes, e)
                                       : disk_write(d, errand->to, errand->from, errand->bytes, e);
}

static void close_disk(CpuBackend *c) {
    courier_close(c->courier);
    c->courier = NULL;
    if (c->disk.base) disk_close(&c->disk);
    mem_free(c->errand_of);
    c->errand_of = NULL;
    c->n_events = c->errand = 0;
}

static void *open_disk(CpuBackend *c, int64_t bytes, Err *e) {
    if (!disk_open(&c->disk, c->offload_dir, bytes, e)) return NULL;
    if (courier_open(&c->courier, run_errand, c, e)) return c->disk.base;
    close_disk(c);
    return NULL;
}

static bool link_disk(Backend *b, const void *at, const char *path, int64_t file_at, int64_t bytes, Err *e) {
    return disk_link(&((CpuBackend *)b)->disk, at, path, file_at, bytes, e);
}

static bool settle_disk(Backend *b, int64_t *own_bytes, Err *e) {
    CpuBackend *c = (CpuBackend *)b;
    return courier_await(c->courier, c->errand, e) && disk_settle(&c->disk, own_bytes, e);
}

static void *make_pool(Backend *b, Pool kind, int64_t bytes, Err *e) {
    if (kind == POOL_DISK) return open_disk((CpuBackend *)b, bytes, e);
    CpuPool *pool = &((CpuBackend *)b)->pool[kind];
    CHECK_MSG(!pool->data, "the pool %s is made once", ledger_pool_name(kind));
    int64_t size = units_round_up(MAX2(bytes, 1), PAGE_BYTES), available = meminfo_bytes("\nMemAvailable:");
    if (available > 0 && size > available) {
        fail(e, ERR_BUDGET, "cpu: the %s pool wants %s, the system has %s available. Close other programs or plan "
             "with a smaller --budget", ledger_pool_name(kind), units_bytes(size).s, units_bytes(available).s);
        return NULL;
    }
    void *data = MAP_FAILED;
    if (!fault_here(FAULT_MAP, ledger_pool_name(kind)))
        data = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
        const char *why = strerror(errno);
        ProcessRefusal no = process_refusal();
        fail(e, no.code, "cpu: the system refused %s for the %s pool: %s%s", units_bytes(size).s,
             ledger_pool_name(kind), why, no.why);
        return NULL;
    }
    madvise(data, (size_t)size, MADV_HUGEPAGE); /* a wish: fewer address look-ups; never beyond the pool's ends */
    *pool = (CpuPool){data, size};
    threads_for(cpu_threads(b), (size + PIECE_BYTES - 1) / PIECE_BYTES, touch_piece, pool);
    return data;
}

static void facts(Backend *b, DeviceFacts *f) {
    *f = (DeviceFacts){.others_bytes = -1};
    snprintf(f->capability, sizeof f->capability, "%s%s%s", __builtin_cpu_supports("avx2") ? "avx2" : "no avx2",
             __builtin_cpu_supports("avx512f") ? ", avx512" : "",
             __builtin_cpu_supports("avx512bf16") ? ", avx512bf16" : "");
    snprintf(f->products, sizeof f->products, "our own kernels, %s", product_set());
}

static int64_t choices(Backend *b, MachineChoice *out, int64_t room) { return 0; } /* tiles follow from the shape */
static void choose(Backend *b, const MachineChoice *list, int64_t n) {}

static int64_t in_use(Backend *b) { return -1; } /* the process's own memory: obs/sensors.h asks the system */

static void release_pool(Backend *b, Pool kind) {
    if (kind == POOL_DISK) close_disk((CpuBackend *)b);
    CpuPool *pool = &((CpuBackend *)b)->pool[kind];
    if (pool->data) munmap(pool->data, (size_t)pool->bytes);
    *pool = (CpuPool){0};
}

static int64_t trim(Backend *b, int64_t at, int64_t bytes) { /* pages come back as zeros when they are touched */
    const CpuPool *pool = &((CpuBackend *)b)->pool[POOL_DEVICE];
    int64_t begin = units_round_up(at, PAGE_BYTES), end = (at + bytes) / PAGE_BYTES * PAGE_BYTES;
    CHECK(at >= 0 && at + bytes <= pool->bytes);
    if (begin >= end || madvise((char *)pool->data + begin, (size_t)(end - begin), MADV_DONTNEED)) return 0;
    return end - begin;
}

static bool restore(Backend *b, Err *e) { return true; }

/* ---- queues ---- */

static void copy(Backend *b, Queue q, void *dst, const void *src, int64_t bytes) {
    CpuBackend *cpu = (CpuBackend *)b;
    if (disk_holds(&cpu->disk, dst) || disk_holds(&cpu->disk, src)) {
        cpu->errand = courier_send(cpu->courier, (Errand){dst, src, bytes});
        return;
    }
    threads_copy(cpu_threads(b), dst, src, bytes);
}

/* The caller's memory is his again when put returns, and filled when get does. */
static void put(Backend *b, void *device, const void *host, int64_t bytes) {
    CpuBackend *c = (CpuBackend *)b;
    copy(b, QUEUE_COMPUTE, device, host, bytes);
    if (disk_holds(&c->disk, device)) courier_await(c->courier, c->errand, NULL);
}

static void get(Backend *b, void *host, const void *device, int64_t bytes) {
    CpuBackend *c = (CpuBackend *)b;
    copy(b, QUEUE_COMPUTE, host, device, bytes);
    if (disk_holds(&c->disk, device) && !courier_await(c->courier, c->errand, NULL))
        memset(host, 0, (size_t)bytes); /* the error sticks; the caller must not see what was there before */
}

static void note(Backend *b, int slot, const void *device, int64_t bytes) {
    CHECK(slot >= 0 && slot < BACKEND_NOTES && bytes <= BACKEND_NOTE_BYTES);
    memcpy(((CpuBackend *)b)->note[slot], device, (size_t)bytes);
}

static bool read_note(Backend *b, int slot, void *host, int64_t bytes, Err *e) {
    CHECK(slot >= 0 && slot < BACKEND_NOTES && bytes <= BACKEND_NOTE_BYTES);
    memcpy(host, ((CpuBackend *)b)->note[slot], (size_t)bytes);
    Courier *courier = ((CpuBackend *)b)->courier;
    return !courier || courier_await(courier, 0, e); /* what failed so far */
}

static void signal_event(Backend *b, Queue q, int event) {
    CpuBackend *c = (CpuBackend *)b;
    if (!c->courier || (q != QUEUE_DISK_IN && q != QUEUE_DISK_OUT)) return;
    int64_t before = c->n_events;
    c->errand_of = mem_grow(c->errand_of, &c->n_events, event + 1, sizeof *c->errand_of);
    memset(c->errand_of + before, 0, (size_t)(c->n_events - before) * sizeof *c->errand_of);
    c->errand_of[event] = c->errand;
}

static void wait_event(Backend *b, Queue q, int event) { /* of one that has failed the next sync tells */
    CpuBackend *c = (CpuBackend *)b;
    if (c->courier && event < c->n_events && q != QUEUE_DISK_IN && q != QUEUE_DISK_OUT)
        courier_await(c->courier, c->errand_of[event], NULL);
}

static void begin_or_end(Backend *b, int id) {}
static bool replay(Backend *b, int id) { return false; } /* steps run where they are issued: there is nothing to keep */

static bool sync_all(Backend *b, Err *e) {
    CpuBackend *c = (CpuBackend *)b;
    return !c->courier || courier_await(c->courier, c->errand, e);
}

static void close_backend(Backend *b) {
    for (int kind = 0; kind < POOL_COUNT; kind++) release_pool(b, (Pool)kind);
    threads_close(cpu_threads(b));
    mem_free(b);
}

bool cpu_open(Backend **out, BackendOptions options, Err *e) {
    Threads *threads;
    int n = options.threads ? options.threads : threads_available();
    if (!threads_open(&threads, n, e)) return false;
    CpuBackend *b = MEM_NEW(CpuBackend, 1);
    b->base = (Backend){.name = "cpu", .host_memory = true, .close = close_backend, .describe = describe,
                        .pool = make_pool,
        .release = release_pool, .link = link_disk, .settle = settle_disk, .trim = trim, .restore = restore,
        .facts = facts, .choices = choices, .choose = choose, .in_use = in_use, .copy = copy, .signal = signal_event,
        .wait = wait_event, .begin = begin_or_end,
        .end = begin_or_end, .replay = replay, .sync = sync_all, .put = put,
        .get = get, .note = note, .read_note = read_note, .kernels = cpu_kernels};
    b->threads = threads;
    b->n_threads = n;
    b->offload_dir = options.offload_dir;
    *out = &b->base;
    return true;
}
