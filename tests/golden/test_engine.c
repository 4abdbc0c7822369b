/* test_engine.c - logits, log-probabilities, every gradient and greedy decoding against transformers and PEFT. */
#include <jansson.h>
#include <stdlib.h>

#include "base/file.h"
#include "exec/exec.h"
#include "store/adapter.h"
#include "store/safetensors.h"
#include "tests/test.h"
#include "train/job.h"
#include "weights/weights.h"

static const char *const cases[] = {"qwen2_tied", "qwen2_untied", "llama3", "llama_linear", "llama_yarn",
                                    "qwen3", "mistral", "llama_plain", "qwen2_packed"};

typedef struct Golden {
    char folder[256];
    ModelConfig config;
    json_t *batch, *expected;
    StSet tensors;
    int rows, seq, scored;
    int32_t *ids, *labels, *positions, *doc_begin, *order;
    float *weight;
} Golden;

static json_t *load_json(const char *folder, const char *name) {
    char path[400];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return json_load_file(path, 0, NULL);
}

static int32_t *ids_like(const Golden *g) { return MEM_NEW(int32_t, g->rows * g->seq); }

static const int32_t *sort_ids;
static int by_id(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return sort_ids[x] != sort_ids[y] ? (sort_ids[x] > sort_ids[y]) - (sort_ids[x] < sort_ids[y]) : (x > y) - (x < y);
}

static void fill_rows(Golden *g) {
    json_t *ids = json_object_get(g->batch, "ids"), *labels = json_object_get(g->batch, "labels");
    json_t *starts = json_object_get(g->batch, "doc_starts");
    for (int r = 0; r < g->rows; r++)
        for (int t = 0; t < g->seq; t++) {
            int i = r * g->seq + t, begin = 0;
            json_t *row = json_array_get(starts, (size_t)r);
            if (row && !json_is_array(row)) row = starts; /* one row */
            for (size_t k = 0; k < json_array_size(row); k++) {
                int s = (int)json_integer_value(json_array_get(row, k));
                if (s <= t && s > begin) begin = s;
            }
            g->ids[i] = (int32_t)json_integer_value(json_array_get(json_array_get(ids, (size_t)r), (size_t)t));
            int64_t next = t + 1 < g->seq
                               ? json_integer_value(json_array_get(json_array_get(labels, (size_t)r), (size_t)t + 1))
                               : -100;
            g->labels[i] = next < 0 ? -1 : (int32_t)next;
            g->weight[i] = next >= 0;
            g->scored += next >= 0;
            g->positions[i] = t - begin;
            g->doc_begin[i] = begin;
            g->order[i] = i;
        }
    sort_ids = g->ids;
    qsort(g->order, (size_t)(g->rows * g->seq), sizeof *g->order, by_id);
}

static bool golden_open(Golden *g, const char *name) {
    Err e = {0};
    char path[400];
    *g = (Golden){0};
    snprintf(g->folder, sizeof g->folder, "tests/golden/%s", name);
    EXPECT_OK(config_from_file(&g->config, g->folder, &e));
    g->batch = load_json(g->folder, "batch.json");
    g->expected = load_json(g->folder, "expected.json");
    snprintf(path, sizeof path, "%s/expected.safetensors", g->folder);
    EXPECT_OK(st_open(&g->tensors, path, &e));
    if (!EXPECT(g->batch && g->expected)) return false;
    json_t *ids = json_object_get(g->batch, "ids");
    g->rows = (int)json_array_size(ids);
    g->seq = (int)json_array_size(json_array_get(ids, 0));
    g->ids = ids_like(g), g->labels = ids_like(g), g->positions = ids_like(g), g->doc_begin = ids_like(g),
    g->order = ids_like(g);
    g->weight = MEM_NEW(float, g->rows * g->seq);
    fill_rows(g);
    return true;
}

static void golden_close(Golden *g) {
    json_decref(g->batch);
    json_decref(g->expected);
    st_close(&g->tensors);
    mem_free(g->ids), mem_free(g->labels), mem_free(g->positions), mem_free(g->doc_begin), mem_free(g->order),
        mem_free(g->weight);
}

static float *golden_tensor(const Golden *g, const char *name, int64_t *n) {
    const StTensor *t = st_find(&g->tensors, name);
    if (!t) return NULL;
    float *v = mem_alloc(t->bytes);
    *n = t->bytes / 4;
    st_read(&g->tensors, t, v, 0, t->bytes, NULL);
    return v;
}

static void put_inputs(Exec *x, const ModelInput *in, const Golden *g) {
    int64_t n = g->rows * g->seq * 4;
    exec_put(x, in->ids, g->ids, 0, n);
    exec_put(x, in->positions, g->positions, 0, n);
    exec_put(x, in->doc_begin, g->doc_begin, 0, n);
    if (in->id_order) exec_put(x, in->id_order, g->order, 0, n);
}

