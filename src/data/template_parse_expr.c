/* template_parse_expr.c - what binds tighter than what in an expression.
 *
 *     a if b else c < or < and < not < comparisons, in < + - < ~ < * / // % < ** < unary < . [] () < | is
 *
 * Comparisons chain as in Python; every other binary operator groups from the left, ** too. */
#include <string.h>

#include "data/template_int.h"

static Node *parse_primary(Parser *p);

static Node *binary(Parser *p, TokenKind op, Node *a, Node *b, int line) {
    Node *n = tpl_node(p, N_BINARY);
    n->op = op;
    n->a = a;
    n->b = b;
    n->line = line;
    return n;
}

static Node *wrap(Parser *p, NodeKind kind, Node *a) {
    Node *n = tpl_node(p, kind);
    n->a = a;
    return n;
}

/* Inside brackets that were opened: steps over the comma after `before`, or over the end. */
static bool at_element(Parser *p, const Node *before, TokenKind end) {
    if (p->failed || tpl_accept(p, end)) return false;
    return !before || (tpl_expect(p, T_COMMA) && !tpl_accept(p, end));
}

/* name=value or value, between brackets that the caller has opened. */
static Node *parse_args(Parser *p) {
    Node *first = NULL, **last = &first;
    bool keywords = false;
    while (at_element(p, first, T_RPAREN)) {
        Node *arg = tpl_node(p, N_ARG);
        if (p->at->kind == T_MUL || p->at->kind == T_POW) {
            tpl_parse_fail(p, p->at->line, "'*' and '**' arguments are not supported");
        } else if (p->at->kind == T_NAME && p->at[1].kind == T_ASSIGN) {
            keywords = true;
            arg->name = p->at->text;
            p->at += 2;
        } else if (keywords) {
            tpl_parse_fail(p, p->at->line, "a positional argument follows a keyword argument");
        }
        arg->a = tpl_parse_expression(p, true);
        *last = arg;
        last = &arg->next;
    }
    return first;
}

static Node *parse_dotted(Parser *p, NodeKind kind, Node *input) {
    Node *n = wrap(p, kind, input);
    n->name = tpl_parse_name(p);
    n->builtin = kind == N_FILTER ? tpl_find_filter(n->name) : tpl_find_test(n->name);
    if (!n->builtin && !p->unknown) p->unknown = n;
    if (p->at->kind == T_DOT) tpl_parse_fail(p, p->at->line, "a dotted filter or test name is not supported");
    return n;
}

Node *tpl_parse_filters(Parser *p, Node *input, bool first_is_bare) {
    while (!p->failed && (first_is_bare || tpl_accept(p, T_PIPE))) {
        first_is_bare = false;
        input = parse_dotted(p, N_FILTER, input);
        if (tpl_accept(p, T_LPAREN)) input->list = parse_args(p);
    }
    return input;
}

static Node *parse_postfix(Parser *p, Node *n);

static Node *parse_test(Parser *p, Node *input) {
    bool negated = tpl_accept_name(p, "not");
    Node *n = parse_dotted(p, N_TEST, input);
    TokenKind k = p->at->kind;
    bool literal = k == T_STRING || k == T_INT || k == T_FLOAT || k == T_LBRACKET || k == T_LBRACE;
    bool word = k == T_NAME && !tpl_at_name(p, "else") && !tpl_at_name(p, "or") && !tpl_at_name(p, "and");
    if (tpl_accept(p, T_LPAREN)) {
        n->list = parse_args(p);
    } else if (word && tpl_at_name(p, "is")) {
        tpl_parse_fail(p, p->at->line, "tests cannot be chained with 'is'");
    } else if (literal || word) {
        n->list = tpl_node(p, N_ARG);
        n->list->a = parse_postfix(p, parse_primary(p));
    }
    return negated ? wrap(p, N_NOT, n) : n;
}

/* [b] or [b:c:d] after the opening bracket. */
static Node *parse_subscript(Parser *p, Node *of) {
    Node *n = wrap(p, N_ITEM, of), **part[3] = {&n->b, &n->c, &n->d};
    for (int i = 0; i < 3; i++) {
        if (p->at->kind != T_COLON && p->at->kind != T_RBRACKET) *part[i] = tpl_parse_expression(p, true);
        if (i == 2 || !tpl_accept(p, T_COLON)) break;
        n->kind = N_SLICE;
    }
    if (n->kind == N_ITEM && !n->b) tpl_parse_fail(p, p->at->line, "an index is missing between '[' and ']'");
    tpl_expect(p, T_RBRACKET);
    return n;
}

