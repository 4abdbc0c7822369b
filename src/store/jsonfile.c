/* jsonfile.c - how jansson's values are read from and written to files, and how its errors are worded. */
#include "store/jsonfile.h"

#include <string.h>

#include "base/file.h"

bool jsonfile_parse(json_t **root, const char *text, int64_t bytes, const char *where, Err *e) {
    json_error_t at;
    *root = NULL;
    if (memchr(text, 0, (size_t)bytes)) /* jansson takes a zero byte behind a number for a blank */
        return fail(e, ERR_FAIL, "%s: not valid JSON: it contains a zero byte", where);
    *root = json_loadb(text, (size_t)bytes, JSON_REJECT_DUPLICATES, &at);
    if (!*root) return fail(e, ERR_FAIL, "%s: not valid JSON at line %d: %s", where, at.line, at.text);
    if (json_is_object(*root)) return true;
    json_decref(*root);
    *root = NULL;
    return fail(e, ERR_FAIL, "%s: a JSON object was expected", where);
}

bool jsonfile_read(json_t **root, const char *path, int64_t limit_bytes, Err *e) {
    Str text = {0};
    *root = NULL;
    bool ok = file_read(path, &text, limit_bytes, e);
    int64_t mark = str_mark(str_text(&text), text.len);
    ok = ok && jsonfile_parse(root, str_text(&text) + mark, text.len - mark, path, e);
    str_free(&text);
    return ok;
}

void jsonfile_set(json_t **root, const char *key, json_t *value) {
    if (!*root) {
        json_decref(value);
    } else if (!value || json_object_set_new(*root, key, value)) {
        json_decref(*root);
        *root = NULL;
    }
}

int64_t jsonfile_bytes(json_t *root) {
    Str text = {0};
    int64_t bytes = json_print(&text, root, JSON_INDENT(2)) ? text.len + 1 : 0;
    str_free(&text);
    json_decref(root);
    return bytes;
}

bool jsonfile_write(const char *path, const json_t *root, Err *e) {
    Str text = {0};
    bool ok = json_print(&text, root, JSON_INDENT(2));
    if (ok) {
        str_add_char(&text, '\n');
        ok = file_write_all(path, text.data, text.len, e);
    } else {
        fail(e, ERR_FAIL, "%s: cannot be written as JSON. Is some name in it not UTF-8?", path);
    }
    str_free(&text);
    return ok;
}
