/* test_options.c - the options table: words in, values out, from flags, files and defaults. */
#include <stdlib.h>

#include "base/file.h"
#include "base/rng.h"
#include "store/trainer_state.h"
#include "tests/cli/words.h"
#include "tests/test.h"

#define JOB "--model|m|--data|d.jsonl|--out|o|"

static void expect_refused(Command c, const char *line, ErrCode code, const char *part) {
    Options o;
    Err e;
    bool ok = parse(&o, c, line, &e);
    if (!EXPECT(!ok) || !EXPECT(e.code == code) || !EXPECT(strstr(e.text, part) != NULL))
        test_note("    '%s' gave '%s', expected '%s'", line, e.text, part);
    options_free(&o);
}

static const char *write_file(const char *name, const char *text) {
    static char path[200];
    Err e;
    snprintf(path, sizeof path, "%s/%s", test_tmp(), name);
    EXPECT_OK(file_write_all(path, text, (int64_t)strlen(text), &e));
    return path;
}

static bool parse_file(Options *o, Command c, const char *yaml, const char *more, Err *e) {
    char line[2000];
    snprintf(line, sizeof line, "--config|%s|%s", write_file("r.yaml", yaml), more);
    return parse(o, c, line, e);
}

static void expect_file_refused(const char *yaml, ErrCode code, const char *part) {
    Options o;
    Err e;
    bool ok = parse_file(&o, CMD_TRAIN, yaml, JOB, &e);
    if (!EXPECT(!ok) || !EXPECT(e.code == code) || !EXPECT(strstr(e.text, part) != NULL))
        test_note("    '%s' gave '%s', expected '%s'", yaml, e.text, part);
    options_free(&o);
}

/* ---- the table ---- */

TEST(options_every_name_and_alias_is_unique_and_well_formed) {
    static struct {
        char word[48];
        uint32_t commands;
        bool is_name;
    } seen[1000];
    int n = 0;
    for (int i = 0; i < OPT_COUNT; i++) {
        const OptRow *row = &option_rows[i];
        EXPECT(row->name && row->help && row->commands);
        EXPECT(!(row->needed & ~row->commands));
        EXPECT(row->type != OPT_CHOICE || row->choices);
        EXPECT((row->type != OPT_TEXT && row->type != OPT_PAIRS) || row->unit);
        char all[600];
        snprintf(all, sizeof all, "%s,%s", row->name, row->aliases ? row->aliases : "");
        for (char *word = strtok(all, ","); word; word = strtok(NULL, ",")) {
            word[strcspn(word, "=")] = 0;
            EXPECT(!strchr(word, '_') && !str_starts(word, "no-"));
            bool is_name = !strcmp(word, row->name);
            for (int k = 0; k < n; k++) { /* of one command only a name and an alias may be the same: the name counts */
                bool clash =
                    !strcmp(seen[k].word, word) && (seen[k].commands & row->commands) && seen[k].is_name == is_name;
                if (!EXPECT(!clash)) test_note("    %s stands twice", word);
            }
            snprintf(seen[n].word, sizeof seen[0].word, "%s", word);
            seen[n].commands = row->commands;
            seen[n++].is_name = is_name;
        }
    }
    EXPECT(n > 100);
}

TEST(options_of_reason_have_their_own_defaults_and_names) {
    Options o;
    Err e;
    EXPECT_OK(parse(&o, CMD_REASON,
                    "--model|m|--output|o.json|--dataset|gsm8k|--data|f.jsonl|--rank|3|--batch-size|7", &e));
    EXPECT_STR(opt_text(&o, OPT_DATASET), "gsm8k"); /* elsewhere an alias of --data */
    EXPECT_STR(opt_text(&o, OPT_DATA), "f.jsonl");
    EXPECT(opt_int(&o, OPT_RANK) == 3 && opt_int(&o, OPT_MICRO_BATCH) == 7);
    EXPECT(opt_real(&o, OPT_TEMPERATURE) == 0.6 && opt_real(&o, OPT_TOP_P) == 0.95 &&
           opt_int(&o, OPT_MAX_TOKENS) == 4096);
    EXPECT(opt_real(&o, OPT_JUDGE_TEMPERATURE) == 0.3 && opt_int(&o, OPT_JUDGE_MAX_TOKENS) == 1024);
    EXPECT(opt_int(&o, OPT_ROUNDS) == 2 && opt_real(&o, OPT_THRESHOLD) == 0.8 && opt_int(&o, OPT_NUM_EXAMPLES) == -1);
    EXPECT_STR(opt_text(&o, OPT_QUANTIZE), "int8");
    options_free(&o);
    EXPECT_OK(parse(&o, CMD_GENERATE, "--model|m|--prompt|x", &e));
    EXPECT(opt_real(&o, OPT_TOP_P) == 1 && opt_int(&o, OPT_MAX_TOKENS) == 256 && !o.value[OPT_TEMPERATURE].set);
    options_free(&o);
    EXPECT_OK(parse(&o, CMD_TRAIN, "--model|m|--out|o|--dataset|d.jsonl|--rank|8", &e));
    EXPECT_STR(opt_text(&o, OPT_DATA), "d.jsonl");
    EXPECT(opt_int(&o, OPT_LORA_RANK) == 8);
    options_free(&o);
    EXPECT(!parse(&o, CMD_TRAIN, "--model|m|--out|o|--data|d|--low-memory", &e) && strstr(e.text, "give the budget"));
    options_free(&o);
    EXPECT_OK(parse(&o, CMD_REASON, "--list-datasets", &e)); /* about no model */
    options_free(&o);
}

