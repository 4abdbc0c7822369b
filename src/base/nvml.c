/* nvml.c - the binding to NVML. Declared here as its documentation does: its header is not part of the usual toolkit,
 * and names, numbers and structures of version 1 of the library never change. */
#include "base/nvml.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "base/process.h"
#include "base/units.h"

enum { OK = 0, CLOCK_SM = 1, CLOCK_MEMORY = 2, PCIE_TX = 0, PCIE_RX = 1, SENSOR_GPU = 0 };

typedef struct Memory {
    unsigned long long total, free, used;
} Memory;

typedef struct Utilisation {
    unsigned gpu, memory;
} Utilisation;

typedef struct Pci { /* version 3 */
    char legacy_bus_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} Pci;

typedef struct Process { /* version 2, as the _v3 calls fill it */
    unsigned pid;
    unsigned long long used; /* all ones: not told */
    unsigned gpu_instance, compute_instance;
} Process;

struct Nvml {
    void *library; /* owns */
    int n;
    void *card[NVML_GPUS];
    char driver[80];
    int (*init)(void), (*shutdown)(void);
    int (*count)(unsigned *);
    int (*at)(unsigned, void **);
    /* may be missing: */
    const char *(*error)(int);
    int (*version)(char *, unsigned);
    int (*name)(void *, char *, unsigned);
    int (*pci)(void *, Pci *);
    int (*memory)(void *, Memory *);
    int (*utilisation)(void *, Utilisation *);
    int (*temperature)(void *, int, unsigned *);
    int (*power)(void *, unsigned *);
    int (*power_limit)(void *, unsigned *);
    int (*clock)(void *, int, unsigned *);
    int (*pcie)(void *, int, unsigned *);
    int (*compute)(void *, unsigned *, Process *);
    int (*graphics)(void *, unsigned *, Process *);
    int (*process_name)(unsigned, char *, unsigned);
    int (*mig_mode)(void *, unsigned *, unsigned *);
    int (*mig_count)(void *, unsigned *);
    int (*mig_at)(void *, unsigned, void **);
};

static void find_calls(Nvml *n) {
    const struct {
        const char *name;
        void **to;
    } entry[] = {
        {"nvmlInit_v2", (void **)&n->init},
        {"nvmlShutdown", (void **)&n->shutdown},
        {"nvmlDeviceGetCount_v2", (void **)&n->count},
        {"nvmlDeviceGetHandleByIndex_v2", (void **)&n->at},
        {"nvmlErrorString", (void **)&n->error},
        {"nvmlSystemGetDriverVersion", (void **)&n->version},
        {"nvmlDeviceGetName", (void **)&n->name},
        {"nvmlDeviceGetPciInfo_v3", (void **)&n->pci},
        {"nvmlDeviceGetMemoryInfo", (void **)&n->memory},
        {"nvmlDeviceGetUtilizationRates", (void **)&n->utilisation},
        {"nvmlDeviceGetTemperature", (void **)&n->temperature},
        {"nvmlDeviceGetPowerUsage", (void **)&n->power},
        {"nvmlDeviceGetEnforcedPowerLimit", (void **)&n->power_limit},
        {"nvmlDeviceGetClockInfo", (void **)&n->clock},
        {"nvmlDeviceGetPcieThroughput", (void **)&n->pcie},
        {"nvmlDeviceGetComputeRunningProcesses_v3", (void **)&n->compute},
        {"nvmlDeviceGetGraphicsRunningProcesses_v3", (void **)&n->graphics},
        {"nvmlSystemGetProcessName", (void **)&n->process_name},
        {"nvmlDeviceGetMigMode", (void **)&n->mig_mode},
        {"nvmlDeviceGetMaxMigDeviceCount", (void **)&n->mig_count},
        {"nvmlDeviceGetMigDeviceHandleByIndex", (void **)&n->mig_at},
    };
    for (int i = 0; i < COUNT_OF(entry); i++) *entry[i].to = dlsym(n->library, entry[i].name);
}

static bool start(Nvml *n, const char *file, Err *e) {
    if (!n->init || !n->shutdown || !n->count || !n->at)
        return fail(e, ERR_FAIL, "%s: lacks the calls of NVML. Is it the driver's library?", file);
    int status = n->init();
    if (status != OK)
        return fail(e, ERR_FAIL, "%s: %s", file, n->error ? n->error(status) : "the driver does not answer");
    unsigned count = 0;
    if (n->count(&count) != OK) count = 0;
    for (unsigned i = 0; i < count && n->n < NVML_GPUS; i++)
        if (n->at(i, &n->card[n->n]) == OK) n->n++;
    if (n->version && n->version(n->driver, sizeof n->driver) != OK) n->driver[0] = 0;
    return true;
}

bool nvml_open(Nvml **to, const char *library, Err *e) {
    const char *file = library ? library : "libnvidia-ml.so.1";
    *to = NULL;
    Nvml *n = MEM_NEW(Nvml, 1);
    n->library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    bool ok = n->library != NULL;
    if (!ok)
        fail(e, ERR_FAIL, "%s cannot be opened: no NVIDIA driver is visible here", file);
    else
        find_calls(n);
    ok = ok && start(n, file, e);
    if (!ok && n->library) dlclose(n->library);
    if (!ok) mem_free(n);
    if (ok) *to = n;
    return ok;
}

void nvml_close(Nvml *n) {
    if (!n) return;
    n->shutdown();
    dlclose(n->library);
    mem_free(n);
}

int nvml_count(const Nvml *n) {
    return n->n;
}

