/* test_gsa.c - the family of gated sparse attention from outside: its config.json, its sizes and starts, memory
 * techniques that must keep its bits, keys of a token that must not depend on others, and what is refused. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "ring/ring.h"
#include "tests/model/steps.h"
#include "tests/snug.h"
#include "tests/test.h"
#include "weights/weights.h"

enum { SEQ = STEPS_SEQ, VOCAB = STEPS_VOCAB };

static ModelConfig tiny(void) {
    ModelConfig c;
    Err e = {0};
    const char *const set[] = {"d_model=32", "n_layers=2",    "n_heads=4",   "n_kv_heads=2",
                               "d_ffn=48",   "vocab_size=50", "d_indexer=8", "n_indexer_heads=2",
                               "k_base=6",   "k_min=3",       "k_max=9",     "torch_dtype=float32"};
    EXPECT(config_from_preset(&c, "gsa-512m"));
    EXPECT_OK(config_set(&c, set, NULL, COUNT_OF(set), &e));
    return c;
}

static JobSpec job_spec(bool lora) {
    ModelConfig c = tiny();
    return steps_spec(&c, lora, family_gsa.present(&c));
}

TEST(memory_techniques_keep_the_bits_of_gsa) {
    for (int i = 0; i < 4; i++) { /* full, lora, with a warm-up, with a frozen one */
        JobSpec s = job_spec(i == 1);
        double plain[2 * STEPS], with[2 * STEPS];
        s.warmup_steps = i > 1 ? 2 : 0;
        s.warmup_frozen = i == 3;
        steps_train(&s, true, plain, plain + STEPS);
        EXPECT((i == 3 || plain[STEPS - 1] < plain[0]) && isfinite(plain[0]) && plain[STEPS] > 0);
        if (i == 3)
            EXPECT(plain[STEPS + 1] < plain[STEPS] &&
                   plain[1] == plain[0]); /* only the indexer has learned, and it has */
        for (int level = RECOMPUTE_NORM; level <= RECOMPUTE_TWICE; level++) {
            for (int l = 0; l < s.m.config.layers; l++) s.recompute[l] = (RecomputeLevel)level;
            if (level == RECOMPUTE_BLOCK)
                s.m.offload.layers[OFFLOAD_WEIGHTS] = s.m.offload.on_disk[OFFLOAD_WEIGHTS] = 1;
            steps_train(&s, true, with, with + STEPS);
            if (!EXPECT(!memcmp(plain, with, sizeof plain))) test_note("    case %d, level %d", i, level);
        }
    }
}

/* ---- a token's keys and its own past ---- */

typedef struct Pass {
    Ring r;
    Backend *b;
    Model model;
    ModelInput in;
    int init, phase;
    Tid logits;
} Pass;

static void pass_open(Pass *t, int64_t rows, int64_t seq) {
    Err e = {0};
    Machine m = {0};
    ModelSpec spec = {.config = tiny(), .activations = FMT_F32, .random_init = true, .seed = 4};
    ModelOut out = {.tap_layer = -1};
    EXPECT_OK(backend_open(&t->b, "cpu", (BackendOptions){.threads = 2}, &e));
    t->b->describe(t->b, &m);
    ring_init(&t->r, &m);
    model_weights(&t->r.p, &t->model, &spec, NULL);
    t->init = prog_begin_phase(&t->r.p, "init", 1);
    weights_record_start(&t->r.p, &t->model);
    prog_end_phase(&t->r.p);
    t->phase = prog_begin_phase(&t->r.p, "pass", 1);
    t->in = model_input(&t->r.p, &t->model, "batch", rows, seq);
    model_hidden(&t->r.p, &t->model, &t->in, &out);
    t->logits = op_head_logits(&t->r.p, out.hidden, t->model.head);
    prog_end_phase(&t->r.p);
    ring_plan(&t->r, &(PlanChoices){0});
    EXPECT_OK(ring_open(&t->r, t->b, &e));
    exec_play(&t->r.x, t->init);
}

