/* save.c - what a checkpoint and a result hold, how they are written, and what happens when the disk says no.
 *
 * S1  What is trained is worth more than the run's time: a write that the system refuses (no space, no permission, a
 *     missing folder) is retried until it succeeds, with the state kept in memory. A signal ends the waiting; one that
 *     came before the write does not, so that a run that is asked to stop still saves. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "base/log.h"
#include "base/stop.h"
#include "base/units.h"
#include "obs/sensors.h"
#include "store/adapter.h"
#include "store/checkpoint.h"
#include "store/folder.h"
#include "store/hf.h"
#include "train/run_int.h"
#include "weights/weights.h"

/* ---- until it is written ---- */

static const double first_wait_seconds = 0.05, longest_wait_seconds = 10;

/* False: a signal came that had not come before. */
static bool wait_a_while(double seconds, bool asked_before) {
    double until = sensors_seconds() + seconds;
    for (double left; (left = until - sensors_seconds()) > 0;) {
        if (stop_asked() && !asked_before) return false;
        nanosleep(&(struct timespec){.tv_nsec = (long)(MIN2(left, 0.05) * 1e9)}, NULL);
    }
    return true;
}

/* The folder of this run in the spare one: SPARE/NAME for an out folder .../NAME. */
static FilePath spare_root(const Run *r) {
    const char *slash = strrchr(r->o.out, '/'), *name = slash && slash[1] ? slash + 1 : slash ? "run" : r->o.out;
    return file_in(r->o.spare_dir, name);
}

static bool write_elsewhere(Run *r, RunWrite *put, void *what, Err *e) {
    FilePath root = spare_root(r);
    if (!file_make_dirs(root.s, e) || !put(r, root.s, what, e)) return false;
    r->spared = true;
    log_warn("written to %s instead (--spare-dir)", root.s);
    return true;
}

bool run_until_written(Run *r, RunWrite *put, void *what, Err *e) {
    bool asked_before = stop_asked();
    double wait = first_wait_seconds;
    for (;;) {
        *e = (Err){0};
        if (put(r, r->o.out, what, e)) return true;
        if (!e->error) return false;
        Err other = {0};
        bool elsewhere = r->o.spare_dir != NULL;
        if (elsewhere) log_warn("%s", e->text);
        if (elsewhere && write_elsewhere(r, put, what, &other)) {
            *e = (Err){0};
            return true;
        }
        if (elsewhere) log_warn("%s", other.text);
        log_warn("%s. The run keeps its state and tries again in %s; %s leaves without it", e->text,
                 units_seconds(wait).s, asked_before ? "another signal" : "Ctrl-C");
        bool waited = wait_a_while(wait, asked_before);
        wait = MIN2(2 * wait, longest_wait_seconds);
        if (waited) continue;
        char last[60] = "nothing was saved before";
        if (r->saved_step >= 0) snprintf(last, sizeof last, "checkpoint-%lld stands", (long long)r->saved_step);
        return fail_within(e, "stopped by signal %d while waiting to write what step %lld has come to; %s",
                           (int)stop_signal, (long long)r->step, last);
    }
}

/* ---- what is written ---- */

bool run_write_trained(Run *r, const char *folder, Err *e) {
    const JobSpec *s = &r->job->spec;
    if (r->o.side_folder && !hf_copy_side_files(r->o.side_folder, folder, e)) return false;
    if (s->lora) {
        AdapterConfig c = run_adapter_config(s, r->o.base_name);
        return adapter_config_write(folder, &c, e) && weights_save(&r->ring->x, ROLE_ADAPTER, folder, e);
    }
    ModelConfig c = s->m.config;
    c.dtype = s->weights;
    return weights_write_config(&c, folder, e) && weights_save(&r->ring->x, ROLE_WEIGHT, folder, e);
}

bool run_sync_device(Run *r, Err *e) {
    bool ok = exec_sync(&r->ring->x, e);
    if (!ok) e->error = 0;
    return ok;
}

/* Somebody removed the folder of a run that goes on: what is trained is worth more than the folder's past. */
static bool keep_folder(Run *r, Err *e) {
    if (file_is_dir(r->o.out)) return true;
    if (!run_folder_restore(r->o.folder, e)) return false;
    metrics_close(&r->metrics);
    return metrics_open(&r->metrics, r->o.out, r->step, e);
}

static void fill_state(Run *r) {
    TrainerState *s = &r->state;
    s->global_step = r->step;
    s->max_steps = r->o.total_steps;
    s->num_train_epochs = (int64_t)(r->o.epochs + 0.999999);
    s->epoch = (double)s->data_epoch + (double)s->data_row / (double)run_epoch_rows(r);
    s->logging_steps = r->o.log_steps;
    s->eval_steps = r->o.eval_steps;
    s->save_steps = r->o.save_steps;
    s->train_batch_size = r->job->spec.micro_batch;
    s->micro_batches = r->job->spec.accum;
    s->rng_seed = s->shuffle_seed = r->job->spec.m.seed;
    s->warmup_steps = r->o.schedule.warmup_steps;
    s->schedule_steps = r->o.schedule.total_steps;
    s->passing = run_is_passing(&r->o, r->step);
}

