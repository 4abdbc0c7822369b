/* gsa_config.c - the fields of gated sparse attention in a config.json: their names, defaults, and what is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "model/config_int.h"
#include "model/model.h"

static const char *const act_names[] = {[GATE_SIGMOID] = "sigmoid", [GATE_TANH] = "tanh", [GATE_SILU] = "silu"};
static const char *const keep_names[] = {
    [KEEP_FIXED] = "fixed", [KEEP_VARIANCE] = "variance", [KEEP_ENTROPY] = "entropy"};
static const char *const index_acts[] = {"sigmoid", "relu"};
static const char *const selection_names[SELECTION_COUNT] = {"learned", "random", "oracle", "all"};

/* What it calls as other models do not. */
static const struct {
    const char *common, *own;
} renamed[] = {{"hidden_size", "d_model"},
               {"intermediate_size", "d_ffn"},
               {"num_hidden_layers", "n_layers"},
               {"num_attention_heads", "n_heads"},
               {"num_key_value_heads", "n_kv_heads"},
               {"head_dim", "d_head"},
               {"rms_norm_eps", "norm_eps"},
               {"rope_theta", "rope_base"}};

static void rename_key(json_t *j, const char *from, const char *to) {
    json_t *value = json_object_get(j, from);
    if (!value) return;
    json_object_set(j, to, value);
    json_object_del(j, from);
}

json_t *gsa_common_names(const json_t *j) {
    json_t *copy = json_copy((json_t *)j);
    const char *scaling = json_string_value(json_object_get(copy, "rope_scaling"));
    if (scaling && !strcmp(scaling, "none")) json_object_del(copy, "rope_scaling");
    for (int i = 0; i < COUNT_OF(renamed); i++) rename_key(copy, renamed[i].own, renamed[i].common);
    return copy;
}

static void restore_own_names(json_t *j) {
    for (int i = 0; i < COUNT_OF(renamed); i++) rename_key(j, renamed[i].common, renamed[i].own);
}

void gsa_defaults(ModelConfig *c) {
    c->family = &family_gsa;
    c->rms_eps = 1e-5;
    c->max_positions = 131072;
    c->rope.attention_factor = 1; /* yarn: its frequencies alone */
    c->gsa = (GsaConfig){.index_heads = 4,
                         .index_dim = 64,
                         .keep = KEEP_VARIANCE,
                         .k_base = 2048,
                         .k_min = 256,
                         .k_max = 4096,
                         .temperature = 1,
                         .value_gate = true,
                         .output_gate = true,
                         .gate_bias = 0.5,
                         .warmup = true,
                         .warmup_steps = 1000};
}

void gsa_preset(ModelConfig *c) {
    ModelConfig whole = *c;
    gsa_defaults(c);
    c->max_positions = whole.max_positions;
    if (c->max_positions < 131072) { /* the models for short rows select fewer keys */
        c->gsa.k_base = 512;
        c->gsa.k_min = 64;
        c->gsa.k_max = 1024;
    }
}

/* One of a few words; absent: the value stays. */
static bool get_word(const json_t *j, const char *key, const char *const *words, int n, int *value, const char *where,
                     Err *e) {
    const json_t *v = json_object_get(j, key);
    const char *word = json_string_value(v);
    if (!v || json_is_null(v)) return true;
    for (int i = 0; i < n && word; i++)
        if (!strcmp(word, words[i])) {
            *value = i;
            return true;
        }
    char all[80] = "";
    for (int i = 0; i < n; i++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i ? ", " : "", words[i]);
    return fail(e, ERR_FAIL, "%s: '%s' is '%s', which is not supported. Supported: %s", where, key,
                word ? word : "no text", all);
}

/* The origin's third way has a head of its own, (mean, deviation, largest score) -> 32 -> 1, from k_min to k_max. */
static bool refuse_learned_k(const json_t *j, const char *where, Err *e) {
    const char *method = json_string_value(json_object_get(j, "adaptive_k_method"));
    return !method || strcmp(method, "learned") ||
           fail(e, ERR_FAIL,
                "%s: 'adaptive_k_method' is 'learned', which is not supported: a number of keys is whole, so no loss "
                "has a gradient for the head that gives it, and it would stay as it was drawn. Use variance or entropy",
                where);
}

