/* setup.c - how options become a training or evaluation job; what it shares with answers is setup_model.c's. */
#include "cli/setup.h"

#include <stdlib.h>
#include <string.h>

#include "store/adapter.h"

static bool set_master(JobSpec *s, const Options *o, Err *e) {
    s->master = opt_is(o, OPT_MASTER, "fp32") || (opt_is(o, OPT_MASTER, "auto") && s->weights == FMT_F16);
    if (s->weights != FMT_F16 || s->master) return true;
    return fail(e, ERR_USAGE, "--master none: fp16 weights are rounded to nearest, which loses small updates; leave "
                "it at auto, or use --precision bf16");
}

bool setup_fall_back(JobSpec *s, const Options *o, const Machine *m, Err *e) {
    if (!setup_fall_back_model(&s->m, o, m)) return true;
    bool named = s->train && s->lora && opt_is(o, OPT_ADAPTER_DTYPE, "bf16");
    if (!named && s->weights == FMT_BF16) s->weights = s->gradients = FMT_F16;
    return !s->train || set_master(s, o, e);
}

/* The projections that an option names and the model has: "q" is "q_proj". */
static uint32_t targets_of(const ModelConfig *c, const Options *o, OptId id) {
    const char *const *list;
    const ModelFamily *family = model_family(c);
    uint32_t named = 0;
    for (int i = 0, n = opt_list(o, id, &list); i < n; i++)
        for (int p = 0; p < family->n_projections; p++) {
            const char *name = model_projection_name(family, p);
            size_t stem = strcspn(name, "_");
            if (!strncmp(list[i], name, stem) && !list[i][stem]) named |= 1u << p;
        }
    return named & (family->present ? family->present(c) : UINT32_MAX);
}

static bool add_rules(NameRules *r, const Options *o, OptId id, Err *e) {
    const char *part;
    double mult;
    r->option = option_rows[id].name;
    for (int i = 0; opt_pair(o, id, i, &part, &mult); i++) {
        if (r->n == JOB_RULES) return fail(e, ERR_USAGE, "--%s: more than %d groups", r->option, JOB_RULES);
        r->rule[r->n++] = (NameRule){.part = part, .mult = (float)mult};
    }
    return true;
}

/* Parameters that learn or decay at rates of their own. An indexer's rate is a group like any other, and comes first:
 * --lr-mult may say otherwise. */
static bool set_groups(JobSpec *s, const Options *o, Err *e) {
    if (s->m.config.type == TYPE_GSA)
        s->lr_rules.rule[s->lr_rules.n++] =
            (NameRule){.part = "indexer", .mult = (float)opt_real(o, OPT_INDEXER_LR), .may_miss = true};
    return add_rules(&s->lr_rules, o, OPT_LR_MULT, e) && add_rules(&s->decay_rules, o, OPT_DECAY_MULT, e);
}

/* What is trained: adapters as the options shape them, or as the given one is, or all weights. */
static bool set_lora(JobSpec *s, const Options *o, Err *e) {
    LoraSpec *a = &s->m.adapter;
    const char *dtype = opt_text(o, OPT_ADAPTER_DTYPE);
    bool given = opt_given(o, OPT_ADAPTER);
    s->lora = opt_is(o, OPT_MODE, "lora");
    if (!s->lora)
        return !given || fail(e, ERR_USAGE, "--adapter %s: belongs to --mode lora", opt_text(o, OPT_ADAPTER));
    if (!given) {
        a->rank = (int)opt_int(o, OPT_LORA_RANK);
        a->alpha = (float)opt_real(o, OPT_LORA_ALPHA);
        a->targets = targets_of(&s->m.config, o, OPT_LORA_TARGETS);
        uint32_t also = opt_given(o, OPT_LORA_ALSO) ? targets_of(&s->m.config, o, OPT_LORA_ALSO) : 0;
        if (opt_given(o, OPT_LORA_ALSO) && !also)
            return fail(e, ERR_USAGE, "--lora-also %s: %s has no such part; the option is for models of type gsa",
                        opt_text(o, OPT_LORA_ALSO), s->m.config.name);
        a->targets |= also;
    }
    a->dropout = (float)opt_real(o, OPT_LORA_DROPOUT);
    a->format = !strcmp(dtype, "fp32") ? FMT_F32 : !strcmp(dtype, "bf16") ? FMT_BF16 : s->weights;
    s->weights = s->gradients = a->format;
    return true;
}

