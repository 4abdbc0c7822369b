/* answers.h - rollout generation: prompts become completions, and completions become an evaluator's answers, by engines
 * or by a server. Knows neither training nor rewards. */
#ifndef GRPO_ANSWERS_H
#define GRPO_ANSWERS_H

#include "base/work.h"
#include "data/template.h"
#include "data/tokenizer.h"
#include "gen/engine.h"
#include "grpo/items.h"
#include "grpo/remote.h"
#include "grpo/rollout.h"

typedef struct AnswersShown { /* progress of a model's answers */
    int64_t done;
    Work work; /* begun and ended by the caller */
} AnswersShown;

typedef struct GrpoGenerator { /* a model that answers; keeps what it points to */
    const Tokenizer *tokenizer;
    const Template *chat; /* NULL: prompts are plain texts */
    const int32_t *stop_id;
    int n_stop_ids;
    Sampling sampling;
    AnswersShown *shown; /* counts on, also in the engine's status; NULL: no progress is shown */
} GrpoGenerator;

typedef struct Ask {
    const Items *items;
    const int64_t *item; /* [prompts]: which item each prompt is; NULL: they are the items in their order */
    int64_t prompts;
    int samples;
    bool greedy;  /* the likeliest token each time: an evaluation */
    uint64_t key; /* of the random numbers */
} Ask;

/* prompts x samples completions into `to`. False without a code in e: the process was asked to leave. */
bool answers_ask(Engine *n, const GrpoGenerator *v, Rollout *to, const Ask *ask, Err *e);

/* All of a prompt's ids, however many they are. */
bool answers_encode(const Tokenizer *t, const Template *chat, TokenIds *ids, const Item *item, Err *e);

/* How completion i of such an asking is drawn. */
DrawHow answers_how(const Engine *n, const GrpoGenerator *v, const Ask *ask, int64_t i, int sample);

/* Completions which[n] are kept up to their first `kept` tokens of answer and answered on from there. */
bool answers_go_on(Engine *n, const GrpoGenerator *v, Rollout *to, const Ask *ask, const int64_t *which,
                   const int64_t *kept, int64_t n_which, Err *e);

/* What an evaluator answers to each completion, in at most max_new tokens. What it cannot read costs that sample
 * alone. */
bool answers_judge(Engine *n, const GrpoGenerator *v, Rollout *to, int64_t max_new, uint64_t seed, Err *e);

/* The same by a server. Stays where it is while it is open. */
typedef struct RemoteJudge {
    Remote *remote; /* NULL: none */
    Rollout *asked; /* whose completions are pending */
} RemoteJudge;
bool answers_open_remote(RemoteJudge *j, const RemoteSpec *spec, Err *e); /* gives: remote_close(j->remote) */
bool answers_judge_remote(RemoteJudge *j, Rollout *to, Err *e);

bool answers_keep_going(void *unused); /* for those who wait: no signal asks to leave */

#endif
