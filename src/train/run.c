/* run.c - the loop: fill a batch, play the micro-steps, play the update, look at the numbers. */
#include "train/run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/units.h"
#include "obs/sensors.h"
#include "store/checkpoint.h"
#include "store/folder.h"
#include "train/weights.h"

static int64_t process_bytes(const Run *r) { /* what --budget is about: the device's memory */
    int64_t n = r->backend->in_use(r->backend);
    return n >= 0 ? n : sensors_anon_bytes();
}

void run_measure(Run *r) { r->process_peak_bytes = MAX2(r->process_peak_bytes, process_bytes(r)); }

int64_t run_steps_per_epoch(const Dataset *d, int64_t global_batch) {
    return (dataset_rows(d) + global_batch - 1) / global_batch;
}

static Role trained_role(const Job *j) { return j->spec.lora ? ROLE_ADAPTER : ROLE_WEIGHT; }

/* ---- opening ---- */

static bool start_weights(Run *r, Err *e) {
    Job *j = r->job;
    float inv_freq[512], scale;
    config_rope(&j->spec.model, inv_freq, &scale);
    exec_put(&r->x, j->d.inv_freq, inv_freq, 0, j->spec.model.head_dim / 2 * 4);
    exec_play(&r->x, j->phase_init); /* random weights and fresh adapters; nothing when all come from files */
    if (!exec_sync(&r->x, e)) return false;
    if (r->o.model_folder && !weights_load(&r->x, ROLE_WEIGHT, r->o.model_folder, e)) return false;
    if (r->o.adapter_folder && !weights_load(&r->x, ROLE_ADAPTER, r->o.adapter_folder, e)) return false;
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
        fail(e, ERR_FAIL, "%s: holds a run (checkpoint-%lld). Go on with --resume, or choose another --out, or give --overwrite", out,
             (long long)steps[n - 1]);
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
    *r = (Run){.job = job, .backend = b, .data = data, .held_out = held_out, .o = *o, .lock = {-1}};
    r->metrics.fd = -1;
    arena_init(&r->arena, "run");
    trainer_state_init(&r->state);
    for (int i = 0; i < o->n_settings; i++) trainer_state_set(&r->state, o->settings[2 * i], o->settings[2 * i + 1]);
    if (o->out && !open_folder(r, e)) return false;
    if (!exec_open(&r->x, &job->p, b, job->placement.arena_bytes, e)) return false;
    batch_init(&r->batch, &r->arena, job->spec.micro_batch, job->spec.seq);
    if (!start_weights(r, e)) return false;
    if (o->out && o->resume) {
        if (!run_resume(r, e)) return false;
    } else {
        weights_start_masters(&r->x);
    }
    if (o->out) {
        int64_t rows = (o->total_steps - r->step) / MAX2(o->log_steps, 1) + (o->eval_steps ? o->total_steps / o->eval_steps : 0);
        trainer_state_reserve_log(&r->state, r->state.n_log + rows + 4);
        if (!metrics_open(&r->metrics, o->out, r->step, e)) return false;
        r->metrics_open = true;
    }
    growth_init(&r->growth, o->growth_alarm_bytes, 3);
    run_measure(r);
    return true;
}

void run_close(Run *r) {
    if (r->metrics_open) metrics_close(&r->metrics);
    exec_close(&r->x);
    trainer_state_free(&r->state);
    arena_free(&r->arena);
    runlock_release(&r->lock);
    if (r->o.out) log_close_file();
}

/* ---- one update ---- */

static void put_batch(Run *r) {
    const Job *j = r->job;
    int64_t n = r->batch.rows * r->batch.seq * 4;
    exec_put(&r->x, j->in.ids, r->batch.ids, 0, n);
    exec_put(&r->x, j->in.positions, r->batch.positions, 0, n);
    exec_put(&r->x, j->in.doc_begin, r->batch.doc_begin, 0, n);
    if (j->in.id_order) exec_put(&r->x, j->in.id_order, r->batch.id_order, 0, n);
    exec_put(&r->x, j->labels, r->batch.labels, 0, n);
    exec_put(&r->x, j->weight, r->batch.weight, 0, n);
}