TEST(options_defaults_are_the_documented_ones) {
    Options o;
    Err e;
    EXPECT_OK(parse(&o, CMD_TRAIN, JOB, &e));
    EXPECT_STR(opt_text(&o, OPT_MODEL), "m");
    EXPECT_STR(opt_text(&o, OPT_MODE), "full");
    EXPECT(opt_int(&o, OPT_SEED) == 42 && opt_int(&o, OPT_SEQ) == 1024 && opt_int(&o, OPT_LOG_STEPS) == 10);
    EXPECT(opt_int(&o, OPT_LORA_RANK) == 16 && opt_real(&o, OPT_LORA_ALPHA) == 32);
    EXPECT(opt_real(&o, OPT_BETA1) == 0.9 && opt_real(&o, OPT_BETA2) == 0.999 && opt_real(&o, OPT_EPS) == 1e-8);
    EXPECT(opt_real(&o, OPT_CLIP) == 1 && opt_real(&o, OPT_WEIGHT_DECAY) == 0.01);
    EXPECT_STR(opt_text(&o, OPT_SCHEDULE), "cosine");
    EXPECT_STR(opt_text(&o, OPT_LORA_TARGETS), "q,k,v,o,gate,up,down");
    EXPECT(opt_flag(&o, OPT_SHUFFLE) && !opt_flag(&o, OPT_JSON));
    EXPECT(opt_bytes(&o, OPT_GROWTH_ALARM) == 64 << 20 && opt_bytes(&o, OPT_BUDGET) == 0);
    EXPECT(opt_text(&o, OPT_STEPS) == NULL && !opt_given(&o, OPT_LR) && opt_given(&o, OPT_MODEL));
    EXPECT(opt_int(&o, OPT_GLOBAL_BATCH) == 16 && opt_int(&o, OPT_ACCUM) == 16 && !opt_given(&o, OPT_MICRO_BATCH));
    EXPECT(opt_real(&o, OPT_LR) == 2e-5);
    options_free(&o);
    static const struct {
        const char *flags;
        double lr;
    } rates[] = {{JOB "--mode|lora", 2e-4}, {JOB "--init|random", 3e-4}, {JOB "--lr|1e-3|--mode|lora", 1e-3}};
    for (int i = 0; i < COUNT_OF(rates); i++) {
        EXPECT_OK(parse(&o, CMD_TRAIN, rates[i].flags, &e));
        EXPECT(opt_real(&o, OPT_LR) == rates[i].lr);
        options_free(&o);
    }
}

/* What the planner may choose stays its own when a run is repeated from its config.yaml. */
TEST(options_left_to_the_planner_are_not_given_by_a_written_configuration) {
    Options o, back;
    Err e;
    Str yaml = {0};
    EXPECT_OK(parse(&o, CMD_TRAIN, JOB, &e));
    options_write_yaml(&yaml, &o);
    EXPECT_OK(parse_file(&back, CMD_TRAIN, str_text(&yaml), "", &e));
    EXPECT(!opt_given(&back, OPT_MICRO_BATCH) && !opt_given(&back, OPT_ACCUM) &&
           opt_int(&back, OPT_GLOBAL_BATCH) == 16);
    options_free(&o);
    options_free(&back);
    str_free(&yaml);
}

/* ---- flags ---- */

TEST(options_take_every_spelling_of_a_flag) {
    Options o;
    Err e;
    EXPECT_OK(parse(&o, CMD_TRAIN, JOB "--lr=3e-5|--learning_rate|2e-4|--Max-Steps|7|--budget|1.5GiB", &e));
    EXPECT(opt_real(&o, OPT_LR) == 2e-4); /* the last one counts */
    EXPECT(opt_int(&o, OPT_STEPS) == 7 && opt_given(&o, OPT_STEPS));
    EXPECT(opt_bytes(&o, OPT_BUDGET) == 1610612736);
    options_free(&o);
    EXPECT_OK(parse(&o, CMD_TRAIN, JOB "--no-shuffle|--json|--save-best=yes|--overwrite|false|--seed|1e6", &e));
    EXPECT(!opt_flag(&o, OPT_SHUFFLE) && opt_flag(&o, OPT_JSON) && opt_is(&o, OPT_SAVE_BEST, "loss"));
    EXPECT(!opt_flag(&o, OPT_OVERWRITE) && opt_int(&o, OPT_SEED) == 1000000);
    options_free(&o);
}

TEST(options_that_may_stand_alone) {
    Options o;
    Err e;
    EXPECT_OK(parse(&o, CMD_TRAIN, JOB "--resume|--pack|--recompute|--init|--no-clip", &e));
    EXPECT_STR(opt_text(&o, OPT_RESUME), "newest");
    EXPECT_STR(opt_text(&o, OPT_PACK), "on");
    EXPECT_STR(opt_text(&o, OPT_RECOMPUTE), "block");
    EXPECT_STR(opt_text(&o, OPT_INIT), "random");
    EXPECT(opt_real(&o, OPT_CLIP) == 0);
    options_free(&o);
    EXPECT_OK(parse(&o, CMD_TRAIN, JOB "--resume|checkpoint-20|--no-pack|--recompute|block:0-1,norm:2-3", &e));
    EXPECT_STR(opt_text(&o, OPT_RESUME), "checkpoint-20");
    EXPECT_STR(opt_text(&o, OPT_PACK), "off");
    EXPECT_STR(opt_text(&o, OPT_RECOMPUTE), "block:0-1,norm:2-3");
    options_free(&o);
}

