/* template_parse.c - which tags exist, what stands between them, and which end tag closes which. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "data/template_int.h"

static Node *parse_body(Parser *p, const char *const *ends);

bool tpl_parse_fail(Parser *p, int line, const char *fmt, ...) {
    if (p->failed) return false;
    char text[600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    p->failed = true;
    p->at = &p->end;
    return fail(p->e, ERR_FAIL, "%s:%d: %s", p->template_name, line, text);
}

Node *tpl_node(Parser *p, NodeKind kind) {
    Node *n = ARENA_NEW(p->arena, Node, 1);
    n->kind = kind;
    n->line = p->at->line;
    return n;
}

bool tpl_accept(Parser *p, TokenKind kind) {
    if (p->at->kind != kind || kind == T_END) return false;
    p->at++;
    return true;
}

bool tpl_at_name(const Parser *p, const char *word) {
    return p->at->kind == T_NAME && tpl_text_is(p->at->text, word);
}

bool tpl_accept_name(Parser *p, const char *word) { return tpl_at_name(p, word) && tpl_accept(p, T_NAME); }

static const char *spelling(TokenKind kind) {
    switch (kind) {
    case T_NAME: return "a name";
    case T_VAR_END: return "'}}'";
    case T_BLOCK_END: return "'%}'";
    case T_COMMA: return "','";
    case T_COLON: return "':'";
    case T_ASSIGN: return "'='";
    case T_LPAREN: return "'('";
    case T_RPAREN: return "')'";
    case T_RBRACKET: return "']'";
    case T_RBRACE: return "'}'";
    default: return "something else";
    }
}

bool tpl_expect(Parser *p, TokenKind kind) {
    return tpl_accept(p, kind) || tpl_parse_fail(p, p->at->line, "%s is expected before '%.*s'", spelling(kind),
                                                 (int)MIN2(p->at->text.n, 80), p->at->text.p);
}

bool tpl_parse_enter(Parser *p) {
    if (p->failed) return false;
    if (p->depth >= TPL_PARSE_DEPTH) return tpl_parse_fail(p, p->at->line, "this is nested too deeply");
    p->depth++;
    return true;
}

Text tpl_parse_name(Parser *p) {
    Text name = p->at->text;
    return tpl_expect(p, T_NAME) ? name : TEXT("");
}

static void expect_name(Parser *p, const char *word) {
    if (!tpl_accept_name(p, word)) tpl_parse_fail(p, p->at->line, "'%s' is expected", word);
}

/* name, ns.name, (target) - what may stand left of '='. */
static Node *parse_one_target(Parser *p, bool attributes) {
    Node *n = tpl_node(p, N_NAME);
    static const char *const words[] = {"true", "false", "none", "True", "False", "None"};
    n->name = tpl_parse_name(p);
    for (int i = 0; i < COUNT_OF(words); i++)
        if (tpl_text_is(n->name, words[i])) tpl_parse_fail(p, n->line, "'%s' cannot be assigned to", words[i]);
    if (p->loops && tpl_text_is(n->name, "loop"))
        tpl_parse_fail(p, n->line, "'loop' cannot be assigned to inside a for block");
    if (!attributes || !tpl_accept(p, T_DOT)) return n;
    Node *of = n;
    n = tpl_node(p, N_ATTR);
    n->a = of;
    n->name = tpl_parse_name(p);
    return n;
}

static Node *parse_target(Parser *p, bool attributes) {
    Node *n = tpl_node(p, N_TUPLE), **last = &n->list;
    bool comma = false;
    if (!tpl_parse_enter(p)) return n;
    do {
        if (n->list && (p->at->kind == T_RPAREN || tpl_at_name(p, "in"))) break;
        *last = tpl_node(p, N_ARG);
        if (tpl_accept(p, T_LPAREN)) {
            (*last)->a = parse_target(p, false);
            tpl_expect(p, T_RPAREN);
        } else {
            (*last)->a = parse_one_target(p, attributes);
        }
        last = &(*last)->next;
        comma |= p->at->kind == T_COMMA;
    } while (tpl_accept(p, T_COMMA));
    p->depth--;
    return comma ? n : n->list->a;
}

/* The statements of a block up to one of its end tags; stands on the name of that tag afterwards. */
static Node *parse_block(Parser *p, const char *const *ends) {
    tpl_accept(p, T_COLON);
    tpl_expect(p, T_BLOCK_END);
    return parse_body(p, ends);
}

