/* test_wrong_turns.c - what a newcomer names in place of the right thing is answered with what to give instead. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "tests/snug.h"
#include "tests/test.h"

static void put(const char *name, const char *text) {
    file_write_all(test_path(name), text, (int64_t)strlen(text), NULL);
}

static void expect_said(Ran r, int code, const char *what) {
    if (!EXPECT(r.code == code && strstr(str_text(&r.err), what)))
        test_note("    exit %d, wanted %d with '%s':\n%s", r.code, code, what, str_text(&r.err));
    ran_free(&r);
}

static void folder(const char *name) { EXPECT(file_make_dirs(test_path(name), NULL)); }

TEST(the_folder_of_a_run_given_as_a_model_is_answered_with_its_result) {
    char run[500], tuned[500];
    snprintf(run, sizeof run, "%s", test_path("run"));
    snprintf(tuned, sizeof tuned, "%s", test_path("tuned"));
    folder("run/model"), folder("tuned/adapter");
    put("run/model/config.json", "{}");
    put("tuned/adapter/adapter_config.json", "{}");
    expect_said(snug_run("generate --prompt hi --model %s", run), 1, "whose result is");
    expect_said(snug_run("generate --prompt hi --model %s", tuned), 1, "/tuned/adapter, and --model with");
    expect_said(snug_run("generate --prompt hi --model %s/adapter", tuned), 1, "/tuned/adapter, and --model with");
    expect_said(snug_run("generate --prompt hi --model %s/model/config.json", run), 1, "is a file; name the folder");
}

TEST(the_folder_of_a_run_given_as_an_adapter_is_answered_with_its_result) {
    static const char how[] = "generate --prompt hi --model tally --adapter %s%s";
    char tuned[500];
    snprintf(tuned, sizeof tuned, "%s", test_path("tuned"));
    folder("tuned/adapter"), folder("tuned/checkpoint-1"), folder("whole");
    put("tuned/adapter/adapter_config.json", "{}");
    put("whole/config.json", "{}");
    expect_said(snug_run(how, tuned, ""), 1, "whose result is");
    expect_said(snug_run(how, test_path("whole"), ""), 1, "give it as --model");
    expect_said(snug_run(how, tuned, "/checkpoint-1"), 1, "Is it an adapter's folder");
    expect_said(snug_run(how, tuned, "/none"), 1, "there is no such folder");
}

TEST(a_rope_scaling_that_would_scale_nothing_is_refused_by_its_field) {
    static const char config[] =
        "{\"model_type\": \"llama\", \"hidden_size\": 32, \"intermediate_size\": 64, \"vocab_size\": 128, "
        "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"max_position_embeddings\": 4096, %s}";
    static const struct {
        const char *rope, *says; /* NULL: it is taken */
    } cases[] = {
        {"\"rope_scaling\": {\"type\": \"yarn\"}", "'rope_scaling' is of type yarn and has no 'factor'"},
        {"\"rope_scaling\": {\"type\": \"linear\", \"factor\": null}", "of type linear and has no 'factor'"},
        {"\"rope_scaling\": {\"type\": \"dynamic\"}", "rope type 'dynamic' is not supported"},
        {"\"rope_parameters\": {\"rope_type\": \"llama3\", \"original_max_position_embeddings\": 2048}",
         "'rope_parameters' is of type llama3 and has no 'factor'"},
        {"\"rope_scaling\": {\"type\": \"ntk\", \"factor\": 0}", "'rope_scaling.factor' is not a number above 0"},
        {"\"rope_scaling\": {\"type\": \"yarn\", \"factor\": -4}", "'rope_scaling.factor' is not a number above 0"},
        {"\"rope_scaling\": {\"type\": \"linear\", \"factor\": \"4\"}", "'rope_scaling.factor' is not a number"},
        {"\"rope_scaling\": {\"type\": \"yarn\", \"original_max_position_embeddings\": 4096}", "has no 'factor'"},
        {"\"rope_scaling\": {\"type\": \"yarn\", \"original_max_position_embeddings\": 1024}", NULL},
        {"\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4}", NULL},
        {"\"rope_scaling\": null", NULL},
    };
    folder("roped");
    for (int i = 0; i < COUNT_OF(cases); i++) {
        char text[600];
        snprintf(text, sizeof text, config, cases[i].rope);
        put("roped/config.json", text);
        Ran r = snug_run("plan --model %s --seq 64", test_path("roped"));
        if (!cases[i].says && !EXPECT(r.code == 0)) test_note("    %s\n%s", cases[i].rope, str_text(&r.err));
        if (cases[i].says) expect_said(r, 1, cases[i].says);
        else ran_free(&r);
    }
}

