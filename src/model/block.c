/* block.c - what the families' models have in common: products with their adapters, projections of attention, the
 * SwiGLU feed-forward, and the walk over the layers.
 *
 * N tokens = rows * seq, C width, H heads, G KV heads, D head size, F hidden width of the feed-forward, V vocabulary.
 * q, k, v are one product and so are gate and up: their weights are stacked rows, each a view with its file's name. */
#include "model/model.h"

Tid model_product(Program *p, const ModelInput *in, const char *name, Tid x, Tid w, Tid bias, const Adapter *a) {
    Tid y = in->direct ? op_linear_direct(p, name, x, w, bias) : op_linear(p, name, x, w, bias);
    return a->a ? op_lora(p, y, x, a->a, a->b, a->attr) : y;
}

AttrHeads model_heads(const ModelConfig *c, int64_t seq, float scale) {
    return (AttrHeads){.heads = c->heads,
                       .kv_heads = c->kv_heads,
                       .head_dim = c->head_dim,
                       .seq = seq,
                       .scale = scale,
                       .eps = (float)c->rms_eps};
}

const char *model_in_layer(Program *p, const char *part) {
    return arena_printf(&p->arena, "model.layers.%d.%s", p->layer, part);
}

/* ---- the pass ---- */

Tid model_qkv(Program *p, const ModelConfig *c, const ModelBlock *w, const ModelInput *in, Tid h) {
    Tid qkv = model_product(p, in, "qkv", h, w->qkv, w->qkv_bias, &w->on_qkv); // (N, (H+2G)*D)
    return c->qk_norm ? op_head_norm(p, qkv, w->q_norm, w->k_norm, model_heads(c, in->seq, 1)) : qkv;
}

static Tid feed_forward(Program *p, const ModelConfig *c, const ModelBlock *w, const ModelInput *in, Tid x) {
    Tid h = op_rmsnorm(p, x, w->ffn_norm, (float)c->rms_eps);                           // (N, C)
    Tid gate_up = model_product(p, in, "gate_up", h, w->gate_up, NONE, &w->on_gate_up); // (N, 2F)
    Tid y = model_product(p, in, "ffn_out", op_swiglu(p, gate_up), w->down, NONE, &w->on_down);
    return op_add(p, "after_ffn", x, y); // (N, C)
}

void model_pass(Program *p, const Model *m, const ModelInput *in, ModelOut *out, const ModelEnds *ends,
                ModelAttention *attention, ModelBlockOf *block) {
    const ModelConfig *c = &m->spec.config;
    Tid x = op_embed(p, m->embedding, in->ids, in->id_order, m->spec.activations); // (N, C)
    for (int l = 0; l < c->layers; l++) {
        p->layer = l;
        p->part = PART_ATTENTION;
        x = attention(p, m, in, x, out);
        p->part = PART_FFN;
        x = feed_forward(p, c, block(m, l), in, x);
        if (l == out->tap_layer) out->tap = x;
    }
    p->layer = -1;
    p->part = PART_NONE;
    out->hidden = op_rmsnorm(p, x, ends->final_norm, (float)c->rms_eps);
}

/* ---- the weights ---- */

void model_block_weights(Program *p, const Model *m, const ModelTraining *t, ModelBlock *w) {
    const ModelConfig *c = &m->spec.config;
    int64_t q = (int64_t)c->heads * c->head_dim, kv = (int64_t)c->kv_heads * c->head_dim;
    const ModelPart qkv[] = {{PROJ_Q, q}, {PROJ_K, kv}, {PROJ_V, kv}},
                    gate_up[] = {{PROJ_GATE, c->ffn}, {PROJ_UP, c->ffn}};
    w->attn_norm = model_weight(p, m, t, "attn_norm", model_in_layer(p, "input_layernorm.weight"), c->hidden, 0);
    w->qkv = model_weight(p, m, t, "qkv_w", NULL, q + 2 * kv, c->hidden);
    if (c->qkv_bias) w->qkv_bias = model_weight(p, m, t, "qkv_bias", NULL, q + 2 * kv, 0);
    model_parts(p, m, w->qkv, w->qkv_bias, qkv, 3);
    if (c->qk_norm) {
        w->q_norm = model_weight(p, m, t, "q_norm", model_in_layer(p, "self_attn.q_norm.weight"), c->head_dim, 0);
        w->k_norm = model_weight(p, m, t, "k_norm", model_in_layer(p, "self_attn.k_norm.weight"), c->head_dim, 0);
    }
    w->out = model_weight(p, m, t, "out_w", model_in_layer(p, "self_attn.o_proj.weight"), c->hidden, q);
    if (c->out_bias)
        w->out_bias = model_weight(p, m, t, "out_bias", model_in_layer(p, "self_attn.o_proj.bias"), c->hidden, 0);
    w->ffn_norm = model_weight(p, m, t, "ffn_norm", model_in_layer(p, "post_attention_layernorm.weight"), c->hidden, 0);
    w->gate_up = model_weight(p, m, t, "gate_up_w", NULL, 2 * c->ffn, c->hidden);
    model_parts(p, m, w->gate_up, NONE, gate_up, 2);
    w->down = model_weight(p, m, t, "down_w", model_in_layer(p, "mlp.down_proj.weight"), c->hidden, c->ffn);
}

void model_block_adapters(Program *p, const Model *m, const ModelTraining *t, ModelBlock *w) {
    const ModelConfig *c = &m->spec.config;
    int64_t q = (int64_t)c->heads * c->head_dim, kv = (int64_t)c->kv_heads * c->head_dim;
    const ModelPart qkv[] = {{PROJ_Q, q}, {PROJ_K, kv}, {PROJ_V, kv}}, out[] = {{PROJ_O, c->hidden}};
    const ModelPart gate_up[] = {{PROJ_GATE, c->ffn}, {PROJ_UP, c->ffn}}, down[] = {{PROJ_DOWN, c->hidden}};
    w->on_qkv = model_adapter(p, m, t, "qkv", qkv, 3, c->hidden);
    w->on_out = model_adapter(p, m, t, "out", out, 1, q);
    w->on_gate_up = model_adapter(p, m, t, "gate_up", gate_up, 2, c->hidden);
    w->on_down = model_adapter(p, m, t, "down", down, 1, c->ffn);
}

int model_block_list(ModelBlock *w, Adapter **out) {
    Adapter *on[MODEL_BLOCK_ADAPTERS] = {&w->on_qkv, &w->on_out, &w->on_gate_up, &w->on_down};
    for (int i = 0; i < MODEL_BLOCK_ADAPTERS; i++) out[i] = on[i];
    return MODEL_BLOCK_ADAPTERS;
}

void model_all_weights(Program *p, Model *m, const ModelTraining *t, ModelEnds *ends, ModelLayerWeights *layer) {
    const ModelConfig *c = &m->spec.config;
    float frequency[512];
    CHECK(c->head_dim / 2 <= COUNT_OF(frequency));
    config_rope(c, frequency, &ends->rope_scale);
    m->embedding = model_weight(p, m, t, "embedding", "model.embed_tokens.weight", c->vocab, c->hidden);
    for (int l = 0; l < c->layers; l++) {
        p->layer = l;
        layer(p, m, t, l);
    }
    p->layer = -1;
    ends->final_norm = model_weight(p, m, t, "final_norm", "model.norm.weight", c->hidden, 0);
    m->head = c->tied ? m->embedding : model_weight(p, m, t, "head", "lm_head.weight", c->vocab, c->hidden);
    ends->inv_freq = prog_table(p, "inv_freq", frequency, c->head_dim / 2);
}
