/* cuda_machine.c - the present card as data: rates from the catalogue by its name, memory by asking the driver. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "backend/cuda/cuda_int.h"
#include "base/process.h"
#include "ir/cards.h"

/* A card that the catalogue does not have: from its multiprocessors, at rates that even small ones reach. */
static Card guess(int processors) {
    return (Card){.matrix_tflops = processors, .vector_tflops = processors * 0.2, .memory_gbps = 300, .copy_gbps = 12,
                  .source = "estimated"};
}

/* ---- asking the system ---- */

/* In bytes; 0 when it cannot be read. */
static int64_t meminfo_bytes(const char *label) {
    char text[PROCESS_TEXT_BYTES];
    return process_read(text, "/proc/meminfo") ? MAX2(process_kilobytes(text, label), 0) : 0;
}

/* ---- the description ---- */

/* Seen on an H200 with driver 580 and CUDA 13: a bare context 526 MiB. Where it cannot be measured, that and a
 * little. */
#define CONTEXT_BYTES (544 * MIB)
/* What comes after opening and is not asked for: code of kernels loaded when first used (timing candidates of
 * products included), graphs of a few thousand nodes, page tables. All of it is there before a plan is sealed. */
#define CODE_BYTES (40 * MIB)
#define GRAPH_BYTES (20 * MIB)
#define MAPPING_BYTES (4 * MIB)
/* Device memory that pinned memory costs, seen there too: 2 MiB a GiB. */
#define MAPPING_SHARE (1.0 / 512)
/* The same for the host: heap of the driver and the libraries while programs are played and captured. */
#define HOST_CODE_BYTES (96 * MIB)

void cuda_machine_describe(CudaBackend *c, Machine *m) {
    size_t available = 0, total = 0;
    cuda_ok(&c->base, cudaMemGetInfo(&available, &total), "asking for free memory");
    const Card *known = card_find(c->name, (int64_t)total);
    Card card = known ? *known : guess(c->processors);
    *m = (Machine){
        .kind = MACHINE_CUDA, .threads = 1, .align_bytes = 256, .page_bytes = 2 * MIB,
        .capability = c->major * 10 + c->minor};
    snprintf(m->name, sizeof m->name, "%.60s, %d multiprocessors", c->name, c->processors);
    snprintf(m->driver, sizeof m->driver, "%s", c->driver);
    cuda_products_version(c, m->library, sizeof m->library);
    m->total_bytes[POOL_DEVICE] = (int64_t)total;
    m->free_bytes[POOL_DEVICE] = (int64_t)available + c->pool[POOL_DEVICE].bytes;
    m->total_bytes[POOL_PINNED] = m->total_bytes[POOL_HOST] = meminfo_bytes("\nMemTotal:");
    m->free_bytes[POOL_PINNED] = m->free_bytes[POOL_HOST] = meminfo_bytes("\nMemAvailable:");
    card_rates(&card, m);
    m->context_bytes = units_round_up(c->context_bytes ? c->context_bytes : CONTEXT_BYTES, 2 * MIB);
    m->code_bytes = CODE_BYTES;
    m->graph_bytes = GRAPH_BYTES;
    m->mapping_bytes = MAPPING_BYTES;
    m->mapping_share = MAPPING_SHARE;
    m->runtime_bytes = c->host_bytes + HOST_CODE_BYTES;
    snprintf(m->bus_id, sizeof m->bus_id, "%s", c->bus_id);
}

/* ---- what it says about itself ---- */

static void attention_library(char *text, int size) {
    static const char *const names[] = {"libcudnn.so.9", CUDA_LIBRARIES "/libcudnn.so.9", CUDA_WHEELS "/libcudnn.so.9"};
    snprintf(text, (size_t)size, "cuDNN: not found; attention by snug's own kernels");
    for (int i = 0; i < COUNT_OF(names); i++) {
        void *library = dlopen(names[i], RTLD_LAZY | RTLD_LOCAL);
        if (!library) continue;
        size_t (*version)(void);
        *(void **)&version = dlsym(library, "cudnnGetVersion");
        size_t v = version ? version() : 0;
        snprintf(text, (size_t)size, "cuDNN %zu.%zu.%zu", v / 10000, v % 10000 / 100, v % 100);
        dlclose(library);
        return;
    }
}

void cuda_facts(Backend *b, DeviceFacts *f) {
    CudaBackend *c = cuda_backend(b);
    size_t available = 0, total = 0;
    *f = (DeviceFacts){.context_bytes = c->context_bytes, .others_bytes = -1};
    snprintf(f->capability, sizeof f->capability, "compute capability %d.%d", c->major, c->minor);
    snprintf(f->driver, sizeof f->driver, "%s", c->driver);
    cuda_products_version(c, f->products, sizeof f->products);
    attention_library(f->attention, sizeof f->attention);
    cuda_nvml_facts(f, c->bus_id);
    int64_t ours = b->in_use(b);
    if (ours >= 0 && cudaMemGetInfo(&available, &total) == cudaSuccess)
        f->others_bytes = MAX2((int64_t)(total - available) - ours, 0);
}
