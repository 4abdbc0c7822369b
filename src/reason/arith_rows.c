/* arith_rows.c - what each role is asked and should say about an arithmetic problem, by the prompts every model gets.
 *
 * A judge that sees a solution for the first time cannot know whether it is right without doing the sums, so the reply
 * it learns does them first: its own steps, a comparison, then the scores, which follow from what the mistake was. */
#include "reason/arith_rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "reason/judge.h"

enum { SAID = 4 }; /* criteria of rubric_default that are scored here, in its order */

static const double right_scores[SAID] = {1, 1, 1, 1};
static const struct {
    double score[SAID]; /* correctness, clarity, coherence, precision */
    const char *says;
} mistakes[ARITH_MISTAKES] = {
    [ARITH_SLIP] = {{0, 0.9, 0.9, 0.2}, "is miscalculated"},
    [ARITH_WRONG_OP] = {{0, 0.9, 0.2, 0.5}, "is the wrong operation"},
    [ARITH_LEFT_OUT] = {{0, 0.2, 0.3, 0.9}, "is left out"},
    [ARITH_MISREAD] = {{0, 0.9, 0.5, 0.3}, "has a wrong number"},
};

static const double *add_verdict(Str *out, const Arith *a, const char *solution, const ArithFault *fault) {
    const char *said = strstr(solution, "\\boxed{") + 7;
    str_addf(out, "The answer is %lld, ", (long long)a->answer);
    if (!fault) {
        str_add(out, "as in the solution.");
        return right_scores;
    }
    str_addf(out, "not %ld. Step %d %s.", strtol(said, NULL, 10), fault->step + 1, mistakes[fault->mistake].says);
    return mistakes[fault->mistake].score;
}

/* What a judge should say about a solution; fault NULL: it is right. */
static void judge_reply(Str *out, Judgement *j, const Rubric *r, const Arith *a, const char *solution,
                        const ArithFault *fault) {
    const char *steps = str_text(&a->solution), *end = strstr(steps, "The answer");
    str_add_bytes(out, steps, end - steps);
    const double *score = add_verdict(out, a, solution, fault);
    *j = (Judgement){0};
    for (int i = 0; i < r->n; i++) j->score[i] = i < SAID ? score[i] : NAN;
    for (int i = 0; i < SAID; i++) str_addf(out, "\n%s: %.1f", r->criterion[i].name, score[i]);
    judge_merge(j, j, r);
}

static json_t *message(const char *role, const Str *text) {
    return json_pack("{s:s, s:s}", "role", role, "content", str_text(text));
}

static json_t *conversation(const Arith *a, ArithRole role, bool right, const Str *asked, const Str *reply,
                            bool prompt_only) {
    static const char *const names[] = {"solve", "judge", "improve"};
    json_t *messages = json_array();
    json_array_append_new(messages, message("user", asked));
    if (!prompt_only) json_array_append_new(messages, message("assistant", reply));
    return json_pack("{s:o, s:{s:s, s:i, s:I, s:b}}", "messages", messages, "id", "role", names[role], "steps",
                     a->n_steps, "answer", (json_int_t)a->answer, "right", (int)right);
}

json_t *arith_row(Arith *scratch, ArithRole role, uint64_t key, ArithPart part, bool prompt_only) {
    Arith *a = scratch;
    arith_draw(a, key, part);
    const char *problem = str_text(&a->problem);
    if (role == ARITH_BARE)
        return json_pack("{s:s, s:o}", "question", problem, "answer", json_sprintf("%lld", (long long)a->answer));

    Rubric r = rubric_default();
    Str solution = {0}, reply = {0}, feedback = {0}, asked = {0};
    Judgement j;
    bool right = role == ARITH_SOLVE || (role == ARITH_JUDGE && key % 2 == 0);
    ArithFault fault = {0};
    if (right) str_add(&solution, str_text(&a->solution));
    else fault = arith_spoil(&solution, a, rng_fold(key, ARITH_ROLES));
    if (role != ARITH_SOLVE) judge_reply(&reply, &j, &r, a, str_text(&solution), right ? NULL : &fault);
    switch (role) {
    case ARITH_SOLVE: prompt_solve(&asked, problem); break;
    case ARITH_JUDGE: prompt_judge(&asked, &r, problem, str_text(&solution)); break;
    default:
        feedback_make(&feedback, &r, &j, str_text(&reply));
        prompt_improve(&asked, problem, str_text(&solution), str_text(&feedback));
    }
    json_t *row = conversation(a, role, right, &asked, role == ARITH_JUDGE ? &reply : &a->solution, prompt_only);
    str_free(&solution);
    str_free(&reply);
    str_free(&feedback);
    str_free(&asked);
    return row;
}
