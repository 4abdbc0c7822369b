/* template_lex.c - where text ends and code begins, and which white space around a tag belongs to nobody.
 *
 * Outside tags everything is data. "{%-" removes all white space before a tag, "-%}" all after it. Without a sign,
 * a block or comment that stands alone on its line takes the line's indentation (lstrip_blocks) and the newline
 * after it (trim_blocks); "+" keeps them. A tag may end only where its brackets are closed, so "}}" inside nested
 * dictionaries is safe. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "data/template_int.h"

typedef struct Lexer {
    Arena *arena;
    Tokens *out;
    Text source; /* newlines are \n */
    int64_t at;
    int line;
    bool line_starting; /* the last tag ended with a newline, or nothing was read yet */
    const char *name;
    Err *e;
} Lexer;

static bool refuse(Lexer *x, const char *what, int line) {
    return fail(x->e, ERR_FAIL, "%s:%d: %s", x->name, line, what);
}

static char peek(const Lexer *x, int64_t ahead) {
    return x->at + ahead < x->source.n ? x->source.p[x->at + ahead] : 0;
}

static bool looking_at(const Lexer *x, int64_t at, const char *s) {
    int64_t n = (int64_t)strlen(s);
    return at + n <= x->source.n && memcmp(x->source.p + at, s, (size_t)n) == 0;
}

static int64_t skip_space(const Lexer *x, int64_t at) {
    int32_t c;
    while (at < x->source.n) {
        int n = tpl_decode(x->source, at, &c);
        if (!tpl_is_space(c)) break;
        at += n;
    }
    return at;
}

static void advance_to(Lexer *x, int64_t to) {
    for (; x->at < to; x->at++) x->line += x->source.p[x->at] == '\n';
}

static Token *add(Lexer *x, TokenKind kind, Text text) {
    Tokens *t = x->out;
    t->at = mem_grow(t->at, &t->capacity, t->n + 1, sizeof *t->at);
    t->at[t->n] = (Token){.kind = kind, .line = x->line, .text = text};
    return &t->at[t->n++];
}

/* The data before a tag at `end`, as white space control leaves it. sign: of the tag ('-', '+' or none). */
static void add_data(Lexer *x, int64_t end, char sign, bool is_variable) {
    Text t = {x->source.p + x->at, end - x->at};
    if (sign == '-') {
        t = tpl_strip(t, NULL, false, true);
    } else if (sign != '+' && !is_variable) {
        int64_t line = t.n;
        while (line > 0 && t.p[line - 1] != '\n') line--;
        bool alone = skip_space(x, x->at + line) >= end;
        if ((line > 0 || x->line_starting) && alone) t.n = line;
    }
    if (t.n > 0) add(x, T_DATA, t);
    advance_to(x, end);
}

/* The length of the end of a tag at `at` ("%}" and its kin, with the white space it takes), or 0. */
static int64_t tag_end(const Lexer *x, int64_t at, const char *close) {
    bool is_variable = close[0] == '}';
    char minus[4] = {'-', close[0], close[1], 0}, plus[4] = {'+', close[0], close[1], 0};
    if (looking_at(x, at, minus)) return skip_space(x, at + 3) - at;
    if (!is_variable && looking_at(x, at, plus)) return 3;
    if (!looking_at(x, at, close)) return 0;
    return !is_variable && looking_at(x, at + 2, "\n") ? 3 : 2;
}

static void end_tag(Lexer *x, int64_t bytes) {
    advance_to(x, x->at + bytes);
    x->line_starting = x->source.p[x->at - 1] == '\n';
}

static int digit_value(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : 99;
}

/* How many bytes of digits (with single underscores between them) stand at `at`. */
static int64_t digits(const Lexer *x, int64_t at, int base) {
    int64_t n = 0;
    while (at + n < x->source.n) {
        char c = x->source.p[at + n];
        bool joint = c == '_' && n > 0 && at + n + 1 < x->source.n && digit_value(x->source.p[at + n + 1]) < base;
        if (digit_value(c) >= base && !joint) break;
        n++;
    }
    return n;
}

