/* test_elsewhere.c - options of other tools: each is taken with its meaning, or refused with the reason and what to use
 * instead; on the command line, in files, and in the environment. */
#include <stdlib.h>

#include "base/file.h"
#include "cli/elsewhere.h"
#include "cli/options_int.h"
#include "tests/cli/words.h"
#include "tests/snug.h"
#include "tests/test.h"

#define TRAIN "--model|m|--data|d.jsonl|"
#define ANSWER "--model|m|--prompt|x|"
#define POLICY "--model|m|--out|o|--parser|test|"
#define COMPARED "--model|m|--tuned|t|--parser|test|"

static const char *said(const Options *o, OptId id) { /* of a list its first */
    const char *const *list;
    if (option_rows[id].type != OPT_LIST) return opt_text(o, id);
    return opt_list(o, id, &list) ? list[0] : NULL;
}

/* ---- the table ---- */

/* A command that a row is for: train, or where it is not for train the first of its own. */
static Command command_of(const Elsewhere *row) {
    int c = 0;
    if (!row->commands || row->commands >> CMD_TRAIN & 1) return CMD_TRAIN;
    while (!(row->commands >> c & 1)) c++;
    return (Command)c;
}

TEST(elsewhere_rows_mean_options_that_exist_in_their_one_spelling) {
    for (int i = 0; i < elsewhere_count(); i++) {
        const Elsewhere *row = &elsewhere[i];
        EXPECT(row->means || row->why);
        if (!row->means || !*row->means) continue;
        for (const char *at = row->means; *at; at += strcspn(at, ","), at += *at == ',') {
            char name[64], value[64];
            EXPECT(sscanf(at, "%63[^?+=]%*[?+=]%63[^,]", name, value) == 2);
            Options o;
            Err e;
            OptHit hit;
            if (!EXPECT(options_lookup(&hit, command_of(row), name))) continue; /* `dataset` is data to train */
            EXPECT_STR(option_rows[hit.id].name, name);
            if (!strcmp(value, "*")) continue; /* whatever was given */
            bool trains = option_rows[hit.id].commands & ON_TRAIN;
            EXPECT_OK(parse(&o, trains ? CMD_TRAIN : CMD_GENERATE, trains ? TRAIN : ANSWER, &e));
            EXPECT_OK(options_put(&o, &hit, value, FROM_FLAG, "--x", &e));
            EXPECT_STR(said(&o, hit.id), value);
            options_free(&o);
        }
    }
}

TEST(elsewhere_rows_are_no_names_of_our_own) {
    for (int i = 0; i < elsewhere_count(); i++) {
        OptHit hit;
        for (const char *at = elsewhere[i].name; at; at = (at = strchr(at, '|')) ? at + 1 : NULL) {
            char name[64];
            snprintf(name, sizeof name, "%.*s", (int)strcspn(at, "|"), at);
            Command c = command_of(&elsewhere[i]);
            bool found = options_lookup(&hit, c, name);
            bool known = found && options_belongs(&option_rows[hit.id], c);
            bool one_value = elsewhere[i].value && elsewhere[i].means && !*elsewhere[i].means; /* not needed */
            if (!EXPECT(!known || option_rows[hit.id].choices || one_value))
                test_note("    %s is an option or an alias: the row is never met", name);
        }
    }
}

/* ---- what is taken ---- */

