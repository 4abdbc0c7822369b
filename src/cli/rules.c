/* rules.c - which option has no effect beside which, and what a person is told about it. */
#include "cli/rules.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"

/* ---- conditions that a value alone does not tell ---- */

static bool evaluates(const Options *o) { return opt_given(o, OPT_EVAL_DATA) || opt_real(o, OPT_VAL_SPLIT) > 0; }

static bool has_no_held_out(const Options *o, const RuleFacts *f) { return !evaluates(o); }

static bool has_other_alpha(const Options *o, const RuleFacts *f) {
    return opt_real(o, OPT_LORA_ALPHA) != 2 * (double)opt_int(o, OPT_LORA_RANK);
}

static bool stores_no_moments(const Options *o, const RuleFacts *f) {
    return opt_is(o, OPT_OPTIMIZER, "sgd") && opt_real(o, OPT_MOMENTUM) == 0;
}

static bool has_eval_data(const Options *o, const RuleFacts *f) { return opt_given(o, OPT_EVAL_DATA); }
static bool resumes(const Options *o, const RuleFacts *f) { return opt_given(o, OPT_RESUME); }
static bool has_steps(const Options *o, const RuleFacts *f) { return opt_given(o, OPT_STEPS); }
static bool has_warmup_steps(const Options *o, const RuleFacts *f) { return opt_int(o, OPT_WARMUP_STEPS) > 0; }
static bool has_min_lr(const Options *o, const RuleFacts *f) { return opt_real(o, OPT_MIN_LR) > 0; }
static bool has_decay_steps(const Options *o, const RuleFacts *f) { return opt_int(o, OPT_DECAY_STEPS) > 0; }
static bool never_decays(const Options *o, const RuleFacts *f) { return opt_real(o, OPT_WEIGHT_DECAY) == 0; }
static bool never_skips(const Options *o, const RuleFacts *f) {
    return !opt_is(o, OPT_ON_SPIKE, "skip") && !opt_is(o, OPT_ON_NONFINITE, "skip");
}
static bool logs_skipped_spikes(const Options *o, const RuleFacts *f) {
    return opt_given(o, OPT_STEP_LOG) && opt_is(o, OPT_ON_SPIKE, "skip");
}
static bool has_no_step_log(const Options *o, const RuleFacts *f) { return !opt_given(o, OPT_STEP_LOG); }
static bool never_trims(const Options *o, const RuleFacts *f) { return opt_int(o, OPT_TRIM_EVERY) == 0; }
static bool is_greedy(const Options *o, const RuleFacts *f) { return opt_real(o, OPT_TEMPERATURE) == 0; }
static bool has_a_suite(const Options *o, const RuleFacts *f) { return opt_given(o, OPT_SUITE); }
static bool has_no_suite(const Options *o, const RuleFacts *f) { return !opt_given(o, OPT_SUITE); }
static bool is_cudnn(const Options *o, const RuleFacts *f) { return f->on_cpu && opt_is(o, OPT_ATTENTION, "cudnn"); }
static bool has_no_reward_command(const Options *o, const RuleFacts *f) {
    const char *const *names;
    int n = opt_list(o, OPT_REWARD, &names);
    while (n && strcmp(names[n - 1], "command")) n--;
    return !n;
}
static bool has_no_evaluator(const Options *o, const RuleFacts *f) {
    return !opt_given(o, OPT_EVALUATOR) && !opt_given(o, OPT_EVALUATOR_URL);
}
static bool has_no_url(const Options *o, const RuleFacts *f) { return !opt_given(o, OPT_EVALUATOR_URL); }
static bool is_on_cpu(const Options *o, const RuleFacts *f) { return f->on_cpu; }

static bool names_no_disk(const Options *o, const RuleFacts *f) {
    return !opt_is(o, OPT_OFFLOAD, "auto") && !strstr(opt_text(o, OPT_OFFLOAD), "=disk");
}

static bool is_other_rank(const Options *o, const RuleFacts *f) {
    return f->adapter_rank && opt_int(o, OPT_LORA_RANK) != f->adapter_rank;
}

