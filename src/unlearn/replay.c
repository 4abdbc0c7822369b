/* replay.c - the inputs of a logged update, how it is played again, and the state that a replay starts from. */
#include "unlearn/replay.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/stop.h"
#include "obs/sensors.h"
#include "unlearn/vec.h"
#include "weights/weights.h"

int64_t replay_theta_bytes(const Job *j) { return 4 * model_count(&j->ring->p, true); }

int64_t replay_copy_bytes(const Job *j) {
    Params p;
    params_init(&p, j);
    int64_t bytes = carry_bytes(&p);
    params_free(&p);
    return bytes;
}

int64_t replay_stack_bytes(int threads) { return (threads - 1) * (int64_t)THREAD_STACK_BYTES; }

bool replay_open(Replay *r, Run *run, const History *h, int threads, Err *e) {
    *r = (Replay){.run = run, .h = h, .due = {.keep = 1}};
    if (!h->ended)
        return fail(e, ERR_FAIL,
                    "step log %s: is cut short: it holds %" PRId64
                    " updates and not the end of the run. Was the run "
                    "interrupted? Finish it with --resume",
                    h->folder, h->n_steps);
    CHECK(run->job->spec.update_in_backward == correction_is_on_ring(run->job));
    params_init(&r->params, run->job);
    if (!threads_open(&r->team, threads, e)) return false;
    r->params.team = r->team;
    r->params.busy = &r->spent.vectors;
    gauss_newton_init(&r->gauss_newton, run, r->team);
    return true;
}

void replay_close(Replay *r) {
    if (r->team) threads_close(r->team);
    params_free(&r->params);
    mem_free(r->sums);
    gauss_newton_free(&r->gauss_newton);
    mem_free(r->theta);
    carry_close(&r->carry);
}

/* ---- one update ---- */

static Update update_at(const Replay *r) {
    const HistoryStep *s = &r->h->step[r->step];
    return (Update){.step = s->step,
                    .at = {s->epoch, s->row},
                    .lr = s->lr,
                    .scaling = {.scale = s->scale, .skipped = s->skipped}};
}

static bool check_samples(const Replay *r, Err *e) {
    const HistoryStep *s = &r->h->step[r->step];
    const Dataset *d = r->run->data;
    int64_t want = MIN2(r->run->o.global_batch, dataset_rows(d) - s->row);
    bool same = s->row < dataset_rows(d) && s->n == want && s->key == step_key(r->run, s->step);
    for (int64_t i = 0; same && i < s->n; i++) same = s->sample[i] == dataset_row_at(d, s->epoch, s->row + i);
    return same ||
           fail(e, ERR_FAIL,
                "step log %s: the samples or the key of step %" PRId64 " are not those that this data and seed give",
                r->h->folder, s->step);
}

/* Sets the token weights of the excluded rows to 0. The divisor does not change: it still counts them. */
static void leave_out(const Replay *r, Batch *b, int64_t first, WalkRows rows) {
    const RowList *l = &r->run->rows;
    for (int64_t row = 0; row < b->rows && first + row < l->n_rows; row++) {
        float *weight = b->weight + row * b->seq;
        for (int64_t k = l->first[first + row]; k < l->first[first + row + 1]; k++) {
            int64_t tokens = dataset_row_tokens(r->run->data, l->member[k]);
            bool removed = r->removed && r->removed[l->member[k]];
            if (removed == (rows == WALK_KEPT))
                for (int64_t t = 0; t < tokens; t++) weight[t] = 0;
            weight += tokens;
        }
    }
}

typedef struct Direction { /* of a Gauss-Newton product */
    const float *v;
    double h;
} Direction;

/* The Gauss-Newton product of one micro-batch. Leaves the weights at theta. */
static bool play_product(Replay *r, const Direction *d, const GaussNewtonMicro *m, Err *e) {
    Exec *x = &r->run->ring->x;
    GaussNewton *g = &r->gauss_newton;
    params_put_shifted(&r->params, x, r->theta, d->v, d->h);
    bool ok = gauss_newton_ahead(g, m, e);
    params_put_shifted(&r->params, x, r->theta, d->v, -d->h);
    ok = ok && gauss_newton_behind(g, m, d->h, e);
    params_put(&r->params, x, r->theta);
    return ok && gauss_newton_back(g, m, e);
}