TEST(lines_of_text_given_as_prompts_are_answered_with_how_to_make_rows_of_them) {
    put("p.txt", "What is two and two?\n");
    expect_said(snug_run("generate --model tally --prompts %s", test_path("p.txt")), 1, "jq -Rc '{prompt: .}'");
}

TEST(prompts_of_another_shape_are_answered_with_what_is_wrong) {
    static const char *const wrong[][2] = {
        {"[{\"prompt\":\"a\"},{\"prompt\":\"b\"}]\n", "p.jsonl:1: is a list"},
        {"{\"prompt\":\"a\"}\n\n7\n", "p.jsonl:3: is not JSON"},
        {"{\n  \"prompt\": \"a\"\n}\n", "does not end on its line (jq -c . FILE"},
        {"{\"prompt\":\"\xff\"}\n", "iconv -f LATIN1"},
    };
    for (int i = 0; i < COUNT_OF(wrong); i++) {
        put("p.jsonl", wrong[i][0]);
        expect_said(snug_run("generate --model tally --prompts %s", test_path("p.jsonl")), 1, wrong[i][1]);
    }
}

/* Fields beyond those that are read were dropped, and the one that was wanted called missing. */
TEST(a_row_of_too_many_fields_is_called_that) {
    Str row = {0};
    for (int n = 256; n <= 257; n++) {
        str_clear(&row);
        for (int i = 1; i < n; i++) str_addf(&row, "%s\"f%d\":%d", i > 1 ? "," : "{", i, i);
        str_add(&row, ",\"text\":\"What is two and two?\"}\n");
        put("rows.jsonl", str_text(&row));
        expect_said(snug_run("eval --model tally --data %s --json", test_path("rows.jsonl")), n > 256,
                    n > 256 ? "rows.jsonl:1: the row has 257 fields, and at most 256 are read" : "");
        expect_said(snug_run("prepare --tokenizer tally --out %s %s", test_path(n > 256 ? "p7" : "p6"),
                             test_path("rows.jsonl")),
                    n > 256, n > 256 ? "the row has 257 fields" : "");
    }
    str_free(&row);
}

TEST(init_takes_no_tokenizer_with_more_ids_than_the_model) {
    static const char how[] =
        "init --model stories-15m --tokenizer tests/data/tok_smollm2 --set vocab_size=%s --out %s";
    expect_said(snug_run(how, "100", test_path("i")), 1, "Give --set vocab_size=");
    EXPECT(!file_exists(test_path("i")));
    Ran r = snug_run(how, "60000", test_path("i"));
    if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
    ran_free(&r);
}

TEST(a_gguf_file_is_answered_with_what_is_read) {
    expect_said(snug_run("generate --model model.Q4_K_M.gguf --prompt hi"), 1, "GGUF files are not read");
}

TEST(quiet_and_json_leave_nothing_but_json) {
    static const char *const some[] = {"plan --model tally --seq 64 --json --quiet",
                                       "plan --model tally --task generate --json --quiet"};
    for (int i = 0; i < COUNT_OF(some); i++) {
        Ran r = snug_run("%s", some[i]);
        json_t *j = ran_json(&r);
        /* under the sanitizers a plan warns of their memory, which is in no plan */
        if (!EXPECT(r.code == 0 && j && (!r.err.len || test_sanitized())))
            test_note("    %s: %s", some[i], str_text(&r.err));
        json_decref(j);
        ran_free(&r);
    }
}

TEST(a_run_is_gone_on_with_by_its_configuration) {
    expect_said(snug_run("train --resume %s", test_path("run")), 2, "snug train --config RUN/config.yaml --resume");
    folder("run");
    expect_said(snug_run("train --config %s --resume", test_path("run")), 1, "run/config.yaml");
}

TEST(commands_of_other_tools_are_answered_with_ours) {
    expect_said(snug_run("finetune"), 2, "Did you mean `snug train`?");
    expect_said(snug_run("serve --model tally"), 2, "There is no HTTP server");
    expect_said(snug_run("-v"), 2, "`snug --version`");
    expect_said(snug_run("trian"), 2, "Did you mean `snug train`?");
    expect_said(snug_run("help nothing"), 2, "'nothing' is not a command");
    static const char *const some[] = {"help amr parse", "help train"};
    for (int i = 0; i < COUNT_OF(some); i++) {
        Ran r = snug_run("%s", some[i]);
        EXPECT(r.code == 0 && strstr(str_text(&r.out), some[i] + 5));
        ran_free(&r);
    }
}

