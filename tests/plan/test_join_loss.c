/* test_join_loss.c - the loss of an indexer moves into its gradient exactly where nobody looks at it before. */
#include "plan/plan.h"
#include "tests/test.h"

enum { TOKENS = 8, LAYERS = 3 };

typedef struct Ops {
    int losses, with_loss, beginning; /* losses alone; gradients that give one; of those: which begin the sum */
    int first_beginning;
} Ops;

static Ops count_ops(const Program *p, const char *phase) {
    Ops n = {.first_beginning = -1};
    int gradients = 0;
    for (int ph = 0; ph < p->n_phases; ph++) {
        if (strcmp(p->phase[ph].name, phase) != 0) continue;
        for (int i = p->phase[ph].begin; i < p->phase[ph].end; i++) {
            const Step *s = &p->s[i];
            n.losses += s->op == OP_INDEX_LOSS;
            if (s->op != OP_INDEX_LOSS_GRAD) continue;
            n.with_loss += s->index_loss_grad.out.stat != NONE;
            n.beginning += s->index_loss_grad.in.stat_beta != NONE;
            if (s->index_loss_grad.in.stat_beta && n.first_beginning < 0) n.first_beginning = gradients;
            gradients++;
        }
    }
    return n;
}

typedef enum Beside { NOTHING, A_READER, A_LOSS_WITHOUT_GRADIENT } Beside;

/* A phase of LAYERS losses on one statistic. */
static void record(Program *p, const char *phase, Tid stat, bool with_gradient, Beside beside) {
    AttrSparse a = {
        .heads = {.heads = 2, .kv_heads = 1, .head_dim = 4, .seq = TOKENS}, .index_heads = 2, .index_dim = 4};
    Tid weight = prog_tensor(p, "weight", ROLE_INPUT, FMT_F32, 1, DIMS(TOKENS)),
        divisor = prog_tensor(p, "divisor", ROLE_DIAL, FMT_F32, 1, DIMS(1)),
        docs = prog_tensor(p, "docs", ROLE_INPUT, FMT_I32, 1, DIMS(TOKENS)), index[LAYERS];
    IndexLossTensors t[LAYERS];
    for (int l = 0; l < LAYERS; l++) {
        index[l] = prog_tensor(p, "index_in", ROLE_INPUT, FMT_F32, 2, DIMS(TOKENS, 14));
        t[l] = (IndexLossTensors){.index = index[l],
                                  .bias = prog_tensor(p, "bias", ROLE_INPUT, FMT_F32, 1, DIMS(4)),
                                  .qkv = prog_tensor(p, "qkv", ROLE_INPUT, FMT_F32, 2, DIMS(TOKENS, 16)),
                                  .lse = prog_tensor(p, "lse", ROLE_INPUT, FMT_F32, 2, DIMS(TOKENS, 2)),
                                  .doc_begin = docs,
                                  .weight = weight,
                                  .divisor = divisor};
        p->t[index[l]].needs_grad = true;
    }
    prog_begin_phase(p, phase, 2);
    for (int l = 0; l < LAYERS; l++) {
        op_index_loss(p, stat, t[l], a);
        if (beside == A_READER && l == 1)
            prog_emit(p, (Step){.op = OP_COPY,
                                .copy = {.in = {stat},
                                         .out = {prog_tensor(p, "seen", ROLE_STATISTIC, FMT_F64, 1, DIMS(1))}}});
    }
    if (with_gradient) prog_backward(p, p->phase[p->n_phases - 1].begin, &(Root){stat, NONE}, 1);
    if (beside == A_LOSS_WITHOUT_GRADIENT) op_index_loss(p, stat, t[0], a);
    prog_end_phase(p);
}

static Program program(Beside beside) {
    Program p;
    prog_init(&p);
    p.beta = prog_tensor(&p, "beta", ROLE_DIAL, FMT_F32, 1, DIMS(1));
    p.clock = prog_tensor(&p, "clock", ROLE_DIAL, FMT_I64, 1, DIMS(CLOCK_WORDS));
    Tid stat = prog_tensor(&p, "index_loss", ROLE_STATISTIC, FMT_F64, 1, DIMS(1)),
        measured = prog_tensor(&p, "measured", ROLE_STATISTIC, FMT_F64, 1, DIMS(1));
    record(&p, "micro", stat, true, beside);
    record(&p, "evaluate", measured, false, NOTHING);
    return p;
}

TEST(losses_of_an_indexer_are_given_by_their_gradients) {
    Machine m = machine_generic_cpu(1);
    Err e = {0};
    Program p = program(NOTHING);
    EXPECT(count_ops(&p, "micro").losses == LAYERS);
    plan_join_losses(&p);
    Ops n = count_ops(&p, "micro");
    EXPECT(n.losses == 0 && n.with_loss == LAYERS);
    EXPECT(n.beginning == 1 && n.first_beginning == 0); /* backward's first begins the sum, the others add */
    EXPECT(count_ops(&p, "evaluate").losses == LAYERS);
    plan_all(&p, &m);
    EXPECT_OK(plan_verify(&p, &e));
    prog_free(&p);
}

TEST(losses_of_an_indexer_stay_where_one_has_no_gradient_or_somebody_looks) {
    for (Beside i = A_READER; i <= A_LOSS_WITHOUT_GRADIENT; i++) {
        Program p = program(i);
        int losses = count_ops(&p, "micro").losses;
        plan_join_losses(&p);
        Ops n = count_ops(&p, "micro");
        if (!EXPECT(n.losses == losses && n.with_loss == 0 && n.beginning == 0))
            test_note("    beside %d: %d losses, %d in gradients", (int)i, n.losses, n.with_loss);
        prog_free(&p);
    }
}
