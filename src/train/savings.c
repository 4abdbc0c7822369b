/* savings.c - what each technique saves and costs, and which changes would make a job smaller: the table
 * (technique.h) walked with exact plans.
 *
 * Savings do not add up to the whole: what recompute saves is less where the micro-batch is already small. Each
 * line answers "what if only this were off", which is the question a person can act on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/search.h"

FitCost job_cost(const Ring *r) {
    return (FitCost){.device_bytes = ring_process_bytes(r), .host_bytes = ring_host_bytes(r),
                     .seconds = ring_round_seconds(r, &r->machine)};
}

bool job_cost_of(FitCost *c, const JobSpec *spec, const Machine *m, const HostBytes *host) {
    Job *j = MEM_NEW(Job, 1);
    Ring *r = MEM_NEW(Ring, 1);
    bool ok = job_plan(j, r, spec, m, host, NULL);
    if (ok) *c = job_cost(r);
    ring_close(r);
    mem_free(r);
    mem_free(j);
    return ok;
}

/* ---- what is on ---- */

int job_savings(Saving *out, const Job *j, const JobSpec *plain, const HostBytes *host) {
    FitCost now = job_cost(j->ring);
    int n = 0;
    for (int i = 0; i < technique_count && n < JOB_SAVINGS; i++) {
        const Technique *t = &technique_table[i];
        JobSpec without = j->spec;
        FitCost c;
        if (!t->is_on(t, &j->spec, plain)) continue;
        t->undo(t, &without, plain);
        if (!job_cost_of(&c, &without, &j->ring->machine, host)) continue;
        Str name = {0};
        t->describe(t, &name, &j->spec, plain);
        out[n] = (Saving){.device_bytes = c.device_bytes - now.device_bytes,
                          .host_bytes = now.host_bytes - c.host_bytes,
                          .seconds = now.seconds - c.seconds,
                          .maths = t->allow != 0};
        snprintf(out[n++].name, sizeof out->name, "%s", str_text(&name));
        str_free(&name);
    }
    return n;
}

/* ---- what could be ---- */

typedef struct Offers {
    const Job *job;
    const HostBytes *host;
    int64_t budget_bytes; /* 0: whatever saves */
    FitCost now;
    Change found[64];
    int n;
} Offers;

/* Taken up where it would be smaller, and within the budget; false: it would not. */
static bool offer(Offers *o, const JobSpec *spec, bool maths, const char *flags) {
    FitCost c;
    if (!job_cost_of(&c, spec, &o->job->ring->machine, o->host) || c.device_bytes >= o->now.device_bytes ||
        (o->budget_bytes && c.device_bytes > o->budget_bytes))
        return false;
    for (int i = 0; i < o->n; i++)
        if (!strcmp(o->found[i].flags, flags)) return true;
    if (o->n == COUNT_OF(o->found)) return true;
    Change *change = &o->found[o->n++];
    *change = (Change){.saves_bytes = o->now.device_bytes - c.device_bytes, .maths = maths,
                       .slowdown = o->now.seconds > 0 ? c.seconds / o->now.seconds : 0};
    snprintf(change->flags, sizeof change->flags, "%s", flags);
    return true;
}

/* What the planner would come to from that spec with these freedoms; `first`: flags that go before its own. */
static void offer_search(Offers *o, const JobSpec *from, SearchFreedom free, bool maths, const char *first) {
    Search *f = MEM_NEW(Search, 1);
    JobSpec spec = *from;
    Str flags = {0};
    str_add(&flags, first);
    if (job_search(f, &spec, &o->job->ring->machine, o->host, free, (FitLimits){.device_bytes = o->budget_bytes})) {
        technique_changed_flags(&flags, &spec, from, false);
        offer(o, &spec, maths, str_text(&flags));
    }
    str_free(&flags);
    search_free(f);
    mem_free(f);
}

/* One technique alone, step by step; with a budget the first step that fits is enough. */
static void offer_technique(Offers *o, const Technique *t) {
    const Machine *m = &o->job->ring->machine;
    JobSpec spec = o->job->spec;
    bool fits = false;
    Str flags = {0};
    while (t->take && !(fits && o->budget_bytes) && t->take(t, &spec, m->kind)) {
        str_clear(&flags);
        t->flags(t, &flags, &spec);
        fits |= offer(o, &spec, t->allow != 0, str_text(&flags));
    }
    spec = o->job->spec;
    if (!fits && o->budget_bytes && t->allow && t->take && spec.train &&
        t->take(t, &spec, m->kind)) { /* no step of it fits alone: the planner may add recompute and offload */
        str_clear(&flags);
        t->flags(t, &flags, &spec);
        offer_search(o, &spec, (SearchFreedom){.recompute = true, .micro_batch = true}, true, str_text(&flags));
    }
    str_free(&flags);
}

static void offer_lora(Offers *o) {
    static const char flags[] = "--mode lora --lora-rank 16";
    JobSpec spec = o->job->spec;
    if (!spec.train || spec.lora) return;
    spec.lora = true;
    spec.m.adapter = (LoraSpec){.rank = 16, .alpha = 32, .targets = UINT32_MAX, .format = spec.weights};
    if (!offer(o, &spec, true, flags) && o->budget_bytes)
        offer_search(o, &spec, (SearchFreedom){.recompute = true, .micro_batch = true}, true, flags);
}

/* Without a clip: with none it is no change of the mathematics, and the planner takes it by itself. */
static void offer_early(Offers *o) {
    JobSpec spec = o->job->spec;
    if (spec.lora || spec.accum > 1 || spec.update_in_backward || !job_can_update_early(&spec)) return;
    spec.update_in_backward = true;
    offer(o, &spec, true, "--clip 0 --update-in-backward on");
}

static int cheaper(const void *a, const void *b) {
    const Change *x = a, *y = b;
    if (x->maths != y->maths) return x->maths - y->maths;
    if (x->slowdown != y->slowdown) return x->slowdown < y->slowdown ? -1 : 1;
    return x->saves_bytes > y->saves_bytes ? -1 : x->saves_bytes < y->saves_bytes;
}

int job_changes(const Job *j, const HostBytes *host, int64_t budget_bytes, Change *out) {
    Offers *o = MEM_NEW(Offers, 1);
    *o = (Offers){.job = j, .host = host, .budget_bytes = budget_bytes, .now = job_cost(j->ring)};
    for (int i = 0; i < technique_count; i++) offer_technique(o, &technique_table[i]);
    offer_early(o);
    offer_lora(o);
    if (budget_bytes) {
        bool gpu = j->ring->machine.kind != MACHINE_CPU;
        offer_search(o, &j->spec, (SearchFreedom){.recompute = true}, false, "");
        offer_search(o, &j->spec, (SearchFreedom){.recompute = true, .micro_batch = true}, false, "");
        if (gpu)
            offer_search(o, &j->spec, (SearchFreedom){.recompute = true, .micro_batch = true, .offload = true},
                         false, "");
    }
    qsort(o->found, (size_t)o->n, sizeof *o->found, cheaper);
    int n = MIN2(o->n, JOB_CHANGES);
    memcpy(out, o->found, (size_t)n * sizeof *out);
    mem_free(o);
    return n;
}
