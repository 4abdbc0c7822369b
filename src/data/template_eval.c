/* template_eval.c - what an expression is worth: operators, indexes, slices, attributes and calls. */
#include <math.h>
#include <string.h>

#include "data/template_int.h"

/* ---- arithmetic ---- */

static double as_float(Value v) { return v.kind == V_FLOAT ? v.f : (double)tpl_as_int(v); }

static Value overflow(Render *r) { return tpl_fail(r, "an integer of more than 64 bits is not supported"); }

static Value integer_power(Render *r, int64_t a, int64_t n) {
    int64_t result = 1;
    if (n < 0) return a ? tpl_float(pow((double)a, (double)n)) : tpl_fail(r, "0 has no negative power");
    for (; n; n >>= 1) {
        if ((n & 1) && __builtin_mul_overflow(result, a, &result)) return overflow(r);
        if (n > 1 && __builtin_mul_overflow(a, a, &a)) return overflow(r);
    }
    return tpl_int(result);
}

static Value integers(Render *r, TokenKind op, int64_t a, int64_t b) {
    int64_t c = 0;
    bool too_big = false;
    if (b == 0 && (op == T_DIV || op == T_FLOORDIV || op == T_MOD)) return tpl_fail(r, "division by zero");
    if (b == -1 && (op == T_FLOORDIV || op == T_MOD)) { /* the one quotient that overflows */
        too_big = op == T_FLOORDIV && __builtin_sub_overflow((int64_t)0, a, &c);
        return too_big ? overflow(r) : tpl_int(c);
    }
    switch (op) {
    case T_ADD: too_big = __builtin_add_overflow(a, b, &c); break;
    case T_SUB: too_big = __builtin_sub_overflow(a, b, &c); break;
    case T_MUL: too_big = __builtin_mul_overflow(a, b, &c); break;
    case T_DIV: return tpl_float((double)a / (double)b);
    case T_FLOORDIV: c = a / b - (a % b != 0 && (a < 0) != (b < 0)); break;
    case T_MOD: c = a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0); break;
    default: return integer_power(r, a, b);
    }
    return too_big ? overflow(r) : tpl_int(c);
}

/* Quotient and remainder take the sign of the divisor. */
static Value float_division(TokenKind op, double a, double b) {
    double rest = fmod(a, b), quotient = (a - rest) / b;
    if (rest != 0 && (b < 0) != (rest < 0)) rest += b, quotient -= 1;
    if (rest == 0) rest = copysign(0, b);
    if (op == T_MOD) return tpl_float(rest);
    double whole = quotient == 0 ? copysign(0, a / b) : floor(quotient);
    return tpl_float(quotient - whole > 0.5 ? whole + 1 : whole);
}

static Value floats(Render *r, TokenKind op, double a, double b) {
    if (b == 0 && (op == T_DIV || op == T_FLOORDIV || op == T_MOD)) return tpl_fail(r, "division by zero");
    switch (op) {
    case T_ADD: return tpl_float(a + b);
    case T_SUB: return tpl_float(a - b);
    case T_MUL: return tpl_float(a * b);
    case T_DIV: return tpl_float(a / b);
    case T_FLOORDIV:
    case T_MOD: return float_division(op, a, b);
    default: break;
    }
    if ((a == 0 && b < 0) || (a < 0 && b != floor(b))) return tpl_fail(r, "this power is not a real number");
    double c = pow(a, b);
    return isinf(c) && !isinf(a) && !isinf(b) ? tpl_fail(r, "a power is too large") : tpl_float(c);
}

static Value concat_texts(Render *r, Text a, Text b) {
    char *p = tpl_bytes(r, a.n + b.n);
    if (!p) return tpl_none();
    if (a.n) memcpy(p, a.p, (size_t)a.n);
    if (b.n) memcpy(p + a.n, b.p, (size_t)b.n);
    return tpl_string((Text){p, a.n + b.n});
}

static Value concat_seqs(Render *r, Value a, Value b) {
    Value v = tpl_seq(r, a.kind);
    for (int64_t i = 0; i < a.seq->n && tpl_charge(r, 1); i++) tpl_add(r, v.seq, a.seq->at[i]);
    for (int64_t i = 0; i < b.seq->n && tpl_charge(r, 1); i++) tpl_add(r, v.seq, b.seq->at[i]);
    return v;
}