static Node *parse_block_to(Parser *p, const char *end) {
    Node *body = parse_block(p, (const char *const[]){end, NULL});
    expect_name(p, end);
    return body;
}

static Node *parse_for(Parser *p) {
    Node *n = tpl_node(p, N_FOR);
    p->loops++;
    n->a = parse_target(p, false);
    expect_name(p, "in");
    n->b = tpl_parse_tuple(p, false, false);
    if (tpl_accept_name(p, "if")) n->c = tpl_parse_expression(p, true);
    if (tpl_at_name(p, "recursive")) tpl_parse_fail(p, p->at->line, "recursive for blocks are not supported");
    n->list = parse_block(p, (const char *const[]){"endfor", "else", NULL});
    if (tpl_accept_name(p, "else")) {
        p->loops--;
        n->other = parse_block(p, (const char *const[]){"endfor", NULL});
        p->loops++;
    }
    expect_name(p, "endfor");
    p->loops--;
    return n;
}

static Node *parse_if(Parser *p) {
    Node *n = tpl_node(p, N_IF), **last = &n->list;
    const Node *unknown = p->unknown;
    bool more = true;
    while (more && !p->failed) {
        Node *branch = *last = tpl_node(p, N_BRANCH);
        last = &branch->next;
        branch->a = tpl_parse_tuple(p, false, false);
        branch->list = parse_block(p, (const char *const[]){"elif", "else", "endif", NULL});
        more = tpl_accept_name(p, "elif");
    }
    if (tpl_accept_name(p, "else")) {
        *last = tpl_node(p, N_BRANCH);
        (*last)->list = parse_block(p, (const char *const[]){"endif", NULL});
    }
    expect_name(p, "endif");
    p->unknown = unknown;
    return n;
}

static Node *parse_set(Parser *p) {
    Node *n = tpl_node(p, N_SET);
    n->a = parse_target(p, true);
    if (tpl_accept(p, T_ASSIGN)) {
        n->b = tpl_parse_tuple(p, true, false);
        return n;
    }
    n->kind = N_SET_BLOCK;
    if (p->at->kind == T_PIPE) n->b = tpl_parse_filters(p, tpl_node(p, N_CAPTURED), false);
    n->list = parse_block_to(p, "endset");
    return n;
}

static Node *parse_params(Parser *p) {
    Node *first = NULL, **last = &first;
    bool defaults = false;
    tpl_expect(p, T_LPAREN);
    while (!p->failed && !tpl_accept(p, T_RPAREN)) {
        if (first && !tpl_expect(p, T_COMMA)) break;
        Node *n = *last = tpl_node(p, N_PARAM);
        last = &n->next;
        n->name = tpl_parse_name(p);
        if (tpl_accept(p, T_ASSIGN)) {
            n->a = tpl_parse_expression(p, true);
            defaults = true;
        } else if (defaults) {
            tpl_parse_fail(p, n->line, "a parameter without a default follows one that has a default");
        }
    }
    return first;
}

/* The body of a macro or call block: a loop outside cannot be left from within. */
static Node *parse_macro_body(Parser *p, const char *end) {
    int loops = p->loops;
    p->loops = 0;
    p->macros++;
    Node *body = parse_block_to(p, end);
    p->macros--;
    p->loops = loops;
    return body;
}

static Node *parse_macro(Parser *p) {
    Node *n = tpl_node(p, N_MACRO);
    n->name = tpl_parse_name(p);
    n->other = parse_params(p);
    n->list = parse_macro_body(p, "endmacro");
    return n;
}

static Node *parse_call_block(Parser *p) {
    Node *n = tpl_node(p, N_CALL_BLOCK);
    n->name = TEXT("caller");
    if (p->at->kind == T_LPAREN) n->other = parse_params(p);
    n->a = tpl_parse_expression(p, true);
    if (!p->failed && n->a->kind != N_CALL) tpl_parse_fail(p, n->line, "'call' needs the call of a macro");
    n->list = parse_macro_body(p, "endcall");
    return n;
}

static Node *parse_filter_block(Parser *p) {
    Node *n = tpl_node(p, N_FILTER_BLOCK);
    n->a = tpl_parse_filters(p, tpl_node(p, N_CAPTURED), true);
    n->list = parse_block_to(p, "endfilter");
    return n;
}

