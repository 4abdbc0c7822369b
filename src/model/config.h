/* config.h - the numbers that make a decoder: read from config.json, from a preset, or both. */
#ifndef MODEL_CONFIG_H
#define MODEL_CONFIG_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "ir/attr.h"
#include "ir/format.h"

typedef enum ModelType { TYPE_QWEN2, TYPE_LLAMA, TYPE_MISTRAL, TYPE_QWEN3, TYPE_GSA, TYPE_COUNT } ModelType;
typedef enum RopeKind { ROPE_PLAIN, ROPE_LINEAR, ROPE_NTK, ROPE_LLAMA3, ROPE_YARN } RopeKind;

typedef struct RopeScaling {
    RopeKind kind;
    double factor;                 /* positions are stretched by it */
    double low_freq, high_freq;    /* llama3 */
    double original_positions;     /* llama3, yarn */
    double beta_fast, beta_slow;   /* yarn */
    double attention_factor;       /* yarn: multiplies cos and sin; 0: derived from the factor */
    double mscale, mscale_all_dim; /* yarn, optional */
    bool keep_fractions;           /* yarn: correction bounds are not rounded ("truncate": false) */
} RopeScaling;

typedef enum QuantKind { QUANT_NONE, QUANT_OWN, QUANT_BNB_NF4 } QuantKind; /* of a folder's projections, and by whom */

/* Gated sparse attention (docs/sparse-attention.md). */
typedef enum Selection {
    SELECTION_LEARNED, SELECTION_RANDOM, SELECTION_ORACLE, SELECTION_ALL, SELECTION_COUNT
} Selection;
enum { GSA_MOST_LAYERS = 256 /* of a model in which some are dense */ };
typedef struct GsaConfig {
    uint64_t dense_layers[GSA_MOST_LAYERS / 64]; /* a bit each: it has neither indexer nor gates */
    int index_heads, index_dim;
    bool index_relu;       /* indexer_activation */
    KeepBy keep;           /* how many keys: use_adaptive_k, adaptive_k_method */
    int64_t k_base, k_min, k_max;
    double temperature;
    bool value_gate, output_gate, gate_a_head; /* gate_a_head: the output gate is one number a head */
    GateAct gate_act;
    double gate_bias;      /* where it starts */
    double dense_share;    /* dense_residual_alpha: o = (1 - a) sparse + a dense */
    bool warmup;           /* the indexer learns from dense attention first */
    int64_t warmup_steps;
    Selection selection;   /* which keys are attended to; all: dense attention, and no indexer */
    bool drawn;            /* for measurements: learned in all but the ranking, which is drawn at random, a share */
    double overlap;        /* `overlap` of it again for the next query; no part of config.json */
} GsaConfig;

typedef struct ModelConfig {
    char name[128]; /* preset or folder */
    ModelType type;
    const struct ModelFamily *family; /* that records it (model.h); NULL: family_decoder */
    int layers, heads, kv_heads, head_dim;
    int64_t hidden, ffn, vocab, max_positions;
    int64_t sliding_window; /* 0: none */
    double rms_eps, rope_theta, init_std;
    RopeScaling rope;
    bool tied;      /* the head is the embedding */
    bool qkv_bias, out_bias;
    bool qk_norm;   /* per-head norms of q and k */
    Format dtype;   /* of its weights on file; quantised: of what they stand for */
    QuantKind quant;
    Format quant_format; /* QUANT_OWN: int8 or nf4 */
    bool quant_head;     /* QUANT_OWN: the head is int8 too */
    int bos_id, eos_id; /* -1: none; the first of several */
    GsaConfig gsa;      /* TYPE_GSA */
} ModelConfig;

static inline bool config_is_sparse_layer(const ModelConfig *c, int layer) { /* of a model of type gsa */
    return layer >= GSA_MOST_LAYERS || !(c->gsa.dense_layers[layer / 64] >> layer % 64 & 1);
}

/* From the JSON of a config.json (borrows). `where` names it in errors. What is not understood is refused by name. */
bool config_from_json(ModelConfig *c, const json_t *j, const char *where, Err *e);
bool config_from_file(ModelConfig *c, const char *folder, Err *e);

/* Upper and lower case, the owner ("Qwen/") and "-Instruct" do not matter. */
bool config_from_preset(ModelConfig *c, const char *name);
/* Where its weights are published ("Qwen/Qwen2.5-7B"), or the name itself when it is such an id; false: not known. */
bool config_preset_hub(char *to, size_t size, const char *name);
const char *config_preset_names(void); /* "qwen2.5-0.5b, ..." for messages */

/* Overwrites keys of config.json ("num_hidden_layers=2"), all at once; ERR_USAGE when unknown or impossible.
 * origins: where each stands, for messages ("--set", "recipe.yaml:7"); NULL: all are flags. */
bool config_set(ModelConfig *c, const char *const *key_values, const char *const *origins, int n, Err *e);
/* Whether weights of one are weights of the other: the sizes that every family has, the layers among them. */
bool config_same_sizes(const ModelConfig *a, const ModelConfig *b);
bool config_check(const ModelConfig *c, const char *where, Err *e);

json_t *config_to_json(const ModelConfig *c); /* a config.json that transformers reads; gives: json_decref */

int64_t config_parameters(const ModelConfig *c);

/* The same model with sparse attention: an indexer with the usual sizes, no gates. */
bool config_make_sparse(ModelConfig *c, Err *e);

/* "learned", "random", "oracle", "all" -> c->gsa; and "both", "value", "output", "none" for its gates. Other models
 * have neither: ERR_USAGE. */
bool config_select(ModelConfig *c, const char *selection, Err *e);
bool config_gates(ModelConfig *c, const char *gates, Err *e);

/* The rotary frequencies (head_dim/2) and the factor on cos and sin. */
void config_rope(const ModelConfig *c, float *inv_freq, float *scale);

#endif
