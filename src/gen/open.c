/* open.c - scratch buffers and random weights of planned passes, once their ring has its memory. */
#include "gen/gen.h"

int64_t gen_pass_tokens(const Gen *g) {
    int64_t tokens = MAX2(g->prefill[g->n_prefill - 1].seq, g->decode[g->n_decode - 1].rows);
    return g->n_packs ? MAX2(tokens, g->pack[g->n_packs - 1].rows) : tokens;
}

bool gen_open(Gen *g, Err *e) {
    int64_t tokens = gen_pass_tokens(g);
    arena_init(&g->arena, "generation");
    g->ids = ARENA_NEW(&g->arena, int32_t, tokens);
    g->positions = ARENA_NEW(&g->arena, int32_t, tokens);
    g->rows = ARENA_NEW(&g->arena, int32_t, tokens);
    if (g->phase_init >= 0) exec_play(&g->ring->x, g->phase_init);
    return exec_sync(&g->ring->x, e);
}

void gen_close(Gen *g) {
    arena_free(&g->arena);
    *g = (Gen){0};
}
