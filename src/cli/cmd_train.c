/* cmd_train.c - snug train, and every command that trains: plan, check the budget, load, run, show planned beside
 * measured. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/units.h"
#include "cli/jobs.h"
#include "cli/plan_picture.h"
#include "cli/session.h"
#include "cli/show.h"

static bool open_data(Session *s, Err *e) {
    JobSetup *b = &s->base;
    if (s->task) return setup_words(&b->words, b->o, &b->model, e) && s->task->open(s, e);
    if (!setup_job_data(b, b->limits, e)) return false;
    if (b->held_out && !opt_given(b->o, OPT_EVAL_DATA))
        log_line("held out: %s rows, trained on: %s rows", units_count(dataset_rows(b->held_out)).s,
                 units_count(dataset_rows(b->data)).s);
    return true;
}

/* Rows of the length that --allow seq came to. */
static bool reopen_data(Session *s, Err *e) {
    setup_job_close_data(&s->base);
    return open_data(s, e) && judge_setup(&s->best, &s->base, e);
}

static void count_batches(Session *s) {
    JobSetup *b = &s->base;
    if (b->data) setup_history_host(b);
    if (s->task) s->task->count(s);
    if (b->data)
        b->host.batches = run_batch_bytes(&b->spec, b->global_batch, b->data, s->data_workers) +
                          graph_judge_bytes(&s->best.judge);
}

/* Less memory was found than planned: the job anew, smaller. */
static bool replan(Session *s, Shortage what, Err *e) {
    JobSetup *b = &s->base;
    if (!setup_replan(b, &s->asked, what, e)) return false;
    s->budget_bytes = b->limits.device_bytes;
    count_batches(s);
    ring_close(&b->ring);
    return job_plan(&b->job, &b->ring, &b->spec, &b->machine, &b->host, e);
}

static bool check_free(Session *s, Err *e) {
    JobSetup *b = &s->base;
    for (;;) {
        Machine now = {0};
        b->backend->describe(b->backend, &now);
        memcpy(b->machine.free_bytes, now.free_bytes, sizeof now.free_bytes);
        if (setup_check_free(&b->ring, b->backend, e)) return true;
        if (!replan(s, setup_shortage(b, NULL), e)) return false;
    }
}

static bool pack(Session *s, Err *e) {
    if (!s->task) return setup_packing(&s->base, e);
    if (!s->task->shape(s, e)) return false;
    count_batches(s); /* of the rows that it has now */
    return true;
}

static bool plan(Session *s, Err *e) {
    JobSetup *b = &s->base;
    b->spec.evaluate = b->held_out != NULL;
    if (!judge_setup(&s->best, b, e)) return false;
    s->data_workers =
        opt_given(b->o, OPT_DATA_WORKERS) ? (int)opt_int(b->o, OPT_DATA_WORKERS) : b->backend->asynchronous;
    count_batches(s);
    s->budget_bytes = b->limits.device_bytes;
    if (!pack(s, e)) return false;
    s->asked = b->spec;
    setup_fit(b);
    setup_record_taken(&s->found, &s->taken, &b->spec);
    if (b->data && b->spec.seq != dataset_seq(b->data) && !(reopen_data(s, e) && pack(s, e))) return false;
    count_batches(s); /* of the micro-batch that was found */
    if (!job_plan(&b->job, &b->ring, &b->spec, &b->machine, &b->host, e) || !job_check_names(&b->job, e)) return false;
    Str text = {0};
    show_plan(&text, &b->job, s->budget_bytes, NULL);
    log_str(&text);
    if (setup_check_budget(&b->job, &b->host, b->limits, e)) return check_free(s, e);
    if (opt_flag(b->o, OPT_JSON)) { /* the refusal as JSON too */
        json_t *root = show_plan_json(&b->job, &b->host, s->budget_bytes);
        show_print_json(root);
    }
    return false;
}

