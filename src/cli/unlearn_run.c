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
    if (!options_parse(&r->given, CMD_TRAIN, 2, words, e))
        return fail_within(e, "--run %s: is not the folder of a `snug train`", r->folder);
    options_reset(&r->given, OPT_BUDGET);    /* of this machine, now */
    options_reset(&r->given, OPT_EVAL_DATA); /* nothing is evaluated */
    for (int i = 0; i < COUNT_OF(ours); i++)
        if (opt_given(r->o, ours[i])) r->given.value[ours[i]] = r->o->value[ours[i]];
    run_names_follow(&r->given, r->folder);
    options_settle(&r->given, OPT_OUT, r->folder, "--run");
    options_settle(&r->given, OPT_UPDATE_IN_BACKWARD, "off", "unlearn"); /* gradients are looked at */
    return run_names_check_data(&r->given, r->folder, e);
}

/* The split of a global batch decides the order of sums: it is the logged one, whatever a planner would choose now. */
static bool read_history(UnlearnRun *r, Err *e) {
    char folder[1024];
    if (!opt_given(&r->given, OPT_STEP_LOG))
        return fail(
            e, ERR_FAIL,
            "--run %s: was trained without --step-log, so nobody knows which step saw what. Train again with it",
            r->folder);
    setup_history_folder(folder, sizeof folder, &r->given);
    if (!history_read(&r->history, folder, e) || !history_check_states(&r->history, e)) return false;
    const char *micro = json_string_value(json_object_get(r->history.job, "micro-batch"));
    if (!micro) return fail(e, ERR_FAIL, "step log %s: its first line names no micro-batch", folder);
    snprintf(r->micro_text, sizeof r->micro_text, "%s", micro);
    options_settle(&r->given, OPT_MICRO_BATCH, r->micro_text, "step log");
    return true;
}

static bool open_data(JobSetup *s, Err *e) {
    if (!setup_job_data(s, s->limits, e)) return false;
    s->host.reading = setup_reading_bytes(s->data, NULL);
    return true;
}

/* ---- planned and opened ---- */

/* With the correction on the ring. Where that cannot be, everything is as it was. */
static bool plan_on_ring(JobSetup *s, Err *e) {
    JobSpec asked = s->spec;
    s->spec.task = &task_correction;
    s->spec.update_in_backward = true;
    setup_fit(s);
    if (setup_job_plan(s, e)) return true;
    ring_close(&s->ring);
    s->spec = asked;
    return false;
}

/* --correction: true when the job is planned with it on the ring; otherwise *ok: host memory may be tried. */
static bool plan_correction(UnlearnRun *r, const char *why_host, bool *ok, Err *e) {
    JobSetup *s = &r->base;
    Err why = {0};
    bool asked = opt_is(r->o, OPT_CORRECTION, "device");
    *ok = true;
    if (!asked && (opt_is(r->o, OPT_CORRECTION, "host") || s->machine.kind == MACHINE_CPU || why_host)) return false;
    if (!why_host && plan_on_ring(s, &why)) return true;
    if (!asked) {
        const char *end = strstr(why.text, ". "); /* its first sentence */
        log_line("the correction is kept in host memory; beside the weights the job %.*s",
                 (int)(end ? end - why.text : (int64_t)strlen(why.text)), why.text);
        return false;
    }
    *ok = false;
    if (!why_host)
        *e = why;
    else
        fail(e, ERR_USAGE, "--correction device: %s; give --correction host", why_host);
    return false;
}

static bool plan(UnlearnRun *r, UnlearnVectors *vectors, void *user, Err *e) {
    JobSetup *s = &r->base;
    const char *why_host = "this method has none";
    bool ok;
    if (opt_is(r->o, OPT_METHOD, "lmcleaner") && opt_is(r->o, OPT_HESSIAN, "gauss-newton"))
        s->spec.task = &task_gauss_newton;
    if (!setup_packing(s, e)) return false;
    s->host.batches = run_batch_bytes(&s->spec, s->global_batch, s->data, 0);
    if (!job_plan(&s->job, &s->ring, &s->spec, &s->machine, NULL, e)) return false; /* how many parameters are there? */
    int64_t bytes = 0;
    if (vectors && !vectors(user, r, &bytes, &why_host, e)) return false;
    ring_close(&s->ring);
    if (plan_correction(r, why_host, &ok, e)) return true;
    if (!ok) return false;
    s->host.vectors = bytes + gauss_newton_bytes(&s->spec) + replay_stack_bytes(setup_threads(r->o));
    setup_fit(s);
    return setup_job_plan(s, e);
}

