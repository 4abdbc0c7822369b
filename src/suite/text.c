/* text.c - what counts as white space, a word and a character where Python counts, and two clean-ups of known data. */
#include <string.h>

#include "suite/suite_int.h"

/* The white space of Python's str.isspace, as UTF-8; bytes of it at text, or 0. */
static int space_at(const char *text) {
    const unsigned char *u = (const unsigned char *)text;
    if (u[0] == ' ' || (u[0] >= 9 && u[0] <= 13) || (u[0] >= 0x1c && u[0] <= 0x1f)) return 1;
    if (u[0] == 0xc2) return u[1] == 0x85 || u[1] == 0xa0 ? 2 : 0;
    if (u[0] == 0xe1) return u[1] == 0x9a && u[2] == 0x80 ? 3 : 0;
    if (u[0] == 0xe3) return u[1] == 0x80 && u[2] == 0x80 ? 3 : 0;
    if (u[0] != 0xe2) return 0;
    if (u[1] == 0x80) return (u[2] >= 0x80 && u[2] <= 0x8a) || u[2] == 0xa8 || u[2] == 0xa9 || u[2] == 0xaf ? 3 : 0;
    return u[1] == 0x81 && u[2] == 0x9f ? 3 : 0;
}

int64_t text_words(const char *text, int64_t bytes) {
    int64_t words = 1;
    bool before = false;
    for (int64_t i = 0; i < bytes;) {
        int space = space_at(text + i);
        words += space && !before;
        before = space;
        i += space ? space : 1;
    }
    return words;
}

int64_t text_space_at_end(const char *text) {
    int64_t n = (int64_t)strlen(text), end = n;
    for (;;) {
        int64_t at = end - 1;
        while (at > 0 && (text[at] & 0xc0) == 0x80) at--;
        if (end == 0 || space_at(text + at) != end - at) return n - end;
        end = at;
    }
}

/* Two spaces become one, from the left, as often as pairs are met. */
static void add_with_single_spaces(Str *out, const char *text) {
    for (; *text; text++) {
        str_add_char(out, *text);
        if (text[0] == ' ' && text[1] == ' ') text++;
    }
}

void text_strip_brackets(Str *out, const char *text) {
    Str bare = {0};
    while (*text) {
        size_t inside = *text == '[' ? strcspn(text, "]\n") : 0;
        if (inside && text[inside] == ']') text += inside + 1;
        else str_add_char(&bare, *text++);
    }
    add_with_single_spaces(out, str_text(&bare));
    str_free(&bare);
}

static void replace(Str *text, const char *from, const char *to) {
    Str out = {0};
    const char *at = str_text(text), *next;
    for (; (next = strstr(at, from)); at = next + strlen(from)) {
        str_add_bytes(&out, at, next - at);
        str_add(&out, to);
    }
    str_add(&out, at);
    str_free(text);
    *text = out;
}

/* No white space behind an opening sign and before the closing one that follows it. */
static void close_up(Str *text, char open, char close) {
    Str out = {0};
    const char *at = str_text(text);
    while (*at) {
        const char *end = *at == open ? strchr(at + 1, close) : NULL;
        str_add_char(&out, *at++);
        if (!end) continue;
        while (at < end && space_at(at)) at += space_at(at);
        Str inside = {0};
        str_add_bytes(&inside, at, end - at);
        str_add_bytes(&out, at, inside.len - text_space_at_end(str_text(&inside)));
        str_free(&inside);
        str_add_char(&out, close);
        at = end + 1;
    }
    str_free(text);
    *text = out;
}

void text_join_wiki(Str *out, const char *page) {
    static const char *const first[][2] = {{"s '", "s'"},  {" @-@ ", "-"}, {" @,@ ", ","}, {" @.@ ", "."},
                                           {" : ", ": "},  {" ; ", "; "},  {" . ", ". "},  {" ! ", "! "},
                                           {" ? ", "? "},  {" , ", ", "}};
    static const char *const last[][2] = {{"= = = =", "===="}, {"= = =", "==="}, {"= =", "=="},
                                          {" \xc2\xb0 ", "\xc2\xb0"}, {" \n", "\n"}, {"\n ", "\n"},
                                          {" N ", " 1 "}, {" 's", "'s"}};
    static const char pair[][2] = {{'(', ')'}, {'[', ']'}, {'{', '}'}, {'"', '"'}, {'\'', '\''}};
    Str text = {0};
    str_add(&text, page);
    for (int i = 0; i < COUNT_OF(first); i++) replace(&text, first[i][0], first[i][1]);
    for (int i = 0; i < COUNT_OF(pair); i++) close_up(&text, pair[i][0], pair[i][1]);
    for (int i = 0; i < COUNT_OF(last); i++) replace(&text, last[i][0], last[i][1]);
    str_add(out, str_text(&text));
    str_free(&text);
}
