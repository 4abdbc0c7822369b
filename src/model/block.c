/* block.c - what the blocks of several families have in common: products with their adapters, and the SwiGLU feed-forward.
 *
 * N tokens, C width, F hidden width of the feed-forward; gate and up are one product. */
#include "model/model.h"

Tid model_product(Program *p, const ModelInput *in, const char *name, Tid x, Tid w, Tid bias, const Adapter *a) {
    Tid y = in->direct ? op_linear_direct(p, name, x, w, bias) : op_linear(p, name, x, w, bias);
    return a->a ? op_lora(p, y, x, a->a, a->b, a->attr) : y;
}

AttrHeads model_heads(const ModelConfig *c, int64_t seq, float scale) {
    return (AttrHeads){.heads = c->heads, .kv_heads = c->kv_heads, .head_dim = c->head_dim, .seq = seq,
                       .scale = scale, .eps = (float)c->rms_eps};
}

const char *model_in_layer(Program *p, const char *part) {
    return arena_printf(&p->arena, "model.layers.%d.%s", p->layer, part);
}

Tid model_feed_forward(Program *p, const ModelConfig *c, const ModelFfn *w, const ModelInput *in, Tid x) {
    Tid h = op_rmsnorm(p, x, w->norm, (float)c->rms_eps);                                // (N, C)
    Tid gate_up = model_product(p, in, "gate_up", h, w->gate_up, NONE, &w->on_gate_up);  // (N, 2F)
    Tid y = model_product(p, in, "ffn_out", op_swiglu(p, gate_up), w->down, NONE, &w->on_down);
    return op_add(p, "after_ffn", x, y);                                                 // (N, C)
}

void model_ffn_weights(Program *p, const Model *m, const ModelTraining *t, ModelFfn *w, int first) {
    const ModelConfig *c = &m->spec.config;
    const ModelPart gate_up[] = {{first + FFN_GATE, c->ffn}, {first + FFN_UP, c->ffn}};
    w->norm = model_weight(p, m, t, "ffn_norm", model_in_layer(p, "post_attention_layernorm.weight"), c->hidden, 0);
    w->gate_up = model_weight(p, m, t, "gate_up_w", NULL, 2 * c->ffn, c->hidden);
    model_parts(p, m, w->gate_up, NONE, gate_up, 2);
    w->down = model_weight(p, m, t, "down_w", model_in_layer(p, "mlp.down_proj.weight"), c->hidden, c->ffn);
}

void model_ffn_adapters(Program *p, const Model *m, const ModelTraining *t, ModelFfn *w, int first) {
    const ModelConfig *c = &m->spec.config;
    const ModelPart gate_up[] = {{first + FFN_GATE, c->ffn}, {first + FFN_UP, c->ffn}}, down[] = {{first + FFN_DOWN, c->hidden}};
    w->on_gate_up = model_adapter(p, m, t, "gate_up", gate_up, 2, c->hidden);
    w->on_down = model_adapter(p, m, t, "down", down, 1, c->ffn);
}
