/* dataset.c - what stands in a row of a set. */
#include "data/dataset.h"

#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "data/dataset_int.h"

void dataset_close(Dataset *d) {
    if (!d) return;
    if (!--d->store->sets) {
        pile_free(&d->store->token);
        pile_free(&d->store->doc);
        for (int i = 0; i < d->store->n_corpora; i++) corpus_close(d->store->corpus[i]);
        mem_free(d->store->corpus);
        mem_free(d->store);
    }
    for (int i = 0; i < d->n_parts; i++) {
        void *owned[] = {d->part[i].path, d->part[i].kind_text, d->part[i].row_first, d->part[i].row_doc};
        for (int k = 0; k < COUNT_OF(owned); k++) mem_free(owned[k]);
    }
    mem_free(d->part);
    mem_free(d->name);
    mem_free(d);
}

/* ---- questions ---- */

int64_t dataset_rows(const Dataset *d) { return d->n_rows; }
int64_t dataset_seq(const Dataset *d) { return d->seq; }
int64_t dataset_reading_bytes(const Dataset *d) { return d->reading_bytes; }

bool dataset_packs_updates(const Dataset *d) { return d->by_update; }

void dataset_pack_updates(Dataset *d, bool on) {
    for (int i = 0; i < d->n_parts; i++) CHECK(d->part[i].mode == ROWS_DOCUMENTS);
    d->by_update = on;
}

int dataset_parts(const Dataset *d) { return d->n_parts; }

bool dataset_has_turns(const Dataset *d) {
    bool any = false;
    for (int i = 0; i < d->n_parts; i++)
        any |= d->part[i].kind == DATA_MESSAGES || d->part[i].kind == DATA_SHAREGPT;
    return any;
}

bool dataset_has_stream(const Dataset *d) {
    bool any = false;
    for (int i = 0; i < d->n_parts; i++) any |= d->part[i].mode == ROWS_STREAM;
    return any;
}


bool dataset_is_packed(const Dataset *d) {
    if (d->by_update) return true;
    for (int i = 0; i < d->n_parts; i++)
        if (d->part[i].mode != ROWS_DOCUMENTS) return true;
    return false;
}

int64_t dataset_bytes(const Dataset *d) {
    int64_t bytes = (int64_t)sizeof *d + (int64_t)strlen(d->name) + 1;
    if (d->owns_store) bytes += (int64_t)sizeof *d->store + pile_bytes(&d->store->token) + pile_bytes(&d->store->doc);
    for (int i = 0; d->owns_store && i < d->store->n_corpora; i++) bytes += corpus_bytes(d->store->corpus[i]);
    for (int i = 0; i < d->n_parts; i++) {
        const DataPart *p = &d->part[i];
        bytes += (int64_t)(sizeof *p + strlen(p->path) + strlen(p->kind_text) + 2);
        if (p->row_first) bytes += (p->n_rows + 1 + p->n_docs) * (int64_t)sizeof(int64_t);
    }
    return bytes;
}

static uint64_t part_fingerprint(uint64_t h, const Dataset *d, const DataPart *p) {
    h = rng_fold(rng_fold(rng_fold(h, (uint64_t)p->mode), (uint64_t)p->n_rows), p->share);
    if (p->corpus) return rng_fold(rng_fold(h, corpus_fingerprint(p->corpus)), (uint64_t)p->keyed_first);
    for (int64_t i = 0; i < p->n_docs; i++)
        h = rng_fold(h, (uint64_t)(dataset_doc(d, p->first_doc + i)->begin - p->first_token));
    for (int64_t t = 0; t < p->n_tokens; t++)
        h = rng_fold(h, *(uint32_t *)pile_at(&d->store->token, p->first_token + t));
    for (int64_t i = 0; p->row_doc && i < p->n_docs; i++) h = rng_fold(h, (uint64_t)(p->row_doc[i] - p->first_doc));
    return h;
}

