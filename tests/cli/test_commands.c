/* test_commands.c - the program as a person meets it: wrong words, bad files, a loss that is not finite, folders that
 * are taken. Each refusal names what, where and what to do, and nothing is lost. */
#include <stdlib.h>

#include "base/file.h"
#include "base/mem.h"
#include "cli/options.h"
#include "tests/snug.h"
#include "tests/test.h"

static void write_text(const char *path, const char *text) { file_write_all(path, text, (int64_t)strlen(text), NULL); }

static void make_model(const char *name, const char *more) {
    Ran r = snug_run(
        "init --model llama-3.2-1b --out %s --set num_hidden_layers=2 --set hidden_size=32 --set num_attention_heads=2 "
        "--set num_key_value_heads=1 --set intermediate_size=48 --set vocab_size=64 %s",
        test_path(name), more);
    if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
    ran_free(&r);
}

static void make_rows(const char *name) {
    Str text = {0};
    for (int r = 0; r < 8; r++) str_addf(&text, "{\"ids\":[%d,2,3,%d,5,6,7,%d,9,10]}\n", r + 1, r + 20, r + 40);
    file_write_all(test_path(name), text.data, text.len, NULL);
    str_free(&text);
}

static void expect_refused(Ran *r, int code, const char *part1, const char *part2) {
    if (!EXPECT(r->code == code && strstr(str_text(&r->err), part1) && strstr(str_text(&r->err), part2)))
        test_note("    exit %d, wanted %d with '%s' and '%s':\n%s", r->code, code, part1, part2, str_text(&r->err));
    ran_free(r);
}

TEST(wrong_words_exit_2_and_suggest) {
    Ran r = snug_run("trian --model x");
    expect_refused(&r, 2, "trian", "train");
    r = snug_run("plan --model qwen2.5-7b --lora-rnk 3");
    expect_refused(&r, 2, "lora-rnk", "lora-rank");
    r = snug_run("plan --model qwen2.5-7b --seq 0");
    expect_refused(&r, 2, "seq", "1");
    r = snug_run("plan --model qwen2.5-7b --recompute blocks");
    expect_refused(&r, 2, "recompute", "block");
    r = snug_run("init --model qwen2.5-0.5b --out %s --set num_hiden_layers=2", test_path("x"));
    expect_refused(&r, 2, "num_hiden_layers", "num_hidden_layers");
    r = snug_run("plan --model qwen2.5-7b --head-chunk 100 --seq 512");
    expect_refused(&r, 2, "head-chunk", "128");
    r = snug_run("plan --model qwen2.5-0.5b --attention cudnn --pack on");
    expect_refused(&r, 2, "attention cudnn", "--pack off");
}

TEST(every_command_has_help_with_an_example) {
    Ran all = snug_run("--help");
    for (int i = 0; i < CMD_COUNT; i++) {
        Ran r = snug_run("%s --help", command_rows[i].name);
        char example[40], listed[40];
        snprintf(example, sizeof example, "snug %s", command_rows[i].name);
        snprintf(listed, sizeof listed, "\n  %-13s ", command_rows[i].name);
        if (!EXPECT(r.code == 0 && strstr(str_text(&r.out), example) && r.err.len == 0) ||
            !EXPECT(strstr(str_text(&all.out), listed)))
            test_note("    %s", command_rows[i].name);
        ran_free(&r);
    }
    ran_free(&all);
}

/* As of `snug train --help | head`. */
TEST(a_reader_who_leaves_is_told_no_error) {
    Ran r = snug_run("--version > /dev/null; { sleep 0.1; ${SNUG:-./snug} train --help 2> %s; } | true",
                     test_path("said"));
    Str said = {0};
    EXPECT(r.code == 0 && file_read(test_path("said"), &said, 1000, NULL));
    EXPECT_STR(str_text(&said), "");
    str_free(&said);
    ran_free(&r);
}

TEST(a_drawn_model_is_the_same_from_any_number_of_threads) {
    make_model("one", "--set vocab_size=3000 --threads 1"); /* 96,000 numbers: several pieces */
    make_model("three", "--set vocab_size=3000 --threads 3");
    Str one = {0}, three = {0};
    EXPECT(file_read(test_path("one/model.safetensors"), &one, 1 << 24, NULL));
    EXPECT(file_read(test_path("three/model.safetensors"), &three, 1 << 24, NULL));
    EXPECT(one.len > 96000 * 2 && one.len == three.len && !memcmp(one.data, three.data, (size_t)one.len));
    str_free(&one);
    str_free(&three);
}

