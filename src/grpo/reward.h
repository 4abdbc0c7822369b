/* reward.h - what an answer is worth: a table of functions by name.
 *
 * A function sees the item, what the policy wrote, and the answer that is scored: the evaluator's, or the policy's
 * own text where there is no evaluator. It gives a number, mostly 0 to 1, or NAN where it cannot say (no gold): a
 * missing reward is left out of the weighted sum (advantage.h). Lengths count characters; words are what white
 * space separates.
 *
 *   accuracy        1 where the final answer (boxed, behind ####, or concluded) means the same as the gold: as text,
 *                   as a number, as a simple formula (reason/answer.h); or where the whole answer is the gold's text
 *   easy_math       1 where a number in the last 50 characters is the gold's; a gold that is no number must be there
 *   classification  0.7 x right + 0.3 x max(0, 1 - length / 128). Right: the class named last in the line behind
 *                   "Classification:", or in the last 30 characters, is the gold (case ignored)
 *   poem            (0.25 rhyme + 0.25 diversity + 0.20 length + 0.30 coherence) x (0.3 + 0.7 repetition), as
 *                   reward_poem.c defines them
 *   exact           1 where answer and gold have the same words (case ignored)
 *   last_number     1 where the last number of the answer is the last one of the gold
 *   f1              harmonic mean of precision and recall of the gold's words (case ignored, counted)
 *   bleu            BLEU-4 with one added to matches and totals of 2- to 4-grams, brevity penalty (sacrebleu's add-k)
 *   length          min(1, length / 100)
 *   constant        0.5
 *   gold_match      1 where answer and gold are the same text, else f1
 *   no_leak         0 where the policy's text states the gold and the question does not, else 1
 *
 * What policies learn to exploit, and what holds against it here:
 *   - A rewritten prompt states the answer: the evaluator repeats it and is right. Give `no_leak` a weight.
 *   - A list of all classes, or the number 180 for the gold 18: the last class counts, whole numbers are compared.
 *   - A poem repeats one line, or ends every line with one word: `repetition` scales everything, and a line rhymes
 *     only with another word.
 *   - Rows of dashes, which are characters but no words: they read as blanks.
 *   - Length: `length` rewards any longer text up to its bound. It is for trials of a set-up, not for training. */
#ifndef GRPO_REWARD_H
#define GRPO_REWARD_H

#include <stdbool.h>

#include "base/err.h"
#include "grpo/items.h"

typedef struct RewardInput {
    const Item *item;
    const char *policy; /* what the policy wrote */
    const char *answer; /* what is scored */
} RewardInput;

typedef double RewardFn(const RewardInput *in); /* NAN: it cannot say */

typedef struct Reward {
    const char *name;
    RewardFn *fn;
} Reward;

enum { REWARDS_MOST = 8 }; /* of one run */

const Reward *rewards(int *n);
/* Also "math" for accuracy, and "test:length", "test:constant", "test:gold_match". Names the nearest when there is
 * none. */
const Reward *reward_find(const char *name, Err *e);

/* The numbers behind f1 and bleu, for other texts than an item's. */
double reward_token_f1(const char *text, const char *gold);
double reward_bleu(const char *text, const char *gold);

#endif
