/* adapter.c - which of PEFT's settings mean plain LoRA, and what PEFT calls its tensors. */
#include "store/adapter.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/str.h"
#include "store/jsonfile.h"

#define CONFIG_NAME "adapter_config.json"
enum { CONFIG_LIMIT_BYTES = 1 << 20, MAX_RANK = 1 << 16 };

static const struct {
    const char *name, *block;
} targets[ADAPTER_TARGET_COUNT] = {
    [ADAPTER_Q] = {"q_proj", "self_attn"},
    [ADAPTER_K] = {"k_proj", "self_attn"},
    [ADAPTER_V] = {"v_proj", "self_attn"},
    [ADAPTER_O] = {"o_proj", "self_attn"},
    [ADAPTER_GATE] = {"gate_proj", "mlp"},
    [ADAPTER_UP] = {"up_proj", "mlp"},
    [ADAPTER_DOWN] = {"down_proj", "mlp"},
    [ADAPTER_VALUE_GATE] = {"value_gate", "self_attn"},
    [ADAPTER_OUTPUT_GATE] = {"output_gate", "self_attn"},
    [ADAPTER_INDEX_QUERY] = {"query_proj", "self_attn.indexer"},
    [ADAPTER_INDEX_KEY] = {"key_proj", "self_attn.indexer"},
    [ADAPTER_INDEX_WEIGHT] = {"weight_proj", "self_attn.indexer"},
};

/* Settings read below, or without influence on what a stored adapter computes. Any other setting that is switched
 * on is refused: it could change the mathematics without a word. */
static const char *const understood[] = {
    "peft_type",    "r",            "lora_alpha",        "lora_dropout",      "target_modules",
    "use_rslora",   "bias",         "init_lora_weights", "task_type",         "base_model_name_or_path",
    "auto_mapping", "revision",     "inference_mode",    "peft_version",      "megatron_core",
    "eva_config",   "runtime_config", "qalora_group_size", "ensure_weight_tying",
};

/* Initialisations that leave the base model as it is. Others (pissa, olora, loftq, ...) take a part out of it. */
static const char *const pure_inits[] = {"gaussian", "eva", "orthogonal"};

const char *adapter_target_name(AdapterTarget t) { return targets[t].name; }

static bool find_target(const char *name, AdapterTarget *t) {
    for (int i = 0; i < ADAPTER_TARGET_COUNT; i++) {
        if (strcmp(name, targets[i].name)) continue;
        *t = (AdapterTarget)i;
        return true;
    }
    return false;
}

double adapter_scale(const AdapterConfig *c) {
    return c->use_rslora ? c->alpha / sqrt((double)c->rank) : c->alpha / (double)c->rank;
}

static bool is_one_of(const char *word, const char *const *list, int n) {
    for (int i = 0; i < n; i++)
        if (!strcmp(word, list[i])) return true;
    return false;
}

static bool is_off(const json_t *v) {
    if (json_is_string(v)) return json_string_length(v) == 0;
    if (json_is_array(v)) return json_array_size(v) == 0;
    if (json_is_object(v)) return json_object_size(v) == 0;
    return json_is_null(v) || json_is_false(v);
}

static bool refuse_unknown(const json_t *root, const char *path, Err *e) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)root, key, value)
        if (!is_one_of(key, understood, COUNT_OF(understood)) && !is_off(value))
            return fail(e, ERR_FAIL, "%s: sets %s, which is not supported (plain LoRA is)", path, key);
    return true;
}

/* A setting that is text must be the one value we support; absent or null counts as that value. */
static bool expect_word(const json_t *root, const char *key, const char *word, const char *path, Err *e) {
    const json_t *v = json_object_get(root, key);
    if (!v || json_is_null(v)) return true;
    const char *text = json_string_value(v);
    if (text && !strcmp(text, word)) return true;
    return fail(e, ERR_FAIL, "%s: %s is '%s', only '%s' is supported", path, key, text ? text : "(not text)",
                word);
}

static bool check_kind(const json_t *root, const char *path, Err *e) {
    if (!json_is_string(json_object_get(root, "peft_type")))
        return fail(e, ERR_FAIL, "%s: has no peft_type", path);
    if (!expect_word(root, "peft_type", "LORA", path, e) || !expect_word(root, "bias", "none", path, e) ||
        !expect_word(root, "task_type", "CAUSAL_LM", path, e))
        return false;
    const json_t *init = json_object_get(root, "init_lora_weights");
    if (json_is_string(init) && !is_one_of(json_string_value(init), pure_inits, COUNT_OF(pure_inits)))
        return fail(e, ERR_FAIL, "%s: init_lora_weights '%s' changes the base model too, which is not supported",
                    path, json_string_value(init));
    return refuse_unknown(root, path, e);
}

