/* dataset_rows.c - the kinds of rows: how they are told apart, and how each becomes tokens with a score. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "data/dataset_int.h"

static const char *const id_names[] = {"ids", "input_ids", NULL};
static const char *const turn_names[] = {"conversations", "conversation", NULL};
static const char *const context_names[] = {"input", "context", NULL};
static const char *const prompt_names[] = {"prompt", "question", "query", "problem", "input", "source", NULL};
static const char *const answer_names[] = {"completion", "answer",   "response", "output",
                                           "target",     "solution", NULL};

/* ---- fields ---- */

static json_t *get(const json_t *row, const char *name) {
    json_t *v = name ? json_object_get(row, name) : NULL;
    return json_is_null(v) ? NULL : v;
}

/* The first of the names that the row has. */
static const char *first_of(const json_t *row, const char *const *names) {
    while (*names && !get(row, *names)) names++;
    return *names;
}

static const char *find_answer_field(const RowMaker *m, const json_t *row) {
    if (m->o->answer_field) return get(row, m->o->answer_field) ? m->o->answer_field : NULL;
    return first_of(row, answer_names);
}

static void list_fields(Str *out, const json_t *row) {
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)row, name, v) {
        if (out->len > 300) {
            str_add(out, ", ...");
            break;
        }
        str_addf(out, "%s%.60s", out->len ? ", " : "", name);
    }
}

static bool fail_missing(const json_t *row, const char *name, const char *why, Err *e) {
    Str has = {0};
    list_fields(&has, row);
    fail(e, ERR_FAIL, "field '%s' is missing (the row has: %s). %s", name, has.len ? has.data : "nothing", why);
    str_free(&has);
    return false;
}

static const char *type_text(const json_t *v) {
    switch (json_typeof(v)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "a list";
    case JSON_STRING: return "text";
    case JSON_INTEGER:
    case JSON_REAL: return "a number";
    case JSON_NULL: return "null";
    default: return "true or false";
    }
}

static bool need(const json_t **v, const json_t *row, const char *name, json_type type, Err *e) {
    *v = get(row, name);
    if (!*v) return fail_missing(row, name, "All rows of a file must be of one kind, the first row's", e);
    if (json_typeof(*v) == type) return true;
    return fail(e, ERR_FAIL, "field '%s' is %s, %s was expected", name, type_text(*v),
                type == JSON_STRING ? "text" : "a list");
}

static bool need_text(Str *out, const json_t *row, const char *name, Err *e) {
    const json_t *v;
    if (!need(&v, row, name, JSON_STRING, e)) return false;
    str_add_bytes(out, json_string_value(v), (int64_t)json_string_length(v));
    return true;
}

/* ---- a template with {fields} ---- */

static int add_bytes(const char *bytes, size_t n, void *out) {
    str_add_bytes(out, bytes, (int64_t)n);
    return 0;
}

/* Text goes in as it is, anything else as JSON. */
static bool add_field(Str *out, const json_t *row, const char *name, Err *e) {
    const json_t *v = get(row, name);
    if (!v) return fail_missing(row, name, "The template names it; {{ and }} stand for braces", e);
    if (json_is_string(v)) str_add_bytes(out, json_string_value(v), (int64_t)json_string_length(v));
    else json_dump_callback(v, add_bytes, out, JSON_ENCODE_ANY);
    return true;
}

static bool expand(Str *out, const char *text, const json_t *row, Err *e) {
    char name[128];
    for (const char *at = text; *at; at++) {
        if ((at[0] == '{' || at[0] == '}') && at[1] == at[0]) {
            str_add_char(out, *at++);
        } else if (*at == '{') {
            const char *end = strchr(at, '}');
            if (!end || end - at > (int64_t)sizeof name)
                return fail(e, ERR_USAGE,
                            "the template's '{' at character %d is not closed; {{ stands for a brace",
                            (int)(at - text) + 1);
            snprintf(name, sizeof name, "%.*s", (int)(end - at - 1), at + 1);
            if (!add_field(out, row, name, e)) return false;
            at = end;
        } else {
            str_add_char(out, *at);
        }
    }
    return true;
}

