/* test_frozen.c - P7: what was resolved when a program was opened is all there is. The same captured Args, run again
 * with other dials, give to the bit what a program opened afresh gives with those dials. */
#include <stdlib.h>

#include "base/rng.h"
#include "exec/exec.h"
#include "tests/test.h"
#include "train/job.h"

enum { ROWS = 2, SEQ = 24, TOKENS = ROWS * SEQ, MICROS = 2 };

typedef enum Dial { DIAL_NONE, DIAL_BETA, DIAL_CLOCK, DIAL_DIVISOR, DIAL_RATE, DIAL_CORRECTION, DIAL_CLIP, DIALS } Dial;

typedef struct Frozen {
    Backend *b;
    Job job;
    Ring ring;
} Frozen;

static void open_job(Frozen *f, bool lora) {
    Err e = {0};
    Machine m = {0};
    JobSpec s = {.train = true, .lora = lora, .m.activations = FMT_F32, .weights = FMT_BF16, .gradients = FMT_F32,
                 .update = {.beta1 = 0.9f, .beta2 = 0.99f, .eps = 1e-8f, .weight_decay = 0.1f}, .seq = SEQ,
                 .micro_batch = ROWS, .accum = MICROS, .m.random_init = true, .m.seed = 3};
    if (lora) s.m.adapter = (LoraSpec){.rank = 4, .alpha = 8, .dropout = 0.2f, .targets = 127, .format = FMT_F32};
    EXPECT(config_from_preset(&s.m.config, "qwen2.5-0.5b"));
    const char *small[] = {"num_hidden_layers=2", "hidden_size=32", "num_attention_heads=4", "num_key_value_heads=2",
                           "intermediate_size=48", "vocab_size=60"};
    EXPECT_OK(config_set(&s.m.config, small, NULL, COUNT_OF(small), &e));
    EXPECT_OK(backend_open(&f->b, "cpu", (BackendOptions){.threads = 2}, &e));
    f->b->describe(f->b, &m);
    s.recompute[0] = RECOMPUTE_BLOCK;
    EXPECT_OK(job_plan(&f->job, &f->ring, &s, &m, NULL, &e));
    EXPECT_OK(ring_open(&f->ring, f->b, &e));
}

static void close_job(Frozen *f) {
    ring_close(&f->ring);
    f->b->close(f->b);
}

/* Weights as drawn, moments and statistics zero: where a run begins. */
static void start_over(Frozen *f) {
    const Program *p = &f->ring.p;
    for (Tid t = 1; t < p->n_t; t++)
        if (!p->t[t].base && p->t[t].offset >= 0 && (p->t[t].role == ROLE_MOMENT || p->t[t].role == ROLE_STATISTIC))
            memset(exec_address(&f->ring.x, t), 0, (size_t)p->t[t].bytes);
    exec_play(&f->ring.x, f->job.init);
}

static int by_id(const void *a, const void *b) {
    const int32_t *x = a, *y = b;
    return x[0] != y[0] ? x[0] - y[0] : x[1] - y[1];
}

static void put_batch(Frozen *f, int micro) {
    const Job *j = &f->job;
    int32_t ids[TOKENS], labels[TOKENS], positions[TOKENS], docs[TOKENS], order[TOKENS], pair[TOKENS][2];
    float weight[TOKENS];
    for (int i = 0; i < TOKENS; i++) {
        ids[i] = (int32_t)(rng_u32(5, (uint64_t)(micro * TOKENS + i)) % 60);
        labels[i] = (int32_t)(rng_u32(6, (uint64_t)(micro * TOKENS + i)) % 60);
        positions[i] = i % SEQ;
        docs[i] = 0;
        weight[i] = i % 3 ? 1 : 0;
        pair[i][0] = ids[i], pair[i][1] = i;
    }
    qsort(pair, TOKENS, sizeof *pair, by_id);
    for (int i = 0; i < TOKENS; i++) order[i] = pair[i][1];
    exec_put(&f->ring.x, j->in.ids, ids, 0, sizeof ids);
    exec_put(&f->ring.x, j->in.positions, positions, 0, sizeof positions);
    exec_put(&f->ring.x, j->in.doc_begin, docs, 0, sizeof docs);
    if (j->in.id_order) exec_put(&f->ring.x, j->in.id_order, order, 0, sizeof order);
    exec_put(&f->ring.x, j->labels, labels, 0, sizeof labels);
    exec_put(&f->ring.x, j->weight, weight, 0, sizeof weight);
}

