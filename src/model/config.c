/* config.c - how a config.json is read and written: names, defaults, and what is refused. */
#include "model/config_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "model/model.h"

enum { MAX_HEAD_DIM = 1024 };

static const struct {
    const char *type, *architecture;
} types[TYPE_COUNT] = {
    [TYPE_QWEN2] = {"qwen2", "Qwen2ForCausalLM"},
    [TYPE_LLAMA] = {"llama", "LlamaForCausalLM"},
    [TYPE_MISTRAL] = {"mistral", "MistralForCausalLM"},
    [TYPE_QWEN3] = {"qwen3", "Qwen3ForCausalLM"},
    [TYPE_GSA] = {"gsa", "GSAForCausalLM"},
};

static const struct {
    const char *name;
    RopeKind kind;
} rope_kinds[] = {
    {"default", ROPE_PLAIN}, {"linear", ROPE_LINEAR}, {"ntk", ROPE_NTK}, {"llama3", ROPE_LLAMA3}, {"yarn", ROPE_YARN}};

/* ---- reading ---- */

bool config_get_int(const json_t *j, const char *key, int64_t *value, bool required, const char *where, Err *e) {
    const json_t *v = json_object_get(j, key);
    if (!v || json_is_null(v)) return !required || fail(e, ERR_FAIL, "%s: '%s' is missing", where, key);
    if (!json_is_integer(v)) return fail(e, ERR_FAIL, "%s: '%s' is not a whole number", where, key);
    *value = json_integer_value(v);
    return true;
}

bool config_get_int32(const json_t *j, const char *key, int *value, bool required, const char *where, Err *e) {
    int64_t wide = *value;
    if (!config_get_int(j, key, &wide, required, where, e)) return false;
    if (wide < INT32_MIN || wide > INT32_MAX) return fail(e, ERR_FAIL, "%s: '%s' is out of range", where, key);
    *value = (int)wide;
    return true;
}

bool config_get_real(const json_t *j, const char *key, double *value, const char *where, Err *e) {
    const json_t *v = json_object_get(j, key);
    if (!v || json_is_null(v)) return true;
    if (!json_is_number(v)) return fail(e, ERR_FAIL, "%s: '%s' is not a number", where, key);
    *value = json_number_value(v);
    return true;
}

bool config_get_bool(const json_t *j, const char *key, bool *value, const char *where, Err *e) {
    const json_t *v = json_object_get(j, key);
    if (!v || json_is_null(v)) return true;
    if (!json_is_boolean(v)) return fail(e, ERR_FAIL, "%s: '%s' is not true or false", where, key);
    *value = json_is_true(v);
    return true;
}

static bool read_type(ModelConfig *c, const json_t *j, const char *where, Err *e) {
    const char *type = json_string_value(json_object_get(j, "model_type"));
    if (!type) return fail(e, ERR_FAIL, "%s: 'model_type' is missing: is this a language model's config.json?", where);
    for (int i = 0; i < TYPE_COUNT; i++)
        if (!strcmp(type, types[i].type)) {
            c->type = (ModelType)i;
            return true;
        }
    return fail(e, ERR_FAIL, "%s: model_type '%s' is not supported. Supported: qwen2, qwen3, llama, mistral, gsa",
                where, type);
}

static const char *rope_type(const json_t *r) {
    const char *type = json_string_value(json_object_get(r, "rope_type"));
    if (!type) type = json_string_value(json_object_get(r, "type"));
    return type ? type : "default";
}

/* How far positions are stretched; where yarn does not say it, it follows from the two lengths, as transformers has
 * it. key: where r stands in the file. */
static bool read_factor(RopeScaling *s, const json_t *r, const char *key, int64_t positions, const char *where,
                        Err *e) {
    const json_t *v = json_object_get(r, "factor");
    bool longer = s->original_positions > 0 && s->original_positions != (double)positions;
    s->factor = json_number_value(v);
    if ((!v || json_is_null(v)) && s->kind == ROPE_YARN && longer)
        s->factor = (double)positions / s->original_positions;
    if (s->factor > 0) return true;
    if (v && !json_is_null(v))
        return fail(e, ERR_FAIL, "%s: '%s.factor' is not a number above 0, such as 4.0", where, key);
    return fail(e, ERR_FAIL,
                "%s: '%s' is of type %s and has no 'factor', so nothing would be scaled. Give how many times longer "
                "texts may become (\"factor\": 4.0), or null in place of '%s'",
                where, key, rope_type(r), key);
}

