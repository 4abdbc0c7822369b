/* test_ring.c - several models on one ring: every phase computes, to the bit, what it computes in a program of its
 * own, although all of them share one arena; and the ring holds the rules whatever the models are kept as. */
#include "base/rng.h"
#include "exec/exec.h"
#include "grpo/ring.h"
#include "ir/cards.h"
#include "tests/test.h"

enum { PROMPT = 12, ANSWER = 8, ROW = PROMPT + ANSWER, GROUP = 2, ROWS = 2, TOKENS = ROWS * ROW, VOCAB = 60 };

static void tiny_model(ModelConfig *c, const char *layers) {
    Err e = {0};
    EXPECT(config_from_preset(c, "qwen2.5-0.5b"));
    const char *small[] = {
        layers,         "hidden_size=32", "num_attention_heads=4", "num_key_value_heads=2", "intermediate_size=48",
        "vocab_size=60"};
    EXPECT_OK(config_set(c, small, NULL, COUNT_OF(small), &e));
}

static JobSpec job_spec(bool lora) {
    JobSpec s = {.train = true,
                 .lora = lora,
                 .m.activations = FMT_F32,
                 .weights = FMT_F32,
                 .gradients = FMT_F32,
                 .update = {.beta1 = 0.9f, .beta2 = 0.99f, .eps = 1e-8f},
                 .seq = ROW,
                 .micro_batch = ROWS,
                 .accum = 2,
                 .m.random_init = true,
                 .m.seed = 3};
    tiny_model(&s.m.config, "num_hidden_layers=2");
    s.m.config.dtype = FMT_F32;
    if (lora) s.m.adapter = (LoraSpec){.rank = 4, .alpha = 8, .dropout = 0.2f, .targets = 127, .format = FMT_F32};
    s.recompute[0] = RECOMPUTE_BLOCK;
    return s;
}

static GrpoSpec grpo_spec(const JobSpec *s, const char *evaluator_layers) {
    GrpoSpec g = {.has_evaluator = true,
                  .reference_kind = s->lora ? REFERENCE_BASE : REFERENCE_MODEL,
                  .group = GROUP,
                  .prompt_tokens = PROMPT,
                  .answer_tokens = ANSWER,
                  .evaluator_tokens = 4,
                  .slots = 2,
                  .chunk = 16};
    g.reference = (ModelSpec){.config = s->m.config, .activations = FMT_F32};
    g.evaluator.activations = FMT_F32;
    tiny_model(&g.evaluator.config, evaluator_layers);
    g.evaluator.config.dtype = FMT_F32;
    return g;
}

/* ---- the plan ---- */

