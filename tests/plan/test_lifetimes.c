/* test_lifetimes.c - the rules of lifetimes.c and share.c one by one, on programs small enough to count by
 * hand. */
#include "plan/plan.h"
#include "tests/plan/decoder.h"
#include "tests/test.h"

static Tid tensor(Program *p, const char *name, Role role, int64_t n) {
    return prog_tensor(p, name, role, FMT_F32, 1, DIMS(n));
}

static Tid from(Program *p, const char *name, Tid in) { /* one step: a new activation computed from in */
    Tid out = tensor(p, name, ROLE_ACTIVATION, 64);
    prog_emit(p, (Step){.op = OP_SWIGLU, .swiglu = {.in = {in}, .out = {out}}});
    return out;
}

static void add_to(Program *p, Tid state, Tid in) {
    prog_emit(p, (Step){.op = OP_LINEAR_DW, .linear_dw = {.in = {in, in}, .out = {state}}});
}

static bool lives(const Program *p, Tid t, int birth, int death) {
    if (p->t[t].birth == birth && p->t[t].death == death) return true;
    test_note("    %s lives [%d, %d], not [%d, %d]", p->t[t].name, p->t[t].birth, p->t[t].death, birth, death);
    return false;
}

TEST(lives_on_a_ring_of_phases) {
    Program p;
    prog_init(&p);
    Tid in = tensor(&p, "in", ROLE_INPUT, 64), both = tensor(&p, "both", ROLE_INPUT, 64),
        dial = tensor(&p, "dial", ROLE_DIAL, 1);
    Tid g = tensor(&p, "g", ROLE_GRADIENT, 64), stat = tensor(&p, "stat", ROLE_STATISTIC, 64),
        w = tensor(&p, "w", ROLE_WEIGHT, 64);
    Tid unused = tensor(&p, "unused", ROLE_WEIGHT, 64);
    prog_begin_phase(&p, "micro", 4);
    Tid x = from(&p, "x", w);    /* 0 */
    Tid y = from(&p, "y", in);   /* 1 */
    add_to(&p, g, y);            /* 2 */
    Tid z = from(&p, "z", both); /* 3 */
    prog_end_phase(&p);
    prog_begin_phase(&p, "update", 1);
    add_to(&p, w, g);            /* 4 */
    Tid v = from(&p, "v", dial); /* 5 */
    prog_end_phase(&p);
    prog_begin_phase(&p, "evaluate", 3);
    add_to(&p, stat, z);    /* 6 */
    add_to(&p, stat, both); /* 7 */
    from(&p, "u", v);       /* 8 */
    from(&p, "end", stat);  /* 9 */
    prog_end_phase(&p);
    plan_lifetimes(&p);
    EXPECT(lives(&p, w, 0, 9) && lives(&p, dial, 0, 9) && lives(&p, stat, 0, 9)); /* L1 */
    EXPECT(lives(&p, unused, -1, -1));
    EXPECT(lives(&p, in, 0, 1) && lives(&p, both, 0, 7)); /* L2: from its phase's begin */
    EXPECT(lives(&p, g, 0, 4));                           /* L3: the whole micro-step, dead in evaluation */
    EXPECT(lives(&p, x, 0, 0) && lives(&p, y, 1, 2));     /* L4 */
    EXPECT(lives(&p, z, 3, 9) && lives(&p, v, 5, 9));     /* L4: read by each play of evaluation */
    prog_free(&p);
}

TEST(what_comes_around_the_ring_lives_always) { /* L5, L6 */
    Program p;
    prog_init(&p);
    Tid w = tensor(&p, "w", ROLE_WEIGHT, 64), around = tensor(&p, "around", ROLE_ACTIVATION, 64);
    Tid base = prog_tensor(&p, "base", ROLE_ACTIVATION, FMT_F32, 2, DIMS(4, 16)),
        low = prog_view(&p, "low", base, 0, 2);
    Tid high = prog_view(&p, "high", base, 2, 2), g = tensor(&p, "g", ROLE_GRADIENT, 64);
    prog_begin_phase(&p, "one", 1);
    from(&p, "a", around);                                              /* 0: the value of the round before */
    prog_emit(&p, (Step){.op = OP_SWIGLU, .swiglu = {.in = {w}, .out = {around}}}); /* 1 */
    prog_emit(&p, (Step){.op = OP_SWIGLU, .swiglu = {.in = {w}, .out = {low}}});    /* 2 */
    prog_emit(&p, (Step){.op = OP_SWIGLU, .swiglu = {.in = {low}, .out = {high}}}); /* 3 */
    from(&p, "b", base);                                                /* 4 */
    from(&p, "c", low);                                                 /* 5 */
    from(&p, "d", g);                                                   /* 6: read before it is written */
    add_to(&p, g, w);                                                   /* 7 */
    from(&p, "e", w);                                                   /* 8 */
    prog_end_phase(&p);
    plan_lifetimes(&p);
    EXPECT(lives(&p, around, 0, 8) && lives(&p, g, 0, 8));
    EXPECT(lives(&p, base, 2, 5) && lives(&p, high, 2, 5)); /* halves written by two steps: not carried */
    prog_free(&p);
}

