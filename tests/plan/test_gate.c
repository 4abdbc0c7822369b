/* test_gate.c - a direct linear of a few rows takes its gate along where nobody else needs what lies between them. */
#include "plan/plan.h"
#include "tests/test.h"

typedef struct Layer {
    int64_t rows;
    Format stored;
    bool indirect, read_again, apart; /* not direct; another step reads gate and up; a phase ends between the two */
} Layer;

static void record(Program *p, const Layer *l) {
    enum { C = 64, F = 96 };
    prog_init(p);
    Tid x = prog_tensor(p, "x", ROLE_INPUT, FMT_BF16, 2, DIMS(l->rows, C));
    Tid w = prog_tensor(p, "w", ROLE_WEIGHT, FMT_BF16, 2, DIMS(2 * F, C));
    p->t[w].home.stored = l->stored;
    prog_begin_phase(p, "one", 1);
    Tid gate_up = (l->indirect ? op_linear : op_linear_direct)(p, "gate_up", x, w, NONE);
    if (l->apart) prog_end_phase(p), prog_begin_phase(p, "two", 1);
    Tid h = op_swiglu(p, gate_up);
    if (l->read_again) op_swiglu(p, gate_up);
    op_add(p, "sum", h, h);
    prog_end_phase(p);
}

static int count(const Program *p, OpId op) {
    int n = 0;
    for (int64_t i = 0; i < p->n_s; i++) n += p->s[i].op == op;
    return n;
}

TEST(few_rows_take_their_gate_along) {
    static const struct {
        Layer l;
        bool gated;
    } cases[] = {{{.rows = 1, .stored = FMT_NF4}, true},
                 {{.rows = 8, .stored = FMT_INT8}, true},
                 {{.rows = 9, .stored = FMT_INT8}, false},
                 {{.rows = 1, .stored = FMT_BF16}, false},
                 {{.rows = 1, .stored = FMT_NF4, .indirect = true}, false},
                 {{.rows = 1, .stored = FMT_NF4, .read_again = true}, false},
                 {{.rows = 1, .stored = FMT_NF4, .apart = true}, false}};
    for (int i = 0; i < COUNT_OF(cases); i++) {
        Program p;
        record(&p, &cases[i].l);
        int64_t steps = p.n_s;
        int phases = p.n_phases, gates = count(&p, OP_SWIGLU), gated = cases[i].gated;
        plan_gate(&p);
        bool right = p.n_s == steps - gated && p.n_phases == phases && count(&p, OP_LINEAR_SWIGLU) == gated &&
                     count(&p, OP_SWIGLU) == gates - gated && count(&p, OP_LINEAR) == 1 - gated;
        for (int64_t s = 0; s < p.n_s; s++) right &= !op_wrong(&p, &p.s[s]);
        if (!EXPECT(right)) test_note("    case %d", i);
        prog_free(&p);
    }
}

/* What is gated is placed and shown to be right like any other program. */
TEST(gated_steps_can_be_placed) {
    Program p;
    Err e = {0};
    Machine m = machine_generic_cpu(1);
    m.kind = MACHINE_CUDA;
    record(&p, &(Layer){.rows = 3, .stored = FMT_NF4});
    plan_gate(&p);
    plan_materialise(&p);
    plan_all(&p, &m);
    EXPECT_OK(plan_verify(&p, &e));
    Tid w = p.s[0].linear_swiglu.in.w;
    EXPECT(p.s[0].op == OP_LINEAR_SWIGLU && prog_t(&p, w)->format == FMT_NF4 && p.s[0].workspace);
    prog_free(&p);
}
