/* test_verify.c - each rule that verify knows, broken once on purpose. */
#include "plan/plan.h"
#include "tests/plan/decoder.h"
#include "tests/test.h"

typedef struct Planned {
    Program p;
    Machine m;
} Planned;

static void planned(Planned *q, Home home) {
    Decoder d = decoder_tiny;
    RecomputeLevel per_layer[8] = {RECOMPUTE_BLOCK, RECOMPUTE_NORM, RECOMPUTE_FFN};
    d.rank = 2;
    d.home = home;
    q->m = machine_generic_cpu(1);
    decoder_record(&q->p, &d);
    plan_recompute(&q->p, per_layer, d.layers);
    plan_materialise(&q->p);
    plan_all(&q->p, &q->m);
    Err e = {0};
    EXPECT_OK(plan_verify(&q->p, &e));
}

static void refused(Planned *q, const char *because) {
    Err e = {0};
    bool ok = plan_verify(&q->p, &e);
    if (!EXPECT(!ok && strstr(e.text, because)))
        test_note("    expected '%s', got '%s'", because, ok ? "(passes)" : e.text);
    prog_free(&q->p);
}

static int find_step(const Program *p, OpId op, bool clone) {
    for (int i = 0; i < p->n_s; i++)
        if (p->s[i].op == op && (p->s[i].clone_of >= 0) == clone) return i;
    CHECK(false);
    return -1;
}

static const Home device = {POOL_DEVICE, FMT_BF16, 0}, host = {POOL_HOST, FMT_INT8, 0};

TEST(verify_finds_a_tensor_without_a_place) {
    Planned q;
    planned(&q, device);
    q.p.t[prog_first_out(&q.p.s[5])].offset = -1;
    refused(&q, "has no place");
}

TEST(verify_finds_a_view_outside_its_base) {
    Planned q;
    planned(&q, device);
    Tid part = q.p.s[find_step(&q.p, OP_SUM_SQUARES, false)].sum_squares.out.part;
    q.p.t[part].offset += 8;
    refused(&q, "does not lie inside its base");
}

TEST(verify_finds_two_writers) { /* P1 */
    Planned q;
    planned(&q, device);
    int add = find_step(&q.p, OP_ADD, false);
    q.p.s[add].add.out.sum = q.p.s[add].add.in.a;
    refused(&q, "(P1)");
}

TEST(verify_finds_an_overwritten_weight) {
    Planned q;
    planned(&q, device);
    Tid x = q.p.s[find_step(&q.p, OP_EMBED, false)].embed.out.x;
    q.p.t[x].offset = q.p.t[prog_find(&q.p, "norm")].offset;
    refused(&q, "lives always");
}

TEST(verify_finds_an_output_over_its_input) { /* P3: rmsnorm shares with nobody */
    Planned q;
    planned(&q, device);
    Step *s = &q.p.s[find_step(&q.p, OP_RMSNORM, false)];
    q.p.t[s->rmsnorm.out.y].offset = q.p.t[s->rmsnorm.in.x].offset;
    refused(&q, "(P3)");
}

TEST(verify_finds_scratch_over_an_input) {
    Planned q;
    planned(&q, device);
    Step *s = &q.p.s[find_step(&q.p, OP_LINEAR, false)];
    q.p.t[s->workspace].offset = q.p.t[s->linear.in.x].offset;
    refused(&q, "scratch over its input");
}

TEST(verify_finds_an_overwritten_activation) {
    Planned q;
    planned(&q, device);
    Step *first = &q.p.s[find_step(&q.p, OP_EMBED, false)]; /* its output is needed in backward */
    for (int i = 40; i < q.p.n_s; i++) {
        if (q.p.s[i].op != OP_SWIGLU) continue;
        q.p.t[q.p.s[i].swiglu.out.h].offset = q.p.t[first->embed.out.x].offset;
        break;
    }
    refused(&q, "overwritten by");
}

TEST(verify_finds_a_clone_that_differs) { /* P6 */
    Planned q;
    planned(&q, device);
    q.p.s[find_step(&q.p, OP_LORA, true)].key++;
    refused(&q, "(P6)");
}

TEST(verify_finds_a_clone_with_another_input) {
    Planned q;
    planned(&q, device);
    Step *c = &q.p.s[find_step(&q.p, OP_RMSNORM, true)];
    Tid one = prog_find(&q.p, "layers.0.norm1"), other = prog_find(&q.p, "layers.0.norm2");
    c->rmsnorm.in.w = c->rmsnorm.in.w == one ? other : one;
    refused(&q, "reads");
}

TEST(verify_finds_state_written_before_a_clone) { /* P4: an adapter changes between forward and recompute */
    Planned q;
    planned(&q, device);
    int clone = find_step(&q.p, OP_LORA, true), loss = find_step(&q.p, OP_TOKEN_SUM, false);
    EXPECT(q.p.s[clone].clone_of < loss && loss < clone);
    q.p.s[loss].token_sum.out.stat = q.p.s[clone].lora.in.b;
    refused(&q, "(P4)");
}

TEST(verify_finds_a_missing_wait) { /* P8 */
    Planned q;
    planned(&q, host);
    Step *decode = &q.p.s[find_step(&q.p, OP_DECODE, false)];
    EXPECT(decode->wait[QUEUE_COPY_IN] >= 0);
    decode->wait[QUEUE_COPY_IN] = -1;
    refused(&q, "(P8)");
}

TEST(verify_finds_a_wait_for_a_later_step) {
    Planned q;
    planned(&q, host);
    int decode = find_step(&q.p, OP_DECODE, false);
    q.p.s[decode].wait[QUEUE_COPY_IN] = decode + 1;
    refused(&q, "not before it");
}
