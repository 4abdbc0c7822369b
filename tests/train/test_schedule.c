/* test_schedule.c - learning rates step by step against transformers, groups of parameters against torch, spikes,
 * and the loss scale of fp16. */
#include <jansson.h>
#include <stdlib.h>

#include "base/file.h"
#include "tests/snug.h"
#include "tests/test.h"
#include "train/run_int.h"

#define REFERENCE "tests/train/schedules.json" /* tools/make_schedule_golden.py */

TEST(a_warm_up_rises_from_zero_and_the_schedule_takes_over) {
    Schedule s = {.kind = SCHEDULE_COSINE, .lr = 1e-3, .min_lr = 1e-4, .warmup_steps = 10, .total_steps = 110};
    EXPECT_NEAR(schedule_lr(&s, 0), 0, 0);
    EXPECT_NEAR(schedule_lr(&s, 5), 5e-4, 1e-12);
    EXPECT_NEAR(schedule_lr(&s, 10), 1e-3, 1e-12);
    EXPECT_NEAR(schedule_lr(&s, 60), 5.5e-4, 1e-12); /* half way: the mean of both ends */
    EXPECT_NEAR(schedule_lr(&s, 110), 1e-4, 1e-12);
    for (int64_t step = 11; step <= 110; step++) EXPECT(schedule_lr(&s, step) < schedule_lr(&s, step - 1));
    s.kind = SCHEDULE_LINEAR;
    EXPECT_NEAR(schedule_lr(&s, 35), 1e-3 - 0.25 * 9e-4, 1e-12);
    s.kind = SCHEDULE_CONSTANT;
    EXPECT_NEAR(schedule_lr(&s, 109), 1e-3, 1e-12);
}

static double number(const json_t *o, const char *key) { return json_number_value(json_object_get(o, key)); }

/* The schedule that transformers calls by another name. */
static Schedule schedule_of(const json_t *o) {
    const char *kind = json_string_value(json_object_get(o, "kind"));
    const char *decay = json_string_value(json_object_get(o, "decay_type"));
    Schedule s = {.lr = number(o, "lr"),
                  .warmup_steps = (int64_t)number(o, "warmup"),
                  .total_steps = (int64_t)number(o, "steps"),
                  .decay_steps = (int64_t)number(o, "num_decay_steps"),
                  .decay = DECAY_COSINE};
    s.min_lr = number(o, "min_lr") + (number(o, "min_lr_rate") + number(o, "min_lr_ratio")) * s.lr;
    s.kind = !strncmp(kind, "cosine", 6)  ? SCHEDULE_COSINE
             : !strcmp(kind, "linear")    ? SCHEDULE_LINEAR
             : !strncmp(kind, "const", 5) ? SCHEDULE_CONSTANT
                                          : SCHEDULE_WSD;
    for (int i = 0; i < DECAY_SHAPES; i++)
        if (decay && !strcmp(decay, decay_names[i])) s.decay = (DecayShape)i;
    return s;
}

TEST(every_schedule_equals_the_one_of_transformers) {
    json_t *root = json_load_file(REFERENCE, 0, NULL), *o, *rate;
    size_t i, step;
    EXPECT(json_array_size(json_object_get(root, "schedules")) == 10);
    json_array_foreach(json_object_get(root, "schedules"), i, o) {
        Schedule s = schedule_of(o);
        json_array_foreach(json_object_get(o, "rates"), step, rate) {
            if (!EXPECT(fabs(schedule_lr(&s, (int64_t)step) - json_number_value(rate)) <= 1e-16))
                test_note("    schedule %d (%s), step %d", (int)i, schedule_names[s.kind], (int)step);
        }
    }
    json_decref(root);
}

TEST(a_stable_stretch_and_its_decay_share_what_the_warm_up_leaves) {
    Schedule s = {.kind = SCHEDULE_WSD, .lr = 1, .warmup_steps = 10, .total_steps = 100, .decay_ratio = 0.2};
    EXPECT(schedule_decay_steps(&s) == 20 && schedule_lr(&s, 80) == 1 && schedule_lr(&s, 90) == 0.5);
    s.total_steps = 1000; /* a lengthened run: the decay moves to its end */
    EXPECT(schedule_decay_steps(&s) == 200 && schedule_lr(&s, 90) == 1 && schedule_lr(&s, 900) == 0.5);
    s.decay_steps = 5000;
    EXPECT(schedule_decay_steps(&s) == 990 && schedule_lr(&s, 10) == 1 && schedule_lr(&s, 505) == 0.5);
    s.warmup_steps = 2000;
    EXPECT(schedule_decay_steps(&s) == 1 && schedule_lr(&s, 1000) == 0.5);
}

/* ---- groups by name ---- */

static void write_golden_rows(const char *path) {
    json_t *batch = json_load_file("tests/golden/qwen2_tied/batch.json", 0, NULL);
    Str text = {0};
    for (size_t r = 0; r < 2; r++) {
        json_t *row = json_pack("{s:O, s:O}", "ids", json_array_get(json_object_get(batch, "ids"), r), "labels",
                                json_array_get(json_object_get(batch, "labels"), r));
        char *line = json_dumps(row, 0);
        str_addf(&text, "%s\n", line);
        free(line);
        json_decref(row);
    }
    EXPECT(file_write_all(path, text.data, text.len, NULL));
    str_free(&text);
    json_decref(batch);
}

static void add_rules(Str *out, const char *flag, const json_t *rules) {
    const char *part;
    json_t *x;
    json_object_foreach((json_t *)rules, part, x) {
        str_addf(out, " --%s '%s=%.9g'", flag, part, json_number_value(x));
    }
}

