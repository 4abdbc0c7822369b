/* dataset_read.c - how rows are taken out of a file one by one, with the line each began on.
 *
 * The window is as long as the longest row so far. Where the next one does not end inside it, the file is looked
 * through ahead of the window, by small pieces, until its end is found: so its length is known, and can be
 * refused, before memory is taken for it. Only of a pipe or a compressed file, which cannot be looked into, the
 * window is doubled until the row ends. */
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/units.h"
#include "data/dataset_int.h"

#ifdef FUZZING
enum { WINDOW_BYTES = 64, LOOK_BYTES = 16 }; /* a row then ends in every place of the window */
#else
enum { WINDOW_BYTES = 1 << 20, LOOK_BYTES = 1 << 16 };
#endif
enum { MARK_BYTES = 3, LONG_ROW = 1 << 20 }; /* the library's tree of a longer one would be beyond all measure */

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

/* ---- the window ---- */

/* Moves the unread bytes to the front and makes room for `want` bytes from the first unread one on. */
static void make_room(RowReader *r, int64_t want) {
    if (r->begin) memmove(r->buffer, r->buffer + r->begin, (size_t)(r->end - r->begin));
    r->end -= r->begin;
    r->begin = 0;
    if (want > r->capacity) {
        r->buffer = mem_resize(r->buffer, want + 1); /* a zero may be put behind the last byte */
        r->capacity = want;
    }
}

/* Adds at least one byte to the window, or sets at_end. */
static bool read_some(RowReader *r, Err *e) {
    int64_t n, room = r->capacity - r->end;
    char *to = r->buffer + r->end;
    if (!(r->unpack ? unpack_read(r->unpack, to, &n, room, e) : file_read_some(r->fd, to, &n, room, r->path, e)))
        return false;
    r->end += n;
    r->offset += n;
    r->at_end = n == 0;
    return true;
}

static bool fill(RowReader *r, Err *e) {
    make_room(r, MAX2(WINDOW_BYTES, r->capacity));
    return read_some(r, e);
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

/* ---- where a row ends ---- */

typedef struct EndSearch { /* goes on from one piece of a row to the next */
    int64_t depth;
    bool in_text, escaped; /* of a table: inside quotes, and behind a quote there */
    bool in_field;         /* of a table: behind the first letter of a field; of a block: the line is not empty */
} EndSearch;

/* Bytes of the piece up to the end of the object that the search began with; -1: it does not end here. */
static int64_t object_end(EndSearch *s, const char *piece, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        char c = piece[i];
        if (s->in_text) {
            if (s->escaped) s->escaped = false;
            else if (c == '\\') s->escaped = true;
            else if (c == '"') s->in_text = false;
        } else if (c == '"') {
            s->in_text = true;
        } else if (c == '{' || c == '[') {
            s->depth++;
        } else if ((c == '}' || c == ']') && --s->depth <= 0) {
            return i + 1;
        }
    }
    return -1;
}

/* The same of a table's row: a line end between quotes does not end it. */
static int64_t record_end(const RowReader *r, EndSearch *s, const char *piece, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        char c = piece[i];
        if (s->in_text && !s->escaped) {
            s->escaped = c == '"';
        } else if (s->in_text && c == '"') {
            s->escaped = false; /* two of them are one */
        } else if (c == '\n') {
            return i;
        } else {
            s->in_text = !s->in_field && c == '"';
            s->escaped = false;
            s->in_field = c != r->separator;
        }
    }
    return -1;
}

/* The same of a block: it ends with an empty line. */
static int64_t block_end(EndSearch *s, const char *piece, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        if (piece[i] == '\n' && !s->in_field) return i;
        s->in_field = piece[i] != '\n' && (s->in_field || !is_blank(piece[i]));
    }
    return -1;
}

static int64_t find_end(const RowReader *r, EndSearch *s, const char *piece, int64_t n) {
    if (r->form == SOURCE_AMR) return block_end(s, piece, n);
    if (r->form == SOURCE_ARRAY) return object_end(s, piece, n);
    if (r->form == SOURCE_TABLE) return record_end(r, s, piece, n);
    const char *stop = memchr(piece, '\n', (size_t)n);
    return stop ? stop - piece : -1;
}

/* The row goes on beyond the window: how long is it? */
static bool look_ahead(RowReader *r, EndSearch *s, int64_t *bytes, Err *e) {
    char piece[LOOK_BYTES];
    int64_t size = file_facts(r->fd).bytes, at = r->offset;
    *bytes = r->end - r->begin;
    while (at < size) {
        int64_t n = MIN2(size - at, LOOK_BYTES);
        if (!file_pread(r->fd, piece, n, at, r->path, e)) return false;
        int64_t end = find_end(r, s, piece, n);
        *bytes += end >= 0 ? end : n;
        if (end >= 0) break;
        at += n;
    }
    return true;
}

