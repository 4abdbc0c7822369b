/* test_packing.c - the samples of an update packed among themselves train as a row each does: the same samples,
 * the same sums but for the order of their rounding; and a run goes on in the middle of an epoch with the very
 * next samples. */
#include <math.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "tests/snug.h"
#include "tests/test.h"

enum { STEPS = 7, SEQ = 64, SAMPLES = 45 };

/* Samples of 5 to 40 ids of which the last half is learnt. */
static void put_samples(const char *name, uint64_t key, int n) {
    Str s = {0};
    for (int i = 0; i < n; i++) {
        int len = 5 + (int)(rng_u32(key, (uint64_t)i) % 36);
        for (int list = 0; list < 2; list++) {
            str_add(&s, list ? ",\"labels\":[" : "{\"ids\":[");
            for (int k = 0; k < len; k++) {
                int id = (int)(rng_fold(key, (uint64_t)(i * 64 + k % 5)) % SNUG_JOB_VOCAB);
                str_addf(&s, "%s%d", k ? "," : "", list && k < len / 2 ? -100 : id);
            }
            str_add(&s, list ? "]}\n" : "]");
        }
    }
    file_write_all(test_path(name), s.data, s.len, NULL);
    str_free(&s);
}

typedef struct Outcome {
    char checksum[40];
    double loss[STEPS], eval_loss;
    int n;
} Outcome;

static Outcome train(const char *out, const char *flags) {
    Outcome o = {0};
    Ran r = snug_run(
        "train --model %s --data %s --out %s --seq %d --global-batch 8 --steps %d --log-steps 1 --lr 3e-3 "
        "--val-split 0.2 "
        "--precision fp32 --device cpu %s",
        test_path("m"), test_path("samples.jsonl"), test_path(out), SEQ, STEPS, flags);
    json_t *j = r.code ? NULL : ran_json(&r);
    const char *sum = json_string_value(json_object_get(j, "checksum"));
    snprintf(o.checksum, sizeof o.checksum, "%s", sum ? sum : "none");
    o.eval_loss = json_number_value(json_object_get(j, "eval_loss"));
    o.n = snug_metrics(test_path(out), "train", "loss", o.loss, STEPS);
    if (!EXPECT(sum)) test_note("    %s: %s", flags, str_text(&r.err));
    json_decref(j);
    ran_free(&r);
    return o;
}

/* fp32: what rounding leaves after a few updates. */
static void expect_near(const Outcome *a, const Outcome *b, const char *what) {
    const double tolerance = 2e-5;
    bool near = a->n == b->n && fabs(a->eval_loss - b->eval_loss) <= tolerance * b->eval_loss;
    for (int i = 0; i < a->n && i < b->n; i++) near &= fabs(a->loss[i] - b->loss[i]) <= tolerance * b->loss[i];
    if (EXPECT(near)) return;
    for (int i = 0; i < a->n && i < b->n; i++)
        test_note("    %s, step %d: %.9g against %.9g", what, i + 1, a->loss[i], b->loss[i]);
    test_note("    evaluation %.9g against %.9g", a->eval_loss, b->eval_loss);
}

static void expect_same(const Outcome *a, const Outcome *b, const char *what) {
    bool same = a->n == b->n && !strcmp(a->checksum, b->checksum) && a->eval_loss == b->eval_loss;
    for (int i = 0; i < a->n && i < b->n; i++) same &= a->loss[i] == b->loss[i];
    if (!EXPECT(same)) test_note("    %s: %s against %s", what, a->checksum, b->checksum);
}