TEST(options_switch_aliases_stand_for_values) {
    Options o;
    Err e;
    EXPECT_OK(parse(&o, CMD_TRAIN, JOB "--bf16|--gradient-checkpointing|--use_lora", &e));
    EXPECT_STR(opt_text(&o, OPT_PRECISION), "bf16");
    EXPECT_STR(opt_text(&o, OPT_RECOMPUTE), "block");
    EXPECT_STR(opt_text(&o, OPT_MODE), "lora");
    options_free(&o);
    EXPECT_OK(parse(&o, CMD_TRAIN, JOB "--fp16|False|--gradient_checkpointing=false|--no-bf16", &e));
    EXPECT_STR(opt_text(&o, OPT_PRECISION), "auto");
    EXPECT(!opt_given(&o, OPT_PRECISION));
    EXPECT_STR(opt_text(&o, OPT_RECOMPUTE), "none");
    options_free(&o);
}

TEST(options_lists_are_sets_of_choices_or_pairs) {
    Options o;
    Err e;
    const char *const *list, *name;
    double x;
    EXPECT_OK(parse(&o, CMD_TRAIN,
                    JOB "--target_modules|v_proj, q_proj|--lora-targets|v|--lr-mult|embed=0.1,norm=0"
                        "|--lr-mult|head=2",
                    &e));
    EXPECT_STR(opt_text(&o, OPT_LORA_TARGETS), "q,v");
    EXPECT(opt_list(&o, OPT_LORA_TARGETS, &list) == 2);
    EXPECT_STR(list[1], "v");
    EXPECT_STR(opt_text(&o, OPT_LR_MULT), "embed=0.1,norm=0,head=2");
    EXPECT(opt_pair(&o, OPT_LR_MULT, 2, &name, &x) && x == 2 && !opt_pair(&o, OPT_LR_MULT, 3, &name, &x));
    EXPECT_STR(name, "head");
    options_free(&o);
    EXPECT_OK(parse(&o, CMD_TRAIN, JOB "--lora-targets|all-linear", &e));
    EXPECT(opt_list(&o, OPT_LORA_TARGETS, &list) == 7);
    options_free(&o);
}

TEST(options_escapes_in_templates) {
    Options o;
    Err e;
    EXPECT_OK(parse(&o, CMD_TRAIN, JOB "--prompt-template|Q: {q}\\nA:\\t\\\\n|--tokenizer|a\\nb", &e));
    EXPECT_STR(opt_text(&o, OPT_PROMPT_TEMPLATE), "Q: {q}\nA:\t\\n");
    EXPECT_STR(opt_text(&o, OPT_TOKENIZER), "a\\nb"); /* a path is taken as it is */
    options_free(&o);
}

TEST(options_refuse_with_the_nearest_name_the_range_or_the_choices) {
    expect_refused(CMD_TRAIN, JOB "--lerning-rate|1", ERR_USAGE, "Did you mean --learning-rate?");
    expect_refused(CMD_TRAIN, JOB "--micro-bach|1", ERR_USAGE, "Did you mean --micro-batch?");
    expect_refused(CMD_TRAIN, JOB "--bs|1", ERR_USAGE, "no such option; `snug train --help` lists them"); /* not lr */
    expect_refused(CMD_TRAIN, JOB "--qqqqqqqqqq|1", ERR_USAGE, "snug train --help");
    expect_refused(CMD_TRAIN, JOB "--=3", ERR_USAGE, "no such option");
    expect_refused(CMD_TRAIN, JOB "--seq|0", ERR_USAGE, "--seq: 0 is out of range: 1 to 4194304 tokens");
    expect_refused(CMD_TRAIN, JOB "--seq|-5", ERR_USAGE, "out of range");
    expect_refused(CMD_TRAIN, JOB "--seq|12.5", ERR_USAGE, "not a whole number");
    expect_refused(CMD_TRAIN, JOB "--seq|12x", ERR_USAGE, "not a whole number");
    expect_refused(CMD_TRAIN, JOB "--lr|nan", ERR_USAGE, "not a number");
    expect_refused(CMD_TRAIN, JOB "--lr|1e999", ERR_USAGE, "not a number");
    expect_refused(CMD_TRAIN, JOB "--beta2|1", ERR_USAGE, "out of range");
    expect_refused(CMD_TRAIN, JOB "--budget|12XB", ERR_USAGE, "24GiB");
    expect_refused(CMD_TRAIN, JOB "--budget|0x10", ERR_USAGE, "24GiB");
    expect_refused(CMD_TRAIN, JOB "--mode|lorra", ERR_USAGE, "full, lora");
    expect_refused(CMD_TRAIN, JOB "--lora-targets|q,z", ERR_USAGE,
                   "'z' is not one of: q, k, v, o, gate, up, down, all");
    expect_refused(CMD_TRAIN, JOB "--lora-targets|q,,k", ERR_USAGE, "empty");
    expect_refused(CMD_TRAIN, JOB "--lr-mult|embed", ERR_USAGE, "NAME=NUMBER");
    expect_refused(CMD_TRAIN, JOB "--shuffle=perhaps", ERR_USAGE, "neither true nor false");
    expect_refused(CMD_TRAIN, JOB "--seq", ERR_USAGE, "--seq: a value is missing");
    expect_refused(CMD_TRAIN, JOB "--seq|--lr|3", ERR_USAGE, "--seq: a value is missing");
    expect_refused(CMD_TRAIN, JOB "--no-lr", ERR_USAGE, "no opposite");
    expect_refused(CMD_TRAIN, JOB "--report_to|wandb", ERR_USAGE, "metrics.jsonl");
    expect_refused(CMD_TRAIN, JOB "extra", ERR_USAGE, "'extra'");
    expect_refused(CMD_TRAIN, JOB "-s|3", ERR_USAGE, "Did you mean --seed?");
    expect_refused(CMD_TRAIN, JOB "-x|3", ERR_USAGE, "two dashes");
    expect_refused(CMD_TRAIN, JOB "--tokenizer=", ERR_USAGE, "empty");
    expect_refused(CMD_TRAIN, JOB "--tokenizer|\xff\xfe", ERR_USAGE, "UTF-8");
    expect_refused(CMD_TOKENIZE, "--tokenizer|t|--lr|1", ERR_USAGE, "belongs to: train");
    expect_refused(CMD_TRAIN, JOB "--config|/nowhere/x.yaml", ERR_FAIL, "/nowhere/x.yaml");
}

