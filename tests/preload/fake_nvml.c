/* fake_nvml.c - stands for the driver's NVML where there is no GPU: two GPUs with fixed readings, the second with
 * a name that would do harm in a terminal, a table or a page.
 *
 * FAKE_NVML_FAIL: the driver does not answer. FAKE_NVML_PID_FILE: a file with the number of the process that holds
 * 3 GiB of the first GPU; otherwise that is process 1. <that file>.looks grows by a byte when it was told. Built with
 * BARE it has only the calls that NVML cannot be without. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Memory {
    unsigned long long total, free, used;
} Memory;
typedef struct Utilisation {
    unsigned gpu, memory;
} Utilisation;
typedef struct Pci {
    char legacy_bus_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} Pci;
typedef struct Process {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
} Process;

#define GIB (1ull << 30)
static int card[2];

int nvmlInit_v2(void) {
    return getenv("FAKE_NVML_FAIL") ? 9 : 0;
}
int nvmlShutdown(void) {
    return 0;
}
int nvmlDeviceGetCount_v2(unsigned *n) {
    return *n = 2, 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **device) {
    return i < 2 ? (*device = &card[i], 0) : 2;
}

#ifndef BARE
static int number(void *device) {
    return device == (void *)&card[1];
}

const char *nvmlErrorString(int status) {
    return status == 9 ? "Driver Not Loaded" : "?";
}
int nvmlSystemGetDriverVersion(char *to, unsigned size) {
    return snprintf(to, size, "555.42.02") < 0;
}

int nvmlDeviceGetName(void *device, char *to, unsigned size) {
    return snprintf(to, size, "%s", number(device) ? "Evil\033[2J\r\"GPU\", </script><b>" : "Fake GPU") < 0;
}

int nvmlDeviceGetPciInfo_v3(void *device, Pci *pci) {
    memset(pci, 0, sizeof *pci);
    snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02X:00.0", number(device) ? 0x2B : 0x1B);
    return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, Memory *m) {
    unsigned long long used = number(device) ? GIB : 20 * GIB;
    *m = (Memory){24 * GIB, 24 * GIB - used, used};
    return 0;
}

int nvmlDeviceGetUtilizationRates(void *device, Utilisation *u) {
    *u = number(device) ? (Utilisation){0, 0} : (Utilisation){97, 41};
    return 0;
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *c) {
    return *c = number(device) ? 35 : 66, sensor;
}
int nvmlDeviceGetPowerUsage(void *device, unsigned *mw) {
    return *mw = number(device) ? 25000 : 312500, 0;
}
int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *mw) {
    return *mw = 450000, number(device) * 3;
}
int nvmlDeviceGetClockInfo(void *device, int kind, unsigned *mhz) {
    return *mhz = kind == 1 ? 1980 : 10501, number(device) * 3;
}
int nvmlDeviceGetPcieThroughput(void *device, int counter, unsigned *kb) {
    return *kb = counter == 1 ? 2048 : 1024, number(device) * 3;
}

static void note_look(const char *path) {
    char looks[1000];
    snprintf(looks, sizeof looks, "%s.looks", path);
    FILE *f = fopen(looks, "a");
    if (f) fputc('.', f), fclose(f);
}

static unsigned holder(void) {
    const char *path = getenv("FAKE_NVML_PID_FILE");
    FILE *f = path ? fopen(path, "r") : NULL;
    unsigned pid = path ? 0 : 1;
    if (f && fscanf(f, "%u", &pid) != 1) pid = 0;
    if (f) fclose(f);
    if (path && pid) note_look(path);
    return pid;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *n, Process *list) {
    *n = number(device) ? 0 : 2;
    if (*n) list[0] = (Process){holder(), 3 * GIB, 0, 0};
    if (*n) list[1] = (Process){4194303u, ~0ull, 0, 0}; /* of another container, and its bytes are not told */
    return 0;
}
#endif
