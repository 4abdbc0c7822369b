/* test_lm_eval.c - items, log-likelihoods, answers and measures as lm-evaluation-harness has them, with the model that
 * comes with snug. tools/compare_lm_eval.py made the values, and compares many more. */
#include <jansson.h>
#include <stdlib.h>

#include "base/file.h"
#include "tests/snug.h"
#include "tests/test.h"

#define FOLDER "tests/suite"

/* The JSON lines of a file; gives. */
static json_t *read_lines(const char *path) {
    Str text = {0};
    Err e = {0};
    json_t *list = json_array();
    EXPECT_OK(file_read(path, &text, 0, &e));
    for (char *save = NULL, *line = text.len ? strtok_r(text.data, "\n", &save) : NULL; line;
         line = strtok_r(NULL, "\n", &save))
        json_array_append_new(list, json_loads(line, 0, NULL));
    str_free(&text);
    return list;
}

static const char *text_of(const json_t *j, const char *key) {
    const char *text = json_string_value(json_object_get(j, key));
    return text ? text : "";
}

static json_t *find_item(const json_t *items, const json_t *want) {
    for (size_t i = 0; i < json_array_size(items); i++) {
        json_t *it = json_array_get(items, i);
        if (!strcmp(text_of(it, "task"), text_of(want, "task")) &&
            json_equal(json_object_get(it, "doc_id"), json_object_get(want, "doc_id")))
            return it;
    }
    return NULL;
}

static bool same_request(const json_t *want, const json_t *got) {
    const json_t *logp = json_object_get(want, "logp");
    return json_equal(json_object_get(want, "prompt_ids"), json_object_get(got, "prompt_ids")) &&
           (!logp || (json_equal(json_object_get(want, "ids"), json_object_get(got, "ids")) &&
                      fabs(json_number_value(logp) - json_number_value(json_object_get(got, "logp"))) <= 1e-4));
}

static void check_item(const json_t *want, const json_t *items) {
    static const char *const fields[] = {"answer", "extracted", "scores"};
    const json_t *got = find_item(items, want), *requests = json_object_get(want, "requests"),
                 *mine = json_object_get(got, "requests");
    bool ok = got && json_array_size(requests) == json_array_size(mine);
    for (size_t i = 0; ok && i < json_array_size(requests); i++)
        ok = same_request(json_array_get(requests, i), json_array_get(mine, i));
    for (int i = 0; ok && i < 3; i++)
        ok = !json_object_get(want, fields[i]) ||
             json_equal(json_object_get(want, fields[i]), json_object_get(got, fields[i]));
    if (!EXPECT(ok))
        test_note("    %s, item %lld", text_of(want, "task"), json_integer_value(json_object_get(want, "doc_id")));
}

static void check_measures(const json_t *want, const json_t *results, double tolerance) {
    const char *name;
    json_t *value, *measures = json_object_get(want, "measures");
    json_object_foreach(measures, name, value) {
        const json_t *got = json_object_get(json_object_get(results, text_of(want, "task")), name);
        double x = json_number_value(value), y = json_number_value(got);
        bool ok = json_is_string(value) ? json_equal(value, got)
                                        : json_is_number(got) && fabs(x - y) <= tolerance * fmax(1, fabs(x));
        if (!EXPECT(ok)) test_note("    %s %s: %.9g against %.9g", text_of(want, "task"), name, x, y);
    }
}

static void compare(int shots, const char *suites) {
    json_t *expected = read_lines(FOLDER "/expected.jsonl");
    Ran r = snug_run("eval --model models/tally --suite %s --suite-data " FOLDER
                     "/data --num-fewshot %d --precision fp32 --json "
                     "--device cpu --items %s",
                     suites, shots, test_path("items.jsonl"));
    json_t *out = ran_json(&r);
    if (!EXPECT(r.code == 0 && out)) test_note("%s", str_text(&r.err));
    json_t *items = r.code ? json_array() : read_lines(test_path("items.jsonl"));
    int checked = 0;
    for (size_t i = 0; i < json_array_size(expected); i++) {
        const json_t *want = json_array_get(expected, i), *of = json_object_get(want, "shots");
        if (!json_is_integer(of) || json_integer_value(of) != shots) continue;
        if (json_object_get(want, "measures")) check_measures(want, json_object_get(out, "results"), 1e-8);
        else check_item(want, items), checked++;
    }
    EXPECT(checked > 0 && checked == (int)json_array_size(items));
    json_decref(items);
    json_decref(out);
    json_decref(expected);
    ran_free(&r);
}

TEST(items_without_examples_are_the_harness_s) { compare(0, "hellaswag,arc,winogrande,boolq,mmlu"); }

TEST(items_with_drawn_examples_and_answers_are_the_harness_s) {
    compare(2, "hellaswag,arc,winogrande,boolq,mmlu,gsm8k");
}

/* mmlu and gsm8k with as many examples as results are quoted with: the first ones of a subject, and drawn ones. */
TEST(items_with_five_examples_are_the_harness_s) { compare(5, "winogrande,mmlu,gsm8k"); }

TEST(perplexity_of_pages_is_the_harness_s) {
    json_t *expected = read_lines(FOLDER "/expected.jsonl");
    Ran r = snug_run("eval --model models/tally --suite perplexity --data " FOLDER
                     "/data/pages.jsonl --precision fp32 --json "
                     "--device cpu");
    json_t *out = ran_json(&r);
    if (!EXPECT(r.code == 0 && out)) test_note("%s", str_text(&r.err));
    for (size_t i = 0; i < json_array_size(expected); i++) {
        const json_t *want = json_array_get(expected, i);
        if (!strcmp(text_of(want, "task"), "perplexity")) check_measures(want, json_object_get(out, "results"), 1e-5);
    }
    json_decref(out);
    json_decref(expected);
    ran_free(&r);
}

/* The mean over all subjects, and the groups that the harness has. */
TEST(mmlu_has_its_groups) {
    Ran r = snug_run("eval --model models/tally --suite mmlu --suite-data " FOLDER "/data --json --device cpu");
    json_t *out = ran_json(&r), *results = json_object_get(out, "results");
    if (!EXPECT(r.code == 0 && out)) test_note("%s", str_text(&r.err));
    double sum = 0, n = 0;
    static const char *const subject[] = {"mmlu_anatomy", "mmlu_high_school_us_history", "mmlu_sociology"};
    for (int i = 0; i < 3; i++) {
        double items = json_number_value(json_object_get(json_object_get(results, subject[i]), "sample_len"));
        sum += items * json_number_value(json_object_get(json_object_get(results, subject[i]), "acc,none"));
        n += items;
    }
    EXPECT_NEAR(json_number_value(json_object_get(json_object_get(results, "mmlu"), "acc,none")), sum / n, 1e-8);
    EXPECT(json_object_get(json_object_get(out, "groups"), "mmlu_stem") != NULL);
    EXPECT(!json_object_get(results, "mmlu_other")); /* none of its subjects has rows */
    EXPECT(json_array_size(json_object_get(json_object_get(out, "group_subtasks"), "mmlu")) == 3);
    json_decref(out);
    ran_free(&r);
}
