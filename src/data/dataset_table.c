/* dataset_table.c - tables: how a line of .csv or .tsv becomes fields.
 *
 * As RFC 4180 has it: fields between separators; in quotes a field may hold separators and line ends, and two
 * quotes stand for one. The first line names the columns. A .tsv is separated by tabs; in a .csv the separator is
 * the one of , ; and tab that the first line has most of. */
#include <string.h>
#include <utf8proc.h>

#include "base/mem.h"
#include "data/dataset_int.h"

/* Takes the next field out of the record where it stands; at: behind it, -1 after the last. NULL: its quote is not
 * closed. */
static char *next_field(char separator, char *record, int64_t n, int64_t *at, int64_t *bytes) {
    char *text = record + *at;
    int64_t i = *at, to = 0;
    if (i < n && record[i] == '"') {
        for (i++; i < n && !(record[i] == '"' && (i + 1 == n || record[i + 1] != '"')); i++) {
            i += record[i] == '"';
            text[to++] = record[i];
        }
        if (i == n) return NULL;
        i++; /* the closing quote; what stands between it and the separator goes on the field */
    }
    for (; i < n && record[i] != separator; i++) text[to++] = record[i];
    *bytes = to;
    *at = i < n ? i + 1 : -1;
    return text;
}

static bool fail_open_quote(const char *path, int64_t line, Err *e) {
    return fail(e, ERR_FAIL,
                "%s:%lld: a quote that begins a field of this row is not closed before the file ends. Close it; a "
                "quote that belongs to a text is written twice, inside quotes",
                path, (long long)line);
}

/* Blanks around a name belong to nobody: "prompt, completion". */
static char *trim_name(char *name, int64_t n) {
    while (n && name[n - 1] == ' ') n--;
    name[n] = 0; /* where the separator was, or before */
    while (*name == ' ') name++;
    return name;
}

static int64_t without_return(const char *record, int64_t n) { return n && record[n - 1] == '\r' ? n - 1 : n; }

static int64_t count_of(char c, const char *text, int64_t n) {
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) count += text[i] == c;
    return count;
}

static char separator_of(const char *path, const char *line, int64_t n) {
    char best = ',';
    if (strstr(path, ".tsv") || strstr(path, ".TSV")) return '\t';
    for (const char *c = ";\t"; *c; c++)
        if (count_of(*c, line, n) > count_of(best, line, n)) best = *c;
    return best;
}

bool dataset_table_header(RowReader *r, Err *e) {
    char *line;
    int64_t bytes, at = 0, n;
    r->separator = ',';
    if (!dataset_reader_raw(r, &line, &bytes, e)) return false;
    if (bytes < 0) return fail(e, ERR_FAIL, "%s: is empty. Its first line must name the columns", r->path);
    r->separator = separator_of(r->path, line, bytes);
    str_add_bytes(&r->header, line, without_return(line, bytes));
    int64_t columns = 1 + count_of(r->separator, line, bytes);
    r->name = MEM_NEW(char *, columns);
    while (at >= 0) {
        char *name = next_field(r->separator, r->header.data, r->header.len, &at, &n);
        if (!name) return fail_open_quote(r->path, 1, e);
        if (r->n_names == ROW_FIELDS) return fail(e, ERR_FAIL, "%s:1: has more than %d columns", r->path, ROW_FIELDS);
        r->name[r->n_names++] = name = trim_name(name, n);
        for (int i = 0; i < r->n_names - 1; i++)
            if (!strcmp(r->name[i], name))
                return fail(e, ERR_FAIL, "%s:1: two columns are named '%.60s'", r->path, name);
    }
    return true;
}

static bool is_utf8(const char *text, int64_t n) {
    utf8proc_int32_t c;
    for (int64_t at = 0, bytes; at < n; at += bytes)
        if ((bytes = utf8proc_iterate((const utf8proc_uint8_t *)text + at, n - at, &c)) <= 0) return false;
    return true;
}

bool dataset_table_row(const RowReader *r, Row *row, char *record, int64_t bytes, int64_t row_line, Err *e) {
    int64_t at = 0, n = without_return(record, bytes);
    long long line = (long long)row_line;
    row->n = 0;
    row->tree = NULL;
    if (!is_utf8(record, n))
        return fail(e, ERR_FAIL, "%s:%lld: is not UTF-8. Convert the file to UTF-8 first (iconv)", r->path, line);
    for (int i = 0; at >= 0; i++) {
        if (i == r->n_names)
            return fail(e, ERR_FAIL,
                        "%s:%lld: has more than the %d fields that the first line names. Is a quote missing?",
                        r->path, line, r->n_names);
        RowField *f = &row->field[row->n++];
        *f = (RowField){.name = r->name[i], .name_bytes = (int32_t)strlen(r->name[i]), .type = JSON_STRING};
        if (!(f->text = next_field(r->separator, record, n, &at, &f->bytes))) return fail_open_quote(r->path, line, e);
    }
    return row->n == r->n_names ||
           fail(e, ERR_FAIL, "%s:%lld: has %d fields, the first line names %d", r->path, line, row->n, r->n_names);
}
