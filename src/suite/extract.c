/* extract.c - the answer in a model's text, found by a pattern, and whether two answers are the same. */
#include <string.h>
#include <strings.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "suite/suite_int.h"

static void *heap_take(size_t bytes, void *user) {
    return mem_alloc((int64_t)bytes);
}
static void heap_give(void *block, void *user) {
    mem_free(block);
}

typedef struct Pattern {
    pcre2_code *code;
    pcre2_match_data *match;
} Pattern;

static void pattern_open(Pattern *p, const char *regex) {
    int error;
    PCRE2_SIZE at;
    pcre2_general_context *heap = pcre2_general_context_create(heap_take, heap_give, NULL);
    pcre2_compile_context *context = pcre2_compile_context_create(heap);
    p->code = pcre2_compile((PCRE2_SPTR)regex, PCRE2_ZERO_TERMINATED, 0, &error, &at, context);
    CHECK_MSG(p->code, "pattern \"%s\" of the table of tasks: error %d at %d", regex, error, (int)at);
    p->match = pcre2_match_data_create_from_pattern(p->code, heap);
    pcre2_compile_context_free(context);
    pcre2_general_context_free(heap);
}

static void pattern_close(Pattern *p) {
    pcre2_match_data_free(p->match);
    pcre2_code_free(p->code);
}

/* The first group of a match that holds something. */
static void take_group(Str *out, const Pattern *p, int groups, const char *text) {
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(p->match);
    str_clear(out);
    for (int g = 1; g < groups && !out->len; g++)
        if (at[2 * g] != PCRE2_UNSET) str_add_bytes(out, text + at[2 * g], (int64_t)(at[2 * g + 1] - at[2 * g]));
}

bool extract_answer(char **out, const AnswerFilter *f, const char *text, Err *e) {
    Pattern p;
    Str found = {0}, bare = {0};
    size_t n = strlen(text), from = 0;
    int groups = 0;
    pattern_open(&p, f->regex);
    while (from <= n && (groups = pcre2_match(p.code, (PCRE2_SPTR)text, n, from, 0, p.match, NULL)) > 0) {
        const PCRE2_SIZE *at = pcre2_get_ovector_pointer(p.match);
        take_group(&found, &p, groups, text);
        if (!f->last) break;
        from = MAX2(at[1], at[0] + 1);
    }
    pattern_close(&p);
    bool sound = groups >= 0 || groups == PCRE2_ERROR_NOMATCH;
    str_add_trimmed(&bare, found.len ? str_text(&found) : "[invalid]"); /* as the harness calls it */
    *out = mem_strdup(str_text(&bare));
    str_free(&found);
    str_free(&bare);
    return sound ||
           fail(e, ERR_FAIL, "an answer of %lld bytes could not be searched for \"%s\"", (long long)n, f->regex);
}

/* Without commas, dollar signs, what stands before the last "#### ", and a dot at the end. */
static void add_bare(Str *out, const char *text) {
    Str plain = {0};
    for (; *text; text++)
        if (*text != ',' && *text != '$') str_add_char(&plain, *text);
    const char *from = str_text(&plain);
    for (const char *mark; (mark = strstr(from, "#### ")); from = mark + strlen("#### ")) {
    }
    int64_t n = (int64_t)strlen(from), line = n && from[n - 1] == '\n'; /* of the last line */
    bool dot = n > line && from[n - 1 - line] == '.';
    str_add_bytes(out, from, n - line - dot);
    if (line) str_add_char(out, '\n');
    str_free(&plain);
}

bool extract_same(const char *answer, const char *reference) {
    Str a = {0}, b = {0};
    add_bare(&a, answer);
    add_bare(&b, reference);
    bool same = !strcasecmp(str_text(&a), str_text(&b));
    str_free(&a);
    str_free(&b);
    return same;
}

double extract_found(const char *text, const char *const *want, int n) {
    int found = 0;
    for (int i = 0; i < n; i++) found += strcasestr(text, want[i]) != NULL;
    return n ? (double)found / n : 0;
}
