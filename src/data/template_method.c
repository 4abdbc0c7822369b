/* template_method.c - the methods of strings, lists and dictionaries, and which names of Python's are refused. */
#include <string.h>
#include <utf8proc.h>

#include "data/template_int.h"

static Text need_text(Render *r, Value v, const char *method) {
    if (v.kind == V_TEXT) return v.text;
    tpl_fail(r, "%s() needs a str, not a %s", method, tpl_type_name(v.kind));
    return TEXT("");
}

/* ---- strings: cutting ---- */

static Value strip(Render *r, Value self, const Args *a, bool left, bool right) {
    Text chars = tpl_is_given(a->slot[0]) ? need_text(r, a->slot[0], "strip") : TEXT("");
    if (!tpl_charge_bytes(r, self.text.n * (1 + chars.n))) return self;
    return tpl_string(tpl_strip(self.text, tpl_is_given(a->slot[0]) ? &chars : NULL, left, right));
}

static Value str_strip(Render *r, Value self, const Args *a) { return strip(r, self, a, true, true); }
static Value str_lstrip(Render *r, Value self, const Args *a) { return strip(r, self, a, true, false); }
static Value str_rstrip(Render *r, Value self, const Args *a) { return strip(r, self, a, false, true); }

static Text part(Text t, int64_t from, int64_t to) { return (Text){t.p + from, to - from}; }

static int64_t word_end(Text t, int64_t at, bool space) {
    int32_t c;
    while (at < t.n) {
        int n = tpl_decode(t, at, &c);
        if (tpl_is_space(c) == space) break;
        at += n;
    }
    return at;
}

static void split_words(Render *r, Seq *out, Text t, int64_t most) {
    t = tpl_strip(t, NULL, true, false);
    for (; t.n > 0 && !r->failed; most--) {
        if (most == 0) {
            tpl_add(r, out, tpl_string(t));
            return;
        }
        int64_t end = word_end(t, 0, true);
        tpl_add(r, out, tpl_string(part(t, 0, end)));
        t = tpl_strip(part(t, end, t.n), NULL, true, false);
    }
}

static void reverse_in_place(Seq *s) {
    for (int64_t i = 0, j = s->n - 1; i < j; i++, j--) {
        Value v = s->at[i];
        s->at[i] = s->at[j];
        s->at[j] = v;
    }
}

static void split_words_from_right(Render *r, Seq *out, Text t, int64_t most) {
    t = tpl_strip(t, NULL, false, true);
    for (; t.n > 0 && !r->failed; most--) {
        if (most == 0) {
            tpl_add(r, out, tpl_string(t));
            break;
        }
        int64_t begin = 0, end = 0;
        while (end < t.n && tpl_charge(r, 1)) { /* the last word begins after the last space */
            end = word_end(t, begin, true);
            if (end < t.n) begin = word_end(t, end, false);
        }
        tpl_add(r, out, tpl_string(part(t, begin, t.n)));
        t = tpl_strip(part(t, 0, begin), NULL, false, true);
    }
    reverse_in_place(out);
}

static void split_at(Render *r, Seq *out, Text t, Text by, int64_t most, bool from_right) {
    int64_t hit;
    while (most-- != 0 && tpl_charge(r, 1) &&
           (hit = from_right ? tpl_find_last(r, t, by) : tpl_find(t, by, 0)) >= 0) {
        tpl_add(r, out, tpl_string(from_right ? part(t, hit + by.n, t.n) : part(t, 0, hit)));
        t = from_right ? part(t, 0, hit) : part(t, hit + by.n, t.n);
    }
    tpl_add(r, out, tpl_string(t));
    if (from_right) reverse_in_place(out);
}

static Value split(Render *r, Value self, const Args *a, bool from_right) {
    Value out = tpl_seq(r, V_LIST), limit = a->slot[1];
    int64_t most = limit.kind == V_INT ? limit.i : -1;
    if (limit.kind != V_ABSENT && limit.kind != V_INT) return tpl_fail(r, "split() needs an integer as maxsplit");
    if (!tpl_charge_bytes(r, self.text.n * 2)) return out;
    if (tpl_is_given(a->slot[0])) {
        Text by = need_text(r, a->slot[0], "split");
        if (by.n == 0) return tpl_fail(r, "split() needs a separator that is not empty");
        split_at(r, out.seq, self.text, by, most, from_right);
    } else if (from_right) {
        split_words_from_right(r, out.seq, self.text, most);
    } else {
        split_words(r, out.seq, self.text, most);
    }
    return out;
}

