/* cmd_quantize.c - snug quantize: what storing a model's projections in fewer bits costs and saves, and the folder. */
#include <math.h>
#include <stdio.h>

#include "base/log.h"
#include "base/process.h"
#include "base/units.h"
#include "cli/cmd.h"
#include "cli/peak.h"
#include "cli/setup.h"
#include "cli/show.h"
#include "store/folder.h"
#include "store/hf.h"
#include "store/safetensors.h"
#include "weights/weights.h"

typedef struct Most { /* by all that was done, one after the other: the most of each */
    Machine machine;
    int64_t process_bytes, host_bytes; /* planned in all and in the host */
    int64_t device_bytes;              /* measured on a device */
} Most;

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

static void note_most(Most *t, const JobSetup *s) {
    t->machine = s->machine;
    t->process_bytes = MAX2(t->process_bytes, ring_process_bytes(&s->ring));
    t->host_bytes = MAX2(t->host_bytes, ring_host_bytes(&s->ring));
    t->device_bytes = MAX2(t->device_bytes, s->ring.peak_bytes);
}

static bool measure(Side *side, Most *most, JobSetup *s, Err *e) {
    RunOptions ro = setup_job_options(s);
    ro.eval_batches = opt_int(s->o, OPT_EVAL_BATCHES);
    bool ok = setup_backend(&s->backend, &s->machine, s->o, e) && setup_limits(&s->limits, s->o, &s->machine, e) &&
              setup_job_plan(s, e) && run_open(&s->run, &s->job, s->backend, s->data, NULL, &ro, e) &&
              run_evaluate(&s->run, s->data, &side->loss, &side->tokens, e);
    note_most(most, s);
    side->weight_bytes = weight_bytes(&s->ring.p);
    side->process_bytes = ring_process_bytes(&s->ring);
    setup_job_close_device(s);
    return ok;
}

static json_t *side_json(const Side *s) {
    return json_pack("{s:s, s:f, s:f, s:I, s:I}", "storage", s->name, "loss", s->loss, "perplexity", exp(s->loss),
                     "weight_bytes", (json_int_t)s->weight_bytes, "process_planned_bytes",
                     (json_int_t)s->process_bytes);
}

enum { MOST_SIDES = 3 }; /* as the model is, quantised, and with its head quantised too */

static void add_report(json_t *root, const Side *side, int n) {
    const Side *full = &side[0], *less = &side[n - 1];
    json_object_update_new(root, json_pack("{s:o, s:o, s:f, s:f, s:I, s:I}", "full", side_json(full), "quantised",
                                           side_json(less), "loss_change", less->loss - full->loss,
                                           "perplexity_change", exp(less->loss) / exp(full->loss) - 1, "bytes_saved",
                                           (json_int_t)(full->weight_bytes - less->weight_bytes), "tokens",
                                           (json_int_t)full->tokens));
    if (n == MOST_SIDES) json_object_set_new(root, "head_as_it_is", side_json(&side[1]));
}

static void print_report(const Side *side, int n) {
    const Side *full = &side[0], *less = &side[n - 1];
    double before = exp(full->loss);
    int64_t saved = full->weight_bytes - less->weight_bytes;
    printf("%-16s %12s %12s %18s %12s\n", "", "loss", "perplexity", "weights, bytes", "");
    for (int i = 0; i < n; i++)
        printf("%-16s %12.6f %12.4f %18s %12s\n", side[i].name, side[i].loss, exp(side[i].loss),
               units_count(side[i].weight_bytes).s, units_bytes(side[i].weight_bytes).s);
    for (int i = 1; i < n; i++)
        printf("%-16s %+12.6f %+11.3f%% %18s %12s\n", i + 1 == n ? "change" : "of it the layers",
               side[i].loss - full->loss, 100 * (exp(side[i].loss) / before - 1),
               units_count(side[i].weight_bytes - full->weight_bytes).s, "");
    printf("over %s scored tokens; saved: %s, %.1f %% of the weights\n", units_count(full->tokens).s,
           units_bytes(saved).s, 100.0 * (double)saved / (double)full->weight_bytes);
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
                 format_name(spec[n].m.quantised ? asked->m.stored : asked->m.config.dtype),
                 kind == 2 ? ", head int8" : "");
        n++;
    }
    return n;
}

