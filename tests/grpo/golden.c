/* golden.c - reading of golden cases. */
#include "tests/grpo/golden.h"

#include "data/rows.h"
#include "tests/test.h"

int golden_each(const char *name, GoldenFn *fn) {
    char path[200];
    Err e = {0};
    RowReader r;
    json_t *row;
    int n = 0;
    snprintf(path, sizeof path, "tests/grpo/golden/%s.jsonl", name);
    EXPECT_OK(dataset_reader_open(&r, path, &e));
    while (dataset_reader_next(&r, &row, &e) && row) {
        fn(row);
        json_decref(row);
        n++;
    }
    dataset_reader_close(&r);
    return n;
}

int64_t golden_whole(const json_t *row, const char *key) {
    return json_integer_value(json_object_get(row, key));
}

const char *golden_text(const json_t *row, const char *key) {
    return json_string_value(json_object_get(row, key));
}

double golden_number(const json_t *v) {
    return json_is_null(v) ? NAN : json_number_value(v);
}

int64_t golden_numbers(double *to, const json_t *list) {
    int64_t n = (int64_t)json_array_size(list);
    for (int64_t i = 0; i < n; i++) to[i] = golden_number(json_array_get(list, (size_t)i));
    return n;
}

int64_t golden_wholes(int64_t *to, const json_t *list) {
    int64_t n = (int64_t)json_array_size(list);
    for (int64_t i = 0; i < n; i++) to[i] = json_integer_value(json_array_get(list, (size_t)i));
    return n;
}
