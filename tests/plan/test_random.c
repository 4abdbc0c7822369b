/* test_random.c - drawn programs, planned and played: placed bytes give what memory of one's own gives, in any
 * order that the waits allow; and planted mistakes are found by verify and by the player. */
#include "base/rng.h"
#include "plan/plan.h"
#include "tests/plan/player.h"
#include "tests/plan/random.h"
#include "tests/test.h"

enum { PROGRAMS = 2000, MUTANTS = 500 };

static Placement plan_drawn(Program *p, uint64_t seed, bool share) {
    Machine m = random_machine();
    random_record(p, seed);
    plan_lifetimes(p);
    Placement pl = plan_place_with(p, (PlanOptions){.machine = &m, .share = share});
    plan_waits(p);
    return pl;
}

TEST(random_programs_play_as_in_memory_of_their_own) {
    int64_t shared = 0, waits = 0, steps = 0;
    int bad = 0;
    for (uint64_t seed = 1; seed <= PROGRAMS && bad < 3; seed++) {
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
        for (int i = 0; i < POOL_COUNT; i++) EXPECT(pl.arena_bytes[i] >= pl.lower_bound_bytes[i]);
        for (Tid t = 1; t < p.n_t; t++) shared += p.t[t].slot != t && !p.t[t].base;
        for (int64_t i = 0; i < p.n_s; i++)
            for (int q = 0; q < QUEUE_COUNT; q++) waits += p.s[i].wait[q] >= 0;
        steps += p.n_s;
        prog_free(&p);
    }
    EXPECT(shared > PROGRAMS / 4 && waits > PROGRAMS); /* or the programs test less than they say */
    test_note("    %d programs, %lld steps, %lld shared slots, %lld waits", PROGRAMS, (long long)steps,
              (long long)shared, (long long)waits);
}

typedef enum Mistake { DIES_EARLY, BORN_LATE, WAIT_DROPPED, OFFSET_SHIFTED, MISTAKES } Mistake;

/* Plants one; false: there was nowhere to plant it. */
static bool plant(Program *p, Placement *pl, Mistake kind, uint64_t seed) {
    Machine m = random_machine();
    Tid first = (Tid)(1 + rng_u32(77, seed) % (uint32_t)(p->n_t - 1));
    if (kind == WAIT_DROPPED) {
        for (int64_t k = 0; k < p->n_s; k++) {
            Step *s = &p->s[(first + k) % p->n_s];
            for (int q = 0; q < QUEUE_COUNT; q++)
                if (s->wait[q] >= 0) return s->wait[q] = -1, true;
        }
        return false;
    }
    for (int64_t k = 0; k < p->n_t - 1; k++) {
        Tid id = (Tid)(1 + (first - 1 + k) % (p->n_t - 1));
        Tensor *t = &p->t[id];
        if (t->base || t->birth < 0 || t->slot != id) continue;
        bool lives_long = t->death > t->birth && t->role != ROLE_SCRATCH;
        if ((kind == DIES_EARLY || kind == BORN_LATE) && lives_long && t->death - t->birth < p->n_s - 1) {
            *(kind == BORN_LATE ? &t->birth : &t->death) +=
                kind == BORN_LATE ? 1 : -1; /* and planned on that belief */
            *pl = plan_place(p, &m);
            plan_waits(p);
            return true;
        }
        if (kind == OFFSET_SHIFTED && t->offset >= m.align_bytes) {
            for (Tid o = 1; o < p->n_t; o++)
                if (o == id || p->t[o].slot == id) p->t[o].offset -= m.align_bytes;
            return true;
        }
    }
    return false;
}

static void hunt(Mistake kind, const char *name, int need_verify, int need_player) {
    int planted = 0, by_verify = 0, by_player = 0, missed = 0;
    for (uint64_t seed = 1; seed <= MUTANTS; seed++) {
        Program p;
        Err e = {0};
        Placement pl = plan_drawn(&p, 100000 + seed, true);
        if (plant(&p, &pl, kind, seed)) {
            bool verified = plan_verify(&p, &e), differs = play_differs(&p, pl.arena_bytes) >= 0;
            planted++;
            by_verify += !verified;
            by_player += differs;
            missed += differs && verified;
        }
        prog_free(&p);
    }
    EXPECT(missed == 0); /* what changes a result is always found on paper too */
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
TEST(planted_missing_waits_are_found) {
    hunt(WAIT_DROPPED, "wait dropped", 70, 50);
}
TEST(planted_shifted_offsets_are_found) {
    hunt(OFFSET_SHIFTED, "offset - align", 40, 40);
}
