/* test_feed.c - however many threads fill, the micro-batches come in the order of the data, with the bytes that filling
 * them one by one gives. */
#include "data/feed.h"

#include "base/rng.h"
#include "tests/data/tiny_data.h"
#include "tests/test.h"

enum { SEQ = 12, VOCAB = 60 };

static Dataset *open_rows(int n, bool shuffle, PackMode pack) {
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
    DataOptions o = {.eos_id = -1, .seq = SEQ, .vocab = VOCAB, .seed = 5, .shuffle = shuffle, .pack = pack};
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

/* The micro-batches of some updates, one after the other, must be those of the lists of rows. */
static void expect_updates(Feed *f, const FeedPlan *p, const Dataset *d, Batch *want, RowList *l, int64_t epoch,
                           int64_t row, int updates) {
    int64_t rows = dataset_rows(d);
    for (int u = 0; u < updates; u++) {
        int64_t scored = 0;
        dataset_list_rows(d, l, epoch, row, MIN2(p->global_batch, rows - row));
        for (int64_t i = 0; i < l->n; i++) scored += dataset_row_scored(d, l->member[i]);
        int64_t micros = (l->n_rows + p->rows - 1) / p->rows;
        for (int64_t m = 0; m < micros; m++) {
            const FeedItem *item = feed_next(f);
            batch_fill(want, d, l, m * p->rows);
            bool ok = item->epoch == epoch && item->row == row && item->micro == m && item->micros == micros &&
                      item->update_scored == scored;
            if (!EXPECT(ok && same_batch(&item->batch, want)))
                test_note("    %d workers, epoch %d, row %d, micro %d", p->workers, (int)epoch, (int)row, (int)m);
        }
        row += p->global_batch;
        if (row >= rows) epoch++, row = 0;
    }
}

static void check_feed(const FeedPlan *p, PackMode pack) {
    Dataset *d = open_rows(23, true, pack);
    Arena a;
    Batch want;
    RowList l;
    Feed *f;
    Err e = {0};
    arena_init(&a, "test");
    feed_open(&f, &a, d, p);
    EXPECT(a.used_bytes <= feed_bytes(p) + 64 * 16 * (p->workers + 2)); /* each array is aligned */
    batch_init(&want, &a, p->rows, SEQ);
    row_list_init(&l, &a, p->global_batch);
    arena_seal(&a);
    EXPECT_OK(feed_start(f, 0, 0, 17, &e));
    int64_t requests = mem_stats().requests;
    expect_updates(f, p, d, &want, &l, 0, 0, 17); /* several epochs, the last update of each is short */
    EXPECT(mem_stats().requests == requests);
    feed_stop(f); /* in the middle, with some filled ahead; begin elsewhere */
    feed_stop(f);
    EXPECT_OK(feed_start(f, 2, p->global_batch, 100, &e));
    expect_updates(f, p, d, &want, &l, 2, p->global_batch, 3);
    feed_close(f); /* while it runs */
    arena_free(&a);
    dataset_close(d);
}

TEST(a_feed_gives_the_batches_in_order_whoever_fills_them) {
    static const FeedPlan plans[] = {{2, SEQ, 6, 3, 0}, {2, SEQ, 6, 3, 1}, {2, SEQ, 6, 3, 3},
                                     {3, SEQ, 4, 2, 2}, {1, SEQ, 1, 1, 1}, {6, SEQ, 6, 1, 2}};
    for (int k = 0; k < (int)(sizeof plans / sizeof *plans); k++) {
        check_feed(&plans[k], PACK_OFF);
        check_feed(&plans[k], PACK_UPDATE);
    }
}

TEST(a_feed_that_nobody_reads_stops) {
    Dataset *d = open_rows(9, false, PACK_UPDATE);
    FeedPlan p = {2, SEQ, 4, 2, 4};
    for (int i = 0; i < 20; i++) {
        Arena a;
        Feed *f;
        Err e = {0};
        arena_init(&a, "test");
        feed_open(&f, &a, d, &p);
        EXPECT_OK(feed_start(f, i, 0, 1 + i, &e));
        if (i % 2) feed_next(f);
        feed_close(f);
        arena_free(&a);
    }
    dataset_close(d);
}
