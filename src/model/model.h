/* model.h - what every family of models gives the rooms above: weights, hidden states, caches, adapters.
 *
 * A family fills one ModelFamily row, and config.h says which family a config.json belongs to; nothing outside this
 * room knows a layer by name. A model records; it computes nothing.
 *
 *     model_weights(p, &m, &spec, NULL)       the weights, under the names of their files; a frozen model
 *     in = model_input(p, &m, "batch", 4, 512)
 *     model_hidden(p, &m, &in, &out)          a pass over 4 rows of 512 tokens: out.hidden
 *     op_head_logp(p, out.hidden, m.head, ...)
 *     model_homes(p, &m, machine)             after the last recorded phase: where its tensors are kept (offload) */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "ir/op.h"
#include "model/spec.h"

typedef struct ModelFamily ModelFamily;

typedef struct Adapter { /* beside one product, for one to three projections */
    Tid a, b;            /* (groups*r, K), (sum of rows, r); NONE: no adapter */
    AttrLora attr;
} Adapter;

/* How what is trained is kept; a frozen model keeps its file's dtype and has no gradients. */
typedef struct ModelTraining {
    bool weights;     /* all weights are trained; otherwise the adapters alone */
    Format format;    /* of trained weights */
    Format gradients;
} ModelTraining;

typedef struct Model {
    ModelSpec spec;
    const ModelFamily *family;
    const char *name;    /* of its tensors, where a program holds several models; NULL: they have none */
    Tid embedding, head; /* the same where they are tied */
    int load;            /* the phase that copies its frozen weights in (ModelSpec.by_phase); 0: none */
    void *own;           /* the family's, in the program's arena */
} Model;

/* One batch of rows of fixed length; tensors are (rows*seq) unless stated. */
typedef struct ModelInput {
    int64_t rows, seq;
    Tid ids, positions, doc_begin;
    Tid id_order;    /* tokens sorted by id: only where the embedding is trained */
    AttendBy attend; /* other than ATTEND_OWN: every row is one document */
    /* (rows*seq, 2): tokens in front of its document that a token sees too (op_attend); NONE: none, or the family
     * does not know them (ModelFamily.shares_prefix) */
    Tid prefix;
    int64_t prefix_tokens, document_tokens; /* of a row, as it is planned: how long they are at most */
    bool direct;     /* products read quantised weights as they are stored: rows*seq <= linear_direct_rows */
    /* decode and prefill: */
    const Tid *cache; /* model_cache's; NULL: a pass without a cache */
    int64_t slots;    /* tokens that a row of it holds */
    Tid cache_rows;   /* (rows): which row of the cache; NONE: a row's own number */
    bool distinct_cache_rows; /* no two rows have the same one, unless idle */
    /* training, for losses of layers (ModelOut.term): what a token counts, and by what the sum is divided. NONE: none
     * are wanted */
    Tid weight, divisor;
    bool warmup; /* parts that learn from others (an indexer) are trained, not used yet (ModelFamily.has_warmup) */
    bool report; /* ModelOut.report is wanted */
} ModelInput;

enum { MODEL_TERMS = 8, MODEL_ADAPTERS = 16 };

typedef struct ModelOut {
    Tid hidden;           /* (rows*seq, C), after the last norm */
    int tap_layer;        /* asked for by the caller: the residual stream behind this layer; -1: not wanted */
    Tid tap;              /* it */
    Tid term[MODEL_TERMS]; /* statistics (1) fp64 that layers add to themselves: losses of their own */
    int n_terms;
    const Tid *report;    /* a layer each: (REPORT_WORDS) fp64 statistics of its attention; NULL: not wanted */
} ModelOut;

struct ModelFamily {
    const char *name;
    /* that an adapter may sit on: "self_attn.q_proj", bits of LoraSpec.targets in this order */
    const char *const *projections;
    int n_projections;
    int64_t (*own_bytes)(const ModelConfig *c); /* of Model.own, which begins as zeros */
    int caches;                     /* tensors of the cache, per layer */
    void (*weights)(Program *p, Model *m, const ModelTraining *t);
    void (*hidden)(Program *p, const Model *m, const ModelInput *in, ModelOut *out);
    /* one of the layer at hand; NONE: it has none, no pass writes or reads it */
    Tid (*cache)(Program *p, const Model *m, int which, int64_t rows, int64_t slots, Format f);
    int (*adapters)(Model *m, int layer, Adapter **out); /* of one layer, at most MODEL_ADAPTERS; gives how many */
    /* a random start, but for its key; NULL: normal, init_std */
    AttrFill (*start)(const ModelConfig *c, const char *file_name);
    uint32_t (*present)(const ModelConfig *c); /* projections that it has, as bits; NULL: all */
    bool (*has_warmup)(const ModelConfig *c); /* a stage of training before the usual one; NULL: never */
    bool shares_prefix; /* documents of a row may have tokens in front of them in common (ModelInput.prefix) */
    bool reports;                   /* training asks for ModelOut.report at logged steps */
};

