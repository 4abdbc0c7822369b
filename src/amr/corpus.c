/* corpus.c - where a block begins and ends, which line is its sentence, and what is wrong with it. */
#include "amr/corpus.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "amr/chars.h"
#include "base/mem.h"
#include "data/source.h"

enum { FILE_BYTES_MOST = 1 << 30 };

/* ---- lines ---- */

typedef struct Line {
    const char *at; /* first character that is not a blank */
    int64_t len;    /* without blanks at its end */
    int64_t whole;  /* from the line's own beginning, with its end */
} Line;

static Line line_at(const char *from, const char *end) {
    const char *stop = from;
    while (stop < end && !amr_is_line_end(*stop)) stop++;
    const char *next = stop < end ? stop + 1 : stop;
    if (next < end && *stop == '\r' && *next == '\n') next++;
    const char *first = from;
    while (first < stop && amr_is_blank(*first)) first++;
    while (stop > first && amr_is_blank(stop[-1])) stop--;
    return (Line){first, stop - first, next - from};
}

static bool is_comment(Line l) {
    return l.len && *l.at == '#';
}

/* The text behind `# ::key `; NULL: another line. */
static const char *behind_key(Line l, const char *key) {
    const char *at = l.at + 1, *end = l.at + l.len;
    int64_t n = (int64_t)strlen(key);
    if (!is_comment(l)) return NULL;
    while (at < end && (*at == ' ' || *at == '\t')) at++;
    if (end - at < n + 2 || memcmp(at, "::", 2) || memcmp(at + 2, key, (size_t)n)) return NULL;
    at += 2 + n;
    if (at < end && *at != ' ' && *at != '\t') return NULL;
    while (at < end && (*at == ' ' || *at == '\t')) at++;
    return at;
}

static bool has_metadata(Line l) {
    return l.len > 3 && memmem(l.at, (size_t)l.len, "::", 2);
}

/* ---- blocks ---- */

/* A copy that is valid UTF-8 whatever the text was: it goes into messages and JSON. */
static const char *keep_text(AmrCorpus *c, const char *text, int64_t len) {
    char *kept = arena_printf(&c->arena, "%.*s", (int)len, text);
    utf8proc_int32_t code;
    for (char *at = kept; *at;) {
        utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)at, -1, &code);
        if (n < 1) *at = '?';
        at += n < 1 ? 1 : n;
    }
    return kept;
}

static bool examine(AmrBlock *b, Err *e) {
    if (b->comment_bytes == b->bytes) return fail(e, ERR_FAIL, "line %lld: there is no graph", (long long)b->line);
    PenmanText from = {b->text, b->text + b->bytes, b->line};
    if (!penman_read(&b->graph, &from, e)) return false;
    if (!penman_at_end(&from))
        return fail(e, ERR_FAIL, "line %lld: text follows the graph. Is a parenthesis closed too early?",
                    (long long)from.line);
    if (!penman_check(&b->graph, e)) return false;
    return !amr_is_failure(&b->graph) ||
           fail(e, ERR_FAIL, "line %lld: no graph was found for this sentence", (long long)b->line);
}

/* Every refusal of examine begins with "line N: ". */
static void keep_fault(AmrCorpus *c, AmrBlock *b, const Err *e) {
    char *why;
    CHECK(str_starts(e->text, "line "));
    b->fault_line = strtoll(e->text + 5, &why, 10);
    why += strspn(why, ": ");
    b->fault = keep_text(c, why, (int64_t)strlen(why));
}

/* Ends the block that the lines up to here are. */
static void end_block(AmrCorpus *c, AmrBlock *b) {
    Err e = {0};
    if (!b->text) return;
    if (b->comment_bytes == b->bytes && !b->sentence) {
        c->comments++;
    } else {
        if (!examine(b, &e)) keep_fault(c, b, &e);
        if (!b->graph.n_slots) penman_free(&b->graph); /* reading stopped half way */
        if (!b->sentence) b->sentence = penman_meta(&b->graph, "snt");
        if (b->sentence && !*b->sentence) b->sentence = NULL;
        c->valid += !b->fault;
        c->block = mem_grow(c->block, &c->room, c->n + 1, sizeof *c->block);
        c->block[c->n++] = *b;
    }
    *b = (AmrBlock){0};
}

