/* warm.c - warm-up: how every pass is played before the first request.
 *
 * Rows at position -1 are idle: they write nothing into the KV cache, attend to nothing and draw nothing, so these
 * plays change no state. */
#include <stdio.h>
#include <string.h>

#include "gen/gen.h"

/* Every input of a pass: rows from that position on, each in a slot of its own; -1: idle ones. */
static void load_rows(Gen *g, const GenPass *p, int64_t from) {
    int64_t n = p->rows * p->seq;
    int32_t last = 0, none[GEN_PACKED] = {0}, idle[GEN_PACKED];
    memset(idle, -1, sizeof idle);
    if (p->ends) {
        exec_put(&g->ring->x, p->ends, none, 0, sizeof none);
        exec_put(&g->ring->x, p->end_slots, none, 0, sizeof none);
        exec_put(&g->ring->x, p->end_positions, idle, 0, sizeof idle);
    }
    for (int64_t i = 0; i < n; i++) g->positions[i] = (int32_t)(from < 0 ? -1 : from + i % p->seq);
    for (int64_t i = 0; i < p->rows; i++) g->rows[i] = from < 0 ? 0 : (int32_t)(i % g->spec.slots);
    memset(g->ids, 0, (size_t)n * 4);
    if (p->last) exec_put(&g->ring->x, p->in.ids, g->ids, 0, n * 4);
    if (p->last) exec_put(&g->ring->x, p->last, &last, 0, 4);
    exec_put(&g->ring->x, p->in.positions, g->positions, 0, n * 4);
    exec_put(&g->ring->x, p->in.cache_rows, g->rows, 0, p->rows * 4);
}

static void play_idle(Gen *g, const GenPass *p) {
    load_rows(g, p, -1);
    exec_play(&g->ring->x, p->phase);
}

void gen_load(Gen *g) {
    if (g->phase_load >= 0) exec_play(&g->ring->x, g->phase_load);
}

static void play_all(void *gen) {
    Gen *g = gen;
    int32_t slot = 0, position = -1;
    gen_load(g);
    for (int i = 0; i < g->n_prefill; i++) play_idle(g, &g->prefill[i]);
    for (int i = 0; i < g->n_packs; i++) play_idle(g, &g->pack[i]);
    for (int i = 0; i < g->n_decode; i++) play_idle(g, &g->decode[i]);
    exec_put(&g->ring->x, g->first_slot, &slot, 0, 4);
    exec_put(&g->ring->x, g->first_position, &position, 0, 4);
    exec_play(&g->ring->x, g->phase_first);
}

bool gen_warm(Gen *g, Err *e) { return g->ring->b->host_memory || ring_warm(g->ring, play_all, g, e); }

typedef struct PassAt {
    Gen *g;
    const GenPass *pass;
    int64_t from; /* position */
} PassAt;

static void load_pass(void *pass_at) {
    PassAt *at = pass_at;
    load_rows(at->g, at->pass, at->from);
}

static bool profile_pass(PassAt at, Str *out, const char *what, Err *e) {
    enum { TIMES = 20 };
    char title[96];
    snprintf(title, sizeof title, "%s of %lld x %lld tokens, from position %lld on", what, (long long)at.pass->rows,
             (long long)at.pass->seq, (long long)at.from);
    return exec_profile(&at.g->ring->x, out, &at.pass->phase, 1, at.g->ring->b->host_memory ? 1 : TIMES,
                        (ProfileLoad){.load = load_pass, .user = &at}, title, e);
}

bool gen_profile(Gen *g, Str *out, Err *e) {
    const GenPass *prefill = &g->prefill[g->n_prefill - 1], *decode = &g->decode[g->n_decode - 1];
    return profile_pass((PassAt){.g = g, .pass = prefill}, out, "a prefill", e) &&
           profile_pass((PassAt){.g = g, .pass = decode, .from = g->spec.context - 1}, out, "a decode", e);
}
