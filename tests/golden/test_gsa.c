/* test_gsa.c - gated sparse attention against a reference in double precision (tools/make_gsa_golden.py): logits,
 * both losses and every gradient for each of its switches; prefill and decode against whole rows; a token's keys
 * against other company. */
#include "base/file.h"
#include "gen/gen.h"
#include "store/safetensors.h"
#include "tests/test.h"
#include "train/job.h"
#include "weights/weights.h"

enum { ROWS = 2, SEQ = 22, TOKENS = ROWS * SEQ };

static const char *const cases[] = {"whole",  "fixed_k",  "entropy",    "relu",        "random",      "oracle",
                                    "all",    "no_gates", "value_gate", "output_gate", "gate_a_head", "blend",
                                    "packed", "ntk",      "yarn",       "converted",   "some_layers"};

typedef struct Case {
    const char *folder;
    ModelConfig config;
    StSet expected;
    Backend *b;
    Machine m;
} Case;

static const char *folder_of(const char *name) {
    static char path[100];
    snprintf(path, sizeof path, "tests/golden/gsa/%s", name);
    return path;
}

static void case_open(Case *c, const char *name) {
    Err e = {0};
    char file[140];
    *c = (Case){.folder = folder_of(name)};
    snprintf(file, sizeof file, "%s/expected.safetensors", c->folder);
    EXPECT_OK(config_from_file(&c->config, c->folder, &e) && st_open(&c->expected, file, &e));
    EXPECT_OK(backend_open(&c->b, "cpu", (BackendOptions){.threads = 2}, &e));
    c->b->describe(c->b, &c->m);
}

static void case_close(Case *c) {
    st_close(&c->expected);
    c->b->close(c->b);
}

/* Of expected.safetensors, whole; gives how many bytes. */
static int64_t expected(const Case *c, const char *name, void *to, int64_t room) {
    Err e = {0};
    const StTensor *t = st_find(&c->expected, name);
    if (!t) return 0;
    EXPECT(t->bytes <= room);
    EXPECT_OK(st_read(&c->expected, t, to, 0, t->bytes, &e));
    return t->bytes;
}

static ModelSpec model_spec(const Case *c) { return (ModelSpec){.config = c->config, .activations = FMT_F32}; }

static void put_case(Exec *x, const Case *c, const ModelInput *in) {
    int32_t words[TOKENS];
    const struct {
        Tid to;
        const char *name;
    } input[] = {{in->ids, "ids"}, {in->positions, "positions"}, {in->doc_begin, "doc_begin"}};
    for (int i = 0; i < COUNT_OF(input); i++) {
        expected(c, input[i].name, words, sizeof words);
        if (x->p->t[input[i].to].birth >= 0) exec_put(x, input[i].to, words, 0, sizeof words);
    }
}

/* ---- losses and gradients ---- */

static void put_batch(Job *j, const Case *c) {
    Exec *x = &j->ring->x;
    int32_t ids[TOKENS], labels[TOKENS], order[TOKENS];
    float weight[TOKENS], divisor = 0, beta = 0;
    int64_t clock[CLOCK_WORDS] = {0};
    int n = 0;
    put_case(x, c, &j->in);
    expected(c, "ids", ids, sizeof ids);
    expected(c, "labels", labels, sizeof labels);
    expected(c, "weight", weight, sizeof weight);
    for (int i = 0; i < TOKENS; i++) divisor += weight[i];
    for (int id = 0; id < c->config.vocab; id++)
        for (int i = 0; i < TOKENS; i++)
            if (ids[i] == id) order[n++] = i;
    exec_put(x, j->in.id_order, order, 0, sizeof order);
    exec_put(x, j->labels, labels, 0, sizeof labels);
    exec_put(x, j->weight, weight, 0, sizeof weight);
    exec_put(x, j->divisor, &divisor, 0, 4);
    exec_put(x, j->ring->p.beta, &beta, 0, 4);
    exec_put(x, j->ring->p.clock, clock, 0, sizeof clock);
}

static double difference(const float *a, const float *b, int64_t n) { /* largest, by the largest number */
    double most = 0, size = 1e-3;
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(a[i] - b[i])), size = fmax(size, fabs(b[i]));
    return most / size;
}

