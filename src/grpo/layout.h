/* layout.h - prefix sharing: which answers share a row of training with their prompt, and how long rows are.
 *
 * A row is a prompt and its answer, or, where prompts are shared, one prompt and n answers to it:
 *
 *     [prompt without its last token][last token, answer 1][last token, answer 2] ... [last token, answer n]
 *
 * The prompt's last token begins every answer: its hidden state predicts the answer's first token, and a place has
 * one label. An answer's own last token predicts nothing and is left out, so a row is prompt - 1 + n * answer
 * tokens long. An answer's tokens see those in front of them in their own answer, and the prompt (op_attend's
 * prefix); positions go on from the prompt's. So each hidden state is what it is in a row of its own, and the
 * prompt's is computed once.
 *
 * n is the largest number that divides the group and the micro-batch, both in answers. Rows that are packed hold
 * what fits (rollout.h): a group of shorter answers takes fewer rows, and rows are shared with other groups. An update
 * that trains on parts of groups may fill more of them: each answer may bring a prompt of its own. */
#ifndef GRPO_LAYOUT_H
#define GRPO_LAYOUT_H

#include "grpo/ring.h"

struct Layouts { /* one for each n: of the updates that such rows come to */
    int64_t n;
    int64_t *answers; /* [n]: of a row, ascending, from 1 on; owns, as the next */
    UpdateRows *rows; /* [n] */
};

/* An update has so many answers, drawn from `of` of whole groups; no more than answers: it has them all. */
void layouts_make(Layouts *l, const GrpoSpec *s, int64_t answers, int64_t of);
void layouts_free(Layouts *l); /* zeros are fine */

/* NULL: prompts can be shared; else why not, with its hint. */
const char *layout_forbids(const GrpoSpec *s, const ModelConfig *policy, bool whole_groups);

/* Task.lay_out; rows come from the task's layouts where it has some. */
void layout_apply(const Task *t, JobSpec *s, int64_t micro_batch, MachineKind kind);

#endif