TEST(a_ring_of_three_models_holds_the_rules) {
    Machine m = machine_generic_cpu(2);
    Err e = {0};
    for (int k = 0; k < 24; k++) {
        JobSpec s = job_spec(k % 2);
        GrpoSpec g = grpo_spec(&s, "num_hidden_layers=3");
        bool comes = k >= 12, base_comes = comes && s.lora; /* by phase */
        g.evaluator_may_move = comes;
        g.policy_is_frozen = s.lora;
        s.task_saving = comes + base_comes;
        g.evaluator.offload.layers[OFFLOAD_WEIGHTS] = k / 2 % 3 == 1 ? 3 : k / 2 % 3 == 2 ? 2 : 0;
        if (k % 12 >= 6)
            g.evaluator.quantised = true, g.evaluator.stored = k % 2 ? FMT_NF4 : FMT_INT8,
            g.reference.offload.layers[OFFLOAD_WEIGHTS] = 2;
        if (k == 7) g.reference_kind = REFERENCE_NONE;
        if (k % 12 == 8 || k == 0) s.m.offload.layers[OFFLOAD_MOMENTS] = s.m.offload.layers[OFFLOAD_WEIGHTS] = 2;
        GrpoTask task = grpo_task(&g);
        s.task = &task.task;
        Job *j = MEM_NEW(Job, 1);
        Ring ring;
        EXPECT_OK(job_plan(j, &ring, &s, &m, NULL, &e));
        EXPECT_OK(plan_verify(&ring.p, &e));
        const Program *p = &ring.p;
        const Tensor *own = prog_t(p, prog_find(p, "layers.0.qkv_w")),
                     *other = prog_t(p, prog_find(p, "evaluator.layers.2.qkv_w"));
        EXPECT(!own->model && other->model && !strcmp(other->model, GRPO_EVALUATOR));
        EXPECT((other->home.pool == POOL_PINNED) == (comes || g.evaluator.offload.layers[OFFLOAD_WEIGHTS] > 0) &&
               (own->home.pool == POOL_PINNED) == (base_comes || k % 12 == 8 || k == 0));
        EXPECT((prog_find_phase(p, "evaluator.load") >= 0) == comes && (prog_find_phase(p, "load") >= 0) == base_comes);
        EXPECT(!prog_find(p, "reference.head") == (g.reference_kind != REFERENCE_MODEL) || s.m.config.tied);
        EXPECT(!prog_find(p, "reference.layers.1.down_w") == (g.reference_kind != REFERENCE_MODEL));
        EXPECT(prog_find_phase(p, "evaluator.decode2") < prog_find_phase(p, "prefill12"));
        EXPECT(prog_find_phase(p, "decode2") < prog_find_phase(p, "micro"));
        EXPECT((prog_find_phase(p, "reference") < 0) == (g.reference_kind == REFERENCE_NONE));
        const GrpoRing *r = grpo_ring(j); /* caches are gone when the policy learns */
        EXPECT(p->t[r->evaluator.cache[2]].death < p->phase[prog_find_phase(p, "prefill12")].begin);
        EXPECT(p->t[r->policy.cache[0]].death < p->phase[j->micro].begin);
        /* a search sees fewer shapes and the same bytes */
        JobSpec quick = s;
        quick.estimate = true;
        int64_t placed = ring.placement.lower_bound_bytes[POOL_DEVICE];
        ring_close(&ring);
        EXPECT_OK(job_plan(j, &ring, &quick, &m, NULL, &e));
        int64_t apart = placed - ring.placement.lower_bound_bytes[POOL_DEVICE]; /* inputs of the other shapes */
        if (!EXPECT(apart >= 0 && apart < 8192)) test_note("    case %d: %lld bytes apart", k, (long long)apart);
        ring_close(&ring);
        mem_free(j);
    }
}

/* ---- the forward that draws again ---- */

static bool same_shape(const Program *p, Tid a, Tid b) {
    if (!a || !b) return a == b;
    const Tensor *x = prog_t(p, a), *y = prog_t(p, b);
    return x->format == y->format && x->rank == y->rank && !memcmp(x->dim, y->dim, sizeof x->dim);
}

/* But for what a head draws with. */
static bool same_step(const Program *p, const Step *a, const Step *b) {
    bool same =
        a->op == b->op && !memcmp(&a->attr, &b->attr, sizeof a->attr) && same_shape(p, a->workspace, b->workspace);
    for (int k = 0; k < MAX_IN; k++)
        if (a->op != OP_HEAD_LOGP || k != OP_IN(head_logp, how)) same &= same_shape(p, a->in[k], b->in[k]);
    for (int k = 0; k < MAX_OUT; k++)
        if (a->op != OP_HEAD_LOGP || k != OP_OUT(head_logp, drawn)) same &= same_shape(p, a->out[k], b->out[k]);
    return same;
}

static int next_computed(const Program *p, int at) { /* copies and what they wait for are no part of it */
    while (p->s[at].queue != QUEUE_COMPUTE || p->s[at].op == OP_COPY) at++;
    return at;
}

/* Where a sum lies is a part of what the product library is asked for. */
static bool adds_in_place(const Program *p, const Step *s) {
    return s->op == OP_LINEAR && s->linear.in.so_far &&
           prog_t(p, s->linear.in.so_far)->offset == prog_t(p, s->linear.out.y)->offset;
}

static void expect_same_forward(const Program *p, int verify, int micro, int which) {
    int a = p->phase[verify].begin, b = p->phase[micro].begin;
    for (bool head = false; !head; a++, b++) {
        a = next_computed(p, a), b = next_computed(p, b);
        const Step *x = &p->s[a], *y = &p->s[b];
        head = x->op == OP_HEAD_LOGP;
        if (y->op == OP_EMBED && x->op == OP_EMBED) continue; /* a trained table has an order of its ids */
        if (EXPECT(a < p->phase[verify].end && same_step(p, x, y) && adds_in_place(p, x) == adds_in_place(p, y)))
            continue;
        test_note("    case %d: %s of layer %d where an update has %s of layer %d", which, op_name(x->op), x->layer,
                  op_name(y->op), y->layer);
        return;
    }
}

