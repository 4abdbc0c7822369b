/* generate_prompts.c - how a row becomes a prompt, and which prompts cannot be answered. */
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/rng.h"
#include "cli/generate.h"
#include "data/rows.h"
#include "data/source.h"

enum { NAMED_LINES = 20 }; /* of those that failed */
enum { ROW_SHARE = 4 };    /* of the longest row while it is read: parsed, rendered, normalised, its ids growing */

/* ---- reading ---- */

static Prompt *add_prompt(Prompts *p, const GenSetup *g, int64_t line) {
    p->item = mem_grow(p->item, &p->capacity, p->n + 1, sizeof *p->item);
    Prompt *q = &p->item[p->n];
    *q = (Prompt){.seed = rng_fold((uint64_t)opt_int(g->o, OPT_SEED), (uint64_t)p->n), .line = line};
    p->n++;
    return q;
}

static bool encode_text(Prompt *p, const GenSetup *g, const char *text, int64_t bytes, Err *e) {
    bool chat = opt_is(g->o, OPT_TEMPLATE, "chat");
    return (chat ? gen_setup_encode_turn : gen_setup_encode_text)(g, &p->ids, text, bytes, e);
}

static bool take_ids(Prompt *p, const json_t *ids, Err *e) {
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *id = json_array_get(ids, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) > INT32_MAX)
            return fail(e, ERR_FAIL, "ids[%zu] is not a token id", i);
        token_ids_add(&p->ids, (int32_t)json_integer_value(id));
    }
    return true;
}

static bool take_row(Prompt *p, const GenSetup *g, const json_t *row, Err *e) {
    const json_t *ids = json_object_get(row, "ids"), *messages = json_object_get(row, "messages"),
                 *text = json_object_get(row, "text");
    const json_t *seed = json_object_get(row, "seed"), *most = json_object_get(row, "max_tokens"),
                 *id = json_object_get(row, "id");
    if (!ids) ids = json_object_get(row, "input_ids");
    if (!text) text = json_object_get(row, "prompt");
    if (json_is_integer(seed)) p->seed = rng_fold((uint64_t)json_integer_value(seed), 0);
    if (most && (!json_is_integer(most) || json_integer_value(most) < 1))
        return fail(e, ERR_FAIL, "max_tokens is not a whole number above 0");
    p->max_new = json_integer_value(most);
    p->id = id ? json_incref((json_t *)id) : NULL;
    if (json_is_array(ids)) return take_ids(p, ids, e);
    if (json_is_array(messages)) return gen_setup_encode_chat(g, &p->ids, messages, e);
    if (json_is_string(text)) return encode_text(p, g, json_string_value(text), (int64_t)json_string_length(text), e);
    return fail(e, ERR_FAIL, "the row has neither prompt nor text, messages (a list) or ids (a list)");
}

bool prompts_add(Prompts *p, const GenSetup *g, const json_t *row, int64_t line, Err *e) {
    return take_row(add_prompt(p, g, line), g, row, e);
}

static bool is_blank(const char *text, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (!strchr(" \t\r", text[i]) || !text[i]) return false;
    return true;
}

/* What to do about a line that is not JSON; why: the library's message. */
static const char *line_hint(const char *line, int64_t bytes, const char *why) {
    const char *cause = dataset_json_cause(line, bytes, why);
    if (cause) return cause;
    if (strstr(why, "premature end of input") || strstr(why, "near end of file"))
        return "Each line must hold one object, and this one does not end on its line (jq -c . FILE > FILE.jsonl)";
    return "Each line must hold one object, such as {\"prompt\": \"...\"}; lines of text become that by: jq -Rc "
           "'{prompt: .}' FILE > FILE.jsonl";
}

