/* cmd_eval.c - snug eval: loss and perplexity of a model, with or without an adapter, on held-out text; benchmarks are
 * eval_suite.c's. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/units.h"
#include "base/file.h"
#include "cli/attention_page.h"
#include "cli/cmd.h"
#include "cli/eval_suite.h"
#include "cli/jobs.h"
#include "cli/peak.h"
#include "cli/setup.h"
#include "cli/show.h"
#include "train/run.h"

/* The page, and the same numbers as JSON. */
static bool report_attention(const Run *r, const Options *o, const ModelFiles *m, json_t **json, Err *e) {
    const char *path = opt_text(o, OPT_ATTENTION_REPORT);
    int layers = m->config.layers;
    AttentionReport all, *layer = MEM_NEW(AttentionReport, layers);
    Str page = {0};
    run_read_report(r, layer, &all);
    attention_page(&page, m->config.name, layer, layers, &all);
    *json = attention_json(layer, layers, &all);
    bool ok = file_write_all(path, str_text(&page), page.len, e);
    if (ok) log_line("written: %s", path);
    str_free(&page);
    mem_free(layer);
    return ok;
}

static bool evaluate(const Options *o, const ModelFiles *m, Job *j, Backend *b, Dataset *d, Err *e) {
    Run *r = MEM_NEW(Run, 1);
    RunOptions ro = {.model_folder = m->folder,
                     .adapter_folder = opt_given(o, OPT_ADAPTER) ? opt_text(o, OPT_ADAPTER) : NULL,
                     .eval_batches = opt_int(o, OPT_EVAL_BATCHES),
                     .warm = b->asynchronous};
    double loss;
    int64_t tokens;
    JobStatus status = {0};
    jobs_announce(&status, o, j->ring, "row", 0);
    ro.status = &status;
    bool ok = run_open(r, j, b, d, NULL, &ro, e);
    if (ok) status_phase(&status, "evaluating");
    ok = ok && run_evaluate(r, d, &loss, &tokens, e);
    json_t *attention = NULL;
    ok = ok && (!j->spec.report || report_attention(r, o, m, &attention, e));
    status_end(&status);
    Peak peak =
        peak_of_job(&j->ring->machine, ring_process_bytes(j->ring), ring_host_bytes(j->ring), j->ring->peak_bytes);
    if (ok && opt_flag(o, OPT_JSON)) {
        double perplexity = exp(loss);
        json_t *root = json_pack("{s:f, s:o, s:I}", "loss", loss, "perplexity",
                                 isfinite(perplexity) ? json_real(perplexity) : json_null(), "tokens",
                                 (json_int_t)tokens);
        peak_add_ring(root, j->ring, &peak);
        if (attention) json_object_set(root, "attention", attention);
        show_print_json(root);
        json_decref(root);
    } else if (ok)
        printf("loss %.6f, perplexity %.4f over %s scored tokens\n", loss, exp(loss), units_count(tokens).s);
    ok = ok && peak_settle(&peak, o, e);
    json_decref(attention);
    run_close(r);
    mem_free(r);
    return ok;
}

static bool eval_data(const Options *o, Err *e) {
    ModelFiles m;
    JobSpec s;
    Words w = {0};
    Backend *b = NULL;
    Dataset *d = NULL;
    Machine machine;
    FitLimits limits;
    Job *j = MEM_NEW(Job, 1);
    Ring *r = MEM_NEW(Ring, 1);
    bool ok = setup_model(&m, o, e) && setup_need_weights(&m, o, e) &&
              setup_spec(&s, NULL, o, &m.config, false, e) && setup_backend(&b, &machine, o, e) &&
              setup_fall_back(&s, o, &machine, e) &&
              setup_limits(&limits, o, &machine, e) && setup_words(&w, o, &m, e) &&
              setup_data(&d, o, &w, &m, OPT_DATA, setup_data_room(&machine, limits, &w), e) &&
              setup_attention(&s, o, dataset_is_packed(d), e);
    s.report = opt_given(o, OPT_ATTENTION_REPORT);
    HostBytes host = {.tokenizer = w.tokenizer ? tokenizer_bytes(w.tokenizer) : 0};
    if (ok) {
        host.data = dataset_bytes(d);
        host.reading = dataset_reading_bytes(d);
        host.batches = run_batch_bytes(&s, 0, NULL, 0);
    }
    bool planned = ok && job_plan(j, r, &s, &machine, &host, e);
    ok = planned && setup_check_budget(j, &host, limits, e) &&
         setup_check_free(r, b, e) && evaluate(o, &m, j, b, d, e);
    ring_close(r);
    mem_free(r);
    mem_free(j);
    if (b) b->close(b);
    if (d) dataset_close(d);
    setup_words_free(&w);
    return ok;
}

bool cmd_eval(const Options *o, Err *e) {
    if (opt_given(o, OPT_SUITE)) return eval_suite(o, e);
    if (!opt_given(o, OPT_DATA))
        return fail(e, ERR_USAGE,
                    "`snug eval` needs --data FILE (text to evaluate on) or --suite NAME,... (benchmarks)");
    return eval_data(o, e);
}
