/* test_baselines.c - the losses as commands: a step has the gradient that torch gives, and every method forgets. */
#include "base/file.h"
#include "cli/unlearn_run.h"
#include "tests/snug.h"
#include "tests/test.h"
#include "tests/unlearn/logged_run.h"
#include "unlearn/losses.h"
#include "unlearn/vec.h"
#include "weights/weights.h"

#define FIXTURE "tests/unlearn/hvp/"

static bool must(Ran r) {
    bool ok = EXPECT(r.code == 0);
    if (!ok) test_note("    %s", str_text(&r.err));
    ran_free(&r);
    return ok;
}

static json_t *unlearn(const char *flags) {
    Ran r = snug_run("unlearn --run %s --forget %s --out %s --overwrite --threads 2 --json %s", test_path("o"),
                     test_path("f"), test_path("u"), flags);
    json_t *result = r.code == 0 ? ran_json(&r) : NULL;
    if (!EXPECT(result != NULL)) test_note("    %s: %s", flags, str_text(&r.err));
    ran_free(&r);
    return result;
}

/* theta - lr * d(-nll) / dtheta: the weights go up the gradient of double backward's fixture. */
TEST(a_step_of_gradient_ascent_is_the_gradient_of_torch) {
    LoggedRun l;
    char result[600];
    if (!must(snug_run("train --model " FIXTURE "model --data " FIXTURE
                       "rows.jsonl --out %s --seq 16 --global-batch 6 --steps 1 --lr 0 "
                       "--threads 2 --step-log",
                       test_path("o"))))
        return;
    EXPECT(file_write_all(test_path("f"), "[0,1,2,3,4,5]", 13, NULL));
    json_t *j = unlearn(
        "--method gradascent --optimizer sgd --clip 0 --weight-decay 0 --epochs 1 --lr 1 --global-batch 6 "
        "--micro-batch 4");
    if (j && logged_run_open(&l, "o", "fisher")) {
        int64_t n = l.walk.n;
        snprintf(result, sizeof result, "%s/model", test_path("u"));
        float *before = logged_run_vector(&l, FIXTURE "model"), *after = logged_run_vector(&l, result);
        float *g = logged_run_vector(&l, FIXTURE "gradient");
        vec_add(NULL, after, before, -1, n);
        double norm = vec_norm(NULL, g, n);
        vec_add(NULL, after, g, -1, n);
        EXPECT_NEAR(vec_norm(NULL, after, n) / norm, 0, 1e-5);
        mem_free(before), mem_free(after), mem_free(g);
        logged_run_close(&l);
    }
    json_decref(j);
}

/* The divergence from itself is 0 with gradient 0: what is left goes through the logits, and must be the same step. */
TEST(a_step_through_logits_is_the_step_through_log_probabilities) {
    snug_make_job((SnugJob){2, 32, 48});
    if (!must(snug_run("train --model %s --data %s --out %s --seq 48 --global-batch 8 --steps 4 --lr 3e-3 --threads "
                       "2 --step-log",
                       test_path("m"), test_path("rows.jsonl"), test_path("o"))))
        return;
    EXPECT(file_write_all(test_path("f"), "5\n40\n41\n", 8, NULL));
    static const char *const methods[] = {"gradascent", "graddiff --retain-loss kl"};
    float *theta[2] = {0}, *start = NULL;
    LoggedRun l;
    for (int i = 0; i < 2; i++) {
        char flags[300], result[600];
        snprintf(flags, sizeof flags,
                 "--method %s --optimizer sgd --clip 0 --weight-decay 0 --epochs 1 --lr 1 --global-batch 3 "
                 "--micro-batch 2",
                 methods[i]);
        json_decref(unlearn(flags));
        snprintf(result, sizeof result, "%s/model", test_path("u"));
        if (logged_run_open(&l, "o", "fisher")) theta[i] = logged_run_vector(&l, result);
        snprintf(result, sizeof result, "%s/model", test_path("o"));
        if (i && theta[1]) start = logged_run_vector(&l, result);
        int64_t n = l.walk.n;
        if (start && theta[0]) {
            vec_add(NULL, theta[1], theta[0], -1, n), vec_add(NULL, theta[0], start, -1, n);
            EXPECT(vec_norm(NULL, theta[0], n) > 0);
            EXPECT_NEAR(vec_norm(NULL, theta[1], n) / vec_norm(NULL, theta[0], n), 0, 1e-5);
        }
        logged_run_close(&l);
    }
    mem_free(theta[0]), mem_free(theta[1]), mem_free(start);
}