TEST(packed_among_themselves_samples_train_as_a_row_each) {
    static const char *const kinds[] = {"", "--mode lora --lora-rank 4", "--optimizer sgd --momentum 0.9"};
    snug_make_job((SnugJob){2, 32, 32});
    put_samples("samples.jsonl", 3, SAMPLES);
    for (int k = 0; k < COUNT_OF(kinds); k++) {
        char flags[200], name[40];
        snprintf(name, sizeof name, "off%d", k);
        snprintf(flags, sizeof flags, "--pack off --no-save %s", kinds[k]);
        Outcome alone = train(name, flags);
        EXPECT(alone.n == STEPS && alone.loss[STEPS - 1] < alone.loss[0]);
        static const char *const ways[] = {
            "--pack update", "--pack auto --threads 1", "--pack auto --micro-batch 1",
            "--pack auto --micro-batch 2 --data-workers 2", "--pack auto --micro-batch 8"};
        for (int w = 0; w < COUNT_OF(ways); w++) {
            snprintf(name, sizeof name, "up%d-%d", k, w);
            snprintf(flags, sizeof flags, "--no-save %s %s", ways[w], kinds[k]);
            Outcome packed = train(name, flags);
            expect_near(&packed, &alone, flags);
        }
    }
}

TEST(packed_updates_are_the_same_bits_with_any_number_of_threads) {
    snug_make_job((SnugJob){2, 32, 32});
    put_samples("samples.jsonl", 4, SAMPLES);
    Outcome one = train("one", "--no-save --threads 1 --micro-batch 2");
    static const char *const ways[] = {"--threads 2", "--threads 3 --data-workers 3", "--threads 1 --ahead on",
                                       "--threads 2 --recompute block --data-workers 1"};
    for (int w = 0; w < COUNT_OF(ways); w++) {
        char flags[200], name[20];
        snprintf(name, sizeof name, "way%d", w);
        snprintf(flags, sizeof flags, "--no-save --micro-batch 2 %s", ways[w]);
        Outcome o = train(name, flags);
        expect_same(&o, &one, flags);
    }
}

/* A micro-step that holds all rows of any update: gradients are written once, weights updated in backward. */
TEST(an_update_planned_as_one_micro_step_is_one) {
    snug_make_job((SnugJob){2, 32, 32});
    put_samples("samples.jsonl", 5, SAMPLES);
    Outcome behind = train("behind", "--no-save --clip 0 --micro-batch 8 --update-in-backward off");
    Outcome inside = train("inside", "--no-save --clip 0 --micro-batch 8 --update-in-backward on");
    expect_same(&inside, &behind, "inside backward");
}

static const char *const sources[] = {"", "--pack off", "--pack on"};

TEST(a_run_goes_on_in_the_middle_of_an_epoch) {
    snug_make_job((SnugJob){2, 32, 32});
    put_samples("samples.jsonl", 6, SAMPLES); /* 36 are trained on: 4 updates and a half an epoch */
    for (int k = 0; k < COUNT_OF(sources); k++) {
        char flags[200], name[20], last[60];
        snprintf(name, sizeof name, "run%d", k);
        snprintf(flags, sizeof flags, "--micro-batch 2 --save-steps 3 %s", sources[k]);
        Outcome whole = train(name, flags);
        snprintf(last, sizeof last, "run%d/checkpoint-7", k);
        file_remove_tree(test_path(last), NULL);
        snprintf(last, sizeof last, "run%d/checkpoint-6", k);
        if (k != 1) file_remove_tree(test_path(last), NULL); /* from step 3, or from step 6 */
        snprintf(flags, sizeof flags, "--micro-batch 2 --save-steps 3 --resume --data-workers 1 %s", sources[k]);
        Outcome again = train(name, flags);
        expect_same(&again, &whole, flags);
    }
}

