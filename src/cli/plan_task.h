/* plan_task.h - what `snug plan --task` can plan beside a training job. */
#ifndef CLI_PLAN_TASK_H
#define CLI_PLAN_TASK_H

#include "cli/options.h"

bool plan_generate(const Options *o, Err *e);

#endif
