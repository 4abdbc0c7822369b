/* field.c - what of a row counts as text. */
#include "data/field.h"

#include <string.h>

#include "base/json.h"

enum { NAMES_BYTES = 300, NAME_BYTES = 60 };

const json_t *field_get(const json_t *row, const char *name) {
    const json_t *v = name ? json_object_get(row, name) : NULL;
    return json_is_null(v) ? NULL : v;
}

bool field_text(Str *out, const json_t *row, const char *name, Err *e) {
    const json_t *v = field_get(row, name);
    if (!v) return true;
    if (json_is_string(v)) {
        if (strlen(json_string_value(v)) != json_string_length(v))
            return fail(e, ERR_FAIL, "field '%s' holds a zero byte", name);
        str_add_trimmed(out, json_string_value(v));
        return true;
    }
    if (!json_is_number(v)) return fail(e, ERR_FAIL, "field '%s' must be text or a number", name);
    json_add(out, v, 15);
    return true;
}

void field_names(Str *out, const json_t *row) {
    const char *name;
    json_t *v;
    int64_t before = out->len;
    json_object_foreach((json_t *)row, name, v) {
        if (out->len - before > NAMES_BYTES) break;
        str_addf(out, "%s%.*s", out->len > before ? ", " : "", NAME_BYTES, name);
    }
}
