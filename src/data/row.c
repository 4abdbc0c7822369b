/* row.c - questions about a row's fields, however it was read. */
#include "data/row.h"

#include <string.h>

#include "base/mem.h"
#include "data/dataset_int.h"

bool row_fits(const json_t *tree, Err *e) {
    size_t n = json_object_size(tree);
    if (n <= ROW_FIELDS) return true;
    return fail(e, ERR_FAIL,
                "the row has %zu fields, and at most %d are read. Keep those that are needed (jq -c '{prompt, "
                "answer}'); is it a list of rows by name, bring each to a line (jq -c '.[]')",
                n, ROW_FIELDS);
}

void row_from_tree(Row *r, json_t *tree) {
    const char *name;
    json_t *v;
    r->n = 0;
    r->tree = tree;
    json_object_foreach(tree, name, v) {
        CHECK(r->n < ROW_FIELDS); /* row_fits */
        RowField *f = &r->field[r->n++];
        *f = (RowField){.name = (char *)(uintptr_t)name,
                        .name_bytes = (int32_t)strlen(name),
                        .type = json_typeof(v),
                        .value = v};
        if (!json_is_string(v)) continue;
        f->text = (char *)(uintptr_t)json_string_value(v);
        f->bytes = (int64_t)json_string_length(v);
    }
}

void row_free(Row *r) {
    json_decref(r->tree);
    r->tree = NULL;
    r->n = 0;
}

RowField *row_get(Row *r, const char *name) {
    size_t n = name ? strlen(name) : 0;
    for (int i = 0; i < r->n && name; i++) {
        RowField *f = &r->field[i];
        if (f->name_bytes == (int32_t)n && !memcmp(f->name, name, n)) return f->type == JSON_NULL ? NULL : f;
    }
    return NULL;
}

json_t *row_value(RowField *f) {
    int64_t bytes;
    if (f->value) return json_incref(f->value);
    if (f->type == JSON_STRING) {
        const char *text = row_text(f, &bytes);
        return json_stringn_nocheck(text, (size_t)bytes);
    }
    Str scratch = {0};
    json_t *v = dataset_scan_value(&scratch, f->text, f->bytes);
    str_free(&scratch);
    CHECK(v); /* it was scanned once */
    return v;
}

json_t *row_tree(Row *r) {
    json_t *tree = json_object();
    for (int i = 0; i < r->n; i++) json_object_set_new_nocheck(tree, r->field[i].name, row_value(&r->field[i]));
    return tree;
}

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

/* In the text of a list: at the element number *at stands for. */
static int64_t next_element(const RowField *f, int64_t at) {
    if (!at) at = 1; /* the bracket */
    while (at < f->bytes && (is_blank(f->text[at]) || f->text[at] == ',')) at++;
    return at;
}

bool row_next_integer(const RowField *f, int64_t *at, int64_t *number) {
    CHECK(f->type == JSON_ARRAY);
    if (f->value) {
        const json_t *j = json_array_get(f->value, (size_t)*at);
        if (!json_is_integer(j)) return false;
        *number = json_integer_value(j);
        return ++*at, true;
    }
    int64_t i = next_element(f, *at);
    bool minus = i < f->bytes && f->text[i] == '-';
    int64_t digits = i += minus;
    uint64_t v = 0;
    for (; i < f->bytes && f->text[i] >= '0' && f->text[i] <= '9'; i++) v = v * 10 + (uint64_t)(f->text[i] - '0');
    bool ends = i < f->bytes && (f->text[i] == ',' || f->text[i] == ']' || is_blank(f->text[i]));
    if (i == digits || i - digits > 18 || !ends) return false;
    *number = minus ? -(int64_t)v : (int64_t)v;
    *at = i;
    return true;
}

bool row_next_bool(const RowField *f, int64_t *at, bool *value) {
    if (f->value) {
        const json_t *j = json_array_get(f->value, (size_t)*at);
        *value = json_is_true(j);
        *at += json_is_boolean(j);
        return json_is_boolean(j);
    }
    int64_t i = next_element(f, *at);
    *value = str_starts(f->text + i, "true"); /* the list ends in a bracket: nothing is read beyond it */
    if (!*value && !str_starts(f->text + i, "false")) return false;
    *at = i + (*value ? 4 : 5);
    return true;
}

bool row_at_end(const RowField *f, int64_t at) {
    if (f->value) return at >= (int64_t)json_array_size(f->value);
    int64_t i = next_element(f, at);
    return i < f->bytes && f->text[i] == ']';
}
