/* plan_case.c - how options become a planned case, and what is expected of it. */
#include "cli/plan_case.h"

#include <math.h>

#include "base/log.h"
#include "base/units.h"
#include "cli/judge_setup.h"
#include "train/run.h"

/* The rows that would be trained on. A plan needs none: what cannot be read here is said and passed over; what
 * does not fit the budget is not. */
static bool open_data(PlanCase *c, Err *e) {
    Err why = {0};
    if (!opt_given(c->base.o, OPT_DATA)) return true;
    if (setup_job_data(&c->base, c->has_budget ? c->base.limits : (FitLimits){0}, &why)) return true;
    if (why.code == ERR_BUDGET) return fail(e, why.code, "%s", why.text);
    log_warn("planned without the data: %s", why.text);
    if (c->base.data) dataset_close(c->base.data);
    c->base.data = NULL;
    return true;
}

/* The same of a policy's items. */
static bool open_items(PlanCase *c, Err *e) {
    JobSetup *b = &c->base;
    Err why = {0};
    bool none = !opt_given(b->o, OPT_DATA) && !opt_is(b->o, OPT_PARSER, "test");
    if (setup_words(&b->words, b->o, &b->model, &why) && (none || grpo_setup_read(&c->grpo, b->o, &b->words, &why)))
        return true;
    if (why.code == ERR_USAGE) return fail(e, why.code, "%s", why.text);
    log_warn("planned without the items: %s", why.text);
    return true;
}

static void count_updates(PlanCase *c) {
    if (c->has_grpo) c->updates = grpo_setup_updates(&c->grpo, c->base.o, &c->updates_per_epoch);
    if (c->has_grpo) return;
    if (c->base.data) c->updates_per_epoch = run_steps_per_epoch(c->base.data, c->base.global_batch);
    if (c->base.data) c->updates = setup_updates(c->base.o, c->base.data, c->base.global_batch);
    else if (opt_given(c->base.o, OPT_STEPS)) c->updates = opt_int(c->base.o, OPT_STEPS);
}

/* With the data the same host memory as a run takes. */
static void count_host(PlanCase *c) {
    JobSetup *b = &c->base;
    if (c->has_grpo) b->host = grpo_setup_host(&c->grpo, &b->spec, &b->words);
    if (!b->data) return;
    int workers = b->machine.kind == MACHINE_CUDA;
    if (opt_given(b->o, OPT_DATA_WORKERS)) workers = (int)opt_int(b->o, OPT_DATA_WORKERS);
    b->host.batches = run_batch_bytes(&b->spec, b->global_batch, b->data, workers) + graph_judge_bytes(&c->best->judge);
}

static bool shape_grpo(PlanCase *c, Err *e) {
    JobSetup *b = &c->base;
    if (!grpo_setup_shape(&c->grpo, &b->spec, b->global_batch, b->o, b->machine.kind, e)) return false;
    grpo_setup_layout(&c->grpo, &b->spec, b->o, &b->machine, &b->words, b->limits);
    return true;
}

static bool prepare(PlanCase *c, const Options *o, Err *e) {
    JobSetup *b = &c->base;
    if (!setup_job_model(b, o, true, e)) return false;
    c->has_grpo = opt_is(o, OPT_TASK, "grpo");
    if (c->has_grpo && !grpo_setup(&c->grpo, &b->spec, &b->global_batch, o, &b->model, e)) return false;
    c->free = setup_freedom(o);
    c->has_budget = setup_has_budget(o);
    if (!setup_job_machine(b, e)) return false;
    if (!(c->has_grpo ? open_items : open_data)(c, e)) return false; /* a policy's data are prompts, not rows */
    count_updates(c);
    if (c->has_grpo) return shape_grpo(c, e);
    if (!b->held_out && (opt_is(o, OPT_SAVE_BEST, "smatch") || opt_is(o, OPT_SAVE_BEST, "validity")))
        log_warn("planned without the sentences that --save-best %s parses: give --data and --val-split or --eval-data",
                 opt_text(o, OPT_SAVE_BEST));
    b->spec.evaluate = opt_given(o, OPT_EVAL_DATA) || opt_real(o, OPT_VAL_SPLIT) > 0;
    if (b->held_out && !judge_setup(c->best, b, e)) return false;
    if (b->data) return setup_packing(b, e);
    bool packed = opt_is(o, OPT_PACK, "on") || opt_is(o, OPT_PACK, "update");
    return setup_attention(&b->spec, o, packed, e); /* not known: the larger of the two */
}

