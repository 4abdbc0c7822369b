/* replay.c - which inputs an update had, how it is played again, and from where a replay begins. */
#include "unlearn/replay.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/stop.h"
#include "unlearn/vec.h"
#include "weights/weights.h"

int64_t replay_theta_bytes(const Job *j) { return 4 * model_count(&j->ring->p, true); }

int64_t replay_copy_bytes(const Job *j) {
    Params p;
    params_init(&p, j);
    int64_t bytes = p.raw_bytes + p.n_tiles * (int64_t)sizeof(double);
    params_free(&p);
    return bytes;
}

int64_t replay_stack_bytes(int threads) { return (threads - 1) * (int64_t)THREAD_STACK_BYTES; }

bool replay_open(Replay *r, Run *run, const History *h, int threads, Err *e) {
    *r = (Replay){.run = run, .h = h};
    if (!h->ended)
        return fail(e, ERR_FAIL,
                    "step log %s: is cut short: it holds %" PRId64
                    " updates and not the end of the run. Was the run "
                    "interrupted? Finish it with --resume",
                    h->folder, h->n_steps);
    CHECK(!run->job->spec.update_in_backward);
    params_init(&r->params, run->job);
    if (!threads_open(&r->team, threads, e)) return false;
    r->params.team = r->team;
    gauss_newton_init(&r->gauss_newton, run, r->team);
    return true;
}

void replay_close(Replay *r) {
    if (r->team) threads_close(r->team);
    params_free(&r->params);
    gauss_newton_free(&r->gauss_newton);
    mem_free(r->theta);
    mem_free(r->copy);
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

/* Rows that are left out keep their place in the divisor. */
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

typedef struct Direction { /* of a product */
    const float *v;
    double h;
} Direction;

/* The product of a micro-batch; the weights end at theta. */
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

/* Gradients of the rows' loss; with a direction products with its Gauss-Newton matrix in their place. */
static bool play_micros(Replay *r, WalkRows rows, const Direction *d, Err *e) {
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
        exec_play(&run->ring->x, run->job->micro);
    }
    r->passes++;
    return true;
}

/* A state that the log knows. */
static bool check_state(Replay *r, Err *e) {
    const HistoryState *known = history_state_before(r->h, r->step);
    bool at_end = r->step == r->h->n_steps;
    if (r->astray || (!at_end && (!known || known->step != r->step))) return true;
    uint64_t want = at_end ? r->h->checksum : known->checksum;
    if (weights_digest(&r->run->ring->x, job_trained_role(r->run->job)) == want) return true;
    return fail(e, ERR_FAIL,
                "step log %s: the weights after %" PRId64
                " updates are not those that were logged. Was a file of the log "
                "changed, or is this another machine?",
                r->h->folder, r->step);
}

static bool play_update(Replay *r, double verdict[VERDICT_WORDS], Err *e) {
    Run *run = r->run;
    Update u = update_at(r);
    if (!r->has_gradients && !play_micros(r, WALK_ALL, NULL, e)) return false;
    step_queue_update(run, &u);
    if (!exec_sync(&run->ring->x, e)) return false;
    exec_get(&run->ring->x, run->job->verdict, verdict, 0, VERDICT_WORDS * 8);
    if (!r->astray && (verdict[VERDICT_OK] == 0) != r->h->step[r->step].overflowed)
        return fail(e, ERR_FAIL,
                    "step log %s: step %" PRId64 " overflows here and did not then, or the other way round",
                    r->h->folder, r->step);
    r->has_gradients = r->has_theta = false;
    r->step++;
    return check_state(r, e);
}

/* ---- from where ---- */

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
    zero_moments(x);
    if (!run_start_weights(r->run, e)) return false;
    weights_start_masters(x);
    r->step = 0;
    return true;
}

static bool load_state(Replay *r, const HistoryState *s, Err *e) {
    char folder[1024], file[1100];
    Exec *x = &r->run->ring->x;
    if (!history_state_path(folder, sizeof folder, r->h->folder, s->step, e)) return false;
    snprintf(file, sizeof file, "%s/optimizer.safetensors", folder);
    if (!weights_load(x, NULL, job_trained_role(r->run->job), folder, e) || !weights_load_optimizer(x, file, e))
        return false;
    r->step = s->step;
    return check_state(r, e);
}