uint64_t dataset_fingerprint(const Dataset *d) {
    uint64_t h =
        rng_fold(rng_fold((uint64_t)d->seq, d->joined), d->weighted); /* how updates are packed changes no sum */
    for (int i = 0; i < d->n_parts; i++) h = part_fingerprint(h, d, &d->part[i]);
    return h;
}

int64_t dataset_doc_at(const Dataset *d, const DataPart *p, int64_t token) {
    int64_t low = p->first_doc, high = p->first_doc + p->n_docs;
    while (high - low > 1) {
        int64_t mid = (low + high) / 2;
        if (dataset_doc(d, mid)->begin <= token) low = mid;
        else high = mid;
    }
    return low;
}

const DataPart *dataset_part_of(const Dataset *d, int64_t row) {
    CHECK(row >= 0 && row < d->n_rows);
    int i = d->n_parts - 1;
    while (d->part[i].first_row > row || !d->part[i].n_rows) i--;
    return &d->part[i];
}

bool dataset_ok(const Dataset *d, Err *e) {
    for (int i = 0; i < d->store->n_corpora; i++)
        if (!corpus_ok(d->store->corpus[i], e)) return false;
    return true;
}

/* ---- rows ---- */

enum { SPLIT_KEY = 0x73706c69 };

typedef struct RowSpan { /* its documents: places in row_doc, or documents */
    int64_t from, to;
} RowSpan;

static RowSpan documents_of(const DataPart *p, int64_t row) {
    int64_t r = row - p->first_row;
    return p->row_first ? (RowSpan){p->row_first[r], p->row_first[r + 1]}
                        : (RowSpan){p->first_doc + r, p->first_doc + r + 1};
}

static int64_t document_at(const DataPart *p, int64_t place) { return p->row_doc ? p->row_doc[place] : place; }

static bool is_scored(uint32_t token) { return token & SCORED; }

static uint32_t token_at(const Dataset *d, int64_t i) { return *(uint32_t *)pile_at(&d->store->token, i); }

typedef struct RowWindow { /* of a stream */
    int64_t begin, n;
    bool more; /* a token stands behind it, which the last is to predict */
} RowWindow;

static RowWindow window_of(const Dataset *d, const DataPart *p, int64_t row) {
    int64_t r = row - p->first_row;
    if (p->keyed_rows) r = rng_permuted(rng_fold(d->seed, SPLIT_KEY), p->keyed_rows, p->keyed_first + r);
    int64_t at = r * d->seq, n = MIN2(d->seq, p->n_tokens - at);
    return (RowWindow){p->first_token + at, n, at + n < p->n_tokens};
}

/* Labels of a row on disk: all but those of tokens that begin a document. */
static int64_t corpus_scored(const Dataset *d, const DataPart *p, RowWindow w) {
    enum { PIECE = 1024 };
    uint32_t scratch[PIECE];
    int64_t n = w.n + w.more, starts = 0;
    for (int64_t at = 0; !d->joined && at + 1 < n; at += PIECE - 1) /* pieces share a token: the first is not told of */
        starts += corpus_count_starts(p->corpus, w.begin + at, MIN2(PIECE, n - at), scratch);
    return n - 1 - starts;
}

static int64_t stream_scored(const Dataset *d, const DataPart *p, RowWindow w) {
    int64_t scored = 0;
    if (p->corpus) return corpus_scored(d, p, w);
    for (int64_t i = 1; i < w.n + w.more; i++) scored += d->joined || is_scored(token_at(d, w.begin + i));
    return scored;
}

int64_t dataset_row_scored(const Dataset *d, int64_t row) {
    const DataPart *p = dataset_part_of(d, row);
    if (p->mode == ROWS_STREAM) return stream_scored(d, p, window_of(d, p, row));
    RowSpan r = documents_of(p, row);
    int64_t n = 0;
    for (int64_t i = r.from; i < r.to; i++) n += dataset_doc(d, document_at(p, i))->scored;
    return n;
}

