/* dataset_kind.c - the kinds of rows, and how they are told apart by the fields of the first row of a file. */
#include <string.h>

#include "data/dataset_int.h"

static const char *const id_names[] = {"ids", "input_ids", NULL};
static const char *const turn_names[] = {"conversations", "conversation", NULL};
static const char *const prompt_names[] = {"prompt", "question", "query", "problem", "input", "user", "source", NULL};
static const char *const answer_names[] = {"completion", "answer", "response",  "output",
                                           "target",     "assistant", "solution", NULL};
static const char *const solution_names[] = {"solution", "answer", NULL}; /* of a problem: how, before what */

const char *dataset_first_of(Row *row, const char *const *names) {
    while (*names && !row_get(row, *names)) names++;
    return *names;
}

static const char *find_answer_field(const RowMaker *m, Row *row) {
    if (m->o->answer_field) return row_get(row, m->o->answer_field) ? m->o->answer_field : NULL;
    const char *solution = row_get(row, "problem") ? dataset_first_of(row, solution_names) : NULL;
    return solution ? solution : dataset_first_of(row, answer_names);
}

static void list_fields(Str *out, const Row *row) {
    for (int i = 0; i < row->n; i++) {
        if (out->len > 300) {
            str_add(out, ", ...");
            break;
        }
        str_addf(out, "%s%.60s", out->len ? ", " : "", row->field[i].name);
    }
}

static bool is_null(const Row *row, const char *name) {
    for (int i = 0; i < row->n; i++)
        if (!strcmp(row->field[i].name, name)) return row->field[i].type == JSON_NULL;
    return false;
}

bool dataset_fail_missing(Row *row, const char *name, const char *why, Err *e) {
    Str has = {0}, hint = {0};
    list_fields(&has, row);
    dataset_add_field_hint(&hint, row);
    fail(e, ERR_FAIL, "field '%s' is %s (the row has: %s). %s%s", name, is_null(row, name) ? "null" : "missing",
         has.len ? has.data : "nothing", str_text(&hint), why);
    str_free(&has);
    str_free(&hint);
    return false;
}

/* Rows that people have and that are no samples to learn an answer from, as they are. */
static bool refuse_others(Row *row, Err *e) {
    if (row_get(row, "chosen") && row_get(row, "rejected"))
        return fail(e, ERR_FAIL,
                    "fields 'chosen' and 'rejected': this is preference data, an answer that is better than "
                    "another. To learn the "
                    "better one: --prompt-template '{prompt}' --answer-template '{chosen}'");
    const RowField *answers = row_get(row, "answers");
    if (answers && row_get(row, "question") && answers->type != JSON_STRING)
        return fail(e, ERR_FAIL,
                    "field 'answers' is %s: several answers, as in SQuAD. Make a text of one of them first (jq -c "
                    "'.answer = "
                    ".answers.text[0]'), then for example --prompt-template 'Context: {context}\\nQuestion: "
                    "{question}\\nAnswer: '",
                    dataset_type_text(answers->type));
    return true;
}

static void set_kind(RowMaker *m, DataKind kind, const char *name, const char *main, const char *answer) {
    m->kind = kind;
    m->main = main;
    m->answer = answer;
    str_clear(&m->kind_text);
    str_addf(&m->kind_text, "%s (field%s: %s%s%s)", name, answer ? "s" : "", main, answer ? ", " : "",
             answer ? answer : "");
}

static bool settle_fields(RowMaker *m, Row *row, Err *e) {
    const char *answer = find_answer_field(m, row);
    if (!m->o->answer_template && !answer)
        return dataset_fail_missing(row, m->o->answer_field ? m->o->answer_field : "answer",
                            "Name the field that holds the answer", e);
    m->kind = DATA_FIELDS;
    m->answer = answer;
    if (m->o->answer_template) str_add(&m->kind_text, "prompt and answer made by templates from the row's fields");
    else str_addf(&m->kind_text, "prompt made by a template from the row's fields, answer (field: %s)", answer);
    return true;
}

