/* options_value.c - how a text becomes a value: of which type it is, in which range, which choice, which element of a
 * list. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <utf8proc.h>

#include "base/units.h"
#include "cli/options_int.h"

/* ---- numbers, truths, choices ---- */

static int bool_word(const char *text) { /* 1, 0, or -1: not a truth value */
    static const char *const yes[] = {"true", "yes", "on", "1"}, *const no[] = {"false", "no", "off", "0"};
    for (int i = 0; i < COUNT_OF(yes); i++) {
        if (!strcasecmp(text, yes[i])) return 1;
        if (!strcasecmp(text, no[i])) return 0;
    }
    return -1;
}

/* A number in decimal digits; refuses what strtod also takes: nan, inf, hexadecimal, trailing text. */
static bool parse_number(const char *text, double *number) {
    char *end;
    if (!*text || text[strspn(text, "0123456789+-.eE")]) return false;
    *number = strtod(text, &end);
    return end != text && !*end && isfinite(*number);
}

/* Shortest text that reads back to the same number, so that 2e-4 and 0.0002 are one spelling. */
const char *options_number_text(Arena *a, double number) {
    char text[40];
    bool plain = number == floor(number) && fabs(number) < 1e6; /* 10, not 1e+01 */
    if (plain) snprintf(text, sizeof text, "%.0f", number);
    for (int digits = 1; digits <= 17 && !plain; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, number);
        if (strtod(text, NULL) == number) break;
    }
    return arena_strdup(a, text);
}

static bool is_utf8(const char *text) {
    utf8proc_int32_t code;
    for (utf8proc_ssize_t n; *text; text += n)
        if ((n = utf8proc_iterate((const utf8proc_uint8_t *)text, -1, &code)) < 1) return false;
    return true;
}

/* Whether the word is a spelling of the at-th choice. */
static bool same_choice(const char *choices, int at, const char *word) {
    const char *c = choices;
    while (at-- && c) c = (c = strchr(c, '|')) ? c + 1 : NULL;
    if (!c) return false;
    for (int len; *c && *c != '|'; c += len + (c[len] == '=')) {
        char one[64];
        len = (int)strcspn(c, "=|");
        snprintf(one, sizeof one, "%.*s", len, c);
        if (str_same_word(one, word)) return true;
    }
    return false;
}

static int choice_count(const char *choices) {
    int n = 1;
    for (; *choices; choices++) n += *choices == '|';
    return n;
}

int options_choice(const char *choices, const char *word) { /* -1: not one of them */
    for (int i = choice_count(choices) - 1; i >= 0; i--)
        if (same_choice(choices, i, word)) return i;
    return -1;
}

/* The at-th choice in its first spelling. */
static const char *choice_text(Arena *a, const char *choices, int at) {
    while (at--) choices = strchr(choices, '|') + 1;
    return arena_printf(a, "%.*s", (int)strcspn(choices, "=|"), choices);
}

static bool refuse_choice(const Options *o, const OptRow *row, const char *where, const char *text, Err *e) {
    const char *why = elsewhere_why_not(o->command, (OptId)(row - option_rows), text);
    if (why) return fail(e, ERR_USAGE, "%s: there is no %s: %s", where, text, why);
    Str names = {0};
    options_add_choices(&names, row->choices, ", ");
    if (row->type == OPT_LIST) str_add(&names, ", all");
    fail(e, ERR_USAGE, "%s: '%s' is not one of: %s", where, text, str_text(&names));
    str_free(&names);
    return false;
}

static bool in_range(const OptRow *row, const char *where, const char *text, double number, Err *e) {
    bool bounded = row->low != 0 || row->high != 0;
    if (!bounded || (number >= row->low && number <= row->high)) return true;
    return fail(e, ERR_USAGE, "%s: %s is out of range: %.15g to %.15g%s%s", where, text, row->low, row->high,
                row->unit && row->type != OPT_PAIRS ? " " : "",
                row->unit && row->type != OPT_PAIRS ? row->unit : "");
}

/* \n, \t and \\ in a text given on the command line. */
static const char *unescape(Arena *a, const char *text) {
    char *to = arena_strdup(a, text), *at = to;
    for (; *text; text++) {
        char next = *text == '\\' ? text[1] : 0;
        if (next == 'n' || next == 't' || next == '\\') {
            *at++ = (char)(next == 'n' ? '\n' : next == 't' ? '\t' : '\\');
            text++;
        } else {
            *at++ = *text;
        }
    }
    *at = 0;
    return to;
}

/* ---- lists ---- */

