/* test_command.c - snug reason as a person uses it, with a small random model: its files, its refusals, its
 * company. */
#include <stdlib.h>

#include "base/file.h"
#include "base/mem.h"
#include "tests/snug.h"
#include "tests/test.h"
#include "tests/world.h"

static void make_model(const char *name, const char *more) {
    Ran r = snug_run(
        "init --model llama-3.2-1b --out %s --tokenizer tests/data/tok_smollm2 --dtype fp32 --set "
        "num_hidden_layers=1 "
        "--set hidden_size=32 --set num_attention_heads=2 --set num_key_value_heads=1 --set intermediate_size=32 "
        "--set vocab_size=424 %s",
        test_path(name), more);
    if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
    ran_free(&r);
}

#define SMALL "--max-iterations 1 --max-tokens 12 --judge-max-tokens 8 --threads 1 --invariant"

static void expect_refused(Ran r, int code, const char *part1, const char *part2) {
    if (!EXPECT(r.code == code && strstr(str_text(&r.err), part1) && strstr(str_text(&r.err), part2)))
        test_note("    exit %d, wanted %d with '%s' and '%s':\n%s", r.code, code, part1, part2, str_text(&r.err));
    ran_free(&r);
}

static void expect_done(Ran r) {
    if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
    ran_free(&r);
}

static void write_problems(const char *path, int n) {
    Str s = {0};
    for (int i = 0; i < n; i++)
        str_addf(&s, "{\"question\": \"What is %d + %d?\", \"answer\": \"Add.\\n#### %d\"}\n", i, i + 3,
                 2 * i + 3);
    file_write_all(path, s.data, s.len, NULL);
    str_free(&s);
}

/* ---- files ---- */

TEST(reason_writes_records_a_table_and_a_page) {
    Str html = {0}, csv = {0};
    test_tmp_in_memory();
    make_model("m", "--set vocab_size=500"); /* more rows than words: they are never said */
    write_problems(test_path("p.jsonl"), 5);
    Ran r =
        snug_run("reason --model %s --data %s --dataset gsm8k --num-examples 3 --start-from 1 --no-shuffle " SMALL
                 " --out %s --json --low-memory --optimize-gpu --cleanup-delay 2 --force-download",
                 test_path("m"), test_path("p.jsonl"), test_path("new/folder/r.json"));
    if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
    json_t *list = json_load_file(test_path("new/folder/r.json"), 0, NULL), *sum = ran_json(&r);
    EXPECT(json_array_size(list) == 3);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i), *meta = json_object_get(one, "metadata");
        char text[40], reference[20];
        snprintf(text, sizeof text, "What is %zu + %zu?", i + 1, i + 4);
        snprintf(reference, sizeof reference, "%zu", 2 * i + 5);
        EXPECT_STR(json_string_value(json_object_get(one, "problem")), text);
        EXPECT_STR(json_string_value(json_object_get(meta, "reference")), reference);
        EXPECT_STR(json_string_value(json_object_get(json_object_get(meta, "original_data"), "question")), text);
        EXPECT(json_is_false(json_object_get(meta, "correct")) &&
               json_is_true(json_object_get(meta, "needs_improvement")));
        EXPECT(json_integer_value(json_object_get(meta, "improvement_iteration")) == 1);
        EXPECT(json_array_size(json_object_get(meta, "previous_versions")) == 1);
        EXPECT(json_string_length(json_object_get(one, "timestamp")) == 20);
    }
    EXPECT(file_read(test_path("new/folder/r.csv"), &csv, 0, NULL) && strstr(csv.data, "What is 2 + 5?"));
    EXPECT(file_read(test_path("new/folder/r.html"), &html, 0, NULL) && strstr(html.data, "What is 3 + 6?"));
    EXPECT(!file_exists(test_path("new/folder/r.json.progress")));
    const char *said = str_text(&r.err);
    EXPECT(strstr(said, "--low-memory: taken and not needed") && strstr(said, "--optimize-gpu: taken") &&
           strstr(said, "--force-download: taken") && strstr(said, "--cleanup-delay: taken"));
    EXPECT(strstr(said, "problem 3/3") && strstr(said, "first solutions") && strstr(said, "after round 1"));
    EXPECT(json_integer_value(json_object_get(sum, "problems")) == 3);
    EXPECT(json_integer_value(json_object_get(sum, "planned_bytes")) > 0 &&
           json_equal(json_object_get(sum, "planned_bytes"), json_object_get(sum, "measured_bytes")));
    int64_t measured = json_integer_value(json_object_get(sum, "process_measured_bytes"));
    if (!test_sanitized())
        EXPECT(measured > 0 && measured <= json_integer_value(json_object_get(sum, "process_planned_bytes")));
    ran_free(&r);
    json_decref(list), json_decref(sum);
    str_free(&html), str_free(&csv);
}

