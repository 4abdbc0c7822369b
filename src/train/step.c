/* step.c - one update in flight: its inputs, the order in which its parts are queued, and when its numbers are read.
 *
 * Only step_read waits for the device. The micro-steps of an update may be queued before the numbers of the previous
 * update are known, because they change no state. The optimizer step itself is queued only once the previous update is
 * known to be good. So a device always has work, and nothing follows a bad update. With the optimizer in backward the
 * one micro-step changes state, and is queued only then. */
#include <math.h>
#include <stdio.h>

#include "base/rng.h"
#include "base/stop.h"
#include "obs/sensors.h"
#include "train/run_int.h"

enum { NOTE_LOSS, NOTE_VERDICT, NOTE_NOISE };

/* ---- what a micro-step is fed with ---- */

/* A tensor that no step reads has no place: a task's loss may do without labels, an evaluation draws nothing. */
static bool is_read(const Run *r, Tid t) { return prog_t(&r->ring->p, t)->birth >= 0; }

/* Elsewhere on the ring its bytes may be those of what the phase does read. */
static bool lives_in(const Run *r, Tid t, int phase) {
    const Tensor *x = prog_t(&r->ring->p, t);
    int begin = phase < 0 ? x->birth : r->ring->p.phase[phase].begin;
    return x->birth >= 0 && x->birth <= begin && begin <= x->death;
}

void step_put_batch(Run *r, const Batch *batch, int phase) {
    const Job *j = r->job;
    int64_t n = batch->rows * batch->seq * 4;
    exec_put(&r->ring->x, j->in.ids, batch->ids, 0, n);
    exec_put(&r->ring->x, j->in.positions, batch->positions, 0, n);
    exec_put(&r->ring->x, j->in.doc_begin, batch->doc_begin, 0, n);
    if (j->in.id_order) exec_put(&r->ring->x, j->in.id_order, batch->id_order, 0, n);
    if (lives_in(r, j->labels, phase)) exec_put(&r->ring->x, j->labels, batch->labels, 0, n);
    exec_put(&r->ring->x, j->weight, batch->weight, 0, n);
}

void step_put_float(Run *r, Tid t, double value) {
    float f = (float)value;
    exec_put(&r->ring->x, t, &f, 0, 4);
}

void step_put_limits(Run *r, SpikeLimits limits, double scale) {
    float words[LIMIT_WORDS] = {[LIMIT_LOSS] = (float)(limits.loss * scale), [LIMIT_NORM] = (float)limits.norm};
    if (r->job->limits) exec_put(&r->ring->x, r->job->limits, words, 0, sizeof words);
}

static int64_t rows_of(const Run *r, DataPlace at) {
    return MIN2(MAX2(r->o.global_batch, 1), run_epoch_rows(r) - at.row); /* an evaluation has no updates */
}

int64_t step_list_update(Run *r, DataPlace at) {
    int64_t n = 0;
    dataset_list_rows(r->data, &r->rows, at.epoch, at.row, MIN2(rows_of(r, at), r->rows.most));
    for (int64_t i = 0; i < r->rows.n; i++) n += dataset_row_scored(r->data, r->rows.member[i]);
    return n;
}

/* The loss and its gradients come out multiplied by the scale: the update and step_read divide it out again. */
void step_put_divisor(Run *r, const Update *u, int64_t scored) {
    step_put_float(r, r->job->divisor, (double)MAX2(scored, 1) / u->scaling.scale);
}

uint64_t step_key(const Run *r, int64_t step) { return rng_fold(r->job->spec.m.seed, (uint64_t)step); }

void step_put_micro(Run *r, const Update *u, const Batch *batch, int64_t micro) {
    const JobSpec *s = &r->job->spec;
    step_put_batch(r, batch, -1);
    step_put_float(r, r->ring->p.beta, micro ? 1 : 0);
    int64_t clock[CLOCK_WORDS] = {[CLOCK_KEY] = (int64_t)step_key(r, u->step),
                                  [CLOCK_FIRST_TOKEN] = micro * s->micro_batch * s->seq, [CLOCK_MICRO] = micro,
                                  [CLOCK_STEP] = u->step};
    if (is_read(r, r->ring->p.clock)) exec_put(&r->ring->x, r->ring->p.clock, clock, 0, sizeof clock);
}

static void load_micro(Run *r, const Update *u, int64_t micro) {
    batch_fill(&r->batch, r->data, &r->rows, micro * r->job->spec.micro_batch);
    step_put_micro(r, u, &r->batch, micro);
}

