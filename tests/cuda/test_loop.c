/* test_loop.c - the loop on a GPU: queued ahead or not, filled ahead or not, the same losses; what is not finite is
 * found late and named as if found at once; all memory is taken before the first step. */
#include "base/file.h"
#include "base/rng.h"
#include "tests/cuda/cuda_test.h"
#include "tests/snug.h"

enum { STEPS = 8 };

static void make_job(void) { snug_make_job((SnugJob){3, 256, 512}); }

static Ran train(const char *flags) {
    return snug_run(
        "train --device cuda --model %s --data %s --out %s --overwrite --seq 64 --micro-batch 2 --global-batch 6 "
        "--steps %d --log-steps 1 --precision fp32 --no-save %s",
        test_path("m"), test_path("rows.jsonl"), test_path("o"), STEPS, flags);
}

TEST(a_gpu_run_is_the_same_queued_ahead_or_not) {
    if (!cuda_test_ready()) return;
    static const char *const flags[] = {"--ahead off --data-workers 0", "--ahead on --data-workers 0",
                                        "--ahead on --data-workers 1", "--ahead off --data-workers 3",
                                        "--val-split 0.1 --eval-steps 3 --ahead on"};
    make_job();
    double base[STEPS], loss[STEPS];
    for (int k = 0; k < COUNT_OF(flags); k++) {
        char line[200];
        snprintf(line, sizeof line, "--lr 1e-3 %s", flags[k]);
        Ran r = train(line);
        if (!EXPECT(r.code == 0)) test_note("    %s: %s", flags[k], str_text(&r.err));
        EXPECT(snug_metrics(test_path("o"), "train", "loss", k ? loss : base, STEPS) == STEPS);
        /* the split set is another one: only that it runs. Products may be chosen otherwise: fp32 rounding */
        for (int i = 0; i < STEPS && k && !strstr(flags[k], "split"); i++)
            if (!EXPECT(fabs(loss[i] - base[i]) <= 2e-4 * base[i]))
                test_note("    %s, step %d: %.9g against %.9g", flags[k], i + 1, loss[i], base[i]);
        ran_free(&r);
    }
    EXPECT(base[STEPS - 1] < base[0]);
}

TEST(a_gpu_names_the_step_that_was_not_finite_though_found_late) {
    if (!cuda_test_ready()) return;
    make_job();
    char said[2][16] = {"", ""};
    for (int late = 0; late < 2; late++) {
        Ran r = train(late ? "--lr 30 --schedule constant --no-clip --optimizer sgd --ahead on"
                           : "--lr 30 --schedule constant --no-clip --optimizer sgd --ahead off");
        const char *message = strstr(str_text(&r.err), "the loss is not finite");
        if (!EXPECT(r.code == 1 && message && strstr(message, "It began"))) test_note("    %s", str_text(&r.err));
        if (message) snprintf(said[late], sizeof said[late], "%.10s", message - 8); /* "step N: " */
        ran_free(&r);
    }
    EXPECT_STR(said[0], said[1]);
}

TEST(all_memory_is_taken_before_the_first_step) {
    if (!cuda_test_ready()) return;
    static const char *const lines[] = {"context", "code", "graphs", "mappings"};
    make_job();
    Ran r = train("--lr 1e-3 --val-split 0.1 --eval-steps 4 --growth-alarm 1MiB");
    json_t *j = ran_json(&r);
    EXPECT(r.code == 0 && json_integer_value(json_object_get(j, "allocations_after_first_step")) == 0);
    EXPECT(!strstr(str_text(&r.err), "has grown"));
    for (int i = 0; i < COUNT_OF(lines); i++) { /* planned beside measured, before the first step */
        char line[40];
        snprintf(line, sizeof line, "%-9s planned", lines[i]);
        const char *at = strstr(str_text(&r.err), line), *step = strstr(str_text(&r.err), "step 1/");
        EXPECT(at && step && at < step);
        if (at) test_note("    %.60s", at);
    }
    double bytes[STEPS];
    int n = snug_metrics(test_path("o"), "train", "process_bytes", bytes, STEPS);
    for (int i = 1; i < n; i++)
        if (!EXPECT(bytes[i] == bytes[0])) test_note("    step %d: %.0f against %.0f bytes", i + 1, bytes[i], bytes[0]);
    json_decref(j);
    ran_free(&r);
}