/* What a resumed run must agree on. */
static void fill_settings(Session *s, RunOptions *ro) {
    json_decref(s->settings);
    s->settings = options_json(s->base.o, true);
    if (s->task) s->task->settings(s, s->settings);
    if (s->best.judge.n) json_object_set_new(s->settings, "best-by", json_string(s->best.judge.judge.name));
    if (s->base.data) json_set_hex(s->settings, "data", dataset_fingerprint(s->base.data));
    /* what a place in the data means; earlier versions had a list of rows in another order, and no such setting */
    json_object_set_new(s->settings, "data-order", json_string("2: rows by a keyed permutation, samples counted"));
    ro->settings = s->settings;
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

static double save_seconds(const Options *o) { return 60 * opt_real(o, OPT_SAVE_MINUTES); }

/* A lengthened run keeps the warm-up it had, also where that was a share of its steps. */
static void fill_schedule(const Session *s, RunOptions *ro) {
    const Options *o = s->base.o;
    Schedule *sch = &ro->schedule;
    *sch = (Schedule){.lr = opt_real(o, OPT_LR), .min_lr = opt_real(o, OPT_MIN_LR),
                      .warmup_steps = opt_int(o, OPT_WARMUP_STEPS), .decay_steps = opt_int(o, OPT_DECAY_STEPS),
                      .decay_ratio = opt_real(o, OPT_DECAY_RATIO)};
    if (!(sch->min_lr > 0)) sch->min_lr = opt_real(o, OPT_MIN_LR_RATIO) * sch->lr;
    sch->total_steps = opt_int(o, OPT_SCHEDULE_STEPS) ? opt_int(o, OPT_SCHEDULE_STEPS) : ro->total_steps;
    if (!sch->warmup_steps && s->folder.saved.warmup_steps >= 0) sch->warmup_steps = s->folder.saved.warmup_steps;
    else if (!sch->warmup_steps)
        sch->warmup_steps = (int64_t)ceil(opt_real(o, OPT_WARMUP_RATIO) * (double)sch->total_steps - 1e-9);
    sch->kind = (ScheduleKind)opt_which(o, OPT_SCHEDULE, schedule_names, SCHEDULE_KINDS);
    sch->decay = (DecayShape)opt_which(o, OPT_DECAY_SHAPE, decay_names, DECAY_SHAPES);
}

/* What is done about updates that are far from the others; a task's loss need not be one that falls. */
static void fill_spikes(const Session *s, RunOptions *ro) {
    static const char *const actions[] = {"ignore", "warn", "skip", "stop"}; /* SpikeAction */
    const Options *o = s->base.o;
    if (s->task) return;
    ro->spike = (SpikeRule){.factor = opt_real(o, OPT_SPIKE_FACTOR), .window = opt_int(o, OPT_SPIKE_WINDOW)};
    ro->spike.on = (SpikeAction)opt_which(o, OPT_ON_SPIKE, actions, COUNT_OF(actions));
    ro->skip_nonfinite = opt_is(o, OPT_ON_NONFINITE, "skip");
    ro->skip_limit = opt_int(o, OPT_SKIP_LIMIT);
}

static void fill_length(Session *s, RunOptions *ro) {
    int64_t per_epoch = 0;
    char rows[64];
    const char *of = rows;
    if (s->task) {
        ro->total_steps = s->task->updates(s, &per_epoch, &of);
    } else {
        per_epoch = run_steps_per_epoch(s->base.data, s->base.global_batch);
        ro->total_steps = setup_updates(s->base.o, s->base.data, s->base.global_batch);
        bool in_rows = dataset_is_packed(s->base.data) && !dataset_packs_updates(s->base.data);
        const char *what = in_rows ? "rows" : "samples";
        snprintf(rows, sizeof rows, "%s %s", units_count(s->base.global_batch).s, what);
        if (dataset_rows(s->base.data) < s->base.global_batch)
            log_line("the data have %s %s, fewer than the %s of --global-batch: every update takes all of them",
                     units_count(dataset_rows(s->base.data)).s, what, units_count(s->base.global_batch).s);
    }
    log_line("%s updates of %s: %s an epoch; predicted %s", units_count(ro->total_steps).s, of,
             units_count(per_epoch).s,
             units_seconds(job_update_seconds(&s->base.job, ro->total_steps) * (double)ro->total_steps).s);
}

static void fill_run_options(Session *s, RunOptions *ro) {
    const Options *o = s->base.o;
    bool asynchronous = s->base.backend->asynchronous;
    *ro = setup_job_options(&s->base);
    ro->folder = &s->folder;
    ro->out = opt_text(o, OPT_OUT);
    ro->spare_dir = opt_text(o, OPT_SPARE_DIR);
    ro->clip = opt_real(o, OPT_CLIP);
    ro->epochs = opt_real(o, OPT_EPOCHS);
    ro->log_steps = opt_int(o, OPT_LOG_STEPS);
    ro->eval_steps = opt_int(o, OPT_EVAL_STEPS);
    ro->eval_batches = opt_int(o, OPT_EVAL_BATCHES);
    ro->save_steps = opt_int(o, OPT_SAVE_STEPS);
    ro->save_total_limit = opt_int(o, OPT_SAVE_TOTAL_LIMIT);
    ro->save = opt_flag(o, OPT_SAVE);
    ro->save_seconds = ro->save ? save_seconds(o) : 0;
    ro->save_best = !opt_is(o, OPT_SAVE_BEST, "none");
    ro->dry_run = opt_flag(o, OPT_DRY_RUN);
    ro->profile = opt_flag(o, OPT_PROFILE);
    ro->growth_alarm_bytes = opt_bytes(o, OPT_GROWTH_ALARM);
    ro->data_workers = s->data_workers;
    ro->trim_every = opt_int(o, OPT_TRIM_EVERY);
    ro->nvml = getenv("SNUG_NVML");
    ro->cleanup_delay_seconds = opt_real(o, OPT_CLEANUP_DELAY);
    ro->warm = opt_is(o, OPT_AHEAD, "on") || (opt_is(o, OPT_AHEAD, "auto") && asynchronous);
    ro->ahead = ro->warm && !s->base.spec.update_in_backward; /* the next passes would change the weights */
    fill_length(s, ro);
    fill_schedule(s, ro);
    fill_spikes(s, ro);
    if (s->best.judge.n) ro->judge = &s->best.judge.judge;
    if (s->task) { /* the next answers want the weights of this update */
        ro->source = &s->source;
        ro->warm = asynchronous;
        ro->ahead = false;
        ro->global_batch = 1;
    }
}

/* config.yaml and plan.json, as they will be written. */
static void fill_texts(Session *s, RunOptions *ro) {
    str_clear(&s->config_yaml);
    str_clear(&s->plan_json);
    options_write_yaml(&s->config_yaml, s->base.o);
    json_t *root = show_plan_json(&s->base.job, &s->base.host, s->budget_bytes == INT64_MAX ? 0 : s->budget_bytes);
    json_object_set_new(root, "saving", run_saving_json(&s->saving, ro));
    json_object_set_new(root, "memory_over_step", plan_timeline_json(&s->base.ring));
    const char *name = opt_text(s->base.o, OPT_RUN_NAME);
    if (name) json_object_set_new(root, "run_name", json_string(name));
    json_print(&s->plan_json, root, JSON_INDENT(2) | JSON_REAL_PRECISION(JSON_DIGITS));
    str_add_char(&s->plan_json, '\n');
    json_decref(root);
    ro->config_yaml = str_text(&s->config_yaml);
    ro->plan_json = str_text(&s->plan_json);
}

static bool prepare_step_log(Session *s, RunOptions *ro, Err *e) {
    int64_t resumed = s->folder.saved.global_step;
    history_close(&s->history);
    if (!setup_history(&s->history, &s->base, resumed, e))
        return false;
    ro->history = s->history.open ? &s->history : NULL;
    ro->log_updates = setup_history_updates(&ro->update_format, s->base.o);
    if (!run_plan_step_log(&s->step_log, &s->base.job, ro, e) ||
        !run_check_step_log_room(&s->step_log, &s->saving, ro, e))
        return false;
    Str text = {0};
    if (ro->history) run_step_log_text(&text, &s->step_log, &s->base.job, ro);
    log_str(&text);
    return true;
}

/* An indexer's warm-up takes the steps that config.json says unless a person does: what a run is made of is said. */
static void say_indexer_warmup(const Session *s, const RunOptions *ro) {
    const JobSpec *j = &s->base.spec;
    long long warm = j->warmup_steps, all = ro->total_steps;
    if (s->folder.saved.global_step >= warm) return; /* it has none, or has it behind it */
    if (warm >= all)
        log_warn(
            "the run of %lld steps ends within the indexer's warm-up of %lld: attention is dense in all of them, "
            "and %s; give a shorter --indexer-warmup-steps, or --indexer-warmup none",
            all, warm,
            j->warmup_frozen ? "only the indexer learns" : "the model never learns from the keys it selects");
    else
        log_line(
            "attention is dense in the first %lld of %lld steps, while the indexer %s (--indexer-warmup %s), then "
            "sparse",
            warm, all, j->warmup_frozen ? "alone learns" : "learns beside the model",
            j->warmup_frozen ? "frozen" : "joint");
}

/* Everything about the run that can be refused before weights are loaded. */
static bool prepare(Session *s, RunOptions *ro, Err *e) {
    fill_run_options(s, ro);
    fill_settings(s, ro);
    if (!parse_loss_scale(ro, s->base.o, e) || !run_agree(&s->folder, ro, s->base.data, e)) return false;
    RuleFacts facts = {.total_steps = ro->total_steps, .warmup_steps = ro->schedule.warmup_steps,
                       .on_cpu = s->base.machine.kind == MACHINE_CPU, .data = s->base.data};
    if (!rules_check(&s->found, RULE_RUN, &facts, e)) return false;
    run_say_length(&s->folder, ro);
    say_indexer_warmup(s, ro);
    run_say_model(&s->folder, ro);
    if (!run_plan_saving(&s->saving, &s->base.job, ro, e) ||
        !run_check_room(&s->saving, &s->base.job, ro, opt_text(s->base.o, OPT_OFFLOAD_DIR), e) ||
        !prepare_step_log(s, ro, e))
        return false;
    Str text = {0};
    run_saving_text(&text, &s->saving, ro);
    log_str(&text);
    fill_texts(s, ro);
    return true;
}

/* The last line of standard output. */
static void print_result(const Session *session, const RunResult *r, const Peak *peak) {
    const Job *j = &session->base.job;
    json_t *o = json_object();
    Str plan = {0};
    JSON_SET_COUNTS(o, {"steps", r->steps}, {"skipped_steps", r->skipped_steps}, {"spikes", r->spikes});
    JSON_SET_NUMBERS(o, {"first_loss", r->first_loss}, {"loss", r->loss}, {"eval_loss", r->eval_loss});
    if (session->best.judge.n) json_set_number(o, session->best.judge.judge.name, r->eval_score);
    if (j->report >= 0)
        JSON_SET_NUMBERS(o, {"indexer_recall", r->attention.recall}, {"k_mean", r->attention.k_mean},
                         {"gate_mean", r->attention.gate_mean}, {"index_loss", r->attention.index_loss});
    if (j->noise >= 0) json_set_number(o, "noise_scale_tokens", r->noise_scale);
    JSON_SET_NUMBERS(o, {"tokens_per_s", r->tokens_per_s}, {"data_wait_share", r->wait_share},
                     {"cpu_utilization", r->samples.cpu_share});
    if (r->samples.looks)
        JSON_SET_NUMBERS(o, {"gpu_utilization", r->samples.gpu_busy}, {"gpu_power_w", r->samples.watts});
    double tokens = (double)(session->base.global_batch * j->spec.seq);
    if (session->base.data) tokens *= dataset_report(session->base.data)->fill;
    if (j->spec.rows) tokens = j->spec.rows->mean_tokens;
    json_set_number(o, "predicted_tokens_per_s", tokens / job_update_seconds(j, session->base.run.o.total_steps));
    technique_layout_flags(&plan, &j->spec);
    json_object_set_new(o, "plan", json_string(str_text(&plan)));
    str_free(&plan);
    JSON_SET_COUNTS(o, {"host_planned_bytes", ring_host_bytes(j->ring)}, {"planned_bytes", r->planned_bytes},
                    {"measured_bytes", r->measured_bytes}, {"process_planned_bytes", r->process_planned_bytes},
                    {"process_measured_bytes", peak->budget_bytes});
    peak_json(o, peak);
    JSON_SET_COUNTS(o, {"allocations_after_first_step", r->allocations_after_first_step},
                    {"checkpoint_bytes", session->saving.checkpoint_bytes});
    if (session->history.open) {
        JSON_SET_COUNTS(o, {"step_log_bytes", session->history.bytes},
                        {"step_log_bytes_per_step", session->history.bytes / MAX2(r->steps, 1)},
                        {"step_log_checkpoint_bytes", session->step_log.state_bytes},
                        {"step_log_planned_bytes", session->step_log.disk_bytes});
        json_set_number(o, "step_log_seconds", session->base.run.log.seconds);
        if (session->step_log.update_bytes) json_set_count(o, "step_log_update_bytes", session->step_log.update_bytes);
        if (session->step_log.update_bytes) json_set_number(o, "step_log_update_error", session->base.run.update_error);
    }
    json_set_hex(o, "checksum", r->checksum);
    json_set_count(o, "stopped_by", r->stopped_by);
    json_object_set_new(o, "finished_before", json_boolean(r->finished));
    const char *name = opt_text(session->base.o, OPT_RUN_NAME);
    if (name) json_object_set_new(o, "run_name", json_string(name));
    json_object_set_new(o, "result", json_string(r->result.s));
    if (session->task) session->task->result(session, o);
    show_print_digits(o, JSON_ALL_DIGITS);
}

/* Asked to leave before the first step: the run's folder is as it was. */
static void report_stopped(int64_t steps) {
    json_t *o = json_object();
    json_set_count(o, "steps", steps);
    json_set_count(o, "stopped_by", (int)stop_signal);
    json_object_set_new(o, "result", json_string(""));
    log_line("stopped by signal %d before the first step: nothing was written", (int)stop_signal);
    show_print_digits(o, JSON_ALL_DIGITS);
}

static void say_result(const Session *s, const RunResult *r, const Peak *peak) {
    Str text = {0};
    show_plan(&text, &s->base.job, s->budget_bytes, &(Measured){r->measured_bytes, peak->budget_bytes, peak->bytes});
    log_line("\n%s", str_text(&text));
    str_free(&text);
    if (s->task && s->task->say) s->task->say(s);
    if (r->finished)
        log_line("this run is finished: %lld of %lld steps, loss %.4f; lengthen it with --resume --steps N (or "
                 "--epochs)",
                 (long long)r->steps, (long long)s->base.run.o.total_steps, r->loss);
    else if (r->stopped_by && !r->steps)
        log_line("stopped by signal %d before the first step was done: there is nothing to go on from", r->stopped_by);
    else if (r->stopped_by)
        log_line("stopped by signal %d after step %lld; go on with --resume", r->stopped_by, (long long)r->steps);
    else if (s->base.run.o.dry_run) log_line("dry run: everything but the steps was done");
    else log_line("loss %.4f -> %.4f in %lld steps; %s", r->first_loss, r->loss, (long long)r->steps, r->result.s);
    if (r->skipped_steps)
        log_line("%lld of them were skipped (%s)", (long long)r->skipped_steps,
                 s->base.job.unscale ? "--loss-scale" : "--on-spike, --on-nonfinite");
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
        if (!prepare(s, &ro, e) || (s->task && !s->task->start(s, e))) return false;
        if (!ro.dry_run) {
            jobs_announce(&s->status, s->base.o, &s->base.ring, "", ro.total_steps);
            ro.status = &s->status;
        }
        if (run_open(&s->base.run, &s->base.job, s->base.backend, s->base.data, s->base.held_out, &ro, e)) return true;
        if (!s->base.ring.x.refused_bytes) return false;
        Shortage what = setup_shortage(&s->base, &s->base.ring.x);
        run_close(&s->base.run);
        if (!replan(s, what, e)) return false;
    }
}