TEST(a_run_that_was_moved_is_looked_for_where_out_says) {
    expect_said(snug_run("train --model tally --data recipes/none.jsonl --seq 64 --out %s --resume", test_path("gone")),
                1, "Was its folder moved?");
}

TEST(a_budget_far_too_small_is_told_in_times_and_not_in_thousands_of_percent) {
    Ran r = snug_run("plan --model tally --seq 64 --budget 1MiB");
    EXPECT(r.code == 3 && strstr(str_text(&r.out), "times as much is needed)"));
    ran_free(&r);
}

TEST(weights_that_are_a_pointer_of_git_lfs_are_called_so) {
    folder("lfs");
    EXPECT(file_copy("models/tally/config.json", test_path("lfs/config.json"), NULL) &&
           file_copy("models/tally/tokenizer.json", test_path("lfs/tokenizer.json"), NULL));
    put("lfs/model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:12ab\nsize 4723688\n");
    expect_said(snug_run("generate --prompt hi --model %s", test_path("lfs")), 1, "git lfs pull");
}

TEST(a_quantised_folder_that_is_to_be_trained_is_named_and_not_an_option_nobody_gave) {
    Ran r = snug_run("quantize --model tally --quantize nf4 --out %s", test_path("q"));
    EXPECT(r.code == 0);
    ran_free(&r);
    expect_said(snug_run("plan --model %s --seq 64", test_path("q")), 2, "stored as nf4, and such weights are not");
    expect_said(snug_run("plan --model tally --seq 64 --quantize nf4"), 2, "it goes with --mode lora");
}

TEST(half_of_an_options_name_is_completed_in_the_answer) {
    expect_said(snug_run("generate --model tally --prompt hi --max-new 3"), 2, "Did you mean --max-new-tokens?");
    expect_said(snug_run("generate --model tally --prompt hi --max_new 3"), 2, "Did you mean --max-new-tokens?");
    expect_said(snug_run("plan --model tally --gradient-acc 3"), 2, "Did you mean --gradient-accumulation-steps?");
    expect_said(snug_run("monitor --port 8080"), 2, "--serve PORT");
}

TEST(a_file_given_as_an_option_to_a_command_that_takes_words_is_answered_so) {
    expect_said(snug_run("prepare --data x.txt --tokenizer tally --out y"), 2,
                "which is given FILE... without an option");
    expect_said(snug_run("convert --model x --from dense --out y"), 2, "which is given FILE|DIR without an option");
    expect_said(snug_run("amr parse --model tally --data x"), 2, "which is given FILE without an option");
}

/* Texts that snug reads as they stand; samples (--data) are unpacked while they are read. */
TEST(a_packed_file_given_as_text_is_answered_with_how_to_unpack_it) {
    static const char *const commands[] = {"amr check %s", "smatch %s %s", "generate --model tally --prompts %s",
                                           "generate --model tally --prompts - < %s", "tokenize --tokenizer tally < %s",
                                           "train --config %s", "amr parse --model tally %s"};
    char path[500];
    snprintf(path, sizeof path, "%s", test_path("x.gz"));
    EXPECT(file_write_all(path, "\x1f\x8b\x08\0\0\0\0\0\0\3\xab\xe0\2\0\x93\6\xd7\x32\2\0\0\0", 22, NULL));
    for (int i = 0; i < COUNT_OF(commands); i++) {
        Str line = {0};
        for (const char *at = commands[i]; *at; at++)
            if (str_starts(at, "%s")) str_add(&line, path), at++;
            else str_add_char(&line, *at);
        expect_said(snug_run("%s", str_text(&line)), 1, "is compressed with gzip. Unpack it first: `gzip -dk FILE`");
        str_free(&line);
    }
}

TEST(words_of_other_trainers_that_train_takes_are_taken_by_plan) {
    Ran r = snug_run("plan --model tally --seq 64 --stage sft");
    if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
    ran_free(&r);
    expect_said(snug_run("plan --model tally --stage dpo"), 2, "the command says what is done");
}

TEST(a_budget_of_24_is_not_taken_for_bytes) {
    expect_said(snug_run("plan --model tally --seq 64 --budget 24"), 2,
                "--budget: 24 without a unit is 24 bytes. Did you mean 24GiB?");
    Ran r = snug_run("plan --model tally --seq 64 --budget 2000000000");
    if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
    ran_free(&r);
}
