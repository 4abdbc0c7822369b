/* answer_value.c - the value of a number or a formula in plain notation (see answer_int.h): one descent, no look back.
 *
 *   sum     = term { (+ | -) term }
 *   term    = signed { (* | / | nothing) signed }          2\pi, 3(4), x y; never a digit behind nothing
 *   signed  = { + | - } power
 *   power   = atom { ! | % } [ ^ exponent ]
 *   atom    = number | mixed | ( sum ) | [ sum ] | { sum } | \frac a a | \binom a a | \sqrt [n] a | \pi | name | letter
 *
 * A letter is an unknown and gets its value from a point; two formulas with equal values at several points are taken
 * for equal. e is Euler's number. */
#include <ctype.h>
#include <math.h>
#include <string.h>
#include <strings.h>

#include "base/check.h"
#include "base/rng.h"
#include "reason/answer_int.h"

enum { DEPTH_MOST = 48 };

typedef struct Reader {
    const char *p, *end;
    AnswerPoint *point;
    int depth;
    bool bad;
} Reader;

static double read_sum(Reader *r);
static double read_power(Reader *r);

static double refuse(Reader *r) {
    r->bad = true;
    return NAN;
}

static void skip(Reader *r) {
    while (r->p < r->end && *r->p == ' ') r->p++;
}

static char peek(const Reader *r) { return r->p < r->end ? *r->p : 0; }
static char peek_at(const Reader *r, int64_t i) { return r->end - r->p > i ? r->p[i] : 0; }
static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool take(Reader *r, char c) {
    skip(r);
    if (peek(r) != c) return false;
    r->p++;
    return true;
}

static bool take_word(Reader *r, const char *word) {
    int64_t n = (int64_t)strlen(word);
    if (r->end - r->p < n || strncmp(r->p, word, (size_t)n) || isalpha((unsigned char)peek_at(r, n))) return false;
    r->p += n;
    return true;
}

/* ---- numbers ---- */

/* How many separators-and-digits ",123" or " 123" stand at p. */
static bool at_thousands(const Reader *r) {
    char c = peek(r);
    if (c != ',' && c != ' ') return false;
    for (int i = 1; i <= 3; i++)
        if (!is_digit(peek_at(r, i))) return false;
    return !is_digit(peek_at(r, 4)) && !(c == ' ' && peek_at(r, 4) == '/');
}

static double read_digits(Reader *r, int64_t *n) {
    double v = 0;
    for (*n = 0; is_digit(peek(r)); r->p++, ++*n) v = v * 10 + (*r->p - '0');
    return v;
}

/* What follows the point: digits, then digits that repeat. */
static double read_fraction_digits(Reader *r) {
    int64_t n, k;
    double v = read_digits(r, &n), scale = pow(10, -(double)n);
    v *= scale;
    if (!take_word(r, "\\overline")) return v;
    if (!take(r, '{')) return refuse(r);
    double period = read_digits(r, &k);
    if (!k || !take(r, '}')) return refuse(r);
    return v + scale * period / (pow(10, (double)k) - 1);
}

/* "\frac{1}{2}", "\frac12" or "1/2" of whole numbers behind a whole number; false: something else, nothing is taken. */
static bool take_part(Reader *r, double *part) {
    Reader ahead = *r;
    int64_t n, m;
    double a, b;
    skip(&ahead);
    bool spaced = ahead.p > r->p;
    if (take_word(&ahead, "\\frac")) {
        bool braced = take(&ahead, '{');
        a = braced ? read_digits(&ahead, &n) : is_digit(peek(&ahead)) ? (n = 1, *ahead.p++ - '0') : (n = 0, 0);
        if (!n || (braced && !take(&ahead, '}'))) return false;
        braced = take(&ahead, '{');
        b = braced ? read_digits(&ahead, &m) : is_digit(peek(&ahead)) ? (m = 1, *ahead.p++ - '0') : (m = 0, 0);
        if (!m || (braced && !take(&ahead, '}'))) return false;
    } else {
        a = read_digits(&ahead, &n);
        if (!spaced || !n || !take(&ahead, '/')) return false;
        b = read_digits(&ahead, &m);
        if (!m) return false;
    }
    if (!(b > 0)) return false;
    *part = a / b;
    r->p = ahead.p;
    return true;
}

