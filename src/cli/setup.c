/* setup.c - how options become a job. */
#include "cli/setup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "cli/share.h"
#include "store/adapter.h"
#include "store/hf.h"

bool setup_model(ModelFiles *m, const Options *o, Err *e) {
    return setup_model_named(m, "--model", opt_text(o, OPT_MODEL), e) &&
           (!opt_given(o, OPT_SELECTION) || config_select(&m->config, opt_text(o, OPT_SELECTION), e)) &&
           (!opt_given(o, OPT_GATES) || config_gates(&m->config, opt_text(o, OPT_GATES), e));
}

/* Where the hub's library keeps models: the first of these variables that is set, in its order. */
static const char *hub_cache(char path[SHARE_PATH]) {
    static const struct {
        const char *variable, *below;
    } places[] = {{"HF_HUB_CACHE", ""},
                  {"HUGGINGFACE_HUB_CACHE", ""},
                  {"HF_HOME", "/hub"},
                  {"XDG_CACHE_HOME", "/huggingface/hub"},
                  {"HOME", "/.cache/huggingface/hub"}};
    for (int i = 0; i < COUNT_OF(places); i++) {
        const char *at = getenv(places[i].variable), *home = getenv("HOME");
        bool in_home = at && str_starts(at, "~/") && home;
        if (!at || !*at) continue;
        int n = snprintf(path, SHARE_PATH, "%s%s%s", in_home ? home : "", in_home ? at + 1 : at, places[i].below);
        return n < SHARE_PATH ? path : NULL;
    }
    return NULL;
}

bool setup_model_named(ModelFiles *m, const char *flag, const char *name, Err *e) {
    char cache[SHARE_PATH];
    *m = (ModelFiles){0};
    if (!hf_resolve(m->folder, sizeof m->folder, &m->has_folder, name, hub_cache(cache), e)) return false;
    if (m->has_folder) return config_from_file(&m->config, m->folder, e);
    if (config_from_preset(&m->config, name)) return true;
    char path[SHARE_PATH];
    const char *own = share_find(path, "models", name);
    if (own != name) return setup_model_named(m, flag, own, e);
    return fail(e, ERR_FAIL,
                "%s %s: no such folder with a config.json, not in the local Hugging Face cache, and not a preset. "
                "Presets: %s",
                flag, name, config_preset_names());
}

bool setup_need_weights(const ModelFiles *m, const Options *o, Err *e) {
    char hub[200];
    const char *name = opt_text(o, OPT_MODEL), *random = "";
    if (m->has_folder) return true;
    if ((ON_TRAIN >> o->command & 1) || (ON_GEN >> o->command & 1))
        random = "; or begin from random weights with --init random";
    if (!config_preset_hub(hub, sizeof hub, name))
        return fail(e, ERR_FAIL,
                    "--model %s: is a preset without weights. Give a folder with config.json, tokenizer.json and "
                    "*.safetensors (`snug convert --from llama2c` makes one of llama2.c's files, `snug init` a random "
                    "one)%s",
                    name, random);
    return fail(e, ERR_FAIL,
                "--model %s: is a preset without weights. Give a folder with config.json, tokenizer.json and "
                "*.safetensors, for example one made by `huggingface-cli download %s --local-dir %s`; what that tool "
                "has put into its cache is found by --model %s as well%s",
                name, hub, m->config.name, hub, random);
}

/* ---- the job ---- */

static void set_precision(JobSpec *s, const Options *o) {
    const char *p = opt_text(o, OPT_PRECISION);
    bool f32 = !strcmp(p, "fp32") || (!strcmp(p, "auto") && s->m.config.dtype == FMT_F32);
    s->m.activations = s->weights = s->gradients = f32 ? FMT_F32 : !strcmp(p, "fp16") ? FMT_F16 : FMT_BF16;
}

static bool set_master(JobSpec *s, const Options *o, Err *e) {
    s->master = opt_is(o, OPT_MASTER, "fp32") || (opt_is(o, OPT_MASTER, "auto") && s->weights == FMT_F16);
    if (s->weights != FMT_F16 || s->master) return true;
    return fail(e, ERR_USAGE, "--master none: fp16 weights are rounded to nearest, which loses small updates; leave "
                "it at auto, or use --precision bf16");
}

bool setup_lacks_bf16(const Options *o, const Machine *m, Format activations) {
    if (machine_has_bf16(m) || !opt_is(o, OPT_PRECISION, "auto") || activations != FMT_BF16) return false;
    log_line("%s has no bf16 (compute capability %d.%d): --precision fp16 (docs/precision.md)", m->name,
             m->capability / 10, m->capability % 10);
    return true;
}