static bool settle_text_field(RowMaker *m, Row *row, Err *e) {
    if (!row_get(row, m->o->text_field))
        return dataset_fail_missing(row, m->o->text_field,
                                    "--text-field names it as the column that holds the text", e);
    set_kind(m, DATA_TEXT, "plain text", m->o->text_field, NULL);
    return true;
}

/* Rows that were made of blocks: their prompts are settled. */
static bool settle_blocks(RowMaker *m, Row *row, Err *e) {
    bool turns = row_get(row, "messages");
    if (m->o->prompt_template || m->o->text_field || m->o->answer_field)
        return fail(e, ERR_USAGE,
                    "an AMR corpus has sentences and graphs, not columns: a prompt of your own is a file for "
                    "--amr-prompt (recipes/amr/), not --prompt-template, --answer-template or --text-field");
    m->kind = turns ? DATA_MESSAGES : DATA_PROMPT;
    m->main = turns ? "messages" : "prompt";
    m->answer = turns ? NULL : "completion";
    str_add(&m->kind_text, m->blocks->text);
    return true;
}

static const char *first_null(Row *row, const char *const *names) {
    while (*names && !is_null(row, *names)) names++;
    return *names;
}

/* A row of no kind. Where it has a half of one, the other half is what is missing. */
static bool fail_unknown(const RowMaker *m, Row *row, Err *e) {
    static const char *const one_field[] = {"messages", "conversations", "text", "ids", NULL};
    const char *prompt = dataset_first_of(row, prompt_names), *answer = first_null(row, answer_names);
    const char *name = m->o->answer_field ? m->o->answer_field
                       : prompt && answer ? answer
                                          : first_null(row, one_field);
    if (name && !m->o->answer_field)
        return dataset_fail_missing(row, name,
                                    "The first row says of which kind all are, so it must be whole: take rows "
                                    "without a value out (jq -c 'select(.FIELD != null)')",
                                    e);
    return dataset_fail_missing(row, name ? name : prompt ? "completion" : "text",
                                "Known kinds: messages, prompt and completion, question and answer, instruction and "
                                "output, conversations, text, ids; --text-field names another column of text, "
                                "--prompt-template makes a prompt of other fields",
                                e);
}

static bool settle_kind(RowMaker *m, Row *row, Err *e) {
    const char *name, *answer = find_answer_field(m, row);
    if (m->blocks) return settle_blocks(m, row, e);
    if (m->o->prompt_template) return settle_fields(m, row, e);
    if (m->o->text_field) return settle_text_field(m, row, e);
    if (!refuse_others(row, e)) return false;
    if ((name = dataset_first_of(row, id_names))) {
        set_kind(m, DATA_IDS, "token ids", name, row_get(row, "labels") ? "labels" : NULL);
    } else if (row_get(row, "messages")) {
        set_kind(m, DATA_MESSAGES, "messages", "messages", NULL);
    } else if ((name = dataset_first_of(row, turn_names))) {
        set_kind(m, DATA_SHAREGPT, "ShareGPT conversations", name, NULL);
    } else if (row_get(row, "instruction") && answer) {
        set_kind(m, DATA_ALPACA, "Alpaca", "instruction", answer);
    } else if ((name = dataset_first_of(row, prompt_names)) && answer && strcmp(name, answer)) {
        if (row_get(row, name)->type == JSON_ARRAY) set_kind(m, DATA_MESSAGES, "messages", name, answer);
        else set_kind(m, DATA_PROMPT, "prompt and answer", name, answer);
    } else if (row_get(row, "text") && !m->o->answer_field) {
        set_kind(m, DATA_TEXT, "plain text", "text", NULL);
    } else {
        return fail_unknown(m, row, e);
    }
    return true;
}

