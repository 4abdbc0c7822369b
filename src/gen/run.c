/* run.c - the loop: fill free slots, queue a decode pass, take the tokens of the one before, say what is certain.
 *
 * Tokens are drawn on the device and stay there: a pass picks up what the pass before it drew. The host learns them by
 * notes. Where the device works while the host goes on (late), the next pass is queued before the host reads the last
 * one's tokens; an answer that turns out to have ended has then cost one token of its slot, which is dropped. */
#include <string.h>

#include "base/rng.h"
#include "gen/gen.h"
#include "obs/sensors.h"

const char *gen_end_name(GenEnd end) {
    return end == GEN_END_LENGTH ? "length" : end == GEN_END_ASKED ? "interrupted" : "stop";
}

/* ---- opening ---- */

bool gen_open(Gen *g, Err *e) {
    const GenSpec *s = &g->spec;
    int64_t tokens = MAX2(g->prefill[g->n_prefill - 1].seq, g->decode[g->n_decode - 1].rows);
    if (g->n_packs) tokens = MAX2(tokens, g->pack[g->n_packs - 1].rows);
    g->late = g->ring->b->asynchronous;
    g->slot = ARENA_NEW(&g->arena, GenSlot, s->slots);
    for (int64_t i = 0; i < s->slots; i++) {
        g->slot[i].ids = ARENA_NEW(&g->arena, int32_t, s->context + 1);
        g->slot[i].logp = ARENA_NEW(&g->arena, float, s->context + 1);
    }
    g->ids = ARENA_NEW(&g->arena, int32_t, tokens);
    g->positions = ARENA_NEW(&g->arena, int32_t, tokens);
    g->rows = ARENA_NEW(&g->arena, int32_t, tokens);
    g->drawn = ARENA_NEW(&g->arena, Drawn, s->slots);
    for (int i = 0; i < BACKEND_NOTES; i++) {
        g->news[i].slot = ARENA_NEW(&g->arena, int, s->slots);
        g->news[i].ticket = ARENA_NEW(&g->arena, int64_t, s->slots);
    }
    if (g->phase_init >= 0) exec_play(&g->ring->x, g->phase_init);
    return exec_sync(&g->ring->x, e);
}

void gen_close(Gen *g) {
    for (int64_t i = 0; g->slot && i < g->spec.slots; i++) spoken_free(&g->slot[i].spoken);
    arena_free(&g->arena);
    *g = (Gen){0};
}

/* ---- passes ---- */

/* The smallest that holds so many tokens, or the largest. */
static const GenPass *pass_for(const GenPass *pass, int n_passes, int64_t tokens) {
    int i = 0;
    while (i < n_passes - 1 && pass[i].rows * pass[i].seq < tokens) i++;
    return &pass[i];
}

/* What stands in g->ids (prefill), g->positions and g->rows. */
static void play(Gen *g, const GenPass *p) {
    int64_t n = p->rows * p->seq;
    if (p->last) exec_put(&g->ring->x, p->in.ids, g->ids, 0, n * 4);
    exec_put(&g->ring->x, p->in.positions, g->positions, 0, n * 4);
    exec_put(&g->ring->x, p->in.cache_rows, g->rows, 0, p->rows * 4);
    exec_play(&g->ring->x, p->phase);
    g->counts.plays++;
}

/* Tokens [from, n) of the slot into the cache; the last one's logits into prompt_logits. */
static void prefill(Gen *g, int slot, int64_t from) {
    GenSlot *s = &g->slot[slot];
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
        exec_put(&g->ring->x, p->last, &last, 0, 4);
        play(g, p);
        from += count;
    }
    s->n_cached = s->n;
    g->serial = s->serial;
    g->prompt_slot = slot;
}

/* ---- news: what was drawn, on its way to the host ---- */

static GenNews *news_at(Gen *g, int i) { return &g->news[(g->first_news + i) % BACKEND_NOTES]; }

