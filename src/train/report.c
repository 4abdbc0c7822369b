/* report.c - what a model says about its attention while it is trained or evaluated: indexer recall, keys, gates. */
#include <math.h>

#include "train/run_int.h"

static bool logs_after(const Run *r, int64_t step) {
    return step % r->o.log_steps == 0 || step == r->o.total_steps || step == 1;
}

bool run_reports_after(const Run *r, int64_t step) { return r->job->report >= 0 && logs_after(r, step); }

static double share(double part, double whole) { return whole > 0 ? part / whole : (double)NAN; }

static AttentionReport report_of(const double *w) {
    bool selects = w[REPORT_KEYS] > 0, gated = w[REPORT_GATES] > 0;
    return (AttentionReport){.recall = share(w[REPORT_MASS], w[REPORT_BEST]),
                             .k_mean = selects ? w[REPORT_KEYS] / w[REPORT_TOKENS] : (double)NAN,
                             .k_min = selects ? REPORT_FAR - w[REPORT_KEYS_LEAST] : (double)NAN,
                             .k_max = selects ? w[REPORT_KEYS_MOST] : (double)NAN,
                             .coverage = selects ? w[REPORT_KEYS] / w[REPORT_SEEN] : (double)NAN,
                             .first_token = share(w[REPORT_FIRST], w[REPORT_LATER]),
                             .gate_mean = share(w[REPORT_OPEN], w[REPORT_GATES]),
                             .gate_min = gated ? REPORT_FAR - w[REPORT_GATE_LEAST] : (double)NAN,
                             .gate_max = gated ? w[REPORT_GATE_MOST] - 1 : (double)NAN,
                             .gate_shut = share(w[REPORT_SHUT], w[REPORT_GATES]),
                             .index_loss = NAN};
}

void run_read_report(const Run *r, AttentionReport *layer, AttentionReport *all) {
    const Job *j = r->job;
    double sum[REPORT_WORDS] = {0}, word[REPORT_WORDS];
    for (int l = 0; l < j->spec.m.config.layers; l++) {
        exec_get(&r->ring->x, j->report_stat[l], word, 0, sizeof word);
        bool selects = word[REPORT_KEYS] > 0; /* a layer that does not has no part in means of keys */
        for (int i = 0; i < REPORT_SUMS; i++)
            if (selects || (i != REPORT_TOKENS && i != REPORT_SEEN)) sum[i] += word[i];
        for (int i = REPORT_SUMS; i < REPORT_WORDS; i++) sum[i] = MAX2(sum[i], word[i]);
        if (layer) layer[l] = report_of(word);
    }
    *all = report_of(sum);
}

bool run_report(Run *r, AttentionReport *out, Err *e) {
    const Job *j = r->job;
    if (j->report < 0 || !j->report_stat) return true;
    step_load_micro(r, 0);
    exec_play(&r->ring->x, j->report);
    if (!exec_sync(&r->ring->x, e)) return false;
    run_read_report(r, NULL, out);
    Tid loss = r->step <= j->spec.warmup_steps ? j->warmup_index_loss : j->index_loss;
    if (loss) exec_get(&r->ring->x, loss, &out->index_loss, 0, 8);
    out->index_loss /= r->state.scaling.scale;
    Metric fields[] = {METRIC_REAL("gate_mean", out->gate_mean),   METRIC_REAL("gate_shut", out->gate_shut),
                       METRIC_REAL("indexer_recall", out->recall), METRIC_REAL("k_mean", out->k_mean),
                       METRIC_REAL("coverage", out->coverage),     METRIC_REAL("first_token", out->first_token),
                       METRIC_REAL("index_loss", out->index_loss)};
    int n = 0;
    for (int i = 0; i < COUNT_OF(fields); i++)
        if (isfinite(fields[i].real)) fields[n++] = fields[i];
    return run_write_metrics(r, "attention", fields, n, e);
}
