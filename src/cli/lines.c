/* lines.c - output in large pieces, to a file that appears as a whole or to standard output. */
#include "cli/lines.h"

#include <stdio.h>

#include "base/json.h"

enum { WRITE_BYTES = 1 << 16 };

bool lines_may_write(const char *path, bool overwrite, Err *e) {
    return overwrite || !file_exists(path) ||
           fail(e, ERR_FAIL, "%s: is already there; give --overwrite to replace it", path);
}

bool lines_begin(Lines *l, const char *path, bool overwrite, Err *e) {
    *l = (Lines){.to_file = path != NULL};
    return !path || (lines_may_write(path, overwrite, e) && file_begin(&l->file, path, e));
}

static bool pour(Lines *l, Err *e) {
    bool ok = !l->to_file || file_write(l->file.fd, l->text.data, l->text.len, l->file.path, e);
    if (!l->to_file) fwrite(l->text.data, 1, (size_t)l->text.len, stdout);
    str_clear(&l->text);
    return ok;
}

bool lines_pour(Lines *l, Err *e) {
    return l->text.len < WRITE_BYTES || pour(l, e);
}

bool lines_json(Lines *l, json_t *row, Err *e) {
    json_add(&l->text, row, JSON_ALL_DIGITS);
    str_add_char(&l->text, '\n');
    json_decref(row);
    return lines_pour(l, e);
}

bool lines_end(Lines *l, bool ok, Err *e) {
    if (ok && l->text.len) ok = pour(l, e);
    if (l->to_file) ok = file_end(&l->file, ok, e);
    str_free(&l->text);
    return ok;
}
