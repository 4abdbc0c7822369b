/* test_parse.c - snug amr parse from outside: a small model learns some sentences, parses them, and is scored;
 * failures keep their place; repairs are counted; an answer ends where its graph does. */
#include "base/mem.h"
#include "tests/amr/command.h"

static const char sentences_text[] =
    "#::snt The boy sings.\n(s / sing-01\n   :ARG0 (b / boy))\n\n"
    "#::snt The dog sleeps today.\n(s / sleep-01\n   :ARG0 (d / dog)\n   :time (t / today))\n\n"
    "#::snt Con chim hát.\n(h / hát\n   :agent (c / chim))\n\n";

/* Runs, expects success, and gives the JSON it ends with. */
static json_t *done(Ran r) {
    json_t *j = ran_json(&r);
    if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
    ran_free(&r);
    return j;
}

/* A random model of two layers: test_path("m"). */
static void make_model(void) {
    put("c.amr", sentences_text);
    json_decref(done(snug_run(
        "init --model llama-3.2-1b --tokenizer recipes/amr-demo --set num_hidden_layers=2 --set hidden_size=64 "
        "--set intermediate_size=128 --set num_attention_heads=2 --set num_key_value_heads=2 --set head_dim=32 "
        "--set vocab_size=768 --dtype fp32 --out %s --json",
        test_path("m"))));
}

#define TRAIN                                                                                                     \
    "train --model %s --device cpu --steps 120 --global-batch 3 --seq 64 --lr 1e-2 --schedule constant --seed 1 " \
    "--json "

/* The same, trained until it knows the three sentences by heart: test_path("o/model"). */
static void learn_by_heart(void) {
    make_model();
    json_decref(done(snug_run(TRAIN "--data %s --out %s", test_path("m"), test_path("c.amr"), test_path("o"))));
}

#define PARSE "amr parse %s --model %s --device cpu --threads 1 --json --overwrite --out %s "

TEST(a_model_that_learnt_sentences_parses_them) {
    learn_by_heart();
    json_t *parsed = done(snug_run(PARSE, test_path("c.amr"), test_path("o/model"), test_path("p.amr")));
    EXPECT(number(parsed, "graphs") == 3 && number(parsed, "failed") == 0 && number(parsed, "repaired") == 0);
    EXPECT(number(parsed, "planned_bytes") > 0 &&
           number(parsed, "planned_bytes") == number(parsed, "measured_bytes"));
    expect_file("p.amr", sentences_text);
    json_t *score = done(snug_run("smatch %s %s --json", test_path("c.amr"), test_path("p.amr")));
    EXPECT(json_number_value(json_object_get(score, "f1")) == 1 && json_is_true(json_object_get(score, "exact")));
    json_decref(score);

    put("lines.txt", "The boy sings.\n\n  The dog sleeps today.\nCon chim hát.\n"); /* a sentence a line */
    json_decref(done(snug_run(PARSE, test_path("lines.txt"), test_path("o/model"), test_path("q.amr"))));
    expect_file("q.amr", sentences_text);

    json_decref(
        done(snug_run("amr rows %s --without-answers --out %s --json", test_path("c.amr"), test_path("r.jsonl"))));
    json_t *answered = done(snug_run("generate --model %s --device cpu --prompts %s --out %s --json",
                                     test_path("o/model"), test_path("r.jsonl"), test_path("a.jsonl")));
    EXPECT(number(answered, "tokens") ==
           number(parsed, "tokens") + 3); /* an end mark each, which nobody waits for here */
    json_decref(answered);
    json_decref(parsed);
}

TEST(a_file_that_is_no_text_is_not_taken_for_sentences) {
    EXPECT(file_write_all(test_path("zero"), "one\0two\n", 8, NULL));
    expect_refused(snug_run("amr parse %s --model tally", test_path("zero")), 1, "zero:1: holds a zero byte");
    put("latin", "The dog barks.\nCaf\xe9 is open.\n");
    expect_refused(snug_run("amr parse %s --model tally", test_path("latin")), 1,
                   "latin:2: byte 0xe9 is not UTF-8. Convert the file to UTF-8 first");
    expect_refused(snug_run("amr rows %s --without-answers", test_path("latin")), 1, "latin:2: byte 0xe9");
}

TEST(failures_keep_their_place_and_repairs_are_counted) {
    learn_by_heart();
    put("d.amr", "#::snt The boy sings.\n\n(n / no-sentence)\n\n#::snt Con chim hát.\n");
    json_t *j =
        done(snug_run(PARSE "--max-tokens 8", test_path("d.amr"), test_path("o/model"), test_path("p.amr")));
    EXPECT(number(j, "graphs") == 0 && number(j, "failed") == 3 && number(j, "cut") == 2);
    json_decref(j);
    expect_file("p.amr",
                "#::snt The boy sings.\n# ::failed the graph's parentheses are not closed\n(e / error :sentence "
                "\"The boy sings.\")\n\n"
                "#::snt \n# ::failed the block of line 3 has no sentence\n(e / error :sentence \"\")\n\n"
                "#::snt Con chim hát.\n# ::failed the graph's parentheses are not closed\n(e / error :sentence "
                "\"Con chim hát.\")\n\n");
    j = done(
        snug_run(PARSE "--max-tokens 8 --repair", test_path("d.amr"), test_path("o/model"), test_path("p.amr")));
    EXPECT(number(j, "graphs") == 2 && number(j, "failed") == 1 && number(j, "repaired") == 2);
    EXPECT(number(json_object_get(j, "repairs"), "parentheses") > 0);
    json_decref(j);
    Str s = {0};
    EXPECT(file_read(test_path("p.amr"), &s, 0, NULL) &&
           strstr(str_text(&s), "#::snt The boy sings.\n# ::repaired parentheses="));
    str_free(&s);
}

