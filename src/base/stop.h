/* stop.h - whether the process was asked to stop: one flag that a signal handler sets and every long loop polls.
 *
 * A loop that may last longer than a fifth of a second asks in every turn:
 *     if (!stop_check(e)) break;               // work.h does the same and shows how far the loop is */
#ifndef BASE_STOP_H
#define BASE_STOP_H

#include <errno.h>
#include <signal.h>
#include <stdbool.h>

#include "base/err.h"

extern volatile sig_atomic_t stop_signal;    /* its number; 0: none came */
extern volatile sig_atomic_t stop_is_polled; /* a signal only asks; 0: it ends the process at once */

static inline bool stop_asked(void) {
    return stop_signal != 0;
}

/* False, with an error that stop_caused knows, once the process was asked to leave. */
bool stop_check(Err *e);
static inline bool stop_caused(const Err *e) {
    return e->error == EINTR;
}

#endif
