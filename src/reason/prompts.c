/* prompts.c - the prompt texts of the three roles. A model can be trained on exactly these, so they change rarely. */
#include <math.h>
#include <string.h>

#include "reason/answer.h"
#include "reason/judge.h"

static void add_trimmed(Str *out, const char *text) {
    const char *end = text + strlen(text);
    while (*text && strchr(" \t\r\n", *text)) text++;
    while (end > text && strchr(" \t\r\n", end[-1])) end--;
    str_add_bytes(out, text, end - text);
}

/* "Title:" and the text, set off by an empty line. */
static void add_part(Str *out, const char *title, const char *text) {
    str_addf(out, "\n\n%s:\n", title);
    add_trimmed(out, text);
}

void prompt_solve(Str *out, const char *problem) {
    str_add(out, "Solve the problem step by step. Put the final answer in \\boxed{}.");
    add_part(out, "Problem", problem);
}

/* so_far: only the criteria it lacks are asked for; NULL: all of them. */
static void add_judge(Str *out, const Rubric *r, const Judgement *so_far, const char *problem, const char *solution) {
    str_add(
        out,
        "Judge the solution of the problem. For each criterion write one line \"name: score\", the score from 0.0"
        " (bad) to 1.0 (perfect), and one sentence that says why.");
    if (so_far) str_add(out, " Write these lines and nothing else.");
    str_add(out, "\n\nCriteria:");
    for (int i = 0; i < r->n; i++)
        if (!so_far || isnan(so_far->score[i]))
            str_addf(out, "\n- %s: %s", r->criterion[i].name, r->criterion[i].question);
    add_part(out, "Problem", problem);
    add_part(out, "Solution", solution);
}

void prompt_judge(Str *out, const Rubric *r, const char *problem, const char *solution) {
    add_judge(out, r, NULL, problem, solution);
}

void prompt_judge_again(Str *out, const Rubric *r, const Judgement *so_far, const char *problem, const char *solution) {
    add_judge(out, r, so_far, problem, solution);
}

void prompt_improve(Str *out, const char *problem, const char *solution, const char *feedback) {
    str_add(out, "Improve the solution of the problem with the help of the feedback. Solve step by step. Put the final"
                 " answer in \\boxed{}.");
    add_part(out, "Problem", problem);
    add_part(out, "Solution", solution);
    add_part(out, "Feedback", feedback);
}

void feedback_make(Str *out, const Rubric *r, const Judgement *j, const char *reply) {
    Str words = {0};
    int n = 0;
    for (int i = 0; i < r->n; i++) {
        if (!(j->score[i] < r->low)) continue; /* also what was not said */
        str_addf(out, "%s- %s: %s", n++ ? "\n" : "", r->criterion[i].name, r->criterion[i].advice);
    }
    if (!n) str_add(out, "Nothing stands out. Make every step more explicit.");
    answer_strip_thoughts(&words, reply);
    if (str_text(&words)[strspn(str_text(&words), " \t\r\n")]) add_part(out, "The judge wrote", words.data);
    str_free(&words);
}
