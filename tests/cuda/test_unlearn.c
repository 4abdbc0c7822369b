/* test_unlearn.c - a logged run on a GPU replayed with its correction beside the weights: the log's checksums hold, the
 * correction is the host's, and what was planned is taken. */
#include "base/file.h"
#include "tests/cuda/cuda_test.h"
#include "tests/snug.h"

static json_t *ran(const char *what, Ran r) {
    json_t *j = r.code == 0 ? ran_json(&r) : NULL;
    if (!EXPECT(j != NULL)) test_note("    %s: %s", what, str_text(&r.err));
    ran_free(&r);
    return j;
}

static json_t *unlearn(const char *correction) {
    return ran(correction, snug_run("unlearn --run %s --forget %s --out %s --overwrite --json --device cuda "
                                    "--remove steps --window 5 --correction %s",
                                    test_path("o"), test_path("forget.txt"), test_path("u"), correction));
}

static bool near(const json_t *a, const json_t *b, const char *key, double relative) {
    double x = json_number_value(json_object_get(a, key)), y = json_number_value(json_object_get(b, key));
    bool ok = fabs(x - y) <= relative * fabs(y) && y > 0;
    if (!ok) test_note("    %s: %.9g against %.9g", key, x, y);
    return ok;
}

static void expect_same(const char *flags) {
    json_t *trained = ran(flags, snug_run("train --model %s --data %s --out %s --overwrite --seq 48 --micro-batch 8 "
                                          "--global-batch 8 --steps 12 --optimizer sgd --clip 0 --lr 0.1 --step-log "
                                          "--step-log-stride 5 --device cuda --deterministic %s",
                                          test_path("m"), test_path("rows.jsonl"), test_path("o"), flags));
    json_t *host = trained ? unlearn("host") : NULL, *device = trained ? unlearn("device") : NULL;
    if (host && device) {
        EXPECT(near(device, host, "correction_norm", 1e-5));
        EXPECT(near(device, host, "applied_norm", 1e-3));
        EXPECT(near(device, host, "hvp_calls", 0));
        EXPECT(json_number_value(json_object_get(device, "planned_bytes")) ==
               json_number_value(json_object_get(device, "measured_bytes")));
        EXPECT(json_number_value(json_object_get(device, "above_plan_bytes")) == 0);
    }
    json_decref(trained);
    json_decref(host);
    json_decref(device);
}

TEST(a_correction_beside_the_weights_on_a_gpu_is_the_one_in_host_memory) {
    if (!cuda_test_ready_for_runs()) return;
    snug_make_job((SnugJob){3, 256, 512});
    EXPECT(file_write_all(test_path("forget.txt"), "5\n40\n", 5, NULL));
    expect_same("--precision fp32");
    expect_same("--precision bf16");
    expect_same("--precision bf16 --master fp32 --offload moments");
    expect_same("--precision bf16 --recompute block --offload moments=1,weights=1");
}
