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
#include "weights/weights.h"

typedef struct Side { /* one of those that are compared */
    char name[24];
    double loss;
    int64_t tokens, weight_bytes, process_bytes; /* of the weights; planned for the whole evaluation */
} Side;

static int64_t weight_bytes(const Program *p) {
    int64_t sum = 0;
    for (Tid t = 1; t < p->n_t; t++)
        if (p->t[t].role == ROLE_WEIGHT && !p->t[t].base) sum += prog_bytes(p, t);
    return sum;
}

static bool measure(Side *side, const Options *o, const ModelFiles *m, const JobSpec *s, Dataset *d, HostBytes *host, Err *e) {
    Backend *b = NULL;
    Machine machine;
    Job *j = MEM_NEW(Job, 1);
    Ring *ring = MEM_NEW(Ring, 1);
    Run *r = MEM_NEW(Run, 1);
    RunOptions ro = {.model_folder = m->folder,
                     .adapter_folder = opt_given(o, OPT_ADAPTER) ? opt_text(o, OPT_ADAPTER) : NULL,
                     .eval_batches = opt_int(o, OPT_EVAL_BATCHES),
                     .stop = &cmd_stop};
    bool device = setup_backend(&b, &machine, o, e), planned = device && job_plan(j, ring, s, &machine, host, e);
    FitLimits limits;
    bool ok = planned && setup_limits(&limits, o, &machine, e) && setup_check_budget(j, host, limits, e) &&
              setup_check_free(ring, b, e);
    if (ok) {
        ok = run_open(r, j, b, d, NULL, &ro, e) && run_evaluate(r, d, &side->loss, &side->tokens, e);
        side->weight_bytes = weight_bytes(&j->ring->p);
        side->process_bytes = ring_process_bytes(j->ring);
        run_close(r);
    }
    ring_close(ring);
    if (b) b->close(b);
    mem_free(r);
    mem_free(ring);
    mem_free(j);
    return ok;
}

static json_t *side_json(const Side *s) {
    return json_pack("{s:s, s:f, s:f, s:I, s:I}", "storage", s->name, "loss", s->loss, "perplexity", exp(s->loss),
                     "weight_bytes", (json_int_t)s->weight_bytes, "process_planned_bytes",
                     (json_int_t)s->process_bytes);
}

enum { MOST_SIDES = 3 }; /* as the model is, quantised, and with its head quantised too */

static void print_report(const Options *o, const Side *side, int n) {
    const Side *full = &side[0], *less = &side[n - 1];
    double before = exp(full->loss), after = exp(less->loss), change = after / before - 1;
    int64_t saved = full->weight_bytes - less->weight_bytes;
    if (opt_flag(o, OPT_JSON)) {
        json_t *root = json_pack("{s:o, s:o, s:f, s:f, s:I, s:I}", "full", side_json(full), "quantised",
                                 side_json(less), "loss_change", less->loss - full->loss, "perplexity_change", change,
                                 "bytes_saved", (json_int_t)saved, "tokens", (json_int_t)full->tokens);
        if (n == MOST_SIDES) json_object_set_new(root, "head_as_it_is", side_json(&side[1]));
        char *dump = json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(9));
        printf("%s\n", dump);
        mem_free(dump);
        json_decref(root);
        return;
    }
    printf("%-16s %12s %12s %18s %12s\n", "", "loss", "perplexity", "weights, bytes", "");
    for (int i = 0; i < n; i++)
        printf("%-16s %12.6f %12.4f %18s %12s\n", side[i].name, side[i].loss, exp(side[i].loss),
               units_count(side[i].weight_bytes).s, units_bytes(side[i].weight_bytes).s);
    for (int i = 1; i < n; i++)
        printf("%-16s %+12.6f %+11.3f%% %18s %12s\n", i + 1 == n ? "change" : "of it the layers", side[i].loss - full->loss,
               100 * (exp(side[i].loss) / before - 1), units_count(side[i].weight_bytes - full->weight_bytes).s, "");
    printf("over %s scored tokens; saved: %s, %.1f %% of the weights\n", units_count(full->tokens).s, units_bytes(saved).s,
           100.0 * (double)saved / (double)full->weight_bytes);
}

