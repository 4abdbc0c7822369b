/* run.h - a planned job on a device with data: load, steps, evaluation, checkpoints, what was measured. */
#ifndef TRAIN_RUN_H
#define TRAIN_RUN_H

#include <signal.h>

#include "data/batch.h"
#include "data/dataset.h"
#include "data/feed.h"
#include "exec/exec.h"
#include "obs/growth.h"
#include "obs/metrics.h"
#include "obs/progress.h"
#include "store/lock.h"
#include "store/trainer_state.h"
#include "train/job.h"
#include "train/schedule.h"

typedef struct RunOptions {
    const char *model_folder;  /* weights; NULL: random */
    const char *adapter_folder; /* NULL: none */
    const char *out;           /* run folder; NULL: nothing is written (evaluation) */
    const char *base_name;     /* for adapter_config.json */
    const char *config_yaml;   /* text, saved as config.yaml */
    const char *plan_json;     /* text, saved as plan.json */
    const char *resume;        /* NULL: no; "newest"; checkpoint-N; a folder */
    const char *const *settings; /* name, value, ...: what changes the mathematics, checked on resume */
    int n_settings;            /* pairs */
    Schedule schedule;
    double clip, epochs;
    int64_t total_steps, global_batch;
    int64_t log_steps, eval_steps, eval_batches, save_steps, save_total_limit;
    bool save, save_best, dry_run; /* save false: neither checkpoints nor the result are written */
    int data_workers;          /* threads that fill batches ahead; 0: the loop fills them */
    bool ahead;                /* the next micro-steps are queued before a step's numbers are read */
    bool warm;                 /* every program is played before the first step: see warm.c */
    double loss_scale;         /* where it starts; 0: the loss is not scaled */
    int64_t loss_scale_window; /* good updates until it doubles */
    bool profile;              /* after the last step: where the time of one more goes, step by step */
    int64_t growth_alarm_bytes;
    int64_t trim_every;        /* steps; 0: never. See trim.c */
    double cleanup_delay_seconds;
    const volatile sig_atomic_t *stop; /* a signal's number once one came; NULL: never */
} RunOptions;

typedef struct RunResult {
    int64_t steps, skipped_steps;
    double first_loss;          /* of the first update here */
    double loss;                /* mean over the scored tokens of the last updates, back to the log's row before the last */
    double tokens_per_s;
    double eval_loss;           /* NaN: not evaluated */
    int64_t planned_bytes, measured_bytes;
    int64_t process_planned_bytes, process_measured_bytes;
    int64_t allocations_after_first_step;
    uint64_t checksum;          /* of what was trained */
    int stopped_by;             /* signal; 0: ran to its end */
    char result[1100];          /* folder of the model or adapter; "" when none was written */
} RunResult;

typedef struct DataPlace { /* the next row to be read, within its epoch */
    int64_t epoch, row;
} DataPlace;

typedef struct Update { /* one update on its way */
    int64_t step;       /* counted from 0 */
    DataPlace at;       /* where its rows begin */
    int64_t tokens, scored;
    double lr, data_seconds;
    LossScale scaling;  /* as it stands before this update */
    double loss, norm;  /* once read */
    bool skipped;       /* once read: its gradients overflowed, nothing was written */
} Update;

typedef struct Run {
    Job *job;                   /* keeps */
    Backend *backend;           /* keeps */
    Dataset *data, *held_out;   /* keep; held_out may be NULL */
    RunOptions o;
    Exec x;
    Feed *feed;                 /* the batches of the steps; NULL: an evaluation */
    Batch batch;                /* for all that is not a step */
    RowList rows;               /* the same */
    Arena arena;                /* batches; sealed before the first step */
    TrainerState state;
    RunLock lock;
    Metrics metrics;
    bool metrics_open;
    Progress progress;
    Growth growth;
    int64_t step;               /* updates done */
    int64_t process_peak_bytes;
    int64_t measured_bytes;     /* of the device, by the ledger's lines so far */
    double step_began;          /* when the step before was done with */
    int64_t requests;           /* for memory, up to then */
    bool best_now;              /* this step's evaluation was the best so far */
} Run;

/* Opens the executor and loads weights; for training also the run folder, its log and the checkpoint to resume. */
bool run_open(Run *r, Job *job, Backend *b, Dataset *data, Dataset *held_out, const RunOptions *o, Err *e);
void run_close(Run *r);

bool run_train(Run *r, RunResult *out, Err *e);
/* Mean loss over the scored tokens of a set. */
bool run_evaluate(Run *r, Dataset *d, double *loss, int64_t *tokens, Err *e);

/* Host memory of the batches; d: what is trained on, NULL for an evaluation. */
int64_t run_batch_bytes(const JobSpec *s, int64_t global_batch, const Dataset *d, int data_workers);
int64_t run_steps_per_epoch(const Dataset *d, int64_t global_batch);

/* save.c */
bool run_save_checkpoint(Run *r, Err *e);
bool run_save_result(Run *r, RunResult *out, Err *e);
bool run_resume(Run *r, Err *e);

/* warm.c: plays every program until the device keeps it, changing no state; fills the ledger's measured column. */
bool run_warm(Run *r, Err *e);
void run_measure_line(Run *r, const char *line, int64_t less_bytes); /* what was taken since the line before, less this */

/* loss_scale.c: what follows from an update whose gradients were finite or not. window 0: the loss is not scaled. */
LossScale loss_scale_after(LossScale s, int64_t window, bool finite);

/* step.c: queueing never waits; reading waits for that update alone. */
void step_queue_micros(Run *r, Update *u, const Update *before); /* before: still on its way; NULL: none is */
void step_queue_update(Run *r, const Update *u);
bool step_read(Run *r, Update *u, Err *e); /* its numbers; advances the run; explains what is not finite */
void step_load_micro(Run *r, int64_t micro); /* inputs and dials of one micro-batch of the next update */
void step_put_batch(Run *r, const Batch *batch);
void step_put_float(Run *r, Tid t, double value);

/* trim.c: after an update whose numbers are read: idle memory is given back, and taken again. */
bool run_trim(Run *r, Err *e);

int64_t run_process_bytes(const Run *r); /* what --budget is about: the device's memory */
void run_measure(Run *r); /* samples the process */

#endif
