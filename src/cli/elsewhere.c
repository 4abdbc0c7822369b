/* elsewhere.c - what options of other tools mean here, and how their meaning becomes values of our own options. */
#include "cli/elsewhere.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cli/options_int.h"

#define NO_SPLIT "data are files here: give the file of that split to --data, and one to evaluate on to --eval-data " \
                 "(or hold a share out with --val-split)"
#define ONE_DEVICE "a run uses one device; `snug reason --ranks N --rank I` divides problems among processes"
#define LOGS_ARE                                                                                              \
    "a run's log is train.log in --out; what other commands say goes to standard error: 2> rank-I.log keeps " \
    "it, one file a rank"
#define NO_PROMPTS "only answers are scored, never prompts; for a loss over all tokens give rows with one text field"
#define ADAMW_OR_SGD "AdamW and SGD are there; "
#define ONLY_LORA "adapters are plain LoRA: --mode lora --lora-rank N --lora-alpha X"
#define NOTHING_LEFT "nothing is left behind that could be cleaned up"
#define NOTHING_TO_SWITCH "there is nothing to switch on; `snug doctor` measures the device"
#define NOTHING_LOADED "nothing is downloaded or uploaded"
#define ONE_RING "answers come from the weights that are trained, on the same ring"
#define ALWAYS_WRITTEN "metrics.jsonl, train.log and TensorBoard events are always written"
#define NO_SCORE_MATRIX "attention never holds the score matrix; on a GPU see --attention"

#define MEANS(word, of, ours, ...) {.name = word, .value = of, .means = ours, __VA_ARGS__}
#define IDLE(word, of, reason, ...) {.name = word, .value = of, .means = "", .why = reason, __VA_ARGS__}
#define NOT(word, of, reason, ...) {.name = word, .value = of, .why = reason, __VA_ARGS__}
/* One value is what is done anyway, any other is refused; the same of a switch that is off. */
#define ONLY(word, of, reason, ...) IDLE(word, of, NULL, __VA_ARGS__), NOT(word, "*", reason, __VA_ARGS__)
#define OFF(word, reason, ...) IDLE(word, "false", NULL, __VA_ARGS__), NOT(word, "true", reason, __VA_ARGS__)

