/* test_update.c - rows of completions, and the gradient of a policy's update against that of plain training. */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "grpo/ring.h"
#include "grpo/rollout.h"
#include "tests/test.h"
#include "weights/weights.h"

enum { VOCAB = 61, CONTEXT = 24, ANSWER = 16, COMPLETIONS = 7, ROWS = 3 };

static void make_rollout(Rollout *r) {
    rollout_init(r, COMPLETIONS, CONTEXT, ANSWER);
    for (int64_t i = 0; i < r->n; i++) {
        Completion *c = &r->c[i];
        c->n_prompt = 2 + i % 4;
        c->n = c->n_prompt + 1 + (int64_t)(rng_u32(7, (uint64_t)i) % (ANSWER - 6));
        c->advantage = (double)(i - 3) / 4;
        c->failed = i == 5;
        for (int64_t t = 0; t < c->n; t++) c->ids[t] = (int32_t)(rng_u32(8, (uint64_t)(i * 100 + t)) % VOCAB);
        for (int64_t t = 0; t < completion_tokens(c); t++) c->sampled[t] = c->ref[t] = c->old[t] = -1.5f;
    }
}

static void pack_all(RolloutRows *l, Arena *a, const Rollout *r, int64_t seq) {
    int64_t member[COMPLETIONS];
    for (int64_t i = 0; i < r->n; i++) member[i] = i;
    rollout_rows_init(l, a, r->n, false);
    rollout_rows_pack(l, r, member, r->n, seq);
}

TEST(completions_lie_side_by_side_and_only_answers_are_scored) {
    Rollout r;
    RolloutRows l;
    RolloutBatch b;
    Arena a;
    arena_init(&a, "test");
    make_rollout(&r);
    pack_all(&l, &a, &r, CONTEXT);
    rollout_batch_init(&b, &a, l.rows, CONTEXT, false);
    rollout_batch_fill(&b, &r, &l, 0, NULL);
    int64_t scored = 0, tokens = 0;
    for (int64_t i = 0; i < r.n; i++)
        if (!r.c[i].failed) scored += completion_tokens(&r.c[i]), tokens += r.c[i].n;
    EXPECT(l.rows < COMPLETIONS - 1 && l.first[l.rows] == COMPLETIONS - 1);
    EXPECT(b.b.scored == scored && b.b.tokens == tokens);
    for (int64_t row = 0; row < l.rows; row++) {
        int64_t at = row * CONTEXT, used = 0;
        for (int64_t i = l.first[row]; i < l.first[row + 1]; i++) {
            const Completion *c = &r.c[l.member[i]];
            for (int64_t t = 0; t < c->n; t++, at++, used++) {
                bool answers = t + 1 >= c->n_prompt && t + 1 < c->n;
                EXPECT(b.b.ids[at] == c->ids[t] && b.b.positions[at] == t && b.b.doc_begin[at] == used - t);
                EXPECT(b.b.labels[at] == (answers ? c->ids[t + 1] : -1) && (b.b.weight[at] == 1) == answers);
                EXPECT(b.advantage[at] == (answers ? (float)c->advantage : 0));
            }
        }
        EXPECT(used <= CONTEXT);
    }
    for (int64_t i = 0; i < l.rows * CONTEXT; i++) b.sampled[i] = (float)i; /* any numbers, read back by completion */
    rollout_take(&r, &b, &l, 0, b.sampled, ROLLOUT_REF);
    const Completion *c = &r.c[l.member[0]];
    EXPECT(c->ref[0] == (float)(c->n_prompt - 1) && c->ref[1] == (float)c->n_prompt);
    json_t *kept = rollout_json(&r);
    Rollout again;
    Err e = {0};
    rollout_init(&again, COMPLETIONS, CONTEXT, ANSWER);
    EXPECT_OK(rollout_from_json(&again, kept, &e));
    for (int64_t i = 0; i < r.n; i++)
        EXPECT(again.c[i].n == r.c[i].n && !memcmp(again.c[i].ids, r.c[i].ids, (size_t)r.c[i].n * 4) &&
               !memcmp(again.c[i].ref, r.c[i].ref, (size_t)completion_tokens(&r.c[i]) * 4));
    json_decref(kept);
    rollout_free(&again), rollout_free(&r), arena_free(&a);
}

/* ---- gradients ---- */

static JobSpec job_spec(const Task *task) {
    return (JobSpec){.m = {.config = {.layers = 2,
                                      .hidden = 32,
                                      .heads = 2,
                                      .kv_heads = 1,
                                      .head_dim = 16,
                                      .ffn = 48,
                                      .vocab = VOCAB,
                                      .rms_eps = 1e-5,
                                      .rope_theta = 10000,
                                      .init_std = 0.2,
                                      .tied = true,
                                      .dtype = FMT_F32},
                           .activations = FMT_F32,
                           .random_init = true,
                           .seed = 5},
                     .train = true,
                     .weights = FMT_F32,
                     .gradients = FMT_F32,
                     .optimizer = OPTIMIZER_SGD,
                     .update = {.lr_mult = 1},
                     .seq = CONTEXT,
                     .micro_batch = ROWS,
                     .accum = 2,
                     .task = task,
                     .no_sweep = true};
}