TEST(bad_models_are_refused_with_file_and_hint) {
    Ran r = snug_run("plan --model no-such-model");
    expect_refused(&r, 1, "no-such-model", "qwen2.5-7b");
    file_make_dirs(test_path("m1"), NULL);
    write_text(test_path("m1/config.json"), "{\"model_type\": \"gpt_neox\"}");
    r = snug_run("plan --model %s", test_path("m1"));
    expect_refused(&r, 1, "gpt_neox", "qwen2");
    write_text(test_path("m1/config.json"), "{\"model_type\": \"llama\", ");
    r = snug_run("plan --model %s", test_path("m1"));
    expect_refused(&r, 1, "config.json", "JSON");
    write_text(test_path("m1/config.json"),
               "{\"model_type\":\"llama\",\"hidden_size\":64,\"intermediate_size\":64,\"vocab_size\":64,"
               "\"num_hidden_layers\":1,\"num_attention_heads\":4,\"num_key_value_heads\":3}");
    r = snug_run("plan --model %s", test_path("m1"));
    expect_refused(&r, 1, "num_attention_heads", "multiple");
    make_rows("rows.jsonl");
    make_model("m2", "");
    file_remove_tree(test_path("m2/model.safetensors"), NULL);
    r = snug_run("train --model %s --data %s --out %s --seq 16", test_path("m2"), test_path("rows.jsonl"),
                 test_path("o"));
    expect_refused(&r, 1, "m2", "safetensors");
    make_model("m3", "");
    write_text(test_path("m3/model.safetensors"), "short");
    r = snug_run("train --model %s --data %s --out %s --seq 16", test_path("m3"), test_path("rows.jsonl"),
                 test_path("o3"));
    expect_refused(&r, 1, "model.safetensors", "");
    r = snug_run("train --model qwen2.5-0.5b --data %s --out %s", test_path("rows.jsonl"), test_path("o4"));
    expect_refused(&r, 1, "preset", "--init random");
}

TEST(a_weight_of_another_shape_is_named) {
    make_model("a", "");
    make_model("b", "--set intermediate_size=52");
    make_rows("rows.jsonl");
    Err e = {0};
    EXPECT_OK(file_copy(test_path("b/config.json"), test_path("a/config.json"), &e));
    Ran r = snug_run("eval --model %s --data %s --seq 16", test_path("a"), test_path("rows.jsonl"));
    expect_refused(&r, 1, "gate_proj", "48,32");
}

TEST(bad_data_is_refused_with_its_line) {
    make_model("m", "");
    const char *const bad[][3] = {
        {"{\"ids\":[1,2,3]}\n{\"ids\":[1,2,99]}\n", ":2", "99"},
        {"{\"ids\":[1,2,3]}\n{\"ids\":[1,2,\n", ":2", ""},
        {"", "rows.jsonl", ""},
        {"{\"what\":1}\n", ":1", "messages"},
        {"{\"text\":\"hello\"}\n", "tokenizer", ""},
    };
    for (int i = 0; i < 5; i++) {
        write_text(test_path("rows.jsonl"), bad[i][0]);
        Ran r = snug_run("train --model %s --data %s --out %s --seq 16", test_path("m"), test_path("rows.jsonl"),
                         test_path("never"));
        expect_refused(&r, 1, bad[i][1], bad[i][2]);
    }
    EXPECT(!file_exists(test_path("never")));
}

TEST(a_loss_that_is_not_finite_stops_the_run_and_says_where_it_began) {
    make_model("m", "--dtype fp32");
    make_rows("rows.jsonl");
    Ran r = snug_run(
        "train --model %s --data %s --out %s --seq 16 --steps 20 --save-steps 1 --lr 30 --schedule constant --no-clip "
        "--optimizer sgd",
        test_path("m"), test_path("rows.jsonl"), test_path("o"));
    EXPECT(r.code == 1 && strstr(str_text(&r.err), "not finite") && strstr(str_text(&r.err), "It began"));
    if (!EXPECT(strstr(str_text(&r.err), "layer") != NULL)) test_note("%s", str_text(&r.err));
    ran_free(&r);
    /* the last good checkpoint loads and is finite */
    char **names;
    int64_t n, newest = 0;
    EXPECT(file_list(test_path("o"), &names, &n, NULL));
    for (int64_t i = 0; i < n; i++) {
        if (!strncmp(names[i], "checkpoint-", 11) && atoll(names[i] + 11) > newest) newest = atoll(names[i] + 11);
        mem_free(names[i]);
    }
    mem_free(names);
    EXPECT(newest >= 1);
    char last[64];
    snprintf(last, sizeof last, "o/checkpoint-%lld", (long long)newest);
    EXPECT(file_exists(test_path(last)));
}

