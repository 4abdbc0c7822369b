/* dataset_read.c - how objects are taken out of a file one by one, with the line each began on.
 *
 * JSON lines are read through a window that holds the longest line; an array of objects is held whole while it is
 * read, and each object is parsed on its own. */
#include <string.h>
#include <utf8proc.h>

#include "base/file.h"
#include "base/mem.h"
#include "data/dataset_int.h"

#ifdef FUZZING
enum { READ_BYTES = 64 }; /* a row then ends in every place of the window */
#else
enum { READ_BYTES = 1 << 20 };
#endif

static const char byte_order_mark[] = "\xef\xbb\xbf";

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

/* Adds at least one byte to the window, or sets at_end. */
static bool fill(RowReader *r, Err *e) {
    if (r->begin) {
        memmove(r->buffer, r->buffer + r->begin, (size_t)(r->end - r->begin));
        r->end -= r->begin;
        r->begin = 0;
    }
    r->buffer = mem_grow(r->buffer, &r->capacity, r->end + READ_BYTES, 1);
    int64_t n;
    if (!file_read_some(r->fd, r->buffer + r->end, &n, READ_BYTES, r->path, e)) return false;
    r->end += n;
    r->got += n;
    r->at_end = n == 0;
    return true;
}

static bool window_starts(const RowReader *r, const char *with) {
    int64_t n = (int64_t)strlen(with);
    return r->end - r->begin >= n && !memcmp(r->buffer + r->begin, with, (size_t)n);
}

/* Steps over n bytes and counts their lines. */
static void step(RowReader *r, int64_t n) {
    const char *at = r->buffer + r->begin, *end = at + n;
    while ((at = memchr(at, '\n', (size_t)(end - at)))) {
        r->line++;
        at++;
    }
    r->begin += n;
}

/* Steps over blanks; c is the byte behind them, -1 at the end of the file. */
static bool skip_blanks(RowReader *r, int *c, Err *e) {
    for (;;) {
        int64_t n = 0;
        while (r->begin + n < r->end && is_blank(r->buffer[r->begin + n])) n++;
        step(r, n);
        *c = r->begin < r->end ? (unsigned char)r->buffer[r->begin] : -1;
        if (*c >= 0 || r->at_end) return true;
        if (!fill(r, e)) return false;
    }
}

static bool look_at_start(RowReader *r, Err *e) {
    while (r->end < 4 && !r->at_end)
        if (!fill(r, e)) return false;
    if (window_starts(r, "PAR1"))
        return fail(e, ERR_FAIL, "%s: is a Parquet file. Convert it to JSON lines first", r->path);
    if (window_starts(r, "\x1f\x8b") || window_starts(r, "\x28\xb5\x2f\xfd"))
        return fail(e, ERR_FAIL, "%s: is compressed. Unpack it first", r->path);
    if (window_starts(r, byte_order_mark)) r->begin += 3;
    int c;
    if (!skip_blanks(r, &c, e)) return false;
    if (c < 0) return fail(e, ERR_FAIL, "%s: is empty. Each line must hold one JSON object", r->path);
    r->in_array = c == '[';
    if (!r->in_array) return true;
    step(r, 1);
    while (!r->at_end)
        if (!fill(r, e)) return false;
    return true;
}

bool dataset_reader_open(RowReader *r, const char *path, Err *e) {
    *r = (RowReader){.path = path, .fd = -1, .line = 1};
    if (!file_open_read(path, &r->fd, e)) return false;
    if (look_at_start(r, e)) return true;
    dataset_reader_close(r);
    return false;
}

void dataset_reader_close(RowReader *r) {
    mem_free(r->buffer);
    str_free(&r->scratch);
    file_close(r->fd);
    *r = (RowReader){.fd = -1};
}

static bool not_json(const RowReader *r, const json_error_t *at, Err *e) {
    const char *hint = r->in_array
                           ? "The file begins with [ and must hold an array of objects"
                           : "Each line must hold one object, such as {\"text\": \"...\"}; name plain text .txt";
    return fail(e, ERR_FAIL, "%s:%lld: is not JSON: %s. %s", r->path, (long long)(r->row_line + at->line - 1),
                at->text, hint);
}