TEST(parse_refuses_what_it_cannot_do_and_writes_nothing) {
    put("c.amr", sentences_text);
    put("empty.txt", "\n");
    put("taken.amr", "kept");
    const char *out = test_path("p.amr");
    expect_refused(snug_run("amr parse --model models/tally"), 2, "FILE");
    expect_refused(snug_run("amr parse %s", test_path("c.amr")), 2, "--model");
    expect_refused(snug_run("amr parse %s --model models/tally --amr-prompt no --out %s", test_path("c.amr"), out),
                   2, "neither plain");
    expect_refused(snug_run("amr parse %s --model models/tally --out %s", test_path("none.amr"), out), 1,
                   "none.amr");
    expect_refused(snug_run("amr parse %s --model models/tally --out %s", test_path("empty.txt"), out), 1,
                   "empty.txt");
    expect_refused(
        snug_run("amr parse %s --model models/tally --budget 1MiB --device cpu --out %s", test_path("c.amr"), out),
        3, "budget");
    expect_refused(snug_run("amr parse %s --model models/tally --json", test_path("c.amr")), 2, "give --out FILE");
    expect_refused(
        snug_run("amr parse %s --model models/tally --out %s", test_path("c.amr"), test_path("taken.amr")), 1,
        "already there");
    EXPECT(!file_exists(out));
    expect_file("taken.amr", "kept");
}

/* ---- the best checkpoint ---- */

TEST(the_best_checkpoint_may_be_the_one_that_parses_best) {
    make_model();
    const char *m = test_path("m"), *c = test_path("c.amr");
    json_t *by_loss = done(
        snug_run(TRAIN "--data %s --eval-data %s --eval-steps 40 --save-best --out %s", m, c, c, test_path("o")));
    json_t *j = done(snug_run(TRAIN "--data %s --eval-data %s --eval-steps 40 --save-best smatch --out %s", m, c,
                              c, test_path("p")));
    EXPECT(json_number_value(json_object_get(j, "smatch")) == 1);
    EXPECT(number(j, "planned_bytes") == number(j, "measured_bytes") && number(j, "above_plan_bytes") == 0);
    EXPECT(number(j, "planned_bytes") > number(by_loss, "planned_bytes")); /* the passes are in the plan */
    EXPECT(number(j, "allocations_after_first_step") == 0);
    EXPECT_STR(json_string_value(json_object_get(j, "checksum")),
               json_string_value(json_object_get(by_loss, "checksum")));
    double smatch[8];
    int n = snug_metrics(test_path("p"), "eval", "smatch", smatch, 8);
    EXPECT(n == 3 && smatch[2] == 1 && smatch[0] <= smatch[2]);
    json_decref(j);
    json_decref(by_loss);
    json_decref(
        done(snug_run(PARSE, c, test_path("p/model"), test_path("q.amr")))); /* the result is what was scored */
    expect_file("q.amr", sentences_text);
    j = done(snug_run(TRAIN
                      "--data %s --eval-data %s --eval-steps 120 --save-best validity --best-samples 2 --out %s",
                      m, c, c, test_path("v")));
    EXPECT(json_number_value(json_object_get(j, "validity")) == 1);
    json_decref(j);
}

TEST(what_cannot_be_parsed_between_updates_is_refused_before_the_first) {
    make_model();
    put("text.jsonl", "{\"prompt\":\"a\",\"completion\":\"no graph\"}\n");
    const char *m = test_path("m"), *c = test_path("c.amr"), *out = test_path("o");
    expect_refused(snug_run(TRAIN "--data %s --save-best smatch --out %s", m, c, out), 2, "--eval-data FILE");
    expect_refused(snug_run(TRAIN "--data %s --eval-data %s --pack on --save-best smatch --out %s", m, c, c, out),
                   2, "--pack update");
    expect_refused(snug_run(TRAIN "--data %s --eval-data %s --save-best validity --out %s", m, c,
                            test_path("text.jsonl"), out),
                   1, "no held-out answer holds an AMR graph");
    expect_refused(snug_run(TRAIN "--data %s --save-best=bleu --out %s", m, c, out), 2,
                   "is not one of: none, loss, smatch, validity");
    EXPECT(!file_exists(out));
    json_decref(done(snug_run(TRAIN "--data %s --eval-data %s --save-best smatch --out %s", m, c, c, out)));
    expect_refused(snug_run("train --config %s/config.yaml --resume --steps 130 --save-best validity", out), 1,
                   "best-by was smatch and is validity");
}

TEST(a_plan_holds_the_passes_that_parse) {
    make_model();
    const char *m = test_path("m"), *c = test_path("c.amr");
    json_t *plan =
        done(snug_run("plan --model %s --device cpu --data %s --eval-data %s --save-best smatch --seq 64 "
                      "--global-batch 3 --json",
                      m, c, c));
    json_t *run =
        done(snug_run(TRAIN "--data %s --eval-data %s --save-best smatch --out %s", m, c, c, test_path("o")));
    const json_t *device = json_object_get(json_object_get(plan, "pools"), "device");
    EXPECT(number(device, "planned_bytes") > 0 &&
           number(device, "planned_bytes") == number(run, "measured_bytes"));
    json_decref(plan);
    json_decref(run);
}
