/* source.c - signatures of the file types that people have, and which of them are lists of samples. */
#include "data/source.h"

#include <string.h>
#include <strings.h>
#include <utf8proc.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "data/unpack.h"

#define TO_LINES "Convert it to JSON lines first"
#define UNPACK(command) "Unpack it first: `" command " FILE`"

static const struct {
    const char *bytes;
    int n;
    const char *what, *hint;
} marks[] = {
    {"PAR1", 4, "is a Parquet file",
     TO_LINES " (for example with duckdb or pandas: to_json(lines=True, orient='records'))"},
    {"ARROW1", 6, "is an Arrow file", TO_LINES " (datasets: to_json)"},
    {"Obj\x01", 4, "is an Avro file", TO_LINES},
    {"BZh91AY&SY", 10, "is compressed with bzip2", UNPACK("bunzip2 -k")},
    {"\xfd"
     "7zXZ",
     5, "is compressed with xz", UNPACK("unxz -k")},
    {"PK\x03\x04", 4, "is a zip archive (or a document of an office program)", UNPACK("unzip") ", or save it as text"},
    {"%PDF", 4, "is a PDF", "Take its text out first (pdftotext)"},
    {"SQLite format 3", 15, "is an SQLite database", TO_LINES},
    {"\x93NUMPY", 6, "is a NumPy array", "Token ids are read from JSON lines: {\"ids\": [...]}"},
    {"\x89HDF", 4, "is an HDF5 file", TO_LINES},
    {"\xff\xfe", 2, "is UTF-16 text", "Convert it to UTF-8 first (iconv -f UTF-16 -t UTF-8)"},
    {"\xfe\xff", 2, "is UTF-16 text", "Convert it to UTF-8 first (iconv -f UTF-16 -t UTF-8)"},
    {"\x89PNG", 4, "is a picture", "Samples are text"},
    {"\xff\xd8\xff", 3, "is a picture", "Samples are text"},
    {"GIF8", 4, "is a picture", "Samples are text"},
    {"\x7f"
     "ELF",
     4, "is a program", "Was another file meant?"},
    {"{\\rtf", 5, "is a rich text document", "Save it as plain text, named .txt"},
};

/* Of the file once it is unpacked. */
static bool has_ending(const char *path, const char *ending) {
    size_t n = (size_t)unpack_name_bytes(path), m = strlen(ending);
    return n > m && !strncasecmp(path + n - m, ending, m);
}

static bool is_one_of(const char *path, const char *const *endings, int n) {
    for (int i = 0; i < n; i++)
        if (has_ending(path, endings[i])) return true;
    return false;
}

static bool refuse_marked(const char *path, const char *bytes, int64_t n, Err *e) {
    for (int i = 0; i < COUNT_OF(marks); i++)
        if (n >= marks[i].n && !memcmp(bytes, marks[i].bytes, (size_t)marks[i].n))
            return fail(e, ERR_FAIL, "%s: %s. %s", path, marks[i].what, marks[i].hint);
    const char *packed = unpack_format(bytes, n);
    if (packed)
        return fail(e, ERR_FAIL, "%s: is compressed with %s. " UNPACK("%s -dk"), path, packed, packed);
    bool orc = n >= 3 && !memcmp(bytes, "ORC", 3) && memchr(bytes, 0, (size_t)MIN2(n, SOURCE_LOOK_BYTES)); /* no text */
    if (orc) return fail(e, ERR_FAIL, "%s: is an ORC file. " TO_LINES, path);
    bool pickle = n >= 2 && bytes[0] == '\x80' && bytes[1] >= 2 && bytes[1] <= 5;
    if (pickle) return fail(e, ERR_FAIL, "%s: is a Python pickle. " TO_LINES, path);
    return true;
}

bool source_check_text(const char *path, const char *bytes, int64_t n, Err *e) {
    return refuse_marked(path, bytes, n, e);
}

