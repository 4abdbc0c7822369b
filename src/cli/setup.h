/* setup.h - from options to a job: which model, which precision, which data, which machine. */
#ifndef CLI_SETUP_H
#define CLI_SETUP_H

#include "backend/backend.h"
#include "cli/options.h"
#include "cli/share.h"
#include "data/dataset.h"
#include "data/template.h"
#include "data/tokenizer.h"
#include "exec/exec.h"
#include "store/history.h"
#include "train/run.h"
#include "train/search.h"

/* ---- setup_model.c ---- */

typedef struct ModelFiles {
    ModelConfig config;
    bool has_folder;
    char folder[1024];
} ModelFiles;

typedef struct Words { /* what turns text into ids */
    Tokenizer *tokenizer; /* NULL: none is there, ids rows only */
    Template *chat;
} Words;

typedef struct JobSetup { /* a job and all that it stands on; all zero: nothing of it is open */
    const Options *o;     /* keeps */
    ModelFiles model;
    Words words;
    char words_folder[SHARE_PATH]; /* where they are found, if not as given */
    Dataset *data, *held_out;      /* NULL: none */
    UpdateRows rows;               /* of the updates, where they differ */
    Backend *backend;              /* NULL: a card that is not here */
    Machine machine;
    FitLimits limits;
    HostBytes host;
    JobSpec spec;
    int64_t global_batch;
    Job job;
    Ring ring;
    Run run;
} JobSetup;

/* A folder, a preset, or a hub id in the local cache. */
bool setup_model(ModelFiles *m, const Options *o, Err *e);
bool setup_model_named(ModelFiles *m, const char *flag, const char *name, Err *e);

/* A preset has none: refused with how to get them. */
bool setup_need_weights(const ModelFiles *m, const Options *o, Err *e);

/* How the model is kept and computed: precision, storage, random start, offload, --adapter. One way for training,
 * evaluation and answers. */
bool setup_model_spec(ModelSpec *m, const Options *o, const ModelConfig *c, Err *e);
/* --precision auto on a GPU without bf16: fp16, said so; true: that is so here. */
bool setup_fall_back_model(ModelSpec *m, const Options *o, const Machine *machine);

/* ---- setup.c ---- */

/* Everything of a job but the data. train: a training job; otherwise a forward pass for evaluation. */
bool setup_spec(JobSpec *s, int64_t *global_batch, const Options *o, const ModelConfig *c, bool train, Err *e);
bool setup_fall_back(JobSpec *s, const Options *o, const Machine *m, Err *e); /* with the formats of what is trained */

/* --out may be written: it is not there, empty, or --overwrite was given. */
bool setup_check_out(const Options *o, Err *e);
/* The disk of --out has room for weights of so many bytes: asked before the first is written. */
bool setup_check_room(const Options *o, int64_t bytes, Err *e);

/* Who attends on a GPU; packed: rows may hold several samples. */
bool setup_attention(JobSpec *s, const Options *o, bool packed, Err *e);

/* ---- setup_device.c ---- */

/* The device, with what the machine file knows about it; for --gpu the card of that name and no device (*b NULL). */
bool setup_backend(Backend **b, Machine *m, const Options *o, Err *e);
int setup_threads(const Options *o); /* --threads, or all cores this process may use */

/* Where the machine file is: `given`, or snug/machine.json in the configuration folder; false: nowhere. */
bool setup_machine_path(char *path, size_t size, const char *given);
/* Adds the product algorithms this process had to time to a machine file that is there and knows the device. */
bool setup_keep_choices(Backend *b, const Machine *m, const Options *o, Err *e);

/* ERR_BUDGET when the device has less memory free than is planned: who holds it, and what to do. */
bool setup_check_free(const Ring *r, Backend *b, Err *e);

/* ---- setup_data.c ---- */

bool setup_words_of(Words *w, const char *folder, Err *e); /* of a folder that has a tokenizer */
/* Where tokenizer and templates are, which also go beside what is written: --tokenizer's, or the model's folder;
 * NULL: there are none. */
const char *setup_words_folder(char own[SHARE_PATH], const Options *o, const ModelFiles *m);
bool setup_words(Words *w, const Options *o, const ModelFiles *m, Err *e);
void setup_words_free(Words *w);
/* Memory that a data set may take, reading included; 0: no limit is known. */
int64_t setup_data_room(const Machine *m, FitLimits limits, const Words *w);
int64_t setup_reading_bytes(const Dataset *d, const Dataset *held_out); /* the most at any time; both may be NULL */
DataOptions setup_data_words(const Words *w, const ModelFiles *m); /* what makes ids of rows; the rest is zero */
/* --data or --eval-data */
bool setup_data(Dataset **d, const Options *o, const Words *w, const ModelFiles *m, OptId id, int64_t room_bytes,
                Err *e);

