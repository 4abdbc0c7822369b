/* judge.h - the three roles' prompts, what a judgement says, and what a solution is told to do better.
 *
 * Prompts are the text of one user message; the model's own chat template goes around it elsewhere. */
#ifndef REASON_JUDGE_H
#define REASON_JUDGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

enum { CRITERIA_MOST = 8 };

typedef struct Criterion {
    const char *name;     /* "step_by_step_clarity"; a reply may write spaces, dashes, capitals, markdown around it */
    double weight;
    const char *question; /* what is judged, for the prompt */
    const char *advice;   /* what a solution that scored low is told */
} Criterion;

typedef struct Rubric {
    Criterion criterion[CRITERIA_MOST];
    int n;
    double threshold; /* good from here: 0.8 */
    double low;       /* a criterion below it is named in the feedback: 0.7 */
} Rubric;

/* correctness 0.4, step_by_step_clarity, logical_coherence, mathematical_precision 0.2 each */
Rubric rubric_default(void);

typedef struct Judgement {
    double score[CRITERIA_MOST]; /* 0 to 1; NAN: not said */
    int n_missing;
    double quality;              /* weighted mean over what was said; NAN: nothing was */
} Judgement;

/* Scores of a reply: "name: 0.8", "name - 8/10", "**Name:** 80%", "name (0.4): 4 out of 5 ...", a table row, JSON;
 * the last mention with a number wins; what lies between <think> and </think> is not read. A number above 1 without
 * "/n", "%" or "out of n" is taken as of 10 when every score of the reply is at most 10, otherwise as not said; a bare
 * "1" beside such numbers is one of 10. */
void judge_read(Judgement *out, const Rubric *r, const char *reply);

/* Takes from `more` what `j` lacks. */
void judge_merge(Judgement *j, const Judgement *more, const Rubric *r);

void prompt_solve(Str *out, const char *problem);
void prompt_judge(Str *out, const Rubric *r, const char *problem, const char *solution);
void prompt_judge_again(Str *out, const Rubric *r, const Judgement *so_far, const char *problem, const char *solution);
void prompt_improve(Str *out, const char *problem, const char *solution, const char *feedback);

/* What an improvement is told: advice for each criterion under r->low (or that nothing stands out), then the judge's
 * own words. */
void feedback_make(Str *out, const Rubric *r, const Judgement *j, const char *reply);

#endif