TEST(an_exact_policy_is_verified_by_the_training_forward_itself) {
    Machine m = card_machine(card_named("h200"));
    Err e = {0};
    for (int k = 0; k < 16; k++) {
        JobSpec s = job_spec(k % 2);
        GrpoSpec g = grpo_spec(&s, "num_hidden_layers=3");
        g.exact = true;
        s.m.adapter.dropout = 0;
        s.no_sweep = true;
        s.m.activations = s.weights = s.gradients = s.m.config.dtype = FMT_BF16;
        for (int l = 0; l < 2; l++) s.recompute[l] = (RecomputeLevel)(k / 2 % 4);
        if (k & 8) s.m.offload.layers[OFFLOAD_WEIGHTS] = 2;
        GrpoTask task = grpo_task(&g);
        s.task = &task.task;
        Job *j = MEM_NEW(Job, 1);
        Ring ring;
        EXPECT_OK(job_plan(j, &ring, &s, &m, NULL, &e));
        expect_same_forward(&ring.p, grpo_ring(j)->phase_verify, j->micro, k);
        ring_close(&ring);
        s.ffn_chunks = 4;
        EXPECT(!job_plan(j, &ring, &s, &m, NULL, &e) && strstr(e.text, "--ffn-chunks"));
        e = (Err){0};
        ring_close(&ring);
        mem_free(j);
    }
}

TEST(an_update_plays_every_answer_once) {
    GrpoSpec g = {.has_evaluator = true,
                  .reference_kind = REFERENCE_MODEL,
                  .group = 8,
                  .prompt_tokens = 3000,
                  .answer_tokens = 500,
                  .evaluator_tokens = 100,
                  .slots = 10,
                  .chunk = 2048};
    GrpoSavings v = grpo_savings_at(&g, 0, 24);
    GrpoPlays n = grpo_plays(&g, &v, 24, 6);
    EXPECT(n.prefill == 3 * 2 &&
           n.decode == 3 * 500); /* three prompts in two pieces; 24 answers in three waves of ten */
    EXPECT(n.evaluator_prefill == 24 * 2 && n.evaluator_decode == 3 * 100 && n.reference == 6);
    g.slots = 0;
    g.has_evaluator = false;
    g.reference_kind = REFERENCE_NONE;
    v = grpo_savings_at(&g, 0, 24);
    n = grpo_plays(&g, &v, 24, 6);
    EXPECT(n.decode == 500 && !n.evaluator_prefill && !n.evaluator_decode && !n.reference);
}

/* ---- played ---- */

typedef struct Played {
    Backend *b;
    Job job;
    Ring ring;
} Played;

static void open_played(Played *f, const JobSpec *s) {
    Err e = {0};
    Machine m = {0};
    EXPECT_OK(backend_open(&f->b, "cpu", (BackendOptions){.threads = 2}, &e));
    f->b->describe(f->b, &m);
    EXPECT_OK(job_plan(&f->job, &f->ring, s, &m, NULL, &e));
    EXPECT_OK(ring_open(&f->ring, f->b, &e));
    const Program *p = &f->ring.p;
    for (Tid t = 1; t < p->n_t; t++) {
        if (p->t[t].base || p->t[t].offset < 0) continue;
        if (p->t[t].role == ROLE_MOMENT || p->t[t].role == ROLE_STATISTIC)
            memset(exec_address(&f->ring.x, t), 0, (size_t)p->t[t].bytes);
    }
    exec_play(&f->ring.x, f->job.init);
}

static void close_played(Played *f) {
    ring_close(&f->ring);
    f->b->close(f->b);
}

static void poisoned_play(Exec *x, int phase) { /* what the plan calls dead is made useless first */
    Err e = {0};
    exec_poison(x, phase);
    exec_play(x, phase);
    EXPECT_OK(exec_sync(x, &e));
}