/* Of rows with the same name the first that fits value and command counts. */
const Elsewhere elsewhere[] = {
    /* optimizers by Hugging Face's names; options.def has those that are AdamW and nothing else */
    /* paged: --offload auto, as the budget needs */
    MEANS("optimizer", "adamw-8bit|adamw-bnb-8bit|adamw-torch-8bit|paged-adamw-8bit", "moments=8bit"),
    MEANS("optimizer", "paged-adamw|paged-adamw-32bit", "moments=fp32"),
    NOT("optimizer", "adamw-anyprecision", "it is --optimizer adamw --moments bf16 here"),
    NOT("optimizer", "adamw-torch-4bit", "moments have 8 bits at least: --moments 8bit"),
    NOT("optimizer", "adafactor", ADAMW_OR_SGD "what it saves, --moments 8bit and --offload moments save too"),
    NOT("optimizer", "galore*|apollo*",
        ADAMW_OR_SGD "what it saves, --moments 8bit and --update-in-backward on save too"),
    NOT("optimizer", "lomo", "it is --optimizer sgd --update-in-backward on --accum 1 --clip 0 here"),
    NOT("optimizer", "adalomo", ADAMW_OR_SGD "updates inside backward: --update-in-backward on"),
    NOT("optimizer", "*lion*|*ademamix*", ADAMW_OR_SGD "8-bit moments: --moments 8bit"),

    /* schedules; lr_scheduler_kwargs holds names that stand here or in options.def */
    MEANS("schedule", "warmup-stable-decay", "decay-shape?=cosine"),
    NOT("schedule", "cosine-with-restarts",
        "a rate that rises again is not there; cosine, linear, constant and wsd are"),
    NOT("schedule", "polynomial", "linear is the polynomial of power 1; cosine, constant and wsd are there too"),
    NOT("schedule", "inverse-sqrt",
        "cosine, linear, constant and wsd are there; wsd --decay-shape 1-sqrt is the nearest"),
    NOT("schedule", "reduce-lr-on-plateau",
        "the rate follows from the step alone; cosine, linear, constant and wsd are there"),
    {.name = "lr-scheduler-kwargs", .value = "*", .means = "", .object = true},
    ONLY("num-cycles", "0.5", "cosine goes down once (0.5)"),
    ONLY("warmup-type", "linear", "the warm-up is linear"),
    NOT("num-stable-steps", "*",
        "the rate stays at its height from the warm-up to the decay: give --steps and --decay-steps"),

    /* what is learned and answered */
    IDLE("do-sample", "true", NULL, .commands = ON_CHAT | ON_REASON), /* they sample unless --temperature 0 */
    MEANS("do-sample", "true", "temperature?=1"),
    MEANS("do-sample", "false", "temperature=0"),
    IDLE("average-tokens-across-devices", NULL, "the loss is the mean over the scored tokens of the global batch"),
    IDLE("assistant-only-loss|completion-only-loss", "true", NULL),
    NOT("assistant-only-loss|completion-only-loss", "false", NO_PROMPTS),
    OFF("train-on-inputs|train-on-prompt", NO_PROMPTS),
    MEANS("mask-history", "true", "score=last"),
    MEANS("mask-history", "false", "score=all"),
    NOT("neftune-noise-alpha", "*", "noise on embeddings is not there"),
    ONLY("label-smoothing-factor", "0", "the loss is plain cross-entropy"),
    OFF("adafactor", ADAMW_OR_SGD "what it saves, --moments 8bit and --offload moments save too"),
    NOT("optim-args", "*", "beta1, beta2, eps and momentum are options of their own"),
    NOT("data-seed", "*", "one --seed draws everything"),
    IDLE("full-determinism", "false", NULL),
    MEANS("full-determinism", "true", "deterministic=true"),
    MEANS("cosine-min-lr-ratio", "*", "min-lr-ratio=*"),
    NOT("early-stopping-patience", "*",
        "a run has the steps it was given; --save-best loss keeps the best of them"),
    NOT("loss-watchdog-threshold", "*", "see on-spike and spike-factor"),
    NOT("loss-watchdog-patience", "*", "see on-spike and skip-limit"),
    IDLE("greater-is-better", NULL, NULL),
    ONLY("metric-for-best-model", "eval-loss", "it is save-best loss, smatch or validity here"),

    /* what adapters are */
    IDLE("use-dora|peft-use-dora|use-rslora|pissa-init", "false", NULL),
    NOT("use-dora|peft-use-dora|pissa-init", "true", ONLY_LORA),
    IDLE("lora|peft|qlora|use-qlora", "false", NULL, .commands = ON_JOB),
    NOT("lora|peft", "true", "it is --mode lora here", .commands = ON_JOB),
    NOT("qlora|use-qlora", "true", "it is --mode lora --quantize nf4 here", .commands = ON_JOB),
    NOT("mode", "qlora", "it is --mode lora --quantize nf4 here", .commands = ON_UNLEARN | ON_JOB),
    NOT("mode", "dora|pissa|loha|lokr|adalora|vera|oft|prefix*|prompt*|ia3", ONLY_LORA,
        .commands = ON_UNLEARN | ON_JOB),
    NOT("mode", "freeze", "it is --mode full (all weights) or --mode lora here", .commands = ON_UNLEARN | ON_JOB),
    NOT("modules-to-save|layers-to-transform|rank-pattern|alpha-pattern|relora-steps", "*", ONLY_LORA),
    NOT("use-rslora", "true", "an adapter counts alpha / rank: give --lora-alpha ALPHA times the root of the rank"),
    NOT("loraplus-*", "*", "see lr-mult for rates of their own"),
    OFF("use-galore|use-badam", ADAMW_OR_SGD "what it saves, --moments 8bit and --update-in-backward on save too"),
    NOT("freeze-trainable-layers|unfrozen-parameters", "*", "it is --mode full (all weights) or --mode lora here"),
    NOT("lora-modules-to-save|additional-target", "*", "under --mode lora adapters alone are trained"),
    IDLE("lora-task-type", "*", NULL),
    IDLE("lora-target-linear", "true", NULL), /* --lora-targets all is the default */
    IDLE("lora-fan-in-fan-out", "false", NULL),
    MEANS("adapter-kind", "lora", "mode=lora"), /* axolotl's adapter: lora (options_yaml.c) */
    MEANS("adapter-kind", "qlora", "mode=lora,quantize?=nf4"),
    OFF("shift-attn", "attention is that of the model"),
    NOT("rope-scaling", "*", "it is read from the model's config.json"),

    /* which job it is */
    IDLE("steps", "-1", "no number of steps: --epochs says how long the run is"),
    IDLE("do-train", NULL, "the command itself says what is done", .commands = ON_TRAIN),
    IDLE("stage", "sft|pt", NULL, .commands = ON_SUPERVISED),
    NOT("stage", "*", "the command says what is done: snug train, snug grpo, snug eval", .commands = ON_TRAIN),
    MEANS("finetuning-type", "lora", "mode=lora", .commands = ON_JOB),
    MEANS("finetuning-type", "full", "mode=full", .commands = ON_JOB),
    NOT("finetuning-type", "*", "it is --mode full or --mode lora here", .commands = ON_JOB),
    IDLE("use-vllm", "false", NULL, .commands = ON_GRPO),
    NOT("use-vllm", "*", ONE_RING "; leave it out", .commands = ON_GRPO),
    NOT("model-args", "*", "name the folder with --model DIR, the precision with --precision",
        .commands = ON_SUITE),

    /* a policy, its rewards and its evaluator: the words of GRPO's origin, and TRL's */
    MEANS("evaluator-type", "test", "reward?=length",
          .commands = ON_REWARDED), /* unless --test-mode says another */
    MEANS("evaluator-type", "*", "reward=*", .commands = ON_REWARDED),
    MEANS("test-mode", "length|constant|gold-match", "reward=*", .commands = ON_REWARDED),
    NOT("test-mode", "*", "it is length, constant or gold_match", .commands = ON_REWARDED),
    MEANS("evaluator-8bit", "true", "evaluator+=int8", .commands = ON_REWARDED),
    IDLE("evaluator-8bit", "false", NULL, .commands = ON_REWARDED),
    MEANS("client-type", "ollama|openai|chat|completion", "evaluator-api=*", .commands = ON_REWARDED),
    IDLE("client-type", "auto|hf",
         "an evaluator is on this device (--evaluator) or behind an address (--evaluator-url)",
         .commands = ON_REWARDED),
    NOT("client-type", "*", "it is hf, ollama or openai; an evaluator is --evaluator MODEL or --evaluator-url URL",
        .commands = ON_REWARDED),
    NOT("generation-batch-size", "*",
        "it follows from --batch-size (completions) x --steps-per-generation; unset: those of one update",
        .commands = ON_GRPO),
    ONLY("importance-sampling-level", "token", "ratios are those of tokens, as TRL's by default", .commands = ON_GRPO),
    NOT("delta", "*", "clip ranges are --epsilon and --epsilon-high", .commands = ON_GRPO),
    ONLY("top-entropy-quantile", "1|1.0", "all tokens of an answer are trained on", .commands = ON_GRPO),
    OFF("sync-ref-model", "the reference stays the model that the policy began as", .commands = ON_GRPO),
    IDLE("ref-model-*", "*", "the reference stays the model that the policy began as", .commands = ON_GRPO),
    IDLE("vllm-*|cache-implementation", "*", ONE_RING, .commands = ON_GRPO),
    IDLE("use-transformers-paged|ds3-gather-for-generation", NULL, ONE_RING, .commands = ON_GRPO),
    {.name = "generation-kwargs", .value = "*", .means = "", .object = true, .commands = ON_GRPO},
    IDLE("disable-dropout", NULL, "nothing is dropped but what --lora-dropout says", .commands = ON_GRPO),
    IDLE("cast-lm-head-to-fp32", NULL, "a policy's logits are fp32, a chunk of them at a time",
         .commands = ON_GRPO),
    IDLE("use-liger-loss", NULL, "logits never exist whole", .commands = ON_GRPO),
    IDLE("log-completions|log-unique-prompts", NULL, "samples.jsonl and samples.html have them (--sample-steps)",
         .commands = ON_GRPO),
    IDLE("num-completions-to-print", "*", "a table shows a few, samples.html all (--sample-steps)",
         .commands = ON_GRPO),
    MEANS("shuffle-dataset", "true", "shuffle=true", .commands = ON_GRPO),
    MEANS("shuffle-dataset", "false", "shuffle=false", .commands = ON_GRPO),

    /* its evaluation: nothing is trained there, so a batch is how many prompts are answered together */
    MEANS("batch-size|per-device-eval-batch-size|eval-batch-size", "*", "slots=*", .commands = ON_GRPO_EVAL),
    NOT("micro-batch|micro-batch-size|per-device-train-batch-size|train-batch-size|per-gpu-train-batch-size", "*",
        "nothing is trained; how many prompts are answered together is --slots N", .commands = ON_GRPO_EVAL),
    NOT("group|num-generations", "*", "several answers to each prompt are --best-of K", .commands = ON_GRPO_EVAL),
    NOT("eval-data|eval-file|validation-file|eval-dataset|val-data", "*",
        "the prompts that both policies answer are --data FILE",
        .commands = ON_GRPO_EVAL),
    MEANS("max-samples|num-samples", "*", "eval-samples=*", .commands = ON_GRPO_EVAL),
    NOT("adapter", "*", "the tuned policy is --tuned DIR, which may be an adapter's folder",
        .commands = ON_GRPO_EVAL),

    /* where data come from */
    NOT("split|dataset-split|dataset-config|dataset-config-name", "*", NO_SPLIT),
    IDLE("config-name", "*", "the command itself says what is done",
         .commands = ON_UNLEARN | ON_UNLEARN_EVAL | ON_TRAIN),
    MEANS("dataset-name", "*", "data=*", .commands = ON_GRPO),
    MEANS("dataset-name", "*", "dataset=*", .commands = ON_REASON),
    NOT("dataset-name", "*", NOTHING_LOADED "; give the file with --data FILE", .commands = ON_ALL & ~ON_REASON),
    IDLE("dataset-num-proc|preprocessing-num-workers", "*", "rows are encoded while they are read"),
    IDLE("group-by-length|padding-free|pad-to-sequence-len", NULL,
         "the samples of an update share rows, so no padding is computed (--pack)"),
    IDLE("remove-unused-columns|eval-sample-packing|dataloader-persistent-workers", NULL, NULL),
    IDLE("force-download", NULL, "problems are read from --data every time, " NOTHING_LOADED,
         .commands = ON_REASON),
    NOT("datasets|test-datasets", "*",
        "give the files: --data FILE, or several by weight (a.jsonl:3,b.jsonl:1); kinds are told apart by fields"),
    NOT("dataset-dir", "*", "give the files themselves: --data FILE"),
    NOT("mix-strategy", "*", "several files are joined, or drawn from by weight: --data a.jsonl:3,b.jsonl:1"),
    NOT("interleave-probs", "*", "it is --data a.jsonl:3,b.jsonl:1 here"),
    OFF("streaming", "`snug prepare` makes token shards, which stay on disk"),
    IDLE("overwrite-cache", NULL, "rows are encoded anew each time"),
    IDLE("dataset-prepared-path|tokenized-path", "*",
         "rows are encoded anew each time; for a corpus see `snug prepare`"),
    IDLE("shuffle-merged-datasets", "true", NULL),
    MEANS("sample-packing|neat-packing", "true", "pack?=on"),
    IDLE("sample-packing|neat-packing", "false", NULL),
    IDLE("dataloader-drop-last", "false", NULL),
    IDLE("dataloader-prefetch-factor", "*", "batches are filled ahead (--data-workers)"),
    OFF("ignore-data-skip", "a resumed run goes on with the very next row"),
    IDLE("model-type|tokenizer-type", "*", "the model's folder says it"),
    IDLE("use-fast-tokenizer|use-fast", NULL, "there is one tokenizer, and it is fast"),
    NOT("special-tokens", "*", "they are those of the model's tokenizer"),
    NOT("eos-token", "*", "it is that of the model's tokenizer"),
    NOT("pad-token", "*", "nothing is padded with a token that is learned; leave it out"),
    IDLE("template",
         "default|empty|tokenizer-default*|alpaca|vicuna|chatml*|qwen*|llama*|mistral*|smollm*|deepseek*|gemma*",
         "the chat template is the one in the model's folder",
         .commands = ON_UNLEARN_EVAL | ON_SUPERVISED | ON_EVAL | ON_GENERATE | ON_AMR_PARSE | ON_REASON),
    IDLE("model-revision", "main", "the model's folder is one revision"),
    NOT("model-revision", "*", "name the folder of that revision with --model DIR"),
    NOT("cache-dir", "*", "HF_HUB_CACHE or HF_HOME says where the hub's cache is"),
    NOT("export-dir", "*", "`snug merge --out DIR` folds an adapter into its model"),
    NOT("plugins", "*", "there are none, and what those of other tools save is there without: leave it out"),
    IDLE("hub-*|hf-hub-token", "*", NOTHING_LOADED),
    OFF("push-to-hub", NOTHING_LOADED "; the result is a folder that the hub's own tool uploads"),
    IDLE("trust-remote-code", NULL, "no code of a model's folder is run"),

    /* what is said, and when */
    MEANS("log-level", "debug|info|passive", "quiet=false"),
    MEANS("log-level", "warning|error|critical", "quiet=true"),
    IDLE("debug", NULL, "the log has everything; --explain, --profile and `snug plan --listing` show more"),
    IDLE("verbose", NULL, "everything is said unless --quiet is given"),
    IDLE("warnings", NULL, "there are no libraries' warnings; those of snug are about this job and stay"),
    IDLE("eval-strategy|evaluation-strategy", "no", NULL),
    IDLE("eval-strategy|evaluation-strategy", "steps", "--eval-steps says how often; unset: at the end"),
    NOT("eval-strategy|evaluation-strategy", "*", "say how often with eval-steps"),
    IDLE("save-strategy", "steps", "--save-steps says how often; unset: every --save-minutes, and at the end"),
    MEANS("save-strategy", "no", "save-minutes?=0"),
    NOT("save-strategy", "*", "say how often with save-steps or save-minutes; --no-save: never"),
    ONLY("logging-strategy", "steps", "say how often with log-steps"),
    NOT("evals-per-epoch", "*",
        "say how often with eval-steps; `snug train --dry-run` says how many an epoch has"),
    NOT("saves-per-epoch", "*", "say how often with save-steps or save-minutes"),
    OFF("eval-on-start", "`snug eval` says the loss of the model as it is"),
    IDLE("do-eval", NULL, "there is an evaluation where --eval-data or --val-split says on what"),
    OFF("do-predict", "`snug generate --prompts FILE` answers"),
    IDLE("wandb-*|logging.project", "*", ALWAYS_WRITTEN),
    IDLE("plot-loss", NULL, "TensorBoard and `snug monitor --serve` draw it"),
    IDLE("disable-tqdm|log-on-each-node|skip-memory-metrics|include-tokens-per-second", NULL, NULL),
    IDLE("log-level-replica|include-num-input-tokens-seen", "*", NULL),
    IDLE("save-safetensors", "true", NULL),
    IDLE("save-on-each-node|save-first-step|save-only-model", "false", NULL),
    NOT("save-only-model", "true",
        "a checkpoint is there to go on from; the result is model/ or adapter/ in --out"),
    IDLE("logging-first-step", NULL, "the first step is always logged"),
    IDLE("report-to", "none", ALWAYS_WRITTEN),
    ONLY("report-to", "tensorboard", ALWAYS_WRITTEN),
    NOT("logging-dir", "*", "metrics and TensorBoard events are written to the out folder"),
    NOT("log-dir|log-file|redirects|tee", "*", LOGS_ARE),

    /* nested files of gated sparse attention's origin: sections, then names that are not in options.def already */
    IDLE("model.use-triton-kernels|use-unsloth*", NULL, "there is one set of kernels, and it is used"),
    MEANS("training.max-steps", "*", "steps=*"),
    MEANS("training.micro-batch-size", "*", "micro-batch=*"),
    MEANS("training.global-batch-size", "*", "global-batch=*"),
    IDLE("training.gradient-accumulation-steps", "*", "it follows from global_batch_size and the micro-batch"),
    MEANS("training.max-seq-len", "*", "seq=*"),
    MEANS("training.grad-clip", "*", "clip=*"),
    MEANS("training.lr-scheduler", "*", "schedule=*"),
    MEANS("training.gradient-checkpointing", "true", "recompute?=block"),
    IDLE("training.gradient-checkpointing", "false", NULL),
    MEANS("training.bf16", "true", "precision=bf16,master=fp32"), /* autocast over fp32 weights */
    IDLE("training.bf16|training.fp16", "false", NULL),
    MEANS("training.fp16", "true", "precision=fp16,master=fp32"),
    MEANS("training.mixed-precision", "bf16", "precision=bf16,master=fp32"),
    MEANS("training.mixed-precision", "fp16", "precision=fp16,master=fp32"),
    IDLE("training.use-indexer-warmup|use-indexer-warmup", "true", NULL),
    MEANS("training.use-indexer-warmup|use-indexer-warmup", "false", "indexer-warmup=none"),
    IDLE("model.use-indexer-warmup", "true", NULL, .commands = ON_PLAN | ON_SUPERVISED), /* init: config.json's */
    MEANS("model.use-indexer-warmup", "false", "indexer-warmup=none", .commands = ON_PLAN | ON_SUPERVISED),
    MEANS("data.data-dir", "*", "data=*"),
    MEANS("data.num-workers", "*", "data-workers=*"),
    MEANS("data.use-packing", "true", "pack=on"),
    MEANS("data.use-packing", "false", "pack=off"),
    IDLE("data.local-dataset-path", "*", "`snug prepare` turns it into the shards of data_dir"),
    IDLE("data.dataset|data.dataset-name", "*", NOTHING_LOADED "; `snug prepare` reads local files"),
    IDLE("logging.use-wandb", NULL, ALWAYS_WRITTEN),
    MEANS("logging.log-interval", "*", "log-steps=*"),
    MEANS("logging.eval-interval", "*", "eval-steps?=*"),
    MEANS("logging.save-interval", "*", "save-steps=*"),

    /* memory */
    IDLE("per-device-eval-batch-size|eval-batch-size", "*", "evaluation uses the micro-batch"),
    IDLE("eval-accumulation-steps", "*", NULL),
    IDLE("attn-implementation|flash-attn", "*", NO_SCORE_MATRIX),
    IDLE("flash-attention|xformers-attention|sdp-attention|use-flash-attention-2|model.use-flash-attention", NULL,
         NO_SCORE_MATRIX),
    IDLE("bnb-4bit-quant-type", "nf4", "--quantize nf4 is what load_in_4bit means here"),
    NOT("bnb-4bit-quant-type", "*", "quantize nf4 is the 4-bit format that is there"),
    IDLE("bnb-4bit-use-double-quant|use-bnb-nested-quant|double-quantization", "true",
         "--quantize nf4 always quantises its scales too"),
    NOT("bnb-4bit-use-double-quant", "false", "quantize nf4 always quantises its scales too"),
    IDLE("bnb-4bit-compute-dtype", "bfloat16", "products are in the precision of the activations (--precision)"),
    NOT("bnb-4bit-compute-dtype", "*", "products are in the precision of the activations"),
    NOT("cleanup-between-batches", NULL, NOTHING_LEFT),
    NOT("deepspeed", "*",
        "offload and recompute are found by the planner; see budget and max-memory, and --config FILE says "
        "which options such a file means"),
    MEANS("quantization-bit", "4", "quantize=nf4"),
    MEANS("quantization-bit", "8", "quantize=int8"),
    NOT("quantization-bit", "*", "4 (nf4) and 8 (int8) are there"),
    ONLY("quantization-method", "bitsandbytes|bnb",
         "weights are quantised while they are read: --quantize nf4 or int8"),
    OFF("activation-offloading", "the planner decides what waits elsewhere; see budget and offload"),
    {.name = "gradient-checkpointing-kwargs", .value = "*", .means = "", .object = true},
    IDLE("use-reentrant", NULL, NULL),
    IDLE("auto-find-batch-size", NULL, "the planner finds the fastest micro-batch that fits"),
    IDLE("use-liger-kernel|enable-liger-kernel", NULL,
         "logits never exist whole, and kernels are fused without being asked"),
    IDLE("liger-*", NULL, NULL),
    IDLE("torch-compile*", "*", "a step is planned and fused before it is played"),
    IDLE("lora-on-cpu", NULL, "the planner places every byte"),
    MEANS("gpu-memory-limit", "*", "budget=*"),
    NOT("device-map", "*", "the planner places every byte; see budget, max-memory and offload"),
    NOT("gpu-memory-utilization", "*", "give the amount: --budget 20GiB; unset: what is free now"),
    NOT("max-gpu-memory", "*", "it is max-memory device=SIZE here"),
    IDLE("low-memory", NULL, "the plan takes what --budget allows and no more", .commands = ON_REASON),
    NOT("low-memory", NULL, "give the budget; the planner takes what it needs and no more"),
    IDLE("dataloader-pin-memory", NULL, "inputs are placed like everything else"),
    IDLE("offload-state-dict|low-cpu-mem-usage", NULL,
         "weights are read straight to their place, a piece at a time"),
    IDLE("optimize-gpu", NULL, NOTHING_TO_SWITCH, .commands = ON_REASON),
    NOT("optimize-gpu", NULL, NOTHING_TO_SWITCH),

    /* several devices */
    MEANS("use-cpu|no-cuda", "true", "device=cpu"),
    IDLE("use-cpu|no-cuda", "false", NULL),
    IDLE("ddp-timeout|ddp-backend", "*", NULL),
    NOT("fsdp-config|accelerator-config|parallelism-config", "*", ONE_DEVICE),
    IDLE("nproc-per-node|tensor-parallel-size|gpus|num-gpus", "1", NULL),
    IDLE("standalone", NULL, "a run is one process"),
    NOT("nproc-per-node|num-processes|nnodes|rdzv-backend|rdzv-endpoint|node-rank|local-rank|tensor-parallel-size|"
        "fsdp",
        "*", ONE_DEVICE),
    NOT("gpus|num-gpus", "*", ONE_DEVICE),
    NOT("port", "*", "--serve PORT is the page's", .commands = 1 << CMD_MONITOR),
    NOT("master-addr|master-port", "*", "ranks find each other through the files of --out"),
    IDLE("ddp-find-unused-parameters", NULL, "what has no gradient has none in the program either"),
};

