/* gsa.c - the decoder with gated sparse attention: a small indexer selects the keys that a query attends to, gates
 * stand on values and outputs.
 *
 * N tokens = rows * seq, C width, H heads, G KV heads, D head size, J index heads of E numbers, K keys selected. The
 * indexer reads the block's input but gives it no gradient: it learns by its own loss alone (op_index_loss), and the
 * rest of the model by the language's alone. */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "model/model.h"

enum { PROJ_VALUE_GATE = PROJ_USUAL, PROJ_OUTPUT_GATE, PROJ_QUERY, PROJ_KEY, PROJ_WEIGHT, PROJ_COUNT };

static const char *const projections[PROJ_COUNT] = {MODEL_USUAL_PROJECTIONS,      "self_attn.value_gate",
                                                    "self_attn.output_gate",      "self_attn.indexer.query_proj",
                                                    "self_attn.indexer.key_proj", "self_attn.indexer.weight_proj"};

enum { CACHE_KV, CACHE_INDEX, CACHES };

typedef struct Layer {
    ModelBlock block;
    Tid value_gate, value_gate_bias, output_gate, output_gate_bias;
    Tid index, index_bias; /* (J*E + E + J, C); (2J): of the weights, then of the scores */
    Adapter on_value_gate, on_output_gate, on_index;
} Layer;

typedef struct Gsa { /* Model.own */
    ModelEnds ends;
    Layer layer[];
} Gsa;

/* ---- the pass ---- */

static AttrSparse sparse_of(const ModelConfig *c, const ModelInput *in, AttrHeads heads, int layer) {
    static const SelectBy by[SELECTION_COUNT] = {
        [SELECTION_LEARNED] = SELECT_LEARNED, [SELECTION_RANDOM] = SELECT_RANDOM, [SELECTION_ORACLE] = SELECT_ORACLE};
    const GsaConfig *g = &c->gsa;
    return (AttrSparse){.heads = heads,
                        .index_heads = g->index_heads,
                        .index_dim = g->index_dim,
                        .relu = g->index_relu,
                        .by = g->drawn ? SELECT_RANDOM : by[g->selection],
                        .keep = g->keep,
                        .k_base = g->k_base,
                        .k_min = g->k_min,
                        .k_max = g->k_max,
                        .temperature = (float)g->temperature,
                        .key = rng_fold(0x65a, (uint64_t)layer),
                        .kept = g->drawn ? (uint32_t)(g->overlap * 0x1p31) : 0};
}

/* Which keys each token attends to. */
static Tid selection(Program *p, const Layer *w, const ModelInput *in, Tid index, Tid qkv, AttrSparse a) {
    bool oracle = a.by == SELECT_ORACLE;
    SelectTensors t = {.index = index,
                       .bias = w->index_bias,
                       .doc_begin = in->cache ? NONE : in->doc_begin,
                       .qkv = oracle ? qkv : NONE};
    if (in->cache) {
        const Tid *cache = in->cache + p->layer * CACHES;
        op_index_put(p, cache[CACHE_INDEX], index, in->positions, in->cache_rows, a);
        t.positions = in->positions;
        t.rows = in->cache_rows;
        t.cache = cache[CACHE_INDEX];
        t.kv_cache = oracle ? cache[CACHE_KV] : NONE;
    }
    return op_select(p, t, a); // (N, K)
}

/* The indexer's loss, where somebody learns by it. */
static void add_term(Program *p, ModelOut *out, const ModelInput *in, IndexLossTensors t, AttrSparse a) {
    if (!in->weight || (!p->t[t.index].needs_grad && !p->t[t.bias].needs_grad)) return;
    if (!out->n_terms) { /* one sum for all layers */
        int layer = p->layer;
        p->layer = -1;
        out->term[out->n_terms++] =
            prog_tensor(p, in->warmup ? "warmup_index_loss" : "index_loss", ROLE_STATISTIC, FMT_F64, 1, DIMS(1));
        p->layer = layer;
    }
    t.doc_begin = in->doc_begin, t.weight = in->weight, t.divisor = in->divisor;
    op_index_loss(p, out->term[0], t, a);
}

static Tid dense(Program *p, const ModelInput *in, Tid qkv, AttrHeads a) {
    if (in->cache)
        return op_attend_cache(p, qkv, in->cache[p->layer * CACHES + CACHE_KV], in->positions, in->cache_rows, a);
    a.by = in->warmup ? ATTEND_OWN : in->attend; /* whose lse the indexer learns from */
    return op_attend(p, qkv, in->doc_begin, NONE, a);
}