static Node *parse_with(Parser *p) {
    Node *n = tpl_node(p, N_WITH), **last = &n->other;
    while (!p->failed && p->at->kind != T_BLOCK_END) {
        if (n->other && !tpl_expect(p, T_COMMA)) break;
        Node *set = *last = tpl_node(p, N_SET);
        last = &set->next;
        set->a = parse_one_target(p, false);
        tpl_expect(p, T_ASSIGN);
        set->b = tpl_parse_expression(p, true);
    }
    n->list = parse_block_to(p, "endwith");
    return n;
}

static Node *parse_generation(Parser *p) {
    Node *n = tpl_node(p, N_SCOPE);
    n->list = parse_macro_body(p, "endgeneration");
    return n;
}

static Node *parse_jump(Parser *p, NodeKind kind) {
    if (!p->loops) tpl_parse_fail(p, p->at->line, "break or continue outside a for block");
    return tpl_node(p, kind);
}

static Node *parse_break(Parser *p) { return parse_jump(p, N_BREAK); }
static Node *parse_continue(Parser *p) { return parse_jump(p, N_CONTINUE); }

static const struct Tag {
    const char *name;
    Node *(*parse)(Parser *p); /* NULL: known, not supported */
} tags[] = {
    {"for", parse_for},
    {"if", parse_if},
    {"set", parse_set},
    {"macro", parse_macro},
    {"call", parse_call_block},
    {"filter", parse_filter_block},
    {"with", parse_with},
    {"generation", parse_generation},
    {"break", parse_break},
    {"continue", parse_continue},
    {"block", NULL},
    {"extends", NULL},
    {"include", NULL},
    {"import", NULL},
    {"from", NULL},
    {"print", NULL},
    {"autoescape", NULL},
    {"do", NULL},
};

static Node *parse_tag(Parser *p, const char *const *ends) {
    Text name = p->at->text;
    int line = p->at->line;
    for (int i = 0; i < COUNT_OF(tags) && p->at->kind == T_NAME; i++) {
        if (!tpl_text_is(name, tags[i].name)) continue;
        if (tags[i].parse) {
            p->at++;
            return tags[i].parse(p);
        }
        tpl_parse_fail(p, line, "the tag '%s' is not supported in chat templates", tags[i].name);
        return NULL;
    }
    tpl_parse_fail(p, line, "unknown tag '%.*s'%s%s%s", (int)MIN2(name.n, 80), name.p, ends ? "; '" : "",
                   ends ? ends[0] : "", ends ? "' is expected" : "");
    return NULL;
}

static Node *parse_data(Parser *p) {
    Node *n = tpl_node(p, N_TEXT);
    n->value = tpl_string(p->at++->text);
    return n;
}

static Node *parse_variable(Parser *p) {
    Node *n = tpl_node(p, N_PRINT);
    p->at++;
    n->a = tpl_parse_tuple(p, true, false);
    tpl_expect(p, T_VAR_END);
    return n;
}

static bool at_one_of(const Parser *p, const char *const *words) {
    for (; words && *words; words++)
        if (tpl_at_name(p, *words)) return true;
    return false;
}

/* Statements until a tag that is one of `ends` (NULL: until the end of the template). */
static Node *parse_body(Parser *p, const char *const *ends) {
    Node *first = NULL, **last = &first;
    int line = p->at->line;
    if (!tpl_parse_enter(p)) return NULL;
    while (!p->failed && p->at->kind != T_END) {
        if (p->at->kind == T_DATA) {
            *last = parse_data(p);
        } else if (p->at->kind == T_VAR_BEGIN) {
            *last = parse_variable(p);
        } else {
            p->at++;
            if (at_one_of(p, ends)) {
                p->depth--;
                return first;
            }
            *last = parse_tag(p, ends);
            tpl_expect(p, T_BLOCK_END);
        }
        if (*last) last = &(*last)->next;
    }
    if (ends) tpl_parse_fail(p, line, "the block that begins here is never closed: '%s' is missing", ends[0]);
    p->depth--;
    return first;
}

Node *tpl_parse(Arena *arena, const Token *tokens, const char *name, Err *e) {
    Parser p = {.arena = arena, .at = tokens, .template_name = name, .e = e};
    p.end = (Token){.kind = T_END, .text = TEXT("end of template")};
    Node *root = tpl_node(&p, N_SCOPE);
    root->list = parse_body(&p, NULL);
    if (p.unknown)
        tpl_parse_fail(&p, p.unknown->line, "the %s '%.*s' does not exist or is not supported",
                       p.unknown->kind == N_FILTER ? "filter" : "test", (int)p.unknown->name.n, p.unknown->name.p);
    return p.failed ? NULL : root;
}