static void set_optimizer(JobSpec *s, const Options *o) {
    bool fp32 = opt_is(o, OPT_MOMENTS, "fp32") || (opt_is(o, OPT_MOMENTS, "auto") && s->weights == FMT_F32);
    bool sgd = opt_is(o, OPT_OPTIMIZER, "sgd");
    s->moments = opt_is(o, OPT_MOMENTS, "8bit") ? MOMENTS_8BIT : fp32 ? MOMENTS_F32 : MOMENTS_BF16;
    s->optimizer = sgd ? OPTIMIZER_SGD : OPTIMIZER_ADAMW;
    s->update = (AttrUpdate){.beta1 = (float)opt_real(o, sgd ? OPT_MOMENTUM : OPT_BETA1),
                             .beta2 = (float)opt_real(o, OPT_BETA2),
                             .eps = (float)opt_real(o, OPT_EPS),
                             .weight_decay = (float)opt_real(o, OPT_WEIGHT_DECAY),
                             .lr_mult = 1};
}

/* The stage in which only an indexer's own part learns from the rest of its model: models of type gsa. */
static bool set_warmup(JobSpec *s, const Options *o, Err *e) {
    const ModelConfig *c = &s->m.config;
    const ModelFamily *family = model_family(c);
    bool asked = opt_given(o, OPT_INDEXER_WARMUP) || opt_given(o, OPT_INDEXER_WARMUP_STEPS);
    uint32_t indexer = family->present ? family->present(c) >> ADAPTER_INDEX_QUERY << ADAPTER_INDEX_QUERY : 0;
    bool learns = family->has_warmup && family->has_warmup(c) && (!s->lora || s->m.adapter.targets & indexer);
    bool counted = opt_given(o, OPT_INDEXER_WARMUP_STEPS),
         outweighs = counted && o->value[OPT_INDEXER_WARMUP_STEPS].source > o->value[OPT_INDEXER_WARMUP].source;
    bool none = !opt_given(o, OPT_INDEXER_WARMUP) ? !c->gsa.warmup && !asked
                                                  : opt_is(o, OPT_INDEXER_WARMUP, "none") && !outweighs;
    int64_t steps = counted ? opt_int(o, OPT_INDEXER_WARMUP_STEPS) : c->gsa.warmup_steps;
    if (!learns)
        return !asked || none || (counted && !steps) ||
               fail(e, ERR_USAGE,
                    "--indexer-warmup: %s has no indexer that learns here (models of type gsa with --selection "
                    "learned; with --mode lora also --lora-also query,key,weight). Without one, give "
                    "--indexer-warmup none",
                    c->name);
    s->warmup_steps = none ? 0 : steps;
    s->warmup_frozen = opt_given(o, OPT_INDEXER_WARMUP) && opt_is(o, OPT_INDEXER_WARMUP, "frozen");
    return true;
}

/* A training or evaluation pass reads a quantised folder as it is: answers alone may store it otherwise. */
static bool check_storage(const ModelSpec *m, const Options *o, Err *e) {
    const ModelConfig *c = &m->config;
    if (c->quant != QUANT_OWN || m->random_init) return true;
    if (!m->quantised || m->stored != c->quant_format)
        return fail(e, ERR_USAGE,
                    "--quantize %s: %s is stored as %s already; leave the option out, or begin from the model "
                    "before it was quantised",
                    opt_text(o, OPT_QUANTIZE), c->name, format_name(c->quant_format));
    return !c->quant_head || m->head_int8 ||
           fail(e, ERR_USAGE,
                "--quantize-head none: the head of %s is stored as int8 already; leave the option out, or begin "
                "from the model before it was quantised",
                c->name);
}

