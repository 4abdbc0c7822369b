/* template_filter.c - what stands after '|'. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/template_int.h"

/* ---- text ---- */

static Value filter_trim(Render *r, Value self, const Args *a) { return tpl_str_method(r, self, a, "strip"); }
static Value filter_upper(Render *r, Value self, const Args *a) { return tpl_str_method(r, self, a, "upper"); }
static Value filter_lower(Render *r, Value self, const Args *a) { return tpl_str_method(r, self, a, "lower"); }
static Value filter_capitalize(Render *r, Value self, const Args *a) {
    return tpl_str_method(r, self, a, "capitalize");
}

/* Also "safe": markup does not exist here, nothing is escaped by itself, so nothing needs to be marked. */
static Value filter_string(Render *r, Value self, const Args *a) { return tpl_to_string(r, self); }

static Value filter_replace(Render *r, Value self, const Args *a) {
    Args text = *a;
    text.slot[0] = tpl_to_string(r, a->slot[0]);
    text.slot[1] = tpl_to_string(r, a->slot[1]);
    return tpl_str_method(r, self, &text, "replace");
}

static bool begins_word(int32_t c) { return tpl_is_space(c) || (c > 0 && c < 128 && strchr("-({[<", c)); }

/* Words begin after white space, '-' and opening brackets only: "they're" stays one word. */
static Value filter_title(Render *r, Value self, const Args *a) {
    Text t = tpl_to_string(r, self).text;
    Str s = {0};
    for (int64_t at = 0, n; at < t.n && tpl_charge(r, 1); at += n) {
        int32_t c;
        int first = tpl_decode(t, at, &c);
        n = first;
        tpl_put_text(r, &s, tpl_case(r, (Text){t.p + at, n}, 'u').text);
        while (at + n < t.n && !begins_word(c)) {
            int more = tpl_decode(t, at + n, &c);
            if (begins_word(c)) break;
            n += more;
        }
        tpl_put_text(r, &s, tpl_case(r, (Text){t.p + at + first, n - first}, 'l').text);
    }
    return tpl_take(r, &s);
}

static Value filter_escape(Render *r, Value self, const Args *a) {
    Text t = tpl_to_string(r, self).text;
    Str s = {0};
    if (!tpl_charge_bytes(r, t.n)) return self;
    for (int64_t i = 0; i < t.n && !r->failed; i++) {
        char c = t.p[i];
        const char *safe = c == '&'   ? "&amp;"
                           : c == '<' ? "&lt;"
                           : c == '>' ? "&gt;"
                           : c == '"' ? "&#34;"
                                      : "&#39;";
        if (c == '&' || c == '<' || c == '>' || c == '"' || c == '\'')
            tpl_put_text(r, &s, tpl_text(safe));
        else
            tpl_put(r, &s, &t.p[i], 1);
    }
    return tpl_take(r, &s);
}

static Text spaces(Render *r, int64_t n) { return tpl_binary(r, T_MUL, tpl_string(TEXT(" ")), tpl_int(n)).text; }

/* An amount of spaces, or the text itself. */
static Text indentation(Render *r, Value v, const char *filter) {
    if (v.kind == V_TEXT) return v.text;
    if (v.kind == V_INT || v.kind == V_BOOL) return spaces(r, tpl_as_int(v));
    tpl_fail(r, "%s: an indent is a number or a str, not a %s", filter, tpl_type_name(v.kind));
    return TEXT("");
}

static Value filter_indent(Render *r, Value self, const Args *a) {
    Text by = indentation(r, a->slot[0].kind == V_ABSENT ? tpl_int(4) : a->slot[0], "indent");
    bool blank = tpl_truth(a->slot[2]);
    Str s = {0};
    if (self.kind != V_TEXT) return tpl_fail(r, "indent: needs a str, not a %s", tpl_type_name(self.kind));
    const Seq *lines = tpl_split_lines(r, tpl_binary(r, T_ADD, self, tpl_string(TEXT("\n"))).text).seq;
    if (r->failed) return self;
    if (tpl_truth(a->slot[1])) tpl_put_text(r, &s, by);
    for (int64_t i = 0; i < lines->n && tpl_charge(r, 1); i++) {
        if (i) tpl_put(r, &s, "\n", 1);
        if (i && (blank || lines->at[i].text.n)) tpl_put_text(r, &s, by);
        tpl_put_text(r, &s, lines->at[i].text);
    }
    return tpl_take(r, &s);
}

