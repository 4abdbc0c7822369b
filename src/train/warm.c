/* warm.c - warm-up: how every phase is played before the first step without changing anything.
 *
 * A pass over a batch writes gradients and sums that the next one begins anew. An update writes nothing when its loss
 * is not finite, so it is given such a loss; with the optimizer in backward, a divisor that is not a number. Real rows
 * are used, because GEMM algorithms are chosen by their time on typical numbers. */
#include <math.h>

#include "train/run_int.h"

static void put_dials(Run *r) {
    float dials[DIAL_WORDS] = {0};
    exec_put(&r->ring->x, r->job->dials, dials, 0, sizeof dials);
    step_put_float(r, r->job->max_norm, r->o.clip);
    step_put_limits(r, (SpikeLimits){INFINITY, INFINITY}, 1);
    if (r->job->unscale) step_put_float(r, r->job->unscale, 1);
}

static void play_pass(Run *r, int phase) {
    if (phase < 0) return;
    step_load_micro(r, 0);
    if (phase == r->job->micro && r->job->spec.update_in_backward) {
        put_dials(r);
        step_put_float(r, r->job->divisor, NAN);
    }
    exec_play(&r->ring->x, phase);
}

static void play_update(Run *r, int phase) {
    if (phase < 0) return;
    double loss = NAN;
    put_dials(r);
    exec_put(&r->ring->x, r->job->loss, &loss, 0, sizeof loss);
    exec_play(&r->ring->x, phase);
}

static void play_all(void *run) {
    Run *r = run;
    play_pass(r, r->job->warmup);
    play_update(r, r->job->warmup_update);
    play_pass(r, r->job->micro);
    play_update(r, r->job->update);
    play_pass(r, r->job->report);
    play_pass(r, r->job->evaluate);
}

bool run_warm(Run *r, Err *e) { return ring_warm(r->ring, play_all, r, e); }