static bool read_rope(ModelConfig *c, const json_t *j, const char *where, Err *e) {
    const char *key = "rope_parameters"; /* newer files hold theta here too */
    if (!json_is_object(json_object_get(j, key))) key = "rope_scaling";
    const json_t *r = json_object_get(j, key);
    if (!config_get_real(j, "rope_theta", &c->rope_theta, where, e)) return false;
    if (!r || json_is_null(r)) return true;
    if (!json_is_object(r))
        return fail(e, ERR_FAIL, "%s: 'rope_scaling' is no map such as {\"type\": \"ntk\", \"factor\": 2}", where);
    const char *type = rope_type(r);
    bool known = false;
    for (int i = 0; i < COUNT_OF(rope_kinds); i++)
        if (!strcmp(type, rope_kinds[i].name)) {
            c->rope.kind = rope_kinds[i].kind;
            known = true;
        }
    if (!known)
        return fail(e, ERR_FAIL, "%s: rope type '%s' is not supported. Supported: default, linear, ntk, llama3, yarn",
                    where, type);
    RopeScaling *s = &c->rope;
    if (s->kind == ROPE_PLAIN) return config_get_real(r, "rope_theta", &c->rope_theta, where, e);
    s->original_positions = (double)c->max_positions;
    bool truncate = true;
    bool ok = config_get_real(r, "rope_theta", &c->rope_theta, where, e) &&
              config_get_real(r, "low_freq_factor", &s->low_freq, where, e) &&
              config_get_real(r, "high_freq_factor", &s->high_freq, where, e) &&
              config_get_real(r, "original_max_position_embeddings", &s->original_positions, where, e) &&
              config_get_real(r, "beta_fast", &s->beta_fast, where, e) &&
              config_get_real(r, "beta_slow", &s->beta_slow, where, e) &&
              config_get_real(r, "attention_factor", &s->attention_factor, where, e) &&
              config_get_real(r, "mscale", &s->mscale, where, e) &&
              config_get_real(r, "mscale_all_dim", &s->mscale_all_dim, where, e) &&
              config_get_bool(r, "truncate", &truncate, where, e);
    /* a length at the top level wins, and nulls or zeros mean the usual values: so transformers reads them */
    ok = ok && config_get_real(j, "original_max_position_embeddings", &s->original_positions, where, e);
    s->keep_fractions = !truncate;
    if (s->beta_fast <= 0) s->beta_fast = 32;
    if (s->beta_slow <= 0) s->beta_slow = 1;
    return ok && read_factor(s, r, key, c->max_positions, where, e);
}

static bool read_dtype(ModelConfig *c, const json_t *j, const char *where, Err *e) {
    const char *d = json_string_value(json_object_get(j, "torch_dtype"));
    if (!d) d = json_string_value(json_object_get(j, "dtype"));
    if (!d || !strcmp(d, "bfloat16")) c->dtype = FMT_BF16;
    else if (!strcmp(d, "float32")) c->dtype = FMT_F32;
    else if (!strcmp(d, "float16")) c->dtype = FMT_F16;
    else return fail(e, ERR_FAIL, "%s: dtype '%s' is not supported. Supported: float32, bfloat16, float16", where, d);
    return true;
}

enum { QUANT_LAYOUT = 1 }; /* rows as ir/format.h describes them, docs/techniques.md */

