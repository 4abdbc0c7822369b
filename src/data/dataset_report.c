/* dataset_report.c - what people want to know of a data set before it is trained on. */
#include <string.h>

#include "base/mem.h"
#include "base/units.h"
#include "data/dataset_int.h"

enum { BUCKETS = 40, BAR = 40 };

/* ---- counting ---- */

static bool is_sample(const Dataset *d, int64_t doc) { return dataset_doc(d, doc)->full > 0; }

/* Samples of the set that are no longer than this. */
static int64_t count_up_to(const Dataset *d, int64_t length) {
    int64_t n = 0;
    for (int i = 0; i < d->n_parts; i++)
        for (int64_t k = d->part[i].first_doc, end = k + d->part[i].n_docs; k < end; k++)
            n += is_sample(d, k) && dataset_doc(d, k)->full <= length;
    return n;
}

/* The tokens of the sample that stands at place `rank` when they are sorted by length. */
static int64_t length_at(const Dataset *d, int64_t rank) {
    int64_t low = 0, high = INT32_MAX; /* at least rank + 1 samples are no longer than high */
    while (high > low) {
        int64_t mid = (low + high) / 2;
        if (count_up_to(d, mid) > rank) high = mid;
        else low = mid + 1;
    }
    return low;
}

static void count_part(const Dataset *d, DataPart *p) {
    DataReport *r = &p->report;
    r->kind = p->kind;
    r->kind_text = p->kind_text;
    r->rows = p->n_rows;
    r->tokens = p->n_tokens;
    r->samples = r->scored_tokens = 0;
    if (p->corpus) {
        int64_t documents = MAX2(corpus_documents(p->corpus), 1), all = (p->n_tokens + d->seq - 1) / d->seq;
        double share = all ? (double)p->n_rows / (double)all : 0; /* less what is held out */
        r->tokens = (int64_t)(share * (double)p->n_tokens);
        r->samples = MAX2((int64_t)(share * (double)documents), 1);
        r->scored_tokens = r->tokens - (d->joined ? 1 : r->samples);
        return;
    }
    for (int64_t i = p->first_doc; i < p->first_doc + p->n_docs; i++) {
        r->samples += is_sample(d, i);
        r->scored_tokens += p->mode == ROWS_STREAM ? 0 : dataset_doc(d, i)->scored;
        r->longest = MAX2(r->longest, dataset_doc(d, i)->full);
    }
    for (int64_t i = 0; p->mode == ROWS_STREAM && i < p->n_rows; i++)
        r->scored_tokens += dataset_row_scored(d, p->first_row + i);
}

void dataset_count(Dataset *d) {
    DataReport *r = &d->report;
    *r = (DataReport){.kind = d->part[0].kind, .kind_text = d->part[0].kind_text};
    for (int i = 0; i < d->n_parts; i++) {
        DataPart *p = &d->part[i];
        count_part(d, p);
        r->samples += p->report.samples;
        r->dropped += p->report.dropped;
        r->unanswered += p->report.unanswered;
        r->truncated += p->report.truncated;
        r->last_only += p->report.last_only;
        r->tokens += p->report.tokens;
        r->scored_tokens += p->report.scored_tokens;
        r->rows += p->report.rows;
        r->longest = MAX2(r->longest, p->report.longest);
    }
    int64_t known = count_up_to(d, INT32_MAX); /* of documents on disk no lengths are */
    r->median = known ? length_at(d, (known - 1) / 2) : 0;
    r->p95 = known ? length_at(d, (known * 95 + 99) / 100 - 1) : 0;
    r->fill = r->rows ? (double)r->tokens / ((double)r->rows * (double)d->seq) : 0;
}

const DataReport *dataset_report(const Dataset *d) { return &d->report; }

int64_t dataset_enough(const Dataset *d) {
    enum { GRAIN = 64 };
    return dataset_is_packed(d) ? d->seq : MIN2(d->seq, units_round_up(d->report.longest, GRAIN));
}

/* ---- saying ---- */

