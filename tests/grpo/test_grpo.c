/* test_grpo.c - snug grpo as a person runs it: what the last line says, what is on disk, and that a run goes on. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "tests/snug.h"
#include "tests/test.h"
#include "tests/world.h"

#define TINY                                                                                                   \
    "--model models/tally --device cpu --threads 1 --parser test --max-samples 24 --eval-samples 8 --group 4 " \
    "--global-batch 16 --prompt-tokens 32 --max-tokens 12 --temperature 0.8 --log-steps 1 --sample-steps 1 "   \
    "--precision fp32 --lr 1e-4 --json "

static json_t *run(const char *out, const char *flags) {
    Ran r = snug_run("grpo " TINY "--out %s/%s %s", test_tmp(), out, flags);
    if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
    const char *line = strrchr(str_text(&r.out), '{') ? strchr(str_text(&r.out), '{') : "";
    json_t *j = json_loads(line, JSON_DISABLE_EOF_CHECK, NULL);
    ran_free(&r);
    EXPECT(j != NULL);
    return j;
}

static double number(const json_t *j, const char *key) { return json_number_value(json_object_get(j, key)); }
static const char *text(const json_t *j, const char *key) { return json_string_value(json_object_get(j, key)); }

TEST(a_policy_is_trained_inside_its_plan_and_says_so) {
    char path[400];
    json_t *j = run("a", "--steps 3 --reward last_number --reward length --reward-weights 1 --reward-weights 0.1");
    static const char *const keys[] = {"reward_first", "reward_last", "eval_before", "eval_after",
                                       "logp_difference_max"};
    for (int i = 0; i < COUNT_OF(keys); i++)
        if (!EXPECT(json_is_number(json_object_get(j, keys[i])))) test_note("    %s", keys[i]);
    EXPECT(number(j, "steps") == 3 && number(j, "planned_bytes") == number(j, "measured_bytes"));
    EXPECT(number(j, "process_measured_bytes") <= number(j, "process_planned_bytes"));
    EXPECT(number(j, "logp_difference_max") < 1e-3); /* fp32: sampler and trainer are the same model */
    EXPECT(number(j, "allocations_after_first_step") == 0); /* texts are counted apart */
    EXPECT(number(json_object_get(j, "seconds"), "training") > 0);
    const json_t *predicted = json_object_get(j, "predicted_seconds_per_update");
    EXPECT(number(predicted, "training") > 0 && number(predicted, "rollout") > 0 &&
           number(predicted, "reference") > 0);
    EXPECT(number(predicted, "rewards") == 0 && number(predicted, "evaluator") == 0);
    static const char *const files[] = {"rewards.jsonl", "samples.jsonl", "samples.html", "metrics.jsonl",
                                        "model/model.safetensors", "plan.json", "config.yaml"};
    for (int i = 0; i < COUNT_OF(files); i++) {
        snprintf(path, sizeof path, "%s/a/%s", test_tmp(), files[i]);
        if (!EXPECT(file_exists(path))) test_note("    %s", path);
    }
    json_decref(j);
}

static json_t *last_metrics(const char *out);

/* So hot and so coarse that sampler and trainer draw some tokens differently: those are drawn again. */
TEST(an_exact_policy_draws_what_the_trainer_draws) {
    static const char *const ways[] = {"--precision fp32 --micro-batch 4", "--precision bf16 --num-iterations 2",
                                       "--precision bf16 --mode lora --lora-rank 4 --top-k 200"};
    double redrawn = 0;
    for (int i = 0; i < COUNT_OF(ways); i++) {
        char flags[300], name[32];
        snprintf(name, sizeof name, "exact%d", i);
        snprintf(flags, sizeof flags,
                 "--steps 2 --exact-policy --temperature 3 --max-tokens 24 --eval-samples 0 %s", ways[i]);
        json_t *j = run(name, flags);
        if (!EXPECT(number(j, "logp_difference_max") == 0))
            test_note("    %s: %g", ways[i], number(j, "logp_difference_max"));
        EXPECT(number(j, "planned_bytes") == number(j, "measured_bytes") &&
               number(j, "allocations_after_first_step") == 0);
        json_decref(j);
        j = last_metrics(name);
        redrawn += number(j, "redrawn");
        EXPECT(number(j, "entropy") > 0);
        json_decref(j);
    }
    EXPECT(redrawn > 0);
}

