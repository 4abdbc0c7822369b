/* cmd_quantize.c - snug quantize: what storing a model's projections in fewer bits costs and saves, and the folder. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/units.h"
#include "cli/cmd.h"
#include "cli/setup.h"
#include "cli/show.h"
#include "store/folder.h"
#include "store/hf.h"
#include "store/jsonfile.h"
#include "store/safetensors.h"
#include "train/run.h"
#include "train/weights.h"

typedef struct Side { /* one of the two that are compared */
    const char *name;
    double loss;
    int64_t tokens, weight_bytes, process_bytes; /* of the weights; planned for the whole evaluation */
} Side;

static int64_t weight_bytes(const Program *p) {
    int64_t sum = 0;
    for (Tid t = 1; t < p->n_t; t++)
        if (p->t[t].role == ROLE_WEIGHT && !p->t[t].base) sum += prog_bytes(p, t);
    return sum;
}

static bool measure(Side *side, const Options *o, const Model *m, const JobSpec *s, Dataset *d, HostBytes *host, Err *e) {
    Backend *b = NULL;
    Machine machine;
    Job *j = MEM_NEW(Job, 1);
    Run *r = MEM_NEW(Run, 1);
    RunOptions ro = {.model_folder = m->folder, .adapter_folder = opt_given(o, OPT_ADAPTER) ? opt_text(o, OPT_ADAPTER) : NULL,
                     .eval_batches = opt_int(o, OPT_EVAL_BATCHES), .stop = &cmd_stop};
    bool device = setup_backend(&b, &machine, o, e), planned = device && job_open(j, s, &machine, host, e);
    SearchLimits limits;
    bool ok = planned && setup_limits(&limits, o, &machine, e) && setup_check_budget(j, host, limits, e) && setup_check_free(j, b, &machine, e);
    if (ok) {
        ok = run_open(r, j, b, d, NULL, &ro, e) && run_evaluate(r, d, &side->loss, &side->tokens, e);
        side->weight_bytes = weight_bytes(&j->p);
        side->process_bytes = job_process_bytes(j);
        run_close(r);
    }
    if (planned) job_close(j);
    if (b) b->close(b);
    mem_free(r);
    mem_free(j);
    return ok;
}

static json_t *side_json(const Side *s) {
    return json_pack("{s:s, s:f, s:f, s:I, s:I}", "storage", s->name, "loss", s->loss, "perplexity", exp(s->loss), "weight_bytes",
                     (json_int_t)s->weight_bytes, "process_planned_bytes", (json_int_t)s->process_bytes);
}

static void print_report(const Options *o, const Side *full, const Side *less) {
    double before = exp(full->loss), after = exp(less->loss), change = after / before - 1;
    int64_t saved = full->weight_bytes - less->weight_bytes;
    if (opt_flag(o, OPT_JSON)) {
        json_t *root = json_pack("{s:o, s:o, s:f, s:f, s:I, s:I}", "full", side_json(full), "quantised", side_json(less), "loss_change",
                                 less->loss - full->loss, "perplexity_change", change, "bytes_saved", (json_int_t)saved, "tokens",
                                 (json_int_t)full->tokens);
        char *dump = json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(9));
        printf("%s\n", dump);
        mem_free(dump);
        json_decref(root);
        return;
    }
    const Side *const sides[] = {full, less};
    printf("%-8s %12s %12s %18s %12s\n", "", "loss", "perplexity", "weights, bytes", "");
    for (int i = 0; i < 2; i++)
        printf("%-8s %12.6f %12.4f %18s %12s\n", sides[i]->name, sides[i]->loss, exp(sides[i]->loss),
               units_count(sides[i]->weight_bytes).s, units_bytes(sides[i]->weight_bytes).s);
    printf("%-8s %+12.6f %+11.3f%% %18s %12s\n", "change", less->loss - full->loss, 100 * change, units_count(-saved).s, "");
    printf("over %s scored tokens; saved: %s, %.1f %% of the weights\n", units_count(full->tokens).s, units_bytes(saved).s,
           100.0 * (double)saved / (double)full->weight_bytes);
}

