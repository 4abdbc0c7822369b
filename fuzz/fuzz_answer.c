/* fuzz_answer.c - what a model may write: a solution to find the answer in, two answers to compare, a judge's reply.
 *
 * A line end in the input parts two answers. An answer equals itself, whatever it is; comparing has no sides; a value
 * is finite; scores are 0 to 1, and their mean lies between them. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "fuzz/fuzz.h"
#include "reason/answer.h"
#include "reason/judge.h"

static void use_judge(const char *text) {
    Rubric r = rubric_default();
    Judgement j;
    Str s = {0};
    int missing = 0;
    judge_read(&j, &r, text);
    for (int i = 0; i < r.n; i++) {
        missing += isnan(j.score[i]);
        CHECK(isnan(j.score[i]) || (j.score[i] >= 0 && j.score[i] <= 1));
    }
    CHECK(missing == j.n_missing && isnan(j.quality) == (missing == r.n));
    CHECK(isnan(j.quality) || (j.quality >= 0 && j.quality <= 1 + 1e-12));
    feedback_make(&s, &r, &j, text);
    str_free(&s);
}

static void use_answers(const char *a, const char *b) {
    double v = 0;
    bool same = answer_same(a, b);
    CHECK(same == answer_same(b, a));
    CHECK(!answer_value(&v, a) || isfinite(v));
}

/* The factor: two answers in plain notation, squashed, and cut into parts at every level. */
FUZZ(answer, 1 * MIB, 64) {
    char *text = mem_alloc(size + 1);
    Str found = {0}, box = {0}, again = {0};
    if (size) memcpy(text, data, (size_t)size);
    AnswerFrom from = answer_find(&found, text);
    CHECK((from == ANSWER_NONE) == (found.len == 0));
    if (from == ANSWER_BOX) { /* what was in a box is found again in one */
        str_addf(&box, "\\boxed{%s}", found.data);
        CHECK(answer_find(&again, box.data) == ANSWER_BOX);
    }
    str_clear(&again);
    answer_strip_marks(&again, text);
    use_judge(text);
    char *end = strchr(text, '\n');
    if (end) *end = 0;
    use_answers(text, end ? end + 1 : str_text(&found));
    str_free(&found);
    str_free(&box);
    str_free(&again);
    mem_free(text);
}