bool dataset_reader_room(const RowReader *r, int64_t bytes, Err *e) {
    if (!r->left_bytes || mem_mul(bytes, 1 + r->cost) <= r->left_bytes) return true;
    return fail(
        e, ERR_BUDGET,
        "%s:%lld: this row has %s. Reading it takes %s, and %s are left of the budget. Nothing was loaded. Raise "
        "--budget, or cut the row into several",
        r->path, (long long)r->row_line, units_bytes(bytes).s, units_bytes(bytes * (1 + r->cost)).s,
        units_bytes(r->left_bytes).s);
}

static bool read_whole(RowReader *r, int64_t bytes, Err *e) {
    while (r->end < bytes && !r->at_end)
        if (!read_some(r, e)) return false;
    return r->end >= bytes || fail(e, ERR_FAIL, "%s: became shorter while it was read", r->path);
}

/* Brings the whole row that begins at the first unread byte into the window. */
static bool take_row(RowReader *r, int64_t *bytes, Err *e) {
    EndSearch s = {0};
    for (int64_t looked = 0;;) {
        int64_t held = r->end - r->begin, end = find_end(r, &s, r->buffer + r->begin + looked, held - looked);
        *bytes = end >= 0 ? looked + end : held;
        if (end >= 0 || r->at_end) break;
        looked = held;
        if (held < MAX2(WINDOW_BYTES, r->capacity)) {
            if (!fill(r, e)) return false;
            continue;
        }
        int64_t want = 2 * held; /* it is longer than the window */
        if (r->seekable && !look_ahead(r, &s, &want, e)) return false;
        if (!dataset_reader_room(r, want, e)) return false;
        make_room(r, want);
        if (r->seekable) return read_whole(r, *bytes = want, e);
    }
    return dataset_reader_room(r, *bytes, e);
}

/* ---- opening ---- */

static bool begin_rows(RowReader *r, Err *e) {
    int c;
    r->begin = str_mark(r->buffer, r->end);
    if (r->form == SOURCE_TEXT) return true;
    if (r->form == SOURCE_TABLE) return dataset_table_header(r, e);
    if (!skip_blanks(r, &c, e)) return false;
    if (r->form == SOURCE_ARRAY) step(r, 1);
    return true;
}

static void new_reader(RowReader *r, int fd, const char *name) {
    int64_t at = file_facts(fd).at;
    *r = (RowReader){.path = name, .fd = fd, .line = 1, .offset = MAX2(at, 0), .seekable = at >= 0};
}

static bool look_at_start(RowReader *r, Err *e) {
    while (r->end < SOURCE_LOOK_BYTES && !r->at_end)
        if (!fill(r, e)) return false;
    bool blank = true;
    for (int64_t i = 0; i < r->end && blank; i++) blank = is_blank(r->buffer[i]);
    if (blank && r->at_end && !str_ends(r->path, ".txt"))
        return fail(e, ERR_FAIL, "%s: is empty: it holds no sample", r->path);
    if (!source_tell(&r->form, r->path, r->buffer, MIN2(r->end, SOURCE_LOOK_BYTES), e)) return false;
    if (r->form == SOURCE_AMR && !r->blocks)
        return fail(e, ERR_FAIL,
                    "%s: this is an AMR corpus, which `snug train` and `snug eval` read; elsewhere `snug amr rows` "
                    "makes samples of it",
                    r->path);
    return begin_rows(r, e) && (r->form != SOURCE_AMR || r->blocks->begin(r->blocks->self, r->path, e));
}

bool dataset_reader_begin(RowReader *r, int fd, const char *name, Err *e) {
    int c;
    new_reader(r, fd, name);
    bool ok = true;
    while (ok && r->end < MARK_BYTES && !r->at_end) ok = fill(r, e); /* a pipe may give them one by one */
    if (ok) r->begin = str_mark(r->buffer, r->end);
    ok = ok && source_check_text(name, r->buffer, r->end, e) && skip_blanks(r, &c, e);
    if (!ok) dataset_reader_close(r);
    return ok;
}

bool dataset_reader_open_blocks(RowReader *r, const char *path, const RowBlocks *blocks, Err *e) {
    int fd;
    *r = (RowReader){.fd = -1};
    if (!file_open_read(path, &fd, e)) return false;
    new_reader(r, fd, path);
    r->blocks = blocks;
    bool ok = unpack_open(&r->unpack, fd, path, e);
    if (r->unpack) r->seekable = false;
    if (ok && look_at_start(r, e)) return true;
    dataset_reader_close(r);
    return false;
}

bool dataset_reader_open(RowReader *r, const char *path, Err *e) {
    return dataset_reader_open_blocks(r, path, NULL, e);
}

