/* search.h - from a budget to the fastest plan that fits, without changing the mathematics.
 *
 * Words
 *   activation level   how much less backward finds kept: nothing less, norms, some whole blocks, all blocks, all
 *                      blocks with their inputs in pinned memory
 *   state rung         how much state has left the device: moments of 1..L layers, then gradients, then weights
 *                      (a frozen model has only weights to send)
 *   disk rung          how much of that lies on disk, because the host's memory does not hold it; where there is but one
 *                      memory (the CPU), all of it
 *   try                one combination, planned exactly: its bytes and its time */
#ifndef TRAIN_SEARCH_H
#define TRAIN_SEARCH_H

#include "train/job.h"

/* What the search may decide; the rest stays as asked. */
typedef struct SearchFreedom {
    bool recompute, offload, head_chunk;
    bool head_room;   /* a larger head chunk than usual where memory is left; on a GPU its gradient is then rounded
                         elsewhere */
    bool disk;        /* what does not fit the host's memory may be kept on disk (with offload) */
    bool ffn_chunks;  /* long rows: the feed-forward in pieces, where blocks are recomputed */
    bool attention;   /* by snug's own kernels, which need no scratch, instead of a library's */
    bool micro_batch; /* the global batch stays */
    bool update_in_backward; /* where accumulation is 1 */
} SearchFreedom;

typedef struct SearchLimits {
    int64_t device_bytes; /* what the process may take there */
    int64_t host_bytes;   /* pinned and ordinary memory beside a device; 0: no limit known */
    int64_t disk_bytes;   /* of --offload-dir; 0: no limit known */
} SearchLimits;

typedef struct Try {
    int64_t micro_batch, accum, head_chunk, ffn_chunks;
    bool own_attention;       /* where a library's was asked for or left open */
    int blocks, level;        /* layers recomputed whole, and the level of the others (RecomputeLevel) */
    bool twice;               /* those whole ones at RECOMPUTE_TWICE */
    int64_t away[AWAY_KINDS], on_disk[AWAY_KINDS];
    bool update_in_backward;
    int64_t device_bytes, host_bytes, disk_bytes;
    double update_seconds;
    bool fits;
    bool placed;              /* device_bytes are those of the placed arena, not the bound just below them */
} Try;

enum { SEARCH_TRIES = 256 };

typedef struct Search {
    Try tried[SEARCH_TRIES]; /* in order; the first: as asked, with nothing switched on */
    int n;
    int best, next_best;     /* -1: none fits */
    double ms;
} Search;

/* Plans that were made, for several searches over one job: under other limits, or on machines that differ in rates and
 * size alone, for which the bytes are the same. Begin with {.machine, .n_machines}; search_memo_free at the end. */
typedef struct SearchMemo {
    const Machine *machine; /* keeps */
    int n_machines;
    Try *kept;       /* owns */
    double *seconds; /* owns: of kept plan i on machine k at [i * n_machines + k] */
    int64_t n, cap, cap_seconds;
} SearchMemo;
void search_memo_free(SearchMemo *memo);

/* Fills `found` and, when something fits, changes *spec into the fastest that does. */
bool job_search(Search *found, JobSpec *spec, const Machine *m, const HostBytes *host, SearchFreedom free,
                SearchLimits limits);
/* The same on machine `which` of the memo. */
bool job_search_memo(Search *found, JobSpec *spec, SearchMemo *memo, int which, const HostBytes *host, SearchFreedom free,
                     SearchLimits limits);

/* The smallest plan the search can reach: one row at a time, everything recomputed, everything away. */
void search_tightest(JobSpec *spec, const Machine *m, SearchFreedom free);

void search_apply(JobSpec *spec, const Try *t);
/* A spec as flags: the recompute of its first and of its last layers, what is away, and the batch. */
void job_plan_flags(Str *out, const JobSpec *spec);
/* The flags that say the same: "--micro-batch 2 --accum 8 --recompute block --offload moments". */
void search_flags(Str *out, const Try *t, const JobSpec *spec);

/* ---- what may be taken when nothing fits as asked (allow.c) ---- */

/* In order of damage: what comes first is taken first. */
typedef enum Allow {
    ALLOW_8BIT = 1, /* moments in 8 bit */
    ALLOW_INT8 = 2, /* frozen weights in int8, then the head too */
    ALLOW_NF4 = 4,  /* frozen weights in NF4 */
    ALLOW_RANK = 8, /* half the rank, down to 8; the adapters' scale stays */
    ALLOW_SEQ = 16, /* half the length, down to 128 */
    ALLOW_ALL = 31
} Allow;

/* Takes what is allowed, one after the other, until something fits; *spec is then the fastest that does,
 * with what was taken. When nothing fits, *spec stays as it was. */
bool job_search_allowed(Search *found, JobSpec *spec, const Machine *m, const HostBytes *host, SearchFreedom free,
                        SearchLimits limits, unsigned allow);
/* The first changes along the order with which the smallest plan fits, in *spec; false: none. */
bool search_least_taken(JobSpec *spec, const Machine *m, const HostBytes *host, SearchFreedom free, SearchLimits limits,
                        unsigned allow);
/* One change further along the order; false: nothing is left. */
bool search_take(JobSpec *spec, unsigned allow);
/* "--moments 8bit --quantize nf4 --seq 512": in what `now` differs from `asked`. */
void search_taken_flags(Str *out, const JobSpec *now, const JobSpec *asked);

/* ---- what each technique gives (savings.c) ---- */

typedef struct Saving {
    char name[96];
    int64_t device_bytes, host_bytes; /* less on the device; more in the host's memory */
    double seconds;                   /* more for each update */
    bool maths;
} Saving;
enum { JOB_SAVINGS = 16 };

/* The job as it would be with nothing switched on; rows: of one micro-batch then. */
void job_plain_spec(JobSpec *plain, const JobSpec *spec, int64_t rows);
/* For every technique that is on in j and off in plain: the job planned without it alone. Gives their number. */
int job_savings(Saving *out, const Job *j, const JobSpec *plain, const HostBytes *host);

#endif