static void put_float(Exec *x, Tid t, float v) { exec_put(x, t, &v, 0, 4); }

/* The loss and all gradients of one micro-step; advantages of plain training stand in its weights. */
static double *gradients(int64_t *n, double *loss, const Task *task, const RolloutBatch *b, Backend *backend) {
    Job *j = MEM_NEW(Job, 1);
    Ring r;
    Machine m = {0};
    Err e = {0};
    backend->describe(backend, &m);
    JobSpec s = job_spec(task);
    int64_t rows = ROWS * CONTEXT, clock[CLOCK_WORDS] = {0};
    EXPECT_OK(job_plan(j, &r, &s, &m, NULL, &e) && ring_open(&r, backend, &e));
    exec_play(&r.x, j->init);
    exec_put(&r.x, j->in.ids, b->b.ids, 0, rows * 4);
    exec_put(&r.x, j->in.positions, b->b.positions, 0, rows * 4);
    exec_put(&r.x, j->in.doc_begin, b->b.doc_begin, 0, rows * 4);
    exec_put(&r.x, j->in.id_order, b->b.id_order, 0, rows * 4);
    exec_put(&r.x, j->labels, b->b.labels, 0, rows * 4);
    float *weight = MEM_NEW(float, rows);
    for (int64_t i = 0; i < rows; i++) weight[i] = task ? b->b.weight[i] : b->b.weight[i] * b->advantage[i];
    exec_put(&r.x, j->weight, weight, 0, rows * 4);
    put_float(&r.x, j->divisor, 3);
    put_float(&r.x, r.p.beta, 0);
    exec_put(&r.x, r.p.clock, clock, 0, sizeof clock);
    if (task) {
        const GrpoRing *g = grpo_ring(j);
        exec_put(&r.x, g->sampled, b->sampled, 0, rows * 4);
        exec_put(&r.x, g->advantage, b->advantage, 0, rows * 4);
    }
    exec_play(&r.x, j->micro);
    EXPECT_OK(exec_sync(&r.x, &e));
    exec_get(&r.x, j->loss, loss, 0, 8);
    double *all = NULL;
    int64_t capacity = 0;
    *n = 0;
    for (Tid t = 1; t < r.p.n_t; t++) {
        if (r.p.t[t].role != ROLE_GRADIENT || r.p.t[t].base) continue;
        int64_t count = prog_elements(&r.p, t);
        float *g = MEM_NEW(float, count);
        exec_get(&r.x, t, g, 0, count * 4);
        all = mem_grow(all, &capacity, *n + count, sizeof *all);
        for (int64_t i = 0; i < count; i++) all[(*n)++] = (double)g[i];
        mem_free(g);
    }
    mem_free(weight);
    ring_close(&r);
    mem_free(j);
    return all;
}

/* Without a reference and with one iteration, a policy's gradient is that of its log-probabilities, times
 * advantages. */
TEST(an_update_without_reference_is_the_plain_policy_gradient) {
    Rollout r;
    RolloutRows l;
    RolloutBatch b;
    Arena a;
    Backend *backend;
    Err e = {0};
    arena_init(&a, "test");
    make_rollout(&r);
    pack_all(&l, &a, &r, CONTEXT);
    rollout_batch_init(&b, &a, ROWS, CONTEXT, false);
    rollout_batch_fill(&b, &r, &l, 0, NULL);
    GrpoTask task = grpo_task(&(GrpoSpec){.group = 2, .prompt_tokens = CONTEXT - ANSWER, .answer_tokens = ANSWER,
                                          .slots = 2, .chunk = 8, .loss = {0.2f, 0.2f, 0}});
    EXPECT_OK(backend_open(&backend, "cpu", (BackendOptions){.threads = 1}, &e));
    int64_t n, m;
    double policy_loss, plain_loss, most = 0, largest = 0, sum = 0;
    double *policy = gradients(&n, &policy_loss, &task.task, &b, backend);
    double *plain = gradients(&m, &plain_loss, NULL, &b, backend);
    for (int64_t i = 0; i < MIN2(n, m); i++) {
        most = fmax(most, fabs(policy[i] - plain[i]));
        largest = fmax(largest, fabs(plain[i]));
    }
    for (int64_t i = 0; i < ROWS * CONTEXT; i++) sum += (double)b.b.weight[i] * (double)b.advantage[i];
    EXPECT(n == m && n > 10000 && largest > 1e-3);
    if (!EXPECT(most <= 1e-6 * largest)) test_note("    %g apart, the largest is %g", most, largest);
    EXPECT_NEAR(policy_loss, -sum / 3, 1e-6); /* ratios are 1 */
    EXPECT(isfinite(plain_loss));
    mem_free(policy), mem_free(plain);
    backend->close(backend);
    rollout_free(&r), arena_free(&a);
}
