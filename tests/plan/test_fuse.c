/* test_fuse.c - an add and its norm become one step where nothing stands between them, and every pass around that keeps
 * its results. */
#include "plan/plan.h"
#include "tests/plan/decoder.h"
#include "tests/plan/player.h"
#include "tests/test.h"

static int count_ops(const Program *p, OpId op, Region region) {
    int n = 0;
    for (int64_t i = 0; i < p->n_s; i++) n += p->s[i].op == op && p->s[i].region == region;
    return n;
}

static Machine small_scratch(void) {
    Machine m = machine_generic_cpu(1);
    m.kind = MACHINE_CUDA;
    return m;
}

/* At every level of recompute: all adds of the stream are fused, a norm that is made again from a kept sum stays a
 * norm, one whose sum is made again too is fused again, state keeps its values, and the arena is no larger. */
TEST(fused_norms_keep_results_and_memory) {
    Machine m = small_scratch();
    for (int level = 0; level < RECOMPUTE_LEVELS; level++) {
        Decoder d = decoder_tiny;
        Program plain, fused;
        Err e = {0};
        RecomputeLevel per_layer[64];
        for (int l = 0; l < d.layers; l++) per_layer[l] = (RecomputeLevel)level;
        decoder_record(&plain, &d);
        plan_recompute(&plain, per_layer, d.layers);
        int64_t recorded = plain.n_t;
        prog_copy(&fused, &plain);
        plan_fuse(&fused);
        int adds = count_ops(&plain, OP_ADD, REGION_FORWARD), again = level >= RECOMPUTE_BLOCK ? d.layers : 0;
        EXPECT(adds > 0 && count_ops(&fused, OP_ADD, REGION_FORWARD) == 0);
        EXPECT(count_ops(&fused, OP_ADD_RMSNORM, REGION_FORWARD) == adds);
        EXPECT(count_ops(&fused, OP_ADD_RMSNORM, REGION_RECOMPUTE) == again);
        EXPECT(count_ops(&fused, OP_RMSNORM, REGION_RECOMPUTE) ==
               count_ops(&plain, OP_RMSNORM, REGION_RECOMPUTE) - again);
        Placement was = plan_all(&plain, &m), is = plan_all(&fused, &m);
        EXPECT_OK(plan_verify(&fused, &e));
        EXPECT(is.arena_bytes[POOL_DEVICE] <= was.arena_bytes[POOL_DEVICE]);
        EXPECT(play_differs(&fused, is.arena_bytes) < 0);
        EXPECT(play_same_state(&plain, &fused, recorded));
        prog_free(&plain);
        prog_free(&fused);
    }
}

TEST(fused_norms_are_found_when_a_half_is_wrong) { /* a clone of the norm alone that reads something else */
    Machine m = small_scratch();
    Decoder d = decoder_tiny;
    Program p;
    Err e = {0};
    RecomputeLevel per_layer[64];
    for (int l = 0; l < d.layers; l++) per_layer[l] = RECOMPUTE_NORM;
    decoder_record(&p, &d);
    plan_recompute(&p, per_layer, d.layers);
    plan_fuse(&p);
    plan_all(&p, &m);
    EXPECT_OK(plan_verify(&p, &e));
    bool planted = false;
    for (int64_t i = 0; i < p.n_s && !planted; i++) {
        Step *c = &p.s[i];
        if (c->op != OP_RMSNORM || c->clone_of < 0 || p.s[c->clone_of].op != OP_ADD_RMSNORM) continue;
        c->rmsnorm.in.x = p.s[c->clone_of].add_rmsnorm.in.a;
        planted = true;
    }
    EXPECT(planted && !plan_verify(&p, &e));
    prog_free(&p);
}

/* Something between the two that reads the sum on another queue, or the end of a phase: both stay. */
TEST(fused_norms_need_to_be_neighbours) {
    for (int way = 0; way < 3; way++) {
        Program p;
        prog_init(&p);
        Tid x = prog_tensor(&p, "x", ROLE_INPUT, FMT_F32, 2, DIMS(4, 8));
        Tid w = prog_tensor(&p, "w", ROLE_WEIGHT, FMT_F32, 1, DIMS(8));
        prog_begin_phase(&p, "one", 1);
        Tid sum = op_add(&p, "sum", x, x);
        if (way == 1) op_copy(&p, prog_like(&p, "away", sum), sum, QUEUE_COPY_OUT);
        if (way == 2) {
            prog_end_phase(&p);
            prog_begin_phase(&p, "two", 1);
        }
        op_rmsnorm(&p, sum, w, 1e-6f);
        prog_end_phase(&p);
        plan_fuse(&p);
        EXPECT(count_ops(&p, OP_ADD_RMSNORM, REGION_FORWARD) == (way == 0));
        prog_free(&p);
    }
}
