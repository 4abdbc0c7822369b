/* decoder.c - the decoder as drawn on a whiteboard.
 *
 * N tokens = rows * seq, C width, H heads, G KV heads, D head size, F hidden width of the feed-forward, V vocabulary.
 * q, k, v are one product and so are gate and up: their weights are stacked rows, each a view with its file's name. */
#include "model/decoder.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const projection_names[PROJ_COUNT] = {"q_proj", "k_proj", "v_proj", "o_proj",
                                                         "gate_proj", "up_proj", "down_proj"};

const char *decoder_projection_name(Projection proj) { return projection_names[proj]; }

static const char *block_of(Projection proj) { return proj <= PROJ_O ? "self_attn" : "mlp"; }

/* ---- the pass ---- */

static Tid product(Program *p, const DecoderInput *in, const char *name, Tid x, Tid w, Tid bias, const Adapter *a) {
    Tid y = in->direct ? op_linear_direct(p, name, x, w, bias) : op_linear(p, name, x, w, bias);
    return a->a ? op_lora(p, y, x, a->a, a->b, a->attr) : y;
}

static AttrHeads heads(const Decoder *d, int64_t seq, float scale) {
    return (AttrHeads){.heads = d->c.heads, .kv_heads = d->c.kv_heads, .head_dim = d->c.head_dim, .seq = seq,
                       .scale = scale, .eps = (float)d->c.rms_eps};
}

static Tid attention(Program *p, const Decoder *d, const DecoderLayer *w, const DecoderInput *in, Tid x, Tid cache,
                     int64_t slots) {
    Tid h = op_rmsnorm(p, x, w->attn_norm, (float)d->c.rms_eps);                   // (N, C)
    Tid qkv = product(p, in, "qkv", h, w->qkv, w->qkv_bias, &w->on_qkv);               // (N, (H+2G)*D)
    if (d->c.qk_norm) qkv = op_head_norm(p, qkv, w->q_norm, w->k_norm, heads(d, in->seq, 1));
    AttrHeads rope = heads(d, in->seq, d->rope_scale), a = heads(d, in->seq, 1.0f / sqrtf((float)d->c.head_dim));
    Tid o;
    if (cache) {
        rope.slots = a.slots = slots;
        rope.distinct_cache_rows = a.distinct_cache_rows = in->distinct_cache_rows;
        qkv = op_rope_put(p, cache, qkv, in->positions, d->inv_freq, in->cache_rows, rope);
        o = op_attend_cache(p, qkv, cache, in->positions, in->cache_rows, a);
    } else {
        a.by = in->attend;
        qkv = op_rope(p, qkv, in->positions, d->inv_freq, rope);
        o = op_attend(p, qkv, in->doc_begin, a);                                   // (N, H*D)
    }
    return op_add(p, "after_attention", x, product(p, in, "attn_out", o, w->out, w->out_bias, &w->on_out));
}

static Tid feed_forward(Program *p, const Decoder *d, const DecoderLayer *w, const DecoderInput *in, Tid x) {
    Tid h = op_rmsnorm(p, x, w->ffn_norm, (float)d->c.rms_eps);                    // (N, C)
    Tid gate_up = product(p, in, "gate_up", h, w->gate_up, NONE, &w->on_gate_up);      // (N, 2F)
    Tid y = product(p, in, "ffn_out", op_swiglu(p, gate_up), w->down, NONE, &w->on_down);
    return op_add(p, "after_ffn", x, y);                                           // (N, C)
}

Tid decoder_hidden(Program *p, const Decoder *d, const DecoderInput *in, const Tid *caches, int64_t cache_slots) {
    Tid x = op_embed(p, d->embedding, in->ids, in->id_order, d->spec.activations); // (N, C)
    for (int l = 0; l < d->c.layers; l++) {
        p->layer = l;
        p->part = PART_ATTENTION;
        x = attention(p, d, &d->layer[l], in, x, caches ? caches[l] : NONE, cache_slots);
        p->part = PART_FFN;
        x = feed_forward(p, d, &d->layer[l], in, x);
    }
    p->layer = -1;
    p->part = PART_NONE;
    return op_rmsnorm(p, x, d->final_norm, (float)d->c.rms_eps);
}

/* ---- the weights ---- */

void decoder_train(Program *p, Tid weight, Format gradient) {
    Tensor w = *prog_t(p, weight);
    int layer = p->layer;
    p->layer = -1; /* the name carries the layer already */
    Tid g = prog_tensor(p, arena_printf(&p->arena, "%s.grad", w.name), ROLE_GRADIENT, gradient, w.rank, w.dim);
    p->layer = layer;
    p->t[g].layer = w.layer;
    p->t[weight].grad = g;
    p->t[weight].trainable = p->t[weight].needs_grad = true;
}

