/* search.h - from a budget to the fastest plan that fits, without changing the mathematics.
 *
 * Words
 *   activation level   how much less backward finds kept: nothing less, norms, some whole blocks, all blocks, all
 *                      blocks with their inputs in pinned memory
 *   state rung         how much state has left the device: moments of 1..L layers, then gradients, then weights
 *                      (a frozen model has only weights to send)
 *   try                one combination, planned exactly: its bytes and its time */
#ifndef TRAIN_SEARCH_H
#define TRAIN_SEARCH_H

#include "train/job.h"

/* What the search may decide; the rest stays as asked. */
typedef struct SearchFreedom {
    bool recompute, offload, head_chunk;
    bool micro_batch; /* the global batch stays */
} SearchFreedom;

typedef struct SearchLimits {
    int64_t device_bytes; /* what the process may take there */
    int64_t host_bytes;   /* pinned and ordinary memory beside a device; 0: no limit known */
} SearchLimits;

typedef struct Try {
    int64_t micro_batch, accum, head_chunk;
    int blocks, level;        /* layers recomputed whole, and the level of the others (RecomputeLevel) */
    int64_t away[AWAY_KINDS];
    int64_t device_bytes, host_bytes;
    double update_seconds;
    bool fits;
} Try;

enum { SEARCH_TRIES = 256 };

typedef struct Search {
    Try tried[SEARCH_TRIES]; /* in order; the first: as asked, with nothing switched on */
    int n;
    int best, next_best;     /* -1: none fits */
    double ms;
} Search;

/* Fills `found` and, when something fits, changes *spec into the fastest that does. */
bool job_search(Search *found, JobSpec *spec, const Machine *m, const HostBytes *host, SearchFreedom free, SearchLimits limits);

void search_apply(JobSpec *spec, const Try *t);
/* The flags that say the same: "--micro-batch 2 --accum 8 --recompute block --offload moments". */
void search_flags(Str *out, const Try *t, const JobSpec *spec);

#endif
