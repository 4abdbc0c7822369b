/* template_global.c - the functions a template may call without being given them. */
#include <time.h>

#include "data/template_int.h"

enum { RANGE_MOST = 100000 }; /* as the reference's sandbox */

static void add_keywords(Render *r, Dict *d, const Args *a) {
    for (int i = 0; i < a->n_keywords && !r->failed; i++)
        tpl_dict_set(r, d, tpl_string(a->keyword[i].name), a->keyword[i].value);
}

/* namespace(...) and dict(...): a dictionary or pairs, then keywords. */
static Value make_dict(Render *r, const Args *a, ValueKind kind) {
    Value v = tpl_dict(r, kind), pair;
    Iter it;
    if (a->n > 1) return tpl_fail(r, "dict() and namespace() take one value besides keywords");
    if (a->n == 1) {
        Value from = a->at[0].kind == V_DICT ? tpl_dict_view(r, a->at[0].dict, V_ITEMS) : a->at[0];
        if (!tpl_iter(r, &it, from)) return v;
        while (tpl_next(r, &it, &pair)) {
            if (!tpl_is_seq(pair) || pair.seq->n != 2)
                return tpl_fail(r, "dict() needs pairs of a key and a value");
            tpl_dict_set(r, v.dict, pair.seq->at[0], pair.seq->at[1]);
        }
    }
    add_keywords(r, v.dict, a);
    return v;
}

static Value global_dict(Render *r, Value self, const Args *a) { return make_dict(r, a, V_DICT); }
static Value global_namespace(Render *r, Value self, const Args *a) { return make_dict(r, a, V_SPACE); }

static Value global_range(Render *r, Value self, const Args *a) {
    Value v = tpl_seq(r, V_RANGE);
    int64_t part[3] = {0, 0, 1};
    for (int i = 0; i < 3; i++) {
        Value given = a->slot[i];
        if (given.kind == V_ABSENT) continue;
        if (given.kind != V_INT && given.kind != V_BOOL)
            return tpl_fail(r, "range() needs integers, not a %s", tpl_type_name(given.kind));
        part[i] = given.kind == V_INT ? given.i : given.b;
    }
    if (a->slot[1].kind == V_ABSENT) part[1] = part[0], part[0] = 0;
    if (part[2] == 0) return tpl_fail(r, "range() needs a step that is not zero");
    for (int64_t i = part[0]; part[2] > 0 ? i < part[1] : i > part[1];) {
        if (v.seq->n == RANGE_MOST) return tpl_fail(r, "range() gives no more than %d numbers", RANGE_MOST);
        tpl_add(r, v.seq, tpl_int(i));
        if (!tpl_charge(r, 1) || __builtin_add_overflow(i, part[2], &i)) break;
    }
    return v;
}

static Value global_raise(Render *r, Value self, const Args *a) {
    Text message = tpl_to_string(r, a->slot[0]).text;
    return tpl_fail(r, "%.*s", (int)MIN2(message.n, 800), message.p);
}

static Value global_strftime_now(Render *r, Value self, const Args *a) {
    char text[1024];
    time_t now = time(NULL);
    struct tm local;
    if (a->slot[0].kind != V_TEXT) return tpl_fail(r, "strftime_now() needs a format");
    /* a letter in front tells an empty result from one that does not fit */
    Value format = tpl_binary(r, T_ADD, tpl_string(TEXT("x")), a->slot[0]);
    format = tpl_binary(r, T_ADD, format, tpl_string(TEXT("\0")));
    if (r->failed) return format;
    if (!localtime_r(&now, &local)) return tpl_fail(r, "strftime_now(): the system has no local time");
    size_t n = strftime(text, sizeof text, format.text.p, &local);
    if (!n) return tpl_fail(r, "strftime_now(): the result is longer than %d bytes", (int)sizeof text);
    Str s = {0};
    tpl_put(r, &s, text + 1, (int64_t)n - 1);
    return tpl_take(r, &s);
}

static const Builtin globals[] = {
    {"namespace", "*", 0, global_namespace},
    {"dict", "*", 0, global_dict},
    {"range", "start stop step", 1, global_range},
    {"raise_exception", "message", 1, global_raise},
    {"strftime_now", "format", 1, global_strftime_now},
};

/* One method per global, so that a value can point at it. */
static const Method methods[] = {
    {.builtin = &globals[0]}, {.builtin = &globals[1]}, {.builtin = &globals[2]},
    {.builtin = &globals[3]}, {.builtin = &globals[4]},
};
_Static_assert(sizeof methods / sizeof *methods == sizeof globals / sizeof *globals, "a method for every global");

bool tpl_find_global(Text name, Value *v) {
    const Builtin *b = tpl_row(globals, COUNT_OF(globals), name);
    if (!b) return false;
    *v = (Value){.kind = V_FUNCTION, .method = &methods[b - globals]};
    return true;
}
