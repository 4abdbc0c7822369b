/* dataset.c - what a set hands out: rows, in the order of an epoch, and a part that is held out. */
#include "data/dataset.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "data/dataset_int.h"

enum { ORDER_KEY = 0x6f726465 };

void dataset_close(Dataset *d) {
    if (!d) return;
    if (!--d->store->sets) {
        pile_free(&d->store->token);
        pile_free(&d->store->doc);
        mem_free(d->store);
    }
    mem_free(d->path);
    mem_free(d->kind_text);
    mem_free(d->row_first);
    mem_free(d->row_doc);
    mem_free(d->order);
    mem_free(d);
}

/* ---- splitting ---- */

/* The document that token `at` stands in. */
static int64_t document_of(const Dataset *d, int64_t at) {
    int64_t low = 0, high = d->n_docs;
    while (high - low > 1) {
        int64_t mid = (low + high) / 2;
        if (dataset_doc(d, mid)->begin <= at) low = mid;
        else high = mid;
    }
    return low;
}

/* A text split between two of its pieces counts as a sample on both sides. */
static void share_sample(Dataset *d, Dataset *held) {
    Doc *first = dataset_doc(held, 0);
    if (first->full) return;
    int64_t rest = dataset_doc_tokens(held, 0), owner = d->n_docs - 1;
    for (int64_t i = 1; i < held->n_docs && !dataset_doc(held, i)->full; i++) rest += dataset_doc_tokens(held, i);
    while (!dataset_doc(d, owner)->full) owner--;
    dataset_doc(d, owner)->full -= (int32_t)rest;
    first->full = (int32_t)rest;
}

/* Between two documents, where a border is near enough; else inside one, which then counts on both sides. */
static void split_stream(Dataset *d, Dataset *h, int64_t keep) {
    int64_t cut = d->first_token + keep * d->seq, doc = document_of(d, cut), end = d->first_token + d->n_tokens;
    int64_t before = dataset_doc(d, doc)->begin, after = dataset_doc(d, doc + 1)->begin, asked = end - cut;
    bool takes_before = before > d->first_token && end - before <= 2 * asked;
    bool takes_after = 2 * (end - after) >= asked && (!takes_before || after - cut < cut - before);
    if (takes_after) doc++;
    cut = takes_after ? after : takes_before ? before : cut;
    h->first_doc = d->first_doc + doc;
    h->n_docs = d->n_docs - doc;
    h->first_token = cut;
    h->n_tokens = end - cut;
    d->n_docs = doc + (dataset_doc(d, doc)->begin < cut);
    d->n_tokens = cut - d->first_token;
}

static void split_documents(Dataset *d, Dataset *h, int64_t keep) {
    int64_t cut = dataset_doc(d, keep)->begin;
    h->first_doc = d->first_doc + keep;
    h->n_docs = d->n_docs - keep;
    h->first_token = cut;
    h->n_tokens = d->first_token + d->n_tokens - cut;
    d->n_docs = keep;
    d->n_tokens = cut - d->first_token;
    share_sample(d, h);
}

bool dataset_split(Dataset *d, Dataset **held_out, double fraction, Err *e) {
    *held_out = NULL;
    if (!(fraction > 0 && fraction < 1))
        return fail(e, ERR_USAGE, "a held-out share of %g: it must lie between 0 and 1", fraction);
    bool stream = d->mode == ROWS_STREAM && d->n_rows > 1;
    int64_t all = stream ? d->n_rows : d->n_docs;
    if (all < 2)
        return fail(e, ERR_FAIL,
                    "%s: holds one document, none can be held out of it. Give a file of its own to evaluate on",
                    d->path);
    int64_t keep = (int64_t)floor((double)all * (1 - fraction) + 1e-9);
    keep = MIN2(MAX2(keep, 1), all - 1);
    Dataset *h = MEM_NEW(Dataset, 1);
    *h = *d;
    h->path = mem_strdup(d->path);
    h->kind_text = mem_strdup(d->kind_text);
    h->report = (DataReport){.kind = d->report.kind, .kind_text = h->kind_text};
    h->shuffle = h->owns_store = false;
    h->row_first = h->row_doc = h->order = NULL;
    h->reading_bytes = 0;
    d->store->sets++;
    (stream ? split_stream : split_documents)(d, h, keep);
    dataset_place(d);
    dataset_count(d);
    dataset_place(h);
    dataset_count(h);
    *held_out = h;
    return true;
}

/* ---- questions ---- */

int64_t dataset_rows(const Dataset *d) { return d->n_rows; }
bool dataset_is_packed(const Dataset *d) { return d->mode != ROWS_DOCUMENTS; }
int64_t dataset_seq(const Dataset *d) { return d->seq; }
int64_t dataset_reading_bytes(const Dataset *d) { return d->reading_bytes; }

int64_t dataset_bytes(const Dataset *d) {
    int64_t text = (int64_t)(strlen(d->path) + strlen(d->kind_text)) + 2;
    int64_t store = (int64_t)sizeof *d->store + pile_bytes(&d->store->token) + pile_bytes(&d->store->doc);
    int64_t words = (d->row_first ? d->n_rows + 1 + d->n_docs : 0) + (d->order ? d->n_rows : 0);
    return (int64_t)sizeof *d + text + (d->owns_store ? store : 0) + words * (int64_t)sizeof(int64_t);
}