void step_load_micro(Run *r, int64_t micro) {
    if (r->o.source) {
        r->o.source->load(r->o.source->user, r);
        return;
    }
    Update u = {.step = r->step, .at = {r->state.data_epoch, r->state.data_row}, .scaling = r->state.scaling};
    step_put_divisor(r, &u, step_list_update(r, u.at));
    load_micro(r, &u, micro);
}

/* ---- queueing ---- */

static DataPlace place_after(const Run *r, DataPlace at) {
    at.row += r->o.global_batch;
    return at.row >= run_epoch_rows(r) ? (DataPlace){at.epoch + 1, 0} : at;
}

/* The phases of an update: the first ones may be a warm-up's. */
static bool warms_up(const Run *r, const Update *u) { return u->step < r->job->spec.warmup_steps; }
static int micro_phase(const Run *r, const Update *u) { return warms_up(r, u) ? r->job->warmup : r->job->micro; }
static int update_phase(const Run *r, const Update *u) {
    return warms_up(r, u) && r->job->warmup_update >= 0 ? r->job->warmup_update : r->job->update;
}

void step_put_dials(Run *r, const Update *u) {
    const AttrUpdate *a = &r->job->spec.update;
    double t = (double)(u->step - u->scaling.skipped + 1);
    if (r->job->warmup_update >= 0 && !warms_up(r, u)) /* most moments begin only now */
        t = MAX2(t - (double)r->job->spec.warmup_steps, 1);
    float dials[DIAL_WORDS] = {[DIAL_LR] = (float)u->lr, [DIAL_CORRECT1] = (float)(1 / (1 - pow(a->beta1, t))),
                               [DIAL_CORRECT2] = (float)(1 / (1 - pow(a->beta2, t)))};
    exec_put(&r->ring->x, r->job->dials, dials, 0, sizeof dials);
    step_put_float(r, r->job->max_norm, r->o.clip);
    step_put_limits(r, u->limits, u->scaling.scale);
    if (r->job->unscale) step_put_float(r, r->job->unscale, 1 / u->scaling.scale);
}

static bool queue_rows(Run *r, Update *u) {
    for (int64_t m = 0, micros = 1; m < micros; m++) {
        if (stop_asked()) return false;
        double began = sensors_seconds();
        const FeedItem *item = feed_next(r->feed);
        u->data_seconds += sensors_seconds() - began;
        CHECK(item->epoch == u->at.epoch && item->row == u->at.row && item->micro == m);
        micros = item->micros;
        u->tokens += item->batch.tokens;
        u->scored = item->update_scored;
        if (!m) step_put_divisor(r, u, item->update_scored);
        step_put_micro(r, u, &item->batch, m);
        exec_play(&r->ring->x, micro_phase(r, u));
        if (m || micros < 2 || r->job->noise < 0 || warms_up(r, u)) continue;
        u->first_scored = item->batch.scored;
        exec_play(&r->ring->x, r->job->noise);
    }
    return true;
}

bool step_queue_micros(Run *r, Update *u, const Update *before, Err *e) {
    *u = (Update){.step = r->step, .at = {r->state.data_epoch, r->state.data_row}, .scaling = r->state.scaling};
    if (before) { /* assumed to be applied: if it is skipped, this one is queued again */
        u->step = before->step + 1;
        u->at = place_after(r, before->at);
        u->scaling = loss_scale_after(before->scaling, r->o.loss_scale_window, true);
    }
    u->lr = schedule_lr(&r->o.schedule, u->step - u->scaling.skipped); /* an update that wrote nothing does not count */
    if (r->job->spec.update_in_backward) step_put_dials(r, u);
    return r->o.source ? r->o.source->queue(r->o.source->user, r, u, e) : queue_rows(r, u);
}

void step_queue_update(Run *r, const Update *u) {
    if (r->job->update >= 0) {
        step_put_dials(r, u);
        exec_play(&r->ring->x, update_phase(r, u));
    }
    exec_note(&r->ring->x, NOTE_LOSS, r->job->loss);
    exec_note(&r->ring->x, NOTE_VERDICT, r->job->verdict);
    if (u->first_scored) exec_note(&r->ring->x, NOTE_NOISE, r->job->noise_verdict);
}

/* ---- reading ---- */