/* Adds the time since `began` to spent.replay, minus what the host spent on vectors meanwhile. */
static void note_play(Replay *r, double began, double busy) {
    r->spent.replay += sensors_seconds() - began - (r->spent.vectors - busy);
}

static bool play_rows(Replay *r, int phase, WalkRows rows, const Direction *d, Err *e) {
    Run *run = r->run;
    const JobSpec *spec = &run->job->spec;
    Update u = update_at(r);
    if (!stop_check(e) || !check_samples(r, e)) return false;
    int64_t scored = step_list_update(run, u.at);
    step_put_divisor(run, &u, scored);
    for (int64_t m = 0; m * spec->micro_batch < run->rows.n_rows; m++) {
        batch_fill(&run->batch, run->data, &run->rows, m * spec->micro_batch);
        if (rows != WALK_ALL) leave_out(r, &run->batch, m * spec->micro_batch, rows);
        if (d && !play_product(r, d, &(GaussNewtonMicro){&u, m, (double)MAX2(scored, 1)}, e)) return false;
        if (d) continue;
        step_put_micro(run, &u, &run->batch, m);
        exec_play(&run->ring->x, phase);
    }
    r->passes++;
    return true;
}

static bool play_pass(Replay *r, int phase, WalkRows rows, const Direction *d, Err *e) {
    double began = sensors_seconds(), busy = r->spent.vectors;
    bool ok = play_rows(r, phase, rows, d, e);
    note_play(r, began, busy);
    return ok;
}

/* Of the current update: the first ones may be a warm-up's. */
static int pass_phase(const Replay *r) {
    const Job *j = r->run->job;
    return r->step < j->spec.warmup_steps ? j->warmup : j->micro;
}

/* Leaves the gradient of the rows' loss in the gradient slots; with d, its Gauss-Newton product with d instead. */
static bool play_micros(Replay *r, WalkRows rows, const Direction *d, Err *e) {
    return play_pass(r, pass_phase(r), rows, d, e);
}

/* If the log has a checksum of this state, compares the weights with it. */
static bool check_state(Replay *r, Err *e) {
    const HistoryState *known = history_state_before(r->h, r->step);
    bool at_end = r->step == r->h->n_steps;
    if (r->astray || (!at_end && (!known || known->step != r->step))) return true;
    double began = sensors_seconds();
    uint64_t want = at_end ? r->h->checksum : known->checksum,
             have = weights_digest(&r->run->ring->x, job_trained_role(r->run->job));
    r->spent.check += sensors_seconds() - began;
    if (have == want) return true;
    return fail(e, ERR_FAIL,
                "step log %s: the weights after %" PRId64
                " updates are not those that were logged. Was a file of the log "
                "changed, or is this another machine?%s",
                r->h->folder, r->step,
                correction_is_on_ring(r->run->job) ? " If neither, --correction host replays it as it was planned"
                                                   : "");
}

/* Waits for the device, so that a following pass over tensors is timed as transfer alone. */
static bool await_device(Replay *r, Err *e) {
    double began = sensors_seconds();
    bool ok = exec_sync(&r->run->ring->x, e);
    note_play(r, began, r->spent.vectors);
    return ok;
}

/* Plays the update, or, where it is inside backward, that phase as the whole of it. */
static bool play_update_by(Replay *r, int phase, double verdict[VERDICT_WORDS], Err *e) {
    Run *run = r->run;
    Update u = update_at(r);
    if (run->job->spec.update_in_backward) step_put_dials(run, &u);
    if (!r->has_gradients && !play_pass(r, phase, WALK_ALL, NULL, e)) return false;
    double began = sensors_seconds();
    step_queue_update(run, &u);
    note_play(r, began, r->spent.vectors);
    if (!await_device(r, e)) return false;
    exec_get(&run->ring->x, run->job->verdict, verdict, 0, VERDICT_WORDS * 8);
    if (!r->astray && (verdict[VERDICT_OK] == 0) != r->h->step[r->step].overflowed)
        return fail(e, ERR_FAIL,
                    "step log %s: step %" PRId64 " overflows here and did not then, or the other way round",
                    r->h->folder, r->step);
    r->has_gradients = r->has_theta = false;
    r->step++;
    return check_state(r, e);
}

