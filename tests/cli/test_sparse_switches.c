/* test_sparse_switches.c - switches of models of type gsa from outside: what the folder lacks is refused by name, a
 * conversion keeps all layers, and a run says how long its attention is dense. */
#include <signal.h>
#include <string.h>

#include "base/file.h"
#include "tests/snug.h"
#include "tests/test.h"
#include "tests/world.h"

#define TINY                                                                                            \
    "--dtype fp32 --set d_model=32 --set n_layers=2 --set n_heads=2 --set n_kv_heads=2 --set d_ffn=48 " \
    "--set vocab_size=768 --set d_indexer=8 --set k_base=8 --set k_min=4 --set k_max=8"
#define DENSE                                                                                        \
    "--dtype fp32 --set hidden_size=32 --set num_hidden_layers=2 --set num_attention_heads=2 --set " \
    "vocab_size=768 "                                                                                \
    "--set num_key_value_heads=2 --set intermediate_size=48 --set head_dim=16"

static void make(const char *preset, const char *name, const char *flags) {
    Ran r = snug_run("init --model %s --tokenizer models/tally --out %s %s", preset, test_path(name), flags);
    if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
    ran_free(&r);
}

static void make_rows(void) {
    Ran r = snug_run("problems --n 24 --out %s", test_path("d.jsonl"));
    EXPECT(r.code == 0);
    ran_free(&r);
}

static Ran train(const char *name, const char *flags) {
    return snug_run(
        "train --model %s --data %s --out %s --overwrite --seq 32 --micro-batch 1 --accum 1 --no-save "
        "--device cpu %s",
        test_path(name), test_path("d.jsonl"), test_path("run"), flags);
}

static void expect_said(Ran r, int code, const char *part) {
    if (!EXPECT(r.code == code && strstr(str_text(&r.err), part)))
        test_note("    exit %d, wanted %d with '%s': %s", r.code, code, part, str_text(&r.err));
    ran_free(&r);
}

TEST(a_run_says_how_long_its_attention_is_dense) {
    make_rows();
    make("gsa-512m", "m", TINY);
    expect_said(train("m", "--steps 3 --indexer-warmup-steps 2"), 0,
                "attention is dense in the first 2 of 3 steps, while the indexer learns beside the model");
    expect_said(train("m", "--steps 3 --indexer-warmup-steps 2 --indexer-warmup frozen"), 0,
                "while the indexer alone learns (--indexer-warmup frozen), then sparse");
    expect_said(train("m", "--steps 2"), 0,
                "warning: the run of 2 steps ends within the indexer's warm-up of 1000");
    Ran r = train("m", "--steps 2 --indexer-warmup none");
    EXPECT(r.code == 0 && !strstr(str_text(&r.err), "attention is dense"));
    ran_free(&r);
}

TEST(a_warm_up_that_is_none_is_taken_wherever_there_is_none) {
    make_rows();
    make("gsa-512m", "m", TINY);
    make("qwen2.5-0.5b", "dense", DENSE);
    expect_said(train("m", "--steps 1 --selection random --indexer-warmup-steps 1"), 2,
                "give --indexer-warmup none");
    expect_said(train("m", "--steps 1 --selection random --indexer-warmup none --indexer-warmup-steps 1"), 0, "");
    expect_said(train("m", "--steps 1 --selection all --indexer-warmup-steps 0"), 0, "");
    expect_said(train("dense", "--steps 1 --indexer-warmup none"), 0, "");
    expect_said(train("dense", "--steps 1 --indexer-warmup joint"), 2, "has no indexer that learns here");
}

TEST(gates_and_indexers_that_a_folder_lacks_are_refused_by_name) {
    make_rows();
    make("gsa-512m", "bare", TINY " --gates none --selection all");
    make("gsa-512m", "value", TINY " --gates value");
    expect_said(train("bare", "--steps 1 --gates value"), 2, "bare has no gate on values or outputs");
    expect_said(train("value", "--steps 1 --gates both"), 2, "value has no gate on outputs");
    expect_said(train("bare", "--steps 1 --selection learned"), 2, "bare attends to all keys and has no indexer");
    expect_said(train("value", "--steps 1 --gates none --selection all"), 0, "");
    expect_said(train("bare", "--steps 1 --gates both --init random"), 0, "");
    Ran r = snug_run("plan --model %s --gates both --selection learned --device cpu", test_path("bare"));
    EXPECT(r.code == 0);
    ran_free(&r);
}

