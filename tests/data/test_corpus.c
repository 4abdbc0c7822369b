/* test_corpus.c - token shards: rows from disk are those of the same text in memory; shards do not depend on
 * threads, on the packing of the input, or on a run that was cut off; and what is damaged, changed or another
 * tokenizer's is refused. */
#include "data/corpus.h"

#include <jansson.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/stop.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "data/prepare.h"
#include "data/shard.h"
#include "tests/data/tiny_data.h"
#include "tests/test.h"

/* A name in the test's folder; the same name gives the same pointer, which stands for the whole test. */
static char *in_tmp(const char *name) {
    enum { MOST = 64 };
    static char path[MOST][300];
    static int next;
    char p[300];
    snprintf(p, sizeof p, "%s/%s", test_tmp(), name);
    for (int i = 0; i < MOST; i++)
        if (!strcmp(path[i], p)) return path[i];
    return strcpy(path[next++ % MOST], p);
}

static void put_bytes(const char *name, const void *bytes, int64_t n) {
    Err e = {0};
    EXPECT_OK(file_write_all(in_tmp(name), bytes, n, &e));
}

/* Rows of text of drawn lengths, some empty, some long. */
static void make_text(Str *s, int rows, uint64_t key) {
    static const char *const words[] = {"river ",       "stone", " a",      "\\n",
                                        "caf\xc3\xa9 ", "1234",  "\\u00e9", " end."};
    str_clear(s);
    for (int r = 0; r < rows; r++) {
        int n = (int)(rng_u32(key, (uint64_t)r) % 40);
        if (r % 97 == 5) n = 3000;
        str_add(s, "{\"id\": 1, \"text\": \"");
        for (int i = 0; i < n; i++) str_add(s, words[rng_fold(key + (uint64_t)r, (uint64_t)i) % COUNT_OF(words)]);
        str_add(s, "\"}\n");
    }
}

/* The tiny tokenizer with an end of text, as a folder that can be opened again. */
static Tokenizer *open_tokenizer(void) {
    Tokenizer *t = tiny_tokenizer(false), *again = NULL;
    Err e = {0};
    tokenizer_close(t);
    put_bytes("tok/tokenizer_config.json", "{\"eos_token\": \"</s>\"}", 21);
    EXPECT_OK(tokenizer_open(&again, in_tmp("tok"), &e));
    return again;
}

static PrepareCounts prepare(const Tokenizer *t, const char *out, const char *const *names, int n,
                             PrepareOptions o) {
    PrepareCounts c = {0};
    Err e = {0};
    o.tokenizer = t;
    o.eos = TINY_EOS;
    if (!o.threads) o.threads = 2;
    if (!o.shard_tokens) o.shard_tokens = 1 << 20;
    EXPECT_OK(prepare_corpus(&c, in_tmp(out), names, n, &o, NULL, NULL, &e));
    return c;
}

static DataOptions data_options(const Tokenizer *t, int64_t seq) {
    DataOptions o = tiny_options(t, seq);
    o.shuffle = true;
    o.seed = 3;
    return o;
}

static void expect_same_rows(const Dataset *a, const Dataset *b, const char *what) {
    int64_t seq = dataset_seq(a);
    int32_t *x = MEM_NEW(int32_t, 4 * seq), *y = MEM_NEW(int32_t, 4 * seq);
    float *u = MEM_NEW(float, seq), *v = MEM_NEW(float, seq);
    bool same = dataset_rows(a) == dataset_rows(b) && dataset_report(a)->tokens == dataset_report(b)->tokens &&
                dataset_report(a)->scored_tokens == dataset_report(b)->scored_tokens;
    for (int64_t i = 0; same && i < dataset_rows(a); i++) {
        int64_t row = dataset_row_at(a, 2, i);
        same = row == dataset_row_at(b, 2, i);
        dataset_row_fill(a, row, x, x + seq, u, x + 2 * seq, x + 3 * seq);
        dataset_row_fill(b, row, y, y + seq, v, y + 2 * seq, y + 3 * seq);
        same = same && !memcmp(x, y, sizeof *x * (size_t)(4 * seq)) && !memcmp(u, v, sizeof *u * (size_t)seq) &&
               dataset_row_scored(a, row) == dataset_row_scored(b, row) &&
               dataset_row_tokens(a, row) == dataset_row_tokens(b, row);
    }
    Err e = {0};
    if (!EXPECT(same && dataset_ok(b, &e))) test_note("    %s: %s", what, e.text);
    mem_free(x);
    mem_free(y);
    mem_free(u);
    mem_free(v);
}

