/* dataset_report.c - what people want to know of a data set before it is trained on. */
#include <stdlib.h>

#include "base/mem.h"
#include "base/units.h"
#include "data/dataset_int.h"

enum { BUCKETS = 40, BAR = 40 };

static int by_size(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void count_lengths(DataReport *r, int64_t *length, int64_t n) {
    if (!n) return;
    qsort(length, (size_t)n, sizeof *length, by_size);
    r->longest = length[n - 1];
    r->median = length[(n - 1) / 2];
    r->p95 = length[(n * 95 + 99) / 100 - 1];
}

void dataset_count(Dataset *d) {
    DataReport *r = &d->report;
    *r = (DataReport){.kind = r->kind, .kind_text = r->kind_text, .rows = d->n_rows, .tokens = d->n_tokens};
    int64_t n = 0, *length = MEM_NEW(int64_t, d->n_docs);
    for (int64_t i = 0; i < d->n_docs; i++) {
        const Doc *doc = &d->doc[i];
        r->scored_tokens += doc->scored;
        if (!doc->starts) continue;
        length[n++] = doc->full_tokens;
        r->samples += doc->tokens > 0;
        r->dropped += doc->tokens == 0;
        r->truncated += doc->tokens > 0 && doc->truncated;
        r->last_only += doc->tokens > 0 && doc->last_only;
    }
    count_lengths(r, length, n);
    mem_free(length);
    r->fill = d->n_rows ? (double)d->n_tokens / ((double)d->n_rows * (double)d->seq) : 0;
}

const DataReport *dataset_report(const Dataset *d) { return &d->report; }

/* Samples by length, in doubling steps. */
static void add_histogram(Str *out, const Dataset *d) {
    int64_t count[BUCKETS] = {0}, most = 1;
    int low = BUCKETS, high = 0;
    for (int64_t i = 0; i < d->n_docs; i++) {
        if (!d->doc[i].starts) continue;
        int b = 3; /* up to 8 tokens */
        while (b < BUCKETS - 1 && (int64_t)1 << b < d->doc[i].full_tokens) b++;
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
    return d->pack ? d->seq : MIN2(d->seq, units_round_up(d->report.longest, GRAIN));
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
             100 * r->fill, d->pack ? ", packed" : "");
    if (!d->pack && r->fill < 0.5)
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