static bool train(Session *s, Err *e) {
    RunResult *result = &s->result;
    if (!open_run(s, e)) return false;
    say_measured_lines(&s->base.job);
    if (!run_train(&s->base.run, result, e)) return false;
    s->predicted_seconds = ring_round_seconds(&s->base.ring, &s->base.machine);
    Peak peak = peak_of_job(&s->base.machine, ring_process_bytes(&s->base.ring), ring_host_bytes(&s->base.ring),
                            result->process_measured_bytes);
    say_result(s, result, &peak);
    print_result(s, result, &peak);
    return setup_keep_choices(s->base.backend, &s->base.machine, s->base.o, e) && peak_settle(&peak, s->base.o, e);
}

static void close_session(Session *s) {
    status_end(&s->status);
    if (s->task) s->task->close(s);
    graph_judge_close(&s->best.judge);
    run_close(&s->base.run);
    history_close(&s->history);
    run_folder_close(&s->folder);
    json_decref(s->settings);
    str_free(&s->config_yaml);
    str_free(&s->plan_json);
    setup_job_close(&s->base);
}

/* No --out: runs/NAME, after --run-name or the model. What stands there already is refused or gone on with as anywhere
 * else. */
static void settle_out(Session *s) {
    if (opt_given(s->base.o, OPT_OUT)) return;
    bool named = opt_given(s->base.o, OPT_RUN_NAME);
    const char *name = opt_text(s->base.o, named ? OPT_RUN_NAME : OPT_MODEL);
    int end = (int)strlen(name);
    while (end > 1 && name[end - 1] == '/') end--;
    int begin = end;
    while (begin > 0 && name[begin - 1] != '/') begin--;
    snprintf(s->out, sizeof s->out, "runs/%.*s", MIN2(end - begin, 500), name + begin);
    options_settle(&s->found, OPT_OUT, s->out, named ? "--run-name" : "--model");
    log_line("no --out given: the run goes to %s", s->out);
}

