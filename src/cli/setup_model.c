/* setup_model.c - which model the options name and how they say it is kept: precision, storage, start, offload and
 * adapter, the same for every command that runs one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "base/log.h"
#include "cli/setup.h"
#include "cli/share.h"
#include "store/adapter.h"
#include "store/hf.h"

/* ---- where it is ---- */

/* A switch may leave parts of a folder's weights out, and ask for none that it lacks. */
static bool check_parts(const ModelFiles *m, const GsaConfig *has, const Options *o, Err *e) {
    const GsaConfig *asked = &m->config.gsa;
    bool drawn = opt_given(o, OPT_INIT) || (ON_INIT | ON_PLAN) >> o->command & 1, output = !has->output_gate;
    if (drawn || !m->has_folder) return true;
    if (has->selection == SELECTION_ALL && asked->selection != SELECTION_ALL)
        return fail(
            e, ERR_USAGE,
            "--selection %s: %s attends to all keys and has no indexer; `snug convert --from dense` draws one "
            "for a Llama, Qwen or Mistral folder",
            opt_text(o, OPT_SELECTION), m->folder);
    bool lacks = (asked->value_gate && !has->value_gate) || (asked->output_gate && output);
    return !lacks ||
           fail(e, ERR_USAGE,
                "--gates %s: %s has no gate on %s; gates are made with the model (`snug init --gates`, `snug "
                "convert --from dense --gates`)",
                opt_text(o, OPT_GATES), m->folder,
                has->value_gate || has->output_gate ? (output ? "outputs" : "values") : "values or outputs");
}

bool setup_model(ModelFiles *m, const Options *o, Err *e) {
    if (!setup_model_named(m, "--model", opt_text(o, OPT_MODEL), e)) return false;
    GsaConfig has = m->config.gsa;
    return (!opt_given(o, OPT_SELECTION) || config_select(&m->config, opt_text(o, OPT_SELECTION), e)) &&
           (!opt_given(o, OPT_GATES) || config_gates(&m->config, opt_text(o, OPT_GATES), e)) &&
           check_parts(m, &has, o, e);
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
    size_t end = strlen(name);
    if (end > 5 && !strcasecmp(name + end - 5, ".gguf"))
        return fail(e, ERR_FAIL,
                    "%s %s: GGUF files are not read. Take the model's folder as the hub has it: config.json, "
                    "tokenizer.json and *.safetensors; --quantize int8 or nf4 makes it as small",
                    flag, name);
    if (file_exists(name))
        return fail(e, ERR_FAIL, "%s %s: is a file; name the folder in which config.json and the weights lie", flag,
                    name);
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

/* ---- how it is kept ---- */

static Format activations_of(const Options *o, const ModelConfig *c) {
    bool f32 = opt_is(o, OPT_PRECISION, "fp32") || (opt_is(o, OPT_PRECISION, "auto") && c->dtype == FMT_F32);
    return f32 ? FMT_F32 : opt_is(o, OPT_PRECISION, "fp16") ? FMT_F16 : FMT_BF16;
}

/* Frozen projections and head: as asked, or else as the model's folder holds them. */
static void set_storage(ModelSpec *m, const Options *o) {
    const ModelConfig *c = &m->config;
    m->quantised = !opt_is(o, OPT_QUANTIZE, "none");
    m->stored = opt_is(o, OPT_QUANTIZE, "nf4") ? FMT_NF4 : FMT_INT8;
    m->head_int8 = opt_is(o, OPT_QUANTIZE_HEAD, "int8");
    if (c->quant == QUANT_BNB_NF4 && !m->random_init)
        log_line("%s: bitsandbytes nf4, dequantised while loading%s%s", c->name,
                 m->quantised ? " and quantised again as " : " to ", format_name(m->quantised ? m->stored : c->dtype));
    if (c->quant != QUANT_OWN || m->random_init) return;
    if (!opt_given(o, OPT_QUANTIZE)) m->quantised = true, m->stored = c->quant_format;
    m->head_int8 |= c->quant_head && !opt_given(o, OPT_QUANTIZE_HEAD);
}

/* auto leaves it to the planner: nothing is offloaded until it says so. */
static bool set_offload(ModelSpec *m, const Options *o, Err *e) {
    const char *text = opt_text(o, OPT_OFFLOAD);
    bool on_disk = false;
    if (!strcmp(text, "auto")) return true;
    if (!offload_parse(&m->offload, m->config.layers, text, e)) return false;
    for (int kind = 0; kind < OFFLOAD_KINDS; kind++) on_disk |= m->offload.on_disk[kind] > 0;
    return !on_disk || opt_given(o, OPT_OFFLOAD_DIR) ||
           fail(e, ERR_USAGE, "--offload %s: what is kept on disk needs a folder; give --offload-dir DIR", text);
}

static bool set_adapter(ModelSpec *m, const Options *o, Err *e) {
    AdapterConfig a;
    if (!opt_given(o, OPT_ADAPTER)) return true;
    if (!adapter_config_read(&a, opt_text(o, OPT_ADAPTER), e)) return false;
    m->adapter = (LoraSpec){
        .rank = a.rank, .alpha = (float)(adapter_scale(&a) * a.rank), .targets = a.targets, .format = m->activations};
    return true;
}

bool setup_model_spec(ModelSpec *m, const Options *o, const ModelConfig *c, Err *e) {
    *m = (ModelSpec){.config = *c,
                     .activations = activations_of(o, c),
                     .random_init = opt_given(o, OPT_INIT),
                     .seed = (uint64_t)opt_int(o, OPT_SEED)};
    set_storage(m, o);
    return set_offload(m, o, e) && set_adapter(m, o, e);
}

bool setup_fall_back_model(ModelSpec *m, const Options *o, const Machine *machine) {
    if (machine_has_bf16(machine) || !opt_is(o, OPT_PRECISION, "auto") || m->activations != FMT_BF16) return false;
    log_line("%s has no bf16 (compute capability %d.%d): --precision fp16 (docs/precision.md)", machine->name,
             machine->capability / 10, machine->capability % 10);
    m->activations = FMT_F16;
    bool named = opt_is(o, OPT_ADAPTER_DTYPE, "bf16"); /* what was named does not fall back */
    if (!named && m->adapter.format == FMT_BF16) m->adapter.format = FMT_F16;
    return true;
}
