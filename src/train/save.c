/* save.c - what a checkpoint holds, how the result is written, and what a resumed run must agree on. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/log.h"
#include "obs/sensors.h"
#include "store/adapter.h"
#include "store/checkpoint.h"
#include "store/folder.h"
#include "store/hf.h"
#include "store/jsonfile.h"
#include "train/run.h"
#include "weights/weights.h"

/* What was trained, as others read it: an HF model folder, or a PEFT adapter. */
static bool write_trained(Run *r, const char *folder, Err *e) {
    const JobSpec *s = &r->job->spec;
    if (r->o.model_folder && !hf_copy_side_files(r->o.model_folder, folder, e)) return false;
    if (s->lora) {
        AdapterConfig c = {.rank = s->m.adapter.rank, .alpha = s->m.adapter.alpha, .dropout = s->m.adapter.dropout,
                           .targets = s->m.adapter.targets};
        snprintf(c.base_model, sizeof c.base_model, "%s", r->o.base_name ? r->o.base_name : "");
        return adapter_config_write(folder, &c, e) && weights_save(&r->ring->x, ROLE_ADAPTER, folder, e);
    }
    char path[1200];
    ModelConfig c = s->m.config;
    c.dtype = s->weights;
    snprintf(path, sizeof path, "%s/config.json", folder);
    json_t *j = config_to_json(&c);
    bool ok = jsonfile_write(path, j, e);
    json_decref(j);
    return ok && weights_save(&r->ring->x, ROLE_WEIGHT, folder, e);
}

/* Somebody removed the folder of a run that goes on: what is trained is worth more than the folder's past. */
static bool keep_folder(Run *r, Err *e) {
    char path[1200];
    if (file_is_dir(r->o.out)) return true;
    log_warn("%s: was removed while the run goes on. It is made again; the log and metrics so far are lost", r->o.out);
    runlock_release(&r->lock);
    metrics_close(&r->metrics);
    snprintf(path, sizeof path, "%s/train.log", r->o.out);
    return file_make_dirs(r->o.out, e) && runlock_take(&r->lock, r->o.out, e) && log_open_file(path, e) &&
           metrics_open(&r->metrics, r->o.out, r->step, e);
}

bool run_save_checkpoint(Run *r, Err *e) {
    char path[1024], file[1200];
    FolderOut f;
    double began = sensors_seconds();
    if (!keep_folder(r, e)) return false;
    r->state.global_step = r->step;
    r->state.max_steps = r->o.total_steps;
    r->state.num_train_epochs = (int64_t)(r->o.epochs + 0.999999);
    r->state.epoch = (double)r->state.data_epoch + (double)r->state.data_row / (double)dataset_rows(r->data);
    r->state.logging_steps = r->o.log_steps;
    r->state.eval_steps = r->o.eval_steps;
    r->state.save_steps = r->o.save_steps;
    r->state.train_batch_size = r->job->spec.micro_batch;
    r->state.micro_batches = r->job->spec.accum;
    r->state.rng_seed = r->state.shuffle_seed = r->job->spec.m.seed;
    if (!checkpoint_path(path, sizeof path, r->o.out, r->step, e) || !folder_begin(&f, path, e)) return false;
    snprintf(file, sizeof file, "%s/optimizer.safetensors", f.temporary);
    bool ok = write_trained(r, f.temporary, e) && weights_save_optimizer(&r->ring->x, file, e) &&
              trainer_state_write(f.temporary, &r->state, e) && exec_sync(&r->ring->x, e); /* what was read back is sound */
    if (!ok) {
        folder_abort(&f);
        return false;
    }
    if (!folder_commit(&f, e)) return false;
    ring_measure(r->ring);
    log_line("saved %s (%.1f s)", path, sensors_seconds() - began);
    return checkpoint_prune(r->o.out, r->o.save_total_limit, r->state.best_step, e);
}

