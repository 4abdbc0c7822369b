/* answer_text.c - the many spellings of the same formula, and the one that stands for them (see answer_int.h). */
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "base/check.h"
#include "reason/answer_int.h"

typedef struct Spelling {
    const char *from, *to;
} Spelling;

/* Commands: the name without its backslash. */
static const Spelling commands[] = {
    {"dfrac", "\\frac"},   {"tfrac", "\\frac"},   {"cfrac", "\\frac"},   {"dbinom", "\\binom"}, {"tbinom", "\\binom"},
    {"left", ""},          {"right", ""},         {"big", ""},           {"Big", ""},           {"bigl", ""},
    {"bigr", ""},          {"Bigl", ""},          {"Bigr", ""},          {"bigg", ""},          {"Bigg", ""},
    {"displaystyle", " "}, {"textstyle", " "},    {"quad", " "},         {"qquad", " "},        {"cdot", "*"},
    {"times", "*"},        {"ast", "*"},          {"div", "/"},          {"lbrace", "\\{"},     {"rbrace", "\\}"},
    {"leq", "\\le"},       {"leqslant", "\\le"},  {"geq", "\\ge"},       {"geqslant", "\\ge"},  {"lt", "<"},
    {"gt", ">"},           {"neq", "\\ne"},       {"degree", " degrees"}, {"circ", " degrees"}, {"mid", "|"},
    {"vert", "|"},         {"lvert", "|"},        {"rvert", "|"},        {"dots", "..."},       {"ldots", "..."},
    {"cdots", "..."},      {"colon", ":"},        {"backslash", "\\setminus"},
};

/* Commands around a group of which only the inside counts. */
static const char *const wrappers[] = {"text",   "textbf",       "textit", "textrm", "textnormal", "mathrm", "mathbf",
                                       "mathit", "operatorname", "mbox",   "boxed",  "fbox",       "mathsf", "texttt"};

/* Symbols that are one character each. */
static const Spelling symbols[] = {
    {"**", "^"},          {"<=", "\\le"},       {">=", "\\ge"},       {"{,}", ","},         {"^{\\circ}", " degrees"},
    {"^\\circ", " degrees"}, {"^{\\prime}", "'"}, {"^\\prime", "'"},
    {"\xc2\xb0", " degrees"}, {"\xe2\x88\x92", "-"}, {"\xe2\x80\x93", "-"}, {"\xe2\x80\x94", "-"}, {"\xc3\x97", "*"},
    {"\xc2\xb7", "*"},    {"\xe2\x8b\x85", "*"}, {"\xc3\xb7", "/"},   {"\xcf\x80", "\\pi"}, {"\xe2\x88\x9e", "\\infty"},
    {"\xe2\x88\x9a", "\\sqrt"}, {"\xc2\xb1", "\\pm"}, {"\xe2\x88\xaa", "\\cup"}, {"\xe2\x88\x88", "\\in"},
    {"\xe2\x89\xa4", "\\le"}, {"\xe2\x89\xa5", "\\ge"}, {"\xe2\x89\xa0", "\\ne"},
    {"\xc2\xb2", "^2"}, {"\xc2\xb3", "^3"},
    {"\xc2\xbd", "\\frac{1}{2}"}, {"\xc2\xbc", "\\frac{1}{4}"}, {"\xc2\xbe", "\\frac{3}{4}"},
    {"\xe2\x85\x93", "\\frac{1}{3}"}, {"\xe2\x85\x94", "\\frac{2}{3}"}, {"\xe2\x80\x99", "'"},
    {"\xe2\x82\xac", ""}, {"\xc2\xa3", ""}, {"$", ""}, {"`", ""}, {"~", " "}, {"&", ","},
    {"\xc2\xa0", " "}, {"\xe2\x80\x89", " "}, {"\xe2\x80\xaf", " "}, {"\xe2\x80\x8b", ""},
};

static bool is_space(char c) { return c && strchr(" \t\r\n\v\f", c); }

static void add_space(Str *out, int64_t begin) {
    if (out->len > begin && out->data[out->len - 1] != ' ') str_add_char(out, ' ');
}

/* A piece of plain notation: a command does not grow into the letter that follows. */
static void add_piece(Str *out, int64_t begin, const char *piece) {
    if (*piece == ' ') add_space(out, begin), piece++;
    str_add(out, piece);
}

/* ---- one command ---- */

/* "{pmatrix}" and the like at p; returns its length. */
static int64_t group_length(const char *p) {
    const char *q = p;
    if (*q != '{') return 0;
    while (*q && *q != '}' && q - p < 32) q++;
    return *q == '}' ? q + 1 - p : 0;
}

/* The braces that are open: 'd' for one that is dropped with its closing, 'k' for one that is kept. */
static void open_brace(Str *out, int64_t begin, Str *open, char kind) {
    str_add_char(open, kind);
    if (kind == 'k') str_add_char(out, '{');
    else add_space(out, begin);
}

