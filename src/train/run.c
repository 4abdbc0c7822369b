/* run.c - the loop: fill a batch, play the micro-steps, play the update, look at the numbers. */
#include "train/run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/units.h"
#include "obs/sensors.h"
#include "store/checkpoint.h"
#include "store/folder.h"
#include "weights/weights.h"

int64_t run_steps_per_epoch(const Dataset *d, int64_t global_batch) {
    return (dataset_rows(d) + global_batch - 1) / global_batch;
}

static FeedPlan feed_plan(const JobSpec *s, int64_t global_batch, int workers) {
    return (FeedPlan){
        .rows = s->micro_batch, .seq = s->seq, .global_rows = global_batch, .accum = s->accum, .workers = workers};
}

int64_t run_batch_bytes(const JobSpec *s, int64_t global_batch, int data_workers) {
    FeedPlan p = feed_plan(s, global_batch, data_workers);
    return batch_bytes(s->micro_batch, s->seq) + (s->train ? feed_bytes(&p) : 0) + (int64_t)data_workers * FEED_STACK_BYTES;
}

static Role trained_role(const Job *j) { return j->spec.lora ? ROLE_ADAPTER : ROLE_WEIGHT; }

/* ---- opening ---- */

static bool start_weights(Run *r, Err *e) {
    Job *j = r->job;
    exec_play(&r->ring->x, j->init); /* random weights and fresh adapters; nothing when all come from files */
    if (!exec_sync(&r->ring->x, e)) return false;
    if (r->o.model_folder && !weights_load(&r->ring->x, NULL, ROLE_WEIGHT, r->o.model_folder, e)) return false;
    if (r->o.adapter_folder && !weights_load(&r->ring->x, NULL, ROLE_ADAPTER, r->o.adapter_folder, e)) return false;
    return true;
}

/* Puts right what a killed run left, beside its checkpoints too. */
static bool recover(const char *out, Err *e) {
    static const char *const names[] = {"model", "adapter", "config.yaml", "plan.json"};
    char path[1200];
    bool ok = checkpoint_recover(out, e);
    for (int i = 0; ok && i < COUNT_OF(names); i++) {
        snprintf(path, sizeof path, "%s/%s", out, names[i]);
        ok = folder_recover(path, e);
    }
    return ok;
}

/* A checkpoint that cannot be read now is one too: a new run would write over it. */
static bool refuse_other_run(const char *out, Err *e) {
    int64_t *steps, n;
    if (!checkpoint_list(out, &steps, &n, e)) return false;
    if (n)
        fail(e, ERR_FAIL,
             "%s: holds a run (checkpoint-%lld). Go on with --resume, or choose another --out, or give --overwrite",
             out, (long long)steps[n - 1]);
    mem_free(steps);
    return n == 0;
}

static bool open_folder(Run *r, Err *e) {
    char path[1200];
    if (!file_make_dirs(r->o.out, e) || !runlock_take(&r->lock, r->o.out, e) || !recover(r->o.out, e)) return false;
    if (!r->o.resume && !refuse_other_run(r->o.out, e)) return false;
    snprintf(path, sizeof path, "%s/train.log", r->o.out);
    if (!log_open_file(path, e)) return false;
    const struct {
        const char *name, *text;
    } files[] = {{"config.yaml", r->o.config_yaml}, {"plan.json", r->o.plan_json}};
    for (int i = 0; i < COUNT_OF(files); i++) {
        snprintf(path, sizeof path, "%s/%s", r->o.out, files[i].name);
        if (files[i].text && !file_write_all(path, files[i].text, (int64_t)strlen(files[i].text), e)) return false;
    }
    return true;
}

