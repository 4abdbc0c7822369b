/* engine.c - a step of continuous batching: which prompts are prefilled, which answers get a token, and when the host
 * reads the tokens.
 *
 * Tokens are sampled on the device and stay there: each pass reads the tokens of the previous one. The host reads them
 * by notes (asynchronous readback). On an asynchronous device (late) the next decode is queued before the host reads
 * the tokens of the last one; when an answer turns out to have ended, its slot has one token too many, which is
 * dropped. */
#include "base/stop.h"
#include "base/units.h"
#include "gen/engine_int.h"
#include "obs/sensors.h"

enum { MEASURE_EVERY = 64 }; /* decodes: asking the system takes as long as a small pass */

/* ---- opening ---- */

int64_t engine_host_bytes(const GenSpec *s) { /* rounded up for the arena; a queue of slots + 1 prompts */
    int64_t pending = BACKEND_NOTES * (int64_t)(sizeof(int) + sizeof(int64_t));
    int64_t slot =
        (int64_t)(sizeof(EngineSlot) + sizeof(Drawn) + 2 * sizeof(PendingEvent) + 2 * sizeof(Ticket)) + pending;
    return s->slots * (slot + s->context * 16) + 256 * KIB;
}

void engine_open(Engine *n, const Gen *g, const Tokenizer *t, EngineOptions options) {
    int64_t slots = g->spec.slots, context = g->spec.context, tokens = gen_pass_tokens(g);
    Exec *x = &g->ring->x;
    *n = (Engine){.g = g, .x = x, .tokenizer = t, .options = options, .reading = -1, .prompt_ticket = -1};
    n->late = x->b->asynchronous;
    n->drawable = t ? (int32_t)MIN2(g->spec.m.config.vocab, tokenizer_vocab_size(t)) : 0;
    arena_init(&n->arena, "engine");
    n->slot = ARENA_NEW(&n->arena, EngineSlot, slots);
    for (int64_t i = 0; i < slots; i++) {
        n->slot[i].ids = ARENA_NEW(&n->arena, int32_t, context + 1);
        n->slot[i].logp = ARENA_NEW(&n->arena, float, context + 1);
    }
    n->ids = ARENA_NEW(&n->arena, int32_t, tokens);
    n->positions = ARENA_NEW(&n->arena, int32_t, tokens);
    n->rows = ARENA_NEW(&n->arena, int32_t, tokens);
    n->drawn = ARENA_NEW(&n->arena, Drawn, slots);
    for (int i = 0; i < BACKEND_NOTES; i++) {
        n->pending[i].slot = ARENA_NEW(&n->arena, int, slots);
        n->pending[i].serial = ARENA_NEW(&n->arena, int64_t, slots);
    }
}

void engine_close(Engine *n) {
    if (!n->g) return;
    engine_cancel_all(n);
    events_clear(n);
    mem_free(n->event);
    for (int64_t i = 0; i < n->g->spec.slots; i++) text_stream_free(&n->slot[i].stream);
    arena_free(&n->arena);
    *n = (Engine){0};
}

/* ---- pending tokens: drawn, not read by the host yet ---- */

static PendingTokens *pending_at(Engine *n, int i) { return &n->pending[(n->first_pending + i) % BACKEND_NOTES]; }

/* The slot's next token is drawn by what was queued last; noted by the next note_tokens. */
static void expect_token(Engine *n, int slot) {
    PendingTokens *p = pending_at(n, n->n_pending);
    p->slot[p->n] = slot;
    p->serial[p->n++] = n->slot[slot].serial;
    n->slot[slot].n_drawn++;
}

void pending_forget(Engine *n, int slot) {
    PendingTokens *p = pending_at(n, n->n_pending);
    int64_t kept = 0;
    for (int64_t i = 0; i < p->n; i++) {
        if (p->slot[i] == slot) continue;
        p->slot[kept] = p->slot[i];
        p->serial[kept++] = p->serial[i];
    }
    p->n = kept;
}

static void note_tokens(Engine *n, bool first) {
    PendingTokens *p = pending_at(n, n->n_pending);
    if (!p->n) return;
    p->first = first;
    exec_note(n->x, (int)(p - n->pending), n->g->draw.drawn);
    n->n_pending++;
    CHECK(n->n_pending < BACKEND_NOTES);
}

static void drop_pending(Engine *n) {
    for (int i = 0; i < BACKEND_NOTES; i++) n->pending[i].n = 0;
    n->first_pending = n->n_pending = 0;
}