static double read_number(Reader *r) {
    int64_t n, more;
    double v = read_digits(r, &n), part, tens;
    bool whole = true;
    if (n >= 1 && n <= 3)
        while (at_thousands(r)) {
            r->p++;
            v = v * 1000 + read_digits(r, &more);
        }
    if (peek(r) == '.' && (is_digit(peek_at(r, 1)) || peek_at(r, 1) == '\\' || n)) {
        r->p++;
        v += read_fraction_digits(r);
        whole = false;
    } else if (!n) {
        return refuse(r);
    }
    if ((peek(r) == 'e' || peek(r) == 'E') &&
        (is_digit(peek_at(r, 1)) || (peek_at(r, 1) && strchr("+-", peek_at(r, 1)) && is_digit(peek_at(r, 2))))) {
        bool less = peek_at(r, 1) == '-';
        r->p += is_digit(peek_at(r, 1)) ? 1 : 2;
        tens = read_digits(r, &more);
        return v * pow(10, less ? -tens : tens);
    }
    return whole && take_part(r, &part) ? v + part : v;
}

/* ---- names ---- */

/* One argument of a command: a group, one digit, one letter, one command. */
static double read_argument(Reader *r) {
    skip(r);
    if (is_digit(peek(r))) return *r->p++ - '0';
    if (peek(r) == '{' || peek(r) == '\\' || peek(r) == '(') return read_power(r);
    if (!isalpha((unsigned char)peek(r))) return refuse(r);
    Reader one = *r;
    one.end = r->p + 1;
    double v = read_power(&one);
    r->bad |= one.bad;
    r->p++;
    return v;
}

/* An unknown: the same name has the same value at one point. */
static double unknown(Reader *r, const char *name, int64_t n) {
    uint64_t key = 0;
    if (!r->point) return refuse(r);
    if (peek(r) == '_') { /* an index belongs to the name */
        bool braced = peek_at(r, 1) == '{';
        r->p += braced ? 2 : 1;
        for (int64_t i = 0; r->p < r->end && (braced ? *r->p != '}' : i < 1); i++)
            key = rng_fold(key, (uint8_t)*r->p++);
        if (braced && !take(r, '}')) return refuse(r);
    }
    for (int64_t i = 0; i < n; i++) key = rng_fold(key, (uint8_t)name[i]);
    r->point->letters = true;
    double v = 0.3 + 2.4 * (double)rng_uniform(r->point->key, key);
    return rng_u32(r->point->key, key + 1) & 1 ? -v : v;
}

typedef struct Function {
    const char *name;
    double (*of)(double);
} Function;

static double sec(double x) { return 1 / cos(x); }
static double csc(double x) { return 1 / sin(x); }
static double cot(double x) { return 1 / tan(x); }

static const Function functions[] = {{"sin", sin},     {"cos", cos},     {"tan", tan},     {"sec", sec},   {"csc", csc},
                                     {"cot", cot},     {"arcsin", asin}, {"arccos", acos}, {"arctan", atan},
                                     {"log", log10},   {"ln", log},      {"exp", exp},     {"sqrt", sqrt}};

/* \sin^2 x, \log_2 8, ln(5); behind the name. */
static double read_function(Reader *r, const Function *f) {
    double power = 1, base = 0;
    if (f->of == log10 && take(r, '_')) base = read_argument(r);
    if (f->of != sqrt && take(r, '^')) power = read_argument(r);
    if (power < 0) return refuse(r); /* the inverse, or one over it? */
    skip(r);
    double x = read_power(r), v = f->of(x);
    if (base > 0) v = log(x) / log(base);
    return power == 1 ? v : pow(v, power);
}

static double read_binomial(Reader *r) {
    double n = read_argument(r), k = read_argument(r), v = 1;
    if (r->bad || n != floor(n) || k != floor(k) || k < 0 || n < k || n > 1000) return refuse(r);
    for (int i = 1; i <= (int)MIN2(k, n - k); i++) v = v * (n + 1 - i) / i;
    return round(v);
}

static double read_root(Reader *r) {
    double degree = 2;
    skip(r);
    if (take(r, '[')) {
        degree = read_sum(r);
        if (!take(r, ']')) return refuse(r);
    }
    double x = read_argument(r);
    if (degree == 2) return sqrt(x);
    return degree == 3 ? cbrt(x) : pow(x, 1 / degree);
}

static double read_command(Reader *r) {
    if (take_word(r, "\\frac")) {
        double a = read_argument(r);
        return a / read_argument(r);
    }
    if (take_word(r, "\\sqrt")) return read_root(r);
    if (take_word(r, "\\pi")) return acos(-1);
    if (take_word(r, "\\binom")) return read_binomial(r);
    static const char *const greek[] = {"alpha", "beta", "gamma", "delta", "theta", "phi",    "lambda",
                                        "mu",    "sigma", "omega", "rho",  "tau",   "epsilon"};
    r->p++;
    for (int i = 0; i < COUNT_OF(functions); i++)
        if (take_word(r, functions[i].name)) return read_function(r, &functions[i]);
    for (int i = 0; i < COUNT_OF(greek); i++)
        if (take_word(r, greek[i])) return unknown(r, greek[i], (int64_t)strlen(greek[i]));
    return refuse(r);
}