TEST(names_of_other_tools_are_taken_with_their_meaning) {
    static const struct {
        Command command;
        const char *flags;
        OptId id;
        const char *value; /* NULL: as without them */
    } cases[] = {
        {CMD_TRAIN, TRAIN "--stage|sft|--do_train|--finetuning_type|lora", OPT_MODE, "lora"},
        {CMD_TRAIN, TRAIN "--packing|True", OPT_PACK, "on"},
        {CMD_TRAIN, TRAIN "--sample_packing|true", OPT_PACK, "on"},
        {CMD_TRAIN, TRAIN "--save_strategy|no", OPT_SAVE_MINUTES, "0"},
        {CMD_TRAIN, TRAIN "--save_strategy|steps|--wandb_project|x|--hub_token|y", OPT_SAVE_MINUTES, NULL},
        {CMD_TRAIN, TRAIN "--finetuning_type|lora|--quantization_bit|4", OPT_QUANTIZE, "nf4"},
        {CMD_TRAIN, TRAIN "--full_determinism", OPT_DETERMINISTIC, "true"},
        {CMD_TRAIN, TRAIN "--gpu_memory_limit|20GiB", OPT_BUDGET, "20GiB"},
        {CMD_TRAIN, TRAIN "--use_cpu", OPT_DEVICE, "cpu"},
        {CMD_TRAIN, TRAIN "--packing|False", OPT_PACK, "off"},
        {CMD_TRAIN, TRAIN "--packing=true", OPT_PACK, "on"},
        {CMD_TRAIN, TRAIN "--packing|update", OPT_PACK, "update"},
        {CMD_TRAIN, TRAIN "--optim|adamw_torch_fused", OPT_MOMENTS, NULL},
        {CMD_TRAIN, TRAIN "--optim|paged_adamw_8bit", OPT_MOMENTS, "8bit"},
        {CMD_TRAIN, TRAIN "--optim|paged_adamw_8bit", OPT_OPTIMIZER, "adamw"},
        {CMD_TRAIN, TRAIN "--optim|adamw_bnb_8bit", OPT_MOMENTS, "8bit"},
        {CMD_TRAIN, TRAIN "--optim|paged_adamw_32bit", OPT_MOMENTS, "fp32"},
        {CMD_TRAIN, TRAIN "--moments|8bit|--optim|adamw_8bit", OPT_MOMENTS, "8bit"},
        {CMD_TRAIN, TRAIN "--set|optim=adamw_8bit", OPT_MOMENTS, "8bit"},
        {CMD_TRAIN, TRAIN "--lr_scheduler_type|warmup_stable_decay", OPT_SCHEDULE, "wsd"},
        {CMD_TRAIN, TRAIN "--lr_scheduler_type|warmup_stable_decay", OPT_DECAY_SHAPE, "cosine"},
        {CMD_TRAIN, TRAIN "--schedule|wsd", OPT_DECAY_SHAPE, "linear"},
        {CMD_TRAIN,
         TRAIN "--lr_scheduler_type|warmup_stable_decay|--lr_scheduler_kwargs|{\"num_decay_steps\": 7, "
               "\"decay_type\": \"1-sqrt\"}",
         OPT_DECAY_STEPS, "7"},
        {CMD_TRAIN,
         TRAIN "--lr_scheduler_type|warmup_stable_decay|--lr_scheduler_kwargs|{\"num_decay_steps\": 7, "
               "\"decay_type\": \"1-sqrt\"}",
         OPT_DECAY_SHAPE, "1-sqrt"},
        {CMD_TRAIN,
         TRAIN "--lr_scheduler_type|cosine_with_min_lr|--lr_scheduler_kwargs={\"min_lr_rate\": 0.1, "
               "\"num_cycles\": 0.5}",
         OPT_MIN_LR_RATIO, "0.1"},
        {CMD_TRAIN, TRAIN "--lr-wsd-decay-style|minus_sqrt|--lr-decay-style|WSD", OPT_DECAY_SHAPE, "1-sqrt"},
        {CMD_TRAIN, TRAIN "--dataset_text_field|body", OPT_TEXT_FIELD, "body"},
        {CMD_TRAIN, TRAIN "--assistant_only_loss|True", OPT_SCORE, NULL},
        {CMD_TRAIN, TRAIN "--assistant_only_loss", OPT_SCORE, NULL},
        {CMD_TRAIN, TRAIN "--mask_history|true", OPT_SCORE, "last"},
        {CMD_TRAIN, TRAIN "--val_set_size|0.05", OPT_VAL_SPLIT, "0.05"},
        {CMD_TRAIN, TRAIN "--cpu-offload", OPT_OFFLOAD, "weights"},
        {CMD_TRAIN, TRAIN "--cpu_offload|true|--seq|8", OPT_OFFLOAD, "weights"},
        {CMD_TRAIN, TRAIN "--cpu_offload|False", OPT_OFFLOAD, "none"},
        {CMD_TRAIN, TRAIN "--cpu-offload|weights=12,moments", OPT_OFFLOAD, "weights=12,moments"},
        {CMD_GENERATE, ANSWER "--cpu-offload|--max-tokens|4", OPT_OFFLOAD, "weights"},
        {CMD_TRAIN, TRAIN "--num_workers|4", OPT_DATA_WORKERS, "4"},
        {CMD_TRAIN, TRAIN "--log-level|warning", OPT_QUIET, "true"},
        {CMD_TRAIN, TRAIN "--log_level=info", OPT_QUIET, "false"},
        {CMD_TRAIN, TRAIN "--debug", OPT_QUIET, NULL},
        {CMD_TRAIN, TRAIN "--no-warnings|--debug|true", OPT_QUIET, NULL},
        {CMD_TRAIN, TRAIN "--nproc_per_node|1", OPT_QUIET, NULL},
        {CMD_REASON, "--model|m|--out|o|--dataset-name|gsm8k", OPT_DATASET, "gsm8k"},
        {CMD_GRPO, "--model|m|--out|o|--dataset-name|rows/of/a/rather/long/path/to/the/data/of/a/policy.jsonl",
         OPT_DATA, "rows/of/a/rather/long/path/to/the/data/of/a/policy.jsonl"},
        {CMD_GRPO, POLICY "--evaluator-type|math|--client-type|hf", OPT_REWARD, "math"},
        {CMD_GRPO, POLICY "--evaluator-type|test|--test-mode|constant", OPT_REWARD, "constant"},
        {CMD_GRPO, POLICY "--test-mode|gold_match|--evaluator-type|test", OPT_REWARD, "gold_match"},
        {CMD_GRPO, POLICY "--evaluator-type|test", OPT_REWARD, "length"},
        {CMD_GRPO, POLICY "--test-mode|length|--client-type|auto", OPT_REWARD, "length"},
        {CMD_GRPO, POLICY "--evaluator-model|same|--evaluator-8bit", OPT_EVALUATOR, "same:int8"},
        {CMD_GRPO, POLICY "--evaluator-8bit|--evaluator-model|a/b:by-phase", OPT_EVALUATOR, "a/b:by-phase,int8"},
        {CMD_GRPO, POLICY "--evaluator-8bit|--evaluator|x:y/b", OPT_EVALUATOR, "x:y/b:int8"},
        {CMD_GRPO, POLICY "--evaluator-8bit|--evaluator|a:int8", OPT_EVALUATOR, "a:int8"},
        {CMD_GRPO, POLICY "--evaluator-8bit|false|--evaluator|a", OPT_EVALUATOR, "a"},
        {CMD_GRPO, POLICY "--client-type|ollama|--evaluator-url|http://h|--evaluator-name|n", OPT_EVALUATOR_API,
         "ollama"},
        {CMD_GRPO, POLICY "--use_vllm|false|--vllm_mode|colocate|--log_completions|--sync_ref_model|false",
         OPT_REWARD, NULL},
        {CMD_GRPO, POLICY "--importance_sampling_level|token|--shuffle_dataset|false", OPT_SHUFFLE, "false"},
        {CMD_GRPO, POLICY "--batch-size|4", OPT_MICRO_BATCH, "4"},
        {CMD_GRPO_EVAL, COMPARED "--batch-size|4", OPT_SLOTS, "4"},
        {CMD_GRPO_EVAL, COMPARED "--per_device_eval_batch_size=4|--slots|4", OPT_SLOTS, "4"},
        {CMD_GRPO_EVAL, COMPARED "--max-samples|9", OPT_EVAL_ITEMS, "9"},
        {CMD_GRPO, POLICY "--generation_kwargs|{\"top_k\": 7}", OPT_TOP_K, "7"},
        {CMD_PLAN, "--task|grpo|--model|m|--dataset-name|d.jsonl|--evaluator-8bit|--evaluator|a", OPT_EVALUATOR,
         "a:int8"},
        {CMD_PLAN, "--task|grpo|--model|m|--dataset-name|d.jsonl", OPT_DATA, "d.jsonl"},
        {CMD_TRAIN, TRAIN "--standalone|--nproc_per_node=1", OPT_QUIET, NULL},
        {CMD_GENERATE, ANSWER "--do_sample", OPT_TEMPERATURE, "1"},
        {CMD_GENERATE, ANSWER "--do_sample|True|--temperature|0.7", OPT_TEMPERATURE, "0.7"},
        {CMD_GENERATE, ANSWER "--temperature|0.7|--do_sample", OPT_TEMPERATURE, "0.7"},
        {CMD_GENERATE, ANSWER "--do_sample|False", OPT_TEMPERATURE, "0"},
        {CMD_GENERATE, ANSWER "--no-do_sample", OPT_TEMPERATURE, "0"},
        {CMD_REASON, "--model|m|--out|o|--do_sample", OPT_TEMPERATURE, "0.6"},
        {CMD_TRAIN, TRAIN "--budget|24Gi", OPT_BUDGET, "24Gi"},
        {CMD_TRAIN, TRAIN "--budget|24GiB", OPT_BUDGET, "24GiB"},
    };
    for (int i = 0; i < COUNT_OF(cases); i++) {
        Options o, plain;
        Err e;
        Command c = cases[i].command;
        const char *bare = c == CMD_TRAIN ? TRAIN : c == CMD_GRPO_EVAL ? COMPARED : "--model|m|--out|o";
        EXPECT_OK(parse(&plain, c, bare, &e));
        const char *want = cases[i].value ? cases[i].value : said(&plain, cases[i].id);
        bool ok = parse(&o, cases[i].command, cases[i].flags, &e);
        const char *got = said(&o, cases[i].id);
        if (!EXPECT(ok) || !EXPECT((!got && !want) || (got && want && !strcmp(got, want))))
            test_note("    %s: '%s' %s", cases[i].flags, got ? got : "unset", e.text);
        options_free(&o);
        options_free(&plain);
    }
    Options o;
    Err e;
    EXPECT_OK(parse(&o, CMD_TRAIN, TRAIN "--budget|24Gi", &e));
    EXPECT(opt_bytes(&o, OPT_BUDGET) == 24LL << 30);
    options_free(&o);
}

