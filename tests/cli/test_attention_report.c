/* test_attention_report.c - `snug eval --attention-report`: a page and numbers about every layer, of sparse and
 * dense models. */
#include <string.h>

#include "base/file.h"
#include "tests/snug.h"
#include "tests/test.h"

#define TINY                                                                                            \
    "--dtype fp32 --set d_model=64 --set n_layers=3 --set n_heads=4 --set n_kv_heads=2 --set d_ffn=96 " \
    "--set vocab_size=768 --set d_indexer=16 --set k_base=16 --set k_min=4 --set k_max=32"

static void make_inputs(void) {
    Ran r = snug_run("init --model gsa-512m --tokenizer models/tally --out %s " TINY, test_path("m"));
    EXPECT(r.code == 0);
    ran_free(&r);
    r = snug_run("problems --n 24 --out %s", test_path("d.jsonl"));
    EXPECT(r.code == 0);
    ran_free(&r);
}

static Ran report(const char *model, const char *flags) {
    return snug_run("eval --model %s --data %s --seq 128 --json --device cpu --attention-report %s %s", model,
                    test_path("d.jsonl"), test_path("report.html"), flags);
}

static double number(const json_t *o, const char *key) {
    return json_number_value(json_object_get(o, key));
}

/* The page is whole, reads nothing from elsewhere, and has a bar for every layer and picture. */
static void expect_page(int layers, int pictures) {
    Str page = {0};
    Err e = {0};
    int bars = 0;
    EXPECT_OK(file_read(test_path("report.html"), &page, 1 << 20, &e));
    EXPECT(html_fault(str_text(&page)) == NULL);
    EXPECT(!strstr(str_text(&page), "http") && !strstr(str_text(&page), "nan"));
    for (const char *at = str_text(&page); (at = strstr(at, "<title>layer ")); at++) bars++;
    EXPECT(bars == layers * pictures);
    str_free(&page);
}

TEST(a_report_tells_gates_keys_recall_and_sinks_of_every_layer) {
    make_inputs();
    Ran r = report(test_path("m"), "");
    EXPECT(r.code == 0);
    json_t *j = ran_json(&r), *a = json_object_get(j, "attention"), *layers = json_object_get(a, "layers"), *l;
    size_t i;
    EXPECT(json_array_size(layers) == 3);
    json_array_foreach(layers, i, l) {
        EXPECT(number(l, "layer") == (double)i);
        EXPECT(number(l, "gate_min") < number(l, "gate_mean") && number(l, "gate_mean") < number(l, "gate_max"));
        EXPECT(number(l, "k_min") == 1 && number(l, "k_max") > 16 && number(l, "k_max") <= 32);
        EXPECT(number(l, "indexer_recall") > 0.5 && number(l, "indexer_recall") <= 1);
        EXPECT(number(l, "first_token") > 0 && json_is_false(json_object_get(l, "sink")));
    }
    EXPECT(number(a, "sinks") == 0 && number(json_object_get(a, "all"), "coverage") > 0);
    EXPECT(number(j, "planned_bytes") == number(j, "measured_bytes") && number(j, "above_plan_bytes") == 0);
    expect_page(3, 6);
    json_decref(j);
    ran_free(&r);
}

TEST(a_report_changes_no_loss_and_the_oracle_recalls_everything) {
    make_inputs();
    Ran with = report(test_path("m"), "--selection oracle");
    Ran without = snug_run("eval --model %s --data %s --seq 128 --json --device cpu --selection oracle",
                           test_path("m"), test_path("d.jsonl"));
    json_t *j = ran_json(&with), *k = ran_json(&without);
    EXPECT(with.code == 0 && without.code == 0);
    EXPECT(number(j, "loss") == number(k, "loss"));
    EXPECT_NEAR(number(json_object_get(json_object_get(j, "attention"), "all"), "indexer_recall"), 1, 1e-4);
    EXPECT(!json_object_get(k, "attention"));
    json_decref(j), json_decref(k);
    ran_free(&with), ran_free(&without);
}

TEST(a_dense_model_s_report_tells_sinks_alone) {
    make_inputs();
    static const char *const models[] = {"models/tally", NULL};
    for (int i = 0; i < 2; i++) {
        Ran r = report(models[i] ? models[i] : test_path("m"), i ? "--selection all --gates none" : "");
        json_t *j = ran_json(&r), *all = json_object_get(json_object_get(j, "attention"), "all");
        EXPECT(r.code == 0);
        EXPECT(number(all, "first_token") > 0 && !json_object_get(all, "k_mean") &&
               !json_object_get(all, "gate_mean"));
        expect_page((int)json_array_size(json_object_get(json_object_get(j, "attention"), "layers")), 1);
        json_decref(j);
        ran_free(&r);
    }
}

TEST(a_report_without_a_place_or_beside_a_suite_is_refused) {
    make_inputs();
    Ran r = snug_run("eval --model %s --data %s --attention-report %s/report.html", test_path("m"),
                     test_path("d.jsonl"), test_path("no-folder"));
    EXPECT(r.code == 1 && strstr(str_text(&r.err), "there is no folder"));
    ran_free(&r);
    r = report(test_path("m"), "--suite perplexity");
    EXPECT(r.code == 2 && strstr(str_text(&r.err), "without --suite"));
    ran_free(&r);
}