/* The room of a list is the next power of two: a file may have thousands of elements. */
static void list_add(Options *o, OptValue *v, const char *element, double number) {
    if (!(v->n & (v->n - 1))) {
        const char **list = ARENA_NEW(&o->arena, const char *, MAX2(1, 2 * v->n));
        const char **origins = ARENA_NEW(&o->arena, const char *, MAX2(1, 2 * v->n));
        double *numbers = ARENA_NEW(&o->arena, double, MAX2(1, 2 * v->n));
        for (int i = 0; i < v->n; i++) {
            list[i] = v->list[i];
            origins[i] = v->origins[i];
            numbers[i] = v->numbers[i];
        }
        v->list = list;
        v->origins = origins;
        v->numbers = numbers;
    }
    v->list[v->n] = element;
    v->origins[v->n] = v->origin;
    v->numbers[v->n++] = number;
}

static bool put_pair(Options *o, OptValue *v, const OptRow *row, const char *where, const char *text, Err *e) {
    const char *equals = strrchr(text, '=');
    double number;
    if (!equals || equals == text || !parse_number(equals + 1, &number))
        return fail(e, ERR_USAGE, "%s: '%s' is not NAME=NUMBER", where, text);
    if (!in_range(row, where, text, number, e)) return false;
    list_add(o, v, arena_printf(&o->arena, "%.*s", (int)(equals - text), text), number);
    return true;
}

/* A list of choices is a set: kept once each, in the order of the table, so that equal sets have equal texts. */
static bool put_choices(Options *o, OptValue *v, const OptRow *row, const char *where, const char *text, Err *e) {
    bool all = str_same_word(text, "all") || str_same_word(text, "all-linear");
    int found = options_choice(row->choices, text);
    if (!all && found < 0) return refuse_choice(o, row, where, text, e);
    OptValue merged = {0};
    for (int i = 0; i < choice_count(row->choices); i++) {
        bool in = all || i == found;
        for (int k = 0; k < v->n; k++) in |= same_choice(row->choices, i, v->list[k]);
        if (in) list_add(o, &merged, choice_text(&o->arena, row->choices, i), 0);
    }
    v->list = merged.list;
    v->origins = merged.origins;
    v->numbers = merged.numbers;
    v->n = merged.n;
    return true;
}

static bool put_element(Options *o, OptValue *v, const OptRow *row, const char *where, const char *text, Err *e) {
    if (row->type == OPT_PAIRS) return put_pair(o, v, row, where, text, e);
    if (row->choices) return put_choices(o, v, row, where, text, e);
    list_add(o, v, row->escapes && v->source == FROM_FLAG ? unescape(&o->arena, text) : text, 0);
    return true;
}

static bool put_list(Options *o, OptValue *v, const OptRow *row, const char *where, const char *text, Err *e) {
    for (bool more = true; more;) {
        int len = row->one_each ? (int)strlen(text) : (int)strcspn(text, ","), from = 0, to = len;
        while (from < to && isspace((unsigned char)text[from])) from++;
        while (from < to && isspace((unsigned char)text[to - 1])) to--;
        if (from == to) return fail(e, ERR_USAGE, "%s: an element of the list is empty", where);
        if (!put_element(o, v, row, where, arena_printf(&o->arena, "%.*s", to - from, text + from), e))
            return false;
        more = text[len] == ',';
        text += len + more;
    }
    return true;
}

/* Once all elements are there. */
void options_join_lists(Options *o) {
    Str joined = {0};
    for (int id = 0; id < OPT_COUNT; id++) {
        OptValue *v = &o->value[id];
        if (!v->list) continue;
        str_clear(&joined);
        for (int i = 0; i < v->n; i++) {
            str_addf(&joined, "%s%s", i ? "," : "", v->list[i]);
            if (option_rows[id].type == OPT_PAIRS)
                str_addf(&joined, "=%s", options_number_text(&o->arena, v->numbers[i]));
        }
        v->text = arena_strdup(&o->arena, str_text(&joined));
    }
    str_free(&joined);
}

/* ---- one value ---- */

/* "24" is meant in GiB by whoever gives it: no such amount is bytes. */
static bool lacks_unit(const char *text, int64_t bytes) {
    return bytes > 0 && bytes < KIB && !text[strspn(text, "0123456789")];
}

static bool refuse_size(const char *where, const char *text, Err *e) {
    if (*text && !text[strspn(text, "0123456789")])
        return fail(e, ERR_USAGE, "%s: %s without a unit is %s bytes. Did you mean %sGiB?", where, text, text, text);
    if (str_ends(text, "%"))
        return fail(e, ERR_USAGE, "%s: '%s' is a share, and a plan is made for an amount of bytes, the same on every "
                                  "machine: give a size such as 24GiB; unset: what is free now",
                    where, text);
    return fail(e, ERR_USAGE, "%s: '%s' is not a size such as 24GiB, 24G, 512MB or 4096", where, text);
}