static void close_brace(Str *out, int64_t begin, Str *open) {
    bool keep = !open->len || open->data[open->len - 1] == 'k';
    if (open->len) open->data[--open->len] = 0;
    if (keep) str_add_char(out, '}');
    else add_space(out, begin);
}

/* A backslash and what is not a letter. */
static const char *take_escape(Str *out, int64_t begin, const char *p) {
    if (p[1] == '{' || p[1] == '}') str_add_bytes(out, p, 2);
    else if (p[1] == '%') str_add_char(out, '%');
    else if (p[1] == '\\') str_add_char(out, ';'); /* a matrix's next row */
    else if (p[1] && strchr(",;: \n\t", p[1])) add_space(out, begin);
    else if (p[1] && strchr("#&_", p[1])) str_add_char(out, p[1]);
    const char *next = p + (p[1] ? 2 : 1); /* \$ \! \( \) \[ \] are nothing */
    while (p[1] == '!' && is_space(*next)) next++;
    return next;
}

static const char *take_command(Str *out, int64_t begin, Str *open, const char *p) {
    const char *name = p + 1, *end = name;
    while (isalpha((unsigned char)*end)) end++;
    size_t n = (size_t)(end - name);
    const char *next = end;
    while (is_space(*next)) next++;
    for (int i = 0; i < COUNT_OF(wrappers); i++)
        if (strlen(wrappers[i]) == n && !strncmp(name, wrappers[i], n)) {
            if (*next != '{') return end;
            open_brace(out, begin, open, 'd');
            return next + 1;
        }
    if ((n == 5 && !strncmp(name, "begin", 5)) || (n == 3 && !strncmp(name, "end", 3))) {
        str_add_char(out, n == 5 ? '(' : ')');
        next += group_length(next);
        return next;
    }
    for (int i = 0; i < COUNT_OF(commands); i++)
        if (strlen(commands[i].from) == n && !strncmp(name, commands[i].from, n)) {
            add_piece(out, begin, commands[i].to);
            if (isalpha((unsigned char)commands[i].to[commands[i].to[0] == '\\'])) {
                if (isalpha((unsigned char)*next)) str_add_char(out, ' ');
                return next;
            }
            return (n == 4 || n == 5) && *end == '.' && !*commands[i].to ? end + 1 : end; /* "\left." */
        }
    str_add_bytes(out, p, end - p);
    if (isalpha((unsigned char)*next) && next > end) str_add_char(out, ' ');
    return next;
}

/* ---- the whole ---- */

static void trim_end(Str *out, int64_t begin) {
    while (out->len > begin && strchr(" .,;*^\"'!?", out->data[out->len - 1])) {
        if (out->data[out->len - 1] == '!' && out->len - begin > 1 && isdigit((unsigned char)out->data[out->len - 2]))
            break;
        out->data[--out->len] = 0;
    }
}

static const char *take_symbol(Str *out, int64_t begin, const char *p) {
    for (int i = 0; i < COUNT_OF(symbols); i++) {
        size_t n = strlen(symbols[i].from);
        if (strncmp(p, symbols[i].from, n) != 0) continue;
        add_piece(out, begin, symbols[i].to);
        if (symbols[i].to[0] == '\\' && isalpha((unsigned char)p[n])) str_add_char(out, ' ');
        return p + n;
    }
    return NULL;
}

static bool is_percent_word(const char *p, const char *text) {
    return !strncasecmp(p, "percent", 7) && !isalpha((unsigned char)p[7]) &&
           (p == text || !isalpha((unsigned char)p[-1]));
}

void answer_undress(Str *out, const char *text) {
    Str open = {0};
    int64_t begin = out->len;
    const char *next;
    while (*text && strchr(" \t\r\n*\"'`:", *text)) text++;
    for (const char *p = text; *p;) {
        if ((next = take_symbol(out, begin, p))) p = next;
        else if (*p == '\\' && isalpha((unsigned char)p[1])) p = take_command(out, begin, &open, p);
        else if (*p == '\\') p = take_escape(out, begin, p);
        else if (*p == '{') open_brace(out, begin, &open, 'k'), p++;
        else if (*p == '}') close_brace(out, begin, &open), p++;
        else if (is_space(*p)) add_space(out, begin), p++;
        else if (is_percent_word(p, text)) str_add_char(out, '%'), p += 7;
        else str_add_char(out, *p++);
    }
    trim_end(out, begin);
    str_free(&open);
}

void answer_squash(Str *out, const char *plain) {
    for (const char *p = plain; *p; p++) {
        if (*p == ' ' || (*p == '.' && p > plain && isalpha((unsigned char)p[-1]))) continue; /* "p.m." */
        if (*p == '{' && (p == plain || p[-1] != '\\') && p[1] && p[1] != '\\' && p[2] == '}') {
            str_add_char(out, p[1]);
            p += 2;
        } else {
            str_add_char(out, *p);
        }
    }
}

/* ---- a number's unit ---- */