/* The weights of a model become those of the policy, by name. */
static void copy_weights(Exec *to, const char *prefix, const Exec *from) {
    for (Tid t = 1; t < from->p->n_t; t++) {
        const Tensor *w = prog_t(from->p, t);
        if ((w->role != ROLE_WEIGHT && w->role != ROLE_ADAPTER) || w->base || w->model) continue;
        char name[128];
        snprintf(name, sizeof name, "%s%s", prefix, w->name);
        Tid there = prog_find(to->p, name);
        if (there) exec_put(to, there, exec_address(from, t), 0, w->bytes);
    }
}

/* A prompt's ids are an input of its pass; a token is picked up where the one before was drawn. */
static void put_pass(Exec *x, const Gen *g, const GenPass *pass, int64_t count, int64_t from, int step) {
    int32_t ids[16] = {0}, positions[16], rows[2] = {1, 0}, last = (int32_t)count - 1;
    int64_t n = pass->rows * pass->seq;
    for (int i = 0; i < n; i++) {
        ids[i] = (int32_t)(rng_u32(9, (uint64_t)(100 * step + i)) % VOCAB);
        positions[i] = i < count || !pass->last ? (int32_t)from + (pass->last ? i : 0) : -1;
        if (!pass->last) exec_put(x, g->draw.ids, &ids[i], (rows[i] * g->spec.context + positions[i]) * 4, 4);
    }
    if (pass->last) exec_put(x, pass->in.ids, ids, 0, n * 4);
    exec_put(x, pass->in.positions, positions, 0, n * 4);
    exec_put(x, pass->in.cache_rows, rows, 0, pass->rows * 4);
    if (pass->last) exec_put(x, pass->last, &last, 0, 4);
}

/* A prompt for slot 1, then a token for both slots: the prompt's logits, then the id and log-probability drawn for
 * slot 1. */
static void answer(Exec *x, const Gen *g, float *logits) {
    const GenPass *prompt = &g->prefill[g->n_prefill - 1], *token = &g->decode[g->n_decode - 1];
    DrawHow how[2] = {{.top_p = 1, .repetition = 1, .want_logp = 1}, {.top_p = 1, .repetition = 1, .want_logp = 1}};
    EXPECT(token->rows == 2 && prompt->seq >= PROMPT);
    exec_put(x, g->draw.how, how, 0, sizeof how);
    put_pass(x, g, prompt, PROMPT, 0, 1);
    poisoned_play(x, prompt->phase);
    memcpy(logits, exec_address(x, g->prompt_logits), VOCAB * 4);
    put_pass(x, g, token, 2, PROMPT, 2);
    exec_play(x, token->phase); /* not poisoned: slot 0 was never filled, and is read as it lies */
    EXPECT(exec_sync(x, NULL));
    Drawn drawn = ((const Drawn *)exec_address(x, g->draw.drawn))[1];
    EXPECT(drawn.id >= 0 && drawn.logp < 0);
    logits[VOCAB] = (float)drawn.id;
    logits[VOCAB + 1] = drawn.logp;
}

static void put_rows(Played *f, int micro) {
    const Job *j = &f->job;
    int32_t ids[TOKENS], labels[TOKENS], positions[TOKENS], docs[TOKENS] = {0}, order[TOKENS];
    float weight[TOKENS], dials[DIAL_WORDS] = {1e-2f, 10, 100}, divisor = TOKENS, max_norm = 1, beta = micro > 0;
    int64_t clock[CLOCK_WORDS] = {7, micro * TOKENS, micro, 1};
    int n = 0;
    for (int i = 0; i < TOKENS; i++) {
        ids[i] = (int32_t)(rng_u32(5, (uint64_t)(micro * TOKENS + i)) % VOCAB);
        labels[i] = (int32_t)(rng_u32(6, (uint64_t)(micro * TOKENS + i)) % VOCAB);
        positions[i] = i % ROW;
        weight[i] = i % 3 ? 1.5f : -0.5f; /* as advantages are */
    }
    for (int id = 0; id < VOCAB; id++)
        for (int i = 0; i < TOKENS; i++)
            if (ids[i] == id) order[n++] = i;
    exec_put(&f->ring.x, j->in.ids, ids, 0, sizeof ids);
    exec_put(&f->ring.x, j->in.positions, positions, 0, sizeof positions);
    exec_put(&f->ring.x, j->in.doc_begin, docs, 0, sizeof docs);
    if (j->in.id_order) exec_put(&f->ring.x, j->in.id_order, order, 0, sizeof order);
    exec_put(&f->ring.x, j->labels, labels, 0, sizeof labels);
    exec_put(&f->ring.x, j->weight, weight, 0, sizeof weight);
    exec_put(&f->ring.x, j->divisor, &divisor, 0, 4);
    exec_put(&f->ring.x, j->dials, dials, 0, sizeof dials);
    exec_put(&f->ring.x, j->max_norm, &max_norm, 0, 4);
    exec_put(&f->ring.x, f->ring.p.beta, &beta, 0, 4);
    exec_put(&f->ring.x, f->ring.p.clock, clock, 0, sizeof clock);
    const GrpoRing *r = f->job.spec.task ? grpo_ring(&f->job) : NULL;
    if (!r) return;
    float ones[TOKENS], zeros[TOKENS] = {0}; /* an advantage of 1: the gradient is that of plain training */
    for (int i = 0; i < TOKENS; i++) ones[i] = 1;
    exec_put(&f->ring.x, r->advantage, ones, 0, sizeof ones);
    exec_put(&f->ring.x, r->sampled, zeros, 0, sizeof zeros);
    if (r->ref) exec_put(&f->ring.x, r->ref, zeros, 0, sizeof zeros);
}