bool source_check_lines(const char *path, const char *text, int64_t n, Err *e) {
    int64_t line = 1;
    utf8proc_int32_t c;
    for (int64_t at = 0, bytes; at < n; at += bytes) {
        bytes = utf8proc_iterate((const utf8proc_uint8_t *)text + at, n - at, &c);
        if (bytes > 0 && !c)
            return fail(e, ERR_FAIL, "%s:%lld: holds a zero byte, so it is no text. Was another file meant?", path,
                        (long long)line);
        if (bytes <= 0)
            return fail(e, ERR_FAIL, "%s:%lld: byte 0x%02x is not UTF-8. Convert the file to UTF-8 first (iconv)", path,
                        (long long)line, (unsigned char)text[at]);
        line += c == '\n';
    }
    return true;
}

bool source_read_text(const char *path, Str *out, int64_t limit_bytes, Err *e) {
    int64_t before = out->len;
    if (!file_read(path, out, limit_bytes, e)) return false;
    if (refuse_marked(path, str_text(out) + before, out->len - before, e)) return true;
    if (!before) str_free(out);
    else out->data[out->len = before] = 0;
    return false;
}

static bool is_binary(const char *bytes, int64_t n) {
    int64_t odd = 0;
    for (int64_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)bytes[i];
        if (!c) return true;
        odd += c < 0x20 && !strchr("\t\n\r\f\v\b\x1b", c);
    }
    return odd * 20 > n;
}

/* ---- AMR ---- */

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* "(b / bark-01": a variable and a slash behind a parenthesis. */
static bool begins_node(const char *at, const char *end) {
    if (at == end || *at++ != '(') return false;
    while (at < end && is_space(*at)) at++;
    const char *variable = at;
    while (at < end && *at && !is_space(*at) && !strchr("\"()/:~", *at)) at++;
    if (at == variable) return false;
    while (at < end && is_space(*at)) at++;
    return at < end && *at == '/';
}

/* The key of "# ::key value" follows; NULL: it is no such line. */
static const char *metadata_key(const char *at, const char *end) {
    const char *key = end - at > 3 ? memmem(at, (size_t)(end - at), "::", 2) : NULL;
    return key ? key + 2 : NULL;
}

bool source_is_amr(const char *bytes, int64_t n) {
    const char *at = bytes + str_mark(bytes, n), *end = bytes + n;
    bool has_metadata = false;
    while (at < end) {
        while (at < end && is_space(*at)) at++;
        if (at == end) return false;
        if (*at != '#') return begins_node(at, end) || (has_metadata && *at == '(');
        const char *stop = at;
        while (stop < end && *stop != '\n' && *stop != '\r') stop++;
        const char *key = metadata_key(at, stop);
        if (key && stop - key >= 4 && !memcmp(key, "snt", 3) && is_space(key[3])) return true;
        has_metadata |= key != NULL;
        at = stop;
    }
    return false;
}

/* ---- telling ---- */

static const char *skip_blanks(const char *at, const char *end) {
    while (at < end && strchr(" \t\r\n", *at) && *at) at++;
    return at;
}

/* A text that begins as a row does: an object with a quoted name. */
static bool looks_like_rows(const char *at, const char *end) {
    if (at < end && *at == '[') at = skip_blanks(at + 1, end);
    if (at >= end || *at != '{') return false;
    at = skip_blanks(at + 1, end);
    return at < end && *at == '"';
}

static void show_start(char to[24], const char *at, const char *end) {
    int n = 0;
    while (n < 20 && at + n < end && at[n] != '\n' && at[n] != '\r') {
        to[n] = at[n];
        n++;
    }
    while (n > 0 && at + n < end && (at[n] & 0xc0) == 0x80) n--; /* no half of a character */
    to[n] = 0;
}

static const char *const text_names[] = {".txt", ".text"}, *const tables[] = {".csv", ".tsv"},
                  *const json_names[] = {".jsonl", ".json", ".ndjson", ".jsonlines"}, *const amr_names[] = {".amr"};

