/* prompt.c - prompt templates: their sections and placeholders, and the rows made with them. */
#include "amr/prompt.h"

#include <string.h>

#include "base/mem.h"
#include "data/source.h"

enum { WORDING_BYTES_MOST = 1 << 20 };

/* Equal to recipes/amr/plain.txt and unified.txt, so that they are there wherever the program is. */
static const struct {
    const char *name, *text;
} builtin[] = {
    {"plain",
     "[prompt]\n"
     "Write the meaning of the sentence as an AMR graph in PENMAN notation.\n"
     "Sentence: {sentence}\n"
     "Graph:\n"
     "[answer]\n"
     "{graph}\n"},
    {"unified",
     "[prompt]\n"
     "Write the meaning of the sentence as an AMR graph, in two steps.\n"
     "Step 1: the graph without variables, a concept in each pair of parentheses.\n"
     "Step 2: the whole graph in PENMAN notation. Every concept gets a variable of its own; what is meant a "
     "second time is named by the\n"
     "variable it already has.\n"
     "Sentence: {sentence}\n"
     "[answer]\n"
     "Step 1: {bare}\n"
     "Step 2:\n"
     "{graph}\n"},
};

static const char *builtin_text(const char *name) { /* the wording's text; NULL: not built in */
    for (int i = 0; i < COUNT_OF(builtin); i++)
        if (!strcmp(builtin[i].name, name)) return builtin[i].text;
    return NULL;
}

/* ---- sections and placeholders ---- */

typedef struct Filling { /* what the placeholders stand for; NULL: not in this section */
    const char *sentence, *graph, *bare;
} Filling;

static const char *lookup(const Filling *f, const char *name, int64_t len) {
    const struct {
        const char *name, *text;
    } known[] = {{"sentence", f->sentence}, {"graph", f->graph}, {"bare", f->bare}};
    for (int i = 0; i < COUNT_OF(known); i++)
        if ((int64_t)strlen(known[i].name) == len && !memcmp(known[i].name, name, (size_t)len))
            return known[i].text;
    return NULL;
}

static bool fill(Str *out, const char *text, const Filling *f, Err *e) {
    for (const char *at = text; *at; at++) {
        if (*at != '{' && *at != '}') {
            str_add_char(out, *at);
            continue;
        }
        if (at[1] == *at) { /* {{ and }} */
            str_add_char(out, *at++);
            continue;
        }
        const char *end = *at == '{' ? strchr(at, '}') : NULL;
        const char *value = end ? lookup(f, at + 1, end - at - 1) : NULL;
        bool is_word = end && !memchr(at, '\n', (size_t)(end - at));
        if (!value)
            return fail(e, ERR_FAIL,
                        "'%.*s' is no placeholder here: a prompt has {sentence}, an answer {graph} and {bare}; a "
                        "brace is written {{ or }}",
                        is_word ? (int)(end - at) + 1 : 1, at);
        str_add(out, value);
        at = end;
    }
    return true;
}

/* The lines between two headings. */
static char *section(const char *from, const char *end, bool keep_line_end) {
    Str s = {0};
    for (; from < end; from++)
        if (*from != '\r') str_add_char(&s, *from);
    while (!keep_line_end && s.len && s.data[s.len - 1] == '\n') s.data[--s.len] = 0;
    char *text = mem_strdup(str_text(&s));
    str_free(&s);
    return text;
}

/* The line that consists of a heading; NULL: there is none. *behind: the line after it. */
static const char *find_heading(const char *text, const char *heading, const char **behind) {
    for (const char *line = text; line && *line; line = strchr(line, '\n'), line += line != NULL) {
        if (!str_starts(line, heading)) continue;
        const char *rest = line + strlen(heading);
        rest += strspn(rest, " \t\r");
        if (*rest && *rest != '\n') continue;
        *behind = *rest ? rest + 1 : rest;
        return line;
    }
    return NULL;
}

static bool check_wording(const AmrPrompt *p, Err *e) {
    Str s = {0};
    Filling asked = {.sentence = "\x01"}, answered = {.graph = "\x02", .bare = "\x03"};
    bool ok = fill(&s, p->prompt, &asked, e);
    if (ok && !strchr(str_text(&s), 1)) ok = fail(e, ERR_FAIL, "the section [prompt] has no {sentence}");
    str_clear(&s);
    ok = ok && fill(&s, p->answer, &answered, e);
    const char *graph = ok ? strchr(str_text(&s), 2) : NULL, *bare = ok ? strrchr(str_text(&s), 3) : NULL;
    if (ok && !graph) ok = fail(e, ERR_FAIL, "the section [answer] has no {graph}");
    if (ok && bare > graph)
        ok = fail(e, ERR_FAIL, "{bare} must come before {graph}: the first graph with variables is the answer");
    str_free(&s);
    return ok;
}