static bool play_update(Replay *r, double verdict[VERDICT_WORDS], Err *e) {
    return play_update_by(r, pass_phase(r), verdict, e);
}

/* ---- the state to start from ---- */

static void zero_moments(Exec *x) {
    static const char zeros[4096];
    for (Tid t = 1; t < x->p->n_t; t++) {
        if (x->p->t[t].role != ROLE_MOMENT || x->p->t[t].base) continue;
        int64_t bytes = prog_bytes(x->p, t);
        for (int64_t at = 0; at < bytes; at += (int64_t)sizeof zeros)
            exec_put(x, t, zeros, at, MIN2((int64_t)sizeof zeros, bytes - at));
    }
}

static bool load_start(Replay *r, Err *e) {
    Exec *x = &r->run->ring->x;
    double began = sensors_seconds();
    zero_moments(x);
    if (!run_start_weights(r->run, e)) return false;
    weights_start_masters(x);
    r->spent.load += sensors_seconds() - began;
    r->step = 0;
    return true;
}

static bool load_state(Replay *r, const HistoryState *s, Err *e) {
    char folder[1024], file[1100];
    Exec *x = &r->run->ring->x;
    if (!history_state_path(folder, sizeof folder, r->h->folder, s->step, e)) return false;
    snprintf(file, sizeof file, "%s/optimizer.safetensors", folder);
    double began = sensors_seconds();
    if (!weights_load(x, NULL, job_trained_role(r->run->job), folder, e) || !weights_load_optimizer(x, file, e) ||
        !exec_sync(x, e))
        return false;
    r->spent.load += sensors_seconds() - began;
    r->step = s->step;
    return check_state(r, e);
}

bool replay_seek(Replay *r, int64_t step, Err *e) {
    CHECK(step >= 0 && step <= r->h->n_steps);
    const HistoryState *s = history_state_before(r->h, step);
    int64_t from = s ? s->step : 0;
    double verdict[VERDICT_WORDS];
    r->moved |= r->astray || r->step != step;
    if (r->astray || r->step > step || r->step < from) {
        r->has_gradients = r->has_theta = r->astray = false;
        if (!(s ? load_state(r, s, e) : load_start(r, e))) return false;
    }
    while (r->step < step)
        if (!play_update(r, verdict, e)) return false;
    return true;
}

static bool saw_removed(const Replay *r) {
    const HistoryStep *s = &r->h->step[r->step];
    bool saw = false;
    for (int64_t i = 0; i < s->n; i++) saw |= r->removed[s->sample[i]];
    return saw;
}

bool replay_retrain(Replay *r, int64_t from, bool whole_steps, Err *e) {
    double verdict[VERDICT_WORDS];
    if (!replay_seek(r, from, e)) return false;
    r->astray = true;
    while (r->step < r->h->n_steps) {
        bool saw = saw_removed(r);
        r->step += saw && whole_steps;
        if (saw && whole_steps) continue;
        if (!play_micros(r, WALK_KEPT, NULL, e)) return false;
        r->has_gradients = true;
        if (!play_update(r, verdict, e)) return false;
    }
    return true;
}

/* ---- the walk: whole vectors ---- */

/* Lazy: if the log has stored the next update, no weights have to be loaded. */
static bool walk_seek(void *user, int64_t step, Err *e) {
    (void)e;
    ((Replay *)user)->walk_step = step;
    return true;
}

static bool catch_up(Replay *r, Err *e) { return replay_seek(r, r->walk_step, e); }

static void make_theta(Replay *r) {
    if (!r->theta) r->theta = vec_new(r->params.n);
}

