/* test_metrics.c - metrics against nltk, rouge-score, scipy and sklearn (tools/make_unlearn_metrics.py), and by their
 * definitions. */
#include <jansson.h>

#include "base/zlib.h"
#include "tests/test.h"
#include "unlearn/evaluate.h"
#include "unlearn/stem.h"

static json_t *golden(const char *key) { /* gives the whole; *key is found in it */
    static json_t *all;
    if (!all) all = json_load_file("tests/unlearn/metrics.json", 0, NULL);
    json_t *part = json_object_get(all, key);
    EXPECT(json_array_size(part) > 0);
    return part;
}

static json_t *at(const json_t *row, int i) { return json_array_get(row, (size_t)i); }
static double real(const json_t *row, int i) { return json_number_value(at(row, i)); }

static int64_t reals(const json_t *list, double *x) {
    for (size_t i = 0; i < json_array_size(list); i++) x[i] = real(list, (int)i);
    return (int64_t)json_array_size(list);
}

TEST(stems_are_those_of_nltk) {
    size_t i;
    json_t *row;
    json_array_foreach(golden("stems"), i, row) {
        char word[STEM_BYTES + 2];
        snprintf(word, sizeof word, "%s", json_string_value(at(row, 0)));
        stem_word(word);
        if (!EXPECT(!strcmp(word, json_string_value(at(row, 1)))))
            test_note("    %s: %s, wanted %s", json_string_value(at(row, 0)), word, json_string_value(at(row, 1)));
    }
}

TEST(rouge_l_is_that_of_rouge_score) {
    size_t i;
    json_t *row;
    json_array_foreach(golden("rouge"), i, row) {
        RougeL r = metric_rouge_l(json_string_value(at(row, 0)), json_string_value(at(row, 1)));
        EXPECT_NEAR(r.precision, real(row, 2), 1e-9);
        EXPECT_NEAR(r.recall, real(row, 3), 1e-9);
        EXPECT_NEAR(r.f, real(row, 4), 1e-9);
    }
}

TEST(kolmogorov_smirnov_is_that_of_scipy) {
    static double a[500], b[500];
    size_t i;
    json_t *row;
    json_array_foreach(golden("ks"), i, row) {
        int64_t n = reals(at(row, 0), a), m = reals(at(row, 1), b);
        double statistic, p = metric_ks(&statistic, a, n, b, m);
        EXPECT_NEAR(statistic, real(row, 2), 1e-9);
        EXPECT_NEAR(p / real(row, 3), 1, 1e-5); /* relative: the smallest too */
    }
}

TEST(areas_and_harmonic_means_are_those_of_sklearn_and_scipy) {
    static double a[500], b[500];
    size_t i;
    json_t *row;
    json_array_foreach(golden("auc"), i, row) {
        int64_t n = reals(at(row, 0), a), m = reals(at(row, 1), b);
        EXPECT_NEAR(metric_auc(a, n, b, m), real(row, 2), 1e-9);
    }
    json_array_foreach(golden("harmonic"), i, row)
        EXPECT_NEAR(metric_harmonic_mean(a, reals(at(row, 0), a)), real(row, 1), 1e-9);
}

