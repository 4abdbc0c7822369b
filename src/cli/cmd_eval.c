/* cmd_eval.c - snug eval: loss and perplexity of a model, with or without an adapter, on held-out text. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/units.h"
#include "cli/cmd.h"
#include "cli/setup.h"
#include "cli/show.h"
#include "train/run.h"

static bool evaluate(const Options *o, const ModelFiles *m, Job *j, Backend *b, Dataset *d, Err *e) {
    Run *r = MEM_NEW(Run, 1);
    RunOptions ro = {.model_folder = m->folder, .adapter_folder = opt_given(o, OPT_ADAPTER) ? opt_text(o, OPT_ADAPTER) : NULL,
                     .eval_batches = opt_int(o, OPT_EVAL_BATCHES), .stop = &cmd_stop, .warm = b->asynchronous};
    double loss;
    int64_t tokens;
    bool ok = run_open(r, j, b, d, NULL, &ro, e) && run_evaluate(r, d, &loss, &tokens, e);
    if (ok && opt_flag(o, OPT_JSON))
        printf("{\"loss\":%.9g,\"perplexity\":%.9g,\"tokens\":%lld,\"planned_bytes\":%lld,\"measured_bytes\":%lld,"
               "\"process_planned_bytes\":%lld,\"process_measured_bytes\":%lld}\n",
               loss, exp(loss), (long long)tokens, (long long)j->ring->placement.arena_bytes[POOL_DEVICE],
               (long long)j->ring->x.pool_bytes[POOL_DEVICE], (long long)ring_process_bytes(j->ring), (long long)j->ring->peak_bytes);
    else if (ok)
        printf("loss %.6f, perplexity %.4f over %s scored tokens\n", loss, exp(loss), units_count(tokens).s);
    run_close(r);
    mem_free(r);
    return ok;
}

bool cmd_eval(const Options *o, Err *e) {
    ModelFiles m;
    JobSpec s;
    Words w = {0};
    Backend *b = NULL;
    Dataset *d = NULL;
    Machine machine;
    Job *j = MEM_NEW(Job, 1);
    Ring *r = MEM_NEW(Ring, 1);
    bool ok = setup_model(&m, o, e) &&
              (m.has_folder || fail(e, ERR_FAIL, "--model %s: is a preset without weights; eval needs a folder",
                                    opt_text(o, OPT_MODEL))) &&
              setup_spec(&s, NULL, o, &m.config, false, e) && setup_adapter(&s, o, e) && setup_words(&w, o, &m, e) &&
              setup_data(&d, o, &w, &m, opt_text(o, OPT_DATA), e) &&
              setup_attention(&s, o, dataset_is_packed(d), e) && setup_backend(&b, &machine, o, e) &&
              setup_fall_back(&s, o, &machine, e);
    HostBytes host = {d ? dataset_bytes(d) : 0, w.tokenizer ? tokenizer_bytes(w.tokenizer) : 0,
                      ok ? run_batch_bytes(&s, 0, 0) : 0};
    bool planned = ok && job_plan(j, r, &s, &machine, &host, e);
    FitLimits limits;
    ok = planned && setup_limits(&limits, o, &machine, e) && setup_check_budget(j, &host, limits, e) &&
         setup_check_free(r, b, e) && evaluate(o, &m, j, b, d, e);
    ring_close(r);
    mem_free(r);
    mem_free(j);
    if (b) b->close(b);
    if (d) dataset_close(d);
    setup_words_free(&w);
    return ok;
}