static Value repeat(Render *r, Value v, int64_t times) {
    times = MAX2(times, 0);
    if (v.kind == V_TEXT) {
        Str s = {0};
        for (int64_t i = 0; v.text.n && i < times && tpl_charge(r, 1); i++) tpl_put_text(r, &s, v.text);
        return tpl_take(r, &s);
    }
    Value out = tpl_seq(r, v.kind);
    for (int64_t i = 0; v.seq->n && i < times && !r->failed; i++)
        for (int64_t j = 0; j < v.seq->n && tpl_charge(r, 1); j++) tpl_add(r, out.seq, v.seq->at[j]);
    return out;
}

static bool repeatable(Value v) { return v.kind == V_TEXT || v.kind == V_LIST || v.kind == V_TUPLE; }
static bool whole(Value v) { return v.kind == V_INT || v.kind == V_BOOL; }

Value tpl_binary(Render *r, TokenKind op, Value a, Value b) {
    static const char *const signs[] = {[T_ADD] = "+", [T_SUB] = "-", [T_MUL] = "*",  [T_DIV] = "/",
                                        [T_MOD] = "%", [T_POW] = "**", [T_FLOORDIV] = "//"};
    if (r->failed) return a;
    if (a.kind == V_TEXT && op == T_MOD) return tpl_percent(r, a.text, b);
    if (a.kind == V_UNDEFINED || b.kind == V_UNDEFINED)
        return tpl_fail_undefined(r, a.kind == V_UNDEFINED ? a : b);
    if (whole(a) && whole(b)) return integers(r, op, tpl_as_int(a), tpl_as_int(b));
    if (tpl_is_number(a) && tpl_is_number(b)) return floats(r, op, as_float(a), as_float(b));
    if (op == T_ADD && a.kind == V_TEXT && b.kind == V_TEXT) return concat_texts(r, a.text, b.text);
    if (op == T_ADD && a.kind == b.kind && (a.kind == V_LIST || a.kind == V_TUPLE)) return concat_seqs(r, a, b);
    if (op == T_MUL && repeatable(a) && whole(b)) return repeat(r, a, tpl_as_int(b));
    if (op == T_MUL && repeatable(b) && whole(a)) return repeat(r, b, tpl_as_int(a));
    return tpl_fail(r, "'%s' cannot be applied to a %s and a %s", signs[op], tpl_type_name(a.kind),
                    tpl_type_name(b.kind));
}

static Value eval_sign(Render *r, Value v, bool negative) {
    if (v.kind == V_UNDEFINED) return tpl_fail_undefined(r, v);
    if (v.kind == V_FLOAT) return tpl_float(negative ? -v.f : v.f);
    if (!whole(v)) return tpl_fail(r, "a %s has no sign", tpl_type_name(v.kind));
    return integers(r, negative ? T_SUB : T_ADD, 0, tpl_as_int(v));
}

/* ---- comparisons ---- */

static bool compare(Render *r, TokenKind op, Value a, Value b) {
    switch (op) {
    case T_EQ: return tpl_equal(r, a, b);
    case T_NE: return !tpl_equal(r, a, b);
    case T_IN: return tpl_contains(r, b, a);
    case T_NOT_IN: return !tpl_contains(r, b, a);
    default: break;
    }
    bool nan = (a.kind == V_FLOAT && isnan(a.f)) || (b.kind == V_FLOAT && isnan(b.f));
    int c = tpl_order(r, a, b);
    return !nan && (op == T_LT ? c < 0 : op == T_LE ? c <= 0 : op == T_GT ? c > 0 : c >= 0);
}

static Value eval_compare(Render *r, Scope *s, const Node *n) {
    Value left = tpl_eval(r, s, n->a);
    bool holds = true;
    for (const Node *o = n->list; o && holds && !r->failed; o = o->next) {
        Value right = tpl_eval(r, s, o->a);
        holds = !r->failed && compare(r, o->op, left, right);
        left = right;
    }
    return tpl_bool(holds);
}

/* ---- items and attributes ---- */

/* A slice border as Python clamps it; what: its value when absent. */
static int64_t border(Render *r, Value v, int64_t n, int64_t step, int64_t absent) {
    if (v.kind == V_ABSENT || v.kind == V_NONE) return absent;
    if (!whole(v)) {
        tpl_fail(r, "a slice index is a %s, not an integer", tpl_type_name(v.kind));
        return 0;
    }
    int64_t i = tpl_as_int(v);
    if (i < 0) i += n;
    return i < 0 ? (step < 0 ? -1 : 0) : i >= n ? (step < 0 ? n - 1 : n) : i;
}

