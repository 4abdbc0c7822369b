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
    {POOL_DEVICE, FMT_INT8, 0}, {POOL_HOST, FMT_BF16, 0}, {POOL_HOST, FMT_NF4, 0}, {POOL_PINNED, FMT_F32, 0},
    {POOL_DISK, FMT_F32, 0},    {POOL_DISK, FMT_NF4, 0}};

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

TEST(materialise_places_homes) {
    Machine m = small_scratch();
    Decoder d = decoder_tiny;
    d.rank = 2;
    d.home = (Home){POOL_HOST, FMT_INT8, 0};
    Program p;
    decoder_record(&p, &d);
    Tid w = prog_find(&p, "layers.1.qkv");
    Tid k = prog_view(&p, "k", w, 16, 8); /* as files have it: k alone */
    p.t[k].file_name = "k_proj.weight";
    plan_materialise(&p);
    Placement pl = plan_all(&p, &m);
    EXPECT(p.t[w].role == ROLE_WEIGHT && p.t[w].format == FMT_INT8 && p.t[w].home.pool == POOL_HOST);
    EXPECT_STR(p.t[w].file_name, "layers.1.qkv");
    EXPECT(p.t[w].bytes == 32 * format_row_bytes(FMT_INT8, 16) && p.t[w].offset >= 0);
    /* row 16 */
    EXPECT(p.t[k].base == w && p.t[k].view_bytes == 16 * format_row_bytes(FMT_INT8, 16) && p.t[k].dim[0] == 8);
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

static bool reads(const Step *s, Tid id) {
    for (int k = 0; k < MAX_IN; k++)
        if (s->in[k] == id) return true;
    return false;
}

/* A copy is issued before the layer in front of its use is over, and the device holds a fraction of the
 * weights. */
TEST(materialise_copies_ahead) {
    Machine m = small_scratch();
    Decoder d = decoder_7b;
    Program resident, streamed;
    decoder_record(&resident, &d);
    int64_t all = plan_all(&resident, &m).arena_bytes[POOL_DEVICE];
    d.home = (Home){POOL_PINNED, FMT_BF16, 0};
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
        for (; !reads(&streamed.s[use], c->copy.out.dst); use++)
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

/* A phase whose product reads the weight as it is stored has no decode and no dense copy of it; another still has. */
TEST(materialise_leaves_quantised_weights_to_those_who_read_them) {
    static const Pool pools[] = {POOL_DEVICE, POOL_PINNED};
    Machine m = small_scratch();
    for (int k = 0; k < COUNT_OF(pools); k++) {
        Program p;
        Err e = {0};
        prog_init(&p);
        Tid w = prog_tensor(&p, "w", ROLE_WEIGHT, FMT_BF16, 2, DIMS(64, 96));
        p.t[w].home = (Home){pools[k], FMT_INT8, 0};
        Tid few = prog_tensor(&p, "few", ROLE_INPUT, FMT_BF16, 2, DIMS(2, 96));
        Tid many = prog_tensor(&p, "many", ROLE_INPUT, FMT_BF16, 2, DIMS(40, 96));
        prog_begin_phase(&p, "direct", 1);
        op_linear_direct(&p, "y", few, w, NONE);
        prog_end_phase(&p);
        prog_begin_phase(&p, "decoded", 1);
        op_linear(&p, "z", many, w, NONE);
        prog_end_phase(&p);
        plan_materialise(&p);
        plan_all(&p, &m);
        EXPECT_OK(plan_verify(&p, &e));
        bool away = pools[k] != POOL_DEVICE;
        EXPECT(count(&p, OP_DECODE, QUEUE_COMPUTE) == 1 && count(&p, OP_COPY, QUEUE_COPY_IN) == (away ? 2 : 0));
        const Step *direct = &p.s[p.phase[0].end - 1], *decoded = &p.s[p.phase[1].end - 1];
        Tid direct_w = direct->linear.in.w, decoded_w = decoded->linear.in.w;
        EXPECT(direct->op == OP_LINEAR && p.t[direct_w].format == FMT_INT8 && (direct_w == w) == !away);
        EXPECT(decoded->op == OP_LINEAR && p.t[decoded_w].format == FMT_BF16 && decoded_w != w);
        prog_free(&p);
    }
}

/* ---- state that is trained and lives elsewhere ---- */

enum { AWAY_WEIGHTS = 1, AWAY_MOMENTS = 2, AWAY_GRADIENTS = 4, AWAY_KINDS = 8 };

static void send_away(Program *p, int kinds, Pool pool) {
    for (Tid id = 1; id < p->n_t; id++) {
        Tensor *t = &p->t[id];
        bool goes = (t->role == ROLE_WEIGHT && kinds & AWAY_WEIGHTS && t->layer >= 0) ||
                    (t->role == ROLE_MOMENT && kinds & AWAY_MOMENTS) ||
                    (t->role == ROLE_GRADIENT && kinds & AWAY_GRADIENTS);
        if (goes) t->home.pool = pool;
    }
}

static int sums_of(const Program *p, OpId op) {
    int n = 0;
    for (int64_t i = 0; i < p->n_s; i++) n += p->s[i].op == op;
    return n;
}

TEST(streamed_state_is_changed_as_if_it_were_resident) {
    Machine m = small_scratch();
    for (int variant = 0; variant < AWAY_KINDS * 16; variant += test_brief() ? 5 : 1) { /* a fifth has every kind too */
        Decoder d = decoder_tiny;
        d.tied = variant / AWAY_KINDS / 4 % 2;
        RecomputeLevel per_layer[8] = {RECOMPUTE_BLOCK, RECOMPUTE_FFN, RECOMPUTE_BLOCK};
        d.accumulate = variant / AWAY_KINDS % 2 + 1;
        Program plain, streamed;
        Err e = {0};
        decoder_record(&plain, &d);
        decoder_record(&streamed, &d);
        int64_t recorded = plain.n_t;
        send_away(&streamed, variant % AWAY_KINDS, variant < AWAY_KINDS * 8 ? POOL_PINNED : POOL_DISK);
        if (variant / AWAY_KINDS / 2 % 2) plan_recompute(&streamed, per_layer, d.layers);
        plan_materialise(&streamed);
        plan_all(&plain, &m);
        Placement pl = plan_all(&streamed, &m);
        EXPECT_OK(plan_verify(&streamed, &e));
        EXPECT(play_differs(&streamed, pl.arena_bytes) < 0);
        EXPECT(play_same_state(&plain, &streamed, recorded));
        prog_free(&plain);
        prog_free(&streamed);
    }
}

/* Full training of the 7B shape: with everything streamed the device holds a few layers, not all of them; a
 * gradient of a phase that does not repeat is not copied in (M5). */
TEST(streamed_state_leaves_the_device) {
    Machine m = small_scratch();
    const int64_t gib = (int64_t)1 << 30;
    int64_t device[2];
    int copies[2];
    for (int repeats = 0; repeats < 2; repeats++) {
        Decoder d = decoder_7b;
        d.rank = 0;
        d.accumulate = 1 + repeats;
        RecomputeLevel per_layer[64];
        for (int l = 0; l < d.layers; l++) per_layer[l] = RECOMPUTE_BLOCK;
        Program p;
        Err e = {0};
        decoder_record(&p, &d);
        send_away(&p, AWAY_WEIGHTS | AWAY_MOMENTS | AWAY_GRADIENTS, POOL_PINNED);
        plan_recompute(&p, per_layer, d.layers);
        plan_materialise(&p);
        Placement pl = plan_all(&p, &m);
        EXPECT_OK(plan_verify(&p, &e));
        device[repeats] = pl.arena_bytes[POOL_DEVICE];
        copies[repeats] = sums_of(&p, OP_COPY);
        EXPECT(pl.arena_bytes[POOL_PINNED] > 50 * gib); /* weights, gradients and two moments of 7.6e9 numbers */
        prog_free(&p);
    }
    test_note("    device %.2f GiB, %.2f GiB with accumulation", (double)device[0] / (double)gib,
              (double)device[1] / (double)gib);
    EXPECT(device[0] < 10 * gib && device[1] < 10 * gib);
    EXPECT(copies[1] > copies[0]);
}

/* With everything on disk, pinned memory holds the buffers on the way, not the state. */
TEST(state_on_disk_leaves_pinned_memory_too) {
    Machine m = small_scratch();
    const int64_t gib = (int64_t)1 << 30;
    Decoder d = decoder_7b;
    RecomputeLevel per_layer[64];
    Program p;
    Err e = {0};
    d.rank = 0;
    for (int l = 0; l < d.layers; l++) per_layer[l] = RECOMPUTE_BLOCK;
    decoder_record(&p, &d);
    send_away(&p, AWAY_WEIGHTS | AWAY_MOMENTS | AWAY_GRADIENTS, POOL_DISK);
    plan_recompute(&p, per_layer, d.layers);
    plan_materialise(&p);
    Placement pl = plan_all(&p, &m);
    EXPECT_OK(plan_verify(&p, &e));
    test_note("    device %.2f GiB, pinned %.2f GiB, disk %.2f GiB", (double)pl.arena_bytes[POOL_DEVICE] / (double)gib,
              (double)pl.arena_bytes[POOL_PINNED] / (double)gib, (double)pl.arena_bytes[POOL_DISK] / (double)gib);
    EXPECT(pl.arena_bytes[POOL_DISK] > 50 * gib);
    EXPECT(pl.arena_bytes[POOL_DEVICE] < 10 * gib && pl.arena_bytes[POOL_PINNED] < 10 * gib);
    EXPECT(count(&p, OP_COPY, QUEUE_DISK_IN) > 0);
    m.disk_bytes_per_s = 1e18; /* a queue of its own rate */
    double free_reads = plan_step_seconds(&p, &m, 0);
    m.disk_bytes_per_s = 1e5;
    EXPECT(plan_step_seconds(&p, &m, 0) > 100 * free_reads);
    EXPECT(count(&p, OP_COPY, QUEUE_DISK_OUT) == count(&p, OP_COPY, QUEUE_COPY_OUT));
    prog_free(&p);
}

/* ---- activations that wait in pinned memory ---- */

TEST(offloaded_inputs_come_back) {
    Machine m = small_scratch();
    for (int variant = 0; variant < 16; variant++) {
        Decoder d = decoder_tiny;
        RecomputeLevel per_layer[8] = {RECOMPUTE_BLOCK, RECOMPUTE_FFN, RECOMPUTE_BLOCK};
        d.rank = variant & 1 ? 2 : 0;
        d.accumulate = variant & 2 ? 2 : 1;
        Program plain, away;
        Err e = {0};
        decoder_record(&plain, &d);
        decoder_record(&away, &d);
        int64_t recorded = plain.n_t;
        if (variant & 4) plan_recompute(&away, per_layer, d.layers);
        if (variant & 8) send_away(&away, AWAY_KINDS - 1, variant & 1 ? POOL_DISK : POOL_PINNED);
        plan_offload(&away, 2 + variant % 2, false);
        plan_materialise(&away);
        plan_all(&plain, &m);
        Placement pl = plan_all(&away, &m);
        EXPECT_OK(plan_verify(&away, &e));
        EXPECT(play_differs(&away, pl.arena_bytes) < 0);
        EXPECT(play_same_state(&plain, &away, recorded));
        EXPECT(count(&away, OP_COPY, QUEUE_COPY_OUT) > 0 && pl.arena_bytes[POOL_PINNED] > 0);
        prog_free(&plain);
        prog_free(&away);
    }
}

/* 28 inputs of 7B at 8192 tokens: with block recompute they are most of what is kept; two or three stay. */
TEST(offloaded_inputs_leave_the_device) {
    Machine m = small_scratch();
    int64_t bytes[2];
    for (int on = 0; on < 2; on++) {
        Decoder d = decoder_7b;
        RecomputeLevel per_layer[64];
        d.tokens = d.seq = 8192;
        for (int l = 0; l < d.layers; l++) per_layer[l] = RECOMPUTE_BLOCK;
        Program p;
        decoder_record(&p, &d);
        plan_recompute(&p, per_layer, d.layers);
        plan_offload(&p, on ? d.layers - 2 : 0, false);
        plan_materialise(&p);
        bytes[on] = plan_all(&p, &m).arena_bytes[POOL_DEVICE];
        prog_free(&p);
    }
    EXPECT(bytes[0] - bytes[1] > (int64_t)20 * 8192 * 3584 * 2);
}
