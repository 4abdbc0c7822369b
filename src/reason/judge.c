/* judge.c - the criteria a solution is measured by, and what their scores come to together. */
#include "reason/judge.h"

#include <math.h>

Rubric rubric_default(void) {
    return (Rubric){
        .criterion = {{"correctness", 0.4, "Are all results and the final answer right?",
                       "Calculate again. A result or the final answer is wrong."},
                      {"step_by_step_clarity", 0.2, "Is every step written down and easy to follow?",
                       "Write down every step, one at a time, and say what it finds."},
                      {"logical_coherence", 0.2, "Does each step follow from the problem and the steps before?",
                       "Let each step follow from the problem and the steps before. Leave nothing out."},
                      {"mathematical_precision", 0.2, "Are the numbers, operations and notation exact?",
                       "Use the numbers of the problem and the right operations, exactly."}},
        .n = 4,
        .threshold = 0.8,
        .low = 0.7,
    };
}

void judge_merge(Judgement *j, const Judgement *more, const Rubric *r) {
    double sum = 0, weights = 0;
    j->n_missing = 0;
    for (int i = 0; i < r->n; i++) {
        if (isnan(j->score[i])) j->score[i] = more->score[i];
        if (isnan(j->score[i])) {
            j->n_missing++;
            continue;
        }
        sum += r->criterion[i].weight * j->score[i];
        weights += r->criterion[i].weight;
    }
    j->quality = weights > 0 ? sum / weights : NAN;
}
