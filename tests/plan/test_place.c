/* test_place.c - whole training rings of decoders: placement against the lower bound, the ledger's sum, time taken. */
#include <time.h>

#include "base/units.h"
#include "plan/plan.h"
#include "tests/plan/decoder.h"
#include "tests/plan/player.h"
#include "tests/test.h"

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static Machine card(void) { /* a GPU as data */
    Machine m = machine_generic_cpu(1);
    m.kind = MACHINE_CUDA;
    m.page_bytes = 2 * MIB;
    m.matrix_flops = 700e12;
    m.vector_flops = 30e12;
    m.memory_bytes_per_s = 4e12;
    m.copy_bytes_per_s = 50e9;
    m.step_seconds = 3e-6;
    return m;
}

static int64_t ledger_sum(const Ledger *l, Pool pool) {
    int64_t sum = 0;
    for (int i = 0; i < l->n; i++)
        if (l->line[i].pool == pool && l->line[i].in_arena) sum += l->line[i].planned_bytes;
    return sum;
}

static Placement plan_ring(const Decoder *d, const Machine *m, const char *recompute, bool sweep, const char *what) {
    Program p;
    Err e = {0};
    RecomputeLevel level[64];
    decoder_record(&p, d);
    EXPECT_OK(plan_parse_recompute(level, d->layers, recompute, &e));
    double begin = now_ms();
    plan_recompute(&p, level, d->layers);
    if (sweep) plan_sweep(&p);
    plan_materialise(&p);
    double passes = now_ms();
    Placement pl = plan_all(&p, m);
    double placed = now_ms();
    EXPECT_OK(plan_verify(&p, &e));
    double verified = now_ms();
    Ledger l = {0};
    plan_ledger(&p, &pl, m, &l);
    for (int i = 0; i < POOL_COUNT; i++) {
        EXPECT(ledger_sum(&l, (Pool)i) == pl.arena_bytes[i]);
        EXPECT(pl.arena_bytes[i] >= pl.lower_bound_bytes[i]);
        EXPECT((double)(pl.arena_bytes[i] - m->page_bytes) <= 1.002 * (double)pl.lower_bound_bytes[i]);
    }
    test_note("    %-24s %5lld tensors %5lld steps %12s, %.5f of the bound; ms: passes %.2f place %.2f verify %.2f", what,
              (long long)p.n_t, (long long)p.n_s, units_bytes(pl.arena_bytes[POOL_DEVICE]).s,
              (double)pl.arena_bytes[POOL_DEVICE] / (double)pl.lower_bound_bytes[POOL_DEVICE], passes - begin, placed - passes,
              verified - placed);
    prog_free(&p);
    return pl;
}

TEST(decoder_rings_are_placed_near_the_bound) {
    Decoder lora = decoder_7b, full = decoder_7b;
    full.rank = 0;
    const char *const levels[] = {"none", "norm", "ffn", "block", "block:0-13,norm:14-27", "ffn:3-20"};
    Machine cpu = machine_generic_cpu(2), gpu = card();
    for (int i = 0; i < COUNT_OF(levels); i++) {
        plan_ring(&lora, &gpu, levels[i], true, levels[i]);
        plan_ring(&full, &gpu, levels[i], false, levels[i]);
        plan_ring(&lora, &cpu, levels[i], false, levels[i]);
        plan_ring(&full, &cpu, levels[i], true, levels[i]);
    }
    Decoder small = decoder_7b;
    small.layers = 24, small.width = 896, small.heads = 14, small.kv_heads = 2, small.head_dim = 64, small.hidden = 4864;
    for (int64_t tokens = 256; tokens <= 4096; tokens *= 4) {
        small.tokens = tokens, small.seq = 256;
        for (int rank = 0; rank <= 16; rank += 8) {
            small.rank = rank;
            plan_ring(&small, &cpu, "norm", true, "0.5B");
            plan_ring(&small, &gpu, "block", true, "0.5B");
        }
    }
}
