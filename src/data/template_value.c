/* template_value.c - what a value is: made, compared, counted and iterated as Python does it. */
#include <string.h>

#include "data/template_int.h"

Value tpl_none(void) { return (Value){.kind = V_NONE}; }
Value tpl_bool(bool b) { return (Value){.kind = V_BOOL, .b = b}; }
Value tpl_int(int64_t i) { return (Value){.kind = V_INT, .i = i}; }
Value tpl_float(double f) { return (Value){.kind = V_FLOAT, .f = f}; }
Value tpl_string(Text t) { return (Value){.kind = V_TEXT, .text = t}; }
Value tpl_undefined(int why, Text name) { return (Value){.kind = V_UNDEFINED, .why = why, .text = name}; }

const char *tpl_type_name(int kind) {
    static const char *const names[] = {
        [V_ABSENT] = "nothing",       [V_UNDEFINED] = "undefined", [V_NONE] = "None",
        [V_BOOL] = "bool",            [V_INT] = "int",             [V_FLOAT] = "float",
        [V_TEXT] = "str",             [V_LIST] = "list",           [V_TUPLE] = "tuple",
        [V_RANGE] = "range",          [V_GENERATOR] = "generator", [V_KEYS] = "dict_keys",
        [V_VALUES] = "dict_values",   [V_ITEMS] = "dict_items",    [V_DICT] = "dict",
        [V_SPACE] = "namespace",      [V_LOOP] = "loop",           [V_MACRO] = "macro",
        [V_FUNCTION] = "function",    [V_METHOD] = "method",
    };
    return names[kind];
}

bool tpl_is_seq(Value v) { return v.kind >= V_LIST && v.kind <= V_ITEMS; }
bool tpl_is_given(Value v) { return v.kind != V_ABSENT && v.kind != V_NONE; }
bool tpl_is_number(Value v) { return v.kind == V_BOOL || v.kind == V_INT || v.kind == V_FLOAT; }
int64_t tpl_as_int(Value v) { return v.kind == V_BOOL ? v.b : v.i; }

/* ---- making ---- */

Value tpl_seq(Render *r, ValueKind kind) { return (Value){.kind = kind, .seq = tpl_alloc(r, sizeof(Seq))}; }

/* Doubles an array in the arena; NULL: over the bound. */
static void *grow(Render *r, void *old, int64_t n, int64_t *capacity, int64_t each) {
    int64_t want = MAX2(4, *capacity * 2);
    char *p = tpl_bytes(r, want * each);
    if (!p) return NULL;
    if (n) memcpy(p, old, (size_t)(n * each));
    *capacity = want;
    return p;
}

void tpl_add(Render *r, Seq *s, Value v) {
    if (s->n == s->capacity) {
        Value *at = grow(r, s->at, s->n, &s->capacity, sizeof *s->at);
        if (!at) return;
        s->at = at;
    }
    s->at[s->n++] = v;
}

/* A tuple of two. */
static Value pair(Render *r, Value a, Value b) {
    Value v = tpl_seq(r, V_TUPLE);
    v.seq->at = tpl_alloc(r, 2 * sizeof(Value));
    v.seq->n = v.seq->capacity = 2;
    v.seq->at[0] = a;
    v.seq->at[1] = b;
    return v;
}

Value tpl_dict(Render *r, ValueKind kind) { return (Value){.kind = kind, .dict = tpl_alloc(r, sizeof(Dict))}; }

static void dict_append(Render *r, Dict *d, Value key, Value v) {
    if (d->n == d->capacity) {
        Pair *at = grow(r, d->at, d->n, &d->capacity, sizeof *d->at);
        if (!at) return;
        d->at = at;
    }
    d->at[d->n++] = (Pair){key, v};
}

static Pair *dict_find(Render *r, const Dict *d, Value key) {
    if (!tpl_charge(r, d->n / 16)) return NULL;
    for (int64_t i = 0; i < d->n; i++)
        if (tpl_equal(r, d->at[i].key, key)) return &d->at[i];
    return NULL;
}

bool tpl_dict_get(Render *r, const Dict *d, Value key, Value *v) {
    Pair *p = dict_find(r, d, key);
    if (p) *v = p->value;
    return p != NULL;
}

void tpl_dict_set(Render *r, Dict *d, Value key, Value v) {
    if (!tpl_hashable(r, key)) {
        tpl_fail(r, "a %s cannot be a key of a dictionary", tpl_type_name(key.kind));
        return;
    }
    Pair *p = dict_find(r, d, key);
    if (p)
        p->value = v;
    else
        dict_append(r, d, key, v);
}