bool replay_seek(Replay *r, int64_t step, Err *e) {
    CHECK(step >= 0 && step <= r->h->n_steps);
    const HistoryState *s = history_state_before(r->h, step);
    int64_t from = s ? s->step : 0;
    double verdict[VERDICT_WORDS];
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

/* ---- as a walk ---- */

static bool walk_seek(void *user, int64_t step, Err *e) { return replay_seek(user, step, e); }

static void make_theta(Replay *r) {
    if (!r->theta) r->theta = MEM_NEW(float, r->params.n);
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
    double verdict[VERDICT_WORDS], lr = r->h->step[r->step].lr;
    bool wrote = !r->h->step[r->step].overflowed;
    if (u) params_get(&r->params, x, PARAMS_THETA, u);
    if (dm) params_get(&r->params, x, PARAMS_MOMENT, dm);
    if (!play_update(r, verdict, e)) return false;
    double unscale = r->run->job->unscale ? 1 / r->h->step[r->step - 1].scale : 1;
    *rate = (WalkRate){.lr = wrote ? lr : 0, .scale = verdict[VERDICT_SCALE] / unscale};
    if (u) {
        keep_theta(r);
        subtract_from(r, u, r->theta);
    }
    if (dm) {
        make_theta(r);
        r->has_theta = false; /* its place serves for the momentum */
        params_get(&r->params, x, PARAMS_MOMENT, r->theta);
        subtract_from(r, dm, r->theta);
    }
    return true;
}

/* ---- a piece at a time: v is the only vector, and the device works while the host does ---- */

typedef struct Streamed {
    Replay *r;
    float *v;
    double *of_tile; /* owns; a sum a tile */
    double lr, damping, times; /* times: of the gradient as stored, before the tensor's own rate */
} Streamed;

static void make_copy(Replay *r) {
    if (!r->copy) r->copy = mem_alloc(r->params.raw_bytes);
}

static Streamed stream_open(Replay *r, float *v) {
    make_copy(r);
    return (Streamed){.r = r, .v = v, .of_tile = MEM_NEW(double, r->params.n_tiles)};
}

/* The sum over tiles; begins anew. */
static double stream_sum(Streamed *s) {
    double sum = vec_sum(s->of_tile, s->r->params.n_tiles);
    memset(s->of_tile, 0, sizeof(double) * (size_t)s->r->params.n_tiles);
    return sum;
}

static char *copy_of(const Streamed *s, const ParamsBlock *b) { return s->r->copy + b->k->raw + b->at * b->item; }

static void copy_block(void *context, const ParamsBlock *b) {
    memcpy(copy_of(context, b), b->raw, (size_t)(b->n * b->item));
}

static void dot_block(void *context, const ParamsBlock *b) {
    Streamed *s = context;
    copy_block(s, b);
    s->of_tile[b->tile] += vec_block_dot(b->value, s->v + b->k->first + b->at, b->n);
}

static void step_block(void *context, const ParamsBlock *b) {
    Streamed *s = context;
    const WalkSpan *span = &s->r->params.span[b->k - s->r->params.tensor];
    double keep = 1 - s->lr * span->mult * (span->decay + s->damping);
    s->of_tile[b->tile] +=
        vec_block_step(s->v + b->k->first + b->at, b->value, keep, s->times * s->lr * span->mult, b->n);
}

/* The gradient is kept as stored, so that the update and the next gradient need not wait for the host's work on v. */
static bool carry_through(Streamed *s, const WalkFisher *how, WalkRate *rate, Err *e) {
    Replay *r = s->r;
    Exec *x = &r->run->ring->x;
    double unscale = r->run->job->unscale ? 1 / r->h->step[r->step].scale : 1;
    if (!r->has_gradients && !play_micros(r, WALK_ALL, NULL, e)) return false;
    params_read(&r->params, x, PARAMS_GRADIENT, dot_block, s);
    if (!exec_sync(x, e)) return false;
    r->has_gradients = true;
    double dot = stream_sum(s) * unscale;
    if (!walk_advance(r, NULL, NULL, rate, e)) return false;
    r->has_gradients = how->more;
    if (how->more && !play_micros(r, WALK_ALL, NULL, e)) return false;
    s->lr = rate->lr;
    s->damping = how->damping;
    s->times = rate->scale * dot * unscale;
    params_read_copy(&r->params, x, PARAMS_GRADIENT, r->copy, step_block, s);
    return true;
}

static bool walk_fisher(void *user, float *v, const WalkFisher *how, WalkRate *rate, double *norm, Err *e) {
    Streamed s = stream_open(user, v);
    bool ok = carry_through(&s, how, rate, e);
    *norm = sqrt(stream_sum(&s));
    mem_free(s.of_tile);
    return ok;
}

static void remove_block(void *context, const ParamsBlock *b) {
    Streamed *s = context;
    float u[PARAMS_BLOCK];
    format_table[b->k->format].decode(u, copy_of(s, b), 1, b->n, 0, 1);
    for (int64_t i = 0; i < b->n; i++) u[i] = b->value[i] - u[i];
    vec_block_step(s->v + b->k->first + b->at, u, 1, 1, b->n);
    s->of_tile[b->tile] += vec_block_dot(u, u, b->n);
}

static bool walk_remove(void *user, float *v, double *added, Err *e) {
    Streamed s = stream_open(user, v);
    Replay *r = user;
    Exec *x = &r->run->ring->x;
    WalkRate rate;
    params_read(&r->params, x, PARAMS_THETA, copy_block, &s);
    bool ok = walk_advance(r, NULL, NULL, &rate, e);
    if (ok) params_read(&r->params, x, PARAMS_THETA, remove_block, &s);
    ok = ok && exec_sync(x, e);
    *added = sqrt(stream_sum(&s));
    mem_free(s.of_tile);
    return ok;
}

double replay_add(Replay *r, const float *change) {
    make_copy(r);
    r->has_theta = r->has_gradients = false;
    return params_add(&r->params, &r->run->ring->x, change, r->copy);
}

/* ---- the walk ---- */

static double walk_norm(void *user) {
    Replay *r = user;
    keep_theta(r);
    return vec_norm(r->team, r->theta, r->params.n);
}

static double walk_lr(void *user) {
    const Replay *r = user;
    return r->h->step[r->step].lr;
}

Walk replay_walk(Replay *r) {
    const JobSpec *s = &r->run->job->spec;
    bool sgd = s->optimizer == OPTIMIZER_SGD;
    double momentum = sgd ? s->update.beta1 : 0;
    return (Walk){.user = r,
                  .n = r->params.n,
                  .steps = r->h->n_steps,
                  .span = r->params.span,
                  .n_spans = r->params.n_tensors,
                  .momentum = momentum,
                  .team = r->team,
                  .adaptive = !sgd,
                  .seek = walk_seek,
                  .gradient = walk_gradient,
                  .fisher = momentum > 0 ? NULL : walk_fisher,
                  .remove = momentum > 0 ? NULL : walk_remove,
                  .gauss_newton = s->task == &task_gauss_newton ? walk_gauss_newton : NULL,
                  .advance = walk_advance,
                  .norm = walk_norm,
                  .lr = walk_lr};
}
