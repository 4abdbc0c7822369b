/* test_shared.c - answers that share a row and the prompt in front of them: how they lie, and that losses,
 * distances and gradients are those of answers with rows of their own, and those of an independent decoder. */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "grpo/layout.h"
#include "grpo/rollout.h"
#include "tests/grpo/golden.h"
#include "tests/test.h"

enum { VOCAB = 23, MOST = 64 };

/* ---- how answers lie ---- */

typedef struct Laid {
    Rollout r;
    RolloutRows l;
    RolloutBatch b;
    Arena a;
    int64_t member[MOST], n, answers; /* of a row */
    int64_t seq;
} Laid;

static int64_t below(int key, int64_t i, int64_t n) {
    return (int64_t)(rng_u32((uint64_t)key, (uint64_t)i) % (uint64_t)n);
}

/* Whole groups, in an order of their own; some answers failed. */
static void draw_rollout(Laid *d, int key, int64_t groups, int64_t group, int64_t answers, int64_t prompt,
                         int64_t answer) {
    *d = (Laid){.n = groups * group, .answers = answers, .seq = prompt - 1 + answers * answer};
    arena_init(&d->a, "test");
    rollout_init(&d->r, d->n, prompt + answer, answer);
    for (int64_t i = 0; i < d->n; i++) {
        Completion *c = &d->r.c[i];
        int64_t g = i / group;
        c->n_prompt = 1 + below(key, 1000 + g, prompt);
        c->n = c->n_prompt + 1 + (below(key, 3, 3) ? below(key, 2000 + i, answer) : answer - 1);
        c->advantage = (double)(i % 7 - 3) / 4;
        c->failed = below(key, 3000 + i, 12) == 0;
        if (c->failed) c->n = c->n_prompt;
        for (int64_t t = 0; t < c->n; t++) {
            int64_t at = t < c->n_prompt ? 10000 + 100 * g + t : 50000 + 100 * i + t;
            c->ids[t] = (int32_t)below(key, at, VOCAB);
        }
        for (int64_t t = 0; t < completion_tokens(c); t++)
            c->sampled[t] = c->ref[t] = c->old[t] = -(float)(100 * i + t);
    }
    rng_permute((uint64_t)key, d->member, d->n);
    rollout_rows_init(&d->l, &d->a, d->n, true);
    rollout_rows_pack(&d->l, &d->r, d->member, d->n, d->seq);
    rollout_batch_init(&d->b, &d->a, MAX2(d->l.rows, 1), d->seq, true);
    rollout_batch_fill(&d->b, &d->r, &d->l, 0, NULL);
}

static void free_rollout(Laid *d) {
    rollout_free(&d->r), arena_free(&d->a);
}

/* The tokens that place `t` of a row sees, in their order; gives how many. */
static int64_t seen(const RolloutBatch *b, int64_t row, int64_t t, int32_t *ids) {
    int64_t at = row * b->b.seq, n = 0;
    for (int64_t s = 0; s <= t; s++) {
        bool own = s >= b->b.doc_begin[at + t],
             ahead = s >= b->prefix[2 * (at + t)] && s < b->prefix[2 * (at + t) + 1];
        EXPECT(!(own && ahead));
        if (own || ahead) ids[n++] = b->b.ids[at + s];
    }
    return n;
}

static bool lies_well(const Laid *d, int64_t row, int64_t i) {
    const Completion *c = &d->r.c[d->l.member[i]];
    int32_t ids[512];
    bool ok = true;
    for (int64_t k = 0; k < completion_tokens(c); k++) {
        int64_t t = d->l.from[i] + k, at = row * d->seq + t, n = seen(&d->b, row, t, ids), want = c->n_prompt + k;
        ok &= n == want && !memcmp(ids, c->ids, (size_t)n * 4) && d->b.b.positions[at] == want - 1;
        ok &= d->b.b.labels[at] == c->ids[want] && d->b.b.weight[at] == 1 &&
              d->b.advantage[at] == (float)c->advantage;
        ok &= d->b.sampled[at] == c->sampled[k] && d->b.scored[at] == 1;
    }
    for (int64_t t = 0; t < c->n_prompt - 1; t++) { /* the prompt sees itself, and is scored nowhere */
        int64_t at = row * d->seq + d->l.prompt[i] + t;
        ok &= seen(&d->b, row, d->l.prompt[i] + t, ids) == t + 1 && d->b.b.ids[at] == c->ids[t];
        ok &= d->b.b.positions[at] == t && d->b.b.labels[at] == -1 && !d->b.b.weight[at];
    }
    return ok;
}

