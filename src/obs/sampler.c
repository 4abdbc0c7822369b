/* sampler.c - the thread that samples a GPU's sensors, and how its samples and the kernel's sums become means. */
#include "obs/sampler.h"

#include <math.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/process.h"
#include "base/threads.h"
#include "obs/sensors.h"

static double cpu_seconds(void) {
    struct rusage used;
    if (getrusage(RUSAGE_SELF, &used)) return 0;
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

/* ---- the thread ---- */

static void add(SamplerSums *to, const SamplerSums *more) {
    to->looks += more->looks;
    to->busy += more->busy;
    to->watts += more->watts;
    to->used_bytes = MAX2(to->used_bytes, more->used_bytes);
}

static void look(Sampler *s) {
    NvmlGpu g;
    nvml_read(s->nvml, s->gpu, 0, &g); /* may take long: outside the lock */
    SamplerSums one = {.looks = 1, .used_bytes = g.used_bytes, .busy = 0.01 * g.gpu_percent, .watts = g.watts};
    pthread_mutex_lock(&s->lock);
    add(&s->recent, &one);
    pthread_mutex_unlock(&s->lock);
}

static bool wait_period(Sampler *s) { /* false: the run is over */
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t ns = until.tv_nsec + (int64_t)(1e9 * s->period);
    until.tv_sec += (time_t)(ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    pthread_mutex_lock(&s->lock);
    while (!s->stop && pthread_cond_timedwait(&s->wake, &s->lock, &until) == 0) continue;
    bool on = !s->stop;
    pthread_mutex_unlock(&s->lock);
    return on;
}

static void *sample(void *sampler) {
    Sampler *s = sampler;
    do look(s);
    while (wait_period(s));
    return NULL;
}

/* ---- opening ---- */

static void start_thread(Sampler *s, const SamplerOf *of) {
    pthread_condattr_t clock;
    if (!nvml_open(&s->nvml, of->library, NULL)) return;
    s->gpu = nvml_find(s->nvml, of->bus_id);
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&s->wake, &clock);
    pthread_condattr_destroy(&clock);
    s->runs = s->gpu >= 0 && thread_start(&s->thread, SAMPLER_STACK_BYTES, sample, s, "sampler") == 0;
}

void sampler_open(Sampler *s, const SamplerOf *of) {
    *s = (Sampler){.cores = MAX2(of->cores, 1), .period = of->period > 0 ? of->period : 1};
    s->began = s->taken = sensors_seconds();
    s->began_cpu = s->taken_cpu = cpu_seconds();
    if (of->bus_id && *of->bus_id) start_thread(s, of);
}

void sampler_close(Sampler *s) {
    if (!s->nvml) return;
    if (s->runs) {
        pthread_mutex_lock(&s->lock);
        s->stop = true;
        pthread_cond_signal(&s->wake);
        pthread_mutex_unlock(&s->lock);
        pthread_join(s->thread, NULL);
    }
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->wake);
    nvml_close(s->nvml);
    s->nvml = NULL;
    s->runs = false;
}

/* ---- means ---- */

static double mean(double sum, int64_t n) {
    return n && sum >= 0 ? sum / (double)n : (double)NAN;
}

static SampleMeans samples_of(const Sampler *s, const SamplerSums *sum, double seconds, double cpu) {
    return (SampleMeans){.looks = sum->looks,
                         .gpu_busy = mean(sum->busy, sum->looks),
                         .watts = mean(sum->watts, sum->looks),
                         .gpu_used_bytes = sum->looks ? sum->used_bytes : -1,
                         .cpu_share = seconds > 0 ? cpu / seconds / s->cores : (double)NAN,
                         .resident_bytes = -1};
}

SampleMeans sampler_take(Sampler *s) {
    SamplerSums recent = {0};
    ProcessFacts self;
    double now = sensors_seconds(), cpu = cpu_seconds();
    if (s->runs) {
        pthread_mutex_lock(&s->lock);
        recent = s->recent;
        s->recent = (SamplerSums){0};
        pthread_mutex_unlock(&s->lock);
    }
    add(&s->all, &recent);
    SampleMeans out = samples_of(s, &recent, now - s->taken, cpu - s->taken_cpu);
    if (process_facts(&self, (int)getpid())) out.resident_bytes = self.resident_bytes;
    s->taken = now;
    s->taken_cpu = cpu;
    return out;
}

SampleMeans sampler_all(const Sampler *s) {
    return samples_of(s, &s->all, s->taken - s->began, s->taken_cpu - s->began_cpu);
}
