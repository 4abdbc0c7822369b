/* run.c - the loop: fill free slots, play a decode pass, take the tokens, say what is certain. */
#include <string.h>

#include "base/rng.h"
#include "gen/gen.h"
#include "obs/sensors.h"

const char *gen_end_name(GenEnd end) {
    return end == GEN_END_LENGTH ? "length" : end == GEN_END_ASKED ? "interrupted" : "stop";
}

/* ---- opening ---- */

bool gen_open(Gen *g, Backend *b, Err *e) {
    const GenSpec *s = &g->spec;
    int64_t tokens = MAX2(g->prefill[g->n_prefill - 1].seq, g->decode[g->n_decode - 1].rows);
    g->b = b;
    if (!exec_open(&g->x, &g->p, b, g->placement.arena_bytes, e)) return false;
    sampler_init(&g->sampler, &g->arena, s->model.vocab);
    g->slot = ARENA_NEW(&g->arena, GenSlot, s->slots);
    for (int64_t i = 0; i < s->slots; i++) {
        g->slot[i].ids = ARENA_NEW(&g->arena, int32_t, s->context + 1);
        g->slot[i].logp = ARENA_NEW(&g->arena, float, s->context + 1);
    }
    g->ids = ARENA_NEW(&g->arena, int32_t, tokens);
    g->positions = ARENA_NEW(&g->arena, int32_t, tokens);
    g->rows = ARENA_NEW(&g->arena, int32_t, tokens);
    g->prompt_logits = ARENA_NEW(&g->arena, float, s->model.vocab);
    if (!b->host_memory) g->logits = ARENA_NEW(&g->arena, float, g->decode[g->n_decode - 1].rows * s->model.vocab);
    float inv_freq[512], scale;
    config_rope(&s->model, inv_freq, &scale);
    exec_put(&g->x, g->d.inv_freq, inv_freq, 0, s->model.head_dim / 2 * 4);
    return true;
}

void gen_close(Gen *g) {
    for (int64_t i = 0; g->slot && i < g->spec.slots; i++) spoken_free(&g->slot[i].spoken);
    if (g->x.b) exec_close(&g->x);
    arena_free(&g->arena);
    prog_free(&g->p);
    *g = (Gen){0};
}

static void measure(Gen *g) {
    int64_t n = g->b->in_use(g->b);
    g->process_peak_bytes = MAX2(g->process_peak_bytes, n >= 0 ? n : sensors_anon_bytes());
}

/* ---- passes ---- */

/* The smallest that holds so many tokens, or the largest. */
static const GenPass *pass_for(const GenPass *pass, int n_passes, int64_t tokens) {
    int i = 0;
    while (i < n_passes - 1 && pass[i].rows * pass[i].seq < tokens) i++;
    return &pass[i];
}

/* What stands in g->ids, g->positions and g->rows; gives the logits, a row each. */
static const float *play(Gen *g, const GenPass *p, Err *e) {
    int64_t n = p->rows * p->seq, vocab = g->spec.model.vocab;
    exec_put(&g->x, p->in.ids, g->ids, 0, n * 4);
    exec_put(&g->x, p->in.positions, g->positions, 0, n * 4);
    exec_put(&g->x, p->in.cache_rows, g->rows, 0, p->rows * 4);
    exec_play(&g->x, p->phase);
    if (!exec_sync(&g->x, e)) return NULL;
    g->counts.plays++;
    if (g->b->host_memory) return exec_address(&g->x, p->logits);
    exec_get(&g->x, p->logits, g->logits, 0, p->rows * vocab * 4);
    return g->logits;
}

/* Tokens [from, n) of the slot into the cache; the last one's logits into prompt_logits. */
static bool prefill(Gen *g, int slot, int64_t from, Err *e) {
    GenSlot *s = &g->slot[slot];
    const float *logits = NULL;
    double began = sensors_seconds();
    g->counts.shared_tokens += from;
    g->counts.prefill_tokens += s->n - from;
    while (from < s->n) {
        const GenPass *p = pass_for(g->prefill, g->n_prefill, s->n - from);
        int64_t count = MIN2(p->seq, s->n - from);
        int32_t last = (int32_t)count - 1;
        for (int64_t i = 0; i < p->seq; i++) {
            g->ids[i] = i < count ? s->ids[from + i] : 0;
            g->positions[i] = i < count ? (int32_t)(from + i) : -1;
        }
        g->rows[0] = slot;
        exec_put(&g->x, p->last, &last, 0, 4);
        logits = play(g, p, e);
        if (!logits) return false;
        from += count;
    }
    if (!logits) return fail(e, ERR_FAIL, "a prompt without tokens");
    memcpy(g->prompt_logits, logits, (size_t)g->spec.model.vocab * 4);
    s->n_cached = s->n;
    g->serial = s->serial;
    g->prompt_slot = slot;
    g->counts.prefill_seconds += sensors_seconds() - began;
    return true;
}