/* of the whole run: --steps or --epochs */
int64_t setup_updates(const Options *o, const Dataset *d, int64_t global_batch);
/* How many rows updates have and who attends: settles accum, rows and attend of the spec. --pack auto on a GPU: the
 * faster of packing the samples of an update and of giving each a row, said in one line. */
bool setup_packing(JobSetup *j, Err *e);

/* ---- setup_history.c ---- */

/* What fixes the bits of a training run, as the header of its step log: {name: text}. Gives; NULL: see e. */
json_t *setup_history_job(const JobSetup *j, Err *e);
/* --step-log: its folder; "auto" is in --out. */
void setup_history_folder(char *to, size_t size, const Options *o);
bool setup_history_updates(Format *f, const Options *o); /* its updates are stored, in that format */
void setup_history_host(JobSetup *j); /* of host memory, what it takes */
/* Looks at it for a run that resumes at that step (0: begins). Without --step-log l stays all zero. */
bool setup_history(HistoryLog *l, const JobSetup *j, int64_t resumed_step, Err *e);

/* ---- setup_budget.c ---- */

/* What may be taken: --budget or what is free now less a margin (said so), and the caps of --max-memory. */
bool setup_limits(FitLimits *l, const Options *o, const Machine *m, Err *e);
bool setup_has_budget(const Options *o);      /* one for the device was given */
int64_t setup_given_budget(const Options *o); /* the lower of --budget and --max-memory device=, if one was */
/* What the process may come to take here, and by which limit: memory that is free, a control group, ulimit. */
int64_t setup_room(Str *why, const Machine *m); /* why may be NULL; INT64_MAX: nobody tells */
/* "ulimit -v is 400.00 MiB ...; it leaves 80.00 MiB": where a limit holds less than is needed. False: none does. */
bool setup_limit_text(Str *out, const Machine *m, int64_t need_bytes);
/* What the options leave to the planner: recompute, offload, micro-batch, head chunk. */
SearchFreedom setup_freedom(const Options *o);
/* Decides that: the fastest that fits; when nothing does, within --allow. Else the spec stays as asked. */
void setup_fit(JobSetup *j);
/* Where --allow changed the mathematics, the options say so from here on, for config.yaml and the checkpoint's
 * record. */
typedef struct Taken {
    char text[4][32]; /* what the options' values point to */
} Taken;
void setup_record_taken(Options *o, Taken *t, const JobSpec *s);
/* ERR_BUDGET with the missing bytes: in --offload-dir; and with the cheapest changes as flags, when the job does not
 * fit, there, on the device or in the host. */
bool setup_check_disk(int64_t need_bytes, FitLimits limits, Err *e);
bool setup_check_budget(const Job *j, const HostBytes *host, FitLimits limits, Err *e);

/* ---- setup_shortage.c ---- */

typedef struct Shortage { /* less was found than was planned */
    Pool pool;
    int64_t planned_bytes; /* all that the process was to take there */
    int64_t refused_bytes; /* the block that could not be had; 0: it was not asked for yet */
    int64_t found_bytes;   /* what the process could take; 0: nobody tells */
} Shortage;

/* What the job finds now, before (x NULL) or after it asked for its pools. */
Shortage setup_shortage(const JobSetup *j, const Exec *x);
/* --on-shortage: the fastest plan of the same mathematics within what was found, in spec and limits, said in one line;
 * asked: what the options gave. False: stop was asked for, or nothing fits; e, which holds the refusal, says so. */
bool setup_replan(JobSetup *j, const JobSpec *asked, Shortage what, Err *e);

/* ---- setup_job.c ---- */

/* From the options to the job, in this order; setup_job_close in any case. */
bool setup_job_model(JobSetup *j, const Options *o, bool train, Err *e); /* model and spec; weights if not trained */
bool setup_job_machine(JobSetup *j, Err *e);                /* the device, a precision that it has, the limits */
bool setup_job_data(JobSetup *j, FitLimits limits, Err *e); /* words, --data, and what is held out of it or given */
void setup_job_count(JobSetup *j);                          /* what those take of the host */
bool setup_job_plan(JobSetup *j, Err *e); /* the spec, planned; refused above the limits or above what is free */
RunOptions setup_job_options(JobSetup *j); /* where weights, adapter and words come from; the rest is the caller's */
void setup_job_close_data(JobSetup *j);    /* and words: others may be opened */
void setup_job_close_device(JobSetup *j);  /* and run and plan: another job may be planned on the same data */
void setup_job_close(JobSetup *j);

#endif
