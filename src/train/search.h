/* search.h - the planner's search: from a budget to the fastest plan that fits, without changing the mathematics; and,
 * where it may, with what --allow names. The search itself is fit/fit.h's; this file has the axes of a job:
 *
 *     micro-batch   all rows at once (then also with the optimizer in backward), half of them, ... one
 *     squeeze       with the fewest rows at once, or as many as asked: chunked feed-forward; attention's inputs
 *                   recomputed twice; attention without a library's scratch
 *     head          likewise: in its usual chunks, or in the smallest
 *     task          settings of the task's own (Task.savings): for GRPO, weights loaded by phase and fewer answers at a
 *                   time
 *     recompute     nothing, norms, some whole blocks (each number of them), all blocks, all with their inputs
 *                   offloaded to pinned memory
 *     ladder        a reference's weights are offloaded layer by layer, then moments, gradients, weights of what is
 *                   trained (a frozen model has only weights), then an evaluator's, which every token reads
 *     disk          the offloaded part that the host's memory cannot hold; where there is but one memory (the CPU), all
 *                   of what is offloaded */
#ifndef TRAIN_SEARCH_H
#define TRAIN_SEARCH_H

#include "fit/fit.h"
#include "train/technique.h"

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

enum { SEARCH_MICRO = 64, SEARCH_STOPS = 8, SEARCH_SQUEEZE = 4, SEARCH_SEGMENTS = OFFLOAD_INPUTS + JOB_SIDES };

typedef struct SearchSegment { /* of the ladder: what can leave the device layer by layer */
    int kind;                  /* an OffloadKind of the trained model, or OFFLOAD_KINDS + a side */
    int64_t layers, layer_bytes, outer_bytes; /* of a layer at most; of embedding and head */
} SearchSegment;

typedef struct SearchMicro {
    int64_t samples; /* job_micro_samples */
    bool early; /* updated inside backward */
} SearchMicro;

typedef struct SearchSpace { /* what a point means */
    JobSpec asked;
    SearchFreedom free;
    MachineKind kind;
    SearchMicro micro[SEARCH_MICRO];
    int64_t stops[SEARCH_STOPS];
    SearchSegment segment[SEARCH_SEGMENTS]; /* of the ladder, in order */
    int n_segments;
    FitSpace fit;
} SearchSpace;

typedef struct Search {
    SearchSpace space;
    Fit fit;             /* owns */
    FitCost taken;       /* of the spec that was found, with the room that its head was given */
    int64_t asked_bytes; /* of the device, with nothing switched on; INT64_MAX: it cannot be planned */
    double ms;
} Search;

/* Plans that were made, for several searches over one job: under other limits, or on machines that differ in rates and
 * size alone, for which the bytes are the same. Begin with {.machine, .n_machines}; search_memo_free at the end. */
typedef struct SearchMemo {
    const Machine *machine; /* keeps */
    int n_machines;
    FitTrial *kept;  /* owns */
    double *seconds; /* owns: of kept plan i on machine k at [i * n_machines + k]; below 0: it cannot be planned */
    int64_t n, cap, cap_seconds;
} SearchMemo;
void search_memo_free(SearchMemo *memo);

/* Fills `found` and, when something fits, changes *spec into the fastest that does. Gives: search_free. */
bool job_search(Search *found, JobSpec *spec, const Machine *m, const HostBytes *host, SearchFreedom free,
                FitLimits limits);
/* The same on machine `which` of the memo. */
bool job_search_memo(Search *found, JobSpec *spec, SearchMemo *memo, int which, const HostBytes *host,
                     SearchFreedom free, FitLimits limits);
void search_free(Search *f);
JobSpec search_spec(const Search *f, int64_t trial); /* the job as that trial had it */

/* The smallest plan the search can reach: one row at a time, everything recomputed, everything offloaded. */
void search_tightest(JobSpec *spec, const Machine *m, SearchFreedom free);

/* ---- what may be taken when nothing fits as asked ---- */

/* Takes what is allowed, one after the other, until something fits; *spec is then the fastest that does,
 * with what was taken. When nothing fits, *spec stays as it was. Gives: search_free. */
bool job_search_allowed(Search *found, JobSpec *spec, const Machine *m, const HostBytes *host, SearchFreedom free,
                        FitLimits limits, unsigned allow);
/* The first changes along the order with which the smallest plan fits, in *spec; false: none. */
bool search_least_taken(JobSpec *spec, const Machine *m, const HostBytes *host, SearchFreedom free, FitLimits limits,
                        unsigned allow);

/* ---- what each technique gives (savings.c) ---- */

FitCost job_cost(const Ring *r); /* bytes of the whole process here and in the host, and the time of an update */
/* Of a job that is planned for this alone; false: it cannot be. */
bool job_cost_of(FitCost *c, const JobSpec *spec, const Machine *m, const HostBytes *host);

typedef struct Saving {
    char name[96];
    int64_t device_bytes, host_bytes; /* less on the device; more in the host's memory */
    double seconds;                   /* more for each update */
    bool maths;
} Saving;
enum { JOB_SAVINGS = 24 };

/* For every technique that is on in j and off in plain: the job planned without it alone. Gives their number. */
int job_savings(Saving *out, const Job *j, const JobSpec *plain, const HostBytes *host);

/* A change that would make a job smaller: flags to paste, and what they do. */
typedef struct Change {
    char flags[240];
    int64_t saves_bytes;
    double slowdown;    /* 1.31: 31 % more time a token; 0: not known */
    bool maths;         /* changes the mathematics: offered, never taken */
} Change;
enum { JOB_CHANGES = 12 };

/* The cheapest changes (by slowdown, then by bytes) that fit budget_bytes (0: any that saves). Gives their number. */
int job_changes(const Job *j, const HostBytes *host, int64_t budget_bytes, Change *out);

#endif
