/* template_exec.c - what a statement does: to the output, to names, and to the flow of a loop.
 *
 * Scopes as templates expect them: a for iteration, a macro call, a with, a generation block and a captured block
 * have their own names; an if has not. Assignment writes the innermost scope, reading looks outwards. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "data/template_int.h"

/* What a list of statements ended with. */
typedef enum Flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE } Flow;

/* A for block as it runs. The next item is taken only when somebody asks for it, so that a filter sees what the
 * iterations before it did. */
struct Loop {
    const Node *node;
    Scope *outside;
    Iter items;
    bool filtered, peeked, has_next;
    Value before, current, next;
    Value changed; /* arguments of the last loop.changed() */
    int64_t index0, length; /* length -1: not known yet */
};

static Flow run(Render *r, Scope *s, const Node *list);

/* ---- bounds and memory ---- */

Value tpl_fail(Render *r, const char *fmt, ...) {
    if (!r->failed) {
        char text[900];
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(text, sizeof text, fmt, ap);
        va_end(ap);
        fail(r->e, ERR_FAIL, "%s:%d: %s", r->t->name, r->line, text);
    }
    r->failed = true;
    return tpl_undefined(WHY_HINT, TEXT("a failure"));
}

Value tpl_fail_undefined(Render *r, Value v) {
    int n = (int)MIN2(v.text.n, 400);
    switch (v.why) {
    case WHY_NAME: return tpl_fail(r, "'%.*s' is undefined", n, v.text.p);
    case WHY_PARAMETER: return tpl_fail(r, "parameter '%.*s' was not provided", n, v.text.p);
    case WHY_HINT: return tpl_fail(r, "%.*s", n, v.text.p);
    case WHY_UNSAFE: return tpl_fail(r, "'%.*s' is not allowed in a chat template", n, v.text.p);
    default:
        return tpl_fail(r, "'%.*s' is not an attribute or item of this %s", n, v.text.p,
                        tpl_type_name(v.why - WHY_ATTRIBUTE));
    }
}

bool tpl_charge(Render *r, int64_t steps) {
    r->steps += steps;
    if (r->steps > TPL_STEPS) tpl_fail(r, "the template does not end within %d steps", TPL_STEPS);
    return !r->failed;
}

bool tpl_charge_bytes(Render *r, int64_t bytes) { return tpl_charge(r, bytes / TPL_STEP_BYTES); }

bool tpl_enter(Render *r) {
    if (r->depth >= TPL_DEPTH) tpl_fail(r, "values or calls are nested more than %d deep", TPL_DEPTH);
    if (r->failed) return false;
    r->depth++;
    return true;
}

void *tpl_alloc(Render *r, int64_t bytes) {
    if (r->arena.used_bytes > TPL_ARENA_BYTES)
        tpl_fail(r, "the template takes more than %d MiB", TPL_ARENA_BYTES >> 20);
    return arena_alloc(&r->arena, bytes);
}

char *tpl_bytes(Render *r, int64_t n) {
    if (n > TPL_ARENA_BYTES - r->arena.used_bytes)
        tpl_fail(r, "the template takes more than %d MiB", TPL_ARENA_BYTES >> 20);
    return tpl_charge_bytes(r, n) ? arena_alloc(&r->arena, n) : NULL;
}

void tpl_put(Render *r, Str *s, const char *p, int64_t n) {
    if (n > TPL_TEXT_BYTES - r->text_bytes)
        tpl_fail(r, "the template writes more than %d MiB", TPL_TEXT_BYTES >> 20);
    if (r->failed || n <= 0) return;
    str_add_bytes(s, p, n);
    r->text_bytes += n;
    r->steps += n / TPL_STEP_BYTES;
}

void tpl_put_text(Render *r, Str *s, Text t) { tpl_put(r, s, t.p, t.n); }

Value tpl_take(Render *r, Str *s) {
    char *p = s->len ? tpl_bytes(r, s->len) : NULL;
    Text t = {"", 0};
    if (p) t = (Text){memcpy(p, s->data, (size_t)s->len), s->len};
    r->text_bytes -= s->len;
    str_free(s);
    return tpl_string(t);
}