static bool read_numbers(AdapterConfig *c, const json_t *root, const char *path, Err *e) {
    const json_t *rank = json_object_get(root, "r"), *alpha = json_object_get(root, "lora_alpha");
    const json_t *dropout = json_object_get(root, "lora_dropout"), *rslora = json_object_get(root, "use_rslora");
    if (!json_is_integer(rank) || json_integer_value(rank) < 1 || json_integer_value(rank) > MAX_RANK)
        return fail(e, ERR_FAIL, "%s: r must be a whole number from 1 to %d", path, MAX_RANK);
    if (!json_is_number(alpha)) return fail(e, ERR_FAIL, "%s: lora_alpha must be a number", path);
    c->rank = (int)json_integer_value(rank);
    c->alpha = json_number_value(alpha);
    c->dropout = json_number_value(dropout); /* 0 when absent */
    c->use_rslora = json_is_true(rslora);
    if (dropout && !json_is_null(dropout) && (!json_is_number(dropout) || c->dropout < 0 || c->dropout >= 1))
        return fail(e, ERR_FAIL, "%s: lora_dropout must be at least 0 and less than 1", path);
    return true;
}

static bool read_targets(AdapterConfig *c, const json_t *root, const char *path, Err *e) {
    const json_t *v = json_object_get(root, "target_modules");
    if (json_is_string(v)) {
        c->targets = ADAPTER_ALL_TARGETS;
        if (!strcmp(json_string_value(v), "all-linear")) return true;
        return fail(e, ERR_FAIL, "%s: target_modules '%s' is a pattern, which is not supported: list the modules",
                    path, json_string_value(v));
    }
    for (size_t i = 0; i < json_array_size(v); i++) {
        const char *name = json_string_value(json_array_get(v, i));
        AdapterTarget t;
        if (!name || !find_target(name, &t))
            return fail(e, ERR_FAIL,
                        "%s: target_modules names '%s', which is not one of q_proj, k_proj, v_proj, o_proj, "
                        "gate_proj, up_proj, down_proj (models of type gsa: value_gate, output_gate, query_proj, "
                        "key_proj, weight_proj)",
                        path, name ? name : "(not text)");
        c->targets |= 1u << t;
    }
    return c->targets || fail(e, ERR_FAIL, "%s: target_modules names no module", path);
}

static bool read_base(AdapterConfig *c, const json_t *root, const char *path, Err *e) {
    const char *base = json_string_value(json_object_get(root, "base_model_name_or_path"));
    if (!base) return true;
    if (strlen(base) >= sizeof c->base_model)
        return fail(e, ERR_FAIL, "%s: base_model_name_or_path is too long", path);
    snprintf(c->base_model, sizeof c->base_model, "%s", base);
    return true;
}

/* A folder that is no adapter's, but one of a run or of a model: people name it after training. */
static bool refuse_folder(const char *folder, Err *e) {
    static const char *const inside[] = {"adapter/" CONFIG_NAME, "config.json", "model/config.json"};
    static const char *const what[] = {"it is the folder of a run, whose result is %s/adapter",
                                       "it holds a model: give it as --model, without --adapter",
                                       "it is the folder of a run, whose result is a model: --model %s/model"};
    char path[1100], hint[1200];
    for (int i = 0; i < COUNT_OF(inside); i++) {
        snprintf(path, sizeof path, "%s/%s", folder, inside[i]);
        if (!file_exists(path)) continue;
        snprintf(hint, sizeof hint, what[i], folder);
        return fail(e, ERR_FAIL, "%s: has no " CONFIG_NAME "; %s", folder, hint);
    }
    if (!file_is_dir(folder) && (!strcmp(folder, "lora") || !strcmp(folder, "qlora")))
        return fail(e, ERR_FAIL, "--adapter %s: names a folder; new adapters are made by --mode lora%s", folder,
                    *folder == 'q' ? " --quantize nf4" : "");
    if (!file_is_dir(folder)) return fail(e, ERR_FAIL, "--adapter %s: there is no such folder", folder);
    return fail(e, ERR_FAIL, "%s: has no " CONFIG_NAME ". Is it an adapter's folder (PEFT layout)?", folder);
}

bool adapter_config_read(AdapterConfig *c, const char *folder, Err *e) {
    char path[1100];
    json_t *root;
    *c = (AdapterConfig){0};
    if (snprintf(path, sizeof path, "%s/" CONFIG_NAME, folder) >= (int)sizeof path)
        return fail(e, ERR_FAIL, "%s: the path is too long", folder);
    if (!file_exists(path)) return refuse_folder(folder, e);
    if (!jsonfile_read(&root, path, CONFIG_LIMIT_BYTES, e)) return false;
    bool ok = check_kind(root, path, e) && read_numbers(c, root, path, e) && read_targets(c, root, path, e) &&
              read_base(c, root, path, e);
    json_decref(root);
    return ok;
}

