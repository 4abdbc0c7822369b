/* test_seams.c - four small proofs that later work plugs into the core: a cache across phases, a delayed copy queue,
 * a quantised weight brought in before use, a tensor that outlives its phase. And: plays are repeatable (P7). */
#include <stdlib.h>

#include "base/file.h"
#include "base/mem.h"
#include "exec/exec.h"
#include "model/model.h"
#include "plan/plan.h"
#include "tests/snug.h"
#include "tests/test.h"
#include "weights/weights.h"

static Backend *open_cpu(Machine *m) {
    Err e = {0};
    Backend *b = NULL;
    EXPECT_OK(backend_open(&b, "cpu", (BackendOptions){.threads = 2}, &e));
    *m = (Machine){0};
    b->describe(b, m);
    return b;
}

static Exec open_exec(Program *p, Backend *b, const Machine *m) {
    Err e = {0};
    Exec x;
    Placement pl = plan_all(p, m);
    EXPECT_OK(plan_verify(p, &e));
    EXPECT_OK(exec_open(&x, p, b, pl.arena_bytes, &e));
    return x;
}

/* ---- decode with a cache ---- */

typedef struct Decode {
    Backend *b;
    Program p;
    Model d;
    ModelInput prefill, one;
    Tid prefill_logits, one_logits;
    int prompt;
    Exec x;
} Decode;

static Tid cached_logits(Decode *d, ModelInput *in, const char *name, int seq, const Tid *cache, int slots) {
    ModelOut out = {.tap_layer = -1};
    *in = model_input(&d->p, &d->d, name, 1, seq);
    in->cache = cache;
    in->slots = slots;
    model_hidden(&d->p, &d->d, in, &out);
    return op_head_logits(&d->p, out.hidden, d->d.head);
}

/* Prefill and decode are two phases over one cache: {prefill, decode x steps}. */
static void decode_open(Decode *d, const char *folder, int prompt, int slots) {
    Err e = {0};
    Machine m;
    ModelConfig c;
    EXPECT_OK(config_from_file(&c, folder, &e));
    d->b = open_cpu(&m);
    d->prompt = prompt;
    prog_init(&d->p);
    model_weights(&d->p, &d->d, &(ModelSpec){.config = c, .activations = FMT_F32}, NULL);
    const Tid *cache = model_cache(&d->p, &d->d, 1, slots, FMT_F32);
    prog_begin_phase(&d->p, "prefill", 1);
    d->prefill_logits = cached_logits(d, &d->prefill, "prefill", prompt, cache, slots);
    prog_end_phase(&d->p);
    prog_begin_phase(&d->p, "decode", slots);
    d->one_logits = cached_logits(d, &d->one, "one", 1, cache, slots);
    prog_end_phase(&d->p);
    d->x = open_exec(&d->p, d->b, &m);
    EXPECT_OK(weights_load(&d->x, NULL, ROLE_WEIGHT, folder, &e));
}

static int best(const float *v, int64_t n) {
    int at = 0;
    for (int64_t i = 1; i < n; i++)
        if (v[i] > v[at]) at = (int)i;
    return at;
}

/* Greedy ids after the prompt, one decode play a token. */
static void decode_run(Decode *d, const int32_t *prompt, int32_t *out, int n) {
    int64_t vocab = d->d.spec.config.vocab;
    float *logits = MEM_NEW(float, vocab);
    for (int i = 0; i < d->prompt; i++) {
        int32_t position = i;
        exec_put(&d->x, d->prefill.ids, &prompt[i], i * 4, 4);
        exec_put(&d->x, d->prefill.positions, &position, i * 4, 4);
    }
    exec_poison(&d->x, 0);
    exec_play(&d->x, 0);
    exec_get(&d->x, d->prefill_logits, logits, (d->prompt - 1) * vocab * 4, vocab * 4);
    out[0] = best(logits, vocab);
    for (int i = 1; i < n; i++) {
        int32_t position = d->prompt + i - 1;
        exec_put(&d->x, d->one.ids, &out[i - 1], 0, 4);
        exec_put(&d->x, d->one.positions, &position, 0, 4);
        exec_play(&d->x, 1);
        exec_get(&d->x, d->one_logits, logits, 0, vocab * 4);
        out[i] = best(logits, vocab);
    }
    mem_free(logits);
}