static Tid weight(Program *p, Decoder *d, const char *name, const char *file_name, int64_t rows, int64_t cols) {
    Format f = d->spec.format;
    Tid w = cols ? prog_tensor(p, name, ROLE_WEIGHT, f, 2, DIMS(rows, cols)) : prog_tensor(p, name, ROLE_WEIGHT, f, 1, DIMS(rows));
    if (file_name) p->t[w].file_name = arena_strdup(&p->arena, file_name);
    if (d->spec.train) decoder_train(p, w, d->spec.gradients);
    return w;
}

static const char *layer_name(Program *p, const char *part) {
    return arena_printf(&p->arena, "model.layers.%d.%s", p->layer, part);
}

/* Rows of a stacked weight under the name their file gives them. */
static void part(Program *p, Tid whole, Projection proj, const char *suffix, int64_t first, int64_t rows) {
    char name[96];
    snprintf(name, sizeof name, "%s.%s.%s", block_of(proj), projection_names[proj], suffix);
    Tid v = prog_view(p, name, whole, first, rows);
    p->t[v].file_name = layer_name(p, name);
}

static Adapter adapter(Program *p, Decoder *d, const char *name, const Projection *proj, const int64_t *rows, int n,
                       int64_t cols) {
    const LoraSpec *l = &d->spec.lora;
    Adapter a = {.attr = {.rank = l->rank, .scale = l->rank ? l->alpha / (float)l->rank : 0, .dropout = l->dropout}};
    int64_t total = 0, col = 0;
    Projection on[LORA_GROUPS];
    for (int i = 0; i < n; col += rows[i++]) {
        if (!l->rank || !(l->targets >> proj[i] & 1)) continue;
        int g = a.attr.groups++;
        on[g] = proj[i];
        a.attr.col[g] = col;
        a.attr.rows[g] = rows[i];
        total += rows[i];
    }
    if (!a.attr.groups) return a;
    a.a = prog_tensor(p, arena_printf(&p->arena, "%s.lora_a", name), ROLE_ADAPTER, l->format, 2,
                      DIMS((int64_t)a.attr.groups * l->rank, cols));
    a.b = prog_tensor(p, arena_printf(&p->arena, "%s.lora_b", name), ROLE_ADAPTER, l->format, 2, DIMS(total, l->rank));
    int64_t first = 0;
    for (int g = 0; g < a.attr.groups; first += a.attr.rows[g++]) {
        const char *path = arena_printf(&p->arena, "%s.%s", block_of(on[g]), projection_names[on[g]]);
        Tid va = prog_view(p, arena_printf(&p->arena, "%s.lora_A", path), a.a, (int64_t)g * l->rank, l->rank);
        p->t[va].file_name = arena_printf(&p->arena, "base_model.model.model.layers.%d.%s.lora_A.weight", p->layer, path);
        Tid vb = prog_view(p, arena_printf(&p->arena, "%s.lora_B", path), a.b, first, a.attr.rows[g]);
        p->t[vb].file_name = arena_printf(&p->arena, "base_model.model.model.layers.%d.%s.lora_B.weight", p->layer, path);
    }
    decoder_train(p, a.a, d->spec.gradients);
    decoder_train(p, a.b, d->spec.gradients);
    return a;
}

