/* engine_event.c - the results of a step, kept until the caller takes them. */
#include "gen/engine_int.h"

const char *gen_end_name(GenEnd end) {
    return end == GEN_END_LENGTH ? "length" : end == GEN_END_CANCELLED ? "interrupted" : "stop";
}

static void push(Engine *n, PendingEvent ev) {
    n->event = mem_grow(n->event, &n->event_capacity, n->n_events + 1, sizeof *n->event);
    n->event[n->n_events++] = ev;
}

void event_push(Engine *n, EventKind kind, int slot, const char *error) {
    EngineSlot *s = &n->slot[slot];
    Ticket *t = s->ticket;
    bool ends = kind != EVENT_TEXT;
    if (!ends && s->text_pending) return; /* the event that waits will bring this text too */
    s->text_pending = !ends;
    if (ends) t->open--;
    push(n, (PendingEvent){.kind = kind,
                           .ticket = t,
                           .slot = slot,
                           .sample = s->sample,
                           .last = ends && !t->open && t->begun == t->r.samples,
                           .error = error ? mem_strdup(error) : NULL});
}

void event_push_cancelled(Engine *n, Ticket *t, int sample) {
    push(n, (PendingEvent){.kind = EVENT_DONE, .ticket = t, .slot = -1, .sample = sample, .last = true});
}

void events_clear(Engine *n) {
    for (int64_t i = 0; i < n->n_events; i++) {
        mem_free(n->event[i].error);
        if (n->event[i].last) mem_free(n->event[i].ticket);
    }
    n->n_events = n->n_taken = 0;
}

static void describe(const Engine *n, const PendingEvent *p, EngineEvent *out) {
    static const Str nothing = {0};
    const Request *r = &p->ticket->r;
    *out = (EngineEvent){.kind = p->kind,
                         .ticket = p->ticket->id,
                         .request = r,
                         .sample = p->sample,
                         .last = p->last,
                         .text = n->tokenizer ? &nothing : NULL,
                         .end = GEN_END_CANCELLED,
                         .error = p->error};
    if (p->slot < 0) return;
    const EngineSlot *s = &n->slot[p->slot];
    out->ids = s->ids + r->n_prompt;
    out->logp = r->want_logp ? s->logp : NULL;
    out->n = s->n - r->n_prompt;
    if (n->tokenizer) out->text = &s->stream.text;
    out->end = s->end;
}

bool engine_event(Engine *n, EngineEvent *out) {
    while (n->n_taken < n->n_events) {
        PendingEvent *p = &n->event[n->n_taken++];
        describe(n, p, out);
        if (p->kind != EVENT_TEXT) return true;
        EngineSlot *s = &n->slot[p->slot];
        bool ended = s->ticket != p->ticket; /* a slot is not filled again before the next step */
        s->text_pending = false;
        out->fresh = text_stream_take(&s->stream, &out->fresh_bytes, p->ticket->r.stops, ended);
        if (out->fresh_bytes > 0) return true;
    }
    return false;
}