TEST(options_each_command_names_what_it_needs) {
    expect_refused(CMD_TRAIN, "--data|d|--out|o", ERR_USAGE, "--model");
    expect_refused(CMD_TRAIN, "--model|m|--out|o", ERR_USAGE, "--data");
    expect_refused(CMD_MERGE, "--model|m|--out|o", ERR_USAGE, "--adapter");
    expect_refused(CMD_CONVERT, "--from|llama2c|--out|o", ERR_USAGE, "FILE");
    expect_refused(CMD_CONVERT, "--from|llama2c|--out|o|a|b", ERR_USAGE, "'b'");
    Options o;
    Err e;
    EXPECT_OK(parse(&o, CMD_CONVERT, "--from|llama2c|a.bin|--tokenizer|t.bin|--out|o", &e));
    EXPECT(o.n_positional == 1);
    EXPECT_STR(o.positional[0], "a.bin");
    options_free(&o);
    EXPECT_OK(parse(&o, CMD_CONVERT, "--from|llama2c|--out|o|--|--odd-name", &e));
    EXPECT_STR(o.positional[0], "--odd-name");
    options_free(&o);
    EXPECT_OK(parse(&o, CMD_TRAIN, "--nonsense|--help", &e)); /* help comes before any complaint */
    EXPECT(o.help);
    options_free(&o);
}

TEST(options_plan_takes_a_training_command_as_it_stands) {
    Options o;
    Err e;
    EXPECT_OK(parse(&o, CMD_PLAN, JOB "--lr|1e-4|--save-steps|5|--seq|9|--json", &e));
    EXPECT(opt_int(&o, OPT_SEQ) == 9);
    options_free(&o);
    expect_refused(CMD_PLAN, JOB "--from|llama2c", ERR_USAGE, "belongs to: convert");
}

TEST(options_commands_are_found_or_suggested) {
    Command c;
    Err e;
    EXPECT(command_find(&c, "tokenize", &e) && c == CMD_TOKENIZE);
    EXPECT(!command_find(&c, "trian", &e) && e.code == ERR_USAGE && strstr(e.text, "snug train"));
    EXPECT(!command_find(&c, "zzzzzzzz", &e) && strstr(e.text, "snug --help"));
}

/* ---- values that follow from others ---- */

static void expect_batch(const char *yaml, const char *flags, int64_t accum, int64_t global) {
    Options o;
    Err e;
    char line[500];
    snprintf(line, sizeof line, JOB "%s", flags);
    EXPECT_OK(parse_file(&o, CMD_TRAIN, yaml, line, &e));
    if (!EXPECT(opt_int(&o, OPT_ACCUM) == accum && opt_int(&o, OPT_GLOBAL_BATCH) == global))
        test_note("    '%s' + '%s' gave accum %s, global %s", yaml, flags, opt_text(&o, OPT_ACCUM),
                  opt_text(&o, OPT_GLOBAL_BATCH));
    options_free(&o);
}

TEST(options_batch_numbers_agree_and_the_weakest_source_gives_way) {
    expect_batch("", "--micro-batch|2|--accum|8", 8, 16);
    expect_batch("", "--micro-batch|4|--global-batch|18", 5, 18); /* completed with rows of no weight */
    expect_batch("micro-batch: 2\naccum: 8\nglobal-batch: 16", "", 8, 16);
    expect_batch("micro-batch: 2\naccum: 8\nglobal-batch: 16", "--micro-batch|1", 16,
                 16); /* a resumed config.yaml */
    expect_batch("micro-batch: 2\naccum: 8\nglobal-batch: 16", "--accum|4", 4, 8);
    expect_batch("micro-batch: 2\naccum: 8", "--global-batch|4", 2, 4);
    expect_batch("micro-batch: 2\naccum: 8", "--micro-batch|4", 8, 32);
    expect_refused(CMD_TRAIN, JOB "--micro-batch|2|--accum|3|--global-batch|8", ERR_USAGE, "global-batch 8");
}