uint64_t dataset_fingerprint(const Dataset *d) {
    uint64_t h = rng_fold(rng_fold((uint64_t)d->seq, (uint64_t)d->n_rows), (uint64_t)d->mode);
    for (int64_t i = 0; i < d->n_docs; i++) h = rng_fold(h, (uint64_t)(dataset_doc(d, i)->begin - d->first_token));
    for (int64_t t = 0; t < d->n_tokens; t++)
        h = rng_fold(h, *(uint32_t *)pile_at(&d->store->token, d->first_token + t));
    for (int64_t i = 0; d->row_doc && i < d->n_docs; i++) h = rng_fold(h, (uint64_t)d->row_doc[i]);
    return h;
}

int64_t dataset_row_at(Dataset *d, int64_t epoch, int64_t index) {
    CHECK(epoch >= 0 && index >= 0 && index < d->n_rows);
    if (!d->order) return index;
    if (epoch != d->order_epoch) {
        rng_permute(rng_fold(rng_fold(d->seed, ORDER_KEY), (uint64_t)epoch), d->order, d->n_rows);
        d->order_epoch = epoch;
    }
    return d->order[index];
}

/* ---- rows ---- */

typedef struct RowSpan { /* of a row: its documents, as places in row_doc or as a document */
    int64_t from, to;
} RowSpan;

static RowSpan documents_of(const Dataset *d, int64_t row) {
    CHECK(row >= 0 && row < d->n_rows);
    return d->row_first ? (RowSpan){d->row_first[row], d->row_first[row + 1]} : (RowSpan){row, row + 1};
}

static int64_t document_at(const Dataset *d, int64_t place) { return d->row_doc ? d->row_doc[place] : place; }

static bool is_scored(uint32_t token) { return token & SCORED; }

/* Of a stream: the tokens of a row, and whether one more stands behind them that the last is to predict. */
static int64_t window_of(const Dataset *d, int64_t row, int64_t *begin, bool *more) {
    int64_t at = row * d->seq, n = MIN2(d->seq, d->n_tokens - at);
    *begin = d->first_token + at;
    *more = at + n < d->n_tokens;
    return n;
}

static int64_t stream_scored(const Dataset *d, int64_t row) {
    bool more;
    int64_t begin, n = window_of(d, row, &begin, &more), scored = 0;
    for (int64_t i = 1; i < n + more; i++)
        scored += d->joined || is_scored(*(uint32_t *)pile_at(&d->store->token, begin + i));
    return scored;
}

int64_t dataset_row_scored(const Dataset *d, int64_t row) {
    RowSpan r = documents_of(d, row);
    if (d->mode == ROWS_STREAM) return stream_scored(d, row);
    int64_t n = 0;
    for (int64_t i = r.from; i < r.to; i++) n += dataset_doc(d, document_at(d, i))->scored;
    return n;
}

int64_t dataset_row_tokens(const Dataset *d, int64_t row) {
    RowSpan r = documents_of(d, row);
    if (d->mode == ROWS_STREAM) return MIN2(d->seq, d->n_tokens - row * d->seq);
    int64_t n = 0;
    for (int64_t i = r.from; i < r.to; i++) n += dataset_doc_tokens(d, document_at(d, i));
    return n;
}

/* Where a row is written to. */
typedef struct RowOut {
    int32_t *ids, *labels, *positions, *doc_begin;
    float *weight;
} RowOut;

static void put_token(const RowOut *o, int64_t at, int64_t begin, uint32_t id, uint32_t next, bool predicts) {
    o->ids[at] = (int32_t)(id & ~SCORED);
    o->labels[at] = predicts ? (int32_t)(next & ~SCORED) : -1;
    o->weight[at] = predicts ? 1 : 0;
    o->positions[at] = (int32_t)(at - begin);
    o->doc_begin[at] = (int32_t)begin;
}

/* What is left of the row is a document of its own. */
static void put_padding(const RowOut *o, int64_t at, int64_t seq) {
    for (int64_t begin = at; at < seq; at++) put_token(o, at, begin, 0, 0, false);
}

static void fill_window(const Dataset *d, int64_t row, const RowOut *o) {
    bool more;
    int64_t first, n = window_of(d, row, &first, &more), doc = document_of(d, first), begin = 0;
    for (int64_t t = 0; t < n; t++) {
        if (t && first + t == dataset_doc(d, doc + 1)->begin) {
            doc++;
            if (!d->joined) begin = t;
        }
        uint32_t id = *(uint32_t *)pile_at(&d->store->token, first + t), next = 0;
        bool follows = t + 1 < n || more;
        if (follows) next = *(uint32_t *)pile_at(&d->store->token, first + t + 1);
        put_token(o, t, begin, id, next, follows && (d->joined || is_scored(next)));
    }
    put_padding(o, n, d->seq);
}

void dataset_row_fill(const Dataset *d, int64_t row, int32_t *ids, int32_t *labels, float *weight,
                      int32_t *positions, int32_t *doc_begin) {
    RowOut o = {ids, labels, positions, doc_begin, weight};
    RowSpan r = documents_of(d, row);
    int64_t at = 0;
    if (d->mode == ROWS_STREAM) {
        fill_window(d, row, &o);
        return;
    }
    for (int64_t i = r.from; i < r.to; i++) {
        int64_t doc = document_at(d, i), from = dataset_doc(d, doc)->begin, n = dataset_doc_tokens(d, doc), begin = at;
        for (int64_t p = 0; p < n; p++, at++) {
            uint32_t id = *(uint32_t *)pile_at(&d->store->token, from + p);
            uint32_t next = p + 1 < n ? *(uint32_t *)pile_at(&d->store->token, from + p + 1) : 0;
            put_token(&o, at, begin, id, next, is_scored(next));
        }
    }
    put_padding(&o, at, d->seq);
}