static void keep_theta(Replay *r) {
    make_theta(r);
    if (!r->has_theta) params_get(&r->params, &r->run->ring->x, PARAMS_THETA, r->theta);
    r->has_theta = true;
}

const float *replay_theta(Replay *r) {
    keep_theta(r);
    return r->theta;
}

static bool walk_gradient(void *user, float *g, WalkRows rows, const float *along, double h, Err *e) {
    Replay *r = user;
    Exec *x = &r->run->ring->x;
    if (!catch_up(r, e)) return false;
    if (along) keep_theta(r);
    if (along) params_put_shifted(&r->params, x, r->theta, along, h);
    bool ok = play_micros(r, rows, NULL, e) && exec_sync(x, e);
    if (ok) params_get(&r->params, x, PARAMS_GRADIENT, g);
    if (ok && r->run->job->unscale) vec_scale(r->team, g, 1 / r->h->step[r->step].scale, r->params.n);
    if (along) params_put(&r->params, x, r->theta);
    r->has_gradients = ok && rows == WALK_ALL && !along;
    return ok;
}

static bool walk_gauss_newton(void *user, float *out, WalkRows rows, const float *along, double h, Err *e) {
    Replay *r = user;
    Exec *x = &r->run->ring->x;
    if (!catch_up(r, e)) return false;
    keep_theta(r);
    r->has_gradients = false;
    bool ok = play_micros(r, rows, &(Direction){along, h}, e) && exec_sync(x, e);
    if (ok) params_get(&r->params, x, PARAMS_GRADIENT, out);
    return ok;
}

typedef struct Difference {
    float *to;
    const float *after;
} Difference;

static void subtract_part(void *context, int64_t from, int64_t end) {
    const Difference *d = context;
    for (int64_t i = from; i < end; i++) d->to[i] = d->after[i] - d->to[i];
}

static void subtract_from(Replay *r, float *to, const float *after) {
    vec_for(r->team, r->params.n, subtract_part, &(Difference){to, after});
}

static bool walk_advance(void *user, float *u, float *dm, WalkRate *rate, Err *e) {
    Replay *r = user;
    Exec *x = &r->run->ring->x;
    double verdict[VERDICT_WORDS], lr = r->h->step[r->walk_step].lr;
    bool wrote = !r->h->step[r->walk_step].overflowed;
    if (!catch_up(r, e)) return false;
    if (u) params_get(&r->params, x, PARAMS_THETA, u);
    if (dm) params_get(&r->params, x, PARAMS_MOMENT, dm);
    if (!play_update(r, verdict, e)) return false;
    r->walk_step = r->step;
    double unscale = r->run->job->unscale ? 1 / r->h->step[r->step - 1].scale : 1;
    *rate = (WalkRate){.lr = wrote ? lr : 0, .scale = verdict[VERDICT_SCALE] / unscale};
    if (u) {
        keep_theta(r);
        subtract_from(r, u, r->theta);
    }
    if (dm) {
        make_theta(r);
        r->has_theta = false; /* the vector is reused for the momentum */
        params_get(&r->params, x, PARAMS_MOMENT, r->theta);
        subtract_from(r, dm, r->theta);
    }
    return true;
}

/* ---- the walk, streamed: v is the only vector ---- */

static Carry *carry_of(Replay *r, float *v) {
    if (!r->carry.copy) carry_open(&r->carry, &r->params, &r->run->ring->x);
    r->carry.v = v;
    return &r->carry;
}

/* Adds the time since `began` to spent.transfer, minus what the host spent on vectors meanwhile. */
static void note_pass(Replay *r, double began, double busy) {
    r->spent.transfer += sensors_seconds() - began - (r->spent.vectors - busy);
}

static double dot_gradient(Replay *r, Carry *c) {
    double began = sensors_seconds(), busy = r->spent.vectors, dot = carry_apply_and_dot(c);
    note_pass(r, began, busy);
    return dot;
}

