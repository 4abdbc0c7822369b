/* test_sampler.c - what training records about its machine: a GPU's sensors by a thread, the process by the
 * kernel's sums, and the advice that follows. */
#include <stdlib.h>

#include "base/mem.h"
#include "obs/sampler.h"
#include "tests/monitor/fakes.h"
#include "tests/snug.h"
#include "tests/world.h"

TEST(a_sampler_adds_up_what_the_gpu_says_and_begins_anew_at_every_take) {
    if (!use_nvml("fake_nvml.so")) return;
    Sampler *s = MEM_NEW(Sampler, 1);
    sampler_open(
        s, &(SamplerOf){.bus_id = "0000:1b:00.0", .library = getenv("SNUG_NVML"), .cores = 2, .period = 0.01});
    SampleMeans m = sampler_take(s);
    for (int i = 1; i < 250 && m.looks < 2; i++) { /* nothing is promised about how soon it looks */
        world_sleep(0.01 * i);
        m = sampler_take(s);
    }
    EXPECT(m.looks >= 2 && m.gpu_used_bytes == 20LL << 30 && m.resident_bytes > 0);
    EXPECT_NEAR(m.gpu_busy, 0.97, 1e-9);
    EXPECT_NEAR(m.watts, 312.5, 1e-9);
    SampleMeans all = sampler_all(s);
    EXPECT(all.looks >= m.looks && all.cpu_share >= 0 && all.gpu_used_bytes == 20LL << 30);
    EXPECT_NEAR(all.gpu_busy, 0.97, 1e-9);
    sampler_close(s);
    sampler_close(s);
    mem_free(s);
}

TEST(a_sampler_of_a_gpu_that_nobody_knows_tells_about_the_process_alone) {
    if (!use_nvml("fake_nvml.so")) return;
    Sampler *s = MEM_NEW(Sampler, 1);
    const char *const ids[] = {"0000:7f:00.0", "", NULL};
    for (int i = 0; i < 3; i++) {
        sampler_open(s, &(SamplerOf){.bus_id = ids[i], .library = getenv("SNUG_NVML"), .cores = 1});
        SampleMeans m = sampler_take(s);
        EXPECT(m.looks == 0 && isnan(m.gpu_busy) && m.gpu_used_bytes == -1 && m.resident_bytes > 0);
        sampler_close(s);
    }
    sampler_open(s, &(SamplerOf){.bus_id = "0000:1b:00.0", .library = "/nonexistent/library"});
    EXPECT(sampler_take(s).looks == 0);
    sampler_close(s);
    mem_free(s);
}

static Ran train(const char *more) {
    return snug_run(
        "train --model %s/m --data %s/rows.jsonl --out %s/run --overwrite --seq 16 --steps 24 --device cpu %s",
        test_tmp(), test_tmp(), test_tmp(), more);
}

TEST(a_run_records_how_busy_its_machine_was_and_says_what_would_be_faster) {
    snug_make_job((SnugJob){1, 32, 32});
    Ran r = train("--micro-batch 1 --accum 8 --log-steps 4");
    double share[16], bytes[16];
    int n = snug_metrics(test_path("run"), "system", "cpu_utilization", share, 16);
    EXPECT(r.code == 0 && n == 7 && snug_metrics(test_path("run"), "system", "resident_bytes", bytes, 16) == n);
    for (int i = 0; i < n; i++) EXPECT(share[i] > 0 && bytes[i] > 1e6);
    EXPECT(strstr(str_text(&r.err), "advice: ") && strstr(str_text(&r.err), "--micro-batch 2 --accum 4"));
    json_t *j = ran_json(&r);
    EXPECT(json_number_value(json_object_get(j, "cpu_utilization")) > 0);
    EXPECT(json_integer_value(json_object_get(j, "allocations_after_first_step")) == 0);
    EXPECT(!json_object_get(j, "gpu_utilization"));
    json_decref(j);
    ran_free(&r);
    /* the planner chose, or nothing is left to join: there is nothing to add, but that a busy machine has waited for
     * rows */
    static const char *const plain[] = {"--global-batch 8", "--micro-batch 8"};
    for (int i = 0; i < 2; i++) {
        r = train(plain[i]);
        EXPECT(r.code == 0 && !strstr(str_text(&r.err), "there is room for more rows"));
        const char *advice = strstr(str_text(&r.err), "advice: ");
        EXPECT(!advice || strstr(advice, "passed waiting for rows"));
        ran_free(&r);
    }
}