bool run_open(Run *r, Job *job, Backend *b, Dataset *data, Dataset *held_out, const RunOptions *o, Err *e) {
    *r = (Run){.job = job, .ring = job->ring, .data = data, .held_out = held_out, .o = *o, .lock = {.fd = -1}};
    r->metrics.fd = -1;
    arena_init(&r->arena, "run");
    trainer_state_init(&r->state);
    if (job->unscale) r->state.scaling.scale = o->loss_scale;
    else r->o.loss_scale_window = 0;
    for (int i = 0; i < o->n_settings; i++) trainer_state_set(&r->state, o->settings[2 * i], o->settings[2 * i + 1]);
    if (o->out && !open_folder(r, e)) return false;
    if (!ring_open(r->ring, b, e)) return false;
    batch_init(&r->batch, &r->arena, job->spec.micro_batch, job->spec.seq);
    FeedPlan p = feed_plan(&job->spec, o->global_batch, o->data_workers);
    if (job->spec.train) feed_open(&r->feed, &r->arena, data, &p);
    if (!start_weights(r, e) || !ring_settle(r->ring, e)) return false;
    if (o->out && o->resume) {
        if (!run_resume(r, e)) return false;
    } else {
        weights_start_masters(&r->ring->x);
    }
    if (o->out) {
        int64_t rows =
            (o->total_steps - r->step) / MAX2(o->log_steps, 1) + (o->eval_steps ? o->total_steps / o->eval_steps : 0);
        trainer_state_reserve_log(&r->state, r->state.n_log + rows + 4);
        if (!metrics_open(&r->metrics, o->out, r->step, e)) return false;
        r->metrics_open = true;
    }
    if (o->warm && !run_warm(r, e)) return false;
    if (o->trim_every) exec_find_idle(&r->ring->x, job->micro);
    growth_init(&r->growth, o->growth_alarm_bytes, 3);
    ring_measure(r->ring);
    return true;
}

void run_close(Run *r) {
    if (r->metrics_open) metrics_close(&r->metrics);
    feed_close(r->feed);
    if (r->ring->x.b) exec_close(&r->ring->x);
    trainer_state_free(&r->state);
    arena_free(&r->arena);
    runlock_release(&r->lock);
    if (r->o.out) log_close_file();
}

/* ---- evaluation ---- */

static bool asked_to_stop(const Run *r) { return r->o.stop && *r->o.stop; }

bool run_evaluate(Run *r, Dataset *d, double *loss, int64_t *tokens, Err *e) {
    const Job *j = r->job;
    int64_t rows = dataset_rows(d), micro = j->spec.micro_batch, batches = (rows + micro - 1) / micro, scored = 0;
    if (r->o.eval_batches) batches = MIN2(batches, r->o.eval_batches);
    step_put_float(r, j->divisor, 1);
    *tokens = 0;
    for (int64_t i = 0; i < batches; i++) {
        batch_fill(&r->batch, d, 0, i * micro, MIN2(micro, rows - i * micro));
        scored += r->batch.scored;
        *tokens += r->batch.scored;
        step_put_batch(r, &r->batch);
        step_put_float(r, r->ring->p.beta, i ? 1 : 0);
        exec_play(&r->ring->x, j->evaluate);
        if (asked_to_stop(r) && i + 1 < batches) /* a part of the set has another loss */
            return exec_sync(&r->ring->x, e) && fail(e, ERR_FAIL, "evaluation: stopped by signal %d after %lld of %lld batches",
                                               (int)*r->o.stop, (long long)i + 1, (long long)batches);
    }
    if (!exec_sync(&r->ring->x, e)) return false;
    if (!scored) return fail(e, ERR_FAIL, "evaluation: no token of the set is scored");
    double sum;
    exec_get(&r->ring->x, j->eval_loss, &sum, 0, 8);
    *loss = sum / (double)scored;
    ring_measure(r->ring);
    if (!isfinite(*loss)) return fail(e, ERR_FAIL, "evaluation: the loss is not finite (%g)", *loss);
    return true;
}

static bool evaluate_now(Run *r, RunResult *out, Err *e) {
    int64_t tokens = 0;
    double loss = 0;
    Err why = {0};
    if (!run_evaluate(r, r->held_out, &loss, &tokens, &why)) {
        if (!asked_to_stop(r)) return fail(e, why.code, "%s", why.text);
        log_line("%s; the resumed run does it again", why.text);
        return true;
    }
    out->eval_loss = loss;
    double epoch = (double)r->state.data_epoch + (double)r->state.data_row / (double)dataset_rows(r->data);
    trainer_state_log(&r->state, &(TrainerLog){.step = r->step, .epoch = epoch, .is_eval = true, .loss = loss});
    bool best = r->state.best_step < 0 || loss < r->state.best_metric;
    log_line("evaluation after step %lld: loss %.6f, perplexity %.3f over %s tokens%s", (long long)r->step, loss, exp(loss),
             units_count(tokens).s, best ? " (best so far)" : "");
    r->best_now = best;
    if (best) {
        r->state.best_step = r->step;
        r->state.best_metric = loss;
        checkpoint_path(r->state.best_model_checkpoint, sizeof r->state.best_model_checkpoint, r->o.out, r->step, NULL);
    }
    const Metric fields[] = {METRIC_REAL("loss", loss), METRIC_REAL("perplexity", exp(loss)), METRIC_INT("tokens", tokens)};
    return metrics_write(&r->metrics, "eval", r->step, fields, COUNT_OF(fields), e);
}

