/* test_losses.c - a hundred updates on a GPU in bf16 and fp16 follow the CPU's in fp32; with --deterministic the same
 * bits every time, recomputed or kept, queued ahead or not, trimmed or not. */
#include "base/file.h"
#include "base/rng.h"
#include "tests/cuda/cuda_test.h"
#include "tests/snug.h"

enum { STEPS = 100, SHORT = 12 };

static void make_job(void) { snug_make_job((SnugJob){3, 256, 512}); }

/* Its losses, and the checksum of what was trained. */
static void train(double *loss, char *checksum, int steps, const char *flags) {
    Ran r = snug_run(
        "train --model %s --data %s --out %s --overwrite --seq 64 --micro-batch 2 --global-batch 4 --steps %d "
        "--log-steps 1 --lr 1e-3 --no-save %s",
        test_path("m"), test_path("rows.jsonl"), test_path("o"), steps, flags);
    if (!EXPECT(r.code == 0)) test_note("    %s: %s", flags, str_text(&r.err));
    if (!EXPECT(snug_metrics(test_path("o"), "train", "loss", loss, steps) == steps)) test_note("    %s", flags);
    json_t *j = ran_json(&r);
    const char *sum = json_string_value(json_object_get(j, "checksum"));
    if (checksum) snprintf(checksum, 24, "%s", sum ? sum : "?");
    json_decref(j);
    ran_free(&r);
}

/* The bounds, as shares of the loss: what 8 and 11 bits of a number, and rounding at random, do in a hundred
 * updates. */
TEST(losses_on_a_gpu_follow_the_cpu_in_fp32) {
    if (!cuda_test_ready()) return;
    static const struct {
        const char *flags;
        double bound;
    } cases[] = {{"--precision fp32", 1e-3},
                 {"--precision bf16", 0.02},
                 {"--precision fp16", 0.005},
                 {"--precision fp32 --tf32", 0.005}};
    make_job();
    double base[STEPS], loss[STEPS];
    train(base, NULL, STEPS, "--device cpu --precision fp32");
    EXPECT(base[STEPS - 1] < 0.9 * base[0]);
    for (int k = 0; k < COUNT_OF(cases); k++) {
        char flags[200];
        snprintf(flags, sizeof flags, "--device cuda %s", cases[k].flags);
        train(loss, NULL, STEPS, flags);
        double worst = 0;
        int at = 0;
        for (int i = 0; i < STEPS; i++)
            if (!(fabs(loss[i] - base[i]) / base[i] <= worst)) worst = fabs(loss[i] - base[i]) / base[i], at = i;
        EXPECT(worst <= cases[k].bound);
        test_note("    %s: off by %.3g at most (step %d: %.6g against %.6g); %g is allowed", cases[k].flags, worst,
                  at + 1, loss[at], base[at], cases[k].bound);
    }
}

TEST(deterministic_runs_on_a_gpu_are_the_same_bits) {
    if (!cuda_test_ready()) return;
    static const char *const kinds[] = {"--precision bf16", "--precision fp16 --loss-scale 4e6 --loss-scale-window 3",
                                        "--mode lora --precision bf16 --lora-dropout 0.1"};
    static const char *const ways[] = {"--recompute none",
                                       "--recompute none",
                                       "--recompute block",
                                       "--recompute norm --ahead off",
                                       "--recompute none --trim-every 3",
                                       "--recompute none --offload moments"};
    make_job();
    for (int k = 0; k < COUNT_OF(kinds); k++) {
        double base[SHORT], loss[SHORT];
        char first[24], sum[24], flags[300];
        for (int w = 0; w < COUNT_OF(ways); w++) {
            snprintf(flags, sizeof flags, "--device cuda --deterministic %s %s", kinds[k], ways[w]);
            train(w ? loss : base, w ? sum : first, SHORT, flags);
            bool same = !w || (!strcmp(first, sum) && !memcmp(base, loss, sizeof base));
            if (EXPECT(same)) continue;
            for (int i = 0; i < SHORT; i++)
                if (base[i] != loss[i]) {
                    test_note("    %s: step %d: %.17g against %.17g", flags, i + 1, loss[i], base[i]);
                    break;
                }
            test_note("    %s: checksum %s against %s", flags, sum, first);
        }
    }
}

/* Pages in pieces of 32 MiB: this job has a few of them that hold nothing between updates. */
TEST(trimmed_memory_leaves_the_card_and_comes_back) {
    if (!cuda_test_ready()) return;
    make_job();
    Ran r = snug_run(
        "train --device cuda --model %s --data %s --out %s --overwrite --seq 4096 --pack on --micro-batch 8 "
        "--global-batch 8 --steps 4 --log-steps 1 --no-save --precision bf16 --trim-every 2",
        test_path("m"), test_path("rows.jsonl"), test_path("o"));
    const char *line = strstr(str_text(&r.err), "step 2: ");
    if (!EXPECT(r.code == 0 && line && !strstr(line, "step 2: 0 bytes") && strstr(line, "step 4: ")))
        test_note("%s", str_text(&r.err));
    if (line) test_note("    %.140s", line);
    ran_free(&r);
}

/* An evaluation alone is warmed up too, and draws nothing: its clock has no place. */
TEST(an_evaluation_on_the_gpu_is_the_cpus) {
    if (!cuda_test_ready()) return;
    double loss[2];
    make_job();
    for (int i = 0; i < 2; i++) {
        Ran r = snug_run("eval --model %s --data %s --precision fp32 --seq 64 --device %s --attention-report %s --json",
                         test_path("m"), test_path("rows.jsonl"), i ? "cuda" : "cpu", test_path("page.html"));
        json_t *j = ran_json(&r);
        if (!EXPECT(r.code == 0 && j)) test_note("    %s", str_text(&r.err));
        loss[i] = json_number_value(json_object_get(j, "loss"));
        json_decref(j);
        ran_free(&r);
    }
    EXPECT_NEAR(loss[0], loss[1], 1e-4);
}