/* Reads the oldest pending tokens. The time since the last read is that of what was queued in between. */
static bool read_tokens(Engine *n, Err *e) {
    PendingTokens *p = pending_at(n, 0);
    if (!exec_read_note(n->x, (int)(p - n->pending), n->g->draw.drawn, n->drawn, e)) return false;
    double now = sensors_seconds();
    *(p->first ? &n->counts.prefill_seconds : &n->counts.decode_seconds) += now - n->read_seconds;
    n->read_seconds = now;
    int64_t count = p->n;
    p->n = 0;
    n->first_pending = (n->first_pending + 1) % BACKEND_NOTES;
    n->n_pending--;
    for (int64_t i = 0; i < count; i++) {
        EngineSlot *s = &n->slot[p->slot[i]];
        if (!s->ticket || s->serial != p->serial[i]) continue; /* its answer ended meanwhile */
        if (!p->first) s->n_cached = s->n;
        slot_take_token(n, p->slot[i], n->drawn[p->slot[i]]);
    }
    return true;
}

/* ---- passes ---- */

/* The smallest pass that holds so many tokens; the largest where none does. */
static const GenPass *pass_for(const GenPass *pass, int n_passes, int64_t tokens) {
    int i = 0;
    while (i < n_passes - 1 && pass[i].rows * pass[i].seq < tokens) i++;
    return &pass[i];
}

/* With the inputs that stand in n->ids (prefill), n->positions and n->rows. */
static void play(Engine *n, const GenPass *p) {
    int64_t tokens = p->rows * p->seq;
    if (p->last) exec_put(n->x, p->in.ids, n->ids, 0, tokens * 4);
    exec_put(n->x, p->in.positions, n->positions, 0, tokens * 4);
    exec_put(n->x, p->in.cache_rows, n->rows, 0, p->rows * 4);
    exec_play(n->x, p->phase);
    n->counts.plays++;
}

/* The first token of a slot's answer, from the prompt's logits. */
static void draw_first(Engine *n, int slot) {
    int32_t at = slot, position = (int32_t)n->slot[slot].n - 1;
    exec_put(n->x, n->g->first_slot, &at, 0, 4);
    exec_put(n->x, n->g->first_position, &position, 0, 4);
    exec_play(n->x, n->g->phase_first);
    expect_token(n, slot);
}

/* ---- decoding ---- */

/* The answer may get another token, and the one before it is drawn already. */
static bool decodes(const EngineSlot *s) {
    return s->ticket && s->n_drawn > s->ticket->r.n_prompt && s->n_drawn - s->ticket->r.n_prompt < s->ticket->r.max_new;
}

static bool any_decodes(const Engine *n) {
    for (int64_t i = 0; i < n->g->spec.slots; i++)
        if (decodes(&n->slot[i])) return true;
    return false;
}

static void decode_some(Engine *n, const int *slots, int64_t count) {
    const GenPass *p = pass_for(n->g->decode, n->g->n_decode, count);
    for (int64_t i = 0; i < p->rows; i++) {
        n->positions[i] = i < count ? (int32_t)(n->slot[slots[i]].n_drawn - 1) : -1;
        n->rows[i] = i < count ? slots[i] : 0;
    }
    play(n, p);
    for (int64_t i = 0; i < count; i++) expect_token(n, slots[i]);
}

/* Queues the next token of every answer that may have one more; gives how many. */
static int64_t decode_all(Engine *n) {
    int slots[GEN_MOST_SLOTS];
    int64_t count = 0, most = n->g->decode[n->g->n_decode - 1].rows;
    for (int i = 0; i < n->g->spec.slots; i++)
        if (decodes(&n->slot[i])) slots[count++] = i;
    for (int64_t i = 0; i < count; i += most) decode_some(n, slots + i, MIN2(most, count - i));
    return count;
}

/* One token for every answer; of what was queued before that, every token is read. */
static bool decode_step(Engine *n, Err *e) {
    note_tokens(n, true);
    int64_t queued = decode_all(n);
    n->prefilled = 0;
    note_tokens(n, false);
    while (n->n_pending > (n->late && queued ? 1 : 0))
        if (!read_tokens(n, e)) return false;
    if (n->decodes++ % MEASURE_EVERY == 0) ring_measure(n->g->ring);
    return true;
}

/* ---- prompts ---- */

/* Tokens of the prompt that the slot's cache holds already; one at least is left to be computed. */
static int64_t common_prefix(const EngineSlot *s, const Request *r) {
    int64_t n = 0, most = MIN2(s->n_cached, r->n_prompt - 1);
    while (n < most && s->ids[n] == r->prompt[n]) n++;
    return n;
}

