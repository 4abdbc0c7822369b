/* template_int.h - what the files of the template engine share: tokens, nodes, values, and one render.
 *
 * The way of a template: source -> tokens (template_lex.c) -> nodes (template_parse*.c) -> text (template_exec.c
 * runs statements, template_eval.c computes expressions, and what has a name stands in
 * template_filter*.c, template_method.c, template_test.c and template_global.c).
 *
 * T1 a Template is never written after compiling; everything that changes lives in the Render of one call.
 * T2 errors stick: the first one is kept in the Render (or Parser), everything after it does nothing and returns
 *    quickly, so there is one place that reports and nothing to unwind.
 * T3 everything a render makes is in its arena; only growing text (Str) is on the heap, and the function that begins a
 *    Str ends it with tpl_take.
 * T4 every loop and every copy is paid for with tpl_charge, every nesting with tpl_enter, every byte with
 *    tpl_alloc, tpl_bytes or tpl_put. */
#ifndef DATA_TEMPLATE_INT_H
#define DATA_TEMPLATE_INT_H

#include "base/mem.h"
#include "data/template.h"

#ifdef FUZZING
enum { TPL_SHARE = 256 }; /* of the bounds: they are met within milliseconds */
#else
enum { TPL_SHARE = 1 };
#endif

enum {
    TPL_PARSE_DEPTH = 150,  /* nested brackets and blocks */
    TPL_DEPTH = 800,        /* nested evaluations, macro calls, and levels of a printed value */
    TPL_STEPS = 10000000 / TPL_SHARE, /* evaluated nodes; TPL_STEP_BYTES of copied or scanned text count as one */
    TPL_STEP_BYTES = 64,
    TPL_ARENA_BYTES = (256 << 20) / TPL_SHARE, /* values of one render */
    TPL_TEXT_BYTES = (128 << 20) / TPL_SHARE,  /* text under construction, the output included */
    TPL_PARAMS = 5,              /* most parameters of a builtin */
};

/* ---- text (template_text.c) ---- */

typedef struct Text { /* valid UTF-8, not terminated; borrows */
    const char *p;
    int64_t n;
} Text;

#define TEXT(literal) ((Text){(literal), (int64_t)sizeof(literal) - 1})
Text tpl_text(const char *s);
bool tpl_text_is(Text t, const char *s);
bool tpl_text_equal(Text a, Text b);
bool tpl_text_valid(Text t);              /* UTF-8 without surrogates */
int64_t tpl_points(Text t);               /* code points */
int64_t tpl_offset(Text t, int64_t points); /* byte offset of a code point, n when past the end */
int tpl_decode(Text t, int64_t at, int32_t *c); /* the code point at a byte offset; returns its length */
int tpl_encode(char to[4], int32_t c);
bool tpl_is_space(int32_t c);             /* as str.isspace */
bool tpl_is_printable(int32_t c);         /* as repr decides */
bool tpl_is_line_end(int32_t c);          /* as str.splitlines */
Text tpl_strip(Text t, const Text *chars, bool left, bool right); /* chars NULL: white space */
int64_t tpl_find(Text t, Text what, int64_t from); /* byte offset or -1 */

/* ---- tokens (template_lex.c) ---- */

typedef enum TokenKind {
    T_END, T_DATA, T_VAR_BEGIN, T_VAR_END, T_BLOCK_BEGIN, T_BLOCK_END, T_NAME, T_STRING, T_INT, T_FLOAT,
    T_POW, T_FLOORDIV, T_EQ, T_NE, T_GE, T_LE, /* two characters */
    T_ADD, T_SUB, T_DIV, T_MUL, T_MOD, T_TILDE, T_LBRACKET, T_RBRACKET, T_LPAREN, T_RPAREN, T_LBRACE, T_RBRACE,
    T_GT, T_LT, T_ASSIGN, T_DOT, T_COLON, T_PIPE, T_COMMA, T_SEMICOLON,
    T_IN, T_NOT_IN, T_AND, T_OR /* never lexed: operators of nodes whose spelling is a word */
} TokenKind;