/* ---- telling the kinds apart ---- */

static void set_kind(RowMaker *m, DataKind kind, const char *name, const char *main, const char *answer) {
    m->kind = kind;
    m->main = main;
    m->answer = answer;
    str_clear(&m->kind_text);
    str_addf(&m->kind_text, "%s (field%s: %s%s%s)", name, answer ? "s" : "", main, answer ? ", " : "",
             answer ? answer : "");
}

static bool settle_fields(RowMaker *m, const json_t *row, Err *e) {
    const char *answer = find_answer_field(m, row);
    if (!m->o->answer_template && !answer)
        return fail_missing(row, m->o->answer_field ? m->o->answer_field : "answer",
                            "Name the field that holds the answer", e);
    m->kind = DATA_FIELDS;
    m->answer = answer;
    if (m->o->answer_template) str_add(&m->kind_text, "prompt and answer made by templates from the row's fields");
    else str_addf(&m->kind_text, "prompt made by a template from the row's fields, answer (field: %s)", answer);
    return true;
}

static bool settle_kind(RowMaker *m, const json_t *row, Err *e) {
    const char *name, *answer = find_answer_field(m, row);
    if (m->o->prompt_template) return settle_fields(m, row, e);
    if ((name = first_of(row, id_names))) {
        set_kind(m, DATA_IDS, "token ids", name, get(row, "labels") ? "labels" : NULL);
    } else if (get(row, "messages")) {
        set_kind(m, DATA_MESSAGES, "messages", "messages", NULL);
    } else if ((name = first_of(row, turn_names))) {
        set_kind(m, DATA_SHAREGPT, "ShareGPT conversations", name, NULL);
    } else if (get(row, "instruction") && answer) {
        set_kind(m, DATA_ALPACA, "Alpaca", "instruction", answer);
    } else if ((name = first_of(row, prompt_names)) && answer && strcmp(name, answer)) {
        if (json_is_array(get(row, name))) set_kind(m, DATA_MESSAGES, "messages", name, answer);
        else set_kind(m, DATA_PROMPT, "prompt and answer", name, answer);
    } else if (get(row, "text") && !m->o->answer_field) {
        set_kind(m, DATA_TEXT, "plain text", "text", NULL);
    } else {
        return fail_missing(row, m->o->answer_field ? m->o->answer_field : "text",
                            "Known kinds: messages, prompt and completion, question and answer, instruction and "
                            "output, conversations, text, ids; --prompt-template makes a prompt of other fields",
                            e);
    }
    return true;
}

static bool settle_template(RowMaker *m, Err *e) {
    const DataOptions *o = m->o;
    bool turns = m->kind == DATA_MESSAGES || m->kind == DATA_SHAREGPT;
    bool bare = m->kind == DATA_IDS || m->kind == DATA_TEXT;
    if (m->kind != DATA_IDS && !o->tokenizer)
        return fail(e, ERR_FAIL,
                    "text can only be encoded with the model's tokenizer, and the model has none. "
                    "Rows of ids need no tokenizer");
    if (bare && o->template_mode == TEMPLATE_CHAT)
        return fail(e, ERR_USAGE, "--template chat needs prompts and answers, the rows are %s", m->kind_text.data);
    if (turns && o->template_mode == TEMPLATE_NONE)
        return fail(e, ERR_USAGE,
                    "messages can only be rendered by the model's chat template: leave --template none "
                    "away, or give rows of prompt and completion");
    m->chat = turns || (!bare && o->template_mode == TEMPLATE_CHAT);
    if (m->chat && !o->chat)
        return fail(e, ERR_FAIL,
                    "the model has no chat template to render messages with. Give a model that has one (an "
                    "Instruct model), or rows of prompt and completion with --template none");
    if (m->chat) str_add(&m->kind_text, ", rendered by the model's chat template");
    else if (m->kind == DATA_ALPACA) str_add(&m->kind_text, ", in a plain wording");
    else if (!bare) str_add(&m->kind_text, ", joined as they are");
    m->settled = true;
    return true;
}

/* ---- encoding ---- */

static void put(Sample *s, uint32_t token) {
    s->token = mem_grow(s->token, &s->capacity, s->n + 1, sizeof *s->token);
    s->token[s->n++] = token;
}

