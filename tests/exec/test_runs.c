/* test_runs.c - steps of one op that follow each other reach the device together, and only those that may; and steps of
 * several ops that it joins. */
#include "base/rng.h"
#include "base/stop.h"
#include "exec/exec.h"
#include "plan/plan.h"
#include "tests/test.h"

enum { TENSORS = 4, MOST_RUNS = 16, BYTES = 2 * (10 + 40000 + 16384 + 7) + TENSORS * 8 /* of what a play gives */ };
static const int64_t sizes[TENSORS] = {10, 40000, 16384, 7};

static struct {
    OpId op[MOST_RUNS];
    int n[MOST_RUNS], runs;
} seen;

/* The last step first: a run has no order. */
static void run_backwards(Backend *b, Queue q, const Args *a, int n) {
    if (seen.runs < MOST_RUNS) seen.op[seen.runs] = a->step->op, seen.n[seen.runs] = n;
    seen.runs++;
    for (int i = n - 1; i >= 0; i--) b->kernels[a[i].step->op](b, q, &a[i]);
}

static KernelRun *const runs[OP_COUNT] = {[OP_SUM_SQUARES] = run_backwards, [OP_SGD] = run_backwards};

typedef struct Small { /* the norm of four gradients, four updates, and the last weight once more */
    Program p;
    Tid w[TENSORS], g[TENSORS], parts, dials, most, loss, verdict;
} Small;

static void small_init(Small *s) {
    Program *p = &s->p;
    prog_init(p);
    s->parts = prog_tensor(p, "squares", ROLE_STATISTIC, FMT_F64, 1, DIMS(TENSORS));
    s->loss = prog_tensor(p, "loss", ROLE_STATISTIC, FMT_F64, 1, DIMS(1));
    s->verdict = prog_tensor(p, "verdict", ROLE_STATISTIC, FMT_F64, 1, DIMS(VERDICT_WORDS));
    s->most = prog_tensor(p, "most", ROLE_DIAL, FMT_F32, 1, DIMS(1));
    s->dials = prog_tensor(p, "dials", ROLE_DIAL, FMT_F32, 1, DIMS(DIAL_WORDS));
    p->clock = prog_tensor(p, "clock", ROLE_DIAL, FMT_I64, 1, DIMS(CLOCK_WORDS));
    for (int i = 0; i < TENSORS; i++) {
        s->w[i] = prog_tensor(p, "w", ROLE_WEIGHT, FMT_BF16, 1, DIMS(sizes[i]));
        s->g[i] = prog_tensor(p, "g", ROLE_WEIGHT, FMT_F32, 1, DIMS(sizes[i])); /* stands always: put before a play */
    }
    prog_begin_phase(p, "update", 1);
    for (int i = 0; i < TENSORS; i++) op_sum_squares(p, prog_view(p, "square", s->parts, i, 1), s->g[i]);
    op_clip(p, s->verdict, s->parts, s->loss, s->most, NONE, NONE);
    for (int i = 0; i <= TENSORS; i++) {
        int k = MIN2(i, TENSORS - 1);
        op_sgd(p, (UpdateTensors){.weight = s->w[k], .gradient = s->g[k], .dials = s->dials, .verdict = s->verdict},
               (AttrUpdate){.lr_mult = 1});
    }
    prog_end_phase(p);
}

static Backend *small_open(Small *s) {
    Backend *b = NULL;
    Err e = {0};
    EXPECT_OK(backend_open(&b, "cpu", (BackendOptions){.threads = 2}, &e));
    small_init(s);
    return b;
}

static bool may_leave;

