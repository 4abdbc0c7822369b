/* run.h - a planned job on a device with data: load, steps, evaluation, checkpoints, what was measured. */
#ifndef TRAIN_RUN_H
#define TRAIN_RUN_H

#include "base/file.h"
#include "data/batch.h"
#include "data/dataset.h"
#include "data/feed.h"
#include "exec/exec.h"
#include "obs/growth.h"
#include "obs/metrics.h"
#include "obs/progress.h"
#include "obs/sampler.h"
#include "obs/status.h"
#include "store/adapter.h"
#include "store/history.h"
#include "store/trainer_state.h"
#include "train/job.h"
#include "train/log_writer.h"
#include "train/run_folder.h"
#include "train/schedule.h"

typedef struct Run Run;
typedef struct Update Update;

/* Where the micro-batches of updates come from when that is no data set: a policy's own answers, say. */
typedef struct RunSource {
    void *user;
    int64_t rows; /* of an epoch; an update takes RunOptions.global_batch of them */
    /* Fills and plays every micro-step of u; sets its tokens. False with no code in e: the process was asked to
     * leave. */
    bool (*queue)(void *user, Run *r, Update *u, Err *e);
    void (*load)(void *user, Run *r); /* the inputs of one micro-step without effect: for the warm-up */
    bool (*logged)(void *user, Run *r, const Update *u, Err *e); /* u was read; NULL: nothing follows */
    /* What a checkpoint holds beside weights and optimizer; NULL: nothing. */
    bool (*save)(void *user, const char *folder, Err *e);
    bool (*restore)(void *user, Run *r, const char *folder, Err *e);
} RunSource;

typedef enum SpikeAction { SPIKE_IGNORE, SPIKE_WARN, SPIKE_SKIP, SPIKE_STOP } SpikeAction;

typedef struct SpikeRule {
    SpikeAction on;
    double factor;  /* deviations above the mean */
    int64_t window; /* updates */
} SpikeRule;

typedef struct SpikeLimits { /* above them an update is a spike; infinity: none is */
    double loss, norm;
} SpikeLimits;

/* A score of the weights other than the loss on held-out rows; higher is better. It plays phases of the job's ring,
 * which its task has recorded. */
typedef struct RunJudge {
    void *user;
    const char *name; /* of the score, in logs and metrics */
    bool (*open)(void *user, Run *r, Err *e); /* the ring is open, the weights are there, nothing was measured yet */
    bool (*score)(void *user, Run *r, double *value, Err *e); /* between two updates; false: also when asked to leave */
} RunJudge;

typedef struct RunOptions {
    const RunJudge *judge;     /* NULL: the best checkpoint has the lowest loss */
    const RunSource *source;   /* NULL: a data set */
    const char *model_folder;  /* weights; NULL: random */
    const char *side_folder;   /* tokenizer and templates that go beside the result; NULL: none */
    const char *adapter_folder; /* NULL: none */
    RunFolder *folder;          /* keeps; looked at. NULL: nothing is written (evaluation) */
    const char *out;            /* its path */
    JobStatus *status;          /* keeps; updated at logged steps. NULL: none */
    HistoryLog *history;        /* keeps; the step log, looked at. NULL: none */
    bool log_updates;           /* with u of every update in files beside it */
    Format update_format;
    const char *spare_dir;      /* for what cannot be written to out; NULL: the run waits until it can */
    const char *base_name;     /* for adapter_config.json */
    const char *config_yaml;   /* text, saved as config.yaml */
    const char *plan_json;     /* text, saved as plan.json */
    const json_t *settings;    /* {name: text}, keeps: what changes the mathematics, checked on resume; NULL: none */
    Schedule schedule;
    SpikeRule spike;
    bool skip_nonfinite;       /* an update that is not finite writes nothing, and the run goes on */
    int64_t skip_limit;        /* updates in a row that may be skipped */
    double clip, epochs;
    int64_t total_steps, global_batch;
    int64_t log_steps, eval_steps, eval_batches, save_steps, save_total_limit;
    double save_seconds;           /* a checkpoint is also due so long after the last one; 0: never */
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
    const char *nvml;          /* library that is asked about the GPU; NULL: the driver's */
} RunOptions;