static void put_float(Run *r, Tid t, double value) {
    float f = (float)value;
    exec_put(&r->x, t, &f, 0, 4);
}

static double get_double(Run *r, Tid t, int word) {
    double v;
    exec_get(&r->x, t, &v, word * 8, 8);
    return v;
}

typedef struct Position { /* where in the data an update begins */
    int64_t epoch, row, rows_left;
} Position;

static Position position_of(const Run *r) {
    Position at = {r->state.data_epoch, r->state.data_row, 0};
    at.rows_left = dataset_rows(r->data) - at.row;
    return at;
}

/* The micro-batch `micro` of the update at `at`: its inputs and the dials that go with it. */
static void load_micro(Run *r, Position at, int64_t micro) {
    const JobSpec *s = &r->job->spec;
    int64_t first = micro * s->micro_batch, real = MIN2(r->o.global_batch, at.rows_left) - first;
    double began = sensors_seconds();
    batch_fill(&r->batch, r->data, at.epoch, at.row + first, MAX2(0, MIN2(real, s->micro_batch)));
    r->data_seconds += sensors_seconds() - began;
    r->step_tokens += r->batch.tokens;
    put_batch(r);
    put_float(r, r->job->p.beta, micro ? 1 : 0);
    int64_t clock[CLOCK_WORDS] = {[CLOCK_KEY] = (int64_t)rng_fold(s->seed, (uint64_t)r->step),
                                  [CLOCK_FIRST_TOKEN] = first * s->seq, [CLOCK_MICRO] = micro, [CLOCK_STEP] = r->step};
    exec_put(&r->x, r->job->p.clock, clock, 0, sizeof clock);
}

void run_load_micro(Run *r, int64_t micro) { load_micro(r, position_of(r), micro); }

static int64_t scored_tokens(const Run *r, Position at) {
    int64_t n = 0, rows = MIN2(r->o.global_batch, at.rows_left);
    for (int64_t i = 0; i < rows; i++) n += dataset_row_scored(r->data, dataset_row_at(r->data, at.epoch, at.row + i));
    return n;
}

static void put_update_dials(Run *r, double lr) {
    const AttrUpdate *u = &r->job->spec.update;
    double t = (double)(r->step + 1);
    float dials[DIAL_WORDS] = {[DIAL_LR] = (float)lr, [DIAL_CORRECT1] = (float)(1 / (1 - pow(u->beta1, t))),
                               [DIAL_CORRECT2] = (float)(1 / (1 - pow(u->beta2, t)))};
    exec_put(&r->x, r->job->dials, dials, 0, sizeof dials);
    put_float(r, r->job->max_norm, r->o.clip);
}

static void advance(Run *r, Position at) {
    r->step++;
    r->state.data_row = at.row + r->o.global_batch;
    if (r->state.data_row >= dataset_rows(r->data)) {
        r->state.data_epoch++;
        r->state.data_row = 0;
    }
    r->state.tokens_seen += r->step_tokens;
}

/* A loss or gradient that is not finite: nothing was written. Play again, looking at every step. */
static bool explain_not_finite(Run *r, Position at, double loss, double norm, Err *e) {
    for (int64_t m = 0; m < r->job->spec.accum; m++) {
        load_micro(r, at, m);
        int i = exec_find_not_finite(&r->x, r->job->phase_micro, e);
        if (i < 0) continue;
        const Step *s = &r->job->p.s[i];
        char where[48] = "outside the layers";
        if (s->layer >= 0) snprintf(where, sizeof where, "in layer %d", s->layer);
        return fail(e, ERR_FAIL, "step %lld: the loss is not finite (loss %g, gradient norm %g). It began %s, in the %s pass, at "
                    "'%s' (%s). The weights are those before this step; the last checkpoint stands. A lower --lr, "
                    "a --warmup-steps, or --precision fp32 may help",
                    (long long)r->step + 1, loss, norm, where, prog_region_name(s->region), op_row(s->op)->name,
                    s->out[0] ? prog_t(&r->job->p, s->out[0])->name : "");
    }
    return fail(e, ERR_FAIL, "step %lld: the loss or the gradient norm is not finite (loss %g, norm %g)", (long long)r->step + 1,
                loss, norm);
}

