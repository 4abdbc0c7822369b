/* test_prepare.c - a corpus as a person makes and uses it: prepared, trained on from disk as from memory, and
 * refused by name when it is damaged, changed, unfinished or another tokenizer's. */
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "tests/snug.h"
#include "tests/test.h"

enum { VOCAB = 600 };

static void make_model(const char *name, const char *tokenizer) {
    Ran r = snug_run(
        "init --model llama-3.2-1b --out %s --tokenizer tests/data/%s --dtype fp32 --set num_hidden_layers=1 "
        "--set hidden_size=16 --set num_attention_heads=2 --set num_key_value_heads=1 --set intermediate_size=16 "
        "--set vocab_size=%d --set eos_token_id=2",
        test_path(name), tokenizer, VOCAB);
    if (!EXPECT(r.code == 0)) test_note("    %s", str_text(&r.err));
    ran_free(&r);
}

static void put_rows(const char *name, int rows, uint64_t key) {
    static const char *const words[] = {"the ", "river ", "runs ", "on ", "\\u00e9t\\u00e9, ", "stone. "};
    Str s = {0};
    Err e = {0};
    for (int r = 0; r < rows; r++) {
        str_add(&s, "{\"text\": \"");
        for (uint64_t i = 0; i < 3 + rng_fold(key, (uint64_t)r) % 60; i++)
            str_add(&s, words[rng_fold(key + (uint64_t)r, i) % COUNT_OF(words)]);
        str_add(&s, "\"}\n");
    }
    EXPECT_OK(file_write_all(test_path(name), s.data, s.len, &e));
    str_free(&s);
}

static void prepare(const char *out, const char *from, const char *more) {
    Ran r =
        snug_run("prepare --tokenizer %s --out %s %s %s", test_path("m"), test_path(out), test_path(from), more);
    if (!EXPECT(r.code == 0)) test_note("    %s", str_text(&r.err));
    ran_free(&r);
}

/* The result of five steps as JSON; gives. */
static json_t *train(const char *data, const char *more) {
    Ran r = snug_run(
        "train --model %s --out %s --overwrite --seq 24 --micro-batch 2 --steps 5 --mode full --threads 1 "
        "--no-save --json --device cpu --data %s %s",
        test_path("m"), test_path("o"), test_path(data), more);
    json_t *j = r.code ? NULL : ran_json(&r);
    if (!EXPECT(j)) test_note("    %s %s: %s", data, more, str_text(&r.err));
    ran_free(&r);
    return j;
}

static void expect_same_training(const char *a, const char *b, const char *more) {
    json_t *x = train(a, more), *y = train(b, more);
    EXPECT_STR(json_string_value(json_object_get(y, "checksum")),
               json_string_value(json_object_get(x, "checksum")));
    json_decref(x);
    json_decref(y);
}

TEST(training_from_shards_gives_the_weights_that_training_from_the_file_gives) {
    make_model("m", "tok_smollm2");
    put_rows("a.jsonl", 300, 3);
    prepare("a", "a.jsonl", "--shard-tokens 2000");
    EXPECT(file_exists(test_path("a/manifest.json")) && file_exists(test_path("a/shard-00003.bin")));
    expect_same_training("a.jsonl", "a", "");
    expect_same_training("a.jsonl", "a", "--documents joined --seed 9");
    prepare("packed", "a.jsonl", "--pack-rows 24");
    prepare("again", "a.jsonl", "--shard-tokens 100000000 --threads 3"); /* other shards, the same stream */
    expect_same_training("a", "again", "--val-split 0.1 --eval-steps 2");
    json_decref(train("packed", ""));
}