static bool report(json_t *root, Most *most, const Options *o, const ModelFiles *m, Err *e) {
    if (!opt_given(o, OPT_DATA)) return fail(e, ERR_USAGE, "--report: needs --data, the text to compare on");
    JobSetup *s = MEM_NEW(JobSetup, 1);
    s->o = o;
    s->model = *m;
    bool ok = setup_spec(&s->spec, NULL, o, &m->config, false, e) && setup_job_data(s, (FitLimits){0}, e) &&
              setup_attention(&s->spec, o, dataset_is_packed(s->data), e);
    if (ok) {
        Side side[MOST_SIDES];
        JobSpec *spec = MEM_NEW(JobSpec, MOST_SIDES);
        int n = sides_of(spec, side, &s->spec);
        s->host.batches = run_batch_bytes(&s->spec, 0, NULL, 0);
        for (int i = 0; i < n && ok; i++) {
            s->spec = spec[i];
            ok = measure(&side[i], most, s, e);
        }
        if (ok) add_report(root, side, n);
        if (ok && !opt_flag(o, OPT_JSON)) print_report(side, n);
        mem_free(spec);
    }
    setup_job_close(s);
    mem_free(s);
    return ok;
}

static ModelConfig quantised_config(const Options *o, const ModelFiles *m) {
    ModelConfig c = m->config;
    c.quant = QUANT_OWN;
    c.quant_format = opt_is(o, OPT_QUANTIZE, "nf4") ? FMT_NF4 : FMT_INT8;
    c.quant_head = opt_is(o, OPT_QUANTIZE_HEAD, "int8");
    return c;
}

/* Before the report is made, which may take long. */
static bool check_folder(const Options *o, const ModelFiles *m, Err *e) {
    ModelConfig c = quantised_config(o, m);
    int64_t bytes;
    return setup_check_out(o, e) && weights_check_quantise(&c, m->folder, &bytes, e) && setup_check_room(o, bytes, e);
}

static bool write_folder(json_t *root, Most *most, const Options *o, const ModelFiles *m, Err *e) {
    ModelConfig c = quantised_config(o, m);
    FolderOut f;
    int64_t heap;
    if (!weights_make_bytes(&heap, &c, NULL, e) || !folder_begin(&f, opt_text(o, OPT_OUT), e)) return false;
    bool ok = weights_write_config(&c, f.temporary, e) && hf_copy_side_files(m->folder, f.temporary, e) &&
              weights_quantise(&c, m->folder, f.temporary, e);
    if (!folder_end(&f, ok, e)) return false;
    int64_t before = st_bytes_of(m->folder), after = st_bytes_of(opt_text(o, OPT_OUT));
    log_line("%s: projections as %s%s, %s on disk instead of %s", opt_text(o, OPT_OUT), format_name(c.quant_format),
             c.quant_head ? ", the head as int8" : "", units_bytes(after).s, units_bytes(before).s);
    json_object_set_new(root, "out", json_string(opt_text(o, OPT_OUT)));
    json_object_set_new(root, "file_bytes", json_integer(after));
    most->process_bytes = MAX2(most->process_bytes, process_runtime_bytes(1) + heap);
    most->host_bytes = MAX2(most->host_bytes, process_runtime_bytes(1) + heap);
    return true;
}

static bool quantise(const Options *o, const ModelFiles *m, Err *e) {
    Most most = {.machine = {.kind = MACHINE_CPU}};
    json_t *root = json_object();
    bool ok = (!opt_flag(o, OPT_REPORT) || report(root, &most, o, m, e)) &&
              (!opt_given(o, OPT_OUT) || write_folder(root, &most, o, m, e));
    if (ok) {
        Peak peak = peak_of_job(&most.machine, most.process_bytes, most.host_bytes, most.device_bytes);
        json_object_set_new(root, "process_planned_bytes", json_integer(most.process_bytes));
        peak_json(root, &peak);
        if (opt_flag(o, OPT_JSON)) show_print_json(json_incref(root));
        ok = peak_settle(&peak, o, e);
    }
    json_decref(root);
    return ok;
}

bool cmd_quantize(const Options *o, Err *e) {
    ModelFiles m;
    bool only_head = opt_is(o, OPT_QUANTIZE, "none");
    if (only_head && (opt_given(o, OPT_OUT) || opt_is(o, OPT_QUANTIZE_HEAD, "none")))
        return fail(e, ERR_USAGE, "quantize: give --quantize int8 or --quantize nf4");
    if (!opt_flag(o, OPT_REPORT) && !opt_given(o, OPT_OUT))
        return fail(e, ERR_USAGE,
                    "quantize: give --out DIR to write a folder, or --report --data FILE to see what it costs");
    if (!setup_model(&m, o, e) || !setup_need_weights(&m, o, e)) return false;
    if (m.config.quant == QUANT_OWN)
        return fail(e, ERR_FAIL, "--model %s: is stored as %s already; begin from the model before it was quantised",
                    opt_text(o, OPT_MODEL), format_name(m.config.quant_format));
    return (!opt_given(o, OPT_OUT) || check_folder(o, &m, e)) && quantise(o, &m, e);
}
