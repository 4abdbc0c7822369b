/* cmd_train.c - snug train: plan, check the budget, load, run, show planned beside measured. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/units.h"
#include "cli/cmd.h"
#include "cli/setup.h"
#include "cli/show.h"
#include "train/search.h"
#include "train/run.h"

typedef struct Session {
    Options found; /* a copy of those given, in which --allow may settle some */
    const Options *o; /* it */
    Taken taken;
    ModelFiles model;
    Words words;
    Dataset *data, *held_out;
    Backend *backend;
    Machine machine;
    HostBytes host;
    JobSpec asked, spec; /* before the planner decided, and after */
    Job job;
    Ring ring;
    bool planned;
    char out[600]; /* when it is not given */
    int64_t global_batch, budget_bytes;
    FitLimits limits;
    int data_workers;
    Str config_yaml, plan_json;
    json_t *settings;
    const char *pairs[2 * 128]; /* of settings */
    Run run;
    bool running;
} Session;

static bool open_data(Session *s, Err *e) {
    const Options *o = s->o;
    if (!setup_words(&s->words, o, &s->model, e) ||
        !setup_data(&s->data, o, &s->words, &s->model, opt_text(o, OPT_DATA), e))
        return false;
    if (opt_given(o, OPT_EVAL_DATA)) {
        if (!setup_data(&s->held_out, o, &s->words, &s->model, opt_text(o, OPT_EVAL_DATA), e)) return false;
    } else if (opt_real(o, OPT_VAL_SPLIT) > 0) {
        if (!dataset_split(s->data, &s->held_out, opt_real(o, OPT_VAL_SPLIT), e)) return false;
        log_line("held out: %s rows, trained on: %s rows", units_count(dataset_rows(s->held_out)).s,
                 units_count(dataset_rows(s->data)).s);
    }
    s->host.data = dataset_bytes(s->data) + (s->held_out ? dataset_bytes(s->held_out) : 0);
    s->host.tokenizer = s->words.tokenizer ? tokenizer_bytes(s->words.tokenizer) : 0;
    return true;
}

/* Rows of the length that --allow seq came to. */
static bool reopen_data(Session *s, Err *e) {
    if (s->held_out) dataset_close(s->held_out);
    dataset_close(s->data);
    s->data = s->held_out = NULL;
    setup_words_free(&s->words);
    return open_data(s, e);
}

/* Less memory was found than planned: the job anew, smaller. */
static bool replan(Session *s, Shortage what, Err *e) {
    if (!setup_replan(&s->spec, &s->limits, &s->asked, s->o, &s->job, &s->host, what, e)) return false;
    s->budget_bytes = s->limits.device_bytes;
    s->host.batches = run_batch_bytes(&s->spec, s->global_batch, s->data_workers);
    ring_close(&s->ring);
    return job_plan(&s->job, &s->ring, &s->spec, &s->machine, &s->host, e);
}

static bool check_free(Session *s, Err *e) {
    for (;;) {
        if (setup_check_free(&s->ring, s->backend, e)) return true;
        if (!replan(s, setup_shortage(&s->job, NULL, s->backend), e)) return false;
    }
}

static bool plan(Session *s, Err *e) {
    s->spec.evaluate = s->held_out != NULL;
    bool packed = dataset_is_packed(s->data) || (s->held_out && dataset_is_packed(s->held_out));
    if (!setup_attention(&s->spec, s->o, packed, e)) return false;
    if (!setup_backend(&s->backend, &s->machine, s->o, e) || !setup_fall_back(&s->spec, s->o, &s->machine, e)) return false;
    s->data_workers = opt_given(s->o, OPT_DATA_WORKERS) ? (int)opt_int(s->o, OPT_DATA_WORKERS) : s->backend->asynchronous;
    s->host.batches = run_batch_bytes(&s->spec, s->global_batch, s->data_workers);
    if (!setup_limits(&s->limits, s->o, &s->machine, e)) return false;
    s->budget_bytes = s->limits.device_bytes;
    s->asked = s->spec;
    setup_fit(&s->spec, s->o, &s->machine, &s->host, s->limits);
    setup_record_taken(&s->found, &s->taken, &s->spec);
    if (s->spec.seq != dataset_seq(s->data) && !reopen_data(s, e)) return false;
    s->host.batches = run_batch_bytes(&s->spec, s->global_batch, s->data_workers); /* of the micro-batch that was found */
    s->planned = true;
    if (!job_plan(&s->job, &s->ring, &s->spec, &s->machine, &s->host, e)) return false;
    Str text = {0};
    show_plan(&text, &s->job, s->budget_bytes, NULL);
    log_line("%s", str_text(&text));
    str_free(&text);
    if (setup_check_budget(&s->job, &s->host, s->limits, e)) return check_free(s, e);
    if (opt_flag(s->o, OPT_JSON)) { /* the refusal as JSON too */
        json_t *root = show_plan_json(&s->job, &s->host, s->budget_bytes);
        char *dump = json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(9));
        printf("%s\n", dump);
        mem_free(dump);
        json_decref(root);
    }
    return false;
}

