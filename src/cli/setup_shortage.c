/* setup_shortage.c - what follows when a run finds less memory than was planned for it.
 *
 * Between the plan and the run others may have taken memory, or a --budget was given that a limit (ulimit) does
 * not leave. Nothing is loaded then, so the search is simply done again with what was found. Where the system
 * refuses a block without saying how much there is, an eighth of that block less is tried, and again. */
#include <stdio.h>

#include "base/log.h"
#include "base/units.h"
#include "cli/setup.h"
#include "obs/sensors.h"

static bool is_beside(const JobSetup *j, Pool pool) {
    return pool != POOL_DEVICE && j->ring.machine.kind != MACHINE_CPU;
}

Shortage setup_shortage(const JobSetup *j, const Exec *x) {
    Shortage s = {.pool = x ? x->refused : POOL_DEVICE, .refused_bytes = x ? x->refused_bytes : 0};
    bool beside = is_beside(j, s.pool);
    s.planned_bytes = beside ? ring_host_bytes(&j->ring) : ring_process_bytes(&j->ring);
    Machine now = {0};
    j->backend->describe(j->backend, &now);
    if (beside)
        s.found_bytes = MAX2(sensors_memory().available_bytes, 0);
    else if (now.kind == MACHINE_CPU)
        s.found_bytes = MAX2(sensors_room().bytes, 0);
    else
        s.found_bytes =
            now.free_bytes[POOL_DEVICE] > 0 ? now.free_bytes[POOL_DEVICE] + j->ring.machine.context_bytes : 0;
    return s;
}

static bool add_to_refusal(Err *e, const char *what) {
    char text[sizeof e->text];
    snprintf(text, sizeof text, "%s", e->text);
    return fail(e, e->code, "%.860s (%s)", text, what);
}

bool setup_replan(JobSetup *j, const JobSpec *asked, Shortage what, Err *e) {
    if (opt_is(j->o, OPT_ON_SHORTAGE, "stop"))
        return add_to_refusal(e, "--on-shortage replan would look for a smaller plan");
    bool told = what.found_bytes > 0 && what.found_bytes < what.planned_bytes;
    int64_t room =
        told ? what.found_bytes - what.found_bytes / 50 : what.planned_bytes - MAX2(what.refused_bytes / 8, 1);
    JobSpec again = j->spec;
    FitLimits less = j->limits;
    if (is_beside(j, what.pool))
        less.host_bytes = less.host_bytes ? MIN2(less.host_bytes, room) : room;
    else
        less.device_bytes = MIN2(less.device_bytes, room);
    technique_forget(&again, asked); /* --allow may have changed the rest */
    Search *f = MEM_NEW(Search, 1);
    bool fits = job_search(f, &again, &j->ring.machine, &j->host, setup_freedom(j->o), less);
    if (fits) {
        Str flags = {0};
        const FitCost *cost = &f->taken;
        technique_layout_flags(&flags, &again);
        log_line(
            "shortage in %s memory: %s planned, %s%s; goes on with %s: %s, the same mathematics",
            ledger_pool_name(what.pool), units_bytes(what.planned_bytes).s, told ? "found " : "refused ",
            units_bytes(told ? what.found_bytes : what.refused_bytes).s, str_text(&flags),
            units_bytes(is_beside(j, what.pool) ? cost->host_bytes : cost->device_bytes).s);
        str_free(&flags);
        *e = (Err){0}; /* what was refused is taken care of */
        j->spec = again;
        j->limits = less;
    }
    search_free(f);
    mem_free(f);
    return fits || add_to_refusal(e, "--on-shortage replan: no smaller plan of the same mathematics was found");
}
