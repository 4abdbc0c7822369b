/* feed.c - prefetch of micro-batches: which worker fills which one when.
 *
 * Micro-batches are numbered; number n stands in slot n % slots. A worker claims the next number under the lock,
 * where the rows of an update are also laid out, once for all its micro-batches, and fills the slot outside the
 * lock. The reader takes the numbers in order and frees a slot when it asks for the next. */
#include "data/feed.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "base/fault.h"

typedef struct Slot {
    FeedItem item;
    RowList rows;      /* of its micro-batch */
    int64_t filled;    /* number of the micro-batch it holds; -1: none, or being filled */
} Slot;

struct Feed {
    Dataset *d; /* keeps */
    FeedPlan plan;
    Slot *slot;
    int n_slots;
    int64_t claimed, taken;       /* micro-batches claimed by a filler, given to the reader */
    int64_t epoch, row, micro;    /* of the next claim */
    int64_t updates;              /* that are still to be begun */
    RowList update;               /* the rows of the update it belongs to */
    int64_t micros, update_scored;
    bool running, leave;
    pthread_t id[FEED_WORKERS];
    int n_ids;
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

static int slots_of(const FeedPlan *p) { return p->workers + 1; } /* one a worker, and the one being read */

/* All samples of an update may stand in one micro-batch. */
int64_t feed_bytes(const FeedPlan *p) {
    int64_t slot = batch_bytes(p->rows, p->seq) + row_list_bytes(p->global_batch) + (int64_t)sizeof(Slot);
    return slots_of(p) * slot + row_list_bytes(p->global_batch) + (int64_t)sizeof(Feed);
}

void feed_open(Feed **out, Arena *a, Dataset *d, const FeedPlan *p) {
    CHECK(p->workers >= 0 && p->workers <= FEED_WORKERS && p->accum > 0 && p->global_batch > 0);
    Feed *f = ARENA_NEW(a, Feed, 1);
    *f = (Feed){.d = d, .plan = *p, .n_slots = slots_of(p)};
    f->slot = ARENA_NEW(a, Slot, f->n_slots);
    row_list_init(&f->update, a, p->global_batch);
    for (int i = 0; i < f->n_slots; i++) {
        batch_init(&f->slot[i].item.batch, a, p->rows, p->seq);
        row_list_init(&f->slot[i].rows, a, p->global_batch);
    }
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->changed, NULL);
    *out = f;
}

void feed_close(Feed *f) {
    if (!f) return;
    feed_stop(f);
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->lock);
}

/* ---- filling ---- */

static void begin_update(Feed *f) {
    CHECK(f->updates > 0);
    f->updates--;
    dataset_list_rows(f->d, &f->update, f->epoch, f->row, MIN2(f->plan.global_batch, dataset_rows(f->d) - f->row));
    f->micros = (f->update.n_rows + f->plan.rows - 1) / f->plan.rows;
    CHECK(f->micros <= f->plan.accum); /* the plan was made from the same lengths */
    f->update_scored = 0;
    for (int64_t i = 0; i < f->update.n; i++) f->update_scored += dataset_row_scored(f->d, f->update.member[i]);
}

static void end_update(Feed *f) {
    f->micro = 0;
    f->row += f->plan.global_batch;
    if (f->row < dataset_rows(f->d)) return;
    f->epoch++;
    f->row = 0;
}

/* The rows of the update that belong to the next micro-batch. */
static void take_rows(const Feed *f, RowList *l) {
    int64_t first = f->micro * f->plan.rows, from = f->update.first[first];
    l->n_rows = MIN2(f->plan.rows, f->update.n_rows - first);
    for (int64_t r = 0; r <= l->n_rows; r++) l->first[r] = f->update.first[first + r] - from;
    l->n = l->first[l->n_rows];
    memcpy(l->member, f->update.member + from, sizeof *l->member * (size_t)l->n);
}

/* Under the lock: the next number is this caller's to fill. */
static Slot *claim(Feed *f, int64_t *number) {
    *number = f->claimed++;
    Slot *s = &f->slot[*number % f->n_slots];
    if (!f->micro) begin_update(f);
    s->filled = -1;
    take_rows(f, &s->rows);
    s->item.epoch = f->epoch;
    s->item.row = f->row;
    s->item.micro = f->micro;
    s->item.micros = f->micros;
    s->item.update_scored = f->update_scored;
    if (++f->micro == f->micros) end_update(f);
    return s;
}

static void fill(const Feed *f, Slot *s) { batch_fill(&s->item.batch, f->d, &s->rows, 0); }

static void *work(void *arg) {
    Feed *f = arg;
    pthread_mutex_lock(&f->lock);
    for (;;) {
        while (!f->leave && (f->claimed >= f->taken + f->n_slots - 1 || (!f->micro && !f->updates)))
            pthread_cond_wait(&f->changed, &f->lock);
        if (f->leave) break;
        int64_t number;
        Slot *s = claim(f, &number);
        pthread_mutex_unlock(&f->lock);
        fill(f, s);
        pthread_mutex_lock(&f->lock);
        s->filled = number;
        pthread_cond_broadcast(&f->changed);
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

/* ---- the reader ---- */

bool feed_start(Feed *f, int64_t epoch, int64_t row, int64_t updates, Err *e) {
    CHECK(!f->running && epoch >= 0 && row >= 0 && row < dataset_rows(f->d));
    f->epoch = epoch, f->row = row, f->micro = 0, f->updates = updates;
    f->claimed = f->taken = 0;
    f->running = true, f->leave = false;
    for (int i = 0; i < f->n_slots; i++) f->slot[i].filled = -1;
    sigset_t all, before; /* signals belong to the thread that runs the loop */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_t small; /* bounded, so that it can be planned */
    pthread_attr_init(&small);
    int status = pthread_attr_setstacksize(&small, FEED_STACK_BYTES);
    for (f->n_ids = 0; f->n_ids < f->plan.workers && !status; f->n_ids += !status)
        status = fault_here(FAULT_THREAD, "data worker") ? EAGAIN : pthread_create(&f->id[f->n_ids], &small, work, f);
    pthread_attr_destroy(&small);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!status) return true;
    feed_stop(f);
    return fail(e, ERR_FAIL, "--data-workers %d: the system gives no more threads: %s", f->plan.workers,
                strerror(status));
}

const FeedItem *feed_next(Feed *f) {
    CHECK(f->running);
    int64_t number;
    if (!f->plan.workers) {
        Slot *s = claim(f, &number);
        fill(f, s);
        return &s->item;
    }
    pthread_mutex_lock(&f->lock);
    number = f->taken++;
    Slot *s = &f->slot[number % f->n_slots];
    pthread_cond_broadcast(&f->changed); /* the slot before this one is free */
    while (s->filled != number) pthread_cond_wait(&f->changed, &f->lock);
    pthread_mutex_unlock(&f->lock);
    return &s->item;
}

void feed_stop(Feed *f) {
    if (!f->running) return;
    pthread_mutex_lock(&f->lock);
    f->leave = true;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    for (int i = 0; i < f->n_ids; i++) pthread_join(f->id[i], NULL);
    f->n_ids = 0;
    f->running = false;
}
