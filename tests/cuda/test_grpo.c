/* test_grpo.c - --exact-policy on the GPU: an update's forward gives the bits of the forward that drew the tokens. */
#include "tests/cuda/cuda_test.h"
#include "tests/snug.h"

static double number(const json_t *j, const char *key) { return json_number_value(json_object_get(j, key)); }

/* So hot that sampler and trainer draw some tokens differently in bf16: those are drawn again. */
TEST(an_exact_policy_on_the_gpu_has_no_difference) {
    if (!cuda_test_ready()) return;
    static const char *const ways[] = {
        "--micro-batch 4", "--num-iterations 2", "--mode lora --lora-rank 4 --top-k 200", "--recompute block --top-p 0.9",
        "--mode lora --lora-rank 4 --quantize nf4 --beta 0.1", "--offload weights --micro-batch 2"};
    double redrawn = 0, of_a_step[8];
    for (int i = 0; i < COUNT_OF(ways); i++) {
        char out[300];
        snprintf(out, sizeof out, "%s/exact%d", test_tmp(), i);
        Ran r = snug_run("grpo --model models/tally --device cuda --precision bf16 --parser test --max-samples 24 "
                         "--eval-samples 0 --group 4 --global-batch 16 --prompt-tokens 32 --max-tokens 24 --temperature 3 "
                         "--log-steps 1 --lr 1e-4 --steps 2 --exact-policy --json --out %s %s",
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
