/* tokenizer_regex.c - patterns of tokenizer.json, which are written for Oniguruma, said to PCRE2.
 *
 * The two agree on what the known split patterns use, after three changes made here: \s and \w are spelt out
 * (PCRE2's have other members), \p{..} is completed with newer characters (tokenizer_unicode.c), ^ and $ hold at
 * every line. What the two read differently is refused, so that a pattern either means the same or is not
 * accepted.
 *
 * Naming the newer characters halves the speed of a match, and next to no text has one. So each pattern is
 * compiled with and without them, and the caller says whether the text has any. */
#include "data/tokenizer_int.h"

#include <string.h>

#define SPACES "\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define NOT_SPACES                                                                                               \
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}!-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}" \
    "\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}"

static bool refuse(const char *what, int n, const char *regex, Err *e) {
    return fail(e, ERR_FAIL, "pattern \"%.200s\" uses \"%.*s\", which is not supported", regex, n, what);
}

/* What is being written: a pattern for all texts, or for those without newer characters. */
typedef struct Said {
    Str text;
    bool newer;
    bool looks_back;
} Said;

static void add_newer(Said *out, const char *category) {
    if (out->newer) tok_add_newer_ranges(&out->text, category);
}

/* The members of \p{name}, for the inside of a class. */
static void add_property(Said *out, const char *name, int n) {
    if (n > 2) { /* a script; PCRE2 would also take in characters that other scripts share */
        str_addf(&out->text, "\\p{sc:%.*s}", n, name);
        return;
    }
    char category[3] = {name[0], n > 1 ? name[1] : 0, 0};
    if (!strcmp(category, "L")) str_add(&out->text, "A-Za-z"); /* a bitmap test, ahead of the table */
    str_addf(&out->text, "\\p{%s}", category);
    add_newer(out, category);
}

static void add_word(Said *out) {
    str_add(&out->text, "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}");
    add_newer(out, "L");
    add_newer(out, "M");
    add_newer(out, "Nd");
}

/* \p{..} and \P{..}; *s stands behind the letter. */
static bool translate_property(Said *out, const char **s, bool in_class, bool negated, const char *regex, Err *e) {
    const char *name = *s + 1, *close = **s == '{' ? strchr(*s, '}') : NULL;
    if (!close) return refuse(*s - 2, 2, regex, e);
    if (*name == '^') {
        negated = !negated;
        name++;
    }
    if (close == name || (in_class && negated)) return refuse(*s - 2, (int)(close - *s) + 3, regex, e);
    if (!in_class) str_add(&out->text, negated ? "[^" : "[");
    add_property(out, name, (int)(close - name));
    if (!in_class) str_add_char(&out->text, ']');
    *s = close + 1;
    return true;
}