/* Applies the deferred step tensor by tensor while the device computes the next gradient, for about as long as the last
 * gradient took. The bits do not depend on how far this gets: the next pass does the rest. */
static void apply_meanwhile(Replay *r, Carry *c, double queued_at) {
    double now = queued_at, waited = 0;
    for (int k = c->n_deferred - 1; k >= 0 && now - queued_at < r->device_seconds; k--) {
        carry_apply_deferred(c, k);
        now = sensors_seconds();
    }
    Err e = {0};
    if (await_device(r, &e)) waited = sensors_seconds() - now;
    r->device_seconds = now - queued_at + waited; /* an error sticks and is reported by the next sync */
}

/* Plays the update, whose gradient g has just given dot = g . v, and defers its step over v; the step is applied at
 * once if no other Fisher product follows. */
static bool update_and_defer(Replay *r, Carry *c, double dot, const WalkFisher *how, WalkRate *rate, double *norm,
                             Err *e) {
    double unscale = r->run->job->unscale ? 1 / r->h->step[r->step].scale : 1;
    if (!walk_advance(r, NULL, NULL, rate, e)) return false;
    double times = rate->scale * dot * unscale * unscale, began = sensors_seconds();
    *norm = carry_defer(c, (CarryStep){rate->lr, how->damping, times}, &how->guard);
    if (how->more && !play_micros(r, WALK_ALL, NULL, e)) return false;
    r->has_gradients = how->more;
    if (how->more) {
        apply_meanwhile(r, c, began);
        return true;
    }
    bool held = how->guard.on && !(*norm <= how->guard.limit);
    carry_apply_deferred(c, 0);
    if (!held) *norm = carry_norm(c);
    return true;
}

static bool walk_fisher(void *user, float *v, const WalkFisher *how, WalkRate *rate, double *norm, Err *e) {
    Replay *r = user;
    Carry *c = carry_of(r, v);
    if (!catch_up(r, e) || (!r->has_gradients && !play_micros(r, WALK_ALL, NULL, e))) return false;
    if (!await_device(r, e)) return false;
    double dot = dot_gradient(r, c);
    if (!exec_sync(&r->run->ring->x, e)) return false;
    r->has_gradients = true;
    return update_and_defer(r, c, dot, how, rate, norm, e);
}

static bool remove_stored(Replay *r, Carry *c, const HistoryUpdate *known, double *added, double *norm, Err *e) {
    StoredSource from;
    double began = sensors_seconds();
    if (!stored_open(&from, &r->run->ring->p, r->h->folder, known, e)) return false;
    bool ok = carry_remove_stored(c, &from, added, norm, e);
    stored_close(&from);
    r->spent.vectors += sensors_seconds() - began;
    r->updates_read++;
    r->walk_step++;
    return ok;
}

static bool remove_replayed(Replay *r, Carry *c, double *added, double *norm, Err *e) {
    WalkRate rate;
    if (!catch_up(r, e)) return false;
    double began = sensors_seconds(), busy = r->spent.vectors;
    carry_keep_theta(c);
    note_pass(r, began, busy);
    if (!walk_advance(r, NULL, NULL, &rate, e)) return false;
    began = sensors_seconds();
    busy = r->spent.vectors;
    carry_remove(c, added, norm);
    note_pass(r, began, busy);
    return exec_sync(&r->run->ring->x, e);
}

static bool walk_remove(void *user, float *v, bool fresh, double *added, double *norm, Err *e) {
    Replay *r = user;
    Carry *c = carry_of(r, v);
    const HistoryUpdate *known = history_update_of(r->h, r->walk_step);
    c->fresh = fresh;
    return known ? remove_stored(r, c, known, added, norm, e) : remove_replayed(r, c, added, norm, e);
}

double replay_add(Replay *r, const float *change) {
    r->has_theta = r->has_gradients = false;
    return params_add(&r->params, &r->run->ring->x, change, carry_of(r, NULL)->copy);
}

/* ---- the walk, with v on the ring (correction.h): the caller has none ---- */