static bool has_adapter(const Options *o, const RuleFacts *f) { return f->adapter_rank > 0; }

/* Positions the model was made for; a scaling that stretches the original ones counts. */
static int64_t known_positions(const ModelConfig *c) {
    int64_t stretched = (int64_t)(c->rope.original_positions * c->rope.factor);
    bool scaled = c->rope.kind == ROPE_LINEAR || c->rope.kind == ROPE_YARN;
    if (c->rope.kind == ROPE_LINEAR && !stretched) stretched = (int64_t)((double)c->max_positions * c->rope.factor);
    return scaled ? MAX2(stretched, c->max_positions) : c->max_positions;
}

static bool is_beyond_positions(const Options *o, const RuleFacts *f) {
    int64_t known = known_positions(f->model);
    return known && opt_int(o, OPT_SEQ) > known;
}

static bool never_warms_up(const Options *o, const RuleFacts *f) {
    return f->warmup_steps > 0 && f->warmup_steps >= f->total_steps;
}

static bool decays_from_the_start(const Options *o, const RuleFacts *f) {
    return opt_is(o, OPT_SCHEDULE, "wsd") && opt_int(o, OPT_DECAY_STEPS) + f->warmup_steps > f->total_steps;
}

/* ---- what is said with numbers ---- */

static void say_rank(Str *out, const Options *o, const RuleFacts *f) {
    str_addf(out,
             "the adapter %s has rank %d, which does not change; leave it out, or begin a new adapter without "
             "--adapter",
             opt_text(o, OPT_ADAPTER), f->adapter_rank);
}

static void say_positions(Str *out, const Options *o, const RuleFacts *f) {
    str_addf(out,
             "%s was made for %lld positions; what stands behind them in a row it has never seen (rope_scaling in "
             "its config.json extends them)",
             f->model->name, (long long)known_positions(f->model));
}

static void say_warmup(Str *out, const Options *o, const RuleFacts *f) {
    str_addf(out, "the warm-up of %lld steps is longer than the run of %lld: the rate never reaches --lr %s",
             (long long)f->warmup_steps, (long long)f->total_steps, opt_text(o, OPT_LR));
}

static void say_decay(Str *out, const Options *o, const RuleFacts *f) {
    str_addf(out,
             "warm-up and decay are longer than the run of %lld steps: the decay begins behind the warm-up, at "
             "step %lld",
             (long long)f->total_steps, (long long)MIN2(f->warmup_steps, f->total_steps));
}

/* ---- the table ---- */

#define LORA .by = OPT_MODE, .needs = "lora", .verdict = RULE_REFUSE, .commands = ON_JOB, \
    .text = "only --mode lora has adapters; all weights are trained now. Did you mean --mode lora?"
#define ADAMW .by = OPT_OPTIMIZER, .needs = "adamw", .verdict = RULE_WARN, .commands = ON_TRAIN, \
    .text = "belongs to --optimizer adamw and has no effect on sgd"
#define SCHEDULED .by = OPT_SCHEDULE, .needs = "cosine|linear|wsd", .verdict = RULE_WARN, .commands = ON_TRAIN, \
    .text = "has no effect: a constant learning rate has no end to go to"
#define DECAYS .by = OPT_SCHEDULE, .needs = "wsd", .verdict = RULE_WARN, .commands = ON_TRAIN, \
    .text = "has no effect: it belongs to --schedule wsd"
#define LOOKS_FOR_SPIKES                                                                            \
    .by = OPT_ON_SPIKE, .needs = "warn|skip|stop", .verdict = RULE_WARN, .commands = ON_SUPERVISED, \
    .text = "has no effect: --on-spike ignore looks for none"
#define SCALED .by = OPT_PRECISION, .needs = "auto|fp16", .verdict = RULE_WARN, .commands = ON_TRAIN, \
    .text = "has no effect: only fp16 has a scaled loss"
#define SAVED .by = OPT_SAVE, .needs = "true", .verdict = RULE_WARN, .commands = ON_TRAIN, \
    .text = "has no effect: nothing is saved (--no-save)"
