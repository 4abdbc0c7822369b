/* grpo_setup.c - how options name the models beside a policy, its batches, its loss and its items, and what all of
 * it takes of the host: for `snug plan --task grpo` and for `snug grpo` alike, so that both come to the same
 * bytes. */
#include "cli/grpo_setup.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "grpo/run.h"

/* ---- from options to models ---- */

static bool parse_word(ModelSpec *m, bool *placed, const char *word, int64_t len) {
    char text[32] = "", *end;
    if (len >= (int64_t)sizeof text) return false;
    memcpy(text, word, (size_t)len);
    bool nf4 = !strcmp(text, "nf4");
    if (nf4 || !strcmp(text, "int8")) {
        m->quantised = true;
        m->stored = nf4 ? FMT_NF4 : FMT_INT8;
        return true;
    }
    *placed = true;
    if (!strcmp(text, "by-phase")) return m->by_phase = true;
    int64_t *layers = &m->offload.layers[OFFLOAD_WEIGHTS];
    *layers = strcmp(text, "streamed") ? 0 : m->config.layers;
    if (*layers || !strcmp(text, "resident")) return true;
    if (strncmp(text, "streamed=", 9)) return false;
    *layers = strtol(text + 9, &end, 10);
    return !*end && *layers >= 1 && *layers <= m->config.layers;
}

/* "int8,streamed=24" */
static bool parse_how(ModelSpec *m, bool *placed, const char *flag, const char *how, Err *e) {
    for (const char *at = how; at && *at; at += *at == ',') {
        int64_t len = (int64_t)strcspn(at, ",");
        if (!parse_word(m, placed, at, len))
            return fail(
                e, ERR_USAGE,
                "%s: '%.*s' is not a way to keep a model of %d layers; use int8, nf4, resident, by-phase, streamed "
                "or streamed=LAYERS",
                flag, (int)len, at, m->config.layers);
        at += len;
    }
    return true;
}

/* MODEL[:HOW]; a path may hold colons, HOW never holds a slash. */
bool grpo_setup_side(ModelSpec *m, ModelFiles *files, bool *may_move, const char *flag, const char *text,
                     const ModelFiles *same, Err *e) {
    char name[1024];
    const char *colon = strrchr(text, ':');
    if (colon && strchr(colon, '/')) colon = NULL;
    snprintf(name, sizeof name, "%.*s", colon ? (int)(colon - text) : (int)strlen(text), text);
    *m = (ModelSpec){0};
    if (same && !strcmp(name, "same")) *files = *same;
    else if (!setup_model_named(files, flag, name, e)) return false;
    m->config = files->config;
    if (m->config.quant == QUANT_OWN) m->quantised = true, m->stored = m->config.quant_format;
    bool placed = false;
    if (!parse_how(m, &placed, flag, colon ? colon + 1 : NULL, e)) return false;
    *may_move = !placed;
    return true;
}

static bool open_reference(GrpoSetup *g, const Options *o, const JobSpec *s, const ModelFiles *policy, Err *e) {
    const char *text = opt_text(o, OPT_REFERENCE);
    if (!strcmp(text, "none") || !(g->spec.loss.kl > 0)) return true;
    bool base = !strcmp(text, "same") && s->lora;
    g->spec.reference_kind = base ? REFERENCE_BASE : REFERENCE_MODEL;
    return base || grpo_setup_side(&g->spec.reference, &g->reference, &g->spec.reference_may_move, "--reference",
                                   text, policy, e);
}

/* What is drawn and not loaded. A copy of a drawn policy is drawn as the policy is. */
static void set_start(ModelSpec *m, const ModelFiles *files, const JobSpec *s, const Options *o) {
    m->activations = s->m.activations;
    m->random_init = opt_given(o, OPT_INIT) && (!files->has_folder || s->m.random_init);
    m->seed = s->m.seed;
}