static bool read_keep(ModelConfig *c, const json_t *j, const char *where, Err *e) {
    GsaConfig *g = &c->gsa;
    bool adaptive = true;
    int method = KEEP_VARIANCE;
    if (!config_get_bool(j, "use_adaptive_k", &adaptive, where, e)) return false;
    if (!adaptive) method = KEEP_FIXED;
    else if (!refuse_learned_k(j, where, e) ||
             !get_word(j, "adaptive_k_method", keep_names, COUNT_OF(keep_names), &method, where, e))
        return false;
    g->keep = (KeepBy)method;
    return config_get_int(j, "k_base", &g->k_base, false, where, e) &&
           config_get_int(j, "k_min", &g->k_min, false, where, e) &&
           config_get_int(j, "k_max", &g->k_max, false, where, e) &&
           config_get_real(j, "adaptive_k_temperature", &g->temperature, where, e);
}

/* "all", or the numbers of the layers that have an indexer and gates. */
static bool read_layers(GsaConfig *g, const json_t *j, const char *where, Err *e) {
    const json_t *list = json_object_get(j, "sparse_layers"), *layer;
    const char *word = json_string_value(list);
    size_t i;
    if (!list || json_is_null(list)) return true;
    memset(g->dense_layers, word ? 0 : 0xff, sizeof g->dense_layers);
    if (word && !strcmp(word, "all")) return true;
    bool ok = json_array_size(list) > 0;
    json_array_foreach(list, i, layer) {
        json_int_t n = json_is_integer(layer) ? json_integer_value(layer) : -1;
        if (n < 0 || n >= GSA_MOST_LAYERS) ok = false;
        else g->dense_layers[n / 64] &= ~(1ull << n % 64);
    }
    return ok || fail(e, ERR_FAIL, "%s: 'sparse_layers' is neither all nor a list of numbers of layers such as [0,2,5]",
                      where);
}

static bool check_layers(const ModelConfig *c, const char *where, Err *e) {
    bool all = true;
    for (int i = 0; i < GSA_MOST_LAYERS; i++) all &= config_is_sparse_layer(c, i);
    for (int i = c->layers; !all && i < GSA_MOST_LAYERS; i++)
        if (config_is_sparse_layer(c, i))
            return fail(e, ERR_FAIL, "%s: 'sparse_layers' has %d, and the model has layers 0 to %d", where, i,
                        c->layers - 1);
    return all || c->layers <= GSA_MOST_LAYERS ||
           fail(e, ERR_FAIL, "%s: 'sparse_layers' must be all in a model of more than %d layers", where,
                GSA_MOST_LAYERS);
}

static json_t *layers_json(const ModelConfig *c) {
    json_t *list = json_array();
    for (int i = 0; i < c->layers; i++)
        if (config_is_sparse_layer(c, i)) json_array_append_new(list, json_integer(i));
    if ((int)json_array_size(list) < c->layers) return list;
    json_decref(list);
    return json_string("all");
}

static bool read_gates(ModelConfig *c, const json_t *j, const char *where, Err *e) {
    GsaConfig *g = &c->gsa;
    int act = GATE_SIGMOID;
    bool ok = get_word(j, "gate_activation", act_names, COUNT_OF(act_names), &act, where, e);
    g->gate_act = (GateAct)act;
    return ok && config_get_bool(j, "use_value_gate", &g->value_gate, where, e) &&
           config_get_bool(j, "use_output_gate", &g->output_gate, where, e) &&
           config_get_bool(j, "output_gate_per_head", &g->gate_a_head, where, e) &&
           config_get_real(j, "gate_bias_init", &g->gate_bias, where, e);
}

static bool refuse_dropout(const json_t *j, const char *key, const char *where, Err *e) {
    double share = 0;
    if (!config_get_real(j, key, &share, where, e)) return false;
    return share == 0 || fail(e, ERR_FAIL, "%s: '%s' is %g; no dropout but an adapter's is supported, set it to 0",
                              where, key, share);
}