static Value slice_text(Render *r, Text t, int64_t start, int64_t stop, int64_t step) {
    if (step == 1) {
        int64_t from = tpl_offset(t, start), n = tpl_offset((Text){t.p + from, t.n - from}, stop - start);
        return tpl_string((Text){t.p + from, MAX2(n, 0)});
    }
    Str s = {0};
    Iter it;
    if (!tpl_iter(r, &it, tpl_string(t))) return tpl_none();
    for (int64_t i = start; !r->failed && (step > 0 ? i < stop : i > stop); i += step)
        tpl_put_text(r, &s, it.seq->at[i].text);
    return tpl_take(r, &s);
}

Value tpl_slice(Render *r, Value v, Value start, Value stop, Value step) {
    if (v.kind == V_UNDEFINED) return tpl_fail_undefined(r, v);
    if (v.kind != V_TEXT && v.kind != V_LIST && v.kind != V_TUPLE && v.kind != V_RANGE)
        return tpl_fail(r, "a %s cannot be sliced", tpl_type_name(v.kind));
    if (!tpl_charge_bytes(r, v.kind == V_TEXT ? v.text.n * 2 : 0)) return v;
    int64_t n = tpl_length(v);
    int64_t by = step.kind == V_ABSENT || step.kind == V_NONE ? 1 : whole(step) ? tpl_as_int(step) : 0;
    if (by == 0) return tpl_fail(r, "a slice step is zero or not an integer");
    by = MAX2(MIN2(by, n + 1), -n - 1); /* one step past the end is as good as more, and cannot overflow */
    int64_t from = border(r, start, n, by, by > 0 ? 0 : n - 1), to = border(r, stop, n, by, by > 0 ? n : -1);
    if (r->failed) return v;
    if (v.kind == V_TEXT) return slice_text(r, v.text, from, to, by);
    Value out = tpl_seq(r, v.kind);
    for (int64_t i = from; (by > 0 ? i < to : i > to) && tpl_charge(r, 1); i += by)
        tpl_add(r, out.seq, v.seq->at[i]);
    return out;
}

/* v[key] where Python would find one; false: KeyError, IndexError or TypeError. */
static bool subscript(Render *r, Value v, Value key, Value *out) {
    if (v.kind == V_DICT) return tpl_hashable(r, key) && tpl_dict_get(r, v.dict, key, out);
    if (!whole(key)) return false;
    int64_t i = tpl_as_int(key);
    if (v.kind == V_TEXT) {
        if (!tpl_charge_bytes(r, v.text.n * 2)) return false;
        int64_t n = tpl_points(v.text);
        if (i < 0) i += n;
        if (i < 0 || i >= n) return false;
        *out = slice_text(r, v.text, i, i + 1, 1);
        return true;
    }
    if (v.kind != V_LIST && v.kind != V_TUPLE && v.kind != V_RANGE) return false;
    if (i < 0) i += v.seq->n;
    if (i < 0 || i >= v.seq->n) return false;
    *out = v.seq->at[i];
    return true;
}

static bool attribute(Render *r, Value v, Text name, Value *out) {
    if (v.kind == V_SPACE) return tpl_dict_get(r, v.dict, tpl_string(name), out);
    if (v.kind == V_LOOP) {
        *out = tpl_loop_attribute(r, v.loop, name);
        return true;
    }
    if (v.kind == V_MACRO && tpl_text_is(name, "name")) {
        *out = tpl_string(v.macro->node->name);
        return true;
    }
    return tpl_find_method(r, v, name, out);
}

static Value get_attribute(Render *r, Value v, Text name) {
    Value out;
    if (r->failed) return v;
    if (v.kind == V_UNDEFINED) return tpl_fail_undefined(r, v);
    if (attribute(r, v, name, &out) || subscript(r, v, tpl_string(name), &out)) return out;
    return tpl_undefined(WHY_ATTRIBUTE + (int)v.kind, name);
}

Value tpl_get_item(Render *r, Value v, Value key) {
    Value out;
    if (r->failed) return v;
    if (v.kind == V_UNDEFINED) return tpl_fail_undefined(r, v);
    if (subscript(r, v, key, &out) || (key.kind == V_TEXT && attribute(r, v, key.text, &out))) return out;
    return tpl_undefined(WHY_ATTRIBUTE + (int)v.kind, tpl_to_string(r, key).text);
}

static Value eval_slice(Render *r, Scope *s, const Node *n) {
    Value v = tpl_eval(r, s, n->a), part[3] = {{.kind = V_ABSENT}};
    const Node *border_nodes[3] = {n->b, n->c, n->d};
    for (int i = 0; i < 3; i++)
        part[i] = border_nodes[i] ? tpl_eval(r, s, border_nodes[i]) : (Value){.kind = V_ABSENT};
    return r->failed ? v : tpl_slice(r, v, part[0], part[1], part[2]);
}

