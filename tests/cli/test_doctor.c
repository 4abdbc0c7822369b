/* test_doctor.c - doctor, the machine file and the catalogue as a person meets them; devices that cannot be opened
 * and memory that is not there, said clearly and before anything is loaded. */
#include <stdlib.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/units.h"
#include "tests/snug.h"
#include "tests/test.h"

static void expect_said(Ran *r, int code, const char *part1, const char *part2) {
    if (!EXPECT(r->code == code && strstr(str_text(&r->err), part1) && strstr(str_text(&r->err), part2)))
        test_note("    exit %d, wanted %d with '%s' and '%s':\n%s", r->code, code, part1, part2,
                  str_text(&r->err));
    ran_free(r);
}

static double number_at(const json_t *o, const char *a, const char *b) {
    const json_t *v = json_object_get(o, a);
    return json_number_value(b ? json_object_get(v, b) : v);
}

TEST(doctor_measures_the_processor_and_plan_uses_it) {
    char *file = test_path("conf/machine.json");
    Ran r = snug_run("doctor --device cpu --quick --json --write %s", file);
    json_t *j = ran_json(&r);
    const json_t *cpu = json_array_get(json_object_get(j, "devices"), 0);
    if (!EXPECT(r.code == 0 && cpu)) test_note("%s", str_text(&r.err));
    EXPECT(number_at(j, "host", "cores") >= 1 && number_at(j, "host", "memory_bytes") > 1e8);
    EXPECT(number_at(cpu, "fp32_flops", NULL) > 0 && number_at(cpu, "bf16_flops", NULL) > 0);
    EXPECT(number_at(cpu, "element_wise_bytes_per_s", NULL) > 0 &&
           json_array_size(json_object_get(cpu, "products")) == 2);
    const json_t *load = json_object_get(json_object_get(cpu, "memory"), "load");
    double counted = 4 * MIB; /* the kernel adds up its counters only now and then */
    EXPECT(number_at(load, "taken_bytes", NULL) >= number_at(load, "asked_bytes", NULL) - counted);
    EXPECT(number_at(load, "left_bytes", NULL) < number_at(load, "asked_bytes", NULL) / 4);
    EXPECT(strstr(str_text(&r.err), "our own kernels"));
    static const char *const limits[] = {"this process may take", "address space", "data ", "locked memory",
                                         "file size"};
    for (int i = 0; i < COUNT_OF(limits); i++) EXPECT(strstr(str_text(&r.err), limits[i]));
    const json_t *host = json_object_get(j, "host");
    EXPECT(json_is_real(json_object_get(host, "load")) && strstr(str_text(&r.err), "use these rates from now on"));
    EXPECT(json_object_size(json_object_get(host, "limits")) == 4 && number_at(host, "room", "bytes") > 0);
    json_decref(j);
    ran_free(&r);
    r = snug_run("plan --model smollm2-135m --seq 128 --machine %s", file);
    expect_said(&r, 0, "rates measured on", "machine.json");
    r = snug_run("plan --model smollm2-135m --seq 128 --threads 1 --machine %s", file);
    EXPECT(r.code == 0);
    ran_free(&r);
}

/* A home that is read-only, or none at all, costs no figures that took a minute. */
TEST(doctor_shows_what_it_measured_where_nothing_can_be_written) {
    const char *before = getenv("XDG_CONFIG_HOME");
    char kept[300], *home = test_path("home");
    snprintf(kept, sizeof kept, "%s", before ? before : "");
    file_write_all(home, "", 0, NULL);
    setenv("XDG_CONFIG_HOME", home, 1);
    Ran r = snug_run("doctor --device cpu --quick --json");
    json_t *j = ran_json(&r);
    EXPECT(j != NULL && strstr(str_text(&r.err), "element-wise"));
    json_decref(j);
    expect_said(&r, 0, "the rates are not kept", "--write FILE");
    r = snug_run("doctor --device cpu --quick --write %s/machine.json", home);
    expect_said(&r, 1, "home", "a folder was expected");
    if (before) setenv("XDG_CONFIG_HOME", kept, 1);
    else unsetenv("XDG_CONFIG_HOME");
}

TEST(wrong_machine_files_are_refused_when_named_and_passed_over_when_found) {
    Ran r = snug_run("plan --model smollm2-135m --machine %s", test_path("none.json"));
    expect_said(&r, 1, "none.json", "snug doctor --write");
    file_make_dirs(test_path("snug"), NULL);
    file_write_all(test_path("snug/machine.json"), "{\"a\": 1}", 8, NULL);
    r = snug_run("plan --model smollm2-135m --machine %s", test_path("snug/machine.json"));
    expect_said(&r, 1, "--machine", "not a machine file");
    char *before = getenv("XDG_CONFIG_HOME"), kept[300] = "";
    if (before) snprintf(kept, sizeof kept, "%s", before);
    setenv("XDG_CONFIG_HOME", test_tmp(), 1);
    r = snug_run("plan --model smollm2-135m");
    expect_said(&r, 0, "passed over", "not a machine file");
    if (before)
        setenv("XDG_CONFIG_HOME", kept, 1);
    else
        unsetenv("XDG_CONFIG_HOME");
}

TEST(a_plan_for_a_card_that_is_not_here) {
    Ran r = snug_run("plan --gpu list");
    EXPECT(r.code == 0 && strstr(str_text(&r.out), "RTX 4060 Ti 8") && strstr(str_text(&r.out), "vendor"));
    ran_free(&r);
    r = snug_run("plan --model qwen2.5-7b --mode lora --seq 512 --recompute block --gpu rtx-4090");
    EXPECT(r.code == 0 && strstr(str_text(&r.out), "RTX 4090, not here") &&
           strstr(str_text(&r.out), "it would fit"));
    ran_free(&r);
    r = snug_run(
        "plan --model qwen2.5-7b --mode lora --seq 512 --recompute block --offload none --gpu 'NVIDIA T4 16GB'");
    EXPECT(r.code == 0 && strstr(str_text(&r.out), "it would not fit"));
    ran_free(&r);
    r = snug_run("plan --model qwen2.5-7b --gpu voodoo2");
    expect_said(&r, 2, "voodoo2", "--gpu list");
}

TEST(a_gpu_that_cannot_be_opened_says_why) {
    Ran r = snug_run("doctor --device cuda --quick --no-write");
    if (r.code == 0) {
        test_skip("there is a GPU here");
        ran_free(&r);
        return;
    }
    bool built = !strstr(str_text(&r.err), "built without CUDA");
    if (built)
        expect_said(&r, 1, "cuda", "--device cpu"); /* no driver, or no card */
    else
        expect_said(&r, 2, "make CUDA=1", "--device cpu");
    r = snug_run("plan --model smollm2-135m --device cuda");
    expect_said(&r, built ? 1 : 2, "cuda", "--device cpu");
    r = snug_run("doctor --device tpu --no-write");
    expect_said(&r, 2, "tpu", "cuda:N");
}

TEST(less_memory_than_planned_is_found_before_loading) {
    file_write_all(test_path("rows.jsonl"), "{\"ids\":[1,2,3,4]}\n", 18, NULL);
    Ran r = snug_run("train --model llama-3.1-70b --init random --data %s --out %s --seq 16 --budget 9000GiB",
                     test_path("rows.jsonl"), test_path("out"));
    expect_said(&r, 3, "are planned", "is free now");
    EXPECT(!file_exists(test_path("out")));
}