/* One group of answers when nothing is said about batches. */
static bool set_batches(GrpoSetup *g, JobSpec *s, int64_t *global_batch, const Options *o, Err *e) {
    int64_t group = g->spec.group;
    bool has_micro = opt_given(o, OPT_MICRO_BATCH), has_accum = opt_given(o, OPT_ACCUM);
    if (!opt_given(o, OPT_GLOBAL_BATCH) && !has_micro && !has_accum) {
        s->micro_batch = *global_batch = group;
        s->accum = 1;
    }
    BatchSpec b = {.batch = has_micro ? s->micro_batch : *global_batch,
                   .accum = has_micro ? s->accum : 1,
                   .group = group,
                   .steps = opt_int(o, OPT_STEPS_PER_GENERATION),
                   .iterations = opt_int(o, OPT_ITERATIONS)};
    if (!has_micro && has_accum) b.accum = s->accum, b.batch = *global_batch / s->accum;
    return batches_make(&g->batches, &b, e);
}

bool grpo_setup(GrpoSetup *g, JobSpec *s, int64_t *global_batch, const Options *o, const ModelFiles *policy, Err *e) {
    double high = opt_real(o, OPT_RATIO_CLIP_HIGH), low = opt_real(o, OPT_RATIO_CLIP);
    *g = (GrpoSetup){.spec = {.group = opt_int(o, OPT_GROUP),
                              .prompt_tokens = opt_int(o, OPT_PROMPT_TOKENS),
                              .answer_tokens = opt_int(o, OPT_MAX_TOKENS),
                              .slots = opt_int(o, OPT_SLOTS),
                              .chunk = opt_int(o, OPT_PREFILL_CHUNK)}};
    GrpoSpec *spec = &g->spec;
    spec->loss = (AttrPolicy){(float)low, (float)(opt_given(o, OPT_RATIO_CLIP_HIGH) ? high : low),
                              (float)opt_real(o, OPT_KL)};
    spec->evaluator_tokens =
        opt_given(o, OPT_EVALUATOR_TOKENS) ? opt_int(o, OPT_EVALUATOR_TOKENS) : spec->answer_tokens;
    if (!spec->chunk) spec->chunk = 2048;
    if (opt_given(o, OPT_EXPECTED_COMPLETION)) spec->expected_tokens = opt_int(o, OPT_EXPECTED_COMPLETION);
    if (spec->expected_tokens > spec->answer_tokens)
        return fail(e, ERR_USAGE, "--expected-completion %lld: no answer is longer than --max-tokens %lld",
                    (long long)spec->expected_tokens, (long long)spec->answer_tokens);
    int64_t row = spec->prompt_tokens + spec->answer_tokens;
    if (opt_given(o, OPT_SEQ) && s->seq != row)
        return fail(e, ERR_USAGE,
                    "--seq %lld: a row of grpo is a prompt and its answer, --prompt-tokens and --max-tokens: %lld",
                    (long long)s->seq, (long long)row);
    s->seq = row;
    if (opt_given(o, OPT_EVALUATOR_URL))
        g->remote_bytes = remote_bytes(
            &(RemoteSpec){.reply_bytes = remote_reply_bytes(spec->answer_tokens, spec->evaluator_tokens)});
    if (!set_batches(g, s, global_batch, o, e) || !open_reference(g, o, s, policy, e)) return false;
    spec->policy_is_frozen = s->lora;
    spec->needs_old = g->batches.needs_old_logps;
    spec->exact = opt_flag(o, OPT_EXACT_POLICY);
    if (spec->exact &&
        (opt_real(o, OPT_LORA_DROPOUT) > 0 || (opt_given(o, OPT_REPETITION) && opt_real(o, OPT_REPETITION) != 1)))
        return fail(
            e, ERR_USAGE,
            "--exact-policy: neither --lora-dropout nor --repetition-penalty goes with it: the trainer's forward "
            "would not be what tokens are drawn from");
    spec->has_evaluator = opt_given(o, OPT_EVALUATOR);
    if (spec->has_evaluator && !grpo_setup_side(&spec->evaluator, &g->evaluator, &spec->evaluator_may_move,
                                                "--evaluator", opt_text(o, OPT_EVALUATOR), policy, e))
        return false;
    set_start(&spec->reference, &g->reference, s, o);
    set_start(&spec->evaluator, &g->evaluator, s, o);
    g->task = grpo_task(spec);
    double temperature = opt_given(o, OPT_TEMPERATURE) ? opt_real(o, OPT_TEMPERATURE) : 1;
    if (temperature > 0) s->head_scale = (float)(1 / temperature);
    s->task = &g->task.task;
    s->no_sweep = true; /* what flows into the head depends on the log-probabilities it gives */
    s->warmup_steps =
        0; /* a policy answers with the keys that its indexer selects: it is trained so from the first update */
    s->warmup_frozen = false;
    return true;
}

