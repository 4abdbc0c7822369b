/* dataset_pack.c - which documents share a row.
 *
 * Fitted: in the shuffled order (the file's when it is not shuffled) each document goes into the first row of a
 * window of open rows that has room for it. When none has and the window is full, the fullest row is closed. Rows
 * are the same in every epoch; only their order changes. */
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "data/dataset_int.h"

enum { WINDOW = 256, PACK_KEY = 0x7061636b };

typedef struct OpenRow {
    int64_t row, room;
} OpenRow;

typedef struct Window {
    OpenRow open[WINDOW]; /* oldest first */
    int n;
    int64_t rows; /* begun so far */
} Window;

static void close_row(Window *w, int i) {
    memmove(w->open + i, w->open + i + 1, sizeof *w->open * (size_t)(w->n - i - 1));
    w->n--;
}

static int fullest(const Window *w) {
    int best = 0;
    for (int i = 1; i < w->n; i++)
        if (w->open[i].room < w->open[best].room) best = i;
    return best;
}

static int64_t place(Window *w, int64_t tokens, int64_t seq) {
    int i = 0;
    while (i < w->n && w->open[i].room < tokens) i++;
    if (i == w->n) {
        if (w->n == WINDOW) close_row(w, fullest(w));
        i = w->n++;
        w->open[i] = (OpenRow){.row = w->rows++, .room = seq};
    }
    int64_t row = w->open[i].row;
    w->open[i].room -= tokens;
    if (!w->open[i].room) close_row(w, i);
    return row;
}

/* Turns "the i-th document placed goes to row_of[i]" into the lists of the rows, each in the order of placing. */
static void list_rows(DataPart *p, const int64_t *placed, const int64_t *row_of) {
    p->row_first = MEM_NEW(int64_t, p->n_rows + 1);
    p->row_doc = MEM_NEW(int64_t, p->n_docs);
    for (int64_t i = 0; i < p->n_docs; i++) p->row_first[row_of[i] + 1]++;
    for (int64_t r = 0; r < p->n_rows; r++) p->row_first[r + 1] += p->row_first[r];
    for (int64_t i = 0; i < p->n_docs; i++) p->row_doc[p->row_first[row_of[i]]++] = placed[i];
    for (int64_t r = p->n_rows; r > 0; r--) p->row_first[r] = p->row_first[r - 1]; /* each had moved to its end */
    p->row_first[0] = 0;
}

static void fit_documents(const Dataset *d, DataPart *p) {
    int64_t *placed = MEM_NEW(int64_t, p->n_docs), *row_of = MEM_NEW(int64_t, p->n_docs);
    Window *w = MEM_NEW(Window, 1);
    for (int64_t i = 0; i < p->n_docs; i++) {
        placed[i] = p->first_doc + (d->shuffle ? rng_permuted(rng_fold(d->seed, PACK_KEY), p->n_docs, i) : i);
        row_of[i] = place(w, dataset_doc_tokens(d, placed[i]), d->seq);
    }
    p->n_rows = w->rows;
    list_rows(p, placed, row_of);
    mem_free(w);
    mem_free(placed);
    mem_free(row_of);
}

void dataset_place(Dataset *d) {
    d->n_rows = 0;
    for (int i = 0; i < d->n_parts; i++) {
        DataPart *p = &d->part[i];
        mem_free(p->row_first);
        mem_free(p->row_doc);
        p->row_first = p->row_doc = NULL;
        p->n_rows = p->mode == ROWS_STREAM ? (p->n_tokens + d->seq - 1) / d->seq : p->n_docs;
        if (p->mode == ROWS_FITTED) fit_documents(d, p);
        p->first_row = d->n_rows;
        d->n_rows += p->n_rows;
    }
    dataset_share_out(d);
}
