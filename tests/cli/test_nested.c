/* test_nested.c - configurations in sections (model, training, data, logging): read by init, plan and train, every
 * key used, named as not needed, or refused with its line. */
#include <string.h>

#include "base/file.h"
#include "tests/snug.h"
#include "tests/test.h"

#define NESTED "tests/cli/nested.yaml"

static void expect_text(const Str *text, const char *part) {
    if (!EXPECT(strstr(str_text(text), part) != NULL))
        test_note("    '%s' is missing in: %s", part, str_text(text));
}

static void make_model(void) {
    Ran r = snug_run("init --config " NESTED " --out %s", test_path("m"));
    EXPECT(r.code == 0);
    ran_free(&r);
}

TEST(sections_of_a_nested_file_make_a_model) {
    Str text = {0};
    Err e = {0};
    make_model();
    EXPECT_OK(file_read(test_path("m/config.json"), &text, 1 << 16, &e));
    static const char *const parts[] = {"\"model_type\": \"gsa\"", "\"d_model\": 64",   "\"n_layers\": 2",
                                        "\"k_base\": 16",          "\"d_indexer\": 16", "\"n_kv_heads\": 2",
                                        "\"vocab_size\": 768"};
    for (int i = 0; i < COUNT_OF(parts); i++) expect_text(&text, parts[i]);
    str_free(&text);
}

TEST(sections_of_a_nested_file_are_trained_by) {
    Str config = {0}, rows = {0};
    Err e = {0};
    make_model();
    for (int i = 0; i < 40; i++)
        str_addf(&rows, "{\"text\":\"Ada has %d apples and gives away %d of them each evening.\"}\n", i, i % 7);
    EXPECT_OK(file_write_all(test_path("t.jsonl"), str_text(&rows), rows.len, &e));
    Ran r = snug_run("train --config " NESTED " --model %s --data %s --device cpu --out %s --json", test_path("m"),
                     test_path("t.jsonl"), test_path("run"));
    EXPECT(r.code == 0);
    expect_text(&r.err, "nested.yaml:2: taken and not needed: the model is that of --model");
    expect_text(&r.err, "nested.yaml:64: taken and not needed: metrics.jsonl");
    EXPECT_OK(file_read(test_path("run/config.yaml"), &config, 1 << 16, &e));
    static const char *const lines[] = {"\nsteps: 4\n",
                                        "\nseq: 64\n",
                                        "\nmicro-batch: 2\n",
                                        "\nglobal-batch: 4\n",
                                        "\nbeta2: 0.95\n",
                                        "\nweight-decay: 0.1\n",
                                        "\nmin-lr: 3e-05\n",
                                        "\nclip: 1\n",
                                        "\nmaster: fp32\n",
                                        "\nprecision: bf16\n",
                                        "\nrecompute: block\n",
                                        "\npack: \"on\"\n",
                                        "\nindexer-warmup-steps: 2\n",
                                        "\nlog-steps: 2\n",
                                        "\nsave-steps: 4\n",
                                        "\ndata-workers: 1\n",
                                        "\nschedule: cosine\n"};
    for (int i = 0; i < COUNT_OF(lines); i++) expect_text(&config, lines[i]);
    json_t *j = ran_json(&r);
    EXPECT(json_integer_value(json_object_get(j, "steps")) == 4);
    EXPECT(json_integer_value(json_object_get(j, "planned_bytes")) ==
           json_integer_value(json_object_get(j, "measured_bytes")));
    json_decref(j);
    str_free(&config), str_free(&rows);
    ran_free(&r);
}

/* Wherever such a file switches the indexer's warm-up off, none follows, however many steps it counts beside it. */
TEST(an_indexers_warmup_that_a_nested_file_switches_off_does_not_take_place) {
    static const struct {
        const char *yaml, *flags;
        bool warm;
    } cases[] = {
        {"model:\n  gsa:\n    use_indexer_warmup: false\ntraining:\n  indexer_warmup_steps: 1\n", "", false},
        {"model:\n  use_indexer_warmup: false\ntraining:\n  indexer_warmup_steps: 1\n", "", false},
        {"training:\n  use_indexer_warmup: False\n  indexer_warmup_steps: 1\n", "", false},
        {"training:\n  indexer_warmup_steps: 1\n  use_indexer_warmup: false\n", "--indexer-warmup-steps 1", true},
        {"training:\n  use_indexer_warmup: false\n", "--indexer-warmup joint --indexer-warmup-steps 1", true},
        {"model:\n  gsa:\n    use_indexer_warmup: true\ntraining:\n  indexer_warmup_steps: 1\n", "", true},
        {"training:\n  use_indexer_warmup: true\n  indexer_warmup_steps: 1\n", "", true},
    };
    static const char row[] = "{\"text\": \"Ada has three apples and gives one of them away.\"}\n";
    make_model();
    EXPECT(file_write_all(test_path("t.jsonl"), row, sizeof row - 1, NULL));
    for (int i = 0; i < COUNT_OF(cases); i++) {
        EXPECT(file_write_all(test_path("w.yaml"), cases[i].yaml, (int64_t)strlen(cases[i].yaml), NULL));
        Ran r = snug_run("train --config %s --model %s --tokenizer models/tally --data %s --seq 32 --steps 2 --device "
                         "cpu --no-save --overwrite --out %s %s",
                         test_path("w.yaml"), test_path("m"), test_path("t.jsonl"), test_path("o"), cases[i].flags);
        bool warm = strstr(str_text(&r.err), "dense") != NULL;
        if (!EXPECT(r.code == 0 && warm == cases[i].warm)) test_note("    %s\n%s", cases[i].yaml, str_text(&r.err));
        ran_free(&r);
    }
}