TEST(rows_from_shards_are_those_of_the_text_in_memory) {
    static const int lengths[] = {2, 17, 64, 1000, 100000};
    Tokenizer *t = open_tokenizer();
    Str text = {0};
    make_text(&text, 400, 5);
    put_bytes("a.jsonl", text.data, text.len);
    const char *names[] = {in_tmp("a.jsonl")};
    PrepareCounts c = prepare(t, "tokens", names, 1, (PrepareOptions){.shard_tokens = 5000});
    EXPECT(c.shards > 5 && c.rows == 400 && c.dropped > 0 && c.documents == 400 - c.dropped);
    for (int i = 0; i < 2 * COUNT_OF(lengths); i++) {
        DataOptions o = data_options(t, lengths[i / 2]);
        o.join_documents = i % 2;
        Dataset *memory = NULL, *disk = NULL;
        Err e = {0};
        EXPECT_OK(dataset_open(&memory, names[0], &o, &e) && dataset_open(&disk, in_tmp("tokens"), &o, &e));
        if (memory && disk) {
            expect_same_rows(memory, disk, "shards");
            EXPECT(dataset_bytes(disk) < 20000 && dataset_reading_bytes(disk) == 0);
        }
        dataset_close(memory);
        dataset_close(disk);
    }
    str_free(&text);
    tokenizer_close(t);
}

static uint64_t folder_hash(const char *folder) { /* of the shards' bytes, by name */
    char **names, path[600];
    int64_t n;
    uint64_t h = 1;
    Err e = {0};
    EXPECT_OK(file_list(in_tmp(folder), &names, &n, &e));
    for (int64_t i = 0; i < n; i++) {
        Str s = {0};
        snprintf(path, sizeof path, "%s/%s", in_tmp(folder), names[i]);
        if (str_starts(names[i], "shard-") && file_read(path, &s, 0, &e))
            for (int64_t k = 0; k < s.len; k++) h = rng_fold(h, (unsigned char)s.data[k]);
        EXPECT(!strstr(names[i], ".tmp-"));
        str_free(&s);
        mem_free(names[i]);
    }
    mem_free(names);
    return h;
}

