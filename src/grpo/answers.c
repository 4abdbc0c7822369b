/* answers.c - how prompts become completions, completions the evaluator's answers, and these rewards. */
#include "grpo/answers.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/stop.h"
#include "grpo/clean.h"

/* ---- voices ---- */

static bool open_voice(Engine *n, Gen *g, const GrpoVoice *v, Err *e) {
    bool ok = gen_open(g, e) && gen_warm(g, e);
    if (ok) engine_open(n, g, v->tokenizer, (EngineOptions){0});
    else gen_close(g);
    return ok;
}

static void close_voice(Engine *n, Gen *g) {
    if (!n->g) return;
    engine_close(n);
    gen_close(g);
}

bool answers_open_voices(GrpoRun *g, Err *e) {
    GrpoRing *ring = grpo_ring(g->job);
    return open_voice(&g->policy, &ring->policy, &g->o.policy, e) &&
           (!ring->evaluator.ring || open_voice(&g->evaluator, &ring->evaluator, &g->o.evaluator, e));
}

void answers_close(GrpoRun *g) {
    GrpoRing *ring = grpo_ring(g->job);
    close_voice(&g->policy, &ring->policy);
    close_voice(&g->evaluator, &ring->evaluator);
    scorer_close(g->scorer);
    remote_close(g->remote);
}

static bool keep_going(void *user) {
    (void)user;
    return !stop_asked();
}

/* ---- the policy ---- */

/* The last prompt_tokens of it: what is nearest to the question stays. */
static bool encode_item(const GrpoRun *g, TokenIds *ids, const Item *item, Err *e) {
    const GrpoVoice *v = &g->o.policy;
    int64_t most = g->rollout.context - g->rollout.answer;
    ids->n = 0;
    bool ok = item->messages ? template_encode_chat(v->chat, v->tokenizer, ids, item->messages, e)
                             : tokenizer_encode(v->tokenizer, ids, item->text, (int64_t)strlen(item->text),
                                                TOKENIZE_ADD_SPECIAL, e);
    if (ok && !ids->n) ok = fail(e, ERR_FAIL, "the prompt \"%.60s\" has no tokens", item->question);
    if (ok && ids->n > most) {
        memmove(ids->ids, ids->ids + ids->n - most, (size_t)most * sizeof *ids->ids);
        ids->n = most;
    }
    return ok;
}

static bool submit_prompt(GrpoRun *g, Rollout *to, const Ask *ask, int64_t prompt, TokenIds *ids, Err *e) {
    const GrpoVoice *v = &g->o.policy;
    if (!encode_item(g, ids, &ask->items->item[ask->item[prompt]], e)) return false;
    Request q = {.prompt = ids->ids, .n_prompt = ids->n, .max_new = to->answer, .samples = ask->samples,
                 .sampling = v->sampling, .key = rng_fold(ask->key, (uint64_t)prompt), .stop_id = v->stop_id,
                 .n_stop_ids = v->n_stop_ids, .want_logp = true, .logp_at_temperature = true, .number = prompt};
    if (ask->greedy) q.sampling = (Sampling){.top_p = 1, .repetition = 1};
    for (int s = 0; s < ask->samples; s++) {
        Completion *c = &to->c[prompt * ask->samples + s];
        memcpy(c->ids, ids->ids, (size_t)ids->n * sizeof *ids->ids);
        c->item = ask->item[prompt];
        c->sample = s;
        c->n = c->n_prompt = ids->n;
        c->truncated = false;
        c->failed = true; /* until it is answered */
        str_clear(&c->text), str_clear(&c->answer), str_clear(&c->why);
    }
    return engine_submit(&g->policy, &q, NULL, e);
}