static int64_t float_length(const Lexer *x) {
    if (x->at > 0 && x->source.p[x->at - 1] == '.') return 0;
    int64_t whole = digits(x, x->at, 10), at = x->at + whole, fraction = 0, exponent = 0;
    if (looking_at(x, at, ".")) fraction = digits(x, at + 1, 10);
    if (fraction) at += 1 + fraction;
    if (at < x->source.n && (x->source.p[at] | 32) == 'e') {
        int64_t sign = looking_at(x, at + 1, "+") || looking_at(x, at + 1, "-");
        exponent = digits(x, at + 1 + sign, 10);
        if (exponent) at += 1 + sign + exponent;
    }
    return fraction || exponent ? at - x->at : 0;
}

static bool lex_number(Lexer *x) {
    char plain[64];
    int64_t n = float_length(x), used = 0, base = 10, skip = 0;
    bool is_float = n > 0;
    if (!is_float) {
        char mark = (char)(peek(x, 1) | 32);
        base = peek(x, 0) != '0' ? 10 : mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 1;
        skip = base == 10 || base == 1 ? 0 : 2;
        /* base 1: a zero may be followed by zeros only, as in Python */
        int64_t found = digits(x, x->at + skip, (int)base);
        if (skip && !found) base = 1, skip = 0, found = digits(x, x->at, 1);
        n = skip + found;
    }
    for (int64_t i = skip; i < n; i++) {
        if (peek(x, i) == '_') continue;
        if (used + 1 >= (int64_t)sizeof plain) return refuse(x, "a number of more than 63 digits", x->line);
        plain[used++] = peek(x, i);
    }
    plain[used] = 0;
    Token *t = add(x, is_float ? T_FLOAT : T_INT, (Text){x->source.p + x->at, n});
    if (is_float) {
        t->f = strtod(plain, NULL);
    } else {
        for (int64_t i = 0; i < used; i++)
            if (__builtin_mul_overflow(t->i, base, &t->i) ||
                __builtin_add_overflow(t->i, digit_value(plain[i]), &t->i))
                return refuse(x, "an integer of more than 64 bits", x->line);
    }
    advance_to(x, x->at + n);
    return true;
}

static bool is_name_byte(char c) { return isalnum((unsigned char)c) || c == '_' || (unsigned char)c >= 0x80; }

static void lex_name(Lexer *x) {
    int64_t n = 0;
    int32_t c;
    while (x->at + n < x->source.n && is_name_byte(x->source.p[x->at + n])) {
        int bytes = tpl_decode(x->source, x->at + n, &c);
        if (tpl_is_space(c)) break;
        n += bytes;
    }
    add(x, T_NAME, (Text){x->source.p + x->at, n});
    advance_to(x, x->at + n);
}

/* A character given by number: \x41, \u00e9, \U0001F600, \101. Returns the bytes after the backslash, 0: bad. */
static int64_t numbered(Text t, int64_t at, int32_t *c) {
    char kind = t.p[at];
    int want = kind == 'x' ? 2 : kind == 'u' ? 4 : kind == 'U' ? 8 : 3, base = want == 3 ? 8 : 16, n = 0;
    int64_t first = at + (base == 16);
    uint32_t v = 0;
    while (n < want && first + n < t.n && digit_value(t.p[first + n]) < base)
        v = v * (uint32_t)base + (uint32_t)digit_value(t.p[first + n++]);
    if (base == 16 && n < want) return 0;
    if (v > 0x10FFFF || (v >= 0xD800 && v < 0xE000)) return 0;
    *c = (int32_t)v;
    return n + (base == 16);
}