static bool copy_best(Run *r, const char *to, Err *e) {
    char path[1024], from[2100], dest[2100], **names;
    int64_t n;
    if (!checkpoint_path(path, sizeof path, r->o.out, r->state.best_step, e) || !file_list(path, &names, &n, e))
        return false;
    bool ok = true;
    for (int64_t i = 0; i < n; i++) {
        bool ours = !strcmp(names[i], "optimizer.safetensors") || !strcmp(names[i], "trainer_state.json");
        snprintf(from, sizeof from, "%s/%s", path, names[i]);
        snprintf(dest, sizeof dest, "%s/%s", to, names[i]);
        if (ok && !ours) ok = file_copy(from, dest, e);
        mem_free(names[i]);
    }
    mem_free(names);
    return ok;
}

bool run_save_result(Run *r, RunResult *out, Err *e) {
    FolderOut f;
    char path[1024];
    snprintf(path, sizeof path, "%.1000s/%s", r->o.out, r->job->spec.lora ? "adapter" : "model");
    if (!folder_begin(&f, path, e)) return false;
    char best_folder[1024];
    bool best = r->o.save_best && r->state.best_step >= 0 && r->state.best_step != r->step &&
                checkpoint_path(best_folder, sizeof best_folder, r->o.out, r->state.best_step, NULL) &&
                file_is_dir(best_folder);
    if (!(best ? copy_best(r, f.temporary, e) : write_trained(r, f.temporary, e)) || !exec_sync(&r->ring->x, e)) {
        folder_abort(&f);
        return false;
    }
    if (!folder_commit(&f, e)) return false;
    snprintf(out->result, sizeof out->result, "%s", path);
    /* a run killed between its last save and the pruning */
    return checkpoint_prune(r->o.out, r->o.save_total_limit, r->state.best_step, e);
}

/* ---- resume ---- */

static bool resume_folder(Run *r, char *path, size_t size, Err *e) {
    const char *what = r->o.resume;
    if (strcmp(what, "newest")) {
        if (file_is_dir(what)) snprintf(path, size, "%s", what);
        else snprintf(path, size, "%s/%s", r->o.out, what);
        if (!file_is_dir(path))
            return fail(e, ERR_FAIL, "--resume %s: neither a folder nor a checkpoint of %s", what, r->o.out);
        int64_t step;
        bool found;
        if (trainer_state_is_whole(path, NULL)) return true;
        if (!checkpoint_find_last(path, &step, &found, e)) return false; /* a run folder: its newest */
        if (!found) return fail(e, ERR_FAIL, "--resume %s: holds no complete checkpoint", what);
        char run_folder[1024];
        snprintf(run_folder, sizeof run_folder, "%s", path);
        return checkpoint_path(path, size, run_folder, step, e);
    }
    int64_t step;
    bool found;
    if (!checkpoint_find_last(r->o.out, &step, &found, e)) return false;
    if (!found) return fail(e, ERR_FAIL, "--resume: %s holds no complete checkpoint", r->o.out);
    return checkpoint_path(path, size, r->o.out, step, e);
}

bool run_resume(Run *r, Err *e) {
    char path[1024], file[1200];
    TrainerState saved;
    if (!resume_folder(r, path, sizeof path, e) || !trainer_state_read(&saved, path, e)) return false;
    if (!trainer_state_check_settings(&saved, &r->state, e)) {
        trainer_state_free(&saved);
        return fail_within(e, "--resume %s", path);
    }
    trainer_state_free(&r->state);
    r->state = saved;
    r->step = saved.global_step;
    snprintf(file, sizeof file, "%s/optimizer.safetensors", path);
    if (!weights_load(&r->ring->x, NULL, r->job->spec.lora ? ROLE_ADAPTER : ROLE_WEIGHT, path, e)) return false;
    if (!weights_load_optimizer(&r->ring->x, file, e)) return false;
    if (r->state.data_row >= dataset_rows(r->data) && r->state.data_row)
        return fail(e, ERR_FAIL,
                    "--resume %s: stands at row %lld of its data, which has %lld rows now. Was the file changed?", path,
                    (long long)r->state.data_row, (long long)dataset_rows(r->data));
    log_line("going on from %s: step %lld, epoch %.3f", path, (long long)r->step, r->state.epoch);
    return true;
}
