/* answer.c - the machine that finds a graph in running text, and the repairs of a graph that was cut short. */
#include "amr/answer.h"

#include <string.h>

#include "amr/chars.h"
#include "base/mem.h"

/* ---- the stop ---- */

static bool step_inside(AmrStop *s, char c) {
    if (s->escaped) {
        s->escaped = false;
    } else if (s->in_string) {
        s->escaped = c == '\\';
        if (c == '"') s->in_string = false;
    } else {
        s->in_string = c == '"';
        s->depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    }
    if (c == '\n') s->in_string = s->escaped = false;
    return s->depth == 0;
}

static bool step(AmrStop *s, char c) {
    if (s->state == STOP_INSIDE) return step_inside(s, c);
    if (c == '(') {
        s->state = STOP_OPENED;
        s->begin = s->fed;
        return false;
    }
    bool named = s->state == STOP_VARIABLE || s->state == STOP_BEHIND;
    if (c == '/' && named) {
        s->state = STOP_INSIDE;
        s->depth = 1;
    } else if (amr_is_blank(c)) {
        s->state = named ? STOP_BEHIND : s->state;
    } else {
        bool begins = s->state == STOP_OPENED || s->state == STOP_VARIABLE;
        s->state = begins && !amr_ends_word(c) ? STOP_VARIABLE : STOP_OUTSIDE;
    }
    return false;
}

bool amr_stop_feed(AmrStop *s, const char *text, int64_t bytes, int64_t *used) {
    for (int64_t i = 0; i < bytes; i++, s->fed++) {
        if (!step(s, text[i])) continue;
        *used = i + 1;
        s->fed++;
        return true;
    }
    *used = bytes;
    return false;
}

/* ---- which part of the answer ---- */

typedef struct Span {
    int64_t begin, len;
    bool found, whole; /* whole: its parentheses are balanced */
} Span;

static Span find_span(const char *text, int64_t bytes, bool last) {
    Span span = {0};
    for (int64_t at = 0; at < bytes;) {
        AmrStop s = {0};
        int64_t used;
        bool whole = amr_stop_feed(&s, text + at, bytes - at, &used);
        bool begun = whole || s.state == STOP_INSIDE;
        /* what is cut short counts only where nothing whole is */
        if (begun && (whole || !span.found)) span = (Span){at + s.begin, used - s.begin, true, whole};
        if (!whole || !last) break;
        at += used;
    }
    return span;
}

/* ---- repairs on the text ---- */

/* Closes the strings that their line leaves open: before the parentheses and blanks at the line's end. */
static void close_quotes(Str *s, AmrRepairs *done) {
    Str out = {0};
    for (int64_t at = 0; at < s->len;) {
        const char *line = s->data + at, *end = memchr(line, '\n', (size_t)(s->len - at));
        int64_t len = end ? end - line : s->len - at, keep = len;
        bool open = false;
        for (int64_t i = 0; i < len; i++) {
            if (line[i] == '\\' && open)
                i++;
            else if (line[i] == '"')
                open = !open;
        }
        while (open && keep && (amr_is_blank(line[keep - 1]) || line[keep - 1] == ')')) keep--;
        int64_t slashes = 0;
        while (open && slashes < keep && line[keep - 1 - slashes] == '\\') slashes++;
        str_add_bytes(&out, line, keep - slashes % 2); /* an odd one would escape the quote */
        if (open) str_add_char(&out, '"');
        done->quotes += open;
        str_add_bytes(&out, line + keep, len - keep);
        if (end) str_add_char(&out, '\n');
        at += len + 1;
    }
    str_free(s);
    *s = out;
}

static void trim(Str *s) {
    while (s->len && amr_is_blank(s->data[s->len - 1])) s->len--;
    if (s->data) s->data[s->len] = 0;
}

/* The beginning of the last word; a role begins with its colon. */
static int64_t last_word(const Str *s) {
    int64_t at = s->len;
    while (at && !amr_ends_word(s->data[at - 1])) at--;
    return at && s->data[at - 1] == ':' ? at - 1 : at;
}

