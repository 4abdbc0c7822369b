/* answers.c - how prompts become completions, and completions the evaluator's answers. */
#include "grpo/answers.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/rng.h"
#include "base/stop.h"
#include "grpo/clean.h"

bool answers_keep_going(void *unused) {
    return !stop_asked();
}

typedef struct Asking { /* what every way of asking begins with */
    Engine *n;
    const GrpoGenerator *voice;
} Asking;

static bool count_answer(const Asking *a) {
    if (a->voice->shown) a->voice->shown->done++;
    return true;
}

static bool show(void *asking, Err *e) {
    const Asking *a = asking;
    AnswersShown *s = a->voice->shown;
    if (!s) return true;
    bool ok = work_on(&s->work, s->done, e);
    status_count(a->n->options.status, s->done, s->work.total, work_left_seconds(&s->work));
    return ok;
}

/* ---- the policy ---- */

bool answers_encode(const Tokenizer *t, const Template *chat, TokenIds *ids, const Item *item, Err *e) {
    ids->n = 0;
    bool ok = item->messages ? template_encode_chat(chat, t, ids, item->messages, e)
                             : tokenizer_encode(t, ids, item->text, item->length, TOKENIZE_ADD_SPECIAL, e);
    return ok && (ids->n || fail(e, ERR_FAIL, "the prompt \"%.60s\" has no tokens", item->question));
}

/* The last `most` tokens of it: what is nearest to the question stays. */
static bool encode_item(const GrpoGenerator *v, TokenIds *ids, bool *cut, const Item *item, int64_t most, Err *e) {
    bool ok = answers_encode(v->tokenizer, v->chat, ids, item, e);
    *cut = ids->n > most;
    if (ok && *cut) {
        memmove(ids->ids, ids->ids + ids->n - most, (size_t)most * sizeof *ids->ids);
        ids->n = most;
    }
    return ok;
}

typedef struct PolicyAsking {
    Asking by;
    Rollout *to;
    const Ask *ask;
    TokenIds ids;
    int64_t cut; /* prompts that lost their beginning */
} PolicyAsking;

static void begin_completion(Completion *c, int64_t item, int sample, const TokenIds *prompt) {
    memcpy(c->ids, prompt->ids, (size_t)prompt->n * sizeof *prompt->ids);
    c->item = item;
    c->sample = sample;
    c->n = c->n_prompt = prompt->n;
    c->truncated = false;
    c->failed = true; /* until it is answered */
    str_clear(&c->text), str_clear(&c->answer), str_clear(&c->why);
}

/* All but the tokens and how many. */
static Request request_of(const GrpoGenerator *v, const Ask *ask, int64_t prompt) {
    Request q = {.sampling = v->sampling,
                 .key = rng_fold(ask->key, (uint64_t)prompt),
                 .stop_id = v->stop_id,
                 .n_stop_ids = v->n_stop_ids,
                 .want_logp = true,
                 .logp_at_temperature = true};
    if (ask->greedy) q.sampling = (Sampling){.top_p = 1, .repetition = 1};
    return q;
}

static bool submit_prompt(void *user, int64_t prompt, Err *e) {
    PolicyAsking *p = user;
    const GrpoGenerator *v = p->by.voice;
    const Ask *ask = p->ask;
    int64_t item = ask->item ? ask->item[prompt] : prompt;
    bool cut;
    if (!encode_item(v, &p->ids, &cut, &ask->items->item[item], p->to->context - p->to->answer, e)) return false;
    p->cut += cut;
    Request q = request_of(v, ask, prompt);
    q.prompt = p->ids.ids, q.n_prompt = p->ids.n, q.max_new = p->to->answer, q.samples = ask->samples,
    q.number = prompt;
    for (int s = 0; s < ask->samples; s++)
        begin_completion(&p->to->c[prompt * ask->samples + s], item, s, &p->ids);
    return engine_submit(p->by.n, &q, NULL, e);
}

