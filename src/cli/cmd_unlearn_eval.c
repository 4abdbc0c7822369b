/* cmd_unlearn_eval.c - snug unlearn-eval: TOFU's metrics of a model, beside one that never saw what was to be
 * forgotten. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/units.h"
#include "cli/cmd.h"
#include "cli/gen_setup.h"
#include "cli/jobs.h"
#include "cli/lines.h"
#include "cli/show.h"
#include "cli/sub_command.h"
#include "obs/sensors.h"
#include "store/jsonfile.h"
#include "unlearn/audit.h"
#include "unlearn/compare.h"
#include "unlearn/evaluate.h"
#include "unlearn/gradnorm.h"

enum { SLOTS = 32 };

typedef struct Evaluation {
    const Options *o;
    EvalItems items;
    Str rows; /* what is scored, as JSON lines */
    Scores scores, retain, reference;
    double *gradient_norm[2];              /* own; NULL: not asked for */
    json_t *retain_logs;                   /* owns */
    char **generated[EVAL_SETS];           /* own */
    RingMost most;
    double began;
} Evaluation;

/* ---- scores ---- */

typedef struct Scoring {
    SubCommand part;
    JobSetup base;
    JobStatus status;
    bool gradients; /* a training job, for the gradients of samples; else one that scores answers */
} Scoring;

/* The rows go through the same door as training data: a file, which has no name and is gone when it is closed. */
static bool open_rows(JobSetup *s, const Evaluation *v, int fd, Err *e) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (!s->words.tokenizer)
        return fail(e, ERR_FAIL, "--model %s: has no tokenizer, and questions are texts. Give --tokenizer DIR",
                    s->model.folder);
    DataOptions d = setup_data_words(&s->words, &s->model);
    d.seq = opt_int(v->o, OPT_SEQ);
    d.pack = PACK_OFF;
    if (opt_is(v->o, OPT_TEMPLATE, "none")) d.template_mode = TEMPLATE_NONE;
    for (int turn = 0; turn < 2; turn++) { /* again, with rows no longer than they need be */
        if (s->data) dataset_close(s->data);
        s->data = NULL;
        if (!dataset_open(&s->data, path, &d, e)) return fail_within(e, "the answers of --data");
        d.seq = dataset_enough(s->data);
    }
    int64_t cut = dataset_report(s->data)->truncated;
    if (cut)
        log_warn("%lld of %lld answers are longer than --seq %lld: what fits of them is measured", (long long)cut,
                 (long long)v->items.rows, (long long)opt_int(v->o, OPT_SEQ));
    return dataset_rows(s->data) == v->items.rows ||
           fail(e, ERR_FAIL, "--seq %lld: %lld answers have no room behind their questions; give a longer one",
                (long long)opt_int(v->o, OPT_SEQ), (long long)(v->items.rows - dataset_rows(s->data)));
}

static bool write_rows(int *fd, const Evaluation *v, Err *e) {
    return file_open_hidden(".", fd, e) && file_pwrite(*fd, v->rows.data, v->rows.len, 0, "answers to be scored", e);
}

static bool plan_scoring(JobSetup *s, const Evaluation *v, bool gradients, Err *e) {
    s->spec.task = gradients ? NULL : &task_logits;
    s->spec.seq = dataset_seq(s->data);
    setup_job_count(s);
    s->host.data += 2 * v->rows.len;
    s->host.vectors = 3 * scores_bytes(s->data) + scores_making_bytes(&s->spec);
    s->host.batches = run_batch_bytes(&s->spec, gradients, gradients ? s->data : NULL, 0);
    if (gradients) setup_fit(s);
    return setup_attention(&s->spec, s->o, false, e) && setup_job_plan(s, e);
}

