/* test_reward.c - rewards against independent numbers, and against what policies do to get them. */
#include "base/mem.h"
#include "grpo/reward.h"
#include "tests/grpo/golden.h"
#include "tests/test.h"

static double score(const char *name, const char *answer, const char *gold) {
    Err e = {0};
    const Reward *r = reward_find(name, &e);
    char question[] = "What is it?", copy[400];
    snprintf(copy, sizeof copy, "%s", gold);
    Item item = {.question = question, .gold = copy};
    if (!EXPECT(r)) return NAN;
    return r->fn(&(RewardInput){&item, answer, answer});
}

/* ---- against others ---- */

static double worst;

static void text_case(const json_t *row) {
    const char *text = golden_text(row, "text"), *gold = golden_text(row, "gold");
    double apart = gold ? fmax(fabs(reward_token_f1(text, gold) - golden_number(json_object_get(row, "f1"))),
                               fabs(reward_bleu(text, gold) - golden_number(json_object_get(row, "bleu"))))
                        : fabs(score("poem", text, "") - golden_number(json_object_get(row, "poem")));
    if (!EXPECT(apart < 1e-12)) test_note("    %.60s", text);
    worst = fmax(worst, apart);
}

TEST(f1_bleu_and_poem_are_those_of_independent_code) {
    worst = 0;
    EXPECT(golden_each("text", text_case) == 200);
    EXPECT_NEAR(worst, 0, 1e-12);
}

static int agree, differ;

static void accuracy_case(const json_t *row) {
    double ours = score("accuracy", golden_text(row, "text"), golden_text(row, "gold"));
    bool same = ours == golden_number(json_object_get(row, "trl"));
    agree += same;
    differ += !same;
    if (!same && test_number("show", 0))
        test_note("    ours %g: %s against %s", ours, golden_text(row, "text"), golden_text(row, "gold"));
}

TEST(accuracy_agrees_with_trl) {
    agree = differ = 0;
    golden_each("accuracy", accuracy_case);
    EXPECT(agree + differ == 78 && differ == 2); /* \frac12 and \sqrt2 without braces, which TRL does not take */
}

/* ---- by hand ---- */

static const struct {
    const char *name, *answer, *gold;
    double want;
} cases[] = {
    {"accuracy", "First \\boxed{3}, no: \\boxed{4}", "4", 1},
    {"accuracy", "It is 12.\n#### 12", "12.0", 1},
    {"accuracy", "nothing", "12", 0},
    {"accuracy", "", "12", 0},
    {"accuracy", "<think>\\boxed{12}</think> \\boxed{13}", "12", 0},
    {"math", " the RED one ", "The red one", 1},
    {"easy_math", "So she has 18 apples.", "18", 1},
    {"easy_math", "So she has 180 apples.", "18", 0}, /* a part of a number is none */
    {"easy_math", "So she has 3.18 or 18.5 apples.", "18", 0},
    {"easy_math", "So she has $1,080.00.", "1080", 1},
    {"easy_math", "18 apples, and then a tail that is longer than it should be.", "18", 0},
    {"easy_math", "1,000,018 so and a tail that is fifty characters long ......", "18", 0},
    {"easy_math", "It went down by -5", "-5", 1},
    {"easy_math", "It went down by 5", "-5", 0},
    {"easy_math", "10-5=5", "5", 1},
    {"easy_math", "the answer is five", "five", 1},
    {"classification", "Sports", "Sports", 0.7 + 0.3 * (1 - 6.0 / 128)},
    {"classification", "Classification: **sports**", "Sports", 0.7 + 0.3 * (1 - 26.0 / 128)},
    {"classification", "World, Sports, Business", "Sports",
     0.3 * (1 - 23.0 / 128)}, /* naming all is naming the last */
    {"classification", "Classification: World, Sports, Business", "World", 0.3 * (1 - 39.0 / 128)},
    {"classification", "not World but science/technology", "Science/Technology", 0.7 + 0.3 * (1 - 32.0 / 128)},
    {"exact", " Two  words", "two words", 1},
    {"exact", "twowords", "two words", 0},
    {"last_number", "3 + 4 = 7, or 1,234.50", "It is 1234.5 dollars", 1},
    {"last_number", "7 and no more", "8", 0},
    {"last_number", "none", "8", 0},
    {"length", "  12345 ", "", 0.05},
    {"test:length",
     "1234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123", "",
     1},
    {"test:constant", "x", "", 0.5},
    {"test:gold_match", " a b ", "a b", 1},
    {"gold-match", "a c", "a b", 0.5},
    {"f1", "été ÉTÉ", "Été", 2.0 / 3},
    {"bleu", "42", "42", 1},
    {"bleu", "41", "42", 0},
    {"poem", "", "", 0},
    {"poem", "--- *** ---\n\n", "", 0},
};

