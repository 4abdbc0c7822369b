/* grpo_setup.h - from options to the ring of a policy: its models, its batches, its loss. */
#ifndef CLI_GRPO_SETUP_H
#define CLI_GRPO_SETUP_H

#include "cli/setup.h"
#include "grpo/batches.h"
#include "grpo/ring.h"

typedef struct GrpoSetup {
    GrpoSpec spec;
    GrpoTask task; /* of the spec; the job keeps it */
    Batches batches;
    ModelFiles evaluator, reference; /* where their weights are */
} GrpoSetup;

/* Fills g and what of the job's spec belongs to it: seq, task, batches. g stays where it is while the job is used. */
bool grpo_setup(GrpoSetup *g, JobSpec *s, int64_t *global_batch, const Options *o, const ModelFiles *policy, Err *e);

#endif
