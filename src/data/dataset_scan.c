/* dataset_scan.c - JSON text becomes a row in one pass over the bytes, several times as fast as the library reads
 * it; as fields that lie in the text (row.h), or as a tree.
 *
 * The library (jansson) is the reference. This scanner accepts a subset of what the library accepts and gives the same
 * value. Where it is not sure (an error, a number out of range, deep nesting, a key twice) it gives up, and the caller
 * uses the library, whose value and message count. tests/data/test_scan.c compares the two. */
#include <string.h>

#include "base/mem.h"
#include "data/dataset_int.h"
#include "data/row.h"

enum { MAX_DEPTH = 32, MAX_NUMBER = 64, MAX_DIGITS = 18 /* of an integer: these never overflow */, MAX_NAME = 128 };
enum { MAX_KEYS = 64 /* of an object that is only stepped over */ };

typedef struct Scan {
    const unsigned char *at, *end;
    Str *text; /* of a string with escapes, or of a key; NULL: values are stepped over, no tree is built */
} Scan;

/* Reads a value; *out is its tree, where one is built. */
static bool scan_value(Scan *s, json_t **out, int depth);

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

/* Writes the character behind \u; gives its bytes, 0: it is none. */
static int scan_unicode(Scan *s, char *to) {
    uint32_t v, low;
    if (!scan_hex(s, &v) || (v >= 0xdc00 && v < 0xe000)) return 0;
    if (v >= 0xd800 && v < 0xdc00) {
        if (!take(s, '\\') || !take(s, 'u') || !scan_hex(s, &low) || low < 0xdc00 || low > 0xdfff) return 0;
        v = 0x10000 + ((v - 0xd800) << 10) + (low - 0xdc00);
    }
    if (v < 0x80) return *to = (char)v, 1;
    int n = v < 0x800 ? 2 : v < 0x10000 ? 3 : 4;
    to[0] = (char)((n == 2 ? 0xc0 : n == 3 ? 0xe0 : 0xf0) | v >> 6 * (n - 1));
    for (int i = 1; i < n; i++) to[i] = (char)(0x80 | (v >> 6 * (n - 1 - i) & 0x3f));
    return n;
}

/* The same for what stands behind a backslash. A character is never longer than its escape. */
static int scan_escape(Scan *s, char *to) {
    static const char from[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    if (s->at >= s->end) return 0;
    char c = (char)*s->at++;
    if (c == 'u') return scan_unicode(s, to);
    const char *known = c ? strchr(from, c) : NULL;
    if (!known) return 0;
    *to = meant[known - from];
    return 1;
}

/* Steps over a string, from behind its opening quote; escaped: it is not yet what it means. */
static bool skip_string(Scan *s, const char **text, int64_t *bytes, bool *escaped) {
    char unused[4];
    *text = (const char *)s->at;
    *escaped = false;
    for (;;) {
        if (!skip_plain(s)) return false;
        *bytes = (const char *)s->at - *text;
        if (*s->at++ == '"') return true;
        *escaped = true;
        if (!scan_escape(s, unused)) return false;
    }
}

/* What a string means, into to, which may be where it stands. */
static int64_t unescape(char *to, const char *text, int64_t bytes) {
    Scan s = {(const unsigned char *)text, (const unsigned char *)text + bytes, NULL};
    int64_t n = 0;
    while (s.at < s.end) {
        const unsigned char *slash = memchr(s.at, '\\', (size_t)(s.end - s.at));
        int64_t plain = (slash ? slash : s.end) - s.at;
        memmove(to + n, s.at, (size_t)plain);
        n += plain;
        s.at += plain;
        char c[4];
        if (!slash) break;
        s.at++;
        int got = scan_escape(&s, c);
        memcpy(to + n, c, (size_t)got);
        n += got;
    }
    return n;
}

/* Behind the opening quote; text and bytes stand in the row itself, or in s->text where there are escapes. */
static bool scan_string(Scan *s, const char **text, int64_t *bytes) {
    bool escaped;
    if (!skip_string(s, text, bytes, &escaped)) return false;
    if (!escaped) return true;
    if (!s->text) return true; /* stepped over: nobody looks at it */
    s->text->data = mem_grow(s->text->data, &s->text->capacity, *bytes, 1);
    *bytes = s->text->len = unescape(s->text->data, *text, *bytes);
    *text = s->text->data;
    return true;
}

/* ---- everything else ---- */

static bool scan_number(Scan *s, json_t **out) {
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
        if (end - from >= MAX_NUMBER) return false;
        memcpy(copy, from, (size_t)(end - from));
        copy[end - from] = 0;
        *out = json_loads(copy, JSON_DECODE_ANY, NULL);
        s->at = end;
        bool ok = *out != NULL;
        if (!s->text) json_decref(*out);
        return ok;
    }
    if (!s->text) return true;
    json_int_t v = 0;
    for (int64_t i = 0; i < n; i++) v = v * 10 + (digits[i] - '0');
    *out = json_integer(*from == '-' ? -v : v);
    return true;
}