static Value str_split(Render *r, Value self, const Args *a) { return split(r, self, a, false); }
static Value str_rsplit(Render *r, Value self, const Args *a) { return split(r, self, a, true); }

static Value partition(Render *r, Value self, const Args *a, bool last) {
    Text t = self.text, by = need_text(r, a->slot[0], "partition");
    Value v = tpl_seq(r, V_TUPLE);
    if (r->failed || !tpl_charge_bytes(r, t.n)) return v;
    if (by.n == 0) return tpl_fail(r, "partition() needs a separator that is not empty");
    int64_t at = last ? tpl_find_last(r, t, by) : tpl_find(t, by, 0);
    bool none = at < 0;
    tpl_add(r, v.seq, tpl_string(!none ? part(t, 0, at) : last ? TEXT("") : t));
    tpl_add(r, v.seq, tpl_string(!none ? by : TEXT("")));
    tpl_add(r, v.seq, tpl_string(!none ? part(t, at + by.n, t.n) : last ? t : TEXT("")));
    return v;
}

static Value str_partition(Render *r, Value self, const Args *a) { return partition(r, self, a, false); }
static Value str_rpartition(Render *r, Value self, const Args *a) { return partition(r, self, a, true); }

static Value split_lines(Render *r, Text t, bool keep_ends) {
    Value v = tpl_seq(r, V_LIST);
    int64_t begin = 0;
    for (int64_t at = 0; at < t.n && tpl_charge(r, 1);) {
        int32_t c;
        int64_t end = at;
        at += tpl_decode(t, at, &c);
        if (!tpl_is_line_end(c)) continue;
        if (c == '\r' && at < t.n && t.p[at] == '\n') at++;
        tpl_add(r, v.seq, tpl_string(part(t, begin, keep_ends ? at : end)));
        begin = at;
    }
    if (begin < t.n) tpl_add(r, v.seq, tpl_string(part(t, begin, t.n)));
    return v;
}

Value tpl_split_lines(Render *r, Text t) { return split_lines(r, t, false); }

static Value str_splitlines(Render *r, Value self, const Args *a) {
    return split_lines(r, self.text, tpl_truth(a->slot[0]));
}

static Value str_removeprefix(Render *r, Value self, const Args *a) {
    Text t = self.text, cut = need_text(r, a->slot[0], "removeprefix");
    bool has = cut.n <= t.n && tpl_text_equal(part(t, 0, cut.n), cut);
    return has ? tpl_string(part(t, cut.n, t.n)) : self;
}

static Value str_removesuffix(Render *r, Value self, const Args *a) {
    Text t = self.text, cut = need_text(r, a->slot[0], "removesuffix");
    bool has = cut.n <= t.n && tpl_text_equal(part(t, t.n - cut.n, t.n), cut);
    return has ? tpl_string(part(t, 0, t.n - cut.n)) : self;
}

/* ---- strings: looking ---- */

/* The part of self between the arguments start and end; gives how many code points stand before it. A part that
 * ends before it begins holds nothing, not even the empty string: its length is -1. */
static Text window(Render *r, Value self, const Args *a, int64_t *before) {
    Value absent = {.kind = V_ABSENT}, v = tpl_slice(r, self, a->slot[1], a->slot[2], absent);
    *before = 0;
    if (r->failed || a->slot[1].kind == V_ABSENT) return r->failed ? TEXT("") : v.text;
    Text to_end = tpl_slice(r, self, absent, a->slot[2], absent).text;
    *before = tpl_points(part(self.text, 0, v.text.p - self.text.p));
    bool past_end = a->slot[1].kind == V_INT && a->slot[1].i > tpl_points(self.text);
    if (past_end || v.text.p > to_end.p + to_end.n) v.text.n = -1;
    return v.text;
}

