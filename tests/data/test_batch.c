/* test_batch.c - rows side by side, padding rows, and the sorted order of ids. */
#include "data/batch.h"

#include "base/rng.h"
#include "tests/data/tiny_data.h"
#include "tests/test.h"

/* n rows of ids drawn below vocab. */
static Dataset *open_random(int n, int seq, int64_t vocab, bool shuffle) {
    Str s = {0};
    Err e;
    Dataset *d = NULL;
    for (int r = 0; r < n; r++) {
        int len = 2 + (int)(rng_u32(1, (uint64_t)r) % (uint32_t)(seq - 1));
        str_add(&s, "{\"ids\": [");
        for (int i = 0; i < len; i++)
            str_addf(&s, "%s%lld", i ? "," : "",
                     (long long)(rng_fold((uint64_t)r, (uint64_t)i) % (uint64_t)vocab));
        str_add(&s, "]}\n");
    }
    DataOptions o = {.eos_id = -1, .seq = seq, .vocab = vocab, .seed = 7, .shuffle = shuffle, .pack = PACK_OFF};
    EXPECT_OK(dataset_open(&d, tiny_file("batch.jsonl", s.data), &o, &e));
    str_free(&s);
    return d;
}

static void expect_sorted(const Batch *b) {
    int64_t n = b->rows * b->seq;
    bool ok = true;
    for (int64_t i = 1; i < n; i++) {
        int32_t a = b->id_order[i - 1], c = b->id_order[i];
        ok = ok && (b->ids[a] < b->ids[c] || (b->ids[a] == b->ids[c] && a < c)); /* so each place comes once */
    }
    EXPECT(ok && b->id_order[0] >= 0);
}

TEST(batch_holds_the_rows_of_the_epoch) {
    enum { ROWS = 3, SEQ = 9, N = 20 };
    Dataset *d = open_random(N, SEQ, 50, true);
    Arena a;
    Batch b;
    RowList l;
    arena_init(&a, "test");
    batch_init(&b, &a, ROWS, SEQ);
    EXPECT(a.used_bytes == batch_bytes(ROWS, SEQ));
    row_list_init(&l, &a, ROWS);
    EXPECT(a.used_bytes == batch_bytes(ROWS, SEQ) + row_list_bytes(ROWS));
    arena_seal(&a);
    int64_t requests = mem_stats().requests;
    for (int64_t first = 0; d && first < N; first += ROWS) {
        dataset_list_rows(d, &l, first % 2, first, MIN2(ROWS, N - first));
        batch_fill(&b, d, &l, 0);
        int64_t tokens = 0, scored = 0;
        for (int r = 0; r < ROWS && first + r < N; r++) {
            int32_t ids[SEQ], labels[SEQ], positions[SEQ], begin[SEQ];
            float weight[SEQ];
            int64_t row = dataset_row_at(d, first % 2, first + r), at = r * SEQ;
            dataset_row_fill(d, row, ids, labels, weight, positions, begin);
            EXPECT(!memcmp(b.ids + at, ids, sizeof ids) && !memcmp(b.labels + at, labels, sizeof labels));
            EXPECT(!memcmp(b.positions + at, positions, sizeof positions) &&
                   !memcmp(b.doc_begin + at, begin, sizeof begin));
            EXPECT(!memcmp(b.weight + at, weight, sizeof weight));
            tokens += dataset_row_tokens(d, row);
            scored += dataset_row_scored(d, row);
        }
        EXPECT(b.tokens == tokens && b.scored == scored);
        expect_sorted(&b);
    }
    EXPECT(mem_stats().requests == requests); /* nothing is allocated once it runs */
    arena_free(&a);
    dataset_close(d);
}

TEST(batch_completes_with_rows_of_no_weight) {
    enum { ROWS = 4, SEQ = 6 };
    Dataset *d = open_random(5, SEQ, 50, false);
    Arena a;
    Batch b;
    arena_init(&a, "test");
    batch_init(&b, &a, ROWS, SEQ);
    RowList l;
    row_list_init(&l, &a, 9);
    static const struct {
        int64_t n, first, rows;
    } cases[] = {{4, 0, 4}, {2, 0, 2}, {5, 4, 1}, {5, 5, 0}, {0, 0, 0}, {5, 0, 4}};
    for (int c = 0; d && c < COUNT_OF(cases); c++) {
        for (int i = 0; i < ROWS * SEQ; i++) b.ids[i] = b.labels[i] = b.positions[i] = b.doc_begin[i] = 77;
        dataset_list_rows(d, &l, 0, 0, cases[c].n);
        batch_fill(&b, d, &l, cases[c].first);
        int64_t tokens = 0;
        for (int64_t r = 0; r < cases[c].rows; r++) tokens += dataset_row_tokens(d, cases[c].first + r);
        EXPECT(b.tokens == tokens);
        for (int64_t i = cases[c].rows * SEQ; i < ROWS * SEQ; i++)
            EXPECT(b.ids[i] == 0 && b.labels[i] == -1 && b.weight[i] == 0 && b.positions[i] == 0 &&
                   b.doc_begin[i] == i % SEQ);
        expect_sorted(&b);
    }
    arena_free(&a);
    dataset_close(d);
}

TEST(batch_sorts_ids_of_any_size) {
    static const int64_t vocabs[] = {1, 2, 2048, 2049, 151936, (int64_t)1 << 24, INT32_MAX};
    for (int v = 0; v < COUNT_OF(vocabs); v++) {
        Dataset *d = open_random(8, 40, vocabs[v], false);
        Arena a;
        Batch b;
        RowList l;
        arena_init(&a, "test");
        batch_init(&b, &a, 8, 40);
        row_list_init(&l, &a, 8);
        if (d) dataset_list_rows(d, &l, 0, 0, 8);
        if (d) batch_fill(&b, d, &l, 0);
        if (d) expect_sorted(&b);
        arena_free(&a);
        dataset_close(d);
    }
}