static bool unescape(Lexer *x, Text t, Text *out) {
    static const char from[] = "abfnrtv\\'\"", to[] = "\a\b\f\n\r\t\v\\'\"";
    char *p = arena_alloc(x->arena, t.n);
    int64_t n = 0;
    for (int64_t i = 0; i < t.n; i++) {
        if (t.p[i] != '\\' || i + 1 == t.n) {
            p[n++] = t.p[i];
            continue;
        }
        char c = t.p[++i];
        const char *simple = strchr(from, c);
        if (c == '\n') continue;
        if (simple && c) {
            p[n++] = to[simple - from];
        } else if (c == 'x' || c == 'u' || c == 'U' || (c >= '0' && c <= '7')) {
            int32_t point;
            int64_t used = numbered(t, i, &point);
            if (!used)
                return refuse(x, "a string holds a \\x, \\u or \\U escape that names no character", x->line);
            n += tpl_encode(p + n, point);
            i += used - 1;
        } else if (c == 'N') {
            return refuse(x, "a string holds a \\N{...} escape, which is not supported", x->line);
        } else {
            p[n++] = '\\';
            p[n++] = c;
        }
    }
    *out = (Text){p, n};
    return true;
}

static bool lex_string(Lexer *x) {
    char quote = peek(x, 0);
    int64_t end = x->at + 1;
    Text t;
    while (end < x->source.n && x->source.p[end] != quote) end += x->source.p[end] == '\\' ? 2 : 1;
    if (end >= x->source.n) return refuse(x, "a string is not closed", x->line);
    if (!unescape(x, (Text){x->source.p + x->at + 1, end - x->at - 1}, &t)) return false;
    add(x, T_STRING, t);
    advance_to(x, end + 1);
    return true;
}

static TokenKind operator_at(const Lexer *x, int64_t *bytes) {
    static const char two[] = "**//==!=>=<=", one[] = "+-/*%~[](){}><=.:|,;";
    *bytes = 2;
    for (int i = 0; two[2 * i]; i++)
        if (peek(x, 0) == two[2 * i] && peek(x, 1) == two[2 * i + 1]) return (TokenKind)(T_POW + i);
    *bytes = 1;
    const char *hit = peek(x, 0) ? strchr(one, peek(x, 0)) : NULL;
    return hit ? (TokenKind)(T_ADD + (hit - one)) : T_END;
}

static bool lex_operator(Lexer *x, char *closers, int *open) {
    int64_t bytes;
    TokenKind kind = operator_at(x, &bytes);
    char c = peek(x, 0), message[64] = "unexpected character ' '";
    if (kind == T_LBRACE || kind == T_LPAREN || kind == T_LBRACKET) {
        if (*open >= TPL_PARSE_DEPTH) return refuse(x, "brackets are nested too deeply", x->line);
        closers[(*open)++] = kind == T_LBRACE ? '}' : kind == T_LPAREN ? ')' : ']';
    }
    bool closes = kind == T_RBRACE || kind == T_RPAREN || kind == T_RBRACKET;
    if (kind == T_END || (closes && (*open == 0 || closers[--*open] != c))) {
        message[strlen(message) - 2] = (unsigned char)c >= 0x20 && (unsigned char)c < 0x7F ? c : '?';
        return refuse(x, message, x->line);
    }
    add(x, kind, (Text){x->source.p + x->at, bytes});
    advance_to(x, x->at + bytes);
    return true;
}

static bool lex_tag(Lexer *x, TokenKind end, const char *close) {
    char closers[TPL_PARSE_DEPTH];
    int open = 0, began = x->line;
    for (;;) {
        int64_t bytes = open ? 0 : tag_end(x, x->at, close);
        if (bytes) {
            add(x, end, (Text){close, 2});
            end_tag(x, bytes);
            return true;
        }
        int64_t to = skip_space(x, x->at);
        if (to > x->at) {
            advance_to(x, to);
            continue;
        }
        char c = peek(x, 0);
        if (x->at >= x->source.n) return refuse(x, "a tag that begins here is not closed", began);
        if (c == '"' || c == '\'') {
            if (!lex_string(x)) return false;
        } else if (c >= '0' && c <= '9') {
            if (!lex_number(x)) return false;
        } else if (is_name_byte(c)) {
            lex_name(x);
        } else if (!lex_operator(x, closers, &open)) {
            return false;
        }
    }
}

