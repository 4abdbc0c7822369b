/* lock.h - one run per run folder: the second is told which process holds it. */
#ifndef STORE_LOCK_H
#define STORE_LOCK_H

#include <stdbool.h>

#include "base/err.h"

typedef struct RunLock {
    int fd;    /* -1: not held */
    bool busy; /* refused because another process holds it */
} RunLock;

/* Locks "<folder>/.lock". The system lets go of it when the process ends, however it ends, so a lock never goes
 * stale. look changes nothing on disk: a folder that is not there, or has no such file, is not held yet. take
 * makes the file, locks it where look has not (l: as look left it, or {.fd = -1}), and writes who holds it; the
 * folder must be there. */
bool runlock_look(RunLock *l, const char *folder, Err *e);
bool runlock_take(RunLock *l, const char *folder, Err *e);
/* The same on a file that is there, by itself: nothing is written to it. */
bool runlock_take_file(RunLock *l, const char *path, Err *e);
void runlock_release(RunLock *l); /* a second call is fine */

#endif
