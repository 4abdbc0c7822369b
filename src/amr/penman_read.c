/* penman_read.c - how text becomes a tree: the tokens of PENMAN notation, and what may follow what.
 *
 *   graph  := comment* node
 *   node   := '(' [ symbol [ '/' [ atom ] ] branch* ] ')'
 *   branch := role [ alignment ] [ atom | node ]            the target may be missing before a role or ')'
 *   atom   := (symbol | string) [ alignment ]
 *
 * A token ends at a blank or at one of " ( ) / : ~ and, if it is a string, within its line. A '#' that begins a
 * token begins a comment, to the end of the line; comments may stand before a graph and nowhere else. Nodes are
 * opened and closed in a loop: the depth of the text is not a depth of calls. */
#include <string.h>
#include <utf8proc.h>

#include "amr/chars.h"
#include "amr/penman_int.h"
#include "base/mem.h"

enum { META_MOST = 1000, TEXT_BYTES_MOST = 1 << 30 };

typedef enum TokenKind {
    TOKEN_END,
    TOKEN_COMMENT,
    TOKEN_STRING,
    TOKEN_OPEN,
    TOKEN_CLOSE,
    TOKEN_SLASH,
    TOKEN_ROLE,
    TOKEN_SYMBOL,
    TOKEN_ALIGNMENT,
    TOKEN_STRAY /* a quote that is not closed, a '~' without a number */
} TokenKind;

typedef struct Token {
    TokenKind kind;
    const char *at;
    int64_t len;
    int64_t line;
} Token;

typedef struct Reader {
    Penman *out;
    PenmanText *from; /* right behind the token below */
    Token next;       /* looked at, not yet taken */
} Reader;

/* ---- tokens ---- */

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static void skip_blanks(PenmanText *t) {
    for (; t->at < t->end && amr_is_blank(*t->at); t->at++) {
        bool pair = *t->at == '\r' && t->at + 1 < t->end && t->at[1] == '\n'; /* counted at the \n */
        t->line += amr_is_line_end(*t->at) && !pair;
    }
}

/* The length of a string with both quotes; 0: it is not closed in this line. */
static int64_t string_length(const char *at, const char *end) {
    for (const char *p = at + 1; p < end && !amr_is_line_end(*p); p++) {
        if (*p == '"') return p + 1 - at;
        if (*p == '\\' && (++p == end || amr_is_line_end(*p))) return 0;
    }
    return 0;
}

/* The length of ~1, ~e.1,2 or ~e1; 0: it is none. */
static int64_t alignment_length(const char *at, const char *end) {
    const char *p = at + 1;
    if (p < end && *p >= 'a' && *p <= 'z') {
        p++;
        p += p < end && *p == '.';
    }
    const char *stop = NULL; /* behind the last number */
    do {
        const char *digits = p;
        while (p < end && is_digit(*p)) p++;
        if (p == digits) break;
        stop = p;
    } while (p < end && *p++ == ',');
    return stop ? stop - at : 0;
}

static int64_t word_length(const char *at, const char *end) {
    const char *p = at + 1;
    while (p < end && !amr_ends_word(*p)) p++;
    return p - at;
}

static int64_t comment_length(const char *at, const char *end) {
    const char *p = at;
    while (p < end && !amr_is_line_end(*p)) p++;
    return p - at;
}

static Token lex(PenmanText *t) {
    Token k = {.kind = TOKEN_END,
               .line = t->line}; /* the end is where the last token was, not behind empty lines */
    skip_blanks(t);
    k.at = t->at;
    if (t->at == t->end) return k;
    k.line = t->line;
    k.len = 1;
    switch (*t->at) {
        case '#':
            k.kind = TOKEN_COMMENT;
            k.len = comment_length(t->at, t->end);
            break;
        case '"':
            k.kind = TOKEN_STRING;
            k.len = string_length(t->at, t->end);
            break;
        case '~':
            k.kind = TOKEN_ALIGNMENT;
            k.len = alignment_length(t->at, t->end);
            break;
        case ':':
            k.kind = TOKEN_ROLE;
            k.len = word_length(t->at, t->end);
            break;
        case '(':
            k.kind = TOKEN_OPEN;
            break;
        case ')':
            k.kind = TOKEN_CLOSE;
            break;
        case '/':
            k.kind = TOKEN_SLASH;
            break;
        default:
            k.kind = TOKEN_SYMBOL;
            k.len = word_length(t->at, t->end);
    }
    if (!k.len) k.kind = TOKEN_STRAY, k.len = 1;
    t->at += k.len;
    return k;
}