static void train(Played *f) {
    for (int micro = 0; micro < 2; micro++) {
        put_rows(f, micro);
        if (micro)
            exec_play(&f->ring.x, f->job.micro);
        else
            poisoned_play(&f->ring.x, f->job.micro);
    }
    poisoned_play(&f->ring.x, f->job.update);
}

static void expect_same_bits(const float *a, const float *b, int n, const char *what) {
    int first = 0;
    while (first < n && !memcmp(&a[first], &b[first], 4)) first++;
    if (!EXPECT(first == n))
        test_note("    %s: element %d is %.9g, not %.9g", what, first, (double)a[first], (double)b[first]);
}

/* by_phase: the evaluator's weights and the policy's base take turns on the device. */
static void play_a_ring(bool lora, bool by_phase) {
    Err e = {0};
    JobSpec s = job_spec(lora), plain = s;
    GrpoSpec g =
        grpo_spec(&s, "num_hidden_layers=2"); /* the same shape as the policy, so that it can have its weights */
    g.evaluator.offload.layers[OFFLOAD_WEIGHTS] = by_phase ? 0 : lora ? 2 : 0;
    g.evaluator_may_move = g.policy_is_frozen = by_phase;
    s.task_saving = by_phase ? 2 : 0;
    GrpoTask task = grpo_task(&g);
    s.task = &task.task;
    Played *ring = MEM_NEW(Played, 1), *alone = MEM_NEW(Played, 1);
    Gen *gen = MEM_NEW(Gen, 1);
    Backend *b = NULL;
    open_played(ring, &s);
    open_played(alone, &plain);
    GrpoRing *r = grpo_ring(&ring->job);
    EXPECT((r->policy.phase_load >= 0) == by_phase && (r->evaluator.phase_load >= 0) == by_phase);
    gen_load(&r->policy);
    GenSpec one = r->policy.spec;
    one.m.adapter.dropout = 0;
    one.m.random_init = false;
    Ring answers;
    EXPECT_OK(backend_open(&b, "cpu", (BackendOptions){.threads = 2}, &e)); /* a backend holds one program */
    EXPECT_OK(gen_plan(gen, &answers, &one, &alone->ring.machine, NULL, &e) && ring_open(&answers, b, &e) &&
              gen_open(gen, &e));
    copy_weights(&ring->ring.x, "reference.", &ring->ring.x);
    copy_weights(&ring->ring.x, "evaluator.", &ring->ring.x);
    float mine[VOCAB + 2], others[VOCAB + 2], judged[VOCAB + 2] = {0}, logp[2][TOKENS];
    for (int update = 0; update < 2; update++) {
        copy_weights(&answers.x, "", &alone->ring.x);
        answer(&ring->ring.x, &r->policy, mine);
        answer(&answers.x, gen, others);
        expect_same_bits(mine, others, VOCAB + 2, "an answer");
        float first = judged[0];
        gen_load(&r->evaluator);
        answer(&ring->ring.x, &r->evaluator, judged);
        gen_load(&r->policy);
        if (update)
            EXPECT(judged[0] == first && judged[0] != mine[0]); /* it has not moved, the policy has */
        else if (!lora)
            expect_same_bits(mine, judged, VOCAB + 2, "the evaluator with the policy's weights");
        put_rows(ring, 0);
        poisoned_play(&ring->ring.x, r->phase_reference);
        memcpy(logp[update], exec_address(&ring->ring.x, r->reference_logp), sizeof logp[0]);
        train(ring), train(alone);
    }
    expect_same_bits(logp[0], logp[1], TOKENS, "the reference after an update");
    for (Tid t = 1; t < alone->ring.p.n_t; t++) {
        const Tensor *w = prog_t(&alone->ring.p, t);
        if (!w->trainable || w->base) continue;
        Tid there = prog_find(&ring->ring.p, w->name);
        if (!EXPECT(there && !memcmp(exec_address(&ring->ring.x, there), exec_address(&alone->ring.x, t),
                                     (size_t)w->bytes)))
            test_note("    %s", w->name);
    }
    gen_close(gen);
    ring_close(&answers);
    b->close(b);
    close_played(ring);
    close_played(alone);
    mem_free(gen), mem_free(ring), mem_free(alone);
}

