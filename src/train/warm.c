/* warm.c - how every program is played before the first step without changing anything.
 *
 * A device loads code and chooses products in a program's first play and keeps the second (backend.h): afterwards all
 * the memory it will ever take is taken, and the first step is a repetition like every other. A pass over a batch
 * writes gradients and sums that the next one begins anew. An update writes nothing when its loss is not finite, so
 * that is what it is given; inside backward, by a divisor that is not a number. Real rows are used: products are
 * chosen by their time on numbers like those to come. */
#include <math.h>

#include "base/work.h"
#include "train/run.h"

enum { PLAYS = 2 }; /* the first loads, the second is kept */

void run_measure_line(Run *r, const char *name, int64_t less_bytes) {
    int64_t now = r->backend->in_use(r->backend);
    if (now < 0) return;
    LedgerLine *line = ledger_find(&r->job->ledger, POOL_DEVICE, name);
    if (line) line->measured_bytes = MAX2(line->measured_bytes, 0) + now - r->measured_bytes - less_bytes;
    r->measured_bytes = now;
}

static void put_dials(Run *r) {
    float dials[DIAL_WORDS] = {0};
    exec_put(&r->x, r->job->dials, dials, 0, sizeof dials);
    step_put_float(r, r->job->max_norm, r->o.clip);
    if (r->job->unscale) step_put_float(r, r->job->unscale, 1);
}

static void play_pass(Run *r, int phase) {
    if (phase < 0) return;
    step_load_micro(r, 0);
    if (phase == r->job->phase_micro && r->job->spec.update_in_backward) {
        put_dials(r);
        step_put_float(r, r->job->divisor, NAN);
    }
    exec_play(&r->x, phase);
}

static void play_update(Run *r) {
    if (r->job->phase_update < 0) return;
    double loss = NAN;
    put_dials(r);
    exec_put(&r->x, r->job->loss, &loss, 0, sizeof loss);
    exec_play(&r->x, r->job->phase_update);
}

bool run_warm(Run *r, Err *e) {
    Work work;
    work_begin(&work, WORK_COUNT, PLAYS, "warming up: every program is played before the first step");
    for (int play = 0; play < PLAYS; play++) {
        if (!work_on(&work, play, e)) return false;
        play_pass(r, r->job->phase_micro);
        play_update(r);
        play_pass(r, r->job->phase_eval);
        if (!exec_sync(&r->x, e)) return false;
        run_measure_line(r, play ? "graphs" : "code", 0);
    }
    work_end(&work);
    return true;
}