typedef struct Token {
    TokenKind kind;
    int line;
    Text text; /* data, name, or the unescaped string */
    int64_t i;
    double f;
} Token;

typedef struct Tokens {
    Token *at; /* ends with T_END; owns */
    int64_t n, capacity;
} Tokens;

/* Text is kept in the arena. */
bool tpl_lex(Tokens *out, Arena *arena, Text source, const char *name, Err *e);

/* ---- values (template_value.c) ---- */

typedef struct Value Value;
typedef struct Node Node;
typedef struct Scope Scope;
typedef struct Render Render;

typedef enum ValueKind {
    V_ABSENT, /* an argument that was not given */
    V_UNDEFINED, V_NONE, V_BOOL, V_INT, V_FLOAT, V_TEXT,
    V_LIST, V_TUPLE, V_RANGE, V_GENERATOR, V_KEYS, V_VALUES, V_ITEMS, /* all of these use seq */
    V_DICT, V_SPACE, /* both use dict */
    V_LOOP, V_MACRO, V_FUNCTION, V_METHOD
} ValueKind;

/* Why a value is undefined; with its text it gives the message of T2. */
typedef enum UndefinedWhy { WHY_NAME, WHY_PARAMETER, WHY_HINT, WHY_UNSAFE, WHY_ATTRIBUTE } UndefinedWhy;

typedef struct Seq {
    Value *at;
    int64_t n, capacity;
    int64_t given; /* of a generator: how many items were taken already */
} Seq;

typedef struct Pair Pair;
typedef struct Dict { /* in order of insertion */
    Pair *at;
    int64_t n, capacity;
} Dict;

typedef struct Builtin Builtin;
typedef struct Method { /* a builtin bound to a value, or a function of its own */
    const Builtin *builtin;
    Text name;
    Value *self;
} Method;

typedef struct Macro {
    const Node *node;
    Scope *scope; /* where it was defined */
} Macro;

typedef struct Loop Loop;

struct Value {
    ValueKind kind;
    int why; /* V_UNDEFINED: UndefinedWhy, or WHY_ATTRIBUTE + kind of the owner */
    union {
        bool b;
        int64_t i;
        double f;
        Text text; /* V_TEXT; V_UNDEFINED: the name or hint */
        Seq *seq;
        Dict *dict;
        Loop *loop;
        Macro *macro;
        const Method *method;
    };
};

struct Pair {
    Value key, value;
};

typedef struct Iter {
    Seq *seq;
    int64_t at;
    bool shared; /* a generator: what is taken is gone for everybody */
} Iter;

Value tpl_none(void);
Value tpl_bool(bool b);
Value tpl_int(int64_t i);
Value tpl_float(double f);
Value tpl_string(Text t);
Value tpl_undefined(int why, Text name);
Value tpl_seq(Render *r, ValueKind kind);
void tpl_add(Render *r, Seq *s, Value v);
Value tpl_dict(Render *r, ValueKind kind);
void tpl_dict_set(Render *r, Dict *d, Value key, Value v);
bool tpl_dict_get(Render *r, const Dict *d, Value key, Value *v);
Value tpl_dict_view(Render *r, const Dict *d, ValueKind kind); /* V_KEYS, V_VALUES or V_ITEMS */
Value tpl_from_json(Render *r, const json_t *j);

bool tpl_is_seq(Value v);
bool tpl_is_given(Value v);  /* as an argument, and not none */
bool tpl_is_number(Value v); /* bool, int, float */
int64_t tpl_as_int(Value v); /* of a bool or an int */
bool tpl_hashable(Render *r, Value v);
const char *tpl_type_name(int kind);
bool tpl_truth(Value v);
int64_t tpl_length(Value v); /* -1: has none; of text it costs a scan, which the caller pays for */
bool tpl_equal(Render *r, Value a, Value b);
int tpl_order(Render *r, Value a, Value b); /* -1, 0, 1; fails for what cannot be ordered */
bool tpl_contains(Render *r, Value in, Value what);