/* Inside backward: only where nothing has to be known about the other gradients. */
static bool set_update(JobSpec *s, const Options *o, Err *e) {
    bool supervised = o->command != CMD_GRPO && !opt_is(o, OPT_TASK, "grpo");
    s->limited = supervised && (opt_is(o, OPT_ON_SPIKE, "skip") || opt_is(o, OPT_ON_SPIKE, "stop"));
    s->whole_updates = s->limited || (supervised && opt_is(o, OPT_ON_NONFINITE, "skip"));
    s->gradient_noise = (ON_SUPERVISED | ON_PLAN) >> o->command & 1 && opt_flag(o, OPT_GRADIENT_NOISE);
    s->update_in_backward = opt_is(o, OPT_UPDATE_IN_BACKWARD, "on");
    if (!s->update_in_backward) return true;
    if (opt_real(o, OPT_CLIP) > 0)
        return fail(e, ERR_USAGE,
                    "--update-in-backward on: --clip %g needs the norm of all gradients before the first weight "
                    "is written. Give --clip 0, which changes the mathematics, or leave the update behind backward",
                    opt_real(o, OPT_CLIP));
    if (s->whole_updates)
        return fail(
            e, ERR_USAGE,
            "--update-in-backward on: weights are written before the loss of the whole update is known, so none "
            "can be skipped; leave --on-spike at warn and --on-nonfinite at stop, or the update behind backward");
    if (s->gradient_noise)
        return fail(e, ERR_USAGE, "--update-in-backward on: no gradient is whole at any time, so --gradient-noise has "
                    "nothing to measure; leave one of them out");
    if (s->accum > 1)
        return fail(e, ERR_USAGE, "--update-in-backward on: %lld micro-batches are added up before an update; give "
                    "--micro-batch %lld --accum 1, or leave the update behind backward", (long long)s->accum,
                    (long long)(s->accum * s->micro_batch));
    return true;
}

static bool set_ffn_chunks(JobSpec *s, const Options *o, Err *e) {
    const char *text = opt_text(o, OPT_FFN_CHUNKS);
    char *end;
    if (!strcmp(text, "auto")) return true;
    s->ffn_chunks = strtol(text, &end, 10);
    return (*text && !*end && s->ffn_chunks >= 1 && s->ffn_chunks <= 65536) ||
           fail(e, ERR_USAGE, "--ffn-chunks %s: is neither auto nor a number of pieces from 1 to 65536", text);
}

static bool check_trainable(const JobSpec *s, const Options *o, Err *e) {
    const char *kind = format_name(s->m.stored);
    if (!s->m.quantised || s->lora) return true;
    if (!opt_given(o, OPT_QUANTIZE))
        return fail(e, ERR_USAGE,
                    "--model %s: its weights are stored as %s, and such weights are not trained: add adapters to them "
                    "(--mode lora), or begin from the model before it was quantised",
                    opt_text(o, OPT_MODEL), kind);
    return fail(e, ERR_USAGE, "--quantize %s: trained weights are not quantised; it goes with --mode lora", kind);
}

static bool set_training(JobSpec *s, int64_t *global_batch, const Options *o, Err *e) {
    if (!set_lora(s, o, e)) return false;
    set_optimizer(s, o);
    if (!set_groups(s, o, e) || !set_master(s, o, e)) return false;
    if (!check_trainable(s, o, e)) return false;
    s->accum = opt_int(o, OPT_ACCUM); /* agrees with --global-batch: the options see to it */
    *global_batch = opt_int(o, OPT_GLOBAL_BATCH);
    if (!set_warmup(s, o, e) || !set_update(s, o, e)) return false;
    const char *recompute = opt_text(o, OPT_RECOMPUTE);
    return plan_parse_recompute(s->recompute, s->m.config.layers, strcmp(recompute, "auto") ? recompute : "none", e);
}

bool setup_spec(JobSpec *s, int64_t *global_batch, const Options *o, const ModelConfig *c, bool train, Err *e) {
    *s = (JobSpec){.train = train,
                   .seq = opt_int(o, OPT_SEQ),
                   .micro_batch = opt_int(o, OPT_MICRO_BATCH),
                   .head_chunk = opt_int(o, OPT_HEAD_CHUNK),
                   .accum = 1};
    if (!set_ffn_chunks(s, o, e) || !setup_model_spec(&s->m, o, c, e) || !check_storage(&s->m, o, e)) return false;
    s->weights = s->gradients = s->m.activations;
    return !train || set_training(s, global_batch, o, e);
}

bool setup_attention(JobSpec *s, const Options *o, bool packed, Err *e) {
    bool library = opt_is(o, OPT_ATTENTION, "cudnn");
    if (library && packed)
        return fail(e, ERR_USAGE, "--attention cudnn: attends to whole rows and these are packed; add --pack off");
    bool own = packed || opt_is(o, OPT_ATTENTION, "own") || (!library && opt_flag(o, OPT_DETERMINISTIC));
    s->attend = s->attend_asked = own ? ATTEND_OWN : library ? ATTEND_LIBRARY : ATTEND_FAST;
    return true;
}
