/* nvml.h - the present figures of every NVIDIA GPU of this machine, by the driver's management library (NVML).
 *
 * The library (NVML) is opened when the program runs, so that everything else works without it. It needs no CUDA
 * and takes no memory of a GPU. An entry point that is missing leaves its reading unknown. */
#ifndef BASE_NVML_H
#define BASE_NVML_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum { NVML_GPUS = 32, NVML_PROCESSES = 64 };

typedef struct NvmlProcess {
    int pid;       /* may mean nothing in this container */
    int64_t bytes; /* of the GPU's memory; -1: not told */
} NvmlProcess;

typedef struct NvmlGpu { /* -1: not told */
    char name[96], bus_id[32];
    int64_t used_bytes, total_bytes;
    int gpu_percent,
        memory_percent; /* share of the last sampling period in which a kernel ran, memory was accessed */
    int celsius;
    double watts, limit_watts;
    int sm_mhz, memory_mhz;
    int64_t rx_bytes_per_s, tx_bytes_per_s; /* over PCIe: to the GPU, from it */
    NvmlProcess process[NVML_PROCESSES];
    int n_processes;
} NvmlGpu;

enum { NVML_SLICES = 8 };
typedef struct NvmlSlices { /* of a GPU that can be cut (MIG) */
    bool on, changes;       /* it is cut; it will not be as it is now once it is reset */
    int n;
    char name[NVML_SLICES][96];
    int64_t bytes[NVML_SLICES]; /* of memory */
} NvmlSlices;

/* What nvml_read asks beside the rest. */
enum {
    NVML_READ_PCIE = 1, /* takes the driver 40 ms */
    NVML_READ_PROCESSES = 2
};

typedef struct Nvml Nvml;

/* library: a file; NULL: the driver's own. Gives: nvml_close. */
bool nvml_open(Nvml **n, const char *library, Err *e);
void nvml_close(Nvml *n); /* NULL is fine */

int nvml_count(const Nvml *n);                    /* at most NVML_GPUS */
const char *nvml_driver(const Nvml *n);           /* its version; "": not told */
int nvml_find(const Nvml *n, const char *bus_id); /* the GPU's number; -1: none has it */
void nvml_read(const Nvml *n, int gpu, unsigned also, NvmlGpu *out);
bool nvml_slices(const Nvml *n, int gpu, NvmlSlices *out); /* false: it cannot be cut */
/* The last part of a process's path, where /proc tells or the driver; "": neither does. */
void nvml_process_name(const Nvml *n, int pid, char *to, int size);

#endif
