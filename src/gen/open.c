/* open.c - how the memory of planned passes is taken and given back. */
#include "gen/gen.h"

int64_t gen_pass_tokens(const Gen *g) {
    int64_t tokens = MAX2(g->prefill[g->n_prefill - 1].seq, g->decode[g->n_decode - 1].rows);
    return g->n_packs ? MAX2(tokens, g->pack[g->n_packs - 1].rows) : tokens;
}

bool gen_open(Gen *g, Backend *b, Err *e) {
    const GenSpec *s = &g->spec;
    int64_t tokens = gen_pass_tokens(g);
    g->b = b;
    gen_measure_line(g, "context", 0);
    if (!exec_open(&g->x, &g->p, b, g->placement.arena_bytes, e)) return false;
    gen_measure_line(g, "mappings", g->x.pool_bytes[POOL_DEVICE]);
    g->ids = ARENA_NEW(&g->arena, int32_t, tokens);
    g->positions = ARENA_NEW(&g->arena, int32_t, tokens);
    g->rows = ARENA_NEW(&g->arena, int32_t, tokens);
    float inv_freq[512], scale;
    config_rope(&s->model, inv_freq, &scale);
    exec_put(&g->x, g->d.inv_freq, inv_freq, 0, s->model.head_dim / 2 * 4);
    if (g->phase_init >= 0) exec_play(&g->x, g->phase_init);
    return exec_sync(&g->x, e);
}

bool gen_settle(Gen *g, int64_t *own_bytes, Err *e) {
    *own_bytes = 0;
    return !g->x.pool_bytes[POOL_DISK] || (exec_sync(&g->x, e) && g->b->settle(g->b, own_bytes, e));
}

void gen_close(Gen *g) {
    if (g->x.b) exec_close(&g->x);
    arena_free(&g->arena);
    prog_free(&g->p);
    *g = (Gen){0};
}
