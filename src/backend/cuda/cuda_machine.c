/* cuda_machine.c - what is known about cards: by their name, from a catalogue; by asking the system, of the one
 * that is here.
 *
 * Rates are dense bf16 products (fp16 where a card has no bf16 units) and memory as the vendor states them; in
 * "measured" rows these two were timed at training shapes. Copies are what the host's bus gives at best. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "backend/cuda/cuda_int.h"
#include "base/file.h"

typedef struct Card {
    const char *word; /* in the name the driver gives; the first row that matches counts */
    double matrix_tflops, vector_tflops, memory_gbps, copy_gbps;
    const char *source;
} Card;

static const Card cards[] = {
    {"B200", 2250, 80, 8000, 50, "vendor"},
    {"GH200", 990, 67, 4000, 200, "vendor"},
    {"H200", 700, 60, 4300, 50, "measured"},
    {"H100 PCIe", 756, 51, 2000, 50, "vendor"},
    {"H100 NVL", 835, 60, 3900, 50, "vendor"},
    {"H100", 990, 67, 3350, 50, "vendor"},
    {"A100-PCIE-40GB", 312, 19.5, 1555, 24, "vendor"},
    {"A100-SXM4-40GB", 312, 19.5, 1555, 24, "vendor"},
    {"A100", 312, 19.5, 1935, 24, "vendor"},
    {"L40S", 362, 91, 864, 24, "vendor"},
    {"L4", 121, 30, 300, 24, "vendor"},
    {"A10", 125, 31, 600, 24, "vendor"},
    {"T4", 65, 8, 320, 12, "vendor"},
    {"RTX PRO 6000", 500, 120, 1792, 50, "estimated"},
    {"RTX 5090", 210, 105, 1792, 50, "vendor"},
    {"RTX 5060 Ti", 47, 24, 448, 24, "estimated"},
    {"RTX 4090", 165, 83, 1008, 24, "vendor"},
    {"RTX 4060 Ti", 44, 22, 288, 12, "estimated"},
    {"RTX 3090", 71, 36, 936, 24, "vendor"},
    {"RTX 3060", 26, 13, 360, 24, "estimated"},
};

/* A card nobody wrote down: from its multiprocessors, at rates that even small ones reach. */
static Card guess(int processors) { return (Card){"", processors * 1.0, processors * 0.2, 300, 12, "estimated"}; }

static Card find_card(const char *name, int processors) {
    for (int i = 0; i < COUNT_OF(cards); i++)
        if (strstr(name, cards[i].word)) return cards[i];
    return guess(processors);
}

/* ---- asking the system ---- */

/* The number behind `key` in a file of "key: number kB" lines, in bytes; 0 when it cannot be read. */
static int64_t proc_bytes(const char *path, const char *key) {
    Str text = {0};
    long long kib = 0;
    if (file_read(path, &text, MIB, NULL)) {
        const char *line = strstr(str_text(&text), key);
        if (line) sscanf(line + strlen(key), ": %lld", &kib);
    }
    str_free(&text);
    return kib * KIB;
}

int64_t cuda_machine_process_bytes(void) { return proc_bytes("/proc/self/status", "RssAnon"); }

/* The part of the driver's management library that is used, as its documentation declares it. */
typedef struct NvmlMemory {
    unsigned long long total, free, used;
} NvmlMemory;

int64_t cuda_machine_used_bytes(const char *bus_id) {
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) return -1;
    int (*init)(void), (*shutdown)(void), (*by_bus)(const char *, void **), (*memory)(void *, NvmlMemory *);
    *(void **)&init = dlsym(library, "nvmlInit_v2");
    *(void **)&shutdown = dlsym(library, "nvmlShutdown");
    *(void **)&by_bus = dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2");
    *(void **)&memory = dlsym(library, "nvmlDeviceGetMemoryInfo");
    int64_t used = -1;
    if (init && shutdown && by_bus && memory && init() == 0) {
        void *card;
        NvmlMemory m;
        if (by_bus(bus_id, &card) == 0 && memory(card, &m) == 0) used = (int64_t)m.used;
        shutdown();
    }
    dlclose(library);
    return used;
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
/* The same for the host: heap of the driver and the libraries while programs are played and captured. */
#define HOST_CODE_BYTES (96 * MIB)

void cuda_machine_describe(CudaBackend *c, Machine *m) {
    Card card = find_card(c->name, c->processors);
    size_t available = 0, total = 0;
    cuda_ok(&c->base, cudaMemGetInfo(&available, &total), "asking for free memory");
    *m = (Machine){
        .kind = MACHINE_CUDA, .threads = 1, .align_bytes = 256, .page_bytes = 2 * MIB, .source = card.source};
    snprintf(m->name, sizeof m->name, "%.60s, %d multiprocessors", c->name, c->processors);
    m->total_bytes[POOL_DEVICE] = (int64_t)total;
    m->free_bytes[POOL_DEVICE] = (int64_t)available + c->pool[POOL_DEVICE].bytes;
    m->total_bytes[POOL_PINNED] = m->total_bytes[POOL_HOST] = proc_bytes("/proc/meminfo", "MemTotal");
    m->free_bytes[POOL_PINNED] = m->free_bytes[POOL_HOST] = proc_bytes("/proc/meminfo", "MemAvailable");
    m->matrix_flops = card.matrix_tflops * 1e12;
    m->vector_flops = card.vector_tflops * 1e12;
    m->memory_bytes_per_s = card.memory_gbps * 1e9;
    m->copy_bytes_per_s = card.copy_gbps * 1e9;
    m->step_seconds = 2e-6;
    m->context_bytes = units_round_up(c->context_bytes ? c->context_bytes : CONTEXT_BYTES, 2 * MIB);
    m->code_bytes = CODE_BYTES;
    m->graph_bytes = GRAPH_BYTES;
    m->mapping_bytes = MAPPING_BYTES;
    m->runtime_bytes = c->host_bytes + HOST_CODE_BYTES;
}