bool setup_fall_back(JobSpec *s, const Options *o, const Machine *m, Err *e) {
    if (!setup_lacks_bf16(o, m, s->m.activations)) return true;
    bool as_asked = s->train && s->lora && opt_is(o, OPT_ADAPTER_DTYPE, "bf16"); /* what was named does not fall back */
    s->m.activations = FMT_F16;
    if (!as_asked && s->m.adapter.format == FMT_BF16) s->m.adapter.format = FMT_F16;
    if (!as_asked && s->weights == FMT_BF16) s->weights = s->gradients = FMT_F16;
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
    if (!(ON_TRAIN >> o->command & 1)) return true;
    if (s->m.config.type == TYPE_GSA)
        s->lr_rules.rule[s->lr_rules.n++] =
            (NameRule){.part = "indexer", .mult = (float)opt_real(o, OPT_INDEXER_LR), .may_miss = true};
    return add_rules(&s->lr_rules, o, OPT_LR_MULT, e) && add_rules(&s->decay_rules, o, OPT_DECAY_MULT, e);
}

static void set_training(JobSpec *s, const Options *o) {
    const char *moments = opt_text(o, OPT_MOMENTS), *dtype = opt_text(o, OPT_ADAPTER_DTYPE);
    s->lora = opt_is(o, OPT_MODE, "lora");
    if (s->lora) {
        s->m.adapter.rank = (int)opt_int(o, OPT_LORA_RANK);
        s->m.adapter.alpha = (float)opt_real(o, OPT_LORA_ALPHA);
        s->m.adapter.dropout = (float)opt_real(o, OPT_LORA_DROPOUT);
        s->m.adapter.format = !strcmp(dtype, "fp32") ? FMT_F32 : !strcmp(dtype, "bf16") ? FMT_BF16 : s->weights;
        s->weights = s->gradients = s->m.adapter.format;
        s->m.adapter.targets = targets_of(&s->m.config, o, OPT_LORA_TARGETS);
        if (opt_given(o, OPT_LORA_ALSO)) s->m.adapter.targets |= targets_of(&s->m.config, o, OPT_LORA_ALSO);
    }
    s->moments = !strcmp(moments, "8bit") ? MOMENTS_8BIT
                 : !strcmp(moments, "fp32") || (!strcmp(moments, "auto") && s->weights == FMT_F32) ? MOMENTS_F32 : MOMENTS_BF16;
    s->optimizer = opt_is(o, OPT_OPTIMIZER, "sgd") ? OPTIMIZER_SGD : OPTIMIZER_ADAMW;
    s->update = (AttrUpdate){.beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f, .lr_mult = 1};
    if ((ON_TRAIN >> o->command & 1)) {
        s->update.beta1 = (float)opt_real(o, OPT_BETA1);
        s->update.beta2 = (float)opt_real(o, OPT_BETA2);
        s->update.eps = (float)opt_real(o, OPT_EPS);
        s->update.weight_decay = (float)opt_real(o, OPT_WEIGHT_DECAY);
    }
    if (s->optimizer == OPTIMIZER_SGD) s->update.beta1 = (float)opt_real(o, OPT_MOMENTUM);
}

/* The stage in which only an indexer's own part learns from the rest of its model: models of type gsa. */
static bool set_warmup(JobSpec *s, const Options *o, Err *e) {
    const ModelConfig *c = &s->m.config;
    const ModelFamily *family = model_family(c);
    bool asked = opt_given(o, OPT_INDEXER_WARMUP) || opt_given(o, OPT_INDEXER_WARMUP_STEPS);
    uint32_t indexer = family->present ? family->present(c) >> ADAPTER_INDEX_QUERY << ADAPTER_INDEX_QUERY : 0;
    bool learns = family->has_warmup && family->has_warmup(c) && (!s->lora || s->m.adapter.targets & indexer);
    if (!learns)
        return !asked ||
               fail(
                   e, ERR_USAGE,
                   "--indexer-warmup: %s has no indexer that learns here (models of type gsa with --selection learned; "
                   "with --mode lora also --lora-also query,key,weight)",
                   c->name);
    bool none = opt_given(o, OPT_INDEXER_WARMUP) ? opt_is(o, OPT_INDEXER_WARMUP, "none") : !c->gsa.warmup && !asked;
    int64_t steps = opt_given(o, OPT_INDEXER_WARMUP_STEPS) ? opt_int(o, OPT_INDEXER_WARMUP_STEPS) : c->gsa.warmup_steps;
    s->warmup_steps = none ? 0 : steps;
    s->warmup_frozen = opt_given(o, OPT_INDEXER_WARMUP) && opt_is(o, OPT_INDEXER_WARMUP, "frozen");
    return true;
}

