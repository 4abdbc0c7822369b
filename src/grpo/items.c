/* items.c - the layouts of the data sets, and what a row of each becomes. */
#include "grpo/items.h"

#include <ctype.h>
#include <string.h>

#include "base/choose.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "data/field.h"
#include "data/pick.h"
#include "reason/answer.h"

enum { DRAWN_COUNT = 100, META_BYTES = 1 << 20, NAME_BYTES = 256, OPERAND_MOST = 100 };

typedef enum Kind { MATH, EASY_MATH, CLASSIFICATION, POEM, DRAWN, CUSTOM } Kind;

typedef struct Parser {
    const char *key;
    const char *prompt, *answer; /* fields, the first present one counts; NULL: none */
    const char *from;            /* where people get it */
} Parser;

static const Parser parsers[] = {
    [MATH] = {"math", "prompt,problem,question", "solution,answer,final_answer", "trl-lib/DeepMath-103K (train)"},
    [EASY_MATH] = {"easy_math", "question", "answer", "openai/gsm8k (main, train)"},
    [CLASSIFICATION] = {"classification", "title", "label", "sh0416/ag_news (train)"},
    [POEM] = {"poem", "INSTRUCTION,instruction,prompt", NULL, "checkai/instruction-poems (train)"},
    [DRAWN] = {"test", NULL, NULL, NULL},
    [CUSTOM] = {"custom", "prompt,question,problem,instruction", "answer,solution,gold,label,output",
                "your own rows"},
};

static bool find_parser(Kind *kind, const char *key, Err *e) {
    const char *names[COUNT_OF(parsers)];
    int which;
    for (int i = 0; i < COUNT_OF(parsers); i++) names[i] = parsers[i].key;
    bool ok = choose_name(&which, key, names, COUNT_OF(names), "parser", e);
    *kind = (Kind)which;
    return ok;
}

/* ---- fields ---- */

typedef struct Maker { /* how the rows of one file are read; settled by the first row */
    const ItemQuery *q;
    Kind kind;
    bool settled, has_answer;
    char prompt[NAME_BYTES], answer[NAME_BYTES]; /* fields */
    Items *out;
    uint64_t *hash;      /* [n] */
    int64_t longest_row; /* bytes */
} Maker;

/* The first name of a comma-separated list that the row has a field of; false: none. */
static bool first_present(char *name, const json_t *row, const char *list) {
    for (const char *at = list; at && *at;) {
        size_t n = strcspn(at, ",");
        snprintf(name, NAME_BYTES, "%.*s", (int)n, at);
        if (field_get(row, name)) return true;
        at += n + (at[n] == ',');
    }
    return false;
}

static bool fail_field(const json_t *row, const char *wanted, const char *option, Err *e) {
    Str has = {0};
    field_names(&has, row);
    fail(e, ERR_FAIL, "the row has no field '%s' (it has: %s). Name another with %s", wanted, str_text(&has),
         option);
    str_free(&has);
    return false;
}

static bool settle(Maker *m, const json_t *row, Err *e) {
    const Parser *p = &parsers[m->kind];
    const char *prompt = m->q->prompt_field && m->kind != CLASSIFICATION ? m->q->prompt_field : p->prompt;
    const char *answer = m->q->answer_field && m->kind != CLASSIFICATION ? m->q->answer_field : p->answer;
    if (!first_present(m->prompt, row, prompt)) return fail_field(row, prompt, "--prompt-field", e);
    m->has_answer = answer && first_present(m->answer, row, answer);
    bool must = m->kind != CUSTOM || m->q->answer_field;
    if (answer && !m->has_answer && must) return fail_field(row, answer, "--answer-field", e);
    return m->settled = true;
}

/* ---- prompts ---- */

static void add_turn(json_t *messages, const char *role, const char *text) {
    json_array_append_new(messages, json_pack("{s:s, s:s}", "role", role, "content", text));
}