static bool begin_part(Scoring *s, const Evaluation *v, const char *model, Err *e) {
    const char *scoring[] = {"--data", "-", "--micro-batch", opt_text(v->o, OPT_MICRO_BATCH), "--pack", "off"};
    const char *training[] = {"--data",  "-",       "--micro-batch", "1",   "--accum",              "1",
                              "--pack",  "off",     "--optimizer",   "sgd", "--update-in-backward", "off"};
    return s->gradients
               ? sub_command_begin(&s->part, v->o, CMD_TRAIN, model, training, COUNT_OF(training), e)
               : sub_command_begin(&s->part, v->o, CMD_EVAL, model, scoring, COUNT_OF(scoring), e);
}

static bool open_scoring(Scoring *s, Evaluation *v, const char *model, int fd, Err *e) {
    const Options *o = &s->part.o;
    JobSetup *b = &s->base;
    if (!begin_part(s, v, model, e) || !setup_job_model(b, o, s->gradients, e) ||
        !setup_need_weights(&b->model, o, e) || !setup_job_machine(b, e) ||
        !setup_words(&b->words, o, &b->model, e) || !open_rows(b, v, fd, e) || !plan_scoring(b, v, s->gradients, e))
        return false;
    RunOptions ro = setup_job_options(b);
    ro.global_batch = s->gradients;
    jobs_announce(&s->status, o, &b->ring, "", 0);
    if (!run_open(&b->run, &b->job, b->backend, b->data, NULL, &ro, e)) return false;
    status_phase(&s->status, "evaluating");
    peak_note_ring(&v->most, &b->ring);
    return true;
}

/* Of the answers of the forget set and the holdout. */
static bool make_norms(Scoring *s, Evaluation *v, Err *e) {
    static const EvalSetId set[2] = {SET_FORGET, SET_HOLDOUT};
    bool ok = true;
    for (int k = 0; ok && k < 2; k++) {
        const EvalSet *from = &v->items.set[set[k]];
        int64_t *row = MEM_NEW(int64_t, MAX2(from->n, 1));
        for (int64_t i = 0; i < from->n; i++) row[i] = from->item[i].row;
        v->gradient_norm[k] = MEM_NEW(double, MAX2(from->n, 1));
        ok = gradnorm_make(v->gradient_norm[k], &s->base.run, s->base.data, row, from->n, e);
        mem_free(row);
    }
    return ok;
}

/* Scores of the answers; out NULL: norms of their gradients. */
static bool score(Evaluation *v, Scores *out, const char *model, Err *e) {
    Scoring *s = MEM_NEW(Scoring, 1);
    int fd = -1;
    s->gradients = !out;
    bool ok = write_rows(&fd, v, e) && open_scoring(s, v, model, fd, e) &&
              (out ? scores_make(out, &s->base.run, s->base.data, e) : make_norms(s, v, e));
    status_end(&s->status);
    setup_job_close(&s->base);
    options_free(&s->part.o);
    mem_free(s);
    if (fd >= 0) file_close(fd);
    return ok;
}

/* ---- answers ---- */

typedef struct Asking {
    SubCommand part;
    GenSetup setup;
    TokenIds *prompt; /* own; all items of all sets that are asked */
    char **answer;    /* gets; owned by the evaluation */
    int64_t n, most_new;
} Asking;

static bool encode(Asking *a, const char *question, TokenIds *out, Err *e) {
    bool chat = a->setup.words.chat && !opt_is(&a->part.o, OPT_TEMPLATE, "none");
    int64_t bytes = (int64_t)strlen(question);
    return (chat ? gen_setup_encode_turn : gen_setup_encode_text)(&a->setup, out, question, bytes, e);
}

static bool submit(void *user, int64_t i, Err *e) {
    Asking *a = user;
    Request r = gen_setup_request(&a->setup, 0);
    r.prompt = a->prompt[i].ids;
    r.n_prompt = a->prompt[i].n;
    r.max_new = a->most_new;
    r.number = i;
    r.samples = 1;
    return engine_submit(&a->setup.engine, &r, NULL, e);
}