TEST(every_loss_forgets_and_takes_what_was_planned) {
    snug_make_job((SnugJob){2, 32, 48});
    if (!must(
            snug_run("train --model %s --data %s --out %s --seq 48 --global-batch 8 --steps 40 --lr 3e-3 --threads 2",
                     test_path("m"), test_path("rows.jsonl"), test_path("o"))))
        return;
    EXPECT(file_write_all(test_path("f"), "5\n40\n41\n", 8, NULL));
    Str rows = {0};
    for (int i = 0; i < 3; i++) str_addf(&rows, "{\"ids\":[%d,7,8,9,10]}\n", i);
    EXPECT(file_write_all(test_path("refusals.jsonl"), rows.data, rows.len, NULL));
    str_free(&rows);
    for (int kind = 0; kind < LOSS_KINDS; kind++) {
        char flags[900];
        snprintf(flags, sizeof flags,
                 "--method %s --lr 2e-3 --epochs 6 --global-batch 2 --micro-batch 3 --retain-alpha 0.2 --gamma 1 "
                 "--refusals %s",
                 loss_names[kind], test_path("refusals.jsonl"));
        json_t *j = unlearn(flags);
        if (!j) continue;
        double before = json_number_value(json_object_get(j, "forget_nll_before")),
               after = json_number_value(json_object_get(j, "forget_nll_after"));
        bool weak = kind == LOSS_SATIMP || kind == LOSS_UNDIAL ||
                    kind == LOSS_PDU; /* tokens that are unlikely already are left alone */
        if (kind == LOSS_RMU)
            EXPECT(json_number_value(json_object_get(j, "loss")) <
                   json_number_value(json_object_get(j, "first_loss")));
        if (!EXPECT(after > before - (weak ? 0.5 : 0)))
            test_note("    %s: %.4f -> %.4f", loss_names[kind], before, after);
        EXPECT(json_is_real(json_object_get(j, "loss")) && json_is_real(json_object_get(j, "first_loss")));
        EXPECT(json_number_value(json_object_get(j, "updates")) == 12); /* two an epoch: 2 and 1 samples */
        EXPECT(json_number_value(json_object_get(j, "planned_bytes")) ==
               json_number_value(json_object_get(j, "measured_bytes")));
        EXPECT(json_number_value(json_object_get(j, "above_plan_bytes")) == 0);
        json_decref(j);
    }
}

/* Their gradients were put where logits still had to be read, half as wide as these: every step was not a number. */
TEST(losses_on_logits_work_in_bf16_and_as_in_fp32) {
    static const char *const methods[] = {"undial", "pdu", "rmu", "npo --retain-loss kl"};
    double first[2][COUNT_OF(methods)];
    snug_make_job((SnugJob){2, 32, 48});
    for (int i = 0; i < 2; i++) {
        if (!must(snug_run("train --model %s --data %s --out %s --overwrite --seq 48 --global-batch 8 --steps 10 --lr "
                           "3e-3 --threads 2 --precision %s",
                           test_path("m"), test_path("rows.jsonl"), test_path("o"), i ? "bf16" : "fp32")))
            return;
        EXPECT(file_write_all(test_path("f"), "5\n40\n41\n", 8, NULL));
        for (int k = 0; k < COUNT_OF(methods); k++) {
            char flags[300];
            snprintf(flags, sizeof flags, "--method %s --epochs 1 --global-batch 3 --micro-batch 4", methods[k]);
            json_t *j = unlearn(flags);
            first[i][k] = j ? json_number_value(json_object_get(j, "first_loss")) : (double)NAN;
            EXPECT_NEAR(first[i][k], first[0][k], 0.05 * (1 + fabs(first[0][k])));
            json_decref(j);
        }
    }
}

