/* test_tally.c - the model that comes with the project: it solves and judges stories in words it was not trained on.
 * The bounds lie well below what tools/eval_tally.sh measures (docs/tally.md), since processors round differently. */
#include <stdlib.h>

#include "base/file.h"
#include "tests/snug.h"
#include "tests/test.h"

static bool done(Ran r) {
    bool ok = EXPECT(r.code == 0);
    if (!ok) test_note("%s", str_text(&r.err));
    ran_free(&r);
    return ok;
}

TEST(the_models_own_reasoning_is_mostly_right) {
    test_tmp_in_memory();
    if (!done(snug_run("problems --n 24 --part held-out --roles none --seed 5 --out %s", test_path("p.jsonl")))) return;
    Ran r =
        snug_run("reason --config recipes/reason-tally.yaml --budget 1GiB --temperature 0 --data %s --out %s --json",
                 test_path("p.jsonl"), test_path("r.json")); /* more than the recipe's: sanitizers take memory */
    if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
    json_t *sum = ran_json(&r), *rounds = json_object_get(sum, "rounds");
    int64_t first = json_integer_value(json_object_get(json_array_get(rounds, 0), "correct"));
    int64_t last = json_integer_value(json_object_get(json_array_get(rounds, json_array_size(rounds) - 1), "correct"));
    test_note("    %lld of 24 at first, %lld at last", (long long)first, (long long)last);
    EXPECT(first >= 16 && last >= 16);
    EXPECT(json_equal(json_object_get(sum, "planned_bytes"), json_object_get(sum, "measured_bytes")));
    json_decref(sum);
    ran_free(&r);
}

TEST(the_model_judges_better_than_chance) {
    enum { ASKED = 40 };
    int right = 0, n = 0;
    Str text = {0};
    test_tmp_in_memory();
    if (!done(snug_run("problems --n %d --part held-out --roles judge --without-answers --seed 6 --out %s", ASKED,
                       test_path("p.jsonl"))) ||
        !done(snug_run("generate --model models/tally --prompts %s --max-tokens 250 --out %s", test_path("p.jsonl"),
                       test_path("a.jsonl"))))
        return;
    EXPECT(file_read(test_path("a.jsonl"), &text, 0, NULL));
    for (char *line = strtok(text.data, "\n"); line; line = strtok(NULL, "\n"), n++) {
        json_t *a = json_loads(line, 0, NULL);
        const char *score = strstr(json_string_value(json_object_get(a, "text")), "correctness: ");
        bool is = json_is_true(json_object_get(json_object_get(a, "id"), "right"));
        right += score && (atof(score + 13) >= 0.5) == is;
        json_decref(a);
    }
    str_free(&text);
    test_note("    %d of %d judged as they are", right, n);
    EXPECT(n == ASKED && right >= ASKED * 7 / 10);
}