static bool put_ids(RowMaker *m, Sample *s, const int32_t *ids, int64_t n, bool scored, Err *e) {
    for (int64_t i = 0; i < n; i++) {
        if (ids[i] >= m->o->vocab) {
            const char *piece = tokenizer_piece(m->o->tokenizer, ids[i]);
            return fail(e, ERR_FAIL,
                        "token %d ('%.60s') is not below the model's vocabulary of %lld ids. Is this the "
                        "model's own tokenizer?",
                        ids[i], piece ? piece : "", (long long)m->o->vocab);
        }
        put(s, (uint32_t)ids[i] | (scored ? SCORED : 0));
    }
    return true;
}

/* Tokenizers of the SentencePiece family put a space before every text they are given. Text that goes on from
 * other text must not get one, so it is encoded behind a line end, whose ids are then taken away. */
static bool encode_inside(RowMaker *m, const char *text, int64_t bytes, int64_t *skip, Err *e) {
    const TokenIds *a = &m->anchor;
    str_clear(&m->more);
    str_add_char(&m->more, '\n');
    str_add_bytes(&m->more, text, bytes);
    if (!tokenizer_encode(m->o->tokenizer, &m->ids, m->more.data, m->more.len, TOKENIZE_PLAIN, e)) return false;
    if (a->n && m->ids.n >= a->n && !memcmp(m->ids.ids, a->ids, sizeof *a->ids * (size_t)a->n)) {
        *skip = a->n;
        return true;
    }
    m->ids.n = 0; /* the line end melted into the text: rather a space too many than a wrong cut */
    return tokenizer_encode(m->o->tokenizer, &m->ids, text, bytes, TOKENIZE_PLAIN, e);
}

bool dataset_encode(RowMaker *m, Sample *s, const char *text, int64_t bytes, bool inside, bool scored, Err *e) {
    int64_t skip = 0;
    m->ids.n = 0;
    if (!bytes) return true;
    bool ok = inside && m->marks_start
                  ? encode_inside(m, text, bytes, &skip, e)
                  : tokenizer_encode(m->o->tokenizer, &m->ids, text, bytes, TOKENIZE_PLAIN, e);
    return ok && put_ids(m, s, m->ids.ids + skip, m->ids.n - skip, scored, e);
}

static void put_end(RowMaker *m, Sample *s) {
    uint32_t end = (uint32_t)m->o->eos_id | SCORED;
    if (m->o->eos_id >= 0 && s->token[s->n - 1] != end) put(s, end); /* some texts bring their own */
}

/* What the post-processor puts before a text, and whether a text put behind another gains a space. */
static bool learn_tokenizer(RowMaker *m, Err *e) {
    const Tokenizer *t = m->o->tokenizer;
    TokenIds plain = {0}, special = {0};
    Str text = {0};
    bool ok = tokenizer_encode(t, &plain, "a", 1, TOKENIZE_PLAIN, e) &&
              tokenizer_encode(t, &special, "a", 1, TOKENIZE_ADD_SPECIAL, e) &&
              tokenizer_encode(t, &m->anchor, "\n", 1, TOKENIZE_PLAIN, e);
    int64_t at = 0, n = plain.n, bytes = n * (int64_t)sizeof *plain.ids;
    while (ok && n && at + n < special.n && memcmp(special.ids + at, plain.ids, (size_t)bytes)) at++;
    for (int64_t i = 0; ok && i < at; i++) token_ids_add(&m->prefix, special.ids[i]);
    ok = ok && tokenizer_encode(t, &plain, "a", 1, TOKENIZE_PLAIN, e) &&
         tokenizer_decode(t, &text, plain.ids, plain.n, false, e);
    m->marks_start = strchr(str_text(&text), ' ') != NULL;
    token_ids_free(&plain);
    token_ids_free(&special);
    str_free(&text);
    return ok;
}

/* ---- samples ---- */

