/* test_update.c - an update inside backward gives the bits of one behind it, and its gradients take no memory. */
#include "base/mem.h"
#include "tests/same/same.h"
#include "tests/test.h"

static const SnugJob job = {6, 64, 112};

TEST(an_update_inside_backward_keeps_the_bits) {
    static const char *const modes[] = {
        "--precision fp32 --recompute none",
        "--precision bf16 --recompute block:0-2,norm:3-5", /* weights are rounded at random */
        "--precision bf16 --master fp32 --moments 8bit --recompute ffn",
        "--mode lora --lora-dropout 0.1 --recompute block",
        "--optimizer sgd --momentum 0.9 --precision bf16 --recompute block"};
    static const char *const more[] = {"--offload none", "--offload weights=3,moments,inputs=2 --recompute block",
                                       "--offload gradients=2 --ahead on"};
    snug_make_job(job);
    for (int m = 0; m < COUNT_OF(modes); m += test_brief() ? 3 : 1) {
        char flags[400];
        snprintf(flags, sizeof flags, "--micro-batch 8 --clip 0 --offload none %s", modes[m]);
        Same behind = same_train("behind", flags);
        snprintf(flags, sizeof flags, "--micro-batch 8 --clip 0 --update-in-backward on %s %s", modes[m],
                 more[m % COUNT_OF(more)]);
        Same inside = same_train("inside", flags);
        same_expect(&inside, &behind, flags);
        EXPECT(same_int(&inside, "planned_bytes") == same_int(&inside, "measured_bytes"));
        EXPECT(same_int(&inside, "allocations_after_first_step") == 0);
        same_free(&behind), same_free(&inside);
    }
}

static double gradient_bytes(const char *flags, int64_t *process_bytes) {
    Ran r = snug_run(
        "plan --model qwen2.5-0.5b --precision bf16 --seq 64 --micro-batch 1 --device cpu --threads 1 --json %s",
        flags);
    json_t *root = ran_json(&r), *device = json_object_get(json_object_get(root, "pools"), "device"), *line;
    double bytes = 0;
    size_t i;
    EXPECT(r.code == 0);
    json_array_foreach(json_object_get(device, "lines"), i,
                       line) if (!strcmp(json_string_value(json_object_get(line, "name")), "gradients")) bytes =
        json_number_value(json_object_get(line, "bytes"));
    *process_bytes = (int64_t)json_number_value(json_object_get(device, "process_planned_bytes"));
    json_decref(root);
    ran_free(&r);
    return bytes;
}

/* 494 million parameters: what remains at the peak is the gradient of the tied embedding, which has two writers. */
TEST(gradients_inside_backward_take_no_memory) {
    int64_t behind_bytes, inside_bytes, found_bytes;
    double behind = gradient_bytes("--clip 0 --update-in-backward off", &behind_bytes);
    double inside = gradient_bytes("--clip 0 --update-in-backward on", &inside_bytes);
    EXPECT(behind > 2.0 * 494000000 && inside <= 2.0 * 151936 * 896 + 1e6 &&
           inside_bytes < behind_bytes - (int64_t)5e8);
    char budget[100]; /* the search takes it before anything that costs time, where no clip forbids it */
    snprintf(budget, sizeof budget, "--clip 0 --budget %lldB", (long long)behind_bytes - 1000000);
    EXPECT(gradient_bytes(budget, &found_bytes) == inside && found_bytes == inside_bytes);
    snprintf(budget, sizeof budget, "--budget %lldB", (long long)behind_bytes - 1000000);
    Ran clipped = snug_run(
        "plan --model qwen2.5-0.5b --precision bf16 --seq 64 --micro-batch 1 --device cpu --threads 1 %s", budget);
    EXPECT(clipped.code == 3 &&
           strstr(str_text(&clipped.err), "--clip 0 --update-in-backward on")); /* offered, not taken */
    ran_free(&clipped);
}

TEST(an_update_inside_backward_is_refused_where_it_cannot_be) {
    static const struct {
        const char *flags, *part;
    } wrong[] = {{"--micro-batch 4", "--clip 1"},
                 {"--micro-batch 4 --accum 2 --clip 0", "--micro-batch 8 --accum 1"},
                 {"--micro-batch 4 --clip 0 --precision fp16", "fp16"}};
    snug_make_job(job);
    for (int i = 0; i < COUNT_OF(wrong); i++) {
        Ran r = snug_run("plan --model %s --update-in-backward on %s", test_path("m"), wrong[i].flags);
        if (!EXPECT(r.code == 2 && strstr(str_text(&r.err), wrong[i].part)))
            test_note("    %s: %s", wrong[i].flags, str_text(&r.err));
        ran_free(&r);
    }
}

/* The weights in front of it are written by then: the message says so. */
TEST(a_loss_that_is_not_finite_tells_that_weights_were_updated) {
    snug_make_job(job);
    Same s = same_train(
        "bad", "--micro-batch 8 --clip 0 --update-in-backward on --optimizer sgd --lr 100 --lr-mult norm=1e6");
    const char *message = strstr(str_text(&s.ran.err), "snug: ");
    if (!EXPECT(s.ran.code == 1 && message && strstr(message, "not finite") &&
                strstr(message, "--update-in-backward")))
        test_note("    exit %d: %s", s.ran.code, message ? message : "");
    same_free(&s);
}