static bool put_whole(Options *o, OptValue *v, const OptRow *row, const char *where, const char *text, Err *e) {
    double number;
    if (!parse_number(text, &number) || number != floor(number))
        return fail(e, ERR_USAGE, "%s: '%s' is not a whole number", where, text);
    if (!in_range(row, where, text, number, e)) return false;
    if (fabs(number) > 9e15) return fail(e, ERR_USAGE, "%s: %s is too large a number", where, text);
    v->i = (int64_t)number;
    v->r = number;
    v->text = arena_printf(&o->arena, "%lld", (long long)v->i);
    return true;
}

static bool put_by_type(Options *o, OptValue *v, const OptRow *row, const char *where, const char *text, Err *e) {
    int truth = bool_word(text), choice;
    switch (row->type) {
        case OPT_FLAG:
            if (truth < 0) return fail(e, ERR_USAGE, "%s: '%s' is neither true nor false", where, text);
            v->i = truth;
            v->text = truth ? "true" : "false";
            return true;
        case OPT_INT:
            return put_whole(o, v, row, where, text, e);
        case OPT_REAL:
            if (!parse_number(text, &v->r)) return fail(e, ERR_USAGE, "%s: '%s' is not a number", where, text);
            v->text = options_number_text(&o->arena, v->r);
            return in_range(row, where, text, v->r, e);
        case OPT_BYTES:
            if (!units_parse_bytes(text, &v->i) || lacks_unit(text, v->i))
                return refuse_size(where, text, e);
            v->text = arena_strdup(&o->arena, text);
            return in_range(row, where, text, (double)v->i, e);
        case OPT_TEXT:
            v->text =
                row->escapes && v->source == FROM_FLAG ? unescape(&o->arena, text) : arena_strdup(&o->arena, text);
            return *text || fail(e, ERR_USAGE, "%s: the value is empty", where);
        case OPT_CHOICE:
            if ((choice = options_choice(row->choices, text)) < 0) return refuse_choice(o, row, where, text, e);
            v->text = choice_text(&o->arena, row->choices, choice);
            return true;
        case OPT_LIST:
        case OPT_PAIRS:
            return put_list(o, v, row, where, text, e);
    }
    return true;
}

void options_forget(Options *o, OptId id) {
    o->value[id] = (OptValue){0};
}

/* A switch alias, or true/false for a row that may stand alone, becomes the value it stands for.
 * "": nothing is set; NULL: neither true nor false. */
static const char *stands_for(const OptHit *hit, const OptRow *row, const char *text) {
    int truth = bool_word(text);
    if (hit->is_switch) return truth < 0 ? NULL : truth ? hit->on : hit->off;
    if (row->type == OPT_FLAG || !row->bare || truth < 0) return text;
    if (row->choices && options_choice(row->choices, text) >= 0) return text;
    return truth ? row->bare : row->off ? row->off : "";
}

/* load_in_8bit: false beside load_in_4bit: true. A switch that is off takes back what it stands for itself, and not
 * what another one, or the option by its own name, has said. */
bool options_off_says_nothing(const Options *o, const OptHit *hit, const char *text, OptSource source) {
    const OptValue *v = &o->value[hit->id];
    const char *off = option_rows[hit->id].off;
    bool one_of_several = hit->is_switch && off && !strcmp(hit->off, off) && bool_word(text) == 0;
    return one_of_several && v->set && v->source == source && v->text && strcmp(v->text, hit->on);
}

bool options_put(Options *o, const OptHit *hit, const char *text, OptSource source, const char *origin, Err *e) {
    const OptRow *row = &option_rows[hit->id];
    OptValue *v = &o->value[hit->id];
    char where[300];
    if (source == FROM_FILE)
        snprintf(where, sizeof where, "%.200s: %s", origin, row->name);
    else
        snprintf(where, sizeof where, "%.200s", source == FROM_DEFAULT ? row->name : origin);
    if (!is_utf8(text)) return fail(e, ERR_USAGE, "%s: the value is not valid UTF-8", where);
    const char *value = stands_for(hit, row, text);
    if (!value) return fail(e, ERR_USAGE, "%s: '%s' is neither true nor false", where, text);
    if (hit->is_switch && !*value) return true;
    if (options_off_says_nothing(o, hit, text, source)) return true;
    if (!*value && *text) {
        options_forget(o, hit->id);
        return true;
    }
    if (elsewhere_is_idle(o->command, hit->id, value))
        return elsewhere_value(o, hit->id, value, source, origin, e);
    /* A list grows while it comes from one source; a stronger source begins it anew. */
    OptValue fresh = {0};
    if (v->set && v->source == source && (row->type == OPT_LIST || row->type == OPT_PAIRS)) fresh = *v;
    fresh.set = true;
    fresh.source = source;
    fresh.origin = origin ? arena_strdup(&o->arena, origin) : NULL;
    if (!put_by_type(o, &fresh, row, where, value, e)) return false;
    *v = fresh;
    return row->type != OPT_CHOICE || elsewhere_value(o, hit->id, value, source, origin, e);
}
