/* exec.h - executes a planned program on a backend. It decides nothing: offsets and waits come with the program.
 *
 * Opening resolves every address once, and steps are not read again afterwards (frozen). So playing allocates nothing,
 * and a device can capture it as a graph. */
#ifndef EXEC_EXEC_H
#define EXEC_EXEC_H

#include "backend/backend.h"

typedef enum ExecOrder {
    EXEC_AS_WRITTEN, /* side queues run as early as they are issued */
    EXEC_LATE,       /* side queues are delayed until a wait or the phase's end forces them: shows missing waits */
} ExecOrder;

typedef struct ExecRange { /* of the device pool */
    int64_t at, bytes;
} ExecRange;

typedef struct Exec {
    const Program *p;       /* keeps: must outlive the Exec */
    Backend *b;             /* keeps */
    Args *args;             /* owns; one per step */
    /* owns; per step that begins a run (backend.h): how many steps; a play goes from run to run */
    int *run;
    bool *joined;           /* owns; per step that begins a run: it is of several ops, in one launch */
    char *pool[POOL_COUNT]; /* base addresses; owned by the backend */
    int64_t pool_bytes[POOL_COUNT]; /* as taken */
    /* exec_open failed: the pool that could not be had, and its size; 0 bytes: something else */
    Pool refused;
    int64_t refused_bytes;
    ExecRange *idle;        /* owns; what exec_trim gives back; NULL: nothing was asked for */
    int n_idle;
    ExecOrder order;
    /* Once the process is asked to stop (base/stop.h), a play ends after the running step, and what the phase wrote is
     * not valid. An asynchronous device plays to the end. */
    bool leaves;
    int held[QUEUE_COUNT];  /* EXEC_LATE: the first step of that queue not yet run */
} Exec;

/* Takes one block per pool (arena_bytes) and resolves addresses. */
bool exec_open(Exec *x, const Program *p, Backend *b, const int64_t *arena_bytes, Err *e);
void exec_close(Exec *x);

void exec_play(Exec *x, int phase);       /* one play; queues are joined at its end */
bool exec_sync(Exec *x, Err *e);          /* waits for the device; surfaces its first error */

void *exec_address(const Exec *x, Tid t); /* of a placed tensor */
void exec_put(Exec *x, Tid t, const void *host, int64_t at_byte, int64_t bytes);
void exec_get(Exec *x, Tid t, void *host, int64_t at_byte, int64_t bytes);
/* A whole tensor, a piece at a time: fn reads it (fetch) or writes it (store). Where the host can touch it, it is one
 * piece. A device that fails calls fn no more; the error surfaces at sync. */
void exec_fetch(Exec *x, Tid t, StageFn *fn, void *context);
void exec_store(Exec *x, Tid t, StageFn *fn, void *context);
void exec_note(Exec *x, int slot, Tid t); /* queues the readback of a small tensor, for exec_read_note */
bool exec_read_note(Exec *x, int slot, Tid t, void *host, Err *e);

/* Plays a phase step by step and gives the first step that writes a number that is not finite (-1: none). For
 * finding where a bad loss began: slow, and leaves the phase's outputs as a play does. */
int exec_find_not_finite(Exec *x, int phase, Err *e);

/* Plays a phase step by step, each so many times, waiting after each, and adds the seconds of one play of step i to
 * seconds[i]; those of a run of one op to its first step. */
bool exec_time(Exec *x, int phase, int times, double *seconds, Err *e);

/* profile.c: some phases timed op by op; a table for people. load puts their inputs there, before every play. times: as
 * above; where a step takes as long as asking for it, one play alone tells little. */
typedef struct ProfileLoad {
    void (*load)(void *user);
    void *user;
} ProfileLoad;
bool exec_profile(Exec *x, Str *out, const int *phase, int n_phases, int times, ProfileLoad inputs, const char *title,
                  Err *e);

/* trim.c: pages of the device pool that hold nothing alive where a phase begins. find_idle once; then, with nothing
 * queued, trim gives them back to the system (gives the bytes) and restore takes them again, before anything else. */
void exec_find_idle(Exec *x, int phase);
int64_t exec_trim(Exec *x);
static inline bool exec_restore(Exec *x, Err *e) { return x->b->restore(x->b, e); }
bool exec_carried_into(const Program *p, const Tensor *t, int step); /* it is alive where that step begins */

void exec_poison(Exec *x, int phase); /* fills what is not alive at the phase's begin with NaN bytes (tests) */

#endif