/* Plays it and gives the weights, the parts behind them. */
static void small_play(Small *s, Backend *b, ExecOrder order, unsigned char *out, bool by_steps) {
    Machine m = {0};
    Err e = {0};
    Exec x;
    b->describe(b, &m);
    Placement pl = plan_all(&s->p, &m);
    EXPECT_OK(plan_verify(&s->p, &e));
    EXPECT_OK(exec_open(&x, &s->p, b, pl.arena_bytes, &e));
    x.order = order;
    x.leaves = may_leave;
    for (int i = 0; i < TENSORS; i++) {
        float g[40000];
        uint16_t w[40000];
        for (int64_t k = 0; k < sizes[i]; k++) g[k] = rng_normal((uint64_t)i, (uint64_t)k), w[k] = 0x3f80;
        exec_put(&x, s->g[i], g, 0, sizes[i] * 4);
        exec_put(&x, s->w[i], w, 0, sizes[i] * 2);
    }
    exec_put(&x, s->dials, (const float[]){0.01f, 1, 1}, 0, 12);
    exec_put(&x, s->most, (const float[]){1}, 0, 4);
    exec_put(&x, s->loss, (const double[]){1}, 0, 8);
    exec_put(&x, s->p.clock, (const int64_t[CLOCK_WORDS]){5}, 0, CLOCK_WORDS * 8);
    seen.runs = 0;
    if (by_steps) EXPECT(exec_find_not_finite(&x, 0, &e) == -1);
    else exec_play(&x, 0);
    EXPECT_OK(exec_sync(&x, &e));
    for (int i = 0; i < TENSORS; i++) {
        exec_get(&x, s->w[i], out, 0, sizes[i] * 2);
        out += sizes[i] * 2;
    }
    exec_get(&x, s->parts, out, 0, TENSORS * 8);
    exec_close(&x);
}

/* What a profiler is told, as text: "update(update)" is a region within a phase. */
static char told[200];
static void tell(Backend *b, const char *name) {
    size_t n = strlen(told);
    snprintf(told + n, sizeof told - n, name ? "%s(" : ")", name);
}

TEST(a_profiler_is_told_phase_and_region) {
    static unsigned char state[BYTES];
    Small s = {0};
    Backend *b = small_open(&s);
    b->range = tell;
    told[0] = 0;
    small_play(&s, b, EXEC_AS_WRITTEN, state, false);
    char want[100];
    snprintf(want, sizeof want, "%s(%s())", s.p.phase[0].name, prog_region_name(s.p.s[0].region));
    EXPECT_STR(told, want);
    b->close(b);
    prog_free(&s.p);
}

TEST(steps_that_follow_each_other_run_together) {
    static unsigned char one_by_one[BYTES], together[BYTES];
    Small s = {0};
    Backend *b = small_open(&s);
    small_play(&s, b, EXEC_AS_WRITTEN, one_by_one, false);
    EXPECT(seen.runs == 0); /* the device has no way of its own */
    b->runs = runs;
    small_play(&s, b, EXEC_AS_WRITTEN, together, false);
    EXPECT(seen.runs == 2 && seen.op[0] == OP_SUM_SQUARES && seen.n[0] == TENSORS);
    EXPECT(seen.op[1] == OP_SGD && seen.n[1] == TENSORS); /* the fifth changes a weight of the run: on its own */
    EXPECT(!memcmp(one_by_one, together, BYTES));
    small_play(&s, b, EXEC_LATE, together, false);
    EXPECT(seen.runs == 0 && !memcmp(one_by_one, together, BYTES));
    small_play(&s, b, EXEC_AS_WRITTEN, together, true); /* what looks at every step takes them one by one */
    EXPECT(seen.runs == 0 && !memcmp(one_by_one, together, BYTES));
    b->close(b);
    prog_free(&s.p);
}

static void run_and_ask(Backend *b, Queue q, const Args *a, int n) {
    run_backwards(b, q, a, n);
    stop_signal = SIGINT;
}

TEST(a_play_that_may_leave_ends_behind_the_step_at_which_it_was_asked) {
    static KernelRun *const asking[OP_COUNT] = {[OP_SUM_SQUARES] = run_and_ask, [OP_SGD] = run_and_ask};
    static unsigned char state[BYTES];
    Small s = {0};
    Backend *b = small_open(&s);
    b->runs = asking;
    small_play(&s, b, EXEC_AS_WRITTEN, state, false);
    EXPECT(seen.runs == 2 && stop_asked()); /* what may not be cut short goes on */
    stop_signal = 0;
    may_leave = true;
    small_play(&s, b, EXEC_AS_WRITTEN, state, false);
    EXPECT(seen.runs == 1 && stop_asked()); /* the four updates did not run */
    stop_signal = 0;
    may_leave = false;
    b->close(b);
    prog_free(&s.p);
}

