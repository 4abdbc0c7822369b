/* dataset_pack.c - which documents share a row.
 *
 * Packed: in the shuffled order (the file's when it is not shuffled) each document goes into the first row of a
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

/* Turns "document kept[i] goes to row_of[i]" into the lists of the rows, each in the order of placing. */
static void list_rows(Dataset *d, const int64_t *kept, const int64_t *row_of) {
    d->row_first = MEM_NEW(int64_t, d->n_rows + 1);
    d->row_doc = MEM_NEW(int64_t, d->n_placed);
    for (int64_t i = 0; i < d->n_placed; i++) d->row_first[row_of[i] + 1]++;
    for (int64_t r = 0; r < d->n_rows; r++) d->row_first[r + 1] += d->row_first[r];
    for (int64_t i = 0; i < d->n_placed; i++) d->row_doc[d->row_first[row_of[i]]++] = kept[i];
    for (int64_t r = d->n_rows; r > 0; r--) d->row_first[r] = d->row_first[r - 1]; /* each had moved to its end */
    d->row_first[0] = 0;
}

/* The documents that were not dropped, in the order they are placed. */
static int64_t *order_documents(Dataset *d) {
    int64_t n = 0, *kept = MEM_NEW(int64_t, d->n_docs);
    for (int64_t i = 0; i < d->n_docs; i++)
        if (d->doc[i].tokens) kept[n++] = i;
    d->n_placed = n;
    if (!d->pack || !d->shuffle) return kept;
    int64_t *order = MEM_NEW(int64_t, n);
    rng_permute(rng_fold(d->seed, PACK_KEY), order, n);
    for (int64_t i = 0; i < n; i++) order[i] = kept[order[i]];
    mem_free(kept);
    return order;
}

void dataset_place(Dataset *d) {
    mem_free(d->row_first);
    mem_free(d->row_doc);
    mem_free(d->order);
    int64_t *kept = order_documents(d), *row_of = MEM_NEW(int64_t, d->n_placed);
    Window *w = MEM_NEW(Window, 1);
    for (int64_t i = 0; i < d->n_placed; i++)
        row_of[i] = d->pack ? place(w, d->doc[kept[i]].tokens, d->seq) : w->rows++;
    d->n_rows = w->rows;
    list_rows(d, kept, row_of);
    d->order = d->shuffle ? MEM_NEW(int64_t, d->n_rows) : NULL;
    d->order_epoch = -1;
    mem_free(w);
    mem_free(kept);
    mem_free(row_of);
}