typedef struct Block { /* what a layer's attention is recorded with */
    const ModelConfig *c;
    const Layer *w;
    const ModelInput *in;
    ModelOut *out;
    Tid h; /* its input, normed */
} Block;

static Tid index_of(Program *p, const Block *b) {
    return model_product(p, b->in, "index", op_stop_gradient(p, b->h), b->w->index, NONE, &b->w->on_index);
}

/* All keys are attended to, and the indexer learns from all of it. */
static Tid warmed_up(Program *p, const Block *b, Tid qkv, AttrHeads heads) {
    Tid o = dense(p, b->in, qkv, heads), lse = p->s[p->n_s - 1].attend.out.lse;
    add_term(p, b->out, b->in,
             (IndexLossTensors){.index = index_of(p, b), .bias = b->w->index_bias, .qkv = qkv, .lse = lse},
             sparse_of(b->c, b->in, heads, p->layer));
    return o;
}

/* qkv: rotated. */
static Tid sparse(Program *p, const Block *b, Tid qkv, AttrHeads heads) {
    const ModelInput *in = b->in;
    AttrSparse a = sparse_of(b->c, in, heads, p->layer);
    Tid lse, index = index_of(p, b), keys = selection(p, b->w, in, index, qkv, a);
    Tid o = op_attend_selected(p, qkv, keys, in->cache ? in->cache[p->layer * CACHES + CACHE_KV] : NONE, in->cache_rows,
                               heads, &lse);
    if (b->c->gsa.selection == SELECTION_LEARNED)
        add_term(p, b->out, in,
                 (IndexLossTensors){.index = index, .bias = b->w->index_bias, .qkv = qkv, .lse = lse, .keys = keys}, a);
    if (b->out->report) op_attend_report(p, b->out->report[p->layer], qkv, keys, in->doc_begin, heads);
    return o;
}

static Tid attended(Program *p, const Block *b, Tid qkv, AttrHeads heads) {
    const GsaConfig *g = &b->c->gsa;
    bool indexed = b->w->index != NONE; /* not with --selection all, and not in a dense layer */
    if (b->in->warmup && indexed) return warmed_up(p, b, qkv, heads);
    if (!indexed) {
        if (b->out->report) op_attend_report(p, b->out->report[p->layer], qkv, NONE, b->in->doc_begin, heads);
        return dense(p, b->in, qkv, heads);
    }
    Tid o = sparse(p, b, qkv, heads);
    if (g->dense_share == 0) return o;
    return op_mix(p, "attended_mixed", o, dense(p, b->in, qkv, heads),
                  (AttrMix){1 - (float)g->dense_share, (float)g->dense_share});
}

static Tid gate(Program *p, const Block *b, const char *name, Tid x, Tid w, Tid bias, const Adapter *on, AttrGate a) {
    Tid z = model_product(p, b->in, arena_printf(&p->arena, "%s_z", name), b->h, w, bias, on);
    if (b->out->report) op_gate_report(p, b->out->report[p->layer], z, a);
    return op_gate(p, name, x, z, a);
}

static Tid attention(Program *p, const Model *m, const ModelInput *in, Tid x, ModelOut *out) {
    const ModelConfig *c = &m->spec.config;
    const GsaConfig *g = &c->gsa;
    const Gsa *d = m->own;
    const Layer *w = &d->layer[p->layer];
    AttrHeads rope = model_heads(c, in->seq, d->ends.rope_scale),
              a = model_heads(c, in->seq, 1.0f / sqrtf((float)c->head_dim));
    Block b = {c, w, in, out, op_rmsnorm(p, x, w->block.attn_norm, (float)c->rms_eps)}; // (N, C)
    Tid qkv = model_qkv(p, c, &w->block, in, b.h);                                      // (N, (H+2G)*D)
    if (w->value_gate)
        qkv = gate(p, &b, "values_gated", qkv, w->value_gate, w->value_gate_bias, &w->on_value_gate,
                   (AttrGate){g->gate_act, (int64_t)(c->heads + c->kv_heads) * c->head_dim, 1});
    if (in->cache) {
        rope.slots = a.slots = in->slots;
        rope.distinct_cache_rows = a.distinct_cache_rows = in->distinct_cache_rows;
        qkv = op_rope_put(p, in->cache[p->layer * CACHES + CACHE_KV], qkv, in->positions, d->ends.inv_freq,
                          in->cache_rows, rope);
    } else {
        qkv = op_rope(p, qkv, in->positions, d->ends.inv_freq, rope);
    }
    Tid o = attended(p, &b, qkv, a); // (N, H*D)
    if (w->output_gate)
        o = gate(p, &b, "attended_gated", o, w->output_gate, w->output_gate_bias, &w->on_output_gate,
                 (AttrGate){g->gate_act, 0, g->gate_a_head ? c->head_dim : 1});
    return op_add(p, "after_attention", x,
                  model_product(p, in, "attn_out", o, w->block.out, w->block.out_bias, &w->block.on_out));
}