static bool check_turn(const json_t *turn, const char *field, Err *e) {
    const json_t *role = json_object_get(turn, "role"), *content = json_object_get(turn, "content");
    if (!json_is_string(role) || !json_is_string(content))
        return fail(e, ERR_FAIL, "field '%s' must be text or a list of messages with text in role and content",
                    field);
    if (strlen(json_string_value(content)) != json_string_length(content))
        return fail(e, ERR_FAIL, "field '%s' holds a zero byte", field);
    return true;
}

/* The task: a text, or the last user's turn of a list of messages, which *list then is. */
static bool read_question(Str *question, const json_t **list, const json_t *row, const char *field, Err *e) {
    const json_t *v = field_get(row, field), *turn;
    size_t i;
    *list = NULL;
    if (!json_is_array(v)) {
        if (!field_text(question, row, field, e)) return false;
        return question->len > 0 || fail(e, ERR_FAIL, "field '%s' with the prompt is missing or empty", field);
    }
    *list = v;
    json_array_foreach(v, i, turn) {
        if (!check_turn(turn, field, e)) return false;
        if (strcmp(json_string_value(json_object_get(turn, "role")), "user") != 0) continue;
        str_clear(question);
        str_add_trimmed(question, json_string_value(json_object_get(turn, "content")));
    }
    return question->len > 0 || fail(e, ERR_FAIL, "field '%s' has no message of the user", field);
}

static void add_joined(Str *out, const char *meta, const char *task) {
    if (meta && *meta) str_addf(out, "%s\n\n", meta);
    str_add(out, task);
}

static json_t *made_messages(Kind kind, const char *meta, const char *task) {
    json_t *messages = json_array();
    Str user = {0};
    if (kind == MATH && meta && *meta) add_turn(messages, "system", meta);
    add_joined(&user, kind == MATH ? NULL : meta, task);
    add_turn(messages, "user", str_text(&user));
    str_free(&user);
    return messages;
}

/* The row's own messages, with the meta-prompt at the beginning of the system's. */
static json_t *given_messages(const json_t *list, const char *meta) {
    json_t *messages = json_array(), *turn, *first = json_array_get(list, 0);
    Str system = {0};
    size_t i;
    bool has_system = !strcmp(json_string_value(json_object_get(first, "role")), "system");
    add_joined(&system, meta, has_system ? json_string_value(json_object_get(first, "content")) : "");
    if (meta && *meta && !has_system) system.data[system.len -= 2] = 0;
    if (system.len) add_turn(messages, "system", str_text(&system));
    json_array_foreach((json_t *)list, i, turn) {
        if (i || !has_system)
            add_turn(messages, json_string_value(json_object_get(turn, "role")),
                     json_string_value(json_object_get(turn, "content")));
    }
    str_free(&system);
    return messages;
}

static char *plain_text(const json_t *messages) {
    Str text = {0};
    const json_t *turn;
    size_t i;
    json_array_foreach(messages, i, turn) {
        str_addf(&text, "%s%s", i ? "\n\n" : "", json_string_value(json_object_get(turn, "content")));
    }
    return text.data;
}

/* ---- golds ---- */

/* The number behind the last "####": sign kept, separators and what stands around it dropped. False: none. */
static bool number_after_hashes(Str *out, const char *answer) {
    const char *at = NULL;
    for (const char *p = answer; (p = strstr(p, "####")); p += 4) at = p + 4;
    if (!at) return false;
    while (*at && *at != '\n' && !isdigit((unsigned char)*at)) at++;
    if (!isdigit((unsigned char)*at)) return false;
    const char *before = at;
    if (before[-1] == '.') before--; /* ".5" */
    if (before[-1] == '$') before--; /* "-$5" */
    if (before[-1] == '-') str_add_char(out, '-');
    if (at[-1] == '.') str_add(out, "0.");
    for (; isdigit((unsigned char)*at) || ((*at == ',' || *at == '.') && isdigit((unsigned char)at[1])); at++)
        if (*at != ',') str_add_char(out, *at);
    return true;
}

static const char *const classes[] = {"World", "Sports", "Business", "Science/Technology"};

