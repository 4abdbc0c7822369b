/* test_rules.c - an option that cannot have its effect is refused or warned about: every row of the table, from
 * outside; and nothing that a run has saved trips one. */
#include <stdlib.h>

#include "base/file.h"
#include "base/http.h"
#include "cli/rules.h"
#include "tests/test.h"
#include "tests/world.h"

#define TRAIN "train --model ../model --data ../rows.jsonl --seq 16 --threads 1 --steps 2 --out new --dry-run "
#define PLAN "plan --model ../model --seq 16 --budget 1GiB "
#define POLICY "plan --task grpo --model ../model --prompt-tokens 8 --max-tokens 8 --group 2 --budget 1GiB "
#define GRPO                                                                                              \
    "grpo --model ../model --parser test --prompt-tokens 8 --max-tokens 8 --group 2 --steps 1 --threads 1 " \
    "--out new --dry-run "
#define EVAL "eval --model ../model --data ../rows.jsonl --seq 16 "
#define FORGET "unlearn --run run --forget list --out forgot "
#define ANSWER "generate --model ../model --prompts ../ids.jsonl --max-tokens 1 "

/* One command for each option of each row, in the table's order; says: of rows that speak with numbers. */
static const struct {
    const char *arguments, *says;
} trips[] = {
    {TRAIN "--lora-rank 8", NULL},
    {PLAN "--lora-alpha 8", NULL},
    {PLAN "--mode lora --lora-alpha 0", NULL},
    {TRAIN "--lr 0", NULL},
    {"train --model ../model --data ../rows.jsonl --threads 1 --out new --dry-run --seq 16 --epochs 0", NULL},
    {TRAIN "--lora-dropout 0.1", NULL},
    {TRAIN "--lora-targets q,v", NULL},
    {PLAN "--adapter-dtype fp32", NULL},
    {TRAIN "--mode lora --adapter lora/adapter --lora-rank 8", "has rank 4"},
    {TRAIN "--mode lora --adapter lora/adapter --lora-targets q", NULL},
    {TRAIN "--save-best", NULL},
    {TRAIN "--eval-steps 1", NULL},
    {TRAIN "--eval-batches 1", NULL},
    {TRAIN "--eval-data ../rows.jsonl --val-split 0.5", NULL},
    {PLAN "--momentum 0.9", NULL},
    {PLAN "--optimizer sgd --moments 8bit", NULL},
    {TRAIN "--optimizer sgd --beta1 0.8", NULL},
    {TRAIN "--optimizer sgd --beta2 0.8", NULL},
    {TRAIN "--optimizer sgd --eps 1e-6", NULL},
    {TRAIN "--eps 0", NULL},
    {TRAIN "--schedule constant --min-lr 1e-6", NULL},
    {TRAIN "--schedule constant --schedule-steps 9", NULL},
    {TRAIN "--schedule constant --min-lr-ratio 0.1", NULL},
    {TRAIN "--min-lr 1e-6 --min-lr-ratio 0.1", NULL},
    {TRAIN "--min-lr 1", "lies above --lr 2e-05"},
    {TRAIN "--steps 3 --schedule-steps 1", "nothing is learned up to step 3"},
    {TRAIN "--decay-steps 1", NULL},
    {TRAIN "--schedule linear --decay-ratio 0.5", NULL},
    {TRAIN "--decay-shape cosine", NULL},
    {TRAIN "--schedule wsd --decay-steps 1 --decay-ratio 0.5", NULL},
    {TRAIN "--schedule wsd --decay-steps 2 --warmup-steps 1",
     "warm-up and decay are longer than the run of 2 steps: the decay begins behind the warm-up, at step 1"},
    {TRAIN "--weight-decay 0 --decay-mult embed=0", NULL},
    {TRAIN "--on-spike ignore --spike-factor 3", NULL},
    {TRAIN "--on-spike ignore --spike-window 8", NULL},
    {TRAIN "--skip-limit 3", NULL},
    {TRAIN "--on-spike skip --step-log", NULL},
    {TRAIN "--step-log-stride 5", NULL},
    {TRAIN "--step-log-updates fp32", NULL},
    {TRAIN "--step-log-states direct", NULL},
    {TRAIN "--warmup-steps 1 --warmup-ratio 0.1", NULL},
    {TRAIN "--warmup-steps 100 --steps 1",
     "the warm-up of 100 steps is longer than the run of 1: the rate never reaches --lr"},
    {TRAIN "--epochs 3", NULL},
    {"train --model ../few --data ../rows.jsonl --threads 1 --steps 2 --out new --dry-run --seq 16",
     "made for 8 positions"},
    {TRAIN "--precision bf16 --loss-scale 8", NULL},
    {TRAIN "--precision fp32 --loss-scale-window 8", NULL},
    {TRAIN "--overwrite --resume", NULL},
    {TRAIN "--no-save --save-best --val-split 0.5", NULL},
    {TRAIN "--no-save --save-steps 1", NULL},
    {TRAIN "--no-save --save-minutes 1", NULL},
    {TRAIN "--no-save --save-total-limit 1", NULL},
    {TRAIN "--no-save --spare-dir .", NULL},
    {TRAIN "--cleanup-delay 1", NULL},
    {TRAIN "--offload none --offload-dir d", NULL},
    {TRAIN "--device cpu --tf32", NULL},
    {TRAIN "--device cpu --nvtx", NULL},
    {TRAIN "--device cpu --attention cudnn --pack off", NULL},
    {TRAIN "--score last", NULL},
    {TRAIN "--documents joined", NULL},
    {PLAN "--group 4", NULL},
    {PLAN "--evaluator qwen2.5-0.5b", NULL},
    {PLAN "--evaluator-tokens 4", NULL},
    {PLAN "--expected-completion 4", NULL},
    {PLAN "--reference none", NULL},
    {PLAN "--share-prompts off", NULL},
    {PLAN "--parser math", NULL},
    {PLAN "--meta-prompt Solve.", NULL},
    {PLAN "--reward exact", NULL},
    {GRPO "--reward-command cat", NULL},
    {GRPO "--reward-processes 3", NULL},
    {GRPO "--reward exact --reward-seconds 3", NULL},
    {GRPO "--evaluator-name judge", NULL},
    {GRPO "--evaluator-api ollama", NULL},
    {GRPO "--evaluator-url localhost:8000", NULL},
    {GRPO "--evaluator-tokens 4", NULL},
    {GRPO "--evaluator-temperature 1", NULL},
    {"unlearn-eval --model ../model --data ../tofu --retain-model a --retain-logs b", NULL},
    {PLAN "--prompt-tokens 4", NULL},
    {PLAN "--slots 4", NULL},
    {PLAN "--context 40", NULL},
    {PLAN "--max-tokens 4", NULL},
    {PLAN "--prefill-chunk 4", NULL},
    {PLAN "--kv-cache int8", NULL},
    {PLAN "--temperature 1", NULL},
    {PLAN "--top-k 4", NULL},
    {PLAN "--top-p 0.5", NULL},
    {PLAN "--min-p 0.5", NULL},
    {PLAN "--repetition-penalty 2", NULL},
    {POLICY "--pack on", NULL},
    {POLICY "--documents joined", NULL},
    {POLICY "--score last", NULL},
    {POLICY "--template none", NULL},
    {POLICY "--text-field a", NULL},
    {POLICY "--prompt-template a", NULL},
    {POLICY "--answer-template a", NULL},
    {POLICY "--val-split 0.5", NULL},
    {POLICY "--eval-steps 1", NULL},
    {POLICY "--eval-batches 1", NULL},
    {POLICY "--data-workers 1", NULL},
    {POLICY "--ahead on", NULL},
    {POLICY "--step-log", NULL},
    {POLICY "--step-log-updates bf16", NULL},
    {POLICY "--step-log-states copied", NULL},
    {POLICY "--step-log-stride 1", NULL},
    {POLICY "--save-best", NULL},
    {POLICY "--attention own", NULL},
    {EVAL "--suite-data .", NULL},
    {EVAL "--limit 4", NULL},
    {EVAL "--num-fewshot 4", NULL},
    {EVAL "--lengths 64", NULL},
    {EVAL "--depths 4", NULL},
    {EVAL "--items items.jsonl", NULL},
    {EVAL "--slots 4", NULL},
    {EVAL "--context 40", NULL},
    {EVAL "--prefill-chunk 4", NULL},
    {EVAL "--kv-cache int8", NULL},
    {EVAL "--invariant", NULL},
    {EVAL "--svg a.svg", NULL},
    {EVAL "--html a.html", NULL},
    {EVAL "--attention-report a.html --suite needle", NULL},
    {ANSWER "--top-k 4", NULL},
    {ANSWER "--top-p 0.5", NULL},
    {ANSWER "--min-p 0.5", NULL},
    {FORGET "--method npo --window 5", NULL},
    {FORGET "--method retrain --hessian exact", NULL},
    {FORGET "--method npo --epsilon 1", NULL},
    {FORGET "--method retrain --bound 1", NULL},
    {FORGET "--method replay --oracle", NULL},
    {FORGET "--method npo --gamma-iterations 3", NULL},
    {FORGET "--method npo --correction device", NULL},
    {FORGET "--method npo --remove steps", NULL},
    {FORGET "--at 3", NULL},
    {"monitor --once --host 0.0.0.0", NULL},
    {"monitor --once --token word", NULL},
    {"monitor --serve any --csv new.csv", NULL},
    {"monitor --once -- true", NULL},
    {"monitor --duration 3 -- true", NULL},
};