/* Texts that are read in several pieces, each ending where the next one begins. */
TEST(long_texts_give_the_same_shards_with_any_number_of_threads) {
    enum { TEXTS = 6, LONG = 1200 << 10 };
    static const char *const words[] = {"the ", "river ", "runs ", "on, ", "and ", "stone. "};
    Str s = {0}, shard[2] = {{0}, {0}};
    Err e = {0};
    char name[40];
    make_model("m", "tok_smollm2");
    EXPECT_OK(file_make_dirs(test_path("books"), &e));
    for (int i = 0; i < TEXTS; i++) {
        str_clear(&s);
        for (uint64_t k = 0; s.len < LONG; k++) str_add(&s, words[rng_fold((uint64_t)i, k) % COUNT_OF(words)]);
        snprintf(name, sizeof name, "books/%d.txt", i);
        EXPECT_OK(file_write_all(test_path(name), s.data, s.len, &e));
    }
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, i ? "several" : "one");
        prepare(name, "books", i ? "--threads 4" : "--threads 1");
        snprintf(name, sizeof name, "%s/shard-00000.bin", i ? "several" : "one");
        EXPECT_OK(file_read(test_path(name), &shard[i], 0, &e));
    }
    EXPECT(shard[0].len == shard[1].len && !memcmp(shard[0].data, shard[1].data, (size_t)shard[0].len));
    str_free(&s);
    str_free(&shard[0]);
    str_free(&shard[1]);
}

TEST(a_corpus_takes_the_same_memory_whatever_its_size) {
    int64_t planned[2];
    make_model("m", "tok_smollm2");
    put_rows("small.jsonl", 200, 4);
    put_rows("large.jsonl", 8000, 5);
    prepare("small", "small.jsonl", "");
    prepare("large", "large.jsonl", "");
    for (int i = 0; i < 2; i++) {
        json_t *j = train(i ? "large" : "small", "");
        planned[i] = json_integer_value(json_object_get(j, "process_planned_bytes"));
        if (!test_sanitized())
            EXPECT(json_integer_value(json_object_get(j, "process_measured_bytes")) <= planned[i]);
        json_decref(j);
    }
    if (!EXPECT(planned[0] > 0 && planned[1] == planned[0]))
        test_note("    %lld and %lld bytes", (long long)planned[0], (long long)planned[1]);
}

/* ---- refusals ---- */

static void expect_said(Ran r, int code, const char *says) {
    if (!EXPECT(r.code == code && strstr(str_text(&r.err), says)))
        test_note("    exit %d, \"%s\" was expected: %s", r.code, says, str_text(&r.err));
    ran_free(&r);
}

static Ran try_train(const char *data, const char *more) {
    return snug_run(
        "train --model %s --out %s --seq 24 --steps 6 --save-steps 3 --mode full --threads 1 --device cpu "
        "--data %s %s",
        test_path("m"), test_path("r"), test_path(data), more);
}

TEST(a_corpus_that_is_not_what_it_was_is_refused_by_name) {
    Str shard = {0};
    Err e = {0};
    make_model("m", "tok_smollm2");
    put_rows("a.jsonl", 200, 6);
    put_rows("b.jsonl", 200, 7);
    prepare("a", "a.jsonl", "");
    prepare("b", "b.jsonl", "");
    expect_said(try_train("a", ""), 0, "");
    /* another corpus in its place: the checkpoint knows */
    EXPECT_OK(file_read(test_path("a/shard-00000.bin"), &shard, 0, &e));
    EXPECT_OK(file_remove_tree(test_path("a"), &e));
    prepare("a", "b.jsonl", "");
    expect_said(try_train("a", "--steps 9 --resume"), 1, "data");
    /* cut short */
    EXPECT(!truncate(test_path("b/shard-00000.bin"), 1000));
    expect_said(try_train("b", "--overwrite"), 1, "b/shard-00000.bin: is a token shard of 1000 bytes");
    /* gone, or never finished */
    EXPECT_OK(file_remove_tree(test_path("b/shard-00000.bin"), &e));
    expect_said(try_train("b", "--overwrite"), 1, "shard-00000.bin: cannot open");
    EXPECT(!rename(test_path("b/manifest.json"), test_path("b/progress.json")));
    expect_said(try_train("b", "--overwrite"), 1, "is not prepared to its end");
    str_free(&shard);
}