static void pass_play(Pass *t, float *logits, const int32_t *ids, const int32_t *positions, const int32_t *docs,
                      int64_t n) {
    exec_put(&t->r.x, t->in.ids, ids, 0, n * 4);
    exec_put(&t->r.x, t->in.positions, positions, 0, n * 4);
    exec_put(&t->r.x, t->in.doc_begin, docs, 0, n * 4);
    exec_play(&t->r.x, t->phase);
    exec_get(&t->r.x, t->logits, logits, 0, n * VOCAB * 4);
}

static void pass_close(Pass *t) {
    ring_close(&t->r);
    t->b->close(t->b);
}

static double apart(const float *a, const float *b, int64_t n) {
    double most = 0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(a[i] - b[i]));
    return most;
}

/* A row alone, the same row beside another, the same document behind another in one row, and with another end. */
TEST(a_token_of_gsa_depends_on_its_own_past_alone) {
    enum { DOC = 17, FIRST = 5 };
    static float alone[SEQ * VOCAB], beside[2 * SEQ * VOCAB], behind[SEQ * VOCAB];
    int32_t ids[2 * SEQ], positions[2 * SEQ], docs[2 * SEQ] = {0};
    for (int i = 0; i < 2 * SEQ; i++) ids[i] = (int32_t)(rng_u32(3, (uint64_t)i) % VOCAB), positions[i] = i % SEQ;
    Pass one, two;
    pass_open(&one, 1, SEQ);
    pass_open(&two, 2, SEQ);
    pass_play(&one, alone, ids, positions, docs, SEQ);
    pass_play(&two, beside, ids, positions, docs, 2 * SEQ);
    EXPECT(apart(alone, beside, SEQ * VOCAB) < 1e-5);
    int32_t packed[SEQ], at[SEQ], begin[SEQ];
    for (int i = 0; i < SEQ; i++) {
        bool doc = i >= FIRST && i < FIRST + DOC;
        packed[i] = doc ? ids[i - FIRST] : (i * 13 + 1) % VOCAB;
        begin[i] = i < FIRST ? 0 : doc ? FIRST : FIRST + DOC;
        at[i] = i - begin[i];
    }
    pass_play(&one, behind, packed, at, begin, SEQ);
    EXPECT(apart(alone, behind + FIRST * VOCAB, DOC * VOCAB) < 1e-5);
    for (int i = DOC; i < SEQ; i++) ids[i] = (ids[i] + 1) % VOCAB;
    pass_play(&one, behind, ids, positions, docs, SEQ);
    EXPECT(apart(alone, behind, DOC * VOCAB) < 1e-5);
    pass_close(&one);
    pass_close(&two);
}

/* ---- files ---- */

TEST(presets_of_gsa_have_the_published_sizes) {
    static const struct {
        const char *name;
        double millions;
        int64_t k_base;
    } preset[] = {
        {"gsa-512m", 183.7, 512}, {"gsa-512m-768", 319.6, 512}, {"gsa-1b", 405.2, 512}, {"gsa-1.7b", 1730.5, 2048}};
    for (int i = 0; i < COUNT_OF(preset); i++) {
        ModelConfig c;
        EXPECT(config_from_preset(&c, preset[i].name) && c.gsa.k_base == preset[i].k_base);
        EXPECT_NEAR((double)config_parameters(&c) / 1e6, preset[i].millions, 0.06);
        Program p;
        Model m;
        prog_init(&p);
        model_weights(&p, &m, &(ModelSpec){.config = c, .activations = FMT_BF16}, NULL);
        EXPECT(model_count(&p, false) == config_parameters(&c));
        prog_free(&p);
    }
}