void grpo_setup_free(GrpoSetup *g) {
    items_free(&g->items);
    items_free(&g->held_out);
    setup_words_free(&g->evaluator_words);
    layouts_free(&g->layouts);
}

/* ---- items ---- */

static bool query_of(ItemQuery *q, Str *meta, const Options *o, const Words *policy, Err *e) {
    *q = (ItemQuery){.parser = opt_text(o, OPT_PARSER),
                     .prompt_field = opt_text(o, OPT_PROMPT_FIELD),
                     .answer_field = opt_text(o, OPT_ANSWER_FIELD),
                     .plain = !policy->chat,
                     .shuffle = opt_flag(o, OPT_SHUFFLE),
                     .seed = (uint64_t)opt_int(o, OPT_SEED)};
    if (opt_given(o, OPT_META_PROMPT) && !items_meta_prompt(meta, opt_text(o, OPT_META_PROMPT), e)) return false;
    q->meta_prompt = str_text(meta);
    return true;
}

static bool is_drawn(const Options *o) {
    return opt_is(o, OPT_PARSER, "test");
}

/* The host memory that encoding takes while a rollout runs. Where prompts are short it is within what is taken for
 * the tokenizer. */
static bool count_encoding(Items *items, const Words *policy, Err *e) {
    enum { SHORT = 1 << 14 };
    TokenIds ids = {0};
    int64_t longest = 0;
    bool ok = true;
    for (int64_t i = 0; ok && policy->tokenizer && i < items->n; i++) {
        const Item *item = &items->item[i];
        if (item->length <= SHORT || (item->messages && !policy->chat)) continue;
        ok = answers_encode(policy->tokenizer, policy->chat, &ids, item, e);
        longest = MAX2(longest, item->length);
    }
    items->bytes += tokenizer_encoding_bytes(&ids, longest);
    token_ids_free(&ids);
    return ok;
}

bool grpo_setup_items(Items *out, const Options *o, OptId from, const Words *policy, Err *e) {
    Str meta = {0};
    ItemQuery q;
    if (!is_drawn(o) && !opt_given(o, from))
        return fail(e, ERR_USAGE, "--%s is missing: the rows that --parser %s reads (--parser test needs none)",
                    option_rows[from].name, opt_text(o, OPT_PARSER));
    bool ok = query_of(&q, &meta, o, policy, e), train = from == OPT_DATA && o->command != CMD_GRPO_EVAL;
    q.path = is_drawn(o) ? NULL : opt_text(o, from);
    if (train) {
        q.count = opt_given(o, OPT_MAX_SAMPLES) ? opt_int(o, OPT_MAX_SAMPLES) : -1;
    } else {
        q.seed = rng_fold(q.seed, 0xe7a1); /* additions of its own */
        q.count = opt_int(o, OPT_EVAL_ITEMS);
    }
    ok = ok && items_read(out, &q, e) && count_encoding(out, policy, e);
    str_free(&meta);
    return ok;
}

bool grpo_setup_read(GrpoSetup *g, const Options *o, const Words *policy, Err *e) {
    bool held_out = opt_int(o, OPT_EVAL_ITEMS) && (is_drawn(o) || opt_given(o, OPT_EVAL_DATA));
    if (!grpo_setup_items(&g->items, o, OPT_DATA, policy, e) ||
        !batches_check_prompts(&g->batches, g->items.n, e) ||
        (held_out && !grpo_setup_items(&g->held_out, o, OPT_EVAL_DATA, policy, e)))
        return false;
    if (!g->spec.has_evaluator || !g->evaluator.has_folder) return true;
    return setup_words_of(&g->evaluator_words, g->evaluator.folder, e) || e->code == ERR_NONE;
}

/* ---- who is asked how ---- */

Sampling grpo_setup_evaluator_sampling(const Options *o) {
    return (Sampling){.temperature = (float)opt_real(o, OPT_EVALUATOR_TEMPERATURE), .top_p = 1, .repetition = 1};
}

GrpoGenerator grpo_setup_voice(const Words *w, const StopIds *stop, Sampling how) {
    return (GrpoGenerator){.tokenizer = w->tokenizer, .chat = w->chat, .stop_id = stop->id, .n_stop_ids = stop->n,
                           .sampling = how};
}