bool gsa_read(ModelConfig *c, const json_t *j, const char *where, Err *e) {
    GsaConfig *g = &c->gsa;
    int index_act = 0, selection = SELECTION_LEARNED;
    if (c->rope.kind == ROPE_YARN &&
        !json_object_get(json_object_get(j, "rope_scaling"), "original_max_position_embeddings"))
        c->rope.original_positions = 4096;
    bool ok = config_get_int32(j, "d_indexer", &g->index_dim, false, where, e) &&
              config_get_int32(j, "n_indexer_heads", &g->index_heads, false, where, e) &&
              get_word(j, "indexer_activation", index_acts, 2, &index_act, where, e) && read_keep(c, j, where, e) &&
              read_layers(g, j, where, e) && read_gates(c, j, where, e) &&
              config_get_real(j, "dense_residual_alpha", &g->dense_share, where, e) &&
              config_get_bool(j, "use_indexer_warmup", &g->warmup, where, e) &&
              config_get_int(j, "indexer_warmup_steps", &g->warmup_steps, false, where, e) &&
              get_word(j, "selection", selection_names, SELECTION_COUNT, &selection, where, e) &&
              config_get_bool(j, "qkv_bias", &c->qkv_bias, where, e) &&
              config_get_bool(j, "out_bias", &c->out_bias, where, e) &&
              config_get_bool(j, "qk_norm", &c->qk_norm, where, e);
    g->index_relu = index_act == 1;
    g->selection = (Selection)selection;
    return ok && refuse_dropout(j, "attention_dropout", where, e) && refuse_dropout(j, "hidden_dropout", where, e);
}

bool gsa_check(const ModelConfig *c, const char *where, Err *e) {
    const GsaConfig *g = &c->gsa;
    if (!check_layers(c, where, e)) return false;
    if (g->index_heads < 1 || g->index_heads > 64)
        return fail(e, ERR_FAIL, "%s: 'n_indexer_heads' is %d, it must be between 1 and 64", where, g->index_heads);
    if (g->index_dim < 1 || g->index_dim > 1024)
        return fail(e, ERR_FAIL, "%s: 'd_indexer' is %d, it must be between 1 and 1024", where, g->index_dim);
    if (g->k_min < 1 || g->k_min > g->k_base || g->k_base > g->k_max || g->k_max > INT32_MAX)
        return fail(e, ERR_FAIL, "%s: 1 <= k_min <= k_base <= k_max must hold; they are %lld, %lld, %lld", where,
                    (long long)g->k_min, (long long)g->k_base, (long long)g->k_max);
    if (!(g->dense_share >= 0 && g->dense_share <= 1))
        return fail(e, ERR_FAIL, "%s: 'dense_residual_alpha' is %g, it must be between 0 and 1", where, g->dense_share);
    if (!(g->temperature >= 0 && g->temperature <= 1e6))
        return fail(e, ERR_FAIL, "%s: 'adaptive_k_temperature' is %g, it must be 0 or more", where, g->temperature);
    if (!(g->gate_bias >= -1e3 && g->gate_bias <= 1e3))
        return fail(e, ERR_FAIL, "%s: 'gate_bias_init' is %g, it must be between -1000 and 1000", where, g->gate_bias);
    return g->warmup_steps >= 0 || fail(e, ERR_FAIL, "%s: 'indexer_warmup_steps' is negative", where);
}

void gsa_write(const ModelConfig *c, json_t *j) {
    const GsaConfig *g = &c->gsa;
    json_t *own = json_pack(
        "{s:i, s:i, s:s, s:b, s:s, s:I, s:I, s:I, s:f}", "d_indexer", g->index_dim, "n_indexer_heads", g->index_heads,
        "indexer_activation", index_acts[g->index_relu], "use_adaptive_k", g->keep != KEEP_FIXED, "adaptive_k_method",
        keep_names[g->keep == KEEP_FIXED ? KEEP_VARIANCE : g->keep], "k_base", (json_int_t)g->k_base, "k_min",
        (json_int_t)g->k_min, "k_max", (json_int_t)g->k_max, "adaptive_k_temperature", g->temperature);
    json_t *more =
        json_pack("{s:b, s:b, s:b, s:s, s:f, s:f, s:b, s:I, s:s, s:f, s:f, s:b, s:b, s:b}", "use_value_gate",
                  g->value_gate, "use_output_gate", g->output_gate, "output_gate_per_head", g->gate_a_head,
                  "gate_activation", act_names[g->gate_act], "gate_bias_init", g->gate_bias, "dense_residual_alpha",
                  g->dense_share, "use_indexer_warmup", g->warmup, "indexer_warmup_steps", (json_int_t)g->warmup_steps,
                  "selection", selection_names[g->selection], "attention_dropout", 0.0, "hidden_dropout", 0.0,
                  "qkv_bias", c->qkv_bias, "out_bias", c->out_bias, "qk_norm", c->qk_norm);
    json_object_update(j, own);
    json_object_update(j, more);
    json_object_set_new(j, "sparse_layers", layers_json(c));
    json_decref(own);
    json_decref(more);
    restore_own_names(j);
}

