/* test_grpo.c - GRPO on the GPU: the loss is the CPU's, and with --exact-policy an update's forward gives the bits of
 * the forward that drew the tokens. */
#include "tests/cuda/cuda_test.h"
#include "tests/snug.h"

static double number(const json_t *j, const char *key) { return json_number_value(json_object_get(j, key)); }

static void try_loss(int64_t n, bool has_old, bool has_ref, double beta) {
    CudaTest t;
    cuda_test_open(&t, "policy_loss of %lld tokens, old %d, reference %d, beta %g", (long long)n, has_old, has_ref,
                   beta);
    Tid v[6];
    for (int i = 0; i < COUNT_OF(v); i++) {
        v[i] = cuda_test_vector(&t, FMT_F32, n);
        cuda_test_normal(&t, v[i], (uint64_t)i + 1, i < 4 ? 0.4 : 1);
    }
    for (int64_t i = 0; i < n; i += 3) ((float *)t.initial[v[5]])[i] = 0; /* a prompt's */
    Tid divisor = cuda_test_number(&t, FMT_F32, 3), dial = cuda_test_number(&t, FMT_F32, beta);
    Tid stat = cuda_test_vector(&t, FMT_F64, 1), facts = cuda_test_vector(&t, FMT_F64, POLICY_FACTS);
    if (beta != 0) cuda_test_normal(&t, stat, 8, 1), cuda_test_normal(&t, facts, 9, 1);
    Tid old = has_old ? v[2] : NONE, ref = has_ref ? v[3] : NONE;
    cuda_test_run(&t,
                  (Step){.op = OP_POLICY_LOSS,
                         .policy_loss = {.in = {.logp = v[0],
                                                .sampled = v[1],
                                                .old = old,
                                                .ref = ref,
                                                .advantage = v[4],
                                                .weight = v[5],
                                                .divisor = divisor,
                                                .beta = dial},
                                         .out = {stat, facts}},
                         .attr.policy = {0.2f, 0.3f, 0.05f}},
                  false);
    cuda_test_near(&t, stat, 1e-9, 1e-9);
    cuda_test_near(&t, facts, 1e-9, 1e-9);
    cuda_test_close(&t);
}

TEST(a_policys_loss_and_facts_on_the_gpu_are_the_cpus) {
    if (!cuda_test_ready()) return;
    for (int i = 0; i < 8; i++) {
        try_loss(1, i & 1, i & 2, i & 4 ? 1 : 0); /* no token counts */
        try_loss(5000, i & 1, i & 2, i & 4 ? 1 : 0);
    }
}

/* So hot that sampler and trainer draw some tokens differently in bf16: those are drawn again. */
TEST(an_exact_policy_on_the_gpu_has_no_difference) {
    if (!cuda_test_ready_for_runs()) return;
    static const char *const ways[] = {"--micro-batch 4",
                                       "--num-iterations 2",
                                       "--mode lora --lora-rank 4 --top-k 200",
                                       "--recompute block --top-p 0.9",
                                       "--mode lora --lora-rank 4 --quantize nf4 --beta 0.1",
                                       "--offload weights --micro-batch 2"};
    double redrawn = 0, of_a_step[8];
    for (int i = 0; i < COUNT_OF(ways); i++) {
        char out[300];
        snprintf(out, sizeof out, "%s/exact%d", test_tmp(), i);
        Ran r = snug_run(
            "grpo --model models/tally --device cuda --precision bf16 --parser test --max-samples 24 --eval-samples "
            "0 --group 4 --global-batch 16 --prompt-tokens 32 --max-tokens 24 --temperature 3 --log-steps 1 --lr "
            "1e-4 --steps 2 --exact-policy --json --out %s %s",
            out, ways[i]);
        json_t *j = ran_json(&r);
        if (!EXPECT(r.code == 0 && j)) test_note("    %s\n%s", ways[i], str_text(&r.err));
        if (!EXPECT(number(j, "logp_difference_max") == 0))
            test_note("    %s: %g", ways[i], number(j, "logp_difference_max"));
        EXPECT(number(j, "planned_bytes") == number(j, "measured_bytes"));
        int n = snug_metrics(out, "grpo", "redrawn", of_a_step, COUNT_OF(of_a_step));
        for (int k = 0; k < n; k++) redrawn += of_a_step[k];
        json_decref(j);
        ran_free(&r);
    }
    EXPECT(redrawn > 0);
}

/* Frozen weights that are copied in when their phases begin give the bits of resident ones. */
TEST(weights_that_come_by_phase_on_the_gpu_give_the_same_bits) {
    if (!cuda_test_ready_for_runs()) return;
    static const char *const ways[] = {"resident", "by-phase", "int8,resident", "int8,by-phase"};
    char first[32] = "";
    for (int i = 0; i < COUNT_OF(ways); i++) {
        Ran r = snug_run(
            "grpo --model models/tally --device cuda --precision bf16 --parser test --max-samples 24 --eval-samples "
            "0 --group 4 --global-batch 16 --prompt-tokens 32 --max-tokens 24 --mode lora --lora-rank 4 --lr 1e-3 "
            "--steps 3 --json --no-save --reward length --evaluator models/tally:%s --evaluator-temperature 1 --out "
            "%s/how%d",
            ways[i], test_tmp(), i);
        json_t *j = ran_json(&r);
        if (!EXPECT(r.code == 0 && j)) test_note("    %s\n%s", ways[i], str_text(&r.err));
        EXPECT(number(j, "planned_bytes") == number(j, "measured_bytes"));
        const char *sum = json_string_value(json_object_get(j, "checksum"));
        if (i % 2 == 0) snprintf(first, sizeof first, "%s", sum ? sum : "");
        if (!EXPECT(sum && !strcmp(first, sum))) test_note("    %s: %s, not %s", ways[i], sum, first);
        json_decref(j);
        ran_free(&r);
    }
}