TEST(names_of_other_tools_are_refused_with_what_to_use_instead) {
    static const struct {
        Command command;
        const char *flags, *says;
    } cases[] = {
        {CMD_TRAIN, TRAIN "--stage|rm", "snug grpo"},
        {CMD_GRPO, "--model|m|--out|o|--parser|test|--use_vllm|true", "on the same ring"},
        {CMD_GRPO, POLICY "--delta|1.5", "--epsilon-high"},
        {CMD_GRPO, POLICY "--generation_batch_size|64", "--steps-per-generation"},
        {CMD_GRPO, POLICY "--importance_sampling_level|sequence", "those of tokens"},
        {CMD_GRPO, POLICY "--sync_ref_model", "began as"},
        {CMD_GRPO, POLICY "--evaluator-8bit", "means --evaluator MODEL:int8, and --evaluator is not given"},
        {CMD_GRPO, POLICY "--test-mode|random", "it is length, constant or gold_match"},
        {CMD_GRPO, POLICY "--client-type|vllm", "--evaluator-url URL"},
        {CMD_GRPO_EVAL, COMPARED "--micro-batch|4", "--slots N"},
        {CMD_GRPO_EVAL, COMPARED "--batch-size|4|--slots|8", "means slots 4, but --slots says 8"},
        {CMD_GRPO_EVAL, COMPARED "--batch-size|0", "1 to 1024"},
        {CMD_GRPO_EVAL, COMPARED "--num_generations|4", "--best-of K"},
        {CMD_GRPO_EVAL, COMPARED "--eval-data|x.jsonl", "--data FILE"},
        {CMD_GRPO_EVAL, COMPARED "--adapter|a", "--tuned DIR"},
        {CMD_GRPO_EVAL, COMPARED "--lr|1", "belongs to: train, grpo"},
        {CMD_PLAN, "--task|grpo|--model|m|--use_vllm|true", "on the same ring"},
        {CMD_EVAL, "--model|hf|--model_args|pretrained=m|--tasks|hellaswag", "--model DIR"},
        {CMD_TRAIN, TRAIN "--lr_scheduler_type|polynomial", "linear is the polynomial"},
        {CMD_TRAIN, TRAIN "--lr_scheduler_kwargs|num_decay_steps=7", "no JSON object"},
        {CMD_TRAIN, TRAIN "--lr_scheduler_kwargs|{\"num_stable_steps\": 7}",
         "lr_scheduler_kwargs: num_stable_steps is not an option here"},
        {CMD_TRAIN, TRAIN "--lr_scheduler_kwargs|{\"num_cycles\": 2}", "goes down once"},
        {CMD_TRAIN, TRAIN "--lr_scheduler_kwargs|{\"power\": 2}", "power"},
        {CMD_TRAIN, TRAIN "--lr_scheduler_kwargs|{\"num_decay_steps\": [7]}", "neither a number nor a text"},
        {CMD_TRAIN, TRAIN "--use_dora|true", "plain LoRA"},
        {CMD_TRAIN, TRAIN "--lora", "it is --mode lora here"},
        {CMD_TRAIN, TRAIN "--qlora", "it is --mode lora --quantize nf4 here"},
        {CMD_TRAIN, TRAIN "--mode|qlora", "there is no qlora: it is --mode lora --quantize nf4 here"},
        {CMD_TRAIN, TRAIN "--mode|dora", "plain LoRA"},
        {CMD_TRAIN, TRAIN "--modules_to_save|lm_head", "plain LoRA"},
        {CMD_TRAIN, TRAIN "--num_gpus|4", "one device"},
        {CMD_TRAIN, TRAIN "--use_rslora|true", "times the root of the rank"},
        {CMD_TRAIN, TRAIN "--save_strategy|epoch", "save-steps or save-minutes"},
        {CMD_TRAIN, TRAIN "--streaming", "`snug prepare`"},
        {CMD_TRAIN, TRAIN "--early_stopping_patience|3", "--save-best loss"},
        {CMD_TRAIN, TRAIN "--optim|adafactor", "--optim: there is no adafactor: AdamW and SGD are there"},
        {CMD_TRAIN, TRAIN "--optim|paged_lion_8bit", "--moments 8bit"},
        {CMD_TRAIN, TRAIN "--optim|galore_adamw_layerwise", "--update-in-backward on"},
        {CMD_TRAIN, TRAIN "--optim|lomo", "--optimizer sgd --update-in-backward on"},
        {CMD_TRAIN, TRAIN "--optim|nonsense", "'nonsense' is not one of: adamw, sgd"},
        {CMD_TRAIN, TRAIN "--optim|adamw_8bit|--moments|fp32", "means moments 8bit, but --moments says fp32"},
        {CMD_TRAIN, TRAIN "--moments|fp32|--optim|adamw_8bit", "leave one of them out"},
        {CMD_TRAIN, TRAIN "--assistant_only_loss|False", "rows with one text field"},
        {CMD_TRAIN, TRAIN "--val_set_size|2000", "0 to 0.99 of the data, as a share"},
        {CMD_TRAIN, TRAIN "--dataset_name|a/b", "--data FILE"},
        {CMD_TRAIN, TRAIN "--split|train", "give the file of that split to --data"},
        {CMD_TRAIN, TRAIN "--nproc_per_node=4", "one device"},
        {CMD_TRAIN, TRAIN "--log-dir|logs", "train.log in --out"},
        {CMD_REASON, "--model|m|--out|o|--redirects|3", "one file a rank"},
        {CMD_GRPO, "--model|m|--data|a.jsonl|--dataset-name|b.jsonl", "means data b.jsonl, but --data says"},
        {CMD_TRAIN, TRAIN "--log-level|loud", "'loud' has no meaning here"},
        {CMD_TRAIN, TRAIN "--debug=maybe", "neither true nor false"},
        {CMD_TRAIN, TRAIN "--do_sample", "belongs to: generate, chat, reason"},
        {CMD_EVAL, TRAIN "--num_workers|4", "belongs to: train"},
        {CMD_TRAIN, TRAIN "--budget|50%", "give a size such as 24GiB; unset: what is free now"},
        {CMD_GENERATE, ANSWER "--do_sample|False|--temperature|0.7",
         "means temperature 0, but --temperature says 0.7"},
        {CMD_GENERATE, ANSWER "--temperature|0.7|--no-do-sample", "leave one of them out"},
        {CMD_GENERATE, ANSWER "--gpu-memory-utilization|0.9", "--budget 20GiB"},
    };
    for (int i = 0; i < COUNT_OF(cases); i++) {
        Options o;
        Err e;
        bool ok = parse(&o, cases[i].command, cases[i].flags, &e);
        if (!EXPECT(!ok && e.code == ERR_USAGE && strstr(e.text, cases[i].says)))
            test_note("    %s: %s", cases[i].flags, e.text);
        options_free(&o);
    }
}