int elsewhere_count(void) { return COUNT_OF(elsewhere); }

/* ---- finding a row ---- */

static bool fits(const char *pattern, const char *text) {
    char inner[64], word[64];
    int len = (int)strlen(pattern);
    if (!strcmp(pattern, "*")) return true;
    if (pattern[len - 1] != '*') return str_same_word(pattern, text);
    bool anywhere = *pattern == '*';
    snprintf(inner, sizeof inner, "%.*s", len - 1 - anywhere, pattern + anywhere);
    for (const char *at = text; *at && (at == text || anywhere); at++) {
        snprintf(word, sizeof word, "%.*s", (int)strlen(inner), at);
        if (str_same_word(inner, word)) return true;
    }
    return false;
}

/* One of "a|b*|..." does. NULL: anything. */
static bool any_fits(const char *patterns, const char *word) {
    for (const char *at = patterns; at; at = (at = strchr(at, '|')) ? at + 1 : NULL) {
        char one[64];
        snprintf(one, sizeof one, "%.*s", (int)strcspn(at, "|"), at);
        if (fits(one, word)) return true;
    }
    return !patterns;
}

/* value NULL: any row of this name. */
static const Elsewhere *find(Command c, const char *name, const char *value) {
    for (int i = 0; i < COUNT_OF(elsewhere); i++) {
        const Elsewhere *row = &elsewhere[i];
        bool planned = c == CMD_PLAN && (row->commands & ON_TRAIN); /* as options_belongs */
        if (row->commands && !(row->commands >> c & 1) && !planned) continue;
        if (any_fits(row->name, name) && (!value || any_fits(row->value, value))) return row;
    }
    return NULL;
}

