/* test_residual.c - products add to the residual stream themselves where that is right, and only there. */
#include "tests/test.h"
#include "train/job.h"

typedef struct Counted {
    int adding, adds, norms; /* products that add; adds, alone or with a norm; norms alone */
    int64_t bytes;
} Counted;

static Counted planned(bool lora, RecomputeLevel level, MachineKind kind, int64_t seq) {
    Err e = {0};
    JobSpec s = {.train = true, .lora = lora, .activations = FMT_BF16, .weights = FMT_BF16, .gradients = FMT_BF16,
                 .moments = MOMENTS_BF16, .update = {.beta1 = 0.9f, .beta2 = 0.99f}, .seq = seq, .micro_batch = 1,
                 .accum = 1, .sweep = true, .adapter = {.rank = 8, .alpha = 16, .format = FMT_BF16}};
    if (lora) s.adapter.targets = 1 << PROJ_DOWN;
    EXPECT(config_from_preset(&s.model, "qwen2.5-0.5b"));
    const char *small[] = {"num_hidden_layers=2", "vocab_size=1024"};
    EXPECT_OK(config_set(&s.model, small, COUNT_OF(small), &e));
    for (int l = 0; l < 2; l++) s.recompute[l] = level;
    Counted n = {0};
    Job *j = MEM_NEW(Job, 1);
    Machine m = machine_generic_cpu(2);
    m.kind = kind;
    EXPECT_OK(job_open(j, &s, &m, NULL, &e));
    EXPECT_OK(plan_verify(&j->p, &e));
    for (int64_t i = 0; i < j->p.n_s; i++) {
        const Step *step = &j->p.s[i];
        bool adding = step->op == OP_LINEAR && step->in[3] && j->p.s[i - 1].op != OP_LORA;
        n.adding += adding;
        n.adds += step->op == OP_ADD || step->op == OP_ADD_RMSNORM;
        n.norms += step->op == OP_RMSNORM;
        if (adding) EXPECT(j->p.t[step->out[0]].offset != j->p.t[step->in[0]].offset);
    }
    n.bytes = j->placement.arena_bytes[POOL_DEVICE];
    job_close(j);
    mem_free(j);
    return n;
}

TEST(products_add_to_the_residual_stream_on_a_gpu) {
    Counted n = planned(false, RECOMPUTE_NONE, MACHINE_CUDA, 256);
    EXPECT(n.adding == 4 && n.adds == 0 && n.norms == 5); /* two layers, two products each; two norms each and the last */
    n = planned(false, RECOMPUTE_NONE, MACHINE_CPU, 256);
    EXPECT(n.adding == 0 && n.adds == 4);
}

TEST(what_recompute_repeats_adds_as_the_original_did) {
    Counted n = planned(false, RECOMPUTE_BLOCK, MACHINE_CUDA, 256);
    EXPECT(n.adding > 4 && n.adds == 0);
}

TEST(a_product_that_adds_to_an_adapter_leaves_the_add_alone) {
    Counted n = planned(true, RECOMPUTE_NONE, MACHINE_CUDA, 256);
    EXPECT(n.adding == 2 && n.adds == 2);
}

TEST(a_few_rows_are_added_as_they_were) {
    Counted n = planned(false, RECOMPUTE_NONE, MACHINE_CUDA, LINEAR_DIRECT_ROWS);
    EXPECT(n.adding == 0 && n.adds == 4);
}
