/* logged_run.h - a run that was trained with a step log, opened in the test's own process. */
#ifndef TESTS_UNLEARN_LOGGED_RUN_H
#define TESTS_UNLEARN_LOGGED_RUN_H

#include "cli/unlearn_run.h"

typedef struct LoggedRun {
    Options o;
    UnlearnRun run;
    Walk walk;
} LoggedRun;

/* Of the run folder of that name in test_tmp(), for products of that kind. logged_run_close in either case. */
bool logged_run_open(LoggedRun *l, const char *name, const char *hessian);
/* The same with the correction on the ring. */
bool logged_run_open_on_ring(LoggedRun *l, const char *name);
void logged_run_close(LoggedRun *l);
/* A model folder's weights as one vector, in the order of the run's parameters; gives. The run's own weights are lost
 * by it. */
float *logged_run_vector(LoggedRun *l, const char *folder);

#endif