static LoraSpec lora_of(const Golden *g) {
    char path[400];
    AdapterConfig c;
    Err e = {0};
    snprintf(path, sizeof path, "%s/adapter", g->folder);
    if (!file_is_dir(path)) return (LoraSpec){0};
    EXPECT_OK(adapter_config_read(&c, path, &e));
    return (LoraSpec){.rank = c.rank, .alpha = (float)c.alpha, .targets = c.targets, .format = FMT_F32};
}

static bool load_weights(Exec *x, const Golden *g, bool lora) {
    Err e = {0};
    char path[400];
    snprintf(path, sizeof path, "%s/adapter", g->folder);
    EXPECT_OK(weights_load(x, NULL, ROLE_WEIGHT, g->folder, &e));
    if (lora) EXPECT_OK(weights_load(x, NULL, ROLE_ADAPTER, path, &e));
    return e.code == 0;
}

static void expect_close(const Golden *g, const char *what, const float *a, const float *b, int64_t n, double tol) {
    double worst = 0;
    int64_t at = 0;
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(a[i] - b[i]) <= worst)) worst = fabs(a[i] - b[i]), at = i;
    if (!EXPECT(worst <= tol))
        test_note("    %s %s: element %lld is %.8g, reference %.8g", g->folder, what, (long long)at, a[at], b[at]);
}

static void expect_cosine(const Golden *g, const char *what, const float *a, const float *b, int64_t n) {
    double ab = 0, aa = 0, bb = 0, dd = 0;
    for (int64_t i = 0; i < n; i++) {
        ab += (double)a[i] * b[i], aa += (double)a[i] * a[i], bb += (double)b[i] * b[i];
        dd += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    }
    double cosine = ab / sqrt(aa * bb), relative = sqrt(dd / bb);
    if (!EXPECT(cosine >= 0.99999 && relative <= 1e-4))
        test_note("    %s %s: cosine %.9f, relative difference %.3g", g->folder, what, cosine, relative);
}

/* ---- logits ---- */

static void check_logits(const Golden *g, bool lora) {
    Err e = {0};
    Backend *b;
    EXPECT_OK(backend_open(&b, "cpu", (BackendOptions){.threads = 2}, &e));
    Machine m = {0};
    b->describe(b, &m);
    Program p;
    Model d;
    prog_init(&p);
    model_weights(
        &p, &d,
        &(ModelSpec){.config = g->config, .activations = FMT_F32, .adapter = lora ? lora_of(g) : (LoraSpec){0}},
        NULL);
    p.clock = prog_tensor(&p, "clock", ROLE_DIAL, FMT_I64, 1, DIMS(CLOCK_WORDS));
    prog_begin_phase(&p, "forward", 1);
    ModelInput in = model_input(&p, &d, "batch", g->rows, g->seq);
    ModelOut out = {.tap_layer = -1};
    model_hidden(&p, &d, &in, &out);
    Tid logits = op_head_logits(&p, out.hidden, d.head);
    prog_end_phase(&p);
    Placement pl = plan_all(&p, &m);
    EXPECT_OK(plan_verify(&p, &e));
    Exec x;
    EXPECT_OK(exec_open(&x, &p, b, pl.arena_bytes, &e));
    if (load_weights(&x, g, lora)) {
        put_inputs(&x, &in, g);
        exec_play(&x, 0);
        EXPECT_OK(exec_sync(&x, &e));
        int64_t n;
        float *want = golden_tensor(g, lora ? "lora_logits" : "logits", &n), *have = mem_alloc(n * 4);
        exec_get(&x, logits, have, 0, n * 4);
        expect_close(g, "logits", have, want, n, 1e-4);
        mem_free(want);
        mem_free(have);
    }
    exec_close(&x);
    prog_free(&p);
    b->close(b);
}

TEST(logits_equal_transformers) {
    for (int i = 0; i < COUNT_OF(cases); i++) {
        Golden g;
        if (golden_open(&g, cases[i])) {
            check_logits(&g, false);
            if (st_find(&g.tensors, "lora_logits")) check_logits(&g, true);
        }
        golden_close(&g);
    }
}

/* ---- gradients ---- */

/* The gradient of a file's tensor: the same place inside the gradient of the stacked one. */
static float *gradient_of(Exec *x, Tid id, int64_t *n) {
    const Program *p = x->p;
    Tid base = prog_base(p, id);
    *n = prog_elements(p, id);
    float *v = mem_alloc(*n * 4);
    exec_get(x, p->t[base].grad, v, p->t[id].base ? p->t[id].view_bytes : 0, *n * 4);
    return v;
}