static void take_completion(Completion *c, const EngineEvent *ev) {
    if (ev->kind == EVENT_FAILED) {
        str_add(&c->why, ev->error);
        log_warn("item %lld, sample %d: %s; it counts for nothing", (long long)c->item, c->sample, ev->error);
    }
    if (ev->kind != EVENT_DONE || ev->end == GEN_END_CANCELLED) return;
    memcpy(c->ids + c->n_prompt, ev->ids, (size_t)ev->n * sizeof *ev->ids);
    memcpy(c->sampled, ev->logp, (size_t)ev->n * sizeof *ev->logp);
    c->n = c->n_prompt + ev->n;
    c->truncated = ev->end == GEN_END_LENGTH;
    c->failed = false;
    str_add_bytes(&c->text, str_text(ev->text), ev->text->len);
}

static bool take_answer(void *user, const EngineEvent *ev, Err *e) {
    PolicyAsking *p = user;
    take_completion(&p->to->c[ev->request->number * p->ask->samples + ev->sample], ev);
    return ev->kind == EVENT_TEXT || count_answer(&p->by);
}

bool answers_ask(Engine *n, const GrpoGenerator *v, Rollout *to, const Ask *ask, Err *e) {
    PolicyAsking p = {.by = {n, v}, .to = to, .ask = ask};
    EngineAsk all = {.total = ask->prompts, .submit = submit_prompt, .take = take_answer, .looked = show, .user = &p};
    engine_forget(n);
    bool ok = engine_ask(n, &all, e);
    if (p.cut && !to->said_cut) {
        to->said_cut = true;
        log_warn("%lld of %lld prompts are longer than --prompt-tokens %lld and lose their beginning; this is said "
                 "once",
                 (long long)p.cut, (long long)ask->prompts, (long long)(to->context - to->answer));
    }
    token_ids_free(&p.ids);
    return ok;
}

DrawHow answers_how(const Engine *n, const GrpoGenerator *v, const Ask *ask, int64_t i, int sample) {
    Request q = request_of(v, ask, i / ask->samples);
    return request_how(&q, sample, n->drawable);
}

/* ---- the rest of an answer ---- */

typedef struct RestAsking {
    PolicyAsking p;
    const int64_t *which, *kept;
} RestAsking;

/* An answer whose last kept token ends it is asked for its text alone: a given continuation does not stop. */
static bool submit_rest(void *user, int64_t i, Err *e) {
    RestAsking *r = user;
    Completion *c = &r->p.to->c[r->which[i]];
    int64_t kept = r->kept[i];
    Request q = request_of(r->p.by.voice, r->p.ask, r->which[i] / r->p.ask->samples);
    bool ended = request_stops(&q, c->ids[c->n_prompt + kept - 1]);
    q.prompt = c->ids, q.n_prompt = c->n_prompt, q.samples = 1, q.first_sample = c->sample, q.number = i;
    q.forced = c->ids + c->n_prompt;
    q.n_forced = kept - ended;
    q.max_new = ended ? kept - 1 : r->p.to->answer;
    str_clear(&c->text);
    c->n = c->n_prompt + kept;
    c->truncated = false;
    c->failed = q.max_new > 0;
    return !q.max_new || engine_submit(r->p.by.n, &q, NULL, e);
}

static bool take_rest(void *user, const EngineEvent *ev, Err *e) {
    RestAsking *r = user;
    Completion *c = &r->p.to->c[r->which[ev->request->number]];
    int64_t n = c->n;
    bool ended = ev->request->max_new < r->kept[ev->request->number];
    take_completion(c, ev);
    if (ended && !c->failed) c->n = n, c->truncated = false; /* the token that ends it stands there still */
    return true;
}

bool answers_go_on(Engine *n, const GrpoGenerator *v, Rollout *to, const Ask *ask, const int64_t *which,
                   const int64_t *kept, int64_t n_which, Err *e) {
    RestAsking r = {.p = {.by = {n, v}, .to = to, .ask = ask}, .which = which, .kept = kept};
    EngineAsk all = {.total = n_which, .submit = submit_rest, .take = take_rest, .looked = show, .user = &r};
    engine_forget(n);
    return engine_ask(n, &all, e);
}

