/* cmd_reason.c - snug reason: problems in, judged and improved solutions out; which options make which job. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/cmd.h"
#include "cli/lines.h"
#include "cli/reason_run.h"
#include "comm/ranks.h"
#include "reason/report.h"
#include "reason/results.h"

/* ---- what there is ---- */

static bool list_layouts(const Options *o, Err *e) {
    int n;
    const Layout *all = layouts(&n), *one = NULL;
    const char *key = opt_text(o, OPT_DATASET_INFO);
    if (key && !(one = layout_find(key, e))) return false;
    for (int i = 0; i < n && !one; i++) printf("%-12s %s\n", all[i].key, all[i].about);
    if (!one) return true;
    printf("%s: %s\n", one->key, one->about);
    if (one->problem_field) printf("  problem in '%s', answer in '%s'\n", one->problem_field, one->answer_field);
    if (one->from) printf("  %s\n", one->from);
    return true;
}

/* ---- from options to a job ---- */

static bool find_problems(Problems *out, const Options *o, int rank, int ranks, Err *e) {
    const char *key = opt_text(o, OPT_DATASET), *path = opt_text(o, OPT_DATA);
    const char *const *files;
    if (opt_list(o, OPT_DATA, &files) > 1 && !file_exists(path))
        return fail(e, ERR_USAGE, "--data %s: problems are read from one file", path);
    const Layout *layout = key ? layout_find(key, e) : NULL;
    if (key && !layout) return false;
    if (key && !path && layout->problem_field && strcmp(layout->key, "arithmetic"))
        return fail(e, ERR_USAGE, "--dataset %s: nothing is downloaded; get %s and give it as --data FILE.jsonl",
                    key, layout->from ? layout->from : "the file");
    ProblemQuery q = {.layout = key,
                      .path = path,
                      .problem_field = opt_text(o, OPT_PROBLEM_FIELD),
                      .answer_field = opt_text(o, OPT_ANSWER_FIELD),
                      .seed = (uint64_t)opt_int(o, OPT_SEED),
                      .shuffle = opt_flag(o, OPT_SHUFFLE),
                      .start = opt_int(o, OPT_START_FROM),
                      .count = opt_int(o, OPT_NUM_EXAMPLES),
                      .rank = rank,
                      .ranks = ranks};
    return problems_read(out, &q, e);
}

static PipelineSpec pipeline_spec(const Options *o) {
    double top_p = opt_real(o, OPT_TOP_P);
    PipelineSpec s = {
        .rubric = rubric_default(),
        .rounds = (int)opt_int(o, OPT_ROUNDS),
        .open = opt_given(o, OPT_MICRO_BATCH) ? opt_int(o, OPT_MICRO_BATCH) : 0,
        .solve = {opt_real(o, OPT_TEMPERATURE), top_p, opt_int(o, OPT_MAX_TOKENS)},
        .judge = {opt_real(o, OPT_JUDGE_TEMPERATURE), top_p, opt_int(o, OPT_JUDGE_MAX_TOKENS)},
        .seed = (uint64_t)opt_int(o, OPT_SEED),
    };
    s.rubric.threshold = opt_real(o, OPT_THRESHOLD);
    return s;
}

/* Everything that decides what comes out, by name: what a journal belongs to. Gives; NULL: refused. */
static json_t *job_of(const ReasonRun *run, Err *e) {
    static const OptId same[] = {OPT_MAX_TOKENS, OPT_TEMPERATURE, OPT_TOP_P, OPT_TOP_K, OPT_MIN_P, OPT_REPETITION,
                                 OPT_STOP, OPT_JUDGE_MAX_TOKENS, OPT_JUDGE_TEMPERATURE, OPT_THRESHOLD, OPT_ROUNDS,
                                 OPT_SEED, OPT_QUANTIZE, OPT_QUANTIZE_HEAD, OPT_PRECISION, OPT_TEMPLATE,
                                 OPT_TOKENIZER, OPT_INIT, OPT_KV_CACHE, OPT_INVARIANT, OPT_SELECTION, OPT_GATES};
    const Options *o = run->o;
    const Rubric *r = &run->pipeline.spec.rubric;
    json_t *job = gen_setup_job(&run->setup, same, COUNT_OF(same), e);
    if (!job) return NULL;
    json_set_hex(job, "problems", run->problems.hash);
    json_object_set_new(job, "rank", json_sprintf("%lld of %lld", (long long)opt_int(o, OPT_RANK),
                                                  (long long)opt_int(o, OPT_RANKS)));
    Str rubric = {0};
    for (int i = 0; i < r->n; i++)
        str_addf(&rubric, "%s%s %g", i ? ", " : "", r->criterion[i].name, r->criterion[i].weight);
    json_object_set_new(job, "rubric", json_string(str_text(&rubric)));
    str_free(&rubric);
    return job;
}

