/* record.c - which prefill and decode passes an engine has, and how many bytes they take. */
#include "gen/engine.h"
#include "weights/weights.h"

/* ---- passes ---- */

/* What lives as long as the engine, a row a slot: settings, ids and what was drawn last. */
static void record_slots(Gen *g) {
    Program *p = &g->ring->p;
    int64_t slots = g->spec.slots;
    g->draw = (DrawTensors){
        .how = prog_tensor(p, "sampling", ROLE_DIAL, FMT_I32, 2, DIMS(slots, DRAW_WORDS)),
        .drawn = prog_tensor(p, "drawn", ROLE_STATISTIC, FMT_I32, 2, DIMS(slots, DRAWN_WORDS)),
        .ids = prog_tensor(p, "ids_so_far", ROLE_STATISTIC, FMT_I32, 2, DIMS(slots, g->spec.context))};
    g->prompt_logits = prog_tensor(p, "prompt_logits", ROLE_STATISTIC, FMT_F32, 2, DIMS(1, g->spec.m.config.vocab));
}

/* The first token of an answer: samples of one prompt each draw from the same logits. */
static void record_first(Gen *g) {
    Program *p = &g->ring->p;
    g->phase_first = prog_begin_phase(p, "first", 2);
    g->first_slot = prog_tensor(p, "first.slot", ROLE_INPUT, FMT_I32, 1, DIMS(1));
    g->first_position = prog_tensor(p, "first.position", ROLE_INPUT, FMT_I32, 1, DIMS(1));
    op_sample(p, g->draw, g->prompt_logits, g->first_slot, g->first_position);
    prog_end_phase(p);
}

static void record_init(Gen *g) { /* random weights, in the ring's first phase */
    Program *p = &g->ring->p;
    if (!g->spec.m.random_init) return;
    g->phase_init = prog_begin_phase(p, "init", 1);
    weights_record_start(p, &g->m);
    prog_end_phase(p);
}

static Tid record_input(Gen *g, const char *prefix, const char *name, int64_t n) {
    return prog_tensor(&g->ring->p, arena_printf(&g->ring->p.arena, "%s.%s", prefix, name), ROLE_INPUT, FMT_I32, 1,
                       DIMS(n));
}

static void record_pass(Gen *g, GenPass *pass, const char *name, int64_t rows, int64_t seq, bool packs) {
    Program *p = &g->ring->p;
    const char *prefix = arena_printf(&p->arena, "%s%lld", name, (long long)(rows * seq));
    pass->rows = rows;
    pass->seq = seq;
    pass->phase = prog_begin_phase(p, prefix, 2); /* repeats: the cache is carried from play to play */
    pass->in = model_input(p, &g->m, prefix, rows, seq);
    pass->in.id_order = NONE; /* nothing is trained here */
    pass->in.cache = g->cache;
    pass->in.slots = g->spec.context;
    pass->in.cache_rows = record_input(g, prefix, "rows", rows);
    if (seq == 1) pass->in.ids = op_pick(p, g->draw.ids, pass->in.cache_rows, pass->in.positions);
    pass->in.distinct_cache_rows = !packs;
    pass->in.direct = rows * seq <= linear_direct_rows(&g->ring->machine);
    ModelOut out = {.tap_layer = -1};
    model_hidden(p, &g->m, &pass->in, &out);
    Tid hidden = out.hidden;
    if (seq > 1) { /* of a prompt only the last token's logits are wanted: a row of a table */
        pass->last = record_input(g, prefix, "last", rows);
        hidden = op_embed(p, hidden, pass->last, NONE, g->spec.m.activations);
    }
    Tid slots = pass->in.cache_rows, positions = pass->in.positions;
    if (packs) { /* a token is drawn for each prompt, not for each row */
        pass->ends = record_input(g, prefix, "ends", GEN_PACKED);
        slots = pass->end_slots = record_input(g, prefix, "end_slots", GEN_PACKED);
        positions = pass->end_positions = record_input(g, prefix, "end_positions", GEN_PACKED);
        hidden = op_embed(p, hidden, pass->ends, NONE, g->spec.m.activations);
    }
    Tid logits = op_head_logits(p, hidden, g->m.head);
    if (seq > 1) op_copy(p, g->prompt_logits, logits, QUEUE_COMPUTE);
    else op_sample(p, g->draw, logits, slots, positions);
    prog_end_phase(p);
}

