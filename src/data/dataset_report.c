/* dataset_report.c - what people want to know of a data set before it is trained on. */
#include "base/units.h"
#include "data/dataset_int.h"

enum { BUCKETS = 40, BAR = 40 };

/* The tokens of the sample that stands at place `rank` when they are sorted by length. */
static int64_t length_at(const Dataset *d, int64_t rank) {
    int64_t low = 0, high = INT32_MAX; /* at least rank + 1 samples are no longer than high */
    while (high > low) {
        int64_t mid = (low + high) / 2, n = 0;
        for (int64_t i = 0; i < d->n_docs; i++) n += dataset_doc(d, i)->full && dataset_doc(d, i)->full <= mid;
        if (n > rank) high = mid;
        else low = mid + 1;
    }
    return low;
}

static int64_t count_scored(const Dataset *d) {
    int64_t n = 0;
    for (int64_t i = 0; d->mode == ROWS_STREAM && i < d->n_rows; i++) n += dataset_row_scored(d, i);
    for (int64_t i = 0; d->mode != ROWS_STREAM && i < d->n_docs; i++) n += dataset_doc(d, i)->scored;
    return n;
}

void dataset_count(Dataset *d) {
    DataReport *r = &d->report;
    int64_t n = 0, longest = 0;
    for (int64_t i = 0; i < d->n_docs; i++) {
        n += dataset_doc(d, i)->full > 0;
        longest = MAX2(longest, dataset_doc(d, i)->full);
    }
    r->samples = n;
    r->rows = d->n_rows;
    r->tokens = d->n_tokens;
    r->scored_tokens = count_scored(d);
    r->longest = MAX2(r->longest, longest); /* one that was dropped may be longer */
    r->median = n ? length_at(d, (n - 1) / 2) : 0;
    r->p95 = n ? length_at(d, (n * 95 + 99) / 100 - 1) : 0;
    r->fill = d->n_rows ? (double)d->n_tokens / ((double)d->n_rows * (double)d->seq) : 0;
}

const DataReport *dataset_report(const Dataset *d) { return &d->report; }

/* Samples by length, in doubling steps. */
static void add_histogram(Str *out, const Dataset *d) {
    int64_t count[BUCKETS] = {0}, most = 1;
    int low = BUCKETS, high = 0;
    for (int64_t i = 0; i < d->n_docs; i++) {
        if (!dataset_doc(d, i)->full) continue;
        int b = 3; /* up to 8 tokens */
        while (b < BUCKETS - 1 && (int64_t)1 << b < dataset_doc(d, i)->full) b++;
        count[b]++;
        most = MAX2(most, count[b]);
        low = MIN2(low, b);
        high = MAX2(high, b);
    }
    for (int b = low; b <= high; b++) {
        int64_t bar = count[b] ? MAX2(count[b] * BAR / most, 1) : 0;
        str_addf(out, "  up to %7s tokens  ", units_count((int64_t)1 << b).s);
        for (int64_t i = 0; i < BAR; i++) str_add_char(out, i < bar ? '#' : ' ');
        str_addf(out, " %s\n", units_count(count[b]).s);
    }
}

int64_t dataset_enough(const Dataset *d) {
    enum { GRAIN = 64 };
    return dataset_is_packed(d) ? d->seq : MIN2(d->seq, units_round_up(d->report.longest, GRAIN));
}

void dataset_report_text(Str *out, const Dataset *d) {
    const DataReport *r = &d->report;
    str_addf(out, "data     %s: %s\n", d->path, r->kind_text);
    str_addf(out, "samples  %s", units_count(r->samples).s);
    if (r->dropped) str_addf(out, "; %s dropped (the answer is empty or was cut away)", units_count(r->dropped).s);
    if (r->truncated) str_addf(out, "; %s cut to %s tokens", units_count(r->truncated).s, units_count(d->seq).s);
    str_addf(out, "\ntokens   %s, %s scored (%.0f %%)\n", units_count(r->tokens).s,
             units_count(r->scored_tokens).s,
             r->tokens ? 100.0 * (double)r->scored_tokens / (double)r->tokens : 0.0);
    str_addf(out, "rows     %s of %s tokens, %.0f %% filled%s\n", units_count(r->rows).s, units_count(d->seq).s,
             100 * r->fill, dataset_is_packed(d) ? ", packed" : "");
    if (!dataset_is_packed(d) && r->fill < 0.5)
        str_addf(out, "         --pack on would need about %s rows\n",
                 units_count((r->tokens + d->seq - 1) / d->seq).s);
    if (dataset_enough(d) < d->seq)
        str_addf(out, "         --seq %lld would be enough: no sample is longer\n", (long long)dataset_enough(d));
    if (r->last_only)
        str_addf(
            out,
            "         in %s conversations earlier answers are not scored: the chat template changes them later\n",
            units_count(r->last_only).s);
    str_addf(out, "lengths  median %s, 95 %% up to %s, longest %s\n", units_count(r->median).s,
             units_count(r->p95).s, units_count(r->longest).s);
    add_histogram(out, d);
}
