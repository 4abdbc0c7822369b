/* prompts.h - rows as answers that share a prompt lie in them (grpo/layout.h), for the tests of attention on every
 * device. */
#ifndef TESTS_PROMPTS_H
#define TESTS_PROMPTS_H

#include "base/rng.h"

/* Groups side by side: a prompt of up to `most` tokens, sometimes of none, then answers of up to `longest` that see
 * it and themselves. begin: (tokens), prefix: (tokens, 2). */
static inline void shared_prompts(int32_t *begin, int32_t *prefix, int64_t tokens, int64_t seq, int64_t longest,
                                  int64_t most) {
    int64_t from = 0, left = 0, prompt = 0, prompt_end = 0, answers = 0;
    for (int64_t i = 0; i < tokens; i++) {
        int64_t t = i % seq;
        if (t == 0 || (left == 0 && answers == 0)) { /* a prompt begins */
            left = prompt_end = (int64_t)(rng_u32(12, (uint64_t)i) % (uint64_t)(most + 1));
            from = prompt = t, prompt_end += t, answers = 1 + (int64_t)(rng_u32(13, (uint64_t)i) % 4);
        }
        if (left == 0) from = t, left = 1 + (int64_t)(rng_u32(14, (uint64_t)i) % (uint64_t)longest), answers--;
        left--;
        bool answer = t >= prompt_end;
        begin[i] = (int32_t)from;
        prefix[2 * i] = answer ? (int32_t)prompt : 0;
        prefix[2 * i + 1] = answer ? (int32_t)prompt_end : 0;
    }
}

/* The same of exact lengths: groups of a prompt and `answers` answers. */
static inline void even_prompts(int32_t *begin, int32_t *prefix, int64_t tokens, int64_t seq, int64_t prompt,
                                int64_t answer, int64_t answers) {
    for (int64_t i = 0; i < tokens; i++) {
        int64_t t = i % seq, group = t / (prompt + answers * answer) * (prompt + answers * answer), own = t - group;
        bool answers_it = own >= prompt;
        begin[i] = (int32_t)(group + (answers_it ? prompt + (own - prompt) / answer * answer : 0));
        prefix[2 * i] = answers_it ? (int32_t)group : 0;
        prefix[2 * i + 1] = answers_it ? (int32_t)(group + prompt) : 0;
    }
}

#endif
