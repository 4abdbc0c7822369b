/* run.c - the loop: fill a batch, play the micro-steps, play the update, look at the numbers. */
#include "train/run_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/stop.h"
#include "base/threads.h"
#include "base/units.h"
#include "base/work.h"
#include "obs/sensors.h"
#include "store/checkpoint.h"
#include "weights/weights.h"

int64_t run_epoch_rows(const Run *r) { return r->o.source ? r->o.source->rows : dataset_rows(r->data); }

int64_t run_steps_per_epoch(const Dataset *d, int64_t global_batch) {
    return (dataset_rows(d) + global_batch - 1) / global_batch;
}

static FeedPlan feed_plan(const JobSpec *s, int64_t global_batch, const Dataset *d, int workers) {
    return (FeedPlan){.rows = s->micro_batch, .seq = s->seq, .global_batch = MIN2(global_batch, dataset_rows(d)),
                      .accum = s->accum, .workers = workers};
}

/* Samples that are evaluated together, packed among themselves: enough to fill rows well. */
enum { EVAL_SAMPLES = 64 };

static int64_t list_rows(const JobSpec *s, int64_t global_batch, const Dataset *d) {
    int64_t least = MAX2(EVAL_SAMPLES, s->micro_batch);
    return d ? MAX2(least, MIN2(global_batch, dataset_rows(d))) : least;
}

int64_t run_batch_bytes(const JobSpec *s, int64_t global_batch, const Dataset *d, int data_workers) {
    int64_t own = batch_bytes(s->micro_batch, s->seq) + row_list_bytes(list_rows(s, global_batch, d));
    if (!s->train || !d) return own;
    FeedPlan p = feed_plan(s, global_batch, d, data_workers);
    return own + feed_bytes(&p) + (int64_t)data_workers * FEED_STACK_BYTES;
}

/* ---- opening ---- */

bool run_start_weights(Run *r, Err *e) {
    Job *j = r->job;
    exec_play(&r->ring->x, j->init); /* random weights and fresh adapters; nothing when all come from files */
    if (!exec_sync(&r->ring->x, e)) return false;
    if (r->o.model_folder && !weights_load(&r->ring->x, NULL, ROLE_WEIGHT, r->o.model_folder, e)) return false;
    if (r->o.adapter_folder && !weights_load(&r->ring->x, NULL, ROLE_ADAPTER, r->o.adapter_folder, e)) return false;
    return true;
}

/* What was trained so far, or the start of it. */
static bool start_state(Run *r, Err *e) {
    const RunOptions *o = &r->o;
    if (o->folder && run_folder_resumes(o->folder)) {
        if (!run_resume(r, e)) return false;
    } else {
        weights_start_masters(&r->ring->x);
    }
    int64_t rows =
        (o->total_steps - r->step) / MAX2(o->log_steps, 1) + (o->eval_steps ? o->total_steps / o->eval_steps : 0);
    if (o->folder) trainer_state_reserve_log(&r->state, r->state.n_log + rows + 4);
    return true;
}

bool run_open(Run *r, Job *job, Backend *b, Dataset *data, Dataset *held_out, const RunOptions *o, Err *e) {
    *r = (Run){.job = job, .ring = job->ring, .data = data, .held_out = held_out, .o = *o, .saved_step = -1};
    r->metrics.fd = -1;
    arena_init(&r->arena, "run");
    trainer_state_init(&r->state);
    if (job->unscale) r->state.scaling.scale = o->loss_scale;
    else r->o.loss_scale_window = 0;
    trainer_state_set_all(&r->state, o->settings);
    if (!ring_open(r->ring, b, e)) return false;
    if (data) {
        batch_init(&r->batch, &r->arena, job->spec.micro_batch, job->spec.seq);
        row_list_init(&r->rows, &r->arena, list_rows(&job->spec, o->global_batch, job->spec.train ? data : NULL));
    }
    if (job->spec.train && data) {
        FeedPlan p = feed_plan(&job->spec, o->global_batch, data, o->data_workers);
        feed_open(&r->feed, &r->arena, data, &p);
    }
    if (!stop_check(e) || !run_start_weights(r, e) || !ring_settle(r->ring, e)) return false;
    if (!start_state(r, e) || (o->judge && !o->judge->open(o->judge->user, r, e))) return false;
    if (!run_log_open(r, e)) return false;
    if (o->warm && !run_warm(r, e)) return false;
    if (o->trim_every) exec_find_idle(&r->ring->x, job->micro);
    growth_init(&r->growth, o->growth_alarm_bytes, 3);
    ring_measure(r->ring);
    return true;
}

