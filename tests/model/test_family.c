/* test_family.c - a second family of models, made up here: two attentions a layer, side by side with the
 * feed-forward, and so two caches a layer and eleven projections. Nothing outside this file knows it; training,
 * recompute, offload, adapters, the search and answering must hold for it as they do for the decoder. */
#include <math.h>

#include "gen/gen.h"
#include "tests/model/steps.h"
#include "train/search.h"

/* ---- the family ---- */

enum { A_Q, A_K, A_V, A_O, B_Q, B_K, B_V, B_O, GATE, UP, DOWN, PROJECTIONS };
static const char *const projections[PROJECTIONS] = {"near.q_proj", "near.k_proj", "near.v_proj", "near.o_proj",
                                                     "far.q_proj",  "far.k_proj",  "far.v_proj",  "far.o_proj",
                                                     "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"};

typedef struct Attention {
    Tid qkv, out;
    Adapter on_qkv, on_out;
} Attention;

typedef struct Layer {
    Tid norm, gate_up, down;
    Attention attention[2];
    Adapter on_gate_up, on_down;
} Layer;

typedef struct Own {
    Tid final_norm, inv_freq;
    Layer layer[];
} Own;

static Tid product(Program *p, const ModelInput *in, const char *name, Tid x, Tid w, const Adapter *a) {
    Tid y = in->direct ? op_linear_direct(p, name, x, w, NONE) : op_linear(p, name, x, w, NONE);
    return a->a ? op_lora(p, y, x, a->a, a->b, a->attr) : y;
}

static Tid attend(Program *p, const Model *m, const Attention *w, int which, const ModelInput *in, Tid h) {
    const ModelConfig *c = &m->spec.config;
    const Own *own = m->own;
    AttrHeads rope = {.heads = c->heads, .kv_heads = c->kv_heads, .head_dim = c->head_dim, .seq = in->seq, .scale = 1,
                      .slots = in->cache ? in->slots : 0, .distinct_cache_rows = in->distinct_cache_rows};
    AttrHeads a = rope;
    a.scale = (which ? 0.5f : 1.0f) / sqrtf((float)c->head_dim);
    Tid qkv = product(p, in, which ? "far_qkv" : "near_qkv", h, w->qkv, &w->on_qkv), o;
    if (in->cache) {
        Tid cache = in->cache[2 * p->layer + which];
        qkv = op_rope_put(p, cache, qkv, in->positions, own->inv_freq, in->cache_rows, rope);
        o = op_attend_cache(p, qkv, cache, in->positions, in->cache_rows, a);
    } else {
        a.by = in->attend;
        o = op_attend(p, op_rope(p, qkv, in->positions, own->inv_freq, rope), in->doc_begin, NONE, a);
    }
    return product(p, in, which ? "far_out" : "near_out", o, w->out, &w->on_out);
}

static void hidden(Program *p, const Model *m, const ModelInput *in, ModelOut *out) {
    const ModelConfig *c = &m->spec.config;
    const Own *own = m->own;
    Tid x = op_embed(p, m->embedding, in->ids, in->id_order, m->spec.activations);
    for (int l = 0; l < c->layers; l++) {
        const Layer *w = &own->layer[l];
        p->layer = l;
        Tid h = op_rmsnorm(p, x, w->norm, (float)c->rms_eps);
        Tid near = attend(p, m, &w->attention[0], 0, in, h), far = attend(p, m, &w->attention[1], 1, in, h);
        Tid up = product(p, in, "gate_up", h, w->gate_up, &w->on_gate_up);
        Tid y = product(p, in, "ffn_out", op_swiglu(p, up), w->down, &w->on_down);
        x = op_add(p, "both", op_add(p, "attended_sum", x, op_add(p, "near_far", near, far)), y);
        if (l == out->tap_layer) out->tap = x;
    }
    p->layer = -1;
    out->hidden = op_rmsnorm(p, x, own->final_norm, (float)c->rms_eps);
}

static Tid cache(Program *p, const Model *m, int which, int64_t rows, int64_t slots, Format f) {
    const ModelConfig *c = &m->spec.config;
    return prog_tensor(p, which ? "far_cache" : "near_cache", ROLE_CACHE, f, 4,
                       DIMS(rows, slots, (int64_t)2 * c->kv_heads, c->head_dim));
}

