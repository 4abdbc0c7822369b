/* report.h - what of a rollout and its update is told: a line of the log and a record of metrics.jsonl. Only run.c
 * uses it. */
#ifndef GRPO_REPORT_H
#define GRPO_REPORT_H

#include "grpo/run.h"

void report_completions(GrpoRun *g); /* their lengths into g->facts */
bool report_update(GrpoRun *g, Run *r, Err *e);

#endif