static bool add_class(Str *gold, const json_t *row, const char *field, Err *e) {
    Str label = {0};
    bool ok = field_text(&label, row, field, e);
    int which = label.len == 1 ? label.data[0] - '1' : -1;
    bool known = which >= 0 && which < COUNT_OF(classes);
    if (ok && !known)
        ok = fail(e, ERR_FAIL, "field '%s' is '%.20s', 1 to %d was expected", field, str_text(&label),
                  COUNT_OF(classes));
    if (ok && known) str_add(gold, classes[which]);
    str_free(&label);
    return ok;
}

static bool add_gold(Str *gold, const Maker *m, const json_t *row, Err *e) {
    Str answer = {0};
    if (!m->has_answer) return true;
    if (m->kind == CLASSIFICATION) return add_class(gold, row, m->answer, e);
    bool ok = field_text(&answer, row, m->answer, e);
    if (ok && m->kind == MATH)
        answer_final(gold, str_text(&answer));
    else if (ok && (m->kind != EASY_MATH || !number_after_hashes(gold, str_text(&answer))))
        str_add(gold, str_text(&answer));
    str_free(&answer);
    return ok;
}

/* ---- items ---- */

static bool add_article(Str *task, const json_t *row, Err *e) {
    str_add(task, "Assign this news article to one class. The classes are: ");
    for (int i = 0; i < COUNT_OF(classes); i++) str_addf(task, "%s%s", i ? ", " : "", classes[i]);
    str_add(task, ".\n\nTitle: ");
    if (!field_text(task, row, "title", e)) return false;
    str_add(task, "\nDescription: ");
    return field_text(task, row, "description", e);
}

/* What jansson takes for a value, with the allocator's headers. */
static int64_t json_heap_bytes(json_t *j) {
    enum { VALUE = 48, MEMBER = 112, TABLE = 256 };
    int64_t bytes = VALUE;
    const char *key;
    json_t *value;
    size_t i;
    if (json_is_string(j)) bytes += (int64_t)json_string_length(j) + 24;
    json_array_foreach(j, i, value) bytes += 16 + json_heap_bytes(value);
    if (json_is_object(j)) bytes += TABLE;
    json_object_foreach(j, key, value) bytes += MEMBER + (int64_t)strlen(key) + json_heap_bytes(value);
    return bytes;
}

static int64_t item_bytes(const Item *item) {
    int64_t bytes = (int64_t)sizeof *item + 3 * 24 + json_heap_bytes(item->columns);
    bytes += (int64_t)(strlen(item->question) + strlen(item->gold));
    return bytes + (item->text ? (int64_t)strlen(item->text) : json_heap_bytes(item->messages));
}

/* Keeps row. The item's messages are taken over. */
static void place_item(Maker *m, int64_t place, json_t *messages, const char *question, const char *gold,
                       json_t *row) {
    Item *item = &m->out->item[place];
    char *text = plain_text(messages);
    *item = (Item){.question = mem_strdup(question), .gold = mem_strdup(gold), .columns = json_incref(row)};
    item->length = (int64_t)strlen(text);
    m->hash[place] = rng_fold_text(rng_fold_text(0, text), gold);
    if (m->q->plain) {
        item->text = text;
        json_decref(messages);
    } else {
        item->messages = messages;
        mem_free(text);
    }
    m->out->bytes += item_bytes(item);
}

static bool take_row(void *user, json_t *row, int64_t place, Err *e) {
    Maker *m = user;
    Str question = {0}, gold = {0};
    const json_t *list = NULL;
    m->longest_row = MAX2(m->longest_row, (int64_t)json_dumpb(row, NULL, 0, JSON_COMPACT));
    if (!m->settled && !settle(m, row, e)) return false;
    if (place < 0) return true;
    bool ok = m->kind == CLASSIFICATION ? add_article(&question, row, e)
                                        : read_question(&question, &list, row, m->prompt, e);
    ok = ok && add_gold(&gold, m, row, e);
    if (ok) {
        bool given = list && m->kind == CUSTOM;
        json_t *messages = given ? given_messages(list, m->q->meta_prompt)
                                 : made_messages(m->kind, m->q->meta_prompt, str_text(&question));
        place_item(m, place, messages, str_text(&question), str_text(&gold), row);
    }
    str_free(&question);
    str_free(&gold);
    return ok;
}