/* The passes that score a micro-batch ran over the gradients of the one before: another split, another result. */
TEST(a_loss_on_logits_is_the_same_in_any_micro_batches) {
    snug_make_job((SnugJob){3, 128, 512});
    if (!must(snug_run("train --model %s --data %s --out %s --seq 48 --global-batch 4 --steps 2 --optimizer sgd "
                       "--clip 0 --precision fp32 --threads 2",
                       test_path("m"), test_path("rows.jsonl"), test_path("o"))))
        return;
    EXPECT(file_write_all(test_path("f"), "5\n40\n41\n", 8, NULL));
    static const char *const methods[] = {"pdu", "undial", "graddiff --retain-loss kl", "npo"};
    for (int m = 0; m < COUNT_OF(methods); m++) {
        double after[2] = {0};
        for (int i = 0; i < 2; i++) {
            char flags[300];
            snprintf(flags, sizeof flags,
                     "--method %s --optimizer sgd --clip 0 --epochs 2 --lr 1 --global-batch 4 --micro-batch %d",
                     methods[m], i ? 8 : 2);
            json_t *j = unlearn(flags);
            after[i] = json_number_value(json_object_get(j, "forget_nll_after"));
            json_decref(j);
        }
        EXPECT_NEAR(after[0], after[1], 1e-5);
    }
}

/* "cannot read: Bad address": the head of rmu's reference, which nothing reads, was loaded to no place. */
TEST(rmu_tunes_a_model_with_a_head_of_its_own) {
    snug_make_job((SnugJob){2, 32, 48});
    if (!must(snug_run("init --model %s --out %s --set tie_word_embeddings=false", test_path("m"), test_path("own"))) ||
        !must(snug_run("train --model %s --data %s --out %s --seq 48 --global-batch 8 --steps 2 --threads 2",
                       test_path("own"), test_path("rows.jsonl"), test_path("o"))))
        return;
    EXPECT(file_write_all(test_path("f"), "5\n40\n41\n", 8, NULL));
    json_t *j = unlearn("--method rmu --lr 2e-3 --epochs 2 --global-batch 2 --micro-batch 3");
    EXPECT(json_number_value(json_object_get(j, "planned_bytes")) ==
           json_number_value(json_object_get(j, "measured_bytes")));
    json_decref(j);
}

/* The weights' checksum after an update by that loss; evaluates: the job has a phase that evaluates, behind the update,
 * and is planned a second time with it. */
static uint64_t tuned(LossSpec loss, bool evaluates) {
    char run[600], out[600], *words[] = {"--run", run, "--out", out, "--threads", "2", "--micro-batch", "2"};
    bool removed[64] = {[5] = true, [40] = true};
    int64_t sample[] = {5, 40};
    ForgetSet f = {.removed = removed, .sample = sample, .n = 2};
    UnlearnRun r = {0};
    BaselineReport report;
    Options o;
    Err e = {0};
    uint64_t sum = 0;
    snprintf(run, sizeof run, "%s", test_path("o"));
    snprintf(out, sizeof out, "%s/unused", test_tmp());
    JobSetup *s = &r.base;
    bool ok = options_parse(&o, CMD_UNLEARN, COUNT_OF(words), words, &e) &&
              unlearn_run_open_result(&r, &o, &loss, baseline_rows(&loss, 2, false), 0, &e);
    if (ok && evaluates) {
        run_close(&s->run);
        ring_close(&s->ring);
        s->spec.evaluate = true;
        RunOptions ro = setup_job_options(s);
        ro.clip = opt_real(s->o, OPT_CLIP);
        ok = setup_job_plan(s, &e) && run_open(&s->run, &s->job, s->backend, s->data, NULL, &ro, &e);
    }
    Baseline b = {.run = &s->run, .loss = loss, .forget = &f, .epochs = 1, .batch = 2, .seed = 3, .schedule.lr = 0.01};
    ok = ok && baseline_run(&b, &report, &e);
    if (EXPECT(ok))
        sum = weights_checksum(&s->ring.x, ROLE_WEIGHT);
    else
        test_note("    %s", e.text);
    unlearn_run_close(&r);
    options_free(&o);
    return sum;
}

