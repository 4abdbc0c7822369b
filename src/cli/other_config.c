/* other_config.c - DeepSpeed's JSON and accelerate's YAML given as --config: what they say, as options of ours.
 *
 * They describe several processes and how these share memory; taken over silently they would mean something else. So
 * they are refused with the options to give. */
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <yaml.h>

#include "cli/options_int.h"

typedef struct Setting {
    const char *path;  /* of keys */
    const char *value; /* "*": any but auto */
    const char *flags; /* "%s": the value */
} Setting;

static const Setting settings[] = {
    {"train_micro_batch_size_per_gpu", "*", "--micro-batch %s"},
    {"gradient_accumulation_steps", "*", "--accum %s"},
    {"deepspeed_config.gradient_accumulation_steps", "*", "--accum %s"},
    {"train_batch_size", "*", "--global-batch %s"},
    {"gradient_clipping", "*", "--clip %s"},
    {"deepspeed_config.gradient_clipping", "*", "--clip %s"},
    {"bf16.enabled", "true", "--precision bf16"},
    {"fp16.enabled", "true", "--precision fp16"},
    {"mixed_precision", "no", "--precision fp32"},
    {"mixed_precision", "*", "--precision %s"},
    {"zero_optimization.offload_optimizer.device", "cpu", "--offload moments,gradients"},
    {"zero_optimization.offload_optimizer.device", "nvme", "--offload moments=disk --offload-dir DIR"},
    {"zero_optimization.offload_param.device", "cpu", "--offload weights"},
    {"zero_optimization.offload_param.device", "nvme", "--offload weights=disk --offload-dir DIR"},
    {"deepspeed_config.offload_optimizer_device", "cpu", "--offload moments,gradients"},
    {"deepspeed_config.offload_param_device", "cpu", "--offload weights"},
};

static void add_setting(Str *flags, const char *path, const char *value) {
    for (int i = 0; i < COUNT_OF(settings); i++) {
        const Setting *s = &settings[i];
        bool fits = !strcmp(s->value, "*") ? strcmp(value, "auto") != 0 : !strcasecmp(s->value, value);
        if (strcmp(s->path, path) || !fits) continue;
        const char *hole = strstr(s->flags, "%s");
        str_addf(flags, " %.*s%s", (int)(hole ? hole - s->flags : (int)strlen(s->flags)), s->flags, hole ? value : "");
        return;
    }
}

static void walk(Str *flags, yaml_document_t *doc, const yaml_node_t *map, const char *above) {
    for (yaml_node_pair_t *p = map->data.mapping.pairs.start; p < map->data.mapping.pairs.top; p++) {
        const yaml_node_t *key = yaml_document_get_node(doc, p->key), *value = yaml_document_get_node(doc, p->value);
        char path[160];
        if (key->type != YAML_SCALAR_NODE) continue;
        snprintf(path, sizeof path, "%s%s%s", above, *above ? "." : "", (const char *)key->data.scalar.value);
        if (value->type == YAML_SCALAR_NODE) add_setting(flags, path, (const char *)value->data.scalar.value);
        if (value->type == YAML_MAPPING_NODE && !*above) walk(flags, doc, value, path);
        if (value->type == YAML_MAPPING_NODE && *above && !strchr(above, '.')) walk(flags, doc, value, path);
    }
}

static bool has_key(yaml_document_t *doc, const yaml_node_t *map, const char *name) {
    for (yaml_node_pair_t *p = map->data.mapping.pairs.start; p < map->data.mapping.pairs.top; p++) {
        const yaml_node_t *key = yaml_document_get_node(doc, p->key);
        if (key->type == YAML_SCALAR_NODE && !strcmp((const char *)key->data.scalar.value, name)) return true;
    }
    return false;
}

bool other_config_check(void *document, const void *root, const char *path, Err *e) {
    yaml_document_t *doc = document;
    const yaml_node_t *map = root;
    bool deepspeed = has_key(doc, map, "zero_optimization") || has_key(doc, map, "train_micro_batch_size_per_gpu");
    bool accelerate = has_key(doc, map, "distributed_type") || has_key(doc, map, "compute_environment");
    if (!deepspeed && !accelerate) return true;
    Str flags = {0};
    walk(&flags, doc, map, "");
    fail(e, ERR_USAGE,
         "%s: is a configuration of %s, which shares a model out among processes; a run here uses one device. What it "
         "says is:%s. With --budget SIZE the planner finds offload and recompute itself; stages, buckets and "
         "thresholds (counted in elements there) have no counterpart, and more accumulation saves no memory",
         path, deepspeed ? "DeepSpeed" : "accelerate", flags.len ? str_text(&flags) : " nothing that is set here");
    str_free(&flags);
    return false;
}
