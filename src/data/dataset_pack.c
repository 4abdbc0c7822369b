/* dataset_pack.c - sequence packing: which documents share a row.
 *
 * By update: the samples of one update among themselves, the longest first, each into the first row that has room
 * for it (first fit decreasing: never more than 11/9 of the fewest rows, and one). Which samples an update has
 * does not change, nor what each of them sees: so the loss and its gradients are those of a row each, summed in
 * another order.
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
        if (!p->keyed_rows) p->n_rows = p->mode == ROWS_STREAM ? (p->n_tokens + d->seq - 1) / d->seq : p->n_docs;
        if (p->mode == ROWS_FITTED) fit_documents(d, p);
        p->first_row = d->n_rows;
        d->n_rows += p->n_rows;
    }
    dataset_share_out(d);
}

/* ---- by update ---- */

int64_t row_list_bytes(int64_t most) {
    return (2 * most + most + 1) * (int64_t)sizeof(int64_t) + most * (int64_t)sizeof(uint64_t);
}

void row_list_init(RowList *l, Arena *a, int64_t most) {
    *l = (RowList){.most = most};
    l->first = ARENA_NEW(a, int64_t, most + 1);
    l->member = ARENA_NEW(a, int64_t, most);
    l->key = ARENA_NEW(a, uint64_t, most);
    l->room = ARENA_NEW(a, int64_t, most);
}

static void sift(uint64_t *key, int64_t at, int64_t n) {
    uint64_t moved = key[at];
    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        child += child + 1 < n && key[child + 1] < key[child];
        if (moved <= key[child]) break;
        key[at] = key[child];
    }
    key[at] = moved;
}

/* Falling, in place: a heap, so that nothing is allocated and no order is worse than another. */
static void sort_falling(uint64_t *key, int64_t n) {
    for (int64_t i = n / 2 - 1; i >= 0; i--) sift(key, i, n);
    for (int64_t end = n - 1; end > 0; end--) {
        uint64_t least = key[0];
        key[0] = key[end];
        key[end] = least;
        sift(key, 0, end);
    }
}

/* A key has the tokens of a sample above its place, counted backwards: of two alike the earlier one goes first. */
enum { PLACE_BITS = 32 };
#define PLACE_MASK (((uint64_t)1 << PLACE_BITS) - 1)

/* Turns keys into key[i] = row of the i-th sample placed; gives the number of rows. */
static int64_t fit_samples(RowList *l, int64_t n, int64_t seq) {
    int64_t rows = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t tokens = (int64_t)(l->key[i] >> PLACE_BITS), r = 0;
        while (r < rows && l->room[r] < tokens) r++;
        if (r == rows) l->room[rows++] = seq;
        l->room[r] -= tokens;
        l->key[i] = (uint64_t)r << PLACE_BITS | (PLACE_MASK - (l->key[i] & PLACE_MASK));
    }
    return rows;
}

void dataset_list_rows(const Dataset *d, RowList *l, int64_t epoch, int64_t index, int64_t n) {
    CHECK(n >= 0 && n <= l->most && n <= (int64_t)PLACE_MASK);
    l->n = l->n_rows = n;
    for (int64_t i = 0; i <= n; i++) l->first[i] = i;
    if (!d->by_update) {
        for (int64_t i = 0; i < n; i++) l->member[i] = dataset_row_at(d, epoch, index + i);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t tokens = dataset_row_tokens(d, dataset_row_at(d, epoch, index + i));
        l->key[i] = (uint64_t)tokens << PLACE_BITS | (PLACE_MASK - (uint64_t)i);
    }
    sort_falling(l->key, n);
    l->n_rows = fit_samples(l, n, d->seq);
    for (int64_t r = 0; r <= l->n_rows; r++) l->first[r] = 0;
    for (int64_t i = 0; i < n; i++) l->first[(l->key[i] >> PLACE_BITS) + 1]++;
    for (int64_t r = 0; r < l->n_rows; r++) l->first[r + 1] += l->first[r];
    for (int64_t r = 0; r < l->n_rows; r++) l->room[r] = l->first[r];
    for (int64_t i = 0; i < n; i++)
        l->member[l->room[l->key[i] >> PLACE_BITS]++] =
            dataset_row_at(d, epoch, index + (int64_t)(l->key[i] & PLACE_MASK));
}

/* ---- the rows of a run ---- */

enum { MOST_SAMPLES = 1 << 24 }; /* looked at; what comes behind them is bounded, not counted */

static int64_t bound_rows(const Dataset *d, int64_t samples) {
    int64_t longest = MIN2(d->report.longest, d->seq);
    return MIN2(samples, 2 * samples * longest / d->seq + 1); /* all rows but one are more than half full */
}

void update_rows_count(UpdateRows *u, const Dataset *d, int64_t global_batch, int64_t updates) {
    int64_t per_epoch = (d->n_rows + global_batch - 1) / global_batch,
            looked = MIN2(updates, MAX2(1, MOST_SAMPLES / global_batch));
    if (!d->shuffle && !d->weighted) looked = MIN2(looked, per_epoch); /* every epoch is like the first */
    int64_t samples = MIN2(global_batch, d->n_rows), rows = 0, tokens = 0, *count = MEM_NEW(int64_t, samples + 1);
    Arena a;
    RowList l;
    *u = (UpdateRows){.samples = global_batch, .updates = looked};
    arena_init(&a, "rows of updates");
    row_list_init(&l, &a, samples);
    for (int64_t i = 0; i < looked; i++) {
        int64_t at = i % per_epoch * global_batch;
        dataset_list_rows(d, &l, i / per_epoch, at, MIN2(global_batch, d->n_rows - at));
        count[l.n_rows]++;
        u->most = MAX2(u->most, l.n_rows);
        rows += l.n_rows;
        for (int64_t k = 0; k < l.n; k++) tokens += dataset_row_tokens(d, l.member[k]);
    }
    bool all = looked >= updates || (!d->shuffle && !d->weighted);
    if (!all) u->most = MAX2(u->most, d->by_update ? bound_rows(d, samples) : samples);
    u->count = MEM_NEW(int64_t, u->most + 1);
    memcpy(u->count, count, sizeof *count * (size_t)(u->most + 1));
    u->mean_rows = (double)rows / (double)MAX2(looked, 1);
    u->mean_tokens = (double)tokens / (double)MAX2(looked, 1);
    u->fill = rows ? (double)tokens / ((double)rows * (double)d->seq) : 1;
    mem_free(count);
    arena_free(&a);
}

void update_rows_free(UpdateRows *u) {
    mem_free(u->count);
    *u = (UpdateRows){0};
}
