/* test_random.c - drawn programs, planned and played: placed bytes give what memory of one's own gives, in any
 * order that the waits allow; and planted mistakes are found by verify and by the player. */
#include "base/rng.h"
#include "plan/plan.h"
#include "tests/plan/player.h"
#include "tests/plan/random.h"
#include "tests/test.h"

enum { MUTANTS = 500 };

static Placement plan_drawn(Program *p, uint64_t seed, bool share) {
    Machine m = random_machine();
    random_record(p, seed);
    plan_lifetimes(p);
    Placement pl = plan_place_with(p, (PlanOptions){.machine = &m, .share = share});
    plan_waits(p);
    return pl;
}

TEST(random_programs_play_as_in_memory_of_their_own) {
    int64_t programs = test_number("programs", test_brief() ? 2000 : 20000), first = test_number("seed", 1);
    int64_t shared = 0, waits = 0, steps = 0;
    int bad = 0;
    for (int64_t i = 0; i < programs && bad < 3; i++) {
        uint64_t seed = (uint64_t)(first + i);
        Program p;
        Err e = {0};
        Placement pl = plan_drawn(&p, seed, seed % 8 != 0);
        bool ok = plan_verify(&p, &e);
        int differs = play_differs(&p, pl.arena_bytes);
        if (!EXPECT(ok && differs < 0)) {
            bad++;
            test_note("    seed %llu: verify %s, order %d differs", (unsigned long long)seed,
                      ok ? "passes" : e.text, differs);
        }
        for (int k = 0; k < POOL_COUNT; k++) EXPECT(pl.arena_bytes[k] >= pl.lower_bound_bytes[k]);
        for (Tid t = 1; t < p.n_t; t++) shared += p.t[t].slot != t && !p.t[t].base;
        for (int64_t k = 0; k < p.n_s; k++)
            for (int q = 0; q < QUEUE_COUNT; q++) waits += p.s[k].wait[q] >= 0;
        steps += p.n_s;
        prog_free(&p);
    }
    EXPECT(shared > programs / 4 && waits > programs); /* or the programs test less than they say */
    test_note("    %lld programs, %lld steps, %lld shared slots, %lld waits", (long long)programs, (long long)steps,
              (long long)shared, (long long)waits);
}

typedef enum Mistake {
    DIES_EARLY,
    BORN_LATE,
    ALL_DIE_EARLY, /* a planner that is off by one everywhere */
    ALIAS_EARLY,   /* a slot is taken over while its tensor is still to be read */
    WAIT_DROPPED,
    OFFSET_SHIFTED
} Mistake;

static void place_again(Program *p, Placement *pl) {
    Machine m = random_machine();
    *pl = plan_place(p, &m);
    plan_waits(p);
}

static bool drop_wait(Program *p, Tid from) {
    for (int64_t k = 0; k < p->n_s; k++) {
        Step *s = &p->s[(from + k) % p->n_s];
        for (int q = 0; q < QUEUE_COUNT; q++)
            if (s->wait[q] >= 0) return s->wait[q] = -1, true;
    }
    return false;
}

static bool lives_a_while(const Program *p, const Tensor *t) {
    return t->death > t->birth && t->death - t->birth < p->n_s - 1 && t->role != ROLE_SCRATCH;
}

/* The planner shall believe that an input dies where the row lets an output take its slot. */
static bool alias_early(Program *p, Placement *pl, int from) {
    for (int64_t k = 0; k < p->n_s; k++) {
        int i = (int)((from + k) % p->n_s);
        const OpRow *row = op_row(p->s[i].op);
        Tid in = row->share ? p->s[i].in[row->share_in] : NONE, out = row->share ? p->s[i].out[row->share_out] : NONE;
        if (!in || !out || !lives_a_while(p, &p->t[in]) || p->t[in].death <= i) continue;
        int death = p->t[in].death;
        p->t[in].death = i;
        place_again(p, pl);
        if (p->t[out].slot == p->t[in].slot) return true;
        p->t[in].death = death;
    }
    return false;
}

/* Plants one; false: there was nowhere to plant it. */
static bool plant(Program *p, Placement *pl, Mistake kind, uint64_t seed) {
    int64_t align = random_machine().align_bytes;
    Tid first = (Tid)(1 + rng_u32(77, seed) % (uint32_t)(p->n_t - 1));
    bool planted = false;
    if (kind == WAIT_DROPPED) return drop_wait(p, first);
    if (kind == ALIAS_EARLY) return alias_early(p, pl, first);
    for (int64_t k = 0; k < p->n_t - 1; k++) {
        Tid id = (Tid)(1 + (first - 1 + k) % (p->n_t - 1));
        Tensor *t = &p->t[id];
        if (t->base || t->birth < 0 || t->slot != id) continue;
        if (kind == OFFSET_SHIFTED && t->offset >= align) {
            for (Tid o = 1; o < p->n_t; o++)
                if (o == id || p->t[o].slot == id) p->t[o].offset -= align;
            return true;
        }
        if (kind == OFFSET_SHIFTED || !lives_a_while(p, t)) continue;
        if (kind == BORN_LATE) t->birth++;
        else t->death--;
        planted = true;
        if (kind != ALL_DIE_EARLY) break;
    }
    if (planted) place_again(p, pl); /* planned on that belief */
    return planted;
}

static void hunt(Mistake kind, const char *name, int need_verify, int need_player) {
    int planted = 0, by_verify = 0, by_player = 0, missed = 0, first = 0;
    for (uint64_t seed = 1; seed <= MUTANTS; seed++) {
        Program p;
        Err e = {0};
        Placement pl = plan_drawn(&p, 100000 + seed, true);
        if (plant(&p, &pl, kind, seed)) {
            bool verified = plan_verify(&p, &e), differs = play_differs(&p, pl.arena_bytes) >= 0;
            planted++;
            if (!verified && !first) first = planted;
            by_verify += !verified;
            by_player += differs;
            missed += differs && verified;
        }
        prog_free(&p);
    }
    EXPECT(missed == 0); /* what changes a result is always found on paper too */
    EXPECT(planted > MUTANTS / 4 && first >= 1 && first <= 20); /* few programs are enough */
    EXPECT(by_verify * 100 >= planted * need_verify && by_player * 100 >= planted * need_player);
    test_note("    %s: %d planted, %d found by verify, %d by the player, %d missed", name, planted, by_verify,
              by_player, missed);
}

/* A life that is one step short, or a wait that a later one makes good, is not always a mistake in the bytes. */
TEST(planted_early_deaths_are_found) {
    hunt(DIES_EARLY, "death - 1", 15, 15);
}
TEST(planted_late_births_are_found) {
    hunt(BORN_LATE, "birth + 1", 10, 7);
}
TEST(a_planner_whose_lives_end_a_step_early_is_found) {
    hunt(ALL_DIE_EARLY, "every death - 1", 80, 80);
}
TEST(planted_early_aliases_are_found) {
    hunt(ALIAS_EARLY, "alias early", 80, 60);
}
TEST(planted_missing_waits_are_found) {
    hunt(WAIT_DROPPED, "wait dropped", 70, 50);
}
TEST(planted_shifted_offsets_are_found) {
    hunt(OFFSET_SHIFTED, "offset - align", 40, 40);
}