/* What the examples of other trainers hold, as their users have them. */
static const char *const their_yaml[] = {
    /* axolotl, QLoRA */
    "base_model: m\nmodel_type: LlamaForCausalLM\ntokenizer_type: AutoTokenizer\nload_in_8bit: false\n"
    "load_in_4bit: true\nadapter: qlora\ndataset_prepared_path: last_run_prepared\nval_set_size: "
    "0.05\noutput_dir: ./out\n"
    "sequence_len: 2048\nsample_packing: true\npad_to_sequence_len: true\neval_sample_packing: false\nlora_r: 32\n"
    "lora_alpha: 16\nlora_dropout: 0.05\nlora_target_linear: true\nlora_fan_in_fan_out:\nlora_model_dir:\n"
    "wandb_project:\nwandb_entity:\nwandb_watch:\nwandb_name:\nwandb_log_model:\ngradient_accumulation_steps: 4\n"
    "micro_batch_size: 2\nnum_epochs: 4\noptimizer: paged_adamw_32bit\nlr_scheduler: cosine\n"
    "learning_rate: 0.0002\ntrain_on_inputs: false\ngroup_by_length: false\nbf16: true\ntf32: false\n"
    "gradient_checkpointing: true\ngradient_checkpointing_kwargs:\n  use_reentrant: true\n"
    "early_stopping_patience:\nresume_from_checkpoint:\nlocal_rank:\nlogging_steps: 1\nxformers_attention:\n"
    "flash_attention: true\nwarmup_steps: 10\nsave_steps: 50\ndebug:\ndeepspeed:\nweight_decay: 0.0\nfsdp:\n"
    "fsdp_config:\nspecial_tokens:\n",
    /* LLaMA-Factory, LoRA */
    "model_name_or_path: m\ntrust_remote_code: true\nstage: sft\ndo_train: true\nfinetuning_type: lora\n"
    "lora_rank: 8\nlora_target: all\ntemplate: llama3\ncutoff_len: 2048\nmax_samples: 1000\noverwrite_cache: "
    "true\n"
    "preprocessing_num_workers: 16\ndataloader_num_workers: 4\noutput_dir: o\nlogging_steps: 10\nsave_steps: 500\n"
    "plot_loss: true\noverwrite_output_dir: true\nsave_only_model: false\nreport_to: none\n"
    "per_device_train_batch_size: 1\ngradient_accumulation_steps: 8\nlearning_rate: 1.0e-4\n"
    "num_train_epochs: 3.0\nlr_scheduler_type: cosine\nwarmup_ratio: 0.1\nbf16: true\nddp_timeout: 180000000\n"
    "resume_from_checkpoint: null\nval_size: 0.1\nper_device_eval_batch_size: 1\neval_strategy: steps\n"
    "eval_steps: 500\n",
    /* TRL */
    "model_name_or_path: m\nmodel_revision: main\nmax_steps: -1\nattn_implementation: "
    "flash_attention_2\nuse_peft: true\nlora_r: 16\nlora_alpha: 32\n"
    "lora_task_type: CAUSAL_LM\nuse_rslora: false\nuse_dora: false\nmax_length: 1024\npacking: false\n"
    "dataset_num_proc: 4\noutput_dir: o\nper_device_train_batch_size: 2\ngradient_accumulation_steps: 8\n"
    "gradient_checkpointing: true\ngradient_checkpointing_kwargs:\n  use_reentrant: false\nlearning_rate: 2.0e-4\n"
    "lr_scheduler_type: cosine\nsave_strategy: steps\nsave_steps: 100\nsave_total_limit: 1\n"
    "logging_strategy: steps\nlogging_steps: 5\neval_strategy: 'no'\nreport_to:\nhub_model_id:\n"
    "push_to_hub: false\nuse_liger_kernel: true\nseed: 42\nbf16: true\ndo_eval: false\noptim: adamw_torch\n"
    "torch_compile: false\ndata_seed:\n",
};