static bool report(const Options *o, const Model *m, Err *e) {
    JobSpec s;
    Words w = {0};
    Dataset *d = NULL;
    if (!opt_given(o, OPT_DATA)) return fail(e, ERR_USAGE, "--report: needs --data, the text to compare on");
    bool ok = setup_spec(&s, NULL, o, &m->config, false, e) && setup_adapter(&s, o, e) && setup_words(&w, o, m, e) &&
              setup_data(&d, o, &w, m, opt_text(o, OPT_DATA), e) && setup_attention(&s, o, dataset_is_packed(d), e);
    if (ok) {
        HostBytes host = {dataset_bytes(d), w.tokenizer ? tokenizer_bytes(w.tokenizer) : 0, run_batch_bytes(&s, 0, 0)};
        Side full = {.name = format_name(s.model.dtype)}, less = {.name = format_name(s.stored)};
        JobSpec plain = s;
        plain.quantised = false;
        ok = measure(&full, o, m, &plain, d, &host, e) && measure(&less, o, m, &s, d, &host, e);
        if (ok) print_report(o, &full, &less);
    }
    if (d) dataset_close(d);
    setup_words_free(&w);
    return ok;
}

static int64_t bytes_on_disk(const char *folder) {
    StSet s;
    if (!st_open(&s, folder, NULL)) return 0;
    int64_t bytes = s.total_bytes;
    st_close(&s);
    return bytes;
}

static bool write_folder(const Options *o, const Model *m, Err *e) {
    ModelConfig c = m->config;
    c.quant = QUANT_OWN;
    c.quant_format = opt_is(o, OPT_QUANTIZE, "nf4") ? FMT_NF4 : FMT_INT8;
    FolderOut f;
    char path[1200];
    if (!setup_check_out(o, e) || !folder_begin(&f, opt_text(o, OPT_OUT), e)) return false;
    snprintf(path, sizeof path, "%s/config.json", f.temporary);
    json_t *j = config_to_json(&c);
    bool ok = jsonfile_write(path, j, e) && hf_copy_side_files(m->folder, f.temporary, e) &&
              weights_quantise(&c, m->folder, f.temporary, e);
    json_decref(j);
    if (!ok) {
        folder_abort(&f);
        return false;
    }
    if (!folder_commit(&f, e)) return false;
    int64_t before = bytes_on_disk(m->folder), after = bytes_on_disk(opt_text(o, OPT_OUT));
    log_line("%s: projections as %s, %s on disk instead of %s", opt_text(o, OPT_OUT), format_name(c.quant_format), units_bytes(after).s,
             units_bytes(before).s);
    return true;
}

bool cmd_quantize(const Options *o, Err *e) {
    Model m;
    if (opt_is(o, OPT_QUANTIZE, "none")) return fail(e, ERR_USAGE, "quantize: give --quantize int8 or --quantize nf4");
    if (!opt_flag(o, OPT_REPORT) && !opt_given(o, OPT_OUT))
        return fail(e, ERR_USAGE, "quantize: give --out DIR to write a folder, or --report --data FILE to see what it costs");
    if (!setup_model(&m, o, e)) return false;
    if (!m.has_folder)
        return fail(e, ERR_FAIL, "--model %s: is a preset without weights; quantize needs a folder", opt_text(o, OPT_MODEL));
    if (m.config.quant == QUANT_OWN)
        return fail(e, ERR_FAIL, "--model %s: is stored as %s already; begin from the model before it was quantised", opt_text(o, OPT_MODEL),
                    format_name(m.config.quant_format));
    return (!opt_flag(o, OPT_REPORT) || report(o, &m, e)) && (!opt_given(o, OPT_OUT) || write_folder(o, &m, e));
}
