/* snapshot.h - one sample of everything the monitor shows: the host, every GPU with its processes, snug's own jobs.
 *
 *     Monitor m;
 *     monitor_open(&m, nvml_library, jobs_folder);   // works without a GPU; no_gpu says why there is none
 *     monitor_take(&m, &snapshot, MONITOR_ALL);
 *     monitor_close(&m);
 *
 * Unknown figures are -1 (NaN in a job's). Texts are as the system and the jobs gave them: whoever shows them
 * escapes them. */
#ifndef MONITOR_SNAPSHOT_H
#define MONITOR_SNAPSHOT_H

#include "base/nvml.h"
#include "obs/status.h"

enum { MONITOR_JOBS = 32, MONITOR_NAME = 64, MONITOR_ALL = NVML_READ_PCIE | NVML_READ_PROCESSES };

typedef struct MonitorHost {
    int64_t total_bytes, available_bytes; /* of the machine, or of this process's control group */
    int64_t swap_total_bytes, swap_free_bytes;
    double load[3];     /* processes that ran or waited to, over 1, 5 and 15 minutes */
    double cpu_percent; /* of all cores since the look before */
    int cores;
} MonitorHost;

typedef struct MonitorGpu {
    NvmlGpu r;
    char process_name[NVML_PROCESSES][MONITOR_NAME]; /* "": not visible from here */
} MonitorGpu;

typedef struct MonitorJob {
    JobStatus s;
    bool alive; /* false: its process is gone, and did not say goodbye */
} MonitorJob;

typedef struct Snapshot {
    double time; /* seconds since 1970 */
    MonitorHost host;
    MonitorGpu gpu[NVML_GPUS];
    int n_gpus;
    MonitorJob job[MONITOR_JOBS];
    int n_jobs;
    const char *no_gpu; /* why there is none; "": there is one. Borrows from the monitor */
    const char *driver; /* its version; "": not told */
} Snapshot;

typedef struct Monitor {
    Nvml *nvml; /* owns; NULL: none */
    char no_gpu[300], jobs_folder[1024];
    int64_t cpu_busy, cpu_all; /* ticks of the look before */
    JobStatus list[MONITOR_JOBS];
} Monitor;

void monitor_open(Monitor *m, const char *nvml_library, const char *jobs_folder); /* library NULL: the driver's */
void monitor_close(Monitor *m);
void monitor_take(Monitor *m, Snapshot *s, unsigned also); /* also: NVML_READ_x */

/* Bytes of the GPUs' memory that these processes hold. */
int64_t monitor_gpu_bytes_of(const Snapshot *s, const int *pids, int n);

#endif
