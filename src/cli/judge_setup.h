/* judge_setup.h - --save-best: what the best checkpoint is chosen by, where that is not the loss. */
#ifndef CLI_JUDGE_SETUP_H
#define CLI_JUDGE_SETUP_H

#include "cli/gen_setup.h"
#include "parse/judge.h"

typedef struct JudgeSetup {
    GraphJudge judge; /* n 0: there is none */
    StopIds stop;     /* its */
} JudgeSetup;

/* Reads the judge that --save-best names and makes its task the job's; without one nothing happens. Before the job
 * is planned, and again where the held-out set was opened again. It stays where it is;
 * graph_judge_close(&j->judge). */
bool judge_setup(JudgeSetup *j, JobSetup *s, Err *e);

#endif