TEST(configurations_of_other_trainers_are_taken_as_they_are) {
    for (int i = 0; i < COUNT_OF(their_yaml); i++) {
        Options o;
        Err e;
        char line[600];
        EXPECT_OK(file_write_all(test_path("r.yaml"), their_yaml[i], (int64_t)strlen(their_yaml[i]), &e));
        snprintf(line, sizeof line, "--config|%s|--data|d.jsonl", test_path("r.yaml"));
        EXPECT_OK(parse(&o, CMD_TRAIN, line, &e));
        EXPECT_STR(opt_text(&o, OPT_MODE), "lora");
        EXPECT_STR(opt_text(&o, OPT_QUANTIZE), i ? "none" : "nf4");
        EXPECT_STR(opt_text(&o, OPT_TEMPLATE), "auto");
        EXPECT(!opt_given(&o, OPT_STEPS) && !opt_given(&o, OPT_ADAPTER));
        options_free(&o);
    }
}

TEST(a_switch_that_is_off_does_not_take_back_what_another_one_says) {
    static const struct {
        const char *flags, *value;
    } cases[] = {
        {"--load_in_4bit|True|--load_in_8bit|False", "nf4"},
        {"--load_in_8bit|False|--load_in_4bit|True", "nf4"},
        {"--quantize|int8|--load_in_4bit=false", "int8"},
        {"--load_in_4bit|--load_in_4bit=false", "none"},
        {"--load_in_8bit|False", "none"},
    };
    for (int i = 0; i < COUNT_OF(cases); i++) {
        Options o;
        Err e;
        char line[200];
        snprintf(line, sizeof line, TRAIN "%s", cases[i].flags);
        EXPECT_OK(parse(&o, CMD_TRAIN, line, &e));
        EXPECT_STR(opt_text(&o, OPT_QUANTIZE), cases[i].value);
        options_free(&o);
    }
}

