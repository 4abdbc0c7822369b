/* rules.c - which option has no effect beside which, and what a person is told about it. */
#include "cli/rules.h"

#include <string.h>

#include "base/http.h"
#include "base/log.h"
#include "data/dataset.h"

/* ---- conditions that a value alone does not tell ---- */

static bool evaluates(const Options *o) { return opt_given(o, OPT_EVAL_DATA) || opt_real(o, OPT_VAL_SPLIT) > 0; }

static bool has_no_held_out(const Options *o, const RuleFacts *f) { return !evaluates(o); }

/* A flag says that adapters are wanted, whatever its value; a saved configuration names every option. */
static bool is_wish_for_adapters(const Options *o, OptId id) {
    return (id == OPT_LORA_RANK || id == OPT_LORA_ALPHA || id == OPT_LORA_TARGETS) && o->value[id].source == FROM_FLAG;
}

static bool has_other_alpha(const Options *o, const RuleFacts *f) {
    return is_wish_for_adapters(o, OPT_LORA_ALPHA) ||
           opt_real(o, OPT_LORA_ALPHA) != 2 * (double)opt_int(o, OPT_LORA_RANK);
}

static bool is_no_epoch(const Options *o, const RuleFacts *f) {
    return opt_real(o, OPT_EPOCHS) == 0 && !opt_given(o, OPT_STEPS);
}

static bool stores_no_moments(const Options *o, const RuleFacts *f) {
    return opt_is(o, OPT_OPTIMIZER, "sgd") && opt_real(o, OPT_MOMENTUM) == 0;
}

static bool is_eps_none(const Options *o, const RuleFacts *f) {
    return opt_is(o, OPT_OPTIMIZER, "adamw") && opt_real(o, OPT_EPS) == 0;
}
static bool never_skips(const Options *o, const RuleFacts *f) {
    return !opt_is(o, OPT_ON_SPIKE, "skip") && !opt_is(o, OPT_ON_NONFINITE, "skip");
}
static bool logs_skipped_spikes(const Options *o, const RuleFacts *f) {
    return opt_given(o, OPT_STEP_LOG) && opt_is(o, OPT_ON_SPIKE, "skip");
}
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
static bool is_no_address(const Options *o, const RuleFacts *f) {
    return opt_given(o, OPT_EVALUATOR_URL) && !http_check_url(opt_text(o, OPT_EVALUATOR_URL), NULL);
}
static bool watches_a_command(const Options *o, const RuleFacts *f) { return o->n_positional > 0; }
static bool records_or_wraps(const Options *o, const RuleFacts *f) {
    return opt_given(o, OPT_CSV) || watches_a_command(o, f);
}
static bool watches_on(const Options *o, const RuleFacts *f) {
    return opt_given(o, OPT_SERVE) || records_or_wraps(o, f);
}
static bool is_on_cpu(const Options *o, const RuleFacts *f) { return f->on_cpu; }

static bool has_no_turns(const Options *o, const RuleFacts *f) {
    return f->data && opt_is(o, OPT_SCORE, "last") && !dataset_has_turns(f->data);
}
static bool has_no_stream(const Options *o, const RuleFacts *f) {
    return f->data && opt_is(o, OPT_DOCUMENTS, "joined") && !dataset_has_stream(f->data);
}

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

static bool ends_above_its_rate(const Options *o, const RuleFacts *f) {
    return !opt_is(o, OPT_SCHEDULE, "constant") && opt_real(o, OPT_MIN_LR) > opt_real(o, OPT_LR);
}

