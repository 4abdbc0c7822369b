/* ring.h - one planned program on one device. Other rooms record phases into it (training, generation, a reference, an
 * evaluator), one plan places them all, and whoever runs a phase borrows the ring.
 *
 *     ring_init(&r, &machine)
 *     job_record(...), gen_record(...)     tensors and phases into r.p; what running them takes of the host:
 *                                          ring_add_host; how often a round (an update, a token of an answer) plays a
 *                                          phase: ring_add_plays
 *     ring_plan(&r, &choices)              passes, placement, ledger: every byte is known, nothing is taken
 *     ring_open(&r, backend, e)            takes the memory
 *     ...                                  weights are loaded (weights/weights.h)
 *     ring_settle(&r, e)                   allocates the disk space
 *     ring_warm(&r, play, user, e)         every phase is played twice: from then on nothing more is taken
 *     ring_close(&r)
 *
 * The same object is the estimate and the run. */
#ifndef RING_RING_H
#define RING_RING_H

#include "exec/exec.h"
#include "plan/plan.h"

enum { RING_PLAYS = 32, RING_HOST_LINES = 10 };

typedef struct RingPlays { /* of one round */
    int phase;
    double times;
} RingPlays;

typedef struct RingHostLine { /* ordinary memory of those who run it */
    const char *name, *note;  /* literals */
    int64_t bytes;
    bool before; /* taken and given back before the pools are: only what is more than they will take counts */
} RingHostLine;

typedef struct Ring {
    Machine machine;
    Program p; /* owns */
    RingPlays plays[RING_PLAYS];
    int n_plays;
    RingHostLine host[RING_HOST_LINES];
    int n_host;
    Placement placement;
    Ledger ledger;
    double plan_ms;

    /* once open */
    Backend *b; /* keeps */
    Exec x;
    int64_t seen_bytes; /* device memory when it was looked at last */
    int64_t peak_bytes; /* of the process, as --budget counts it */
} Ring;

/* ---- recording and planning (ring.c) ---- */

void ring_init(Ring *r, const Machine *m);
void ring_close(Ring *r); /* after ring_init, whatever followed */

void ring_add_plays(Ring *r, int phase, double times);
void ring_add_host(Ring *r, const char *name, const char *note, int64_t bytes);
/* The same, given back before the memory of the ring is taken; with what of the other lines is not there yet either. */
void ring_add_host_before(Ring *r, const char *name, const char *note, int64_t bytes, int64_t later_bytes);
void ring_plan(Ring *r, const PlanChoices *c);

int64_t ring_process_bytes(const Ring *r); /* what --budget is compared with */
/* pinned and ordinary memory beside a device; 0 on the CPU, where it is the above */
int64_t ring_host_bytes(const Ring *r);
/* taken in --offload-dir; the rest of the disk pool lies in the models' own files */
int64_t ring_disk_bytes(const Ring *r);
/* cost model: one round, on the ring's machine or another of its kind */
double ring_round_seconds(const Ring *r, const Machine *m);
double ring_round_flops(const Ring *r);    /* what must be computed at least */

/* ---- playing (ring_open.c) ---- */

/* Where memory cannot be had, r->x says which (Exec.refused). */
bool ring_open(Ring *r, Backend *b, Err *e);
bool ring_settle(Ring *r, Err *e); /* a full disk is refused now, not in the middle of a run */

/* Has `play` play every phase once, without changing state, as often as the device needs to keep them. */
bool ring_warm(Ring *r, void (*play)(void *user), void *user, Err *e);

int64_t ring_in_use(const Ring *r); /* what --budget is about: the device's memory, on the CPU the process's */
void ring_measure(Ring *r);         /* samples the peak */
int64_t ring_most_bytes(const Ring *r); /* the most so far, as ring_process_bytes counts: for others to see */

#endif