static int64_t find(Render *r, Value self, const Args *a, bool last) {
    int64_t before = 0;
    Text what = need_text(r, a->slot[0], "find"), t = window(r, self, a, &before);
    if (!tpl_charge_bytes(r, t.n * 2)) return -1;
    int64_t at = last ? tpl_find_last(r, t, what) : tpl_find(t, what, 0);
    return at < 0 ? -1 : before + tpl_points(part(t, 0, at));
}

static Value str_find(Render *r, Value self, const Args *a) { return tpl_int(find(r, self, a, false)); }
static Value str_rfind(Render *r, Value self, const Args *a) { return tpl_int(find(r, self, a, true)); }

static Value str_index(Render *r, Value self, const Args *a) {
    int64_t at = find(r, self, a, false);
    return at < 0 ? tpl_fail(r, "index(): the substring is not there") : tpl_int(at);
}

static Value str_count(Render *r, Value self, const Args *a) {
    int64_t before, n = 0, at = 0;
    Text what = need_text(r, a->slot[0], "count"), t = window(r, self, a, &before);
    if (!tpl_charge_bytes(r, t.n)) return self;
    if (what.n == 0) return tpl_int(t.n < 0 ? 0 : tpl_points(t) + 1);
    for (; (at = tpl_find(t, what, at)) >= 0; at += what.n) n++;
    return tpl_int(n);
}

static bool has_at(Text t, Text what, bool end) {
    if (what.n > t.n) return false;
    return tpl_text_equal(end ? part(t, t.n - what.n, t.n) : part(t, 0, what.n), what);
}

static Value begins_or_ends(Render *r, Value self, const Args *a, bool end) {
    int64_t before;
    Value what = a->slot[0];
    Text t = window(r, self, a, &before);
    if (what.kind != V_TUPLE) return tpl_bool(has_at(t, need_text(r, what, end ? "endswith" : "startswith"), end));
    for (int64_t i = 0; i < what.seq->n && tpl_charge(r, 1); i++)
        if (has_at(t, need_text(r, what.seq->at[i], "startswith"), end)) return tpl_bool(true);
    return tpl_bool(false);
}

static Value str_startswith(Render *r, Value self, const Args *a) { return begins_or_ends(r, self, a, false); }
static Value str_endswith(Render *r, Value self, const Args *a) { return begins_or_ends(r, self, a, true); }

/* Whether there are characters and all are of one sort; the letters of isupper and islower may be mixed with
 * others. */
static Value all_are(Render *r, Text t, char sort) {
    bool any = false;
    if (!tpl_charge_bytes(r, t.n * 4)) return tpl_none();
    for (int64_t i = 0; i < t.n;) {
        int32_t c;
        i += tpl_decode(t, i, &c);
        utf8proc_category_t k = utf8proc_category(c);
        bool letter = k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO, digit = k == UTF8PROC_CATEGORY_ND;
        bool upper = k == UTF8PROC_CATEGORY_LU, lower = k == UTF8PROC_CATEGORY_LL,
             title = k == UTF8PROC_CATEGORY_LT;
        bool number = k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO;
        if ((sort == 'u' && (lower || title)) || (sort == 'l' && (upper || title))) return tpl_bool(false);
        bool fits = sort == 'u'   ? upper
                    : sort == 'l' ? lower
                    : sort == 'd' ? digit
                    : sort == 'a' ? letter
                    : sort == 's' ? tpl_is_space(c)
                                  : letter || number;
        if (!fits && sort != 'u' && sort != 'l') return tpl_bool(false);
        any |= fits;
    }
    return tpl_bool(any);
}

static Value str_isupper(Render *r, Value self, const Args *a) { return all_are(r, self.text, 'u'); }
static Value str_islower(Render *r, Value self, const Args *a) { return all_are(r, self.text, 'l'); }
static Value str_isdigit(Render *r, Value self, const Args *a) { return all_are(r, self.text, 'd'); }
static Value str_isalpha(Render *r, Value self, const Args *a) { return all_are(r, self.text, 'a'); }
static Value str_isalnum(Render *r, Value self, const Args *a) { return all_are(r, self.text, 'n'); }
static Value str_isspace(Render *r, Value self, const Args *a) { return all_are(r, self.text, 's'); }

/* ---- strings: making ---- */

