/* template_text.c - text by code points: what is a space, a line end or printable, where something stands. */
#include <string.h>
#include <utf8proc.h>

#include "data/template_int.h"

Text tpl_text(const char *s) { return (Text){s, (int64_t)strlen(s)}; }

bool tpl_text_equal(Text a, Text b) { return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, (size_t)a.n) == 0); }

bool tpl_text_is(Text t, const char *s) { return tpl_text_equal(t, tpl_text(s)); }

bool tpl_text_valid(Text t) {
    for (int64_t i = 0; i < t.n;) {
        utf8proc_int32_t c;
        utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)t.p + i, t.n - i, &c);
        if (n <= 0) return false;
        i += n;
    }
    return true;
}

static bool starts_point(char c) { return ((unsigned char)c & 0xC0) != 0x80; }

int64_t tpl_points(Text t) {
    int64_t n = 0;
    for (int64_t i = 0; i < t.n; i++) n += starts_point(t.p[i]);
    return n;
}

int64_t tpl_offset(Text t, int64_t points) {
    int64_t i = 0;
    for (; i < t.n && points > 0; points--) {
        i++;
        while (i < t.n && !starts_point(t.p[i])) i++;
    }
    return i;
}

int tpl_decode(Text t, int64_t at, int32_t *c) {
    utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)t.p + at, t.n - at, c);
    return n > 0 ? (int)n : 1;
}

int tpl_encode(char to[4], int32_t c) { return (int)utf8proc_encode_char(c, (utf8proc_uint8_t *)to); }

bool tpl_is_space(int32_t c) {
    if (c < 128) return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20);
    if (c == 0x85) return true;
    utf8proc_category_t k = utf8proc_category(c);
    return k == UTF8PROC_CATEGORY_ZS || k == UTF8PROC_CATEGORY_ZL || k == UTF8PROC_CATEGORY_ZP;
}

bool tpl_is_printable(int32_t c) {
    if (c < 128) return c >= 0x20 && c < 0x7F;
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    default: return true;
    }
}

bool tpl_is_line_end(int32_t c) {
    return (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

static bool in_set(int32_t c, const Text *chars) {
    if (!chars) return tpl_is_space(c);
    for (int64_t i = 0; i < chars->n;) {
        int32_t each;
        i += tpl_decode(*chars, i, &each);
        if (each == c) return true;
    }
    return false;
}

Text tpl_strip(Text t, const Text *chars, bool left, bool right) {
    int32_t c;
    while (left && t.n > 0) {
        int n = tpl_decode(t, 0, &c);
        if (!in_set(c, chars)) break;
        t.p += n;
        t.n -= n;
    }
    while (right && t.n > 0) {
        int64_t last = t.n - 1;
        while (last > 0 && !starts_point(t.p[last])) last--;
        tpl_decode(t, last, &c);
        if (!in_set(c, chars)) break;
        t.n = last;
    }
    return t;
}

int64_t tpl_find(Text t, Text what, int64_t from) {
    if (from > t.n || what.n > t.n - from) return -1;
    if (what.n == 0) return from;
    const char *hit = memmem(t.p + from, (size_t)(t.n - from), what.p, (size_t)what.n);
    return hit ? hit - t.p : -1;
}

int64_t tpl_find_last(Render *r, Text t, Text what) {
    int64_t at = t.n - what.n;
    if (what.n == 0) return at;
    for (; at >= 0; at--) {
        bool ends_match = t.p[at] == what.p[0] && t.p[at + what.n - 1] == what.p[what.n - 1];
        if (!ends_match) continue;
        if (!tpl_charge_bytes(r, what.n)) return -1; /* a pattern that almost fits everywhere is paid for */
        if (memcmp(t.p + at, what.p, (size_t)what.n) == 0) break;
    }
    return tpl_charge_bytes(r, t.n - MAX2(at, 0)) ? MAX2(at, -1) : -1;
}

/* One-to-one case changes, and the sharp s: the only common letter whose capital form has two. */
static void put_upper(Render *r, Str *s, int32_t c, bool title) {
    char bytes[4];
    if (c == 0xDF) {
        tpl_put(r, s, title ? "Ss" : "SS", 2);
        return;
    }
    tpl_put(r, s, bytes, tpl_encode(bytes, title ? utf8proc_totitle(c) : utf8proc_toupper(c)));
}

static bool is_cased(int32_t c) {
    return utf8proc_tolower(c) != c || utf8proc_toupper(c) != c ||
           utf8proc_category(c) == UTF8PROC_CATEGORY_LT;
}

Value tpl_case(Render *r, Text t, char how) {
    Str s = {0};
    bool in_word = false; /* 't': after a cased letter; 'c': after the first letter */
    if (!tpl_charge_bytes(r, t.n * 4)) return tpl_none();
    for (int64_t i = 0; i < t.n && !r->failed;) {
        int32_t c;
        char bytes[4];
        i += tpl_decode(t, i, &c);
        bool begins = (how == 't' || how == 'c') && !in_word;
        if (how == 'u' || begins)
            put_upper(r, &s, c, begins);
        else
            tpl_put(r, &s, bytes, tpl_encode(bytes, utf8proc_tolower(c)));
        in_word = how == 'c' || is_cased(c);
    }
    return tpl_take(r, &s);
}
