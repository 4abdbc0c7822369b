/* test_problems.c - every layout of rows, selections, shuffles, ranks; real files where they are there. */
#include <stdlib.h>

#include "base/file.h"
#include "base/mem.h"
#include "reason/answer.h"
#include "reason/problems.h"
#include "tests/test.h"

static const char *write_rows(const char *text) {
    static char path[300];
    Err e;
    snprintf(path, sizeof path, "%s/rows.jsonl", test_tmp());
    EXPECT_OK(file_write_all(path, text, (int64_t)strlen(text), &e));
    return path;
}

typedef struct Row {
    const char *layout, *row, *problem, *reference;
} Row;

static const Row known[] = {
    {"gsm8k", "{\"question\": \" How many? \", \"answer\": \"3*360 = <<3*360=1080>>1080\\n#### 1,080\"}", "How many?",
     "1,080"},
    {"math",
     "{\"problem\": \"P\", \"solution\": \"So \\\\boxed{1}, no: $\\\\boxed{\\\\frac{1}{2}}$.\", \"level\": \"5\"}", "P",
     "\\frac{1}{2}"},
    {"math", "{\"problem\": \"P\", \"answer\": \"\\\\left(3, 4\\\\right)\"}", "P", "\\left(3, 4\\right)"},
    {"asdiv",
     "{\"body\": \"Seven red apples and two green apples are in the basket.\", \"question\": \"How many apples?\","
     " \"answer\": \"9 (apples)\"}",
     "Seven red apples and two green apples are in the basket. How many apples?", "9"},
    {"aqua",
     "{\"question\": \"Which?\", \"options\": [\"A)21\", \"B) 21.5\", \"C)22\"], \"rationale\": \"r\", \"correct\": "
     "\"B\"}",
     "Which?\n\nOptions:\nA) 21\nB) 21.5\nC) 22", "B) 21.5"},
    {"math_qa",
     "{\"Problem\": \"which ?\", \"Rationale\": \"r\", \"options\": \"a ) 38 , b ) 27.675 , c ) rs . 400 , d ) none of "
     "these\","
     " \"correct\": \"c\"}",
     "which ?\n\nOptions:\nA) 38\nB) 27.675\nC) rs . 400\nD) none of these", "C) rs . 400"},
    {"numina_math", "{\"problem\": \"P\", \"solution\": \"\\\\boxed{4}\", \"answer\": \"5\", \"source\": \"x\"}", "P",
     "5"},
    {"numina_math", "{\"problem\": \"P\", \"solution\": \"By induction.\", \"answer\": \"proof\", \"source\": \"x\"}",
     "P", ""},
};

TEST(problems_of_every_layout) {
    for (int i = 0; i < COUNT_OF(known); i++)
        for (int told = 0; told < 2; told++) { /* told the layout, and finding it out */
            Problems p;
            Err e = {0};
            ProblemQuery q = {.path = write_rows(known[i].row), .layout = told ? known[i].layout : NULL, .count = -1};
            bool ok = problems_read(&p, &q, &e);
            EXPECT_OK(ok);
            if (!ok) continue;
            EXPECT(p.n == 1 && p.first == 0);
            EXPECT_STR(p.item[0].text, known[i].problem);
            EXPECT_STR(p.item[0].reference, known[i].reference);
            json_t *row = json_loads(known[i].row, 0, NULL);
            EXPECT(json_equal(row, p.item[0].original));
            json_decref(row);
            problems_free(&p);
        }
}

TEST(problems_kept_as_prompts_are_told_by_their_fields) {
    const char *row =
        "{\"answer\": \"\\\\left( 3, \\\\frac{\\\\pi}{2} \\\\right)\", \"prompt\": \"Convert (0,3).\"}";
    Problems p;
    Err e;
    ProblemQuery q = {.path = write_rows(row), .count = -1};
    EXPECT_OK(problems_read(&p, &q, &e));
    EXPECT_STR(p.item[0].text, "Convert (0,3).");
    EXPECT_STR(p.item[0].reference, "\\left( 3, \\frac{\\pi}{2} \\right)");
    problems_free(&p);
}

TEST(problems_with_choices_are_answered_by_letter_or_value) {
    Problems p;
    Err e;
    ProblemQuery q = {.path = write_rows(known[5].row), .count = -1};
    EXPECT_OK(problems_read(&p, &q, &e));
    EXPECT(answer_same("c", p.item[0].reference) && answer_same("(C)", p.item[0].reference));
    EXPECT(!answer_same("b", p.item[0].reference) && !answer_same("38", p.item[0].reference));
    problems_free(&p);
}

TEST(problems_with_fields_of_their_own) {
    const char *rows = "{\"q\": \"One?\", \"a\": 1}\n{\"q\": \"Two?\", \"a\": 2.5}\n{\"q\": \"Three?\"}\n";
    Problems p;
    Err e;
    ProblemQuery q = {.path = write_rows(rows), .problem_field = "q", .answer_field = "a", .count = -1};
    EXPECT_OK(problems_read(&p, &q, &e));
    EXPECT(p.n == 3);
    EXPECT_STR(p.item[0].reference, "1");
    EXPECT_STR(p.item[1].reference, "2.5");
    EXPECT_STR(p.item[2].reference, "");
    EXPECT_STR(p.item[2].text, "Three?");
    problems_free(&p);
    q.answer_field = NULL; /* no reference at all */
    EXPECT_OK(problems_read(&p, &q, &e));
    EXPECT_STR(p.item[0].reference, "");
    problems_free(&p);
}