static bool take_answer(Rollout *to, const Ask *ask, const EngineEvent *ev) {
    Completion *c = &to->c[ev->request->number * ask->samples + ev->sample];
    if (ev->kind == EVENT_FAILED) {
        str_add(&c->why, ev->error);
        log_warn("item %lld, sample %d: %s; it counts for nothing", (long long)c->item, c->sample, ev->error);
        return true;
    }
    if (ev->kind != EVENT_DONE) return true;
    if (ev->end == GEN_END_CANCELLED) return false;
    memcpy(c->ids + c->n_prompt, ev->ids, (size_t)ev->n * sizeof *ev->ids);
    memcpy(c->sampled, ev->logp, (size_t)ev->n * sizeof *ev->logp);
    c->n = c->n_prompt + ev->n;
    c->truncated = ev->end == GEN_END_LENGTH;
    c->failed = false;
    str_add_bytes(&c->text, str_text(ev->text), ev->text->len);
    return true;
}

/* Submits by `next` until it has no more, and steps until all is answered. */
typedef struct Asking {
    Engine *n;
    int64_t next, total;
    bool (*submit)(void *user, int64_t i, Err *e);
    bool (*take)(void *user, const EngineEvent *ev);
    void *user;
} Asking;

static bool run_asking(Asking *a, Err *e) {
    engine_forget(a->n);
    for (EngineState state = ENGINE_BUSY; state == ENGINE_BUSY || a->next < a->total;) {
        while (a->next < a->total && engine_room(a->n) > 0)
            if (!a->submit(a->user, a->next++, e)) return false;
        state = engine_step(a->n, e);
        if (state == ENGINE_BROKEN) return false;
        if (stop_asked()) engine_cancel_all(a->n);
        for (EngineEvent ev; engine_event(a->n, &ev);) a->take(a->user, &ev);
        if (stop_asked()) return false;
    }
    return true;
}

typedef struct PolicyAsking {
    GrpoRun *g;
    Rollout *to;
    const Ask *ask;
    TokenIds ids;
} PolicyAsking;

static bool submit_policy(void *user, int64_t i, Err *e) {
    PolicyAsking *p = user;
    return submit_prompt(p->g, p->to, p->ask, i, &p->ids, e);
}
static bool take_policy(void *user, const EngineEvent *ev) {
    PolicyAsking *p = user;
    return take_answer(p->to, p->ask, ev);
}

bool answers_ask(GrpoRun *g, Rollout *to, const Ask *ask, Err *e) {
    PolicyAsking p = {.g = g, .to = to, .ask = ask};
    Asking a = {.n = &g->policy, .total = ask->prompts, .submit = submit_policy, .take = take_policy, .user = &p};
    bool ok = run_asking(&a, e);
    token_ids_free(&p.ids);
    return ok;
}

/* ---- the evaluator ---- */

typedef struct JudgeAsking {
    GrpoRun *g;
    Rollout *to;
    TokenIds ids;
} JudgeAsking;

static bool encode_for_judge(const GrpoVoice *v, TokenIds *ids, const Str *text, Err *e) {
    ids->n = 0;
    if (!v->chat) return tokenizer_encode(v->tokenizer, ids, str_text(text), text->len, TOKENIZE_ADD_SPECIAL, e);
    json_t *messages = json_pack("[{s:s, s:o}]", "role", "user", "content", clean_json(str_text(text)));
    bool ok = template_encode_chat(v->chat, v->tokenizer, ids, messages, e);
    json_decref(messages);
    return ok;
}

/* What the evaluator cannot read costs that sample alone. */
static bool submit_judge(void *user, int64_t i, Err *e) {
    JudgeAsking *p = user;
    const GrpoVoice *v = &p->g->o.evaluator;
    Completion *c = &p->to->c[i];
    const GenSpec *spec = &p->g->evaluator.g->spec;
    if (c->failed || !c->text.len) return true;
    if (!encode_for_judge(v, &p->ids, &c->text, e)) return false;
    int64_t room = spec->context - p->ids.n;
    if (!p->ids.n || room < 1) {
        str_addf(&c->why, "the evaluator's prompt has %lld tokens", (long long)p->ids.n);
        return true;
    }
    Request q = {.prompt = p->ids.ids, .n_prompt = p->ids.n,
                 .max_new = MIN2(room, ((const GrpoTask *)p->g->job->spec.task)->spec.evaluator_tokens), .samples = 1,
                 .sampling = v->sampling, .key = rng_fold(rng_fold(p->g->o.seed, 0xe7a1), (uint64_t)i),
                 .stop_id = v->stop_id, .n_stop_ids = v->n_stop_ids, .number = i};
    Err refused = {0};
    if (!engine_submit(&p->g->evaluator, &q, NULL, &refused)) str_add(&c->why, refused.text);
    return true;
}