TEST(shards_do_not_depend_on_threads_or_on_the_form_of_the_input) {
    Tokenizer *t = open_tokenizer();
    Str text = {0}, array = {0}, table = {0};
    make_text(&text, 3000, 6); /* several blocks */
    put_bytes("a.jsonl", text.data, text.len);
    const char *names[] = {in_tmp("a.jsonl")};
    PrepareOptions o = {.threads = 1, .shard_tokens = 20000};
    prepare(t, "one", names, 1, o);
    uint64_t want = folder_hash("one");
    for (int threads = 2; threads <= 5; threads += 3) {
        char out[20];
        snprintf(out, sizeof out, "t%d", threads);
        o.threads = threads;
        prepare(t, out, names, 1, o);
        EXPECT(folder_hash(out) == want);
    }
    /* the same rows as an array, as a table */
    str_add(&table, "id,text\n");
    for (char *save = NULL, *line = strtok_r(text.data, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        str_addf(&array, "%s%s", array.len ? ",\n " : "[", line);
        json_t *row = json_loads(line, 0, NULL);
        str_add(&table, "1,\"");
        for (const char *c = json_string_value(json_object_get(row, "text")); *c; c++) {
            if (*c == '"') str_add_char(&table, '"');
            str_add_char(&table, *c);
        }
        str_add(&table, "\"\n");
        json_decref(row);
    }
    str_add(&array, "]\n");
    put_bytes("a.json", array.data, array.len);
    put_bytes("a.csv", table.data, table.len);
    static const char *const others[] = {"a.json", "a.csv"};
    for (int i = 0; i < COUNT_OF(others); i++) {
        char out[20];
        const char *name[] = {in_tmp(others[i])};
        snprintf(out, sizeof out, "o%d", i);
        prepare(t, out, name, 1, o);
        if (!EXPECT(folder_hash(out) == want)) test_note("    %s", others[i]);
    }
    str_free(&text);
    str_free(&array);
    str_free(&table);
    tokenizer_close(t);
}

/* ---- compressed files ---- */

static bool pack(const char *program, const char *name) {
    char command[800];
    snprintf(command, sizeof command, "%s -q -k -f '%s' 2>/dev/null", program, in_tmp(name));
    return !system(command);
}

static void expect_unpacked(const Tokenizer *t, const char *packed_name, uint64_t want) {
    const char *name[] = {in_tmp(packed_name)};
    PrepareCounts c;
    PrepareOptions o = {.tokenizer = t, .eos = TINY_EOS, .threads = 2, .shard_tokens = 20000, .overwrite = true};
    Err e = {0};
    Str packed = {0};
    if (!prepare_corpus(&c, in_tmp("unpacked"), name, 1, &o, NULL, NULL, &e)) {
        if (!EXPECT(strstr(e.text, "snug was built without"))) test_note("    %s", e.text);
        return;
    }
    EXPECT(folder_hash("unpacked") == want);
    /* two members behind each other are the text twice; one that is cut off is refused */
    EXPECT_OK(file_read(name[0], &packed, 0, &e));
    int64_t n = packed.len, documents = c.documents;
    Str twice = {0};
    str_add_bytes(&twice, packed.data, n);
    str_add_bytes(&twice, packed.data, n);
    put_bytes(packed_name, twice.data, twice.len);
    EXPECT_OK(prepare_corpus(&c, in_tmp("unpacked"), name, 1, &o, NULL, NULL, &e));
    EXPECT(c.documents == 2 * documents);
    put_bytes(packed_name, packed.data, n - 3);
    EXPECT(!prepare_corpus(&c, in_tmp("unpacked"), name, 1, &o, NULL, NULL, &e) &&
           strstr(e.text, "cannot be unpacked"));
    str_free(&packed);
    str_free(&twice);
}

TEST(compressed_rows_are_those_of_the_file_unpacked) {
    Tokenizer *t = open_tokenizer();
    Str text = {0};
    make_text(&text, 3000, 6);
    put_bytes("a.jsonl", text.data, text.len);
    const char *names[] = {in_tmp("a.jsonl")};
    prepare(t, "plain", names, 1, (PrepareOptions){.shard_tokens = 20000});
    uint64_t want = folder_hash("plain");
    if (pack("gzip", "a.jsonl")) expect_unpacked(t, "a.jsonl.gz", want);
    if (pack("zstd", "a.jsonl")) expect_unpacked(t, "a.jsonl.zst", want);
    str_free(&text);
    tokenizer_close(t);
}

/* A run that is asked to stop after so many rounds, and asked again, and again. */
typedef struct Stopper {
    int rounds;
} Stopper;

static void count_rounds(void *user, const PrepareCounts *now) {
    Stopper *s = user;
    if (--s->rounds <= 0) stop_signal = 2;
}

TEST(a_preparation_that_is_cut_off_goes_on_to_the_same_shards) {
    Tokenizer *t = open_tokenizer();
    Str text = {0};
    make_text(&text, 9000, 7);
    put_bytes("a.jsonl", text.data, text.len);
    text.data[0] = '-'; /* no JSON to the eye */
    while (text.len < 3 << 20) str_add_bytes(&text, "and so on: 0123456789 caf\xc3\xa9\n", 29);
    put_bytes("b.txt", text.data, text.len); /* a text of several pieces */
    make_text(&text, 2000, 8);
    put_bytes("c.jsonl", text.data, text.len);
    const char *names[] = {in_tmp("a.jsonl"), in_tmp("b.txt"), in_tmp("c.jsonl")};
    PrepareOptions o = {.threads = 1, .shard_tokens = 30000};
    PrepareCounts whole = prepare(t, "whole", names, 3, o), c = {0};
    int stops = 0;
    for (bool done = false; !done && stops < 200; stops++) {
        Stopper s = {.rounds = 2 + stops % 6}; /* the text takes five, and is begun anew */
        Err e = {0};
        o.tokenizer = t;
        o.eos = TINY_EOS;
        EXPECT_OK(prepare_corpus(&c, in_tmp("cut"), names, 3, &o, count_rounds, &s, &e));
        done = !c.stopped;
        stop_signal = 0;
        if (!done && file_exists(in_tmp("cut/progress.json"))) {
            Corpus *corpus = NULL;
            CorpusOptions co = {.vocab = 1000, .eos = -1};
            EXPECT(!corpus_open(&corpus, in_tmp("cut"), &co, &e) && strstr(e.text, "is not prepared to its end"));
        }
    }
    EXPECT(stops > 2 && c.resumed && c.tokens == whole.tokens && c.documents == whole.documents &&
           c.dropped == whole.dropped && c.rows == whole.rows);
    EXPECT(folder_hash("cut") == folder_hash("whole") && !file_exists(in_tmp("cut/progress.json")));
    PrepareCounts again = prepare(t, "cut", names, 3, o); /* nothing is left to do */
    EXPECT(again.was_done);
    o.max_document = 100;
    Err e = {0};
    o.tokenizer = t;
    o.eos = TINY_EOS;
    EXPECT(!prepare_corpus(&c, in_tmp("cut"), names, 3, &o, NULL, NULL, &e) &&
           strstr(e.text, "other max_document"));
    o.overwrite = true;
    PrepareCounts short_ones = prepare(t, "cut", names, 3, o);
    EXPECT(short_ones.documents > whole.documents &&
           short_ones.tokens == whole.tokens + short_ones.documents - whole.documents);
    str_free(&text);
    tokenizer_close(t);
}

/* ---- refusals ---- */

static void expect_refused(const Tokenizer *t, const char *path, const char *says) {
    DataOptions o = data_options(t, 16);
    Dataset *d = NULL;
    Err e = {0};
    if (!EXPECT(!dataset_open(&d, path, &o, &e) && strstr(e.text, says))) test_note("    %s: %s", path, e.text);
    dataset_close(d);
}

TEST(shards_that_are_short_damaged_or_of_another_tokenizer_are_refused) {
    Tokenizer *t = open_tokenizer(), *other = tiny_spaced_tokenizer();
    Str text = {0}, shard = {0};
    Err e = {0};
    make_text(&text, 50, 9);
    put_bytes("a.jsonl", text.data, text.len);
    const char *names[] = {in_tmp("a.jsonl")};
    prepare(t, "k", names, 1, (PrepareOptions){0});
    expect_refused(other, in_tmp("k"), "was prepared with another tokenizer than the model's");
    EXPECT_OK(file_read(in_tmp("k/shard-00000.bin"), &shard, 0, &e));
    put_bytes("k/shard-00000.bin", shard.data, shard.len - 9);
    expect_refused(t, in_tmp("k"), "its header says");
    shard.data[20] ^= 1;
    put_bytes("k/shard-00000.bin", shard.data, shard.len);
    expect_refused(t, in_tmp("k"), "header is damaged");
    shard.data[20] ^= 1;
    shard.data[8] = 9;
    put_bytes("k/shard-00000.bin", shard.data, shard.len);
    expect_refused(t, in_tmp("k"), "version 9");
    shard.data[8] = 1;
    put_bytes("k/shard-00000.bin", shard.data, 40);
    expect_refused(t, in_tmp("k"), "ends inside its header");
    put_bytes("k/shard-00000.bin", shard.data, shard.len);
    DataOptions o = data_options(t, 16);
    Dataset *d = NULL;
    o.pack = PACK_UPDATE;
    EXPECT(!dataset_open(&d, in_tmp("k"), &o, &e) && e.code == ERR_USAGE && strstr(e.text, "--pack on"));
    o.pack = PACK_AUTO;
    o.max_samples = 4;
    EXPECT(!dataset_open(&d, in_tmp("k"), &o, &e) && strstr(e.text, "--steps"));
    o.max_samples = 0;
    /* a checksum tells what the header cannot */
    ShardFacts f;
    bool found;
    int fd;
    EXPECT_OK(file_open_read(in_tmp("k/shard-00000.bin"), &fd, &e) && shard_read(&f, &found, fd, "k", &e) &&
              shard_check(&f, fd, "k", &e));
    file_close(fd);
    shard.data[SHARD_HEADER_BYTES + 7] ^= 1;
    put_bytes("k2.bin", shard.data, shard.len);
    EXPECT_OK(file_open_read(in_tmp("k2.bin"), &fd, &e));
    EXPECT(shard_read(&f, &found, fd, "k2", &e) && found && !shard_check(&f, fd, "k2", &e) &&
           strstr(e.text, "checksum"));
    file_close(fd);
    /* changed while it is read: the rows before were good, those after hold nothing and the error says why */
    EXPECT_OK(dataset_open(&d, in_tmp("k"), &o, &e));
    int32_t ids[16], labels[16], positions[16], begin[16];
    float weight[16];
    if (d) dataset_row_fill(d, 0, ids, labels, weight, positions, begin);
    EXPECT(d && dataset_ok(d, &e));
    FILE *file = fopen(in_tmp("k/shard-00000.bin"), "r+");
    fputc('x', file);
    fclose(file);
    if (d) dataset_row_fill(d, 1, ids, labels, weight, positions, begin);
    EXPECT(d && !dataset_ok(d, &e) && strstr(e.text, "was changed while the run reads it"));
    dataset_close(d);
    str_free(&text);
    str_free(&shard);
    tokenizer_close(t);
    tokenizer_close(other);
}

TEST(rows_that_cannot_be_prepared_are_refused_by_their_line) {
    Tokenizer *t = open_tokenizer();
    static const struct {
        const char *name, *text, *says;
    } bad[] = {
        {"a.jsonl", "{\"text\": \"a b\"}\n{\"text\": 7}\n", "a.jsonl:2: field 'text' is a number"},
        {"a.jsonl", "{\"text\": \"a b\"}\n\n{\"text\": \"c\"\n", "a.jsonl:3: is not JSON"},
        {"a.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n", "Shards hold plain text"},
        {"a.csv", "text\na b\nc\xe9\n", "a.csv:3: is not UTF-8"},
        {"a.txt", "a b\xe9 c", "a.txt: byte 0xe9 is not UTF-8"},
        {"a.jsonl", "{\"text\": \"\"}\n", "no text was found"},
    };
    for (int i = 0; i < COUNT_OF(bad); i++) {
        PrepareCounts c;
        Err e = {0};
        char out[20];
        put_bytes(bad[i].name, bad[i].text, (int64_t)strlen(bad[i].text));
        const char *names[] = {in_tmp(bad[i].name)};
        snprintf(out, sizeof out, "bad%d", i);
        PrepareOptions o = {.tokenizer = t, .eos = TINY_EOS, .threads = 2, .shard_tokens = 1000};
        if (!EXPECT(!prepare_corpus(&c, in_tmp(out), names, 1, &o, NULL, NULL, &e) && strstr(e.text, bad[i].says)))
            test_note("    %s: %s", bad[i].text, e.text);
    }
    tokenizer_close(t);
}

/* ---- files of others ---- */

static void put_word(Str *s, uint32_t v, int bytes) {
    for (int i = 0; i < bytes; i++) str_add_char(s, (char)(v >> 8 * i));
}

static void put_bin(const char *name, int32_t magic, int32_t version, const uint32_t *token, int n, int width) {
    Str s = {0};
    put_word(&s, (uint32_t)magic, 4);
    put_word(&s, (uint32_t)version, 4);
    put_word(&s, (uint32_t)n, 4);
    while (s.len < 1024) str_add_char(&s, 0);
    for (int i = 0; i < n; i++) put_word(&s, token[i], width);
    put_bytes(name, s.data, s.len);
    str_free(&s);
}

static void put_llmq(const char *name, const uint32_t *token, int n, int masks) {
    Str s = {0};
    const uint32_t words[] = {2, 4, (uint32_t)n, 300, (uint32_t)masks};
    str_add(&s, "BIN.TOK\n");
    for (int i = 0; i < 5; i++) put_word(&s, words[i], 4);
    while (s.len < 1024) str_add_char(&s, 0);
    for (int i = 0; i < n; i++) put_word(&s, token[i], 4);
    put_bytes(name, s.data, s.len);
    str_free(&s);
}

static void expect_bin(const char *path, const char *kind, const char *const *rows) {
    DataOptions o = tiny_options(NULL, 4);
    Dataset *d = NULL;
    Err e = {0};
    o.vocab = 300;
    EXPECT_OK(dataset_open(&d, path, &o, &e));
    if (!d) return;
    EXPECT_STR(dataset_report(d)->kind_text, kind);
    EXPECT(dataset_rows(d) == 2);
    for (int i = 0; i < 2; i++) EXPECT_STR(tiny_row(d, i), rows[i]);
    dataset_close(d);
}

TEST(token_files_of_other_programs_are_read) {
    static const uint32_t behind[] = {'a', 'b', TINY_EOS, 'c', 'd', 'e', TINY_EOS},
                          before[] = {TINY_EOS, 'a', 'b', TINY_EOS, 'c', 'd', 'e'};
    const char *rows_behind[] = {"ab<259>c|b<259>.d|0003", "de<259>_|e<259>."};
    const char *rows_before[] = {"<259>ab<259>|ab.c|0003", "cde_|de."};
    put_bin("g.bin", 20240520, 1, before, 7, 2);
    expect_bin(in_tmp("g.bin"), "tokens of llm.c, uint16", rows_before);
    put_bin("l.bin", 20240801, 7, before, 7, 4);
    expect_bin(in_tmp("l.bin"), "tokens of llm.c, uint32", rows_before);
    put_llmq("q.bin", behind, 7, 0);
    expect_bin(in_tmp("q.bin"), "tokens of llmq, uint32", rows_behind);
    put_llmq("masks.bin", behind, 7, 1);
    expect_refused(NULL, in_tmp("masks.bin"), "samples with masks");
    put_bin("short.bin", 20240520, 1, before, 7, 2);
    truncate(in_tmp("short.bin"), 1030);
    expect_refused(NULL, in_tmp("short.bin"), "names 7 tokens, and the file ends before");
    /* an id that the model does not have is found when its row is read */
    static const uint32_t large[] = {'a', 'b', 299, 'c'};
    put_llmq("large.bin", large, 4, 0);
    DataOptions o = tiny_options(NULL, 4);
    Dataset *d = NULL;
    Err e = {0};
    o.vocab = 299;
    EXPECT_OK(dataset_open(&d, in_tmp("large.bin"), &o, &e));
    int32_t ids[4], labels[4], positions[4], begin[4];
    float weight[4];
    if (d) dataset_row_fill(d, 0, ids, labels, weight, positions, begin);
    EXPECT(d && !dataset_ok(d, &e) && strstr(e.text, "holds the id 299"));
    dataset_close(d);
}

TEST(packed_rows_are_written_and_read_back) {
    Tokenizer *t = open_tokenizer();
    Str text = {0}, bin = {0};
    Err e = {0};
    make_text(&text, 300, 12);
    put_bytes("a.jsonl", text.data, text.len);
    const char *names[] = {in_tmp("a.jsonl")};
    PrepareCounts plain = prepare(t, "plain", names, 1, (PrepareOptions){.shard_tokens = 3000});
    prepare(t, "packed", names, 1, (PrepareOptions){.shard_tokens = 3000, .pack_seq = 50});
    json_t *meta = json_load_file(in_tmp("packed/metadata.json"), 0, NULL);
    int64_t rows = json_integer_value(json_object_get(meta, "num_sequences"));
    EXPECT(rows == plain.tokens / 50 && json_integer_value(json_object_get(meta, "seq_len")) == 50 &&
           json_integer_value(json_object_get(meta, "total_tokens")) == rows * 50);
    EXPECT_STR(json_string_value(json_object_get(meta, "dtype")), "uint32");
    json_decref(meta);
    EXPECT_OK(file_read(in_tmp("packed/train.bin"), &bin, 0, &e));
    EXPECT(bin.len == rows * 200 && !file_exists(in_tmp("packed/manifest.json")) &&
           !file_exists(in_tmp("packed/shard-00000.bin")));
    /* any length of a row may be trained on; documents end with the end of text, as in the shards */
    DataOptions o = data_options(t, 50);
    Dataset *a = NULL, *b = NULL;
    EXPECT_OK(dataset_open(&a, in_tmp("plain"), &o, &e) && dataset_open(&b, in_tmp("packed"), &o, &e));
    if (a && b) {
        EXPECT(dataset_rows(a) == rows + (plain.tokens % 50 > 0) && dataset_rows(b) == rows);
        for (int64_t r = 0; r + 1 < rows; r++) {
            char row[4000];
            snprintf(row, sizeof row, "%s", tiny_row(a, r));
            EXPECT_STR(tiny_row(b, r), row);
        }
    }
    dataset_close(a);
    dataset_close(b);
    EXPECT_OK(file_write_all(in_tmp("packed/train.bin"), bin.data, bin.len - 4, &e));
    expect_refused(t, in_tmp("packed"), "train.bin has");
    str_free(&text);
    str_free(&bin);
    tokenizer_close(t);
}

TEST(rows_held_out_of_a_corpus_are_drawn_by_key) {
    Tokenizer *t = open_tokenizer();
    Str text = {0};
    Err e = {0};
    make_text(&text, 600, 13);
    put_bytes("a.jsonl", text.data, text.len);
    const char *names[] = {in_tmp("a.jsonl")};
    prepare(t, "tokens", names, 1, (PrepareOptions){.shard_tokens = 4000});
    DataOptions o = data_options(t, 30);
    Dataset *whole = NULL, *d = NULL, *held = NULL;
    EXPECT_OK(dataset_open(&whole, in_tmp("tokens"), &o, &e) && dataset_open(&d, in_tmp("tokens"), &o, &e));
    EXPECT_OK(dataset_split(d, &held, 0.1, &e));
    if (whole && held) {
        int64_t n = dataset_rows(whole), all = 0, late = 0;
        EXPECT(dataset_rows(held) == n - (int64_t)(0.9 * (double)n + 1e-9) &&
               dataset_rows(d) + dataset_rows(held) == n);
        int *seen = MEM_NEW(int, n);
        char(*text_of)[600] = mem_alloc(n * 600);
        for (int64_t i = 0; i < n; i++) snprintf(text_of[i], 600, "%s", tiny_row(whole, i));
        for (int side = 0; side < 2; side++) {
            const Dataset *s = side ? held : d;
            for (int64_t i = 0; i < dataset_rows(s); i++) {
                const char *row = tiny_row(s, i);
                int64_t at = 0;
                while (at < n && (seen[at] || strcmp(text_of[at], row)))
                    at++; /* rows may be alike: each is used once */
                EXPECT(at < n);
                if (at < n) seen[at] = 1 + side, all++;
                late += side && at >= n - dataset_rows(held);
            }
        }
        EXPECT(all == n && late < dataset_rows(held) / 2); /* not the tail */
        mem_free(seen);
        mem_free(text_of);
    }
    dataset_close(held);
    dataset_close(d);
    dataset_close(whole);
    str_free(&text);
    tokenizer_close(t);
}