static void put_float(Frozen *f, Tid t, float v) {
    exec_put(&f->ring.x, t, &v, 0, 4);
}

static void put_dials(Frozen *f, int micro, Dial other) { /* one of them with another value */
    const Job *j = &f->job;
    put_float(f, f->ring.p.beta, micro ? other == DIAL_BETA ? 0.5f : 1 : 0);
    int64_t clock[CLOCK_WORDS] = {other == DIAL_CLOCK ? 99 : 11, micro * TOKENS, micro, other == DIAL_CLOCK ? 8 : 0};
    exec_put(&f->ring.x, f->ring.p.clock, clock, 0, sizeof clock);
    put_float(f, j->divisor, other == DIAL_DIVISOR ? 17 : 64);
    float dials[DIAL_WORDS] = {[DIAL_LR] = other == DIAL_RATE ? 3e-3f : 1e-2f,
                               [DIAL_CORRECT1] = other == DIAL_CORRECTION ? 2 : 10, [DIAL_CORRECT2] = 100};
    exec_put(&f->ring.x, j->dials, dials, 0, sizeof dials);
    put_float(f, j->max_norm, other == DIAL_CLIP ? 1e-3f : 1e6f);
}

static void play(Frozen *f, int phase, const Args *captured) {
    const Phase *ph = &f->ring.p.phase[phase];
    if (!captured) exec_play(&f->ring.x, phase);
    for (int i = ph->begin; i < ph->end && captured; i++)
        f->b->kernels[captured[i].step->op](f->b, captured[i].step->queue, &captured[i]);
}

/* One update from the start; gives a hash of the weights, adapters and moments. captured NULL: through the executor. */
static uint64_t update(Frozen *f, Dial other, const Args *captured) {
    const Program *p = &f->ring.p;
    start_over(f);
    for (int micro = 0; micro < MICROS; micro++) {
        if (!micro) exec_poison(&f->ring.x, f->job.micro);
        put_batch(f, micro);
        put_dials(f, micro, other);
        play(f, f->job.micro, captured);
    }
    play(f, f->job.update, captured);
    uint64_t h = 1;
    for (Tid t = 1; t < p->n_t; t++) {
        bool counts = p->t[t].role == ROLE_WEIGHT || p->t[t].role == ROLE_ADAPTER || p->t[t].role == ROLE_MOMENT;
        if (!counts || p->t[t].base || p->t[t].offset < 0) continue;
        const unsigned char *bytes = exec_address(&f->ring.x, t);
        for (int64_t i = 0; i < p->t[t].bytes; i++) h = (h ^ bytes[i]) * 0x100000001b3ull;
    }
    return h;
}

TEST(captured_steps_replay_with_other_dials) { /* P7 */
    for (int lora = 0; lora < 2; lora++) {
        Frozen f;
        open_job(&f, lora);
        int64_t n = f.ring.p.n_s;
        Args *captured = memcpy(MEM_NEW(Args, n), f.ring.x.args, (size_t)n * sizeof(Args));
        Step *steps = memcpy(MEM_NEW(Step, n), f.ring.p.s, (size_t)n * sizeof(Step));
        uint64_t first = update(&f, DIAL_NONE, NULL);
        for (int other = DIAL_NONE; other < DIALS; other++) {
            Frozen fresh;
            open_job(&fresh, lora);
            uint64_t want = update(&fresh, (Dial)other, NULL), have = update(&f, (Dial)other, captured);
            close_job(&fresh);
            if (!EXPECT(want == have)) test_note("    %s, dial %d", lora ? "lora" : "full", other);
            if (!EXPECT((want == first) == (other == DIAL_NONE)))
                test_note("    %s: dial %d does nothing", lora ? "lora" : "full", other);
        }
        EXPECT(!memcmp(captured, f.ring.x.args, (size_t)n * sizeof(Args))); /* and playing changed nothing of it */
        EXPECT(!memcmp(steps, f.ring.p.s, (size_t)n * sizeof(Step)));
        mem_free(captured);
        mem_free(steps);
        close_job(&f);
    }
}
