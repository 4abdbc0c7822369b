/* test_judge.c - scores as models write them, and what becomes of a reply that lacks some: scripted replies only. */
#include "base/mem.h"
#include "reason/judge.h"
#include "tests/test.h"

#define N NAN
typedef struct Case {
    const char *reply;
    double score[4]; /* correctness, clarity, coherence, precision; NAN: not said */
} Case;

static bool same_score(double a, double b) { return isnan(a) || isnan(b) ? isnan(a) == isnan(b) : fabs(a - b) < 1e-9; }

static void expect_scores(const Case *c, int n) {
    Rubric r = rubric_default();
    for (int k = 0; k < n; k++) {
        Judgement j;
        int missing = 0;
        judge_read(&j, &r, c[k].reply);
        for (int i = 0; i < r.n; i++) {
            missing += isnan(c[k].score[i]);
            if (!EXPECT(same_score(j.score[i], c[k].score[i])))
                test_note("    %s: %g, not %g, in:\n%s", r.criterion[i].name, j.score[i], c[k].score[i], c[k].reply);
        }
        EXPECT(j.n_missing == missing && isnan(j.quality) == (missing == r.n));
    }
}

TEST(judge_reads_what_the_prompt_asks_for) {
    static const Case c[] = {
        {"correctness: 0.9\nstep_by_step_clarity: 0.8\nlogical_coherence: 0.7\nmathematical_precision: 1.0",
         {.9, .8, .7, 1}},
        {"correctness: 0.9 All 3 results are right.\nstep_by_step_clarity: 1 Clear.\nlogical_coherence: 0 No.\n"
         "mathematical_precision: .5 Half of the 12 numbers.",
         {.9, 1, 0, .5}},
        {"- correctness: 0.85 - the answer 42 fits.\n- step_by_step_clarity: 0.8 - 3 steps.\n* logical_coherence: 0.7\n"
         "1. mathematical_precision: 0.60.",
         {.85, .8, .7, .6}},
    };
    expect_scores(c, COUNT_OF(c));
}

TEST(judge_reads_scales) {
    static const Case c[] = {
        {"correctness: 8/10\nstep_by_step_clarity: 4 / 5\nlogical_coherence: 70%\nmathematical_precision: 0.9/1.0",
         {.8, .8, .7, .9}},
        {"correctness (0.4): 4 out of 5, mostly\nClarity is fine.\nlogical_coherence - 8/10\nmathematical_precision: "
         "75 percent",
         {.8, N, .8, .75}},
        {"correctness: 12/10\nstep_by_step_clarity: 150%\nlogical_coherence: 3/0\nmathematical_precision: 1/1",
         {1, 1, N, 1}},
        {"correctness: 9\nstep_by_step_clarity: 8\nlogical_coherence: 10\nmathematical_precision: 1", {.9, .8, 1, .1}},
        {"correctness: 9.5\nstep_by_step_clarity: 0.8\nlogical_coherence: 1.0\nmathematical_precision: 0",
         {.95, .8, 1, 0}},
        {"correctness: 85\nstep_by_step_clarity: 9\nlogical_coherence: 0.7\nmathematical_precision: 70/100",
         {N, N, .7, .7}},
        {"correctness: **8**/10\nstep_by_step_clarity: `0.8`\nlogical_coherence: 0.333333333333333333333",
         {.8, .8, 1. / 3, N}},
    };
    expect_scores(c, COUNT_OF(c));
}

TEST(judge_reads_dress) {
    static const Case c[] = {
        {"**Correctness:** 0.8\n**Step-by-Step Clarity:** 80%\n### Logical Coherence\nScore: 0.7\n\nIt holds.\n"
         "__Mathematical precision__ = 0.6",
         {.8, .8, .7, .6}},
        {"| Criterion | Score | Why |\n|---|---|---|\n| Correctness | 0.9 | 3 of 3 |\n| step by step clarity | 8/10 | "
         "|\n"
         "| Logical Coherence | 1.0 |\n|mathematical_precision|0.5|",
         {.9, .8, 1, .5}},
        {"```json\n{\"correctness\": 0.9, \"step_by_step_clarity\": {\"score\": 0.8, \"why\": \"4 steps\"},\n"
         "\"logical_coherence\": \"0.7\", \"mathematical_precision\": 6}\n```",
         {.9, .8, .7, .6}},
        {"[{\"criterion\": \"correctness\", \"score\": 0.9}, {\"criterion\": \"logical_coherence\", \"score\": 1}]",
         {.9, N, 1, N}},
        {"Correctness (weight 0.4): 0.75\nStep-by-step clarity (0.65)\nLogical coherence (0.2): fine\nMathematical "
         "precision"
         " \xe2\x80\x93 0.8",
         {.75, .65, N, .8}},
        {"The correctness is 0.9. For step by step clarity I would give a score of 0.8.\nLogical coherence\n0.7\n"
         "Mathematical precision: the numbers are exact. Score: 1.0",
         {.9, .8, .7, 1}},
    };
    expect_scores(c, COUNT_OF(c));
}

