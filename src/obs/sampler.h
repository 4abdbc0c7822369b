/* sampler.h - utilisation of the machine during a run: means over the stretches between two takes, and over all of it.
 *
 *     Sampler s;
 *     sampler_open(&s, &(SamplerOf){.bus_id = "0000:1b:00.0"});   // or none: this process alone
 *     ... sampler_take(&s);                                       // at steps that are logged
 *     sampler_close(&s);
 *
 * A GPU's sensors are asked once a second by a thread of its own, so that a driver that is slow to answer holds no
 * step up; taking only reads what it has added up. The figures of the process are the kernel's own sums and need
 * no thread. Nothing here can fail a run: what cannot be read stays NaN or -1. Taking allocates nothing. */
#ifndef OBS_SAMPLER_H
#define OBS_SAMPLER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/nvml.h"

enum { SAMPLER_STACK_BYTES = 256 << 10 };

typedef struct SamplerOf {
    const char *bus_id;  /* of the GPU; NULL or "": none */
    const char *library; /* NVML's; NULL: the driver's */
    int cores;           /* that the run may use */
    double period;       /* seconds between two looks at a GPU; 0: one */
} SamplerOf;

typedef struct SampleMeans {
    int64_t looks;   /* at the GPU */
    double gpu_busy; /* share of the time in which a kernel ran, 0..1 */
    double watts;
    int64_t gpu_used_bytes; /* the most that was taken on the card, by anybody */
    double cpu_share;       /* of the cores that the run may use: 0..1 */
    int64_t resident_bytes; /* of the process, at the end of the stretch */
} SampleMeans;

typedef struct SamplerSums {
    int64_t looks, used_bytes;
    double busy, watts;
} SamplerSums;

typedef struct Sampler {
    Nvml *nvml; /* owns; NULL: none */
    int gpu, cores;
    double period;
    bool runs, stop; /* the thread */
    pthread_t thread;
    pthread_mutex_t lock; /* of stop and recent */
    pthread_cond_t wake;
    SamplerSums recent, all;
    double began, began_cpu, taken, taken_cpu; /* seconds: by the clock, of this process's threads */
} Sampler;

void sampler_open(Sampler *s, const SamplerOf *of);
void sampler_close(Sampler *s); /* one that was never opened (all zero) is fine */

SampleMeans sampler_take(Sampler *s);      /* since the last take */
SampleMeans sampler_all(const Sampler *s); /* from the beginning to the last take */

#endif