/* ---- the end ---- */

static json_t *facts_of(const ReasonRun *run) { /* gives */
    const Options *o = run->o;
    Str text = {0};
    json_t *facts = json_object();
    json_object_set_new(facts, "model", json_string(opt_text(o, OPT_MODEL)));
    if (opt_given(o, OPT_ADAPTER)) json_object_set_new(facts, "adapter", json_string(opt_text(o, OPT_ADAPTER)));
    json_object_set_new(facts, "problems",
                        json_string(opt_text(o, OPT_DATA) ? opt_text(o, OPT_DATA) : "made up arithmetic"));
    str_addf(&text, "temperature %s, judge %s; top-p %s; %s and %s tokens at most; seed %s; weights %s",
             opt_text(o, OPT_TEMPERATURE), opt_text(o, OPT_JUDGE_TEMPERATURE), opt_text(o, OPT_TOP_P),
             opt_text(o, OPT_MAX_TOKENS), opt_text(o, OPT_JUDGE_MAX_TOKENS), opt_text(o, OPT_SEED),
             opt_text(o, OPT_QUANTIZE));
    json_object_set_new(facts, "sampling", json_string(str_text(&text)));
    str_clear(&text);
    reason_speed(&text, run);
    if (text.len) json_object_set_new(facts, "speed", json_string(str_text(&text)));
    str_clear(&text);
    reason_memory(&text, run);
    if (text.len) json_object_set_new(facts, "memory", json_string(str_text(&text)));
    str_free(&text);
    return facts;
}

static void print_summary(const Tally *t, const ReasonRun *run) { /* run: NULL after a merge alone */
    json_t *rounds = json_array();
    for (int i = 0; i <= t->rounds; i++)
        json_array_append_new(
            rounds,
            json_pack(
                "{s:I, s:o, s:I, s:I}", "correct", (json_int_t)t->after[i].correct, "quality",
                t->after[i].judged ? json_real(t->after[i].quality / (double)t->after[i].judged) : json_null(),
                "good", (json_int_t)t->after[i].good, "improved", (json_int_t)(i ? t->after[i].fresh : 0)));
    json_t *j = JSON_COUNTS({"problems", t->n}, {"with_reference", t->with_reference}, {"notes", t->noted},
                            {"tokens", t->tokens});
    json_object_set_new(j, "rounds", rounds);
    if (run) reason_summary(j, run);
    show_print_json(j);
}

static void show(const Tally *t, const char *out) {
    Str text = {0};
    report_table(&text, t);
    log_line("%s", str_text(&text));
    log_line("written: %s, and beside it the same as .csv and .html", out);
    str_free(&text);
}

static json_t *record_at(void *user, int64_t i) {
    const ReasonRun *run = user;
    return record_make(&run->pipeline.track[i], &run->pipeline.spec.rubric);
}

/* All parts, if they are there. */
static bool merge(const Options *o, const ReasonRun *run, Err *e) {
    const char *out = opt_text(o, OPT_OUT);
    Tally t;
    bool merged;
    int missing;
    if (!results_merge(out, &merged, &missing, &t, e)) return false;
    if (missing >= 0 && !run)
        return fail(e, ERR_FAIL, "%s.rank-%d: is not there, so there is nothing to merge yet", out, missing);
    if (missing >= 0)
        log_line("rank %d is not done; the last to end merges, or: snug reason --merge --out %s", missing, out);
    if (merged) show(&t, out);
    if (merged && opt_flag(o, OPT_JSON)) print_summary(&t, run);
    return true;
}

static bool write_results(ReasonRun *run, const json_t *job, Err *e) {
    const Options *o = run->o;
    bool parts = opt_int(o, OPT_RANKS) > 1;
    json_t *facts = facts_of(run);
    Results r = {.out = opt_text(o, OPT_OUT),
                 .rubric = &run->pipeline.spec.rubric,
                 .facts = facts,
                 .at = record_at,
                 .user = run,
                 .n = run->pipeline.n};
    Tally t;
    bool ok = parts ? results_write_rank(&r, &t, job, (int)opt_int(o, OPT_RANK), (int)opt_int(o, OPT_RANKS), e)
                    : results_write(&r, &t, e);
    ok = ok && joblog_remove(&run->journal, e);
    if (ok && run->setup.gen) gen_setup_show_measured(&run->setup);
    if (ok && json_object_get(facts, "speed")) log_line("%s", json_string_value(json_object_get(facts, "speed")));
    json_decref(facts);
    if (!ok) return false;
    if (parts) return merge(o, run, e) && reason_settle(run, e);
    show(&t, r.out);
    if (opt_flag(o, OPT_JSON)) print_summary(&t, run);
    return reason_settle(run, e);
}

