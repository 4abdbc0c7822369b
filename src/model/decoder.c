/* decoder.c - the decoder as drawn on a whiteboard: Qwen2, Qwen3, Llama, Mistral. What it shares with other
 * families stands in block.c.
 *
 * N tokens = rows * seq, C width, H heads, G KV heads, D head size. */
#include <math.h>

#include "model/model.h"

static const char *const projections[PROJ_USUAL] = {MODEL_USUAL_PROJECTIONS};

typedef struct Decoder { /* Model.own */
    ModelEnds ends;
    ModelBlock layer[];
} Decoder;

/* ---- the pass ---- */

static Tid attention(Program *p, const Model *m, const ModelInput *in, Tid x, ModelOut *out) {
    const ModelConfig *c = &m->spec.config;
    const Decoder *d = m->own;
    const ModelBlock *w = &d->layer[p->layer];
    Tid h = op_rmsnorm(p, x, w->attn_norm, (float)c->rms_eps);                     // (N, C)
    Tid qkv = model_qkv(p, c, w, in, h);                                           // (N, (H+2G)*D)
    AttrHeads rope = model_heads(c, in->seq, d->ends.rope_scale),
              a = model_heads(c, in->seq, 1.0f / sqrtf((float)c->head_dim));
    Tid o;
    if (in->cache) {
        Tid cache = in->cache[p->layer];
        rope.slots = a.slots = in->slots;
        rope.distinct_cache_rows = a.distinct_cache_rows = in->distinct_cache_rows;
        qkv = op_rope_put(p, cache, qkv, in->positions, d->ends.inv_freq, in->cache_rows, rope);
        o = op_attend_cache(p, qkv, cache, in->positions, in->cache_rows, a);
    } else {
        a.by = in->attend;
        qkv = op_rope(p, qkv, in->positions, d->ends.inv_freq, rope);
        if (in->prefix) a.prefix = in->prefix_tokens, a.document = in->document_tokens;
        o = op_attend(p, qkv, in->doc_begin, in->prefix, a);                       // (N, H*D)
        a.by = ATTEND_OWN;
        if (out->report) op_attend_report(p, out->report[p->layer], qkv, NONE, in->doc_begin, a);
    }
    return op_add(p, "after_attention", x, model_product(p, in, "attn_out", o, w->out, w->out_bias, &w->on_out));
}

static const ModelBlock *block_of(const Model *m, int layer) { return &((const Decoder *)m->own)->layer[layer]; }

static void hidden(Program *p, const Model *m, const ModelInput *in, ModelOut *out) {
    model_pass(p, m, in, out, &((const Decoder *)m->own)->ends, attention, block_of);
}

static Tid cache(Program *p, const Model *m, int which, int64_t rows, int64_t slots, Format f) {
    const ModelConfig *c = &m->spec.config;
    return prog_tensor(p, "kv_cache", ROLE_CACHE, f, 4, DIMS(rows, slots, (int64_t)2 * c->kv_heads, c->head_dim));
}

/* ---- the weights ---- */

static void layer_weights(Program *p, Model *m, const ModelTraining *t, int layer) {
    ModelBlock *w = &((Decoder *)m->own)->layer[layer];
    model_block_weights(p, m, t, w);
    model_block_adapters(p, m, t, w);
}

static void weights(Program *p, Model *m, const ModelTraining *t) {
    model_all_weights(p, m, t, &((Decoder *)m->own)->ends, layer_weights);
}

static int64_t own_bytes(const ModelConfig *c) {
    return (int64_t)sizeof(Decoder) + c->layers * (int64_t)sizeof(ModelBlock);
}

static int adapters(Model *m, int layer, Adapter **out) {
    return model_block_list(&((Decoder *)m->own)->layer[layer], out);
}

const ModelFamily family_decoder = {.name = "decoder",
                                    .projections = projections,
                                    .n_projections = PROJ_USUAL,
                                    .own_bytes = own_bytes,
                                    .caches = 1,
                                    .weights = weights,
                                    .hidden = hidden,
                                    .cache = cache,
                                    .adapters = adapters,
                                    .shares_prefix = true};
