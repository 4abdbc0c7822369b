/* unlearn_run.h - a finished training run opened again from its folder: options, model, data, step log, and a plan to
 * replay it. */
#ifndef CLI_UNLEARN_RUN_H
#define CLI_UNLEARN_RUN_H

#include "cli/setup.h"
#include "unlearn/baseline.h"
#include "unlearn/replay.h"

typedef struct UnlearnRun {
    const Options *o; /* of this command; keeps */
    Options given;    /* of the run: its config.yaml */
    JobSetup base;    /* by those */
    bool replaying;
    char folder[1024];                /* of the run */
    char result[1100];                /* its model or adapter */
    char micro_text[24], tuned[1100]; /* what given's values point to */
    History history;
    Replay replay;
    double open_seconds, apply_seconds; /* until all of this stood there; adding to the weights */
} UnlearnRun;

/* Of host memory, what a method's vectors take; r: planned once, for its counts. *why_host: why its correction cannot
 * be on the ring (unlearn/correction.h); NULL: it can, and where it is there are no vectors. */
typedef bool UnlearnVectors(void *user, const UnlearnRun *r, int64_t *bytes, const char **why_host, Err *e);

/* Reads and plans, takes memory, loads the start, and checks that log, data and options belong together. vectors NULL:
 * the method holds none. Nothing is written. unlearn_run_close in either case. */
bool unlearn_run_open(UnlearnRun *r, const Options *o, UnlearnVectors *vectors, void *user, Err *e);
void unlearn_run_close(UnlearnRun *r);

/* The same for a method that tunes the run's result: its model and data, this command's batch and rates, no log.
 * rows: of an update; apart: of these, those that share no micro-batch with the others. */
bool unlearn_run_open_result(UnlearnRun *r, const Options *o, const LossSpec *loss, int64_t rows, int64_t apart,
                             Err *e);

/* theta at the end of the run, from its result; refused where the log ended with other weights. */
bool unlearn_run_load_result(UnlearnRun *r, Err *e);

typedef struct UnlearnText { /* a file beside the weights */
    const char *name;
    const Str *text;
} UnlearnText;

/* Says what was spent, when the weights are written and the result is not yet in place. */
typedef void UnlearnMeasure(void *user, Str *out);

void unlearn_run_result_path(const UnlearnRun *r, char *path, size_t size); /* model or adapter, in --out */
bool unlearn_run_check_out(UnlearnRun *r, Err *e);
/* Writes what stands in the slots to that folder, with texts and EFFICIENCY.json beside the weights. It appears as a
 * whole. */
bool unlearn_run_write(UnlearnRun *r, const UnlearnText *texts, int n, UnlearnMeasure *measure, void *user, Err *e);

#endif