/* The gradients of whole tensors and of the views that files name; gives how many were compared. */
static int expect_gradients(Job *j, const Case *c, bool indexer_alone) {
    enum { ROOM = 4096 };
    Program *p = &j->ring->p;
    float got[ROOM], want[ROOM];
    int compared = 0;
    for (Tid t = 1; t < p->n_t; t++) {
        char name[160];
        Tid base = prog_base(p, t), grad = p->t[base].grad;
        if (p->t[t].role != ROLE_WEIGHT || !p->t[t].file_name) continue;
        if (indexer_alone && !strstr(p->t[t].file_name, "indexer")) continue;
        snprintf(name, sizeof name, "grad.%s", p->t[t].file_name);
        int64_t bytes = expected(c, name, want, sizeof want);
        if (!EXPECT((bytes > 0) == p->t[base].trainable)) test_note("    %s: %s", c->folder, name);
        if (!bytes || !grad) continue;
        exec_get(&j->ring->x, grad, got, p->t[t].base ? p->t[t].view_bytes : 0, bytes);
        compared++;
        double off = difference(got, want, bytes / 4);
        if (!EXPECT(off < 3e-4)) test_note("    %s: %s is off by %.2g of its largest", c->folder, name, off);
    }
    return compared;
}

/* warmup: that stage is played; frozen: only the indexer has gradients. */
static void train_case(const char *name, bool warmup, bool frozen) {
    Err e = {0};
    Case c;
    Ring r;
    Job *j = MEM_NEW(Job, 1);
    case_open(&c, name);
    JobSpec s = {.m = model_spec(&c),
                 .train = true,
                 .weights = FMT_F32,
                 .gradients = FMT_F32,
                 .seq = SEQ,
                 .micro_batch = ROWS,
                 .accum = 1,
                 .update = {.beta1 = 0.9f, .beta2 = 0.99f, .eps = 1e-8f, .lr_mult = 1},
                 .evaluate = true,
                 .warmup_steps = warmup,
                 .warmup_frozen = frozen};
    EXPECT_OK(job_plan(j, &r, &s, &c.m, NULL, &e) && plan_verify(&r.p, &e));
    EXPECT_OK(ring_open(&r, c.b, &e) && weights_load(&r.x, NULL, ROLE_WEIGHT, c.folder, &e) && ring_settle(&r, &e));
    put_batch(j, &c);
    exec_play(&r.x, warmup ? j->warmup : j->micro);
    EXPECT_OK(exec_sync(&r.x, &e));
    double loss, want = 0, index_loss;
    exec_get(&r.x, j->loss, &loss, 0, 8);
    expected(&c, "loss", &want, 8);
    if (!EXPECT(fabs(loss - want) < 2e-5)) test_note("    %s: loss %.8g, reference %.8g", c.folder, loss, want);
    Tid stat = warmup ? j->warmup_index_loss : j->index_loss;
    EXPECT((stat != NONE) == (c.config.gsa.selection == SELECTION_LEARNED));
    if (stat) {
        exec_get(&r.x, stat, &index_loss, 0, 8);
        expected(&c, "index_loss", &want, 8);
        if (!EXPECT(fabs(index_loss - want) < 1e-4))
            test_note("    %s: index loss %.8g, reference %.8g", c.folder, index_loss, want);
    }
    enum { OF_AN_INDEXER = 5 };
    int sparse = 0;
    for (int l = 0; l < c.config.layers; l++) sparse += config_is_sparse_layer(&c.config, l);
    EXPECT(expect_gradients(j, &c, frozen) >= (frozen ? OF_AN_INDEXER * sparse : 20));
    ring_close(&r);
    case_close(&c);
    mem_free(j);
}

TEST(losses_and_every_gradient_of_gsa_equal_the_reference) {
    for (int i = 0; i < COUNT_OF(cases); i++) train_case(cases[i], false, false);
}