/* ---- the loop ---- */

static bool log_step(Run *r, double loss, double norm, double lr, Err *e) {
    double epoch = (double)r->state.data_epoch + (double)r->state.data_row / (double)dataset_rows(r->data);
    trainer_state_log(
        &r->state,
        &(TrainerLog){.step = r->step, .epoch = epoch, .loss = loss, .grad_norm = norm, .learning_rate = lr});
    int unscaled = r->job->unscale ? 0 : 2; /* the last two are about a scaled loss */
    const Metric fields[] = {METRIC_REAL("loss", loss), METRIC_REAL("grad_norm", norm), METRIC_REAL("learning_rate", lr),
                             METRIC_REAL("epoch", epoch), METRIC_REAL("tokens_per_s", progress_recent_per_s(&r->progress)),
                             METRIC_REAL("data_wait_share", progress_wait_share(&r->progress)),
                             METRIC_INT("tokens_seen", r->state.tokens_seen),
                             METRIC_INT("process_bytes", r->ring->peak_bytes),
                             METRIC_REAL("loss_scale", r->state.scaling.scale),
                             METRIC_INT("skipped_steps", r->state.scaling.skipped)};
    return metrics_write(&r->metrics, "train", r->step, fields, COUNT_OF(fields) - unscaled, e);
}

static bool evaluates_after(const Run *r, int64_t step) {
    return r->held_out && (step == r->o.total_steps || (r->o.eval_steps && step % r->o.eval_steps == 0));
}

static bool saves_after(const Run *r, int64_t step) {
    return step == r->o.total_steps || (r->o.save_steps && step % r->o.save_steps == 0);
}

/* A signal stopped the run in the middle of an evaluation: it belongs to the step that was saved. */
static bool evaluate_what_was_left_out(Run *r, RunResult *out, Err *e) {
    bool due = r->step > 0 && evaluates_after(r, r->step) && !r->o.dry_run;
    for (int64_t i = r->state.n_log - 1; due && i >= 0 && r->state.log[i].step == r->step; i--)
        due = !r->state.log[i].is_eval;
    return !due || (evaluate_now(r, out, e) && (!r->o.save || run_save_checkpoint(r, e)));
}

static bool trims_after(const Run *r, int64_t step) { return r->o.trim_every && step % r->o.trim_every == 0; }

static bool after_step(Run *r, RunResult *out, const Update *u, Err *e) {
    bool log_now = r->step % r->o.log_steps == 0 || r->step == r->o.total_steps || r->step == 1;
    int64_t grown;
    ring_measure(r->ring);
    if (growth_feed(&r->growth, &grown, ring_in_use(r->ring)))
        log_warn("the process has grown by %s since its first steps", units_bytes(grown).s);
    r->best_now = false;
    if (u->skipped)
        log_line("step %lld: a gradient overflowed, nothing was written; the loss scale falls to %g", (long long)r->step,
                 r->state.scaling.scale);
    progress_show(&r->progress, &(ProgressFacts){u->loss, u->norm, u->lr, r->state.scaling.skipped}, log_now);
    if (r->progress.steps_here == 3 && r->o.total_steps > 10)
        log_line("at this pace the whole job takes %s", units_seconds(progress_job_seconds(&r->progress)).s);
    if (log_now && !log_step(r, u->loss, u->norm, u->lr, e)) return false;
    return !evaluates_after(r, r->step) || evaluate_now(r, out, e);
}