/* A free slot: the one whose cache begins most like the prompt, if that is half of it or more. A shorter beginning
 * is not worth a cache that another request may continue: then the slot that loses the fewest tokens. -1: none is
 * free. */
static int free_slot(const Engine *n, const Request *r) {
    int like = -1, least = -1;
    int64_t like_prefix = -1;
    for (int i = 0; i < n->g->spec.slots; i++) {
        if (n->slot[i].ticket) continue;
        int64_t prefix = common_prefix(&n->slot[i], r);
        if (prefix > like_prefix) like = i, like_prefix = prefix;
        if (least < 0 || n->slot[i].n_cached < n->slot[least].n_cached) least = i;
    }
    return 2 * like_prefix >= r->n_prompt ? like : least;
}

/* Copies the cache of the prompt that was prefilled last into another slot. */
static void share_prompt(Engine *n, int to) {
    const Gen *g = n->g;
    Backend *b = n->x->b;
    int64_t tokens = n->slot[to].n;
    for (int l = 0; l < model_cache_tensors(&g->m) && to != n->prompt_slot; l++) {
        if (g->cache[l] == NONE) continue;
        int64_t row = prog_bytes(n->x->p, g->cache[l]) / g->spec.slots, bytes = row / g->spec.context * tokens;
        char *base = exec_address(n->x, g->cache[l]);
        b->copy(b, QUEUE_COMPUTE, base + to * row, base + n->prompt_slot * row, bytes);
    }
    n->slot[to].n_cached = tokens;
    n->counts.shared_tokens += tokens;
}

/* Prefills the prompt of a slot from that position on, one pass a step. */
static void begin_reading(Engine *n, int slot, int64_t from) {
    n->reading = slot;
    n->read_from = from;
    n->counts.shared_tokens += from;
    n->counts.prefill_tokens += n->slot[slot].n - from;
}

/* One pass of the prompt that is being read; behind its last token the answer's first one is drawn. */
static void read_prompt(Engine *n) {
    EngineSlot *s = &n->slot[n->reading];
    int64_t left = s->n - n->read_from;
    int64_t piece = n->options.piece && any_decodes(n) ? n->options.piece : left;
    const GenPass *p = pass_for(n->g->prefill, n->g->n_prefill, MIN2(piece, left));
    int64_t count = MIN2(p->seq, left);
    int32_t last = (int32_t)count - 1;
    for (int64_t i = 0; i < p->seq; i++) {
        n->ids[i] = i < count ? s->ids[n->read_from + i] : 0;
        n->positions[i] = i < count ? (int32_t)(n->read_from + i) : -1;
    }
    n->rows[0] = n->reading;
    exec_put(n->x, p->last, &last, 0, 4);
    play(n, p);
    n->read_from += count;
    n->prefilled += count;
    if (n->read_from < s->n) return;
    s->n_cached = s->n;
    n->prompt_ticket = s->ticket->id;
    n->prompt_slot = n->reading;
    draw_first(n, n->reading);
    n->reading = -1;
}

/* The next sample of the first request takes that slot: by the cache of its request's prompt, or by reading it. */
static void admit(Engine *n, int slot) {
    Ticket *t = n->queue;
    bool shared = n->prompt_ticket == t->id;
    int64_t from = n->g->spec.invariant || shared ? 0 : common_prefix(&n->slot[slot], &t->r);
    slot_enter(n, slot, t);
    if (shared) {
        share_prompt(n, slot);
        draw_first(n, slot);
    } else {
        begin_reading(n, slot, from);
        read_prompt(n);
    }
}

/* ---- packs: short prompts prefilled together ---- */

/* Lets the first request wait for others to share its pass; false: it is too long for what room there is, or is asked
 * for several samples, which share a prefill of their own. */
static bool join_pack(Engine *n, int slot) {
    PromptPack *w = &n->pack;
    Ticket *t = n->queue;
    const Request *r = &t->r;
    int64_t from = common_prefix(&n->slot[slot], r),
            room = n->g->n_packs ? n->g->pack[n->g->n_packs - 1].rows - w->tokens : 0;
    if (r->samples != 1 || w->n == GEN_PACKED || r->n_prompt - from > room) return false;
    slot_enter(n, slot, t);
    w->slot[w->n] = slot;
    w->from[w->n++] = from;
    w->tokens += r->n_prompt - from;
    return true;
}

