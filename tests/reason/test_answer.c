/* test_answer.c - final answers found in solutions, and compared: by hand, against sympy's verdicts
 * (tools/make_answer_pairs.py), on real problems, and on text that means harm. */
#include "base/mem.h"
#include "data/rows.h"
#include "reason/answer.h"
#include "tests/test.h"

/* ---- finding ---- */

typedef struct Found {
    AnswerFrom from;
    const char *answer, *solution;
} Found;

static void expect_found(const Found *c, int n) {
    for (int i = 0; i < n; i++) {
        Str out = {0};
        AnswerFrom from = answer_find(&out, c[i].solution);
        if (!EXPECT(from == c[i].from && !strcmp(str_text(&out), c[i].answer)))
            test_note("    found \"%s\" (%d), not \"%s\" (%d), in: %.200s", str_text(&out), from, c[i].answer,
                      c[i].from, c[i].solution);
        str_free(&out);
    }
}

TEST(answer_is_in_the_last_box) {
    static const Found c[] = {
        {ANSWER_BOX, "42", "So the answer is \\boxed{42}."},
        {ANSWER_BOX, "\\frac{1}{2}", "\\boxed{\\frac{1}{2}}"}, /* braces nest */
        {ANSWER_BOX, "\\sqrt{\\frac{a^{2}}{b_{1}}}", "Thus $\\boxed{\\sqrt{\\frac{a^{2}}{b_{1}}}}$"},
        {ANSWER_BOX, "7",
         "First \\boxed{3}, but no: \\boxed{7}. The answer is 9"}, /* the last, and before any sentence */
        {ANSWER_BOX, "7", "\\boxed{7} and an unfinished \\boxed{8"},
        {ANSWER_BOX, "8", "unfinished \\boxed{7 and then \\boxed{8}"},
        {ANSWER_BOX, "7", "\\boxed{7}. Put it in \\boxed{} or \\boxed{ }."},
        {ANSWER_BOX, "5", "\\boxed{\\boxed{5}}"},
        {ANSWER_BOX, "1, \\boxed{2}", "\\boxed{1, \\boxed{2}}"},
        {ANSWER_BOX, "\\{1, 2\\}", "\\boxed{\\{1, 2\\}}"},
        {ANSWER_BOX, "\\{1", "\\boxed{\\{1} and }"},
        {ANSWER_BOX, "12", "\\fbox{12}"},
        {ANSWER_BOX, "12", "\\boxed 12."},
        {ANSWER_BOX, "12", "$\\boxed 12$ apples"},
        {ANSWER_BOX, "\\frac{1}{2 a}", "{$\\boxed \\frac{1}{2 a}$}"},
        {ANSWER_BOX, "3", "\\boxed{3} and an unfinished \\boxed \\frac{1"},
        {ANSWER_BOX, "x", "\\boxed {x}"},
        {ANSWER_BOX, "3", "} } \\boxed{3}"},
    };
    expect_found(c, COUNT_OF(c));
}

TEST(answer_is_in_hashes_sentences_lines) {
    static const Found c[] = {
        {ANSWER_HASHES, "1,080", "She makes <<9*120=1080>>1080.\n#### 1,080"},
        {ANSWER_HASHES, "18", "#### 17\nno\n####18\n####\n"},
        {ANSWER_PHRASE, "18 dollars", "The final answer is 18 dollars.\nThat was easy"},
        {ANSWER_PHRASE, "$18$", "**Answer:** $18$\n"},
        {ANSWER_PHRASE, "18", "**Final answer**: 18"},
        {ANSWER_PHRASE, "$$18$$", "The answer is:\n\n$$18$$\n"},
        {ANSWER_PHRASE, "3.5", "The result is 3.5. Done"},
        {ANSWER_PHRASE, "5", "The answer is 4. Wait, one more. The answer is 5"},
        {ANSWER_PHRASE, "18", "Therefore, she makes 18 dollars every day."},
        {ANSWER_PHRASE, "-3", "Thus it is -3 degrees."},
        {ANSWER_PHRASE, "8 apples", "so he has 5 + 3 = 8 apples.\nNice."},
        {ANSWER_PHRASE, "\\frac{1}{2}", "Therefore $x = \\frac{1}{2}$ holds."},
        {ANSWER_PHRASE, "\\frac34\\pi", "Thus the area is $\\frac34\\pi$."},
        {ANSWER_LINE, "It is 12", "Let us see\nIt is 12.\n---\n\n"},
        {ANSWER_LINE, "He is solo 5 = 5", "He is solo 5 = 5"}, /* no "so" */
        {ANSWER_NONE, "", ""},
        {ANSWER_NONE, "", " \n\t** \n"},
    };
    expect_found(c, COUNT_OF(c));
}