/* Waits for the numbers of an update and does what follows from them. */
static bool finish_step(Run *r, RunResult *out, Update *u, Err *e) {
    if (!step_read(r, u, e)) return false;
    double now = sensors_seconds();
    progress_step(&r->progress, u->tokens, now - r->step_began, u->data_seconds, now);
    bool first = r->progress.steps_here == 1;
    if (first) out->first_loss = u->loss;
    out->loss = u->loss;
    if (!after_step(r, out, u, e)) return false;
    if (!first) out->allocations_after_first_step += mem_stats().requests - r->requests;
    out->stopped_by = r->o.stop ? (int)*r->o.stop : 0;
    bool save = saves_after(r, r->step) || out->stopped_by || (r->o.save_best && r->best_now);
    if (save && r->o.save && !run_save_checkpoint(r, e)) return false;
    if (trims_after(r, r->step) && !out->stopped_by && !run_trim(r, e)) return false;
    r->requests = mem_stats().requests; /* a checkpoint's small JSON is not part of the played plan */
    r->step_began = sensors_seconds();
    return true;
}

/* The micro-steps of u were queued as if the update before had been good: begin again behind it. */
static bool queue_again(Run *r, Update *u, Err *e) {
    feed_stop(r->feed);
    if (!feed_start(r->feed, r->state.data_epoch, r->state.data_row, e)) return false;
    step_queue_micros(r, u, NULL);
    return true;
}

/* On a device that works while the host goes on, the numbers of an update are read when the micro-steps of the next
 * are queued; where something looks at the state between two updates, at once. So are those of the first: speed is
 * counted from its end, and a host that queues ahead can be held up until much of the second is done. */
static bool play_steps(Run *r, RunResult *out, Err *e) {
    Update u, before;
    bool late = false; /* `before` is on its way */
    r->step_began = sensors_seconds();
    for (int64_t step = r->step; step < r->o.total_steps; step++) {
        step_queue_micros(r, &u, late ? &before : NULL);
        if (late && !finish_step(r, out, &before, e)) return false;
        if (out->stopped_by) return exec_sync(&r->ring->x, e); /* the micro-steps queued last have changed no state */
        if (late && before.skipped && !queue_again(r, &u, e)) return false;
        step_queue_update(r, &u);
        bool looks = evaluates_after(r, step + 1) || saves_after(r, step + 1) || trims_after(r, step + 1);
        late = r->o.ahead && r->progress.steps_here && !looks;
        before = u;
        if (!late && !finish_step(r, out, &u, e)) return false;
        if (out->stopped_by) return true;
    }
    return true;
}

static void load_first_micro(void *run) { step_load_micro(run, 0); }

bool run_train(Run *r, RunResult *out, Err *e) {
    *out = (RunResult){.first_loss = NAN, .loss = NAN, .eval_loss = NAN, .planned_bytes = r->ring->placement.arena_bytes[POOL_DEVICE],
                       .process_planned_bytes = ring_process_bytes(r->ring)};
    out->measured_bytes = r->ring->x.pool_bytes[POOL_DEVICE];
    progress_begin(&r->progress, r->step, r->o.total_steps, sensors_seconds());
    arena_seal(&r->arena);
    if (!evaluate_what_was_left_out(r, out, e)) return false;
    if (!r->o.dry_run && r->step < r->o.total_steps) {
        bool ok = feed_start(r->feed, r->state.data_epoch, r->state.data_row, e) && play_steps(r, out, e);
        feed_stop(r->feed);
        if (!ok) return false;
    }
    out->steps = r->step;
    out->skipped_steps = r->state.scaling.skipped;
    out->tokens_per_s = progress_tokens_per_s(&r->progress);
    out->process_measured_bytes = r->ring->peak_bytes;
    out->checksum = weights_checksum(&r->ring->x, trained_role(r->job));
    if (r->o.dry_run || out->stopped_by) return true;
    if (r->o.save && !run_save_result(r, out, e)) return false;
    if (!r->o.profile) return true;
    Str text = {0}; /* last: the weights are written, one more update does no harm */
    int phase[] = {r->job->micro, r->job->update};
    ProfileLoad inputs = {.load = load_first_micro, .user = r};
    bool ok = exec_profile(&r->ring->x, &text, phase, r->job->update < 0 ? 1 : 2, 1, inputs,
                           "one micro-step and one update", e);
    log_line("%s", str_text(&text));
    str_free(&text);
    return ok;
}