static void decode_close(Decode *d) {
    exec_close(&d->x);
    prog_free(&d->p);
    d->b->close(d->b);
}

TEST(decode_with_a_cache_gives_the_ids_of_the_full_forward) {
    json_t *all = json_load_file("tests/golden/generate.json", 0, NULL), *one;
    const char *name;
    EXPECT(json_object_size(all) >= 3);
    json_object_foreach(all, name, one) {
        int32_t prompt[16], have[32];
        json_t *want = json_object_get(one, "continuation"), *from = json_object_get(one, "prompt");
        int n = (int)json_array_size(want), m = (int)json_array_size(from);
        for (int i = 0; i < m; i++) prompt[i] = (int32_t)json_integer_value(json_array_get(from, (size_t)i));
        char folder[200];
        snprintf(folder, sizeof folder, "tests/golden/%s", name);
        Decode d;
        decode_open(&d, folder, m, m + n);
        decode_run(&d, prompt, have, n);
        for (int i = 0; i < n; i++)
            if (!EXPECT(have[i] == json_integer_value(json_array_get(want, (size_t)i))))
                test_note("    %s, token %d", name, i);
        decode_close(&d);
    }
    json_decref(all);
}

TEST(stories260k_gives_its_golden_ids) {
    const char *bin = test_assets("stories260K/stories260K.bin");
    if (!bin) return;
    char folder[300], golden[1024];
    snprintf(golden, sizeof golden, "%.*s/golden.json", (int)(strrchr(bin, '/') - bin), bin);
    snprintf(folder, sizeof folder, "%s/st", test_tmp());
    Ran r = snug_run("convert --from llama2c %s --out %s", bin, folder);
    EXPECT(r.code == 0);
    ran_free(&r);
    json_t *g = json_load_file(golden, 0, NULL), *ids = json_object_get(g, "greedy_ids"),
           *logits = json_object_get(g, "first_step_logits_0_7");
    int n = (int)json_array_size(ids) - 1;
    int32_t first = (int32_t)json_integer_value(json_array_get(ids, 0)), *have = MEM_NEW(int32_t, n);
    Decode d;
    decode_open(&d, folder, 1, n + 1);
    decode_run(&d, &first, have, n);
    int equal = 0;
    for (int i = 0; i < n; i++) equal += have[i] == json_integer_value(json_array_get(ids, (size_t)i + 1));
    if (!EXPECT(equal == n && n >= 199)) test_note("    %d of %d ids are equal", equal, n);
    int32_t zero = 0; /* inputs are written before each play: their slots serve others afterwards */
    exec_put(&d.x, d.prefill.ids, &first, 0, 4);
    exec_put(&d.x, d.prefill.positions, &zero, 0, 4);
    exec_play(&d.x, 0);
    for (int i = 0; i < 8; i++) {
        float v;
        exec_get(&d.x, d.prefill_logits, &v, i * 4, 4);
        EXPECT_NEAR(v, json_number_value(json_array_get(logits, (size_t)i)), 1e-4);
    }
    decode_close(&d);
    mem_free(have);
    json_decref(g);
}

/* ---- a small program with weights that live elsewhere ---- */

enum { N = 24, C = 64, LAYERS = 4 };

typedef struct Chain {
    Program p;
    Tid x, y, w[LAYERS];
} Chain;

