/* fuzz_corpus.c - token files as a data set: any bytes as a .bin file, which its header tells apart, and any bytes
 * as the list of documents of a shard that is otherwise whole. What is accepted gives rows with ids below the
 * vocabulary, or an error. */
#include <string.h>

#include "base/file.h"
#include "data/dataset.h"
#include "data/shard.h"
#include "fuzz/fuzz.h"

enum { SEQ = 16, VOCAB = 300, EOS = 7 };

static void use(const char *path, bool joined) {
    int32_t ids[SEQ], labels[SEQ], positions[SEQ], begins[SEQ];
    float weight[SEQ];
    DataOptions o = {
        .seq = SEQ, .vocab = VOCAB, .eos_id = EOS, .seed = 7, .shuffle = true, .join_documents = joined};
    Dataset *d = NULL;
    Err e = {0};
    if (!dataset_open(&d, path, &o, &e)) return;
    for (int64_t row = 0; row < dataset_rows(d) && row < 1000; row++) {
        dataset_row_fill(d, row, ids, labels, weight, positions, begins);
        int64_t scored = dataset_row_scored(d, row);
        CHECK(!dataset_ok(d, &e) || (scored >= 0 && scored <= SEQ));
        for (int i = 0; i < SEQ; i++) {
            CHECK(ids[i] >= 0 && ids[i] < VOCAB && labels[i] >= -1 && labels[i] < VOCAB);
            CHECK(positions[i] >= 0 && positions[i] < SEQ && begins[i] >= 0 && begins[i] <= i);
        }
    }
    dataset_close(d);
}

/* Tokens and documents of the data's first half, then its second half over the list of documents. */
static const char *write_shard(const uint8_t *data, int64_t size) {
    ShardOut s;
    Err e = {0};
    ShardFacts like = {.bytes_per_token = 2, .vocab = VOCAB, .eos = EOS};
    const char *path = fuzz_path("shard.bin");
    CHECK(shard_begin(&s, path, &like, &e));
    for (int64_t i = 0; i < size / 2; i++) CHECK(shard_add(&s, &(int32_t){data[i]}, 1, data[i] % 8 == EOS, &e));
    CHECK(shard_commit(&s, &e));
    int64_t at = shard_index_at(&s.facts), room = (s.facts.documents + 1) * 8, n = size - size / 2;
    Str all = {0};
    CHECK(file_read(path, &all, 0, &e));
    memcpy(all.data + at, data + size / 2, (size_t)(n < room ? n : room));
    path = fuzz_write("shard.bin", all.data, all.len);
    str_free(&all);
    return path;
}

FUZZ(corpus, 2 * MIB, 64) {
    use(fuzz_write("tokens.bin", data, size), false);
    use(fuzz_path("tokens.bin"), true);
    if (size > 8) use(write_shard(data, size), false);
}