/* How a frozen model's projections are kept: as asked, or as its folder holds them. */
static bool set_storage(JobSpec *s, const Options *o, Err *e) {
    const ModelConfig *c = &s->m.config;
    s->m.quantised = !opt_is(o, OPT_QUANTIZE, "none");
    s->m.stored = opt_is(o, OPT_QUANTIZE, "nf4") ? FMT_NF4 : FMT_INT8;
    s->m.head_int8 = opt_is(o, OPT_QUANTIZE_HEAD, "int8");
    if (c->quant == QUANT_BNB_NF4)
        log_line("%s: bitsandbytes nf4, dequantised while loading%s%s", c->name,
                 s->m.quantised ? " and quantised again as " : " to ",
                 format_name(s->m.quantised ? s->m.stored : c->dtype));
    if (c->quant != QUANT_OWN || ((ON_TRAIN >> o->command & 1) && opt_given(o, OPT_INIT))) return true;
    if (opt_given(o, OPT_QUANTIZE) && (!s->m.quantised || s->m.stored != c->quant_format))
        return fail(e, ERR_USAGE, "--quantize %s: %s is stored as %s already; leave the option out, or begin from the model before it was "
                    "quantised", opt_text(o, OPT_QUANTIZE), c->name, format_name(c->quant_format));
    if (c->quant_head && opt_given(o, OPT_QUANTIZE_HEAD) && !s->m.head_int8)
        return fail(e, ERR_USAGE, "--quantize-head none: the head of %s is stored as int8 already; leave the option out, or begin from "
                    "the model before it was quantised", c->name);
    s->m.quantised = true;
    s->m.stored = c->quant_format;
    s->m.head_int8 |= c->quant_head;
    return true;
}

/* Inside backward: only where nothing has to be known about the other gradients. */
static bool set_update(JobSpec *s, const Options *o, Err *e) {
    bool supervised = ON_SUPERVISED >> o->command & 1;
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
            "can "
            "be skipped; leave --on-spike at warn and --on-nonfinite at stop, or the update behind backward");
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

bool setup_spec(JobSpec *s, int64_t *global_batch, const Options *o, const ModelConfig *c, bool train, Err *e) {
    *s = (JobSpec){.m.config = *c, .train = train};
    s->seq = opt_int(o, OPT_SEQ);
    s->micro_batch = opt_int(o, OPT_MICRO_BATCH);
    s->head_chunk = opt_int(o, OPT_HEAD_CHUNK);
    s->accum = 1;
    if (!set_ffn_chunks(s, o, e)) return false;
    set_precision(s, o);
    const char *offload = opt_text(o, OPT_OFFLOAD);
    const char *homes = strcmp(offload, "auto") ? offload : "none";
    if (!set_storage(s, o, e) || !offload_parse(&s->m.offload, c->layers, homes, e)) return false;
    if (strstr(offload, "=disk") && !opt_given(o, OPT_OFFLOAD_DIR))
        return fail(e, ERR_USAGE, "--offload %s: what is kept on disk needs a folder; give --offload-dir DIR", offload);
    if (!train) return true;
    set_training(s, o);
    if (!set_groups(s, o, e) || !set_master(s, o, e)) return false;
    if (s->m.quantised && !s->lora)
        return fail(e, ERR_USAGE, "--quantize %s: trained weights are not quantised; it goes with --mode lora",
                    format_name(s->m.stored));
    s->accum = opt_int(o, OPT_ACCUM); /* agrees with --global-batch: the options see to it */
    *global_batch = opt_int(o, OPT_GLOBAL_BATCH);
    s->m.random_init = (ON_TRAIN >> o->command & 1) && opt_given(o, OPT_INIT);
    if (ON_TRAIN >> o->command & 1) s->m.seed = (uint64_t)opt_int(o, OPT_SEED);
    if (!set_warmup(s, o, e) || !set_update(s, o, e)) return false;
    const char *recompute = opt_text(o, OPT_RECOMPUTE);
    return plan_parse_recompute(s->recompute, c->layers, strcmp(recompute, "auto") ? recompute : "none", e);
}

bool setup_adapter(JobSpec *s, const Options *o, Err *e) {
    if (!opt_given(o, OPT_ADAPTER)) return true;
    AdapterConfig c;
    if (!adapter_config_read(&c, opt_text(o, OPT_ADAPTER), e)) return false;
    if (s->train && !s->lora)
        return fail(e, ERR_USAGE, "--adapter %s: belongs to --mode lora", opt_text(o, OPT_ADAPTER));
    Format format = s->train ? s->m.adapter.format : s->m.activations;
    s->m.adapter = (LoraSpec){.rank = c.rank,
                              .alpha = (float)(adapter_scale(&c) * c.rank),
                              .targets = c.targets,
                              .format = format,
                              .dropout = s->m.adapter.dropout};
    return true;
}

bool setup_attention(JobSpec *s, const Options *o, bool packed, Err *e) {
    bool library = opt_is(o, OPT_ATTENTION, "cudnn");
    if (library && packed)
        return fail(e, ERR_USAGE, "--attention cudnn: attends to whole rows and these are packed; add --pack off");
    bool own = packed || opt_is(o, OPT_ATTENTION, "own") || (!library && opt_flag(o, OPT_DETERMINISTIC));
    s->attend = s->attend_asked = own ? ATTEND_OWN : library ? ATTEND_LIBRARY : ATTEND_FAST;
    return true;
}