static bool read_quant(ModelConfig *c, const json_t *j, const char *where, Err *e) {
    const json_t *q = json_object_get(j, "quantization_config");
    if (!q || json_is_null(q)) return true;
    const char *method = json_string_value(json_object_get(q, "quant_method"));
    const char *format = json_string_value(json_object_get(q, "format")),
               *type = json_string_value(json_object_get(q, "bnb_4bit_quant_type"));
    if (!method && json_is_true(json_object_get(q, "load_in_4bit"))) method = "bitsandbytes";
    if (method && !strcmp(method, "snug")) {
        bool nf4 = format && !strcmp(format, format_name(FMT_NF4));
        bool int8 = format && !strcmp(format, format_name(FMT_INT8));
        if ((!nf4 && !int8) || json_integer_value(json_object_get(q, "layout")) != QUANT_LAYOUT)
            return fail(e, ERR_FAIL, "%s: quantization_config: format '%s' in this layout is not known to this version",
                        where, format ? format : "?");
        c->quant = QUANT_OWN;
        c->quant_format = nf4 ? FMT_NF4 : FMT_INT8;
        const char *head = json_string_value(json_object_get(q, "head"));
        c->quant_head = head && !strcmp(head, format_name(FMT_INT8));
        if (head && !c->quant_head)
            return fail(e, ERR_FAIL, "%s: quantization_config: a head in '%s' is not known to this version", where,
                        head);
        return true;
    }
    c->quant = QUANT_BNB_NF4;
    if (method && !strcmp(method, "bitsandbytes") && json_is_true(json_object_get(q, "load_in_4bit")) && type &&
        !strcmp(type, "nf4"))
        return true;
    return fail(e, ERR_FAIL,
                "%s: quantization_config: weights quantised by '%s'%s%s are not read. Read: bitsandbytes nf4, snug's "
                "own. Take the model before it was quantised",
                where, method ? method : "?", type ? " as " : "", type ? type : "");
}

static int first_id(const json_t *v) {
    if (json_is_array(v)) v = json_array_get(v, 0);
    int64_t id = json_is_integer(v) ? json_integer_value(v) : -1;
    return id >= 0 && id < INT32_MAX ? (int)id : -1;
}

/* The others take no notice of 'attention_bias': Qwen2 always has biases on q, k and v, Mistral none. */
static bool has_attention_bias(const ModelConfig *c) {
    return c->type == TYPE_LLAMA || c->type == TYPE_QWEN3;
}

/* A name that is too long is cut between two characters: cut inside one it could not be written as JSON. */
static void set_name(ModelConfig *c, const char *name) {
    snprintf(c->name, sizeof c->name, "%s", name);
    size_t n = strlen(c->name);
    while (n && ((unsigned char)name[n] & 0xC0) == 0x80) n--;
    c->name[n] = 0;
}

static bool read_config(ModelConfig *c, const json_t *j, const char *where, Err *e) {
    *c = (ModelConfig){.rms_eps = 1e-6, .rope_theta = 10000, .init_std = 0.02, .max_positions = 2048};
    c->rope = (RopeScaling){.factor = 1, .low_freq = 1, .high_freq = 4, .beta_fast = 32, .beta_slow = 1};
    set_name(c, where);
    if (!read_type(c, j, where, e) || !read_dtype(c, j, where, e) || !read_quant(c, j, where, e)) return false;
    c->qkv_bias = c->type == TYPE_QWEN2;
    c->qk_norm = c->type == TYPE_QWEN3;
    if (c->type == TYPE_GSA) gsa_defaults(c);
    bool attention_bias = false, mlp_bias = false, use_window = c->type == TYPE_MISTRAL;
    if (!config_get_int(j, "hidden_size", &c->hidden, true, where, e) ||
        !config_get_int(j, "intermediate_size", &c->ffn, true, where, e) ||
        !config_get_int(j, "vocab_size", &c->vocab, true, where, e) ||
        !config_get_int32(j, "num_hidden_layers", &c->layers, true, where, e) ||
        !config_get_int32(j, "num_attention_heads", &c->heads, true, where, e))
        return false;
    c->kv_heads = c->heads;
    if (!config_get_int32(j, "num_key_value_heads", &c->kv_heads, false, where, e) ||
        !config_get_int32(j, "head_dim", &c->head_dim, false, where, e) ||
        !config_get_int(j, "max_position_embeddings", &c->max_positions, false, where, e) ||
        !config_get_real(j, "rms_norm_eps", &c->rms_eps, where, e) ||
        !config_get_real(j, "initializer_range", &c->init_std, where, e) ||
        !config_get_bool(j, "tie_word_embeddings", &c->tied, where, e) || !read_rope(c, j, where, e) ||
        !config_get_bool(j, "attention_bias", &attention_bias, where, e) ||
        !config_get_bool(j, "mlp_bias", &mlp_bias, where, e) ||
        !config_get_bool(j, "use_sliding_window", &use_window, where, e) ||
        !config_get_int(j, "sliding_window", &c->sliding_window, false, where, e))
        return false;
    if (!use_window) c->sliding_window = 0; /* Qwen2 files name one that is not used */
    if (!c->head_dim && c->heads > 0) c->head_dim = (int)(c->hidden / c->heads);
    if (attention_bias && has_attention_bias(c)) c->qkv_bias = c->out_bias = true;
    if (mlp_bias) return fail(e, ERR_FAIL, "%s: 'mlp_bias' is true, which is not supported", where);
    const char *act = json_string_value(json_object_get(j, "hidden_act"));
    if (act && strcmp(act, "silu"))
        return fail(e, ERR_FAIL, "%s: hidden_act '%s' is not supported (silu is)", where, act);
    c->bos_id = first_id(json_object_get(j, "bos_token_id"));
    c->eos_id = first_id(json_object_get(j, "eos_token_id"));
    return (c->type != TYPE_GSA || gsa_read(c, j, where, e)) && config_check(c, where, e);
}