TEST(a_config_of_gsa_is_written_as_it_is_read) {
    Err e = {0};
    ModelConfig c = tiny(), again;
    const char *const set[] = {
        "gate_activation=silu",    "use_adaptive_k=false",      "selection=oracle", "dense_residual_alpha=0.25",
        "indexer_activation=relu", "output_gate_per_head=true", "qkv_bias=true",    "sparse_layers=[1]"};
    EXPECT_OK(config_set(&c, set, NULL, COUNT_OF(set), &e));
    json_t *j = config_to_json(&c);
    EXPECT(json_object_get(j, "d_model") && !json_object_get(j, "hidden_size"));
    EXPECT_OK(config_from_json(&again, j, c.name, &e));
    EXPECT(!memcmp(&again.gsa, &c.gsa, sizeof c.gsa) && again.hidden == c.hidden && again.head_dim == 8 &&
           again.qkv_bias);
    json_decref(j);
}

static void expect_refused(const char *key_value, const char *word) {
    Err e = {0};
    ModelConfig c = tiny();
    bool ok = config_set(&c, &key_value, NULL, 1, &e);
    if (!EXPECT(!ok && strstr(e.text, word))) test_note("    %s gave '%s'", key_value, e.text);
}

TEST(a_config_of_gsa_that_cannot_be_is_refused_by_name) {
    expect_refused("attention_dropout=0.1", "attention_dropout");
    expect_refused("hidden_dropout=0.5", "hidden_dropout");
    expect_refused("k_min=7", "k_min <= k_base");
    expect_refused("k_max=5", "k_min <= k_base");
    expect_refused("adaptive_k_method=learned", "gradient");
    expect_refused("adaptive_k_method=sometimes", "variance, entropy");
    expect_refused("gate_activation=relu", "gate_activation");
    expect_refused("selection=some", "Supported: learned, random, oracle, all");
    expect_refused("n_kv_heads=3", "multiple");
    expect_refused("dense_residual_alpha=2", "dense_residual_alpha");
    expect_refused("sparse_layers=[]", "sparse_layers");
    expect_refused("sparse_layers=some", "sparse_layers");
    expect_refused("sparse_layers=[9]", "layers 0 to");
    expect_refused("d_modell=3", "d_model");
}

TEST(random_starts_of_gsa_are_the_published_ones) {
    ModelConfig c = tiny();
    const struct {
        const char *name;
        FillKind kind;
        double scale;
    } start[] = {{"model.layers.0.self_attn.q_proj.weight", FILL_UNIFORM, sqrt(0.5) * sqrt(6.0 / 64)},
                 {"model.layers.0.self_attn.v_proj.weight", FILL_UNIFORM, sqrt(0.5) * sqrt(6.0 / 48)},
                 {"model.layers.1.self_attn.o_proj.weight", FILL_UNIFORM, 0.5 * sqrt(6.0 / 64)},
                 {"model.layers.1.self_attn.indexer.query_proj.weight", FILL_UNIFORM, sqrt(6.0 / 48)},
                 {"model.layers.1.self_attn.indexer.weight_proj.weight", FILL_UNIFORM, 0.1 * sqrt(6.0 / 34)},
                 {"model.layers.1.self_attn.indexer.weight_proj.bias", FILL_CONSTANT, 0},
                 {"model.layers.1.self_attn.indexer.bias", FILL_CONSTANT, 0},
                 {"model.layers.1.self_attn.value_gate.weight", FILL_UNIFORM, 0.1 * sqrt(6.0 / 48)},
                 {"model.layers.1.self_attn.output_gate.bias", FILL_CONSTANT, 0.5},
                 {"model.layers.1.mlp.up_proj.weight", FILL_UNIFORM, 1 / sqrt(32.0)},
                 {"model.layers.1.mlp.down_proj.weight", FILL_UNIFORM, 1 / sqrt(48.0)},
                 {"model.layers.1.input_layernorm.weight", FILL_CONSTANT, 1},
                 {"lm_head.weight", FILL_NORMAL, 0.02}};
    for (int i = 0; i < COUNT_OF(start); i++) {
        AttrFill f = weights_fill(&c, start[i].name, 1);
        if (!EXPECT(f.kind == start[i].kind && fabs(f.scale - start[i].scale) < 1e-6))
            test_note("    %s: %g", start[i].name, f.scale);
    }
}