/* The slot's next token is drawn by what was queued last; told by the next send. */
static void expect_token(Gen *g, int slot) {
    GenNews *news = news_at(g, g->n_news);
    news->slot[news->n] = slot;
    news->ticket[news->n++] = g->slot[slot].ticket;
    g->slot[slot].n_drawn++;
}

static void send_news(Gen *g, bool first) {
    GenNews *news = news_at(g, g->n_news);
    if (!news->n) return;
    news->first = first;
    exec_note(&g->ring->x, (int)(news - g->news), g->draw.drawn);
    g->n_news++;
    CHECK(g->n_news < BACKEND_NOTES);
}

static void drop_news(Gen *g) {
    for (int i = 0; i < BACKEND_NOTES; i++) g->news[i].n = 0;
    g->first_news = g->n_news = 0;
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
    for (int l = 0; l < model_cache_tensors(&g->m) && to != g->prompt_slot; l++) {
        int64_t row = prog_bytes(&g->ring->p, g->cache[l]) / g->spec.slots, bytes = row / g->spec.context * n;
        char *base = exec_address(&g->ring->x, g->cache[l]);
        g->ring->b->copy(g->ring->b, QUEUE_COMPUTE, base + to * row, base + g->prompt_slot * row, bytes);
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

static bool take_token(Gen *g, GenSlot *s, Drawn drawn, const Tokenizer *t, const GenCalls *calls, Err *e) {
    int64_t at = s->n - s->r.n_prompt;
    if (drawn.id < 0)
        return fail(e, ERR_FAIL,
                    "the logits of request %lld, token %lld, are not finite. Are the weights sound, and does the "
                    "precision suit them?",
                    (long long)s->r.number, (long long)at);
    if (s->r.want_logp) s->logp[at] = drawn.logp;
    s->ids[s->n++] = drawn.id;
    g->counts.new_tokens++;
    bool is;
    GenEnd end;
    return ended(s, &end, t, calls, &is, e) && (!is || finish(g, s, t, calls, end, e));
}

/* The oldest news. The time since the last ones is that of what was queued in between. */
static bool hear_news(Gen *g, const Tokenizer *t, const GenCalls *calls, Err *e) {
    GenNews *news = news_at(g, 0);
    if (!exec_read_note(&g->ring->x, (int)(news - g->news), g->draw.drawn, g->drawn, e)) return false;
    double now = sensors_seconds();
    *(news->first ? &g->counts.prefill_seconds : &g->counts.decode_seconds) += now - g->heard_seconds;
    g->heard_seconds = now;
    int64_t n = news->n;
    news->n = 0;
    g->first_news = (g->first_news + 1) % BACKEND_NOTES;
    g->n_news--;
    for (int64_t i = 0; i < n; i++) {
        GenSlot *s = &g->slot[news->slot[i]];
        if (!s->busy || s->ticket != news->ticket[i]) continue;
        if (!news->first) s->n_cached = s->n;
        if (!take_token(g, s, g->drawn[news->slot[i]], t, calls, e)) return false;
    }
    return true;
}

/* Gives a sample of the request a free slot. */
static void enter(Gen *g, int slot, const Request *r, int64_t serial, int sample) {
    GenSlot *s = &g->slot[slot];
    s->busy = true;
    s->serial = serial;
    s->ticket = g->tickets++;
    s->r = *r;
    s->sample = sample;
    s->n = s->n_drawn = r->n_prompt;
    spoken_clear(&s->spoken);
    memcpy(s->ids, r->prompt, (size_t)r->n_prompt * 4);
    const Sampling *how = &r->sampling;
    DrawHow draw = {.key = rng_fold(r->key, (uint64_t)sample),
                    .temperature = how->temperature,
                    .top_p = how->top_p,
                    .min_p = how->min_p,
                    .repetition = how->repetition,
                    .top_k = (int32_t)MIN2(how->top_k, INT32_MAX),
                    .first = (int32_t)r->n_prompt,
                    .want_logp = r->want_logp,
                    .vocab = g->drawable};
    exec_put(&g->ring->x, g->draw.how, &draw, slot * (int64_t)sizeof draw, sizeof draw);
    exec_put(&g->ring->x, g->draw.ids, s->ids, slot * g->spec.context * 4, s->n * 4);
}

/* The first token of a slot's answer, from the prompt's logits. */
static void draw_first(Gen *g, int slot) {
    int32_t at = slot, position = (int32_t)g->slot[slot].n - 1;
    exec_put(&g->ring->x, g->first_slot, &at, 0, 4);
    exec_put(&g->ring->x, g->first_position, &position, 0, 4);
    exec_play(&g->ring->x, g->phase_first);
    expect_token(g, slot);
}

static void admit(Gen *g, int slot, const Request *r, int64_t serial, int sample) {
    bool shared = g->serial == serial;
    int64_t from = g->spec.invariant || shared ? 0 : common(&g->slot[slot], r);
    enter(g, slot, r, serial, sample);
    if (shared) share_prompt(g, slot);
    else prefill(g, slot, from);
    draw_first(g, slot);
}

/* ---- packs: short prompts prefilled together ---- */

/* Lets the request wait for others to share its pass; false: it is too long for what room there is, or is asked for
 * several samples, which share a prefill of their own. */
static bool join_pack(Gen *g, int slot, const Request *r, int64_t serial) {
    GenPack *w = &g->waiting;
    int64_t from = common(&g->slot[slot], r), room = g->n_packs ? g->pack[g->n_packs - 1].rows - w->tokens : 0;
    if (r->samples != 1 || w->n == GEN_PACKED || r->n_prompt - from > room) return false;
    enter(g, slot, r, serial, 0);
    w->slot[w->n] = slot;
    w->from[w->n++] = from;
    w->tokens += r->n_prompt - from;
    return true;
}

static void play_pack(Gen *g) {
    GenPack w = g->waiting;
    const GenPass *p = pass_for(g->pack, g->n_packs, w.tokens);
    int32_t ends[GEN_PACKED] = {0}, slots[GEN_PACKED] = {0}, positions[GEN_PACKED];
    int64_t at = 0;
    g->waiting = (GenPack){0};
    for (int i = 0; i < GEN_PACKED; i++) {
        positions[i] = -1;
        if (i >= w.n) continue;
        GenSlot *s = &g->slot[w.slot[i]];
        g->counts.shared_tokens += w.from[i];
        g->counts.prefill_tokens += s->n - w.from[i];
        for (int64_t k = w.from[i]; k < s->n; k++, at++) {
            g->positions[at] = (int32_t)k;
            g->rows[at] = w.slot[i];
        }
        ends[i] = (int32_t)at - 1;
        slots[i] = w.slot[i];
        positions[i] = (int32_t)s->n - 1;
        s->n_cached = s->n;
    }
    for (; at < p->rows; at++) g->positions[at] = -1, g->rows[at] = 0;
    exec_put(&g->ring->x, p->ends, ends, 0, sizeof ends);
    exec_put(&g->ring->x, p->end_slots, slots, 0, sizeof slots);
    exec_put(&g->ring->x, p->end_positions, positions, 0, sizeof positions);
    play(g, p);
    for (int i = 0; i < w.n; i++) expect_token(g, w.slot[i]);
}

static void prefill_waiting(Gen *g) {
    if (g->waiting.n > 1) {
        play_pack(g);
        return;
    }
    GenPack one = g->waiting; /* alone: as any other */
    g->waiting = (GenPack){0};
    prefill(g, one.slot[0], one.from[0]);
    draw_first(g, one.slot[0]);
}

/* ---- the loop ---- */

static void decode_some(Gen *g, const int *slots, int64_t n) {
    const GenPass *p = pass_for(g->decode, g->n_decode, n);
    for (int64_t i = 0; i < p->rows; i++) {
        g->positions[i] = i < n ? (int32_t)(g->slot[slots[i]].n_drawn - 1) : -1;
        g->rows[i] = i < n ? slots[i] : 0;
    }
    play(g, p);
    for (int64_t i = 0; i < n; i++) expect_token(g, slots[i]);
}

/* Queues the next token of every answer that may have one more; gives how many. */
static int64_t decode_all(Gen *g) {
    int slots[GEN_MOST_SLOTS];
    int64_t n = 0, most = g->decode[g->n_decode - 1].rows;
    for (int i = 0; i < g->spec.slots; i++) {
        const GenSlot *s = &g->slot[i];
        if (s->busy && s->n_drawn - s->r.n_prompt < s->r.max_new) slots[n++] = i;
    }
    for (int64_t i = 0; i < n; i += most) decode_some(g, slots + i, MIN2(most, n - i));
    return n;
}

static bool any_busy(const Gen *g) {
    for (int64_t i = 0; i < g->spec.slots; i++)
        if (g->slot[i].busy) return true;
    return false;
}

static bool interrupt(Gen *g, const Tokenizer *t, const GenCalls *calls, Err *e) {
    drop_news(g);
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
        if (r->prompt[i] < 0 || r->prompt[i] >= g->spec.m.config.vocab)
            return fail(e, ERR_FAIL, "request %lld: id %d at place %lld is not one of the model's %lld tokens",
                        (long long)r->number, r->prompt[i], (long long)i, (long long)g->spec.m.config.vocab);
    return true;
}

typedef struct Turn { /* whose turn it is */
    Request r;
    int64_t serial; /* of r */
    int sample;     /* of r, to be admitted next */
    bool more;
} Turn;

static bool next_request(const Gen *g, Turn *turn, const GenCalls *calls, Err *e) {
    turn->serial++;
    turn->sample = 0;
    turn->more = calls->next(calls->user, &turn->r);
    return !turn->more || check_request(g, &turn->r, e);
}

enum { MEASURE_ROUNDS = 64 }; /* asking the system takes as long as a small pass */

/* Until every slot is taken or there are no more. */
static bool admit_all(Gen *g, Turn *turn, const Tokenizer *t, const GenCalls *calls, Err *e) {
    for (;;) {
        int slot = turn->more ? free_slot(g, &turn->r) : -1;
        bool waits = slot >= 0 && turn->sample == 0 && join_pack(g, slot, &turn->r, turn->serial);
        if (!waits && g->waiting.n) prefill_waiting(g);
        else if (!waits && slot >= 0) admit(g, slot, &turn->r, turn->serial, turn->sample++);
        else if (!waits) break;
        if ((waits || turn->sample >= turn->r.samples) && turn->more && !next_request(g, turn, calls, e)) return false;
        if (waits || g->late) continue;
        send_news(g, true);
        while (g->n_news)
            if (!hear_news(g, t, calls, e)) return false;
    }
    send_news(g, true);
    return true;
}

/* A round: admissions, then one token for each answer; of what was queued before that, every token is heard. */
static bool play_round(Gen *g, Turn *turn, const Tokenizer *t, const GenCalls *calls, Err *e) {
    if (!admit_all(g, turn, t, calls, e)) return false;
    int64_t queued = decode_all(g);
    send_news(g, false);
    while (g->n_news > (g->late && queued ? 1 : 0))
        if (!hear_news(g, t, calls, e)) return false;
    if (g->rounds++ % MEASURE_ROUNDS == 0) ring_measure(g->ring);
    return true;
}

bool gen_run(Gen *g, const Tokenizer *t, const GenCalls *calls, Err *e) {
    Turn turn = {.serial = g->serial};
    g->counts = (GenCounts){0};
    g->drawable = t ? (int32_t)MIN2(g->spec.m.config.vocab, tokenizer_vocab_size(t)) : 0;
    g->heard_seconds = sensors_seconds();
    drop_news(g);
    bool ok = next_request(g, &turn, calls, e);
    while (ok && (turn.more || any_busy(g))) {
        ok = play_round(g, &turn, t, calls, e);
        if (ok && calls->stop && *calls->stop) return interrupt(g, t, calls, e);
        if (ok && !turn.more) ok = next_request(g, &turn, calls, e); /* an answer may lead to another request */
    }
    ring_measure(g->ring);
    return ok;
}