TEST(answers_see_their_prompt_and_themselves_wherever_they_lie) {
    static const int64_t shapes[][5] = {/* groups, group, answers of a row, prompt, answer */
                                        {4, 4, 4, 9, 6},  {4, 4, 2, 9, 6},  {5, 6, 3, 20, 3}, {3, 8, 8, 2, 12},
                                        {8, 2, 2, 30, 1}, {2, 12, 4, 1, 7}, {6, 6, 1, 8, 8},  {1, 8, 8, 40, 10}};
    for (int key = 0; key < 40 * COUNT_OF(shapes); key++) {
        const int64_t *s = shapes[key % COUNT_OF(shapes)];
        Laid d;
        draw_rollout(&d, key + 1, s[0], s[1], s[2], s[3], s[4]);
        int64_t kept = 0, tokens = 0, scored = 0;
        for (int64_t i = 0; i < d.n; i++)
            if (!d.r.c[i].failed) kept++, scored += completion_tokens(&d.r.c[i]);
        bool ok = d.l.rows <= d.n / s[2] && d.l.first[d.l.rows] == kept && d.b.b.scored == scored;
        for (int64_t row = 0; row < d.l.rows; row++)
            for (int64_t i = d.l.first[row]; i < d.l.first[row + 1]; i++) {
                int64_t group = d.l.member[i] / s[1];
                ok &= lies_well(&d, row, i) && (i == 0 || d.l.member[i - 1] < d.l.member[i]);
                if (i == d.l.first[row] || d.l.member[i - 1] / s[1] != group)
                    tokens += d.r.c[d.l.member[i]].n_prompt - 1;
            }
        ok &= d.b.b.tokens == tokens + scored; /* a prompt stands once a row */
        if (!EXPECT(ok)) test_note("    case %d: %lld rows", key, (long long)d.l.rows);
        if (d.l.rows) rollout_take(&d.r, &d.b, &d.l, 0, d.b.sampled, ROLLOUT_REF);
        for (int64_t i = 0; i < d.n; i++)
            EXPECT(!memcmp(d.r.c[i].ref, d.r.c[i].sampled, (size_t)completion_tokens(&d.r.c[i]) * 4));
        free_rollout(&d);
    }
}

TEST(a_group_that_is_cut_repeats_its_prompt_once_a_row) {
    Laid d;
    draw_rollout(&d, 3, 1, 8, 2, 10, 4);
    for (int64_t i = 0; i < d.n; i++) d.r.c[i].failed = false, d.r.c[i].n = d.r.c[i].n_prompt + 4;
    rollout_rows_pack(&d.l, &d.r, d.member, d.n, d.seq = d.r.c[0].n_prompt - 1 + 2 * 4);
    EXPECT(d.l.rows == 4);
    for (int64_t i = 0; i < d.n; i++)
        EXPECT(d.l.prompt[i] == 0 && d.l.from[i] == d.r.c[0].n_prompt - 1 + i % 2 * 4);
    free_rollout(&d);
}

/* Any answers of any groups: never more rows than the plan was made for. */
TEST(parts_of_groups_share_what_prompts_they_have_in_common) {
    static const int64_t shapes[][5] = {/* groups, group, answers of a row, prompt, answer */
                                        {8, 4, 4, 9, 6}, {6, 6, 3, 20, 3}, {6, 8, 8, 2, 12},
                                        {8, 4, 2, 30, 1}, {5, 8, 8, 12, 12}, {4, 12, 4, 1, 7}};
    for (int key = 0; key < 40 * COUNT_OF(shapes); key++) {
        const int64_t *s = shapes[key % COUNT_OF(shapes)];
        GrpoSpec g = {.group = s[1], .prompt_tokens = s[3], .answer_tokens = s[4]};
        Laid d;
        Layouts l = {0};
        draw_rollout(&d, key + 1, s[0], s[1], s[2], s[3], s[4]);
        int64_t some = 1 + below(key, 4000, d.n - 1), most = 0;
        layouts_make(&l, &g, some, d.n);
        for (int64_t i = 0; i < l.n; i++)
            if (l.answers[i] == s[2]) most = l.rows[i].most;
        rollout_rows_pack(&d.l, &d.r, d.member, some, d.seq);
        rollout_batch_init(&d.b, &d.a, MAX2(d.l.rows, 1), d.seq, true);
        rollout_batch_fill(&d.b, &d.r, &d.l, 0, NULL);
        bool ok = d.l.rows <= most && most >= (some + s[2] - 1) / s[2];
        for (int64_t row = 0; row < d.l.rows; row++)
            for (int64_t i = d.l.first[row]; i < d.l.first[row + 1]; i++) ok &= lies_well(&d, row, i);
        if (!EXPECT(ok)) test_note("    case %d: %lld rows of %lld", key, (long long)d.l.rows, (long long)most);
        layouts_free(&l);
        free_rollout(&d);
    }
}