TEST(a_nested_file_without_warmup_makes_a_model_without) {
    static const char yaml[] = "model:\n  d_model: 64\n  n_layers: 2\n  n_heads: 4\n  n_kv_heads: 2\n  d_ffn: 96\n"
                               "  vocab_size: 768\n  gsa:\n    use_indexer_warmup: false\n";
    EXPECT(file_write_all(test_path("c.yaml"), yaml, (int64_t)strlen(yaml), NULL));
    Ran r = snug_run("init --config %s --out %s", test_path("c.yaml"), test_path("m"));
    if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
    ran_free(&r);
    json_t *j = json_load_file(test_path("m/config.json"), 0, NULL);
    EXPECT(json_is_false(json_object_get(j, "use_indexer_warmup")));
    json_decref(j);
}

TEST(a_key_that_a_section_does_not_have_is_refused_with_its_line) {
    static const struct {
        const char *yaml, *said;
    } cases[] = {{"training:\n  max_step: 3\n", "bad.yaml:2: "},
                 {"training:\n  betas: [0.9]\n", "bad.yaml:2: betas: two numbers"},
                 {"training:\n  inner:\n    lr: 1\n", "bad.yaml:3: a nested map"},
                 {"steps: 3\ntraining:\n  max_steps: 4\n", "steps"},
                 {"optimizer:\n  lr: 1\n", "a nested map"}};
    for (int i = 0; i < COUNT_OF(cases); i++) {
        Err e = {0};
        EXPECT_OK(file_write_all(test_path("bad.yaml"), cases[i].yaml, (int64_t)strlen(cases[i].yaml), &e));
        Ran r = snug_run("plan --model gsa-512m --config %s", test_path("bad.yaml"));
        EXPECT(r.code == 2);
        expect_text(&r.err, cases[i].said);
        ran_free(&r);
    }
}

TEST(a_value_of_the_model_that_is_wrong_is_refused_with_its_place) {
    static const struct {
        const char *yaml, *said;
    } cases[] = {
        {"model:\n  d_model: 64\n  gsa:\n    k_bass: 8\n", "bad.yaml:4: k_bass: no such key. Did you mean "},
        {"model:\n  rope_scaling: ntk\n", "bad.yaml: 'rope_scaling' is no map such as {"},
        {"model:\n  gsa:\n    sparse_layers: [[0]]\n", "bad.yaml:3: a list where a single value"},
        {"model:\n  d_model: sixty\n", "bad.yaml: 'hidden_size' is not a whole number"},
        {"model:\n  gsa:\n    k_min: 9\n    k_base: 8\n", "bad.yaml: 1 <= k_min <= k_base"}};
    for (int i = 0; i < COUNT_OF(cases); i++) {
        Err e = {0};
        EXPECT_OK(file_write_all(test_path("bad.yaml"), cases[i].yaml, (int64_t)strlen(cases[i].yaml), &e));
        Ran r = snug_run("init --config %s --out %s", test_path("bad.yaml"), test_path("m"));
        EXPECT(r.code == 2 && !file_exists(test_path("m")));
        expect_text(&r.err, cases[i].said);
        ran_free(&r);
    }
}

TEST(lists_and_maps_of_the_model_are_taken_as_config_json_has_them) {
    static const char yaml[] =
        "model:\n  d_model: 64\n  n_layers: 3\n  n_heads: 4\n  n_kv_heads: 2\n  d_ffn: 96\n"
        "  vocab_size: 768\n  rope_scaling: {type: ntk, factor: 2}\n  gsa:\n"
        "    sparse_layers:\n      - 0\n      - 2\n";
    Err e = {0};
    EXPECT_OK(file_write_all(test_path("c.yaml"), yaml, (int64_t)strlen(yaml), &e));
    Ran r = snug_run("init --config %s --out %s", test_path("c.yaml"), test_path("m"));
    if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
    ran_free(&r);
    json_t *j = json_load_file(test_path("m/config.json"), 0, NULL);
    const json_t *rope = json_object_get(j, "rope_scaling"), *layers = json_object_get(j, "sparse_layers");
    EXPECT_STR(json_string_value(json_object_get(rope, "rope_type")), "ntk");
    EXPECT(json_array_size(layers) == 2 && json_integer_value(json_array_get(layers, 1)) == 2);
    json_decref(j);
}