static bool take_answer(void *user, const EngineEvent *ev, Err *e) {
    Asking *a = user;
    if (ev->kind == EVENT_FAILED) return fail(e, ERR_FAIL, "%s", ev->error);
    if (ev->kind == EVENT_DONE) a->answer[ev->request->number] = mem_strdup(ev->text ? str_text(ev->text) : "");
    return true;
}

static bool ask(Asking *a, Err *e) {
    int64_t longest = 1;
    for (int64_t i = 0; i < a->n; i++) longest = MAX2(longest, a->prompt[i].n);
    a->setup.spec.slots = MIN2(a->n, SLOTS);
    a->setup.spec.context = longest + a->most_new;
    GenHost host = {.requests = a->n * (longest + a->most_new) * 8};
    EngineAsk all = {.total = a->n, .submit = submit, .take = take_answer, .user = a};
    return gen_setup_start(&a->setup, &host, true, a->setup.spec.context, e) && engine_ask(&a->setup.engine, &all, e);
}

static bool ask_all(Asking *a, Evaluation *v, Err *e) {
    const char *more[] = {"--prompt", "-", "--max-tokens", opt_text(v->o, OPT_MAX_TOKENS), "--temperature", "0"};
    if (!sub_command_begin(&a->part, v->o, CMD_GENERATE, opt_text(v->o, OPT_MODEL), more, COUNT_OF(more), e) ||
        !gen_setup_begin(&a->setup, &a->part.o, e))
        return false;
    int64_t at = 0;
    for (int s = 0; s < SET_HOLDOUT; s++) a->n += v->items.set[s].n;
    a->prompt = MEM_NEW(TokenIds, a->n);
    a->answer = MEM_NEW(char *, a->n);
    for (int s = 0; s < SET_HOLDOUT; s++)
        for (int64_t i = 0; i < v->items.set[s].n; i++)
            if (!encode(a, v->items.set[s].item[i].question, &a->prompt[at++], e)) return false;
    a->most_new = opt_int(v->o, OPT_MAX_TOKENS);
    if (!ask(a, e)) return false;
    peak_note_ring(&v->most, &a->setup.ring);
    return true;
}

/* Greedy answers to every question but the holdout's. */
static bool generate(Evaluation *v, Err *e) {
    Asking *a = MEM_NEW(Asking, 1);
    bool ok = ask_all(a, v, e);
    for (int64_t s = 0, at = 0; s < SET_HOLDOUT && a->answer; at += v->items.set[s++].n) {
        v->generated[s] = MEM_NEW(char *, MAX2(v->items.set[s].n, 1));
        memcpy(v->generated[s], a->answer + at, sizeof(char *) * (size_t)v->items.set[s].n);
    }
    for (int64_t i = 0; i < a->n && a->prompt; i++) mem_free(a->prompt[i].ids);
    mem_free(a->prompt);
    mem_free(a->answer);
    gen_setup_end(&a->setup);
    options_free(&a->part.o);
    mem_free(a);
    return ok;
}

/* ---- the end ---- */

/* What making the model took stands beside its weights; it goes along with the evaluation. */
static bool copy_efficiency(const char *out, const char *model, Err *e) {
    json_t *spent = NULL;
    FilePath from = file_in(model, "EFFICIENCY.json");
    if (!file_exists(from.s)) return true;
    bool ok = jsonfile_read(&spent, from.s, 1 << 20, e) && jsonfile_write(file_in(out, "EFFICIENCY.json").s, spent, e);
    json_decref(spent);
    return ok;
}

static bool write_files(const Evaluation *v, const json_t *all, const json_t *summary, Err *e) {
    const char *out = opt_text(v->o, OPT_OUT);
    if (!out) return true;
    return file_make_dirs(out, e) && jsonfile_write(file_in(out, "TOFU_EVAL.json").s, all, e) &&
           jsonfile_write(file_in(out, "TOFU_SUMMARY.json").s, summary, e) &&
           copy_efficiency(out, opt_text(v->o, OPT_MODEL), e);
}