/* Prompts: the chunk, and shorter passes for what is left of one. Answers: 1, 2, 4, ... up to all slots. */
static void record_passes(Gen *g) {
    const GenSpec *s = &g->spec;
    int64_t chunk = MAX2(2, MIN2(s->chunk, s->context));
    for (int64_t n = s->invariant || s->estimate ? chunk : MIN2(16, chunk);; n = MIN2(4 * n, chunk)) {
        record_pass(g, &g->prefill[g->n_prefill++], "prefill", 1, n, false);
        if (n == chunk || g->n_prefill == GEN_PASSES) break;
    }
    record_first(g); /* in between, where the cache is alive (L3) */
    if (s->invariant) {
        record_pass(g, &g->decode[g->n_decode++], "decode", GEN_INVARIANT_ROWS, 1, false);
        return;
    }
    /* short prompts together, a row a token: each knows its slot and position, as in decoding */
    int64_t most = MIN2(MIN2(s->chunk, GEN_PACK_TOKENS), s->slots * s->context);
    for (int64_t n = 32; s->slots > 1 && !s->estimate && n <= most; n *= 2)
        record_pass(g, &g->pack[g->n_packs++], "pack", n, 1, true);
    for (int64_t n = s->estimate ? s->slots : 1; g->n_decode < GEN_PASSES; n = MIN2(2 * n, s->slots)) {
        record_pass(g, &g->decode[g->n_decode++], "decode", n, 1, false);
        if (n == s->slots) break;
    }
}

/* ---- the plan ---- */

static bool check_spec(const GenSpec *s, Err *e) {
    const ModelConfig *c = &s->m.config;
    if (c->sliding_window && s->context > c->sliding_window)
        return fail(e, ERR_USAGE,
                    "a context of %lld tokens: this model attends to a sliding window of %lld, which is not supported; "
                    "use --context %lld or less",
                    (long long)s->context, (long long)c->sliding_window, (long long)c->sliding_window);
    if (c->max_positions && s->context > c->max_positions + 1) /* the last token of a request is never run */
        return fail(e, ERR_USAGE,
                    "a context of %lld tokens: this model knows %lld positions; shorten the prompt or --max-tokens",
                    (long long)s->context, (long long)c->max_positions);
    if (c->vocab > DRAW_MOST_VOCAB)
        return fail(e, ERR_USAGE, "a vocabulary of %lld tokens: at most %d can be drawn from", (long long)c->vocab,
                    DRAW_MOST_VOCAB);
    if (s->slots < 1 || s->slots > GEN_MOST_SLOTS)
        return fail(e, ERR_USAGE, "--slots %lld: must be from 1 to %d", (long long)s->slots, GEN_MOST_SLOTS);
    return true;
}

static void record_clear(Gen *g) {
    Program *p = &g->ring->p;
    g->phase_clear = prog_begin_phase(p, "clear", 1);
    for (int i = 0; i < model_cache_tensors(&g->m); i++)
        if (g->cache[i] != NONE) op_fill(p, g->cache[i], (AttrFill){.kind = FILL_CONSTANT});
    prog_end_phase(p);
}

bool gen_record(Gen *g, Ring *r, const GenSpec *spec, const Model *m, Err *e) {
    *g = (Gen){.spec = *spec, .ring = r, .phase_init = -1, .phase_clear = -1, .phase_load = -1};
    if (!check_spec(spec, e)) return false;
    if (m) g->m = *m;
    else model_weights(&r->p, &g->m, &spec->m, NULL);
    g->cache = model_cache(&r->p, &g->m, spec->slots, spec->context, spec->cache);
    record_slots(g);
    if (spec->shares_arena) record_clear(g);
    if (!m) record_init(g);
    if (!m && spec->m.by_phase) g->m.load = prog_load_phase(&r->p, "load");
    if (g->m.load) g->phase_load = g->m.load;
    record_passes(g);
    if (!m && g->m.load) prog_end_stay(&r->p, g->m.load);
    if (!m) model_homes(&r->p, &g->m, r->machine.kind);
    ring_add_host(r, "requests", "prompts, answers, sampling", engine_host_bytes(spec));
    return true;
}

bool gen_plan(Gen *g, Ring *r, const GenSpec *spec, const Machine *m, const GenHost *host, Err *e) {
    ring_init(r, m);
    if (!gen_record(g, r, spec, NULL, e)) return false;
    if (host) ring_add_host(r, "tokenizer", NULL, host->tokenizer);
    if (host) ring_add_host(r, "requests", "prompts, answers, sampling", host->requests);
    ring_plan(r, &(PlanChoices){0});
    return true;
}