TEST(a_row_holds_the_most_answers_that_divide_group_and_micro_batch) {
    GrpoSpec g = {
        .share_prompts = true, .group = 8, .prompt_tokens = 100, .answer_tokens = 20, .slots = 2, .chunk = 8};
    static const int64_t want[][2] = {{64, 8}, {8, 8}, {12, 4}, {6, 2}, {4, 4}, {3, 1}, {1, 1}};
    Layouts l = {0};
    layouts_make(&l, &g, 48, 48);
    GrpoTask task = grpo_task(&g);
    task.layouts = &l;
    for (int i = 0; i < COUNT_OF(want); i++) {
        JobSpec s = {.task = &task.task, .micro_batch = 1, .accum = 48};
        job_set_micro(&s, want[i][0], MACHINE_CPU);
        int64_t n = want[i][1];
        EXPECT(s.row_samples == n && s.micro_batch == want[i][0] / n && job_micro_samples(&s) == want[i][0]);
        EXPECT(s.seq == (n > 1 ? 99 + n * 20 : 120) && s.shared_tokens == (n > 1 ? 99 : 0));
        EXPECT(s.rows->most == 48 / n && s.rows->expected <= s.rows->most && job_samples(&s) == 48);
        EXPECT(s.rows->mean_tokens <= (double)(s.rows->most * s.seq));
        job_set_micro(&s, want[i][0], MACHINE_CUDA);
        EXPECT(s.row_samples == n && s.micro_batch == want[i][0] / n);
    }
    EXPECT_NEAR(l.rows[l.n - 1].mean_tokens, 6 * 99 + 48 * 20, 1e-9); /* six groups, a row each */
    layouts_free(&l);
}

/* ---- whole updates ---- */

typedef struct Way {
    int64_t micro; /* answers */
    bool shares, lora;
    RecomputeLevel recompute;
} Way;

typedef struct Played {
    Backend *backend;
    Job job;
    Ring ring;
    GrpoTask task;
    double loss, facts[POLICY_FACTS], entropy;
    int64_t tokens;
} Played;

static ModelConfig tiny(void) {
    return (ModelConfig){.layers = 2,
                         .hidden = 16,
                         .heads = 2,
                         .kv_heads = 1,
                         .head_dim = 8,
                         .ffn = 16,
                         .vocab = VOCAB,
                         .rms_eps = 1e-5,
                         .rope_theta = 10000,
                         .init_std = 0.2,
                         .tied = true,
                         .dtype = FMT_F32};
}

static JobSpec job_spec(Played *u, const GrpoSpec *g, Way way) {
    JobSpec s = {.m = {.config = tiny(), .activations = FMT_F32, .random_init = true, .seed = 5},
                 .train = true,
                 .lora = way.lora,
                 .weights = FMT_F32,
                 .gradients = FMT_F32,
                 .optimizer = OPTIMIZER_SGD,
                 .update = {.lr_mult = 1},
                 .no_sweep = true};
    if (way.lora) s.m.adapter = (LoraSpec){.rank = 4, .alpha = 8, .targets = 127, .format = FMT_F32};
    GrpoSpec spec = *g;
    spec.reference_kind = way.lora ? REFERENCE_BASE : REFERENCE_MODEL;
    spec.reference = (ModelSpec){.config = s.m.config, .activations = FMT_F32};
    spec.share_prompts = way.shares;
    spec.needs_old = true;
    u->task = grpo_task(&spec);
    s.task = &u->task.task;
    s.micro_batch = way.micro;
    s.accum = 8;
    job_set_micro(&s, way.micro, MACHINE_CPU);
    s.accum = 8; /* as many plays as it takes */
    for (int l = 0; l < s.m.config.layers; l++) s.recompute[l] = way.recompute;
    return s;
}

/* What tools/make_grpo_golden.py draws: binary fractions, about 1 for norms. */
static float drawn_weight(const Program *p, Tid t, int64_t i) {
    const Tensor *w = prog_t(p, t);
    int64_t name = 0;
    for (const char *c = w->name; *c; c++) name += *c;
    double x = (double)((i * 37 + name * 101 + i * i % 89 * 13) % 127 - 63) / 128;
    return (float)(w->rank == 1 ? 1 + x / 4 : x);
}

