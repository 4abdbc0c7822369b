/* record.c - which passes an engine has, and how many bytes that is. */
#include <string.h>
#include <time.h>

#include "base/units.h"
#include "gen/engine.h"

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* ---- passes ---- */

/* What lives as long as the engine, a row a slot: settings, ids and what was drawn last. */
static void record_slots(Gen *g) {
    Program *p = &g->p;
    int64_t slots = g->spec.slots;
    g->draw = (DrawTensors){
        .how = prog_tensor(p, "sampling", ROLE_DIAL, FMT_I32, 2, DIMS(slots, DRAW_WORDS)),
        .drawn = prog_tensor(p, "drawn", ROLE_STATISTIC, FMT_I32, 2, DIMS(slots, DRAWN_WORDS)),
        .ids = prog_tensor(p, "ids_so_far", ROLE_STATISTIC, FMT_I32, 2, DIMS(slots, g->spec.context))};
    g->prompt_logits = prog_tensor(p, "prompt_logits", ROLE_STATISTIC, FMT_F32, 2, DIMS(1, g->spec.model.vocab));
}

/* The first token of an answer: samples of one prompt each draw from the same logits. */
static void record_first(Gen *g) {
    Program *p = &g->p;
    g->phase_first = prog_begin_phase(p, "first", 2);
    g->first_slot = prog_tensor(p, "first.slot", ROLE_INPUT, FMT_I32, 1, DIMS(1));
    g->first_position = prog_tensor(p, "first.position", ROLE_INPUT, FMT_I32, 1, DIMS(1));
    op_sample(p, g->draw, g->prompt_logits, g->first_slot, g->first_position);
    prog_end_phase(p);
}

static void record_init(Gen *g) { /* random weights, in the ring's first phase */
    Program *p = &g->p;
    g->phase_init = -1;
    if (!g->spec.fill) return;
    g->phase_init = prog_begin_phase(p, "init", 1);
    for (Tid t = 1, n = (Tid)p->n_t; t < n; t++) {
        if (p->t[t].role != ROLE_WEIGHT || !p->t[t].file_name) continue;
        p->layer = p->t[t].layer;
        op_fill(p, t, g->spec.fill(&g->spec.model, p->t[t].file_name, g->spec.seed));
    }
    p->layer = -1;
    prog_end_phase(p);
}

static Tid record_input(Gen *g, const char *prefix, const char *name, int64_t n) {
    return prog_tensor(&g->p, arena_printf(&g->p.arena, "%s.%s", prefix, name), ROLE_INPUT, FMT_I32, 1, DIMS(n));
}