/* x -> w0 -> w1 -> ... -> y; each weight has the given home. */
static void chain_record(Chain *c, Home home) {
    prog_init(&c->p);
    c->x = prog_tensor(&c->p, "x", ROLE_INPUT, FMT_F32, 2, DIMS(N, C));
    for (int l = 0; l < LAYERS; l++) {
        c->p.layer = l;
        c->w[l] = prog_tensor(&c->p, "w", ROLE_WEIGHT, FMT_F32, 2, DIMS(C, C));
        c->p.t[c->w[l]].home = home;
    }
    c->p.layer = -1;
    prog_begin_phase(&c->p, "forward", 1);
    Tid h = c->x;
    for (int l = 0; l < LAYERS; l++) {
        c->p.layer = l;
        h = op_linear(&c->p, "h", h, c->w[l], NONE);
    }
    c->p.layer = -1;
    c->y = prog_tensor(&c->p, "y", ROLE_STATISTIC, FMT_F32, 2, DIMS(N, C));
    op_copy(&c->p, c->y, h, QUEUE_COMPUTE);
    prog_end_phase(&c->p);
}

static float number_at(int seed, int i) {
    return (float)((i * 2654435761u + (unsigned)seed * 40503u) >> 16 & 0xfff) / 4096.0f - 0.5f;
}

static void chain_fill(Chain *c, Exec *x, Format stored) {
    float v[N * C > C * C ? N * C : C * C];
    char code[C * C * 8];
    for (int i = 0; i < N * C; i++) v[i] = number_at(99, i);
    exec_put(x, c->x, v, 0, N * C * 4);
    for (int l = 0; l < LAYERS; l++) {
        for (int i = 0; i < C * C; i++) v[i] = number_at(l, i) * 0.3f;
        format_table[stored].encode(code, v, C, C, 0, C);
        exec_put(x, c->w[l], code, 0, format_bytes(stored, C, C));
    }
}

static void chain_play(Chain *c, Home home, ExecOrder order, int plays, float *y) {
    Machine m;
    Backend *b = open_cpu(&m);
    chain_record(c, home);
    plan_materialise(&c->p);
    Exec x = open_exec(&c->p, b, &m);
    x.order = order;
    for (int i = 0; i < plays; i++) { /* inputs are written before each play */
        if (home.pool == POOL_DEVICE) exec_poison(&x, 0);
        chain_fill(c, &x, home.stored);
        exec_play(&x, 0);
    }
    exec_get(&x, c->y, y, 0, N * C * 4);
    exec_close(&x);
    b->close(b);
}

TEST(weights_copied_in_by_a_delayed_queue_give_the_same_bits) {
    float plain[N * C], early[N * C], late[N * C];
    Chain a, b, c;
    chain_play(&a, (Home){POOL_DEVICE, FMT_F32, 0}, EXEC_AS_WRITTEN, 1, plain);
    chain_play(&b, (Home){POOL_HOST, FMT_F32, 0}, EXEC_AS_WRITTEN, 2, early);
    chain_play(&c, (Home){POOL_HOST, FMT_F32, 0}, EXEC_LATE, 2, late);
    EXPECT(!memcmp(plain, early, sizeof plain));
    EXPECT(!memcmp(plain, late, sizeof plain));
    int copies = 0, waits = 0;
    for (int i = 0; i < c.p.n_s; i++) {
        copies += c.p.s[i].queue == QUEUE_COPY_IN;
        waits += c.p.s[i].queue == QUEUE_COMPUTE && c.p.s[i].wait[QUEUE_COPY_IN] >= 0;
    }
    EXPECT(copies == LAYERS && waits >= 1);
    prog_free(&a.p);
    prog_free(&b.p);
    prog_free(&c.p);
}

TEST(a_delayed_queue_without_its_waits_is_noticed) {
    float plain[N * C], wrong[N * C];
    Machine m;
    Chain a, c;
    chain_play(&a, (Home){POOL_DEVICE, FMT_F32, 0}, EXEC_AS_WRITTEN, 1, plain);
    Backend *b = open_cpu(&m);
    chain_record(&c, (Home){POOL_HOST, FMT_F32, 0});
    plan_materialise(&c.p);
    Exec x = open_exec(&c.p, b, &m);
    for (int i = 0; i < c.p.n_s; i++) c.p.s[i].wait[QUEUE_COPY_IN] = -1; /* the planted fault */
    x.order = EXEC_LATE;
    chain_fill(&c, &x, FMT_F32);
    exec_play(&x, 0);
    exec_get(&x, c.y, wrong, 0, sizeof wrong);
    EXPECT(memcmp(plain, wrong, sizeof plain));
    EXPECT(!plan_verify(&c.p, NULL));
    exec_close(&x);
    prog_free(&a.p);
    prog_free(&c.p);
    b->close(b);
}

