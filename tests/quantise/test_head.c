/* test_head.c - a head in int8, tied or not: what it changes, what it saves, on file, and where it is refused. */
#include "base/file.h"
#include "tests/snug.h"
#include "tests/test.h"

enum { VOCAB = 301, HIDDEN = 64, SEQ = 48 };

static void make_world(const char *name, bool tied) {
    Ran r = snug_run(
        "init --model llama-3.2-1b --dtype fp32 --overwrite --out %s --set num_hidden_layers=2 --set hidden_size=%d "
        "--set "
        "num_attention_heads=4 --set num_key_value_heads=2 --set head_dim=16 --set intermediate_size=96 --set "
        "vocab_size=%d --set initializer_range=0.2 --set tie_word_embeddings=%s",
        test_path(name), HIDDEN, VOCAB, tied ? "true" : "false");
    if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
    ran_free(&r);
    Str text = {0};
    for (int row = 0; row < 12; row++) {
        str_add(&text, "{\"ids\":[");
        for (int i = 0; i < SEQ; i++) str_addf(&text, i ? ",%d" : "%d", (row * 31 + i * (1 + row % 5)) % VOCAB);
        str_add(&text, "]}\n");
    }
    file_write_all(test_path("rows.jsonl"), text.data, text.len, NULL);
    str_free(&text);
}

static json_t *run(const char *command, const char *model, const char *flags) {
    Ran r = snug_run("%s --model %s %s --json", command, test_path(model), flags);
    json_t *j = ran_json(&r);
    if (!EXPECT(r.code == 0 && j)) test_note("    %s %s: %s", command, flags, str_text(&r.err));
    ran_free(&r);
    return j;
}

static double real(json_t *j, const char *key) { return json_number_value(json_object_get(j, key)); }

static double loss_of(const char *model, const char *flags) {
    char all[400];
    snprintf(all, sizeof all, "--data %s --seq %d --pack off %s", test_path("rows.jsonl"), SEQ, flags);
    json_t *j = run("eval", model, all);
    double loss = real(j, "loss");
    json_decref(j);
    return loss;
}

/* A row of int8 is its numbers and a scale, in multiples of 16 bytes. */
TEST(a_report_shows_what_the_head_alone_changes_and_saves) {
    for (int tied = 0; tied < 2; tied++) {
        char flags[400];
        make_world("m", tied);
        snprintf(flags, sizeof flags, "--data %s --seq %d --pack off --report --quantize int8 --quantize-head int8",
                 test_path("rows.jsonl"), SEQ);
        json_t *j = run("quantize", "m", flags), *layers = json_object_get(j, "head_as_it_is"),
               *all = json_object_get(j, "quantised");
        double change = real(all, "loss") - real(layers, "loss");
        printf("  %s: loss %.5f, layers %+.5f, head %+.5f\n", tied ? "tied" : "a matrix of its own", real(all, "loss"),
               real(layers, "loss") - real(json_object_get(j, "full"), "loss"), change);
        EXPECT(change != 0 && fabs(change) < 0.02);
        EXPECT(real(layers, "weight_bytes") - real(all, "weight_bytes") == VOCAB * (4.0 * HIDDEN - (HIDDEN + 16)));
        json_decref(j);
        EXPECT(loss_of("m", "--quantize int8 --quantize-head int8") == loss_of("m", "--load-in-8bit --quantize-head"));
    }
}

TEST(a_folder_with_an_int8_head_is_what_quantising_while_loading_gives) {
    for (int tied = 0; tied < 2; tied++) {
        make_world("m", tied);
        Ran r = snug_run("quantize --model %s --quantize nf4 --quantize-head int8 --out %s --overwrite", test_path("m"),
                         test_path("q"));
        if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
        ran_free(&r);
        EXPECT(loss_of("q", "") == loss_of("m", "--quantize nf4 --quantize-head int8"));
        EXPECT(loss_of("q", "") != loss_of("m", "--quantize nf4"));
        r = snug_run("eval --model %s --data %s --quantize-head none", test_path("q"), test_path("rows.jsonl"));
        EXPECT(r.code == 2 && strstr(str_text(&r.err), "stored as int8 already"));
        ran_free(&r);
    }
}

/* Few slots read it by dot products, many panel by panel; both are planned to the byte. */
TEST(answers_with_an_int8_head_are_planned_to_the_byte_and_the_same_from_a_folder) {
    make_world("m", false);
    Ran r =
        snug_run("quantize --model %s --quantize int8 --quantize-head int8 --out %s", test_path("m"), test_path("q"));
    EXPECT(r.code == 0);
    ran_free(&r);
    Str prompts = {0};
    for (int i = 0; i < 20; i++) str_addf(&prompts, "{\"ids\":[%d,%d,9]}\n", 1 + i, 50 + 3 * i);
    file_write_all(test_path("p.jsonl"), prompts.data, prompts.len, NULL);
    str_free(&prompts);
    for (int slots = 2; slots <= 20; slots += 18) {
        static const char *const models[] = {"m", "m", "q"}, *const kinds[] = {"--quantize int8",
                                                                               "--quantize int8 --quantize-head", ""};
        Str said[3] = {{0}};
        double planned[3];
        for (int k = 0; k < 3; k++) {
            r = snug_run("generate --model %s --prompts %s --max-tokens 8 --ignore-eos --slots %d --json %s",
                         test_path(models[k]), test_path("p.jsonl"), slots, kinds[k]);
            json_t *j = ran_json(&r);
            if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
            EXPECT(real(j, "planned_bytes") == real(j, "measured_bytes"));
            planned[k] = real(j, "planned_bytes");
            json_decref(j);
            const char *summary = strstr(str_text(&r.out), "{\"requests\"");
            EXPECT(summary != NULL);
            str_add_bytes(&said[k], r.out.data, summary ? summary - r.out.data : 0);
            ran_free(&r);
        }
        EXPECT(planned[1] < planned[0] && planned[2] == planned[1]);
        EXPECT(said[1].len > 0 && !strcmp(str_text(&said[1]), str_text(&said[2])));
        for (int k = 0; k < 3; k++) str_free(&said[k]);
    }
}

TEST(adapters_learn_over_an_int8_head_and_all_weights_do_not) {
    make_world("m", true);
    double plain[8], less[8];
    static const char *const kinds[] = {"none", "int8"};
    for (int k = 0; k < 2; k++) {
        Ran r = snug_run(
            "train --model %s --data %s --out %s --mode lora --lora-rank 4 --lr 1e-2 --steps 8 --log-steps 1 "
            "--micro-batch 4 --seq %d --pack off --quantize-head %s",
            test_path("m"), test_path("rows.jsonl"), test_path(kinds[k]), SEQ, kinds[k]);
        if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
        ran_free(&r);
        EXPECT(snug_metrics(test_path(kinds[k]), "train", "loss", k ? less : plain, 8) == 8);
    }
    printf("  loss %.4f -> %.4f, int8 head %.4f -> %.4f\n", plain[0], plain[7], less[0], less[7]);
    EXPECT(less[0] != plain[0] && less[7] < less[0] && fabs(less[7] - plain[7]) < 0.02);
    Ran r = snug_run("train --model %s --data %s --out %s --quantize-head int8", test_path("m"),
                     test_path("rows.jsonl"), test_path("full"));
    EXPECT(r.code == 2 && strstr(str_text(&r.err), "it goes with --mode lora"));
    ran_free(&r);
}