static Node *parse_attribute(Parser *p, Node *of) {
    Node *n = wrap(p, N_ATTR, of);
    if (p->at->kind == T_INT) {
        n->kind = N_ITEM;
        n->b = parse_primary(p);
    } else {
        n->name = tpl_parse_name(p);
    }
    return n;
}

static Node *parse_call(Parser *p, Node *callee) {
    Node *n = wrap(p, N_CALL, callee);
    n->list = parse_args(p);
    return n;
}

static Node *parse_postfix(Parser *p, Node *n) {
    while (!p->failed) {
        if (tpl_accept(p, T_DOT))
            n = parse_attribute(p, n);
        else if (tpl_accept(p, T_LBRACKET))
            n = parse_subscript(p, n);
        else if (tpl_accept(p, T_LPAREN))
            n = parse_call(p, n);
        else
            break;
    }
    return n;
}

static Node *parse_list(Parser *p) {
    Node *n = tpl_node(p, N_LIST), **last = &n->list;
    while (at_element(p, n->list, T_RBRACKET)) {
        *last = wrap(p, N_ARG, tpl_parse_expression(p, true));
        last = &(*last)->next;
    }
    return n;
}

static Node *parse_dict(Parser *p) {
    Node *n = tpl_node(p, N_DICT), **last = &n->list;
    while (at_element(p, n->list, T_RBRACE)) {
        *last = wrap(p, N_PAIR, tpl_parse_expression(p, true));
        tpl_expect(p, T_COLON);
        (*last)->b = tpl_parse_expression(p, true);
        last = &(*last)->next;
    }
    return n;
}

/* Neighbouring strings are one string. */
static Value parse_strings(Parser *p) {
    Text t = p->at++->text;
    while (p->at->kind == T_STRING) {
        Text more = p->at++->text;
        char *joined = arena_alloc(p->arena, t.n + more.n);
        if (t.n) memcpy(joined, t.p, (size_t)t.n);
        if (more.n) memcpy(joined + t.n, more.p, (size_t)more.n);
        t = (Text){joined, t.n + more.n};
    }
    return tpl_string(t);
}

static Node *parse_name(Parser *p) {
    Node *n = tpl_node(p, N_CONST);
    Text t = p->at++->text;
    if (tpl_text_is(t, "true") || tpl_text_is(t, "True")) {
        n->value = tpl_bool(true);
    } else if (tpl_text_is(t, "false") || tpl_text_is(t, "False")) {
        n->value = tpl_bool(false);
    } else if (tpl_text_is(t, "none") || tpl_text_is(t, "None")) {
        n->value = tpl_none();
    } else {
        n->kind = N_NAME;
        n->name = t;
        if (p->macros && (tpl_text_is(t, "varargs") || tpl_text_is(t, "kwargs")))
            tpl_parse_fail(p, n->line, "'%.*s' in a macro is not supported", (int)t.n, t.p);
    }
    return n;
}

static Node *parse_primary(Parser *p) {
    Node *n = tpl_node(p, N_CONST);
    switch (p->at->kind) {
    case T_NAME: return parse_name(p);
    case T_STRING: n->value = parse_strings(p); break;
    case T_INT: n->value = tpl_int(p->at++->i); break;
    case T_FLOAT: n->value = tpl_float(p->at++->f); break;
    case T_LPAREN:
        p->at++;
        n = tpl_parse_tuple(p, true, true);
        tpl_expect(p, T_RPAREN);
        break;
    case T_LBRACKET: p->at++; return parse_list(p);
    case T_LBRACE: p->at++; return parse_dict(p);
    default:
        tpl_parse_fail(p, p->at->line, "unexpected '%.*s' where a value should stand",
                       (int)MIN2(p->at->text.n, 80), p->at->text.p);
    }
    return n;
}

static Node *parse_signed(Parser *p) {
    TokenKind k = p->at->kind;
    if (k != T_SUB && k != T_ADD) return parse_postfix(p, parse_primary(p));
    Node *n = tpl_node(p, k == T_SUB ? N_NEG : N_POS);
    p->at++;
    if (!tpl_parse_enter(p)) return n;
    n->a = parse_signed(p);
    p->depth--;
    return parse_postfix(p, n);
}

static Node *parse_unary(Parser *p) {
    Node *n = parse_signed(p);
    while (!p->failed) {
        if (p->at->kind == T_PIPE)
            n = tpl_parse_filters(p, n, false);
        else if (tpl_accept_name(p, "is"))
            n = parse_test(p, n);
        else if (tpl_accept(p, T_LPAREN))
            n = parse_call(p, n);
        else
            break;
    }
    return n;
}