TEST(a_conversion_keeps_every_layer_of_the_dense_model) {
    make("qwen2.5-0.5b", "dense", DENSE);
    static const char *const refused[] = {"n_layers=1", "d_ffn=24", "tie_word_embeddings=false", "n_heads=4"};
    for (int i = 0; i < COUNT_OF(refused); i++) {
        expect_said(
            snug_run("convert --from dense %s --out %s --set %s", test_path("dense"), test_path("c"), refused[i]),
            2, "sizes and number of layers cannot change");
        EXPECT(!file_exists(test_path("c")));
    }
    expect_said(snug_run("convert --from dense %s --out %s --set k_base=8 --set k_min=4 --set 'sparse_layers=[1]'",
                         test_path("dense"), test_path("c")),
                0, "");
}

TEST(a_key_of_a_configuration_that_is_not_understood_is_a_warning) {
    make_rows();
    make("gsa-512m", "m", TINY);
    Str text = {0}, more = {0};
    Err e = {0};
    EXPECT_OK(file_read(test_path("m/config.json"), &text, 1 << 16, &e));
    str_addf(&more, "{\"logit_softcap\": 30,%s", str_text(&text) + 1);
    EXPECT_OK(file_write_all(test_path("m/config.json"), str_text(&more), more.len, &e));
    expect_said(
        snug_run("eval --model %s --data %s --seq 32 --quiet --device cpu", test_path("m"), test_path("d.jsonl")),
        0, "'logit_softcap' is not understood");
    str_free(&text), str_free(&more);
}

/* Answers of one kind of attention are not mixed with those of another. */
TEST(an_interrupted_job_goes_on_with_the_switches_it_began_with) {
    enum { PROMPTS = 3000 };
    make("gsa-512m", "m", TINY);
    Str prompts = {0};
    for (int i = 0; i < PROMPTS; i++) str_add(&prompts, "{\"ids\":[5,6,7]}\n");
    EXPECT(file_write_all(test_path("p.jsonl"), prompts.data, prompts.len, NULL));
    str_free(&prompts);
    static const char how[] =
        "generate --model ../m --prompts ../p.jsonl --max-tokens 40 --ignore-eos --device cpu "
        "--out a.jsonl --slots 2 ";
    pid_t pid = world_start("w", world_binary(), NULL, how);
    for (int i = 0; i < 600 && !file_exists(test_path("w/a.jsonl.progress")); i++) world_sleep(0.05);
    world_sleep(0.2);
    kill(pid, SIGKILL);
    world_wait(pid);
    if (!EXPECT(file_exists(test_path("w/a.jsonl.progress")))) return;
    static const char *const others[][2] = {{"--selection random", "selection is not set there, random here"},
                                            {"--gates none", "gates is not set there, none here"}};
    for (int i = 0; i < COUNT_OF(others); i++) {
        char words[400];
        Str err = {0};
        snprintf(words, sizeof words, "%s --resume %s", how, others[i][0]);
        int code = world_run("w", world_binary(), NULL, words);
        world_said(NULL, &err, "w");
        if (!EXPECT(code == 1 && strstr(str_text(&err), others[i][1])))
            test_note("    %d: %s", code, str_text(&err));
        str_free(&err);
    }
}

TEST(a_reasoning_job_is_another_one_with_other_switches) {
    static const char how[] =
        "reason --model %s --num-examples 2 --max-tokens 4 --judge-max-tokens 4 --max-iterations 1 "
        "--device cpu --out %s %s";
    make("gsa-512m", "m", TINY);
    file_make_dirs(test_path("r.html"), NULL); /* the page cannot be written: the answers stay in the journal */
    expect_said(snug_run(how, test_path("m"), test_path("r.json"), ""), 1, "r.html");
    file_remove_tree(test_path("r.html"), NULL);
    expect_said(snug_run(how, test_path("m"), test_path("r.json"), "--selection oracle"), 1,
                "selection is not set there, oracle here");
    expect_said(snug_run(how, test_path("m"), test_path("r.json"), ""), 0, "goes on");
}