static json_t *last_metrics(const char *out) {
    char path[400];
    Str text = {0};
    snprintf(path, sizeof path, "%s/%s/metrics.jsonl", test_tmp(), out);
    EXPECT(file_read(path, &text, 1 << 20, NULL));
    const char *at = str_text(&text), *last = NULL;
    while ((at = strstr(at, "{\"kind\": \"grpo\""))) last = at++;
    json_t *j = last ? json_loads(last, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
    str_free(&text);
    EXPECT(j != NULL);
    return j;
}

/* So hot that every token is about as likely: the entropy is that of 768 tokens. */
TEST(the_entropy_of_a_policy_is_measured) {
    json_decref(run("hot", "--steps 1 --temperature 100 --eval-samples 0"));
    json_t *j = last_metrics("hot");
    EXPECT_NEAR(number(j, "entropy"), log(768), 1e-3);
    EXPECT(number(j, "num_tokens") > 0 && json_is_number(json_object_get(j, "rewards_last_number_mean")));
    json_decref(j);
}

/* In the middle of a rollout too: its answers are part of the checkpoint. */
TEST(a_run_that_is_gone_on_with_ends_where_the_whole_one_does) {
    static const char *const ways[] = {"",
                                       "--num-iterations 2 --beta 0.1",
                                       "--mode lora --lora-rank 4 --num-iterations 2",
                                       "--loss-type grpo --micro-batch 8 --mask-truncated-completions",
                                       "--exact-policy --precision bf16 --temperature 3 --num-iterations 2",
                                       "--share-prompts off"};
    for (int i = 0; i < COUNT_OF(ways); i++) {
        char flags[300], name[32];
        if (test_brief() && i != 1) continue;
        snprintf(flags, sizeof flags, "--steps 5 --schedule constant %s", ways[i]);
        snprintf(name, sizeof name, "whole%d", i);
        json_t *whole = run(name, flags);
        snprintf(flags, sizeof flags, "--steps 3 --schedule constant %s", ways[i]);
        snprintf(name, sizeof name, "part%d", i);
        json_decref(run(name, flags));
        snprintf(flags, sizeof flags, "--steps 5 --schedule constant --resume %s", ways[i]);
        json_t *part = run(name, flags);
        if (!EXPECT(text(whole, "checksum") && !strcmp(text(whole, "checksum"), text(part, "checksum"))))
            test_note("    %s", ways[i]);
        EXPECT(number(whole, "reward_last") == number(part, "reward_last") &&
               number(whole, "eval_before") == number(part, "eval_before") &&
               number(whole, "eval_after") == number(part, "eval_after"));
        json_decref(whole), json_decref(part);
    }
}

TEST(prompts_that_lose_their_beginning_are_told_once) {
    Ran r = snug_run("grpo " TINY "--out %s/cut --steps 2 --prompt-tokens 3 --eval-samples 0", test_tmp());
    const char *said = strstr(str_text(&r.err), "4 of 4 prompts are longer than --prompt-tokens 3");
    EXPECT(r.code == 0 && said && !strstr(strstr(said, "lose"), "prompts are longer"));
    ran_free(&r);
}

/* Of the last update, but for the clock. */
static void expect_same_metrics(const char *one, const char *other) {
    json_t *a = last_metrics(one), *b = last_metrics(other), *v;
    const char *key;
    json_object_foreach(a, key, v) {
        bool of_the_clock = !strcmp(key, "time") || !strncmp(key, "seconds", 7);
        if (!EXPECT(of_the_clock || json_equal(v, json_object_get(b, key)))) test_note("    %s", key);
    }
    EXPECT(number(a, "reward") > 0 && number(a, "completions_mean_length") > 0);
    json_decref(a), json_decref(b);
}

/* The last update trains on a rollout that was answered before the checkpoint. */
TEST(a_run_that_goes_on_in_its_last_rollout_says_the_same_rewards) {
    static const char how[] =
        "--schedule constant --num-iterations 2 --beta 0 --exact-policy --reward length --reward last_number";
    static const char *const keys[] = {"reward_first", "reward_last", "eval_after"};
    char flags[200];
    snprintf(flags, sizeof flags, "--steps 4 %s", how);
    json_t *whole = run("last_whole", flags);
    snprintf(flags, sizeof flags, "--steps 3 %s", how);
    json_decref(run("last_part", flags));
    snprintf(flags, sizeof flags, "--steps 4 --resume %s", how);
    json_t *part = run("last_part", flags);
    for (int i = 0; i < COUNT_OF(keys); i++)
        if (!EXPECT(json_is_number(json_object_get(part, keys[i])) && number(whole, keys[i]) == number(part, keys[i])))
            test_note("    %s", keys[i]);
    json_decref(whole), json_decref(part);
    expect_same_metrics("last_whole", "last_part");
}

#define LEAVES                                                                                                \
    "grpo --model tally --device cpu --threads 1 --parser test --max-samples 24 --group 4 --global-batch 16 " \
    "--prompt-tokens 32 --max-tokens 4 --log-steps 1 --reward command --reward-command 'sh slow.sh' "         \
    "--reward-processes 1 --reward-seconds 900 --json --out out "

/* A reward that never comes, of the answers behind the first update: that is kept. */
TEST(a_run_asked_to_leave_while_it_waits_for_rewards_keeps_its_steps) {
    static const char slow[] =
        "n=0; while read -r line; do n=$((n + 1)); [ $n -gt 18 ] && echo >waits && sleep 1000; "
        "echo $n; done\n";
    static const char *const when[] = {LEAVES "--eval-samples 0 --steps 4",  /* of the second update */
                                       LEAVES "--eval-samples 2 --steps 1"}; /* of the held-out items */
    for (int i = 0; i < COUNT_OF(when); i++) {
        Err e = {0};
        Str out = {0}, err = {0};
        EXPECT_OK(file_remove_tree(world_path("w"), &e));
        EXPECT_OK(file_make_dirs(world_path("w"), &e));
        EXPECT_OK(file_write_all(world_path("w/slow.sh"), slow, sizeof slow - 1, &e));
        pid_t pid = world_start("w", world_binary(), NULL, when[i]);
        EXPECT(world_appears(world_path("w/waits")));
        kill(pid, SIGINT);
        EXPECT(world_wait(pid) == 0);
        world_said(&out, &err, "w");
        if (!EXPECT(strstr(str_text(&out), "\"steps\":1,") && strstr(str_text(&out), "\"stopped_by\":2") &&
                    world_has_checkpoint(world_path("w/out"))))
            test_note("    %s\n%s", str_text(&out), str_text(&err));
        str_free(&out), str_free(&err);
    }
}

/* What tokens are drawn by, how many answer a prompt, and who judges them; where a model is kept is none of it. */
TEST(a_run_does_not_go_on_with_other_answers) {
    static const char *const other[] = {"--group 8",
                                        "--temperature 1",
                                        "--top-k 5",
                                        "--repetition-penalty 1.1",
                                        "--prompt-tokens 31 --max-tokens 13",
                                        "--evaluator-tokens 11",
                                        "--evaluator same:int8",
                                        "--reference same:int8"};
    static const char how[] =
        "--schedule constant --eval-samples 0 --reward length --evaluator same --evaluator-tokens 12";
    char flags[300];
    snprintf(flags, sizeof flags, "--steps 1 %s", how);
    json_decref(run("answers", flags));
    for (int i = 0; i < COUNT_OF(other); i++) {
        Ran r = snug_run("grpo " TINY "--out %s/answers --steps 2 --resume %s %s", test_tmp(), how, other[i]);
        char name[40];
        snprintf(name, sizeof name, "%.*s was", (int)strcspn(other[i] + 2, " "), other[i] + 2);
        if (!EXPECT(r.code == 1 && strstr(str_text(&r.err), name)))
            test_note("    %s: exit %d\n%s", other[i], r.code, str_text(&r.err));
        ran_free(&r);
    }
    snprintf(flags, sizeof flags, "--steps 2 --resume %s --evaluator same:streamed --reference same:streamed", how);
    json_decref(run("answers", flags));
}

TEST(an_evaluator_on_the_ring_answers_what_the_policy_wrote) {
    json_t *j = run("judged", "--steps 2 --evaluator models/tally --evaluator-tokens 12 --reward length");
    EXPECT(number(j, "reward_first") >= 0 && number(j, "planned_bytes") == number(j, "measured_bytes"));
    EXPECT(number(json_object_get(j, "seconds"), "evaluator") > 0);
    EXPECT(number(json_object_get(j, "predicted_seconds_per_update"), "evaluator") > 0);
    json_decref(j);
}

TEST(an_evaluator_that_comes_by_phase_says_what_a_resident_one_says) {
    static const char *const ways[] = {"resident", "by-phase", "by-phase,streamed=1"};
    json_t *ran[3];
    for (int i = 0; i < COUNT_OF(ways); i++) {
        char flags[300], name[32];
        snprintf(name, sizeof name, "how%d", i);
        snprintf(flags, sizeof flags,
                 "--steps 2 --mode lora --lora-rank 4 --evaluator models/tally:%s --evaluator-tokens 12 "
                 "--evaluator-temperature 1 --reward length",
                 ways[i]);
        ran[i] = run(name, flags);
        EXPECT(number(ran[i], "planned_bytes") == number(ran[i], "measured_bytes"));
        EXPECT(number(ran[i], "process_measured_bytes") <= number(ran[i], "process_planned_bytes"));
        EXPECT(number(ran[i], "allocations_after_first_step") == 0);
        EXPECT(!strcmp(text(ran[0], "checksum"), text(ran[i], "checksum")) &&
               number(ran[0], "reward_last") == number(ran[i], "reward_last") &&
               number(ran[0], "eval_after") == number(ran[i], "eval_after"));
    }
    for (int i = 0; i < COUNT_OF(ways); i++) json_decref(ran[i]);
}

static double planned(const char *flags, const char *key) {
    Ran r = snug_run("plan --task grpo %s --json", flags);
    if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
    json_t *j = json_loads(str_text(&r.out), 0, NULL);
    double bytes = number(json_object_get(json_object_get(j, "pools"), "device"), key);
    json_decref(j);
    ran_free(&r);
    return bytes;
}

static void expect_same_bytes(const char *flags) {
    Ran r = snug_run("grpo %s --json --dry-run --out %s/planned", flags, test_tmp());
    if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
    json_t *j = json_loads(str_text(&r.out), JSON_DISABLE_EOF_CHECK, NULL);
    static const char *const keys[] = {"planned_bytes", "process_planned_bytes"};
    for (int i = 0; i < COUNT_OF(keys); i++)
        if (!EXPECT(number(j, keys[i]) > 0 && number(j, keys[i]) == planned(flags, keys[i])))
            test_note("    %s: %s planned %.0f, run %.0f", flags, keys[i], planned(flags, keys[i]),
                      number(j, keys[i]));
    json_decref(j);
    ran_free(&r);
}

TEST(a_plan_has_the_bytes_of_the_run) {
    static const char *const ways[] = {"--beta 0",
                                       "--beta 0 --mode lora --lora-rank 4",
                                       "--beta 0.1 --num-iterations 2",
                                       "--beta 0.1 --evaluator models/tally --evaluator-tokens 12 --budget 256MiB",
                                       "--share-prompts off --beta 0",
                                       "--share-prompts on --micro-batch 2 --exact-policy"};
    char flags[900], path[300];
    /* their own memory is more than any of these budgets */
    const char *budget = test_sanitized() ? "--budget 2GiB" : "";
    for (int i = 0; i < COUNT_OF(ways); i++) {
        snprintf(flags, sizeof flags, TINY "%s %s", ways[i], budget);
        expect_same_bytes(flags);
    }
    snprintf(path, sizeof path, "%s/problems.jsonl", test_tmp());
    Ran r = snug_run("problems --n 100 --roles none --out %s", path);
    ran_free(&r);
    snprintf(flags, sizeof flags, "--config recipes/grpo-demo.yaml --device cpu --data %s --eval-data %s %s", path,
             path, budget);
    expect_same_bytes(flags);
}

/* ---- answers that share their prompt ---- */

static double metric(const char *out, const char *kind, const char *key) { /* of the first line that has it */
    char path[400], of[40];
    Str text = {0};
    snprintf(path, sizeof path, "%s/%s/metrics.jsonl", test_tmp(), out);
    snprintf(of, sizeof of, "{\"kind\": \"%s\"", kind);
    EXPECT(file_read(path, &text, 1 << 20, NULL));
    const char *at = strstr(str_text(&text), of);
    json_t *j = at ? json_loads(at, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
    EXPECT(j && json_is_number(json_object_get(j, key)));
    double value = number(j, key);
    json_decref(j);
    str_free(&text);
    return value;
}

/* The first rollout is the same; what is made of it differs by rounding. */
TEST(shared_prompts_train_what_repeated_ones_train) {
    static const char *const ways[] = {"--beta 0.1 --num-iterations 2",
                                       "--mode lora --lora-rank 4 --beta 0.1 --micro-batch 8",
                                       "--beta 0.1 --micro-batch 4 --steps-per-generation 8"};
    static const char *const keys[][2] = {
        {"train", "loss"}, {"train", "grad_norm"}, {"grpo", "entropy"}, {"grpo", "reward"}};
    for (int i = 0; i < COUNT_OF(ways); i++) {
        char flags[300], name[2][32];
        for (int shares = 0; shares < 2; shares++) {
            snprintf(name[shares], sizeof name[0], "shared%d%d", i, shares);
            snprintf(flags, sizeof flags, "--steps 2 --reward length --eval-samples 0 %s --share-prompts %s",
                     ways[i], shares ? "on" : "off");
            json_t *j = run(name[shares], flags);
            EXPECT(number(j, "planned_bytes") == number(j, "measured_bytes") &&
                   number(j, "allocations_after_first_step") == 0 && number(j, "logp_difference_max") < 1e-3);
            EXPECT(number(j, "process_measured_bytes") <= number(j, "process_planned_bytes"));
            json_decref(j);
        }
        for (int k = 0; k < COUNT_OF(keys); k++) {
            double alone = metric(name[0], keys[k][0], keys[k][1]);
            EXPECT_NEAR(metric(name[1], keys[k][0], keys[k][1]), alone, 1e-5 * fabs(alone) + 1e-7);
        }
        Ran again =
            snug_run("grpo --config %s/%s/config.yaml --out %s/again --dry-run", test_tmp(), name[1], test_tmp());
        if (!EXPECT(again.code == 0))
            test_note("%s", str_text(&again.err)); /* its length is that of an answer's own row */
        ran_free(&again);
        EXPECT(metric(name[1], "grpo", "num_tokens") < 0.8 * metric(name[0], "grpo", "num_tokens"));
    }
}

TEST(shared_prompts_keep_their_bits_where_memory_is_saved) {
    static const char *const ways[] = {
        "--recompute none --threads 1", "--recompute block --threads 2",
        "--recompute twice:0-1,norm:2 --head-chunk 128",
        "--recompute block --offload weights,moments --offload-dir .",
        /* pieces of a trained feed-forward sum its gradients in another order (docs/techniques.md) */
        "--mode lora --lora-rank 4 --lora-targets q,v --recompute none",
        "--mode lora --lora-rank 4 --lora-targets q,v --recompute block --ffn-chunks 2"};
    enum { LORA = 4 };
    char first[40] = "";
    for (int i = 0; i < COUNT_OF(ways); i++) {
        char flags[400], name[16];
        if (test_brief() && i == 2) continue;
        snprintf(name, sizeof name, "saved%d", i);
        snprintf(flags, sizeof flags,
                 "--steps 2 --reward length --eval-samples 0 --beta 0.1 --micro-batch 8 --share-prompts on %s",
                 ways[i]);
        json_t *j = run(name, flags);
        if (i == 0 || i == LORA) snprintf(first, sizeof first, "%s", text(j, "checksum"));
        if (!EXPECT(text(j, "checksum") && !strcmp(first, text(j, "checksum")))) test_note("    %s", ways[i]);
        EXPECT(number(j, "planned_bytes") == number(j, "measured_bytes"));
        json_decref(j);
    }
}

TEST(prompts_that_cannot_be_shared_are_refused_by_name_and_auto_repeats_them) {
    static const char *const bad[][2] = {
        {"plan --task grpo --model models/tally --device cpu --group 4 --global-batch 8 --steps-per-generation 2 "
         "--exact-policy %s",
         "--steps-per-generation"},
        {"plan --task grpo --model gsa-512m --device cpu --prompt-tokens 32 --max-tokens 8 %s", "sequence"}};
    for (int i = 0; i < COUNT_OF(bad); i++) {
        for (int asked = 0; asked < 2; asked++) {
            Ran r = snug_run(bad[i][0], asked ? "--share-prompts on" : "--json");
            json_t *j = asked ? NULL : json_loads(str_text(&r.out), 0, NULL);
            bool refused = r.code == 2 && strstr(str_text(&r.err), "--share-prompts on") &&
                           strstr(str_text(&r.err), bad[i][1]);
            bool repeats = number(json_object_get(j, "shared_prompts"), "answers_a_row") == 1;
            if (!EXPECT(asked ? refused : repeats))
                test_note("    case %d: exit %d\n%s", i, r.code, str_text(&r.err));
            json_decref(j);
            ran_free(&r);
        }
    }
}

/* A GPU attends to shared prompts by kernels that are slower than those of whole rows: worth it for long prompts. */
TEST(auto_takes_the_layout_that_is_predicted_to_be_faster) {
    static const struct {
        const char *flags;
        int answers;
    } cases[] = {{"--gpu h200 --prompt-tokens 512 --max-tokens 128", 8},
                 {"--gpu h200 --prompt-tokens 2 --max-tokens 2048", 1},
                 {"--gpu h200 --prompt-tokens 2 --max-tokens 2048 --share-prompts on", 8},
                 {"--gpu h200 --prompt-tokens 512 --max-tokens 128 --share-prompts off", 1},
                 {"--gpu rtx4090 --prompt-tokens 256 --max-tokens 256", 8},
                 {"--device cpu --prompt-tokens 512 --max-tokens 64", 8}};
    for (int i = 0; i < COUNT_OF(cases); i++) {
        Ran r = snug_run("plan --task grpo --model qwen2.5-0.5b --group 8 --global-batch 8 --micro-batch 8 --json %s",
                         cases[i].flags);
        json_t *j = json_loads(str_text(&r.out), 0, NULL);
        const json_t *s = json_object_get(j, "shared_prompts");
        double with = number(s, "update_seconds"), without = number(s, "update_seconds_without");
        bool asked = strstr(cases[i].flags, "--share-prompts") != NULL, shares = cases[i].answers > 1;
        bool faster = asked || (shares ? with > 0 && with < 1.001 * without : without > 0 && without < with);
        if (!EXPECT(number(s, "answers_a_row") == cases[i].answers && faster))
            test_note("    %s: exit %d\n%s", cases[i].flags, r.code, str_text(&r.err));
        json_decref(j);
        ran_free(&r);
    }
}

TEST(a_plan_says_what_a_shared_prompt_saves) {
    static const int answers[] = {4, 4, 2, 1};
    static const char *const ways[] = {"--micro-batch 8 --accum 2", "--micro-batch 4 --accum 4",
                                       "--micro-batch 2 --accum 8", "--micro-batch 1 --accum 16"};
    for (int i = 0; i < COUNT_OF(ways); i++) {
        Ran r = snug_run(
            "plan --task grpo --model models/tally --device cpu --group 4 --prompt-tokens 100 --max-tokens 20 "
            "--json %s",
            ways[i]);
        json_t *j = json_loads(str_text(&r.out), 0, NULL);
        const json_t *s = json_object_get(j, "shared_prompts");
        int micro = 8 >> i, n = answers[i];
        EXPECT(number(s, "answers_a_row") == n && number(s, "micro_step_tokens_without") == 120 * micro);
        EXPECT(number(s, "micro_step_tokens") == (n > 1 ? micro / n * (99 + 20 * n) : 120 * micro));
        json_decref(j);
        ran_free(&r);
    }
}

/* Each was accepted once; --step-log went on to read a data set that is not there. */
TEST(options_without_an_effect_are_refused_by_name) {
    static const char *const flags[] = {"--pack on",
                                        "--documents joined",
                                        "--score last",
                                        "--template chat",
                                        "--text-field a",
                                        "--prompt-template {a}",
                                        "--answer-template {a}",
                                        "--val-split 0.1",
                                        "--eval-steps 1",
                                        "--eval-batches 1",
                                        "--data-workers 1",
                                        "--ahead on",
                                        "--step-log",
                                        "--step-log-stride 1",
                                        "--indexer-warmup none",
                                        "--indexer-warmup-steps 1",
                                        "--attention own",
                                        "--save-best"};
    for (int i = 0; i < COUNT_OF(flags); i++) {
        char name[40];
        Ran r = snug_run("grpo " TINY "--out %s/refused --dry-run %s", test_tmp(), flags[i]);
        snprintf(name, sizeof name, "%.*s", (int)strcspn(flags[i], " "), flags[i]);
        if (!EXPECT(r.code == 2 && strstr(str_text(&r.err), name) &&
                    strstr(str_text(&r.err), "not to `snug grpo`")))
            test_note("    %s: exit %d\n%s", flags[i], r.code, str_text(&r.err));
        ran_free(&r);
    }
}

/* ---- snug grpo-eval ---- */

#define COMPARE                                                                                                   \
    "grpo-eval --model models/tally --device cpu --threads 1 --parser test --eval-samples 12 --prompt-tokens 32 " \
    "--max-tokens 12 --precision fp32 --json "

static json_t *compared(const char *flags) {
    Ran r = snug_run(COMPARE "%s", flags);
    if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
    json_t *j = json_loads(str_text(&r.out), 0, NULL);
    ran_free(&r);
    EXPECT(j != NULL);
    return j;
}

static double mean_of(const json_t *j, const char *who) {
    return number(json_object_get(j, who), "mean");
}

TEST(a_policy_beside_itself_differs_by_nothing) {
    json_t *j = compared("--tuned models/tally --reward length --best-of 3");
    const json_t *best = json_object_get(j, "best");
    EXPECT(number(j, "items") == 12 && mean_of(j, "base") > 0 && mean_of(j, "base") == mean_of(j, "tuned"));
    EXPECT(mean_of(j, "difference") == 0 && number(json_object_get(j, "difference"), "error") == 0);
    EXPECT(number(j, "better") == 0 && number(j, "worse") == 0);
    EXPECT(mean_of(best, "base") >= 0 && mean_of(best, "difference") == 0);
    EXPECT(number(j, "planned_bytes") == number(j, "measured_bytes") && number(j, "above_plan_bytes") == 0);
    json_decref(j);
}

/* The run's own held-out items are the same, answered by the same weights. */
TEST(a_run_is_compared_with_what_it_began_as) {
    static const char *const ways[] = {"--mode full", "--mode lora --lora-rank 4"};
    char flags[700], lines[300];
    for (int i = 0; i < COUNT_OF(ways); i++) {
        snprintf(flags, sizeof flags, "--steps 2 --lr 0.02 --temperature 2 --eval-samples 12 --reward length %s",
                 ways[i]);
        json_t *trained = run(i ? "adapted" : "moved", flags);
        snprintf(lines, sizeof lines, "%s/compared%d.jsonl", test_tmp(), i);
        snprintf(flags, sizeof flags, "--tuned %s/%s --reward length --out %s", test_tmp(),
                 i ? "adapted" : "moved", lines);
        json_t *j = compared(flags);
        EXPECT_NEAR(mean_of(j, "base"), number(trained, "eval_before"), 1e-9);
        EXPECT_NEAR(mean_of(j, "tuned"), number(trained, "eval_after"), 1e-9);
        EXPECT(mean_of(j, "difference") != 0 && file_exists(lines));
        json_decref(j), json_decref(trained);
    }
}

TEST(an_evaluator_answers_both_policies) {
    json_t *j = compared("--tuned models/tally --evaluator same:int8 --evaluator-tokens 12 --reward length");
    EXPECT(mean_of(j, "base") > 0 && mean_of(j, "difference") == 0);
    json_decref(j);
}

TEST(comparisons_that_cannot_be_are_refused) {
    static const char *const bad[][2] = {{"--tuned tests/data", "--tuned"},
                                         {"", "--tuned"},
                                         {"--tuned models/tally --best-of 2 --temperature 0", "--temperature"},
                                         {"--tuned models/tally --evaluator qwen2.5-0.5b", "--evaluator"},
                                         {"--tuned models/tally --out models/tally/config.json", "--overwrite"}};
    for (int i = 0; i < COUNT_OF(bad); i++) {
        Ran r = snug_run(COMPARE "%s", bad[i][0]);
        if (!EXPECT(r.code != 0 && !r.out.len && strstr(str_text(&r.err), bad[i][1])))
            test_note("    %s: exit %d\n%s", bad[i][0], r.code, str_text(&r.err));
        ran_free(&r);
    }
}

TEST(what_cannot_be_is_refused_before_anything_is_written) {
    static const char *const bad[][2] = {{"--global-batch 15", "group"},
                                         {"--temperature 0", "--temperature"},
                                         {"--reward nonsense", "nonsense"},
                                         {"--reward command", "--reward-command"},
                                         {"--reward-weights 1 --reward-weights 2", "--reward-weights"},
                                         {"--exact-policy --repetition-penalty 1.5", "--repetition-penalty"},
                                         {"--exact-policy --mode lora --lora-dropout 0.1", "--lora-dropout"},
                                         {"--kv-cache int8", "--kv-cache"},
                                         {"--parser math", "--data"}};
    for (int i = 0; i < COUNT_OF(bad); i++) {
        Ran r = snug_run("grpo " TINY "--out %s/bad --steps 1 %s", test_tmp(), bad[i][0]);
        char path[300];
        snprintf(path, sizeof path, "%s/bad", test_tmp());
        if (!EXPECT(r.code != 0 && strstr(str_text(&r.err), bad[i][1]) && !file_exists(path)))
            test_note("    %s: exit %d\n%s", bad[i][0], r.code, str_text(&r.err));
        ran_free(&r);
    }
}
