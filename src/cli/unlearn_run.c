/* unlearn_run.c - in which order a logged run is opened again, and what is refused on the way. */
#include "cli/unlearn_run.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/units.h"
#include "cli/run_names.h"
#include "obs/sensors.h"
#include "store/folder.h"
#include "unlearn/baseline.h"
#include "weights/weights.h"

/* ---- what the run was ---- */

static bool read_options(UnlearnRun *r, Err *e) {
    static const OptId ours[] = {OPT_BUDGET, OPT_MAX_MEMORY, OPT_THREADS, OPT_DEVICE, OPT_MACHINE};
    char config[1100], *words[] = {"--config", config};
    snprintf(config, sizeof config, "%.1000s/config.yaml", r->folder);
    if (!file_exists(config))
        return fail(e, ERR_FAIL, "--run %s: holds no config.yaml: it is not the folder of a `snug train`", r->folder);
    r->parsed = true;
    if (!options_parse(&r->given, CMD_TRAIN, 2, words, e)) return false;
    options_reset(&r->given, OPT_BUDGET); /* of this machine, now */
    for (int i = 0; i < COUNT_OF(ours); i++)
        if (opt_given(r->o, ours[i])) r->given.value[ours[i]] = r->o->value[ours[i]];
    run_names_follow(&r->given, r->folder);
    options_settle(&r->given, OPT_OUT, r->folder, "--run");
    options_settle(&r->given, OPT_UPDATE_IN_BACKWARD, "off", "unlearn"); /* gradients are looked at */
    return run_names_check_data(&r->given, r->folder, e);
}

/* The split of a global batch decides the order of sums: it is the logged one, whatever the planner would choose now.
 */
static bool read_history(UnlearnRun *r, Err *e) {
    char folder[1024];
    if (!opt_given(&r->given, OPT_STEP_LOG))
        return fail(
            e, ERR_FAIL,
            "--run %s: was trained without --step-log, so nobody knows which step saw what. Train again with it",
            r->folder);
    setup_history_folder(folder, sizeof folder, &r->given);
    if (!history_read(&r->history, folder, e)) return false;
    r->has_history = true;
    const char *micro = json_string_value(json_object_get(r->history.job, "micro-batch"));
    if (!micro) return fail(e, ERR_FAIL, "step log %s: its first line names no micro-batch", folder);
    snprintf(r->micro_text, sizeof r->micro_text, "%s", micro);
    options_settle(&r->given, OPT_MICRO_BATCH, r->micro_text, "step log");
    return true;
}

static bool open_data(UnlearnRun *r, Err *e) {
    const Options *o = &r->given;
    if (!setup_words(&r->words, o, &r->model, e)) return false;
    int64_t room = setup_data_room(&r->machine, r->limits, &r->words);
    if (!setup_data(&r->data, o, &r->words, &r->model, OPT_DATA, room, e)) return false;
    if (opt_real(o, OPT_VAL_SPLIT) > 0 && !dataset_split(r->data, &r->held_out, opt_real(o, OPT_VAL_SPLIT), e))
        return false;
    r->host.data = dataset_bytes(r->data) + (r->held_out ? dataset_bytes(r->held_out) : 0);
    r->host.reading = setup_reading_bytes(r->data, NULL);
    r->host.tokenizer = r->words.tokenizer ? tokenizer_bytes(r->words.tokenizer) : 0;
    return true;
}

/* ---- planned and opened ---- */

static bool plan(UnlearnRun *r, UnlearnVectors *vectors, void *user, Err *e) {
    const Options *o = &r->given;
    if (opt_is(r->o, OPT_METHOD, "lmcleaner") && opt_is(r->o, OPT_HESSIAN, "gauss-newton"))
        r->spec.task = &task_gauss_newton;
    if (!setup_packing(&r->spec, &r->rows, r->data, NULL, r->global_batch, o, &r->machine, &r->host, r->limits, e))
        return false;
    r->host.batches = run_batch_bytes(&r->spec, r->global_batch, r->data, 0);
    if (!job_plan(&r->job, &r->ring, &r->spec, &r->machine, NULL, e)) { /* how many parameters are there? */
        ring_close(&r->ring);
        return false;
    }
    bool ok = !vectors || vectors(user, r, &r->host.vectors, e);
    r->host.vectors += gauss_newton_bytes(&r->spec) + replay_stack_bytes(setup_threads(r->o));
    ring_close(&r->ring);
    if (!ok) return false;
    setup_fit(&r->spec, o, &r->machine, &r->host, r->limits);
    r->planned = true;
    return job_plan(&r->job, &r->ring, &r->spec, &r->machine, &r->host, e) &&
           setup_check_budget(&r->job, &r->host, r->limits, e) && setup_check_free(&r->ring, r->backend, e);
}

