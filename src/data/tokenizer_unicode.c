/* tokenizer_unicode.c - UTF-8 by hand, and where the Unicode tables of PCRE2 and utf8proc are not those of the
 * tokenizers that models were trained with.
 *
 * Hugging Face's library splits by Unicode 16 (newer than PCRE2's) and normalises by an older table (than
 * utf8proc's). A model sees the ids that library made, so both differences are written down here. */
#include "data/tokenizer_int.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

typedef struct Range {
    int32_t first, last;
} Range;

typedef struct CategoryRange {
    int32_t first, last;
    char category[3];
} CategoryRange;

/* Characters of Unicode 15 and 16 by general category, ascending. Where PCRE2 knows them already, naming them is
 * harmless. */
static const CategoryRange newer[] = {
    {0x897, 0x897, "Mn"},     {0xcf3, 0xcf3, "Mc"},     {0xece, 0xece, "Mn"},     {0x1b4e, 0x1b4f, "Po"},
    {0x1b7f, 0x1b7f, "Po"},   {0x1c89, 0x1c89, "Lu"},   {0x1c8a, 0x1c8a, "Ll"},   {0x2427, 0x2429, "So"},
    {0x2ffc, 0x2fff, "So"},   {0x31e4, 0x31e5, "So"},   {0x31ef, 0x31ef, "So"},   {0xa7cb, 0xa7cc, "Lu"},
    {0xa7cd, 0xa7cd, "Ll"},   {0xa7da, 0xa7da, "Lu"},   {0xa7db, 0xa7db, "Ll"},   {0xa7dc, 0xa7dc, "Lu"},
    {0x105c0, 0x105f3, "Lo"}, {0x10d40, 0x10d49, "Nd"}, {0x10d4a, 0x10d4d, "Lo"}, {0x10d4e, 0x10d4e, "Lm"},
    {0x10d4f, 0x10d4f, "Lo"}, {0x10d50, 0x10d65, "Lu"}, {0x10d69, 0x10d6d, "Mn"}, {0x10d6e, 0x10d6e, "Pd"},
    {0x10d6f, 0x10d6f, "Lm"}, {0x10d70, 0x10d85, "Ll"}, {0x10d8e, 0x10d8f, "Sm"}, {0x10ec2, 0x10ec4, "Lo"},
    {0x10efc, 0x10eff, "Mn"}, {0x1123f, 0x11240, "Lo"}, {0x11241, 0x11241, "Mn"}, {0x11380, 0x11389, "Lo"},
    {0x1138b, 0x1138b, "Lo"}, {0x1138e, 0x1138e, "Lo"}, {0x11390, 0x113b5, "Lo"}, {0x113b7, 0x113b7, "Lo"},
    {0x113b8, 0x113ba, "Mc"}, {0x113bb, 0x113c0, "Mn"}, {0x113c2, 0x113c2, "Mc"}, {0x113c5, 0x113c5, "Mc"},
    {0x113c7, 0x113ca, "Mc"}, {0x113cc, 0x113cd, "Mc"}, {0x113ce, 0x113ce, "Mn"}, {0x113cf, 0x113cf, "Mc"},
    {0x113d0, 0x113d0, "Mn"}, {0x113d1, 0x113d1, "Lo"}, {0x113d2, 0x113d2, "Mn"}, {0x113d3, 0x113d3, "Lo"},
    {0x113d4, 0x113d5, "Po"}, {0x113d7, 0x113d8, "Po"}, {0x113e1, 0x113e2, "Mn"}, {0x116d0, 0x116e3, "Nd"},
    {0x1171e, 0x1171e, "Mc"}, {0x11b00, 0x11b09, "Po"}, {0x11bc0, 0x11be0, "Lo"}, {0x11be1, 0x11be1, "Po"},
    {0x11bf0, 0x11bf9, "Nd"}, {0x11f00, 0x11f01, "Mn"}, {0x11f02, 0x11f02, "Lo"}, {0x11f03, 0x11f03, "Mc"},
    {0x11f04, 0x11f10, "Lo"}, {0x11f12, 0x11f33, "Lo"}, {0x11f34, 0x11f35, "Mc"}, {0x11f36, 0x11f3a, "Mn"},
    {0x11f3e, 0x11f3f, "Mc"}, {0x11f40, 0x11f40, "Mn"}, {0x11f41, 0x11f41, "Mc"}, {0x11f42, 0x11f42, "Mn"},
    {0x11f43, 0x11f4f, "Po"}, {0x11f50, 0x11f59, "Nd"}, {0x11f5a, 0x11f5a, "Mn"}, {0x1342f, 0x1342f, "Lo"},
    {0x13440, 0x13440, "Mn"}, {0x13441, 0x13446, "Lo"}, {0x13447, 0x13455, "Mn"}, {0x13460, 0x143fa, "Lo"},
    {0x16100, 0x1611d, "Lo"}, {0x1611e, 0x16129, "Mn"}, {0x1612a, 0x1612c, "Mc"}, {0x1612d, 0x1612f, "Mn"},
    {0x16130, 0x16139, "Nd"}, {0x16d40, 0x16d42, "Lm"}, {0x16d43, 0x16d6a, "Lo"}, {0x16d6b, 0x16d6c, "Lm"},
    {0x16d6d, 0x16d6f, "Po"}, {0x16d70, 0x16d79, "Nd"}, {0x18cff, 0x18cff, "Lo"}, {0x1b132, 0x1b132, "Lo"},
    {0x1b155, 0x1b155, "Lo"}, {0x1cc00, 0x1ccef, "So"}, {0x1ccf0, 0x1ccf9, "Nd"}, {0x1cd00, 0x1ceb3, "So"},
    {0x1d2c0, 0x1d2d3, "No"}, {0x1df25, 0x1df2a, "Ll"}, {0x1e030, 0x1e06d, "Lm"}, {0x1e08f, 0x1e08f, "Mn"},
    {0x1e4d0, 0x1e4ea, "Lo"}, {0x1e4eb, 0x1e4eb, "Lm"}, {0x1e4ec, 0x1e4ef, "Mn"}, {0x1e4f0, 0x1e4f9, "Nd"},
    {0x1e5d0, 0x1e5ed, "Lo"}, {0x1e5ee, 0x1e5ef, "Mn"}, {0x1e5f0, 0x1e5f0, "Lo"}, {0x1e5f1, 0x1e5fa, "Nd"},
    {0x1e5ff, 0x1e5ff, "Po"}, {0x1f6dc, 0x1f6dc, "So"}, {0x1f774, 0x1f776, "So"}, {0x1f77b, 0x1f77f, "So"},
    {0x1f7d9, 0x1f7d9, "So"}, {0x1f8b2, 0x1f8bb, "So"}, {0x1f8c0, 0x1f8c1, "So"}, {0x1fa75, 0x1fa77, "So"},
    {0x1fa87, 0x1fa89, "So"}, {0x1fa8f, 0x1fa8f, "So"}, {0x1faad, 0x1faaf, "So"}, {0x1fabb, 0x1fabf, "So"},
    {0x1fac6, 0x1fac6, "So"}, {0x1face, 0x1facf, "So"}, {0x1fada, 0x1fadc, "So"}, {0x1fadf, 0x1fadf, "So"},
    {0x1fae8, 0x1fae9, "So"}, {0x1faf7, 0x1faf8, "So"}, {0x1fbcb, 0x1fbef, "So"}, {0x2b739, 0x2b739, "Lo"},
    {0x2ebf0, 0x2ee5d, "Lo"}, {0x31350, 0x323af, "Lo"},
};

