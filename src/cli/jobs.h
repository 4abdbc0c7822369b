/* jobs.h - where running jobs announce themselves to the monitor, and as what. */
#ifndef CLI_JOBS_H
#define CLI_JOBS_H

#include "cli/options.h"
#include "obs/status.h"
#include "ring/ring.h"

enum { JOBS_PATH = 512 };

/* One folder a user, the same in every session of theirs: /dev/shm/snug-UID (/tmp where that is not there), or
 * $SNUG_JOBS. */
void jobs_folder(char to[JOBS_PATH]);

/* From here on the monitor shows the command, in the phase "loading": named after --run-name, --out or --model, with
 * what its ring plans; a part of another command by that one's. unit: of its steps, "" for updates; total: of them,
 * 0: not known. */
void jobs_announce(JobStatus *s, const Options *o, const Ring *r, const char *unit, int64_t total);

#endif