static Token take(Reader *r) {
    Token taken = r->next;
    r->next = lex(r->from);
    return taken;
}

/* Keeps len bytes as a text of its own. A token and its ending 0 take two bytes a byte of input at most. */
static const char *keep(Penman *p, const char *at, int64_t len) {
    char *to = p->words + p->words_used;
    memcpy(to, at, (size_t)len);
    to[len] = 0;
    p->words_used += len + 1;
    return to;
}

static const char *keep_token(Penman *p, Token t) {
    return keep(p, t.at, t.len);
}

/* ---- refusals ---- */

static bool unexpected(const Reader *r, const char *wanted, Err *e) {
    const Token *t = &r->next;
    int64_t shown = t->len;
    while (shown > 24 || (shown < t->len && (t->at[shown] & 0xc0) == 0x80)) shown--; /* whole characters */
    const char *dots = shown < t->len ? "..." : "";
    long long line = (long long)t->line;
    if (t->kind == TOKEN_END)
        return fail(e, ERR_FAIL, "line %lld: the text ends where %s was expected. Was it cut short?", line,
                    wanted);
    if (t->kind == TOKEN_COMMENT)
        return fail(e, ERR_FAIL, "line %lld: a comment stands inside the graph; comments come before it", line);
    if (t->kind == TOKEN_STRAY && *t->at == '"')
        return fail(e, ERR_FAIL, "line %lld: a string is not closed in its line", line);
    if (t->kind == TOKEN_STRAY)
        return fail(e, ERR_FAIL, "line %lld: '~' begins an alignment such as ~e.4; a '~' of a text needs quotes",
                    line);
    return fail(e, ERR_FAIL, "line %lld: %s was expected, found '%.*s%s'", line, wanted, (int)shown, t->at, dots);
}

static bool is_text(const PenmanText *t, Err *e) {
    int64_t line = t->line;
    utf8proc_int32_t code;
    for (const char *at = t->at; at < t->end;) {
        utf8proc_ssize_t n = 1;
        if (*at & 0x80) n = utf8proc_iterate((const utf8proc_uint8_t *)at, t->end - at, &code);
        if (n < 1) return fail(e, ERR_FAIL, "line %lld: is not valid UTF-8", (long long)line);
        if (!*at) return fail(e, ERR_FAIL, "line %lld: a byte 0 is not text", (long long)line);
        line += *at == '\n';
        at += n;
    }
    return true;
}

/* ---- metadata ---- */

static bool put_meta(Penman *p, const char *key, const char *value, int64_t line, Err *e) {
    for (int64_t i = 0; i < p->n_meta; i++) {
        if (strcmp(p->meta[i].key, key)) continue;
        p->meta[i].value = value; /* the last one counts, in the first one's place */
        return true;
    }
    if (p->n_meta == META_MOST)
        return fail(e, ERR_FAIL, "line %lld: more than %d metadata entries", (long long)line, META_MOST);
    p->meta = mem_grow(p->meta, &p->meta_room, p->n_meta + 1, sizeof *p->meta);
    p->meta[p->n_meta++] = (PenmanMeta){key, value};
    return true;
}

/* Without the blanks of any script that stand at the end of [from, end). */
static const char *trim_end(const char *from, const char *end) {
    utf8proc_int32_t code;
    for (const char *at = end; at > from; end = at) {
        do at--;
        while (at > from && (*at & 0xc0) == 0x80);
        utf8proc_iterate((const utf8proc_uint8_t *)at, end - at, &code);
        utf8proc_category_t kind = utf8proc_category(code);
        bool space = kind == UTF8PROC_CATEGORY_ZS || kind == UTF8PROC_CATEGORY_ZL || kind == UTF8PROC_CATEGORY_ZP;
        bool control = (code >= 0x09 && code <= 0x0d) || (code >= 0x1c && code <= 0x1f) || code == 0x85;
        if (!space && !control) break;
    }
    return end;
}