bool source_tell(SourceForm *form, const char *path, const char *bytes, int64_t n, Err *e) {
    if (!refuse_marked(path, bytes, n, e)) return false;
    if (is_binary(bytes, n))
        return fail(e, ERR_FAIL,
                    "%s: is a binary file of an unknown kind. Samples are JSON lines, a table or text", path);
    if (source_is_amr(bytes, n)) {
        *form = SOURCE_AMR;
        return true;
    }
    const char *end = bytes + n, *at = skip_blanks(bytes + str_mark(bytes, n), end);
    bool rows = looks_like_rows(at, end), text = is_one_of(path, text_names, COUNT_OF(text_names));
    if (text && rows)
        return fail(e, ERR_FAIL,
                    "%s: is named as plain text and holds JSON. Name it .jsonl to train on its samples; as text "
                    "its brackets "
                    "and field names would be learnt",
                    path);
    *form = text ? SOURCE_TEXT : is_one_of(path, tables, COUNT_OF(tables)) ? SOURCE_TABLE
            : at < end && *at == '[' ? SOURCE_ARRAY : SOURCE_LINES;
    bool json = at == end || *at == '{' || *at == '[' || is_one_of(path, json_names, COUNT_OF(json_names));
    if (*form != SOURCE_LINES || json) return true;
    char start[24];
    show_start(start, at, end);
    return fail(e, ERR_FAIL,
                "%s: is not a list of samples: it begins with \"%s\". Samples are JSON objects, one on each line "
                "or in an array; "
                "a table is named .csv or .tsv; plain text is named .txt, and is one document",
                path, start);
}

/* ---- folders ---- */

static int form_by_name(const char *path) { /* 0: none of them */
    if (is_one_of(path, text_names, COUNT_OF(text_names))) return 1;
    if (is_one_of(path, amr_names, COUNT_OF(amr_names))) return 3;
    return is_one_of(path, tables, COUNT_OF(tables)) || is_one_of(path, json_names, COUNT_OF(json_names)) ? 2 : 0;
}

static void add_file(SourceFiles *f, const char *path) {
    f->path = mem_grow(f->path, &f->capacity, f->n + 1, sizeof *f->path);
    f->path[f->n++] = mem_strdup(path);
}

static bool walk(SourceFiles *f, const char *folder, int depth, Err *e) {
    enum { DEEPEST = 32 };
    char **names;
    int64_t n;
    Str path = {0};
    if (depth > DEEPEST)
        return fail(e, ERR_FAIL, "%s: folders are nested more than %d deep. Is a link among them?", folder,
                    DEEPEST);
    if (!file_list(folder, &names, &n, e)) return false;
    bool ok = true;
    for (int64_t i = 0; i < n; i++) {
        str_clear(&path);
        str_addf(&path, "%s/%s", folder, names[i]);
        bool hidden = !ok || names[i][0] == '.';
        if (!hidden && file_is_dir(path.data)) ok = walk(f, path.data, depth + 1, e);
        else if (!hidden && form_by_name(path.data)) add_file(f, path.data);
        else f->passed += !hidden;
        mem_free(names[i]);
    }
    mem_free(names);
    str_free(&path);
    return ok;
}

/* The name of a data set elsewhere: an address, or a name without an ending. */
static bool is_name_of_a_set(const char *path) {
    const char *slash = strrchr(path, '/');
    return strstr(path, "://") || !strchr(slash ? slash : path, '.');
}

bool source_files(SourceFiles *f, const char *path, Err *e) {
    *f = (SourceFiles){0};
    if (!file_exists(path) && is_name_of_a_set(path))
        return fail(e, ERR_FAIL,
                    "%s: there is no such file or folder, and nothing is downloaded. A data set of the hub becomes a "
                    "file by datasets: load_dataset(...)[\"train\"].to_json(\"train.jsonl\")",
                    path);
    if (!file_is_dir(path)) return add_file(f, path), true;
    bool ok = walk(f, path, 0, e);
    if (ok && !f->n)
        ok = fail(e, ERR_FAIL, "%s: holds no .txt, .jsonl, .json, .csv, .tsv or .amr file (%lld others are there)",
                  path, (long long)f->passed);
    for (int64_t i = 1; ok && i < f->n; i++)
        if (form_by_name(f->path[i]) != form_by_name(f->path[0]))
            ok = fail(e, ERR_FAIL,
                      "%s: holds files of different kinds (%s, %s). Name the files, or give each kind a folder of its "
                      "own",
                      path, f->path[0], f->path[i]);
    if (!ok) source_files_free(f);
    return ok;
}

void source_files_free(SourceFiles *f) {
    for (int64_t i = 0; i < f->n; i++) mem_free(f->path[i]);
    mem_free(f->path);
    *f = (SourceFiles){0};
}