TEST(the_warmup_of_an_indexer_equals_the_reference) {
    for (int frozen = 0; frozen < 2; frozen++) {
        train_case("warmup", true, frozen);
        train_case("warmup_packed", true, frozen);
        train_case("warmup_some_layers", true, frozen);
    }
}

/* ---- logits: whole rows, then a prompt and tokens behind it ---- */

typedef struct Pass {
    int phase;
    ModelInput in;
    Tid logits;
} Pass;

static void record_pass(Ring *r, const Model *m, Pass *pass, const char *name, int64_t rows, int64_t seq,
                        const Tid *cache, int64_t slots) {
    ModelOut out = {.tap_layer = -1};
    pass->phase = prog_begin_phase(&r->p, name, 2);
    pass->in = model_input(&r->p, m, name, rows, seq);
    pass->in.cache = cache, pass->in.slots = slots, pass->in.distinct_cache_rows = true;
    model_hidden(&r->p, m, &pass->in, &out);
    pass->logits = op_head_logits(&r->p, out.hidden, m->head);
    prog_end_phase(&r->p);
}

static void logits_case(const char *name, int prompt) {
    Err e = {0};
    Case c;
    Ring r;
    Model model;
    Pass whole, prefill, decode;
    case_open(&c, name);
    ModelSpec spec = model_spec(&c);
    ring_init(&r, &c.m);
    model_weights(&r.p, &model, &spec, NULL);
    const Tid *caches = model_cache(&r.p, &model, ROWS, SEQ + 3, FMT_F32);
    record_pass(&r, &model, &whole, "whole", ROWS, SEQ, NULL, 0);
    record_pass(&r, &model, &prefill, "prefill", ROWS, prompt, caches, SEQ + 3);
    record_pass(&r, &model, &decode, "decode", ROWS, 1, caches, SEQ + 3);
    ring_plan(&r, &(PlanChoices){0});
    EXPECT_OK(plan_verify(&r.p, &e) && ring_open(&r, c.b, &e) && weights_load(&r.x, NULL, ROLE_WEIGHT, c.folder, &e));
    put_case(&r.x, &c, &whole.in);
    exec_play(&r.x, whole.phase);
    enum { MOST = TOKENS * 64 };
    static float want[MOST], got[MOST], all[MOST];
    int64_t vocab = c.config.vocab;
    expected(&c, "logits", want, sizeof want);
    exec_get(&r.x, whole.logits, all, 0, TOKENS * vocab * 4);
    if (!EXPECT(difference(all, want, TOKENS * vocab) < 5e-5)) test_note("    %s: logits", c.folder);
    int32_t ids[TOKENS], positions[TOKENS];
    expected(&c, "ids", ids, sizeof ids);
    for (int t = 0; t < SEQ && strcmp(name, "packed"); t += t ? 1 : prompt) { /* a cache holds one document */
        const Pass *pass = t ? &decode : &prefill;
        int n = t ? 1 : prompt, first = t, k = 0;
        int32_t some[TOKENS];
        for (int row = 0; row < ROWS; row++)
            for (int i = 0; i < n; i++, k++) some[k] = ids[row * SEQ + first + i], positions[k] = first + i;
        exec_put(&r.x, pass->in.ids, some, 0, k * 4);
        exec_put(&r.x, pass->in.positions, positions, 0, k * 4);
        exec_play(&r.x, pass->phase);
        exec_get(&r.x, pass->logits, got, 0, k * vocab * 4);
        for (int row = 0; row < ROWS; row++)
            if (!EXPECT(difference(got + row * n * vocab, all + (row * SEQ + first) * vocab, n * vocab) < 2e-5))
                test_note("    %s: row %d from token %d behind a prompt of %d", c.folder, row, first, prompt);
    }
    ring_close(&r);
    case_close(&c);
}

TEST(logits_of_gsa_equal_the_reference_and_so_do_prefill_and_decode) {
    static const int prompts[] = {1, 3, 6, 9, 15, 16, 17, 21};
    for (int i = 0; i < COUNT_OF(cases); i++) logits_case(cases[i], prompts[i % COUNT_OF(prompts)]);
    for (int i = 0; i < COUNT_OF(prompts); i++) logits_case("whole", prompts[i]);
}
