/* test_dataset_pack.c - which documents share a row, in which order rows come, and what is held out. */
#include "base/mem.h"
#include "base/rng.h"
#include "tests/data/tiny_data.h"
#include "tests/test.h"

/* ---- packing ---- */

/* Documents of known content: document k is k repeated, so that its tokens name it. */
static void write_documents(char *path, size_t size, uint64_t key, int n, int longest) {
    Str s = {0};
    for (int k = 0; k < n; k++) {
        int len = 2 + (int)(rng_u32(key, (uint64_t)k) % (uint32_t)(longest - 1));
        str_add(&s, "{\"ids\": [");
        for (int i = 0; i < len; i++) str_addf(&s, "%s%d", i ? "," : "", i + 1 == len ? 9999 : k);
        str_add(&s, "]}\n");
    }
    snprintf(path, size, "%s", tiny_file("docs.jsonl", s.data));
    str_free(&s);
}

/* Every document stands in exactly one row, whole and in order; returns the tokens seen. */
static int64_t check_packed(const Dataset *d, int64_t seq, int n_docs, bool pieces) {
    int32_t *ids = MEM_NEW(int32_t, seq * 4), *labels = ids + seq, *positions = ids + 2 * seq,
            *begin = ids + 3 * seq;
    int *seen = MEM_NEW(int, n_docs);
    float *weight = MEM_NEW(float, seq);
    int64_t tokens = 0;
    for (int64_t r = 0; r < dataset_rows(d); r++) {
        dataset_row_fill(d, r, ids, labels, weight, positions, begin);
        int64_t n = dataset_row_tokens(d, r);
        EXPECT(n > 0 && n <= seq);
        tokens += n;
        for (int64_t t = 0; t < n; t++) {
            bool last = t + 1 == n || begin[t + 1] != begin[t];
            EXPECT(labels[t] == (last ? -1 : ids[t + 1]) && positions[t] == t - begin[t]);
            if (!pieces) EXPECT(last == (ids[t] == 9999) && (last || ids[t] == ids[begin[t]]));
            if (ids[t] != 9999) seen[ids[t]] += !pieces ? begin[t] == t : 1;
        }
    }
    for (int k = 0; k < n_docs; k++) EXPECT(pieces ? seen[k] >= 1 : seen[k] == 1);
    mem_free(ids);
    mem_free(seen);
    mem_free(weight);
    return tokens;
}

TEST(dataset_packs_whole_documents) {
    for (uint64_t seed = 1; seed <= 12; seed++) {
        char path[200];
        int n = 40 + (int)(seed * 97 % 700), seq = 16 + (int)(seed * 31 % 100);
        write_documents(path, sizeof path, seed, n, seq);
        DataOptions o = tiny_options(NULL, seq);
        o.vocab = 10000;
        o.pack = PACK_ON;
        o.seed = seed;
        o.shuffle = seed % 3 != 0;
        Err e;
        Dataset *d = NULL, *again = NULL;
        EXPECT_OK(dataset_open(&d, path, &o, &e) && dataset_open(&again, path, &o, &e));
        if (d && again) {
            const DataReport *r = dataset_report(d);
            EXPECT(check_packed(d, seq, n, false) == r->tokens && r->samples == n);
            EXPECT(r->scored_tokens == r->tokens - n);
            EXPECT(r->fill > 0.9 && r->rows == dataset_rows(d));
            EXPECT(dataset_fingerprint(d) == dataset_fingerprint(again));
        }
        dataset_close(again);
        again = NULL;
        o.seed = seed + 100;
        EXPECT_OK(dataset_open(&again, path, &o, &e));
        if (d && again) EXPECT((dataset_fingerprint(d) != dataset_fingerprint(again)) == o.shuffle);
        dataset_close(d);
        dataset_close(again);
    }
}

TEST(dataset_packs_long_texts_in_pieces) {
    char path[200];
    write_documents(path, sizeof path, 5, 60, 100);
    DataOptions o = tiny_options(NULL, 16);
    o.vocab = 10000;
    o.pack = PACK_ON;
    Err e;
    Dataset *whole = NULL, *d = NULL;
    EXPECT_OK(dataset_open(&d, path, &o, &e));
    o.seq = 128;
    EXPECT_OK(dataset_open(&whole, path, &o, &e));
    if (d && whole) {
        EXPECT(check_packed(d, 16, 60, true) == dataset_report(whole)->tokens);
        EXPECT(dataset_report(d)->samples == 60 && dataset_report(d)->truncated == 0);
        EXPECT(dataset_report(d)->longest == dataset_report(whole)->longest);
    }
    dataset_close(d);
    dataset_close(whole);
}

/* ---- order and split ---- */