bool elsewhere_is_object(Command c, const char *name) {
    const Elsewhere *row = find(c, name, NULL);
    return row && row->object;
}

ElsewhereKind elsewhere_kind(Command c, const char *name) {
    const Elsewhere *row = find(c, name, NULL);
    if (!row) return ELSEWHERE_UNKNOWN;
    return !row->value || options_is_truth(row->value) ? ELSEWHERE_SWITCH : ELSEWHERE_VALUE;
}

/* ---- what it means ---- */

/* One element of `means`, "name=value", "name?=value" or "name+=value", taken apart. */
typedef struct Meaning {
    char name[48], text[48];
    const char *value; /* text, or where that is "*" what was given */
    bool unless_given, adds;
    OptHit hit;
} Meaning;

static bool next_meaning(Meaning *m, const char **at, const char *given, Command c) {
    if (!**at) return false;
    int len = (int)strcspn(*at, ","), name = (int)strcspn(*at, "?+=");
    m->unless_given = (*at)[name] == '?';
    m->adds = (*at)[name] == '+';
    int value = name + 1 + (m->unless_given || m->adds);
    snprintf(m->name, sizeof m->name, "%.*s", name, *at);
    snprintf(m->text, sizeof m->text, "%.*s", len - value, *at + value);
    m->value = strcmp(m->text, "*") ? m->text : given;
    CHECK_MSG(options_lookup(&m->hit, c, m->name), "%s", m->name);
    *at += len + ((*at)[len] == ',');
    return true;
}

