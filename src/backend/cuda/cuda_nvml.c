/* cuda_nvml.c - what the driver's management library (NVML) says about a card: its driver version, which processes hold
 * memory, MIG slices.
 *
 * The library is opened for each question and closed again; where it is missing or answers nothing (containers
 * often hide other processes) the answer says so. */
#include <stdio.h>
#include <unistd.h>

#include "backend/cuda/cuda_int.h"
#include "base/nvml.h"

/* The card's number, -1 where nothing can be asked; gives n (nvml_close) otherwise. */
static int open_card(Nvml **n, const char *bus_id) {
    if (!nvml_open(n, NULL, NULL)) return -1;
    int gpu = nvml_find(*n, bus_id);
    if (gpu < 0) nvml_close(*n);
    return gpu;
}

int64_t cuda_nvml_used_bytes(const char *bus_id) {
    Nvml *n;
    NvmlGpu g;
    int gpu = open_card(&n, bus_id);
    if (gpu < 0) return -1;
    nvml_read(n, gpu, 0, &g);
    nvml_close(n);
    return g.used_bytes;
}

void cuda_nvml_driver(char *text, int size, const char *bus_id) {
    Nvml *n;
    char version[24] = "";
    int cuda = 0;
    if (open_card(&n, bus_id) >= 0) {
        snprintf(version, sizeof version, "%.20s", nvml_driver(n));
        nvml_close(n);
    }
    cudaDriverGetVersion(&cuda);
    snprintf(text, (size_t)size, "%s%sCUDA %d.%d", version, version[0] ? ", " : "", cuda / 1000, cuda % 1000 / 10);
}

static void find_holders(const Nvml *n, int gpu, DeviceFacts *f) {
    NvmlGpu g;
    nvml_read(n, gpu, NVML_READ_PROCESSES, &g);
    for (int i = 0; i < g.n_processes && f->n_holders < DEVICE_HOLDERS; i++) {
        if (g.process[i].pid == (int)getpid()) continue;
        DeviceHolder *h = &f->holder[f->n_holders++];
        h->pid = g.process[i].pid;
        h->bytes = g.process[i].bytes;
        nvml_process_name(n, g.process[i].pid, h->name, sizeof h->name);
    }
}

static void find_slices(const Nvml *n, int gpu, DeviceFacts *f) {
    NvmlSlices s;
    if (!nvml_slices(n, gpu, &s)) return;
    snprintf(f->partition, sizeof f->partition, "MIG %s%s", s.on ? "on" : "off",
             s.changes ? " (changes when the card is reset)" : "");
    for (int i = 0; i < s.n && f->n_slices < DEVICE_SLICES; i++)
        snprintf(f->slice[f->n_slices++], sizeof f->slice[0], "%.36s, %s", s.name[i], units_bytes(s.bytes[i]).s);
}

void cuda_nvml_facts(DeviceFacts *f, const char *bus_id) {
    Nvml *n;
    int gpu = open_card(&n, bus_id);
    if (gpu < 0) return;
    find_holders(n, gpu, f);
    find_slices(n, gpu, f);
    nvml_close(n);
}
