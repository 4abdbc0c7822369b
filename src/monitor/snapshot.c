/* snapshot.c - where each figure of a snapshot is read. */
#include "monitor/snapshot.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/process.h"
#include "base/threads.h"
#include "obs/sensors.h"

void monitor_open(Monitor *m, const char *nvml_library, const char *jobs_folder) {
    Err e = {0};
    *m = (Monitor){.cpu_all = -1};
    snprintf(m->jobs_folder, sizeof m->jobs_folder, "%s", jobs_folder);
    if (!nvml_open(&m->nvml, nvml_library, &e))
        snprintf(m->no_gpu, sizeof m->no_gpu, "no GPU: %.250s", e.text);
    else if (nvml_count(m->nvml) == 0)
        snprintf(m->no_gpu, sizeof m->no_gpu, "no GPU: the driver is here and lists none");
}

void monitor_close(Monitor *m) {
    nvml_close(m->nvml);
    m->nvml = NULL;
}

/* ---- the host ---- */

/* "cpu  user nice system idle iowait irq softirq steal ..." in ticks since the start. */
static void read_cpu(Monitor *m, MonitorHost *h) {
    char text[PROCESS_TEXT_BYTES];
    int64_t all = 0, idle = 0;
    if (!process_read(text, "/proc/stat") || strncmp(text, "\ncpu ", 5)) return;
    const char *at = text + 5;
    for (int i = 0; i < 8; i++) {
        char *end;
        int64_t ticks = strtoll(at, &end, 10);
        if (end == at) break;
        at = end;
        all += ticks;
        if (i == 3 || i == 4) idle += ticks;
    }
    int64_t busy = all - idle, passed = all - m->cpu_all;
    if (m->cpu_all >= 0 && passed > 0) h->cpu_percent = 100.0 * (double)(busy - m->cpu_busy) / (double)passed;
    m->cpu_busy = busy;
    m->cpu_all = all;
}

static void read_host(Monitor *m, MonitorHost *h) {
    char text[PROCESS_TEXT_BYTES];
    SensorMemory memory = sensors_memory();
    *h = (MonitorHost){.total_bytes = memory.total_bytes,
                       .available_bytes = memory.available_bytes,
                       .swap_total_bytes = -1,
                       .swap_free_bytes = -1,
                       .load = {-1, -1, -1},
                       .cpu_percent = -1,
                       .cores = threads_available()};
    if (process_read(text, "/proc/meminfo")) {
        h->swap_total_bytes = process_kilobytes(text, "\nSwapTotal:");
        h->swap_free_bytes = process_kilobytes(text, "\nSwapFree:");
    }
    if (process_read(text, "/proc/loadavg")) {
        char *at = text;
        for (int i = 0; i < 3; i++) h->load[i] = strtod(at, &at);
    }
    read_cpu(m, h);
}

/* ---- GPUs and jobs ---- */

static void read_gpus(Monitor *m, Snapshot *s, unsigned also) {
    s->n_gpus = m->nvml ? nvml_count(m->nvml) : 0;
    s->driver = m->nvml ? nvml_driver(m->nvml) : "";
    for (int i = 0; i < s->n_gpus; i++) {
        MonitorGpu *g = &s->gpu[i];
        nvml_read(m->nvml, i, also, &g->r);
        for (int p = 0; p < g->r.n_processes; p++)
            nvml_process_name(m->nvml, g->r.process[p].pid, g->process_name[p], MONITOR_NAME);
    }
}

/* What died is told until a run takes its place, and for a day at most. */
static void read_jobs(Monitor *m, Snapshot *s) {
    static const double day = 86400;
    int n = status_list(m->list, MONITOR_JOBS, m->jobs_folder);
    s->n_jobs = 0;
    for (int i = 0; i < n; i++) {
        const JobStatus *j = &m->list[i];
        bool alive = status_is_alive(j);
        if (!alive && s->time - j->updated > day)
            file_remove_tree(j->path, NULL);
        else
            s->job[s->n_jobs++] = (MonitorJob){*j, alive};
    }
}

void monitor_take(Monitor *m, Snapshot *s, unsigned also) {
    s->time = sensors_wall_seconds();
    s->no_gpu = m->no_gpu;
    read_host(m, &s->host);
    read_gpus(m, s, also);
    read_jobs(m, s);
}

int64_t monitor_gpu_bytes_of(const Snapshot *s, const int *pids, int n) {
    int64_t bytes = 0;
    for (int g = 0; g < s->n_gpus; g++)
        for (int p = 0; p < s->gpu[g].r.n_processes; p++)
            for (int i = 0; i < n; i++)
                if (s->gpu[g].r.process[p].pid == pids[i]) bytes += MAX2(s->gpu[g].r.process[p].bytes, 0);
    return bytes;
}