Value tpl_dict_view(Render *r, const Dict *d, ValueKind kind) {
    Value v = tpl_seq(r, kind);
    for (int64_t i = 0; i < d->n && tpl_charge(r, 1); i++) {
        const Pair *p = &d->at[i];
        tpl_add(r, v.seq, kind == V_KEYS ? p->key : kind == V_VALUES ? p->value : pair(r, p->key, p->value));
    }
    return v;
}

static Value from_object(Render *r, const json_t *j) {
    Value v = tpl_dict(r, V_DICT);
    /* jansson's iterators want a pointer that is not const; they write nothing */
    json_t *object = (json_t *)j;
    for (void *it = json_object_iter(object); it; it = json_object_iter_next(object, it)) {
        const char *name = json_object_iter_key(it);
        Text key = {name, (int64_t)strlen(name)}; /* jansson takes no NUL in keys */
        dict_append(r, v.dict, tpl_string(key), tpl_from_json(r, json_object_iter_value(it)));
        if (r->failed) break;
    }
    return v;
}

static Value from_array(Render *r, const json_t *j) {
    Value v = tpl_seq(r, V_LIST);
    for (size_t i = 0; i < json_array_size(j) && !r->failed; i++)
        tpl_add(r, v.seq, tpl_from_json(r, json_array_get(j, i)));
    return v;
}

Value tpl_from_json(Render *r, const json_t *j) {
    Value v = tpl_none();
    if (!tpl_charge(r, 1) || !tpl_enter(r)) return v;
    switch (json_typeof(j)) {
    case JSON_OBJECT: v = from_object(r, j); break;
    case JSON_ARRAY: v = from_array(r, j); break;
    case JSON_STRING: v = tpl_string((Text){json_string_value(j), (int64_t)json_string_length(j)}); break;
    case JSON_INTEGER: v = tpl_int(json_integer_value(j)); break;
    case JSON_REAL: v = tpl_float(json_real_value(j)); break;
    case JSON_TRUE: v = tpl_bool(true); break;
    case JSON_FALSE: v = tpl_bool(false); break;
    case JSON_NULL: break;
    }
    r->depth--;
    return v;
}

/* ---- questions ---- */

bool tpl_hashable(Render *r, Value v) {
    if (v.kind == V_TUPLE) {
        bool all = tpl_charge(r, v.seq->n) && tpl_enter(r);
        if (!all) return false;
        for (int64_t i = 0; i < v.seq->n && all; i++) all = tpl_hashable(r, v.seq->at[i]);
        r->depth--;
        return all;
    }
    return v.kind != V_LIST && v.kind != V_DICT && v.kind != V_KEYS && v.kind != V_ITEMS;
}

int64_t tpl_length(Value v) {
    if (v.kind == V_TEXT) return tpl_points(v.text);
    if (v.kind == V_UNDEFINED) return 0;
    if (v.kind == V_DICT) return v.dict->n;
    return tpl_is_seq(v) && v.kind != V_GENERATOR ? v.seq->n : -1;
}

bool tpl_truth(Value v) {
    switch (v.kind) {
    case V_BOOL: return v.b;
    case V_INT: return v.i != 0;
    case V_FLOAT: return v.f != 0;
    case V_TEXT: return v.text.n > 0;
    case V_ABSENT:
    case V_UNDEFINED:
    case V_NONE: return false;
    default: return tpl_length(v) != 0; /* -1: an object, which is true */
    }
}

/* An extended float holds every int64_t exactly, so mixed comparisons are exact. */
static long double as_number(Value v) { return v.kind == V_FLOAT ? (long double)v.f : (long double)tpl_as_int(v); }

static bool seqs_equal(Render *r, const Seq *a, const Seq *b) {
    if (a->n != b->n || !tpl_charge(r, a->n / 4)) return false;
    for (int64_t i = 0; i < a->n; i++)
        if (!tpl_equal(r, a->at[i], b->at[i])) return false;
    return true;
}

static bool dicts_equal(Render *r, const Dict *a, const Dict *b) {
    if (a->n != b->n) return false;
    for (int64_t i = 0; i < a->n; i++) {
        Value other;
        if (!tpl_dict_get(r, b, a->at[i].key, &other) || !tpl_equal(r, a->at[i].value, other)) return false;
    }
    return true;
}

static bool same_object(Value a, Value b) {
    return tpl_is_seq(a)                              ? a.seq == b.seq
           : a.kind == V_DICT || a.kind == V_SPACE    ? a.dict == b.dict
           : a.kind == V_LOOP                         ? a.loop == b.loop
           : a.kind == V_MACRO                        ? a.macro == b.macro
                                                      : a.method == b.method;
}

