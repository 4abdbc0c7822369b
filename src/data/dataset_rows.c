/* dataset_rows.c - how a row of each kind becomes tokens with a score. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "data/dataset_int.h"

static const char *const context_names[] = {"input", "context", NULL};

/* ---- fields ---- */

const char *dataset_type_text(json_type type) {
    switch (type) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "a list";
    case JSON_STRING: return "text";
    case JSON_INTEGER:
    case JSON_REAL: return "a number";
    case JSON_NULL: return "null";
    default: return "true or false";
    }
}

static bool need(RowField **f, Row *row, const char *name, json_type type, Err *e) {
    *f = row_get(row, name);
    if (!*f)
        return dataset_fail_missing(
            row, name,
            type == JSON_STRING
                ? "Text was expected there: all rows of a file must be of one kind, the first row's"
                : "A list was expected there: all rows of a file must be of one kind, the first row's",
            e);
    if ((*f)->type == type) return true;
    return fail(e, ERR_FAIL, "field '%s' is %s, %s was expected", name, dataset_type_text((*f)->type),
                type == JSON_STRING ? "text" : "a list");
}

bool dataset_need_text(const char **text, int64_t *bytes, Row *row, const char *name, Err *e) {
    RowField *f;
    if (!need(&f, row, name, JSON_STRING, e)) return false;
    *text = row_text(f, bytes);
    return true;
}

/* ---- a template with {fields} ---- */

/* Text goes in as it is, anything else as JSON. */
static bool add_field(Str *out, Row *row, const char *name, Err *e) {
    RowField *f = row_get(row, name);
    if (!f) return dataset_fail_missing(row, name, "The template names it; {{ and }} stand for braces", e);
    int64_t bytes;
    if (f->type == JSON_STRING) {
        const char *text = row_text(f, &bytes);
        str_add_bytes(out, text, bytes);
        return true;
    }
    json_t *v = row_value(f);
    json_print(out, v, JSON_ENCODE_ANY);
    json_decref(v);
    return true;
}