TEST(rewards_by_hand) {
    for (int i = 0; i < COUNT_OF(cases); i++) {
        double got = score(cases[i].name, cases[i].answer, cases[i].gold);
        if (!EXPECT(fabs(got - cases[i].want) < 1e-12))
            test_note("    %s of \"%s\": %.9g, not %.9g", cases[i].name, cases[i].answer, got, cases[i].want);
    }
}

TEST(a_reward_without_gold_is_missing) {
    static const char *const names[] = {"accuracy", "easy_math", "classification", "exact",  "last_number",
                                        "f1",       "bleu",      "gold_match",     "no_leak"};
    for (int i = 0; i < COUNT_OF(names); i++) EXPECT(isnan(score(names[i], "answer 5", "")));
    EXPECT(isnan(score("last_number", "answer 5", "no number")));
}

TEST(a_reward_that_is_not_known_names_the_nearest) {
    Err e = {0};
    EXPECT(!reward_find("accurracy", &e) && e.code == ERR_USAGE && strstr(e.text, "Did you mean accuracy?"));
    EXPECT(!reward_find("something_else", &e) && strstr(e.text, "There are: accuracy, easy_math"));
}

TEST(a_prompt_that_states_the_answer_leaks) {
    Err e = {0};
    const Reward *r = reward_find("no_leak", &e);
    char question[] = "Ann has 3 apples and buys 4. How many?", gold[] = "7", three[] = "3";
    Item item = {.question = question, .gold = gold};
    EXPECT(r->fn(&(RewardInput){&item, "Add 3 and 4 step by step.", "7"}) == 1);
    EXPECT(r->fn(&(RewardInput){&item, "Add 3 and 4; the result is 7.", "7"}) == 0);
    EXPECT(r->fn(&(RewardInput){&item, "Add 37 and 4", "7"}) == 1);
    item.gold = three; /* the question says it already */
    EXPECT(r->fn(&(RewardInput){&item, "There are 3.", "3"}) == 1);
}

TEST(a_poem_of_one_line_and_rows_of_dashes_gain_nothing) {
    const char *good =
        "The moon lies silver on the river\nwhere quiet reeds begin to shiver\na heron lifts across the night\n"
        "and carries home the last of light\nmy window keeps a lamp for you\nuntil the grass is wet with dew";
    Str repeated = {0}, dashed = {0}, one_word = {0};
    for (int i = 0; i < 6; i++) {
        str_add(&repeated, "The moon lies silver on the river\n");
        str_addf(&one_word, "%s night\n", i % 2 ? "a long and silver" : "the wide");
    }
    str_addf(&dashed, "%s\n", good);
    for (int i = 0; i < 20; i++) str_add(&dashed, "— — — -----\n");
    double best = score("poem", good, "");
    EXPECT(best > 0.7 && best <= 1);
    EXPECT(score("poem", repeated.data, "") < 0.3 && score("poem", one_word.data, "") < 0.6);
    EXPECT(score("poem", dashed.data, "") <= best);
    str_free(&repeated);
    str_free(&dashed);
    str_free(&one_word);
}

TEST(rewards_take_any_bytes) { /* what a model says need not be UTF-8 */
    int n;
    const Reward *all = rewards(&n);
    char question[] = "q", gold[] = "\xc3\xa9t\xe9 5";
    Item item = {.question = question, .gold = gold};
    static const char *const texts[] = {"\xff\xfe", "\xe2\x80",     "\xc3", "a\xf0\x9f", "",
                                        "\n\n\n",   "....,,,,----", "-",    "####",      "\\boxed{"};
    for (int i = 0; i < n; i++)
        for (int k = 0; k < COUNT_OF(texts); k++) {
            double r = all[i].fn(&(RewardInput){&item, texts[k], texts[k]});
            EXPECT(isnan(r) || (r >= 0 && r <= 1));
        }
}
