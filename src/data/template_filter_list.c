/* template_filter_list.c - the filters that pick from, order or rebuild a sequence.
 *
 * What Python computes item by item (map, select, unique, ...) is computed at once here and handed out as a
 * generator: it has no length and can be gone through once. */
#include <string.h>

#include "data/template_int.h"

/* item.a.0.b for the path "a.0.b"; `otherwise` stands in for what is undefined on the way, when given. */
static Value follow(Render *r, Value item, Value path, Value otherwise) {
    if (!tpl_is_given(path)) return item;
    if (path.kind != V_TEXT) return tpl_get_item(r, item, path);
    for (int64_t at = 0; at <= path.text.n && !r->failed;) {
        int64_t dot = tpl_find(path.text, TEXT("."), at), end = dot < 0 ? path.text.n : dot, number = 0;
        Text name = {path.text.p + at, end - at};
        bool digits = name.n > 0 && name.n < 10;
        for (int64_t i = 0; i < name.n && digits; i++) {
            digits = name.p[i] >= '0' && name.p[i] <= '9';
            number = number * 10 + (name.p[i] - '0');
        }
        item = tpl_get_item(r, item, digits ? tpl_int(number) : tpl_string(name));
        if (item.kind == V_UNDEFINED && tpl_is_given(otherwise)) item = otherwise;
        at = end + 1;
    }
    return item;
}

static Value ignore_case(Render *r, Value v, bool case_sensitive) {
    return v.kind == V_TEXT && !case_sensitive ? tpl_case(r, v.text, 'l') : v;
}

static Value collect(Render *r, Value over, ValueKind kind) {
    Value out = tpl_seq(r, kind), v;
    Iter it;
    if (!tpl_iter(r, &it, over)) return out;
    while (tpl_next(r, &it, &v)) tpl_add(r, out.seq, v);
    return out;
}

/* ---- picking ---- */

static Value filter_list(Render *r, Value self, const Args *a) { return collect(r, self, V_LIST); }

static Value filter_first(Render *r, Value self, const Args *a) {
    Iter it;
    Value v;
    if (self.kind == V_TEXT && self.text.n) return tpl_get_item(r, self, tpl_int(0));
    if (!tpl_iter(r, &it, self)) return self;
    return tpl_next(r, &it, &v) ? v
                                : tpl_undefined(WHY_HINT, TEXT("there is no first item, the sequence is empty"));
}

static Value filter_last(Render *r, Value self, const Args *a) {
    Iter it;
    if (self.kind == V_GENERATOR) return tpl_fail(r, "last: a generator has no end, put '|list' before it");
    if (self.kind == V_TEXT && self.text.n) return tpl_get_item(r, self, tpl_int(-1));
    if (!tpl_iter(r, &it, self)) return self;
    if (it.seq && it.seq->n) return it.seq->at[it.seq->n - 1];
    return tpl_undefined(WHY_HINT, TEXT("there is no last item, the sequence is empty"));
}

static Value filter_reverse(Render *r, Value self, const Args *a) {
    if (self.kind == V_TEXT)
        return tpl_slice(r, self, (Value){.kind = V_ABSENT}, (Value){.kind = V_ABSENT}, tpl_int(-1));
    Value v = collect(r, self, self.kind == V_GENERATOR ? V_LIST : V_GENERATOR);
    for (int64_t i = 0, j = v.seq->n - 1; i < j; i++, j--) {
        Value swap = v.seq->at[i];
        v.seq->at[i] = v.seq->at[j];
        v.seq->at[j] = swap;
    }
    return v;
}

static Value filter_items(Render *r, Value self, const Args *a) {
    if (self.kind == V_UNDEFINED) return tpl_seq(r, V_GENERATOR);
    if (self.kind != V_DICT) return tpl_fail(r, "items: needs a dictionary, not a %s", tpl_type_name(self.kind));
    Value v = tpl_dict_view(r, self.dict, V_ITEMS);
    v.kind = V_GENERATOR;
    return v;
}

/* ---- map, select, reject ---- */

static Args after(const Args *a, int n) {
    Args rest = *a;
    rest.at += MIN2(n, a->n);
    rest.n = MAX2(a->n - n, 0);
    return rest;
}

/* The name of a filter or test, given as an argument. */
static const Builtin *named(Render *r, Value name, const Builtin *(*find)(Text), const char *what) {
    const Builtin *b = name.kind == V_TEXT ? find(name.text) : NULL;
    if (b) return b;
    Text t = tpl_to_string(r, name).text;
    tpl_fail(r, "the %s '%.*s' does not exist or is not supported", what, (int)MIN2(t.n, 80), t.p);
    return NULL;
}