static Node *parse_power(Parser *p) {
    Node *left = parse_unary(p);
    while (p->at->kind == T_POW) {
        int line = p->at->line;
        p->at++;
        left = binary(p, T_POW, left, parse_unary(p), line);
    }
    return left;
}

static Node *parse_product(Parser *p) {
    Node *left = parse_power(p);
    for (TokenKind k = p->at->kind; k == T_MUL || k == T_DIV || k == T_FLOORDIV || k == T_MOD; k = p->at->kind) {
        int line = p->at->line;
        p->at++;
        left = binary(p, k, left, parse_power(p), line);
    }
    return left;
}

static Node *parse_concat(Parser *p) {
    Node *first = parse_product(p);
    if (p->at->kind != T_TILDE) return first;
    Node *n = tpl_node(p, N_CONCAT), **last = &n->list;
    *last = wrap(p, N_ARG, first);
    while (tpl_accept(p, T_TILDE)) {
        last = &(*last)->next;
        *last = wrap(p, N_ARG, parse_product(p));
    }
    return n;
}

static Node *parse_sum(Parser *p) {
    Node *left = parse_concat(p);
    while (p->at->kind == T_ADD || p->at->kind == T_SUB) {
        const Token *op = p->at++;
        left = binary(p, op->kind, left, parse_concat(p), op->line);
    }
    return left;
}

static bool accept_comparison(Parser *p, TokenKind *op) {
    static const TokenKind signs[] = {T_EQ, T_NE, T_LT, T_LE, T_GT, T_GE};
    for (int i = 0; i < COUNT_OF(signs); i++)
        if (tpl_accept(p, *op = signs[i])) return true;
    if (tpl_at_name(p, "not") && p->at[1].kind == T_NAME && tpl_text_is(p->at[1].text, "in")) {
        p->at += 2;
        *op = T_NOT_IN;
        return true;
    }
    *op = T_IN;
    return tpl_accept_name(p, "in");
}

static Node *parse_comparison(Parser *p) {
    Node *first = parse_sum(p), *n = NULL, **last = NULL;
    TokenKind op;
    while (!p->failed && accept_comparison(p, &op)) {
        if (!n) {
            n = wrap(p, N_COMPARE, first);
            last = &n->list;
        }
        *last = tpl_node(p, N_OPERAND);
        (*last)->op = op;
        (*last)->a = parse_sum(p);
        last = &(*last)->next;
    }
    return n ? n : first;
}

static Node *parse_not(Parser *p) {
    if (!tpl_accept_name(p, "not")) return parse_comparison(p);
    Node *n = tpl_node(p, N_NOT);
    if (!tpl_parse_enter(p)) return n;
    n->a = parse_not(p);
    p->depth--;
    return n;
}

static Node *parse_and(Parser *p) {
    Node *left = parse_not(p);
    for (int line = p->at->line; tpl_accept_name(p, "and"); line = p->at->line)
        left = binary(p, T_AND, left, parse_not(p), line);
    return left;
}

static Node *parse_or(Parser *p) {
    Node *left = parse_and(p);
    for (int line = p->at->line; tpl_accept_name(p, "or"); line = p->at->line)
        left = binary(p, T_OR, left, parse_and(p), line);
    return left;
}

/* A filter that does not exist is an error of the whole template, unless a condition guards it. */
Node *tpl_parse_expression(Parser *p, bool with_condition) {
    Node *n = tpl_node(p, N_COND);
    if (!tpl_parse_enter(p)) return n;
    const Node *unknown = p->unknown;
    Node *value = parse_or(p);
    while (with_condition && !p->failed && tpl_accept_name(p, "if")) {
        n = wrap(p, N_COND, value);
        n->b = parse_or(p);
        if (tpl_accept_name(p, "else")) n->c = tpl_parse_expression(p, true);
        value = n;
        p->unknown = unknown;
    }
    p->depth--;
    return value;
}

Node *tpl_parse_tuple(Parser *p, bool with_condition, bool empty_is_fine) {
    Node *n = tpl_node(p, N_TUPLE), **last = &n->list;
    bool comma = false;
    while (!p->failed) {
        TokenKind k = p->at->kind;
        if (k == T_VAR_END || k == T_BLOCK_END || k == T_RPAREN) break;
        *last = wrap(p, N_ARG, tpl_parse_expression(p, with_condition));
        last = &(*last)->next;
        if (!tpl_accept(p, T_COMMA)) break;
        comma = true;
    }
    if (!n->list && !empty_is_fine) tpl_parse_fail(p, p->at->line, "an expression is missing");
    return n->list && !comma ? n->list->a : n;
}