TEST(reason_replaces_nothing_unasked) {
    test_tmp_in_memory();
    make_model("m", "");
    const char *how = "reason --model %s --num-examples 2 " SMALL " --out %s %s";
    expect_done(snug_run(how, test_path("m"), test_path("r.json"), ""));
    expect_refused(snug_run(how, test_path("m"), test_path("r.json"), ""), 1, "r.json: is already there",
                   "--overwrite");
    expect_done(snug_run(how, test_path("m"), test_path("r.json"), "--overwrite"));
    make_model("other", "--seed 9"); /* the same shape, other weights */
    file_write_all(test_path("s.json.progress"), "{\"reason\":1,\"job\":{\"seed\":\"42\"}}\n", 34, NULL);
    expect_refused(snug_run(how, test_path("m"), test_path("s.json"), ""), 1, "s.json.progress: belongs to another job",
                   "there,");
    expect_done(snug_run(how, test_path("m"), test_path("s.json"), "--overwrite"));
    EXPECT(world_same_results(test_path("r.json"), test_path("s.json")));
    expect_done(snug_run(how, test_path("other"), test_path("t.json"), ""));
    EXPECT(!world_same_results(test_path("r.json"), test_path("t.json")));
}

TEST(reason_refuses_clearly) {
    make_model("m", "");
    const char *m = test_path("m");
    expect_refused(snug_run("reason --model %s", m), 2, "needs --out", "");
    expect_refused(snug_run("reason --out %s", test_path("r.json")), 2, "needs --model", "");
    expect_refused(snug_run("reason --model %s --out %s --dataset gsm8k", m, test_path("r.json")), 2,
                   "nothing is downloaded", "--data");
    expect_refused(snug_run("reason --model %s --out %s --dataset gsm9k", m, test_path("r.json")), 2, "gsm9k",
                   "gsm8k");
    expect_refused(snug_run("reason --model %s --out %s --ranks 2", m, test_path("r.json")), 2, "which of them",
                   "--rank 0 to 1");
    expect_refused(snug_run("reason --model %s --out %s --ranks 2 --rank 2", m, test_path("r.json")), 2, "--rank 2",
                   "counted from 0");
    expect_refused(snug_run("reason --model %s --out %s --merge", m, test_path("r.json")), 1, "r.json.rank-0",
                   "not there");
    expect_refused(snug_run("reason --model %s --out %s --template chat " SMALL, m, test_path("r.json")), 1,
                   "chat template", "");
    expect_refused(snug_run("reason --model %s --out %s --num-examples 2 --budget 3MiB", m, test_path("r.json")), 3,
                   "does not fit", "");
    expect_refused(snug_run("train --model %s --data x --out y --optimize-gpu", m), 2, "is not an option here",
                   "doctor");
    EXPECT(!file_exists(test_path("r.json")));
    Ran r = snug_run("reason --list-datasets");
    EXPECT(r.code == 0 && strstr(str_text(&r.out), "numina_math") && strstr(str_text(&r.out), "gsm8k"));
    ran_free(&r);
    r = snug_run("reason --dataset-info math_qa");
    EXPECT(r.code == 0 && strstr(str_text(&r.out), "'Rationale'"));
    ran_free(&r);
}

/* ---- company ---- */

TEST(reason_gives_the_same_whatever_runs_beside_it) {
    test_tmp_in_memory();
    make_model("m", "");
    const char *how = "reason --model %s --num-examples 6 " SMALL " --context 512 --out %s %s";
    expect_done(snug_run(how, test_path("m"), test_path("a.json"), "--batch-size 1"));
    expect_done(snug_run(how, test_path("m"), test_path("b.json"), "--slots 4"));
    EXPECT(world_same_results(test_path("a.json"), test_path("b.json")) &&
           world_same_results(test_path("a.csv"), test_path("b.csv")));
    for (int rank = 2; rank >= 0; rank--) {
        char more[40];
        snprintf(more, sizeof more, "--ranks 3 --rank %d", rank);
        EXPECT(!file_exists(test_path("c.json")));
        expect_done(snug_run(how, test_path("m"), test_path("c.json"), more));
    }
    EXPECT(world_same_results(test_path("a.json"), test_path("c.json")) &&
           world_same_results(test_path("a.csv"), test_path("c.csv")));
    EXPECT(world_same_results(test_path("a.html"), test_path("c.html")) && !file_exists(test_path("c.json.rank-0")));
    expect_done(snug_run(how, test_path("m"), test_path("d.json"), "--seed 43"));
    EXPECT(!world_same_results(test_path("a.json"), test_path("d.json")));
}

TEST(reason_ranks_wait_for_each_other_and_can_be_merged_later) {
    test_tmp_in_memory();
    make_model("m", "");
    const char *how = "reason --model %s --num-examples 3 " SMALL " --context 512 --out %s %s";
    expect_done(snug_run(how, test_path("m"), test_path("c.json"), "--ranks 2 --rank 0"));
    Ran r = snug_run(how, test_path("m"), test_path("c.json"), "--ranks 2 --rank 0"); /* again: it is done */
    EXPECT(r.code == 0 && strstr(str_text(&r.err), "rank 0 is done already") &&
           strstr(str_text(&r.err), "rank 1 is not done"));
    ran_free(&r);
    expect_refused(snug_run("reason --merge --out %s", test_path("c.json")), 1, "c.json.rank-1", "not there");
    file_rename(test_path("c.json.rank-0"), test_path("kept"), NULL); /* so that the second does not merge */
    expect_done(snug_run(how, test_path("m"), test_path("c.json"), "--ranks 2 --rank 1"));
    file_rename(test_path("kept"), test_path("c.json.rank-0"), NULL);
    r = snug_run("reason --merge --json --out %s", test_path("c.json"));
    json_t *sum = ran_json(&r);
    EXPECT(r.code == 0 && json_integer_value(json_object_get(sum, "problems")) == 3);
    json_decref(sum);
    ran_free(&r);
    json_t *list = json_load_file(test_path("c.json"), 0, NULL);
    EXPECT(json_array_size(list) == 3);
    json_decref(list);
}

