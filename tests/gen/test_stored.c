/* test_stored.c - which passes of an engine read quantised weights as they are stored, and which decode them first:
 * known from the plan alone, for a machine that is not here. */
#include "gen/gen.h"
#include "tests/test.h"

/* Steps of that op in a pass. */
static int count_in(const Gen *g, const GenPass *pass, OpId op) {
    int n = 0;
    for (int i = g->ring->p.phase[pass->phase].begin; i < g->ring->p.phase[pass->phase].end; i++)
        n += g->ring->p.s[i].op == op;
    return n;
}

static void expect_stored(MachineKind kind, Format stored, int64_t most) {
    Gen g;
    Ring r;
    Err e = {0};
    Machine m = machine_generic_cpu(1);
    GenSpec spec = {.m = {.activations = FMT_BF16, .quantised = true, .stored = stored, .head_int8 = true},
                    .cache = FMT_BF16,
                    .slots = 130,
                    .context = 256,
                    .chunk = 256};
    spec.m.config = (ModelConfig){.layers = 2, .hidden = 32, .heads = 2, .kv_heads = 1, .head_dim = 16, .ffn = 48,
                               .vocab = 90, .rms_eps = 1e-5, .rope_theta = 10000, .dtype = FMT_BF16};
    m.kind = kind;
    bool ok = gen_plan(&g, &r, &spec, &m, NULL, &e);
    EXPECT_OK(ok);
    if (!ok) return;
    for (int i = 0; i < g.n_decode + g.n_packs + g.n_prefill; i++) {
        int k = i - g.n_decode;
        const GenPass *p = k < 0 ? &g.decode[i] : k < g.n_packs ? &g.pack[k] : &g.prefill[k - g.n_packs];
        int decodes = count_in(&g, p, OP_DECODE), gated = count_in(&g, p, OP_LINEAR_SWIGLU);
        int products = gated + count_in(&g, p, OP_LINEAR);
        bool few = kind == MACHINE_CUDA && p->rows * p->seq <= LINEAR_SWIGLU_ROWS;
        if (!EXPECT(products == 8 && gated == (few ? 2 : 0) && decodes == (p->rows * p->seq <= most ? 0 : products)))
            test_note("    %lld rows: %d of %d weights are decoded", (long long)(p->rows * p->seq), decodes, products);
    }
    gen_close(&g);
    ring_close(&r);
}

TEST(passes_of_some_rows_read_weights_as_they_are_stored) {
    expect_stored(MACHINE_CPU, FMT_INT8, INT64_MAX);
    expect_stored(MACHINE_CPU, FMT_NF4, INT64_MAX);
    expect_stored(MACHINE_CUDA, FMT_INT8, 128);
    expect_stored(MACHINE_CUDA, FMT_NF4, 128);
}