static bool make_ids(RowMaker *m, Sample *s, const json_t *row, Err *e) {
    const json_t *ids, *labels = get(row, "labels"), *mask = get(row, "attention_mask");
    if (!need(&ids, row, m->main, JSON_ARRAY, e)) return false;
    if ((labels && !need(&labels, row, "labels", JSON_ARRAY, e)) ||
        (mask && !need(&mask, row, "attention_mask", JSON_ARRAY, e)))
        return false;
    size_t n = json_array_size(ids);
    if ((labels && json_array_size(labels) != n) || (mask && json_array_size(mask) != n))
        return fail(e, ERR_FAIL, "'%s' and '%s' are of different lengths", m->main,
                    labels && json_array_size(labels) != n ? "labels" : "attention_mask");
    bool padding = false;
    for (size_t i = 0; i < n; i++) {
        const json_t *j = json_array_get(ids, i), *l = labels ? json_array_get(labels, i) : j;
        json_int_t id = json_integer_value(j), label = json_integer_value(l);
        if (!json_is_integer(j) || !json_is_integer(l))
            return fail(e, ERR_FAIL, "'%s' holds something else than whole numbers at place %zu",
                        json_is_integer(j) ? "labels" : m->main, i);
        if (id < 0 || id >= m->o->vocab)
            return fail(e, ERR_FAIL, "id %lld at place %zu is not in the model's vocabulary of %lld ids",
                        (long long)id, i, (long long)m->o->vocab);
        if (label != id && label != -100 && label != -1)
            return fail(e, ERR_FAIL,
                        "label %lld at place %zu is neither the id there (%lld) nor -100. Labels stand "
                        "beside their ids; they are not shifted",
                        (long long)label, i, (long long)id);
        const json_t *seen = mask ? json_array_get(mask, i) : NULL;
        bool real = !mask || json_is_true(seen) || json_integer_value(seen);
        if (real && padding)
            return fail(e, ERR_FAIL, "'attention_mask' has a hole: only padding at the end can be cut off");
        padding = !real;
        if (real) put(s, (uint32_t)id | (label == id ? SCORED : 0));
    }
    s->plain = !labels;
    return true;
}

bool dataset_make_text(RowMaker *m, Sample *s, const char *text, int64_t bytes, Err *e) {
    s->n = 0;
    s->end_id = -1;
    s->plain = true;
    if (!put_ids(m, s, m->prefix.ids, m->prefix.n, false, e) || !dataset_encode(m, s, text, bytes, false, true, e))
        return false;
    if (m->ids.n) put_end(m, s);
    return true;
}

/* m->prompt and m->reply, through the chat template or joined as they are. */
static bool make_pair(RowMaker *m, Sample *s, Err *e) {
    const char *prompt = str_text(&m->prompt), *reply = str_text(&m->reply);
    if (m->chat && m->reply.len) {
        json_t *turns = json_array();
        json_array_append_new(turns, dataset_turn("user", prompt, m->prompt.len));
        json_array_append_new(turns, dataset_turn("assistant", reply, m->reply.len));
        bool ok = dataset_make_chat(m, s, turns, NULL, 0, e);
        json_decref(turns);
        return ok;
    }
    if (!put_ids(m, s, m->prefix.ids, m->prefix.n, false, e) ||
        !dataset_encode(m, s, prompt, m->prompt.len, false, false, e))
        return false;
    int64_t before = s->n;
    if (!dataset_encode(m, s, reply, m->reply.len, m->prompt.len > 0, true, e)) return false;
    if (s->n > before) put_end(m, s);
    s->end_id = m->o->eos_id;
    return true;
}

static bool make_alpaca(RowMaker *m, Sample *s, const json_t *row, Err *e) {
    const char *context = first_of(row, context_names);
    if (!m->chat) str_add(&m->prompt, "Instruction:\n");
    if (!need_text(&m->prompt, row, m->main, e) || !need_text(&m->reply, row, m->answer, e)) return false;
    if (context && !need_text(&m->part, row, context, e)) return false;
    if (m->part.len) str_addf(&m->prompt, "\n\n%s", m->chat ? "" : "Input:\n");
    str_add_bytes(&m->prompt, str_text(&m->part), m->part.len);
    if (!m->chat) str_add(&m->prompt, "\n\nAnswer:\n");
    return make_pair(m, s, e);
}

