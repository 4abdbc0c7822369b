/* test_update.c - the samples of an update, packed among themselves: none is lost or cut, rows are filled, the
 * layout depends on nothing but the samples, and how many rows updates have is known beforehand. */
#include "base/mem.h"
#include "base/rng.h"
#include "data/batch.h"
#include "tests/data/tiny_data.h"
#include "tests/test.h"

/* n samples of drawn lengths; sample i begins with i. */
static Dataset *open_samples(int n, int longest, int64_t seq, bool shuffle, PackMode pack) {
    Str s = {0};
    Err e = {0};
    Dataset *d = NULL;
    for (int i = 0; i < n; i++) {
        int len = 2 + (int)(rng_u32(21, (uint64_t)i) % (uint32_t)(longest - 1));
        for (int list = 0; list < 2; list++) {
            str_add(&s, list ? ", \"labels\": [" : "{\"ids\": [");
            for (int k = 0; k < len; k++) str_addf(&s, "%s%d", k ? "," : "", k ? 2000 + k : i);
            str_add(&s, list ? "]}\n" : "]");
        }
    }
    DataOptions o = {.eos_id = -1, .seq = seq, .vocab = 10000, .seed = 9, .shuffle = shuffle, .pack = pack};
    EXPECT_OK(dataset_open(&d, tiny_file("samples.jsonl", s.data), &o, &e));
    str_free(&s);
    return d;
}

TEST(the_samples_of_an_update_share_rows) {
    enum { N = 200, SEQ = 64, GLOBAL = 24 };
    Dataset *d = open_samples(N, 50, SEQ, true, PACK_AUTO);
    EXPECT(d && dataset_packs_updates(d) && dataset_is_packed(d) && dataset_rows(d) == N);
    if (!d) return;
    Arena a;
    RowList l;
    Batch b;
    arena_init(&a, "test");
    row_list_init(&l, &a, GLOBAL);
    batch_init(&b, &a, GLOBAL, SEQ);
    int64_t rows = 0, tokens = 0;
    for (int64_t at = 0; at < N; at += GLOBAL) {
        int64_t n = MIN2(GLOBAL, N - at);
        bool in_update[N] = {false}, seen[N] = {false};
        for (int64_t i = 0; i < n; i++) in_update[dataset_row_at(d, 3, at + i)] = true;
        dataset_list_rows(d, &l, 3, at, n);
        EXPECT(l.n == n && l.first[0] == 0 && l.first[l.n_rows] == n);
        batch_fill(&b, d, &l, 0);
        for (int64_t r = 0; r < l.n_rows; r++) {
            int64_t used = 0;
            for (int64_t i = l.first[r]; i < l.first[r + 1]; i++) {
                int64_t sample = l.member[i], len = dataset_row_tokens(d, sample), begin = r * SEQ + used;
                EXPECT(in_update[sample] && !seen[sample]);
                seen[sample] = true;
                /* whole, at its place, and it sees only itself */
                EXPECT(b.ids[begin] == sample && b.doc_begin[begin] == used && b.positions[begin] == 0);
                EXPECT(b.doc_begin[begin + len - 1] == used && b.positions[begin + len - 1] == len - 1 &&
                       b.labels[begin + len - 1] == -1);
                used += len;
            }
            EXPECT(used > 0 && used <= SEQ);
        }
        rows += l.n_rows;
        tokens += b.tokens;
    }
    EXPECT(tokens == dataset_report(d)->tokens);
    EXPECT((double)tokens / (double)(rows * SEQ) > 0.85); /* a row each: 40 % */
    arena_free(&a);
    dataset_close(d);
}

TEST(first_fit_takes_the_longest_first) {
    Tokenizer *t = tiny_tokenizer(false);
    DataOptions o = tiny_options(t, 8);
    Err e = {0};
    Dataset *d = NULL;
    o.eos_id = -1;
    EXPECT_OK(dataset_open(
        &d,
        tiny_file("a.jsonl",
                  "{\"prompt\": \"a\", \"completion\": \"bc\"}\n{\"prompt\": \"d\", \"completion\": \"efgh\"}\n"
                  "{\"prompt\": \"i\", \"completion\": \"jk\"}\n{\"prompt\": \"l\", \"completion\": \"m\"}\n"),
        &o, &e));
    if (!d) return;
    Arena a;
    RowList l;
    arena_init(&a, "test");
    row_list_init(&l, &a, 4);
    dataset_list_rows(d, &l, 0, 0, 4);
    /* 5 and the first of the 3s; the other 3 and 2 */
    EXPECT(l.n_rows == 2 && l.first[1] == 2 && l.member[0] == 1 && l.member[1] == 0 && l.member[2] == 2 &&
           l.member[3] == 3);
    dataset_pack_updates(d, false);
    dataset_list_rows(d, &l, 0, 1, 3);
    EXPECT(l.n_rows == 3 && l.member[0] == 1 && l.member[2] == 3);
    arena_free(&a);
    dataset_close(d);
    tokenizer_close(t);
}

TEST(the_rows_of_a_run_are_known_before_it) {
    for (int shuffle = 0; shuffle < 2; shuffle++)
        for (int64_t global = 1; global <= 64; global = global * 3 + 1) {
            enum { N = 130, UPDATES = 40 };
            Dataset *d = open_samples(N, 40, 48, shuffle, PACK_UPDATE);
            if (!d) return;
            UpdateRows u;
            update_rows_count(&u, d, global, UPDATES);
            Arena a;
            RowList l;
            arena_init(&a, "test");
            row_list_init(&l, &a, global);
            int64_t most = 0, per_epoch = (N + global - 1) / global, seen = 0;
            for (int64_t i = 0; i < UPDATES; i++) {
                int64_t at = i % per_epoch * global;
                dataset_list_rows(d, &l, i / per_epoch, at, MIN2(global, N - at));
                most = MAX2(most, l.n_rows);
            }
            for (int64_t r = 0; r <= u.most; r++) seen += u.count[r];
            EXPECT(u.most == most && u.samples == global && seen == u.updates && u.updates <= UPDATES);
            EXPECT(u.mean_rows <= (double)most && u.fill > 0 && u.fill <= 1);
            update_rows_free(&u);
            arena_free(&a);
            dataset_close(d);
        }
}
