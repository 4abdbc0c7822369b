/* render.c - a row of data as the texts of an item: its prompt, its choices and which of them is right. */
#include <stdlib.h>
#include <string.h>

#include "data/field.h"
#include "suite/suite_int.h"

static bool compile(Template **t, const char *source, const TaskRow *row, Err *e) {
    return !source || template_compile(t, source, row->name, e);
}

bool texts_open(TaskTexts *t, const TaskRow *row, Err *e) {
    *t = (TaskTexts){0};
    return compile(&t->prompt, row->prompt, row, e) && compile(&t->choices, row->choices, row, e) &&
           compile(&t->gold, row->gold, row, e) && compile(&t->target, row->target, row, e);
}

void texts_close(TaskTexts *t) {
    template_free(t->prompt);
    template_free(t->choices);
    template_free(t->gold);
    template_free(t->target);
    *t = (TaskTexts){0};
}

void rendered_free(Rendered *r) {
    str_free(&r->prompt);
    str_free(&r->target);
    json_decref(r->choices);
    *r = (Rendered){0};
}

/* ---- fields ---- */

static bool has_one(const json_t *row, const char *names) { /* a|b */
    char name[60];
    for (; *names; names += strcspn(names, "|"), names += *names == '|') {
        int n = (int)strcspn(names, "|");
        CHECK(n < (int)sizeof name);
        memcpy(name, names, (size_t)n);
        name[n] = 0;
        if (field_get(row, name)) return true;
    }
    return false;
}

static bool check_fields(const TaskRow *task, const json_t *row, Err *e) {
    char word[60];
    for (const char *at = task->fields; *at; at += strcspn(at, " "), at += *at == ' ') {
        int n = (int)strcspn(at, " ");
        CHECK(n < (int)sizeof word);
        memcpy(word, at, (size_t)n);
        word[n] = 0;
        if (has_one(row, word)) continue;
        Str there = {0};
        field_names(&there, row);
        fail(e, ERR_FAIL, "a row of %s has no field '%s'; it has %s", task->name, word, str_text(&there));
        str_free(&there);
        return false;
    }
    return true;
}

/* ---- choices ---- */

static void strip_text(Str *text) {
    Str bare = {0};
    text_strip_brackets(&bare, str_text(text));
    str_free(text);
    *text = bare;
}

static void strip_choices(json_t *choices) {
    for (size_t i = 0; i < json_array_size(choices); i++) {
        Str bare = {0};
        text_strip_brackets(&bare, json_string_value(json_array_get(choices, i)));
        json_array_set_new(choices, i, json_string(str_text(&bare)));
        str_free(&bare);
    }
}

static bool read_choices(Rendered *out, const TaskTexts *t, const json_t *fields, Err *e) {
    Str text = {0};
    bool ok = template_render(t->choices, &text, fields, e);
    out->choices = ok ? json_loadb(str_text(&text), (size_t)text.len, 0, NULL) : NULL;
    str_free(&text);
    if (!ok) return false;
    bool sound = json_is_array(out->choices) && json_array_size(out->choices) >= 2;
    for (size_t i = 0; sound && i < json_array_size(out->choices); i++) {
        const json_t *choice = json_array_get(out->choices, i);
        sound = json_string_length(choice) > 0 && strlen(json_string_value(choice)) == json_string_length(choice);
    }
    return sound || fail(e, ERR_FAIL, "the choices are not a list of two texts or more");
}

static bool read_gold(Rendered *out, const TaskTexts *t, const json_t *fields, Err *e) {
    Str text = {0};
    char *end;
    if (!template_render(t->gold, &text, fields, e)) return false;
    long gold = strtol(str_text(&text), &end, 10);
    bool sound = text.len && !*end && gold >= 0 && gold < (long)json_array_size(out->choices);
    if (!sound)
        fail(e, ERR_FAIL,
             "the right answer is '%.40s', which is none of the %d choices. Is this a split without answers?",
             str_text(&text), (int)json_array_size(out->choices));
    str_free(&text);
    out->gold = (int)gold;
    return sound;
}

/* ---- the row ---- */

static bool render(const TaskTexts *t, const TaskRow *row, Rendered *out, const json_t *fields, Err *e) {
    if (!check_fields(row, fields, e)) return false;
    if (t->prompt && !template_render(t->prompt, &out->prompt, fields, e)) return false;
    if (t->target && !template_render(t->target, &out->target, fields, e)) return false;
    if (t->choices && (!read_choices(out, t, fields, e) || !read_gold(out, t, fields, e))) return false;
    if (row->strip_brackets) strip_text(&out->prompt), strip_choices(out->choices);
    return true;
}

bool texts_render(const TaskTexts *t, const TaskRow *row, Rendered *out, const json_t *fields, Err *e) {
    *out = (Rendered){0};
    if (render(t, row, out, fields, e)) return true;
    rendered_free(out);
    return false;
}

void rendered_example(Str *out, const TaskRow *row, const Rendered *r) {
    const char *right = r->choices ? json_string_value(json_array_get(r->choices, (size_t)r->gold)) : NULL;
    bool blank = row->kind == TASK_BLANK;
    str_add(out, blank ? right : str_text(&r->prompt));
    str_add(out, " ");
    str_add(out, blank || !right ? str_text(&r->target) : right);
    str_add(out, "\n\n");
}