static const char *const may_differ[] = {"binary", "device"}; /* with --other-binary */

/* Builds and machines may differ where the person says so: states that are passed show whether the bits do. */
static bool check_build(const UnlearnRun *r, const json_t *job, Err *e) {
    for (int i = 0; i < COUNT_OF(may_differ) && !opt_flag(r->o, OPT_OTHER_BINARY); i++) {
        const json_t *there = json_object_get(r->history.job, may_differ[i]);
        if (json_equal(there, json_object_get(job, may_differ[i]))) continue;
        return fail(e, ERR_FAIL,
                    "step log %s: was written by another build of snug or on another machine (%s was %.60s). Give "
                    "--other-binary: a replay that comes to other weights than were logged is refused all the same",
                    r->history.folder, may_differ[i], there ? json_string_value(there) : "not set");
    }
    return true;
}

static bool check_belongs(UnlearnRun *r, Err *e) {
    json_t *job = setup_history_job(&r->base, e), *own = json_copy(job);
    for (int i = 0; job && i < COUNT_OF(may_differ); i++)
        json_object_set(job, may_differ[i], json_object_get(r->history.job, may_differ[i]));
    bool ok = job && history_check_job(&r->history, job, e) && check_build(r, own, e);
    json_decref(job);
    json_decref(own);
    return ok;
}

static bool start(UnlearnRun *r, Err *e) {
    JobSetup *s = &r->base;
    RunOptions ro = setup_job_options(s);
    ro.clip = opt_real(s->o, OPT_CLIP);
    ro.total_steps = r->history.n_steps;
    ro.loss_scale = ro.loss_scale_window = 1;
    if (!run_open(&s->run, &s->job, s->backend, s->data, NULL, &ro, e)) return false;
    r->replaying = true;
    int threads = correction_is_on_ring(&s->job) ? 1 : setup_threads(r->o); /* the host has no vectors to work on */
    return replay_open(&r->replay, &s->run, &r->history, threads, e);
}

static void begin(UnlearnRun *r, const Options *o) {
    *r = (UnlearnRun){.o = o, .base.o = &r->given};
    snprintf(r->folder, sizeof r->folder, "%s", opt_text(o, OPT_RUN));
}

bool unlearn_run_open(UnlearnRun *r, const Options *o, UnlearnVectors *vectors, void *user, Err *e) {
    double began = sensors_seconds();
    JobSetup *s = &r->base;
    begin(r, o);
    bool ok = read_options(r, e) && read_history(r, e) && setup_job_model(s, &r->given, true, e) &&
              (s->spec.m.random_init || setup_need_weights(&s->model, s->o, e)) && setup_job_machine(s, e) &&
              open_data(s, e) && plan(r, vectors, user, e) && check_belongs(r, e) && start(r, e);
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
    snprintf(r->tuned, sizeof r->tuned, "%s/%s", r->folder, was_lora ? "adapter" : "model");
    if (!file_is_dir(r->tuned))
        return fail(e, ERR_FAIL,
                    "--run %s: holds no %s, so the run has not ended. Finish it: snug train --config "
                    "%s/config.yaml --resume",
                    r->folder, was_lora ? "adapter" : "model", r->folder);
    if (was_lora) options_settle(g, OPT_ADAPTER, r->tuned, "--run");
    return was_lora ? setup_model(&r->base.model, g, e) : setup_model_named(&r->base.model, "--run", r->tuned, e);
}

/* Numbers of samples are places in the data as it was trained on. Where there is a log, it knows. */
static bool check_same_data(const UnlearnRun *r, Err *e) {
    char folder[1024], here[20];
    if (!opt_given(&r->given, OPT_STEP_LOG)) return true;
    setup_history_folder(folder, sizeof folder, &r->given);
    json_t *job = history_read_job(folder);
    const char *there = json_string_value(json_object_get(job, "data"));
    snprintf(here, sizeof here, "%016" PRIx64, dataset_fingerprint(r->base.data));
    bool ok = !there || !strcmp(there, here) ||
              fail(e, ERR_FAIL,
                   "--run %s: was trained on other rows than %s has now (%s there, %s here), so the numbers of its "
                   "samples mean others",
                   r->folder, opt_text(&r->given, OPT_DATA), there, here);
    json_decref(job);
    return ok;
}