/* Found when the next step's passes are already queued: the same step is named, nothing came after it. */
TEST(a_loss_that_is_not_finite_is_found_late_as_if_at_once) {
    make_model("m", "--dtype fp32");
    make_rows("rows.jsonl");
    double steps[2];
    char said[2][400] = {"", ""};
    for (int late = 0; late < 2; late++) {
        Ran r = snug_run(
            "train --model %s --data %s --out %s --seq 16 --steps 20 --log-steps 1 --lr 30 --schedule constant "
            "--no-clip --optimizer sgd --overwrite --ahead %s",
            test_path("m"), test_path("rows.jsonl"), test_path("o"), late ? "on" : "off");
        const char *message = strstr(str_text(&r.err), "the loss is not finite");
        EXPECT(r.code == 1 && message);
        if (message) snprintf(said[late], sizeof said[late], "%.300s", message - 12);
        double loss[20];
        steps[late] = snug_metrics(test_path("o"), "train", "loss", loss, 20);
        ran_free(&r);
    }
    EXPECT_STR(said[0], said[1]);
    EXPECT(steps[0] == steps[1] && steps[0] >= 1);
}

TEST(only_auto_falls_back_where_a_card_has_no_bf16) {
    static const struct {
        const char *flags, *says, *does_not;
    } cases[] = {{"--gpu T4", "activations fp16, gradients fp16, moments bf16, master fp32", "activations bf16"},
                 {"--gpu T4 --mode lora", "activations fp16, adapters fp16", "has bf16"},
                 {"--gpu T4 --mode lora --adapter-dtype bf16", "activations fp16, adapters bf16", "master"},
                 {"--gpu T4 --precision bf16", "activations bf16", "has no bf16"},
                 {"--gpu T4 --precision fp32", "activations fp32", "has no bf16"},
                 {"--gpu A100 --master none", "activations bf16", "has no bf16"}};
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
        Ran r = snug_run("plan --model smollm2-135m --seq 64 %s", cases[i].flags);
        bool falls = strstr(str_text(&r.err), "has no bf16 (compute capability 7.5): --precision fp16") != NULL;
        const char *types = strstr(str_text(&r.out), "dtypes:"), *end = types ? strchr(types, '\n') : NULL;
        char line[300] = "";
        if (end) snprintf(line, sizeof line, "%.*s", (int)(end - types), types);
        if (!EXPECT(r.code == 0 && falls == (i < 3) && strstr(line, cases[i].says) && !strstr(line, cases[i].does_not)))
            test_note("    %s: %s", cases[i].flags, str_text(&r.out));
        ran_free(&r);
    }
    Ran r = snug_run("plan --model smollm2-135m --seq 64 --gpu T4 --master none");
    expect_refused(&r, 2, "--master none", "auto");
}

TEST(a_run_folder_is_not_overwritten_by_a_slip) {
    make_model("m", "");
    make_rows("rows.jsonl");
    for (int i = 0; i < 3; i++) {
        Ran r = snug_run("train --model %s --data %s --out %s --seq 16 --steps 2 %s", test_path("m"),
                         test_path("rows.jsonl"), test_path("o"), i == 2 ? "--overwrite" : "");
        if (i == 1) expect_refused(&r, 1, "--resume", "--overwrite");
        else {
            if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
            ran_free(&r);
        }
    }
    Ran r = snug_run("init --model llama-3.2-1b --out %s", test_path("o"));
    expect_refused(&r, 1, "not empty", "--overwrite");
}

TEST(a_model_and_data_are_enough_to_train) {
    make_model("m", "");
    make_rows("rows.jsonl");
    const char *given = getenv("SNUG");
    char *before = given ? strdup(given) : NULL, *binary = realpath(before ? before : "./snug", NULL), command[600];
    snprintf(command, sizeof command, "cd %s && \"%s\"", test_tmp(), binary);
    setenv("SNUG", command, 1);
    for (int i = 0; i < 3; i++) {
        Ran r = snug_run("train --model m/ --data rows.jsonl %s", i == 2 ? "--resume" : "");
        if (i == 1) expect_refused(&r, 1, "runs/m", "--resume");
        else {
            if (!EXPECT(r.code == 0 && file_is_dir(test_path("runs/m/model")))) test_note("%s", str_text(&r.err));
            ran_free(&r);
        }
    }
    if (before) setenv("SNUG", before, 1);
    else unsetenv("SNUG");
    free(before);
    free(binary);
}

