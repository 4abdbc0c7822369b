/* json.c - how numbers that JSON cannot express are written, and how a tree becomes text. */
#include "base/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

json_t *json_number(double v) { return isfinite(v) ? json_real(v) : json_null(); }

json_t *json_known(int64_t n) { return n >= 0 ? json_integer(n) : json_null(); }

json_t *json_ids(const int32_t *ids, int64_t n) {
    json_t *list = json_array();
    for (int64_t i = 0; i < n; i++) json_array_append_new(list, json_integer(ids[i]));
    return list;
}

json_t *json_floats(const float *x, int64_t n) {
    json_t *list = json_array();
    for (int64_t i = 0; i < n; i++) json_array_append_new(list, json_real((double)x[i]));
    return list;
}

void json_set_count(json_t *to, const char *name, int64_t n) { json_object_set_new(to, name, json_integer(n)); }

void json_set_number(json_t *to, const char *name, double v) { json_object_set_new(to, name, json_number(v)); }

void json_set_hex(json_t *to, const char *name, uint64_t v) {
    char text[20];
    snprintf(text, sizeof text, "%016" PRIx64, v);
    json_object_set_new(to, name, json_string(text));
}

json_t *json_set_counts(json_t *to, const JsonCount *c, int n) {
    for (int i = 0; i < n; i++) json_set_count(to, c[i].name, c[i].n);
    return to;
}

json_t *json_set_numbers(json_t *to, const JsonNumber *x, int n) {
    for (int i = 0; i < n; i++) json_set_number(to, x[i].name, x[i].v);
    return to;
}

static int add_bytes(const char *bytes, size_t n, void *out) {
    str_add_bytes(out, bytes, (int64_t)n);
    return 0;
}

bool json_print(Str *out, const json_t *root, size_t jansson_flags) {
    int64_t before = out->len;
    bool ok = root && !json_dump_callback(root, add_bytes, out, jansson_flags);
    if (!ok && out->data) out->data[out->len = before] = 0;
    return ok;
}

bool json_add(Str *out, const json_t *root, int digits) {
    return json_print(out, root, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION((size_t)digits));
}
