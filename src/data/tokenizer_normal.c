/* tokenizer_normal.c - the normalizers: how text is rewritten before it is cut into words. */
#include "data/tokenizer_int.h"

#include <string.h>
#include <utf8proc.h>

static bool load_strip(TokStep *s, const json_t *component, Err *e) {
    bool left, right;
    if (!tok_json_bool(component, "strip_left", true, &left, e)) return false;
    if (!tok_json_bool(component, "strip_right", true, &right, e)) return false;
    s->strip_left = left;
    s->strip_right = right;
    return true;
}

bool tok_normal_load(Tokenizer *t, const json_t *component, Err *e) {
    static const struct {
        const char *name;
        TokStepKind kind;
    } known[] = {{"NFC", NORMAL_NFC},         {"NFD", NORMAL_NFD},        {"NFKC", NORMAL_NFKC},
                 {"NFKD", NORMAL_NFKD},       {"Strip", NORMAL_STRIP},    {"Lowercase", NORMAL_LOWERCASE},
                 {"Replace", NORMAL_REPLACE}, {"Prepend", NORMAL_PREPEND}};
    const char *type = tok_json_type(component);
    for (int i = 0; i < COUNT_OF(known); i++) {
        if (strcmp(type, known[i].name)) continue;
        TokStep *s = tok_steps_add(&t->normal, known[i].kind, e);
        if (!s) return false;
        switch (s->kind) {
            case NORMAL_REPLACE:
                return tok_replace_load(t, s, component, e);
            case NORMAL_PREPEND:
                return tok_step_text(t, s, component, "prepend", e);
            case NORMAL_STRIP:
                return load_strip(s, component, e);
            default:
                return true;
        }
    }
    return fail(e, ERR_FAIL, "normalizer \"%s\" is not supported", type);
}

/* Whether c stays what and where it is, whatever surrounds it: then a text of such characters needs no work. */
static bool is_settled(int32_t c, int options) {
    bool compose = options & UTF8PROC_COMPOSE, compat = options & UTF8PROC_COMPAT;
    if (c < 0x300 && compose && !compat) return true;
    if (c >= 0x1100 && c <= 0x11ff) return false;   /* Hangul: letters that compose by rule */
    if (c >= 0xac00 && c <= 0xd7a3) return compose; /* and syllables that decompose by rule */
    const utf8proc_property_t *p = utf8proc_get_property(c);
    bool decomposes = p->decomp_seqindex != UINT16_MAX && (compat || p->decomp_type == 0);
    bool mark = p->category >= UTF8PROC_CATEGORY_MN && p->category <= UTF8PROC_CATEGORY_ME;
    return !decomposes && !mark;
}

static int combining_class(int32_t c) {
    return (uint8_t)utf8proc_get_property(c)->combining_class;
}

/* Stable sort of marks by combining class: by insertion, or by counting when there are many (an insertion sort of
 * a hostile text would take hours). */
static void sort_marks(int32_t *marks, int64_t n) {
    if (n <= 32) {
        for (int64_t i = 1; i < n; i++) {
            int32_t mark = marks[i];
            int64_t at = i;
            for (; at > 0 && combining_class(marks[at - 1]) > combining_class(mark); at--)
                marks[at] = marks[at - 1];
            marks[at] = mark;
        }
        return;
    }
    int64_t next[257] = {0};
    int32_t *before = MEM_NEW(int32_t, n);
    memcpy(before, marks, (size_t)n * sizeof *marks);
    for (int64_t i = 0; i < n; i++) next[combining_class(before[i]) + 1]++;
    for (int k = 1; k <= 256; k++) next[k] += next[k - 1];
    for (int64_t i = 0; i < n; i++) marks[next[combining_class(before[i])]++] = before[i];
    mem_free(before);
}

/* Appends the normal form of one stretch. */
static void add_form(TokCall *c, Str *out, const char *s, int64_t n, int options) {
    enum { LONGEST = 32 }; /* code points that one character becomes, at most; Unicode has 18 */
    int32_t *points = NULL;
    int64_t used = 0, marks = 0; /* marks: of them at the end, not yet sorted */
    for (int64_t i = 0; i < n;) {
        int bytes, boundary = 0;
        int32_t point = tok_utf8_decode(s + i, &bytes);
        c->code_points.data = mem_grow(c->code_points.data, &c->code_points.capacity, (used + LONGEST + 1) * 4, 1);
        points = (int32_t *)(void *)c->code_points.data;
        int64_t got = utf8proc_decompose_char(point, points + used, LONGEST, options, &boundary);
        CHECK(got >= 0 && got <= LONGEST);
        for (; got > 0; got--, used++) {
            if (combining_class(points[used])) {
                marks++;
                continue;
            }
            sort_marks(points + used - marks, marks);
            marks = 0;
        }
        i += bytes;
    }
    sort_marks(points + used - marks, marks);
    int64_t bytes = utf8proc_reencode(points, used, options);
    CHECK(bytes >= 0);
    str_add_bytes(out, (const char *)points, bytes);
}

static bool is_ascii(char c) {
    return (unsigned char)c < 0x80;
}

