/* test_arith_rows.c - rows of the three roles say what they should, and snug problems writes them. */
#include "reason/arith_rows.h"

#include <stdlib.h>

#include "base/file.h"
#include "reason/judge.h"
#include "tests/snug.h"
#include "tests/test.h"

static const char *content(const json_t *row, int message) {
    const json_t *m = json_array_get(json_object_get(row, "messages"), (size_t)message);
    const char *text = json_string_value(json_object_get(m, "content"));
    return text ? text : "";
}

static json_t *id_of(const json_t *row, const char *key) { return json_object_get(json_object_get(row, "id"), key); }

TEST(a_solve_row_asks_by_the_prompt_and_answers_by_the_solution) {
    Arith a = {0}, drawn = {0};
    Str asked = {0};
    for (uint64_t key = 0; key < 20; key++) {
        json_t *row = arith_row(&a, ARITH_SOLVE, key, ARITH_TRAIN, false);
        arith_draw(&drawn, key, ARITH_TRAIN);
        str_clear(&asked);
        prompt_solve(&asked, str_text(&drawn.problem));
        EXPECT_STR(content(row, 0), str_text(&asked));
        EXPECT_STR(content(row, 1), str_text(&drawn.solution));
        EXPECT(json_integer_value(id_of(row, "answer")) == drawn.answer);
        EXPECT(json_integer_value(id_of(row, "steps")) == drawn.n_steps);
        json_decref(row);
    }
    str_free(&asked);
    arith_free(&a);
    arith_free(&drawn);
}

TEST(a_judge_row_scores_right_solutions_high_and_spoiled_ones_low) {
    Arith a = {0};
    Rubric r = rubric_default();
    for (uint64_t key = 0; key < 200; key++) {
        json_t *row = arith_row(&a, ARITH_JUDGE, key, key % 3 ? ARITH_TRAIN : ARITH_HELD_OUT, false);
        const char *reply = content(row, 1), *solution = strstr(content(row, 0), "\\boxed{");
        bool right = solution && strtoll(solution + 7, NULL, 10) == a.answer;
        Judgement j;
        judge_read(&j, &r, reply);
        EXPECT(right == (key % 2 == 0) && right == json_is_true(id_of(row, "right")));
        EXPECT(j.n_missing == 0 && j.score[0] == right && (right ? j.quality >= r.threshold : j.quality < r.low));
        EXPECT((strstr(reply, "as in the solution") != NULL) == right);
        json_decref(row);
    }
    arith_free(&a);
}

TEST(an_improve_row_holds_the_mistake_the_feedback_and_the_remedy) {
    Arith a = {0};
    for (uint64_t key = 0; key < 50; key++) {
        json_t *row = arith_row(&a, ARITH_IMPROVE, key, ARITH_TRAIN, false);
        const char *asked = content(row, 0), *box = strstr(asked, "Solution:\n");
        box = box ? strstr(box, "\\boxed{") : NULL;
        EXPECT(box && strtoll(box + 7, NULL, 10) != a.answer);
        EXPECT(strstr(asked, "Feedback:\n- correctness: ") && strstr(asked, str_text(&a.problem)));
        EXPECT_STR(content(row, 1), str_text(&a.solution));
        json_decref(row);
    }
    json_t *row = arith_row(&a, ARITH_IMPROVE, 7, ARITH_TRAIN, true);
    EXPECT(json_array_size(json_object_get(row, "messages")) == 1);
    json_decref(row);
    arith_free(&a);
}

/* The line-th line of a file as JSON; gives. */
static json_t *line_of(const char *path, int line) {
    Str text = {0};
    Err e = {0};
    json_t *row = NULL;
    EXPECT_OK(file_read(path, &text, 0, &e));
    const char *at = str_text(&text);
    for (; line > 0 && at; line--) at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL;
    if (at && *at) row = json_loadb(at, strcspn(at, "\n"), 0, NULL);
    str_free(&text);
    return row;
}

TEST(problems_writes_roles_in_turn_and_replaces_nothing_unasked) {
    const char *out = test_path("rows.jsonl");
    static const char *const expected[] = {"solve", "judge", "solve", "solve", "judge", "solve", "solve"};
    Ran ran = snug_run("problems --n 7 --roles solve,judge,solve --part held-out --seed 5 --out %s", out);
    EXPECT(ran.code == 0);
    ran_free(&ran);
    for (int i = 0; i < COUNT_OF(expected); i++) {
        json_t *row = line_of(out, i);
        EXPECT_STR(json_string_value(id_of(row, "role")), expected[i]);
        if (i == 1 || i == 4) EXPECT(json_is_true(id_of(row, "right")) == (i == 1));
        json_decref(row);
    }
    EXPECT(line_of(out, 7) == NULL);
    ran = snug_run("problems --n 7 --out %s", out);
    EXPECT(ran.code == 1 && strstr(str_text(&ran.err), "--overwrite"));
    ran_free(&ran);
    ran = snug_run("problems --n 2 --roles none --out %s --overwrite", out);
    EXPECT(ran.code == 0);
    ran_free(&ran);
    json_t *row = line_of(out, 1);
    EXPECT(json_is_string(json_object_get(row, "question")) &&
           atoi(json_string_value(json_object_get(row, "answer"))) > 0);
    json_decref(row);
}

TEST(problems_names_a_role_it_does_not_know) {
    Ran ran = snug_run("problems --n 7 --roles solve,guess");
    EXPECT(ran.code == 2 && strstr(str_text(&ran.err), "'guess'") && ran.out.len == 0);
    ran_free(&ran);
    ran = snug_run("problems --n 2 --roles none --out -"); /* standard output, no file of that name */
    EXPECT(ran.code == 0 && strstr(str_text(&ran.out), "question") && !file_exists("-"));
    ran_free(&ran);
    ran = snug_run("problems --part held-out --roles solve");
    json_t *row = ran_json(&ran);
    EXPECT(ran.code == 0 && json_is_object(row)); /* one row, to look at */
    json_decref(row);
    ran_free(&ran);
}
