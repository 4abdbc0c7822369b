/* test_stream.c - text in pieces gives the ids of the whole text, wherever it is cut, for every kind of tokenizer; and
 * takes memory by its longest word, not by its length. */
#include <stdlib.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "data/tokenizer.h"
#include "tests/data/tiny_data.h"
#include "tests/test.h"

static const char *const atoms[] = {"the ",
                                    " a",
                                    "hello",
                                    "World",
                                    " ",
                                    "  ",
                                    "   ",
                                    "\n",
                                    "\n\n",
                                    " \n",
                                    "\r\n",
                                    "\t",
                                    "1",
                                    "23",
                                    "4567",
                                    "!",
                                    "...",
                                    "'s",
                                    "'LL",
                                    "don't",
                                    "<|im_end|>",
                                    "<|im_start|>",
                                    "<|endoftext|>",
                                    "<s>",
                                    "</s>",
                                    "<|im_",
                                    "end|>",
                                    "<",
                                    "|>",
                                    "e\xcc\x81",
                                    "\xc3\xa9",
                                    "\xcc\x81",
                                    "\xe4\xb8\xad\xe6\x96\x87",
                                    "\xe2\x96\x81",
                                    "\xf0\x9f\x98\x80",
                                    "\xe1\x84\x80\xe1\x85\xa1\xe1\x86\xa8",
                                    "\xe2\x84\xaa",
                                    "\xef\xbc\xa1",
                                    "\xc2\xa0",
                                    "\xe3\x80\x80",
                                    "<unk>",
                                    "_x",
                                    "=====",
                                    "aaaaaaaaaaaaaaaaaaaaaaaa"};

static void draw(Str *text, uint64_t key, int n) {
    str_clear(text);
    for (int i = 0; i < n; i++) str_add(text, atoms[rng_u32(key, (uint64_t)i) % COUNT_OF(atoms)]);
}

/* Puts the text in pieces of up to `longest` bytes, cut anywhere, also inside characters. */
static void put_pieces(TokenStream *s, TokenIds *out, const Str *text, uint64_t key, int longest) {
    Err e = {0};
    for (int64_t at = 0, i = 0, n; at < text->len; at += n, i++) {
        n = MIN2(text->len - at, 1 + rng_u32(key, (uint64_t)i) % (uint32_t)longest);
        EXPECT_OK(token_stream_put(s, out, text->data + at, n, &e));
    }
    EXPECT_OK(token_stream_end(s, out, &e));
}

static bool same(const TokenIds *a, const TokenIds *b) {
    return a->n == b->n && (!a->n || !memcmp(a->ids, b->ids, (size_t)a->n * sizeof *a->ids));
}

static void check(const Tokenizer *t, const char *name, int texts, int atoms_each) {
    TokenStream *s = token_stream_open(t, TOKENIZE_PLAIN);
    TokenIds whole = {0}, pieces = {0};
    Str text = {0};
    Err e = {0};
    for (int i = 0; i < texts; i++) {
        uint64_t key = rng_fold(77, (uint64_t)i);
        draw(&text, key, 1 + (int)(rng_u32(key, 1u << 30) % (uint32_t)atoms_each));
        whole.n = pieces.n = 0;
        EXPECT_OK(tokenizer_encode(t, &whole, text.data, text.len, TOKENIZE_PLAIN, &e));
        put_pieces(s, &pieces, &text, key, i % 2 ? 7 : 5000);
        if (!EXPECT(same(&whole, &pieces))) {
            int64_t at = 0;
            while (at < whole.n && at < pieces.n && whole.ids[at] == pieces.ids[at]) at++;
            test_note("    %s, text %d: parts at id %lld of %lld and %lld", name, i, (long long)at, (long long)whole.n,
                      (long long)pieces.n);
            break;
        }
    }
    token_ids_free(&whole);
    token_ids_free(&pieces);
    str_free(&text);
    token_stream_close(s);
}

TEST(pieces_of_a_text_give_the_ids_of_the_whole) {
    static const char *const names[] = {"llama2", "llama3", "mistral", "odd", "smollm2"};
    for (int i = 0; i < COUNT_OF(names); i++) {
        Tokenizer *t = NULL;
        Err e = {0};
        char path[100];
        snprintf(path, sizeof path, "tests/data/tok_%s", names[i]);
        EXPECT_OK(tokenizer_open(&t, path, &e));
        if (!t) continue;
        check(t, names[i], 40, 60000); /* several parts each */
        check(t, names[i], 400, 60);
        tokenizer_close(t);
    }
    Tokenizer *spaced = tiny_spaced_tokenizer(), *tiny = tiny_tokenizer(true);
    EXPECT(token_stream_is_bounded(spaced) && token_stream_is_bounded(tiny));
    check(spaced, "spaced", 20, 60000);
    check(tiny, "tiny", 20, 60000);
    tokenizer_close(spaced);
    tokenizer_close(tiny);
}

TEST(pieces_of_real_text_give_the_ids_of_the_whole) {
    static const char *const folders[] = {"tokenizer-gpt2", "tokenizer-qwen2.5"};
    const char *path = test_assets("text/tinyshakespeare.txt");
    Str text = {0};
    Err e = {0};
    if (!path) return;
    EXPECT_OK(file_read(path, &text, 0, &e));
    for (int i = 0; i < COUNT_OF(folders); i++) {
        const char *folder = test_assets(folders[i]);
        Tokenizer *t = NULL;
        if (!folder) break;
        EXPECT_OK(tokenizer_open(&t, folder, &e));
        if (!t) continue;
        EXPECT(token_stream_is_bounded(t));
        TokenStream *s = token_stream_open(t, TOKENIZE_PLAIN);
        TokenIds whole = {0}, pieces = {0};
        EXPECT_OK(tokenizer_encode(t, &whole, text.data, text.len, TOKENIZE_PLAIN, &e));
        put_pieces(s, &pieces, &text, 3, 40000);
        EXPECT(same(&whole, &pieces));
        EXPECT(token_stream_bytes(s) < 1 << 20); /* of 1.1 MB */
        check(t, folders[i], 60, 60000);
        token_ids_free(&whole);
        token_ids_free(&pieces);
        token_stream_close(s);
        tokenizer_close(t);
    }
    str_free(&text);
}

TEST(a_word_that_would_take_too_much_memory_is_refused) {
    Tokenizer *t = tiny_tokenizer(false);
    TokenStream *s = token_stream_open(t, TOKENIZE_PLAIN);
    TokenIds ids = {0};
    Str text = {0};
    Err e = {0};
    while (text.len < 1 << 20) str_add(&text, "abcdefgh");
    token_stream_limit(s, 1 << 25);
    bool ok = token_stream_put(s, &ids, text.data, text.len, &e) && token_stream_end(s, &ids, &e);
    EXPECT(!ok && e.code == ERR_BUDGET && strstr(e.text, "1048576 bytes without a break"));
    token_stream_reset(s);
    ids.n = 0;
    EXPECT_OK(token_stream_put(s, &ids, "ab cd", 5, &e));
    EXPECT_OK(token_stream_end(s, &ids, &e));
    EXPECT(ids.n == 5);
    token_stream_limit(s, 1 << 27);
    EXPECT_OK(token_stream_put(s, &ids, text.data, text.len, &e));
    EXPECT_OK(token_stream_end(s, &ids, &e));
    EXPECT(ids.n == 5 + text.len);
    token_ids_free(&ids);
    str_free(&text);
    token_stream_close(s);
    tokenizer_close(t);
}