/* A loss or gradient that is not finite: nothing was written. Play again, looking at every step. */
static bool explain_not_finite(Run *r, const Update *u, Err *e) {
    const char *weights = r->job->spec.update_in_backward
                              ? "Weights whose gradients came before that are updated (--update-in-backward)"
                              : "The weights are those before this step";
    long long step = u->step + 1;
    if (r->data) feed_stop(r->feed);
    if (r->data) step_put_divisor(r, u, step_list_update(r, u->at));
    for (int64_t m = 0; m * r->job->spec.micro_batch < r->rows.n_rows; m++) {
        load_micro(r, u, m);
        int i = exec_find_not_finite(&r->ring->x, micro_phase(r, u), e);
        if (i < 0) continue;
        const Step *s = &r->ring->p.s[i];
        char where[48] = "outside the layers";
        if (s->layer >= 0) snprintf(where, sizeof where, "in layer %d", s->layer);
        return fail(e, ERR_FAIL,
                    "step %lld: the loss is not finite (loss %g, gradient norm %g). It began %s, in the %s pass, at "
                    "'%s' (%s). %s. A lower --lr, a --warmup-steps, --precision fp32 or --on-nonfinite skip may help",
                    step, u->loss, u->norm, where, prog_region_name(s->region), op_name(s->op),
                    prog_first_out(s) ? prog_t(&r->ring->p, prog_first_out(s))->name : "", weights);
    }
    return fail(e, ERR_FAIL, "step %lld: the loss or the gradient norm is not finite (loss %g, norm %g)", step, u->loss,
                u->norm);
}

/* Why the run cannot go on behind an update that wrote nothing; true: it can. */
static bool may_skip(Run *r, const Update *u, LossScale after, Err *e) {
    bool scaled = r->job->unscale != NONE;
    int64_t in_a_row = r->state.spikes.skipped_in_a_row + 1;
    if (u->spike && r->o.spike.on == SPIKE_STOP) {
        char what[160];
        spike_text(what, sizeof what, &u->limits, u->loss, u->norm);
        return fail(e, ERR_FAIL,
                    "step %lld: %s (loss %g, gradient norm %g). The weights are those before this step; --resume with "
                    "--on-spike skip leaves its rows out, with --on-spike warn takes it as it is",
                    (long long)u->step + 1, what, u->loss, u->norm);
    }
    if (!u->spike && !r->o.skip_nonfinite && !scaled) return explain_not_finite(r, u, e);
    if (scaled && after.scale < 1)
        return explain_not_finite(r, u, e) || fail_within(e, "the loss scale has fallen below 1");
    if ((u->spike || !scaled) && in_a_row > r->o.skip_limit)
        return (u->spike ? fail(e, ERR_FAIL, "step %lld: a spike (loss %g, gradient norm %g)", (long long)u->step + 1,
                                u->loss, u->norm)
                         : explain_not_finite(r, u, e)) ||
               fail_within(e, "%lld updates in a row would be skipped (--skip-limit)", (long long)in_a_row);
    return true;
}

/* Gradients are sums divided by the scored tokens of the whole update: the first micro-batch's own mean is larger. */
static bool read_noise(Run *r, Update *u, Err *e) {
    double verdict[VERDICT_WORDS];
    if (!u->first_scored || u->first_scored >= u->scored) return true;
    if (!exec_read_note(&r->ring->x, NOTE_NOISE, r->job->noise_verdict, verdict, e)) return false;
    double few = (double)u->first_scored, many = (double)u->scored;
    u->first_norm = verdict[VERDICT_NORM] / u->scaling.scale;
    if (!u->skipped && isfinite(u->first_norm))
        gradient_noise_add(&r->noise, u->first_norm * many / few, few, u->norm, many);
    return true;
}

bool step_read(Run *r, Update *u, Err *e) {
    double verdict[VERDICT_WORDS];
    if (!exec_read_note(&r->ring->x, NOTE_LOSS, r->job->loss, &u->loss, e) ||
        !exec_read_note(&r->ring->x, NOTE_VERDICT, r->job->verdict, verdict, e))
        return false;
    u->loss /= u->scaling.scale;
    u->norm = verdict[VERDICT_NORM];
    u->skipped = verdict[VERDICT_OK] == 0;
    if (!read_noise(r, u, e)) return false;
    bool finite = isfinite(u->loss) && isfinite(u->norm);
    u->spike = spike_is_one(&u->limits, u->loss, u->norm) || (u->skipped && finite);
    if (r->data && !dataset_ok(r->data, e))
        return false; /* rows that could not be read: the update is not taken over */
    LossScale after = loss_scale_after(u->scaling, r->o.loss_scale_window, finite);
    after.skipped = u->scaling.skipped + u->skipped;
    if (u->skipped && !may_skip(r, u, after, e)) return false;
    r->state.scaling = after;
    r->state.spikes = spike_after(r->state.spikes, &r->o.spike, u->loss, u->norm, u->skipped);
    DataPlace next = place_after(r, u->at);
    r->step = u->step + 1;
    r->state.data_epoch = next.epoch;
    r->state.data_row = next.row;
    r->state.tokens_seen += u->tokens;
    return true;
}