static bool keep(Options *o, const Elsewhere *row, const char *value, OptSource source, const char *origin, Err *e) {
    if (o->n_implied == COUNT_OF(o->implied)) return fail(e, ERR_USAGE, "%s: too many options of other tools", origin);
    o->implied[o->n_implied++] = (OptImplied){.row = row, .value = arena_strdup(&o->arena, value), .source = source,
                                               .origin = origin ? arena_strdup(&o->arena, origin) : NULL};
    return true;
}

bool elsewhere_value(Options *o, OptId id, const char *value, OptSource source, const char *origin, Err *e) {
    const Elsewhere *row = find(o->command, option_rows[id].name, value);
    return !row || !row->means || keep(o, row, value, source, origin, e);
}

bool elsewhere_is_idle(Command c, OptId id, const char *value) {
    const Elsewhere *row = find(c, option_rows[id].name, value);
    return row && row->means && !*row->means;
}

const char *elsewhere_why_not(Command c, OptId id, const char *value) {
    const Elsewhere *row = find(c, option_rows[id].name, value);
    return row && !row->means ? row->why : NULL;
}

static bool put_member(Options *o, const char *where, const char *key, const json_t *v, OptSource source,
                       const char *origin, Err *e) {
    OptHit hit;
    char number[32];
    const char *text = json_is_string(v) ? json_string_value(v) : json_is_true(v) ? "true" : "false";
    if (json_is_null(v)) return true;
    if (json_is_number(v)) snprintf(number, sizeof number, "%.12g", json_number_value(v));
    if (json_is_number(v)) text = number;
    if (json_is_object(v) || json_is_array(v))
        return fail(e, ERR_USAGE, "%s'%s' is neither a number nor a text", where, key);
    if (!options_lookup(&hit, o->command, key)) return elsewhere_put(o, where, key, text, source, origin, e);
    return !options_belongs(&option_rows[hit.id], o->command) || options_put(o, &hit, text, source, origin, e);
}