TEST(judge_reads_what_chatty_models_write) {
    static const Case c[] = {
        {"**1. Correctness (Score: 0.9):**\nThe 3 steps are right.\n\n**2. Step-by-Step Clarity - Score: 8/10**\n"
         "**Logical Coherence: 0,7**\n- Mathematical Precision Score: 1.0",
         {.9, .8, .7, 1}},
        {"Correctness: \xe2\xad\x90\xe2\xad\x90 (2/5)\nClarity (step by step): 0.9\nlogical_coherence: **Score:** 0.6 "
         "(out of 1)\n"
         "## 4. Mathematical precision\n\n**Rating:** 90%",
         {.4, N, .6, .9}},
        {"<score>correctness: 0.5</score>; step_by_step_clarity=0.25; logical_coherence -> 0.75", {.5, .25, .75, N}},
        {"Sure! Here is my evaluation of the solution of 2024:\n\ncorrectness: 1.0. All 12 results are "
         "right.\n\nTotal: 4.0",
         {1, N, N, N}},
    };
    expect_scores(c, COUNT_OF(c));
}

TEST(judge_leaves_other_numbers_alone) {
    static const Case c[] = {
        {"correctness: the answer 42 is right\nstep_by_step_clarity: 2nd step is missing\nlogical_coherence:\n1. "
         "First\n2. Then\n"
         "mathematical_precision: -0.5",
         {N, N, N, N}},
        {"correctness: 0.0 to 1.0\nstep_by_step_clarity: 0.0-1.0\nlogical_coherence: 0-10\nmathematical_precision: 0 - "
         "wrong",
         {N, N, N, 0}},
        {"correctness: The 3 steps fit\nstep_by_step_clarity:\n3 steps are shown\nlogical_coherence is a 3 step proof\n"
         "mathematical_precision\nA 1 is missing",
         {N, N, N, N}},
        {"incorrectness: 0.9\ncorrectnesses: 0.8\nthe correctness of 3 + 4", {N, N, N, N}},
        {"mathematical_precision: fine.\n\nOverall score: 0.9\nFinal rating: 8/10", {N, N, N, N}},
        {"correctness: 1.2.3\nstep_by_step_clarity: 0.8kg\nlogical_coherence: 99999999999999999999", {N, N, N, N}},
        {"", {N, N, N, N}},
        {"correctness", {N, N, N, N}},
        {"correctness:", {N, N, N, N}},
        {"correctness: (0.9", {.9, N, N, N}},
    };
    expect_scores(c, COUNT_OF(c));
}

TEST(judge_takes_the_last_score_outside_thoughts) {
    static const Case c[] = {
        {"correctness: 0.2\nAfter another look:\ncorrectness: 0.9. The correctness matters most.", {.9, N, N, N}},
        {"<think>correctness: 0.1, logical_coherence: 0.3</think>correctness: 0.8", {.8, N, N, N}},
        {"correctness: 0.1 hm</think>\ncorrectness: 0.8", {.8, N, N, N}}, /* the prompt had opened it */
        {"correctness: 0.8\n<think>logical_coherence: 0.9", {.8, N, N, N}},
        {"<think>correctness: 0.1</think>", {N, N, N, N}},
    };
    expect_scores(c, COUNT_OF(c));
}

TEST(judge_quality_is_over_what_was_said) {
    Rubric r = rubric_default();
    Judgement j, more;
    judge_read(&j, &r, "correctness: 0.5\nlogical_coherence: 1.0");
    EXPECT(j.n_missing == 2);
    EXPECT_NEAR(j.quality, (0.4 * 0.5 + 0.2 * 1.0) / 0.6, 1e-12); /* not 0.4: what is missing is no zero */
    judge_read(&more, &r, "step_by_step_clarity: 0.8\ncorrectness: 0.1");
    judge_merge(&j, &more, &r);
    EXPECT(j.n_missing == 1 && j.score[0] == 0.5 && j.score[1] == 0.8);
    EXPECT_NEAR(j.quality, (0.4 * 0.5 + 0.2 * 0.8 + 0.2 * 1.0) / 0.8, 1e-12);
    judge_read(&j, &r, "Looks good to me.");
    EXPECT(j.n_missing == 4 && isnan(j.quality));
    judge_merge(&j, &j, &r);
    EXPECT(j.n_missing == 4 && isnan(j.quality));
}