static bool plan_result(JobSetup *s, const LossSpec *loss, int64_t rows, int64_t apart, Err *e) {
    JobSpec *p = &s->spec;
    p->task = baseline_task(loss);
    p->warmup_steps = 0; /* an indexer has had its own */
    p->warmup_frozen = false;
    if (loss_has_model(loss) && opt_given(s->o, OPT_ADAPTER))
        return fail(
            e, ERR_USAGE,
            "--method %s: holds a reference model beside, and this run's is a base with an adapter; merge it first "
            "(`snug merge`)",
            loss_names[loss->kind]);
    p->micro_batch = MIN2(p->micro_batch, rows - apart);
    p->accum = (rows - apart + p->micro_batch - 1) / p->micro_batch + (apart + p->micro_batch - 1) / p->micro_batch;
    s->global_batch = rows;
    s->host.batches = run_batch_bytes(p, rows, s->data, 0) + baseline_bytes(loss, p, rows, dataset_rows(s->data));
    if (!setup_attention(p, s->o, false, e)) return false;
    setup_fit(s);
    return setup_job_plan(s, e);
}

static bool start_result(JobSetup *s, Err *e) {
    RunOptions ro = setup_job_options(s);
    ro.clip = opt_real(s->o, OPT_CLIP);
    return run_open(&s->run, &s->job, s->backend, s->data, NULL, &ro, e);
}

bool unlearn_run_open_result(UnlearnRun *r, const Options *o, const LossSpec *loss, int64_t rows, int64_t apart,
                             Err *e) {
    JobSetup *s = &r->base;
    begin(r, o);
    return read_options(r, e) && settle_tuning(r, e) &&
           setup_spec(&s->spec, &s->global_batch, s->o, &s->model.config, true, e) &&
           setup_need_weights(&s->model, s->o, e) && setup_job_machine(s, e) && open_data(s, e) &&
           check_same_data(r, e) && plan_result(s, loss, rows, apart, e) && start_result(s, e);
}

void unlearn_run_close(UnlearnRun *r) {
    if (r->replaying) replay_close(&r->replay);
    setup_job_close(&r->base);
    history_free(&r->history);
    options_free(&r->given);
}

/* ---- the end of the run, and a result ---- */

static const char *result_name(const UnlearnRun *r) { return r->base.spec.lora ? "adapter" : "model"; }

bool unlearn_run_load_result(UnlearnRun *r, Err *e) {
    Exec *x = &r->base.ring.x;
    Role role = job_trained_role(&r->base.job);
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

/* What --out may hold of an earlier request: it would be taken for this one's result. */
static const char *other_name(const UnlearnRun *r) { return r->base.spec.lora ? "model" : "adapter"; }

/* That it holds no result of that name, or one that may be replaced. */
static bool check_earlier(const UnlearnRun *r, const char *name, Err *e) {
    const char *out = opt_text(r->o, OPT_OUT);
    char path[1100];
    snprintf(path, sizeof path, "%s/%s", out, name);
    if (!file_exists(path)) return true;
    if (!opt_flag(r->o, OPT_OVERWRITE))
        return fail(e, ERR_FAIL, "--out %s: holds the result %s already. Choose another, or give --overwrite", out,
                    name);
    if (file_is_within(path, r->folder))
        return fail(e, ERR_USAGE, "--out %s: is the run that is read. Choose another", out);
    return folder_check(path, e);
}

bool unlearn_run_check_out(UnlearnRun *r, Err *e) {
    const char *out = opt_text(r->o, OPT_OUT);
    char path[1100];
    StSizes sizes;
    unlearn_run_result_path(r, path, sizeof path);
    if (!check_earlier(r, other_name(r), e) || !check_earlier(r, result_name(r), e)) return false;
    Role role = job_trained_role(&r->base.job);
    if (!folder_check(path, e) || !weights_sizes(&sizes, &r->base.ring.p, role, e)) return false;
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
    char path[1100], earlier[1100];
    Str spent = {0};
    unlearn_run_result_path(r, path, sizeof path);
    snprintf(earlier, sizeof earlier, "%s/%s", opt_text(r->o, OPT_OUT), other_name(r));
    if (!file_make_dirs(opt_text(r->o, OPT_OUT), e) || !folder_recover(path, e) || !folder_begin(&f, path, e))
        return false;
    bool ok = run_write_trained(&r->base.run, f.temporary, e) && run_sync_device(&r->base.run, e);
    for (int i = 0; ok && i < n; i++) ok = write_text(f.temporary, texts[i].name, texts[i].text, e);
    if (ok) measure(user, &spent);
    ok = ok && write_text(f.temporary, "EFFICIENCY.json", &spent, e);
    str_free(&spent);
    return folder_end(&f, ok, e) && folder_remove(earlier, e);
}
