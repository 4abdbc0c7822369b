/* stop.c - how a signal's request is worded as an error. */
#include "base/stop.h"

volatile sig_atomic_t stop_signal, stop_is_polled;

bool stop_check(Err *e) {
    return !stop_asked() || fail_system(e, EINTR, "stopped by signal %d", (int)stop_signal);
}