/* PEFT declares lora_alpha as a whole number; a fraction is written only when it is one. */
static json_t *plain_number(double x) {
    return x == floor(x) && fabs(x) < 1e15 ? json_integer((json_int_t)x) : json_real(x);
}

static json_t *config_object(const AdapterConfig *c) {
    json_t *modules = json_array();
    for (int t = 0; t < ADAPTER_TARGET_COUNT; t++)
        if (c->targets >> t & 1) json_array_append_new(modules, json_string(targets[t].name));
    json_t *root = json_object();
    jsonfile_set(&root, "alpha_pattern", json_object());
    jsonfile_set(&root, "auto_mapping", json_null());
    jsonfile_set(&root, "base_model_name_or_path", c->base_model[0] ? json_string(c->base_model) : json_null());
    jsonfile_set(&root, "bias", json_string("none"));
    jsonfile_set(&root, "exclude_modules", json_null());
    jsonfile_set(&root, "fan_in_fan_out", json_false());
    jsonfile_set(&root, "inference_mode", json_true());
    jsonfile_set(&root, "init_lora_weights", json_true());
    jsonfile_set(&root, "layers_pattern", json_null());
    jsonfile_set(&root, "layers_to_transform", json_null());
    jsonfile_set(&root, "lora_alpha", plain_number(c->alpha));
    jsonfile_set(&root, "lora_dropout", json_real(c->dropout));
    jsonfile_set(&root, "modules_to_save", json_null());
    jsonfile_set(&root, "peft_type", json_string("LORA"));
    jsonfile_set(&root, "r", json_integer(c->rank));
    jsonfile_set(&root, "rank_pattern", json_object());
    jsonfile_set(&root, "revision", json_null());
    jsonfile_set(&root, "target_modules", modules);
    jsonfile_set(&root, "task_type", json_string("CAUSAL_LM"));
    jsonfile_set(&root, "use_dora", json_false());
    jsonfile_set(&root, "use_rslora", json_boolean(c->use_rslora));
    return root;
}

bool adapter_config_write(const char *folder, const AdapterConfig *c, Err *e) {
    char path[1100];
    if (snprintf(path, sizeof path, "%s/" CONFIG_NAME, folder) >= (int)sizeof path)
        return fail(e, ERR_FAIL, "%s: the path is too long", folder);
    json_t *root = config_object(c);
    bool ok = jsonfile_write(path, root, e);
    json_decref(root);
    return ok;
}

int64_t adapter_config_bytes(const AdapterConfig *c) {
    return jsonfile_bytes(config_object(c));
}

void adapter_key(char *out, size_t size, int layer, AdapterTarget t, bool b) {
    snprintf(out, size, "base_model.model.model.layers.%d.%s.%s.lora_%c.weight", layer, targets[t].block,
             targets[t].name, b ? 'B' : 'A');
}

static bool check_one(const StSet *s, const AdapterConfig *c, const char *key, bool b, Err *e) {
    const StTensor *t = st_find(s, key);
    if (!t) return fail(e, ERR_FAIL, "%s: tensor '%s' is missing", s->path[0], key);
    if (t->rank != 2 || t->dim[b ? 1 : 0] != c->rank)
        return fail(e, ERR_FAIL, "%s: tensor '%s' is not of rank %d, as the configuration says", s->path[0], key,
                    c->rank);
    return true;
}

/* Is this one of the names that adapter_check_tensors went through? */
static bool is_expected(const char *name, const AdapterConfig *c, int n_layers) {
    static const char prefix[] = "base_model.model.model.layers.";
    char key[128];
    if (!str_starts(name, prefix)) return false;
    long layer = strtol(name + sizeof prefix - 1, NULL, 10); /* the whole name is compared below */
    if (layer < 0 || layer >= n_layers) return false;
    for (int t = 0; t < ADAPTER_TARGET_COUNT; t++)
        for (int b = 0; b < 2; b++) {
            adapter_key(key, sizeof key, (int)layer, (AdapterTarget)t, b);
            if ((c->targets >> t & 1) && !strcmp(key, name)) return true;
        }
    return false;
}

bool adapter_check_tensors(const StSet *s, const AdapterConfig *c, int n_layers, Err *e) {
    char key[128];
    for (int layer = 0; layer < n_layers; layer++)
        for (int t = 0; t < ADAPTER_TARGET_COUNT; t++)
            for (int b = 0; b < 2 && (c->targets >> t & 1); b++) {
                adapter_key(key, sizeof key, layer, (AdapterTarget)t, b);
                if (!check_one(s, c, key, b, e)) return false;
            }
    for (int64_t i = 0; i < s->n; i++)
        if (!is_expected(s->tensor[i].name, c, n_layers))
            return fail(e, ERR_FAIL, "%s: tensor '%s' does not belong to the configured adapter", s->path[0],
                        s->tensor[i].name);
    return true;
}
