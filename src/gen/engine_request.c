/* engine_request.c - which requests can be answered, how they are queued, and how they are cancelled. */
#include <math.h>
#include <string.h>

#include "gen/engine_int.h"

/* ---- checks ---- */

static bool check_ids(const Engine *n, const Request *r, const char *what, const int32_t *ids, int64_t count, Err *e) {
    int64_t vocab = n->g->spec.m.config.vocab;
    for (int64_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= vocab)
            return fail(e, ERR_FAIL,
                        "request %lld: id %d at place %lld of the %s is not one of the model's %lld tokens",
                        (long long)r->number, ids[i], (long long)i, what, (long long)vocab);
    return true;
}

static bool check_sampling(const Request *r, Err *e) {
    const Sampling *s = &r->sampling;
    bool sound = s->temperature >= 0 && isfinite(s->temperature) && s->top_k >= 0 && s->top_p >= 0 && s->top_p <= 1 &&
                 s->min_p >= 0 && s->min_p <= 1 && s->repetition > 0 && isfinite(s->repetition);
    return sound ||
           fail(e, ERR_FAIL,
                "request %lld: temperature %g, top-k %lld, top-p %g, min-p %g, repetition penalty %g: one of them "
                "is out of its range",
                (long long)r->number, s->temperature, (long long)s->top_k, s->top_p, s->min_p, s->repetition);
}

static bool check_stops(const Request *r, Err *e) {
    for (int i = 0; i < r->stops.n; i++)
        if (!r->stops.text[i][0])
            return fail(e, ERR_FAIL, "request %lld: a stop string is empty", (long long)r->number);
    return true;
}

static bool check_request(const Engine *n, const Request *r, Err *e) {
    int64_t context = n->g->spec.context;
    if (r->n_prompt < 1) return fail(e, ERR_FAIL, "request %lld: the prompt has no tokens", (long long)r->number);
    if (r->max_new < 1 || r->samples < 1 || r->n_forced > r->max_new)
        return fail(e, ERR_FAIL,
                    "request %lld: %lld tokens of answer, %lld of them given, %d samples: cannot be asked for",
                    (long long)r->number, (long long)r->max_new, (long long)r->n_forced, r->samples);
    if (r->n_prompt > context || r->max_new > context - r->n_prompt)
        return fail(e, ERR_FAIL,
                    "request %lld: %lld tokens of prompt and %lld of answer are more than the context of %lld",
                    (long long)r->number, (long long)r->n_prompt, (long long)r->max_new, (long long)context);
    return check_ids(n, r, "prompt", r->prompt, r->n_prompt, e) &&
           check_ids(n, r, "given answer", r->forced, r->n_forced, e) && check_sampling(r, e) && check_stops(r, e);
}

/* ---- tickets ---- */

static int64_t text_bytes(const StopTexts *stops) {
    int64_t bytes = 0;
    for (int i = 0; i < stops->n; i++) bytes += (int64_t)strlen(stops->text[i]) + 1;
    return bytes;
}

static const int32_t *copy_ids(int32_t **at, const int32_t *ids, int64_t count) {
    int32_t *to = *at;
    if (count) memcpy(to, ids, (size_t)count * sizeof *ids);
    *at += count;
    return to;
}

static Ticket *new_ticket(const Request *r, int64_t id) {
    int64_t ids = (r->n_prompt + r->n_forced + r->n_stop_ids) * (int64_t)sizeof(int32_t);
    Ticket *t = mem_alloc((int64_t)sizeof *t + r->stops.n * (int64_t)sizeof(char *) + ids + text_bytes(&r->stops));
    const char **text = (const char **)(t + 1);
    int32_t *at = (int32_t *)(text + r->stops.n);
    t->r = *r;
    t->id = id;
    t->r.prompt = copy_ids(&at, r->prompt, r->n_prompt);
    t->r.forced = copy_ids(&at, r->forced, r->n_forced);
    t->r.stop_id = copy_ids(&at, r->stop_id, r->n_stop_ids);
    t->r.stops.text = text;
    char *bytes = (char *)at;
    for (int i = 0; i < r->stops.n; i++) {
        int64_t len = (int64_t)strlen(r->stops.text[i]) + 1;
        text[i] = memcpy(bytes, r->stops.text[i], (size_t)len);
        bytes += len;
    }
    return t;
}

bool engine_submit(Engine *n, const Request *r, int64_t *ticket, Err *e) {
    if (!check_request(n, r, e)) return false;
    Ticket *t = new_ticket(r, n->tickets++);
    if (ticket) *ticket = t->id;
    *(n->queue ? &n->queue_end->next : &n->queue) = t;
    n->queue_end = t;
    n->n_queued += r->samples;
    return true;
}

int64_t engine_room(const Engine *n) { return n->g->spec.slots - n->n_busy - n->n_queued + 1; }

/* ---- cancelling ---- */

/* No more samples of it begin. */
static void leave_queue(Engine *n, Ticket *t) {
    Ticket **at = &n->queue, *before = NULL;
    while (*at && *at != t) before = *at, at = &before->next;
    if (!*at) return;
    *at = t->next;
    if (n->queue_end == t) n->queue_end = before;
    n->n_queued -= t->r.samples - t->begun;
    t->begun = t->r.samples;
}

/* ids of the slot that are in its cache for certain, where its prompt is not read yet; -1: it is. */
static int64_t leave_prefill(Engine *n, int slot) {
    PromptPack *w = &n->pack;
    if (n->reading == slot) {
        n->reading = -1;
        return n->read_from;
    }
    for (int i = 0; i < w->n; i++) {
        if (w->slot[i] != slot) continue;
        int64_t from = w->from[i];
        w->tokens -= n->slot[slot].n - from;
        w->n--;
        for (int k = i; k < w->n; k++) w->slot[k] = w->slot[k + 1], w->from[k] = w->from[k + 1];
        return from;
    }
    return -1;
}

static void cancel(Engine *n, Ticket *t) {
    int next = t->r.first_sample + t->begun;
    leave_queue(n, t);
    if (!t->open) event_push_cancelled(n, t, next);
    for (int i = 0; i < n->g->spec.slots; i++) {
        if (n->slot[i].ticket != t) continue;
        int64_t cached = leave_prefill(n, i);
        if (cached >= 0) n->slot[i].n_cached = cached;
        pending_forget(n, i);
        slot_end(n, i, GEN_END_CANCELLED);
    }
}

void engine_cancel(Engine *n, int64_t ticket) {
    for (int64_t i = 0; i < n->g->spec.slots; i++) {
        Ticket *t = n->slot[i].ticket;
        if (!t || t->id != ticket) continue;
        cancel(n, t);
        return;
    }
    for (Ticket *t = n->queue; t; t = t->next) {
        if (t->id != ticket) continue;
        cancel(n, t);
        return;
    }
}

void engine_cancel_all(Engine *n) {
    for (int64_t i = 0; i < n->g->spec.slots; i++)
        if (n->slot[i].ticket) cancel(n, n->slot[i].ticket);
    while (n->queue) cancel(n, n->queue);
}