/* ---- steps of several ops ---- */

static int offered; /* steps, when the clip was first */

static int clip_and_two(Backend *b, const Args *a, int n) {
    if (a->step->op != OP_CLIP) return 0;
    offered = n;
    return 3;
}

static void run_forwards(Backend *b, Queue q, const Args *a, int n) {
    if (seen.runs < MOST_RUNS) seen.op[seen.runs] = a->step->op, seen.n[seen.runs] = n;
    seen.runs++;
    for (int i = 0; i < n; i++) b->kernels[a[i].step->op](b, q, &a[i]);
}

TEST(steps_that_a_device_joins_run_together) {
    static unsigned char one_by_one[BYTES], together[BYTES];
    Small s = {0};
    Backend *b = small_open(&s);
    small_play(&s, b, EXEC_AS_WRITTEN, one_by_one, false);
    b->runs = runs;
    b->joins = (Joins){.of = clip_and_two, .run = run_forwards};
    small_play(&s, b, EXEC_AS_WRITTEN, together, false);
    EXPECT(offered == TENSORS + 2); /* all up to the phase's end */
    EXPECT(seen.runs == 3 && seen.op[1] == OP_CLIP && seen.n[1] == 3);
    EXPECT(seen.op[2] == OP_SGD && seen.n[2] == TENSORS - 2); /* a run of one op begins behind them */
    EXPECT(!memcmp(one_by_one, together, BYTES));
    small_play(&s, b, EXEC_AS_WRITTEN, together, true);
    EXPECT(seen.runs == 0 && !memcmp(one_by_one, together, BYTES));
    b->close(b);
    prog_free(&s.p);
}

TEST(what_passes_to_the_next_step_alone_is_known) {
    Backend *b = NULL;
    Err e = {0};
    Exec x;
    Program p;
    Machine m = {0};
    prog_init(&p);
    Tid in = prog_tensor(&p, "in", ROLE_INPUT, FMT_F32, 2, DIMS(2, 4));
    prog_begin_phase(&p, "forward", 1);
    Tid once = op_add(&p, "once", in, in), twice = op_add(&p, "twice", once, in),
        late = op_add(&p, "late", twice, twice);
    Tid last = op_add(&p, "last", twice, in);
    op_add(&p, "end", late, last);
    prog_end_phase(&p);
    EXPECT_OK(backend_open(&b, "cpu", (BackendOptions){.threads = 1}, &e));
    b->describe(b, &m);
    Placement pl = plan_all(&p, &m);
    EXPECT_OK(exec_open(&x, &p, b, pl.arena_bytes, &e));
    EXPECT(x.args[0].passes[0]);  /* once: to the next, and to nobody else */
    EXPECT(!x.args[1].passes[0]); /* twice: two steps read it */
    EXPECT(!x.args[2].passes[0]); /* late: not the next */
    EXPECT(x.args[3].passes[0] && !x.args[4].passes[0]); /* last; and what nobody reads passes to nobody */
    exec_close(&x);
    b->close(b);
    prog_free(&p);
}

TEST(a_step_knows_what_it_writes_alone) {
    Backend *b = NULL;
    Machine m = {0};
    Err e = {0};
    Small s = {0};
    Exec x;
    EXPECT_OK(backend_open(&b, "cpu", (BackendOptions){.threads = 1}, &e));
    small_init(&s);
    b->describe(b, &m);
    Placement pl = plan_all(&s.p, &m);
    EXPECT_OK(exec_open(&x, &s.p, b, pl.arena_bytes, &e));
    for (int i = 0; i < s.p.n_s; i++) {
        OpId op = s.p.s[i].op;
        Tid w = prog_first_out(&s.p.s[i]);
        /* that one twice; squares share a base */
        bool alone = op == OP_CLIP || (op == OP_SGD && w != s.w[TENSORS - 1]);
        if (!EXPECT(x.args[i].only_writer[0] == alone)) test_note("    step %d, %s", i, op_name(op));
        for (int k = 0; k < MAX_OUT; k++) EXPECT(s.p.s[i].out[k] || !x.args[i].only_writer[k]);
    }
    exec_close(&x);
    b->close(b);
    prog_free(&s.p);
}