TEST(lists_and_maps_of_other_trainers_are_refused_with_what_to_give) {
    static const struct {
        const char *yaml, *says;
    } cases[] = {
        {"datasets: a.jsonl\n", "r.yaml:1: datasets is not an option here: give"},
        {"datasets:\n  - type: alpaca\n", "r.yaml:2: datasets: an entry has no path"},
        {"datasets:\n  - path: a\n    type: alpaca_chat.load_qa\n", "r.yaml:3: type alpaca_chat.load_qa: rows are"},
        {"datasets:\n  - path: a\n    type: {field_output: x}\n", "r.yaml:3: type x: rows are told by their fields"},
        {"datasets:\n  - path: a\n    ds_type: parquet\n", "convert it to JSON lines first"},
        {"datasets:\n  - path: a\n    split: train[:10%]\n", "a file has no splits"},
        {"datasets:\n  - path: a\n    field_messages: turns\n", "r.yaml:3: field_messages turns: rename the field"},
        {"datasets:\n  - path: a\n    message_property_mappings: {role: who}\n", "mappings who: rename"},
        {"datasets:\n  - path: a\n    shards: 4\n", "--max-samples N"},
        {"datasets:\n  - path: a\n    wieght: 4\n", "r.yaml:3: wieght 4: no such key is known"},
        {"datasets:\n  - {path: a, field: x}\n  - {path: b, field: y}\n", "r.yaml:3: field y: another entry names"},
        {"datasets:\n  - [a]\n", "an entry such as '- path: train.jsonl'"},
        {"data: a\ndatasets:\n  - path: b\n", "r.yaml:2: datasets: data is already set in line 1"},
        {"plugins: [axolotl.integrations.liger.LigerPlugin]\n", "leave it out"},
        {"special_tokens:\n  pad_token: x\n", "those of the model's tokenizer"},
        {"fsdp_config:\n  fsdp_offload_params: true\n", "one device"},
        {"optimizer:\n  a: 1\n", "a nested map"},
    };
    for (int i = 0; i < COUNT_OF(cases); i++) {
        Options o;
        Err e = {0};
        char line[600];
        EXPECT_OK(file_write_all(test_path("r.yaml"), cases[i].yaml, (int64_t)strlen(cases[i].yaml), &e));
        snprintf(line, sizeof line, "--config|%s|" TRAIN, test_path("r.yaml"));
        bool ok = parse(&o, CMD_TRAIN, line, &e);
        if (!EXPECT(!ok && strstr(e.text, cases[i].says))) test_note("    %s gave: %s", cases[i].yaml, e.text);
        options_free(&o);
    }
}

static bool parse_yaml(Options *o, const char *yaml, const char *flags, Err *e) {
    char line[600];
    EXPECT(file_write_all(test_path("r.yaml"), yaml, (int64_t)strlen(yaml), NULL));
    snprintf(line, sizeof line, "--config|%s|--model|m%s", test_path("r.yaml"), flags);
    bool ok = parse(o, CMD_TRAIN, line, e);
    if (!EXPECT(ok)) test_note("    %s gave: %s", yaml, e->text);
    return ok;
}