static bool make_inputs(void) {
    return world_make(world_binary()) &&
           EXPECT(file_write_all(world_path("ids.jsonl"), "{\"ids\":[1,2]}\n", 14, NULL)) &&
           world_must(
               "w",
               "init --model llama-2-7b --out ../few --dtype fp32 --set num_hidden_layers=1 --set hidden_size=16 "
               "--set num_attention_heads=2 --set num_key_value_heads=1 --set intermediate_size=16 --set "
               "vocab_size=64 "
               "--set max_position_embeddings=8") &&
           world_must(
               "w",
               "train --model ../model --data ../rows.jsonl --seq 16 --steps 1 --mode lora --lora-rank 4 --out "
               "lora");
}

static void expect_told(const Rule *r, OptId id, const char *arguments, const char *says, Str *err) {
    char name[80];
    bool refuses = r->verdict == RULE_REFUSE;
    snprintf(name, sizeof name, "%s--%s", refuses ? "snug: " : "warning: ", option_rows[id].name);
    int code = world_run("w", world_binary(), NULL, arguments);
    world_said(NULL, err, "w");
    const char *line = strstr(str_text(err), name);
    if (!EXPECT(code == (refuses ? 2 : 0) && line && strstr(line, says ? says : r->text)))
        test_note("    %s: exit %d, wanted '%s'\n%s", arguments, code, name, str_text(err));
}

