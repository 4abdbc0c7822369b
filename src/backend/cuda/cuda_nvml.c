/* cuda_nvml.c - what the driver's management library tells about a card: its version, who holds memory, slices.
 *
 * The library is opened for each question and closed again; where it is missing or answers nothing (containers
 * often hide other processes) the answer says so. Declared here as its documentation does: the header is no part
 * of the toolkit everybody has. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "backend/cuda/cuda_int.h"
#include "base/file.h"

typedef struct NvmlMemory {
    unsigned long long total, free, used;
} NvmlMemory;

typedef struct NvmlProcess { /* version 2 of the structure, as nvmlDeviceGetComputeRunningProcesses_v3 fills it */
    unsigned pid;
    unsigned long long used; /* all ones: not told */
    unsigned gpu_instance, compute_instance;
} NvmlProcess;

typedef struct Nvml {
    void *library, *card;
    int (*init)(void), (*shutdown)(void);
    int (*by_bus)(const char *, void **);
    int (*memory)(void *, NvmlMemory *);
    /* may be missing: */
    int (*driver)(char *, unsigned);
    int (*processes)(void *, unsigned *, NvmlProcess *);
    int (*process_name)(unsigned, char *, unsigned);
    int (*mig_mode)(void *, unsigned *, unsigned *);
    int (*mig_count)(void *, unsigned *);
    int (*mig_at)(void *, unsigned, void **);
    int (*name)(void *, char *, unsigned);
} Nvml;

static bool nvml_open(Nvml *n, const char *bus_id) {
    *n = (Nvml){.library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)};
    if (!n->library) return false;
    const struct {
        const char *name;
        void **to;
    } entry[] = {
        {"nvmlInit_v2", (void **)&n->init},
        {"nvmlShutdown", (void **)&n->shutdown},
        {"nvmlDeviceGetHandleByPciBusId_v2", (void **)&n->by_bus},
        {"nvmlDeviceGetMemoryInfo", (void **)&n->memory},
        {"nvmlSystemGetDriverVersion", (void **)&n->driver},
        {"nvmlDeviceGetComputeRunningProcesses_v3", (void **)&n->processes},
        {"nvmlSystemGetProcessName", (void **)&n->process_name},
        {"nvmlDeviceGetMigMode", (void **)&n->mig_mode},
        {"nvmlDeviceGetMaxMigDeviceCount", (void **)&n->mig_count},
        {"nvmlDeviceGetMigDeviceHandleByIndex", (void **)&n->mig_at},
        {"nvmlDeviceGetName", (void **)&n->name},
    };
    for (int i = 0; i < COUNT_OF(entry); i++) *entry[i].to = dlsym(n->library, entry[i].name);
    if (n->init && n->shutdown && n->by_bus && n->memory && n->init() == 0) {
        if (n->by_bus(bus_id, &n->card) == 0) return true;
        n->shutdown();
    }
    dlclose(n->library);
    return false;
}

static void nvml_close(Nvml *n) {
    n->shutdown();
    dlclose(n->library);
}

int64_t cuda_nvml_used_bytes(const char *bus_id) {
    Nvml n;
    NvmlMemory m;
    if (!nvml_open(&n, bus_id)) return -1;
    int64_t used = n.memory(n.card, &m) == 0 ? (int64_t)m.used : -1;
    nvml_close(&n);
    return used;
}

void cuda_nvml_driver(char *text, int size, const char *bus_id) {
    Nvml n;
    char version[80] = "";
    int cuda = 0;
    if (nvml_open(&n, bus_id)) {
        if (n.driver && n.driver(version, sizeof version)) version[0] = 0;
        nvml_close(&n);
    }
    cudaDriverGetVersion(&cuda);
    snprintf(text, (size_t)size, "%.20s%sCUDA %d.%d", version, version[0] ? ", " : "", cuda / 1000,
             cuda % 1000 / 10);
}

/* The last part of a process's path; its number may mean nothing in this container. */
static void name_of(const Nvml *n, char *name, int size, unsigned pid) {
    char path[64], text[256] = "";
    Str comm = {0};
    snprintf(path, sizeof path, "/proc/%u/comm", pid);
    if (file_read(path, &comm, KIB, NULL))
        snprintf(text, sizeof text, "%.*s", (int)strcspn(str_text(&comm), "\n"), str_text(&comm));
    else if (n->process_name && n->process_name(pid, text, sizeof text))
        text[0] = 0;
    str_free(&comm);
    const char *slash = strrchr(text, '/');
    snprintf(name, (size_t)size, "%.40s", slash ? slash + 1 : text);
}

static void find_holders(const Nvml *n, DeviceFacts *f) {
    enum { MOST = 64 };
    NvmlProcess list[MOST];
    unsigned count = MOST;
    if (!n->processes || n->processes(n->card, &count, list)) return;
    for (unsigned i = 0; i < count && f->n_holders < DEVICE_HOLDERS; i++) {
        if (list[i].pid == (unsigned)getpid()) continue;
        DeviceHolder *h = &f->holder[f->n_holders++];
        h->pid = list[i].pid;
        h->bytes = list[i].used == ~0ull ? -1 : (int64_t)list[i].used;
        name_of(n, h->name, sizeof h->name, list[i].pid);
    }
}

static void find_slices(const Nvml *n, DeviceFacts *f) {
    unsigned now = 0, later = 0, count = 0;
    if (!n->mig_mode || n->mig_mode(n->card, &now, &later)) return; /* this card cannot be cut */
    snprintf(f->partition, sizeof f->partition, "MIG %s%s", now ? "on" : "off",
             now == later ? "" : " (changes when the card is reset)");
    if (!now || !n->mig_count || !n->mig_at || n->mig_count(n->card, &count)) return;
    for (unsigned i = 0; i < count && f->n_slices < DEVICE_SLICES; i++) {
        void *slice;
        NvmlMemory m = {0};
        char name[96] = "slice";
        if (n->mig_at(n->card, i, &slice)) continue;
        if (n->name) n->name(slice, name, sizeof name);
        n->memory(slice, &m);
        snprintf(f->slice[f->n_slices++], sizeof f->slice[0], "%.36s, %s", name, units_bytes((int64_t)m.total).s);
    }
}

void cuda_nvml_facts(DeviceFacts *f, const char *bus_id) {
    Nvml n;
    if (!nvml_open(&n, bus_id)) return;
    find_holders(&n, f);
    find_slices(&n, f);
    nvml_close(&n);
}
