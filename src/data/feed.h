/* feed.h - prefetch: the micro-batches of a run, one after another, filled ahead by threads of its own, or by the
 * caller's thread.
 *
 * An update has as many micro-batches as its rows need: the samples of an update may be packed among themselves
 * (PACK_UPDATE), and the last update of an epoch is short.
 *
 * The order is that of the data whatever the number of workers. While a feed runs, its data set belongs to it: the
 * caller may look at it only before feed_start and after feed_stop. Filling allocates nothing. */
#ifndef DATA_FEED_H
#define DATA_FEED_H

#include "base/err.h"
#include "data/batch.h"

enum { FEED_WORKERS = 64, FEED_STACK_BYTES = 256 << 10 /* of a worker */ };

typedef struct FeedPlan {
    int64_t rows, seq;     /* of a micro-batch */
    int64_t global_batch;  /* rows of an update, or samples, as dataset_rows counts them */
    int64_t accum;         /* micro-batches of an update at most: more is a bug */
    int workers;           /* threads; 0: feed_next fills */
} FeedPlan;

typedef struct FeedItem {
    Batch batch;
    int64_t epoch, row;        /* where the update begins */
    int64_t micro, micros;     /* which of its micro-batches this is, of how many */
    int64_t update_scored;     /* scored tokens of the whole update */
} FeedItem;

typedef struct Feed Feed;

int64_t feed_bytes(const FeedPlan *p); /* what feed_open takes of the arena */
void feed_open(Feed **f, Arena *a, Dataset *d, const FeedPlan *p);
void feed_close(Feed *f); /* NULL is fine; stops */

/* From the update that begins there; so many updates are asked for, and no more are laid out or filled. */
bool feed_start(Feed *f, int64_t epoch, int64_t row, int64_t updates, Err *e);
const FeedItem *feed_next(Feed *f);                           /* stands until the next call */
void feed_stop(Feed *f);                                      /* what was filled ahead is forgotten */

#endif
