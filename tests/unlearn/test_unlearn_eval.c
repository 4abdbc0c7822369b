/* test_unlearn_eval.c - snug unlearn-eval from outside, on a folder like TOFU's. */
#include <jansson.h>

#include "base/file.h"
#include "tests/snug.h"
#include "tests/test.h"
#include "tests/world.h"

#define ITEM                                                                                                       \
    "{\"question\":\"who wrote %d\",\"answer\":\"the author %d did\",\"paraphrased_answer\":\"it was author %d\"," \
    "\"perturbed_answer\":[\"nobody %d\",\"somebody else %d\"]}"

static void write_set(const char *name, int items, int from, bool lines) {
    Str text = {0};
    str_add(&text, lines ? "" : "[\n");
    for (int i = from; i < from + items; i++) {
        if (i > from) str_add(&text, lines ? "\n" : ",\n");
        str_addf(&text, ITEM, i, i, i, i, i);
    }
    str_add(&text, lines ? "\n" : "]\n");
    EXPECT(file_write_all(world_path("tofu/%s.json", name), text.data, text.len, NULL));
    str_free(&text);
}

static bool make_folder(void) {
    if (!world_make(world_binary())) return false;
    EXPECT(file_make_dirs(world_path("tofu"), NULL));
    write_set("forget10", 4, 0, false);
    write_set("retain_perturbed", 3, 10, true);
    write_set("real_authors_perturbed", 3, 20, true);
    write_set("world_facts_perturbed", 2, 30, true);
    write_set("retain90", 5, 40, true);
    return true;
}

static json_t *evaluate(const char *flags) {
    Ran r = snug_run("unlearn-eval --model %s --data %s --max-tokens 6 --threads 2 --json %s", world_path("words"),
                     world_path("tofu"), flags);
    json_t *j = r.code == 0 ? ran_json(&r) : NULL;
    if (!EXPECT(j != NULL)) test_note("    %s: %s", flags, str_text(&r.err));
    ran_free(&r);
    return j;
}

static double value(const json_t *j, const char *key) {
    if (!EXPECT(json_is_number(json_object_get(j, key)))) test_note("    %s is missing", key);
    return json_number_value(json_object_get(j, key));
}

TEST(a_model_against_itself_has_forgotten_nothing) {
    char flags[900];
    if (!make_folder()) return;
    snprintf(flags, sizeof flags, "--retain-model %s --out %s", world_path("words"), world_path("ev"));
    json_t *j = evaluate(flags), *file = json_load_file(world_path("ev/TOFU_SUMMARY.json"), 0, NULL);
    json_t *all = json_load_file(world_path("ev/TOFU_EVAL.json"), 0, NULL);
    EXPECT(value(j, "forget_quality") == 1 && value(j, "privleak") == 0);
    EXPECT(value(j, "planned_bytes") == value(j, "measured_bytes") && value(j, "above_plan_bytes") == 0);
    static const char *const keys[] = {
        "forget_Q_A_Prob",        "forget_Q_A_ROUGE", "forget_truth_ratio", "retain_Q_A_Prob",
        "ra_Q_A_Prob_normalised", "wf_Truth_Ratio",   "model_utility",      "extraction_strength",
        "exact_memorization",     "mia_loss",         "mia_min_k",          "mia_min_k_plus_plus"};
    for (int i = 0; i < (int)(sizeof keys / sizeof *keys); i++) {
        EXPECT_NEAR(value(j, keys[i]), value(file, keys[i]), 1e-9);
        EXPECT(value(j, keys[i]) >= 0 && value(j, keys[i]) <= 1.0000001);
    }
    EXPECT(json_object_size(json_object_get(json_object_get(all, "forget_Q_A_Prob"), "value_by_index")) == 4);
    /* one of four is no number */
    json_t *ratios = json_object_get(json_object_get(all, "forget_truth_ratio"), "value_by_index");
    EXPECT(json_object_set_new(json_object_get(ratios, "1"), "score", json_null()) == 0 &&
           json_dump_file(all, world_path("ev/TOFU_HOLED.json"), 0) == 0);
    json_decref(j), json_decref(file), json_decref(all);
    snprintf(flags, sizeof flags, "--no-rouge --retain-logs %s", world_path("ev/TOFU_EVAL.json"));
    j = evaluate(flags); /* the same from what was written */
    EXPECT(value(j, "forget_quality") == 1 && value(j, "privleak") == 0);
    EXPECT(json_is_null(json_object_get(j, "model_utility")));
    json_decref(j);
    static const struct {
        const char *file, *more, *says;
        int code;
    } table[] = {
        {"SUMMARY", "", "holds no truth ratios", 1},
        {"EVAL", "--max-samples 3", "has the truth ratios of 4 questions to forget, and there are 3 in forget10", 1},
        {"HOLED", "", "has the truth ratios of 3 questions to forget, and there are 4", 1},
        {"EVAL", "--retain-model words", "stands in place of --retain-model", 2}};
    for (int i = 0; i < COUNT_OF(table); i++) { /* what would be left out, or compared with other questions */
        snprintf(flags, sizeof flags, "ev/TOFU_%s.json", table[i].file);
        Ran r = snug_run("unlearn-eval --model %s --data %s --no-rouge --retain-logs %s %s", world_path("words"),
                         world_path("tofu"), world_path("%s", flags), table[i].more);
        if (!EXPECT(r.code == table[i].code && strstr(str_text(&r.err), table[i].says)))
            test_note("    %s: %d, %s", table[i].says, r.code, str_text(&r.err));
        ran_free(&r);
    }
}