static Value str_upper(Render *r, Value self, const Args *a) { return tpl_case(r, self.text, 'u'); }
static Value str_lower(Render *r, Value self, const Args *a) { return tpl_case(r, self.text, 'l'); }
static Value str_title(Render *r, Value self, const Args *a) { return tpl_case(r, self.text, 't'); }
static Value str_capitalize(Render *r, Value self, const Args *a) { return tpl_case(r, self.text, 'c'); }

static Value str_replace(Render *r, Value self, const Args *a) {
    Text t = self.text, old = need_text(r, a->slot[0], "replace"), new = need_text(r, a->slot[1], "replace");
    int64_t most = a->slot[2].kind == V_INT ? a->slot[2].i : -1, from = 0, hit;
    Str s = {0};
    if (tpl_is_given(a->slot[2]) && a->slot[2].kind != V_INT) return tpl_fail(r, "replace() needs an integer as count");
    if (!tpl_charge_bytes(r, t.n)) return self;
    while (most != 0 && !r->failed && (hit = tpl_find(t, old, from)) >= 0) {
        /* an empty `old` stands before every character and at the end */
        int32_t c;
        int64_t step = old.n ? 0 : hit < t.n ? tpl_decode(t, hit, &c) : 1;
        tpl_put_text(r, &s, part(t, from, hit));
        tpl_put_text(r, &s, new);
        tpl_put_text(r, &s, part(t, hit, MIN2(hit + step, t.n)));
        from = hit + old.n + step;
        most--;
        tpl_charge(r, 1);
    }
    if (from < t.n) tpl_put_text(r, &s, part(t, from, t.n));
    return tpl_take(r, &s);
}

static Value str_join(Render *r, Value self, const Args *a) {
    Str s = {0};
    Iter it;
    Value v;
    if (!tpl_iter(r, &it, a->slot[0])) return self;
    for (bool first = true; tpl_next(r, &it, &v); first = false) {
        if (!first) tpl_put_text(r, &s, self.text);
        tpl_put_text(r, &s, need_text(r, v, "join"));
    }
    return tpl_take(r, &s);
}

/* ---- lists and dictionaries ---- */

static Value seq_count(Render *r, Value self, const Args *a) {
    int64_t n = 0;
    for (int64_t i = 0; i < self.seq->n && tpl_charge(r, 1); i++) n += tpl_equal(r, self.seq->at[i], a->slot[0]);
    return tpl_int(n);
}

static Value seq_index(Render *r, Value self, const Args *a) {
    for (int64_t i = 0; i < self.seq->n && tpl_charge(r, 1); i++)
        if (tpl_equal(r, self.seq->at[i], a->slot[0])) return tpl_int(i);
    return tpl_fail(r, "index(): the value is not there");
}

/* Nothing can change a list or dictionary, so a copy is the thing itself. */
static Value copy(Render *r, Value self, const Args *a) { return self; }

static Value dict_get(Render *r, Value self, const Args *a) {
    Value v = a->slot[1].kind == V_ABSENT ? tpl_none() : a->slot[1];
    if (!tpl_hashable(r, a->slot[0])) return tpl_fail(r, "get(): a %s is no key", tpl_type_name(a->slot[0].kind));
    tpl_dict_get(r, self.dict, a->slot[0], &v);
    return v;
}

static Value dict_items(Render *r, Value self, const Args *a) { return tpl_dict_view(r, self.dict, V_ITEMS); }
static Value dict_keys(Render *r, Value self, const Args *a) { return tpl_dict_view(r, self.dict, V_KEYS); }
static Value dict_values(Render *r, Value self, const Args *a) { return tpl_dict_view(r, self.dict, V_VALUES); }