TEST(dataset_order_is_a_permutation_by_seed_and_epoch) {
    char path[200];
    enum { N = 300 };
    write_documents(path, sizeof path, 3, N, 8);
    DataOptions o = tiny_options(NULL, 8);
    o.vocab = 10000;
    o.seed = 42;
    o.shuffle = true;
    Err e;
    Dataset *d = NULL, *other = NULL;
    EXPECT_OK(dataset_open(&d, path, &o, &e) && dataset_open(&other, path, &o, &e));
    if (!d || !other) return;
    int64_t first[2][N], same = 0, fixed = 0;
    for (int epoch = 0; epoch < 2; epoch++) {
        bool seen[N] = {false};
        for (int i = 0; i < N; i++) {
            first[epoch][i] = dataset_row_at(d, epoch, i);
            EXPECT(!seen[first[epoch][i]]);
            seen[first[epoch][i]] = true;
        }
    }
    for (int i = 0; i < N; i++) {
        same += first[0][i] == first[1][i];
        fixed += first[0][i] == i;
        EXPECT(dataset_row_at(other, i % 2, i) == first[i % 2][i]); /* whatever was asked before */
    }
    EXPECT(same < 10 && fixed < 10);
    dataset_close(other);
    o.seed = 43;
    other = NULL;
    EXPECT_OK(dataset_open(&other, path, &o, &e));
    same = 0;
    for (int i = 0; other && i < N; i++) same += dataset_row_at(other, 0, i) == first[0][i];
    EXPECT(same < 10);
    dataset_close(other);
    o.shuffle = false;
    other = NULL;
    EXPECT_OK(dataset_open(&other, path, &o, &e));
    for (int i = 0; other && i < N; i++) EXPECT(dataset_row_at(other, 5, i) == i);
    dataset_close(other);
    dataset_close(d);
}

TEST(dataset_split_holds_out_the_tail) {
    char path[200];
    enum { N = 1842 };
    write_documents(path, sizeof path, 3, N, 8);
    DataOptions o = tiny_options(NULL, 8);
    o.vocab = 10000;
    o.shuffle = true;
    Err e;
    Dataset *d = NULL, *held = NULL;
    EXPECT_OK(dataset_open(&d, path, &o, &e));
    int64_t bytes = d ? dataset_bytes(d) : 0, tokens = d ? dataset_report(d)->tokens : 0;
    EXPECT_OK(dataset_split(d, &held, 0.05, &e));
    if (d && held) {
        EXPECT(dataset_rows(d) == 1749 && dataset_rows(held) == 93); /* floor(1842 x 0.95), the guides' count */
        EXPECT(dataset_report(d)->tokens + dataset_report(held)->tokens == tokens);
        EXPECT(dataset_bytes(d) < bytes);
        int32_t ids[8], labels[8], positions[8], begin[8];
        float weight[8];
        for (int i = 0; i < 93; i++) {
            dataset_row_fill(held, i, ids, labels, weight, positions, begin);
            EXPECT(ids[0] == 1749 + i && dataset_row_at(held, 3, i) == i);
        }
        for (int i = 0; i < 1749; i++) {
            dataset_row_fill(d, i, ids, labels, weight, positions, begin);
            EXPECT(ids[0] == i);
        }
    }
    dataset_close(held);
    dataset_close(d);
}

TEST(dataset_split_leaves_something_on_either_side) {
    Tokenizer *t = tiny_tokenizer(false);
    DataOptions o = tiny_options(t, 4);
    Err e;
    Dataset *d = NULL, *held = NULL;
    EXPECT_OK(dataset_open(&d, tiny_file("a.jsonl", "{\"text\": \"ab\"}\n{\"text\": \"\"}\n{\"text\": \"cd\"}\n"),
                           &o, &e));
    EXPECT_OK(dataset_split(d, &held, 0.99, &e));
    EXPECT(d && held && dataset_report(d)->samples == 1 && dataset_report(held)->samples == 1);
    EXPECT(d && dataset_report(d)->dropped + dataset_report(held)->dropped == 1);
    dataset_close(held);
    EXPECT(!dataset_split(d, &held, 0.5, &e) && strstr(e.text, "a.jsonl: holds one document"));
    EXPECT(!dataset_split(d, &held, 1.5, &e) && e.code == ERR_USAGE);
    dataset_close(d);
    d = NULL;
    /* one long text: 12 letters and the end are four pieces, of which the last is held out */
    EXPECT_OK(dataset_open(&d, tiny_file("a.txt", "abcdefghijkl"), &o, &e));
    EXPECT_OK(dataset_split(d, &held, 0.25, &e));
    EXPECT(d && held && dataset_report(d)->samples == 1 && dataset_report(d)->longest == 12);
    EXPECT(held && dataset_report(held)->samples == 1 && dataset_report(held)->longest == 1);
    dataset_close(held);
    dataset_close(d);
    tokenizer_close(t);
}
