/* test_tokenizer.c - ids and texts against those of the Hugging Face library (tests/data/tok_*, made by
 * tools/make_tokenizer_fixtures.py), round trips, and files that must be refused. */
#include <jansson.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/threads.h"
#include "data/tokenizer.h"
#include "tests/test.h"

static bool same_ids(const TokenIds *got, const json_t *want) {
    bool same = got->n == (int64_t)json_array_size(want);
    for (int64_t i = 0; i < got->n && same; i++)
        same = got->ids[i] == json_integer_value(json_array_get(want, (size_t)i));
    return same;
}

static bool encode_is(const Tokenizer *t, const json_t *text, int flags, const json_t *want) {
    TokenIds ids = {0};
    Err e = {0};
    bool ok = tokenizer_encode(t, &ids, json_string_value(text), (int64_t)json_string_length(text), flags, &e);
    ok = ok && same_ids(&ids, want);
    token_ids_free(&ids);
    return ok;
}

static bool decode_is(const Tokenizer *t, const json_t *ids, bool skip_special, const json_t *want) {
    TokenIds list = {0};
    Str text = {0};
    Err e = {0};
    for (size_t i = 0; i < json_array_size(ids); i++)
        token_ids_add(&list, (int32_t)json_integer_value(json_array_get(ids, i)));
    bool ok = tokenizer_decode(t, &text, list.ids, list.n, skip_special, &e);
    ok = ok && text.len == (int64_t)json_string_length(want) &&
         !memcmp(str_text(&text), json_string_value(want), (size_t)text.len);
    token_ids_free(&list);
    str_free(&text);
    return ok;
}

/* Compares with every line of a JSONL file; returns how many lines had a text. */
static int check_vectors(const Tokenizer *t, const char *path) {
    Err e = {0};
    Str file = {0};
    int checked = 0;
    EXPECT_OK(file_read(path, &file, 0, &e));
    for (int64_t from = 0; from < file.len;) {
        const char *end = memchr(file.data + from, '\n', (size_t)(file.len - from));
        int64_t to = end ? end - file.data : file.len;
        json_t *line = json_loadb(file.data + from, (size_t)(to - from), JSON_ALLOW_NUL, NULL);
        const json_t *text = json_object_get(line, "text"), *special = json_object_get(line, "with_special");
        bool ok = line != NULL;
        if (text) ok = encode_is(t, text, TOKENIZE_PLAIN, json_object_get(line, "ids"));
        if (special)
            ok = ok && encode_is(t, text, TOKENIZE_ADD_SPECIAL, special) &&
                 decode_is(t, special, false, json_object_get(line, "decoded")) &&
                 decode_is(t, special, true, json_object_get(line, "decoded_plain"));
        if (!EXPECT(ok)) test_note("    %s: %.*s", path, (int)MIN2(to - from, 200), file.data + from);
        checked += text != NULL;
        json_decref(line);
        from = to + 1;
    }
    str_free(&file);
    return checked;
}

static Tokenizer *open_fixture(const char *name) {
    Tokenizer *t = NULL;
    Err e = {0};
    char path[256];
    snprintf(path, sizeof path, "tests/data/tok_%s", name);
    EXPECT_OK(tokenizer_open(&t, path, &e));
    return t;
}

static void check_fixture(const char *name) {
    Tokenizer *t = open_fixture(name);
    char path[256];
    snprintf(path, sizeof path, "tests/data/tok_%s/expected.jsonl", name);
    if (t) EXPECT(check_vectors(t, path) > 35);
    tokenizer_close(t);
}

TEST(tokenizer_llama2_style) {
    check_fixture("llama2");
}
TEST(tokenizer_mistral_style) {
    check_fixture("mistral");
}
TEST(tokenizer_llama3_style) {
    check_fixture("llama3");
}
TEST(tokenizer_smollm2_style) {
    check_fixture("smollm2");
}
TEST(tokenizer_odd_parts) {
    check_fixture("odd");
}

TEST(tokenizer_qwen_vectors) {
    const char *vectors = test_assets("token-vectors/qwen2.5.jsonl");
    if (!vectors) return;
    char path[1024];
    snprintf(path, sizeof path, "%s", vectors);
    const char *folder = test_assets("tokenizer-qwen2.5");
    Tokenizer *t = NULL;
    Err e = {0};
    if (!folder) return;
    EXPECT_OK(tokenizer_open(&t, folder, &e));
    if (!t) return;
    EXPECT(check_vectors(t, path) == 330);
    EXPECT(tokenizer_vocab_size(t) == 151665);
    EXPECT(tokenizer_eos(t) == 151645 && tokenizer_pad(t) == 151643 && tokenizer_bos(t) == -1);
    EXPECT_STR(tokenizer_piece(t, 151644), "<|im_start|>");
    EXPECT(tokenizer_bytes(t) < 12 << 20);
    tokenizer_close(t);
}

/* ---- round trips ---- */

