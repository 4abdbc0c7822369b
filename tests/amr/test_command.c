/* test_command.c - snug amr and snug smatch as a person uses them: from a corpus to rows, from answers to a score,
 * and what is refused. */
#include <stdlib.h>

#include "base/mem.h"
#include "tests/amr/command.h"

static const char corpus_text[] =
    "#::snt The boy wants to go.\n(w / want-01\n  :ARG0 (b / boy)\n  :ARG1 (g / go-02 :ARG0 b))\n\n"
    "#::snt Broken.\n(b / break-01 :ARG1 (b / thing))\n\n"
    "# ::id 3\n# ::snt Con chó \"sủa\".\n(s / sủa :agent (c / chó))\n\n"
    "#::snt Cut short.\n(c / cut-02 :ARG1 (s / short\n";

static void expect_done(Ran r) {
    if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
    ran_free(&r);
}

TEST(check_counts_blocks_and_names_faults) {
    put("c.amr", corpus_text);
    Ran r = snug_run("amr check %s --json", test_path("c.amr"));
    json_t *j = ran_json(&r);
    const json_t *faults = json_object_get(j, "faults"), *second = json_array_get(faults, 1);
    EXPECT(r.code == 0 && number(j, "blocks") == 4 && number(j, "valid") == 2 && json_array_size(faults) == 2);
    EXPECT(number(json_array_get(faults, 0), "block") == 2 && number(json_array_get(faults, 0), "line") == 7);
    EXPECT(number(second, "block") == 4 &&
           strstr(json_string_value(json_object_get(second, "fault")), "cut short"));
    json_decref(j);
    ran_free(&r);
    r = snug_run("amr check %s --faults 1", test_path("c.amr"));
    EXPECT(r.code == 0 && strstr(str_text(&r.out), "4 blocks, 2 valid (50.0 %)") &&
           strstr(str_text(&r.out), "block 2, line 7: the variable 'b'"));
    EXPECT(strstr(str_text(&r.out), "and 1 more"));
    ran_free(&r);
    expect_refused(snug_run("amr check %s --strict", test_path("c.amr")), 1, "2 of 4 blocks are not valid");
    put("none.amr", "# ::snt Broken.\n(b / break-01 :ARG1\n\n# ::snt No graph.\n");
    expect_refused(snug_run("amr check %s", test_path("none.amr")), 1, "none of 2 blocks holds a valid graph");
}

TEST(normalise_lays_graphs_out_and_loses_nothing) {
    put("c.amr", corpus_text);
    expect_done(
        snug_run("amr normalise %s --out %s --only-valid --one-line", test_path("c.amr"), test_path("n.amr")));
    expect_file("n.amr",
                "#::snt The boy wants to go.\n(w / want-01 :ARG0 (b / boy) :ARG1 (g / go-02 :ARG0 b))\n\n"
                "# ::id 3\n# ::snt Con chó \"sủa\".\n(s / sủa :agent (c / chó))\n\n");
    expect_done(snug_run("amr normalise %s --out %s", test_path("c.amr"), test_path("all.amr")));
    Str s = {0};
    EXPECT(file_read(test_path("all.amr"), &s, 0, NULL) &&
           strstr(str_text(&s), "(c / cut-02 :ARG1 (s / short\n") &&
           strstr(str_text(&s), "   :ARG1 (g / go-02\n            :ARG0 b))"));
    str_free(&s);
    expect_refused(snug_run("amr normalise %s --out %s", test_path("c.amr"), test_path("n.amr")), 1,
                   "is already there");
    expect_done(snug_run("amr normalise %s --out %s --only-valid --overwrite --val-split 0.25 --part held-out",
                         test_path("c.amr"), test_path("n.amr")));
    expect_file("n.amr", ""); /* the last of four blocks is not valid */
}

TEST(normalise_gives_every_line_the_same_end) {
    put("crlf.amr",
        "# ::id 1\r\n# ::snt A dog.\r\n(d / dog\r\n :mod (b / big))\r\n\r\n#::snt Broken.\r\n(b /\r\n");
    expect_done(snug_run("amr normalise %s --out %s", test_path("crlf.amr"), test_path("n.amr")));
    expect_file("n.amr", "# ::id 1\n# ::snt A dog.\n(d / dog\n   :mod (b / big))\n\n#::snt Broken.\n(b /\n\n");
}

TEST(an_empty_sentence_is_none) {
    put("c.amr", "#::snt   \n(a / b)\n\n#::snt A dog.\n(d / dog)\n");
    Ran r = snug_run("amr check %s --json", test_path("c.amr"));
    json_t *j = ran_json(&r);
    EXPECT(number(j, "blocks") == 2 && number(j, "valid") == 2 && number(j, "sentences") == 1);
    json_decref(j);
    ran_free(&r);
    r = snug_run("amr rows %s --json --out %s", test_path("c.amr"), test_path("r.jsonl"));
    j = ran_json(&r);
    EXPECT(number(j, "rows") == 1 && number(j, "without_sentence") == 1);
    json_decref(j);
    ran_free(&r);
}

