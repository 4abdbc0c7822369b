/* jobs.h - where running jobs announce themselves to the monitor. */
#ifndef CLI_JOBS_H
#define CLI_JOBS_H

enum { JOBS_PATH = 512 };

/* One folder a user, the same in every session of theirs: /dev/shm/snug-UID (/tmp where that is not there), or
 * $SNUG_JOBS. */
void jobs_folder(char to[JOBS_PATH]);

#endif