TEST(options_precedence_is_flag_file_environment_default) {
    Options o;
    Err e;
    char path[300];
    snprintf(path, sizeof path, "--config=%s", write_file("r.yaml", "threads: 3\nlr: 5e-5\n"));
    char *bare[] = {"--model", "m"}, *file[] = {"--model", "m", path};
    char *flag[] = {"--threads", "2", "--model", "m", path, "--set", "seq=64", "--set=lora_r=4"};
    setenv("OMP_NUM_THREADS", "5", 1);
    EXPECT_OK(options_parse(&o, CMD_PLAN, 2, bare, &e));
    EXPECT(opt_int(&o, OPT_THREADS) == 5 && opt_given(&o, OPT_THREADS));
    EXPECT_STR(o.value[OPT_THREADS].origin, "OMP_NUM_THREADS");
    options_free(&o);
    EXPECT_OK(options_parse(&o, CMD_PLAN, 3, file, &e));
    EXPECT(opt_int(&o, OPT_THREADS) == 3 && opt_real(&o, OPT_LR) == 5e-5);
    EXPECT(strstr(o.value[OPT_THREADS].origin, "r.yaml:1") != NULL);
    options_free(&o);
    EXPECT_OK(options_parse(&o, CMD_PLAN, COUNT_OF(flag), flag, &e)); /* the flag stands before --config */
    EXPECT(opt_int(&o, OPT_THREADS) == 2 && opt_int(&o, OPT_SEQ) == 64 && opt_int(&o, OPT_LORA_RANK) == 4);
    EXPECT_STR(o.value[OPT_SEQ].origin, "--set seq");
    options_free(&o);
    setenv("OMP_NUM_THREADS", "4,2", 1); /* not a number here: left alone */
    EXPECT_OK(options_parse(&o, CMD_PLAN, 2, bare, &e));
    EXPECT(opt_int(&o, OPT_THREADS) == 0);
    options_free(&o);
    unsetenv("OMP_NUM_THREADS");
}

TEST(options_set_names_options_and_for_init_keeps_keys) {
    Options o;
    Err e;
    const char *const *list;
    EXPECT_OK(parse(&o, CMD_INIT,
                    "--model|m|--out|o|--set|num_hidden_layers=2|--set|rope_scaling={\"a\":1,\"b\":2}", &e));
    EXPECT(opt_list(&o, OPT_SET, &list) == 2);
    EXPECT_STR(list[1], "rope_scaling={\"a\":1,\"b\":2}"); /* commas are text */
    options_free(&o);
    expect_refused(CMD_TRAIN, JOB "--set|lerning-rate=1", ERR_USAGE, "--set lerning-rate");
    expect_refused(CMD_TRAIN, JOB "--set|lr", ERR_USAGE, "NAME=VALUE");
    expect_refused(CMD_TRAIN, JOB "--set|seq=0", ERR_USAGE, "--set seq: 0 is out of range");
    expect_refused(CMD_TRAIN, JOB "--set|config=x", ERR_USAGE, "not set that way");
}

/* ---- files ---- */

TEST(options_yaml_takes_hugging_face_names_lists_anchors_and_nulls) {
    Options o;
    Err e;
    EXPECT_OK(
        parse_file(&o, CMD_TRAIN,
                   "# a recipe\nmodel_name_or_path: Qwen/Qwen2.5-7B-Instruct\ndataset: d.jsonl\noutput_dir: 'o'\n"
                   "per_device_train_batch_size: &b 2\naccum: *b\nlearning_rate: 2.0e-4\nbf16: true\nfp16: false\n"
                   "gradient_checkpointing: yes\nresume_from_checkpoint: false\npacking: true\nmax_steps: ~\n"
                   "target_modules:\n  - q_proj\n  - v_proj\nfrom: llama2c\nlr_mult: a=1,b=2\n"
                   "lr_scheduler_kwargs:\n  num_decay_steps: 7\n",
                   "", &e));
    EXPECT_STR(opt_text(&o, OPT_MODEL), "Qwen/Qwen2.5-7B-Instruct");
    EXPECT(opt_int(&o, OPT_ACCUM) == 2 && opt_int(&o, OPT_GLOBAL_BATCH) == 4 && opt_real(&o, OPT_LR) == 2e-4);
    EXPECT_STR(opt_text(&o, OPT_PRECISION), "bf16");
    EXPECT_STR(opt_text(&o, OPT_RECOMPUTE), "block");
    EXPECT(opt_text(&o, OPT_RESUME) == NULL && opt_text(&o, OPT_STEPS) == NULL);
    EXPECT_STR(opt_text(&o, OPT_PACK), "on");
    EXPECT_STR(opt_text(&o, OPT_LORA_TARGETS), "q,v");
    EXPECT(opt_text(&o, OPT_FROM) == NULL); /* belongs to another command: passed over */
    EXPECT_STR(opt_text(&o, OPT_LR_MULT), "a=1,b=2");
    EXPECT_STR(opt_text(&o, OPT_DECAY_STEPS), "7");
    options_free(&o);
}

