/* dataset_split.c - what is held out: the end of every part; of a corpus on disk, whose end may be of another kind
 * than its beginning, rows drawn by key. Tokens are shared with the set they are taken from. */
#include <math.h>

#include "base/mem.h"
#include "data/dataset_int.h"

/* A text split between two of its pieces counts as a sample on both sides. */
static void share_sample(Dataset *d, const DataPart *p, const DataPart *held) {
    Doc *first = dataset_doc(d, held->first_doc);
    if (first->full) return;
    int64_t rest = dataset_doc_tokens(d, held->first_doc), owner = held->first_doc - 1,
            end = held->first_doc + held->n_docs;
    for (int64_t i = held->first_doc + 1; i < end && !dataset_doc(d, i)->full; i++) rest += dataset_doc_tokens(d, i);
    while (owner > p->first_doc && !dataset_doc(d, owner)->full) owner--;
    dataset_doc(d, owner)->full -= (int32_t)rest;
    first->full = (int32_t)rest;
}

/* The part from document `doc` and token `cut` on. */
static void cut_at(Dataset *d, DataPart *p, DataPart *h, int64_t doc, int64_t cut) {
    int64_t end = p->first_token + p->n_tokens;
    h->first_doc = doc;
    h->n_docs = p->first_doc + p->n_docs - doc;
    h->first_token = cut;
    h->n_tokens = end - cut;
    p->n_docs = doc - p->first_doc + (dataset_doc(d, doc)->begin < cut); /* one that is cut counts on both sides */
    p->n_tokens = cut - p->first_token;
}

/* Between two documents, where a border is near enough; else inside one. */
static void split_stream(Dataset *d, DataPart *p, DataPart *h, int64_t keep) {
    int64_t cut = p->first_token + keep * d->seq, doc = dataset_doc_at(d, p, cut), end = p->first_token + p->n_tokens;
    int64_t before = dataset_doc(d, doc)->begin, after = dataset_doc(d, doc + 1)->begin, asked = end - cut;
    bool takes_before = before > p->first_token && end - before <= 2 * asked;
    bool takes_after = 2 * (end - after) >= asked && (!takes_before || after - cut < cut - before);
    cut_at(d, p, h, doc + takes_after, takes_after ? after : takes_before ? before : cut);
}

/* Rows keyed_first .. of one permutation of all: the first of them are held out. */
static bool split_corpus(DataPart *p, DataPart *h, double fraction) {
    int64_t all = p->n_rows, held = MAX2(all - (int64_t)floor((double)all * (1 - fraction) + 1e-9), 1);
    if (all < 2) return false;
    held = MIN2(held, all - 1);
    p->keyed_rows = h->keyed_rows = all;
    h->keyed_first = 0;
    h->n_rows = held;
    p->keyed_first = held;
    p->n_rows = all - held;
    return true;
}

/* Nothing is held out of a part that has one document, or one row, alone. */
static bool split_part(Dataset *d, DataPart *p, DataPart *h, double fraction) {
    if (p->corpus) return split_corpus(p, h, fraction);
    bool stream = p->mode == ROWS_STREAM && p->n_rows > 1;
    int64_t all = stream ? p->n_rows : p->n_docs, keep = (int64_t)floor((double)all * (1 - fraction) + 1e-9);
    h->n_docs = h->n_tokens = 0;
    if (all < 2) return false;
    keep = MIN2(MAX2(keep, 1), all - 1);
    if (stream) {
        split_stream(d, p, h, keep);
    } else {
        cut_at(d, p, h, p->first_doc + keep, dataset_doc(d, p->first_doc + keep)->begin);
        share_sample(d, p, h);
    }
    return true;
}

static Dataset *new_view(const Dataset *d) {
    Dataset *h = MEM_NEW(Dataset, 1);
    *h = *d; /* its rows are of the same sort */
    h->name = mem_strdup(d->name);
    h->shuffle = h->owns_store = false;
    h->reading_bytes = 0;
    h->report = (DataReport){.kind = d->report.kind};
    h->part = MEM_NEW(DataPart, d->n_parts);
    for (int i = 0; i < d->n_parts; i++) {
        DataPart *p = &h->part[i];
        *p = d->part[i];
        p->path = mem_strdup(p->path);
        p->kind_text = mem_strdup(p->kind_text);
        p->row_first = p->row_doc = NULL;
        p->weight = 0; /* what is held out is evaluated once, all of it */
        p->report = (DataReport){.kind = p->kind};
    }
    d->store->sets++;
    return h;
}

bool dataset_split(Dataset *d, Dataset **held_out, double fraction, Err *e) {
    *held_out = NULL;
    if (!(fraction > 0 && fraction < 1))
        return fail(e, ERR_USAGE, "a held-out share of %g: it must lie between 0 and 1", fraction);
    Dataset *h = new_view(d);
    bool any = false;
    for (int i = 0; i < d->n_parts; i++) any |= split_part(d, &d->part[i], &h->part[i], fraction);
    if (!any) {
        dataset_close(h);
        return fail(e, ERR_FAIL,
                    "%s: holds one document, none can be held out of it. Give a file of its own to evaluate on",
                    d->name);
    }
    dataset_place(d);
    dataset_count(d);
    dataset_place(h);
    dataset_count(h);
    *held_out = h;
    return true;
}
