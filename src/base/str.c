/* str.c - text that grows, and small questions about text. */
#include "base/str.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

#include "base/mem.h"

void str_free(Str *s) {
    mem_free(s->data);
    *s = (Str){0};
}

void str_clear(Str *s) {
    s->len = 0;
    if (s->data) s->data[0] = 0;
}

void str_add_bytes(Str *s, const char *bytes, int64_t n) {
    s->data = mem_grow(s->data, &s->capacity, mem_add(mem_add(s->len, n), 1), 1);
    memcpy(s->data + s->len, bytes, (size_t)n);
    s->len += n;
    s->data[s->len] = 0;
}

void str_add(Str *s, const char *text) { str_add_bytes(s, text, (int64_t)strlen(text)); }

void str_add_char(Str *s, char c) { str_add_bytes(s, &c, 1); }

void str_addf(Str *s, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    s->data = mem_grow(s->data, &s->capacity, s->len + n + 1, 1);
    va_start(ap, fmt);
    vsnprintf(s->data + s->len, (size_t)n + 1, fmt, ap);
    va_end(ap);
    s->len += n;
}

void str_add_trimmed(Str *s, const char *text) {
    const char *end = text + strlen(text);
    while (isspace((unsigned char)*text)) text++;
    while (end > text && isspace((unsigned char)end[-1])) end--;
    str_add_bytes(s, text, end - text);
}

void str_add_html(Str *s, const char *text) {
    for (; *text; text++) {
        const char *name = *text == '<'   ? "&lt;"
                           : *text == '>' ? "&gt;"
                           : *text == '&' ? "&amp;"
                           : *text == '"' ? "&quot;"
                                          : NULL;
        if (name) str_add(s, name);
        else str_add_char(s, *text);
    }
}

/* Controls, marks that turn the direction of writing, and what is not assigned could change more than their place. */
static bool is_printable(utf8proc_int32_t c) {
    switch (utf8proc_category(c)) {
        case UTF8PROC_CATEGORY_CC:
        case UTF8PROC_CATEGORY_CF:
        case UTF8PROC_CATEGORY_CS:
        case UTF8PROC_CATEGORY_CO:
        case UTF8PROC_CATEGORY_CN:
        case UTF8PROC_CATEGORY_ZL:
        case UTF8PROC_CATEGORY_ZP: return false;
        default: return true;
    }
}

int str_add_plain(Str *s, const char *text, int most_columns) {
    int columns = 0;
    utf8proc_int32_t c;
    for (utf8proc_ssize_t n; *text; text += n) {
        n = utf8proc_iterate((const utf8proc_uint8_t *)text, -1, &c);
        bool shown = n > 0 && is_printable(c);
        int width = shown ? utf8proc_charwidth(c) : 1;
        if (columns + width > most_columns) break;
        columns += width;
        if (n < 1) n = 1;
        if (shown)
            str_add_bytes(s, text, n);
        else
            str_add_char(s, '?');
    }
    return columns;
}

const char *str_text(const Str *s) { return s->data ? s->data : ""; }

int64_t str_characters(const char *text) {
    int64_t n = 0;
    for (; *text; text++) n += (*text & 0xc0) != 0x80;
    return n;
}

bool str_starts(const char *s, const char *prefix) { return strncmp(s, prefix, strlen(prefix)) == 0; }

bool str_ends(const char *s, const char *suffix) {
    size_t n = strlen(s), m = strlen(suffix);
    return n >= m && memcmp(s + n - m, suffix, m) == 0;
}

static int fold(char c) { return c == '_' ? '-' : tolower((unsigned char)c); }

int64_t str_mark(const char *text, int64_t n) { return n >= 3 && !memcmp(text, "\xef\xbb\xbf", 3) ? 3 : 0; }

bool str_same_word(const char *a, const char *b) {
    for (; *a && *b; a++, b++)
        if (fold(*a) != fold(*b)) return false;
    return *a == *b;
}

bool str_is_among(const char *word, const char *words) {
    for (const char *at = words; at; at = (at = strchr(at, '|')) ? at + 1 : NULL) {
        const char *w = word;
        for (; *w && *at != '|' && fold(*w) == fold(*at); w++) at++;
        if (!*w && (!*at || *at == '|')) return true;
    }
    return false;
}

static int edit_distance(const char *a, const char *b) { /* edits between two words */
    enum { LONGEST = 63 };
    int n = (int)strlen(a), m = (int)strlen(b), row[LONGEST + 1];
    if (n > LONGEST || m > LONGEST) return LONGEST;
    for (int j = 0; j <= m; j++) row[j] = j;
    for (int i = 1; i <= n; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= m; j++) {
            int change = diagonal + (fold(a[i - 1]) != fold(b[j - 1]));
            diagonal = row[j];
            row[j] = MIN2(change, MIN2(row[j], row[j - 1]) + 1);
        }
    }
    return row[m];
}

const char *str_nearest(const char *word, const char *const *names, int n) {
    const char *best = NULL;
    int len = (int)strlen(word), best_distance = MIN2(MAX2(2, len / 3), MAX2((len - 1) / 2, 1)) + 1;
    for (int i = 0; i < n; i++) {
        int d = edit_distance(word, names[i]);
        if (d < best_distance) {
            best_distance = d;
            best = names[i];
        }
    }
    return best;
}