static int sides_of(JobSpec *spec, Side *side, const JobSpec *asked) {
    int n = 0;
    for (int kind = 0; kind < MOST_SIDES; kind++) {
        if ((kind == 1 && !asked->m.quantised) || (kind == 2 && !asked->m.head_int8)) continue;
        spec[n] = *asked;
        spec[n].m.quantised = kind && asked->m.quantised;
        spec[n].m.head_int8 = kind == 2;
        side[n] = (Side){0};
        snprintf(side[n].name, sizeof side->name, "%s%s",
                 format_name(spec[n].m.quantised ? asked->m.stored : asked->m.config.dtype), kind == 2 ? ", head int8" : "");
        n++;
    }
    return n;
}

static bool report(const Options *o, const ModelFiles *m, Err *e) {
    JobSpec s;
    Words w = {0};
    Dataset *d = NULL;
    if (!opt_given(o, OPT_DATA)) return fail(e, ERR_USAGE, "--report: needs --data, the text to compare on");
    bool ok = setup_spec(&s, NULL, o, &m->config, false, e) && setup_adapter(&s, o, e) && setup_words(&w, o, m, e) &&
              setup_data(&d, o, &w, m, opt_text(o, OPT_DATA), e) && setup_attention(&s, o, dataset_is_packed(d), e);
    if (ok) {
        HostBytes host = {dataset_bytes(d), w.tokenizer ? tokenizer_bytes(w.tokenizer) : 0, run_batch_bytes(&s, 0, 0)};
        Side side[MOST_SIDES];
        JobSpec *spec = MEM_NEW(JobSpec, MOST_SIDES);
        int n = sides_of(spec, side, &s);
        for (int i = 0; i < n && ok; i++) ok = measure(&side[i], o, m, &spec[i], d, &host, e);
        if (ok) print_report(o, side, n);
        mem_free(spec);
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

static bool write_folder(const Options *o, const ModelFiles *m, Err *e) {
    ModelConfig c = m->config;
    c.quant = QUANT_OWN;
    c.quant_format = opt_is(o, OPT_QUANTIZE, "nf4") ? FMT_NF4 : FMT_INT8;
    c.quant_head = opt_is(o, OPT_QUANTIZE_HEAD, "int8");
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
    log_line("%s: projections as %s%s, %s on disk instead of %s", opt_text(o, OPT_OUT), format_name(c.quant_format),
             c.quant_head ? ", the head as int8" : "", units_bytes(after).s, units_bytes(before).s);
    return true;
}

bool cmd_quantize(const Options *o, Err *e) {
    ModelFiles m;
    bool only_head = opt_is(o, OPT_QUANTIZE, "none");
    if (only_head && (opt_given(o, OPT_OUT) || opt_is(o, OPT_QUANTIZE_HEAD, "none")))
        return fail(e, ERR_USAGE, "quantize: give --quantize int8 or --quantize nf4");
    if (!opt_flag(o, OPT_REPORT) && !opt_given(o, OPT_OUT))
        return fail(e, ERR_USAGE,
                    "quantize: give --out DIR to write a folder, or --report --data FILE to see what it costs");
    if (!setup_model(&m, o, e)) return false;
    if (!m.has_folder)
        return fail(e, ERR_FAIL, "--model %s: is a preset without weights; quantize needs a folder", opt_text(o, OPT_MODEL));
    if (m.config.quant == QUANT_OWN)
        return fail(e, ERR_FAIL, "--model %s: is stored as %s already; begin from the model before it was quantised",
                    opt_text(o, OPT_MODEL), format_name(m.config.quant_format));
    return (!opt_flag(o, OPT_REPORT) || report(o, &m, e)) && (!opt_given(o, OPT_OUT) || write_folder(o, &m, e));
}