static void weights(Program *p, Model *m, const ModelTraining *t) {
    const ModelConfig *c = &m->spec.config;
    int64_t q = (int64_t)c->heads * c->head_dim, kv = (int64_t)c->kv_heads * c->head_dim;
    Own *own = m->own;
    float frequency[64];
    for (int i = 0; i < c->head_dim / 2; i++) frequency[i] = powf(1000, -2.0f * (float)i / (float)c->head_dim);
    m->embedding = m->head = model_weight(p, m, t, "embedding", "model.embed_tokens.weight", c->vocab, c->hidden);
    for (int l = 0; l < c->layers; l++) {
        Layer *w = &own->layer[l];
        p->layer = l;
        w->norm =
            model_weight(p, m, t, "norm", arena_printf(&p->arena, "model.layers.%d.norm.weight", l), c->hidden, 0);
        for (int k = 0; k < 2; k++) {
            const ModelPart three[] = {{k ? B_Q : A_Q, q}, {k ? B_K : A_K, kv}, {k ? B_V : A_V, kv}},
                            one[] = {{k ? B_O : A_O, c->hidden}};
            Attention *a = &w->attention[k];
            a->qkv = model_weight(p, m, t, k ? "far_qkv_w" : "near_qkv_w", NULL, q + 2 * kv, c->hidden);
            model_parts(p, m, a->qkv, NONE, three, 3);
            a->out = model_weight(p, m, t, k ? "far_out_w" : "near_out_w", NULL, c->hidden, q);
            model_parts(p, m, a->out, NONE, one, 1);
            a->on_qkv = model_adapter(p, m, t, k ? "far_qkv" : "near_qkv", three, 3, c->hidden);
            a->on_out = model_adapter(p, m, t, k ? "far_out" : "near_out", one, 1, q);
        }
        const ModelPart two[] = {{GATE, c->ffn}, {UP, c->ffn}}, down[] = {{DOWN, c->hidden}};
        w->gate_up = model_weight(p, m, t, "gate_up_w", NULL, 2 * c->ffn, c->hidden);
        model_parts(p, m, w->gate_up, NONE, two, 2);
        w->down = model_weight(p, m, t, "down_w", NULL, c->hidden, c->ffn);
        model_parts(p, m, w->down, NONE, down, 1);
        w->on_gate_up = model_adapter(p, m, t, "gate_up", two, 2, c->hidden);
        w->on_down = model_adapter(p, m, t, "down", down, 1, c->ffn);
    }
    p->layer = -1;
    own->final_norm = model_weight(p, m, t, "final_norm", "model.norm.weight", c->hidden, 0);
    own->inv_freq = prog_table(p, "inv_freq", frequency, c->head_dim / 2);
}

static int64_t own_bytes(const ModelConfig *c) { return (int64_t)sizeof(Own) + c->layers * (int64_t)sizeof(Layer); }

static int adapters(Model *m, int layer, Adapter **out) {
    Layer *w = &((Own *)m->own)->layer[layer];
    Adapter *on[] = {&w->attention[0].on_qkv, &w->attention[0].on_out, &w->attention[1].on_qkv, &w->attention[1].on_out,
                     &w->on_gate_up, &w->on_down};
    memcpy(out, on, sizeof on);
    return COUNT_OF(on);
}

static const ModelFamily family_made_up = {.name = "made-up", .projections = projections, .n_projections = PROJECTIONS,
                                           .own_bytes = own_bytes, .caches = 2, .weights = weights, .hidden = hidden,
                                           .cache = cache, .adapters = adapters};

/* ---- what must hold for it ---- */

enum { VOCAB = STEPS_VOCAB };

static JobSpec job_spec(bool lora) {
    ModelConfig c = {.family = &family_made_up, .layers = 3, .hidden = 32, .heads = 4, .kv_heads = 2, .head_dim = 8,
                     .ffn = 48, .vocab = VOCAB, .max_positions = 64, .rms_eps = 1e-6, .init_std = 0.1, .dtype = FMT_F32,
                     .tied = true, .rope_theta = 1000};
    return steps_spec(&c, lora, (1u << PROJECTIONS) - 1);
}

TEST(memory_techniques_keep_the_bits_of_a_second_family) {
    for (int lora = 0; lora < 2; lora++) {
        JobSpec s = job_spec(lora);
        double plain[STEPS], with[STEPS];
        steps_train(&s, false, plain, NULL);
        EXPECT(plain[STEPS - 1] < plain[0] && isfinite(plain[0]));
        for (int level = RECOMPUTE_NORM; level <= RECOMPUTE_BLOCK; level++) {
            for (int l = 0; l < s.m.config.layers; l++) s.recompute[l] = (RecomputeLevel)level;
            if (level == RECOMPUTE_BLOCK)
                s.m.offload.layers[OFFLOAD_WEIGHTS] = s.m.offload.on_disk[OFFLOAD_WEIGHTS] = 2;
            steps_train(&s, false, with, NULL);
            if (!EXPECT(!memcmp(plain, with, sizeof plain)))
                test_note("    %s, level %d", lora ? "lora" : "full", level);
        }
    }
}