bool tpl_iterable(Value v);
bool tpl_iter(Render *r, Iter *it, Value over); /* fails when v cannot be iterated */
bool tpl_next(Render *r, Iter *it, Value *v);

int64_t tpl_find_last(Render *r, Text t, Text what);
Value tpl_case(Render *r, Text t, char how); /* 'u'pper, 'l'ower, 'c'apitalize, 't'itle */

/* ---- printing (template_print.c) ---- */

void tpl_print(Render *r, Str *to, Value v);                 /* as str() */
Value tpl_to_string(Render *r, Value v);
typedef struct JsonStyle {
    Text indent, between, colon; /* indent.p NULL: one line */
    bool ascii, sort;
} JsonStyle;
void tpl_json(Render *r, Str *to, Value v, const JsonStyle *style);
Value tpl_percent(Render *r, Text format, Value args);       /* 'format' % args */

/* ---- nodes (template_parse.c, template_parse_expr.c) ---- */

typedef enum NodeKind {
    /* expressions */
    N_CONST,    /* value */
    N_NAME,     /* name */
    N_CAPTURED, /* the text of the block that is being filtered */
    N_TUPLE, N_LIST, /* list of N_ARG */
    N_DICT,     /* list of N_PAIR: a key, b value */
    N_PAIR,
    N_NOT, N_NEG, N_POS, /* a */
    N_BINARY,   /* op, a, b */
    N_CONCAT,   /* list of N_ARG */
    N_COMPARE,  /* a, list of N_OPERAND: op, a */
    N_OPERAND,
    N_COND,     /* a if b else c; c may be NULL */
    N_ATTR,     /* a.name */
    N_ITEM,     /* a[b] */
    N_SLICE,    /* a[b:c:d], each may be NULL */
    N_CALL,     /* a(list of N_ARG) */
    N_ARG,      /* a; name when it is a keyword */
    N_FILTER, N_TEST, /* a | name(list), a is name(list); builtin, NULL when unknown */
    /* statements */
    N_TEXT,     /* value */
    N_PRINT,    /* a */
    N_FOR,      /* for a in b if c: list, else: other */
    N_IF,       /* list of N_BRANCH: if a (NULL: else): list */
    N_BRANCH,
    N_SET,      /* a = b */
    N_SET_BLOCK, /* a = the text of list, through the filter b (or NULL) */
    N_MACRO,    /* name, other: N_PARAM, list */
    N_PARAM,    /* name, a: default or NULL */
    N_CALL_BLOCK, /* a: the call, other: N_PARAM, list */
    N_FILTER_BLOCK, /* a: the filter, list */
    N_WITH,     /* other: N_SET, list */
    N_SCOPE,    /* list */
    N_BREAK, N_CONTINUE
} NodeKind;

struct Node {
    NodeKind kind;
    TokenKind op;
    int line;
    Text name;
    Value value;
    const Builtin *builtin;
    Node *a, *b, *c, *d;
    Node *list, *other; /* chains through next */
    Node *next;
};

typedef struct Parser {
    Arena *arena;
    const char *template_name;
    const Token *at; /* stands on T_END once something failed */
    Token end;
    int depth;          /* TPL_PARSE_DEPTH */
    int loops;          /* for blocks around, inside the innermost macro */
    int macros;
    const Node *unknown; /* a filter or test that does not exist, outside any condition */
    bool failed;
    Err *e;
} Parser;

struct Template {
    Arena arena;
    char *name;
    Node *body;
};