static bool update(Run *r, double *loss, double *norm, double lr, Err *e) {
    const Job *j = r->job;
    Position at = position_of(r);
    r->data_seconds = 0;
    r->step_tokens = 0;
    int64_t scored = scored_tokens(r, at);
    put_float(r, j->divisor, (double)MAX2(scored, 1));
    for (int64_t m = 0; m < j->spec.accum; m++) {
        load_micro(r, at, m);
        exec_play(&r->x, j->phase_micro);
        if (!exec_sync(&r->x, e)) return false;
    }
    put_update_dials(r, lr);
    exec_play(&r->x, j->phase_update);
    if (!exec_sync(&r->x, e)) return false;
    *loss = get_double(r, j->loss, 0);
    *norm = get_double(r, j->verdict, VERDICT_NORM);
    if (get_double(r, j->verdict, VERDICT_OK) == 0) return explain_not_finite(r, at, *loss, *norm, e);
    advance(r, at);
    return true;
}

/* ---- evaluation ---- */

static bool asked_to_stop(const Run *r) { return r->o.stop && *r->o.stop; }

bool run_evaluate(Run *r, Dataset *d, double *loss, int64_t *tokens, Err *e) {
    const Job *j = r->job;
    int64_t rows = dataset_rows(d), micro = j->spec.micro_batch, batches = (rows + micro - 1) / micro, scored = 0;
    if (r->o.eval_batches) batches = MIN2(batches, r->o.eval_batches);
    put_float(r, j->divisor, 1);
    *tokens = 0;
    for (int64_t i = 0; i < batches; i++) {
        batch_fill(&r->batch, d, 0, i * micro, MIN2(micro, rows - i * micro));
        scored += r->batch.scored;
        *tokens += r->batch.scored;
        put_batch(r);
        put_float(r, j->p.beta, i ? 1 : 0);
        exec_play(&r->x, j->phase_eval);
        if (!exec_sync(&r->x, e)) return false;
        if (asked_to_stop(r) && i + 1 < batches) /* a part of the set has another loss */
            return fail(e, ERR_FAIL, "evaluation: stopped by signal %d after %lld of %lld batches", (int)*r->o.stop, (long long)i + 1,
                        (long long)batches);
    }
    if (!scored) return fail(e, ERR_FAIL, "evaluation: no token of the set is scored");
    *loss = get_double(r, j->eval_loss, 0) / (double)scored;
    run_measure(r);
    if (!isfinite(*loss)) return fail(e, ERR_FAIL, "evaluation: the loss is not finite (%g)", *loss);
    return true;
}

static bool evaluate_now(Run *r, RunResult *out, Err *e) {
    int64_t tokens;
    double loss;
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
    trainer_state_log(&r->state, &(TrainerLog){.step = r->step, .epoch = epoch, .loss = loss, .grad_norm = norm, .learning_rate = lr});
    const Metric fields[] = {METRIC_REAL("loss", loss), METRIC_REAL("grad_norm", norm), METRIC_REAL("learning_rate", lr),
                             METRIC_REAL("epoch", epoch), METRIC_REAL("tokens_per_s", progress_recent_per_s(&r->progress)),
                             METRIC_REAL("data_wait_share", progress_wait_share(&r->progress)),
                             METRIC_INT("tokens_seen", r->state.tokens_seen),
                             METRIC_INT("process_bytes", r->process_peak_bytes)};
    return metrics_write(&r->metrics, "train", r->step, fields, COUNT_OF(fields), e);
}