TEST(reason_notes_a_prompt_that_is_too_long_and_loses_nothing_else) {
    Str rows = {0};
    test_tmp_in_memory();
    make_model("m", "");
    str_add(&rows, "{\"question\": \"What is 1 + 1?\", \"answer\": \"#### 2\"}\n{\"question\": \"");
    for (int i = 0; i < 300; i++) str_addf(&rows, "%d and ", i);
    str_add(&rows, "what?\", \"answer\": \"#### 3\"}\n");
    file_write_all(test_path("p.jsonl"), rows.data, rows.len, NULL);
    str_free(&rows);
    expect_done(snug_run("reason --model %s --data %s --no-shuffle " SMALL " --context 700 --out %s", test_path("m"),
                         test_path("p.jsonl"), test_path("r.json")));
    json_t *list = json_load_file(test_path("r.json"), 0, NULL);
    const char *note =
        json_string_value(json_object_get(json_object_get(json_array_get(list, 1), "metadata"), "note"));
    EXPECT(json_array_size(list) == 2 &&
           !json_object_get(json_object_get(json_array_get(list, 0), "metadata"), "note"));
    EXPECT(note && strstr(note, "prompt to solve is") && strstr(note, "a context of 700"));
    EXPECT_STR(json_string_value(json_object_get(json_array_get(list, 1), "solution")), "");
    json_decref(list);
}

TEST(reason_follows_its_recipe) {
    test_tmp_in_memory();
    make_model("m", "--set max_position_embeddings=600");
    Ran r = snug_run(
        "reason --config recipes/reason.yaml --model %s --num-examples 1 --max-iterations 0 --json --out %s",
        test_path("m"), test_path("r.json"));
    json_t *sum = ran_json(&r);
    if (!EXPECT(r.code == 0 && json_integer_value(json_object_get(sum, "context")) == 600))
        test_note("%s", str_text(&r.err));
    EXPECT(strstr(str_text(&r.err), "weights int8") && strstr(str_text(&r.err), "budget: 12,884,901,888 bytes"));
    json_decref(sum);
    ran_free(&r);
}

/* A preset with drawn weights has no folder: its name and the seed say which job a journal belongs to. */
TEST(reason_with_drawn_weights_goes_on_as_the_same_job_only) {
    test_tmp_in_memory();
    const char *how = "reason --model %s --init random --tokenizer tests/data/tok_smollm2 --num-examples 2 " SMALL
                      " --out %s %s";
    expect_done(snug_run(how, "stories-15m", test_path("whole.json"), ""));
    file_make_dirs(test_path("r.html"), NULL); /* the page cannot be written: the answers stay in the journal */
    expect_refused(snug_run(how, "stories-15m", test_path("r.json"), ""), 1, "r.html", "directory");
    file_remove_tree(test_path("r.html"), NULL);
    expect_refused(snug_run(how, "stories-15m", test_path("r.json"), "--seed 7"), 1, "belongs to another job",
                   "seed is 42");
    expect_refused(snug_run(how, "stories-15m", test_path("r.json"), "--kv-cache int8"), 1, "belongs to another job",
                   "kv-cache is auto");
    expect_refused(snug_run(how, "stories-15m", test_path("r.json"), "--invariant=false"), 1,
                   "belongs to another job", "invariant is true");
    expect_refused(snug_run(how, "smollm2-135m", test_path("r.json"), ""), 1, "belongs to another job",
                   "model is stories-15m");
    Ran r = snug_run(how, "stories-15m", test_path("r.json"), "");
    EXPECT(r.code == 0 && strstr(str_text(&r.err), "r.json.progress: goes on"));
    EXPECT(world_same_results(test_path("whole.json"), test_path("r.json")));
    ran_free(&r);
}

/* ---- words ---- */

TEST(every_role_speaks_through_the_models_own_template) {
    test_tmp_in_memory();
    make_model("m", "");
    static const char config[] = "{\"chat_template\": \"{{ raise_exception('seen: ' + messages[0].role) }}\"}";
    const char *how = "reason --model %s --num-examples 1 " SMALL " --out %s %s";
    file_write_all(test_path("m/tokenizer_config.json"), config, (int64_t)strlen(config), NULL);
    expect_refused(snug_run(how, test_path("m"), test_path("r.json"), ""), 1, "seen: user", "");
    expect_done(snug_run(how, test_path("m"), test_path("r.json"), "--template none"));
}