static const ModelBlock *block_of(const Model *m, int layer) { return &((const Gsa *)m->own)->layer[layer].block; }

static void hidden(Program *p, const Model *m, const ModelInput *in, ModelOut *out) {
    model_pass(p, m, in, out, &((const Gsa *)m->own)->ends, attention, block_of);
}

static Tid cache(Program *p, const Model *m, int which, int64_t rows, int64_t slots, Format f) {
    const ModelConfig *c = &m->spec.config;
    if (which == CACHE_INDEX && ((const Gsa *)m->own)->layer[p->layer].index == NONE) return NONE;
    if (which == CACHE_INDEX)
        return prog_tensor(p, "index_cache", ROLE_CACHE, f, 3, DIMS(rows, slots, c->gsa.index_dim));
    return prog_tensor(p, "kv_cache", ROLE_CACHE, f, 4, DIMS(rows, slots, (int64_t)2 * c->kv_heads, c->head_dim));
}

/* ---- the weights ---- */

/* An indexer that only says how many keys there are learns nothing. */
static const ModelTraining *index_training(const ModelConfig *c, const ModelTraining *t) {
    return c->gsa.selection == SELECTION_LEARNED ? t : NULL;
}

static void index_weights(Program *p, const Model *m, const ModelTraining *t, Layer *w) {
    const GsaConfig *g = &m->spec.config.gsa;
    int64_t hidden_size = m->spec.config.hidden, queries = (int64_t)g->index_heads * g->index_dim;
    const ModelPart parts[] = {{PROJ_QUERY, queries}, {PROJ_KEY, g->index_dim}, {PROJ_WEIGHT, g->index_heads}};
    t = index_training(&m->spec.config, t);
    w->index = model_weight(p, m, t, "indexer_w", NULL, queries + g->index_dim + g->index_heads, hidden_size);
    model_parts(p, m, w->index, NONE, parts, 3);
    w->index_bias = model_weight(p, m, t, "indexer_bias", NULL, 2 * g->index_heads, 0);
    Tid of_weights = prog_view(p, "indexer.weight_bias", w->index_bias, 0, g->index_heads);
    Tid of_scores = prog_view(p, "indexer.score_bias", w->index_bias, g->index_heads, g->index_heads);
    p->t[of_weights].file_name = model_in_layer(p, "self_attn.indexer.weight_proj.bias");
    p->t[of_scores].file_name = model_in_layer(p, "self_attn.indexer.bias");
    w->on_index = model_adapter(p, m, t, "indexer", parts, 3, hidden_size);
}

static void gate_weights(Program *p, const Model *m, const ModelTraining *t, Layer *w) {
    const ModelConfig *c = &m->spec.config;
    int64_t values = (int64_t)c->kv_heads * c->head_dim,
            outputs = c->gsa.gate_a_head ? c->heads : (int64_t)c->heads * c->head_dim;
    const ModelPart value[] = {{PROJ_VALUE_GATE, values}}, output[] = {{PROJ_OUTPUT_GATE, outputs}};
    if (c->gsa.value_gate) {
        w->value_gate =
            model_weight(p, m, t, "value_gate_w", model_in_layer(p, "self_attn.value_gate.weight"), values, c->hidden);
        w->value_gate_bias =
            model_weight(p, m, t, "value_gate_bias", model_in_layer(p, "self_attn.value_gate.bias"), values, 0);
        w->on_value_gate = model_adapter(p, m, t, "value_gate", value, 1, c->hidden);
    }
    if (c->gsa.output_gate) {
        w->output_gate = model_weight(p, m, t, "output_gate_w", model_in_layer(p, "self_attn.output_gate.weight"),
                                      outputs, c->hidden);
        w->output_gate_bias =
            model_weight(p, m, t, "output_gate_bias", model_in_layer(p, "self_attn.output_gate.bias"), outputs, 0);
        w->on_output_gate = model_adapter(p, m, t, "output_gate", output, 1, c->hidden);
    }
}