/* {#- ... -#} and {% raw %} ... {% endraw %} are read without tokens. */
static bool lex_comment(Lexer *x) {
    int began = x->line;
    for (int64_t at = x->at; at < x->source.n; at++) {
        int64_t bytes = tag_end(x, at, "#}");
        if (!bytes) continue;
        advance_to(x, at);
        end_tag(x, bytes);
        return true;
    }
    return refuse(x, "a comment that begins here is not closed", began);
}

/* Whether "{%", a sign, and the word stand at `at`; gives the offset after the word. */
static bool word_tag(const Lexer *x, int64_t at, const char *word, char *sign, int64_t *after) {
    if (!looking_at(x, at, "{%")) return false;
    at += 2;
    *sign = at < x->source.n ? x->source.p[at] : 0;
    if (*sign == '-' || *sign == '+')
        at++;
    else
        *sign = 0;
    at = skip_space(x, at);
    if (!looking_at(x, at, word)) return false;
    *after = skip_space(x, at + (int64_t)strlen(word));
    return true;
}

static bool lex_raw(Lexer *x, int64_t body) {
    int began = x->line;
    end_tag(x, body - x->at);
    for (int64_t at = x->at, after; at < x->source.n; at++) {
        char sign;
        if (!word_tag(x, at, "endraw", &sign, &after)) continue;
        int64_t bytes = tag_end(x, after, "%}");
        if (!bytes) continue;
        add_data(x, at, sign, false);
        end_tag(x, after + bytes - at);
        return true;
    }
    return refuse(x, "a raw block that begins here is not closed", began);
}

static bool lex_root(Lexer *x) {
    while (x->at < x->source.n) {
        int64_t tag = x->at, after;
        while (tag < x->source.n && !(x->source.p[tag] == '{' && tag + 1 < x->source.n &&
                                      x->source.p[tag + 1] && strchr("{%#", x->source.p[tag + 1])))
            tag++;
        if (tag >= x->source.n) {
            add(x, T_DATA, (Text){x->source.p + x->at, tag - x->at});
            return true;
        }
        char kind = x->source.p[tag + 1], sign = tag + 2 < x->source.n ? x->source.p[tag + 2] : 0, raw_sign;
        bool is_raw = word_tag(x, tag, "raw", &raw_sign, &after) && tag_end(x, after, "%}") &&
                      !looking_at(x, after, "+");
        add_data(x, tag, sign, kind == '{');
        if (is_raw) {
            int64_t body = looking_at(x, after, "-") ? skip_space(x, after + 3) : after + 2;
            if (!lex_raw(x, body)) return false;
            continue;
        }
        int64_t bytes = sign == '-' || sign == '+' ? 3 : 2;
        if (kind != '#') add(x, kind == '{' ? T_VAR_BEGIN : T_BLOCK_BEGIN, (Text){x->source.p + tag, 2});
        advance_to(x, tag + bytes);
        bool ok = kind == '#'   ? lex_comment(x)
                  : kind == '{' ? lex_tag(x, T_VAR_END, "}}")
                                : lex_tag(x, T_BLOCK_END, "%}");
        if (!ok) return false;
    }
    return true;
}

/* A copy whose newlines are \n and that has lost one newline at its end. */
static Text normalise(Arena *arena, Text source) {
    char *p = arena_alloc(arena, source.n);
    int64_t n = 0;
    for (int64_t i = 0; i < source.n; i++) {
        bool pair = source.p[i] == '\r' && i + 1 < source.n && source.p[i + 1] == '\n';
        if (!pair) p[n++] = source.p[i] == '\r' ? '\n' : source.p[i];
    }
    if (n > 0 && p[n - 1] == '\n') n--;
    return (Text){p, n};
}

bool tpl_lex(Tokens *out, Arena *arena, Text source, const char *name, Err *e) {
    Lexer x = {.arena = arena, .out = out, .line = 1, .line_starting = true, .name = name, .e = e};
    if (!tpl_text_valid(source)) return fail(e, ERR_FAIL, "%s: the template is not valid UTF-8", name);
    x.source = normalise(arena, source);
    if (!lex_root(&x)) return false;
    add(&x, T_END, TEXT("end of template"));
    return true;
}