TEST(metrics_of_an_answer_are_as_defined) {
    TokenScore t[] = {
        {-1, -2, 0.5f, true}, {-3, -2, 2, false}, {-0.5f, -1, 1, true}, {-0.1f, -1, 0.5f, true}, {-2, -1, 1, true}};
    EXPECT_NEAR(metric_nll(t, 5), 6.6 / 5, 1e-6);
    EXPECT_NEAR(metric_probability(t, 5), exp(-6.6 / 5), 1e-6);
    EXPECT_NEAR(metric_exact_memorization(t, 5), 0.8, 1e-12);
    EXPECT_NEAR(metric_extraction_strength(t, 5), 1 - 2.0 / 5, 1e-12); /* the last three follow from the first two */
    EXPECT_NEAR(metric_min_k(t, 5, 0.4), 2.5, 1e-6);                   /* -3 and -2 */
    EXPECT_NEAR(metric_min_k_plus(t, 5, 0.4), 0.75, 1e-6);             /* -1 and -0.5 deviations */
    double wrong[] = {2, 3}, ratios[] = {0.5, 2, 1, 0}, zero[] = {0.4, 0};
    EXPECT_NEAR(metric_truth_ratio(1, wrong, 2), exp(-2.5) / exp(-1.0), 1e-6);
    EXPECT_NEAR(metric_truth_forgotten(ratios, 4), (0.5 + 0.5 + 1 + 0) / 4, 1e-6);
    EXPECT_NEAR(metric_truth_kept(ratios, 4), (0.5 + 0 + 0 + 1) / 4, 1e-6);
    EXPECT(metric_harmonic_mean(zero, 2) == 0);
    EXPECT_NEAR(metric_privleak(0.4, 0.5), 20, 1e-9);
    EXPECT_NEAR(metric_privleak(0.5, 0.5), 0, 1e-9);
}

TEST(texts_are_as_short_as_zlib_makes_them) {
    static const char text[] =
        "The full name of the author is Basil Mahfouz Al-Kuwaiti, and the author is from Kuwait City, Kuwait.";
    if (zlib_bytes("", 0) < 0) {
        test_skip("no zlib here");
        return;
    }
    EXPECT(zlib_bytes(text, (int64_t)strlen(text)) == 84);
    EXPECT(zlib_bytes("", 0) == 8);
}

/* ---- membership tests ---- */

static void add_row(Scores *s, const json_t *row, const char *logp) {
    const json_t *of = json_object_get(row, logp), *mean = json_object_get(row, "mean");
    const json_t *deviation = json_object_get(row, "deviation");
    int64_t n = (int64_t)json_array_size(of), at = s->first[s->rows];
    for (int i = 0; i < n; i++)
        s->token[at + i] = (TokenScore){(float)real(of, i), (float)real(mean, i), (float)real(deviation, i), false};
    s->first[++s->rows] = at + n;
}

TEST(areas_of_six_membership_tests_are_those_of_numpy_and_sklearn) {
    json_t *t = at(golden("attacks"), 0), *rows = json_object_get(t, "rows"), *row, *area;
    int64_t members = json_integer_value(json_object_get(t, "members")), n = (int64_t)json_array_size(rows);
    static TokenScore token[2][600];
    static int64_t first[2][64];
    static EvalItem item[64];
    static double norm[64];
    Scores own = {token[0], first[0], 0}, reference = {token[1], first[1], 0};
    EvalItems items = {.set = {[SET_FORGET] = {item, members, 0}, [SET_HOLDOUT] = {item + members, n - members, 0}}};
    size_t i;
    const char *name;
    json_array_foreach(rows, i, row) {
        item[i] = (EvalItem){.answer = (char *)json_string_value(json_object_get(row, "answer")), .row = (int64_t)i};
        norm[i] = json_number_value(json_object_get(row, "norm"));
        add_row(&own, row, "logp");
        add_row(&reference, row, "reference");
    }
    EvalInput in = {.items = &items, .scores = &own, .reference = &reference, .gradient_norm = {norm, norm + members}};
    json_t *all = evaluate_all(&in), *summary = evaluate_summary(all);
    json_object_foreach(json_object_get(t, "auc"), name, area) {
        if (!strcmp(name, "mia_zlib") && zlib_bytes("", 0) < 0) continue;
        EXPECT_NEAR(json_number_value(json_object_get(summary, name)), json_number_value(area), 1e-5);
    }
    json_decref(all), json_decref(summary);
    in.reference = NULL, in.gradient_norm[0] = NULL; /* what was not made is left out */
    all = evaluate_all(&in);
    EXPECT(json_object_get(all, "mia_loss") && !json_object_get(all, "mia_reference"));
    EXPECT(!json_object_get(all, "mia_gradnorm"));
    json_decref(all);
}