static bool take_judge(void *user, const EngineEvent *ev) {
    JudgeAsking *p = user;
    Completion *c = &p->to->c[ev->request->number];
    if (ev->kind == EVENT_FAILED) str_add(&c->why, ev->error);
    if (ev->kind == EVENT_DONE && ev->end != GEN_END_CANCELLED)
        str_add_bytes(&c->answer, str_text(ev->text), ev->text->len);
    return true;
}

static void take_remote(void *user, const RemoteAnswer *a) {
    GrpoRun *g = user;
    Completion *c = &g->asked->c[a->id];
    if (a->text) str_add(&c->answer, a->text);
    else str_add(&c->why, a->why);
}

static bool judge_remote(GrpoRun *g, Rollout *to, Err *e) {
    char name[64];
    g->asked = to;
    for (int64_t i = 0; i < to->n; i++) {
        if (to->c[i].failed || !to->c[i].text.len) continue;
        snprintf(name, sizeof name, "item %lld, sample %d", (long long)to->c[i].item, to->c[i].sample);
        remote_submit(g->remote, i, name, str_text(&to->c[i].text));
    }
    return remote_finish(g->remote, keep_going, NULL, e);
}

bool answers_judge(GrpoRun *g, Rollout *to, Err *e) {
    if (g->remote) return judge_remote(g, to, e);
    if (!grpo_ring(g->job)->evaluator.ring) return true;
    JudgeAsking p = {.g = g, .to = to};
    Asking a = {.n = &g->evaluator, .total = to->n, .submit = submit_judge, .take = take_judge, .user = &p};
    bool ok = run_asking(&a, e);
    token_ids_free(&p.ids);
    return ok;
}

/* ---- rewards ---- */

static void take_score(void *user, const Score *s) {
    GrpoRun *g = user;
    Completion *c = &g->asked->c[s->id];
    for (int k = 0; k < g->o.n_rewards; k++)
        if (!g->o.reward[k]) c->given[k] = s->reward;
    if (s->why[0]) str_add(&c->why, s->why);
}

bool answers_open_helpers(GrpoRun *g, Err *e) {
    if (g->o.command && !scorer_open(&g->scorer, g->o.command, take_score, g, e)) return false;
    return !g->o.remote || remote_open(&g->remote, g->o.remote, take_remote, g, e);
}

static RewardInput input_of(const GrpoRun *g, const Completion *c, const Items *items) {
    bool judged = g->remote || grpo_ring(g->job)->evaluator.ring;
    return (RewardInput){.item = &items->item[c->item], .policy = str_text(&c->text),
                         .answer = str_text(judged ? &c->answer : &c->text)};
}

bool answers_score(GrpoRun *g, Rollout *to, const Items *items, Err *e) {
    int functions = g->o.n_rewards;
    Str line = {0};
    bool ok = true;
    g->asked = to;
    for (int64_t i = 0; i < to->n; i++) {
        Completion *c = &to->c[i];
        RewardInput in = input_of(g, c, items);
        bool nothing = c->failed || (c->why.len && !in.answer[0]); /* there is no answer to score */
        for (int k = 0; k < functions; k++)
            c->given[k] = nothing || !g->o.reward[k] ? (double)NAN : g->o.reward[k]->fn(&in);
        if (nothing || !g->scorer) continue;
        char name[64];
        snprintf(name, sizeof name, "item %lld, sample %d", (long long)c->item, c->sample);
        str_clear(&line);
        scorer_line(&line, i, &in);
        scorer_submit(g->scorer, i, name, str_text(&line));
    }
    if (g->scorer) ok = scorer_finish(g->scorer, keep_going, NULL, e);
    for (int64_t i = 0; ok && i < to->n; i++)
        for (int k = 0; k < functions; k++) g->given[i * functions + k] = to->c[i].given[k];
    str_free(&line);
    return ok;
}