static void draw_items(Maker *m) {
    Str question = {0}, gold = {0};
    for (int64_t i = 0; i < m->out->n; i++) {
        uint64_t key = rng_fold(m->q->seed, (uint64_t)i);
        int a = (int)(rng_u32(key, 0) % OPERAND_MOST), b = (int)(rng_u32(key, 1) % OPERAND_MOST);
        json_t *row = json_pack("{s:i, s:i}", "a", a, "b", b);
        str_clear(&question);
        str_clear(&gold);
        str_addf(&question, "What is %d + %d?", a, b);
        str_addf(&gold, "%d", a + b);
        place_item(m, i, made_messages(DRAWN, m->q->meta_prompt, question.data), question.data, gold.data, row);
        json_decref(row);
    }
    str_free(&question);
    str_free(&gold);
}

static void make_room(Maker *m, int64_t n) {
    m->out->n = n;
    m->out->item = MEM_NEW(Item, n + 1);
    m->hash = MEM_NEW(uint64_t, n + 1);
}

static bool read_file(Maker *m, Err *e) {
    const ItemQuery *q = m->q;
    int64_t rows;
    if (!pick_count(q->path, &rows, e)) return false;
    if (rows == 0) return fail(e, ERR_FAIL, "%s: holds no rows", q->path);
    make_room(m, q->count < 0 ? rows : MIN2(rows, q->count));
    int64_t *place = pick_places(rows, 0, m->out->n, q->shuffle, q->seed);
    bool ok = pick_rows(q->path, place, rows, take_row, m, e);
    mem_free(place);
    return ok;
}

static bool check_meta(const char *meta, Err *e) {
    json_t *text = json_string(meta ? meta : "");
    bool ok = text != NULL;
    json_decref(text);
    return ok || fail(e, ERR_USAGE, "the meta-prompt is not UTF-8");
}

bool items_read(Items *out, const ItemQuery *q, Err *e) {
    enum { ROW_SHARE = 4 }; /* of a row's text, while it is parsed and rendered */
    Maker m = {.q = q, .out = out};
    bool ok = true;
    *out = (Items){0};
    if (!check_meta(q->meta_prompt, e)) return false;
    if (!find_parser(&m.kind, q->parser, e)) return false;
    if (q->count == 0 || q->count < -1)
        return fail(e, ERR_USAGE, "%lld samples cannot be taken", (long long)q->count);
    if (m.kind == DRAWN) {
        make_room(&m, q->count < 0 ? DRAWN_COUNT : q->count);
        draw_items(&m);
    } else if (q->path) {
        ok = read_file(&m, e);
    } else {
        ok = fail(e, ERR_USAGE, "the parser %s reads a file: get %s as JSON lines and name it with --data",
                  parsers[m.kind].key, parsers[m.kind].from);
    }
    for (int64_t i = 0; ok && i < out->n; i++) out->hash = rng_fold(out->hash, m.hash[i]);
    out->bytes += ROW_SHARE * m.longest_row;
    mem_free(m.hash);
    if (!ok) items_free(out);
    return ok;
}

void items_free(Items *items) {
    for (int64_t i = 0; i < items->n; i++) {
        Item *item = &items->item[i];
        json_decref(item->messages);
        json_decref(item->columns);
        mem_free(item->text);
        mem_free(item->question);
        mem_free(item->gold);
    }
    mem_free(items->item);
    *items = (Items){0};
}

bool items_meta_prompt(Str *out, const char *value, Err *e) {
    Str file = {0};
    if (value[0] != '@') return str_add(out, value), true;
    if (!file_read(value + 1, &file, META_BYTES, e)) return fail_within(e, "--meta-prompt %s", value);
    bool ok = strlen(str_text(&file)) == (size_t)file.len ||
              fail(e, ERR_FAIL, "--meta-prompt %s: holds a zero byte", value);
    if (ok) str_add_trimmed(out, str_text(&file));
    str_free(&file);
    return ok;
}