#define GRPO .by = OPT_TASK, .needs = "grpo", .verdict = RULE_REFUSE, .commands = ON_PLAN, \
    .text = "only --task grpo has it. Did you mean --task grpo?"
#define ANSWERS .by = OPT_TASK, .needs = "generate|grpo", .verdict = RULE_WARN, .commands = ON_PLAN, \
    .text = "has no effect on a training job; it belongs to --task generate or grpo"
#define SUPERVISED .by = OPT_TASK, .needs = "train|generate", .verdict = RULE_WARN, .commands = ON_PLAN, \
    .text = "has no effect on --task grpo, and `snug grpo` does not take it"
#define BENCHMARK .by = OPT_SUITE, .broken = has_no_suite, .verdict = RULE_REFUSE, .commands = ON_SUITE, \
    .text = "belongs to the benchmarks of --suite, and none is asked for"
#define LOGGED                                                                                        \
    .by = OPT_STEP_LOG, .broken = has_no_step_log, .verdict = RULE_REFUSE, .commands = ON_SUPERVISED, \
    .text = "belongs to --step-log, and no log is asked for"
#define GREEDY .by = OPT_TEMPERATURE, .broken = is_greedy, .verdict = RULE_WARN, .commands = ON_GENERATE, \
    .text = "has no effect at temperature 0, where always the likeliest token is taken; give --temperature 0.7, say"
#define ON_A_GPU .by = OPT_DEVICE, .verdict = RULE_WARN, .stage = RULE_RUN, .commands = ON_TRAIN, \
    .text = "has no effect: the job runs on the processor"

#define NO_COMMAND "belongs to --reward command, which is not among the rewards"
#define NO_URL "belongs to an evaluator elsewhere, and no --evaluator-url is given"
#define NO_EVALUATOR "belongs to an evaluator, and none is asked for (--evaluator, --evaluator-url)"
#define LMCLEANER .by = OPT_METHOD, .needs = "lmcleaner", .verdict = RULE_REFUSE, .commands = ON_UNLEARN, \
    .text = "belongs to --method lmcleaner, and this method does nothing with it"
enum { ON_REWARDED = ON_GRPO | ON_GRPO_EVAL };

/* What cannot have its effect, because of which, when (NULL: `needs` tells), on which commands, and why. */
#define RULE(option, because, when, on, why, ...) \
    {.id = option, .by = because, .broken = when, .commands = on, .text = why, __VA_ARGS__}
#define WARNS(...) RULE(__VA_ARGS__, .verdict = RULE_WARN)
#define REFUSES(...) RULE(__VA_ARGS__, .verdict = RULE_REFUSE)