/* ---- slots ---- */

static int64_t common(const GenSlot *s, const Request *r) { /* tokens that need no prefill; one must remain */
    int64_t n = 0, most = MIN2(s->n_cached, r->n_prompt - 1);
    while (n < most && s->ids[n] == r->prompt[n]) n++;
    return n;
}

/* A free slot: the one whose cache begins most like the prompt. -1: none is free. */
static int free_slot(const Gen *g, const Request *r) {
    int best = -1;
    for (int i = 0; i < g->spec.slots; i++)
        if (!g->slot[i].busy && (best < 0 || common(&g->slot[i], r) > common(&g->slot[best], r))) best = i;
    return best;
}

static void share_prompt(Gen *g, int to) { /* the cache of the prompt prefilled last, into another slot */
    int64_t n = g->slot[to].n;
    for (int l = 0; l < g->spec.model.layers && to != g->prompt_slot; l++) {
        int64_t row = prog_bytes(&g->p, g->cache[l]) / g->spec.slots, bytes = row / g->spec.context * n;
        char *base = exec_address(&g->x, g->cache[l]);
        g->b->copy(g->b, QUEUE_COMPUTE, base + to * row, base + g->prompt_slot * row, bytes);
    }
    g->slot[to].n_cached = n;
    g->counts.shared_tokens += n;
}

static Answer answer_of(const GenSlot *s, GenEnd end, bool text) {
    int64_t n = s->r.n_prompt;
    return (Answer){.request = &s->r,
                    .sample = s->sample,
                    .ids = s->ids + n,
                    .logp = s->r.want_logp ? s->logp : NULL,
                    .n = s->n - n,
                    .text = text ? &s->spoken.text : NULL,
                    .end = end};
}

static bool finish(Gen *g, GenSlot *s, const Tokenizer *t, const GenCalls *calls, GenEnd end, Err *e) {
    int64_t n = s->r.n_prompt;
    bool stopped;
    if (t && end != GEN_END_TEXT) { /* a stop string has already cut the text */
        int64_t said = s->n - n - (end == GEN_END_ID);
        if (!spoken_add(&s->spoken, &stopped, t, s->ids + n, said, s->r.stops, true, e)) return false;
    }
    Answer a = answer_of(s, end, t != NULL);
    int64_t bytes;
    const char *more = spoken_give(&s->spoken, &bytes, s->r.stops, true);
    if (calls->said && bytes > 0) calls->said(calls->user, &a, more, bytes);
    s->busy = false;
    return calls->done(calls->user, &a, e);
}

/* Whether the token just added ends the answer, and how. */
static bool ended(GenSlot *s, GenEnd *end, const Tokenizer *t, const GenCalls *calls, bool *is, Err *e) {
    int64_t n = s->r.n_prompt;
    int32_t id = s->ids[s->n - 1];
    bool stopped = false;
    *is = true;
    *end = GEN_END_ID;
    for (int i = 0; i < s->r.n_stop_ids; i++)
        if (s->r.stop_id[i] == id) return true;
    if (t && (s->r.stops.n || calls->said) &&
        !spoken_add(&s->spoken, &stopped, t, s->ids + n, s->n - n, s->r.stops, false, e))
        return false;
    *end = GEN_END_TEXT;
    if (stopped) return true;
    *end = GEN_END_LENGTH;
    if (s->n - n >= s->r.max_new) return true;
    *end = GEN_END_ASKED;
    int64_t bytes;
    const char *more = spoken_give(&s->spoken, &bytes, s->r.stops, false);
    Answer a = answer_of(s, *end, t != NULL);
    *is = calls->said && bytes > 0 && !calls->said(calls->user, &a, more, bytes);
    return true;
}

static bool take_token(Gen *g, GenSlot *s, const float *logits, const Tokenizer *t, const GenCalls *calls, Err *e) {
    int64_t at = s->n - s->r.n_prompt, vocab = g->spec.model.vocab;
    int32_t id = sample_token(&g->sampler, logits, &s->r.sampling, s->ids, s->n, s->key, at);
    if (id < 0)
        return fail(e, ERR_FAIL,
                    "the logits of request %lld, token %lld, are not finite. Are the weights sound, and does the "
                    "precision suit them?",
                    (long long)s->r.number, (long long)at);
    if (s->r.want_logp) s->logp[at] = sample_logp(logits, vocab, id);
    s->ids[s->n++] = id;
    g->counts.new_tokens++;
    bool is;
    GenEnd end;
    return ended(s, &end, t, calls, &is, e) && (!is || finish(g, s, t, calls, end, e));
}