TEST(judge_rubric_sums_to_one) {
    Rubric r = rubric_default();
    double sum = 0;
    for (int i = 0; i < r.n; i++) sum += r.criterion[i].weight;
    EXPECT_NEAR(sum, 1, 1e-12);
    EXPECT(r.n == 4 && r.threshold == 0.8 && r.low == 0.7);
}

TEST(judge_longer_names_win) {
    Rubric r = {.criterion = {{"precision", 1, "", ""}, {"precision of units", 1, "", ""}, {"tone", 1, "", ""}},
                .n = 3};
    Judgement j;
    judge_read(&j, &r, "precision: 0.1\nPrecision of units: 0.9\ntone: 0.5");
    EXPECT_NEAR(j.score[0], 0.1, 1e-12);
    EXPECT_NEAR(j.score[1], 0.9, 1e-12);
    EXPECT_NEAR(j.quality, 0.5, 1e-12);
}

TEST(prompts_say_what_they_must) {
    Rubric r = rubric_default();
    Judgement j;
    Str s = {0};
    prompt_solve(&s, "\nHow many?\n");
    EXPECT_STR(s.data, "Solve the problem step by step. Put the final answer in \\boxed{}.\n\nProblem:\nHow many?");
    str_clear(&s);
    prompt_judge(&s, &r, "How many?", "Three.");
    for (int i = 0; i < r.n; i++)
        EXPECT(strstr(s.data, r.criterion[i].name) && strstr(s.data, r.criterion[i].question));
    EXPECT(strstr(s.data, "Problem:\nHow many?") && strstr(s.data, "Solution:\nThree."));
    judge_read(&j, &r, s.data); /* a judge that repeats its prompt has said nothing */
    EXPECT(j.n_missing == r.n);
    judge_read(&j, &r, "correctness: 1\nlogical_coherence: 1");
    str_clear(&s);
    prompt_judge_again(&s, &r, &j, "How many?", "Three.");
    EXPECT(!strstr(s.data, "correctness") && !strstr(s.data, "logical_coherence"));
    EXPECT(strstr(s.data, "step_by_step_clarity") && strstr(s.data, "mathematical_precision"));
    str_clear(&s);
    prompt_improve(&s, "How many?", "Three.", "Count again.");
    EXPECT(strstr(s.data, "How many?") && strstr(s.data, "Three.") && strstr(s.data, "Count again.") &&
           strstr(s.data, "\\boxed{}"));
    str_free(&s);
}

TEST(feedback_names_what_is_low) {
    Rubric r = rubric_default();
    Judgement j;
    Str s = {0};
    const char *reply = "<think>hm</think>\ncorrectness: 0.69\nlogical_coherence: 0.7\nmathematical_precision: 0.1";
    judge_read(&j, &r, reply);
    feedback_make(&s, &r, &j, reply);
    EXPECT(strstr(s.data, r.criterion[0].advice) && strstr(s.data, r.criterion[3].advice));
    EXPECT(!strstr(s.data, r.criterion[1].advice) &&
           !strstr(s.data, r.criterion[2].advice)); /* not said; 0.7 is not low */
    EXPECT(strstr(s.data, "correctness: 0.69") && !strstr(s.data, "hm"));
    str_clear(&s);
    judge_read(&j, &r, "correctness: 0.9");
    feedback_make(&s, &r, &j, " <think>x</think>\n");
    EXPECT(strstr(s.data, "Nothing stands out") && !strstr(s.data, "judge"));
    str_free(&s);
}

TEST(judge_survives_long_nonsense) {
    static const char *const part[] = {"correctness ", "score ", "correctness: (", "\n- | : ", "{",
                                       "<think>",      "1",      "\xff\xfe"};
    Rubric r = rubric_default();
    for (int i = 0; i < COUNT_OF(part); i++) {
        Str s = {0};
        Judgement j;
        str_add(&s, "correctness: ");
        while (s.len < 500000) str_add(&s, part[i]);
        judge_read(&j, &r, s.data);
        EXPECT(j.n_missing == 4);
        str_free(&s);
    }
}