/* Cuts off what cannot stand at the end: ":ARG0", "(", "(b", "(b /", "~". Gives whether something was. */
static bool cut_end(Str *s) {
    trim(s);
    if (!s->len) return false;
    int64_t at = last_word(s), before = at;
    char last = s->data[s->len - 1];
    while (before && amr_is_blank(s->data[before - 1])) before--;
    if (last == '(' || last == '/' || last == '~') {
        s->len--;
        trim(s);
        return true;
    }
    if (s->data[at] != ':' && !(before && s->data[before - 1] == '(')) return false;
    s->len = at;
    trim(s);
    return true;
}

static void mend(Str *s, AmrRepairs *done) {
    close_quotes(s, done);
    AmrStop stop = {0};
    int64_t used;
    if (amr_stop_feed(&stop, s->data, s->len, &used)) return;
    int64_t before = s->len;
    while (cut_end(s)) continue;
    done->ends += s->len < before;
    stop = (AmrStop){0};
    amr_stop_feed(&stop, str_text(s), s->len, &used);
    for (; stop.state == STOP_INSIDE && stop.depth; stop.depth--, done->parentheses++) str_add_char(s, ')');
}

/* ---- repairs on the tree ---- */

static bool read_text(Penman *graph, const Str *s, Err *e) {
    PenmanText from = {str_text(s), str_text(s) + s->len, 1};
    return penman_read(graph, &from, e);
}

/* Letters of the variable, then the first number that makes it a new one. */
static const char *fresh_variable(const Penman *graph, Arena *a, const char *variable, int64_t *number) {
    int len = (int)strlen(variable);
    while (len > 1 && variable[len - 1] >= '0' && variable[len - 1] <= '9') len--;
    for (;; ++*number) {
        const char *name = arena_printf(a, "%.*s%lld", len, variable, (long long)*number);
        if (penman_find(graph, name) < 0) return ++*number, name;
    }
}

/* A node whose variable is taken gets another; the text is made anew. Re-entrancies stay with the first node of
 * the name. */
static bool rename_nodes(Penman *graph, AmrRepairs *done, Err *e) {
    Arena names;
    Str s = {0};
    int64_t number = 2, n = 0;
    arena_init(&names, "names");
    for (int32_t i = 0; i < graph->n_nodes; i++) {
        PenmanNode *node = &graph->node[i];
        if (!node->variable || penman_find(graph, node->variable) == i) continue;
        node->variable = fresh_variable(graph, &names, node->variable, &number);
        n++;
    }
    if (n) penman_print(&s, graph, PENMAN_ONE_LINE);
    arena_free(&names);
    done->renamed += n;
    if (!n) return true;
    penman_free(graph);
    bool ok = read_text(graph, &s, e);
    str_free(&s);
    return ok;
}

bool amr_take(Penman *graph, AmrRepairs *done, const char *text, int64_t bytes, AmrTake how, Err *e) {
    Span span = find_span(text, bytes, how.last);
    *graph = (Penman){0};
    *done = (AmrRepairs){0};
    if (!span.found) return fail(e, ERR_FAIL, "no graph: nowhere '(variable /'");
    if (!span.whole && !how.repair) return fail(e, ERR_FAIL, "the graph's parentheses are not closed");
    Str s = {0};
    str_add_bytes(&s, text + span.begin, span.len);
    if (how.repair) mend(&s, done);
    bool ok = s.len ? read_text(graph, &s, e)
                    : fail(e, ERR_FAIL, "the graph ends where it begins: nothing of it is left");
    if (ok && how.repair) ok = rename_nodes(graph, done, e);
    ok = ok && penman_check(graph, e);
    str_free(&s);
    return ok;
}

void amr_print_failure(Str *out, const char *sentence) {
    str_add(out, "(e / error :sentence \"");
    for (; *sentence; sentence++) {
        if (*sentence == '"' || *sentence == '\\') str_add_char(out, '\\');
        str_add_char(out, amr_is_blank(*sentence) ? ' ' : *sentence);
    }
    str_add(out, "\")");
}