static bool take_line(Prompts *p, const GenSetup *g, const char *line, int64_t bytes, int64_t number, Err *e) {
    json_error_t je;
    json_t *row = json_loadb(line, (size_t)bytes, JSON_ALLOW_NUL, &je);
    if (!row) return fail(e, ERR_FAIL, "is not JSON: %s. %s", je.text, line_hint(line, bytes, je.text));
    if (json_is_array(row)) {
        json_decref(row);
        return fail(e, ERR_FAIL, "is a list, and each line must hold one object; its rows become that by: jq -c '.[]' "
                                 "FILE > FILE.jsonl");
    }
    p->longest_row = MAX2(p->longest_row, bytes);
    bool ok = prompts_add(p, g, row, number, e);
    json_decref(row);
    return ok;
}

static bool read_rows(Prompts *p, const GenSetup *g, const Str *text, Err *e) {
    int64_t number = 1;
    for (int64_t at = str_mark(str_text(text), text->len); at < text->len; number++) {
        const char *line = text->data + at, *end = memchr(line, '\n', (size_t)(text->len - at));
        int64_t len = end ? end - line : text->len - at;
        if (!is_blank(line, len) && !take_line(p, g, line, len, number, e))
            return fail_within(e, "%s:%lld", p->path, (long long)number);
        at += len + 1;
    }
    return p->n || fail(e, ERR_FAIL, "%s: holds no prompts", p->path);
}

static uint64_t hash_of(const Prompts *p) {
    uint64_t h = 0;
    for (int64_t i = 0; i < p->n; i++) {
        const Prompt *q = &p->item[i];
        h = rng_fold(rng_fold(rng_fold(h, q->seed), (uint64_t)q->max_new), (uint64_t)q->ids.n);
        for (int64_t k = 0; k < q->ids.n; k++) h = rng_fold(h, (uint64_t)q->ids.ids[k]);
    }
    return h;
}

void prompts_added(Prompts *p, int64_t read_bytes) {
    int64_t words = 0;
    p->bytes = read_bytes + ROW_SHARE * p->longest_row + p->capacity * (int64_t)sizeof(Prompt);
    for (int64_t i = 0; i < p->n; i++) {
        p->bytes += p->item[i].ids.capacity * 4;
        words = MAX2(words, p->item[i].ids.word_bytes);
    }
    p->bytes += words;
    p->hash = hash_of(p);
}

static bool read_input(Str *to, Err *e) {
    char some[4096];
    for (int64_t got = 1; got > 0;) {
        if (!file_read_some(STDIN_FILENO, some, &got, sizeof some, "standard input", e)) return false;
        str_add_bytes(to, some, got);
    }
    return true;
}

bool prompts_read(Prompts *p, const GenSetup *g, Err *e) {
    const char *one = opt_text(g->o, OPT_PROMPT), *file = opt_text(g->o, OPT_PROMPTS);
    *p = (Prompts){0};
    if (!one == !file) return fail(e, ERR_USAGE, "generate needs --prompt TEXT or --prompts FILE.jsonl (one of them)");
    if (one) return encode_text(add_prompt(p, g, 0), g, one, (int64_t)strlen(one), e);
    Str text = {0};
    bool from_input = !strcmp(file, "-");
    p->path = from_input ? "standard input" : file;
    bool ok = from_input ? read_input(&text, e) : file_read(file, &text, 0, e);
    ok = ok && source_check_text(p->path, str_text(&text), text.len, e) && read_rows(p, g, &text, e);
    prompts_added(p, text.len);
    str_free(&text);
    return ok;
}

void prompts_free(Prompts *p) {
    for (int64_t i = 0; i < p->n; i++) {
        token_ids_free(&p->item[i].ids);
        json_decref(p->item[i].id);
        mem_free(p->item[i].error);
    }
    mem_free(p->item);
}

/* ---- those that cannot be answered ---- */

void prompts_fail(Prompts *p, int64_t i, const char *error) {
    if (p->item[i].error) return;
    p->item[i].error = mem_strdup(error);
    p->n_bad++;
}

/* The most tokens that a prompt and its answer may have: --context, the model's positions; 0: no limit is known. */
static int64_t limit_of(const GenSetup *g) {
    int64_t known = g->model.config.max_positions;
    if (!opt_given(g->o, OPT_CONTEXT)) return known;
    return known ? MIN2(known, opt_int(g->o, OPT_CONTEXT)) : opt_int(g->o, OPT_CONTEXT);
}