/* Characters that newer tables order, decompose or compose, and that normalisation has to pass through untouched.
 * Ascending. */
static const Range unnormalized[] = {
    {0x7fd, 0x7fd},     {0x898, 0x89f},     {0x8ca, 0x8d3},     {0x9fe, 0x9fe},     {0xc3c, 0xc3c},
    {0xd3b, 0xd3c},     {0xeba, 0xeba},     {0x1715, 0x1715},   {0x1abf, 0x1ace},   {0x1df6, 0x1dfa},
    {0x32ff, 0x32ff},   {0xa7f2, 0xa7f4},   {0xa82c, 0xa82c},   {0xab69, 0xab69},   {0x10781, 0x10785},
    {0x10787, 0x107b0}, {0x107b2, 0x107ba}, {0x10d24, 0x10d27}, {0x10eab, 0x10eac}, {0x10efd, 0x10eff},
    {0x10f46, 0x10f50}, {0x10f82, 0x10f85}, {0x11070, 0x11070}, {0x1133b, 0x1133b}, {0x1145e, 0x1145e},
    {0x11839, 0x1183a}, {0x11930, 0x11930}, {0x11938, 0x11938}, {0x1193d, 0x1193e}, {0x11943, 0x11943},
    {0x119e0, 0x119e0}, {0x11a34, 0x11a34}, {0x11a47, 0x11a47}, {0x11a99, 0x11a99}, {0x11d42, 0x11d42},
    {0x11d44, 0x11d45}, {0x11d97, 0x11d97}, {0x11f41, 0x11f42}, {0x16ff0, 0x16ff1}, {0x1e030, 0x1e06d},
    {0x1e08f, 0x1e08f}, {0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef}, {0x1e4ec, 0x1e4ef},
    {0x1f16c, 0x1f16c}, {0x1fbf0, 0x1fbf9},
};