void dataset_reader_close(RowReader *r) {
    json_decref(r->made);
    mem_free(r->buffer);
    mem_free(r->name);
    unpack_close(r->unpack);
    str_free(&r->scratch);
    str_free(&r->header);
    file_close(r->fd);
    *r = (RowReader){.fd = -1};
}

/* ---- rows ---- */

static bool not_json(const RowReader *r, const json_error_t *at, Err *e) {
    const char *row = r->buffer + r->begin;
    bool goes_on = r->form == SOURCE_LINES && r->row_bytes && row[0] == '{' &&
                   object_end(&(EndSearch){0}, row, r->row_bytes) < 0;
    bool last = r->at_end && r->begin + r->row_bytes + 1 >= r->end;
    const char *hint =
        r->form == SOURCE_ARRAY ? "The file begins with [ and must hold an array of objects"
        : goes_on && last
            ? "Each line must hold one object, and the file ends before this one does. Was the copy cut short?"
        : goes_on && !strstr(at->text, "decode byte")
            ? "Each line must hold one object, and this one does not end on its line. Bring each to a line (jq -c . "
              "FILE > FILE.jsonl); is the list inside it, take it out (jq -c '.data[]' FILE > FILE.jsonl)"
            : dataset_json_hint(row, r->row_bytes, at->text);
    return fail(e, ERR_FAIL, "%s:%lld: is not JSON: %s. %s", r->path, (long long)(r->row_line + at->line - 1),
                at->text, hint);
}

/* Whether another element of the array follows; steps up to it. */
static bool next_element(RowReader *r, int *c, bool *more, Err *e) {
    *more = false;
    if (*c == ']') {
        step(r, 1);
        if (!skip_blanks(r, c, e)) return false;
        return *c < 0 ||
               fail(e, ERR_FAIL, "%s:%lld: something follows the end of the array", r->path, (long long)r->line);
    }
    if (r->after_first) {
        if (*c != ',')
            return fail(e, ERR_FAIL, "%s:%lld: ',' or ']' was expected in the array. Was the copy cut short?", r->path,
                        (long long)r->line);
        step(r, 1);
        if (!skip_blanks(r, c, e)) return false;
    }
    *more = r->after_first = true;
    return *c == '{' || *c < 0 ||
           fail(e, ERR_FAIL, "%s:%lld: a JSON object was expected, such as {\"text\": \"...\"}", r->path,
                (long long)r->line);
}

/* A blank may be an empty cell of a table: only empty lines are stepped over. */
static bool skip_empty_lines(RowReader *r, int *c, Err *e) {
    for (;;) {
        while (r->begin < r->end && strchr("\r\n", r->buffer[r->begin]) && r->buffer[r->begin]) step(r, 1);
        *c = r->begin < r->end ? (unsigned char)r->buffer[r->begin] : -1;
        if (*c >= 0 || r->at_end) return true;
        if (!fill(r, e)) return false;
    }
}

/* Finds the next row, *bytes from the first unread byte on; -1: there is none. */
static bool find_row(RowReader *r, int64_t *bytes, Err *e) {
    int c = 0;
    bool more = true;
    *bytes = -1;
    if (!(r->form == SOURCE_TABLE ? skip_empty_lines : skip_blanks)(r, &c, e)) return false;
    if (r->form == SOURCE_ARRAY && !next_element(r, &c, &more, e)) return false;
    if (!more || (c < 0 && r->form != SOURCE_ARRAY)) return true;
    r->row_line = r->line;
    if (!take_row(r, bytes, e)) return false;
    r->row_bytes = *bytes;
    r->longest_bytes = MAX2(r->longest_bytes, *bytes);
    return true;
}

/* By the JSON library, which also knows what is wrong. */
static bool read_tree(RowReader *r, json_t **row, int64_t bytes, Err *e) {
    json_error_t at;
    if (bytes > LONG_ROW)
        return fail(e, ERR_FAIL,
                    "%s:%lld: this row of %s is not JSON, or nested too deeply, or has a field twice, or more than %d "
                    "fields",
                    r->path, (long long)r->row_line, units_bytes(bytes).s, ROW_FIELDS);
    *row = json_loadb(r->buffer + r->begin, (size_t)bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &at);
    if (!*row) return not_json(r, &at, e);
    if (json_is_object(*row)) return true;
    json_decref(*row);
    *row = NULL;
    return fail(e, ERR_FAIL, "%s:%lld: a JSON object was expected, such as {\"text\": \"...\"}", r->path,
                (long long)r->row_line);
}

/* Only blanks stand between the object and the end of the row. */
static bool ends_there(const RowReader *r, int64_t used, int64_t bytes) {
    while (used < bytes && is_blank(r->buffer[r->begin + used])) used++;
    return used == bytes;
}