/* ---- names ---- */

void tpl_bind_name(Render *r, Scope *s, Text name, Value v) {
    for (Binding *b = s->first; b; b = b->next) {
        if (!tpl_text_equal(b->name, name)) continue;
        b->value = v;
        return;
    }
    Binding *b = tpl_alloc(r, sizeof *b);
    *b = (Binding){name, v, s->first};
    s->first = b;
}

static Scope *inner(Render *r, Scope *parent) {
    Scope *s = tpl_alloc(r, sizeof *s);
    s->parent = parent;
    return s;
}

static void assign(Render *r, Scope *s, const Node *target, Value v);

static void unpack(Render *r, Scope *s, const Node *target, Value v) {
    Iter it;
    Value each;
    if (!tpl_iter(r, &it, v)) return;
    for (const Node *n = target->list; n && !r->failed; n = n->next) {
        if (tpl_next(r, &it, &each))
            assign(r, s, n->a, each);
        else
            tpl_fail(r, "there are fewer values than names to unpack them into");
    }
    if (!r->failed && tpl_next(r, &it, &each)) tpl_fail(r, "there are more values than names to unpack them into");
}

static void assign(Render *r, Scope *s, const Node *target, Value v) {
    if (r->failed) return;
    if (target->kind == N_NAME) {
        tpl_bind_name(r, s, target->name, v);
    } else if (target->kind == N_TUPLE) {
        unpack(r, s, target, v);
    } else {
        Value space = tpl_eval(r, s, target->a);
        if (space.kind != V_SPACE)
            tpl_fail(r, "an attribute can be set on a namespace() only, not on a %s", tpl_type_name(space.kind));
        else
            tpl_dict_set(r, space.dict, tpl_string(target->name), v);
    }
}

/* The text a list of statements writes. */
static Value capture(Render *r, Scope *s, const Node *list, Flow *flow) {
    Str text = {0}, *out = r->out;
    r->out = &text;
    *flow = run(r, s, list);
    r->out = out;
    return tpl_take(r, &text);
}

/* ---- loops ---- */

static bool take_next(Render *r, Loop *l, Value *v) {
    while (tpl_next(r, &l->items, v)) {
        if (!l->filtered) return true;
        Scope *s = inner(r, l->outside);
        assign(r, s, l->node->a, *v);
        if (tpl_truth(tpl_eval(r, s, l->node->c))) return !r->failed;
    }
    return false;
}

static bool peek(Render *r, Loop *l) {
    if (!l->peeked) l->has_next = take_next(r, l, &l->next);
    l->peeked = true;
    return l->has_next;
}

/* A length that is not known before the end: read to the end, and go on from the list that was read. */
static int64_t loop_length(Render *r, Loop *l) {
    if (l->length >= 0) return l->length;
    Value rest = tpl_seq(r, V_LIST), v;
    while (take_next(r, l, &v)) tpl_add(r, rest.seq, v);
    l->length = l->index0 + 1 + (l->peeked && l->has_next) + rest.seq->n;
    l->items = (Iter){.seq = rest.seq};
    l->filtered = false;
    return l->length;
}

static Value loop_cycle(Render *r, Value self, const Args *a) {
    if (!a->n) return tpl_fail(r, "loop.cycle() needs a value");
    return a->at[self.loop->index0 % a->n];
}

static Value loop_changed(Render *r, Value self, const Args *a) {
    Value now = tpl_seq(r, V_TUPLE);
    for (int i = 0; i < a->n; i++) tpl_add(r, now.seq, a->at[i]);
    bool changed = self.loop->changed.kind == V_ABSENT || !tpl_equal(r, now, self.loop->changed);
    self.loop->changed = now;
    return tpl_bool(changed);
}