TEST(every_phase_of_a_ring_computes_what_it_computes_alone) {
    play_a_ring(false, false);
    play_a_ring(true, false);
}

TEST(weights_that_come_by_phase_compute_what_resident_ones_do) {
    play_a_ring(true, true);
}

/* Evaluator and policy of the same shape: the larger of them is on the device at a time, not both. */
TEST(models_that_come_by_phase_take_the_same_bytes) {
    Machine m = card_machine(card_named("h200"));
    Err e = {0};
    int64_t device[3], pinned[3];
    for (int saving = 0; saving < 3; saving++) {
        JobSpec s = job_spec(true);
        GrpoSpec g = grpo_spec(&s, "num_hidden_layers=2");
        g.evaluator_may_move = g.policy_is_frozen = true;
        GrpoTask task = grpo_task(&g);
        s.task = &task.task;
        s.task_saving = saving;
        Job *j = MEM_NEW(Job, 1);
        Ring ring;
        EXPECT_OK(job_plan(j, &ring, &s, &m, NULL, &e));
        EXPECT_OK(plan_verify(&ring.p, &e));
        device[saving] = ring.placement.lower_bound_bytes[POOL_DEVICE];
        pinned[saving] = ring.placement.lower_bound_bytes[POOL_PINNED];
        ring_close(&ring);
        mem_free(j);
    }
    EXPECT(!pinned[0] && pinned[1] > 0 && pinned[2] == 2 * pinned[1]);
    /* one set of matrices less; a tied embedding is loaded for the head */
    if (!EXPECT(device[1] < device[0] && device[2] <= device[0] - pinned[1] * 9 / 10))
        test_note("    %lld, %lld, %lld bytes; %lld of a model", (long long)device[0], (long long)device[1],
                  (long long)device[2], (long long)pinned[1]);
}

TEST(savings_of_a_policy_are_taken_in_their_order) {
    GrpoSpec g = {.has_evaluator = true, .evaluator_may_move = true, .policy_is_frozen = true, .group = 8};
    EXPECT(grpo_task(&g).task.savings == 6);
    static const GrpoSavings want[] = {{false, false, 64, 64}, {false, true, 64, 64}, {true, true, 64, 64},
                                       {true, true, 64, 32},   {true, true, 64, 16},  {true, true, 32, 8},
                                       {true, true, 16, 4}};
    for (int i = 0; i < COUNT_OF(want); i++) {
        GrpoSavings v = grpo_savings_at(&g, i, 128);
        EXPECT(!memcmp(&v, &want[i], sizeof v) || (v.policy_by_phase == want[i].policy_by_phase &&
                                                   v.evaluator_by_phase == want[i].evaluator_by_phase &&
                                                   v.policy_slots == want[i].policy_slots &&
                                                   v.evaluator_slots == want[i].evaluator_slots));
    }
    g.weights_stay = true; /* --offload none, or one memory */
    EXPECT(grpo_task(&g).task.savings == 4 && !grpo_savings_at(&g, 4, 128).evaluator_by_phase);
    g.slots = 16;
    EXPECT(grpo_task(&g).task.savings == 0);
}