TEST(stats_and_triples_are_json) {
    put("c.amr", corpus_text);
    Ran r = snug_run("amr stats %s --json", test_path("c.amr"));
    json_t *j = ran_json(&r);
    EXPECT(number(j, "blocks") == 4 && number(j, "graphs") == 2 && number(j, "reentrancies") == 1 &&
           number(j, "sentences") == 4);
    json_decref(j);
    ran_free(&r);
    r = snug_run("amr triples %s", test_path("c.amr"));
    json_t *first = json_loads(str_text(&r.out), JSON_DISABLE_EOF_CHECK, NULL);
    EXPECT(json_array_size(json_object_get(first, "triples")) == 6 &&
           json_is_true(json_object_get(first, "valid")));
    EXPECT_STR(json_string_value(json_object_get(first, "top")), "w");
    json_decref(first);
    ran_free(&r);
}

TEST(a_file_without_a_graph_is_no_corpus_with_empty_statistics) {
    put("c.amr", "{\"text\":\"a dog\"}\n");
    expect_refused(snug_run("amr check %s", test_path("c.amr")), 1, "none of 1 blocks holds a valid graph");
    expect_refused(snug_run("amr stats %s", test_path("c.amr")), 1, "none of 1 blocks holds a valid graph");
}

TEST(rows_are_written_for_each_prompt) {
    put("c.amr", corpus_text);
    expect_done(snug_run("amr rows %s --out %s", test_path("c.amr"), test_path("plain.jsonl")));
    Ran r = snug_run("amr rows %s --amr-prompt unified --layout flat --json --out %s", test_path("c.amr"),
                     test_path("unified.jsonl"));
    json_t *sum = ran_json(&r);
    EXPECT(number(sum, "rows") == 2 && number(sum, "invalid") == 2 && number(sum, "without_sentence") == 0);
    json_decref(sum);
    ran_free(&r);
    Str s = {0};
    EXPECT(file_read(test_path("unified.jsonl"), &s, 0, NULL));
    json_t *row = json_loads(str_text(&s), JSON_DISABLE_EOF_CHECK, NULL);
    EXPECT_STR(json_string_value(json_object_get(row, "completion")),
               "Step 1: (want-01:ARG0(boy):ARG1(go-02:ARG0 boy))\nStep 2:\n(w / want-01\n:ARG0 (b / boy)\n:ARG1 "
               "(g / go-02\n:ARG0 b))");
    json_decref(row);
    str_free(&s);
    expect_done(snug_run("amr rows %s --amr-prompt chat --out %s", test_path("c.amr"), test_path("chat.jsonl")));
    EXPECT(file_read(test_path("chat.jsonl"), &s, 0, NULL) &&
           strstr(str_text(&s), "\"role\":\"assistant\",\"content\":\"(s / sủa :agent (c / chó))\""));
    str_free(&s);
    expect_refused(snug_run("amr rows %s --amr-prompt nosuch", test_path("c.amr")), 2, "neither plain, chat, unified");
    put("bad.amr", "#::snt x\n(a / b\n");
    expect_refused(snug_run("amr rows %s --out %s", test_path("bad.amr"), test_path("bad.jsonl")), 1,
                   "no block has a sentence and a valid graph");
    EXPECT(!file_exists(test_path("bad.jsonl")));
}

/* A model learns from them with the answer alone scored, by the code that reads every other prompt and completion. */
TEST(rows_are_what_train_takes) {
    put("c.amr", corpus_text);
    expect_done(snug_run("amr rows %s --out %s", test_path("c.amr"), test_path("rows.jsonl")));
    expect_done(
        snug_run("init --model llama-3.2-1b --out %s --tokenizer tests/data/tok_smollm2 --dtype fp32 --set "
                 "num_hidden_layers=1 --set "
                 "hidden_size=32 --set num_attention_heads=2 --set num_key_value_heads=1 --set "
                 "intermediate_size=32 --set vocab_size=424",
                 test_path("m")));
    Ran r = snug_run("train --model %s --data %s --out %s --seq 512 --steps 1 --no-save --threads 1",
                     test_path("m"), test_path("rows.jsonl"), test_path("out"));
    EXPECT(r.code == 0 && strstr(str_text(&r.err), "prompt and answer"));
    ran_free(&r);
}