static bool expand(Str *out, const char *text, Row *row, Err *e) {
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

enum { TEXT_BYTES = 1 << 16 }; /* encoded at a time */

static bool take_ids(RowMaker *m, Sample *s, bool scored, Err *e) {
    bool ok = put_ids(m, s, m->ids.ids, m->ids.n, scored, e);
    m->ids.n = 0;
    return ok;
}

static bool encode_text(RowMaker *m, Sample *s, const char *text, int64_t bytes, bool scored, Err *e) {
    bool ok = true;
    m->ids.n = 0;
    for (int64_t at = 0; ok && at < bytes; at += TEXT_BYTES)
        ok = token_stream_put(m->stream, &m->ids, text + at, MIN2(bytes - at, TEXT_BYTES), e) &&
             take_ids(m, s, scored, e);
    ok = ok && token_stream_end(m->stream, &m->ids, e) && take_ids(m, s, scored, e);
    if (!ok) token_stream_reset(m->stream);
    return ok;
}

/* Tokenizers of the SentencePiece family put a space before every text they are given. Text that goes on from
 * other text must not get one, so it is encoded behind a line end, whose ids are then taken away. */
static bool encode_inside(RowMaker *m, Sample *s, const char *text, int64_t bytes, bool scored, Err *e) {
    const TokenIds *a = &m->anchor;
    str_clear(&m->more);
    str_add_char(&m->more, '\n');
    str_add_bytes(&m->more, text, bytes);
    int64_t before = s->n;
    if (!encode_text(m, s, m->more.data, m->more.len, scored, e)) return false;
    bool found = a->n && s->n - before >= a->n;
    for (int64_t i = 0; found && i < a->n; i++) found = (s->token[before + i] & ~SCORED) == (uint32_t)a->ids[i];
    if (found) {
        s->n -= a->n;
        memmove(s->token + before, s->token + before + a->n, sizeof *s->token * (size_t)(s->n - before));
        return true;
    }
    s->n = before; /* the line end melted into the text: rather a space too many than a wrong cut */
    return encode_text(m, s, text, bytes, scored, e);
}

bool dataset_encode(RowMaker *m, Sample *s, const char *text, int64_t bytes, bool inside, bool scored, Err *e) {
    if (!bytes) return true;
    return inside && m->marks_start ? encode_inside(m, s, text, bytes, scored, e)
                                    : encode_text(m, s, text, bytes, scored, e);
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

/* One of the lists beside the ids: the number for the next of them. */
typedef struct IdList {
    const char *name;
    RowField *field; /* NULL: absent */
    int64_t at;
} IdList;

static bool open_list(IdList *l, Row *row, const char *name, bool needed, Err *e) {
    *l = (IdList){.name = name};
    return (!needed && !row_get(row, name)) || need(&l->field, row, name, JSON_ARRAY, e);
}

static bool check_id(const RowMaker *m, int64_t id, int64_t label, int64_t place, Err *e) {
    if (id < 0 || id >= m->o->vocab)
        return fail(e, ERR_FAIL, "id %lld at place %lld is not in the model's vocabulary of %lld ids",
                    (long long)id, (long long)place, (long long)m->o->vocab);
    return label == id || label == -100 || label == -1 ||
           fail(e, ERR_FAIL,
                "label %lld at place %lld is neither the id there (%lld) nor -100. Labels stand "
                "beside their ids; they are not shifted",
                (long long)label, (long long)place, (long long)id);
}

/* A mask is of numbers, or of true and false. */
static bool next_mask(IdList *l, int64_t place, bool *real) {
    int64_t number;
    if (l->field->type == JSON_ARRAY && row_next_integer(l->field, &l->at, &number)) return *real = number != 0, true;
    return row_next_bool(l->field, &l->at, real);
}

static bool different_lengths(const RowMaker *m, const IdList *l, Err *e) {
    return fail(e, ERR_FAIL, "'%s' and '%s' are of different lengths", m->main, l->name);
}

static bool make_ids(RowMaker *m, Sample *s, Row *row, Err *e) {
    IdList ids, labels, mask;
    if (!open_list(&ids, row, m->main, true, e) || !open_list(&labels, row, "labels", false, e) ||
        !open_list(&mask, row, "attention_mask", false, e))
        return false;
    bool padding = false;
    for (int64_t place = 0, id, label; row_next_integer(ids.field, &ids.at, &id); place++) {
        bool real = true;
        label = id;
        if (labels.field && !row_next_integer(labels.field, &labels.at, &label)) {
            if (row_at_end(labels.field, labels.at)) return different_lengths(m, &labels, e);
            return fail(e, ERR_FAIL, "'labels' holds something else than whole numbers at place %lld",
                        (long long)place);
        }
        if (mask.field && !next_mask(&mask, place, &real)) return different_lengths(m, &mask, e);
        if (!check_id(m, id, label, place, e)) return false;
        if (real && padding)
            return fail(e, ERR_FAIL, "'attention_mask' has a hole: only padding at the end can be cut off");
        padding = !real;
        if (real) put(s, (uint32_t)id | (label == id ? SCORED : 0));
        s->places = place + 1;
    }
    if (!row_at_end(ids.field, ids.at))
        return fail(e, ERR_FAIL, "'%s' holds something else than whole numbers at place %lld", m->main,
                    (long long)s->places);
    if (labels.field && !row_at_end(labels.field, labels.at)) return different_lengths(m, &labels, e);
    if (mask.field && !row_at_end(mask.field, mask.at)) return different_lengths(m, &mask, e);
    s->plain = !labels.field;
    return true;
}

bool dataset_text_begin(RowMaker *m, Sample *s, Err *e) {
    s->n = 0;
    s->end_id = -1;
    s->plain = true;
    s->last_only = s->unanswered = s->has_text = false;
    m->ids.n = 0;
    return put_ids(m, s, m->prefix.ids, m->prefix.n, true, e);
}

bool dataset_text_more(RowMaker *m, Sample *s, const char *text, int64_t bytes, Err *e) {
    s->has_text |= bytes > 0;
    if (token_stream_put(m->stream, &m->ids, text, bytes, e) && take_ids(m, s, true, e)) return true;
    token_stream_reset(m->stream);
    return false;
}

bool dataset_text_end(RowMaker *m, Sample *s, Err *e) {
    if (!token_stream_end(m->stream, &m->ids, e) || !take_ids(m, s, true, e)) return false;
    if (s->has_text) put_end(m, s);
    else s->n = 0;
    return true;
}

typedef struct Text {
    const char *text;
    int64_t bytes;
} Text;

static bool need_text(Text *t, Row *row, const char *name, Err *e) {
    return dataset_need_text(&t->text, &t->bytes, row, name, e);
}

/* Through the chat template, or joined as they are. */
static bool make_pair(RowMaker *m, Sample *s, Row *row, Text prompt, Text reply, Err *e) {
    if (m->chat && reply.bytes) {
        Text system = {"", 0};
        if (row_get(row, "system") && !need_text(&system, row, "system", e)) return false;
        json_t *turns = json_array();
        if (system.bytes) json_array_append_new(turns, dataset_turn("system", system.text, system.bytes));
        json_array_append_new(turns, dataset_turn("user", prompt.text, prompt.bytes));
        json_array_append_new(turns, dataset_turn("assistant", reply.text, reply.bytes));
        bool ok = dataset_make_chat(m, s, turns, NULL, 0, e);
        json_decref(turns);
        return ok;
    }
    if (!put_ids(m, s, m->prefix.ids, m->prefix.n, false, e) ||
        !dataset_encode(m, s, prompt.text, prompt.bytes, false, false, e))
        return false;
    int64_t before = s->n;
    if (!dataset_encode(m, s, reply.text, reply.bytes, prompt.bytes > 0, true, e)) return false;
    if (s->n > before) put_end(m, s);
    s->end_id = m->o->eos_id;
    return true;
}

static bool make_prompt(RowMaker *m, Sample *s, Row *row, Err *e) {
    Text prompt = {0}, reply = {0};
    return need_text(&prompt, row, m->main, e) && need_text(&reply, row, m->answer, e) &&
           make_pair(m, s, row, prompt, reply, e);
}

const char *dataset_context_of(Row *row) { return dataset_first_of(row, context_names); }

static bool make_alpaca(RowMaker *m, Sample *s, Row *row, Err *e) {
    const char *name = dataset_context_of(row);
    Text instruction, context = {"", 0}, reply;
    if (!need_text(&instruction, row, m->main, e) || !need_text(&reply, row, m->answer, e) ||
        (name && !need_text(&context, row, name, e)))
        return false;
    if (!m->chat) str_add(&m->prompt, "Instruction:\n");
    str_add_bytes(&m->prompt, instruction.text, instruction.bytes);
    if (context.bytes) str_addf(&m->prompt, "\n\n%s", m->chat ? "" : "Input:\n");
    str_add_bytes(&m->prompt, context.text, context.bytes);
    if (!m->chat) str_add(&m->prompt, "\n\nAnswer:\n");
    return make_pair(m, s, row, (Text){str_text(&m->prompt), m->prompt.len}, reply, e);
}

static bool make_fields(RowMaker *m, Sample *s, Row *row, Err *e) {
    Text reply = {0};
    if (!expand(&m->prompt, m->o->prompt_template, row, e)) return false;
    bool ok = m->o->answer_template ? expand(&m->part, m->o->answer_template, row, e)
                                    : need_text(&reply, row, m->answer, e);
    if (!ok) return false;
    if (m->o->answer_template) reply = (Text){str_text(&m->part), m->part.len};
    return make_pair(m, s, row, (Text){str_text(&m->prompt), m->prompt.len}, reply, e);
}

static bool add_list(json_t *turns, Row *row, const char *name, Err *e) {
    RowField *f;
    if (!need(&f, row, name, JSON_ARRAY, e)) return false;
    json_t *list = row_value(f);
    bool ok = dataset_add_turns(turns, list, name, e);
    json_decref(list);
    return ok;
}

/* A field of the row beside its turns, unless these begin with a system turn of their own. */
static bool add_system(json_t *turns, Row *row, Err *e) {
    Text system = {"", 0};
    if (row_get(row, "system") && !need_text(&system, row, "system", e)) return false;
    const char *first = json_string_value(json_object_get(json_array_get(turns, 0), "role"));
    bool has_own = first && !strcmp(first, "system");
    if (system.bytes && !has_own) json_array_insert_new(turns, 0, dataset_turn("system", system.text, system.bytes));
    return true;
}

static bool collect_turns(RowMaker *m, json_t *turns, int64_t *score_from, Row *row, Err *e) {
    if (!add_list(turns, row, m->main, e) || !add_system(turns, row, e)) return false;
    *score_from = m->answer ? (int64_t)json_array_size(turns) : 0;
    return !m->answer || add_list(turns, row, m->answer, e);
}

static bool make_turns(RowMaker *m, Sample *s, Row *row, Err *e) {
    RowField *f = row_get(row, "tools");
    if (f && !need(&f, row, "tools", JSON_ARRAY, e)) return false;
    int64_t score_from = 0;
    json_t *turns = json_array(), *tools = f ? row_value(f) : NULL;
    bool ok = collect_turns(m, turns, &score_from, row, e) && dataset_make_chat(m, s, turns, tools, score_from, e);
    json_decref(turns);
    json_decref(tools);
    return ok;
}

bool dataset_make_sample(RowMaker *m, Sample *s, Row *row, Err *e) {
    s->n = 0;
    s->end_id = -1;
    s->plain = s->last_only = s->unanswered = false;
    str_clear(&m->prompt);
    str_clear(&m->part);
    switch (m->kind) {
    case DATA_IDS: return make_ids(m, s, row, e);
    case DATA_MESSAGES:
    case DATA_SHAREGPT: return make_turns(m, s, row, e);
    case DATA_ALPACA: return make_alpaca(m, s, row, e);
    case DATA_FIELDS: return make_fields(m, s, row, e);
    case DATA_PROMPT: return make_prompt(m, s, row, e);
    case DATA_TEXT: break; /* comes in pieces */
    }
    CHECK(false);
    return false;
}

/* ---- the maker ---- */

bool dataset_maker_init(RowMaker *m, const DataOptions *o, Err *e) {
    *m = (RowMaker){.o = o, .vars = json_object()};
    if (o->bos_text) json_object_set_new(m->vars, "bos_token", json_string(o->bos_text));
    if (o->eos_text) json_object_set_new(m->vars, "eos_token", json_string(o->eos_text));
    json_object_set_new(m->vars, "documents", json_null());
    if (!o->tokenizer) return true;
    m->stream = token_stream_open(o->tokenizer, TOKENIZE_PLAIN);
    if (learn_tokenizer(m, e)) return true;
    dataset_maker_free(m);
    return false;
}

void dataset_maker_free(RowMaker *m) {
    json_decref(m->vars);
    token_stream_close(m->stream);
    TokenIds *ids[] = {&m->prefix, &m->anchor, &m->ids};
    for (int i = 0; i < COUNT_OF(ids); i++) token_ids_free(ids[i]);
    Str *texts[] = {&m->kind_text, &m->prompt, &m->more, &m->full, &m->part};
    for (int i = 0; i < COUNT_OF(texts); i++) str_free(texts[i]);
}