bool grpo_setup_remote(RemoteSpec *r, const Options *o, int64_t max_tokens, Err *e) {
    if (opt_given(o, OPT_EVALUATOR))
        return fail(e, ERR_USAGE,
                    "--evaluator and --evaluator-url: an evaluator is on the ring or elsewhere; give one");
    *r = (RemoteSpec){.url = opt_text(o, OPT_EVALUATOR_URL),
                      .model = opt_text(o, OPT_EVALUATOR_NAME),
                      .key = getenv("OPENAI_API_KEY"),
                      .seed = opt_int(o, OPT_SEED),
                      .temperature = opt_real(o, OPT_EVALUATOR_TEMPERATURE),
                      .max_tokens = max_tokens,
                      .reply_bytes = remote_reply_bytes(opt_int(o, OPT_MAX_TOKENS), max_tokens)};
    return remote_api_find(&r->api, opt_text(o, OPT_EVALUATOR_API), e);
}

/* ---- rewards ---- */

static const char *reward_of_parser(const char *parser) {
    static const char *const own[][2] = {{"math", "accuracy"},
                                         {"easy_math", "easy_math"},
                                         {"poem", "poem"},
                                         {"classification", "classification"},
                                         {"test", "last_number"}};
    for (int i = 0; i < COUNT_OF(own); i++)
        if (!strcmp(parser, own[i][0])) return own[i][1];
    return "accuracy";
}

static bool set_command(RewardSetup *r, const Options *o, Err *e) {
    int n = 0;
    if (!opt_given(o, OPT_REWARD_COMMAND))
        return fail(e, ERR_USAGE, "--reward command: which? Give --reward-command 'PROGRAM WORDS...'");
    r->command = mem_strdup(opt_text(o, OPT_REWARD_COMMAND));
    for (char *word = strtok(r->command, " \t"); word; word = strtok(NULL, " \t")) {
        if (n == REWARD_COMMAND_WORDS)
            return fail(e, ERR_USAGE, "--reward-command: has more than %d words; put them into a script",
                        REWARD_COMMAND_WORDS);
        r->argv[n++] = word;
    }
    if (!n) return fail(e, ERR_USAGE, "--reward-command: is empty");
    r->scorer = (ScorerSpec){.argv = r->argv,
                             .processes = (int)opt_int(o, OPT_REWARD_PROCESSES),
                             .seconds = opt_real(o, OPT_REWARD_SECONDS),
                             .err_fd = -1};
    r->set.command = &r->scorer;
    return true;
}

bool grpo_setup_rewards(RewardSetup *r, const Options *o, Err *e) {
    RewardSet *set = &r->set;
    const char *own = reward_of_parser(opt_text(o, OPT_PARSER)), *const *names = &own, *const * weights;
    int n = opt_given(o, OPT_REWARD) ? opt_list(o, OPT_REWARD, &names) : 1;
    int n_weights = opt_given(o, OPT_REWARD_WEIGHTS) ? opt_list(o, OPT_REWARD_WEIGHTS, &weights) : 0;
    if (n > REWARDS_MOST) return fail(e, ERR_USAGE, "--reward: %d at most", REWARDS_MOST);
    if (n_weights && n_weights != n)
        return fail(e, ERR_USAGE, "--reward-weights: %d for %d rewards", n_weights, n);
    for (int i = 0; i < n; i++) {
        bool command = !strcmp(names[i], "command");
        set->name[i] = names[i];
        set->weight[i] = 1;
        if (command ? !set_command(r, o, e) : !(set->reward[i] = reward_find(names[i], e))) return false;
        char *end = NULL;
        if (n_weights) set->weight[i] = strtod(weights[i], &end);
        if (n_weights && (end == weights[i] || *end || !isfinite(set->weight[i])))
            return fail(e, ERR_USAGE, "--reward-weights %s: is not a number", weights[i]);
    }
    set->n = n;
    return true;
}

/* ---- what is planned ---- */

