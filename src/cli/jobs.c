/* jobs.c - the folder of status files: in memory, where replacing one costs microseconds (a disk takes
 * milliseconds). It is not below XDG_RUNTIME_DIR, which is taken away when a person logs out, though what they
 * started with nohup runs on. */
#include "cli/jobs.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"

void jobs_folder(char to[JOBS_PATH]) {
    const char *given = getenv("SNUG_JOBS");
    if (given && *given)
        snprintf(to, JOBS_PATH, "%s", given);
    else
        snprintf(to, JOBS_PATH, "%s/snug-%u", file_is_dir("/dev/shm") ? "/dev/shm" : "/tmp", (unsigned)geteuid());
}