const Rule rules[] = {
    {.id = OPT_LORA_RANK, LORA},
    {.id = OPT_LORA_ALPHA, .broken = has_other_alpha, LORA},
    {.id = OPT_LORA_DROPOUT, LORA},
    {.id = OPT_LORA_TARGETS, LORA},
    {.id = OPT_ADAPTER_DTYPE, LORA},
    REFUSES(OPT_LORA_RANK, OPT_ADAPTER, is_other_rank, ON_TRAIN, NULL, .stage = RULE_MODEL, .say = say_rank),
    WARNS(OPT_LORA_TARGETS, OPT_ADAPTER, has_adapter, ON_TRAIN,
          "has no effect: the targets are those of --adapter", .stage = RULE_MODEL),
    REFUSES(OPT_SAVE_BEST, OPT_EVAL_DATA, has_no_held_out, ON_TRAIN,
            "the best is found by evaluating, and there is nothing to evaluate on; give --eval-data FILE or "
            "--val-split 0.05"),
    WARNS(OPT_EVAL_STEPS, OPT_EVAL_DATA, has_no_held_out, ON_TRAIN,
          "has no effect: there is nothing to evaluate on (--eval-data, --val-split)"),
    WARNS(OPT_EVAL_BATCHES, OPT_EVAL_DATA, has_no_held_out, ON_TRAIN,
          "has no effect: there is nothing to evaluate on (--eval-data, --val-split)"),
    REFUSES(OPT_VAL_SPLIT, OPT_EVAL_DATA, has_eval_data, ON_TRAIN,
            "nothing is held out of --data where --eval-data is given; leave one of them out"),
    REFUSES(OPT_MOMENTUM, OPT_OPTIMIZER, NULL, ON_JOB,
            "belongs to --optimizer sgd; AdamW's is --beta1", .needs = "sgd"),
    REFUSES(OPT_MOMENTS, OPT_OPTIMIZER, stores_no_moments, ON_JOB,
            "sgd without --momentum stores no moments; leave it out, or give --momentum 0.9 or --optimizer adamw"),
    {.id = OPT_BETA1, ADAMW},
    {.id = OPT_BETA2, ADAMW},
    {.id = OPT_EPS, ADAMW},
    {.id = OPT_MIN_LR, SCHEDULED},
    {.id = OPT_SCHEDULE_STEPS, SCHEDULED},
    {.id = OPT_MIN_LR_RATIO, SCHEDULED},
    WARNS(OPT_MIN_LR_RATIO, OPT_MIN_LR, has_min_lr, ON_TRAIN, "has no effect: --min-lr says where the rate ends"),
    {.id = OPT_DECAY_STEPS, DECAYS},
    {.id = OPT_DECAY_RATIO, DECAYS},
    {.id = OPT_DECAY_SHAPE, DECAYS},
    WARNS(OPT_DECAY_RATIO, OPT_DECAY_STEPS, has_decay_steps, ON_TRAIN,
          "has no effect: --decay-steps says how long the decay is"),
    WARNS(OPT_DECAY_STEPS, OPT_STEPS, decays_from_the_start, ON_TRAIN, NULL, .stage = RULE_RUN, .say = say_decay),
    WARNS(OPT_DECAY_MULT, OPT_WEIGHT_DECAY, never_decays, ON_TRAIN,
          "has no effect: --weight-decay 0 decays nothing"),
    {.id = OPT_SPIKE_FACTOR, LOOKS_FOR_SPIKES},
    {.id = OPT_SPIKE_WINDOW, LOOKS_FOR_SPIKES},
    WARNS(OPT_SKIP_LIMIT, OPT_ON_SPIKE, never_skips, ON_SUPERVISED,
          "has no effect: no update is skipped (--on-spike skip, --on-nonfinite skip)"),
    REFUSES(OPT_ON_SPIKE, OPT_STEP_LOG, logs_skipped_spikes, ON_SUPERVISED,
            "a replay of the step log would not leave out what was skipped; give --on-spike warn or stop with "
            "--step-log"),
    {.id = OPT_STEP_LOG_STRIDE, LOGGED},
    {.id = OPT_STEP_LOG_UPDATES, LOGGED},
    {.id = OPT_STEP_LOG_STATES, LOGGED},
    WARNS(OPT_WARMUP_RATIO, OPT_WARMUP_STEPS, has_warmup_steps, ON_TRAIN,
          "has no effect: --warmup-steps says how long the warm-up is"),
    WARNS(OPT_WARMUP_STEPS, OPT_STEPS, never_warms_up, ON_TRAIN, NULL, .stage = RULE_RUN, .say = say_warmup),
    WARNS(OPT_EPOCHS, OPT_STEPS, has_steps, ON_TRAIN, "has no effect: --steps says how long the run is"),
    WARNS(OPT_SEQ, OPT_MODEL, is_beyond_positions, ON_TRAIN, NULL, .stage = RULE_MODEL, .say = say_positions),
    {.id = OPT_LOSS_SCALE, SCALED},
    {.id = OPT_LOSS_SCALE_WINDOW, SCALED},
    REFUSES(OPT_OVERWRITE, OPT_RESUME, resumes, ON_TRAIN,
            "would remove the run that --resume goes on with; give one of them"),
    {.id = OPT_SAVE_BEST, SAVED},
    {.id = OPT_SAVE_STEPS, SAVED},
    {.id = OPT_SAVE_MINUTES, SAVED},
    {.id = OPT_SAVE_TOTAL_LIMIT, SAVED},
    {.id = OPT_SPARE_DIR, SAVED},
    WARNS(OPT_CLEANUP_DELAY, OPT_TRIM_EVERY, never_trims, ON_TRAIN, "has no effect without --trim-every"),
    WARNS(OPT_OFFLOAD_DIR, OPT_OFFLOAD, names_no_disk, ON_PASS | ON_GEN,
          "has no effect: --offload names nothing that is kept on disk (weights=disk, moments=disk:8, ...)"),
    {.id = OPT_TF32, .broken = is_on_cpu, ON_A_GPU},
    {.id = OPT_NVTX, .broken = is_on_cpu, ON_A_GPU},
    {.id = OPT_ATTENTION, .broken = is_cudnn, ON_A_GPU},
    {.id = OPT_GROUP, GRPO},
    {.id = OPT_EVALUATOR, GRPO},
    {.id = OPT_EVALUATOR_TOKENS, GRPO},
    {.id = OPT_EXPECTED_COMPLETION, GRPO},
    {.id = OPT_REFERENCE, GRPO},
    {.id = OPT_SHARE_PROMPTS, GRPO},
    REFUSES(OPT_REWARD_COMMAND, OPT_REWARD, has_no_reward_command, ON_REWARDED, NO_COMMAND),
    REFUSES(OPT_REWARD_PROCESSES, OPT_REWARD, has_no_reward_command, ON_REWARDED, NO_COMMAND),
    REFUSES(OPT_REWARD_SECONDS, OPT_REWARD, has_no_reward_command, ON_REWARDED, NO_COMMAND),
    REFUSES(OPT_EVALUATOR_NAME, OPT_EVALUATOR_URL, has_no_url, ON_REWARDED, NO_URL),
    REFUSES(OPT_EVALUATOR_API, OPT_EVALUATOR_URL, has_no_url, ON_REWARDED, NO_URL),
    REFUSES(OPT_EVALUATOR_TOKENS, OPT_EVALUATOR, has_no_evaluator, ON_REWARDED, NO_EVALUATOR),
    REFUSES(OPT_EVALUATOR_TEMPERATURE, OPT_EVALUATOR, has_no_evaluator, ON_REWARDED, NO_EVALUATOR),
    {.id = OPT_PROMPT_TOKENS, ANSWERS},
    {.id = OPT_SLOTS, ANSWERS},
    {.id = OPT_CONTEXT, ANSWERS},
    {.id = OPT_MAX_TOKENS, ANSWERS},
    {.id = OPT_PREFILL_CHUNK, ANSWERS},
    {.id = OPT_KV_CACHE, ANSWERS},
    {.id = OPT_TEMPERATURE, ANSWERS},
    {.id = OPT_TOP_K, ANSWERS},
    {.id = OPT_TOP_P, ANSWERS},
    {.id = OPT_MIN_P, ANSWERS},
    {.id = OPT_REPETITION, ANSWERS},
    {.id = OPT_PACK, SUPERVISED},
    {.id = OPT_DOCUMENTS, SUPERVISED},
    {.id = OPT_SCORE, SUPERVISED},
    {.id = OPT_TEMPLATE, SUPERVISED},
    {.id = OPT_TEXT_FIELD, SUPERVISED},
    {.id = OPT_PROMPT_TEMPLATE, SUPERVISED},
    {.id = OPT_ANSWER_TEMPLATE, SUPERVISED},
    {.id = OPT_VAL_SPLIT, SUPERVISED},
    {.id = OPT_EVAL_STEPS, SUPERVISED},
    {.id = OPT_EVAL_BATCHES, SUPERVISED},
    {.id = OPT_DATA_WORKERS, SUPERVISED},
    {.id = OPT_AHEAD, SUPERVISED},
    {.id = OPT_STEP_LOG, SUPERVISED},
    {.id = OPT_STEP_LOG_UPDATES, SUPERVISED},
    {.id = OPT_STEP_LOG_STATES, SUPERVISED},
    {.id = OPT_STEP_LOG_STRIDE, SUPERVISED},
    {.id = OPT_SAVE_BEST, SUPERVISED},
    {.id = OPT_ATTENTION, SUPERVISED},
    {.id = OPT_SUITE_DATA, BENCHMARK},
    {.id = OPT_LIMIT, BENCHMARK},
    {.id = OPT_NUM_FEWSHOT, BENCHMARK},
    {.id = OPT_LENGTHS, BENCHMARK},
    {.id = OPT_DEPTHS, BENCHMARK},
    {.id = OPT_ITEMS, BENCHMARK},
    {.id = OPT_SLOTS, BENCHMARK},
    {.id = OPT_CONTEXT, BENCHMARK},
    {.id = OPT_PREFILL_CHUNK, BENCHMARK},
    {.id = OPT_KV_CACHE, BENCHMARK},
    {.id = OPT_INVARIANT, BENCHMARK},
    {.id = OPT_SVG, BENCHMARK},
    {.id = OPT_HTML, BENCHMARK},
    REFUSES(OPT_ATTENTION_REPORT, OPT_SUITE, has_a_suite, ON_SUITE,
            "is made while the loss on --data is computed; run it without --suite"),
    {.id = OPT_TOP_K, GREEDY},
    {.id = OPT_TOP_P, GREEDY},
    {.id = OPT_MIN_P, GREEDY},
    {.id = OPT_WINDOW, LMCLEANER},
    {.id = OPT_HESSIAN, LMCLEANER},
    {.id = OPT_EPSILON, LMCLEANER},
    {.id = OPT_BOUND, LMCLEANER},
    {.id = OPT_ORACLE, LMCLEANER},
    {.id = OPT_GAMMA_ITERATIONS, LMCLEANER},
    REFUSES(OPT_REMOVE, OPT_METHOD, NULL, ON_UNLEARN,
            "says what lmcleaner and retrain take out; a loss is tuned, and replay takes nothing out",
            .needs = "lmcleaner|retrain"),
    REFUSES(OPT_AT, OPT_METHOD, NULL, ON_UNLEARN, "belongs to --method replay", .needs = "replay"),
};