int64_t prompts_most_new(const Prompt *p, const GenSetup *g) {
    int64_t most = p->max_new ? p->max_new : opt_int(g->o, OPT_MAX_TOKENS), limit = limit_of(g);
    bool asked = p->max_new || opt_given(g->o, OPT_MAX_TOKENS); /* otherwise as long as there is room */
    return asked || !limit ? most : MAX2(1, MIN2(most, limit - p->ids.n));
}

/* Where a prompt stands, for messages: "p.jsonl:3: ". */
static void add_place(Str *to, const Prompts *p, const Prompt *q) {
    if (p->path) str_addf(to, "%s:%lld: ", p->path, (long long)q->line);
}

static void describe_too_long(Str *why, int64_t tokens, int64_t most, const GenSetup *g) {
    int64_t limit = limit_of(g);
    bool by_model = limit == g->model.config.max_positions;
    str_addf(why, "%lld tokens of prompt and %lld of answer are more than ", (long long)tokens, (long long)most);
    if (by_model) str_addf(why, "the %lld positions that this model knows", (long long)limit);
    else str_addf(why, "the context of %lld", (long long)limit);
    str_addf(why, "; shorten it, or give a %ssmaller --max-tokens", by_model ? "" : "larger --context or a ");
}

static void check_prompt(Prompts *p, int64_t i, const GenSetup *g) {
    const Prompt *q = &p->item[i];
    int64_t vocab = g->model.config.vocab, most = prompts_most_new(q, g), limit = limit_of(g), bad = -1;
    for (int64_t k = 0; k < q->ids.n && bad < 0; k++)
        if (q->ids.ids[k] >= vocab) bad = k;
    if (q->ids.n && bad < 0 && (!limit || q->ids.n + most <= limit)) return;
    Str why = {0};
    add_place(&why, p, q);
    if (!q->ids.n)
        str_add(&why, "the prompt has no tokens");
    else if (bad >= 0)
        str_addf(&why, "id %d at place %lld is not one of the model's %lld tokens", q->ids.ids[bad], (long long)bad,
                 (long long)vocab);
    else
        describe_too_long(&why, q->ids.n, most, g);
    prompts_fail(p, i, str_text(&why));
    str_free(&why);
}

bool prompts_plan(Prompts *p, GenSetup *g, Err *e) {
    int64_t longest = 2;
    const Prompt *first = NULL;
    for (int64_t i = 0; i < p->n; i++) {
        const Prompt *q = &p->item[i];
        check_prompt(p, i, g);
        if (!q->error) longest = MAX2(longest, q->ids.n + prompts_most_new(q, g));
        else if (!first) first = q;
    }
    g->spec.context = opt_given(g->o, OPT_CONTEXT) ? opt_int(g->o, OPT_CONTEXT) : longest;
    if (!first || p->n_bad < p->n) return true;
    return fail(e, ERR_FAIL, "%s%s", first->error, p->n > 1 ? ". No other prompt can be answered either" : "");
}

void prompts_describe_bad(Str *out, const Prompts *p) {
    int64_t named = 0;
    str_addf(out, "%lld of %lld prompts %s not answered: ", (long long)p->n_bad, (long long)p->n,
             p->n_bad == 1 ? "was" : "were");
    for (int64_t i = 0; i < p->n && named < NAMED_LINES; i++) {
        if (!p->item[i].error) continue;
        if (!named && (p->n_bad == 1 || !p->path)) str_add(out, p->item[i].error);
        else if (!named) str_addf(out, "%s, lines %lld", p->path, (long long)p->item[i].line);
        else str_addf(out, ", %lld", (long long)p->item[i].line);
        named++;
    }
    if (named < p->n_bad) str_addf(out, " and %lld more", (long long)(p->n_bad - named));
    if (p->n_bad > 1) str_add(out, "; their lines hold an \"error\"");
}