/* Three files by weight, samples counted over all epochs: the same draws whether the run is cut or not. */
TEST(a_mixture_goes_on_with_the_very_next_draw) {
    snug_make_job((SnugJob){2, 32, 32});
    put_samples("a.jsonl", 7, 20);
    put_samples("b.jsonl", 8, 9);
    put_samples("c.jsonl", 9, 4);
    char checksum[2][40] = {"", "?"};
    for (int cut = 0; cut < 2; cut++) {
        const char *out = cut ? "cut" : "whole";
        for (int part = 0; part <= cut; part++) {
            if (part)
                file_remove_tree(test_path("cut/checkpoint-9"), NULL),
                    file_remove_tree(test_path("cut/model"), NULL);
            Ran r = snug_run(
                "train --model %s --data %s:2,%s:1,%s:0.25 --out %s --seq %d --global-batch 4 --micro-batch 1 "
                "--steps 9 "
                "--precision fp32 --device cpu --save-steps 5 --json %s",
                test_path("m"), test_path("a.jsonl"), test_path("b.jsonl"), test_path("c.jsonl"), test_path(out),
                SEQ, part ? "--resume" : "");
            json_t *j = r.code ? NULL : ran_json(&r);
            const char *sum = json_string_value(json_object_get(j, "checksum"));
            if (!EXPECT(sum)) test_note("    %s", str_text(&r.err));
            snprintf(checksum[cut], sizeof checksum[cut], "%s", sum ? sum : "none");
            json_decref(j);
            ran_free(&r);
        }
    }
    EXPECT_STR(checksum[1], checksum[0]);
}

/* The order of rows changed between versions: a checkpoint of before is refused by name, not continued with other
 * rows. */
TEST(a_checkpoint_of_another_order_of_rows_is_refused_by_name) {
    snug_make_job((SnugJob){1, 16, 16});
    put_samples("samples.jsonl", 6, SAMPLES);
    train("old", "--save-steps 3");
    const char *state = test_path("old/checkpoint-7/trainer_state.json");
    json_t *root = json_load_file(state, 0, NULL);
    json_t *own = json_object_get(json_object_get(json_object_get(root, "stateful_callbacks"), "snug"), "fingerprint");
    EXPECT(json_object_del(own, "data-order") == 0);
    json_dump_file(root, state, 0);
    json_decref(root);
    Ran r = snug_run(
        "train --model %s --data %s --out %s --seq %d --global-batch 8 --steps %d --log-steps 1 --lr 3e-3 "
        "--val-split 0.2 "
        "--precision fp32 --device cpu --save-steps 3 --resume",
        test_path("m"), test_path("samples.jsonl"), test_path("old"), SEQ, STEPS);
    if (!EXPECT(r.code == 1 &&
                strstr(str_text(&r.err), "data-order was not set and is 2: rows by a keyed permutation")))
        test_note("    %d: %s", r.code, str_text(&r.err));
    ran_free(&r);
}

/* The logged loss is the mean over the tokens since the row before, whatever --log-steps; also across a resume. */
TEST(the_logged_loss_is_the_mean_since_the_last_log) {
    snug_make_job((SnugJob){1, 16, 16});
    put_samples("samples.jsonl", 6, SAMPLES);
    Outcome each = train("each", "--no-save");
    double few[STEPS];
    const char *flags[] = {"--log-steps 3 --save-steps 2", "--log-steps 3 --save-steps 2 --resume"};
    for (int i = 0; i < 2; i++) {
        if (i) file_remove_tree(test_path("few/checkpoint-7"), NULL);
        if (i) file_remove_tree(test_path("few/checkpoint-6"), NULL);
        if (i) file_remove_tree(test_path("few/checkpoint-4"), NULL); /* on from step 2, in the middle of a stretch */
        train("few", flags[i]);
        int n = snug_metrics(test_path("few"), "train", "loss", few, STEPS);
        /* rows at steps 1, 3, 6, 7; samples here have about as many scored tokens each, so compare loosely by the
         * mean */
        EXPECT(n == 4);
        EXPECT_NEAR(few[0], each.loss[0], 1e-12);
        EXPECT_NEAR(few[1], (each.loss[1] + each.loss[2]) / 2, 0.02 * each.loss[1]);
        EXPECT_NEAR(few[2], (each.loss[3] + each.loss[4] + each.loss[5]) / 3, 0.02 * each.loss[4]);
        EXPECT_NEAR(few[3], each.loss[6], 1e-12);
        EXPECT(fmin(each.loss[1], each.loss[2]) <= few[1] && few[1] <= fmax(each.loss[1], each.loss[2]));
    }
}