Node *tpl_parse(Arena *arena, const Token *tokens, const char *name, Err *e); /* NULL: refused */
bool tpl_parse_fail(Parser *p, int line, const char *fmt, ...) PRINTF_LIKE(3, 4);
Node *tpl_node(Parser *p, NodeKind kind);
bool tpl_accept(Parser *p, TokenKind kind);      /* steps over the token if it is there */
bool tpl_accept_name(Parser *p, const char *word);
bool tpl_expect(Parser *p, TokenKind kind);
bool tpl_at_name(const Parser *p, const char *word);
bool tpl_parse_enter(Parser *p);
Text tpl_parse_name(Parser *p);
Node *tpl_parse_expression(Parser *p, bool with_condition);
Node *tpl_parse_tuple(Parser *p, bool with_condition, bool empty_is_fine); /* a, b or just a */
Node *tpl_parse_filters(Parser *p, Node *input, bool first_is_bare);

/* ---- one render (template_exec.c, template_eval.c) ---- */

typedef struct Binding Binding;
struct Binding {
    Text name;
    Value value;
    Binding *next;
};

struct Scope {
    Scope *parent;
    Binding *first;
};

struct Render {
    const Template *t;
    const json_t *vars;
    Arena arena;
    Str *out;        /* where text goes now */
    Scope context;   /* variables of the caller, converted when first read */
    Value captured;  /* N_CAPTURED */
    int64_t steps, text_bytes;
    int depth, line; /* line: of the node being evaluated, for messages */
    bool failed;
    Err *e;
};

typedef struct Keyword {
    Text name;
    Value value;
} Keyword;

typedef struct Args {
    Value slot[TPL_PARAMS]; /* by parameter; V_ABSENT where not given */
    const Value *at;        /* positional, as written */
    const Keyword *keyword;
    int n, n_keywords;
} Args;

typedef Value BuiltinFn(Render *r, Value self, const Args *a);
struct Builtin {
    const char *name;
    const char *params; /* names separated by spaces; "*": takes anything, reads at[] and keyword[] */
    int required;
    BuiltinFn *fn;
};

Value tpl_fail(Render *r, const char *fmt, ...) PRINTF_LIKE(2, 3); /* gives an undefined value */
Value tpl_fail_undefined(Render *r, Value v);                      /* something was done to an undefined value */
bool tpl_charge(Render *r, int64_t steps);
bool tpl_charge_bytes(Render *r, int64_t bytes);
bool tpl_enter(Render *r); /* then r->depth-- */
void *tpl_alloc(Render *r, int64_t bytes);  /* small and fixed; never NULL */
char *tpl_bytes(Render *r, int64_t n);      /* NULL: over the bound, and failed */
void tpl_put(Render *r, Str *s, const char *p, int64_t n);
void tpl_put_text(Render *r, Str *s, Text t);
Value tpl_take(Render *r, Str *s); /* the text as a value; frees s, also after a failure */

void tpl_exec(Render *r, Scope *s, const Node *list);
void tpl_bind_name(Render *r, Scope *s, Text name, Value v);
Value tpl_call_macro(Render *r, Macro *m, const Args *a);
Value tpl_loop_attribute(Render *r, Loop *l, Text name);

Value tpl_eval(Render *r, Scope *s, const Node *n);
Value tpl_binary(Render *r, TokenKind op, Value a, Value b);
Value tpl_slice(Render *r, Value v, Value start, Value stop, Value step);
Value tpl_get_item(Render *r, Value v, Value key);
Value tpl_call(Render *r, Value callee, const Args *a);
void tpl_eval_args(Render *r, Scope *s, Args *a, const Node *list);
Value tpl_invoke(Render *r, const Builtin *b, const char *what, Value self, const Args *a);

/* ---- what has a name ---- */

const Builtin *tpl_row(const Builtin *table, int n, Text name);
const Builtin *tpl_find_filter(Text name);
const Builtin *tpl_find_list_filter(Text name);
const Builtin *tpl_find_test(Text name);
bool tpl_find_global(Text name, Value *v);
bool tpl_find_method(Render *r, Value self, Text name, Value *v); /* also what is refused, as undefined */
Value tpl_bind_method(Render *r, const Builtin *b, Text name, Value self);
Value tpl_split_lines(Render *r, Text t);
Value tpl_str_method(Render *r, Value self, const Args *a, const char *name); /* on whatever prints as a str */

#endif