bool plan_case_open(PlanCase *c, const Options *o, Err *e) {
    JobSetup *b = &c->base;
    *c = (PlanCase){.best = MEM_NEW(JudgeSetup, 1)};
    if (!prepare(c, o, e)) return false;
    c->asked = b->spec;
    count_host(c);
    setup_fit(b);
    count_host(c); /* of the micro-batch that was found */
    return job_plan(&b->job, &b->ring, &b->spec, &b->machine, &b->host, e);
}

void plan_case_close(PlanCase *c) {
    if (c->best) graph_judge_close(&c->best->judge);
    mem_free(c->best);
    setup_job_close(&c->base);
    grpo_setup_free(&c->grpo);
}

int64_t plan_case_room(const PlanCase *c) {
    if (c->has_budget) return c->base.limits.device_bytes;
    return setup_room(NULL, &c->base.machine);
}

/* ---- what is expected ---- */

static double tokens_of(const PlanCase *c, const JobSpec *s) { /* in an update */
    return s->rows ? s->rows->mean_tokens : (double)(c->base.global_batch * s->seq);
}

Forecast plan_forecast(const PlanCase *c, const JobSpec *s, const Machine *m, double update_seconds) {
    /* a run counts tokens of the data, not what fills up a row */
    double fill = c->base.data ? dataset_report(c->base.data)->fill : 1;
    double tokens = tokens_of(c, s) * (s->rows ? 1 : fill);
    Forecast f = {.update_seconds = update_seconds};
    if (update_seconds <= 0) return f;
    f.tokens_per_s = tokens / update_seconds;
    f.seconds_per_million = 1e6 / f.tokens_per_s;
    f.ceiling_share = m->matrix_flops > 0 ? ring_round_flops(&c->base.ring) / update_seconds / m->matrix_flops : 0;
    f.job_seconds = update_seconds * (double)c->updates;
    return f;
}

static void add_fill(Str *text, const Dataset *d) {
    int64_t enough = dataset_enough(d);
    str_addf(text, "rows are %.0f %% full: ", 100 * dataset_report(d)->fill);
    if (enough < dataset_seq(d))
        str_addf(text, "--seq %lld would change nothing but the time; --pack on would put several samples into a row\n",
                 (long long)enough);
    else
        str_addf(text, "--pack on or a shorter --seq would do more in the same time\n");
}

void plan_add_forecast(Str *text, json_t *root, const PlanCase *c) {
    const Machine *m = &c->base.machine;
    Forecast f = plan_forecast(c, &c->base.job.spec, m, ring_round_seconds(&c->base.ring, &c->base.ring.machine));
    str_addf(
        text, "predicted: %s tokens/s (%s an update of %s tokens), %.0f %% of the ceiling of %s (%s rates)\n",
        units_count((int64_t)(f.tokens_per_s + 0.5)).s, units_seconds(f.update_seconds).s,
        units_count((int64_t)(tokens_of(c, &c->base.job.spec) + 0.5)).s,
        100 * f.ceiling_share, m->name, m->source);
    if (c->base.data && !c->asked.rows && dataset_report(c->base.data)->fill < 0.9) add_fill(text, c->base.data);
    if (c->updates_per_epoch)
        str_addf(text, "the job: %s updates, %s an epoch: %s\n", units_count(c->updates).s,
                 units_count(c->updates_per_epoch).s, units_seconds(f.job_seconds).s);
    else if (c->updates)
        str_addf(text, "the job: %s updates: %s\n", units_count(c->updates).s, units_seconds(f.job_seconds).s);
    else
        str_addf(text, "a million tokens: %s (with --data or --steps: the whole job)\n",
                 units_seconds(f.seconds_per_million).s);
    json_object_set_new(
        root, "predicted",
        json_pack("{s:f, s:f, s:f, s:f, s:o, s:o, s:s}", "update_seconds", f.update_seconds, "tokens_per_s",
                  f.tokens_per_s, "ceiling_share", f.ceiling_share, "seconds_per_million_tokens",
                  f.seconds_per_million, "job_seconds", c->updates ? json_real(f.job_seconds) : json_null(),
                  "updates", c->updates ? json_integer(c->updates) : json_null(), "rates",
                  m->source));
}

/* ---- what is written ---- */

void plan_add_saving(Str *text, json_t *root, const PlanCase *c) {
    const Options *o = c->base.o;
    SavePlan s;
    char own[SHARE_PATH];
    RunOptions ro = {.out = opt_text(o, OPT_OUT),
                     .base_name = opt_text(o, OPT_MODEL),
                     .model_folder = c->base.model.has_folder && !opt_given(o, OPT_INIT) ? c->base.model.folder : NULL,
                     .side_folder = setup_words_folder(own, o, &c->base.model),
                     .total_steps = c->updates,
                     .log_steps = opt_int(o, OPT_LOG_STEPS),
                     .eval_steps = opt_int(o, OPT_EVAL_STEPS),
                     .save = opt_flag(o, OPT_SAVE),
                     .save_steps = opt_int(o, OPT_SAVE_STEPS),
                     .save_total_limit = opt_int(o, OPT_SAVE_TOTAL_LIMIT),
                     .save_seconds = 60 * opt_real(o, OPT_SAVE_MINUTES)};
    if (!run_plan_saving(&s, &c->base.job, &ro, NULL)) return;
    run_saving_text(text, &s, &ro);
    str_add(text, "\n");
    json_object_set_new(root, "saving", run_saving_json(&s, &ro));
}

