/* test_feed.c - however many threads fill, the micro-batches come in the order of the data, with the bytes that filling
 * them one by one gives. */
#include "data/feed.h"

#include "base/rng.h"
#include "tests/data/tiny_data.h"
#include "tests/test.h"

enum { SEQ = 12, VOCAB = 60 };

static Dataset *open_rows(int n, bool shuffle) {
    Str s = {0};
    Err e;
    Dataset *d = NULL;
    for (int r = 0; r < n; r++) {
        int len = 2 + (int)(rng_u32(3, (uint64_t)r) % (SEQ - 1));
        str_add(&s, "{\"ids\": [");
        for (int i = 0; i < len; i++)
            str_addf(&s, "%s%d", i ? "," : "", (int)(rng_fold((uint64_t)r, (uint64_t)i) % VOCAB));
        str_add(&s, "]}\n");
    }
    DataOptions o = {.eos_id = -1, .seq = SEQ, .vocab = VOCAB, .seed = 5, .shuffle = shuffle};
    EXPECT_OK(dataset_open(&d, tiny_file("feed.jsonl", s.data), &o, &e));
    str_free(&s);
    return d;
}

static bool same_batch(const Batch *a, const Batch *b) {
    size_t n = (size_t)(a->rows * a->seq) * 4;
    return a->tokens == b->tokens && a->scored == b->scored && !memcmp(a->ids, b->ids, n) &&
           !memcmp(a->labels, b->labels, n) && !memcmp(a->weight, b->weight, n) &&
           !memcmp(a->positions, b->positions, n) && !memcmp(a->doc_begin, b->doc_begin, n) &&
           !memcmp(a->id_order, b->id_order, n);
}

/* A second data set, opened alike, says what must come: the first belongs to the feed. */
static void expect_updates(Feed *f, const FeedPlan *p, Dataset *own, Batch *want, int64_t epoch, int64_t row, int updates) {
    int64_t rows = dataset_rows(own);
    for (int u = 0; u < updates; u++) {
        int64_t real = MIN2(p->global_rows, rows - row), scored = 0;
        for (int64_t i = 0; i < real; i++) scored += dataset_row_scored(own, dataset_row_at(own, epoch, row + i));
        for (int64_t m = 0; m < p->accum; m++) {
            int64_t first = m * p->rows;
            const FeedItem *item = feed_next(f);
            batch_fill(want, own, epoch, row + first, MAX2(0, MIN2(real - first, p->rows)));
            bool ok = item->epoch == epoch && item->row == row && item->micro == m && item->update_scored == scored;
            if (!EXPECT(ok && same_batch(&item->batch, want)))
                test_note("    %d workers, epoch %d, row %d, micro %d", p->workers, (int)epoch, (int)row, (int)m);
        }
        row += p->global_rows;
        if (row >= rows) epoch++, row = 0;
    }
}

TEST(a_feed_gives_the_batches_in_order_whoever_fills_them) {
    static const FeedPlan plans[] = {
        {2, SEQ, 6, 3, 0}, {2, SEQ, 6, 3, 1}, {2, SEQ, 6, 3, 3}, {3, SEQ, 4, 2, 2}, {1, SEQ, 1, 1, 1}};
    for (int k = 0; k < (int)(sizeof plans / sizeof *plans); k++) {
        Dataset *d = open_rows(23, true), *own = open_rows(23, true);
        Arena a;
        Batch want;
        Feed *f;
        Err e = {0};
        arena_init(&a, "test");
        feed_open(&f, &a, d, &plans[k]);
        EXPECT(a.used_bytes <= feed_bytes(&plans[k]) + 64 * 16 * (plans[k].workers + 2)); /* each array is aligned */
        batch_init(&want, &a, plans[k].rows, SEQ);
        arena_seal(&a);
        EXPECT_OK(feed_start(f, 0, 0, &e));
        int64_t requests = mem_stats().requests;
        expect_updates(f, &plans[k], own, &want, 0, 0, 17); /* several epochs, the last update of each is short */
        EXPECT(mem_stats().requests == requests);
        feed_stop(f); /* in the middle, with some filled ahead; begin elsewhere */
        feed_stop(f);
        EXPECT_OK(feed_start(f, 2, plans[k].global_rows, &e));
        expect_updates(f, &plans[k], own, &want, 2, plans[k].global_rows, 3);
        feed_close(f); /* while it runs */
        arena_free(&a);
        dataset_close(d);
        dataset_close(own);
    }
}

TEST(a_feed_that_nobody_reads_stops) {
    Dataset *d = open_rows(9, false);
    FeedPlan p = {2, SEQ, 4, 2, 4};
    for (int i = 0; i < 20; i++) {
        Arena a;
        Feed *f;
        Err e = {0};
        arena_init(&a, "test");
        feed_open(&f, &a, d, &p);
        EXPECT_OK(feed_start(f, i, 0, &e));
        if (i % 2) feed_next(f);
        feed_close(f);
        arena_free(&a);
    }
    dataset_close(d);
}