/* What a resumed run must agree on. */
static void fill_settings(Session *s, RunOptions *ro) {
    if (s->settings) json_decref(s->settings);
    s->settings = options_json(s->o, true);
    char data[24];
    snprintf(data, sizeof data, "%016llx", (unsigned long long)dataset_fingerprint(s->data));
    json_object_set_new(s->settings, "data", json_string(data));
    const char *name;
    json_t *value;
    ro->settings = s->pairs;
    json_object_foreach(s->settings, name, value) {
        if (2 * ro->n_settings + 2 > COUNT_OF(s->pairs) || !json_is_string(value)) continue;
        s->pairs[2 * ro->n_settings] = name;
        s->pairs[2 * ro->n_settings++ + 1] = json_string_value(value);
    }
}

static bool parse_loss_scale(RunOptions *ro, const Options *o, Err *e) {
    const char *text = opt_text(o, OPT_LOSS_SCALE);
    char *end = NULL;
    ro->loss_scale = strcmp(text, "auto") ? strtod(text, &end) : 65536;
    ro->loss_scale_window = opt_int(o, OPT_LOSS_SCALE_WINDOW);
    if ((end && (end == text || *end)) || !(ro->loss_scale >= 1 && ro->loss_scale <= 1e30))
        return fail(e, ERR_USAGE, "--loss-scale %s: is neither auto nor a number from 1 to 1e30", text);
    return true;
}

static void fill_run_options(Session *s, RunOptions *ro) {
    static const char *const kinds[] = {
        [SCHEDULE_COSINE] = "cosine", [SCHEDULE_LINEAR] = "linear", [SCHEDULE_CONSTANT] = "constant"};
    const Options *o = s->o;
    int64_t per_epoch = run_steps_per_epoch(s->data, s->global_batch);
    *ro = (RunOptions){.out = opt_text(o, OPT_OUT), .base_name = opt_text(o, OPT_MODEL), .resume = opt_text(o, OPT_RESUME),
                       .clip = opt_real(o, OPT_CLIP), .epochs = opt_real(o, OPT_EPOCHS), .global_batch = s->global_batch,
                       .log_steps = opt_int(o, OPT_LOG_STEPS), .eval_steps = opt_int(o, OPT_EVAL_STEPS),
                       .eval_batches = opt_int(o, OPT_EVAL_BATCHES), .save_steps = opt_int(o, OPT_SAVE_STEPS),
                       .save_total_limit = opt_int(o, OPT_SAVE_TOTAL_LIMIT), .save = opt_flag(o, OPT_SAVE),
                       .save_best = opt_flag(o, OPT_SAVE_BEST),
                       .dry_run = opt_flag(o, OPT_DRY_RUN), .profile = opt_flag(o, OPT_PROFILE),
                       .growth_alarm_bytes = opt_bytes(o, OPT_GROWTH_ALARM),
                       .stop = &cmd_stop};
    ro->data_workers = s->data_workers;
    ro->trim_every = opt_int(o, OPT_TRIM_EVERY);
    ro->cleanup_delay_seconds = opt_real(o, OPT_CLEANUP_DELAY);
    ro->ahead = opt_is(o, OPT_AHEAD, "on") || (opt_is(o, OPT_AHEAD, "auto") && s->backend->asynchronous);
    ro->warm = ro->ahead;
    ro->ahead &= !s->spec.update_in_backward; /* the next passes would change the weights */
    if (!opt_given(o, OPT_RESUME)) ro->resume = NULL;
    if (opt_given(o, OPT_ADAPTER)) ro->adapter_folder = opt_text(o, OPT_ADAPTER);
    ro->model_folder = s->model.has_folder && !s->spec.m.random_init ? s->model.folder : NULL;
    ro->total_steps = opt_given(o, OPT_STEPS) ? opt_int(o, OPT_STEPS) : (int64_t)ceil(ro->epochs * (double)per_epoch - 1e-9);
    if (ro->total_steps < 1) ro->total_steps = 1;
    ro->schedule = (Schedule){.lr = opt_real(o, OPT_LR), .min_lr = opt_real(o, OPT_MIN_LR), .total_steps = ro->total_steps,
                              .warmup_steps = opt_int(o, OPT_WARMUP_STEPS)};
    if (!ro->schedule.warmup_steps)
        ro->schedule.warmup_steps = (int64_t)ceil(opt_real(o, OPT_WARMUP_RATIO) * (double)ro->total_steps - 1e-9);
    for (int i = 0; i < COUNT_OF(kinds); i++)
        if (opt_is(o, OPT_SCHEDULE, kinds[i])) ro->schedule.kind = (ScheduleKind)i;
    str_clear(&s->config_yaml);
    str_clear(&s->plan_json);
    options_write_yaml(&s->config_yaml, o);
    json_t *root = show_plan_json(&s->job, &s->host, s->budget_bytes == INT64_MAX ? 0 : s->budget_bytes);
    char *dump = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    str_addf(&s->plan_json, "%s\n", dump);
    mem_free(dump);
    json_decref(root);
    ro->config_yaml = str_text(&s->config_yaml);
    ro->plan_json = str_text(&s->plan_json);
    log_line("%s updates of %s rows: %s an epoch; predicted %s", units_count(ro->total_steps).s,
             units_count(s->global_batch).s, units_count(per_epoch).s,
             units_seconds(ring_round_seconds(&s->ring, &s->ring.machine) * (double)ro->total_steps).s);
}

