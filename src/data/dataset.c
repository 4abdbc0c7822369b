/* dataset.c - what of a sample is kept: cutting, storing, splitting, and handing out rows. */
#include "data/dataset.h"

#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/work.h"
#include "data/dataset_int.h"

enum { ORDER_KEY = 0x6f726465 };

static bool is_scored(uint32_t token) { return token & SCORED; }

static int64_t count_scored(const uint32_t *token, int64_t n) {
    int64_t scored = 0;
    for (int64_t i = 0; i < n; i++) scored += is_scored(token[i]);
    return scored;
}

/* ---- keeping a sample ---- */

/* One document of n tokens; nothing scored: the sample is dropped (a later piece of a text stays). */
static Doc *keep_document(Dataset *d, uint32_t *token, int64_t n, bool starts) {
    d->doc = mem_grow(d->doc, &d->doc_capacity, d->n_docs + 1, sizeof *d->doc);
    Doc *doc = &d->doc[d->n_docs++];
    *doc = (Doc){.begin = d->n_tokens, .starts = starts};
    if (n) token[0] &= ~SCORED; /* nothing stands before it to predict it */
    doc->scored = (int32_t)count_scored(token, n);
    if (starts && !doc->scored) return doc;
    doc->tokens = (int32_t)n;
    d->token = mem_grow(d->token, &d->token_capacity, d->n_tokens + n, sizeof *d->token);
    memcpy(d->token + d->n_tokens, token, sizeof *token * (size_t)n);
    d->n_tokens += n;
    return doc;
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

static void keep_sample(Dataset *d, Sample *s) {
    int64_t full = s->n;
    bool in_pieces = s->plain && d->pack && s->n > d->seq, cut = !in_pieces && cut_sample(s, d->seq);
    Doc *doc = keep_document(d, s->token, MIN2(s->n, d->seq), true);
    doc->full_tokens = full;
    doc->truncated = cut;
    doc->last_only = s->last_only;
    for (int64_t at = d->seq; at < s->n; at += d->seq)
        keep_document(d, s->token + at, MIN2(s->n - at, d->seq), false);
}

/* ---- opening ---- */

static bool check_options(const DataOptions *o, Err *e) {
    if (o->seq < 2 || o->seq > INT32_MAX)
        return fail(e, ERR_USAGE, "rows of %lld tokens: at least 2 are needed", (long long)o->seq);
    if (o->vocab < 1 || o->vocab > INT32_MAX)
        return fail(e, ERR_USAGE, "a vocabulary of %lld ids is out of range", (long long)o->vocab);
    if (o->eos_id >= o->vocab)
        return fail(e, ERR_FAIL, "the end-of-text id %d is not below the model's vocabulary of %lld ids",
                    o->eos_id, (long long)o->vocab);
    if (o->answer_template && !o->prompt_template)
        return fail(e, ERR_USAGE,
                    "an answer template needs a prompt template (it may be empty: --prompt-template '')");
    return true;
}

static bool read_rows(Dataset *d, RowMaker *m, Sample *s, Err *e) {
    RowReader r;
    json_t *row;
    Work work;
    int64_t bytes = 0;
    bool ok = dataset_reader_open(&r, d->path, e);
    if (!ok) return false;
    file_size(d->path, &bytes, NULL);
    work_begin(&work, WORK_BYTES, bytes, "reading and tokenising %s", d->path);
    for (int64_t n = 0; ok && (!m->o->max_samples || n < m->o->max_samples); n++) {
        if (!(ok = dataset_reader_next(&r, &row, e)) || !row) break;
        ok = dataset_make_sample(m, s, row, e) || fail_within(e, "%s:%lld", d->path, (long long)r.row_line);
        json_decref(row);
        if (!n) d->pack = m->o->pack == PACK_ON || (m->o->pack == PACK_AUTO && m->kind == DATA_TEXT);
        if (ok) keep_sample(d, s);
        ok = ok && work_on(&work, dataset_reader_at(&r), e);
    }
    work_end(&work);
    dataset_reader_close(&r);
    return ok;
}

static bool read_text_file(Dataset *d, RowMaker *m, Sample *s, Err *e) {
    Str text = {0};
    if (!dataset_settle_file(m, e)) return fail_within(e, "%s", d->path);
    d->pack = m->o->pack != PACK_OFF;
    bool ok = dataset_read_text(&text, d->path, e) &&
              (dataset_make_text(m, s, str_text(&text), text.len, e) || fail_within(e, "%s", d->path));
    str_free(&text);
    if (ok) keep_sample(d, s);
    return ok;
}

static bool check_anything_left(const Dataset *d, Err *e) {
    if (d->report.samples) return true;
    if (!d->report.dropped) return fail(e, ERR_FAIL, "%s: holds no samples", d->path);
    return fail(e, ERR_FAIL,
                "%s: no sample is left of %lld: answers are empty, or prompts leave no room in %lld tokens (the "
                "longest sample has %lld). Is --seq large enough?",
                d->path, (long long)d->report.dropped, (long long)d->seq, (long long)d->report.longest);
}

static void shrink(Dataset *d) {
    d->token_capacity = d->n_tokens;
    d->doc_capacity = d->n_docs;
    d->token = mem_resize(d->token, d->n_tokens * (int64_t)sizeof *d->token);
    d->doc = mem_resize(d->doc, d->n_docs * (int64_t)sizeof *d->doc);
}

bool dataset_open(Dataset **out, const char *path, const DataOptions *o, Err *e) {
    *out = NULL;
    if (!check_options(o, e)) return false;
    RowMaker m;
    if (!dataset_maker_init(&m, o, e)) return false;
    Dataset *d = MEM_NEW(Dataset, 1);
    *d = (Dataset){.path = mem_strdup(path), .seq = o->seq, .seed = o->seed, .shuffle = o->shuffle};
    Sample s = {0};
    bool ok = str_ends(path, ".txt") ? read_text_file(d, &m, &s, e) : read_rows(d, &m, &s, e);
    if (ok) {
        shrink(d);
        d->kind_text = mem_strdup(str_text(&m.kind_text));
        d->report = (DataReport){.kind = m.kind, .kind_text = d->kind_text};
        dataset_place(d);
        dataset_count(d);
        ok = check_anything_left(d, e);
    }
    mem_free(s.token);
    dataset_maker_free(&m);
    if (ok) *out = d;
    else dataset_close(d);
    return ok;
}

void dataset_close(Dataset *d) {
    if (!d) return;
    mem_free(d->path);
    mem_free(d->kind_text);
    mem_free(d->token);
    mem_free(d->doc);
    mem_free(d->row_first);
    mem_free(d->row_doc);
    mem_free(d->order);
    mem_free(d);
}

/* ---- splitting ---- */

/* The first document of the held-out part, so that `keep` documents with tokens stand before it. */
static int64_t split_place(const Dataset *d, int64_t keep) {
    int64_t i = 0;
    for (int64_t seen = 0; seen < keep; i++) seen += d->doc[i].tokens > 0;
    return i;
}

/* A text split between two of its pieces counts as a sample on both sides. */
static void share_sample(Dataset *d, Dataset *held) {
    if (held->doc[0].starts) return;
    int64_t rest = held->doc[0].tokens;
    for (int64_t i = 1; i < held->n_docs && !held->doc[i].starts; i++) rest += held->doc[i].tokens;
    int64_t owner = d->n_docs - 1;
    while (!d->doc[owner].starts) owner--;
    d->doc[owner].full_tokens -= rest;
    held->doc[0].full_tokens = rest;
    held->doc[0].starts = true;
}

bool dataset_split(Dataset *d, Dataset **held_out, double fraction, Err *e) {
    *held_out = NULL;
    if (!(fraction > 0 && fraction < 1))
        return fail(e, ERR_USAGE, "a held-out share of %g: it must lie between 0 and 1", fraction);
    if (d->n_placed < 2)
        return fail(e, ERR_FAIL,
                    "%s: holds one document, none can be held out of it. Give a file of its own to evaluate on",
                    d->path);
    int64_t keep = (int64_t)floor((double)d->n_placed * (1 - fraction) + 1e-9);
    int64_t cut = split_place(d, MIN2(MAX2(keep, 1), d->n_placed - 1)), from = d->doc[cut].begin;
    Dataset *h = MEM_NEW(Dataset, 1);
    *h = (Dataset){.path = mem_strdup(d->path),
                   .kind_text = mem_strdup(d->kind_text),
                   .seq = d->seq,
                   .seed = d->seed,
                   .pack = d->pack,
                   .n_tokens = d->n_tokens - from,
                   .n_docs = d->n_docs - cut};
    h->report = (DataReport){.kind = d->report.kind, .kind_text = h->kind_text};
    shrink(h);
    memcpy(h->token, d->token + from, sizeof *h->token * (size_t)h->n_tokens);
    memcpy(h->doc, d->doc + cut, sizeof *h->doc * (size_t)h->n_docs);
    for (int64_t i = 0; i < h->n_docs; i++) h->doc[i].begin -= from;
    d->n_tokens = from;
    d->n_docs = cut;
    shrink(d);
    share_sample(d, h);
    dataset_place(d);
    dataset_count(d);
    dataset_place(h);
    dataset_count(h);
    *held_out = h;
    return true;
}

/* ---- rows ---- */

int64_t dataset_rows(const Dataset *d) { return d->n_rows; }
bool dataset_is_packed(const Dataset *d) { return d->pack; }

int64_t dataset_seq(const Dataset *d) { return d->seq; }

int64_t dataset_bytes(const Dataset *d) {
    int64_t text = (int64_t)(strlen(d->path) + strlen(d->kind_text)) + 2;
    return (int64_t)sizeof *d + text + d->token_capacity * (int64_t)sizeof *d->token +
           d->doc_capacity * (int64_t)sizeof *d->doc +
           (d->n_rows + 1 + d->n_placed + (d->order ? d->n_rows : 0)) * (int64_t)sizeof(int64_t);
}

uint64_t dataset_fingerprint(const Dataset *d) {
    uint64_t h = rng_fold((uint64_t)d->seq, (uint64_t)d->n_rows);
    for (int64_t r = 0; r < d->n_rows; r++)
        for (int64_t i = d->row_first[r]; i < d->row_first[r + 1]; i++) {
            const Doc *doc = &d->doc[d->row_doc[i]];
            h = rng_fold(rng_fold(h, (uint64_t)r), (uint64_t)doc->tokens);
            for (int32_t t = 0; t < doc->tokens; t++) h = rng_fold(h, d->token[doc->begin + t]);
        }
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

int64_t dataset_row_scored(const Dataset *d, int64_t row) {
    CHECK(row >= 0 && row < d->n_rows);
    int64_t n = 0;
    for (int64_t i = d->row_first[row]; i < d->row_first[row + 1]; i++) n += d->doc[d->row_doc[i]].scored;
    return n;
}

int64_t dataset_row_tokens(const Dataset *d, int64_t row) {
    CHECK(row >= 0 && row < d->n_rows);
    int64_t n = 0;
    for (int64_t i = d->row_first[row]; i < d->row_first[row + 1]; i++) n += d->doc[d->row_doc[i]].tokens;
    return n;
}

void dataset_row_fill(const Dataset *d, int64_t row, int32_t *ids, int32_t *labels, float *weight,
                      int32_t *positions, int32_t *doc_begin) {
    CHECK(row >= 0 && row < d->n_rows);
    int64_t at = 0;
    for (int64_t i = d->row_first[row]; i < d->row_first[row + 1]; i++) {
        const Doc *doc = &d->doc[d->row_doc[i]];
        const uint32_t *token = d->token + doc->begin;
        int64_t begin = at;
        for (int32_t p = 0; p < doc->tokens; p++, at++) {
            bool predicts = p + 1 < doc->tokens && is_scored(token[p + 1]);
            ids[at] = (int32_t)(token[p] & ~SCORED);
            labels[at] = predicts ? (int32_t)(token[p + 1] & ~SCORED) : -1;
            weight[at] = predicts ? 1 : 0;
            positions[at] = p;
            doc_begin[at] = (int32_t)begin;
        }
    }
    for (int64_t begin = at; at < d->seq; at++) {
        ids[at] = 0;
        labels[at] = -1;
        weight[at] = 0;
        positions[at] = (int32_t)(at - begin);
        doc_begin[at] = (int32_t)begin;
    }
}