/* A random valid text: mostly ASCII, some of everything. */
static void draw_text(Str *out, uint64_t key, int characters) {
    static const char *const parts[] = {
        "<|im_end|>", "  ", "\n\n", "'ll", "\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa7", "e\xcc\x81"};
    str_clear(out);
    for (int i = 0; i < characters; i++) {
        uint32_t kind = rng_u32(key, (uint64_t)i * 2), pick = rng_u32(key, (uint64_t)i * 2 + 1);
        uint32_t limit = kind % 8 < 5 ? 0x7f : kind % 8 == 5 ? 0x7ff : kind % 8 == 6 ? 0xd7ff : 0x10ffff;
        uint32_t c = pick % (limit + 1);
        if (c >= 0xd800 && c < 0xe000) c = ' ';
        char b[4] = {(char)c};
        int n = 1;
        if (c >= 0x10000) {
            b[0] = (char)(0xf0 | c >> 18), b[1] = (char)(0x80 | (c >> 12 & 63)),
            b[2] = (char)(0x80 | (c >> 6 & 63));
            b[3] = (char)(0x80 | (c & 63)), n = 4;
        } else if (c >= 0x800) {
            b[0] = (char)(0xe0 | c >> 12), b[1] = (char)(0x80 | (c >> 6 & 63)), b[2] = (char)(0x80 | (c & 63)),
            n = 3;
        } else if (c >= 0x80) {
            b[0] = (char)(0xc0 | c >> 6), b[1] = (char)(0x80 | (c & 63)), n = 2;
        }
        str_add_bytes(out, b, n);
        if (kind >> 28 == 0) str_add(out, parts[(kind >> 8) % (unsigned)COUNT_OF(parts)]);
    }
}

static void check_round_trips(const Tokenizer *t, int texts) {
    Str text = {0}, back = {0};
    TokenIds ids = {0};
    Err e = {0};
    for (int i = 0; i < texts; i++) {
        draw_text(&text, rng_fold(41, (uint64_t)i), 1 + i % 60);
        ids.n = 0;
        str_clear(&back);
        EXPECT_OK(tokenizer_encode(t, &ids, text.data, text.len,
                                   i % 2 ? TOKENIZE_NO_SPECIAL_PARSE : TOKENIZE_PLAIN, &e));
        EXPECT_OK(tokenizer_decode(t, &back, ids.ids, ids.n, false, &e));
        EXPECT(back.len == text.len && !memcmp(back.data, text.data, (size_t)text.len));
    }
    str_free(&text);
    str_free(&back);
    token_ids_free(&ids);
}

TEST(tokenizer_byte_level_round_trips) {
    Tokenizer *t = open_fixture("smollm2");
    if (t) check_round_trips(t, 500);
    tokenizer_close(t);
}

TEST(tokenizer_gpt2_round_trips) {
    const char *folder = test_assets("tokenizer-gpt2");
    Tokenizer *t = NULL;
    Err e = {0};
    if (!folder) return;
    EXPECT_OK(tokenizer_open(&t, folder, &e));
    if (t) check_round_trips(t, 500);
    tokenizer_close(t);
}

static bool encodes_same(const Tokenizer *t, const char *a, int64_t a_bytes, const char *b, int flags) {
    TokenIds x = {0}, y = {0};
    Err e = {0};
    bool ok = tokenizer_encode(t, &x, a, a_bytes, flags, &e) &&
              tokenizer_encode(t, &y, b, (int64_t)strlen(b), flags, &e);
    ok = ok && x.n == y.n && x.n > 0 && !memcmp(x.ids, y.ids, (size_t)x.n * sizeof *x.ids);
    token_ids_free(&x);
    token_ids_free(&y);
    return ok;
}

