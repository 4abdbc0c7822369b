/* lmcleaner.c - the way of a request, and what is written down about it. */
#include "unlearn/lmcleaner.h"

#include <inttypes.h>
#include <math.h>

#include "base/mem.h"
#include "base/rng.h"
#include "obs/sensors.h"
#include "unlearn/vec.h"

enum { CONTRACTION_VECTORS = 2 };

bool clean_carries_apart(const CleanOptions *o, int requests) {
    return requests > 1 || o->each_step || o->gamma_iterations;
}

int clean_vectors(const CleanOptions *o, double momentum, int requests) {
    int moving = propagate_vectors(&o->propagate, momentum);
    return 1 + clean_carries_apart(o, requests) + (o->gamma_iterations ? MAX2(moving, CONTRACTION_VECTORS) : moving);
}

bool clean_looks_at_theta(const CleanOptions *o, double momentum) {
    const PropagateOptions *p = &o->propagate;
    bool differences = p->hessian == HESSIAN_EXACT || p->hessian == HESSIAN_GAUSS_NEWTON || o->gamma_iterations;
    return differences || momentum > 0;
}

/* ---- the correction ---- */

static void join(PropagateReport *to, const PropagateReport *part) {
    to->steps_touched += part->steps_touched;
    to->window_used = MAX2(to->window_used, part->window_used);
    to->hvp_calls += part->hvp_calls;
    to->guarded += part->guarded;
    to->added_norm += part->added_norm;
    to->largest_norm = fmax(to->largest_norm, part->largest_norm);
    if (part->rate_high > 0) {
        to->rate_low = to->rate_high > 0 ? fmin(to->rate_low, part->rate_low) : part->rate_low;
        to->rate_high = fmax(to->rate_high, part->rate_high);
    }
    to->clipped |= part->clipped;
}

static bool propagate_all(const Walk *w, const CleanOptions *o, CleanRequest *r, float *sum, float *v, Err *e) {
    PropagateOptions options = o->propagate;
    options.window = r->window;
    int64_t n = r->set.n_steps, each = o->each_step ? 1 : n;
    double before = o->each_step ? vec_norm(w->team, sum, w->n) : 0;
    for (int64_t i = 0; i < n; i += each) {
        PropagateReport part;
        if (!propagate(w, &options, r->set.step + i, each, v ? v : sum, &part, e)) return false;
        if (v) vec_add(w->team, sum, v, 1, w->n);
        join(&r->report, &part);
        r->report.norm = part.norm;
    }
    if (o->each_step) r->report.norm = before > 0 ? NAN : vec_norm(w->team, sum, w->n);
    return true;
}

/* Before the update of that number; of several measurements the largest counts. */
static bool measure_contraction(const Walk *w, const CleanOptions *o, CleanRequest *r, int64_t step, float *x,
                                Err *e) {
    float *y = MEM_NEW(float, w->n), *scratch = MEM_NEW(float, w->n);
    double gamma = 0;
    bool ok = w->seek(w->user, step, e) && contraction(w, &o->propagate, w->lr(w->user), o->gamma_iterations,
                                                       (uint64_t)step, x, y, scratch, &gamma, e);
    mem_free(y);
    mem_free(scratch);
    r->gamma = isnan(r->gamma) ? gamma : fmax(r->gamma, gamma);
    return ok;
}

static void choose_window(const Walk *w, const CleanOptions *o, CleanRequest *r) {
    int64_t enough = o->window_share > 0 ? certificate_window(r->gamma, o->window_share) : o->propagate.window;
    r->window = enough < 0 ? w->steps : enough;
}

static WalkSeconds seconds_since(const WalkSeconds *now, const WalkSeconds *before) {
    return (WalkSeconds){now->load - before->load, now->check - before->check, now->replay - before->replay,
                         now->transfer - before->transfer, now->vectors - before->vectors};
}

bool clean_request(const Walk *w, const CleanOptions *o, CleanRequest *r, float *sum, float *v, Err *e) {
    double began = sensors_seconds();
    WalkSeconds before = w->spent ? *w->spent : (WalkSeconds){0};
    r->gamma = NAN;
    if (!r->set.n_steps) return true; /* earlier requests have taken out all of it */
    int64_t last = r->set.step[r->set.n_steps - 1];
    bool measures = o->gamma_iterations > 0;
    if (measures && !measure_contraction(w, o, r, r->set.step[0], v, e)) return false;
    choose_window(w, o, r);
    if (!propagate_all(w, o, r, sum, v, e)) return false;
    int64_t end = MIN2(last + r->report.window_used, w->steps - 1); /* propagated one by one, earlier ones go further */
    if (measures && !measure_contraction(w, o, r, end, v, e)) return false;
    bool plain = !w->adaptive && !(w->momentum > 0); /* of other updates gamma bounds nothing */
    r->truncation = plain && !isnan(r->gamma)
                        ? certificate_truncation(r->gamma, r->report.window_used) * r->report.added_norm
                        : (double)INFINITY;
    r->seconds = sensors_seconds() - began;
    if (w->spent) r->spent = seconds_since(w->spent, &before);
    return true;
}