/* ---- the program ---- */

static double loss_of(const char *model, const char *data, const char *more) {
    Ran r = snug_run("eval --device cpu --precision fp32 --seq 64 --json --model %s --data %s %s", model, data, more);
    const char *at = strstr(str_text(&r.out), "\"loss\":");
    double loss = at ? atof(at + 7) : (double)NAN;
    if (!EXPECT(r.code == 0 && at)) test_note("%s%s", str_text(&r.out), str_text(&r.err));
    ran_free(&r);
    return loss;
}

static void checksum_of(char *to, size_t size, const char *command) {
    Ran r = snug_run("%s", command);
    const char *at = strstr(str_text(&r.out), "\"checksum\":");
    snprintf(to, size, "%.*s", at ? 29 : 0, at ? at : "");
    if (!EXPECT(r.code == 0 && at)) test_note("    %s\n%s%s", command, str_text(&r.out), str_text(&r.err));
    ran_free(&r);
}

/* A run that is cut in its warm-up and one that is not end with the same weights, beyond the switch of the stages. */
TEST(a_warmup_that_is_resumed_ends_with_the_same_weights) {
    static const char *const kinds[] = {"joint", "frozen"};
    const char *at = test_tmp();
    char line[900], whole[40], again[40];
    for (int i = 0; i < COUNT_OF(kinds); i++) {
        const char *job =
            "train --device cpu --model tests/golden/gsa/whole --data %s/rows.jsonl --seq 16 --micro-batch 2 --accum 1 "
            "--steps 6 --json "
            "--indexer-warmup %s --indexer-warmup-steps 4 --precision fp32 --out %s/%s%d %s";
        const char *rows =
            "{\"ids\": [5, 9, 31, 7, 12, 5, 30, 8, 9, 10, 4, 7, 7, 19]}\n{\"ids\": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, "
            "12]}\n";
        snprintf(line, sizeof line, "%s/rows.jsonl", at);
        EXPECT(file_write_all(line, rows, (int64_t)strlen(rows), NULL));
        snprintf(line, sizeof line, job, at, kinds[i], at, "whole", i, "");
        checksum_of(whole, sizeof whole, line);
        snprintf(line, sizeof line, job, at, kinds[i], at, "cut", i, "--save-steps 3");
        checksum_of(again, sizeof again, line);
        snprintf(line, sizeof line, "rm -rf %s/cut%d/model %s/cut%d/checkpoint-6", at, i, at, i);
        EXPECT(system(line) == 0);
        snprintf(line, sizeof line, "train --config %s/cut%d/config.yaml --resume --json", at, i);
        checksum_of(again, sizeof again, line);
        EXPECT_STR(again, whole);
    }
}

/* With all keys, and with as many as there are, it is the dense model still; biases and norms of q and k are kept. */
TEST(a_dense_model_made_sparse_keeps_its_loss) {
    static const char *const from[] = {"models/tally", "tests/golden/qwen2_untied", "tests/golden/qwen3",
                                       "tests/golden/llama_yarn"};
    char rows[200], to[200];
    snprintf(rows, sizeof rows, "%s/ids.jsonl", test_tmp());
    const char *line = "{\"ids\": [5, 9, 31, 77, 12, 5, 60, 8, 9, 100, 42, 7, 7, 19, 3, 2, 55, 81]}\n";
    EXPECT(file_write_all(rows, line, (int64_t)strlen(line), NULL));
    for (int i = 0; i < COUNT_OF(from); i++) {
        snprintf(to, sizeof to, "%s/sparse%d", test_tmp(), i);
        Ran r =
            snug_run("convert --from dense %s --out %s --set k_base=64 --set k_min=64 --set k_max=64 --set d_indexer=8",
                     from[i], to);
        if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
        ran_free(&r);
        double dense = loss_of(from[i], rows, "");
        EXPECT_NEAR(loss_of(to, rows, "--selection all"), dense, 1e-5 * dense);
        EXPECT_NEAR(loss_of(to, rows, ""), dense, 1e-5 * dense);
    }
}

