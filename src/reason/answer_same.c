/* answer_same.c - when two answers mean the same: as text, part by part, as numbers, as formulas at drawn points. */
#include <ctype.h>
#include <math.h>
#include <string.h>
#include <strings.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "reason/answer_int.h"

enum { PARTS_MOST = 64, UNORDERED_MOST = 16, NEST_MOST = 6, POINTS = 8 };

static bool same_plain(const char *a, const char *b, int depth);

/* ---- as text ---- */

static bool has_word(const char *p) {
    for (int64_t n = 0; *p; p++) {
        n = isalpha((unsigned char)*p) ? n + 1 : 0;
        if (n == 3) return true;
    }
    return false;
}

static bool same_text(const char *a, const char *b) {
    Str x = {0}, y = {0};
    answer_squash(&x, a);
    answer_squash(&y, b);
    bool same = x.len && !strcmp(str_text(&x), str_text(&y));
    if (!same && x.len && (has_word(a) || strchr(a, ':'))) same = !strcasecmp(str_text(&x), str_text(&y));
    str_free(&x);
    str_free(&y);
    return same;
}

/* ---- a choice: B, (B), b., B) 21, option B ---- */

/* The letter, or 0. *rest: what the choice says, "" when the letter stands alone. */
static char choice_of(const char *p, const char **rest) {
    if (!strncasecmp(p, "option ", 7) || !strncasecmp(p, "choice ", 7)) p += 7;
    p += *p == '(';
    char letter = (char)toupper((unsigned char)*p);
    if (letter < 'A' || letter > 'J') return 0;
    p++;
    bool marked = *p && strchr(").:", *p);
    p += marked;
    *rest = p;
    while (**rest == ' ') ++*rest;
    return !**rest || (marked && *rest > p) ? letter : 0;
}

/* The letter decides where both have one; else what the choice says is the answer. */
static bool same_choice(const char *a, const char *b, int depth) {
    const char *a_rest = "", *b_rest = "";
    char x = choice_of(a, &a_rest), y = choice_of(b, &b_rest);
    if (x && y) return x == y && (!*a_rest || !*b_rest || same_plain(a_rest, b_rest, depth + 1));
    if (*a_rest && x) return same_plain(a_rest, b, depth + 1);
    return *b_rest && y && same_plain(a, b_rest, depth + 1);
}

/* ---- parts ---- */

typedef struct Parts {
    char open, close; /* of the brackets around, 0: none; a set's are '{' and '}' */
    char *part[PARTS_MOST]; /* owns */
    int n, rows_end;        /* how many ';' there were: a matrix has some between its rows */
} Parts;

static void parts_free(Parts *s) {
    for (int i = 0; i < s->n; i++) mem_free(s->part[i]);
    s->n = 0;
}

static void add_part(Parts *s, const char *begin, const char *end) {
    while (begin < end && *begin == ' ') begin++;
    while (end > begin && end[-1] == ' ') end--;
    char *copy = mem_alloc(end - begin + 1);
    if (end > begin) memcpy(copy, begin, (size_t)(end - begin));
    s->part[s->n++] = copy;
}

/* Is the comma at p a separator of thousands: "1,234"? */
static bool in_number(const char *p, const char *begin) {
    int before = 0, after = 0;
    while (p - before > begin && isdigit((unsigned char)p[-before - 1])) before++;
    while (isdigit((unsigned char)p[1 + after])) after++;
    bool first = p - before == begin || p[-before - 1] != ',';
    return before >= 1 && before <= 3 && after == 3 && !(first && p[-before] == '0');
}

/* The length of what separates parts at p; 0: nothing does. */
static int separator(const char *p, const char *begin) {
    if (*p == ';' || (*p == ',' && !in_number(p, begin))) {
        if (!strncmp(p, ", and ", 6)) return 6;
        return strncmp(p, ", or ", 5) ? 1 : 5;
    }
    if (!strncmp(p, " and ", 5)) return 5;
    if (!strncmp(p, " or ", 4)) return 4;
    return !strncmp(p, "\\cup", 4) && !isalpha((unsigned char)p[4]) ? 4 : 0;
}

/* How deep brackets are behind the character at p, given how deep they are before it. */
static int64_t deeper(const char *p, int64_t depth) {
    if (strchr("([{", *p)) return depth + 1;
    return strchr(")]}", *p) ? depth - 1 : depth;
}

/* Where what stands inside brackets around the whole begins and ends; false: there are none. */
static bool inside_brackets(const char **begin, const char **end, char *open, char *close) {
    const char *p = *begin, *last = *end - 1;
    int escaped = *p == '\\' && p[1] == '{';
    int64_t depth = 0;
    if (last - p < 2 || !strchr("([{", p[escaped]) || !strchr(")]}", *last)) return false;
    for (const char *q = p; q < last; q++)
        if ((depth = deeper(q, depth)) == 0 && q >= p + escaped) return false;
    if (depth != 1) return false;
    *open = p[escaped];
    *close = *last;
    *begin = p + escaped + 1;
    *end = last - (last[-1] == '\\');
    return true;
}

