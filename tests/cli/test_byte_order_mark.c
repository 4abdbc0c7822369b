/* test_byte_order_mark.c - files as editors of Windows write them, with a byte order mark in front, mean the same. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "tests/snug.h"
#include "tests/test.h"

#define MARK "\xef\xbb\xbf"

static void put(const char *name, const char *text) {
    file_write_all(test_path(name), text, (int64_t)strlen(text), NULL);
}

TEST(a_byte_order_mark_is_no_part_of_a_configuration_of_prompts_or_of_a_sentence) {
    put("recipe.yaml", MARK "model: tally\r\nmax-tokens: 1\r\n");
    put("prompts.jsonl", MARK "{\"text\":\"2 + 2\"}\r\n");
    put("sentences.txt", MARK "The girl runs.\r\n");
    char recipe[500];
    snprintf(recipe, sizeof recipe, "%s", test_path("recipe.yaml"));
    Ran r = snug_run("generate --config %s --prompts %s", recipe, test_path("prompts.jsonl"));
    EXPECT(r.code == 0 && strstr(str_text(&r.out), "\"tokens\":1"));
    ran_free(&r);
    r = snug_run("amr parse --model tally --max-tokens 1 %s", test_path("sentences.txt"));
    EXPECT(r.code == 0 && str_starts(str_text(&r.out), "#::snt The girl runs."));
    ran_free(&r);
    r = snug_run("tokenize --tokenizer tally < %s", test_path("prompts.jsonl"));
    EXPECT(r.code == 0 && strstr(str_text(&r.out), "\"ids\":["));
    ran_free(&r);
}

TEST(a_byte_order_mark_is_no_part_of_a_models_configuration) {
    Str text = {0}, marked = {0};
    EXPECT(file_make_dirs(test_path("marked"), NULL) && file_read("models/tally/config.json", &text, 0, NULL));
    str_addf(&marked, MARK "%s", str_text(&text));
    put("marked/config.json", str_text(&marked));
    Ran r = snug_run("plan --model %s --seq 64", test_path("marked"));
    if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
    ran_free(&r);
    str_free(&text), str_free(&marked);
}