bool config_from_json(ModelConfig *c, const json_t *j, const char *where, Err *e) {
    if (!json_is_object(j)) return fail(e, ERR_FAIL, "%s: is not a JSON object", where);
    const char *type = json_string_value(json_object_get(j, "model_type"));
    if (!type || strcmp(type, types[TYPE_GSA].type)) return read_config(c, j, where, e);
    json_t *common = gsa_common_names(j);
    bool ok = read_config(c, common, where, e);
    json_decref(common);
    if (ok) gsa_warn(c, j, where);
    return ok;
}

bool config_from_file(ModelConfig *c, const char *folder, Err *e) {
    char path[1200];
    snprintf(path, sizeof path, "%s/config.json", folder);
    Str text = {0};
    json_error_t je;
    if (!file_read(path, &text, 1 << 20, e)) return false;
    int64_t mark = str_mark(str_text(&text), text.len);
    json_t *j = json_loadb(str_text(&text) + mark, (size_t)(text.len - mark), 0, &je);
    str_free(&text);
    if (!j) return fail(e, ERR_FAIL, "%s:%d: is not JSON: %s", path, je.line, je.text);
    bool ok = config_from_json(c, j, path, e);
    json_decref(j);
    set_name(c, folder);
    return ok;
}

/* Equal factors, a theta of one and the like divide by zero: seen from the result, whatever the kind. */
static bool check_rope(const ModelConfig *c, const char *where, Err *e) {
    float inv_freq[MAX_HEAD_DIM / 2], scale;
    config_rope(c, inv_freq, &scale);
    bool good = isfinite(scale) && scale > 0;
    for (int i = 0; i < c->head_dim / 2; i++) good = good && isfinite(inv_freq[i]) && inv_freq[i] >= 0;
    return good || fail(e, ERR_FAIL, "%s: 'rope_scaling' gives frequencies that are no numbers", where);
}