TEST(problems_that_are_refused) {
    static const struct {
        const char *rows, *says;
        ProblemQuery q;
    } c[] = {
        {"{\"foo\": 1}", "the row has: foo", {.count = -1}},
        {"{\"question\": \"a\", \"answer\": \"1\"}\n{\"answer\": \"1\"}", ":2: field 'question'", {.count = -1}},
        {"{\"question\": \"  \", \"answer\": \"1\"}", "missing or empty", {.count = -1}},
        {"{\"question\": [1], \"answer\": \"1\"}", "must be text", {.count = -1}},
        {"{\"question\": \"a\\u0000b\", \"answer\": \"1\"}", "zero byte", {.count = -1}},
        {"{\"question\": \"a\", \"answer\": \"1\"}", "none from number 1", {.count = -1, .start = 1}},
        {"{\"question\": \"a\", \"answer\": \"1\"}", "rank 2 of 2", {.count = -1, .rank = 2, .ranks = 2}},
        {"{\"question\": \"a\", \"answer\": \"1\"}", "cannot be selected", {.count = -2}},
        {"{\"question\": \"a\", \"answer\": \"1\"}", "named for the answer", {.count = -1, .answer_field = "b"}},
        {"{\"question\": \"a\", \"answer\": \"1\"}", "Did you mean gsm8k", {.count = -1, .layout = "gsm8"}},
        {"{\"question\": \"a\", \"answer\": \"1\"}", "field with the problem", {.count = -1, .layout = "math"}},
        {"{\"question\": \"a\"", "is not JSON", {.count = -1}},
        {NULL, "read from a file", {.count = -1, .layout = "gsm8k"}},
        {NULL, "There are: gsm8k, ", {.count = -1, .layout = "something else entirely"}},
    };
    for (int i = 0; i < COUNT_OF(c); i++) {
        Problems p;
        Err e = {0};
        ProblemQuery q = c[i].q;
        if (c[i].rows) q.path = write_rows(c[i].rows);
        EXPECT(!problems_read(&p, &q, &e) && !p.item);
        if (!EXPECT(strstr(e.text, c[i].says))) test_note("    \"%s\" is not in: %s", c[i].says, e.text);
    }
}

/* ---- selections ---- */

static const char *numbered(int n) {
    Str s = {0};
    for (int i = 0; i < n; i++) str_addf(&s, "{\"question\": \"%d\", \"answer\": \"#### %d\"}\n", i, i);
    const char *path = write_rows(s.data);
    str_free(&s);
    return path;
}

static int number_of(const Problems *p, int64_t i) { return atoi(p->item[i].text); }

TEST(problems_from_start_count) {
    Problems p;
    Err e;
    ProblemQuery q = {.path = numbered(10), .start = 3, .count = 4};
    EXPECT_OK(problems_read(&p, &q, &e));
    EXPECT(p.n == 4 && number_of(&p, 0) == 3 && number_of(&p, 3) == 6);
    problems_free(&p);
    q.count = 100;
    EXPECT_OK(problems_read(&p, &q, &e));
    EXPECT(p.n == 7 && number_of(&p, 6) == 9);
    problems_free(&p);
}

TEST(problems_shuffled_by_the_seed_alone) {
    Problems p, again, other;
    Err e;
    ProblemQuery q = {.path = numbered(50), .count = -1, .shuffle = true, .seed = 42};
    bool seen[50] = {0};
    int moved = 0, differ = 0;
    EXPECT_OK(problems_read(&p, &q, &e));
    EXPECT_OK(problems_read(&again, &q, &e));
    q.seed = 43;
    EXPECT_OK(problems_read(&other, &q, &e));
    for (int i = 0; i < 50; i++) {
        int k = number_of(&p, i);
        EXPECT(!seen[k] && k == number_of(&again, i));
        seen[k] = true;
        moved += k != i;
        differ += k != number_of(&other, i);
    }
    EXPECT(moved > 30 && differ > 30 && p.hash == again.hash && p.hash != other.hash);
    problems_free(&again);
    q.seed = 42; /* start and count are after the shuffle */
    q.start = 7;
    q.count = 5;
    EXPECT_OK(problems_read(&again, &q, &e));
    for (int i = 0; i < 5; i++) EXPECT(number_of(&again, i) == number_of(&p, 7 + i));
    EXPECT(again.hash != p.hash);
    problems_free(&p);
    problems_free(&again);
    problems_free(&other);
}