extern const ModelFamily family_decoder; /* decoder.c: Qwen2, Qwen3, Llama, Mistral */
extern const ModelFamily family_gsa;     /* gsa.c: gated sparse attention */

const ModelFamily *model_family(const ModelConfig *c);

const char *model_projection_name(const ModelFamily *f, int i); /* "q_proj" */

/* t NULL: nothing is trained. The model's name is p->model. */
void model_weights(Program *p, Model *m, const ModelSpec *spec, const ModelTraining *t);
ModelInput model_input(Program *p, const Model *m, const char *prefix, int64_t rows, int64_t seq);
void model_hidden(Program *p, const Model *m, const ModelInput *in, ModelOut *out);
/* layers * family->caches tensors, in the program's arena; NONE where a layer has no such one. */
const Tid *model_cache(Program *p, const Model *m, int64_t rows, int64_t slots, Format f);
int model_cache_tensors(const Model *m);

/* The same weights without dropout and, when they are not wanted, without adapters. */
Model model_twin(Program *p, const Model *m, bool adapters);

/* homes.c: where this model's tensors (weights, and what training adds to them) wait, and how they are stored. Once
 * all of them are recorded. */
void model_homes(Program *p, const Model *m, MachineKind machine);

int64_t model_count(const Program *p, bool trainable_only); /* parameters of all models */

/* ---- for families ---- */

/* block.c: what their blocks have in common. Projections are a family's, in PEFT's usual order from its first number
 * on. */
enum { PROJ_Q, PROJ_K, PROJ_V, PROJ_O, PROJ_GATE, PROJ_UP, PROJ_DOWN, PROJ_USUAL };
#define MODEL_USUAL_PROJECTIONS \
    "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", \
        "mlp.down_proj"

typedef struct ModelBlock { /* of one layer */
    Tid attn_norm, qkv, qkv_bias, q_norm, k_norm, out, out_bias, ffn_norm, gate_up, down;
    Adapter on_qkv, on_out, on_gate_up, on_down;
} ModelBlock;
enum { MODEL_BLOCK_ADAPTERS = 4 };
void model_block_weights(Program *p, const Model *m, const ModelTraining *t, ModelBlock *w);
void model_block_adapters(Program *p, const Model *m, const ModelTraining *t, ModelBlock *w);
int model_block_list(ModelBlock *w, Adapter **out); /* its adapters; gives MODEL_BLOCK_ADAPTERS */
/* with the norms of heads */
Tid model_qkv(Program *p, const ModelConfig *c, const ModelBlock *w, const ModelInput *in, Tid h);

typedef struct ModelEnds { /* what stands around the layers */
    Tid final_norm, inv_freq; /* table (D/2) */
    float rope_scale;
} ModelEnds;
typedef void ModelLayerWeights(Program *p, Model *m, const ModelTraining *t, int layer);
void model_all_weights(Program *p, Model *m, const ModelTraining *t, ModelEnds *ends, ModelLayerWeights *layer);
/* of p->layer, and x */
typedef Tid ModelAttention(Program *p, const Model *m, const ModelInput *in, Tid x, ModelOut *out);
typedef const ModelBlock *ModelBlockOf(const Model *m, int layer);
void model_pass(Program *p, const Model *m, const ModelInput *in, ModelOut *out, const ModelEnds *ends,
                ModelAttention *attention, ModelBlockOf *block);
/* x w^T + bias, and what the adapter adds. */
Tid model_product(Program *p, const ModelInput *in, const char *name, Tid x, Tid w, Tid bias, const Adapter *a);
AttrHeads model_heads(const ModelConfig *c, int64_t seq, float scale);
const char *model_in_layer(Program *p, const char *part); /* "model.layers.3.<part>" */

/* A weight under its file's name; cols 0: a vector. Trained where t says so. */
Tid model_weight(Program *p, const Model *m, const ModelTraining *t, const char *name, const char *file_name,
                 int64_t rows, int64_t cols);

typedef struct ModelPart { /* rows of a stacked weight */
    int projection;        /* of the family */
    int64_t rows;
} ModelPart;
/* Names the rows of a stacked weight, and of its bias (NONE: it has none), as their files do. */
void model_parts(Program *p, const Model *m, Tid weight, Tid bias, const ModelPart *part, int n);
/* One adapter over the projections of a stacked product that the spec targets. cols: the product's inner width. */
Adapter model_adapter(Program *p, const Model *m, const ModelTraining *t, const char *name, const ModelPart *part,
                      int n, int64_t cols);

#endif
