/* test_place.c - whole training rings of decoders: placement against the lower bound, the ledger's sum, time
 * taken. */
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

/* What a set of rings showed. */
typedef struct Seen {
    int rings;
    int64_t most_tensors;
    double worst, most_ms, sum_ms, most_verify_ms; /* worst: above the lower bound, without the last page */
} Seen;

typedef struct Ring {
    Decoder d;
    const Machine *m;
    const char *recompute;
    bool sweep;
} Ring;

static void plan_ring(const Ring *r, Seen *seen) {
    Program p;
    Err e = {0};
    RecomputeLevel level[64];
    decoder_record(&p, &r->d);
    EXPECT_OK(plan_parse_recompute(level, r->d.layers, r->recompute, &e));
    double begin = now_ms();
    plan_recompute(&p, level, r->d.layers);
    if (r->sweep) plan_sweep(&p);
    plan_materialise(&p);
    Placement pl = plan_all(&p, r->m);
    double placed = now_ms();
    EXPECT_OK(plan_verify(&p, &e));
    double verified = now_ms();
    Ledger l = {0};
    plan_ledger(&p, &pl, r->m, &l);
    for (int i = 0; i < POOL_COUNT; i++) {
        double bound = (double)pl.lower_bound_bytes[i], taken = (double)(pl.arena_bytes[i] - r->m->page_bytes);
        EXPECT(ledger_sum(&l, (Pool)i) == pl.arena_bytes[i] && pl.arena_bytes[i] >= pl.lower_bound_bytes[i]);
        EXPECT(taken <= 1.002 * bound);
        if (bound > 0) seen->worst = MAX2(seen->worst, taken / bound);
    }
    seen->rings++;
    seen->most_tensors = MAX2(seen->most_tensors, p.n_t);
    seen->sum_ms += placed - begin;
    seen->most_ms = MAX2(seen->most_ms, placed - begin);
    seen->most_verify_ms = MAX2(seen->most_verify_ms, verified - placed);
    prog_free(&p);
}

static void tell(const char *what, const Seen *s) {
    test_note(
        "    %s: %d rings of up to %lld tensors, at most %.5f of the bound; planned in %.1f ms (most %.1f), "
        "verify at most %.1f ms",
        what, s->rings, (long long)s->most_tensors, s->worst, s->sum_ms / s->rings, s->most_ms, s->most_verify_ms);
}

static const char *const levels[] = {"none", "norm", "ffn", "block", "block:0-13,norm:14-27", "ffn:3-20"};

TEST(decoder_7b_rings_are_placed_near_the_bound) {
    Machine cpu = machine_generic_cpu(2), gpu = card();
    for (int rank = 0; rank <= 128; rank += 128) {
        Seen seen = {0};
        for (int i = 0; i < COUNT_OF(levels) * 4; i++) {
            Ring r = {decoder_7b, i & 1 ? &cpu : &gpu, levels[i / 4], i & 2};
            r.d.rank = rank;
            plan_ring(&r, &seen);
        }
        tell(rank ? "7B, adapters" : "7B, all weights", &seen);
    }
}

TEST(small_decoder_rings_are_placed_near_the_bound) {
    Machine cpu = machine_generic_cpu(2), gpu = card();
    Seen seen = {0};
    Ring r = {decoder_7b, NULL, NULL, true};
    r.d.layers = 24, r.d.width = 896, r.d.heads = 14, r.d.kv_heads = 2, r.d.head_dim = 64, r.d.hidden = 4864,
    r.d.seq = 256;
    for (int64_t tokens = 256; tokens <= 4096; tokens *= 4)
        for (int rank = 0; rank <= 16; rank += 8) {
            r.d.tokens = tokens, r.d.rank = rank;
            r.m = &cpu, r.recompute = "norm";
            plan_ring(&r, &seen);
            r.m = &gpu, r.recompute = "block";
            plan_ring(&r, &seen);
        }
    tell("0.5B", &seen);
}

TEST(streamed_and_quantised_rings_are_placed_near_the_bound) {
    static const Home homes[] = {{POOL_DEVICE, FMT_INT8, 0}, {POOL_PINNED, FMT_BF16, 0}, {POOL_HOST, FMT_INT8, 0}};
    Machine gpu = card();
    Seen seen = {0};
    for (int i = 0; i < COUNT_OF(homes) * 2; i++) {
        Ring r = {decoder_7b, &gpu, i & 1 ? "block" : "none", true};
        r.d.home = homes[i / 2];
        plan_ring(&r, &seen);
    }
    tell("7B, weights brought in", &seen);
}