static bool needs_form(const char *s, int64_t n, int options) {
    for (int64_t i = 0; (i = tok_skip_ascii(s, i, n)) < n;) {
        int bytes;
        int32_t point = tok_utf8_decode(s + i, &bytes);
        if (point >= 0x80 && !is_settled(point, options)) return true;
        i += bytes;
    }
    return false;
}

/* Normalises stretch by stretch. A stretch is the characters beyond ASCII in a row and the ASCII one that a first
 * mark may join; nothing joins an ASCII character from the left, nor one that is to be left alone from either
 * side. */
static void run_form(TokCall *c, Str *out, const char *s, int64_t n, int options) {
    for (int64_t from = 0, to = 0; from < n; from = to) {
        while (to < n && is_ascii(s[to]) && (to + 1 == n || is_ascii(s[to + 1]))) to++;
        str_add_bytes(out, s + from, to - from);
        from = to;
        if (to < n && is_ascii(s[to])) to++;
        bool settled = true, alone = false;
        int bytes = 0;
        while (to < n && !is_ascii(s[to])) {
            int32_t point = tok_utf8_decode(s + to, &bytes);
            if (!is_settled(point, options)) {
                alone = tok_is_unnormalized(point);
                if (alone) break;
                settled = false;
            }
            to += bytes;
        }
        if (settled)
            str_add_bytes(out, s + from, to - from);
        else
            add_form(c, out, s + from, to - from, options);
        if (!alone) continue;
        str_add_bytes(out, s + to, bytes);
        to += bytes;
    }
}

static void run_lowercase(Str *out, const char *s, int64_t n) {
    for (int64_t i = 0; i < n;) {
        int bytes;
        int32_t point = tok_utf8_decode(s + i, &bytes);
        char to[4];
        if (point == 0x130)
            str_add(out, "i\xcc\x87"); /* the only capital whose small letter is two characters */
        else
            str_add_bytes(out, to, tok_utf8_encode(utf8proc_tolower(point), to));
        i += bytes;
    }
}

static void run_strip(const TokStep *step, const char **s, int64_t *n) {
    int bytes;
    while (step->strip_left && *n && tok_is_space(tok_utf8_decode(*s, &bytes))) {
        *s += bytes;
        *n -= bytes;
    }
    while (step->strip_right && *n) {
        int64_t last = *n - 1;
        while (last > 0 && ((*s)[last] & 0xc0) == 0x80) last--;
        if (!tok_is_space(tok_utf8_decode(*s + last, &bytes))) break;
        *n = last;
    }
}

static const int form[] = {
    [NORMAL_NFC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE,
    [NORMAL_NFD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
    [NORMAL_NFKC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
    [NORMAL_NFKD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT,
};

static bool is_form(TokStepKind kind) { return kind <= NORMAL_NFKD; }

bool tok_normal_cuts(const Tokenizer *t, int32_t c) {
    for (int i = 0; i < t->normal.n; i++)
        if (is_form(t->normal.step[i].kind) && !is_settled(c, form[t->normal.step[i].kind])) return false;
    return true;
}

/* Normal forms of normal forms are the same; so is a replaced space. */
bool tok_normal_streams(const Tokenizer *t) {
    for (int i = 0; i < t->normal.n; i++) {
        const TokStep *s = &t->normal.step[i];
        bool space = s->kind == NORMAL_REPLACE && s->pattern.literal && !strcmp(s->pattern.literal, " ") &&
                     !memchr(s->text, ' ', (size_t)s->text_bytes);
        if (!is_form(s->kind) && s->kind != NORMAL_PREPEND && !space) return false;
    }
    return true;
}

/* Runs one step from (*s, *n) into out; a step that changes nothing leaves out empty and (*s, *n) as they are. */
static bool run_step(TokCall *c, const TokStep *step, Str *out, const char **s, int64_t *n) {
    switch (step->kind) {
        case NORMAL_NFC:
        case NORMAL_NFD:
        case NORMAL_NFKC:
        case NORMAL_NFKD:
            if (!needs_form(*s, *n, form[step->kind])) return true;
            run_form(c, out, *s, *n, form[step->kind]);
            break;
        case NORMAL_STRIP:
            run_strip(step, s, n);
            return true;
        case NORMAL_LOWERCASE:
            run_lowercase(out, *s, *n);
            break;
        case NORMAL_PREPEND:
            if (c->continues) return true;
            str_add_bytes(out, step->text, step->text_bytes);
            str_add_bytes(out, *s, *n);
            break;
        case NORMAL_REPLACE:
            if (!tok_pattern_replace(step, &c->match, out, *s, *n, c->e)) return false;
            break;
        default:
            CHECK_MSG(false, "step %d is no normalizer", (int)step->kind);
    }
    *s = str_text(out);
    *n = out->len;
    return true;
}

bool tok_normal_run(TokCall *c, const char **text, int64_t *n) {
    const TokSteps *steps = &c->t->normal;
    int into = 0;
    for (int i = 0; i < steps->n && *n; i++) {
        Str *out = &c->normal[into];
        const char *before = *text;
        str_clear(out);
        if (!run_step(c, &steps->step[i], out, text, n)) return false;
        if (*text != before && *text == out->data) into = !into;
    }
    return true;
}
