/* run_names.h - names in a run's config.yaml as they are called from here.
 *
 * A run saves the names of its model and data as they were given, relative to the folder it was trained in, and its
 * own name (--out) with them. So where RUN/config.yaml says "out: runs/a", RUN/../.. is that folder, whatever the
 * current one is. A name that is not there is left as it is: relative to the current folder, or no file at all. */
#ifndef CLI_RUN_NAMES_H
#define CLI_RUN_NAMES_H

#include "cli/options.h"

/* given: options read from the config.yaml of that run folder. */
void run_names_follow(Options *given, const char *run);
/* --resume with a config.yaml that lies in a run's folder goes on there, also where the file names another: the run was
 * moved or copied, or is called from another folder. Nothing is done for other commands. */
bool run_names_resume(Options *o, Err *e);
/* Refuses, with what to do about it, a run whose data is not found. */
bool run_names_check_data(const Options *given, const char *run, Err *e);

#endif
