/* template_print.c - a value as text: str(), repr(), JSON and the % operator, letter for letter as Python. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/template_int.h"

static void repr(Render *r, Str *to, Value v);

static void put(Render *r, Str *to, const char *s) { tpl_put(r, to, s, (int64_t)strlen(s)); }

/* The shortest digits that read back as the same double; an exponent below 1e-4 and from 1e16 on. */
static void put_float(Render *r, Str *to, double f, const char *inf, const char *nan) {
    char shortest[40], text[48];
    if (isnan(f) || isinf(f)) {
        if (isinf(f) && f < 0) put(r, to, "-");
        put(r, to, isnan(f) ? nan : inf);
        return;
    }
    int digits = 0;
    do snprintf(shortest, sizeof shortest, "%.*e", digits, f);
    while (strtod(shortest, NULL) != f && ++digits < 17);
    long exponent = strtol(strchr(shortest, 'e') + 1, NULL, 10);
    if (exponent < -4 || exponent >= 16) {
        put(r, to, shortest);
        return;
    }
    snprintf(text, sizeof text, "%.*f", MAX2(1, digits - (int)exponent), f);
    put(r, to, text);
}

static void put_escape(Render *r, Str *to, int32_t c) {
    char text[16];
    snprintf(text, sizeof text, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", (unsigned)c);
    put(r, to, text);
}

static void repr_text(Render *r, Str *to, Text t) {
    bool has_single = t.n && memchr(t.p, '\'', (size_t)t.n), has_double = t.n && memchr(t.p, '"', (size_t)t.n);
    char quote = has_single && !has_double ? '"' : '\'';
    if (!tpl_charge_bytes(r, t.n * 4)) return;
    tpl_put(r, to, &quote, 1);
    for (int64_t i = 0; i < t.n && !r->failed;) {
        int32_t c;
        int n = tpl_decode(t, i, &c);
        if (c == quote || c == '\\')
            tpl_put(r, to, (char[]){'\\', (char)c}, 2);
        else if (c == '\n' || c == '\r' || c == '\t')
            put(r, to, c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t");
        else if (!tpl_is_printable(c))
            put_escape(r, to, c);
        else
            tpl_put(r, to, t.p + i, n);
        i += n;
    }
    tpl_put(r, to, &quote, 1);
}

static void repr_items(Render *r, Str *to, const Seq *s) {
    for (int64_t i = 0; i < s->n && !r->failed; i++) {
        if (i) put(r, to, ", ");
        repr(r, to, s->at[i]);
    }
}

static void repr_seq(Render *r, Str *to, Value v) {
    const char *open = v.kind == V_LIST ? "[" : v.kind == V_TUPLE ? "(" : "([";
    if (v.kind != V_LIST && v.kind != V_TUPLE) put(r, to, tpl_type_name(v.kind));
    put(r, to, open);
    repr_items(r, to, v.seq);
    put(r, to, v.kind == V_LIST ? "]" : v.kind != V_TUPLE ? "])" : v.seq->n == 1 ? ",)" : ")");
}

static void repr_dict(Render *r, Str *to, const Dict *d) {
    put(r, to, "{");
    for (int64_t i = 0; i < d->n && !r->failed; i++) {
        if (i) put(r, to, ", ");
        repr(r, to, d->at[i].key);
        put(r, to, ": ");
        repr(r, to, d->at[i].value);
    }
    put(r, to, "}");
}

static void put_int(Render *r, Str *to, int64_t i) {
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)i);
    put(r, to, text);
}

static void repr_object(Render *r, Str *to, Value v) {
    put(r, to, "<");
    put(r, to, v.kind == V_SPACE ? "Namespace" : v.kind == V_MACRO ? "Macro" : tpl_type_name(v.kind));
    if (v.kind == V_SPACE) put(r, to, " "), repr_dict(r, to, v.dict);
    if (v.kind == V_MACRO) put(r, to, " "), repr_text(r, to, v.macro->node->name);
    put(r, to, ">");
}

static void repr(Render *r, Str *to, Value v) {
    if (!tpl_charge(r, 1) || !tpl_enter(r)) return;
    switch (v.kind) {
    case V_ABSENT:
    case V_UNDEFINED: put(r, to, "Undefined"); break;
    case V_NONE: put(r, to, "None"); break;
    case V_BOOL: put(r, to, v.b ? "True" : "False"); break;
    case V_INT: put_int(r, to, v.i); break;
    case V_FLOAT: put_float(r, to, v.f, "inf", "nan"); break;
    case V_TEXT: repr_text(r, to, v.text); break;
    case V_LIST:
    case V_TUPLE:
    case V_KEYS:
    case V_VALUES:
    case V_ITEMS: repr_seq(r, to, v); break;
    case V_DICT: repr_dict(r, to, v.dict); break;
    default: repr_object(r, to, v);
    }
    r->depth--;
}