/* Lines by hand, on a ring whose peak is in backward: state counts whole, and slack is small. */
TEST(ledger_names_every_byte) {
    Machine m = card();
    Program p;
    Ledger l = {0};
    Decoder d = decoder_7b;
    d.rank = 0;
    decoder_record(&p, &d);
    Placement pl = plan_all(&p, &m);
    plan_ledger(&p, &pl, &m, &l);
    int64_t weights = 0, moments = 0, gradients = 0, arena = pl.arena_bytes[POOL_DEVICE];
    for (Tid t = 1; t < p.n_t; t++) {
        weights += p.t[t].role == ROLE_WEIGHT ? p.t[t].bytes : 0;
        moments += p.t[t].role == ROLE_MOMENT ? p.t[t].bytes : 0;
        gradients += p.t[t].role == ROLE_GRADIENT ? p.t[t].bytes : 0;
    }
    EXPECT(ledger_find(&l, POOL_DEVICE, "weights")->planned_bytes == weights);
    EXPECT(ledger_find(&l, POOL_DEVICE, "optimizer")->planned_bytes == moments);
    EXPECT(ledger_find(&l, POOL_DEVICE, "gradients")->planned_bytes == gradients);
    EXPECT_STR(ledger_find(&l, POOL_DEVICE, "weights")->note, "bf16");
    EXPECT(ledger_find(&l, POOL_DEVICE, "activations") && ledger_find(&l, POOL_DEVICE, "head"));
    EXPECT(ledger_find(&l, POOL_DEVICE, "slack")->planned_bytes < arena / 500);
    EXPECT(l.arena_bytes[POOL_DEVICE] == arena && ledger_process_bytes(&l, POOL_DEVICE) == arena);
    prog_free(&p);
}

TEST(cost_counts_phases_and_repeats) {
    Machine m = card();
    Program p;
    decoder_record(&p, &decoder_7b);
    double sum = 0, micro = plan_step_seconds(&p, &m, 0);
    for (int i = 0; i < p.n_phases; i++) sum += plan_step_seconds(&p, &m, i) * (double)p.phase[i].repeat;
    EXPECT_NEAR(plan_step_seconds(&p, &m, -1) / sum, 1, 1e-12);
    /* forward and the input gradient of frozen products: at least 4 flops per weight and token */
    double products = 4.0 * 6.5e9 * 1536 / m.matrix_flops;
    EXPECT(micro > products && micro < 3 * products);
    m.matrix_flops *= 1e6, m.vector_flops *= 1e6; /* then bytes decide: at least the weights, read twice */
    EXPECT(plan_step_seconds(&p, &m, 0) > 2 * 6.5e9 * 2 / m.memory_bytes_per_s);
    prog_free(&p);
}

static double product_seconds(int64_t rows, Format stored, int capability) {
    Machine m = card();
    Program p;
    m.capability = capability;
    prog_init(&p);
    prog_begin_phase(&p, "decode", 1);
    Tid x = prog_tensor(&p, "x", ROLE_INPUT, FMT_BF16, 2, DIMS(rows, 4096));
    Tid w = prog_tensor(&p, "w", ROLE_WEIGHT, stored, 2, DIMS(4096, 4096));
    op_linear_direct(&p, "y", x, w, NONE);
    prog_end_phase(&p);
    double seconds = plan_step_seconds(&p, &m, 0);
    prog_free(&p);
    return seconds;
}

TEST(cost_knows_starts_that_overlap_and_codes_that_are_turned) {
    EXPECT(product_seconds(1, FMT_BF16, 90) < product_seconds(1, FMT_BF16, 80));
    EXPECT(product_seconds(200, FMT_BF16, 90) == product_seconds(200, FMT_BF16, 80)); /* by the library */
    double few = product_seconds(1, FMT_NF4, 90), some = product_seconds(64, FMT_NF4, 90);
    EXPECT(few < product_seconds(1, FMT_INT8, 90) &&
           product_seconds(1, FMT_INT8, 90) < product_seconds(1, FMT_BF16, 90));
    EXPECT(some > 2 * few && product_seconds(64, FMT_BF16, 90) < 1.1 * product_seconds(1, FMT_BF16, 90));
}
