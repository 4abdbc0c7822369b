/* decoder.c - the decoder as drawn on a whiteboard: Qwen2, Qwen3, Llama, Mistral.
 *
 * N tokens = rows * seq, C width, H heads, G KV heads, D head size, F hidden width of the feed-forward, V vocabulary.
 * q, k, v are one product and so are gate and up: their weights are stacked rows, each a view with its file's name. */
#include <math.h>

#include "model/model.h"

enum { PROJ_Q, PROJ_K, PROJ_V, PROJ_O, PROJ_GATE, PROJ_UP, PROJ_DOWN, PROJ_COUNT }; /* PEFT's usual order */

static const char *const projections[PROJ_COUNT] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                                                    "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"};

typedef struct Layer {
    Tid attn_norm, qkv, qkv_bias, q_norm, k_norm, out, out_bias;
    ModelFfn ffn;
    Adapter on_qkv, on_out;
} Layer;

typedef struct Decoder { /* Model.own */
    Tid final_norm;
    Tid inv_freq; /* table (D/2) */
    float rope_scale;
    Layer layer[];
} Decoder;

/* ---- the pass ---- */

static Tid attention(Program *p, const ModelConfig *c, const Decoder *d, const Layer *w, const ModelInput *in, Tid x) {
    Tid h = op_rmsnorm(p, x, w->attn_norm, (float)c->rms_eps);                     // (N, C)
    Tid qkv = model_product(p, in, "qkv", h, w->qkv, w->qkv_bias, &w->on_qkv);           // (N, (H+2G)*D)
    if (c->qk_norm) qkv = op_head_norm(p, qkv, w->q_norm, w->k_norm, model_heads(c, in->seq, 1));
    AttrHeads rope = model_heads(c, in->seq, d->rope_scale), a = model_heads(c, in->seq, 1.0f / sqrtf((float)c->head_dim));
    Tid o;
    if (in->cache) {
        Tid cache = in->cache[p->layer];
        rope.slots = a.slots = in->slots;
        rope.distinct_cache_rows = a.distinct_cache_rows = in->distinct_cache_rows;
        qkv = op_rope_put(p, cache, qkv, in->positions, d->inv_freq, in->cache_rows, rope);
        o = op_attend_cache(p, qkv, cache, in->positions, in->cache_rows, a);
    } else {
        a.by = in->attend;
        qkv = op_rope(p, qkv, in->positions, d->inv_freq, rope);
        o = op_attend(p, qkv, in->doc_begin, a);                                   // (N, H*D)
    }
    return op_add(p, "after_attention", x, model_product(p, in, "attn_out", o, w->out, w->out_bias, &w->on_out));
}

static void hidden(Program *p, const Model *m, const ModelInput *in, ModelOut *out) {
    const ModelConfig *c = &m->spec.config;
    const Decoder *d = m->own;
    Tid x = op_embed(p, m->embedding, in->ids, in->id_order, m->spec.activations); // (N, C)
    for (int l = 0; l < c->layers; l++) {
        p->layer = l;
        p->part = PART_ATTENTION;
        x = attention(p, c, d, &d->layer[l], in, x);
        p->part = PART_FFN;
        x = model_feed_forward(p, c, &d->layer[l].ffn, in, x);
        if (l == out->tap_layer) out->tap = x;
    }
    p->layer = -1;
    p->part = PART_NONE;
    out->hidden = op_rmsnorm(p, x, d->final_norm, (float)c->rms_eps);
}

static Tid cache(Program *p, const Model *m, int which, int64_t rows, int64_t slots, Format f) {
    const ModelConfig *c = &m->spec.config;
    return prog_tensor(p, "kv_cache", ROLE_CACHE, f, 4, DIMS(rows, slots, (int64_t)2 * c->kv_heads, c->head_dim));
}

/* ---- the weights ---- */

static void layer_weights(Program *p, const Model *m, const ModelTraining *t, Layer *w) {
    const ModelConfig *c = &m->spec.config;
    int64_t q = (int64_t)c->heads * c->head_dim, kv = (int64_t)c->kv_heads * c->head_dim;
    const ModelPart qkv[] = {{PROJ_Q, q}, {PROJ_K, kv}, {PROJ_V, kv}}, out[] = {{PROJ_O, c->hidden}};

    w->attn_norm = model_weight(p, m, t, "attn_norm", model_in_layer(p, "input_layernorm.weight"), c->hidden, 0);
    w->qkv = model_weight(p, m, t, "qkv_w", NULL, q + 2 * kv, c->hidden);
    if (c->qkv_bias) w->qkv_bias = model_weight(p, m, t, "qkv_bias", NULL, q + 2 * kv, 0);
    model_parts(p, m, w->qkv, w->qkv_bias, qkv, 3);
    if (c->qk_norm) {
        w->q_norm = model_weight(p, m, t, "q_norm", model_in_layer(p, "self_attn.q_norm.weight"), c->head_dim, 0);
        w->k_norm = model_weight(p, m, t, "k_norm", model_in_layer(p, "self_attn.k_norm.weight"), c->head_dim, 0);
    }
    w->out = model_weight(p, m, t, "out_w", model_in_layer(p, "self_attn.o_proj.weight"), c->hidden, q);
    if (c->out_bias) w->out_bias = model_weight(p, m, t, "out_bias", model_in_layer(p, "self_attn.o_proj.bias"), c->hidden, 0);
    model_ffn_weights(p, m, t, &w->ffn, PROJ_GATE);

    w->on_qkv = model_adapter(p, m, t, "qkv", qkv, 3, c->hidden);
    w->on_out = model_adapter(p, m, t, "out", out, 1, q);
    model_ffn_adapters(p, m, t, &w->ffn, PROJ_GATE);
}

static void weights(Program *p, Model *m, const ModelTraining *t) {
    const ModelConfig *c = &m->spec.config;
    Decoder *d = m->own;
    float frequency[512];
    CHECK(c->head_dim / 2 <= COUNT_OF(frequency));
    config_rope(c, frequency, &d->rope_scale);
    m->embedding = model_weight(p, m, t, "embedding", "model.embed_tokens.weight", c->vocab, c->hidden);
    for (int l = 0; l < c->layers; l++) {
        p->layer = l;
        layer_weights(p, m, t, &d->layer[l]);
    }
    p->layer = -1;
    d->final_norm = model_weight(p, m, t, "final_norm", "model.norm.weight", c->hidden, 0);
    m->head = c->tied ? m->embedding : model_weight(p, m, t, "head", "lm_head.weight", c->vocab, c->hidden);
    d->inv_freq = prog_table(p, "inv_freq", frequency, c->head_dim / 2);
}

static int64_t own_bytes(const ModelConfig *c) { return (int64_t)sizeof(Decoder) + c->layers * (int64_t)sizeof(Layer); }

static int adapters(Model *m, int layer, Adapter **out) {
    Layer *w = &((Decoder *)m->own)->layer[layer];
    Adapter *on[] = {&w->on_qkv, &w->on_out, &w->ffn.on_gate_up, &w->ffn.on_down};
    for (int i = 0; i < COUNT_OF(on); i++) out[i] = on[i];
    return COUNT_OF(on);
}

const ModelFamily family_decoder = {.name = "decoder", .projections = projections, .n_projections = PROJ_COUNT,
                                    .own_bytes = own_bytes, .caches = 1, .weights = weights, .hidden = hidden,
                                    .cache = cache, .adapters = adapters};