static bool next_record(RowReader *r, json_t **tree, Err *e) {
    bool found;
    Row *row = MEM_NEW(Row, 1);
    bool ok = dataset_reader_row(r, row, &found, e);
    if (ok && found) *tree = row_tree(row);
    mem_free(row);
    return ok;
}

bool dataset_reader_next(RowReader *r, json_t **row, Err *e) {
    int64_t bytes, used;
    *row = NULL;
    if (r->form == SOURCE_TABLE) return next_record(r, row, e);
    if (!find_row(r, &bytes, e)) return false;
    if (bytes < 0) return true;
    *row = dataset_scan_object(&r->scratch, r->buffer + r->begin, bytes, &used);
    if (*row && !ends_there(r, used, bytes)) {
        json_decref(*row);
        *row = NULL;
    }
    if (!*row && !read_tree(r, row, bytes, e)) return false;
    step(r, bytes);
    return true;
}

/* The next row of an AMR corpus: of the piece that was read last, or of the first one behind it that has any. */
static bool next_made(RowReader *r, Row *row, bool *found, Err *e) {
    while (r->n_taken == json_array_size(r->made)) {
        int64_t bytes;
        if (!find_row(r, &bytes, e)) return false;
        if (bytes < 0) return true;
        json_decref(r->made);
        r->made = json_array();
        r->n_taken = 0;
        if (!r->blocks->rows(r->blocks->self, r->made, r->buffer + r->begin, bytes, r->row_line, e))
            return fail_within(e, "%s:%lld", r->path, (long long)r->row_line);
        step(r, bytes);
    }
    row_from_tree(row, json_incref(json_array_get(r->made, r->n_taken++)));
    *found = true;
    return true;
}

bool dataset_reader_row(RowReader *r, Row *row, bool *found, Err *e) {
    int64_t bytes;
    json_t *tree = NULL;
    *found = false;
    if (r->form == SOURCE_AMR) return next_made(r, row, found, e);
    if (!find_row(r, &bytes, e)) return false;
    if (bytes < 0) return true;
    if (r->form == SOURCE_TABLE) {
        char *record = r->buffer + r->begin;
        step(r, MIN2(bytes + 1, r->end - r->begin)); /* with its line end, which may become the end of a text */
        *found = true;
        return dataset_table_row(r, row, record, bytes, r->row_line, e);
    }
    if (!row_scan(row, r->buffer + r->begin, bytes)) {
        if (!read_tree(r, &tree, bytes, e)) return false;
        if (!row_fits(tree, e)) {
            json_decref(tree);
            return fail_within(e, "%s:%lld", r->path, (long long)r->row_line);
        }
        row_from_tree(row, tree);
    }
    step(r, bytes); /* before a text is taken out of its JSON: line ends may be among it */
    *found = true;
    return true;
}

bool dataset_reader_text(RowReader *r, const char **text, int64_t *bytes, Err *e) {
    if (r->begin == r->end && !r->at_end && !fill(r, e)) return false;
    *text = r->buffer + r->begin;
    *bytes = r->end - r->begin;
    r->begin = r->end;
    return true;
}

bool dataset_reader_raw(RowReader *r, char **text, int64_t *bytes, Err *e) {
    if (!find_row(r, bytes, e)) return false;
    *text = r->buffer + r->begin;
    bool with_end = r->form == SOURCE_TABLE && *bytes >= 0; /* there a blank line end could be an empty cell */
    if (*bytes >= 0) step(r, MIN2(*bytes + with_end, r->end - r->begin));
    return true;
}

int64_t dataset_reader_done(const RowReader *r) {
    return r->unpack ? unpack_packed_bytes(r->unpack) : dataset_reader_at(r);
}

int64_t dataset_reader_at(const RowReader *r) {
    return r->offset - (r->end - r->begin);
}

bool dataset_reader_skip(RowReader *r, int64_t at, int64_t line, Err *e) {
    if (at < dataset_reader_at(r)) return true; /* the very beginning */
    if (r->seekable && at > r->offset) {
        if (!file_seek(r->fd, at, r->path, e)) return false;
        r->begin = r->end = 0;
        r->offset = at;
        r->at_end = false;
    }
    while (dataset_reader_at(r) < at) {
        int64_t n = MIN2(at - dataset_reader_at(r), r->end - r->begin);
        r->begin += n;
        if (r->begin < r->end) break;
        if (r->at_end)
            return fail(e, ERR_FAIL, "%s: ends before byte %lld, where it was left. Was it changed?", r->path,
                        (long long)at);
        if (!fill(r, e)) return false;
    }
    r->line = line;
    r->after_first = true;
    return true;
}