TEST(a_corpus_of_another_tokenizer_is_refused) {
    make_model("m", "tok_smollm2");
    put_rows("a.jsonl", 50, 6);
    make_model("other", "tok_llama3");
    Ran r =
        snug_run("prepare --tokenizer %s --out %s %s", test_path("other"), test_path("a"), test_path("a.jsonl"));
    expect_said(r, 0, "");
    expect_said(try_train("a", ""), 1, "was prepared with another tokenizer than the model's");
    EXPECT(!file_exists(test_path("r")));
}

TEST(prepare_refuses_and_leaves_nothing_or_what_was_there) {
    Err e = {0};
    make_model("m", "tok_smollm2");
    put_rows("a.jsonl", 20, 6);
    Ran r = snug_run("prepare --tokenizer %s --out %s", test_path("m"), test_path("out"));
    expect_said(r, 2, "needs FILE...");
    r = snug_run("prepare --tokenizer %s --out %s %s %s", test_path("m"), test_path("out"), test_path("a.jsonl"),
                 test_path("none.jsonl"));
    expect_said(r, 1, "none.jsonl: cannot open");
    EXPECT(!file_exists(test_path("out")));
    /* inputs that are looked at later: neither the folder nor those above it remain */
    static const char chat[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}\n";
    EXPECT_OK(file_write_all(test_path("chat.jsonl"), chat, sizeof chat - 1, &e));
    EXPECT_OK(file_write_all(test_path("nothing.jsonl"), "", 0, &e));
    r = snug_run("prepare --tokenizer %s --out %s/and/deeper %s", test_path("m"), test_path("out"),
                 test_path("chat.jsonl"));
    expect_said(r, 1, "its rows are messages");
    r = snug_run("prepare --tokenizer %s --out %s/and/deeper %s", test_path("m"), test_path("out"),
                 test_path("nothing.jsonl"));
    expect_said(r, 1, "nothing.jsonl: is empty");
    EXPECT(!file_exists(test_path("out")));
    prepare("out", "a.jsonl", "");
    r = snug_run("prepare --tokenizer %s --out %s %s --max-document 9", test_path("m"), test_path("out"),
                 test_path("a.jsonl"));
    expect_said(r, 1, "other max_document");
    r = snug_run("prepare --tokenizer %s --out %s %s", test_path("m"), test_path("out"), test_path("a.jsonl"));
    expect_said(r, 0, "nothing was left to do");
    /* --overwrite replaces it, but not with an input that is refused */
    EXPECT_OK(file_write_all(test_path("bad.jsonl"), "{\"text\": \"a b c\"}\n{\"text\": 7}\n", 30, &e));
    r = snug_run("prepare --tokenizer %s --out %s --overwrite %s", test_path("m"), test_path("out"),
                 test_path("bad.jsonl"));
    expect_said(r, 1, "bad.jsonl:2: field 'text' is a number");
    r = snug_run("prepare --tokenizer %s --out %s %s", test_path("m"), test_path("out"), test_path("a.jsonl"));
    expect_said(r, 0, "nothing was left to do");
    /* a shard that changed on disk is found by its checksum */
    Str shard = {0};
    EXPECT_OK(file_read(test_path("out/shard-00000.bin"), &shard, 0, &e));
    shard.data[200] ^= 4;
    EXPECT_OK(file_write_all(test_path("out/shard-00000.bin"), shard.data, shard.len, &e));
    str_free(&shard);
    r = snug_run("prepare --tokenizer %s --out %s %s", test_path("m"), test_path("out"), test_path("a.jsonl"));
    expect_said(r, 1, "do not have the checksum");
    /* what a file is taken for is never guessed */
    EXPECT_OK(file_write_all(test_path("a.txt"), "{\"text\": \"a\"}\n", 14, &e));
    r = snug_run("prepare --tokenizer %s --out %s %s", test_path("m"), test_path("out2"), test_path("a.txt"));
    expect_said(r, 1, "is named as plain text and holds JSON");
    EXPECT_OK(file_write_all(test_path("a.md"), "# A title\n", 10, &e));
    r = snug_run("prepare --tokenizer %s --out %s %s", test_path("m"), test_path("out3"), test_path("a.md"));
    expect_said(r, 1, "is not a list of samples");
}
