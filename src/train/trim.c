/* trim.c - when idle device memory is given back between two updates, for how long, and what that costs. */
#include <time.h>

#include "base/log.h"
#include "base/stop.h"
#include "base/units.h"
#include "obs/sensors.h"
#include "train/run_int.h"

static void wait_seconds(double seconds) { /* or until a signal */
    double until = sensors_seconds() + seconds;
    while (sensors_seconds() < until && !stop_asked()) {
        double left = MIN2(until - sensors_seconds(), 0.05);
        nanosleep(&(struct timespec){.tv_nsec = (long)(MAX2(left, 0) * 1e9)}, NULL);
    }
}

bool run_trim(Run *r, Err *e) {
    if (!exec_sync(&r->ring->x, e)) return false;
    int64_t before = ring_in_use(r->ring);
    double began = sensors_seconds();
    int64_t given = exec_trim(&r->ring->x);
    double gave_ms = (sensors_seconds() - began) * 1e3;
    int64_t after = ring_in_use(r->ring);
    wait_seconds(r->o.cleanup_delay_seconds);
    began = sensors_seconds();
    if (!exec_restore(&r->ring->x, e)) return false;
    log_line("step %lld: %s bytes given back in %.1f ms (%s bytes held, then %s), taken again in %.1f ms",
             (long long)r->step, units_count(given).s, gave_ms, units_count(before).s, units_count(after).s,
             (sensors_seconds() - began) * 1e3);
    return true;
}
