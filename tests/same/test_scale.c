/* test_scale.c - fp16 with a scaled loss: follows fp32, skips and counts what overflows whether found at once or late,
 * stops when nothing helps. */
#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "tests/snug.h"
#include "tests/test.h"

enum { LONG = 100 };

static void make_job(void) { snug_make_job((SnugJob){2, 64, 112}); }

static Ran train(int steps, const char *flags) {
    return snug_run(
        "train --model %s --data %s --out %s --overwrite --seq 64 --micro-batch 2 --global-batch 4 --steps %d "
        "--log-steps 1 --lr 3e-3 --threads 2 --no-save %s",
        test_path("m"), test_path("rows.jsonl"), test_path("o"), steps, flags);
}

static int64_t number(const Ran *r, const char *key) {
    json_t *j = ran_json(r);
    int64_t n = json_integer_value(json_object_get(j, key));
    json_decref(j);
    return n;
}

/* The bound: 1 % of the loss over a hundred updates. fp16 keeps 11 bits of an activation, 2 to 3 digits. */
TEST(fp16_follows_fp32) {
    make_job();
    static const char *const flags[] = {"--precision fp32", "--precision fp16",
                                        "--precision fp16 --mode lora --lora-rank 8",
                                        "--precision fp32 --mode lora --lora-rank 8"};
    double loss[4][LONG], worst[2] = {0, 0};
    for (int k = 0; k < 4; k++) {
        Ran r = train(LONG, flags[k]);
        if (!EXPECT(r.code == 0 && number(&r, "skipped_steps") == 0)) test_note("%s", str_text(&r.err));
        EXPECT(snug_metrics(test_path("o"), "train", "loss", loss[k], LONG) == LONG);
        EXPECT(loss[k][LONG - 1] < 0.99 * loss[k][0]);
        ran_free(&r);
    }
    for (int i = 0; i < LONG; i++) {
        worst[0] = fmax(worst[0], fabs(loss[1][i] - loss[0][i]) / loss[0][i]);
        worst[1] = fmax(worst[1], fabs(loss[2][i] - loss[3][i]) / loss[3][i]);
    }
    if (!EXPECT(worst[0] > 0 && worst[0] <= 0.01 && worst[1] > 0 && worst[1] <= 0.01))
        test_note("    fp16 is off by %g, with adapters by %g", worst[0], worst[1]);
}

/* Too large a scale: halved until it fits. Nothing is written meanwhile, so the first update that counts has the
 * learning rate and the weights of a first update. */
TEST(an_overflow_is_skipped_and_counted) {
    enum { STEPS = 24 };
    make_job();
    double scale[2][STEPS], lr[2][STEPS], loss[2][STEPS];
    int64_t skipped[2];
    for (int late = 0; late < 2; late++) {
        Ran r = train(STEPS, late ? "--precision fp16 --loss-scale 1e9 --loss-scale-window 4 --warmup-steps 4 "
                                    "--ahead on --data-workers 1"
                                  : "--precision fp16 --loss-scale 1e9 --loss-scale-window 4 --warmup-steps 4");
        skipped[late] = number(&r, "skipped_steps");
        if (!EXPECT(r.code == 0 && skipped[late] > 3 && strstr(str_text(&r.err), "  skipped 3")))
            test_note("%s", str_text(&r.err));
        EXPECT(snug_metrics(test_path("o"), "train", "loss_scale", scale[late], STEPS) == STEPS);
        snug_metrics(test_path("o"), "train", "learning_rate", lr[late], STEPS);
        snug_metrics(test_path("o"), "train", "loss", loss[late], STEPS);
        ran_free(&r);
    }
    EXPECT(skipped[0] == skipped[1]);
    int grown = 0, halved = 0;
    for (int i = 0; i < STEPS; i++) {
        EXPECT(scale[0][i] == scale[1][i] && lr[0][i] == lr[1][i] && loss[0][i] == loss[1][i]);
        double before = i ? scale[0][i - 1] : 1e9;
        halved += scale[0][i] == before / 2;
        grown += scale[0][i] == before * 2;
        EXPECT(scale[0][i] == before || scale[0][i] == before / 2 || scale[0][i] == before * 2);
    }
    EXPECT(halved == skipped[0] && grown > 0);
    EXPECT(lr[0][2] == 0 && lr[0][STEPS - 1] > 0); /* warm-up begins with 0 and has not moved on */
}

TEST(a_loss_that_no_scale_helps_stops_the_run) {
    make_job();
    Ran r = train(40, "--precision fp16 --loss-scale 16 --lr 100 --optimizer sgd --schedule constant --no-clip");
    if (!EXPECT(r.code == 1 && strstr(str_text(&r.err), "fallen below 1") && strstr(str_text(&r.err), "falls to 1\n")))
        test_note("%s", str_text(&r.err));
    ran_free(&r);
    r = train(2, "--precision fp16 --master none");
    EXPECT(r.code == 2 && strstr(str_text(&r.err), "--master none"));
    ran_free(&r);
    r = train(2, "--precision fp16 --loss-scale much");
    EXPECT(r.code == 2 && strstr(str_text(&r.err), "--loss-scale much"));
    ran_free(&r);
}