/* Where the person says so, builds and machines may differ: states that are passed show whether the bits do. */
static void pass_over_binary(UnlearnRun *r, json_t *job) {
    static const char *const keys[] = {"binary", "device"};
    for (int i = 0; i < COUNT_OF(keys) && opt_flag(r->o, OPT_OTHER_BINARY); i++)
        json_object_set(job, keys[i], json_object_get(r->history.job, keys[i]));
}

static bool check_belongs(UnlearnRun *r, Err *e) {
    json_t *job = setup_history_job(&r->given, &r->model, r->data, &r->spec, &r->machine, e);
    if (job) pass_over_binary(r, job);
    bool ok = job && history_check_job(&r->history, job, e);
    json_decref(job);
    return ok;
}

static bool start(UnlearnRun *r, Err *e) {
    RunOptions ro = {.model_folder = r->model.has_folder && !r->spec.m.random_init ? r->model.folder : NULL,
                     .side_folder = setup_words_folder(r->words_folder, &r->given, &r->model),
                     .adapter_folder = opt_given(&r->given, OPT_ADAPTER) ? opt_text(&r->given, OPT_ADAPTER) : NULL,
                     .base_name = opt_text(&r->given, OPT_MODEL),
                     .clip = opt_real(&r->given, OPT_CLIP),
                     .global_batch = r->global_batch,
                     .total_steps = r->history.n_steps,
                     .loss_scale = 1,
                     .loss_scale_window = 1};
    r->running = true;
    if (!run_open(&r->run, &r->job, r->backend, r->data, NULL, &ro, e)) return false;
    r->replaying = true;
    return replay_open(&r->replay, &r->run, &r->history, setup_threads(r->o), e);
}

bool unlearn_run_open(UnlearnRun *r, const Options *o, UnlearnVectors *vectors, void *user, Err *e) {
    double began = sensors_seconds();
    *r = (UnlearnRun){.o = o};
    snprintf(r->folder, sizeof r->folder, "%s", opt_text(o, OPT_RUN));
    const Options *g = &r->given;
    bool ok = read_options(r, e) && read_history(r, e) && setup_model(&r->model, g, e) &&
           setup_spec(&r->spec, &r->global_batch, g, &r->model.config, true, e) &&
           (r->spec.m.random_init || setup_need_weights(&r->model, g, e)) &&
           setup_backend(&r->backend, &r->machine, g, e) && setup_fall_back(&r->spec, g, &r->machine, e) &&
           setup_limits(&r->limits, g, &r->machine, e) && open_data(r, e) && plan(r, vectors, user, e) &&
           check_belongs(r, e) && start(r, e);
    r->open_seconds = sensors_seconds() - began;
    return ok;
}

/* ---- the run's result, tuned further ---- */

static bool settle_tuning(UnlearnRun *r, Err *e) {
    static const OptId ours[] = {OPT_LR,          OPT_EPOCHS,    OPT_WEIGHT_DECAY, OPT_CLIP,
                                 OPT_MICRO_BATCH, OPT_OPTIMIZER, OPT_SEED};
    Options *g = &r->given;
    bool was_lora = opt_is(g, OPT_MODE, "lora");
    for (int i = 0; i < COUNT_OF(ours); i++) g->value[ours[i]] = r->o->value[ours[i]];
    if (opt_given(r->o, OPT_MODE)) g->value[OPT_MODE] = r->o->value[OPT_MODE];
    if (opt_given(r->o, OPT_LORA_RANK)) g->value[OPT_LORA_RANK] = r->o->value[OPT_LORA_RANK];
    g->value[OPT_MICRO_BATCH].source =
        FROM_FLAG; /* the planner leaves it: which rows share one is laid out by the method */
    options_reset(g, OPT_INIT);
    options_settle(g, OPT_PACK, "off", "unlearn"); /* a row is a sample */
    options_settle(g, OPT_LORA_DROPOUT, "0", "unlearn");
    snprintf(r->base, sizeof r->base, "%s/%s", r->folder, was_lora ? "adapter" : "model");
    if (!file_is_dir(r->base))
        return fail(e, ERR_FAIL, "--run %s: holds no %s: the run has not ended", r->folder,
                    was_lora ? "adapter" : "model");
    if (was_lora) options_settle(g, OPT_ADAPTER, r->base, "--run");
    return was_lora ? setup_model(&r->model, g, e) : setup_model_named(&r->model, "--run", r->base, e);
}