static const Builtin str_methods[] = {
    {"strip", "chars", 0, str_strip},
    {"lstrip", "chars", 0, str_lstrip},
    {"rstrip", "chars", 0, str_rstrip},
    {"split", "sep maxsplit", 0, str_split},
    {"rsplit", "sep maxsplit", 0, str_rsplit},
    {"splitlines", "keepends", 0, str_splitlines},
    {"partition", "sep", 1, str_partition},
    {"rpartition", "sep", 1, str_rpartition},
    {"removeprefix", "prefix", 1, str_removeprefix},
    {"removesuffix", "suffix", 1, str_removesuffix},
    {"replace", "old new count", 2, str_replace},
    {"startswith", "prefix start end", 1, str_startswith},
    {"endswith", "suffix start end", 1, str_endswith},
    {"find", "sub start end", 1, str_find},
    {"rfind", "sub start end", 1, str_rfind},
    {"index", "sub start end", 1, str_index},
    {"count", "sub start end", 1, str_count},
    {"join", "iterable", 1, str_join},
    {"upper", "", 0, str_upper},
    {"lower", "", 0, str_lower},
    {"title", "", 0, str_title},
    {"capitalize", "", 0, str_capitalize},
    {"isupper", "", 0, str_isupper},
    {"islower", "", 0, str_islower},
    {"isdigit", "", 0, str_isdigit},
    {"isalpha", "", 0, str_isalpha},
    {"isalnum", "", 0, str_isalnum},
    {"isspace", "", 0, str_isspace},
};

static const Builtin seq_methods[] = {{"count", "value", 1, seq_count}, {"index", "value", 1, seq_index}};
static const Builtin list_methods[] = {
    {"count", "value", 1, seq_count}, {"index", "value", 1, seq_index}, {"copy", "", 0, copy}};
static const Builtin dict_methods[] = {
    {"get", "key default", 1, dict_get}, {"items", "", 0, dict_items}, {"keys", "", 0, dict_keys},
    {"values", "", 0, dict_values},      {"copy", "", 0, copy},
};

/* Python has these too. They are named because an attribute hides a key: d.update is never d['update']. */
static const char *const str_others[] = {"casefold",    "center",   "encode",    "expandtabs",   "format",
                                         "format_map",  "isascii",  "isdecimal", "isidentifier", "isnumeric",
                                         "isprintable", "istitle",  "ljust",     "maketrans",    "rindex",
                                         "rjust",       "swapcase", "translate", "zfill"};
static const char *const dict_others[] = {"fromkeys"};
static const char *const list_changers[] = {"append", "clear", "pop",    "reverse",
                                            "insert", "sort",  "extend", "remove"};
static const char *const dict_changers[] = {"clear", "pop", "popitem", "setdefault", "update"};

static bool listed(const char *const *names, int n, Text name) {
    for (int i = 0; i < n; i++)
        if (tpl_text_is(name, names[i])) return true;
    return false;
}

const Builtin *tpl_row(const Builtin *table, int n, Text name) {
    for (int i = 0; i < n; i++)
        if (tpl_text_is(name, table[i].name)) return &table[i];
    return NULL;
}

static const Builtin *str_method(Text name) { return tpl_row(str_methods, COUNT_OF(str_methods), name); }

Value tpl_str_method(Render *r, Value self, const Args *a, const char *name) {
    Value text = tpl_to_string(r, self);
    return r->failed ? self : str_method(tpl_text(name))->fn(r, text, a);
}

Value tpl_bind_method(Render *r, const Builtin *b, Text name, Value self) {
    Method *m = tpl_alloc(r, sizeof *m);
    m->self = tpl_alloc(r, sizeof *m->self);
    *m->self = self;
    m->builtin = b;
    m->name = name;
    return (Value){.kind = V_METHOD, .method = m};
}

bool tpl_find_method(Render *r, Value self, Text name, Value *v) {
    const Builtin *b = NULL;
    bool other = false, changes = name.n > 2 && tpl_text_equal(part(name, 0, 2), TEXT("__"));
    if (self.kind == V_TEXT) {
        b = str_method(name);
        other = listed(str_others, COUNT_OF(str_others), name);
    } else if (self.kind == V_LIST) {
        b = tpl_row(list_methods, COUNT_OF(list_methods), name);
        changes |= listed(list_changers, COUNT_OF(list_changers), name);
    } else if (self.kind == V_TUPLE || self.kind == V_RANGE) {
        b = tpl_row(seq_methods, COUNT_OF(seq_methods), name);
    } else if (self.kind == V_DICT) {
        b = tpl_row(dict_methods, COUNT_OF(dict_methods), name);
        other = listed(dict_others, COUNT_OF(dict_others), name);
        changes |= listed(dict_changers, COUNT_OF(dict_changers), name);
    }
    if (changes) *v = tpl_undefined(WHY_UNSAFE, name);
    if (changes || (!b && !other)) return changes;
    *v = tpl_bind_method(r, b, name, self);
    return true;
}