static Value filter_format(Render *r, Value self, const Args *a) {
    Value args = tpl_seq(r, V_TUPLE);
    if (a->n_keywords) return tpl_fail(r, "format: keywords are not supported");
    for (int i = 0; i < a->n; i++) tpl_add(r, args.seq, a->at[i]);
    return tpl_percent(r, tpl_to_string(r, self).text, args);
}

static Value filter_tojson(Render *r, Value self, const Args *a) {
    Value indent = a->slot[1], separators = a->slot[2];
    JsonStyle style = {.between = TEXT(", "), .colon = TEXT(": ")};
    Str s = {0};
    style.ascii = tpl_truth(a->slot[0]);
    style.sort = tpl_truth(a->slot[3]);
    if (tpl_is_given(indent)) {
        style.indent = indentation(r, indent, "tojson");
        style.between = TEXT(",");
    }
    if (tpl_is_given(separators)) {
        bool pair = (separators.kind == V_TUPLE || separators.kind == V_LIST) && separators.seq->n == 2;
        if (!pair || separators.seq->at[0].kind != V_TEXT || separators.seq->at[1].kind != V_TEXT)
            return tpl_fail(r, "tojson: separators are two strings");
        style.between = separators.seq->at[0].text;
        style.colon = separators.seq->at[1].text;
    }
    tpl_json(r, &s, self, &style);
    return tpl_take(r, &s);
}

/* ---- numbers ---- */