Value tpl_loop_attribute(Render *r, Loop *l, Text name) {
    static const Builtin methods[] = {{"cycle", "*", 0, loop_cycle}, {"changed", "*", 0, loop_changed}};
    if (tpl_text_is(name, "index")) return tpl_int(l->index0 + 1);
    if (tpl_text_is(name, "index0")) return tpl_int(l->index0);
    if (tpl_text_is(name, "first")) return tpl_bool(l->index0 == 0);
    if (tpl_text_is(name, "last")) return tpl_bool(!peek(r, l));
    if (tpl_text_is(name, "length")) return tpl_int(loop_length(r, l));
    if (tpl_text_is(name, "revindex")) return tpl_int(loop_length(r, l) - l->index0);
    if (tpl_text_is(name, "revindex0")) return tpl_int(loop_length(r, l) - l->index0 - 1);
    if (tpl_text_is(name, "depth")) return tpl_int(1);
    if (tpl_text_is(name, "depth0")) return tpl_int(0);
    if (tpl_text_is(name, "previtem"))
        return l->index0 ? l->before : tpl_undefined(WHY_HINT, TEXT("there is no previous item"));
    if (tpl_text_is(name, "nextitem"))
        return peek(r, l) ? l->next : tpl_undefined(WHY_HINT, TEXT("there is no next item"));
    const Builtin *b = tpl_row(methods, COUNT_OF(methods), name);
    if (!b) return tpl_undefined(WHY_ATTRIBUTE + V_LOOP, name);
    return tpl_bind_method(r, b, name, (Value){.kind = V_LOOP, .loop = l});
}

static Flow run_for(Render *r, Scope *s, const Node *n) {
    Loop *l = tpl_alloc(r, sizeof *l);
    Value over = tpl_eval(r, s, n->b);
    bool finished_one = false; /* as in the reference, only an iteration that reaches its end silences the else */
    *l = (Loop){.node = n, .outside = s, .filtered = n->c != NULL, .index0 = -1, .length = -1};
    if (r->failed || !tpl_iter(r, &l->items, over)) return FLOW_ON;
    if (!l->filtered && !l->items.shared) l->length = l->items.seq ? l->items.seq->n : 0;
    while (!r->failed && peek(r, l)) {
        l->before = l->current;
        l->current = l->next;
        l->peeked = false;
        l->index0++;
        Scope *each = inner(r, s);
        tpl_bind_name(r, each, TEXT("loop"), (Value){.kind = V_LOOP, .loop = l});
        assign(r, each, n->a, l->current);
        Flow flow = run(r, each, n->list);
        if (flow == FLOW_BREAK) break;
        if (flow == FLOW_ON) finished_one = true;
    }
    return finished_one || r->failed ? FLOW_ON : run(r, inner(r, s), n->other);
}

/* ---- other statements ---- */

static Flow run_if(Render *r, Scope *s, const Node *n) {
    for (const Node *branch = n->list; branch && !r->failed; branch = branch->next)
        if (!branch->a || tpl_truth(tpl_eval(r, s, branch->a)))
            return r->failed ? FLOW_ON : run(r, s, branch->list);
    return FLOW_ON;
}

/* The text of a block, through its filter (NULL: as it is). */
static Value captured_block(Render *r, Scope *s, const Node *list, const Node *filter, Flow *flow) {
    Scope *own = inner(r, s);
    Value text = capture(r, own, list, flow), outer = r->captured;
    if (*flow != FLOW_ON || !filter) return text;
    r->captured = text;
    text = tpl_eval(r, own, filter);
    r->captured = outer;
    return text;
}

static Value make_macro(Render *r, Scope *s, const Node *n) {
    Macro *m = tpl_alloc(r, sizeof *m);
    *m = (Macro){n, s};
    return (Value){.kind = V_MACRO, .macro = m};
}

static bool take_keyword(const Args *a, Text name, Value *v) {
    for (int i = 0; i < a->n_keywords; i++) {
        if (!tpl_text_equal(a->keyword[i].name, name)) continue;
        *v = a->keyword[i].value;
        return true;
    }
    return false;
}