static bool report(Evaluation *v, Err *e) {
    const Scores *reference = v->reference.token ? &v->reference : &v->retain;
    EvalInput in = {.items = &v->items,
                    .scores = &v->scores,
                    .retain = v->retain.token ? &v->retain : NULL,
                    .reference = reference->token ? reference : NULL,
                    .gradient_norm = {v->gradient_norm[0], v->gradient_norm[1]},
                    .retain_logs = v->retain_logs};
    for (int s = 0; s < SET_HOLDOUT; s++) in.generated[s] = v->generated[s];
    json_t *all = evaluate_all(&in), *summary = evaluate_summary(all), *line = json_copy(summary);
    bool ok = write_files(v, all, summary, e);
    json_object_set_new(line, "seconds", json_real(sensors_seconds() - v->began));
    peak_add_most(line, &v->most);
    if (ok) show_print_json(line);
    else json_decref(line);
    json_decref(all);
    json_decref(summary);
    return ok;
}

/* An evaluation that took hours is not replaced by a slip. */
static bool check_out(const Options *o, Err *e) {
    const char *out = opt_text(o, OPT_OUT);
    return !out || lines_may_write(file_in(out, "TOFU_EVAL.json").s, opt_flag(o, OPT_OVERWRITE), e);
}

/* The retrained model's truth ratios are those of the same questions. */
static bool read_retain_logs(Evaluation *v, Err *e) {
    const char *path = opt_text(v->o, OPT_RETAIN_LOGS);
    if (!jsonfile_read(&v->retain_logs, path, 1 << 30, e)) return false;
    int64_t logged = evaluate_logged(v->retain_logs), asked = v->items.set[SET_FORGET].n;
    if (!logged)
        return fail(e, ERR_FAIL,
                    "--retain-logs %s: holds no truth ratios (forget_truth_ratio, value_by_index, score). Give the "
                    "TOFU_EVAL.json of the retrained model's evaluation; a summary has the means alone",
                    path);
    return logged == asked ||
           fail(e, ERR_FAIL,
                "--retain-logs %s: has the truth ratios of %" PRId64 " questions to forget, and there are %" PRId64
                " in %s. Evaluate both models with the same --forget and --max-samples",
                path, logged, asked, opt_text(v->o, OPT_FORGET));
}

static bool evaluate(Evaluation *v, Err *e) {
    const Options *o = v->o;
    if (!check_out(o, e)) return false;
    if (!questions_read(&v->items, opt_text(o, OPT_DATA), opt_text(o, OPT_FORGET), opt_int(o, OPT_MAX_SAMPLES), e))
        return false;
    if (opt_given(o, OPT_RETAIN_LOGS) && !read_retain_logs(v, e)) return false;
    questions_rows(&v->rows, &v->items);
    log_line("%s: %s questions to forget, %s answers to score", opt_text(o, OPT_FORGET),
             units_count(v->items.set[SET_FORGET].n).s, units_count(v->items.rows).s);
    if (!score(v, &v->scores, opt_text(o, OPT_MODEL), e)) return false;
    if (opt_given(o, OPT_RETAIN_MODEL) && !score(v, &v->retain, opt_text(o, OPT_RETAIN_MODEL), e))
        return fail_within(e, "--retain-model");
    if (opt_given(o, OPT_REFERENCE_MODEL) && !score(v, &v->reference, opt_text(o, OPT_REFERENCE_MODEL), e))
        return fail_within(e, "--reference-model");
    if (opt_flag(o, OPT_GRADNORM) && !score(v, NULL, opt_text(o, OPT_MODEL), e))
        return fail_within(e, "--mia-gradnorm");
    if (opt_flag(o, OPT_ROUGE) && !generate(v, e)) return false;
    if (!v->retain.token && !v->retain_logs)
        log_warn("no --retain-model and no --retain-logs: forget quality is not known, and privleak is against 0.5");
    return report(v, e);
}