bool tpl_equal(Render *r, Value a, Value b) {
    if (r->failed) return false;
    if (tpl_is_number(a) && tpl_is_number(b)) return as_number(a) == as_number(b);
    if (a.kind != b.kind) return false;
    if (a.kind == V_UNDEFINED || a.kind == V_NONE) return true;
    if (a.kind == V_TEXT)
        return a.text.n == b.text.n && tpl_charge_bytes(r, a.text.n) && tpl_text_equal(a.text, b.text);
    if (same_object(a, b)) return true;
    bool deep = a.kind == V_LIST || a.kind == V_TUPLE || a.kind == V_RANGE || a.kind == V_DICT || a.kind == V_KEYS;
    if (!deep || !tpl_charge(r, 1) || !tpl_enter(r)) return false;
    bool same = a.kind == V_DICT ? dicts_equal(r, a.dict, b.dict) : seqs_equal(r, a.seq, b.seq);
    r->depth--;
    return same;
}

static int sign(int64_t n) { return n < 0 ? -1 : n > 0; }

static int order_seqs(Render *r, const Seq *a, const Seq *b) {
    int found = 0;
    if (!tpl_enter(r)) return 0;
    for (int64_t i = 0; i < a->n && i < b->n && !r->failed; i++) {
        if (!tpl_charge(r, 1) || tpl_equal(r, a->at[i], b->at[i])) continue;
        found = tpl_order(r, a->at[i], b->at[i]);
        break;
    }
    r->depth--;
    return found ? found : sign(a->n - b->n);
}

int tpl_order(Render *r, Value a, Value b) {
    if (r->failed) return 0;
    if (a.kind == V_UNDEFINED || b.kind == V_UNDEFINED) {
        tpl_fail_undefined(r, a.kind == V_UNDEFINED ? a : b);
        return 0;
    }
    if (tpl_is_number(a) && tpl_is_number(b)) {
        long double x = as_number(a), y = as_number(b);
        return x < y ? -1 : x > y;
    }
    if (a.kind == V_TEXT && b.kind == V_TEXT) { /* UTF-8 sorts as its code points do */
        int64_t n = MIN2(a.text.n, b.text.n);
        int c = n && tpl_charge_bytes(r, n) ? memcmp(a.text.p, b.text.p, (size_t)n) : 0;
        return c ? sign(c) : sign(a.text.n - b.text.n);
    }
    if (a.kind == b.kind && (a.kind == V_LIST || a.kind == V_TUPLE)) return order_seqs(r, a.seq, b.seq);
    tpl_fail(r, "a %s and a %s have no order", tpl_type_name(a.kind), tpl_type_name(b.kind));
    return 0;
}

bool tpl_contains(Render *r, Value in, Value what) {
    Value v;
    Iter it;
    if (in.kind == V_TEXT) {
        if (what.kind != V_TEXT) {
            tpl_fail(r, "'in' looks for a %s in a str", tpl_type_name(what.kind));
            return false;
        }
        return tpl_charge_bytes(r, in.text.n) && tpl_find(in.text, what.text, 0) >= 0;
    }
    if (in.kind == V_DICT) {
        if (!tpl_hashable(r, what)) tpl_fail(r, "a %s cannot be a key of a dictionary", tpl_type_name(what.kind));
        return tpl_dict_get(r, in.dict, what, &v);
    }
    if (!tpl_iter(r, &it, in)) return false;
    while (tpl_next(r, &it, &v))
        if (tpl_equal(r, v, what)) return true;
    return false;
}

/* ---- iterating ---- */

bool tpl_iterable(Value v) {
    return v.kind == V_TEXT || v.kind == V_UNDEFINED || v.kind == V_DICT || tpl_is_seq(v);
}

static Seq *characters(Render *r, Text t) {
    Seq *s = tpl_seq(r, V_LIST).seq;
    for (int64_t i = 0; i < t.n && tpl_charge(r, 1);) {
        int32_t c;
        int n = tpl_decode(t, i, &c);
        tpl_add(r, s, tpl_string((Text){t.p + i, n}));
        i += n;
    }
    return s;
}

bool tpl_iter(Render *r, Iter *it, Value over) {
    *it = (Iter){.seq = NULL};
    if (r->failed) return false;
    if (over.kind == V_TEXT) {
        it->seq = characters(r, over.text);
    } else if (over.kind == V_DICT) {
        it->seq = tpl_dict_view(r, over.dict, V_KEYS).seq;
    } else if (tpl_is_seq(over)) {
        it->seq = over.seq;
        it->shared = over.kind == V_GENERATOR;
    } else if (over.kind != V_UNDEFINED) {
        tpl_fail(r, "a %s cannot be iterated over", tpl_type_name(over.kind));
        return false;
    }
    return true;
}

bool tpl_next(Render *r, Iter *it, Value *v) {
    if (!it->seq || r->failed || !tpl_charge(r, 1)) return false;
    int64_t *at = it->shared ? &it->seq->given : &it->at;
    if (*at >= it->seq->n) return false;
    *v = it->seq->at[(*at)++];
    return true;
}