typedef struct AttentionReport { /* of a layer, or over all; NaN: the model has no such part */
    double recall;      /* of the attention that as many of the best keys hold, the share that the selected hold */
    double k_mean, k_min, k_max; /* keys a token attends to */
    double coverage;    /* of those it sees */
    double first_token; /* attention on a document's first token, were all attended to */
    double gate_mean, gate_min, gate_max; /* how far gates are open */
    double gate_shut;   /* the share of those below a tenth */
    double index_loss;  /* of the last update */
} AttentionReport;

typedef struct RunResult {
    int64_t steps, skipped_steps, spikes; /* spikes: of the updates here */
    double first_loss;          /* of the first update here */
    /* mean over the scored tokens of the last updates, back to the log's row before the last */
    double loss;
    double noise_scale;         /* tokens; NaN: not measured, or not known */
    double tokens_per_s;
    double wait_share;          /* of the steps' time that passed waiting for data; NaN: no step was played */
    SampleMeans samples;        /* over all steps */
    double eval_loss;           /* NaN: not evaluated */
    double eval_score;          /* the judge's; NaN: there is none */
    AttentionReport attention;  /* on the batch behind the last update that was logged */
    int64_t planned_bytes, measured_bytes;
    int64_t process_planned_bytes, process_measured_bytes;
    int64_t allocations_after_first_step;
    uint64_t checksum;          /* of what was trained */
    int stopped_by;             /* signal; 0: ran to its end */
    bool finished;              /* it was finished before: nothing was done */
    FilePath result;            /* folder of the model or adapter; "" when none was written */
} RunResult;

typedef struct DataPlace { /* the next row to be read, within its epoch */
    int64_t epoch, row;
} DataPlace;

struct Update { /* one update in flight */
    int64_t step;       /* counted from 0 */
    DataPlace at;       /* where its rows begin */
    int64_t tokens, scored;
    double lr, data_seconds;
    LossScale scaling;  /* as it stands before this update */
    SpikeLimits limits; /* the same */
    double loss, norm;  /* once read */
    int64_t first_scored;  /* scored tokens of its first micro-batch, where its noise is measured; 0: it is not */
    double first_norm;     /* once read: of that micro-batch's share of the gradient */
    bool skipped;       /* once read: its gradients overflowed or it is a spike, nothing was written */
    bool spike;         /* once read */
    bool save_due;      /* a checkpoint is due behind it by the clock */
};

/* gradient_noise.c: the gradient noise scale, from gradients over few and over many tokens. */
typedef struct GradientNoise { /* exponential means; begins as zeros */
    double signal;  /* of |G|^2, G the gradient over all tokens there could be */
    double noise;   /* of the trace of one token's covariance */
    double weight;  /* of what they hold */
} GradientNoise;

struct Run {
    Job *job;                   /* keeps */
    Ring *ring;                 /* keeps: the job's */
    Dataset *data, *held_out;   /* keep; held_out may be NULL */
    RunOptions o;
    Feed *feed;                 /* the batches of the steps; NULL: an evaluation */
    Batch batch;                /* for all that is not a step */
    RowList rows;               /* the same */
    Arena arena;                /* batches; sealed before the first step */
    TrainerState state;
    Metrics metrics;
    bool metrics_open;
    Progress progress;
    Sampler sampler;
    Growth growth;
    GradientNoise noise;        /* of the updates here */
    StoredUpdate stored;        /* the last update, for the step log; image NULL: none is stored */
    LogWriter log;
    double update_error;        /* of stored updates so far: the largest */
    int64_t step;               /* updates done */
    double step_began;          /* when the step before was done with */
    int64_t requests;           /* for memory, up to then */
    bool best_now;              /* this step's evaluation was the best so far */
    bool spared;                /* something stands in the spare folder instead */
    int64_t saved_step;         /* of the newest checkpoint in out; -1: none of this run */
    double saved_at;            /* when it was written, or when the steps began */
};

/* Opens the executor and loads weights; for training also the checkpoint to resume. Writes nothing. */
bool run_open(Run *r, Job *job, Backend *b, Dataset *data, Dataset *held_out, const RunOptions *o, Err *e);
void run_close(Run *r); /* all zero, or closed before: nothing happens; what it counted stays */
bool run_start_weights(Run *r, Err *e); /* those that a run begins with, as run_open put them there */