static bool read_sums(Replay *r, VecSums *all, Err *e) {
    int n = r->params.n_tensors;
    if (!r->sums) r->sums = MEM_NEW(VecSums, n);
    return correction_read(r->run, r->sums, n, all, e);
}

/* Plays the current update, before which v takes the step that is due; all: of v and g, or of v and u. */
static bool carry_on_ring(Replay *r, bool remove, VecSums *all, Err *e) {
    double verdict[VERDICT_WORDS];
    correction_put(r->run, &r->due, remove);
    r->due = (CorrectionStep){.keep = 1};
    if (!play_update_by(r, correction_carry_phase(r->run->job), verdict, e)) return false;
    r->walk_step = r->step;
    return read_sums(r, all, e);
}

static double norm_ahead_on_ring(const Replay *r, CarryStep s) {
    double square = 0;
    for (int k = 0; k < r->params.n_tensors; k++) square += carry_square_ahead(&r->params.span[k], s, r->sums[k]);
    return sqrt(isnan(square) ? square : fmax(square, 0));
}

static bool fisher_on_ring(void *user, float *v, const WalkFisher *how, WalkRate *rate, double *norm, Err *e) {
    Replay *r = user;
    VecSums all;
    (void)v;
    if (!catch_up(r, e) || !carry_on_ring(r, false, &all, e)) return false;
    *rate = (WalkRate){.lr = r->h->step[r->step - 1].lr, .scale = 1};
    CarryStep s = {.lr = rate->lr, .damping = how->damping, .times = all.vg};
    *norm = norm_ahead_on_ring(r, s);
    r->due = (CorrectionStep){.step = s, .keep = carry_held_at(&how->guard, *norm)};
    return true;
}

static bool remove_on_ring(void *user, float *v, bool fresh, double *added, double *norm, Err *e) {
    Replay *r = user;
    VecSums all;
    (void)v;
    if (fresh) r->due = (CorrectionStep){.keep = 0};
    if (!catch_up(r, e) || !carry_on_ring(r, true, &all, e)) return false;
    *added = sqrt(all.gg);
    *norm = sqrt(all.vv);
    return true;
}

static void scale_on_ring(void *user, double by) { ((Replay *)user)->due.keep *= by; }

bool replay_apply_correction(Replay *r, double *asked, double *applied, Err *e) {
    VecSums all;
    r->has_theta = r->has_gradients = false;
    correction_apply(r->run, &r->due);
    if (!read_sums(r, &all, e)) return false;
    *asked = sqrt(all.vv);
    *applied = sqrt(all.gg);
    return true;
}

/* ---- the table of functions ---- */

static double walk_norm(void *user) {
    Replay *r = user;
    Err e = {0};
    if (!catch_up(r, &e)) return NAN; /* the next call of gradient reports the error */
    keep_theta(r);
    return vec_norm(r->team, r->theta, r->params.n);
}

static double walk_lr(void *user) {
    const Replay *r = user;
    return r->h->step[r->walk_step].lr;
}

Walk replay_walk(Replay *r) {
    const JobSpec *s = &r->run->job->spec;
    bool sgd = s->optimizer == OPTIMIZER_SGD, on_ring = correction_is_on_ring(r->run->job);
    double momentum = sgd ? s->update.beta1 : 0;
    return (Walk){.user = r,
                  .n = r->params.n,
                  .steps = r->h->n_steps,
                  .span = r->params.span,
                  .n_spans = r->params.n_tensors,
                  .momentum = momentum,
                  .team = r->team,
                  .spent = &r->spent,
                  .adaptive = !sgd,
                  .seek = walk_seek,
                  .gradient = walk_gradient,
                  .fisher = on_ring ? fisher_on_ring : momentum > 0 ? NULL : walk_fisher,
                  .remove = on_ring ? remove_on_ring : momentum > 0 ? NULL : walk_remove,
                  .scale = on_ring ? scale_on_ring : NULL,
                  .gauss_newton = s->task == &task_gauss_newton ? walk_gauss_newton : NULL,
                  .advance = walk_advance,
                  .norm = walk_norm,
                  .lr = walk_lr};
}