static bool write_checkpoint(Run *r, const char *root, void *unused, Err *e) {
    char path[1024];
    FolderOut f;
    double began = sensors_seconds();
    (void)unused;
    if (root == r->o.out && !keep_folder(r, e)) return false;
    if (!checkpoint_path(path, sizeof path, root, r->step, e) || !folder_begin(&f, path, e)) return false;
    const RunSource *source = r->o.source;
    bool ok = run_write_trained(r, f.temporary, e) &&
              weights_save_optimizer(&r->ring->x, file_in(f.temporary, "optimizer.safetensors").s, e) &&
              (!source || !source->save || source->save(source->user, f.temporary, e)) &&
              trainer_state_write(f.temporary, &r->state, e) && run_sync_device(r, e);
    if (!folder_end(&f, ok, e)) return false;
    log_line("saved %s (%.1f s)", path, sensors_seconds() - began);
    return true;
}

static bool prune_spare(const Run *r, Err *e) {
    if (!r->spared) return true; /* what stands there is not of this run */
    return checkpoint_prune(spare_root(r).s, r->o.save_total_limit, r->state.best_step, e);
}

/* A checkpoint that cannot be removed takes room and does no other harm. */
static void prune(Run *r) {
    Err why = {0};
    bool ok = false;
    for (int tries = 0; tries < 2 && !ok; tries++)
        ok = checkpoint_remove_later(r->o.out, r->step, &why) &&
             checkpoint_prune(r->o.out, r->o.save_total_limit, r->state.best_step, &why) && prune_spare(r, &why);
    if (!ok) log_warn("another checkpoint remains: %s", why.text);
}

bool run_save_checkpoint(Run *r, Err *e) {
    fill_state(r);
    if (!log_writer_drain(r, e) || (r->o.history && !history_flush(r->o.history, e)) ||
        !run_until_written(r, write_checkpoint, NULL, e))
        return false;
    r->saved_step = r->step;
    r->saved_at = sensors_seconds();
    ring_measure(r->ring);
    prune(r);
    return true;
}

/* Where the best checkpoint stands: in the run's folder, or in the spare one. False: it is gone. */
static bool find_best(const Run *r, char *path, size_t size) {
    if (checkpoint_path(path, size, r->o.out, r->state.best_step, NULL) && file_is_dir(path)) return true;
    if (!r->o.spare_dir) return false;
    return checkpoint_path(path, size, spare_root(r).s, r->state.best_step, NULL) && file_is_dir(path);
}

static bool copy_best(Run *r, const char *to, Err *e) {
    char path[1024], **names;
    int64_t n;
    if (!find_best(r, path, sizeof path))
        return fail(e, ERR_FAIL, "the best checkpoint, of step %lld, is gone", (long long)r->state.best_step);
    if (!file_list(path, &names, &n, e)) return false;
    bool ok = true;
    for (int64_t i = 0; i < n; i++) {
        bool ours = !strcmp(names[i], "optimizer.safetensors") || !strcmp(names[i], "trainer_state.json");
        if (ok && !ours) ok = file_copy(file_in(path, names[i]).s, file_in(to, names[i]).s, e);
        mem_free(names[i]);
    }
    mem_free(names);
    return ok;
}

static FilePath result_path(const Run *r, const char *root) {
    return file_in(root, r->job->spec.lora ? "adapter" : "model");
}

bool run_has_result(const Run *r) { return file_is_dir(result_path(r, r->o.out).s); }

void run_name_result(const Run *r, RunResult *out) { out->result = result_path(r, r->o.out); }

static bool write_result(Run *r, const char *root, void *what, Err *e) {
    RunResult *out = what;
    FolderOut f;
    char best_folder[1024];
    FilePath path = result_path(r, root);
    if (root == r->o.out && !keep_folder(r, e)) return false;
    if (!folder_begin(&f, path.s, e)) return false;
    bool best = r->o.save_best && r->state.best_step >= 0 && r->state.best_step != r->step &&
                find_best(r, best_folder, sizeof best_folder);
    bool ok = (best ? copy_best : run_write_trained)(r, f.temporary, e) && run_sync_device(r, e);
    if (!folder_end(&f, ok, e)) return false;
    out->result = path;
    return true;
}

bool run_save_result(Run *r, RunResult *out, Err *e) {
    if (!run_until_written(r, write_result, out, e)) return false;
    prune(r); /* a run killed between its last save and the pruning */
    return true;
}

/* ---- metrics ---- */

typedef struct Record {
    const char *kind;
    const Metric *fields;
    int n;
} Record;

static bool write_record(Run *r, const char *root, void *what, Err *e) {
    const Record *record = what;
    (void)root;
    return metrics_write(&r->metrics, record->kind, r->step, record->fields, record->n, e);
}

bool run_write_metrics(Run *r, const char *kind, const Metric *fields, int n, Err *e) {
    Record record = {kind, fields, n};
    if (!r->o.spare_dir) return run_until_written(r, write_record, &record, e);
    if (!write_record(r, NULL, &record, e))
        log_warn("%s. A record is missing there", e->text); /* the run goes on elsewhere */
    *e = (Err){0};
    return true;
}
