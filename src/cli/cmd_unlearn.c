/* cmd_unlearn.c - snug unlearn: a logged run opened again, and what a method makes of it. */
#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "base/units.h"
#include "cli/cmd.h"
#include "cli/peak.h"
#include "cli/show.h"
#include "cli/unlearn_run.h"
#include "obs/sensors.h"
#include "weights/weights.h"

static void set_count(json_t *to, const char *name, int64_t n) { json_object_set_new(to, name, json_integer(n)); }

/* What every method's last line ends with. Takes over result. */
static bool finish(UnlearnRun *r, json_t *result, double began, const char *path, Err *e) {
    ring_measure(&r->ring);
    Peak peak = peak_of_job(&r->machine, ring_process_bytes(&r->ring), ring_host_bytes(&r->ring), r->ring.peak_bytes);
    json_object_set_new(result, "seconds", json_real(sensors_seconds() - began));
    set_count(result, "planned_bytes", r->ring.placement.arena_bytes[POOL_DEVICE]);
    set_count(result, "measured_bytes", r->ring.x.pool_bytes[POOL_DEVICE]);
    set_count(result, "process_planned_bytes", ring_process_bytes(&r->ring));
    set_count(result, "process_measured_bytes", peak.budget_bytes);
    peak_json(result, &peak);
    json_object_set_new(result, "result", json_string(path));
    show_print_json(result);
    json_decref(result);
    return peak_settle(&peak, r->o, e);
}

static bool replay(UnlearnRun *r, double began, Err *e) {
    char path[1100], checksum[20];
    int64_t end = r->history.n_steps, at = opt_given(r->o, OPT_AT) ? opt_int(r->o, OPT_AT) : end;
    if (at > end) return fail(e, ERR_USAGE, "--at %" PRId64 ": the run has %" PRId64 " updates", at, end);
    if (!unlearn_run_check_out(r, e) || !replay_seek(&r->replay, at, e) || !unlearn_run_write(r, NULL, NULL, path, sizeof path, e))
        return false;
    snprintf(checksum, sizeof checksum, "%016" PRIx64, weights_checksum(&r->ring.x, job_trained_role(&r->job)));
    log_line("the weights after %s updates: %s", units_count(at).s, path);
    json_t *result = json_pack("{s:s, s:I, s:I, s:s}", "method", "replay", "at", (json_int_t)at, "replayed_updates",
                               (json_int_t)r->replay.passes, "checksum", checksum);
    return finish(r, result, began, path, e);
}

bool cmd_unlearn(const Options *o, Err *e) {
    UnlearnRun *r = MEM_NEW(UnlearnRun, 1);
    double began = sensors_seconds();
    bool ok = unlearn_run_open(r, o, 0, e) && replay(r, began, e);
    unlearn_run_close(r);
    mem_free(r);
    return ok;
}