TEST(problems_of_ranks_are_the_whole) {
    static const int expect_n[3][4] = {{3, 3, 2, 2}, {1, 1, 0, 0}, {10, 0, 0, 0}};
    static const int count[] = {10, 2, 10}, ranks[] = {4, 4, 1};
    for (int c = 0; c < 3; c++)
        for (int from_file = 0; from_file < 2; from_file++) {
            Problems whole, p;
            Err e;
            ProblemQuery q = {
                .path = from_file ? numbered(30) : NULL, .start = 2, .count = count[c], .shuffle = true, .seed = 5};
            int64_t next = 0;
            EXPECT_OK(problems_read(&whole, &q, &e));
            q.ranks = ranks[c];
            for (q.rank = 0; q.rank < q.ranks; q.rank++) {
                EXPECT_OK(problems_read(&p, &q, &e));
                EXPECT(p.n == expect_n[c][q.rank] && p.first == next && p.hash == whole.hash);
                for (int64_t i = 0; i < p.n; i++) EXPECT_STR(p.item[i].text, whole.item[next + i].text);
                next += p.n;
                problems_free(&p);
            }
            EXPECT(next == whole.n);
            problems_free(&whole);
        }
}

TEST(problems_hash_sees_every_text) {
    static const char *const rows[] = {
        "{\"question\": \"ab\", \"answer\": \"#### 1\"}\n{\"question\": \"c\", \"answer\": \"#### 2\"}",
        "{\"question\": \"c\", \"answer\": \"#### 2\"}\n{\"question\": \"ab\", \"answer\": \"#### 1\"}",
        "{\"question\": \"a\", \"answer\": \"#### b1\"}\n{\"question\": \"c\", \"answer\": \"#### 2\"}",
        "{\"question\": \"ab\", \"answer\": \"#### 1\"}\n{\"question\": \"c\", \"answer\": \"#### 3\"}",
        "{\"question\": \"ab\", \"answer\": \"#### 1\"}",
    };
    uint64_t hash[COUNT_OF(rows)];
    for (int i = 0; i < COUNT_OF(rows); i++) {
        Problems p;
        Err e;
        EXPECT_OK(problems_read(&p, &(ProblemQuery){.path = write_rows(rows[i]), .count = -1}, &e));
        hash[i] = p.hash;
        for (int k = 0; k < i; k++) EXPECT(hash[i] != hash[k]);
        problems_free(&p);
    }
}

TEST(problems_generated) {
    Problems p, later;
    Err e;
    ProblemQuery q = {.count = -1, .seed = 1};
    EXPECT_OK(problems_read(&p, &q, &e));
    EXPECT(p.n == 100);
    for (int64_t i = 0; i < p.n; i++) {
        Str found = {0};
        const char *solution = json_string_value(json_object_get(p.item[i].original, "answer"));
        EXPECT(solution && answer_find(&found, solution) == ANSWER_BOX &&
               answer_same(str_text(&found), p.item[i].reference));
        str_free(&found);
    }
    q.layout = "arithmetic";
    q.start = 90;
    q.count = 20;
    EXPECT_OK(problems_read(&later, &q, &e));
    EXPECT(later.n == 20);
    for (int i = 0; i < 10; i++) EXPECT_STR(later.item[i].text, p.item[90 + i].text);
    problems_free(&p);
    problems_free(&later);
}

TEST(layouts_by_key_and_alias) {
    int n;
    Err e;
    const Layout *all = layouts(&n);
    EXPECT(n == 7);
    for (int i = 0; i < n; i++) EXPECT(layout_find(all[i].key, &e) == &all[i]);
    EXPECT_STR(layout_find("Math-QA", &e)->key, "math_qa");
    EXPECT_STR(layout_find("mathqa", &e)->key, "math_qa");
    EXPECT_STR(layout_find("numina", &e)->key, "numina_math");
    EXPECT(!layout_find("", &e) && !layout_find(",", &e));
}

/* ---- real files ---- */

/* Every reference is a number, found behind ####, and a solution that ends with it in a box is right. */
static void expect_gsm8k(const char *path, int64_t rows) {
    Problems p;
    Err e = {0};
    int64_t numbers = 0, boxed = 0;
    double v = 0;
    bool ok = problems_read(&p, &(ProblemQuery){.path = path, .count = -1}, &e);
    EXPECT_OK(ok);
    if (!ok) return;
    for (int64_t i = 0; i < p.n; i++) {
        Str text = {0}, found = {0};
        numbers += answer_value(&v, p.item[i].reference);
        str_addf(&text, "It is \\boxed{%.0f}.", v);
        answer_find(&found, text.data);
        boxed += v != floor(v) || answer_same(str_text(&found), p.item[i].reference);
        str_free(&text);
        str_free(&found);
    }
    if (!EXPECT(p.n == rows && numbers == rows && boxed == rows))
        test_note("    %s: %lld rows, %lld references are numbers, %lld found in a box", path, (long long)p.n,
                  (long long)numbers, (long long)boxed);
    problems_free(&p);
}

TEST(problems_of_gsm8k) {
    static const struct {
        const char *name;
        int64_t rows;
    } c[] = {{"gsm8k/test.jsonl", 1319}, {"gsm8k/train.jsonl", 7473}};
    for (int i = 0; i < COUNT_OF(c); i++) {
        const char *path = test_assets(c[i].name);
        if (!path) return;
        expect_gsm8k(path, c[i].rows);
    }
}