static void layer_weights(Program *p, Decoder *d, DecoderLayer *w) {
    const ModelConfig *c = &d->c;
    int64_t q = (int64_t)c->heads * c->head_dim, kv = (int64_t)c->kv_heads * c->head_dim;
    const Projection three[] = {PROJ_Q, PROJ_K, PROJ_V}, two[] = {PROJ_GATE, PROJ_UP}, o[] = {PROJ_O}, down[] = {PROJ_DOWN};
    const int64_t three_rows[] = {q, kv, kv}, two_rows[] = {c->ffn, c->ffn}, one_row[] = {c->hidden};

    w->attn_norm = weight(p, d, "attn_norm", layer_name(p, "input_layernorm.weight"), c->hidden, 0);
    w->qkv = weight(p, d, "qkv_w", NULL, q + 2 * kv, c->hidden);
    if (c->qkv_bias) w->qkv_bias = weight(p, d, "qkv_bias", NULL, q + 2 * kv, 0);
    for (int64_t i = 0, first = 0; i < 3; first += three_rows[i++]) {
        part(p, w->qkv, three[i], "weight", first, three_rows[i]);
        if (c->qkv_bias) part(p, w->qkv_bias, three[i], "bias", first, three_rows[i]);
    }
    if (c->qk_norm) {
        w->q_norm = weight(p, d, "q_norm", layer_name(p, "self_attn.q_norm.weight"), c->head_dim, 0);
        w->k_norm = weight(p, d, "k_norm", layer_name(p, "self_attn.k_norm.weight"), c->head_dim, 0);
    }
    w->out = weight(p, d, "out_w", layer_name(p, "self_attn.o_proj.weight"), c->hidden, q);
    if (c->out_bias) w->out_bias = weight(p, d, "out_bias", layer_name(p, "self_attn.o_proj.bias"), c->hidden, 0);
    w->ffn_norm = weight(p, d, "ffn_norm", layer_name(p, "post_attention_layernorm.weight"), c->hidden, 0);
    w->gate_up = weight(p, d, "gate_up_w", NULL, 2 * c->ffn, c->hidden);
    for (int64_t i = 0; i < 2; i++) part(p, w->gate_up, two[i], "weight", i * c->ffn, c->ffn);
    w->down = weight(p, d, "down_w", layer_name(p, "mlp.down_proj.weight"), c->hidden, c->ffn);

    const Tid products[] = {w->qkv, w->out, w->gate_up, w->down};
    for (int i = 0; i < COUNT_OF(products); i++) p->t[products[i]].home = (Home){d->spec.pool, d->spec.stored};

    w->on_qkv = adapter(p, d, "qkv", three, three_rows, 3, c->hidden);
    w->on_out = adapter(p, d, "out", o, one_row, 1, q);
    w->on_gate_up = adapter(p, d, "gate_up", two, two_rows, 2, c->hidden);
    w->on_down = adapter(p, d, "down", down, one_row, 1, c->ffn);
}

void decoder_weights(Program *p, Decoder *d, const ModelConfig *c, const WeightSpec *spec) {
    *d = (Decoder){.c = *c, .spec = *spec};
    d->layer = ARENA_NEW(&p->arena, DecoderLayer, c->layers);
    d->embedding = weight(p, d, "embedding", "model.embed_tokens.weight", c->vocab, c->hidden);
    for (int l = 0; l < c->layers; l++) {
        p->layer = l;
        layer_weights(p, d, &d->layer[l]);
    }
    p->layer = -1;
    d->final_norm = weight(p, d, "final_norm", "model.norm.weight", c->hidden, 0);
    d->head = c->tied ? d->embedding : weight(p, d, "head", "lm_head.weight", c->vocab, c->hidden);
    d->inv_freq = prog_tensor(p, "inv_freq", ROLE_TABLE, FMT_F32, 1, DIMS(c->head_dim / 2));
    float scratch[512];
    CHECK(c->head_dim / 2 <= COUNT_OF(scratch));
    config_rope(c, scratch, &d->rope_scale);
}

DecoderInput decoder_input(Program *p, const Decoder *d, const char *prefix, int64_t rows, int64_t seq) {
    DecoderInput in = {.rows = rows, .seq = seq};
    const int64_t *n = DIMS(rows * seq);
    in.ids = prog_tensor(p, arena_printf(&p->arena, "%s.ids", prefix), ROLE_INPUT, FMT_I32, 1, n);
    in.positions = prog_tensor(p, arena_printf(&p->arena, "%s.positions", prefix), ROLE_INPUT, FMT_I32, 1, n);
    in.doc_begin = prog_tensor(p, arena_printf(&p->arena, "%s.doc_begin", prefix), ROLE_INPUT, FMT_I32, 1, n);
    if (p->t[d->embedding].trainable)
        in.id_order = prog_tensor(p, arena_printf(&p->arena, "%s.id_order", prefix), ROLE_INPUT, FMT_I32, 1, n);
    return in;
}

Tid decoder_cache(Program *p, const Decoder *d, int layer, int64_t rows, int64_t slots) {
    p->layer = layer;
    Tid cache = prog_tensor(p, "kv_cache", ROLE_CACHE, d->spec.cache, 4,
                            DIMS(rows, slots, (int64_t)2 * d->c.kv_heads, d->c.head_dim));
    p->layer = -1;
    return cache;
}

int64_t decoder_count(const Program *p, bool trainable_only) {
    int64_t n = 0;
    for (Tid i = 1; i < p->n_t; i++) {
        const Tensor *t = prog_t(p, i);
        if (t->base || (t->role != ROLE_WEIGHT && t->role != ROLE_ADAPTER)) continue;
        if (!trainable_only || t->trainable) n += prog_elements(p, i);
    }
    return n;
}