TEST(options_yaml_lists_and_values_give_way_to_flags_and_later_files) {
    Options o;
    Err e;
    char first[200], line[1000];
    snprintf(first, sizeof first, "%s",
             write_file("first.yaml", "lora-targets: [q, k]\nlr-mult: [a=1]\nseq: 5\nlr: 1e-3"));
    const char *second = write_file("second.yaml", "lora-targets: v\nseq: 6\n");
    snprintf(line, sizeof line, JOB "--lr-mult|b=2|--config|%s|--config|%s", first, second);
    EXPECT_OK(parse(&o, CMD_TRAIN, line, &e));
    EXPECT_STR(opt_text(&o, OPT_LORA_TARGETS), "v");
    EXPECT_STR(opt_text(&o, OPT_LR_MULT), "b=2");
    EXPECT(opt_int(&o, OPT_SEQ) == 6 && opt_real(&o, OPT_LR) == 1e-3);
    options_free(&o);
}

TEST(options_yaml_refusals_name_file_and_line) {
    expect_file_refused("seq: 8\nlerning_rate: 1", ERR_USAGE,
                        "r.yaml:2: lerning_rate: there is no such option. Did you mean learning-rate?");
    expect_file_refused("lora:\n  r: 8", ERR_USAGE, "r.yaml:2: a nested map");
    expect_file_refused("lr: 1\n\nlearning-rate: 2", ERR_USAGE, "r.yaml:3: learning-rate: already set in line 1");
    expect_file_refused("seq: 8\nseq: 8", ERR_USAGE, "already set in line 1");
    expect_file_refused("bf16: true\nprecision: fp32", ERR_USAGE, "already set");
    expect_file_refused("seq: 0", ERR_USAGE, "r.yaml:1: seq: 0 is out of range");
    expect_file_refused("seq: [1, 2]", ERR_USAGE, "not a list");
    expect_file_refused("lora-targets: [[q]]", ERR_USAGE, "a list where a single value");
    expect_file_refused("- seq", ERR_USAGE, "'name: value' lines");
    expect_file_refused("seq: 8\n---\nseq: 9", ERR_USAGE, "second document");
    expect_file_refused("config: other.yaml", ERR_USAGE, "for the command line");
    expect_file_refused("set: lr=1", ERR_USAGE, "for the command line");
    expect_file_refused("eval_strategy: epoch", ERR_USAGE, "eval-steps");
    expect_file_refused("tokenizer: \"a\\0b\"", ERR_USAGE, "NUL");
    expect_file_refused("lr-mult: {a: 1}", ERR_USAGE, "a nested map");
    expect_file_refused("lr_scheduler_kwargs: {num_decay_steps: {a: 1}}", ERR_USAGE, "a nested map");
    expect_file_refused("lr_scheduler_kwargs: &x {lr_scheduler_kwargs: *x}", ERR_USAGE, "a nested map");
    expect_file_refused("decay-steps: 3\nlr_scheduler_kwargs: {num_decay_steps: 7}", ERR_USAGE,
                        "already set in line 1");
    expect_file_refused("seq: [8", ERR_FAIL, "not valid YAML");
    expect_file_refused("seq: *nobody", ERR_FAIL, "not valid YAML");
    expect_file_refused("seq: \xff", ERR_FAIL, "r.yaml: byte");
    expect_file_refused("? [a, b]\n: 3", ERR_USAGE, "a list where a single value");
    Options o;
    Err e;
    EXPECT_OK(parse_file(&o, CMD_TRAIN, "", JOB, &e)); /* empty: sets nothing */
    options_free(&o);
    EXPECT_OK(parse_file(&o, CMD_TRAIN, "# only a remark\n", JOB, &e));
    options_free(&o);
}

/* Every value of one configuration equals the other's, apart from where it came from. */
static void expect_same(const Options *a, const Options *b) {
    for (int i = 0; i < OPT_COUNT; i++) {
        if (option_rows[i].once) continue;
        const OptValue *x = &a->value[i], *y = &b->value[i];
        bool same = x->set == y->set && x->i == y->i && x->r == y->r && x->n == y->n &&
                    (!x->text || (y->text && !strcmp(x->text, y->text)));
        for (int k = 0; same && k < x->n; k++)
            same = !strcmp(x->list[k], y->list[k]) && x->numbers[k] == y->numbers[k];
        if (!EXPECT(same)) test_note("    %s: '%s' against '%s'", option_rows[i].name, x->text, y->text);
    }
}

static void expect_round_trip(Command c, const char *line) {
    Options o, back;
    Err e;
    Str yaml = {0};
    EXPECT_OK(parse(&o, c, line, &e));
    options_write_yaml(&yaml, &o);
    EXPECT_OK(parse_file(&back, c, str_text(&yaml), "", &e));
    expect_same(&o, &back);
    str_free(&yaml);
    options_free(&o);
    options_free(&back);
}

TEST(options_written_yaml_reads_back_to_the_same_values) {
    expect_round_trip(CMD_TRAIN, JOB);
    expect_round_trip(CMD_TRAIN, JOB
                      "--mode|lora|--lora-targets|q,down|--lr|0.1|--lr-mult|a.b=0.1,c=3|--micro-batch|4"
                      "|--global-batch|18|--budget|1.5 GiB|--no-shuffle|--prompt-template|"
                      "# 'x': \"{y}\"\\n\\n - Câu: {sentence}\xe2\x80\xa8\\t|--pack|on|--val-split|0.05");
    expect_round_trip(CMD_INIT, "--model|null|--out|~|--set|a=[1,2]|--set|b= x # y|--set|c={\"d\": 1}");
    expect_round_trip(CMD_EVAL, "--model|true|--data|123|--adapter=-- x|--tokenizer| lead and trail ");
    expect_round_trip(CMD_PLAN, "--model|m|--recompute|block:0-13,norm:14-27|--data|x");
}