/* ---- calls ---- */

void tpl_eval_args(Render *r, Scope *s, Args *a, const Node *list) {
    int n = 0, n_keywords = 0;
    for (const Node *arg = list; arg; arg = arg->next) arg->name.n ? n_keywords++ : n++;
    Value *at = tpl_alloc(r, n * (int64_t)sizeof *at);
    Keyword *keyword = tpl_alloc(r, n_keywords * (int64_t)sizeof *keyword);
    *a = (Args){.at = at, .keyword = keyword, .n = n, .n_keywords = n_keywords};
    for (const Node *arg = list; arg && !r->failed; arg = arg->next) {
        Value v = tpl_eval(r, s, arg->a);
        if (arg->name.n)
            *keyword++ = (Keyword){arg->name, v};
        else
            *at++ = v;
    }
}

static int param_index(const char *params, Text name) {
    for (int i = 0; *params; i++) {
        size_t n = strcspn(params, " ");
        if (tpl_text_equal((Text){params, (int64_t)n}, name)) return i;
        params += n + (params[n] == ' ');
    }
    return -1;
}

static int param_count(const char *params) {
    int n = *params != 0;
    for (; *params; params++) n += *params == ' ';
    return n;
}

/* Every argument to its parameter. */
static bool bind(Render *r, const Builtin *b, const char *what, Args *a) {
    int n = param_count(b->params);
    CHECK(n <= TPL_PARAMS);
    for (int i = 0; i < TPL_PARAMS; i++) a->slot[i] = (Value){.kind = V_ABSENT};
    if (a->n > n) tpl_fail(r, "%s '%s' takes %d arguments, not %d", what, b->name, n, a->n);
    for (int i = 0; i < a->n && i < n; i++) a->slot[i] = a->at[i];
    for (int i = 0; i < a->n_keywords; i++) {
        Text name = a->keyword[i].name;
        int at = param_index(b->params, name);
        if (at >= 0 && a->slot[at].kind == V_ABSENT)
            a->slot[at] = a->keyword[i].value;
        else
            tpl_fail(r, "%s '%s' has no argument '%.*s', or has it twice", what, b->name, (int)name.n, name.p);
    }
    for (int i = 0; i < b->required; i++)
        if (a->slot[i].kind == V_ABSENT) tpl_fail(r, "%s '%s' needs %d arguments", what, b->name, b->required);
    return !r->failed;
}

Value tpl_invoke(Render *r, const Builtin *b, const char *what, Value self, const Args *a) {
    Args bound = *a;
    if (!tpl_charge(r, 1)) return self;
    if (b->params[0] != '*' && !bind(r, b, what, &bound)) return self;
    return b->fn(r, self, &bound);
}

Value tpl_call(Render *r, Value callee, const Args *a) {
    if (r->failed) return callee;
    if (callee.kind == V_UNDEFINED) return tpl_fail_undefined(r, callee);
    if (callee.kind == V_MACRO) return tpl_call_macro(r, callee.macro, a);
    if (callee.kind != V_FUNCTION && callee.kind != V_METHOD)
        return tpl_fail(r, "a %s cannot be called", tpl_type_name(callee.kind));
    const Method *m = callee.method;
    if (!m->builtin)
        return tpl_fail(r, "the method '%.*s' of a %s is not supported", (int)m->name.n, m->name.p,
                        tpl_type_name(m->self->kind));
    return tpl_invoke(r, m->builtin, tpl_type_name(callee.kind), m->self ? *m->self : tpl_none(), a);
}

static Value eval_call(Render *r, Scope *s, const Node *n) {
    Args a;
    Value callee = tpl_eval(r, s, n->a);
    tpl_eval_args(r, s, &a, n->list);
    r->line = n->line;
    return r->failed ? callee : tpl_call(r, callee, &a);
}

static Value eval_builtin(Render *r, Scope *s, const Node *n) {
    Args a;
    const char *what = n->kind == N_FILTER ? "filter" : "test";
    Value self = tpl_eval(r, s, n->a);
    tpl_eval_args(r, s, &a, n->list);
    r->line = n->line;
    if (r->failed) return self;
    if (!n->builtin)
        return tpl_fail(r, "the %s '%.*s' does not exist or is not supported", what, (int)n->name.n, n->name.p);
    return tpl_invoke(r, n->builtin, what, self, &a);
}

/* ---- the rest ---- */