bool config_check(const ModelConfig *c, const char *where, Err *e) {
    const struct {
        const char *key;
        double value, low, high;
    } range[] = {
        {"hidden_size", (double)c->hidden, 1, 1 << 20},   {"intermediate_size", (double)c->ffn, 1, 1 << 22},
        {"vocab_size", (double)c->vocab, 2, 1 << 24},     {"num_hidden_layers", c->layers, 1, 1024},
        {"num_attention_heads", c->heads, 1, 4096},       {"num_key_value_heads", c->kv_heads, 1, 4096},
        {"head_dim", c->head_dim, 2, MAX_HEAD_DIM},       {"rms_norm_eps", c->rms_eps, 0, 1},
        {"max_position_embeddings", (double)c->max_positions, 1, 1e9}, {"rope_theta", c->rope_theta, 1, 1e12},
        {"rope_scaling.factor", c->rope.factor, 1, 1e6},  {"sliding_window", (double)c->sliding_window, 0, 1e9},
        {"original_max_position_embeddings", c->rope.kind < ROPE_LLAMA3 ? 1 : c->rope.original_positions, 1, 1e9},
        {"initializer_range", c->init_std, 0, 1e3},
    };
    for (int i = 0; i < COUNT_OF(range); i++)
        if (!(range[i].value >= range[i].low && range[i].value <= range[i].high))
            return fail(e, ERR_FAIL, "%s: '%s' is %g, it must be between %g and %g", where, range[i].key,
                        range[i].value, range[i].low, range[i].high);
    if (c->heads % c->kv_heads)
        return fail(e, ERR_FAIL, "%s: num_attention_heads %d is not a multiple of num_key_value_heads %d", where,
                    c->heads, c->kv_heads);
    if (c->head_dim % 2)
        return fail(e, ERR_FAIL, "%s: head_dim %d is odd, rotary positions need pairs", where, c->head_dim);
    return check_rope(c, where, e) && (c->type != TYPE_GSA || gsa_check(c, where, e));
}

/* ---- writing ---- */

static json_t *rope_to_json(const ModelConfig *c) {
    const RopeScaling *s = &c->rope;
    if (s->kind == ROPE_PLAIN) return json_null();
    json_t *r = json_pack("{s:s, s:f}", "rope_type", rope_kinds[s->kind].name, "factor", s->factor);
    if (s->kind == ROPE_LLAMA3) {
        json_object_set_new(r, "low_freq_factor", json_real(s->low_freq));
        json_object_set_new(r, "high_freq_factor", json_real(s->high_freq));
    }
    if (s->kind == ROPE_YARN) {
        json_object_set_new(r, "beta_fast", json_real(s->beta_fast));
        json_object_set_new(r, "beta_slow", json_real(s->beta_slow));
        if (s->attention_factor > 0) json_object_set_new(r, "attention_factor", json_real(s->attention_factor));
        if (s->mscale > 0) json_object_set_new(r, "mscale", json_real(s->mscale));
        if (s->mscale_all_dim > 0) json_object_set_new(r, "mscale_all_dim", json_real(s->mscale_all_dim));
        if (s->keep_fractions) json_object_set_new(r, "truncate", json_false());
    }
    if (s->kind != ROPE_LINEAR && s->kind != ROPE_NTK)
        json_object_set_new(r, "original_max_position_embeddings", json_integer((json_int_t)s->original_positions));
    return r;
}