static bool scan_word(Scan *s, json_t **out) {
    static const char *const words[] = {"true", "false", "null"};
    for (int i = 0; i < COUNT_OF(words); i++) {
        int64_t n = (int64_t)strlen(words[i]);
        if (s->end - s->at < n || memcmp(s->at, words[i], (size_t)n)) continue;
        s->at += n; /* what follows must be a comma, a bracket or a blank: the caller sees to it */
        *out = i == 0 ? json_true() : i == 1 ? json_false() : json_null();
        return true;
    }
    return false;
}

static bool scan_items(Scan *s, json_t *array, int depth) {
    skip_blanks(s);
    if (take(s, ']')) return true;
    do {
        json_t *v = NULL;
        if (!scan_value(s, &v, depth)) return false;
        if (array) json_array_append_new(array, v);
        skip_blanks(s);
    } while (take(s, ','));
    return take(s, ']');
}

typedef struct Span {
    const char *text;
    int64_t bytes;
} Span;

static bool is_among(const Span *spans, int n, Span one) {
    for (int i = 0; i < n; i++)
        if (spans[i].bytes == one.bytes && !memcmp(spans[i].text, one.text, (size_t)one.bytes)) return true;
    return false;
}

/* A name and its colon; a name that is long or odd is the library's. */
static bool scan_name(Scan *s, Span *name) {
    bool escaped;
    skip_blanks(s);
    if (!take(s, '"') || !skip_string(s, &name->text, &name->bytes, &escaped)) return false;
    skip_blanks(s);
    return !escaped && name->bytes < MAX_NAME && !memchr(name->text, 0, (size_t)name->bytes) && take(s, ':');
}

static bool skip_fields(Scan *s, int depth) {
    Span name[MAX_KEYS];
    skip_blanks(s);
    if (take(s, '}')) return true;
    for (int n = 0; n < MAX_KEYS; n++) {
        json_t *unused;
        if (!scan_name(s, &name[n]) || is_among(name, n, name[n]) || !scan_value(s, &unused, depth)) return false;
        skip_blanks(s);
        if (!take(s, ',')) return take(s, '}');
    }
    return false;
}

static bool scan_fields(Scan *s, json_t *object, int depth) {
    const char *key;
    char name[MAX_NAME];
    int64_t n;
    skip_blanks(s);
    if (take(s, '}')) return true;
    do {
        json_t *v = NULL;
        skip_blanks(s);
        if (!take(s, '"') || !scan_string(s, &key, &n)) return false;
        if (n >= (int64_t)sizeof name || memchr(key, 0, (size_t)n)) return false;
        memcpy(name, key, (size_t)n);
        name[n] = 0;
        skip_blanks(s);
        if (!take(s, ':') || json_object_get(object, name) || !scan_value(s, &v, depth)) return false;
        json_object_set_new_nocheck(object, name, v);
        skip_blanks(s);
    } while (take(s, ','));
    return take(s, '}');
}

static bool scan_text(Scan *s, json_t **out) {
    const char *text;
    int64_t n;
    s->at++;
    if (!scan_string(s, &text, &n)) return false;
    if (s->text) *out = json_stringn_nocheck(text, (size_t)n);
    return true;
}

