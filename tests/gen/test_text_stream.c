/* test_text_stream.c - an answer's text token by token: whole characters, stop strings across the borders of tokens,
 * and nothing handed on that a stop string takes back. */
#include "gen/text_stream.h"

#include "tests/data/tiny_data.h"
#include "tests/test.h"

static Tokenizer *open_words(void) {
    Err e = {0};
    Tokenizer *t = NULL;
    EXPECT_OK(tokenizer_open(&t, "tests/data/tok_smollm2", &e));
    return t;
}

/* Feeds the text's tokens one by one; gives how many were taken when it stopped (-1: it did not). */
static int64_t feed(TextStream *s, Str *streamed, const Tokenizer *t, const char *text, StopTexts stops) {
    Err e = {0};
    TokenIds ids = {0};
    int64_t bytes, taken = -1;
    bool stopped = false;
    EXPECT_OK(tokenizer_encode(t, &ids, text, (int64_t)strlen(text), TOKENIZE_PLAIN, &e));
    text_stream_clear(s);
    str_clear(streamed);
    for (int64_t n = 1; n <= ids.n && !stopped; n++) {
        EXPECT_OK(text_stream_add(s, &stopped, t, ids.ids, n, stops, n == ids.n, &e));
        const char *more = text_stream_take(s, &bytes, stops, stopped || n == ids.n);
        str_add_bytes(streamed, more, bytes);
        if (stopped) taken = n;
    }
    token_ids_free(&ids);
    return taken;
}

TEST(an_answer_is_whole_characters_and_all_of_them) {
    static const char *const texts[] = {"plain words, and more",
                                        "caf\xc3\xa9 \xe6\xbc\xa2\xe5\xad\x97 \xf0\x9f\x8e\x89 end", "\n\n  spaces  ",
                                        "\xf0\x9f\x8e\x89"};
    Tokenizer *words[] = {open_words(), tiny_tokenizer(false)}; /* one token a byte: every character is cut */
    TextStream s = {0};
    Str streamed = {0};
    for (int w = 0; w < 2; w++)
        for (int i = 0; i < 4; i++) {
            EXPECT(feed(&s, &streamed, words[w], texts[i], (StopTexts){0}) == -1);
            EXPECT_STR(str_text(&s.text), texts[i]);
            EXPECT_STR(str_text(&streamed), texts[i]);
        }
    text_stream_free(&s);
    str_free(&streamed);
    for (int w = 0; w < 2; w++) tokenizer_close(words[w]);
}

TEST(stop_strings_are_found_across_tokens) {
    static const struct {
        const char *text, *stop[2], *before;
        bool stops;
    } cases[] = {{"one two\nUser: three", {"\nUser:", NULL}, "one two", true},
                 {"a\n\nb", {"\n\n", NULL}, "a", true},
                 {"almost \nUse nothing", {"\nUser:", NULL}, "almost \nUse nothing", false},
                 {"xababac", {"abac", "zz"}, "xab", true},
                 {"it ends with \nUs", {"\nUser:", NULL}, "it ends with \nUs", false},
                 {"both END and STOP", {"STOP", "END"}, "both ", true},
                 {"stop at once", {"stop", NULL}, "", true}};
    Tokenizer *words[] = {open_words(), tiny_tokenizer(false)};
    TextStream s = {0};
    Str streamed = {0};
    for (int w = 0; w < 2; w++)
        for (int i = 0; i < COUNT_OF(cases); i++) {
            StopTexts stops = {cases[i].stop, cases[i].stop[1] ? 2 : 1};
            EXPECT((feed(&s, &streamed, words[w], cases[i].text, stops) > 0) == cases[i].stops);
            EXPECT_STR(str_text(&s.text), cases[i].before);
            EXPECT_STR(str_text(&streamed), cases[i].before);
        }
    text_stream_free(&s);
    str_free(&streamed);
    for (int w = 0; w < 2; w++) tokenizer_close(words[w]);
}