TEST(tokenizer_replaces_invalid_utf8) {
    static const struct {
        const char *bytes, *meant;
    } cases[] = {
        {"a\xff"
         "b",
         "a\xef\xbf\xbd"
         "b"},
        {"\xe4\xb8", "\xef\xbf\xbd"}, /* cut short: one */
        {"\xe4\xb8z", "\xef\xbf\xbdz"},
        {"\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd"},                 /* overlong */
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, /* a surrogate */
        {"\xf0\x9f\x98", "\xef\xbf\xbd"},
        {"\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, /* beyond Unicode */
        {"\x80 ok", "\xef\xbf\xbd ok"},
    };
    Tokenizer *t = open_fixture("smollm2");
    for (int i = 0; i < COUNT_OF(cases) && t; i++)
        EXPECT(encodes_same(t, cases[i].bytes, (int64_t)strlen(cases[i].bytes), cases[i].meant, TOKENIZE_PLAIN));
    tokenizer_close(t);
}

TEST(tokenizer_decodes_cut_characters) {
    Tokenizer *t = open_fixture("smollm2");
    TokenIds ids = {0};
    Str text = {0};
    Err e = {0};
    if (!t) return;
    EXPECT_OK(tokenizer_encode(t, &ids, "\xf0\x9f\xa6\x99", 4, TOKENIZE_PLAIN, &e));
    EXPECT(ids.n == 4);
    EXPECT_OK(tokenizer_decode(t, &text, ids.ids, 3, false, &e));
    EXPECT_STR(str_text(&text), "\xef\xbf\xbd");
    token_ids_free(&ids);
    str_free(&text);
    tokenizer_close(t);
}

TEST(tokenizer_special_tokens_as_plain_text) {
    Tokenizer *t = open_fixture("smollm2");
    TokenIds ids = {0};
    Err e = {0};
    if (!t) return;
    const char *text = "a<|im_end|>";
    EXPECT_OK(tokenizer_encode(t, &ids, text, (int64_t)strlen(text), TOKENIZE_PLAIN, &e));
    EXPECT(ids.n == 2 && ids.ids[1] == tokenizer_id(t, "<|im_end|>"));
    ids.n = 0;
    EXPECT_OK(tokenizer_encode(t, &ids, text, (int64_t)strlen(text), TOKENIZE_NO_SPECIAL_PARSE, &e));
    EXPECT(ids.n > 5);
    for (int64_t i = 0; i < ids.n; i++) EXPECT(ids.ids[i] != tokenizer_id(t, "<|im_end|>"));
    token_ids_free(&ids);
    tokenizer_close(t);
}

TEST(tokenizer_long_runs) {
    enum { LONG = 300000 };
    static const char *const runs[] = {"a", " ", "\n", "=", "1", "\xe4\xb8\xad", "ab "};
    static const char *const styles[] = {"smollm2", "llama2", "llama3"};
    Str text = {0}, back = {0};
    TokenIds ids = {0};
    Err e = {0};
    for (int s = 0; s < COUNT_OF(styles); s++) {
        Tokenizer *t = open_fixture(styles[s]);
        for (int i = 0; i < COUNT_OF(runs) && t; i++) {
            str_clear(&text);
            str_clear(&back);
            ids.n = 0;
            while (text.len < LONG) str_add(&text, runs[i]);
            EXPECT_OK(tokenizer_encode(t, &ids, text.data, text.len, TOKENIZE_PLAIN, &e));
            EXPECT_OK(tokenizer_decode(t, &back, ids.ids, ids.n, false, &e));
            EXPECT(back.len == text.len && !memcmp(back.data, text.data, (size_t)text.len));
        }
        tokenizer_close(t);
    }
    str_free(&text);
    str_free(&back);
    token_ids_free(&ids);
}

/* ---- several threads ---- */

typedef struct Shared {
    const Tokenizer *t;
    const Str *text;
    TokenIds ids[16];
} Shared;

static void encode_tile(void *context, int64_t tile, int worker) {
    Shared *s = context;
    Err e = {0};
    (void)worker;
    (void)tokenizer_encode(s->t, &s->ids[tile], s->text->data, s->text->len, TOKENIZE_ADD_SPECIAL, &e);
}

TEST(tokenizer_threads_agree) {
    Shared s = {.t = open_fixture("llama3")};
    if (!s.t) return;
    Threads *team = NULL;
    Str text = {0}, part = {0};
    Err e = {0};
    EXPECT_OK(threads_open(&team, 4, &e));
    for (int i = 0; i < 200; i++) {
        draw_text(&part, rng_fold(5, (uint64_t)i), 40);
        str_add(&text, " river lighthouse 2024 ");
        str_add_bytes(&text, part.data, part.len);
    }
    s.text = &text;
    threads_for(team, COUNT_OF(s.ids), encode_tile, &s);
    for (int i = 0; i < COUNT_OF(s.ids); i++) {
        EXPECT(s.ids[i].n > 1000 && s.ids[i].n == s.ids[0].n);
        if (s.ids[i].n == s.ids[0].n)
            EXPECT(!memcmp(s.ids[i].ids, s.ids[0].ids, (size_t)s.ids[0].n * sizeof(int32_t)));
    }
    for (int i = 0; i < COUNT_OF(s.ids); i++) token_ids_free(&s.ids[i]);
    threads_close(team);
    str_free(&text);
    str_free(&part);
    tokenizer_close((Tokenizer *)s.t);
}

/* ---- questions ---- */

static const char *write_tmp(const char *name, const char *text, int64_t bytes) {
    static char path[256];
    Err e = {0};
    snprintf(path, sizeof path, "%s/%s", test_tmp(), name);
    EXPECT_OK(file_write_all(path, text, bytes, &e));
    return path;
}

#define MODEL(fields)                                                                                         \
    "\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2, \"\\u0120\": 3}, \"merges\": " \
    "[\"a b\"]" fields "}"

TEST(tokenizer_answers_questions) {
    static const char json[] =
        "{\"added_tokens\": [{\"id\": 7, \"content\": \"<end>\", \"special\": true}], " MODEL("") "}";
    static const char config[] =
        "{\"bos_token\": null, \"eos_token\": {\"content\": \"<end>\"}, \"pad_token\": \"ab\"}";
    Tokenizer *t = NULL;
    TokenIds ids = {0};
    Str text = {0};
    Err e = {0};
    write_tmp("tokenizer_config.json", config, (int64_t)strlen(config));
    EXPECT_OK(
        tokenizer_open(&t, write_tmp("tokenizer.json", json, (int64_t)strlen(json)), &e)); /* the file itself */
    if (!t) return;
    EXPECT(tokenizer_vocab_size(t) == 8);
    EXPECT(tokenizer_id(t, "ab") == 2 && tokenizer_id(t, "<end>") == 7 && tokenizer_id(t, "zz") == -1);
    EXPECT_STR(tokenizer_piece(t, 3), "\xc4\xa0");
    EXPECT(!tokenizer_piece(t, 5) && !tokenizer_piece(t, -1) && !tokenizer_piece(t, 8));
    EXPECT(tokenizer_bos(t) == -1 && tokenizer_eos(t) == 7 && tokenizer_pad(t) == 2);
    EXPECT(tokenizer_bytes(t) > 0);
    EXPECT_OK(tokenizer_encode(t, &ids, "abaz<end>b", 10, TOKENIZE_PLAIN, &e)); /* z is nothing: left out */
    EXPECT(ids.n == 4 && ids.ids[0] == 2 && ids.ids[1] == 0 && ids.ids[2] == 7 && ids.ids[3] == 1);
    EXPECT_OK(tokenizer_decode(t, &text, ids.ids, ids.n, true, &e)); /* no decoder: pieces side by side */
    EXPECT_STR(str_text(&text), "ab a b");
    EXPECT(!tokenizer_decode(t, &text, (int32_t[]){5}, 1, false, &e) && strstr(e.text, "id 5"));
    EXPECT(!tokenizer_decode(t, &text, (int32_t[]){-1}, 1, false, &e));
    EXPECT(!tokenizer_decode(t, &text, (int32_t[]){8}, 1, false, &e));
    EXPECT_STR(str_text(&text), "ab a b");
    token_ids_free(&ids);
    str_free(&text);
    tokenizer_close(t);
}

TEST(tokenizer_refusal_leaves_the_ids_as_they_were) {
    static const char json[] = "{" MODEL(", \"unk_token\": \"<unk>\"") "}";
    Tokenizer *t = NULL;
    TokenIds ids = {0};
    Err e = {0};
    EXPECT_OK(tokenizer_open(&t, write_tmp("tokenizer.json", json, (int64_t)strlen(json)), &e));
    if (!t) return;
    token_ids_add(&ids, 77);
    EXPECT(!tokenizer_encode(t, &ids, "abz", 3, TOKENIZE_PLAIN, &e) && strstr(e.text, "unknown token"));
    EXPECT(ids.n == 1 && ids.ids[0] == 77);
    token_ids_free(&ids);
    tokenizer_close(t);
}

/* ---- parts, one by one: small files whose pieces tell where the text was cut ---- */

static void expect_ids(const char *json, const char *text, const char *pieces) {
    Tokenizer *t = NULL;
    TokenIds ids = {0};
    Str got = {0};
    Err e = {0};
    EXPECT_OK(tokenizer_open(&t, write_tmp("tokenizer.json", json, (int64_t)strlen(json)), &e));
    for (int turn = 0; turn < 2 && t; turn++) { /* the second time it may remember */
        ids.n = 0;
        str_clear(&got);
        EXPECT_OK(tokenizer_encode(t, &ids, text, (int64_t)strlen(text), TOKENIZE_PLAIN, &e));
        for (int64_t i = 0; i < ids.n; i++) str_addf(&got, i ? "|%s" : "%s", tokenizer_piece(t, ids.ids[i]));
        EXPECT_STR(str_text(&got), pieces);
    }
    token_ids_free(&ids);
    str_free(&got);
    tokenizer_close(t);
}

#define WHOLE(part, vocab) \
    "{" part ", \"model\": {\"type\": \"BPE\", \"ignore_merges\": true, \"vocab\": {" vocab "}, \"merges\": []}}"

TEST(tokenizer_split_behaviors) {
    static const struct {
        const char *behavior, *plain, *inverted;
    } cases[] = {
        {"Isolated", "a|-|-|b|-|c|-", "a|-|-|b|-|c|-"},      {"Removed", "a|b|c", "-|-|-|-"},
        {"MergedWithPrevious", "a-|-|b-|c-", "a|-|-b|-c|-"}, {"MergedWithNext", "a|-|-b|-c|-", "a-|-|b-|c-"},
        {"Contiguous", "a|--|b|-|c|-", "a|--|b|-|c|-"},
    };
    for (int i = 0; i < 2 * COUNT_OF(cases); i++) {
        char json[800];
        snprintf(
            json, sizeof json,
            WHOLE("\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"%s\": \"-\"}, \"behavior\": \"%s\", "
                  "\"invert\": %s}",
                  "\"a\": 0, \"b\": 1, \"c\": 2, \"-\": 3, \"a-\": 4, \"b-\": 5, \"c-\": 6, \"-b\": 7, \"-c\": 8, "
                  "\"--\": 9"),
            i % 4 < 2 ? "String" : "Regex", cases[i / 2].behavior, i % 2 ? "true" : "false");
        expect_ids(json, "a--b-c-", i % 2 ? cases[i / 2].inverted : cases[i / 2].plain);
    }
}

TEST(tokenizer_newer_letters_are_letters) { /* U+323A0 and U+1E4D0 came with Unicode 15; PCRE2 may be older */
    static const char json[] = WHOLE(
        "\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"\\\\p{L}+|\\\\s\"}, "
        "\"behavior\": \"Isolated\"}",
        "\"x\": 0, \"\\ud888\\udfa0\": 1, \"\\ud839\\udcd0\": 2, \"x\\ud888\\udfa0\": 3, "
        "\"\\ud839\\udcd0x\": 4, \" \": 5, \"-\": 6");
    expect_ids(json, "x\xf0\xb2\x8e\xa0 \xf0\x9e\x93\x90x-x", "x\xf0\xb2\x8e\xa0| |\xf0\x9e\x93\x90x|-|x");
}

TEST(tokenizer_whole_pieces_that_merging_does_not_make) {
    static const char merged[] =
        "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2, \"ab\": 3, "
        "\"bc\": 4, \"abc\": 5}, \"merges\": [\"a b\", \"b c\"]}}";
    expect_ids(merged, "abc", "ab|c");
    static const char whole[] =
        WHOLE("\"version\": \"1.0\"", "\"a\": 0, \"b\": 1, \"c\": 2, \"ab\": 3, \"abc\": 5");
    expect_ids(whole, "abc", "abc");
}

#define MARK "\\u2581"
#define M "\xe2\x96\x81"

TEST(tokenizer_marks_inside_pieces) {
    static const char runs[] =
        "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"" MARK "\": 1, \"" MARK MARK "\": 2, \"" MARK
        "a\": 3}, \"merges\": [\"" MARK " " MARK "\", \"" MARK " a\"]}}";
    expect_ids(runs, "a" M M "a" M "a" M M M "a", "a|" M M "|a|" M "a|" M M "|" M "a");
    static const char crossing[] = "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"" MARK
                                   "\": 1, \"a" MARK "\": 2}, \"merges\": [[\"a\", \"" MARK "\"]]}}";
    expect_ids(crossing, "a" M "a" M "a", "a" M "|a" M "|a");
}

TEST(tokenizer_added_tokens_take_space_along) {
    static const char json[] =
        "{\"added_tokens\": ["
        "{\"id\": 5, \"content\": \"<l>\", \"lstrip\": true}, {\"id\": 6, \"content\": \"<r>\", \"rstrip\": "
        "true}, "
        "{\"id\": 7, \"content\": \"ab\", \"single_word\": true}, {\"id\": 9, \"content\": \"aa\"}],"
        "\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \" \": 2, \"aa\": 3}, \"merges\": []}}";
    expect_ids(json, "a <l> b", "a|<l>| |b");
    expect_ids(json, "a <r> \t b", "a| |<r>|b");
    expect_ids(json, "<r>  <l>", "<r>|<l>");
    expect_ids(json, "ab abb ab", "ab| |a|b|b| |ab");
    expect_ids(json, "baa", "b|aa"); /* in the vocabulary already: its id there is the one */
}

/* ---- files that are refused ---- */

static void expect_refused(const char *json, const char *word) {
    Tokenizer *t = NULL;
    Err e = {0};
    bool opened = tokenizer_open(&t, write_tmp("tokenizer.json", json, (int64_t)strlen(json)), &e);
    if (!EXPECT(!opened && strstr(e.text, word))) test_note("    %.100s: \"%s\" lacks \"%s\"", json, e.text, word);
    tokenizer_close(t);
}

#define VOCAB(v, m) "{\"model\": {\"type\": \"BPE\", \"vocab\": " v ", \"merges\": " m "}}"
#define PART(key, value) "{\"" key "\": " value ", " MODEL("") "}"

TEST(tokenizer_refuses_malformed_files) {
    static const struct {
        const char *json, *word;
    } cases[] = {
        {"", "line"},
        {"[]", "not a JSON object"},
        {"{\"version\": \"1.0\"}", "model"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0", "line"},
        {"{\"model\": 3}", "model"},
        {"{\"model\": {\"type\": \"BPE\", \"merges\": []}}", "vocab"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {}}}", "merges"},
        {"{\"model\": {}, \"model\": {}}", "duplicate"},
        {"{\"model\": {\"type\": \"WordPiece\", \"vocab\": {}, \"merges\": []}}", "WordPiece"},
        {VOCAB("[]", "[]"), "vocab"},
        {VOCAB("{}", "{}"), "merges"},
        {VOCAB("{\"a\" 0}", "[]"), "entry 0"},
        {VOCAB("{\"a\": 0 \"b\": 1}", "[]"), "comma"},
        {VOCAB("{\"a\": 0,}", "[]"), "entry 1"},
        {VOCAB("{\"a\": -1}", "[]"), "entry 0"},
        {VOCAB("{\"a\": 01}", "[]"), "entry 0"},
        {VOCAB("{\"a\": 1.5}", "[]"), "comma"},
        {VOCAB("{\"a\": \"0\"}", "[]"), "entry 0"},
        {VOCAB("{\"a\": 99999999999999999999}", "[]"), "id 99999"},
        {VOCAB("{\"a\": 2000000000}", "[]"), "id 2000000000"},
        {VOCAB("{\"a\": 0, \"b\": 0}", "[]"), "same id"},
        {VOCAB("{\"a\": 0, \"a\": 1}", "[]"), "twice"},
        {VOCAB("{\"a\\u0000\": 0}", "[]"), "entry 0"},
        {VOCAB("{\"\\ud800\": 0}", "[]"), "entry 0"},
        {VOCAB("{\"\\ud800\\u0041\": 0}", "[]"), "entry 0"},
        {VOCAB("{\"\\x\": 0}", "[]"), "entry 0"},
        {VOCAB("{\"a\nb\": 0}", "[]"), "entry 0"},
        {VOCAB("{\"a\": 0}", "[\"a b\"]"), "merge 0"},
        {VOCAB("{\"a\": 0, \"b\": 1}", "[\"a b\"]"), "merge 0"},
        {VOCAB("{\"a\": 0}", "[\"a\"]"), "merge 0"},
        {VOCAB("{\"a\": 0}", "[\"a a a\"]"), "merge 0"},
        {VOCAB("{\"a\": 0}", "[[\"a\"]]"), "merge 0"},
        {VOCAB("{\"a\": 0}", "[[\"a\", \"a\", \"a\"]]"), "merge 0"},
        {VOCAB("{\"a\": 0}", "[7]"), "merge 0"},
        {VOCAB("{\"a\": 0, \"aa\": 1}", "[\"a a\" \"a a\"]"), "comma"},
        {VOCAB("{\"\xff\": 0}", "[]"), "UTF-8"},
        {PART("added_tokens", "{}"), "added_tokens"},
        {PART("added_tokens", "[{\"id\": 9}]"), "content"},
        {PART("added_tokens", "[{\"content\": \"x\"}]"), "id"},
        {PART("added_tokens", "[{\"content\": \"x\", \"id\": 2}]"), "same id"},
        {PART("added_tokens", "[{\"content\": \"x\", \"id\": -4}]"), "id"},
        {PART("added_tokens", "[{\"content\": \"x\", \"id\": 9000000000}]"), "9000000000"},
        {PART("added_tokens", "[{\"content\": \"x\", \"id\": 9, \"lstrip\": 1}]"), "lstrip"},
        {"{" MODEL(", \"dropout\": 0.1") "}", "dropout"},
        {"{" MODEL(", \"unk_token\": 3") "}", "unk_token"},
        {"{" MODEL(", \"byte_fallback\": \"yes\"") "}", "byte_fallback"},
        {"{" MODEL(", \"end_of_word_suffix\": \"</w>\"") "}", "end_of_word_suffix"},
    };
    for (int i = 0; i < COUNT_OF(cases); i++) expect_refused(cases[i].json, cases[i].word);
}

TEST(tokenizer_refuses_what_it_does_not_know) {
    static const struct {
        const char *json, *word;
    } cases[] = {
        {PART("normalizer", "{\"type\": \"Precompiled\"}"), "Precompiled"},
        {PART("normalizer", "{\"type\": \"Sequence\"}"), "normalizers"},
        {PART("normalizer", "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Nmt\"}]}"), "Nmt"},
        {PART("normalizer", "{\"type\": \"Replace\", \"pattern\": {\"String\": \"\"}, \"content\": \"\"}"),
         "pattern"},
        {PART("pre_tokenizer", "{\"type\": \"BertPreTokenizer\"}"), "BertPreTokenizer"},
        {PART("pre_tokenizer",
              "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"a\"}, \"behavior\": \"Sideways\"}"),
         "Sideways"},
        {PART("pre_tokenizer",
              "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"(a\"}, \"behavior\": \"Isolated\"}"),
         "(a"},
        {PART("pre_tokenizer", "{\"type\": \"Metaspace\", \"replacement\": \"_\", \"prepend_scheme\": \"last\"}"),
         "last"},
        {PART("pre_tokenizer", "{\"type\": \"Metaspace\"}"), "replacement"},
        {PART("pre_tokenizer",
              "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"ByteLevel\"}, {\"type\": \"Digits\"}]}"),
         "Digits"},
        {PART("post_processor", "{\"type\": \"BertProcessing\"}"), "BertProcessing"},
        {PART("post_processor", "{\"type\": \"TemplateProcessing\", \"single\": []}"), "no place"},
        {PART("post_processor",
              "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"x\"}}]}"),
         "\"x\""},
        {PART("post_processor",
              "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"x\"}}], "
              "\"special_tokens\": {\"x\": {\"ids\": [400]}}}"),
         "no token has"},
        {PART("decoder", "{\"type\": \"WordPiece\"}"), "WordPiece"},
        {PART("decoder", "{\"type\": \"Strip\", \"content\": \" \", \"start\": -1, \"stop\": 0}"), "start"},
    };
    for (int i = 0; i < COUNT_OF(cases); i++) expect_refused(cases[i].json, cases[i].word);
    Str many = {0};
    str_add(&many, "{\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [");
    for (int i = 0; i < 40; i++) str_add(&many, i ? ", {\"type\": \"NFC\"}" : "{\"type\": \"NFC\"}");
    str_add(&many, "]}, " MODEL("") "}");
    expect_refused(many.data, "steps");
    str_free(&many);
}

TEST(tokenizer_refuses_patterns_read_differently) {
    static const char *const patterns[] = {"\\\\bfoo",    "[a&&b]",   "[[:alpha:]]", "\\\\h",      "a{,3}",
                                           "a{1,3}+",     "a{2}?",    "(?m:a)",      "(?s)a",      "(?<n>a)",
                                           "(*FAIL)",     "(a)\\\\1", "[\\\\W]",     "[\\\\P{L}]", "\\\\xff",
                                           "\\\\p{Nope}", "\\\\pL",   "[]a]",        "\\\\"};
    for (int i = 0; i < COUNT_OF(patterns); i++) {
        char json[400];
        snprintf(json, sizeof json,
                 PART("pre_tokenizer",
                      "{\"type\": \"Split\", \"behavior\": \"Isolated\", \"pattern\": {\"Regex\": \"%s\"}}"),
                 patterns[i]);
        expect_refused(json, "pattern");
    }
}

/* Changes bytes of a good file in many ways: it opens or is refused, and what opens can be used. */
TEST(tokenizer_survives_damaged_files) {
    static const char *const styles[] = {"llama3", "odd"};
    static const char damage[] = "\"{}[]:,\\0 9-x\x01\xff";
    Str file = {0}, text = {0};
    TokenIds ids = {0};
    int opened = 0, refused = 0;
    for (int s = 0; s < COUNT_OF(styles); s++) {
        char path[256];
        Err e = {0};
        snprintf(path, sizeof path, "tests/data/tok_%s/tokenizer.json", styles[s]);
        str_clear(&file);
        EXPECT_OK(file_read(path, &file, 0, &e));
        for (int i = 0; i < 200 && file.len; i++) {
            uint64_t key = rng_fold(rng_fold(9, (uint64_t)s), (uint64_t)i);
            int64_t bytes = i % 3 == 0 ? rng_u32(key, 0) % file.len : file.len;
            int64_t at = rng_u32(key, 1) % MIN2(bytes + 1, i % 2 ? 1500 : bytes + 1);
            char before = file.data[at];
            file.data[at] = damage[rng_u32(key, 2) % (sizeof damage - 1)];
            Tokenizer *t = NULL;
            bool ok = tokenizer_open(&t, write_tmp("tokenizer.json", file.data, bytes), &e);
            EXPECT(ok || e.text[0]);
            if (ok) {
                ids.n = 0;
                str_clear(&text);
                if (tokenizer_encode(t, &ids, "The river, 12 Big Word", 22, TOKENIZE_ADD_SPECIAL, &e))
                    EXPECT_OK(tokenizer_decode(t, &text, ids.ids, ids.n, false, &e));
            }
            opened += ok;
            refused += !ok;
            tokenizer_close(t);
            file.data[at] = before;
        }
    }
    EXPECT(opened > 20 && refused > 150);
    str_free(&file);
    str_free(&text);
    token_ids_free(&ids);
}

/* ---- llama2.c ---- */

typedef struct Scored { /* llama2.c's way to encode, written down plainly: the reference */
    char *piece[600];
    float score[600];
    int n;
} Scored;

static int scored_find(const Scored *s, const char *text) {
    for (int i = 0; i < s->n; i++)
        if (!strcmp(s->piece[i], text)) return i;
    return -1;
}

static void scored_encode(const Scored *s, TokenIds *ids, const char *text) {
    token_ids_add(ids, 1);
    if (*text) token_ids_add(ids, scored_find(s, " "));
    for (const char *at = text; *at;) {
        char one[5] = {*at++};
        for (int i = 1; i < 4 && (*at & 0xc0) == 0x80; i++) one[i] = *at++;
        int id = scored_find(s, one);
        if (id >= 0) token_ids_add(ids, id);
        for (int i = 0; one[i] && id < 0; i++) token_ids_add(ids, (unsigned char)one[i] + 3);
    }
    for (;;) {
        float best_score = -1e10f;
        int64_t best = -1;
        int best_id = -1;
        for (int64_t i = 1; i + 1 < ids->n; i++) {
            char joined[128];
            snprintf(joined, sizeof joined, "%s%s", s->piece[ids->ids[i]], s->piece[ids->ids[i + 1]]);
            int id = scored_find(s, joined);
            if (id < 0 || s->score[id] <= best_score) continue;
            best_score = s->score[id];
            best = i;
            best_id = id;
        }
        if (best < 0) return;
        ids->ids[best] = best_id;
        memmove(ids->ids + best + 1, ids->ids + best + 2, (size_t)(ids->n - best - 2) * sizeof *ids->ids);
        ids->n--;
    }
}

static void scored_add(Scored *s, Str *bin, const char *piece, float score) {
    int32_t n = (int32_t)strlen(piece);
    str_add_bytes(bin, (const char *)&score, 4);
    str_add_bytes(bin, (const char *)&n, 4);
    str_add_bytes(bin, piece, n);
    s->piece[s->n] = mem_strdup(piece);
    s->score[s->n++] = score;
}

static void scored_free(Scored *s) {
    for (int i = 0; i < s->n; i++) mem_free(s->piece[i]);
}

/* A tokenizer .bin with pieces of an own making; scores fall in an order that is not the order of ids. */
static void scored_make(Scored *s, Str *bin) {
    static const char *const pieces[] = {" ",
                                         "a",
                                         "b",
                                         "n",
                                         "d",
                                         "e",
                                         "t",
                                         "h",
                                         ".",
                                         "\xc3\xa9",
                                         " a",
                                         "an",
                                         "nd",
                                         "the",
                                         "th",
                                         "he",
                                         " an",
                                         "and",
                                         " and",
                                         " t",
                                         " th",
                                         " the",
                                         ("\xc3\xa9"
                                          "e"),
                                         "aa",
                                         "aaa",
                                         "nt",
                                         "ent"};
    str_add_bytes(bin, "\x05\0\0\0", 4);
    scored_add(s, bin, "<unk>", 0);
    scored_add(s, bin, "\n<s>\n", 0);
    scored_add(s, bin, "\n</s>\n", 0);
    for (int b = 0; b < 256; b++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)b);
        scored_add(s, bin, name, 0);
    }
    for (int i = 0; i < COUNT_OF(pieces); i++)
        scored_add(s, bin, pieces[i], -(float)(i * 7 % COUNT_OF(pieces)) - 1);
}