TEST(answer_is_not_in_thoughts_while_more_is_said) {
    static const Found c[] = {
        {ANSWER_BOX, "2", "<think>maybe \\boxed{1}</think>\\boxed{2}"},
        {ANSWER_PHRASE, "2", "<think>maybe \\boxed{1}</think>\nThe answer is 2."},
        {ANSWER_PHRASE, "2", "maybe \\boxed{1}</think>\nThe answer is 2."}, /* the prompt had opened it */
        {ANSWER_BOX, "1", "<think>so \\boxed{1}</think>\n"},
        {ANSWER_BOX, "1", "<think>so \\boxed{1} and on and on"},
        {ANSWER_BOX, "1", "\\boxed{1} then \\boxed{2</think>3}</think>"}, /* no box reaches out of a thought */
        {ANSWER_BOX, "5", "\\boxed 5</think>"},
    };
    expect_found(c, COUNT_OF(c));
}

TEST(answer_marks_and_thoughts_are_stripped) {
    Str s = {0};
    answer_strip_marks(&s, "<think>\nOne.\n</think>\nTwo. <b>\n");
    EXPECT_STR(str_text(&s), "One.\n\nTwo. <b>");
    str_clear(&s);
    answer_strip_thoughts(&s, "a<think>b</think>c<think>d");
    EXPECT_STR(str_text(&s), "ac");
    str_clear(&s);
    str_add(&s, "kept ");
    answer_strip_thoughts(&s, "b</think>c");
    EXPECT_STR(str_text(&s), "kept c");
    str_free(&s);
}

/* ---- comparing ---- */

typedef struct Pair {
    const char *a, *b;
} Pair;

static void expect_pairs(const Pair *p, int n, bool same) {
    for (int i = 0; i < n; i++)
        if (!EXPECT(answer_same(p[i].a, p[i].b) == same) | !EXPECT(answer_same(p[i].b, p[i].a) == same))
            test_note("    \"%s\" and \"%s\" should %sbe the same", p[i].a, p[i].b, same ? "" : "not ");
}

TEST(answers_that_are_the_same) {
    static const Pair p[] = {
        {"$1,000.00", "1000"},
        {"\\$18", "18 dollars"},
        {"18 dollars per day", "18"},
        {"12:30 p.m.", "12:30 PM"},
        {"\\begin{pmatrix} 1 & 0.5 \\\\ 3 & 4 \\end{pmatrix}", "\\begin{bmatrix}1 & 1/2\\\\3 & 4\\end{bmatrix}"},
        {"3 cups of flour", "3"},
        {"5.", "5"},
        {".5", "0.50"},
        {"+5", "5"},
        {"\\text{ 5 }", "5"},
        {"**5**", "5"},
        {"5 hours", "5 hour"},
        {"7 (apples)", "7"},
        {"864 \\mbox{ inches}^2", "864"},
        {"15\\text{ cm}^2", "15 cm\xc2\xb2"},
        {"45^\\circ", "45"},
        {"45\xc2\xb0", "45^{\\circ}"},
        {"x = 5", "5"},
        {"x=5", "x = 5.0"},
        {"f(2) = 5", "5"},
        {"10{,}077{,}696", "10077696"},
        {"11,\\! 111,\\! 111,\\! 100", "11111111100"},
        {"10\\,000", "10000"},
        {"\\frac12", "0.5"},
        {"\\dfrac{1}{2}", "1/2"},
        {"1\\frac{1}{2}", "3/2"},
        {"1 1/2", "1.5"},
        {"-1 1/2", "-\\frac32"},
        {"-\\frac{1}{2}", "\\frac{-1}{2}"},
        {"\xe2\x88\x92"
         "5",
         "-5"},
        {"50\\%", "0.5"},
        {"50\\%", "50"},
        {"50 percent", "50%"},
        {"2^{10}", "1024"},
        {"\\sqrt{8}", "2\\sqrt{2}"},
        {"\\sqrt[3]{27}", "3"},
        {"2\\pi", "\\pi\\cdot 2"},
        {"5!", "120"},
        {"\\binom{5}{2}", "10"},
        {"1.5 \\times 10^3", "1500"},
        {"1.5e3", "1500"},
        {"3 x 4", "12"},
        {"0.\\overline{3}", "1/3"},
        {"\\frac{\\sqrt{3}}{3}", "\\frac{1}{\\sqrt{3}}"},
        {"\\log_2 8", "3"},
        {"\\sqrt{101}-10", "\\frac{1}{\\sqrt{101}+10}"},
        {"p - q", "-q+p"},
        {"x^2+2x+1", "(x+1)^2"},
        {"y = 2x+3", "2x + 3"},
        {"y=2x", "2x - y = 0"},
        {"6 - 5i", "-5i + 6"},
        {"\\frac{x}{2}", "0.5x"},
        {"x_1 + x_2", "x_{2}+x_1"},
        {"1,2", "2, 1"},
        {"\\{1,2\\}", "2 and 1"},
        {"(1, 2)", "(1.0,2)"},
        {"\\left( 3, \\frac{\\pi}{2} \\right)", "(3,\\pi/2)"},
        {"[0, 1/2)", "[0,0.5)"},
        {"x \\in [-2,7]", "[-2,7]"},
        {"x=1 \\text{ or } x=2", "2, 1"},
        {"3 \\pm \\sqrt{2}", "3+\\sqrt2, 3-\\sqrt2"},
        {"\\left\\{1, 2\\right\\}", "{2,1}"},
        {"(-\\infty, 2) \\cup (3, \\infty)", "(3,\xe2\x88\x9e)\\cup(-\\infty,2)"},
        {"(\\frac12, 1)", "(0.5, 1)"},
        {"\\begin{pmatrix} 1/2 \\\\ 2 \\end{pmatrix}", "\\begin{bmatrix}0.5\\\\2\\end{bmatrix}"},
        {"52_8", "52_{8}"},
        {"(B)", "B"},
        {"\\text{(B)}", "b."},
        {"B) 21", "B"},
        {"B) 21", "21"},
        {"option B", "B) 21 and 22"},
        {"Evelyn", "\\text{evelyn}"},
    };
    expect_pairs(p, COUNT_OF(p), true);
}