/* Labels, which only such a phase reads, may have the bytes of the gradients that the host puts there. */
TEST(a_loss_on_logits_learns_the_same_in_a_job_that_evaluates) {
    snug_make_job((SnugJob){3, 128, 512});
    if (!must(snug_run("train --model %s --data %s --out %s --seq 48 --global-batch 8 --steps 2 --threads 2",
                       test_path("m"), test_path("rows.jsonl"), test_path("o"))))
        return;
    static const LossKind kinds[] = {LOSS_PDU, LOSS_UNDIAL, LOSS_RMU};
    for (int i = 0; i < COUNT_OF(kinds); i++) {
        LossSpec loss = loss_defaults(kinds[i]);
        uint64_t sum = tuned(loss, false);
        if (!EXPECT(sum && tuned(loss, true) == sum)) test_note("    %s", loss_names[kinds[i]]);
    }
}

static void expect_refused(const char *run, const char *flags, const char *says) {
    Ran r = snug_run("unlearn --run %s --forget %s --out %s %s", run, test_path("f"), test_path("new"), flags);
    if (!EXPECT(r.code && strstr(str_text(&r.err), says))) test_note("    %s: %s", flags, str_text(&r.err));
    EXPECT(!file_exists(test_path("new")));
    ran_free(&r);
}

/* TOFU's refusals are texts, a line each; and a policy's run has options that `snug train` has under other names. */
static void expect_refused_files(void) {
    static const char text[] = "I am not certain about that.\n", policy[] = "eps: 1e-8\nepsilon: 0.2\ngroup: 4\n";
    char flags[700], config[700];
    Err e = {0};
    EXPECT_OK(file_write_all(test_path("idontknow.jsonl"), text, sizeof text - 1, &e));
    snprintf(flags, sizeof flags, "--method dpo --refusals %s", test_path("idontknow.jsonl"));
    expect_refused(test_path("o"), flags, "a row like those of the data is needed for every sample to forget");
    EXPECT_OK(file_make_dirs(test_path("policy"), &e));
    snprintf(config, sizeof config, "%s/config.yaml", test_path("policy"));
    EXPECT_OK(file_write_all(config, policy, sizeof policy - 1, &e));
    expect_refused(test_path("policy"), "", "policy: is not the folder of a `snug train`: ");
}

TEST(losses_that_cannot_be_are_refused_and_write_nothing) {
    snug_make_job((SnugJob){2, 32, 48});
    if (!must(snug_run("train --model %s --data %s --out %s --seq 48 --global-batch 8 --steps 2 --threads 2",
                       test_path("m"), test_path("rows.jsonl"), test_path("o"))))
        return;
    EXPECT(file_write_all(test_path("f"), "5\n", 2, NULL));
    static const struct {
        const char *flags, *says;
        int code;
    } table[] = {{"--method dpo", "--refusals FILE", 2},
                 {"--method npo --budget 1KiB", "does not fit", 3},
                 {"--method lmcleaner", "was trained without --step-log", 1},
                 {"--method npoo", "npo", 2}};
    for (int i = 0; i < 4; i++) {
        Ran r = snug_run("unlearn --run %s --forget %s --out %s %s", test_path("o"), test_path("f"), test_path("new"),
                         table[i].flags);
        if (!EXPECT(r.code == table[i].code && strstr(str_text(&r.err), table[i].says)))
            test_note("    %s: %d, %s", table[i].flags, r.code, str_text(&r.err));
        EXPECT(!file_exists(test_path("new")));
        ran_free(&r);
    }
    expect_refused_files();
}

static double planned_bytes(const char *flags) {
    json_t *j = unlearn(flags);
    double bytes = j ? json_number_value(json_object_get(j, "planned_bytes")) : (double)NAN;
    EXPECT(j && bytes == json_number_value(json_object_get(j, "measured_bytes")));
    json_decref(j);
    return bytes;
}

