/* test_spikes.c - updates that are spikes or not finite, from outside: warned about, skipped or the end of the
 * run, with its exit code and the state that is left; and the same bits after a resume. */
#include <stdlib.h>

#include "base/file.h"
#include "tests/snug.h"
#include "tests/test.h"

enum { STEPS = 40, ODD = 32 };

/* Easy rows, and at update ODD (counted from 1) rows of ids that never came before: their loss stands out. */
static void make_job(void) {
    Str rows = {0};
    snug_make_job((SnugJob){2, 64, 112});
    for (int i = 0; i < 2 * STEPS; i++) {
        str_add(&rows, "{\"ids\":[");
        for (int t = 0; t < 32; t++)
            str_addf(&rows, "%s%d", t ? "," : "", i / 2 == ODD - 1 ? 100 + (t * t * 7) % 190 : 3 + t % 4);
        str_add(&rows, "]}\n");
    }
    EXPECT(file_write_all(test_path("odd.jsonl"), rows.data, rows.len, NULL));
    str_free(&rows);
}

static Ran train(const char *out, const char *flags) {
    return snug_run(
        "train --model %s --data %s --out %s --seq 32 --micro-batch 1 --global-batch 2 --steps %d --log-steps 1 "
        "--no-shuffle "
        "--lr 1e-3 --schedule wsd --decay-steps 10 --threads 2 --pack off --spike-window 16 --spike-factor 4 %s",
        test_path("m"), test_path("odd.jsonl"), test_path(out), STEPS, flags);
}

static int64_t whole(const Ran *r, const char *key) {
    json_t *j = ran_json(r);
    int64_t n = json_integer_value(json_object_get(j, key));
    json_decref(j);
    return n;
}

static void get_checksum(const Ran *r, char to[24]) {
    json_t *j = ran_json(r);
    const char *sum = json_string_value(json_object_get(j, "checksum"));
    snprintf(to, 24, "%s", sum ? sum : "none");
    json_decref(j);
}

static void expect_said(const Ran *r, int code, const char *text) {
    if (!EXPECT(r->code == code && strstr(str_text(&r->err), text)))
        test_note("exit %d, not '%s':\n%s", r->code, text, str_text(&r->err));
}

TEST(a_spike_is_named_and_by_default_taken) {
    double loss[STEPS];
    make_job();
    Ran r = train("warned", "");
    expect_said(&r, 0, "step 32: a spike: the loss is");
    EXPECT(whole(&r, "spikes") >= 1 && whole(&r, "skipped_steps") == 0);
    EXPECT(snug_metrics(test_path("warned"), "train", "loss", loss, STEPS) == STEPS &&
           loss[ODD - 1] > 2 * loss[ODD - 2]);
    ran_free(&r);
    r = train("ignored", "--on-spike ignore");
    EXPECT(r.code == 0 && !strstr(str_text(&r.err), "a spike") && whole(&r, "spikes") == 0);
    ran_free(&r);
}

/* The rate goes on from where it was, its rows are used up, and it is the same whether found at once or late. */
TEST(a_skipped_spike_writes_nothing_and_is_the_same_found_late) {
    double loss[2][STEPS], lr[2][STEPS];
    char sum[2][24];
    make_job();
    for (int late = 0; late < 2; late++) {
        const char *out = late ? "late" : "once";
        Ran r = train(out, late ? "--on-spike skip --ahead on --data-workers 1" : "--on-spike skip --ahead off");
        expect_said(&r, 0, "step 32: a spike");
        expect_said(&r, 0, "skipped, nothing was written");
        EXPECT(whole(&r, "skipped_steps") == 1 && whole(&r, "steps") == STEPS);
        EXPECT(snug_metrics(test_path(out), "train", "loss", loss[late], STEPS) == STEPS);
        snug_metrics(test_path(out), "train", "learning_rate", lr[late], STEPS);
        get_checksum(&r, sum[late]);
        ran_free(&r);
    }
    EXPECT_STR(sum[0], sum[1]);
    for (int i = 0; i < STEPS; i++) EXPECT(loss[0][i] == loss[1][i] && lr[0][i] == lr[1][i]);
    EXPECT(loss[0][ODD] < 1.5 * loss[0][ODD - 2]);           /* the model has not seen the odd rows */
    EXPECT(lr[0][ODD] == lr[0][ODD - 1] &&
           lr[0][ODD - 1] > lr[0][ODD + 1]); /* the decay waits for the update that counts */
}

TEST(a_run_resumed_among_spikes_goes_on_bit_for_bit) {
    char sum[2][24];
    make_job();
    Ran r = train("whole", "--on-spike skip --save-steps 21");
    get_checksum(&r, sum[0]);
    ran_free(&r);
    char resume[300];
    snprintf(resume, sizeof resume, "--on-spike skip --save-steps 21 --resume %s/whole/checkpoint-21", test_tmp());
    r = train("parted", resume);
    EXPECT(r.code == 0 && whole(&r, "skipped_steps") == 1);
    get_checksum(&r, sum[1]);
    EXPECT_STR(sum[0], sum[1]);
    ran_free(&r);
}

/* The checkpoint that is left holds the state before the update; skipping it then is what skipping at once would
 * have been. */
TEST(a_spike_stops_the_run_with_a_checkpoint_to_go_on_from) {
    char sum[2][24];
    make_job();
    Ran r = train("skipping", "--on-spike skip");
    get_checksum(&r, sum[0]);
    ran_free(&r);
    r = train("stopping", "--on-spike stop");
    expect_said(&r, 1, "step 32: a spike: the loss is");
    expect_said(&r, 1, "checkpoint-31 holds the state before the update");
    EXPECT(file_exists(test_path("stopping/checkpoint-31")) && !file_exists(test_path("stopping/model")));
    ran_free(&r);
    r = train("stopping", "--on-spike stop --resume");
    expect_said(&r, 1, "step 32: a spike: the loss is");
    ran_free(&r);
    r = train("stopping", "--on-spike skip --resume");
    EXPECT(r.code == 0 && whole(&r, "skipped_steps") == 1);
    get_checksum(&r, sum[1]);
    EXPECT_STR(sum[0], sum[1]);
    ran_free(&r);
}

/* A rate at which every update overflows from some step on. */
#define WILD "--optimizer sgd --lr 40 --schedule constant --no-clip --on-spike ignore "

TEST(a_loss_that_is_not_finite_leaves_a_checkpoint_or_is_skipped_up_to_a_limit) {
    make_job();
    Ran r = train("wild", WILD);
    expect_said(&r, 1, "not finite");
    expect_said(&r, 1, "holds the state before the update");
    ran_free(&r);
    r = train("wild", WILD "--resume --on-nonfinite skip --skip-limit 2");
    expect_said(&r, 1, "skipped, nothing was written");
    expect_said(&r, 1, "3 updates in a row would be skipped (--skip-limit)");
    ran_free(&r);
    r = train("tame", WILD "--on-nonfinite skip --skip-limit 1000");
    EXPECT(r.code == 0 && whole(&r, "skipped_steps") > 2 && whole(&r, "steps") == STEPS);
    ran_free(&r);
}

TEST(an_update_inside_backward_cannot_be_skipped) {
    make_job();
    Ran r = train("never", "--micro-batch 2 --no-clip --update-in-backward on --on-spike skip");
    expect_said(&r, 2, "none can be skipped");
    EXPECT(!file_exists(test_path("never")));
    ran_free(&r);
}