static bool evaluation_due(const Run *r) {
    bool now = r->step == r->o.total_steps || (r->o.eval_steps && r->step % r->o.eval_steps == 0);
    for (int64_t i = r->state.n_log - 1; now && i >= 0 && r->state.log[i].step == r->step; i--)
        now = !r->state.log[i].is_eval;
    return r->held_out && r->step > 0 && now;
}

/* A signal stopped the run in the middle of an evaluation: it belongs to the step that was saved. */
static bool evaluate_what_was_left_out(Run *r, RunResult *out, Err *e) {
    if (r->o.dry_run || !evaluation_due(r)) return true;
    return evaluate_now(r, out, e) && (!r->o.save || run_save_checkpoint(r, e));
}

static bool after_step(Run *r, RunResult *out, double loss, double norm, double lr, Err *e) {
    bool last = r->step == r->o.total_steps, log_now = r->step % r->o.log_steps == 0 || last || r->step == 1;
    int64_t grown;
    run_measure(r);
    if (growth_feed(&r->growth, &grown, process_bytes(r)))
        log_warn("the process has grown by %s since its first steps", units_bytes(grown).s);
    r->best_now = false;
    progress_show(&r->progress, &(ProgressFacts){loss, norm, lr}, log_now);
    if (r->progress.steps_here == 3 && r->o.total_steps > 10)
        log_line("at this pace the whole job takes %s", units_seconds(progress_job_seconds(&r->progress)).s);
    if (log_now && !log_step(r, loss, norm, lr, e)) return false;
    return !evaluation_due(r) || evaluate_now(r, out, e);
}

bool run_train(Run *r, RunResult *out, Err *e) {
    *out = (RunResult){.first_loss = NAN, .loss = NAN, .eval_loss = NAN, .planned_bytes = r->job->placement.arena_bytes[POOL_DEVICE],
                       .process_planned_bytes = job_process_bytes(r->job)};
    out->measured_bytes = r->x.pool_bytes[POOL_DEVICE];
    progress_begin(&r->progress, r->step, r->o.total_steps, sensors_seconds());
    arena_seal(&r->arena);
    int64_t first_step = r->step, requests = 0;
    if (!evaluate_what_was_left_out(r, out, e)) return false;
    while (r->step < r->o.total_steps && !r->o.dry_run) {
        double began = sensors_seconds(), loss, norm, lr = schedule_lr(&r->o.schedule, r->step);
        if (!update(r, &loss, &norm, lr, e)) return false;
        progress_step(&r->progress, r->step_tokens, sensors_seconds() - began, r->data_seconds, sensors_seconds());
        if (r->step == first_step + 1) out->first_loss = loss;
        out->loss = loss;
        if (!after_step(r, out, loss, norm, lr, e)) return false;
        if (r->step == first_step + 1) requests = mem_stats().requests;
        out->allocations_after_first_step += mem_stats().requests - requests;
        out->stopped_by = r->o.stop ? (int)*r->o.stop : 0;
        bool save = r->step == r->o.total_steps || out->stopped_by || (r->o.save_steps && r->step % r->o.save_steps == 0) ||
                    (r->o.save_best && r->best_now);
        if (save && r->o.save && !run_save_checkpoint(r, e)) return false;
        requests = mem_stats().requests; /* a checkpoint's small JSON is not part of the played plan */
        if (out->stopped_by) break;
    }
    out->steps = r->step;
    out->tokens_per_s = progress_tokens_per_s(&r->progress);
    out->process_measured_bytes = r->process_peak_bytes;
    out->checksum = weights_checksum(&r->x, trained_role(r->job));
    if (r->o.dry_run || out->stopped_by) return true;
    if (r->o.save && !run_save_result(r, out, e)) return false;
    if (!r->o.profile) return true;
    Str text = {0}; /* last: the weights are written, one more update does no harm */
    bool ok = run_profile(r, &text, e);
    log_line("%s", str_text(&text));
    str_free(&text);
    return ok;
}