static void play_pack(Engine *n) {
    PromptPack w = n->pack;
    const GenPass *p = pass_for(n->g->pack, n->g->n_packs, w.tokens);
    int32_t ends[GEN_PACKED] = {0}, slots[GEN_PACKED] = {0}, positions[GEN_PACKED];
    int64_t at = 0;
    n->pack = (PromptPack){0};
    for (int i = 0; i < GEN_PACKED; i++) {
        positions[i] = -1;
        if (i >= w.n) continue;
        EngineSlot *s = &n->slot[w.slot[i]];
        n->counts.shared_tokens += w.from[i];
        n->counts.prefill_tokens += s->n - w.from[i];
        for (int64_t k = w.from[i]; k < s->n; k++, at++) {
            n->positions[at] = (int32_t)k;
            n->rows[at] = w.slot[i];
        }
        ends[i] = (int32_t)at - 1;
        slots[i] = w.slot[i];
        positions[i] = (int32_t)s->n - 1;
        s->n_cached = s->n;
    }
    n->prefilled += w.tokens;
    for (; at < p->rows; at++) n->positions[at] = -1, n->rows[at] = 0;
    exec_put(n->x, p->ends, ends, 0, sizeof ends);
    exec_put(n->x, p->end_slots, slots, 0, sizeof slots);
    exec_put(n->x, p->end_positions, positions, 0, sizeof positions);
    play(n, p);
    for (int i = 0; i < w.n; i++) expect_token(n, w.slot[i]);
}

static void prefill_pack(Engine *n) {
    if (n->pack.n > 1) {
        play_pack(n);
        return;
    }
    PromptPack one = n->pack; /* alone: as any other */
    n->pack = (PromptPack){0};
    begin_reading(n, one.slot[0], one.from[0]);
    read_prompt(n);
}

/* Plays the next prefill pass; false: there is no prompt to read, or no slot for it. */
static bool prefill_next(Engine *n) {
    if (n->reading >= 0) {
        read_prompt(n);
        return true;
    }
    int slot = -1;
    while (n->queue) {
        slot = free_slot(n, &n->queue->r);
        if (slot < 0 || n->queue->begun || !join_pack(n, slot)) break;
        slot = -1;
    }
    if (n->pack.n) prefill_pack(n);
    else if (slot >= 0) admit(n, slot);
    else return false;
    return true;
}

/* ---- the step ---- */

/* Chunked prefill: a piece of the prompt has been read and other answers wait for their next token. */
static bool piece_is_read(const Engine *n) {
    return n->options.piece && n->prefilled >= n->options.piece && any_decodes(n);
}

static bool step(Engine *n, Err *e) {
    bool reads = prefill_next(n);
    if (reads && !n->late) {
        note_tokens(n, true);
        while (n->n_pending)
            if (!read_tokens(n, e)) return false;
    }
    return (reads && !piece_is_read(n)) || decode_step(n, e);
}

/* What the monitor shows. */
static void tell(Engine *n) {
    JobStatus *s = n->options.status;
    if (!status_is_due(s)) return;
    ring_measure(n->g->ring);
    status_tokens(s, n->counts.prefill_tokens + n->counts.new_tokens, ring_most_bytes(n->g->ring));
}

EngineState engine_step(Engine *n, Err *e) {
    CHECK_MSG(n->n_taken == n->n_events, "%lld events were not taken", (long long)(n->n_events - n->n_taken));
    events_clear(n);
    if (!n->n_busy) {
        drop_pending(n); /* of answers that have ended */
        n->read_seconds = sensors_seconds();
    }
    if (!n->n_busy && !n->queue) return ENGINE_IDLE;
    if (!step(n, e)) return ENGINE_BROKEN;
    tell(n);
    if (n->n_busy || n->queue) return ENGINE_BUSY;
    ring_measure(n->g->ring);
    return ENGINE_IDLE;
}

bool engine_ask(Engine *n, const EngineAsk *ask, Err *e) {
    int64_t next = 0;
    for (EngineState state = ENGINE_BUSY; state == ENGINE_BUSY || next < ask->total;) {
        while (next < ask->total && engine_room(n) > 0)
            if (!ask->submit(ask->user, next++, e)) return false;
        state = engine_step(n, e);
        if (state == ENGINE_BROKEN) return false;
        if (stop_asked()) engine_cancel_all(n);
        for (EngineEvent ev; engine_event(n, &ev);)
            if (!ask->take(ask->user, &ev, e)) return false;
        if ((ask->looked && !ask->looked(ask->user, e)) || !stop_check(e)) return false;
    }
    return true;
}
