/* rolling.c - whole texts as items of perplexity: rows of text, pages of WikiText, plain text files. */
#include <string.h>

#include "base/work.h"
#include "data/field.h"
#include "data/rows.h"
#include "data/source.h"
#include "suite/suite_int.h"

typedef struct Texts {
    Suite *s;
    Task *t;
    RowReader r;
} Texts;

static bool is_full(const Texts *x) { return x->s->spec.limit && x->t->n >= x->s->spec.limit; }

/* scored: what is run through the model; text: what words and bytes are counted of. */
static bool add_text(Texts *x, const char *scored, const char *text, int64_t bytes, Err *e) {
    TokenIds ids = {0};
    x->t->rows++;
    if (is_full(x)) return true;
    if (!encode_text(x->s, &ids, scored, (int64_t)strlen(scored), e)) return false;
    int64_t taken = bytes + tokenizer_encoding_bytes(&ids, (int64_t)strlen(scored));
    x->s->reading_bytes = MAX2(x->s->reading_bytes, taken);
    if (ids.n) {
        Item *it = suite_add_item(x->s, x->t, (int)encode_window_count(x->s, ids.n));
        it->words = text_words(text, bytes);
        it->bytes = bytes;
        encode_windows(x->s, it, ids.ids, ids.n);
    }
    token_ids_free(&ids);
    return true;
}

static bool add_row(Texts *x, const json_t *row, Err *e) {
    const char *field = x->s->spec.text_field;
    const json_t *text = field_get(row, field ? field : "text"), *page = field ? NULL : field_get(row, "page");
    const json_t *value = text ? text : page;
    if (!json_is_string(value) || strlen(json_string_value(value)) != json_string_length(value)) {
        Str there = {0};
        field_names(&there, row);
        fail(e, ERR_FAIL, "the row has no text in the field '%s'; it has %s. Name the field by --text-field",
             field ? field : "text", str_text(&there));
        str_free(&there);
        return false;
    }
    Str joined = {0};
    if (!text) text_join_wiki(&joined, json_string_value(page));
    bool ok = add_text(x, text ? json_string_value(text) : str_text(&joined), json_string_value(value),
                       (int64_t)json_string_length(value), e);
    str_free(&joined);
    return ok;
}

static bool add_plain(Texts *x, Err *e) {
    Str all = {0};
    const char *text;
    int64_t bytes = 0;
    bool ok;
    do {
        ok = dataset_reader_text(&x->r, &text, &bytes, e);
        if (ok) str_add_bytes(&all, text, bytes);
    } while (ok && bytes);
    if (ok && (int64_t)strlen(str_text(&all)) != all.len) ok = fail(e, ERR_FAIL, "%s: holds a zero byte", x->r.path);
    ok = ok && add_text(x, str_text(&all), str_text(&all), all.len, e);
    str_free(&all);
    return ok;
}

static bool add_rows(Texts *x, Err *e) {
    json_t *row = NULL;
    bool ok;
    while ((ok = dataset_reader_next(&x->r, &row, e)) && row) {
        ok = add_row(x, row, e);
        json_decref(row);
        if (!ok) return fail_within(e, "%s:%lld", x->r.path, (long long)x->r.row_line);
    }
    return ok;
}

static bool add_file(Texts *x, const char *path, Err *e) {
    if (!dataset_reader_open(&x->r, path, e)) return false;
    bool ok = x->r.form == SOURCE_TEXT ? add_plain(x, e) : add_rows(x, e);
    dataset_reader_close(&x->r);
    return ok;
}

bool rolling_add(Suite *s, const TaskRow *row, Err *e) {
    Texts x = {.s = s, .t = suite_add_task(s, row, row->name)};
    if (s->prefix < 0)
        return fail(e, ERR_FAIL, "perplexity: the tokenizer has neither a BOS nor an EOS token to begin a text with");
    for (int i = 0; i < s->spec.n_texts; i++) {
        SourceFiles f = {0};
        bool ok = source_files(&f, s->spec.text[i], e);
        for (int64_t k = 0; ok && k < f.n; k++) ok = add_file(&x, f.path[k], e);
        source_files_free(&f);
        if (!ok) return false;
    }
    return true;
}