void run_close(Run *r) {
    if (!r->ring) return;
    sampler_close(&r->sampler);
    if (r->metrics_open) metrics_close(&r->metrics);
    feed_close(r->feed);
    log_writer_close(r);
    if (r->ring->x.b) exec_close(&r->ring->x);
    trainer_state_free(&r->state);
    stored_free(&r->stored);
    arena_free(&r->arena);
    r->ring = NULL;
}

/* ---- evaluation ---- */

/* Plays the rows of r->rows; *batches counts on. False: interrupted by a signal. */
static bool evaluate_rows(Run *r, Dataset *d, int64_t *batches, int64_t *scored) {
    const Job *j = r->job;
    for (int64_t first = 0; first < r->rows.n_rows; first += j->spec.micro_batch, ++*batches) {
        if (r->o.eval_batches && *batches == r->o.eval_batches) break;
        if (stop_asked()) return false;
        batch_fill(&r->batch, d, &r->rows, first);
        *scored += r->batch.scored;
        step_put_batch(r, &r->batch, j->evaluate);
        step_put_float(r, r->ring->p.beta, *batches ? 1 : 0);
        exec_play(&r->ring->x, j->evaluate);
    }
    return true;
}

/* How many rows an evaluation reads; 0: only its batches are counted, and packing says how many rows they hold. */
static int64_t rows_to_evaluate(const Run *r, const Dataset *d) {
    int64_t rows = dataset_rows(d), most = r->o.eval_batches;
    if (!most) return rows;
    return dataset_packs_updates(d) ? 0 : MIN2(rows, most * r->job->spec.micro_batch);
}

/* A training run counts updates, also while it evaluates; an evaluation by itself counts its rows. */
static bool show_evaluated(Run *r, Work *w, int64_t rows, int64_t tokens, Err *e) {
    bool goes_on = work_on(w, rows, e);
    if (!r->o.folder) status_count(r->o.status, rows, w->total, work_left_seconds(w));
    if (status_is_due(r->o.status))
        status_tokens(r->o.status, r->state.tokens_seen + tokens, ring_most_bytes(r->ring));
    return goes_on;
}

bool run_evaluate(Run *r, Dataset *d, double *loss, int64_t *tokens, Err *e) {
    const Job *j = r->job;
    int64_t rows = dataset_rows(d), batches = 0;
    int64_t group = dataset_packs_updates(d) ? EVAL_SAMPLES : j->spec.micro_batch;
    bool whole = true;
    Work work;
    work_begin(&work, WORK_COUNT, rows_to_evaluate(r, d), "evaluating rows");
    step_put_float(r, j->divisor, 1);
    *tokens = 0;
    r->ring->x.leaves = true; /* an evaluation that is cut short is thrown away */
    for (int64_t at = 0; at < rows && whole && !(r->o.eval_batches && batches == r->o.eval_batches); at += group) {
        dataset_list_rows(d, &r->rows, 0, at, MIN2(group, rows - at));
        whole = evaluate_rows(r, d, &batches, tokens) && show_evaluated(r, &work, MIN2(at + group, rows), *tokens, e);
    }
    work_end(&work);
    r->ring->x.leaves = false;
    if (!exec_sync(&r->ring->x, e)) return false;
    if (!whole && !stop_check(e)) /* the loss of a part of the set is not reported as the whole's */
        return fail_within(e, "evaluation, after %lld batches", (long long)batches);
    if (!*tokens)
        return fail(e, ERR_FAIL,
                    "evaluation: no token of the set is scored. Have its rows answers, and is --seq "
                    "long enough to reach them?");
    if (!dataset_ok(d, e)) return false;
    double sum;
    exec_get(&r->ring->x, j->eval_loss, &sum, 0, 8);
    *loss = sum / (double)*tokens;
    ring_measure(r->ring);
    if (!isfinite(*loss))
        return fail(e, ERR_FAIL,
                    "evaluation: the loss is not finite (%g). Are the weights finite? --precision "
                    "fp32 tells an overflow from a broken model",
                    *loss);
    return true;
}

/* What it allocates for texts and graphs is no part of the played plan. */
static bool judge_now(Run *r, double *value, Err *e) {
    int64_t requests = mem_stats().requests;
    bool ok = r->o.judge->score(r->o.judge->user, r, value, e);
    r->requests += mem_stats().requests - requests;
    ring_measure(r->ring);
    return ok;
}