static void check_scored(const Scored *s, const Tokenizer *t, const char *text) {
    TokenIds got = {0}, want = {0};
    Err e = {0};
    scored_encode(s, &want, text);
    EXPECT_OK(tokenizer_encode(t, &got, text, (int64_t)strlen(text),
                               TOKENIZE_ADD_SPECIAL | TOKENIZE_NO_SPECIAL_PARSE, &e));
    bool same = got.n == want.n && !memcmp(got.ids, want.ids, (size_t)got.n * sizeof *got.ids);
    if (!EXPECT(same)) test_note("    \"%.80s\"", text);
    token_ids_free(&got);
    token_ids_free(&want);
}

TEST(tokenizer_llama2c_merges_by_score) {
    Scored s = {0};
    Str bin = {0}, back = {0};
    Tokenizer *t = NULL;
    Err e = {0};
    char out[256];
    scored_make(&s, &bin);
    snprintf(out, sizeof out, "%s/out", test_tmp());
    EXPECT_OK(tokenizer_write_llama2c(write_tmp("tok.bin", bin.data, bin.len), s.n, out, &e));
    EXPECT_OK(tokenizer_open(&t, out, &e));
    for (int i = 0; i < 400 && t; i++) {
        static const char *const letters[] = {"a", "n", "d", " ",        "t", "h",
                                              "e", " ", ".", "\xc3\xa9", "z", "\xe4\xb8\xad"};
        char text[200] = "";
        for (uint32_t k = 0, n = rng_u32(3, (uint64_t)i) % 30; k < n; k++)
            strcat(text, letters[rng_u32(rng_fold(4, (uint64_t)i), k) % (unsigned)COUNT_OF(letters)]);
        check_scored(&s, t, text);
    }
    if (t) EXPECT(tokenizer_bos(t) == 1 && tokenizer_eos(t) == 2 && tokenizer_vocab_size(t) == s.n);
    if (t)
        EXPECT_OK(tokenizer_decode(t, &back, (int32_t[]){1, scored_find(&s, " the"), 0xe4 + 3, 0xb8 + 3, 0xad + 3},
                                   5, true, &e));
    EXPECT_STR(str_text(&back), "the\xe4\xb8\xad");
    tokenizer_close(t);
    scored_free(&s);
    str_free(&bin);
    str_free(&back);
}

