/* reason_run.h - the pipeline's asks answered by a generation engine, replies kept on disk as they come. */
#ifndef CLI_REASON_RUN_H
#define CLI_REASON_RUN_H

#include "cli/gen_setup.h"
#include "obs/progress.h"
#include "reason/journal.h"
#include "reason/pipeline.h"

typedef struct ReasonRun {
    const Options *o;
    GenSetup setup;
    Problems problems;
    Pipeline pipeline;
    Journal journal;
    Ask ask;          /* the latest */
    TokenIds prompt;  /* scratch: of the latest ask */
    Str reply;        /* scratch */
    Progress progress;
    int64_t tokens, tokens_shown; /* answered in this process; those in the progress line */
    double seconds;               /* all asks */
    int64_t planning_bytes;       /* host memory that finding the context took at most */
    bool answered;                /* the engine ran */
} ReasonRun;

/* The context the longest prompt of any role needs, with its answer, into the engine's spec. */
bool reason_plan_context(ReasonRun *r, const Problems *all, Err *e);
/* Starts the engine if something is left to ask, and asks until every problem is done. Interrupted: says so. */
bool reason_answer_all(ReasonRun *r, const json_t *job, Err *e);
void reason_run_free(ReasonRun *r); /* after gen_setup_begin, whatever it gave */

/* For the closing words; nothing when the engine did not run. */
void reason_speed(Str *out, const ReasonRun *r);
void reason_memory(Str *out, const ReasonRun *r);
void reason_summary(json_t *to, const ReasonRun *r);
bool reason_settle(const ReasonRun *r, Err *e); /* peak_settle */

#endif