static void put_weights(Exec *x) {
    const Program *p = x->p;
    for (Tid t = 1; t < p->n_t; t++) {
        const Tensor *w = prog_t(p, t);
        if ((w->role != ROLE_WEIGHT && w->role != ROLE_ADAPTER) || w->base || w->model) continue;
        int64_t n = prog_elements(p, t);
        float *values = MEM_NEW(float, n);
        for (int64_t i = 0; i < n; i++) values[i] = drawn_weight(p, t, i);
        exec_put(x, t, values, 0, 4 * n);
        mem_free(values);
    }
}

static void put(Played *u, Tid t, const void *values, int64_t words) {
    if (t) exec_put(&u->ring.x, t, values, 0, 4 * words);
}

static void put_batch(Played *u, const RolloutBatch *b) {
    const Job *j = &u->job;
    const GrpoRing *g = grpo_ring(j);
    int64_t n = b->b.rows * b->b.seq;
    const struct {
        Tid to;
        const void *from;
    } rows[] = {{j->in.ids, b->b.ids},
                {j->in.positions, b->b.positions},
                {j->in.doc_begin, b->b.doc_begin},
                {j->in.id_order, b->b.id_order},
                {j->labels, b->b.labels},
                {j->weight, b->b.weight},
                {g->sampled, b->sampled},
                {g->old, b->old},
                {g->ref, b->ref},
                {g->advantage, b->advantage},
                {g->scored, b->scored}};
    for (int i = 0; i < COUNT_OF(rows); i++) put(u, rows[i].to, rows[i].from, n);
    put(u, g->prefix, b->prefix, 2 * n);
}

/* Plays an update over the rollout; log-probabilities of the policy itself go to its `sampled`. */
static void play(Played *u, Rollout *r, const GrpoSpec *g, const double *weight, Way way) {
    Err e = {0};
    Machine m = {0};
    Arena a;
    RolloutRows l;
    RolloutBatch b;
    int64_t member[MOST], clock[CLOCK_WORDS] = {0};
    float one = 1;
    *u = (Played){0};
    EXPECT_OK(backend_open(&u->backend, "cpu", (BackendOptions){.threads = 2}, &e));
    u->backend->describe(u->backend, &m);
    JobSpec s = job_spec(u, g, way);
    EXPECT_OK(job_plan(&u->job, &u->ring, &s, &m, NULL, &e));
    EXPECT_OK(plan_verify(&u->ring.p, &e) && ring_open(&u->ring, u->backend, &e));
    exec_play(&u->ring.x, u->job.init);
    put_weights(&u->ring.x);
    arena_init(&a, "test");
    rollout_rows_init(&l, &a, r->n, s.row_samples > 1);
    rollout_batch_init(&b, &a, s.micro_batch, s.seq, s.row_samples > 1);
    for (int64_t i = 0; i < r->n; i++) {
        Completion *c = &r->c[member[i] = i];
        memcpy(c->sampled, c->old, (size_t)completion_tokens(c) * 4);
    }
    rollout_rows_pack(&l, r, member, r->n, s.seq);
    float *logp = ARENA_NEW(&a, float, s.micro_batch *s.seq);
    for (int trains = 0; trains < 2; trains++) /* all passes of a phase, then all of the next: the ring's order */
        for (int64_t first = 0; first < l.rows; first += s.micro_batch) {
            int phase = trains ? u->job.micro : grpo_ring(&u->job)->phase_old;
            float beta = first > 0;
            rollout_batch_fill(&b, r, &l, first, weight);
            if (!first) exec_poison(&u->ring.x, phase);
            put_batch(u, &b);
            put(u, u->job.divisor, &one, 1);
            put(u, u->ring.p.beta, &beta, 1);
            exec_put(&u->ring.x, u->ring.p.clock, clock, 0, sizeof clock);
            exec_play(&u->ring.x, phase);
            EXPECT_OK(exec_sync(&u->ring.x, &e));
            if (trains) u->tokens += b.b.tokens;
            if (trains) continue;
            exec_get(&u->ring.x, grpo_ring(&u->job)->old_logp, logp, 0, 4 * s.micro_batch * s.seq);
            rollout_take(r, &b, &l, first, logp, ROLLOUT_SAMPLED);
        }
    exec_get(&u->ring.x, u->job.loss, &u->loss, 0, 8);
    exec_get(&u->ring.x, grpo_ring(&u->job)->facts, u->facts, 0, sizeof u->facts);
    exec_get(&u->ring.x, grpo_ring(&u->job)->entropy, &u->entropy, 0, 8);
    arena_free(&a);
}