static bool put_object(Options *o, const char *where, const char *name, const char *value, OptSource source,
                       const char *origin, Err *e) {
    json_error_t why;
    json_t *object = json_loads(value, JSON_REJECT_DUPLICATES, &why), *v;
    char inside[120];
    const char *key;
    bool ok = json_is_object(object) ||
              fail(e, ERR_USAGE, "%s%s: '%s' is no JSON object, for example '{\"num_decay_steps\": 100}'", where,
                   name, value);
    snprintf(inside, sizeof inside, "%s%s: ", where, name);
    if (ok) {
        json_object_foreach(object, key, v) {
            ok = ok && put_member(o, inside, key, v, source, arena_printf(&o->arena, "%s %s", origin, key), e);
        }
    }
    json_decref(object);
    return ok;
}

bool elsewhere_put(Options *o, const char *where, const char *name, const char *value, OptSource source,
                   const char *origin, Err *e) {
    if (elsewhere_kind(o->command, name) == ELSEWHERE_UNKNOWN) return options_unknown(o, where, name, e);
    bool is_switch = elsewhere_kind(o->command, name) == ELSEWHERE_SWITCH;
    if (is_switch && !options_is_truth(value))
        return fail(e, ERR_USAGE, "%s%s: '%s' is neither true nor false", where, name, value);
    const Elsewhere *row = find(o->command, name, value);
    if (!row) return fail(e, ERR_USAGE, "%s%s: '%s' has no meaning here", where, name, value);
    if (row->object) return put_object(o, where, name, value, source, origin, e);
    if (!row->means) return fail(e, ERR_USAGE, "%s%s is not an option here: %s", where, name, row->why);
    Meaning m;
    for (const char *at = row->means; next_meaning(&m, &at, value, o->command);)
        if (!options_belongs(&option_rows[m.hit.id], o->command))
            return source == FROM_FILE || options_foreign(o, &option_rows[m.hit.id], name, e);
    return keep(o, row, value, source, origin, e);
}