static void take_line(AmrCorpus *c, AmrBlock *b, const char *at, Line l, int64_t number) {
    bool comment = is_comment(l), behind_graph = b->comment_bytes < b->bytes;
    if (!l.len || (comment && behind_graph && has_metadata(l))) end_block(c, b);
    if (!l.len) return;
    if (!b->text) *b = (AmrBlock){.text = at, .line = number};
    const char *sentence = behind_key(l, "snt");
    if (sentence && !b->sentence) b->sentence = keep_text(c, sentence, l.at + l.len - sentence);
    if (comment && b->comment_bytes == b->bytes) b->comment_bytes += l.whole;
    b->bytes += l.whole;
}

bool amr_corpus_parse(AmrCorpus *c, Str *text, const char *path, int64_t line, Err *e) {
    *c = (AmrCorpus){.path = mem_strdup(path), .text = *text};
    *text = (Str){0};
    arena_init(&c->arena, "corpus");
    const char *at = str_text(&c->text), *end = at + c->text.len;
    AmrBlock b = {0};
    at += str_mark(at, end - at);
    for (Line l; at < end; at += l.whole, line++) {
        l = line_at(at, end);
        take_line(c, &b, at, l, line);
    }
    end_block(c, &b);
    return c->n ||
           fail(e, ERR_FAIL,
                "%s: holds no block of a sentence and its graph (# ::snt ..., then a graph in PENMAN notation)",
                path);
}

bool amr_corpus_read(AmrCorpus *c, const char *path, Err *e) {
    Str text = {0};
    *c = (AmrCorpus){0};
    if (source_read_text(path, &text, FILE_BYTES_MOST, e)) return amr_corpus_parse(c, &text, path, 1, e);
    str_free(&text);
    return false;
}

void amr_corpus_free(AmrCorpus *c) {
    for (int64_t i = 0; i < c->n; i++) penman_free(&c->block[i].graph);
    mem_free(c->block);
    mem_free(c->path);
    str_free(&c->text);
    arena_free(&c->arena);
    *c = (AmrCorpus){0};
}

int64_t amr_corpus_bytes(const AmrCorpus *c) {
    enum { PIECES = 5, PIECE_BYTES = 32 }; /* allocations of a graph, and what the heap adds to each */
    int64_t bytes = 2 * c->text.len + c->arena.used_bytes; /* a text that grew was copied */
    bytes += 3 * c->room / 2 * (int64_t)sizeof *c->block;  /* and so were the blocks */
    for (int64_t i = 0; i < c->n; i++) {
        const Penman *g = &c->block[i].graph;
        bytes += g->node_room * (int64_t)sizeof *g->node + g->branch_room * (int64_t)sizeof *g->branch +
                 g->meta_room * (int64_t)sizeof *g->meta + g->n_slots * (int64_t)sizeof *g->slot +
                 2 * c->block[i].bytes + PIECES * PIECE_BYTES;
    }
    return bytes;
}

bool amr_corpus_require_valid(const AmrCorpus *c, Err *e) {
    for (int64_t i = 0; i < c->n; i++) {
        const AmrBlock *b = &c->block[i];
        if (!b->fault) continue;
        return fail(
            e, ERR_FAIL,
            "%s: block %lld, line %lld: %s (%lld of %lld blocks are valid; `snug amr check` lists the others)",
            c->path, (long long)i + 1, (long long)b->fault_line, b->fault, (long long)c->valid, (long long)c->n);
    }
    return true;
}

int64_t amr_split(int64_t n, double fraction) {
    int64_t kept = (int64_t)floor((double)n * (1 - fraction) + 1e-9); /* 100 * (1 - 0.9) is below 10 */
    return n < 2 ? n : MAX2(1, MIN2(n - 1, kept));
}

/* ---- questions about one graph ---- */

bool amr_is_failure(const Penman *graph) {
    if (penman_meta(graph, "failed")) return true;
    const PenmanBranch *last = graph->n_branches == 2 ? &graph->branch[1] : NULL;
    const char *concept = graph->n_nodes == 1 ? penman_concept(graph, 0) : NULL;
    return last && concept && !strcmp(concept, "error") && !strcmp(last->role, ":sentence");
}

/* One letter of any script, then digits. */
static bool is_like_variable(const char *atom) {
    utf8proc_int32_t code;
    utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)atom, -1, &code);
    utf8proc_category_t kind = n < 1 ? UTF8PROC_CATEGORY_CN : utf8proc_category(code);
    return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO &&
           !atom[n + (utf8proc_ssize_t)strspn(atom + n, "0123456789")];
}

int64_t amr_unbound(const Penman *graph) {
    int64_t n = 0;
    for (int64_t i = 0; i < graph->n_branches; i++) {
        const PenmanBranch *b = &graph->branch[i];
        if (b->atom && strcmp(b->role, "/") && penman_find(graph, b->atom) < 0) n += is_like_variable(b->atom);
    }
    return n;
}