int64_t dataset_row_tokens(const Dataset *d, int64_t row) {
    const DataPart *p = dataset_part_of(d, row);
    if (p->mode == ROWS_STREAM) return window_of(d, p, row).n;
    RowSpan r = documents_of(p, row);
    int64_t n = 0;
    for (int64_t i = r.from; i < r.to; i++) n += dataset_doc_tokens(d, document_at(p, i));
    return n;
}

typedef struct RowOut { /* where a row is written to */
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

/* In what is left of the row every token is a document of its own: attention looks at nothing for it. */
static void put_padding(const RowOut *o, int64_t at, int64_t seq) {
    for (; at < seq; at++) put_token(o, at, at, 0, 0, false);
}

static void fill_window(const Dataset *d, const DataPart *p, RowWindow w, const RowOut *o) {
    int64_t doc = dataset_doc_at(d, p, w.begin), begin = 0;
    for (int64_t t = 0; t < w.n; t++) {
        bool starts = t && w.begin + t == dataset_doc(d, doc + 1)->begin, follows = t + 1 < w.n || w.more;
        doc += starts;
        if (starts && !d->joined) begin = t;
        uint32_t next = follows ? token_at(d, w.begin + t + 1) : 0;
        put_token(o, t, begin, token_at(d, w.begin + t), next, follows && (d->joined || is_scored(next)));
    }
    put_padding(o, w.n, d->seq);
}

static void fill_from_disk(const Dataset *d, const DataPart *p, RowWindow w, const RowScratch *s,
                           const RowOut *o) {
    int64_t begin = 0;
    CHECK(s->token && s->starts);
    corpus_read(p->corpus, w.begin, w.n + w.more, s->token, s->starts);
    for (int64_t t = 0; t < w.n; t++) {
        bool follows = t + 1 < w.n || w.more, same = d->joined || !s->starts[t + 1];
        if (t && s->starts[t] && !d->joined) begin = t;
        put_token(o, t, begin, s->token[t], follows ? s->token[t + 1] : 0, follows && same);
    }
    put_padding(o, w.n, d->seq);
}

static int64_t fill_document(const Dataset *d, int64_t doc, int64_t at, const RowOut *o) {
    int64_t from = dataset_doc(d, doc)->begin, n = dataset_doc_tokens(d, doc), begin = at;
    for (int64_t i = 0; i < n; i++, at++) {
        uint32_t next = i + 1 < n ? token_at(d, from + i + 1) : 0;
        put_token(o, at, begin, token_at(d, from + i), next, is_scored(next));
    }
    return at;
}

void dataset_members_fill(const Dataset *d, const int64_t *member, int64_t n, const RowScratch *scratch,
                          int32_t *ids, int32_t *labels, float *weight, int32_t *positions, int32_t *doc_begin) {
    RowOut o = {ids, labels, positions, doc_begin, weight};
    int64_t at = 0;
    for (int64_t k = 0; k < n; k++) {
        const DataPart *p = dataset_part_of(d, member[k]);
        if (p->mode == ROWS_STREAM) { /* which shares its row with nobody */
            RowWindow w = window_of(d, p, member[k]);
            if (p->corpus)
                fill_from_disk(d, p, w, scratch, &o);
            else
                fill_window(d, p, w, &o);
            return;
        }
        RowSpan r = documents_of(p, member[k]);
        for (int64_t i = r.from; i < r.to; i++) at = fill_document(d, document_at(p, i), at, &o);
    }
    put_padding(&o, at, d->seq);
}

void dataset_row_fill(const Dataset *d, int64_t row, int32_t *ids, int32_t *labels, float *weight,
                      int32_t *positions, int32_t *doc_begin) {
    bool disk = dataset_part_of(d, row)->corpus != NULL;
    RowScratch s = {.token = disk ? MEM_NEW(uint32_t, d->seq + 1) : NULL,
                    .starts = disk ? MEM_NEW(uint8_t, d->seq + 1) : NULL};
    dataset_members_fill(d, &row, 1, &s, ids, labels, weight, positions, doc_begin);
    mem_free(s.token);
    mem_free(s.starts);
}
