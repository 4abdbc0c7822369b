/* warm.c - how every pass is played before the first request, and what the device took for it.
 *
 * A device loads code and chooses products in a program's first play and keeps the second (backend.h). Rows at position
 * -1 are idle: they put nothing into the cache, attend to nothing and draw nothing, so these plays leave no trace. */
#include <string.h>

#include "gen/gen.h"

enum { PLAYS = 2 }; /* the first loads, the second is kept */

void gen_measure_line(Gen *g, const char *name, int64_t less_bytes) {
    int64_t now = g->b->in_use(g->b);
    if (now < 0) return;
    LedgerLine *line = ledger_find(&g->ledger, POOL_DEVICE, name);
    if (line) line->measured_bytes = MAX2(line->measured_bytes, 0) + now - g->measured_bytes - less_bytes;
    g->measured_bytes = now;
}

static void play_idle(Gen *g, const GenPass *p) {
    int64_t n = p->rows * p->seq;
    int32_t last = 0, none[GEN_PACKED] = {0}, idle[GEN_PACKED];
    memset(idle, -1, sizeof idle);
    if (p->ends) {
        exec_put(&g->x, p->ends, none, 0, sizeof none);
        exec_put(&g->x, p->end_slots, none, 0, sizeof none);
        exec_put(&g->x, p->end_positions, idle, 0, sizeof idle);
    }
    for (int64_t i = 0; i < n; i++) g->positions[i] = -1;
    memset(g->rows, 0, (size_t)p->rows * 4);
    memset(g->ids, 0, (size_t)n * 4);
    if (p->last) exec_put(&g->x, p->in.ids, g->ids, 0, n * 4);
    if (p->last) exec_put(&g->x, p->last, &last, 0, 4);
    exec_put(&g->x, p->in.positions, g->positions, 0, n * 4);
    exec_put(&g->x, p->in.cache_rows, g->rows, 0, p->rows * 4);
    exec_play(&g->x, p->phase);
}

bool gen_warm(Gen *g, Err *e) {
    int32_t slot = 0, position = -1;
    gen_measure_line(g, "code", 0); /* of what was played while loading */
    for (int play = 0; play < PLAYS && !g->b->host_memory; play++) {
        for (int i = 0; i < g->n_prefill; i++) play_idle(g, &g->prefill[i]);
        for (int i = 0; i < g->n_packs; i++) play_idle(g, &g->pack[i]);
        for (int i = 0; i < g->n_decode; i++) play_idle(g, &g->decode[i]);
        exec_put(&g->x, g->first_slot, &slot, 0, 4);
        exec_put(&g->x, g->first_position, &position, 0, 4);
        exec_play(&g->x, g->phase_first);
        if (!exec_sync(&g->x, e)) return false;
        gen_measure_line(g, play ? "graphs" : "code", 0);
    }
    return true;
}
