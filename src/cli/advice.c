/* advice.c - when a run was slower than it had to be, and which flag would change that.
 *
 * Only what was measured counts, over enough steps to mean something. A micro-batch that the planner chose is the
 * fastest by its own count: a larger one is offered where a person chose it. */
#include <math.h>

#include "base/units.h"
#include "cli/session.h"

enum { FEWEST_STEPS = 20, FEW_TOKENS = 2048, MOST_WORKERS = 8 };
static const double late = 0.1;    /* share of a step that may pass waiting for rows */
static const double idle = 0.7;    /* a GPU busy for less of the time is worth a word */
static const double faster = 0.97; /* of the time now: less is worth a word */

static void say_busy(Str *out, const SampleMeans *m) {
    if (isfinite(m->gpu_busy))
        str_addf(out, "the GPU was busy %.0f %% of the time", 100 * m->gpu_busy);
    else
        str_addf(out, "%.0f %% of the cores were in use", 100 * m->cpu_share);
}

static void advise_data(Str *out, const Session *s) {
    int workers = MIN2(MAX2(2 * s->data_workers, 1), MOST_WORKERS);
    str_addf(out, "advice: %.0f %% of a step passed waiting for rows, and ", 100 * s->result.wait_share);
    say_busy(out, &s->result.samples);
    str_addf(out, ": --data-workers %d fills more of them ahead\n", workers);
}

/* Twice the rows in a micro-step, the global batch kept; false: there is no such split, or it does not fit or
 * help. */
static bool try_double(const Session *s, JobSpec *spec, int64_t *bytes, double *share) {
    FitCost cost;
    HostBytes host = s->base.host;
    *spec = s->base.spec;
    spec->rows = NULL; /* given back with the data */
    if (spec->accum < 2) return false;
    spec->micro_batch *= 2;
    spec->accum = (spec->accum + 1) / 2;
    host.batches *= 2;
    if (!job_cost_of(&cost, spec, &s->base.machine, &host)) return false;
    *bytes = cost.device_bytes;
    *share = cost.seconds / s->predicted_seconds;
    return *bytes <= s->base.limits.device_bytes && *share < faster;
}

static void advise_batch(Str *out, const Session *s) {
    JobSpec spec;
    int64_t bytes;
    double share;
    bool chosen = opt_given(s->base.o, OPT_MICRO_BATCH) || opt_given(s->base.o, OPT_ACCUM);
    if (s->task || !chosen || !try_double(s, &spec, &bytes, &share)) return;
    str_add(out, "advice: ");
    say_busy(out, &s->result.samples);
    str_addf(out,
             ", and there is room for more rows at a time: --micro-batch %lld --accum %lld takes %s of %s and is "
             "predicted to take %.0f %% of the time\n",
             (long long)spec.micro_batch, (long long)spec.accum, units_bytes(bytes).s,
             units_bytes(s->base.limits.device_bytes).s, 100 * share);
}

void advice_text(Str *out, const Session *s) {
    const RunResult *r = &s->result;
    if (r->finished || s->base.run.progress.steps_here < FEWEST_STEPS) return;
    if (r->wait_share > late) advise_data(out, s);
    int64_t before = out->len, tokens = s->base.spec.micro_batch * s->base.spec.seq;
    advise_batch(out, s);
    if (out->len > before || r->wait_share > late || !(r->samples.gpu_busy < idle) || s->task) return;
    str_add(out, "advice: ");
    say_busy(out, &r->samples);
    if (tokens < FEW_TOKENS)
        str_addf(
            out,
            ": a micro-step has only %lld tokens. A larger --global-batch or --seq fills it, and changes what is "
            "learned; --profile shows where a step goes\n",
            (long long)tokens);
    else
        str_add(out, "; --profile shows where a step goes, and whether the host or copies hold it up\n");
}