/* ---- before and after ---- */

/* A technique that saves nothing is no line: a larger head chunk, recompute below a peak that lies elsewhere. */
static void add_saving(Str *text, json_t *list, const Saving *s) {
    if (s->device_bytes <= 0 && s->host_bytes >= 0) return;
    if (!json_array_size(list))
        str_addf(text, "\nswitched on: each line is the same plan without that one\n  %-44s %11s  %11s  %s\n", "",
                 "saves", "host takes", "time an update");
    str_addf(text, "  %-44s %11s  %11s  %s%s%s\n", s->name, units_bytes(s->device_bytes).s,
             s->host_bytes ? units_bytes(s->host_bytes).s : "-", s->seconds < 0 ? "-" : "+",
             units_seconds(fabs(s->seconds)).s, s->maths ? "  (changes the mathematics)" : "");
    json_array_append_new(list,
                          json_pack("{s:s, s:I, s:I, s:f, s:b}", "name", s->name, "device_bytes_saved",
                                    (json_int_t)s->device_bytes, "host_bytes_taken", (json_int_t)s->host_bytes,
                                    "update_seconds_paid", s->seconds, "changes_mathematics", s->maths));
}

int64_t plan_case_sample_tokens(const PlanCase *c, const JobSpec *s) {
    return c->has_grpo ? c->grpo.spec.prompt_tokens + c->grpo.spec.answer_tokens : s->seq;
}

static json_t *add_unchanged(Str *text, const PlanCase *c) {
    const JobSpec *s = &c->base.job.spec;
    int64_t seq = plan_case_sample_tokens(c, s);
    int64_t trained = model_count(&c->base.ring.p, true), all = config_parameters(&s->m.config);
    str_addf(text, "unchanged: %s parameters, %s trained", units_count(all).s, units_count(trained).s);
    if (s->lora && s->m.adapter.rank == c->asked.m.adapter.rank) str_addf(text, ", rank %d", s->m.adapter.rank);
    str_addf(text, ", global batch %lld", (long long)c->base.global_batch);
    if (seq == plan_case_sample_tokens(c, &c->asked)) str_addf(text, ", length %lld", (long long)seq);
    str_add(text, "\n");
    return json_pack("{s:I, s:I, s:i, s:I, s:I}", "parameters", (json_int_t)all, "trainable_parameters",
                     (json_int_t)trained, "rank", s->m.adapter.rank, "global_batch", (json_int_t)c->base.global_batch,
                     "seq", (json_int_t)seq);
}

void plan_add_savings(Str *text, json_t *root, const PlanCase *c) {
    const JobSpec *s = &c->base.job.spec;
    JobSpec plain;
    Saving saving[JOB_SAVINGS];
    int64_t all = c->asked.rows ? job_samples(&c->asked) : c->base.global_batch;
    technique_plain(&plain, s, c->free.micro_batch ? all : job_micro_samples(&c->asked), c->base.machine.kind);
    int n = job_savings(saving, &c->base.job, &plain, &c->base.host);
    if (!n) return;
    FitCost was, is = job_cost(&c->base.ring);
    json_t *list = json_array(), *change = json_object();
    for (int i = 0; i < n; i++) add_saving(text, list, &saving[i]);
    if (!json_array_size(list)) str_add(text, "\n");
    if (job_cost_of(&was, &plain, &c->base.machine, &c->base.host)) {
        str_addf(text, "before: %s, %s an update; after: %s, %s\n", units_bytes(was.device_bytes).s,
                 units_seconds(was.seconds).s, units_bytes(is.device_bytes).s, units_seconds(is.seconds).s);
        json_object_update_new(change, json_pack("{s:I, s:f, s:I, s:f}", "before_bytes", (json_int_t)was.device_bytes,
                                                 "before_update_seconds", was.seconds, "after_bytes",
                                                 (json_int_t)is.device_bytes, "after_update_seconds", is.seconds));
    }
    json_object_set_new(change, "savings", list);
    json_object_set_new(change, "unchanged", add_unchanged(text, c));
    json_object_set_new(root, "switched_on", change);
}