/* With as many keys as there are and fresh gates in no layer, a model of which some layers were made sparse is the
 * dense one still; only those layers have an indexer; and what it answers is what it was evaluated as. */
TEST(some_layers_of_a_dense_model_are_made_sparse) {
    char rows[200], to[200], line[900];
    snprintf(rows, sizeof rows, "%s/ids.jsonl", test_tmp());
    snprintf(to, sizeof to, "%s/some", test_tmp());
    const char *ids = "{\"ids\": [5, 9, 31, 77, 12, 5, 60, 8, 9, 100, 42, 7, 7, 19, 3, 2, 55, 81]}\n";
    EXPECT(file_write_all(rows, ids, (int64_t)strlen(ids), NULL));
    static const char job[] =
        "convert --from dense models/tally --out %s --overwrite --set sparse_layers=[%d] "
        "--set d_indexer=8 --set k_base=%d --set k_min=%d --set k_max=%d --json";
    ModelConfig dense, some;
    Err e = {0};
    EXPECT_OK(config_from_file(&dense, "models/tally", &e));
    Ran r = snug_run(job, to, dense.layers - 1, 64, 64, 64);
    if (!EXPECT(r.code == 0)) test_note("%s", str_text(&r.err));
    ran_free(&r);
    EXPECT_OK(config_from_file(&some, to, &e));
    int64_t index = some.hidden * (5 * 8 + 4) + 2 * 4; /* one layer's */
    EXPECT(config_parameters(&some) == config_parameters(&dense) + index);
    double loss = loss_of("models/tally", rows, "");
    EXPECT_NEAR(loss_of(to, rows, ""), loss, 1e-5 * loss);
    r = snug_run(job, to, dense.layers - 1, 4, 4, 4);
    ran_free(&r);
    EXPECT(fabs(loss_of(to, rows, "") - loss) > 1e-4); /* four keys a token in one layer are not all */
    for (int i = 0; i < 3; i++) {
        static const char *const warmup[] = {"frozen", "joint", "none"};
        snprintf(line, sizeof line,
                 "train --device cpu --model %s --data %s --seq 16 --micro-batch 1 --steps 4 --out %s.run "
                 "--overwrite --indexer-warmup %s --indexer-warmup-steps 2 --json",
                 to, rows, to, warmup[i]);
        r = snug_run("%s", line);
        json_t *j = json_loads(str_text(&r.out), 0, NULL);
        double k = json_number_value(json_object_get(j, "k_mean"));
        if (!EXPECT(r.code == 0 && k > 3 && k <= 4 && strstr(str_text(&r.out), "\"above_plan_bytes\":0")))
            test_note("%s: %s%s", warmup[i], str_text(&r.out), str_text(&r.err));
        json_decref(j);
        ran_free(&r);
    }
}

#define TINY                                                                                                       \
    "--set d_model=32 --set n_layers=2 --set n_heads=4 --set n_kv_heads=2 --set d_ffn=48 --set d_indexer=8 --set " \
    "n_indexer_heads=2 "                                                                                           \
    "--set k_base=8 --set k_min=4 --set k_max=12 --set vocab_size=768 --dtype fp32"

static void expect_run(int code, const char *word, const char *command) {
    Ran r = snug_run("%s", command);
    if (!EXPECT(r.code == code && strstr(code ? str_text(&r.err) : str_text(&r.out), word)))
        test_note("    %s: %d\n%s%s", command, r.code, str_text(&r.out), str_text(&r.err));
    ran_free(&r);
}

