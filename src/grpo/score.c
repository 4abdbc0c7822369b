/* score.c - how a completion gets its rewards: functions at once, a command's as its processes reply. */
#include "grpo/score.h"

#include <math.h>
#include <stdio.h>

#include "grpo/answers.h"

static void take_score(void *user, const Score *s) {
    Scoring *all = user;
    Completion *c = &all->asked->c[s->id];
    for (int k = 0; k < all->set->n; k++)
        if (!all->set->reward[k]) c->given[k] = s->reward;
    if (s->why[0]) str_add(&c->why, s->why);
}

bool scoring_open(Scoring *s, const RewardSet *set, Err *e) {
    *s = (Scoring){.set = set};
    return !set->command || scorer_open(&s->scorer, set->command, take_score, s, e);
}

void scoring_close(Scoring *s) {
    scorer_close(s->scorer);
    *s = (Scoring){0};
}

static RewardInput input_of(const Completion *c, const Items *items, bool judged) {
    return (RewardInput){.item = &items->item[c->item],
                         .policy = str_text(&c->text),
                         .answer = str_text(judged ? &c->answer : &c->text)};
}

static void submit(Scoring *s, int64_t i, const Completion *c, const RewardInput *in) {
    char name[64];
    Str line = {0};
    snprintf(name, sizeof name, "item %lld, sample %d", (long long)c->item, c->sample);
    scorer_line(&line, i, in);
    scorer_submit(s->scorer, i, name, str_text(&line));
    str_free(&line);
}

bool scoring_run(Scoring *s, double *given, Rollout *to, const Items *items, bool judged, Err *e) {
    int functions = s->set->n;
    s->asked = to;
    for (int64_t i = 0; i < to->n; i++) {
        Completion *c = &to->c[i];
        RewardInput in = input_of(c, items, judged);
        bool nothing = c->failed || (c->why.len && !in.answer[0]); /* there is no answer to score */
        for (int k = 0; k < functions; k++)
            c->given[k] = nothing || !s->set->reward[k] ? (double)NAN : s->set->reward[k]->fn(&in);
        if (!nothing && s->scorer) submit(s, i, c, &in);
    }
    if (s->scorer && !scorer_finish(s->scorer, answers_keep_going, NULL, e)) return false;
    for (int64_t i = 0; given && i < to->n; i++)
        for (int k = 0; k < functions; k++) given[i * functions + k] = to->c[i].given[k];
    return true;
}

ScoreMean score_mean(const double *x, int64_t n) {
    double sum = 0, squares = 0, count = (double)n;
    for (int64_t i = 0; i < n; i++) sum += x[i];
    for (int64_t i = 0; i < n; i++) squares += (x[i] - sum / count) * (x[i] - sum / count);
    return (ScoreMean){.mean = n ? sum / count : (double)NAN,
                       .error = n > 1 ? sqrt(squares / (count - 1) / count) : (double)NAN,
                       .n = n};
}
