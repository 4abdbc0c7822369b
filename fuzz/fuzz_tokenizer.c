/* fuzz_tokenizer.c - a tokenizer.json: what is accepted encodes any text to ids below its size, in pieces as in
 * one, and decodes them.
 *
 * The constant covers ids: even a small file may leave holes up to 2^20 (5 bytes an id, see tokenizer_vocab.c),
 * and a pattern may make PCRE2 take its own limits (20 MB for one match). */
#include <string.h>

#include "data/tokenizer.h"
#include "fuzz/fuzz.h"

static void use_pieces(const Tokenizer *t, const TokenIds *want, const char *text, int64_t bytes, int flags) {
    TokenStream *s = token_stream_open(t, flags);
    TokenIds ids = {0};
    Err e;
    bool ok = true;
    for (int64_t at = 0; ok && at < bytes; at += 7) ok = token_stream_put(s, &ids, text + at, MIN2(7, bytes - at), &e);
    if (ok && token_stream_end(s, &ids, &e))
        CHECK(ids.n == want->n && (!ids.n || !memcmp(ids.ids, want->ids, (size_t)ids.n * sizeof *ids.ids)));
    token_ids_free(&ids);
    token_stream_close(s);
}

static void use(const Tokenizer *t, const char *text, int64_t bytes, int flags) {
    TokenIds ids = {0};
    Str out = {0};
    Err e;
    if (tokenizer_encode(t, &ids, text, bytes, flags, &e)) {
        for (int64_t i = 0; i < ids.n; i++) CHECK(ids.ids[i] >= 0 && ids.ids[i] < tokenizer_vocab_size(t));
        CHECK_MSG(tokenizer_decode(t, &out, ids.ids, ids.n, false, &e), "%s", e.text);
        CHECK_MSG(tokenizer_decode(t, &out, ids.ids, ids.n, true, &e), "%s", e.text);
        if (!(flags & TOKENIZE_ADD_SPECIAL)) use_pieces(t, &ids, text, bytes, flags);
    }
    token_ids_free(&ids);
    str_free(&out);
}

FUZZ(tokenizer, 48 * MIB, 256) {
    static const char *const texts[] = {
        "", " ", "Hello, world!  it's 12345 \t\n\n done", "<s>a</s> <|x|>b",
        "gr\xc3\xb6\xc3\x9f \xe2\x96\x81x \xe4\xbd\xa0\xe5\xa5\xbd", "\xf0\x9f\x98\x80\xff\xc3 e\xcc\x81 \xef\xac\x81"};
    Tokenizer *t;
    Err e;
    if (!tokenizer_open(&t, fuzz_write("tokenizer.json", data, size), &e)) return;
    for (int i = 0; i < COUNT_OF(texts); i++)
        for (int flags = 0; flags < 4; flags++) use(t, texts[i], (int64_t)strlen(texts[i]), flags);
    use(t, (const char *)data, MIN2(size, 300), TOKENIZE_PLAIN);
    tokenizer_close(t);
}
