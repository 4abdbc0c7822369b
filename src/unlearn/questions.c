/* questions.c - where the fields of TOFU's files stand. */
#include "unlearn/questions.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "data/source.h"

enum { HOLDOUT = 400, FILE_BYTES = 256 << 20 };

const char *const eval_set_names[EVAL_SETS] = {"forget", "retain", "ra", "wf", "holdout"};

static char *text_of(const json_t *row, const char *key) {
    const char *text = json_string_value(json_object_get(row, key));
    return text ? mem_strdup(text) : NULL;
}

static bool add_item(EvalSet *s, const json_t *row, bool with_wrong, Err *e) {
    const json_t *wrong = json_object_get(row, "perturbed_answer");
    s->item = mem_grow(s->item, &s->capacity, s->n + 1, sizeof *s->item);
    EvalItem *i = &s->item[s->n++];
    *i = (EvalItem){.question = text_of(row, "question"), .answer = text_of(row, "answer")};
    if (!i->question || !i->answer) return fail(e, ERR_FAIL, "has no \"question\" or no \"answer\"");
    if (!with_wrong) return true;
    i->paraphrase = text_of(row, "paraphrased_answer");
    for (size_t k = 0; k < json_array_size(wrong) && i->n_wrong < ITEM_WRONG; k++) {
        const char *text = json_string_value(json_array_get(wrong, k));
        if (text) i->wrong[i->n_wrong++] = mem_strdup(text);
    }
    return i->n_wrong > 0 || fail(e, ERR_FAIL, "has no \"perturbed_answer\"");
}

/* An array, or an object a line; gives the rows as an array. */
static json_t *load_rows(const char *path, Err *e) {
    Str text = {0};
    json_error_t where = {.line = 0};
    if (!source_read_text(path, &text, FILE_BYTES, e)) return NULL;
    const char *at = str_text(&text);
    at += strspn(at, " \t\r\n");
    json_t *rows = *at == '[' ? json_loads(at, 0, &where) : json_array();
    for (size_t used; *at != '[' && rows && *at; at += used, at += strspn(at, " \t\r\n")) {
        json_t *row = json_loads(at, JSON_DISABLE_EOF_CHECK, &where);
        used = (size_t)where.position;
        if (row)
            json_array_append_new(rows, row);
        else
            json_decref(rows), rows = NULL;
    }
    str_free(&text);
    if (!rows) fail(e, ERR_FAIL, "%s: is not JSON: %s", path, where.text);
    return rows;
}

static bool read_set(EvalItems *t, EvalSetId id, const char *folder, const char *name, int64_t most, Err *e) {
    char path[1200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (!file_exists(path))
        return fail(e, ERR_FAIL, "--data %s: there is no %s, which TOFU's metrics ask for%s", folder, name,
                    id == SET_FORGET ? " (--forget is its name here: forget01, forget05 or forget10)" : "");
    json_t *rows = load_rows(path, e);
    if (!rows) return false;
    int64_t n = (int64_t)json_array_size(rows), from = id == SET_HOLDOUT ? MAX2(n - HOLDOUT, 0) : 0;
    int64_t end = most ? MIN2(from + most, n) : n;
    bool ok = true;
    for (int64_t i = from; ok && i < end; i++)
        ok = add_item(&t->set[id], json_array_get(rows, (size_t)i), id != SET_HOLDOUT, e) ||
             fail_within(e, "%s: row %lld", path, (long long)i + 1);
    json_decref(rows);
    return ok && (t->set[id].n > 0 || fail(e, ERR_FAIL, "%s: is empty", path));
}

bool questions_read(EvalItems *t, const char *folder, const char *forget, int64_t most, Err *e) {
    char name[200];
    *t = (EvalItems){0};
    snprintf(name, sizeof name, "%s.json", forget);
    return read_set(t, SET_FORGET, folder, name, most, e) &&
           read_set(t, SET_RETAIN, folder, "retain_perturbed.json", most, e) &&
           read_set(t, SET_AUTHORS, folder, "real_authors_perturbed.json", most, e) &&
           read_set(t, SET_FACTS, folder, "world_facts_perturbed.json", most, e) &&
           read_set(t, SET_HOLDOUT, folder, "retain90.json", most, e);
}

void questions_free(EvalItems *t) {
    for (int s = 0; s < EVAL_SETS; s++) {
        for (int64_t i = 0; i < t->set[s].n; i++) {
            EvalItem *it = &t->set[s].item[i];
            mem_free(it->question), mem_free(it->answer), mem_free(it->paraphrase);
            for (int k = 0; k < it->n_wrong; k++) mem_free(it->wrong[k]);
        }
        mem_free(t->set[s].item);
    }
    *t = (EvalItems){0};
}

static int rows_of(const EvalItem *i) { return 1 + (i->paraphrase != NULL) + i->n_wrong; }

static void add_row(Str *out, const char *question, const char *answer) {
    json_t *row = json_pack("{s:s, s:s}", "question", question, "answer", answer);
    json_add(out, row, JSON_ALL_DIGITS);
    str_add_char(out, '\n');
    json_decref(row);
}

void questions_rows(Str *out, EvalItems *t) {
    t->rows = 0;
    for (int s = 0; s < EVAL_SETS; s++)
        for (int64_t i = 0; i < t->set[s].n; i++) {
            EvalItem *it = &t->set[s].item[i];
            it->row = t->rows;
            add_row(out, it->question, it->answer);
            if (it->paraphrase) add_row(out, it->question, it->paraphrase);
            for (int k = 0; k < it->n_wrong; k++) add_row(out, it->question, it->wrong[k]);
            t->rows += rows_of(it);
        }
}
