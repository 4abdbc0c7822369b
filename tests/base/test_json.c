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