TEST(side_queues_hold_until_awaited) { /* L7 = P2 */
    Program p;
    prog_init(&p);
    Tid w = tensor(&p, "w", ROLE_WEIGHT, 64), there = tensor(&p, "there", ROLE_ACTIVATION, 64);
    p.t[there].home.pool = POOL_HOST;
    Tid back = tensor(&p, "back", ROLE_ACTIVATION, 64), never = tensor(&p, "never", ROLE_ACTIVATION, 64);
    prog_begin_phase(&p, "one", 1);
    Tid x = from(&p, "x", w);                /* 0 */
    op_copy(&p, there, x, QUEUE_COPY_OUT);   /* 1: awaited by 3 */
    from(&p, "a", w);                        /* 2 */
    op_copy(&p, back, there, QUEUE_COPY_IN); /* 3: awaited by 5 */
    from(&p, "b", w);                        /* 4 */
    Tid y = from(&p, "y", back);             /* 5 */
    op_copy(&p, never, y, QUEUE_COPY_OUT);   /* 6: nobody asks before the phase ends */
    from(&p, "c", w);                        /* 7 */
    prog_end_phase(&p);
    prog_begin_phase(&p, "two", 1);
    from(&p, "d", w); /* 8 */
    prog_end_phase(&p);
    plan_lifetimes(&p);
    EXPECT(lives(&p, x, 0, 3) && lives(&p, there, 1, 5) && lives(&p, back, 3, 5));
    EXPECT(lives(&p, y, 5, 7) && lives(&p, never, 6, 7));
    prog_free(&p);
}

TEST(slots_are_taken_over_only_by_the_rules) {
    Program p;
    Machine m = machine_generic_cpu(1);
    prog_init(&p);
    Tid w = tensor(&p, "w", ROLE_WEIGHT, 64);
    prog_begin_phase(&p, "one", 1);
    Tid a = from(&p, "a", w), b = from(&p, "b", w), c = from(&p, "c", w), early = from(&p, "early", w);
    Tid ab = op_add(&p, "ab", a, b);           /* takes a's slot */
    Tid abc = op_add(&p, "abc", ab, c);        /* and hands it on */
    Tid twice = op_add(&p, "twice", abc, abc); /* S3: abc is read in two places */
    Tid alive = op_add(&p, "alive", twice, w); /* S2: twice is read again below */
    from(&p, "d", twice);
    Tid seen = op_stop_gradient(&p, alive);
    Tid viewed = op_add(&p, "viewed", alive, w); /* S2: its view is read below */
    from(&p, "e", seen);
    p.queue = QUEUE_COPY_IN;
    Tid aside = op_add(&p, "aside", viewed, w); /* S1: a side queue */
    p.queue = QUEUE_COMPUTE;
    Tid wide = prog_tensor(&p, "wide", ROLE_ACTIVATION, FMT_F32, 1, DIMS(256));
    prog_emit(&p, (Step){.op = OP_LINEAR_DX, .linear_dx = {.in = {w, w, aside}, .out = {wide}}}); /* S5: larger */
    from(&p, "f", wide);
    prog_end_phase(&p);
    prog_begin_phase(&p, "two", 2);
    from(&p, "g", w);
    Tid last =
        op_add(&p, "last", early, w); /* S2: early dies here by number, but the second play reads it again */
    prog_end_phase(&p);
    Placement pl = plan_all(&p, &m);
    Err e = {0};
    EXPECT_OK(plan_verify(&p, &e));
    EXPECT(p.t[ab].slot == a && p.t[abc].slot == a && p.t[ab].offset == p.t[a].offset &&
           p.t[abc].offset == p.t[a].offset);
    EXPECT(p.t[twice].slot == twice && p.t[alive].slot == alive && p.t[viewed].slot == viewed);
    EXPECT(p.t[aside].slot == aside && p.t[wide].slot == wide && p.t[last].slot == last);
    EXPECT(p.t[early].death == p.n_s - 1);
    plan_lifetimes(&p);
    int64_t apart = plan_place_with(&p, (PlanOptions){.machine = &m}).lower_bound_bytes[POOL_DEVICE];
    EXPECT(p.t[ab].slot == ab && apart >= pl.lower_bound_bytes[POOL_DEVICE]);
    prog_free(&p);
}

/* What comes around the ring has its last step at the ring's end, and is needed again at its begin. */
TEST(slots_carried_around_the_ring_are_not_taken) {
    Program p;
    Machine m = machine_generic_cpu(1);
    Err e = {0};
    prog_init(&p);
    Tid w = tensor(&p, "w", ROLE_WEIGHT, 64), around = tensor(&p, "around", ROLE_ACTIVATION, 64);
    prog_begin_phase(&p, "one", 1);
    from(&p, "a", around);
    prog_emit(&p, (Step){.op = OP_SWIGLU, .swiglu = {.in = {w}, .out = {around}}});
    Tid sum = op_add(&p, "sum", around, w);
    prog_end_phase(&p);
    plan_all(&p, &m);
    EXPECT(p.t[around].death == p.n_s - 1 && p.t[sum].slot == sum);
    EXPECT_OK(plan_verify(&p, &e));
    prog_free(&p);
}

/* A decoder's ring: gradients are dead in evaluation, so its head may lie where they were. */
TEST(gradients_are_dead_while_evaluating) {
    Program p;
    Machine m = machine_generic_cpu(1);
    decoder_record(&p, &decoder_tiny);
    plan_all(&p, &m);
    int update_end = p.phase[prog_find_phase(&p, "update")].end, gradients = 0, reused = 0;
    for (Tid g = 1; g < p.n_t; g++) {
        if (p.t[g].role != ROLE_GRADIENT) continue;
        gradients++;
        EXPECT(p.t[g].birth == 0 && p.t[g].death < update_end);
        for (Tid t = 1; t < p.n_t; t++)
            reused += p.t[t].birth >= update_end && p.t[t].offset < p.t[g].offset + p.t[g].bytes &&
                      p.t[g].offset < p.t[t].offset + p.t[t].bytes;
    }
    EXPECT(gradients > 0 && reused > 0);
    prog_free(&p);
}