/* ---- the evaluator ---- */

typedef struct JudgeAsking {
    Asking by;
    Rollout *to;
    int64_t max_new;
    uint64_t seed;
    TokenIds ids;
} JudgeAsking;

static bool encode_for_judge(const GrpoGenerator *v, TokenIds *ids, const Str *text, Err *e) {
    ids->n = 0;
    if (!v->chat) return tokenizer_encode(v->tokenizer, ids, str_text(text), text->len, TOKENIZE_ADD_SPECIAL, e);
    json_t *messages = json_pack("[{s:s, s:o}]", "role", "user", "content", clean_json(str_text(text)));
    bool ok = template_encode_chat(v->chat, v->tokenizer, ids, messages, e);
    json_decref(messages);
    return ok;
}

static bool submit_judge(void *user, int64_t i, Err *e) {
    JudgeAsking *p = user;
    const GrpoGenerator *v = p->by.voice;
    Completion *c = &p->to->c[i];
    if (c->failed || !c->text.len) return count_answer(&p->by);
    if (!encode_for_judge(v, &p->ids, &c->text, e)) return false;
    int64_t room = p->by.n->g->spec.context - p->ids.n;
    if (!p->ids.n || room < 1) {
        str_addf(&c->why, "the evaluator's prompt has %lld tokens", (long long)p->ids.n);
        return count_answer(&p->by);
    }
    Request q = {.prompt = p->ids.ids,
                 .n_prompt = p->ids.n,
                 .max_new = MIN2(room, p->max_new),
                 .samples = 1,
                 .sampling = v->sampling,
                 .key = rng_fold(rng_fold(p->seed, 0xe7a1), (uint64_t)i),
                 .stop_id = v->stop_id,
                 .n_stop_ids = v->n_stop_ids,
                 .number = i};
    Err refused = {0};
    if (engine_submit(p->by.n, &q, NULL, &refused)) return true;
    str_add(&c->why, refused.text);
    return count_answer(&p->by);
}

static bool take_judge(void *user, const EngineEvent *ev, Err *e) {
    JudgeAsking *p = user;
    Completion *c = &p->to->c[ev->request->number];
    if (ev->kind == EVENT_FAILED) str_add(&c->why, ev->error);
    if (ev->kind == EVENT_DONE && ev->end != GEN_END_CANCELLED)
        str_add_bytes(&c->answer, str_text(ev->text), ev->text->len);
    return ev->kind == EVENT_TEXT || count_answer(&p->by);
}

bool answers_judge(Engine *n, const GrpoGenerator *v, Rollout *to, int64_t max_new, uint64_t seed, Err *e) {
    JudgeAsking p = {.by = {n, v}, .to = to, .max_new = max_new, .seed = seed};
    EngineAsk all = {.total = to->n, .submit = submit_judge, .take = take_judge, .looked = show, .user = &p};
    engine_forget(n);
    bool ok = engine_ask(n, &all, e);
    token_ids_free(&p.ids);
    return ok;
}

static void take_remote(void *user, const RemoteAnswer *a) {
    RemoteJudge *j = user;
    Completion *c = &j->asked->c[a->id];
    if (a->text)
        str_add(&c->answer, a->text);
    else
        str_add(&c->why, a->why);
}

bool answers_open_remote(RemoteJudge *j, const RemoteSpec *spec, Err *e) {
    return remote_open(&j->remote, spec, take_remote, j, e);
}

bool answers_judge_remote(RemoteJudge *j, Rollout *to, Err *e) {
    char name[64];
    j->asked = to;
    for (int64_t i = 0; i < to->n; i++) {
        if (to->c[i].failed || !to->c[i].text.len) continue;
        snprintf(name, sizeof name, "item %lld, sample %d", (long long)to->c[i].item, to->c[i].sample);
        remote_submit(j->remote, i, name, str_text(&to->c[i].text));
    }
    return remote_finish(j->remote, answers_keep_going, NULL, e);
}