/* Digits as Python reads them: white space around, '_' between digits; false: not a number of that base. */
static bool read_int(Render *r, Text t, int64_t base, int64_t *out) {
    t = tpl_strip(t, NULL, true, true);
    bool negative = t.n && t.p[0] == '-', digit_before = false;
    int64_t i = t.n && (t.p[0] == '-' || t.p[0] == '+'), v = 0;
    char mark = t.n - i > 2 && t.p[i] == '0' ? (char)(t.p[i + 1] | 32) : 0;
    if ((base == 16 && mark == 'x') || (base == 8 && mark == 'o') || (base == 2 && mark == 'b'))
        i += 2, digit_before = true;
    if (i >= t.n) return false;
    for (; i < t.n; i++) {
        char c = t.p[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'z' ? (c | 32) - 'a' + 10 : 99;
        if (c == '_' && digit_before && i + 1 < t.n) {
            digit_before = false;
            continue;
        }
        if (digit >= base) return false;
        digit_before = true;
        if (__builtin_mul_overflow(v, base, &v) || __builtin_sub_overflow(v, (int64_t)digit, &v) ||
            (!negative && v == INT64_MIN)) {
            tpl_fail(r, "an integer of more than 64 bits is not supported");
            return false;
        }
    }
    *out = negative ? v : -v;
    return digit_before;
}

static bool read_float(Text t, double *out) {
    char plain[400], *end;
    int64_t n = 0;
    t = tpl_strip(t, NULL, true, true);
    for (int64_t i = 0; i < t.n; i++) {
        bool joint = t.p[i] == '_' && i > 0 && i + 1 < t.n && t.p[i - 1] >= '0' && t.p[i - 1] <= '9' &&
                     t.p[i + 1] >= '0' && t.p[i + 1] <= '9';
        if (joint) continue;
        if (n + 1 >= (int64_t)sizeof plain || t.p[i] == 0 || strchr("xXpP(", t.p[i])) return false;
        plain[n++] = t.p[i];
    }
    plain[n] = 0;
    *out = strtod(plain, &end);
    return n > 0 && *end == 0;
}

static Value filter_int(Render *r, Value self, const Args *a) {
    Value otherwise = a->slot[0].kind == V_ABSENT ? tpl_int(0) : a->slot[0];
    int64_t i, base = a->slot[1].kind == V_INT ? a->slot[1].i : 10;
    double f = 0;
    if (self.kind == V_UNDEFINED) return tpl_fail_undefined(r, self);
    if (base < 2 || base > 36) return tpl_fail(r, "int: the base lies between 2 and 36");
    if (self.kind == V_INT) return self;
    if (self.kind == V_BOOL) return tpl_int(self.b);
    if (self.kind == V_TEXT && read_int(r, self.text, base, &i)) return tpl_int(i);
    bool number = self.kind == V_FLOAT || (self.kind == V_TEXT && read_float(self.text, &f));
    if (self.kind == V_FLOAT) f = self.f;
    if (self.kind == V_FLOAT && isinf(f)) return tpl_fail(r, "int: infinity is not an integer");
    if (!number || isnan(f) || isinf(f)) return otherwise;
    if (!(fabs(f) < 9.2e18)) return tpl_fail(r, "an integer of more than 64 bits is not supported");
    return tpl_int((int64_t)f);
}

static Value filter_float(Render *r, Value self, const Args *a) {
    double f;
    if (self.kind == V_UNDEFINED) return tpl_fail_undefined(r, self);
    if (self.kind == V_FLOAT) return self;
    if (self.kind == V_INT) return tpl_float((double)self.i);
    if (self.kind == V_BOOL) return tpl_float(self.b);
    if (self.kind == V_TEXT && read_float(self.text, &f)) return tpl_float(f);
    return a->slot[0].kind == V_ABSENT ? tpl_float(0) : a->slot[0];
}

static Value filter_abs(Render *r, Value self, const Args *a) {
    if (self.kind == V_FLOAT) return tpl_float(fabs(self.f));
    if (self.kind == V_UNDEFINED) return tpl_fail_undefined(r, self);
    if (!tpl_is_number(self)) return tpl_fail(r, "abs: needs a number, not a %s", tpl_type_name(self.kind));
    int64_t i = tpl_as_int(self);
    return i < 0 ? tpl_binary(r, T_SUB, tpl_int(0), tpl_int(i)) : tpl_int(i);
}

/* A decimal of `places` digits, ties to even; the C library prints exactly, so reading back rounds well. */
static double round_places(double f, int places) {
    char text[400];
    if (places < 0) {
        double unit = pow(10, -places);
        return nearbyint(f / unit) * unit;
    }
    snprintf(text, sizeof text, "%.*f", MIN2(places, 60), f);
    return strtod(text, NULL);
}

static Value filter_round(Render *r, Value self, const Args *a) {
    int places = a->slot[0].kind == V_INT ? (int)MAX2(MIN2(a->slot[0].i, 300), -300) : 0;
    Text method = a->slot[1].kind == V_TEXT ? a->slot[1].text : TEXT("common");
    if (self.kind == V_UNDEFINED) return tpl_fail_undefined(r, self);
    if (!tpl_is_number(self)) return tpl_fail(r, "round: needs a number, not a %s", tpl_type_name(self.kind));
    double f = self.kind == V_FLOAT ? self.f : (double)tpl_as_int(self);
    if (tpl_text_is(method, "common")) {
        if (self.kind != V_FLOAT && places >= 0) return tpl_int(tpl_as_int(self));
        double rounded = isfinite(f) ? round_places(f, places) : f;
        return self.kind == V_FLOAT ? tpl_float(rounded) : tpl_int((int64_t)rounded);
    }
    double unit = pow(10, places);
    if (tpl_text_is(method, "ceil")) return tpl_float(ceil(f * unit) / unit);
    if (tpl_text_is(method, "floor")) return tpl_float(floor(f * unit) / unit);
    return tpl_fail(r, "round: the method is common, ceil or floor");
}

/* ---- any value ---- */

static Value filter_default(Render *r, Value self, const Args *a) {
    bool use = self.kind == V_UNDEFINED || (tpl_truth(a->slot[1]) && !tpl_truth(self));
    return !use ? self : a->slot[0].kind == V_ABSENT ? tpl_string(TEXT("")) : a->slot[0];
}

static Value filter_length(Render *r, Value self, const Args *a) {
    if (self.kind == V_TEXT && !tpl_charge_bytes(r, self.text.n)) return self;
    int64_t n = tpl_length(self);
    return n < 0 ? tpl_fail(r, "a %s has no length", tpl_type_name(self.kind)) : tpl_int(n);
}

static const Builtin filters[] = {
    {"abs", "", 0, filter_abs},
    {"capitalize", "", 0, filter_capitalize},
    {"count", "", 0, filter_length},
    {"d", "default_value boolean", 0, filter_default},
    {"default", "default_value boolean", 0, filter_default},
    {"e", "", 0, filter_escape},
    {"escape", "", 0, filter_escape},
    {"float", "default", 0, filter_float},
    {"format", "*", 0, filter_format},
    {"indent", "width first blank", 0, filter_indent},
    {"int", "default base", 0, filter_int},
    {"length", "", 0, filter_length},
    {"lower", "", 0, filter_lower},
    {"replace", "old new count", 2, filter_replace},
    {"round", "precision method", 0, filter_round},
    {"safe", "", 0, filter_string},
    {"string", "", 0, filter_string},
    {"title", "", 0, filter_title},
    {"tojson", "ensure_ascii indent separators sort_keys", 0, filter_tojson},
    {"trim", "chars", 0, filter_trim},
    {"upper", "", 0, filter_upper},
};

const Builtin *tpl_find_filter(Text name) {
    const Builtin *b = tpl_row(filters, COUNT_OF(filters), name);
    return b ? b : tpl_find_list_filter(name);
}
