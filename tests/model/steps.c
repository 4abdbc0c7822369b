/* steps.c - rows that are drawn by key, put and played. */
#include "tests/model/steps.h"

#include "base/rng.h"
#include "plan/plan.h"

JobSpec steps_spec(const ModelConfig *c, bool lora, uint32_t lora_targets) {
    JobSpec s = {.train = true,
                 .lora = lora,
                 .m = {.config = *c, .activations = FMT_F32, .random_init = true, .seed = 4},
                 .weights = FMT_F32,
                 .gradients = FMT_F32,
                 .update = {.beta1 = 0.9f, .beta2 = 0.99f, .eps = 1e-8f, .lr_mult = 1},
                 .seq = STEPS_SEQ,
                 .micro_batch = STEPS_ROWS,
                 .accum = 2,
                 .evaluate = true};
    if (lora) s.m.adapter = (LoraSpec){.rank = 4, .alpha = 8, .targets = lora_targets, .format = FMT_F32};
    return s;
}

static void put_batch(Job *j, int micro, int step, bool two) {
    enum { N = STEPS_TOKENS, FIRST = 7 };
    Exec *x = &j->ring->x;
    int32_t ids[N], labels[N], positions[N], docs[N], order[N];
    float weight[N], divisor = 2 * N, beta = micro > 0, norm = 1, dials[DIAL_WORDS] = {1e-2f, 10, 100};
    int64_t clock[CLOCK_WORDS] = {7 + step, micro * N, micro, step};
    int n = 0;
    for (int i = 0; i < N; i++) {
        ids[i] = (int32_t)(rng_u32(5, (uint64_t)(micro * N + i)) % STEPS_VOCAB);
        labels[i] = (ids[i] * 7 + 3) % STEPS_VOCAB;
        docs[i] = two && i % STEPS_SEQ >= FIRST ? FIRST : 0;
        positions[i] = i % STEPS_SEQ - docs[i];
        weight[i] = 1;
    }
    for (int id = 0; id < STEPS_VOCAB; id++)
        for (int i = 0; i < N; i++)
            if (ids[i] == id) order[n++] = i;
    exec_put(x, j->in.ids, ids, 0, sizeof ids);
    exec_put(x, j->in.positions, positions, 0, sizeof positions);
    exec_put(x, j->in.doc_begin, docs, 0, sizeof docs);
    if (j->in.id_order) exec_put(x, j->in.id_order, order, 0, sizeof order);
    exec_put(x, j->labels, labels, 0, sizeof labels);
    exec_put(x, j->weight, weight, 0, sizeof weight);
    exec_put(x, j->divisor, &divisor, 0, 4);
    exec_put(x, j->dials, dials, 0, sizeof dials);
    exec_put(x, j->max_norm, &norm, 0, 4);
    exec_put(x, j->ring->p.beta, &beta, 0, 4);
    exec_put(x, j->ring->p.clock, clock, 0, sizeof clock);
}

void steps_train(const JobSpec *s, bool docs, double *loss, double *index_loss) {
    Err e = {0};
    Machine m = {0};
    Backend *b = NULL;
    Job *j = MEM_NEW(Job, 1);
    Ring r;
    EXPECT_OK(backend_open(&b, "cpu", (BackendOptions){.threads = 2, .offload_dir = test_tmp()}, &e));
    b->describe(b, &m);
    EXPECT_OK(job_plan(j, &r, s, &m, NULL, &e) && plan_verify(&r.p, &e));
    EXPECT_OK(ring_open(&r, b, &e) && ring_settle(&r, &e));
    exec_play(&r.x, j->init);
    for (int step = 0; step < STEPS; step++) {
        bool warms_up = step < s->warmup_steps;
        for (int micro = 0; micro < 2; micro++) {
            put_batch(j, micro, step, docs);
            exec_play(&r.x, warms_up ? j->warmup : j->micro);
        }
        if (index_loss) exec_get(&r.x, warms_up ? j->warmup_index_loss : j->index_loss, &index_loss[step], 0, 8);
        exec_play(&r.x, warms_up && j->warmup_update >= 0 ? j->warmup_update : j->update);
        EXPECT_OK(exec_sync(&r.x, &e));
        exec_get(&r.x, j->loss, &loss[step], 0, 8);
    }
    ring_close(&r);
    b->close(b);
    mem_free(j);
}