TEST(answers_become_blocks_in_place) {
    put("s.txt",
        "\nThe boy wants to go.\r\n  \n  No graph here.\n\n\nCut off.\n\n"); /* empty lines are no sentences */
    expect_done(snug_run("amr rows %s --without-answers --out %s", test_path("s.txt"), test_path("p.jsonl")));
    Str s = {0};
    EXPECT(file_read(test_path("p.jsonl"), &s, 0, NULL) &&
           strstr(str_text(&s), "\"id\":{\"block\":2,\"sentence\":\"Cut off.\"}"));
    str_free(&s);
    put("a.jsonl",
        "{\"index\":0,\"sample\":0,\"finish\":\"stop\",\"id\":{\"block\":0,\"sentence\":\"The boy wants to "
        "go.\"},\"text\":\"(w / "
        "want-01 :ARG0 (b / boy)) and so on\"}\n"
        "{\"index\":0,\"sample\":1,\"finish\":\"stop\",\"text\":\"(x / y)\"}\n"
        "{\"index\":1,\"sample\":0,\"finish\":\"stop\",\"id\":{\"sentence\":\"No graph "
        "here.\"},\"text\":\"Sorry.\"}\n"
        "{\"index\":2,\"sample\":0,\"finish\":\"length\",\"text\":\"(c / cut-02 :ARG1 (c / \\\"it\"}\n");
    expect_refused(snug_run("amr collect %s --out %s", test_path("a.jsonl"), test_path("pred.amr")), 1,
                   "a.jsonl:4: the row does not say its sentence");
    EXPECT(!file_exists(test_path("pred.amr")));
    Ran r = snug_run("amr collect %s --sentences %s --json --out %s", test_path("a.jsonl"), test_path("s.txt"),
                     test_path("pred.amr"));
    json_t *j = ran_json(&r);
    EXPECT(number(j, "answers") == 3 && number(j, "graphs") == 1 && number(j, "failed") == 2 &&
           number(j, "cut") == 1);
    EXPECT(number(j, "repaired") == 0 && number(j, "other_samples") == 1);
    json_decref(j);
    ran_free(&r);
    expect_file("pred.amr",
                "#::snt The boy wants to go.\n(w / want-01\n   :ARG0 (b / boy))\n\n"
                "#::snt No graph here.\n# ::failed no graph: nowhere '(variable /'\n(e / error :sentence \"No "
                "graph here.\")\n\n"
                "#::snt Cut off.\n# ::failed the graph's parentheses are not closed\n(e / error :sentence \"Cut "
                "off.\")\n\n");
    r = snug_run("amr collect %s --sentences %s --repair --json --overwrite --out %s", test_path("a.jsonl"),
                 test_path("s.txt"), test_path("pred.amr"));
    j = ran_json(&r);
    EXPECT(number(j, "graphs") == 2 && number(j, "failed") == 1 && number(j, "repaired") == 1);
    EXPECT(number(json_object_get(j, "repairs"), "parentheses") == 2 &&
           number(json_object_get(j, "repairs"), "renamed") == 1);
    json_decref(j);
    ran_free(&r);
    EXPECT(file_read(test_path("pred.amr"), &s, 0, NULL) &&
           strstr(str_text(&s),
                  "# ::repaired quotes=1 parentheses=2 renamed=1\n(c / cut-02\n   :ARG1 (c2 / \"it\"))"));
    str_free(&s);
}

TEST(sentences_without_an_answer_are_counted) {
    put("s.txt", "The boy wants to go.\n\nNo graph here.\nCut off.\n");
    put("a.jsonl", "{\"index\":0,\"sample\":0,\"finish\":\"stop\",\"text\":\"(b / boy)\"}\n");
    Ran r = snug_run("amr collect %s --sentences %s", test_path("a.jsonl"), test_path("s.txt"));
    EXPECT(r.code == 0 && strstr(str_text(&r.err), "s.txt: 2 of 3 sentences have no answer, and so no block"));
    ran_free(&r);
}

TEST(a_sentence_that_cannot_be_asked_for_is_named_by_its_line) {
    Str s = {0};
    str_add(&s, "A dog.\n\n\n");
    for (int i = 0; i < 1200; i++) str_add(&s, "long ");
    put("s.txt", str_text(&s));
    Ran r = snug_run("amr parse %s --model tally --max-tokens 2 --out %s", test_path("s.txt"), test_path("p.amr"));
    if (!EXPECT(strstr(str_text(&r.err), "s.txt:4: "))) test_note("%s", str_text(&r.err));
    ran_free(&r);
    str_clear(&s);
    str_add(&s, "# ::snt A dog.\n(d / dog)\n\n# ::id 2\n(c / cat)\n");
    put("s.amr", str_text(&s));
    r = snug_run("amr parse %s --model tally --max-tokens 2 --out %s", test_path("s.amr"), test_path("q.amr"));
    if (!EXPECT(strstr(str_text(&r.err), "the block of line 4 has no sentence"))) test_note("%s", str_text(&r.err));
    ran_free(&r);
    str_free(&s);
}