static void print_number(Str *out, const char *name, double v) {
    if (isfinite(v)) str_addf(out, "\"%s\":%.17g,", name, v);
    else str_addf(out, "\"%s\":null,", name);
}

/* The last line of standard output. */
static void print_result(const Session *session, const RunResult *r) {
    const Job *j = &session->job;
    Str s = {0};
    str_addf(&s, "{\"steps\":%lld,\"skipped_steps\":%lld,", (long long)r->steps, (long long)r->skipped_steps);
    print_number(&s, "first_loss", r->first_loss);
    print_number(&s, "loss", r->loss);
    print_number(&s, "eval_loss", r->eval_loss);
    print_number(&s, "tokens_per_s", r->tokens_per_s);
    double tokens = (double)(session->global_batch * j->spec.seq) * dataset_report(session->data)->fill;
    print_number(&s, "predicted_tokens_per_s", tokens / ring_round_seconds(j->ring, &j->ring->machine));
    Str plan = {0};
    technique_layout_flags(&plan, &j->spec);
    str_addf(&s, "\"plan\":\"%s\",", str_text(&plan));
    str_free(&plan);
    str_addf(&s, "\"host_planned_bytes\":%lld,", (long long)ring_host_bytes(j->ring));
    str_addf(
        &s,
        "\"planned_bytes\":%lld,\"measured_bytes\":%lld,\"process_planned_bytes\":%lld,\"process_measured_bytes\":%lld,"
        "\"allocations_after_first_step\":%lld,\"checksum\":\"%016llx\",\"stopped_by\":%d,\"result\":\"%s\"}",
        (long long)r->planned_bytes, (long long)r->measured_bytes, (long long)r->process_planned_bytes,
        (long long)r->process_measured_bytes, (long long)r->allocations_after_first_step,
        (unsigned long long)r->checksum, r->stopped_by, r->result);
    printf("%s\n", str_text(&s));
    str_free(&s);
}

static void say_result(const Session *s, const RunResult *r) {
    Str text = {0};
    show_plan(&text, &s->job, s->budget_bytes, &(Measured){r->measured_bytes, r->process_measured_bytes});
    log_line("\n%s", str_text(&text));
    str_free(&text);
    if (r->stopped_by)
        log_line("stopped by signal %d after step %lld; go on with --resume", r->stopped_by, (long long)r->steps);
    else if (s->run.o.dry_run) log_line("dry run: everything but the steps was done");
    else log_line("loss %.4f -> %.4f in %lld steps; %s", r->first_loss, r->loss, (long long)r->steps, r->result);
    if (r->skipped_steps) log_line("%lld of them overflowed and were skipped (--loss-scale)", (long long)r->skipped_steps);
}

