/* dataset_keep.c - what of a sample is kept: cutting, pieces of long texts, and what is dropped. */
#include <string.h>

#include "base/mem.h"
#include "data/dataset_int.h"

enum { FLUSH_TOKENS = 1 << 16 }; /* of a text that are held before they are stored */

static bool is_scored(uint32_t token) { return token & SCORED; }

static int64_t count_scored(const uint32_t *token, int64_t n) {
    int64_t scored = 0;
    for (int64_t i = 0; i < n; i++) scored += is_scored(token[i]);
    return scored;
}

/* The first n tokens of the sample go to the store, as the end of the last document in it. */
static void store_tokens(Keeper *k, int64_t n) {
    Sample *s = &k->sample;
    if (!n) return;
    pile_add(&k->d->store->token, s->token, n);
    memmove(s->token, s->token + n, sizeof *s->token * (size_t)(s->n - n));
    s->n -= n;
}

static Doc *begin_document(Keeper *k) {
    DataStore *store = k->d->store;
    pile_add(&store->doc, &(Doc){.begin = store->token.n}, 1);
    return pile_at(&store->doc, store->doc.n - 1);
}

/* The first n tokens of the sample as a document of their own. */
static void keep_document(Keeper *k, int64_t n) {
    if (n) k->sample.token[0] &= ~SCORED; /* nothing stands before it to predict it */
    Doc *doc = begin_document(k);
    doc->scored = (int32_t)count_scored(k->sample.token, n);
    store_tokens(k, n);
    k->pieces++;
}

/* Shortens a sample to seq tokens. What stands behind the last scored token goes first, without harm; a scored
 * token that becomes the last one makes room for the end mark. Returns whether something of worth was cut. */
static bool cut_sample(Sample *s, int64_t seq) {
    while (s->n > seq && !is_scored(s->token[s->n - 1])) s->n--;
    if (s->n <= seq) return false;
    s->n = seq;
    if (s->end_id < 0 || !is_scored(s->token[seq - 1])) return true;
    s->token[seq - 1] = (uint32_t)s->end_id | SCORED;
    if (count_scored(s->token + 1, seq - 1) == 1) s->n = 0; /* an end without an answer teaches nothing */
    return true;
}

void dataset_keep_begin(Keeper *k) {
    k->first_doc = k->d->store->doc.n;
    k->pieces = 0;
    k->full = 0;
}

/* A stream takes tokens as they come; the document is as long as the text. */
static void keep_stream(Keeper *k, bool last) {
    Sample *s = &k->sample;
    if (!last && s->n < FLUSH_TOKENS) return;
    if (!k->pieces++ && s->n) {
        s->token[0] &= ~SCORED;
        begin_document(k);
    }
    k->full += s->n;
    store_tokens(k, s->n);
}

/* Rows of single documents: a text that is longer than a row becomes several. */
static void keep_pieces(Keeper *k, bool last) {
    Sample *s = &k->sample;
    int64_t seq = k->d->seq;
    while (s->n > seq || (last && s->n && k->pieces)) {
        int64_t n = MIN2(s->n, seq);
        k->full += n;
        keep_document(k, n);
    }
}

static bool is_in_pieces(const Keeper *k) { return k->sample.plain && k->in_pieces; }

void dataset_keep_some(Keeper *k) {
    if (k->part->mode == ROWS_STREAM) keep_stream(k, false);
    else if (is_in_pieces(k)) keep_pieces(k, false);
}

static void drop(Keeper *k) {
    DataStore *store = k->d->store;
    if (store->doc.n > k->first_doc) {
        int64_t begin = ((Doc *)pile_at(&store->doc, k->first_doc))->begin;
        pile_cut(&store->doc, k->first_doc);
        pile_cut(&store->token, begin);
    }
    k->part->report.dropped++;
    k->part->report.unanswered += k->sample.unanswered;
}

void dataset_keep_end(Keeper *k) {
    Dataset *d = k->d;
    DataReport *r = &k->part->report;
    Sample *s = &k->sample;
    bool cut = false, stream = k->part->mode == ROWS_STREAM;
    if (stream) keep_stream(k, true);
    else if (is_in_pieces(k)) keep_pieces(k, true);
    if (!k->pieces) {
        k->full = s->n;
        cut = cut_sample(s, d->seq);
        if (s->n) keep_document(k, s->n);
    }
    r->longest = MAX2(r->longest, k->full);
    Doc *doc = d->store->doc.n > k->first_doc ? pile_at(&d->store->doc, k->first_doc) : NULL;
    if (doc && stream) doc->scored = (int32_t)MIN2(k->full - 1, INT32_MAX);
    if (!doc || !doc->scored) {
        drop(k);
        return;
    }
    doc->full = (int32_t)MIN2(k->full, INT32_MAX);
    r->truncated += cut;
    r->last_only += s->last_only;
}