bool amr_prompt_parse(AmrPrompt *p, const char *text, const char *where, Err *e) {
    const char *prompt = NULL, *answer = NULL;
    *p = (AmrPrompt){0};
    const char *first = find_heading(text, "[prompt]", &prompt);
    const char *second = first ? find_heading(prompt, "[answer]", &answer) : NULL;
    if (!second)
        return fail(e, ERR_FAIL,
                    "%s: a wording has a line [prompt] and, behind it, a line [answer]; see recipes/amr/plain.txt",
                    where);
    p->prompt = section(prompt, second, true);
    p->answer = section(answer, answer + strlen(answer), false);
    return check_wording(p, e) || fail_within(e, "%s", where);
}

bool amr_prompt_open(AmrPrompt *p, const char *name, Err *e) {
    const char *known = builtin_text(name);
    Str text = {0};
    *p = (AmrPrompt){0};
    bool ok = known || source_read_text(name, &text, WORDING_BYTES_MOST, e);
    if (!ok && !strchr(name, '/') && !strchr(name, '.'))
        fail(e, ERR_USAGE, "'%s' is neither plain, chat, unified nor the file of a wording (recipes/amr/)", name);
    json_t *utf8 = json_stringn(str_text(&text), (size_t)text.len);
    if (ok && !utf8) ok = fail(e, ERR_FAIL, "%s: is not valid UTF-8", name);
    json_decref(utf8);
    ok = ok && amr_prompt_parse(p, known ? known : str_text(&text), name, e);
    str_free(&text);
    return ok;
}

bool amr_prompt_choose(AmrPrompt *p, AmrRowStyle *style, const char *word, Err *e) {
    bool chat = !strcmp(word, "chat");
    style->chat |= chat;
    return amr_prompt_open(p, chat ? "plain" : word, e);
}

void amr_prompt_free(AmrPrompt *p) {
    mem_free(p->prompt);
    mem_free(p->answer);
    *p = (AmrPrompt){0};
}

/* ---- the graph without variables ---- */

static void print_bare(Str *out, const Penman *p, int32_t node) { /* as deep as the tree: PENMAN_DEPTH_MOST */
    const char *concept = penman_concept(p, node);
    str_addf(out, "(%s", concept ? concept : "");
    for (int32_t i = p->node[node].first; i >= 0; i = p->branch[i].next) {
        const PenmanBranch *b = &p->branch[i];
        int again = penman_find(p, b->atom);
        const char *named = again >= 0 ? penman_concept(p, again) : NULL;
        if (!strcmp(b->role, "/")) continue;
        str_add(out, b->role);
        if (b->node >= 0)
            print_bare(out, p, b->node);
        else if (b->atom)
            str_addf(out, " %s", named ? named : b->atom);
    }
    str_add_char(out, ')');
}

void amr_print_bare(Str *out, const Penman *graph) {
    print_bare(out, graph, 0);
}

/* ---- rows ---- */

static json_t *message(const char *role, const char *text) {
    return json_pack("{s:s, s:s}", "role", role, "content", text);
}

/* What a user would have typed: the prompt without its last line end. */
static json_t *user_message(const Str *prompt) {
    int64_t len = prompt->len;
    while (len && prompt->data[len - 1] == '\n') len--;
    return json_pack("{s:s, s:s%}", "role", "user", "content", str_text(prompt), (size_t)len);
}

static json_t *prompt_row(const Str *prompt, const AmrBlock *b, int64_t index, bool chat) {
    json_t *id = json_pack("{s:I, s:s}", "block", (json_int_t)index, "sentence", b->sentence);
    if (chat) return json_pack("{s:[o], s:o}", "messages", user_message(prompt), "id", id);
    return json_pack("{s:s, s:o}", "text", str_text(prompt), "id", id);
}

json_t *amr_row(const AmrPrompt *p, const AmrBlock *b, int64_t index, AmrRowStyle style) {
    Str graph = {0}, bare = {0}, prompt = {0}, answer = {0};
    bool ok = fill(&prompt, p->prompt, &(Filling){.sentence = b->sentence}, NULL);
    if (!style.without_answer) {
        penman_print(&graph, &b->graph, style.layout);
        amr_print_bare(&bare, &b->graph);
        ok = ok && fill(&answer, p->answer, &(Filling){.graph = str_text(&graph), .bare = str_text(&bare)}, NULL);
    }
    CHECK(ok); /* amr_prompt_parse has seen it */
    json_t *row =
        style.without_answer ? prompt_row(&prompt, b, index, style.chat)
        : style.chat
            ? json_pack("{s:[o,o]}", "messages", user_message(&prompt), message("assistant", str_text(&answer)))
            : json_pack("{s:s, s:s}", "prompt", str_text(&prompt), "completion", str_text(&answer));
    str_free(&graph);
    str_free(&bare);
    str_free(&prompt);
    str_free(&answer);
    return row;
}