/* A schedule that ends at a rate of 0 before the run does. */
static bool stands_still_at_the_end(const Options *o, const RuleFacts *f) {
    bool ends_at_none = opt_real(o, OPT_MIN_LR) == 0 && opt_real(o, OPT_MIN_LR_RATIO) == 0;
    return ends_at_none && !opt_is(o, OPT_SCHEDULE, "constant") && opt_int(o, OPT_SCHEDULE_STEPS) > 0 &&
           opt_int(o, OPT_SCHEDULE_STEPS) < f->total_steps;
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

static void say_end_above(Str *out, const Options *o, const RuleFacts *f) {
    str_addf(out, "lies above --lr %s, so the rate stays at that; --min-lr is what it falls to", opt_text(o, OPT_LR));
}

static void say_standing_still(Str *out, const Options *o, const RuleFacts *f) {
    str_addf(out,
             "the rate is 0 from there on, and nothing is learned up to step %lld; give --min-lr or --min-lr-ratio, or "
             "a schedule as long as the run",
             (long long)f->total_steps);
}

static void say_decay(Str *out, const Options *o, const RuleFacts *f) {
    str_addf(out,
             "warm-up and decay are longer than the run of %lld steps: the decay begins behind the warm-up, at "
             "step %lld",
             (long long)f->total_steps, (long long)MIN2(f->warmup_steps, f->total_steps));
}

/* ---- the table ---- */

/* What `needs` may ask for beside values. */
static const char GIVEN[] = "given", NOT_GIVEN[] = "not given", ZERO[] = "zero", NOT_ZERO[] = "not zero";

/* Options that cannot have their effect, because of which, when (NULL: `needs` tells), on which commands, and why. */
#define OF(...) ((const OptId[]){__VA_ARGS__, OPT_COUNT})
#define RULE(options, because, when, on, why, ...) \
    {.id = options, .by = because, .broken = when, .commands = on, .text = why, __VA_ARGS__}
#define WARNS(...) RULE(__VA_ARGS__, .verdict = RULE_WARN)
#define REFUSES(...) RULE(__VA_ARGS__, .verdict = RULE_REFUSE)
#define NO_LORA "only --mode lora has adapters; all weights are trained now. Did you mean --mode lora?"

const Rule rules[] = {
    REFUSES(OF(OPT_LORA_RANK), OPT_MODE, NULL, ON_JOB, NO_LORA, .needs = "lora"),
    REFUSES(OF(OPT_LORA_ALPHA), OPT_MODE, has_other_alpha, ON_JOB, NO_LORA, .needs = "lora"),
    WARNS(OF(OPT_LORA_ALPHA), OPT_LORA_ALPHA, NULL, ON_JOB,
          "an adapter counts alpha / rank: nothing is learned", .needs = NOT_ZERO),
    WARNS(OF(OPT_LR), OPT_LR, NULL, ON_TRAIN, "nothing is learned at this rate", .needs = NOT_ZERO),
    REFUSES(OF(OPT_EPOCHS), OPT_EPOCHS, is_no_epoch, ON_TRAIN,
            "no pass over the data is no training; give a part of one (--epochs 0.1), or --steps N"),
    REFUSES(OF(OPT_LORA_DROPOUT, OPT_LORA_TARGETS, OPT_ADAPTER_DTYPE), OPT_MODE, NULL, ON_JOB, NO_LORA,
            .needs = "lora"),
    REFUSES(OF(OPT_LORA_RANK), OPT_ADAPTER, is_other_rank, ON_TRAIN, NULL, .stage = RULE_MODEL, .say = say_rank),
    WARNS(OF(OPT_LORA_TARGETS), OPT_ADAPTER, has_adapter, ON_TRAIN,
          "has no effect: the targets are those of --adapter", .stage = RULE_MODEL),
    REFUSES(OF(OPT_SAVE_BEST), OPT_EVAL_DATA, has_no_held_out, ON_TRAIN,
            "the best is found by evaluating, and there is nothing to evaluate on; give --eval-data FILE or "
            "--val-split 0.05"),
    WARNS(OF(OPT_EVAL_STEPS, OPT_EVAL_BATCHES), OPT_EVAL_DATA, has_no_held_out, ON_TRAIN,
          "has no effect: there is nothing to evaluate on (--eval-data, --val-split)"),
    REFUSES(OF(OPT_VAL_SPLIT), OPT_EVAL_DATA, NULL, ON_TRAIN,
            "nothing is held out of --data where --eval-data is given; leave one of them out", .needs = NOT_GIVEN),
    REFUSES(OF(OPT_MOMENTUM), OPT_OPTIMIZER, NULL, ON_JOB, "belongs to --optimizer sgd; AdamW's is --beta1",
            .needs = "sgd"),
    REFUSES(OF(OPT_MOMENTS), OPT_OPTIMIZER, stores_no_moments, ON_JOB,
            "sgd without --momentum stores no moments; leave it out, or give --momentum 0.9 or --optimizer adamw"),
    WARNS(OF(OPT_BETA1, OPT_BETA2, OPT_EPS), OPT_OPTIMIZER, NULL, ON_TRAIN,
          "belongs to --optimizer adamw and has no effect on sgd", .needs = "adamw"),
    REFUSES(OF(OPT_EPS), OPT_EPS, is_eps_none, ON_TRAIN,
            "a weight whose gradient is 0 would be divided by 0; 1e-8 is usual, and 1e-15 hardly counts"),
    WARNS(OF(OPT_MIN_LR, OPT_SCHEDULE_STEPS, OPT_MIN_LR_RATIO), OPT_SCHEDULE, NULL, ON_TRAIN,
          "has no effect: a constant learning rate has no end to go to", .needs = "cosine|linear|wsd"),
    WARNS(OF(OPT_MIN_LR_RATIO), OPT_MIN_LR, NULL, ON_TRAIN,
          "has no effect: --min-lr says where the rate ends", .needs = ZERO),
    WARNS(OF(OPT_MIN_LR), OPT_LR, ends_above_its_rate, ON_TRAIN, NULL, .stage = RULE_RUN, .say = say_end_above),
    WARNS(OF(OPT_SCHEDULE_STEPS), OPT_STEPS, stands_still_at_the_end, ON_TRAIN, NULL, .stage = RULE_RUN,
          .say = say_standing_still),
    WARNS(OF(OPT_DECAY_STEPS, OPT_DECAY_RATIO, OPT_DECAY_SHAPE), OPT_SCHEDULE, NULL, ON_TRAIN,
          "has no effect: it belongs to --schedule wsd", .needs = "wsd"),
    WARNS(OF(OPT_DECAY_RATIO), OPT_DECAY_STEPS, NULL, ON_TRAIN,
          "has no effect: --decay-steps says how long the decay is", .needs = ZERO),
    WARNS(OF(OPT_DECAY_STEPS), OPT_STEPS, decays_from_the_start, ON_TRAIN, NULL, .stage = RULE_RUN,
          .say = say_decay),
    WARNS(OF(OPT_DECAY_MULT), OPT_WEIGHT_DECAY, NULL, ON_TRAIN,
          "has no effect: --weight-decay 0 decays nothing", .needs = NOT_ZERO),
    WARNS(OF(OPT_SPIKE_FACTOR, OPT_SPIKE_WINDOW), OPT_ON_SPIKE, NULL, ON_SUPERVISED,
          "has no effect: --on-spike ignore looks for none", .needs = "warn|skip|stop"),
    WARNS(OF(OPT_SKIP_LIMIT), OPT_ON_SPIKE, never_skips, ON_SUPERVISED,
          "has no effect: no update is skipped (--on-spike skip, --on-nonfinite skip)"),
    REFUSES(OF(OPT_ON_SPIKE), OPT_STEP_LOG, logs_skipped_spikes, ON_SUPERVISED,
            "a replay of the step log would not leave out what was skipped; give --on-spike warn or stop with "
            "--step-log"),
    REFUSES(OF(OPT_STEP_LOG_STRIDE, OPT_STEP_LOG_UPDATES, OPT_STEP_LOG_STATES), OPT_STEP_LOG, NULL,
            ON_SUPERVISED, "belongs to --step-log, and no log is asked for", .needs = GIVEN),
    WARNS(OF(OPT_WARMUP_RATIO), OPT_WARMUP_STEPS, NULL, ON_TRAIN,
          "has no effect: --warmup-steps says how long the warm-up is", .needs = ZERO),
    WARNS(OF(OPT_WARMUP_STEPS), OPT_STEPS, never_warms_up, ON_TRAIN, NULL, .stage = RULE_RUN, .say = say_warmup),
    WARNS(OF(OPT_EPOCHS), OPT_STEPS, NULL, ON_TRAIN, "has no effect: --steps says how long the run is",
          .needs = NOT_GIVEN),
    WARNS(OF(OPT_SEQ), OPT_MODEL, is_beyond_positions, ON_TRAIN, NULL, .stage = RULE_MODEL, .say = say_positions),
    WARNS(OF(OPT_LOSS_SCALE, OPT_LOSS_SCALE_WINDOW), OPT_PRECISION, NULL, ON_TRAIN,
          "has no effect: only fp16 has a scaled loss", .needs = "auto|fp16"),
    REFUSES(OF(OPT_OVERWRITE), OPT_RESUME, NULL, ON_TRAIN,
            "would remove the run that --resume goes on with; give one of them", .needs = NOT_GIVEN),
    WARNS(OF(OPT_SAVE_BEST, OPT_SAVE_STEPS, OPT_SAVE_MINUTES, OPT_SAVE_TOTAL_LIMIT, OPT_SPARE_DIR), OPT_SAVE, NULL,
          ON_TRAIN, "has no effect: nothing is saved (--no-save)", .needs = "true"),
    WARNS(OF(OPT_CLEANUP_DELAY), OPT_TRIM_EVERY, NULL, ON_TRAIN, "has no effect without --trim-every",
          .needs = NOT_ZERO),
    WARNS(OF(OPT_OFFLOAD_DIR), OPT_OFFLOAD, names_no_disk, ON_PASS | ON_GEN,
          "has no effect: --offload names nothing that is kept on disk (weights=disk, moments=disk:8, ...)"),
    WARNS(OF(OPT_TF32, OPT_NVTX), OPT_DEVICE, is_on_cpu, ON_TRAIN,
          "has no effect: the job runs on the processor", .stage = RULE_RUN),
    WARNS(OF(OPT_ATTENTION), OPT_DEVICE, is_cudnn, ON_TRAIN,
          "has no effect: the job runs on the processor", .stage = RULE_RUN),
    WARNS(OF(OPT_SCORE), OPT_DATA, has_no_turns, ON_TRAIN, "has no effect: the data are no conversations",
          .stage = RULE_RUN),
    WARNS(OF(OPT_DOCUMENTS), OPT_DATA, has_no_stream, ON_TRAIN,
          "has no effect: it is about documents of plain text that fill rows (--pack on), and there are none",
          .stage = RULE_RUN),
    REFUSES(OF(OPT_GROUP, OPT_EVALUATOR, OPT_EVALUATOR_TOKENS, OPT_EXPECTED_COMPLETION, OPT_REFERENCE,
               OPT_SHARE_PROMPTS, OPT_PARSER, OPT_META_PROMPT, OPT_REWARD),
            OPT_TASK, NULL, ON_PLAN, "only --task grpo has it. Did you mean --task grpo?", .needs = "grpo"),
    REFUSES(OF(OPT_REWARD_COMMAND, OPT_REWARD_PROCESSES, OPT_REWARD_SECONDS), OPT_REWARD, has_no_reward_command,
            ON_REWARDED, "belongs to --reward command, which is not among the rewards"),
    REFUSES(OF(OPT_EVALUATOR_NAME, OPT_EVALUATOR_API), OPT_EVALUATOR_URL, NULL, ON_REWARDED,
            "belongs to an evaluator elsewhere, and no --evaluator-url is given", .needs = GIVEN),
    REFUSES(OF(OPT_EVALUATOR_URL), OPT_EVALUATOR_URL, is_no_address, ON_PLAN | ON_REWARDED,
            "is no address of a server; http://HOST:PORT or https://HOST is expected"),
    REFUSES(OF(OPT_EVALUATOR_TOKENS, OPT_EVALUATOR_TEMPERATURE), OPT_EVALUATOR, has_no_evaluator, ON_REWARDED,
            "belongs to an evaluator, and none is asked for (--evaluator, --evaluator-url)"),
    REFUSES(OF(OPT_RETAIN_LOGS), OPT_RETAIN_MODEL, NULL, ON_UNLEARN_EVAL,
            "stands in place of --retain-model; give one of the two", .needs = NOT_GIVEN),
    WARNS(OF(OPT_PROMPT_TOKENS, OPT_SLOTS, OPT_CONTEXT, OPT_MAX_TOKENS, OPT_PREFILL_CHUNK, OPT_KV_CACHE,
             OPT_TEMPERATURE, OPT_TOP_K, OPT_TOP_P, OPT_MIN_P, OPT_REPETITION),
          OPT_TASK, NULL, ON_PLAN, "has no effect on a training job; it belongs to --task generate or grpo",
          .needs = "generate|grpo"),
    WARNS(OF(OPT_PACK, OPT_DOCUMENTS, OPT_SCORE, OPT_TEMPLATE, OPT_TEXT_FIELD, OPT_PROMPT_TEMPLATE,
             OPT_ANSWER_TEMPLATE, OPT_VAL_SPLIT, OPT_EVAL_STEPS, OPT_EVAL_BATCHES, OPT_DATA_WORKERS, OPT_AHEAD,
             OPT_STEP_LOG, OPT_STEP_LOG_UPDATES, OPT_STEP_LOG_STATES, OPT_STEP_LOG_STRIDE, OPT_SAVE_BEST,
             OPT_ATTENTION),
          OPT_TASK, NULL, ON_PLAN, "has no effect on --task grpo, and `snug grpo` does not take it",
          .needs = "train|generate"),
    REFUSES(OF(OPT_SUITE_DATA, OPT_LIMIT, OPT_NUM_FEWSHOT, OPT_LENGTHS, OPT_DEPTHS, OPT_ITEMS, OPT_SLOTS,
               OPT_CONTEXT, OPT_PREFILL_CHUNK, OPT_KV_CACHE, OPT_INVARIANT, OPT_SVG, OPT_HTML),
            OPT_SUITE, NULL, ON_SUITE, "belongs to the benchmarks of --suite, and none is asked for", .needs = GIVEN),
    REFUSES(OF(OPT_ATTENTION_REPORT), OPT_SUITE, NULL, ON_SUITE,
            "is made while the loss on --data is computed; run it without --suite", .needs = NOT_GIVEN),
    WARNS(
        OF(OPT_TOP_K, OPT_TOP_P, OPT_MIN_P), OPT_TEMPERATURE, NULL, ON_GENERATE,
        "has no effect at temperature 0, where always the likeliest token is taken; give --temperature 0.7, say",
        .needs = NOT_ZERO),
    REFUSES(OF(OPT_WINDOW, OPT_HESSIAN, OPT_EPSILON, OPT_BOUND, OPT_ORACLE, OPT_GAMMA_ITERATIONS, OPT_CORRECTION),
            OPT_METHOD, NULL, ON_UNLEARN, "belongs to --method lmcleaner, and this method does nothing with it",
            .needs = "lmcleaner"),
    REFUSES(OF(OPT_REMOVE), OPT_METHOD, NULL, ON_UNLEARN,
            "says what lmcleaner and retrain take out; a loss is tuned, and replay takes nothing out",
            .needs = "lmcleaner|retrain"),
    REFUSES(OF(OPT_AT), OPT_METHOD, NULL, ON_UNLEARN, "belongs to --method replay", .needs = "replay"),
    REFUSES(OF(OPT_HOST, OPT_TOKEN), OPT_SERVE, NULL, ON_MONITOR,
            "belongs to --serve, which is not asked for", .needs = GIVEN),
    REFUSES(OF(OPT_SERVE), OPT_CSV, records_or_wraps, ON_MONITOR,
            "shows the machine until it is left; --csv and a command are watched by a monitor of their own"),
    REFUSES(OF(OPT_ONCE), OPT_CSV, watches_on, ON_MONITOR,
            "is one look, printed; --csv, --serve and a command go on. For one row: --csv FILE --duration 0"),
    REFUSES(OF(OPT_DURATION), OPT_ONCE, watches_a_command, ON_MONITOR,
            "has no effect: a command is watched until it ends"),
};

int rules_count(void) { return COUNT_OF(rules); }

/* ---- the check ---- */

static bool meets(const Options *o, OptId id, const char *needs) {
    if (needs == GIVEN || needs == NOT_GIVEN) return opt_given(o, id) == (needs == GIVEN);
    if (needs == ZERO || needs == NOT_ZERO) return (o->value[id].r == 0) == (needs == ZERO);
    return opt_text(o, id) && str_is_among(opt_text(o, id), needs);
}

/* The length of a row counts whoever chose it. */
static bool is_given(const Options *o, OptId id) {
    return id == OPT_SEQ || opt_changed(o, id) || is_wish_for_adapters(o, id);
}

static bool is_broken(const Rule *r, OptId id, const Options *o, const RuleFacts *f) {
    return (r->commands >> o->command & 1) && is_given(o, id) && (!r->needs || !meets(o, r->by, r->needs)) &&
           (!r->broken || r->broken(o, f));
}

static bool tell(const Rule *r, OptId id, Options *o, const RuleFacts *f, Err *e) {
    Str why = {0};
    if (r->say) r->say(&why, o, f);
    else str_add(&why, r->text);
    const OptRow *row = &option_rows[id];
    bool shows = row->type != OPT_FLAG, weaker = o->value[id].source < o->value[r->by].source, ok = true;
    if (r->verdict == RULE_WARN || weaker)
        log_warn("--%s%s%s: %s", row->name, shows ? " " : "", shows ? opt_text(o, id) : "", str_text(&why));
    else
        ok = fail(e, ERR_USAGE, "--%s%s%s: %s", row->name, shows ? " " : "", shows ? opt_text(o, id) : "",
                  str_text(&why));
    if (r->verdict == RULE_REFUSE && weaker) options_reset(o, id);
    str_free(&why);
    return ok;
}

bool rules_check(Options *o, RuleStage stage, const RuleFacts *f, Err *e) {
    for (const Rule *r = rules; r < rules + COUNT_OF(rules); r++)
        for (const OptId *id = r->id; *id != OPT_COUNT && r->stage == stage; id++)
            if (is_broken(r, *id, o, f) && !tell(r, *id, o, f, e)) return false;
    return true;
}