void tpl_print(Render *r, Str *to, Value v) {
    if (v.kind == V_TEXT)
        tpl_put_text(r, to, v.text);
    else if (v.kind != V_UNDEFINED)
        repr(r, to, v);
}

Value tpl_to_string(Render *r, Value v) {
    Str s = {0};
    if (v.kind == V_TEXT) return v;
    tpl_print(r, &s, v);
    return tpl_take(r, &s);
}

/* ---- JSON, as json.dumps writes it ---- */

static void json_char(Render *r, Str *to, int32_t c) {
    static const char plain[] = "\"\\\b\f\n\r\t", names[] = "\"\\bfnrt";
    const char *hit = c > 0 && c < 128 ? strchr(plain, c) : NULL;
    char text[16];
    if (hit)
        snprintf(text, sizeof text, "\\%c", names[hit - plain]);
    else if (c < 0x10000)
        snprintf(text, sizeof text, "\\u%04x", (unsigned)c);
    else
        snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xD800u + (((unsigned)c - 0x10000) >> 10),
                 0xDC00u + ((unsigned)c & 0x3FF));
    put(r, to, text);
}

static void json_text(Render *r, Str *to, Text t, bool ascii) {
    if (!tpl_charge_bytes(r, t.n * 4)) return;
    put(r, to, "\"");
    for (int64_t i = 0; i < t.n && !r->failed;) {
        int32_t c;
        int n = tpl_decode(t, i, &c);
        if (c < 0x20 || c == '"' || c == '\\' || (ascii && c >= 0x7F))
            json_char(r, to, c);
        else
            tpl_put(r, to, t.p + i, n);
        i += n;
    }
    put(r, to, "\"");
}

static void json_newline(Render *r, Str *to, const JsonStyle *style, int level) {
    if (!style->indent.p) return;
    put(r, to, "\n");
    for (int i = 0; i < level && !r->failed; i++) tpl_put_text(r, to, style->indent);
}

static void json_value(Render *r, Str *to, Value v, const JsonStyle *style, int level);

/* A key that is not text is written as JSON would write the value, in quotes. */
static void json_key(Render *r, Str *to, Value key, const JsonStyle *style) {
    if (key.kind == V_TEXT) {
        json_text(r, to, key.text, style->ascii);
    } else if (key.kind == V_NONE || tpl_is_number(key)) {
        put(r, to, "\"");
        json_value(r, to, key, style, 0);
        put(r, to, "\"");
    } else {
        tpl_fail(r, "tojson: a %s cannot be a key in JSON", tpl_type_name(key.kind));
    }
}

static const Dict *sorted_by_key(Render *r, const Dict *d) {
    Dict *s = tpl_dict(r, V_DICT).dict;
    for (int64_t i = 0; i < d->n && !r->failed; i++) {
        int64_t at = s->n;
        tpl_dict_set(r, s, d->at[i].key, d->at[i].value);
        if (r->failed) break;
        Pair p = s->at[at];
        for (; at > 0 && tpl_charge(r, 1) && tpl_order(r, p.key, s->at[at - 1].key) < 0; at--)
            s->at[at] = s->at[at - 1];
        s->at[at] = p;
    }
    return s;
}

static void json_dict(Render *r, Str *to, const Dict *d, const JsonStyle *style, int level) {
    if (style->sort) d = sorted_by_key(r, d);
    put(r, to, "{");
    for (int64_t i = 0; i < d->n && !r->failed; i++) {
        if (i) tpl_put_text(r, to, style->between);
        json_newline(r, to, style, level + 1);
        json_key(r, to, d->at[i].key, style);
        tpl_put_text(r, to, style->colon);
        json_value(r, to, d->at[i].value, style, level + 1);
    }
    if (d->n) json_newline(r, to, style, level);
    put(r, to, "}");
}

static void json_list(Render *r, Str *to, const Seq *s, const JsonStyle *style, int level) {
    put(r, to, "[");
    for (int64_t i = 0; i < s->n && !r->failed; i++) {
        if (i) tpl_put_text(r, to, style->between);
        json_newline(r, to, style, level + 1);
        json_value(r, to, s->at[i], style, level + 1);
    }
    if (s->n) json_newline(r, to, style, level);
    put(r, to, "]");
}

static void json_value(Render *r, Str *to, Value v, const JsonStyle *style, int level) {
    if (!tpl_charge(r, 1) || !tpl_enter(r)) return;
    switch (v.kind) {
    case V_NONE: put(r, to, "null"); break;
    case V_BOOL: put(r, to, v.b ? "true" : "false"); break;
    case V_INT: put_int(r, to, v.i); break;
    case V_FLOAT: put_float(r, to, v.f, "Infinity", "NaN"); break;
    case V_TEXT: json_text(r, to, v.text, style->ascii); break;
    case V_LIST:
    case V_TUPLE: json_list(r, to, v.seq, style, level); break;
    case V_DICT: json_dict(r, to, v.dict, style, level); break;
    default: tpl_fail(r, "tojson: a value of type %s cannot be written as JSON", tpl_type_name(v.kind));
    }
    r->depth--;
}

