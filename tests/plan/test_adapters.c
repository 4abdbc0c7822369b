/* test_adapters.c - adapters go before the layers they stand beside where that is right, and only there. */
#include "tests/test.h"
#include "train/job.h"

typedef struct Pairs {
    int first, after; /* adapters before their layer, and behind it; in all phases */
    int64_t bytes;
} Pairs;

static Pairs planned(uint32_t targets, RecomputeLevel level, MachineKind kind, int64_t seq) {
    Err e = {0};
    JobSpec s = {.train = true, .lora = true, .m.activations = FMT_BF16, .weights = FMT_BF16, .gradients = FMT_BF16,
                 .moments = MOMENTS_BF16, .update = {.beta1 = 0.9f, .beta2 = 0.99f}, .seq = seq, .micro_batch = 1,
                 .accum = 1, .evaluate = true,
                 .m.adapter = {.rank = 8, .alpha = 16, .targets = targets, .format = FMT_BF16}};
    EXPECT(config_from_preset(&s.m.config, "qwen2.5-0.5b"));
    const char *small[] = {"num_hidden_layers=2", "vocab_size=1024"};
    EXPECT_OK(config_set(&s.m.config, small, NULL, COUNT_OF(small), &e));
    for (int l = 0; l < 2; l++) s.recompute[l] = level;
    Pairs n = {0};
    Job *j = MEM_NEW(Job, 1);
    Ring r;
    Machine m = machine_generic_cpu(2);
    m.kind = kind;
    EXPECT_OK(job_plan(j, &r, &s, &m, NULL, &e));
    EXPECT_OK(plan_verify(&r.p, &e));
    const Program *p = &r.p;
    for (int64_t i = 1; i < p->n_s; i++) {
        const Step *before = &p->s[i - 1], *step = &p->s[i];
        if (step->op == OP_LORA && step->lora.in.y0) n.after++;
        if (step->op != OP_LINEAR || !step->linear.in.so_far) continue;
        n.first++;
        EXPECT(before->op == OP_LORA && !before->lora.in.y0 && before->lora.out.y == step->linear.in.so_far);
        EXPECT(before->lora.in.x == step->linear.in.x);
        EXPECT(p->t[step->linear.out.y].slot == p->t[step->linear.in.so_far].slot); /* no memory for it */
    }
    n.bytes = r.placement.arena_bytes[POOL_DEVICE];
    ring_close(&r);
    mem_free(j);
    return n;
}

enum { ALL = 127, Q_AND_V = 1 << 0 | 1 << 2, GATE_AND_UP = 1 << 4 | 1 << 5 }; /* the decoder's projections */

TEST(adapters_go_first_on_a_gpu) {
    Pairs n = planned(ALL, RECOMPUTE_NONE, MACHINE_CUDA, 256);
    EXPECT(n.first == 2 * 2 * 4 && n.after == 0); /* two layers, a micro-step and an evaluation, four products */
    n = planned(ALL, RECOMPUTE_NONE, MACHINE_CPU, 256);
    EXPECT(n.first == 0 && n.after == 16);
}

TEST(what_is_made_again_keeps_the_order) {
    Pairs n = planned(ALL, RECOMPUTE_BLOCK, MACHINE_CUDA, 256);
    EXPECT(n.first > 16 && n.after == 0);
}

TEST(an_adapter_of_some_columns_stays_behind) {
    Pairs n = planned(Q_AND_V, RECOMPUTE_NONE, MACHINE_CUDA, 256);
    EXPECT(n.first == 0 && n.after == 4);
    n = planned(GATE_AND_UP, RECOMPUTE_NONE, MACHINE_CUDA, 256);
    EXPECT(n.first == 4 && n.after == 0);
}

TEST(a_few_rows_stay_as_they_are) {
    Pairs n = planned(ALL, RECOMPUTE_NONE, MACHINE_CUDA, LINEAR_DIRECT_ROWS);
    EXPECT(n.first == 0 && n.after == 16);
}