TEST(gsa_is_made_trained_evaluated_and_answers) {
    const char *at = test_tmp();
    char line[700];
    snprintf(line, sizeof line, "init --model gsa-512m --tokenizer models/tally --out %s/m " TINY " --json", at);
    expect_run(0, "parameters", line);
    snprintf(line, sizeof line, "problems --n 40 --roles none --out %s/rows.jsonl", at);
    expect_run(0, "", line);
    static const char *const ways[] = {"",
                                       "--selection random",
                                       "--selection oracle",
                                       "--selection all",
                                       "--selection drawn:0.9",
                                       "--gates none",
                                       "--mode lora --lora-also all"};
    for (int i = 0; i < COUNT_OF(ways); i++) {
        snprintf(line, sizeof line,
                 "train --device cpu --model %s/m --data %s/rows.jsonl --out %s/r%d --seq 64 --micro-batch 2 --accum 2 "
                 "--steps 3 --json %s",
                 at, at, at, i, ways[i]);
        expect_run(0, "\"above_plan_bytes\":0", line);
    }
    snprintf(line, sizeof line,
             "train --device cpu --model models/tally --data %s/rows.jsonl --out %s/no --mode lora --lora-also all", at,
             at);
    expect_run(2, "--lora-also", line);
    snprintf(line, sizeof line, "eval --device cpu --model %s/r0/model --data %s/rows.jsonl --seq 64 --json", at, at);
    expect_run(0, "perplexity", line);
    snprintf(line, sizeof line,
             "generate --device cpu --model %s/r0/model --prompt Tom --max-tokens 9 --temperature 0 --json", at);
    expect_run(0, "", line);
    snprintf(line, sizeof line, "eval --device cpu --model models/tally --data %s/rows.jsonl --selection random", at);
    expect_run(2, "no sparse attention", line);
    expect_run(2, "share from 0 to 1", "plan --model gsa-512m --gpu h100 --selection drawn:1.5");
    expect_run(0, "183,662,144 parameters", "plan --model gsa-512m --gpu h100 --seq 1024 --micro-batch 2 --accum 32");
}

/* What the answers have from "finish" on: text, ids and log-probabilities, the same in each of n. Gives: mem_free. */
static char *same_answers(const char *model, int n) {
    Str text = {0};
    Err e = {0};
    char *out = mem_strdup(test_path("answers")), *same = NULL;
    Ran r = snug_run("generate --device cpu --model %s --prompt 'Olga has 22 books.' --n %d --max-tokens 12 --logprobs "
                     "--temperature 0 --ignore-eos --out %s --overwrite",
                     model, n, out);
    int lines = 0;
    EXPECT(r.code == 0);
    EXPECT_OK(file_read(out, &text, 0, &e));
    for (char *line = strtok(text.data, "\n"); line; line = strtok(NULL, "\n"), lines++) {
        const char *answer = strstr(line, "\"finish\"");
        if (!same) same = mem_strdup(answer ? answer : "");
        EXPECT_STR(answer, same);
    }
    EXPECT(lines == n);
    str_free(&text), ran_free(&r), mem_free(out);
    return same;
}

/* A layer without an indexer has no cache of index keys that could be copied: dense ones, and where all keys are
 * attended to. */
TEST(samples_of_a_prompt_share_its_cache_where_layers_have_no_indexer) {
    static const char *const kinds[] = {"n_layers=2", "sparse_layers=[1]", "selection=all"};
    for (int i = 0; i < COUNT_OF(kinds); i++) {
        char line[700], *model = mem_strdup(test_path("model"));
        snprintf(line, sizeof line, "init --model gsa-512m --tokenizer models/tally --overwrite --out %s " TINY
                 " --set %s", model, kinds[i]);
        expect_run(0, "", line);
        char *alone = same_answers(model, 1), *among = same_answers(model, 3);
        EXPECT_STR(alone, among);
        mem_free(alone), mem_free(among), mem_free(model);
    }
}
