/* model.c - what all families share: how weights, stacked projections and adapters are named and recorded. */
#include "model/model.h"

#include <stdio.h>
#include <string.h>

/* ---- weights ---- */

static void add_gradient(Program *p, Tid weight, Format gradient) { /* gives it a gradient */
    Tensor w = *prog_t(p, weight);
    int layer = p->layer;
    p->layer = -1; /* the name carries the layer already */
    Tid g = prog_tensor(p, arena_printf(&p->arena, "%s.grad", w.name), ROLE_GRADIENT, gradient, w.rank, w.dim);
    p->layer = layer;
    p->t[g].layer = w.layer;
    p->t[weight].grad = g;
    p->t[weight].trainable = p->t[weight].needs_grad = true;
}

Tid model_weight(Program *p, const Model *m, const ModelTraining *t, const char *name, const char *file_name,
                 int64_t rows, int64_t cols) {
    bool trained = t && t->weights;
    Format f = trained ? t->format : m->spec.config.dtype;
    Tid w = cols ? prog_tensor(p, name, ROLE_WEIGHT, f, 2, DIMS(rows, cols))
                 : prog_tensor(p, name, ROLE_WEIGHT, f, 1, DIMS(rows));
    if (file_name) p->t[w].file_name = arena_strdup(&p->arena, file_name);
    if (trained) add_gradient(p, w, t->gradients);
    return w;
}

static void name_part(Program *p, const char *path, const char *suffix, Tid whole, int64_t first, int64_t rows) {
    Tid v = prog_view(p, arena_printf(&p->arena, "%s.%s", path, suffix), whole, first, rows);
    p->t[v].file_name = arena_printf(&p->arena, "model.layers.%d.%s.%s", p->layer, path, suffix);
}

void model_parts(Program *p, const Model *m, Tid weight, Tid bias, const ModelPart *part, int n) {
    int64_t first = 0;
    for (int i = 0; i < n; first += part[i++].rows) {
        const char *path = m->family->projections[part[i].projection];
        name_part(p, path, "weight", weight, first, part[i].rows);
        if (bias) name_part(p, path, "bias", bias, first, part[i].rows);
    }
}

/* ---- adapters ---- */

const char *model_projection_name(const ModelFamily *f, int i) {
    const char *dot = strrchr(f->projections[i], '.');
    return dot ? dot + 1 : f->projections[i];
}

/* Views of A's and B's rows under PEFT's names, one pair a projection. */
static void name_adapter(Program *p, const Model *m, const Adapter *a, const int *on) {
    int64_t first = 0;
    for (int g = 0; g < a->attr.groups; first += a->attr.rows[g++]) {
        const char *path = m->family->projections[on[g]];
        Tid va = prog_view(p, arena_printf(&p->arena, "%s.lora_A", path), a->a, (int64_t)g * a->attr.rank,
                           a->attr.rank);
        p->t[va].file_name =
            arena_printf(&p->arena, "base_model.model.model.layers.%d.%s.lora_A.weight", p->layer, path);
        Tid vb = prog_view(p, arena_printf(&p->arena, "%s.lora_B", path), a->b, first, a->attr.rows[g]);
        p->t[vb].file_name =
            arena_printf(&p->arena, "base_model.model.model.layers.%d.%s.lora_B.weight", p->layer, path);
    }
}

Adapter model_adapter(Program *p, const Model *m, const ModelTraining *t, const char *name, const ModelPart *part,
                      int n, int64_t cols) {
    const LoraSpec *l = &m->spec.adapter;
    Adapter a = {.attr = {.rank = l->rank, .scale = l->rank ? l->alpha / (float)l->rank : 0, .dropout = l->dropout}};
    int64_t total = 0, col = 0;
    int on[LORA_GROUPS];
    for (int i = 0; i < n; col += part[i++].rows) {
        if (!l->rank || !(l->targets >> part[i].projection & 1)) continue;
        int g = a.attr.groups++;
        on[g] = part[i].projection;
        a.attr.col[g] = col;
        a.attr.rows[g] = part[i].rows;
        total += part[i].rows;
    }
    if (!a.attr.groups) return a;
    a.a = prog_tensor(p, arena_printf(&p->arena, "%s.lora_a", name), ROLE_ADAPTER, l->format, 2,
                      DIMS((int64_t)a.attr.groups * l->rank, cols));
    a.b = prog_tensor(p, arena_printf(&p->arena, "%s.lora_b", name), ROLE_ADAPTER, l->format, 2, DIMS(total, l->rank));
    name_adapter(p, m, &a, on);
    if (t) add_gradient(p, a.a, t->gradients);
    if (t) add_gradient(p, a.b, t->gradients);
    return a;
}