int tok_utf8_check(const char *s, int64_t n, bool *valid) {
    const unsigned char *u = (const unsigned char *)s;
    *valid = true;
    if (u[0] < 0x80) return 1;
    *valid = false;
    int need = u[0] >= 0xc2 && u[0] <= 0xdf ? 2 : (u[0] & 0xf0) == 0xe0 ? 3 : u[0] >= 0xf0 && u[0] <= 0xf4 ? 4 : 0;
    if (!need) return 1;
    /* The second byte is narrower after some first bytes: overlong forms, surrogates, beyond U+10FFFF. */
    unsigned low = u[0] == 0xe0 ? 0xa0 : u[0] == 0xf0 ? 0x90 : 0x80;
    unsigned high = u[0] == 0xed ? 0x9f : u[0] == 0xf4 ? 0x8f : 0xbf;
    for (int i = 1; i < need; i++) {
        if (i >= n || u[i] < low || u[i] > high) return i;
        low = 0x80;
        high = 0xbf;
    }
    *valid = true;
    return need;
}

bool tok_utf8_valid(const char *s, int64_t n) {
    for (int64_t i = 0; (i = tok_skip_ascii(s, i, n)) < n;) {
        bool valid;
        i += tok_utf8_check(s + i, n - i, &valid);
        if (!valid) return false;
    }
    return true;
}

void tok_utf8_repair(Str *out, const char *s, int64_t n) {
    for (int64_t i = 0; i < n;) {
        bool valid;
        int bytes = tok_utf8_check(s + i, n - i, &valid);
        if (valid)
            str_add_bytes(out, s + i, bytes);
        else
            str_add_bytes(out, "\xef\xbf\xbd", 3);
        i += bytes;
    }
}

int32_t tok_utf8_decode(const char *s, int *bytes) {
    const unsigned char *u = (const unsigned char *)s;
    if (u[0] < 0x80) return *bytes = 1, u[0];
    if (u[0] < 0xe0) return *bytes = 2, (u[0] & 0x1f) << 6 | (u[1] & 0x3f);
    if (u[0] < 0xf0) return *bytes = 3, (u[0] & 0x0f) << 12 | (u[1] & 0x3f) << 6 | (u[2] & 0x3f);
    return *bytes = 4, (u[0] & 0x07) << 18 | (u[1] & 0x3f) << 12 | (u[2] & 0x3f) << 6 | (u[3] & 0x3f);
}

int tok_utf8_encode(int32_t c, char *to) {
    return (int)utf8proc_encode_char(c, (utf8proc_uint8_t *)to);
}

bool tok_is_space(int32_t c) {
    if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
    return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

bool tok_is_word(int32_t c) {
    bool circled = (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
                   (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189); /* symbols, yet alphabetic */
    if (circled || c == 0x200c || c == 0x200d) return true;
    utf8proc_category_t k = utf8proc_category(c);
    return (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_NL) || k == UTF8PROC_CATEGORY_PC;
}

static int by_range(const void *character, const void *row) { /* rows of both tables begin as a Range does */
    int32_t c = *(const int32_t *)character;
    const Range *range = row;
    return c < range->first ? -1 : c > range->last;
}

bool tok_is_unnormalized(int32_t c) {
    return bsearch(&c, unnormalized, COUNT_OF(unnormalized), sizeof *unnormalized, by_range);
}

static bool is_newer(int32_t c) { return bsearch(&c, newer, COUNT_OF(newer), sizeof *newer, by_range); }

bool tok_has_newer(const char *s, int64_t n) {
    /* The blocks below U+10000 that hold newer characters, by code point / 256; beyond, all are looked up. */
    static const bool block[256] = {[0x08] = 1, [0x0c] = 1, [0x0e] = 1, [0x1b] = 1, [0x1c] = 1,
                                    [0x24] = 1, [0x2f] = 1, [0x31] = 1, [0xa7] = 1};
    for (int64_t i = 0; (i = tok_skip_ascii(s, i, n)) < n;) {
        int bytes;
        int32_t c = tok_utf8_decode(s + i, &bytes);
        if ((c >= 0x10000 || block[c >> 8]) && is_newer(c)) return true;
        i += bytes;
    }
    return false;
}

void tok_add_newer_ranges(Str *out, const char *category) {
    for (int i = 0; i < COUNT_OF(newer); i++)
        if (newer[i].category[0] == category[0] && (!category[1] || newer[i].category[1] == category[1]))
            str_addf(out, "\\x{%x}-\\x{%x}", (unsigned)newer[i].first, (unsigned)newer[i].last);
}