/* ---- several evaluations ---- */

enum { MOST_COMPARED = 64 };

typedef struct Comparison {
    Compared method[MOST_COMPARED];
    json_t *file[2 * MOST_COMPARED]; /* own */
    int n;
} Comparison;

static bool read_compared(Comparison *c, const char *folder, Err *e) {
    json_t **summary = &c->file[2 * c->n], **spent = summary + 1;
    FilePath efficiency = file_in(folder, "EFFICIENCY.json");
    if (!jsonfile_read(summary, file_in(folder, "TOFU_SUMMARY.json").s, 1 << 24, e) ||
        (file_exists(efficiency.s) && !jsonfile_read(spent, efficiency.s, 1 << 20, e)))
        return fail_within(e, "--compare-evals");
    c->method[c->n++] = (Compared){file_last_name(folder), *summary, *spent};
    return true;
}

static bool write_page(const Comparison *c, const char *path, Err *e) {
    Str page = {0};
    compare_page(&page, c->method, c->n);
    if (!file_write_str(path, &page, e)) return false;
    log_line("%d evaluations beside that of %s: %s", c->n - 1, c->method[0].name, path);
    json_t *line = json_pack("{s:i, s:s}", "compared", c->n, "page", path);
    show_print_json(line);
    return true;
}

static bool compare(const Options *o, Err *e) {
    const char *const *list;
    int n = opt_list(o, OPT_COMPARE_EVALS, &list);
    if (n < 2 || n > MOST_COMPARED || !opt_given(o, OPT_HTML))
        return fail(e, ERR_USAGE,
                    "--compare-evals: give the folders of 2 to %d evaluations (their --out), the retrained model's "
                    "first, and --html FILE",
                    MOST_COMPARED);
    Comparison *c = MEM_NEW(Comparison, 1);
    bool ok = true;
    for (int i = 0; ok && i < n; i++) ok = read_compared(c, list[i], e);
    ok = ok && write_page(c, opt_text(o, OPT_HTML), e);
    for (int i = 0; i < 2 * MOST_COMPARED; i++) json_decref(c->file[i]);
    mem_free(c);
    return ok;
}

/* ---- the records of requests ---- */

static bool check_audit(const char *path, Err *e) {
    Audit a;
    if (!audit_check(&a, path, e)) return false;
    log_line("%s: as it was written: %lld requests, %lld certified", path, (long long)a.records,
             (long long)a.certified);
    json_t *line = json_pack("{s:s, s:I, s:I, s:s, s:s}", "audit", path, "records", (json_int_t)a.records, "certified",
                             (json_int_t)a.certified, "chain", a.chain.link, "log", a.log);
    show_print_json(line);
    return true;
}

bool cmd_unlearn_eval(const Options *o, Err *e) {
    if (opt_given(o, OPT_COMPARE_EVALS)) return compare(o, e);
    if (opt_given(o, OPT_CHECK_AUDIT)) return check_audit(opt_text(o, OPT_CHECK_AUDIT), e);
    Evaluation *v = MEM_NEW(Evaluation, 1);
    v->o = o;
    v->began = sensors_seconds();
    bool ok = evaluate(v, e);
    for (int s = 0; s < EVAL_SETS; s++) {
        for (int64_t i = 0; v->generated[s] && i < v->items.set[s].n; i++) mem_free(v->generated[s][i]);
        mem_free(v->generated[s]);
    }
    scores_free(&v->scores);
    scores_free(&v->retain);
    scores_free(&v->reference);
    for (int k = 0; k < 2; k++) mem_free(v->gradient_norm[k]);
    json_decref(v->retain_logs);
    questions_free(&v->items);
    str_free(&v->rows);
    mem_free(v);
    return ok;
}
