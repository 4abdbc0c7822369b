/* same.c - how two runs of a small job are compared. */
#include "tests/same/same.h"

#include <string.h>

#include "tests/test.h"

Same same_train(const char *name, const char *flags) {
    Same s = {
        .ran = snug_run(
            "train --model %s --data %s --out %s --seq 48 --global-batch 8 --steps %d --log-steps 1 --lr 3e-3 "
            "--threads 2 --no-save --overwrite %s",
            test_path("m"), test_path("rows.jsonl"), test_path(name), SAME_STEPS, flags)};
    s.result = s.ran.code == 0 ? ran_json(&s.ran) : NULL;
    if (s.result) EXPECT(snug_metrics(test_path(name), "train", "loss", s.loss, SAME_STEPS) == SAME_STEPS);
    return s;
}

void same_free(Same *s) {
    ran_free(&s->ran);
    json_decref(s->result);
}

int64_t same_int(const Same *s, const char *key) {
    return (int64_t)json_number_value(json_object_get(s->result, key));
}

void same_expect(const Same *a, const Same *b, const char *what) {
    if (!EXPECT(a->result && b->result)) {
        test_note("    %s: %s", what, str_text(a->result ? &b->ran.err : &a->ran.err));
        return;
    }
    const char *x = json_string_value(json_object_get(a->result, "checksum")),
               *y = json_string_value(json_object_get(b->result, "checksum"));
    bool same = x && y && !strcmp(x, y) && a->loss[SAME_STEPS - 1] != a->loss[0];
    for (int i = 0; i < SAME_STEPS; i++) same &= a->loss[i] == b->loss[i];
    if (EXPECT(same)) return;
    test_note("    %s: checksum %s against %s", what, x, y);
    for (int i = 0; i < SAME_STEPS; i++)
        test_note("    step %d: %.17g against %.17g", i + 1, a->loss[i], b->loss[i]);
}