/* Numbers of samples are places in the data as it was trained on. Where there is a log, it knows. */
static bool check_same_data(const UnlearnRun *r, Err *e) {
    char folder[1024], here[20];
    if (!opt_given(&r->given, OPT_STEP_LOG)) return true;
    setup_history_folder(folder, sizeof folder, &r->given);
    json_t *job = history_read_job(folder);
    const char *there = json_string_value(json_object_get(job, "data"));
    snprintf(here, sizeof here, "%016" PRIx64, dataset_fingerprint(r->data));
    bool ok = !there || !strcmp(there, here) ||
              fail(e, ERR_FAIL,
                   "--run %s: was trained on other rows than %s has now (%s there, %s here), so the numbers of its "
                   "samples mean others",
                   r->folder, opt_text(&r->given, OPT_DATA), there, here);
    json_decref(job);
    return ok;
}

static bool plan_result(UnlearnRun *r, const LossSpec *loss, int64_t rows, int64_t apart, Err *e) {
    JobSpec *s = &r->spec;
    s->task = baseline_task(loss);
    if (loss_has_model(loss) && opt_given(&r->given, OPT_ADAPTER))
        return fail(
            e, ERR_USAGE,
            "--method %s: holds a reference model beside, and this run's is a base with an adapter; merge it first "
            "(`snug merge`)",
            loss_names[loss->kind]);
    s->micro_batch = MIN2(s->micro_batch, rows - apart);
    s->accum = (rows - apart + s->micro_batch - 1) / s->micro_batch + (apart + s->micro_batch - 1) / s->micro_batch;
    r->global_batch = rows;
    r->host.batches = run_batch_bytes(s, rows, r->data, 0) + baseline_bytes(loss, s, rows, dataset_rows(r->data));
    if (!setup_attention(s, &r->given, false, e)) return false;
    setup_fit(s, &r->given, &r->machine, &r->host, r->limits);
    r->planned = true;
    return job_plan(&r->job, &r->ring, s, &r->machine, &r->host, e) &&
           setup_check_budget(&r->job, &r->host, r->limits, e) && setup_check_free(&r->ring, r->backend, e);
}

static bool start_result(UnlearnRun *r, Err *e) {
    RunOptions ro = {.model_folder = r->model.folder,
                     .side_folder = setup_words_folder(r->words_folder, &r->given, &r->model),
                     .base_name = opt_text(&r->given, OPT_MODEL),
                     .clip = opt_real(&r->given, OPT_CLIP),
                     .adapter_folder = opt_given(&r->given, OPT_ADAPTER) ? opt_text(&r->given, OPT_ADAPTER) : NULL,
                     .global_batch = r->global_batch};
    r->running = true;
    return run_open(&r->run, &r->job, r->backend, r->data, NULL, &ro, e);
}

bool unlearn_run_open_result(UnlearnRun *r, const Options *o, const LossSpec *loss, int64_t rows, int64_t apart,
                             Err *e) {
    *r = (UnlearnRun){.o = o};
    snprintf(r->folder, sizeof r->folder, "%s", opt_text(o, OPT_RUN));
    const Options *g = &r->given;
    int64_t unused;
    return read_options(r, e) && settle_tuning(r, e) && setup_spec(&r->spec, &unused, g, &r->model.config, true, e) &&
           setup_need_weights(&r->model, g, e) &&
           setup_backend(&r->backend, &r->machine, g, e) && setup_fall_back(&r->spec, g, &r->machine, e) &&
           setup_limits(&r->limits, g, &r->machine, e) && open_data(r, e) && check_same_data(r, e) &&
           plan_result(r, loss, rows, apart, e) &&
           start_result(r, e);
}

