/* command.h - what the tests that run snug amr share: files in the test's folder, and what a command said. */
#ifndef TESTS_AMR_COMMAND_H
#define TESTS_AMR_COMMAND_H

#include <jansson.h>
#include <string.h>

#include "base/file.h"
#include "tests/snug.h"
#include "tests/test.h"

static inline void put(const char *name, const char *text) {
    Err e;
    EXPECT_OK(file_write_all(test_path(name), text, (int64_t)strlen(text), &e));
}

static inline void expect_refused(Ran r, int code, const char *part) {
    if (!EXPECT(r.code == code && strstr(str_text(&r.err), part)))
        test_note("    exit %d, wanted %d with '%s': %s", r.code, code, part, str_text(&r.err));
    ran_free(&r);
}

static inline void expect_file(const char *name, const char *wanted) {
    Str s = {0};
    Err e;
    EXPECT_OK(file_read(test_path(name), &s, 0, &e));
    EXPECT_STR(str_text(&s), wanted);
    str_free(&s);
}

static inline int64_t number(const json_t *j, const char *key) {
    return json_integer_value(json_object_get(j, key));
}

#endif