static bool word_is(const char *p, int64_t n, const char *const *list, int count) {
    for (int i = 0; i < count; i++)
        if ((int64_t)strlen(list[i]) == n && !strncasecmp(p, list[i], (size_t)n)) return true;
    return false;
}

static int64_t word_length(const char *p) {
    int64_t n = 0;
    while (isalpha((unsigned char)p[n])) n++;
    return n;
}

/* May this word begin a unit? Right behind a digit, letters are more often unknowns. */
static bool begins_unit(const char *p, int64_t n, bool spaced) {
    static const char *const known[] = {"cm", "mm", "km", "kg", "mg", "ml", "in", "ft", "hr",
                                        "hrs", "min", "sec", "mph",
                                        "lb", "lbs", "oz", "yd", "am", "pm", "usd", "cents", "kmph", "mi", "sq"};
    static const char *const letters[] = {"m", "g", "s", "h", "l"};
    if (word_is(p, n, known, COUNT_OF(known))) return true;
    if (n == 1) return spaced && word_is(p, n, letters, COUNT_OF(letters));
    bool vowel = false;
    for (int64_t i = 0; i < n; i++) vowel |= strchr("aeiouyAEIOUY", p[i]) != NULL;
    return vowel && n >= (spaced ? 3 : 4);
}

/* "^2" or "^{3}" */
static int64_t square_length(const char *p) {
    bool braced = p[0] == '^' && p[1] == '{';
    if (p[0] != '^' || (p[1 + braced] != '2' && p[1 + braced] != '3')) return 0;
    return !braced ? 2 : p[3] == '}' ? 4 : 0;
}

/* Words and nothing that could be another number or another answer. */
static bool is_unit_text(const char *p) {
    static const char *const joins[] = {"or", "and", "to", "plus", "minus", "times", "if", "where", "when",
                                        "for", "except",
                                        "mod", "is", "are", "not", "but", "base", "than", "with", "over", "sqrt", "pi",
                                        "sin", "cos", "tan", "sec", "csc", "cot", "log", "ln", "exp",
                                        "choose", "factorial",
                                        "squared", "cubed", "half", "halves", "hundred", "thousand",
                                        "million", "billion",
                                        "trillion", "dozen"};
    while (*p) {
        int64_t n = word_length(p);
        if (n && word_is(p, n, joins, COUNT_OF(joins))) return false;
        if (!n && !(n = square_length(p)) && (strchr(" ./'()-", *p) || (unsigned char)*p >= 128)) n = 1;
        if (!n) return false;
        p += n;
    }
    return true;
}

int64_t answer_unit(const char *plain) {
    int64_t whole = (int64_t)strlen(plain), i = 0, cut;
    bool digit = false;
    for (; plain[i]; i++) {
        if (plain[i] == '\\') i += MAX2(word_length(plain + i + 1), plain[i + 1] ? 1 : 0);
        else if (isalpha((unsigned char)plain[i])) break;
        digit |= isdigit((unsigned char)plain[i]) != 0;
    }
    if (!digit || !plain[i]) return whole;
    for (cut = i; cut > 0 && strchr(" (-", plain[cut - 1]); cut--) continue;
    if (!begins_unit(plain + i, word_length(plain + i), cut < i) || !is_unit_text(plain + cut)) return whole;
    return cut;
}

/* May this character stand in the name of what an answer is the value of: "x_1", "f(2)", "f^{-1}(x)", "\\angle ABC"? */
static bool in_name(const char *plain, int64_t i) {
    char c = plain[i], before = i ? plain[i - 1] : 0;
    if (isdigit((unsigned char)c)) return before && (strchr("_{-(", before) || isdigit((unsigned char)before));
    if (c == '-') return before == '{';
    if (c == '^') return plain[i + 1] == '{' && plain[i + 2] == '-';
    if (c == '\\') return strncmp(plain + i, "\\frac", 5) && strncmp(plain + i, "\\sqrt", 5);
    return isalpha((unsigned char)c) || strchr(" _{}()'", c);
}

/* Where what follows the first "=" of a chain begins, which is at i; 0: each of several parts has its own. */
static int64_t behind_equals(const char *plain, int64_t i) {
    const char *last = strrchr(plain, '=');
    bool parts = strpbrk(plain, ",;") || strstr(plain, " or ") || strstr(plain, " and ");
    if (!last[1] || (last != plain + i && parts)) return 0;
    return last + 1 - plain;
}

int64_t answer_right_side(const char *plain) {
    bool letter = false;
    for (int64_t i = 0; i < 60 && plain[i]; i++) {
        if (letter && !strncmp(plain + i, "\\in", 3) && !isalpha((unsigned char)plain[i + 3])) return i + 3;
        if (plain[i] == '=') return letter ? behind_equals(plain, i) : 0;
        if (!in_name(plain, i)) return 0;
        letter |= isalpha((unsigned char)plain[i]) != 0;
    }
    return 0;
}