/* --overwrite would take away what the run itself reads. */
static bool spare_inputs(const Options *o, Err *e) {
    static const OptId inputs[] = {OPT_MODEL, OPT_TOKENIZER, OPT_ADAPTER, OPT_DATA, OPT_EVAL_DATA};
    const char *out = opt_text(o, OPT_OUT);
    for (int i = 0; i < COUNT_OF(inputs) && opt_flag(o, OPT_OVERWRITE); i++) {
        const OptValue *v = &o->value[inputs[i]];
        for (int k = 0; k < MAX2(v->n, 1) && v->set; k++) {
            const char *path = v->list ? v->list[k] : v->text;
            if (run_folder_would_remove(out, path))
                return fail(e, ERR_USAGE,
                            "--overwrite: would remove --%s %s, which this run reads; choose another --out",
                            option_rows[inputs[i]].name, path);
        }
    }
    return true;
}

static bool look_at_folder(Session *s, Err *e) {
    const Options *o = s->base.o;
    RunFolderAsk ask = {.path = opt_text(o, OPT_OUT),
                        .resume = opt_given(o, OPT_RESUME) ? opt_text(o, OPT_RESUME) : NULL,
                        .overwrite = opt_flag(o, OPT_OVERWRITE), .save_seconds = save_seconds(o),
                        .save_steps = opt_int(o, OPT_SAVE_STEPS)};
    const char *spare = opt_text(o, OPT_SPARE_DIR);
    if (spare && !file_is_dir(spare)) return fail(e, ERR_FAIL, "--spare-dir %s: there is no such folder", spare);
    return spare_inputs(o, e) && run_folder_look(&s->folder, &ask, e);
}

