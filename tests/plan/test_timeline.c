/* test_timeline.c - the picture of a step and the ledger are about the same bytes. */
#include "base/units.h"
#include "plan/plan.h"
#include "tests/plan/decoder.h"
#include "tests/test.h"

/* Bytes of the slots that are taken at each step, in units of the alignment: no picture can show more. Gives:
 * mem_free. */
static int64_t *slots_taken(const Program *p, int64_t align_bytes, Pool pool) {
    int64_t *taken = MEM_NEW(int64_t, p->n_s + 1);
    for (Tid slot = 1; slot < p->n_t; slot++) {
        int64_t bytes = 0, from = p->n_s, to = -1;
        for (Tid id = slot; id < p->n_t; id++) { /* a chain begins with its first tensor */
            const Tensor *t = &p->t[id];
            if (t->slot != slot || t->base || t->birth < 0 || t->home.pool != pool) continue;
            bytes = MAX2(bytes, units_round_up(t->bytes, align_bytes));
            from = MIN2(from, t->birth), to = MAX2(to, t->death);
        }
        for (int64_t i = from; i <= to; i++) taken[i] += bytes;
    }
    return taken;
}

static void check_rings(const Decoder *d, Home home) {
    Program p;
    Decoder shaped = *d;
    shaped.home = home;
    decoder_record(&p, &shaped);
    plan_materialise(&p);
    Machine m = machine_generic_cpu(1);
    Placement pl = plan_all(&p, &m);
    Ledger l = {0};
    plan_ledger(&p, &pl, &m, &l);
    for (int pool = 0; pool < POOL_COUNT; pool++) {
        Timeline t;
        plan_timeline(&t, &p, &m, (Pool)pool);
        int64_t most = 0, sum = 0, *taken = slots_taken(&p, m.align_bytes, (Pool)pool);
        for (int i = 0; i < t.n_steps; i++) {
            int64_t alive = 0;
            for (int k = 0; k < t.n_lines; k++) {
                EXPECT(t.bytes[(int64_t)k * t.n_steps + i] >= 0);
                alive += t.bytes[(int64_t)k * t.n_steps + i];
            }
            if (!EXPECT(alive <= taken[i]))
                test_note("    pool %d, step %d: %lld bytes in slots of %lld", pool, i, (long long)alive,
                          (long long)taken[i]);
            if (alive > most) most = alive;
        }
        EXPECT(most <= pl.lower_bound_bytes[pool] && (!pl.lower_bound_bytes[pool] || most > 0));
        for (int k = 0; k < t.n_lines; k++) { /* at the peak: the ledger's lines, to the byte */
            int64_t at_peak = t.bytes[(int64_t)k * t.n_steps + t.peak_step];
            const LedgerLine *line = ledger_find(&l, (Pool)pool, t.name[k]);
            if (!EXPECT((line ? line->planned_bytes : 0) == at_peak))
                test_note("    pool %d, %s: %lld in the picture", pool, t.name[k], (long long)at_peak);
            sum += at_peak;
        }
        EXPECT(sum == t.peak_bytes);
        mem_free(taken);
        plan_timeline_free(&t);
    }
    prog_free(&p);
}

TEST(the_timeline_at_its_peak_is_the_ledger) {
    check_rings(&decoder_tiny, decoder_tiny.home);
    check_rings(&decoder_7b, decoder_7b.home);
    check_rings(&decoder_7b, (Home){POOL_PINNED, FMT_BF16, 0});
}

TEST(useful_products_do_not_count_what_is_computed_again) {
    Program plain, again;
    decoder_record(&plain, &decoder_tiny);
    decoder_record(&again, &decoder_tiny);
    RecomputeLevel level[64];
    for (int i = 0; i < 64; i++) level[i] = RECOMPUTE_BLOCK;
    int64_t before = again.n_s;
    plan_recompute(&again, level, decoder_tiny.layers);
    Machine m = machine_generic_cpu(1);
    plan_all(&plain, &m), plan_all(&again, &m);
    EXPECT(again.n_s > before);
    EXPECT_NEAR(plan_useful_flops(&again, 0), plan_useful_flops(&plain, 0), 1);
    EXPECT(plan_useful_flops(&plain, 0) > 0);
    prog_free(&plain), prog_free(&again);
}