TEST(every_rule_about_options_speaks_up) {
    Str err = {0};
    int at = 0;
    if (!make_inputs()) return;
    for (int i = 0; i < rules_count(); i++)
        for (const OptId *id = rules[i].id; *id != OPT_COUNT && EXPECT(at < COUNT_OF(trips)); id++, at++)
            expect_told(&rules[i], *id, trips[at].arguments, trips[at].says, &err);
    EXPECT(at == COUNT_OF(trips));
    str_free(&err);
}

/* Nothing is planned for an evaluator whose address nobody could ask. */
TEST(an_address_of_no_server_is_refused_before_anything_is_planned) {
    static const char *const commands[] = {GRPO, POLICY, "grpo-eval --model ../model --tuned lora --parser test "};
    static const char *const wrong[] = {"localhost", "ftp://h", "http://", "http:///v1", "'http://h /v1'", "http://:80",
                                        "http://h:0", "http://h:x/v1", "http://h:70000", "http://[::1", "http://u@"};
    Str err = {0};
    if (!make_inputs()) return;
    for (int c = 0; c < COUNT_OF(commands); c++)
        for (int i = 0; i < COUNT_OF(wrong); i++) {
            char command[600];
            snprintf(command, sizeof command, "%s--evaluator-url %s", commands[c], wrong[i]);
            int code = world_run("w", world_binary(), NULL, command);
            world_said(NULL, &err, "w");
            if (!EXPECT(code == 2 && str_starts(str_text(&err), "snug: --evaluator-url")))
                test_note("    %s: exit %d\n%s", command, code, str_text(&err));
        }
    str_free(&err);
}