/* Puts a sample of the request into a free slot and draws its first token. */
static bool admit(Gen *g, int slot, const Request *r, int64_t serial, int sample, const Tokenizer *t, const GenCalls *calls,
                  Err *e) {
    GenSlot *s = &g->slot[slot];
    bool shared = g->serial == serial;
    int64_t from = g->spec.invariant || shared ? 0 : common(s, r);
    s->busy = true;
    s->serial = serial;
    s->r = *r;
    s->sample = sample;
    s->key = rng_fold(r->key, (uint64_t)sample);
    s->n = r->n_prompt;
    spoken_clear(&s->spoken);
    memcpy(s->ids, r->prompt, (size_t)r->n_prompt * 4);
    if (shared) share_prompt(g, slot);
    else if (!prefill(g, slot, from, e)) return false;
    return take_token(g, s, g->prompt_logits, t, calls, e);
}

/* ---- the loop ---- */

static bool decode_some(Gen *g, const int *slots, int64_t n, const Tokenizer *t, const GenCalls *calls, Err *e) {
    const GenPass *p = pass_for(g->decode, g->n_decode, n);
    for (int64_t i = 0; i < p->rows; i++) {
        const GenSlot *s = i < n ? &g->slot[slots[i]] : NULL;
        g->ids[i] = s ? s->ids[s->n - 1] : 0;
        g->positions[i] = s ? (int32_t)(s->n - 1) : -1;
        g->rows[i] = s ? slots[i] : 0;
    }
    double began = sensors_seconds();
    const float *logits = play(g, p, e);
    for (int64_t i = 0; logits && i < n; i++) {
        GenSlot *s = &g->slot[slots[i]];
        s->n_cached = s->n;
        if (!take_token(g, s, logits + i * g->spec.model.vocab, t, calls, e)) return false;
    }
    g->counts.decode_seconds += sensors_seconds() - began;
    return logits != NULL;
}

static bool decode_all(Gen *g, bool *any, const Tokenizer *t, const GenCalls *calls, Err *e) {
    int slots[GEN_MOST_SLOTS];
    int64_t n = 0, most = g->decode[g->n_decode - 1].rows;
    for (int i = 0; i < g->spec.slots; i++)
        if (g->slot[i].busy) slots[n++] = i;
    *any = n > 0;
    for (int64_t i = 0; i < n; i += most)
        if (!decode_some(g, slots + i, MIN2(most, n - i), t, calls, e)) return false;
    return true;
}

static bool interrupt(Gen *g, const Tokenizer *t, const GenCalls *calls, Err *e) {
    for (int64_t i = 0; i < g->spec.slots; i++)
        if (g->slot[i].busy && !finish(g, &g->slot[i], t, calls, GEN_END_ASKED, e)) return false;
    return true;
}

static bool check_request(const Gen *g, const Request *r, Err *e) {
    if (r->n_prompt < 1) return fail(e, ERR_FAIL, "request %lld: the prompt has no tokens", (long long)r->number);
    if (r->n_prompt + MAX2(1, r->max_new) > g->spec.context)
        return fail(e, ERR_FAIL, "request %lld: %lld tokens of prompt and %lld of answer are more than the context of %lld",
                    (long long)r->number, (long long)r->n_prompt, (long long)r->max_new, (long long)g->spec.context);
    for (int64_t i = 0; i < r->n_prompt; i++)
        if (r->prompt[i] < 0 || r->prompt[i] >= g->spec.model.vocab)
            return fail(e, ERR_FAIL, "request %lld: id %d at place %lld is not one of the model's %lld tokens",
                        (long long)r->number, r->prompt[i], (long long)i, (long long)g->spec.model.vocab);
    return true;
}

static bool next_request(const Gen *g, Request *r, bool *more, const GenCalls *calls, Err *e) {
    *more = calls->next(calls->user, r);
    return !*more || check_request(g, r, e);
}

bool gen_run(Gen *g, const Tokenizer *t, const GenCalls *calls, Err *e) {
    Request r;
    int64_t serial = g->serial + 1; /* of r */
    int sample = 0;                 /* of r, to be admitted next */
    bool more, any = true;
    g->counts = (GenCounts){0};
    g->sampler.vocab = g->spec.model.vocab; /* a row that only fills the embedding up has no text, and is never drawn */
    if (t) g->sampler.vocab = MIN2(g->sampler.vocab, tokenizer_vocab_size(t));
    if (!next_request(g, &r, &more, calls, e)) return false;
    while (more || any) {
        int slot;
        while (more && (slot = free_slot(g, &r)) >= 0) {
            if (!admit(g, slot, &r, serial, sample, t, calls, e)) return false;
            if (++sample < r.samples) continue;
            sample = 0;
            serial++;
            if (!next_request(g, &r, &more, calls, e)) return false;
        }
        if (!decode_all(g, &any, t, calls, e)) return false;
        measure(g);
        if (calls->stop && *calls->stop) return interrupt(g, t, calls, e);
        if (!more && any && !next_request(g, &r, &more, calls, e)) return false; /* an answer may lead to another request */
    }
    return true;
}