json_t *config_to_json(const ModelConfig *c) {
    static const char *const dtypes[FMT_COUNT] = {
        [FMT_F32] = "float32", [FMT_BF16] = "bfloat16", [FMT_F16] = "float16"};
    json_t *j = json_object();
    json_object_set_new(j, "architectures", json_pack("[s]", types[c->type].architecture));
    json_object_set_new(j, "model_type", json_string(types[c->type].type));
    const struct {
        const char *key;
        int64_t value;
    } whole[] = {{"hidden_size", c->hidden}, {"intermediate_size", c->ffn}, {"vocab_size", c->vocab},
                 {"num_hidden_layers", c->layers}, {"num_attention_heads", c->heads},
                 {"num_key_value_heads", c->kv_heads}, {"head_dim", c->head_dim},
                 {"max_position_embeddings", c->max_positions}};
    for (int i = 0; i < COUNT_OF(whole); i++) json_object_set_new(j, whole[i].key, json_integer(whole[i].value));
    json_object_set_new(j, "rms_norm_eps", json_real(c->rms_eps));
    json_object_set_new(j, "rope_theta", json_real(c->rope_theta));
    json_object_set_new(j, "rope_scaling", rope_to_json(c));
    json_object_set_new(j, "initializer_range", json_real(c->init_std));
    json_object_set_new(j, "hidden_act", json_string("silu"));
    json_object_set_new(j, "tie_word_embeddings", json_boolean(c->tied));
    json_object_set_new(j, "torch_dtype", json_string(dtypes[c->dtype]));
    if (has_attention_bias(c))
        json_object_set_new(j, "attention_bias", json_boolean(c->out_bias));
    if (c->type == TYPE_MISTRAL || c->sliding_window)
        json_object_set_new(j, "sliding_window", c->sliding_window ? json_integer(c->sliding_window) : json_null());
    if (c->type == TYPE_QWEN2 || c->type == TYPE_QWEN3)
        json_object_set_new(j, "use_sliding_window", json_boolean(c->sliding_window > 0));
    json_object_set_new(j, "bos_token_id", c->bos_id >= 0 ? json_integer(c->bos_id) : json_null());
    json_object_set_new(j, "eos_token_id", c->eos_id >= 0 ? json_integer(c->eos_id) : json_null());
    json_object_set_new(j, "use_cache", json_true());
    if (c->quant == QUANT_OWN) {
        json_t *q = json_pack("{s:s, s:s, s:i, s:s}", "quant_method", "snug", "format", format_name(c->quant_format),
                              "layout", QUANT_LAYOUT, "modules", "projections of the layers");
        if (c->quant_head) json_object_set_new(q, "head", json_string(format_name(FMT_INT8)));
        json_object_set_new(j, "quantization_config", q);
    }
    if (c->type == TYPE_GSA) gsa_write(c, j);
    return j;
}

/* Whether it stands in a file, and not on the command line. */
static bool is_from_file(const char *origin) {
    return origin && !str_starts(origin, "--");
}

static bool set_key(json_t *j, const char *key_value, const char *origin, Err *e) {
    const char *eq = strchr(key_value, '='), *gap = is_from_file(origin) ? ": " : " ";
    if (!is_from_file(origin)) origin = "--set";
    if (!eq || eq == key_value)
        return fail(e, ERR_USAGE, "%s%s%s: write key=value, such as num_hidden_layers=2", origin, gap, key_value);
    char key[64];
    snprintf(key, sizeof key, "%.*s", (int)MIN2(eq - key_value, 63), key_value);
    if (!json_object_get(j, key) && strcmp(key, "head_dim") && strcmp(key, "d_head")) {
        const char *names[64], *name;
        json_t *value;
        int n = 0;
        json_object_foreach(j, name, value) if (n < COUNT_OF(names)) names[n++] = name;
        const char *near = str_nearest(key, names, n);
        return near ? fail(e, ERR_USAGE, "%s%s%s: no such key. Did you mean '%s'?", origin, gap, key, near)
                    : fail(e, ERR_USAGE, "%s%s%s: config.json has no such key", origin, gap, key);
    }
    json_t *value = json_loads(eq + 1, JSON_DECODE_ANY, NULL);
    json_object_set_new(j, key, value ? value : json_string(eq + 1));
    return true;
}

/* What a wrong value is named by: the file that has values, or the flag. */
static void name_values(char *to, size_t size, const char *const *origins, int n) {
    const char *file = NULL;
    for (int i = 0; i < n && origins; i++)
        if (is_from_file(origins[i])) file = origins[i];
    const char *line = file ? strrchr(file, ':') : NULL;
    snprintf(to, size, "%.*s", line ? (int)(line - file) : 5, line ? file : "--set");
}

bool config_set(ModelConfig *c, const char *const *key_values, const char *const *origins, int n, Err *e) {
    char where[256];
    name_values(where, sizeof where, origins, n);
    json_t *j = config_to_json(c);
    if (c->head_dim == c->hidden / c->heads) { /* it follows from the width still */
        json_object_del(j, "head_dim");
        json_object_del(j, "d_head");
    }
    bool ok = true;
    for (int i = 0; i < n && ok; i++) ok = set_key(j, key_values[i], origins ? origins[i] : NULL, e);
    ModelConfig changed;
    ok = ok && config_from_json(&changed, j, where, e);
    json_decref(j);
    if (!ok) {
        if (e) e->code = ERR_USAGE;
        return false;
    }
    memcpy(changed.name, c->name, sizeof changed.name);
    *c = changed;
    if (c->bos_id >= c->vocab) c->bos_id = -1; /* a smaller vocabulary has lost them */
    if (c->eos_id >= c->vocab) c->eos_id = -1;
    return true;
}