TEST(answers_that_are_not_the_same) {
    static const Pair p[] = {
        {"", ""},
        {"5", ""},
        {"5", "6"},
        {"5", "-5"},
        {"50%", "5"},
        {"5 cm", "5 m"},
        {"5 million", "5"},
        {"5 or 6", "5"},
        {"2x", "2"},
        {"2xy", "2"},
        {"2 dozen", "2"},
        {"x=5", "y=5"},
        {"x-y=5", "5"},
        {"52_8", "52"},
        {"0.333", "1/3"},
        {"123456789012345678", "123456789012345679"},
        {"31381059609", "31381059609\\frac{1}{1000}"},
        {"x = 1614433", "x = 1614434"},
        {"(1,2)", "(2,1)"},
        {"(1,2]", "(1,2)"},
        {"[1,2]", "(1,2)"},
        {"1,2", "1,2,3"},
        {"1,1,2", "1,2,2"},
        {"\\sqrt{x^2} + 1", "x + 1"},
        {"\\begin{pmatrix} 1 & 2 \\\\ 3 & 4 \\end{pmatrix}", "\\begin{pmatrix} 1 \\\\ 2 \\\\ 3 \\\\ 4 \\end{pmatrix}"},
        {"9:30 am", "9:30 pm"},
        {"x+1", "x+2"},
        {"y=2x", "y=2x+1"},
        {"p-q", "q-p"},
        {"no", "on"},
        {"\\text{even}", "odd"},
        {"six", "6"},
        {"1/0", "2/0"},
        {"B) 21", "C"},
        {"B) 21", "C) 21"},
        {"B) 21", "22"},
        {"B", "C"},
        {"(A, B)", "A"},
        {"\\frac{1}{2}", "\\frac{2}{1}"},
        {"3:2", "2:3"},
        {"\\{", "\\}"},
        {"x", "2"},
        {"2 sin(x)", "2"},
        {"10,00", "1000"},
    };
    expect_pairs(p, COUNT_OF(p), false);
}

TEST(answer_values) {
    static const struct {
        const char *text;
        double value;
    } c[] = {
        {"5", 5},
        {"-3.25", -3.25},
        {"1,234,567.5", 1234567.5},
        {"50%", .5},
        {"$\\frac{3}{4}$", .75},
        {"2 3/4", 2.75},
        {"2^{-1}", .5},
        {"\\sqrt2", 1.4142135623730951},
        {"\\frac{\\pi}{2}", 1.5707963267948966},
        {"3(4+1)", 15},
        {"-2^2", -4},
        {"12 cm", 12},
        {"x = 3 + 4 = 7", 7},
        {"e^2", 7.38905609893065},
        {"\\sin(\\pi/6)", .5},
        {"\\ln e", 1},
        {"2\\cdot3\\cdot(4)", 24},
    };
    static const char *const none[] = {"",        "x",    "2x",  "five",     "1,2",         "(1,2)",  "1/0",
                                       "\\infty", "1..2", "2 2", "((((1",    "1)",          "5 or 6", "\\frac{1}",
                                       "\\sqrt",  "^2",   "--",  "3 \\pm 1", "10^{10^{10}}"};
    double v;
    for (int i = 0; i < COUNT_OF(c); i++) {
        v = NAN;
        if (!EXPECT(answer_value(&v, c[i].text) && fabs(v - c[i].value) <= 1e-12 * fabs(c[i].value)))
            test_note("    %s: %g", c[i].text, v);
    }
    for (int i = 0; i < COUNT_OF(none); i++)
        if (!EXPECT(!answer_value(&v, none[i]))) test_note("    %s: %g", none[i], v);
}

