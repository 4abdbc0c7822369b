/* test_materialise.c - weights kept elsewhere or in another format are there when they are used, and cost a
 * stage. */
#include "plan/plan.h"
#include "tests/plan/decoder.h"
#include "tests/plan/player.h"
#include "tests/test.h"

static Machine small_scratch(void) {
    Machine m = machine_generic_cpu(1);
    m.kind = MACHINE_CUDA;
    return m;
}

static int count(const Program *p, OpId op, Queue queue) {
    int n = 0;
    for (int64_t i = 0; i < p->n_s; i++) n += p->s[i].op == op && p->s[i].queue == queue;
    return n;
}

static const Home homes[] = {
    {POOL_DEVICE, FMT_INT8}, {POOL_HOST, FMT_BF16}, {POOL_HOST, FMT_INT8}, {POOL_PINNED, FMT_F32}};

TEST(materialise_keeps_results) {
    Machine m = small_scratch();
    for (int variant = 0; variant < COUNT_OF(homes) * 3; variant++) {
        Decoder d = decoder_tiny;
        d.rank = 2;
        d.home = homes[variant % COUNT_OF(homes)];
        RecomputeLevel per_layer[8] = {RECOMPUTE_BLOCK, RECOMPUTE_FFN, RECOMPUTE_BLOCK};
        Program plain, brought;
        Err e = {0};
        decoder_record(&plain, &d);
        decoder_record(&brought, &d);
        int64_t recorded = plain.n_t;
        if (variant % 2) plan_recompute(&brought, per_layer, d.layers);
        plan_materialise_ahead(&brought, variant / COUNT_OF(homes)); /* 0, 1, 2 layers */
        plan_all(&plain, &m);
        Placement pl = plan_all(&brought, &m);
        EXPECT_OK(plan_verify(&brought, &e));
        EXPECT(play_differs(&brought, pl.arena_bytes) < 0);
        EXPECT(play_same_state(&plain, &brought, recorded));
        prog_free(&plain);
        prog_free(&brought);
    }
}

TEST(materialise_moves_names_and_places_homes) {
    Machine m = small_scratch();
    Decoder d = decoder_tiny;
    d.rank = 2;
    d.home = (Home){POOL_HOST, FMT_INT8};
    Program p;
    decoder_record(&p, &d);
    Tid w = prog_find(&p, "layers.1.qkv");
    Tid k = prog_view(&p, "k", w, 16, 8); /* as files have it: k alone */
    p.t[k].file_name = "k_proj.weight";
    plan_materialise(&p);
    Placement pl = plan_all(&p, &m);
    Tid home = prog_find(&p, "layers.1.qkv.home");
    EXPECT(home && p.t[home].role == ROLE_WEIGHT && p.t[home].format == FMT_INT8 &&
           p.t[home].home.pool == POOL_HOST);
    EXPECT_STR(p.t[home].file_name, "layers.1.qkv");
    EXPECT(p.t[w].file_name == NULL && p.t[w].birth < 0 && p.t[w].offset < 0);
    EXPECT(p.t[home].bytes == 32 * 16 + 32 * 4 && p.t[home].offset >= 0);
    Tid rows = NONE;
    for (Tid t = 1; t < p.n_t; t++)
        if (p.t[t].file_name && !strcmp(p.t[t].file_name, "k_proj.weight")) EXPECT(rows == NONE), rows = t;
    EXPECT(rows && p.t[rows].base == home && p.t[rows].view_bytes == 16 * 16 &&
           p.t[rows].dim[0] == 8); /* row 16 of codes */
    /* per layer 4 products: forward and backward of the micro-step, forward of the evaluation; no gradient flows
     * below the first layer's adapter, so its qkv is not needed again */
    EXPECT(count(&p, OP_COPY, QUEUE_COPY_IN) == 3 * 4 * 3 - 1 &&
           count(&p, OP_DECODE, QUEUE_COMPUTE) == 3 * 4 * 3 - 1);
    Ledger l = {0};
    plan_ledger(&p, &pl, &m, &l);
    LedgerLine *line = ledger_find(&l, POOL_HOST, "quantised weights");
    EXPECT(line && line->note && !strcmp(line->note, "int8"));
    int64_t sum = 0;
    for (int i = 0; i < l.n; i++) sum += l.line[i].pool == POOL_HOST ? l.line[i].planned_bytes : 0;
    EXPECT(sum == pl.arena_bytes[POOL_HOST]);
    prog_free(&p);
}

/* A copy is issued before the layer in front of its use is over, and the device holds a fraction of the
 * weights. */
TEST(materialise_copies_ahead) {
    Machine m = small_scratch();
    Decoder d = decoder_7b;
    Program resident, streamed;
    decoder_record(&resident, &d);
    int64_t all = plan_all(&resident, &m).arena_bytes[POOL_DEVICE];
    d.home = (Home){POOL_PINNED, FMT_BF16};
    decoder_record(&streamed, &d);
    plan_materialise(&streamed);
    Placement pl = plan_all(&streamed, &m);
    Err e = {0};
    EXPECT_OK(plan_verify(&streamed, &e));
    EXPECT(pl.arena_bytes[POOL_DEVICE] < all - 10 * ((int64_t)1 << 30));
    int late = 0, copies = 0;
    for (int64_t i = 0; i < streamed.n_s; i++) {
        const Step *c = &streamed.s[i];
        if (c->op != OP_COPY || i >= streamed.phase[0].end) continue;
        int64_t use = i + 1, others = 0; /* steps of another layer in front of the use */
        for (; streamed.s[use].in[1] != c->out[0]; use++)
            others += streamed.s[use].region != REGION_MOVE && streamed.s[use].layer != c->layer;
        copies++;
        late += others == 0;
    }
    EXPECT(copies == 28 * 4 * 2 - 1 && late == 0);
    /* copies overlap with computing: the phase takes as long as the slower of the two */
    m.copy_bytes_per_s = 1e18;
    double free_copies = plan_step_seconds(&streamed, &m, 0), plain = plan_step_seconds(&resident, &m, 0);
    EXPECT_NEAR(free_copies / plain, 1, 1e-3);
    m.copy_bytes_per_s = 1e5;
    EXPECT(plan_step_seconds(&streamed, &m, 0) > 100 * plain);
    prog_free(&resident);
    prog_free(&streamed);
}

TEST(materialise_leaves_what_is_at_home) {
    Decoder d = decoder_tiny;
    Program p;
    decoder_record(&p, &d);
    int64_t steps = p.n_s, tensors = p.n_t;
    plan_materialise(&p);
    EXPECT(p.n_s == steps && p.n_t == tensors);
    prog_free(&p);
}