static void layer_weights(Program *p, Model *m, const ModelTraining *t, int layer) {
    Layer *w = &((Gsa *)m->own)->layer[layer];
    model_block_weights(p, m, t, &w->block);
    model_block_adapters(p, m, t, &w->block);
    if (!config_is_sparse_layer(&m->spec.config, layer)) return;
    gate_weights(p, m, t, w);
    if (m->spec.config.gsa.selection != SELECTION_ALL) index_weights(p, m, t, w);
}

static void weights(Program *p, Model *m, const ModelTraining *t) {
    model_all_weights(p, m, t, &((Gsa *)m->own)->ends, layer_weights);
}

static int64_t own_bytes(const ModelConfig *c) { return (int64_t)sizeof(Gsa) + c->layers * (int64_t)sizeof(Layer); }

static int adapters(Model *m, int layer, Adapter **out) {
    Layer *w = &((Gsa *)m->own)->layer[layer];
    int n = model_block_list(&w->block, out);
    out[n++] = &w->on_value_gate;
    out[n++] = &w->on_output_gate;
    out[n++] = &w->on_index;
    return n;
}

static bool has_warmup(const ModelConfig *c) { return c->gsa.selection == SELECTION_LEARNED; }

static uint32_t present(const ModelConfig *c) {
    uint32_t bits = (1u << PROJ_VALUE_GATE) - 1;
    if (c->gsa.value_gate) bits |= 1u << PROJ_VALUE_GATE;
    if (c->gsa.output_gate) bits |= 1u << PROJ_OUTPUT_GATE;
    if (c->gsa.selection == SELECTION_LEARNED) bits |= 1u << PROJ_QUERY | 1u << PROJ_KEY | 1u << PROJ_WEIGHT;
    return bits;
}

/* ---- random starts ---- */

static AttrFill xavier(double gain, double from, double to) {
    return (AttrFill){FILL_UNIFORM, (float)(gain * sqrt(6 / (from + to))), 0};
}

/* Uniform by the widths of both sides: q, k, v by 1/sqrt(2), the output by the number of layers, the indexer by 1,
 * gates and index weights by a tenth; the feed-forward within 1/sqrt(inputs). */
static AttrFill start(const ModelConfig *c, const char *name) {
    const GsaConfig *g = &c->gsa;
    double width = (double)c->hidden, q = (double)c->heads * c->head_dim, kv = (double)c->kv_heads * c->head_dim;
    const struct {
        const char *part;
        AttrFill fill;
    } rule[] = {
        {"gate.bias", {FILL_CONSTANT, (float)g->gate_bias, 0}},
        {"bias", {FILL_CONSTANT, 0, 0}},
        {"norm.weight", {FILL_CONSTANT, 1, 0}},
        {"indexer.query_proj", xavier(1, width, (double)g->index_heads * g->index_dim)},
        {"indexer.key_proj", xavier(1, width, g->index_dim)},
        {"indexer.weight_proj", xavier(0.1, width, g->index_heads)},
        {"value_gate", xavier(0.1, width, kv)},
        {"output_gate", xavier(0.1, width, g->gate_a_head ? c->heads : q)},
        {"q_proj", xavier(M_SQRT1_2, width, q)},
        {"k_proj", xavier(M_SQRT1_2, width, kv)},
        {"v_proj", xavier(M_SQRT1_2, width, kv)},
        {"o_proj", xavier(1 / sqrt(2.0 * c->layers), q, width)},
        {"down_proj", {FILL_UNIFORM, (float)(1 / sqrt((double)c->ffn)), 0}},
        {"mlp.", {FILL_UNIFORM, (float)(1 / sqrt(width)), 0}},
    };
    for (int i = 0; i < COUNT_OF(rule); i++)
        if (strstr(name, rule[i].part)) return rule[i].fill;
    return (AttrFill){FILL_NORMAL, (float)c->init_std, 0}; /* embedding and head */
}

const ModelFamily family_gsa = {.name = "gsa",
                                .projections = projections,
                                .n_projections = PROJ_COUNT,
                                .own_bytes = own_bytes,
                                .caches = CACHES,
                                .weights = weights,
                                .hidden = hidden,
                                .cache = cache,
                                .adapters = adapters,
                                .start = start,
                                .present = present,
                                .has_warmup = has_warmup,
                                .reports = true};
