/* dataset_scan.c - JSON text becomes a row in one pass over the bytes, several times as fast as the library reads it.
 *
 * The library stays the judge. What is accepted here is a part of what it accepts and gives the same value; where this
 * scanner is not sure (an error, a number out of range, deep nesting, a key twice) it gives up, and the caller asks the
 * library, whose answer and message count. tests/data/test_scan.c holds the two against each other. */
#include <string.h>

#include "data/dataset_int.h"

enum { MAX_DEPTH = 32, MAX_NUMBER = 64, MAX_DIGITS = 18 /* of an integer: these never overflow */ };

typedef struct Scan {
    const unsigned char *at, *end;
    Str *text; /* of a string with escapes, or of a key */
} Scan;

static json_t *scan_value(Scan *s, int depth);

static void skip_blanks(Scan *s) {
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\t' || *s->at == '\n' || *s->at == '\r')) s->at++;
}

static bool take(Scan *s, char c) {
    if (s->at >= s->end || *s->at != (unsigned char)c) return false;
    s->at++;
    return true;
}

/* ---- strings ---- */

#define EACH_BYTE(b) (0x0101010101010101ull * (b))

/* Marks (high bits) in eight bytes those below 0x20, quotes, backslashes, and what is not ASCII. A byte above a marked
 * one may be marked wrongly (a borrow); the lowest mark is always right. */
static uint64_t special(uint64_t w) {
    uint64_t quote = w ^ EACH_BYTE('"'), slash = w ^ EACH_BYTE('\\');
    return (w | (w - EACH_BYTE(0x20)) | (quote - EACH_BYTE(1)) | (slash - EACH_BYTE(1))) & EACH_BYTE(0x80);
}

static void skip_ascii(Scan *s) {
    for (uint64_t w; s->end - s->at >= 8; s->at += 8) {
        memcpy(&w, s->at, 8);
        uint64_t marks = special(w);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        if (marks) s->at += __builtin_ctzll(marks) / 8;
#endif
        if (marks) return;
    }
}

/* Bytes of the UTF-8 sequence at `at`; 0: it is none, or is cut off. */
static int sequence_bytes(const unsigned char *at, const unsigned char *end) {
    unsigned char c = *at;
    int n = c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;
    if (!n || end - at < n) return 0;
    for (int i = 1; i < n; i++)
        if ((at[i] & 0xc0) != 0x80) return 0;
    bool overlong = (c == 0xe0 && at[1] < 0xa0) || (c == 0xf0 && at[1] < 0x90);
    bool surrogate = c == 0xed && at[1] > 0x9f, beyond = c == 0xf4 && at[1] > 0x8f;
    return overlong || surrogate || beyond ? 0 : n;
}

/* Steps over what needs no change, up to a quote or a backslash. */
static bool skip_plain(Scan *s) {
    while (s->at < s->end) {
        skip_ascii(s);
        if (s->at >= s->end) return false;
        unsigned char c = *s->at;
        if (c == '"' || c == '\\') return true;
        int n = c < 0x20 ? 0 : c < 0x80 ? 1 : sequence_bytes(s->at, s->end);
        if (!n) return false;
        s->at += n;
    }
    return false;
}

static bool scan_hex(Scan *s, uint32_t *v) {
    if (s->end - s->at < 4) return false;
    *v = 0;
    for (int i = 0; i < 4; i++) {
        unsigned char c = *s->at++;
        int digit = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
        if (digit < 0) return false;
        *v = *v << 4 | (uint32_t)digit;
    }
    return true;
}

static bool scan_unicode(Scan *s) { /* behind \u */
    uint32_t v, low;
    if (!scan_hex(s, &v) || (v >= 0xdc00 && v < 0xe000)) return false;
    if (v >= 0xd800 && v < 0xdc00) {
        if (!take(s, '\\') || !take(s, 'u') || !scan_hex(s, &low) || low < 0xdc00 || low > 0xdfff) return false;
        v = 0x10000 + ((v - 0xd800) << 10) + (low - 0xdc00);
    }
    if (v < 0x80) {
        str_add_char(s->text, (char)v);
        return true;
    }
    int n = v < 0x800 ? 2 : v < 0x10000 ? 3 : 4;
    str_add_char(s->text, (char)((n == 2 ? 0xc0 : n == 3 ? 0xe0 : 0xf0) | v >> 6 * (n - 1)));
    for (int i = n - 2; i >= 0; i--) str_add_char(s->text, (char)(0x80 | (v >> 6 * i & 0x3f)));
    return true;
}

static bool scan_escape(Scan *s) { /* behind the backslash */
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (s->at >= s->end) return false;
    char c = (char)*s->at++;
    if (c == 'u') return scan_unicode(s);
    const char *known = c ? strchr(from, c) : NULL;
    if (!known) return false;
    str_add_char(s->text, to[known - from]);
    return true;
}