static void check_gradients(const Golden *g, bool lora, RecomputeLevel level, bool sweep) {
    Err e = {0};
    Backend *b;
    Machine m = {0};
    EXPECT_OK(backend_open(&b, "cpu", (BackendOptions){.threads = 2}, &e));
    b->describe(b, &m);
    JobSpec s = {.m = {.config = g->config, .activations = FMT_F32},
                 .train = true,
                 .lora = lora,
                 .weights = FMT_F32,
                 .gradients = FMT_F32,
                 .seq = g->seq,
                 .micro_batch = g->rows,
                 .accum = 1,
                 .no_sweep = !sweep};
    if (lora) s.m.adapter = lora_of(g);
    for (int l = 0; l < g->config.layers; l++) s.recompute[l] = level;
    Job *j = MEM_NEW(Job, 1);
    Ring r;
    EXPECT_OK(job_plan(j, &r, &s, &m, NULL, &e));
    EXPECT_OK(plan_verify(&r.p, &e));
    Exec x;
    EXPECT_OK(exec_open(&x, &r.p, b, r.placement.arena_bytes, &e));
    if (load_weights(&x, g, lora)) {
        float divisor = (float)g->scored, beta = 0;
        put_inputs(&x, &j->in, g);
        exec_put(&x, j->labels, g->labels, 0, g->rows * g->seq * 4);
        exec_put(&x, j->weight, g->weight, 0, g->rows * g->seq * 4);
        exec_put(&x, j->divisor, &divisor, 0, 4);
        exec_put(&x, r.p.beta, &beta, 0, 4);
        exec_poison(&x, j->micro);
        exec_play(&x, j->micro);
        EXPECT_OK(exec_sync(&x, &e));
        double loss;
        exec_get(&x, j->loss, &loss, 0, 8);
        double want_loss = json_number_value(json_object_get(g->expected, lora ? "lora_loss" : "loss"));
        EXPECT_NEAR(loss, want_loss, 1e-5 * fabs(want_loss));
        int compared = 0;
        for (Tid id = 1; id < r.p.n_t; id++) {
            const Tensor *t = prog_t(&r.p, id);
            char key[300];
            if (!t->file_name || t->role != (lora ? ROLE_ADAPTER : ROLE_WEIGHT)) continue;
            snprintf(key, sizeof key, "%s%s", lora ? "lora_grad." : "grad.", t->file_name);
            int64_t n, n_want;
            float *want = golden_tensor(g, key, &n_want);
            if (!EXPECT(want != NULL)) {
                test_note("    %s: no reference for %s", g->folder, key);
                continue;
            }
            float *have = gradient_of(&x, id, &n);
            EXPECT(n == n_want);
            expect_cosine(g, key, have, want, n);
            compared++;
            mem_free(want);
            mem_free(have);
        }
        EXPECT(compared > 8);
    }
    exec_close(&x);
    ring_close(&r);
    mem_free(j);
    b->close(b);
}

TEST(every_gradient_equals_transformers) {
    for (int i = 0; i < COUNT_OF(cases); i++) {
        Golden g;
        if (golden_open(&g, cases[i])) {
            check_gradients(&g, false, RECOMPUTE_NONE, true);
            check_gradients(&g, false, RECOMPUTE_BLOCK, false);
        }
        golden_close(&g);
    }
}

TEST(every_adapter_gradient_equals_peft) {
    for (int i = 0; i < COUNT_OF(cases); i++) {
        Golden g;
        if (golden_open(&g, cases[i]) && st_find(&g.tensors, "lora_logits")) {
            check_gradients(&g, true, RECOMPUTE_NONE, true);
            check_gradients(&g, true, RECOMPUTE_FFN, true);
        }
        golden_close(&g);
    }
}

TEST(older_and_newer_config_files_are_the_same_model) {
    for (int i = 0; i < COUNT_OF(cases); i++) {
        char path[300];
        Err e = {0};
        ModelConfig a, b;
        snprintf(path, sizeof path, "tests/golden/%s", cases[i]);
        json_t *old = load_json(path, "config_v4.json");
        EXPECT_OK(config_from_file(&a, path, &e));
        EXPECT_OK(config_from_json(&b, old, path, &e));
        json_decref(old);
        EXPECT(!memcmp(&a.rope, &b.rope, sizeof a.rope) && a.rope_theta == b.rope_theta && a.dtype == b.dtype);
        EXPECT(a.hidden == b.hidden && a.layers == b.layers && a.head_dim == b.head_dim && a.tied == b.tied);
        /* written out and read again it is the same model */
        ModelConfig c;
        json_t *again = config_to_json(&a);
        EXPECT_OK(config_from_json(&c, again, path, &e));
        json_decref(again);
        EXPECT(!memcmp(&a.rope, &c.rope, sizeof a.rope) && a.rope_theta == c.rope_theta && a.qk_norm == c.qk_norm &&
               a.qkv_bias == c.qkv_bias && a.vocab == c.vocab && a.rms_eps == c.rms_eps);
    }
}