TEST(lists_of_data_sets_of_another_trainer_name_files_of_ours) {
    static const struct {
        const char *yaml, *flags, *data, *eval_data, *field;
    } cases[] = {
        {"datasets:\n  - path: a.jsonl\n    type: alpaca\n", "", "a.jsonl", NULL, NULL},
        {"datasets:\n  - path: a.jsonl\n    ds_type: json\n    type: chat_template\n    field_messages: messages\n"
         "    message_property_mappings:\n      role: role\n      content: content\n    roles:\n      user: [human]\n"
         "    roles_to_train: [assistant]\n    train_on_eos: turn\n    chat_template: chatml\n    split: train\n"
         "  - path: b.csv\n    type: completion\n    field: body\n"
         "test_datasets:\n  - path: t.jsonl\n    split: train\n    type:\n",
         "", "a.jsonl,b.csv", "t.jsonl", "body"},
        {"datasets:\n  - path: json\n    data_files: [a.jsonl, b.jsonl]\n", "", "a.jsonl,b.jsonl", NULL, NULL},
        {"datasets:\n  - path: json\n    data_files: a.jsonl\n    field: text\n", "", "a.jsonl", NULL, NULL},
        {"datasets: [a.jsonl, b.jsonl]\n", "", "a.jsonl,b.jsonl", NULL, NULL},
        {"datasets:\n  - path: mhenrichsen/alpaca_2k_test\n", "", "mhenrichsen/alpaca_2k_test", NULL, NULL},
        {"datasets:\n  - path: mhenrichsen/alpaca_2k_test\n", "|--data|own.jsonl", "own.jsonl", NULL, NULL},
    };
    for (int i = 0; i < COUNT_OF(cases); i++) {
        Options o;
        Err e = {0};
        if (parse_yaml(&o, cases[i].yaml, cases[i].flags, &e)) {
            EXPECT_STR(opt_text(&o, OPT_DATA), cases[i].data);
            EXPECT(!cases[i].eval_data == !opt_given(&o, OPT_EVAL_DATA));
            EXPECT(!cases[i].field == !opt_given(&o, OPT_TEXT_FIELD));
            if (cases[i].eval_data) EXPECT_STR(opt_text(&o, OPT_EVAL_DATA), cases[i].eval_data);
            if (cases[i].field) EXPECT_STR(opt_text(&o, OPT_TEXT_FIELD), cases[i].field);
        }
        options_free(&o);
    }
}

TEST(data_files_of_a_folder_lie_in_it) {
    Options o;
    Err e = {0};
    char yaml[400], want[300];
    EXPECT(file_make_dirs(test_path("set"), NULL) && file_write_all(test_path("set/part.jsonl"), "{}\n", 3, NULL));
    snprintf(want, sizeof want, "%s", test_path("set/part.jsonl"));
    snprintf(yaml, sizeof yaml, "datasets:\n  - path: %s\n    data_files:\n      - part.jsonl\n", test_path("set"));
    if (parse_yaml(&o, yaml, "", &e)) EXPECT_STR(opt_text(&o, OPT_DATA), want);
    options_free(&o);
}

/* From outside: rows of two files are trained on, and a name of the hub is answered with how a file is made of it. */
TEST(a_list_of_data_sets_is_trained_on_and_a_name_of_the_hub_refused) {
    static const char row[] = "{\"instruction\": \"Add 1 and 2.\", \"input\": \"\", \"output\": \"3\"}\n";
    static const char hub[] = "datasets:\n  - path: mhenrichsen/alpaca_2k_test\n    type: alpaca\n";
    char yaml[900];
    EXPECT(file_write_all(test_path("a.jsonl"), row, sizeof row - 1, NULL) &&
           file_write_all(test_path("b.jsonl"), row, sizeof row - 1, NULL));
    int n = snprintf(yaml, sizeof yaml, "datasets:\n  - path: %s\n    type: alpaca\n", test_path("a.jsonl"));
    snprintf(yaml + n, sizeof yaml - (size_t)n, "  - path: %s\n    type: alpaca\n", test_path("b.jsonl"));
    EXPECT(file_write_all(test_path("two.yaml"), yaml, (int64_t)strlen(yaml), NULL) &&
           file_write_all(test_path("hub.yaml"), hub, sizeof hub - 1, NULL));
    static const char how[] = "train --model tally --seq 64 --steps 1 --device cpu --no-save --out %s --config %s";
    Ran r = snug_run(how, test_path("o"), test_path("two.yaml"));
    if (!EXPECT(r.code == 0 && strstr(str_text(&r.err), "2 samples"))) test_note("%s", str_text(&r.err));
    ran_free(&r);
    r = snug_run(how, test_path("o2"), test_path("hub.yaml"));
    if (!EXPECT(r.code && strstr(str_text(&r.err), "mhenrichsen/alpaca_2k_test: there is no such file or folder, and "
                                                   "nothing is downloaded")))
        test_note("%s", str_text(&r.err));
    ran_free(&r);
}