static void remember_best(Run *r, double metric) {
    r->state.best_step = r->step;
    r->state.best_metric = metric;
    checkpoint_path(r->state.best_model_checkpoint, sizeof r->state.best_model_checkpoint, r->o.out, r->step, NULL);
}

static void say_evaluation(const Run *r, double loss, double score, int64_t tokens) {
    char judged[64] = "";
    if (r->o.judge) snprintf(judged, sizeof judged, "; %s %.4f", r->o.judge->name, score);
    log_line("evaluation after step %lld: loss %.6f, perplexity %.3f over %s tokens%s%s", (long long)r->step, loss,
             exp(loss), units_count(tokens).s, judged, r->best_now ? " (best so far)" : "");
}

static bool evaluate_now(Run *r, RunResult *out, Err *e) {
    int64_t tokens = 0;
    double loss = 0, score = (double)NAN;
    Err why = {0};
    status_phase(r->o.status, "evaluating");
    if (!run_evaluate(r, r->held_out, &loss, &tokens, &why) || (r->o.judge && !judge_now(r, &score, &why))) {
        if (stop_caused(&why))
            log_line("%s; the resumed run does it again", why.text);
        else
            *e = why;
        return stop_caused(&why);
    }
    out->eval_loss = loss;
    out->eval_score = score;
    double epoch = (double)r->state.data_epoch + (double)r->state.data_row / (double)run_epoch_rows(r);
    trainer_state_log(&r->state, &(TrainerLog){.step = r->step, .epoch = epoch, .is_eval = true, .loss = loss});
    const RunJudge *judge = r->o.judge;
    r->best_now = r->state.best_step < 0 || (judge ? score > r->state.best_metric : loss < r->state.best_metric);
    say_evaluation(r, loss, score, tokens);
    if (r->best_now) remember_best(r, judge ? score : loss);
    const Metric fields[] = {METRIC_REAL("loss", loss), METRIC_REAL("perplexity", exp(loss)),
                             METRIC_INT("tokens", tokens), METRIC_REAL(judge ? judge->name : "", score)};
    return run_write_metrics(r, "eval", fields, COUNT_OF(fields) - !judge, e);
}

/* ---- the loop ---- */

/* An update whose gradients overflowed has a loss all the same, unless forward overflowed too. */
static void add_loss(Run *r, const Update *u) {
    if (!isfinite(u->loss)) return;
    r->state.unlogged_loss += u->loss * (double)u->scored;
    r->state.unlogged_tokens += u->scored;
}

/* The mean over all scored tokens since the last time; begins anew. */
static double take_loss(Run *r) {
    double mean = r->state.unlogged_tokens ? r->state.unlogged_loss / (double)r->state.unlogged_tokens : (double)NAN;
    r->state.unlogged_loss = 0;
    r->state.unlogged_tokens = 0;
    return mean;
}

/* Nothing where it is not measured, or not known yet. */
static bool log_noise(Run *r, Err *e) {
    double scale = gradient_noise_scale(&r->noise), by = r->noise.weight;
    const Metric fields[] = {METRIC_REAL("grad_signal", r->noise.signal / by),
                             METRIC_REAL("grad_noise", r->noise.noise / by),
                             METRIC_REAL("noise_scale_tokens", scale)};
    return by == 0 || run_write_metrics(r, "noise", fields, COUNT_OF(fields) - !isfinite(scale), e);
}

static bool log_step(Run *r, double loss, double norm, double lr, Err *e) {
    double epoch = (double)r->state.data_epoch + (double)r->state.data_row / (double)run_epoch_rows(r);
    trainer_state_log(
        &r->state,
        &(TrainerLog){.step = r->step, .epoch = epoch, .loss = loss, .grad_norm = norm, .learning_rate = lr});
    int left_out = r->job->unscale              ? 0
                   : r->job->spec.whole_updates ? 1
                                                : 2; /* of the last two: no scale, nothing to skip */
    const Metric fields[] = {METRIC_REAL("loss", loss),
                             METRIC_REAL("grad_norm", norm),
                             METRIC_REAL("learning_rate", lr),
                             METRIC_REAL("epoch", epoch),
                             METRIC_REAL("tokens_per_s", progress_recent_per_s(&r->progress)),
                             METRIC_REAL("data_wait_share", progress_wait_share(&r->progress)),
                             METRIC_INT("tokens_seen", r->state.tokens_seen),
                             METRIC_INT("process_bytes", r->ring->peak_bytes),
                             METRIC_INT("skipped_steps", r->state.scaling.skipped),
                             METRIC_REAL("loss_scale", r->state.scaling.scale)};
    return run_write_metrics(r, "train", fields, COUNT_OF(fields) - left_out, e) && log_noise(r, e);
}

