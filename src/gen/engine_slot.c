/* engine_slot.c - one answer in its slot: how it begins, takes tokens and ends. */
#include <string.h>

#include "base/rng.h"
#include "gen/engine_int.h"

DrawHow request_how(const Request *r, int sample, int32_t drawable) {
    const Sampling *how = &r->sampling;
    return (DrawHow){.key = rng_fold(r->key, (uint64_t)sample),
                     .temperature = how->temperature,
                     .top_p = how->top_p,
                     .min_p = how->min_p,
                     .repetition = how->repetition,
                     .top_k = (int32_t)MIN2(how->top_k, INT32_MAX),
                     .first = (int32_t)r->n_prompt,
                     .want_logp = r->want_logp,
                     .logp_scale = r->logp_at_temperature && how->temperature > 0 ? 1 / how->temperature : 0,
                     .vocab = drawable,
                     .forced = (int32_t)r->n_forced};
}

void slot_enter(Engine *n, int slot, Ticket *t) {
    EngineSlot *s = &n->slot[slot];
    const Request *r = &t->r;
    s->ticket = t;
    s->serial = n->serials++;
    s->sample = r->first_sample + t->begun++;
    s->n = s->n_drawn = r->n_prompt;
    s->text_pending = false;
    text_stream_clear(&s->stream);
    t->open++;
    n->n_busy++;
    n->n_queued--;
    if (t->begun == r->samples) { /* it is the first of the queue: slots are filled in order */
        CHECK(n->queue == t);
        n->queue = t->next;
    }
    memcpy(s->ids, r->prompt, (size_t)r->n_prompt * 4);
    if (r->n_forced) memcpy(s->ids + r->n_prompt, r->forced, (size_t)r->n_forced * 4);
    DrawHow draw = request_how(r, s->sample, n->drawable);
    exec_put(n->x, n->g->draw.how, &draw, slot * (int64_t)sizeof draw, sizeof draw);
    exec_put(n->x, n->g->draw.ids, s->ids, slot * n->g->spec.context * 4, (r->n_prompt + r->n_forced) * 4);
}

static void leave(Engine *n, EngineSlot *s) {
    s->ticket = NULL;
    n->n_busy--;
}

/* Zeros in place of numbers that are not finite: a masked product of those would still not be finite. */
static void wipe_cache(Engine *n, int slot) {
    static const char zeros[1 << 16];
    const Gen *g = n->g;
    for (int l = 0; l < model_cache_tensors(&g->m); l++) {
        if (g->cache[l] == NONE) continue;
        int64_t row = prog_bytes(n->x->p, g->cache[l]) / g->spec.slots;
        for (int64_t at = 0; at < row; at += (int64_t)sizeof zeros)
            exec_put(n->x, g->cache[l], zeros, slot * row + at, MIN2((int64_t)sizeof zeros, row - at));
    }
    n->slot[slot].n_cached = 0;
    if (n->prompt_slot == slot) n->prompt_ticket = -1;
}

void engine_forget(Engine *n) {
    CHECK(!n->n_busy && !n->queue);
    if (n->g->phase_clear >= 0) exec_play(n->x, n->g->phase_clear);
    for (int64_t i = 0; i < n->g->spec.slots; i++) n->slot[i].n_cached = 0;
    n->prompt_ticket = -1;
}

static void slot_fail(Engine *n, int slot, const char *error) {
    event_push(n, EVENT_FAILED, slot, error);
    leave(n, &n->slot[slot]);
}

void slot_end(Engine *n, int slot, GenEnd end) {
    EngineSlot *s = &n->slot[slot];
    const Request *r = &s->ticket->r;
    Err e = {0};
    bool stopped;
    s->end = end;
    if (n->tokenizer && end != GEN_END_TEXT) { /* a stop string has already cut the text */
        int64_t shown = s->n - r->n_prompt - (end == GEN_END_ID);
        if (!text_stream_add(&s->stream, &stopped, n->tokenizer, s->ids + r->n_prompt, shown, r->stops, true, &e)) {
            slot_fail(n, slot, e.text);
            return;
        }
    }
    if (r->stream && n->tokenizer) event_push(n, EVENT_TEXT, slot, NULL);
    event_push(n, EVENT_DONE, slot, NULL);
    leave(n, s);
}

bool request_stops(const Request *r, int32_t id) {
    for (int i = 0; i < r->n_stop_ids; i++)
        if (r->stop_id[i] == id) return true;
    return false;
}

void slot_take_token(Engine *n, int slot, Drawn drawn) {
    EngineSlot *s = &n->slot[slot];
    const Request *r = &s->ticket->r;
    int64_t count = s->n - r->n_prompt;
    if (drawn.id < 0) {
        Err e = {0};
        fail(&e, ERR_FAIL,
             "request %lld: the logits of token %lld are not finite. Are the weights sound, and does the precision "
             "suit them?",
             (long long)r->number, (long long)count);
        wipe_cache(n, slot);
        slot_fail(n, slot, e.text);
        return;
    }
    if (r->want_logp) s->logp[count] = drawn.logp;
    s->ids[s->n++] = drawn.id;
    count++;
    n->counts.new_tokens++;
    bool given = count <= r->n_forced, stopped = false; /* a given continuation is not stopped */
    Err e = {0};
    if (!given && request_stops(r, drawn.id)) {
        slot_end(n, slot, GEN_END_ID);
        return;
    }
    StopTexts stops = r->stops;
    if (given) stops.n = 0;
    if (n->tokenizer && (r->stops.n || r->stream) &&
        !text_stream_add(&s->stream, &stopped, n->tokenizer, s->ids + r->n_prompt, count, stops, false, &e))
        slot_fail(n, slot, e.text);
    else if (stopped)
        slot_end(n, slot, GEN_END_TEXT);
    else if (count >= r->max_new)
        slot_end(n, slot, GEN_END_LENGTH);
    else if (r->stream && n->tokenizer)
        event_push(n, EVENT_TEXT, slot, NULL);
}