/* What became of the chat template, said where somebody could have expected otherwise. */
static void say_template(RowMaker *m, bool bare) {
    const DataOptions *o = m->o;
    bool pair = m->kind == DATA_PROMPT || m->kind == DATA_ALPACA;
    if (m->chat) {
        str_add(&m->kind_text, ", rendered by the model's chat template");
        if (pair && o->template_mode == TEMPLATE_AUTO)
            str_addf(&m->kind_text, " (--template none %s)",
                     m->kind == DATA_ALPACA ? "has a plain wording" : "joins them as they are");
        return;
    }
    if (bare) return;
    str_add(&m->kind_text, m->kind == DATA_ALPACA ? ", in a plain wording" : ", joined as they are");
    if (o->chat && (m->kind == DATA_FIELDS || m->blocks) && o->template_mode == TEMPLATE_AUTO)
        str_add(&m->kind_text, " (--template chat makes them turns of the model's chat template)");
}

static bool settle_template(RowMaker *m, Err *e) {
    const DataOptions *o = m->o;
    bool turns = m->kind == DATA_MESSAGES || m->kind == DATA_SHAREGPT;
    bool bare = m->kind == DATA_IDS || m->kind == DATA_TEXT;
    bool pair = !turns && !bare && m->kind != DATA_FIELDS && !m->blocks;
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
    bool wanted = o->template_mode == TEMPLATE_CHAT || (o->template_mode == TEMPLATE_AUTO && pair && o->chat);
    m->chat = turns || (!bare && wanted);
    if (m->chat && !o->chat)
        return fail(e, ERR_FAIL,
                    "the model has no chat template to render messages with. Give a model that has one (an "
                    "Instruct model), or rows of prompt and completion with --template none");
    say_template(m, bare);
    m->settled = true;
    return true;
}

void dataset_maker_reset(RowMaker *m) {
    m->settled = m->chat = false;
    m->main = m->answer = NULL;
    str_clear(&m->kind_text);
}

/* Beside its main field and its answer. */
static bool is_used(const RowMaker *m, const RowField *f, const char *context) {
    bool turns = m->kind == DATA_MESSAGES || m->kind == DATA_SHAREGPT;
    if (!strcmp(f->name, "id") || !strcmp(f->name, "idx") || !strcmp(f->name, "index")) return true; /* no text */
    if (!strcmp(f->name, m->main) || (m->answer && !strcmp(f->name, m->answer))) return true;
    if (!strcmp(f->name, "system")) return m->chat;
    if (!strcmp(f->name, "tools")) return turns;
    return m->kind == DATA_ALPACA && context && !strcmp(f->name, context);
}

/* Columns that nobody learns from may have been meant: a context beside a question, a history. */
static void say_unused(RowMaker *m, Row *row) {
    enum { MOST = 6 };
    int n = 0;
    if (m->kind == DATA_FIELDS || m->kind == DATA_IDS || m->blocks || m->o->text_field) return; /* columns were named */
    const char *context = dataset_context_of(row);
    for (int i = 0; i < row->n; i++) {
        const RowField *f = &row->field[i];
        if (f->type == JSON_NULL || is_used(m, f, context) || n++ > MOST) continue;
        str_addf(&m->kind_text, "%s%.60s", n == 1 ? "; not used: " : ", ", n > MOST ? "..." : f->name);
    }
}

bool dataset_settle_row(RowMaker *m, Row *row, Err *e) {
    if (!settle_kind(m, row, e) || !settle_template(m, e)) return false;
    say_unused(m, row);
    return true;
}

bool dataset_settle_text(RowMaker *m, Err *e) {
    m->kind = DATA_TEXT;
    str_add(&m->kind_text, "plain text (one document)");
    return settle_template(m, e);
}

/* Found with rows of the worst shape (tests/budget/test_reading.c): a token for every byte; turns of a word each.
 * A text goes through the tokenizer piece by piece, unless that has to see all of it. */
int dataset_row_cost(const RowMaker *m) {
    bool bounded = !m->o->tokenizer || token_stream_is_bounded(m->o->tokenizer);
    if (m->blocks) return 200; /* its graph as a tree, then as text */
    if (m->chat) return 40;
    if (m->kind == DATA_IDS) return 4;
    return (m->kind == DATA_TEXT ? 0 : 12) + (bounded ? 0 : 16);
}