static bool scan_value(Scan *s, json_t **out, int depth) {
    skip_blanks(s);
    if (s->at >= s->end || depth >= MAX_DEPTH) return false;
    if (*s->at == '"') return scan_text(s, out);
    if (*s->at == '-' || (*s->at >= '0' && *s->at <= '9')) return scan_number(s, out);
    bool object = *s->at == '{';
    if (!object && *s->at != '[') return scan_word(s, out);
    s->at++;
    if (!s->text) return object ? skip_fields(s, depth + 1) : scan_items(s, NULL, depth + 1);
    json_t *v = object ? json_object() : json_array();
    if (object ? scan_fields(s, v, depth + 1) : scan_items(s, v, depth + 1)) return *out = v, true;
    json_decref(v);
    return false;
}

json_t *dataset_scan_value(Str *scratch, const char *text, int64_t bytes) {
    Scan s = {(const unsigned char *)text, (const unsigned char *)text + bytes, scratch};
    json_t *v = NULL;
    return scan_value(&s, &v, 1) ? v : NULL;
}

json_t *dataset_scan_object(Str *scratch, const char *text, int64_t bytes, int64_t *used) {
    Scan s = {(const unsigned char *)text, (const unsigned char *)text + bytes, scratch};
    json_t *v = NULL;
    skip_blanks(&s);
    if (s.at >= s.end || *s.at != '{' || !scan_value(&s, &v, 0)) return NULL;
    *used = (const char *)s.at - text;
    return v;
}

/* ---- rows ---- */

static json_type type_of(unsigned char first) {
    switch (first) {
    case '"': return JSON_STRING;
    case '{': return JSON_OBJECT;
    case '[': return JSON_ARRAY;
    case 't': return JSON_TRUE;
    case 'f': return JSON_FALSE;
    case 'n': return JSON_NULL;
    default: return JSON_INTEGER; /* or a real number: row_value tells */
    }
}

static bool scan_field(Scan *s, RowField *f) {
    Span name;
    json_t *unused;
    if (!scan_name(s, &name)) return false;
    skip_blanks(s);
    if (s->at >= s->end) return false;
    *f = (RowField){.name = (char *)(uintptr_t)name.text, .name_bytes = (int32_t)name.bytes, .type = type_of(*s->at)};
    const char *text = (const char *)s->at;
    bool ok;
    if (f->type == JSON_STRING) {
        s->at++;
        ok = skip_string(s, &text, &f->bytes, &f->escaped);
    } else {
        ok = scan_value(s, &unused, 1);
        f->bytes = (const char *)s->at - text;
    }
    f->text = (char *)(uintptr_t)text;
    return ok;
}

static bool is_twice(const Row *r) {
    const RowField *last = &r->field[r->n];
    for (int i = 0; i < r->n; i++)
        if (r->field[i].name_bytes == last->name_bytes &&
            !memcmp(r->field[i].name, last->name, (size_t)last->name_bytes))
            return true;
    return false;
}

bool row_scan(Row *r, char *text, int64_t bytes) {
    Scan s = {(const unsigned char *)text, (const unsigned char *)text + bytes, NULL};
    r->n = 0;
    r->tree = NULL;
    skip_blanks(&s);
    if (!take(&s, '{')) return false;
    skip_blanks(&s);
    bool more = !take(&s, '}');
    for (; more; r->n++) {
        if (r->n == ROW_FIELDS || !scan_field(&s, &r->field[r->n]) || is_twice(r)) return false;
        skip_blanks(&s);
        more = take(&s, ',');
        if (!more && !take(&s, '}')) return false;
    }
    skip_blanks(&s);
    if (s.at < s.end) return false;
    for (int i = 0; i < r->n; i++) r->field[i].name[r->field[i].name_bytes] = 0; /* where the quote was */
    return true;
}

const char *row_text(RowField *f, int64_t *bytes) {
    CHECK(f->type == JSON_STRING);
    if (f->escaped) f->bytes = unescape(f->text, f->text, f->bytes);
    f->escaped = false;
    if (!f->value) f->text[f->bytes] = 0; /* at or before the closing quote */
    *bytes = f->bytes;
    return f->text;
}