int rules_count(void) { return COUNT_OF(rules); }

/* ---- the check ---- */

static bool is_one_of(const Options *o, OptId id, const char *values) {
    for (const char *v = values; *v; v += *v == '|') {
        char one[24];
        int len = (int)strcspn(v, "|");
        snprintf(one, sizeof one, "%.*s", len, v);
        if (opt_is(o, id, one)) return true;
        v += len;
    }
    return false;
}

/* The length of a row counts whoever chose it. */
static bool is_given(const Options *o, OptId id) { return id == OPT_SEQ || opt_changed(o, id); }

static bool is_broken(const Rule *r, const Options *o, const RuleFacts *f) {
    return (r->commands >> o->command & 1) && is_given(o, r->id) && (!r->needs || !is_one_of(o, r->by, r->needs)) &&
           (!r->broken || r->broken(o, f));
}

bool rules_check(Options *o, RuleStage stage, const RuleFacts *f, Err *e) {
    bool ok = true;
    for (int i = 0; i < COUNT_OF(rules) && ok; i++) {
        const Rule *r = &rules[i];
        if (r->stage != stage || !is_broken(r, o, f)) continue;
        Str why = {0};
        if (r->say) r->say(&why, o, f);
        else str_add(&why, r->text);
        const OptRow *row = &option_rows[r->id];
        bool shows = row->type != OPT_FLAG, weaker = o->value[r->id].source < o->value[r->by].source;
        if (r->verdict == RULE_WARN || weaker)
            log_warn("--%s%s%s: %s", row->name, shows ? " " : "", shows ? opt_text(o, r->id) : "", str_text(&why));
        else
            ok = fail(e, ERR_USAGE, "--%s%s%s: %s", row->name, shows ? " " : "", shows ? opt_text(o, r->id) : "",
                      str_text(&why));
        if (r->verdict == RULE_REFUSE && weaker) options_reset(o, r->id);
        str_free(&why);
    }
    return ok;
}
