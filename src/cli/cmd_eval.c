/* cmd_eval.c - snug eval: loss and perplexity of a model, with or without an adapter, on held-out text; benchmarks are
 * eval_suite.c's. */
#include <math.h>
#include <stdio.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/units.h"
#include "cli/attention_page.h"
#include "cli/cmd.h"
#include "cli/jobs.h"
#include "cli/peak.h"
#include "cli/setup.h"
#include "cli/show.h"

/* The page, and the same numbers as JSON. */
static bool report_attention(const Run *r, const Options *o, const ModelFiles *m, json_t **json, Err *e) {
    const char *path = opt_text(o, OPT_ATTENTION_REPORT);
    int layers = m->config.layers;
    AttentionReport all, *layer = MEM_NEW(AttentionReport, layers);
    Str page = {0};
    run_read_report(r, layer, &all);
    attention_page(&page, m->config.name, layer, layers, &all);
    *json = attention_json(layer, layers, &all);
    bool ok = file_write_str(path, &page, e);
    if (ok) log_line("written: %s", path);
    mem_free(layer);
    return ok;
}

static bool evaluate(JobSetup *s, Err *e) {
    const Options *o = s->o;
    RunOptions ro = setup_job_options(s);
    JobStatus status = {0};
    json_t *attention = NULL;
    double loss;
    int64_t tokens;
    ro.eval_batches = opt_int(o, OPT_EVAL_BATCHES);
    ro.warm = s->backend->asynchronous;
    ro.status = &status;
    jobs_announce(&status, o, &s->ring, "row", 0);
    bool ok = run_open(&s->run, &s->job, s->backend, s->data, NULL, &ro, e);
    if (ok) status_phase(&status, "evaluating");
    ok = ok && run_evaluate(&s->run, s->data, &loss, &tokens, e) &&
         (!s->spec.report || report_attention(&s->run, o, &s->model, &attention, e));
    status_end(&status);
    Peak peak = peak_of_job(&s->machine, ring_process_bytes(&s->ring), ring_host_bytes(&s->ring), s->ring.peak_bytes);
    if (ok && opt_flag(o, OPT_JSON)) {
        json_t *root = json_pack("{s:f, s:o, s:I}", "loss", loss, "perplexity", json_number(exp(loss)), "tokens",
                                 (json_int_t)tokens);
        peak_add_ring(root, &s->ring, &peak);
        if (attention) json_object_set(root, "attention", attention);
        show_print_json(root);
    } else if (ok)
        printf("loss %.6f, perplexity %.4f over %s scored tokens\n", loss, exp(loss), units_count(tokens).s);
    json_decref(attention);
    return ok && peak_settle(&peak, o, e);
}

static bool eval_data(const Options *o, Err *e) {
    JobSetup *s = MEM_NEW(JobSetup, 1);
    bool ok = setup_job_model(s, o, false, e) && setup_job_machine(s, e) && setup_job_data(s, s->limits, e) &&
              setup_attention(&s->spec, o, dataset_is_packed(s->data), e);
    s->spec.report = opt_given(o, OPT_ATTENTION_REPORT);
    if (ok) s->host.batches = run_batch_bytes(&s->spec, 0, NULL, 0);
    ok = ok && setup_job_plan(s, e) && evaluate(s, e);
    setup_job_close(s);
    mem_free(s);
    return ok;
}

bool cmd_eval(const Options *o, Err *e) {
    if (opt_given(o, OPT_SUITE)) return eval_suite(o, e);
    if (!opt_given(o, OPT_DATA))
        return fail(e, ERR_USAGE,
                    "`snug eval` needs --data FILE (text to evaluate on) or --suite NAME,... (benchmarks)");
    return eval_data(o, e);
}
