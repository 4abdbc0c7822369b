/* test_dataset_pack.c - which documents share a row, in which order rows come, and what is held out. */
#include "base/mem.h"
#include "base/rng.h"
#include "tests/data/tiny_data.h"
#include "tests/test.h"

/* ---- packing ---- */

/* Documents of known content: document k is k repeated, so that its tokens name it. With labels they are samples, which
 * are not cut; without, plain text. */
static void write_documents(char *path, size_t size, uint64_t key, int n, int longest, bool labels) {
    Str s = {0};
    for (int k = 0; k < n; k++) {
        int len = 2 + (int)(rng_u32(key, (uint64_t)k) % (uint32_t)(longest - 1));
        str_add(&s, "{\"ids\": [");
        for (int i = 0; i < len; i++) str_addf(&s, "%s%d", i ? "," : "", i + 1 == len ? 9999 : k);
        str_add(&s, labels ? "],\"labels\": [" : "]}\n");
        for (int i = 0; i < len && labels; i++) str_addf(&s, "%s%d", i ? "," : "", i + 1 == len ? 9999 : k);
        if (labels) str_add(&s, "]}\n");
    }
    snprintf(path, size, "%s", tiny_file("docs.jsonl", s.data));
    str_free(&s);
}

/* Every document stands in exactly one row, whole and in order; returns the tokens seen. */
static int64_t check_packed(const Dataset *d, int64_t seq, int n_docs) {
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
            EXPECT(last == (ids[t] == 9999) && (last || ids[t] == ids[begin[t]]));
            if (ids[t] != 9999) seen[ids[t]] += begin[t] == t;
        }
    }
    for (int k = 0; k < n_docs; k++) EXPECT(seen[k] == 1);
    mem_free(ids);
    mem_free(seen);
    mem_free(weight);
    return tokens;
}

TEST(dataset_packs_whole_documents) {
    for (uint64_t seed = 1; seed <= 12; seed++) {
        char path[200];
        int n = 40 + (int)(seed * 97 % 700), seq = 16 + (int)(seed * 31 % 100);
        write_documents(path, sizeof path, seed, n, seq, true);
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
            EXPECT(check_packed(d, seq, n) == r->tokens && r->samples == n);
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

/* The rows of a stream, read one after the other, are the documents: no token is missing, each but the first of
 * its document is predicted once, whatever the length of a row. Joined, all but the very first are. */
static void check_stream(const Dataset *d, const int32_t *token, int64_t n, bool joined) {
    int64_t seq = dataset_seq(d), at = 0, scored = 0;
    int32_t *ids = MEM_NEW(int32_t, seq * 4), *labels = ids + seq, *positions = ids + 2 * seq, *begin = ids + 3 * seq;
    float *weight = MEM_NEW(float, seq);
    for (int64_t r = 0; r < dataset_rows(d); r++) {
        dataset_row_fill(d, r, ids, labels, weight, positions, begin);
        int64_t tokens = dataset_row_tokens(d, r), here = 0;
        EXPECT(tokens == MIN2(seq, n - at));
        for (int64_t t = 0; t < tokens; t++, at++) {
            bool starts = !t || (!joined && token[at - 1] == 9999),
                 predicts = at + 1 < n && (joined || token[at] != 9999);
            EXPECT(ids[t] == token[at] && labels[t] == (predicts ? token[at + 1] : -1) && weight[t] == predicts);
            EXPECT((begin[t] == t) == starts && positions[t] == t - begin[t]);
            here += predicts;
        }
        EXPECT(here == dataset_row_scored(d, r));
        scored += here;
    }
    EXPECT(at == n && scored == dataset_report(d)->scored_tokens);
    mem_free(ids);
    mem_free(weight);
}

TEST(dataset_streams_plain_text_through_rows_of_any_length) {
    static const int lengths[] = {2, 16, 17, 100, 4096};
    char path[200];
    write_documents(path, sizeof path, 5, 60, 100, false);
    int32_t token[6000];
    int64_t n = 0;
    for (int k = 0; k < 60; k++)
        for (int i = 0, len = 2 + (int)(rng_u32(5, (uint64_t)k) % 99); i < len; i++)
            token[n++] = i + 1 == len ? 9999 : k;
    for (int i = 0; i < 2 * COUNT_OF(lengths); i++) {
        DataOptions o = tiny_options(NULL, lengths[i / 2]);
        o.vocab = 10000;
        o.pack = PACK_ON;
        o.join_documents = i % 2;
        Err e;
        Dataset *d = NULL;
        EXPECT_OK(dataset_open(&d, path, &o, &e));
        if (!d) continue;
        check_stream(d, token, n, o.join_documents);
        EXPECT(dataset_report(d)->samples == 60 && dataset_report(d)->truncated == 0 &&
               dataset_report(d)->longest == 99);
        dataset_close(d);
    }
}

/* ---- order and split ---- */

TEST(dataset_order_is_a_permutation_by_seed_and_epoch) {
    char path[200];
    enum { N = 300 };
    write_documents(path, sizeof path, 3, N, 8, false);
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
    write_documents(path, sizeof path, 3, N, 8, false);
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
        EXPECT(dataset_bytes(d) == bytes && dataset_bytes(held) < 1000); /* the tokens are shared */
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
    /* one long text: 12 letters and the end are four rows, of which the last is held out; neither side sees the
     * other */
    EXPECT_OK(dataset_open(&d, tiny_file("a.txt", "abcdefghijkl"), &o, &e));
    EXPECT_OK(dataset_split(d, &held, 0.25, &e));
    EXPECT(d && held && dataset_report(d)->samples == 1 && dataset_report(d)->tokens == 12 && dataset_rows(d) == 3);
    EXPECT(held && dataset_report(held)->samples == 1 && dataset_report(held)->tokens == 1 && dataset_rows(held) == 1);
    if (d) EXPECT_STR(tiny_row(d, 2), "ijkl|jkl.");
    if (held) EXPECT_STR(tiny_row(held, 0), "<259>___|.");
    dataset_close(held);
    dataset_close(d);
    tokenizer_close(t);
}