static bool make_fields(RowMaker *m, Sample *s, const json_t *row, Err *e) {
    if (!expand(&m->prompt, m->o->prompt_template, row, e)) return false;
    bool ok = m->o->answer_template ? expand(&m->reply, m->o->answer_template, row, e)
                                    : need_text(&m->reply, row, m->answer, e);
    return ok && make_pair(m, s, e);
}

static bool collect_turns(RowMaker *m, json_t *turns, int64_t *score_from, const json_t *row, Err *e) {
    const json_t *list, *system = m->kind == DATA_SHAREGPT ? get(row, "system") : NULL;
    if (system && !json_is_string(system))
        return fail(e, ERR_FAIL, "field 'system' is %s, text was expected", type_text(system));
    if (system && json_string_length(system))
        json_array_append_new(
            turns, dataset_turn("system", json_string_value(system), (int64_t)json_string_length(system)));
    if (!need(&list, row, m->main, JSON_ARRAY, e) || !dataset_add_turns(turns, list, m->main, e)) return false;
    if (!m->answer) return true;
    *score_from = (int64_t)json_array_size(turns);
    return need(&list, row, m->answer, JSON_ARRAY, e) && dataset_add_turns(turns, list, m->answer, e);
}

static bool make_turns(RowMaker *m, Sample *s, const json_t *row, Err *e) {
    const json_t *tools = get(row, "tools");
    if (tools && !need(&tools, row, "tools", JSON_ARRAY, e)) return false;
    int64_t score_from = 0;
    json_t *turns = json_array();
    bool ok = collect_turns(m, turns, &score_from, row, e) && dataset_make_chat(m, s, turns, tools, score_from, e);
    json_decref(turns);
    return ok;
}

bool dataset_make_sample(RowMaker *m, Sample *s, const json_t *row, Err *e) {
    const json_t *text;
    if (!m->settled && !(settle_kind(m, row, e) && settle_template(m, e))) return false;
    s->n = 0;
    s->end_id = -1;
    s->plain = s->last_only = false;
    str_clear(&m->prompt);
    str_clear(&m->reply);
    str_clear(&m->part);
    switch (m->kind) {
    case DATA_IDS: return make_ids(m, s, row, e);
    case DATA_MESSAGES:
    case DATA_SHAREGPT: return make_turns(m, s, row, e);
    case DATA_ALPACA: return make_alpaca(m, s, row, e);
    case DATA_FIELDS: return make_fields(m, s, row, e);
    case DATA_PROMPT:
        return need_text(&m->prompt, row, m->main, e) && need_text(&m->reply, row, m->answer, e) &&
               make_pair(m, s, e);
    case DATA_TEXT:
        return need(&text, row, m->main, JSON_STRING, e) &&
               dataset_make_text(m, s, json_string_value(text), (int64_t)json_string_length(text), e);
    }
    return false;
}

/* ---- the maker ---- */

bool dataset_settle_file(RowMaker *m, Err *e) {
    m->kind = DATA_TEXT;
    str_add(&m->kind_text, "plain text (one document)");
    return settle_template(m, e);
}

bool dataset_maker_init(RowMaker *m, const DataOptions *o, Err *e) {
    *m = (RowMaker){.o = o, .vars = json_object()};
    if (o->bos_text) json_object_set_new(m->vars, "bos_token", json_string(o->bos_text));
    if (o->eos_text) json_object_set_new(m->vars, "eos_token", json_string(o->eos_text));
    json_object_set_new(m->vars, "documents", json_null());
    if (!o->tokenizer || learn_tokenizer(m, e)) return true;
    dataset_maker_free(m);
    return false;
}

void dataset_maker_free(RowMaker *m) {
    json_decref(m->vars);
    TokenIds *ids[] = {&m->prefix, &m->anchor, &m->ids};
    for (int i = 0; i < COUNT_OF(ids); i++) token_ids_free(ids[i]);
    Str *texts[] = {&m->kind_text, &m->prompt, &m->reply, &m->more, &m->full, &m->part};
    for (int i = 0; i < COUNT_OF(texts); i++) str_free(texts[i]);
}