TEST(an_int8_weight_is_decoded_before_use) {
    float plain[N * C], coded[N * C];
    Chain a, c;
    chain_play(&a, (Home){POOL_DEVICE, FMT_F32, 0}, EXEC_AS_WRITTEN, 1, plain);
    chain_play(&c, (Home){POOL_DEVICE, FMT_INT8, 0}, EXEC_AS_WRITTEN, 2, coded);
    double worst = 0, size = 0;
    for (int i = 0; i < N * C; i++) {
        worst = fmax(worst, fabs(plain[i] - coded[i]));
        size = fmax(size, fabs(plain[i]));
    }
    EXPECT(worst > 0 && worst < 0.03 * size); /* close, and really quantised */
    int64_t dense = 0, stored = 0;
    for (Tid t = 1; t < c.p.n_t; t++)
        if (c.p.t[t].role == ROLE_WEIGHT && c.p.t[t].birth >= 0) stored += prog_bytes(&c.p, t);
    for (Tid t = 1; t < a.p.n_t; t++)
        if (a.p.t[t].role == ROLE_WEIGHT) dense += prog_bytes(&a.p, t);
    EXPECT(stored > 0 && stored < dense / 3);
    prog_free(&a.p);
    prog_free(&c.p);
}

/* ---- a tensor that outlives its phase ---- */

TEST(a_tensor_outlives_its_phase_and_what_lies_between) {
    Machine m;
    Backend *b = open_cpu(&m);
    Program p;
    prog_init(&p);
    Tid x = prog_tensor(&p, "x", ROLE_INPUT, FMT_F32, 2, DIMS(N, C));
    Tid w = prog_tensor(&p, "w", ROLE_WEIGHT, FMT_F32, 2, DIMS(C, C));
    Tid y = prog_tensor(&p, "y", ROLE_STATISTIC, FMT_F32, 2, DIMS(N, C));
    prog_begin_phase(&p, "score", 1);
    Tid kept = op_linear(&p, "kept", x, w, NONE);
    prog_end_phase(&p);
    prog_begin_phase(&p, "between", 3); /* wants as much memory as it can find */
    Tid h = x;
    for (int i = 0; i < 4; i++) h = op_linear(&p, "busy", h, w, NONE);
    prog_end_phase(&p);
    prog_begin_phase(&p, "use", 2);
    op_copy(&p, y, op_add(&p, "sum", kept, kept), QUEUE_COMPUTE);
    prog_end_phase(&p);
    Exec e = open_exec(&p, b, &m);
    float v[C * C], a[N * C], twice[N * C];
    for (int i = 0; i < N * C; i++) v[i] = number_at(1, i);
    exec_put(&e, x, v, 0, N * C * 4);
    for (int i = 0; i < C * C; i++) v[i] = number_at(2, i);
    exec_put(&e, w, v, 0, C * C * 4);
    exec_play(&e, 0);
    exec_get(&e, kept, a, 0, sizeof a);
    for (int i = 0; i < 3; i++) exec_play(&e, 1);
    for (int i = 0; i < 2; i++) {
        exec_play(&e, 2);
        exec_get(&e, y, twice, 0, sizeof twice);
        bool same = true;
        for (int k = 0; k < N * C; k++) same &= twice[k] == 2 * a[k];
        EXPECT(same);
    }
    EXPECT(p.t[kept].death >= p.phase[2].begin);
    exec_close(&e);
    prog_free(&p);
    b->close(b);
}