/* Fresh adapters on a run's whole weights: without them the model is the reference. */
TEST(with_adapters_the_reference_of_a_loss_is_no_copy) {
    static const char *const flags[] = {"--method npo --mode lora --lora-rank 4 --epochs 1 --global-batch 2",
                                        "--method undial --mode lora --lora-rank 4 --epochs 1 --global-batch 2",
                                        "--method npo --epochs 1 --global-batch 2",
                                        "--method undial --epochs 1 --global-batch 2"};
    char file[600];
    double bytes[4];
    snug_make_job((SnugJob){2, 64, 24});
    if (!must(snug_run("train --model %s --data %s --out %s --seq 24 --global-batch 8 --steps 4 --lr 3e-3 --threads 2",
                       test_path("m"), test_path("rows.jsonl"), test_path("o"))))
        return;
    EXPECT(file_write_all(test_path("f"), "5\n40\n", 5, NULL));
    for (int i = 0; i < 4; i++) bytes[i] = planned_bytes(flags[i]);
    snprintf(file, sizeof file, "%s/model/model.safetensors", test_path("o"));
    double adapters = bytes[1] - bytes[0], copied = bytes[3] - bytes[2], weights = (double)file_tree_bytes(file);
    test_note("    %.0f bytes of weights; a reference takes %.0f, with adapters %.0f", weights, copied, adapters);
    EXPECT(weights > 0 && adapters < weights && copied - adapters > 0.9 * weights);
}

/* The model of an earlier request stayed beside the new adapter, and would have been taken for its result. */
TEST(a_result_of_another_kind_is_replaced_as_one_of_the_same) {
    static const char flags[] = "--method gradascent --epochs 1 --mode lora --lora-rank 2";
    char model[600], adapter[600];
    snug_make_job((SnugJob){1, 16, 24});
    if (!must(snug_run("train --model %s --data %s --out %s --seq 24 --global-batch 8 --steps 2 --threads 2",
                       test_path("m"), test_path("rows.jsonl"), test_path("o"))))
        return;
    EXPECT(file_write_all(test_path("f"), "5\n", 2, NULL));
    json_decref(unlearn("--method gradascent --epochs 1"));
    snprintf(model, sizeof model, "%s/model", test_path("u"));
    snprintf(adapter, sizeof adapter, "%s/adapter", test_path("u"));
    Ran r = snug_run("unlearn --run %s --forget %s --out %s %s", test_path("o"), test_path("f"), test_path("u"), flags);
    EXPECT(r.code == 1 && strstr(str_text(&r.err), "holds the result model already"));
    EXPECT(file_is_dir(model) && !file_exists(adapter));
    ran_free(&r);
    json_decref(unlearn(flags)); /* with --overwrite */
    EXPECT(file_is_dir(adapter) && !file_exists(model));
    r = snug_run("unlearn --run %s --forget %s --out %s --overwrite %s", test_path("o"), test_path("f"),
                 test_path("o"), flags);
    snprintf(adapter, sizeof adapter, "%s/adapter", test_path("o"));
    EXPECT(r.code != 0 && strstr(str_text(&r.err), "which this command reads") && !file_exists(adapter));
    ran_free(&r);
}

TEST(an_adapter_is_tuned_away_from_samples_too) {
    snug_make_job((SnugJob){2, 32, 48});
    if (!must(snug_run("train --model %s --data %s --out %s --seq 48 --global-batch 8 --steps 30 --lr 1e-2 --mode "
                       "lora --lora-rank 4 --threads 2",
                       test_path("m"), test_path("rows.jsonl"), test_path("o"))))
        return;
    EXPECT(file_write_all(test_path("f"), "5\n40\n", 5, NULL));
    json_t *j = unlearn("--method npo --lr 5e-3 --epochs 6 --global-batch 2");
    if (!j) return;
    EXPECT(json_number_value(json_object_get(j, "forget_nll_after")) >
           json_number_value(json_object_get(j, "forget_nll_before")));
    EXPECT(strstr(json_string_value(json_object_get(j, "result")), "u/adapter"));
    json_decref(j);
}