TEST(names_of_other_tools_in_a_file_give_way_to_flags) {
    Options o;
    Err e;
    char line[600];
    const char *yaml = "optim: paged_adamw_8bit\npacking: true\nassistant_only_loss: true\nlog_level: warning\n"
                       "do_sample: true\nreport_to: ~\n";
    EXPECT_OK(file_write_all(test_path("r.yaml"), yaml, (int64_t)strlen(yaml), &e));
    snprintf(line, sizeof line, "--config|%s|" TRAIN "--moments|fp32", test_path("r.yaml"));
    EXPECT_OK(parse(&o, CMD_TRAIN, line, &e)); /* do_sample belongs to another command: passed over */
    EXPECT_STR(opt_text(&o, OPT_MOMENTS), "fp32");
    EXPECT_STR(opt_text(&o, OPT_PACK), "on");
    EXPECT(opt_flag(&o, OPT_QUIET));
    options_free(&o);
    yaml = "moments: fp32\n";
    EXPECT_OK(file_write_all(test_path("r.yaml"), yaml, (int64_t)strlen(yaml), &e));
    snprintf(line, sizeof line, "--config|%s|" TRAIN "--optim|adamw_8bit", test_path("r.yaml"));
    EXPECT_OK(parse(&o, CMD_TRAIN, line, &e));
    EXPECT_STR(opt_text(&o, OPT_MOMENTS), "8bit");
    options_free(&o);
    yaml = "split: train\n";
    EXPECT_OK(file_write_all(test_path("r.yaml"), yaml, (int64_t)strlen(yaml), &e));
    snprintf(line, sizeof line, "--config|%s|" TRAIN, test_path("r.yaml"));
    EXPECT(!parse(&o, CMD_TRAIN, line, &e) && strstr(e.text, "r.yaml:1: split is not an option here"));
    options_free(&o);
}

TEST(options_taken_and_not_needed_say_so) {
    Ran r = snug_run("plan --model qwen2.5-0.5b --mode lora --seq 64 --budget 24GiB --debug --no-warnings "
                     "--trust_remote_code");
    EXPECT(r.code == 0);
    EXPECT(strstr(str_text(&r.err), "--debug: taken and not needed: the log has everything") &&
           strstr(str_text(&r.err), "--no-warnings: taken and not needed") &&
           strstr(str_text(&r.err), "--trust_remote_code: taken and not needed"));
    ran_free(&r);
}

/* ---- the environment ---- */

static void put_cached(const char *hub, const char *folder) {
    static const char config[] = "{\"model_type\": \"llama\", \"hidden_size\": %d}";
    Err e;
    char path[600];
    snprintf(path, sizeof path, "%s/models--a--b/refs", hub);
    EXPECT_OK(file_make_dirs(path, &e));
    strcat(path, "/main");
    EXPECT_OK(file_write_all(path, folder, (int64_t)strlen(folder), &e));
    snprintf(path, sizeof path, "%s/models--a--b/snapshots/%s", hub, folder);
    EXPECT_OK(file_make_dirs(path, &e));
    strcat(path, "/config.json");
    EXPECT_OK(file_write_all(path, config, (int64_t)strlen(config), &e));
}

/* The configuration lacks fields, so the refusal names the file that was found. */
TEST(a_hub_id_is_looked_for_where_the_hubs_library_keeps_it) {
    static const struct {
        const char *variable, *value, *hub;
    } places[] = {{"HOME", "home", "home/.cache/huggingface/hub"},
                  {"XDG_CACHE_HOME", "xdg", "xdg/huggingface/hub"},
                  {"HF_HOME", "hf", "hf/hub"},
                  {"HUGGINGFACE_HUB_CACHE", "old", "old"},
                  {"HF_HUB_CACHE", "cache", "cache"}};
    char set[2000] = "";
    for (int i = 0; i < COUNT_OF(places); i++) {
        char more[400], found[100];
        put_cached(test_path(places[i].hub), places[i].value);
        snprintf(more, sizeof more, "%s=%s ", places[i].variable, test_path(places[i].value));
        strcat(set, more);
        Str command = {0};
        str_addf(&command, "env -u HF_HUB_CACHE -u HUGGINGFACE_HUB_CACHE -u HF_HOME -u XDG_CACHE_HOME %s "
                 "%s plan --model a/b 2>%s",
                 set, getenv("SNUG") ? getenv("SNUG") : "./snug", test_path("err"));
        EXPECT(system(str_text(&command)) != 0);
        str_free(&command);
        Str said = {0};
        Err e;
        EXPECT_OK(file_read(test_path("err"), &said, 1 << 16, &e));
        snprintf(found, sizeof found, "snapshots/%s", places[i].value);
        if (!EXPECT(strstr(str_text(&said), found) != NULL))
            test_note("    %s: %s", places[i].variable, str_text(&said));
        str_free(&said);
    }
}