static Value filter_map(Render *r, Value self, const Args *a) {
    Value out = tpl_seq(r, V_GENERATOR), v, path = {.kind = V_ABSENT}, otherwise = {.kind = V_ABSENT};
    const Builtin *b = NULL;
    Args rest = after(a, 1);
    Iter it;
    if (!tpl_truth(self)) return out;
    for (int i = 0; i < a->n_keywords && a->n == 0; i++) {
        Keyword k = a->keyword[i];
        if (tpl_text_is(k.name, "attribute"))
            path = k.value;
        else if (tpl_text_is(k.name, "default"))
            otherwise = k.value;
        else
            return tpl_fail(r, "map: unknown keyword '%.*s'", (int)k.name.n, k.name.p);
    }
    if (path.kind == V_ABSENT) {
        if (a->n == 0) return tpl_fail(r, "map: needs the name of a filter, or attribute=");
        if (!(b = named(r, a->at[0], tpl_find_filter, "filter"))) return out;
    }
    if (!tpl_iter(r, &it, self)) return out;
    while (tpl_next(r, &it, &v))
        tpl_add(r, out.seq, b ? tpl_invoke(r, b, "filter", v, &rest) : follow(r, v, path, otherwise));
    return out;
}

static Value select_items(Render *r, Value self, const Args *a, bool wanted, bool of_attribute) {
    Value out = tpl_seq(r, V_GENERATOR), v, path = {.kind = V_ABSENT};
    const Builtin *test = NULL;
    Args rest = after(a, of_attribute ? 2 : 1);
    Iter it;
    if (!tpl_truth(self)) return out;
    if (of_attribute && a->n == 0) return tpl_fail(r, "selectattr and rejectattr need the name of an attribute");
    if (of_attribute) path = a->at[0];
    if (a->n > of_attribute && !(test = named(r, a->at[of_attribute], tpl_find_test, "test"))) return out;
    if (!tpl_iter(r, &it, self)) return out;
    while (tpl_next(r, &it, &v)) {
        Value asked = follow(r, v, path, (Value){.kind = V_ABSENT});
        if (test && !r->failed) asked = tpl_invoke(r, test, "test", asked, &rest);
        if (!r->failed && tpl_truth(asked) == wanted) tpl_add(r, out.seq, v);
    }
    return out;
}

static Value filter_select(Render *r, Value self, const Args *a) { return select_items(r, self, a, true, false); }
static Value filter_reject(Render *r, Value self, const Args *a) { return select_items(r, self, a, false, false); }
static Value filter_selectattr(Render *r, Value self, const Args *a) {
    return select_items(r, self, a, true, true);
}
static Value filter_rejectattr(Render *r, Value self, const Args *a) {
    return select_items(r, self, a, false, true);
}

/* ---- ordering ---- */

/* Merges order[from..middle) and order[middle..to) by their keys; equal keys keep their order, also in reverse. */
static void merge(Render *r, const Value *keys, int64_t *order, int64_t *spare, const int64_t cut[3],
                  bool reverse) {
    int64_t i = cut[0], j = cut[1], n = cut[0];
    while (i < cut[1] || j < cut[2]) {
        bool right = i >= cut[1];
        if (!right && j < cut[2]) {
            int c = tpl_charge(r, 1) ? tpl_order(r, keys[order[j]], keys[order[i]]) : 0;
            right = reverse ? c > 0 : c < 0;
        }
        spare[n++] = order[right ? j++ : i++];
    }
    memcpy(order + cut[0], spare + cut[0], (size_t)(cut[2] - cut[0]) * sizeof *order);
}

/* The items in the order of their keys, as a list. */
static Value sorted(Render *r, const Seq *items, const Seq *keys, bool reverse) {
    int64_t n = items->n;
    Value out = tpl_seq(r, V_LIST);
    int64_t *order = (int64_t *)tpl_bytes(r, n * 2 * (int64_t)sizeof *order);
    if (!order || keys->n != n) return out;
    for (int64_t i = 0; i < n; i++) order[i] = i;
    for (int64_t width = 1; width < n; width *= 2)
        for (int64_t from = 0; from + width < n && !r->failed; from += 2 * width)
            merge(r, keys->at, order, order + n, (int64_t[]){from, from + width, MIN2(from + 2 * width, n)},
                  reverse);
    for (int64_t i = 0; i < n && !r->failed; i++) tpl_add(r, out.seq, items->at[order[i]]);
    return out;
}

/* A sort key: one value per attribute of a list such as "age,name". */
static Value sort_key(Render *r, Value item, Value attributes, bool case_sensitive) {
    Value key = tpl_seq(r, V_LIST), none = {.kind = V_ABSENT};
    bool many = attributes.kind == V_TEXT;
    for (int64_t at = 0, end; at == 0 || (many && at <= attributes.text.n); at = end + 1) {
        Value path = attributes;
        end = 0;
        if (many) {
            int64_t comma = tpl_find(attributes.text, TEXT(","), at);
            end = comma < 0 ? attributes.text.n : comma;
            path = tpl_string((Text){attributes.text.p + at, end - at});
        }
        tpl_add(r, key.seq, ignore_case(r, follow(r, item, path, none), case_sensitive));
        if (r->failed || !many) break;
    }
    return key;
}

static Value filter_sort(Render *r, Value self, const Args *a) {
    Value items = collect(r, self, V_LIST), keys = tpl_seq(r, V_LIST);
    for (int64_t i = 0; i < items.seq->n && tpl_charge(r, 1); i++)
        tpl_add(r, keys.seq, sort_key(r, items.seq->at[i], a->slot[2], tpl_truth(a->slot[1])));
    return r->failed ? self : sorted(r, items.seq, keys.seq, tpl_truth(a->slot[0]));
}