void gsa_warn(const ModelConfig *c, const json_t *j, const char *where) {
    static const char *const harmless[] = {
        "transformers_version", "use_flash_attention", "use_triton_kernels", "pad_token_id", "dtype", "auto_map",
        "rope_parameters",      "_name_or_path"};
    json_t *known = config_to_json(c);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)j, key, value) {
        bool named = json_object_get(known, key) != NULL;
        for (int i = 0; i < COUNT_OF(harmless); i++) named |= !strcmp(key, harmless[i]);
        for (int i = 0; i < COUNT_OF(renamed); i++) named |= !strcmp(key, renamed[i].common);
        if (!named) log_warn("%s: '%s' is not understood and changes nothing", where, key);
    }
    json_decref(known);
}

int64_t gsa_parameters(const ModelConfig *c) {
    const GsaConfig *g = &c->gsa;
    int64_t kv = (int64_t)c->kv_heads * c->head_dim,
            outputs = g->gate_a_head ? c->heads : (int64_t)c->heads * c->head_dim;
    int64_t index = c->hidden * ((int64_t)(g->index_heads + 1) * g->index_dim + g->index_heads) + 2 * g->index_heads;
    int64_t layer = (g->selection == SELECTION_ALL ? 0 : index) + (g->value_gate ? kv * (c->hidden + 1) : 0) +
                    (g->output_gate ? outputs * (c->hidden + 1) : 0),
            n = 0;
    for (int i = 0; i < c->layers; i++) n += config_is_sparse_layer(c, i);
    return n * layer;
}

bool config_make_sparse(ModelConfig *c, Err *e) {
    ModelConfig dense = *c;
    float inv_freq[512], scale;
    if (c->type == TYPE_GSA) return fail(e, ERR_USAGE, "%s: is of type gsa already", c->name);
    if (c->quant != QUANT_NONE) return fail(e, ERR_FAIL, "%s: is quantised; convert the model before it was", c->name);
    if (c->sliding_window)
        return fail(e, ERR_FAIL, "%s: attends to a sliding window, which models of type gsa have not", c->name);
    config_rope(c, inv_freq, &scale);
    gsa_defaults(c);
    c->type = TYPE_GSA;
    c->rms_eps = dense.rms_eps;
    c->max_positions = dense.max_positions;
    c->rope = dense.rope;
    if (c->rope.kind == ROPE_YARN) c->rope.attention_factor = scale; /* what its own kind derives is said here */
    c->gsa.value_gate = c->gsa.output_gate = false;
    return true;
}

/* ---- switches ---- */

static bool is_gsa(const ModelConfig *c, const char *flag, const char *value, Err *e) {
    return c->type == TYPE_GSA ||
           fail(e, ERR_USAGE, "--%s %s: %s has no sparse attention; the option is for models of type gsa", flag, value,
                c->name);
}

bool config_select(ModelConfig *c, const char *selection, Err *e) {
    if (!is_gsa(c, "selection", selection, e)) return false;
    for (int i = 0; i < SELECTION_COUNT; i++)
        if (!strcmp(selection, selection_names[i])) {
            c->gsa.selection = (Selection)i;
            return true;
        }
    const char *share = strncmp(selection, "drawn:", 6) ? "" : selection + 6;
    char *end = NULL;
    c->gsa.overlap = strtod(share, &end);
    if (!*share || *end || !(c->gsa.overlap >= 0 && c->gsa.overlap <= 1))
        return fail(e, ERR_USAGE,
                    "--selection %s: it is learned, random, oracle, all, or drawn: and a share from 0 to 1 (drawn:0.9)",
                    selection);
    c->gsa.selection = SELECTION_LEARNED;
    c->gsa.drawn = true;
    return true;
}

bool config_gates(ModelConfig *c, const char *gates, Err *e) {
    if (!is_gsa(c, "gates", gates, e)) return false;
    bool both = !strcmp(gates, "both");
    c->gsa.value_gate = both || !strcmp(gates, "value");
    c->gsa.output_gate = both || !strcmp(gates, "output");
    return true;
}