TEST(learning_rates_and_decay_by_name_equal_torch_with_parameter_groups) {
    json_t *root = json_load_file(REFERENCE, 0, NULL), *g = json_object_get(root, "groups"),
           *want = json_object_get(g, "losses");
    Str flags = {0};
    add_rules(&flags, "lr-group", json_object_get(g, "lr_mult"));
    add_rules(&flags, "decay-mult", json_object_get(g, "decay_mult"));
    str_addf(&flags,
             " --lr %.9g --adam_beta1 %.9g --adam_beta2 %.9g --adam_epsilon %.9g --weight_decay %.9g "
             "--max_grad_norm %.9g",
             number(g, "lr"), number(g, "beta1"), number(g, "beta2"), number(g, "eps"), number(g, "weight_decay"),
             number(g, "clip"));
    str_addf(&flags, " --warmup-steps %d --lr_scheduler_type warmup_stable_decay --lr_scheduler_kwargs "
                     "'{\"num_decay_steps\": %d, \"decay_type\": \"1-sqrt\"}'",
             (int)number(g, "warmup"), (int)number(g, "decay_steps"));
    write_golden_rows(test_path("rows.jsonl"));
    Ran r = snug_run(
        "train --model tests/golden/qwen2_tied --data %s --out %s --seq 24 --micro-batch 2 --steps 10 --log-steps "
        "1 "
        "--precision fp32 --no-shuffle --pack off --no-save %s",
        test_path("rows.jsonl"), test_path("o"), str_text(&flags));
    if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
    double have[10];
    EXPECT(snug_metrics(test_path("o"), "train", "loss", have, 10) == 10);
    for (int i = 0; i < 10; i++) {
        double w = json_number_value(json_array_get(want, (size_t)i));
        if (!EXPECT(fabs(have[i] - w) <= (snug_device() ? 1e-4 : 1e-5) * w))
            test_note("    step %d: %.9g, torch %.9g", i + 1, have[i], w);
    }
    ran_free(&r);
    str_free(&flags);
    json_decref(root);
}

TEST(a_group_that_no_parameter_is_in_is_refused) {
    static const char *const bad[][2] = {
        {"--lr-mult embeding=2", "--lr-mult embeding: no parameter"},
        {"--decay-mult 'layers.9.*norm=1'", "--decay-mult layers.9.*norm: no parameter"},
        {"--lr-mult q_proj=2", "names only part of"},
        {"--mode lora --lr-mult embed=2", "--lr-mult embed: no parameter"}};
    write_golden_rows(test_path("rows.jsonl"));
    for (int i = 0; i < 4; i++) {
        Ran r = snug_run("train --model tests/golden/qwen2_tied --data %s --out %s --seq 24 --steps 2 %s",
                         test_path("rows.jsonl"), test_path("never"), bad[i][0]);
        if (!EXPECT(r.code == 2 && strstr(str_text(&r.err), bad[i][1]))) test_note("%s", str_text(&r.err));
        EXPECT(!file_exists(test_path("never")));
        ran_free(&r);
    }
}

/* ---- spikes ---- */

TEST(a_spike_is_far_above_the_updates_before_it_and_does_not_hide_the_next) {
    SpikeRule rule = {.on = SPIKE_SKIP, .factor = 6, .window = 16};
    SpikeState s = {0};
    for (int i = 0; i < 40; i++) {
        SpikeLimits l = spike_limits(&s, &rule);
        double loss = 3 + (i % 2 ? 0.1 : -0.1), norm = 1 + (i % 3) * 0.1;
        EXPECT(i >= 8 || (isinf(l.loss) && isinf(l.norm)));
        if (!EXPECT(!spike_is_one(&l, loss, norm))) test_note("    update %d: limits %g, %g", i, l.loss, l.norm);
        s = spike_after(s, &rule, loss, norm, false);
    }
    SpikeLimits l = spike_limits(&s, &rule);
    EXPECT(l.loss > 3.3 && l.loss < 4.5 && spike_is_one(&l, 5, 1) && spike_is_one(&l, 3, 10) &&
           !spike_is_one(&l, NAN, 10));
    s = spike_after(s, &rule, 1000, 1, true);
    l = spike_limits(&s, &rule);
    EXPECT(s.skipped_in_a_row == 1 && spike_is_one(&l, 1000, 1) && l.loss < 8);
    int held = 0; /* a level that stays is soon the usual one */
    for (; held < 40 && spike_is_one(&l, 8, 1); held++, l = spike_limits(&s, &rule))
        s = spike_after(s, &rule, 8, 1, true);
    EXPECT(held > 0 && held < 10);
    rule.on = SPIKE_IGNORE;
    l = spike_limits(&s, &rule);
    EXPECT(!spike_is_one(&l, 1e9, 1e9));
}

TEST(an_overflow_halves_the_loss_scale_and_good_updates_double_it) {
    LossScale s = {.scale = 1024};
    s = loss_scale_after(s, 3, false);
    EXPECT(s.scale == 512 && s.skipped == 1);
    for (int i = 0; i < 3; i++) s = loss_scale_after(s, 3, true);
    EXPECT(s.scale == 1024 && s.skipped == 1);
    s = loss_scale_after(s, 3, true);
    s = loss_scale_after(s, 3, false); /* begins counting anew */
    for (int i = 0; i < 2; i++) s = loss_scale_after(s, 3, true);
    EXPECT(s.scale == 512 && s.skipped == 2);
    LossScale off = {.scale = 1};
    EXPECT(loss_scale_after(off, 0, true).scale == 1);
}