static void close_update(Played *u) {
    ring_close(&u->ring);
    u->backend->close(u->backend);
}

static float *gradient(const Played *u, Tid t) {
    int64_t n = prog_elements(&u->ring.p, t);
    float *g = MEM_NEW(float, n);
    exec_get((Exec *)&u->ring.x, t, g, 0, 4 * n);
    return g;
}

/* Every gradient, relative to its tensor's largest number; gives the most. */
static double apart(const Played *a, const Played *b) {
    const Program *p = &a->ring.p;
    double most = 0;
    int tensors = 0;
    for (Tid t = 1; t < p->n_t; t++) {
        if (p->t[t].role != ROLE_GRADIENT || p->t[t].base) continue;
        float *x = gradient(a, t), *y = gradient(b, prog_find(&b->ring.p, p->t[t].name));
        double largest = 0, off = 0;
        for (int64_t i = 0; i < prog_elements(p, t); i++)
            largest = fmax(largest, fabs((double)x[i])), off = fmax(off, fabs((double)x[i] - (double)y[i]));
        if (!EXPECT(largest > 0)) test_note("    %s", p->t[t].name);
        most = fmax(most, off / largest);
        tensors++;
        mem_free(x), mem_free(y);
    }
    EXPECT(tensors > 10);
    return most;
}

static GrpoSpec spec_of(int64_t group, int64_t prompt, int64_t answer, float kl) {
    return (GrpoSpec){.group = group,
                      .prompt_tokens = prompt,
                      .answer_tokens = answer,
                      .slots = 2,
                      .chunk = 8,
                      .loss = {0.2f, 0.25f, kl}};
}

static void draw_numbers(Laid *d, double *weight) {
    for (int64_t i = 0; i < d->n; i++) {
        weight[i] = (double)(1 + i % 5) / 16;
        for (int64_t t = 0; t < completion_tokens(&d->r.c[i]); t++)
            d->r.c[i].old[t] = -2.5f - (float)(t % 3) / 2, d->r.c[i].ref[t] = -3.0f + (float)(t % 4) / 4;
    }
}

/* The bound: fp32 sums of some hundred terms in another order. */
#define ROUNDING 1e-5

TEST(a_shared_update_has_the_loss_and_gradients_of_one_that_repeats_prompts) {
    static const int64_t micros[] = {24, 6, 3, 12}; /* of groups of 6: whole groups a row, half of one, two rows */
    GrpoSpec g = spec_of(6, 11, 7, 0.05f);
    for (int lora = 0; lora < 2; lora++) {
        Laid d;
        double weight[MOST];
        draw_rollout(&d, 77, 4, 6, 6, 11, 7);
        draw_numbers(&d, weight);
        Played *alone = MEM_NEW(Played, 1), *shared = MEM_NEW(Played, 1);
        play(alone, &d.r, &g, weight, (Way){.micro = 4, .lora = lora});
        for (int k = 0; k < COUNT_OF(micros); k++) {
            play(shared, &d.r, &g, weight, (Way){.micro = micros[k], .shares = true, .lora = lora});
            EXPECT(shared->job.spec.row_samples == (micros[k] == 3 ? 3 : 6) &&
                   shared->tokens < alone->tokens * 3 / 4);
            EXPECT_NEAR(shared->loss, alone->loss, ROUNDING * fabs(alone->loss));
            EXPECT_NEAR(shared->entropy, alone->entropy, ROUNDING * alone->entropy);
            for (int f = 0; f < POLICY_LEAST_LOW; f++)
                EXPECT_NEAR(shared->facts[f], alone->facts[f], ROUNDING * fabs(alone->facts[f]));
            double off = apart(alone, shared);
            if (!EXPECT(off <= ROUNDING))
                test_note("    micro-batch %lld%s: %g", (long long)micros[k], lora ? ", lora" : "", off);
            close_update(shared);
        }
        close_update(alone);
        mem_free(alone), mem_free(shared);
        free_rollout(&d);
    }
}