TEST(tokenizer_llama2c_refuses_bad_files) {
    Scored s = {0};
    Str bin = {0};
    Err e = {0};
    char out[256];
    scored_make(&s, &bin);
    snprintf(out, sizeof out, "%s/out", test_tmp());
    EXPECT(!tokenizer_write_llama2c(write_tmp("tok.bin", bin.data, bin.len), s.n + 1, out, &e) &&
           strstr(e.text, "tok.bin"));
    EXPECT(!tokenizer_write_llama2c(write_tmp("tok.bin", bin.data, bin.len), s.n - 1, out, &e));
    EXPECT(!tokenizer_write_llama2c(write_tmp("tok.bin", bin.data, bin.len - 1), s.n, out, &e));
    EXPECT(!tokenizer_write_llama2c(write_tmp("tok.bin", bin.data, 3), 0, out, &e));
    EXPECT(!tokenizer_write_llama2c("/nowhere/tok.bin", 0, out, &e));
    for (int i = 0; i < 200; i++) { /* any byte may be wrong: refused or written, never a crash */
        int64_t at = rng_u32(6, (uint64_t)i) % bin.len;
        char before = bin.data[at];
        bin.data[at] = (char)rng_u32(7, (uint64_t)i);
        (void)tokenizer_write_llama2c(write_tmp("tok.bin", bin.data, bin.len), 0, out, &e);
        bin.data[at] = before;
    }
    EXPECT_OK(tokenizer_write_llama2c(write_tmp("tok.bin", bin.data, bin.len), 0, out, &e));
    scored_free(&s);
    str_free(&bin);
}