TEST(answers_agree_with_sympy) {
    RowReader r;
    json_t *row;
    Err e;
    int64_t n = 0, same = 0;
    bool ok = dataset_reader_open(&r, "tests/reason/answer_pairs.jsonl", &e);
    EXPECT_OK(ok);
    while (ok && (ok = dataset_reader_next(&r, &row, &e)) && row) {
        const char *a = json_string_value(json_object_get(row, "a")), *b = json_string_value(json_object_get(row, "b"));
        bool want = json_is_true(json_object_get(row, "same"));
        expect_pairs(&(Pair){a, b}, 1, want);
        same += want;
        n++;
        json_decref(row);
    }
    dataset_reader_close(&r);
    EXPECT(n == 400 && same == 209);
}

/* Every answer of a real set survives being put in a box, and means the same only as those that it should. */
TEST(answers_of_math500) {
    const char *path = test_assets("math500/math500.jsonl");
    RowReader r;
    json_t *row;
    Err e;
    char *answer[600];
    int n = 0, values = 0, pairs = 0;
    double v;
    if (!path) return;
    bool ok = dataset_reader_open(&r, path, &e);
    EXPECT_OK(ok);
    while (ok && n < 600 && (ok = dataset_reader_next(&r, &row, &e)) && row) {
        answer[n++] = mem_strdup(json_string_value(json_object_get(row, "answer")));
        json_decref(row);
    }
    dataset_reader_close(&r);
    for (int i = 0; i < n; i++) {
        Str text = {0}, out = {0};
        str_addf(&text, "First \\boxed{0}. Hence $\\boxed{%s}$, {as} was to be shown.", answer[i]);
        EXPECT(answer_find(&out, text.data) == ANSWER_BOX);
        EXPECT_STR(str_text(&out), answer[i]);
        EXPECT(answer_same(answer[i], str_text(&out)));
        values += answer_value(&v, answer[i]);
        for (int k = 0; k < i && !test_brief(); k++)
            pairs += strcmp(answer[i], answer[k]) != 0 && answer_same(answer[i], answer[k]);
        str_free(&text);
        str_free(&out);
    }
    if (!EXPECT(n == 500 && values == 429 && (test_brief() || pairs == 32)))
        test_note("    %d answers, %d are numbers, %d pairs with another spelling are the same", n, values, pairs);
    for (int i = 0; i < n; i++) mem_free(answer[i]);
}

/* ---- harm ---- */

TEST(answers_survive_harm) {
    static const char *const part[] = {"{",        "}",       "(",    "\\boxed{", "\\boxed",  "\\text{",    "\\frac",
                                       "\\sqrt[",  "\\sqrt",  "-",    "sin",      "x=",       "\\in",       "(B) ",
                                       "1,",       "\\cup",   "\\pm", "<think>",  "</think>", "answer is ", "answer:\n",
                                       "so = ",    "#### \n", "\xff", "\xe2\x82", "\\",       "^",          "!",
                                       "%",        "$",       "0.",   "x_{",      "\n",       "1 ",         "[[1,2],",
                                       "\\begin{", "a ) "};
    for (int i = 0; i < COUNT_OF(part); i++)
        for (int64_t most = 20000; most < 300000; most *= 10) { /* below and above what is compared as more than text */
            Str s = {0}, t = {0}, out = {0};
            double v;
            while (s.len < most) str_add(&s, part[i]);
            str_add(&t, s.data);
            str_add(&t, "7");
            answer_find(&out, s.data);
            answer_strip_marks(&out, t.data);
            answer_strip_thoughts(&out, t.data);
            answer_value(&v, s.data);
            EXPECT(!answer_same(s.data, "12345") && !answer_same("x^2", t.data));
            EXPECT(answer_same(t.data, t.data));
            answer_same(s.data, t.data);
            str_free(&s);
            str_free(&t);
            str_free(&out);
        }
}