/* ---- the whole ---- */

static bool check_options(const Options *o, Err *e) {
    const char *out = opt_text(o, OPT_OUT);
    if (!out) return fail(e, ERR_USAGE, "`snug reason` needs --out FILE.json");
    if (strlen(out) > 1000) return fail(e, ERR_USAGE, "--out: the path is too long");
    if (opt_int(o, OPT_RANKS) > 1 && !opt_given(o, OPT_RANK) && !opt_flag(o, OPT_MERGE))
        return fail(e, ERR_USAGE, "--ranks %s: which of them is this one? Give --rank 0 to %lld",
                    opt_text(o, OPT_RANKS), (long long)opt_int(o, OPT_RANKS) - 1);
    if (opt_int(o, OPT_RANK) >= opt_int(o, OPT_RANKS))
        return fail(e, ERR_USAGE, "--rank %s: there are --ranks %s, counted from 0", opt_text(o, OPT_RANK),
                    opt_text(o, OPT_RANKS));
    if (opt_given(o, OPT_CLEANUP_DELAY)) log_line("--cleanup-delay: taken and not needed: nothing is left behind");
    return true;
}

static void progress_path(char *to, int64_t room, const Options *o) {
    char part[1200];
    results_rank_path(part, sizeof part, opt_text(o, OPT_OUT), (int)opt_int(o, OPT_RANK));
    snprintf(to, (size_t)room, "%s.progress", opt_int(o, OPT_RANKS) > 1 ? part : opt_text(o, OPT_OUT));
}

static bool reason_all(ReasonRun *run, const json_t *job, const char *progress, Err *e) {
    const Options *o = run->o;
    bool done = false, anew = opt_flag(o, OPT_OVERWRITE);
    if (opt_int(o, OPT_RANKS) > 1 && !anew &&
        !results_has_rank(&done, opt_text(o, OPT_OUT), job, (int)opt_int(o, OPT_RANK), e))
        return false;
    if (done) log_line("rank %s is done already", opt_text(o, OPT_RANK));
    if (done) return merge(o, run, e);
    if (!journal_open(&run->journal, progress, job, anew, &run->pipeline, e)) return false;
    bool ok = reason_answer_all(run, job, e) && write_results(run, job, e);
    joblog_close(&run->journal);
    return ok;
}

/* The context is that of all ranks: theirs is one job, and its results are merged. */
static bool plan_context(ReasonRun *run, Err *e) {
    Problems all = {0};
    bool ok = find_problems(&all, run->o, 0, 1, e) && reason_plan_context(run, &all, e);
    problems_free(&all);
    return ok;
}

static bool reason(const Options *o, Err *e) {
    char progress[1300];
    if (!check_options(o, e)) return false;
    progress_path(progress, sizeof progress, o);
    bool ours = file_exists(progress); /* to go on with */
    if (!ours && !lines_may_write(opt_text(o, OPT_OUT), opt_flag(o, OPT_OVERWRITE), e)) return false;
    if (opt_flag(o, OPT_MERGE)) return merge(o, NULL, e);
    ReasonRun run = {.o = o};
    PipelineSpec spec = pipeline_spec(o);
    bool ok = gen_setup_begin(&run.setup, o, e) &&
              find_problems(&run.problems, o, (int)opt_int(o, OPT_RANK), (int)opt_int(o, OPT_RANKS), e);
    if (ok) {
        pipeline_init(&run.pipeline, &spec, &run.problems);
        json_t *job = plan_context(&run, e) ? job_of(&run, e) : NULL;
        ok = job && reason_all(&run, job, progress, e);
        json_decref(job);
    }
    reason_run_free(&run);
    return ok;
}

/* Without --ranks and --rank, a launcher may have said who this one is. */
bool cmd_reason(const Options *given, Err *e) {
    if (opt_flag(given, OPT_LIST_DATASETS) || opt_given(given, OPT_DATASET_INFO)) return list_layouts(given, e);
    if (opt_given(given, OPT_RANKS) || opt_given(given, OPT_RANK) || opt_flag(given, OPT_MERGE))
        return reason(given, e);
    Options o = *given; /* its texts stay the caller's */
    Ranks r = ranks_begin();
    char rank[24], ranks[24];
    snprintf(rank, sizeof rank, "%d", r.rank);
    snprintf(ranks, sizeof ranks, "%d", r.ranks);
    if (r.ranks > 1) {
        options_settle(&o, OPT_RANK, rank, "MPI");
        options_settle(&o, OPT_RANKS, ranks, "MPI");
    }
    bool ok = reason(&o, e);
    ranks_end();
    return ok;
}
