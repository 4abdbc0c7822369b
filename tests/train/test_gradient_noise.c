/* test_gradient_noise.c - the gradient noise scale: the estimate on drawn gradients, and a run that measures it
 * and learns the same. */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "tests/snug.h"
#include "tests/test.h"
#include "train/run_int.h"

/* The norm of the mean of `tokens` draws of a gradient of 64 numbers: each 0.1, and noise of deviation 2. */
static double drawn_norm(int64_t tokens, uint64_t key) {
    double norm = 0;
    for (int i = 0; i < 64; i++) {
        double draw = (double)rng_normal(key, (uint64_t)i);
        double x = 0.1 + 2 / sqrt((double)tokens) * draw;
        norm += x * x;
    }
    return sqrt(norm);
}

TEST(the_noise_scale_of_drawn_gradients_is_found) {
    GradientNoise n = {0};
    for (uint64_t i = 0; i < 2000; i++)
        gradient_noise_add(&n, drawn_norm(64, rng_fold(7, 2 * i)), 64, drawn_norm(2048, rng_fold(7, 2 * i + 1)),
                           2048);
    EXPECT_NEAR(n.signal / n.weight, 64 * 0.01, 0.2);
    EXPECT_NEAR(n.noise / n.weight, 64 * 4, 20);
    EXPECT_NEAR(gradient_noise_scale(&n), 400, 130);
}

TEST(a_noise_scale_that_drowns_is_not_told) {
    GradientNoise n = {0};
    EXPECT(isnan(gradient_noise_scale(&n)));
    gradient_noise_add(&n, 1, 100, 1, 400); /* as large over few tokens as over many: no noise */
    EXPECT(isnan(gradient_noise_scale(&n)));
}

static json_t *train(const char *out, const char *flags) {
    Ran r = snug_run(
        "train --model %s --data %s --mode full --seq 16 --steps 6 --log-steps 2 --micro-batch 2 --accum 4 --lr "
        "1e-3 "
        "--device cpu --no-save --json --out %s %s",
        test_path("m"), test_path("rows.jsonl"), test_path(out), flags);
    EXPECT(r.code == 0);
    json_t *j = ran_json(&r);
    ran_free(&r);
    return j;
}

TEST(measuring_gradient_noise_changes_no_bit) {
    snug_make_job((SnugJob){2, 32, 64});
    json_t *plain = train("plain", ""), *noisy = train("noisy", "--gradient-noise");
    double signal[8], noise[8];
    EXPECT_STR(json_string_value(json_object_get(plain, "checksum")),
               json_string_value(json_object_get(noisy, "checksum")));
    EXPECT(json_integer_value(json_object_get(noisy, "planned_bytes")) ==
           json_integer_value(json_object_get(noisy, "measured_bytes")));
    EXPECT(json_integer_value(json_object_get(noisy, "above_plan_bytes")) == 0);
    EXPECT(json_integer_value(json_object_get(noisy, "allocations_after_first_step")) == 0);
    EXPECT(!json_object_get(plain, "noise_scale_tokens"));
    EXPECT(snug_metrics(test_path("noisy"), "noise", "grad_signal", signal, 8) == 4);
    EXPECT(snug_metrics(test_path("noisy"), "noise", "grad_noise", noise, 8) == 4);
    for (int i = 0; i < 4; i++) EXPECT(isfinite(signal[i]) && isfinite(noise[i]));
    EXPECT(snug_metrics(test_path("plain"), "noise", "grad_noise", noise, 8) == 0);
    json_decref(plain), json_decref(noisy);
}

TEST(gradient_noise_is_refused_where_no_gradient_is_whole) {
    snug_make_job((SnugJob){1, 16, 32});
    Ran r = snug_run(
        "train --model %s --data %s --mode full --seq 16 --steps 2 --clip 0 --update-in-backward on "
        "--gradient-noise "
        "--micro-batch 2 --accum 1 --out %s",
        test_path("m"), test_path("rows.jsonl"), test_path("out"));
    EXPECT(r.code == 2 && strstr(str_text(&r.err), "--gradient-noise"));
    ran_free(&r);
}