static bool log_waiting(Run *r, Err *e) {
    const Metric field = METRIC_REAL("seconds", r->log.seconds);
    return !r->o.history || run_write_metrics(r, "step_log", &field, 1, e);
}

/* How busy the machine was since the last line. What is not known has no field. */
static bool log_system(Run *r, Err *e) {
    SampleMeans s = sampler_take(&r->sampler);
    Metric fields[5];
    int n = 0;
    if (isfinite(s.gpu_busy)) fields[n++] = METRIC_REAL("gpu_utilization", s.gpu_busy);
    if (s.gpu_used_bytes >= 0) fields[n++] = METRIC_INT("gpu_memory_bytes", s.gpu_used_bytes);
    if (isfinite(s.watts)) fields[n++] = METRIC_REAL("gpu_power_w", s.watts);
    if (isfinite(s.cpu_share)) fields[n++] = METRIC_REAL("cpu_utilization", s.cpu_share);
    if (s.resident_bytes >= 0) fields[n++] = METRIC_INT("resident_bytes", s.resident_bytes);
    return run_write_metrics(r, "system", fields, n, e);
}

/* What the monitor shows. */
static void tell(Run *r, double loss) {
    JobStatus *s = r->o.status;
    if (!s) return;
    double left = progress_left_seconds(&r->progress), speed = progress_recent_per_s(&r->progress);
    s->step = r->step;
    s->loss = loss;
    s->tokens_per_s = speed > 0 ? speed : (double)NAN;
    s->left_seconds = left >= 0 ? left : (double)NAN;
    s->step_seconds = r->progress.all.step_seconds / (double)MAX2(r->progress.steps_here, 1);
    s->tokens = r->state.tokens_seen;
    s->measured_bytes = ring_most_bytes(r->ring);
    status_update(s, "training");
}

static bool evaluates_after(const Run *r, int64_t step) {
    return r->held_out && (step == r->o.total_steps || (r->o.eval_steps && step % r->o.eval_steps == 0));
}

static bool saves_after(const Run *r, int64_t step) {
    return step == r->o.total_steps || (r->o.save_steps && step % r->o.save_steps == 0);
}

/* A signal stopped the run in the middle of an evaluation: it belongs to the step that was saved. */
static bool evaluation_was_left_out(const Run *r) {
    bool due = r->step > 0 && evaluates_after(r, r->step);
    for (int64_t i = r->state.n_log - 1; due && i >= 0 && r->state.log[i].step == r->step; i--)
        due = !r->state.log[i].is_eval;
    return due;
}

static bool trims_after(const Run *r, int64_t step) { return r->o.trim_every && step % r->o.trim_every == 0; }

/* An update that wrote nothing, or one that is far from those before it. */
static void say_oddness(const Run *r, const Update *u) {
    char what[160] = "a gradient overflowed";
    if (u->spike) spike_text(what, sizeof what, &u->limits, u->loss, u->norm);
    else if (u->skipped && !r->job->unscale)
        snprintf(what, sizeof what, "not finite (loss %g, gradient norm %g)", u->loss, u->norm);
    long long step = r->step;
    if (u->skipped && !u->spike && r->job->unscale)
        log_line("step %lld: %s, nothing was written; the loss scale falls to %g", step, what, r->state.scaling.scale);
    else if (u->skipped)
        log_warn("step %lld: %s; skipped, nothing was written", step, what);
    else if (u->spike)
        log_warn("step %lld: %s", step, what);
}

static bool after_step(Run *r, RunResult *out, const Update *u, Err *e) {
    bool log_now = r->step % r->o.log_steps == 0 || r->step == r->o.total_steps || r->step == 1;
    int64_t grown;
    ring_measure(r->ring);
    if (growth_feed(&r->growth, &grown, ring_in_use(r->ring)))
        log_warn("the process has grown by %s since its first steps", units_bytes(grown).s);
    r->best_now = false;
    say_oddness(r, u);
    out->spikes += u->spike;
    add_loss(r, u);
    double loss = log_now ? take_loss(r) : u->loss;
    if (log_now && isfinite(loss)) out->loss = loss;
    progress_show(&r->progress, &(ProgressFacts){loss, u->norm, u->lr, r->state.scaling.skipped}, log_now);
    if (r->progress.steps_here == 3 && r->o.total_steps > 10)
        log_line("at this pace the whole job takes %s", units_seconds(progress_job_seconds(&r->progress)).s);
    if (log_now && !(log_step(r, loss, u->norm, u->lr, e) && log_waiting(r, e) && log_system(r, e))) return false;
    if (log_now) tell(r, loss);
    const RunSource *source = r->o.source;
    if (source && source->logged && !source->logged(source->user, r, u, e)) return false;
    if (run_reports_after(r, r->step) && !run_report(r, &out->attention, e)) return false;
    return !evaluates_after(r, r->step) || evaluate_now(r, out, e);
}