static void record_pass(Gen *g, GenPass *pass, const char *name, int64_t rows, int64_t seq, bool packs) {
    Program *p = &g->p;
    const char *prefix = arena_printf(&p->arena, "%s%lld", name, (long long)(rows * seq));
    pass->rows = rows;
    pass->seq = seq;
    pass->phase = prog_begin_phase(p, prefix, 2); /* repeats: the cache is carried from play to play */
    pass->in = decoder_input(p, &g->d, prefix, rows, seq);
    pass->in.id_order = NONE; /* nothing is trained here */
    pass->in.cache_rows = record_input(g, prefix, "rows", rows);
    if (seq == 1) pass->in.ids = op_pick(p, g->draw.ids, pass->in.cache_rows, pass->in.positions);
    pass->in.distinct_cache_rows = !packs;
    pass->in.direct = rows * seq <= linear_direct_rows(&g->machine);
    Tid hidden = decoder_hidden(p, &g->d, &pass->in, g->cache, g->spec.context);
    if (seq > 1) { /* of a prompt only the last token's logits are wanted: a row of a table */
        pass->last = record_input(g, prefix, "last", rows);
        hidden = op_embed(p, hidden, pass->last, NONE, g->spec.activations);
    }
    Tid slots = pass->in.cache_rows, positions = pass->in.positions;
    if (packs) { /* a token is drawn for each prompt, not for each row */
        pass->ends = record_input(g, prefix, "ends", GEN_PACKED);
        slots = pass->end_slots = record_input(g, prefix, "end_slots", GEN_PACKED);
        positions = pass->end_positions = record_input(g, prefix, "end_positions", GEN_PACKED);
        hidden = op_embed(p, hidden, pass->ends, NONE, g->spec.activations);
    }
    Tid logits = op_head_logits(p, hidden, g->d.head);
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
    const ModelConfig *c = &s->model;
    if (c->sliding_window && s->context > c->sliding_window)
        return fail(e, ERR_USAGE,
                    "a context of %lld tokens: this model attends to a sliding window of %lld, which is not supported; "
                    "use --context %lld or less",
                    (long long)s->context, (long long)c->sliding_window, (long long)c->sliding_window);
    if (c->max_positions && s->context > c->max_positions)
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

int64_t gen_host_bytes(const Gen *g) { return engine_host_bytes(&g->spec); }

/* Kept plays: about 2.5 KB a kernel were seen on an H200, and a step is one or two of them. */
static int64_t graph_bytes(const Gen *g) {
    return g->machine.graph_bytes ? MAX2(g->machine.graph_bytes, 2 * MIB + g->p.n_s * 4 * KIB) : 0;
}

static void add_lines(Gen *g, const GenHost *host) {
    Ledger *l = &g->ledger;
    const Machine *m = &g->machine;
    Pool pool = m->kind == MACHINE_CPU ? POOL_DEVICE : POOL_HOST;
    int64_t program =
        g->p.cap_t * (int64_t)sizeof(Tensor) + g->p.cap_s * (int64_t)sizeof(Step) + g->p.n_s * (int64_t)(sizeof(Args) + 64);
    const struct {
        const char *name, *note;
        int64_t bytes;
    } device[] = {{"context", "the driver's own", m->context_bytes},
                  {"code", "kernels as they are first used", m->code_bytes},
                  {"graphs", "plays that are kept", graph_bytes(g)},
                  {"mappings", "page tables",
                   m->mapping_bytes + (int64_t)(m->mapping_share * (double)g->placement.arena_bytes[POOL_PINNED])}},
      process[] = {{"runtime", "code, heap, BLAS buffers, stacks", m->runtime_bytes + program},
                   {"tokenizer", NULL, host ? host->tokenizer : 0},
                   {"requests", "prompts, answers, sampling", gen_host_bytes(g) + (host ? host->requests : 0)}};
    for (int i = 0; i < COUNT_OF(device); i++)
        if (device[i].bytes) ledger_add(l, POOL_DEVICE, device[i].name, device[i].note, device[i].bytes, false);
    for (int i = 0; i < COUNT_OF(process); i++)
        if (process[i].bytes) ledger_add(l, pool, process[i].name, process[i].note, process[i].bytes, false);
#ifdef __SANITIZE_ADDRESS__ /* shadow bytes and freed blocks kept aside */
    ledger_add(l, pool, "sanitizers", "a debug build", 256 * MIB + g->placement.arena_bytes[POOL_DEVICE] / 4, false);
#endif
}

static void record_weights(Gen *g) {
    const GenSpec *s = &g->spec;
    Format base = s->model.dtype, stored = s->quantised ? s->stored : base;
    decoder_weights(&g->p, &g->d, &s->model,
                    &(WeightSpec){.format = base,
                                  .stored = stored,
                                  .activations = s->activations,
                                  .cache = s->cache,
                                  .gradients = s->activations,
                                  .lora = s->adapter});
    /* on the CPU pinned memory saves nothing: where disk is meant, embedding and head stay */
    bool all = s->sent >= s->model.layers, stays = g->machine.kind == MACHINE_CPU && s->on_disk;
    decoder_homes(&g->p, &g->d, stored, (DecoderAway){.layers = s->sent, .on_disk = s->on_disk, .outside = all && !stays});
    for (Tid t = 1; s->recast && t < g->p.n_t; t++) { /* what lies in the model's own files is converted on its way */
        Home *home = &g->p.t[t].home;
        if (home->pool == POOL_DISK && home->stored == base) home->stored = FMT_BF16;
    }
    if (s->head_int8) decoder_quantise_head(&g->p, &g->d);
}

static void record_cache_and_passes(Gen *g) {
    const GenSpec *s = &g->spec;
    g->cache = ARENA_NEW(&g->p.arena, Tid, s->model.layers);
    for (int l = 0; l < s->model.layers; l++) g->cache[l] = decoder_cache(&g->p, &g->d, l, s->slots, s->context);
    record_slots(g);
    record_init(g);
    record_passes(g);
}

bool gen_record(Gen *g, Program *p, const GenSpec *spec, const Machine *m, const Decoder *d, Err *e) {
    *g = (Gen){.spec = *spec, .machine = *m};
    if (!check_spec(spec, e)) return false;
    g->p = *p; /* lent while its steps are written */
    if (d) {
        g->d = *d;
        g->d.spec.cache = spec->cache;
    } else {
        record_weights(g);
    }
    record_cache_and_passes(g);
    *p = g->p;
    g->p = (Program){0};
    return true;
}

bool gen_plan(Gen *g, const GenSpec *spec, const Machine *m, const GenHost *host, Err *e) {
    *g = (Gen){.spec = *spec, .machine = *m};
    prog_init(&g->p);
    arena_init(&g->arena, "generation");
    if (!check_spec(spec, e)) return false;
    double began = now_ms();
    Program *p = &g->p;
    record_weights(g);
    for (Tid t = 1; t < p->n_t; t++) p->t[t].trainable = p->t[t].needs_grad = false; /* adapters are only applied */
    record_cache_and_passes(g);
    if (m->kind == MACHINE_CUDA) plan_gate(p);
    plan_fuse(p);
    plan_materialise(p);
    g->placement = plan_all(p, m);
    plan_ledger(p, &g->placement, m, &g->ledger);
    add_lines(g, host);
    g->plan_ms = now_ms() - began;
    return true;
}

static int64_t host_bytes(const Gen *g) {
    return ledger_process_bytes(&g->ledger, POOL_PINNED) + ledger_process_bytes(&g->ledger, POOL_HOST);
}

int64_t gen_beside_bytes(const Gen *g) { return g->machine.kind == MACHINE_CPU ? 0 : host_bytes(g); }

int64_t gen_process_bytes(const Gen *g) { /* on the CPU all pools are the same memory */
    return ledger_process_bytes(&g->ledger, POOL_DEVICE) + (g->machine.kind == MACHINE_CPU ? host_bytes(g) : 0);
}

int64_t gen_disk_bytes(const Gen *g) {
    return g->placement.arena_bytes[POOL_DISK] -
           (g->spec.fill ? 0 : plan_file_bytes(&g->p, g->spec.model.quant == QUANT_OWN));
}