/* Begins the run folder and plays the steps. A run that is finished already, and a dry run, write nothing. */
bool run_train(Run *r, RunResult *out, Err *e);
/* Mean loss over the scored tokens of a set. */
bool run_evaluate(Run *r, Dataset *d, double *loss, int64_t *tokens, Err *e);
/* What the evaluation has found (JobSpec.report): of every layer, and over all. */
void run_read_report(const Run *r, AttentionReport *layer, AttentionReport *all);

/* Host memory of the batches; d: what is trained on, NULL for an evaluation. */
int64_t run_batch_bytes(const JobSpec *s, int64_t global_batch, const Dataset *d, int data_workers);
int64_t run_steps_per_epoch(const Dataset *d, int64_t global_batch);

/* What was trained, as others read it: an HF model folder, or a PEFT adapter. */
bool run_write_trained(Run *r, const char *folder, Err *e);
/* What was read back from the device is sound. A device that failed stays so: waiting would not help. */
bool run_sync_device(Run *r, Err *e);
bool run_write_metrics(Run *r, const char *kind, const Metric *fields, int n, Err *e);

/* ---- before anything is written ---- */

/* resume.c: it is this run's checkpoint; d may be NULL. */
bool run_agree(const RunFolder *f, const RunOptions *o, const Dataset *d, Err *e);
void run_say_length(const RunFolder *f, const RunOptions *o); /* what another length does to the learning rate */
void run_say_model(const RunFolder *f, const RunOptions *o);  /* adapters that were trained on another model */

/* room.c: what is written, in bytes, and whether it has room. */
typedef struct SavePlan {
    int64_t result_bytes;     /* model or adapter with its side files, to the byte */
    int64_t checkpoint_bytes; /* the same, the optimizer's state to the byte, and the log at its longest */
    int64_t optimizer_bytes, state_bytes; /* of these: the last two */
    int64_t largest_bytes;                /* one file */
    int64_t files;                        /* of a checkpoint */
    int64_t kept;       /* checkpoints that stand at the end; 0: none is written; -1: as many as steps give */
    int64_t disk_bytes; /* that the run may take beyond what stands in its folder now; -1: not known */
} SavePlan;
bool run_plan_saving(SavePlan *s, const Job *j, const RunOptions *o, Err *e);
/* ERR_BUDGET with the missing bytes. */
bool run_check_room(const SavePlan *s, const Job *j, const RunOptions *o, const char *offload_dir, Err *e);
void run_saving_text(Str *out, const SavePlan *s, const RunOptions *o);
json_t *run_saving_json(const SavePlan *s, const RunOptions *o); /* gives */

/* step_log.c: what the step log takes on disk, and its lines. */
typedef struct StepLogPlan {
    int64_t line_bytes;  /* of an update, at most */
    int64_t state_bytes; /* of a checkpoint: what is trained and the optimizer's state */
    int64_t states;      /* checkpoints to come */
    int64_t update_bytes; /* of a stored update; 0: none is */
    int64_t disk_bytes;  /* all of it */
} StepLogPlan;
bool run_plan_step_log(StepLogPlan *p, const Job *j, const RunOptions *o, Err *e);
/* ERR_BUDGET with the missing bytes; saving: what the run's own folder takes of the same disk. */
bool run_check_step_log_room(const StepLogPlan *p, const SavePlan *saving, const RunOptions *o, Err *e);
void run_step_log_text(Str *out, const StepLogPlan *p, const Job *j, const RunOptions *o);

/* ---- one update (step.c), for those that queue it themselves: nothing here waits ---- */

/* With the update inside backward its dials are put before the pass, and queueing it only notes its numbers. */
void step_put_dials(Run *r, const Update *u);
void step_queue_update(Run *r, const Update *u);
void step_put_batch(Run *r, const Batch *batch, int phase); /* what lives in that phase; -1: all of it */
void step_put_float(Run *r, Tid t, double value);
void step_put_divisor(Run *r, const Update *u, int64_t scored);
/* Inputs, beta and clock of a micro-step. */
void step_put_micro(Run *r, const Update *u, const Batch *batch, int64_t micro);
int64_t step_list_update(Run *r, DataPlace at); /* the rows of an update into r->rows; gives their scored tokens */
uint64_t step_key(const Run *r, int64_t step);  /* of what that update draws */

#endif
