/* reward_int.h - text as rewards look at it: characters, words, lines. For the files of rewards alone. */
#ifndef GRPO_REWARD_INT_H
#define GRPO_REWARD_INT_H

#include "base/str.h"
#include "grpo/reward.h"

int64_t text_length(const char *text);                       /* characters of UTF-8; a broken byte counts as one */
const char *text_tail(const char *text, int64_t characters); /* where the last so many begin */

typedef struct Words {
    Str text;    /* each word ends with 0 */
    int64_t *at; /* owns; where each begins in text */
    int64_t n, capacity;
} Words;

/* What white space (of Unicode) separates, in lower case when asked. */
void words_split(Words *w, const char *text, bool lower);
void words_free(Words *w);
int64_t words_types(const Words *w); /* different ones */
static inline const char *word_at(const Words *w, int64_t i) {
    CHECK(w->at && i < w->n);
    return w->text.data + w->at[i];
}

double reward_poem(const RewardInput *in); /* reward_poem.c */

#endif