Model model_twin(Program *p, const Model *m, bool adapters) {
    Model twin = *m;
    int64_t bytes = m->family->own_bytes(&m->spec.config);
    twin.own = memcpy(arena_alloc(&p->arena, bytes), m->own, (size_t)bytes);
    for (int l = 0; l < m->spec.config.layers; l++) {
        Adapter *on[MODEL_ADAPTERS];
        int n = m->family->adapters(&twin, l, on);
        for (int i = 0; i < n; i++) {
            on[i]->attr.dropout = 0;
            if (!adapters) *on[i] = (Adapter){0};
        }
    }
    return twin;
}

/* ---- the whole ---- */

const ModelFamily *model_family(const ModelConfig *c) { return c->family ? c->family : &family_decoder; }

void model_weights(Program *p, Model *m, const ModelSpec *spec, const ModelTraining *t) {
    *m = (Model){.spec = *spec, .family = model_family(&spec->config), .name = p->model};
    int64_t bytes = m->family->own_bytes(&spec->config);
    m->own = memset(arena_alloc(&p->arena, bytes), 0, (size_t)bytes);
    m->family->weights(p, m, t);
    p->layer = -1;
}

ModelInput model_input(Program *p, const Model *m, const char *prefix, int64_t rows, int64_t seq) {
    ModelInput in = {.rows = rows, .seq = seq};
    const int64_t *n = DIMS(rows * seq);
    in.ids = prog_tensor(p, arena_printf(&p->arena, "%s.ids", prefix), ROLE_INPUT, FMT_I32, 1, n);
    in.positions = prog_tensor(p, arena_printf(&p->arena, "%s.positions", prefix), ROLE_INPUT, FMT_I32, 1, n);
    in.doc_begin = prog_tensor(p, arena_printf(&p->arena, "%s.doc_begin", prefix), ROLE_INPUT, FMT_I32, 1, n);
    if (p->t[m->embedding].trainable)
        in.id_order = prog_tensor(p, arena_printf(&p->arena, "%s.id_order", prefix), ROLE_INPUT, FMT_I32, 1, n);
    return in;
}

/* A statistic for every layer. */
static const Tid *report_of(Program *p, const ModelConfig *c) {
    Tid *stat = ARENA_NEW(&p->arena, Tid, c->layers);
    for (p->layer = 0; p->layer < c->layers; p->layer++)
        stat[p->layer] = prog_tensor(p, "attention_report", ROLE_STATISTIC, FMT_F64, 1, DIMS(REPORT_WORDS));
    p->layer = -1;
    return stat;
}

void model_hidden(Program *p, const Model *m, const ModelInput *in, ModelOut *out) {
    *out = (ModelOut){.tap_layer = out->tap_layer};
    CHECK_MSG(!in->prefix || (m->family->shares_prefix && !in->cache && !in->report), "%s: no prefix is known",
              m->family->name);
    if (in->report) out->report = report_of(p, &m->spec.config);
    m->family->hidden(p, m, in, out);
    p->layer = -1;
}

int model_cache_tensors(const Model *m) { return m->spec.config.layers * m->family->caches; }

const Tid *model_cache(Program *p, const Model *m, int64_t rows, int64_t slots, Format f) {
    Tid *cache = ARENA_NEW(&p->arena, Tid, model_cache_tensors(m));
    for (int i = 0; i < model_cache_tensors(m); i++) {
        p->layer = i / m->family->caches;
        cache[i] = m->family->cache(p, m, i % m->family->caches, rows, slots, f);
    }
    p->layer = -1;
    return cache;
}

int64_t model_count(const Program *p, bool trainable_only) {
    int64_t n = 0;
    for (Tid i = 1; i < p->n_t; i++) {
        const Tensor *t = prog_t(p, i);
        if (t->base || (t->role != ROLE_WEIGHT && t->role != ROLE_ADAPTER)) continue;
        if (!trainable_only || t->trainable) n += prog_elements(p, i);
    }
    return n;
}