TEST(the_search_fits_a_second_family) {
    Machine m = machine_generic_cpu(2);
    m.kind = MACHINE_CUDA;
    m.copy_bytes_per_s = m.memory_bytes_per_s / 10;
    JobSpec s = job_spec(false);
    s.micro_batch = 8, s.accum = 1, s.seq = 256;
    s.m.config.ffn = 1024, s.m.config.hidden = 256, s.m.config.head_dim = 64;
    Search *f = MEM_NEW(Search, 1);
    JobSpec fitted = s;
    SearchFreedom free = {.recompute = true, .offload = true, .head_chunk = true, .micro_batch = true};
    bool fits = job_search(f, &fitted, &m, NULL, free, (FitLimits){.device_bytes = INT64_MAX});
    int64_t whole = f->asked_bytes;
    EXPECT(fits);
    search_free(f);
    fitted = s;
    fits = job_search(f, &fitted, &m, NULL, free,
                      (FitLimits){.device_bytes = m.runtime_bytes + (whole - m.runtime_bytes) / 2});
    EXPECT(fits && fitted.micro_batch * fitted.accum == 8);
    search_free(f);
    mem_free(f);
}

/* A row of logits by a pass without a cache, and by prefill and decode over the two caches. */
TEST(a_cache_of_two_tensors_a_layer_gives_the_same_logits) {
    Err e = {0};
    Machine m = {0};
    Backend *b = NULL;
    enum { PROMPT = 9 };
    JobSpec s = job_spec(true);
    EXPECT_OK(backend_open(&b, "cpu", (BackendOptions){.threads = 2}, &e));
    b->describe(b, &m);
    Ring r;
    Model model;
    ring_init(&r, &m);
    model_weights(&r.p, &model, &s.m, NULL);
    int init = prog_begin_phase(&r.p, "init", 1);
    for (Tid t = 1, n = (Tid)r.p.n_t; t < n; t++)
        if ((r.p.t[t].role == ROLE_WEIGHT || r.p.t[t].role == ROLE_ADAPTER) && !r.p.t[t].base)
            op_fill(&r.p, t, (AttrFill){FILL_NORMAL, 0.2f, (uint64_t)t});
    prog_end_phase(&r.p);
    ModelOut out = {.tap_layer = 1};
    int whole = prog_begin_phase(&r.p, "whole", 1);
    ModelInput all = model_input(&r.p, &model, "all", 1, PROMPT + 1);
    model_hidden(&r.p, &model, &all, &out);
    EXPECT(out.tap && prog_cols(&r.p, out.tap) == s.m.config.hidden);
    Tid expected = op_head_logits(&r.p, out.hidden, model.head);
    prog_end_phase(&r.p);
    const Tid *caches = model_cache(&r.p, &model, 1, 32, FMT_F32);
    EXPECT(model_cache_tensors(&model) == 2 * s.m.config.layers);
    Tid got[2];
    int phase[2];
    ModelInput in[2];
    for (int k = 0; k < 2; k++) {
        phase[k] = prog_begin_phase(&r.p, k ? "decode" : "prefill", 2);
        in[k] = model_input(&r.p, &model, k ? "one" : "prompt", 1, k ? 1 : PROMPT);
        in[k].cache = caches, in[k].slots = 32, in[k].distinct_cache_rows = true;
        model_hidden(&r.p, &model, &in[k], &out);
        got[k] = op_head_logits(&r.p, out.hidden, model.head);
        prog_end_phase(&r.p);
    }
    ring_plan(&r, &(PlanChoices){0});
    EXPECT_OK(plan_verify(&r.p, &e) && ring_open(&r, b, &e));
    exec_play(&r.x, init);
    int32_t ids[PROMPT + 1], positions[PROMPT + 1], docs[PROMPT + 1] = {0};
    for (int i = 0; i <= PROMPT; i++) ids[i] = (i * 11 + 2) % VOCAB, positions[i] = i;
    exec_put(&r.x, all.ids, ids, 0, sizeof ids);
    exec_put(&r.x, all.positions, positions, 0, sizeof positions);
    exec_put(&r.x, all.doc_begin, docs, 0, sizeof docs);
    exec_play(&r.x, whole);
    float want[VOCAB], have[VOCAB];
    exec_get(&r.x, expected, want, PROMPT * VOCAB * 4, sizeof want);
    for (int k = 0; k < 2; k++) {
        exec_put(&r.x, in[k].ids, ids + (k ? PROMPT : 0), 0, k ? 4 : PROMPT * 4);
        exec_put(&r.x, in[k].positions, positions + (k ? PROMPT : 0), 0, k ? 4 : PROMPT * 4);
        exec_play(&r.x, phase[k]);
    }
    exec_get(&r.x, got[1], have, 0, sizeof have);
    for (int i = 0; i < VOCAB; i++) EXPECT_NEAR(have[i], want[i], 1e-4);
    ring_close(&r);
    b->close(b);
}