TEST(a_dry_run_does_everything_but_the_steps) {
    make_model("m", "");
    make_rows("rows.jsonl");
    Ran r = snug_run("train --model %s --data %s --out %s --seq 16 --steps 2 --dry-run", test_path("m"),
                     test_path("rows.jsonl"), test_path("o"));
    json_t *j = ran_json(&r);
    EXPECT(r.code == 0 && j && json_integer_value(json_object_get(j, "steps")) == 0);
    EXPECT(json_integer_value(json_object_get(j, "planned_bytes")) ==
           json_integer_value(json_object_get(j, "measured_bytes")));
    EXPECT(!file_exists(test_path("o/model")));
    json_decref(j);
    ran_free(&r);
}

TEST(random_start_without_files_equals_the_written_random_model) {
    make_rows("rows.jsonl");
    make_model("m", "");
    char sum[2][32] = {"", ""};
    for (int i = 0; i < 2; i++) {
        Ran r = snug_run("train --model %s --data %s --out %s --seq 16 --steps 1 --lr 1e-4 %s", test_path("m"),
                         test_path("rows.jsonl"), test_path(i ? "o1" : "o0"), i ? "--init random" : "");
        json_t *j = ran_json(&r);
        if (!EXPECT(r.code == 0 && j)) test_note("%s", str_text(&r.err));
        const char *s = json_string_value(json_object_get(j, "checksum"));
        snprintf(sum[i], sizeof sum[i], "%s", s ? s : "");
        json_decref(j);
        ran_free(&r);
    }
    EXPECT_STR(sum[0], sum[1]);
}

TEST(a_merged_adapter_is_the_model_with_the_adapter) {
    make_model("m", "--dtype fp32");
    make_rows("rows.jsonl");
    Ran r = snug_run("train --model %s --data %s --out %s --seq 16 --steps 6 --mode lora --lora-rank 4 --lr 1e-2",
                     test_path("m"), test_path("rows.jsonl"), test_path("o"));
    if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
    ran_free(&r);
    r = snug_run("merge --model %s --adapter %s --out %s", test_path("m"), test_path("o/adapter"), test_path("merged"));
    if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
    ran_free(&r);
    double loss[3];
    const char *const how[] = {"m", "m", "merged"};
    for (int i = 0; i < 3; i++) {
        r = snug_run("eval --model %s --data %s --seq 16 --json %s%s", test_path(how[i]), test_path("rows.jsonl"),
                     i == 1 ? "--adapter " : "", i == 1 ? test_path("o/adapter") : "");
        json_t *j = ran_json(&r);
        if (!EXPECT(r.code == 0 && j)) test_note("%s", str_text(&r.err));
        loss[i] = json_number_value(json_object_get(j, "loss"));
        json_decref(j);
        ran_free(&r);
    }
    EXPECT(loss[1] < loss[0] - 0.01);
    EXPECT_NEAR(loss[2], loss[1], 1e-5);
}

TEST(a_recipe_and_flags_give_the_same_run) {
    make_model("m", "");
    make_rows("rows.jsonl");
    Str text = {0};
    str_addf(&text,
             "model: %s\ndata: %s\noutput_dir: %s\nmax_seq_length: 16\nmax_steps: 3\nlearning_rate: "
             "1.0e-3\nlogging_steps: 1\n"
             "per_device_train_batch_size: 2\ngradient_accumulation_steps: 2\n",
             test_path("m"), test_path("rows.jsonl"), test_path("o0"));
    write_text(test_path("r.yaml"), str_text(&text));
    str_free(&text);
    Ran a = snug_run("train --config %s --set lr=2e-3", test_path("r.yaml"));
    Ran b = snug_run(
        "train --model %s --data %s --out %s --seq 16 --steps 3 --lr 2e-3 --log-steps 1 --micro-batch 2 --accum 2",
        test_path("m"), test_path("rows.jsonl"), test_path("o1"));
    Ran c = snug_run("train --config %s --out %s", test_path("o0/config.yaml"),
                     test_path("o2")); /* the saved configuration is the run */
    json_t *ja = ran_json(&a), *jb = ran_json(&b), *jc = ran_json(&c);
    if (!EXPECT(ja && jb && jc)) test_note("%s%s%s", str_text(&a.err), str_text(&b.err), str_text(&c.err));
    EXPECT_STR(json_string_value(json_object_get(ja, "checksum")), json_string_value(json_object_get(jb, "checksum")));
    EXPECT_STR(json_string_value(json_object_get(ja, "checksum")), json_string_value(json_object_get(jc, "checksum")));
    json_decref(ja), json_decref(jb), json_decref(jc);
    ran_free(&a), ran_free(&b), ran_free(&c);
}