/* "3 \pm 2" is two parts. */
static void add_signs(Parts *s, const char *begin, const char *end) {
    const char *at = begin;
    while (at < end && strncmp(at, "\\pm", 3) != 0) at++;
    for (int minus = 0; minus < 2; minus++) {
        Str t = {0};
        str_add_bytes(&t, begin, at - begin);
        if (at < end) str_add_char(&t, minus ? '-' : '+');
        if (at < end) str_add_bytes(&t, at + 3, end - at - 3);
        if (minus ? at < end : true) add_part(s, str_text(&t), str_text(&t) + t.len);
        str_free(&t);
    }
}

/* False: too many parts to be an answer. */
static bool split(Parts *s, const char *text) {
    const char *begin = text, *end = text + strlen(text);
    int64_t depth = 0;
    *s = (Parts){0};
    if (end > begin) inside_brackets(&begin, &end, &s->open, &s->close);
    const char *first = begin;
    for (const char *p = begin; p < end;) {
        int n = depth == 0 ? separator(p, begin) : 0;
        if (n && s->n > PARTS_MOST - 4) return parts_free(s), false;
        if (n) {
            s->rows_end += *p == ';';
            add_signs(s, first, p);
            first = p += n;
        } else {
            depth = deeper(p++, depth);
        }
    }
    add_signs(s, first, end);
    if (s->n == 1 && s->open != '{') s->open = s->close = 0; /* "(x + 1)" is no list */
    return true;
}

static bool unordered(const Parts *s) { return !s->open || s->open == '{'; }

static bool match_any(const Parts *a, const Parts *b, int depth) {
    bool used[UNORDERED_MOST] = {0};
    for (int i = 0; i < a->n; i++) {
        int k = 0;
        while (k < b->n && (used[k] || !same_plain(a->part[i], b->part[k], depth))) k++;
        if (k == b->n) return false;
        used[k] = true;
    }
    return true;
}

static bool same_parts(const Parts *a, const Parts *b, int depth) {
    bool matrix = (a->rows_end && a->rows_end < a->n - 1) || (b->rows_end && b->rows_end < b->n - 1);
    if (a->n != b->n || (matrix && a->rows_end != b->rows_end)) return false;
    bool bare = !a->open || !b->open, loose = unordered(a) && unordered(b);
    if (!loose && !bare && (a->open != b->open || a->close != b->close)) return false;
    if (bare && !loose && a->open != '(' && b->open != '(') return false;
    if (loose && depth == 0 && a->n <= UNORDERED_MOST) return match_any(a, b, depth + 1);
    for (int i = 0; i < a->n; i++)
        if (!same_plain(a->part[i], b->part[i], depth + 1)) return false;
    return true;
}

/* ---- numbers and formulas ---- */

/* A number written out: its digits without separators, leading and closing zeros; false: something else. */
static bool written_out(Str *out, const char *p, int64_t bytes) {
    const char *end = p + bytes;
    bool point = false, digit = false, minus = false;
    while (end > p && end[-1] == ' ') end--;
    if (p < end && (*p == '-' || *p == '+')) minus = *p++ == '-';
    for (const char *begin = p; p < end; p++) {
        if (*p == ',' && !point && in_number(p, begin)) continue;
        if (*p == '.' && !point) {
            point = true;
            if (!out->len) str_add_char(out, '0');
        } else if (!isdigit((unsigned char)*p)) {
            return false;
        } else {
            digit = true;
            if (out->len == 1 && out->data[0] == '0' && !point) out->data[--out->len] = 0;
        }
        str_add_char(out, *p);
    }
    while (point && out->len && out->data[out->len - 1] == '0') out->data[--out->len] = 0;
    if (point && out->len && out->data[out->len - 1] == '.') out->data[--out->len] = 0;
    if (minus && digit && strcmp(str_text(out), "0") != 0) str_add_char(out, '-');
    return digit;
}

/* Rounding of a few operations, more where terms cancel; a thousandth is never rounding, but of huge numbers. */
static bool near(double x, double y) {
    double most = fmax(fabs(x), fabs(y));
    return x == y || fabs(x - y) <= fmax(4e-15 * most, fmin(1e-12 * most, 1e-6));
}

/* Both have a unit: is it the same one, perhaps cut short ("hour", "hours")? */
static bool units_agree(const char *a, const char *b) {
    while (*a && !isalpha((unsigned char)*a)) a++;
    while (*b && !isalpha((unsigned char)*b)) b++;
    for (; isalpha((unsigned char)*a) && isalpha((unsigned char)*b); a++, b++)
        if (tolower((unsigned char)*a) != tolower((unsigned char)*b)) return false;
    return true;
}