/* "# ::id 7 ::snt A text": entries from the last to the first, as penman has them. */
static bool take_comment(Penman *p, Token t, Err *e) {
    const char *end = t.at + t.len;
    for (const char *at = end - 2; at >= t.at; at--) {
        if (at[0] != ':' || at[1] != ':') continue;
        const char *key = at + 2, *blank = memchr(key, ' ', (size_t)(end - key));
        const char *stop = blank ? trim_end(blank + 1, end) : end;
        const char *kept = keep(p, key, (blank ? blank : end) - key);
        const char *value = blank ? keep(p, blank + 1, stop - blank - 1) : "";
        if (!put_meta(p, kept, value, t.line, e)) return false;
        end = at--;
    }
    return true;
}

/* ---- nodes ---- */

static bool is_atom(const Reader *r) {
    return r->next.kind == TOKEN_SYMBOL || r->next.kind == TOKEN_STRING;
}

static void take_mark(Reader *r, const char **mark) {
    if (r->next.kind == TOKEN_ALIGNMENT) *mark = keep_token(r->out, take(r));
}

static void take_atom(Reader *r, int32_t branch) {
    PenmanBranch *b = &r->out->branch[branch];
    b->atom = keep_token(r->out, take(r));
    take_mark(r, &b->atom_mark);
}

/* '(' and what stands before the first branch. */
static bool open_node(Reader *r, int32_t *node, int32_t parent, Err *e) {
    if (r->next.kind != TOKEN_OPEN) return unexpected(r, "'('", e);
    *node = penman_add_node(r->out, parent, (int32_t)take(r).line);
    if (r->next.kind == TOKEN_CLOSE) return true;
    if (r->next.kind != TOKEN_SYMBOL) return unexpected(r, "a variable", e);
    r->out->node[*node].variable = keep_token(r->out, take(r));
    if (r->next.kind != TOKEN_SLASH) return true;
    int32_t b = penman_add_branch(r->out, *node, "/", (int32_t)take(r).line);
    if (is_atom(r)) take_atom(r, b);
    return true;
}

static bool take_branch(Reader *r, int32_t *branch, int32_t node, Err *e) {
    if (r->next.kind != TOKEN_ROLE || !r->out->node[node].variable)
        return unexpected(r, "')' or a role such as :ARG0", e);
    Token role = take(r);
    *branch = penman_add_branch(r->out, node, keep_token(r->out, role), (int32_t)role.line);
    take_mark(r, &r->out->branch[*branch].role_mark);
    if (is_atom(r))
        take_atom(r, *branch);
    else if (r->next.kind != TOKEN_OPEN && r->next.kind != TOKEN_ROLE && r->next.kind != TOKEN_CLOSE)
        return unexpected(r, "a target", e);
    return true;
}

static bool read_nodes(Reader *r, Err *e) {
    int32_t node = -1, branch = -1;
    int depth = 1;
    if (!open_node(r, &node, -1, e)) return false;
    while (node >= 0) {
        if (r->next.kind == TOKEN_CLOSE) {
            node = r->out->node[node].parent;
            depth--;
            if (node >= 0) take(r); /* behind the last one nothing is looked at */
            continue;
        }
        if (!take_branch(r, &branch, node, e)) return false;
        if (r->next.kind != TOKEN_OPEN || r->out->branch[branch].atom) continue;
        if (++depth > PENMAN_DEPTH_MOST)
            return fail(e, ERR_FAIL, "line %lld: more than %d nodes inside each other", (long long)r->next.line,
                        PENMAN_DEPTH_MOST);
        if (!open_node(r, &node, node, e)) return false;
        r->out->branch[branch].node = node;
    }
    return true;
}

bool penman_read(Penman *out, PenmanText *from, Err *e) {
    int64_t bytes = from->end - from->at;
    *out = (Penman){0};
    if (bytes > TEXT_BYTES_MOST)
        return fail(e, ERR_FAIL, "line %lld: a graph of more than 1 GiB", (long long)from->line);
    if (!is_text(from, e)) return false;
    out->words = mem_alloc(2 * bytes + 2);
    Reader r = {.out = out, .from = from};
    take(&r);
    while (r.next.kind == TOKEN_COMMENT)
        if (!take_comment(out, take(&r), e)) return false;
    if (!read_nodes(&r, e)) return false;
    penman_index(out);
    return true;
}

bool penman_at_end(PenmanText *from) {
    skip_blanks(from);
    return from->at == from->end;
}