static bool check_object(const RowReader *r, json_t **row, Err *e) {
    if (json_is_object(*row)) return true;
    json_decref(*row);
    *row = NULL;
    return fail(e, ERR_FAIL, "%s:%lld: a JSON object was expected, such as {\"text\": \"...\"}", r->path,
                (long long)r->row_line);
}

/* The rest of the current line, without its end. The search never looks at a byte twice. */
static bool line_length(RowReader *r, int64_t *n, Err *e) {
    for (int64_t looked = 0;;) {
        const char *from = r->buffer + r->begin;
        const char *stop = memchr(from + looked, '\n', (size_t)(r->end - r->begin - looked));
        if (stop || r->at_end) {
            *n = stop ? stop - from : r->end - r->begin;
            return true;
        }
        looked = r->end - r->begin;
        if (!fill(r, e)) return false;
    }
}

/* The value in the next n bytes; n becomes what it takes: all of them, or with JSON_DISABLE_EOF_CHECK perhaps less. */
static bool parse(RowReader *r, json_t **row, int64_t *n, size_t flags, Err *e) {
    const char *text = r->buffer + r->begin;
    json_error_t at;
    int64_t used;
    *row = dataset_scan_object(&r->scratch, text, *n, &used);
    if (*row && flags) return *n = used, true;
    if (*row) {
        while (used < *n && is_blank(text[used])) used++;
        if (used == *n) return true;
        json_decref(*row);
    }
    *row = json_loadb(text, (size_t)*n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | flags, &at);
    if (!*row) return not_json(r, &at, e);
    if (flags) *n = at.position;
    return true;
}

static bool next_of_lines(RowReader *r, json_t **row, Err *e) {
    int64_t n;
    int c;
    if (!skip_blanks(r, &c, e)) return false;
    if (c < 0) return true;
    r->row_line = r->line;
    if (!line_length(r, &n, e) || !parse(r, row, &n, 0, e)) return false;
    step(r, n);
    return check_object(r, row, e);
}

static bool next_of_array(RowReader *r, json_t **row, Err *e) {
    int c;
    if (!skip_blanks(r, &c, e)) return false;
    if (r->after_first && c == ',') {
        step(r, 1);
        if (!skip_blanks(r, &c, e)) return false;
    } else if (c == ']') {
        step(r, 1);
        if (!skip_blanks(r, &c, e)) return false;
        return c < 0 ||
               fail(e, ERR_FAIL, "%s:%lld: something follows the end of the array", r->path, (long long)r->line);
    } else if (r->after_first) {
        return fail(e, ERR_FAIL, "%s:%lld: ',' or ']' was expected in the array. Was the copy cut short?", r->path,
                    (long long)r->line);
    }
    r->row_line = r->line;
    r->after_first = true;
    int64_t n = r->end - r->begin;
    if (!parse(r, row, &n, JSON_DISABLE_EOF_CHECK, e)) return false;
    step(r, n);
    return check_object(r, row, e);
}

bool dataset_reader_next(RowReader *r, json_t **row, Err *e) {
    *row = NULL;
    return r->in_array ? next_of_array(r, row, e) : next_of_lines(r, row, e);
}

bool dataset_read_text(Str *out, const char *path, Err *e) {
    if (!file_read(path, out, 0, e)) return false;
    if (out->len >= 3 && !memcmp(out->data, byte_order_mark, 3)) {
        out->len -= 3;
        memmove(out->data, out->data + 3, (size_t)out->len + 1);
    }
    int64_t line = 1;
    for (int64_t at = 0; at < out->len;) {
        utf8proc_int32_t c;
        utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)out->data + at, out->len - at, &c);
        if (n <= 0)
            return fail(e, ERR_FAIL, "%s:%lld: byte 0x%02x is not UTF-8. Convert the file to UTF-8 first (iconv)",
                        path, (long long)line, (unsigned char)out->data[at]);
        line += c == '\n';
        at += n;
    }
    return true;
}