/* A way to keep a model, put behind those that MODEL[:HOW] says already. */
static bool add_way(Options *o, const OptImplied *im, const Meaning *m, Err *e) {
    const OptValue *v = &o->value[m->hit.id];
    if (!v->text)
        return fail(e, ERR_USAGE, "%s means --%s MODEL:%s, and --%s is not given", im->origin, m->name, m->value,
                    m->name);
    const char *how = strrchr(v->text, ':');
    if (how && strchr(how, '/')) how = NULL;
    if (how && strstr(how, m->value)) return true;
    return options_put(o, &m->hit, arena_printf(&o->arena, "%s%c%s", v->text, how ? ',' : ':', m->value),
                       v->source, v->origin, e);
}

/* What is given by its own name counts where it says the same; otherwise the two contradict each other. */
static bool settle(Options *o, const OptImplied *im, const Meaning *m, Err *e) {
    const OptValue *v = &o->value[m->hit.id];
    if (m->adds) return add_way(o, im, m, e);
    if (v->source > im->source) return true;
    bool by_itself = v->source == im->source && v->origin && strcmp(v->origin, im->origin);
    if (!by_itself) return options_put(o, &m->hit, m->value, im->source, im->origin, e);
    const char *ours = v->text ? v->text : v->list[0]; /* lists are joined later */
    if (m->unless_given || !strcmp(ours, m->value)) return true;
    return fail(e, ERR_USAGE, "%s means %s %s, but %s says %s; leave one of them out", im->origin, m->name, m->value,
                v->origin, ours);
}

/* What holds unless it is given comes last: another word may give it. */
static bool settle_some(Options *o, bool unless_given, Err *e) {
    for (int i = 0; i < o->n_implied; i++) {
        Meaning m;
        for (const char *at = o->implied[i].row->means; next_meaning(&m, &at, o->implied[i].value, o->command);)
            if (m.unless_given == unless_given && options_belongs(&option_rows[m.hit.id], o->command) &&
                !settle(o, &o->implied[i], &m, e))
                return false;
    }
    return true;
}

bool elsewhere_settle(Options *o, Err *e) {
    return settle_some(o, false, e) && settle_some(o, true, e);
}

void elsewhere_notices(const Options *o) {
    for (int i = 0; i < o->n_implied; i++)
        if (!*o->implied[i].row->means && o->implied[i].row->why)
            log_line("%s: taken and not needed: %s", o->implied[i].origin, o->implied[i].row->why);
}