/* The run ends at an update that wrote nothing: the state is that of the update before, and can be gone on from. */
static void keep_state(Run *r, const Update *u) {
    Err e = {0};
    bool whole = u->skipped && !r->job->spec.update_in_backward;
    if (!whole || !r->o.save || !r->step || r->saved_step == r->step) return;
    if (run_save_checkpoint(r, &e)) log_line("checkpoint-%lld holds the state before the update", (long long)r->step);
    else log_warn("the state before the update could not be saved: %s", e.text);
}

/* Waits for the numbers of an update and does what follows from them. */
static bool finish_step(Run *r, RunResult *out, Update *u, Err *e) {
    if (!step_read(r, u, e)) {
        keep_state(r, u);
        return false;
    }
    double now = sensors_seconds();
    progress_step(&r->progress, u->tokens, now - r->step_began, u->data_seconds, now);
    bool first = r->progress.steps_here == 1;
    if (first) out->first_loss = u->loss;
    if (!after_step(r, out, u, e)) return false;
    if (!first) out->allocations_after_first_step += mem_stats().requests - r->requests;
    if (!run_log_step(r, u, e)) return false;
    out->stopped_by = (int)stop_signal;
    bool save = saves_after(r, r->step) || u->save_due || out->stopped_by || (r->o.save_best && r->best_now);
    if (save && r->o.save) {
        status_phase(r->o.status, "saving");
        if (!run_save_checkpoint(r, e)) return false;
    }
    if (r->o.status && strcmp(r->o.status->phase, "training")) status_phase(r->o.status, "training");
    if (trims_after(r, r->step) && !out->stopped_by && !run_trim(r, e)) return false;
    r->requests = mem_stats().requests; /* a checkpoint's small JSON is not part of the played plan */
    r->step_began = sensors_seconds();
    return true;
}

/* Micro-steps were queued as if the update before them had been good: they begin again behind it. */
static bool rewind_feed(Run *r, Err *e) {
    if (r->o.source) return true;
    feed_stop(r->feed);
    return feed_start(r->feed, r->state.data_epoch, r->state.data_row, r->o.total_steps - r->step, e);
}

/* Interrupted in the middle of an update: what it has added up so far is dropped, the state is that of the
 * update before. */
static bool leave(Run *r, RunResult *out, Err *e) {
    out->stopped_by = (int)stop_signal;
    if (!exec_sync(&r->ring->x, e)) return false;
    return !r->o.save || r->step == 0 || r->saved_step == r->step || run_save_checkpoint(r, e);
}

/* On a device that works while the host goes on, the numbers of an update are read when the micro-steps of the next
 * are queued; where something looks at the state between two updates, at once. So are those of the first: speed is
 * counted from its end, and a host that queues ahead can be held up until much of the second is done. */
static bool play_steps(Run *r, RunResult *out, Err *e) {
    Update u, before;
    bool late = false; /* `before` is on its way */
    r->step_began = sensors_seconds();
    for (int64_t step = r->step; step < r->o.total_steps; step++) {
        bool whole = step_queue_micros(r, &u, late ? &before : NULL, e);
        if (late && !finish_step(r, out, &before, e)) return false;
        if (out->stopped_by) return exec_sync(&r->ring->x, e); /* the micro-steps queued last have changed no state */
        if (whole && late && before.skipped) whole = rewind_feed(r, e) && step_queue_micros(r, &u, NULL, e);
        if (!whole) return !e->code && leave(r, out, e);
        u.limits = spike_limits(&r->state.spikes, &r->o.spike); /* by the updates before it, which are all read */
        step_queue_update(r, &u);
        u.save_due = r->o.save_seconds > 0 && sensors_seconds() - r->saved_at >= r->o.save_seconds;
        bool looks =
            u.save_due || evaluates_after(r, step + 1) || saves_after(r, step + 1) || trims_after(r, step + 1) ||
            run_logs_state_after(r, step + 1) || run_reports_after(r, step + 1);
        late = r->o.ahead && r->progress.steps_here && !looks;
        before = u;
        if (!late && !finish_step(r, out, &u, e)) return false;
        if (out->stopped_by) return true;
    }
    return true;
}