static void say_advice(const Session *s) {
    Str text = {0};
    advice_text(&text, s);
    if (text.len) text.data[--text.len] = 0;
    log_str(&text);
}

bool session_run(const Options *o, const SessionTask *task, Err *e) {
    Session *s = MEM_NEW(Session, 1);
    s->task = task;
    s->found = *o; /* its texts stay the caller's */
    s->base.o = &s->found;
    Str text = {0};
    log_keep();
    options_print(&text, o, false);
    log_str(&text);
    settle_out(s);
    JobSetup *b = &s->base;
    bool ok = look_at_folder(s, e) && setup_job_model(b, &s->found, true, e);
    RuleFacts facts = {.model = &b->model.config,
                       .adapter_rank = opt_given(o, OPT_ADAPTER) ? b->spec.m.adapter.rank : 0};
    ok = ok && rules_check(&s->found, RULE_MODEL, &facts, e) &&
         (b->spec.m.random_init || setup_need_weights(&b->model, o, e)) && setup_job_machine(b, e) &&
         open_data(s, e) && plan(s, e) && train(s, e);
    int64_t resumed = s->folder.saved.global_step;
    close_session(s);
    if (ok) say_advice(s);
    mem_free(s);
    if (ok || !stop_caused(e)) return ok;
    report_stopped(resumed);
    *e = (Err){0};
    return true;
}

bool cmd_train(const Options *o, Err *e) { return session_run(o, NULL, e); }
