/* fault.h - which calls to the system a test can make fail, one at a time.
 *
 * Only the fault flavour (make FAULTS=1) has faults: there `snug COMMAND ... --fault KIND:N` makes the N-th call of
 * that kind fail as the system would refuse it, and `--fault KIND:N:stop` stops the process (SIGSTOP) just before
 * that call, so that a test can change the world under it, kill it, or let it go on. `--fault KIND:0:tell` says of
 * every call what it is about. In every other build fault_here is false and nothing of it remains.
 *
 * A hook stands beside the one place that makes the call; so the calls stay in that place (tools/rooms.sh). */
#ifndef BASE_FAULT_H
#define BASE_FAULT_H

#include <stdbool.h>

#include "base/err.h"

typedef enum FaultKind {
    FAULT_ALLOC,    /* the heap, also for jansson and pcre2 (libyaml has no way in) */
    FAULT_MAP,      /* the pages of a pool */
    FAULT_OPEN,     /* a file or folder that is opened or made by opening it */
    FAULT_READ,
    FAULT_WRITE,    /* not stdout and stderr */
    FAULT_CUT,      /* a file is made shorter */
    FAULT_FLUSH,    /* a file or folder goes to disk */
    FAULT_RENAME,
    FAULT_EXCHANGE, /* two names are exchanged; refused as by a file system that cannot */
    FAULT_MAKE,     /* a folder */
    FAULT_REMOVE,   /* a file or folder */
    FAULT_LOCK,
    FAULT_THREAD,
    FAULT_PROCESS,  /* another program, or a pipe to it */
    FAULT_KINDS
} FaultKind;

#ifdef FAULTS
bool fault_here(FaultKind kind, const char *what); /* counts; true: make it fail, errno is set */
bool fault_set(const char *text, Err *e);          /* "rename:3" or "read:2:stop" */
void fault_report(void);                           /* how many calls of each kind there were, to standard error */
/* True in the fault flavour: what would be written only because time has passed is not, so that a slow run makes the
 * calls of a quick one. */
static inline bool fault_counts(void) { return true; }
#else
static inline bool fault_counts(void) { return false; }
static inline bool fault_here(FaultKind kind, const char *what) {
    (void)kind, (void)what;
    return false;
}
#endif

#endif
