/* dataset_hint.c - what to do about a row that cannot be read, told from the shapes that people's files have. */
#include <string.h>
#include <strings.h>

#include "data/dataset_int.h"

static bool has(const char *text, int64_t n, const char *part) {
    return memmem(text, (size_t)n, part, strlen(part)) != NULL;
}

static char first_of(const char **at, const char *end) { /* behind blanks; 0: there is none */
    while (*at < end && strchr(" \t\r\n", **at) && **at) (*at)++;
    return *at < end ? **at : 0;
}

static bool is_python(const char *row, const char *end) { /* {'text': ... */
    if (first_of(&row, end) != '{') return false;
    row++;
    return first_of(&row, end) == '\'';
}

const char *dataset_json_cause(const char *line, int64_t bytes, const char *what) {
    const char *begin = line, *end = line + bytes;
    first_of(&begin, end);
    const char *cr = memchr(begin, '\r', (size_t)(end - begin));
    if (strstr(what, "unable to decode byte"))
        return "The file is not UTF-8. Convert it first (iconv -f LATIN1 -t UTF-8 FILE > NEW, or from what it is)";
    if (strstr(what, "'NaN'") || strstr(what, "Infinity'"))
        return "JSON has no NaN and no Infinity: write null (pandas: to_json(orient='records', lines=True) does)";
    if (strstr(what, "invalid Unicode"))
        return "Half of a character stands there, as where a text was cut inside one: cut texts before they are "
               "written as JSON";
    if (strstr(what, "duplicate")) return "Each line must hold one object, and a field stands in this one twice";
    if (is_python(line, end)) return "JSON has double quotes: this is how Python prints a dict. Write it by json.dumps";
    return cr && first_of(&cr, end) ? "Its lines end in CR alone. Convert them first (tr '\\r' '\\n')" : NULL;
}

const char *dataset_json_hint(const char *row, int64_t bytes, const char *what) {
    const char *begin = row, *cause = dataset_json_cause(row, bytes, what);
    char first = first_of(&begin, row + bytes);
    if (cause) return cause;
    if (strstr(what, "expected near ','"))
        return "Each line must hold one object, and a comma stands behind this one. Remove them (sed 's/,\\s*$//'), or "
               "put the rows in [ ]";
    bool cells = has(row, bytes, ",") || has(row, bytes, ";") || has(row, bytes, "\t");
    if (first && first != '{' && first != '[' && cells)
        return "Each line must hold one object, such as {\"text\": \"...\"}; name a table .csv or .tsv, and plain text "
               ".txt";
    return "Each line must hold one object, such as {\"text\": \"...\"}; name plain text .txt";
}

/* ---- rows whose fields are not known ---- */

static bool same_but_case(const char *a, const char *b) { return strcmp(a, b) && !strcasecmp(a, b); }

static const char *known_but_for_case(const char *name) {
    static const char *const known[] = {"messages", "conversations", "prompt", "completion",  "question", "answer",
                                        "text",     "ids",           "input",  "instruction", "output",   "response"};
    for (int i = 0; i < COUNT_OF(known); i++)
        if (same_but_case(name, known[i])) return known[i];
    return NULL;
}

/* [{...}, ...]: the samples themselves. */
static bool holds_rows(const RowField *f) {
    if (f->type != JSON_ARRAY) return false;
    if (f->value) return json_is_object(json_array_get(f->value, 0));
    const char *at = f->text, *end = f->text + f->bytes;
    if (first_of(&at, end) != '[') return false;
    at++;
    return first_of(&at, end) == '{';
}

void dataset_add_field_hint(Str *out, const Row *row) {
    for (int i = 0; i < row->n; i++) {
        const RowField *f = &row->field[i];
        const char *known = known_but_for_case(f->name);
        if (known) str_addf(out, "'%.60s' must be written '%s'. ", f->name, known);
        bool rows = holds_rows(f), inner = row->n == 1 && f->type == JSON_OBJECT;
        if (!rows && !inner) continue;
        str_addf(out, "Are the rows inside '%.60s'? Take them out (jq -c '.%.60s%s' FILE > FILE.jsonl). ", f->name,
                 f->name, rows ? "[]" : "");
        return;
    }
}