TEST(an_address_may_have_a_port_a_name_and_brackets) {
    static const char *const right[] = {"http://h", "https://h.org/v1", "http://h:8000/", "http://[::1]:80/v1",
                                        "http://u:p@h:1?x=/y"};
    for (int i = 0; i < COUNT_OF(right); i++)
        if (!EXPECT(http_check_url(right[i], NULL))) test_note("    %s", right[i]);
}

/* A value that happens to be the usual one is a wish all the same. */
TEST(adapters_that_are_asked_for_by_usual_values_are_not_passed_over) {
    static const struct {
        const char *arguments, *says;
    } cases[] = {
        {TRAIN "--lora-rank 16", "--lora-rank 16: only --mode lora has adapters"},
        {TRAIN "--lora-alpha 32", "--lora-alpha 32: only --mode lora has adapters"},
        {PLAN "--lora-targets q,k,v,o,gate,up,down", "only --mode lora has adapters"},
        {TRAIN "--mode lora --adapter lora/adapter --lora-rank 16",
         "--lora-rank 16: the adapter lora/adapter has rank 4"},
    };
    Str err = {0};
    if (!make_inputs()) return;
    for (int i = 0; i < COUNT_OF(cases); i++) {
        int code = world_run("w", world_binary(), NULL, cases[i].arguments);
        world_said(NULL, &err, "w");
        if (!EXPECT(code == 2 && strstr(str_text(&err), cases[i].says)))
            test_note("    %s: exit %d\n%s", cases[i].arguments, code, str_text(&err));
    }
    EXPECT(world_run("w", world_binary(), NULL, TRAIN "--mode lora --adapter lora/adapter --lora-rank 4") == 0);
    str_free(&err);
}

/* What one run was started with is saved with every value it has; the saved file starts the same run, without a
 * word. */
TEST(a_saved_configuration_trips_no_rule) {
    static const char *const runs[] = {"",
                                       "--mode lora --lora-rank 4",
                                       "--optimizer sgd --momentum 0.9 --moments 8bit",
                                       "--schedule constant --warmup-steps 1",
                                       "--val-split 0.25 --save-best --eval-steps 1",
                                       "--config ../lora.yaml --mode full",
                                       "--config ../sgd.yaml --optimizer sgd"};
    Str err = {0};
    if (!make_inputs()) return;
    EXPECT(file_write_all(world_path("lora.yaml"), "mode: lora\nlora-rank: 64\nlora-dropout: 0.1\n", 43, NULL) &&
           file_write_all(world_path("sgd.yaml"), "moments: 8bit\n", 14, NULL));
    for (int i = 0; i < COUNT_OF(runs); i++) {
        char command[600];
        snprintf(command, sizeof command,
                 "train --model ../model --data ../rows.jsonl --seq 16 --steps 2 --overwrite --out first %s",
                 runs[i]);
        if (!world_must("w", command)) continue;
        world_said(NULL, &err, "w");
        EXPECT((i >= 5) ==
               (strstr(str_text(&err), "warning: --") != NULL)); /* a recipe's value gives way to a flag */
        world_must("w", "train --config first/config.yaml --overwrite --out second");
        world_said(NULL, &err, "w");
        if (!EXPECT(!strstr(str_text(&err), "warning: --"))) test_note("    %s\n%s", runs[i], str_text(&err));
        EXPECT(world_same_file(world_path("w/first/checkpoint-2/optimizer.safetensors"),
                               world_path("w/second/checkpoint-2/optimizer.safetensors")));
    }
    str_free(&err);
}
