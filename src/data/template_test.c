/* template_test.c - what may stand after 'is'. */
#include "data/template_int.h"

static Value test_defined(Render *r, Value v, const Args *a) { return tpl_bool(v.kind != V_UNDEFINED); }
static Value test_undefined(Render *r, Value v, const Args *a) { return tpl_bool(v.kind == V_UNDEFINED); }
static Value test_none(Render *r, Value v, const Args *a) { return tpl_bool(v.kind == V_NONE); }
static Value test_boolean(Render *r, Value v, const Args *a) { return tpl_bool(v.kind == V_BOOL); }
static Value test_true(Render *r, Value v, const Args *a) { return tpl_bool(v.kind == V_BOOL && v.b); }
static Value test_false(Render *r, Value v, const Args *a) { return tpl_bool(v.kind == V_BOOL && !v.b); }
static Value test_integer(Render *r, Value v, const Args *a) { return tpl_bool(v.kind == V_INT); }
static Value test_float(Render *r, Value v, const Args *a) { return tpl_bool(v.kind == V_FLOAT); }
static Value test_number(Render *r, Value v, const Args *a) { return tpl_bool(tpl_is_number(v)); }
static Value test_string(Render *r, Value v, const Args *a) { return tpl_bool(v.kind == V_TEXT); }
static Value test_mapping(Render *r, Value v, const Args *a) { return tpl_bool(v.kind == V_DICT); }

/* What has a length and can be indexed: a dictionary is one too, and so is what is undefined. */
static Value test_sequence(Render *r, Value v, const Args *a) {
    return tpl_bool(v.kind == V_TEXT || v.kind == V_LIST || v.kind == V_TUPLE || v.kind == V_RANGE ||
                    v.kind == V_DICT || v.kind == V_UNDEFINED);
}

static Value test_iterable(Render *r, Value v, const Args *a) {
    return tpl_bool(tpl_iterable(v) || v.kind == V_LOOP);
}

static Value test_callable(Render *r, Value v, const Args *a) {
    return tpl_bool(v.kind == V_MACRO || v.kind == V_FUNCTION || v.kind == V_METHOD || v.kind == V_UNDEFINED);
}

static Value test_lower(Render *r, Value v, const Args *a) { return tpl_str_method(r, v, a, "islower"); }
static Value test_upper(Render *r, Value v, const Args *a) { return tpl_str_method(r, v, a, "isupper"); }

static Value rest_is(Render *r, Value v, Value divisor, int64_t rest) {
    return tpl_bool(tpl_equal(r, tpl_binary(r, T_MOD, v, divisor), tpl_int(rest)));
}

static Value test_even(Render *r, Value v, const Args *a) { return rest_is(r, v, tpl_int(2), 0); }
static Value test_odd(Render *r, Value v, const Args *a) { return rest_is(r, v, tpl_int(2), 1); }
static Value test_divisibleby(Render *r, Value v, const Args *a) { return rest_is(r, v, a->slot[0], 0); }

static Value test_eq(Render *r, Value v, const Args *a) { return tpl_bool(tpl_equal(r, v, a->slot[0])); }
static Value test_ne(Render *r, Value v, const Args *a) { return tpl_bool(!tpl_equal(r, v, a->slot[0])); }
static Value test_lt(Render *r, Value v, const Args *a) { return tpl_bool(tpl_order(r, v, a->slot[0]) < 0); }
static Value test_le(Render *r, Value v, const Args *a) { return tpl_bool(tpl_order(r, v, a->slot[0]) <= 0); }
static Value test_gt(Render *r, Value v, const Args *a) { return tpl_bool(tpl_order(r, v, a->slot[0]) > 0); }
static Value test_ge(Render *r, Value v, const Args *a) { return tpl_bool(tpl_order(r, v, a->slot[0]) >= 0); }
static Value test_in(Render *r, Value v, const Args *a) { return tpl_bool(tpl_contains(r, a->slot[0], v)); }

/* The same object; for what is small enough to have no identity, the same type and value. */
static Value test_sameas(Render *r, Value v, const Args *a) {
    Value other = a->slot[0];
    if (v.kind != other.kind) return tpl_bool(false);
    if (v.kind == V_DICT || v.kind == V_SPACE) return tpl_bool(v.dict == other.dict);
    return tpl_bool(tpl_is_seq(v) ? v.seq == other.seq : tpl_equal(r, v, other));
}

static const Builtin tests[] = {
    {"defined", "", 0, test_defined},
    {"undefined", "", 0, test_undefined},
    {"none", "", 0, test_none},
    {"boolean", "", 0, test_boolean},
    {"true", "", 0, test_true},
    {"false", "", 0, test_false},
    {"integer", "", 0, test_integer},
    {"float", "", 0, test_float},
    {"number", "", 0, test_number},
    {"string", "", 0, test_string},
    {"mapping", "", 0, test_mapping},
    {"sequence", "", 0, test_sequence},
    {"iterable", "", 0, test_iterable},
    {"callable", "", 0, test_callable},
    {"lower", "", 0, test_lower},
    {"upper", "", 0, test_upper},
    {"even", "", 0, test_even},
    {"odd", "", 0, test_odd},
    {"divisibleby", "num", 1, test_divisibleby},
    {"sameas", "other", 1, test_sameas},
    {"in", "seq", 1, test_in},
    {"eq", "other", 1, test_eq},
    {"equalto", "other", 1, test_eq},
    {"==", "other", 1, test_eq},
    {"ne", "other", 1, test_ne},
    {"!=", "other", 1, test_ne},
    {"lt", "other", 1, test_lt},
    {"lessthan", "other", 1, test_lt},
    {"<", "other", 1, test_lt},
    {"le", "other", 1, test_le},
    {"<=", "other", 1, test_le},
    {"gt", "other", 1, test_gt},
    {"greaterthan", "other", 1, test_gt},
    {">", "other", 1, test_gt},
    {"ge", "other", 1, test_ge},
    {">=", "other", 1, test_ge},
};

const Builtin *tpl_find_test(Text name) { return tpl_row(tests, COUNT_OF(tests), name); }