void unlearn_run_close(UnlearnRun *r) {
    if (r->replaying) replay_close(&r->replay);
    if (r->running) run_close(&r->run);
    if (r->planned) ring_close(&r->ring);
    if (r->backend) r->backend->close(r->backend);
    if (r->held_out) dataset_close(r->held_out);
    if (r->data) dataset_close(r->data);
    update_rows_free(&r->rows);
    setup_words_free(&r->words);
    if (r->has_history) history_free(&r->history);
    if (r->parsed) options_free(&r->given);
}

/* ---- the end of the run, and a result ---- */

static const char *result_name(const UnlearnRun *r) { return r->spec.lora ? "adapter" : "model"; }

bool unlearn_run_load_result(UnlearnRun *r, Err *e) {
    Exec *x = &r->ring.x;
    Role role = job_trained_role(&r->job);
    snprintf(r->result, sizeof r->result, "%s/%s", r->folder, result_name(r));
    WalkSeconds *spent = &r->replay.spent;
    double began = sensors_seconds();
    if (!weights_load(x, NULL, role, r->result, e)) return false;
    weights_start_masters(x);
    spent->load += sensors_seconds() - began;
    began = sensors_seconds();
    uint64_t have = weights_digest(x, role);
    spent->check += sensors_seconds() - began;
    if (have == r->history.checksum) return true;
    return fail(e, ERR_FAIL,
                "step log %s: does not belong to %s: the run that it describes ended with other weights. Were they "
                "trained further, merged or replaced?",
                r->history.folder, r->result);
}

bool unlearn_run_check_out(UnlearnRun *r, Err *e) {
    const char *out = opt_text(r->o, OPT_OUT);
    char path[1100];
    StSizes sizes;
    snprintf(path, sizeof path, "%s/%s", out, result_name(r));
    if (file_exists(path) && !opt_flag(r->o, OPT_OVERWRITE))
        return fail(e, ERR_FAIL, "--out %s: holds a %s already. Choose another, or give --overwrite", out,
                    result_name(r));
    if (file_is_within(path, r->folder) && file_exists(path))
        return fail(e, ERR_USAGE, "--out %s: is the run that is read. Choose another", out);
    if (!folder_check(path, e) || !weights_sizes(&sizes, &r->ring.p, job_trained_role(&r->job), e)) return false;
    int64_t has = file_free_bytes(out);
    return has < 0 || sizes.bytes <= has ||
           fail(e, ERR_BUDGET,
                "does not fit the disk: the result takes %s bytes in %s, %s are free there, %s (%s bytes) are "
                "missing. "
                "Nothing was written",
                units_count(sizes.bytes).s, out, units_bytes(has).s, units_bytes(sizes.bytes - has).s,
                units_count(sizes.bytes - has).s);
}

void unlearn_run_result_path(const UnlearnRun *r, char *path, size_t size) {
    snprintf(path, size, "%s/%s", opt_text(r->o, OPT_OUT), result_name(r));
}

static bool write_text(const char *folder, const char *name, const Str *text, Err *e) {
    char file[1200];
    snprintf(file, sizeof file, "%s/%s", folder, name);
    return file_write_all(file, str_text(text), text->len, e);
}

bool unlearn_run_write(UnlearnRun *r, const UnlearnText *texts, int n, UnlearnMeasure *measure, void *user, Err *e) {
    FolderOut f;
    char path[1100];
    Str spent = {0};
    unlearn_run_result_path(r, path, sizeof path);
    if (!file_make_dirs(opt_text(r->o, OPT_OUT), e) || !folder_recover(path, e) || !folder_begin(&f, path, e))
        return false;
    bool ok = run_write_trained(&r->run, f.temporary, e) && run_sync_device(&r->run, e);
    for (int i = 0; ok && i < n; i++) ok = write_text(f.temporary, texts[i].name, texts[i].text, e);
    if (ok) measure(user, &spent);
    ok = ok && write_text(f.temporary, "EFFICIENCY.json", &spent, e);
    str_free(&spent);
    if (ok) return folder_commit(&f, e);
    folder_abort(&f);
    return false;
}