bool config_same_sizes(const ModelConfig *a, const ModelConfig *b) {
    return a->layers == b->layers && a->hidden == b->hidden && a->ffn == b->ffn && a->heads == b->heads &&
           a->kv_heads == b->kv_heads && a->head_dim == b->head_dim && a->vocab == b->vocab &&
           a->tied == b->tied && a->qkv_bias == b->qkv_bias && a->out_bias == b->out_bias &&
           a->qk_norm == b->qk_norm;
}

int64_t config_parameters(const ModelConfig *c) {
    int64_t q = (int64_t)c->heads * c->head_dim, kv = (int64_t)c->kv_heads * c->head_dim;
    int64_t attention = c->hidden * (q + 2 * kv) + q * c->hidden + (c->qkv_bias ? q + 2 * kv : 0) +
                        (c->out_bias ? c->hidden : 0) + (c->qk_norm ? 2 * c->head_dim : 0);
    int64_t layer = attention + 3 * c->hidden * c->ffn + 2 * c->hidden;
    return c->vocab * c->hidden * (c->tied ? 1 : 2) + c->layers * layer + c->hidden +
           (c->type == TYPE_GSA ? gsa_parameters(c) : 0);
}

/* ---- rotary frequencies ---- */

static double yarn_bound(const ModelConfig *c, double rotations) { /* the pair that turns `rotations` times */
    return c->head_dim * log(c->rope.original_positions / (rotations * 2 * M_PI)) / (2 * log(c->rope_theta));
}

static double yarn_mscale(double factor, double mscale) { return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1; }

static double yarn_frequency(const ModelConfig *c, int i, double f) { /* fast pairs as they are, slow ones stretched */
    const RopeScaling *s = &c->rope;
    double low = yarn_bound(c, s->beta_fast), high = yarn_bound(c, s->beta_slow);
    if (!s->keep_fractions) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, c->head_dim - 1);
    if (low == high) high += 0.001;
    double ramp = fmin(1, fmax(0, (i - low) / (high - low)));
    return f / s->factor * ramp + f * (1 - ramp);
}

static double llama3_frequency(const RopeScaling *s, double f) {
    double wavelength = 2 * M_PI / f;
    double low = s->original_positions / s->low_freq, high = s->original_positions / s->high_freq;
    if (wavelength < high) return f;
    if (wavelength > low) return f / s->factor;
    double smooth = (s->original_positions / wavelength - s->low_freq) / (s->high_freq - s->low_freq);
    return (1 - smooth) * f / s->factor + smooth * f;
}

void config_rope(const ModelConfig *c, float *inv_freq, float *scale) {
    const RopeScaling *s = &c->rope;
    for (int i = 0; i < c->head_dim / 2; i++) {
        double stretch = s->kind == ROPE_NTK && c->head_dim > 2 ? pow(s->factor, c->head_dim / (c->head_dim - 2.0)) : 1;
        double f = pow(c->rope_theta * stretch, -2.0 * i / c->head_dim);
        if (s->kind == ROPE_LINEAR) f /= s->factor;
        if (s->kind == ROPE_LLAMA3) f = llama3_frequency(s, f);
        if (s->kind == ROPE_YARN) f = yarn_frequency(c, i, f);
        inv_freq[i] = (float)f;
    }
    *scale = 1;
    if (s->kind != ROPE_YARN) return;
    if (s->attention_factor > 0) *scale = (float)s->attention_factor;
    else if (s->mscale > 0 && s->mscale_all_dim > 0)
        *scale = (float)(yarn_mscale(s->factor, s->mscale) / yarn_mscale(s->factor, s->mscale_all_dim));
    else *scale = (float)yarn_mscale(s->factor, 1);
}