TEST(json_leaves_only_json_on_standard_output) {
    Ran r = snug_run("plan --model qwen2.5-0.5b --json --budget 1MiB");
    EXPECT(r.code == 3);
    json_t *j = json_loads(str_text(&r.out), 0, NULL);
    EXPECT(j && json_is_false(json_object_get(j, "fits")));
    json_decref(j);
    ran_free(&r);
    make_rows("rows.jsonl");
    make_model("m", "");
    r = snug_run("train --model %s --data %s --out %s --seq 16 --steps 2 --json", test_path("m"),
                 test_path("rows.jsonl"), test_path("o"));
    j = json_loads(str_text(&r.out), 0, NULL);
    EXPECT(j && json_integer_value(json_object_get(j, "steps")) == 2);
    json_decref(j);
    ran_free(&r);
}

TEST(a_result_of_random_weights_has_the_tokenizer_it_was_trained_with) {
    static const char *const how[] = {"", "--tokenizer tally"};
    Ran r = snug_run("problems --n 24 --out %s", test_path("p.jsonl"));
    EXPECT(r.code == 0);
    ran_free(&r);
    for (int i = 0; i < COUNT_OF(how); i++) {
        char out[32], name[80];
        snprintf(out, sizeof out, "random-%d", i);
        snprintf(name, sizeof name, "%s/model/tokenizer.json", out);
        r = snug_run("train --model tally --init random %s --data %s --steps 1 --out %s", how[i], test_path("p.jsonl"),
                     test_path(out));
        if (!EXPECT(r.code == 0 && file_exists(test_path(name)))) test_note("%s", str_text(&r.err));
        ran_free(&r);
    }
}

/* ---- a run that was copied ---- */

static int checkpoint_of(const char *run, int step) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s/checkpoint-%d", test_tmp(), run, step);
    return file_is_dir(path);
}

/* `snug train --config copy/config.yaml --resume` went on in the folder that the file names: the original. */
TEST(a_copied_run_goes_on_in_its_own_folder) {
    static const char *const resume = "train --config %s/config.yaml --resume --steps %d --threads 1";
    char command[1500];
    snug_make_job((SnugJob){1, 16, 32});
    Ran r = snug_run("train --model %s --data %s --out %s --seq 32 --global-batch 4 --steps 2 --threads 1 --step-log",
                     test_path("m"), test_path("rows.jsonl"), test_path("run"));
    EXPECT(r.code == 0);
    ran_free(&r);
    snprintf(command, sizeof command, "cp -r %s %s", test_path("run"), test_path("copy"));
    EXPECT(system(command) == 0);
    r = snug_run(resume, test_path("copy"), 4);
    EXPECT(r.code == 0 && strstr(str_text(&r.err), "goes on there"));
    EXPECT(checkpoint_of("copy", 4) && checkpoint_of("run", 2) && !checkpoint_of("run", 4));
    ran_free(&r);
    r = snug_run(resume, test_path("run"), 3); /* the original's own file says nothing new */
    EXPECT(r.code == 0 && !strstr(str_text(&r.err), "goes on there") && checkpoint_of("run", 3));
    ran_free(&r);
    snprintf(command, sizeof command, "cp -r %s %s && rm -r %s/checkpoint-3", test_path("run"), test_path("less"),
             test_path("less"));
    EXPECT(system(command) == 0);
    r = snug_run(resume, test_path("less"), 5); /* nothing to go on from there, and the original is not asked */
    EXPECT(r.code == 1 && strstr(str_text(&r.err), "holds no complete checkpoint") && !checkpoint_of("run", 5));
    ran_free(&r);
}

/* "epsilon: already set in line 35; it is another name of eps": the run was one of `snug grpo`. */
TEST(the_configuration_of_a_grpo_run_is_refused_by_train_with_the_right_command) {
    static const char saved[] = "# snug grpo, as resolved. `snug grpo --config THIS_FILE` repeats it; flags override.\n"
                                "eps: 1e-08\nepsilon: 0.2\n";
    EXPECT(file_write_all(test_path("config.yaml"), saved, (int64_t)strlen(saved), NULL));
    Ran r = snug_run("train --config %s --resume", test_path("config.yaml"));
    EXPECT(r.code == 2 && strstr(str_text(&r.err), "is that of a run of `snug grpo`") &&
           strstr(str_text(&r.err), "snug grpo --config"));
    ran_free(&r);
}