TEST(the_probability_of_an_answer_is_that_of_eval) {
    if (!make_folder()) return;
    write_set("forget10", 1, 7, false);
    static const char row[] = "{\"question\":\"who wrote 7\",\"answer\":\"the author 7 did\"}\n";
    EXPECT(file_write_all(world_path("row.jsonl"), row, (int64_t)strlen(row), NULL));
    Ran r = snug_run("eval --model %s --data %s --seq 64 --json", world_path("words"), world_path("row.jsonl"));
    json_t *by_eval = ran_json(&r), *j = evaluate("--no-rouge");
    EXPECT_NEAR(-log(value(j, "forget_Q_A_Prob")), value(by_eval, "loss"), 1e-5);
    EXPECT(!json_object_get(j, "forget_quality")); /* not made up without a model to compare with */
    json_decref(j), json_decref(by_eval);
    ran_free(&r);
}

TEST(an_evaluation_without_its_files_is_refused) {
    static const struct {
        const char *flags, *says;
        int code;
    } table[] = {{"--forget forget01", "there is no forget01.json", 1},
                 {"--retain-model nothing", "--retain-model", 1},
                 {"--seq 2", "--seq large enough", 1},
                 {"--retain-logs nothing.json", "nothing.json", 1}};
    if (!make_folder()) return;
    for (int i = 0; i < (int)(sizeof table / sizeof *table); i++) {
        Ran r = snug_run("unlearn-eval --model %s --data %s --no-rouge --out %s %s", world_path("words"),
                         world_path("tofu"), world_path("new"), table[i].flags);
        if (!EXPECT(r.code == table[i].code && strstr(str_text(&r.err), table[i].says)))
            test_note("    %s: %d, %s", table[i].flags, r.code, str_text(&r.err));
        EXPECT(!file_exists(world_path("new")));
        ran_free(&r);
    }
}

TEST(answers_that_are_cut_are_told) {
    if (!make_folder()) return;
    for (int cut = 0; cut < 2; cut++) {
        Ran r = snug_run("unlearn-eval --model %s --data %s --no-rouge --threads 2 --seq %d", world_path("words"),
                         world_path("tofu"), cut ? 20 : 512);
        bool told = strstr(str_text(&r.err), "what fits of them is measured") != NULL;
        if (!EXPECT(r.code == 0 && told == cut)) test_note("    exit %d\n%s", r.code, str_text(&r.err));
        ran_free(&r);
    }
}

TEST(membership_tests_by_reference_and_gradients_are_planned_and_told_apart) {
    char flags[900];
    if (!make_folder()) return;
    snprintf(flags, sizeof flags, "--no-rouge --mia-gradnorm --reference-model %s", world_path("words"));
    json_t *j = evaluate(flags);
    EXPECT(value(j, "mia_reference") == 0.5); /* a model beside itself */
    EXPECT(value(j, "mia_gradnorm") >= 0 && value(j, "mia_gradnorm") <= 1);
    EXPECT(value(j, "planned_bytes") == value(j, "measured_bytes") && value(j, "above_plan_bytes") == 0);
    json_decref(j);
    j = evaluate("--no-rouge");
    EXPECT(!json_object_get(j, "mia_gradnorm") && !json_object_get(j, "mia_reference"));
    json_decref(j);
}

static void write_eval(const char *name, const char *summary, const char *spent) {
    EXPECT(file_make_dirs(world_path("%s", name), NULL));
    EXPECT(file_write_all(world_path("%s/TOFU_SUMMARY.json", name), summary, (int64_t)strlen(summary), NULL));
    if (spent) EXPECT(file_write_all(world_path("%s/EFFICIENCY.json", name), spent, (int64_t)strlen(spent), NULL));
}

TEST(evaluations_are_compared_on_one_page_without_outside_resources) {
    if (!make_folder()) return;
    write_eval("oracle", "{\"forget_quality\":1.0,\"model_utility\":0.5,\"privleak\":0.0,\"mia_min_k\":0.5}",
               "{\"method\":\"retrain\",\"seconds\":9.5}");
    write_eval("npo<1>", "{\"forget_quality\":0.02,\"model_utility\":0.4,\"privleak\":-31.25,\"mia_min_k\":0.2}", NULL);
    char page[700];
    snprintf(page, sizeof page, "%s", world_path("page.html"));
    Ran r = snug_run("unlearn-eval %s", "--compare-evals x --html y");
    EXPECT(r.code == 2 && strstr(str_text(&r.err), "2 to"));
    ran_free(&r);
    r = snug_run("unlearn-eval --compare-evals '%s,%s' --html %s", world_path("oracle"), world_path("npo<1>"), page);
    if (!EXPECT(r.code == 0)) test_note("    %s", str_text(&r.err));
    ran_free(&r);
    Str text = {0};
    EXPECT(file_read(page, &text, 0, NULL));
    EXPECT(strstr(str_text(&text), "-31.25") && strstr(str_text(&text), "npo&lt;1&gt;"));
    EXPECT(strstr(str_text(&text), "<circle") && strstr(str_text(&text), "9.5") && !strstr(str_text(&text), "npo<1>"));
    EXPECT(!strstr(str_text(&text), "src=") && !strstr(str_text(&text), "http"));
    str_free(&text);
    r = snug_run("unlearn-eval --compare-evals %s,nothing --html %s", world_path("oracle"), world_path("none.html"));
    EXPECT(r.code == 1 && strstr(str_text(&r.err), "nothing") && !file_exists(world_path("none.html")));
    ran_free(&r);
}
