/* test_sweep.c - a head and its gradient become one step exactly where that changes nothing. */
#include "plan/plan.h"
#include "tests/plan/decoder.h"
#include "tests/plan/player.h"
#include "tests/test.h"

static int count_ops(const Program *p, OpId op) {
    int n = 0;
    for (int64_t i = 0; i < p->n_s; i++) n += p->s[i].op == op;
    return n;
}

static Machine small_scratch(void) {
    Machine m = machine_generic_cpu(1);
    m.kind = MACHINE_CUDA;
    return m;
}

TEST(sweep_fuses_a_local_loss_and_keeps_results) {
    Machine m = small_scratch();
    for (int rank = 0; rank <= 2; rank += 2) {
        Decoder d = decoder_tiny;
        d.rank = rank;
        Program plain, swept;
        Err e = {0};
        decoder_record(&plain, &d);
        decoder_record(&swept, &d);
        plan_sweep(&swept);
        EXPECT(count_ops(&swept, OP_HEAD_SWEEP) == 1 && count_ops(&swept, OP_HEAD_LOGP_GRAD) == 0);
        EXPECT(count_ops(&swept, OP_HEAD_LOGP) == 1 && swept.n_s == plain.n_s - 1); /* evaluation keeps its head */
        int64_t recorded = plain.n_t;
        plan_all(&plain, &m);
        Placement pl = plan_all(&swept, &m);
        EXPECT_OK(plan_verify(&swept, &e));
        EXPECT(play_differs(&swept, pl.arena_bytes) < 0);
        EXPECT(play_same_state(&plain, &swept, recorded));
        prog_free(&plain);
        prog_free(&swept);
    }
}

typedef struct Head {
    Program p;
    Tid x, w, labels, weight, loss, logp, seed;
} Head;

static void head_begin(Head *h) { /* a trained head over an input that needs a gradient */
    prog_init(&h->p);
    h->p.beta = prog_tensor(&h->p, "beta", ROLE_DIAL, FMT_F32, 1, DIMS(1));
    h->p.clock = prog_tensor(&h->p, "clock", ROLE_DIAL, FMT_I64, 1, DIMS(CLOCK_WORDS));
    h->seed = prog_tensor(&h->p, "seed", ROLE_INPUT, FMT_F32, 2, DIMS(8, 4));
    h->labels = prog_tensor(&h->p, "labels", ROLE_INPUT, FMT_I32, 1, DIMS(8));
    h->weight = prog_tensor(&h->p, "weight", ROLE_INPUT, FMT_F32, 1, DIMS(8));
    h->loss = prog_tensor(&h->p, "loss", ROLE_STATISTIC, FMT_F64, 1, DIMS(1));
    h->w = prog_tensor(&h->p, "w", ROLE_WEIGHT, FMT_F32, 2, DIMS(20, 4));
    h->p.t[h->w].trainable = h->p.t[h->w].needs_grad = true;
    h->p.t[h->w].grad = prog_tensor(&h->p, "w.grad", ROLE_GRADIENT, FMT_F32, 2, DIMS(20, 4));
    prog_begin_phase(&h->p, "micro", 2);
    h->x = prog_like(&h->p, "x", h->seed);
    prog_emit(&h->p, (Step){.op = OP_SWIGLU, .swiglu = {.in = {h->seed}, .out = {h->x}}});
    h->p.t[h->x].needs_grad = true;
    h->logp = op_head_logp(&h->p, h->x, h->w, h->labels, (AttrHead){.chunk = 128});
}

static int head_end(Head *h, Tid dlogp) { /* how many sweeps came of it */
    Machine m = small_scratch();
    Err e = {0};
    Program plain;
    prog_backward(&h->p, 0, &(Root){h->logp, dlogp}, 1);
    prog_end_phase(&h->p);
    prog_copy(&plain, &h->p);
    int64_t recorded = h->p.n_t;
    plan_sweep(&h->p);
    int n = count_ops(&h->p, OP_HEAD_SWEEP);
    plan_all(&plain, &m);
    Placement pl = plan_all(&h->p, &m);
    EXPECT_OK(plan_verify(&h->p, &e));
    EXPECT(play_differs(&h->p, pl.arena_bytes) < 0);
    EXPECT(play_same_state(&plain, &h->p, recorded));
    prog_free(&plain);
    prog_free(&h->p);
    return n;
}

static Tid computed(Program *p, Tid from, Tid with) {
    Tid y = prog_tensor(p, "y", ROLE_ACTIVATION, FMT_F32, 1, DIMS(8));
    prog_emit(p, (Step){.op = OP_TOKEN_SUM_GRAD, .token_sum_grad = {.in = {from, with}, .out = {y}}});
    return y;
}

/* The terms of a loss and another model's rows go along. */
TEST(sweep_keeps_what_a_head_by_terms_reads) {
    Head h;
    head_begin(&h);
    Step *s = &h.p.s[h.p.n_s - 1];
    s->head_logp.in.terms = prog_tensor(&h.p, "terms", ROLE_INPUT, FMT_F32, 2, DIMS(8, HEAD_TERMS));
    s->head_logp.in.target_x = prog_tensor(&h.p, "target", ROLE_INPUT, FMT_F32, 2, DIMS(8, 4));
    s->head_logp.in.target_w = prog_tensor(&h.p, "target_w", ROLE_WEIGHT, FMT_F32, 2, DIMS(20, 4));
    EXPECT(head_end(&h, h.weight) == 1);
    prog_free(&h.p);
}

TEST(sweep_moves_what_makes_the_gradient) { /* two steps after the head, from inputs alone */
    Head h;
    head_begin(&h);
    Tid half = computed(&h.p, h.weight, h.weight);
    op_token_sum(&h.p, h.loss, h.logp, h.weight, h.p.beta, 1);
    EXPECT(head_end(&h, computed(&h.p, half, h.weight)) == 1);
}

TEST(sweep_leaves_a_gradient_that_depends_on_the_head) { /* as in policy losses: a ratio of log-probabilities */
    Head h;
    head_begin(&h);
    Tid half = computed(&h.p, h.logp, h.weight);
    EXPECT(head_end(&h, computed(&h.p, half, h.weight)) == 0);
}

TEST(sweep_leaves_a_gradient_touched_in_between) { /* W4 */
    Head h;
    head_begin(&h);
    Tid d = computed(&h.p, h.weight, h.weight);
    prog_emit(&h.p, (Step){.op = OP_LINEAR_DW, .linear_dw = {.in = {d, h.x}, .out = {h.p.t[h.w].grad}}});
    EXPECT(head_end(&h, d) == 0);
}

/* W3: what makes d(logp) reads a statistic that changes after the head. */
TEST(sweep_leaves_state_written_in_between) {
    Head h;
    head_begin(&h);
    op_token_sum(&h.p, h.loss, h.logp, h.weight, h.p.beta, 1);
    EXPECT(head_end(&h, computed(&h.p, h.weight, h.loss)) == 0);
}

TEST(sweep_leaves_a_head_with_entropy) {
    Head h;
    head_begin(&h);
    Tid entropy = prog_like(&h.p, "entropy", h.logp);
    h.p.s[h.p.n_s - 1].head_logp.out.entropy = entropy;
    EXPECT(head_end(&h, computed(&h.p, h.weight, h.weight)) == 0);
}
