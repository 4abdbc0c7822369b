/* test_passes.c - drawn layers through every pass: state takes the same values as without it, in memory of its own and
 * placed; and a clone that reads state across a write is found. */
#include "base/rng.h"
#include "plan/plan.h"
#include "tests/plan/player.h"
#include "tests/plan/random.h"
#include "tests/test.h"

enum { PASSES_RECOMPUTE = 1, PASSES_SWEEP = 2, PASSES_FUSE = 4, PASSES_MATERIALISE = 8, PASSES_ALL = 15 };

static Placement plan_drawn(Program *p, uint64_t seed) {
    Machine m = random_machine();
    for (int64_t i = 0; i < p->n_s; i++)
        if (rng_u32(seed, (uint64_t)i) % 4 == 0)
            p->s[i].workspace =
                prog_tensor(p, "scratch", ROLE_SCRATCH, FMT_I32, 1, DIMS(1 + (seed + (uint64_t)i) % 40));
    plan_lifetimes(p);
    Placement pl = plan_place(p, &m);
    plan_waits(p);
    return pl;
}

static void run_passes(Program *p, int layers, int passes, uint64_t seed) {
    RecomputeLevel level[RANDOM_LAYERS];
    for (int l = 0; l < layers; l++) level[l] = (RecomputeLevel)(rng_u32(seed, (uint64_t)l) % RECOMPUTE_LEVELS);
    if (seed % 3 == 0)
        for (int l = 0; l < layers; l++) level[l] = RECOMPUTE_BLOCK;
    if (passes & PASSES_SWEEP) plan_sweep(p);
    if (passes & PASSES_RECOMPUTE) plan_recompute(p, level, layers);
    if (passes & PASSES_FUSE) plan_fuse(p);
    if (passes & PASSES_MATERIALISE) plan_materialise_ahead(p, (int)(seed / 7 % 3));
}

typedef struct Seen {
    int64_t clones, sweeps, fused, halves, brought, shared, waits, steps;
} Seen;

static void see(Seen *seen, const Program *p) {
    for (int64_t i = 0; i < p->n_s; i++) {
        const Step *s = &p->s[i];
        seen->clones += s->clone_of >= 0 && s->region == REGION_RECOMPUTE;
        seen->sweeps += s->op == OP_HEAD_SWEEP;
        seen->fused += s->op == OP_ADD_RMSNORM;
        seen->halves += s->clone_of >= 0 && p->s[s->clone_of].op == OP_ADD_RMSNORM && s->op != OP_ADD_RMSNORM;
        seen->brought += s->region == REGION_MOVE;
        for (int q = 0; q < QUEUE_COUNT; q++) seen->waits += s->wait[q] >= 0;
    }
    for (Tid t = 1; t < p->n_t; t++) seen->shared += p->t[t].slot != t && !p->t[t].base;
    seen->steps += p->n_s;
}

static bool keeps_results(uint64_t seed, Seen *seen) {
    Program plain, passed;
    Err e = {0};
    int layers = random_record_layers(&plain, seed), passes = 1 + (int)(seed % PASSES_ALL);
    int64_t recorded = plain.n_t;
    prog_copy(&passed, &plain);
    run_passes(&passed, layers, passes, seed);
    plan_lifetimes(&plain);
    Placement pl = plan_drawn(&passed, seed);
    bool ok = plan_verify(&passed, &e), same = play_same_state(&plain, &passed, recorded);
    int differs = play_differs(&passed, pl.arena_bytes);
    if (!EXPECT(ok && same && differs < 0))
        test_note("    seed %llu, passes %d: verify %s, state %s, order %d differs", (unsigned long long)seed, passes,
                  ok ? "passes" : e.text, same ? "same" : "DIFFERS", differs);
    see(seen, &passed);
    prog_free(&passed);
    prog_free(&plain);
    return ok && same && differs < 0;
}

TEST(passes_over_random_layers_keep_results) {
    int64_t n = test_number("programs", test_brief() ? 500 : 5000), first = test_number("seed", 1);
    Seen seen = {0};
    int bad = 0;
    for (int64_t i = 0; i < n && bad < 3; i++) bad += !keeps_results((uint64_t)(first + i), &seen);
    EXPECT(seen.clones > 2 * n && seen.sweeps > n / 10 && seen.fused > n / 10 && seen.halves > n / 50 &&
           seen.brought > 2 * n && seen.waits > n && seen.shared > n / 2);
    test_note(
        "    %lld programs, %lld steps: %lld clones, %lld sweeps, %lld fused norms, %lld halves of one, %lld brought "
        "in, %lld shared slots, %lld waits",
        (long long)n, (long long)seen.steps, (long long)seen.clones, (long long)seen.sweeps, (long long)seen.fused,
        (long long)seen.halves, (long long)seen.brought, (long long)seen.shared, (long long)seen.waits);
}

/* ---- a clone across a write ---- */

static int step_with_key(const Program *p, uint32_t key, OpId op) {
    for (int i = 0; i < p->n_s; i++)
        if (p->s[i].key == key && p->s[i].op == op && p->s[i].clone_of < 0) return i;
    return -1;
}

/* Between a clone and its original a step shall write the state that both read: in both programs. */
static bool plant_write(Program *plain, Program *passed) {
    for (int c = 0; c < passed->n_s; c++) {
        const Step *clone = &passed->s[c];
        if (clone->clone_of < 0 || clone->region != REGION_RECOMPUTE) continue;
        for (int k = 0; k < MAX_IN; k++) {
            Tid state = clone->in[k];
            if (!state || !prog_is_state(passed, state) || passed->t[state].base) continue;
            for (int i = clone->clone_of + 1; i < c; i++) {
                Step *w = &passed->s[i];
                int at = w->op == OP_LINEAR_DW ? step_with_key(plain, w->key, w->op) : -1;
                if (at < 0 || prog_bytes(plain, plain->s[at].linear_dw.out.dw) != prog_bytes(plain, state))
                    continue;
                w->linear_dw.out.dw = plain->s[at].linear_dw.out.dw = state;
                return true;
            }
        }
    }
    return false;
}

TEST(planted_clones_across_a_write_are_found) {
    enum { PROGRAMS = 500 };
    int planted = 0, by_verify = 0, by_player = 0;
    for (uint64_t seed = 1; seed <= PROGRAMS; seed++) {
        Program plain, passed;
        Err e = {0};
        int layers = random_record_layers(&plain, 700000 + seed);
        int64_t recorded = plain.n_t;
        prog_copy(&passed, &plain);
        run_passes(&passed, layers, PASSES_RECOMPUTE, seed);
        if (plant_write(&plain, &passed)) {
            plan_lifetimes(&plain);
            plan_drawn(&passed, seed);
            planted++;
            by_verify += !plan_verify(&passed, &e);
            by_player += !play_same_state(&plain, &passed, recorded);
        }
        prog_free(&passed);
        prog_free(&plain);
    }
    EXPECT(planted > PROGRAMS / 4 && by_verify == planted && by_player * 2 > planted);
    test_note("    clone across a write: %d planted, %d found by verify, %d by the player", planted, by_verify,
              by_player);
}