TEST(options_written_yaml_survives_odd_texts) {
    static const char *const pieces[] = {"\"",
                                         "\\",
                                         "\n",
                                         "\t",
                                         "#",
                                         ": ",
                                         "- ",
                                         "{",
                                         "}",
                                         "[",
                                         "]",
                                         ",",
                                         "&",
                                         "*",
                                         "!",
                                         "|",
                                         ">",
                                         "'",
                                         "%",
                                         "@",
                                         "`",
                                         " ",
                                         "  ",
                                         "a",
                                         "null",
                                         "\r",
                                         "\x01",
                                         "\x7f",
                                         "\xc2\x85",
                                         "\xef\xbb\xbf",
                                         "\xe2\x80\xa9",
                                         "\xef\xbf\xbe",
                                         "\xf0\x9f\x99\x82",
                                         "đ",
                                         "~",
                                         "?",
                                         "="};
    for (uint64_t trial = 0; trial < 300; trial++) {
        char text[200] = "x";
        int n = 1 + (int)(rng_u32(7, trial * 100) % 12);
        if (rng_u32(8, trial) % 2) text[0] = 0;
        for (int i = 0; i < n; i++)
            strcat(text, pieces[rng_u32(7, trial * 100 + 1 + (uint64_t)i) % COUNT_OF(pieces)]);
        char *argv[] = {"--model", "m", "--data", "d", "--out", "o", "--tokenizer", text};
        Options o, back;
        Err e;
        Str yaml = {0};
        EXPECT_OK(options_parse(&o, CMD_TRAIN, COUNT_OF(argv), argv, &e));
        options_write_yaml(&yaml, &o);
        EXPECT_OK(parse_file(&back, CMD_TRAIN, str_text(&yaml), "", &e));
        EXPECT_STR(opt_text(&back, OPT_TOKENIZER), text);
        str_free(&yaml);
        options_free(&o);
        options_free(&back);
    }
}

TEST(options_yaml_of_any_bytes_is_refused_or_read_without_a_crash) {
    static const char seed_text[] =
        "model: m\ndata: [d]\nout: o\nlora-targets: [q, *x]\nseq: &x 8\nlr: {a: b}\n--- |\n x\n";
    for (uint64_t trial = 0; trial < 300; trial++) {
        char text[sizeof seed_text];
        memcpy(text, seed_text, sizeof text);
        for (uint64_t i = 0; i < 4; i++) {
            uint32_t r = rng_u32(9, trial * 8 + i);
            text[r % (sizeof text - 1)] = (char)("\n :-[]{}&*!|>'\"%@#,?\t~x\x80\xff"[(r >> 8) % 26]);
        }
        Options o;
        Err e;
        bool ok = parse_file(&o, CMD_TRAIN, text, "", &e);
        EXPECT(ok || e.text[0]);
        options_free(&o);
    }
}

/* ---- what people see ---- */

TEST(options_help_is_within_100_columns_and_shows_every_option) {
    for (int c = 0; c < CMD_COUNT; c++) {
        Str help = {0};
        options_help(&help, (Command)c);
        for (const char *line = help.data; *line; line += strcspn(line, "\n") + 1)
            if (!EXPECT(strcspn(line, "\n") <= 100)) test_note("    %.*s", (int)strcspn(line, "\n"), line);
        for (int i = 0; i < OPT_COUNT; i++) {
            char flag[64];
            bool on = option_rows[i].fallback && !strcmp(option_rows[i].fallback, "true");
            snprintf(flag, sizeof flag, "\n  --%s%s", on ? "[no-]" : "", option_rows[i].name);
            const char *at = strstr(help.data, flag);
            bool shown = false;
            for (; at && !shown; at = strstr(at + 1, flag)) shown = strchr(" \n", at[strlen(flag)]) != NULL;
            bool wanted =
                false; /* commands may have options of one name: epsilon clips ratios, or is a certificate's */
            for (int k = 0; k < OPT_COUNT; k++)
                wanted |= !strcmp(option_rows[k].name, option_rows[i].name) && (option_rows[k].commands >> c & 1);
            if (!EXPECT(shown == wanted))
                test_note("    %s in `%s --help`", option_rows[i].name, command_rows[c].name);
        }
        EXPECT(strstr(help.data, "Example:\n  snug ") && strstr(help.data, "Exit codes: 0 done"));
        str_free(&help);
    }
    Str help = {0};
    options_help(&help, CMD_TRAIN);
    EXPECT(strstr(help.data,
                  "\n  --lora-rank N               rank of each adapter [default 16; 1 to 4096; also lora_r]\n"));
    EXPECT(strstr(help.data, "usage: snug train --model NAME|DIR --data FILE [options]\n"));
    str_clear(&help);
    options_overview(&help);
    EXPECT(strstr(help.data, "\n  tokenize   "));
    str_free(&help);
}

