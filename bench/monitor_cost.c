/* monitor_cost.c - processor time of what a running job and a monitor do for each other, call by call: one JSON object.
 *
 *   look       the monitor's look at host and jobs, one of which runs (a GPU's sensors come on top)
 *   take       what a job reads of the kernel at a step that it logs
 *   announce   the job's own file, written anew
 *   thread     a look of the thread inside a job that has a GPU; without the time in the driver, which NVML stands for
 *
 * usage: monitor_cost FOLDER NVML    (bench/monitor_cost.sh builds and runs it) */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "monitor/snapshot.h"
#include "obs/sampler.h"
#include "obs/status.h"

enum { CALLS = 2000 };

static double cpu_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static double look_us(const char *folder) {
    Monitor *m = MEM_NEW(Monitor, 1);
    Snapshot *s = MEM_NEW(Snapshot, 1);
    monitor_open(m, "/nonexistent", folder);
    monitor_take(m, s, MONITOR_ALL);
    double began = cpu_us();
    for (int i = 0; i < CALLS; i++) monitor_take(m, s, MONITOR_ALL);
    double us = (cpu_us() - began) / CALLS;
    CHECK(s->n_jobs == 1 && s->job[0].alive);
    monitor_close(m);
    mem_free(m);
    mem_free(s);
    return us;
}

static double take_us(void) {
    Sampler s;
    sampler_open(&s, &(SamplerOf){.cores = 1});
    double began = cpu_us();
    for (int i = 0; i < CALLS; i++) sampler_take(&s);
    double us = (cpu_us() - began) / CALLS;
    sampler_close(&s);
    return us;
}

static double announce_us(JobStatus *s) {
    double began = cpu_us();
    for (int i = 0; i < CALLS; i++) status_put(s);
    return (cpu_us() - began) / CALLS;
}

static double thread_us(const char *library) {
    Sampler s;
    SampleMeans m = {0};
    sampler_open(&s, &(SamplerOf){.bus_id = "0000:1b:00.0", .library = library, .cores = 1, .period = 1e-3});
    double began = cpu_us(), spent = 0;
    for (int64_t looks = 0; s.runs && looks < CALLS; looks += m.looks) { /* ours are few beside the thread's */
        nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
        m = sampler_take(&s);
        spent = looks + m.looks > 0 ? (cpu_us() - began) / (double)(looks + m.looks) : 0;
    }
    sampler_close(&s);
    return spent;
}

int main(int argc, char **argv) {
    if (argc < 3) return fprintf(stderr, "usage: monitor_cost FOLDER NVML\n"), 2;
    JobStatus *s = MEM_NEW(JobStatus, 1);
    status_init(s);
    snprintf(s->name, sizeof s->name, "a run");
    snprintf(s->out, sizeof s->out, "/runs/a");
    status_begin(s, argv[1]);
    double look = look_us(argv[1]), announce = announce_us(s);
    status_end(s);
    printf("{\"look_us\": %.1f, \"take_us\": %.1f, \"announce_us\": %.1f, \"thread_look_us\": %.1f}\n", look, take_us(),
           announce, thread_us(argv[2]));
    mem_free(s);
    return 0;
}
