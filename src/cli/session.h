/* session.h - a training command from its options to its last line: one way for all that is trained, whatever the
 * updates are made of. */
#ifndef CLI_SESSION_H
#define CLI_SESSION_H

#include "cli/cmd.h"
#include "cli/judge_setup.h"
#include "cli/peak.h"
#include "cli/rules.h"
#include "cli/setup.h"

typedef struct Session Session;

/* What a command has instead of a data set; user: Session.own. */
typedef struct SessionTask {
    bool (*open)(Session *s, Err *e);  /* what is learned from; fills the spec's task */
    bool (*shape)(Session *s, Err *e); /* the spec, before the planner decides */
    void (*count)(Session *s);         /* fills host, by the spec as it stands */
    bool (*start)(Session *s, Err *e); /* the job is planned: fills source */
    int64_t (*updates)(const Session *s, int64_t *per_epoch, const char **of); /* of the run; of: "64 answers" */
    void (*settings)(const Session *s, json_t *to); /* what a resumed run must agree on, beside options */
    void (*say)(const Session *s);                  /* behind the run's ledger, where updates were made */
    void (*result)(const Session *s, json_t *to);   /* into the last line */
    void (*close)(Session *s);
} SessionTask;

struct Session {
    Options found; /* a copy of those given, in which --allow may settle some */
    JobSetup base; /* by it */
    const SessionTask *task; /* NULL: a data set */
    void *own;               /* the task's; owns */
    RunSource source;        /* the task's */
    JudgeSetup best;         /* what the best checkpoint is chosen by */
    Taken taken;
    JobSpec asked; /* before the planner decided; base.spec: after */
    char out[600]; /* when it is not given */
    int64_t budget_bytes;
    int data_workers;
    Str config_yaml, plan_json;
    json_t *settings;
    RunFolder folder;
    SavePlan saving;
    HistoryLog history; /* all zero: no step log */
    StepLogPlan step_log;
    JobStatus status; /* told to the monitor while the run is open */
    RunResult result;
    double predicted_seconds; /* of an update */
};

bool session_run(const Options *o, const SessionTask *task, Err *e);

/* advice.c: what a run's own measurements say about the next one: a line or two, with the flag to paste. When the run's
 * memory is given back: another plan is made here. Adds nothing where there is nothing to say. */
void advice_text(Str *out, const Session *s);

#endif
