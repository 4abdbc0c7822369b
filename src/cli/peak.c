/* peak.c - which figure of the kernel counts where, and what follows when it is above the plan. */
#include "cli/peak.h"

#include "base/json.h"
#include "base/log.h"
#include "base/process.h"
#include "base/units.h"
#include "cli/setup.h"
#include "cli/show.h"

Peak peak_of(int64_t planned_bytes) {
    int64_t bytes = process_memory().peak_bytes;
    return (Peak){planned_bytes, bytes, MAX2(bytes - planned_bytes, 0), bytes};
}

Peak peak_of_job(const Machine *m, int64_t planned_bytes, int64_t host_planned_bytes, int64_t device_bytes) {
    if (m->kind == MACHINE_CPU) return peak_of(planned_bytes);
    int64_t bytes = process_memory().anon_bytes;
    return (Peak){host_planned_bytes, bytes,
                  MAX2(bytes - host_planned_bytes, 0) + MAX2(device_bytes - planned_bytes, 0), device_bytes};
}

Peak peak_of_planning(const Machine *m, bool open, const Program *p, int64_t host_bytes) {
    enum { PROGRAMS = 4 }; /* the one that is shown, the one that is tried, and tables as large as two more */
    Machine here = open ? *m : (Machine){.kind = MACHINE_CPU, .threads = 1};
    int64_t base = here.kind == MACHINE_CPU ? process_runtime_bytes(here.threads) : here.runtime_bytes;
    int64_t planned = base + host_bytes + PROGRAMS * prog_heap_bytes(p);
    Peak peak = peak_of_job(&here, planned, planned, 0);
    peak.budget_bytes = 0;
    return peak;
}

void peak_json(json_t *to, const Peak *p) {
    json_object_set_new(to, "process_peak_bytes", json_known(p->bytes));
    json_object_set_new(to, "above_plan_bytes", json_integer(p->above_bytes));
}

void peak_add_planning(json_t *to, const Peak *p) {
    json_object_set_new(to, "planner_planned_bytes", json_integer(p->planned_bytes));
    peak_json(to, p);
}

void peak_add_ring(json_t *to, const Ring *r, const Peak *p) {
    JSON_SET_COUNTS(to, {"planned_bytes", r->placement.arena_bytes[POOL_DEVICE]},
                    {"measured_bytes", r->x.pool_bytes[POOL_DEVICE]}, {"process_planned_bytes", ring_process_bytes(r)},
                    {"process_measured_bytes", p->budget_bytes});
    peak_json(to, p);
}

void peak_note_ring(RingMost *most, const Ring *r) {
    most->planned_bytes = MAX2(most->planned_bytes, r->placement.arena_bytes[POOL_DEVICE]);
    most->measured_bytes = MAX2(most->measured_bytes, r->x.pool_bytes[POOL_DEVICE]);
    most->process_planned_bytes = MAX2(most->process_planned_bytes, ring_process_bytes(r));
}

Peak peak_add_most(json_t *to, const RingMost *most) {
    Peak peak = peak_of(most->process_planned_bytes);
    JSON_SET_COUNTS(to, {"planned_bytes", most->planned_bytes}, {"measured_bytes", most->measured_bytes},
                    {"process_planned_bytes", most->process_planned_bytes});
    peak_json(to, &peak);
    return peak;
}

#define ASK "This is a fault of the plan: please report it with the command and the table above"

bool peak_settle(const Peak *p, const Options *o, Err *e) {
    if (p->above_bytes)
        log_warn(
            "above the plan: the kernel counted %s for this process, %s were planned, %s beyond it (with what a "
            "device holds). " ASK,
            units_bytes(p->bytes).s, units_bytes(p->planned_bytes).s, units_bytes(p->above_bytes).s);
    int64_t budget = setup_has_budget(o) ? setup_given_budget(o) : INT64_MAX;
    if (p->budget_bytes <= budget) return true;
    return fail(
        e, ERR_FAIL,
        "the result is complete and stands, but %s (%s bytes) were taken, %s more than --budget allows. " ASK,
        units_bytes(p->budget_bytes).s, units_count(p->budget_bytes).s, units_bytes(p->budget_bytes - budget).s);
}

bool peak_finish(json_t *result, int64_t planned_bytes, const Options *o, Err *e) {
    Peak p = peak_of(planned_bytes);
    json_object_set_new(result, "process_planned_bytes", json_integer(planned_bytes));
    peak_json(result, &p);
    if (opt_flag(o, OPT_JSON)) show_print_json(result);
    else json_decref(result);
    return peak_settle(&p, o, e);
}