static bool share_prompts(GrpoSetup *g, const JobSpec *s, const Options *o, Err *e) {
    const BatchSpec *b = &g->batches.spec;
    const char *why = g->repeats = layout_forbids(&g->spec, &s->m.config, b->steps <= b->accum);
    g->spec.share_prompts = !why && !opt_is(o, OPT_SHARE_PROMPTS, "off");
    return !why || !opt_is(o, OPT_SHARE_PROMPTS, "on") ||
           fail(e, ERR_USAGE,
                "--share-prompts on: %s. Leave it at auto: each answer's row repeats its prompt then", why);
}

bool grpo_setup_shape(GrpoSetup *g, JobSpec *s, int64_t global_batch, const Options *o, MachineKind kind, Err *e) {
    g->spec.weights_stay = kind == MACHINE_CPU || !opt_is(o, OPT_OFFLOAD, "auto");
    if (!share_prompts(g, s, o, e)) return false;
    g->task = grpo_task(&g->spec);
    layouts_make(&g->layouts, &g->spec, global_batch, g->batches.completions);
    g->task.layouts = &g->layouts;
    job_set_micro(s, job_micro_samples(s), kind);
    s->attend = s->attend_asked = ATTEND_OWN; /* answers lie side by side in a row */
    s->evaluate = false;                      /* held-out items are answered, not scored by a loss */
    return true;
}

/* Of an update of the fastest plan; 0: none fits. */
static double update_seconds(JobSpec s, const Options *o, const Machine *m, const HostBytes *host, FitLimits limits) {
    Search *f = MEM_NEW(Search, 1);
    FitCost cost;
    bool fits = job_search(f, &s, m, host, setup_freedom(o), limits) && job_cost_of(&cost, &s, m, host);
    search_free(f);
    mem_free(f);
    return fits ? cost.seconds : 0;
}

/* Fewer tokens are computed with prompts that are shared; on a GPU only snug's kernels by mma.sync attend to them. */
void grpo_setup_layout(GrpoSetup *g, JobSpec *s, const Options *o, const Machine *m, const Words *policy,
                       FitLimits limits) {
    if (!opt_is(o, OPT_SHARE_PROMPTS, "auto") || !g->spec.share_prompts) return;
    HostBytes host = grpo_setup_host(g, s, policy);
    GrpoTask task = g->task;
    JobSpec repeated = *s;
    task.spec.share_prompts = false;
    repeated.task = &task.task;
    job_set_micro(&repeated, job_micro_samples(s), m->kind);
    double with = g->shared_seconds = update_seconds(*s, o, m, &host, limits);
    double without = g->repeated_seconds = update_seconds(repeated, o, m, &host, limits);
    if (with <= 0 || without <= 0 || with <= without * (1 + FIT_SAME_TIME)) return;
    g->spec.share_prompts = g->task.spec.share_prompts = false;
    job_set_micro(s, job_micro_samples(s), m->kind);
}

static int64_t words_bytes(const Words *w) {
    return w->tokenizer ? tokenizer_bytes(w->tokenizer) : 0;
}

/* What an evaluator wrote to every answer, and what a remote one is sending. */
static int64_t evaluated_bytes(const GrpoSetup *g) {
    enum { TEXT_BYTES = 8 }; /* of a token */
    const Batches *b = &g->batches;
    int64_t answers = b->completions * b->generations + g->held_out.n;
    bool evaluated = g->spec.has_evaluator || g->remote_bytes;
    return evaluated ? answers * TEXT_BYTES * g->spec.evaluator_tokens + g->remote_bytes : 0;
}

HostBytes grpo_setup_host(const GrpoSetup *g, const JobSpec *s, const Words *policy) {
    return (HostBytes){.data = g->items.bytes + g->held_out.bytes,
                       .tokenizer = words_bytes(policy) + words_bytes(&g->evaluator_words),
                       .batches = grpo_host_bytes(s, &g->batches, g->items.n, g->held_out.n) + evaluated_bytes(g)};
}

int64_t grpo_setup_updates(const GrpoSetup *g, const Options *o, int64_t *per_epoch) {
    *per_epoch = g->items.n ? batches_rollouts(&g->batches, g->items.n, 1) * g->batches.updates : 0;
    if (opt_given(o, OPT_STEPS)) return opt_int(o, OPT_STEPS);
    return MAX2((int64_t)ceil(opt_real(o, OPT_EPOCHS) * (double)*per_epoch - 1e-9), *per_epoch ? 1 : 0);
}