Value tpl_call_macro(Render *r, Macro *m, const Args *a) {
    const Node *node = m->node;
    Scope *s = inner(r, m->scope);
    int position = 0, used = 0;
    Flow flow;
    Value v, caller = tpl_undefined(WHY_HINT, TEXT("no caller is defined"));
    if (!tpl_enter(r)) return tpl_none();
    used += take_keyword(a, TEXT("caller"), &caller);
    tpl_bind_name(r, s, TEXT("caller"), caller);
    for (const Node *p = node->other; p; p = p->next, position++) {
        if (position < a->n)
            v = a->at[position];
        else if (take_keyword(a, p->name, &v))
            used++;
        else
            v = p->a ? tpl_eval(r, s, p->a) : tpl_undefined(WHY_PARAMETER, p->name);
        tpl_bind_name(r, s, p->name, v);
    }
    if (position < a->n)
        tpl_fail(r, "macro '%.*s' takes no more than %d arguments", (int)node->name.n, node->name.p, position);
    if (used < a->n_keywords)
        tpl_fail(r, "macro '%.*s' is called with a keyword it does not have", (int)node->name.n, node->name.p);
    v = capture(r, s, node->list, &flow);
    r->depth--;
    return v;
}

/* {% call macro(...) %}: the block is a macro of its own, handed over as the keyword 'caller'. */
static void run_call_block(Render *r, Scope *s, const Node *n) {
    Args a;
    Value callee = tpl_eval(r, s, n->a->a);
    tpl_eval_args(r, s, &a, n->a->list);
    if (r->failed) return;
    Keyword *all = tpl_alloc(r, (a.n_keywords + 1) * (int64_t)sizeof *all);
    for (int i = 0; i < a.n_keywords; i++) all[i] = a.keyword[i];
    all[a.n_keywords++] = (Keyword){TEXT("caller"), make_macro(r, s, n)};
    a.keyword = all;
    tpl_print(r, r->out, tpl_call(r, callee, &a));
}

static Flow run_with(Render *r, Scope *s, const Node *n) {
    Scope *own = inner(r, s);
    for (const Node *set = n->other; set; set = set->next) assign(r, own, set->a, tpl_eval(r, s, set->b));
    return run(r, own, n->list);
}

static Flow run_one(Render *r, Scope *s, const Node *n) {
    Flow flow = FLOW_ON;
    Value v;
    switch (n->kind) {
    case N_TEXT: tpl_put_text(r, r->out, n->value.text); break;
    case N_PRINT:
        v = tpl_eval(r, s, n->a);
        if (!r->failed) tpl_print(r, r->out, v);
        break;
    case N_FOR: return run_for(r, s, n);
    case N_IF: return run_if(r, s, n);
    case N_SET: assign(r, s, n->a, tpl_eval(r, s, n->b)); break;
    case N_SET_BLOCK:
        v = captured_block(r, s, n->list, n->b, &flow);
        if (flow == FLOW_ON) assign(r, s, n->a, v);
        break;
    case N_FILTER_BLOCK:
        v = captured_block(r, s, n->list, n->a, &flow);
        if (flow == FLOW_ON && !r->failed) tpl_print(r, r->out, v);
        break;
    case N_MACRO: tpl_bind_name(r, s, n->name, make_macro(r, s, n)); break;
    case N_CALL_BLOCK: run_call_block(r, s, n); break;
    case N_WITH: return run_with(r, s, n);
    case N_SCOPE: return run(r, inner(r, s), n->list);
    case N_BREAK: return FLOW_BREAK;
    case N_CONTINUE: return FLOW_CONTINUE;
    default: CHECK_MSG(false, "node kind %d is not a statement", n->kind);
    }
    return flow;
}

static Flow run(Render *r, Scope *s, const Node *list) {
    Flow flow = FLOW_ON;
    if (!tpl_enter(r)) return FLOW_ON;
    for (const Node *n = list; n && flow == FLOW_ON && tpl_charge(r, 1); n = n->next) {
        r->line = n->line;
        flow = run_one(r, s, n);
    }
    r->depth--;
    return flow;
}

void tpl_exec(Render *r, Scope *s, const Node *list) { run(r, s, list); }