/* Not under a run that is going on. */
static bool remove_earlier(const char *out, Err *e) {
    RunLock lock = {.fd = -1};
    if (!file_exists(out)) return true;
    bool ok = (!file_is_dir(out) || runlock_take(&lock, out, e)) && file_remove_tree(out, e);
    runlock_release(&lock);
    return ok;
}

/* Beside the arena, what the device was seen to take: complete before the first step. */
static void say_measured_lines(const Job *j) {
    for (int i = 0; i < j->ring->ledger.n; i++) {
        const LedgerLine *l = &j->ring->ledger.line[i];
        if (l->measured_bytes >= 0)
            log_line("%-9s planned %12s, measured %12s", l->name, units_bytes(l->planned_bytes).s,
                     units_bytes(l->measured_bytes).s);
    }
}

/* Opens the run; where its memory cannot be had, with a smaller plan. */
static bool open_run(Session *s, Err *e) {
    RunOptions ro;
    for (;;) {
        fill_run_options(s, &ro);
        if (!parse_loss_scale(&ro, s->o, e)) return false;
        fill_settings(s, &ro);
        if (opt_flag(s->o, OPT_OVERWRITE) && !ro.resume && !remove_earlier(ro.out, e)) return false;
        s->running = true;
        if (run_open(&s->run, &s->job, s->backend, s->data, s->held_out, &ro, e)) return true;
        if (!s->ring.x.refused_bytes) return false;
        Shortage what = setup_shortage(&s->job, &s->ring.x, s->backend);
        run_close(&s->run);
        s->running = false;
        if (!replan(s, what, e)) return false;
    }
}

static bool train(Session *s, Err *e) {
    RunResult result;
    if (!open_run(s, e)) return false;
    say_measured_lines(&s->job);
    if (!run_train(&s->run, &result, e)) return false;
    say_result(s, &result);
    print_result(s, &result);
    return setup_keep_choices(s->backend, &s->machine, s->o, e);
}

static void close_session(Session *s) {
    if (s->running) run_close(&s->run);
    if (s->settings) json_decref(s->settings);
    str_free(&s->config_yaml);
    str_free(&s->plan_json);
    if (s->planned) ring_close(&s->ring);
    if (s->backend) s->backend->close(s->backend);
    if (s->held_out) dataset_close(s->held_out);
    if (s->data) dataset_close(s->data);
    setup_words_free(&s->words);
}

/* No --out: runs/NAME, after the model. What stands there already is refused or gone on with as anywhere else. */
static void settle_out(Session *s) {
    if (opt_given(s->o, OPT_OUT)) return;
    const char *model = opt_text(s->o, OPT_MODEL);
    int end = (int)strlen(model);
    while (end > 1 && model[end - 1] == '/') end--;
    int begin = end;
    while (begin > 0 && model[begin - 1] != '/') begin--;
    snprintf(s->out, sizeof s->out, "runs/%.*s", MIN2(end - begin, 500), model + begin);
    options_settle(&s->found, OPT_OUT, s->out, "--model");
    log_line("no --out given: the run goes to %s", s->out);
}

bool cmd_train(const Options *o, Err *e) {
    Session *s = MEM_NEW(Session, 1);
    s->found = *o; /* its texts stay the caller's */
    s->o = &s->found;
    Str text = {0};
    options_print(&text, o, false);
    log_line("%s", str_text(&text));
    str_free(&text);
    settle_out(s);
    bool ok = setup_model(&s->model, o, e) && setup_spec(&s->spec, &s->global_batch, o, &s->model.config, true, e) &&
              setup_adapter(&s->spec, o, e);
    if (ok && !s->model.has_folder && !s->spec.m.random_init)
        ok = fail(e, ERR_FAIL, "--model %s: is a preset without weights. Give a folder, or --init random",
                  opt_text(o, OPT_MODEL));
    ok = ok && open_data(s, e) && plan(s, e) && train(s, e);
    close_session(s);
    mem_free(s);
    return ok;
}