void tpl_json(Render *r, Str *to, Value v, const JsonStyle *style) { json_value(r, to, v, style, 0); }

/* ---- the % operator ---- */

typedef struct Spec { /* %[flags][width][.precision]conversion */
    char flags[8];
    int width, precision; /* precision -1: none */
    char conversion;
} Spec;

static bool read_spec(Text f, int64_t *at, Spec *s) {
    int n_flags = 0;
    *s = (Spec){.precision = -1};
    while (*at < f.n && strchr("-+ 0#", f.p[*at]) && f.p[*at]) {
        if (n_flags < 5) s->flags[n_flags++] = f.p[*at];
        ++*at;
    }
    for (; *at < f.n && f.p[*at] >= '0' && f.p[*at] <= '9'; ++*at)
        if ((s->width = s->width * 10 + f.p[*at] - '0') > 1000) return false;
    if (*at < f.n && f.p[*at] == '.') {
        s->precision = 0;
        for (++*at; *at < f.n && f.p[*at] >= '0' && f.p[*at] <= '9'; ++*at)
            if ((s->precision = s->precision * 10 + f.p[*at] - '0') > 1000) return false;
    }
    if (*at >= f.n) return false;
    s->conversion = f.p[(*at)++];
    return true;
}

static void put_padded(Render *r, Str *to, Text t, const Spec *s) {
    int64_t pad = s->width - tpl_points(t);
    bool left = strchr(s->flags, '-') != NULL;
    if (left) tpl_put_text(r, to, t);
    for (; pad > 0; pad--) put(r, to, " ");
    if (!left) tpl_put_text(r, to, t);
}

static void put_number(Render *r, Str *to, Value v, const Spec *s) {
    char format[24], text[2400];
    bool whole = s->conversion == 'd' || s->conversion == 'i';
    double f = v.kind == V_FLOAT ? v.f : (double)tpl_as_int(v);
    if (!tpl_is_number(v) || (whole && !(fabs(f) < 9.3e18))) {
        tpl_fail(r, "%%%c in a format cannot take this %s", s->conversion, tpl_type_name(v.kind));
        return;
    }
    if (whole) {
        long long i = v.kind == V_FLOAT ? (long long)v.f : tpl_as_int(v);
        snprintf(format, sizeof format, "%%%s*.*lld", s->flags);
        snprintf(text, sizeof text, format, s->width, s->precision, i);
    } else {
        snprintf(format, sizeof format, "%%%s*.*%c", s->flags, s->conversion);
        snprintf(text, sizeof text, format, s->width, s->precision, f);
    }
    put(r, to, text);
}

static void put_converted(Render *r, Str *to, Value v, const Spec *s) {
    if (s->conversion == 's' || s->conversion == 'r') {
        Str text = {0};
        if (s->conversion == 's')
            tpl_print(r, &text, v);
        else
            repr(r, &text, v);
        Value whole = tpl_take(r, &text);
        if (r->failed) return;
        if (s->precision >= 0) whole.text.n = tpl_offset(whole.text, s->precision);
        put_padded(r, to, whole.text, s);
    } else if (strchr("difFeEgG", s->conversion)) {
        put_number(r, to, v, s);
    } else {
        tpl_fail(r, "the conversion %%%c in a format is not supported", s->conversion);
    }
}

Value tpl_percent(Render *r, Text format, Value args) {
    Str out = {0};
    int64_t next = 0, n = args.kind == V_TUPLE ? args.seq->n : 1;
    for (int64_t at = 0; at < format.n && !r->failed;) {
        if (format.p[at] != '%') {
            tpl_put(r, &out, format.p + at++, 1);
            continue;
        }
        Spec s;
        at++;
        if (at < format.n && format.p[at] == '(') tpl_fail(r, "named fields in a %% format are not supported");
        else if (!read_spec(format, &at, &s)) tpl_fail(r, "a format ends inside, or asks too much of, a %% field");
        else if (s.conversion == '%') put(r, &out, "%");
        else if (next >= n) tpl_fail(r, "a format has more %% fields than values");
        else put_converted(r, &out, args.kind == V_TUPLE ? args.seq->at[next] : args, &s), next++;
    }
    /* Python takes these for mappings, of which a format need not use anything */
    bool may_be_left =
        args.kind == V_DICT || args.kind == V_LIST || args.kind == V_RANGE || args.kind == V_UNDEFINED;
    if (!r->failed && next < n && !(next == 0 && may_be_left))
        tpl_fail(r, "a format has fewer %% fields than values");
    return tpl_take(r, &out);
}