/* Behind the opening quote; text and bytes stand in the row itself, or in s->text where there are escapes. */
static bool scan_string(Scan *s, const char **text, int64_t *bytes) {
    const unsigned char *from = s->at;
    str_clear(s->text);
    for (;;) {
        if (!skip_plain(s)) return false;
        bool plain = !s->text->len && *s->at == '"';
        *text = (const char *)from;
        *bytes = s->at - from;
        if (plain) return s->at++, true;
        str_add_bytes(s->text, *text, *bytes);
        if (*s->at++ == '"') break;
        if (!scan_escape(s)) return false;
        from = s->at;
    }
    *text = str_text(s->text);
    *bytes = s->text->len;
    return true;
}

/* ---- everything else ---- */

static json_t *scan_number(Scan *s) {
    char copy[MAX_NUMBER];
    const unsigned char *from = s->at;
    take(s, '-');
    const unsigned char *digits = s->at;
    while (s->at < s->end && *s->at >= '0' && *s->at <= '9') s->at++;
    int64_t n = s->at - digits;
    bool real = s->at < s->end && (*s->at == '.' || *s->at == 'e' || *s->at == 'E');
    if (!n || (n > 1 && *digits == '0') || real || n > MAX_DIGITS) { /* a real number, or none: rare in rows */
        const unsigned char *end = s->at;
        while (end < s->end && strchr("0123456789+-.eE", *end) && *end) end++;
        if (end - from >= MAX_NUMBER) return NULL;
        memcpy(copy, from, (size_t)(end - from));
        copy[end - from] = 0;
        json_t *v = json_loads(copy, JSON_DECODE_ANY, NULL);
        s->at = end;
        return v;
    }
    json_int_t v = 0;
    for (int64_t i = 0; i < n; i++) v = v * 10 + (digits[i] - '0');
    return json_integer(*from == '-' ? -v : v);
}

static json_t *scan_word(Scan *s) {
    static const char *const words[] = {"true", "false", "null"};
    for (int i = 0; i < COUNT_OF(words); i++) {
        int64_t n = (int64_t)strlen(words[i]);
        if (s->end - s->at < n || memcmp(s->at, words[i], (size_t)n)) continue;
        s->at += n; /* what follows must be a comma, a bracket or a blank: the caller sees to it */
        return i == 0 ? json_true() : i == 1 ? json_false() : json_null();
    }
    return NULL;
}

static bool scan_items(Scan *s, json_t *array, int depth) {
    skip_blanks(s);
    if (take(s, ']')) return true;
    do {
        json_t *v = scan_value(s, depth);
        if (!v) return false;
        json_array_append_new(array, v);
        skip_blanks(s);
    } while (take(s, ','));
    return take(s, ']');
}

static bool scan_fields(Scan *s, json_t *object, int depth) {
    const char *key;
    char name[128];
    int64_t n;
    skip_blanks(s);
    if (take(s, '}')) return true;
    do {
        skip_blanks(s);
        if (!take(s, '"') || !scan_string(s, &key, &n)) return false;
        if (n >= (int64_t)sizeof name || memchr(key, 0, (size_t)n)) return false;
        memcpy(name, key, (size_t)n);
        name[n] = 0;
        skip_blanks(s);
        if (!take(s, ':') || json_object_get(object, name)) return false;
        json_t *v = scan_value(s, depth);
        if (!v) return false;
        json_object_set_new_nocheck(object, name, v);
        skip_blanks(s);
    } while (take(s, ','));
    return take(s, '}');
}

static json_t *scan_value(Scan *s, int depth) {
    const char *text;
    int64_t n;
    skip_blanks(s);
    if (s->at >= s->end || depth >= MAX_DEPTH) return NULL;
    if (*s->at == '"') return s->at++, scan_string(s, &text, &n) ? json_stringn_nocheck(text, (size_t)n) : NULL;
    if (*s->at == '-' || (*s->at >= '0' && *s->at <= '9')) return scan_number(s);
    bool object = *s->at == '{';
    if (!object && *s->at != '[') return scan_word(s);
    s->at++;
    json_t *v = object ? json_object() : json_array();
    if (object ? scan_fields(s, v, depth + 1) : scan_items(s, v, depth + 1)) return v;
    json_decref(v);
    return NULL;
}

json_t *dataset_scan_object(Str *scratch, const char *text, int64_t bytes, int64_t *used) {
    Scan s = {(const unsigned char *)text, (const unsigned char *)text + bytes, scratch};
    skip_blanks(&s);
    if (s.at >= s.end || *s.at != '{') return NULL;
    json_t *v = scan_value(&s, 0);
    *used = (const char *)s.at - text;
    return v;
}