TEST(drawn_blocks_go_all_the_way_to_a_score) {
    expect_done(snug_run("amr draw --n 50 --lang vi --seed 7 --part held-out --out %s", test_path("gold.amr")));
    expect_done(snug_run("amr draw --n 50 --lang vi --seed 8 --part held-out --out %s", test_path("other.amr")));
    Ran r = snug_run("smatch %s %s --json", test_path("gold.amr"), test_path("gold.amr"));
    json_t *j = ran_json(&r);
    EXPECT(r.code == 0 && json_number_value(json_object_get(j, "f1")) == 1 &&
           json_is_true(json_object_get(j, "exact")));
    EXPECT(number(j, "pairs") == 50 && number(j, "proved") == 50 &&
           json_number_value(json_object_get(j, "valid")) == 1);
    json_decref(j);
    ran_free(&r);
    r = snug_run("smatch %s %s %s --json --per-document", test_path("gold.amr"), test_path("other.amr"),
                 test_path("gold.amr"));
    j = ran_json(&r);
    const json_t *list = json_object_get(j, "predictions"), *last = json_array_get(list, 1);
    double f1 = json_number_value(json_object_get(j, "f1"));
    const json_t *between = json_object_get(j, "interval");
    EXPECT(r.code == 0 && json_array_size(list) == 2 && f1 < 0.9 &&
           json_array_size(json_object_get(j, "documents")) == 50);
    EXPECT(json_number_value(json_array_get(between, 0)) < f1 &&
           json_number_value(json_array_get(between, 1)) > f1);
    EXPECT(json_number_value(json_object_get(last, "beats_first")) == 1);
    json_decref(j);
    ran_free(&r);
    r = snug_run("smatch %s %s %s --search climb", test_path("gold.amr"), test_path("other.amr"),
                 test_path("gold.amr"));
    EXPECT(r.code == 0 && strstr(str_text(&r.out), "hill climbing, seed 42") &&
           strstr(str_text(&r.out), "100.0 %"));
    ran_free(&r);
}

TEST(invalid_predictions_are_told_and_a_bad_gold_file_is_refused) {
    put("gold.amr", "(a / x)\n\n(b / y)\n");
    put("pred.amr", "(a / x)\n\n(b / y\n");
    Ran r = snug_run("smatch %s %s", test_path("gold.amr"), test_path("pred.amr"));
    EXPECT(r.code == 0 && strstr(str_text(&r.out), "1 predictions are no valid graph and count as empty"));
    EXPECT(strstr(str_text(&r.out), "exact: for all 2 pairs"));
    ran_free(&r);
    expect_refused(snug_run("smatch %s %s", test_path("pred.amr"), test_path("gold.amr")), 1,
                   "pred.amr: block 2, line 3");
    put("more.amr", "(a / x)\n");
    expect_refused(snug_run("smatch %s %s", test_path("gold.amr"), test_path("more.amr")), 1,
                   "gold.amr has 2 blocks");
    expect_refused(snug_run("smatch %s", test_path("gold.amr")), 2, "needs GOLD PRED...");
    expect_refused(snug_run("smatch %s %s", test_path("gold.amr"), test_path("absent.amr")), 1, "absent.amr");
}

TEST(wrong_words_are_refused_with_a_hint) {
    put("c.amr", corpus_text);
    expect_refused(snug_run("amr"), 2, "needs VERB [FILE]");
    expect_refused(snug_run("amr chek %s", test_path("c.amr")), 2, "Did you mean check?");
    expect_refused(snug_run("amr pars %s", test_path("c.amr")), 2, "stats, triples, rows, parse, collect, draw");
    expect_refused(snug_run("amr check"), 2, "needs a file");
    expect_refused(snug_run("amr draw %s", test_path("c.amr")), 2, "reads no file");
    expect_refused(snug_run("amr check %s more words", test_path("c.amr")), 2,
                   "'more': `snug amr` takes VERB [FILE]");
    expect_refused(snug_run("amr draw --n 3 --json"), 2, "give --out FILE");
    expect_refused(snug_run("amr check %s", test_path("absent.amr")), 1, "absent.amr");
    Ran r = snug_run("amr --help");
    EXPECT(r.code == 0 && strstr(str_text(&r.out), "usage: snug amr VERB [FILE] [options]") &&
           strstr(str_text(&r.out), "snug amr collect answers.jsonl"));
    ran_free(&r);
    r = snug_run("smatch --help");
    EXPECT(r.code == 0 && strstr(str_text(&r.out), "usage: snug smatch GOLD PRED... [options]"));
    ran_free(&r);
}