/* 1: the same number; 0: another one; -1: not two numbers. */
static int compare_numbers(const char *a, const char *b) {
    int64_t n = answer_unit(a), m = answer_unit(b);
    double x, y;
    if (a[n] && b[m] && !units_agree(a + n, b + m)) return 0;
    Str s = {0}, t = {0};
    bool written = written_out(&s, a, n) && written_out(&t, b, m), equal = !strcmp(str_text(&s), str_text(&t));
    str_free(&s);
    str_free(&t);
    if (written) return equal; /* every digit counts */
    if (!answer_eval(&x, a, n, NULL) || !answer_eval(&y, b, m, NULL) || !isfinite(x) || !isfinite(y)) return -1;
    if (near(x, y)) return 1;
    bool a_percent = memchr(a, '%', (size_t)n), b_percent = memchr(b, '%', (size_t)m);
    if (a_percent == b_percent) return 0; /* "50%" is 0.5, and 50 where a percentage was asked for */
    return near(a_percent ? 100 * x : x, b_percent ? 100 * y : y);
}

/* The value at a point; of an equation, how far its sides are apart. */
static bool value_at(double *out, const char *p, AnswerPoint *point) {
    const char *equals = strchr(p, '=');
    double right = 0;
    if (equals && strchr(equals + 1, '=')) return false;
    if (equals && !answer_eval(&right, equals + 1, (int64_t)strlen(equals + 1), point)) return false;
    if (!answer_eval(out, p, equals ? equals - p : (int64_t)strlen(p), point)) return false;
    *out -= right;
    return true;
}

/* The values of two formulas at points where both have one; false: they are no formulas, or only one has a value. */
static bool sample(double *x, double *y, int *n, const char *a, const char *b) {
    *n = 0;
    for (uint64_t i = 0; i < POINTS; i++) {
        AnswerPoint p = {rng_fold(0x736e7567, i), false}, q = p;
        if (!value_at(&x[*n], a, &p) || !value_at(&y[*n], b, &q) || p.letters != q.letters) return false;
        if (!isfinite(x[*n]) != !isfinite(y[*n])) return false;
        *n += isfinite(x[*n]) != 0;
    }
    return *n >= 2;
}

/* Equal at points of both signs. Equations may differ by a factor: how much more one changes than the other. */
static bool same_formula(const char *a, const char *b) {
    double x[POINTS], y[POINTS], factor = 1;
    int n;
    bool equations = strchr(a, '=') != NULL;
    if (equations != (strchr(b, '=') != NULL) || !sample(x, y, &n, a, b)) return false;
    if (equations) factor = (x[1] - x[0]) / (y[1] - y[0]);
    if (!isfinite(factor) || factor == 0) return false;
    for (int i = 0; i < n; i++)
        if (fabs(x[i] - factor * y[i]) > 1e-9 * fmax(1, fabs(x[i]))) return false;
    return true;
}

static bool only_letters(const char *p) {
    while (*p && (isalpha((unsigned char)*p) || *p == ' ')) p++;
    return !*p;
}

/* a, b: answers that are no lists; whole: the equations they are the right sides of, if they are. */
static bool same_single(const char *a, const char *b, const char *a_whole, const char *b_whole) {
    int numbers = compare_numbers(a, b);
    if (numbers >= 0) return numbers;
    if (!only_letters(a) && !only_letters(b) && same_formula(a, b)) return true;
    return strchr(a_whole, '=') && strchr(b_whole, '=') && same_formula(a_whole, b_whole);
}

/* ---- together ---- */

/* "x = 5" and "y = 5" are about different things; "x = 5" and "5", or "x = 5" and "AB = 5", may not be. */
static bool names_differ(const char *a, const char *b) {
    while (*a == ' ') a++;
    while (*b == ' ') b++;
    bool single =
        isalpha((unsigned char)*a) && isalpha((unsigned char)*b) && strchr(" =\\", a[1]) && strchr(" =\\", b[1]);
    return single && *a != *b;
}

static bool same_plain(const char *a, const char *b, int depth) {
    Parts x, y;
    if (same_text(a, b)) return true;
    if (depth > NEST_MOST) return false;
    const char *c = a + answer_right_side(a), *d = b + answer_right_side(b);
    if (c != a && d != b && names_differ(a, b)) return same_formula(a, b);
    while (*c == ' ' || *c == '+') c++;
    while (*d == ' ' || *d == '+') d++;
    if (same_text(c, d) || same_choice(c, d, depth)) return true;
    if (!split(&x, c)) return false;
    if (!split(&y, d)) return parts_free(&x), false;
    bool list = x.n > 1 || y.n > 1 || x.open || y.open;
    bool same = list ? same_parts(&x, &y, depth) : same_single(c, d, a, b);
    parts_free(&x);
    parts_free(&y);
    return same;
}

bool answer_same(const char *a, const char *b) {
    Str x = {0}, y = {0};
    if (strlen(a) > ANSWER_BYTES_MOST || strlen(b) > ANSWER_BYTES_MOST) return !strcmp(a, b);
    answer_undress(&x, a);
    answer_undress(&y, b);
    bool same = same_plain(str_text(&x), str_text(&y), 0);
    str_free(&x);
    str_free(&y);
    return same;
}