static void load_first_micro(void *run) { step_load_micro(run, 0); }

static bool profile(Run *r, Err *e) {
    Str text = {0};
    int phase[] = {r->job->micro, r->job->update};
    ProfileLoad inputs = {.load = load_first_micro, .user = r};
    bool ok = exec_profile(&r->ring->x, &text, phase, r->job->update < 0 ? 1 : 2, 1, inputs,
                           "one micro-step and one update", e);
    log_str(&text);
    return ok;
}

/* The numbers that a finished run ended with. */
static void recall(const Run *r, RunResult *out) {
    for (int64_t i = 0; i < r->state.n_log; i++) {
        const TrainerLog *row = &r->state.log[i];
        if (row->is_eval)
            out->eval_loss = row->loss;
        else
            out->loss = row->loss;
        if (!row->is_eval && row->step == 1) out->first_loss = row->loss;
    }
}

static bool is_finished(const Run *r) {
    return r->step > 0 && r->step >= r->o.total_steps && !evaluation_was_left_out(r) &&
           (!r->o.save || run_has_result(r));
}

/* Opens the files that the run writes; nothing was written before. */
static bool begin(Run *r, Err *e) {
    if (!run_folder_begin(r->o.folder, r->o.config_yaml, r->o.plan_json, e) ||
        !metrics_open(&r->metrics, r->o.out, r->step, e) || (r->o.history && !history_begin(r->o.history, e)))
        return false;
    r->metrics_open = true;
    r->saved_at = sensors_seconds();
    return true;
}

static bool train(Run *r, RunResult *out, Err *e) {
    if (!begin(r, e)) return false;
    progress_begin(&r->progress, r->step, r->o.total_steps, sensors_seconds());
    sampler_open(&r->sampler, &(SamplerOf){.bus_id = r->ring->machine.bus_id, .library = r->o.nvml,
                                           .cores = threads_available()});
    arena_seal(&r->arena);
    if (evaluation_was_left_out(r) && !(evaluate_now(r, out, e) && (!r->o.save || run_save_checkpoint(r, e))))
        return false;
    if (stop_asked()) return leave(r, out, e);
    if (r->step >= r->o.total_steps) return true;
    if (r->o.source) return play_steps(r, out, e);
    bool ok = feed_start(r->feed, r->state.data_epoch, r->state.data_row, r->o.total_steps - r->step, e) &&
              play_steps(r, out, e);
    feed_stop(r->feed);
    return ok;
}

bool run_train(Run *r, RunResult *out, Err *e) {
    *out = (RunResult){.first_loss = NAN,
                       .loss = NAN,
                       .eval_loss = NAN,
                       .eval_score = NAN,
                       .attention = {NAN, NAN, NAN, NAN, NAN, NAN, NAN},
                       .planned_bytes = r->ring->placement.arena_bytes[POOL_DEVICE],
                       .process_planned_bytes = ring_process_bytes(r->ring),
                       .wait_share = NAN,
                       .samples = {.gpu_busy = NAN, .watts = NAN, .cpu_share = NAN},
                       .stopped_by = (int)stop_signal};
    out->measured_bytes = r->ring->x.pool_bytes[POOL_DEVICE];
    out->finished = is_finished(r);
    bool trains = !out->finished && !r->o.dry_run && !out->stopped_by;
    if (trains && !train(r, out, e)) return false;
    out->steps = r->step;
    out->skipped_steps = r->state.scaling.skipped;
    out->noise_scale = gradient_noise_scale(&r->noise);
    out->tokens_per_s = trains ? progress_tokens_per_s(&r->progress) : (double)NAN;
    if (trains) out->wait_share = r->progress.all.waited_seconds / r->progress.all.step_seconds;
    if (trains) out->samples = sampler_all(&r->sampler);
    out->process_measured_bytes = r->ring->peak_bytes;
    out->checksum = weights_checksum(&r->ring->x, job_trained_role(r->job));
    if (out->finished) recall(r, out);
    if (out->finished && r->o.save) run_name_result(r, out);
    if (!trains || out->stopped_by) return true;
    if (!run_log_end(r, e)) return false;
    if (r->o.save && !run_save_result(r, out, e)) return false;
    return !r->o.profile || profile(r, e); /* last: the weights are written, one more update does no harm */
}