/* Letters: a function, pi, or unknowns side by side. A longer run that could be spoken is a word, and no formula. */
static double read_letters(Reader *r) {
    int64_t n = 0, vowels = 0;
    for (; isalpha((unsigned char)peek_at(r, n)); n++) vowels += strchr("aeiouAEIOU", r->p[n]) != NULL;
    for (int i = 0; i < COUNT_OF(functions); i++)
        if (take_word(r, functions[i].name)) return read_function(r, &functions[i]);
    if (take_word(r, "pi")) return acos(-1);
    if (n > 4 || (n > 2 && vowels)) return refuse(r);
    const char *name = r->p++;
    return *name == 'e' ? exp(1) : unknown(r, name, 1);
}

/* ---- the descent ---- */

static double read_atom(Reader *r) {
    skip(r);
    char c = peek(r), close = c == '(' ? ')' : c == '[' ? ']' : c == '{' ? '}' : 0;
    if (close) {
        r->p++;
        double v = read_sum(r);
        return take(r, close) ? v : refuse(r);
    }
    if (is_digit(c) || c == '.') return read_number(r);
    if (c == '\\') return read_command(r);
    return isalpha((unsigned char)c) ? read_letters(r) : refuse(r);
}

static double read_exponent(Reader *r) {
    skip(r);
    bool minus = take(r, '-');
    int64_t n;
    double v = is_digit(peek(r)) ? read_digits(r, &n) : read_argument(r);
    return minus ? -v : v;
}

static double read_power(Reader *r) {
    if (r->bad || ++r->depth > DEPTH_MOST) return refuse(r);
    double v = read_atom(r);
    for (;;) {
        skip(r);
        if (take(r, '%')) {
            v /= 100;
        } else if (peek(r) == '!') {
            r->p++;
            if (!(v >= 0 && v <= 170) || v != floor(v)) return refuse(r);
            v = round(tgamma(v + 1));
        } else {
            break;
        }
    }
    if (take(r, '^')) v = pow(v, read_exponent(r));
    r->depth--;
    return v;
}

static double read_signed(Reader *r) {
    bool minus = false;
    for (skip(r); peek(r) == '-' || peek(r) == '+'; skip(r)) minus ^= *r->p++ == '-';
    double v = read_power(r);
    return minus ? -v : v;
}

/* "3 x 4": an unknown has no digit behind it. */
static bool take_cross(Reader *r) {
    Reader ahead = *r;
    if (!take(&ahead, 'x') && !take(&ahead, 'X')) return false;
    skip(&ahead);
    if (!is_digit(peek(&ahead))) return false;
    r->p = ahead.p;
    return true;
}

static double read_term(Reader *r) {
    double v = read_signed(r);
    while (!r->bad) {
        skip(r);
        char c = peek(r);
        if (take(r, '*') || take_cross(r)) {
            v *= read_signed(r);
        } else if (c == '/') {
            r->p++;
            v /= read_signed(r);
        } else if (c == '(' || c == '{' || c == '\\' || isalpha((unsigned char)c)) {
            v *= read_power(r);
        } else {
            break;
        }
    }
    return v;
}

static double read_sum(Reader *r) {
    if (++r->depth > DEPTH_MOST) return refuse(r);
    double v = read_term(r);
    while (!r->bad) {
        skip(r);
        char c = peek(r);
        if (c != '+' && c != '-') break;
        r->p++;
        double w = read_term(r);
        v += c == '-' ? -w : w;
    }
    r->depth--;
    return v;
}

bool answer_eval(double *out, const char *plain, int64_t bytes, AnswerPoint *point) {
    Reader r = {.p = plain, .end = plain + bytes, .point = point};
    *out = read_sum(&r);
    skip(&r);
    return !r.bad && r.p == r.end;
}

bool answer_value(double *out, const char *text) {
    Str plain = {0};
    double v = 0;
    if (strlen(text) > ANSWER_BYTES_MOST) return false;
    answer_undress(&plain, text);
    const char *p = str_text(&plain) + answer_right_side(str_text(&plain));
    bool ok = answer_eval(&v, p, answer_unit(p), NULL) && isfinite(v);
    if (ok) *out = v;
    str_free(&plain);
    return ok;
}