static Value filter_dictsort(Render *r, Value self, const Args *a) {
    Text by = a->slot[1].kind == V_TEXT ? a->slot[1].text : TEXT("key");
    Value keys = tpl_seq(r, V_LIST);
    bool by_value = tpl_text_is(by, "value");
    if (self.kind != V_DICT)
        return tpl_fail(r, "dictsort: needs a dictionary, not a %s", tpl_type_name(self.kind));
    if (!by_value && !tpl_text_is(by, "key")) return tpl_fail(r, "dictsort: sorts by 'key' or 'value'");
    for (int64_t i = 0; i < self.dict->n && tpl_charge(r, 1); i++) {
        const Pair *p = &self.dict->at[i];
        tpl_add(r, keys.seq, ignore_case(r, by_value ? p->value : p->key, tpl_truth(a->slot[0])));
    }
    Value items = tpl_dict_view(r, self.dict, V_ITEMS);
    return r->failed ? self : sorted(r, items.seq, keys.seq, tpl_truth(a->slot[2]));
}

static Value extreme(Render *r, Value self, const Args *a, int direction) {
    Value v, best = tpl_undefined(WHY_HINT, TEXT("the sequence is empty")), best_key = {.kind = V_ABSENT};
    Iter it;
    if (!tpl_iter(r, &it, self)) return self;
    while (tpl_next(r, &it, &v)) {
        Value key = follow(r, v, a->slot[1], (Value){.kind = V_ABSENT});
        key = ignore_case(r, key, tpl_truth(a->slot[0]));
        if (best_key.kind != V_ABSENT && tpl_order(r, key, best_key) != direction) continue;
        best = v;
        best_key = key;
    }
    return best;
}

static Value filter_min(Render *r, Value self, const Args *a) { return extreme(r, self, a, -1); }
static Value filter_max(Render *r, Value self, const Args *a) { return extreme(r, self, a, 1); }

static Value filter_unique(Render *r, Value self, const Args *a) {
    Value out = tpl_seq(r, V_GENERATOR), seen = tpl_dict(r, V_DICT), v, before;
    Iter it;
    if (!tpl_iter(r, &it, self)) return out;
    while (tpl_next(r, &it, &v)) {
        Value key = follow(r, v, a->slot[1], (Value){.kind = V_ABSENT});
        key = ignore_case(r, key, tpl_truth(a->slot[0]));
        if (tpl_dict_get(r, seen.dict, key, &before)) continue;
        tpl_dict_set(r, seen.dict, key, v);
        tpl_add(r, out.seq, v);
    }
    return out;
}

/* ---- putting together ---- */

static Value filter_join(Render *r, Value self, const Args *a) {
    Text between = a->slot[0].kind == V_ABSENT ? TEXT("") : tpl_to_string(r, a->slot[0]).text;
    Str s = {0};
    Iter it;
    Value v;
    if (!tpl_iter(r, &it, self)) return self;
    for (bool first = true; tpl_next(r, &it, &v); first = false) {
        if (!first) tpl_put_text(r, &s, between);
        v = follow(r, v, a->slot[1], (Value){.kind = V_ABSENT});
        if (!r->failed) tpl_print(r, &s, v);
    }
    return tpl_take(r, &s);
}

static Value filter_sum(Render *r, Value self, const Args *a) {
    Value total = a->slot[1].kind == V_ABSENT ? tpl_int(0) : a->slot[1], v;
    Iter it;
    if (total.kind == V_TEXT) return tpl_fail(r, "sum: strings are joined, not summed");
    if (!tpl_iter(r, &it, self)) return self;
    while (tpl_next(r, &it, &v))
        total = tpl_binary(r, T_ADD, total, follow(r, v, a->slot[0], (Value){.kind = V_ABSENT}));
    return total;
}

static const Builtin filters[] = {
    {"dictsort", "case_sensitive by reverse", 0, filter_dictsort},
    {"first", "", 0, filter_first},
    {"items", "", 0, filter_items},
    {"join", "d attribute", 0, filter_join},
    {"last", "", 0, filter_last},
    {"list", "", 0, filter_list},
    {"map", "*", 0, filter_map},
    {"max", "case_sensitive attribute", 0, filter_max},
    {"min", "case_sensitive attribute", 0, filter_min},
    {"reject", "*", 0, filter_reject},
    {"rejectattr", "*", 0, filter_rejectattr},
    {"reverse", "", 0, filter_reverse},
    {"select", "*", 0, filter_select},
    {"selectattr", "*", 0, filter_selectattr},
    {"sort", "reverse case_sensitive attribute", 0, filter_sort},
    {"sum", "attribute start", 0, filter_sum},
    {"unique", "case_sensitive attribute", 0, filter_unique},
};

const Builtin *tpl_find_list_filter(Text name) { return tpl_row(filters, COUNT_OF(filters), name); }