void clean_cover(const Walk *w, const CleanOptions *o, CleanRequest *r, int number, float *sum) {
    double missed = isfinite(r->truncation) ? r->truncation : 0, measured = fmax(r->report.largest_norm, missed);
    NoiseOptions own = o->noise;
    own.key = rng_fold(own.key, (uint64_t)number);
    CertificateFacts facts = {.noise = &own,
                              .adaptive = w->adaptive,
                              .momentum = w->momentum > 0,
                              .clipped = r->report.clipped,
                              .guarded = r->report.guarded > 0,
                              .exact_products = o->propagate.hessian == HESSIAN_EXACT,
                              .gamma = r->gamma,
                              .measured = measured};
    r->noise = noise_scale(&own, measured);
    r->noise_norm = noise_add(w->team, &own, &r->noise, sum, w->n);
    r->why_not = certificate_refusal(&facts);
}

/* ---- the record ---- */

static void add_number(Str *out, const char *key, double v) {
    if (isfinite(v))
        str_addf(out, ",\"%s\":%.9g", key, v);
    else
        str_addf(out, ",\"%s\":null", key);
}

static void add_seconds(Str *out, const WalkSeconds *s) { /* as a JSON object */
    str_addf(out, "{\"load\":%.6g,\"check\":%.6g,\"replay\":%.6g,\"transfer\":%.6g,\"vectors\":%.6g}", s->load,
             s->check, s->replay, s->transfer, s->vectors);
}

static void add_record(Str *out, const CleanRequest *r, const CleanOptions *o, int64_t tau) {
    const PropagateReport *p = &r->report;
    str_addf(out, ",\"samples\":%" PRId64 ",\"steps_touched\":%" PRId64 ",\"tz\":[", r->set.n, p->steps_touched);
    for (int64_t i = 0; i < r->set.n_steps; i++) str_addf(out, i ? ",%" PRId64 : "%" PRId64, r->set.step[i]);
    str_addf(out, "],\"tau\":%" PRId64 ",\"K\":%" PRId64 ",\"K_used\":%" PRId64 ",\"hvp_calls\":%" PRId64, tau,
             r->window, p->window_used, p->hvp_calls);
    str_addf(out, ",\"mode\":\"%s\",\"remove\":\"%s\",\"pass\":\"%s\"", hessian_names[o->propagate.hessian],
             o->propagate.mode == PROPAGATE_STEPS ? "steps" : "samples", o->each_step ? "each" : "one");
    add_number(out, "damping", o->propagate.damping);
    add_number(out, "v_norm", p->norm);
    add_number(out, "added_norm", p->added_norm);
    str_addf(out, ",\"guarded\":%" PRId64 ",\"used_historical_params\":true", p->guarded);
    add_number(out, "gamma", r->gamma);
    add_number(out, "truncation_bound", r->truncation);
    str_addf(out, ",\"noise_mode\":\"%s\",\"noise_injected\":%s", noise_names[o->noise.kind],
             r->noise_norm > 0 ? "true" : "false");
    add_number(out, "epsilon", o->noise.epsilon);
    add_number(out, "delta", o->noise.delta);
    add_number(out, "delta_cert", r->noise.bound);
    add_number(out, "sigma_parallel", r->noise.sigma);
    add_number(out, "sigma_perp", r->noise.across);
    add_number(out, "noise_norm", r->noise_norm);
    str_addf(out, ",\"certified\":%s,\"why_not\":", r->why_not ? "false" : "true");
    if (r->why_not)
        str_addf(out, "\"%s\"", r->why_not);
    else
        str_add(out, "null");
    add_number(out, "wall_time_ms", 1000 * r->seconds);
    str_add(out, ",\"seconds_by_part\":");
    add_seconds(out, &r->spent);
}

void clean_records(Str *out, const CleanRequest *request, int n, const CleanOptions *o, const History *h) {
    Chain chain = {0};
    for (int i = 0; i < n; i++) {
        int64_t from = out->len;
        str_addf(out, "{\"request\":%d,\"requests\":%d,\"log\":\"%s\"", i + 1, n, h->chain.link);
        add_record(out, &request[i], o, h->n_steps);
        chain_close(&chain, out, from);
    }
}

void clean_requeue(Str *out, const CleanRequest *request, int n, const History *h, int64_t rows) {
    bool *wanted = MEM_NEW(bool, rows);
    const char *comma = "";
    for (int k = 0; k < n; k++)
        for (int64_t i = 0; i < request[k].set.n_steps; i++) {
            const HistoryStep *s = &h->step[request[k].set.step[i]];
            for (int64_t j = 0; j < s->n; j++) wanted[s->sample[j]] = true;
        }
    for (int k = 0; k < n; k++)
        for (int64_t i = 0; i < request[k].set.n; i++) wanted[request[k].set.sample[i]] = false;
    str_add(out, "[");
    for (int64_t i = 0; i < rows; i++) {
        if (!wanted[i]) continue;
        str_addf(out, "%s%" PRId64, comma, i);
        comma = ",";
    }
    str_add(out, "]\n");
    mem_free(wanted);
}