const char *nvml_driver(const Nvml *n) {
    return n->driver;
}

/* ---- reading ---- */

static void read_identity(const Nvml *n, void *card, NvmlGpu *out) {
    Pci pci = {0};
    if (!n->name || n->name(card, out->name, sizeof out->name) != OK) snprintf(out->name, sizeof out->name, "GPU");
    out->name[sizeof out->name - 1] = 0;
    if (n->pci && n->pci(card, &pci) == OK) snprintf(out->bus_id, sizeof out->bus_id, "%.31s", pci.bus_id);
}

int nvml_find(const Nvml *n, const char *bus_id) {
    for (int i = 0; i < n->n; i++) {
        NvmlGpu g = {.used_bytes = -1};
        read_identity(n, n->card[i], &g);
        size_t ours = strlen(g.bus_id), theirs = strlen(bus_id); /* the domain may have four digits or eight */
        size_t tail = MIN2(ours, theirs);
        if (tail && !strcasecmp(g.bus_id + ours - tail, bus_id + theirs - tail)) return i;
    }
    return -1;
}

static int one(int (*call)(void *, unsigned *), void *card) {
    unsigned value;
    return call && call(card, &value) == OK ? (int)value : -1;
}

static int kind_of(int (*call)(void *, int, unsigned *), void *card, int kind) {
    unsigned value;
    return call && call(card, kind, &value) == OK ? (int)value : -1;
}

static int64_t kilobytes(int n) {
    return n < 0 ? -1 : n * KIB;
}

static double milliwatts(int n) {
    return n < 0 ? -1 : 1e-3 * n;
}

/* A process may compute and draw: it is listed once. */
static void add_process(NvmlGpu *out, const Process *p) {
    for (int i = 0; i < out->n_processes; i++)
        if (out->process[i].pid == (int)p->pid) return;
    if (out->n_processes == NVML_PROCESSES) return;
    int64_t bytes = p->used == ~0ull || p->used > INT64_MAX ? -1 : (int64_t)p->used;
    out->process[out->n_processes++] = (NvmlProcess){(int)p->pid, bytes};
}

static void read_processes(const Nvml *n, void *card, NvmlGpu *out) {
    int (*const calls[])(void *, unsigned *, Process *) = {n->compute, n->graphics};
    for (int c = 0; c < COUNT_OF(calls); c++) {
        Process list[NVML_PROCESSES];
        unsigned count = NVML_PROCESSES;
        if (!calls[c] || calls[c](card, &count, list) != OK) continue;
        for (unsigned i = 0; i < count && i < NVML_PROCESSES; i++) add_process(out, &list[i]);
    }
}

void nvml_read(const Nvml *n, int gpu, unsigned also, NvmlGpu *out) {
    CHECK(gpu >= 0 && gpu < n->n);
    void *card = n->card[gpu];
    Memory m;
    Utilisation u;
    *out = (NvmlGpu){.used_bytes = -1, .total_bytes = -1, .gpu_percent = -1, .memory_percent = -1};
    read_identity(n, card, out);
    if (n->memory && n->memory(card, &m) == OK) {
        out->used_bytes = (int64_t)m.used;
        out->total_bytes = (int64_t)m.total;
    }
    if (n->utilisation && n->utilisation(card, &u) == OK) {
        out->gpu_percent = (int)u.gpu;
        out->memory_percent = (int)u.memory;
    }
    out->celsius = kind_of(n->temperature, card, SENSOR_GPU);
    out->watts = milliwatts(one(n->power, card));
    out->limit_watts = milliwatts(one(n->power_limit, card));
    out->sm_mhz = kind_of(n->clock, card, CLOCK_SM);
    out->memory_mhz = kind_of(n->clock, card, CLOCK_MEMORY);
    bool traffic = also & NVML_READ_PCIE;
    out->rx_bytes_per_s = traffic ? kilobytes(kind_of(n->pcie, card, PCIE_RX)) : -1;
    out->tx_bytes_per_s = traffic ? kilobytes(kind_of(n->pcie, card, PCIE_TX)) : -1;
    if (also & NVML_READ_PROCESSES) read_processes(n, card, out);
}

bool nvml_slices(const Nvml *n, int gpu, NvmlSlices *out) {
    unsigned now = 0, later = 0, count = 0;
    *out = (NvmlSlices){0};
    if (!n->mig_mode || n->mig_mode(n->card[gpu], &now, &later) != OK) return false;
    out->on = now;
    out->changes = now != later;
    if (!now || !n->mig_count || !n->mig_at || n->mig_count(n->card[gpu], &count) != OK) return true;
    for (unsigned i = 0; i < count && out->n < NVML_SLICES; i++) {
        void *slice;
        Memory m = {0};
        char *name = out->name[out->n];
        if (n->mig_at(n->card[gpu], i, &slice) != OK) continue;
        if (!n->name || n->name(slice, name, sizeof out->name[0]) != OK)
            snprintf(name, sizeof out->name[0], "slice");
        if (n->memory && n->memory(slice, &m) == OK) out->bytes[out->n] = (int64_t)m.total;
        out->n++;
    }
    return true;
}

void nvml_process_name(const Nvml *n, int pid, char *to, int size) {
    char text[256] = "";
    process_name(to, size, pid);
    if (to[0] || !n->process_name || n->process_name((unsigned)pid, text, sizeof text) != OK) return;
    text[sizeof text - 1] = 0;
    const char *slash = strrchr(text, '/');
    snprintf(to, (size_t)size, "%s", slash ? slash + 1 : text);
}