/* Samples by length, in doubling steps. */
static void add_histogram(Str *out, const Dataset *d) {
    int64_t count[BUCKETS] = {0}, most = 1, before = 0, known = count_up_to(d, INT32_MAX);
    int low = BUCKETS, high = 0;
    for (int b = 3; b < BUCKETS; b++) { /* up to 8 tokens */
        int64_t up_to = count_up_to(d, (int64_t)1 << MIN2(b, 40));
        count[b] = up_to - before;
        before = up_to;
        most = MAX2(most, count[b]);
        if (count[b]) low = MIN2(low, b), high = b;
        if (up_to == known) break;
    }
    for (int b = low; b <= high; b++) {
        int64_t bar = count[b] ? MAX2(count[b] * BAR / most, 1) : 0;
        str_addf(out, "  up to %7s tokens  ", units_count((int64_t)1 << b).s);
        for (int64_t i = 0; i < BAR; i++) str_add_char(out, i < bar ? '#' : ' ');
        str_addf(out, " %s\n", units_count(count[b]).s);
    }
}

static void add_parts(Str *out, const Dataset *d) {
    double all = 0;
    for (int i = 0; i < d->n_parts; i++) all += d->part[i].weight;
    for (int i = 0; i < d->n_parts; i++) {
        const DataPart *p = &d->part[i];
        str_addf(out, "data     %s: %s\n", p->path, p->kind_text);
        if (d->n_parts == 1) break;
        str_addf(out, "         %s samples, %s tokens", units_count(p->report.samples).s,
                 units_count(p->report.tokens).s);
        double draws = d->weighted ? p->weight / all * (double)d->n_rows : 0;
        if (d->weighted && p->n_rows)
            str_addf(out, "; weight %g: %.1f %% of the draws, %.2f times through in an epoch", p->weight,
                     100 * p->weight / all, draws / (double)p->n_rows);
        str_add(out, "\n");
    }
}

static void add_samples(Str *out, const Dataset *d) {
    const DataReport *r = &d->report;
    int64_t others = r->dropped - r->unanswered;
    str_addf(out, r->median ? "samples  %s" : "texts    %s", units_count(r->samples).s);
    if (others) str_addf(out, "; %s dropped (the answer is empty or was cut away)", units_count(others).s);
    if (r->unanswered)
        str_addf(out, "; %s dropped (no turn is the assistant's: there is nothing to learn)",
                 units_count(r->unanswered).s);
    if (r->truncated) str_addf(out, "; %s cut to %s tokens", units_count(r->truncated).s, units_count(d->seq).s);
}

void dataset_report_text(Str *out, const Dataset *d) {
    const DataReport *r = &d->report;
    add_parts(out, d);
    add_samples(out, d);
    str_addf(out, "\ntokens   %s, %s scored (%.0f %%)\n", units_count(r->tokens).s,
             units_count(r->scored_tokens).s,
             r->tokens ? 100.0 * (double)r->scored_tokens / (double)r->tokens : 0.0);
    if (d->by_update)
        str_addf(out,
                 "rows     of %s tokens; the samples of an update are put side by side (a row each would be %.0f "
                 "%% filled)\n",
                 units_count(d->seq).s, 100 * r->fill);
    else
        str_addf(out, "rows     %s of %s tokens, %.0f %% filled%s\n", units_count(r->rows).s, units_count(d->seq).s,
                 100 * r->fill, dataset_is_packed(d) ? ", packed" : "");
    if (!dataset_is_packed(d) && r->fill < 0.5)
        str_addf(out, "         --pack update would need about %s rows\n",
                 units_count((r->tokens + d->seq - 1) / d->seq).s);
    if (dataset_enough(d) < d->seq)
        str_addf(out, "         --seq %lld would be enough: no sample is longer\n", (long long)dataset_enough(d));
    if (r->last_only)
        str_addf(
            out,
            "         in %s conversations earlier answers are not scored: the chat template changes them later\n",
            units_count(r->last_only).s);
    if (!r->median) return;
    str_addf(out, "lengths  median %s, 95 %% up to %s, longest %s\n", units_count(r->median).s,
             units_count(r->p95).s, units_count(r->longest).s);
    add_histogram(out, d);
}
