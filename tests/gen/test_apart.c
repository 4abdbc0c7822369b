/* test_apart.c - which passes promise that no two of their rows have the same row of the cache: a device may then put a
 * token's key there while others attend. */
#include "gen/gen.h"
#include "tests/test.h"

static void expect_apart(const Gen *g, const GenPass *pass, bool apart) {
    int puts = 0;
    for (int i = g->ring->p.phase[pass->phase].begin; i < g->ring->p.phase[pass->phase].end; i++) {
        const Step *s = &g->ring->p.s[i];
        if (s->op != OP_ROPE_PUT && s->op != OP_ATTEND_CACHE) continue;
        EXPECT(s->attr.heads.distinct_cache_rows == apart);
        puts += s->op == OP_ROPE_PUT;
    }
    EXPECT(puts == g->spec.m.config.layers);
}

TEST(rows_of_a_pass_are_apart_unless_prompts_are_packed) {
    Gen g;
    Ring r;
    Err e = {0};
    Machine m = machine_generic_cpu(1);
    GenSpec spec = {.m = {.activations = FMT_BF16}, .cache = FMT_BF16, .slots = 6, .context = 64, .chunk = 64};
    spec.m.config = (ModelConfig){.layers = 2, .hidden = 32, .heads = 2, .kv_heads = 1, .head_dim = 16, .ffn = 48,
                               .vocab = 90, .rms_eps = 1e-5, .rope_theta = 10000, .dtype = FMT_BF16};
    bool ok = gen_plan(&g, &r, &spec, &m, NULL, &e);
    EXPECT_OK(ok);
    if (!ok) return;
    EXPECT(g.n_decode == 4 && g.n_packs == 2);
    for (int i = 0; i < g.n_decode; i++) expect_apart(&g, &g.decode[i], true);
    for (int i = 0; i < g.n_packs; i++) expect_apart(&g, &g.pack[i], false); /* a row a token */
    for (int i = 0; i < g.n_prefill; i++) expect_apart(&g, &g.prefill[i], true);
    gen_close(&g);
    ring_close(&r);
}
