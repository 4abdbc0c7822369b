/* tiny_engine.c - how the small engine is made. */
#include "tests/gen/tiny_engine.h"

#include "tests/test.h"

static void fill_weights(Gen *g, int32_t poisoned) { /* large enough that the prompt matters */
    for (Tid t = 1; t < g->ring->p.n_t; t++) {
        if (g->ring->p.t[t].role != ROLE_WEIGHT || g->ring->p.t[t].base) continue;
        bool embedding = t == g->m.embedding;
        for (int64_t i = 0; i < prog_elements(&g->ring->p, t); i++) {
            uint32_t word = ((uint32_t)i + (uint32_t)t * 7919u) * 2654435761u;
            float x = ((float)(word >> 24) - 128.0f) / 300.0f;
            if (embedding && i / prog_cols(&g->ring->p, t) == poisoned) x = NAN;
            exec_put(&g->ring->x, t, &x, i * 4, 4);
        }
    }
}

bool tiny_engine_open(TinyEngine *t, TinySpec how) {
    Err e = {0};
    Machine m = {0};
    GenSpec spec = {.m = {.activations = FMT_F32},
                    .cache = FMT_F32,
                    .slots = how.slots ? how.slots : 4,
                    .context = TINY_CONTEXT,
                    .chunk = how.chunk ? how.chunk : 16,
                    .invariant = how.invariant};
    spec.m.config = (ModelConfig){.layers = 2,
                               .hidden = 32,
                               .heads = 2,
                               .kv_heads = 1,
                               .head_dim = 16,
                               .ffn = 48,
                               .vocab = TINY_TOKENS,
                               .rms_eps = 1e-5,
                               .rope_theta = 10000,
                               .tied = how.poisoned < 0,
                               .dtype = FMT_F32};
    *t = (TinyEngine){0};
    bool ok = backend_open(&t->b, "cpu", (BackendOptions){.threads = 1}, &e);
    if (ok) t->b->describe(t->b, &m);
    ok = ok && gen_plan(&t->g, &t->ring, &spec, &m, NULL, &e) && ring_open(&t->ring, t->b, &e) && gen_open(&t->g, &e);
    if (ok) fill_weights(&t->g, how.poisoned);
    ok = ok && gen_warm(&t->g, &e);
    if (!EXPECT(ok)) test_note("    %s", e.text);
    if (!ok) return false;
    engine_open(&t->n, &t->g, how.tokenizer, how.options);
    t->n.late = how.late;
    return true;
}

void tiny_engine_close(TinyEngine *t) {
    engine_close(&t->n);
    gen_close(&t->g);
    ring_close(&t->ring);
    t->b->close(t->b);
}
