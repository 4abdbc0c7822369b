/* test_json.c - JSON that is being built: what is no number is null, and a tree that is none adds nothing. */
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "tests/test.h"

TEST(json_is_built_and_written) {
    Str out = {0};
    json_t *j = JSON_COUNTS({"blocks", 3}, {"bytes", INT64_MAX});
    json_set_number(j, "loss", (double)NAN);
    json_set_number(j, "third", 1.0 / 3);
    json_set_hex(j, "hash", 0xabcULL);
    json_object_set_new(j, "free", json_known(-1));
    EXPECT(json_add(&out, j, 4));
    EXPECT(!strcmp(str_text(&out), "{\"blocks\":3,\"bytes\":9223372036854775807,\"loss\":null,\"third\":0.3333,"
                                   "\"hash\":\"0000000000000abc\",\"free\":null}"));
    EXPECT(!json_add(&out, NULL, 4) && out.data[out.len - 1] == '}');
    json_decref(j);
    str_free(&out);
}

TEST(json_of_lists_and_what_cannot_be_printed_adds_nothing) {
    Str out = {0};
    json_t *ids = json_ids((const int32_t[]){7, -1}, 2), *floats = json_floats((const float[]){0.5f}, 1),
           *word = json_string("a word alone");
    EXPECT(json_print(&out, ids, JSON_INDENT(1)) && json_add(&out, floats, JSON_ALL_DIGITS));
    EXPECT_STR(str_text(&out), "[\n 7,\n -1\n][0.5]");
    EXPECT(!json_print(&out, word, 0) && !json_print(&out, NULL, 0)); /* a document is an object or a list */
    EXPECT_STR(str_text(&out), "[\n 7,\n -1\n][0.5]");
    json_decref(ids);
    json_decref(floats);
    json_decref(word);
    str_free(&out);
}