/* The examples are commands that parse. */
TEST(options_help_examples_parse) {
    for (int c = 0; c < CMD_COUNT; c++) {
        char text[1000];
        snprintf(text, sizeof text, "%s", command_rows[c].examples);
        for (char *end, *line = text; (end = strchr(line, '\n')); line = end + 1) {
            *end = 0;
            if (strstr(line, "--config")) continue; /* needs its file */
            char *input = strchr(line, '<');
            if (input) *input = 0;
            for (char *space = line; *space; space++)
                if (*space == ' ') *space = '|';
            Options o;
            Err e;
            char *words = line + strlen("snug ") + strlen(command_rows[c].name) + 1;
            EXPECT_OK(parse(&o, (Command)c, words, &e));
            options_free(&o);
        }
    }
}

TEST(options_print_says_where_values_came_from) {
    Options o;
    Err e;
    Str out = {0};
    EXPECT_OK(parse(&o, CMD_TRAIN, JOB "--lr|2e-4|--prompt-template|a\\nb", &e));
    options_print(&out, &o, false);
    EXPECT(strstr(out.data, "  lr                0.0002                       --lr\n"));
    EXPECT(strstr(out.data, "  seq               1024\n"));
    EXPECT(strstr(out.data, "  prompt-template   a\\nb "));
    EXPECT(!strstr(out.data, "dry-run"));
    str_clear(&out);
    options_print(&out, &o, true);
    EXPECT(strstr(out.data, "  lr ") && !strstr(out.data, "  seq "));
    str_free(&out);
    options_free(&o);
}

/* ---- the record of the mathematics ---- */

static void expect_maths(const char *before, const char *after, const char *refusal) {
    Options o, next;
    Err e;
    char a[500], b[500];
    snprintf(a, sizeof a, JOB "%s", before);
    snprintf(b, sizeof b, JOB "%s", after);
    EXPECT_OK(parse(&o, CMD_TRAIN, a, &e));
    EXPECT_OK(parse(&next, CMD_TRAIN, b, &e));
    json_t *then = options_json(&o, true), *later = options_json(&next, true);
    TrainerState saved = {0}, now = {0};
    trainer_state_set_all(&saved, then);
    trainer_state_set_all(&now, later);
    bool same = trainer_state_check_settings(&saved, &now, &e);
    if (!EXPECT(same == !refusal) || !EXPECT(!refusal || strstr(e.text, refusal)))
        test_note("    '%s' then '%s': %s", before, after, same ? "accepted" : e.text);
    trainer_state_free(&saved);
    trainer_state_free(&now);
    json_decref(then);
    json_decref(later);
    options_free(&o);
    options_free(&next);
}

TEST(options_resume_refuses_changed_mathematics_by_name) {
    expect_maths("", "", NULL);
    expect_maths("--lr|2e-4", "--lr|0.0002", NULL); /* one value, two spellings */
    expect_maths("--lr|2e-4", "--lr|1e-4", "lr was 0.0002 and is 0.0001");
    expect_maths("--micro-batch|2|--accum|8", "--micro-batch|4|--accum|4", NULL);
    expect_maths("--micro-batch|2|--accum|8", "--micro-batch|2|--accum|4", "global-batch was 16 and is 8");
    expect_maths("--recompute|none|--threads|1", "--recompute|block|--threads|2|--head-chunk|64|--budget|1GiB",
                 NULL);
    expect_maths("--save-steps|5|--data|a", "--save-steps|7|--data|b", NULL);
    expect_maths("--lora-rank|8", "--lora-rank|16", NULL); /* no adapters in this run */
    expect_maths("--mode|lora|--lora-rank|8", "--mode|lora|--lora-rank|16",
                 "lora-rank was 8 and is 16; lora-alpha was 16");
    expect_maths("--lora-targets|q,k|--mode|lora", "--lora-targets|k_proj,q_proj|--mode|lora", NULL);
    expect_maths("--steps|10", "--steps|20",
                 NULL); /* a run may be lengthened; the run says what that does to its schedule */
    expect_maths("--epochs|1", "--epochs|3", NULL);
    expect_maths("--steps|10|--schedule|constant", "--steps|20|--schedule|constant", NULL);
    expect_maths("--steps|10|--epochs|3", "--steps|10", NULL);
    expect_maths("", "--max-samples|9", "max-samples was not set and is 9");
    expect_maths("--max-samples|9", "", "max-samples was 9 and is not set");
    expect_maths("--seed|1", "--seed|2", "seed was 1 and is 2");
}

TEST(options_json_holds_the_job_and_not_the_invocation) {
    Options o;
    Err e;
    EXPECT_OK(parse(&o, CMD_TRAIN, JOB "--resume|--threads|2", &e));
    json_t *map = options_json(&o, false);
    EXPECT_STR(json_string_value(json_object_get(map, "threads")), "2");
    EXPECT_STR(json_string_value(json_object_get(map, "data")), "d.jsonl");
    EXPECT(!json_object_get(map, "resume") && !json_object_get(map, "help"));
    json_decref(map);
    options_free(&o);
}

/* TRL's `dataset_name` in a file was passed over as another command's option: "--data is missing". */
TEST(a_data_set_named_in_a_file_is_the_data_of_grpo) {
    static const char yaml[] = "model_name_or_path: m\ndataset_name: rows.jsonl\nnum_generations: 4\n";
    Options o;
    Err e = {0};
    EXPECT_OK(parse_file(&o, CMD_GRPO, yaml, "--out|o", &e));
    EXPECT_STR(opt_text(&o, OPT_DATA), "rows.jsonl");
    options_free(&o);
    expect_file_refused("dataset_name: rows.jsonl\n", ERR_USAGE, "--data FILE");
}