TEST(tokenizer_llama2c_stories) {
    const char *asset = test_assets("stories260K/tok512.bin");
    if (!asset) return;
    Scored s = {0};
    Str bin = {0}, copy = {0}, text = {0};
    Tokenizer *t = NULL;
    Err e = {0};
    char out[256];
    snprintf(out, sizeof out, "%s/out", test_tmp());
    EXPECT_OK(tokenizer_write_llama2c(asset, 512, out, &e));
    EXPECT_OK(tokenizer_open(&t, out, &e));
    EXPECT_OK(file_read(asset, &bin, 0, &e));
    for (int64_t at = 4; at + 8 <= bin.len;) {
        float score;
        int32_t n;
        char piece[64] = "";
        memcpy(&score, bin.data + at, 4);
        memcpy(&n, bin.data + at + 4, 4);
        memcpy(piece, bin.data + at + 8, (size_t)MIN2(n, 63));
        scored_add(&s, &copy, piece, score);
        at += 8 + n;
    }
    EXPECT(s.n == 512);
    asset = test_assets("text/tinystories_sample.txt");
    if (asset && t && EXPECT(file_read(asset, &text, 0, &e))) {
        char *rest = text.data;
        for (char *line; (line = strsep(&rest, "\n"));) check_scored(&s, t, line);
    }
    tokenizer_close(t);
    scored_free(&s);
    str_free(&bin);
    str_free(&copy);
    str_free(&text);
}