static const json_t *variable(const Render *r, Text name) { /* json_object_getn came with jansson 2.14 */
    json_t *vars = (json_t *)r->vars; /* iterators want a pointer that is not const; they write nothing */
    for (void *it = json_object_iter(vars); it; it = json_object_iter_next(vars, it)) {
        const char *key = json_object_iter_key(it);
        if (tpl_text_equal((Text){key, (int64_t)strlen(key)}, name)) return json_object_iter_value(it);
    }
    return NULL;
}

static Value lookup(Render *r, Scope *s, Text name) {
    Value v;
    int64_t passed = 0;
    for (; s; s = s->parent) {
        for (Binding *b = s->first; b; b = b->next, passed++)
            if (tpl_text_equal(b->name, name)) return tpl_charge(r, passed / 16) ? b->value : tpl_none();
    }
    const json_t *j = variable(r, name);
    if (j) {
        v = tpl_from_json(r, j);
        tpl_bind_name(r, &r->context, name, v);
        return v;
    }
    return tpl_find_global(name, &v) ? v : tpl_undefined(WHY_NAME, name);
}

static Value eval_seq(Render *r, Scope *s, const Node *n) {
    Value v = tpl_seq(r, n->kind == N_LIST ? V_LIST : V_TUPLE);
    for (const Node *each = n->list; each && !r->failed; each = each->next)
        tpl_add(r, v.seq, tpl_eval(r, s, each->a));
    return v;
}

static Value eval_dict(Render *r, Scope *s, const Node *n) {
    Value v = tpl_dict(r, V_DICT);
    for (const Node *pair = n->list; pair && !r->failed; pair = pair->next) {
        Value key = tpl_eval(r, s, pair->a), value = tpl_eval(r, s, pair->b);
        if (!r->failed) tpl_dict_set(r, v.dict, key, value);
    }
    return v;
}

static Value eval_concat(Render *r, Scope *s, const Node *n) {
    Str text = {0};
    for (const Node *each = n->list; each && !r->failed; each = each->next) {
        Value v = tpl_eval(r, s, each->a);
        if (!r->failed) tpl_print(r, &text, v);
    }
    return tpl_take(r, &text);
}

static Value eval_binary(Render *r, Scope *s, const Node *n) {
    Value a = tpl_eval(r, s, n->a);
    if (r->failed) return a;
    if (n->op == T_AND) return tpl_truth(a) ? tpl_eval(r, s, n->b) : a;
    if (n->op == T_OR) return tpl_truth(a) ? a : tpl_eval(r, s, n->b);
    Value b = tpl_eval(r, s, n->b);
    r->line = n->line;
    return tpl_binary(r, n->op, a, b);
}

static Value eval_condition(Render *r, Scope *s, const Node *n) {
    if (tpl_truth(tpl_eval(r, s, n->b))) return tpl_eval(r, s, n->a);
    if (n->c) return tpl_eval(r, s, n->c);
    return tpl_undefined(WHY_HINT, TEXT("an inline if without else was false"));
}

static Value eval_node(Render *r, Scope *s, const Node *n) {
    Value v;
    switch (n->kind) {
    case N_CONST: return n->value;
    case N_NAME: return lookup(r, s, n->name);
    case N_CAPTURED: return r->captured;
    case N_TUPLE:
    case N_LIST: return eval_seq(r, s, n);
    case N_DICT: return eval_dict(r, s, n);
    case N_NOT: return tpl_bool(!tpl_truth(tpl_eval(r, s, n->a)));
    case N_NEG:
    case N_POS: v = tpl_eval(r, s, n->a); return r->failed ? v : eval_sign(r, v, n->kind == N_NEG);
    case N_BINARY: return eval_binary(r, s, n);
    case N_CONCAT: return eval_concat(r, s, n);
    case N_COMPARE: return eval_compare(r, s, n);
    case N_COND: return eval_condition(r, s, n);
    case N_ATTR: v = tpl_eval(r, s, n->a); return get_attribute(r, v, n->name);
    case N_ITEM: v = tpl_eval(r, s, n->a); return tpl_get_item(r, v, tpl_eval(r, s, n->b));
    case N_SLICE: return eval_slice(r, s, n);
    case N_CALL: return eval_call(r, s, n);
    case N_FILTER:
    case N_TEST: return eval_builtin(r, s, n);
    default: CHECK_MSG(false, "node kind %d is not an expression", n->kind);
    }
    return tpl_none();
}

Value tpl_eval(Render *r, Scope *s, const Node *n) {
    if (!tpl_charge(r, 1) || !tpl_enter(r)) return tpl_none();
    r->line = n->line;
    Value v = eval_node(r, s, n);
    r->depth--;
    return v;
}