static bool is_hex(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* \xHH, \x{H...} and \uHHHH; *s stands behind the letter. */
static bool translate_code(Said *out, const char **s, char letter, const char *regex, Err *e) {
    bool braces = letter == 'x' && **s == '{';
    const char *digits = *s + braces;
    int n = 0, limit = braces ? 6 : letter == 'u' ? 4 : 2;
    while (n < limit && is_hex(digits[n])) n++;
    bool complete = braces ? n > 0 && digits[n] == '}' : n == limit;
    if (!complete || (limit == 2 && digits[0] > '7')) return refuse(*s - 2, 2 + n, regex, e); /* a lone byte */
    str_addf(&out->text, "\\x{%.*s}", n, digits);
    *s = digits + n + braces;
    return true;
}

/* One escape; *s stands on the backslash. */
static bool translate_escape(Said *out, const char **s, bool in_class, const char *regex, Err *e) {
    char c = (*s)[1];
    *s += c ? 2 : 1;
    switch (c) {
        case 's':
            str_add(&out->text, in_class ? SPACES : "[" SPACES "]");
            return true;
        case 'S':
            str_add(&out->text, in_class ? NOT_SPACES : "[^" SPACES "]");
            return true;
        case 'd':
        case 'D':
        case 'w':
        case 'W':
            if (in_class && (c == 'D' || c == 'W')) return refuse(*s - 2, 2, regex, e);
            if (!in_class) str_add(&out->text, c == 'D' || c == 'W' ? "[^" : "[");
            if (c == 'd' || c == 'D')
                add_property(out, "Nd", 2);
            else
                add_word(out);
            if (!in_class) str_add_char(&out->text, ']');
            return true;
        case 'p':
            return translate_property(out, s, in_class, false, regex, e);
        case 'P':
            return translate_property(out, s, in_class, true, regex, e);
        case 'x':
        case 'u':
            return translate_code(out, s, c, regex, e);
        case 'v':
            str_add(&out->text, "\\x{b}");
            return true; /* PCRE2's \v is all vertical space */
        case 'r':
        case 'n':
        case 't':
        case 'f':
        case 'a':
        case 'e':
            str_addf(&out->text, "\\%c", c);
            return true;
        case 'A':
        case 'z':
            if (in_class) return refuse(*s - 2, 2, regex, e);
            str_addf(&out->text, "\\%c", c);
            out->looks_back = true;
            return true;
        default:
            break;
    }
    bool plain = c && !(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z');
    if (!plain) return refuse(*s - (c ? 2 : 1), c ? 2 : 1, regex, e);
    str_addf(&out->text, "\\%c", c);
    return true;
}

/* An opening parenthesis with what belongs to it, as far as both engines agree. */
static bool translate_group(Said *out, const char **s, const char *regex, Err *e) {
    static const char *const known[] = {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?i:", "(?-i:", "(?i)"};
    const char *open = "(";
    if ((*s)[1] == '?' || (*s)[1] == '*') {
        open = NULL;
        for (int i = 0; i < COUNT_OF(known); i++)
            if (str_starts(*s, known[i])) open = known[i];
        if (!open) return refuse(*s, (int)strnlen(*s, 4), regex, e);
    }
    str_add(&out->text, open);
    *s += strlen(open);
    out->looks_back |= str_starts(open, "(?<");
    return true;
}

/* One element that is not an escape; *s stands on it. */
static bool translate_plain(Said *out, const char **s, bool *in_class, const char *regex, Err *e) {
    const char *at = *s;
    if (*in_class) {
        /* Oniguruma reads a nested class and an intersection here. */
        if (at[0] == '[' || (at[0] == '&' && at[1] == '&')) return refuse(at, 2, regex, e);
        *in_class = at[0] != ']';
    } else if (at[0] == '[') {
        *in_class = true;
        int n = at[1] == '^' ? 2 : 1;
        if (at[n] == ']') return refuse(at, n + 1, regex, e);
        str_add_bytes(&out->text, at, n);
        *s += n;
        return true;
    } else if (at[0] == '(') {
        return translate_group(out, s, regex, e);
    } else if (at[0] == '^' || at[0] == '$') {
        str_addf(&out->text, "(?m:%c)", at[0]);
        out->looks_back = true;
        *s += 1;
        return true;
    } else if ((at[0] == '{' && at[1] == ',') || (at[0] == '}' && (at[1] == '+' || at[1] == '?'))) {
        return refuse(at, 2, regex, e); /* intervals that Oniguruma repeats, PCRE2 makes possessive or lazy */
    }
    str_add_char(&out->text, at[0]);
    *s += 1;
    return true;
}

static bool translate(Said *out, const char *regex, Err *e) {
    bool in_class = false;
    for (const char *s = regex; *s;) {
        bool ok = *s == '\\' ? translate_escape(out, &s, in_class, regex, e)
                             : translate_plain(out, &s, &in_class, regex, e);
        if (!ok) return false;
    }
    return true;
}

static void *pcre_alloc(size_t bytes, void *unused) { return mem_alloc((int64_t)bytes); }

static void pcre_free(void *p, void *unused) { mem_free(p); }

pcre2_match_data *tok_match_data_new(void) {
    pcre2_general_context *heap = pcre2_general_context_create(pcre_alloc, pcre_free, NULL);
    pcre2_match_data *data = pcre2_match_data_create(1, heap);
    pcre2_general_context_free(heap);
    return data;
}

static bool compile_one(pcre2_code **to, bool *looks_back, const char *regex, bool newer, Err *e) {
    Said said = {.newer = newer};
    int code;
    PCRE2_SIZE where;
    *to = NULL;
    if (!translate(&said, regex, e)) {
        str_free(&said.text);
        return false;
    }
    pcre2_general_context *heap = pcre2_general_context_create(pcre_alloc, pcre_free, NULL); /* never NULL: mem.h */
    pcre2_compile_context *context = pcre2_compile_context_create(heap);
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    *looks_back = said.looks_back;
    *to = pcre2_compile((PCRE2_SPTR)str_text(&said.text), (PCRE2_SIZE)said.text.len, PCRE2_UTF | PCRE2_UCP, &code,
                        &where, context);
    pcre2_compile_context_free(context);
    pcre2_general_context_free(heap);
    str_free(&said.text);
    if (*to) return true;
    PCRE2_UCHAR why[120];
    pcre2_get_error_message(code, why, sizeof why);
    return fail(e, ERR_FAIL, "pattern \"%.200s\": %s", regex, (const char *)why);
}

bool tok_pattern_compile(TokPattern *p, const char *regex, Err *e) {
    *p = (TokPattern){0};
    if (!compile_one(&p->code, &p->looks_back, regex, false, e) ||
        !compile_one(&p->newer_code, &p->looks_back, regex, true, e)) {
        tok_pattern_free(p);
        return false;
    }
    const uint32_t ways = PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD;
    p->jit = pcre2_jit_compile(p->code, ways) == 0 && /* where the system allows it */
             pcre2_jit_compile(p->newer_code, ways) == 0;
    return true;
}

void tok_pattern_literal(TokPattern *p, Arena *a, const char *text) {
    *p = (TokPattern){.literal = arena_strdup(a, text), .literal_bytes = (int64_t)strlen(text)};
}

bool tok_pattern_load(TokPattern *p, Arena *a, const json_t *pattern, Err *e) {
    const char *literal = json_string_value(json_object_get(pattern, "String"));
    const char *regex = json_string_value(json_object_get(pattern, "Regex"));
    if (literal && *literal) return tok_pattern_literal(p, a, literal), true;
    if (regex && *regex) return tok_pattern_compile(p, regex, e);
    return fail(e, ERR_FAIL, "\"pattern\" should be {\"String\": text} or {\"Regex\": text}, and not empty");
}

void tok_pattern_free(TokPattern *p) {
    pcre2_code_free(p->code);
    pcre2_code_free(p->newer_code);
    *p = (TokPattern){0};
}

static int64_t code_bytes(const pcre2_code *code) {
    size_t size = 0, jit = 0;
    if (code) pcre2_pattern_info(code, PCRE2_INFO_SIZE, &size);
    if (code) pcre2_pattern_info(code, PCRE2_INFO_JITSIZE, &jit);
    return (int64_t)(size + jit);
}

int64_t tok_pattern_bytes(const TokPattern *p) {
    return code_bytes(p->code) + code_bytes(p->newer_code);
}

bool tok_pattern_find(const TokPattern *p, TokMatch *m, const char *text, int64_t n, int64_t from, Err *e) {
    if (p->literal) {
        const char *hit = memmem(text + from, (size_t)(n - from), p->literal, (size_t)p->literal_bytes);
        m->found = hit != NULL;
        m->start = hit ? hit - text : 0;
        m->end = m->start + p->literal_bytes;
        return true;
    }
    PCRE2_SPTR subject = (PCRE2_SPTR)text;
    int rc = PCRE2_ERROR_JIT_STACKLIMIT;
    const pcre2_code *code = m->newer ? p->newer_code : p->code;
    uint32_t how = m->more ? PCRE2_PARTIAL_HARD : 0; /* gives up as soon as it looks at the end */
    if (p->jit) rc = pcre2_jit_match(code, subject, (PCRE2_SIZE)n, (PCRE2_SIZE)from, how, m->data, NULL);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) /* the interpreter takes its stack from the heap */
        rc = pcre2_match(code, subject, (PCRE2_SIZE)n, (PCRE2_SIZE)from, how | PCRE2_NO_JIT | PCRE2_NO_UTF_CHECK,
                         m->data, NULL);
    m->found = rc >= 0;
    m->more = false;
    if (rc < 0 && rc != PCRE2_ERROR_NOMATCH && rc != PCRE2_ERROR_PARTIAL) {
        PCRE2_UCHAR why[120];
        pcre2_get_error_message(rc, why, sizeof why);
        return fail(e, ERR_FAIL, "the tokenizer's pattern gave up after byte %lld: %s", (long long)from,
                    (const char *)why);
    }
    const PCRE2_SIZE *span = pcre2_get_ovector_pointer(m->data);
    m->start = m->found ? (int64_t)span[0] : 0;
    m->end = m->found ? (int64_t)span[1] : 0;
    return true;
}

bool tok_pattern_replace(const TokStep *step, TokMatch *m, Str *out, const char *text, int64_t n, Err *e) {
    int64_t done = 0;
    for (int64_t at = 0; at <= n;) {
        if (!tok_pattern_find(&step->pattern, m, text, n, at, e)) return false;
        if (!m->found) break;
        str_add_bytes(out, text + done, m->start - done);
        str_add_bytes(out, step->text, step->text_bytes);
        done = at = m->end;
        if (m->start < m->end) continue;
        int bytes = 1; /* an empty match: go past a character */
        if (at < n) tok_utf8_decode(text + at, &bytes);
        at += bytes;
    }
    str_add_bytes(out, text + done, n - done);
    return true;
}
