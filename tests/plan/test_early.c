/* test_early.c - an update that moves into backward computes what it computed behind it, and gradients are gone
 * early. */
#include "plan/plan.h"
#include "tests/plan/decoder.h"
#include "tests/plan/player.h"
#include "tests/test.h"

/* Micro-step and update become one phase, and no update waits for the verdict over all gradients: the loss is its
 * verdict. */
static void record_together(Program *p, const Decoder *d) {
    decoder_record(p, d);
    Tid loss = prog_find(p, "loss"), verdict = prog_find(p, "verdict");
    EXPECT(loss && verdict && !strcmp(p->phase[1].name, "update"));
    for (int64_t i = 0; i < p->n_s; i++)
        for (int k = 0; k < MAX_IN; k++)
            if (p->s[i].in[k] == verdict) p->s[i].in[k] = loss;
    p->phase[0].end = p->phase[1].end;
    p->phase[1] = p->phase[2];
    p->n_phases--;
}

static int64_t gradient_steps(const Program *p) { /* how long gradients live, in steps, all together */
    int64_t n = 0;
    for (Tid id = 1; id < p->n_t; id++)
        if (p->t[id].role == ROLE_GRADIENT && p->t[id].birth >= 0) n += p->t[id].death - p->t[id].birth;
    return n;
}

TEST(an_update_moves_into_backward_and_keeps_results) {
    Machine m = machine_generic_cpu(1);
    m.kind = MACHINE_CUDA;
    for (int variant = 0; variant < 32; variant++) {
        Decoder d = decoder_tiny;
        RecomputeLevel per_layer[8] = {RECOMPUTE_BLOCK, RECOMPUTE_FFN, RECOMPUTE_BLOCK};
        Program behind, inside;
        Err e = {0};
        d.rank = variant & 1 ? 2 : 0;
        d.tied = variant & 2;
        d.accumulate = 1;
        record_together(&behind, &d);
        record_together(&inside, &d);
        int64_t recorded = behind.n_t;
        if (variant & 4) plan_recompute(&inside, per_layer, d.layers);
        plan_update_early(&inside);
        for (Tid id = 1; id < inside.n_t && variant & 24; id++) { /* pinned, on disk, or some of both */
            Role role = inside.t[id].role;
            bool goes =
                role == ROLE_MOMENT || role == ROLE_GRADIENT || (role == ROLE_WEIGHT && inside.t[id].layer >= 0);
            if (goes) inside.t[id].home.pool = (variant >> 3) + id % 2 > 2 ? POOL_DISK : POOL_PINNED;
        }
        plan_materialise(&inside);
        plan_all(&behind, &m);
        Placement pl = plan_all(&inside, &m);
        EXPECT_OK(plan_verify(&inside, &e));
        EXPECT(play_differs(&inside, pl.arena_bytes) < 0);
        EXPECT(play_same_state(&behind, &inside, recorded));
        if (!(variant & 28)) EXPECT(gradient_steps(&inside) < gradient_steps(&behind) / 2);
        prog_free(&behind);
        prog_free(&inside);
    }
}

/* 7B trained in full: 14 GiB of gradients become the few that are alive at once; recompute still works beside it. */
TEST(early_updates_leave_no_gradients) {
    Machine m = machine_generic_cpu(1);
    m.kind = MACHINE_CUDA;
    int64_t bytes[2];
    for (int on = 0; on < 2; on++) {
        Decoder d = decoder_7b;
        RecomputeLevel per_layer[64];
        Program p;
        Err e = {0};
        d.rank = 0;
        d.accumulate = 1;
        for (int l = 0; l < d.layers; l++) per_layer[l] = RECOMPUTE_BLOCK;
        record_together(&p, &d);
        plan_recompute(&p, per_layer, d.layers);
        if (on) plan_update_early(&p);
        bytes[on] = plan_all(&p, &m).arena_bytes[POOL_DEVICE];
        EXPECT_OK(plan_verify(&p, &e));
        prog_free(&p);
    }
    test_note("    %.2f GiB behind backward, %.2f GiB inside", (double)bytes[0] / 1073741824,
              (double)bytes[1] / 1073741824);
    EXPECT(bytes[0] - bytes[1] > (int64_t)11 << 30);
}

/* Where update and backward are phases of their own nothing moves. */
TEST(early_updates_leave_other_phases_alone) {
    Program p, q;
    Str a = {0}, b = {0};
    decoder_record(&p, &decoder_tiny);
    decoder_record(&q, &decoder_tiny);
    plan_update_early(&q);
    prog_listing(&a, &p);
    prog_listing(&b, &q);
    EXPECT_STR(str_text(&a), str_text(&b));
    str_free(&a), str_free(&b);
    prog_free(&p);
    prog_free(&q);
}