TEST(a_shared_update_keeps_its_bits_with_recomputation) {
    GrpoSpec g = spec_of(4, 9, 6, 0.05f);
    Laid d;
    double weight[MOST];
    draw_rollout(&d, 5, 4, 4, 4, 9, 6);
    draw_numbers(&d, weight);
    Played *plain = MEM_NEW(Played, 1), *again = MEM_NEW(Played, 1);
    play(plain, &d.r, &g, weight, (Way){.micro = 8, .shares = true});
    for (int level = RECOMPUTE_NORM; level < RECOMPUTE_LEVELS; level++) {
        play(again, &d.r, &g, weight, (Way){.micro = 8, .shares = true, .recompute = (RecomputeLevel)level});
        EXPECT(again->loss == plain->loss && apart(plain, again) == 0);
        close_update(again);
    }
    close_update(plain);
    mem_free(plain), mem_free(again);
    free_rollout(&d);
}

/* ---- beside an independent decoder ---- */

static void read_completion(Completion *c, double *weight, const json_t *from) {
    int64_t ids[MOST];
    double numbers[MOST];
    c->n = golden_wholes(ids, json_object_get(from, "ids"));
    c->n_prompt = golden_whole(from, "prompt");
    c->advantage = golden_number(json_object_get(from, "advantage"));
    *weight = golden_number(json_object_get(from, "weight"));
    for (int64_t t = 0; t < c->n; t++) c->ids[t] = (int32_t)ids[t];
    const struct {
        const char *key;
        float *to;
    } lists[] = {{"old", c->old}, {"ref", c->ref}};
    for (int i = 0; i < COUNT_OF(lists); i++) {
        EXPECT(golden_numbers(numbers, json_object_get(from, lists[i].key)) == completion_tokens(c));
        for (int64_t t = 0; t < completion_tokens(c); t++) lists[i].to[t] = (float)numbers[t];
    }
}

static void expect_golden(const Played *u, const Rollout *r, const json_t *row) {
    const json_t *list = json_object_get(row, "completions"), *value;
    const char *name;
    EXPECT_NEAR(u->loss, golden_number(json_object_get(row, "loss")), 2e-5);
    EXPECT_NEAR(u->facts[POLICY_KL], golden_number(json_object_get(row, "kl")), 1e-4);
    for (int64_t i = 0; i < r->n; i++) {
        double logp[MOST];
        int64_t n = golden_numbers(logp, json_object_get(json_array_get(list, (size_t)i), "logp"));
        for (int64_t t = 0; t < n; t++) EXPECT_NEAR((double)r->c[i].sampled[t], logp[t], 2e-5);
    }
    json_object_foreach(json_object_get(row, "gradients"), name, value) {
        char of[64];
        double largest = 0, off = 0;
        snprintf(of, sizeof of, "%s.grad", name);
        Tid t = prog_find(&u->ring.p, of);
        int64_t n = t ? prog_elements(&u->ring.p, t) : 0;
        if (!EXPECT(t && (int64_t)json_array_size(value) == n)) continue;
        float *got = gradient(u, t);
        for (int64_t i = 0; i < n; i++) {
            double want = golden_number(json_array_get(value, (size_t)i));
            largest = fmax(largest, fabs(want)), off = fmax(off, fabs(want - (double)got[i]));
        }
        if (!EXPECT(largest > 0 && off <= 2e-5 * largest)) test_note("    %s: %g of %g", name, off, largest);
        mem_free(got);
    }
}

static void one_golden(const json_t *row) {
    const json_t *list = json_object_get(row, "completions");
    int64_t n = (int64_t)json_array_size(list), prompt = golden_whole(row, "prompt_tokens"),
            answer = golden_whole(row, "answer_tokens"), group = golden_whole(row, "group");
    GrpoSpec g = spec_of(group, prompt, answer, (float)golden_number(json_object_get(row, "beta")));
    const Way ways[] = {{.micro = group, .shares = true},
                        {.micro = group / 2, .shares = true},
                        {.micro = 2 * group, .shares = true, .recompute = RECOMPUTE_BLOCK},
                        {.micro = 3}};
    double weight[MOST];
    Rollout r;
    rollout_init(&r, n, prompt + answer, answer);
    for (int64_t i = 0; i < n; i++) read_completion(&r.c[i], &weight[i], json_array_get(list, (size_t)i));
    for (int k = 0; k < COUNT_OF(ways); k++) {
        Played *u = MEM_NEW(Played, 1);
        play(u, &r, &g, weight, ways[k]);
        expect_golden(u, &r, row);
        close_update(u);
        mem_free(u);
    }
    rollout_free(&r);
}

TEST(a_shared_update_is_that_of_an_independent_decoder) {
    EXPECT(golden_each("model", one_golden) == 2);
}
